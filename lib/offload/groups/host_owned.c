/*
 * host_owned.c - see host_owned.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "offload/groups/host_owned.h"

#include "base/error.h"
#include "offload/groups/group.h"

#include <stdlib.h>
#include <string.h>

/* ---- spans -------------------------------------------------------------- */

static bool overlap(const struct gh_host_owned_span *span, const char *from,
                    uint64_t bytes)
{
    return (uintptr_t)from < (uintptr_t)span->from + span->bytes &&
           (uintptr_t)span->from < (uintptr_t)from + bytes;
}

static void take_in(struct gh_host_owned_span *span, char *from, uint64_t bytes)
{
    const uintptr_t first = (uintptr_t)span->from < (uintptr_t)from
                                ? (uintptr_t)span->from
                                : (uintptr_t)from;
    const uintptr_t end = (uintptr_t)span->from + span->bytes;
    const uintptr_t other = (uintptr_t)from + bytes;

    span->from = (uintptr_t)from == first ? from : span->from;
    span->bytes = (end > other ? end : other) - first;
}

/* All that overlaps the tensor becomes one span, the first of them. */
static uint32_t add_tensor(struct gh_host_owned *own, char *from,
                           uint64_t bytes, uint32_t *joined)
{
    uint32_t first = own->n_spans;

    for (uint32_t s = 0; s < own->n_spans; s++) {
        struct gh_host_owned_span *span = &own->spans[s];

        if (span->bytes == 0 || !overlap(span, from, bytes)) {
            continue;
        }
        if (first == own->n_spans) {
            first = s;
            take_in(span, from, bytes);
            continue;
        }
        take_in(&own->spans[first], span->from, span->bytes);
        span->bytes = 0;
        joined[s] = first;
    }
    if (first == own->n_spans) {
        own->spans[own->n_spans++] =
            (struct gh_host_owned_span){ from, bytes, 0, false };
    }
    return first;
}

static void find_spans(const gh_offload_group *wanted,
                       struct gh_host_owned *own)
{
    uint32_t joined[GH_MAX_GROUP];

    own->n_spans = 0;
    own->n_tensors = wanted->n_tensors;
    for (uint32_t t = 0; t < wanted->n_tensors; t++) {
        const gh_offload_tensor *tensor = &wanted->tensors[t];

        joined[t] = t;
        own->tensors[t] = (struct gh_host_owned_tensor){ tensor->bytes, 0, 0 };
        if (tensor->bytes != 0) {
            own->tensors[t].span =
                add_tensor(own, tensor->address, tensor->bytes, joined);
        }
    }
    for (uint32_t t = 0; t < wanted->n_tensors; t++) {
        struct gh_host_owned_tensor *in = &own->tensors[t];

        if (in->bytes == 0) {
            continue;
        }
        while (joined[in->span] != in->span) {
            in->span = joined[in->span];
        }
        in->delta = (uint64_t)((char *)wanted->tensors[t].address -
                               own->spans[in->span].from);
    }
}

static uint64_t shape_of(const struct gh_host_owned *own)
{
    uint64_t shape = 0;
    bool plain = true;

    for (uint32_t t = 0; t < own->n_tensors; t++) {
        const struct gh_host_owned_tensor *in = &own->tensors[t];

        plain = plain &&
                (in->bytes == 0 ||
                 (in->delta == 0 && in->bytes == own->spans[in->span].bytes));
        shape = (shape ^ in->delta) * UINT64_C(1099511628211) + in->span;
    }
    for (uint32_t t = 0; t < own->n_tensors && plain; t++) {
        for (uint32_t other = 0; other < t && plain; other++) {
            plain = own->tensors[t].bytes == 0 ||
                    own->tensors[other].bytes == 0 ||
                    own->tensors[t].span != own->tensors[other].span;
        }
    }
    return plain ? 0 : shape | 1;
}

void gh_host_owned_lay(const struct gh_offload *o,
                       const gh_offload_group *wanted, bool goes,
                       struct gh_host_owned *own)
{
    find_spans(wanted, own);
    own->shape = shape_of(own);
    gh_host_owned_split(o, own, goes);
}

void gh_host_owned_split(const struct gh_offload *o, struct gh_host_owned *own,
                         bool goes)
{
    own->goes = own->stays = 0;
    for (uint32_t s = 0; s < own->n_spans; s++) {
        struct gh_host_owned_span *span = &own->spans[s];
        uint64_t *end;

        span->goes = goes && gh_group_tensor_goes(o, span->bytes);
        end = span->goes ? &own->goes : &own->stays;
        span->offset = *end;
        *end += gh_memory_align(span->bytes);
    }
}

enum gh_host_owned_mode gh_host_owned_choose(bool goes, bool lent, bool eager)
{
    if (!lent || (goes && !eager)) {
        return GH_HOST_OWNED_STAGED;
    }
    return goes ? GH_HOST_OWNED_DIRECT : GH_HOST_OWNED_STAYS;
}

gh_status gh_host_owned_make(struct gh_instance *i, gh_error *err)
{
    if (i->host_memory == NULL) {
        i->host_memory = calloc(1, sizeof(*i->host_memory));
    }
    return i->host_memory != NULL
               ? GH_OK
               : gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a group");
}

void gh_host_owned_copy(struct gh_host_owned *to,
                        const struct gh_host_owned *from)
{
    memcpy(to, from, offsetof(struct gh_host_owned, spans));
    memcpy(to->spans, from->spans, from->n_spans * sizeof(*to->spans));
    memcpy(to->tensors, from->tensors, from->n_tensors * sizeof(*to->tensors));
}

gh_status gh_host_owned_refuse_pass(const struct gh_offload *o,
                                    const struct gh_instance *i, gh_error *err)
{
    return gh_fail(err, GH_ERR_STATE,
                   "gh_offload_commit: %s was saved by another pass: save what "
                   "has GH_OFFLOAD_HOST_OWNED in the pass that commits it",
                   gh_group_name(o, i->group->layer, i->group->module).text);
}

/* ---- copies ------------------------------------------------------------- */

uint32_t gh_host_owned_find_runs(const struct gh_host_owned *own, bool direct,
                                 struct gh_run runs[GH_MAX_GROUP])
{
    uint32_t n = 0;

    for (uint32_t s = 0; s < own->n_spans; s++) {
        const struct gh_host_owned_span *span = &own->spans[s];

        if (span->goes && span->bytes != 0) {
            runs[n++] = (struct gh_run){ span->offset, span->bytes,
                                         direct ? span->from : NULL };
        }
    }
    return n;
}

gh_status gh_host_owned_stage(struct gh_offload *o,
                              const struct gh_host_owned *own, void *moved,
                              void *kept, void *stream, gh_error *err)
{
    gh_status status = GH_OK;

    if (own->mode == GH_HOST_OWNED_STAYS) {
        return GH_OK;
    }
    for (uint32_t s = 0; s < own->n_spans && status == GH_OK; s++) {
        const struct gh_host_owned_span *span = &own->spans[s];
        char *to = span->goes ? moved : kept;

        if (span->bytes != 0 &&
            !(span->goes && own->mode == GH_HOST_OWNED_DIRECT)) {
            status = gh_device_copy(o->dev, to + span->offset, span->from,
                                    span->bytes, stream, err);
        }
    }
    return status;
}

/* ---- what is loaded ----------------------------------------------------- */

bool gh_host_owned_fits(const struct gh_host_owned *own,
                        const gh_offload_group *wanted)
{
    bool fits = own->n_tensors == wanted->n_tensors;

    for (uint32_t t = 0; t < wanted->n_tensors && fits; t++) {
        fits = own->tensors[t].bytes == wanted->tensors[t].bytes;
    }
    return fits;
}

/* Names the first tensor that differs. */
gh_status gh_host_owned_refuse_load(const struct gh_offload *o,
                                    const struct gh_host_owned *own,
                                    const gh_offload_group *wanted,
                                    gh_error *err)
{
    const struct gh_group_name name =
        gh_group_name(o, wanted->layer, wanted->module);
    uint32_t t = 0;

    if (own->n_tensors != wanted->n_tensors) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_offload_load: %s has other tensors than it was "
                       "saved with: they are %u, and were %u: load the "
                       "tensors that were saved",
                       name.text, wanted->n_tensors, own->n_tensors);
    }
    while (t + 1 < own->n_tensors &&
           own->tensors[t].bytes == wanted->tensors[t].bytes) {
        t++;
    }
    return gh_fail(err, GH_ERR_INVALID,
                   "gh_offload_load: %s has other tensors than it was saved "
                   "with: tensors[%u] has %llu bytes, and had %llu: load the "
                   "tensors that were saved",
                   name.text, t, (unsigned long long)wanted->tensors[t].bytes,
                   (unsigned long long)own->tensors[t].bytes);
}

static char *base_of(const struct gh_host_owned *own,
                     const struct gh_host_owned_span *span, char *moved,
                     char *kept)
{
    if (span->goes) {
        return moved + span->offset;
    }
    return own->mode == GH_HOST_OWNED_STAYS ? span->from : kept + span->offset;
}

void gh_host_owned_lay_out(const struct gh_host_owned *own,
                           gh_offload_group *wanted, void *moved, void *kept)
{
    for (uint32_t t = 0; t < own->n_tensors; t++) {
        const struct gh_host_owned_tensor *in = &own->tensors[t];

        wanted->tensors[t].address =
            in->bytes == 0
                ? NULL
                : base_of(own, &own->spans[in->span], moved, kept) + in->delta;
    }
}

void gh_host_owned_fix(struct gh_host_owned *own, void *kept)
{
    for (uint32_t s = 0; s < own->n_spans; s++) {
        struct gh_host_owned_span *span = &own->spans[s];

        if (!span->goes && own->mode != GH_HOST_OWNED_STAYS) {
            span->from = (char *)kept + span->offset;
        }
    }
}

gh_status gh_host_owned_bring(struct gh_offload *o, const struct gh_instance *i,
                              const struct gh_host_owned *fixed, void *stream,
                              gh_error *err)
{
    gh_status status = GH_OK;

    for (uint32_t s = 0; s < fixed->n_spans && status == GH_OK; s++) {
        const struct gh_host_owned_span *to = &fixed->spans[s];
        const char *from;

        if (to->goes || to->bytes == 0) {
            continue;
        }
        from =
            base_of(i->host_memory, &i->host_memory->spans[s], NULL, i->held);
        if (from != to->from) {
            status =
                gh_device_copy(o->dev, to->from, from, to->bytes, stream, err);
        }
    }
    return status;
}
