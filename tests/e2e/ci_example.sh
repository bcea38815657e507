#!/usr/bin/env bash
# docs/ci/Makefile against a Hub on loopback: the good checkpoint is ready, broken ones stop the chain with the tool's exit code.
# Usage: ci_example.sh SOURCE_DIR BUILD_DIR WORK_DIR
set -euo pipefail
source_dir=$1 build=$(cd "$2" && pwd)
rm -rf "$3" && mkdir -p "$3"
work=$(cd "$3" && pwd)
export PATH=$build/bin:$PATH
cd "$work"

hub_pid=
trap '[ -z "$hub_pid" ] || kill "$hub_pid" 2>/dev/null || true' EXIT
fail() { echo "ci_example: $*" >&2; exit 1; }

mkdir -p hub/made
cp -r "$build/made/native" hub/made/source
cp -r "$build/made/exl3" hub/made/good
cp -r "$build/made/exl3" hub/made/unbiased
dsf-make-checkpoint --exl3 hub/made/unbiased --keep --break drop-bias-vl >/dev/null
dsf-hub serve --root hub --port 0 --port-file hub.port 2>hub.log &
hub_pid=$!
for _ in $(seq 200); do [ -s hub.port ] && break; sleep 0.05; done
[ -s hub.port ] || fail "the Hub did not start"
export HF_ENDPOINT=http://127.0.0.1:$(cat hub.port)
for name in source good unbiased; do dsf-fetch pin "made/$name" -o "$name.pin.json" 2>/dev/null; done

# chain NAME MODEL_PIN: the example in a folder of its own; the checks of this machine are not what is tested here.
chain() {
  mkdir -p "$1"
  cp "$source_dir/docs/ci/Makefile" "$source_dir/docs/ci/run.sh" "$1"
  cp "$2" "$1/model.pin.json" && cp source.pin.json "$1/"
  (cd "$1" && ./run.sh PREFLIGHT="--backend cpu --memory 8GiB --skip ports.http --skip gpu.idle" >"out" 2>"err") && code=0 || code=$?
}
expect() {  # NAME CODE FILE WORDS
  [ "$code" = "$2" ] || { cat "$1/out" "$1/err" >&2; fail "$1 ended with $code, $2 expected"; }
  grep -q -- "$4" "$1/$3" || { cat "$1/out" "$1/err" >&2; fail "$1: no \"$4\" in $3"; }
}

chain ready good.pin.json
expect ready 0 out "^READY"
[ -s ready/preflight.json ] || fail "no node report"
(cd ready && ./run.sh >again 2>&1) || fail "the second run failed"
grep -q "Nothing to be done" ready/again || fail "the second run did something"

# Right by its pin, but without the biases that images need: only preflight can know.
chain biases unbiased.pin.json
expect biases 1 err "routers.image_bias"
[ ! -e biases/preflight.json ] || fail "a report of a node that is not ready was left behind"

# The pin of one checkpoint, the bytes of another.
sed 's#made/good#made/unbiased#; s#"revision": "[0-9a-f]*"#"revision": "'"$(sed -n 's/.*"revision": "\([0-9a-f]*\)".*/\1/p' unbiased.pin.json | head -1)"'"#' good.pin.json >mixed.pin.json
chain content mixed.pin.json
expect content 8 err "dsf-fetch"

# Damaged on the disk after it was fetched.
shard=$(ls ready/model/model-*.safetensors | head -1)
printf 'X' | dd of="$shard" bs=1 seek=$(($(stat -c %s "$shard") - 100)) conv=notrunc status=none
touch ready/model.fetched.jsonl
(cd ready && ./run.sh >out 2>err) && code=0 || code=$?
expect ready 1 err "sha256 differs"
[ ! -e ready/model.verify.json ] || fail "the report of a failed verification was left behind"
echo "ci_example: ok"
