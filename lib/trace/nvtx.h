/*
 * nvtx.h - ranges with names, for tools that listen by NVTX.
 *
 * A tool such as Nsight Systems names a library of its own in the variable
 * NVTX_INJECTION64_PATH, or has loaded it, and gets there what a program says.
 * This is the program's side of it: what NVIDIA's header does, for the two
 * calls that are needed.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_TRACE_NVTX_H
#define GH_TRACE_NVTX_H

#include "base/log.h"

#include <stdbool.h>

/* Looks for a tool, once in the process.  `path` is its library, or NULL: what
 * the process has loaded.  False: nobody listens. */
bool gh_nvtx_open(const char *path, const struct gh_log *log);

/* A range of the calling thread begins; they nest.  The tool copies the name.
 */
void gh_nvtx_push(const char *name);
void gh_nvtx_pop(void);

#endif
