#!/bin/sh
# After ctest: the skipped parts of the tests, so that no skip is silent, then one line with the counts.
set -eu
log="$1/Testing/Temporary/LastTest.log"
grep '^SKIP ' "$log" | sort | uniq -c || true
passed=$(grep -c '^Test Passed\.$' "$log" || true)
failed=$(grep -c '^Test Failed\.$' "$log" || true)
skipped=$(grep -c '^SKIP ' "$log" || true)
echo "$passed passed, $failed failed, $skipped skipped"
