# several-gpus-checks.sh - what the parts of several-gpus.sh share.
#
# several-gpus-parts.sh sources it.  A check is a line of
# $out/checks.tsv: part, "ok" or "FAILED", what.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154 # several-gpus.sh sets them

# check STATUS WHAT: writes a check down.  One that cannot be written would not
# count, so that the part ends there.
check()
{
    local word=ok

    [ "$1" -eq 0 ] || word=FAILED
    echo "$word: $2"
    if ! printf '%s\t%s\t%s\n' "$part" $word "$2" >> "$out/checks.tsv"; then
        echo "$out/checks.tsv cannot be written; give a disk with room"
        exit 1
    fi
    [ "$1" -eq 0 ]
}

is_soft()
{
    [ "$driver" = soft ]
}

# bench NAME FILE OPTION...: bench/NAME on all ranks, to $out/bench/FILE.json,
# in which every rank has a device of its own, and NCCL is there.
bench()
{
    local name=$1 file=$out/bench/$2.json rc
    local -a options=(--driver "$driver" --ranks "$ranks" --json "$file")
    shift 2

    [ -z "$brief" ] || options+=("$brief")
    [ -z "$brief" ] && ! is_soft || options+=(--rounds 2)
    [ -z "$nccl" ] || options+=(--nccl "$nccl")
    [ -z "$cublas" ] || options+=(--cublas "$cublas")
    (cd "$build" && "./bench/$name" "${options[@]}" "$@")
    rc=$?
    check $rc "bench/$name runs" || return 1
    grep -q "\"ranks\": $ranks, \"devices\": $ranks," "$file"
    check $? "bench/$name: each of $ranks ranks has a device of its own" ||
        return 1
    grep -q '"nccl": [1-9]' "$file"
    check $? "bench/$name: there is an NCCL"
}

# compares FILE WHAT: it has measured both NCCL and copies, whose numbers are
# the same.
compares()
{
    grep -q '"by": "nccl"' "$1" && grep -q '"by": "copy"' "$1"
    check $? "$2: copies and NCCL are measured"
    same_bits "$1"
    check $? "$2: the same numbers by copies and by NCCL"
}

# same_bits FILE: it says so, and nowhere the contrary.
same_bits()
{
    grep -q '"bitwise_equal": true' "$1" &&
        ! grep -q '"bitwise_equal": false' "$1"
}

# The lines of bench/table.py for what is there; a target that is missed is
# said by status 1, and is no failure of the part.  Python ends so as well, and
# then says why.
table()
{
    local rc file

    if command -v python3 > /dev/null; then
        mkdir -p "$out/$part"
        for file; do
            cp "$out/bench/$file.json" "$out/$part/"
        done
        python3 "$tree/bench/table.py" "$out/$part" 2> "$out/$part/error.txt" |
            tee "$out/$part/table.txt"
        rc=${PIPESTATUS[0]}
        for file; do
            rm "$out/$part/$file.json"
        done
        cat "$out/$part/error.txt"
        [ "$rc" -le 1 ] && [ ! -s "$out/$part/error.txt" ] &&
            rm "$out/$part/error.txt"
        check $? "bench/table.py reads it (status $rc)"
    else
        mkdir -p "$out/$part"
        echo "targets not judged: no python3" | tee "$out/$part/table.txt"
    fi
}

# value OPTION ARGUMENT...: what is given to the last OPTION, if it is there.
value()
{
    local option=$1 found=

    shift
    while [ $# -gt 1 ]; do
        [ "$1" != "$option" ] || found=$2
        shift
    done
    echo "$found"
}

# lacks FILE MODES EXCHANGE ORDER: says the first thing that gh-engine's FILE
# does not have, if any: exactly MODES, each with losses and a hash; replays in
# a mode with graphs; and the EXCHANGE and the ORDER, where given.  The order
# auto is the fixed one for a pair that has no better.
lacks()
{
    awk -v modes="$2" -v asked_exchange="$3" -v asked_order="$4" '
        function miss(what) {
            if (!missed++) print (name == "" ? "" : name ": ") what
        }
        function end_mode() {
            if (name == "") return
            if (!losses) miss("no losses")
            if (!hash) miss("no hash of the weights")
            if (name ~ /graph/ && !replays) miss("nothing was replayed")
            if (asked_exchange != "" && (exchange != asked_exchange ||
                !bytes[exchange])) miss("no exchange by " asked_exchange)
            if (asked_order != "" && name ~ /overlap/ &&
                !index(" " orders[asked_order] " ", " " order " "))
                miss("the order is not " asked_order)
            name = ""
        }
        BEGIN {
            orders["off"] = "off"
            orders["fixed"] = "fixed"
            orders["auto"] = "fixed auto"
            split("off fixed auto", names, " ")
        }
        { sub(/,$/, "") }
        $1 == "\"modes\":" { within = 1 }
        !within { next }
        $1 == "\"name\":" {
            end_mode()
            name = $2
            gsub(/"/, "", name)
            all = all (all == "" ? "" : ",") name
            losses = hash = replays = 0
            exchange = order = ""
            split("", bytes)
        }
        /"loss": \[[-+.e0-9, ]*[0-9]\]/ { losses = 1 }
        $1 == "\"weights_hash\":" { hash = 1 }
        $1 == "\"replays\":" { replays = $2 }
        $1 == "\"exchange\":" { exchange = $2; gsub(/"/, "", exchange) }
        $1 == "\"exchange_copy_bytes\":" { bytes["copy"] = $2 }
        $1 == "\"exchange_nccl_bytes\":" { bytes["nccl"] = $2 }
        $1 == "\"order\":" { order = names[$2 + 1] }
        END {
            end_mode()
            if (all != modes) miss("modes are \"" all "\"")
        }' "$1"
}

# engine NAME [VARIABLE=VALUE...] -- OPTION...: trains, and checks that all
# modes of --compare have the same bits, and have done what was asked for.
# Ranks are processes on GPUs, or threads where $threads is set.
engine()
{
    local name=$1 rc file said order=
    local -a settings=() options=(--driver "$driver" --ranks "$ranks" --quiet)
    shift

    while [ "$1" != -- ]; do
        [ "${1%%=*}" != GRAPHHOOKS_OVERLAP ] || order=${1#*=}
        settings+=("$1")
        shift
    done
    shift
    file=$out/$part/$(echo "$name" | tr -c 'a-zA-Z0-9\n' -)
    if ! is_soft; then
        options+=(--limit 45)
        [ -n "${threads-}" ] || options+=(--processes)
    fi
    [ -z "$nccl" ] || options+=(--nccl "$nccl")
    echo "$name: ${settings[*]} ./gh-engine ${options[*]} $*"
    (cd "$build" && env "${settings[@]}" timeout --foreground \
        -k 5 80 ./gh-engine \
        "${options[@]}" --json "$file.json" "$@") > "$file.txt" 2>&1
    rc=$?
    if [ $rc -ne 0 ] || ! same_bits "$file.json"; then
        check 1 "$name: bitwise equal (status $rc)" || tail -n 4 "$file.txt"
        return 1
    fi
    said=$(lacks "$file.json" "$(value --compare "$@")" \
        "$(value --exchange "$@")" "$order") ||
        said="its results cannot be read"
    [ -z "$said" ]
    check $? "$name: ${said:-bitwise equal (status $rc)}"
}

# The numbers of ranks that divide them all: 1,2,4.
divisors()
{
    local n list=1

    for ((n = 2; n <= ranks; n++)); do
        [ $((ranks % n)) -ne 0 ] || list=$list,$n
    done
    echo "$list"
}
