/*
 * borders.h - what passes leave behind for those on the other side.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_CAPTURE_BORDERS_H
#define GH_CAPTURE_BORDERS_H

#include <graphhooks/layer.h>

struct gh_capture;

gh_status gh_borders_create(struct gh_capture *c, gh_error *err);
void gh_borders_destroy(struct gh_capture *c);
/* Keeps the named outputs of a pass that ran eagerly. */
void gh_borders_keep(struct gh_capture *c, const gh_pass *pass);

#endif
