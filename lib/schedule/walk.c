/*
 * walk.c - see walk.h.
 *
 * For each lane, `reach` is the last task of the other lane that the next step
 * is ordered after.  With two lanes only a wait advances it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "schedule/walk.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

/* Of a task: its step, and its number in its lane, from 1. */
struct position {
    uint32_t step, turn;
};

struct making {
    const struct gh_tasks *tasks;
    struct gh_walk *walk;
    struct position *positions;
    uint32_t *known;   /* by step: `reach` of its lane when it begins */
    uint32_t turns[2]; /* number of tasks of each lane so far */
    uint32_t reach[2]; /* by lane; see above */
};

static uint8_t mark_of(const struct gh_task *task, gh_lane lane)
{
    return (uint8_t)(GH_MARK_CHAIN + 2 * (task->direction != GH_FORWARD) +
                     (lane == GH_LANE_COMM));
}

/* Adds a wait where the step depends on the other lane, or on work before the
 * run, and no earlier wait covers that. */
static void wait_for(struct making *m, struct gh_step *step)
{
    const struct gh_task *task = &m->tasks->all[step->task];
    struct gh_step *before;

    if (task->after == GH_NO_TASK) {
        if (step->lane == GH_LANE_COMM && m->reach[step->lane] == 0) {
            step->wait = GH_MARK_BEGIN;
            m->walk->begins = true;
            m->walk->waits++;
        }
        return;
    }
    before = &m->walk->steps[m->positions[task->after].step];
    if (before->lane == step->lane ||
        m->positions[task->after].turn <= m->reach[step->lane]) {
        return;
    }
    step->wait = mark_of(&m->tasks->all[before->task], before->lane);
    before->mark = step->wait;
    m->reach[step->lane] = m->positions[task->after].turn;
    m->walk->waits++;
}

/* Whether the task is the first or the last of its chunk. */
static uint32_t flags_of(const struct gh_tasks *tasks, uint32_t i)
{
    const gh_direction direction = tasks->all[i].direction;
    const uint32_t at = i - tasks->first[direction];
    uint32_t flags = 0;

    if (direction != GH_WGRAD && at == 0) {
        flags |= GH_NODE_BEGINS;
    }
    if (direction != GH_WGRAD && at + 1 == tasks->count[direction]) {
        flags |= GH_NODE_ENDS;
    }
    return flags;
}

static void add_step(struct making *m, uint32_t task, bool serial)
{
    struct gh_walk *walk = m->walk;
    struct gh_step *step = &walk->steps[walk->n];

    step->task = task;
    step->lane = serial ? GH_LANE_COMPUTE : m->tasks->all[task].lane;
    step->flags = flags_of(m->tasks, task);
    m->positions[task] = (struct position){ walk->n, ++m->turns[step->lane] };
    wait_for(m, step);
    m->known[walk->n] = m->reach[step->lane];
    walk->n++;
}

/* Delayed commits are issued before an exchange: while that runs, the host is
 * ahead of the device and has time. */
static void find_gaps(struct gh_walk *walk, const struct gh_tasks *tasks)
{
    for (uint32_t i = 0; i < walk->n; i++) {
        walk->steps[i].flushes =
            tasks->all[walk->steps[i].task].lane == GH_LANE_COMM;
        if (i > 0) {
            walk->steps[i - 1].holds = walk->steps[i].flushes;
        }
    }
}

/* Whether all readers are ordered before the end of the step, on its stream. */
static bool has_read(const struct making *m, const struct gh_life *life,
                     uint32_t step)
{
    for (uint32_t i = 0; i < life->n_readers; i++) {
        const struct position *at = &m->positions[life->readers[i]];

        if (at->step > step ||
            (m->walk->steps[at->step].lane != m->walk->steps[step].lane &&
             at->turn > m->known[step])) {
            return false;
        }
    }
    return true;
}

/* The first step of its own microbatch after which it can be released, or
 * GH_NO_TASK. */
static uint32_t last_of(const struct making *m, const struct gh_life *life)
{
    for (uint32_t i = 0; i < m->walk->n; i++) {
        const struct gh_task *task = &m->tasks->all[m->walk->steps[i].task];

        if ((task->direction == GH_FORWARD) == life->forward &&
            has_read(m, life, i)) {
            return i;
        }
    }
    return GH_NO_TASK;
}

/* Lists the releases in the order of their steps. */
static void list_releases(struct making *m, struct gh_life *lives, uint32_t n)
{
    struct gh_walk *walk = m->walk;

    for (uint32_t i = 0; i < n; i++) {
        lives[i].ends = last_of(m, &lives[i]);
    }
    for (uint32_t s = 0; s < walk->n; s++) {
        walk->steps[s].release = walk->n_releases;
        for (uint32_t i = 0; i < n; i++) {
            if (lives[i].ends == s) {
                walk->releases[walk->n_releases++] = lives[i].what;
                walk->steps[s].n_release++;
            }
        }
    }
}

static gh_status add_releases(struct making *m, const struct gh_plan *plan,
                              gh_error *err)
{
    const uint32_t n = gh_lives_find(plan, m->tasks, NULL);
    struct gh_life *lives = calloc(n + 1, sizeof(*lives));

    m->walk->releases = calloc(n + 1, sizeof(*m->walk->releases));
    if (lives == NULL || m->walk->releases == NULL) {
        free(lives);
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a schedule");
    }
    gh_lives_find(plan, m->tasks, lives);
    list_releases(m, lives, n);
    free(lives);
    return GH_OK;
}

gh_status gh_walk_make(const struct gh_plan *plan,
                       const struct gh_tasks *tasks, const uint32_t *sequence,
                       bool serial, struct gh_walk *walk, gh_error *err)
{
    struct making m = { .tasks = tasks, .walk = walk };
    gh_status status;

    memset(walk, 0, sizeof(*walk));
    walk->steps = calloc(tasks->n + 1, sizeof(*walk->steps));
    m.positions = calloc(tasks->n + 1, sizeof(*m.positions));
    m.known = calloc(tasks->n + 1, sizeof(*m.known));
    if (walk->steps == NULL || m.positions == NULL || m.known == NULL) {
        status = gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a schedule");
        goto out;
    }
    for (uint32_t i = 0; i < tasks->n; i++) {
        add_step(&m, sequence[i], serial);
    }
    find_gaps(walk, tasks);
    walk->joins = m.turns[GH_LANE_COMM] > m.reach[GH_LANE_COMPUTE];
    walk->waits += walk->joins;
    status = add_releases(&m, plan, err);

out:
    free(m.positions);
    free(m.known);
    if (status != GH_OK) {
        gh_walk_free(walk);
    }
    return status;
}

void gh_walk_free(struct gh_walk *walk)
{
    free(walk->steps);
    free(walk->releases);
    memset(walk, 0, sizeof(*walk));
}
