/*
 * split.c - see split.h.
 *
 * Whether ncclCommSplit returns before all ranks have come is a matter of the
 * host's communicator: one that blocks, as most do, keeps the call until then,
 * or until the host aborts it.  So the call has a thread, which alone stays in
 * it when the time is over.
 *
 * With a communicator that does not block the call returns at once, and NCCL
 * writes the new communicator later.
 *
 * The thread lives until the caller has the communicator.  If the caller does
 * not take it, the thread waits for what NCCL still writes, and aborts that.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "comm/split.h"

#include "base/error.h"
#include "base/thread.h"

#include <semaphore.h>
#include <stdlib.h>
#include <time.h>

#define NAP_NS 20000000

struct gh_split {
    struct gh_nccl *nccl;
    struct gh_device *dev; /* the caller's, until `entered` */
    struct ncclComm *parent;
    struct ncclComm *lib_comm; /* NCCL writes it */
    int rank;
    bool has_thread;      /* which frees it */
    bool returned;        /* the call has */
    bool taken;           /* `lib_comm` is the caller's, once it has `ended` */
    sem_t entered, ended; /* posted by the thread; by the caller */
    gh_status status;     /* of the call */
    gh_error err;
};

static struct ncclComm *lib_comm_of(const struct gh_split *split)
{
    return __atomic_load_n(&split->lib_comm, __ATOMIC_ACQUIRE);
}

static void wait_for(sem_t *sem)
{
    while (sem_wait(sem) != 0) {
    }
}

/* ---- the call ------------------------------------------------------------ */

static void call(struct gh_split *split)
{
    split->status = gh_nccl_split(split->nccl, split->parent, split->rank,
                                  &split->lib_comm, &split->err);
    __atomic_store_n(&split->returned, true, __ATOMIC_RELEASE);
}

static void release(struct gh_split *split)
{
    gh_nccl_close(split->nccl);
    sem_destroy(&split->entered);
    sem_destroy(&split->ended);
    free(split);
}

/* NCCL writes the handle also when the host has aborted the parent. */
static void throw_away(struct gh_split *split)
{
    const struct timespec nap = { .tv_nsec = NAP_NS };
    bool over = false;

    while (split->status == GH_OK && lib_comm_of(split) == NULL) {
        nanosleep(&nap, NULL);
    }
    while (split->status == GH_OK && !over &&
           gh_nccl_is_over(split->nccl, lib_comm_of(split), &over, NULL) ==
               GH_OK) {
        nanosleep(&nap, NULL);
    }
    gh_nccl_abort(split->nccl, lib_comm_of(split));
}

/* NCCL leaves a thread with the device that it had, and makes a context for
 * that: so it has the right one from the start. */
static void *run(void *opaque)
{
    struct gh_split *split = opaque;

    (void)gh_device_enter(split->dev);
    sem_post(&split->entered);
    call(split);
    wait_for(&split->ended);
    if (!split->taken) {
        throw_away(split);
    }
    release(split);
    return NULL;
}

/* ---- the caller ---------------------------------------------------------- */

gh_status gh_split_begin(struct gh_nccl *nccl, struct gh_device *dev,
                         struct ncclComm *parent, int rank,
                         struct gh_split **split_p, gh_error *err)
{
    struct gh_split *split = calloc(1, sizeof(*split));

    if (split == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a split");
    }
    split->nccl = gh_nccl_share(nccl);
    split->dev = dev;
    split->parent = parent;
    split->rank = rank;
    sem_init(&split->entered, 0, 0);
    sem_init(&split->ended, 0, 0);
    split->has_thread = gh_thread_start(run, split);
    if (split->has_thread) {
        wait_for(&split->entered);
    } else {
        call(split);
    }
    *split_p = split;
    return GH_OK;
}

gh_status gh_split_is_over(const struct gh_split *split, bool *over_p,
                           gh_error *err)
{
    bool done = false;
    gh_status status;

    *over_p = false;
    if (!__atomic_load_n(&split->returned, __ATOMIC_ACQUIRE)) {
        return GH_OK;
    }
    if (split->status != GH_OK) {
        return gh_fail(err, split->status, "%s", split->err.text);
    }
    status = gh_nccl_has_split(split->nccl, split->parent, &done, err);
    return status == GH_OK && done
               ? gh_nccl_is_over(split->nccl, lib_comm_of(split), over_p, err)
               : status;
}

struct ncclComm *gh_split_end(struct gh_split *split)
{
    struct ncclComm *lib_comm = NULL;

    if (split == NULL) {
        return NULL;
    }
    if (__atomic_load_n(&split->returned, __ATOMIC_ACQUIRE)) {
        lib_comm = lib_comm_of(split);
    }
    split->taken = lib_comm != NULL;
    if (split->has_thread) {
        sem_post(&split->ended);
    } else if (split->taken || split->status != GH_OK) {
        release(split);
    } /* otherwise NCCL still writes to it, and nobody sees when */
    return lib_comm;
}
