/*
 * services.h - what a host lends to recordings, and what it returns.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_CAPTURE_SERVICES_H
#define GH_CAPTURE_SERVICES_H

#include "bank/entry.h"
#include "base/path.h"

struct gh_capture;

/* What before_recording has answered for a chunk. */
struct gh_answer {
    bool given;
    gh_status status;
};

gh_status gh_services_create(struct gh_capture *c, gh_error *err);
void gh_services_destroy(struct gh_capture *c);

/* Asks the host for the open pass's chunk, the first time.  The stream of the
 * capture is chosen. */
gh_status gh_services_before_recording(struct gh_capture *c, gh_error *err);
/* Called around a recording: record_begin, and record_end if record_begin was
 * called. */
gh_status gh_services_route(struct gh_capture *c, gh_error *err);
void gh_services_unroute(struct gh_capture *c, bool kept);

/* Retains and releases the object of a tensor that graphs read.  NULL is
 * allowed. */
gh_status gh_services_retain(struct gh_capture *c, void *object, gh_error *err);
void gh_services_release(struct gh_capture *c, void *object);

/* Tells the host that memory of its own, which was offloaded, is its again. */
void gh_services_released(struct gh_capture *c, void *object);

/* Graphs that a host captures and launches itself.  Nodes that it has not let
 * the library count: */
#define GH_NODES_UNKNOWN UINT64_MAX

bool gh_services_capture(const struct gh_capture *c);
gh_status gh_services_capture_begin(struct gh_capture *c, void *stream,
                                    gh_error *err);
/* Whatever it returns, the stream is not captured any more. */
gh_status gh_services_capture_end(struct gh_capture *c, void *stream,
                                  void **object_p, uint64_t *n_nodes_p,
                                  gh_error *err);
GH_ASIDE gh_status gh_services_launch(struct gh_capture *c,
                                      struct gh_entry *entry, void *stream,
                                      gh_error *err);

#endif
