/*
 * Each shape has graphs of its own, and all of them share a slot's memory.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/shapes.h"
#include "support/trace_file.h"
#include "tap/tap.h"

#include <stdio.h>
#include <string.h>

static const char *const quiet[] = { "GRAPHHOOKS_LOG=off", NULL };
static struct shapes s;

static bool start(const struct shapes_options *options)
{
    struct shapes_options ours = *options;
    const char *reason;

    if (ours.environment == NULL) {
        ours.environment = quiet;
    }
    if (!shapes_open(&s, &ours, &reason)) {
        return ok(false, "a host of shapes opens: %s", reason);
    }
    toy_configure(&s.toy, "SEED=3 RACES=1");
    return true;
}

/* The last points of every test. */
static void finish(const char *what)
{
    ok(shapes_are_exact(&s), "%s: every number is right", what);
    is_int(toy_races(&s.toy), 0, "%s: nothing races", what);
    shapes_close(&s);
    is_int(toy_counts(&s.toy).execs, 0, "%s: no graph is left", what);
    is_int(toy_counts(&s.toy).events, 0, "%s: nor an event", what);
    is_int(toy_counts(&s.toy).device_bytes, 0, "%s: and no memory", what);
}

static void test_every_bank_records_and_replays(void)
{
    const uint32_t order[] = { 0, 1, 2, 1 };
    gh_bank_stats stats;

    if (!start(&(struct shapes_options){ .elems = 512 })) {
        return;
    }
    shapes_add(&s, 512, NULL);
    shapes_add_tokens(&s, 256);
    shapes_add_tokens(&s, 128);
    is_int(s.bank[1], 1, "the first bank that is declared is 1");
    is_int(s.bank[2], 2, "and the next one 2");
    for (uint32_t step = 0; step < 4; step++) {
        is_status(shapes_step(&s, order, 4), GH_OK, &s.err, "step %u", step);
    }
    for (uint32_t i = 0; i < 3; i++) {
        stats = shapes_stats(&s, i);
        is_int(stats.recordings, 4, "bank %u has recorded its passes", i);
        is_int(stats.graphs, 4, "bank %u has a graph for each", i);
        is_int(stats.replays, i == 1 ? 4 * 6 : 4 * 3,
               "bank %u has launched them since", i);
        is_int(stats.evictions, 0, "bank %u has given way to none", i);
    }
    is_int(toy_stats(&s.toy).recordings, 12, "the session's counters add up");
    is_int(toy_stats(&s.toy).replays, 4 * 12, "of replays too");
    is_int(toy_eager(&s.toy, GH_REASON_INPUT), 0,
           "no pass is of another shape than its graph");
    finish("three banks");
}

/* ---- memory -------------------------------------------------------------- */

static const uint32_t lengths[] = { 64, 128, 192, 256, 320, 384, 448, 512 };

static uint64_t bytes_of_lengths(const uint32_t *order, uint32_t n)
{
    uint64_t bytes;

    if (!start(&(struct shapes_options){ .elems = 512,
                                         .in_flight = 2,
                                         .streams = 2 })) {
        return 0;
    }
    for (uint32_t i = 0; i < 8; i++) {
        shapes_add_tokens(&s, lengths[i]);
    }
    for (uint32_t step = 0; step < 3; step++) {
        for (uint32_t i = 0; i < n; i++) {
            const uint32_t two[] = { order[i], order[i] };

            if (shapes_step(&s, two, 2) != GH_OK) {
                ok(false, "a step of two: %s", s.err.text);
            }
        }
    }
    bytes = toy_stats(&s.toy).static_bytes;
    finish("lengths");
    return bytes;
}

static void test_memory_is_that_of_the_largest(void)
{
    const uint32_t largest[] = { 7 };
    const uint32_t falling[] = { 7, 6, 5, 4, 3, 2, 1, 0 };
    const uint32_t rising[] = { 0, 1, 2, 3, 4, 5, 6, 7 };
    const uint64_t one = bytes_of_lengths(largest, 1);

    is_int(one, 2 * 2 * 4 * 512, "a slot has memory for what is copied");
    is_int(bytes_of_lengths(falling, 8), one,
           "eight lengths take what the largest alone does");
    is_int(bytes_of_lengths(rising, 8), one,
           "also when the smallest is recorded first");
}

static void test_what_banks_use_is_not_summed(void)
{
    const uint32_t both[] = { 0, 1 };

    if (!start(&(struct shapes_options){ .elems = 512 })) {
        return;
    }
    shapes_add_tokens(&s, 512);
    shapes_add_tokens(&s, 256);
    shapes_step(&s, both, 2);
    shapes_step(&s, both, 2);
    is_int(shapes_stats(&s, 0).bytes, 2 * 4 * 512, "the one uses all");
    is_int(shapes_stats(&s, 1).bytes, 2 * 4 * 512, "the other the same");
    is_int(toy_stats(&s.toy).static_bytes, 2 * 4 * 512, "and it is there once");
    finish("use");
}

/* A bank that needs more than was foreseen gets a block of its own. */
static void test_a_bank_that_grows(void)
{
    const uint32_t first[] = { 0 }, both[] = { 1, 0 };
    const gh_bank_desc plain = { .struct_size = sizeof(plain) };

    if (!start(&(struct shapes_options){ .elems = 512 })) {
        return;
    }
    shapes_add(&s, 64, &plain);
    shapes_add(&s, 512, &plain);
    for (uint32_t step = 0; step < 3; step++) {
        shapes_step(&s, first, 1);
    }
    for (uint32_t step = 0; step < 3; step++) {
        shapes_step(&s, both, 2);
    }
    is_int(shapes_stats(&s, 0).recordings, 4, "the first keeps its graphs");
    is_int(shapes_stats(&s, 1).recordings, 4, "and the second has some");
    is_int(toy_stats(&s.toy).static_bytes, 2 * 4 * (64 + 512),
           "in memory of its own, where nobody has said how large it is");
    finish("growth");
}

/* ---- giving way ---------------------------------------------------------- */

static const char *const two_banks[] = { "GRAPHHOOKS_LOG=off",
                                         "GRAPHHOOKS_MAX_BANKS=2", NULL };
static const char *const one_bank[] = { "GRAPHHOOKS_LOG=off",
                                        "GRAPHHOOKS_MAX_BANKS=1", NULL };

static bool start_three(const char *const *environment)
{
    if (!start(&(struct shapes_options){ .elems = 512,
                                         .environment = environment })) {
        return false;
    }
    shapes_add_tokens(&s, 512);
    shapes_add_tokens(&s, 256);
    shapes_add_tokens(&s, 128);
    return true;
}

static void step_of(uint32_t shape)
{
    const gh_status status = shapes_step(&s, &shape, 1);

    if (status != GH_OK) {
        is_status(status, GH_OK, &s.err, "a step of shape %u", shape);
    }
}

static void test_the_least_recently_used_gives_way(void)
{
    if (!start_three(two_banks)) {
        return;
    }
    step_of(0); /* warmup */
    step_of(0);
    step_of(1);
    step_of(0);
    step_of(2);
    is_int(shapes_stats(&s, 1).evictions, 1, "the one that was used before");
    is_int(shapes_stats(&s, 1).graphs, 0, "has no graphs any more");
    is_int(shapes_stats(&s, 1).bytes, 0, "and holds no memory");
    is_int(shapes_stats(&s, 0).graphs, 4, "the other has kept its own");
    is_int(shapes_stats(&s, 2).graphs, 4, "and the new one has some");
    step_of(0);
    is_int(shapes_stats(&s, 0).recordings, 4, "which go on being used");
    step_of(1);
    is_int(shapes_stats(&s, 2).evictions, 1, "then the third gives way");
    is_int(shapes_stats(&s, 1).recordings, 8, "to one that is recorded anew");
    shapes_end(&s);
    is_int(toy_counts(&s.toy).execs, 8, "only graphs of two banks exist");
    is_int(toy_stats(&s.toy).nodes, 2 * 5, "and their nodes are counted");
    finish("least recently used");
}

static void test_none_in_flight_gives_way(void)
{
    if (!start_three(two_banks)) {
        return;
    }
    step_of(0);
    step_of(0);
    step_of(1);
    shapes_forward(&s, 0, 0);
    shapes_forward(&s, 1, 1); /* used later than the first */
    shapes_backward(&s, 1);
    shapes_forward(&s, 2, 2);
    is_int(shapes_stats(&s, 0).evictions, 0,
           "the least recently used is in flight, and stays");
    is_int(shapes_stats(&s, 1).evictions, 1, "the one after it goes");
    shapes_backward(&s, 0);
    shapes_backward(&s, 2);
    shapes_end(&s);
    finish("in flight");
}

static void test_all_in_flight(void)
{
    if (!start_three(one_bank)) {
        return;
    }
    step_of(0);
    step_of(0);
    shapes_forward(&s, 0, 0);
    shapes_forward(&s, 1, 1);
    is_int(s.last.action, GH_ACTION_RUN, "where every bank is in flight");
    is_int(s.last.reason, GH_REASON_BANKS, "another one runs eagerly");
    ok(s.last.slot != GH_SLOT_NONE, "in a slot");
    shapes_backward(&s, 0);
    shapes_backward(&s, 1);
    is_int(s.last.action, GH_ACTION_RECORD,
           "and is recorded once the others have landed");
    shapes_end(&s);
    step_of(1);
    is_int(shapes_stats(&s, 1).graphs, 2 + 4, "in every slot that it uses");
    is_int(shapes_stats(&s, 0).evictions, 1, "after the other has gone");
    finish("all in flight");
}

/* A step that makes room waits for nothing, and what still runs is left to
 * run. */
static void test_giving_way_does_not_wait(void)
{
    softcuda_calls_fn *calls;
    uint64_t execs;
    uint32_t shape = 1;

    if (!start(&(struct shapes_options){ .elems = 512,
                                         .free_running = true,
                                         .environment = one_bank })) {
        return;
    }
    shapes_add_tokens(&s, 512);
    shapes_add_tokens(&s, 256);
    calls = (softcuda_calls_fn *)toy_control(&s.toy, "softcuda_calls");
    step_of(0);
    step_of(0);
    step_of(0);
    ok(toy_counts(&s.toy).pending > 0, "graphs still run");
    execs = toy_counts(&s.toy).execs;
    toy_configure(&s.toy, "SEED=3 RACES=1");
    shapes_forward(&s, 0, shape);
    is_int(shapes_stats(&s, 0).evictions, 1, "when their bank gives way");
    is_int(calls("cuStreamSynchronize") + calls("cuCtxSynchronize") +
               calls("cuMemFree") + calls("cuEventSynchronize"),
           0, "nobody waits for them");
    is_int(toy_counts(&s.toy).execs, execs + 2, "and they are still there");
    shapes_backward(&s, 0);
    s.toy.drv.cuCtxSynchronize();
    shapes_end(&s);
    is_int(toy_counts(&s.toy).execs, 4, "until a step ends after them");
    finish("no wait");
}

/* ---- graphs of the host's own -------------------------------------------- */

static struct {
    uint64_t pending; /* at the last destroy */
    uint32_t destroyed;
} watched;

static gh_status begin(void *user, void *stream)
{
    (void)user;
    return s.toy.drv.cuStreamBeginCapture(
               stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == CUDA_SUCCESS
               ? GH_OK
               : GH_ERR_DEVICE;
}

static gh_status end(void *user, void *stream, void **object_p, void **graph_p)
{
    CUgraph graph = NULL;

    (void)user;
    (void)graph_p;
    if (s.toy.drv.cuStreamEndCapture(stream, &graph) != CUDA_SUCCESS ||
        s.toy.drv.cuGraphInstantiateWithFlags((CUgraphExec *)object_p, graph,
                                              0) != CUDA_SUCCESS) {
        return GH_ERR_DEVICE;
    }
    s.toy.drv.cuGraphDestroy(graph);
    return GH_OK;
}

static gh_status launch(void *user, void *object, void *stream, void **exec_p)
{
    (void)user;
    (void)exec_p;
    return s.toy.drv.cuGraphLaunch(object, stream) == CUDA_SUCCESS
               ? GH_OK
               : GH_ERR_DEVICE;
}

static void destroy(void *user, void *object)
{
    (void)user;
    watched.destroyed++;
    watched.pending += toy_counts(&s.toy).pending;
    s.toy.drv.cuGraphExecDestroy(object);
}

static const gh_host_services capturing = { .struct_size = sizeof(capturing),
                                            .capture_begin = begin,
                                            .capture_end = end,
                                            .launch = launch,
                                            .destroy = destroy };

static void test_a_host_destroys_what_no_longer_runs(void)
{
    memset(&watched, 0, sizeof(watched));
    if (!start(&(struct shapes_options){ .elems = 512,
                                         .free_running = true,
                                         .host = &capturing,
                                         .environment = one_bank })) {
        return;
    }
    shapes_add_tokens(&s, 512);
    shapes_add_tokens(&s, 256);
    step_of(0);
    step_of(0);
    step_of(1);
    is_int(shapes_stats(&s, 0).evictions, 1,
           "a bank of the host's graphs goes");
    is_int(watched.destroyed, 0, "but not its graphs, which run");
    s.toy.drv.cuCtxSynchronize();
    shapes_end(&s);
    is_int(watched.destroyed, 4, "until they have ended");
    is_int(watched.pending, 0, "none is destroyed while anything runs");
    finish("a host's graphs");
}

/* ---- what is refused ----------------------------------------------------- */

static gh_status enter_bank(uint32_t m, uint32_t segment,
                            gh_direction direction, uint32_t bank, void *group)
{
    const gh_pass pass = { .struct_size = sizeof(pass),
                           .segment = segment,
                           .direction = direction,
                           .microbatch = m,
                           .bank = bank,
                           .group = group,
                           .stream = s.toy.streams[0] };
    gh_decision d = { .struct_size = sizeof(d) };
    gh_status status = gh_layer_enter(s.toy.session, &pass, &d, &s.err);

    if (status == GH_OK) {
        gh_layer_cancel(s.toy.session, NULL);
    }
    return status;
}

static void test_banks_that_are_wrong(void)
{
    int groups[2];
    const gh_bank_desc desc = { .struct_size = sizeof(desc),
                                .cp_size = 2,
                                .group = &groups[0],
                                .tokens = 256,
                                .name = "cp2" };

    if (!start(&(struct shapes_options){ .elems = 512 })) {
        return;
    }
    shapes_add_tokens(&s, 512);
    shapes_add(&s, 256, &desc);
    is_status(enter_bank(0, 0, GH_FORWARD, 3, NULL), GH_ERR_NOT_FOUND, &s.err,
              "a bank that was never declared is refused");
    ok(strstr(s.err.text, "gh_bank_add") != NULL, "in words: %s", s.err.text);
    is_status(enter_bank(0, 0, GH_FORWARD, 2, &groups[1]), GH_ERR_INVALID,
              &s.err, "and so is another group than the bank's");
    ok(strstr(s.err.text, "cp2") != NULL, "in words: %s", s.err.text);
    is_status(enter_bank(0, 0, GH_FORWARD, 0, &groups[1]), GH_ERR_INVALID,
              &s.err, "also of bank 0, which has none");
    is_status(enter_bank(0, 0, GH_FORWARD, 2, &groups[0]), GH_OK, &s.err,
              "the bank's own group is right");
    is_status(enter_bank(0, 0, GH_FORWARD, 2, NULL), GH_OK, &s.err,
              "and so is none");
    shapes_forward(&s, 0, 0);
    is_status(enter_bank(0, 1, GH_BACKWARD, 2, NULL), GH_ERR_INVALID, &s.err,
              "a flight stays in its bank");
    ok(strstr(s.err.text, "began in bank 1") != NULL, "in words: %s",
       s.err.text);
    is_status(shapes_backward(&s, 0), GH_OK, &s.err, "and goes on there");
    shapes_end(&s);
    finish("refusals");
}

static void test_declarations_that_are_wrong(void)
{
    gh_bank_desc desc = { .struct_size = sizeof(desc) };
    gh_bank_stats stats = { .struct_size = sizeof(stats) };
    uint32_t bank = 77;

    if (!start(&(struct shapes_options){ .elems = 64 })) {
        return;
    }
    is_status(gh_bank_add(NULL, &desc, &bank, &s.err), GH_ERR_INVALID, &s.err,
              "no session");
    is_status(gh_bank_add(s.toy.session, NULL, &bank, &s.err), GH_ERR_INVALID,
              &s.err, "no description");
    is_status(gh_bank_add(s.toy.session, &desc, NULL, &s.err), GH_ERR_INVALID,
              &s.err, "nowhere to put the number");
    desc.struct_size = 8;
    is_status(gh_bank_add(s.toy.session, &desc, &bank, &s.err), GH_ERR_ABI,
              &s.err, "a struct that is too small");
    desc.struct_size = sizeof(desc);
    desc.sequences = 4;
    is_status(gh_bank_add(s.toy.session, &desc, &bank, &s.err), GH_ERR_INVALID,
              &s.err, "sequences without tokens");
    desc.tokens = 3;
    desc.cp_size = 2;
    is_status(gh_bank_add(s.toy.session, &desc, &bank, &s.err), GH_ERR_INVALID,
              &s.err, "tokens that two pieces of each rank do not divide");
    desc.tokens = 0x40000000;
    is_status(gh_bank_add(s.toy.session, &desc, &bank, &s.err), GH_ERR_INVALID,
              &s.err, "more tokens than offsets have bits for");
    is_int(bank, 77, "no number is written");
    is_status(gh_bank_get_stats(s.toy.session, 1, &stats, &s.err),
              GH_ERR_NOT_FOUND, &s.err, "there is no bank 1");
    is_status(gh_bank_get_stats(s.toy.session, 0, NULL, &s.err),
              GH_ERR_INVALID, &s.err, "nowhere to put counters");
    is_status(gh_bank_get_stats(s.toy.session, 0, &stats, &s.err), GH_OK,
              &s.err, "bank 0 is there from the start");
    finish("declarations");
}

static void test_not_while_a_pass_is_open(void)
{
    const gh_bank_desc desc = { .struct_size = sizeof(desc) };
    const gh_pass pass = { .struct_size = sizeof(pass),
                           .stream = NULL };
    gh_decision d = { .struct_size = sizeof(d) };
    uint32_t bank;

    if (!start(&(struct shapes_options){ .elems = 64 })) {
        return;
    }
    gh_layer_enter(s.toy.session, &pass, &d, NULL);
    is_status(gh_bank_add(s.toy.session, &desc, &bank, &s.err), GH_ERR_STATE,
              &s.err, "no bank is declared while a pass is open");
    gh_layer_cancel(s.toy.session, NULL);
    is_status(gh_bank_add(s.toy.session, &desc, &bank, &s.err), GH_OK, &s.err,
              "but between two");
    finish("open pass");
}

/* ---- failures ------------------------------------------------------------ */

static void test_a_bank_that_fails_leaves_the_others(void)
{
    uint64_t launched;

    if (!start_three(quiet)) {
        return;
    }
    step_of(0);
    step_of(0);
    toy_configure(&s.toy,
                  "SEED=3 RACES=1 FAIL=cuGraphInstantiateWithFlags:1:999");
    step_of(1);
    is_int(shapes_stats(&s, 1).recordings, 3, "one recording fails");
    step_of(0);
    step_of(1);
    step_of(2);
    is_int(toy_eager(&s.toy, GH_REASON_DEVICE), 2, "and its pass is eager");
    is_int(shapes_stats(&s, 0).graphs, 4, "the bank before keeps its graphs");
    is_int(shapes_stats(&s, 2).graphs, 4, "the bank after gets them all");
    launched = shapes_stats(&s, 0).replays;
    toy_configure(&s.toy, "SEED=3 RACES=1 FAIL=cuGraphLaunch:1:999");
    step_of(0);
    is_int(shapes_stats(&s, 0).replays, launched + 3,
           "a launch that fails is none");
    finish("one failure");
}

static void test_what_has_failed_stays_eager(void)
{
    if (!start_three(one_bank)) {
        return;
    }
    step_of(0);
    toy_configure(&s.toy,
                  "SEED=3 RACES=1 FAIL=cuGraphInstantiateWithFlags:1:999");
    step_of(0);
    step_of(1);
    step_of(0);
    is_int(shapes_stats(&s, 0).evictions, 1, "a bank gave way and came back");
    is_int(toy_eager(&s.toy, GH_REASON_DEVICE), 2,
           "what has failed in it is not tried again");
    finish("failed before");
}

static void test_slots_are_of_microbatches(void)
{
    if (!start(&(struct shapes_options){ .elems = 512, .slots = 1 })) {
        return;
    }
    shapes_add_tokens(&s, 512);
    shapes_add_tokens(&s, 256);
    step_of(0);
    step_of(0);
    step_of(1);
    shapes_forward(&s, 0, 0);
    shapes_forward(&s, 1, 1);
    is_int(s.last.reason, GH_REASON_BUSY,
           "a slot that one bank has is not free for another");
    is_int(s.last.slot, GH_SLOT_NONE, "whose graphs are of the same slot");
    shapes_backward(&s, 1);
    shapes_backward(&s, 0);
    shapes_end(&s);
    finish("slots");
}

static void test_freeze(void)
{
    static const char *const frozen[] = { "GRAPHHOOKS_LOG=off",
                                          "GRAPHHOOKS_FREEZE=2",
                                          "GRAPHHOOKS_MAX_BANKS=1", NULL };

    if (!start_three(frozen)) {
        return;
    }
    step_of(0);
    step_of(0);
    step_of(0);
    step_of(1);
    is_int(shapes_stats(&s, 1).recordings, 0, "a frozen session records none");
    is_int(toy_eager(&s.toy, GH_REASON_FROZEN), 4, "it says why");
    is_int(shapes_stats(&s, 0).evictions, 0, "and no bank gives way for it");
    step_of(0);
    is_int(shapes_stats(&s, 0).replays, 4 * 3, "the first is replayed");
    finish("freeze");
}

/* ---- what a host is told ------------------------------------------------- */

static uint32_t told[2]; /* bits of banks: begun, ended */

static gh_status record_begin(void *user, const gh_recording *recording)
{
    (void)user;
    told[0] |= 1u << recording->bank;
    return GH_OK;
}

static void record_end(void *user, const gh_recording *recording, uint32_t kept)
{
    (void)user;
    told[1] |= kept << recording->bank;
}

static void test_a_recording_says_its_bank(void)
{
    const gh_host_services host = { .struct_size = sizeof(host),
                                    .record_begin = record_begin,
                                    .record_end = record_end };

    if (!start(&(struct shapes_options){ .elems = 512, .host = &host })) {
        return;
    }
    shapes_add(&s, 512, NULL);
    shapes_add_tokens(&s, 256);
    shapes_add_tokens(&s, 128);
    step_of(1);
    step_of(1);
    is_int(told[0], 1u << 1, "a host hears of which bank a recording is");
    step_of(2);
    is_int(told[1], 1u << 1 | 1u << 2, "when it begins and when it ends");
    finish("recordings");
}

static char heard[4096];

static void hear(void *user, gh_log_level level, const char *line)
{
    const size_t n = strlen(heard);

    (void)user;
    (void)level;
    snprintf(heard + n, sizeof(heard) - n, "%s\n", line);
}

static void test_what_is_said(void)
{
    static const char *const loud[] = { "GRAPHHOOKS_LOG=debug",
                                        "GRAPHHOOKS_MAX_BANKS=1", NULL };
    const gh_host_services host = { .struct_size = sizeof(host), .log = hear };

    if (!start(&(struct shapes_options){ .elems = 512,
                                         .host = &host,
                                         .environment = loud })) {
        return;
    }
    shapes_add_tokens(&s, 512);
    shapes_add_tokens(&s, 256);
    step_of(0);
    step_of(0);
    step_of(1);
    finish("log");
    ok(strstr(heard, "slot 0, bank 2 (256), ") != NULL,
       "a recording is told with its bank");
    ok(strstr(heard, "bank 1 (512), the least recently used, gives way: 4 "
                     "graphs go, as GRAPHHOOKS_MAX_BANKS is 1") != NULL,
       "a bank that gives way is told with why");
    ok(strstr(heard, "bank 1 (512): 4 recordings, 4 graph launches, gave way 1 "
                     "time\n") != NULL,
       "the end says what each has done");
    ok(strstr(heard, "bank 2 (256): 4 recordings, 4 graph launches, gave way 0 "
                     "times\n") != NULL,
       "one that stayed too");
    ok(strstr(heard, "bank 0") == NULL, "and nothing of one that did nothing");
}

/* What the line of an eager pass and every event of a trace have. */
static void test_the_trace(void)
{
    const gh_host_services host = { .struct_size = sizeof(host), .log = hear };
    const gh_bank_desc plain = { .struct_size = sizeof(plain) };
    const uint32_t both[] = { 1, 2 };
    struct trace_file trace;

    if (!trace_file_open(&trace, "warn") ||
        !start(&(struct shapes_options){ .elems = 512,
                                         .host = &host,
                                         .environment = trace.environment })) {
        return;
    }
    heard[0] = '\0';
    shapes_add(&s, 512, NULL);
    shapes_add_tokens(&s, 256);
    shapes_add(&s, 128, &plain);
    step_of(0);
    shapes_step(&s, both, 2);
    shapes_step(&s, both, 2);
    s.elems[1] = 192; /* as a host that forgets to declare a bank */
    step_of(1);
    s.elems[1] = 256;
    finish("trace");
    is_int(trace_file_count(&trace, "\"name\":\"record forward layer 0 bank1 "
                                    "mb0 slot0\""),
           1, "the trace has the bank of a recording");
    is_int(trace_file_count(&trace, "\"name\":\"replay backward layer 0 bank2 "
                                    "mb1 slot0\""),
           1, "and of a replay");
    is_int(trace_file_count(&trace, "\"bank\":1,\"bank_name\":\"256\","
                                    "\"action\":"),
           4 + 4 + 4, "each pass of a bank has its number and its name");
    is_int(trace_file_count(&trace, "\"bank\":2,\"action\":"), 4 + 4,
           "or its number alone where it has no name");
    is_int(trace_file_count(&trace, "\"name\":\"graph backward layer 1 bank2 "
                                    "mb1\""),
           2, "and so has the graph on the device's lane");
    is_int(trace_file_count(&trace, "bank0") +
               trace_file_count(&trace, "\"bank\":0"),
           0, "of bank 0 nothing is said");
    ok(strstr(heard, ", microbatch 0 of bank 1 (256), ran eagerly") != NULL,
       "a pass that ran eagerly is told with its bank: %s", heard);
    trace_file_remove(&trace);
}

/* ---- tensors that graphs read ---------------------------------------- */

#define N_TABLES 3
static char tables[N_TABLES][64];
static struct {
    int references[N_TABLES];
    uint64_t execs, pending; /* at the last release */
    uint32_t releases;
    bool by_host; /* nothing is to be retained */
} held;

static gh_status retain(void *user, void *object)
{
    (void)user;
    held.references[(char(*)[64])object - tables]++;
    return GH_OK;
}

static void release(void *user, void *object)
{
    (void)user;
    held.references[(char(*)[64])object - tables]--;
    held.execs = toy_counts(&s.toy).execs;
    held.pending = toy_counts(&s.toy).pending;
    held.releases++;
}

static const gh_host_services keeping = { .struct_size = sizeof(keeping),
                                          .retain = retain,
                                          .release = release };

/* A table for each layer of the bank. */
static gh_status bind_table(uint32_t shape, uint32_t table)
{
    gh_aux aux = { .struct_size = sizeof(aux),
                   .name = "rotary_cos",
                   .buffer = { .address = tables[table], .bytes = 64 },
                   .object = held.by_host ? NULL : tables[table],
                   .bank = s.bank[shape] };
    gh_status status = GH_OK;

    for (aux.layer = 0; aux.layer < 2 && status == GH_OK; aux.layer++) {
        status = gh_aux_bind(s.toy.session, &aux, &s.err);
    }
    return status;
}

static bool start_with_tables(const char *const *environment)
{
    memset(&held, 0, sizeof(held));
    if (!start(&(struct shapes_options){ .elems = 512,
                                         .free_running = true,
                                         .family = "mla",
                                         .host = &keeping,
                                         .environment = environment })) {
        return false;
    }
    shapes_add_tokens(&s, 512);
    shapes_add_tokens(&s, 256);
    return true;
}

static void test_tables_are_of_a_bank(void)
{
    uint64_t execs;

    if (!start_with_tables(quiet)) {
        return;
    }
    is_status(bind_table(0, 0), GH_OK, &s.err, "a bank's table is bound");
    bind_table(1, 1);
    step_of(0);
    step_of(0);
    step_of(1);
    execs = toy_counts(&s.toy).execs;
    is_int(execs, 8, "both banks are recorded");
    bind_table(1, 2);
    is_int(toy_counts(&s.toy).execs, 4, "a table that moves drops its bank's");
    is_int(shapes_stats(&s, 1).graphs, 0, "which has none then");
    is_int(shapes_stats(&s, 1).bytes, 0, "and uses no memory");
    is_int(shapes_stats(&s, 0).graphs, 4, "and no other's");
    is_int(held.references[1], 0, "the old one is released");
    is_int(held.references[0], 2, "the other bank's is held");
    s.bank[0] = 9;
    is_status(bind_table(0, 0), GH_ERR_NOT_FOUND, &s.err,
              "there is no table of a bank that was never declared");
    finish("tables");
    is_int(held.references[0] + held.references[2], 0,
           "the end releases all of them");
}

static void test_tables_go_with_the_graphs(void)
{
    if (!start_with_tables(one_bank)) {
        return;
    }
    bind_table(0, 0);
    bind_table(1, 1);
    step_of(0);
    step_of(0);
    step_of(1);
    is_int(shapes_stats(&s, 0).evictions, 1, "a bank gives way");
    is_int(held.references[0], 2, "while its graphs run its table is held");
    s.toy.drv.cuCtxSynchronize();
    shapes_end(&s);
    is_int(held.references[0], 0, "and released with the last of them");
    is_int(held.releases, 2, "once for each layer");
    is_int(held.execs, 4, "no graph that reads it is left then");
    is_int(held.pending, 0, "nor does any run");
    step_of(0);
    is_int(toy_eager(&s.toy, GH_REASON_UNBOUND), 4,
           "its passes are not recorded again without a table");
    is_int(shapes_stats(&s, 1).evictions, 0, "and no bank gives way for them");
    bind_table(0, 2);
    step_of(0);
    is_int(shapes_stats(&s, 0).graphs, 4, "bound anew, they are");
    is_int(held.references[2], 2, "and the new one is held");
    held.by_host = true;
    bind_table(1, 1);
    step_of(1);
    step_of(0);
    bind_table(1, 1);
    step_of(1);
    is_int(shapes_stats(&s, 1).graphs, 4,
           "so are those of a table that the host keeps by itself");
    finish("tables and graphs");
    is_int(held.references[1] + held.references[2], 0,
           "the end releases what is left");
}

/* ---- smaller inputs ------------------------------------------------------ */

static void test_inputs_by_capacity(void)
{
    const uint32_t order[] = { 0, 1, 1, 0 };
    const uint32_t less[] = { 0, 40, 7, 0, 63, 100, 1 };

    if (!start(&(struct shapes_options){ .elems = 512,
                                         .in_flight = 2,
                                         .streams = 2,
                                         .by_capacity = true })) {
        return;
    }
    shapes_add_tokens(&s, 512);
    shapes_add_tokens(&s, 256);
    for (uint32_t step = 0; step < 7; step++) {
        s.less = less[step];
        is_status(shapes_step(&s, order, 4), GH_OK, &s.err,
                  "a step whose microbatches lack %u words", less[step]);
        ok(shapes_are_exact(&s), "finds zeros behind them");
    }
    is_int(toy_eager(&s.toy, GH_REASON_INPUT), 0, "none of them runs eagerly");
    is_int(toy_stats(&s.toy).recordings, 16, "or is recorded again");
    {
        const uint64_t capacity = 4 * 512;
        const gh_buffer input = { (void *)(uintptr_t)s.memory, 4 * 512 + 4, 0,
                                  0 };
        const gh_pass pass = { .struct_size = sizeof(pass),
                               .inputs = &input,
                               .n_inputs = 1,
                               .capacities = &capacity,
                               .bank = s.bank[0],
                               .stream = s.toy.streams[0] };
        gh_decision d = { .struct_size = sizeof(d) };

        gh_layer_enter(s.toy.session, &pass, &d, &s.err);
        is_int(d.reason, GH_REASON_INPUT,
               "a graph does not serve more than its capacity");
        gh_layer_cancel(s.toy.session, NULL);
    }
    finish("capacity");
}

static void test_checked_inputs_by_capacity(void)
{
    static const char *const checked[] = { "GRAPHHOOKS_LOG=off",
                                           "GRAPHHOOKS_CHECK=bitwise", NULL };
    const uint32_t order[] = { 0, 1 };

    if (!start(&(struct shapes_options){ .elems = 512,
                                         .by_capacity = true,
                                         .environment = checked })) {
        return;
    }
    shapes_add_tokens(&s, 512);
    shapes_add_tokens(&s, 256);
    for (uint32_t step = 0; step < 5; step++) {
        s.less = 30 * step;
        shapes_step(&s, order, 2);
    }
    ok(toy_stats(&s.toy).checks > 8, "passes are compared");
    is_int(toy_stats(&s.toy).check_failures, 0, "and none differs");
    is_int(s.short_checks, 0, "each has the sizes that its graph has seen");
    finish("checked capacity");
}

static void test_more_than_the_capacity(void)
{
    const uint64_t capacity = 64;
    const gh_buffer input = { (void *)(uintptr_t)s.memory, 128, 0, 0 };
    gh_pass pass = { .struct_size = sizeof(pass),
                     .inputs = &input,
                     .n_inputs = 1,
                     .capacities = &capacity };
    gh_decision d = { .struct_size = sizeof(d) };

    if (!start(&(struct shapes_options){ .elems = 512 })) {
        return;
    }
    shapes_add(&s, 512, NULL);
    step_of(0);
    pass.stream = s.toy.streams[0];
    is_status(gh_layer_enter(s.toy.session, &pass, &d, &s.err), GH_OK, &s.err,
              "an input beyond its capacity is entered");
    is_int(d.action, GH_ACTION_RUN, "and run eagerly");
    is_int(d.reason, GH_REASON_INPUT, "because of the input");
    is_int(d.inputs[0].bytes, 128, "whole");
    gh_layer_cancel(s.toy.session, NULL);
    finish("beyond capacity");
}

int main(void)
{
    const char *reason;
    struct toy toy;

    if (!toy_probe(&toy, &reason)) {
        return skip_all("%s", reason);
    }
    if (!toy.soft) {
        return skip_all("failures and races are the software device's");
    }
    test_every_bank_records_and_replays();
    test_memory_is_that_of_the_largest();
    test_what_banks_use_is_not_summed();
    test_a_bank_that_grows();
    test_the_least_recently_used_gives_way();
    test_none_in_flight_gives_way();
    test_all_in_flight();
    test_giving_way_does_not_wait();
    test_a_host_destroys_what_no_longer_runs();
    test_banks_that_are_wrong();
    test_declarations_that_are_wrong();
    test_not_while_a_pass_is_open();
    test_a_bank_that_fails_leaves_the_others();
    test_what_has_failed_stays_eager();
    test_slots_are_of_microbatches();
    test_freeze();
    test_a_recording_says_its_bank();
    test_what_is_said();
    test_the_trace();
    test_tables_are_of_a_bank();
    test_tables_go_with_the_graphs();
    test_inputs_by_capacity();
    test_checked_inputs_by_capacity();
    test_more_than_the_capacity();
    return done_testing();
}
