#!/usr/bin/env bash
# several-gpus.sh - everything that only a machine with several GPUs can
# answer, in one call.
#
#     build-aux/several-gpus.sh [OPTION]... TARBALL|SRCDIR OUT [N]
#
# N ranks, each with a GPU of its own; without it, as many as there are GPUs,
# up to 8.  Parts, in this order:
#
#     build     unpacks the tarball (or takes SRCDIR, which has a configure),
#               configures, makes the programs and the tests
#     machine   the GPUs, their links, NCCL
#     nccl      tests/nccl, tests/ranks and tests/exchange on NCCL
#     exchange  bench/exchange: the rate of copies, bare ones and NCCL's
#     overlap   bench/overlap --ranks N: copies and NCCL on the same shapes
#     scale     bench/scale of the times of those nodes
#     ep        gh-engine --ep N: orders and exchanges, equal bit for bit
#     uneven    the same where one rank has most tokens
#     banks     gh-engine --cp 1,..,N: dynamic, graphs and eager
#     all       --cp, --ep, overlap and offload at once
#     tokens    tokens a second of dynamic and of fixed numbers of ranks
#     beside    bench/beside: copies to the host beside operations of ranks
#     offload   what the offload's policy makes of that, on three paths
#     trace     a timeline of overlap
#
# OUT/PART.log is a part's log, OUT/PART/ its results, OUT/bench/ what
# bench/table.py reads, and after each part OUT/summary.json and
# OUT/table.txt say what is done, so that a run that is cut off has lost only
# the part that ran.  A part that fails or is too slow does not stop the next.
# It exits 0 when no part has failed.
#
#     --parts A,B,..  these parts alone
#     --budget S      seconds for all of it (1200): a part gets what is left of
#                     it at most, and is skipped when that is too little.
#                     Where a call may not take so long, give --parts in two
#                     calls with the same --work
#     --limit PART=S  seconds for a part
#     --work DIR      where it is built (build/several); what was built of the
#                     same tarball is kept
#     --build DIR     a build that is there, in place of making one
#     --pack FILE     OUT as FILE, a .tar.gz, anew after each part
#     --nccl PATH     default: what NVIDIA's package for Python has, else
#                     what the loader finds
#     --cublas PATH   likewise
#     --driver soft   on the software device, small, to see that it works
#     --brief         a part of each part
#
# Needs gcc and make; Python for the tables.  NVLink multicast stays off.
#
# SPDX-License-Identifier: Apache-2.0
set -uo pipefail

all_parts="build machine nccl exchange overlap scale ep uneven banks all"
all_parts="$all_parts tokens beside offload trace"
declare -A limit=([build]=200 [machine]=30 [nccl]=240 [exchange]=60
    [overlap]=150 [scale]=20 [ep]=260 [uneven]=150 [banks]=80 [all]=60
    [tokens]=80 [beside]=40 [offload]=180 [trace]=40)
least=8 # seconds that a part is begun with

die()
{
    echo "several-gpus.sh: $*" >&2
    exit 2
}

usage()
{
    sed -n '2,/^# SPDX/{/SPDX/d;s/^# \{0,1\}//;p}' "$0"
}

parts=$all_parts
driver=cuda
budget=1200
brief=
work=
given_build=
pack=
nccl=
cublas=
while [ $# -gt 0 ]; do
    case $1 in
    --brief) brief=--brief; shift; continue ;;
    --help) usage; exit 0 ;;
    --*) [ $# -ge 2 ] || die "$1 needs a value; --help lists the options" ;;
    *) break ;;
    esac
    case $1 in
    --parts) parts=${2//,/ } ;;
    --budget) budget=$2 ;;
    --limit)
        if ! [[ $2 =~ ^([a-z]+)=([1-9][0-9]*)$ &&
            " $all_parts " = *" ${2%%=*} "* ]]; then
            die "--limit is \"$2\"; give a part and seconds, such as ep=60"
        fi
        limit[${2%%=*}]=${2#*=}
        ;;
    --work) work=$2 ;;
    --build) given_build=$2 ;;
    --pack) pack=$2 ;;
    --nccl) nccl=$2 ;;
    --cublas) cublas=$2 ;;
    --driver) driver=$2 ;;
    *) die "$1 is no option; --help lists them" ;;
    esac
    shift 2
done
if [ $# -lt 2 ] || [ $# -gt 3 ]; then
    usage >&2
    exit 2
fi
[[ $driver = cuda || $driver = soft ]] ||
    die "--driver is \"$driver\"; give cuda or soft"
[[ $budget =~ ^[1-9][0-9]*$ ]] || die "--budget is \"$budget\"; give seconds"
for part in $parts; do
    [[ " $all_parts " = *" $part "* ]] ||
        die "no part $part; there are $all_parts"
done

[ -e "$1" ] || die "$1 is not there; make dist makes a tarball"
from=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
mkdir -p "$2" || exit 2
out=$(cd "$2" && pwd)
ranks=${3-}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
mkdir -p "$out/bench" || exit 2
if [ -n "$given_build" ]; then
    build=$(cd "$given_build" && pwd) || exit 2
    tree=$from
else
    work=${work:-build/several}
    mkdir -p "$work" || exit 2
    work=$(cd "$work" && pwd)
    tree=$work/tree
    build=$work/build
fi
[ -n "$pack" ] && pack=$(cd "$(dirname "$pack")" && pwd)/$(basename "$pack")
jobs=$(nproc)

# The GPUs that this process may use.
count_gpus()
{
    local visible=${CUDA_VISIBLE_DEVICES-} n

    if [ "$driver" = soft ]; then
        echo 2
        return
    fi
    if [ -n "$visible" ]; then
        echo "$visible" | tr ',' '\n' | grep -c .
        return
    fi
    n=$(nvidia-smi -L 2> /dev/null | grep -c '^GPU ')
    [ "$n" -gt 0 ] || n=$(find /dev -maxdepth 1 -name 'nvidia[0-9]*' | wc -l)
    echo "$n"
}

gpus=$(count_gpus)
[ "$driver" = cuda ] || gpus=${ranks:-$gpus}
ranks=${ranks:-$((gpus < 8 ? gpus : 8))}
[[ $ranks =~ ^[2-8]$ ]] ||
    die "$ranks ranks; there are $gpus GPUs here, and 2 to 8 are needed"
[ "$ranks" -le "$gpus" ] ||
    die "$ranks ranks and $gpus GPUs; each rank needs one of its own"

# The first that can be loaded, of packages for Python and of CUDA's own;
# else nothing, and the programs ask the loader: NAME...
find_library()
{
    python3 - "$@" << 'EOF' 2> /dev/null
import ctypes, glob, os, sys

for name in sys.argv[1:]:
    places = [os.path.join(p, "nvidia", "*", "lib") for p in sys.path if p]
    for place in places + ["/usr/local/cuda/lib64"]:
        for path in sorted(glob.glob(os.path.join(place, name))):
            try:
                ctypes.CDLL(path)
            except OSError:
                continue
            print(path)
            sys.exit()
EOF
}

if [ "$driver" = cuda ]; then
    nccl=${nccl:-$(find_library libnccl.so.2)}
    cublas=${cublas:-$(find_library libcublas.so.13 libcublas.so.12)}
fi

# Multicast is off in whatever a part starts.
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1
export NVSHMEM_DISABLE_NVLS=1 PYTHONDONTWRITEBYTECODE=1
unset NCCL_MULTI_RANK_GPU_ENABLE NCCL_MAX_CTAS
export out build tree work from ranks gpus driver brief nccl cublas jobs
export given_build

# ---- what the parts share: each runs in a shell of its own ----------------
# shellcheck source=build-aux/several-gpus-parts.sh
. "$here/build-aux/several-gpus-parts.sh"
while read -r _ _ name; do
    export -f "${name?}"
done < <(declare -F)

# ---- main ----------------------------------------------------------------

declare -A result=() seconds=()
good=0
bad=0

write_summary()
{
    local part first=1

    {
        printf '{"driver": "%s", "ranks": %s, "gpus": %s, "parts": [\n' \
            "$driver" "$ranks" "$gpus"
        for part in $parts; do
            [ -n "${result[$part]-}" ] || continue
            [ $first = 1 ] || printf ',\n'
            first=0
            printf '  {"part": "%s", "result": "%s", "seconds": %d, ' \
                "$part" "${result[$part]}" "${seconds[$part]}"
            printf '"passed": %d, "failed": %d}' \
                "$(count ok "$part")" "$(count FAILED "$part")"
        done
        printf '\n]}\n'
    } > "$out/summary.json"
}

# count WORD [PART]: checks that ended so.
count()
{
    awk -F'\t' -v word="$1" -v part="${2-}" '
        $2 == word && (part == "" || $1 == part) { n++ }
        END { print n + 0 }' "$out/checks.tsv"
}

# What has missed a target of bench/README.md.
missed()
{
    local part

    for part in $parts; do
        [ ! -s "$out/$part/table.txt" ] ||
            sed -n "s/^\(.*MISSED.*\|.*NOT bitwise.*\)/  $part: \1/p" \
                "$out/$part/table.txt" | tr -s ' ' | sed 's/^ /  /'
    done
}

write_table()
{
    local part n passed=0 failed=0 skipped=0

    {
        printf '%-10s %-28s %7s  %s\n' part result seconds checks
        for part in $parts; do
            n=$(count ok "$part")
            case ${result[$part]:-not begun} in
            passed) passed=$((passed + 1)) ;;
            failed*) failed=$((failed + 1)) ;;
            *) skipped=$((skipped + 1)) ;;
            esac
            printf '%-10s %-28s %7d  %d of %d\n' "$part" \
                "${result[$part]:-skipped: not begun}" \
                "${seconds[$part]:-0}" "$n" \
                $((n + $(count FAILED "$part")))
        done
        awk -F'\t' '$2 == "FAILED" { print "  FAILED " $1 ": " $3 }' \
            "$out/checks.tsv"
        missed
        printf '%d parts: %d passed, %d failed, %d skipped; ' \
            $((passed + failed + skipped)) $passed $failed $skipped
        printf '%d checks passed, %d failed; %s ranks, driver %s\n' \
            "$(count ok)" "$(count FAILED)" "$ranks" "$driver"
    } > "$out/table.txt"
}

write_pack()
{
    [ -n "$pack" ] || return 0
    tar czf "$pack.part" -C "$(dirname "$out")" "$(basename "$out")" &&
        mv "$pack.part" "$pack"
}

# Runs a part; sets its result and seconds.
run_part()
{
    local most rc left=$((budget - SECONDS))

    export part=$1
    began=$SECONDS

    most=${limit[$part]}
    [ "$most" -le $left ] || most=$left
    if [ "$most" -lt $least ]; then
        result[$part]="skipped: no time left"
        seconds[$part]=0
        return
    fi
    rm -rf "${out:?}/$part" # of an earlier run
    mkdir -p "$out/$part"
    timeout -k 5 "$most" bash -uo pipefail -c "part_$part" \
        > "$out/$part.log" 2>&1 < /dev/null &
    child=$!
    wait $child
    rc=$?
    child=
    rmdir "$out/$part" 2> /dev/null
    seconds[$part]=$((SECONDS - began))
    case $rc in
    0) result[$part]=passed ;;
    77) result[$part]="skipped: $(tail -n 1 "$out/$part.log")" ;;
    124 | 137) result[$part]="failed: over $most s" ;;
    *) result[$part]="failed" ;;
    esac
    [ "$(count FAILED "$part")" -eq 0 ] || result[$part]=failed
}

# What runs is ended with all that it has started, and said.
cut_off()
{
    if [ -n "$child" ]; then
        kill "$child"
        wait "$child"
        result[$part]="failed: cut off"
        seconds[$part]=$((SECONDS - began))
    fi
    write_summary
    write_table
    write_pack
    cat "$out/table.txt"
    exit 130
}

child=
: > "$out/checks.tsv"
trap cut_off INT TERM
for one in $parts; do
    run_part "$one"
    write_summary
    write_table
    write_pack
    printf '%-10s %-28s %4d s\n' "$one" "${result[$one]}" "${seconds[$one]}"
    case ${result[$one]} in
    failed*)
        bad=$((bad + 1))
        tail -n 12 "$out/$one.log" | sed 's/^/    /'
        ;;
    passed) good=$((good + 1)) ;;
    esac
    if [ "$one" = build ] && [ ! -x "$build/gh-engine" ]; then
        break
    fi
done
echo
cat "$out/table.txt"
[ $bad -eq 0 ] && [ $good -gt 0 ]
