/*
 * costs.h - what a description says of bytes and times, and how much of it is
 * to be offloaded.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BIN_COSTS_H
#define BIN_COSTS_H

#include "foresee.h"

#define COSTS_MOST_IN_FLIGHT 64u

/* Where neither the description nor an option speaks. */
void costs_default(struct foresight *foresight);

/* As a word of the command line, or of GRAPHHOOKS_OFFLOAD_*; `label` stands
 * for the name in the sentence.  NULL keeps what is there. */
gh_status costs_take_fraction(struct foresight *foresight, const char *label,
                              const char *value, gh_error *err);
gh_status costs_take_buffers(struct foresight *foresight, const char *label,
                             const char *value, gh_error *err);
gh_status costs_take_in_flight(struct foresight *foresight,
                               const char *label, const char *value,
                               gh_error *err);

#endif
