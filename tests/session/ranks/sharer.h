/*
 * sharer.h - the smallest host of several ranks: each of its passes sums over
 * all of them.
 *
 * A pass of a segment copies its input to the buffer of its segment, direction
 * and slot, and there it becomes the sum of all ranks'.  The forward of
 * segment 0 reads what the microbatch was given, which differs between ranks
 * and steps; the others read what was before.  So each result is known, a pass
 * that was left out shows as an old one, and one that ran with other ranks in
 * another pass as a wrong one.  A backward goes the other way round.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef RANKS_SHARER_H
#define RANKS_SHARER_H

#include <graphhooks.h>
#include <graphhooks/offload.h>

#include "tests/nccl/ranks.h"

#define SHARER_SEGMENTS 2
#define SHARER_SLOTS 2
#define SHARER_FLOATS 64
#define SHARER_PASSES (2 * SHARER_SEGMENTS) /* of a microbatch */

struct sharer;

/* Of a host that captures by itself; sharer.objects counts its graphs. */
extern const gh_host_services sharer_captures;

struct sharer_options {
    const char *const *environment; /* NULL: waits 20 s for ranks */
    const gh_host_services *host;
    const gh_offload_desc *offload;
    uint32_t flags;
    const char *layer; /* the name of each; NULL: it has none */
    bool alone;      /* says no ranks */
    bool by_host;    /* brings words together itself */
    bool two_streams; /* that microbatches take in turn */
    bool fixed;      /* what a microbatch is given is GH_BUFFER_STATIC */
    /* In each pass that it runs or that is recorded, before its work; NULL:
     * nothing. */
    void (*mischief)(struct sharer *s, const gh_pass *pass,
                     const gh_decision *d);
};

struct sharer {
    struct rank *r;
    struct sharer_options options;
    gh_session *session;
    gh_ranks ranks; /* as said */
    CUdeviceptr memory;
    CUstream stream;   /* of the microbatch at hand */
    uint32_t step, slot; /* of the flight at hand, or the last */
    uint32_t floats;   /* of a pass, up to SHARER_FLOATS */
    uint32_t bank;
    ncclComm_t comm;   /* of the passes at hand: ranks in a row */
    int first, n;      /* the first of them, and how many they are */
    void *group;       /* gh_pass.group */
    uint64_t capacity; /* of an input, in bytes; 0: none */
    uint32_t moved;    /* 1: what microbatches are given is elsewhere */
    uint32_t variant;  /* of the passes of this rank */
    uint32_t pass_flags;
    bool mute;         /* brings no words together any more */
    uint32_t aborted;  /* times that the host was to abort */
    int objects;       /* graphs of the host's own that are there */
    uint32_t fails;    /* the launch of those that fails, from 1; 0: none */
    uint32_t refused, obeyed; /* calls that services made */
    bool lies;         /* compared passes find other numbers */
    bool cancels;      /* the next recording */
    uint32_t reruns, recorded, replayed, ran;
    gh_reason last;    /* why a pass ran last */
    gh_error err;
    char said[4096];   /* the log, where the host has none of its own */
};

/* A session on the rank's context, after one step of warmup.  False, and said,
 * where it does not open. */
bool sharer_open(struct sharer *s, struct rank *r,
                 const struct sharer_options *options);
/* The same before its ranks are said. */
bool sharer_open_alone(struct sharer *s, struct rank *r,
                       const struct sharer_options *options);
gh_status sharer_join(struct sharer *s);
void sharer_close(struct sharer *s);

/* One pass, until it need not run again. */
gh_status sharer_pass(struct sharer *s, uint32_t segment,
                      gh_direction direction, uint32_t microbatch);
/* Forward and backward of microbatches, one after the other, and the end.  The
 * results are not waited for. */
gh_status sharer_step(struct sharer *s, uint32_t microbatches);
/* A step of one microbatch, waited for: whether its results are right. */
bool sharer_is_exact(struct sharer *s);
/* Whether those of the last step are. */
bool sharer_was_exact(struct sharer *s);

gh_stats sharer_stats(struct sharer *s);
uint64_t sharer_eager(struct sharer *s, gh_reason reason);
bool sharer_said(const struct sharer *s, const char *words);

#endif
