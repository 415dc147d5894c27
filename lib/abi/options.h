/*
 * options.h - what a session is opened with.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_ABI_OPTIONS_H
#define GH_ABI_OPTIONS_H

#include <graphhooks/session.h>

struct gh_env;

/* Takes what both sides know of the description, and checks it; services and
 * words apart. */
gh_status gh_session_take_desc(const gh_session_desc *given,
                               gh_session_desc *desc, gh_error *err);
/* Defaults, then the host's wishes, then the environment's. */
gh_status gh_session_read_options(const gh_session_desc *desc,
                                  struct gh_env *env, gh_error *err);

#endif
