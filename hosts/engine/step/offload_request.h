/*
 * offload_request.h - what a session is asked to offload.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_OFFLOAD_REQUEST_H
#define ENGINE_OFFLOAD_REQUEST_H

#include "step/options.h"

#include <graphhooks/offload.h>

/* The modules that the options name: bit n for saved_module n.  Returns -1 with
 * an unknown word in `bad`. */
int offload_modules(const struct options *options, unsigned *modules,
                    char *bad, size_t bad_bytes);

/* What goes into gh_session_desc.offload; `text` is memory for the names. */
struct offload_request {
    gh_offload_desc desc;
    char text[512];
};
void offload_describe(const struct options *options,
                      struct offload_request *request);

#endif
