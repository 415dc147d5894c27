/*
 * memory.c - see memory.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "memory/memory.h"

#include "base/error.h"

static gh_status alloc_of_host(const gh_host_services *host, uint64_t bytes,
                               void **address_p, gh_error *err)
{
    void *address = NULL;

    if (host->device_alloc(host->user, bytes, &address) != GH_OK ||
        address == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY,
                       "the host's device_alloc refused %llu bytes",
                       (unsigned long long)bytes);
    }
    *address_p = address;
    return GH_OK;
}

gh_status gh_memory_alloc(struct gh_memory *m, uint64_t bytes, void **address_p,
                          gh_error *err)
{
    gh_status status;

    status = m->host->device_alloc != NULL
                 ? alloc_of_host(m->host, bytes, address_p, err)
                 : gh_device_alloc(m->streams->dev, bytes, address_p, err);
    if (status == GH_OK) {
        m->bytes += bytes;
    }
    return status;
}

void gh_memory_free(struct gh_memory *m, void *address, uint64_t bytes)
{
    if (address == NULL) {
        return;
    }
    m->bytes -= bytes;
    if (m->host->device_free == NULL) {
        gh_device_free(m->streams->dev, address);
        return;
    }
    /* cuMemFree waits for work that uses the memory.  A host's function need
     * not, so wait here. */
    gh_streams_quiesce(m->streams);
    m->host->device_free(m->host->user, address, bytes);
}
