#!/bin/sh
# gh-engine --suspend: a session that is suspended and resumed now and then
# learns the same as one that is not, with every feature on.
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"
. "$srcdir/tests/engine/several.sh"

small="$base --hidden 16 --heads 2 --batch 2 --steps 6 --layers 3 --quiet --seq 8"

# suspends NAME [VARIABLE=VALUE...] -- OPTION...: all modes learn the same,
# graphs were replayed, and memory was given back.
suspends()
{
    name=$1
    shift
    ranks=$(echo "$*" | sed -n 's/.*--ranks \([0-9]*\).*/\1/p')
    if [ "${ranks:-1}" -gt "${GRAPHHOOKS_TEST_RANKS:-8}" ]; then
        skip "$name: $ranks ranks are more than GRAPHHOOKS_TEST_RANKS"
        return
    fi
    trains "$@" && [ "$(value suspends)" -gt 0 ] &&
        ! grep -q '"replays": 0,' "$scratch/out.json"
    held=$?
    ok $held "$name: the same losses and weights, suspended $(value suspends) times"
    [ $held -eq 0 ] || diag "status $status: $(head -n 3 "$scratch/err")"
}

offloads="--offload qkv_linear,core_attn,attn_proj
    --compare eager,graph,graph+offload,graph+offload+delay"

# ---- one rank --------------------------------------------------------------

if [ "$driver" = soft ]; then
    # shellcheck disable=SC2086 # words
    {
        suspends "layers" -- --suspend 1
        [ "$(value device_given)" -gt 0 ]
        ok $? "layers: device memory was given back"
        suspends "parts" GRAPHHOOKS_GRANULARITY=part -- --suspend 2
        suspends "a chunk" GRAPHHOOKS_GRANULARITY=chunk -- --suspend 3
        suspends "one in flight" -- --suspend 4 --in-flight 1
        suspends "three streams" -- --suspend 5 --streams 3
        suspends "the legacy stream" -- --suspend 6 --stream legacy
        suspends "later weight gradients" -- --suspend 7 --delay-wgrad 1
        suspends "offload" -- --suspend 8 $offloads
        [ "$(value pinned_given)" -gt 0 ]
        ok $? "offload: pinned memory was given back"
        small=${small% --seq 8}
        suspends "several lengths" -- --suspend 9 --lengths 8,4,6 $offloads
        small="$small --seq 8"
        suspends "packed documents" -- --suspend 10 --packed
        suspends "compared passes" GRAPHHOOKS_CHECK=bitwise -- --suspend 11
        suspends "experts" -- --suspend 12 --model moe $offloads
        suspends "latent attention" -- --suspend 13 --model mla
        suspends "a hybrid" -- --suspend 14 --model hybrid
    }
fi

# ---- ranks -----------------------------------------------------------------

suspends "two ranks" -- --suspend 21 --ranks 2
suspends "experts on two ranks" -- --suspend 22 --model moe --ranks 2 --ep 2
suspends "stages" -- --suspend 23 --ranks 2 --pp 2 --layers 4
suspends "chunks of stages" GRAPHHOOKS_GRANULARITY=chunk -- --suspend 24 \
    --ranks 2 --pp 2 --vpp 2 --layers 4 --microbatches 4,6,2
suspends "shared sequences" -- --suspend 25 --ranks 2 --packed --cp 1,2 \
    --batch 1
suspends "overlapped exchanges" -- --suspend 26 --model moe --ranks 2 --ep 2 \
    --compare eager,overlap+graph,overlap+graph+offload+delay \
    --offload qkv_linear,core_attn,attn_proj

suspends "windows of exchanges" -- --suspend 29 --model moe --ranks 2 --ep 2 \
    --exchange copy
[ "$(value exchange_given_bytes)" -gt 0 ]
ok $? "windows of exchanges: they were given back"
suspends "windows of overlapped exchanges" -- --suspend 26 --model moe \
    --ranks 2 --ep 2 --exchange auto \
    --compare eager,overlap+graph,overlap+graph+offload+delay \
    --offload qkv_linear,core_attn,attn_proj
suspends "a stash" GRAPHHOOKS_GRANULARITY=chunk -- --suspend 27 --model moe \
    --ranks 2 --ep 2 --stash 200% --sync-free
suspends "all together" GRAPHHOOKS_GRANULARITY=chunk -- --suspend 28 \
    --model moe --ep 2 --packed --cp 1,2 --batch 1 --seq 12 --layers 8 \
    --microbatches 4,6,2 --ranks 4 --pp 2 --vpp 2 --stash 300% \
    --offload qkv_linear,core_attn,attn_proj \
    --compare eager,graph,graph+offload,graph+offload+delay

# ---- orders ----------------------------------------------------------------

if [ "$driver" = soft ]; then
    seeds=${GRAPHHOOKS_TEST_SEEDS:-6}
    [ -z "${sanitize-}" ] || seeds=2
    bad=
    seed=1
    while [ $seed -le "$seeds" ]; do
        model=$(echo gpt moe hybrid | cut -d ' ' -f $((seed % 3 + 1)))
        case $((seed % 4)) in
        0) how="--streams 2 $offloads" ;;
        1) how="--ranks 2 $offloads" ;;
        2) how="--ranks 2 --pp 2" ;;
        3) how="--delay-wgrad 1 --streams 2" ;;
        esac
        # shellcheck disable=SC2086 # words
        trains SOFTCUDA_SEED=$seed -- --suspend $seed --model "$model" $how ||
            bad="$bad $seed"
        seed=$((seed + 1))
    done
    empty "$bad" "$seeds seeds of the software device: the same bits"
fi

# ---- options ---------------------------------------------------------------

refuses "--suspend 0: expects" --suspend 0
refuses "--suspend is for the modes with graphs; add graph to --compare" \
    --suspend 1 --compare eager

done_testing
