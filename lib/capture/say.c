/*
 * say.c - what a person should know, in the log and once.
 *
 * What costs performance, and what makes a check blind.  Many passes or
 * segments that have the same to say are one line, at the end of the step or
 * of the session.  Nothing here is called for a pass that is replayed.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "capture/say.h"

#include "base/error.h"
#include "capture/misfit.h"
#include "capture/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

gh_status gh_say_create(struct gh_said *said, uint32_t n_segments,
                        gh_error *err)
{
    said->nothing_to_compare = calloc(n_segments, GH_DIRECTIONS);
    if (said->nothing_to_compare == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a session");
    }
    return GH_OK;
}

void gh_say_free(struct gh_said *said)
{
    free(said->nothing_to_compare);
    said->nothing_to_compare = NULL;
}

struct gh_entry_label gh_entry_describe(const struct gh_capture *c,
                                        const struct gh_entry *entry)
{
    const struct gh_bank *bank = gh_banks_whose(&c->banks, entry);
    const struct gh_place place = gh_bank_place_of(bank, entry);
    struct gh_entry_label label;
    char where[120];

    gh_plan_extent(c->plan, &c->plan->segments[place.segment], where,
                   sizeof(where));
    snprintf(label.text, sizeof(label.text), "%s %s%s, slot %u%s%s", where,
             gh_direction_names[place.direction],
             place.variant == 0 ? "" : " (variant 1)", place.slot,
             bank->number == 0 ? "" : ", ",
             bank->number == 0 ? "" : gh_bank_describe(bank).text);
    return label;
}

/* ---- of one pass, standing for its kind -------------------------------- */

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

/* False for a reason that needs no line. */
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
        snprintf(text, bytes, "%s", c->said.misfit);
        return true;
    }
    if (c->open.reason == GH_REASON_RANKS && c->said.rank[0] != '\0') {
        snprintf(text, bytes, "%s", c->said.rank);
        return true;
    }
    if (why[c->open.reason] == NULL) {
        return false;
    }
    snprintf(text, bytes, "%s", why[c->open.reason]);
    return true;
}

static bool was_said(const struct gh_capture *c, gh_reason reason)
{
    return (c->said.reasons & UINT32_C(1) << reason) != 0;
}

void gh_say_not_now(struct gh_capture *c)
{
    if (!was_said(c, GH_REASON_INPUT)) {
        snprintf(c->said.misfit, sizeof(c->said.misfit), "%.190s",
                 c->why.text);
    }
}

/* The inputs may be gone when the pass ends. */
void gh_say_misfit(struct gh_capture *c, const struct gh_entry *entry,
                   const gh_pass *pass)
{
    if (!was_said(c, GH_REASON_INPUT)) {
        gh_misfit_describe(entry, pass, c->said.misfit,
                           sizeof(c->said.misfit));
    }
}

void gh_say_rank(struct gh_capture *c, uint32_t rank, gh_reason reason)
{
    if (!was_said(c, GH_REASON_RANKS)) {
        snprintf(c->said.rank, sizeof(c->said.rank),
                 "rank %u of its bank has no graph for it this time (%s), so "
                 "all run it eagerly",
                 rank, gh_reason_name(reason));
    }
}

void gh_say_overflow(struct gh_capture *c, const gh_pass *pass)
{
    if (!was_said(c, GH_REASON_INPUT)) {
        gh_misfit_overflow(pass, c->said.misfit, sizeof(c->said.misfit));
    }
}

void gh_say_eager(struct gh_capture *c)
{
    const struct gh_bank *bank = c->open.bank;
    char where[120], why[320];

    if (was_said(c, c->open.reason) || !describe_reason(c, why, sizeof(why))) {
        return;
    }
    c->said.reasons |= UINT32_C(1) << c->open.reason;
    gh_plan_extent(c->plan, &c->plan->segments[c->open.segment], where,
                   sizeof(where));
    gh_log_line(c->options.log, GH_LOG_WARN,
                "%s %s%s, microbatch %u%s%s, ran eagerly: %s; this is said "
                "once",
                where, gh_direction_names[c->open.direction],
                c->open.variant == 0 ? "" : " (variant 1)",
                c->open.microbatch, bank->number == 0 ? "" : " of ",
                bank->number == 0 ? "" : gh_bank_describe(bank).text, why);
}

void gh_say_no_step_ends(const struct gh_capture *c)
{
    gh_log_line(c->options.log, GH_LOG_WARN,
                "no step has ended after %llu passes, so warmup goes on: call "
                "gh_iteration_end after each step",
                (unsigned long long)c->eager[GH_REASON_WARMUP]);
}

/* ---- of many passes, in one line --------------------------------------- */

void gh_say_output_moved(struct gh_capture *c, const struct gh_entry *entry,
                         uint32_t output)
{
    if (c->said.output_moved) {
        return;
    }
    c->said.output_moved = true;
    gh_log_line(c->options.log, GH_LOG_WARN,
                "GRAPHHOOKS_CHECK: output %u of %s is elsewhere than where its "
                "graph writes it: use the buffers of gh_decision.slot, or read "
                "gh_decision.outputs after a replay; this is said once",
                output, gh_entry_describe(c, entry).text);
}

static void say_group(const struct gh_capture *c, struct gh_given_up *group)
{
    char others[40] = "";

    if (group->n == 0) {
        return;
    }
    if (group->n > 1) {
        snprintf(others, sizeof(others), ", and %u other pass%s", group->n - 1,
                 group->n == 2 ? "" : "es");
    }
    gh_log_line(c->options.log, GH_LOG_WARN,
                "%s%s run%s eagerly from now on: %s",
                gh_entry_describe(c, group->first).text, others,
                group->n == 1 ? "s" : "", group->text);
    group->n = 0;
}

/* The group of that text, or one to begin: a free one, or the last, once what
 * it has is said. */
static struct gh_given_up *find_group(struct gh_capture *c, const char *text)
{
    struct gh_given_up *last = &c->said.given_up[GH_GIVEN_UP - 1];

    for (struct gh_given_up *group = c->said.given_up; group <= last; group++) {
        if (group->n == 0 || strcmp(group->text, text) == 0) {
            return group;
        }
    }
    say_group(c, last);
    return last;
}

void gh_say_given_up(struct gh_capture *c, const struct gh_entry *entry,
                     const char *text)
{
    char kept[sizeof(c->said.given_up[0].text)];
    struct gh_given_up *group;

    gh_log_line(c->options.log, GH_LOG_DEBUG, "%s failed: %s",
                gh_entry_describe(c, entry).text, text);
    snprintf(kept, sizeof(kept), "%s", text);
    group = find_group(c, kept);
    if (group->n == 0) {
        group->first = entry;
        memcpy(group->text, kept, sizeof(kept));
    }
    group->n++;
}

static void say_groups(struct gh_capture *c)
{
    for (uint32_t i = 0; i < GH_GIVEN_UP; i++) {
        say_group(c, &c->said.given_up[i]);
    }
}

/* ---- of many segments, in one line ------------------------------------- */

/* "layer 0 attn..mlp and 11 others"; `n` of them, of which one is `first`. */
static void describe_many(const struct gh_capture *c, uint32_t first,
                          uint32_t n, char *text, size_t bytes)
{
    char where[120];

    gh_plan_extent(c->plan, &c->plan->segments[first], where, sizeof(where));
    if (n == 1) {
        snprintf(text, bytes, "%s", where);
    } else {
        snprintf(text, bytes, "%s and %u other segment%s", where, n - 1,
                 n == 2 ? "" : "s");
    }
}

/* A byte of nothing_to_compare. */
enum { UNKNOWN, NOTED, SAID };

static uint8_t *marks_of(const struct gh_capture *c, gh_direction direction)
{
    return &c->said.nothing_to_compare[direction * c->plan->n_segments];
}

void gh_say_nothing_to_compare(struct gh_capture *c)
{
    uint8_t *mark =
        &marks_of(c, c->open.direction)[c->open.segment];

    if (*mark == UNKNOWN) {
        *mark = NOTED;
    }
}

static void say_nothing_compared(struct gh_capture *c)
{
    for (gh_direction d = 0; d < GH_DIRECTIONS; d++) {
        uint8_t *marks = marks_of(c, d);
        uint32_t n = 0, first = 0;
        char which[160];

        for (uint32_t i = c->plan->n_segments; i-- > 0;) {
            if (marks[i] == NOTED) {
                marks[i] = SAID;
                first = i;
                n++;
            }
        }
        if (n == 0) {
            continue;
        }
        describe_many(c, first, n, which, sizeof(which));
        gh_log_line(c->options.log, GH_LOG_WARN,
                    "GRAPHHOOKS_CHECK compares nothing in the %s of %s: list "
                    "in gh_pass.outputs what the pass writes",
                    gh_direction_names[d], which);
    }
}

static bool was_launched(const struct gh_bank *bank, uint32_t segment)
{
    uint32_t n;
    const struct gh_entry *entries = gh_bank_of_segment(bank, segment, &n);

    for (uint32_t i = 0; i < n; i++) {
        if (entries[i].ran != 0) {
            return true;
        }
    }
    return false;
}

/* In any direction, with a slot or without. */
static bool was_entered(const struct gh_capture *c, uint32_t segment)
{
    for (uint32_t i = 0; i < c->banks.n; i++) {
        if (was_launched(c->banks.all[i], segment)) {
            return true;
        }
    }
    return gh_borders_any(c, segment);
}

/* A host that cannot run the segments of the user's scope or granularity. */
static void say_missing(struct gh_capture *c)
{
    uint32_t entered = 0, graphed = 0, missing = 0, first = 0;
    char which[160];

    for (uint32_t i = c->plan->n_segments; i-- > 0;) {
        const bool was = was_entered(c, i);

        entered += was;
        if (c->plan->segments[i].mode != GH_SEGMENT_GRAPHED) {
            continue;
        }
        graphed++;
        if (!was) {
            first = i;
            missing++;
        }
    }
    if (entered == 0) {
        return; /* not a step of training */
    }
    c->said.looked_for_missing = true;
    if (missing == 0) {
        return;
    }
    describe_many(c, first, missing, which, sizeof(which));
    gh_log_line(c->options.log, GH_LOG_WARN,
                "%u of the %u segments that the plan captures were not entered "
                "in the first step: %s; bracket every segment that "
                "gh_plan_segment lists, which follow GRAPHHOOKS_SCOPE and "
                "GRAPHHOOKS_GRANULARITY",
                missing, graphed, which);
}

void gh_say_step_ended(struct gh_capture *c)
{
    if (!c->said.looked_for_missing && c->options.enabled) {
        say_missing(c);
    }
    say_nothing_compared(c);
    say_groups(c);
}

/* ---- when the session closes ------------------------------------------- */

/* "1200 graph launches, 48 eager passes (warmup 24, busy 24)" */
static void describe_passes(const struct gh_capture *c, const gh_stats *s,
                            char *text, size_t bytes)
{
    const char *before = " (";
    int n = snprintf(text, bytes, "%llu graph launches, %llu eager passes",
                     (unsigned long long)s->replays,
                     (unsigned long long)s->eager_passes);

    for (gh_reason r = 0; r < GH_REASONS; r++) {
        if (c->eager[r] != 0) {
            n += snprintf(text + n, bytes - (size_t)n, "%s%s %llu", before,
                          gh_reason_name(r), (unsigned long long)c->eager[r]);
            before = ", ";
        }
    }
    if (s->eager_passes != 0) {
        snprintf(text + n, bytes - (size_t)n, ")");
    }
}

static void say_ranks_checked(const struct gh_capture *c, const gh_stats *s)
{
    if (s->checks == 0) {
        gh_log_line(c->options.log, GH_LOG_WARN,
                    "GRAPHHOOKS_CHECK: no pass was compared with other ranks: "
                    "gh_ranks_set says which they are");
        return;
    }
    gh_log_answer(c->options.log,
                  "GRAPHHOOKS_CHECK: %llu passes compared with other ranks, "
                  "%llu differ",
                  (unsigned long long)s->checks,
                  (unsigned long long)s->check_failures);
}

/* A check that finds nothing says so too: its silence may be that of one which
 * has compared nothing. */
static void say_checked(const struct gh_capture *c, const char *passes)
{
    const gh_stats *s = &c->stats;

    if (c->options.check == GH_CHECKS_NOTHING || c->enters == 1) {
        return;
    }
    if (c->options.check == GH_CHECKS_RANKS) {
        say_ranks_checked(c, s);
        return;
    }
    if (s->checks == 0) {
        gh_log_line(c->options.log, GH_LOG_WARN,
                    "GRAPHHOOKS_CHECK: no pass was compared. Only passes that "
                    "were recorded and list outputs can be: %s",
                    passes);
    } else if (s->check_failures == 0) {
        gh_log_answer(c->options.log,
                      "GRAPHHOOKS_CHECK: %llu passes compared, no difference",
                      (unsigned long long)s->checks);
    } else {
        gh_log_line(c->options.log, GH_LOG_WARN,
                    "GRAPHHOOKS_CHECK: %llu passes compared, %llu differ",
                    (unsigned long long)s->checks,
                    (unsigned long long)s->check_failures);
    }
}

static void say_summary(const struct gh_capture *c, const gh_stats *s,
                        const char *passes)
{
    char checked[120] = "", asked[60] = "";

    if (s->checks != 0) {
        snprintf(checked, sizeof(checked),
                 "; %llu checks, which compared %llu outputs of %llu bytes",
                 (unsigned long long)s->checks,
                 (unsigned long long)c->compared_outputs,
                 (unsigned long long)c->compared_bytes);
    }
    if (s->asked != 0) {
        snprintf(asked, sizeof(asked), "; other ranks were asked %llu times",
                 (unsigned long long)s->asked);
    }
    gh_log_line(c->options.log, GH_LOG_INFO,
                "closed after %llu steps: %s; %llu recordings in %u slot%s; "
                "%llu bytes of the library's buffers; %llu input copies of "
                "%llu bytes%s%s",
                (unsigned long long)s->iterations, passes,
                (unsigned long long)s->recordings, s->slots,
                s->slots == 1 ? "" : "s",
                (unsigned long long)s->static_bytes,
                (unsigned long long)s->copies,
                (unsigned long long)s->copied_bytes, checked, asked);
}

/* Of a session with several. */
static void say_banks(const struct gh_capture *c)
{
    for (uint32_t i = 0; i < c->banks.n && c->banks.n > 1; i++) {
        const struct gh_bank *bank = c->banks.all[i];

        if (bank->recordings != 0) {
            gh_log_line(c->options.log, GH_LOG_INFO,
                        "%s: %llu recordings, %llu graph launches, gave way "
                        "%llu time%s",
                        gh_bank_describe(bank).text,
                        (unsigned long long)bank->recordings,
                        (unsigned long long)bank->replays,
                        (unsigned long long)bank->evictions,
                        bank->evictions == 1 ? "" : "s");
        }
    }
}

void gh_say_closed(struct gh_capture *c)
{
    char passes[(GH_REASONS + 1) * 40]; /* each with its name and its count */
    gh_stats stats;

    gh_capture_stats(c, &stats);
    if (c->stats.iterations == 0 &&
        c->eager[GH_REASON_WARMUP] != 0) {
        gh_say_no_step_ends(c);
    }
    say_nothing_compared(c);
    say_groups(c);
    describe_passes(c, &stats, passes, sizeof(passes));
    say_checked(c, passes);
    say_summary(c, &stats, passes);
    say_banks(c);
}
