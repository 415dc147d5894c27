/*
 * child.h - work in a process of its own, so that a crash of it is told.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BIN_CHILD_H
#define BIN_CHILD_H

#include <graphhooks/base.h>

#include <stdbool.h>
#include <stddef.h>

/* How a child has ended. */
struct child_end {
    int signal; /* 0: it ended by itself */
    int status; /* its exit status */
};

/* Zeroed memory that children share, until the process ends; NULL: none. */
void *child_share(size_t bytes);

/* Runs work(arg) in a child, which ends with what it returns, and waits.  On
 * GH_OK `end` says how that went. */
gh_status child_run(int (*work)(void *arg), void *arg, struct child_end *end,
                    gh_error *err);

/* "it crashed: signal 11, Segmentation fault", or "it ended the process with
 * status 3", for who has not returned. */
void child_tell(const struct child_end *end, char *text, size_t bytes);

/* Ends this process by the signal that has ended the child. */
int child_follow(const struct child_end *end);

#endif
