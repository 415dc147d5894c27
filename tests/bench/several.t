#!/bin/sh
# build-aux/several-gpus.sh: all of its parts, small, on the software device;
# and what it does with parts that fail, on programs that stand in for ours.
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"
scratch
have bash || skip_all "there is no bash"
have flock || skip_all "there is no flock"
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

# With sanitizers, which take four times as long, the benches between ranks
# alone: other tests run the rest of its programs.
if [ -n "${sanitize-}" ]; then
    several --driver soft --brief --build "$builddir" \
        --parts exchange,overlap,scale,beside "$srcdir" "$scratch/out" 2
    [ $status -eq 0 ]
    ok $? "benches between ranks pass"
    [ $status -eq 0 ] || diag < "$scratch/said"
    done_testing
fi

# ---- the software device ---------------------------------------------------

# What changes programs, and what the script itself calls so.
several_elsewhere()
{
    export GRAPHHOOKS_ENABLE=0 GRAPHHOOKS_OVERLAP=off SOFTCUDA_FAIL=9
    export SECONDS=5000 threads=1 limit=1 CDPATH=/
    several "$@"
    unset GRAPHHOOKS_ENABLE GRAPHHOOKS_OVERLAP SOFTCUDA_FAIL
    unset SECONDS threads limit CDPATH
}

out=$scratch/out
several_elsewhere --driver soft --brief --build "$builddir" \
    --pack "$scratch/pack.tar.gz" "$srcdir" "$out" 2
[ $status -eq 0 ]
ok $? "every part passes on two ranks, whatever the caller's environment"
[ $status -eq 0 ] || diag < "$scratch/said"
says '^15 parts: 14 passed, 0 failed, 1 skipped; 52 checks passed, 0 failed; 2 ranks, driver soft$' \
    "all parts are counted, and their checks"
for part in build nccl exchange overlap scale ep uneven banks all tokens \
    pipeline beside offload trace; do
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
if len(summary["parts"]) != 15 or summary["ranks"] != 2:
    sys.exit("summary.json lacks parts")
if not summary["brief"] or not summary["cksum"].startswith("folder /"):
    sys.exit("summary.json does not say what it is of")
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

echo none > "$scratch/libnccl.so"
several --driver soft --brief --build "$builddir" \
    --parts scale,beside,ep,build,ep --nccl "$scratch/libnccl.so" "$srcdir" "$out" 2
[ $status -eq 1 ]
ok $? "without NCCL the run fails"
says '^ep failed [0-9]* 0 of [1-9]' "where NCCL is needed"
says '^ FAILED beside: bench/beside: there is an NCCL$' \
    "and where a bench measures less without it"
says '^ FAILED ep: moe, order auto, exchange nccl: bitwise equal (status 3)$' \
    "which is named"
says '^scale passed' "a part without NCCL runs, on times of the first call"
[ "$(sed -n '/ s$/s/ .*//p' "$scratch/said" | tr '\n' ' ')" = \
    "build scale ep beside " ]
ok $? "parts run once each, in their order"
says '^banks passed [0-9]* 4 of 4' "what the first call found stays in the table"
says '^15 parts: 12 passed, 2 failed, 1 skipped; ' "and is counted"
[ "$(grep -c '"part": ' "$out/summary.json")" -eq 15 ] &&
    grep -q '"part": "banks", "result": "passed", .*"passed": 4,' \
        "$out/summary.json"
ok $? "and stays in summary.json"

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
while [ "$1" != --json ]; do shift; done
{
    printf '"modes": [\n'
    case $* in
    *'exchange nccl'*) sed 's/: "copy"/: "nccl"/' "${0%/*}/modes" ;;
    *) cat "${0%/*}/modes" ;;
    esac
    printf '"bitwise_equal": %s}\n' "$(cat "${0%/*}/equal")"
} > "$2"
while [ $# -gt 0 ]; do
    [ "$1" != --trace ] || echo '[]' > "$2"
    shift
done
EOF

# modes NAMES [LOSS [REPLAYS [EXCHANGE [NCCL [ORDER]]]]]: that the engine reports.
modes()
{
    for name in $(echo "$1" | tr ',' ' '); do
        printf '"name": "%s",\n"loss": [5.5, %s],\n"weights_hash": "1",\n' \
            "$name" "${2-5e-1}"
        printf '"exchange": "%s",\n"exchange_copy_bytes": 9,\n' "${4-copy}"
        printf '"exchange_nccl_bytes": %s,\n"order": %s,\n' "${5-9}" "${6-1}"
        printf '"replays": %s,\n' "${3-7}"
    done > "$fake/modes"
}
all_modes=eager,overlap,overlap+graph,overlap+graph+delay-wgrad
all_modes=$all_modes,overlap+graph+offload+delay

cat > "$fake/bench/exchange" << 'EOF'
#!/bin/sh
while [ "$1" != --json ]; do shift; done
[ ! -e "${0%/*}/measured" ] || cat "${0%/*}/measured" > "$2"
EOF
chmod +x "$scratch/bin/nvidia-smi" "$fake/gh-engine" "$fake/bench/exchange"
PATH=$scratch/bin:$PATH

out=$scratch/pretended
tree=$srcdir

# pretend PARTS...: on the two GPUs.
pretend()
{
    parts=$1
    shift
    NCCL_NVLS_ENABLE=1 NCCL_MAX_CTAS=8 several --build "$fake" --brief \
        --nccl "$fake/libnccl.so" --parts "$parts" "$@" "$tree" "$out"
}

: > "$fake/libnccl.so"
echo true > "$fake/equal"
modes "$all_modes"
pretend build,machine,uneven
[ $status -eq 0 ]
ok $? "as many ranks as there are GPUs"
says '^3 parts: 3 passed, .*; 2 ranks, driver cuda$' "all of them on CUDA"
grep -q "^multicast 0, ctas free, with .* --processes --nccl $fake/libnccl.so" \
    "$out/uneven/moe--uneven--order-auto--exchange-copy.txt"
ok $? "multicast is off, NCCL is not held back, and ranks are processes"
echo false > "$fake/equal"
modes eager,overlap+graph
echo '"ranks": 2, "devices": 1, "nccl": 23007,' > "$fake/bench/measured"
pretend build,trace,exchange,machine
[ $status -eq 1 ]
ok $? "numbers that differ fail a run"
says '^ FAILED trace: trace: bitwise equal (status 0)$' "and are named"
says '^ FAILED exchange: .*each of 2 ranks has a device of its own$' \
    "as are ranks that share a device"
says '^machine passed' "and the next part runs"
grep -q '"part": "trace", "result": "failed"' "$out/summary.json"
ok $? "as summary.json says"
pretend machine,tokens,trace --budget 5
says '^tokens skipped: no time left 0' "a part that would have no time is skipped"
[ $status -eq 3 ]
ok $? "and the status says so"
says '^uneven passed' "parts of earlier calls stay"
says '^ FAILED trace: trace: bitwise equal' "as do those that did not begin again"

# engine_fails CHECK NAME: by what the fake engine reports.
engine_fails()
{
    pretend trace
    [ $status -eq 1 ]
    held=$?
    says "^ FAILED trace: trace: $1" "$2"
    ok $held "and fails a run"
}

echo true > "$fake/equal"
pretend trace
says '^ FAILED trace: there is a timeline' "an empty timeline is no timeline"
modes eager
engine_fails 'modes are "eager"$' "a mode that was not compared is said"
modes eager,overlap+graph null
engine_fails 'eager: no losses$' "as is a loss that is no number"
modes eager,overlap+graph 5 0
engine_fails 'overlap+graph: nothing was replayed$' "as are graphs without use"
modes eager,overlap+graph 5 7 nccl
engine_fails 'eager: no exchange by copy$' "as is an exchange of another kind"
modes eager,overlap+graph 5 7 copy 9 0
engine_fails 'overlap+graph: the order is not auto$' "as is another order"
modes eager,overlap+graph

# bench_fails CHECK NAME: by what the fake bench has measured.
bench_fails()
{
    pretend exchange
    [ $status -eq 1 ]
    held=$?
    says "^ FAILED exchange: $1" "$2"
    ok $held "and fails a run"
}

# measured NCCL EQUAL BY...: what the fake bench says.
measured()
{
    {
        printf '{"ranks": 2, "devices": 2, "nccl": %s,\n' "$1"
        equal=$2
        shift 2
        for by; do
            printf '{"by": "%s", "bitwise_equal": %s}\n' "$by" "$equal"
        done
    } > "$fake/bench/measured"
}

measured 0 true copy nccl
bench_fails 'bench/exchange: there is an NCCL' "a missing NCCL is said"
measured 23007 true copy
bench_fails '.*copies and NCCL are measured' "as is a bench without NCCL's rate"
measured 23007 null copy nccl
bench_fails '.*the same numbers by' "as are numbers that were not compared"
if have python3; then
    whole=$out
    out=$scratch/tabled
    tree=$scratch/tree
    mkdir -p "$tree/bench"
    measured 23007 true copy nccl
    echo 'print("<= 1 MISSED"); raise SystemExit(1)' > "$tree/bench/table.py"
    pretend exchange
    [ $status -eq 0 ]
    ok $? "a target that is missed is no failure"
    says '^ exchange: <= 1 MISSED' "and is said"
    echo 'raise KeyError("bytes")' > "$tree/bench/table.py"
    bench_fails 'bench/table.py reads it (status 1)' "a table that breaks is said"
    tree=$srcdir
    out=$whole
else
    skip "no python3 for tables"
fi
rm "$fake/bench/measured"
bench_fails '.*has a device of its own' "results of an earlier call are not new"

# Points of a program, by the Test Anything Protocol.
mkdir -p "$fake/tests/nccl"
cat > "$fake/tests/nccl/collectives.t" << 'EOF'
#!/bin/sh
cat "$0.points"
EOF
chmod +x "$fake/tests/nccl/collectives.t"
points=$fake/tests/nccl/collectives.t.points
printf 'ok 1 - a\nok 2 # SKIP b\n1..2\n' > "$points"
pretend nccl
[ $status -eq 0 ] && grep -q ': 1 points, 1 skipped, status 0$' "$out/checks.tsv"
ok $? "points that are skipped are counted apart"
printf 'ok 1 # SKIP b\n1..1\n' > "$points"
pretend nccl
[ $status -eq 1 ]
ok $? "a program that skips all of its points fails"
printf 'ok 1 - a\n1..2\n' > "$points"
pretend nccl
[ $status -eq 1 ]
ok $? "as does one that says fewer than it planned"

# A lock as another call has.
(
    exec 9>> "$out/graphhooks-several"
    flock 9
    : > "$scratch/locked"
    exec sleep 30
) &
holder=$!
until [ -e "$scratch/locked" ]; do sleep 0.05; done
pretend build
[ $status -eq 2 ]
ok $? "a second call in one folder is refused"
says 'another call works in' "which it says"
kill $holder
wait $holder 2> /dev/null

# A disk that is full: files of over a kilobyte cannot be written.
full=$scratch/full
mkdir "$full"
cp "$out/graphhooks-several" "$full"
for n in $(seq 40); do
    printf 'banks\tok\t%s, a check of an earlier call\n' "$n"
done > "$full/checks.tsv"
(
    trap '' XFSZ
    ulimit -f 2
    bash "$script" --build "$fake" --nccl "$fake/libnccl.so" --brief \
        --parts build "$srcdir" "$full" > "$scratch/said" 2> /dev/null
)
[ $? -eq 1 ]
ok $? "checks that cannot be written down fail a run"
says '^build failed [0-9]* 0 of 0' "and their part"
mkdir "$out/table.txt.new"
pretend build
[ $status -eq 1 ]
ok $? "as does a table that cannot be written"
says '^build passed' "which is said in any case"
rmdir "$out/table.txt.new"
mkdir "$scratch/pack.part"
pretend build --pack "$scratch/pack"
[ $status -eq 1 ] && grep -q 'pack cannot be written' "$scratch/said"
ok $? "as does a pack that cannot"

# Times that a part leaves and then fails.
cat > "$fake/bench/overlap" << 'EOF'
#!/bin/sh
while [ "$1" != --costs ]; do shift; done
echo times > "$2"
exit 1
EOF
printf '#!/bin/sh\n' > "$fake/bench/scale"
chmod +x "$fake/bench/overlap" "$fake/bench/scale"
: > "$out/bench/overlap.json"
pretend overlap,scale
says '^scale skipped: overlap has not passed' "times of a part that failed are not used"
[ -s "$out/bench/overlap.costs" ] && [ ! -e "$out/bench/overlap.json" ]
ok $? "and what it measured before is gone"

# A build whole of the same tarball by its mark, and no programs.
: > "$scratch/tarball"
mkdir -p "$scratch/kept/build"
cksum < "$scratch/tarball" > "$scratch/kept/graphhooks-several"
several --driver soft --work "$scratch/kept" --parts build,ep \
    "$scratch/tarball" "$scratch/stamped"
says '^ FAILED build: .*tarball unpacks' "a build without programs is made anew"
says '^ep skipped: not begun' "and nothing runs without them"
grep -q '"part": "ep", "result": "skipped: not begun"' \
    "$scratch/stamped/summary.json"
ok $? "as summary.json says too"

# A process that a part has left, and that is deaf to TERM.
cat > "$fake/gh-engine" << 'EOF'
#!/bin/sh
trap '' TERM
sleep 60 &
echo $! > "${0%/*}/left"
EOF
pretend trace
left=$(cat "$fake/left")
tries=0
while kill -0 "$left" 2> /dev/null && [ $tries -lt 20 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
! kill -0 "$left" 2> /dev/null
ok $? "what a part has left running is ended"
[ $status -eq 1 ]
ok $? "and a run in which nothing passed has not passed"

# Cut off while an engine runs.
printf '#!/bin/sh\necho begins; sleep 30\n' > "$fake/gh-engine"
bash "$script" --build "$fake" --nccl "$fake/libnccl.so" --brief \
    --parts build,tokens,beside "$srcdir" "$out" > "$scratch/said" 2>&1 &
pid=$!
tries=0
until [ -s "$out/tokens/dynamic.txt" ] || [ $tries -ge 100 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
kill -TERM $pid
begin=$(date +%s)
wait $pid
[ $? -eq 130 ] && [ $(($(date +%s) - begin)) -lt 15 ]
ok $? "a run that is cut off ends at once"
says '^tokens failed: cut off' "says where"
says '^build passed' "and keeps what was done"
says '^beside skipped: not begun' "and what was not"

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
refused 'no part \*' --parts '*' "$srcdir" "$out"
refused '--parts names none' --parts , "$srcdir" "$out"
refused 'give seconds' --budget 0 "$srcdir" "$out"
refused 'such as ep=60' --limit ep "$srcdir" "$out"
refused 'such as ep=60' --limit es=4 "$srcdir" "$out"
refused 'is no option' --device 3 "$srcdir" "$out"
refused 'needs a value' --work
refused 'give options first' "$srcdir" "$out" --brief
refused 'make dist makes a tarball' "$scratch/none.tar.gz" "$out"
refused 'there is no folder' --pack "$scratch/none/pack.tar.gz" "$srcdir" "$out"
refused 'which is no file' --pack "$scratch/full" "$srcdir" "$out"
refused 'is the tarball' --pack "$scratch/tarball" "$scratch/tarball" "$out"
refused 'where folders are removed' --pack "$out/pack" "$srcdir" "$out"
refused 'can be read' --nccl /nowhere/libnccl.so "$srcdir" "$out"
refused 'can be read' --cublas "$scratch" "$srcdir" "$out"
refused 'has no gh-engine' --build "$scratch/full" "$srcdir" "$out"
mkdir -p "$scratch/mine/build" "$scratch/plain"
refused 'has no configure' --work "$scratch/kept" "$scratch/plain" "$out"
: > "$scratch/mine/checks.tsv"
refused 'not of an earlier call' --build "$fake" --parts machine "$srcdir" "$scratch/mine"
refused 'has not made' --work "$scratch/mine" "$scratch/tarball" "$out"
[ -d "$scratch/mine/build" ]
ok $? "and what is there stays"
refused 'no whole build of' --driver soft --work "$scratch/kept" --parts ep \
    "$scratch/tarball" "$scratch/new"
[ ! -e "$scratch/new" ]
ok $? "and leaves no results"
ln -s "$scratch/kept/build" "$scratch/link"
refused 'where folders are removed' --work "$scratch/kept" "$scratch/tarball" \
    "$scratch/link/out"
mkdir -p "$out/bench/build"
refused 'where folders are removed' --build "$fake" --parts machine "$out/bench" "$out"
refused 'parts with driver "cuda"' --driver soft --build "$fake" --parts machine "$srcdir" "$out"
refused 'parts with brief "true"' --build "$fake" --parts machine "$srcdir" "$out"
refused 'parts with cksum' --build "$fake" --parts machine --brief "$scratch/tarball" "$out"
refused '3 ranks and 2 GPUs; each' --build "$fake" --parts machine "$srcdir" "$out" 3
refused '1 ranks; there are 2 GPUs' --build "$fake" --parts machine "$srcdir" "$out" 1
refused '9 ranks; there are 9' --driver soft --build "$fake" --parts machine "$srcdir" "$out" 9

done_testing
