/*
 * post.h - passes file descriptors between processes of one machine.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_COMM_POST_H
#define GH_COMM_POST_H

#include <graphhooks/base.h>

#include <stdbool.h>

/* What this process receives by: *box_p, for close(), and the name by which
 * others send, which is not 0.  The name is known within gh_where_network().
 * False: there is none. */
bool gh_post_open(int *box_p, uint32_t *name_p);
/* Never waits.  The descriptor stays the caller's. */
gh_status gh_post_send(uint32_t name, uint32_t rank, int file, gh_error *err);
/* The next descriptor that was sent, for the caller to close, and by whom.
 * Never waits: -1 if there is none. */
int gh_post_take(int box, uint32_t *rank_p);

#endif
