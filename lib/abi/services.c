/*
 * services.c - the host's services, as a session takes them.
 *
 * Services that belong together must be given together, so that callers need
 * to test only one of them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "abi/services.h"

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
    const size_t least = GH_SIZE_THROUGH(gh_host_services, record_end);
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
