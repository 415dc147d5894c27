/*
 * offload.h - activations on their way to the host's memory and back.
 *
 * lib/capture is the caller; nothing here knows what a graph holds besides
 * the nodes that it asks for.  A pass that runs eagerly calls save, commit,
 * load and release, and each does what it says.  A pass that is recorded
 * calls the same, which then put event nodes into the graph and write down
 * what was asked for; gh_offload_before() and gh_offload_after() do that around
 * every launch of the graph.
 *
 *     forward   wait read ── write ── record filled        (in the graph)
 *     out                                └─ copy ─ record read, copied
 *     back      wait copied, read ─ copy ─ record filled, copied
 *     backward                               └─ wait filled ── read ── record read
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_OFFLOAD_OFFLOAD_H
#define GH_OFFLOAD_OFFLOAD_H

#include "base/log.h"
#include "device/spans.h"
#include "offload/loans.h"
#include "offload/step.h"
#include "offload/table.h"
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
    void *out, *back;             /* the streams of the two ways */
    bool profiled;                /* the first step is over: fates are final */
    bool cut_short;               /* a step that was to be the profile */
    bool wipes;                   /* see gh_move_discard() */
    bool checks;                  /* GRAPHHOOKS_CHECK=bitwise */
    uint32_t spoilt;              /* times; see gh_offload_spoil() */
    struct gh_instance *newest;   /* in the order of commits */
    struct gh_instance *first_queued, *last_queued;
    bool trains;         /* a pass of this step has a backward */
    bool trains_without; /* a step of such passes has offloaded nothing */
    uint32_t places;              /* given to groups, in the profile */
    uint32_t in_flight;           /* microbatches, as declared; 0: not */
    bool pool_said;
    struct gh_spans *spans; /* of the trace; NULL: none */
    struct gh_measure *measure; /* NULL: nothing is measured */
    struct gh_exchanges *exchanges; /* NULL: none is compared */
    uint64_t profile_steps;     /* that had ended when it was settled */
    uint32_t settled_steps;     /* that have ended since */
    uint64_t shown_steps;       /* that have shown all groups */
    struct gh_forecast forecast;
    gh_offload_stats stats;
};

/* declare.c: settles by what a host declares, without a profile. */
gh_status gh_offload_settle_declared(struct gh_offload *offload,
                                     const gh_offload_declared *groups,
                                     uint32_t n, uint32_t in_flight,
                                     gh_error *err);
/* Why a declared group stays; NULL: it goes. */
const char *gh_offload_why_stays(const struct gh_offload *offload,
                                 const gh_offload_declared *group);

/* The pass that a call is made in. */
struct gh_offload_at {
    uint32_t chunk, slot, microbatch;
    uint64_t pass; /* its number */
    void *stream;  /* where its work is issued */
    bool forward_only;
    bool paused; /* the host warms up: everything stays */
    bool prepares; /* it is recorded, and launched by a later pass */
    bool compares; /* its results are compared with those of a graph */
};

gh_status gh_offload_create(const struct gh_offload_options *options,
                            const struct gh_plan *plan, struct gh_device *dev,
                            struct gh_memory *memory, const struct gh_log *log,
                            struct gh_offload **offload_p, gh_error *err);
/* Waits until all copies have ended, and ends every loan. */
void gh_offload_rest(struct gh_offload *offload);
/* Rests.  NULL is allowed. */
void gh_offload_destroy(struct gh_offload *offload);

/* "layer 3, core_attn" */
struct gh_group_name {
    char text[80];
};
struct gh_group_name gh_group_name(const struct gh_offload *offload,
                                   uint32_t layer, uint32_t module);

/* live_save.c, live_load.c: of a pass that runs eagerly.  script.c: the same of
 * one that is recorded, which `script` belongs to. */
gh_status gh_offload_save_live(struct gh_offload *offload,
                               const struct gh_offload_at *at,
                               gh_offload_group *wanted, gh_error *err);
gh_status gh_offload_commit_live(struct gh_offload *offload,
                                 const struct gh_offload_at *at, uint32_t layer,
                                 uint32_t module, gh_error *err);
gh_status gh_offload_load_live(struct gh_offload *offload,
                               const struct gh_offload_at *at,
                               gh_offload_group *wanted, gh_error *err);
gh_status gh_offload_release_live(struct gh_offload *offload,
                                  const struct gh_offload_at *at,
                                  uint32_t layer, uint32_t module,
                                  gh_error *err);

gh_status gh_offload_save_recorded(struct gh_offload *offload,
                                   const struct gh_offload_at *at,
                                   gh_offload_group *wanted,
                                   struct gh_offload_script *script,
                                   gh_error *err);
gh_status gh_offload_commit_recorded(struct gh_offload *offload,
                                     const struct gh_offload_at *at,
                                     uint32_t layer, uint32_t module,
                                     struct gh_offload_script *script,
                                     gh_error *err);
gh_status gh_offload_load_recorded(struct gh_offload *offload,
                                   const struct gh_offload_at *at,
                                   gh_offload_group *wanted,
                                   struct gh_offload_script *script,
                                   gh_error *err);
gh_status gh_offload_release_recorded(struct gh_offload *offload,
                                      const struct gh_offload_at *at,
                                      uint32_t layer, uint32_t module,
                                      struct gh_offload_script *script,
                                      gh_error *err);

/* Around a launch.  Before it: the graph's buffers are free to be written, and
 * what it reads is on its way; failing, nothing has changed and the graph must
 * not be launched.  After it: the copies out are issued or queued, and the
 * next ones back. */
gh_status gh_offload_before(struct gh_offload *offload,
                            const struct gh_offload_script *script,
                            const struct gh_offload_at *at, gh_error *err);
void gh_offload_after(struct gh_offload *offload,
                      const struct gh_offload_script *script);
/* The launch has failed, or is to be repeated by an eager pass. */
void gh_offload_take_back(struct gh_offload *offload,
                          const struct gh_offload_script *script);

/* ---- GRAPHHOOKS_CHECK, which runs a pass both ways ---------------------- */

/* Whether the step lets the graph read, and perhaps write, a group in a buffer
 * that is filled again for the eager run. */
bool gh_offload_fills_again(const struct gh_offload_script *script,
                            const gh_buffer *output);
/* The same of memory that is not filled again, so that who repeats the pass has
 * to restore it.  False: the step has none. */
bool gh_offload_keeps(const struct gh_offload_step *step, gh_buffer *kept);
/* The graph was launched for the comparison: all is as before the launch, for
 * an eager run of the same pass. */
void gh_offload_repeat(struct gh_offload *offload,
                       const struct gh_offload_script *script, void *stream);
/* Gives every buffer without a group other contents than it had, so that who
 * reads there finds something else in each of the two runs. */
void gh_offload_spoil(struct gh_offload *offload, void *stream);
/* The results are compared: copies out and releases what the eager run has
 * committed and released, which kept its contents until now. */
gh_status gh_offload_compared(struct gh_offload *offload, uint64_t pass,
                              gh_error *err);

/* The pass of that number is given up: what it has saved is taken back,
 * and what it has loaded may be loaded again. */
void gh_offload_cancel(struct gh_offload *offload, uint64_t pass,
                       bool forward);

/* Whether offload still learns from the step.  Nothing may be recorded until it
 * has. */
bool gh_offload_is_profiling(const struct gh_offload *offload,
                             uint64_t steps_ended);

/* The steps of the longest profile that the options allow. */
uint64_t gh_offload_profile_steps(const struct gh_offload *offload);
/* Whether the ranks agree in this step on how long exchanges took
 * (exchanges.h): the same on all of them, also on one that could not measure. */
bool gh_offload_asks_ranks(const struct gh_offload *offload);

/* Issues the commits that are queued. */
gh_status gh_offload_flush(struct gh_offload *offload, gh_error *err);
/* The step is over: the first one settles what goes. */
gh_status gh_offload_end_step(struct gh_offload *offload, gh_error *err);

void gh_offload_count(const struct gh_offload *offload,
                      gh_offload_stats *stats);

#endif
