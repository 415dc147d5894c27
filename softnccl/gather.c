/*
 * gather.c - the creation of communicators, for which ranks wait for each
 * other.
 *
 * The ranks of an init find each other by the unique id, those of a split by
 * its number in the parent.  The last rank to come makes the shared object.  It
 * is a barrier for races: what each rank did before it happens before what any
 * rank does after it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softnccl/gather.h"

#include "softnccl/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct comer {
    bool here;
    struct ncclComm *comm; /* NULL: no color */
    int color, key;
    struct ncclComm *parent; /* of a split; NULL: an init */
    ncclComm_t *comm_p;      /* where a split writes it at its end */
};

struct gather {
    struct gather *next;
    uint32_t refs; /* of jobs, and of the list while it waits */
    uint64_t id;   /* of an init */
    struct team *parent;
    uint64_t number; /* of a split */
    bool done;
    ncclResult_t result;
    char why[256]; /* it failed */
    uint64_t began_ms;
    softcuda_word *word;
    int n, n_here;
    struct comer comers[];
};

static const char magic[16] = "softnccl id";
static struct gather *gathers; /* that wait */
static uint64_t n_ids;

static void drop(struct gather *gather)
{
    if (--gather->refs == 0) {
        device->word_free(gather->word);
        free(gather);
    }
}

static struct gather *make(int n)
{
    struct gather *gather =
        calloc(1, sizeof(*gather) + (size_t)n * sizeof(gather->comers[0]));

    if (gather != NULL) {
        gather->refs = 1;
        gather->n = n;
        gather->began_ms = device->now_ms();
        gather->next = gathers;
        gathers = gather;
    }
    return gather;
}

static void describe(const struct gather *gather, char *text, size_t bytes)
{
    if (gather->parent != NULL) {
        snprintf(text, bytes, "split %llu of communicator %u",
                 (unsigned long long)gather->number, gather->parent->number);
    } else {
        snprintf(text, bytes, "the start of a communicator of %d", gather->n);
    }
}

/* As in NCCL, a split writes its communicator only now, by whatever thread, and
 * a parent that does not block has been in progress until now. */
static void end_split(const struct gather *gather, struct comer *comer)
{
    struct ncclComm *parent = comer->parent;

    __atomic_store_n(comer->comm_p, comer->comm, __ATOMIC_RELEASE);
    if (parent->async == ncclInProgress) {
        parent->async = gather->result != ncclSuccess ? gather->result
                                                      : parent->team->broken;
        snprintf(parent->error, sizeof(parent->error), "%s", gather->why);
    }
    comm_drop(parent);
}

/* It waits no longer. */
static void finish(struct gather *gather, ncclResult_t result, const char *why)
{
    for (struct gather **g = &gathers; *g != NULL; g = &(*g)->next) {
        if (*g == gather) {
            *g = gather->next;
            break;
        }
    }
    gather->done = true;
    gather->result = result;
    if (result != ncclSuccess) {
        snprintf(gather->why, sizeof(gather->why), "%s", why);
    }
    for (int i = 0; i < gather->n; i++) {
        struct comer *comer = &gather->comers[i];

        if (comer->comm != NULL) {
            comer->comm->async = result;
        }
        if (comer->parent != NULL) {
            end_split(gather, comer);
        }
        if (comer->comm != NULL) {
            comm_drop(comer->comm);
        }
    }
    device->news();
    drop(gather);
}

/* ---- what they share ----------------------------------------------------- */

static bool devices_differ(const struct gather *gather)
{
    for (int a = 0; a < gather->n; a++) {
        for (int b = 0; b < a; b++) {
            if (gather->comers[a].comm->device ==
                gather->comers[b].comm->device) {
                report("usage",
                       "ranks %d and %d of a communicator are on device %d; "
                       "set NCCL_MULTI_RANK_GPU_ENABLE=1 to allow it",
                       b, a, gather->comers[a].comm->device);
                return false;
            }
        }
    }
    return true;
}

static bool may_share(void)
{
    const char *text = getenv("NCCL_MULTI_RANK_GPU_ENABLE");

    return text != NULL && strcmp(text, "1") == 0;
}

static bool seat_at(struct team *team, int rank, struct ncclComm *comm)
{
    if (team == NULL) {
        return false;
    }
    team->ranks[rank] = comm;
    team->refs++;
    comm->team = team;
    comm->rank = rank;
    comm->n = team->n;
    return true;
}

static void make_one(struct gather *gather)
{
    struct team *team;

    if (!may_share() && !devices_differ(gather)) {
        finish(gather, ncclInvalidUsage, report_last());
        return;
    }
    team = team_new(team_number(), gather->n);
    for (int i = 0; i < gather->n; i++) {
        if (!seat_at(team, i, gather->comers[i].comm)) {
            finish(gather, ncclSystemError, report_last());
            return;
        }
    }
    finish(gather, ncclSuccess, "");
}

/* The next of the color, by key and then by its rank before; -1: no more. */
static int next_of(const struct gather *gather, int color, const bool *taken)
{
    int best = -1;

    for (int i = 0; i < gather->n; i++) {
        const struct comer *c = &gather->comers[i];

        if (c->color == color && !taken[i] &&
            (best < 0 || c->key < gather->comers[best].key)) {
            best = i;
        }
    }
    return best;
}

static bool make_color(struct gather *gather, int color, bool *taken)
{
    struct team *team;
    int n = 0, rank = 0, at;

    for (int i = 0; i < gather->n; i++) {
        n += gather->comers[i].color == color;
    }
    team = team_new(team_number(), n);
    while ((at = next_of(gather, color, taken)) >= 0) {
        taken[at] = true;
        if (!seat_at(team, rank++, gather->comers[at].comm)) {
            return false;
        }
    }
    return true;
}

static void make_colors(struct gather *gather)
{
    bool *taken = calloc((size_t)gather->n, sizeof(*taken));
    ncclResult_t result = taken != NULL ? ncclSuccess : ncclSystemError;

    for (int i = 0; i < gather->n && result == ncclSuccess; i++) {
        const int color = gather->comers[i].color;

        if (color != NCCL_SPLIT_NOCOLOR && !taken[i] &&
            !make_color(gather, color, taken)) {
            result = ncclSystemError;
        }
    }
    free(taken);
    finish(gather, result, report_last());
}

/* ---- coming -------------------------------------------------------------- */

void gather_id(ncclUniqueId *id_p)
{
    const uint64_t parts[2] = { ++n_ids, (uint64_t)getpid() };

    memset(id_p, 0, sizeof(*id_p));
    memcpy(id_p->internal, magic, sizeof(magic));
    memcpy(id_p->internal + sizeof(magic), parts, sizeof(parts));
}

static bool id_number(const ncclUniqueId *id, uint64_t *number_p)
{
    uint64_t parts[2];

    memcpy(parts, id->internal + sizeof(magic), sizeof(parts));
    *number_p = parts[0];
    return memcmp(id->internal, magic, sizeof(magic)) == 0 &&
           parts[1] == (uint64_t)getpid() && parts[0] != 0 && parts[0] <= n_ids;
}

static void arrive(struct gather *gather, struct job *job, int at,
                   struct ncclComm *comm)
{
    gather->comers[at].here = true;
    gather->comers[at].comm = comm != NULL ? comm_ref(comm) : NULL;
    gather->n_here++;
    gather->word = device->say(gather->word);
    gather->refs++;
    job->gather = gather;
    job->comm = comm;
    device->news();
}

ncclResult_t gather_init(struct job *job, ncclComm_t *comm_p, int n,
                         const ncclUniqueId *id, int rank, bool blocking)
{
    struct gather *gather = gathers;
    struct ncclComm *comm;
    uint64_t number;
    int ordinal;

    if (!id_number(id, &number)) {
        report_error(NULL, "ncclCommInitRank: the id is none of this process");
        return ncclInvalidArgument;
    }
    if (device->device(&ordinal) != CUDA_SUCCESS) {
        report_error(NULL, "ncclCommInitRank: the thread has no context");
        return ncclUnhandledCudaError;
    }
    while (gather != NULL && (gather->parent != NULL || gather->id != number)) {
        gather = gather->next;
    }
    if (gather != NULL && (gather->n != n || gather->comers[rank].here)) {
        report("usage",
               gather->n != n ? "rank %d comes to a communicator of %d as one "
                                "of %d"
                              : "rank %d of %d has come already (of %d)",
               rank, gather->n, n);
        finish(gather, ncclInvalidUsage, report_last());
        return ncclInvalidUsage;
    }
    comm = comm_new(rank, n, ordinal);
    gather = gather != NULL || comm == NULL ? gather : make(n);
    if (comm == NULL || gather == NULL) {
        return ncclSystemError;
    }
    gather->id = number;
    comm->blocking = blocking;
    job->comm_p = comm_p;
    job->blocking = blocking;
    *comm_p = comm;
    arrive(gather, job, rank, comm);
    if (gather->n_here == n) {
        make_one(gather);
    }
    return ncclSuccess;
}

ncclResult_t gather_split(struct job *job, struct ncclComm *parent, int color,
                          int key, ncclComm_t *comm_p, bool blocking)
{
    const uint64_t number = ++parent->n_splits;
    struct gather *gather = gathers;
    struct ncclComm *comm = NULL;

    while (gather != NULL &&
           (gather->parent != parent->team || gather->number != number)) {
        gather = gather->next;
    }
    gather = gather != NULL ? gather : make(parent->n);
    if (color != NCCL_SPLIT_NOCOLOR) {
        comm = comm_new(0, parent->n, parent->device);
    }
    if (gather == NULL || (color != NCCL_SPLIT_NOCOLOR && comm == NULL)) {
        return ncclSystemError;
    }
    gather->parent = parent->team;
    gather->number = number;
    gather->comers[parent->rank].color = color;
    gather->comers[parent->rank].key = key;
    gather->comers[parent->rank].parent = comm_ref(parent);
    gather->comers[parent->rank].comm_p = comm_p;
    if (comm != NULL) {
        comm->blocking = blocking;
    }
    job->comm_p = comm_p;
    job->blocking = parent->blocking;
    *comm_p = NULL;
    if (!parent->blocking) {
        parent->async = ncclInProgress;
    }
    arrive(gather, job, parent->rank, comm);
    if (gather->n_here == gather->n) {
        make_colors(gather);
    }
    return ncclSuccess;
}

ncclResult_t gather_wait(struct job *job)
{
    struct gather *gather = job->gather;
    ncclResult_t result;

    while (job->blocking && !gather->done) {
        device->sleep();
    }
    result = gather->done ? gather->result : ncclInProgress;
    if (result == ncclSuccess) {
        device->hear(gather->word);
    } else if (result != ncclInProgress) {
        report_error(NULL, "%s", gather->why);
        if (job->comm != NULL && job->blocking) {
            *job->comm_p = NULL;
            comm_leave(job->comm);
        }
    }
    drop(gather);
    return result;
}

/* ---- not coming ---------------------------------------------------------- */

bool gathers_can_end(void)
{
    for (const struct gather *g = gathers; g != NULL; g = g->next) {
        if (g->parent == NULL) {
            return true; /* whoever is missing is not known */
        }
        for (int i = 0; i < g->n; i++) {
            const struct ncclComm *comm = g->parent->ranks[i];

            if (!g->comers[i].here && comm != NULL &&
                device->thread_is(comm->owner) == SOFTCUDA_THREAD_RUNS) {
                return true;
            }
        }
    }
    return false;
}

static void give_up(struct gather *gather, const char *why)
{
    char what[120], missing[200] = "";
    size_t n = 0;

    describe(gather, what, sizeof(what));
    for (int i = 0; i < gather->n && n < sizeof(missing); i++) {
        if (!gather->comers[i].here) {
            n += (size_t)snprintf(missing + n, sizeof(missing) - n, "%s%d",
                                  n > 0 ? ", " : "", i);
        }
    }
    report("deadlock", "%s %s: of its ranks %s never came", what, why, missing);
    finish(gather, ncclRemoteError, report_last());
}

void gathers_give_up(bool hopeless, uint64_t now_ms, uint64_t limit_ms)
{
    struct gather *next;

    for (struct gather *g = gathers; g != NULL; g = next) {
        next = g->next;
        if (hopeless) {
            give_up(g, "can never end");
        } else if (now_ms - g->began_ms > limit_ms) {
            give_up(g, "has waited too long");
        }
    }
}

void gathers_leave(const struct ncclComm *comm)
{
    struct gather *next;

    for (struct gather *g = gathers; g != NULL; g = next) {
        next = g->next;
        for (int i = 0; i < g->n; i++) {
            if (g->comers[i].comm == comm) {
                finish(g, ncclRemoteError, GATHER_ABORTED);
                break;
            }
        }
    }
}

void gathers_fail_of(const struct ncclComm *parent)
{
    struct gather *next;

    for (struct gather *g = gathers; g != NULL; g = next) {
        next = g->next;
        if (g->parent != NULL && g->parent == parent->team) {
            finish(g, ncclRemoteError, GATHER_ABORTED);
        }
    }
}
