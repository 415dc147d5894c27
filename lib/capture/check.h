/*
 * check.h - an entry is run both ways and compared.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_CAPTURE_CHECK_H
#define GH_CAPTURE_CHECK_H

#include "bank/entry.h"

struct gh_capture;

enum gh_check_begun {
    GH_CHECK_READY,   /* the host runs the parts, exit compares */
    GH_CHECK_STANDS,  /* launched, and not to be compared: a plain replay */
    GH_CHECK_NOT_RUN, /* nothing was launched */
    GH_CHECK_LOST     /* launched, and the state before is gone */
};
/* Whether the entry has outputs that can be compared. */
bool gh_check_has_results(const struct gh_entry *entry);
enum gh_check_begun gh_check_begin(struct gh_capture *c, struct gh_entry *entry,
                                   const gh_pass *pass, gh_error *err);
/* Waits for the pass, and for other ranks in it at most GRAPHHOOKS_TIMEOUT. */
gh_status gh_check_end(struct gh_capture *c, struct gh_entry *entry,
                       const gh_pass *pass, gh_error *err);

#endif
