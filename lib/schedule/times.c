/*
 * times.c - the durations of nodes, measured in one step.
 *
 * The measured step is the second one after warmup and after the profile of
 * offload: graphs are replayed in it.  Events are recorded before and after
 * each node, behind its wait, so that the wait is not counted.  The first run
 * of the next step reads the events and agrees with all ranks; it drops all
 * pairings, which are then made again by these times.  Steps are counted, so
 * that all ranks do this in the same call.  A node that one rank could not
 * measure has the times of the others.  If a rank could measure no node, the
 * order stays fixed on all.
 *
 * A node of compute takes as long as on the slowest rank.  An exchange takes as
 * long as on the rank where it took least: the others have begun it earlier and
 * waited for that rank.  Ranks agree on the maximum of each number, so an
 * exchange's number is how many of it take a second.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "schedule/state.h"

#include "base/error.h"
#include "capture/capture.h"
#include "device/device.h"
#include "ranks/collect.h"

#include <stdio.h>
#include <stdlib.h>

/* In the first step after warmup graphs are recorded. */
#define STEPS_AFTER_WARMUP 1

/* Without memory or events the pairing is not measured. */
bool gh_times_begin(struct gh_schedule *s, struct gh_pairing *p)
{
    struct gh_device_before before;
    gh_status status = GH_OK;

    if (s->timing != GH_TIMING_TAKES || p->timers != NULL) {
        return false;
    }
    p->timers = calloc(2 * (size_t)p->tasks.n + 1, sizeof(*p->timers));
    if (p->timers == NULL) {
        return false;
    }
    before = gh_device_enter(s->dev);
    for (uint32_t i = 0; i < 2 * p->tasks.n && status == GH_OK; i++) {
        status = gh_device_event_create_timed(s->dev, &p->timers[i], NULL);
    }
    gh_device_leave(s->dev, before);
    if (status != GH_OK) {
        gh_times_free(s, p);
    }
    return status == GH_OK;
}

/* Adds the times of a pairing to `sums`, and their number to `counts`. */
static void read_pairing(struct gh_schedule *s, struct gh_pairing *p,
                         double *sums, uint32_t *counts)
{
    for (uint32_t i = 0; i < p->tasks.n && p->timers != NULL; i++) {
        const uint32_t cell = p->tasks.all[i].cell;
        double ns;

        if (gh_device_event_sync(s->dev, p->timers[2 * i + 1], NULL) == GH_OK &&
            gh_device_event_elapsed(s->dev, p->timers[2 * i],
                                    p->timers[2 * i + 1], &ns, NULL) == GH_OK &&
            ns >= 0) {
            sums[cell] += ns;
            counts[cell]++;
        }
    }
}

/* An exchange counts as often as it takes a second, or back; see above. */
static void invert_exchanges(const struct gh_plan *plan, double *table)
{
    gh_family_node nodes[GH_FAMILY_NODES];
    double *cell = table;

    for (uint32_t i = 0; i < plan->n_layers; i++) {
        const uint32_t n = gh_layer_nodes(&plan->layers[i], nodes);

        for (uint32_t k = 0; k < n; k++, cell += GH_TASK_KINDS) {
            if (nodes[k].lane == GH_LANE_COMM) {
                cell[GH_FORWARD] = gh_inverse(cell[GH_FORWARD]);
                cell[GH_BACKWARD] = gh_inverse(cell[GH_BACKWARD]);
            }
        }
    }
}

/* False without memory. */
static bool read_all(struct gh_schedule *s, double *table, uint32_t cells)
{
    uint32_t *counts = calloc(cells, sizeof(*counts));

    if (counts == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < s->n_pairings; i++) {
        read_pairing(s, s->pairings[i], table, counts);
    }
    for (uint32_t i = 0; i < cells; i++) {
        table[i] = counts[i] > 0 ? table[i] / counts[i] : 0;
    }
    invert_exchanges(s->plan, table);
    free(counts);
    return true;
}

static void warn_fixed(const struct gh_schedule *s, const char *why)
{
    gh_log_line(s->options.log, GH_LOG_WARN,
                "GRAPHHOOKS_OVERLAP=auto: the order stays fixed, as %s", why);
}

static gh_status agree_on_times(struct gh_schedule *s,
                                const gh_overlap_pair *pair, gh_error *err)
{
    const uint32_t cells = gh_tasks_cells(s->plan);
    double *table = calloc(cells, sizeof(*table));
    const bool has = table != NULL && read_all(s, table, cells);
    char why[80];
    uint32_t lacks;
    gh_status status =
        gh_agree(s, pair, has ? table : NULL, cells, &lacks, err);

    if (status == GH_OK && lacks != GH_NO_RANK) {
        snprintf(why, sizeof(why), "rank %u could not measure its nodes",
                 lacks);
        warn_fixed(s, why);
        s->timing = GH_TIMING_NEVER;
    }
    if (status != GH_OK || lacks != GH_NO_RANK) {
        free(table);
        return status;
    }
    gh_pairings_free(s);
    invert_exchanges(s->plan, table);
    s->ns = table;
    s->timing = GH_TIMING_SETTLED;
    return GH_OK;
}

void gh_times_forget(struct gh_schedule *s)
{
    gh_pairings_free(s);
    free(s->ns);
    s->ns = NULL;
    s->timing = GH_TIMING_NEVER;
}

/* The first step in which nodes can be measured. */
static uint64_t first_step(const struct gh_schedule *s)
{
    const uint64_t profile = gh_capture_profile_steps(s->capture);

    return (s->options.warmup_steps > profile ? s->options.warmup_steps
                                              : profile) +
           STEPS_AFTER_WARMUP;
}

gh_status gh_times_turn(struct gh_schedule *s, const gh_overlap_pair *pair,
                        gh_error *err)
{
    const uint64_t step = gh_capture_iterations(s->capture);

    if (s->timing == GH_TIMING_NEVER || s->timing == GH_TIMING_SETTLED) {
        return GH_OK;
    }
    if (!gh_agree_can(s, pair)) {
        s->timing = GH_TIMING_NEVER;
        warn_fixed(s, "ranks that choose by times of their own would wait for "
                      "each other: name them with gh_ranks_set, or give "
                      "gh_overlap_pair.agree, which is NULL");
        return GH_OK;
    }
    if (s->timing == GH_TIMING_WAITS &&
        step >= first_step(s)) {
        s->timing = GH_TIMING_TAKES;
        s->taken_at = step;
    }
    return s->timing == GH_TIMING_TAKES && step > s->taken_at
               ? agree_on_times(s, pair, err)
               : GH_OK;
}
