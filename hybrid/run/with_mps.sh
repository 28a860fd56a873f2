#!/bin/sh
# Runs a command under an MPS daemon of its own and stops the daemon afterwards:  run/with_mps.sh mpirun -n 4 nas_ft …
# Sets no mode of the GPU and touches no other daemon: its pipes and logs lie in a folder that only this run knows.
#
# A daemon that cannot serve lets its clients wait without end, so it has to prove itself first: it answers within
# MPS_START_LIMIT_S seconds (10), and one process, mps_probe (beside the command's program, or MPS_PROBE), gets its work
# done under it within MPS_PROBE_LIMIT_S (20). Exit status 2: no MPS here; 3: it does not work, and a line says why.
set -u
start_limit=${MPS_START_LIMIT_S:-10} probe_limit=${MPS_PROBE_LIMIT_S:-20}

if ! command -v nvidia-cuda-mps-control >/dev/null; then
    echo "with_mps.sh: nvidia-cuda-mps-control is not installed" >&2
    exit 2
fi
folder=$(mktemp -d /tmp/mps.XXXXXX) || exit 3 # a short path: the pipes are sockets, whose names are short
CUDA_MPS_PIPE_DIRECTORY=$folder/pipe CUDA_MPS_LOG_DIRECTORY=$folder/log
export CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
mkdir "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
running="" step="the daemon started"

ask() { # what the daemon answers, if it does
    echo "$1" | timeout -k 1 "$2" nvidia-cuda-mps-control 2>&1
}
stop() {
    trap - EXIT INT TERM
    [ -n "$running" ] && kill "$running" 2>/dev/null
    daemon=$(cat "$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid" 2>/dev/null)
    servers=$(ask get_server_list 2 | grep -E '^[0-9]+$')
    ask "quit -t 2" 5 >/dev/null
    for process in $servers $daemon; do
        case $(cat "/proc/$process/comm" 2>/dev/null) in nvidia-cuda-mps*) kill -9 "$process" ;; esac
    done
    rm -rf "$folder"
}
fail() {
    for log in control.log server.log; do
        [ -s "$CUDA_MPS_LOG_DIRECTORY/$log" ] && tail -n 5 "$CUDA_MPS_LOG_DIRECTORY/$log" | sed "s/^/$log: /" >&2
    done
    echo "with_mps.sh: $1" >&2
    stop
    exit 3
}
say() { echo "with_mps.sh: $1" >&2; }
trap stop EXIT
trap 'say "ended by a signal while $step"; stop; exit 143' INT TERM

timeout -k 1 "$start_limit" nvidia-cuda-mps-control -d </dev/null >"$folder/said" 2>&1 ||
    fail "the daemon did not start within $start_limit s: $(tail -n 1 "$folder/said")"
ask get_default_active_thread_percentage "$start_limit" >/dev/null ||
    fail "the daemon started but does not answer"

probe=${MPS_PROBE:-}
for argument in "$@"; do
    [ -z "$probe" ] && [ -x "$(dirname -- "$argument")/mps_probe" ] && probe=$(dirname -- "$argument")/mps_probe
done
if [ -n "$probe" ]; then
    step="a first process tried the daemon"
    timeout -k 1 "$probe_limit" "$probe" </dev/null >"$folder/said" 2>&1
    status=$?
    case $status in
    0) ;;
    124 | 137) fail "a process under MPS got nothing done within $probe_limit s" ;;
    *) fail "a process under MPS ended with $status: $(tail -n 1 "$folder/said")" ;;
    esac
    say "$(tail -n 1 "$folder/said")"
fi

# In the background, so that a signal to this script ends it at once.
step="the command ran"
"$@" </dev/null &
running=$!
wait "$running"
status=$?
running=""
exit "$status"
