/*
 * A caller built against the headers of an old release goes on working.
 *
 * This file is built once for each release that tests/abi/old/ keeps.  Here is
 * what all of them have; what one has added is in old_since_RELEASE.c.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "abi/old_caller.h"

static void test_table_grew_at_its_end_only(void)
{
    ok(gh->struct_size >= sizeof(gh_api),
       "the table has all slots of " RELEASE);
    is_int(gh->abi_version >> 16, GH_ABI_MAJOR,
           "the major is that of " RELEASE);
    ok((int)(gh->abi_version & 0xffff) >= GH_ABI_MINOR,
       "the minor is at least that of " RELEASE);
    ok(gh->version()[0] != '\0', "the library has a version");
    is_str(gh->status_name(GH_ERR_BUSY), "GH_ERR_BUSY",
           "a status keeps its name");
    is_str(gh->reason_name(GH_REASON_WARMUP), "warmup",
           "a reason keeps its name");
}

static void test_disabled(void)
{
    static const char *const eager[] = { "GRAPHHOOKS_ENABLE=0", NULL };
    const struct opening opening = { .n_layers = 3,
                                     .desc = { .environment = eager } };
    FRAMED(gh_segment) segment;

    if (!open_session(&opening)) {
        return;
    }
    is_int(gh->plan_segment_count(session, 0), 3,
           "the plan has a segment for each layer");
    FRAME(segment);
    is_status(gh->plan_segment(session, 0, 2, &segment.it, &err), GH_OK, &err,
              "a gh_segment of " RELEASE " is filled");
    ok(IS_WHOLE(segment), "nothing is written after a gh_segment of " RELEASE);
    is_int(segment.it.struct_size, sizeof(gh_segment),
           "a gh_segment of " RELEASE " keeps its size");

    for (gh_direction to = GH_FORWARD; to <= GH_BACKWARD; to++) {
        struct pass pass = a_pass(to, 0);

        pass.call.it.segment = segment.it.index;
        ok(passes_as(&pass, GH_ACTION_RUN, GH_REASON_DISABLED),
           "with GRAPHHOOKS_ENABLE=0 a host of " RELEASE " is told to run");
    }
    close_session();
}

/* ---- the services of the first release ----------------------------------- */

/* What the host has heard. */
static struct heard {
    uint32_t lines, begun, ended;
    uint64_t lent, returned; /* bytes */
    void *stream;            /* of the last recording, as the next two */
    uint32_t slot, kept;
    bool strange; /* a service was called with other arguments than agreed */
} heard;

static void hear(void *user, gh_log_level level, const char *line)
{
    heard.strange |= user != &heard || level > GH_LOG_DEBUG || line[0] == '\0';
    heard.lines++;
}

static gh_status lend(void *user, uint64_t bytes, void **address_p)
{
    CUdeviceptr address = 0;

    heard.strange |= user != &heard;
    if (drv.cuMemAlloc(&address, bytes) != CUDA_SUCCESS) {
        return GH_ERR_NO_MEMORY;
    }
    heard.lent += bytes;
    *address_p = (void *)(uintptr_t)address;
    return GH_OK;
}

static void take_back(void *user, void *address, uint64_t bytes)
{
    heard.strange |= user != &heard;
    heard.returned += bytes;
    drv.cuMemFree((uintptr_t)address);
}

static gh_status record_begin(void *user, const gh_recording *recording)
{
    heard.strange |= user != &heard;
    heard.begun++;
    heard.stream = recording->stream;
    heard.slot = recording->slot;
    return GH_OK;
}

static void record_end(void *user, const gh_recording *recording, uint32_t kept)
{
    heard.strange |= user != &heard || recording->stream != heard.stream ||
                     recording->slot != heard.slot;
    heard.ended++;
    heard.kept = kept;
}

static const gh_host_services services = { .user = &heard,
                                           .log = hear,
                                           .device_alloc = lend,
                                           .device_free = take_back,
                                           .record_begin = record_begin,
                                           .record_end = record_end };

/* Records a pass, and its services are given its stream and its slot. */
static void is_heard(gh_direction direction, uint32_t microbatch)
{
    const uint32_t before = heard.begun;
    struct pass pass = a_pass(direction, microbatch);

    ok(passes_as(&pass, GH_ACTION_RECORD, GH_REASON_NONE),
       "after warmup a pass of " RELEASE " is recorded, and its result right");
    is_int(pass.d.it.slot, microbatch, "microbatch %u has a slot of its own",
           (unsigned)microbatch);
    is_int(heard.begun, before + 1,
           "record_begin of " RELEASE " is called once for it");
    ok(heard.stream == pass.call.it.stream && heard.slot == pass.d.it.slot,
       "record_begin of " RELEASE " is given the stream and the slot");
    ok(heard.ended == heard.begun && heard.kept == 1,
       "record_end of " RELEASE " says that the graph is kept");
}

static void is_given_up(void)
{
    struct pass pass = a_pass(GH_BACKWARD, 0);

    is_status(enter_pass(&pass), GH_OK, &err,
              "a backward of " RELEASE " is entered");
    is_int(pass.d.it.action, GH_ACTION_RECORD, "that backward is recorded");
    is_status(gh->layer_cancel(session, &err), GH_OK, &err,
              "a recording of " RELEASE " is given up");
    ok(heard.ended == heard.begun && heard.kept == 0,
       "record_end of " RELEASE " says that no graph is kept");
}

static void test_graphs(void)
{
    static const char *const told[] = { "GRAPHHOOKS_LOG=debug", NULL };
    const struct opening opening = { .n_layers = 1,
                                     .desc = { .max_slots = 2,
                                               .environment = told },
                                     .host = services };

    heard = (struct heard){ 0 };
    if (!open_warm(&opening)) {
        return;
    }
    is_int(heard.begun, 0, "nothing is recorded in warmup");
    is_heard(GH_FORWARD, 0);
    is_heard(GH_FORWARD, 1);
    is_given_up();
    is_heard(GH_BACKWARD, 0);
    is_heard(GH_BACKWARD, 1);
    for (uint32_t m = 2; m < 4; m++) {
        ok(is_replayed(GH_FORWARD, m) && is_replayed(GH_BACKWARD, m),
           "passes of " RELEASE " are replayed, and their results right");
    }
    is_int(heard.begun, 5, "a replay calls no record_begin");
    end_step();
    close_session();
    ok(heard.lent > 0 && heard.returned == heard.lent,
       "device memory is lent by a host of " RELEASE ", and given back");
    ok(heard.lines > 0, "a host of " RELEASE " hears the log");
    ok(!heard.strange, "every service of " RELEASE " has its arguments");
}

/* ---- gh_stats ------------------------------------------------------------ */

/*
 * A host that waits inside a recording loses it, and runs the pass again: for
 * the rest of the step, and after a second time for good.
 */
static bool is_rerun(gh_direction direction, uint32_t microbatch,
                     gh_reason reason)
{
    struct pass pass = a_pass(direction, microbatch);

    if (enter_pass(&pass) != GH_OK || pass.d.it.action != GH_ACTION_RECORD) {
        return false;
    }
    drv.cuStreamSynchronize(pass.d.it.stream);
    return exit_pass(&pass) == GH_RERUN &&
           passes_as(&pass, GH_ACTION_RUN, reason);
}

static bool is_evaluated(uint32_t microbatch)
{
    struct pass pass = a_pass(GH_FORWARD, microbatch);

    pass.call.it.flags = GH_PASS_FORWARD_ONLY;
    return passes_as(&pass, GH_ACTION_RUN, GH_REASON_FORWARD_ONLY) &&
           pass.d.it.slot == GH_SLOT_NONE;
}

/* Three microbatches: forward, then backward but for the last. */
static bool are(bool (*decided)(gh_direction, uint32_t))
{
    bool all = true;

    for (uint32_t m = 0; m < 3; m++) {
        all &= decided(GH_FORWARD, m);
    }
    return all && decided(GH_BACKWARD, 0) && decided(GH_BACKWARD, 1);
}

/* Nineteen passes with that of warmup, after which most counters differ. */
static void make_counts(void)
{
    ok(are(is_recorded), "three microbatches of " RELEASE " are recorded");
    ok(is_rerun(GH_BACKWARD, 2, GH_REASON_WARMUP),
       "a pass of " RELEASE " whose recording fails runs again");
    end_step();
    ok(are(is_replayed), "three microbatches of " RELEASE " are replayed");
    ok(is_rerun(GH_BACKWARD, 2, GH_REASON_CAPTURE),
       "what could not be recorded twice stays eager");
    end_step();
    for (uint32_t m = 0; m < 4; m++) {
        ok(is_evaluated(m), "GH_PASS_FORWARD_ONLY of " RELEASE
                            " runs eagerly and takes no slot");
    }
    end_step();
}

#define IS_COUNT(field, expected) \
    is_int(stats.field, expected, \
           "gh_stats." #field " of " RELEASE " is in its place")

static uint64_t eager_of(gh_reason reason)
{
    uint64_t count = UINT64_MAX;

    gh->session_reasons(session, reason, &count, &err);
    return count;
}

#define IS_EAGER(reason, expected) \
    is_int(eager_of(reason), expected, \
           "session_reasons of " RELEASE " counts " #reason)

static void test_counts(void)
{
    gh_stats stats;

    if (!read_stats(&stats)) {
        return;
    }
    IS_COUNT(slots, 3);
    IS_COUNT(iterations, 4);
    IS_COUNT(recordings, 5);
    IS_COUNT(replays, 10);
    IS_COUNT(eager_passes, 7);
    IS_EAGER(GH_REASON_WARMUP, 2);
    IS_EAGER(GH_REASON_CAPTURE, 1);
    IS_EAGER(GH_REASON_FORWARD_ONLY, 4);
    IS_COUNT(reruns, 2);
    IS_COUNT(copies, 12);
    IS_COUNT(copied_bytes, 12 * 16);
    IS_COUNT(static_bytes, heard.lent - heard.returned);
    IS_COUNT(nodes, 3 + 2 * 2);
    IS_COUNT(hook_calls, 2 * 19);
    ok(stats.record_ns > 0 && stats.hook_ns > stats.record_ns,
       "the times of " RELEASE " are in their places");
    IS_COUNT(checks, 0);
    IS_COUNT(check_failures, 0);
}

static void test_stats(void)
{
    /* Where there is a trace, the time in hooks is measured. */
    static const char *const traced[] = { "GRAPHHOOKS_LOG=off",
                                          "GRAPHHOOKS_TRACE=/dev/null", NULL };
    const struct opening opening = { .n_layers = 1,
                                     .desc = { .max_slots = 3,
                                               .environment = traced },
                                     .host = services };

    heard = (struct heard){ 0 };
    if (open_warm(&opening)) {
        make_counts();
        test_counts();
        close_session();
    }
}

/* A host whose third pass is not what its graph was recorded of. */
static void test_checks(void)
{
    static const char *const checked[] = { "GRAPHHOOKS_LOG=off",
                                           "GRAPHHOOKS_CHECK=bitwise", NULL };
    const struct opening opening = { .n_layers = 1,
                                     .desc = { .environment = checked } };
    struct pass wrong;
    gh_stats stats;

    if (!open_warm(&opening)) {
        return;
    }
    for (uint32_t i = 0; i < 2; i++) {
        struct pass pass = a_pass(GH_FORWARD, 0);

        ok(passes_as(&pass, GH_ACTION_RUN, GH_REASON_CHECK),
           "GRAPHHOOKS_CHECK compares a pass of " RELEASE);
        end_step();
    }
    wrong = a_pass(GH_FORWARD, 0);
    enter_pass(&wrong);
    work_in(&wrong);
    drv.cuMemsetD32Async((uintptr_t)wrong.output.address, 0, 1,
                         wrong.d.it.stream);
    is_status(exit_pass(&wrong), GH_OK, &err,
              "a pass of " RELEASE " that differs is ended");
    if (read_stats(&stats)) {
        IS_COUNT(checks, 3);
        IS_COUNT(check_failures, 1);
    }
    close_session();
}

int main(void)
{
    if (caller_start()) {
        test_table_grew_at_its_end_only();
        test_disabled();
        test_graphs();
        test_stats();
        test_checks();
        test_since_0_2();
        test_since_0_3();
        test_since_0_4();
#if GH_ABI_MAJOR > 0 || GH_ABI_MINOR >= 5
        test_since_0_5();
#endif
#if GH_ABI_MAJOR > 0
        test_since_1_0();
#endif
        caller_stop();
    }
    return done_testing();
}
