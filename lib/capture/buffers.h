/*
 * buffers.h - where the graph of an entry reads its inputs and writes its
 * outputs.
 *
 * record.c asks when a recording begins and ends.  An input is read where the
 * host has it if that is the same each time: the host says so, or another entry
 * writes there.  All other inputs are copied to memory of the entry's own.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_CAPTURE_BUFFERS_H
#define GH_CAPTURE_BUFFERS_H

#include "bank/entry.h"

struct gh_capture;

/* Sets the entry's inputs, their kinds and how far they are filled, and takes
 * the block that their copies write.  What it has taken when it fails is the
 * entry's. */
gh_status gh_buffers_keep_inputs(struct gh_capture *c, struct gh_entry *entry,
                                 const gh_pass *pass, gh_error *err);
/* Sets the entry's outputs. */
gh_status gh_buffers_keep_outputs(struct gh_entry *entry, const gh_pass *pass,
                                  gh_error *err);

#endif
