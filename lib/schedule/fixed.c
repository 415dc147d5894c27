/*
 * fixed.c - the serial sequence, and the fixed one of a pair of layers.
 *
 * Source: the order in which Megatron-Core issues a combined forward and
 * backward, of which this is the table.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "schedule/sequence.h"

#define ROLE(name) (1u << GH_ROLE_##name)

static const struct row {
    gh_direction direction;
    uint32_t roles;
    int early; /* 1: only with early release, -1: only without, 0: always */
} rows[] = {
    { GH_BACKWARD, ROLE(AFTER), 0 },
    { GH_BACKWARD, ROLE(COMBINE), 0 },
    { GH_FORWARD, ROLE(BEFORE), 0 },
    { GH_BACKWARD, ROLE(EXPERTS), 0 },
    { GH_FORWARD, ROLE(DISPATCH), 0 },
    { GH_WGRAD, ROLE(EXPERTS), 0 },
    { GH_BACKWARD, ROLE(DISPATCH), 0 },
    { GH_BACKWARD, ROLE(BEFORE), 1 },
    { GH_FORWARD, ROLE(EXPERTS), 0 },
    { GH_FORWARD, ROLE(COMBINE), 0 },
    { GH_BACKWARD, ROLE(BEFORE), -1 },
    { GH_FORWARD, ROLE(AFTER), 0 },
};
#define NOT_EXPERTS (~ROLE(EXPERTS))

struct out {
    const struct gh_tasks *tasks;
    uint32_t *sequence;
    uint32_t n;
};

static void emit(struct out *out, gh_direction direction, uint32_t at,
                 uint32_t roles)
{
    const uint32_t first = out->tasks->first[direction];

    for (uint32_t i = first; i < first + out->tasks->count[direction]; i++) {
        const struct gh_task *task = &out->tasks->all[i];

        if (task->at == at && (roles & 1u << task->role) != 0) {
            out->sequence[out->n++] = i;
        }
    }
}

/* A layer of the forward and one of the backward; either may be GH_NO_TASK. */
static void emit_pair(struct out *out, uint32_t forward, uint32_t backward,
                      bool early)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct row *row = &rows[i];

        if (row->early == 0 || row->early == (early ? 1 : -1)) {
            emit(out, row->direction,
                 row->direction == GH_FORWARD ? forward : backward, row->roles);
        }
    }
    /* Those of the last layer are issued at the end: gh_sequence_fixed(). */
    if (backward != GH_NO_TASK && backward + 1 < out->tasks->layers[1]) {
        emit(out, GH_WGRAD, backward, NOT_EXPERTS);
    }
}

void gh_sequence_fixed(const struct gh_tasks *tasks, bool early,
                       uint32_t *sequence)
{
    struct out out = { .tasks = tasks, .sequence = sequence };
    const uint32_t forward = tasks->layers[0], backward = tasks->layers[1];
    const uint32_t both = forward < backward ? forward : backward;

    for (uint32_t at = 0; at < both; at++) {
        emit_pair(&out, at, at, early);
    }
    for (uint32_t at = both; at < backward; at++) {
        emit_pair(&out, GH_NO_TASK, at, early);
    }
    for (uint32_t at = both; at < forward; at++) {
        emit_pair(&out, at, GH_NO_TASK, early);
    }
    if (backward > 0) {
        emit(&out, GH_WGRAD, backward - 1, NOT_EXPERTS);
    }
}

void gh_sequence_serial(const struct gh_tasks *tasks, uint32_t *sequence)
{
    struct out out = { .tasks = tasks, .sequence = sequence };

    for (uint32_t at = 0; at < tasks->layers[1]; at++) {
        emit(&out, GH_BACKWARD, at, ~0u);
        emit(&out, GH_WGRAD, at, ~0u);
    }
    for (uint32_t at = 0; at < tasks->layers[0]; at++) {
        emit(&out, GH_FORWARD, at, ~0u);
    }
}
