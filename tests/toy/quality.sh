#!/bin/sh
# What quantising costs: packs the toy model at 2 to 6 bits with and without error feedback, scores held-out conversations with
# `dsf-serve score`, cache formats on and off, with and without Engram, and prints docs/quality.md's table.
#
#   tests/toy/quality.sh BUILD MODEL_NATIVE CALIBRATION_IDS HELDOUT_JSONL WORK [STRIDE]
#
# Needs the targets dsf-serve, dsf-quantize and toy_heldout. WORK is made; packs that are there already are kept. STRIDE: one in so many held-out conversations (10).
# Without Engram: the shards with the tables are replaced by ones whose data are zeros, so every row looked up is zero and the gates add
# nothing. Perplexities are over all tokens of the conversations / over the tokens of the expected answers alone.
set -eu
build=$1 native=$2 calibration=$3 heldout=$4 work=$5 stride=${6:-10}
mkdir -p "$work/zero"
"$build/tests/toy_heldout" "$heldout" "$native/tokenizer.json" "$stride" >"$work/ids.json"

for shard in $(sed -n 's/.*engram\.embed\.weight": *"\([^"]*\)".*/\1/p' "$native/model.safetensors.index.json" | sort -u); do
  size=$(wc -c <"$native/$shard")
  header=$(od -A n -t u4 -N 4 "$native/$shard" | tr -d ' ')
  head -c $((header + 8)) "$native/$shard" >"$work/zero/$shard"
  truncate -s "$size" "$work/zero/$shard"
done

# score MODEL ENGRAM [FLAG]
score() {
  "$build/bin/dsf-serve" score --model "$1" --engram "$2" --token-ids "$work/ids.json" --restart-at-bos --json ${3:-} >"$work/score.json"
  all=$(sed -n 's/^ *"perplexity": *\([0-9.]*\).*/\1/p' "$work/score.json")
  printf ' %.4f / %s |' "$all" "$("$build/tests/toy_heldout" "$heldout" "$native/tokenizer.json" "$stride" "$work/score.json")"
}

scores() {
  for engram in "$native" "$work/zero"; do
    score "$1" "$engram"
    score "$1" "$engram" --no-cache-fake-quant
  done
  echo
}

echo '| form | weights off by | outputs off by | perplexity | plain caches | without Engram | both |'
echo '| --- | --- | --- | --- | --- | --- | --- |'
printf '| native | | |'
scores "$native"
for bits in 2 3 4 5 6; do
  for feedback in no yes; do
    pack=$work/$bits-$feedback
    flag=
    test $feedback = yes || flag=--no-ldlq
    test -d "$pack" || "$build/bin/dsf-quantize" --native "$native" --output "$pack" --bits $bits --calibration "$calibration" $flag \
      --max-shard-bytes 1MiB --quiet >"$pack.txt"
    printf '| %s bits%s |' $bits "$(test $feedback = no || echo ', LDLQ')"
    tail -n 1 "$pack.txt" | awk '{ printf " %s | %s |", $(NF - 1), $NF }'
    scores "$pack"
  done
done
