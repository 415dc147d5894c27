/*
 * misfit.h - in words, why a graph cannot serve a pass.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_MESSAGES_MISFIT_H
#define GH_MESSAGES_MISFIT_H

#include "bank/entry.h"

/* Describes the first input of the pass that differs from the recording, or its
 * flags, with both values. */
void gh_misfit_describe(const struct gh_entry *entry, const gh_pass *pass,
                        char *text, size_t bytes);
/* Describes the first input for which gh_capacity_holds() is false. */
void gh_misfit_overflow(const gh_pass *pass, char *text, size_t bytes);

#endif
