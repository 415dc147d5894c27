/*
 * release.c - the tensors that a node writes, and the nodes that read them.
 *
 * They follow from the plan's borders.  The forward, the backward and the
 * weight gradient of a node read the tensors that cross into it.  There is one
 * exception: the backward of an exchange moves gradients and reads no
 * activation.  Tensors that a graph has written stay the graph's, and tensors
 * that leave the chunk stay the host's: neither is released.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "schedule/walk.h"

struct finding {
    const struct gh_plan *plan;
    const struct gh_tasks *tasks;
    struct gh_life *lives; /* NULL: only counted */
    uint32_t n;
};

static void add_reader(struct gh_life *life, const struct gh_tasks *tasks,
                       gh_direction direction, uint32_t layer, uint32_t node)
{
    const uint32_t task = gh_tasks_find(tasks, direction, layer, node);

    if (task != GH_NO_TASK && life->n_readers < GH_MOST_READERS) {
        life->readers[life->n_readers++] = task;
    }
}

static void add_life(struct finding *f, const struct gh_life *life)
{
    if (life->n_readers == 0) {
        return;
    }
    if (f->lives != NULL) {
        f->lives[f->n] = *life;
    }
    f->n++;
}

static bool is_kept(const gh_family_node *node, const gh_border *border)
{
    return node->lane == GH_LANE_COMPUTE ||
           border->element != GH_ELEMENT_ACTIVATION;
}

/* Whether a node has one of the parts. */
static bool has_any(const struct gh_layer *layer, const gh_family_node *node,
                    uint32_t wanted)
{
    const gh_part *parts;
    const uint32_t n = gh_layer_parts(layer, &parts);
    bool inside = false;

    for (uint32_t i = 0; i < n; i++) {
        inside = inside || parts[i] == node->first;
        if (inside && (wanted & UINT32_C(1) << parts[i]) != 0) {
            return true;
        }
        inside = inside && parts[i] != node->last;
    }
    return false;
}

/* A forward tensor is released in the forward if no backward reads it. */
static void add_forward(struct finding *f, const gh_border *border,
                        uint32_t layer, uint32_t own, bool forward)
{
    gh_family_node nodes[GH_FAMILY_NODES];
    const bool hands_on = border->readers == 0; /* to the next layer */
    const uint32_t at = hands_on ? layer + 1 : layer;
    struct gh_life life = {
        .what = { GH_FORWARD, layer, own, border->tensor },
        .forward = forward,
    };
    bool kept = false;
    uint32_t n;

    if (hands_on &&
        (at >= f->plan->n_layers || !gh_plan_follows(f->plan, at))) {
        return;
    }
    n = gh_layer_nodes(&f->plan->layers[at], nodes);
    for (uint32_t i = 0; i < n; i++) {
        const bool reads = hands_on ? i == 0
                                    : i != own && has_any(&f->plan->layers[at],
                                                          &nodes[i],
                                                          border->readers);

        if (!reads) {
            continue;
        }
        if (forward) {
            add_reader(&life, f->tasks, GH_FORWARD, at, i);
            kept = kept || is_kept(&nodes[i], border);
        } else if (is_kept(&nodes[i], border)) {
            add_reader(&life, f->tasks, GH_BACKWARD, at, i);
            add_reader(&life, f->tasks, GH_WGRAD, at, i);
        }
    }
    if (!kept) {
        add_life(f, &life);
    }
}

/* The gradient of a tensor that the node reads; the node that wrote the tensor
 * reads the gradient. */
static void add_gradient(struct finding *f, const gh_border *border,
                         uint32_t layer, uint32_t own)
{
    gh_family_node nodes[GH_FAMILY_NODES];
    const uint32_t n =
        gh_layer_nodes(&f->plan->layers[border->layer], nodes);
    struct gh_life life = {
        .what = { GH_BACKWARD, layer, own, border->tensor },
    };

    if (border->element != GH_ELEMENT_ACTIVATION &&
        border->element != GH_ELEMENT_PROB) {
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (has_any(&f->plan->layers[border->layer], &nodes[i],
                    UINT32_C(1) << border->writer) &&
            (border->layer != layer || i != own)) {
            add_reader(&life, f->tasks, GH_BACKWARD, border->layer, i);
            add_reader(&life, f->tasks, GH_WGRAD, border->layer, i);
        }
    }
    add_life(f, &life);
}

static void add_segment(struct finding *f, const struct gh_task *task,
                        uint32_t segment)
{
    const bool forward = task->direction == GH_FORWARD;
    gh_border borders[GH_TENSOR_COUNT];
    uint32_t n;

    if (f->plan->segments[segment].mode == GH_SEGMENT_GRAPHED) {
        return;
    }
    n = gh_plan_borders(f->plan, segment, GH_SIDE_OUT, borders);
    for (uint32_t i = 0; i < n; i++) {
        add_forward(f, &borders[i], task->layer, task->node, forward);
    }
    n = forward ? 0 : gh_plan_borders(f->plan, segment, GH_SIDE_IN, borders);
    for (uint32_t i = 0; i < n; i++) {
        add_gradient(f, &borders[i], task->layer, task->node);
    }
}

uint32_t gh_lives_find(const struct gh_plan *plan,
                       const struct gh_tasks *tasks, struct gh_life *lives)
{
    struct finding f = { .plan = plan, .tasks = tasks, .lives = lives };

    for (uint32_t i = 0; i < tasks->n; i++) {
        const struct gh_task *task = &tasks->all[i];

        for (uint32_t s = 0; s < task->n_segments; s++) {
            if (task->direction != GH_WGRAD) {
                add_segment(&f, task, task->first_segment + s);
            }
        }
    }
    return f.n;
}
