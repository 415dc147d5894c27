/*
 * orders.c - see orders.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "orders.h"

#include "base/error.h"
#include "schedule/sequence.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Layers whose orders differ, of which each is shown once. */
#define MOST_SHOWN 16u

static bool exchanges(const struct gh_layer *layer)
{
    gh_family_node nodes[GH_FAMILY_NODES];
    const uint32_t n = gh_layer_nodes(layer, nodes);

    for (uint32_t i = 0; i < n; i++) {
        if (nodes[i].lane == GH_LANE_COMM) {
            return true;
        }
    }
    return false;
}

gh_status orders_check(const struct gh_plan *plan,
                       const struct node_times *const *times, gh_error *err)
{
    gh_family_node nodes[GH_FAMILY_NODES];

    for (uint32_t i = 0; i < plan->n_layers; i++) {
        const uint32_t n = gh_layer_nodes(&plan->layers[i], nodes);

        if (times[i] != NULL && times[i]->n != 0 && times[i]->n != n) {
            return gh_fail(err, GH_ERR_CONFIG,
                           "node_us of %.80s has %u nodes, and the layer %u: "
                           "give each node of the overlap its times, in the "
                           "order of the forward",
                           plan->layers[i].name, times[i]->n, n);
        }
    }
    return GH_OK;
}

/* ---- a pair of layers ---------------------------------------------------- */

/* "[F.dispatch]": what is exchanged is in brackets. */
static void name_task(const struct gh_task *task, char *text, size_t bytes)
{
    static const char letters[] = { [GH_FORWARD] = 'F',
                                    [GH_BACKWARD] = 'B',
                                    [GH_WGRAD] = 'W' };
    static const char *const roles[] = { [GH_ROLE_BEFORE] = "before",
                                         [GH_ROLE_DISPATCH] = "dispatch",
                                         [GH_ROLE_EXPERTS] = "experts",
                                         [GH_ROLE_COMBINE] = "combine",
                                         [GH_ROLE_AFTER] = "rest" };

    snprintf(text, bytes, "%c.%s", letters[task->direction],
             roles[task->role]);
}

/* Leaves of a chunk's tasks those of one layer in both directions: a pair of
 * layers that are alike. */
static void keep_layer(struct gh_tasks *tasks, uint32_t layer)
{
    uint32_t n = 0;

    memset(tasks->count, 0, sizeof(tasks->count));
    for (uint32_t i = 0; i < tasks->n; i++) {
        struct gh_task task = tasks->all[i];

        if (task.layer != layer) {
            continue;
        }
        if (tasks->count[task.direction]++ == 0) {
            tasks->first[task.direction] = n;
        }
        task.at = 0;
        tasks->all[n++] = task;
    }
    tasks->n = n;
    tasks->layers[0] = tasks->layers[1] = 1;
}

struct pair {
    struct gh_tasks tasks;
    uint32_t *sequence;
};

static void free_pair(struct pair *pair)
{
    gh_tasks_free(&pair->tasks);
    free(pair->sequence);
}

static bool make_pair(const struct gh_plan *plan, uint32_t chunk,
                      struct pair *pair)
{
    memset(pair, 0, sizeof(*pair));
    if (gh_tasks_make(plan, chunk, chunk, &pair->tasks, NULL) != GH_OK) {
        return false;
    }
    pair->sequence = calloc(pair->tasks.n + (size_t)1,
                            sizeof(*pair->sequence));
    if (pair->sequence == NULL) {
        free_pair(pair);
    }
    return pair->sequence != NULL;
}

static bool make_layer_pair(const struct gh_plan *plan, uint32_t layer,
                            struct pair *pair)
{
    if (!make_pair(plan, plan->layers[layer].chunk, pair)) {
        return false;
    }
    keep_layer(&pair->tasks, layer);
    gh_sequence_fixed(&pair->tasks, false, pair->sequence);
    return true;
}

/* As one word, by which alike ones are known. */
static void order_text(const struct pair *pair, char *text, size_t bytes)
{
    size_t used = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < pair->tasks.n && used < bytes; i++) {
        const struct gh_task *task = &pair->tasks.all[pair->sequence[i]];
        const bool comm = task->lane == GH_LANE_COMM;
        char name[24];

        name_task(task, name, sizeof(name));
        used += (size_t)snprintf(text + used, bytes - used,
                                 comm ? " [%s]" : " %s", name);
    }
}

/* Calls back for the first layer of each order. */
static void for_each_order(const struct gh_plan *plan,
                           void (*call)(const struct gh_plan *plan,
                                        uint32_t layer,
                                        const struct pair *pair,
                                        const char *text, bool first))
{
    static char shown[MOST_SHOWN][1024];
    uint32_t n = 0;

    for (uint32_t i = 0; i < plan->n_layers && n < MOST_SHOWN; i++) {
        struct pair pair;
        uint32_t k = 0;

        if (!exchanges(&plan->layers[i]) || (i > 0 && n > 0 &&
            plan->layers[i].kind == plan->layers[i - 1].kind &&
            plan->layers[i].traits == plan->layers[i - 1].traits) ||
            !make_layer_pair(plan, i, &pair)) {
            continue;
        }
        order_text(&pair, shown[n], sizeof(shown[n]));
        while (k < n && strcmp(shown[k], shown[n]) != 0) {
            k++;
        }
        if (k == n) {
            call(plan, i, &pair, shown[n], n == 0);
            n++;
        }
        free_pair(&pair);
    }
}

/* ---- a pair of chunks ---------------------------------------------------- */

/* A pair is foreseen where each of its nodes has its times. */
static bool take_times(const struct gh_plan *plan, struct gh_tasks *tasks,
                       const struct node_times *const *times)
{
    bool known = tasks->n > 0;

    for (uint32_t i = 0; i < tasks->n; i++) {
        struct gh_task *task = &tasks->all[i];
        const struct node_times *of = times[task->layer];

        known = known && of != NULL && task->node < of->n;
        if (known) {
            task->ns = 1000.0 * of->us[task->node][task->direction];
        }
    }
    (void)plan;
    return known;
}

struct foretold {
    struct gh_forecast best, fixed, early;
    bool is_auto;
};

static bool foretell(const struct gh_plan *plan, uint32_t chunk,
                     const struct node_times *const *times,
                     struct foretold *told)
{
    struct pair pair;
    bool known;

    if (!make_pair(plan, chunk, &pair)) {
        return false;
    }
    known = take_times(plan, &pair.tasks, times);
    if (known) {
        gh_sequence_fixed(&pair.tasks, true, pair.sequence);
        known = gh_sequence_forecast(&pair.tasks, pair.sequence, &told->early,
                                     NULL) == GH_OK &&
                gh_sequence_best(&pair.tasks, false, pair.sequence,
                                 &told->best, &told->fixed, NULL) == GH_OK;
        told->is_auto = told->best.total < told->fixed.total;
    }
    free_pair(&pair);
    return known && told->fixed.lanes[GH_LANE_COMM] > 0;
}

/* ---- what is written ----------------------------------------------------- */

static void print_order(const struct gh_plan *plan, uint32_t layer,
                        const struct pair *pair, const char *text, bool first)
{
    (void)pair;
    if (first) {
        printf("overlap, a pair of layers in the fixed order, exchanges in "
               "brackets:\n");
    }
    printf("  %s:%s\n", plan->layers[layer].name, text);
}

void orders_print(const struct gh_plan *plan,
                  const struct node_times *const *times)
{
    struct foretold told;

    if (!plan->options.ep_overlap) {
        return;
    }
    for_each_order(plan, print_order);
    for (uint32_t c = 0; c < plan->n_chunks; c++) {
        if (!foretell(plan, c, times, &told)) {
            continue;
        }
        printf("  forward and backward of chunk %u: %s order: %.3f ms "
               "foreseen, fixed %.3f; compute %.3f, communication %.3f, of "
               "which exposed %.1f %%, fixed %.1f %%, with early release "
               "%.1f %%\n",
               c, told.is_auto ? "auto" : "fixed", told.best.total / 1e6,
               told.fixed.total / 1e6,
               told.best.lanes[GH_LANE_COMPUTE] / 1e6,
               told.best.lanes[GH_LANE_COMM] / 1e6,
               100 * gh_forecast_exposed(&told.best),
               100 * gh_forecast_exposed(&told.fixed),
               100 * gh_forecast_exposed(&told.early));
    }
}

static void print_json_order(const struct gh_plan *plan, uint32_t layer,
                             const struct pair *pair, const char *text,
                             bool first)
{
    (void)plan;
    (void)text;
    printf("%s\n{\"layer\":%u,\"fixed\":[", first ? "" : ",", layer);
    for (uint32_t i = 0; i < pair->tasks.n; i++) {
        const struct gh_task *task = &pair->tasks.all[pair->sequence[i]];
        char name[24];

        name_task(task, name, sizeof(name));
        printf("%s{\"node\":\"%s\",\"lane\":\"%s\"}", i == 0 ? "" : ",", name,
               task->lane == GH_LANE_COMM ? "comm" : "compute");
    }
    printf("]}");
}

void orders_print_json(const struct gh_plan *plan,
                       const struct node_times *const *times)
{
    const char *comma = "";
    struct foretold told;

    if (!plan->options.ep_overlap) {
        return;
    }
    printf("\"overlap\":{\"orders\":[");
    for_each_order(plan, print_json_order);
    printf("\n],\"pairs\":[");
    for (uint32_t c = 0; c < plan->n_chunks; c++) {
        if (!foretell(plan, c, times, &told)) {
            continue;
        }
        printf("%s\n{\"chunk\":%u,\"order\":\"%s\",\"ns\":%.0f,"
               "\"fixed_ns\":%.0f,\"early_ns\":%.0f,\"compute_ns\":%.0f,"
               "\"comm_ns\":%.0f,\"exposed\":%.4f,\"fixed_exposed\":%.4f}",
               comma, c, told.is_auto ? "auto" : "fixed", told.best.total,
               told.fixed.total, told.early.total,
               told.best.lanes[GH_LANE_COMPUTE],
               told.best.lanes[GH_LANE_COMM], gh_forecast_exposed(&told.best),
               gh_forecast_exposed(&told.fixed));
        comma = ",";
    }
    printf("\n]},\n");
}
