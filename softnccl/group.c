/*
 * group.c - the calls of a thread since ncclGroupStart().
 *
 * They are issued at the outermost ncclGroupEnd().  The operations of one
 * communicator on one stream form one visit and run together.  A call outside
 * of a group is a group of its own.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softnccl/group.h"

#include "softnccl/match.h"
#include "softnccl/report.h"

#include <stdlib.h>
#include <string.h>

struct asked {
    struct ncclComm *comm;
    CUstream stream;
    softcuda_stream_is is;
    struct item item;
    bool issued;
};

static _Thread_local struct group {
    int depth;
    ncclResult_t error;
    struct asked *asked;
    uint32_t n, room;
    struct job *jobs;
    uint32_t n_jobs, jobs_room;
} group;

void group_start(void)
{
    group.depth++;
}

ncclResult_t group_error(ncclResult_t result)
{
    if (group.error == ncclSuccess) {
        group.error = result;
    }
    return result;
}

/* Room for one more; false when there is no memory. */
static bool grow(void *array_p, uint32_t n, uint32_t *room, size_t each)
{
    void *array, *larger;

    if (n < *room) {
        return true;
    }
    memcpy(&array, array_p, sizeof(array));
    larger = realloc(array, (size_t)(*room != 0 ? *room * 2 : 8) * each);
    if (larger == NULL) {
        return false;
    }
    memcpy(array_p, &larger, sizeof(larger));
    *room = *room != 0 ? *room * 2 : 8;
    return true;
}

ncclResult_t group_add(struct ncclComm *comm, CUstream stream,
                       const struct item *item)
{
    struct asked asked = { comm, stream, { 0, 0 }, *item, false };
    const CUresult code = device->stream(stream, &asked.is);

    if (code != CUDA_SUCCESS) {
        report_error(comm, "the stream answers %d", (int)code);
        return ncclUnhandledCudaError;
    }
    if (asked.is.device != comm->device) {
        report_error(comm, "the stream is of device %d, the communicator of %d",
                     asked.is.device, comm->device);
        return ncclUnhandledCudaError;
    }
    if (!grow(&group.asked, group.n, &group.room, sizeof(asked))) {
        return ncclSystemError;
    }
    comm_ref(comm);
    group.asked[group.n++] = asked;
    return ncclSuccess;
}

ncclResult_t group_add_job(const struct job *job)
{
    if (!grow(&group.jobs, group.n_jobs, &group.jobs_room, sizeof(*job))) {
        return ncclSystemError;
    }
    group.jobs[group.n_jobs++] = *job;
    return ncclSuccess;
}

/* ---- the end ------------------------------------------------------------- */

/* What a rank sends to itself it receives in the same group. */
static bool selves_match(const struct ncclComm *comm)
{
    int balance = 0;

    for (uint32_t i = 0; i < group.n; i++) {
        const struct asked *a = &group.asked[i];

        if (a->comm == comm && a->item.peer == comm->rank) {
            balance += a->item.kind == SEND;
            balance -= a->item.kind == RECV;
        }
    }
    return balance == 0;
}

static ncclResult_t check(void)
{
    for (uint32_t i = 0; i < group.n; i++) {
        struct asked *a = &group.asked[i];

        if (!a->comm->live) {
            report_error(NULL, "a communicator is destroyed in the group");
            return ncclInvalidUsage;
        }
        for (uint32_t j = 0; j < i; j++) {
            const struct asked *b = &group.asked[j];

            /* With one rank NCCL 2.30 does not look. */
            if (a->comm == b->comm && a->is.capture != b->is.capture &&
                a->comm->n > 1) {
                report_error(a->comm, "streams of a communicator in a group "
                                      "are all captured by one graph, or none");
                return ncclInvalidUsage;
            }
        }
        if (!selves_match(a->comm)) {
            report_error(a->comm, "a rank sends to itself what it does not "
                                  "receive in the same group, or receives "
                                  "what it does not send");
            return ncclInvalidUsage;
        }
    }
    return ncclSuccess;
}

/* The first and all others of its communicator and stream. */
static ncclResult_t issue(struct asked *first)
{
    struct call *call = call_new(first->comm, group.n);
    CUresult code;

    if (call == NULL) {
        return ncclSystemError;
    }
    for (struct asked *a = first; a < group.asked + group.n; a++) {
        if (a->comm == first->comm && a->stream == first->stream) {
            call->items[call->n++] = a->item;
            a->issued = true;
        }
    }
    call->base.name = comm_name(call->comm, first->item.kind);
    call->captured = first->is.capture != 0;
    call->comm->captured += call->captured;
    code = device->issue(first->stream, &call->base);
    device->call_drop(&call->base);
    if (code != CUDA_SUCCESS) {
        report_error(first->comm, "the stream answers %d", (int)code);
        return ncclUnhandledCudaError;
    }
    return ncclSuccess;
}

static ncclResult_t issue_all(void)
{
    ncclResult_t result = check();

    for (uint32_t i = 0; i < group.n && result == ncclSuccess; i++) {
        if (!group.asked[i].issued) {
            result = issue(&group.asked[i]);
        }
    }
    return result;
}

/* Those that come together wait after all of them have come. */
static ncclResult_t wait_all(void)
{
    ncclResult_t worst = ncclSuccess;

    for (uint32_t i = 0; i < group.n_jobs; i++) {
        const ncclResult_t result = gather_wait(&group.jobs[i]);

        if (worst == ncclSuccess || worst == ncclInProgress) {
            worst = result != ncclSuccess ? result : worst;
        }
    }
    return worst;
}

ncclResult_t group_end(void)
{
    ncclResult_t result, waited;

    if (group.depth == 0) {
        return ncclInvalidUsage;
    }
    if (--group.depth > 0) {
        return group.error;
    }
    result = group.error;
    if (result == ncclSuccess) {
        result = issue_all();
    }
    waited = wait_all();
    result = result != ncclSuccess ? result : waited;
    for (uint32_t i = 0; i < group.n; i++) {
        comm_drop(group.asked[i].comm);
    }
    free(group.asked);
    free(group.jobs);
    memset(&group, 0, sizeof(group));
    return result;
}
