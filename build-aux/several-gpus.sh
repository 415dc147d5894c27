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
# OUT is a folder of its own: one that is new, empty or of an earlier call with
# as many ranks.  Parts of earlier calls stay in both files.
#
# Exit status: 0 when no part of this call has failed; 1 when one has, or none
# has passed; 2 when the call is refused; 3 when a part was skipped for lack of
# time and none has failed; 130 when it was cut off.
#
#     --parts A,B,..  these parts alone, in the order above
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

listed=
for part in $all_parts; do
    [[ " $parts " != *" $part "* ]] || listed="$listed $part"
done
parts=${listed# }

[ -e "$1" ] || die "$1 is not there; make dist makes a tarball"
[ -z "$pack" ] || [ -d "$(dirname "$pack")" ] ||
    die "--pack is \"$pack\"; there is no folder $(dirname "$pack")"
from=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
mkdir -p "$2" || exit 2
out=$(cd "$2" && pwd)
# Folders in it are removed, so that all in it has to be of this script.
if [ -n "$(ls -A "$out")" ]; then
    if [ ! -f "$out/checks.tsv" ] ||
        grep -Evq $'^[a-z]+\t(ok|FAILED)\t' "$out/checks.tsv"; then
        die "$out is not empty and not of an earlier call; give another folder"
    fi
fi
ranks=${3-}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
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
for place in "$from" "$tree" "$build"; do
    [[ $place/ != "$out"/* ]] ||
        die "$place is in $out, where folders are removed; give another folder"
done
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

[ ! -s "$out/ranks" ] || [ "$(cat "$out/ranks")" = "$ranks $driver" ] ||
    die "$out has parts of other ranks or another driver; give another folder"

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
short=0 # of time

write_summary()
{
    local part first=1

    for part in $all_parts; do
        [ -z "${result[$part]-}" ] ||
            printf '%s\t%d\t%s\n' "$part" "${seconds[$part]}" \
                "${result[$part]}"
    done > "$out/parts.tsv"
    {
        printf '{"driver": "%s", "ranks": %s, "gpus": %s, "parts": [\n' \
            "$driver" "$ranks" "$gpus"
        for part in $all_parts; do
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

# What has missed a target of bench/README.md, or was not judged by it.
missed()
{
    local part some="MISSED\|NOT bitwise\|targets not judged"

    for part in $all_parts; do
        [ ! -s "$out/$part/table.txt" ] ||
            sed -n "s/^\(.*\($some\).*\)/  $part: \1/p" \
                "$out/$part/table.txt" | tr -s ' ' | sed 's/^ /  /'
    done
}

write_table()
{
    local part n passed=0 failed=0 skipped=0

    {
        printf '%-10s %-28s %7s  %s\n' part result seconds checks
        for part in $all_parts; do
            [[ -n ${result[$part]-} || " $parts " = *" $part "* ]] || continue
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

# Takes the parts of earlier calls, less those that run now, of which nothing
# is left.
take_earlier()
{
    local part length said file

    mkdir -p "$out/bench" || exit 2
    echo "$ranks $driver" > "$out/ranks"
    touch "$out/checks.tsv" "$out/parts.tsv"
    for file in checks parts; do
        awk -F'\t' -v parts=" $parts " '!index(parts, " " $1 " ")' \
            "$out/$file.tsv" > "$out/$file.new" &&
            mv "$out/$file.new" "$out/$file.tsv" || exit 2
    done
    for part in $parts; do
        rm -rf "${out:?}/$part" "$out/$part.log"
    done
    while IFS=$'\t' read -r part length said; do
        result[$part]=$said
        seconds[$part]=$length
    done < "$out/parts.tsv"
}

# kill_group LEADER: what a part has left behind.
kill_group()
{
    kill -KILL -- "-$1" 2> /dev/null
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
        short=$((short + 1))
        return
    fi
    mkdir -p "$out/$part"
    timeout -k 5 "$most" bash -uo pipefail -c "part_$part" \
        > "$out/$part.log" 2>&1 < /dev/null &
    child=$!
    wait $child
    rc=$?
    kill_group $child # that of timeout
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
    trap '' INT TERM HUP QUIT
    if [ -n "$child" ]; then
        kill "$child"
        wait "$child"
        kill_group "$child"
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
take_earlier
trap cut_off INT TERM HUP QUIT
trap : PIPE # whoever reads what it says may go; parts have the default
for one in $parts; do
    run_part "$one"
    if [ "$one" = build ] && [ ! -x "$build/gh-engine" ] &&
        [ "${result[build]}" = passed ]; then
        result[build]="failed: no gh-engine"
    fi
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
[ $bad -gt 0 ] || [ $short -eq 0 ] || exit 3
[ $bad -eq 0 ] && [ $good -gt 0 ]
