#!/bin/sh
# A trace has what the device did: graphs by stream, copies by way; and says
# whether they ran beside each other.
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"
scratch

have python3 || skip_all "no python3 to read JSON with"
driver=${GRAPHHOOKS_TEST_DRIVER:-soft}
[ "$driver" = soft ] ||
    skip_all "times are those of a schedule on the software device"

# costs COPY: each kernel takes 20 us, and a copy that many nanoseconds.
costs()
{
    printf '%s\n' 'kernel * 20000' 'launch 0' 'node 0' "copy out $1" \
        "copy back $1"
}

# train OPTION...: leaves $scratch/trace.json.
train()
{
    rm -f "$scratch"/trace*.json
    SOFTCUDA_COSTS=$scratch/costs "$builddir/gh-engine" --driver soft --quiet \
        --model gpt --layers 6 --hidden 16 --heads 2 --seq 8 --batch 1 \
        --steps 4 --microbatches 2 --compare eager,graph+offload \
        --offload core_attn --trace "$scratch/trace.json" "$@" \
        > "$scratch/out" 2>&1 || diag "gh-engine $*"
}

look()
{
    python3 "$srcdir/bench/offload_trace.py" "$scratch/trace.json" "$@" \
        > "$scratch/said" 2>&1
}

# count TEXT: lines of the trace that have it.
count()
{
    grep -c "$1" "$scratch/trace.json"
}

# A layer takes 200 us; its group is there after 120, and goes in 150.
costs 150000 > "$scratch/costs"
train
look --at-least 20
ok $? "copies begin before the graph that writes them has ended, and run beside the next"
diag < "$scratch/said"
# Of three recorded and replayed steps, 5 of 6 layers each, twice.
[ "$(count '"cat":"out"')" -eq 42 ]
ok $? "every copy to the host is there"
grep -q '"name":"out layer 0, core_attn mb1","cat":"out","args":{"layer":0,"module":"core_attn","bytes":2048,"slot":1,"microbatch":1}' \
    "$scratch/trace.json"
ok $? "with layer, module, microbatch, slot and bytes"
[ "$(count '"cat":"back"')" -eq 42 ]
ok $? "and every copy back"
[ "$(count '"cat":"graph"')" -eq 72 ]
ok $? "and every launch of a graph"
for lane in 'copies to the host' 'copies back to the device' \
    'graphs on stream 0'; do
    [ "$(count "\"args\":{\"name\":\"$lane, session 1\"}")" -eq 1 ]
    ok $? "'$lane' is a lane of its own"
done
python3 - "$scratch/trace.json" << 'END'
import json, sys
ends = {}
for event in json.load(open(sys.argv[1])):
    if event["ph"] == "X" and event["tid"] >= 1000:
        # Microseconds, of which three digits are written.
        if event["ts"] < ends.get(event["tid"], 0) - 0.0005:
            sys.exit(f"{event['name']} begins before the one before ends")
        ends[event["tid"]] = event["ts"] + event["dur"]
sys.exit(len(ends) != 3)
END
ok $? "on each lane one follows the other"

train --streams 2
[ "$(count 'graphs on stream 1, session 1')" -eq 1 ]
ok $? "each stream of the host's has a lane"

costs 1500 > "$scratch/costs"
train
look
[ $? -eq 1 ] && grep -q '^30 copies .*: 30 began .*, 0 had the next' \
    "$scratch/said"
ok $? "copies that are over at once have no graph beside them"

# The layer is over before a copy of 60 us that waits for its turn begins.
costs 900000 > "$scratch/costs"
GRAPHHOOKS_GRANULARITY=part train
look
grep -q 'copies to the host behind graphs' "$scratch/said"
ok $? "parts have graphs of their own"

echo '{}' > "$scratch/trace.json"
look
[ $? -eq 2 ]
ok $? "what is no trace is refused"

done_testing
