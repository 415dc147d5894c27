/*
 * pass.h - all that a session keeps of its passes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_PASS_PASS_H
#define GH_PASS_PASS_H

#include "bank/banks.h"
#include "base/clock.h"
#include "base/path.h"
#include "device/device.h"
#include "memory/memory.h"
#include "memory/scratch.h"
#include "pass/open.h"
#include "pass/options.h"
#include "pass/slots.h"
#include "plan/plan.h"

struct gh_answer;
struct gh_bound;
struct gh_foreseen;
struct gh_left;
struct gh_slotless;
struct gh_messages;
struct gh_offload;
struct gh_spans;
struct gh_watchdog;

/* What the plan and GRAPHHOOKS_ENABLE fix for a segment, once. */
struct gh_segment_fate {
    uint32_t chunk;
    uint16_t never; /* why it is never graphed, or not while the host warms up;
                       else GH_REASON_NONE */
    uint16_t last;  /* the direction that ends a microbatch in it */
};

struct gh_capture {
    const struct gh_plan *plan;
    struct gh_device *dev; /* NULL: disabled, and no driver was found */
    struct gh_capture_options options;
    struct gh_slots *slots;
    struct {
        struct gh_segment_fate *fates; /* by segment */
        struct gh_answer *answers;     /* by chunk; services.c */
    } fixed;
    struct gh_banks banks;
    struct {
        struct gh_bank *first; /* the first bank that has ranks; NULL: none */
        bool lost;             /* they are given up: the session only closes */
        gh_error why;          /* with rank and pass */
    } ranks;
    struct {
        struct gh_slotless *first; /* packed.c */
        uint64_t used; /* bit i: a pass without a slot was on stream i, in
                          this step; those past the last share one */
    } slotless;
    struct {
        struct gh_left *left; /* [segment][direction][slot, or none of them] */
        struct gh_bound *bound; /* tensors that graphs read; aux.c */
        uint32_t n_bound;
    } beside; /* the inputs of a pass */
    struct {
        uint64_t every, until; /* the next pass that is timed */
    } timing;
    struct gh_open_pass open;
    struct {
        uint64_t enters, exits; /* enters: the number of the next pass, from
                                   1 */
        uint64_t first;         /* the first pass of this step */
        gh_stats stats;
        uint64_t eager[GH_REASONS]; /* passes, by why they ran eagerly */
    } counts;
    struct {
        uint32_t paused;
        bool holds;   /* commits that wait are flushed right after the next
                         passes */
        gh_error why; /* of a call that failed and that it is not told of */
    } host;

    void *lib_stream; /* records what the legacy stream cannot */
    struct gh_streams streams;
    struct gh_memory memory;
    struct gh_offload *offload; /* NULL: nothing is offloaded */
    struct {
        struct gh_spans *all; /* NULL: nothing is traced */
        uint64_t since_ns;    /* when they count from */
    } spans;
    struct {
        struct gh_scratch scratch;
        uint64_t outputs, bytes; /* that were compared */
    } check;                     /* GRAPHHOOKS_CHECK */
    struct gh_messages *messages;
    struct gh_watchdog *watchdog; /* NULL: none */
    struct {
        struct gh_foreseen *foreseen; /* forecast.c; NULL: nothing yet, or
                                         done */
        uint64_t bytes;               /* that will be allocated in all */
        bool done;
    } forecast;
    struct {
        bool now;
        uint64_t device_given, pinned_given; /* the last time */
        uint64_t times, suspend_ns, resume_ns;
    } suspend;
};

/* Whether the host captures the open pass's stream.  The driver is asked
 * once. */
static inline enum gh_capturing gh_open_captured(struct gh_capture *c)
{
    if (!c->open.asked) {
        c->open.capturing = c->dev != NULL
                                ? gh_device_capturing(c->dev, c->open.stream)
                                : GH_CAPTURING_NO;
        c->open.asked = true;
    }
    return c->open.capturing;
}

#endif
