#!/bin/sh
# run.sh - everything that is measured, and one table at the end.
#
#     bench/run.sh OUTDIR [cuda|soft]
#
# Run it in the build directory.  OUTDIR gets a JSON file for each bench and
# table.txt.  On the software device the numbers say nothing about a GPU; it
# shows that the programs work.
#
# SPDX-License-Identifier: Apache-2.0
set -eu

out=${1:?usage: run.sh OUTDIR [cuda|soft]}
driver=${2:-cuda}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$out"

rounds=
[ "$driver" = cuda ] || rounds="--rounds 20"

echo "hook_overhead" >&2
# shellcheck disable=SC2086 # two words or none
./bench/hook_overhead --driver "$driver" $rounds \
    --json "$out/hook_overhead.json"
echo "record_cost" >&2
# shellcheck disable=SC2086
./bench/record_cost --driver "$driver" $rounds \
    --json "$out/record_cost.json"
echo "plan_cost" >&2
./bench/plan_cost --json "$out/plan_cost.json"
echo "open_cost" >&2
./bench/open_cost --driver "$driver" --json "$out/open_cost.json"
if command -v valgrind > /dev/null 2>&1; then
    echo "hook_instructions" >&2
    "$here/hook_instructions.sh" ./bench/hook_overhead \
        > "$out/hook_instructions.json"
else
    echo "hook_instructions: left out, there is no valgrind" >&2
fi
echo "banks" >&2
# shellcheck disable=SC2086
./bench/banks --driver "$driver" $rounds --json "$out/banks.json"
if command -v valgrind > /dev/null 2>&1; then
    "$here/hook_instructions.sh" ./bench/banks > "$out/banks_select.json"
fi
echo "offload" >&2
few=
[ "$driver" = cuda ] || few="--rounds 2"
# shellcheck disable=SC2086
./bench/offload --driver "$driver" $few --json "$out/offload.json"
# shellcheck disable=SC2086
./bench/offload_cost --driver "$driver" $few --json "$out/offload_cost.json"
echo "overlap" >&2
# shellcheck disable=SC2086
./bench/overlap --driver "$driver" $few --json "$out/overlap.json" \
    --costs "$out/overlap.costs"
echo "exchange" >&2
# shellcheck disable=SC2086
"$here/exchange.sh" --driver "$driver" $few --json "$out/exchange.json"
./bench/stash --driver "$driver" --json "$out/stash.json"
./bench/scale --costs "$out/overlap.costs" --json "$out/scale.json"
"$here/step.sh" "$out" "$driver"
"$here/models.sh" "$out" "$driver"

status=0
"$here/table.py" "$out" > "$out/table.txt" || status=$?
cat "$out/table.txt"
exit $status
