/*
 * match.c - matches the operations of different ranks with each other.
 *
 * Collectives are matched by their number in the communicator, sends and
 * receives by their number between the two ranks.  Both are counted when they
 * are issued, or launched with their graph.  The first rank to come defines the
 * operation; a rank whose operation differs from it is reported.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softnccl/match.h"

#include "softnccl/move.h"
#include "softnccl/report.h"
#include "softnccl/types.h"

#include <stdio.h>
#include <stdlib.h>

static struct match *matches;

static const char *const names[N_KINDS] = {
    "all-reduce", "all-gather", "reduce-scatter", "broadcast",
    "all-to-all", "send",       "receive",
};

struct match *matches_first(void)
{
    return matches;
}

uint64_t matches_waiting(void)
{
    uint64_t n = 0;

    for (const struct match *m = matches; m != NULL; m = m->next) {
        n++;
    }
    return n;
}

int match_rank(const struct match *match, uint32_t place)
{
    return match->from < 0 ? (int)place : place == 0 ? match->from : match->to;
}

static const struct part *first_part(const struct match *match)
{
    uint32_t i = 0;

    while (match->parts[i].comm == NULL) {
        i++;
    }
    return &match->parts[i];
}

void match_describe(const struct match *match, char *text, size_t bytes)
{
    if (match->from >= 0) {
        snprintf(text, bytes,
                 "send %llu from rank %d to rank %d of communicator %u",
                 (unsigned long long)match->number, match->from, match->to,
                 match->team->number);
        return;
    }
    snprintf(text, bytes, "%s %llu of communicator %u",
             names[first_part(match)->item->kind],
             (unsigned long long)match->number, match->team->number);
}

static void unlink_match(const struct match *match)
{
    for (struct match **m = &matches; *m != NULL; m = &(*m)->next) {
        if (*m == match) {
            *m = match->next;
            return;
        }
    }
}

static void over(void *user, bool held)
{
    struct match *match = user;
    struct team *team = match->team;
    char text[200];

    if (!held && !match->failed) {
        match_describe(match, text, sizeof(text));
        team_break(team, ncclUnhandledCudaError,
                   report("memory",
                          "%s found an address that is not memory of the "
                          "rank's device, or a device that is lost",
                          text));
    }
    unlink_match(match);
    for (uint32_t i = 0; i < match->places; i++) {
        if (match->parts[i].comm != NULL) {
            comm_drop(match->parts[i].comm);
        }
    }
    device->rendezvous_drop(match->rendezvous);
    free(match);
}

static bool run(void *user, softcuda_rendezvous *rendezvous, uint64_t *bytes_p)
{
    return move_match(user, rendezvous, bytes_p);
}

void match_fail(struct match *match)
{
    if (!match->failed) {
        match->failed = true;
        device->fail(match->rendezvous);
    }
}

static bool is_of(const struct match *match, const struct ncclComm *comm)
{
    for (uint32_t i = 0; i < match->places; i++) {
        if (match->team == comm->team && match_rank(match, i) == comm->rank) {
            return true;
        }
    }
    return false;
}

void matches_fail_of(const struct ncclComm *comm)
{
    for (struct match *m = matches; m != NULL; m = m->next) {
        if (is_of(m, comm)) {
            match_fail(m);
        }
    }
}

/* ---- coming -------------------------------------------------------------- */

static struct match *find(const struct team *team, int from, int to,
                          uint64_t number)
{
    struct match *m = matches;

    while (m != NULL && (m->team != team || m->from != from || m->to != to ||
                         m->number != number)) {
        m = m->next;
    }
    return m;
}

static struct match *make(struct team *team, int from, int to, uint64_t number,
                          enum kind kind)
{
    const uint32_t places = from < 0 ? (uint32_t)team->n : 2;
    struct match *match =
        calloc(1, sizeof(*match) + places * sizeof(match->parts[0]));

    if (match == NULL) {
        abort(); /* half a rendezvous cannot be held */
    }
    match->team = team;
    match->from = from;
    match->to = to;
    match->number = number;
    match->places = places;
    match->began_ms = device->now_ms();
    match->rendezvous = device->rendezvous(from < 0 ? names[kind] : "send",
                                           places, run, over, match);
    match->next = matches;
    matches = match;
    return match;
}

static void say_item(const struct part *part, char *text, size_t bytes)
{
    const struct item *item = part->item;
    const char *op = item->kind == ALL_REDUCE || item->kind == REDUCE_SCATTER
                         ? op_name(item->op)
                         : NULL;
    char root[24] = "";

    if (item->kind == BROADCAST) {
        snprintf(root, sizeof(root), ", root %d", item->peer);
    }
    snprintf(text, bytes, "%s (%zu %s%s%s%s)", names[item->kind], item->count,
             type_name(item->type), op != NULL ? ", " : "",
             op != NULL ? op : "", root);
}

static bool agree(const struct item *a, const struct item *b)
{
    if ((a->kind == SEND) != (b->kind == SEND) &&
        (a->kind == RECV) != (b->kind == RECV)) {
        return a->count * type_bytes(a->type) == b->count * type_bytes(b->type);
    }
    return a->kind == b->kind && a->count == b->count && a->type == b->type &&
           a->op == b->op && (a->kind != BROADCAST || a->peer == b->peer);
}

/* Two parts of one operation that are not the same: no operation of the
 * communicator works any more, this one among them. */
static void check(struct match *match, const struct part *a,
                  const struct part *b)
{
    char first[120], second[120], what[200];
    const char *text;

    if (agree(a->item, b->item)) {
        if (a->in_graph == b->in_graph) {
            return;
        }
        match_describe(match, what, sizeof(what));
        text = report("capture",
                      "rank %d launches %s in a graph, rank %d issues it "
                      "eagerly; all ranks capture an operation, or none",
                      a->in_graph ? a->comm->rank : b->comm->rank, what,
                      a->in_graph ? b->comm->rank : a->comm->rank);
    } else if (match->from >= 0) {
        const bool sends = a->item->kind == SEND;
        const struct part *s = sends ? a : b, *r = sends ? b : a;

        match_describe(match, what, sizeof(what));
        text = report("mismatch",
                      "%s: rank %d sends %zu %s, rank %d receives "
                      "%zu %s",
                      what, s->comm->rank, s->item->count,
                      type_name(s->item->type), r->comm->rank, r->item->count,
                      type_name(r->item->type));
    } else {
        say_item(a, first, sizeof(first));
        say_item(b, second, sizeof(second));
        text = report("mismatch",
                      "operation %llu of communicator %u: rank %d is in "
                      "%s, rank %d in %s",
                      (unsigned long long)match->number, match->team->number,
                      b->comm->rank, second, a->comm->rank, first);
    }
    team_break(match->team, ncclInvalidUsage, text);
}

static void come_to(struct call *call, const struct item *item,
                    softcuda_visit *visit, bool in_graph)
{
    struct ncclComm *comm = call->comm;
    int from = -1, to = -1;
    uint32_t place = (uint32_t)comm->rank;
    uint64_t number;
    struct match *match;
    struct part *part;

    if (item->kind == SEND) {
        from = comm->rank, to = item->peer, place = 0;
        number = ++comm->n_sent[to];
    } else if (item->kind == RECV) {
        from = item->peer, to = comm->rank, place = 1;
        number = ++comm->n_received[from];
    } else {
        number = ++comm->n_collectives;
    }
    match = find(comm->team, from, to, number);
    if (match == NULL) {
        match = make(comm->team, from, to, number, item->kind);
    }
    part = &match->parts[place];
    part->comm = comm_ref(comm);
    part->item = item;
    part->in_graph = in_graph;
    for (uint32_t i = 0; i < match->places; i++) {
        if (i != place && match->parts[i].comm != NULL && !match->failed) {
            check(match, &match->parts[i], part);
            break;
        }
    }
    match->here++;
    device->join(match->rendezvous, place, visit);
    if (comm->team->broken != ncclSuccess) {
        match_fail(match);
    }
}

/* A launch of a graph whose communicator is gone meets nobody. */
static void come(softcuda_call *base, softcuda_visit *visit, bool in_graph)
{
    struct call *call = (struct call *)(void *)base;

    if (!call->comm->live) {
        report("usage",
               "a graph with %s is launched, and that communicator is "
               "destroyed; destroy graphs before communicators",
               base->name);
        return;
    }
    call->comm->owner = device->thread();
    for (uint32_t i = 0; i < call->n; i++) {
        come_to(call, &call->items[i], visit, in_graph);
    }
}

static void call_free(softcuda_call *base)
{
    struct call *call = (struct call *)(void *)base;

    call->comm->captured -= call->captured;
    comm_drop(call->comm);
    free(call);
}

struct call *call_new(struct ncclComm *comm, uint32_t room)
{
    struct call *call =
        calloc(1, sizeof(*call) + room * sizeof(call->items[0]));

    if (call != NULL) {
        call->base.refs = 1;
        call->base.free = call_free;
        call->base.seat = comm->seat;
        call->base.come = come;
        call->comm = comm_ref(comm);
    }
    return call;
}
