#!/bin/sh
# gh-engine with several ranks: the same numbers in every mode and every order.
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"
. "$srcdir/tests/engine/several.sh"

small="$base --layers 2 --hidden 16 --heads 2 --seq 8 --batch 2"
small="$small --steps 3 --microbatches 3,2 --in-flight 2 --quiet"

# ---- data parallel ---------------------------------------------------------

for n in 2 3 4; do
    train "$n ranks" -- --ranks $n --compare eager,graph,step
    grep -q "^$n ranks: losses are of all of them.*bit for bit" "$scratch/out"
    ok $? "$n ranks have the same weights"
done
for seed in 1 2 3 4 5 6; do
    train "two ranks, seed $seed" SOFTCUDA_SEED=$seed -- --ranks 2 --streams 2
done
train "ranks on the legacy stream" -- --ranks 2 --stream legacy
if [ "$driver" = soft ]; then
    train "two ranks of one device" SOFTCUDA_DEVICES=1 \
        NCCL_MULTI_RANK_GPU_ENABLE=1 -- --ranks 2
fi
train "delayed gradients of weights" -- --ranks 2 --streams 2 --delay-wgrad 1
train "experts" -- --ranks 2 --model moe
train "latent attention, with offload" -- --ranks 2 --model mla \
    --compare eager,graph+offload
train "packed" -- --ranks 2 --packed
train "hybrid" -- --ranks 3 --model hybrid --layers 4

# What two ranks see of the text is what one sees in twice as many
# microbatches, added up in another order.
train "three microbatches each of two ranks" -- --ranks 2 --microbatches 3 \
    --steps 5
two=$(list loss)
train "six of one" -- --microbatches 6 --steps 5
near "$two" "$(list loss)" "two ranks learn what one learns of as much text"
train "six of one, of another seed" -- --microbatches 6 --steps 5 --seed 2
near "$two" "$(list loss)" "another text" 2> /dev/null | grep -q '^not ok'
ok $? "and another text is something else"

# ---- a rank that is killed ----------------------------------------------------

if [ "$driver" = cuda ]; then
    # shellcheck disable=SC2086 # words
    timeout 300 "$builddir/gh-engine" $base --ranks 3 --steps 1000000 \
        --compare eager > "$scratch/out" 2> "$scratch/err" &
    until grep -q 'step 20 of' "$scratch/out" ||
        ! kill -0 $! 2> "$scratch/gone"; do
        sleep 0.1
    done
    # Its parent is who has forked it, and that one's is timeout.
    forked=$(ps -o pid= --ppid $! | tr -d ' ')
    kill -KILL "$(ps -o pid= --ppid "$forked" | tail -n 1 | tr -d ' ')"
    killed=$(date +%s)
    wait $!
    status=$?
    [ $status -eq 3 ] && [ $(($(date +%s) - killed)) -le 10 ] &&
        grep -q 'another rank has failed: rank [012]: it ended without a word' \
            "$scratch/err"
    held=$?
    ok $held "a rank that is killed ends the others in time, with a sentence"
    [ $held -eq 0 ] || diag "status $status: $(cat "$scratch/err")"
    done_testing
    exit
fi

# Two ranks of two streams wait six times each in two steps.
missed=
for n in 1 2 3 4 5 6 7 8 9 10 11 12; do
    # shellcheck disable=SC2086 # words
    SOFTCUDA_DROP_WAIT=$n timeout 60 "$builddir/gh-engine" $small --steps 2 \
        --layers 1 --microbatches 3 --streams 2 --ranks 2 --compare eager \
        2>&1 > /dev/null | grep -q '^softcuda: race' || missed="$missed $n"
done
[ -z "$missed" ]
ok $? "each of twelve waits, dropped, is reported as a race"
[ -z "$missed" ] || diag "not missed:$missed"

# ---- failures ---------------------------------------------------------------

# fails SENTENCE [VARIABLE=VALUE...] -- OPTION...: status 3, within ten seconds.
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
    env $settings timeout 10 "$builddir/gh-engine" $small "$@" \
        > "$scratch/out" 2> "$scratch/err"
    status=$?
    [ "$status" -eq 3 ] && grep -q -- "$sentence" "$scratch/err" &&
        ! grep -q '^softnccl: deadlock' "$scratch/err"
    held=$?
    ok $held "$*: status 3, and $sentence"
    [ $held -eq 0 ] || diag "status $status: $(head -n 4 "$scratch/err")"
}

fails "rank 0 of 2: nccl: .*nowhere" -- --ranks 2 --nccl /nowhere/libnccl.so
fails "rank [012]: step mode: cuLaunchKernel failed" \
    SOFTCUDA_FAIL=cuLaunchKernel:900 -- --ranks 3 --compare step,graph
fails "rank [012]: \(eager mode: \)*cuMemAlloc failed" SOFTCUDA_FAIL=cuMemAlloc:20 \
    -- --ranks 3
grep -c '^gh-engine: rank' "$scratch/err" | grep -qx 3
ok $? "every rank says why it has ended"
fails "out of memory\|OUT_OF_MEMORY" SOFTCUDA_MEMORY=100000 -- --ranks 2

done_testing
