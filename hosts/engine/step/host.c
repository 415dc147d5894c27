/*
 * host.c - loads the library, tells it the model, opens a session.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "step/host.h"

#include "step/offload_request.h"
#include "step/pipeline_schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *host_error(const struct host *host)
{
    return host->error;
}

int host_fail(struct host *host, const char *call, gh_status status,
              const gh_error *err)
{
    snprintf(host->error, sizeof(host->error), "%s: %s: %s", call,
             host->gh->status_name(status), err->text);
    return -1;
}

/* ---- opening ------------------------------------------------------------ */

/* How many tokens an expert gets is hidden from the host, unless the host has
 * to read it. */
static uint32_t features_of(const struct config *config)
{
    uint32_t features = 0;

    if (config->drop_and_pad) {
        features |= GH_FEATURE_CAPACITY | GH_FEATURE_PAD;
    } else if (!config_counts_on_host(config)) {
        features |= GH_FEATURE_SYNC_FREE;
    }
    if (config->shared_expert) {
        features |= GH_FEATURE_SHARED_EXPERTS;
    }
    return features;
}

/* Whether the embedding is described with the first layer and the head with the
 * last one.  Pairs of microbatches run both by themselves. */
static uint32_t ends_of(const struct host *host, int layer)
{
    const struct trainer *trainer = host->trainer;
    const int last = trainer->model.config.layers - 1;
    uint32_t features = 0;

    if (trainer->overlaps) {
        return 0;
    }
    if (layer == 0 && trainer->chunks[0].model.embeds) {
        features |= GH_FEATURE_EMBEDDING;
    }
    if (layer == last && trainer->chunks[trainer->n_chunks - 1].model.heads) {
        features |= GH_FEATURE_HEAD;
    }
    return features;
}

/* The library's plugin for such a layer. */
static const char *family_of(const struct config *config, gh_layer_kind kind)
{
    if (kind == GH_LAYER_MAMBA) {
        return "mamba";
    }
    return config->model == MODEL_MLA ? "mla" : "gpt";
}

/* The chunk of a stage's layer. */
static uint32_t chunk_of(const struct config *config, int layer)
{
    uint32_t chunk = 0;

    while (config->share.all > 0 && layer >= config->share.count[chunk]) {
        layer -= config->share.count[chunk++];
    }
    return chunk;
}

static gh_layer_desc describe_layer(const struct host *host, int layer)
{
    const struct trainer *trainer = host->trainer;
    const struct config *config = &trainer->model.config;
    gh_layer_desc desc = {
        .struct_size = sizeof(desc),
        .kind = (gh_layer_kind)layer_kind(config, layer),
        .chunk = chunk_of(config, layer),
    };

    if (desc.kind == GH_LAYER_MOE || desc.kind == GH_LAYER_MOE_ONLY) {
        desc.features = features_of(config);
        desc.experts = (uint32_t)config->experts;
        desc.dispatcher = GH_DISPATCHER_ALLTOALL;
    }
    desc.features |= ends_of(host, layer);
    if (!trainer->options->no_family) {
        desc.family = family_of(config, desc.kind);
    }
    return desc;
}

/* Returns 0 if the experts are not divided. */
static uint32_t ep_size_of(const struct host *host)
{
    const int ep = config_ep(&host->trainer->options->config);

    return ep > 1 ? (uint32_t)ep : 0;
}

static gh_status describe_model(struct host *host, gh_model **model_p,
                                gh_error *err)
{
    const struct config *config = &host->trainer->model.config;
    const gh_api *gh = host->gh;
    const gh_model_desc all = { .struct_size = sizeof(all),
                                .flags = config->share.all == 0
                                             ? GH_MODEL_WHOLE
                                             : GH_MODEL_STAGE,
                                .ep_size = ep_size_of(host) };
    gh_status status = gh->model_create(model_p, err);

    if (status == GH_OK) {
        status = gh->model_describe(*model_p, &all, err);
    }
    for (int i = 0; status == GH_OK && i < config->layers; i++) {
        const gh_layer_desc layer = describe_layer(host, i);

        status = gh->model_add_layer(*model_p, &layer, err);
    }
    return status;
}

/* Drops lines of a session that only checks.  The next session logs the same
 * ones. */
static void say_nothing(void *user, gh_log_level level, const char *line)
{
    (void)user;
    (void)level;
    (void)line;
}

/* Finds how many slots each chunk needs.  Of one or several chunks in one
 * forward, one backward the library says it. */
static gh_status find_slots(struct host *host, gh_error *err)
{
    const struct options *options = host->trainer->options;
    const gh_pipeline_desc desc = {
        .struct_size = sizeof(desc),
        .stages = (uint32_t)options_pp(options),
        .stage = (uint32_t)ranks_stage(options->ranks),
        .chunks = (uint32_t)options_vpp(options),
        .group = (uint32_t)options->group,
    };

    if (options_pp(options) == 1) {
        host->slots[0] = (uint32_t)options_sets(options);
        return GH_OK;
    }
    if (pipeline_is_interleaved(options)) {
        return host->gh->plan_slots(&desc, host->slots, err);
    }
    pipeline_slots(options, host->slots);
    return GH_OK;
}

/* max_slots of a session, which may not be more than there are. */
static uint32_t most_slots(const struct host *host)
{
    uint32_t most = 0;

    for (int i = 0; i < host->trainer->n_chunks; i++) {
        most = host->slots[i] > most ? host->slots[i] : most;
    }
    return most < MAX_SLOTS ? most : MAX_SLOTS;
}

static int open_session(struct host *host, enum mode mode, bool dry,
                        bool *bad_option)
{
    const gh_host_services silent = { .struct_size = sizeof(silent),
                                      .log = say_nothing };
    const struct trainer *trainer = host->trainer;
    const struct options *options = trainer->options;
    const gh_api *gh = host->gh;
    gh_model *model = NULL;
    gh_error err = { "" };
    gh_status status = describe_model(host, &model, &err);
    struct offload_request offload;

    offload_describe(options, &offload);
    if (status == GH_OK) {
        status = find_slots(host, &err);
    }
    if (status == GH_OK) {
        const gh_session_desc desc = {
            .struct_size = sizeof(desc),
            .model = model,
            .driver = strcmp(trainer->dev->path, DEVICE_CUDA) == 0
                          ? "cuda"
                          : trainer->dev->path,
            .context = trainer->dev->context,
            .device = trainer->dev->id,
            .scope = options->scope,
            .granularity = options->granularity,
            .flags = (trainer->model.delay_wgrad ? GH_SESSION_DELAY_WGRAD : 0) |
                     (trainer->overlaps ? GH_SESSION_EP_OVERLAP : 0) |
                     (options->suspend != 0 ? GH_SESSION_SUSPENDS : 0),
            .max_slots = most_slots(host),
            .environment = host->environment.strings,
            .host = dry ? &silent : NULL,
            .offload = mode_offloads(mode) ? &offload.desc : NULL,
        };

        status = gh->session_open(&desc, &host->session, &err);
    }
    /* Never followed by post_warmup: this mode shows only the order and the
     * streams. */
    if (status == GH_OK && mode == MODE_OVERLAP) {
        status = gh->pre_warmup(host->session, &err);
    }
    gh->model_destroy(model);
    *bad_option = status == GH_ERR_CONFIG;
    return status == GH_OK ? 0
                           : host_fail(host, "gh_session_open", status, &err);
}

static int check_library(struct host *host)
{
    if (GH_HAS(host->gh, gh_api, run_pass)) {
        return 0;
    }
    snprintf(host->error, sizeof(host->error),
             "--library %s: it has no gh_run_pass; take 1.0 or later",
             host->trainer->options->library);
    return -1;
}

static int read_side(struct host *host, uint32_t segment, gh_side which,
                     struct side *side)
{
    const uint32_t n =
        host->gh->plan_border_count(host->session, segment, which);

    for (uint32_t i = 0; i < n && i < GH_TENSOR_COUNT; i++) {
        gh_border border = { .struct_size = sizeof(border) };
        gh_error err = { "" };
        gh_status status = host->gh->plan_border(host->session, segment, which,
                                                 i, &border, &err);

        if (status != GH_OK) {
            return host_fail(host, "gh_plan_border", status, &err);
        }
        /* What comes from the embedding belongs to the microbatch. */
        if (border.writer != GH_PART_EMBEDDING) {
            side->borders[side->n++] = border;
        }
    }
    return 0;
}

static bool has_either(const struct model *model, int first, int last,
                       enum part_kind a, enum part_kind b)
{
    int i = first;

    while (i <= last && model->parts[i].kind != a &&
           model->parts[i].kind != b) {
        i++;
    }
    return i <= last;
}

/* The parts of the engine that a segment has: from own->first to own->last.
 * False: none, as it is the embedding or the head alone. */
static bool find_parts(const struct model *model, const gh_segment *segment,
                       struct segment *own)
{
    own->embeds = segment->first_part == GH_PART_EMBEDDING;
    own->heads = segment->last_part == GH_PART_HEAD;
    own->first = own->embeds ? 0
                             : model_part(model, (int)segment->first_layer,
                                          (enum part_kind)segment->first_part);
    own->last = own->heads ? model->n_parts - 1
                           : model_part(model, (int)segment->last_layer,
                                        (enum part_kind)segment->last_part);
    return segment->last_part != GH_PART_EMBEDDING &&
           segment->first_part != GH_PART_HEAD;
}

static int read_chunk(struct host *host, uint32_t index)
{
    struct model *model = &host->trainer->chunks[index].model;
    const uint32_t n = host->gh->plan_segment_count(host->session, index);
    struct host_chunk *chunk = &host->chunks[index];

    chunk->segments = calloc(n, sizeof(*chunk->segments));
    if (chunk->segments == NULL) {
        snprintf(host->error, sizeof(host->error), "out of memory");
        return -1;
    }
    for (uint32_t i = 0; i < n; i++) {
        struct segment *own = &chunk->segments[chunk->n_segments];
        gh_segment segment = { .struct_size = sizeof(segment) };
        gh_error err = { "" };
        gh_status status =
            host->gh->plan_segment(host->session, index, i, &segment, &err);

        if (status != GH_OK) {
            return host_fail(host, "gh_plan_segment", status, &err);
        }
        if (!find_parts(model, &segment, own)) {
            continue; /* it runs apart, and eagerly */
        }
        own->index = segment.index;
        model->folds_embedding |= own->embeds;
        model->folds_head |= own->heads;
        own->has_cp =
            has_either(model, own->first, own->last, PART_ATTN, PART_MAMBA);
        own->exchanges = has_either(model, own->first, own->last,
                                    PART_MOE_DISPATCH, PART_MOE_COMBINE);
        own->has_wgrad = (segment.flags & GH_SEGMENT_HAS_WGRAD) != 0;
        if (read_side(host, own->index, GH_SIDE_IN, &own->in) != 0 ||
            read_side(host, own->index, GH_SIDE_OUT, &own->out) != 0) {
            return -1;
        }
        chunk->n_segments++;
    }
    return 0;
}

static int read_plan(struct host *host)
{
    const int n = host->trainer->n_chunks;

    host->chunks = calloc((size_t)n, sizeof(*host->chunks));
    if (host->chunks == NULL) {
        snprintf(host->error, sizeof(host->error), "out of memory");
        return -1;
    }
    for (int i = 0; i < n; i++) {
        if (read_chunk(host, (uint32_t)i) != 0) {
            return -1;
        }
    }
    return 0;
}

static void free_chunk(struct host_chunk *chunk)
{
    for (int i = 0; i < MAX_SLOTS; i++) {
        set_free(&chunk->slots[i]);
    }
    free(chunk->segments);
}

static struct host *open_host(struct trainer *trainer, enum mode mode,
                              bool dry, bool *bad_option, char *error, size_t error_bytes)
{
    struct host *host = calloc(1, sizeof(*host));

    if (host == NULL) {
        snprintf(error, error_bytes, "out of memory");
        return NULL;
    }
    host->trainer = trainer;
    if (library_open(&host->library, trainer->options->library, error,
                     error_bytes) != 0) {
        goto err_host;
    }
    host->gh = host->library.gh;
    host->noise = (uint32_t)trainer->options->suspend;
    if (environment_make(&host->environment, trainer->options, mode, dry,
                         trainer->limit) != 0) {
        snprintf(error, error_bytes, "out of memory");
        goto err_host;
    }
    if (check_library(host) != 0 ||
        open_session(host, mode, dry, bad_option) != 0 ||
        host_add_banks(host) != 0 || (!dry && host_lend_groups(host) != 0) ||
        host_bind_all_tables(host) != 0 || read_plan(host) != 0) {
        snprintf(error, error_bytes, "%s", host->error);
        goto err_host;
    }
    return host;

err_host:
    host_close(host);
    return NULL;
}

struct host *host_open(struct trainer *trainer, enum mode mode, char *error,
                       size_t error_bytes)
{
    bool bad_option = false;

    return open_host(trainer, mode, false, &bad_option, error, error_bytes);
}

int host_check(struct trainer *trainer, enum mode mode, bool *bad_option,
               char *error, size_t error_bytes)
{
    struct host *host =
        open_host(trainer, mode, true, bad_option, error, error_bytes);

    environment_say_who_wins(trainer->options);
    host_close(host);
    return host != NULL ? 0 : -1;
}

void host_close(struct host *host)
{
    if (host == NULL) {
        return;
    }
    if (host->session != NULL) {
        host->gh->session_close(host->session);
    }
    for (int i = 0; host->chunks != NULL && i < host->trainer->n_chunks; i++) {
        free_chunk(&host->chunks[i]);
    }
    free(host->chunks);
    environment_free(&host->environment);
    library_close(&host->library);
    free(host);
}

void host_give_up(struct host *host, const char *why)
{
    if (host != NULL && host->session != NULL) {
        (void)host->gh->ranks_abort(host->session, why, NULL);
    }
}

uint32_t host_slots_used(const struct host *host, int chunk)
{
    uint32_t used = 0;

    for (int i = 0; i < MAX_SLOTS; i++) {
        used += host->chunks[chunk].slots[i].memory != NULL;
    }
    return used;
}

uint64_t host_slot_bytes(const struct host *host, int chunk)
{
    uint64_t bytes = 0;

    for (int i = 0; i < MAX_SLOTS; i++) {
        bytes += host->chunks[chunk].slots[i].bytes;
    }
    return bytes;
}

static int make_sets(struct host *host, int chunk, int n)
{
    struct trainer *trainer = host->trainer;

    for (int i = 0; i < n; i++) {
        struct set *set = &host->chunks[chunk].slots[i];

        if (set->memory == NULL &&
            set_init(set, &trainer->chunks[chunk].model, trainer->dev) != 0) {
            return -1;
        }
    }
    return 0;
}

int host_most_slots(void)
{
    const char *limit = getenv("GRAPHHOOKS_MAX_SLOTS");

    return limit != NULL ? atoi(limit) : MAX_SLOTS;
}

/* The largest number of a set of a chunk that the step uses. */
static int sets_of_step(const struct host *host, int chunk)
{
    const int most = host_most_slots();
    const int n = host->in_flight[chunk];

    return n < most ? n : most;
}

int host_begin_step(struct host *host, const int *in_flight)
{
    int status = 0;

    for (int i = 0; i < host->trainer->n_chunks && status == 0; i++) {
        host->in_flight[i] = in_flight[i];
        if (host->chunks[i].slots[0].memory != NULL) {
            status = make_sets(host, i, sets_of_step(host, i));
        }
    }
    return status;
}

int host_make_sets(struct host *host, uint32_t slot)
{
    const int chunk = host->trainer->chunk->index;
    const int n = sets_of_step(host, chunk);

    return make_sets(host, chunk, n > (int)slot ? n : (int)slot + 1);
}

int host_end_step(struct host *host)
{
    gh_error err = { "" };
    gh_status status = host->gh->iteration_end(host->session, &err);

    return status == GH_OK ? 0
                           : host_fail(host, "gh_iteration_end", status, &err);
}

const char *(*host_reason_names(const struct host *host))(gh_reason)
{
    return host->gh->reason_name;
}

int host_stats(struct host *host, gh_stats *stats)
{
    gh_error err = { "" };
    gh_status status;

    memset(stats, 0, sizeof(*stats));
    stats->struct_size = sizeof(*stats);
    status = host->gh->session_stats(host->session, stats, &err);
    return status == GH_OK ? 0
                           : host_fail(host, "gh_session_stats", status, &err);
}

int host_offload_stats(struct host *host, gh_offload_stats *stats)
{
    gh_error err = { "" };
    gh_status status;

    memset(stats, 0, sizeof(*stats));
    if (host->trainer->model.offload == 0) {
        return 0;
    }
    stats->struct_size = sizeof(*stats);
    status = host->gh->offload_get_stats(host->session, stats, &err);
    return status == GH_OK
               ? 0
               : host_fail(host, "gh_offload_get_stats", status, &err);
}

void host_reasons(struct host *host, uint64_t *counts, gh_reason n)
{
    for (gh_reason r = 0; r < n; r++) {
        counts[r] = 0;
        (void)host->gh->session_reasons(host->session, r, &counts[r], NULL);
    }
}

uint64_t host_wgrad_replays(const struct host *host)
{
    return host->wgrad_replays;
}
