/*
 * by_hand.c - passes made one by one.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/by_hand.h"

#include "tap/tap.h"

#include <stdio.h>
#include <string.h>

const char *const quiet[] = { "GRAPHHOOKS_LOG=off", NULL };
const char *const checked[] = { "GRAPHHOOKS_LOG=off",
                                "GRAPHHOOKS_CHECK=bitwise", NULL };
struct toy toy;
gh_error err;

const struct io no_io;

bool start(struct toy_options options)
{
    options.elems = 64;
    options.layers = options.layers == 0 ? 1 : options.layers;
    options.streams = TOY_STREAMS;
    if (options.environment == NULL) {
        options.environment = quiet;
    }
    if (!toy_start(&toy, &options, "SEED=0 RACES=1")) {
        return false;
    }
    gh_iteration_end(toy.session, NULL);
    return true;
}

gh_buffer buffer(uint32_t i, uint64_t bytes, uint32_t flags)
{
    return (gh_buffer){ (void *)(uintptr_t)(toy.memory + 1024 * (i + 1)), bytes,
                        flags, 0 };
}

gh_pass a_pass(uint32_t segment, gh_direction direction, uint32_t m,
               CUstream stream, const struct io *io)
{
    return (gh_pass){ .struct_size = sizeof(gh_pass),
                      .segment = segment,
                      .direction = direction,
                      .microbatch = m,
                      .n_inputs = io->n_inputs,
                      .n_outputs = io->n_outputs,
                      .stream = stream,
                      .inputs = io->inputs,
                      .outputs = io->outputs };
}

void work(const gh_decision *d, const struct io *io)
{
    if (d->slot != GH_SLOT_NONE) {
        toy.drv.cuMemsetD32Async(toy.memory + 64 * d->slot, 1, 16, d->stream);
    }
    for (uint32_t i = 0; i < io->n_outputs; i++) {
        toy.drv.cuMemsetD32Async((uintptr_t)io->outputs[i].address, io->value,
                                 io->outputs[i].bytes / 4, d->stream);
    }
}

gh_status pass_once(const gh_pass *pass, const struct io *io, gh_decision *d)
{
    gh_status status;

    *d = (gh_decision){ .struct_size = sizeof(*d) };
    status = gh_layer_enter(toy.session, pass, d, &err);
    if (status != GH_OK) {
        d->action = UINT32_MAX;
        d->slot = GH_SLOT_NONE;
        return status;
    }
    if (d->action == GH_ACTION_RECORD ||
        (d->action == GH_ACTION_RUN && (pass->flags & GH_PASS_PREPARE) == 0)) {
        work(d, io);
    }
    if (d->action == GH_ACTION_REPLAYED &&
        (pass->flags & GH_PASS_NO_EXIT) != 0) {
        return GH_OK;
    }
    return gh_layer_exit(toy.session, pass, &err);
}

gh_decision run_with(uint32_t segment, gh_direction direction, uint32_t m,
                     CUstream stream, const struct io *io)
{
    gh_pass pass = a_pass(segment, direction, m, stream, io);
    gh_decision d;
    gh_status status;

    do {
        status = pass_once(&pass, io, &d);
    } while (status == GH_RERUN);
    return d;
}

gh_decision run(uint32_t segment, gh_direction direction, uint32_t m,
                CUstream stream)
{
    return run_with(segment, direction, m, stream, &no_io);
}

void run_both(uint32_t m, CUstream stream)
{
    run(0, GH_FORWARD, m, stream);
    run(0, GH_BACKWARD, m, stream);
}

void go_over(CUstream from, CUstream to)
{
    toy.drv.cuEventRecord(toy.fork, from);
    toy.drv.cuStreamWaitEvent(to, toy.fork, 0);
}

void go_astray(CUstream stream)
{
    go_over(stream, toy.side);
    toy.drv.cuMemsetD8Async(toy.memory + 768, 0, 4, toy.side);
}

CUresult end_capture(CUstream stream)
{
    CUgraph graph = NULL;
    const CUresult result = toy.drv.cuStreamEndCapture(stream, &graph);

    toy.drv.cuGraphDestroy(graph);
    return result;
}

uint32_t read_at(const gh_buffer *at)
{
    uint32_t value = 0;

    toy.drv.cuCtxSynchronize();
    toy.drv.cuMemcpyDtoH(&value, (uintptr_t)at->address, sizeof(value));
    return value;
}

uint64_t calls_of(const char *entry)
{
    return toy_calls(&toy, entry);
}

gh_status begin_capture(void *user, void *stream)
{
    (void)user;
    return toy.drv.cuStreamBeginCapture(
               stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == CUDA_SUCCESS
               ? GH_OK
               : GH_ERR_DEVICE;
}

gh_status lend(void *user, uint64_t bytes, void **address_p)
{
    CUdeviceptr address = 0;

    (void)user;
    if (toy.drv.cuMemAlloc(&address, bytes) != CUDA_SUCCESS) {
        return GH_ERR_NO_MEMORY;
    }
    *address_p = (void *)(uintptr_t)address;
    return GH_OK;
}

void reuse(void *user, void *address, uint64_t bytes)
{
    (void)user;
    toy.drv.cuMemsetD8Async((uintptr_t)address, 0xff, bytes, toy.side);
}
