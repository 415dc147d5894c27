/*
 * comms.c - communicators, as a program makes, asks and destroys them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softnccl/enter.h"
#include "softnccl/gather.h"
#include "softnccl/group.h"
#include "softnccl/match.h"
#include "softnccl/report.h"
#include "softnccl/softnccl.h"
#include "softnccl/stuck.h"

#include <stdlib.h>
#include <string.h>

SOFTNCCL_API softnccl_reports_fn softnccl_reports;
SOFTNCCL_API softnccl_forget_fn softnccl_forget;
SOFTNCCL_API softnccl_count_fn softnccl_count;

#define NCCL_ENTRY(since, result, name, signature) \
    SOFTNCCL_API result name signature;
#include "driver/nccl_entries.def"
#undef NCCL_ENTRY

ncclResult_t ncclGetVersion(int *version_p)
{
    if (version_p == NULL) {
        return ncclInvalidArgument;
    }
    *version_p = SOFTNCCL_VERSION;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    static const char *const texts[] = {
        "no error",
        "a call of the device failed",
        "the system failed",
        "softnccl failed",
        "invalid argument",
        "invalid usage",
        "another rank has gone or failed",
        "in progress",
    };

    return (size_t)result < sizeof(texts) / sizeof(texts[0])
               ? texts[(size_t)result]
               : "no result of NCCL";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id_p)
{
    if (id_p == NULL) {
        return ncclInvalidArgument;
    }
    if (!soft_begin()) {
        return ncclSystemError;
    }
    gather_id(id_p);
    return soft_end(ncclSuccess);
}

/* ---- beginnings ---------------------------------------------------------- */

/* What matters here of a configuration; NULL is the default. */
static ncclResult_t read_config(const struct nccl_config *config,
                                bool *blocking)
{
    if (config == NULL) {
        return ncclSuccess;
    }
    if (config->magic != NCCL_CONFIG_MAGIC ||
        config->size < offsetof(struct nccl_config, cga_cluster_size)) {
        report_error(NULL, "the configuration is not initialized");
        return ncclInvalidArgument;
    }
    if (config->blocking == INT_MIN) {
        return ncclSuccess;
    }
    if (config->blocking != 0 && config->blocking != 1) {
        report_error(NULL, "blocking is 0 or 1, not %d", config->blocking);
        return ncclInvalidArgument;
    }
    *blocking = config->blocking == 1;
    return ncclSuccess;
}

/* The job waits for the others at the end of the group, or now. */
static ncclResult_t started(ncclResult_t result, const struct job *job)
{
    ncclResult_t ended;

    if (result == ncclSuccess) {
        result = group_add_job(job);
    }
    if (result != ncclSuccess) {
        group_error(result);
    }
    ended = group_end();
    return soft_end(result != ncclSuccess ? result : ended);
}

static ncclResult_t init(ncclComm_t *comm_p, int n, const ncclUniqueId *id,
                         int rank, const ncclConfig_t *config)
{
    struct job job = { NULL, NULL, NULL, true };
    bool blocking = true;
    ncclResult_t result = read_config(config, &blocking);

    if (comm_p == NULL) {
        report_error(NULL, "ncclCommInitRank: newcomm is NULL");
        result = ncclInvalidArgument;
    } else {
        *comm_p = NULL;
    }
    if (n < 1 || rank < 0 || rank >= n) {
        report_error(NULL, "ncclCommInitRank: rank %d of %d", rank, n);
        result = ncclInvalidArgument;
    }
    if (!soft_begin()) {
        return ncclSystemError;
    }
    group_start();
    if (result == ncclSuccess) {
        result = gather_init(&job, comm_p, n, id, rank, blocking);
    }
    return started(result, &job);
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm_p, int ranks, ncclUniqueId id,
                              int rank)
{
    return init(comm_p, ranks, &id, rank, NULL);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm_p, int ranks,
                                    ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    return init(comm_p, ranks, &id, rank, config);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key,
                           ncclComm_t *comm_p, ncclConfig_t *config)
{
    struct job job = { NULL, NULL, NULL, true };
    ncclResult_t result;
    bool blocking;

    if (!soft_begin()) {
        return ncclSystemError;
    }
    group_start();
    result = comm_usable(comm, "ncclCommSplit");
    if (result == ncclSuccess) {
        blocking = comm->blocking;
        result = read_config(config, &blocking);
    }
    if (result == ncclSuccess && comm_p == NULL) {
        report_error(comm, "ncclCommSplit: newcomm is NULL");
        result = ncclInvalidArgument;
    }
    if (result == ncclSuccess && color < 0 && color != NCCL_SPLIT_NOCOLOR) {
        report_error(comm, "ncclCommSplit: color %d", color);
        result = ncclInvalidArgument;
    }
    if (result == ncclSuccess) {
        result = gather_split(&job, comm, color, key, comm_p, blocking);
    }
    return started(result, &job);
}

/* ---- ends ---------------------------------------------------------------- */

/* All that it has issued is over. */
static void flush(struct ncclComm *comm)
{
    struct match *m;

    do {
        for (m = matches_first(); m != NULL; m = m->next) {
            bool mine = false;

            for (uint32_t i = 0; i < m->places; i++) {
                mine |= m->parts[i].comm == comm;
            }
            if (mine) {
                device->await(m->rendezvous);
                break;
            }
        }
    } while (m != NULL);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    ncclResult_t result;

    if (comm == NULL) {
        return ncclSuccess;
    }
    if (!soft_begin()) {
        return ncclSystemError;
    }
    result = comm_check(comm, "ncclCommFinalize");
    if (result == ncclSuccess && comm->finalized) {
        report_error(comm, "ncclCommFinalize: it is finalized already");
        result = ncclInvalidArgument;
    } else if (result == ncclSuccess) {
        result = comm_usable(comm, "ncclCommFinalize");
    }
    if (result == ncclSuccess) {
        comm->finalized = true;
        flush(comm);
    }
    return soft_end(result);
}

/* NCCL waits until no graph holds operations of the communicator, in an abort
 * too, and so does this: for a program that has another thread, which destroys
 * the graphs.  One that has none is not kept for ever. */
static void await_graphs(const struct ncclComm *comm, const char *what)
{
    const uint64_t until = device->now_ms() + stuck_limit_ms();

    if (comm->captured == 0) {
        return;
    }
    report("usage",
           "rank %d %s communicator %u while graphs hold %llu of its "
           "operations; NCCL waits here until the graphs are gone: destroy "
           "them first",
           comm->rank, what, comm->team->number,
           (unsigned long long)comm->captured);
    while (comm->captured != 0 && device->now_ms() < until) {
        device->sleep();
    }
}

/* Between processes NCCL waits until all ranks destroy the communicator; threads
 * of a process do not wait.  With SOFTNCCL_DESTROY=wait they do here. */
static void await_others(const struct ncclComm *comm)
{
    const char *how = getenv("SOFTNCCL_DESTROY");
    const uint64_t until = device->now_ms() + stuck_limit_ms();
    struct team *team = comm->team;

    team->destroyed++;
    device->news();
    if (how == NULL || strcmp(how, "wait") != 0) {
        return;
    }
    while (team->destroyed < (uint32_t)team->n && team->broken == ncclSuccess &&
           device->now_ms() < until) {
        device->sleep();
    }
    if (team->destroyed < (uint32_t)team->n && team->broken == ncclSuccess) {
        report("usage",
               "rank %d destroys communicator %u, of which %u of %d ranks do; "
               "between processes NCCL waits for all: destroy communicators in "
               "one order on all ranks",
               comm->rank, team->number, team->destroyed, team->n);
    }
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    ncclResult_t result;

    if (comm == NULL) {
        return ncclSuccess;
    }
    if (!soft_begin()) {
        return ncclSystemError;
    }
    result = comm_check(comm, "ncclCommDestroy");
    if (result == ncclSuccess && comm->async == ncclInProgress) {
        result = comm_usable(comm, "ncclCommDestroy");
    }
    if (result == ncclSuccess) {
        flush(comm);
        comm_ref(comm); /* and so the team */
        comm_leave(comm);
        device->news();
        if (comm->team != NULL) {
            await_others(comm);
        }
        await_graphs(comm, "destroys");
        comm_drop(comm);
    }
    return soft_end(result);
}

/* What the communicator had is freed, which waits for all that runs on the
 * device: an operation of another communicator whose ranks do not come holds
 * it up until that is aborted too. */
static void await_device(int ordinal)
{
    struct match *m;

    do {
        for (m = matches_first(); m != NULL; m = m->next) {
            bool here = false;

            for (uint32_t i = 0; i < m->places; i++) {
                here |= m->parts[i].comm != NULL &&
                        m->parts[i].comm->device == ordinal;
            }
            if (here && !m->failed) {
                device->await(m->rendezvous);
                break;
            }
        }
    } while (m != NULL);
}

/* Whoever waits for the rank goes on: its own threads, and the other ranks,
 * which learn of it as their asynchronous error. */
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    ncclResult_t result;

    if (comm == NULL) {
        return ncclSuccess;
    }
    if (!soft_begin()) {
        return ncclSystemError;
    }
    result = comm_check(comm, "ncclCommAbort");
    if (result != ncclSuccess) {
        report("usage", "a communicator is aborted that is none any more; "
                        "NCCL has freed it");
    }
    if (result == ncclSuccess) {
        struct team *team = comm->team;
        const int ordinal = comm->device;

        comm_ref(comm); /* and so the team */
        if (team != NULL) {
            matches_fail_of(comm);
            gathers_fail_of(comm);
            comm_leave(comm);
            if (team->n > 1) {
                team_break(team, ncclRemoteError, GATHER_ABORTED);
            }
        } else {
            gathers_leave(comm);
            comm_leave(comm);
        }
        device->news();
        await_device(ordinal);
        await_graphs(comm, "aborts");
        comm_drop(comm);
    }
    return soft_end(result);
}

/* ---- questions ----------------------------------------------------------- */

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error_p)
{
    ncclResult_t result;

    if (!soft_begin()) {
        return ncclSystemError;
    }
    result = comm_check(comm, "ncclCommGetAsyncError");
    if (result == ncclSuccess && error_p == NULL) {
        result = ncclInvalidArgument;
    }
    if (result == ncclSuccess) {
        *error_p = comm->async;
    }
    return soft_end(result);
}

/* The call's own, of this thread; or what ails the communicator. */
const char *ncclGetLastError(ncclComm_t comm)
{
    const char *text = report_last();

    if (comm != NULL && soft_begin()) {
        if (comm_check(comm, "ncclGetLastError") == ncclSuccess &&
            comm->error[0] != '\0') {
            text = comm->error;
        }
        soft_end(ncclSuccess);
    }
    return text;
}

enum question {
    ASK_COUNT,
    ASK_RANK,
    ASK_DEVICE
};

static ncclResult_t ask(struct ncclComm *comm, const char *what, int *answer_p,
                        enum question question)
{
    ncclResult_t result;

    if (!soft_begin()) {
        return ncclSystemError;
    }
    result = comm_check(comm, what);
    if (result == ncclSuccess && answer_p == NULL) {
        report_error(comm, "%s: there is no place for the answer", what);
        result = ncclInvalidArgument;
    }
    if (result == ncclSuccess && comm->async == ncclInProgress) {
        result = comm_usable(comm, what);
    }
    if (result == ncclSuccess) {
        *answer_p = question == ASK_COUNT  ? comm->n
                    : question == ASK_RANK ? comm->rank
                                           : comm->device;
    }
    return soft_end(result);
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *ranks_p)
{
    return ask(comm, "ncclCommCount", ranks_p, ASK_COUNT);
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank_p)
{
    return ask(comm, "ncclCommUserRank", rank_p, ASK_RANK);
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device_p)
{
    return ask(comm, "ncclCommCuDevice", device_p, ASK_DEVICE);
}

/* ---- beyond NCCL --------------------------------------------------------- */

uint64_t softnccl_reports(uint64_t i, const char **text_p)
{
    uint64_t n;

    if (!soft_begin()) {
        return 0;
    }
    n = reports_read(i, text_p);
    soft_end(ncclSuccess);
    return n;
}

void softnccl_forget(void)
{
    if (soft_begin()) {
        reports_forget();
        if (comms_live() == 0) {
            teams_forget();
        }
        soft_end(ncclSuccess);
    }
}

void softnccl_count(softnccl_counts *counts)
{
    struct ncclComm *comm;

    memset(counts, 0, sizeof(*counts));
    if (!soft_begin()) {
        return;
    }
    counts->communicators = comms_live();
    counts->rendezvous = matches_waiting();
    for (uint64_t i = 0; (comm = comm_nth(i)) != NULL; i++) {
        counts->captured += comm->captured;
    }
    soft_end(ncclSuccess);
}
