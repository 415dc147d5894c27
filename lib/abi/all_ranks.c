/*
 * all_ranks.c - see all_ranks.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "abi/all_ranks.h"

#include "base/error.h"

#define MOST_RANKS 1024u

gh_status gh_check_all_ranks(const char *desc, uint32_t rank, uint32_t n_ranks,
                             bool finds, gh_error *err)
{
    if (n_ranks > MOST_RANKS || rank >= n_ranks) {
        return gh_fail(err, GH_ERR_INVALID,
                       "%s: rank %u of %u: ranks count from 0, up to %u of "
                       "them",
                       desc, rank, n_ranks, MOST_RANKS);
    }
    if (n_ranks > 1 && !finds) {
        return gh_fail(err, GH_ERR_INVALID,
                       "%s has neither comm nor gather: give one of them, by "
                       "which ranks find each other",
                       desc);
    }
    return GH_OK;
}

gh_status gh_check_outside(bool is_free, const char *call, gh_error *err)
{
    return is_free ? GH_OK
                   : gh_fail(err, GH_ERR_STATE,
                             "%s: called from a function of the host's: call "
                             "it where the library has returned",
                             call);
}
