#!/bin/sh
# GRAPHHOOKS_MEMORY_LIMIT, walked from nearly nothing to more than is needed:
# each training has the bits of eager, and graphs take no more.
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"
. "$srcdir/tests/engine/several.sh"

small="$base --hidden 16 --heads 2 --batch 2 --steps 5 --layers 3 --quiet"
offloads="--offload qkv_linear,core_attn,attn_proj
    --compare eager,graph,graph+offload"

# exceeds LIMIT: the modes that have more, but for what the limit leaves alone.
# What a stage receives in counts.
exceeds()
{
    memories '
        limit = '"$1"'
        alone = bytes["offset"] + bytes["ring"] + bytes["kept"]
        has = bytes["slot"] + bytes["bank"] + bytes["held"] + alone + \
            '"$(value landing_bytes)"'
        if (has > (limit > alone ? limit : alone)) {
            print has, "with a limit of", limit
        }'
}

# walks NAME OPTION...: more memory never makes fewer graphs.
walks()
{
    name=$1
    shift
    wrong=
    last=0
    trains -- "$@" || wrong="without a limit: $(head -n 2 "$scratch/err")"
    all=$(value replays)
    most=$(($(value forecast_bytes) + $(value landing_bytes)))
    for limit in 1 $((most / 8)) $((most / 4)) $((most / 2)) \
        $((most * 3 / 4)) $((most - 1)) "$most" $((most * 2)); do
        trains GRAPHHOOKS_MEMORY_LIMIT="$limit" GRAPHHOOKS_LOG=off -- "$@" ||
            wrong="$wrong $limit: $(head -n 2 "$scratch/err")"
        wrong="$wrong$(exceeds "$limit")"
        [ "$(value replays)" -ge "$last" ] || wrong="$wrong $limit: fewer"
        [ "$limit" -gt 1 ] || [ "$(value replays)" -lt "$all" ] ||
            wrong="$wrong $limit: all replay"
        last=$(value replays)
    done
    [ "$last" -eq "$all" ] || wrong="$wrong $limit: $last of $all replay"
    empty "$wrong" "$name: $all replays in $most bytes, and fewer in fewer"
}

# With sanitizers, which take four times as long, the half of them.
grains="layer chunk"
[ -z "${sanitize-}" ] || grains=chunk

# shellcheck disable=SC2086 # words
for grain in $grains; do
    export GRAPHHOOKS_GRANULARITY=$grain
    walks "lengths, $grain" --lengths 8,4,6
    walks "packed, $grain" --packed
    walks "ranks that share a bank, $grain" --ranks 2 --packed --cp 1,2 \
        --batch 1
    small="$small --seq 8"
    walks "gpt, $grain"
    walks "experts, $grain" --model moe
    walks "latent attention, $grain" --model mla
    walks "mamba, $grain" --model mamba
    walks "a hybrid, $grain" --model hybrid
    walks "offload, $grain" $offloads
    walks "a session that suspends, $grain" --suspend 2
    walks "stages, $grain" --ranks 2 --pp 2
    walks "chunks of stages, $grain" --ranks 2 --pp 2 --vpp 2 --layers 4
    walks "experts on two ranks, $grain" --ranks 2 --model moe --ep 2
    small=${small% --seq 8}
done
trains -- --ranks 2 --pp 2 --seq 8
is "$(value forecast_bytes)" 0 "graphs of a stage's chunks copy no inputs"

# ---- what is said ----------------------------------------------------------

GRAPHHOOKS_GRANULARITY=layer
# shellcheck disable=SC2086 # words
GRAPHHOOKS_MEMORY_LIMIT=1 "${builddir:?}/gh-engine" $small \
    --json "$scratch/out.json" > "$scratch/out" 2> "$scratch/err"
grep -q "memory: all graphs would take $(value forecast_bytes) bytes, and \
GRAPHHOOKS_MEMORY_LIMIT is 1: passes" "$scratch/err"
ok $? "the log says before that not all fits"
[ "$(grep -c "do not fit in GRAPHHOOKS_MEMORY_LIMIT=1" "$scratch/err")" -eq 1 ]
ok $? "and once which passes do not"
[ "$(wc -l < "$scratch/err")" -eq 2 ]
ok $? "and no more"

# The places of a stage's slots come first.
# shellcheck disable=SC2086 # words
{
    trains -- --ranks 2 --pp 2 --seq 8
    most=$(value landing_bytes)
    GRAPHHOOKS_LOG=info GRAPHHOOKS_MEMORY_LIMIT=$((most - 1)) \
        GRAPHHOOKS_GRANULARITY=chunk "$builddir/gh-engine" $small --ranks 2 \
        --pp 2 --seq 8 --json "$scratch/out.json" > "$scratch/out" \
        2> "$scratch/err"
}
[ "$(value landing_bytes)" -gt 0 ] && [ "$(value landing_bytes)" -lt "$most" ]
ok $? "where places of all slots do not fit, the first slots have places"
empty "$(exceeds $((most - 1)))" "and with what the library has they fit"

# A percentage is of all that the device has.
if [ "$driver" = soft ]; then
    # shellcheck disable=SC2086 # words
    SOFTCUDA_MEMORY=4000000 GRAPHHOOKS_MEMORY_LIMIT=1% \
        "$builddir/gh-engine" $small --json "$scratch/out.json" \
        > "$scratch/out" 2> "$scratch/err"
    [ $? -eq 0 ] && grep -q '"bitwise_equal": true' "$scratch/out.json" &&
        grep -q "GRAPHHOOKS_MEMORY_LIMIT is 40000: passes" "$scratch/err"
    held=$?
    ok $held "1% of a device with 4,000,000 bytes are 40,000"
    [ $held -eq 0 ] || diag "$(head -n 3 "$scratch/err")"
    empty "$(exceeds 40000)" "and they are kept"
    for limit in 0% 101% 9999999999999999999 5M; do
        # shellcheck disable=SC2086 # words
        GRAPHHOOKS_MEMORY_LIMIT=$limit "$builddir/gh-engine" $small --pp 2 \
            > "$scratch/out" 2> "$scratch/err"
        [ $? -eq 2 ] &&
            grep -q "GRAPHHOOKS_MEMORY_LIMIT is \"$limit\"" "$scratch/err"
        ok $? "stages refuse $limit, as one stage does"
    done
fi

done_testing
