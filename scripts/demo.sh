#!/usr/bin/env bash
# The whole pipeline on a small checkpoint that the project makes itself, served by a Hub on loopback:
#   make-checkpoint -> hub -> fetch -> verify -> pack-engram -> preflight -> serve <- bench
# Usage: demo.sh BUILD_DIR WORK_DIR
set -euo pipefail

build=$(cd "$1" && pwd)
rm -rf "$2" && mkdir -p "$2"
work=$(cd "$2" && pwd)
PATH=$build/bin:$PATH
cd "$work"

pids=()
stop_all() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
}
trap stop_all EXIT

step() { printf '\n== %s\n' "$*"; }
wait_for_file() {
  for _ in $(seq 200); do [ -s "$1" ] && return 0; sleep 0.05; done
  echo "demo: $1 did not appear" >&2
  return 1
}

step "make a checkpoint: the release's layout, and the same model as an EXL3 pack"
mkdir -p hub/demo
dsf-make-checkpoint --native hub/demo/tiny-native --exl3 hub/demo/tiny-exl3

step "serve both from a Hub on loopback"
dsf-hub serve --root hub --port 0 --port-file hub.port 2>hub.log &
pids+=($!)
wait_for_file hub.port
export HF_ENDPOINT=http://127.0.0.1:$(cat hub.port)

step "pin what is to be fetched, then fetch it: every byte hashed"
dsf-fetch pin demo/tiny-exl3 -o exl3.pin.json
dsf-fetch pin demo/tiny-native -o native.pin.json
dsf-fetch get exl3.pin.json --local-dir model
dsf-fetch get native.pin.json --local-dir native

step "verify both against their pins"
dsf-verify model --pin exl3.pin.json --report model.verify.json
dsf-verify native --pin native.pin.json --report native.verify.json

step "pack this rank's Engram rows, and check the pack against its source"
dsf-pack-engram --source native --config native/config.json --output engram --rank 0 --world-size 1
dsf-pack-engram --source native --config native/config.json --check engram --rank 0 --world-size 1

step "is this node ready?"
dsf-preflight --model model --engram engram --world-size 1 --rank 0

step "serve the EXL3 pack on the CPU backend"
dsf-serve --model model --engram engram --backend cpu --port 0 --port-file serve.port --served-model-name tiny 2>serve.log &
pids+=($!)
wait_for_file serve.port
url=http://127.0.0.1:$(cat serve.port)

step "ask it something (random weights: noise is the right answer)"
curl -sS --fail "$url/v1/chat/completions" -H 'Content-Type: application/json' \
  -d '{"model":"tiny","messages":[{"role":"user","content":"Hello"}],"reasoning_effort":"none","temperature":0,"max_tokens":16}'
echo

step "measure it: C1 to C8"
dsf-bench --base-url "$url" --model tiny --label demo --thinking off --input-lines "${DSF_DEMO_LINES:-27}" --output-tokens 16 --repeats 1 --skip-warmup --out bench
cat bench/table.md

step "done; everything is in $work"
