/*
 * Sequences are legal, forecasts add up, and the best one is never longer than
 * the fixed one.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "schedule/sequence.h"
#include "support/host_memory.h"
#include "tap/tap.h"
#include "tests/unit/schedule/plans.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static gh_error err;

static uint32_t seed = 1;

static double random_ns(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (double)(seed >> 20);
}

/* A permutation in which each comes after the one that it follows. */
static bool is_legal(const struct gh_tasks *tasks, const uint32_t *sequence)
{
    bool *placed = calloc(tasks->n, sizeof(*placed));
    bool legal = true;

    for (uint32_t i = 0; i < tasks->n && legal; i++) {
        const uint32_t t = sequence[i];

        legal = t < tasks->n && !placed[t] &&
                (tasks->all[t].after == GH_NO_TASK ||
                 placed[tasks->all[t].after]);
        if (legal) {
            placed[t] = true;
        }
    }
    free(placed);
    return legal;
}

/* How many layers the forward is ahead of the backward, and weight gradients
 * behind it, at most. */
static void distances(const struct gh_tasks *tasks, const uint32_t *sequence,
                      int *ahead_p, int *behind_p)
{
    uint32_t next[GH_TASK_KINDS] = { 0 };

    *ahead_p = *behind_p = 0;
    for (uint32_t i = 0; i < tasks->n; i++) {
        const struct gh_task *task = &tasks->all[sequence[i]];
        const uint32_t b = next[GH_BACKWARD];
        const uint32_t at =
            b < tasks->count[GH_BACKWARD]
                ? tasks->all[tasks->first[GH_BACKWARD] + b].at
                : UINT32_MAX;

        if (at != UINT32_MAX && task->direction == GH_FORWARD &&
            (int)task->at - (int)at > *ahead_p) {
            *ahead_p = (int)task->at - (int)at;
        }
        if (at != UINT32_MAX && task->direction == GH_WGRAD &&
            (int)at - (int)task->at > *behind_p) {
            *behind_p = (int)at - (int)task->at;
        }
        next[task->direction]++;
    }
}

static const struct {
    const char *layers;
    uint32_t forward, backward;
} pairs[] = {
    { "mmm", 0, 0 },           { "m", 0, 0 },
    { "dmsm", 0, 0 },          { "mmm|m", 0, 1 },
    { "m|mmmm", 0, 1 },        { "mmdm", 0, GH_NO_CHUNK },
    { "mmdm", GH_NO_CHUNK, 0 }, { "dd", 0, 0 },
};
#define N_PAIRS (sizeof(pairs) / sizeof(pairs[0]))
#define N_TRIES 200

struct tally {
    uint32_t illegal, longer, shorter_than_a_lane, better, far, unlike;
    uint32_t wrong, little; /* not the least; too little to be chosen */
};

/* The duration of the shortest list schedule. */
static double least_of(const struct gh_tasks *tasks, uint32_t *sequence)
{
    double least = INFINITY;

    for (uint32_t n = 0; n < 3 * GH_TIE_COUNT; n++) {
        const struct gh_list_rule rule = {
            .tie = (enum gh_list_tie)(n % GH_TIE_COUNT),
            .share = n / GH_TIE_COUNT * 0.5,
        };
        struct gh_forecast forecast;

        gh_sequence_list(tasks, &rule, sequence, &err);
        gh_sequence_forecast(tasks, sequence, &forecast, &err);
        least = forecast.total < least ? forecast.total : least;
    }
    return least;
}

/* The best is the least of all, or the fixed one where that gains too little.
 */
static void check_least(const struct gh_tasks *tasks, const uint32_t *sequence,
                        uint32_t *again, const struct gh_forecast *best,
                        const struct gh_forecast *fixed, struct tally *tally)
{
    const double least = least_of(tasks, again);
    const bool gains = least < fixed->total * (1 - GH_LEAST_GAIN);
    struct gh_forecast forecast;

    tally->little += !gains && least < fixed->total;
    tally->wrong += best->total != (gains ? least : fixed->total);
    gh_sequence_forecast(tasks, sequence, &forecast, &err);
    tally->wrong += forecast.total != best->total;
}

static void try_times(struct gh_tasks *tasks, uint32_t *sequence,
                      struct tally *tally)
{
    uint32_t *again = malloc(tasks->n * sizeof(*again));
    struct gh_forecast best, fixed;
    int ahead, behind;

    for (uint32_t i = 0; i < tasks->n; i++) {
        tasks->all[i].ns = random_ns();
    }
    gh_sequence_best(tasks, false, sequence, &best, &fixed, &err);
    tally->illegal += !is_legal(tasks, sequence);
    tally->longer += best.total > fixed.total;
    tally->better += best.total < fixed.total;
    tally->shorter_than_a_lane +=
        best.total < best.lanes[0] || best.total < best.lanes[1];
    check_least(tasks, sequence, again, &best, &fixed, tally);
    distances(tasks, sequence, &ahead, &behind);
    tally->far += ahead > 1 || behind > 3;
    gh_sequence_best(tasks, false, again, &best, &fixed, &err);
    tally->unlike +=
        memcmp(again, sequence, tasks->n * sizeof(*again)) != 0;
    free(again);
}

static void test_best(void)
{
    uint32_t little = 0;

    for (size_t i = 0; i < N_PAIRS; i++) {
        struct tally tally = { 0 };
        struct gh_tasks tasks;
        struct gh_plan plan;
        uint32_t *sequence;

        if (!plan_of(pairs[i].layers, 0, &plan)) {
            continue;
        }
        gh_tasks_make(&plan, pairs[i].forward, pairs[i].backward, &tasks, &err);
        sequence = calloc(tasks.n, sizeof(*sequence));
        for (uint32_t n = 0; n < N_TRIES; n++) {
            try_times(&tasks, sequence, &tally);
        }
        is_int(tally.illegal, 0, "%s: every sequence is legal",
               pairs[i].layers);
        is_int(tally.longer, 0, "%s: none is longer than the fixed one",
               pairs[i].layers);
        is_int(tally.shorter_than_a_lane, 0, "%s: nor shorter than a lane",
               pairs[i].layers);
        is_int(tally.far, 0, "%s: one layer ahead, and three behind at most",
               pairs[i].layers);
        is_int(tally.wrong, 0,
               "%s: the best is the least of all that gains enough",
               pairs[i].layers);
        little += tally.little;
        is_int(tally.unlike, 0, "%s: the same times give the same sequence",
               pairs[i].layers);
        if (i == 0) {
            ok(tally.better > N_TRIES / 2, "%s: %u of %d are better than fixed",
               pairs[i].layers, tally.better, N_TRIES);
        }
        free(sequence);
        gh_tasks_free(&tasks);
        gh_plan_free(&plan);
    }
    ok(little > 0, "%u times the least is left, as it gains too little",
       little);
}

static void test_exposed(void)
{
    static const struct {
        struct gh_forecast forecast;
        double exposed;
    } cases[] = {
        { { 10, { 10, 4 } }, 0 },  { { 12, { 10, 4 } }, 0.5 },
        { { 14, { 10, 4 } }, 1 },  { { 9, { 10, 4 } }, 0 },
        { { 10, { 10, 0 } }, 0 },  { { 12, { 10, 0 } }, 0 },
        { { 4, { 0, 4 } }, 1 },    { { 0, { 0, 0 } }, 0 },
        { { 10.5, { 10, 4 } }, 0.125 }, { { 10.5, { 10, 0.5 } }, 1 },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct gh_forecast *f = &cases[i].forecast;

        ok(gh_forecast_exposed(f) == cases[i].exposed,
           "of %g communication beside %g in %g so much is exposed: %g",
           f->lanes[GH_LANE_COMM], f->lanes[GH_LANE_COMPUTE], f->total,
           cases[i].exposed);
    }
}

static void test_every_rule_is_legal(void)
{
    uint32_t sequence[64], wrong = 0;
    struct gh_tasks tasks;
    struct gh_plan plan;

    if (!plan_of("mdm", 0, &plan)) {
        return;
    }
    gh_tasks_make(&plan, 0, 0, &tasks, &err);
    for (uint32_t n = 0; n < 300; n++) {
        const struct gh_list_rule rule = {
            .tie = (enum gh_list_tie)(n % GH_TIE_COUNT),
            .share = n % 5 * 0.25,
        };

        for (uint32_t i = 0; i < tasks.n; i++) {
            tasks.all[i].ns = n % 2 == 0 ? random_ns() : 1;
        }
        wrong += gh_sequence_list(&tasks, &rule, sequence, &err) != GH_OK ||
                 !is_legal(&tasks, sequence);
    }
    is_int(wrong, 0, "every rule gives a legal sequence");
    for (int early = 0; early < 2; early++) {
        gh_sequence_fixed(&tasks, early != 0, sequence);
        ok(is_legal(&tasks, sequence), "so is the fixed one%s",
           early ? " with early release" : "");
    }
    gh_sequence_serial(&tasks, sequence);
    ok(is_legal(&tasks, sequence), "and the serial one");
    gh_tasks_free(&tasks);
    gh_plan_free(&plan);
}

static void set_times(struct gh_tasks *tasks, double compute, double comm,
                      double wgrad)
{
    for (uint32_t i = 0; i < tasks->n; i++) {
        struct gh_task *task = &tasks->all[i];

        task->ns = task->direction == GH_WGRAD  ? wgrad
                   : task->lane == GH_LANE_COMM ? comm
                                                : compute;
    }
}

/* By hand: three compute nodes and two exchanges in each direction. */
static void test_forecasts_by_hand(void)
{
    uint32_t sequence[64];
    struct gh_forecast forecast;
    struct gh_tasks tasks;
    struct gh_plan plan;

    if (!plan_of("m", 0, &plan)) {
        return;
    }
    gh_tasks_make(&plan, 0, GH_NO_CHUNK, &tasks, &err);
    set_times(&tasks, 100, 50, 0);
    gh_sequence_fixed(&tasks, false, sequence);
    gh_sequence_forecast(&tasks, sequence, &forecast, &err);
    is_int((int)forecast.total, 400, "a forward alone hides nothing");
    ok(gh_forecast_exposed(&forecast) == 1.0, "all of it is exposed");
    gh_tasks_free(&tasks);

    gh_tasks_make(&plan, 0, 0, &tasks, &err);
    set_times(&tasks, 100, 50, 100);
    gh_sequence_fixed(&tasks, false, sequence);
    gh_sequence_forecast(&tasks, sequence, &forecast, &err);
    /* B.after 0-100, F.before 100-200 hides B.combine, B.experts 200-300
     * hides F.dispatch, W.experts 300-400 hides B.dispatch, F.experts 400-500,
     * B.before 500-600 hides F.combine, F.after 600-700, W.before 700-800. */
    is_int((int)forecast.total, 800, "a pair hides every exchange");
    ok(gh_forecast_exposed(&forecast) == 0.0, "none of it is exposed");
    is_int((int)forecast.lanes[GH_LANE_COMPUTE], 800, "compute adds up");
    is_int((int)forecast.lanes[GH_LANE_COMM], 200, "communication adds up");
    gh_tasks_free(&tasks);
    gh_plan_free(&plan);
}

/* Weights that are added up late fill the gap of a long exchange. */
static void test_weight_gradients_fill_gaps(void)
{
    uint32_t sequence[64];
    struct gh_forecast best, fixed;
    struct gh_tasks tasks;
    struct gh_plan plan;

    if (!plan_of("mm", 0, &plan)) {
        return;
    }
    gh_tasks_make(&plan, GH_NO_CHUNK, 0, &tasks, &err);
    set_times(&tasks, 100, 150, 150);
    gh_sequence_best(&tasks, false, sequence, &best, &fixed, &err);
    ok(best.total < fixed.total, "a backward alone is better: %.0f of %.0f",
       best.total, fixed.total);
    gh_tasks_free(&tasks);
    gh_plan_free(&plan);
}

/* Without a gap there is no place for them, and they hold memory. */
static void test_weight_gradients_are_not_left_behind(void)
{
    const struct gh_list_rule rule = { .tie = GH_TIE_LONGEST, .share = 1 };
    uint32_t sequence[64];
    struct gh_tasks tasks;
    struct gh_plan plan;
    int ahead, behind;

    if (!plan_of("mmmmmm", 0, &plan)) {
        return;
    }
    gh_tasks_make(&plan, GH_NO_CHUNK, 0, &tasks, &err);
    set_times(&tasks, 100, 0, 1000);
    gh_sequence_list(&tasks, &rule, sequence, &err);
    distances(&tasks, sequence, &ahead, &behind);
    is_int(behind, 3, "weight gradients are at most three layers behind");
    gh_tasks_free(&tasks);
    gh_plan_free(&plan);
}

/* Where both could begin, the chain that has more left does: in turn, if both
 * are as long. */
static void test_chains_take_turns(void)
{
    const struct gh_list_rule rule = { .tie = GH_TIE_LONGEST, .share = 1 };
    uint32_t sequence[64], turns = 0;
    struct gh_tasks tasks;
    struct gh_plan plan;

    if (!plan_of("d", 0, &plan)) {
        return;
    }
    gh_tasks_make(&plan, 0, 0, &tasks, &err);
    set_times(&tasks, 10, 10, 0);
    gh_sequence_list(&tasks, &rule, sequence, &err);
    for (uint32_t i = 1; i < tasks.n; i++) {
        turns += tasks.all[sequence[i]].direction != GH_WGRAD &&
                 tasks.all[sequence[i - 1]].direction == GH_BACKWARD &&
                 tasks.all[sequence[i]].direction == GH_FORWARD;
    }
    ok(turns > 0, "a forward follows a backward of the same length");
    gh_tasks_free(&tasks);
    gh_plan_free(&plan);

    if (!plan_of("mm", 0, &plan)) {
        return;
    }
    gh_tasks_make(&plan, 0, 0, &tasks, &err);
    set_times(&tasks, 10, 10, 0);
    gh_sequence_list(&tasks, &rule, sequence, &err);
    is_int(tasks.all[sequence[0]].direction, GH_BACKWARD,
           "of two chains of one length the backward begins");
    is_int(tasks.all[sequence[1]].direction, GH_FORWARD,
           "and then the forward has more left");
    gh_tasks_free(&tasks);
    gh_plan_free(&plan);
}

/* Shared experts that are joined where the combine ends have theirs there. */
static void test_weights_of_an_exchange(void)
{
    struct gh_tasks tasks;
    struct gh_plan plan;
    uint32_t wgrad;

    if (!plan_of_shared_experts(&plan)) {
        return;
    }
    gh_tasks_make(&plan, GH_NO_CHUNK, 0, &tasks, &err);
    wgrad = gh_tasks_find(&tasks, GH_WGRAD, 0, 3);
    ok(wgrad != GH_NO_TASK && tasks.all[wgrad].lane == GH_LANE_COMPUTE,
       "weight gradients are computed, also those of an exchange");
    gh_tasks_free(&tasks);
    gh_plan_free(&plan);
}

static void test_tasks(void)
{
    struct gh_tasks tasks;
    struct gh_plan plan;

    if (!plan_of("dms", 0, &plan)) {
        return;
    }
    is_int(gh_tasks_cells(&plan), 3 * (2 + 5 + 1), "a cell for each time");
    gh_tasks_make(&plan, 0, 0, &tasks, &err);
    is_int(tasks.count[GH_FORWARD], 8, "a task for each node forward");
    is_int(tasks.count[GH_BACKWARD], 8, "and backward");
    is_int(tasks.count[GH_WGRAD], 5, "and for each that has weights");
    is_int(tasks.all[0].layer, 2, "the backward begins with the last layer");
    is_int(tasks.all[tasks.first[GH_FORWARD]].layer, 0,
           "the forward with the first");
    is_int(gh_tasks_find(&tasks, GH_WGRAD, 1, 1), GH_NO_TASK,
           "an exchange has no weights");
    ok(gh_tasks_find(&tasks, GH_WGRAD, 1, 2) != GH_NO_TASK, "experts have");
    is_int(tasks.all[tasks.first[GH_FORWARD] + 1].role, GH_ROLE_EXPERTS,
           "a dense layer's MLP is where the experts are");
    gh_tasks_free(&tasks);
    gh_plan_free(&plan);
}

static void test_host_memory_that_fails(void)
{
    uint32_t sequence[64] = { 7 };
    struct gh_forecast best, fixed;
    struct gh_tasks tasks;
    struct gh_plan plan;
    gh_error err;

    host_memory_begin();
    if (!plan_of("m", 0, &plan)) {
        return;
    }
    gh_tasks_make(&plan, 0, 0, &tasks, &err);
    for (uint32_t n = 1; n <= 2; n++) {
        host_memory_refuse(n);
        is_status(gh_sequence_best(&tasks, false, sequence, &best, &fixed,
                                   &err),
                  GH_ERR_NO_MEMORY, &err,
                  "no order is found where allocation %u fails", n);
        is_int(sequence[0], 7, "and none is written");
    }
    gh_tasks_free(&tasks);
    host_memory_refuse(1);
    is_status(gh_tasks_make(&plan, 0, 0, &tasks, &err), GH_ERR_NO_MEMORY, &err,
              "nor are there tasks");
    host_memory_refuse(0);
    gh_plan_free(&plan);
    is_int(host_memory_left(), 0, "no memory is left");
}

int main(void)
{
    test_host_memory_that_fails();
    test_tasks();
    test_forecasts_by_hand();
    test_exposed();
    test_every_rule_is_legal();
    test_best();
    test_weight_gradients_fill_gaps();
    test_weight_gradients_are_not_left_behind();
    test_chains_take_turns();
    test_weights_of_an_exchange();
    return done_testing();
}
