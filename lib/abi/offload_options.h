/*
 * offload_options.h - what a session is asked to offload; lib/abi only.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_ABI_OFFLOAD_OPTIONS_H
#define GH_ABI_OFFLOAD_OPTIONS_H

#include <graphhooks/offload.h>

#include "base/path.h"
#include "config/env.h"
#include "offload/offload.h"

/* The most names that a host may add for modules of its own. */
#define GH_MAX_NAMES 32

/* A session's copy of the host's names. */
struct gh_offload_names {
    char text[GH_MAX_NAMES][40];
    const char *list[GH_MAX_NAMES];
    uint32_t n;
};

/* Offers what the host asks for.  It counts only where the environment says
 * nothing. */
gh_status gh_offload_offer(const gh_offload_desc *desc, struct gh_env *env,
                           gh_error *err);
/* `asked` is false when nothing is to be offloaded. */
GH_COLD gh_status gh_offload_read_options(const gh_offload_desc *desc,
                                          const struct gh_env *env,
                                          struct gh_offload_names *names,
                                          struct gh_offload_options *options,
                                          bool *asked, gh_error *err);

#endif
