/*
 * split.c - see split.h.
 *
 * Whether ncclCommSplit returns before all ranks have come is a matter of the
 * host's communicator: one that blocks, as most do, keeps the call until then,
 * or until the host aborts it.  So the call has a thread, which alone stays in
 * it when the time is over.
 *
 * With a communicator that does not block the call returns at once, and NCCL
 * writes the new communicator later.  The place for it stays until then.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "comm/split.h"

#include "base/error.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>

/* It begins as CALLS.  Who moves it to the other state second, the thread or
 * the caller, frees it. */
enum state {
    CALLS,
    RETURNED, /* the thread does not use it any more */
    LEFT      /* nor does the caller */
};

struct gh_split {
    struct gh_split *next; /* of those that are kept */
    struct gh_nccl *nccl;
    struct gh_device *dev; /* the caller's, until `entered` */
    struct ncclComm *parent;
    struct ncclComm *own; /* NCCL writes it */
    int rank;
    sem_t entered;
    enum state state;
    gh_status status; /* of the call; once it has returned */
    gh_error err;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gh_split *kept;

static bool move_to(struct gh_split *split, enum state state)
{
    enum state calls = CALLS;

    return __atomic_compare_exchange_n(&split->state, &calls, state, false,
                                       __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

static struct ncclComm *own_of(const struct gh_split *split)
{
    return __atomic_load_n(&split->own, __ATOMIC_ACQUIRE);
}

/* ---- an end -------------------------------------------------------------- */

/* NCCL does not say when it has written a place, if the host has aborted the
 * parent meanwhile: so this stays for the life of the process. */
static void keep(struct gh_split *split)
{
    pthread_mutex_lock(&lock);
    split->next = kept;
    kept = split;
    pthread_mutex_unlock(&lock);
}

static void release(struct gh_split *split, const struct ncclComm *own)
{
    gh_nccl_close(split->nccl);
    sem_destroy(&split->entered);
    if (split->status == GH_OK && own == NULL) {
        keep(split);
    } else {
        free(split);
    }
}

/* Nobody waits for it any more. */
static void throw_away(struct gh_split *split)
{
    struct ncclComm *own = own_of(split);

    gh_nccl_abort(split->nccl, own);
    release(split, own);
}

/* ---- the call ------------------------------------------------------------ */

static void call(struct gh_split *split)
{
    split->status = gh_nccl_split(split->nccl, split->parent, split->rank,
                                  &split->own, &split->err);
}

/* NCCL leaves a thread with the device that it had, and makes a context for
 * that: so it has the right one from the start. */
static void *run(void *opaque)
{
    struct gh_split *split = opaque;

    (void)gh_device_enter(split->dev);
    sem_post(&split->entered);
    call(split);
    if (!move_to(split, RETURNED)) {
        throw_away(split);
    }
    return NULL;
}

/* The handlers of the host's signals run on threads that it knows. */
static bool start(struct gh_split *split)
{
    sigset_t all, before;
    pthread_t thread;
    bool started;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    started = pthread_create(&thread, NULL, run, split) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (started) {
        pthread_detach(thread);
    }
    return started;
}

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
    if (start(split)) {
        while (sem_wait(&split->entered) != 0) {
        }
    } else {
        call(split);
        split->state = RETURNED;
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
    if (__atomic_load_n(&split->state, __ATOMIC_ACQUIRE) != RETURNED) {
        return GH_OK;
    }
    if (split->status != GH_OK) {
        return gh_fail(err, split->status, "%s", split->err.text);
    }
    status = gh_nccl_has_split(split->nccl, split->parent, &done, err);
    return status == GH_OK && done
               ? gh_nccl_is_over(split->nccl, own_of(split), over_p, err)
               : status;
}

struct ncclComm *gh_split_end(struct gh_split *split)
{
    struct ncclComm *own;

    if (split == NULL || move_to(split, LEFT)) {
        return NULL;
    }
    own = own_of(split);
    release(split, own);
    return own;
}
