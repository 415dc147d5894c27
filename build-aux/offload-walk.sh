#!/bin/sh
# offload-walk.sh - trains with activations offloaded in many orders.
#
#     build-aux/offload-walk.sh BUILD [FIRST [LAST]]
#
# BUILD is a build directory.  Each seed from FIRST (1) to LAST (500) is one
# order of the software device, and one choice of model, scope, granularity,
# fraction, modules and streams.  Every run has to give eager's losses and
# weights, without a race.  What does not is said, with the command that
# repeats it.  It exits 0 when nothing is said.
#
# SPDX-License-Identifier: Apache-2.0
set -eu

build=$(cd "${1:?usage: build-aux/offload-walk.sh BUILD [FIRST [LAST]]}" && pwd)
seed=${2:-1}
last=${3:-500}
GRAPHHOOKS_SOFTCUDA=$build/.libs/libgraphhooks-softcuda.so
export GRAPHHOOKS_SOFTCUDA
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# pick N WORD...: word N modulo their number.
pick()
{
    n=$1
    shift
    shift $((n % $#))
    echo "$1"
}

bad=0
while [ "$seed" -le "$last" ]; do
    model=$(pick "$seed" gpt moe mla mamba hybrid)
    n=$((seed / 5))
    case $model in
    gpt | mla) scope=$(pick $n none attn mlp) ;;
    moe) scope=$(pick $n none attn moe moe_router,moe_preprocess,attn) ;;
    mamba) scope=$(pick $n none mamba) ;;
    hybrid) scope=$(pick $n none mamba attn mlp) ;;
    esac
    case $model in
    mamba) module=$(pick $n all mamba_in mamba_conv mamba_scan mamba_out) ;;
    moe) module=$(pick $n all core_attn expert_fc1 moe_act qkv_linear) ;;
    *) module=$(pick $n all core_attn qkv_linear attn_proj mlp_act) ;;
    esac
    set -- --driver soft --quiet --model "$model" --layers 5 --hidden 16 \
        --heads 2 --seq 8 --batch 1 --steps 4 --microbatches 3,4,2 \
        --compare eager,graph+offload,graph+offload+delay \
        --granularity "$(pick $((n / 3)) part layer chunk)" \
        --offload-fraction "$(pick $((n / 2)) 1 0.6 0.3)" \
        --streams "$(pick $((n / 4)) 1 2 3)" \
        --in-flight "$(pick $((n / 7)) 4 2 3)"
    [ "$scope" = none ] || set -- "$@" --scope "$scope"
    [ "$module" = all ] || set -- "$@" --offload "$module"
    if ! SOFTCUDA_SEED=$seed "$build/gh-engine" "$@" > "$log" 2>&1 ||
        grep -q 'softcuda: race' "$log"; then
        echo "SOFTCUDA_SEED=$seed gh-engine $*"
        bad=$((bad + 1))
    fi
    seed=$((seed + 1))
done
[ "$bad" -eq 0 ]
