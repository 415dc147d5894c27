# several-gpus-out.sh - OUT of several-gpus.sh, which sources it: whose it is,
# and what it says of the parts.
#
# A folder of the script, OUT or that of --work, has a file $mark.  The call
# that works there holds a lock on it, which ends with the call however that
# ends.  In OUT the file says what all parts are of; in the folder of --work
# what was built whole there, and is empty where nothing was.
#
# checks.tsv grows by a line for each check.  The other files are replaced
# whole, each time.  $unwritten says that one of them could not be.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154,SC2034 # several-gpus.sh has them

declare -A counts=()
not_begun="skipped: not begun"

# lock DIR: this call works there, until it ends.
lock()
{
    local descriptor

    exec {descriptor}>> "$1/$mark" || exit 2
    flock -n "$descriptor"
    case $? in
    0) ;;
    1) die "another call works in $1; wait for it, or give another folder" ;;
    *) die "$1/$mark cannot be locked; give a folder on a local disk" ;;
    esac
    locks+=("$descriptor")
}

# What all parts of an OUT have in common.
describe_call()
{
    printf '%s\t%s\n' ranks "$ranks" driver "$driver" \
        brief "$is_brief" cksum "$source"
}

# Takes OUT, which is new or has parts that go with those of this call.
take_out()
{
    local key value ours

    mkdir -p "$out" || exit 2
    lock "$out"
    if [ ! -s "$out/checks.tsv" ] && [ ! -s "$out/parts.tsv" ]; then
        describe_call > "$out/$mark" || exit 2
    fi
    while IFS=$'\t' read -r key value; do
        ours=$(describe_call | sed -n "s/^$key\t//p")
        [ "$ours" = "$value" ] ||
            die "$out has parts with $key \"$value\", and this call" \
                "has \"$ours\"; give another folder"
    done < "$out/$mark"
    mkdir -p "$out/bench" && touch "$out/checks.tsv" "$out/parts.tsv" || exit 2
    while IFS=$'\t' read -r key value ours; do
        result["$key"]=$ours
        seconds["$key"]=$value
    done < "$out/parts.tsv"
}

# put FILE: its standard input, whole or not at all.
put()
{
    if ! { cat > "$out/$1.new" && mv -T "$out/$1.new" "$out/$1"; }; then
        echo "several-gpus.sh: $out/$1 cannot be written; give a disk with room"
        return 1
    fi >&2
}

# drop PART: what an earlier call has left of it.
drop()
{
    unset "result[$1]" "seconds[$1]"
    rm -rf "${out:?}/$1" "$out/$1.log" "$out/bench/$1.json" \
        "$out/bench/$1.costs" || return 1
    grep -q "^$1"$'\t' "$out/checks.tsv" || return 0
    awk -F'\t' -v part="$1" '$1 != part' "$out/checks.tsv" | put checks.tsv
}

# Counts the checks that have passed and failed, of each part and of all.
tally()
{
    local part word key

    counts=()
    while IFS=$'\t' read -r part word _; do
        for key in "$part $word" "every $word"; do
            counts["$key"]=$((${counts["$key"]:-0} + 1))
        done
    done < "$out/checks.tsv"
}

# The parts that both summary.json and table.txt list: those of this call, and
# of earlier ones.
listed_parts()
{
    local part

    for part in $all_parts; do
        [[ -z ${result[$part]-} && " $parts " != *" $part "* ]] ||
            echo "$part"
    done
}

json_text()
{
    local text=${1//\\/\\\\}

    text=${text//\"/\\\"}
    printf '"%s"' "${text//[[:cntrl:]]/ }"
}

list_results()
{
    local part

    for part in $all_parts; do
        [ -z "${result[$part]-}" ] ||
            printf '%s\t%d\t%s\n' "$part" "${seconds[$part]}" \
                "${result[$part]//[[:cntrl:]]/ }"
    done
}

summarize()
{
    local part comma=

    printf '{"driver": "%s", "ranks": %s, "gpus": %s, "brief": %s,\n' \
        "$driver" "$ranks" "$gpus" "$is_brief"
    printf '"source": %s, "cksum": %s, "parts": [' \
        "$(json_text "$(basename "$from")")" "$(json_text "$source")"
    for part in $(listed_parts); do
        printf '%s\n  {"part": "%s", "result": %s, "seconds": %d, ' \
            "$comma" "$part" "$(json_text "${result[$part]:-$not_begun}")" \
            "${seconds[$part]:-0}"
        printf '"passed": %d, "failed": %d}' \
            "${counts["$part ok"]:-0}" "${counts["$part FAILED"]:-0}"
        comma=,
    done
    printf '\n]}\n'
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

tabulate()
{
    local part n passed=0 failed=0 skipped=0

    printf '%-10s %-28s %7s  %s\n' part result seconds checks
    for part in $(listed_parts); do
        n=${counts["$part ok"]:-0}
        case ${result[$part]-} in
        passed) passed=$((passed + 1)) ;;
        failed*) failed=$((failed + 1)) ;;
        *) skipped=$((skipped + 1)) ;;
        esac
        printf '%-10s %-28s %7d  %d of %d\n' "$part" \
            "${result[$part]:-$not_begun}" "${seconds[$part]:-0}" "$n" \
            $((n + ${counts["$part FAILED"]:-0}))
    done
    awk -F'\t' '$2 == "FAILED" { print "  FAILED " $1 ": " $3 }' \
        "$out/checks.tsv"
    missed
    printf '%d parts: %d passed, %d failed, %d skipped; ' \
        $((passed + failed + skipped)) $passed $failed $skipped
    printf '%d checks passed, %d failed; %s ranks, driver %s\n' \
        "${counts["every ok"]:-0}" "${counts["every FAILED"]:-0}" "$ranks" \
        "$driver"
}

# What stands of all parts, in $table too, which is there where OUT is full.
write_out()
{
    tally
    list_results | put parts.tsv || unwritten=1
    summarize | put summary.json || unwritten=1
    table=$(tabulate)
    printf '%s\n' "$table" | put table.txt || unwritten=1
}

write_pack()
{
    [ -n "$pack" ] || return 0
    if ! { tar czf "$pack.part" -C "$(dirname "$out")" "$(basename "$out")" &&
        mv -T "$pack.part" "$pack"; }; then
        echo "several-gpus.sh: $pack cannot be written; give another --pack"
        unwritten=1
    fi >&2
}
