/*
 * tasks.c - see tasks.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "schedule/tasks.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

/* The nodes of one layer, and where its segments begin. */
struct stages {
    gh_family_node nodes[GH_FAMILY_NODES];
    uint32_t n;
    uint32_t first_segment;
    uint32_t first_cell;
};

static bool exchanges(const struct stages *stages)
{
    for (uint32_t i = 0; i < stages->n; i++) {
        if (stages->nodes[i].lane == GH_LANE_COMM) {
            return true;
        }
    }
    return false;
}

static enum gh_role role_of(const struct stages *stages, uint32_t node)
{
    static const enum gh_role compute[] = { GH_ROLE_BEFORE, GH_ROLE_EXPERTS },
                              comm[] = { GH_ROLE_DISPATCH, GH_ROLE_COMBINE };
    uint32_t before = 0;

    if (!exchanges(stages)) {
        return node == 0 ? GH_ROLE_BEFORE : GH_ROLE_EXPERTS;
    }
    for (uint32_t i = 0; i < node; i++) {
        before += stages->nodes[i].lane == GH_LANE_COMM;
    }
    if (before > 1) {
        return GH_ROLE_AFTER;
    }
    return stages->nodes[node].lane == GH_LANE_COMM ? comm[before]
                                                    : compute[before];
}

/* The number of segments of a node.  No segment extends over two nodes. */
static uint32_t segments_of(const struct gh_plan *plan, uint32_t first,
                            uint32_t layer, gh_part last)
{
    uint32_t n = 1;

    while (!gh_plan_covers(plan, &plan->segments[first + n - 1], layer, last)) {
        n++;
    }
    return n;
}

static bool leaves_wgrad(const struct gh_plan *plan, const struct gh_task *task)
{
    for (uint32_t i = 0; i < task->n_segments; i++) {
        if (gh_plan_leaves_wgrad(plan, task->first_segment + i)) {
            return true;
        }
    }
    return false;
}

static void add(struct gh_tasks *tasks, struct gh_task task)
{
    tasks->all[tasks->n++] = task;
    tasks->count[task.direction]++;
}

static struct gh_task task_of(const struct gh_plan *plan,
                              const struct stages *stages, uint32_t layer,
                              uint32_t node, uint32_t *segment)
{
    const struct gh_task task = {
        .layer = layer,
        .node = node,
        .role = role_of(stages, node),
        .lane = stages->nodes[node].lane,
        .first_part = stages->nodes[node].first,
        .last_part = stages->nodes[node].last,
        .first_segment = *segment,
        .n_segments =
            segments_of(plan, *segment, layer, stages->nodes[node].last),
        .after = GH_NO_TASK,
        .cell = (stages->first_cell + node) * GH_TASK_KINDS,
    };

    *segment += task.n_segments;
    return task;
}

/* Appends the forward of a chunk. */
static void add_forward(const struct gh_plan *plan, uint32_t chunk,
                        struct gh_tasks *tasks)
{
    uint32_t segment = plan->chunk_start[chunk], at = 0, cell = 0;
    const uint32_t first = tasks->n;

    for (uint32_t i = 0; i < plan->n_layers; i++) {
        struct stages stages = { .first_cell = cell };

        stages.n = gh_layer_nodes(&plan->layers[i], stages.nodes);
        cell += stages.n;
        if (plan->layers[i].chunk != chunk) {
            continue;
        }
        for (uint32_t node = 0; node < stages.n; node++) {
            struct gh_task task = task_of(plan, &stages, i, node, &segment);

            task.at = at;
            task.after = tasks->n > first ? tasks->n - 1 : GH_NO_TASK;
            add(tasks, task);
        }
        at++;
    }
    tasks->layers[0] = at;
}

/* Turns the forward that begins at `first` into its backward. */
static void turn_round(struct gh_tasks *tasks, uint32_t first)
{
    const uint32_t n = tasks->n - first, layers = tasks->layers[0];
    struct gh_task *chain = &tasks->all[first];

    for (uint32_t i = 0; i < n / 2; i++) {
        const struct gh_task kept = chain[i];

        chain[i] = chain[n - 1 - i];
        chain[n - 1 - i] = kept;
    }
    for (uint32_t i = 0; i < n; i++) {
        chain[i].direction = GH_BACKWARD;
        chain[i].cell += GH_BACKWARD;
        chain[i].at = layers - 1 - chain[i].at;
        chain[i].after = i > 0 ? first + i - 1 : GH_NO_TASK;
    }
    tasks->count[GH_FORWARD] -= n;
    tasks->count[GH_BACKWARD] += n;
    tasks->layers[1] = layers;
    tasks->layers[0] = 0;
}

static void add_wgrads(const struct gh_plan *plan, struct gh_tasks *tasks)
{
    const uint32_t first = tasks->first[GH_BACKWARD];

    for (uint32_t i = first; i < first + tasks->count[GH_BACKWARD]; i++) {
        struct gh_task task = tasks->all[i];

        if (!leaves_wgrad(plan, &task)) {
            continue;
        }
        task.direction = GH_WGRAD;
        task.cell += GH_WGRAD - GH_BACKWARD;
        task.lane = GH_LANE_COMPUTE;
        task.after = i;
        add(tasks, task);
    }
}

static uint32_t most_tasks(const struct gh_plan *plan)
{
    return gh_tasks_cells(plan); /* each node has one in each direction */
}

gh_status gh_tasks_make(const struct gh_plan *plan, uint32_t forward,
                        uint32_t backward, struct gh_tasks *tasks,
                        gh_error *err)
{
    memset(tasks, 0, sizeof(*tasks));
    tasks->all = calloc(most_tasks(plan), sizeof(*tasks->all));
    if (tasks->all == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a schedule");
    }
    if (backward != GH_NO_CHUNK) {
        add_forward(plan, backward, tasks);
        turn_round(tasks, 0);
        tasks->first[GH_WGRAD] = tasks->n;
        add_wgrads(plan, tasks);
    }
    tasks->first[GH_FORWARD] = tasks->n;
    if (forward != GH_NO_CHUNK) {
        add_forward(plan, forward, tasks);
    }
    return GH_OK;
}

void gh_tasks_free(struct gh_tasks *tasks)
{
    free(tasks->all);
    memset(tasks, 0, sizeof(*tasks));
}

uint32_t gh_tasks_find(const struct gh_tasks *tasks, gh_direction direction,
                       uint32_t layer, uint32_t node)
{
    const uint32_t first = tasks->first[direction];

    for (uint32_t i = first; i < first + tasks->count[direction]; i++) {
        if (tasks->all[i].layer == layer && tasks->all[i].node == node) {
            return i;
        }
    }
    return GH_NO_TASK;
}

uint32_t gh_tasks_cells(const struct gh_plan *plan)
{
    gh_family_node nodes[GH_FAMILY_NODES];
    uint32_t n = 0;

    for (uint32_t i = 0; i < plan->n_layers; i++) {
        n += gh_layer_nodes(&plan->layers[i], nodes);
    }
    return n * GH_TASK_KINDS;
}
