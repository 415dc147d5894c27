/*
 * Each thing that a resumed session restores is needed: without it the software
 * device reports the next replay.
 *
 * Restored are the memory behind the addresses, and the zeros behind inputs
 * that have less than their capacity.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "abi/session.h"
#include "pass/pass.h"
#include "support/by_hand.h"
#include "tap/tap.h"

#include <string.h>

#define CAPACITY 1024
#define N_SEGMENTS 2

static gh_buffer results[N_SEGMENTS];

/* A forward whose graph leaves all of its input in results. */
static gh_action forward(uint32_t segment, uint64_t bytes)
{
    const gh_buffer input = buffer(16 + segment, bytes, 0);
    const struct io io = { .inputs = &input, .n_inputs = 1 };
    const uint64_t capacity = CAPACITY;
    gh_decision d = { .struct_size = sizeof(d) };
    gh_pass pass = a_pass(segment, GH_FORWARD, 0, toy.streams[0], &io);
    gh_status status;

    pass.capacities = &capacity;
    do {
        status = gh_layer_enter(toy.session, &pass, &d, &err);
        if (status != GH_OK) {
            ok(false, "a pass is entered: %s", err.text);
            return UINT32_MAX;
        }
        if (d.action != GH_ACTION_REPLAYED) {
            toy.drv.cuMemcpyDtoDAsync((uintptr_t)results[segment].address,
                                      (uintptr_t)d.inputs[0].address,
                                      d.inputs[0].bytes, d.stream);
        }
        status = gh_layer_exit(toy.session, &pass, &err);
    } while (status == GH_RERUN);
    return d.action;
}

/* A microbatch, whose results the host reads. */
static gh_action microbatch(uint64_t bytes)
{
    uint8_t found[CAPACITY];
    gh_action action = GH_ACTION_REPLAYED;

    for (uint32_t s = 0; s < N_SEGMENTS; s++) {
        const gh_action one = forward(s, bytes);

        action = one != GH_ACTION_REPLAYED ? one : action;
    }
    for (uint32_t s = N_SEGMENTS; s-- > 0;) {
        run(s, GH_BACKWARD, 0, toy.streams[0]);
    }
    toy.drv.cuStreamSynchronize(toy.streams[0]);
    for (uint32_t s = 0; s < N_SEGMENTS; s++) {
        toy.drv.cuMemcpyDtoH(found, (uintptr_t)results[s].address,
                             sizeof(found));
    }
    return action;
}

/* Recorded with all that there may be, and replayed with less. */
static bool begin(bool more_regions)
{
    static const char *const loud[] = { "GRAPHHOOKS_LOG=warn", NULL };

    if (!start((struct toy_options){ .layers = N_SEGMENTS,
                                     .max_slots = 1,
                                     .flags = GH_SESSION_SUSPENDS,
                                     .environment = loud })) {
        return false;
    }
    if (more_regions) {
        struct gh_arena *arena = &toy.session->capture->memory.arena;
        void *piece;

        gh_arena_alloc(arena, arena->granule, &piece, NULL);
    }
    for (uint32_t s = 0; s < N_SEGMENTS; s++) {
        results[s] = buffer(8 + s, CAPACITY, 0);
        toy.drv.cuMemsetD8Async((uintptr_t)buffer(16 + s, CAPACITY, 0).address,
                                (uint8_t)(s + 1), CAPACITY, toy.streams[0]);
    }
    is_int(microbatch(CAPACITY), GH_ACTION_RECORD, "two passes are recorded");
    is_int(microbatch(20), GH_ACTION_REPLAYED, "and replayed with less");
    return true;
}

static struct gh_shelf *shelf(void)
{
    return &toy.session->capture->banks.shelves[0];
}

/* Suspends and resumes, but for the writer of block `dropped`. */
static void suspend_but(uint32_t dropped)
{
    const void *writers[8];

    for (uint32_t i = 0; i < shelf()->n && i < 8; i++) {
        writers[i] = shelf()->blocks[i]->writer;
    }
    is_status(gh_session_suspend(toy.session, &err), GH_OK, &err,
              "the session is suspended");
    is_status(gh_session_resume(toy.session, &err), GH_OK, &err, "and resumed");
    if (dropped < shelf()->n) {
        shelf()->blocks[dropped]->writer = writers[dropped];
    }
}

static uint64_t found(const char **text_p)
{
    const char *unmapped = NULL, *unwritten = NULL;
    const uint64_t n =
        toy_unmapped(&toy, &unmapped) + toy_unwritten(&toy, &unwritten);

    *text_p = unmapped != NULL ? unmapped : unwritten != NULL ? unwritten : "";
    return n;
}

static void test_each_writer(void)
{
    const char *text = "";
    uint32_t n;

    if (!begin(false)) {
        return;
    }
    n = shelf()->n;
    is_int(n, N_SEGMENTS, "each pass has a block");
    for (uint32_t i = 0; i <= n; i++) {
        toy_configure(&toy, "SEED=0");
        suspend_but(i);
        is_int(microbatch(20), GH_ACTION_REPLAYED, "the passes are replayed");
        if (i == n) {
            ok(found(&text) == 0, "all restored: nothing is reported");
        } else {
            const bool reported = found(&text) != 0;

            ok(reported, "block %u not restored: %s", i, text);
        }
        /* What was not restored is, by a pass with all that there may be. */
        microbatch(CAPACITY);
        microbatch(20);
    }
    toy_close(&toy);
}

/* The memory goes once more after the session was resumed. */
static void test_the_memory(void)
{
    const char *text = "";

    if (!begin(false)) {
        return;
    }
    toy_configure(&toy, "SEED=0");
    suspend_but(UINT32_MAX);
    is_status(gh_arena_unmap(&toy.session->capture->memory.arena, &err), GH_OK,
              &err, "the memory is taken away");
    microbatch(20);
    (void)found(&text);
    ok(strstr(text, "no memory is mapped") != NULL, "no memory: %s", text);
    toy_close(&toy);
}

/* The second region does not go, so that the first one is taken again: with
 * other bytes. */
static void test_a_suspend_that_fails(void)
{
    const char *text = "";

    if (!begin(true)) {
        return;
    }
    toy_configure(&toy, "SEED=0 FAIL=cuMemUnmap:2:1");
    is_status(gh_session_suspend(toy.session, &err), GH_ERR_DEVICE, &err,
              "a region does not go");
    is_int(microbatch(20), GH_ACTION_REPLAYED, "the passes are replayed");
    ok(found(&text) == 0, "with zeros where they were: %s", text);
    toy_configure(&toy, "SEED=0");
    toy_close(&toy);
}

int main(void)
{
    int status;

    if (!toy_probe_soft(&status)) {
        return status;
    }
    test_each_writer();
    test_the_memory();
    test_a_suspend_that_fails();
    return done_testing();
}
