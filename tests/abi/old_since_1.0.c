/*
 * What ABI 1.0 has added goes on working for a caller built against it.
 *
 * Part of tests/abi/old.c from that release on.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "abi/old_caller.h"

#define ROWS 3
#define ROW_BYTES 64
#define PAGE_BYTES 256

static const char *const quiet[] = { "GRAPHHOOKS_LOG=off", NULL };

/* ---- plans and words ------------------------------------------------------
 */

static void test_slots_of_a_plan(void)
{
    FRAMED(gh_pipeline_desc) desc;
    uint32_t slots[3] = { 0, 0, GUARD };

    FRAME(desc);
    desc.it.stages = 2;
    desc.it.chunks = 2;
    is_status(gh->plan_slots(&desc.it, slots, &err), GH_OK, &err,
              "a gh_pipeline_desc of " RELEASE " is taken");
    ok(slots[0] > 0 && slots[1] > 0 && slots[2] == GUARD && IS_WHOLE(desc),
       "each chunk has slots, and nothing after them is written");
}

static void test_words(void)
{
    const uint64_t is[] = { 7, 9 }, was[] = { 7, 8 };
    const uint64_t *const at[] = { &is[0], &is[1] };

    is_int(gh->words_compare(at, was, 2), 1,
           "a caller of " RELEASE " is told the first word that has changed");
}

/* ---- memory ---------------------------------------------------------------
 */

static int issued;

static gh_status issue(void *user, gh_pass *call, const gh_decision *decision,
                       gh_error *e)
{
    struct pass *pass = user;

    (void)e;
    issued += call == &pass->call.it && decision == &pass->d.it;
    work_in(pass);
    return GH_OK;
}

static void test_run_pass(void)
{
    struct pass pass = a_pass(GH_FORWARD, 0);

    FRAME(pass.d);
    pass.call.it.inputs = &pass.input;
    pass.call.it.n_inputs = 1;
    is_status(
        gh->run_pass(session, &pass.call.it, issue, &pass, &pass.d.it, &err),
        GH_OK, &err, "gh_run_pass of " RELEASE " runs a pass");
    ok(issued == 1 && pass.d.it.action == GH_ACTION_RECORD &&
           IS_WHOLE(pass.call) && IS_WHOLE(pass.d),
       "it is recorded, by the host's function");
    ok(is_recorded(GH_BACKWARD, 0), "and so is its backward");
    is_int((long long)gh->offload_is_on(session, 0), 0, "nothing is offloaded");
}

static void test_memory(void)
{
    FRAMED(gh_memory_stats) stats;

    is_status(gh->session_suspend(session, &err), GH_OK, &err,
              "a session of " RELEASE " is suspended");
    FRAME(stats);
    is_status(gh->memory_get_stats(session, &stats.it, &err), GH_OK, &err,
              "a gh_memory_stats of " RELEASE " is filled");
    stats.it.struct_size = GH_SIZE_THROUGH(gh_memory_stats, spare_bytes);
    is_status(gh->memory_get_stats(session, &stats.it, NULL), GH_ERR_ABI, NULL,
              "one without its last field was never released");
    ok(IS_WHOLE(stats) && stats.it.suspended == 1 && stats.it.suspends == 1 &&
           stats.it.device_given > 0 && stats.it.pinned_bytes == 0,
       "each field of a gh_memory_stats of " RELEASE " is in its place");
    is_status(gh->session_resume(session, &err), GH_OK, &err, "and resumed");
}

static void test_session(void)
{
    const struct opening opening = { .n_layers = 1,
                                     .desc = { .environment = quiet,
                                               .flags = GH_SESSION_SUSPENDS } };

    if (!open_warm(&opening)) {
        return;
    }
    test_run_pass();
    end_step();
    test_memory();
    ok(is_replayed(GH_FORWARD, 0) && is_replayed(GH_BACKWARD, 0) && end_step(),
       "after which passes are replayed");
    close_session();
}

static void test_pool(void)
{
    FRAMED(gh_pool_desc) desc;
    FRAMED(gh_pool_functions) functions;
    FRAMED(gh_pool_stats) stats;
    gh_pool *pool = NULL;
    void *memory;

    FRAME(desc);
    desc.it.driver = caller_device();
    desc.it.environment = quiet;
    is_status(gh->pool_create(&desc.it, &pool, &err), GH_OK, &err,
              "a gh_pool_desc of " RELEASE " is taken");
    if (pool == NULL) {
        return;
    }
    FRAME(functions);
    is_status(gh->pool_get_functions(pool, &functions.it, &err), GH_OK, &err,
              "a gh_pool_functions of " RELEASE " is filled");
    memory = functions.it.alloc(1, 0, NULL);
    FRAME(stats);
    is_status(gh->pool_get_stats(pool, &stats.it, &err), GH_OK, &err,
              "a gh_pool_stats of " RELEASE " is filled");
    ok(memory != NULL && stats.it.bytes > 0 && stats.it.suspended == 0 &&
           IS_WHOLE(desc) && IS_WHOLE(functions) && IS_WHOLE(stats),
       "the pool has memory, and nothing after these structs is written");
    functions.it.free(memory, 1, 0, NULL);
    is_status(gh->pool_suspend(pool, &err), GH_OK, &err, "it is suspended");
    is_status(gh->pool_resume(pool, &err), GH_OK, &err, "and resumed");
    gh->pool_destroy(pool);
}

/* ---- stash ----------------------------------------------------------------
 */

static void test_rows(gh_stash *stash, CUdeviceptr rows)
{
    FRAMED(gh_stash_op) op;
    gh_stash_tensor tensor = { 0 };
    uint32_t word = 0, rerun = 7;

    tensor.rows = (void *)(uintptr_t)rows;
    tensor.row_bytes = ROW_BYTES;
    FRAME(op);
    op.it.n_tensors = 1;
    op.it.tensors = &tensor;
    op.it.stream = streams[0];
    is_status(gh->stash_add(stash, ROWS, &op.it.entry, &err), GH_OK, &err,
              "a caller of " RELEASE " adds an entry");
    drv.cuMemsetD32Async(rows, 77, ROWS * ROW_BYTES / 4, streams[0]);
    is_status(gh->stash_push(stash, &op.it, &err), GH_OK, &err,
              "a gh_stash_op of " RELEASE " is pushed");
    drv.cuMemsetD32Async(rows, 0, ROWS * ROW_BYTES / 4, streams[0]);
    is_status(gh->stash_pop(stash, &op.it, &err), GH_OK, &err, "and popped");
    is_status(gh->stash_end_step(stash, streams[0], &rerun, &err), GH_OK, &err,
              "and the step has ended");
    drv.cuMemcpyDtoH(&word, rows + ROWS * ROW_BYTES - 4, sizeof(word));
    ok(word == 77 && rerun == 0 && IS_WHOLE(op),
       "its rows are back, and nothing after a gh_stash_op is written");
}

static void test_stash(void)
{
    FRAMED(gh_stash_desc) desc;
    FRAMED(gh_stash_stats) stats;
    gh_stash *stash = NULL;
    CUdeviceptr rows = 0;

    FRAME(desc);
    desc.it.bytes = 4 * PAGE_BYTES;
    desc.it.page_bytes = PAGE_BYTES;
    desc.it.driver = caller_device();
    desc.it.environment = quiet;
    is_status(gh->stash_create(&desc.it, &stash, &err), GH_OK, &err,
              "a gh_stash_desc of " RELEASE " is taken");
    if (stash == NULL) {
        return;
    }
    drv.cuMemAlloc(&rows, ROWS * ROW_BYTES);
    test_rows(stash, rows);
    FRAME(stats);
    is_status(gh->stash_get_stats(stash, &stats.it, &err), GH_OK, &err,
              "a gh_stash_stats of " RELEASE " is filled");
    stats.it.struct_size = GH_SIZE_THROUGH(gh_stash_stats, spill_bytes);
    is_status(gh->stash_get_stats(stash, &stats.it, NULL), GH_ERR_ABI, NULL,
              "one without its last field was never released");
    ok(IS_WHOLE(desc) && IS_WHOLE(stats) && stats.it.entries == 1 &&
           stats.it.page_bytes == PAGE_BYTES && stats.it.steps == 1 &&
           stats.it.peak_bytes == PAGE_BYTES && stats.it.reruns == 0 &&
           stats.it.spilled == 0,
       "each field of a gh_stash_stats of " RELEASE " is in its place");
    gh->stash_destroy(stash);
    drv.cuMemFree(rows);
}

void test_since_1_0(void)
{
    test_slots_of_a_plan();
    test_words();
    test_session();
    test_pool();
    test_stash();
}
