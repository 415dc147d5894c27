#!/bin/sh
# Training with activations offloaded gives eager's numbers, in every shape of
# graphs.
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"
scratch

driver=${GRAPHHOOKS_TEST_DRIVER:-soft}
small="--hidden 16 --heads 2 --seq 8 --batch 1 --steps 4 --microbatches 3,4,2"

# train OPTION...: 0 when every mode has the same losses and weights, with what
# $scope, $granularity and $fraction say.  Leaves the log in $scratch/log.
scope='' fraction=1
train()
{
    # shellcheck disable=SC2086 # words
    if GRAPHHOOKS_LOG=info GRAPHHOOKS_SCOPE=$scope \
        GRAPHHOOKS_GRANULARITY=$granularity \
        GRAPHHOOKS_OFFLOAD_FRACTION=$fraction \
        "$builddir/gh-engine" --driver "$driver" --quiet \
        $small --compare eager,graph+offload,graph+offload+delay "$@" \
        > "$scratch/out" 2> "$scratch/log"; then
        return 0
    fi
    diag "scope '$scope', $granularity, fraction $fraction: gh-engine $*"
    tail -n 3 "$scratch/log" | diag
    return 1
}

# The groups that the log says go.
going()
{
    awk '/ groups go;/ { for (i = 2; i < NF; i++)
                             if ($i == "groups") n += $(i - 3) }
         END { print n + 0 }' "$scratch/log"
}

# With sanitizers, which take four times as long, an eighth of them.
alone="part layer chunk"
[ -z "${sanitize-}" ] || alone=layer

# shapes_of SCOPE: GRANULARITY:FRACTION, all of them where whole layers are
# captured, and of parts each word once.
shapes_of()
{
    if [ -n "${sanitize-}" ]; then
        echo part:auto chunk:auto
    elif [ -n "$1" ]; then
        echo part:1 layer:0.5 chunk:auto layer:0
    else
        for granularity in part layer chunk; do
            for fraction in 0 0.5 1 auto; do
                echo $granularity:$fraction
            done
        done
    fi
}

# shapes MODEL SCOPE OPTION...: in granularities, with none, half and all of the
# groups, and with those that hide.
shapes()
{
    name="$1${2:+, scope $2}"
    model=$1 scope=$2
    shift 2
    bad=0
    for shape in $(shapes_of "$scope"); do
        granularity=${shape%:*} fraction=${shape#*:}
        train --model "$model" "$@" || bad=$((bad + 1))
        if [ $fraction = auto ] &&
            ! grep -q 'offload: foreseen: ' "$scratch/log"; then
            bad=$((bad + 1))
            diag "nothing is foreseen: $granularity"
        fi
        n=$(going)
        if [ $fraction = 0 ] && [ "$n" -ne 0 ]; then
            bad=$((bad + 1))
            diag "$n groups go of none"
        elif [ $fraction = 1 ] && [ "$n" -eq 0 ]; then
            bad=$((bad + 1))
            diag "no group goes: $granularity"
        fi
    done
    [ $bad -eq 0 ]
    ok $? "$name: the same losses and weights in every shape, with groups that go"
}

# modules MODEL LAYERS MODULE...: each alone, with the options in $with.
with=
modules()
{
    model=$1 layers=$2
    shift 2
    bad=0 idle=0
    for module; do
        most=0
        for granularity in $alone; do
            # shellcheck disable=SC2086 # words
            train --model "$model" --layers $layers --offload "$module" $with \
                --streams 2 || bad=$((bad + 1))
            n=$(going)
            [ "$n" -le $most ] || most=$n
        done
        if [ $most -eq 0 ]; then
            idle=$((idle + 1))
            diag "$module goes nowhere"
        fi
    done
    [ $bad -eq 0 ]
    ok $? "$model: the same losses and weights with each module alone"
    [ $idle -eq 0 ]
    ok $? "$model: each of them goes"
}

for scope in '' attn mlp; do
    shapes gpt "$scope" --layers 4
    shapes mla "$scope" --layers 4 --streams 2
done
for scope in '' attn moe moe_router,moe_preprocess,attn; do
    shapes moe "$scope" --layers 4
done
for scope in '' mamba; do
    shapes mamba "$scope" --layers 4 --state 5
done
for scope in '' mamba attn mlp; do
    shapes hybrid "$scope" --layers 16 --pattern 'M*-E' --streams 2
done

scope='' fraction=1
modules gpt 5 qkv_linear core_attn attn_proj mlp_fc1 mlp_act
modules mla 5 qkv_linear core_attn attn_proj mlp_fc1 mlp_act
modules moe 5 qkv_linear core_attn attn_proj
# Experts that are captured as a whole keep theirs.
scope=attn,moe_router,moe_preprocess
modules moe 5 expert_fc1 moe_act
# What goes here, and comes back to another place, is what the first part of a
# pass reads.
scope=moe_router with="--dense-layers 3"
modules moe 4 mlp_norm
scope='' with=
modules mamba 5 mamba_in mamba_conv mamba_scan mamba_out
modules hybrid 16 core_attn mlp_act mamba_in mamba_scan

# said OPTION...: the lines of a run that say what was offloaded.
said()
{
    # shellcheck disable=SC2086 # words
    "$builddir/gh-engine" --driver "$driver" --quiet $small --layers 4 \
        --model gpt "$@" 2> "$scratch/log" | tee "$scratch/whole" |
        grep -E '^(graph\+offload|most device)' > "$scratch/out"
}

GRAPHHOOKS_OFFLOAD_DELAY=1 said --compare eager,graph+offload
! grep -q 'commits waited' "$scratch/out"
ok $? "graph+offload does not delay, whatever the environment says"
said --compare graph+offload,graph+offload+delay
[ "$(grep -c 'commits waited' "$scratch/out")" -eq 1 ]
ok $? "without it the mode says"
said --compare eager,graph,graph+offload
grep -Eq '^most device memory: eager [0-9.]+ MiB, graph [0-9.]+ MiB, graph\+offload [0-9.]+ MiB$' \
    "$scratch/out"
ok $? "the memory of each mode is said"
said --compare eager,graph
! grep -q 'most device memory' "$scratch/out"
ok $? "where none offloads it is not"
GRAPHHOOKS_OFFLOAD=core_attn said --compare eager,graph+offload \
    --offload mlp_act
grep -q 'GRAPHHOOKS_OFFLOAD=core_attn wins over --offload' "$scratch/log"
ok $? "a variable that wins over an option is named"
if have python3; then
    said --hidden 128 --seq 64 --batch 4 --layers 8 --microbatches 4 \
        --compare eager,graph,graph+offload --json "$scratch/o.json"
    python3 - "$scratch/o.json" << 'END'
import json, sys
graph, offload = json.load(open(sys.argv[1]))["modes"][1:]
saved = graph["device_peak_bytes"] - offload["device_peak_bytes"]
sys.exit(saved < 0.2 * graph["device_peak_bytes"])
END
    ok $? "with offload it is less"
else
    skip "no python3 to read JSON with"
fi

# The first runs of the walk through all of that, in two goes.
if [ "$driver" = soft ]; then
    walk="sh $srcdir/build-aux/offload-walk.sh $builddir"
    STATE=$scratch/walk $walk 20 > "$scratch/out" 2>&1 &&
        STATE=$scratch/walk $walk 60 >> "$scratch/out" 2>&1
    ok $? "60 runs of the walk through the shapes pass"
    grep -q '^goes on after run 20 of 60' "$scratch/out"
    ok $? "which goes on where it was ended"
    tail -n 1 "$scratch/out" | grep -Eq '^[0-9]+ passed, 0 failed, [0-9]+ skipped'
    ok $? "and says what came of it"
    SOFTCUDA_DROP_WAIT=60 STATE=$scratch/dropped $walk 3 > "$scratch/out" 2>&1
    [ $? -ne 0 ] && grep -q 'softcuda: race' "$scratch/out"
    ok $? "a race fails it"
else
    skip "the walk is for the software device"
fi

# Memory that stays is sized by what was seen before the first recording.
lengths="--layers 2 --lengths 2,6,2 --microbatches 1,7 --compare eager,graph+offload"
for warmup in 1 2; do
    # shellcheck disable=SC2086 # words
    GRAPHHOOKS_WARMUP_STEPS=$warmup "$builddir/gh-engine" --driver "$driver" \
        --quiet --hidden 16 --heads 2 --batch 2 --steps 6 $lengths \
        > "$scratch/log" 2>&1
    said=$(grep -c 'use the largest bank in a warmup step' "$scratch/log")
    grep -q '^bitwise equal: yes' "$scratch/log" &&
        [ $((said > 0)) -eq $((warmup < 2)) ]
    ok $? "the longest length in a warmup step or behind it ($warmup): \
$said sentences say so, and the numbers are eager's"
done

# What a graph hands to the next pass is where that graph has it, also after a
# longer sequence ran eagerly with its own elsewhere.
lengths="--layers 1 --lengths 16,40 --microbatches 1,3"
# shellcheck disable=SC2086 # words
GRAPHHOOKS_LOG=info GRAPHHOOKS_GRANULARITY=part "$builddir/gh-engine" --driver "$driver" --quiet \
    --hidden 16 --heads 2 --batch 1 --steps 4 --in-flight 1 $lengths \
    --compare eager,graph+offload > "$scratch/log" 2>&1
grep -q '^bitwise equal: yes' "$scratch/log" &&
    grep -q 'bank 2 .* runs eagerly .* warmup step' "$scratch/log" &&
    ! grep -q 'bank 1 .* runs eagerly' "$scratch/log"
ok $? "a shorter length is replayed after a longer one has run eagerly"

done_testing
