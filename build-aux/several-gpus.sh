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
#     nccl      tests/nccl, tests/session/ranks, tests/exchange on NCCL
#     exchange  bench/exchange: the rate of copies, bare ones and NCCL's
#     overlap   bench/overlap --ranks N: copies and NCCL on the same shapes
#     scale     bench/scale of the times of those nodes
#     ep        gh-engine --ep N: orders and exchanges, equal bit for bit
#     uneven    the same where one rank has most tokens
#     banks     gh-engine --cp 1,..,N: dynamic, graphs and eager
#     all       --cp, --ep, overlap and offload at once
#     tokens    tokens a second of dynamic and of fixed numbers of ranks
#     pipeline  gh-engine --pp N: a stage on each GPU, under each schedule
#     beside    bench/beside: copies to the host beside operations of ranks
#     offload   what the offload's policy makes of that, on three paths
#     trace     a timeline of overlap
#
# OUT/PART.log is a part's log, OUT/PART/ its results, OUT/bench/ what
# bench/table.py reads, and after each part OUT/summary.json and
# OUT/table.txt say what is done, so that a run that is cut off has lost only
# the part that ran.  A part that fails or is too slow does not stop the next.
# OUT is a folder of its own: new, empty, or of an earlier call with the same
# tarball, ranks, driver and --brief, whose results stay until the same part
# begins again.  One call at a time works in OUT, and in the folder of --work.
#
# The caller's GRAPHHOOKS_*, SOFTCUDA_* and SOFTNCCL_* are unset, as they change
# what runs.  NCCL_* stay, other than those set below.
#
# Exit status: 0 when no part of this call has failed; 1 when one has, none has
# passed, or OUT or FILE could not be written; 2 when the call is refused; 3
# when a part lacked time and none has failed; 130 when it was cut off.
#
#     --parts A,B,..  these parts alone, in the order above
#     --budget S      seconds for all of it (1200): a part gets what is left of
#                     it at most, and is skipped when that is too little.
#                     Where a call may not take so long, give --parts in two
#                     calls with the same --work
#     --limit PART=S  seconds for a part
#     --work DIR      where it is built (build/several); what was built of the
#                     same tarball is kept, and is used without the part build
#     --build DIR     a build that is there, in place of making one
#     --pack FILE     OUT as FILE, a .tar.gz, anew after each part
#     --nccl PATH     default: what NVIDIA's package for Python has, else
#                     what the loader finds
#     --cublas PATH   likewise
#     --driver soft   on the software device, small, to see that it works
#     --brief         a part of each part
#
# Needs gcc, make and flock; Python for the tables.  NVLink multicast stays off.
#
# SPDX-License-Identifier: Apache-2.0
set -fuo pipefail # no globs: what is given has words only

# What a caller's environment must not decide.
unset "${!GRAPHHOOKS_@}" "${!SOFTCUDA_@}" "${!SOFTNCCL_@}" CDPATH BASH_ENV ENV
unset limit result seconds counts locks threads
SECONDS=0
declare -a locks=()
declare -A result=() seconds=()

mark=graphhooks-several
all_parts="build machine nccl exchange overlap scale ep uneven banks all"
all_parts="$all_parts tokens pipeline beside offload trace"
declare -A limit=([build]=200 [machine]=30 [nccl]=240 [exchange]=60
    [overlap]=150 [scale]=20 [ep]=260 [uneven]=150 [banks]=80 [all]=60
    [tokens]=80 [pipeline]=120 [beside]=40 [offload]=180 [trace]=40)
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
    -*) [ $# -ge 2 ] || die "$1 needs a value; --help lists the options" ;;
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
for word; do
    [[ $word != -* ]] || die "$word comes after \"$1\"; give options first"
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
[ -n "$parts" ] || die "--parts names none; there are $all_parts"
builds=
[[ " $parts " != *" build "* ]] || builds=yes

# library OPTION PATH: the path, absolute, of a file that is there.
library()
{
    [ -n "$2" ] || return 0
    [[ -f $2 && -r $2 ]] ||
        die "$1 is \"$2\"; give a file that is there and can be read"
    realpath -s "$2"
}

nccl=$(library --nccl "$nccl") || exit 2
cublas=$(library --cublas "$cublas") || exit 2

# ---- where ---------------------------------------------------------------

[ -f "$1" ] || [ -d "$1" ] || die "$1 is not there; make dist makes a tarball"
from=$(realpath "$1") && out=$(realpath -m "$2") || exit 2
if [ -f "$from" ]; then
    source=$(cksum < "$from") || exit 2
else
    source="folder $from"
fi
ranks=${3-}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=build-aux/several-gpus-out.sh
. "$here/build-aux/several-gpus-out.sh"
# shellcheck source=build-aux/several-gpus-parts.sh
. "$here/build-aux/several-gpus-parts.sh"

if [ -n "$given_build" ]; then
    build=$(realpath "$given_build") || exit 2
    tree=$from
    [ -x "$build/gh-engine" ] ||
        die "$build has no gh-engine; run make there, or leave out --build"
else
    work=$(realpath -m "${work:-build/several}") || exit 2
    tree=$work/tree
    build=$work/build
    [ -z "$builds" ] || [ -f "$from" ] || [ -x "$from/configure" ] ||
        die "$from has no configure; run autoreconf -i there, or give the" \
            "tarball of make dist"
fi

# apart PATH DIR: PATH is not in DIR, of which the script removes folders.
apart()
{
    [[ $1/ != "$2"/* ]] ||
        die "$1 is in $2, where folders are removed; give another folder"
}

for place in "$from" "$tree" "$build"; do
    apart "$place" "$out"
done
if [ -n "$pack" ]; then
    [ -d "$(dirname "$pack")" ] ||
        die "--pack is \"$pack\"; there is no folder $(dirname "$pack")"
    pack=$(realpath -m "$pack") || exit 2
    [ ! -e "$pack" ] || [ -f "$pack" ] ||
        die "--pack is \"$pack\", which is no file; give the name of one"
    [ "$pack" != "$from" ] ||
        die "--pack is the tarball; give the name of another file"
    apart "$pack" "$out"
fi
if [ -z "$given_build" ]; then
    for place in "$from" "$out" ${pack:+"$pack"}; do
        apart "$place" "$tree"
        apart "$place" "$build"
    done
    [ -f "$work/$mark" ] ||
        [ -z "$(ls -d "$tree" "$build" 2> /dev/null)" ] ||
        die "$work has a tree or a build that this script has not made; give" \
            "another --work"
fi
if [ ! -f "$out/$mark" ] && [ -n "$(ls -A "$out" 2> /dev/null)" ]; then
    die "$out is not empty and not of an earlier call; give another folder"
fi
jobs=$(nproc)
is_brief=false
[ -z "$brief" ] || is_brief=true

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
export out build tree work from source mark ranks gpus driver brief nccl cublas
export here jobs given_build

# ---- main ----------------------------------------------------------------

good=0
bad=0
short=0 # of time
unwritten=0

# kill_group LEADER: what a part has left behind.
kill_group()
{
    kill -KILL -- "-$1" 2> /dev/null
}

# Runs a part; sets its result and seconds, and for this call $line and $took.
run_part()
{
    local most rc left=$((budget - SECONDS))

    export part=$1
    began=$SECONDS

    most=${limit[$part]}
    [ "$most" -le $left ] || most=$left
    if [ "$most" -lt $least ]; then
        line="skipped: no time left"
        took=0
        if [ -z "${result[$part]-}" ]; then
            result[$part]=$line
            seconds[$part]=0
        fi
        short=$((short + 1))
        return
    fi
    drop "$part" && write_out && mkdir -p "$out/$part"
    rc=$?
    if [ $rc -eq 0 ]; then
        (
            for lock in "${locks[@]}"; do
                exec {lock}>&-
            done
            exec timeout -k 5 "$most" bash -uo pipefail -c \
                ". \"\$here/build-aux/several-gpus-parts.sh\"; part_$part"
        ) > "$out/$part.log" 2>&1 < /dev/null &
        child=$!
        wait $child
        rc=$?
        kill_group $child # that of timeout
        child=
        rmdir "$out/$part" 2> /dev/null
    fi
    took=$((SECONDS - began))
    seconds[$part]=$took
    case $rc in
    0) result[$part]=passed ;;
    77) result[$part]="skipped: $(tail -n 1 "$out/$part.log")" ;;
    124 | 137) result[$part]="failed: over $most s" ;;
    *) result[$part]="failed" ;;
    esac
    tally
    [ $rc -ne 0 ] || [ -n "${counts["$part ok"]-}" ] ||
        result[$part]="failed: no check"
    [ -z "${counts["$part FAILED"]-}" ] || result[$part]=failed
    [ "$part" != build ] || [ -x "$build/gh-engine" ] ||
        [ "${result[build]}" != passed ] ||
        result[build]="failed: no gh-engine"
    line=${result[$part]}
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
    write_out
    write_pack
    echo "$table"
    exit 130
}

child=
if [ -z "$given_build" ]; then
    mkdir -p "$work" || exit 2
    lock "$work"
    [ -n "$builds" ] || is_built ||
        die "$work has no whole build of $from; run the part build too, or" \
            "give another --work"
fi
take_out
trap cut_off INT TERM HUP QUIT
trap : PIPE # whoever reads what it says may go; parts have the default
for one in $parts; do
    run_part "$one"
    write_out
    write_pack
    printf '%-10s %-28s %4d s\n' "$one" "$line" $took
    case $line in
    failed*)
        bad=$((bad + 1))
        [ ! -f "$out/$one.log" ] || tail -n 12 "$out/$one.log" | sed 's/^/    /'
        ;;
    passed) good=$((good + 1)) ;;
    esac
    if [ "$one" = build ]; then
        [ -x "$build/gh-engine" ] || break
        # What is there was built of something else.
        [[ $line != skipped* ]] || [ -n "$given_build" ] || is_built || break
    fi
done
echo
echo "$table"
[ $unwritten -eq 0 ] || exit 1
[ $bad -gt 0 ] || [ $short -eq 0 ] || exit 3
[ $bad -eq 0 ] && [ $good -gt 0 ]
