/*
 * A graph keeps the priorities of the streams that it was recorded on,
 * whichever stream it is replayed on.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/by_hand.h"
#include "tap/tap.h"

/* How many kernels of one pass, which launches one on the pass's stream and
 * one on `beside`, if any, were issued at a priority. */
static uint64_t prioritized(uint32_t m, CUstream stream, CUstream beside,
                            gh_action action, const char *text)
{
    const uint64_t before = toy_counts(&toy).prioritized;
    CUdeviceptr d = toy.memory, a = toy.memory + 64, b = toy.memory + 128;
    uint32_t n = 4;
    void *params[] = { &d, &a, &b, &n };
    gh_pass pass = a_pass(0, GH_FORWARD, m, stream, &no_io);
    gh_decision decision = { .struct_size = sizeof(decision) };

    gh_layer_enter(toy.session, &pass, &decision, &err);
    is_int(decision.action, action, "%s", text);
    if (decision.action != GH_ACTION_REPLAYED) {
        toy.drv.cuLaunchKernel(toy.add, 1, 1, 1, 4, 1, 1, 0, decision.stream,
                               params, NULL);
    }
    if (decision.action != GH_ACTION_REPLAYED && beside != NULL) {
        toy.drv.cuEventRecord(toy.fork, decision.stream);
        toy.drv.cuStreamWaitEvent(beside, toy.fork, 0);
        toy.drv.cuLaunchKernel(toy.add, 1, 1, 1, 4, 1, 1, 0, beside, params,
                               NULL);
        toy.drv.cuEventRecord(toy.fork, beside);
        toy.drv.cuStreamWaitEvent(decision.stream, toy.fork, 0);
    }
    is_status(gh_layer_exit(toy.session, &pass, &err), GH_OK, &err,
              "and ends well");
    run(0, GH_BACKWARD, m, stream);
    toy.drv.cuCtxSynchronize();
    return toy_counts(&toy).prioritized - before;
}

static CUstream an_urgent_stream(void)
{
    CUstream stream = NULL;
    int least = 0, greatest = 0;

    toy.drv.cuCtxGetStreamPriorityRange(&least, &greatest);
    is_int(toy.drv.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING,
                                              greatest),
           CUDA_SUCCESS, "there is a stream of the greatest priority");
    return stream;
}

static void test_a_stream_beside_the_pass(void)
{
    CUstream urgent;

    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    urgent = an_urgent_stream();
    is_int(prioritized(0, toy.streams[0], urgent, GH_ACTION_RECORD,
                       "a pass that forks to a prioritized stream is "
                       "recorded"),
           1, "its first launch has one kernel of that priority");
    is_int(prioritized(1, toy.streams[0], urgent, GH_ACTION_REPLAYED,
                       "the next one is replayed"),
           1, "and has the same");
    is_int(toy_races(&toy), 0, "without a race");
    toy.drv.cuStreamDestroy(urgent);
    toy_close(&toy);
}

static void test_a_pass_that_moves_to_another_stream(void)
{
    CUstream urgent;

    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    urgent = an_urgent_stream();
    is_int(prioritized(0, urgent, NULL, GH_ACTION_RECORD,
                       "a pass on a prioritized stream is recorded"),
           1, "and launched there, at its priority");
    is_int(prioritized(1, toy.streams[0], NULL, GH_ACTION_REPLAYED,
                       "on a plain stream it is replayed"),
           1, "at the priority that it was recorded with");
    toy.drv.cuStreamDestroy(urgent);
    toy_close(&toy);
}

int main(void)
{
    int status;

    if (!toy_probe_soft(&status)) {
        return status;
    }
    test_a_stream_beside_the_pass();
    test_a_pass_that_moves_to_another_stream();
    return done_testing();
}
