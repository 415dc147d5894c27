/*
 * state.h - all that an offload keeps, and the pass that it is called in.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_OFFLOAD_STATE_H
#define GH_OFFLOAD_STATE_H

#include "base/log.h"
#include "device/spans.h"
#include "offload/groups/loans.h"
#include "offload/groups/step.h"
#include "offload/groups/table.h"
#include "plan/plan.h"
#include "plan/policy.h"

struct gh_offload_options {
    uint32_t modules;         /* GH_MODULE_* that go */
    uint32_t named;           /* bit n: the host's own module n goes */
    const char *const *names; /* of those; they outlive the session */
    uint32_t n_names;
    double fraction;
    bool hides; /* fraction=auto */
    uint64_t min_bytes;
    uint64_t keep_bytes; /* of each chunk */
    uint32_t buffers;    /* of each ring */
    uint64_t pool_bytes; /* 0: no limit */
    uint32_t prefetch;   /* groups that come back ahead; 0: all that the rings
                            have room for */
    uint32_t in_flight;  /* most copies out of a ring at once; 0: no limit */
    double link_rate;    /* bytes in a microsecond; 0: what is measured */
    uint32_t max_slots;
    bool delay;
    bool apart; /* no copy out begins while an exchange is under way */
};

struct gh_exchanges;
struct gh_measure;

struct gh_offload {
    struct gh_offload_options options;
    const struct gh_plan *plan;
    const struct gh_log *log;
    struct gh_device *dev;
    struct gh_memory *memory;
    struct gh_table table;
    struct gh_pinned pinned;
    struct gh_loans loans;
    void *out, *back;           /* the streams of the two ways */
    void *exchanged;            /* an event: the last exchange; NULL: none was
                                   issued that copies wait for */
    bool behind;                /* the next copy out waits for it */
    bool profiled;              /* the first step is over: fates are final */
    bool cut_short;             /* a step that was to be the profile */
    bool wipes;                 /* see gh_move_discard() */
    bool checks;                /* GRAPHHOOKS_CHECK=bitwise */
    uint32_t spoilt;            /* times; see gh_offload_spoil() */
    struct gh_instance *newest; /* in the order of commits */
    struct gh_instance *first_queued, *last_queued;
    bool trains;         /* a pass of this step has a backward */
    bool trains_without; /* a step of such passes has offloaded nothing */
    uint32_t n_committed; /* groups, in the profile */
    uint32_t in_flight;  /* microbatches, as declared; 0: not */
    bool pool_said;
    struct gh_spans *spans;         /* of the trace; NULL: none */
    struct gh_measure *measure;     /* NULL: nothing is measured */
    struct gh_exchanges *exchanges; /* NULL: none is compared */
    uint64_t profile_steps;         /* that had ended when it was decided */
    uint32_t decided_steps;         /* that have ended since */
    uint64_t shown_steps;           /* that have shown all groups */
    struct gh_forecast forecast;
    gh_offload_stats stats;
};

/* The pass that a call is made in. */
struct gh_offload_at {
    uint32_t chunk, slot, microbatch;
    uint64_t pass; /* its number */
    void *stream;  /* where its work is issued */
    bool forward_only;
    bool paused;   /* the host warms up: everything stays */
    bool prepares; /* it is recorded, and launched by a later pass */
    bool compares; /* its results are compared with those of a graph */
};

/* "layer 3, core_attn" */
struct gh_group_name {
    char text[80];
};
struct gh_group_name gh_group_name(const struct gh_offload *offload,
                                   uint32_t layer, uint32_t module);

#endif
