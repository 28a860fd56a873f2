#!/bin/sh
# Installs the build, builds a project that finds it, runs that and the installed runner: CMAKE BUILD SOURCE PYTHON.
set -eu
cmake=$1 build=$2 source=$3 python=$4
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
"$cmake" --install "$build" --prefix "$place/prefix" >"$place/log" || { cat "$place/log"; exit 1; }
"$cmake" -S "$source" -B "$place/user" -DCMAKE_PREFIX_PATH="$place/prefix" >"$place/log" || { cat "$place/log"; exit 1; }
"$cmake" --build "$place/user"
mpirun -n 2 "$place/user/user"
cd "$place"
"$python" prefix/share/hybrid/run/nas_bench mg --class S --modes cpu --ranks 1
