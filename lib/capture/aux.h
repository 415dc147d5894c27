/*
 * aux.h - the tensors that graphs read besides their inputs, and the entry
 * of a graph.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_CAPTURE_AUX_H
#define GH_CAPTURE_AUX_H

#include <graphhooks/layer.h>

#include <stdbool.h>

struct gh_bank;
struct gh_capture;

void gh_aux_release_all(struct gh_capture *c);
/* Makes the bank's bindings void.  The caller releases the *n_p objects that
 * are returned. */
void **gh_aux_give_up(struct gh_capture *c, const struct gh_bank *bank,
                      uint32_t *n_p);
/* Whether the segment reads what the bank has given up. */
bool gh_aux_is_void(const struct gh_capture *c, const struct gh_bank *bank,
                    uint32_t segment);

/* banks.c: sets open.entry to one for a graph.  Returns why there is none, or
 * GH_REASON_NONE. */
gh_reason gh_capture_find_entry(struct gh_capture *c, const gh_pass *pass);

#endif
