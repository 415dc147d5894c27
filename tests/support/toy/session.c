/*
 * session.c - the session: its model, its segments, a pass by hand, and its
 * counters.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/toy/shared.h"

#include <string.h>

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

gh_status toy_attach(struct toy *toy)
{
    static const char *const nothing[] = { NULL };
    const struct toy_options *o = &toy->options;
    const gh_layer_desc plain = { .struct_size = sizeof(plain),
                                  .family = o->family };
    gh_model *model = toy_model(o->layer != NULL ? *o->layer : plain, o->layers,
                                o->chunks == 0 ? 1 : o->chunks);
    const gh_session_desc desc = {
        .struct_size = sizeof(desc),
        .flags = o->flags,
        .model = model,
        .host = o->host,
        .driver = toy_driver(),
        .scope = o->scope,
        .granularity = o->granularity,
        .max_slots = o->max_slots,
        .warmup_steps = o->warmup_steps,
        .environment = o->environment != NULL ? o->environment : nothing,
    };
    gh_status status = gh_session_open(&desc, &toy->session, &toy->err);

    gh_model_destroy(model);
    if (status != GH_OK) {
        return status;
    }
    toy->n_segments = toy_segments(toy->session, 1, toy->segments);
    return GH_OK;
}

void toy_detach(struct toy *toy)
{
    gh_session_close(toy->session);
    toy->session = NULL;
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

uint64_t toy_eager(struct toy *toy, gh_reason reason)
{
    uint64_t count = UINT64_MAX;

    gh_session_reasons(toy->session, reason, &count, NULL);
    return count;
}
