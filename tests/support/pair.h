/*
 * pair.h - a host with experts, that runs chunks in pairs.
 *
 * On the device of a toy.  Every part computes y = 3 x + k forward; backward a
 * part on the compute lane gives gx = 5 gy + x, and an exchange gx = 5 gy.
 * Parts with weights set w = 3 w + gy + x, which depends on the order in which
 * microbatches come.  The router leaves a residual 7 x + 1 for the part that
 * ends the layer.  With `offload` a part keeps groups of tensors t = x + k: y
 * has t more, gx too, and w the first group's.  Where a depth of prediction
 * begins, the host makes its input 11 x + 13 itself, outside of every part.
 * What node->release lists is overwritten on the node's stream at once, so that
 * a release before the last reader shows.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SUPPORT_PAIR_H
#define SUPPORT_PAIR_H

#include "support/toy.h"

#define PAIR_MAX_LAYERS 6
#define PAIR_MAX_SETS (4 + 8) /* slots, and microbatches without one */
#define PAIR_MAX_CHUNKS 2
#define PAIR_MAX_PARTS (7 * PAIR_MAX_LAYERS)
#define PAIR_MAX_MICROBATCHES 8

struct pair;

struct pair_options {
    gh_layer_kind kinds[PAIR_MAX_LAYERS];
    uint32_t layers, chunks; /* chunks 0: 1 */
    uint32_t depths; /* bit n: a depth of prediction begins with layer n */
    const char *family;      /* of every layer; NULL: none */
    const char *scope, *granularity;
    const char *order; /* GRAPHHOOKS_OVERLAP; NULL: unset */
    bool delay_wgrad;
    bool early;          /* GH_OVERLAP_EARLY_RELEASE */
    bool own_comm;       /* a stream of the host's; else the session's */
    bool legacy;         /* computes on the legacy stream */
    bool no_agree;
    bool apart;          /* forward and backward in runs of their own */
    bool offload;        /* groups, from 4 bytes */
    bool later;          /* GRAPHHOOKS_OFFLOAD_DELAY=1 */
    bool behind;         /* GRAPHHOOKS_OFFLOAD_APART=1 */
    bool lends;          /* what experts read is a group, in memory of the
                            host's own */
    uint32_t words;      /* of a group's tensor; 0: 4 */
    const char *fraction; /* NULL: 1 */
    /* What an exchange does besides; NULL: nothing. */
    void (*exchange)(struct pair *p, CUstream stream, bool forward);
    /* Before a node is issued, and behind it; NULL: nothing. */
    void (*watch)(struct pair *p, const gh_overlap_node *node, bool issued);
    bool quiet;          /* GRAPHHOOKS_LOG=off */
    bool told;           /* GRAPHHOOKS_LOG=info */
    const char *trace;   /* "GRAPHHOOKS_TRACE=FILE"; NULL: none */
    bool disabled;       /* GRAPHHOOKS_ENABLE=0 */
    bool check;          /* GRAPHHOOKS_CHECK=bitwise; with delay_wgrad, as a
                            backward that adds to weights cannot run twice */
    void (*log)(void *user, gh_log_level level, const char *line);
    double (*time_of)(uint32_t cell); /* what agree makes of a number */
    /* Or of all of them. */
    void (*change)(double *numbers, uint32_t n);
    gh_status agree_answer;           /* and returns, without a word */
    bool no_error;                    /* gh_overlap_run has a NULL for it */
};

/* What the host does wrong in one node. */
enum pair_mischief {
    PAIR_GOOD,
    PAIR_FAILS,        /* with a sentence */
    PAIR_FAILS_MUTE,   /* without one */
    PAIR_LEAVES_OPEN,  /* a pass */
    PAIR_FAILS_INSIDE, /* with a pass open */
    PAIR_RERUNS,       /* returns GH_RERUN */
    PAIR_NESTS,        /* runs another pair */
    PAIR_ENDS_STEP,
    PAIR_SUSPENDS
};

struct pair {
    struct toy toy;
    struct pair_options options;
    CUdeviceptr memory;
    uint64_t memory_bytes;
    CUstream comm;
    uint32_t n_parts;
    gh_part parts[PAIR_MAX_PARTS];
    uint32_t layer_of[PAIR_MAX_PARTS];
    uint32_t first[PAIR_MAX_LAYERS + 1]; /* part of each layer */
    gh_segment segments[PAIR_MAX_PARTS];
    uint32_t n_segments;
    uint32_t set_of[PAIR_MAX_CHUNKS][PAIR_MAX_MICROBATCHES];
    CUdeviceptr kept[PAIR_MAX_SETS][PAIR_MAX_PARTS][2]; /* where groups are */
    struct lent_block *lent[PAIR_MAX_SETS][PAIR_MAX_PARTS];
    uint32_t foreign; /* releases of what a depth is made of, which the host
                         may read elsewhere */
    uint32_t skipped; /* releases of what offload gives back */
    void *user;
    uint32_t released, nodes, agreed, agreed_n;
    uint32_t until_mischief; /* nodes */
    enum pair_mischief mischief;
    char issued[4096]; /* the nodes of the last run: "B2.3 F0.0" */
    uint32_t weights[PAIR_MAX_PARTS]; /* expected */
};

/* False with the reason for skip_all(). */
bool pair_open(struct pair *p, const struct pair_options *options,
               const char **reason_p);
gh_status pair_attach(struct pair *p);
/* Both, with these settings of the device in between, or NULL.  False: a point
 * that has failed says why, and nothing is open. */
bool pair_start(struct pair *p, const struct pair_options *options,
                const char *settings);
void pair_close(struct pair *p);

gh_status pair_step(struct pair *p, uint32_t microbatches);
/* One for each count of microbatches, until one fails. */
gh_status pair_train(struct pair *p, const uint32_t *counts, uint32_t n);
/* One run; a chunk UINT32_MAX is absent. */
gh_status pair_run(struct pair *p, uint32_t forward, uint32_t forward_m,
                   uint32_t backward, uint32_t backward_m);
/* A node outside of any run. */
gh_status pair_issue(struct pair *p, const gh_overlap_node *node);
/* The input and the gradient of the output of a microbatch. */
bool pair_feed(struct pair *p, uint32_t microbatch);
/* Zeroes all of the host's memory, on the compute stream. */
bool pair_clear(struct pair *p);
/* Whether every weight is what it must be; waits for the device. */
bool pair_is_exact(struct pair *p);
gh_overlap_stats pair_stats(struct pair *p);

#endif
