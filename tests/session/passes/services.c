/*
 * What a host lends is used, balanced, and may fail.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/toy.h"
#include "tap/tap.h"

#include <string.h>

struct services {
    struct toy *toy;
    uint32_t allocs, frees;
    uint64_t bytes;
    uint32_t begun, ended, kept;
    uint32_t lines;
    bool refuse_alloc, refuse_record;
    bool lend_nothing; /* GH_OK, and no memory */
    bool calls_hooks;  /* from its services */
    uint32_t wild;     /* frees of what was never lent */
    uint32_t answered; /* hooks that were not refused */
};

#define NOBODYS ((void *)0xdead00)

static gh_status lend_memory(void *user, uint64_t bytes, void **address_p)
{
    struct services *l = user;
    CUdeviceptr address = 0;

    if (l->lend_nothing) {
        *address_p = NULL;
        return GH_OK;
    }
    *address_p = NOBODYS; /* nobody reads it unless the result is GH_OK */
    if (l->refuse_alloc ||
        l->toy->drv.cuMemAlloc(&address, bytes) != CUDA_SUCCESS) {
        return GH_ERR_NO_MEMORY;
    }
    l->allocs++;
    l->bytes += bytes;
    *address_p = (void *)(uintptr_t)address;
    return GH_OK;
}

static void take_memory_back(void *user, void *address, uint64_t bytes)
{
    struct services *l = user;

    if (address == NOBODYS) {
        l->wild++;
        return;
    }
    l->frees++;
    l->bytes -= bytes;
    l->toy->drv.cuMemFree((uintptr_t)address);
}

/* What no service may do. */
static void call_hooks(struct services *l)
{
    gh_session *session = l->toy->session;
    gh_pass pass = { .struct_size = sizeof(pass),
                     .flags = GH_PASS_FORWARD_ONLY,
                     .stream = l->toy->streams[0] };
    gh_decision decision = { .struct_size = sizeof(decision) };

    l->answered += gh_layer_enter(session, &pass, &decision, NULL) == GH_OK;
    l->answered += gh_layer_exit(session, &pass, NULL) == GH_OK;
    l->answered += gh_flush_delayed(session, NULL) == GH_OK;
    l->answered += gh_iteration_end(session, NULL) == GH_OK;
    (void)gh_layer_cancel(session, NULL);
    gh_session_close(session);
}

static gh_status make_room(void *user, const gh_recording *recording)
{
    struct services *l = user;

    (void)recording;
    if (l->calls_hooks) {
        call_hooks(l);
    }
    return GH_OK;
}

static gh_status begin_record(void *user, const gh_recording *recording)
{
    struct services *l = user;

    (void)recording;
    if (l->calls_hooks) {
        call_hooks(l);
    }
    if (l->refuse_record) {
        return GH_ERR_STATE;
    }
    l->begun++;
    return GH_OK;
}

static void end_record(void *user, const gh_recording *recording,
                       uint32_t kept)
{
    struct services *l = user;

    (void)recording;
    if (l->calls_hooks) {
        call_hooks(l);
    }
    l->ended++;
    l->kept += kept;
}

static void count_line(void *user, gh_log_level level, const char *line)
{
    struct services *l = user;

    (void)level;
    (void)line;
    l->lines++;
    if (l->calls_hooks) {
        call_hooks(l);
    }
}

static const uint32_t counts[] = { 1, 2, 2 };

static gh_stats run(struct services *l, enum toy_mischief mischief, bool *exact)
{
    gh_host_services host = {
        .struct_size = sizeof(host),
        .user = l,
        .log = count_line,
        .device_alloc = lend_memory,
        .device_free = take_memory_back,
        .record_begin = begin_record,
        .record_end = end_record,
        .before_recording = make_room,
    };
    const struct toy_options options = {
        .layers = 2, .elems = 64, .moving_inputs = true, .host = &host
    };
    gh_stats stats = { 0 };
    struct toy toy;

    l->toy = &toy;
    *exact = false;
    if (!toy_start(&toy, &options, NULL)) {
        return stats;
    }
    toy.mischief = mischief;
    if (toy_train(&toy, counts, 3) == GH_OK) {
        stats = toy_stats(&toy);
        *exact = toy_is_exact(&toy);
    }
    toy_close(&toy);
    return stats;
}

static void test_all_is_lent_and_returned(void)
{
    struct services l = { 0 };
    bool exact;
    gh_stats stats = run(&l, TOY_GOOD, &exact);

    ok(exact, "a host with services of its own gets exact weights");
    is_int(l.allocs, 4, "each of four passes borrows memory for its input");
    is_int(l.frees, l.allocs, "and every piece is returned");
    is_int(l.bytes, 0, "with the size that it was borrowed with");
    is_int(l.begun, stats.recordings, "record_begin comes with a recording");
    is_int(l.ended, l.begun, "record_end with every record_begin");
    is_int(l.kept, stats.recordings, "and says that the graph was kept");
    is_int(l.lines, 0, "nothing is said when all is well");
}

static void test_no_memory_is_lent(void)
{
    struct services l = { .refuse_alloc = true };
    bool exact;
    gh_stats stats = run(&l, TOY_GOOD, &exact);

    ok(exact, "a host that lends no memory gets exact weights");
    is_int(stats.recordings, 0, "but no graphs");
    is_int(l.lines, 1, "and one line for the four passes");
    is_int(l.ended, l.begun, "record_begin and record_end are balanced");
    is_int(l.wild, 0, "what a refusing service leaves behind is not freed");
}

static void test_services_call_hooks(void)
{
    struct services l = { .calls_hooks = true };
    bool exact;
    gh_stats stats = run(&l, TOY_GOOD, &exact);

    ok(exact, "a host whose services call hooks gets exact weights");
    is_int(l.answered, 0, "and each of those calls is refused");
    is_int(l.begun, stats.recordings, "all passes are recorded all the same");
    is_int(l.lines, stats.recordings * 2 + 1,
           "each close is refused with a line");
}

static void test_a_log_calls_hooks(void)
{
    struct services l = { .calls_hooks = true, .refuse_alloc = true };
    bool exact;
    gh_stats stats = run(&l, TOY_GOOD, &exact);

    ok(exact, "a host whose log calls hooks gets exact weights");
    is_int(l.answered, 0, "and each of those calls is refused");
    is_int(stats.iterations, 3, "the session stays open");
    ok(l.lines > 0, "and what it says in a line is not told");
}

static void test_nothing_is_lent(void)
{
    struct services l = { .lend_nothing = true };
    bool exact;
    gh_stats stats = run(&l, TOY_GOOD, &exact);

    ok(exact, "a host that lends NULL gets exact weights");
    is_int(stats.recordings, 0, "and no graph that reads from there");
}

static void test_routing_is_refused(void)
{
    struct services l = { .refuse_record = true };
    bool exact;
    gh_stats stats = run(&l, TOY_GOOD, &exact);

    ok(exact, "a host that refuses to route gets exact weights");
    is_int(stats.recordings, 0, "but no graphs");
    is_int(l.ended, 0, "no record_end without its record_begin");
    is_int(l.frees, l.allocs, "the memory is returned");
}

static void test_a_broken_capture_is_not_kept(void)
{
    struct services l = { 0 };
    bool exact;
    gh_stats stats = run(&l, TOY_SYNC, &exact);

    ok(exact, "a host that breaks one capture gets exact weights");
    is_int(l.ended, l.begun, "record_end comes after a broken capture too");
    is_int(l.kept, stats.recordings, "and says that its graph was not kept");
    ok(l.kept < l.begun, "which happened");
    is_int(l.frees, l.allocs, "the memory of the broken one is returned");
}

/* The commonest mistake of a new host. */
static void test_a_host_that_never_ends_a_step_is_told(void)
{
    struct services l = { 0 };
    gh_host_services host = { .struct_size = sizeof(host),
                              .user = &l,
                              .log = count_line };
    const struct toy_options options = { .layers = 1,
                                         .elems = 8,
                                         .host = &host };
    gh_pass pass = { .struct_size = sizeof(pass) };
    struct toy toy;

    if (!toy_start(&toy, &options, NULL)) {
        return;
    }
    pass.stream = toy.streams[0];
    for (uint32_t i = 0; i < 10000; i++) {
        pass.direction = i % 2;
        toy_empty_pass(&toy, &pass);
    }
    is_int(l.lines, 0, "10,000 passes of one step may be a long step");
    pass.direction = GH_FORWARD;
    toy_empty_pass(&toy, &pass);
    is_int(l.lines, 1, "after that a line says that no step has ended");
    for (uint32_t i = 0; i < 100; i++) {
        pass.direction = (i + 1) % 2;
        toy_empty_pass(&toy, &pass);
    }
    is_int(l.lines, 1, "and 100 passes more say nothing");
    toy_close(&toy);
    is_int(l.lines, 2, "and another one when the session closes");
}

int main(void)
{
    const char *reason;
    struct toy toy;

    if (!toy_probe(&toy, &reason)) {
        return skip_all("%s", reason);
    }
    test_all_is_lent_and_returned();
    test_no_memory_is_lent();
    test_nothing_is_lent();
    test_services_call_hooks();
    test_a_log_calls_hooks();
    test_routing_is_refused();
    test_a_broken_capture_is_not_kept();
    test_a_host_that_never_ends_a_step_is_told();
    return done_testing();
}
