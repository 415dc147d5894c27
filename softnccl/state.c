/*
 * state.c - communicators: their ranks, and what each rank has issued.
 *
 * The handle of a destroyed communicator stays known for a while, so that its
 * use returns an error instead of crashing.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softnccl/state.h"

#include "softnccl/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_GONE = 64
};

const softcuda_collective_calls *device;

static struct ncclComm *comms; /* that live */
static const struct ncclComm *gone[MAX_GONE];
static uint32_t n_gone, n_teams;

static const char *const kind_names[N_KINDS] = {
    "all-reduce", "all-gather", "reduce-scatter", "broadcast",
    "all-to-all", "send",       "receive",
};

static bool is_gone(const struct ncclComm *comm)
{
    for (uint32_t i = 0; i < n_gone && i < MAX_GONE; i++) {
        if (gone[i] == comm) {
            return true;
        }
    }
    return false;
}

ncclResult_t comm_check(struct ncclComm *comm, const char *what)
{
    struct ncclComm *c = comms;

    if (comm == NULL) {
        report_error(NULL, "%s: comm is NULL", what);
        return ncclInvalidArgument;
    }
    while (c != NULL && c != comm) {
        c = c->next;
    }
    if (c == NULL) {
        report_error(NULL, "%s: the communicator is %s", what,
                     is_gone(comm) ? "destroyed or aborted" : "none");
        return is_gone(comm) ? ncclInvalidUsage : ncclInvalidArgument;
    }
    comm->owner = device->thread();
    return ncclSuccess;
}

ncclResult_t comm_usable(struct ncclComm *comm, const char *what)
{
    ncclResult_t result = comm_check(comm, what);

    if (result != ncclSuccess) {
        return result;
    }
    if (comm->async == ncclInProgress) {
        report_error(comm, "%s: not all ranks of the communicator have come",
                     what);
        return ncclInvalidArgument;
    }
    if (comm->async != ncclSuccess) {
        return comm->async;
    }
    if (comm->finalized) {
        report_error(comm, "%s: communicator %u is finalized", what,
                     comm->team->number);
        return ncclInvalidUsage;
    }
    return ncclSuccess;
}

struct ncclComm *comm_new(int rank, int n, int ordinal)
{
    struct ncclComm *comm = calloc(1, sizeof(*comm));

    if (comm == NULL) {
        return NULL;
    }
    comm->n_sent = calloc((size_t)n, sizeof(*comm->n_sent));
    comm->n_received = calloc((size_t)n, sizeof(*comm->n_received));
    comm->seat = device->seat();
    if (comm->n_sent == NULL || comm->n_received == NULL ||
        comm->seat == NULL) {
        comm->refs = 1;
        comm_drop(comm);
        return NULL;
    }
    comm->refs = 1;
    comm->live = true;
    comm->blocking = true;
    comm->rank = rank;
    comm->n = n;
    comm->device = ordinal;
    comm->async = ncclInProgress;
    comm->owner = device->thread();
    comm->next = comms;
    comms = comm;
    return comm;
}

struct ncclComm *comm_ref(struct ncclComm *comm)
{
    comm->refs++;
    return comm;
}

void comm_drop(struct ncclComm *comm)
{
    if (--comm->refs != 0) {
        return;
    }
    if (comm->team != NULL && --comm->team->refs == 0) {
        free(comm->team->ranks);
        free(comm->team);
    }
    device->seat_free(comm->seat);
    free(comm->n_sent);
    free(comm->n_received);
    free(comm);
}

void comm_leave(struct ncclComm *comm)
{
    for (struct ncclComm **c = &comms; *c != NULL; c = &(*c)->next) {
        if (*c == comm) {
            *c = comm->next;
            break;
        }
    }
    gone[n_gone++ % MAX_GONE] = comm;
    comm->live = false;
    if (comm->team != NULL) {
        comm->team->ranks[comm->rank] = NULL;
    }
    comm_drop(comm);
}

const char *comm_name(struct ncclComm *comm, enum kind kind)
{
    /* Ranks of communicators come and go; their names are few. */
    static char *names[1024];
    static uint32_t n_names;
    char text[80];

    if (comm->names[kind] != NULL) {
        return comm->names[kind];
    }
    snprintf(text, sizeof(text), "%s of communicator %u, rank %d",
             kind_names[kind], comm->team->number, comm->rank);
    for (uint32_t i = 0; i < n_names; i++) {
        if (strcmp(names[i], text) == 0) {
            return comm->names[kind] = names[i];
        }
    }
    if (n_names == 1024 || (names[n_names] = strdup(text)) == NULL) {
        return comm->names[kind] = kind_names[kind];
    }
    return comm->names[kind] = names[n_names++];
}

uint64_t comms_live(void)
{
    uint64_t n = 0;

    for (const struct ncclComm *c = comms; c != NULL; c = c->next) {
        n++;
    }
    return n;
}

struct ncclComm *comm_nth(uint64_t i)
{
    struct ncclComm *c = comms;

    while (c != NULL && i-- > 0) {
        c = c->next;
    }
    return c;
}

struct team *team_new(uint32_t number, int n)
{
    struct team *team = calloc(1, sizeof(*team));

    if (team == NULL) {
        return NULL;
    }
    team->ranks = calloc((size_t)n, sizeof(*team->ranks));
    if (team->ranks == NULL) {
        free(team);
        return NULL;
    }
    team->number = number;
    team->n = n;
    return team;
}

void team_break(struct team *team, ncclResult_t result, const char *text)
{
    if (team->broken == ncclSuccess) {
        team->broken = result;
    }
    for (int i = 0; i < team->n; i++) {
        struct ncclComm *comm = team->ranks[i];

        if (comm != NULL && comm->async == ncclSuccess) {
            comm->async = result;
            snprintf(comm->error, sizeof(comm->error), "%s", text);
        }
    }
    device->news();
}

uint32_t team_number(void)
{
    return ++n_teams;
}

void teams_forget(void)
{
    n_teams = 0;
}
