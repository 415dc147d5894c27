#!/bin/sh
# graphhooks plan: the worked examples, and every way to ask for too much.
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"
scratch
golden=$srcdir/tests/bin/golden
cd "$scratch" || exit 99
# Of a long path, which the build may have, a sentence has the end alone.
plugins=$scratch/families
ln -s "${builddir:?}/plugins/.libs" "$plugins"
GRAPHHOOKS_PLUGIN_PATH=$plugins
export GRAPHHOOKS_PLUGIN_PATH

plan()
{
    "$builddir/graphhooks" plan "$@"
}

# has TEXT NAME: the last output has a line with TEXT.
has()
{
    grep -qF -e "$1" out
    held=$?
    ok $held "$2"
    [ $held -eq 0 ] || diag < out
}

# returns STATUS NAME ARGUMENT...: runs plan, keeping all that it says.
returns()
{
    expected=$1
    name=$2
    shift 2
    plan "$@" > out 2>&1
    status=$?
    [ $status -eq "$expected" ]
    ok $? "$name"
    [ $status -eq "$expected" ] || diag "it returned $status"
}

returns 2 "no description is refused"
has "give its file" "with a sentence"
returns 2 "an unknown option is refused" --scoep attn
has "did you mean --scope?" "with the nearest one"
returns 2 "an option without its value is refused" --scope
has "--scope takes a value" "with a sentence"
returns 2 "--table goes alone" --table x.json
returns 0 "--table needs no description" --table
awk -F' \\| ' '/^\| where a layer has/ { on = 1; next }
    on && !/^\| ---/ { print $3 }' out | sort -u > because
[ "$(wc -l < because)" -eq \
    "$(grep -c '^ *CAUSE(' "$srcdir/lib/plan/causes.c" |
        awk '{ print $1 - 1 }')" ]
ok $? "its second table has every refusal of the rules"

[ "${have_jansson-yes}" = yes ] || {
    echo '{}' > x.json
    returns 2 "without a JSON parser a description is not read" x.json
    has "built without jansson" "which is said"
    skip "the points of descriptions: graphhooks was built without jansson"
    done_testing
}

# model NAME MORE LAYERS: writes NAME.json.
model()
{
    printf '{"name": "%s", %s "layers": [%s]}\n' "$@" > "$1.json"
}
dense='{"kind": "dense"}'
moe='{"kind": "moe", "experts": 8, "dispatcher": "alltoall"}'
padded='{"kind": "moe", "experts": 8, "dispatcher": "alltoall",
  "features": ["capacity", "pad"]}'
mamba='{"kind": "mamba"}'
attn_only='{"kind": "attn_only"}'
mlp_only='{"kind": "mlp_only"}'
moe_only='{"kind": "moe_only", "experts": 8, "dispatcher": "alltoall"}'
model dense '' "$dense, $dense"
model moe '' "$moe, $moe"
model padded '' "$padded, $padded"
model deepseek '' "$dense, {\"kind\": \"moe\", \"repeat\": 2, \"experts\": 256,
  \"dispatcher\": \"flex\", \"features\": [\"shared_experts\"]}"
model hybrid '' "$mamba, $attn_only, $mlp_only, $mamba, $moe_only"

# ---- the worked examples --------------------------------------------------

# example NAME GOLDEN ARGUMENT...
example()
{
    name=$1
    file=$2.txt
    shift 2
    plan "$@" > out 2>&1
    if [ -n "${GRAPHHOOKS_TEST_GOLDEN-}" ]; then
        cp out "$golden/$file"
    fi
    cmp -s out "$golden/$file"
    ok $? "$name"
    diff "$golden/$file" out | diag
}

example "dense layers with attn and mlp are captured whole" dense \
    dense.json --scope attn,mlp
example "dropless experts are captured up to the dispatch" moe \
    moe.json --scope attn,moe_router,moe_preprocess
example "a mix of layers takes what each has of the scope" deepseek \
    deepseek.json --scope attn,mlp,moe_router,moe_preprocess
example "Mamba layers stay eager where mamba is not named" hybrid \
    hybrid.json --scope attn,mlp,moe_router,moe_preprocess
example "and are captured where it is" hybrid-mamba \
    hybrid.json --scope attn,mlp,moe_router,moe_preprocess,mamba
example "--why tells one decision in full" why \
    moe.json --scope attn,moe_router --why 1.moe_preprocess

for file in "$srcdir"/doc/models/*.json; do
    returns 0 "$(basename "$file") has a plan" "$file"
    grep -qF "\`$(basename "$file")\`" "$srcdir/doc/models/README.md"
    ok $? "and a line in doc/models/README.md"
done

# ---- families -------------------------------------------------------------

model deep '"family": "mla",' "$dense, {\"kind\": \"mamba\",
    \"family\": \"mamba\"}, {\"kind\": \"moe\", \"repeat\": 2,
    \"experts\": 256, \"dispatcher\": \"flex\",
    \"features\": [\"shared_experts\"]}, $dense"
example "a family's note, tensors and nodes are shown once" families \
    deep.json --scope attn,mlp,moe_router,moe_preprocess
returns 0 "--why has the family" deep.json --why 2.attn
has "family     mla, $plugins/mla.so" "with its file"
has "reads      rotary_cos, for as long as a graph lives" \
    "what the part reads besides its inputs"
has "node       0, compute, attn..moe_preprocess" "and its node"
returns 0 "--why has a node of its own for the dispatch" \
    deep.json --why 2.moe_dispatch
has "node       1, comm, moe_dispatch..moe_dispatch" \
    "which is on the comm lane"
grep -q rotary out
[ $? -eq 1 ]
ok $? "and reads no tensor of the attention's"
model own '"scope": ["mlp"],' '{"kind": "dense", "family": "example"}, '"$dense"
returns 0 "a layer has a family of its own, or none" own.json --scope attn,mlp
has "eager    layer 0 attn: its attention picks its kernels by the length" \
    "what the family holds back stays eager, by its sentence"
has "graphed  layer 1 attn..mlp" "and the layer without a family is whole"
has "note: layer 0: family example ($plugins/example.so) keeps it eager: its \
attention picks its kernels by the length of the sequences; describe the layer \
by another family" "which is noted, with the family and its file"
has "  eager attn: its attention picks" "and is shown with the family"
returns 0 "--why of a part that is held back" own.json --scope attn,mlp \
    --why 0.attn
has "why        family example ($plugins/example.so) keeps it eager: its " \
    "has the family and its file"
has "remedy     describe the layer by another family" "and the remedy"
returns 0 "--why weighs the family, too" own.json --why 0.attn
has "scope attn,mlp would not do alone: family example (" \
    "where the part is not named"
model held '"family": "example",' "$dense, $dense"
returns 1 "a scope that no family lets be captured is impossible" held.json \
    --scope attn
has "held: scope attn: layer 0: family example (" "which names the family"
has "example.so) keeps it eager: its attention picks its kernels by the length \
of the sequences; describe the layer by another family, or leave attn out of \
the scope" "its file, what it says, and the remedy"
returns 0 "a whole layer is narrowed to what its family lets be captured" \
    held.json
has "graphed  layer 0..1 (2 alike) mlp" "to the MLP"
model typo '"family": "gtp",' "$dense"
returns 1 "a mistyped family is refused" typo.json
has "layer 0: family gtp: there is none of that name; did you mean gpt?" \
    "with the nearest one"
mkdir places
ln -s /no/where places/gtp.so
GRAPHHOOKS_PLUGIN_PATH=$scratch/places:$plugins
returns 1 "a link that leads nowhere is refused" typo.json
has "layer 0: family gtp ($scratch/places/gtp.so): it is a link that leads \
nowhere: mend the link, or take it away" "and is not taken for a typo"
GRAPHHOOKS_PLUGIN_PATH=$plugins
model alien '"family": "xyzzy",' "$dense"
GRAPHHOOKS_PLUGIN_PATH=/no/where:$plugins
returns 1 "a family that is not there is refused" alien.json
has "layer 0: family xyzzy: not found: put xyzzy.so into a directory of \
GRAPHHOOKS_PLUGIN_PATH; looked in /no/where, " "with the places"
has "GRAPHHOOKS_PLUGIN_PATH: /no/where is not a directory" \
    "and the one that is not there"
GRAPHHOOKS_PLUGIN_PATH=$plugins
model wrong '"family": "mamba",' "$mamba, $dense"
returns 1 "a layer that its family does not know is refused" wrong.json
has "layer 1: family mamba ($plugins/mamba.so): mamba knows Mamba layers alone" \
    "in the words of the family"
GRAPHHOOKS_PLUGIN_PATH=relative::
returns 1 "a wrong path of plugins is refused" wrong.json
has "GRAPHHOOKS_PLUGIN_PATH is" "with its sentence"
returns 0 "and does not matter without a family" dense.json
GRAPHHOOKS_PLUGIN_PATH=$plugins

# What a family ends is a child, and which one is said.
ulimit -c 0
mkdir crash
for family in open_crashes layer_crashes open_exits; do
    model $family '' "{\"kind\": \"dense\", \"family\": \"$family\"},
        {\"kind\": \"dense\", \"family\": \"gpt\"}"
    build_fixture crash $family > log 2>&1 || diag < log
done
GRAPHHOOKS_PLUGIN_PATH=$scratch/crash:$plugins
returns 1 "a family that crashes in open is refused" open_crashes.json
has "graphhooks: open_crashes: layer 0: family open_crashes ($scratch/crash/\
open_crashes.so): it crashed: signal 6, Aborted: mend it, or take it away" \
    "with its file and the signal"
returns 1 "so is one that crashes in layer" layer_crashes.json --json
has "family layer_crashes ($scratch/crash/layer_crashes.so): it crashed: " \
    "which is not the one that comes after it"
returns 1 "and one that ends the process" open_exits.json
has "family open_exits ($scratch/crash/open_exits.so): it ended the process \
with status 3: mend it, or take it away" "with the status"
GRAPHHOOKS_PLUGIN_PATH=$plugins
if [ -c /dev/full ]; then
    plan deep.json > /dev/full 2> out
    [ $? -eq 1 ]
    ok $? "a plan of families that cannot be written is a failure"
    [ "$(grep -c . out)" -eq 1 ]
    ok $? "which is said once"
else
    skip "no /dev/full"
    skip "no /dev/full"
fi

# ---- options --------------------------------------------------------------

model asks '"scope": ["attn"], "granularity": "part", "ep_overlap": true,' \
    "$padded"
returns 0 "a description may have the scope" asks.json
has "scope attn, ep overlap" "which is said"
has "granularity part" "and the granularity"
returns 0 "options win over it" asks.json --scope moe --ep-overlap 0 \
    --granularity chunk
has "2 segments, granularity chunk" "all of them"
has "1 layer, scope moe" "the scope, too"
returns 0 "an empty scope means whole layers" asks.json --scope ''
has "1 layer, whole layers, ep overlap" "which is said"
GRAPHHOOKS_SCOPE=mlp plan asks.json > out 2>&1
has "scope attn" "the environment has no say over the scope"
has "graphhooks plan: GRAPHHOOKS_SCOPE: not read here" "which is said"
returns 0 "--help of a subcommand is the help" dense.json --help
has "usage: graphhooks COMMAND" "on stdout"
returns 0 "an option may have its value behind a =" dense.json --scope=attn \
    --granularity=part
has "scope attn" "and it is taken"
has "granularity part" "of each option"
returns 2 "a switch takes no value" dense.json --json=1
has "--json takes no value" "which is said"
returns 2 "a mistyped option with a value is refused" dense.json --scpoe=attn
has "did you mean --scope?" "with the nearest one"
model lone '' "$attn_only"
returns 0 "one layer has a plan" lone.json
has "1 layer, whole" "and is one layer"
has "1 segment, granularity" "and one segment"
plan - < dense.json > out 2>&1
has "dense: 2 layers" "- is standard input"
returns 2 "an unknown word is refused" dense.json --scope attn,mpl
has '--scope is "mpl"; did you mean mlp?' "with the nearest one"
returns 2 "an unknown granularity is refused" dense.json --granularity step
has "give one of part, layer, chunk" "with those there are"
returns 2 "a switch is 0 or 1" dense.json --ep-overlap maybe
returns 2 "two descriptions are refused" dense.json moe.json
returns 2 "a file that is not there is refused" nowhere.json
has "nowhere.json: No such file" "with its name"
returns 2 "a directory is refused" .

returns 0 "--json works" hybrid.json --json
if have python3; then
    model offload '' '{"kind": "dense", "name": "a\u00e9\"\\b",
        "offload": ["attn_norm", "core_attn", "mlp"]}'
    for file in hybrid offload deep own; do
        plan $file.json --scope "$([ $file = own ] && echo mlp || echo attn)" \
            --json > out &&
            python3 -c 'import json, sys; d = json.load(open(sys.argv[1]))
s = d["segments"]
assert [x["index"] for x in s] == list(range(len(s)))
assert all(x["reason"] and x["mode"] in ("graphed", "eager") for x in s)
assert all((x["remedy"] is None) == (x["mode"] == "graphed") for x in s)
assert all(x["out"] for x in s) and not s[0]["in"]
assert all(y["segment"] < x["index"] and
           y["tensor"] in [z["tensor"] for z in s[y["segment"]]["out"]]
           for x in s for y in x["in"])
k = {"dense", "mamba", "moe", "attn_only", "mlp_only", "moe_only"}
assert all(x["kind"] in k for x in d["layers"])
assert [x["index"] for x in d["layers"]] == list(range(len(d["layers"])))
if d["offload"]:
    o = d["offload"][0]
    assert s[0]["layer"] == o["layer"] == "a\u00e9\"\\b"
    assert (o["in_graph"], o["beside"], o["off"]) == (
        ["core_attn"], ["mlp"], ["attn_norm"])
    assert len(d["notes"]) == 1
f = d["families"]
if sys.argv[2] == "deep":
    assert [x["layers"] for x in f] == [[0, 4], [1], [2, 3]]
    assert [x["family"] for x in f] == ["mla", "mamba", "mla"]
    assert [x["name"] for x in f[2]["tensors"]] == ["rotary_cos", "rotary_sin"]
    assert f[2]["tensors"][0]["parts"] == ["attn"]
    assert [x["lane"] for x in f[2]["nodes"]] == [
        "compute", "comm", "compute", "comm", "compute"]
    assert f[2]["note"] and f[2]["parts"] == f[2]["capturable"]
elif sys.argv[2] == "own":
    assert f[0]["capturable"] == ["mlp"] and f[0]["why_not"] and len(f) == 1
else:
    assert f == []' out $file
        ok $? "a JSON parser reads the plan of $file.json"
    done
else
    for _ in 1 2 3 4; do skip "no python3 to read JSON with"; done
fi

returns 0 "--why takes a part that is captured" dense.json --why 0.attn
has "no scope is set, which means whole layers" "and says why it is"
model named '' '{"kind": "dense", "name": "a.b", "repeat": 2}'
returns 0 "--why takes a name, dots and all" named.json --why 'a.b 1.mlp'
has "layer      1, dense" "and finds the layer"
returns 0 "--why weighs the rest of the scope" moe.json --scope attn \
    --why 0.moe_experts
has "scope attn,moe would not do alone: its experts get another number" \
    "and what naming the part would come to"
grep -q 'shapes; set a capacity and pad to it$' out
ok $? "and no remedy that does without the part"
returns 0 "--why weighs a scope that has moe_router" moe.json \
    --scope moe_router --why 0.moe_experts
grep -q 'shapes; set a capacity and pad to it$' out
ok $? "and does not advise to name it"
model some '"scope": ["moe"],' "$moe, $padded"
returns 0 "--why of a part that moe would have held" some.json \
    --why 0.moe_router
has "remedy     set a capacity and pad to it, or name moe_router instead of moe" \
    "has the word that names it without the rest"
returns 0 "--why of a part that only moe can hold" some.json \
    --why 0.moe_experts
grep -q 'remedy     set a capacity and pad to it$' out
ok $? "has what has it captured, and no more"
returns 0 "whole layers of dropless experts are narrowed" moe.json
grep -q 'note: .* fixed shapes; set a capacity and pad to it$' out
ok $? "and the note names no scope, where there is none"
model whole '' '{"kind": "moe", "experts": 8, "dispatcher": "alltoall",
    "recompute": ["moe"]}'
returns 0 "whole layers that recompute their experts are narrowed" whole.json
grep -q 'note: .*in two; recompute moe_act instead of moe$' out
ok $? "and the note does not, either"
model off '"scope": ["attn"],' '{"kind": "dense", "offload": ["attn_norm"]}'
returns 0 "--why has the offload of the layer" off.json --why 0.attn
has "off        attn_norm" "what is off"
has "leave attn_norm out of the offloaded modules" "and the remedy"

# ---- what will go to the host -----------------------------------------------

sized='{"kind": "dense", "repeat": 12, "offload": ["core_attn", "mlp_norm"],
    "offload_bytes": {"core_attn": 33554432}, "forward_us": 1000}'
model sized '"in_flight": 4,' "$sized"
example "offload is foreseen by module" offload sized.json
example "with those that hide, by the times" offload-auto sized.json \
    --offload-fraction auto --offload-buffers 3
model plain '' '{"kind": "dense", "repeat": 6, "offload": ["core_attn"]}'
returns 0 "without bytes groups are counted" plain.json --in-flight 2
has "core_attn: 5 of 6 groups go; 4 buffers on the device in the place of 10 \
groups; 1 stay (needed at once by the backward)" "in buffers"
returns 0 "one microbatch frees nothing" plain.json --offload-fraction 0.8
has "4 stay (no fewer than their rings would hold)" "which is said"
returns 0 "without times auto has nothing to go by" plain.json --in-flight 2 \
    --offload-fraction auto
has "those that hide, which times would tell:" "which is said"
returns 0 "one graph for all needs a buffer for each group" plain.json \
    --in-flight 4 --granularity chunk
has "5 of 6 groups go; 12 buffers on the device in the place of 20 groups" \
    "which is counted"
model whole '"scope": ["attn"], "in_flight": 3, "offload_fraction": "auto",' \
    '{"kind": "dense", "repeat": 4, "offload": ["attn_norm"]}'
returns 0 "what the plan switches off is foreseen as that" whole.json
has "attn_norm: 0 of 4 groups go; 4 stay (switched off by the plan)" \
    "with the reason"
for f in 1.5 nan -1 atuo; do
    returns 2 "--offload-fraction $f is refused" sized.json \
        --offload-fraction=$f
    has "--offload-fraction is \"$f\"; set it to a number from 0 to 1, or auto" \
        "with the rule"
done
returns 2 "--offload-buffers 9 is refused" sized.json --offload-buffers 9
has "a number from 2 to 8" "with the rule"
for n in 0 65 3x ''; do
    returns 2 "--in-flight '$n' is refused" sized.json --in-flight "$n"
    has "a number from 1 to 64" "with the rule"
done
if have python3; then
    plan sized.json --json > out && python3 -c 'import json
d = json.load(open("out"))
g = d["groups"]
assert [x["module"] for x in g] == ["core_attn", "mlp_norm"]
assert g[0]["groups"] == 12 and g[0]["go"] == 11 and g[0]["buffers"] == 4
assert g[0]["ring_bytes"] == 4 << 25
assert g[0]["in_place_of_bytes"] == 4 * 11 << 25
assert g[0]["layers"] == list(range(11)) and "ring_bytes" not in g[1]
assert g[0]["stay"] == {"needed at once by the backward": 1}
f = d["foreseen"]
assert f["in_flight"] == 4 and f["fraction"] == 1 and f["stalls"] > 0
assert f["without_ns"] < f["with_ns"] and d["granularity"] == "layer"' 2> err
    ok $? "a program reads the same"
    diag < err
else
    skip "the forecast for programs: no python3"
fi

model keep '"scope": ["moe_router"],' '{"kind": "moe", "experts": 8,
    "dispatcher": "flex", "recompute": ["mlp_norm", "moe_act"]}'
returns 0 "--why has what is not worth recomputing" keep.json \
    --why 0.moe_router
has "kept       mlp_norm" "what is better kept"
has "so recomputing it frees nothing; leave mlp_norm out" "and the remedy"
returns 0 "--json has what is recomputed" keep.json --json
has '"recompute":[' "as a list"
has '"in_graph":[],"beside":["moe_act"],"kept":["mlp_norm"]}' \
    "with what is better kept"
returns 2 "--why needs a part" dense.json --why 0
has "give LAYER.PART, as in 0.attn" "with an example"
returns 2 "--why needs a layer that is there" dense.json --why 2.attn
has "--why: there is no layer 2; give a name, or a number from 0 to 1" \
    "and says which are"
returns 2 "--why needs a part of that layer" dense.json --why 1.moe
has "it has attn, mlp" "and says which are"
returns 2 "--why of a mistyped part is refused" moe.json --why 1.moe_exprts
has "--why: layer 1, a moe layer, has no part moe_exprts; did you mean \
moe_experts?" "with the nearest one"
model twins '' '{"kind": "dense", "name": "x"}, {"kind": "dense", "name": "x"}'
returns 2 "--why needs one layer" twins.json --why x.attn
has "--why: 2 layers are called x" "where several have a name"
returns 2 "--why and --json exclude each other" dense.json --json --why 0.mlp
returns 2 "--all and --json exclude each other" dense.json --json --all
has "--all is of the plan as text: leave out --json and --why" "which is said"
returns 2 "--all and --why exclude each other" dense.json --all --why 0.mlp
returns 0 "--all works" dense.json --all
has "1  chunk 0  graphed  layer 1 attn..mlp" "and shows every segment"

model ends '"granularity": "chunk",' '{"kind": "dense",
    "features": ["embedding"]}, {"kind": "dense"}, {"kind": "dense",
    "chunk": 1, "features": ["mtp", "head"]}'
returns 0 "a chunk's graph begins with the embedding" ends.json
has "graphed  layer 0 embedding..layer 1 mlp" "which is said"
has "graphed  layer 2 attn..head" "and the last one ends with the head"
returns 0 "--why says it of the embedding" ends.json --why 0.embedding
has "layer 0, embedding: graphed" "with its mode"
returns 0 "and with graphs of layers" ends.json --why 0.embedding \
    --granularity layer
has "remedy     take granularity chunk, and no ep overlap" "with the remedy"
returns 0 "and of a depth of prediction" ends.json --why 2.head
has "begins     a depth of multi-token prediction" "that no graph joins it"
returns 2 "a head that is not described" ends.json --why 0.head
has "layer 0 has no head, so it runs outside of all graphs; name it in" \
    "is outside of graphs"
model late '"granularity": "chunk",' '{"kind": "dense", "features": ["mtp"]},
    {"kind": "dense", "chunk": 1}'
returns 1 "a chunk behind a depth of prediction begins with another" late.json
has "layer 1: its chunk comes after a depth of multi-token prediction" "by name"

model job '"delay_wgrad": true, "ep_size": 4, "cp_size": 2,' '{"kind": "moe",
    "experts": 8, "dispatcher": "flex", "backend": "hybridep",
    "features": ["latent", "packed", "packed_pad"]},
    {"kind": "dense", "features": ["mtp", "packed", "packed_pad"]}'
returns 0 "a description has the backend, the groups and delayed wgrad" \
    job.json --scope attn,mlp,moe_router --granularity chunk
has "scope attn mlp moe_router, delayed wgrad" "which is said"
has "graphed  layer 1 attn..mlp" "and a depth of prediction is not joined"
returns 0 "--why has them" job.json --scope attn --why 0.attn
has "layer      0, moe, 8 experts, dispatcher flex by hybridep" "the backend,"
has "wgrad      a pass of its own" "the delayed gradients,"
has "groups     cp" "the groups"
has "features   latent packed packed_pad" "and the features"
returns 0 "--json has them" job.json --scope attn --json
has '"passes":["forward","backward","wgrad"],"groups":["cp"]' \
    "of each segment"
returns 0 "--delay-wgrad wins" job.json --scope attn --json --delay-wgrad 0
grep -q '"wgrad"' out
[ $? -eq 1 ]
ok $? "over the description"
returns 2 "a switch of weight gradients is 0 or 1" job.json --delay-wgrad yes
has '--delay-wgrad is "yes"' "with its name"
model bad '"ep_size": 3,' "$moe"
returns 1 "experts that a group cannot share evenly are refused" bad.json
has "layer 0: its 8 experts are divided among an ep_size of 3" "with a sentence"
model bad '"ep_size": 1, "ep_overlap": true,' "$moe"
returns 1 "EP overlap in a group of one is refused" bad.json
has "ep overlap: an ep_size of 1 has no communication to hide" "with a sentence"

# ---- what is impossible ---------------------------------------------------

# impossible NAME SENTENCE ARGUMENT...
impossible()
{
    name=$1
    sentence=$2
    shift 2
    returns 1 "$name is impossible" "$@"
    has "$sentence" "which is said with the remedy"
}

impossible "moe with moe_router" "moe already holds moe_router: name one" \
    padded.json --scope moe,moe_router
impossible "moe_preprocess alone" "name moe_router too" \
    moe.json --scope moe_preprocess
impossible "mlp where all layers have experts" \
    "moe: scope mlp: no layer of this rank has one; leave it out" \
    moe.json --scope mlp
impossible "mamba without a Mamba layer" \
    "scope mamba: no layer of this rank has one; leave it out, or name one of \
attn,mlp" dense.json --scope mamba
impossible "a scope of which no word names anything" \
    "scope mlp,mamba: no layer of this rank has one" moe.json --scope mlp,mamba
returns 0 "a word that names nothing on this rank is a note" moe.json \
    --scope attn,mlp
has "note: scope mlp: no layer of this rank has one; leave it out unless \
another rank has" "with what to do"
has "graphed  layer 0..1 (2 alike) attn" "and the other words are captured"
returns 0 "--json has that note" moe.json --scope attn,mlp --json
has '"scope mlp: no layer of this rank has one;' "as one of the notes"
model stage '"stage": true,' "$moe, $moe"
returns 0 "a stage of a pipeline need not have anything of a scope" stage.json \
    --scope mlp
has "note: scope mlp: no layer of this rank has one; leave it out unless \
another rank has" "which is said"
returns 0 "nor grant it" stage.json --scope moe
has "eager    layer 0..1 (2 alike) moe_router..moe_post: its experts" \
    "so that all of it is eager, with the reason"
model both '"stage": true, "whole": true,' "$moe"
returns 2 "a whole model is no stage" both.json
has "the layers are of the whole model or of one stage" "which is said"
model job '"whole": true,' "$moe, $moe"
impossible "a word that names nothing in a whole job" \
    "scope mlp: no layer of this model has one; leave it out, or name one of \
attn,moe,moe_router,moe_preprocess" job.json --scope attn,mlp
stage=$srcdir/doc/models/deepseek-v3-stage.json
returns 0 "a stage of DeepSeek-V3 without dense layers has a plan" "$stage"
has "graphed  layer 0..3 (4 alike) attn..moe_preprocess" \
    "and captures what the scope names of it"
impossible "moe with dropless experts" \
    "layer 0: its experts get another number of tokens in every pass" \
    moe.json --scope moe
has "set a capacity and pad to it, or name moe_router instead of moe" \
    "and by another word"
impossible "moe while communication is hidden" "switch off the overlap" \
    padded.json --scope moe --ep-overlap 1
model job '"whole": true,' "$dense, $moe"
returns 0 "a dense layer's attn and mlp are captured while it is" job.json \
    --scope attn,mlp --ep-overlap 1
has "graphed  layer 0 attn:" "attention as a graph"
has "graphed  layer 0 mlp:" "and its MLP as another"

# good_layer NAME SCOPE LAYER: all that the scope names is captured.
good_layer()
{
    model good '' "$3"
    returns 0 "$1 is captured" good.json --scope "$2"
    has "0  chunk 0  graphed" "without a condition"
    grep -q -e '^note' -e eager out
    [ $? -eq 1 ]
    ok $? "and without a note"
}
good_layer "an MLP with dropout that is recomputed" attn,mlp \
    '{"kind": "dense", "features": ["hidden_dropout"], "recompute": ["mlp"]}'
good_layer "experts with dropout that are recomputed" attn,moe \
    "{\"kind\": \"moe\", \"experts\": 8, \"dispatcher\": \"alltoall\",
    \"features\": [\"capacity\", \"pad\", \"hidden_dropout\"],
    \"recompute\": [\"moe\"]}"
good_layer "one expert with a capacity and padding" attn,moe \
    '{"kind": "moe", "experts": 1, "dispatcher": "alltoall",
    "features": ["capacity", "pad"]}'

# bad_layer NAME SCOPE SENTENCE LAYER: impossible in a model of that layer.
bad_layer()
{
    model bad '"whole": true,' "$4"
    impossible "$1" "$3" bad.json --scope "$2"
}
of_moe='"kind": "moe", "experts": 8, "dispatcher": "alltoall"'
bad_layer "moe_preprocess with fp8 padding" moe_router,moe_preprocess \
    "or leave out capacity and fp8_padding, or leave moe_preprocess out" \
    "{$of_moe, \"features\": [\"fp8_padding\"]}"
bad_layer "moe_router with experts recomputed as a whole" moe_router \
    "recompute moe_act instead of moe, or leave moe_router out of the scope" \
    "{$of_moe, \"recompute\": [\"moe\"]}"
bad_layer "moe_router with one expert" moe_router \
    "set a capacity and pad to it, or describe it as a dense layer" \
    '{"kind": "moe", "experts": 1, "dispatcher": "flex"}'
bad_layer "moe with jitter and recomputation" moe \
    "switch off router jitter" "{$of_moe, \"recompute\": [\"moe\"],
    \"features\": [\"capacity\", \"pad\", \"router_jitter\"]}"
bad_layer "attn with dropout and recomputation" attn \
    "switch off attention dropout" '{"kind": "dense",
    "features": ["attn_dropout"], "recompute": ["core_attn"]}'
bad_layer "a layer that is recomputed as a whole" attn \
    "recompute modules of the layer" '{"kind": "dense",
    "recompute": ["layer"]}'
bad_layer "a layer that is offloaded as a whole" attn \
    "offload modules of the layer" '{"kind": "dense", "offload": ["layer"]}'

bad_layer "moe with an all-gather" moe \
    "take alltoall with a capacity and pad, or name moe_router instead of moe" \
    '{"kind": "moe", "experts": 8, "dispatcher": "allgather",
    "features": ["capacity", "pad"]}'
bad_layer "moe_router that waits for the device" moe_router \
    "take a router that does not wait, such as top-k, or leave moe_router out" \
    "{$of_moe, \"features\": [\"host_router\"]}"
bad_layer "packed sequences" attn \
    "pad tokens and sequences to a fixed number and name packed_pad" \
    '{"kind": "dense", "features": ["packed"]}'
bad_layer "attn_proj offloaded alone" mlp "layer 0: the input of its attn_proj" \
    '{"kind": "dense", "offload": ["attn_proj"]}'
bad_layer "expert_fc1 offloaded from a recomputed moe" attn \
    "layer 0: its moe is recomputed as one unit, so nothing of expert_fc1" \
    "{$of_moe, \"recompute\": [\"moe\"], \"offload\": [\"expert_fc1\"]}"
beside='"features": ["shared_experts", "shared_overlap"]'
bad_layer "shared experts recomputed beside the dispatch" attn \
    "leave out shared_overlap, or shared_experts of the recomputed modules" \
    "{$of_moe, $beside, \"recompute\": [\"shared_experts\"]}"
model bad '"ep_overlap": true,' '{"kind": "moe", "experts": 8,
    "dispatcher": "allgather", "features": ["host_router"]}'
impossible "moe that is refused for three reasons" "; switch off the overlap, \
and take a router that does not wait, such as top-k, and make it sync_free, or \
take alltoall with a capacity and pad; or leave moe out of the scope" \
    bad.json --scope moe
model bad '"ep_overlap": true,' "{$of_moe, $beside}"
impossible "two things beside the dispatch" \
    "leave out shared_overlap, or switch off the overlap" bad.json --scope attn
model bad '"ep_overlap": true,' "{$of_moe, \"recompute\": [\"moe\"]}"
impossible "EP overlap with a recomputed moe" \
    "recompute moe_act instead of moe, or switch off the overlap" \
    bad.json --scope attn
model bad '"ep_overlap": true,' "{$of_moe, \"recompute\": [\"layer\"]}"
impossible "EP overlap with a recomputed layer of experts" \
    "recompute modules of it, such as core_attn and moe_act, or switch off" \
    bad.json --scope attn
model dense-too '"ep_overlap": true,' "$moe, {\"kind\": \"dense\",
    \"recompute\": [\"layer\"]}"
returns 0 "a dense layer may be recomputed as a whole beside it" dense-too.json
impossible "moe that is refused for two reasons" \
    "switch off the overlap, and set a capacity and pad to it; or name moe_router" \
    moe.json --scope moe --ep-overlap 1

model mixed '' "$padded, $moe, $moe"
returns 0 "whole layers are narrowed while communication is hidden" \
    deepseek.json --ep-overlap 1
has "graphed  layer 0 mlp: no scope is set" "the MLP to a graph of its own"
has "layer 1..2 (2 alike) attn..moe_preprocess: no scope is set" \
    "and experts to what comes before them"
returns 0 "what only some layers cannot have is narrowed" mixed.json \
    --scope moe
has "note: layer 1 (and 1 more): its experts get another number" \
    "and noted once"

# ---- what is not a description --------------------------------------------

# malformed NAME SENTENCE TEXT
malformed()
{
    printf '%s' "$3" > bad.json
    returns 2 "$1 is refused" bad.json
    has "bad.json: $2" "with its place"
}
malformed "an empty file" "line 1, column 0: this is not JSON" ''
malformed "half a description" "line 1, column 1: this is not JSON" '{'
malformed "a list" "the description is a list; give an object" '[]'
malformed "a field given twice" "line 1, column" '{"name": "a", "name": "b"}'
malformed "a description without a name" "name is missing" '{}'
malformed "a description without layers" "layers is missing" \
    '{"name": "a", "family": "mla"}'
malformed "a mistyped field" "layer: there is no such field; did you mean layers?" \
    '{"name": "a", "family": "mla", "layer": []}'
malformed "a family that is a number" "family is a number; give a string" \
    '{"name": "a", "family": 3}'
malformed "a family that is a path" \
    'layers[0].family is "../gpt": name it in letters, digits, _ and -' \
    '{"name": "a", "family": "../gpt", "layers": [{"kind": "dense"}]}'

# bad_field NAME SENTENCE LAYERS [MORE]
bad_field()
{
    model bad "${4-}" "$3"
    returns 2 "$1 is refused" bad.json
    has "bad.json: $2" "with its place"
}
bad_field "no layer" "layers is empty" ''
bad_field "a layer that is a word" "layers[1] is a string; give an object" \
    "$dense, \"dense\""
bad_field "a layer without a kind" "layers[1].kind is missing; give dense" \
    "$dense, {}"
bad_field "a mistyped kind" 'layers[0].kind is "dens"; did you mean dense?' \
    '{"kind": "dens"}'
bad_field "a mistyped field of a layer" \
    "layers[0].featurs: there is no such field; did you mean features?" \
    '{"kind": "dense", "featurs": []}'
bad_field "a field too many" \
    "layers[0].hidden_size: there is no such field; leave it out" \
    '{"kind": "dense", "hidden_size": 1}'
bad_field "a layer without its number of experts" \
    "layers[0].experts is missing" '{"kind": "moe"}'
bad_field "a layer without its dispatcher" "layers[0].dispatcher is missing" \
    '{"kind": "moe", "experts": 8}'
bad_field "a dense layer with experts" \
    "layers[0].experts: a dense layer has no experts" \
    '{"kind": "dense", "experts": 8}'
bad_field "a dense layer with a backend" \
    "layers[0].backend: a dense layer has no experts" \
    '{"kind": "dense", "backend": "deepep"}'
bad_field "a backend of another dispatcher" \
    "layers[0].backend is of a flex dispatcher; leave it out" \
    "{$of_moe, \"backend\": \"deepep\"}"
bad_field "a mistyped backend" \
    'layers[0].backend is "deepeq"; did you mean deepep?' \
    '{"kind": "moe", "experts": 8, "dispatcher": "flex", "backend": "deepeq"}'
bad_field "a group without ranks" "ep_size is 0; give a number from 1" \
    "$dense" '"ep_size": 0,'
bad_field "whole as a word" "whole is a string; give true or false" \
    "$dense" '"whole": "yes",'
bad_field "a fraction of experts" \
    "layers[0].experts is a fraction; give a number from 1" \
    '{"kind": "moe", "experts": 8.5}'
bad_field "less than one layer" "layers[0].repeat is 0; give a number from 1" \
    '{"kind": "dense", "repeat": 0}'
bad_field "a layer's family with an end" \
    'layers[0].family is "gpt.so": name it in letters, digits, _ and -' \
    '{"kind": "dense", "family": "gpt.so"}'
bad_field "an empty family" "layers[0].family is empty" \
    '{"kind": "dense", "family": ""}'
bad_field "more than a million layers" "layers[1].repeat: these are more" \
    '{"kind": "dense", "repeat": 999999}, {"kind": "dense", "repeat": 2}'
bad_field "a feature that there is not" \
    'layers[0].features[1] is "pda"; did you mean pad?' \
    "{$of_moe, \"features\": [\"capacity\", \"pda\"]}"
bad_field "a feature of other layers" \
    "layers[0].features: this dense layer has no pad" \
    '{"kind": "dense", "features": ["pad"]}'
bad_field "a feature that needs another" \
    "layers[0].features: pad pads up to a capacity" \
    "{$of_moe, \"features\": [\"pad\"]}"
bad_field "a word given twice" "layers[0].offload[1] is mlp once more" \
    '{"kind": "dense", "offload": ["mlp", "mlp"]}'
bad_field "bytes of a module that stays" \
    "layers[0].offload_bytes.core_attn: the layer does not offload it" \
    '{"kind": "dense", "offload_bytes": {"core_attn": 1}}'
bad_field "bytes of no module" \
    "layers[0].offload_bytes.core_atn: there is no such field; did you mean" \
    '{"kind": "dense", "offload": ["core_attn"],
      "offload_bytes": {"core_atn": 1}}'
bad_field "no bytes" "layers[0].offload_bytes.core_attn is a number" \
    '{"kind": "dense", "offload": ["core_attn"],
      "offload_bytes": {"core_attn": 0}}'
bad_field "a list of bytes" "layers[0].offload_bytes is a list" \
    '{"kind": "dense", "offload_bytes": [1]}'
bad_field "no time" "layers[0].forward_us is 0; give a number from 1" \
    '{"kind": "dense", "forward_us": 0}'
bad_field "a fraction that is none" 'offload_fraction is "1.5' "$dense" \
    '"offload_fraction": 1.5,'
bad_field "a fraction below 0" 'offload_fraction is "-' "$dense" \
    '"offload_fraction": -0.5,'
bad_field "a fraction that is true" "offload_fraction is true" "$dense" \
    '"offload_fraction": true,'
bad_field "one buffer" "offload_buffers is 1; give a number from 2 to 8" \
    "$dense" '"offload_buffers": 1,'
bad_field "no microbatch" "in_flight is 0; give a number from 1 to 64" \
    "$dense" '"in_flight": 0,'
bad_field "no link" "link_mb_per_s is 0; give a number from 1" "$dense" \
    '"link_mb_per_s": 0,'
bad_field "a module of other layers" \
    "layers[0].recompute: this moe layer has no shared_experts" \
    "{$of_moe, \"recompute\": [\"shared_experts\"]}"
bad_field "a chunk left out" "layers[1].chunk is 2 after 0" \
    "$dense, {\"kind\": \"dense\", \"chunk\": 2}"
bad_field "chunks given twice" "layers[0].chunk: chunks is given" \
    '{"kind": "dense", "chunk": 0}' '"chunks": 1,'
bad_field "more chunks than layers" "chunks is 2; these are only 1 layers" \
    "$dense" '"chunks": 2,'
bad_field "a word of the scope that there is not" \
    'scope[0] is "atn"; did you mean attn?' "$dense" '"scope": ["atn"],'
bad_field "a scope that is a string" "scope is a string; give a list" \
    "$dense" '"scope": "attn",'
bad_field "a switch that is a word" "ep_overlap is a string; give true" \
    "$dense" '"ep_overlap": "on",'
bad_field "a name with a line's end in it" \
    "layers[0].name has a control character" \
    '{"kind": "dense", "name": "a\nb"}'
bad_field "an empty name" "layers[0].name is empty" \
    '{"kind": "dense", "name": ""}'
awk 'BEGIN { for (i = 0; i < 100000; i++) printf "[" }' > bad.json
returns 2 "a list in a list in a list is refused" bad.json

# ---- orders of an overlap --------------------------------------------------

timed='"node_us": [[300, 300, 300], [900, 900], [400, 400, 400], [900, 900],
  [50, 50]]'
model timed '"ep_overlap": true, "delay_wgrad": true,' \
    "{$of_moe, \"repeat\": 8, $timed}"
returns 0 "a plan under EP overlap has its fixed order" timed.json
has "layer 0: B.rest [B.combine] F.before B.experts [F.dispatch] W.experts \
[B.dispatch] F.experts [F.combine] B.before F.rest W.before" \
    "of a pair of layers, once for all that are alike"
[ "$(grep -c '\[F.dispatch\]' out)" -eq 1 ]
ok $? "and once"
has "chunk 0: auto order: 28.900 ms foreseen, fixed 32.000; compute 17.600, \
communication 28.800, of which exposed 39.2 %, fixed 50.0 %, with early \
release 69.4 %" "with times it has what each order exposes"
returns 0 "without delayed weight gradients" timed.json --delay-wgrad 0
has "layer 0: B.rest [B.combine] F.before B.experts [F.dispatch] [B.dispatch] \
F.experts [F.combine] B.before F.rest" "the order has none"
returns 0 "without EP overlap" timed.json --ep-overlap 0
grep -q "F.dispatch" out
[ $? -eq 1 ]
ok $? "a plan has no order"
returns 0 "a plan of layers without times" moe.json --ep-overlap 1
grep -q "foreseen" out
[ $? -eq 1 ]
ok $? "foresees nothing"
has "[F.dispatch]" "and has its order"
model half '"ep_overlap": true,' "{$of_moe, $timed}, {$of_moe}"
returns 0 "a plan of which one layer has times" half.json
grep -q "foreseen" out
[ $? -eq 1 ]
ok $? "foresees nothing either"
returns 0 "a plan as JSON" timed.json --json
has '{"layer":0,"fixed":[{"node":"B.rest","lane":"compute"},{"node":"B.combine"'\
',"lane":"comm"},' "has the order"
has '{"chunk":0,"order":"auto","ns":28900000,"fixed_ns":32000000,"early_ns":' \
    "and the prediction"
model bad '"ep_overlap": true,' "{$of_moe, \"node_us\": [[1, 1]]}"
returns 2 "times of other nodes are refused" bad.json
has "node_us of layer 0 has 1 nodes, and the layer 5" "with a sentence"
bad_field "a node's time below 0" "layers[0].node_us[0][1]: give microseconds" \
    "{$of_moe, \"node_us\": [[1, -1]]}"
bad_field "a node with one time" "layers[0].node_us[0]: give a list of two" \
    "{$of_moe, \"node_us\": [[1]]}"
bad_field "a node that is a number" "layers[0].node_us[0]: give a list of two" \
    "{$of_moe, \"node_us\": [1]}"
bad_field "no nodes" "layers[0].node_us: give a list with one entry" \
    "{$of_moe, \"node_us\": []}"

# ---- what a training has measured -----------------------------------------

row='"eager_us": 1203.25, "replay_us": 911, "eager_host_us": 840,
  "replay_host_us": 30.25'
model measured "\"measured\": [{\"scope\": \"attn,moe_router\",
  \"segments\": 24, $row, \"kept\": true}, {\"scope\": \"m\\\"lp\", $row,
  \"kept\": false}]," '{"kind": "dense"}'
returns 0 "a plan of a model of which a training has measured something" \
    measured.json
has "attn,moe_router        24      1.203      0.911        0.840         \
0.030  kept" "has a line for each scope"
has "dropped" "also of one that has no graphs any more"
returns 0 "as JSON" measured.json --json
has '{"scope":"m\"lp","segments":1,"eager_us":1203.250,"replay_us":911.000,' \
    "it has the same"
for key in eager_us replay_us eager_host_us replay_host_us; do
    bad_field "a $key below 0" "measured[0].$key: give microseconds" \
        '{"kind": "dense"}' "\"measured\": [{\"scope\": \"a\",
        $(echo "$row" | sed "s/\"$key\": [0-9.]*/\"$key\": -1/")}],"
done
bad_field "no time" "measured[0].eager_us is missing; give microseconds" \
    '{"kind": "dense"}' '"measured": [{"scope": "a"}],'
bad_field "a scope without a name" "measured[0].scope is missing" \
    '{"kind": "dense"}' '"measured": [{}],'
bad_field "a number" "measured[0]: give an object" '{"kind": "dense"}' \
    '"measured": [1],'
bad_field "an object" "measured: give a list of scopes" '{"kind": "dense"}' \
    '"measured": {},'
returns 0 "a plan without" dense.json
grep -q "measured" out
[ $? -eq 1 ]
ok $? "says nothing of it"

# ---- pipelines ------------------------------------------------------------

cat > chunks.json << 'EOF'
{"name": "chunks", "layers": [{"kind": "dense", "repeat": 2},
  {"kind": "dense", "repeat": 2, "chunk": 1}]}
EOF
cat > v.txt << 'EOF'
stages 2
chunks 2
microbatches 1
placement v
0 forward 0 0
1 forward 0 0
1 forward 1 0
0 forward 1 0
0 backward 1 0
1 backward 1 0
1 backward 0 0
0 backward 0 0
EOF
returns 0 "a pipeline is foreseen" chunks.json --pp 4 --microbatches 8
has "4 stages of 2 chunks, 8 microbatches in groups of 4: stages are idle for 15.8 %" \
    "with the time that stages are idle"
has "stage 2: slots 7 + 3" "and the slots of each stage's chunks"
returns 0 "and as JSON" chunks.json --pp 4 --json
has '"pipeline": {"stages": 4, "chunks": 2, "microbatches": 8, "group": 4, "bubble": 0.1579, "slots": [[8, 4], [8, 4], [7, 3], [5, 1]]}' \
    "with the same numbers"
cat > slots.json << 'EOF'
{"name": "slots", "slot_bytes": 48576, "layers": [
    {"kind": "dense", "repeat": 2, "slot_bytes": 1000000},
    {"kind": "dense", "chunk": 1, "slot_bytes": 500000}]}
EOF
returns 0 "the memory of slots is foreseen" slots.json --pp 4
has "stage 3: slots 5 + 1, 10.3 MiB" "of each stage"
returns 0 "and as JSON" slots.json --pp 4 --json
has '"slots": [[8, 4], [8, 4], [7, 3], [5, 1]], "slot_bytes": [18582912, 18582912, 15985760, 10791456]}' \
    "in bytes"
sed 's/"slots",/"slots", "embedding_slot_bytes": 7, "head_slot_bytes": 1000,/' \
    slots.json > ends.json
returns 0 "the ends of the model have some too" ends.json --pp 4 --json
has '"slot_bytes": [18582968, 18582912, 15985760, 10792456]}' \
    "in the first chunk of the first stage and the last of the last"
returns 0 "as the shape of a V has them" ends.json --pp 4 --json \
    --schedule dualpipev
has '"slots": [[8, 1], [7, 2], [6, 3], [5, 4]], "slot_bytes": [16938240,' \
    "both in the first stage"
sed 's/, "slot_bytes": 500000//' slots.json > some.json
returns 0 "a layer without it" some.json --pp 4
grep -q "stage 3: slots 5 + 1\$" out
ok $? "and nothing is said"
sed 's/500000/0/' slots.json > bad.json
returns 2 "a slot without memory" bad.json --pp 4
has "layers[1].slot_bytes is a number; give a number of bytes, 1 to 2^48" \
    "is refused"
returns 0 "a schedule is read from a file" chunks.json --pp 2 --schedule v.txt
has "pipeline, v.txt: 2 stages of 2 chunks, 1 microbatches: stages" \
    "with its sizes"
has "stage 1: slots 1 + 1" "and its slots"
returns 0 "stages may take times of their own" dense.json --pp 2 \
    --microbatches 2 --stage-times 1,2
has "stages are idle for 40.0 %, if a backward takes two forwards, at the times of stages that are given" \
    "which is counted"
returns 0 "zero bubble is known" dense.json --pp 4 --schedule zero-bubble
has "stage 0: slots 4" "with its slots"
returns 0 "dualpipev is known" chunks.json --pp 4 --schedule dualpipev
has "pipeline, dualpipev: 4 stages of 2 chunks, 8 microbatches: stages" \
    "with its sizes"
has "stage 0: slots 8 + 1" "and its slots, which are twice the stages and one"
returns 0 "without --pp nothing is said of pipelines" chunks.json
grep -q "pipeline" out
[ $? -eq 1 ]
ok $? "and nothing is printed"

# pipeline_fails SENTENCE OPTION...
pipeline_fails()
{
    sentence=$1
    shift
    returns 2 "refused: $*" chunks.json "$@"
    has "$sentence" "with a sentence"
}
pipeline_fails "give --pp too" --microbatches 8
pipeline_fails "give --pp too" --stage-times 1,1
pipeline_fails '--stage-times is "1,2": give a time above 0 for each of 4 stages' \
    --pp 4 --stage-times 1,2
pipeline_fails '--stage-times is "1,0": give' --pp 2 --stage-times 1,0
pipeline_fails '--pp is "0": give 1 to 256' --pp 0
pipeline_fails '--pp is "4x": give 1 to 256' --pp 4x
pipeline_fails "--vpp is 3, and the layers described have 2 chunks" --pp 4 --vpp 3
pipeline_fails "give groups of 4 microbatches, as many as there are stages, to 65536" --pp 4 --group 3
pipeline_fails "the last group has 1" --pp 4 --microbatches 5
pipeline_fails "--group is of 1f1b" --pp 2 --group 2 --schedule v.txt
returns 0 "large groups take no time" chunks.json --pp 4 --group 2000
has "stage 0: slots 2007 + 1003" "and have their slots"
pipeline_fails "is of one chunk a stage" --pp 4 --schedule zero-bubble
pipeline_fails "7 microbatches: give at least twice as many" --pp 4 \
    --schedule dualpipev --microbatches 7
returns 2 "dualpipev of one chunk" dense.json --pp 4 --schedule dualpipev
has "is of two chunks a stage, and the layers described have 1" "is refused"
pipeline_fails "--schedule nowhere: No such file" --pp 4 --schedule nowhere
pipeline_fails "it has 2 where --pp says 4" --pp 4 --schedule v.txt
pipeline_fails "it has 1 where --microbatches says 8" --pp 2 --microbatches 8 \
    --schedule v.txt
sed 's/^0 forward 1 0/0 forward 0 0/' v.txt > twice.txt
pipeline_fails "twice.txt: line 8: stage 0 of 2: forward of chunk 0" --pp 2 \
    --schedule twice.txt

# ---- many layers ----------------------------------------------------------

model many '"chunks": 10,' '{"kind": "moe", "repeat": 10000, "experts": 8,
    "dispatcher": "alltoall"}'
begin=$(date +%s%N)
plan many.json --all > out
end=$(date +%s%N)
[ "$(grep -c 'graphed' out)" -eq 10000 ]
ok $? "10,000 layers have a plan, with --all a line for each segment"
diag "in $(((end - begin) / 1000000)) ms"
if [ -n "${sanitize-}" ]; then
    skip "a sanitized program takes longer"
else
    [ $((end - begin)) -lt 900000000 ]
    ok $? "in well under a second"
fi
plan many.json > out
[ "$(grep -c 'graphed' out)" -eq 10 ]
ok $? "without --all a line for those of a chunk, which are alike"
has "0,2..1998  chunk 0  graphed  layer 0..999 (1000 alike) attn" \
    "with their numbers"

cat > memory.json << 'end'
{"name": "m", "input_bytes": 1048576, "stash_bytes": 2097152,
 "window_bytes": 1048576, "in_flight": 3,
 "layers": [{"kind": "dense"}, {"kind": "dense", "chunk": 1}]}
end
returns 0 "a description with sizes is read" memory.json
has "chunk 1: 3.0 MiB, inputs of graphs in 3 slots" \
    "the memory of a chunk is foretold"
has "stash 2.0, window of the exchange 1.0" "with stash and window"
has "in all 9.0 MiB" "and in all"
returns 0 "so it is of a pipeline" memory.json --pp 2 --microbatches 4
has "in a stage with the most slots" "of one stage"
returns 0 "and for programs" memory.json --json
has '"stash_bytes": 2097152, "window_bytes": 1048576, "bytes": 9437184}' \
    "as numbers"
sed 's/"input_bytes": 1048576/"input_bytes": [1048576, 3145728]/' memory.json \
    > each.json
returns 0 "each chunk may have a size of its own" each.json
has "chunk 0: 3.0 MiB, inputs of graphs in 3 slots" "of the first chunk"
has "chunk 1: 9.0 MiB, inputs of graphs in 3 slots" "and of the second"
has "in all 15.0 MiB" "both are in the sum"
for list in '[1048576]' '[1, 2, 3]' '[]' '[1, "2"]' '[1, 0]'; do
    sed "s/\"input_bytes\": 1048576/\"input_bytes\": $list/" memory.json \
        > wrong.json
    returns 2 "sizes $list of two chunks are refused" wrong.json
    grep -q "input_bytes.*one for each chunk" out
    ok $? "with the rule"
done
done_testing
