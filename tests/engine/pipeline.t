#!/bin/sh
# gh-engine as a pipeline: the bits of one stage, in every mode, under every
# schedule.
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"
. "$srcdir/tests/engine/several.sh"

shape="--hidden 16 --heads 2 --batch 2 --steps 4 --quiet --lengths 8"
small="$base $shape"

# numbers: the losses and the weights of the last run, of all its modes.
numbers()
{
    sed -n '/"loss"\|"weights_hash"/p' "$scratch/out.json" | sort -u
}

# one OPTION...: what one stage learns, in one process.
one()
{
    # shellcheck disable=SC2086 # words
    "$builddir/gh-engine" --driver "$driver" $shape "$@" --compare eager \
        --json "$scratch/out.json" > "$scratch/out" 2>&1 ||
        diag "$(tail -n 3 "$scratch/out")"
    alone=$(numbers)
}

# same NAME [VARIABLE=VALUE...] -- OPTION...: stages learn it too, in all modes,
# and replay graphs.
same()
{
    name=$1
    shift
    trains "$@" && [ -n "$alone" ] && [ "$(numbers)" = "$alone" ] &&
        ! grep -q '"replays": 0' "$scratch/out.json"
    held=$?
    ok $held "$name: the losses and weights of one stage"
    [ $held -eq 0 ] || diag "status $status: $(head -n 3 "$scratch/err")"
}

# ---- one forward, one backward ---------------------------------------------

# Steps of 4, 6, 8 and 3 microbatches; five layers divide unevenly.
models="gpt moe mla mamba hybrid"
granularities="part layer chunk"
[ "$driver" = soft ] && [ -z "${sanitize-}" ] || {
    models="gpt hybrid"
    granularities=chunk
}
for model in $models "mla --experts 4 --shared-expert --dense-layers 2"; do
    # shellcheck disable=SC2086 # words
    one --model $model --layers 5
    for granularity in $granularities; do
        for pp in 2 4; do
            same "$model: $pp stages, $granularity" \
                GRAPHHOOKS_GRANULARITY=$granularity -- --model $model \
                --layers 5 --pp $pp
        done
    done
done
one --layers 5
same "a split of one's own" -- --layers 5 --pp 3 --split 1,3,1
same "more stages than microbatches" -- --layers 5 --pp 5
same "stages by name" -- --layers 5 --pp 2 --schedule 1f1b
one --layers 4 --lengths 8,4,6
same "several lengths" -- --layers 4 --lengths 8,4,6 --pp 2
one --layers 4 --tied
same "tied embeddings" -- --layers 4 --tied --pp 3
one --layers 4 --packed
same "packed" -- --layers 4 --packed --pp 2

# One capture serves all counts: what the largest step needs is recorded once,
# a forward and a backward for each slot.
train "two stages" GRAPHHOOKS_GRANULARITY=chunk -- --layers 4 --pp 2 \
    --steps 12
[ "$(list recordings_after_step | tr -d ' ' | tr , '\n' | tail -n 8 | sort -u |
    wc -l)" -eq 1 ] && [ "$(value recordings)" -eq 4 ]
ok $? "stage 0 of 2 records two slots, and nothing again"
grep -q '^graph: recorded last in step 2 of 12; later steps had 0.00 MiB more' \
    "$scratch/out" && [ "$(value recorded_last_in_step)" -eq 2 ] &&
    [ "$(value later_grown_bytes)" -eq 0 ]
ok $? "it says so, and that no stage needs more memory later"
if [ "$driver" = soft ]; then
    train "sets that a later step is the first to need" GRAPHHOOKS_MAX_SLOTS=1 \
        GRAPHHOOKS_LOG=off -- --layers 4 --pp 4 --microbatches 1,1,1,8 --steps 8
    [ "$(value recorded_last_in_step)" -eq 2 ] &&
        [ "$(value later_grown_bytes)" -gt 0 ]
    ok $? "memory that grows after the last recording is told"
fi

# A timeline has the passes of one step of each stage.
if command -v python3 > /dev/null; then
    "$builddir/gh-engine" $small --layers 4 --pp 2 --microbatches 4 --steps 6 \
        --trace "$scratch/t.json" > "$scratch/out" 2>&1 &&
        PYTHONDONTWRITEBYTECODE=1 python3 "$srcdir/bench/timeline.py" \
            "$scratch/step.json" "$scratch/t.json" "$scratch/t.rank1.json" &&
        python3 - "$scratch/step.json" << 'EOF'
import collections, json, sys
with open(sys.argv[1]) as file:
    events = json.load(file)
passes = [e for e in events if e.get("cat") == "replay"]
found = collections.Counter(
    (e["pid"], e["args"]["microbatch"], e["args"]["direction"])
    for e in passes)
sys.exit(found != {(rank, microbatch, way): 2 for rank in range(2)
                   for microbatch in range(4)
                   for way in ("forward", "backward")}
         or min(e["ts"] for e in passes) < 0)
EOF
    ok $? "--trace has a file for each stage, and timeline.py a step of both"
    PYTHONDONTWRITEBYTECODE=1 python3 "$srcdir/bench/timeline.py" \
        "$scratch/step.json" "$scratch/t.json" --step 6 2> "$scratch/err"
    [ $? -eq 2 ] && grep -q 'has [1-6] steps with graphs, and no step 6' \
        "$scratch/err"
    ok $? "a step that is not there is named"
else
    for _ in 1 2; do skip "no python3 to read JSON with"; done
fi

# issued MODE OPTION...: the kernels that a stage issues itself, in steps of
# replays: after two steps of both stages, of the last of all modes.
issued()
{
    compared=$1
    modes=$(echo "$1" | tr ',' '\n' | wc -l)
    shift
    # shellcheck disable=SC2086 # words
    SOFTCUDA_TRACE=1 GRAPHHOOKS_GRANULARITY=chunk timeout 60 \
        "$builddir/gh-engine" $small --steps 4 --compare "$compared" "$@" 2>&1 \
        > "$scratch/out" |
        awk -v first=$((8 * modes - 4)) '/ adamw on/ { seen++ }
            seen >= first && /^softcuda: run/ && !/ in graph / {
                if ($4 !~ /^(copy|memset|event|send|receive|all)/) print $4
            }' | sort -u | tr '\n' ' '
}
[ "$driver" = soft ] && for how in "" "--vpp 2" "--model moe --drop-and-pad" \
    "--tied --model mla"; do
    # shellcheck disable=SC2086 # words
    said=$(issued graph --pp 2 --layers 4 --microbatches 4 $how)
    [ "$said" = "adamw optimizer_begin " ]
    held=$?
    ok $held "$how: the embedding and the head are in graphs; no input is copied"
    [ $held -eq 0 ] || diag "$said"
done

# records STEPS: the events that two stages record.
records()
{
    # shellcheck disable=SC2086 # words
    SOFTCUDA_TRACE=1 GRAPHHOOKS_GRANULARITY=chunk timeout 60 \
        "$builddir/gh-engine" $small --steps "$1" --compare graph --pp 2 \
        --layers 4 --microbatches 4 2>&1 > "$scratch/out" |
        grep -c ' event record on '
}
# For each microbatch: behind two forwards, two messages that came and two
# copies of tokens, behind the gradient, and when it is sent.
[ "$driver" = soft ] &&
    is $(($(records 4) - $(records 3))) 32 "no event is recorded twice, or for nobody"

# Of dropless experts the last segment is eager, and has the head; the first one
# has the embedding.
[ "$driver" = soft ] && {
    said=$(issued graph --layers 2 --model moe --ranks 2 --ep 2 --microbatches 4)
    [ -n "$said" ] && [ "${said##*embed*}" = "$said" ] &&
        [ "${said##*cross_entropy*}" = "" ]
    held=$?
    ok $held "the embedding is in a chunk's first graph, and the head in none"
    [ $held -eq 0 ] || diag "$said"
}

# The engine's own graphs of passes, which are captured in the steps that first
# have as many microbatches.
[ "$driver" = soft ] && for how in "" "--vpp 2" "--schedule zero-bubble"; do
    # shellcheck disable=SC2086 # words
    said=$(issued plain,bare --pp 2 --layers 4 --microbatches 4 $how)
    [ "$said" = "adamw optimizer_begin " ]
    held=$?
    ok $held "bare $how: all passes are graphs"
    [ $held -eq 0 ] || diag "$said"
done
floor=eager,bare,graph
one --layers 5
same "bare: 1f1b" GRAPHHOOKS_GRANULARITY=chunk -- --layers 5 --pp 2 \
    --compare $floor
same "bare: zero bubble" GRAPHHOOKS_GRANULARITY=chunk -- --layers 5 --pp 2 \
    --schedule zero-bubble --compare $floor
one --layers 5 --microbatches 4,6,8,2
# Microbatches have other sets in some counts.
same "bare: interleaved" GRAPHHOOKS_GRANULARITY=chunk -- --layers 5 --pp 2 \
    --vpp 2 --group 4 --microbatches 4,6,8,2 --compare $floor
one --layers 5 --microbatches 8,12,9 --model hybrid --lengths 8,4
same "bare: dualpipev, several lengths" GRAPHHOOKS_GRANULARITY=chunk -- \
    --layers 5 --pp 2 --schedule dualpipev --microbatches 8,12,9 \
    --model hybrid --lengths 8,4 --compare $floor

# ---- other schedules -------------------------------------------------------

one --layers 9 --microbatches 4,6,8,3
same "zero bubble, 2 stages" -- --layers 9 --pp 2 --schedule zero-bubble
same "zero bubble, 4 stages" GRAPHHOOKS_GRANULARITY=chunk -- --layers 9 \
    --pp 4 --schedule zero-bubble
one --layers 9 --microbatches 4,6,8,2
same "interleaved, 2 stages of 2 chunks" -- --layers 9 --pp 2 --vpp 2 \
    --microbatches 4,6,8,2
same "interleaved, 2 stages of 4 chunks" GRAPHHOOKS_GRANULARITY=chunk -- \
    --layers 9 --pp 2 --vpp 4 --microbatches 4,6,8,2 --schedule interleaved
same "interleaved, in larger groups" -- --layers 9 --pp 2 --vpp 2 --group 4 \
    --microbatches 4,6,8,2
train "slots of two chunks" -- --layers 4 --pp 2 --vpp 2 \
    --microbatches 4,6,8,2 --compare graph
[ "$(list chunk_slots)" = "4, 2" ] &&
    [ "$(list chunk_slots_used)" = "4, 2" ] &&
    [ "$(value recordings)" -eq 12 ]
ok $? "a run uses as many slots as are said, and records each once"
one --layers 9 --microbatches 8,12,16,4
same "interleaved, 4 stages of 2 chunks" -- --layers 9 --pp 4 --vpp 2
one --layers 9 --microbatches 8,12,9
same "dualpipev, 4 stages" GRAPHHOOKS_GRANULARITY=chunk -- --layers 9 --pp 4 \
    --schedule dualpipev --microbatches 8,12,9
[ "$(list chunk_slots)" = "$(list chunk_slots_used)" ] &&
    [ "$(list chunk_slots)" = "8, 1" ] && [ "$(value recordings)" -eq 27 ]
ok $? "both ends of the model are on stage 0, which records 8 and 1 slots"
same "dualpipev, 2 stages" -- --layers 9 --pp 2 --microbatches 8,12,9 \
    --schedule dualpipev
one --layers 9 --microbatches 8,12,9 --tied
same "dualpipev, tied" -- --layers 9 --pp 4 --schedule dualpipev --tied \
    --microbatches 8,12,9
for model in moe mla mamba hybrid; do
    one --model $model --layers 5 --microbatches 4,6,8,2
    same "$model: interleaved" GRAPHHOOKS_GRANULARITY=chunk -- --model $model \
        --layers 5 --pp 2 --vpp 2 --microbatches 4,6,8,2
    same "$model: zero bubble" -- --model $model --layers 5 --pp 2 \
        --microbatches 4,6,8,2 --schedule zero-bubble
    one --model $model --layers 5 --microbatches 4,6
    same "$model: dualpipev" GRAPHHOOKS_GRANULARITY=chunk -- --model $model \
        --layers 5 --pp 2 --microbatches 4,6 --schedule dualpipev
done

# What the clock says comes first: (stages - 1) / (microbatches + stages - 1) for
# one forward, one backward.
train "a prediction" -- --layers 2 --pp 2 --microbatches 4
grep -q '^pipeline, 1f1b: 2 stages of 1 chunk: in a step of 4 microbatches they should be idle for 20.0 %' \
    "$scratch/out" && grep -q '"idle_predicted": 0.2,' "$scratch/out.json"
ok $? "how long stages should be idle is said before they run"
train "and of the other schedule" -- --layers 2 --pp 2 --microbatches 4 \
    --schedule zero-bubble
grep -q 'should be idle for 1*[0-9].[0-9] %' "$scratch/out" &&
    ! grep -q 'idle for 20.0' "$scratch/out"
ok $? "zero bubble is idle for less"

# How long they were, by events: messages take time, which the clock's do not.
# idle KEY MODE: the median of its shares, in a hundredth of a percent.
idle()
{
    awk -v mode="\"name\": \"$2\"," -v key="\"$1\": {" '
        index($0, mode) { inside = 1 }
        inside && index($0, key) { found = 1 }
        found && /"median"/ {
            sub(/.*: /, "")
            printf "%d\n", 10000 * $0
            exit
        }' "$scratch/out.json"
}
for schedule in 1f1b zero-bubble; do
    train "timed passes, $schedule" GRAPHHOOKS_GRANULARITY=chunk -- --layers 4 \
        --pp 2 --steps 12 --time-passes 2 --schedule $schedule \
        --compare eager,bare,graph
    bad=
    for mode in eager bare graph; do
        measured=$(idle idle $mode)
        [ "$measured" -lt 10000 ] &&
            { [ "$driver" != soft ] ||
                [ "$measured" -ge "$(idle idle_by_passes $mode)" ]; } &&
            grep -q "^$mode: stages were idle for .* % of a step of 8 micro.*; by the clock for .* %, and for .* % with passes as long as these (forward .* ms" \
                "$scratch/out" || bad="$bad $mode"
    done
    empty "$bad" "$schedule: how long stages are idle, beside the clock's"
    echo "$measured" > "$scratch/idle-$schedule"
done
[ "$driver" = soft ] && {
    grep -A 4 '"idle": {' "$scratch/out.json" | grep '"all"' |
        awk -F, '{ bad += NF != 2 } END { exit bad > 0 || NR != 4 }'
    ok $? "only the last steps of most microbatches are timed, in each mode"
    [ "$(cat "$scratch/idle-zero-bubble")" -lt "$(cat "$scratch/idle-1f1b")" ]
    ok $? "zero bubble was idle for less"
}

# In the shape of a V, the last part is on the first stage.
cat > "$scratch/v" << END
stages 2
chunks 2
microbatches 2
placement v
0 forward 0 0
0 forward 0 1
0 forward 1 0
0 inputs 1 0
0 forward 1 1
0 inputs 1 1
0 weights 1 0
0 inputs 0 0
0 weights 1 1
0 inputs 0 1
0 weights 0 0
0 weights 0 1
1 forward 0 0
1 forward 1 0
1 forward 0 1
1 forward 1 1
1 inputs 1 0
1 inputs 0 0
1 inputs 1 1
1 weights 1 0
1 inputs 0 1
1 weights 0 0
1 weights 1 1
1 weights 0 1
END
# Stages whose forwards have different orders.
cat > "$scratch/mixed" << END
stages 3
chunks 1
microbatches 3
placement looped
0 forward 0 0 # the stage behind begins with the last of these
0 forward 0 1
0 forward 0 2
0 backward 0 0
0 backward 0 1
0 backward 0 2
1 forward 0 2
1 forward 0 0
1 forward 0 1
1 inputs 0 1
1 inputs 0 0
1 weights 0 0
1 weights 0 1
1 backward 0 2
2 forward 0 1
2 forward 0 0
2 forward 0 2
2 inputs 0 1
2 backward 0 0
2 weights 0 1
2 backward 0 2
END
one --layers 5 --microbatches 2
same "a file, in the shape of a V" -- --layers 5 --schedule "$scratch/v"
one --layers 5 --microbatches 2 --tied
same "and with tied embeddings, both on the first stage" -- --layers 5 --tied \
    --schedule "$scratch/v"
one --layers 5 --microbatches 3
same "a file, in an order of each stage" -- --layers 5 \
    --schedule "$scratch/mixed" --pp 3

# What comes before the forward that is next has no place of a slot.
cat > "$scratch/later" << END
stages 2
chunks 1
microbatches 3
placement looped
0 forward 0 0
0 backward 0 0
0 forward 0 1
0 forward 0 2
0 backward 0 1
0 backward 0 2
1 forward 0 0
1 backward 0 0
1 forward 0 2
1 forward 0 1
1 backward 0 1
1 backward 0 2
END
one --layers 4 --microbatches 3
same "a file, with a forward before one that was sent first" -- --layers 4 \
    --schedule "$scratch/later"

# A session has 64 slots.
{
    printf 'stages 2\nchunks 1\nmicrobatches 66\nplacement looped\n'
    for stage in 0 1; do
        seq -f "$stage forward 0 %.0f" 0 65
        seq -f "$stage backward 0 %.0f" 0 65
    done
} > "$scratch/many"
one --layers 2 --microbatches 66
trains GRAPHHOOKS_LOG=warn -- --layers 2 --schedule "$scratch/many"
[ "$status" -eq 0 ] && [ -n "$alone" ] && [ "$(numbers)" = "$alone" ] &&
    [ "$(grep -c 'microbatch 64 .*ran eagerly: all slots' \
        "$scratch/err")" -eq "$(wc -l < "$scratch/err")" ] &&
    [ "$(value busy)" -gt 0 ]
held=$?
ok $held "microbatches beyond the slots that there are run eagerly, and it is said"
[ $held -eq 0 ] || diag "status $status: $(head -n 3 "$scratch/err")"

# A scope that some stages have nothing of: these are eager.
if [ "$driver" = soft ]; then
    one --layers 4 --model hybrid
    for scope in mlp mamba moe_router; do
        trains GRAPHHOOKS_SCOPE=$scope GRAPHHOOKS_LOG=off -- --layers 4 \
            --model hybrid --pp 4 && [ -n "$alone" ] &&
            [ "$(numbers)" = "$alone" ]
        held=$?
        ok $held "scope $scope, which most stages have nothing of"
        [ $held -eq 0 ] || diag "status $status: $(head -n 3 "$scratch/err")"
    done
fi

# ---- all together ----------------------------------------------------------

# several OPTION...: what ranks of one stage learn.
several()
{
    # shellcheck disable=SC2086 # words
    "$builddir/gh-engine" $base ${shape% --lengths 8} "$@" --compare eager \
        --json "$scratch/out.json" > "$scratch/out" 2>&1 ||
        diag "$(tail -n 3 "$scratch/out")"
    alone=$(numbers)
}
shared="--batch 1 --seq 12 --layers 4 --packed --cp 1,2"
small="$base ${shape% --lengths 8}"
all=eager,graph,graph+offload,graph+offload+delay
# shellcheck disable=SC2086 # words
{
    several --ranks 2 --seq 8 --layers 4
    same "two ranks of each stage" -- --ranks 4 --seq 8 --layers 4 --pp 2
    several --ranks 2 --seq 8 --layers 4 --tied
    same "two ranks of each stage, tied" -- --ranks 4 --seq 8 --layers 4 \
        --pp 2 --tied
    several --ranks 2 --seq 8 --layers 4 --model moe --ep 2
    same "divided experts" -- --ranks 4 --seq 8 --layers 4 --model moe --ep 2 \
        --pp 2
    several --ranks 2 $shared
    same "shared sequences, with offload" -- --ranks 4 $shared --pp 2 \
        --compare $all --offload core_attn
    several --ranks 2 $shared --microbatches 2,6,8,4
    same "more microbatches in later steps" GRAPHHOOKS_GRANULARITY=chunk -- \
        --ranks 4 $shared --pp 2 --vpp 2 --microbatches 2,6,8,4
    several --ranks 2 $shared --model moe --ep 2 --microbatches 4,6,2
    same "all, interleaved" -- --ranks 4 $shared --model moe --ep 2 --pp 2 \
        --vpp 2 --microbatches 4,6,2 --compare $all --offload core_attn
    same "all, zero bubble" -- --ranks 4 $shared --model moe --ep 2 --pp 2 \
        --schedule zero-bubble --microbatches 4,6,2
    several --ranks 2 $shared --model moe --ep 2 --microbatches 4,6,2
    same "all, with exchanges in graphs" GRAPHHOOKS_GRANULARITY=chunk -- \
        --ranks 4 $shared --model moe --ep 2 --pp 2 --vpp 2 --sync-free \
        --microbatches 4,6,2 --compare $all --offload core_attn --stash 300%
    several --ranks 2 --seq 8 --layers 4 --model moe --ep 2 --drop-and-pad
    same "experts in graphs" GRAPHHOOKS_GRANULARITY=chunk -- --ranks 4 --seq 8 \
        --layers 4 --model moe --ep 2 --drop-and-pad --pp 2
}
small="$base $shape"

[ "$driver" = soft ] || { done_testing; exit; }

# ---- options ---------------------------------------------------------------

refuses "--vpp is for the stages of a pipeline.*add --pp 2" --vpp 2
refuses "--schedule is for the stages" --schedule 1f1b
refuses "--time-passes is for the stages" --time-passes 1
refuses "--schedule nowhere: it cannot be read" --pp 2 --schedule nowhere
refuses "--layers 3: 4 parts of a pipeline need a layer each" --layers 3 --pp 4
refuses "--split has 2 numbers that add up to 5; there are 2 parts" --pp 2 \
    --split 3,2
refuses "--group 4 is for the interleaved schedule" --pp 2 --group 4 \
    --schedule zero-bubble
refuses "--group 4 is for the interleaved schedule" --layers 5 --group 4 \
    --schedule "$scratch/v"
refuses "--schedule zero-bubble has one chunk a stage, and --vpp 2" --pp 2 \
    --vpp 2 --schedule zero-bubble
refuses "--schedule interleaved needs several chunks" --pp 2 \
    --schedule interleaved
refuses "--schedule dualpipev has two chunks a stage, and --vpp 3" --pp 2 \
    --vpp 3 --schedule dualpipev
refuses "--schedule is for the stages of a pipeline" --schedule dualpipev
refuses "--group 4 is for the interleaved schedule" --pp 2 --group 4 \
    --schedule dualpipev
refuses "--microbatches 3: a dualpipev schedule of 2 stages and 3" --pp 2 \
    --schedule dualpipev --microbatches 4,3
refuses "--microbatches 3: an interleaved schedule of 2 stages and 3 micro" \
    --pp 2 --vpp 2 --microbatches 4,3
refuses "--microbatches 4: --schedule .*v has 2; leave the option out" \
    --microbatches 4 --schedule "$scratch/v"
refuses "--pp 4: --schedule .*v has 2" --pp 4 --schedule "$scratch/v"
refuses "--pp 2 does not divide 3 ranks" --pp 2 --ranks 3
refuses "--ep 2 does not divide 1 ranks of a stage" --pp 2 --ranks 2 --ep 2 \
    --model moe
refuses "--pp 2 and step in --compare" --pp 2 --compare eager,step
refuses "--dropless-host waits for the device in every layer, which no graph of mode bare" \
    --pp 2 --model moe --dropless-host --compare eager,bare
refuses "--pp 2 and --streams" --pp 2 --streams 2
refuses "--schedule zero-bubble reads again what the backward has let go" \
    --pp 2 --schedule zero-bubble --compare eager,graph+offload
refuses "--pp 2 and --in-flight" --pp 2 --in-flight 2
for line in "stages 65" "chunks 17" "microbatches 1025"; do
    sed "s/^${line% *} .*/$line/" "$scratch/mixed" > "$scratch/big"
    refuses "--schedule .*big: .*give 64, 16 and 1024 at most" \
        --schedule "$scratch/big"
done
sed 's/^1 forward 0 0$/1 backward 0 0/' "$scratch/mixed" > "$scratch/bad"
refuses "--schedule .*bad: line 12: " --schedule "$scratch/bad" --layers 3

# ---- orders ----------------------------------------------------------------

seeds=${GRAPHHOOKS_TEST_SEEDS:-12}
[ -z "${sanitize-}" ] || seeds=2
for model in gpt moe mla mamba hybrid; do
    one --model $model --layers 4 --microbatches 4,6,4
    echo "$alone" > "$scratch/$model"
done
bad=
seed=1
while [ $seed -le "$seeds" ]; do
    model=$(echo gpt moe mla mamba hybrid |
        cut -d ' ' -f $(((seed + seed / 5) % 5 + 1)))
    granularity=$(echo part layer chunk | cut -d ' ' -f $((seed % 3 + 1)))
    case $((seed % 5)) in
    0) how="--pp 2" ;;
    1) how="--pp 4" ;;
    2) how="--pp 2 --vpp 2" ;;
    3) how="--pp 2 --schedule zero-bubble" ;;
    4) how="--pp 2 --schedule dualpipev" ;;
    esac
    # shellcheck disable=SC2086 # words
    trains SOFTCUDA_SEED=$seed GRAPHHOOKS_GRANULARITY="$granularity" -- \
        --model "$model" --layers 4 --microbatches 4,6,4 $how &&
        [ "$(numbers)" = "$(cat "$scratch/$model")" ] ||
        bad="$bad $seed"
    seed=$((seed + 1))
done
empty "$bad" "$seeds seeds of the software device: the bits of one stage"

# ---- faults ----------------------------------------------------------------

# Where a stage cannot record a pass, it runs eagerly there; the others replay.
one --layers 4
bad=
for entry in cuStreamBeginCapture cuStreamEndCapture \
    cuGraphInstantiateWithFlags; do
    for n in 1 2 5 8; do
        SOFTCUDA_FAIL=$entry:$n timeout 60 "$builddir/gh-engine" $small \
            --layers 4 --pp 2 --json "$scratch/out.json" > "$scratch/out" \
            2> "$scratch/err"
        [ $? -eq 0 ] && [ "$(numbers)" = "$alone" ] &&
            [ "$(grep -c 'runs eagerly from now on' "$scratch/err")" -eq 1 ] ||
            bad="$bad $entry:$n"
    done
done
empty "$bad" "a capture that fails on a stage: the bits of one stage"
trains GRAPHHOOKS_MAX_SLOTS=1 GRAPHHOOKS_LOG=off -- --layers 4 --pp 4
[ $? -eq 0 ] && [ "$(numbers)" = "$alone" ] && [ "$(value busy)" -gt 0 ]
ok $? "microbatches for which there is no slot run eagerly"
is "$(value landing_bytes)" "$(list landing_slot_bytes)" \
    "and nothing is received in places of theirs"

# Where the engine's own capture fails, nothing else runs the pass.
bad=
for entry in cuStreamBeginCapture:3 cuStreamEndCapture:4 cuGraphUpload:2 \
    cuGraphInstantiateWithFlags:5 cuGraphLaunch:7; do
    # shellcheck disable=SC2086 # words
    SOFTCUDA_UNWRITTEN=0 SOFTCUDA_FAIL=$entry timeout 20 \
        "$builddir/gh-engine" $small --layers 4 --pp 2 --limit 3 \
        --compare bare > "$scratch/out" 2> "$scratch/err"
    [ $? -eq 3 ] && grep -q "bare mode: ${entry%:*} failed" "$scratch/err" ||
        bad="$bad $entry($(grep '^gh-engine: rank' "$scratch/err"))"
done
empty "$bad" "where a capture of mode bare fails, it is named, and all end"

# A stage that fails says where it was.  Another one may have been between two
# steps; tests/engine/stages.c sees that it says for what it waits.
bad=
for entry in cuLaunchKernel:20 cuLaunchKernel:60 cuLaunchKernel:100 \
    cuStreamWaitEvent:9 cuEventRecord:20; do
    # shellcheck disable=SC2086 # words
    SOFTCUDA_UNWRITTEN=0 SOFTCUDA_FAIL=$entry timeout 20 \
        "$builddir/gh-engine" $small --layers 4 --pp 2 --limit 3 \
        > "$scratch/out" 2> "$scratch/err"
    [ $? -eq 3 ] && [ "$(grep -c '^gh-engine: rank' "$scratch/err")" -eq 2 ] &&
        grep -q '^gh-engine: rank .*failed with 999.*; stage [01] was at its' \
            "$scratch/err" ||
        bad="$bad $entry($(grep '^gh-engine: rank' "$scratch/err"))"
done
empty "$bad" "where a stage fails, it says in which pass, and all end"

# drops N OPTION...: a step has N waits between streams.
drops()
{
    waits=$1
    compared=$2
    shift 2
    bad=
    for n in $(seq "$waits"); do
        # shellcheck disable=SC2086 # words
        SOFTCUDA_DROP_WAIT=$n timeout 60 "$builddir/gh-engine" $small \
            --steps 1 --compare "$compared" "$@" 2>&1 > "$scratch/out" |
            grep -q '^softcuda: race' || bad="$bad $n"
    done
    empty "$bad" "$compared, $*: each of $waits waits, dropped, is reported as a race"
}
# Two for each message; and a stage waits until a gradient is sent whose place
# it needs again, if nothing that it has received says so.
drops 14 eager --layers 2 --pp 2 --microbatches 3
if [ -z "${sanitize-}" ]; then
    drops 27 eager --layers 3 --pp 3 --microbatches 3
    drops 25 eager --layers 4 --pp 2 --vpp 2 --microbatches 2
    drops 14 bare --layers 2 --pp 2 --microbatches 3
    # Besides, a place of a slot is written again once its forward has read it,
    # and tokens are copied beside the passes.
    GRAPHHOOKS_GRANULARITY=chunk
    export GRAPHHOOKS_GRANULARITY
    drops 81 graph --layers 2 --pp 2 --microbatches 3 --steps 3
    unset GRAPHHOOKS_GRANULARITY
fi

done_testing
