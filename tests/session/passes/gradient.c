/*
 * gh_gradient_add() launches its kernel on the stream that it is given, also in
 * a capture, and refuses what the kernel does not take.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/toy.h"
#include "tap/tap.h"

#include <string.h>

#define BYTES 64u

static struct toy toy;
static gh_error err;
static CUdeviceptr at; /* the sum, the gradient, the word */

static bool start(const char *const *environment)
{
    const struct toy_options options = { .layers = 1,
                                         .elems = 8,
                                         .environment = environment };

    return toy_start(&toy, &options, NULL) &&
           ok(toy.drv.cuMemAlloc(&at, 3 * BYTES) == CUDA_SUCCESS,
              "there is memory");
}

static gh_gradient some(void)
{
    return (gh_gradient){ .struct_size = sizeof(gh_gradient),
                          .number = GH_NUMBER_F32,
                          .sum = (void *)(uintptr_t)at,
                          .gradient = (void *)(uintptr_t)(at + BYTES),
                          .n = BYTES / 4,
                          .first = (void *)(uintptr_t)(at + 2 * BYTES) };
}

static void set(CUdeviceptr address, float value, uint32_t n)
{
    unsigned bits;

    memcpy(&bits, &value, sizeof(bits));
    toy.drv.cuMemsetD32Async(address, bits, n, toy.streams[0]);
}

static float read_sum(void)
{
    float found[BYTES / 4] = { 0 };

    toy.drv.cuStreamSynchronize(toy.streams[0]);
    toy.drv.cuMemcpyDtoH(found, at, BYTES);
    return found[0] == found[BYTES / 4 - 1] ? found[0] : -1;
}

static void test_it_runs(void)
{
    static const char *const quiet[] = { "GRAPHHOOKS_LOG=off", NULL };
    gh_gradient what;
    CUgraphExec exec;
    CUgraph graph;

    if (!start(quiet)) {
        return;
    }
    what = some();
    set(at, 1, BYTES / 4);
    set(at + BYTES, 2, BYTES / 4);
    set(at + 2 * BYTES, 0, 1);
    is_status(gh_gradient_add(toy.session, &what, toy.streams[0], &err), GH_OK,
              &err, "a gradient is added");
    ok(read_sum() == 3, "to the sum");
    toy.drv.cuMemsetD32Async(at + 2 * BYTES, 1, 1, toy.streams[0]);
    is_status(gh_gradient_add(toy.session, &what, toy.streams[0], &err), GH_OK,
              &err, "a first one");
    ok(read_sum() == 2, "is the sum");

    toy.drv.cuStreamBeginCapture(toy.streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL);
    is_status(gh_gradient_add(toy.session, &what, toy.streams[0], &err), GH_OK,
              &err, "and in a capture");
    ok(toy.drv.cuStreamEndCapture(toy.streams[0], &graph) == CUDA_SUCCESS,
       "which goes on");
    toy.drv.cuGraphInstantiateWithFlags(&exec, graph, 0);
    set(at + 2 * BYTES, 0, 1);
    toy.drv.cuGraphLaunch(exec, toy.streams[0]);
    ok(read_sum() == 4, "the graph reads the word that is there");
    toy.drv.cuGraphExecDestroy(exec);
    toy.drv.cuGraphDestroy(graph);
    toy.drv.cuMemFree(at);
    toy_close(&toy);
}

static void refuses(gh_gradient what, gh_status expected, const char *words)
{
    const gh_status status =
        gh_gradient_add(toy.session, &what, toy.streams[0], &err);

    is_status(status, expected, &err, "refused");
    ok(strstr(err.text, words) != NULL, "as: %s", err.text);
}

static void test_refusals(void)
{
    static const char *const quiet[] = { "GRAPHHOOKS_LOG=off", NULL };
    gh_gradient what;

    is_status(gh_gradient_add(NULL, NULL, NULL, &err), GH_ERR_INVALID, &err,
              "no session");
    if (!start(quiet)) {
        return;
    }
    is_status(gh_gradient_add(toy.session, NULL, NULL, &err), GH_ERR_INVALID,
              &err, "no gradient");
    what = some();
    what.struct_size = 8;
    refuses(what, GH_ERR_ABI, "gh_gradient");
    what = some();
    what.number = 0;
    refuses(what, GH_ERR_INVALID, "gh_gradient.number is 0");
    what.number = 4;
    refuses(what, GH_ERR_INVALID, "gh_gradient.number is 4");
    what = some();
    what.n--;
    refuses(what, GH_ERR_INVALID, "n is 15");
    what.n = UINT64_C(1) << 62;
    refuses(what, GH_ERR_INVALID, "n is 4611686018427387904");
    what = some();
    what.sum = (char *)what.sum + 8;
    refuses(what, GH_ERR_INVALID, "multiples of 16");
    what = some();
    what.gradient = (const char *)what.gradient + 4;
    refuses(what, GH_ERR_INVALID, "multiples of 16");
    what = some();
    what.first = (const void *)((const char *)what.first + 2);
    refuses(what, GH_ERR_INVALID, "the last one of 4");
    what = some();
    what.sum = NULL;
    refuses(what, GH_ERR_INVALID, "sum");
    what = some();
    what.gradient = NULL;
    refuses(what, GH_ERR_INVALID, "gradient");
    what = some();
    what.first = NULL;
    refuses(what, GH_ERR_INVALID, "first");
    what = some();
    what.number = GH_NUMBER_BF16;
    what.n = 0;
    is_status(gh_gradient_add(toy.session, &what, toy.streams[0], &err), GH_OK,
              &err, "nothing is nothing to do");
    toy.drv.cuMemFree(at);
    toy_close(&toy);
}

static void test_no_device(void)
{
    static const char *const disabled[] = { "GRAPHHOOKS_LOG=off",
                                            "GRAPHHOOKS_ENABLE=0",
                                            "GRAPHHOOKS_DRIVER=/nonexistent",
                                            NULL };

    if (!start(disabled)) {
        return;
    }
    refuses(some(), GH_ERR_STATE, "the session is disabled");
    toy.drv.cuMemFree(at);
    toy_close(&toy);
}

int main(void)
{
    const char *reason;

    if (!toy_probe(&toy, &reason)) {
        return skip_all("%s", reason);
    }
    test_it_runs();
    test_refusals();
    test_no_device();
    return done_testing();
}
