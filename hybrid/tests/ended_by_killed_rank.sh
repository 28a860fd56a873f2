#!/bin/sh
# A rank dies mid-exchange: the job must end by itself, within the time limit, with a status that is not 0. Where the
# launcher can be told to leave the others alone ("watch"), our own watch must end it, with a message that names the rank.
#   ended_by_killed_rank.sh launcher|watch MPIEXEC ARGUMENTS… PROGRAM
who=$1
shift
output=$(timeout 60 "$@" 2>&1)
status=$?
echo "$output"
if [ $status -eq 0 ] || [ $status -eq 124 ]; then
    echo "the job ended with status $status"
    exit 1
fi
if [ "$who" = watch ] && ! echo "$output" | grep -q 'rank 3 .*died while this rank waited for planes of the transpose'; then
    echo "no message of the watch"
    exit 1
fi
