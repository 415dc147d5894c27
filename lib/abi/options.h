/*
 * options.h - what a session is opened with.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_ABI_OPTIONS_H
#define GH_ABI_OPTIONS_H

#include <graphhooks/session.h>

struct gh_env;

/* Copies into `desc` the fields that caller and library both know, and checks
 * them.  Services and words are checked elsewhere. */
gh_status gh_session_take_desc(const gh_session_desc *given,
                               gh_session_desc *desc, gh_error *err);
/* Takes the defaults, then what the host asks for, then what the environment
 * says.  The later one wins. */
gh_status gh_session_read_options(const gh_session_desc *desc,
                                  struct gh_env *env, gh_error *err);

#endif
