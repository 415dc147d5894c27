/*
 * life.c - its device and its session, and the counters of both.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/pair/shared.h"
#include "tap/tap.h"

#include <stdio.h>
#include <string.h>

#define OFFLOADED "attn_norm,core_attn,mlp_norm,expert_fc1,moe_act"

bool pair_open(struct pair *p, const struct pair_options *options,
               const char **reason_p)
{
    const struct toy_options toy = { .layers = 1, .elems = PAIR_ELEMS };

    memset(p, 0, sizeof(*p));
    p->options = *options;
    for (uint32_t i = 0; i < options->layers; i++) {
        pair_add_layer(p, i);
    }
    if (!toy_open(&p->toy, &toy, reason_p)) {
        return false;
    }
    p->memory_bytes = pair_memory_bytes();
    if (!TOY_CALL(&p->toy, cuStreamCreate,
                  (&p->comm, CU_STREAM_NON_BLOCKING)) ||
        !TOY_CALL(&p->toy, cuMemAlloc, (&p->memory, p->memory_bytes)) ||
        !TOY_CALL(&p->toy, cuMemsetD8Async,
                  (pair_weight(p, 0), 0, (size_t)PAIR_MAX_PARTS * PAIR_STRIDE,
                   p->toy.streams[0])) ||
        !TOY_CALL(&p->toy, cuCtxSynchronize, ())) {
        *reason_p = "no memory for the pair";
        pair_close(p);
        return false;
    }
    return true;
}

gh_status pair_attach(struct pair *p)
{
    const struct pair_options *o = &p->options;
    char order[48];
    const char *environment[] = {
        order,
        o->told    ? "GRAPHHOOKS_LOG=info"
        : o->quiet ? "GRAPHHOOKS_LOG=off"
                   : "GRAPHHOOKS_LOG=warn",
        o->disabled ? "GRAPHHOOKS_ENABLE=0" : "GRAPHHOOKS_ENABLE=1",
        o->check ? "GRAPHHOOKS_CHECK=bitwise" : "GRAPHHOOKS_CHECK=off",
        o->later ? "GRAPHHOOKS_OFFLOAD_DELAY=1" : "GRAPHHOOKS_OFFLOAD_DELAY=0",
        o->behind ? "GRAPHHOOKS_OFFLOAD_APART=1" : "GRAPHHOOKS_OFFLOAD_APART=0",
        o->trace,
        NULL
    };
    const gh_host_services host = { .struct_size = sizeof(host),
                                    .user = o->log != NULL ? p : NULL,
                                    .log = o->log,
                                    .released =
                                        o->lends ? lender_take_back : NULL };
    const gh_offload_desc offload = { .struct_size = sizeof(offload),
                                      .modules = OFFLOADED,
                                      .fraction = o->fraction,
                                      .min_bytes = 4 };
    gh_model *model = pair_describe(p);
    const gh_session_desc desc = {
        .struct_size = sizeof(desc),
        .flags = GH_SESSION_EP_OVERLAP |
                 (o->delay_wgrad ? GH_SESSION_DELAY_WGRAD : 0u),
        .model = model,
        .host = &host,
        .offload = o->offload ? &offload : NULL,
        .driver = toy_driver(),
        .scope = o->scope,
        .granularity = o->granularity,
        .max_slots = PAIR_SLOTS,
        .environment = environment,
    };
    gh_status status;

    snprintf(order, sizeof(order), "GRAPHHOOKS_OVERLAP=%s",
             o->order != NULL ? o->order : "");
    status = gh_session_open(&desc, &p->toy.session, &p->toy.err);
    gh_model_destroy(model);
    if (status != GH_OK) {
        return status;
    }
    p->n_segments = toy_segments(p->toy.session, pair_chunks(p), p->segments);
    return GH_OK;
}

bool pair_start(struct pair *p, const struct pair_options *options,
                const char *settings)
{
    const char *reason;

    if (!pair_open(p, options, &reason)) {
        return ok(false, "the pair opens: %s", reason);
    }
    if (settings != NULL) {
        toy_configure(&p->toy, settings);
    }
    if (pair_attach(p) != GH_OK) {
        ok(false, "the session opens: %s", p->toy.err.text);
        pair_close(p);
        return false;
    }
    return true;
}

void pair_close(struct pair *p)
{
    toy_detach(&p->toy);
    p->toy.drv.cuCtxSynchronize();
    p->toy.drv.cuMemFree(p->memory);
    if (p->comm != NULL) {
        p->toy.drv.cuStreamDestroy(p->comm);
    }
    toy_close(&p->toy);
}

gh_overlap_stats pair_stats(struct pair *p)
{
    gh_overlap_stats stats = { .struct_size = sizeof(stats) };

    gh_overlap_get_stats(p->toy.session, &stats, NULL);
    return stats;
}
