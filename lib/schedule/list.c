/*
 * list.c - forecasts of sequences, and sequences by list scheduling.
 *
 * List scheduling simulates the two lanes: of the tasks that may come next it
 * takes the one that could begin first.  Weight gradients fill gaps of the
 * compute lane.  To bound memory, the forward stays at most one layer ahead of
 * the backward, as in the fixed order, and weight gradients at most two layers
 * behind it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "schedule/sequence.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

#define FORWARD_AHEAD 1
#define WGRADS_BEHIND 2

double gh_forecast_exposed(const struct gh_forecast *f)
{
    const double comm = f->lanes[GH_LANE_COMM];
    const double exposed = f->total - f->lanes[GH_LANE_COMPUTE];

    return comm > 0 && exposed > 0 ? exposed / comm : 0;
}

static double later(double a, double b)
{
    return a > b ? a : b;
}

/* When a task could begin. */
static double begin_of(const struct gh_task *task, const double *ends,
                       const double *lanes)
{
    return later(lanes[task->lane],
                 task->after == GH_NO_TASK ? 0 : ends[task->after]);
}

struct play {
    const struct gh_tasks *tasks;
    const struct gh_list_rule *rule;
    double lanes[2];              /* when each is free */
    double left[2];               /* time of each chain that is not placed */
    uint32_t next[GH_TASK_KINDS]; /* number of tasks placed, by direction */
    uint32_t *sequence;
    uint32_t n;
    double ends[]; /* when each task ends */
};

static struct play *new_play(const struct gh_tasks *tasks)
{
    struct play *play =
        calloc(1, sizeof(*play) + tasks->n * sizeof(play->ends[0]));

    if (play != NULL) {
        play->tasks = tasks;
    }
    return play;
}

/* The next task of a direction; NULL: all are placed. */
static const struct gh_task *head(const struct play *p, gh_direction direction)
{
    const struct gh_tasks *tasks = p->tasks;

    return p->next[direction] < tasks->count[direction]
               ? &tasks->all[tasks->first[direction] + p->next[direction]]
               : NULL;
}

static bool may_go_forward(const struct gh_task *forward,
                           const struct gh_task *backward)
{
    return forward != NULL &&
           (backward == NULL || forward->at <= backward->at + FORWARD_AHEAD);
}

static bool prefers_forward(const struct play *p, double forward,
                            double backward)
{
    if (forward != backward) {
        return forward < backward;
    }
    switch (p->rule->tie) {
    case GH_TIE_FORWARD:
        return true;
    case GH_TIE_BACKWARD:
        return false;
    default:
        return p->left[GH_FORWARD] > p->left[GH_BACKWARD];
    }
}

/* The next task of the two chains; NULL: all are placed. */
static const struct gh_task *choose_chain(const struct play *p)
{
    const struct gh_task *forward = head(p, GH_FORWARD);
    const struct gh_task *backward = head(p, GH_BACKWARD);

    if (!may_go_forward(forward, backward)) {
        return backward;
    }
    if (backward == NULL) {
        return forward;
    }
    return prefers_forward(p, begin_of(forward, p->ends, p->lanes),
                           begin_of(backward, p->ends, p->lanes))
               ? forward
               : backward;
}

/* The next weight gradient if its backward is placed, else NULL. */
static const struct gh_task *ready_wgrad(const struct play *p)
{
    const struct gh_task *wgrad = head(p, GH_WGRAD);

    return wgrad != NULL && wgrad->after < p->tasks->first[GH_BACKWARD] +
                                               p->next[GH_BACKWARD]
               ? wgrad
               : NULL;
}

static const struct gh_task *choose(const struct play *p)
{
    const struct gh_task *chain = choose_chain(p);
    const struct gh_task *wgrad = ready_wgrad(p);
    const struct gh_task *backward = head(p, GH_BACKWARD);
    double gap;

    if (wgrad == NULL || chain == NULL) {
        return wgrad == NULL ? chain : wgrad;
    }
    if (backward != NULL && backward->at > wgrad->at + WGRADS_BEHIND) {
        return wgrad;
    }
    if (chain->lane == GH_LANE_COMM) {
        return chain;
    }
    gap = begin_of(chain, p->ends, p->lanes) -
          begin_of(wgrad, p->ends, p->lanes);
    return gap > 0 && gap >= p->rule->share * wgrad->ns ? wgrad : chain;
}

static void append(struct play *p, const struct gh_task *task)
{
    const uint32_t i = (uint32_t)(task - p->tasks->all);

    p->ends[i] = begin_of(task, p->ends, p->lanes) + task->ns;
    p->lanes[task->lane] = p->ends[i];
    p->next[task->direction]++;
    if (task->direction != GH_WGRAD) {
        p->left[task->direction] -= task->ns;
    }
    if (p->sequence != NULL) {
        p->sequence[p->n++] = i;
    }
}

static void restart(struct play *p, const struct gh_list_rule *rule,
                    uint32_t *sequence)
{
    memset(p->lanes, 0, sizeof(p->lanes));
    memset(p->left, 0, sizeof(p->left));
    memset(p->next, 0, sizeof(p->next));
    p->rule = rule;
    p->sequence = sequence;
    p->n = 0;
    for (uint32_t i = 0; i < p->tasks->n; i++) {
        const struct gh_task *task = &p->tasks->all[i];

        if (task->direction != GH_WGRAD) {
            p->left[task->direction] += task->ns;
        }
    }
}

static void play_list(struct play *p, const struct gh_list_rule *rule,
                      uint32_t *sequence)
{
    restart(p, rule, sequence);
    while (p->n < p->tasks->n) {
        append(p, choose(p));
    }
}

static void play_through(struct play *p, const uint32_t *sequence,
                         struct gh_forecast *forecast)
{
    memset(forecast, 0, sizeof(*forecast));
    restart(p, NULL, NULL);
    for (uint32_t i = 0; i < p->tasks->n; i++) {
        const struct gh_task *task = &p->tasks->all[sequence[i]];

        append(p, task);
        forecast->lanes[task->lane] += task->ns;
    }
    forecast->total = later(p->lanes[0], p->lanes[1]);
}

gh_status gh_sequence_list(const struct gh_tasks *tasks,
                           const struct gh_list_rule *rule, uint32_t *sequence,
                           gh_error *err)
{
    struct play *play = new_play(tasks);

    if (play == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a schedule");
    }
    play_list(play, rule, sequence);
    free(play);
    return GH_OK;
}

gh_status gh_sequence_forecast(const struct gh_tasks *tasks,
                               const uint32_t *sequence,
                               struct gh_forecast *forecast, gh_error *err)
{
    struct play *play = new_play(tasks);

    if (play == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a schedule");
    }
    play_through(play, sequence, forecast);
    free(play);
    return GH_OK;
}

/* Tries every rule, and keeps the best sequence. */
static void try_lists(struct play *play, uint32_t *tried, uint32_t *sequence,
                      struct gh_forecast *best)
{
    static const double shares[] = { 1.0, 0.5, 0.0 };
    const size_t bytes = play->tasks->n * sizeof(*tried);
    double least = best->total * (1 - GH_LEAST_GAIN);

    for (size_t i = 0; i < sizeof(shares) / sizeof(shares[0]); i++) {
        for (enum gh_list_tie tie = 0; tie < GH_TIE_COUNT; tie++) {
            const struct gh_list_rule rule = { tie, shares[i] };
            struct gh_forecast forecast;

            play_list(play, &rule, tried);
            play_through(play, tried, &forecast);
            if (forecast.total < least) {
                memcpy(sequence, tried, bytes);
                *best = forecast;
                least = forecast.total;
            }
        }
    }
}

gh_status gh_sequence_best(const struct gh_tasks *tasks, bool early,
                           uint32_t *sequence, struct gh_forecast *best,
                           struct gh_forecast *fixed, gh_error *err)
{
    struct play *play = new_play(tasks);
    uint32_t *tried = malloc((tasks->n + 1) * sizeof(*tried));
    gh_status status = GH_OK;

    if (play == NULL || tried == NULL) {
        status = gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a schedule");
    } else {
        gh_sequence_fixed(tasks, early, sequence);
        play_through(play, sequence, fixed);
        *best = *fixed;
        try_lists(play, tried, sequence, best);
    }
    free(tried);
    free(play);
    return status;
}
