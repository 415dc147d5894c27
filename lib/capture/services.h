/*
 * services.h - what a host lends to recordings, and what it returns.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_CAPTURE_SERVICES_H
#define GH_CAPTURE_SERVICES_H

#include "bank/entry.h"

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
/* Around a recording: record_begin, and record_end where that was called. */
gh_status gh_services_route(struct gh_capture *c, gh_error *err);
void gh_services_unroute(struct gh_capture *c, bool kept);

/* Of a tensor that graphs read; NULL is nothing. */
gh_status gh_services_retain(struct gh_capture *c, void *object, gh_error *err);
void gh_services_release(struct gh_capture *c, void *object);

/* Memory of the host's own that was offloaded is the host's again. */
void gh_services_released(struct gh_capture *c, void *object);

/* Graphs that a host captures and launches itself.  Nodes that it has not let
 * the library count: */
#define GH_NODES_UNKNOWN UINT64_MAX

bool gh_services_capture(const struct gh_capture *c);
gh_status gh_services_capture_begin(struct gh_capture *c, void *stream,
                                    gh_error *err);
/* Always leaves the stream out of capture, whatever it returns. */
gh_status gh_services_capture_end(struct gh_capture *c, void *stream,
                                  void **object_p, uint64_t *n_nodes_p,
                                  gh_error *err);
gh_status gh_services_launch(struct gh_capture *c, struct gh_entry *entry,
                             void *stream, gh_error *err);

#endif
