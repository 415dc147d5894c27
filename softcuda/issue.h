/*
 * issue.h - putting work on streams, and waiting for what is there.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_ISSUE_H
#define SOFTCUDA_ISSUE_H

#include "driver/driver.h"

struct op;

/* The op becomes a node, or runs in its turn.  Takes the op. */
CUresult stream_issue(CUstream stream, struct op *op);
/* The op is one of the stream's: reports name it, and it tells its end. */
void stream_own(CUstream stream, struct op *op);
/* Gives the op its dependencies and its place by the rules of streams. */
void stream_place(CUstream stream, struct op *op);
/* The host has seen the end of all that is in the stream. */
void stream_wait_host(CUstream stream);
/* Runs everything of one context; the host has then waited for it. */
void stream_run_ctx(CUcontext ctx);

CUresult strm_sync(CUstream stream);
CUresult strm_query(CUstream stream);
CUresult strm_host(CUstream stream, CUhostFn fn, void *user);

#endif
