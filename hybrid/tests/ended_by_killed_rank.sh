#!/bin/sh
# A rank dies mid-exchange: the job must end by itself, without waiting for the time limit.
#   ended_by_killed_rank.sh launcher|watch MPIEXEC ARGUMENTS… PROGRAM
# launcher: the launcher notices, and the status must not be 0. watch: the launcher was told to go on without the dead
# rank (its own status then says nothing), so our watch must end the job, with a message that names the rank.
who=$1
shift
output=$(timeout 600 "$@" 2>&1)
status=$?
echo "$output"
if [ $status -eq 124 ]; then
    echo "the job hung"
    exit 1
fi
if [ "$who" = launcher ] && [ $status -eq 0 ]; then
    echo "the job ended as if nothing had happened"
    exit 1
fi
if [ "$who" = watch ] && ! echo "$output" | grep -q 'rank 3 .*died while this rank waited for planes of the transpose'; then
    echo "no message of the watch"
    exit 1
fi
