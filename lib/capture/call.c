/*
 * call.c - calls that take part in a flight: all but the step path, which call.h
 * has.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "capture/call.h"

#include "base/error.h"

/* The legacy stream is never the last one: which it is depends on the
 * context that is current, so every pass on it comes through here. */
GH_COLD gh_status gh_call_check_stream(struct gh_capture *c, void *stream,
                                       gh_error *err)
{
    gh_status status;

    if (!gh_device_is_legacy(stream)) {
        return gh_streams_know(&c->streams, stream, err);
    }
    if (c->options.enabled && !gh_device_is_current(c->dev)) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_pass.stream is the legacy default stream, which is "
                       "of another context than the session's on this thread: "
                       "make the session's current, or give a stream");
    }
    status = gh_streams_know(&c->streams, stream, err);
    c->streams.last = GH_NO_STREAM;
    return status;
}

GH_COLD gh_status gh_call_refuse_bank(const struct gh_capture *c,
                                         const gh_pass *pass, gh_error *err)
{
    const struct gh_bank *bank;

    if (pass->bank >= c->banks.n) {
        return gh_fail(err, GH_ERR_NOT_FOUND,
                       "gh_pass.bank is %u, and the session has banks 0 to %u: "
                       "declare it with gh_bank_add first",
                       pass->bank, c->banks.n - 1);
    }
    bank = c->banks.all[pass->bank];
    return gh_fail(err, GH_ERR_INVALID,
                   "gh_pass.group is %p, but bank %u (%s, cp_size %u) was "
                   "declared for group %p: its graphs use that one; declare a "
                   "bank for each group",
                   pass->group, pass->bank, bank->name, bank->cp_size,
                   bank->group);
}
