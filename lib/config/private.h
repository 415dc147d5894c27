/*
 * private.h - rows and their values; lib/config only.
 *
 * env.c has the table and collects the values, parse.c reads one value, and
 * print.c shows them all.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_CONFIG_PRIVATE_H
#define GH_CONFIG_PRIVATE_H

#include "base/path.h"
#include "config/env.h"

/* Longer names are reported without a suggestion. */
#define GH_ENV_NAME_MOST 64

/* The rows of env.def; the first GH_ENV_COUNT by gh_env_id. */
extern const struct gh_env_row gh_env_table[];

/* Whether the row answers to a name of `bytes` bytes. */
bool gh_env_is_named(const struct gh_env_row *row, const char *name,
                     size_t bytes);

/* ---- parse.c ------------------------------------------------------------- */

/* Parses a value and stores it at the row's offset in `values`.  Defaults, the
 * environment and the host's options all come this way. */
GH_COLD gh_status gh_env_parse(const struct gh_env_row *row, const char *label,
                               const char *value, void *values, gh_error *err);

/* Writes what a row accepts, for errors and tables. */
void gh_env_rule(const struct gh_env_row *row, char *text, size_t bytes);

/* The default as people read it: a list without a default means "all". */
const char *gh_env_default(const struct gh_env_row *row);

/* Cuts a value and removes control bytes, because values come from outside. */
const char *gh_env_shown(const char *value, char *copy, size_t bytes);

#endif
