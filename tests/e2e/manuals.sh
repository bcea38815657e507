#!/bin/sh
# The option section of every manual is what the tool's own flag table says, and each command explains itself within sixty lines.
# Usage: manuals.sh BUILD_DIR SOURCE_DIR        DSF_UPDATE_DOCS=1 writes the sections instead of comparing them.
set -eu
build=$1 source=$2 bad=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The lines of a manual before, or after, its generated section; the markers belong to them.
before() { sed '/^<!-- options: generated /q' "$1"; }
after() { sed -n '/^<!-- end of options -->/,$p' "$1"; }

check_manual() {  # check_manual TOOL MANUAL
  { before "$2"; echo; "$build/bin/$1" --generate manual-options; after "$2"; } >"$work/manual"
  grep -q '^<!-- options: generated ' "$2" && grep -q '^<!-- end of options -->' "$2" || { echo "FAIL: $2 has no generated section"; bad=1; return; }
  cmp -s "$work/manual" "$2" && return
  if [ -n "${DSF_UPDATE_DOCS:-}" ]; then cp "$work/manual" "$2"; echo "written: $2"; return; fi
  diff -u "$2" "$work/manual" | head -40 || true
  echo "FAIL: $2 is not what $1 says; run this script with DSF_UPDATE_DOCS=1"
  bad=1
}

check_help() {  # check_help TOOL [SUBCOMMAND...]
  tool=$1
  shift
  "$build/bin/$tool" "$@" --help >"$work/help"
  lines=$(wc -l <"$work/help")
  grep -q '^Usage:' "$work/help" || { echo "FAIL: $tool $* --help has no usage line"; bad=1; }
  [ "$lines" -le 60 ] || { echo "FAIL: $tool $* --help has $lines lines"; bad=1; }
}

for manual in "$source"/tools/*/dsf-*.1.md; do
  tool=$(basename "$manual" .1.md)
  check_manual "$tool" "$manual"
  check_help "$tool"
  # Commands are the headings of the generated section: name, then subcommands, then *ARGUMENTS*.
  "$build/bin/$tool" --generate manual-options | sed -n "s/^## $tool //p" | sed 's/\[*\*.*//' >"$work/commands"
  while read -r command; do
    # shellcheck disable=SC2086
    [ -z "$command" ] || check_help "$tool" $command
  done <"$work/commands"
done
n=$(ls "$source"/tools/*/dsf-*.1.md | wc -l)
[ "$n" -eq 6 ] || { echo "FAIL: $n manuals, not 6"; bad=1; }
exit $bad
