/* Streams keep their order, events carry it across, the legacy stream holds
 * the blocking ones together. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/driver/contract.h"

static void test_bad_arguments(void)
{
    CUevent event = new_event(CU_EVENT_DEFAULT);
    CUstream stream = NULL;

    is_int(drv.cuStreamCreate(NULL, 0), 1, "cuStreamCreate needs a result");
    is_int(drv.cuStreamCreate(&stream, 1u << 20), 1,
           "cuStreamCreate refuses unknown flags");
    is_int(drv.cuStreamDestroy(NULL), 400,
           "the legacy stream cannot be destroyed");
    is_int(drv.cuEventCreate(NULL, 0), 1, "cuEventCreate needs a result");
    is_int(drv.cuEventCreate(&event, 1u << 20), 1,
           "cuEventCreate refuses unknown flags");
    is_int(drv.cuEventDestroy(NULL), 400, "cuEventDestroy of NULL is 400");
    is_int(drv.cuEventRecord(NULL, side), 400, "recording NULL is 400");
    is_int(drv.cuEventRecordWithFlags(event, side, CU_EVENT_RECORD_EXTERNAL),
           401, "an external record outside a capture is 401");
    is_int(drv.cuStreamWaitEvent(side, event, CU_EVENT_WAIT_EXTERNAL), 401,
           "an external wait outside a capture is 401");
    drv.cuEventDestroy(event);
}

static void test_priorities(void)
{
    int least = 9, greatest = 9, priority = 9;
    CUstream stream = NULL;

    is_int(drv.cuCtxGetStreamPriorityRange(&least, &greatest), 0,
           "the priority range is told");
    ok(least == 0 && greatest < 0, "priorities go down from 0");
    is_int(drv.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING,
                                          greatest),
           0, "a stream of the greatest priority is made");
    is_int(drv.cuStreamGetPriority(stream, &priority), 0,
           "a stream tells its priority");
    is_int(priority, greatest, "it is the one that was asked for");
    drv.cuStreamDestroy(stream);

    drv.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -1000);
    drv.cuStreamGetPriority(stream, &priority);
    is_int(priority, greatest, "a priority out of range is clamped");
    drv.cuStreamDestroy(stream);

    is_int(drv.cuStreamGetPriority(NULL, &priority), 0,
           "the legacy stream tells its priority");
    is_int(priority, 0, "the legacy stream has priority 0");
}

static void test_streams_know_their_context(void)
{
    CUcontext got = NULL;

    is_int(drv.cuStreamGetCtx(side, &got), 0, "a stream tells its context");
    ok(got == ctx, "it is the one it was made in");
    got = NULL;
    is_int(drv.cuStreamGetCtx(NULL, &got), 0, "so does the legacy stream");
    ok(got == ctx, "that is the current one");
    is_int(drv.cuStreamQuery(side), 0, "an idle stream is done");
    is_int(drv.cuStreamSynchronize(CU_STREAM_LEGACY), 0,
           "CU_STREAM_LEGACY is a stream");
    is_int(drv.cuStreamSynchronize(CU_STREAM_PER_THREAD), 0,
           "CU_STREAM_PER_THREAD is a stream");
    is_int(launch_store(CU_STREAM_PER_THREAD, word(0), 3), 0,
           "the per-thread stream takes work");
    is_int(word_at(word(0)), 3, "the per-thread stream does its work");
}

static void test_events_that_were_never_recorded(void)
{
    CUevent a = new_event(CU_EVENT_DEFAULT), b = new_event(CU_EVENT_DEFAULT);
    float ms = 0;

    is_int(drv.cuEventQuery(a), 0, "an event never recorded is done");
    is_int(drv.cuEventSynchronize(a), 0, "nobody waits for it");
    is_int(drv.cuStreamWaitEvent(side, a, 0), 0, "a stream may wait for it");
    is_int(drv.cuEventElapsedTime(&ms, a, b), 400,
           "no time lies between events never recorded");
    drv.cuEventDestroy(a);
    drv.cuEventDestroy(b);
}

static void test_events_tell_time(void)
{
    CUevent a = new_event(CU_EVENT_DEFAULT), b = new_event(CU_EVENT_DEFAULT);
    float ms = -1;

    drv.cuEventRecord(a, side);
    drv.cuMemsetD32Async(words, 0, WORDS, side);
    drv.cuEventRecord(b, side);
    is_int(drv.cuEventSynchronize(b), 0, "a recorded event can be waited for");
    is_int(drv.cuEventQuery(a), 0, "what came before it is done, too");
    is_int(drv.cuEventElapsedTime(&ms, a, b), 0, "events tell the time");
    ok(ms > 0, "work takes time");
    is_int(drv.cuEventElapsedTime(&ms, b, a), 0, "in both directions");
    ok(ms < 0, "backwards it is negative");
    drv.cuEventDestroy(a);
    a = new_event(CU_EVENT_DISABLE_TIMING);
    drv.cuEventRecord(a, side);
    drv.cuEventSynchronize(a);
    is_int(drv.cuEventElapsedTime(&ms, a, b), 400,
           "an event made without timing tells no time");
    drv.cuEventDestroy(a);
    drv.cuEventDestroy(b);
}

static void test_events_order_streams(void)
{
    CUevent event = new_event(CU_EVENT_DISABLE_TIMING);

    for (uint32_t i = 0; i < 20; i++) {
        launch_store(side, word(0), i);
        drv.cuEventRecord(event, side);
        drv.cuStreamWaitEvent(other, event, 0);
        drv.cuMemcpyDtoDAsync(word(1), word(0), WORD, other);
        drv.cuEventRecord(event, other);
        drv.cuStreamWaitEvent(side, event, 0);
    }
    is_int(word_at(word(1)), 19, "a wait puts one stream behind another");

    drv.cuEventRecord(event, side);
    is_int(drv.cuEventDestroy(event), 0, "an event in use may be destroyed");
    drv.cuStreamSynchronize(side);
}

static void test_a_wait_means_the_record_before_it(void)
{
    CUevent event = new_event(CU_EVENT_DISABLE_TIMING);

    launch_store(side, word(0), 1);
    drv.cuEventRecord(event, side);
    drv.cuStreamWaitEvent(other, event, 0);
    drv.cuEventRecord(event, blocking); /* changes nothing for `other` */
    drv.cuMemcpyDtoDAsync(word(1), word(0), WORD, other);
    is_int(word_at(word(1)), 1, "recording again does not undo a wait");
    drv.cuEventDestroy(event);
}

static void test_legacy_stream_orders_blocking_ones(void)
{
    CUstream second = new_stream(CU_STREAM_DEFAULT);

    for (uint32_t i = 1; i < 20; i++) {
        launch_store(blocking, word(0), i);
        launch_add(NULL, word(1), word(0));
        launch_store(second, word(0), 100 + i);
        launch_add(CU_STREAM_LEGACY, word(2), word(0));
    }
    drv.cuCtxSynchronize();
    is_int(word_at(word(1)), 190,
           "the legacy stream comes after a blocking stream");
    is_int(word_at(word(2)), 2090,
           "a blocking stream comes after the legacy stream");
    drv.cuStreamDestroy(second);
}

/* What blocks on the legacy stream is all that a query of it waits for. */
static void test_the_legacy_stream_can_be_polled(void)
{
    CUresult code;
    int polls = 0;

    for (uint32_t i = 1; i <= 20; i++) {
        launch_store(blocking, word(3), i);
        launch_store(NULL, word(4), i);
    }
    do {
        code = drv.cuStreamQuery(polls % 2 != 0 ? CU_STREAM_LEGACY : NULL);
    } while (code == CUDA_ERROR_NOT_READY && ++polls < 100000000);
    is_int(code, 0, "the legacy stream is polled until it is done");
    is_int(drv.cuStreamQuery(blocking), 0,
           "and so is what it comes after");
}

static void note(void *user)
{
    *(uint32_t *)user = pinned[2] + 1;
}

static void test_host_functions_run_in_order(void)
{
    uint32_t seen = 0;

    pinned[2] = 0;
    drv.cuMemsetD32Async(word(5), 41, 1, side);
    drv.cuMemcpyDtoHAsync(&pinned[2], word(5), WORD, side);
    is_int(drv.cuLaunchHostFunc(side, note, &seen), 0,
           "a stream takes a host function");
    is_int(drv.cuStreamSynchronize(side), 0, "and runs it");
    is_int(seen, 42, "a host function comes after the work before it");
    is_int(drv.cuLaunchHostFunc(side, NULL, NULL), 1,
           "a host function must not be NULL");
}

static void test_destroying_a_stream_loses_no_work(void)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);

    launch_store(stream, word(7), 70);
    is_int(drv.cuStreamDestroy(stream), 0, "a stream with work is destroyed");
    is_int(word_at(word(7)), 70, "its work is done nevertheless");
}

static void record_without_context(void *arg)
{
    (void)arg;
    drv.cuCtxSetCurrent(NULL);
    is_int(launch_store(side, word(8), 8), 0,
           "a launch on a stream needs no current context");
    is_int(launch_store(NULL, word(8), 9), 201,
           "a launch on the legacy stream does");
}

int main(void)
{
    int status;

    if (!contract_open(&status)) {
        return status;
    }
    test_bad_arguments();
    test_priorities();
    test_streams_know_their_context();
    test_events_that_were_never_recorded();
    test_events_tell_time();
    test_events_order_streams();
    test_a_wait_means_the_record_before_it();
    drv.cuMemsetD8Async(words, 0, WORDS * WORD, NULL);
    drv.cuCtxSynchronize();
    test_legacy_stream_orders_blocking_ones();
    test_the_legacy_stream_can_be_polled();
    test_host_functions_run_in_order();
    test_destroying_a_stream_loses_no_work();
    on_thread(record_without_context, NULL);
    contract_close();
    return done_testing();
}
