/*
 * Whatever fails, or is called out of its turn, what is offloaded comes back
 * right or the host is told; and nothing is left in flight.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/by_hand.h"
#include "support/saving.h"
#include "support/sweeps.h"
#include "tap/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const silent_delayed[] = { "GRAPHHOOKS_LOG=off",
                                              "GRAPHHOOKS_OFFLOAD_DELAY=1",
                                              NULL };
static const struct toy_options small = { .layers = 4,
                                          .modules = 2,
                                          .tensors = 2,
                                          .elems = 64,
                                          .in_flight = 2,
                                          .streams = 2,
                                          .environment = silent };

/* ---- a step that is cut, a pass that is given up ------------------------------- */

static void test_cuts(void)
{
    static const char *const comparing[] = { "GRAPHHOOKS_LOG=off",
                                             "GRAPHHOOKS_CHECK=bitwise", NULL };
    struct toy_options o = small;

    o.free_running = true;
    for (uint32_t which = 0; which < 2; which++) {
        sweep_cuts(&o, which, TOY_STOP, "a step that is given up");
        sweep_cuts(&o, which, TOY_AGAIN, "a pass that is begun again");
    }
    o.environment = silent_delayed;
    sweep_cuts(&o, 0, TOY_STOP, "a step that is given up, delayed");
    sweep_cuts(&o, 0, TOY_AGAIN, "a pass that is begun again, delayed");
    o.environment = comparing;
    sweep_cuts(&o, 2, TOY_STOP, "a step that is given up, compared");
    sweep_cuts(&o, 2, TOY_AGAIN, "a pass that is begun again, compared");
    o = small;
    o.max_slots = 1;
    o.free_running = true;
    o.offload = (gh_offload_desc){ .struct_size = 1, .modules = "own_a",
                                   .min_bytes = 4 };
    sweep_cuts(&o, 2, TOY_STOP, "a step that is given up, one slot");
    sweep_cuts(&o, 2, TOY_AGAIN, "a pass that is begun again, one slot");
    o = small;
    o.free_running = true;
    o.streams = 3;
    sweep_cuts(&o, 0, TOY_STOP, "a step that is given up, three streams");
    o.granularity = "part";
    sweep_cuts(&o, 0, TOY_AGAIN, "a part that is begun again");
    sweep_cuts(&o, 1, TOY_AGAIN, "a part that is begun again");
    sweep_cuts(&o, 0, TOY_STOP, "parts that are given up");
    o.across = true;
    sweep_cuts(&o, 1, TOY_STOP, "a step that is given up, across parts");
}

/* ---- every driver call ---------------------------------------------------------- */

/* Fewer where the run with more has been, and a sanitizer looks on. */
static uint64_t most_of_an_entry(void)
{
    return getenv("GRAPHHOOKS_TEST_SEEDS") != NULL ? 12 : 150;
}

static void sweep(const struct toy_options *options, const char *mode,
                  const char *name, bool six_in_turn)
{
    static const uint32_t counts[] = { 2, 3, 2, 3 };
    const struct sweep s = {
        .name = name,
        .options = options,
        .mode = mode,
        .counts = counts,
        .n_steps = 4,
        .six_in_turn = six_in_turn,
        .most = most_of_an_entry(),
    };

    sweep_all(&s);
}

static void test_driver_calls(void)
{
    struct toy_options o = small;

    o.layers = 3;
    o.max_slots = 2;
    o.free_running = true;
    sweep(&o, "RACES=1 SEED=3", "layers", false);
    sweep(&o, "RACES=1 SEED=5", "layers", true);
    o.environment = silent_delayed;
    sweep(&o, "RACES=1 SEED=4", "delayed", false);
    o.environment = silent;
    o.max_slots = 1;
    sweep(&o, "RACES=1 SEED=2", "one slot", false);
}

static enum toy_answer look_on(struct toy *host, enum toy_call call,
                               uint32_t layer, uint32_t module,
                               uint32_t microbatch)
{
    (void)host;
    (void)call;
    (void)layer;
    (void)module;
    (void)microbatch;
    return TOY_GO_ON;
}

/* The host gives a step up whose call has failed, and trains on: whether all is
 * right, with the memory that the step had under way. */
static bool trains_on(const struct toy_options *options, const char *entry,
                      uint64_t n, uint64_t *calls_p)
{
    char settings[100];
    bool right = false;

    if (!open_with(options)) {
        return false;
    }
    snprintf(settings, sizeof(settings), "RACES=1 SEED=%llu FAIL=%s:%llu",
             (unsigned long long)n % 3, entry, (unsigned long long)n);
    toy_configure(&sv, settings);
    sv.watch = look_on;
    for (uint32_t s = 0; s < 4; s++) {
        (void)toy_step(&sv, 3);
    }
    *calls_p = toy_calls(&sv, entry);
    sv.watch = NULL;
    right = steps(2, 3) && is_right();
    toy_close(&sv);
    return right;
}

static void test_training_goes_on(void)
{
    static const char *const entries[] = { "cuEventRecord", "cuStreamWaitEvent",
                                           "cuMemcpyHtoDAsync",
                                           "cuMemcpyDtoHAsync",
                                           "cuEventCreate" };
    struct toy_options o = small;

    o.layers = 3;
    o.modules = 1;
    o.free_running = true;
    o.offload = (gh_offload_desc){ .struct_size = 1, .modules = "core_attn",
                                   .min_bytes = 100 }; /* a tensor stays */
    for (uint32_t e = 0; e < 5; e++) {
        uint64_t calls = 0, wrong = 0, n = 1;

        do {
            const bool right = trains_on(&o, entries[e], n, &calls);

            if (!right) {
                diag("%s: call %llu", entries[e], (unsigned long long)n);
            }
            wrong += !right;
            n += calls / most_of_an_entry() + 1;
        } while (n <= calls);
        ok(wrong == 0, "%s: the host trains on after each of %llu calls has "
           "failed", entries[e], (unsigned long long)calls);
    }
}

/* ---- memory of the host runs out ------------------------------------------------- */

/* The decision fits the pool: what has no room stays, and all passes replay as
 * without a limit. */
static void test_pool_limit(void)
{
    struct toy_options o = small;
    uint64_t needed, replays, eager;
    uint32_t most;

    o.host = &hearing;
    o.environment = NULL;
    if (!open_with(&o)) {
        return;
    }
    steps(4, 3);
    needed = toy_moved(&sv).pinned_bytes;
    most = toy_moved(&sv).groups_offloaded;
    replays = toy_stats(&sv).replays;
    eager = toy_stats(&sv).eager_passes;
    is_int(needed, 2 * 3 * small.modules * 512,
           "pinned memory is held for what goes, with two in flight");
    toy_close(&sv);
    for (uint64_t limit = 1; limit < 9000; limit += 700) {
        o.offload = (gh_offload_desc){ .struct_size = 1,
                                       .modules = TOY_MODULES,
                                       .min_bytes = 4,
                                       .pool_bytes = limit };
        if (!open_with(&o)) {
            return;
        }
        ok(steps(4, 3) && is_right(), "a pool of %llu bytes is enough to train",
           (unsigned long long)limit);
        ok(toy_moved(&sv).pinned_bytes <= limit, "and is not passed");
        ok(toy_stats(&sv).replays == replays &&
               toy_stats(&sv).eager_passes == eager,
           "as many passes replay as without a limit: %llu, and %llu eager",
           (unsigned long long)toy_stats(&sv).replays,
           (unsigned long long)toy_stats(&sv).eager_passes);
        ok((toy_moved(&sv).groups_offloaded == most) == (limit >= needed),
           "%u of %u groups go", toy_moved(&sv).groups_offloaded, most);
        is_int(times_said("or what the machine lets a process pin"),
               limit < needed,
               "which is said once where it is short: %s", said);
        toy_close(&sv);
    }
}

static uint64_t replays_of(uint32_t microbatches)
{
    const uint64_t before = toy_stats(&sv).replays;

    return steps(1, microbatches) ? toy_stats(&sv).replays - before : 0;
}

/* A third microbatch in flight, which the decision has not seen, finds no block:
 * its groups stay, and its passes replay like all others. */
static void pool_that_runs_out_at_times(bool own)
{
    struct toy_options o = small;
    uint64_t all, other;

    o.own = own;
    o.in_flight = 3;
    o.host = &hearing;
    o.environment = NULL;
    if (!open_with(&o)) {
        return;
    }
    steps(1, 2);
    o.offload = (gh_offload_desc){ .struct_size = 1,
                                   .modules = TOY_MODULES,
                                   .min_bytes = 4,
                                   .pool_bytes = toy_moved(&sv).pinned_bytes };
    toy_close(&sv);
    if (!open_with(&o)) {
        return;
    }
    steps(4, 2);
    all = replays_of(2);
    ok(all > 0, "two microbatches in flight are replayed, %llu passes",
       (unsigned long long)all);
    steps(2, 4);
    other = replays_of(4);
    is_int(other, 2 * all,
           "of four, three of them in flight, all passes are replayed");
    is_int(times_said("what finds no pinned memory stays on the device"), 1,
           "though the pool runs out, which is said once: %s", said);
    is_int(times_said("ran eagerly"), 0, "no pass was eager");
    is_int(replays_of(2), all, "two of them are replayed as before");
    is_int(times_said("from now on"), 0, "and no pass is eager for good");
    ok(is_right(), "all is right");
    toy_close(&sv);
}

static void test_pool_that_runs_out_at_times(void)
{
    pool_that_runs_out_at_times(false);
    pool_that_runs_out_at_times(true);
}

static void test_no_pinned_memory(void)
{
    struct toy_options o = small;
    uint32_t wrong = 0, silent_ones = 0;
    uint64_t eager = 0, refused = 0;

    o.host = &hearing;
    o.environment = NULL;
    for (int n = 1; n <= 10; n++) {
        char settings[200] = "RACES=1 FAIL=";
        size_t used = strlen(settings);

        for (int i = n; i < n + 8; i++) {
            used += (size_t)snprintf(settings + used, sizeof(settings) - used,
                                     "%scuMemAllocHost:%d:2", i == n ? "" : ",",
                                     i);
        }
        if (!open_with(&o)) {
            return;
        }
        toy_configure(&sv, settings);
        wrong += !steps(3, 3) || !is_right();
        gh_session_reasons(sv.session, GH_REASON_INPUT, &refused, NULL);
        eager += refused;
        silent_ones += times_said("what the machine lets a process pin") != 1;
        toy_close(&sv);
    }
    is_int(wrong, 0, "without pinned memory groups stay, and are right");
    is_int(eager, 0, "which the decision knows, so that no pass waits for it");
    is_int(silent_ones, 0, "which is said once");
}

/* ---- a copy that fails ------------------------------------------------------------ */

static uint64_t copies_out(void)
{
    return toy_calls(&sv, "cuMemcpyDtoHAsync_v2") +
           toy_calls(&sv, "cuMemcpyDtoHAsync");
}

/* Beside a graph the copy is tried again; in an eager pass the host is told. */
static void test_copies_that_fail(void)
{
    struct toy_options o = small;
    uint64_t first, all;
    uint32_t wrong = 0, n = 0;

    o.host = &hearing;
    o.environment = NULL;
    if (!open_with(&o)) {
        return;
    }
    steps(1, 3);
    first = copies_out();
    steps(3, 3);
    all = copies_out();
    toy_close(&sv);
    ok(first > 0 && all > first, "%llu copies in the first step, %llu in all",
       (unsigned long long)first, (unsigned long long)all);
    for (uint64_t i = first + 1; i <= all; i++, n++) {
        char settings[64];

        if (!open_with(&o)) {
            return;
        }
        snprintf(settings, sizeof(settings),
                 "RACES=1 FAIL=cuMemcpyDtoHAsync:%llu", (unsigned long long)i);
        toy_configure(&sv, settings);
        wrong += !steps(4, 3) || !is_right() || times_said("eagerly from") != 0;
        toy_close(&sv);
    }
    is_int(wrong, 0, "each of %u copies beside a graph may fail once", n);

    if (!open_with(&o)) {
        return;
    }
    toy_configure(&sv, "FAIL=cuMemcpyDtoHAsync:1");
    is_status(toy_step(&sv, 3), GH_ERR_DEVICE, NULL,
              "a copy that fails in an eager pass fails its commit");
    ok(strstr(sv.err.text, "cuMemcpyDtoHAsync: 999") != NULL,
       "with the driver's error: %s", sv.err.text);
    toy_close(&sv);
}

static enum toy_answer commit_again(struct toy *host, enum toy_call call,
                                    uint32_t layer, uint32_t module,
                                    uint32_t microbatch)
{
    gh_status *first = host->user;

    (void)microbatch;
    if (call == TOY_SAVE && layer == 1 && module == 0 && *first == GH_OK) {
        host->user = first;
        toy_configure(host, "FAIL=cuMemcpyDtoHAsync:1");
        *first =
            gh_offload_commit(host->session, layer, toy_modules[module], NULL);
        toy_configure(host, "");
    }
    return TOY_GO_ON;
}

static void test_commit_after_a_failure(void)
{
    gh_status first = GH_OK;
    uint64_t late;

    if (!open_with(&small)) {
        return;
    }
    sv.watch = commit_again;
    sv.user = &first;
    ok(toy_step(&sv, 3) == GH_OK, "a commit that failed may be repeated: %s",
       sv.err.text);
    is_status(first, GH_ERR_DEVICE, NULL, "and did fail");
    sv.watch = NULL;
    steps(2, 3);
    late = toy_moved(&sv).late;
    ok(steps(3, 3) && toy_is_exact(&sv), "and all goes on");
    is_int(toy_moved(&sv).late, late, "with every group fetched ahead");
    toy_close(&sv);
}

/* A flush that fails as the step ends leaves no queue. */
static void test_flush_that_fails_at_the_end(void)
{
    struct toy_options o = small;
    struct cut c = { 8, TOY_STOP };

    o.environment = silent_delayed;
    o.in_flight = 1;
    if (!open_with(&o)) {
        return;
    }
    sv.watch = cut;
    sv.user = &c;
    sv.at_end = "FAIL=cuMemcpyDtoHAsync:1";
    ok(toy_step(&sv, 2) != GH_OK, "a step ends in the middle, and its flush "
                                  "fails");
    sv.at_end = NULL;
    sv.watch = NULL;
    ok(gh_flush_delayed(sv.session, &sv.err) == GH_OK,
       "nothing is left to flush: %s", sv.err.text);
    ok(steps(3, 3) && is_right(), "and the next steps are right");
    toy_close(&sv);
}

/* The rings of one module find no memory: it stays, and the other goes. */
static void test_no_memory_for_rings(void)
{
    struct toy_options o = small;

    o.granularity = "chunk";
    o.layers = 6;
    o.in_flight = 4;
    if (!open_with(&o)) {
        return;
    }
    sv.at_end = "FAIL=cuMemAlloc:1:2";
    is_status(toy_step(&sv, 4), GH_ERR_NO_MEMORY, NULL,
              "a step whose rings find no memory says so: %s", sv.err.text);
    sv.at_end = NULL;
    ok(steps(3, 3), "and the next steps run: %s", sv.err.text);
    is_int(toy_moved(&sv).groups_offloaded, 5,
           "with one module on the device, and one that goes");
    is_int(toy_races(&sv), 0, "without a race");
    toy_close(&sv);
}

/* ---- calls out of turn ------------------------------------------------------------- */

static uint32_t n_wrong, n_tried;

static void expect_status(gh_status actual, gh_status expected,
                          const gh_error *err, const char *words,
                          const char *what)
{
    n_tried++;
    if (actual != expected ||
        (expected != GH_OK && strstr(err->text, words) == NULL)) {
        diag("%s: status %d, \"%s\"", what, actual, err->text);
        n_wrong++;
    }
}

static gh_status save_or_load(gh_status (*call)(gh_session *,
                                                gh_offload_group *,
                                                gh_error *),
                              uint32_t layer, uint32_t module, uint64_t bytes,
                              gh_error *err)
{
    gh_offload_tensor tensors[2] = { { NULL, bytes }, { NULL, bytes / 2 } };
    gh_offload_group group = { .struct_size = sizeof(group),
                               .layer = layer,
                               .module = module,
                               .n_tensors = 2,
                               .tensors = tensors };

    return call(sv.session, &group, err);
}

#define OWN GH_MODULE_NAMED
#define TRY_SAVE(layer, module, status, words) \
    expect_status(save_or_load(gh_offload_save, layer, module, 256, &e), \
                  status, &e, words, "save " #layer " " #module)
#define TRY_LOAD(layer, module, bytes, status, words) \
    expect_status(save_or_load(gh_offload_load, layer, module, bytes, &e), \
                  status, &e, words, "load " #layer " " #module)
#define TRY_COMMIT(layer, module, status, words) \
    expect_status(gh_offload_commit(sv.session, layer, module, &e), status, \
                  &e, words, "commit " #layer " " #module)
#define TRY_RELEASE(layer, module, status, words) \
    expect_status(gh_offload_release(sv.session, layer, module, &e), status, \
                  &e, words, "release " #layer " " #module)

/* Once more what has just been done, in a recording or in the eager pass that
 * takes its place. */
static void misuse_recording(struct toy *host, enum toy_call call)
{
    const uint32_t all = GH_MODULE_CORE_ATTN;
    const char *words = host->decision.action == GH_ACTION_RECORD
                            ? "twice in one recording"
                            : "core_attn of microbatch";
    gh_error e = { "" };

    if (call == TOY_SAVE) {
        TRY_SAVE(1, all, GH_ERR_STATE, words);
    } else if (call == TOY_COMMIT) {
        TRY_COMMIT(1, all, GH_ERR_STATE, words);
    } else if (call == TOY_LOAD) {
        TRY_LOAD(1, all, 256, GH_ERR_STATE, words);
    } else {
        TRY_RELEASE(1, all, GH_ERR_STATE, words);
    }
}

static enum toy_answer misuse(struct toy *host, enum toy_call call,
                              uint32_t layer, uint32_t module,
                              uint32_t microbatch)
{
    const uint32_t all = GH_MODULE_CORE_ATTN;
    gh_error e = { "" };

    (void)host;
    (void)microbatch;
    if (layer != 1 || module != 0) {
        return TOY_GO_ON;
    }
    if (host->step > 0) {
        misuse_recording(host, call);
        return TOY_GO_ON;
    }
    switch (call) {
    case TOY_SAVE:
        TRY_SAVE(1, all, GH_ERR_STATE, "is saved and not committed");
        TRY_SAVE(9, all, GH_ERR_INVALID, "layer is 9, but the model has 4");
        TRY_SAVE(1, 3, GH_ERR_INVALID, "module is 0x3");
        TRY_SAVE(1, 0, GH_ERR_INVALID, "module is 0x0");
        TRY_SAVE(1, GH_MODULE_LAYER, GH_ERR_INVALID, "module is 0x400");
        TRY_SAVE(1, OWN | 2, GH_ERR_INVALID, "which are 2");
        TRY_COMMIT(2, OWN | 1, GH_ERR_STATE, "was never saved");
        TRY_COMMIT(9, all, GH_ERR_INVALID, "layer is 9");
        TRY_LOAD(1, all, 256, GH_ERR_STATE, "the open pass is a forward");
        TRY_RELEASE(1, all, GH_ERR_STATE, "the open pass is a forward");
        break;
    case TOY_COMMIT:
        TRY_COMMIT(1, all, GH_ERR_STATE, "is committed, and not loaded");
        TRY_SAVE(1, all, GH_ERR_STATE, "is committed, and not loaded");
        break;
    case TOY_LOAD:
        TRY_LOAD(1, all, 256, GH_ERR_STATE, "is loaded already");
        TRY_LOAD(2, OWN | 1, 256, GH_ERR_STATE, "was never saved");
        TRY_SAVE(1, all, GH_ERR_STATE, "the open pass is a backward");
        TRY_COMMIT(1, all, GH_ERR_STATE, "the open pass is a backward");
        TRY_LOAD(0, all, 512, GH_ERR_INVALID, "has other tensors than it was");
        TRY_LOAD(0, all, 128, GH_ERR_INVALID, "has other tensors than it was");
        TRY_LOAD(0, all, 254, GH_ERR_INVALID, "has other tensors than it was");
        break;
    default:
        TRY_RELEASE(1, all, GH_ERR_STATE, "is not saved");
        TRY_LOAD(1, all, 256, GH_ERR_STATE, "is not saved");
        break;
    }
    return TOY_GO_ON;
}

static void test_calls_out_of_turn(void)
{
    struct toy_options o = small;
    gh_error e = { "" };
    uint64_t eager = 0;

    o.granularity = "part"; /* layer 0 is loaded in a pass of its own */
    if (!open_with(&o)) {
        return;
    }
    n_wrong = n_tried = 0;
    TRY_SAVE(1, GH_MODULE_CORE_ATTN, GH_ERR_STATE, "no pass is open");
    TRY_LOAD(1, GH_MODULE_CORE_ATTN, 256, GH_ERR_STATE, "no pass is open");
    TRY_COMMIT(1, GH_MODULE_CORE_ATTN, GH_ERR_STATE, "no pass is open");
    TRY_RELEASE(1, GH_MODULE_CORE_ATTN, GH_ERR_STATE, "no pass is open");
    sv.watch = misuse;
    ok(toy_step(&sv, 3) == GH_OK && toy_step(&sv, 3) == GH_OK,
       "calls out of turn change nothing: %s", sv.err.text);
    ok(n_tried > 50, "%u of them are tried", n_tried);
    is_int(n_wrong, 0, "each is refused with its reason");
    sv.watch = NULL;
    gh_session_reasons(sv.session, GH_REASON_CAPTURE, &eager, NULL);
    ok(eager > 0, "a recording with a refused call is given up");
    ok(steps(3, 3) && is_right(), "and training goes on");
    toy_close(&sv);
}

static void test_bad_arguments(void)
{
    gh_offload_tensor tensors[GH_MAX_GROUP + 1] = { { NULL, 64 } };
    gh_offload_group group = { .struct_size = sizeof(group), .n_tensors = 1,
                               .module = GH_MODULE_CORE_ATTN,
                               .tensors = tensors };
    gh_offload_stats stats = { .struct_size = 4 };
    gh_error e = { "" };

    if (!open_with(&small)) {
        return;
    }
    is_status(gh_offload_save(NULL, &group, &e), GH_ERR_INVALID, &e,
              "a save without a session is refused");
    is_status(gh_offload_save(sv.session, NULL, &e), GH_ERR_INVALID, &e,
              "a save without a group is refused");
    is_status(gh_offload_load(sv.session, NULL, &e), GH_ERR_INVALID, &e,
              "so is a load");
    group.n_tensors = 0;
    is_status(gh_offload_save(sv.session, &group, &e), GH_ERR_INVALID, &e,
              "a group of no tensors is refused");
    group.n_tensors = GH_MAX_GROUP + 1;
    is_status(gh_offload_save(sv.session, &group, &e), GH_ERR_INVALID, &e,
              "so is one of too many");
    ok(strstr(e.text, "33 tensors") != NULL, "which says how many: %s", e.text);
    group.n_tensors = GH_MAX_GROUP;
    is_status(gh_offload_save(sv.session, &group, &e), GH_ERR_STATE, &e,
              "the most that are allowed are not");
    group.tensors = NULL;
    is_status(gh_offload_load(sv.session, &group, &e), GH_ERR_INVALID, &e,
              "a group without its tensors is refused");
    group.tensors = tensors;
    group.struct_size = 4;
    is_status(gh_offload_save(sv.session, &group, &e), GH_ERR_ABI, &e,
              "so is one of another size");
    is_status(gh_offload_get_stats(sv.session, NULL, &e), GH_ERR_INVALID, &e,
              "statistics need a place");
    is_status(gh_offload_get_stats(sv.session, &stats, &e), GH_ERR_ABI, &e,
              "of the right size");
    is_status(gh_offload_commit(NULL, 0, 1, &e), GH_ERR_INVALID, &e,
              "a commit without a session is refused");
    is_status(gh_offload_release(NULL, 0, 1, &e), GH_ERR_INVALID, &e,
              "so is a release");
    toy_close(&sv);
}

/* What the host names, and what the environment names in its place. */
static void test_what_is_on(void)
{
    static const char *const other[] = { "GRAPHHOOKS_OFFLOAD=own_a,mlp_norm",
                                         "GRAPHHOOKS_LOG=off", NULL };
    static const char *const none[] = { "GRAPHHOOKS_OFFLOAD=",
                                        "GRAPHHOOKS_LOG=off", NULL };
    struct toy_options o = small;
    gh_session *session;

    is_int(gh_offload_is_on(NULL, 0), 0, "nothing is on without a session");
    o.offload.struct_size = 1; /* not the default */
    o.offload.modules = "core_attn,own_b";
    if (!open_with(&o)) {
        return;
    }
    is_int(gh_offload_is_on(sv.session, 0), 1, "something is on");
    is_int(gh_offload_is_on(sv.session, GH_MODULE_CORE_ATTN), 1,
           "the module that is named");
    is_int(gh_offload_is_on(sv.session, GH_MODULE_MLP_NORM), 0, "no other");
    is_int(gh_offload_is_on(sv.session, OWN | 1), 1,
           "the host's that is named");
    is_int(gh_offload_is_on(sv.session, OWN | 0), 0, "no other of the host's");
    is_int(gh_offload_is_on(sv.session, OWN | 2), 0,
           "nor one that has no name");
    is_int(gh_offload_is_on(sv.session, OWN | 32), 0, "nor one that none has");
    session = sv.session;
    toy_close(&sv);
    is_int(gh_offload_is_on(session, 0), 0, "nothing once it is closed");

    o.environment = other;
    if (!open_with(&o)) {
        return;
    }
    is_int(gh_offload_is_on(sv.session, GH_MODULE_CORE_ATTN), 0,
           "the environment wins over the host");
    is_int(gh_offload_is_on(sv.session, GH_MODULE_MLP_NORM), 1,
           "and names others");
    is_int(gh_offload_is_on(sv.session, OWN | 0), 1, "also the host's own");
    toy_close(&sv);

    o.offload.modules = "";
    o.environment = none;
    if (!open_with(&o)) {
        return;
    }
    is_int(gh_offload_is_on(sv.session, 0), 0, "nothing is on");
    toy_close(&sv);
}

static void try_option(gh_offload_desc desc, const char *const *environment,
                       gh_status expected, const char *words)
{
    struct toy_options o = small;
    const char *reason;
    gh_status status;

    o.offload = desc;
    o.offload.struct_size = 1;
    o.environment = environment;
    if (!toy_open(&sv, &o, &reason)) {
        ok(false, "the host opens");
        return;
    }
    status = toy_attach(&sv);
    is_status(status, expected, &sv.err, "\"%s\": refused as it should be",
              words);
    ok(strstr(sv.err.text, words) != NULL, "and says: %s", sv.err.text);
    toy_close(&sv);
}

static void test_options(void)
{
    static const char *const empty_name[] = { "a", "", NULL };
    static const char *const comma[] = { "a,b", NULL };
    static const char *const fraction[] = { "GRAPHHOOKS_OFFLOAD_FRACTION=1.01",
                                            NULL };
    static const char *const nan_[] = { "GRAPHHOOKS_OFFLOAD_FRACTION=nan",
                                        NULL };
    static const char *const word[] = { "GRAPHHOOKS_OFFLOAD=core_atn", NULL };
    static const char *const many[] = { "a", "b", "c", "d", "e", "f", "g", "h",
                                        "i", "j", "k", "l", "m", "n", "o", "p",
                                        "q", "r", "s", "t", "u", "v", "w", "x",
                                        "y", "z", "0", "1", "2", "3", "4", "5",
                                        "6", NULL };
    static const char *const long_name[] = {
        "a_name_of_more_bytes_than_a_name_of_a_module_may_have_and_then_some",
        NULL
    };
    gh_offload_desc d = { .modules = "core_attn", .names = NULL };

    d.modules = "core_atn";
    try_option(d, silent, GH_ERR_CONFIG, "did you mean core_attn");
    d.modules = "own_aa";
    try_option(d, silent, GH_ERR_CONFIG, "did you mean own_a");
    d.modules = "core_attn,,own_a";
    try_option(d, silent, GH_ERR_CONFIG, "\"\" is none of attn_norm");
    d.modules = "mlp";
    try_option(d, silent, GH_ERR_CONFIG, "\"mlp\" is none of");
    d.modules = "core_attn";
    try_option(d, word, GH_ERR_CONFIG, "did you mean core_attn");
    d.fraction = "1.5";
    try_option(d, silent, GH_ERR_CONFIG, "1.5");
    d.fraction = "nan";
    try_option(d, silent, GH_ERR_CONFIG, "nan");
    d.fraction = "-1";
    try_option(d, silent, GH_ERR_CONFIG, "-1");
    d.fraction = NULL;
    try_option(d, fraction, GH_ERR_CONFIG, "1.01");
    try_option(d, nan_, GH_ERR_CONFIG, "nan");
    d.buffers = 1;
    try_option(d, silent, GH_ERR_CONFIG, "buffers");
    d.buffers = 9;
    try_option(d, silent, GH_ERR_CONFIG, "buffers");
    d.buffers = 0;
    d.fraction = "atuo";
    try_option(d, silent, GH_ERR_CONFIG,
               "a number from 0 to 1, or auto, or leave it out for 1: did you "
               "mean auto?");
    d.fraction = NULL;
    d.prefetch = 17;
    try_option(d, silent, GH_ERR_CONFIG,
               "gh_offload_desc.prefetch is \"17\"; set it to a number from 0 "
               "to 16");
    d.prefetch = 0;
    d.in_flight = 65;
    try_option(d, silent, GH_ERR_CONFIG, "a number from 0 to 64");
    d.in_flight = 0;
    d.reserved_tail = 1;
    try_option(d, silent, GH_ERR_INVALID, "reserved_tail 1");
    d.reserved_tail = 0;
    d.names = empty_name;
    try_option(d, silent, GH_ERR_INVALID, "names[1] is \"\"");
    d.names = comma;
    try_option(d, silent, GH_ERR_INVALID, "names[0] is \"a,b\"");
    d.names = many;
    try_option(d, silent, GH_ERR_INVALID, "at most");
    d.names = long_name;
    try_option(d, silent, GH_ERR_INVALID, "names[0] is \"a_name");
    d.names = NULL;
    d.reserved = 1;
    try_option(d, silent, GH_ERR_INVALID, "reserved is 1");
    d.reserved = 0;
    d.keep_bytes = UINT64_C(999999999999999999);
    d.pipeline_rank = 19;
    try_option(d, silent, GH_ERR_INVALID, "more than 64 bits");
}

int main(void)
{
    int status;

    if (!toy_probe_soft(&status)) {
        return status;
    }
    test_bad_arguments();
    test_what_is_on();
    test_options();
    test_calls_out_of_turn();
    test_pool_limit();
    test_pool_that_runs_out_at_times();
    test_no_pinned_memory();
    test_copies_that_fail();
    test_commit_after_a_failure();
    test_flush_that_fails_at_the_end();
    test_no_memory_for_rings();
    test_cuts();
    test_driver_calls();
    test_training_goes_on();
    return done_testing();
}
