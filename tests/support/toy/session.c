/*
 * session.c - the session: its model, its segments, a pass by hand, and its
 * counters.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/toy/shared.h"
#include "tap/tap.h"

#include <stdio.h>
#include <string.h>

const uint32_t toy_modules[TOY_MAX_MODULES] = { GH_MODULE_CORE_ATTN,
                                                GH_MODULE_NAMED,
                                                GH_MODULE_NAMED | 1,
                                                GH_MODULE_MLP_NORM };

gh_model *toy_model(gh_layer_desc layer, uint32_t layers, uint32_t chunks)
{
    gh_model *model = NULL;

    gh_model_create(&model, NULL);
    for (uint32_t i = 0; i < layers; i++) {
        layer.chunk = i * chunks / layers;
        gh_model_add_layer(model, &layer, NULL);
    }
    return model;
}

uint32_t toy_segments(gh_session *session, uint32_t chunks,
                      gh_segment *segments)
{
    uint32_t n = 0;

    for (uint32_t c = 0; c < chunks; c++) {
        const uint32_t of_chunk = gh_plan_segment_count(session, c);

        for (uint32_t i = 0; i < of_chunk; i++) {
            segments[n].struct_size = sizeof(*segments);
            gh_plan_segment(session, c, i, &segments[n++], NULL);
        }
    }
    return n;
}

static gh_offload_desc offload_desc(const struct toy_options *o)
{
    static const char *const own_names[] = { "own_a", "own_b", NULL };
    gh_offload_desc desc = o->offload;

    if (desc.struct_size == 0) {
        desc = (gh_offload_desc){ .modules = TOY_MODULES, .min_bytes = 4 };
    }
    desc.struct_size = sizeof(desc);
    if (desc.names == NULL) {
        desc.names = own_names;
    }
    return desc;
}

gh_status toy_attach(struct toy *toy)
{
    static const char *const nothing[] = { NULL };
    const struct toy_options *o = &toy->options;
    const gh_layer_desc plain = { .struct_size = sizeof(plain),
                                  .family = o->family };
    const gh_offload_desc offload = offload_desc(o);
    gh_model *model =
        toy_model(o->layer != NULL ? *o->layer : plain, o->layers, o->chunks);
    const gh_session_desc desc = {
        .struct_size = sizeof(desc),
        .flags = o->flags | (o->suspends != 0 ? GH_SESSION_SUSPENDS : 0),
        .model = model,
        .host = o->own ? &toy->host : o->host,
        .driver = toy_driver(),
        .scope = o->scope,
        .granularity = o->granularity,
        .max_slots = o->max_slots,
        .warmup_steps = o->warmup_steps,
        .environment = o->environment != NULL ? o->environment : nothing,
        .offload = o->modules > 0 ? &offload : NULL,
    };
    gh_status status;

    if (o->own) {
        toy->host = o->host != NULL ? *o->host : (gh_host_services){ 0 };
        toy->host.struct_size = sizeof(toy->host);
        toy->host.released = o->unlent ? NULL : lender_take_back;
    }
    toy->noise = o->suspends;
    status = gh_session_open(&desc, &toy->session, &toy->err);
    gh_model_destroy(model);
    toy->n_segments = status == GH_OK
                          ? toy_segments(toy->session, o->chunks, toy->segments)
                          : 0;
    return status;
}

bool toy_start(struct toy *toy, const struct toy_options *options,
               const char *settings)
{
    const char *reason;

    if (!toy_open(toy, options, &reason)) {
        return ok(false, "the toy opens a device: %s", reason);
    }
    if (settings != NULL) {
        toy_configure(toy, settings);
    }
    if (toy_attach(toy) != GH_OK) {
        ok(false, "the toy opens a session: %s", toy->err.text);
        toy_close(toy);
        return false;
    }
    return true;
}

/* The library changes the thread's mode where it enters the device, and changes
 * it back where it leaves it. */
static void see_mode(const struct toy *toy)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

    if (toy->drv.cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS &&
        mode != CU_STREAM_CAPTURE_MODE_GLOBAL && !toy->mode_fails) {
        ok(false, "the library leaves the thread's mode of captures as it was");
    }
}

void toy_detach(struct toy *toy)
{
    see_mode(toy);
    gh_session_close(toy->session);
    toy->session = NULL;
    toy->n_segments = 0;
}

uint32_t toy_add_shape(struct toy *toy, uint32_t elems,
                       const gh_bank_desc *desc)
{
    const uint32_t shape = toy->n_shapes++;

    toy->shapes[shape].elems = elems;
    toy->shapes[shape].bank = 0;
    if (desc != NULL &&
        gh_bank_add(toy->session, desc, &toy->shapes[shape].bank, &toy->err) !=
            GH_OK) {
        toy->shapes[shape].bank = UINT32_MAX;
    }
    return shape;
}

uint32_t toy_add_tokens(struct toy *toy, uint32_t elems)
{
    char name[16];
    const gh_bank_desc desc = { .struct_size = sizeof(desc),
                                .tokens = elems,
                                .name = name };

    snprintf(name, sizeof(name), "%u", elems);
    return toy_add_shape(toy, elems, &desc);
}

/* ---- a pass by hand ------------------------------------------------------ */

gh_decision toy_empty_pass(struct toy *toy, const gh_pass *pass)
{
    gh_decision d = { .struct_size = sizeof(d) };

    if (gh_layer_enter(toy->session, pass, &d, &toy->err) != GH_OK) {
        d.action = UINT32_MAX;
        d.slot = GH_SLOT_NONE;
        return d;
    }
    gh_layer_exit(toy->session, pass, &toy->err);
    return d;
}

bool toy_keeps_decision(struct toy *toy, const gh_pass *pass, uint32_t tail)
{
    struct {
        gh_decision it;
        unsigned char tail[16];
    } d, before;

    memset(&d, 0x5a, sizeof(d));
    memset(d.tail, 0, sizeof(d.tail));
    d.it.struct_size = (uint32_t)sizeof(d.it) + tail;
    memcpy(&before, &d, sizeof(d));
    return gh_layer_enter(toy->session, pass, &d.it, &toy->err) != GH_OK &&
           memcmp(&before, &d, sizeof(d)) == 0;
}

/* ---- counters ------------------------------------------------------------ */

gh_stats toy_stats(struct toy *toy)
{
    gh_stats stats = { .struct_size = sizeof(stats) };

    gh_session_stats(toy->session, &stats, NULL);
    return stats;
}

gh_bank_stats toy_bank_stats(struct toy *toy, uint32_t shape)
{
    gh_bank_stats stats = { .struct_size = sizeof(stats) };

    gh_bank_get_stats(toy->session, toy->shapes[shape].bank, &stats, NULL);
    return stats;
}

gh_offload_stats toy_moved(struct toy *toy)
{
    gh_offload_stats stats = { .struct_size = sizeof(stats) };

    gh_offload_get_stats(toy->session, &stats, &toy->err);
    return stats;
}

uint64_t toy_eager(struct toy *toy, gh_reason reason)
{
    uint64_t count = UINT64_MAX;

    gh_session_reasons(toy->session, reason, &count, NULL);
    return count;
}
