/*
 * A walk orders what depends on what, waits for nothing else, and releases
 * nothing that will be read.
 *
 * What comes before what is found here from the streams and the events alone,
 * by going along all of them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "schedule/sequence.h"
#include "schedule/walk.h"
#include "tap/tap.h"
#include "tests/unit/schedule/plans.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 128
#define ATTN GH_SCOPE(GH_ITEM_ATTN)
#define ROUTER GH_SCOPE(GH_ITEM_MOE_ROUTER)
#define PREPROCESS GH_SCOPE(GH_ITEM_MOE_PREPROCESS)

static gh_error err;

/* before[a][b]: step a comes before step b on the device. */
static bool before[MOST][MOST];

/* Marks are recorded and waited for as run.c does; `dropped` is a step whose
 * wait is left out. */
static void find_order(const struct gh_walk *walk, uint32_t dropped)
{
    uint32_t last[2] = { MOST, MOST }, marked[GH_MARKS];

    memset(before, 0, sizeof(before));
    memset(marked, 0xff, sizeof(marked));
    for (uint32_t i = 0; i < walk->n; i++) {
        const struct gh_step *step = &walk->steps[i];
        const uint32_t on[2] = { last[step->lane],
                                 i != dropped ? marked[step->wait]
                                              : UINT32_MAX };

        for (int k = 0; k < 2; k++) {
            if (on[k] >= MOST || (k == 1 && step->wait < GH_MARK_CHAIN)) {
                continue;
            }
            before[on[k]][i] = true;
            for (uint32_t a = 0; a < walk->n; a++) {
                before[a][i] = before[a][i] || before[a][on[k]];
            }
        }
        last[step->lane] = i;
        if (step->mark != GH_MARK_NONE) {
            marked[step->mark] = i;
        }
    }
}

static uint32_t step_of(const struct gh_walk *walk, uint32_t task)
{
    uint32_t i = 0;

    while (walk->steps[i].task != task) {
        i++;
    }
    return i;
}

/* Dependencies that the order does not have. */
static uint32_t missing(const struct gh_walk *walk,
                        const struct gh_tasks *tasks)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < tasks->n; i++) {
        const uint32_t after = tasks->all[i].after;

        n += after != GH_NO_TASK &&
             !before[step_of(walk, after)][step_of(walk, i)];
    }
    return n;
}

/* Releases that a reader is not before. */
static uint32_t too_early(const struct gh_plan *plan,
                          const struct gh_walk *walk,
                          const struct gh_tasks *tasks)
{
    const uint32_t n = gh_lives_find(plan, tasks, NULL);
    struct gh_life *lives = calloc(n + 1, sizeof(*lives));
    uint32_t wrong = 0, found = 0;

    gh_lives_find(plan, tasks, lives);
    for (uint32_t i = 0; i < walk->n; i++) {
        const struct gh_step *step = &walk->steps[i];

        for (uint32_t k = 0; k < n; k++) {
            for (uint32_t r = 0; r < step->n_release; r++) {
                if (memcmp(&lives[k].what, &walk->releases[step->release + r],
                           sizeof(lives[k].what)) != 0 ||
                    lives[k].forward !=
                        (tasks->all[step->task].direction == GH_FORWARD)) {
                    continue;
                }
                found++;
                for (uint32_t q = 0; q < lives[k].n_readers; q++) {
                    const uint32_t s = step_of(walk, lives[k].readers[q]);

                    wrong += s != i && !before[s][i];
                }
            }
        }
    }
    free(lives);
    return wrong + (found != walk->n_releases || walk->n_releases != n);
}

static uint32_t seed = 7;

static void random_times(struct gh_tasks *tasks)
{
    for (uint32_t i = 0; i < tasks->n; i++) {
        seed = seed * 1664525u + 1013904223u;
        tasks->all[i].ns = (double)(seed >> 20);
    }
}

static void test_walks(const char *layers, uint32_t forward, uint32_t backward)
{
    uint32_t unordered = 0, needless = 0, early = 0, waits = 0;
    uint32_t sequence[MOST];
    struct gh_forecast best, fixed;
    struct gh_tasks tasks;
    struct gh_plan plan;

    if (!plan_of(layers, ATTN, &plan)) {
        return;
    }
    gh_tasks_make(&plan, forward, backward, &tasks, &err);
    for (int n = 0; n < 100; n++) {
        struct gh_walk walk;

        random_times(&tasks);
        gh_sequence_best(&tasks, false, sequence, &best, &fixed, &err);
        gh_walk_make(&plan, &tasks, sequence, false, &walk, &err);
        find_order(&walk, MOST);
        unordered += missing(&walk, &tasks);
        early += too_early(&plan, &walk, &tasks);
        for (uint32_t i = 0; i < walk.n; i++) {
            if (walk.steps[i].wait != GH_MARK_NONE) {
                find_order(&walk, i);
                needless += missing(&walk, &tasks) == 0;
                waits++;
            }
        }
        gh_walk_free(&walk);
    }
    is_int(unordered, 0, "%s: every dependency is kept", layers);
    is_int(needless, 0, "%s: each of %u waits is needed", layers, waits);
    is_int(early, 0, "%s: nothing is released before it has been read", layers);
    gh_tasks_free(&tasks);
    gh_plan_free(&plan);
}

/* What the nodes of a layer release, as "step:release": F forward, B backward
 * tensor, layer, node, and its name's first letter. */
static void describe(const struct gh_walk *walk, const struct gh_tasks *tasks,
                     char *text, size_t bytes)
{
    static const char letters[] = "FBW";

    text[0] = '\0';
    for (uint32_t i = 0; i < walk->n; i++) {
        const struct gh_step *step = &walk->steps[i];
        const struct gh_task *task = &tasks->all[step->task];

        for (uint32_t r = 0; r < step->n_release; r++) {
            const gh_overlap_release *what =
                &walk->releases[step->release + r];
            const size_t used = strlen(text);

            snprintf(text + used, bytes - used, "%s%c%u:%c%u.%s",
                     used == 0 ? "" : " ", letters[task->direction],
                     task->node, letters[what->direction], what->node,
                     gh_tensor_name(what->tensor));
        }
    }
}

static void test_releases_by_hand(uint32_t scope, uint32_t forward,
                                  uint32_t backward, const char *expected,
                                  const char *what)
{
    uint32_t sequence[MOST];
    struct gh_tasks tasks;
    struct gh_walk walk;
    struct gh_plan plan;
    char text[1024];

    if (!plan_of("m", scope, &plan)) {
        return;
    }
    gh_tasks_make(&plan, forward, backward, &tasks, &err);
    gh_sequence_fixed(&tasks, false, sequence);
    gh_walk_make(&plan, &tasks, sequence, false, &walk, &err);
    describe(&walk, &tasks, text, sizeof(text));
    is_str(text, expected, "%s", what);
    gh_walk_free(&walk);
    gh_tasks_free(&tasks);
    gh_plan_free(&plan);
}

static void test_serial(void)
{
    uint32_t sequence[MOST], on_comm = 0;
    struct gh_tasks tasks;
    struct gh_walk walk;
    struct gh_plan plan;

    if (!plan_of("md", ATTN, &plan)) {
        return;
    }
    gh_tasks_make(&plan, 0, 0, &tasks, &err);
    gh_sequence_serial(&tasks, sequence);
    gh_walk_make(&plan, &tasks, sequence, true, &walk, &err);
    for (uint32_t i = 0; i < walk.n; i++) {
        on_comm += walk.steps[i].lane == GH_LANE_COMM;
    }
    is_int(on_comm, 0, "a serial walk has one lane");
    is_int(walk.waits, 0, "and waits for nothing");
    find_order(&walk, MOST);
    is_int(too_early(&plan, &walk, &tasks), 0, "it releases what was read");
    gh_walk_free(&walk);
    gh_tasks_free(&tasks);
    gh_plan_free(&plan);
}

/* A layer that begins and ends with an exchange, as a family may have it. */
static void test_ends_on_the_other_lane(void)
{
    struct gh_task two[] = {
        { .lane = GH_LANE_COMM, .after = GH_NO_TASK },
        { .lane = GH_LANE_COMPUTE, .after = 0 },
        { .lane = GH_LANE_COMM, .after = 1 },
    };
    struct gh_tasks tasks = { .all = two, .n = 3, .count = { 3, 0, 0 } };
    const uint32_t sequence[] = { 0, 1, 2 };
    struct gh_plan plan = { .n_layers = 0 };
    struct gh_walk walk;

    gh_walk_make(&plan, &tasks, sequence, false, &walk, &err);
    ok(walk.begins && walk.steps[0].wait == GH_MARK_BEGIN,
       "an exchange at the beginning waits for what was before");
    ok(walk.joins, "after one at the end the lanes are joined");
    is_int(walk.waits, 4, "with a wait for each change of lanes");
    is_int(walk.steps[0].flags, GH_NODE_BEGINS, "the first node begins");
    is_int(walk.steps[2].flags, GH_NODE_ENDS, "the last one ends");
    gh_walk_free(&walk);
}

/* What follows an exchange in the backward, and its weight gradients: shared
 * experts that are joined where the combine ends have some there. */
static void test_one_wait_for_two(void)
{
    /* The combine, its weight gradients, and what its backward goes on with. */
    static const uint32_t sequence[] = { 0, 1, 5, 2, 3, 4, 6, 7 };
    uint32_t waits[MOST] = { 0 }, of_exchanges = 0;
    struct gh_tasks tasks;
    struct gh_plan plan;
    struct gh_walk walk;

    if (!plan_of_shared_experts(&plan)) {
        return;
    }
    gh_tasks_make(&plan, GH_NO_CHUNK, 0, &tasks, &err);
    is_int(tasks.n, 8, "of five nodes, of which three have weight gradients");
    is_status(gh_walk_make(&plan, &tasks, sequence, false, &walk, &err), GH_OK,
              &err, "and a walk");
    for (uint32_t i = 0; i < walk.n; i++) {
        const struct gh_task *task = &tasks.all[walk.steps[i].task];

        if (task->after == GH_NO_TASK) {
            continue;
        }
        waits[task->after] += walk.steps[i].wait >= GH_MARK_CHAIN;
        of_exchanges += task->direction == GH_WGRAD &&
                        tasks.all[task->after].lane == GH_LANE_COMM;
    }
    ok(of_exchanges > 0, "an exchange has weight gradients");
    for (uint32_t i = 0; i < tasks.n; i++) {
        ok(waits[i] <= 1, "task %u is waited for once", i);
    }
    gh_walk_free(&walk);
    gh_tasks_free(&tasks);
    gh_plan_free(&plan);
}

int main(void)
{
    test_one_wait_for_two();
    test_walks("mmm", 0, 0);
    test_walks("mdm", 0, 0);
    test_walks("mm", 0, GH_NO_CHUNK);
    test_walks("mm", GH_NO_CHUNK, 0);
    test_serial();
    test_ends_on_the_other_lane();
    test_releases_by_hand(ATTN, 0, GH_NO_CHUNK, "F1:F0.hidden F3:F2.hidden",
                          "a forward releases what its exchanges have read");
    test_releases_by_hand(ROUTER | PREPROCESS, 0, GH_NO_CHUNK, "F3:F2.hidden",
                          "but not what a graph has written");
    test_releases_by_hand(
        ATTN, GH_NO_CHUNK, 0,
        "B4:F3.hidden B4:F0.residual B3:B4.hidden W2:B3.hidden W2:F1.hidden "
        "B1:B2.hidden B1:F0.routing_map B0:F0.probs B0:F0.dispatch "
        "W0:B4.residual W0:B4.probs W0:B3.probs W0:B2.probs W0:B1.hidden "
        "W0:B1.probs",
        "a backward all else, each behind its last reader");
    return done_testing();
}
