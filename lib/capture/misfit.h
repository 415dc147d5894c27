/*
 * misfit.h - in words, why a graph cannot serve a pass.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_CAPTURE_MISFIT_H
#define GH_CAPTURE_MISFIT_H

#include "bank/entry.h"

/* Of a pass whose inputs or flags are not those that the entry was recorded
 * with: the first that differs, now and then. */
void gh_misfit_describe(const struct gh_entry *entry, const gh_pass *pass,
                        char *text, size_t bytes);
/* Of one with an input beyond its capacity. */
void gh_misfit_overflow(const gh_pass *pass, char *text, size_t bytes);

#endif
