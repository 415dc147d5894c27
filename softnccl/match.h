/*
 * match.h - which operation of one rank is which of another.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTNCCL_MATCH_H
#define SOFTNCCL_MATCH_H

#include "softnccl/state.h"

/* What one rank puts on one stream at once; a node, when it is captured. */
struct call {
    softcuda_call base;
    struct ncclComm *comm;
    bool captured;
    uint32_t n;
    struct item items[];
};

/* One rank's part of a meeting. */
struct part {
    struct ncclComm *comm; /* NULL: has not come */
    const struct item *item;
    bool in_graph;
};

/* An operation that waits for ranks, or is being done. */
struct match {
    struct match *next;
    struct team *team;
    int from, to;    /* of a send; -1: a collective */
    uint64_t number; /* from 1 */
    uint64_t began_ms;
    softcuda_meeting *meeting;
    bool failed;
    char why[256]; /* it is to be given up; or empty */
    uint32_t places, here;
    struct part parts[];
};

/* NULL when there is no memory. */
struct call *call_new(struct ncclComm *comm, uint32_t room);

/* All that are waiting. */
struct match *matches_first(void);
uint64_t matches_waiting(void);
/* "all-reduce 5 of communicator 2" */
void match_describe(const struct match *match, char *text, size_t bytes);
/* The rank whose place that is. */
int match_rank(const struct match *match, uint32_t place);
/* It will not happen; those who came to it go on.  The match is gone soon. */
void match_fail(struct match *match);
/* Every one that the rank has part in fails. */
void matches_fail_of(const struct ncclComm *comm);

#endif
