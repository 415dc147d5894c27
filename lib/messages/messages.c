/*
 * messages.c - what costs performance or makes a check blind, in one line for
 * all passes or segments that have the same to log.
 *
 * It is noted where it is found, and logged at the end of the step or of the
 * session.  Nothing here is called for a pass that is replayed.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "messages/messages.h"

#include "base/error.h"
#include "pass/left.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

gh_status gh_messages_create(uint32_t n_segments,
                             struct gh_messages **messages_p, gh_error *err)
{
    struct gh_messages *messages = calloc(1, sizeof(*messages));

    if (messages != NULL) {
        messages->nothing_to_compare = calloc(n_segments, GH_DIRECTIONS);
    }
    if (messages == NULL || messages->nothing_to_compare == NULL) {
        gh_messages_free(messages);
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a session");
    }
    *messages_p = messages;
    return GH_OK;
}

void gh_messages_free(struct gh_messages *messages)
{
    if (messages != NULL) {
        free(messages->nothing_to_compare);
        free(messages);
    }
}

struct gh_entry_label gh_entry_describe(const struct gh_capture *c,
                                        const struct gh_entry *entry)
{
    const struct gh_bank *bank = gh_banks_whose(&c->banks, entry);
    const struct gh_entry_position at = gh_bank_position_of(bank, entry);
    struct gh_entry_label label;
    char where[120];

    gh_plan_extent(c->plan, &c->plan->segments[at.segment], where,
                   sizeof(where));
    snprintf(label.text, sizeof(label.text), "%s %s%s, slot %u%s%s", where,
             gh_direction_names[at.direction],
             at.variant == 0 ? "" : " (variant 1)", at.slot,
             bank->number == 0 ? "" : ", ",
             bank->number == 0 ? "" : gh_bank_describe(bank).text);
    return label;
}

/* ---- of passes --------------------------------------------------------- */

void gh_message_output_moved(struct gh_capture *c, const struct gh_entry *entry,
                             uint32_t output)
{
    if (c->messages->output_moved) {
        return;
    }
    c->messages->output_moved = true;
    gh_log_line(c->options.log, GH_LOG_WARN,
                "GRAPHHOOKS_CHECK: output %u of %s is elsewhere than where its "
                "graph writes it: use the buffers of gh_decision.slot, or read "
                "gh_decision.outputs after a replay; this is said once",
                output, gh_entry_describe(c, entry).text);
}

static void log_group(const struct gh_capture *c, struct gh_given_up *group)
{
    const bool one = group->n == 1;
    const char *const what[] = {
        [GH_FAILED] = one ? "runs eagerly from now on" : "run eagerly from now on",
        [GH_FAILED_ONCE] = one ? "runs eagerly in this step, to be recorded once "
                                 "more"
                               : "run eagerly in this step, to be recorded once "
                                 "more",
        [GH_FAILED_SO_FAR] = one ? "has not been recorded in"
                                 : "have not been recorded in",
    };
    char others[40] = "";

    if (group->n == 0) {
        return;
    }
    if (!one) {
        snprintf(others, sizeof(others), ", and %u other pass%s", group->n - 1,
                 group->n == 2 ? "" : "es");
    }
    gh_log_line(c->options.log, GH_LOG_WARN, "%s%s %s%s%s",
                group->first.text, others,
                what[group->how], group->how == GH_FAILED_SO_FAR ? " " : ": ",
                group->text);
    group->n = 0;
}

/* Finds the group of that text, or an empty one.  If all are taken, the last is
 * logged and used again. */
static struct gh_given_up *find_group(struct gh_capture *c,
                                      enum gh_failed how, const char *text)
{
    struct gh_given_up *last = &c->messages->given_up[GH_GIVEN_UP - 1];

    for (struct gh_given_up *group = c->messages->given_up; group <= last;
         group++) {
        if (group->n == 0 || (group->how == how &&
                              strcmp(group->text, text) == 0)) {
            return group;
        }
    }
    log_group(c, last);
    return last;
}

static void note_failed(struct gh_capture *c, const struct gh_entry *entry,
                        enum gh_failed how, const char *text)
{
    char kept[sizeof(c->messages->given_up[0].text)];
    struct gh_given_up *group;

    if (how != GH_FAILED_SO_FAR) {
        gh_log_line(c->options.log, GH_LOG_DEBUG, "%s failed: %s",
                    gh_entry_describe(c, entry).text, text);
    }
    snprintf(kept, sizeof(kept), "%s", text);
    group = find_group(c, how, kept);
    if (group->n == 0) {
        group->first = gh_entry_describe(c, entry);
        group->how = how;
        memcpy(group->text, kept, sizeof(kept));
    }
    group->n++;
}

void gh_message_given_up(struct gh_capture *c, const struct gh_entry *entry,
                         const char *text)
{
    note_failed(c, entry, GH_FAILED, text);
}

void gh_message_spoilt(struct gh_capture *c, const struct gh_entry *entry,
                       const char *text)
{
    note_failed(c, entry, GH_FAILED_ONCE, text);
}

void gh_message_dropped(struct gh_capture *c, const struct gh_entry *entry)
{
    char text[sizeof(c->messages->given_up[0].text)];

    snprintf(text, sizeof(text),
             "%u steps: the host has given up each recording (gh_layer_cancel), "
             "so the pass runs eagerly: see what has failed in it; a host that "
             "does not want it recorded calls gh_pre_warmup",
             entry->drops);
    note_failed(c, entry, GH_FAILED_SO_FAR, text);
}

static void log_groups(struct gh_capture *c)
{
    for (uint32_t i = 0; i < GH_GIVEN_UP; i++) {
        log_group(c, &c->messages->given_up[i]);
    }
}

/* ---- of segments ------------------------------------------------------- */

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
enum {
    UNKNOWN,
    NOTED,
    LOGGED
};

static uint8_t *marks_of(const struct gh_capture *c, gh_direction direction)
{
    return &c->messages->nothing_to_compare[direction * c->plan->n_segments];
}

void gh_message_nothing_to_compare(struct gh_capture *c)
{
    uint8_t *mark =
        &marks_of(c, c->open.direction)[c->open.segment];

    if (*mark == UNKNOWN) {
        *mark = NOTED;
    }
}

static void log_nothing_compared(struct gh_capture *c)
{
    for (gh_direction d = 0; d < GH_DIRECTIONS; d++) {
        uint8_t *marks = marks_of(c, d);
        uint32_t n = 0, first = 0;
        char which[160];

        for (uint32_t i = c->plan->n_segments; i-- > 0;) {
            if (marks[i] == NOTED) {
                marks[i] = LOGGED;
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

static bool ran_eagerly(const struct gh_capture *c, uint32_t segment)
{
    const size_t n = GH_DIRECTIONS * (c->options.max_slots + 1);
    const struct gh_left *left = gh_left_at(c, segment, GH_FORWARD, 0);

    for (size_t i = 0; i < n; i++) {
        if (left[i].ran != 0) {
            return true;
        }
    }
    return false;
}

/* Whether any pass of the segment was entered, with a slot or without. */
static bool was_entered(const struct gh_capture *c, uint32_t segment)
{
    for (uint32_t i = 0; i < c->banks.n; i++) {
        if (was_launched(c->banks.all[i], segment)) {
            return true;
        }
    }
    return ran_eagerly(c, segment);
}

/* Logs which segments were never entered: the host may not know those of the
 * user's scope or granularity. */
static void log_missing(struct gh_capture *c)
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
    c->messages->looked_for_missing = true;
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

void gh_messages_log_noted(struct gh_capture *c)
{
    log_nothing_compared(c);
    log_groups(c);
}

void gh_messages_end_step(struct gh_capture *c)
{
    if (!c->messages->looked_for_missing && c->options.enabled) {
        log_missing(c);
    }
    gh_messages_log_noted(c);
}
