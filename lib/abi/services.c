/*
 * services.c - the host's services, as a session takes them.
 *
 * Services that belong together must be given together, so that callers need
 * to test only one of them.  Every service is called from here, where the gate
 * closes the hooks around it, so that no other caller can forget to.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "abi/services.h"

#include "abi/session.h"
#include "base/error.h"
#include "base/size.h"

#include <stdbool.h>

static gh_status check_captures(const gh_host_services *host, gh_error *err)
{
    const struct {
        const char *name;
        bool given;
    } slots[] = {
        { "capture_begin", host->capture_begin != NULL },
        { "capture_end", host->capture_end != NULL },
        { "launch", host->launch != NULL },
        { "destroy", host->destroy != NULL },
    };
    const char *given = NULL, *missing = NULL;

    for (size_t i = 0; i < sizeof(slots) / sizeof(slots[0]); i++) {
        *(slots[i].given ? &given : &missing) = slots[i].name;
    }
    if (given != NULL && missing != NULL) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_host_services has %s without %s: give "
                       "capture_begin, capture_end, launch and destroy, or "
                       "none of them",
                       given, missing);
    }
    return GH_OK;
}

static gh_status check_services(const gh_host_services *host, gh_error *err)
{
    if (host->reserved != 0) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_host_services.reserved is %u: zero it",
                       host->reserved);
    }
    if ((host->device_alloc == NULL) != (host->device_free == NULL)) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_host_services has %s without %s: give both or "
                       "neither",
                       host->device_alloc ? "device_alloc" : "device_free",
                       host->device_alloc ? "device_free" : "device_alloc");
    }
    if ((host->record_begin == NULL) != (host->record_end == NULL)) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_host_services has %s without %s: give both or "
                       "neither",
                       host->record_begin ? "record_begin" : "record_end",
                       host->record_begin ? "record_end" : "record_begin");
    }
    if ((host->retain == NULL) != (host->release == NULL)) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_host_services has %s without %s: give both or "
                       "neither",
                       host->retain ? "retain" : "release",
                       host->retain ? "release" : "retain");
    }
    return check_captures(host, err);
}

gh_status gh_session_take_services(const gh_host_services *given,
                                   gh_host_services *host, gh_error *err)
{
    const size_t least = GH_SIZE_THROUGH(gh_host_services, before_recording);
    gh_status status;

    *host = (gh_host_services){ 0 };
    if (given == NULL) {
        return GH_OK;
    }
    status =
        gh_check_size("gh_host_services", given, least, sizeof(*host), err);
    if (status != GH_OK) {
        return status;
    }
    gh_take_struct(given, host, sizeof(*host));
    return check_services(host, err);
}

/* ---- the calls ----------------------------------------------------------- */

static gh_status device_alloc(void *user, uint64_t bytes, void **address_p)
{
    struct gh_session *s = user;
    void *const gate = gh_gate_leave(&s->gate);
    const gh_status status =
        s->host.device_alloc(s->host.user, bytes, address_p);

    gh_gate_return(&s->gate, gate);
    return status;
}

static void device_free(void *user, void *address, uint64_t bytes)
{
    struct gh_session *s = user;
    void *const gate = gh_gate_leave(&s->gate);

    s->host.device_free(s->host.user, address, bytes);
    gh_gate_return(&s->gate, gate);
}

static gh_status record_begin(void *user, const gh_recording *recording)
{
    struct gh_session *s = user;
    void *const gate = gh_gate_leave(&s->gate);
    const gh_status status = s->host.record_begin(s->host.user, recording);

    gh_gate_return(&s->gate, gate);
    return status;
}

static void record_end(void *user, const gh_recording *recording,
                       uint32_t kept)
{
    struct gh_session *s = user;
    void *const gate = gh_gate_leave(&s->gate);

    s->host.record_end(s->host.user, recording, kept);
    gh_gate_return(&s->gate, gate);
}

static gh_status retain(void *user, void *object)
{
    struct gh_session *s = user;
    void *const gate = gh_gate_leave(&s->gate);
    const gh_status status = s->host.retain(s->host.user, object);

    gh_gate_return(&s->gate, gate);
    return status;
}

static void release(void *user, void *object)
{
    struct gh_session *s = user;
    void *const gate = gh_gate_leave(&s->gate);

    s->host.release(s->host.user, object);
    gh_gate_return(&s->gate, gate);
}

static gh_status capture_begin(void *user, void *stream)
{
    struct gh_session *s = user;
    void *const gate = gh_gate_leave(&s->gate);
    const gh_status status = s->host.capture_begin(s->host.user, stream);

    gh_gate_return(&s->gate, gate);
    return status;
}

static gh_status capture_end(void *user, void *stream, void **object_p,
                             void **graph_p)
{
    struct gh_session *s = user;
    void *const gate = gh_gate_leave(&s->gate);
    const gh_status status =
        s->host.capture_end(s->host.user, stream, object_p, graph_p);

    gh_gate_return(&s->gate, gate);
    return status;
}

static gh_status launch(void *user, void *object, void *stream, void **exec_p)
{
    struct gh_session *s = user;
    void *const gate = gh_gate_leave(&s->gate);
    const gh_status status =
        s->host.launch(s->host.user, object, stream, exec_p);

    gh_gate_return(&s->gate, gate);
    return status;
}

static void destroy(void *user, void *object)
{
    struct gh_session *s = user;
    void *const gate = gh_gate_leave(&s->gate);

    s->host.destroy(s->host.user, object);
    gh_gate_return(&s->gate, gate);
}

static gh_status before_recording(void *user, const gh_recording *recording)
{
    struct gh_session *s = user;
    void *const gate = gh_gate_leave(&s->gate);
    const gh_status status = s->host.before_recording(s->host.user, recording);

    gh_gate_return(&s->gate, gate);
    return status;
}

static void released(void *user, void *object)
{
    struct gh_session *s = user;
    void *const gate = gh_gate_leave(&s->gate);

    s->host.released(s->host.user, object);
    gh_gate_return(&s->gate, gate);
}

#define IF_GIVEN(slot) (host->slot != NULL ? (slot) : NULL)

gh_host_services gh_session_services(struct gh_session *session)
{
    const gh_host_services *host = &session->host;

    return (gh_host_services){
        .struct_size = sizeof(*host),
        .user = session,
        .device_alloc = IF_GIVEN(device_alloc),
        .device_free = IF_GIVEN(device_free),
        .record_begin = IF_GIVEN(record_begin),
        .record_end = IF_GIVEN(record_end),
        .retain = IF_GIVEN(retain),
        .release = IF_GIVEN(release),
        .capture_begin = IF_GIVEN(capture_begin),
        .capture_end = IF_GIVEN(capture_end),
        .launch = IF_GIVEN(launch),
        .destroy = IF_GIVEN(destroy),
        .before_recording = IF_GIVEN(before_recording),
        .released = IF_GIVEN(released),
    };
}

void gh_session_write_plan(struct gh_session *session, gh_format format,
                           gh_write_fn *write, void *user)
{
    void *const gate = gh_gate_leave(&session->gate);

    gh_plan_write(&session->plan, format, write, user);
    gh_gate_return(&session->gate, gate);
}
