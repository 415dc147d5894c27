/*
 * issue.h - puts work on streams, and waits for it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_ISSUE_H
#define SOFTCUDA_ISSUE_H

#include "driver/driver.h"

struct op;

/* Makes the op a node of a graph, or runs it in its turn.  Takes the op. */
CUresult stream_issue(CUstream stream, struct op *op);
/* Makes the op part of the stream: reports name the stream, and the stream
 * learns when the op ends. */
void stream_own(CUstream stream, struct op *op);
/* Gives the op its dependencies and its position by the rules of streams. */
void stream_place(CUstream stream, struct op *op);
/* Notes that the host has waited for everything in the stream. */
void stream_wait_host(CUstream stream);
/* Runs everything of one context.  The host has then waited for it. */
void stream_run_ctx(CUcontext ctx);
/* Waits for the streams of all other contexts, but does not count as having
 * waited: work there is as unordered as before. */
void stream_run_others(CUcontext ctx);

CUresult strm_sync(CUstream stream);
CUresult strm_query(CUstream stream);
CUresult strm_host(CUstream stream, CUhostFn fn, void *user);

#endif
