/*
 * aux.c - tensors that graphs read besides their inputs, kept alive.
 *
 * A graph holds addresses, and no reference: an allocator that sees nobody
 * hold a table of rotary angles gives its memory away under the graph.  So
 * an object is retained when its tensor is bound, and released when no graph
 * is left that may read the tensor.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"
#include "capture/aux.h"

#include "base/error.h"
#include "capture/capture.h"
#include "capture/services.h"
#include "pass/pass.h"

#include <stdlib.h>
#include <string.h>

struct gh_bound {
    uint32_t bank, layer;
    uint32_t parts; /* that read it */
    char *name;
    gh_buffer buffer;
    void *object; /* NULL: none, or nothing retains it */
    bool is_void; /* it went with the graphs of its bank */
};

static struct gh_bound *find(const struct gh_capture *c, const gh_aux *aux)
{
    for (uint32_t i = 0; i < c->beside.n_bound; i++) {
        if (c->beside.bound[i].bank == aux->bank &&
            c->beside.bound[i].layer == aux->layer &&
            strcmp(c->beside.bound[i].name, aux->name) == 0) {
            return &c->beside.bound[i];
        }
    }
    return NULL;
}

static gh_status add(struct gh_capture *c, const gh_aux *aux,
                     struct gh_bound **bound_p, gh_error *err)
{
    struct gh_bound *bound =
        realloc(c->beside.bound, (c->beside.n_bound + 1) * sizeof(*bound));
    char *name;

    if (bound == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a binding");
    }
    c->beside.bound = bound;
    name = strdup(aux->name);
    if (name == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a binding");
    }
    *bound_p = &bound[c->beside.n_bound++];
    **bound_p = (struct gh_bound){ .bank = aux->bank,
                                   .layer = aux->layer,
                                   .name = name };
    return GH_OK;
}

static bool reads(const struct gh_capture *c, const gh_segment *segment,
                  uint32_t layer, uint32_t parts)
{
    for (gh_part part = 0; part < GH_PART_COUNT; part++) {
        if ((parts & UINT32_C(1) << part) != 0 &&
            gh_plan_covers(c->plan, segment, layer, part)) {
            return true;
        }
    }
    return false;
}

/* Counts the graphs of the bank that read the tensor, and drops them if `drop`
 * is set. */
static uint32_t count_graphs(struct gh_capture *c, const gh_aux *aux,
                             uint32_t parts, bool drop)
{
    struct gh_bank *bank = c->banks.all[aux->bank];
    struct gh_entry *entries;
    uint32_t n = 0, n_entries;

    for (uint32_t s = 0; s < c->plan->n_segments; s++) {
        if (!reads(c, &c->plan->segments[s], aux->layer, parts)) {
            continue;
        }
        entries = gh_bank_of_segment(bank, s, &n_entries);
        for (uint32_t i = 0; i < n_entries; i++) {
            if (entries[i].state != GH_ENTRY_READY) {
                continue;
            }
            n++;
            if (drop) {
                gh_bank_clear(bank, &entries[i]);
            }
        }
    }
    return n;
}

/* Drops the graphs that read the tensor.  Not while a microbatch is in flight,
 * which may still read their buffers. */
static gh_status drop_graphs(struct gh_capture *c, const gh_aux *aux,
                             uint32_t parts, gh_error *err)
{
    struct gh_device_before before;

    if (count_graphs(c, aux, parts, false) == 0) {
        return GH_OK;
    }
    if (!gh_slots_are_free(c->slots)) {
        return gh_fail(err, GH_ERR_STATE,
                       "gh_aux_bind: %s of layer %u has moved while "
                       "microbatches are in flight through graphs that read "
                       "it: bind between steps",
                       aux->name, aux->layer);
    }
    before = gh_device_enter(c->dev);
    gh_streams_quiesce(&c->streams);
    count_graphs(c, aux, parts, true);
    gh_device_leave(c->dev, before);
    return GH_OK;
}

gh_status gh_capture_bind(struct gh_capture *c, const gh_aux *aux,
                          uint32_t parts, gh_error *err)
{
    struct gh_bound *bound = find(c, aux);
    const bool stays = bound != NULL && !bound->is_void &&
                       bound->buffer.address == aux->buffer.address &&
                       bound->buffer.bytes == aux->buffer.bytes;
    void *old = NULL;
    gh_status status;

    if (stays && bound->object == aux->object) {
        return GH_OK;
    }
    if (aux->bank >= c->banks.n) {
        return gh_fail(err, GH_ERR_NOT_FOUND,
                       "gh_aux.bank is %u, and the session has banks 0 to %u: "
                       "declare it with gh_bank_add first",
                       aux->bank, c->banks.n - 1);
    }
    status = gh_services_retain(c, aux->object, err);
    if (status != GH_OK) {
        return status;
    }
    status = stays ? GH_OK : drop_graphs(c, aux, parts, err);
    if (status == GH_OK && bound == NULL) {
        status = add(c, aux, &bound, err);
    }
    if (status != GH_OK) {
        gh_services_release(c, aux->object);
        return status;
    }
    old = bound->object;
    bound->buffer = aux->buffer;
    bound->object = aux->object;
    bound->parts = parts;
    bound->is_void = false;
    gh_services_release(c, old);
    return GH_OK;
}

void **gh_aux_give_up(struct gh_capture *c, const struct gh_bank *bank,
                      uint32_t *n_p)
{
    void **objects = malloc((c->beside.n_bound + (size_t)1) * sizeof(*objects));

    *n_p = 0;
    for (uint32_t i = 0; objects != NULL && i < c->beside.n_bound; i++) {
        struct gh_bound *bound = &c->beside.bound[i];

        if (bound->bank == bank->number && !bound->is_void) {
            objects[(*n_p)++] = bound->object;
            bound->object = NULL;
            bound->is_void = true;
        }
    }
    return objects;
}

bool gh_aux_is_void(const struct gh_capture *c, const struct gh_bank *bank,
                    uint32_t segment)
{
    for (uint32_t i = 0; i < c->beside.n_bound; i++) {
        const struct gh_bound *bound = &c->beside.bound[i];

        if (bound->is_void && bound->bank == bank->number &&
            reads(c, &c->plan->segments[segment], bound->layer,
                  bound->parts)) {
            return true;
        }
    }
    return false;
}

void gh_aux_release_all(struct gh_capture *c)
{
    for (uint32_t i = 0; i < c->beside.n_bound; i++) {
        gh_services_release(c, c->beside.bound[i].object);
        free(c->beside.bound[i].name);
    }
    free(c->beside.bound);
    c->beside.bound = NULL;
    c->beside.n_bound = 0;
}
