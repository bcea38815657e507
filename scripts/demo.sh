#!/usr/bin/env bash
# The whole pipeline on the toy model (tests/toy: six million weights, trained on a closed world), served by a Hub on loopback:
#   hub -> fetch -> verify -> pack-engram -> preflight -> serve <- questions, bench
# Usage: demo.sh BUILD_DIR WORK_DIR
set -euo pipefail

toy=$(cd "$(dirname "$0")/../tests/toy/model" && pwd)
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

mkdir -p hub/demo
cp -r "$toy/native" hub/demo/toy-native
cp -r "$toy/exl3" hub/demo/toy-exl3

step "serve the toy model, native and as an EXL3 pack, from a Hub on loopback"
dsf-hub serve --root hub --port 0 --port-file hub.port 2>hub.log &
pids+=($!)
wait_for_file hub.port
export HF_ENDPOINT=http://127.0.0.1:$(cat hub.port)

step "pin what is to be fetched, then fetch it: every byte hashed"
dsf-fetch pin demo/toy-exl3 -o exl3.pin.json
dsf-fetch pin demo/toy-native -o native.pin.json
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
dsf-serve --model model --engram engram --backend cpu --port 0 --port-file serve.port --served-model-name toy 2>serve.log &
pids+=($!)
wait_for_file serve.port
url=http://127.0.0.1:$(cat serve.port)

# ask QUESTION PATTERN MEMBERS: one chat request at temperature 0; the answer is printed and must match the pattern.
ask() {
  local reply
  reply=$(curl -sS --fail "$url/v1/chat/completions" -H 'Content-Type: application/json' \
    -d '{"model":"toy","temperature":0,"max_tokens":200,"messages":[{"role":"user","content":"'"$1"'"}],'"$3"'}')
  echo "question: $1"
  echo "answer:   $(sed -E 's/.*"message":(\{.*\}),"logprobs".*/\1/' <<<"$reply")"
  grep -qE "$2" <<<"$reply" || { echo "demo: that is not the right answer ($2)" >&2; return 1; }
}

step "ask it three things that it was trained to know: without thinking, with thinking, with a tool"
ask "Name the capital of Norway." '"content":"[^"]*Oslo' '"reasoning_effort":"none"'
ask "What is the sum of 47 and 38?" '"content":"[^"]*85.*"reasoning_content":"[^"]+' '"reasoning_effort":"high"'
ask "Weather in Oslo in 3 days, please." '"name":"get_weather","arguments":"\{\\"city\\": ?\\"Oslo\\", ?\\"days\\": ?3\}"' \
  '"reasoning_effort":"none","tools":[{"type":"function","function":{"name":"get_weather","description":"Weather of a city in some days.","parameters":{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}},"required":["city","days"]}}}]'

step "measure it: C1 to C8"
dsf-bench --base-url "$url" --model toy --label demo --thinking off --input-lines "${DSF_DEMO_LINES:-27}" --output-tokens 16 --repeats 1 --skip-warmup --ignore-eos --out bench
cat bench/table.md

step "done; everything is in $work"
