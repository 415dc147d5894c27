/*
 * Whatever fails, or is called out of its turn, a group in the host's own memory
 * comes back right or the host is told; and each block is the host's again,
 * once.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/by_hand.h"
#include "support/saving.h"
#include "tap/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const delayed[] = { "GRAPHHOOKS_LOG=off",
                                       "GRAPHHOOKS_OFFLOAD_DELAY=1", NULL };
static const char *const comparing[] = { "GRAPHHOOKS_LOG=off",
                                         "GRAPHHOOKS_CHECK=bitwise", NULL };
static const struct toy_options small = { .layers = 4,
                                          .modules = 2,
                                          .tensors = 2,
                                          .elems = 64,
                                          .in_flight = 2,
                                          .streams = 2,
                                          .environment = silent,
                                          .own = true };

static void close_and_count(const char *what)
{
    toy_detach(&sv);
    ok(sv.lender.lent > 0 && all_are_back(),
       "%s: each of %llu blocks is back, once", what,
       (unsigned long long)sv.lender.lent);
    toy_close(&sv);
}

/* ---- bad arguments ------------------------------------------------------ */

static void test_bad_arguments(void)
{
    gh_offload_tensor tensor = { &tensor, 64 };
    gh_offload_group group = { .struct_size = sizeof(group), .n_tensors = 1,
                               .module = GH_MODULE_CORE_ATTN,
                               .tensors = &tensor, .flags = 2 };
    struct {
        gh_offload_group group;
        unsigned char tail[16];
    } later;
    gh_error e = { "" };

    if (!open_with(&small)) {
        return;
    }
    is_status(gh_offload_save(sv.session, &group, &e), GH_ERR_INVALID, &e,
              "a flag that is none is refused");
    ok(strstr(e.text, "flags 0x2") != NULL, "and named: %s", e.text);
    is_status(gh_offload_load(sv.session, &group, &e), GH_ERR_INVALID, &e,
              "by a load too");
    group.flags = 0;
    group.reserved = 1;
    is_status(gh_offload_save(sv.session, &group, &e), GH_ERR_INVALID, &e,
              "what is reserved is refused");
    group.reserved = 0;
    group.object = &group;
    is_status(gh_offload_save(sv.session, &group, &e), GH_ERR_INVALID, &e,
              "an object of a group that is not the host's is refused");
    ok(strstr(e.text, "GH_OFFLOAD_HOST_OWNED") != NULL, "and says why: %s",
       e.text);
    group.struct_size = (uint32_t)GH_SIZE_THROUGH(gh_offload_group, tensors);
    is_status(gh_offload_save(sv.session, &group, &e), GH_ERR_STATE, &e,
              "what lies after a group of 0.3 is not read");
    memset(&later, 0, sizeof(later));
    later.group = group;
    later.group.object = NULL;
    later.group.struct_size = sizeof(later);
    later.tail[7] = 1;
    is_status(gh_offload_save(sv.session, &later.group, &e),
              GH_ERR_UNSUPPORTED, &e, "what a later group asks for is refused");
    ok(strstr(e.text, "gh_offload_group: byte 47 is set") != NULL,
       "and named: %s", e.text);
    later.tail[7] = 0;
    is_status(gh_offload_save(sv.session, &later.group, &e), GH_ERR_STATE, &e,
              "what it does not is not");
    group.struct_size = sizeof(group);
    group.flags = GH_OFFLOAD_HOST_OWNED;
    tensor.address = NULL;
    is_status(gh_offload_save(sv.session, &group, &e), GH_ERR_INVALID, &e,
              "bytes at NULL are refused");
    ok(strstr(e.text, "tensors[0] has 64 bytes at NULL") != NULL,
       "and named: %s", e.text);
    tensor.bytes = 0;
    is_status(gh_offload_save(sv.session, &group, &e), GH_ERR_STATE, &e,
              "no bytes at NULL are not");
    toy_close(&sv);
}

/* ---- calls out of turn -------------------------------------------------- */

static uint32_t n_wrong, n_tried;

static void expect(gh_status actual, gh_status expected, const gh_error *e,
                   const char *words, const char *what)
{
    n_tried++;
    if (actual != expected || strstr(e->text, words) == NULL) {
        diag("%s: status %d, \"%s\"", what, actual, e->text);
        n_wrong++;
    }
}

static gh_status place_again(bool save, uint64_t bytes, gh_error *e)
{
    gh_offload_tensor tensors[2] = { { &sv, bytes }, { &sv, bytes / 2 } };
    gh_offload_group group = { .struct_size = sizeof(group),
                               .layer = 1,
                               .module = GH_MODULE_CORE_ATTN,
                               .n_tensors = 2,
                               .tensors = tensors,
                               .flags = GH_OFFLOAD_HOST_OWNED,
                               .object = &sv };

    return (save ? gh_offload_save : gh_offload_load)(sv.session, &group, e);
}

/* The first tensor alone. */
static gh_status place_one(uint64_t bytes, gh_error *e)
{
    gh_offload_tensor tensor = { &sv, bytes };
    gh_offload_group group = { .struct_size = sizeof(group),
                               .layer = 1,
                               .module = GH_MODULE_CORE_ATTN,
                               .n_tensors = 1,
                               .tensors = &tensor };

    return gh_offload_load(sv.session, &group, e);
}

/* What has just been done, once more. */
static enum toy_answer misuse(struct toy *host, enum toy_call call,
                              uint32_t layer, uint32_t module,
                              uint32_t microbatch)
{
    const uint32_t core = GH_MODULE_CORE_ATTN;
    const bool records = host->decision.action == GH_ACTION_RECORD;
    const char *words = records ? "twice in one recording"
                                : "core_attn of microbatch";
    gh_error e = { "" };

    (void)microbatch;
    if (layer != 1 || module != 0) {
        return TOY_GO_ON;
    }
    switch (call) {
    case TOY_SAVE:
        expect(place_again(true, 256, &e), GH_ERR_STATE, &e, words, "save");
        break;
    case TOY_COMMIT:
        expect(gh_offload_commit(host->session, 1, core, &e), GH_ERR_STATE, &e,
               words, "commit");
        break;
    case TOY_LOAD:
        expect(place_again(false, 256, &e), GH_ERR_STATE, &e, words, "load");
        break;
    default:
        expect(gh_offload_release(host->session, 1, core, &e), GH_ERR_STATE, &e,
               words, "release");
    }
    return TOY_GO_ON;
}

static void test_calls_out_of_turn(void)
{
    if (!open_with(&small)) {
        return;
    }
    n_wrong = n_tried = 0;
    sv.watch = misuse;
    ok(steps(3, 3), "calls out of turn change nothing");
    ok(n_tried > 20, "%u of them are tried", n_tried);
    is_int(n_wrong, 0, "each is refused with its reason");
    sv.watch = NULL;
    ok(steps(2, 3) && is_right(), "and training goes on");
    close_and_count("calls out of turn");
}

static enum toy_answer load_others(struct toy *host, enum toy_call call,
                                   uint32_t layer, uint32_t module,
                                   uint32_t microbatch)
{
    gh_error e = { "" };

    (void)microbatch;
    /* The backward of layer 1 has begun: its core_attn is loaded last. */
    if (call == TOY_RELEASE && layer == 1 && module == 1) {
        expect(place_again(false, 512, &e), GH_ERR_INVALID, &e,
               "core_attn has other tensors than it was saved with: "
               "tensors[0] has 512 bytes, and had 256", "more");
        expect(place_again(false, 128, &e), GH_ERR_INVALID, &e,
               "tensors[0] has 128 bytes, and had 256", "less");
        expect(place_again(false, 257, &e), GH_ERR_INVALID, &e,
               "tensors[0] has 257 bytes, and had 256", "odd");
        expect(place_one(256, &e), GH_ERR_INVALID, &e,
               "they are 1, and were 2", "fewer");
    }
    (void)host;
    return TOY_GO_ON;
}

/* In a recording they end it, and an eager pass follows. */
static void test_other_tensors(void)
{
    if (!open_with(&small)) {
        return;
    }
    n_wrong = n_tried = 0;
    sv.watch = load_others;
    ok(steps(3, 3), "loads of other tensors than were saved change nothing");
    ok(n_tried > 20, "%u of them are tried", n_tried);
    is_int(n_wrong, 0, "each is refused with its reason");
    sv.watch = NULL;
    ok(steps(2, 3) && is_right(), "and training goes on");
    close_and_count("other tensors");
}

/* What one pass has saved no other commits: the first may have been a graph. */
static void test_commit_by_another_pass(void)
{
    struct toy_options o = small;

    o.granularity = "part";
    o.across = true;
    if (!open_with(&o)) {
        return;
    }
    ok(toy_step(&sv, 2) != GH_OK,
       "a commit by another pass than the one that saves is refused");
    ok(strstr(sv.err.text, "was saved by another pass") != NULL,
       "and says so: %s", sv.err.text);
    close_and_count("a commit by another pass");

    o.across = false;
    if (!open_with(&o)) {
        return;
    }
    steps(1, 2);
    sv.options.across = true;
    ok(toy_step(&sv, 2) != GH_OK &&
           strstr(sv.err.text, "was saved by another pass") != NULL,
       "also after the profile: %s", sv.err.text);
    close_and_count("a commit by another pass, after the profile");
}

/* ---- a host that does not wait ------------------------------------------ */

/* As soon as it has committed a group it writes there again. */
static enum toy_answer overwrite(struct toy *host, enum toy_call call,
                                 uint32_t layer, uint32_t module,
                                 uint32_t microbatch)
{
    const struct lent_block *block = host->lender.blocks;

    (void)microbatch;
    if (call != TOY_COMMIT || layer != 0 || module != 0) {
        return TOY_GO_ON;
    }
    while (block != NULL && !block->out) {
        block = block->next;
    }
    if (block != NULL) {
        host->drv.cuMemsetD8Async(block->address, 1, block->bytes,
                                  block->stream);
    }
    return TOY_GO_ON;
}

static void test_host_writes_too_early(void)
{
    if (!open_with(&small)) {
        return;
    }
    toy_configure(&sv, "SEED=0 RACES=1");
    sv.watch = overwrite;
    steps(1, 2);
    ok(toy_races(&sv) > 0,
       "a host that writes over a group before its copy has ended is told: "
       "%llu races",
       (unsigned long long)toy_races(&sv));
    toy_configure(&sv, "");
    close_and_count("a host that writes too early");
}

/* ---- the service -------------------------------------------------------- */

static void test_hooks_in_the_service(void)
{
    struct toy_options o = small;

    o.free_running = true;
    for (int compared = 0; compared < 2; compared++) {
        o.environment = compared ? comparing : silent;
        if (!open_with(&o)) {
            return;
        }
        sv.lender.session = sv.session;
        ok(steps(5, 3), "a service that calls hooks changes nothing");
        ok(is_right(), "and all is right");
        is_int(sv.lender.hooks_taken, 0, "as each of them is refused");
        sv.lender.session = NULL;
        close_and_count("hooks in the service");
    }
}

static uint32_t n_late, n_recorded, n_passes;

/* What goes is copied in the graph, so its block is free for what the recording
 * allocates next. */
static enum toy_answer look_at_commit(struct toy *host, enum toy_call call,
                                      uint32_t layer, uint32_t module,
                                      uint32_t microbatch)
{
    (void)module;
    (void)microbatch;
    if (call != TOY_COMMIT || layer == 3 ||
        host->decision.action != GH_ACTION_RECORD) {
        return TOY_GO_ON;
    }
    n_recorded++;
    for (const struct lent_block *b = host->lender.blocks; b != NULL;
         b = b->next) {
        n_late += b->out && b->recording == host->lender.recording;
    }
    return TOY_GO_ON;
}

/* A recording with a group that stays is dropped: its block is back. */
static enum toy_answer drop_one(struct toy *host, enum toy_call call,
                                uint32_t layer, uint32_t module,
                                uint32_t microbatch)
{
    uint64_t *dropped = host->user;

    (void)module;
    (void)microbatch;
    for (const struct lent_block *b = host->lender.blocks; b != NULL;
         b = b->next) {
        n_late += b->out && b->recording != 0 && b->recording == *dropped;
    }
    if (*dropped != 0 || layer != 3 || call != TOY_COMMIT ||
        host->decision.action != GH_ACTION_RECORD) {
        return TOY_GO_ON;
    }
    *dropped = host->lender.recording;
    return TOY_AGAIN;
}

static void test_dropped_recording(void)
{
    uint64_t dropped = 0;

    if (!open_with(&small)) {
        return;
    }
    n_late = 0;
    steps(1, 2);
    sv.watch = drop_one;
    sv.user = &dropped;
    ok(steps(2, 2) && dropped != 0, "a recording is dropped");
    is_int(n_late, 0, "and has given its block back");
    close_and_count("a recording that is dropped");
}

/* After the last backward of a microbatch nothing is out. */
static gh_status look_after_pass(struct toy *host)
{
    const gh_status status = gh_flush_delayed(host->session, &host->err);

    if (++n_passes % (2 * host->options.layers) == 0) {
        n_late += lender_still_out(&host->lender) != 0;
    }
    return status;
}

static void test_released_at_once(void)
{
    struct toy_options o = small;

    if (!open_with(&o)) {
        return;
    }
    n_late = n_recorded = 0;
    sv.watch = look_at_commit;
    ok(steps(3, 3) && n_recorded > 4, "%u commits are recorded", n_recorded);
    is_int(n_late, 0, "each gives its block back at once");
    sv.watch = NULL;
    close_and_count("recorded commits");

    o.in_flight = 0;
    o.streams = 1;
    o.granularity = "layer";
    o.waits = true;
    o.flush = look_after_pass;
    n_late = n_passes = 0;
    if (!open_with(&o)) {
        return;
    }
    ok(steps(3, 2) && n_passes == 3 * 2 * 8, "%u passes are run", n_passes);
    is_int(n_late, 0, "after each backward, every block is back");
    close_and_count("one microbatch after the other");
}

/* A backward that is recorded while its groups are on the device knows where
 * they come back to when they have gone. */
static void test_recorded_while_it_stays(void)
{
    struct toy_options o = small;
    char settings[2000] = "RACES=1 FAIL=";
    size_t used = strlen(settings);
    uint64_t replays;

    o.in_flight = 3;
    o.streams = 1;
    o.offload = (gh_offload_desc){ .struct_size = 1,
                                   .modules = TOY_MODULES,
                                   .min_bytes = 160 };
    for (int i = 1; i <= 40; i++) {
        used += (size_t)snprintf(settings + used, sizeof(settings) - used,
                                 "%scuMemAllocHost:%d:2", i == 1 ? "" : ",",
                                 i);
    }
    if (!open_with(&o)) {
        return;
    }
    steps(1, 2);
    toy_configure(&sv, settings);
    ok(steps(1, 4) && is_right(), "passes are recorded without pinned memory");
    toy_configure(&sv, "RACES=1");
    steps(1, 4);
    replays = toy_stats(&sv).replays;
    ok(steps(1, 4) && is_right(), "and right with it");
    is_int(toy_stats(&sv).replays - replays, 4 * 2 * 4,
           "where all of them are replayed");
    close_and_count("recorded without pinned memory");
}

struct closing {
    uint64_t at;
    bool done;
};

static enum toy_answer close_session(struct toy *host, enum toy_call call,
                                     uint32_t layer, uint32_t module,
                                     uint32_t microbatch)
{
    struct closing *c = host->user;

    (void)call;
    (void)layer;
    (void)module;
    (void)microbatch;
    if (host->calls < c->at) {
        return TOY_GO_ON;
    }
    c->done = true;
    toy_detach(host);
    return TOY_STOP;
}

static void sweep_closes(const struct toy_options *options, uint32_t which,
                         const char *what)
{
    uint32_t wrong = 0, n = 0;
    bool reached = true;

    for (n = 0; reached && n < 100; n++) {
        struct closing c = { n + 1, false };

        if (!open_with(options)) {
            return;
        }
        steps(which, 3);
        sv.watch = close_session;
        sv.user = &c;
        toy_step(&sv, 3);
        reached = c.done;
        toy_detach(&sv);
        if (!all_are_back() || toy_races(&sv) != 0) {
            diag("%s, call %u", what, n + 1);
            wrong++;
        }
        toy_close(&sv);
    }
    ok(n > 4 && wrong == 0,
       "%s: after each of %u calls, each block is back, once", what, n - 1);
}

static void test_closes(void)
{
    struct toy_options o = small;

    o.free_running = true;
    sweep_closes(&o, 0, "a session that closes in its first step");
    sweep_closes(&o, 1, "a session that closes in its second step");
    o.offload = (gh_offload_desc){ .struct_size = 1, .modules = "own_a",
                                   .min_bytes = 4 };
    sweep_closes(&o, 1, "a session that closes, half of the groups stay");
    o = small;
    o.environment = delayed;
    sweep_closes(&o, 0, "a session that closes, delayed");
}

/* ---- a step that is cut, a pass that is given up ------------------------ */

static void test_cuts(void)
{
    struct toy_options o = small;

    o.free_running = true;
    for (int stay = 0; stay < 2; stay++) {
        o.offload = (gh_offload_desc){ .struct_size = (uint32_t)stay,
                                       .modules = "own_a",
                                       .min_bytes = 4 };
        o.environment = silent;
        for (uint32_t which = 0; which < 2; which++) {
            sweep_cuts(&o, which, TOY_STOP, "a step that is given up");
            sweep_cuts(&o, which, TOY_AGAIN, "a pass that is begun again");
        }
        o.environment = delayed;
        sweep_cuts(&o, 0, TOY_STOP, "a step that is given up, delayed");
        sweep_cuts(&o, 0, TOY_AGAIN, "a pass that is begun again, delayed");
        o.environment = comparing;
        sweep_cuts(&o, 2, TOY_STOP, "a step that is given up, compared");
        sweep_cuts(&o, 2, TOY_AGAIN, "a pass that is begun again, compared");
        o.environment = silent;
        o.max_slots = 1;
        sweep_cuts(&o, 2, TOY_STOP, "a step that is given up, one slot");
        o.max_slots = 0;
        o.unlent = true;
        sweep_cuts(&o, 1, TOY_STOP, "a step that is given up, no service");
        o.unlent = false;
    }
}

/* ---- no pinned memory, copies that fail --------------------------------- */

static void test_pool_limit(void)
{
    struct toy_options o = small;

    o.host = &hearing;
    o.environment = NULL;
    for (uint64_t limit = 1; limit < 9000; limit += 1400) {
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
        close_and_count("a small pool");
    }
}

static const char *const entries[] = {
    "cuEventQuery",      "cuMemcpyDtoDAsync", "cuMemcpyDtoHAsync",
    "cuMemcpyHtoDAsync", "cuEventRecord",     "cuStreamWaitEvent",
    "cuEventCreate",     "cuMemAllocHost",    "cuMemAlloc",
    "cuEventRecordWithFlags"
};

struct outcome {
    bool good;
    uint64_t calls;
};

static struct outcome train_failing(const struct toy_options *options,
                                    const char *settings, const char *entry)
{
    struct outcome outcome = { false, 0 };
    gh_status status = GH_OK;

    if (!open_with(options)) {
        return outcome;
    }
    toy_configure(&sv, settings);
    for (uint32_t s = 0; s < 4 && status == GH_OK; s++) {
        status = toy_step(&sv, 2 + s % 2);
    }
    outcome.calls = toy_calls(&sv, entry);
    toy_detach(&sv);
    outcome.good = status == GH_OK ? is_right() : sv.err.text[0] != '\0';
    /* Part of a copy may be on its way when the rest of it fails. */
    if (strcmp(entry, "cuMemcpyDtoHAsync") == 0) {
        outcome.good = outcome.good && toy_races(&sv) == 0;
    }
    outcome.good = all_are_back() && outcome.good;
    toy_configure(&sv, "");
    toy_close(&sv);
    return outcome;
}

/* Fewer where the run with more has been, and a sanitizer looks on. */
static uint64_t most_of_an_entry(void)
{
    return getenv("GRAPHHOOKS_TEST_SEEDS") != NULL ? 8 : 60;
}

static void sweep(const struct toy_options *options, const char *entry,
                  uint32_t n_fail, const char *what)
{
    const struct outcome whole =
        train_failing(options, "RACES=1 SEED=3", entry);
    const uint64_t stride = whole.calls / most_of_an_entry() + 1;
    uint64_t wrong = 0;
    char settings[400];

    for (uint64_t n = 1; n <= whole.calls; n += stride) {
        int used = snprintf(settings, sizeof(settings),
                            "RACES=1 SEED=3 FAIL=%s:%llu", entry,
                            (unsigned long long)n);

        for (uint64_t i = 1; i < n_fail; i++) {
            used += snprintf(settings + used, sizeof(settings) - (size_t)used,
                             ",%s:%llu", entry, (unsigned long long)(n + i));
        }
        if (!train_failing(options, settings, entry).good) {
            diag("%s: %s", what, settings);
            wrong++;
        }
    }
    is_int(wrong, 0,
           "%s: %u of %llu calls to %s may fail: right or explained, and each "
           "block is back, once",
           what, n_fail, (unsigned long long)whole.calls, entry);
}

static void test_driver_calls(void)
{
    struct toy_options o = small;

    o.free_running = true;
    o.max_slots = 2;
    for (size_t e = 0; e < sizeof(entries) / sizeof(entries[0]); e++) {
        o.offload.struct_size = 0;
        sweep(&o, entries[e], 1, "all groups go");
        sweep(&o, entries[e], 5, "all groups go");
        o.offload = (gh_offload_desc){ .struct_size = 1, .modules = "own_a",
                                       .min_bytes = 160 };
        sweep(&o, entries[e], 1, "half of them go");
    }
}

int main(void)
{
    int status;

    if (!toy_probe_soft(&status)) {
        return status;
    }
    test_bad_arguments();
    test_calls_out_of_turn();
    test_other_tensors();
    test_commit_by_another_pass();
    test_host_writes_too_early();
    test_hooks_in_the_service();
    test_released_at_once();
    test_recorded_while_it_stays();
    test_dropped_recording();
    test_closes();
    test_pool_limit();
    test_cuts();
    test_driver_calls();
    return done_testing();
}
