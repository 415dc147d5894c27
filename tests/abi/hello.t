#!/bin/sh
# The example hosts train: the same bits eagerly and with graphs.
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"
scratch
soft=${builddir:?}/.libs/libgraphhooks-softcuda.so
strict="-Wall -Wextra -Werror -pedantic ${sanitize-}"

# how PAGE: the command at its top that builds it, for this tree and build.
how()
{
    sed -n '/^ \*     \(cc\|nvcc\) /,/[^\\]$/p' "$srcdir/doc/$1" |
        sed "s|^ \* *||; s|\"\$PWD/|\"|; s|build/\.libs|$builddir/.libs|g
             s|-o build/hello[a-z-]*|-o $scratch/hello|" | tr -d '\\\n'
}

# hello SENTENCE [VARIABLE=VALUE...]: the training runs, and says nothing else.
hello()
{
    name=$1
    shift
    env "$@" "$scratch/hello" "$soft" > "$scratch/out" 2> "$scratch/err"
    status=$?
    [ $status -eq 0 ] && grep -qx 'bitwise equal: yes' "$scratch/out" &&
        [ ! -s "$scratch/err" ]
    ok $? "$name"
    [ $status -eq 0 ] || diag "status $status"
    diag < "$scratch/err"
}

# checked SENTENCE [VARIABLE=VALUE...]: the same under GRAPHHOOKS_CHECK, which
# says one thing, that nothing differs.
checked()
{
    name=$1
    shift
    env GRAPHHOOKS_CHECK=bitwise "$@" "$scratch/hello" "$soft" \
        > "$scratch/out" 2> "$scratch/err"
    status=$?
    [ $status -eq 0 ] && grep -qx 'bitwise equal: yes' "$scratch/out" &&
        [ "$(grep -c '' "$scratch/err")" -eq 1 ] &&
        grep -q 'CHECK: [0-9]* passes compared, no difference$' "$scratch/err"
    ok $? "$name"
    diag < "$scratch/err"
}

replayed()
{
    sed -n 's/ of [0-9]* passes were replayed//p' "$scratch/out"
}

it_learnt()
{
    awk '$1 == "loss:" { fell = $4 < $2 / 1000 } END { exit !fell }' \
        "$scratch/out"
    ok $? "$1"
}

# build FILE SENTENCE: makes $scratch/hello of $page, or of a copy of it.
page=hello.c
build()
{
    command=$(how $page | sed "s|^cc|${CC:-cc} $strict|; s|doc/$page|$1|")
    (cd "$srcdir" && eval "$command -Idoc") > "$scratch/log" 2>&1
    status=$?
    ok $status "$2"
    diag < "$scratch/log"
    return $status
}

# ---- hello.c ---------------------------------------------------------------

build doc/hello.c "hello.c is built as its first lines say" || done_testing
hello "hello.c trains the same bits with graphs"
[ "$(replayed)" -eq 624 ]
ok $? "every pass after the first of its 40 steps was replayed"
it_learnt "hello.c has learnt the line"

for seed in $(seq 20); do
    hello "seed $seed: the same bits in another order" SOFTCUDA_SEED="$seed"
done
checked "hello.c passes GRAPHHOOKS_CHECK"
checked "and does so in another order" SOFTCUDA_SEED=7

env GRAPHHOOKS_MAX_SLOTS=2 "$scratch/hello" "$soft" > "$scratch/out" \
    2> "$scratch/err"
[ "$(replayed)" -eq 312 ] && grep -qx 'bitwise equal: yes' "$scratch/out"
ok $? "with two slots for four microbatches the rest runs eagerly, the same"

env GRAPHHOOKS_GRANULARITY=chunk "$scratch/hello" "$soft" > "$scratch/out" \
    2> "$scratch/err"
[ $? -eq 1 ] && grep -q 'several layers as one segment' "$scratch/err"
ok $? "segments that it cannot run are refused with a sentence"

# A launch that fails in the first recording: the 880 of the eager training
# and the 22 of the warmup step come before it.
env SOFTCUDA_FAIL=cuLaunchKernel:903 "$scratch/hello" "$soft" \
    > "$scratch/out" 2> "$scratch/err"
[ "$(replayed)" -lt 624 ] && grep -qx 'bitwise equal: yes' "$scratch/out"
ok $? "a launch that fails in a recording costs replays, and no bit"

# One call in some hundreds fails: the same bits, or a sentence.
wrong=$(for n in $(seq 3 97 2200); do
    if SOFTCUDA_FAIL="*:$n" "$scratch/hello" "$soft" > "$scratch/out" \
        2> "$scratch/err"; then
        grep -qx 'bitwise equal: yes' "$scratch/out" || echo "call $n: $?"
    else
        grep -q '^hello: .*: ' "$scratch/err" || echo "call $n: no sentence"
    fi
done)
empty "$wrong" "whichever call fails, bits are equal or a sentence says why"

# ---- its verdict can be no ---------------------------------------------------

# wrong_host SENTENCE SED [VARIABLE=VALUE...]: the change is found.
wrong_host()
{
    name=$1
    sed "$2" "$srcdir/doc/$page" > "$scratch/wrong.c"
    shift 2
    build "$scratch/wrong.c" "a host where $name is built" || return
    env "$@" "$scratch/hello" "$soft" > "$scratch/out" 2> "$scratch/err"
    [ $? -eq 1 ]
    ok $? "$name: found"
    diag < "$scratch/out"
}
wrong_host "a kernel reads the pass's input, not the decision's" \
    's/= d->inputs\[0\]\.address/= pass->inputs[0].address/'
grep -qx 'bitwise equal: no' "$scratch/out"
ok $? "and its bits differ"
wrong_host "a gradient is not listed as updated" \
    's/sizeof(float\[2\]), GH_BUFFER_UPDATED/sizeof(float[2]), 0/' \
    GRAPHHOOKS_CHECK=bitwise

# ---- hello-offload.c ---------------------------------------------------------

# moved: groups that were offloaded, and copies back.
moved()
{
    sed -n 's/^\([0-9]*\) of 3 groups were offloaded, \([0-9]*\).*/\1 \2/p' \
        "$scratch/out"
}

page=hello-offload.c
build doc/$page "$page is built as its first lines say" || done_testing
hello "$page trains the same bits with graphs and offload as without both"
[ "$(replayed)" -eq 1248 ]
ok $? "every pass after the first step was replayed"
[ "$(moved)" = "2 324" ]
ok $? "the groups of two layers were offloaded, and came back: $(moved)"
awk '$1 == "loss:" { fell = $4 < $2 / 100 } END { exit !fell }' "$scratch/out"
ok $? "it has learnt the line, as an evaluation in each step says"
for seed in 2 3 5 7 11; do
    hello "$page, seed $seed: the same bits" SOFTCUDA_SEED="$seed"
done
checked "$page passes GRAPHHOOKS_CHECK"
hello "with a fraction of 0 it trains the same" GRAPHHOOKS_OFFLOAD_FRACTION=0
[ "$(moved)" = "0 12" ] && [ "$(replayed)" -eq 1248 ]
ok $? "in the same places, with nothing offloaded: $(moved)"
hello "with all of it eager too" GRAPHHOOKS_ENABLE=0
hello "and with half of the slots" GRAPHHOOKS_MAX_SLOTS=2 GRAPHHOOKS_LOG=off
wrong_host "$page reads where it has saved, not where load says" \
    's/TRY(place(gh_offload_load, l, &x, why));/float *back;\
     TRY(place(gh_offload_load, l, \&back, why)); x = y_at[l][pass->microbatch];/
     s/^static void \*stream;/&\
     static float *y_at[LAYERS][MICROBATCHES + 1];/
     s/^    outputs\[0\] = row(y, 0);/&\
     if (l + 1 < LAYERS) { y_at[l + 1][pass->microbatch] = y; }/'

# ---- hello.cu --------------------------------------------------------------

# It is built where nvcc and cuBLAS are, and run where there is a GPU too.
: "${NVCC:=nvcc}"
if ! have "$NVCC"; then
    skip "hello.cu: no nvcc"
    done_testing
elif ! echo '#include <cublas_v2.h>' | "$NVCC" -x cu -E - > /dev/null 2>&1; then
    skip "hello.cu: nvcc finds no cublas_v2.h"
    done_testing
elif [ -n "${sanitize-}" ]; then
    skip "hello.cu: nvcc does not link a library with sanitizers"
    done_testing
fi
command=$(how hello.cu | sed "s|^nvcc|$NVCC -Werror all-warnings|")
(cd "$srcdir" && eval "$command") > "$scratch/log" 2>&1
status=$?
ok $status "hello.cu is built as its first lines say"
diag < "$scratch/log"
if [ "${GRAPHHOOKS_TEST_DRIVER-}" != cuda ]; then
    skip "hello.cu is not run: GRAPHHOOKS_TEST_DRIVER=cuda runs it on a GPU"
elif [ $status -eq 0 ]; then
    hello "hello.cu trains the same bits with graphs"
    [ "$(replayed)" -eq 624 ]
    ok $? "every pass of hello.cu after its first step was replayed"
    it_learnt "hello.cu has learnt the map"
    checked "hello.cu passes GRAPHHOOKS_CHECK"
fi

done_testing
