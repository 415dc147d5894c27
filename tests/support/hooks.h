/*
 * hooks.h - every function of the library that takes a session.
 *
 * Each is called as a host would call it, with the toy's session or another,
 * for tests that call all of them where they have to be refused.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SUPPORT_HOOKS_H
#define SUPPORT_HOOKS_H

#include "support/by_hand.h"

struct hook {
    const char *name;
    gh_status (*call)(gh_session *session, gh_error *why);
};

#define HOOKS 23
extern const struct hook hooks[HOOKS];

extern gh_pass hooks_pass; /* what gh_layer_exit() is given */

#endif
