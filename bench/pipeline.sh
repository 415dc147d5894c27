#!/bin/sh
# pipeline.sh - a step by stages: eager, with bare graphs, and with graphs of
# chunks.
#
#     pipeline.sh OUTDIR [cuda|soft] [OPTION...]
#
# Runs gh-engine with a stage for each of $STAGES GPUs (2) under each schedule
# and writes OUTDIR/pipeline_*.json.  First it prints how long stages should be
# idle; then of each schedule the times of a step and of issuing it, with graphs
# over eager, the step over that of the same passes as graphs which gh-engine
# captures itself (mode bare), and over that of 1F1B, as measured and as the
# clock has it.  Then come the shares of a step in which stages were idle, by
# events around the passes, beside those of the clock: with a backward of two
# forwards, and with passes as long as those that were measured; also of two
# schedules with long kernels.  At last come $FLAT steps (1,000) of 4, 6, 8 and
# 3 microbatches: the last step that records, and how much more memory later
# steps have.  OPTIONs, such as --processes and --nccl PATH, go to gh-engine.
# Run it in the build directory, or set ENGINE.
#
# SPDX-License-Identifier: Apache-2.0
set -eu
# shellcheck source=bench/engine.sh
. "$(dirname "$0")/engine.sh"
stages=${STAGES:-2}
shift
[ $# -eq 0 ] || shift
export GRAPHHOOKS_GRANULARITY=chunk

sizes="--layers $((4 * stages)) --hidden 64 --heads 4 --seq 32 --batch 1"
long="--layers $((4 * stages)) --hidden 512 --heads 8 --seq 128 --batch 4"
steps=60
long_steps=16
flat=${FLAT:-1000}
if [ "$driver" = soft ]; then
    sizes="--layers $((2 * stages)) --hidden 16 --heads 2 --seq 8 --batch 1"
    long="--layers $((2 * stages)) --hidden 32 --heads 2 --seq 8 --batch 1"
    steps=8
    long_steps=8
    flat=${FLAT:-40}
fi

# run NAME MODES STEPS OPTION...: one run, whose output is in OUTDIR/NAME.txt.
run()
{
    file=$1
    engine "$@" --pp "$stages" 2> "$out/$file.txt" || {
        cat "$out/$file.txt" >&2
        exit 1
    }
}

# stage SCHEDULE OPTION...: one run of the short kernels.
stage()
{
    schedule=$1
    shift
    # shellcheck disable=SC2086 # words
    run "pipeline_$schedule" eager,bare,graph "$steps" $sizes \
        --microbatches $((4 * stages)) --schedule "$schedule" \
        --time-passes 8 "$@"
    grep '^pipeline, ' "$out/pipeline_$schedule.txt"
}
stage 1f1b "$@"
stage interleaved --vpp 2 "$@"
stage zero-bubble "$@"
stage dualpipev "$@"

# The times of the table at a run's end, and the idle share of its first line.
printf '%-12s %10s %10s %10s %10s %10s %10s\n' schedule 'step ms' \
    'over eager' 'over bare' 'host' 'over 1f1b' predicted
for schedule in 1f1b interleaved zero-bubble dualpipev; do
    cat "$out/pipeline_$schedule.txt"
done | awk '
    /^pipeline, / {
        name = $2
        sub(":", "", name)
        idle = $0
        sub(/.*idle for /, "", idle)
        idle = idle / 100
    }
    $1 == "eager" && NF > 5 { step = $4; host = $5 }
    $1 == "bare" && NF > 5 { bare = $4 }
    $1 == "graph" && NF > 5 {
        if (!first) { first = $4; busy = 1 - idle }
        printf "%-12s %10.3f %10.3f %10.3f %10.3f %10.3f %10.3f\n", name,
            $4, $4 / step, $4 / bare, $5 / host, $4 / first,
            busy / (1 - idle)
    }'

for schedule in 1f1b zero-bubble; do
    # shellcheck disable=SC2086 # words
    run "pipeline_long_$schedule" eager,graph "$long_steps" $long \
        --microbatches $((4 * stages)) --schedule "$schedule" \
        --time-passes 8 "$@"
done
printf '\n%-24s %10s %10s %10s %10s %10s\n' 'idle, %' eager 'its passes' \
    graph 'its passes' clock
for schedule in 1f1b interleaved zero-bubble dualpipev long_1f1b \
    long_zero-bubble; do
    awk -v name="$schedule" '
        /: stages were idle for / && $1 == "eager:" { eager = $6; own = $22 }
        /: stages were idle for / && $1 == "graph:" {
            printf "%-24s %10.1f %10.1f %10.1f %10.1f %10.1f\n", name, eager,
                own, $6, $22, $18
        }' "$out/pipeline_$schedule.txt"
done

# shellcheck disable=SC2086 # words
run pipeline_flat graph "$flat" $sizes --microbatches 4,6,8,3 "$@"
echo
grep 'recorded last' "$out/pipeline_flat.txt"
