/*
 * comm.c - see comm.h.
 *
 * The library's own communicator is non-blocking: every call returns at once,
 * and its state is queried until the time is over.  The words go through pinned
 * memory on a stream of their own, so no capture and no graph holds a gather.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "comm/comm.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/gate.h"
#include "base/log.h"
#include "comm/nccl.h"
#include "comm/split.h"
#include "comm/thread_barrier.h"
#include "device/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Before the words of a rank: one that counts the gathers, and its id. */
#define HEAD (1 + GH_THREAD_ID_WORDS)
#define ROOM (GH_COMM_WORDS + HEAD)

/* How long a gather may still end after its communicator has failed. */
#define GRACE_NS 50000000

struct gh_comm {
    struct gh_device *dev;
    gh_ranks ranks; /* as the host has given them */
    struct gh_gate *gate;
    const struct gh_log *log;
    char of[32]; /* "bank 2" */
    uint32_t seconds;
    bool aborted;
    bool gone; /* the host has destroyed its communicator */
    bool broken;   /* an operation on `lib_comm` has not ended on all ranks */
    uint64_t *all; /* ROOM words for each rank, and ROOM for what this rank
                      sends; pinned with NCCL */

    /* with NCCL */
    struct gh_nccl *nccl; /* NULL: by the host's service */
    struct ncclComm *lib_comm; /* the library's own */
    void *stream, *before, *done;
    void *words; /* on the device: this rank's, then all ranks' */
    struct gh_job *aborts[2]; /* of `lib_comm` and of the host's */
    uint64_t said; /* how often */
    struct gh_thread_id id;
    uint64_t
        key; /* of gathers by the host: the number of the first rank's id */
    struct gh_thread_barrier *barrier; /* of the ranks in this process; NULL:
                             alone there, or they have not gathered yet */
    uint64_t met; /* in it; how often */
};

static gh_status too_late(const struct gh_comm *comm, gh_error *err)
{
    return gh_fail(err, GH_ERR_RANKS,
                   "the other ranks of %s have not come in %u s "
                   "(GRAPHHOOKS_TIMEOUT)",
                   comm->of, comm->seconds);
}

/* ---- a beginning --------------------------------------------------------- */

/* Waits until all ranks have split the communicator. */
static gh_status split(struct gh_comm *comm, gh_error *err)
{
    struct gh_deadline deadline = gh_deadline_in(comm->seconds);
    struct gh_split *split = NULL;
    bool over = false;
    gh_status status =
        gh_split_begin(comm->nccl, comm->dev, comm->ranks.comm,
                       (int)comm->ranks.rank, &split, err);

    while (status == GH_OK && !over) {
        status = gh_split_is_over(split, &over, err);
        if (status == GH_OK && !over && !gh_deadline_back_off(&deadline)) {
            status = too_late(comm, err);
        }
    }
    comm->lib_comm = gh_split_end(split);
    return status;
}

/* Allocates for the largest gather, so that no later one allocates. */
static gh_status make_room(struct gh_comm *comm, gh_error *err)
{
    const uint64_t bytes =
        (comm->ranks.size + 1) * (uint64_t)ROOM * sizeof(uint64_t);
    gh_status status;
    void *all;

    if (comm->nccl == NULL) {
        comm->all = malloc(bytes);
        return comm->all != NULL ? GH_OK
                                 : gh_fail(err, GH_ERR_NO_MEMORY,
                                           "no memory for %u ranks",
                                           comm->ranks.size);
    }
    status = gh_device_host_alloc(comm->dev, bytes, &all, err);
    if (status != GH_OK) {
        return status;
    }
    comm->all = all;
    status = gh_device_alloc(comm->dev, bytes, &comm->words, err);
    if (status == GH_OK) {
        status =
            gh_device_stream_create(comm->dev, false, &comm->stream, err);
    }
    if (status == GH_OK) {
        status = gh_device_event_create(comm->dev, &comm->before, err);
    }
    if (status == GH_OK) {
        status = gh_device_event_create(comm->dev, &comm->done, err);
    }
    return status;
}

static gh_status open_nccl(struct gh_comm *comm, gh_error *err)
{
    gh_status status = gh_nccl_open(comm->ranks.nccl, &comm->nccl, err);

    if (status == GH_OK) {
        status = gh_nccl_check(comm->nccl, comm->ranks.comm, comm->of,
                               comm->ranks.rank, comm->ranks.size, err);
    }
    return status;
}

gh_status gh_comm_open(struct gh_device *dev, const gh_ranks *ranks,
                       const char *of, uint32_t seconds, struct gh_gate *gate,
                       const struct gh_log *log, struct gh_comm **comm_p,
                       gh_error *err)
{
    struct gh_comm *comm = calloc(1, sizeof(*comm));
    gh_status status = GH_OK;

    if (comm == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for ranks");
    }
    comm->dev = dev;
    comm->ranks = *ranks;
    comm->gate = gate;
    comm->log = log;
    comm->seconds = seconds;
    if (of != NULL) {
        snprintf(comm->of, sizeof(comm->of), "%s", of);
    } else {
        snprintf(comm->of, sizeof(comm->of), "bank %u", ranks->bank);
    }
    comm->id = gh_thread_id();
    if (ranks->gather == NULL) {
        status = open_nccl(comm, err);
    }
    if (status == GH_OK) {
        status = make_room(comm, err);
    }
    if (status == GH_OK && comm->nccl != NULL) {
        status = split(comm, err);
        comm->broken = status != GH_OK;
    }
    if (status != GH_OK) {
        gh_comm_close(comm, NULL);
        return status;
    }
    *comm_p = comm;
    return GH_OK;
}

static void say_left(const struct gh_comm *comm, bool over, const char *whose,
                     const char *why)
{
    if (!over) {
        gh_log_line(comm->log, GH_LOG_WARN,
                    "NCCL has not ended the %s communicator of %s in %u s "
                    "(GRAPHHOOKS_TIMEOUT): %s; it is left to a thread that "
                    "waits in NCCL",
                    whose, comm->of, comm->seconds, why);
    }
}

static void end_lib_comm(struct gh_comm *comm)
{
    bool over;

    if (comm->lib_comm == NULL) {
        return;
    }
    over = comm->broken
               ? gh_job_end(gh_nccl_abort_begin(comm->nccl, comm->dev,
                                                comm->lib_comm, comm->seconds))
               : gh_nccl_destroy(comm->nccl, comm->dev, comm->lib_comm,
                                 comm->seconds);
    say_left(comm, over, "library's", "work on the device has not ended");
}

/* A communicator with an operation that not all ranks have joined can only be
 * aborted, as ncclCommDestroy waits for them.  If the abort does not end, that
 * operation may still be on the device.  Another stream may wait for a rank
 * that does not come, and the driver frees memory after all of them. */
static void free_all(struct gh_comm *comm)
{
    uint32_t limit_s;

    if (comm->nccl == NULL) {
        free(comm->all);
        return;
    }
    end_lib_comm(comm);
    limit_s = gh_device_limit_waits(comm->dev, comm->seconds);
    gh_device_event_destroy(comm->dev, comm->before);
    gh_device_event_destroy(comm->dev, comm->done);
    gh_device_stream_destroy(comm->dev, comm->stream);
    if (comm->words != NULL) {
        gh_device_free(comm->dev, comm->words);
    }
    if (comm->all != NULL) {
        gh_device_host_free(comm->dev, comm->all);
    }
    gh_device_limit_waits(comm->dev, limit_s);
    gh_nccl_close(comm->nccl);
}

void gh_comm_close(struct gh_comm *comm, struct gh_comm_parting *parting)
{
    if (comm == NULL) {
        return;
    }
    if (parting != NULL && !comm->broken) {
        *parting = (struct gh_comm_parting){ comm->barrier, comm->ranks.rank,
                                             comm->met + 1, comm->seconds };
    } else {
        gh_thread_barrier_leave(comm->barrier, comm->ranks.rank);
    }
    free_all(comm);
    free(comm);
}

void gh_comm_part(const struct gh_comm_parting *parting)
{
    struct gh_deadline deadline = gh_deadline_in(parting->seconds);

    if (parting->barrier == NULL) {
        return;
    }
    gh_thread_barrier_arrive(parting->barrier, parting->rank, parting->number);
    while (!gh_thread_barrier_all_arrived(parting->barrier, parting->number) &&
           gh_deadline_back_off(&deadline)) {
    }
    gh_thread_barrier_leave(parting->barrier, parting->rank);
}

uint32_t gh_comm_rank(const struct gh_comm *comm)
{
    return comm->ranks.rank;
}

uint32_t gh_comm_size(const struct gh_comm *comm)
{
    return comm->ranks.size;
}

gh_status gh_comm_check_numbers(uint32_t n, const uint64_t *all,
                                uint32_t stride, const char *field,
                                gh_error *err)
{
    uint32_t wrong = 0, other = 0;

    while (wrong < n && all[(size_t)wrong * stride] == wrong) {
        wrong++;
    }
    if (wrong == n) {
        return GH_OK;
    }
    while (other < n && (other == wrong || all[(size_t)other * stride] !=
                                               all[(size_t)wrong * stride])) {
        other++;
    }
    if (other == n) {
        return gh_fail(err, GH_ERR_CONFIG,
                       "%s is %llu where rank %u is: give each its own, in the "
                       "order of the communicator, or of the gather",
                       field, (unsigned long long)all[(size_t)wrong * stride],
                       wrong);
    }
    return gh_fail(err, GH_ERR_CONFIG,
                   "%s is %llu on two ranks, which are %u and %u in the order "
                   "of the communicator, or of the gather: give each its own",
                   field, (unsigned long long)all[(size_t)wrong * stride],
                   wrong < other ? wrong : other,
                   wrong < other ? other : wrong);
}

bool gh_comm_has_threads(const struct gh_comm *comm)
{
    return comm->barrier != NULL;
}

bool gh_comm_is_shared(const struct gh_comm *comm, const struct gh_comm *other)
{
    return comm->ranks.comm != NULL && comm->ranks.comm == other->ranks.comm;
}

/* ---- what is said -------------------------------------------------------- */

gh_status gh_comm_follow(struct gh_comm *comm, void *stream, gh_error *err)
{
    gh_status status = GH_OK;

    if (comm->nccl != NULL) {
        status = gh_device_event_record(comm->dev, comm->before, stream, err);
        if (status == GH_OK) {
            status = gh_device_event_wait(comm->dev, comm->stream,
                                          comm->before, err);
        }
    }
    return status;
}

/* Waits on the host for the ranks of this process, see thread_barrier.h.  The
 * first gather tells which these are. */
static gh_status meet(struct gh_comm *comm, gh_error *err)
{
    struct gh_deadline deadline = gh_deadline_in(comm->seconds);
    gh_status status = GH_OK;

    if (comm->barrier == NULL) {
        return GH_OK;
    }
    gh_thread_barrier_arrive(comm->barrier, comm->ranks.rank, ++comm->met);
    while (status == GH_OK &&
           !gh_thread_barrier_all_arrived(comm->barrier, comm->met)) {
        status = gh_deadline_back_off(&deadline) ? gh_comm_look(comm, err)
                                                 : too_late(comm, err);
    }
    return status;
}

/* The first word is the number of the gather. */
static gh_status issue(struct gh_comm *comm, const uint64_t *mine, uint32_t n,
                       gh_error *err)
{
    uint64_t *said = comm->all + comm->ranks.size * ROOM;
    uint64_t *words = comm->words, *all = words + ROOM;
    gh_status status;

    said[0] = ++comm->said;
    said[1] = comm->id.process;
    said[2] = comm->id.number;
    memcpy(said + HEAD, mine, n * sizeof(*said));
    status = gh_device_copy_back(comm->dev, words, said,
                                 (n + HEAD) * sizeof(*said), comm->stream, err);
    if (status == GH_OK) {
        status = gh_nccl_gather(comm->nccl, comm->lib_comm, words, all,
                                n + HEAD, comm->stream, err);
    }
    return status;
}

static gh_status fetch(struct gh_comm *comm, uint32_t n, gh_error *err)
{
    const uint64_t *all = (const uint64_t *)comm->words + ROOM;
    gh_status status = gh_device_copy_out(
        comm->dev, comm->all, all, comm->ranks.size * (n + HEAD) * sizeof(*all),
        comm->stream, err);

    if (status == GH_OK) {
        status = gh_device_event_record(comm->dev, comm->done, comm->stream,
                                        err);
    }
    return status;
}

/* Issues the copy to the host once NCCL has issued the gather. */
static gh_status go_on(struct gh_comm *comm, uint32_t n, bool *issued_p,
                       gh_error *err)
{
    bool over = false;
    gh_status status;

    if (*issued_p) {
        return gh_comm_look(comm, err);
    }
    status = gh_nccl_is_over(comm->nccl, comm->lib_comm, &over, err);
    if (status == GH_OK && over) {
        status = fetch(comm, n, err);
        *issued_p = true;
    }
    return status;
}

/* Packs the words of all ranks.  An operation that was aborted also ends, but
 * leaves words of an earlier gather, which the first word shows. */
static gh_status take(struct gh_comm *comm, uint32_t n, gh_error *err)
{
    for (uint32_t i = 0; i < comm->ranks.size; i++) {
        const uint64_t *theirs = comm->all + (size_t)i * (n + HEAD);

        if (theirs[0] != comm->said && gh_comm_look(comm, err) == GH_OK) {
            return gh_fail(err, GH_ERR_RANKS,
                           "rank %u of %s was not heard", i, comm->of);
        }
        if (theirs[0] != comm->said) {
            return GH_ERR_RANKS;
        }
    }
    if (comm->said == 1) {
        comm->barrier = gh_thread_barrier_join(
            comm->all + 1, n + HEAD, comm->ranks.rank, comm->ranks.size);
    }
    for (uint32_t i = 0; i < comm->ranks.size; i++) {
        memmove(comm->all + (size_t)i * n,
                comm->all + (size_t)i * (n + HEAD) + HEAD,
                n * sizeof(*comm->all));
    }
    return GH_OK;
}

/* Another rank may complete the gather and then abort the communicator before
 * this one has read the words.  So after a failure the words may still arrive,
 * and are waited for during GRACE_NS. */
static gh_status wait_for_all(struct gh_comm *comm, uint32_t n, gh_error *err)
{
    struct gh_deadline deadline = gh_deadline_in(comm->seconds);
    gh_status status = GH_OK;
    bool issued = false;

    for (;;) {
        if (issued && gh_device_event_has_ended(comm->dev, comm->done)) {
            return take(comm, n, status == GH_OK ? err : NULL) == GH_OK
                       ? GH_OK
                       : GH_ERR_RANKS;
        }
        if (status == GH_OK) {
            status = go_on(comm, n, &issued, err);
            if (status != GH_OK) {
                deadline.until_ns = gh_now_ns() + GRACE_NS;
            }
        }
        if (!gh_deadline_back_off(&deadline)) {
            return status == GH_OK ? too_late(comm, err) : status;
        }
    }
}

static gh_status ask_host(struct gh_comm *comm, const uint64_t *mine,
                          uint32_t n, gh_error *err)
{
    void *const gate = gh_gate_leave(comm->gate);
    const gh_status status = comm->ranks.gather(
        comm->ranks.user, comm->ranks.bank, mine, comm->all, n);

    gh_gate_return(comm->gate, gate);
    return status == GH_OK ? GH_OK
                           : gh_fail(err, GH_ERR_RANKS, "the host's gather: %s",
                                     gh_status_name(status));
}

/* The host's gather gets no more words than the caller's, so the ids go
 * alone. */
static gh_status gather_by_host(struct gh_comm *comm, const uint64_t *mine,
                                uint32_t n, gh_error *err)
{
    const uint64_t id[] = { comm->id.process, comm->id.number };
    gh_status status = GH_OK;

    if (comm->said++ == 0) {
        status = ask_host(comm, id, GH_THREAD_ID_WORDS, err);
        if (status == GH_OK) {
            comm->key = comm->all[1];
            comm->barrier =
                gh_thread_barrier_join(comm->all, GH_THREAD_ID_WORDS,
                                       comm->ranks.rank, comm->ranks.size);
        }
    }
    if (status == GH_OK) {
        gh_device_gather(comm->dev, comm->key, comm->said, true);
        status = ask_host(comm, mine, n, err);
    }
    if (status == GH_OK) {
        gh_device_gather(comm->dev, comm->key, comm->said, false);
    }
    return status;
}

static gh_status gather_by_nccl(struct gh_comm *comm, const uint64_t *mine,
                                uint32_t n, gh_error *err)
{
    gh_status status = meet(comm, err);

    if (status == GH_OK) {
        status = issue(comm, mine, n, err);
    }
    if (status == GH_OK) {
        status = wait_for_all(comm, n, err);
    }
    comm->broken |= status != GH_OK;
    return status;
}

gh_status gh_comm_gather(struct gh_comm *comm, const uint64_t *mine, uint32_t n,
                         const uint64_t **all_p, gh_error *err)
{
    const gh_status status = comm->nccl == NULL
                                 ? gather_by_host(comm, mine, n, err)
                                 : gather_by_nccl(comm, mine, n, err);

    if (status == GH_OK) {
        *all_p = comm->all;
    }
    return status;
}

/* ---- an end -------------------------------------------------------------- */

gh_status gh_comm_look(struct gh_comm *comm, gh_error *err)
{
    gh_status status = GH_OK;

    if (comm->nccl == NULL || comm->aborted) {
        return GH_OK;
    }
    status = gh_nccl_look(comm->nccl, comm->ranks.comm, &comm->gone, err);
    if (comm->gone) {
        return gh_fail(err, GH_ERR_RANKS,
                       "the communicator of %s was destroyed while it is in "
                       "use: destroy it after gh_session_close, "
                       "gh_ranks_clear or gh_exchange_destroy",
                       comm->of);
    }
    if (status == GH_OK) {
        status = gh_nccl_look(comm->nccl, comm->lib_comm, NULL, err);
    }
    return status;
}

void gh_comm_abort_begin(struct gh_comm *comm, bool hosts)
{
    gh_thread_barrier_leave(comm->barrier, comm->ranks.rank);
    comm->barrier = NULL;
    if (comm->aborted || comm->nccl == NULL) {
        return;
    }
    comm->aborts[0] = gh_nccl_abort_begin(comm->nccl, comm->dev, comm->lib_comm,
                                          comm->seconds);
    comm->lib_comm = NULL;
    if (hosts && comm->ranks.abort == NULL && !comm->gone) {
        comm->aborts[1] = gh_nccl_abort_begin(
            comm->nccl, comm->dev, comm->ranks.comm, comm->seconds);
    }
}

void gh_comm_abort_end(struct gh_comm *comm)
{
    if (comm->aborted) {
        return;
    }
    comm->aborted = true;
    if (comm->ranks.abort != NULL) {
        void *const gate = gh_gate_leave(comm->gate);

        comm->ranks.abort(comm->ranks.user, comm->ranks.bank);
        gh_gate_return(comm->gate, gate);
    }
    say_left(comm, gh_job_end(comm->aborts[0]), "library's",
             "work on the device has not ended");
    say_left(comm, gh_job_end(comm->aborts[1]), "host's",
             "destroy the graphs of the host's that hold its operations, and "
             "end what keeps the device busy");
}
