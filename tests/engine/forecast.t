#!/bin/sh
# What recordings will take is told before the first of them, within 4 % of what
# they take.
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"
. "$srcdir/tests/engine/several.sh"

small="$base --hidden 16 --heads 2 --batch 2 --steps 6 --layers 4 --quiet"
offloads="--offload qkv_linear,core_attn,attn_proj
    --compare eager,graph,graph+offload"

# misses: the modes whose forecast is not within 4 % of what they have.
misses()
{
    memories '
        has = bytes["slot"] + bytes["bank"] + bytes["offset"] + bytes["ring"] \
            + bytes["kept"]
        told = bytes["forecast"]
        if (told > 1.04 * has || told < 0.96 * has) {
            print told, "were told, and it has", has
        }'
}

# foretells NAME [VARIABLE=VALUE...] -- OPTION...
foretells()
{
    name=$1
    shift
    missed=
    trains "$@" || missed="trained: $(head -n 2 "$scratch/err")"
    [ "$(value forecast_bytes)" -gt 0 ] || missed="$missed nothing was told"
    empty "$missed$(misses)" "$name: $(value forecast_bytes) bytes are foretold"
}

# shellcheck disable=SC2086 # words
for grain in layer chunk; do
    export GRAPHHOOKS_GRANULARITY=$grain
    foretells "lengths, $grain" -- --lengths 8,4,6 $offloads
    foretells "packed, $grain" -- --packed $offloads
    small="$small --seq 8"
    for model in gpt moe mla mamba hybrid; do
        foretells "$model, $grain" -- --model $model
        foretells "$model, $grain, offload" -- --model $model $offloads
    done
    # Where chunks are stages, what they are sent is no input of the library.
    foretells "stages, $grain" -- --ranks 2 --pp 2 $offloads
    foretells "chunks of stages, $grain" -- --ranks 2 --pp 2 --vpp 2 $offloads
    foretells "experts on two ranks, $grain" -- --model moe --ranks 2 --ep 2
    foretells "steps of several sizes, $grain" -- --microbatches 6,4,2
    foretells "a smaller first step, $grain" GRAPHHOOKS_WARMUP_STEPS=2 -- \
        --microbatches 2,6,4
    foretells "later weight gradients, $grain" -- --delay-wgrad 1 \
        --microbatches 5
    foretells "three streams, $grain" -- --streams 3
    foretells "a session that suspends, $grain" -- --suspend 3
    small=${small% --seq 8}
done
GRAPHHOOKS_GRANULARITY=part
foretells "parts" --

# ---- the log ---------------------------------------------------------------

# shellcheck disable=SC2086 # words
GRAPHHOOKS_LOG=info GRAPHHOOKS_GRANULARITY=chunk "${builddir:?}/gh-engine" \
    $small --ranks 1 --json "$scratch/out.json" > "$scratch/out" \
    2> "$scratch/err"
grep -q "memory: graphs of chunk 0 will take [1-9][0-9]* bytes for inputs" \
    "$scratch/err"
ok $? "the log says it for each chunk"
grep -q "memory: in all it will be $(value forecast_bytes) bytes: inputs" \
    "$scratch/err"
ok $? "and in all"
# shellcheck disable=SC2086 # words
GRAPHHOOKS_WARMUP_STEPS=0 "$builddir/gh-engine" $small \
    --json "$scratch/out.json" > "$scratch/out" 2> "$scratch/err"
[ "$(value forecast_bytes)" -eq 0 ] && [ "$(value slot_bytes)" -gt 0 ]
ok $? "without a warmup nothing is foretold"

done_testing
