/*
 * launch_trace.h - what the device did and when, for the trace.
 *
 * A session that is not traced has no spans, and asks for nothing here.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_CAPTURE_LAUNCH_TRACE_H
#define GH_CAPTURE_LAUNCH_TRACE_H

#include <graphhooks/base.h>

struct gh_capture;

/* Does nothing if nothing is traced, or without a device. */
gh_status gh_launch_trace_create(struct gh_capture *c, gh_error *err);
/* Called after the last work has ended.  Hands what is left to the trace. */
void gh_launch_trace_destroy(struct gh_capture *c);

/* Hands the work that has ended to the trace. */
void gh_launch_trace_collect(struct gh_capture *c);

/* replay.h declares gh_launch_traced(), for the inline launch. */

#endif
