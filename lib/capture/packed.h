/*
 * packed.h - where the device finds a microbatch's packed sequences.
 *
 * The arrays of a slot and a bank are a block of the slot's memory, at one
 * address as long as the bank has graphs.  Microbatches without a slot have
 * arrays of their own until the step ends.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_CAPTURE_PACKED_H
#define GH_CAPTURE_PACKED_H

#include <graphhooks/layer.h>

#include <stdbool.h>

struct gh_bank;
struct gh_capture;
struct gh_slotless;

/* The error for a microbatch that begins without its sequences. */
gh_status gh_packed_refuse_none(const gh_pass *pass,
                                const struct gh_bank *bank, gh_error *err);

/* Whether a microbatch without a slot has arrays in this step. */
bool gh_packed_are_set(const struct gh_capture *c);
/* Frees the arrays of microbatches without a slot for the next step, which
 * waits for the streams that have read them. */
void gh_packed_end_step(struct gh_capture *c);
/* The bytes of arrays of microbatches without a slot. */
uint64_t gh_packed_bytes(const struct gh_capture *c);
void gh_packed_free(struct gh_capture *c);

#endif
