#!/usr/bin/env bash
# megatron.sh - Megatron-Core over several GPUs: eager, its own graphs, ours.
#
#     megatron.sh OUTDIR RANKS [CASE...] [-- OPTION...]
#
# Trains the rows of hosts/pytorch/examples/megatron_ranks.py that take all of
# RANKS GPUs, by each of who makes graphs, and writes OUTDIR/megatron_CASE.jsonl
# and .txt: tokens a second, over eager and over eager without overlap or with
# static context parallelism, time of the host, memory, replays, and whether all
# bits are equal.  OPTIONs go to the program; --only chooses rows.  What is there
# is not run again, and after $BUDGET seconds (540) of a case no further mode is
# begun: run it again.
#
#     launch    width 1024, sequences of 512: the host is the slower one
#     compute   width 2048, sequences of 4096, 32 experts, 4 for each token
#     counts    another number of microbatches in each step, 50 steps
#     long      500 steps of a pipeline and of overlapped experts
#     trace     launch, with few steps, and when the kernels of one of them ran:
#               OUTDIR/trace/*.json and a picture, OUTDIR/trace.svg; only if it
#               is named
#
# $PYTHON is the interpreter (python3), with torch, Transformer Engine and
# megatron-core.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

usage()
{
    sed -n '2,/^# SPDX/{/SPDX/d;s/^# \{0,1\}//;p}' "$0"
    exit 2
}

[ $# -ge 2 ] || usage
out=$1 ranks=$2
shift 2
cases=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    cases+=("$1")
    shift
done
[ $# -eq 0 ] || shift
[ ${#cases[@]} -gt 0 ] || cases=(launch compute counts long)
program=$(cd "$(dirname "$0")/.." && pwd)/hosts/pytorch/examples/megatron_ranks.py
mkdir -p "$out"

# train CASE OPTION...
train()
{
    local file=$out/megatron_$1
    shift
    "${PYTHON:-python3}" -m torch.distributed.run --standalone \
        --nproc-per-node "$ranks" --max-restarts 16 "$program" --exact \
        --budget "${BUDGET:-540}" --out "$file.jsonl" "$@" || true
    "${PYTHON:-python3}" "$program" --out "$file.jsonl" --table |
        tee "$file.txt"
}

for case in "${cases[@]}"; do
    traced=()
    case $case in
    launch) options="--sequence 512" ;;
    compute)
        options="--hidden 2048 --sequence 4096 --experts 32 --topk 4"
        ;;
    counts)
        options="--layers $((2 * ranks)) --hidden 512 --heads 8 --sequence 256
            --steps 50 --microbatches 4,8,12,4"
        ;;
    long)
        options="--layers $((2 * ranks)) --hidden 512 --heads 8 --sequence 256
            --steps 500 --modes layer+chunk+scope"
        ;;
    trace)
        options="--sequence 512 --steps 8 --microbatches 4"
        traced=(--trace "$out/trace")
        ;;
    *) usage ;;
    esac
    # shellcheck disable=SC2086 # words
    train "$case" $options "${traced[@]}" "$@"
    [ ${#traced[@]} -eq 0 ] || "${PYTHON:-python3}" \
        "$(dirname "$0")/timeline.py" "$out/trace.svg" "$out"/trace/*.json
done
