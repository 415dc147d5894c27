/*
 * job.c - see job.h.
 *
 * Invariant: the caller and the thread have a reference each, and whoever lets
 * go last frees the job.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "device/job.h"

#include "base/clock.h"
#include "base/thread.h"
#include "device/private.h"

#include <stdlib.h>
#include <string.h>

struct gh_job {
    uint32_t users;
    bool over;
    struct gh_deadline deadline;
    struct gh_device dev;
    gh_job_fn *run;
    unsigned char arg[];
};

static void release(struct gh_job *job)
{
    if (__atomic_sub_fetch(&job->users, 1, __ATOMIC_ACQ_REL) == 0) {
        free(job);
    }
}

/* NCCL leaves a thread with the device that it had, and makes a context for
 * that: so it has the right one from the start. */
static void *run(void *opaque)
{
    struct gh_job *job = opaque;

    (void)gh_device_enter(&job->dev);
    job->run(&job->dev, job->arg);
    __atomic_store_n(&job->over, true, __ATOMIC_RELEASE);
    release(job);
    return NULL;
}

struct gh_job *gh_job_begin(struct gh_device *dev, uint32_t seconds,
                            gh_job_fn *call, const void *arg, size_t bytes)
{
    struct gh_job *job = malloc(sizeof(*job) + bytes);

    if (job != NULL) {
        *job = (struct gh_job){ .users = 2,
                                .deadline = gh_deadline_in(seconds),
                                .dev = *dev,
                                .run = call };
        memcpy(job->arg, arg, bytes);
        if (gh_thread_start(run, job)) {
            return job;
        }
        free(job);
    }
    call(dev, arg);
    return NULL;
}

static bool is_over(const struct gh_job *job)
{
    return __atomic_load_n(&job->over, __ATOMIC_ACQUIRE);
}

bool gh_job_nap(struct gh_job *job)
{
    return job != NULL && !is_over(job) && gh_deadline_back_off(&job->deadline);
}

bool gh_job_end(struct gh_job *job)
{
    bool over;

    if (job == NULL) {
        return true;
    }
    while (gh_job_nap(job)) {
    }
    over = is_over(job);
    release(job);
    return over;
}
