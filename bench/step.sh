#!/bin/sh
# step.sh - the time of a training step: eager, a graph per layer, one graph.
#
#     step.sh OUTDIR [cuda|soft]
#
# Runs gh-engine on three models and writes OUTDIR/step_*.json; table.py reads
# them.  The whole step as one bare graph is the floor that graphs can reach.
# Run it in the build directory, or set ENGINE.
#
# SPDX-License-Identifier: Apache-2.0
set -eu
# shellcheck source=bench/engine.sh
. "$(dirname "$0")/engine.sh"

# NAME STEPS OPTION...
step()
{
    file=step_$1
    count=$2
    shift 2
    engine "$file" eager,graph,step "$count" "$@"
}

if [ "$driver" = soft ]; then
    step tiny 12 --layers 2 --hidden 32 --heads 2 --seq 16 --batch 1 \
        --microbatches 4 --in-flight 4
    exit 0
fi

# Kernels of a few microseconds: launches decide.
step launch_bound 60 --layers 12 --hidden 64 --heads 4 --seq 32 --batch 1 \
    --microbatches 8 --in-flight 8
# The same with several microbatches at once on the device.
step launch_bound_streams 60 --layers 12 --hidden 64 --heads 4 --seq 32 \
    --batch 1 --microbatches 8 --in-flight 8 --streams 4
# Kernels long enough to hide their launches.
step compute_bound 30 --layers 8 --hidden 512 --heads 8 --seq 128 --batch 4 \
    --microbatches 4 --in-flight 4
