/*
 * agree.c - how the ranks exchange information while an exchange is made.
 *
 * A rank that has failed goes on telling, so that the others fail with its
 * name instead of waiting for it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "base/error.h"
#include "exchange/state.h"

#include <string.h>

gh_status gh_exchange_gather(gh_exchange *x, gh_status own,
                             const uint64_t *mine, uint32_t n,
                             const uint64_t **all_p, gh_error *err)
{
    const uint64_t *all;
    uint64_t words[GH_COMM_WORDS];
    gh_status status;

    words[0] = (uint64_t)(int64_t)own;
    memcpy(words + 1, mine, (n - 1) * sizeof(*mine));
    status = gh_comm_gather(x->comm, words, n, &all,
                            own == GH_OK ? err : NULL);
    if (own != GH_OK || status != GH_OK) {
        return own != GH_OK ? own : status;
    }
    for (uint32_t i = 0; i < x->n; i++) {
        const gh_status theirs = (gh_status)(int64_t)all[(size_t)i * n];

        if (theirs != GH_OK) {
            return gh_fail(err, GH_ERR_RANKS,
                           "gh_exchange_create: rank %u of %u has failed "
                           "(%s); its own text says why",
                           i, x->n, gh_status_name(theirs));
        }
    }
    *all_p = all;
    return GH_OK;
}

void gh_exchange_warn(const gh_exchange *x, const gh_error *why)
{
    gh_log_line(&x->log, GH_LOG_WARN, "exchange: rank %u: %s", x->rank,
                why->text);
}
