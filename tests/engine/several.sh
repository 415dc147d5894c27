# shellcheck shell=sh
# several.sh - gh-engine with several ranks; sourced after tap.sh.
#
# The sourcing test sets $small, the options of every run, after $base.
#
# SPDX-License-Identifier: Apache-2.0

scratch
# On a GPU ranks are processes, which share it where NCCL is 2.30 or newer.
driver=${GRAPHHOOKS_TEST_DRIVER:-soft}
export SOFTNCCL_DESTROY=wait # threads as processes
base="--driver $driver"
if [ "$driver" = cuda ]; then
    [ -n "${GRAPHHOOKS_TEST_NCCL:-}" ] ||
        skip_all "GRAPHHOOKS_TEST_NCCL names no libnccl.so.2"
    base="$base --processes --nccl $GRAPHHOOKS_TEST_NCCL"
    NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_NVLS_ENABLE=0 NCCL_MAX_CTAS=8
    export NCCL_MULTI_RANK_GPU_ENABLE NCCL_NVLS_ENABLE NCCL_MAX_CTAS
fi

# trains [VARIABLE=VALUE...] -- OPTION...: whether with equal numbers and not a
# word on stderr, where races are told.  Leaves the JSON.
trains()
{
    settings=
    while [ "$1" != -- ]; do
        settings="$settings $1"
        shift
    done
    shift
    # shellcheck disable=SC2086 # words
    env $settings timeout 120 "${builddir:?}/gh-engine" ${small:?} \
        --json "${scratch:?}/out.json" "$@" > "$scratch/out" \
        2> "$scratch/said"
    status=$?
    # The log says that layers with experts are not one graph, that the
    # backward of a preprocess is empty, that of few layers no group goes, and
    # what auto has chosen.
    grep -v -e '^graphhooks: warning: layer .*: its experts get another number' \
        -e '^graphhooks: warning: layer .*: its communication is hidden' \
        -e '^graphhooks: warning: layer .* moe_preprocess backward.* no work' \
        -e '^graphhooks: warning: offload: nothing is offloaded' \
        -e '^graphhooks: overlap: .* predicted' \
        -e '^graphhooks: GRAPHHOOKS_CHECK: .* compared, no difference' \
        -e '^graphhooks: GRAPHHOOKS_CHECK: .* with other ranks, 0 differ' \
        "$scratch/said" > "$scratch/err"
    [ "$status" -eq 0 ] &&
        { [ ! -s "$scratch/err" ] || [ "$driver" = cuda ]; } &&
        grep -q '"bitwise_equal": true' "$scratch/out.json"
}

# train NAME [VARIABLE=VALUE...] -- OPTION...: says so.
train()
{
    name=$1
    shift
    trains "$@"
    held=$?
    ok $held "$name: the same losses and weights"
    [ $held -eq 0 ] || diag "status $status: $(head -n 3 "$scratch/err")"
}

# refuses SENTENCE OPTION...: with status 2 and that sentence alone.
refuses()
{
    sentence=$1
    shift
    # shellcheck disable=SC2086 # words
    "${builddir:?}/gh-engine" ${small:?} "$@" > "$scratch/out" 2> "$scratch/err"
    [ $? -eq 2 ] && [ "$(wc -l < "$scratch/err")" -eq 1 ] &&
        grep -q "^gh-engine: $sentence" "$scratch/err"
    held=$?
    ok $held "$*: $sentence"
    [ $held -eq 0 ] || diag "$(head -n 2 "$scratch/err")"
}

# The first list of that name in the JSON, and the last number.
list()
{
    sed -n "s/^ *\"$1\": \[\(.*\)\],*\$/\1/p" "$scratch/out.json" | head -n 1
}

value()
{
    sed -n "s/^ *\"$1\": \([0-9]*\),*\$/\1/p" "$scratch/out.json" | tail -n 1
}

# are_near A B: two lists agree to the fifth digit.
are_near()
{
    printf '%s\n%s\n' "$1" "$2" | awk -F', ' '
        NR == 1 { n = split($0, a) }
        NR == 2 {
            good = n > 0 && n == NF
            for (i = 1; i <= n; i++) {
                d = a[i] - $i
                if (d < 0) d = -d
                if (d > 2e-5 * a[i]) good = 0
            }
        }
        END { exit !good }'
}

# near A B SENTENCE: says so.
near()
{
    are_near "$1" "$2"
    held=$?
    ok $held "$3"
    [ $held -eq 0 ] || diag "$1 and $2"
}

# memories BODY: runs awk's BODY for each mode that the JSON has memory of, where
# bytes["slot"] and so on are its parts; says so if there is none.
memories()
{
    awk -F'[ ,:"]+' '
        function look() { '"$1"' }
        $2 == "memory" { inside = 1; split("", bytes); next }
        inside && /}/ { inside = 0; modes++; look() }
        inside && sub(/_bytes$/, "", $2) { bytes[$2] = $3 }
        END {
            if (modes == 0) {
                print "no mode has memory"
            }
        }' "$scratch/out.json"
}
