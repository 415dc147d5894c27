/*
 * offload.c - the life of an offload, and the end of its steps.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "offload/offload.h"

#include "base/error.h"
#include "offload/decide/exchanges.h"
#include "offload/decide/measure.h"
#include "offload/decide/report.h"
#include "offload/decide/decide.h"
#include "offload/move/move.h"

#include <stdlib.h>

gh_status gh_offload_create(const struct gh_offload_options *options,
                            const struct gh_plan *plan, struct gh_device *dev,
                            struct gh_memory *memory, const struct gh_log *log,
                            struct gh_offload **offload_p, gh_error *err)
{
    struct gh_offload *o = calloc(1, sizeof(*o));
    struct gh_device_before before;
    gh_status status;

    if (o == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a session");
    }
    o->options = *options;
    o->plan = plan;
    o->dev = dev;
    o->memory = memory;
    o->log = log;
    o->wipes = true;
    o->table.max_slots = options->max_slots;
    o->table.memory = memory;
    o->loans.dev = dev;
    gh_pinned_init(&o->pinned, dev, options->pool_bytes);

    before = gh_device_enter(dev);
    status = gh_device_stream_create(dev, false, &o->out, err);
    if (status == GH_OK) {
        status = gh_device_stream_create(dev, false, &o->back, err);
    }
    gh_device_leave(dev, before);
    if (status != GH_OK) {
        gh_offload_destroy(o);
        return status;
    }
    *offload_p = o;
    return GH_OK;
}

/* Calls `call` for every instance that is in flight, and returns how many there
 * are. */
static uint32_t for_each_live(struct gh_offload *o,
                              void (*call)(struct gh_offload *o,
                                           struct gh_instance *i,
                                           uint64_t number),
                              uint64_t number)
{
    uint32_t n = 0;

    for (uint32_t g = 0; g < o->table.n_groups; g++) {
        struct gh_group *group = o->table.groups[g];

        for (uint32_t s = 0; s < o->table.max_slots; s++) {
            if (gh_instance_is_live(&group->of_slot[s])) {
                call(o, &group->of_slot[s], number);
                n++;
            }
        }
        for (struct gh_instance *i = group->slotless; i != NULL; i = i->next) {
            if (gh_instance_is_live(i)) {
                call(o, i, number);
                n++;
            }
        }
    }
    return n;
}

static const struct gh_instance *live_of(const struct gh_offload *o,
                                         const struct gh_group *group)
{
    const struct gh_instance *i = group->slotless;

    for (uint32_t s = 0; s < o->table.max_slots; s++) {
        if (gh_instance_is_live(&group->of_slot[s])) {
            return &group->of_slot[s];
        }
    }
    while (i != NULL && !gh_instance_is_live(i)) {
        i = i->next;
    }
    return i;
}

gh_status gh_offload_check_idle(const struct gh_offload *o, gh_error *err)
{
    for (uint32_t g = 0; g < o->table.n_groups; g++) {
        const struct gh_group *group = o->table.groups[g];
        const struct gh_instance *i = live_of(o, group);

        if (i != NULL) {
            return gh_fail(err, GH_ERR_STATE,
                           "gh_session_suspend: %s of microbatch %u is saved "
                           "and not released: run its backward first, or end "
                           "the step with gh_iteration_end",
                           gh_group_name(o, group->layer, group->module).text,
                           i->microbatch);
        }
    }
    return GH_OK;
}

static void end_loan(struct gh_offload *o, struct gh_instance *i,
                     uint64_t unused)
{
    (void)unused;
    if (i->loan != NULL) {
        gh_loans_end(&o->loans, i->loan);
        i->loan = NULL;
    }
}

void gh_offload_rest(struct gh_offload *o)
{
    struct gh_device_before before = gh_device_enter(o->dev);

    if (o->out != NULL) {
        (void)gh_device_stream_wait(o->dev, o->out, NULL);
    }
    if (o->back != NULL) {
        (void)gh_device_stream_wait(o->dev, o->back, NULL);
    }
    gh_device_leave(o->dev, before);
    for_each_live(o, end_loan, 0);
    gh_loans_end_all(&o->loans);
}

void gh_offload_destroy(struct gh_offload *o)
{
    struct gh_device_before before;
    gh_offload_stats stats;

    if (o == NULL) {
        return;
    }
    gh_offload_rest(o);
    before = gh_device_enter(o->dev);
    gh_offload_count(o, &stats);
    gh_report_end(o, &stats);
    gh_measure_free(o);
    gh_exchanges_free(o);
    gh_loans_free(&o->loans);
    gh_table_free(&o->table);
    gh_pinned_free(&o->pinned);
    gh_device_stream_destroy(o->dev, o->out);
    gh_device_stream_destroy(o->dev, o->back);
    gh_device_event_destroy(o->dev, o->exchanged);
    gh_device_leave(o->dev, before);
    free(o);
}

void gh_offload_behind(struct gh_offload *o, void *stream)
{
    struct gh_device_before before = gh_device_enter(o->dev);

    gh_move_behind(o, stream);
    gh_device_leave(o->dev, before);
}

gh_status gh_offload_flush(struct gh_offload *o, gh_error *err)
{
    return gh_move_flush(o, err);
}

static void unsave(struct gh_offload *o, struct gh_instance *i, uint64_t pass)
{
    if (i->pass == pass) {
        gh_move_abandon(o, i);
    }
}

static void unload(struct gh_offload *o, struct gh_instance *i, uint64_t pass)
{
    if (i->pass == pass && (i->state == GH_INSTANCE_READING ||
                            i->state == GH_INSTANCE_RELEASED)) {
        gh_move_unload(o, i);
    }
}

void gh_offload_cancel(struct gh_offload *o, uint64_t pass, bool forward)
{
    struct gh_device_before before = gh_device_enter(o->dev);

    for_each_live(o, forward ? unsave : unload, pass);
    gh_device_leave(o->dev, before);
}

static void give_up(struct gh_offload *o, struct gh_instance *i,
                    uint64_t unused)
{
    (void)unused;
    gh_move_abandon(o, i);
}

/* Whether any group was asked for.  Else all stay, and there is nothing to
 * learn. */
static bool asks(const struct gh_offload *o)
{
    return o->options.modules != 0 || o->options.named != 0;
}

bool gh_offload_is_profiling(const struct gh_offload *o, uint64_t steps_ended)
{
    return asks(o) && !o->profiled &&
           (steps_ended == 0 || o->n_committed != 0 ||
            (o->table.n_groups != 0 && !o->trains_without));
}

/* A step that was cut short has not shown all groups: the next one is the
 * profile, unless a host ends all its steps like that.  It depends on the host
 * alone, and so is the same on all ranks. */
static bool shows_groups(struct gh_offload *o, bool cut)
{
    if (o->n_committed == 0) {
        return false;
    }
    if (cut && !o->cut_short) {
        o->cut_short = true;
        return false;
    }
    return true;
}

/* Whether the next step is to be measured before anything is decided: the
 * first one has loaded modules and grown pools, and times of it say little. */
static bool measures_next(struct gh_offload *o)
{
    if (!o->options.hides || o->measure != NULL) {
        return false;
    }
    gh_measure_begin(o);
    if (o->measure != NULL && o->plan->options.ep_overlap) {
        gh_exchanges_begin(o);
    }
    return o->measure != NULL;
}

/* Whether the next step too belongs to the comparison of exchanges. */
static bool compares_next(struct gh_offload *o)
{
    if (o->measure == NULL || !gh_exchanges_go_on(o)) {
        return false;
    }
    gh_measure_end(o);
    return true;
}

static bool compares(const struct gh_offload *o)
{
    return o->options.hides && o->plan->options.ep_overlap;
}

uint64_t gh_offload_profile_steps(const struct gh_offload *o)
{
    if (compares(o)) {
        return 4;
    }
    return o->options.hides ? 2 : 1;
}

bool gh_offload_asks_ranks(const struct gh_offload *o)
{
    const bool declared = o->profiled && o->profile_steps == 0;

    return compares(o) && !declared &&
           o->shown_steps + 1 == gh_offload_profile_steps(o);
}

/* With a log at info this step after the profile is measured.  By then all that
 * can be recorded is. */
#define MEASURED_STEP 4

static void say_worst(const struct gh_offload *o)
{
    double ns, save_ns;
    const struct gh_group *worst = gh_measure_worst(o, &ns, &save_ns);

    if (worst != NULL) {
        gh_report_wait(o, worst, ns, save_ns, "in the step that was timed");
    }
}

static void count_steps(struct gh_offload *o)
{
    const uint32_t n = ++o->decided_steps;

    if (o->log->level < GH_LOG_INFO || n + 1 < MEASURED_STEP) {
        return;
    }
    if (n + 1 == MEASURED_STEP) {
        gh_measure_begin(o);
    } else if (n == MEASURED_STEP && o->measure != NULL) {
        gh_measure_end(o);
    } else if (gh_measure_sum(o, &o->stats)) {
        say_worst(o);
        gh_measure_free(o);
    }
}

gh_status gh_offload_end_step(struct gh_offload *o, gh_error *err)
{
    struct gh_device_before before = gh_device_enter(o->dev);
    gh_status status = gh_move_flush(o, err);
    const bool cut = for_each_live(o, give_up, 0) != 0;
    const bool shown = shows_groups(o, cut);

    gh_loans_end_recorded(&o->loans);
    if (o->trains && o->n_committed == 0) {
        o->trains_without = true;
    }
    o->trains = false;
    if (o->profiled) {
        count_steps(o);
    } else {
        o->profile_steps++;
    }
    o->shown_steps += shown;
    o->wipes = o->wipes && !shown && !o->profiled;
    if (status == GH_OK && shown && !o->profiled && !measures_next(o) &&
        !compares_next(o)) {
        /* Copies follow what the host has issued, which may wait for a rank
         * that does not come. */
        gh_streams_quiesce(o->memory->streams);
        status = gh_offload_decide(o, err);
    }
    gh_device_leave(o->dev, before);
    return status;
}

static uint64_t bytes_of_rings(const struct gh_offload *o)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < o->table.n_classes; i++) {
        const struct gh_size_class *c = o->table.classes[i];

        bytes += c->bytes * (c->out.n + (uint64_t)c->back.n);
    }
    return bytes;
}

static uint64_t kept_by(const struct gh_instance *i)
{
    return i->kept_bytes + i->wider_bytes;
}

static uint64_t bytes_kept(const struct gh_offload *o)
{
    uint64_t bytes = 0;

    for (uint32_t g = 0; g < o->table.n_groups; g++) {
        const struct gh_group *group = o->table.groups[g];

        for (uint32_t s = 0; s < o->table.max_slots; s++) {
            bytes += kept_by(&group->of_slot[s]);
        }
        for (const struct gh_instance *i = group->slotless; i != NULL;
             i = i->next) {
            bytes += kept_by(i);
        }
    }
    return bytes;
}

/* What an instance that microbatches use keeps from now on. */
static uint64_t will_be_kept_by(const struct gh_group *group,
                                const struct gh_instance *i)
{
    const uint64_t goes = group->fate == GH_FATE_GOES ? group->bytes : 0;
    const uint64_t stays = group->all > goes ? group->all - goes : 0;

    return i->used && i->host_memory == NULL && stays > i->kept_bytes
               ? stays
               : kept_by(i);
}

uint64_t gh_offload_will_keep(const struct gh_offload *o)
{
    uint64_t bytes = 0;

    for (uint32_t g = 0; g < o->table.n_groups; g++) {
        const struct gh_group *group = o->table.groups[g];

        for (uint32_t s = 0; s < o->table.max_slots; s++) {
            bytes += will_be_kept_by(group, &group->of_slot[s]);
        }
        for (const struct gh_instance *i = group->slotless; i != NULL;
             i = i->next) {
            bytes += will_be_kept_by(group, i);
        }
    }
    return bytes;
}

void gh_offload_count(const struct gh_offload *o, gh_offload_stats *stats)
{
    *stats = o->stats;
    stats->groups = o->table.n_groups;
    for (uint32_t g = 0; g < o->table.n_groups; g++) {
        stats->groups_offloaded +=
            o->table.groups[g]->fate == GH_FATE_GOES && o->profiled;
    }
    stats->ring_bytes = bytes_of_rings(o);
    stats->kept_bytes = bytes_kept(o);
    stats->pinned_bytes = o->pinned.bytes;
    stats->pinned_peak = o->pinned.peak;
    (void)gh_measure_sum(o, stats);
}
