#!/bin/sh
# hook_instructions.sh - instructions of enter + exit around a replayed pass.
#
#     hook_instructions.sh [HOOK_OVERHEAD [OPTION...]]
#
# callgrind counts everything below bench_replay(), on the software device.
# What the library's calls into the driver cost is taken out again: it is the
# emulator's, and on a GPU the driver's own.  Printed as JSON: one pass when
# it is all that is captured, the same one among 10,000, and the mean of all
# 10,000 in whole steps; of bench/banks one of 1, of 1,000 and of 10,000 banks.
#
# SPDX-License-Identifier: Apache-2.0
set -eu

bench=${1:-./bench/hook_overhead}
[ $# -eq 0 ] || shift

if ! command -v valgrind > /dev/null 2>&1; then
    echo "hook_instructions.sh: there is no valgrind" >&2
    exit 3
fi

scratch=$(mktemp -d "${TMPDIR:-/tmp}/graphhooks.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 3' HUP INT TERM

# Reads a profile; prints instructions from bench_replay() into the library,
# and from the library into the driver.
sum()
{
    awk '
        /^ob=/ { object = substr($0, 4); callee_object = object }
        /^fn=/ { caller = substr($0, 4) }
        /^cob=/ { callee_object = substr($0, 5) }
        /^calls=/ {
            getline
            if (caller ~ /^bench_replay/ &&
                callee_object ~ /libgraphhooks\.so/) {
                hooks += $2
            }
            if (object ~ /libgraphhooks\.so/ &&
                callee_object ~ /softcuda/) {
                driver += $2
            }
            callee_object = object
        }
        END { print hooks + 0, driver + 0 }' "$1"
}

# Lazy binding would be counted into the first call of each function.
# PASSES WHAT [OPTION...]
count()
{
    passes=$1
    what=$2
    shift 2
    LD_BIND_NOW=1 valgrind --tool=callgrind --toggle-collect=bench_replay \
        --compress-strings=no --compress-pos=no \
        --callgrind-out-file="$scratch/profile" \
        "$bench" --driver soft --callgrind --passes "$passes" "$@" \
        > "$scratch/out" 2> "$scratch/err" || {
        cat "$scratch/out" "$scratch/err" >&2
        exit 3
    }
    read -r _ captured _ replayed < "$scratch/out"
    sum "$scratch/profile" | {
        read -r hooks driver
        if [ "$hooks" -eq 0 ] || [ "$driver" -eq 0 ]; then
            echo "hook_instructions.sh: nothing was counted" >&2
            exit 3
        fi
        echo "{\"captured_passes\": $captured, \"counted\": \"$what\"," \
            "\"replays\": $replayed," \
            "\"instructions\":" \
            "$(((hooks - driver + replayed / 2) / replayed))}"
    }
}

echo '{"bench": "hook_instructions", "driver": "soft", "cases": ['
count 1 "first of a step" "$@"
echo ','
if [ "${bench##*/}" = banks ]; then
    count 1000 "first of a step" "$@"
    echo ','
    count 10000 "first of a step" "$@"
else
    count 10000 "first of a step" "$@"
    echo ','
    count 10000 "whole steps" --whole-steps "$@"
fi
echo ']}'
