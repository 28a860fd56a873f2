#!/bin/sh
# A program that is refused something ends with status 2 on every path, and its message holds a given text.
#   error_exit.sh TEXT COMMAND…
text=$1
shift
output=$(timeout 600 "$@" 2>&1)
status=$?
echo "$output"
[ $status -eq 2 ] || { echo "status $status instead of 2"; exit 1; }
echo "$output" | grep -q -- "$text" || { echo "no message with '$text'"; exit 1; }
