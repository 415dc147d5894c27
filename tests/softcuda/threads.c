/* Threads issue, capture and wait side by side, each with its own streams,
 * and none of them sees another's work. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/softcuda/controls.h"

#include <pthread.h>

enum {
    THREADS = 4,
    ROUNDS = 200,
    PER_THREAD = 8
};

struct worker {
    pthread_t thread;
    uint32_t first; /* its words */
    CUresult worst;
    uint32_t sum;
};

static void check(struct worker *w, CUresult code)
{
    if (code != CUDA_SUCCESS) {
        w->worst = code;
    }
}

/* a += b, captured and launched once a round, beside an eager c += b. */
static void round_of(struct worker *w, CUstream stream, CUstream second,
                     CUevent event)
{
    CUdeviceptr a = word(w->first), b = word(w->first + 1);
    CUdeviceptr c = word(w->first + 2);
    CUgraphExec exec = NULL;
    CUgraph graph = NULL;

    check(w, begin(stream));
    check(w, launch_add(stream, a, b));
    check(w, drv.cuStreamEndCapture(stream, &graph));
    check(w, drv.cuGraphInstantiateWithFlags(&exec, graph, 0));
    check(w, drv.cuGraphLaunch(exec, stream));
    check(w, drv.cuEventRecord(event, stream));
    check(w, drv.cuStreamWaitEvent(second, event, 0));
    check(w, launch_add(second, c, b));
    check(w, drv.cuEventRecord(event, second));
    check(w, drv.cuStreamWaitEvent(stream, event, 0));
    check(w, drv.cuGraphExecDestroy(exec));
    check(w, drv.cuGraphDestroy(graph));
    check(w, drv.cuStreamSynchronize(stream));
}

static void *work(void *opaque)
{
    struct worker *w = opaque;
    uint32_t got[3] = { 0 };
    CUstream stream, second;
    CUevent event;

    drv.cuCtxSetCurrent(ctx);
    stream = new_stream(CU_STREAM_NON_BLOCKING);
    second = new_stream(CU_STREAM_NON_BLOCKING);
    event = new_event(CU_EVENT_DISABLE_TIMING);
    check(w, drv.cuMemsetD32Async(word(w->first), 0, PER_THREAD, stream));
    check(w, drv.cuMemsetD32Async(word(w->first + 1), 1, 1, stream));
    for (int i = 0; i < ROUNDS; i++) {
        round_of(w, stream, second, event);
    }
    check(w, drv.cuMemcpyDtoHAsync(got, word(w->first), sizeof(got), stream));
    check(w, drv.cuStreamSynchronize(stream));
    w->sum = got[0] + got[2];
    check(w, drv.cuEventDestroy(event));
    check(w, drv.cuStreamDestroy(second));
    check(w, drv.cuStreamDestroy(stream));
    return NULL;
}

static void test_threads_do_not_disturb_each_other(int seed)
{
    struct worker workers[THREADS] = { 0 };

    configure("SEED=%d", seed);
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i].first = i * PER_THREAD;
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0) {
            ok(false, "a thread starts");
            return;
        }
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        is_int(workers[i].worst, 0, "every call of thread %u works", i);
        is_int(workers[i].sum, 2 * ROUNDS, "thread %u gets its own sums", i);
    }
    is_int(races(), 0, "threads with streams of their own do not race");
}

static void use_own_stream(void *cell)
{
    launch_store(CU_STREAM_PER_THREAD, *(CUdeviceptr *)cell, 7);
}

static void test_per_thread_streams_are_several(void)
{
    CUdeviceptr cell = word(0);

    configure("SEED=0");
    launch_store(CU_STREAM_PER_THREAD, cell, 6);
    on_thread(use_own_stream, &cell);
    drv.cuCtxSynchronize();
    is_int(races(), 1, "each thread has a per-thread stream of its own");
    configure("SEED=0");
}

int main(void)
{
    int status;

    if (!controls_open(&status)) {
        return status;
    }
    for (int seed = 0; seed < 4; seed++) {
        test_threads_do_not_disturb_each_other(seed);
    }
    test_per_thread_streams_are_several();
    contract_close();
    return done_testing();
}
