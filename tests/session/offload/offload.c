/*
 * What a session offloads comes back bit for bit, and takes the memory that
 * the policy says.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/by_hand.h"
#include "support/saving.h"
#include "support/trace_file.h"
#include "tap/tap.h"

#include <stdio.h>
#include <string.h>

static const struct toy_options four_layers = {
    .layers = 4, .modules = 3, .tensors = 2, .elems = 256, .in_flight = 3
};

static uint32_t n_leaks;

static void finish(void)
{
    toy_detach(&sv);
    n_leaks += left_over() != 0;
    toy_close(&sv);
}

static void no_race(void)
{
    if (sv.soft) {
        is_int(toy_races(&sv), 0, "without a race");
    } else {
        skip(1, "only the software device looks for races");
    }
}

/* ---- what is trained ---------------------------------------------------------- */

static void train(const struct toy_options *options, const char *what)
{
    gh_offload_stats moved;
    gh_stats stats;

    if (!open_with(options)) {
        return;
    }
    ok(trains(), "%s: every sum is exact%s", what,
       sv.soft ? ", and nothing is raced for" : "");
    moved = toy_moved(&sv);
    stats = toy_stats(&sv);
    ok(moved.out_copies > 0 && moved.back_copies >= moved.out_copies -
                                                        moved.out_copies / 4,
       "%s: %llu copies go out, %llu come back", what,
       (unsigned long long)moved.out_copies,
       (unsigned long long)moved.back_copies);
    ok(stats.replays > 0 && stats.check_failures == 0,
       "%s: %llu passes are replayed", what, (unsigned long long)stats.replays);
    finish();
}

static void test_training(void)
{
    static const char *const delayed[] = { "GRAPHHOOKS_OFFLOAD_DELAY=1",
                                           NULL };
    static const char *const comparing[] = { "GRAPHHOOKS_CHECK=bitwise",
                                             "GRAPHHOOKS_LOG=off", NULL };
    static const char *const one_slot[] = { "GRAPHHOOKS_LOG=off", NULL };
    static const char *const traced[] = { "GRAPHHOOKS_TRACE=/dev/null", NULL };
    struct toy_options o = four_layers;

    train(&o, "layers");
    o.environment = traced;
    train(&o, "traced");
    o.environment = NULL;
    o.granularity = "part";
    train(&o, "parts");
    o.across = true;
    train(&o, "parts, a group across two");
    o.across = false;
    o.granularity = "chunk";
    train(&o, "a chunk");
    o.chunks = 2;
    train(&o, "two chunks");
    o = four_layers;
    o.streams = 3;
    train(&o, "three streams");
    o.last_first = true;
    train(&o, "three streams, the last backward first");
    o.max_slots = 1;
    o.environment = one_slot;
    train(&o, "three streams and one slot");
    o = four_layers;
    o.environment = delayed;
    train(&o, "delayed");
    o.flushes = true;
    train(&o, "delayed and flushed");
    o.granularity = "chunk";
    train(&o, "a chunk, delayed");
    o = four_layers;
    o.environment = comparing;
    train(&o, "compared");
    o.granularity = "chunk";
    train(&o, "a chunk, compared");
    o.granularity = "part";
    o.across = true;
    train(&o, "a group across two, compared");
    o = four_layers;
    o.scope = "attn";
    o.across = true;
    train(&o, "a group from a graph into an eager part");
    o.scope = "mlp";
    train(&o, "a group from an eager part into a graph");
    o = four_layers;
    o.evaluates = true;
    train(&o, "evaluations between");
    o.streams = 3;
    o.in_flight = 2;
    o.free_running = true;
    train(&o, "evaluations on three streams");
    o.offload = asks("core_attn");
    train(&o, "evaluations on three streams, most groups stay");
    o.evaluates = false;
    o.max_slots = 1;
    o.environment = one_slot;
    train(&o, "one slot, three streams, most groups stay");
    o = four_layers;
    o.side_by_side = true;
    o.streams = 3;
    o.free_running = true;
    train(&o, "backwards side by side");
    o.layers = 6;
    o.in_flight = 2;
    train(&o, "two backwards side by side");
    o.granularity = "part";
    o.across = true;
    o.layers = 5;
    o.environment = one_slot; /* which is silent */
    train(&o, "loaded by one part, released by another, side by side");
    o.scope = "mlp";
    train(&o, "committed by a graph, side by side");
    o.scope = "attn";
    train(&o, "saved by a graph, side by side");
    o = four_layers;
    o.at_once = true;
    train(&o, "all groups of a layer at once");
    o.granularity = "chunk";
    o.in_flight = 4;
    train(&o, "all groups of a chunk at once");
    o.across = true;
    o.granularity = "part";
    train(&o, "across two parts at once");
    o = four_layers;
    o.offload = (gh_offload_desc){ .struct_size = 1,
                                   .modules = TOY_MODULES,
                                   .min_bytes = 600 };
    train(&o, "small tensors stay");
}

/* ---- what stays, and what memory that takes ------------------------------------- */

#define MODULES 3u
#define LAYERS 4u
#define GROUP_BYTES (1024u + 512u) /* two tensors of 256 and of 128 words */

/* Which groups go, of 4 layers with 3 modules each. */
static void test_policy_under(const char *const *environment,
                              gh_offload_desc desc, uint32_t layers,
                              uint32_t expected, const char *what)
{
    struct toy_options o = four_layers;
    gh_offload_stats moved;

    if (environment != NULL) {
        o.environment = environment;
    }
    o.offload = desc;
    o.layers = layers;
    if (!open_with(&o)) {
        return;
    }
    ok(trains(), "%s: every sum is exact", what);
    moved = toy_moved(&sv);
    is_int(moved.groups, layers * MODULES, "%s: all groups are known", what);
    is_int(moved.groups_offloaded, expected, "%s: %u of them go", what,
           expected);
    ok((moved.ring_bytes == 0) == (expected == 0),
       "%s: rings are there for groups that go", what);
    ok(moved.kept_bytes >= 3 * GROUP_BYTES,
       "%s: %llu bytes are kept on the device", what,
       (unsigned long long)moved.kept_bytes);
    finish();
}

static void test_policy_of(gh_offload_desc desc, uint32_t layers,
                           uint32_t expected, const char *what)
{
    test_policy_under(NULL, desc, layers, expected, what);
}

static void test_policy(void)
{
    static const char *const kept[] = { "GRAPHHOOKS_OFFLOAD_KEEP_BYTES=1536",
                                        NULL };
    gh_offload_desc desc = asks(TOY_MODULES);

    test_policy_of(desc, LAYERS, (LAYERS - 1) * MODULES,
                   "the last of each module stays");
    test_policy_of(asks("own_b"), LAYERS, LAYERS - 1, "one module is asked for");
    test_policy_of(asks("own_b,"), LAYERS, LAYERS - 1, "a comma at the end");
    test_policy_of(desc, 1, 0, "one layer");
    test_policy_of(desc, 2, 0, "two rings are no smaller than one group a slot");
    desc.keep_bytes = GROUP_BYTES;
    test_policy_of(desc, LAYERS, 9, "the first rank keeps no bytes");
    desc.pipeline_rank = 2;
    test_policy_of(desc, LAYERS, 7, "the third rank keeps twice keep_bytes");
    desc.keep_bytes++;
    test_policy_of(desc, LAYERS, 6, "a byte more keeps a group more");
    test_policy_under(kept, desc, LAYERS, 7, "a variable wins over keep_bytes");
    desc = asks(TOY_MODULES);
    desc.fraction = "0.5";
    test_policy_of(desc, LAYERS, 4,
                   "half of them, less one whose rings free nothing");
    desc.fraction = "0";
    test_policy_of(desc, LAYERS, 0, "none of them");
    desc = asks(TOY_MODULES);
    desc.min_bytes = 1025;
    test_policy_of(desc, LAYERS, 0, "all tensors are small");
    desc.buffers = 5;
    desc.min_bytes = 4;
    test_policy_of(desc, LAYERS, 0, "rings of five buffers are no smaller");
}

/* A host that saves groups has one path for its memory: the library says where
 * they lie, though none is to go. */
static void test_nothing_is_asked_for(void)
{
    static const uint32_t counts[] = { 3, 3, 3 };
    struct toy_options o = four_layers;

    o.offload = asks("");
    o.host = &hearing;
    o.environment = NULL;
    if (!open_with(&o)) {
        return;
    }
    run_steps(counts, 2);
    ok(toy_stats(&sv).recordings > 0,
       "where nothing is to be offloaded no step is profiled");
    ok(run_steps(counts, 1) && toy_is_exact(&sv) && toy_races(&sv) == 0,
       "a session that offloads nothing says where groups lie: %s",
       sv.err.text);
    is_int(toy_moved(&sv).out_copies, 0, "and copies nothing");
    is_int(toy_stats(&sv).eager_passes, 2 * 3 * LAYERS,
           "all passes after the first step are graphs");
    is_str(said, "", "and nothing is said of it");
    finish();
}

/* One that was opened without a gh_offload_desc has no place for groups. */
static void test_no_offload_desc(void)
{
    const struct toy_options options = { .layers = 1, .elems = 64 };
    gh_offload_tensor tensor = { NULL, 64 };
    gh_offload_group group = { .struct_size = sizeof(group),
                               .module = GH_MODULE_CORE_ATTN,
                               .n_tensors = 1,
                               .tensors = &tensor };
    gh_pass pass = { .struct_size = sizeof(pass) };
    gh_decision d = { .struct_size = sizeof(d) };
    const char *reason;
    struct toy toy;
    gh_error err = { "" };

    if (!toy_open(&toy, &options, &reason) || toy_attach(&toy) != GH_OK) {
        ok(false, "a session opens");
        return;
    }
    pass.stream = toy.streams[0];
    gh_layer_enter(toy.session, &pass, &d, NULL);
    is_status(gh_offload_save(toy.session, &group, &err), GH_ERR_UNSUPPORTED,
              &err, "a session that was not told of groups has none");
    ok(strstr(err.text, "the session offloads nothing: name modules in "
                        "GRAPHHOOKS_OFFLOAD, or give") != NULL,
       "and says what to do: %s", err.text);
    gh_layer_cancel(toy.session, NULL);
    toy_close(&toy);
}

static void test_plan_switches_off(void)
{
    struct toy_options o = four_layers;

    o.modules = 4;
    o.granularity = "part";
    o.offload = asks(TOY_MODULES ",mlp_norm");
    o.host = &hearing;
    if (!open_with(&o)) {
        return;
    }
    ok(trains(), "a module that the plan switches off trains");
    is_int(toy_moved(&sv).groups_offloaded, 9,
           "its groups stay, and those of the others go");
    is_int(times_said("leave mlp_norm out of the offloaded modules"), 1,
           "which is said: %s", said);
    finish();
}

static void test_memory(void)
{
    struct toy_options o = four_layers;
    softcuda_counts first, last;
    gh_offload_stats moved;
    static const uint32_t counts[] = { 4, 4, 3, 4, 2, 4 };

    if (!open_with(&o)) {
        return;
    }
    run_steps(counts, 1);
    first = toy_counts(&sv);
    moved = toy_moved(&sv);
    is_int(moved.ring_bytes, 2 * 2 * MODULES * GROUP_BYTES,
           "two rings of two buffers for each module, whatever is in flight");
    ok(run_steps(counts + 1, 5) && toy_is_exact(&sv), "and go on training");
    last = toy_counts(&sv);
    is_int(toy_moved(&sv).ring_bytes, moved.ring_bytes,
           "the rings stay as they were");
    if (sv.soft) {
        is_int(last.host_allocations, first.host_allocations,
               "pinned memory is allocated in the first step only");
        is_int(last.host_bytes, toy_moved(&sv).pinned_bytes,
               "and the statistics have all of it");
    } else {
        skip(2, "only the software device counts what is allocated");
    }
    is_int(toy_moved(&sv).pinned_bytes, moved.pinned_bytes,
           "the statistics have no more of it than after the first step");
    ok(moved.pinned_bytes > 0, "which is some");
    finish();
    o.offload = asks(TOY_MODULES);
    o.offload.buffers = 3;
    o.in_flight = 4;
    if (!open_with(&o)) {
        return;
    }
    ok(trains(), "rings of three buffers train");
    is_int(toy_moved(&sv).ring_bytes, 2 * 3 * MODULES * GROUP_BYTES,
           "with two rings of three buffers for each module");
    finish();
}

/* While a backward reads a group, those it reads next are on their way. */
static void test_ahead(void)
{
    static const uint32_t counts[] = { 3, 3, 3, 3 };
    struct toy_options o = four_layers;
    uint64_t late;

    o.in_flight = 1;
    o.layers = 7;
    if (!open_with(&o)) {
        return;
    }
    run_steps(counts, 1);
    late = toy_moved(&sv).late;
    is_int(late, toy_moved(&sv).back_copies,
           "in the profile every group is fetched when it is needed");
    ok(late > 0, "which are %llu", (unsigned long long)late);
    ok(run_steps(counts, 3) && toy_is_exact(&sv), "later steps are right");
    is_int(toy_moved(&sv).late, late, "and fetch every group ahead");
    is_int(toy_moved(&sv).back_copies, toy_moved(&sv).out_copies, "once each");
    finish();
}

/* ---- addresses ------------------------------------------------------------------- */

static void *recorded_at[8][LAYERS][TOY_MAX_MODULES][2];
static uint32_t n_moved, n_watched;

/* GRAPHHOOKS_CHECK runs each pass eagerly too: where that one is, the graph
 * is. */
static enum toy_answer watch_addresses(struct toy *host, enum toy_call call,
                                       uint32_t layer, uint32_t module,
                                       uint32_t microbatch)
{
    const uint32_t slot = host->decision.slot;

    (void)microbatch;
    if (call == TOY_SAVE && host->step > 0 && slot < 8) {
        void **kept = &recorded_at[slot][layer][module][0];

        n_watched++;
        n_moved += *kept != NULL && *kept != host->at[layer][module];
        *kept = host->at[layer][module];
    }
    return TOY_GO_ON;
}

static void test_addresses(void)
{
    static const char *const comparing[] = { "GRAPHHOOKS_CHECK=bitwise",
                                             "GRAPHHOOKS_LOG=off", NULL };
    struct toy_options o = four_layers;

    o.environment = comparing;
    if (!open_with(&o)) {
        return;
    }
    memset(recorded_at, 0, sizeof(recorded_at));
    n_moved = n_watched = 0;
    sv.watch = watch_addresses;
    ok(trains(), "watched, it trains");
    ok(n_watched > 100, "%u groups are saved where a graph has them", n_watched);
    is_int(n_moved, 0, "and none is elsewhere than when it was recorded");
    ok(toy_stats(&sv).checks > 50, "%llu passes are compared",
       (unsigned long long)toy_stats(&sv).checks);
    is_int(toy_stats(&sv).check_failures, 0, "without a difference");
    finish();
}

/* ---- other sizes ----------------------------------------------------------------- */

static void test_smaller_between(void)
{
    static const uint32_t three[] = { 3, 3, 3 };
    struct toy_options o = four_layers;
    uint64_t eager = 0;

    o.in_flight = 1; /* all in one slot */
    o.offload = asks(TOY_MODULES);
    o.offload.min_bytes = 64;
    o.layers = 6;
    if (!open_with(&o)) {
        return;
    }
    ok(run_steps(three, 2), "graphs are recorded of whole microbatches");
    sv.words[1] = 40;
    ok(run_steps(three, 3) && toy_is_exact(&sv),
       "a smaller one between two replays leaves them whole");
    finish();

    if (!open_with(&o)) {
        return;
    }
    for (uint32_t m = 0; m < TOY_MAX_FEEDS; m++) {
        sv.words[m] = 250; /* a gap between the tensors of a group */
    }
    run_steps(three, 2);
    sv.words[1] = 128; /* and none */
    ok(run_steps(three, 3) && toy_is_exact(&sv),
       "nor does one whose tensors lie without a gap");
    gh_session_reasons(sv.session, GH_REASON_INPUT, &eager, NULL);
    ok(eager > 0, "and runs eagerly");
    finish();
}

static void test_larger_than_profiled(void)
{
    static const uint32_t three[] = { 3, 3, 3, 3 };
    struct toy_options o = four_layers;

    o.host = &hearing;
    if (!open_with(&o)) {
        return;
    }
    for (uint32_t m = 0; m < TOY_MAX_FEEDS; m++) {
        sv.words[m] = 128;
    }
    ok(run_steps(three, 2), "graphs are recorded of small microbatches");
    sv.words[1] = 256;
    ok(run_steps(three, 4) && toy_is_exact(&sv),
       "a microbatch that is larger than the profile's is right");
    is_int(times_said("it stays on the device where it is larger"),
           (LAYERS - 1) * MODULES, "which is said once of each group: %s",
           said);
    ok(toy_moved(&sv).kept_bytes >= (LAYERS - 1) * MODULES * GROUP_BYTES,
       "and takes memory of its own");
    no_race();
    finish();
}

/* Graphs know where the groups are that nobody asked for. */
static void test_larger_than_recorded(void)
{
    static const uint32_t three[] = { 3, 3, 3, 3 };
    struct toy_options o = four_layers;

    o.offload = asks("core_attn");
    if (!open_with(&o)) {
        return;
    }
    for (uint32_t m = 0; m < TOY_MAX_FEEDS; m++) {
        sv.words[m] = 128;
    }
    ok(run_steps(three, 2), "graphs are recorded of groups that stay");
    sv.words[0] = 256;
    ok(run_steps(three, 4) && toy_is_exact(&sv),
       "a larger microbatch in their slots is right");
    sv.words[0] = 128;
    ok(run_steps(three, 4) && toy_is_exact(&sv), "and so is what follows it");
    no_race();
    finish();
}

/* The groups grow, and the inputs do not: nobody tells the graphs. */
static void test_growth_in_a_recording(void)
{
    static const uint32_t three[] = { 3, 3, 3 };
    struct toy_options o = four_layers;

    o.host = &hearing;
    if (!open_with(&o)) {
        return;
    }
    ok(run_steps(three, 1), "the first step is the profile");
    sv.grows = true;
    is_status(toy_step(&sv, 3), GH_ERR_DEVICE, NULL,
              "a larger group in a recording is refused");
    ok(strstr(sv.err.text, "has 3072 bytes, and had 1536 in the first step") !=
           NULL,
       "with both sizes: %s", sv.err.text);
    finish();

    if (!open_with(&o)) {
        return;
    }
    run_steps(three, 1);
    sv.grows = true;
    sv.tries_again = true;
    ok(run_steps(three, 3) && toy_is_exact(&sv),
       "a host that enters the pass again runs it eagerly");
    is_int(toy_stats(&sv).check_failures, 0, "nothing differs");
    ok(times_said("what is recorded has the same size in every step") >= 1,
       "and why is said");
    finish();
}

/* Eager parts save groups, and graphs commit them. */
static struct toy_options committed_by_graphs(void)
{
    struct toy_options o = four_layers;

    o.scope = "mlp";
    o.across = true;
    o.modules = 1;
    o.environment = silent;
    return o;
}

/* The eager part moves the group; the graph that commits it knows another
 * place. */
static void test_moved_before_a_graph(void)
{
    static const uint32_t three[] = { 3, 3, 3 };
    struct toy_options o = committed_by_graphs();

    if (!open_with(&o)) {
        return;
    }
    ok(run_steps(three, 3), "graphs commit what eager parts save");
    sv.grows = true;
    ok(run_steps(three, 2) && toy_is_exact(&sv),
       "a group that is too large for its ring is right for the graph too");
    sv.grows = false;
    ok(run_steps(three, 2) && toy_is_exact(&sv), "and so is what follows");
    finish();
}

/* The group stays, and a larger microbatch makes it grow in the eager part:
 * the graph of the slot, which does not run then, reads where it was. */
static void test_grown_before_a_graph(void)
{
    static const uint32_t three[] = { 3, 3, 3 }, one[] = { 1, 1, 1 };
    struct toy_options o = committed_by_graphs();
    uint64_t before;

    o.offload = asks("own_b");
    if (!open_with(&o)) {
        return;
    }
    for (uint32_t m = 0; m < TOY_MAX_FEEDS; m++) {
        sv.words[m] = 128;
    }
    ok(run_steps(three, 3), "graphs commit what stays on the device");
    sv.words[1] = 256;
    ok(run_steps(three, 2) && toy_is_exact(&sv),
       "a group that has grown there is right");
    sv.words[1] = 128;
    before = toy_stats(&sv).replays;
    ok(run_steps(three, 3) && toy_is_exact(&sv), "and so is what follows");
    ok(toy_stats(&sv).replays > before, "which is replayed again");
    no_race();
    finish();

    /* No graph of a backward knows the place. */
    o.in_flight = 1;
    if (!open_with(&o)) {
        return;
    }
    sv.loads_nothing = true;
    sv.words[0] = 128;
    ok(run_steps(one, 3), "graphs commit what no backward loads");
    sv.words[0] = 256;
    ok(run_steps(one, 1), "a group of it grows");
    sv.words[0] = 128;
    before = toy_stats(&sv).replays;
    ok(run_steps(one, 2) && sv.drv.cuCtxSynchronize() == CUDA_SUCCESS &&
           toy_stats(&sv).replays > before,
       "and the graph still reads where it was: %s", sv.err.text);
    no_race();
    finish();
}

/* The same bytes for the graph's inputs, and half of the group. */
static void test_shrunk_before_a_graph(void)
{
    static const uint32_t three[] = { 3, 3, 3 };
    struct toy_options o = committed_by_graphs();

    for (uint32_t tensors = 1; tensors <= 2; tensors++) {
        o.tensors = tensors;
        if (!open_with(&o)) {
            return;
        }
        sv.grows = true;
        run_steps(three, 3);
        sv.grows = false;
        ok(run_steps(three, 3) && toy_is_exact(&sv),
           "a group that is smaller than the graph knows is right");
        finish();
    }
}

/* A host that never loads what its forwards save. */
static void test_host_that_never_loads(void)
{
    struct toy_options o = four_layers;

    o.in_flight = 1;
    if (!open_with(&o)) {
        return;
    }
    sv.loads_nothing = true;
    ok(toy_step(&sv, 1) == GH_OK && toy_step(&sv, 1) == GH_OK &&
           toy_step(&sv, 1) == GH_OK && toy_stats(&sv).replays > 0,
       "one microbatch a step may never be loaded");
    is_status(toy_step(&sv, 2), GH_ERR_DEVICE, NULL,
              "a second one in its slot is refused");
    ok(strstr(sv.err.text, "is committed, and not loaded") != NULL,
       "with the group that was not loaded: %s", sv.err.text);
    finish();
}

/* ---- passes that say nothing about training -------------------------------------- */

static void test_evaluation_first(void)
{
    static const uint32_t three[] = { 3, 3, 3 };
    struct toy_options o = four_layers;

    o.evaluates = true;
    o.streams = 3;
    o.free_running = true;
    if (!open_with(&o)) {
        return;
    }
    sv.evaluates_only = true;
    ok(run_steps(three, 2), "two steps of evaluation alone");
    is_int(toy_moved(&sv).out_copies, 0, "copy nothing");
    sv.evaluates_only = false;
    for (uint32_t m = 0; m < TOY_MAX_FEEDS; m++) {
        sv.words[m] = 128; /* smaller ones than were evaluated */
    }
    ok(run_steps(three, 3) && toy_is_exact(&sv), "training follows");
    is_int(toy_moved(&sv).groups_offloaded, 9,
           "and is the profile, which evaluation was not");
    is_int(toy_moved(&sv).ring_bytes, 2 * 2 * MODULES * (512 + 256),
           "the rings are for what is trained");
    ok(toy_stats(&sv).replays > 0, "and what is trained is replayed");
    no_race();
    finish();
}

static void test_pause(void)
{
    static const uint32_t three[] = { 3, 3, 3 };
    struct toy_options o = four_layers;
    uint64_t copies;

    if (!open_with(&o)) {
        return;
    }
    gh_pre_warmup(sv.session, NULL);
    ok(run_steps(three, 1) && toy_is_exact(&sv),
       "a step of the host's own warmup is right");
    is_int(toy_moved(&sv).out_copies, 0, "and nothing of it goes");
    gh_post_warmup(sv.session, NULL);
    ok(run_steps(three, 3) && toy_is_exact(&sv), "so are those after it");
    is_int(toy_moved(&sv).groups_offloaded, 9, "whose first is the profile");
    copies = toy_moved(&sv).out_copies;
    gh_pre_warmup(sv.session, NULL);
    ok(run_steps(three, 1) && toy_is_exact(&sv), "a later one is right");
    is_int(toy_moved(&sv).out_copies, copies, "and nothing of it goes");
    gh_post_warmup(sv.session, NULL);
    ok(run_steps(three, 2) && toy_is_exact(&sv), "training goes on");
    ok(toy_moved(&sv).out_copies > copies, "and groups go again");
    no_race();
    finish();
}

/* Some groups are saved by evaluation alone: the others settle without them. */
static void test_groups_that_only_evaluation_saves(void)
{
    static const uint32_t three[] = { 3, 3, 3 };
    struct toy_options o = four_layers;

    o.evaluates = true;
    if (!open_with(&o)) {
        return;
    }
    sv.trained_modules = 1;
    ok(run_steps(three, 3) && toy_races(&sv) == 0,
       "modules that only evaluation has stay out of the profile");
    is_int(toy_moved(&sv).groups_offloaded, 3, "the groups of the other go");
    finish();
}

static void test_host_that_saves_late(void)
{
    static const uint32_t three[] = { 3, 3, 3 };
    struct toy_options o = four_layers;

    if (!open_with(&o)) {
        return;
    }
    sv.trained_modules = UINT32_MAX; /* none */
    ok(run_steps(three, 2), "a host that saves nothing trains");
    ok(toy_stats(&sv).recordings > 0, "and its passes are recorded");
    finish();
    o.layers = 5;
    if (!open_with(&o)) {
        return;
    }
    sv.trained_modules = UINT32_MAX;
    run_steps(three, 1);
    sv.trained_modules = 0;
    ok(run_steps(three, 3) && run_steps(three, 1) && toy_is_exact(&sv),
       "one that saves from its second step on trains: %s", sv.err.text);
    no_race();
    finish();
}

/* ---- the trace ------------------------------------------------------------------- */

static void test_trace(void)
{
    static const uint32_t counts[] = { 16, 16, 16, 16, 16, 16 };
    struct toy_options o = four_layers;
    struct trace_file trace;
    gh_offload_stats moved;

    if (!trace_file_open(&trace, "off")) {
        return;
    }
    o.layers = 8;
    o.environment = trace.environment;
    if (!open_with(&o)) {
        trace_file_remove(&trace);
        return;
    }
    ok(run_steps(counts, 6) && toy_is_exact(&sv), "traced, it trains");
    moved = toy_moved(&sv);
    finish();
    ok(moved.out_copies + moved.back_copies > 4096,
       "%llu copies are more than are kept at once",
       (unsigned long long)(moved.out_copies + moved.back_copies));
    is_int(trace_file_count(&trace, "\"cat\":\"out\""), moved.out_copies,
           "the trace has every copy to the host");
    is_int(trace_file_count(&trace, "\"cat\":\"back\""), moved.back_copies,
           "and every one back");
    is_int(trace_file_count(&trace, "did not fit"), 0, "as each step has room");
    trace_file_remove(&trace);
}

/* ---- delayed commits ------------------------------------------------------------- */

static const char *const delayed[] = { "GRAPHHOOKS_OFFLOAD_DELAY=1", NULL };
static uint64_t copies_seen[64], delayed_seen[64];
static uint32_t n_seen;

static enum toy_answer watch_copies(struct toy *host, enum toy_call call,
                                    uint32_t layer, uint32_t module,
                                    uint32_t microbatch)
{
    (void)layer;
    (void)module;
    (void)microbatch;
    if (call == TOY_COMMIT && n_seen < 64) {
        copies_seen[n_seen] = toy_moved(host).out_copies;
        delayed_seen[n_seen++] = toy_moved(host).delayed;
    }
    return TOY_GO_ON;
}

static void test_delay(void)
{
    struct toy_options o = four_layers;
    gh_offload_stats moved;

    o.environment = delayed;
    o.in_flight = 1;
    o.modules = 1;
    if (!open_with(&o)) {
        return;
    }
    n_seen = 0;
    sv.watch = watch_copies;
    ok(toy_step(&sv, 1) == GH_OK, "a step with delayed commits runs");
    is_int(n_seen, LAYERS, "each layer commits a group");
    is_int(copies_seen[1], 0, "two commits are queued and copy nothing");
    is_int(delayed_seen[1], 2, "both are counted");
    ok(copies_seen[2] >= 1, "the third layer writes where the first has, "
                            "which is copied before");
    moved = toy_moved(&sv);
    is_int(moved.out_copies, LAYERS, "the backward finds all of them copied");
    sv.watch = NULL;
    ok(toy_step(&sv, 2) == GH_OK && toy_step(&sv, 2) == GH_OK &&
           toy_is_exact(&sv),
       "recorded and replayed commits are delayed too");
    moved = toy_moved(&sv);
    is_int(moved.delayed, moved.out_copies, "none is dropped");
    ok(moved.flushes > 0, "and the flushes are counted");
    finish();
}

/* A flush issues the queue, also while the host captures another stream. */
static enum toy_answer stop_at_once(struct toy *host, enum toy_call call,
                                    uint32_t layer, uint32_t module,
                                    uint32_t microbatch)
{
    (void)host;
    (void)module;
    (void)microbatch;
    return call == TOY_COMMIT && layer == 1 ? TOY_STOP : TOY_GO_ON;
}

static uint32_t n_behind; /* flushes that left a commit in the queue */

static gh_status flush_between(struct toy *host)
{
    CUgraph graph = NULL;
    CUstream side = host->side;
    gh_status status;

    host->drv.cuStreamBeginCapture(side, CU_STREAM_CAPTURE_MODE_GLOBAL);
    host->drv.cuMemsetD8Async(host->memory, 0, 4, side);
    status = gh_flush_delayed(host->session, &host->err);
    n_behind += toy_moved(host).delayed != toy_moved(host).out_copies;
    if (host->drv.cuStreamEndCapture(side, &graph) != CUDA_SUCCESS) {
        status = GH_ERR_DEVICE;
    } else {
        host->drv.cuGraphDestroy(graph);
    }
    return status;
}

static void test_flush_in_a_capture(void)
{
    struct toy_options o = four_layers;
    uint64_t copies;

    o.environment = delayed;
    o.modules = 1;
    o.in_flight = 2;
    o.flush = flush_between;
    if (!open_with(&o)) {
        return;
    }
    ok(toy_step(&sv, 2) == GH_OK && toy_step(&sv, 3) == GH_OK &&
           toy_step(&sv, 3) == GH_OK && toy_is_exact(&sv),
       "a flush leaves what the host captures on another stream alone: %s",
       sv.err.text);
    copies = toy_moved(&sv).out_copies;
    is_int(toy_moved(&sv).delayed, copies, "and issues every copy");
    is_int(n_behind, 0, "at once");
    no_race();
    finish();
}

static void test_queue_at_the_end(void)
{
    struct toy_options o = four_layers;

    o.environment = delayed;
    o.modules = 1;
    if (!open_with(&o)) {
        return;
    }
    sv.watch = stop_at_once;
    ok(toy_step(&sv, 1) != GH_OK, "a step ends with commits in the queue");
    is_int(toy_moved(&sv).out_copies, 1,
           "of which the one whose pass was whole is copied");
    sv.watch = NULL;
    ok(gh_flush_delayed(sv.session, NULL) == GH_OK, "nothing is left to flush");
    ok(toy_step(&sv, 2) == GH_OK && toy_is_exact(&sv),
       "and the next step is right");
    is_int(toy_moved(&sv).groups_offloaded, 3, "which is the profile");
    finish();
}

/* ---- memory that the host lends --------------------------------------------------- */

static gh_status lend_some(void *user, uint64_t bytes, void **address_p)
{
    CUdeviceptr address = 0;

    (void)user;
    if (sv.drv.cuMemAlloc(&address, bytes) != CUDA_SUCCESS) {
        return GH_ERR_NO_MEMORY;
    }
    *address_p = (void *)(uintptr_t)address;
    return GH_OK;
}

/* Written over at once: who still reads it is a race. */
static void reuse_at_once(void *user, void *address, uint64_t bytes)
{
    (void)user;
    sv.drv.cuMemsetD8Async((CUdeviceptr)(uintptr_t)address, 0xee, bytes,
                           sv.side);
}

static void test_lent_memory(void)
{
    static const gh_host_services lends = { .struct_size = sizeof(lends),
                                            .device_alloc = lend_some,
                                            .device_free = reuse_at_once };
    struct toy_options o = four_layers;

    o.host = &lends;
    o.free_running = true;
    o.streams = 3;
    o.offload = asks(TOY_MODULES);
    o.offload.fraction = "0";
    if (!open_with(&o)) {
        return;
    }
    toy_configure(&sv, "SEED=3 RACES=1");
    sv.watch = stop_at_once;
    ok(toy_step(&sv, 1) != GH_OK && toy_step(&sv, 1) != GH_OK,
       "two steps are cut short, and the second is the profile");
    sv.watch = NULL;
    ok(trains(), "rings that nobody needs are given back when they are idle");
    finish();

    o.offload.fraction = NULL;
    if (!open_with(&o)) {
        return;
    }
    toy_configure(&sv, "SEED=3 RACES=1");
    ok(trains(), "what is given back to the host is not in use");
    finish();
}

int main(void)
{
    const char *reason;
    struct toy probe;

    if (!toy_probe(&probe, &reason)) {
        return skip_all("%s", reason);
    }
    test_training();
    test_policy();
    test_nothing_is_asked_for();
    test_no_offload_desc();
    test_plan_switches_off();
    test_memory();
    test_ahead();
    test_addresses();
    test_smaller_between();
    test_larger_than_profiled();
    test_larger_than_recorded();
    test_growth_in_a_recording();
    test_moved_before_a_graph();
    test_grown_before_a_graph();
    test_shrunk_before_a_graph();
    test_host_that_never_loads();
    test_evaluation_first();
    test_pause();
    test_groups_that_only_evaluation_saves();
    test_host_that_saves_late();
    test_trace();
    test_delay();
    test_flush_in_a_capture();
    test_queue_at_the_end();
    if (probe.soft) {
        is_int(n_leaks, 0, "no session has left anything behind");
    } else {
        skip(1, "only the software device counts what is left");
    }
    test_lent_memory(); /* which keeps what it is given back */
    return done_testing();
}
