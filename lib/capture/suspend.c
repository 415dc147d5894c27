/*
 * suspend.c - gives the memory of a session back, and takes it again.
 *
 * Nothing is saved.  Between flights no byte of the library's memory is read
 * before it is written, but for one: a buffer of an input with a capacity,
 * where the end stays zero from one pass to the next.  Without a writer its
 * block counts as overwritten, and the next pass zeroes the end again. Whatever
 * else is to outlive a suspension has to be said here.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "capture/capture.h"

#include "base/clock.h"
#include "base/error.h"
#include "capture/offloads.h"
#include "capture/packed.h"
#include "offload/offload.h"
#include "pass/pass.h"
#include "plan/kinds.h"
#include "ranks/collect.h"
#include "ranks/ranks.h"

/* ---- what is in flight --------------------------------------------------- */

static gh_status check_flights(const struct gh_capture *c, gh_error *err)
{
    for (uint32_t i = 0; i < c->slots->n_chunks; i++) {
        const struct gh_slots_chunk *chunk = &c->slots->chunks[i];

        for (uint32_t m = 0; m < chunk->top; m++) {
            const struct gh_flight *flight = &chunk->flights[m];

            if (flight->slot == GH_FLIGHT_NO_SLOT && flight->waiting == 0) {
                continue;
            }
            return gh_fail(
                err, GH_ERR_STATE,
                "gh_session_suspend: microbatch %u of chunk %u is in "
                "flight: run the rest of its passes first, or end "
                "the step with gh_iteration_end",
                m, i);
        }
    }
    return GH_OK;
}

/* A wait for a stream that the host captures would end the capture. */
static gh_status check_streams(const struct gh_capture *c, gh_error *err)
{
    for (uint32_t i = 0; i < c->streams.n; i++) {
        if (gh_device_is_capturing(c->dev, c->streams.all[i])) {
            return gh_fail(err, GH_ERR_STATE,
                           "gh_session_suspend: the host is capturing stream "
                           "%p: end the capture first",
                           c->streams.all[i]);
        }
    }
    return GH_OK;
}

static gh_status check_idle(const struct gh_capture *c, gh_error *err)
{
    gh_status status;

    if (c->open.active) {
        return gh_fail(err, GH_ERR_STATE,
                       "gh_session_suspend: a pass is open, the %s of segment "
                       "%u, microbatch %u%s: call gh_layer_exit or "
                       "gh_layer_cancel first",
                       gh_direction_names[c->open.direction], c->open.segment,
                       c->open.microbatch, gh_capture_whose_open(c));
    }
    if (c->ranks.lost) {
        return gh_ranks_refuse(c, err);
    }
    status = check_flights(c, err);
    if (status == GH_OK && gh_packed_are_set(c)) {
        status = gh_fail(err, GH_ERR_STATE,
                         "gh_session_suspend: a microbatch without a slot has "
                         "its sequences: end the step with gh_iteration_end");
    }
    return status == GH_OK && c->offload != NULL
               ? gh_offload_check_idle(c->offload, err)
               : status;
}

/* ---- memory -------------------------------------------------------------- */

/* After a resume that has failed, here or on another rank. */
static void give_back(struct gh_capture *c)
{
    struct gh_device_before before = gh_device_enter(c->dev);

    if (c->offload != NULL) {
        (void)gh_pinned_suspend(&c->offload->pinned);
    }
    (void)gh_arena_unmap(&c->memory.arena, NULL);
    gh_device_leave(c->dev, before);
}

static gh_status take_all(struct gh_capture *c, gh_error *err)
{
    struct gh_device_before before = gh_device_enter(c->dev);
    gh_status status = gh_arena_map(&c->memory.arena, err);

    if (status == GH_OK && c->offload != NULL) {
        status = gh_pinned_resume(&c->offload->pinned, err);
        if (status != GH_OK) {
            give_back(c);
        }
    }
    gh_device_leave(c->dev, before);
    return status;
}

/* Memory of which some could not be given back is taken again.  Where that
 * fails too, the session is suspended, with less than it could have given. */
static gh_status give_arena(struct gh_capture *c, gh_error *err)
{
    struct gh_arena *arena = &c->memory.arena;
    const gh_status status = gh_arena_unmap(arena, err);

    return status == GH_OK || gh_arena_map(arena, NULL) != GH_OK ? GH_OK
                                                                 : status;
}

static gh_status give_all(struct gh_capture *c, gh_error *err)
{
    const uint64_t mapped = c->memory.arena.mapped;
    gh_status status;

    /* Also of what is taken again at once, the content is lost. */
    gh_banks_forget_writers(&c->banks);
    /* It has no address that a graph knows. */
    c->suspend.device_given = 0;
    if (!gh_memory_holds(&c->memory)) {
        c->suspend.device_given =
            c->check.scratch.bytes + gh_memory_held(&c->memory);
        gh_scratch_free(&c->check.scratch, c->dev);
        gh_memory_trim(&c->memory);
    }
    status = give_arena(c, err);
    c->suspend.device_given += mapped - c->memory.arena.mapped;
    c->suspend.pinned_given = status == GH_OK && c->offload != NULL
                                  ? gh_pinned_suspend(&c->offload->pinned)
                                  : 0;
    return status;
}

/* ---- to suspend ---------------------------------------------------------- */

static gh_status check_can(const struct gh_capture *c, gh_error *err)
{
    uint64_t granule;

    if (!c->options.suspends) {
        return gh_fail(err, GH_ERR_UNSUPPORTED,
                       "gh_session_suspend: the addresses of the session's "
                       "memory are not reserved: open it with "
                       "GH_SESSION_SUSPENDS in gh_session_desc.flags");
    }
    if (c->dev == NULL || gh_arena_is_open(&c->memory.arena) ||
        c->options.host.device_alloc != NULL) {
        return GH_OK;
    }
    return gh_device_granule(c->dev, &granule, err);
}

static gh_status wait_for_all(struct gh_capture *c, gh_error *err)
{
    gh_status status = GH_OK;

    gh_ranks_rest(c);
    if (c->ranks.lost) {
        return gh_ranks_refuse(c, err);
    }
    for (uint32_t i = 0; i < c->streams.n && status == GH_OK; i++) {
        status = gh_device_stream_wait(c->dev, c->streams.all[i], err);
    }
    gh_offloads_rest(c);
    return status;
}

static gh_status suspend(struct gh_capture *c, gh_error *err)
{
    struct gh_device_before before = gh_device_enter(c->dev);
    const uint32_t limit = gh_device_limit_waits(
        c->dev, c->ranks.first != NULL ? c->options.timeout_s : 0);
    gh_status status = check_streams(c, err);

    if (status == GH_OK) {
        status = wait_for_all(c, err);
    }
    if (status == GH_OK) {
        status = give_all(c, err);
    }
    (void)gh_device_limit_waits(c->dev, limit);
    gh_device_leave(c->dev, before);
    return status;
}

/* All ranks do it, or none.  `status` is this one's own, whose text is
 * written. */
static gh_status meet(struct gh_capture *c, gh_status status, bool resumes,
                      gh_error *err)
{
    uint32_t rank;
    gh_error why;
    const gh_status met =
        gh_rank_collect_rest(c, resumes, status != GH_OK, &rank, &why);

    if (status != GH_OK) {
        return status;
    }
    if (met != GH_OK) {
        return gh_fail(err, met, "%s", why.text);
    }
    return rank == GH_NO_RANK
               ? GH_OK
               : gh_fail(err, resumes ? GH_ERR_NO_MEMORY : GH_ERR_STATE,
                         "gh_session_%s: rank %u cannot, and its own text says "
                         "why: no rank has; call it again on all ranks",
                         resumes ? "resume" : "suspend", rank);
}

/* The second meeting: a rank that has resumed may issue work that waits for the
 * others, and where they are threads, memory is freed only once that has ended.
 * Memory that is gone meanwhile leaves this rank suspended. */
static gh_status suspend_together(struct gh_capture *c, gh_error *err)
{
    const gh_status own = suspend(c, err);
    gh_status status = own;

    if (c->ranks.first == NULL || c->ranks.lost) {
        return status;
    }
    status = meet(c, own, false, err);
    if (own == GH_OK && status != GH_OK && !c->ranks.lost &&
        take_all(c, NULL) != GH_OK) {
        return GH_OK;
    }
    return status;
}

gh_status gh_capture_suspend(struct gh_capture *c, gh_error *err)
{
    const uint64_t start = gh_now_ns();
    gh_status status = check_can(c, err);

    if (status == GH_OK) {
        status = check_idle(c, err);
    }
    if (c->ranks.first != NULL && !c->ranks.lost) {
        status = meet(c, status, false, err);
    }
    if (status == GH_OK && c->dev != NULL) {
        status = suspend_together(c, err);
    }
    if (status != GH_OK) {
        return status;
    }
    c->suspend.now = true;
    c->suspend.times++;
    c->suspend.suspend_ns = gh_now_ns() - start;
    gh_log_line(c->options.log, GH_LOG_INFO,
                "suspended: %llu bytes of device memory and %llu of pinned "
                "memory are given back, in %.1f ms",
                (unsigned long long)c->suspend.device_given,
                (unsigned long long)c->suspend.pinned_given,
                (double)c->suspend.suspend_ns / 1e6);
    return GH_OK;
}

/* ---- to resume ----------------------------------------------------------- */

gh_status gh_capture_wake(struct gh_capture *c, gh_error *err)
{
    const uint64_t start = gh_now_ns();
    gh_status status = c->dev != NULL ? take_all(c, err) : GH_OK;

    if (c->ranks.first != NULL) {
        const gh_status own = status;

        status =
            c->ranks.lost ? gh_ranks_refuse(c, err) : meet(c, own, true, err);
        if (own == GH_OK && status != GH_OK) {
            give_back(c);
        }
    }
    if (status == GH_OK) {
        c->suspend.now = false;
        c->suspend.resume_ns = gh_now_ns() - start;
    }
    return status;
}
