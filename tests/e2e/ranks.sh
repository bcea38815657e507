#!/bin/sh
# Two dsf-serve processes on one model over loopback: they serve, a mismatch is refused, and kill -9 of either ends the other within two seconds
# with exit code 3. Usage: ranks.sh BUILD_DIR WORK_DIR
set -eu
trap 'for p in $(jobs -p); do kill -9 "$p" 2>/dev/null || true; done' EXIT
build=$1 work=$2
rm -rf "$work" && mkdir -p "$work"
model=$build/made/native
log() { printf '%s\n' "$*"; }
die() { log "FAIL: $*"; cat "$work"/*.log; exit 1; }

port() { awk -v seed="$$$1" 'BEGIN { srand(seed); print 20000 + int(rand() * 20000) }'; }
rank() {  # rank RANK RENDEZVOUS NAME [more]
  r=$1 at=$2 name=$3; shift 3
  "$build/bin/dsf-serve" --model "$model" --rank "$r" --world-size 2 --rendezvous "$at" --port 0 --port-file "$work/$name.port" -j 1 --max-model-len 512 "$@" \
    > "$work/$name.out" 2> "$work/$name.log" &
}
await() {  # await FILE SECONDS
  i=0
  while [ ! -s "$1" ]; do i=$((i + 1)); [ $i -gt $(($2 * 10)) ] && die "$1 did not come"; sleep 0.1; done
}
# The exit code of a process that should have ended within two seconds from now.
ended() {  # ended PID WANT NAME
  start=$(date +%s%N) code=0
  wait "$1" || code=$?
  ms=$((($(date +%s%N) - start) / 1000000))
  log "$3 ended with $code after $ms ms"
  [ "$code" -eq "$2" ] || die "$3 ended with $code, not $2"
  [ "$ms" -lt 2000 ] || die "$3 took $ms ms"
}

start_two() {  # start_two N: both ranks at a rendezvous of their own, until rank 0 serves
  at=127.0.0.1:$(port "$1")
  rm -f "$work/zero.port"
  rank 1 "$at" one; one=$!
  rank 0 "$at" zero; zero=$!
  await "$work/zero.port" 120
}

start_two 1
url=http://127.0.0.1:$(cat "$work/zero.port")
reply=$(curl -sS "$url/v1/completions" -H 'Content-Type: application/json' -d '{"model":"native","prompt":"Hello","max_tokens":8,"temperature":0}')
case $reply in *'"choices"'*) ;; *) die "no completion: $reply" ;; esac
log "two ranks answer"
kill -9 "$one"; wait "$one" 2>/dev/null || true
ended "$zero" 3 "rank 0 after kill -9 of rank 1"

start_two 2
kill -9 "$zero"; wait "$zero" 2>/dev/null || true
ended "$one" 3 "rank 1 after kill -9 of rank 0"

start_two 3
kill -TERM "$zero"
code=0; wait "$zero" || code=$?
[ "$code" -eq 143 ] || die "rank 0 ended with $code after SIGTERM"
code=0; wait "$one" || code=$?
[ "$code" -eq 0 ] || die "rank 1 ended with $code after rank 0 stopped"
log "a planned stop ends both"

at=127.0.0.1:$(port 4)
rank 1 "$at" one --prefill-chunk 64; one=$!
rank 0 "$at" zero; zero=$!
for p in $one $zero; do
  code=0; wait "$p" || code=$?
  [ "$code" -eq 2 ] || die "a mismatch ended with $code"
done
grep -q "rank 0 has prefill-chunk=512, rank 1 has prefill-chunk=64" "$work/zero.log" || die "the difference is not named"
log "a mismatch is refused by name"
