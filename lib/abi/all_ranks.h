/*
 * all_ranks.h - what is alike in a stash and an exchange, which all ranks make
 * together.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_ABI_ALL_RANKS_H
#define GH_ABI_ALL_RANKS_H

#include <graphhooks/base.h>

#include <stdbool.h>

/* GH_ERR_INVALID unless a description, such as "gh_stash_desc", names a rank of
 * those that there are, and a way in which several find each other. */
gh_status gh_check_all_ranks(const char *desc, uint32_t rank, uint32_t n_ranks,
                             bool finds, gh_error *err);

/* GH_ERR_STATE in a function of the host's, which the library has called. */
gh_status gh_check_outside(bool is_free, const char *call, gh_error *err);

#endif
