/*
 * summary.c - what is logged when the session closes: what is left of
 * messages.c, whether GRAPHHOOKS_CHECK has compared anything, and a summary.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "messages/messages.h"

#include "pass/pass.h"

#include <stdio.h>

/* "1200 graph launches, 48 eager passes (warmup 24, busy 24)" */
static void describe_passes(const struct gh_capture *c, const gh_stats *s,
                            char *text, size_t bytes)
{
    const char *before = " (";
    int n = snprintf(text, bytes, "%llu graph launches, %llu eager passes",
                     (unsigned long long)s->replays,
                     (unsigned long long)s->eager_passes);

    for (gh_reason r = 0; r < GH_REASONS; r++) {
        if (c->counts.eager[r] != 0) {
            n += snprintf(text + n, bytes - (size_t)n, "%s%s %llu", before,
                          gh_reason_name(r),
                          (unsigned long long)c->counts.eager[r]);
            before = ", ";
        }
    }
    if (s->eager_passes != 0) {
        snprintf(text + n, bytes - (size_t)n, ")");
    }
}

static void log_ranks_checked(const struct gh_capture *c, const gh_stats *s)
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

/* A check that finds nothing says so too: silence could also mean that it has
 * compared nothing. */
static void log_checked(const struct gh_capture *c, const char *passes)
{
    const gh_stats *s = &c->counts.stats;

    if (c->options.check == GH_CHECKS_NOTHING || c->counts.enters == 1) {
        return;
    }
    if (c->options.check == GH_CHECKS_RANKS) {
        log_ranks_checked(c, s);
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

static void log_summary(const struct gh_capture *c, const gh_stats *s,
                        const char *passes)
{
    char checked[120] = "", asked[60] = "";

    if (s->checks != 0) {
        snprintf(checked, sizeof(checked),
                 "; %llu checks, which compared %llu outputs of %llu bytes",
                 (unsigned long long)s->checks,
                 (unsigned long long)c->check.outputs,
                 (unsigned long long)c->check.bytes);
    }
    if (s->agreements != 0) {
        snprintf(asked, sizeof(asked), "; other ranks were asked %llu times",
                 (unsigned long long)s->agreements);
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

/* One line for each bank, if the session has several. */
static void log_banks(const struct gh_capture *c)
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

void gh_messages_close_summary(struct gh_capture *c, const gh_stats *stats)
{
    char passes[(GH_REASONS + 1) * 40]; /* each with its name and its count */

    if (c->counts.stats.iterations == 0 &&
        c->counts.eager[GH_REASON_WARMUP] != 0) {
        gh_message_no_step_ends(c);
    }
    gh_messages_log_noted(c);
    describe_passes(c, stats, passes, sizeof(passes));
    log_checked(c, passes);
    log_summary(c, stats, passes);
    log_banks(c);
}
