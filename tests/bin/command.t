#!/bin/sh
# The graphhooks command: what it prints, and what it refuses.
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"
scratch
graphhooks=$builddir/graphhooks

# Nothing of the caller's environment is to decide a point.
for name in $(env | sed -n 's/^\(GRAPHHOOKS_[A-Z_]*\)=.*/\1/p'); do
    unset "$name"
done

# has TEXT NAME: the last output has a line with TEXT.
has()
{
    grep -qF -e "$1" "$scratch/out"
    held=$?
    ok $held "$2"
    [ $held -eq 0 ] || diag < "$scratch/out"
}

# returns STATUS NAME COMMAND...: runs it, keeping all that it says.
returns()
{
    expected=$1
    name=$2
    shift 2
    "$@" > "$scratch/out" 2>&1
    status=$?
    [ $status -eq "$expected" ]
    ok $? "$name"
    [ $status -eq "$expected" ] || diag "it returned $status"
}

returns 2 "no command is refused" "$graphhooks"
has "usage: graphhooks" "with the usage"
returns 2 "an unknown command is refused" "$graphhooks" inof
has "inof is not a command; did you mean info?" "with the nearest one"
returns 2 "an unknown option is refused" "$graphhooks" info --jsno
has "did you mean --json?" "with the nearest one"
returns 2 "nonsense is refused" "$graphhooks" xyzzy
has "try graphhooks --help" "without a guess"
returns 0 "--help works" "$graphhooks" --help
has "env [--markdown]" "and lists the commands"
returns 0 "so does -h" "$graphhooks" -h
has "env [--markdown]" "and lists the commands"
returns 0 "and -h of a command" "$graphhooks" env -h
has "env [--markdown]" "which lists them all"
returns 0 "--version works" "$graphhooks" --version
has "ABI 1." "and has the ABI's version"

returns 0 "env works" "$graphhooks" env
has "GRAPHHOOKS_MAX_SLOTS=8" "env shows defaults"
returns 0 "env works with a variable set" \
    env GRAPHHOOKS_MAX_SLOTS=4 "$graphhooks" env
has "GRAPHHOOKS_MAX_SLOTS=4  (set)" "env shows what is set"
returns 1 "env fails for a wrong value" \
    env GRAPHHOOKS_MAX_SLOTS=400 "$graphhooks" env
has 'wrong: GRAPHHOOKS_MAX_SLOTS is "400"; set it to a number' \
    "with its sentence"
returns 0 "an unknown name is no failure" \
    env GRAPHHOOKS_MAX_SLOT=4 "$graphhooks" env
has "did you mean GRAPHHOOKS_MAX_SLOTS?" "env shows the nearest name"
returns 0 "env --markdown works" \
    env GRAPHHOOKS_MAX_SLOTS=400 "$graphhooks" env --markdown
has "| \`GRAPHHOOKS_MAX_SLOTS\` | a number from 1 to 64 | 8 |" \
    "and does not depend on the environment"

returns 0 "info works, whether or not there is a GPU" "$graphhooks" info
has "libcuda.so.1" "info says where it looked for CUDA's driver"
has "libgraphhooks-softcuda.so" "info shows the software device"
has "families" "info lists the families that are found"
has "mla, $builddir/plugins/.libs/mla.so" "with their files"
has "transformer layers with latent attention" "and what each is"
has "plugins   $builddir/plugins/.libs" "info has the places, in their order"
grep -qF "$builddir/graphhooks (missing)" "$scratch/out"
[ $? -eq 1 ]
ok $? "and does not take itself for one"
mkdir "$scratch/plugins"
returns 0 "info works with a place that is not there" \
    env GRAPHHOOKS_PLUGIN_PATH="/nowhre:$scratch/plugins:$builddir/plugins/.libs" \
    "$graphhooks" info
has "plugins   /nowhre (missing)" "and says that it is missing"
has "          $scratch/plugins" "and goes on to the next"
[ "$(grep -c "$builddir/plugins/.libs\$" "$scratch/out")" -eq 1 ]
ok $? "and has no place twice"
echo text > "$scratch/plugins/mla.so"
long=$(printf '%0240d' 0)
echo text > "$scratch/plugins/$long.so"
echo text > "$scratch/plugins/libmine.so"
returns 0 "info works with a family that is broken" \
    env GRAPHHOOKS_PLUGIN_PATH="$scratch/plugins" "$graphhooks" info
has "mla, not usable: family mla ($scratch/plugins/mla.so): the file is not an" \
    "and says why that one cannot be used"
grep -q "$long" "$scratch/out"
[ $? -eq 1 ]
ok $? "and a file whose name is too long is no family"
grep -q "libmine" "$scratch/out"
[ $? -eq 1 ]
ok $? "nor is a library"
[ "$(grep -c '[ s] mla, ' "$scratch/out")" -eq 1 ]
ok $? "and the first mla alone is listed"
rm "$scratch/plugins/mla.so"
ln -s /no/where "$scratch/plugins/mla.so"
mkdir "$scratch/plugins/gpt.so"
returns 0 "info works with what is no file" \
    env GRAPHHOOKS_PLUGIN_PATH="$scratch/plugins" "$graphhooks" info
has "mla, not usable: family mla ($scratch/plugins/mla.so): it is a link that \
leads nowhere" "and says that a link leads nowhere"
has "gpt, not usable: family gpt ($scratch/plugins/gpt.so): it is a directory" \
    "and that a directory is none"
ulimit -c 0
if build_fixture "$scratch/plugins" name_wild > "$scratch/out" 2>&1 &&
    build_fixture "$scratch/plugins" constructor_crashes > "$scratch/out" 2>&1
then
    returns 0 "info works with a family that crashes" \
        env GRAPHHOOKS_PLUGIN_PATH="$scratch/plugins" "$graphhooks" info
    has "mamba, $builddir/plugins/.libs/mamba.so" "and lists the others"
    has "libgraphhooks-softcuda.so" "and goes on to the drivers"
    if [ -n "${sanitize-}" ]; then
        skip "a sanitizer tells of a crash by itself"
        skip "a sanitizer has constructors of its own"
    else
        has "name_wild, not usable: family name_wild \
($scratch/plugins/name_wild.so): it crashed: signal 11, Segmentation fault: \
mend it, or take it away" "and has its file and the signal"
        has "constructor_crashes.so): it has 1 constructor, which would run" \
            "and does not run a constructor"
    fi
    returns 0 "info --json works with it, too" \
        env GRAPHHOOKS_PLUGIN_PATH="$scratch/plugins" "$graphhooks" info --json
    has '"name": "name_wild", "file": ' "and has the file"
else
    diag < "$scratch/out"
    for _ in 1 2 3 4 5 6 7; do skip "no compiler"; done
fi
returns 0 "info works with the path of a driver" \
    env GRAPHHOOKS_DRIVER=/no/driver.so "$graphhooks" info
has "not usable: driver: /no/driver.so" "and says why that one cannot be used"
returns 0 "info works with the name of no driver" \
    env GRAPHHOOKS_DRIVER=bogus "$graphhooks" info
has 'GRAPHHOOKS_DRIVER is "bogus"; set it to cuda or soft' "and says what to set"
returns 0 "info --json works" "$graphhooks" info --json
if have python3; then
    python3 -c 'import json, sys; d = json.load(open(sys.argv[1]))
assert {"version", "abi", "plugin_dir", "drivers"} <= set(d)
assert [x["kind"] for x in d["drivers"]] == ["cuda", "soft"]
assert [x["name"] for x in d["families"]] == sys.argv[2:]
assert d["plugin_places"][-1]["path"] == d["plugin_dir"]
assert not d["plugin_places"][0]["missing"]
assert all(x["usable"] and x["about"] and x["file"] for x in d["families"])
assert d["drivers"][1]["usable"] and len(d["drivers"][1]["devices"]) > 0' \
        "$scratch/out" $(cd "$srcdir/plugins" && ls -- *.c | sed 's/\.c$//')
    ok $? "its JSON has versions, families, drivers and the software device"
else
    skip "no python3 to read JSON with"
fi
if [ -c /dev/full ]; then
    described=$srcdir/doc/models/moonlight.json
    for command in env "env --markdown" info "info --json" --version --help \
        "plan --table" "plan $described" "plan --json $described" \
        "plan --why 3.attn $described"; do
        case $have_jansson:$command in
        no:plan\ *json*) continue ;;
        esac
        # shellcheck disable=SC2086 # words
        "$graphhooks" $command > /dev/full 2> "$scratch/out"
        [ $? -eq 1 ] && grep -q '^graphhooks: stdout: ' "$scratch/out"
        ok $? "an output that cannot be written is a failure: $command"
    done
    "$builddir/graphhooks-conform" "$builddir/.libs/graphhooks/gpt.so" \
        > /dev/full 2> "$scratch/out"
    [ $? -eq 1 ] && grep -q 'could not be written' "$scratch/out"
    ok $? "a report of conformance that cannot be written is one, too"
else
    skip "no /dev/full"
fi

done_testing
