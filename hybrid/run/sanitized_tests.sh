#!/bin/sh
# Builds and runs the tests under sanitizers:  run/sanitized_tests.sh BUILD_FOLDER
# Addresses and undefined behaviour: everything but what is slow there, class A, and class W on other numbers of ranks than
# two. Threads: the parts that share memory among threads, one rank with its owner's thread included; MPI libraries are not
# built for that sanitizer, so the tests of several ranks stay out.
set -eu
source=$(cd "$(dirname "$0")/.." && pwd)
jobs=$(nproc)
build() {
    kind=$1
    shift
    cmake -S "$source" -B "$folder/$kind" -DHYBRID_CUDA=OFF -DHYBRID_SANITIZE="$kind" \
        -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_FLAGS_RELWITHDEBINFO='-O1 -g1' -DCMAKE_UNITY_BUILD=ON
    cmake --build "$folder/$kind" -j "$jobs" "$@"
}
folder=$1
# Of the programs, only those that are run.
build address,undefined --target random_test election_test queue_test standin_test loggp_test funnel_test put_test \
    halo_test no_device_test share_test killed_rank nas_ft nas_mg jacobi all_to_all work_queue
build thread --target queue_test standin_test funnel_test
ctest --test-dir "$folder/address,undefined" -j "$jobs" --output-on-failure -E '\.A\.|\.W\.[148]$|communication|nas_bench'
ctest --test-dir "$folder/thread" -j "$jobs" --output-on-failure -R '^(queue|standin|funnel.funneled.1)$'
