/*
 * match.h - matches the operations of different ranks with each other.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTNCCL_MATCH_H
#define SOFTNCCL_MATCH_H

#include "softnccl/state.h"

/* Operations that one rank issues on one stream together: those of a group.
 * When captured they are one node. */
struct call {
    softcuda_call base;
    struct ncclComm *comm;
    bool captured;
    uint32_t n;
    struct item items[];
};

/* One rank's part in a matched operation. */
struct part {
    struct ncclComm *comm; /* NULL: the rank has not come */
    const struct item *item;
    bool in_graph;
};

/* An operation that waits for ranks, or is being executed. */
struct match {
    struct match *next;
    struct team *team;
    int from, to;    /* of a send; -1: a collective */
    uint64_t number; /* from 1 */
    uint64_t began_ms;
    softcuda_rendezvous *rendezvous;
    bool failed;
    char why[256]; /* why it is to be given up; "": it is not */
    uint32_t places, here;
    struct part parts[];
};

/* NULL when there is no memory. */
struct call *call_new(struct ncclComm *comm, uint32_t room);

/* The list of operations that are waiting, and their number. */
struct match *matches_first(void);
uint64_t matches_waiting(void);
/* "all-reduce 5 of communicator 2" */
void match_describe(const struct match *match, char *text, size_t bytes);
/* The rank of a place in match->parts. */
int match_rank(const struct match *match, uint32_t place);
/* Gives the operation up: the ranks that came to it go on, and the match is
 * freed when they have. */
void match_fail(struct match *match);
/* Gives up every operation in which the rank takes part. */
void matches_fail_of(const struct ncclComm *comm);

#endif
