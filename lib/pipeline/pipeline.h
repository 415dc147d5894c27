/*
 * pipeline.h - schedules of a pipeline, as data: which pass each stage runs
 * when.
 *
 * A stage has one or more chunks of the model's layers.  Its schedule is a list
 * of actions, each a pass of one chunk and one microbatch.  A schedule comes
 * from a generator or from a file, is checked, and says how many microbatches
 * are in flight in each chunk at most, which is the number of slots that its
 * graphs need, and how long the stages are idle.  Nothing here has a state, or
 * knows of devices.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_PIPELINE_PIPELINE_H
#define GH_PIPELINE_PIPELINE_H

#include <graphhooks/base.h>

#include <stdbool.h>

/* The most that a schedule may have, so that no number overflows. */
#define GH_PIPELINE_STAGES 256u
#define GH_PIPELINE_CHUNKS 64u
#define GH_PIPELINE_MICROBATCHES 65536u
#define GH_PIPELINE_PASSES (UINT32_C(1) << 24) /* stages x chunks x mb. */

enum gh_action_kind {
    GH_ACTION_FORWARD,
    GH_ACTION_BACKWARD, /* of inputs and weights */
    GH_ACTION_INPUTS,   /* the backward of inputs alone, */
    GH_ACTION_WEIGHTS,  /* and then of weights */
    GH_ACTIONS
};

struct gh_action {
    enum gh_action_kind kind;
    uint32_t chunk, microbatch;
    uint32_t line; /* of the file that it comes from; 0: of none */
};

struct gh_stage {
    struct gh_action *actions; /* in the order in which the stage runs them */
    uint32_t n, room;
};

/* Where the chunks lie in the model. */
enum gh_placement {
    GH_PLACED_LOOPED, /* chunk c of stage s is part c * stages + s */
    GH_PLACED_V       /* the same, but for odd chunks in falling order of s */
};

struct gh_pipeline {
    uint32_t n_stages, n_chunks, n_microbatches;
    enum gh_placement placement;
    struct gh_stage stages[];
};

/* The part of the model that a chunk of a stage is, and the stage of a part,
 * whose chunk there is part / n_stages. */
uint32_t gh_pipeline_part(const struct gh_pipeline *pipeline, uint32_t stage,
                          uint32_t chunk);
uint32_t gh_pipeline_stage(const struct gh_pipeline *pipeline, uint32_t part);

/* Makes a schedule without actions. */
gh_status gh_pipeline_new(uint32_t n_stages, uint32_t n_chunks,
                          uint32_t n_microbatches, enum gh_placement placement,
                          struct gh_pipeline **pipeline_p, gh_error *err);
/* NULL is allowed. */
void gh_pipeline_free(struct gh_pipeline *pipeline);
gh_status gh_pipeline_add(struct gh_pipeline *pipeline, uint32_t stage,
                          const struct gh_action *action, gh_error *err);

/* The most microbatches that are in flight in a chunk of a stage: from their
 * forward to the last pass of their backward. */
uint32_t gh_pipeline_in_flight(const struct gh_pipeline *pipeline,
                               uint32_t stage, uint32_t chunk);

/* The word of a file for a kind of action. */
const char *gh_action_name(enum gh_action_kind kind);

/* ---- generate.c ---------------------------------------------------------- */

/* One forward, one backward: of one chunk a stage, PipeDream-Flush; of several,
 * the interleaved schedule of Megatron-LM (Narayanan et al., 2021), in groups of
 * `group` microbatches a chunk.  `ahead` more forwards run before the first
 * backward: 1 where a forward and a backward run beside each other. */
struct gh_interleaving {
    uint32_t n_stages, n_chunks, group, ahead;
};
gh_status gh_pipeline_interleaved(const struct gh_interleaving *how,
                                  uint32_t n_microbatches,
                                  struct gh_pipeline **pipeline_p,
                                  gh_error *err);

/* Whether groups of microbatches go through the chunks whole.  The text says
 * which numbers do. */
gh_status gh_pipeline_check_groups(const struct gh_interleaving *how,
                                   uint32_t n_microbatches, gh_error *err);
/* Forwards of a stage before its first backward, but for the one that runs right
 * before it. */
uint64_t gh_pipeline_warmup(const struct gh_interleaving *how, uint32_t stage,
                            uint64_t passes);

/* Zero bubble with the memory of 1F1B's first stage (ZB-H1 of Qi et al., 2023):
 * one chunk a stage, and passes of weights where a stage would be idle. */
gh_status gh_pipeline_zero_bubble(uint32_t n_stages, uint32_t n_microbatches,
                                  struct gh_pipeline **pipeline_p,
                                  gh_error *err);

/* DualPipeV (DeepSeek, 2025): two chunks a stage in the shape of a V, so that
 * the first stage has both ends of the model; forwards of one chunk alternate
 * with backwards of the other, and passes of weights come where a stage would
 * be idle.  At least twice as many microbatches as stages. */
gh_status gh_pipeline_dualpipev(uint32_t n_stages, uint32_t n_microbatches,
                                struct gh_pipeline **pipeline_p, gh_error *err);

/* ---- slots.c ------------------------------------------------------------- */

/* The slots of each chunk of a stage, enough for any number of microbatches
 * that the schedule allows: a multiple of the group, or one more group that has
 * at least as many microbatches as there are stages. */
gh_status gh_pipeline_slots(const struct gh_interleaving *how, uint32_t stage,
                            uint32_t *slots, gh_error *err);

/* ---- clock.c ------------------------------------------------------------- */

struct gh_pipeline_times {
    double pass[GH_ACTIONS];
    double send; /* of a tensor, from the end of a pass to another stage */
    const double *stages; /* what a stage's passes take times `pass`; NULL: 1 */
};

struct gh_pipeline_clock {
    double total; /* from the first pass to the last end */
    double busy;  /* of all stages together */
};

/* Is told of each action that runs, those of a stage in their order. */
struct gh_pipeline_watcher {
    void (*ran)(void *user, uint32_t stage, const struct gh_action *action,
                double begin);
    void *user;
};

/* Runs a schedule on a clock.  GH_ERR_INVALID where it does not come to its
 * end: the text names who waits for whom. */
gh_status gh_pipeline_run(const struct gh_pipeline *pipeline,
                          const struct gh_pipeline_times *times,
                          struct gh_pipeline_clock *clock, gh_error *err);
/* The same; NULL: nobody watches. */
gh_status gh_pipeline_watch(const struct gh_pipeline *pipeline,
                            const struct gh_pipeline_times *times,
                            const struct gh_pipeline_watcher *watcher,
                            struct gh_pipeline_clock *clock, gh_error *err);
/* The share of the time in which stages are idle. */
double gh_pipeline_bubble(const struct gh_pipeline *pipeline,
                          const struct gh_pipeline_clock *clock);

/* ---- check.c ------------------------------------------------------------- */

/* Whether each pass is there once, in an order that stages which wait for each
 * other's tensors can run to its end.  The text names the first line or action
 * that is wrong. */
gh_status gh_pipeline_check(const struct gh_pipeline *pipeline, gh_error *err);

/* ---- read.c -------------------------------------------------------------- */

/* Reads a schedule: first
 *
 *     stages 2
 *     chunks 1
 *     microbatches 3
 *     placement looped
 *
 * then a line for each action, in the order of its stage: the stage, the kind
 * (forward, backward, inputs, weights), the chunk and the microbatch, such as
 * `0 forward 0 2`.  What comes after a # is a comment.  The schedule is not
 * checked yet. */
gh_status gh_pipeline_read(const char *text, size_t bytes,
                           struct gh_pipeline **pipeline_p, gh_error *err);

#endif
