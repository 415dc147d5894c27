#!/bin/sh
# gh-engine --stash: experts' rows in pages give the bits of rows in the sets,
# also where a rank has too few pages.
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"
. "$srcdir/tests/engine/several.sh"

small="$base --hidden 16 --heads 2 --batch 2 --steps 5 --layers 4 --quiet --seq 8"
moe="--model moe --ranks 2 --ep 2 --stash 200%"

# stashes NAME [VARIABLE=VALUE...] -- OPTION...: all modes learn the same, no
# step ran again, and no page is left.
stashes()
{
    name=$1
    shift
    trains "$@" && [ "$(value reruns)" -eq 0 ] &&
        [ "$(value held_bytes)" -eq 0 ] &&
        [ "$(value bytes)" -gt 0 ] &&
        [ "$(value peak_bytes)" -le \
            "$(($(value bytes) + $(value spill_bytes)))" ]
    held=$?
    ok $held "$name: the same losses and weights, with rows in pages"
    [ $held -eq 0 ] || diag "status $status: $(head -n 3 "$scratch/err")"
}

# ---- every model -----------------------------------------------------------

granularities="part layer chunk"
[ "$driver" = soft ] && [ -z "${sanitize-}" ] || granularities=chunk
# shellcheck disable=SC2086 # words
for granularity in $granularities; do
    for model in moe "mla --experts 4 --shared-expert --dense-layers 2" \
        hybrid; do
        stashes "$model, $granularity" GRAPHHOOKS_GRANULARITY=$granularity -- \
            $moe --model $model
        stashes "$model, $granularity, padded" \
            GRAPHHOOKS_GRANULARITY=$granularity -- $moe --model $model \
            --drop-and-pad
    done
done
# A chunk of dropless experts on several ranks is one graph each way, a slot.
for model in moe "mla --experts 4 --shared-expert --dense-layers 2" hybrid; do
    for more in "--ranks 2" "--ranks 4 --pp 2" \
        "--ranks 4 --pp 2 --schedule zero-bubble" \
        "--ranks 4 --pp 2 --vpp 2 --microbatches 4,6,2"; do
        # With sanitizers the last one, which has all that the others have.
        [ -z "${sanitize-}" ] || [ "$more" != "${more%4,6,2}" ] || continue
        # shellcheck disable=SC2086 # words
        stashes "$model, $more, chunk, sync-free" \
            GRAPHHOOKS_GRANULARITY=chunk -- $moe --model $model --sync-free \
            $more
        slots=0
        for n in $(list chunk_slots_used | tr -d ','); do
            slots=$((slots + n))
        done
        passes=2
        [ "$more" = "${more%zero-bubble}" ] || passes=3
        [ "$(value recordings)" -eq "$((passes * slots))" ]
        ok $? "$model, $more: a graph for each pass of a chunk and slot"
    done
done
if [ "$driver" = soft ]; then
    # shellcheck disable=SC2086 # words
    stashes "one rank" -- --model moe --stash 100% --batch 3
    # shellcheck disable=SC2086 # words
    stashes "the whole chunk in graphs" GRAPHHOOKS_GRANULARITY=chunk -- \
        --model moe --stash 100% --compare eager,step,graph
fi
# shellcheck disable=SC2086 # words
{
    stashes "weights' gradients later" -- $moe --delay-wgrad 1
    stashes "offload of what the stash does not keep" -- $moe \
        --compare eager,graph,graph+offload,graph+offload+delay \
        --offload qkv_linear,core_attn,attn_proj
    stashes "by the library's exchange" -- $moe --exchange copy
    stashes "stages" -- $moe --ranks 4 --pp 2
    stashes "chunks of stages" GRAPHHOOKS_GRANULARITY=chunk -- $moe --ranks 4 \
        --pp 2 --vpp 2 --microbatches 4,6,2
    stashes "zero bubble" -- $moe --ranks 4 --pp 2 --schedule zero-bubble
    stashes "shared sequences" -- $moe --packed --cp 1,2 --batch 1 --seq 12
    train "a stage without experts" -- $moe --ranks 4 --pp 2 --dense-layers 2
    small=${small% --seq 8}
    stashes "several lengths" -- $moe --lengths 8,4,6
    # All rows of a short microbatch are fewer than an entry has room for.
    stashes "several lengths, one rank" -- --model moe --stash 100% \
        --lengths 8,4,6
    small="$small --seq 8"
}

# ---- all together ----------------------------------------------------------

# numbers: the losses and the weights of the last run, of all its modes.
numbers()
{
    sed -n '/"loss"\|"weights_hash"/p' "$scratch/out.json" | sort -u
}

# Stages of chunks, experts that ranks divide, shared and packed sequences,
# offload and the stash, in all modes at once.
together="--model moe --ep 2 --packed --cp 1,2 --batch 1 --seq 12 --layers 8
    --microbatches 4,6,2"
seeds="1 2 3 4 5"
[ "$driver" = soft ] && [ -z "${sanitize-}" ] || seeds=1
for model in moe "mla --experts 4" "hybrid --pattern ME*E"; do
    # shellcheck disable=SC2086 # words
    trains -- $together --model $model --ranks 2 --compare eager
    alone=$(numbers)
    bad=
    for seed in $seeds; do
        # shellcheck disable=SC2086 # words
        trains SOFTCUDA_SEED=$seed GRAPHHOOKS_GRANULARITY=chunk -- \
            $together --model $model --ranks 4 --pp 2 --vpp 2 --stash 300% \
            --offload qkv_linear,core_attn,attn_proj \
            --compare eager,graph,graph+offload,graph+offload+delay &&
            [ -n "$alone" ] && [ "$(numbers)" = "$alone" ] &&
            [ "$(value reruns)" -eq 0 ] && [ "$(value bytes)" -gt 0 ] &&
            { [ "$(value groups_offloaded)" -gt 0 ] ||
                [ "${model#hybrid}" != "$model" ]; } &&
            ! grep -q '"replays": 0' "$scratch/out.json" ||
            bad="$bad $seed: $(head -n 2 "$scratch/err")"
    done
    empty "$bad" "$model: all together, the losses and weights of one stage"
done

# ---- too few pages ---------------------------------------------------------

# Rank 0 has half of all rows, and needs twice as many pages as there are.
few="--model moe --ranks 4 --ep 4 --busy-expert --stash 150K"
for more in "" "--sync-free" "--drop-and-pad --stash 20K" "--pp 2 --ep 2 --stash 20K" \
    "--delay-wgrad 1" "--compare eager,graph,graph+offload --offload core_attn"; do
    # shellcheck disable=SC2086 # words
    trains -- $few $more
    [ "$status" -eq 0 ] && grep -q '"bitwise_equal": true' \
        "$scratch/out.json" && [ "$(value reruns)" -gt 0 ] &&
        [ "$(value held_bytes)" -eq 0 ]
    held=$?
    ok $held "too few pages $more: the step runs again, and is eager's"
    [ $held -eq 0 ] || diag "status $status: $(head -n 3 "$scratch/err")"
done
# shellcheck disable=SC2086 # words
trains -- $few --steps 1
[ "$(wc -l < "$scratch/err")" -eq 1 ] &&
    grep -q '^graphhooks: warning: stash: rank 0 of 4: a step needed [0-9]* bytes of pages, and there are 153600: all ranks run it once more' \
        "$scratch/err"
held=$?
ok $held "one rank says so, once, with its numbers"
[ $held -eq 0 ] || diag "$(head -n 3 "$scratch/err")"

# With pages of the host for the rest, no step runs again.
for more in "" "--sync-free" "--sync-free --ep 2 --pp 2 --stash 20K"; do
    # shellcheck disable=SC2086 # words
    stashes "spilled $more" GRAPHHOOKS_GRANULARITY=chunk -- $few \
        --stash-spill 1M $more
    [ "$(value spilled)" -gt 0 ]
    ok $? "spilled $more: pages of the host's memory were used"
done

# The first step says what is needed; a later one that needs more runs again.
trains -- --model moe --ranks 2 --ep 2 --stash 100% --microbatches 1,4 \
    --steps 4
[ "$status" -eq 0 ] && grep -q '"bitwise_equal": true' "$scratch/out.json" &&
    [ "$(value reruns)" -eq 2 ] && [ "$(value peak_bytes)" -gt "$(value bytes)" ]
ok $? "a step of more microbatches than the first needs more, and runs again"

# peak OPTION...: bytes that graphs need.
peak()
{
    trains -- --model moe --ranks 4 --ep 4 --experts 4 --layers 8 --seq 32 \
        --hidden 32 --steps 2 --compare graph "$@"
    value device_peak_bytes
}
if [ "$driver" = soft ]; then
    without=$(peak)
    with=$(peak --stash 120%)
    [ "$(value peak_bytes)" -gt 0 ] && [ "$((10 * with))" -lt "$((7 * without))" ]
    ok $? "pages of $with bytes with all else, against $without"
fi

# ---- options ---------------------------------------------------------------

for bad in 0 60% 99% 12x 4MB -1 % 10001%; do
    refuses "--stash $bad: expects N%, from 100% to 10000% of what the first \
step needs, or BYTES, such as 64M" --model moe --stash $bad
done
refuses "--model gpt has no layer of experts; take --model moe" --stash 120%
refuses "--stash is for the modes with graphs" --model moe --stash 120% \
    --compare eager
refuses "--stash-spill 1MB: expects BYTES, such as 65536 or 64M" --model moe --stash 4M \
    --stash-spill 1MB
refuses "--stash-spill is for pages of a stash; add --stash" --model moe \
    --stash-spill 1M
refuses "--stash 4M and --streams" --model moe --stash 4M --streams 2
refuses "--stash 4M and overlap" --model moe --stash 4M --ranks 2 --ep 2 \
    --compare eager,overlap
refuses "--stash 4M and expert_fc1 or moe_act in --offload" --model moe \
    --stash 4M --compare eager,graph+offload --offload moe_act

# ---- orders ----------------------------------------------------------------

if [ "$driver" = soft ]; then
    seeds=${GRAPHHOOKS_TEST_SEEDS:-8}
    [ -z "${sanitize-}" ] || seeds=2
    bad=
    seed=1
    while [ $seed -le "$seeds" ]; do
        model=$(echo moe hybrid | cut -d ' ' -f $((seed % 2 + 1)))
        case $((seed % 3)) in
        0) how="--ranks 2" ;;
        1) how="--ranks 4 --pp 2" ;;
        2) how="--ranks 4 --pp 2 --schedule zero-bubble" ;;
        esac
        # shellcheck disable=SC2086 # words
        trains SOFTCUDA_SEED=$seed -- --ep 2 --stash 300% --model "$model" \
            --microbatches 4,3 $how || bad="$bad $seed"
        seed=$((seed + 1))
    done
    empty "$bad" "$seeds seeds of the software device: the same bits"
fi

done_testing
