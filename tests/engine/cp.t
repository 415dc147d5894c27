#!/bin/sh
# gh-engine with sequences that several ranks share: the numbers of one rank,
# the same bits in every mode and every order.
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"
. "$srcdir/tests/engine/several.sh"

small="$base --layers 2 --hidden 16 --heads 2 --batch 2 --steps 3"
small="$small --microbatches 4,3 --in-flight 2 --quiet"

# documents "TOKENS...": rows of capital letters by a fixed rule, of so many
# tokens in turn, with the line's end.
documents()
{
    awk -v lengths="$1" 'BEGIN {
        split(lengths, tokens)
        for (i = 0; i < 60; i++) {
            n = tokens[i % 6 + 1]
            line = ""
            for (j = 0; j < n - 1; j++) {
                line = line sprintf("%c", 65 + (i * i + 3 * j + j * j % 7) % 26)
            }
            printf "%s\n\n", line
        }
    }'
}

# What 2 and 3 ranks share without any padding; and what no two can.
documents "12 24 12 36 24 60" > "$scratch/text"
documents "13 25 11 37 23 61" > "$scratch/odd"

# ---- the numbers of one rank -------------------------------------------------
# One microbatch, so that both draw the same sample.

# Every model meets both ways, and 2 and 3 ranks.
for model in gpt mla moe mamba hybrid; do
    train "$model, one rank" -- --model $model --microbatches 1 --seq 48
    one=$(list loss)
    for how in "2 allgather" "3 ring"; do
        n=${how% *}
        train "$model, $how" -- --model $model --microbatches 1 \
            --seq $((48 / n)) --ranks "$n" --cp-force "$n" \
            --cp-comm "${how#* }"
        near "$one" "$(list loss)" \
            "$model: $n ranks learn what one does of the same sequence"
    done
    train "$model, one rank, packed" -- --model $model --microbatches 1 \
        --seq 72 --packed --data "$scratch/text"
    one=$(list loss)
    for how in "3 allgather" "2 ring"; do
        n=${how% *}
        train "$model, packed, $how" -- --model $model --microbatches 1 \
            --seq $((72 / n)) --packed --ranks "$n" --cp-force "$n" \
            --cp-comm "${how#* }" --data "$scratch/text"
        near "$one" "$(list loss)" \
            "$model: $n ranks learn what one does of the same documents"
    done
done
train "another seed" -- --model moe --microbatches 1 --seq 24 --packed \
    --ranks 3 --cp-force 3 --data "$scratch/text" --seed 9
! are_near "$one" "$(list loss)"
ok $? "and other documents are something else"

for model in gpt hybrid; do
    alone="--model $model --layers 4 --seq 96 --packed --batch 1 --ranks 2"
    alone="$alone --data $scratch/odd"
    # shellcheck disable=SC2086 # words
    train "$model, nobody shares" -- $alone
    one=$(list tokens)
    # shellcheck disable=SC2086 # words
    train "$model, nobody needs to share" -- $alone --cp 1,2 --cp-force 1
    [ -n "$one" ] && [ "$one" = "$(list tokens)" ]
    ok $? "$model: who shares with nobody learns from whole documents"
done

# ---- as many ranks as documents need ------------------------------------------

# uses_all NAME: each number of ranks has shared a sequence, in replays too.
uses_all()
{
    list cp_microbatches | grep -Eq '^[1-9][0-9]*(, [1-9][0-9]*)+$'
    ok $? "$1: every number of ranks was needed ($(list cp_microbatches))"
    [ "$(value replays)" -gt "$(value recordings)" ] &&
        [ "$(value input)" = "" ] && [ "$(value packed)" = "" ]
    ok $? "$1: passes are replayed, none is eager for its shape"
}

dynamic="--packed --batch 1 --data $scratch/text --steps 8"
for model in gpt mla moe mamba hybrid; do
    layers=2
    [ $model != hybrid ] || layers=4
    # shellcheck disable=SC2086 # words
    train "$model, 1,3 of 3, allgather" -- $dynamic --ranks 3 --cp 1,3 \
        --seq 24 --model $model --layers $layers
    uses_all "$model, 1,3 of 3"
    # shellcheck disable=SC2086 # words
    train "$model, 1,2,4 of 4, ring" -- $dynamic --ranks 4 --cp 1,2,4 \
        --seq 16 --model $model --layers $layers --cp-comm ring
done
# shellcheck disable=SC2086 # words
{
    train "1,3 of 6" -- $dynamic --ranks 6 --cp 1,3 --seq 24
    uses_all "1,3 of 6"
    train "1,2,3,6 of 6" -- $dynamic --ranks 6 --cp 1,2,3,6 --seq 12
    train "1,2,4,8 of 8" -- $dynamic --ranks 8 --cp 1,2,4,8 --seq 10 --steps 4
    for n in 1 2 4; do
        train "$n of 1,2,4 forced" -- $dynamic --ranks 4 --cp 1,2,4 --seq 16 \
            --cp-force $n --compare eager,graph,step --steps 3
    done
    train "two streams, chunks" GRAPHHOOKS_GRANULARITY=chunk -- $dynamic \
        --ranks 3 --cp 1,3 --seq 24 --streams 2
    train "more microbatches in later steps" GRAPHHOOKS_GRANULARITY=chunk -- \
        $dynamic --ranks 3 --cp-force 3 --seq 24 --microbatches 1,2,4 \
        --in-flight 4
    [ "$(value recordings)" -eq 8 ] && [ "$(list chunk_slots_used)" = 4 ]
    ok $? "slots that come later are recorded too"
    train "by part" GRAPHHOOKS_GRANULARITY=part -- $dynamic --ranks 3 --cp 1,3 \
        --seq 24
    train "delayed gradients of weights" -- $dynamic --ranks 3 --cp 1,3 \
        --seq 24 --delay-wgrad 1 --streams 2
    train "checked" GRAPHHOOKS_LOG=off GRAPHHOOKS_CHECK=bitwise -- $dynamic \
        --ranks 3 --cp 1,3 --seq 24
    [ "$(value checks)" -gt 0 ] && [ "$(value check_failures)" -eq 0 ]
    ok $? "replays with collectives inside are compared with eager passes"
    train "a hybrid's delayed gradients" -- $dynamic --ranks 3 --cp 1,3 \
        --seq 24 --delay-wgrad 1 --streams 2 --model hybrid --layers 4
    train "a hybrid with offload" GRAPHHOOKS_LOG=off -- $dynamic --ranks 3 --cp 1,3 --seq 24 \
        --model hybrid --layers 4 --compare eager,graph+offload
    train "with offload" -- $dynamic --ranks 3 --cp 1,3 --seq 24 --layers 4 \
        --model mla --compare eager,graph,graph+offload,graph+offload+delay
    [ "$(value groups_offloaded)" -gt 0 ]
    ok $? "what ranks share sequences of goes to the host and back"
    train "fewer graphs than numbers of ranks" GRAPHHOOKS_MAX_BANKS=1 \
        GRAPHHOOKS_LOG=off -- $dynamic --ranks 3 --cp 1,3 --seq 24
    seeds=${GRAPHHOOKS_TEST_SEEDS:-12}
    seed=1
    while [ $seed -le "$seeds" ]; do
        train "seed $seed" SOFTCUDA_SEED=$seed -- $dynamic --layers 1 \
            --ranks 3 --cp 1,3 --seq 24 --steps 3 --streams 2 \
            --cp-comm "$([ $((seed % 2)) -eq 0 ] && echo ring ||
                echo allgather)"
        seed=$((seed + 1))
    done
}

# ---- experts that ranks divide -------------------------------------------------

# numbers: the losses and weights of the last run, of all its modes.
numbers()
{
    sed -n '/"loss"\|"weights_hash"/p' "$scratch/out.json" | sort -u
}

# Graphs hold the collectives of both groups, where one is the other, a part of
# it, or neither.
for how in "4 --cp 1,2 --ep 2" "4 --cp 1,2,4 --ep 2" "4 --cp 2 --ep 4" \
    "6 --cp 1,3 --ep 2"; do
    sizes=${how#*--cp } sizes=${sizes%% *}
    how="--ranks $how --model moe --layers 4 --steps 6 --microbatches 4,2"
    [ "$sizes" != 2 ] || how="$how --cp-force 2"
    alone=
    for more in "--compare eager" --sync-free "--sync-free --stash 400%" \
        --drop-and-pad; do
        # shellcheck disable=SC2086 # words
        train "$how $more" GRAPHHOOKS_GRANULARITY=chunk -- $dynamic --seq 16 \
            $how $more
        [ -n "$alone" ] || alone=$(numbers)
        [ "$more" = --drop-and-pad ] || [ "$(numbers)" = "$alone" ]
        ok $? "$how $more: the bits of ranks that wait for counts"
        [ "$more" = "--compare eager" ] || {
            banks=$(list cp_microbatches | tr ', ' '\n\n' | grep -c '[1-9]')
            [ "$(value recordings)" -le $((banks * 2 *
                $(list chunk_slots_used))) ] &&
                [ "$(value replays)" -gt "$(value recordings)" ]
            ok $? "$how $more: a graph each way, of each slot and bank"
        }
    done
done

if [ "$driver" = cuda ]; then
    done_testing
    exit
fi

# ---- ranks that would part ----------------------------------------------------

few="$dynamic --ranks 3 --cp 1,3 --seq 24 --steps 4 --limit 3"

# apart WHAT FAIL OPTION...: where one rank cannot record none does, and the
# numbers are right.
apart()
{
    what=$1
    fail=$2
    shift 2
    # shellcheck disable=SC2086 # words
    GRAPHHOOKS_SCOPE=attn SOFTCUDA_FAIL=$fail timeout 60 \
        "$builddir/gh-engine" $small $few "$@" \
        > "$scratch/out" 2> "$scratch/err"
    status=$?
    [ $status -eq 0 ] && grep -q '^bitwise equal: yes' "$scratch/out" &&
        grep -q "runs eagerly from now on: rank [012] could not" "$scratch/err"
    held=$?
    ok $held "$what: no rank has a graph, and the numbers are right"
    [ $held -eq 0 ] || diag "status $status: $(head -n 3 "$scratch/err")"
}

# Of layers with attention alone, so that each recording has collectives.
for n in 1 3; do
    apart "a recording that cannot begin" cuStreamBeginCapture:$n
    apart "a recording that fails" cuStreamEndCapture:$n
    apart "a graph that cannot be made" cuGraphInstantiateWithFlags:$n \
        --cp-force 3 --cp-comm ring
done
# Of experts too, on ranks of two groups of which neither holds the other.
for n in 2 7; do
    SOFTCUDA_FAIL=cuStreamEndCapture:$n GRAPHHOOKS_GRANULARITY=chunk \
        timeout 60 "$builddir/gh-engine" $small $dynamic --seq 16 --ranks 6 \
        --cp 1,3 --ep 2 --model moe --sync-free --limit 3 > "$scratch/out" \
        2> "$scratch/err"
    [ $? -eq 0 ] && grep -q '^bitwise equal: yes' "$scratch/out" &&
        [ "$(grep -c "runs eagerly from now on" "$scratch/err")" -ge 1 ]
    held=$?
    ok $held "where one of six ranks cannot record a chunk, none does"
    [ $held -eq 0 ] || diag "$(head -n 3 "$scratch/err")"
done
# shellcheck disable=SC2086 # words
GRAPHHOOKS_SCOPE=attn SOFTCUDA_FAIL=cuGraphLaunch:40 timeout 10 \
    "$builddir/gh-engine" $small $few --cp-force 3 \
    > "$scratch/out" 2> "$scratch/err"
[ $? -eq 3 ] && grep -q '^gh-engine: rank [012]: graph mode: ' "$scratch/err"
ok $? "a launch that fails on one rank ends all in time"
# shellcheck disable=SC2086 # words
{
    train "what ranks decide is compared" GRAPHHOOKS_CHECK=ranks \
        GRAPHHOOKS_LOG=off -- $few
    checked=$(value agreements)
    train "and is not" -- $few
    [ "$(value agreements)" -gt 0 ] && [ "$(value agreements)" -lt "$checked" ]
    ok $? "ranks ask each other when they record, and oftener in a check"
    train "twice as many steps" -- $few --steps 8 --cp-force 3
    longer=$(value agreements)
    train "of one size" -- $few --cp-force 3
    [ "$(value agreements)" -eq "$longer" ]
    ok $? "passes that are replayed ask nobody"
}

# ---- waits --------------------------------------------------------------------
# Ranks of two streams; none of their waits is one too many.

missed=
n=1
while [ $n -le 15 ]; do
    # shellcheck disable=SC2086 # words
    SOFTCUDA_DROP_WAIT=$n timeout 60 "$builddir/gh-engine" $small --steps 2 \
        --layers 1 --batch 1 --microbatches 3 --streams 2 --ranks 3 \
        --cp-force 3 --seq 4 --compare eager 2>&1 > /dev/null |
        grep -q '^softcuda: race' || missed="$missed $n"
    n=$((n + 1))
done
[ -z "$missed" ]
ok $? "each of fifteen waits, dropped, is reported as a race"
[ -z "$missed" ] || diag "not missed:$missed"

# ---- what is refused ----------------------------------------------------------

# refused SENTENCE OPTION...
refused()
{
    sentence=$1
    shift
    timeout 20 "$builddir/gh-engine" --driver soft "$@" > "$scratch/out" \
        2> "$scratch/err"
    status=$?
    [ $status -eq 2 ] && [ "$(wc -l < "$scratch/err")" -eq 1 ] &&
        grep -q -- "$sentence" "$scratch/err"
    held=$?
    ok $held "$* is refused: $sentence"
    [ $held -eq 0 ] || diag "status $status: $(cat "$scratch/err")"
}

refused "rising numbers" --cp 2,1
refused "rising numbers" --cp 0,1
refused "expects allgather|ring; did you mean ring" --cp-comm rings
refused "does not divide 4 ranks; take a divisor" --ranks 4 --cp 1,3 --packed
refused "does not divide 1 ranks" --cp-force 2
refused "is none of --cp" --ranks 4 --cp 1,2 --cp-force 4 --packed
refused "chooses by documents; add --packed" --ranks 2 --cp 1,2
refused "take an even one" --ranks 2 --cp-force 2 --seq 9
refused "leave one out" --ranks 2 --cp-force 2 --lengths 8,16
refused "leave out step" --ranks 2 --cp 1,2 --packed --compare eager,step
refused "leave out bare" --ranks 2 --cp 1,2 --packed --compare eager,bare

done_testing
