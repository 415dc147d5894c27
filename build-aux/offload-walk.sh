#!/bin/sh
# offload-walk.sh - trains with activations offloaded in every shape, in many
# orders.
#
#     build-aux/offload-walk.sh BUILD [RUNS]
#
# BUILD is a build directory.  A shape is a model, a set of its modules, a
# scope, a granularity and a fraction: each module alone, all but one, and
# all, with each scope, granularity and fraction.  A run trains one shape in
# one order of the software device, of 500.  Shapes and orders are dealt in
# turn, so that after 500 runs every order was there, and after as many runs
# as there are shapes (the default) every shape; more RUNS go round again
# with other orders.
#
# Every run has to give eager's losses and weights in graph, graph+offload
# and graph+offload+delay, without a race or a read of unwritten memory.  A
# shape that the library refuses by a rule is skipped.  What fails is said,
# with the command that repeats it.  The last line is
#
#     N passed, N failed, N skipped
#
# FRACTIONS, which is "0 0.5 1 auto", may name fewer of them: with "auto" the
# walk is of the shapes of that fraction alone, and needs a STATE of its own.
#
# It can be ended at any time and goes on where it was: what was run is in
# STATE (BUILD/offload-walk.state).  Remove that after a change to the library.
# It exits 0 when nothing has failed.
#
# SPDX-License-Identifier: Apache-2.0
set -eu

build=$(cd "${1:?usage: build-aux/offload-walk.sh BUILD [RUNS]}" && pwd)
runs=${2:-}
fractions=${FRACTIONS:-0 0.5 1 auto}
state=${STATE:-$build/offload-walk.state}
GRAPHHOOKS_SOFTCUDA=$build/.libs/libgraphhooks-softcuda.so
export GRAPHHOOKS_SOFTCUDA
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM

# The modules of a model, as its layers have them.
modules_of()
{
    case $1 in
    gpt | mla) echo qkv_linear core_attn attn_proj mlp_fc1 mlp_act ;;
    moe) echo qkv_linear core_attn attn_proj mlp_norm expert_fc1 moe_act ;;
    mamba) echo mamba_in mamba_conv mamba_scan mamba_out ;;
    hybrid) echo qkv_linear core_attn attn_proj mlp_fc1 mlp_act mlp_norm \
        expert_fc1 moe_act mamba_in mamba_conv mamba_scan mamba_out ;;
    esac
}

scopes_of()
{
    case $1 in
    gpt | mla) echo all attn mlp ;;
    moe) echo all attn moe moe_router,moe_preprocess,attn ;;
    mamba) echo all mamba ;;
    hybrid) echo all mamba attn mlp attn,moe_router,moe_preprocess ;;
    esac
}

# Each alone, all but one, and all.
sets_of()
{
    echo all
    for one in $(modules_of "$1"); do
        echo "$one"
        rest=
        for other in $(modules_of "$1"); do
            [ "$other" = "$one" ] || rest=$rest,$other
        done
        echo "${rest#,}"
    done
}

shapes()
{
    for model in gpt moe mla mamba hybrid; do
        for scope in $(scopes_of $model); do
            for set in $(sets_of $model); do
                for granularity in part layer chunk; do
                    for fraction in $fractions; do
                        echo $model "$scope" "$set" $granularity $fraction
                    done
                done
            done
        done
    done
}

# In an order that has everything early: a step that has no factor in common
# with the number of shapes goes round all of them.
shapes | awk '
    { shape[NR - 1] = $0 }
    function common(a, b) { return b == 0 ? a : common(b, a % b) }
    END { step = int(NR * 0.618)
          while (common(NR, step) != 1) step++
          for (i = 0; i < NR; i++) print shape[i * step % NR] }' \
    > "$scratch/shapes"
n_shapes=$(wc -l < "$scratch/shapes")
[ -n "$runs" ] || runs=$n_shapes
[ "$runs" -le "$n_shapes" ] ||
    awk -v runs="$runs" '{ s[NR - 1] = $0 }
        END { for (i = 0; i < runs; i++) print s[i % NR] }' \
        "$scratch/shapes" > "$scratch/more"
[ ! -f "$scratch/more" ] || mv "$scratch/more" "$scratch/shapes"
head -n "$runs" "$scratch/shapes" > "$scratch/chosen"

# train SEED N MODEL SCOPE SET GRANULARITY FRACTION: says passed, failed or
# skipped.
train()
{
    seed=$1 n=$2 model=$3 scope=$4 set=$5 granularity=$6 fraction=$7
    set -- --driver soft --quiet --model "$model" --layers 5 --hidden 16 \
        --heads 2 --seq 8 --batch 1 --steps 4 --microbatches 3,4,2 \
        --compare eager,graph,graph+offload,graph+offload+delay \
        --streams $((n / 3 % 3 + 1)) --in-flight $((n / 9 % 3 + 2))
    [ "$model" != hybrid ] || set -- "$@" --layers 8 --pattern 'M*-E'
    [ "$scope" != all ] || scope=
    [ "$set" = all ] || set -- "$@" --offload "$set"
    settings="SOFTCUDA_SEED=$seed GRAPHHOOKS_SCOPE=$scope"
    settings="$settings GRAPHHOOKS_GRANULARITY=$granularity"
    settings="$settings GRAPHHOOKS_OFFLOAD_FRACTION=$fraction"
    # shellcheck disable=SC2086 # words
    if env $settings "$build/gh-engine" "$@" > "$scratch/log" 2>&1 &&
        grep -q '^bitwise equal: yes' "$scratch/log" &&
        ! grep -q 'softcuda: [ru]' "$scratch/log"; then
        verdict=passed
    elif grep -q 'GH_ERR_CONFIG' "$scratch/log"; then
        verdict=skipped
    else
        verdict=failed
        echo "$settings gh-engine $*"
        grep -E 'softcuda: [ru]|bitwise|GH_ERR' "$scratch/log" |
            sed 's/^/    /' || :
    fi
}

touch "$state"
n=0 resumed=$(wc -l < "$state")
[ "$resumed" -eq 0 ] || echo "goes on after run $resumed of $runs"
while read -r model scope set granularity fraction; do
    n=$((n + 1))
    [ $n -gt "$resumed" ] || continue
    train $(((n - 1) % 500 + 1)) $n "$model" "$scope" "$set" "$granularity" \
        "$fraction"
    echo "$verdict $n $model $scope $set $granularity $fraction" >> "$state"
done < "$scratch/chosen"

awk -v runs="$runs" 'NR <= runs { n[$1]++ }
    END { printf "%d passed, %d failed, %d skipped\n",
                 n["passed"], n["failed"], n["skipped"]
          exit n["failed"] != 0 }' "$state"
