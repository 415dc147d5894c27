/*
 * private.h - rows and their values; lib/config only.
 *
 * env.c has the table and takes what is said of it, parse.c knows one value,
 * and print.c shows them all.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_CONFIG_PRIVATE_H
#define GH_CONFIG_PRIVATE_H

#include "config/env.h"

/* Longer names are reported without a suggestion. */
#define GH_ENV_NAME_MOST 64

/* The rows of env.def; the first GH_ENV_COUNT by gh_env_id. */
extern const struct gh_env_row gh_env_table[];

/* Whether the row answers to a name of `bytes` bytes. */
bool gh_env_is_named(const struct gh_env_row *row, const char *name,
                     size_t bytes);

/* ---- parse.c ------------------------------------------------------------- */

/* The one way in, for defaults, the environment and the host's options:
 * stores the value at the row's place in `values`. */
gh_status gh_env_parse(const struct gh_env_row *row, const char *label,
                       const char *value, void *values, gh_error *err);

/* What a row accepts, for sentences and tables. */
void gh_env_rule(const struct gh_env_row *row, char *text, size_t bytes);

/* As a person reads it: a list that is not set holds all. */
const char *gh_env_default(const struct gh_env_row *row);

/* Values come from outside: cut short, and without control bytes. */
const char *gh_env_shown(const char *value, char *copy, size_t bytes);

#endif
