/*
 * error.h - how a failure gets its text.
 *
 * The function that finds a failure writes the text once; its callers pass the
 * status on.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_BASE_ERROR_H
#define GH_BASE_ERROR_H

#include <graphhooks/base.h>

/* Fills err, which may be NULL, and returns status: `return gh_fail(...)`. */
gh_status gh_fail(gh_error *err, gh_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
