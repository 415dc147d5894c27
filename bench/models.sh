#!/bin/sh
# models.sh - a training step of every model: eager against captured.
#
#     models.sh OUTDIR [cuda|soft]
#
# Runs gh-engine on each model and writes OUTDIR/models_MODEL_SIZE_SCOPE.json;
# table.py reads them.  SCOPE is
#
#     layer    no scope, so whole layers: a graph for each
#     chunk    whole layers, and one graph for all of them: the most there is
#     partial  up to the dispatch of the experts, which stay eager
#
# Each run takes eager and captured steps in turns, three times each.  Run it
# in the build directory, or set ENGINE.
#
# SPDX-License-Identifier: Apache-2.0
set -eu
# shellcheck source=bench/engine.sh
. "$(dirname "$0")/engine.sh"

turns=eager,graph,eager,graph,eager,graph

# MODEL SIZE STEPS OPTION...
model()
{
    model=$1
    size=$2
    count=$3
    shift 3
    set -- --model "$model" "$@"
    engine "models_${model}_${size}_layer" "$turns" "$count" "$@"
    GRAPHHOOKS_GRANULARITY=chunk \
        engine "models_${model}_${size}_chunk" "$turns" "$count" "$@"
    case $model in
    moe) partial=attn,moe_router,moe_preprocess ;;
    hybrid) partial=attn,mlp,mamba,moe_router,moe_preprocess ;;
    *) return ;;
    esac
    GRAPHHOOKS_SCOPE=$partial \
        engine "models_${model}_${size}_partial" "$turns" "$count" "$@"
}

for each in gpt moe mla mamba hybrid; do
    if [ "$driver" = soft ]; then
        model $each tiny 6 --layers 4 --hidden 16 --heads 2 --seq 8 \
            --batch 1 --microbatches 2 --in-flight 2
        continue
    fi
    # Kernels of a few microseconds: launches decide.
    model $each launch 15 --layers 12 --hidden 64 --heads 4 --seq 32 \
        --batch 1 --microbatches 4 --in-flight 4
    # Kernels long enough to hide their launches.
    model $each large 12 --layers 4 --hidden 256 --heads 8 --seq 128 \
        --batch 4 --microbatches 4 --in-flight 4
done
