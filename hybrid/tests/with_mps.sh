#!/bin/sh
# run/with_mps.sh around a played daemon: what works is run and its status handed on; what does not is said in one line,
# in time. The first argument is the script.
script=$1
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
failures=0
played() { # name, what it does
    printf '#!/bin/sh\n%s\n' "$2" >"$place/$1"
    chmod +x "$place/$1"
}
# What waits, waits for longer than the test: only the script's limits end it. They are short where a case waits for them.
start_limit=600 probe_limit=600
expect() { # name, status, words of the last line on standard error, command…
    name=$1 status=$2 words=$3
    shift 3
    PATH="$place:$PATH" MPS_START_LIMIT_S=$start_limit MPS_PROBE_LIMIT_S=$probe_limit timeout 800 "$script" "$@" \
        >"$place/out" 2>"$place/said"
    got=$?
    if [ $got -ne "$status" ] || ! tail -n 1 "$place/said" | grep -q "$words"; then
        echo "$name: status $got instead of $status: $(cat "$place/said")"
        failures=1
    fi
}
# Notes what it is asked, as the daemon's own log.
works="[ \"\$1\" = -d ] && echo started >>$place/asked || cat >>$place/asked"
played program 'test -d "$CUDA_MPS_PIPE_DIRECTORY" && exit 7'
played mps_probe 'echo probed'

played nvidia-cuda-mps-control "$works"
expect "a daemon that works" 7 "probed" "$place/program"
grep -q started "$place/asked" && grep -q "^quit" "$place/asked" || { echo "the daemon was not stopped"; failures=1; }
played mps_probe 'exec sleep 5000'
probe_limit=1
expect "a client that waits" 3 "got nothing done within 1 s" "$place/program"
played mps_probe 'echo no connection >&2; exit 1'
probe_limit=600
expect "a client that is refused" 3 "ended with 1: no connection" "$place/program"
played nvidia-cuda-mps-control "[ \"\$1\" = -d ] && exec sleep 5000; cat >>$place/asked"
start_limit=1
expect "a daemon that does not start" 3 "did not start within 1 s" "$place/program"
rm "$place/nvidia-cuda-mps-control"
command -v nvidia-cuda-mps-control >/dev/null || expect "no MPS" 2 "not installed" "$place/program"
exit $failures
