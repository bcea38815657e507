#!/bin/sh
# make, ending with the exit code of the tool that failed instead of make's own 2. Arguments go to make.
rm -f exit-code
make "$@" && exit 0
code=$?
[ -s exit-code ] && code=$(cat exit-code)
exit "$code"
