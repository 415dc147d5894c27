/*
 * services.c - what a host lends to recordings, and what it returns.
 *
 * What a service that captures leaves undone is found out here, in the
 * recording, and not by wrong numbers later: a capture that was not begun runs
 * the pass and its graph after it, one that was not ended swallows what the
 * host issues next.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "capture/services.h"

#include "base/error.h"
#include "pass/pass.h"

#include <stdlib.h>

/* ---- around a recording ------------------------------------------------ */

static gh_status failed(const char *service, gh_status status, gh_error *err)
{
    return gh_fail(err, GH_ERR_STATE, "the host's %s: %s", service,
                   gh_status_name(status));
}

static gh_recording recording_of(const struct gh_open_pass *open)
{
    return (gh_recording){ .struct_size = sizeof(gh_recording),
                           .slot = open->slot,
                           .segment = open->segment,
                           .direction = open->direction,
                           .variant = open->variant,
                           .bank = open->bank->number,
                           .chunk = open->chunk,
                           .stream = open->capture_stream };
}

gh_status gh_services_create(struct gh_capture *c, gh_error *err)
{
    c->fixed.answers = calloc(c->plan->n_chunks, sizeof(*c->fixed.answers));
    if (c->fixed.answers == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a session");
    }
    return GH_OK;
}

void gh_services_destroy(struct gh_capture *c)
{
    free(c->fixed.answers);
}

gh_status gh_services_before_recording(struct gh_capture *c, gh_error *err)
{
    const gh_host_services *host = &c->options.host;
    const gh_recording recording = recording_of(&c->open);
    struct gh_answer *answer = &c->fixed.answers[c->open.chunk];

    if (host->before_recording == NULL) {
        return GH_OK;
    }
    if (!answer->given) {
        answer->status = host->before_recording(host->user, &recording);
        answer->given = true;
    }
    if (answer->status != GH_OK) {
        return failed("before_recording", answer->status, err);
    }
    return GH_OK;
}

gh_status gh_services_route(struct gh_capture *c, gh_error *err)
{
    const gh_host_services *host = &c->options.host;
    const gh_recording recording = recording_of(&c->open);
    gh_status status;

    if (host->record_begin == NULL) {
        return GH_OK;
    }
    status = host->record_begin(host->user, &recording);
    if (status != GH_OK) {
        return failed("record_begin", status, err);
    }
    c->open.routed = true;
    return GH_OK;
}

void gh_services_unroute(struct gh_capture *c, bool kept)
{
    const gh_host_services *host = &c->options.host;
    const gh_recording recording = recording_of(&c->open);

    if (c->open.routed) {
        host->record_end(host->user, &recording, kept);
        c->open.routed = false;
    }
}

/* ---- tensors that graphs read ------------------------------------------ */

gh_status gh_services_retain(struct gh_capture *c, void *object, gh_error *err)
{
    const gh_host_services *host = &c->options.host;
    gh_status status;

    if (object == NULL || host->retain == NULL) {
        return GH_OK;
    }
    status = host->retain(host->user, object);
    if (status != GH_OK) {
        return gh_fail(err, status < 0 ? status : GH_ERR_STATE,
                       "the host's retain: %s", gh_status_name(status));
    }
    return GH_OK;
}

void gh_services_release(struct gh_capture *c, void *object)
{
    const gh_host_services *host = &c->options.host;

    if (object != NULL && host->release != NULL) {
        host->release(host->user, object);
    }
}

void gh_services_released(struct gh_capture *c, void *object)
{
    const gh_host_services *host = &c->options.host;

    host->released(host->user, object);
}

/* ---- graphs of the host's own ------------------------------------------ */

bool gh_services_capture(const struct gh_capture *c)
{
    return c->options.host.capture_begin != NULL;
}

/* Ends a capture that the host believes in, and that does not exist. */
static void drop(struct gh_capture *c, void *stream)
{
    const gh_host_services *host = &c->options.host;
    void *object = NULL, *graph = NULL;

    if (host->capture_end(host->user, stream, &object, &graph) == GH_OK &&
        object != NULL) {
        host->destroy(host->user, object);
    }
}

gh_status gh_services_capture_begin(struct gh_capture *c, void *stream,
                                gh_error *err)
{
    const gh_host_services *host = &c->options.host;
    gh_status status = host->capture_begin(host->user, stream);

    if (status != GH_OK) {
        gh_device_capture_leave(c->dev, stream);
        return failed("capture_begin", status, err);
    }
    if (!gh_device_is_capturing(c->dev, stream)) {
        drop(c, stream);
        return gh_fail(err, GH_ERR_STATE,
                       "the host's capture_begin: GH_OK, but nothing captures "
                       "the stream that it was given: begin a capture on it");
    }
    return GH_OK;
}

/* Checks what capture_end has returned with GH_OK. */
static gh_status check_end(struct gh_capture *c, bool still_open,
                           const void *object, void *graph, uint64_t *n_nodes_p,
                           gh_error *err)
{
    if (still_open) {
        return gh_fail(err, GH_ERR_STATE,
                       "the host's capture_end: GH_OK, but the stream is still "
                       "captured: end the capture in it");
    }
    if (object == NULL) {
        return gh_fail(err, GH_ERR_STATE,
                       "the host's capture_end: GH_OK, but *object_p is NULL: "
                       "set it to what launch and destroy are to be given");
    }
    *n_nodes_p = GH_NODES_UNKNOWN;
    if (graph == NULL) {
        return GH_OK;
    }
    return gh_device_count_nodes(c->dev, graph, n_nodes_p, err);
}

gh_status gh_services_capture_end(struct gh_capture *c, void *stream,
                              void **object_p, uint64_t *n_nodes_p,
                              gh_error *err)
{
    const gh_host_services *host = &c->options.host;
    void *object = NULL, *graph = NULL;
    gh_status status = host->capture_end(host->user, stream, &object, &graph);
    const bool still_open = gh_device_is_capturing(c->dev, stream);

    gh_device_capture_leave(c->dev, stream);
    if (status != GH_OK) {
        return failed("capture_end", status, err);
    }
    /* From now on the object is destroyed with the entry, also if it is refused
     * below. */
    *object_p = object;
    return check_end(c, still_open, object, graph, n_nodes_p, err);
}

gh_status gh_services_launch(struct gh_capture *c, struct gh_entry *entry,
                         void *stream, gh_error *err)
{
    const gh_host_services *host = &c->options.host;
    struct gh_device_before before = gh_device_enter(c->dev);
    void *exec = NULL;
    gh_status status = host->launch(host->user, entry->object, stream, &exec);

    gh_device_leave(c->dev, before);
    if (status != GH_OK) {
        return failed("launch", status, err);
    }
    entry->exec = exec;
    return GH_OK;
}
