#!/bin/sh
# gh-engine gives the same numbers in every mode, however it is run.
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"
scratch

driver=${GRAPHHOOKS_TEST_DRIVER:-soft}
small="--layers 2 --hidden 16 --heads 2 --seq 8 --batch 2 --steps 5"

# train NAME [VARIABLE=VALUE...] [-- OPTION...]: equal numbers, and no word
# on stderr, or one line with the words in $said.  Leaves the JSON for value
# and list.
said=
train()
{
    name=$1
    shift
    settings=
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        settings="$settings $1"
        shift
    done
    [ $# -eq 0 ] || shift
    rm -f "$scratch/out.json"
    # shellcheck disable=SC2086 # words
    env $settings "$builddir/gh-engine" --driver "$driver" $small --quiet \
        --json "$scratch/out.json" "$@" > "$scratch/out" 2> "$scratch/all"
    status=$?
    # Of few layers no group may go, which the log says.
    grep -v '^graphhooks: warning: offload: nothing is offloaded' \
        "$scratch/all" > "$scratch/err"
    lines=${said:+1}
    if [ "$(grep -c "$said" "$scratch/err")" -ne "${lines:-0}" ] ||
        [ "$(wc -l < "$scratch/err")" -ne "${lines:-0}" ]; then
        diag < "$scratch/err"
        status=99
    fi
    [ "$status" -eq 0 ] && grep -q '"bitwise_equal": true' "$scratch/out.json"
    ok $? "$name: the same losses and weights"
    [ "$status" -eq 0 ] || diag "status $status"
    said=
}

# The last number of that name in the JSON.
value()
{
    sed -n "s/^ *\"$1\": \([0-9]*\),*\$/\1/p" "$scratch/out.json" | tail -n 1
}

list()
{
    sed -n "s/^ *\"$1\": \[\(.*\)\],*\$/\1/p" "$scratch/out.json" | tail -n 1
}

is()
{
    [ "$1" = "$2" ]
    ok $? "$3"
    [ "$1" = "$2" ] || diag "got '$1', expected '$2'"
}

# ---- what is recorded ----------------------------------------------------
# 4+6+8+3+4 microbatches; one step of warmup; four slots; two layers, two
# directions.

train "by layer" -- --microbatches 4,6,8,3
is "$(value recordings)" 16 "one recording a layer, direction and slot"
is "$(value replays)" 84 "every pass after warmup is replayed"
is "$(value eager_passes)" 16 "only warmup is eager"
is "$(list recordings_after_step)" "0, 16, 16, 16, 16" \
    "other numbers of microbatches record nothing more"
is "$(value copies)" 63 "the passes whose inputs move are copied once each"

train "by part" GRAPHHOOKS_GRANULARITY=part
is "$(value recordings)" 32 "twice as many recordings by part"

train "rising numbers of microbatches" -- --microbatches 1,2,3,4,5
is "$(list recordings_after_step)" "0, 8, 12, 16, 16" \
    "slots are recorded up to the most in flight"

for n in 1 2 3; do
    train "$n in flight" -- --in-flight "$n"
    is "$(value recordings)" $((4 * n)) "$n in flight need $n slots"
done

# ---- scopes --------------------------------------------------------------

train "attention only" GRAPHHOOKS_SCOPE=attn
is "$(value recordings)" 16 "attention alone is recorded"
is "$(value plan)" 100 "the MLP's passes are eager by plan"
train "MLP only, by part" GRAPHHOOKS_SCOPE=mlp GRAPHHOOKS_GRANULARITY=part
is "$(value recordings)" 16 "the MLP alone is recorded"
train "both named" GRAPHHOOKS_SCOPE=attn,mlp
is "$(value recordings)" 16 "naming both is the whole layer"
train "nothing named" GRAPHHOOKS_SCOPE=
is "$(value recordings)" 16 "naming none is the whole layer"

# ---- streams -------------------------------------------------------------

train "the legacy stream" -- --stream legacy
is "$(value replays)" 84 "the legacy stream replays"
train "the legacy stream, by part" GRAPHHOOKS_GRANULARITY=part -- \
    --stream legacy
train "two streams" -- --streams 2
train "three streams, two in flight" -- --streams 3 --in-flight 2
train "eight in flight, five streams" -- --streams 5 --in-flight 8
train "the step as one graph" -- --compare eager,graph,step --streams 2
train "each pass as a bare graph" -- --compare eager,bare,graph --streams 2
train "each pass as a bare graph, default stream" -- --compare eager,bare \
    --stream legacy
train "the step on the legacy stream" -- --compare step,eager --stream legacy
train "the same mode twice" -- --compare graph,graph

# ---- the environment -----------------------------------------------------

train "switched off" GRAPHHOOKS_ENABLE=0
is "$(value replays)" 0 "GRAPHHOOKS_ENABLE=0 makes the hooks eager"
is "$(value disabled)" 100 "and the passes say so"
said='all slots were in flight'
train "one slot for four in flight" GRAPHHOOKS_MAX_SLOTS=1 -- --streams 2
[ "$(value busy)" -gt 0 ]
ok $? "microbatches without a slot are eager"
train "three steps of warmup" GRAPHHOOKS_WARMUP_STEPS=3
is "$(list recordings_after_step)" "0, 0, 0, 12, 16" \
    "recording starts after warmup"
said='passes compared, no difference'
train "checked" GRAPHHOOKS_CHECK=bitwise -- --streams 2
[ "$(value checks)" -gt 50 ]
ok $? "GRAPHHOOKS_CHECK compares replays with eager passes"
is "$(value check_failures)" 0 "and finds no difference"
train "traced" -- --trace "$scratch/trace.json"
[ -s "$scratch/trace.json" ]
ok $? "--trace writes a timeline"

# ---- an end before the end -----------------------------------------------

# interrupt SIGNAL STATUS [LINE]: a run that would take hours, ended after a
# line of its progress.
interrupt()
{
    line=${3:-graph: step 3 of}
    rm -f "$scratch/out.json" "$scratch/trace.json"
    # shellcheck disable=SC2086 # words
    env --default-signal "$builddir/gh-engine" --driver "$driver" $small \
        --steps 1000000 --compare ${of:-graph,eager} \
        --json "$scratch/out.json" --trace "$scratch/trace.json" \
        > "$scratch/out" 2> "$scratch/err" &
    pid=$!
    until grep -q "$line" "$scratch/out" || ! kill -0 $pid 2> "$scratch/gone"; do
        sleep 0.05
    done
    kill -s "$1" $pid
    wait $pid
    is $? "$2" "a run ended by $1 has status $2"
}

if env --default-signal true 2> "$scratch/err"; then
    interrupt INT 130
    grep -q "^gh-engine: interrupted after [0-9]* of 1000000 steps of the \
graph mode; what was done until then is reported$" "$scratch/err"
    ok $? "it says that it was interrupted, and where"
    ! grep -q '^eager' "$scratch/out"
    ok $? "no other mode is begun"
    grep -q '"interrupted": true' "$scratch/out.json" &&
        ! grep -q '"bitwise_equal"' "$scratch/out.json" &&
        [ "$(tail -n 1 "$scratch/out.json")" = '}' ]
    ok $? "the JSON is whole, and claims nothing of equality"
    steps=$(grep -c ': step ' "$scratch/out")
    is "$(list loss | tr ',' '\n' | wc -l)" "$steps" \
        "it has every step that was done"
    is "$(value iterations)" "$steps" "so has the library"
    grep -q '"name":"replay' "$scratch/trace.json" &&
        [ "$(tail -n 1 "$scratch/trace.json")" = ']' ]
    ok $? "the trace has the passes, and an end"
    of=eager,graph interrupt TERM 143 'eager: step 2 of'
    grep -q 'steps of the eager mode; ' "$scratch/err" &&
        [ "$(wc -l < "$scratch/err")" -eq 1 ]
    ok $? "a trace of a mode that has not begun is not missed"
    [ ! -e "$scratch/trace.json" ]
    ok $? "and no empty one is left behind"
    # A step that takes long: the first signal is seen at its end.
    env --default-signal "$builddir/gh-engine" --driver "$driver" \
        --compare eager --seq 256 --batch 1 --microbatches 1024 \
        > "$scratch/out" 2> "$scratch/err" &
    pid=$!
    until grep -q ', driver ' "$scratch/out" || ! kill -0 $pid 2> "$scratch/gone"; do
        sleep 0.05
    done
    kill -s INT $pid
    # Signals of one kind that nobody has taken yet are one: again, until two
    # were taken.
    n=0
    while [ $n -lt 100 ] && [ -r "/proc/$pid/stat" ] &&
        [ "$(cut -d ' ' -f 3 "/proc/$pid/stat")" != Z ]; do
        sleep 0.1
        kill -s INT $pid
        n=$((n + 1))
    done
    wait $pid 2> "$scratch/gone"
    is "$? $(cat "$scratch/err")" "130 " "a second signal ends it at once"
else
    skip "signals: env knows no --default-signal"
fi

# ---- orders ----------------------------------------------------------------

for seed in 1 2 3 4 5 6; do
    train "order $seed" SOFTCUDA_SEED=$seed -- --streams 3
done

# ---- other models --------------------------------------------------------

for of in "" "--shared-expert --streams 2" "--drop-and-pad" \
    "--drop-and-pad --shared-expert --top-k 1" "--experts 7 --top-k 3"; do
    # shellcheck disable=SC2086 # words
    train "moe $of" -- --model moe --compare eager,graph,step $of
done
for of in mla "mla --experts 4 --shared-expert" "moe --dense-layers 1" \
    "mla --experts 3 --dense-layers 1 --delay-wgrad 1" \
    "mamba --state 5" "hybrid --layers 4" "hybrid --pattern EM-" \
    "hybrid --pattern ME --shared-expert --drop-and-pad"; do
    # shellcheck disable=SC2086 # words
    train "$of" -- --compare eager,graph,step --streams 2 --model $of
done
train "mla" -- --model mla --compare eager,graph
is "$(value recordings)" 16 "latent attention is recorded as attention is"
train "experts, eager between graphs" \
    GRAPHHOOKS_SCOPE=attn,moe_router,moe_preprocess -- --model moe --streams 2
with_experts=$(value copies)
[ "$(value plan)" -gt 0 ] && [ "$(value replays)" -gt 0 ]
ok $? "some of its passes are replayed, some eager by plan"
train "attention, between what is eager" GRAPHHOOKS_SCOPE=attn -- --model moe
is "$with_experts" "$(value copies)" \
    "what crosses the border of captured experts is not copied"
said='passes compared, no difference'
train "experts, checked" GRAPHHOOKS_CHECK=bitwise \
    GRAPHHOOKS_SCOPE=attn,moe_router,moe_preprocess -- --model moe --streams 2
[ "$(value checks)" -gt 50 ]
ok $? "replays of a partial capture are compared with eager passes"
is "$(value check_failures)" 0 "and do not differ"
said='passes compared, no difference'
train "hybrid, checked" GRAPHHOOKS_CHECK=bitwise -- --model hybrid \
    --pattern 'EM*-' --layers 4
is "$(value check_failures)" 0 "replays of a hybrid do not differ"
train "hybrid as one chunk" GRAPHHOOKS_GRANULARITY=chunk -- --model hybrid \
    --pattern 'M*-E' --layers 8
is "$(value recordings)" 8 "eight layers are one recording a direction and slot"
train "moe" -- --model moe --compare eager
dropless=$(sed -n 's/.*"weights_hash": //p' "$scratch/out.json")
train "moe, the host reads counts" -- --model moe --compare eager,eager \
    --dropless-host --streams 2
is "$(sed -n 's/.*"weights_hash": //p' "$scratch/out.json" | head -n 1)" \
    "$dropless" "reading counts on the host changes no number"

# ---- gradients of weights, delayed ----------------------------------------
# 5+6+8+3+5 microbatches, three directions; a slot more than are in flight.

train "a microbatch later" -- --delay-wgrad 1 --compare eager,graph,step \
    --microbatches 5,6,8,3
is "$(value recordings)" 30 "one recording a layer, three directions and slot"
is "$(value replays)" 132 "delayed gradients are replayed too"
is "$(value wgrad_replays)" 44 "and the report says how many"
is "$(value eager_passes)" 30 "only their warmup is eager"
is "$(grep -c '"name": "plain"' "$scratch/out.json")" 1 \
    "a run that delays nothing is what they are compared with"
grep -q '^graph: 44 of the replays are delayed gradients' "$scratch/out"
ok $? "and the table says so"
is "$(value copies)" 110 "their passes at both ends copy what moves"
train "apart, at once" -- --delay-wgrad 0 --compare eager,graph,step
is "$(value recordings)" 24 "at once, they need no set more"
train "at the end of the step" -- --delay-wgrad 20 --compare eager,graph,step
is "$(value slots)" 8 "every microbatch has a slot until the end"
train "later, by part" GRAPHHOOKS_GRANULARITY=part -- --delay-wgrad 2 \
    --in-flight 2
for scope in attn mlp; do
    train "later, $scope alone" GRAPHHOOKS_SCOPE=$scope -- --delay-wgrad 1 \
        --streams 2
    is "$(value wgrad_replays)" 42 "$scope alone has delayed gradients"
done
train "later, on the legacy stream" -- --delay-wgrad 1 --stream legacy
train "later, as bare graphs" -- --delay-wgrad 1 --streams 3 \
    --compare eager,bare,graph
train "later, on three streams" -- --delay-wgrad 1 --streams 3 \
    --compare eager,graph,step
train "later, in a chunk" GRAPHHOOKS_GRANULARITY=chunk -- --delay-wgrad 3 \
    --streams 2
is "$(value wgrad_replays)" 21 "a chunk has one pass of delayed gradients"
said='passes compared, no difference'
train "later, checked" GRAPHHOOKS_CHECK=bitwise -- --delay-wgrad 1 --streams 2
[ "$(value checks)" -gt 75 ]
ok $? "passes of three directions are compared with eager ones"
is "$(value check_failures)" 0 "and do not differ"
train "later, switched off" GRAPHHOOKS_ENABLE=0 -- --delay-wgrad 1
is "$(value wgrad_replays)" 0 "without graphs no delayed gradient is replayed"
said='all slots were in flight'
train "later, one slot" GRAPHHOOKS_MAX_SLOTS=1 -- --delay-wgrad 1 --streams 2
for of in mla "mamba --state 5" "moe --shared-expert" \
    "moe --drop-and-pad --shared-expert --top-k 1" \
    "hybrid --pattern ME-"; do
    # shellcheck disable=SC2086 # words
    train "later, $of" -- --delay-wgrad 1 --streams 2 \
        --compare eager,graph,step --model $of
done
train "later, hybrid, in a chunk" GRAPHHOOKS_GRANULARITY=chunk -- \
    --delay-wgrad 1 --streams 2 --compare eager,graph,step --model hybrid \
    --layers 4
train "later, the host reads counts" \
    GRAPHHOOKS_SCOPE=attn,moe_router,moe_preprocess -- --model moe \
    --dropless-host --delay-wgrad 1 --streams 2
train "later, experts between graphs" \
    GRAPHHOOKS_SCOPE=attn,moe_router,moe_preprocess -- --model moe \
    --delay-wgrad 1 --microbatches 5,6,8,3
is "$(value wgrad_replays)" 44 "the router's delayed gradients are replayed"
is "$(value copies)" 66 "what a border hands to them is not copied"
train "later, attention between what is eager" GRAPHHOOKS_SCOPE=attn -- \
    --model moe --delay-wgrad 1 --microbatches 5,6,8,3
is "$(value copies)" 66 "which is what attention alone copies"
# Nothing goes backward through whole numbers, and the library says so.
train "later, by part of experts" GRAPHHOOKS_LOG=off \
    GRAPHHOOKS_GRANULARITY=part -- --model moe --delay-wgrad 1
is "$(value wgrad_replays)" 84 "a part without weights leaves nothing for later"

# ---- a bank for each shape -----------------------------------------------
# 4+6+8+3+4 microbatches take three lengths in turn, in four slots.

whole=$small
small="--layers 2 --hidden 16 --heads 2 --batch 2 --steps 5"
for model in gpt mla moe hybrid; do
    train "$model, three lengths" -- --model $model --lengths 16,8,24
    is "$(value eager_passes)" 16 "$model: only warmup is eager, at any length"
    train "$model, packed" -- --model $model --packed --seq 48
    is "$(value eager_passes)" 16 "$model: nor is what is packed"
    train "$model, both, offloaded" -- --model $model --packed \
        --lengths 16,48,32 --compare eager,graph,graph+offload \
        --offload core_attn,mlp_act,mamba_scan
    is "$(value eager_passes)" 16 "$model: nor what is offloaded besides"
done
train "lengths, packed, weights later" -- --packed --lengths 16,48 \
    --delay-wgrad 1 --streams 2 --compare eager,graph,step
said='GRAPHHOOKS_CHECK: .* no difference'
train "lengths, packed, compared" GRAPHHOOKS_CHECK=bitwise -- \
    --packed --lengths 16,48
train "more lengths than banks" GRAPHHOOKS_MAX_BANKS=2 GRAPHHOOKS_LOG=off -- \
    --lengths 8,16,24,32 --in-flight 1 --model mla
[ "$(value recordings)" -gt 48 ]
ok $? "are recorded anew"
small=$whole

# ---- it has numbers -----------------------------------------------------

# shellcheck disable=SC2086 # words
"$builddir/gh-engine" --driver "$driver" $small --quiet --steps 8 --lr 1000 \
    --warmup 1 --compare eager,graph > "$scratch/out" 2>&1
[ $? -eq 1 ] && grep -q '^bitwise equal: no, as losses are no numbers' \
    "$scratch/out"
ok $? "losses that are no numbers are not called equal"

# ---- it learns -----------------------------------------------------------

# learns MODEL OPTION...
learns()
{
    "$builddir/gh-engine" --driver "$driver" --model "$@" --compare eager \
        --seq 16 --batch 2 --microbatches 2 --quiet --steps 12 --json "$scratch/out.json" > "$scratch/out" 2>&1
    list loss | awk -F', ' '{ exit !($12 < $1 - 1.0) }'
    ok $? "twelve steps of --model $* lower the loss by more than one"
}

learns gpt
learns moe
learns mla
learns mla --experts 4 --dense-layers 1
learns mamba
learns hybrid
learns moe --drop-and-pad --shared-expert

done_testing
