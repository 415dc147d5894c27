/*
 * eager.c - why a pass that could have had a graph ran eagerly.
 *
 * A session has one line for each reason: of the first pass that has it.  What
 * the line needs and the end of the pass does not have is noted before.
 * Nothing here is called for a pass that is replayed.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "messages/messages.h"

#include "base/error.h"
#include "messages/misfit.h"
#include "pass/pass.h"

#include <stdio.h>

static bool was_logged(const struct gh_capture *c, gh_reason reason)
{
    return (c->messages->reasons & UINT32_C(1) << reason) != 0;
}

/* ---- noted ------------------------------------------------------------- */

void gh_message_not_now(struct gh_capture *c)
{
    if (!was_logged(c, GH_REASON_INPUT)) {
        snprintf(c->messages->misfit, sizeof(c->messages->misfit), "%.190s",
                 c->host.why.text);
    }
}

/* It is described now, as the inputs may be gone when the pass ends. */
void gh_message_misfit(struct gh_capture *c, const struct gh_entry *entry,
                       const gh_pass *pass)
{
    if (!was_logged(c, GH_REASON_INPUT)) {
        gh_misfit_describe(entry, pass, c->messages->misfit,
                           sizeof(c->messages->misfit));
    }
}

void gh_message_rank(struct gh_capture *c, uint32_t rank, gh_reason reason)
{
    if (!was_logged(c, GH_REASON_RANKS)) {
        snprintf(c->messages->rank, sizeof(c->messages->rank),
                 "rank %u of its bank has no graph for it this time (%s), so "
                 "all run it eagerly",
                 rank, gh_reason_name(reason));
    }
}

void gh_message_overflow(struct gh_capture *c, const gh_pass *pass)
{
    if (!was_logged(c, GH_REASON_INPUT)) {
        gh_misfit_overflow(pass, c->messages->misfit,
                           sizeof(c->messages->misfit));
    }
}

/* ---- logged ------------------------------------------------------------ */

static void describe_capture(const struct gh_capture *c, char *text,
                             size_t bytes)
{
    gh_error why;

    if (c->open.capturing == GH_CAPTURING_NO) {
        snprintf(text, bytes,
                 "the host was capturing its stream when its microbatch began");
        return;
    }
    if (gh_device_host_captures(c->dev, c->open.stream) ||
        gh_device_ask_capturing(c->dev, c->open.stream, &why) == GH_OK) {
        snprintf(text, bytes, "the host is capturing its stream");
        return;
    }
    snprintf(text, bytes,
             "the session's driver does not say whether its stream is "
             "captured: %.120s; make the session's context current on this "
             "thread, or, where the host is on another driver, name that one "
             "in GRAPHHOOKS_DRIVER",
             why.text);
}

/* False: the reason needs no line. */
static bool describe_reason(const struct gh_capture *c, char *text,
                            size_t bytes)
{
    static const char *const why[GH_REASONS] = {
        [GH_REASON_BUSY] = "all slots were in flight when its microbatch "
                           "began: raise GRAPHHOOKS_MAX_SLOTS, run fewer at once, or "
                           "mark evaluation GH_PASS_FORWARD_ONLY: a forward "
                           "without a backward keeps its slot until the step "
                           "ends",
        [GH_REASON_FROZEN] = "GRAPHHOOKS_FREEZE refuses new recordings",
        [GH_REASON_BANKS] = "GRAPHHOOKS_MAX_BANKS banks have graphs, and each "
                            "of them is in flight: raise it, or run fewer "
                            "shapes at once",
        [GH_REASON_PACKED] = "gh_packed_set has refused its sequences",
        [GH_REASON_UNBOUND] = "its bank gave way to another one, and what its "
                              "graphs read besides went with them: call "
                              "gh_aux_bind again before the bank's next "
                              "microbatch",
    };

    if (c->open.reason == GH_REASON_HOST_CAPTURE) {
        describe_capture(c, text, bytes);
        return true;
    }
    if (c->open.reason == GH_REASON_INPUT) {
        snprintf(text, bytes, "%s", c->messages->misfit);
        return true;
    }
    if (c->open.reason == GH_REASON_RANKS && c->messages->rank[0] != '\0') {
        snprintf(text, bytes, "%s", c->messages->rank);
        return true;
    }
    if (why[c->open.reason] == NULL) {
        return false;
    }
    snprintf(text, bytes, "%s", why[c->open.reason]);
    return true;
}

/* "layer 3 attn..mlp forward, microbatch 2 of bank 4" */
static void describe_pass(const struct gh_capture *c, char *text, size_t bytes)
{
    const struct gh_bank *bank = c->open.bank;
    char where[120];

    gh_plan_extent(c->plan, &c->plan->segments[c->open.segment], where,
                   sizeof(where));
    snprintf(text, bytes, "%s %s%s, microbatch %u%s%s", where,
             gh_direction_names[c->open.direction],
             c->open.variant == 0 ? "" : " (variant 1)", c->open.microbatch,
             bank->number == 0 ? "" : " of ",
             bank->number == 0 ? "" : gh_bank_describe(bank).text);
}

void gh_message_eager(struct gh_capture *c)
{
    char pass[320], why[320];

    if (was_logged(c, c->open.reason) ||
        !describe_reason(c, why, sizeof(why))) {
        return;
    }
    c->messages->reasons |= UINT32_C(1) << c->open.reason;
    describe_pass(c, pass, sizeof(pass));
    gh_log_line(c->options.log, GH_LOG_WARN,
                "%s, ran eagerly: %s; this is said once", pass, why);
}

/* The reasons for which nobody expects a graph. */
static bool is_expected(gh_reason reason)
{
    switch (reason) {
    case GH_REASON_NONE:
    case GH_REASON_DISABLED:
    case GH_REASON_PLAN:
    case GH_REASON_WARMUP:
    case GH_REASON_CHECK:
    case GH_REASON_HOST_CAPTURE: /* the pass is in a graph of the host's */
    case GH_REASON_FORWARD_ONLY:
    case GH_REASON_EMPTY:
    case GH_REASON_PAUSED:
        return true;
    default:
        return false;
    }
}

gh_status gh_message_strictly(struct gh_capture *c, gh_error *err)
{
    char pass[320], why[320];

    if (is_expected(c->open.reason)) {
        return GH_OK;
    }
    gh_messages_log_noted(c);
    describe_pass(c, pass, sizeof(pass));
    if (!describe_reason(c, why, sizeof(why))) {
        snprintf(why, sizeof(why),
                 "its graph was given up (%s), and the log says why",
                 gh_reason_name(c->open.reason));
    }
    return gh_fail(err, GH_ERR_UNSUPPORTED,
                   "GRAPHHOOKS_STRICT is 1, and %s, ran eagerly: %.180s", pass,
                   why);
}

void gh_message_no_step_ends(const struct gh_capture *c)
{
    gh_log_line(c->options.log, GH_LOG_WARN,
                "no step has ended after %llu passes, so warmup goes on: call "
                "gh_iteration_end after each step",
                (unsigned long long)c->counts.eager[GH_REASON_WARMUP]);
}
