# several-gpus-parts.sh - the parts of several-gpus.sh, which sources it.
#
# Each is a function part_NAME, run in a shell of its own with $out, $build,
# $tree, $ranks, $driver and the rest.  What it finds goes to $out/$part/, and
# each check to $out/checks.tsv, by several-gpus-checks.sh.  Status 77: there
# was nothing to do, for the reason in the last line.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154 # several-gpus.sh sets them

# shellcheck source=build-aux/several-gpus-checks.sh
. "$here/build-aux/several-gpus-checks.sh"

# ---- build, machine ------------------------------------------------------

test_programs()
{
    local name

    for name in nccl/collectives nccl/comms nccl/graphs nccl/seeds \
        session/ranks/agree session/ranks/groups \
        session/ranks/overlap exchange/exchange; do
        echo "tests/$name.t"
    done
}

# is_built: there is a whole build of what this call is given.
is_built()
{
    [ -x "$build/gh-engine" ] && [ "$source" = "$(cat "$work/$mark")" ]
}

part_build()
{
    if [ -n "$given_build" ]; then
        test -x "$build/gh-engine" && test -x "$build/bench/exchange"
        check $? "there is a build in $build"
        return
    fi
    if [ -f "$from" ] && is_built; then
        check 0 "was built of the same tarball"
        return
    fi
    # First what says that there is a build.
    : > "$work/$mark" && rm -f "$build/gh-engine" &&
        rm -rf "$tree" "$build" && mkdir -p "$build" || return 1
    if [ -d "$from" ]; then
        ln -s "$from" "$tree" || return 1
    else
        mkdir "$tree"
        tar xzf "$from" -C "$tree" --strip-components=1
        check $? "$from unpacks" || return 1
    fi
    cd "$build" || return 1
    # shellcheck disable=SC2046,SC2086 # lists of words
    "$tree/configure" -q ${CONFIGURE_FLAGS-} && make -s -j"$jobs" &&
        make -s -j"$jobs" $(test_programs)
    check $? "it builds" && echo "$source" > "$work/$mark"
}

part_machine()
{
    echo "$ranks ranks, $gpus GPUs, driver $driver, NCCL ${nccl:-by name}," \
        "cuBLAS ${cublas:-by name}"
    uname -rm
    if is_soft; then
        echo "the software device has no links to look at"
        return 77
    fi
    {
        nvidia-smi
        nvidia-smi topo -m
        nvidia-smi nvlink --status
    } > "$out/$part/nvidia-smi.txt" 2>&1
    cat "$out/$part/nvidia-smi.txt"
    [ "$(nvidia-smi -L | grep -c '^GPU ')" -ge "$ranks" ]
    check $? "nvidia-smi lists $ranks GPUs or more"
    [ -n "$nccl" ] && [ -r "$nccl" ]
    check $? "there is an NCCL: $nccl"
}

# ---- nccl ----------------------------------------------------------------

# whole LOG: what a program has said by the Test Anything Protocol is all that
# it planned.
whole()
{
    awk '/^(not )?ok / { n++ }
        /^1\.\.[0-9]+/ { plans++; plan = substr($1, 4) + 0 }
        END { exit plans != 1 || plan != n }' "$1"
}

part_nccl()
{
    local program programs rc log points skips
    local -a settings=(GRAPHHOOKS_TEST_RANKS="$ranks" srcdir="$tree"
        builddir="$build" GRAPHHOOKS_TEST_DRIVER="$driver")

    programs=$(test_programs)
    [ -z "$brief" ] || programs=tests/nccl/collectives.t
    is_soft || settings+=(GRAPHHOOKS_TEST_NCCL="$nccl")
    cd "$build" || return 1
    for program in $programs; do
        log=$out/$part/$(basename "$program" .t).tap
        if [ ! -x "$program" ]; then
            check 1 "$program was built"
            continue
        fi
        env "${settings[@]}" timeout --foreground -k 5 150 \
            "./$program" > "$log" 2>&1
        rc=$?
        skips=$(grep -c '^ok .*# SKIP' "$log")
        points=$(($(grep -c '^ok ' "$log") - skips))
        [ $rc -eq 0 ] && ! grep -q '^not ok' "$log" && [ $points -gt 0 ] &&
            whole "$log"
        check $? "$program: $points points, $skips skipped, status $rc" ||
            grep '^not ok' "$log" | head -n 5
    done
}

# ---- benches -------------------------------------------------------------

part_exchange()
{
    bench exchange exchange || return 1
    compares "$out/bench/exchange.json" bench/exchange
    table exchange
}

part_overlap()
{
    bench overlap overlap --costs "$out/bench/overlap.costs" || return 1
    compares "$out/bench/overlap.json" bench/overlap
    table overlap
}

# Times that overlap, in this call or an earlier one, has left and not failed.
part_scale()
{
    if ! grep -q $'^overlap\t.*\tpassed$' "$out/parts.tsv" ||
        [ ! -s "$out/bench/overlap.costs" ]; then
        echo "overlap has not passed, so that there are no times"
        return 77
    fi
    (cd "$build" && ./bench/scale --costs "$out/bench/overlap.costs" \
        --json "$out/bench/scale.json")
    check $? "bench/scale plays what was measured" && table scale
}

part_beside()
{
    bench beside beside || return 1
    grep -q '"right": true' "$out/bench/beside.json"
    check $? "bench/beside: what was moved is right"
    table beside
}

# ---- the engine ----------------------------------------------------------

overlap_modes=eager,overlap,overlap+graph,overlap+graph+delay-wgrad
overlap_modes=$overlap_modes,overlap+graph+offload+delay
export overlap_modes

# The sizes of what is only compared, and of what is timed too.
small()
{
    if is_soft; then
        echo --layers 2 --hidden 16 --heads 2 --seq 8 --batch 2 --steps 4 \
            --microbatches 3,2 --in-flight 2
    else
        echo --layers 4 --hidden 256 --heads 8 --seq 128 --batch 4 \
            --steps 6 --microbatches 4,3 --in-flight 2
    fi
}

large()
{
    if is_soft; then
        small
    else
        echo --layers 4 --hidden 768 --heads 12 --seq 512 --batch 4 \
            --steps 10 --microbatches 4 --in-flight 2
    fi
}

part_ep()
{
    local model order exchange models="moe hybrid" orders="off fixed auto"
    # shellcheck disable=SC2034 # engine reads it
    local threads

    [ -z "$brief" ] || models=moe orders=auto
    for model in $models; do
        [ "$model" = moe ] || orders=auto
        for order in $orders; do
            for exchange in nccl copy; do
                # shellcheck disable=SC2046 # words
                engine "$model, order $order, exchange $exchange" \
                    GRAPHHOOKS_OVERLAP="$order" -- $(small) --layers 4 \
                    --model "$model" --experts $((2 * ranks)) --ep "$ranks" \
                    --exchange $exchange --compare "$overlap_modes"
            done
        done
    done
    same_weights "$models"
    [ -z "$brief" ] || return 0
    for exchange in nccl copy; do
        # shellcheck disable=SC2046
        engine "mla, drop and pad, in graphs, exchange $exchange" -- $(small) \
            --model mla --experts $((2 * ranks)) --ep "$ranks" \
            --drop-and-pad --exchange $exchange --compare eager,graph,step
        # shellcheck disable=SC2046
        threads=1 engine "moe, ranks are threads, exchange $exchange" \
            GRAPHHOOKS_OVERLAP=auto -- $(small) --model moe \
            --experts $((2 * ranks)) --ep "$ranks" --exchange $exchange \
            --compare "$overlap_modes"
        # shellcheck disable=SC2046
        engine "moe, large, exchange $exchange" GRAPHHOOKS_OVERLAP=auto -- \
            $(large) --model moe --experts $((2 * ranks)) --ep "$ranks" \
            --exchange $exchange --compare eager,graph,overlap,overlap+graph
        grep -h 'order auto\|tokens a second' "$out/$part"/moe--large*.txt
    done
}

# By NCCL and by copies, in every order, each of MODELS learns the same.
same_weights()
{
    local model n

    for model in $1; do
        n=$(cat "$out/$part/$model"--order*.json 2> /dev/null |
            grep '"weights_hash"' | sort -u | wc -l)
        [ "$n" -eq 1 ]
        check $? "$model: the same weights by every order and exchange"
    done
}

part_uneven()
{
    local order exchange experts=$ranks orders="fixed auto"

    # Of more than two ranks, rank 0 has half of all choices.
    [ "$ranks" -gt 2 ] || experts=4
    [ -z "$brief" ] || orders=auto
    for order in $orders; do
        for exchange in nccl copy; do
            # shellcheck disable=SC2046
            engine "moe, uneven, order $order, exchange $exchange" \
                GRAPHHOOKS_OVERLAP="$order" -- $(small) --model moe \
                --experts "$experts" --top-k 2 --busy-expert --ep "$ranks" \
                --exchange $exchange --compare "$overlap_modes"
        done
    done
    [ -n "$brief" ] || is_soft ||
        for exchange in nccl copy; do
            # shellcheck disable=SC2046
            engine "moe, uneven, large, exchange $exchange" \
                GRAPHHOOKS_OVERLAP=auto -- $(large) --model moe \
                --experts "$experts" --top-k 2 --busy-expert --ep "$ranks" \
                --exchange $exchange --compare eager,overlap,overlap+graph
        done
}

# Every number of ranks was needed.
uses_all()
{
    local counts

    counts=$(sed -n 's/^ *"cp_microbatches": \[\(.*\)\],*$/\1/p' "$1" |
        head -n 1)
    echo "$counts" | grep -Eq '^[1-9][0-9]*(, [1-9][0-9]*)+$'
    check $? "$2: every number of ranks was needed ($counts)"
}

# Tokens of a rank, few enough that documents need several ranks, up to all of
# them, and many enough that some do not.
shared_seq()
{
    if [ "$ranks" -eq 8 ]; then
        echo --seq 96
    elif [ -n "$brief" ]; then
        echo --seq $((32 * ranks))
    else
        echo --seq 128
    fi
}

part_banks()
{
    local model models="gpt mla moe mamba hybrid" comm sizes

    sizes=$(if is_soft; then
        echo --layers 2 --hidden 16 --heads 2
    else
        echo --layers 4 --hidden 256 --heads 8
    fi)
    [ -z "$brief" ] || models=gpt
    for model in $models; do
        for comm in allgather ring; do
            [ $comm = allgather ] || [[ $model = gpt || $model = moe ]] ||
                continue
            # shellcheck disable=SC2046,SC2086
            engine "$model, dynamic, $comm" -- $sizes --model "$model" \
                $(shared_seq) --batch 1 --packed --cp "$(divisors)" --cp-comm $comm --steps 8 \
                --microbatches 6,4 --in-flight 2 --compare eager,graph
            uses_all "$out/$part/$model--dynamic--$comm.json" "$model, $comm"
        done
    done
}

part_all()
{
    local exchange exchanges="nccl copy"

    [ -z "$brief" ] || exchanges=copy
    for exchange in $exchanges; do
        # shellcheck disable=SC2046
        engine "all at once, exchange $exchange" GRAPHHOOKS_OVERLAP=auto -- \
            $(small) --layers 4 $(shared_seq) --batch 1 --model moe \
            --experts $((2 * ranks)) --ep "$ranks" --packed --cp "$(divisors)" \
            --exchange "$exchange" --steps $((ranks == 8 ? 8 : 5)) \
            --microbatches 6,4 \
            --offload qkv_linear,core_attn,attn_proj,expert_fc1,moe_act \
            --compare "$overlap_modes"
        uses_all "$out/$part/all-at-once--exchange-$exchange.json" \
            "all at once, $exchange"
        grep -q 'offload+delay: [1-9][0-9]* of .* groups go' \
            "$out/$part/all-at-once--exchange-$exchange.txt"
        check $? "all at once, $exchange: groups go to the host"
    done
}

part_tokens()
{
    local sizes how name

    # shellcheck disable=SC2046 # words
    sizes=$(if is_soft; then
        echo --layers 2 --hidden 16 --heads 2 --batch 1 --steps 4 \
            --microbatches 4 $(shared_seq)
    else
        echo --layers 4 --hidden 1024 --heads 16 --seq $((1024 / ranks)) \
            --batch 4 --steps 8 --microbatches 4
    fi)
    for how in "" $(divisors | tr ',' ' '); do
        name=${how:+fixed $how}
        # shellcheck disable=SC2086
        engine "${name:-dynamic}" -- $sizes --packed --in-flight 2 \
            --cp "$(divisors)" ${how:+--cp-force $how} --compare eager,graph
        name=${name:-dynamic}
        grep -q 'tokens a second' "$out/$part/${name/ /-}.txt"
        check $? "$name: tokens a second are said"
    done
    grep -H 'tokens a second\|ranks that share' "$out/$part"/*.txt |
        sed 's|.*/||' | tee "$out/$part/table.txt"
}

# A stage on each GPU learns what one stage does, whatever the schedule; then
# the times of a step.
part_pipeline()
{
    local model models="gpt moe mla mamba hybrid" granularity
    local counts="$((2 * ranks)),$((4 * ranks)),$ranks" sizes all

    # shellcheck disable=SC2046 # words
    sizes=$(if is_soft; then
        echo --hidden 16 --heads 2 --seq 8 --batch 2 --steps 4
    else
        echo --hidden 256 --heads 8 --seq 128 --batch 2 --steps 6
    fi)
    [ -z "$brief" ] || models=gpt
    for model in $models; do
        all="$sizes --layers $((2 * ranks + 1)) --model $model"
        all="$all --microbatches $counts"
        # shellcheck disable=SC2086
        (cd "$build" && ./gh-engine --driver "$driver" --quiet \
            $all --compare eager \
            --json "$out/$part/$model-one.json") > /dev/null
        check $? "$model: one stage"
        for granularity in layer chunk; do
            # shellcheck disable=SC2086
            {
                engine "$model, 1f1b, $granularity" \
                    GRAPHHOOKS_GRANULARITY=$granularity -- $all \
                    --pp "$ranks" --compare eager,graph
                engine "$model, interleaved, $granularity" \
                    GRAPHHOOKS_GRANULARITY=$granularity -- $all \
                    --pp "$ranks" --vpp 2 --compare eager,graph
                engine "$model, zero bubble, $granularity" \
                    GRAPHHOOKS_GRANULARITY=$granularity -- $all \
                    --pp "$ranks" --schedule zero-bubble \
                    --compare plain,eager,graph
            }
        done
        [ "$(cat "$out/$part/$model-"*.json | grep '"weights_hash"' |
            sort -u | wc -l)" -eq 1 ]
        check $? "$model: the weights of one stage, by every schedule"
    done
    grep -H 'tokens a second' "$out/$part"/*.txt | sed 's|.*/||' |
        tee "$out/$part/table.txt"
}

# ---- offload while ranks exchange ----------------------------------------

# What the policy has said of each rank, and whether it follows its rule:
# groups stay where exchanges take over 5 % longer, and only there.  On a rank
# whose groups stay for other reasons none is left to stay for this one.
policy()
{
    local file=$1 name=$2

    grep -h '^graphhooks: .*exchanges of tokens' "$file" | sed "s|^|$name: |" |
        tee -a "$out/$part/policy.txt"
    awk '/exchanges of tokens take/ {
            n++
            for (i = 1; i < NF; i++) {
                if ($i == "take") longer = $(i + 1) + 0
            }
            stays = /stay on the device/
            if (stays && longer <= 5) wrong = 1
            over += longer > 5
            kept += stays
        }
        END { exit n == 0 || wrong || (over > 0 && kept == 0) }' "$file"
    check $? "$name: groups stay where exchanges take over 5 % longer"
}

part_offload()
{
    local path exchange fraction name
    local -a settings
    local modes=overlap+graph,overlap+graph+offload+delay

    for path in nccl copy host; do
        exchange=$path
        settings=(GRAPHHOOKS_LOG=info)
        # NCCL by way of the host's memory, over the link of the copies.
        [ $path != host ] || exchange=nccl
        [ $path != host ] || settings+=(NCCL_P2P_DISABLE=1)
        for fraction in 1 auto; do
            name="offload $fraction, exchange $path"
            # shellcheck disable=SC2046
            engine "$name" "${settings[@]}" GRAPHHOOKS_OVERLAP=auto \
                GRAPHHOOKS_OFFLOAD_FRACTION=$fraction -- $(large) --steps 10 \
                --model moe --experts $((2 * ranks)) --ep "$ranks" \
                --exchange "$exchange" \
                --offload qkv_linear,core_attn,attn_proj,expert_fc1,moe_act \
                --compare "eager,$modes"
            [ $fraction != auto ] ||
                policy "$out/$part/$(echo "$name" | tr -c 'a-zA-Z0-9\n' -).txt" \
                    "$name"
        done
        [ -z "$brief" ] || break
    done
    grep -H '^overlap+graph.*\(yes$\|groups go;\)' "$out/$part"/offload*.txt |
        sed 's|.*/||' | tee "$out/$part/table.txt"
    return 0
}

part_trace()
{
    # shellcheck disable=SC2046
    engine "trace" GRAPHHOOKS_OVERLAP=auto -- $(large) --steps 4 --model moe \
        --experts $((2 * ranks)) --ep "$ranks" --exchange copy \
        --compare eager,overlap+graph --trace "$out/$part/overlap.json"
    grep -q '"ph":"X"' "$out/$part/overlap.json" &&
        gzip -f "$out/$part/overlap.json"
    check $? "there is a timeline of overlap"
}
