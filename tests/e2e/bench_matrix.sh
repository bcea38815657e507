#!/usr/bin/env bash
# 144 requests against dsf-serve on a made checkpoint, twice, each on a fresh server: compare accepts the pair. Then one prompt byte, one setting, or the
# checkpoint differs: compare refuses and names the difference.
# Usage: bench_matrix.sh BUILD_DIR WORK_DIR [INPUT_LINES] [OUTPUT_TOKENS]
set -euo pipefail

build=$(cd "$1" && pwd)
rm -rf "$2" && mkdir -p "$2"
work=$(cd "$2" && pwd)
lines=${3:-3}
tokens=${4:-8}
PATH=$build/bin:$PATH
cd "$work"

server=
stop_server() {
  if [ -n "$server" ]; then kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; fi
  server=
}
trap stop_server EXIT

# A fresh server has an empty prefix cache.
start_server() {  # MODEL_DIR
  stop_server
  rm -f port
  dsf-serve --model "$1" --engram "$1-engram" --backend cpu --port 0 --port-file port --served-model-name tiny 2>>serve.log &
  server=$!
  for _ in $(seq 600); do [ -s port ] && return 0; sleep 0.1; done
  echo "bench_matrix: the server did not start" >&2
  return 1
}

measure() {  # MODEL_DIR RESULT_DIR OPTIONS...
  local model=$1 out=$2
  shift 2
  start_server "$model"
  # A tiny model on a busy machine may leave the client more than 80 % of a core's time of a level: client_bound, exit 1. Everything else is an error.
  dsf-bench --base-url "http://127.0.0.1:$(cat port)" --model tiny --label "$out" --input-lines "$lines" --output-tokens "$tokens" --ignore-eos --skip-warmup --cooldown-ms 0 \
    --quiet --out "$out" "$@" >"$out.table" || { code=$?; cat "$out.table" >&2; return $code; }
}

refused() {  # WORDS BASE OTHER
  local code=0
  dsf-bench compare "$2" "$3" >"$3.compare" 2>&1 || code=$?
  if [ "$code" != 1 ] || ! grep -qF "$1" "$3.compare"; then
    echo "bench_matrix: compare $2 $3 ended with $code and does not name '$1':" >&2
    cat "$3.compare" >&2
    return 1
  fi
  echo "refused: $(grep -F "$1" "$3.compare" | head -1)"
}

for seed in 1 2; do
  dsf-make-checkpoint --native "native$seed" --exl3 "model$seed" --seed "$seed" >/dev/null
  dsf-pack-engram --source "native$seed" --config "native$seed/config.json" --output "model$seed-engram" --rank 0 --world-size 1 >/dev/null
done

measure model1 first --matrix
measure model1 second --matrix
dsf-bench compare first second
for run in first second; do [ "$(grep -c ',ok,' $run/requests.csv)" = 144 ]; done
echo "accepted: 144 requests, twice"

printf '{"prompt": "One lighthouse, one storm."}\n{"prompt": "A second line."}\n{"prompt": "A third line."}\n' >prompts.jsonl
sed 's/One lighthouse/One Lighthouse/' prompts.jsonl >changed.jsonl
small=(--thinking off --levels 1-2)
measure model1 base "${small[@]}" --prompt-style dataset:prompts.jsonl
measure model1 same "${small[@]}" --prompt-style dataset:prompts.jsonl
dsf-bench compare base same >/dev/null
measure model1 byte "${small[@]}" --prompt-style dataset:changed.jsonl
measure model1 setting "${small[@]}" --prompt-style dataset:prompts.jsonl --temperature 0.5
measure model2 checkpoint "${small[@]}" --prompt-style dataset:prompts.jsonl
refused 'first in decode/off/r0/c1/s0' base byte
refused 'setting temperature is 0.0 and 0.5' base setting
refused 'weights: ' base checkpoint
