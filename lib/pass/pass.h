/*
 * pass.h - all that a session keeps of its passes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_PASS_PASS_H
#define GH_PASS_PASS_H

#include "bank/banks.h"
#include "base/clock.h"
#include "device/device.h"
#include "memory/memory.h"
#include "memory/scratch.h"
#include "pass/open.h"
#include "pass/options.h"
#include "pass/slots.h"
#include "plan/plan.h"

/* Off the step path: kept out of line, so that the path itself stays short. */
#define GH_COLD __attribute__((noinline, cold))

struct gh_answer;
struct gh_bound;
struct gh_left;
struct gh_loose;
struct gh_messages;
struct gh_offload;
struct gh_spans;

/* What the plan and GRAPHHOOKS_ENABLE settle for a segment, once. */
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
    struct gh_segment_fate *fates; /* by segment */
    struct gh_answer *answers;     /* by chunk; services.c */
    struct gh_banks banks;
    struct gh_bank *shared; /* the first bank that has ranks; NULL: none has */
    struct gh_loose *loose; /* packed.c */
    uint64_t loose_used; /* bit i: a pass without a slot was on stream i, in
                            this step; those past the last share one */
    struct gh_left *left; /* [segment][direction][slot, or none of them] */
    struct gh_bound *bound; /* tensors that graphs read; aux.c */
    uint32_t n_bound;
    struct gh_open_pass open;
    struct gh_slot *ended; /* whose flight has ended: what the host issues until
                              the next pass is entered still belongs to it */
    uint32_t paused;
    bool holds; /* commits that wait are flushed right after the next passes */
    uint64_t enters, exits; /* enters: the number of the next pass, from 1 */
    uint64_t first;         /* the first pass of this step */
    uint64_t timed_every, until_timed;

    void *own_stream; /* records what the legacy stream cannot */
    struct gh_streams streams;
    struct gh_memory memory;
    struct gh_offload *offload; /* NULL: nothing is offloaded */
    struct gh_spans *spans;     /* NULL: nothing is traced */
    uint64_t spans_ns;          /* when they count from */
    struct gh_scratch scratch;  /* of GRAPHHOOKS_CHECK */
    bool parted;         /* the ranks of a bank: the session only closes */
    gh_error why_parted; /* with rank and pass */
    gh_error why; /* of a call that failed and that no host is told of */
    struct gh_messages *messages;
    uint64_t compared_outputs, compared_bytes; /* by GRAPHHOOKS_CHECK */

    gh_stats stats;
    uint64_t eager[GH_REASONS]; /* passes, by why they ran eagerly */
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
