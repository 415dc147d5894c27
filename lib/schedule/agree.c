/*
 * agree.c - numbers that all ranks have to share: the maximum of each.
 *
 * A time of which the smallest counts is turned into how many such times make a
 * second, and back.
 *
 * They come from the ranks that gh_ranks_set named, or from the host, if it
 * gave gh_overlap_pair.agree.  Every rank takes part in the same run, also one
 * that has no numbers, as the others wait for it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "schedule/state.h"

#include "base/error.h"
#include "base/gate.h"
#include "capture/capture.h"
#include "ranks/collect.h"

#include <math.h>
#include <stdlib.h>

static gh_status check_agreed(const double *numbers, uint32_t n, gh_error *err)
{
    for (uint32_t i = 0; i < n; i++) {
        if (!isfinite(numbers[i]) || numbers[i] < 0) {
            return gh_fail(err, GH_ERR_INVALID,
                           "gh_overlap_pair.agree left %g for number %u of %u: "
                           "give a finite number, 0 or more",
                           numbers[i], i, n);
        }
    }
    return GH_OK;
}

static bool has_any(const double *numbers, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (numbers[i] > 0) {
            return true;
        }
    }
    return false;
}

/* What the host answers is checked as that of run_node is. */
static gh_status ask_host(struct gh_schedule *s, const gh_overlap_pair *pair,
                          double *numbers, uint32_t n, gh_error *err)
{
    gh_error why = { "" };
    void *const gate = gh_gate_leave(s->options.gate);
    const gh_status answer = pair->agree(pair->user, numbers, n, &why);

    gh_gate_return(s->options.gate, gate);

    why.text[sizeof(why.text) - 1] = '\0';
    if (answer > 0) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_overlap_pair.agree returned %d: return GH_OK or a "
                       "negative status",
                       answer);
    }
    if (answer < 0) {
        return gh_fail(err, answer, "%s",
                       why.text[0] != '\0'
                           ? why.text
                           : "gh_overlap_pair.agree failed and does not say "
                             "why: let it fill in its gh_error");
    }
    return check_agreed(numbers, n, err);
}

static gh_status ask(struct gh_schedule *s, const gh_overlap_pair *pair,
                     double *numbers, uint32_t n, uint32_t *lacks_p,
                     gh_error *err)
{
    *lacks_p = GH_NO_RANK;
    if (pair->agree == NULL) {
        double *mine = numbers != NULL && has_any(numbers, n) ? numbers : NULL;

        return gh_rank_collect_largest(s->capture, pair->compute, mine, n,
                                       lacks_p, err);
    }
    if (numbers == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for times");
    }
    return ask_host(s, pair, numbers, n, err);
}

bool gh_agree_can(const struct gh_schedule *s, const gh_overlap_pair *pair)
{
    return pair->agree != NULL || gh_rank_collect_can(s->capture);
}

gh_status gh_agree(struct gh_schedule *s, const gh_overlap_pair *pair,
                   double *numbers, uint32_t n, uint32_t *lacks_p,
                   gh_error *err)
{
    gh_status status;

    s->running = true; /* agree and gather are the host's */
    status = ask(s, pair, numbers, n, lacks_p, err);
    s->running = false;
    return status;
}

double gh_inverse(double value)
{
    const double ns_per_s = 1e9, least = 1e-9;

    return value > least ? ns_per_s / value : 0;
}

static void invert_all(double *values, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        values[i] = gh_inverse(values[i]);
    }
}

gh_status gh_agree_on_exchanges(struct gh_schedule *s,
                                const gh_overlap_pair *pair, gh_error *err)
{
    const uint32_t n = gh_capture_exchanges_due(s->capture);
    double *times;
    uint32_t lacks;
    gh_status status;

    if (n == 0 || s->has_agreed || !gh_agree_can(s, pair)) {
        return GH_OK;
    }
    times = calloc(n, sizeof(*times));
    if (times != NULL) {
        gh_capture_exchanges_say(s->capture, times);
        invert_all(times, n);
    }
    status = gh_agree(s, pair, times, n, &lacks, err);
    if (status == GH_OK && lacks != GH_NO_RANK) {
        gh_log_line(s->options.log, GH_LOG_INFO,
                    "offload: exchanges of tokens are not compared with copies "
                    "and without: rank %u has no times of them",
                    lacks);
    }
    if (status == GH_OK) {
        s->has_agreed = true;
        invert_all(times, times != NULL ? n : 0);
        gh_capture_exchanges_hear(s->capture,
                                  lacks == GH_NO_RANK ? times : NULL);
    }
    free(times);
    return status;
}
