/*
 * memory.c - see memory.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "memory/memory.h"

#include "base/error.h"

#include <pthread.h>
#include <stdlib.h>

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

static void free_by_driver(struct gh_memory *m, void *address, uint64_t bytes)
{
    m->bytes -= bytes;
    gh_device_free(m->streams->dev, address);
}

/* ---- the sessions of the process ----------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gh_memory *opened;

static void *context_of(const struct gh_memory *m)
{
    return gh_device_context(m->streams->dev);
}

void gh_memory_open(struct gh_memory *m)
{
    pthread_mutex_lock(&lock);
    m->next_open = opened;
    opened = m;
    pthread_mutex_unlock(&lock);
}

static void forget(const struct gh_memory *m)
{
    pthread_mutex_lock(&lock);
    for (struct gh_memory **at = &opened; *at != NULL;
         at = &(*at)->next_open) {
        if (*at == m) {
            *at = m->next_open;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
}

/* Whether all sessions are on the device of this one. */
static bool is_alone(const struct gh_memory *m)
{
    bool alone = true;

    pthread_mutex_lock(&lock);
    for (const struct gh_memory *o = opened; o != NULL; o = o->next_open) {
        alone &= context_of(o) == context_of(m);
    }
    pthread_mutex_unlock(&lock);
    return alone;
}

/* ---- what is held -------------------------------------------------------- */

struct gh_held {
    struct gh_held *next;
    void *address;
    uint64_t bytes;
};

/* False: there is no memory to write it down. */
static bool hold(struct gh_memory *m, void *address, uint64_t bytes)
{
    struct gh_held *held = malloc(sizeof(*held));

    if (held == NULL) {
        return false;
    }
    /* Who gets it next does not wait for work that uses it now. */
    gh_streams_quiesce(m->streams);
    *held = (struct gh_held){ m->held, address, bytes };
    m->held = held;
    return true;
}

/* NULL: none has that size. */
static void *take_held(struct gh_memory *m, uint64_t bytes)
{
    for (struct gh_held **at = &m->held; *at != NULL; at = &(*at)->next) {
        struct gh_held *held = *at;

        if (held->bytes == bytes) {
            void *address = held->address;

            *at = held->next;
            free(held);
            return address;
        }
    }
    return NULL;
}

void gh_memory_keep(struct gh_memory *m, void *address, uint64_t bytes)
{
    if (address != NULL && hold(m, address, bytes)) {
        m->bytes += bytes;
        return;
    }
    gh_device_free(m->streams->dev, address);
}

static void free_held(struct gh_memory *m)
{
    while (m->held != NULL) {
        struct gh_held *held = m->held;

        m->held = held->next;
        free_by_driver(m, held->address, held->bytes);
        free(held);
    }
}

uint64_t gh_memory_held(const struct gh_memory *m)
{
    uint64_t bytes = 0;

    for (const struct gh_held *h = m->held; h != NULL; h = h->next) {
        bytes += h->bytes;
    }
    return bytes;
}

void gh_memory_trim(struct gh_memory *m)
{
    if (!gh_memory_holds(m)) {
        free_held(m);
    }
}

void gh_memory_close(struct gh_memory *m)
{
    forget(m);
    free_held(m);
    gh_arena_close(&m->arena);
}

/* ---- all of it ----------------------------------------------------------- */

static gh_status alloc(struct gh_memory *m, uint64_t bytes, void **address_p,
                       gh_error *err)
{
    if (m->host->device_alloc != NULL) {
        return alloc_of_host(m->host, bytes, address_p, err);
    }
    return gh_arena_is_open(&m->arena)
               ? gh_arena_alloc(&m->arena, bytes, address_p, err)
               : gh_device_alloc(m->streams->dev, bytes, address_p, err);
}

gh_status gh_memory_alloc(struct gh_memory *m, uint64_t bytes, void **address_p,
                          gh_error *err)
{
    gh_status status;

    /* The host must get back only what it has lent, and the arena only what is
     * its own. */
    *address_p =
        m->host->device_alloc == NULL && !gh_arena_is_open(&m->arena)
            ? take_held(m, bytes)
            : NULL;
    if (*address_p != NULL) {
        return GH_OK;
    }
    status = alloc(m, bytes, address_p, err);
    if (status == GH_OK) {
        m->bytes += bytes;
    }
    return status;
}

bool gh_memory_holds(const struct gh_memory *m)
{
    return m->holds || !is_alone(m);
}

void gh_memory_free(struct gh_memory *m, void *address, uint64_t bytes)
{
    if (address == NULL) {
        return;
    }
    if (m->host->device_free == NULL && !gh_arena_is_open(&m->arena)) {
        if (!gh_memory_holds(m) || !hold(m, address, bytes)) {
            free_by_driver(m, address, bytes);
        }
        return;
    }
    m->bytes -= bytes;
    /* cuMemFree waits for work that uses the memory.  A host's function need
     * not, nor does the arena, so wait here. */
    gh_streams_quiesce(m->streams);
    if (m->host->device_free != NULL) {
        m->host->device_free(m->host->user, address, bytes);
    } else {
        gh_arena_free(&m->arena, address, bytes, gh_memory_holds(m));
    }
}
