#!/bin/sh
# gh-engine with experts that ranks divide: the same numbers in every mode, and
# those of ranks that have all experts.
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"
. "$srcdir/tests/engine/several.sh"

small="$base --layers 2 --hidden 16 --heads 2 --seq 8 --batch 2"
small="$small --steps 3 --microbatches 3,2 --in-flight 2 --quiet"

# ---- eager and graph -------------------------------------------------------

# Forward every token meets the same weights in the same order of sums,
# wherever its expert is; a gradient of an expert's weights adds up the tokens
# of all ranks in one order, or those of each first.
set -- moe "mla --experts 4 --shared-expert" "hybrid --layers 4" \
    "moe --drop-and-pad --top-k 1"
[ "$driver" = soft ] || set -- moe # processes of a GPU take seconds to start
# With sanitizers, which take four times as long, of each kind a few.
eps="2 4" ways="2 2 fixed,4 2 auto,4 4 auto" trades="2 2,4 4"
[ -z "${sanitize-}" ] || eps=4 ways="4 2 auto" trades="4 4"
for model; do
    train "$model: 4 ranks, all experts on each" -- --model $model --ranks 4
    all=$(list loss)
    for ep in $eps; do
        train "$model: 4 ranks, experts over $ep" -- --model $model \
            --ranks 4 --ep $ep
        losses=$(list loss)
        [ "${all%%,*}" = "${losses%%,*}" ] && are_near "$all" "$losses"
        ok $? "$model: experts over $ep ranks learn what all on each learn"
    done
done

# A router that sends all to one expert leaves nothing for the other rank; of a
# batch of one row, too, some have none.
train "one row, one choice" -- --model moe --ranks 4 --ep 4 --top-k 1 \
    --seq 1 --batch 1
train "all choices of all rows" -- --model moe --ranks 2 --ep 2 --top-k 4

# Ranks that exchange room for all rows read no counts, and so a graph holds
# their exchanges; the numbers are the same.
for model in moe "mla --experts 4 --shared-expert" "hybrid --layers 4" \
    "moe --top-k 4" "moe --top-k 1 --seq 1 --batch 1" "moe --busy-expert"; do
    trains -- --model $model --ranks 2 --ep 2 --compare eager
    hash=$(grep '"weights_hash"' "$scratch/out.json")
    trains -- --model $model --ranks 2 --ep 2 --sync-free \
        --compare eager,graph,step &&
        [ "$(grep '"weights_hash"' "$scratch/out.json" | sort -u)" = "$hash" ] &&
        [ "$(value exchanges_captured)" -gt 0 ]
    held=$?
    ok $held "$model: sync-free, the same losses and weights, also in graphs"
    [ $held -eq 0 ] || diag "status $status: $(head -n 3 "$scratch/err")"
done
train "sync-free, by the library's exchange" -- --model moe --ranks 2 --ep 2 \
    --sync-free --exchange copy

# ---- overlap ---------------------------------------------------------------

# run NAME [VARIABLE=VALUE...] -- OPTION...: in all modes.  What a layer's graph
# reads is not offloaded, or the log would say that it stays.
run()
{
    train "$@" --compare $every \
        --offload qkv_linear,core_attn,attn_proj,expert_fc1,moe_act
}

# goes NAME: some of the last run's groups have gone; of few layers none would.
goes()
{
    grep -q 'offload+delay: [1-9][0-9]* of .* groups go' "$scratch/out"
    ok $? "$1: groups of activations go"
}

every=eager,graph,overlap,overlap+graph,overlap+graph+delay-wgrad
every=$every,overlap+graph+offload+delay
for model in moe "mla --experts 4" "hybrid --layers 4 --pattern E*ME"; do
    for how in $(echo "$ways" | tr ' ,' '_ '); do
        # shellcheck disable=SC2046 # words
        set -- $(echo "$how" | tr _ ' ')
        run "$model: $1 ranks, experts over $2, $3" SOFTCUDA_SEED=$1$2 \
            GRAPHHOOKS_OVERLAP="$3" -- --model $model --ranks "$1" --ep "$2" \
            --steps 4
    done
done
run "order off" GRAPHHOOKS_OVERLAP=off -- --model moe --ranks 2 --ep 2
# A microbatch has its documents before the one in its slot has gone.
for seed in 0 7; do
    run "order off, packed, one slot, seed $seed" GRAPHHOOKS_MAX_SLOTS=1 \
        GRAPHHOOKS_LOG=off SOFTCUDA_SEED=$seed GRAPHHOOKS_OVERLAP=off -- \
        --model moe --ranks 2 --ep 2 --packed --in-flight 3
done
run "drop and pad" -- --model moe --ranks 2 --ep 2 --drop-and-pad
train "drop and pad, all as a graph" -- --model moe --ranks 2 --ep 2 \
    --drop-and-pad --compare eager,graph,step
[ "$(value exchanges_captured)" -gt 0 ] &&
    [ "$(value exchanges_captured)" -eq "$(value exchanges)" ]
ok $? "exchanges that are in a graph are told from those that are issued"
run "the legacy stream" -- --model moe --ranks 2 --ep 2 --stream legacy
train "shared expert, all modes delay" -- --model moe --ranks 2 --ep 2 \
    --shared-expert --delay-wgrad 1 \
    --compare eager,overlap,overlap+graph,overlap+graph+delay-wgrad
run "three in flight" -- --model moe --ranks 2 --ep 2 --in-flight 3 \
    --microbatches 5,1
run "one row, overlapped" -- --model moe --ranks 4 --ep 4 --top-k 1 \
    --seq 1 --batch 1
run "all features" GRAPHHOOKS_OVERLAP=auto -- --model moe --layers 4 --ranks 4 \
    --ep 2 --packed --cp 1,2 --seq 24 --steps 4
goes "all features"
run "all features, latent attention" -- --model mla --layers 4 --experts 4 \
    --ranks 4 --ep 4 --packed --cp 1,2,4 --cp-comm ring --seq 12 --steps 4
goes "all features, latent attention"

# Half of all choices: rank 0 sends its own 16 rows to others for their second
# choice, and the others' 48 back; the same in the backward.
run "one rank with half of all tokens" GRAPHHOOKS_OVERLAP=auto -- --model moe \
    --ranks 4 --ep 4 --top-k 2 --busy-expert
[ "$(value exchanged_bytes)" -eq $((2 * (16 + 48) * 16 * 4 * 2 * 8)) ]
ok $? "and so many bytes leave it"
for exchange in nccl copy kernel; do
    run "one rank with most tokens, exchange $exchange" -- --model moe \
        --ranks 2 --ep 2 --busy-expert --exchange $exchange
done

# What passes do is compared twice: with an eager run of each, and, for ranks
# that the library knows, among them.
train "checked bit for bit" GRAPHHOOKS_CHECK=bitwise -- --model moe --ranks 2 \
    --ep 2 --compare eager,graph,overlap+graph,overlap+graph+delay-wgrad
train "checked between ranks" GRAPHHOOKS_CHECK=ranks GRAPHHOOKS_OVERLAP=auto \
    -- --model moe --ranks 4 --ep 2 --steps 4 \
    --compare eager,overlap+graph,overlap+graph+delay-wgrad

# ---- exchanges -------------------------------------------------------------

# The library's two move the same bytes as the engine's own.
set -- moe "mla --experts 4" "hybrid --layers 4"
[ "$driver" = soft ] || set -- moe
for model; do
    for how in $(echo "$trades" | tr ' ,' '_ '); do
        # shellcheck disable=SC2046 # words
        set -- $(echo "$how" | tr _ ' ')
        hashes=
        for exchange in "" "--exchange nccl" "--exchange copy" \
            "--exchange auto"; do
            # shellcheck disable=SC2086 # words
            run "$model: $1 ranks, experts over $2 $exchange" -- \
                --model $model --ranks "$1" --ep "$2" $exchange
            hashes="$hashes $(grep weights_hash "$scratch/out.json" | sort -u)"
        done
        [ "$(echo "$hashes" | tr ' ' '\n' | grep -v hash | sort -u |
            wc -w)" -eq 1 ]
        ok $? "$model: $1 ranks learn the same by every exchange"
    done
done
# auto takes the kernel where exchanges are on the stream that computes: in all
# modes but overlap, and there in order off.
kernel_calls()
{
    sed -n 's/.*"exchange_kernel_calls": \([0-9]*\).*/\1/p' "$scratch/out.json" |
        tr '\n' ' '
}
train "auto without overlap" -- --model moe --ranks 2 --ep 2 --exchange auto \
    --compare eager,graph
kernel_calls | grep -q '^[1-9][0-9]* [1-9][0-9]* $'
ok $? "goes by the kernel: $(kernel_calls)"
train "auto beside compute" -- --model moe --ranks 2 --ep 2 --exchange auto \
    --compare eager,overlap
kernel_calls | grep -q '^[1-9][0-9]* 0 $'
ok $? "does not: $(kernel_calls)"
train "auto, order off" GRAPHHOOKS_OVERLAP=off -- --model moe --ranks 2 --ep 2 \
    --exchange auto --compare eager,overlap
kernel_calls | grep -q '^[1-9][0-9]* [1-9][0-9]* $'
ok $? "does: $(kernel_calls)"
train "auto, nothing is small" GRAPHHOOKS_EP_EXCHANGE_SMALL=0 -- --model moe \
    --ranks 2 --ep 2 --exchange auto --compare eager,graph
kernel_calls | grep -q '^0 0 $'
ok $? "goes by copies: $(kernel_calls)"
train "drop and pad, exchange kernel in graphs" -- --model moe \
    --ranks 2 --ep 2 --drop-and-pad --exchange kernel --compare eager,graph
grep -q '"exchange": "kernel"' "$scratch/out.json"
ok $? "and JSON says so"
for exchange in nccl copy; do
    run "drop and pad, exchange $exchange" -- --model moe --ranks 4 --ep 2 \
        --drop-and-pad --exchange $exchange
    train "drop and pad, exchange $exchange in graphs" -- --model moe \
        --ranks 2 --ep 2 --drop-and-pad --exchange $exchange \
        --compare eager,graph,step
    run "one row, exchange $exchange" -- --model moe --ranks 4 --ep 4 \
        --top-k 1 --seq 1 --batch 1 --exchange $exchange
    run "all features, exchange $exchange" GRAPHHOOKS_OVERLAP=auto -- \
        --model moe --layers 4 --ranks 4 --ep 4 --packed --cp 1,2,4 --seq 12 \
        --steps 4 --exchange $exchange
    goes "all features, exchange $exchange"
    [ "$exchange" = copy ] && other=nccl || other=copy
    [ "$(value exchanged_bytes)" -gt 0 ] &&
        [ "$(value "exchange_${exchange}_bytes")" -eq \
            "$(value exchanged_bytes)" ] &&
        [ "$(value exchange_${other}_bytes)" -eq 0 ] &&
        grep -q "\"exchange\": \"$exchange\"" "$scratch/out.json"
    ok $? "all bytes have gone by $exchange"
done

# ---- scopes ----------------------------------------------------------------

# What is before a dispatch, under every set of words that is legal for it;
# granularities take turns.
try_scope()
{
    tried=$((tried + 1))
    granularity=$(echo part layer chunk | cut -d ' ' -f $(((tried + tried / 3) % 3 + 1)))
    # shellcheck disable=SC2086 # words
    trains GRAPHHOOKS_SCOPE="$1" GRAPHHOOKS_GRANULARITY="$granularity" -- $2 \
        --ranks 2 --ep 2 \
        --compare eager,overlap+graph,overlap+graph+delay-wgrad &&
        ! grep -q '"replays": 0' "$scratch/out.json" ||
        bad="$bad $1/$granularity"
}

# walk WORDS OPTION...: all sets of the words, with what a router allows.
walk()
{
    words=$1
    shift
    tried=0
    bad=
    sets=" "
    for word in $words; do
        more=
        for set in $sets; do
            more="$more $set,$word"
        done
        sets="$sets $word $more"
    done
    for set in $sets; do
        try_scope "$set" "$*"
        try_scope "$set,moe_router" "$*"
        try_scope "$set,moe_router,moe_preprocess" "$*"
    done
    try_scope moe_router "$*"
    try_scope moe_router,moe_preprocess "$*"
    empty "$bad" "$*: all of $tried scopes replay graphs, with equal numbers"
}

walk attn --model moe
if [ "$driver" = soft ] && [ -z "${sanitize-}" ]; then
    walk "attn mlp" --model mla --experts 4 --dense-layers 1
    walk "attn mlp mamba" --model hybrid --layers 4
fi
for scope in moe moe,attn moe_preprocess moe,moe_router; do
    trains GRAPHHOOKS_SCOPE=$scope -- --model moe --ranks 2 --ep 2 \
        --drop-and-pad --compare overlap+graph
    [ "$status" -eq 2 ] && [ "$(wc -l < "$scratch/err")" -eq 1 ] &&
        grep -q '^gh-engine: overlap+graph mode: .*scope' "$scratch/err"
    ok $? "scope $scope is refused with a sentence"
done

# ---- orders ----------------------------------------------------------------

[ "$driver" = soft ] || { done_testing; exit; }

# Streams and their operations in the order that a seed draws.
seeds="1 2 3 4 5 6 7 8 9 10 11 12"
[ -z "${sanitize-}" ] || seeds="1 2"
bad=
for seed in $seeds; do
    trains SOFTCUDA_SEED=$seed GRAPHHOOKS_OVERLAP=auto -- --model moe \
        --layers 3 --ranks 2 --ep 2 --seed $seed --compare $every --steps 4 \
        --offload core_attn,expert_fc1,moe_act || bad="$bad $seed"
done
empty "$bad" "seeds $seeds, and what they draw: the same losses and weights"

# An event is missing on one rank, which then has no times of its exchanges.
# Which rank creates so many events is up to the threads.
lacks=
for n in 200 230 260 290 320 350 380; do
    timeout 60 env GRAPHHOOKS_LOG=info SOFTCUDA_FAIL=cuEventCreate:$n \
        GRAPHHOOKS_OFFLOAD_FRACTION=auto \
        "$builddir/gh-engine" --driver soft --quiet --limit 10 --model moe \
        --ranks 2 --ep 2 --layers 3 --hidden 16 --heads 2 --seq 8 --batch 2 \
        --steps 6 --microbatches 3 --in-flight 2 --exchange copy \
        --compare eager,overlap+graph+offload+delay \
        > "$scratch/out" 2> "$scratch/err"
    lacks=$(grep -c 'are not compared .*: rank [01] has no times of them' \
        "$scratch/err")
    [ "$lacks" -eq 0 ] || break
done
[ "$lacks" -eq 2 ] && grep -q 'bitwise equal: yes' "$scratch/out" &&
    ! grep -q 'longer beside copies' "$scratch/err"
held=$?
ok $held "where one rank has no times of exchanges, none compares them"
[ $held -eq 0 ] || diag "$lacks: $(tail -n 3 "$scratch/err")"

# Two ranks have 16 waits each in a step of two microbatches.
waits=$(seq 32)
[ -z "${sanitize-}" ] || waits="1 8 32"
bad=
for n in $waits; do
    # shellcheck disable=SC2086 # words
    SOFTCUDA_DROP_WAIT=$n timeout 60 "$builddir/gh-engine" $small --layers 1 \
        --steps 1 --microbatches 2 --model moe --ranks 2 --ep 2 \
        --compare overlap 2>&1 > "$scratch/out" |
        grep -q '^softcuda: race' || bad="$bad $n"
done
empty "$bad" "each wait between streams, dropped, is reported as a race"

# fails SENTENCE [VARIABLE=VALUE...] -- OPTION...: status 3, every rank says why,
# and nobody waits for a rank that has ended.
fails()
{
    sentence=$1
    shift
    settings=
    while [ "$1" != -- ]; do
        settings="$settings $1"
        shift
    done
    shift
    # shellcheck disable=SC2086 # words
    env $settings timeout 20 "$builddir/gh-engine" $small --model moe \
        --ranks 2 --ep 2 "$@" > "$scratch/out" 2> "$scratch/err"
    status=$?
    [ "$status" -eq 3 ] && grep -q "$sentence" "$scratch/err" &&
        ! grep -q '^softnccl: deadlock' "$scratch/err" &&
        [ "$(grep -c '^gh-engine: rank' "$scratch/err")" -eq 2 ]
    held=$?
    ok $held "$settings $*: status 3, and $sentence"
    [ $held -eq 0 ] || diag "status $status: $(head -n 4 "$scratch/err")"
}

for n in 100 150 200 250; do
    fails "rank [01]: overlap mode: .*cuLaunchKernel failed" \
        SOFTCUDA_FAIL=cuLaunchKernel:$n -- --compare overlap
done
fails "rank [01]: overlap mode: .*cuMemcpyDtoHAsync failed" \
    SOFTCUDA_FAIL=cuMemcpyDtoHAsync:9 -- --compare overlap
fails "rank [01]: overlap+graph mode: .*cuMemcpyDtoDAsync failed" \
    SOFTCUDA_FAIL=cuMemcpyDtoDAsync:9 -- --compare overlap+graph

# Why a rank is out of reach is the driver's to say.
fails "exchange: rank [01] to [01]: cuCtxEnablePeerAccess: 999" \
    SOFTCUDA_FAIL=cuCtxEnablePeerAccess:1 -- --compare overlap --exchange copy

# What was aborted on the way is not called any more, whatever comes first.
for n in 20 26 32 60; do
    fails "rank [01]: eager mode: .*cuLaunchKernel failed" \
        SOFTCUDA_FAIL=cuLaunchKernel:$n GRAPHHOOKS_TIMEOUT=3 -- \
        --compare eager,overlap --exchange nccl
done

fails "rank [01]: overlap mode: gh_exchange_all_to_all" \
    SOFTCUDA_FAIL=cuStreamBatchMemOp:5 -- --compare overlap --exchange copy \
    --limit 2

done_testing
