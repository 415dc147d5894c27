/*
 * overlap.h - what bench/overlap measures, for its report.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_OVERLAP_H
#define BENCH_OVERLAP_H

#include "bench/experts.h"

/* Products in a node, of every direction, and how large the exchanges are. */
struct shape {
    const char *name;
    int before, experts;
    double ratio; /* communication over compute that is aimed at */
    uint32_t layers;
    bool uneven; /* one rank's experts have most of all tokens */
};

enum overlap_way { WAY_COMPUTE, WAY_COMM, WAY_OFF, WAY_FIXED, WAY_AUTO, WAYS };

/* One way of running the step, with graphs or without. */
struct mode {
    enum overlap_way way;
    bool graphs;
    double *pair, *host, *step; /* by round */
    gh_overlap_stats stats;
    uint64_t hash; /* of the gradients of the weights; 0: nothing is computed
                      or nothing exchanged */
};

enum { MODES = 2 * WAYS - 1 }; /* what only communicates has no graphs */

struct measured {
    const struct shape *shape;
    const char *by; /* whom the exchanges are with, or who moves them */
    bool equal;     /* every order leaves the same numbers */
    uint32_t layers, microbatches;
    int rounds;
    uint64_t exchange_bytes; /* each way */
    struct mode modes[MODES];
    double nodes[EXPERTS_DIRECTIONS][STAGES]; /* each alone, with graphs */
    struct experts_timeline fixed, found;     /* with graphs */
};

const char *way_name(enum overlap_way way);
void report_shape(FILE *file, const struct measured *m, bool first);
/* The lines that bench/scale reads. */
void report_costs(FILE *file, const struct measured *m);

#endif
