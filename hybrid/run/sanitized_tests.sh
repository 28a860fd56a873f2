#!/bin/sh
# Builds and runs the tests under sanitizers:  run/sanitized_tests.sh BUILD_FOLDER
# Addresses and undefined behaviour: everything but class A, which is slow there. Threads: the parts that share memory
# among threads, one rank with its owner's thread included; MPI libraries are not built for that sanitizer, so the tests of
# several ranks stay out.
set -eu
source=$(cd "$(dirname "$0")/.." && pwd)
for kind in address,undefined thread; do
    build=$1/$kind
    cmake -S "$source" -B "$build" -DHYBRID_CUDA=OFF -DHYBRID_NATIVE=OFF -DHYBRID_SANITIZE=$kind \
        -DCMAKE_BUILD_TYPE=RelWithDebInfo
    cmake --build "$build" -j "$(nproc)"
done
ctest --test-dir "$1/address,undefined" --output-on-failure -E '\.A\.|communication'
ctest --test-dir "$1/thread" --output-on-failure -R '^(queue|standin|funnel.funneled.1)$'
