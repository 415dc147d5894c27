/*
 * host.c - loads the library, tells it the model, opens a session.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "step/host.h"

#include "step/offload_request.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

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

static int load_library(struct host *host, char *error, size_t error_bytes)
{
    const char *path = host->trainer->options->library;
    void *symbol;
    gh_get_api_fn *get_api;
    gh_error err = { "" };

    /* For good: what it keeps for the life of the process stays in reach. */
    host->library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (host->library == NULL) {
        snprintf(error, error_bytes,
                 "%s; give the graphhooks library by --library", dlerror());
        return -1;
    }
    symbol = dlsym(host->library, GH_GET_API_SYMBOL);
    if (symbol == NULL) {
        snprintf(error, error_bytes,
                 "--library %s has no %s: it is not graphhooks", path,
                 GH_GET_API_SYMBOL);
        return -1;
    }
    memcpy(&get_api, &symbol, sizeof(get_api));
    if (get_api(GH_ABI_MAJOR, &host->gh, &err) != GH_OK) {
        snprintf(error, error_bytes, "--library %s: %s", path, err.text);
        return -1;
    }
    return 0;
}

static bool starts_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* A run is switched by its environment, so a variable wins over the option
 * of the command line that says the same; but not without a word. */
static void say_who_wins(const char *variable, const char *option)
{
    fprintf(stderr, "gh-engine: %s=%s wins over %s\n", variable,
            getenv(variable), option);
}

/* The process environment for the session, except: the driver is the one that
 * the engine runs on; what only the engine reads is left out, and so is the
 * file that another rank's session writes; and options of the command line stand
 * in for variables that are not set. */
static int make_environment(struct host *host, enum mode mode, bool dry)
{
    const struct options *options = host->trainer->options;
    const bool traced = !dry && ranks_number(options->ranks) == 0;
    const char *const left_out[] = {
        "GRAPHHOOKS_DRIVER=", "GRAPHHOOKS_LIBRARY=", "GRAPHHOOKS_SOFTCUDA=",
        mode_offloads(mode) ? "GRAPHHOOKS_OFFLOAD_DELAY="
                            : "GRAPHHOOKS_OFFLOAD=",
        traced ? "" : "GRAPHHOOKS_TRACE="
    };
    const bool trace = options->trace != NULL && traced;
    const size_t text_bytes = (trace ? strlen(options->trace) : 0) + 64;
    size_t n = 0, kept = 0;

    while (environ[n] != NULL) {
        n++;
    }
    host->environment = calloc(n + 5, sizeof(*host->environment));
    host->environment_text = malloc(text_bytes);
    if (host->environment == NULL || host->environment_text == NULL) {
        return -1;
    }

    for (size_t i = 0; i < n; i++) {
        bool keep = true;

        for (size_t j = 0; j < sizeof(left_out) / sizeof(left_out[0]); j++) {
            keep = keep && (left_out[j][0] == '\0' ||
                            !starts_with(environ[i], left_out[j]));
        }
        if (keep) {
            host->environment[kept++] = environ[i];
        }
    }
    if (trace && getenv("GRAPHHOOKS_TRACE") == NULL) {
        snprintf(host->environment_text, text_bytes, "GRAPHHOOKS_TRACE=%s",
                 options->trace);
        host->environment[kept++] = host->environment_text;
    }
    if (options->check && getenv("GRAPHHOOKS_CHECK") == NULL) {
        host->environment[kept++] = "GRAPHHOOKS_CHECK=bitwise";
    }
    if (options->ranks != NULL && getenv("GRAPHHOOKS_TIMEOUT") == NULL) {
        snprintf(host->timeout_text, sizeof(host->timeout_text),
                 "GRAPHHOOKS_TIMEOUT=%d", options->ranks->watch.limit_s);
        host->environment[kept++] = host->timeout_text;
    }
    if (mode_delays(options, mode)) {
        host->environment[kept++] = "GRAPHHOOKS_OFFLOAD_DELAY=1";
    }
    host->environment[kept] = NULL;
    return 0;
}

static void say_all_who_win(const struct options *options)
{
    const struct {
        const char *variable, *option;
        bool given;
    } rows[] = {
        { "GRAPHHOOKS_SCOPE", "--scope", options->scope != NULL },
        { "GRAPHHOOKS_GRANULARITY", "--granularity",
          options->granularity != NULL },
        { "GRAPHHOOKS_TRACE", "--trace", options->trace != NULL },
        { "GRAPHHOOKS_CHECK", "--check", options->check },
        { "GRAPHHOOKS_OFFLOAD", "--offload", options->offload != NULL },
        { "GRAPHHOOKS_OFFLOAD_FRACTION", "--offload-fraction",
          options->offload_fraction != NULL },
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (rows[i].given && getenv(rows[i].variable) != NULL) {
            say_who_wins(rows[i].variable, rows[i].option);
        }
    }
}

/* How many tokens an expert gets never shows to the host, unless the host
 * has to read it. */
static uint32_t features_of(const struct config *config)
{
    uint32_t features = 0;

    if (config->drop_and_pad) {
        features |= GH_FEATURE_CAPACITY | GH_FEATURE_PAD;
    } else if (!config->dropless_host) {
        features |= GH_FEATURE_SYNC_FREE;
    }
    if (config->shared_expert) {
        features |= GH_FEATURE_SHARED_EXPERTS;
    }
    return features;
}

/* The plugin of the library's that knows such a layer. */
static const char *family_of(const struct config *config, gh_layer_kind kind)
{
    if (kind == GH_LAYER_MAMBA) {
        return "mamba";
    }
    return config->model == MODEL_MLA ? "mla" : "gpt";
}

static gh_layer_desc describe_layer(const struct options *options, int layer)
{
    const struct config *config = &options->config;
    gh_layer_desc desc = {
        .struct_size = sizeof(desc),
        .kind = (gh_layer_kind)layer_kind(config, layer),
    };

    if (desc.kind == GH_LAYER_MOE || desc.kind == GH_LAYER_MOE_ONLY) {
        desc.features = features_of(config);
        desc.experts = (uint32_t)config->experts;
        desc.dispatcher = GH_DISPATCHER_ALLTOALL;
    }
    if (!options->no_family) {
        desc.family = family_of(config, desc.kind);
    }
    return desc;
}

static gh_status describe_model(struct host *host, gh_model **model_p,
                                gh_error *err)
{
    const gh_model_desc all = { .struct_size = sizeof(all),
                                .flags = GH_MODEL_WHOLE };
    const gh_api *gh = host->gh;
    gh_status status = gh->model_create(model_p, err);

    if (status == GH_OK) {
        status = gh->model_describe(*model_p, &all, err);
    }
    for (int i = 0;
         status == GH_OK && i < host->trainer->options->config.layers; i++) {
        const gh_layer_desc layer = describe_layer(host->trainer->options, i);

        status = gh->model_add_layer(*model_p, &layer, err);
    }
    return status;
}

/* The session that only checks: what there is to say the next one says. */
static void say_nothing(void *user, gh_log_level level, const char *line)
{
    (void)user;
    (void)level;
    (void)line;
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
            .flags = trainer->model.delay_wgrad ? GH_SESSION_DELAY_WGRAD : 0,
            .max_slots = (uint32_t)options_sets(options),
            .environment = host->environment,
            .host = dry ? &silent : NULL,
            .offload = mode_offloads(mode) ? &offload.desc : NULL,
        };

        status = gh->session_open(&desc, &host->session, &err);
    }
    gh->model_destroy(model);
    *bad_option = status == GH_ERR_CONFIG;
    return status == GH_OK ? 0
                           : host_fail(host, "gh_session_open", status, &err);
}

static int read_side(struct host *host, uint32_t segment, gh_side which,
                     struct side *side)
{
    const uint32_t n =
        host->gh->plan_border_count(host->session, segment, which);

    for (uint32_t i = 0; i < n && i < GH_TENSOR_COUNT; i++) {
        gh_border *border = &side->borders[side->n++];
        gh_error err = { "" };
        gh_status status;

        border->struct_size = sizeof(*border);
        status = host->gh->plan_border(host->session, segment, which, i, border,
                                       &err);
        if (status != GH_OK) {
            return host_fail(host, "gh_plan_border", status, &err);
        }
    }
    return 0;
}

/* The ranks that share sequences of a shape; NULL: none do. */
static void *group_of(const struct options *options, int shape)
{
    return options_cp(options, shape) == 1 || options->ranks == NULL
               ? NULL
               : options->ranks->groups[shape].handle;
}

/* A bank for each length, or number of ranks that share a sequence; bank 0 does
 * where there is one, and no documents. */
static int add_banks(struct host *host)
{
    const struct options *options = host->trainer->options;
    const int n = options->config.documents > 0 || options->n_lengths > 0
                      ? options_shapes(options)
                      : 0;

    for (int i = 0; i < n; i++) {
        const int seq = options_length(options, i);
        char name[32];
        const gh_bank_desc desc = {
            .struct_size = sizeof(desc),
            .cp_size = (uint32_t)options_cp(options, i),
            .group = group_of(options, i),
            .tokens = (uint32_t)(options->config.batch * seq),
            .sequences = (uint32_t)options->config.documents,
            .name = name,
        };
        gh_error err = { "" };
        gh_status status;

        snprintf(name, sizeof(name), options->n_cp > 0 ? "cp %d" : "seq %d",
                 options->n_cp > 0 ? options->cp[i] : seq);
        status =
            host->gh->bank_add(host->session, &desc, &host->banks[i], &err);
        if (status != GH_OK) {
            return host_fail(host, "gh_bank_add", status, &err);
        }
    }
    return 0;
}

/* The library has ended what waits in a group, which is then gone. */
static void abort_group(void *user, uint32_t bank)
{
    (void)bank;
    comm_abort(user);
}

/* Lends the library the groups, so that where one rank cannot record a pass
 * with collectives none does. */
static int lend_groups(struct host *host)
{
    const struct options *options = host->trainer->options;

    if (options->n_cp > 0 && !GH_HAS(host->gh, gh_api, ranks_set)) {
        snprintf(host->error, sizeof(host->error),
                 "--library %s: it has no gh_ranks_set, which --cp needs; take "
                 "0.5 or later",
                 options->library);
        return -1;
    }
    for (int i = 0; i < options->n_cp; i++) {
        struct comm *comm = &options->ranks->groups[i];
        const gh_ranks ranks = {
            .struct_size = sizeof(ranks),
            .bank = host->banks[i],
            .rank = (uint32_t)comm->rank,
            .size = (uint32_t)comm->n,
            .comm = comm->handle,
            .nccl = options->ranks->nccl,
            .user = comm,
            .abort = abort_group,
        };
        gh_error err = { "" };
        gh_status status;

        if (comm->handle == NULL) {
            continue;
        }
        status = host->gh->ranks_set(host->session, &ranks, &err);
        if (status != GH_OK) {
            return host_fail(host, "gh_ranks_set", status, &err);
        }
    }
    return 0;
}

/* Latent attention reads tables of angles that lie with the model, which
 * outlives the session: there is nothing to retain.  A family of the user's
 * own may name none. */
int host_bind_tables(struct host *host, int shape)
{
    static const char *const names[] = { "rotary_cos", "rotary_sin" };
    const struct trainer *trainer = host->trainer;
    const struct model *model = &trainer->shapes[shape];
    const struct config *config = &model->config;

    if (model->rotary == NULL || trainer->options->no_family) {
        return 0;
    }
    for (int i = 0; i < 2 * config->layers; i++) {
        const gh_aux aux = {
            .struct_size = sizeof(aux),
            .layer = (uint32_t)i / 2,
            .name = names[i % 2],
            .buffer = { .address = model->rotary,
                        .bytes = model_rotary_bytes(config) },
            .bank = host->banks[shape],
        };
        gh_error err = { "" };
        gh_status status = host->gh->aux_bind(host->session, &aux, &err);

        if (status != GH_OK && status != GH_ERR_NOT_FOUND) {
            return host_fail(host, "gh_aux_bind", status, &err);
        }
    }
    return 0;
}

static int bind_all_tables(struct host *host)
{
    for (int i = 0; i < host->trainer->n_shapes; i++) {
        if (host_bind_tables(host, i) != 0) {
            return -1;
        }
    }
    return 0;
}

/* Where ranks that share sequences need each other. */
static bool spreads(const struct model *model, int first, int last)
{
    int i = first;

    while (i <= last && model->parts[i].kind != PART_ATTN &&
           model->parts[i].kind != PART_MAMBA) {
        i++;
    }
    return i <= last;
}

static int read_plan(struct host *host)
{
    const struct model *model = &host->trainer->model;
    const uint32_t n = host->gh->plan_segment_count(host->session, 0);

    host->segments = calloc(n, sizeof(*host->segments));
    if (host->segments == NULL) {
        snprintf(host->error, sizeof(host->error), "out of memory");
        return -1;
    }
    for (uint32_t i = 0; i < n; i++) {
        struct segment *own = &host->segments[i];
        gh_segment segment = { .struct_size = sizeof(segment) };
        gh_error err = { "" };
        gh_status status =
            host->gh->plan_segment(host->session, 0, i, &segment, &err);

        if (status != GH_OK) {
            return host_fail(host, "gh_plan_segment", status, &err);
        }
        own->index = segment.index;
        own->first = model_part(model, (int)segment.first_layer,
                                (enum part_kind)segment.first_part);
        own->last = model_part(model, (int)segment.last_layer,
                               (enum part_kind)segment.last_part);
        own->is_spread = spreads(model, own->first, own->last);
        own->has_weights = model_has_weights(model, own->first, own->last);
        if (read_side(host, own->index, GH_SIDE_IN, &own->in) != 0 ||
            read_side(host, own->index, GH_SIDE_OUT, &own->out) != 0) {
            return -1;
        }
    }
    host->n_segments = (int)n;
    return 0;
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
    if (load_library(host, error, error_bytes) != 0) {
        goto err_host;
    }
    if (make_environment(host, mode, dry) != 0) {
        snprintf(error, error_bytes, "out of memory");
        goto err_host;
    }
    if (open_session(host, mode, dry, bad_option) != 0 ||
        add_banks(host) != 0 || (!dry && lend_groups(host) != 0) || bind_all_tables(host) != 0 ||
        read_plan(host) != 0) {
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

    say_all_who_win(trainer->options);
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
    for (int i = 0; i < MAX_SLOTS; i++) {
        set_free(&host->slots[i]);
    }
    free(host->segments);
    free(host->environment);
    free(host->environment_text);
    if (host->library != NULL) {
        dlclose(host->library);
    }
    free(host);
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
