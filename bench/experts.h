/*
 * experts.h - a host whose layers have experts, for the benches of overlap.
 *
 * It runs chunks in pairs through gh_overlap_run() and brackets what is issued
 * for a node; what that is, a bench gives.  A step is the forward of its first
 * microbatch, then pairs of the forward of one and the backward of the one
 * before, then the backward of the last.  Each run begins with an idle device
 * and is timed by itself.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_EXPERTS_H
#define BENCH_EXPERTS_H

#include "bench/bench.h"

enum {
    EXPERTS_SLOTS = 2,               /* microbatches in flight */
    EXPERTS_SETS = 2 * EXPERTS_SLOTS, /* one more for each without a slot */
    EXPERTS_LAYERS = 16,             /* at most */
    EXPERTS_DIRECTIONS = 3           /* by gh_direction */
};

/* The nodes of a layer; gh_overlap_node.node. */
enum stage {
    STAGE_BEFORE, /* attention, router, preprocess */
    STAGE_DISPATCH,
    STAGE_EXPERTS,
    STAGE_COMBINE,
    STAGE_AFTER,
    STAGES
};

struct experts_node {
    gh_direction direction;
    enum stage stage;
    uint32_t layer;
    uint32_t set; /* of buffers */
    uint32_t microbatch;
    CUstream stream;
};

/* What a bench gives. */
struct experts_work {
    void (*issue)(void *user, const struct experts_node *node);
    /* What the node reads, or writes; always at the same address. */
    gh_buffer (*buffer)(void *user, const struct experts_node *node,
                        bool output);
    void *user;
    /* Of several ranks; NULL: of one. */
    void (*wait)(void *user); /* for all that was issued, and the others */
    void (*agree)(void *user, double *ns, uint32_t n);
};

struct experts_options {
    uint32_t layers;
    const char *order; /* GRAPHHOOKS_OVERLAP */
    bool graphs; /* of what comes before a dispatch; else no pass is entered,
                    and the library's part is the order */
};

/* When the nodes of a run of both chunks were on the device, in nanoseconds
 * from its beginning. */
struct experts_span {
    struct experts_node node;
    double begin, end;
};
struct experts_timeline {
    CUevent *events; /* two for each span */
    struct experts_span *spans;
    uint32_t n, room;
};

struct experts {
    const struct bench *bench;
    struct experts_work work;
    struct experts_options options;
    gh_session *session;
    CUevent begins, ends;
    uint32_t sets[EXPERTS_SLOTS]; /* by microbatch, modulo */
    uint32_t n_segments;
    gh_segment *segments;
    struct experts_timeline *timeline; /* NULL: nodes are not measured */
    gh_overlap_stats stats;            /* of the last run of both chunks */
};

/* Of one step, in nanoseconds. */
struct experts_times {
    double pair; /* the device's, of a run of both chunks; the mean of them */
    double host; /* until that run returns */
    double step; /* the device's, of all runs together */
};

void experts_open(struct experts *e, const struct bench *bench,
                  const struct experts_work *work,
                  const struct experts_options *options);
void experts_close(struct experts *e);

/* Two microbatches or more. */
struct experts_times experts_step(struct experts *e, uint32_t microbatches);
/* A step whose last run of both chunks is written down. */
void experts_trace(struct experts *e, uint32_t microbatches,
                   struct experts_timeline *timeline);
void experts_timeline_free(const struct bench *bench,
                           struct experts_timeline *timeline);
/* Until graphs are recorded and, where they are needed, times are known. */
void experts_warm_up(struct experts *e, uint32_t microbatches);

#endif
