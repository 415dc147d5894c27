#!/bin/sh
# A wrong option, file, driver or library is one sentence and a status.
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"
scratch

small="--layers 1 --hidden 8 --heads 2 --seq 4 --batch 1 --steps 2 --quiet"

# refused STATUS SENTENCE ARGUMENT...
refused()
{
    expected=$1
    sentence=$2
    shift 2
    "$builddir/gh-engine" "$@" > "$scratch/out" 2> "$scratch/err"
    status=$?
    [ "$status" -eq "$expected" ] &&
        [ "$(wc -l < "$scratch/err")" -eq 1 ] &&
        sed -n 's/^gh-engine: //p' "$scratch/err" | grep -q -- "$sentence"
    held=$?
    ok $held "$* is refused with status $expected: $sentence"
    [ $held -eq 0 ] || diag "status $status: $(cat "$scratch/err")"
}

refused 2 "--layer is no option; did you mean --layers?$" --layer 3
refused 2 "did you mean --in-flight?$" --inflight=4
refused 2 "is no option; --help lists them" train
refused 2 "from 1 to 64" --ranks 0
refused 2 "ranks are threads of one process; take --ranks 2 alone" \
    --driver soft --ranks 2 --processes
refused 2 "each from 1 to 8192" --lengths 64,0
refused 2 "each from 1 to 8192" --lengths ""
refused 2 "leave one out" --lengths 8,16 --seq 32
refused 2 "takes no value" --packed=yes
refused 2 "is no option; --help lists them" ''
refused 2 "needs a value" --layers
refused 2 "from 1 to 512" --layers 0
refused 2 "from 1 to 512" --layers 3x
refused 2 "from 1 to 512" --layers=
refused 2 "from 1 to 512" --layers 99999999999999999999
refused 2 "expects gpt" --model bert
refused 2 "more than --experts 4" --model moe --top-k 5
refused 2 "from 1 to 1024" --model moe --experts 0
refused 2 "has no layer of experts" --model gpt --drop-and-pad
refused 2 "has no layer of experts; take --model moe" --model gpt --experts 3
refused 2 "has no layer of experts; take --model moe" --top-k 1
refused 2 "give --experts a number" --model mla --top-k 1
refused 2 "Mamba layers, and --model moe has none" --model moe --state 4
refused 2 "is for --model hybrid" --pattern 'M*'
refused 2 "is for --model hybrid" --model mamba --pattern 'M'
refused 2 "give --experts a number" --model mla --drop-and-pad
refused 2 "leaves none of 4 layers" --model moe --dense-layers 4
refused 2 "for models of experts" --model mla --dense-layers 1
refused 2 "for models of experts" --model hybrid --dense-layers 1
refused 2 "from 0 to 511" --model moe --dense-layers -1
refused 2 "leave out --dropless-host" --model moe --drop-and-pad \
    --dropless-host
refused 2 "no graph of mode step can hold" --model moe --dropless-host \
    --compare eager,step
refused 2 "M mamba" --model hybrid --pattern Mx
refused 2 "M mamba" --model hybrid --pattern ''
refused 2 "from 1 to 256" --model mamba --state 0
refused 2 "has no layer of experts; put an E into --pattern" \
    --model hybrid --pattern M --shared-expert
refused 2 "has no layer of experts" --busy-expert
refused 2 "than one microbatch can hold" --model mamba --state 256 \
    --batch 64 --seq 4096
refused 2 "than one microbatch can hold" --model moe --top-k 512 \
    --experts 512 --batch 64 --seq 512
refused 2 "than one model can hold" --model moe --experts 1024 --top-k 1 \
    --hidden 2048 --batch 1 --seq 1
refused 2 "--microbatches 4,,6: expects up to 64 numbers with commas, each \
from 1 to 1024$" --microbatches 4,,6
refused 2 "from 1 to 1024" --microbatches 4,6,
refused 2 "from 1 to 1024" --microbatches 0
refused 2 "from 1 to 64" --in-flight 65
refused 2 "from 0 to 63" --delay-wgrad -1
refused 2 "from 0 to 63" --delay-wgrad 64
refused 2 "68 microbatches would hold a slot" --in-flight 8 --delay-wgrad 60
refused 2 "expects up to 12 of eager, graph, step, plain, bare, graph+offload, .*, overlap+graph+offload+delay, with commas$" \
    --compare eager,fast
refused 2 "with commas; did you mean graph?" --compare eager,grpah,step
refused 2 "with commas$" --compare eager,,step
refused 2 "with commas$" \
    --compare eager,step,eager,step,eager,step,eager,step,eager,step,eager,step,eager
refused 2 "expects gpt.*; did you mean mamba?" --model mmaba
refused 2 "expects soft|cuda; did you mean cuda?" --driver cudda
refused 2 "expects legacy|own" --stream default
refused 2 "expects soft|cuda" --driver hip
refused 2 "expects auto|none" --family gpt
for lr in 0 -1 nan inf -inf 1001 1e999 1e-999 0.1x ''; do
    refused 2 "^--lr $lr: expects a number above 0, and at most 1000$" \
        --lr "$lr"
done
for seed in -1 ' -1' x 1.5 18446744073709551616 ''; do
    refused 2 "^--seed $seed: expects N, from 0 to 18446744073709551615$" \
        --seed "$seed"
done
refused 2 "does not divide 3 ranks; take a divisor" --model moe --ep 2 \
    --ranks 3
refused 2 "does not divide 1 ranks" --model moe --ep 2
refused 2 "divided by --ep 2; take a multiple of it" --model moe --ep 2 \
    --ranks 2 --experts 3
refused 2 "has no layer of experts; take --model moe" --ep 2 --ranks 2
refused 2 "from 1 to 64" --model moe --ep 0
refused 2 "or --sync-free" --model moe --ep 2 --ranks 2 --compare eager,step
refused 2 "dropless ranks that divide experts; take --ep 2" --model moe \
    --sync-free
refused 2 "leave out --drop-and-pad" --model moe --ep 2 --ranks 2 \
    --sync-free --drop-and-pad
refused 2 "leave out --dropless-host" --model moe --ep 2 --ranks 2 \
    --sync-free --dropless-host
refused 2 "with --ep 1 there is none" --model moe --compare overlap
refused 2 "with --ep 1 no tokens are exchanged" --model moe --exchange copy
refused 2 "in the order of one stream" --model moe --ep 2 --ranks 2 \
    --exchange copy --streams 2
refused 2 "expects nccl|copy|kernel|auto" --exchange ring
overlap="--driver soft $small --model moe --ep 2 --ranks 2"
overlap="$overlap --compare eager,overlap+graph"
# shellcheck disable=SC2086 # words
{
    refused 2 "take 2 or more" $overlap --in-flight 1
    refused 2 "one stream for compute" $overlap --streams 2
    refused 2 "take 0 or 1" $overlap --delay-wgrad 2
    GRAPHHOOKS_SCOPE=moe refused 2 "^overlap+graph mode: .*scope moe" \
        $overlap --drop-and-pad
}
refused 2 "takes no value" --packed=1
refused 2 "does not divide" --heads 3
refused 2 "^--offload is for the modes with offload; add graph+offload to --compare$" \
    --offload core_attn
refused 2 "^--cp-comm says how ranks share a sequence, and none do; add --cp" \
    --cp-comm allgather
refused 2 "^--delay-wgrad reads again what the backward has let go" \
    --delay-wgrad 1 --compare eager,graph+offload
refused 2 "leave out --streams 2" --stream legacy --streams 2
refused 2 "--seq 8192, --batch 1024: more than one microbatch can hold" \
    --batch 1024 --seq 8192
refused 2 "than one microbatch can hold" --hidden 8 --batch 1024 --seq 8192
refused 2 "than one microbatch can hold" --heads 64 --seq 8192 --batch 1
refused 2 "than one microbatch can hold" --heads 64 --batch 1024 --seq 1
refused 2 "than one model can hold" --hidden 16384 --seq 1 --batch 1

# ---- files ---------------------------------------------------------------

printf 'four' > "$scratch/short"
: > "$scratch/empty"
# shellcheck disable=SC2086 # words
{
    refused 2 "^--data $scratch/none: No such file.*; give a text file$" \
        --driver soft $small --data "$scratch/none"
    refused 2 "^--data $scratch/short: it has 4 bytes, and --seq 4 needs at \
least 5; " --driver soft $small --data "$scratch/short"
    refused 2 "has 0 bytes" --driver soft $small --data "$scratch/empty"
    refused 2 "^--data $scratch: Is a directory; give a text file$" \
        --driver soft $small --data "$scratch"
    mkfifo "$scratch/pipe"
    for option in --json --trace; do
        refused 2 "^$option $scratch/none/out.json: No such file.*; give a " \
            --driver soft $small $option "$scratch/none/out.json"
        refused 2 "^$option $scratch: Is a directory; give a file" \
            --driver soft $small $option "$scratch"
        refused 2 "^$option : No such file" --driver soft $small $option ''
        ! grep -q '^mode' "$scratch/out"
        ok $? "and nothing was trained before $option was looked at"
    done
    refused 2 "^--trace $scratch/pipe: it is no file; give a" \
        --driver soft $small --trace "$scratch/pipe"
    one="--json and --trace are one file, "
    refused 2 "^$one$scratch/new; give each its own$" \
        --driver soft $small --json "$scratch/new" --trace "$scratch/new"
    [ ! -e "$scratch/new" ]
    ok $? "and the file is not left behind"
    printf 'old' > "$scratch/old"
    ln -s old "$scratch/link"
    refused 2 "^$one$scratch/link; give each its own$" \
        --driver soft $small --json "$scratch/old" --trace "$scratch/link"
    [ "$(cat "$scratch/old")" = old ]
    ok $? "and one that was there is as it was"
    "$builddir/gh-engine" --driver soft $small --compare eager,graph \
        --json /dev/null --trace /dev/null > "$scratch/out" 2>&1
    ok $? "but both may go to /dev/null"
}

# full ARGUMENT...: what is printed or written does not fit, which is said.
full()
{
    "$builddir/gh-engine" "$@" > /dev/full 2> "$scratch/err"
    status=$?
    [ "$status" -eq 2 ] && [ "$(wc -l < "$scratch/err")" -eq 1 ] &&
        grep -q '^gh-engine: standard output: it could not be written whole; ' \
            "$scratch/err"
    held=$?
    ok $held "a full disk under the output of $* is said, with status 2"
    [ $held -eq 0 ] || diag "status $status: $(cat "$scratch/err")"
}

if [ -w /dev/full ]; then
    # shellcheck disable=SC2086 # words
    {
        refused 2 "^--json /dev/full: it could not be written whole; give a" \
            --driver soft $small --compare eager --json /dev/full
        GRAPHHOOKS_LOG=off
        export GRAPHHOOKS_LOG
        refused 2 "^--trace /dev/full: it could not be written whole; give a" \
            --driver soft $small --trace /dev/full
        unset GRAPHHOOKS_LOG
        full --driver soft $small
        full --driver soft ${small% --quiet}
    }
    full --help
else
    skip "a full disk: no /dev/full"
fi
# shellcheck disable=SC2086 # words
"$builddir/gh-engine" --driver soft $small >&- 2> "$scratch/err"
[ $? -eq 2 ] && grep -q 'standard output: it could' "$scratch/err"
ok $? "an output that is closed is said"
# shellcheck disable=SC2086 # words
"$builddir/gh-engine" --driver soft $small --trace /dev/null > "$scratch/out" 2>&1
ok $? "a trace may go to /dev/null"

# ---- the table -------------------------------------------------------------

# explained LEGEND ARGUMENT...: the line under the table says what is in it.
explained()
{
    legend=$1
    shift
    # shellcheck disable=SC2086 # words
    "$builddir/gh-engine" --driver soft $small "$@" > "$scratch/out" 2>&1
    [ "$(grep '^step ms' "$scratch/out")" = "$legend" ]
    ok $? "the columns of $* are explained"
}
times='step ms, host ms: medians of a step, and of issuing it'
explained "$times; then passes: recorded, replayed by graphs, run eagerly" \
    --compare eager,graph
explained "$times" --compare eager,step

# ---- the driver and the library ------------------------------------------

# shellcheck disable=SC2086 # words
refused 3 "none.so: .*; give the graphhooks library by --library$" \
    --driver soft $small --library "$scratch/none.so"
# shellcheck disable=SC2086 # words
refused 3 "is not graphhooks" --driver soft $small --library libc.so.6
cat > "$scratch/old.c" << 'EOF'
#include <graphhooks/loader.h>

gh_status gh_get_api(uint32_t major, const gh_api **api_p, gh_error *err)
{
    static gh_api api;

    (void)major;
    (void)err;
    api.struct_size = offsetof(gh_api, run_pass);
    *api_p = &api;
    return GH_OK;
}
EOF
if ${CC:-cc} -I"$srcdir/include" -shared -fPIC -o "$scratch/old.so" \
    "$scratch/old.c" 2> "$scratch/cc.log"; then
    # shellcheck disable=SC2086 # words
    refused 3 "old.so: it has no gh_run_pass; take 1.0 or later$" \
        --driver soft $small --library "$scratch/old.so"
else
    skip "no compiler to make an old library with"
fi
GRAPHHOOKS_SOFTCUDA=$scratch/none.so
export GRAPHHOOKS_SOFTCUDA
# shellcheck disable=SC2086 # words
refused 3 "none.so" --driver soft $small
unset GRAPHHOOKS_SOFTCUDA
GRAPHHOOKS_DRIVER=$scratch/other.so
export GRAPHHOOKS_DRIVER
# shellcheck disable=SC2086 # words
refused 3 "other.so" $small
# shellcheck disable=SC2086 # words
"$builddir/gh-engine" --driver soft $small > "$scratch/out" 2>&1
ok $? "--driver wins over GRAPHHOOKS_DRIVER, for the library too"
GRAPHHOOKS_DRIVER=bogus
# shellcheck disable=SC2086 # words
refused 3 'GRAPHHOOKS_DRIVER is "bogus"; set it to cuda or soft or a path' $small
GRAPHHOOKS_DRIVER=$(find "$builddir/.libs" -name libgraphhooks-softcuda.so)
# shellcheck disable=SC2086 # words
"$builddir/gh-engine" $small > "$scratch/out" 2>&1 &&
    grep -q 'driver soft$' "$scratch/out"
ok $? "GRAPHHOOKS_DRIVER may be the path of a driver"
unset GRAPHHOOKS_DRIVER
if "$builddir/gh-engine" --quiet --steps 1 | grep -q 'driver cuda$'; then
    skip "no CUDA device: there is one here"
else
    # shellcheck disable=SC2086 # words
    refused 3 "" --driver cuda $small
fi
SOFTCUDA_FAIL=cuMemAlloc:3:2
export SOFTCUDA_FAIL
# shellcheck disable=SC2086 # words
refused 3 "cuMemAlloc failed with 2 (CUDA_ERROR_OUT_OF_MEMORY)" \
    --driver soft $small
unset SOFTCUDA_FAIL
# shellcheck disable=SC2086 # words
{
    GRAPHHOOKS_SCOPE=attn,mpl refused 2 "did you mean mlp?$" \
        --driver soft $small
    GRAPHHOOKS_GRANULARITY=step refused 2 "GRANULARITY" --driver soft $small
    GRAPHHOOKS_SCOPE=mamba refused 2 "scope" --driver soft $small
    GRAPHHOOKS_SCOPE=mlp refused 2 "scope" --driver soft $small --model moe
    GRAPHHOOKS_SCOPE=moe refused 2 "scope" --driver soft $small --model moe \
        --dropless-host
    GRAPHHOOKS_OVERLAP=fxied refused 2 "did you mean fixed?" $overlap
    GRAPHHOOKS_SCOPE=mamba "$builddir/gh-engine" --driver soft $small \
        > "$scratch/out" 2>&1
}
tail -n 1 "$scratch/out" | grep -q 'scope mamba: no layer'
ok $? "the reason is the last line"
# shellcheck disable=SC2086 # words
"$builddir/gh-engine" --driver soft $small --model moe --dropless-host \
    > "$scratch/out" 2>&1
[ "$(grep -c 'set a capacity and pad to it$' "$scratch/out")" -eq 1 ]
ok $? "what is narrowed is said once in a run"

# ---- families -----------------------------------------------------------

mkdir "$scratch/plugins"
for family in gpt mla mamba; do
    echo "not an object" > "$scratch/plugins/$family.so"
done
GRAPHHOOKS_PLUGIN_PATH=$scratch/plugins
export GRAPHHOOKS_PLUGIN_PATH
# shellcheck disable=SC2086 # words
{
    refused 3 "layer 0: family gpt .*the file is not an object" \
        --driver soft $small
    refused 3 "layer 0: family mla " --driver soft $small --model mla
    refused 3 "layer 0: family mamba " --driver soft $small --model mamba
    refused 3 "layer 0: family gpt " --driver soft $small --model moe
    refused 3 "layer 0: family gpt " --driver soft $small --model hybrid \
        --pattern '*'
    "$builddir/gh-engine" --driver soft $small --family none \
        > "$scratch/out" 2>&1
}
ok $? "--family none needs no family"
unset GRAPHHOOKS_PLUGIN_PATH
# shellcheck disable=SC2086 # words
GRAPHHOOKS_LOG=info "$builddir/gh-engine" --driver soft $small \
    --model hybrid --layers 2 --pattern 'M*' > "$scratch/out" 2>&1
[ "$(grep -c 'family [a-z]*: .*/graphhooks/[a-z]*\.so is' "$scratch/out")" \
    -ge 2 ]
ok $? "families are found beside the library"

# ---- what is right -------------------------------------------------------

# shellcheck disable=SC2086 # words
"$builddir/gh-engine" --driver soft ${small% --quiet} > "$scratch/out" 2>&1
ok $? "a run ends with status 0"
[ "$(grep -c ': step ' "$scratch/out")" -eq 4 ]
ok $? "a run off a terminal says one line a step"
grep -q '^graph .* yes$' "$scratch/out" && grep -q '^eager .* -$' "$scratch/out"
ok $? "a run says of each mode whether it is equal to the first"
grep -q '^bitwise equal: yes$' "$scratch/out"
ok $? "a run says whether the modes are equal"
"$builddir/gh-engine" --help > "$scratch/out" 2>&1
ok $? "--help ends with status 0"
"$builddir/gh-engine" -h 2>&1 | cmp -s - "$scratch/out"
ok $? "-h is --help"
missing=$(for option in model pattern state experts dense-layers top-k shared-expert busy-expert drop-and-pad \
    dropless-host layers hidden heads seq batch steps microbatches \
    in-flight delay-wgrad streams stream compare family \
    driver library data \
    seed lr warmup json trace quiet help; do
    grep -q -- "^  --$option " "$scratch/out" || echo "--$option"
done)
empty "$missing" "--help names every option"

done_testing
