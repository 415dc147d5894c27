#!/bin/sh
# The benches run on the software device, where they measure nothing but
# whether they work; and the hooks stay short, which is counted there.
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"
scratch
cd "$builddir" || exit 99

# json FILE NAME: holds when FILE is JSON.
json()
{
    if have python3; then
        python3 -m json.tool "$1" > /dev/null
        ok $? "$2"
    else
        skip "no python3 to read JSON with"
    fi
}

./bench/hook_overhead --driver soft --rounds 5 --json "$scratch/h.json"
ok $? "hook_overhead runs"
json "$scratch/h.json" "hook_overhead writes JSON"
./bench/record_cost --driver soft --rounds 5 --json "$scratch/r.json"
ok $? "record_cost runs"
json "$scratch/r.json" "record_cost writes JSON"
./bench/hook_overhead --driver hip > "$scratch/out" 2>&1
[ $? -eq 3 ] && grep -q 'give cuda or soft' "$scratch/out"
ok $? "a driver that is none is refused with a sentence"

replays=$(./bench/hook_overhead --driver soft --callgrind --passes 10000 \
    --whole-steps)
[ "$replays" = "captured 10112 replayed 10112" ]
ok $? "10,000 captured passes are all replayed"

done_testing
