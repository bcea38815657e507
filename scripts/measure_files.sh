#!/usr/bin/env bash
# The tools that read and write whole checkpoints against the plain commands that move the same bytes: verify against sha256sum and
# openssl in parallel, pack against cp, check against cmp. Prints one line a run; nothing is kept.
# Usage: measure_files.sh BUILD_DIR WORK_DIR [GIB]        (needs GNU time, bc, openssl and about 5 * GIB of disk;
# a quiet machine: see the load it prints)
set -euo pipefail
build=$(cd "$1" && pwd)
mkdir -p "$2" && work=$(cd "$2" && pwd)
gib=${3:-4}
cores=$(nproc)
PATH=$build/bin:$build/tests:$PATH
cd "$work"
trap 'rm -rf "$work/files" "$work/tables" "$work/packs" "$work/copy" "$work/timing"' EXIT

# run NAME COMMAND...: wall seconds, CPU seconds, peak memory.
run() {
  local name=$1
  shift
  /usr/bin/time -o timing -f "%e %U %S %M" "$@" >/dev/null
  # shellcheck disable=SC2046
  set -- $(tail -1 timing)
  printf '%-34s %7.2f s wall  %7.2f s cpu  %8d KiB\n' "$name" "$1" "$(echo "$2 + $3" | bc)" "$4"
}
cold() { find "$work" -type f -exec dd if={} iflag=nocache count=0 status=none \; ; }
cached() { awk '/^Cached:/ {print $2}' /proc/meminfo; }

echo "machine: $(nproc) cores, load $(cut -d' ' -f1-3 /proc/loadavg), $(date -u +%F)"
mkdir -p files
for i in $(seq "$gib"); do head -c 1G /dev/zero | openssl enc -aes-128-ctr -K 0 -iv "$i" >"files/$i.bin" 2>/dev/null; done
(cd files && sha256sum *.bin >SHA256SUMS)
sync
for pass in 1 2 3; do
  cold; run "sha256sum -c, $cores at once" sh -c "cd files && split -n l/$cores SHA256SUMS /tmp/sums. && ls /tmp/sums.* | xargs -P $cores -n 1 sha256sum -c --quiet; rm -f /tmp/sums.*"
  cold; run "openssl dgst -sha256, $cores at once" sh -c "ls files/*.bin | xargs -P $cores -n 1 openssl dgst -sha256"
  cold; before=$(cached); run "dsf-verify --level full" dsf-verify files --level full; echo "  page cache grew by $(( ($(cached) - before) / 1024 )) MiB"
done

# 24 heads of VOCAB rows of 264 bytes.
made_tables tables $((gib * 1073741824 / 264 / 24))
sync
for pass in 1 2 3; do
  rm -rf packs copy
  cold; run "cp and sync" sh -c "cp tables/model-00001-of-00001.safetensors copy && sync copy"
  rm -f copy
  cold; before=$(cached); run "dsf-pack-engram" dsf-pack-engram --source tables --output packs; echo "  page cache grew by $(( ($(cached) - before) / 1024 )) MiB"
  cp tables/model-00001-of-00001.safetensors copy && sync
  cold; run "cmp" cmp tables/model-00001-of-00001.safetensors copy
  rm -f copy
  cold; run "dsf-pack-engram --check, source" dsf-pack-engram --source tables --check packs
  cold; run "dsf-pack-engram --check, record" dsf-pack-engram --check packs
done
echo "load at the end: $(cut -d' ' -f1-3 /proc/loadavg)"
