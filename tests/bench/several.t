#!/bin/sh
# build-aux/several-gpus.sh: all of its parts, small, on the software device;
# and what it does with parts that fail, on programs that stand in for ours.
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"
scratch
have bash || skip_all "there is no bash"
script=$srcdir/build-aux/several-gpus.sh
unset CUDA_VISIBLE_DEVICES

# several OPTION...: the status, and what it says in $scratch/said.
several()
{
    bash "$script" "$@" > "$scratch/said" 2>&1
    status=$?
}

# says LINE NAME: a line of what it has said matches, with any spaces.
says()
{
    tr -s ' ' < "$scratch/said" | grep -q -- "$1"
    held=$?
    ok $held "$2"
    [ $held -eq 0 ] || diag < "$scratch/said"
}

# ---- the software device ---------------------------------------------------

out=$scratch/out
several --driver soft --brief --build "$builddir" --pack "$scratch/pack.tar.gz" \
    "$srcdir" "$out" 2
[ $status -eq 0 ]
ok $? "every part passes on two ranks"
[ $status -eq 0 ] || diag < "$scratch/said"
says '^14 parts: 13 passed, 0 failed, 1 skipped; 32 checks passed, 0 failed; 2 ranks, driver soft$' \
    "all parts are counted, and their checks"
for part in build nccl exchange overlap scale ep uneven banks all tokens \
    beside offload trace; do
    grep -Eq "^$part +passed +[0-9]+  [1-9]" "$out/table.txt" &&
        [ -s "$out/$part.log" ]
    ok $? "$part passes, by checks, and leaves a log"
done
grep -q '^machine .*skipped: the software device has no links' "$out/table.txt"
ok $? "what a software device does not have is skipped"
if have python3; then
    python3 - "$out" << 'EOF'
import glob, json, os, sys
out = sys.argv[1]
with open(os.path.join(out, "summary.json"), encoding="utf-8") as file:
    summary = json.load(file)
if len(summary["parts"]) != 14 or summary["ranks"] != 2:
    sys.exit("summary.json lacks parts")
paths = glob.glob(os.path.join(out, "*", "*.json"))
for path in paths:
    with open(path, encoding="utf-8") as file:
        json.load(file)
if len(paths) < 17:
    sys.exit(f"{len(paths)} results")
EOF
    ok $? "what it leaves is JSON"
else
    skip "no python3 to read JSON with"
fi
grep -q '"by": "copy"' "$out/bench/overlap.json" &&
    grep -q '"by": "nccl"' "$out/bench/overlap.json" &&
    grep -q '"copy_over_nccl"' "$out/bench/exchange.json"
ok $? "copies and NCCL are measured on the same shapes"
grep -q '2 ranks are more than\|3 ranks are more than' "$out/nccl/collectives.tap" &&
    ! grep -q 'rank 2 of 3' "$out/nccl/collectives.tap"
ok $? "tests of more ranks than devices are left out"
grep -q 'exchanges of tokens take' "$out/offload/policy.txt"
ok $? "what copies cost exchanges is written down"
tar tzf "$scratch/pack.tar.gz" | grep -q '^out/summary.json$' &&
    tar tzf "$scratch/pack.tar.gz" | grep -q '^out/trace/overlap.json.gz$'
ok $? "--pack has everything in one file"

several --driver soft --build "$builddir" --parts build,ep,uneven "$srcdir" \
    "$scratch/whole"
says '^3 parts: 3 passed, 0 failed, 0 skipped; 21 checks passed, 0 failed; 2 ranks' \
    "all models, orders and exchanges with experts have the same bits"
grep -q 'hybrid: the same weights by every order' "$scratch/whole/checks.tsv"
ok $? "and learn the same by NCCL and by copies"

# ---- parts that fail -------------------------------------------------------

several --driver soft --brief --build "$builddir" --parts build,ep,beside \
    --nccl /nowhere/libnccl.so "$srcdir" "$out" 2
[ $status -eq 1 ]
ok $? "without NCCL the run fails"
says '^ep failed [0-9]* 0 of [1-9]' "where NCCL is needed"
says '^ FAILED ep: moe, order auto, exchange nccl: bitwise equal (status 3)$' \
    "which is named"
says '^beside passed' "and the part after it runs"

# Programs that do what a test says, and a machine with two GPUs.
fake=$scratch/fake
mkdir -p "$fake/bench" "$scratch/bin"
cat > "$scratch/bin/nvidia-smi" << 'EOF'
#!/bin/sh
[ "$1" != -L ] || printf 'GPU 0: one\nGPU 1: another\n'
EOF
cat > "$fake/gh-engine" << 'EOF'
#!/bin/sh
echo "multicast $NCCL_NVLS_ENABLE, ctas ${NCCL_MAX_CTAS-free}, with $*"
[ ! -e "${0%/*}/slow" ] || sleep 30
while [ "$1" != --json ]; do shift; done
printf '{"bitwise_equal": %s}\n' "$(cat "${0%/*}/equal")" > "$2"
EOF
cat > "$fake/bench/exchange" << 'EOF'
#!/bin/sh
while [ "$1" != --json ]; do shift; done
echo '{"bench": "exchange", "ranks": 2, "devices": 1,' > "$2"
EOF
chmod +x "$scratch/bin/nvidia-smi" "$fake/gh-engine" "$fake/bench/exchange"
PATH=$scratch/bin:$PATH

# pretend PARTS...: on the two GPUs.
pretend()
{
    parts=$1
    shift
    NCCL_NVLS_ENABLE=1 NCCL_MAX_CTAS=8 several --build "$fake" \
        --nccl "$fake/libnccl.so" --parts "$parts" "$@" "$srcdir" "$out"
}

: > "$fake/libnccl.so"
echo true > "$fake/equal"
pretend build,machine,uneven
[ $status -eq 0 ]
ok $? "as many ranks as there are GPUs"
says '^3 parts: 3 passed, .*; 2 ranks, driver cuda$' "all of them on CUDA"
grep -q "^multicast 0, ctas free, with .* --processes --nccl $fake/libnccl.so" \
    "$out/uneven/moe--uneven--order-auto--exchange-copy.txt"
ok $? "multicast is off, NCCL is not held back, and ranks are processes"
echo false > "$fake/equal"
pretend build,trace,exchange,machine
[ $status -eq 1 ]
ok $? "numbers that differ fail a run"
says '^ FAILED trace: trace: bitwise equal (status 0)$' "and are named"
says '^ FAILED exchange: .*each of 2 ranks has a device of its own$' \
    "as are ranks that share a device"
says '^machine passed' "and the next part runs"
grep -q '"part": "trace", "result": "failed"' "$out/summary.json"
ok $? "as summary.json says"
pretend machine,trace --budget 5
says '^trace skipped: no time left 0' "a part that would have no time is skipped"
[ $status -eq 1 ]
ok $? "and a run in which nothing passed has not passed"

# Cut off while an engine runs.
: > "$fake/slow"
rm -r "$out/trace"
bash "$script" --build "$fake" --nccl "$fake/libnccl.so" \
    --parts build,trace,machine "$srcdir" "$out" > "$scratch/said" 2>&1 &
pid=$!
tries=0
until [ -s "$out/trace/trace.txt" ] || [ $tries -ge 100 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
kill -TERM $pid
begin=$(date +%s)
wait $pid
[ $? -eq 130 ] && [ $(($(date +%s) - begin)) -lt 15 ]
ok $? "a run that is cut off ends at once"
says '^trace failed: cut off' "says where"
says '^build passed' "and keeps what was done"
says '^machine skipped: not begun' "and what was not"
rm "$fake/slow"

# ---- what is refused -------------------------------------------------------

# refused SENTENCE ARGUMENT...
refused()
{
    sentence=$1
    shift
    several "$@"
    [ $status -eq 2 ] && grep -q -- "$sentence" "$scratch/said"
    held=$?
    ok $held "$* is refused: $sentence"
    [ $held -eq 0 ] || diag < "$scratch/said"
}

refused '^several-gpus.sh - everything' "$srcdir"
refused 'give cuda or soft' --driver hip "$srcdir" "$out"
refused 'no part banka' --parts build,banka "$srcdir" "$out"
refused 'give seconds' --budget 0 "$srcdir" "$out"
refused 'such as ep=60' --limit ep "$srcdir" "$out"
refused 'such as ep=60' --limit es=4 "$srcdir" "$out"
refused 'is no option' --device 3 "$srcdir" "$out"
refused 'needs a value' --work
refused 'make dist makes a tarball' "$scratch/none.tar.gz" "$out"
refused '3 ranks and 2 GPUs; each' "$srcdir" "$out" 3
refused '1 ranks; there are 2 GPUs' "$srcdir" "$out" 1
refused '9 ranks; there are 9' --driver soft "$srcdir" "$out" 9

done_testing
