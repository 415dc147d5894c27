/*
 * memory.h - the device memory that the library will take, before anything has
 * run.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BIN_MEMORY_H
#define BIN_MEMORY_H

#include "foresee.h"
#include "pipeline.h"

#include <stdint.h>

/* Bytes that a description has of a training; 0: not given. */
struct memory_sizes {
    uint64_t *inputs; /* of graphs, in a slot; one for all chunks or for each;
                         NULL: not given */
    size_t n_inputs;
    uint32_t n_chunks; /* of the description */
    uint64_t stash, window;
};

/* What is shown is of the stage that takes most slots, if there are stages.
 * On standard output, or as a member of an object that is begun, with a comma
 * behind it; nothing where no size is given. */
void memory_print(const struct gh_plan *plan, const struct memory_sizes *sizes,
                  const struct foresight *foresight,
                  const struct pipeline_forecast *pipeline);
void memory_print_json(const struct gh_plan *plan,
                       const struct memory_sizes *sizes,
                       const struct foresight *foresight,
                       const struct pipeline_forecast *pipeline);

#endif
