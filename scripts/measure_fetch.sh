#!/usr/bin/env bash
# dsf-fetch against the public `hf download` from the same loopback Hub, files in page cache on the serving side, in turns.
# Usage: measure_fetch.sh BUILD_DIR WORK_DIR HF_COMMAND [GIB]       (GNU time; 2 * GIB of disk)
set -euo pipefail
build=$(cd "$1" && pwd)
mkdir -p "$2" && work=$(cd "$2" && pwd)
hf=$3 gib=${4:-4}
cd "$work"
hub=
trap '[ -z "$hub" ] || kill "$hub" 2>/dev/null; rm -rf "$work/hub" "$work/ours" "$work/theirs" "$work/timing" "$work/port"' EXIT
cached() { awk '/^Cached:/ {print $2}' /proc/meminfo; }

run() {  # run NAME COMMAND...: wall seconds, rate, CPU seconds, peak memory.
  local name=$1
  shift
  /usr/bin/time -o timing -f "%e %U %S %M" "$@" >/dev/null 2>log || { tail -5 log; exit 1; }
  awk -v name="$name" -v gib="$gib" 'END { printf "%-34s %7.2f s wall  %6.3f GB/s  %7.2f s cpu  %8d KiB\n", name, $1, gib * 1.073741824 / $1, $2 + $3, $4 }' timing
}

mkdir -p hub/org/model
for i in $(seq "$gib"); do head -c 1G /dev/zero | openssl enc -aes-128-ctr -K 0 -iv "$i" >"hub/org/model/model-$i.safetensors" 2>/dev/null; done
"$build/bin/dsf-hub" serve --root hub --port-file port >/dev/null 2>&1 &
hub=$!
for _ in $(seq 600); do [ -s port ] && break; sleep 0.1; done
export HF_ENDPOINT=http://127.0.0.1:$(cat port) HF_HUB_DISABLE_XET=1 HF_HUB_DISABLE_TELEMETRY=1
"$build/bin/dsf-fetch" ls org/model >/dev/null
sync
echo "machine: $(nproc) cores, load $(cut -d' ' -f1-3 /proc/loadavg), $(date -u +%F); $("$hf" version 2>/dev/null | tail -1)"
for pass in 1 2 3; do
  cat hub/org/model/* >/dev/null
  rm -rf ours; before=$(cached)
  run "dsf-fetch get" "$build/bin/dsf-fetch" get org/model --local-dir ours --quiet
  echo "  page cache grew by $(( ($(cached) - before) / 1024 )) MiB"
  rm -rf theirs
  run "hf download" "$hf" download org/model --local-dir theirs
  run "hf download, then sha256sum" sh -c "rm -rf theirs && '$hf' download org/model --local-dir theirs && ls theirs/*.safetensors | xargs -P 2 -n 1 sha256sum"
  cmp ours/model-1.safetensors theirs/model-1.safetensors
done
echo "load at the end: $(cut -d' ' -f1-3 /proc/loadavg)"
