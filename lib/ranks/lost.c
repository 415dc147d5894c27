/*
 * lost.c - gives up the other ranks, and waits for them with a time limit.
 *
 * Order: when ranks are lost, all graphs of the session are destroyed before a
 * communicator is aborted, as ncclCommAbort waits for graphs that hold its
 * operations.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "ranks/ranks.h"

#include "base/clock.h"
#include "base/error.h"
#include "comm/comm.h"
#include "device/device.h"
#include "pass/pass.h"

#include <stdio.h>

struct gh_rank_of gh_ranks_which(const struct gh_bank *bank)
{
    if (bank->comm == NULL) {
        return (struct gh_rank_of){ 0, 0 };
    }
    return (struct gh_rank_of){ gh_comm_rank(bank->comm),
                                gh_comm_size(bank->comm) };
}

/* ---- giving up ----------------------------------------------------------- */

/* A gh_error has 255 bytes.  Names are cut, so that the cause keeps most of
 * them. */
#define WHERE_BYTES 144
#define EXTENT_BYTES 46
#define BANK_BYTES 12

/* Where this rank is: "rank 1 of 4, step 12, layer 3 attn..mlp forward,
 * microbatch 2, bank 2 (cp4)".  The bank has ranks.  Names the last pass that
 * was entered, which may be one of the step before. */
static void describe(const struct gh_capture *c, const struct gh_bank *bank,
                     char *text, size_t bytes)
{
    const bool passed = c->open.bank != NULL && c->open.bank->comm != NULL;
    const struct gh_bank *at = passed ? c->open.bank : bank;
    const bool named = at->name[0] != '\0';
    const uint32_t over = c->open.number < c->counts.first;
    char extent[EXTENT_BYTES];

    gh_plan_extent(c->plan, &c->plan->segments[c->open.segment], extent,
                   sizeof(extent));
    snprintf(text, bytes,
             "rank %u of %u, step %llu, %s %s, microbatch %u, bank %u%s%.*s%s",
             gh_comm_rank(at->comm), gh_comm_size(at->comm),
             (unsigned long long)(c->counts.stats.iterations - over), extent,
             gh_direction_names[c->open.direction], c->open.microbatch,
             at->number, named ? " (" : "",
             gh_shown_bytes(at->name, BANK_BYTES), at->name, named ? ")" : "");
}

/* No earlier bank has the same communicator of the host's. */
static bool is_first_of(const struct gh_capture *c, const struct gh_bank *bank)
{
    const struct gh_bank *at = c->ranks.first;

    while (at != bank && !gh_comm_is_shared(at->comm, bank->comm)) {
        at = at->next_shared;
    }
    return at == bank;
}

void gh_ranks_abort_all(struct gh_capture *c)
{
    struct gh_device_before before = gh_device_enter(c->dev);

    gh_banks_stop(&c->banks);
    for (const struct gh_bank *b = c->ranks.first; b != NULL;
         b = b->next_shared) {
        gh_comm_abort_begin(b->comm, is_first_of(c, b));
    }
    for (const struct gh_bank *b = c->ranks.first; b != NULL;
         b = b->next_shared) {
        gh_comm_abort_end(b->comm);
    }
    gh_device_leave(c->dev, before);
}

void gh_ranks_note_lost(struct gh_capture *c, const struct gh_bank *bank,
                        const char *why)
{
    char where[WHERE_BYTES];

    c->ranks.lost = true;
    if (c->dev != NULL) {
        gh_device_limit_waits(c->dev, c->options.timeout_s);
    }
    for (uint32_t i = 0; i < c->plan->n_segments; i++) {
        c->fixed.fates[i].never = GH_REASON_RANKS;
    }
    describe(c, bank, where, sizeof(where));
    gh_fail(&c->ranks.why, GH_ERR_RANKS, "%s: %s", where, why);
    gh_log_line(c->options.log, GH_LOG_WARN,
                "%s: %s; the graphs are destroyed, and what waits for other "
                "ranks is aborted",
                where, why);
}

gh_status gh_ranks_lost(struct gh_capture *c, const struct gh_bank *bank,
                        const char *why, gh_error *err)
{
    if (!c->ranks.lost) {
        gh_ranks_note_lost(c, bank, why);
        gh_ranks_abort_all(c);
    }
    return gh_ranks_refuse(c, err);
}

gh_status gh_ranks_refuse(const struct gh_capture *c, gh_error *err)
{
    return gh_fail(err, GH_ERR_RANKS, "%s", c->ranks.why.text);
}

gh_status gh_ranks_look(struct gh_capture *c, gh_error *err)
{
    gh_error why;
    char text[240];

    if (c->ranks.lost) {
        return gh_ranks_refuse(c, err);
    }
    for (const struct gh_bank *b = c->ranks.first; b != NULL;
         b = b->next_shared) {
        if (gh_comm_look(b->comm, &why) != GH_OK) {
            snprintf(text, sizeof(text), "the ranks of bank %u: %.200s",
                     b->number, why.text);
            return gh_ranks_lost(c, b, text, err);
        }
    }
    return GH_OK;
}

/* ---- waiting ------------------------------------------------------------- */

/* Looks for errors also when the stream has ended: an operation that another
 * rank has aborted ends too. */
static gh_status wait_for(struct gh_capture *c, void *stream, gh_error *err)
{
    struct gh_deadline deadline = gh_deadline_in(c->options.timeout_s);
    gh_status status = GH_OK;
    char why[160];
    bool ended;

    for (;;) {
        status = gh_device_stream_ask(c->dev, stream, &ended, err);
        if (status != GH_OK) {
            return status;
        }
        status = gh_ranks_look(c, err);
        if (status != GH_OK || ended) {
            return status;
        }
        if (!gh_deadline_back_off(&deadline)) {
            snprintf(why, sizeof(why),
                     "what was issued up to here has not ended in %u s "
                     "(GRAPHHOOKS_TIMEOUT): another rank does not come",
                     c->options.timeout_s);
            return gh_ranks_lost(c, c->ranks.first, why, err);
        }
    }
}

gh_status gh_ranks_wait_stream(struct gh_capture *c, void *stream,
                               gh_error *err)
{
    struct gh_device_before before;
    gh_status status;

    if (c->dev == NULL) {
        return gh_fail(err, GH_ERR_NO_DRIVER,
                       "gh_ranks_wait: the session has no driver");
    }
    before = gh_device_enter(c->dev);
    if (gh_device_is_capturing(c->dev, stream)) {
        status = gh_fail(err, GH_ERR_STATE,
                         "gh_ranks_wait: the stream is being captured: end the "
                         "capture first");
    } else {
        status = c->ranks.first == NULL
                     ? gh_device_stream_wait(c->dev, stream, err)
                     : wait_for(c, stream, err);
    }
    gh_device_leave(c->dev, before);
    return status;
}

gh_status gh_ranks_await(struct gh_capture *c, void *stream, gh_error *err)
{
    return c->ranks.first == NULL ? GH_OK : wait_for(c, stream, err);
}

void gh_ranks_rest(void *capture)
{
    struct gh_capture *c = capture;

    for (uint32_t i = 0; i < c->streams.n && c->ranks.first != NULL; i++) {
        if (!c->ranks.lost &&
            !gh_device_is_capturing(c->dev, c->streams.all[i])) {
            wait_for(c, c->streams.all[i], NULL);
        }
    }
}
