#!/bin/sh
# The trained toy model answers, and stops answering when a part of the engine or of the model is broken on purpose: the prompt's markers, the
# forward pass, the Engram tables, a quantised matrix. Usage: toy_quality.sh BUILD_DIR MODEL_DIR WORK_DIR
# MODEL_DIR: tests/toy/model/native, or a folder with the Engram tables and another form of the same weights.
set -eu
trap 'for p in $(jobs -p); do kill -9 "$p" 2>/dev/null || true; done' EXIT
build=$1 model=$2 work=$3
rm -rf "$work" && mkdir -p "$work"
log() { printf '%s\n' "$*"; }
die() { log "FAIL: $*"; exit 1; }

weather='{"type":"function","function":{"name":"get_weather","description":"Weather of a city in some days.","parameters":{"type":"object",
  "properties":{"city":{"type":"string"},"days":{"type":"integer"}},"required":["city","days"]}}}'

right=0 asked=0
ask() {  # ask EFFORT MESSAGES MORE WANT: WANT stands in the reply
  asked=$((asked + 1))
  reply=$(curl -sS "$url/v1/chat/completions" -H 'Content-Type: application/json' \
    -d "{\"model\":\"toy\",\"temperature\":0,\"max_tokens\":96,\"reasoning_effort\":\"$1\",\"messages\":[$2]$3}")
  case $reply in *"$4"*) right=$((right + 1)) ;; *) printf '%s\n' "$reply" >> "$work/wrong.log" ;; esac
}
user() { printf '{"role":"user","content":"%s"}' "$1"; }

# Questions that training never saw (tests/toy/heldout.jsonl); right and asked are set.
examine() {  # examine FOLDER NAME
  rm -f "$work/port"
  "$build/bin/dsf-serve" --model "$1" --port 0 --port-file "$work/port" --served-model-name toy -j 2 > /dev/null 2> "$work/$2.log" &
  serve=$!
  i=0
  while [ ! -s "$work/port" ]; do
    i=$((i + 1)); [ $i -gt 600 ] && die "dsf-serve did not start: $(cat "$work/$2.log")"
    kill -0 "$serve" 2>/dev/null || die "dsf-serve ended: $(cat "$work/$2.log")"
    sleep 0.1
  done
  url=http://127.0.0.1:$(cat "$work/port")
  right=0 asked=0
  ask none "$(user 'What is the sum of 10 and 80?')" '' '"content":"10 + 80 = 90"'
  ask none "$(user 'Name the mayor of Dovik.')" '' '"content":"The mayor of Dovik is Hugo."'
  ask none "$(user 'Say this again: ring hill clock')" '' '"content":"ring hill clock"'
  ask none "$(user 'How do you spell clock?')" '' '"content":"c-l-o-c-k"'
  ask none "$(user 'What is the capital of Vusini?')" '' '"content":"I do not know."'
  ask max "$(user 'What is 37 + 47?')" '' '"content":"37 + 47 = 84"'
  ask high "$(user '1 day before Sunday: which day?')" '' '"content":"Saturday is 1 day before Sunday."'
  ask low "$(user 'How is the weather in 2 days in Gedi?')" ",\"tools\":[$weather]" '"arguments":"{\"city\": \"Gedi\", \"days\": 2}"'
  kill "$serve"; wait "$serve" 2>/dev/null || true
  log "$2: $right of $asked right"
}

broken() {  # broken NAME: the damaged copy in $work/NAME answers at least two questions wrong
  examine "$work/$1" "$1"
  [ $((right + 2)) -le "$asked" ] || die "$1 is broken, and $right of $asked answers are right"
}

examine "$model" sound
[ "$right" -eq "$asked" ] || { cat "$work/wrong.log"; die "$right of $asked answers are right"; }

cp -r "$model" "$work/prompt" && chmod -R u+w "$work/prompt"
sed -i 's/"<think>"/"<x>"/; s/"<\/think>"/"<think>"/; s/"<x>"/"<\/think>"/' "$work/prompt/tokenizer.json"
broken prompt

cp -r "$model" "$work/forward" && chmod -R u+w "$work/forward"
sed -i 's/"rope_theta": 10000,/"rope_theta": 100,/' "$work/forward/config.json"
broken forward

# Every row of a table moved by 101 places, as a wrong hash or a wrong offset would.
rotate() {  # rotate TENSOR, the first of its shard
  shard=$(grep -l "\"$1\":{" "$work"/engram/model-*.safetensors)
  header=$(($(od -An -t u8 -N 8 "$shard") + 8))
  columns=$(head -c "$header" "$shard" | sed "s/.*\"$1\":{\"dtype\":\"F8_E4M3\",\"shape\":\[[0-9]*,\([0-9]*\)\].*/\1/")
  end=$(head -c "$header" "$shard" | sed "s/.*\"$1\":{[^}]*\"data_offsets\":\[0,\([0-9]*\)\].*/\1/")
  { head -c "$header" "$shard"
    tail -c +$((header + 101 * columns + 1)) "$shard" | head -c $((end - 101 * columns))
    tail -c +$((header + 1)) "$shard" | head -c $((101 * columns))
    tail -c +$((header + end + 1)) "$shard"; } > "$work/rotated"
  [ "$(wc -c < "$work/rotated")" -eq "$(wc -c < "$shard")" ] || die "rotate $1"
  mv "$work/rotated" "$shard"
}
cp -r "$model" "$work/engram" && chmod -R u+w "$work/engram"
rotate layers.1.engram.embed.weight
rotate layers.3.engram.embed.weight
broken engram

cp -r "$model" "$work/matrix" && chmod -R u+w "$work/matrix"
for layer in 1 2 3 4; do
  set --
  for expert in 0 1 2 3; do set -- "$@" --break "scramble:layers.$layer.ffn.experts.$expert.w2.weight"; done
  "$build/bin/dsf-make-checkpoint" --native "$work/matrix" --keep "$@" > /dev/null
done
broken matrix
