/*
 * call.h - the beginning of every call that takes part in a flight.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_CAPTURE_CALL_H
#define GH_CAPTURE_CALL_H

#include "pass/pass.h"

/* Of a stream that is not the last one. */
gh_status gh_call_check_stream(struct gh_capture *c, void *stream,
                               gh_error *err);
/* The error for a bank that was not declared, or that belongs to another
 * group. */
gh_status gh_call_refuse_bank(const struct gh_capture *c, const gh_pass *pass,
                              gh_error *err);

/* ---- the step path, inline: a call would cost more than what it does ---- */

/* O(1), whatever the number of banks. */
static inline gh_status gh_call_select_bank(struct gh_capture *c, const gh_pass *pass,
                                    gh_error *err)
{
    if (pass->bank < c->banks.n) {
        c->open.bank = c->banks.all[pass->bank];
        if (pass->group == NULL || pass->group == c->open.bank->group) {
            return GH_OK;
        }
    }
    return gh_call_refuse_bank(c, pass, err);
}

/* Sets open.bank. */
static inline gh_status gh_call_begin(struct gh_capture *c, const gh_pass *pass,
                                   gh_error *err)
{
    if (c->open.ended != NULL) {
        gh_order_end(&c->open.ended->order, &c->streams);
        c->open.ended = NULL;
    }
    if (pass->stream != c->streams.last) {
        gh_status status = gh_call_check_stream(c, pass->stream, err);

        if (status != GH_OK) {
            return status;
        }
    }
    return gh_call_select_bank(c, pass, err);
}

#endif
