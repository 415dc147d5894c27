/*
 * nccl.c - see nccl.h.
 *
 * Calls are thin: one or two of NCCL's entries and, on failure, the sentence
 * that names the entry, the result and what NCCL says of it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "comm/nccl.h"

#include "base/beside.h"
#include "base/clock.h"
#include "base/error.h"
#include "device/job.h"
#include "driver/nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NCCL_NAME "libnccl.so.2"
#define SOFT_NAME "libsoftnccl.so"

struct gh_nccl {
    struct nccl calls;
    uint32_t users;
};

/* NCCL's own words may be long, and end with a newline. */
static gh_status failed(const struct gh_nccl *nccl, ncclResult_t result,
                        const char *entry, ncclComm_t comm, gh_error *err)
{
    const char *name = nccl->calls.ncclGetErrorString(result);
    const char *text = nccl->calls.ncclGetLastError(comm);

    text = text != NULL ? text : "";
    return gh_fail(err, GH_ERR_RANKS, "%s: %d %s%s%.*s", entry, result,
                   name != NULL ? name : "?", *text != '\0' ? ": " : "",
                   (int)strcspn(text, "\n"), text);
}

#define call(nccl, comm, err, entry, args) \
    status_of((nccl), (nccl)->calls.entry args, #entry, (comm), (err))

static gh_status status_of(const struct gh_nccl *nccl, ncclResult_t result,
                           const char *entry, ncclComm_t comm, gh_error *err)
{
    return result == ncclSuccess || result == ncclInProgress
               ? GH_OK
               : failed(nccl, result, entry, comm, err);
}

gh_status gh_nccl_open(const char *name, struct gh_nccl **nccl_p, gh_error *err)
{
    struct gh_nccl *nccl = calloc(1, sizeof(*nccl));
    char path[4096], text[200];

    if (nccl == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for NCCL");
    }
    if (strcmp(name, "nccl") == 0) {
        snprintf(path, sizeof(path), NCCL_NAME);
    } else if (strcmp(name, "soft") == 0) {
        gh_beside_path(SOFT_NAME, path, sizeof(path));
    } else {
        snprintf(path, sizeof(path), "%s", name);
    }
    if (nccl_load(path, &nccl->calls, text, sizeof(text)) != 0) {
        free(nccl);
        return gh_fail(err, GH_ERR_NOT_FOUND,
                       "%.170s; name the NCCL that the host has loaded in "
                       "GRAPHHOOKS_NCCL",
                       text);
    }
    nccl->users = 1;
    *nccl_p = nccl;
    return GH_OK;
}

struct gh_nccl *gh_nccl_share(struct gh_nccl *nccl)
{
    __atomic_add_fetch(&nccl->users, 1, __ATOMIC_RELAXED);
    return nccl;
}

void gh_nccl_close(struct gh_nccl *nccl)
{
    if (nccl != NULL &&
        __atomic_sub_fetch(&nccl->users, 1, __ATOMIC_ACQ_REL) == 0) {
        free(nccl);
    }
}

gh_status gh_nccl_check(const struct gh_nccl *nccl, ncclComm_t comm,
                        const char *who, uint32_t rank, uint32_t size,
                        gh_error *err)
{
    int n = -1, at = -1;
    gh_status status =
        call(nccl, comm, err, ncclCommCount, (comm, &n));

    if (status == GH_OK) {
        status =
            call(nccl, comm, err, ncclCommUserRank, (comm, &at));
    }
    if (status != GH_OK) {
        return status;
    }
    if (n != (int)size || at != (int)rank) {
        return gh_fail(err, GH_ERR_INVALID,
                       "%s says rank %u of %u, and its communicator rank %d of "
                       "%d: give the one that exactly these ranks have",
                       who, rank, size, at, n);
    }
    return GH_OK;
}

gh_status gh_nccl_split(const struct gh_nccl *nccl, ncclComm_t comm, int rank,
                        ncclComm_t *lib_comm_p, gh_error *err)
{
    ncclConfig_t config = NCCL_CONFIG_OURS;

    config.blocking = 0;
    config.min_ctas = config.max_ctas = 1;
    return call(nccl, comm, err, ncclCommSplit,
                (comm, 0, rank, lib_comm_p, &config));
}

static gh_status ask(const struct gh_nccl *nccl, ncclComm_t comm,
                     ncclResult_t *result_p, gh_error *err)
{
    ncclResult_t result = nccl->calls.ncclCommGetAsyncError(comm,
                                                            result_p);

    return result == ncclSuccess
               ? GH_OK
               : failed(nccl, result, "ncclCommGetAsyncError", NULL, err);
}

/* Whether what was begun of a communicator is; `what` names it in a failure. */
static gh_status is_over(const struct gh_nccl *nccl, ncclComm_t comm,
                         const char *what, bool *over_p, gh_error *err)
{
    ncclResult_t result = ncclInProgress;
    gh_status status = ask(nccl, comm, &result, err);

    if (status == GH_OK && result != ncclSuccess && result != ncclInProgress) {
        return failed(nccl, result, what, comm, err);
    }
    *over_p = result == ncclSuccess;
    return status;
}

gh_status gh_nccl_has_split(const struct gh_nccl *nccl, ncclComm_t parent,
                            bool *done_p, gh_error *err)
{
    return is_over(nccl, parent, "ncclCommSplit", done_p, err);
}

gh_status gh_nccl_is_over(const struct gh_nccl *nccl, ncclComm_t comm,
                          bool *over_p, gh_error *err)
{
    return is_over(nccl, comm, "the library's communicator", over_p, err);
}

gh_status gh_nccl_gather(const struct gh_nccl *nccl, ncclComm_t comm,
                         const uint64_t *mine, uint64_t *all, uint32_t n,
                         void *stream, gh_error *err)
{
    return call(nccl, comm, err, ncclAllGather,
                (mine, all, n, ncclUint64, comm, stream));
}

static gh_status send_and_receive(const struct gh_nccl *nccl, ncclComm_t comm,
                                  const struct gh_nccl_part *part, int peer,
                                  void *stream, gh_error *err)
{
    gh_status status = GH_OK;

    if (part->to_bytes != 0) {
        status = call(nccl, comm, err, ncclSend,
                      (part->to, part->to_bytes, ncclUint8, peer, comm,
                       stream));
    }
    if (status == GH_OK && part->from_bytes != 0) {
        status = call(nccl, comm, err, ncclRecv,
                      (part->from, part->from_bytes, ncclUint8, peer, comm,
                       stream));
    }
    return status;
}

/* A communicator that does not block goes on issuing by itself. */
static gh_status wait_until_over(const struct gh_nccl *nccl, ncclComm_t comm,
                                 uint32_t seconds, gh_error *err)
{
    struct gh_deadline deadline = gh_deadline_in(seconds);
    bool over = false;
    gh_status status = gh_nccl_is_over(nccl, comm, &over, err);

    while (status == GH_OK && !over) {
        if (!gh_deadline_back_off(&deadline)) {
            return gh_fail(err, GH_ERR_RANKS,
                           "NCCL has not issued an exchange in %u s "
                           "(GRAPHHOOKS_TIMEOUT)",
                           seconds);
        }
        status = gh_nccl_is_over(nccl, comm, &over, err);
    }
    return status;
}

gh_status gh_nccl_exchange(const struct gh_nccl *nccl, ncclComm_t comm,
                           const struct gh_nccl_part *parts, uint32_t rank,
                           uint32_t n, void *stream, uint32_t seconds,
                           gh_error *err)
{
    gh_status status = call(nccl, comm, err, ncclGroupStart, ());
    gh_status ended;

    if (status != GH_OK) {
        return status;
    }
    for (uint32_t i = 1; i < n && status == GH_OK; i++) {
        const uint32_t peer = (rank + i) % n;

        status = send_and_receive(nccl, comm, &parts[peer], (int)peer, stream,
                                  err);
    }
    ended = call(nccl, comm, status == GH_OK ? err : NULL, ncclGroupEnd, ());
    if (status != GH_OK || ended != GH_OK) {
        return GH_ERR_RANKS;
    }
    return wait_until_over(nccl, comm, seconds, err);
}

gh_status gh_nccl_look(const struct gh_nccl *nccl, ncclComm_t comm,
                       bool *gone_p, gh_error *err)
{
    ncclResult_t result = ncclSuccess;
    gh_status status = ask(nccl, comm, &result, err);

    if (status != GH_OK && gone_p != NULL) {
        *gone_p = true;
    }
    if (status == GH_OK && result != ncclSuccess && result != ncclInProgress) {
        return failed(nccl, result, "a communicator has failed", comm, err);
    }
    return status;
}

/* ---- an end -------------------------------------------------------------- */

struct ends {
    struct gh_nccl *nccl; /* a share */
    ncclComm_t comm;
    bool in_order;
};

static void end(struct gh_device *dev, const void *arg)
{
    const struct ends *ends = arg;

    (void)dev;
    if (ends->in_order) {
        ends->nccl->calls.ncclCommDestroy(ends->comm);
    } else {
        ends->nccl->calls.ncclCommAbort(ends->comm);
    }
    gh_nccl_close(ends->nccl);
}

static struct gh_job *begin_end(struct gh_nccl *nccl, struct gh_device *dev,
                                ncclComm_t comm, uint32_t seconds,
                                bool in_order)
{
    const struct ends ends = { nccl, comm, in_order };

    if (comm == NULL) {
        return NULL;
    }
    gh_nccl_share(nccl);
    return gh_job_begin(dev, seconds, end, &ends, sizeof(ends));
}

bool gh_nccl_destroy(struct gh_nccl *nccl, struct gh_device *dev,
                     ncclComm_t comm, uint32_t seconds)
{
    struct gh_deadline deadline = gh_deadline_in(seconds);
    ncclResult_t result = nccl->calls.ncclCommFinalize(comm);
    gh_status status = GH_OK;

    while (status == GH_OK && result == ncclInProgress) {
        status = ask(nccl, comm, &result, NULL);
        if (!gh_deadline_back_off(&deadline)) {
            break;
        }
    }
    return gh_job_end(begin_end(nccl, dev, comm, seconds,
                                status == GH_OK && result == ncclSuccess));
}

void gh_nccl_abort(const struct gh_nccl *nccl, ncclComm_t comm)
{
    if (comm != NULL) {
        nccl->calls.ncclCommAbort(comm);
    }
}

struct gh_job *gh_nccl_abort_begin(struct gh_nccl *nccl, struct gh_device *dev,
                                   ncclComm_t comm, uint32_t seconds)
{
    return begin_end(nccl, dev, comm, seconds, false);
}
