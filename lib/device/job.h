/*
 * job.h - a call that may wait without a limit, waited for with one.
 *
 * The driver frees memory once all work on the device has ended, and NCCL
 * aborts a communicator once no graph holds its operations.  Neither takes a
 * limit.  Such a call gets a thread of its own, which stays behind in it when
 * the time is over.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_DEVICE_JOB_H
#define GH_DEVICE_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gh_device;
struct gh_job;

/* `dev` is a copy, whose context is current: the device may be closed before
 * the call ends. */
typedef void gh_job_fn(struct gh_device *dev, const void *arg);

/* Copies what is at `arg`.  NULL: no thread has started, and the call is
 * over. */
struct gh_job *gh_job_begin(struct gh_device *dev, uint32_t seconds,
                            gh_job_fn *run, const void *arg, size_t bytes);
/* Sleeps a little.  False: the call is over, or its time is. */
bool gh_job_nap(struct gh_job *job);
/* Waits until the call is over, but not longer than `seconds` after it began;
 * false: it is not, and goes on by itself.  `job` is not used any more.  NULL
 * is allowed. */
bool gh_job_end(struct gh_job *job);

#endif
