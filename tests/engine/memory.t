#!/bin/sh
# gh-engine says whose the library's memory is: the parts are all of it.
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"
. "$srcdir/tests/engine/several.sh"

small="$base --hidden 16 --heads 2 --batch 2 --steps 5 --layers 3 --quiet"
offloads="--offload qkv_linear,core_attn,attn_proj
    --compare eager,graph,graph+offload"

# sums: in each mode that has memory the parts are as much as there is.
sums()
{
    memories '
        has = bytes["device"] + bytes["lent"]
        parts = bytes["slot"] + bytes["bank"] + bytes["offset"] \
            + bytes["ring"] + bytes["kept"] + bytes["check"] \
            + bytes["held"] + bytes["spare"]
        if (has != parts || has == 0) {
            print has, "of which", parts
        }'
}

# parts NAME "PART..." [VARIABLE=VALUE...] -- OPTION...: the last mode has some
# memory of each part.
parts()
{
    name=$1
    wanted=$2
    shift 2
    none=
    trains "$@" || none=" trained: $(head -n 2 "$scratch/err")"
    for part in $wanted; do
        [ "$(value "${part}_bytes")" -gt 0 ] || none="$none $part"
    done
    empty "$none$(sums)" "$name: $wanted, and the sum is all"
}

# shellcheck disable=SC2086 # words
{
    parts "layers" "slot" --
    parts "a chunk" "slot" GRAPHHOOKS_GRANULARITY=chunk --
    parts "experts" "slot" -- --model moe
    parts "latent attention" "slot" -- --model mla
    parts "mamba" "slot" -- --model mamba
    parts "a hybrid" "slot" -- --model hybrid
    parts "offload" "slot ring kept pinned" -- $offloads
    parts "several lengths" "bank ring" -- --lengths 8,4,6 $offloads
    parts "packed documents" "bank offset" -- --packed
    parts "compared passes" "slot check" GRAPHHOOKS_CHECK=bitwise --
    parts "stages" "slot" -- --ranks 2 --pp 2 --layers 4
    parts "two ranks, offload" "slot ring pinned" -- --ranks 2 $offloads
    parts "a session that suspends" "slot spare" -- --suspend 1
    parts "all together" "ring spare" -- --suspend 4 --model moe --packed \
        $offloads
}

# The table says the same; the trace has it as a counter.
trains GRAPHHOOKS_TRACE="$scratch/t.json" -- --model gpt
grep -q "^graph: MiB of the library's: session [0-9.]*, of which slots" \
    "$scratch/out"
ok $? "the table says whose it is"
slots=$(value slot_bytes)
grep '"ph":"C"' "$scratch/t.json" | tail -n 1 > "$scratch/counter"
grep -q "\"name\":\"memory of session 1\",\"args\":{\"slots\":$slots," \
    "$scratch/counter"
ok $? "the trace ends with the same: $(cat "$scratch/counter")"
[ "$(grep -c '"ph":"C"' "$scratch/t.json")" -lt 5 ]
ok $? "steps in which nothing changes have no counter"

done_testing
