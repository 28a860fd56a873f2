#!/bin/sh
# Runs a command under an MPS daemon of its own and stops the daemon afterwards:  run/with_mps.sh mpirun -n 4 nas_ft …
# Sets no mode of the GPU and touches no other daemon: its pipes and logs lie in a folder that only this run knows.
set -eu
if ! command -v nvidia-cuda-mps-control >/dev/null; then
    echo "with_mps.sh: nvidia-cuda-mps-control is not installed" >&2
    exit 2
fi
CUDA_MPS_PIPE_DIRECTORY=$(mktemp -d)
CUDA_MPS_LOG_DIRECTORY=$(mktemp -d)
export CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
stop() {
    echo quit | nvidia-cuda-mps-control >/dev/null 2>&1 || true
    rm -rf "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
}
trap stop EXIT INT TERM
nvidia-cuda-mps-control -d
"$@"
