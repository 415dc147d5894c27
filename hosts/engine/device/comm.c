/*
 * comm.c - see comm.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE /* pthread_timedjoin_np */
#include "device/comm.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    ABORT_S = 2 /* for NCCL to end what it has under way */
};

/* Notes a failure, with NCCL's text. */
static int check(const struct comm *comm, const char *entry,
                 ncclResult_t result)
{
    const char *said, *more;

    if (result == ncclSuccess) {
        return 0;
    }
    said = comm->nccl->ncclGetErrorString(result);
    more = comm->nccl->ncclGetLastError(comm->handle);
    return device_fail(comm->dev, "%s failed with %d (%s)%s%.150s", entry,
                       result, said == NULL ? "?" : said,
                       more == NULL || *more == '\0' ? "" : ": ",
                       more == NULL ? "" : more);
}

static int refuse(const struct comm *comm)
{
    return device_fail(comm->dev, "the ranks have parted");
}

/* Calls NCCL unless something has failed already, or the communicator was
 * aborted. */
#define COMM_CALL(comm, entry, ...) \
    ((comm)->dev->code != CUDA_SUCCESS \
         ? -1 \
         : (comm)->gone \
         ? refuse(comm) \
         : check(comm, #entry, (comm)->nccl->entry(__VA_ARGS__)))

int comm_init(struct comm *comm, struct device *dev, const struct nccl *nccl,
              const ncclUniqueId *id, int rank, int n)
{
    *comm = (struct comm){ .dev = dev, .nccl = nccl, .rank = rank, .n = n };
    return COMM_CALL(comm, ncclCommInitRank, &comm->handle, n, *id, rank);
}

int comm_split(struct comm *comm, const struct comm *parent, int color)
{
    struct comm made = { .dev = parent->dev, .nccl = parent->nccl };

    if (COMM_CALL(parent, ncclCommSplit, parent->handle, color, parent->rank,
                  &made.handle, NULL) != 0) {
        return -1;
    }
    if (made.handle == NULL) { /* of no color */
        return 0;
    }
    *comm = made;
    COMM_CALL(comm, ncclCommUserRank, comm->handle, &comm->rank);
    return COMM_CALL(comm, ncclCommCount, comm->handle, &comm->n);
}

void comm_destroy(struct comm *comm)
{
    if (comm->handle != NULL) {
        (void)comm->nccl->ncclCommDestroy(comm->handle);
    }
    memset(comm, 0, sizeof(*comm));
}

static void *run_abort(void *opaque)
{
    struct comm *comm = opaque;
    const struct nccl *nccl = comm->nccl;
    ncclComm_t handle = comm->handle;

    comm->gone = true;
    comm->handle = NULL;
    (void)nccl->ncclCommAbort(handle);
    return NULL;
}

void comm_abort(struct comm *const *comms, int n)
{
    pthread_t threads[COMM_MOST];
    struct timespec until;
    int started = 0;

    for (int i = 0; i < n && i < COMM_MOST; i++) {
        if (comms[i]->handle == NULL) {
            continue;
        }
        if (pthread_create(&threads[started], NULL, run_abort, comms[i]) == 0) {
            started++;
        } else {
            run_abort(comms[i]);
        }
    }
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ABORT_S;
    while (started > 0) {
        if (pthread_timedjoin_np(threads[--started], NULL, &until) != 0) {
            pthread_detach(threads[started]); /* until the process ends */
        }
    }
}

void comm_sum(const struct comm *comm, float *data, size_t count,
              CUstream stream)
{
    COMM_CALL(comm, ncclAllReduce, data, data, count, ncclFloat32, ncclSum,
              comm->handle, stream);
}

void comm_gather(const struct comm *comm, const float *mine, float *all,
                 size_t count, CUstream stream)
{
    COMM_CALL(comm, ncclAllGather, mine, all, count, ncclFloat32, comm->handle,
              stream);
}

void comm_gather_bytes(const struct comm *comm, const void *mine, void *all,
                       size_t count, CUstream stream)
{
    COMM_CALL(comm, ncclAllGather, mine, all, count, ncclUint8, comm->handle,
              stream);
}

void comm_scatter(const struct comm *comm, const float *all, float *mine,
                  size_t count, CUstream stream)
{
    COMM_CALL(comm, ncclReduceScatter, all, mine, count, ncclFloat32, ncclSum,
              comm->handle, stream);
}

void comm_begin(const struct comm *comm)
{
    COMM_CALL(comm, ncclGroupStart);
}

void comm_send(const struct comm *comm, const float *data, size_t count,
               int to, CUstream stream)
{
    if (count > 0) {
        COMM_CALL(comm, ncclSend, data, count, ncclFloat32, to, comm->handle,
                  stream);
    }
}

void comm_receive(const struct comm *comm, float *data, size_t count, int from,
                  CUstream stream)
{
    if (count > 0) {
        COMM_CALL(comm, ncclRecv, data, count, ncclFloat32, from, comm->handle,
                  stream);
    }
}

void comm_end(const struct comm *comm)
{
    COMM_CALL(comm, ncclGroupEnd);
}

void comm_pass_on(const struct comm *comm, const float *send, float *recv,
                  size_t count, CUstream stream)
{
    const int next = (comm->rank + 1) % comm->n;
    const int before = (comm->rank + comm->n - 1) % comm->n;

    comm_begin(comm);
    comm_send(comm, send, count, next, stream);
    comm_receive(comm, recv, count, before, stream);
    comm_end(comm);
}

/* How long to poll without sleeping.  A sleep is longer than most layers, and
 * in each of these the counts of tokens are waited for. */
#define SPIN_S 0.002

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Asks for an error that no call has returned, from NCCL's own threads. */
static int check_async(const struct comm *comm)
{
    ncclResult_t result = ncclSuccess;

    if (COMM_CALL(comm, ncclCommGetAsyncError, comm->handle, &result) != 0) {
        return -1;
    }
    return result == ncclInProgress
               ? 0
               : check(comm, "an operation between ranks", result);
}

/* What a poll waits for: an event, or else a stream.  `what` begins the
 * sentence of a failure. */
struct polled {
    CUstream stream;
    CUevent event;
    const char *what;
};

static CUresult query(const struct device *dev, const struct polled *polled)
{
    return polled->event != NULL ? dev->drv.cuEventQuery(polled->event)
                                 : dev->drv.cuStreamQuery(polled->stream);
}

static int check_lost(const struct comm *comm, const struct comm_watch *watch,
                      const struct polled *polled)
{
    char why[200];

    return watch->lost(watch->user, why, sizeof(why))
               ? device_fail(comm->dev, "%s%s", polled->what, why)
               : 0;
}

/* Puts `what` before the sentence of a failure.  Returns -1. */
static int say_first(struct device *dev, const char *what)
{
    char said[sizeof(dev->error)];

    memcpy(said, dev->error, sizeof(said));
    snprintf(dev->error, sizeof(dev->error), "%.120s%.130s", what, said);
    return -1;
}

/* Polls, because a driver's own wait does not end while another rank is
 * missing. */
static int poll_for(const struct comm *comm, const struct polled *polled,
                    const struct comm_watch *watch)
{
    const struct timespec nap = { .tv_nsec = 20000 };
    const double start = seconds();
    struct device *dev = comm->dev;
    CUresult code;

    while ((code = query(dev, polled)) == CUDA_ERROR_NOT_READY) {
        if (check_lost(comm, watch, polled) != 0) {
            return -1;
        }
        if (check_async(comm) != 0) {
            return say_first(dev, polled->what);
        }
        if (seconds() - start > watch->limit_s) {
            return device_fail(dev,
                               "%sanother rank has not come for %d seconds; "
                               "see what became of it",
                               polled->what, watch->limit_s);
        }
        if (seconds() - start > SPIN_S) {
            nanosleep(&nap, NULL);
        }
    }
    return device_check(
        dev, polled->event != NULL ? "cuEventQuery" : "cuStreamQuery", code);
}

int comm_wait(const struct comm *comm, CUevent event,
              const struct comm_watch *watch, const char *what)
{
    const struct polled polled = { .event = event, .what = what };

    if (comm->dev->code != CUDA_SUCCESS || poll_for(comm, &polled, watch) != 0) {
        return -1;
    }
    /* A rank tells that it has failed before it ends what waits for it. */
    return check_lost(comm, watch, &polled);
}

int comm_synchronize(const struct comm *comm, CUstream stream,
                     const struct comm_watch *watch)
{
    const struct polled polled = { .stream = stream, .what = "" };
    int status;

    if (comm->dev->code != CUDA_SUCCESS) {
        return -1;
    }
    /* softnccl ends waits that can never end */
    status = comm->dev->soft ? device_synchronize(comm->dev, stream)
                             : poll_for(comm, &polled, watch);
    return status == 0 ? check_async(comm) : -1;
}
