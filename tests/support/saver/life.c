/*
 * life.c - its device and its session, and the counters of both.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/saver/shared.h"

#include <stdlib.h>
#include <string.h>

const uint32_t saver_modules[SAVER_MAX_MODULES] = { GH_MODULE_CORE_ATTN,
                                                    GH_MODULE_NAMED,
                                                    GH_MODULE_NAMED | 1,
                                                    GH_MODULE_MLP_NORM };
static const char *const own_names[] = { "own_a", "own_b", NULL };

bool saver_open(struct saver *sv, const struct saver_options *options,
                const char **reason_p)
{
    struct toy_options device = { .layers = 1, .elems = 1 };
    struct saver_options *o = &sv->options;

    memset(sv, 0, sizeof(*sv));
    *o = *options;
    o->chunks = o->chunks == 0 ? 1 : o->chunks;
    o->slots = o->slots == 0 ? 8 : o->slots;
    o->in_flight = o->in_flight == 0 ? 1 : o->in_flight;
    o->streams = o->streams == 0 ? 1 : o->streams;
    sv->n_chunks = o->chunks;
    sv->n_parts = 2 * o->layers;
    /* Of slots; of microbatches without one; of those that are evaluated. */
    sv->n_sets = o->slots + 2 * SAVER_MAX_FEEDS;
    if (!toy_open(&sv->toy, &device, reason_p)) {
        return false;
    }
    toy_configure(&sv->toy, ""); /* counts from here on */
    sv->lender.toy = &sv->toy;
    sv->sums = calloc((size_t)saver_n_sums(sv) * o->elems, 4);
    sv->kept_device = calloc(sv->n_sets, saver_sums_bytes(sv));
    if (!saver_make_memory(sv)) {
        *reason_p = "no memory on the device";
        saver_close(sv);
        return false;
    }
    return true;
}

static gh_offload_desc offload_desc(const struct saver_options *o)
{
    gh_offload_desc desc = o->offload;

    if (desc.struct_size == 0) {
        desc = (gh_offload_desc){ .modules = SAVER_ALL, .min_bytes = 4 };
    }
    desc.struct_size = sizeof(desc);
    if (desc.names == NULL) {
        desc.names = own_names;
    }
    return desc;
}

gh_status saver_attach(struct saver *sv)
{
    static const char *const nothing[] = { NULL };
    const struct saver_options *o = &sv->options;
    const gh_offload_desc offload = offload_desc(o);
    const gh_layer_desc layer = { .struct_size = sizeof(layer) };
    gh_model *model = toy_model(layer, o->layers, sv->n_chunks);
    const gh_session_desc desc = {
        .struct_size = sizeof(desc),
        .flags = o->flags,
        .model = model,
        .host = o->own ? &sv->host : o->host,
        .driver = toy_driver(),
        .scope = o->scope,
        .granularity = o->granularity,
        .max_slots = o->slots,
        .environment = o->environment != NULL ? o->environment : nothing,
        .offload = &offload,
    };
    gh_status status;

    if (o->own) {
        sv->host = o->host != NULL ? *o->host : (gh_host_services){ 0 };
        sv->host.struct_size = sizeof(sv->host);
        sv->host.released = o->unlent ? NULL : lender_take_back;
    }
    status = gh_session_open(&desc, &sv->session, &sv->err);
    gh_model_destroy(model);
    sv->n_segments = status == GH_OK
                         ? toy_segments(sv->session, sv->n_chunks, sv->segments)
                         : 0;
    return status;
}

void saver_detach(struct saver *sv)
{
    gh_session_close(sv->session);
    sv->session = NULL;
}

void saver_close(struct saver *sv)
{
    saver_detach(sv);
    sv->toy.drv.cuCtxSynchronize();
    lender_free(&sv->lender);
    sv->toy.drv.cuMemFree(sv->memory);
    toy_close(&sv->toy);
    free(sv->sums);
    free(sv->kept_device);
}

gh_offload_stats saver_moved(struct saver *sv)
{
    gh_offload_stats stats = { .struct_size = sizeof(stats) };

    gh_offload_get_stats(sv->session, &stats, &sv->err);
    return stats;
}

gh_stats saver_stats(struct saver *sv)
{
    gh_stats stats = { .struct_size = sizeof(stats) };

    gh_session_stats(sv->session, &stats, NULL);
    return stats;
}
