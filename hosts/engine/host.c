/*
 * host.c - see host.h.
 *
 * The engine's promises to a recorded pass: parts read only the decision's
 * inputs, weights, and the set of the decision's slot; what one run of parts
 * hands to the next lies there, under one address.  Two inputs are not
 * static, because they lie with the microbatch and not with the slot: what
 * the first part reads, and the gradient that the head hands back.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "host.h"

#include "borders.h"
#include "find.h"

#include <graphhooks.h>

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

enum {
    MAX_SLOTS = 64,
    PASS_INPUTS = 2 * MAX_BORDER
};

struct segment {
    uint32_t index;
    int first, last; /* parts */
};

struct host {
    struct trainer *trainer;
    void *library;
    const gh_api *gh;
    gh_session *session;
    struct segment *segments;
    int n_segments;
    struct set slots[MAX_SLOTS];
    bool paused; /* between pre_warmup and post_warmup */
    char error[512];
    char *environment_text; /* storage of `environment` */
    const char **environment;
};

/* One pass as the engine sees it. */
struct pass {
    const struct segment *segment;
    gh_direction direction;
    int microbatch;
    gh_buffer inputs[PASS_INPUTS];
    uint32_t n_inputs;
    uint32_t x_input; /* which of them the first part reads */
    gh_buffer outputs[GH_MAX_BUFFERS];
    uint32_t n_outputs;
};

const char *host_error(const struct host *host)
{
    return host->error;
}

static int fail(struct host *host, const char *call, gh_status status,
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
    char found[4096];
    void *symbol;
    gh_get_api_fn *get_api;
    gh_error err = { "" };

    if (path == NULL) {
        find_companion(FIND_LIBRARY, found, sizeof(found));
        path = found;
    }
    /* For good: what it keeps for the life of the process stays in reach. */
    host->library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (host->library == NULL) {
        snprintf(error, error_bytes, "the graphhooks library: %s", dlerror());
        return -1;
    }
    symbol = dlsym(host->library, GH_GET_API_SYMBOL);
    if (symbol == NULL) {
        snprintf(error, error_bytes, "%s has no %s: it is not graphhooks", path,
                 GH_GET_API_SYMBOL);
        return -1;
    }
    memcpy(&get_api, &symbol, sizeof(get_api));
    if (get_api(GH_ABI_MAJOR, &host->gh, &err) != GH_OK) {
        snprintf(error, error_bytes, "%s: %s", path, err.text);
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
 * the engine runs on; what only the engine reads is left out; and options of
 * the command line stand in for variables that are not set. */
static int make_environment(struct host *host, bool dry)
{
    const char *const left_out[] = {
        "GRAPHHOOKS_DRIVER=", "GRAPHHOOKS_LIBRARY=", "GRAPHHOOKS_SOFTCUDA=",
        dry ? "GRAPHHOOKS_TRACE=" : ""
    };
    const struct options *options = host->trainer->options;
    const bool trace = options->trace != NULL && !dry;
    const size_t text_bytes = (trace ? strlen(options->trace) : 0) + 64;
    size_t n = 0, kept = 0;

    while (environ[n] != NULL) {
        n++;
    }
    host->environment = calloc(n + 3, sizeof(*host->environment));
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

static gh_layer_desc describe_layer(const struct config *config, int layer)
{
    gh_layer_desc desc = {
        .struct_size = sizeof(desc),
        .kind = (gh_layer_kind)layer_kind(config, layer),
    };

    if (desc.kind == GH_LAYER_MOE || desc.kind == GH_LAYER_MOE_ONLY) {
        desc.features = features_of(config);
        desc.experts = (uint32_t)config->experts;
        desc.dispatcher = GH_DISPATCHER_ALLTOALL;
    }
    return desc;
}

static gh_status describe_model(struct host *host, gh_model **model_p,
                                gh_error *err)
{
    const gh_api *gh = host->gh;
    gh_status status = gh->model_create(model_p, err);

    for (int i = 0;
         status == GH_OK && i < host->trainer->options->config.layers; i++) {
        const gh_layer_desc layer =
            describe_layer(&host->trainer->options->config, i);

        status = gh->model_add_layer(*model_p, &layer, err);
    }
    return status;
}

static int open_session(struct host *host)
{
    const struct trainer *trainer = host->trainer;
    const struct options *options = trainer->options;
    const gh_api *gh = host->gh;
    gh_model *model = NULL;
    gh_error err = { "" };
    gh_status status = describe_model(host, &model, &err);

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
            .max_slots = (uint32_t)options->in_flight,
            .environment = host->environment,
        };

        status = gh->session_open(&desc, &host->session, &err);
    }
    gh->model_destroy(model);
    return status == GH_OK ? 0 : fail(host, "gh_session_open", status, &err);
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
        gh_segment segment = { .struct_size = sizeof(segment) };
        gh_error err = { "" };
        gh_status status =
            host->gh->plan_segment(host->session, 0, i, &segment, &err);

        if (status != GH_OK) {
            return fail(host, "gh_plan_segment", status, &err);
        }
        host->segments[i] = (struct segment){
            .index = segment.index,
            .first = model_part(model, (int)segment.first_layer,
                                (enum part_kind)segment.first_part),
            .last = model_part(model, (int)segment.last_layer,
                               (enum part_kind)segment.last_part),
        };
    }
    host->n_segments = (int)n;
    return 0;
}

static struct host *open_host(struct trainer *trainer, bool dry, char *error,
                              size_t error_bytes)
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
    if (make_environment(host, dry) != 0) {
        snprintf(error, error_bytes, "out of memory");
        goto err_host;
    }
    if (open_session(host) != 0 || read_plan(host) != 0) {
        snprintf(error, error_bytes, "%s", host->error);
        goto err_host;
    }
    return host;

err_host:
    host_close(host);
    return NULL;
}

struct host *host_open(struct trainer *trainer, char *error, size_t error_bytes)
{
    return open_host(trainer, false, error, error_bytes);
}

int host_check(struct trainer *trainer, char *error, size_t error_bytes)
{
    struct host *host = open_host(trainer, true, error, error_bytes);

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

/* ---- passes ------------------------------------------------------------- */

/* The set that the decision means.  1: it had to be made, and the pass is no
 * longer open because a capture allows no allocation. */
static int take_set(struct host *host, const gh_decision *decision,
                    int microbatch)
{
    struct trainer *trainer = host->trainer;
    struct flight *flight = &trainer->flights[microbatch];
    struct set *set;

    if (flight->set != NULL) {
        if (decision->slot == flight->slot) {
            return 0;
        }
        snprintf(host->error, sizeof(host->error),
                 "microbatch %d was in slot %u and is now in slot %u",
                 microbatch, flight->slot, decision->slot);
        return -1;
    }
    if (decision->slot == GH_SLOT_NONE) {
        if (pool_lease_for(trainer, microbatch, decision->stream) != 0) {
            return -1;
        }
        flight->slot = GH_SLOT_NONE;
        return 0;
    }
    if (decision->slot >= MAX_SLOTS) {
        snprintf(host->error, sizeof(host->error), "slot %u is past %d",
                 decision->slot, MAX_SLOTS);
        return -1;
    }

    set = &host->slots[decision->slot];
    if (set->memory == NULL) {
        gh_error err = { "" };

        (void)host->gh->layer_cancel(host->session, &err);
        return set_init(set, &trainer->model, trainer->dev) == 0 ? 1 : -1;
    }
    flight->set = set;
    flight->slot = decision->slot;
    return 0;
}

static gh_buffer buffer_of(const struct border *border, bool is_static)
{
    return (gh_buffer){
        .address = (void *)(uintptr_t)border->address,
        .bytes = border->bytes,
        .flags = is_static ? GH_BUFFER_STATIC : 0,
    };
}

/* A hidden state that lies with the microbatch, and so is not static. */
static void add_loose_input(const struct host *host, struct pass *pass,
                            const float *address)
{
    const struct config *config = &host->trainer->model.config;

    pass->inputs[pass->n_inputs++] = (gh_buffer){
        .address = (void *)(uintptr_t)address,
        .bytes = (uint64_t)config_rows(config) * (uint64_t)config->hidden *
                 sizeof(float),
    };
}

/* What the run before hands over: all of it lies in the set. */
static void add_inputs(struct pass *pass, const struct border *list, int n)
{
    for (int i = 0; i < n; i++) {
        pass->inputs[pass->n_inputs++] = buffer_of(&list[i], true);
    }
}

/* What the first part reads: of the microbatch, or what comes before it. */
static void add_x_inputs(const struct host *host, struct pass *pass)
{
    const struct trainer *trainer = host->trainer;
    const struct flight *flight = &trainer->flights[pass->microbatch];
    struct border list[MAX_BORDER];

    pass->x_input = pass->n_inputs;
    if (pass->segment->first == 0) {
        add_loose_input(host, pass,
                        row_block(trainer, trainer->x, pass->microbatch));
        return;
    }
    add_inputs(pass, list,
               border_after(&trainer->model, flight->set,
                            pass->segment->first - 1, list));
}

/* The gradient of what the last part wrote: the head's, or the next run's. */
static void add_dy_inputs(const struct host *host, struct pass *pass)
{
    const struct trainer *trainer = host->trainer;
    const struct flight *flight = &trainer->flights[pass->microbatch];
    struct border list[MAX_BORDER];

    if (pass->segment->last == trainer->model.n_parts - 1) {
        add_loose_input(host, pass,
                        row_block(trainer, trainer->d_head, pass->microbatch));
        return;
    }
    add_inputs(pass, list,
               border_before(&trainer->model, flight->set,
                             pass->segment->last + 1, list));
}

/* The hidden state always, of the rest what this run of parts wrote. */
static void add_outputs(struct pass *pass, const struct border *list, int n)
{
    for (int i = 0; i < n; i++) {
        if (i == 0 || (list[i].writer >= pass->segment->first &&
                       list[i].writer <= pass->segment->last)) {
            pass->outputs[pass->n_outputs++] = buffer_of(&list[i], false);
        }
    }
}

static void add_gradient(const struct host *host, struct pass *pass,
                         struct range range)
{
    if (range.count == 0 || pass->n_outputs == GH_MAX_BUFFERS) {
        return;
    }
    pass->outputs[pass->n_outputs++] = (gh_buffer){
        .address = host->trainer->model.g + range.first,
        .bytes = range.count * sizeof(float),
        .flags = GH_BUFFER_UPDATED,
    };
}

static void name_outputs(const struct host *host, struct pass *pass)
{
    const struct model *model = &host->trainer->model;
    const struct set *set = host->trainer->flights[pass->microbatch].set;
    const struct segment *segment = pass->segment;
    struct border list[MAX_BORDER];

    pass->n_outputs = 0;
    if (pass->direction == GH_FORWARD) {
        add_outputs(pass, list, border_after(model, set, segment->last, list));
        return;
    }
    add_outputs(pass, list, border_before(model, set, segment->first, list));
    for (int part = segment->first; part <= segment->last; part++) {
        add_gradient(host, pass, model->parts[part].matrices);
        add_gradient(host, pass, model->parts[part].vectors);
    }
}

static int run_parts(const struct host *host, const struct pass *pass,
                     const gh_decision *decision)
{
    const struct trainer *trainer = host->trainer;
    const struct work work = {
        .queue = { .dev = trainer->dev, .stream = decision->stream },
        .model = &trainer->model,
        .set = trainer->flights[pass->microbatch].set,
    };
    const struct segment *segment = pass->segment;

    if (pass->direction == GH_FORWARD) {
        parts_forward(&work, segment->first, segment->last,
                      decision->inputs[0].address);
    } else {
        parts_backward(&work, segment->first, segment->last, HALF_BOTH,
                       decision->inputs[pass->x_input].address,
                       decision->inputs[0].address);
    }
    return trainer->dev->code == CUDA_SUCCESS ? 0 : -1;
}

enum attempt {
    PASS_DONE,
    PASS_AGAIN,
    PASS_FAILED
};

/* A launch of ours failed.  Inside a recording that may be the capture's
 * doing: the pass is then run once more, eagerly, and a failure that is real
 * will show itself again. */
static enum attempt recover(struct host *host, const gh_decision *decision)
{
    const gh_api *gh = host->gh;
    gh_error err = { "" };

    (void)gh->layer_cancel(host->session, &err);
    if (decision->action != GH_ACTION_RECORD || host->paused ||
        gh->pre_warmup(host->session, &err) != GH_OK) {
        return PASS_FAILED;
    }
    host->paused = true;
    device_forgive(host->trainer->dev);
    return PASS_AGAIN;
}

/* Enter, run what is to be run, exit: once. */
static enum attempt attempt_pass(struct host *host, struct pass *pass,
                                 const float **result_p)
{
    const gh_api *gh = host->gh;
    gh_error err = { "" };
    gh_decision decision = { .struct_size = sizeof(decision) };
    gh_pass call = {
        .struct_size = sizeof(call),
        .segment = pass->segment->index,
        .direction = pass->direction,
        .microbatch = (uint32_t)pass->microbatch,
        .stream = stream_of(host->trainer, pass->microbatch),
        .inputs = pass->inputs,
        .n_inputs = pass->n_inputs,
    };
    gh_status status = gh->layer_enter(host->session, &call, &decision, &err);
    int taken;

    if (status != GH_OK) {
        (void)fail(host, "gh_layer_enter", status, &err);
        return PASS_FAILED;
    }
    taken = take_set(host, &decision, pass->microbatch);
    if (taken < 0) {
        (void)gh->layer_cancel(host->session, NULL);
        return PASS_FAILED;
    }
    if (taken > 0) {
        return PASS_AGAIN;
    }

    if (decision.action == GH_ACTION_REPLAYED) {
        *result_p = decision.outputs[0].address;
    } else {
        if (run_parts(host, pass, &decision) != 0) {
            return recover(host, &decision);
        }
        name_outputs(host, pass);
        call.outputs = pass->outputs;
        call.n_outputs = pass->n_outputs;
        *result_p = pass->outputs[0].address;
    }

    status = gh->layer_exit(host->session, &call, &err);
    if (status == GH_RERUN) {
        return PASS_AGAIN;
    }
    if (status != GH_OK) {
        (void)fail(host, "gh_layer_exit", status, &err);
        (void)gh->layer_cancel(host->session, NULL);
        return PASS_FAILED;
    }
    return PASS_DONE;
}

static int run_pass(struct host *host, struct pass *pass,
                    const float **result_p)
{
    enum attempt attempt;

    /* What failed before the pass is nobody's to forgive. */
    if (host->trainer->dev->code != CUDA_SUCCESS) {
        return -1;
    }
    do {
        attempt = attempt_pass(host, pass, result_p);
    } while (attempt == PASS_AGAIN);

    if (host->paused) {
        host->paused = false;
        (void)host->gh->post_warmup(host->session, NULL);
    }
    return attempt == PASS_DONE ? 0 : -1;
}

int host_forward(struct host *host, int microbatch)
{
    struct trainer *trainer = host->trainer;
    const float *x = NULL;
    gh_error err = { "" };
    gh_status status;

    for (int i = 0; i < host->n_segments; i++) {
        struct pass pass = {
            .segment = &host->segments[i],
            .direction = GH_FORWARD,
            .microbatch = microbatch,
        };

        add_x_inputs(host, &pass);
        if (run_pass(host, &pass, &x) != 0) {
            return -1;
        }
    }
    trainer->flights[microbatch].out = x;

    status = host->gh->flush_delayed(host->session, &err);
    return status == GH_OK ? 0 : fail(host, "gh_flush_delayed", status, &err);
}

int host_backward(struct host *host, int microbatch, const float **dx_p)
{
    const float *dy = NULL;

    for (int i = host->n_segments - 1; i >= 0; i--) {
        struct pass pass = {
            .segment = &host->segments[i],
            .direction = GH_BACKWARD,
            .microbatch = microbatch,
        };

        add_dy_inputs(host, &pass);
        add_x_inputs(host, &pass);
        if (run_pass(host, &pass, &dy) != 0) {
            return -1;
        }
    }
    *dx_p = dy;
    return 0;
}

int host_end_step(struct host *host)
{
    gh_error err = { "" };
    gh_status status = host->gh->iteration_end(host->session, &err);

    return status == GH_OK ? 0 : fail(host, "gh_iteration_end", status, &err);
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
    return status == GH_OK ? 0 : fail(host, "gh_session_stats", status, &err);
}
