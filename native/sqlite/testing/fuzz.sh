#!/bin/sh
# Fuzzes the reader of SQLite tables:  native/sqlite/testing/fuzz.sh FOLDER SECONDS
# FOLDER/corpus holds inputs, and is grown; FOLDER/findings gets whatever crashes. Needs clang with libFuzzer (Debian:
# clang, libclang-rt-dev) and, for the first inputs, sqlite3 of Python.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1/corpus" "$1/findings"
python3 "$here/first_inputs.py" "$1/corpus"
sources=$(ls "$here"/../*.cpp | grep -v -e module.cpp -e file_source.cpp)
# shellcheck disable=SC2086
"${CLANG:-clang++}" -std=c++20 -O1 -g -Wall -Wextra -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
    $sources "$here/../../columns/order.cpp" "$here/read_every_table.cpp" "$here/fuzz_tables.cpp" -o "$1/fuzz_tables"
exec "$1/fuzz_tables" -max_total_time="$2" -max_len=16384 -timeout=120 -rss_limit_mb=4096 -use_value_profile=1 \
    -artifact_prefix="$1/findings/" -print_final_stats=1 "$1/corpus"
