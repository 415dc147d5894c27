/*
 * mischief.c - what a badly behaved host does inside a pass.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/toy/shared.h"

#include <pthread.h>

void toy_do_mischief(struct toy *toy, const gh_pass *pass, struct toy_work *w)
{
    const struct driver *drv = &toy->drv;
    CUdeviceptr memory = 0;

    switch (toy->mischief) {
    case TOY_SYNC:
        drv->cuStreamSynchronize(w->stream);
        break;
    case TOY_ALLOC:
        if (drv->cuMemAlloc(&memory, 256) == CUDA_SUCCESS) {
            drv->cuMemFree(memory);
        }
        break;
    case TOY_LEGACY:
        drv->cuMemsetD8Async(toy_feed(toy, 2, 0), 0, 4, NULL);
        break;
    case TOY_UNJOINED:
        drv->cuEventRecord(toy->fork, w->stream);
        drv->cuStreamWaitEvent(toy->side, toy->fork, 0);
        drv->cuMemsetD8Async(toy_feed(toy, 2, 0), 0, 4, toy->side);
        break;
    case TOY_OUTSIDE:
        drv->cuEventRecord(toy->fork, toy->side);
        drv->cuStreamWaitEvent(w->stream, toy->fork, 0);
        break;
    case TOY_ELSEWHERE: /* where a copy of the input is not in order */
        w->stream = toy->side;
        w->input = (CUdeviceptr)(uintptr_t)pass->inputs[0].address;
        break;
    default:
        break;
    }
    toy->mischiefs_done++;
}

struct exit_call {
    struct toy *toy;
    const gh_pass *pass;
    gh_status status;
};

static void *exit_elsewhere(void *user)
{
    struct exit_call *e = user;

    e->toy->drv.cuCtxSetCurrent(e->toy->ctx);
    e->status = gh_layer_exit(e->toy->session, e->pass, &e->toy->err);
    return NULL;
}

gh_status toy_exit(struct toy *toy, const gh_pass *pass, bool other_thread)
{
    struct exit_call e = { toy, pass, GH_OK };
    pthread_t thread;

    if (!other_thread) {
        return gh_layer_exit(toy->session, pass, &toy->err);
    }
    pthread_create(&thread, NULL, exit_elsewhere, &e);
    pthread_join(thread, NULL);
    return e.status;
}
