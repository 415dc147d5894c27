/*
 * describe.c - reads a model's description with jansson.
 *
 * First every layer's object becomes an entry, checked; then the entries,
 * each as often as it is repeated, become a gh_model.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "describe.h"

#include "base/error.h"
#include "costs.h"
#include "fields.h"
#include "nodes.h"
#include "plan/check.h"
#include "words.h"

#include <stdlib.h>
#include <string.h>

/* Of a group: sums of them do not overflow. */
#define MOST_BYTES (INT64_C(1) << 48)

struct entry {
    gh_layer_desc desc; /* its name is the object's */
    struct layer_cost cost;
    struct node_times times;
    uint64_t slot_bytes;
    uint32_t repeat;
};

/* ---- a layer ----------------------------------------------------------- */

static const char *const layer_fields[] = {
    "kind",       "family",    "repeat",     "chunk",
    "name",       "experts",   "dispatcher", "backend",
    "features",   "recompute", "offload",    "offload_bytes",
    "forward_us", "node_us",   "slot_bytes", NULL,
};

static bool has_experts(gh_layer_kind kind)
{
    return gh_kind_has(kind, GH_PART_MOE_ROUTER);
}

static gh_status read_experts(const struct fields *object, gh_layer_desc *desc,
                              gh_error *err)
{
    static const char *const of_experts[] = { "experts", "dispatcher",
                                              "backend" };
    char where[FIELD_WHERE_BYTES];
    gh_status status;

    if (!has_experts(desc->kind)) {
        for (size_t i = 0; i < sizeof(of_experts) / sizeof(of_experts[0]);
             i++) {
            if (field_at(object, of_experts[i], where) != NULL) {
                return gh_fail(err, GH_ERR_CONFIG,
                               "%s: a %s layer has no experts; leave it out",
                               where, gh_kind_names[desc->kind]);
            }
        }
        return GH_OK;
    }
    if (field_at(object, "experts", where) == NULL) {
        return field_missing(where, "the number of experts", err);
    }
    status = field_count(object, "experts", 1, 1000000, &desc->experts, err);
    if (status != GH_OK) {
        return status;
    }
    status = field_required_word(object, "dispatcher", gh_dispatcher_names,
                                 &desc->dispatcher, err);
    if (status != GH_OK) {
        return status;
    }
    return field_word(object, "backend", gh_backend_names, &desc->backend, err);
}

/* Bytes of modules that are offloaded, of one microbatch. */
static gh_status read_bytes(const struct fields *object, struct entry *entry,
                            gh_error *err)
{
    char where[FIELD_WHERE_BYTES];
    const json_t *json = field_at(object, "offload_bytes", where);
    struct fields sizes = { .json = json };

    if (json == NULL) {
        return GH_OK;
    }
    if (!json_is_object(json)) {
        return field_type(where, json, "an object of modules and bytes", err);
    }
    snprintf(sizes.where, sizeof(sizes.where), "%.50s.", where);
    for (uint32_t bit = 0; gh_module_names[bit] != NULL; bit++) {
        const json_t *bytes = field_at(&sizes, gh_module_names[bit], where);

        if (bytes == NULL) {
            continue;
        }
        if (!json_is_integer(bytes) || json_integer_value(bytes) < 1 ||
            json_integer_value(bytes) > MOST_BYTES) {
            return field_type(where, bytes, "a number of bytes, 1 to 2^48",
                              err);
        }
        if ((entry->desc.offload & UINT32_C(1) << bit) == 0) {
            return gh_fail(err, GH_ERR_CONFIG,
                           "%s: the layer does not offload it: name it in "
                           "offload, or leave its bytes out",
                           where);
        }
        entry->cost.bytes[bit] = (uint64_t)json_integer_value(bytes);
    }
    return fields_check(&sizes, gh_module_names, err);
}

static bool is_bytes(const json_t *json)
{
    return json_is_integer(json) && json_integer_value(json) >= 1 &&
           json_integer_value(json) <= MOST_BYTES;
}

/* Bytes that a slot has; those that are not given stay. */
static gh_status read_slot_bytes(const struct fields *object, const char *name,
                                 uint64_t *bytes_p, gh_error *err)
{
    char where[FIELD_WHERE_BYTES];
    const json_t *json = field_at(object, name, where);

    if (json == NULL) {
        return GH_OK;
    }
    if (!is_bytes(json)) {
        return field_type(where, json, "a number of bytes, 1 to 2^48", err);
    }
    *bytes_p = (uint64_t)json_integer_value(json);
    return GH_OK;
}

/* Inputs of graphs in a slot: a number, or a list with one for each chunk. */
static gh_status read_inputs(const struct fields *top,
                             struct memory_sizes *sizes, gh_error *err)
{
    char where[FIELD_WHERE_BYTES];
    const json_t *json = field_at(top, "input_bytes", where);
    const bool lists = json_is_array(json);
    const size_t n = lists ? json_array_size(json) : 1;

    if (json == NULL) {
        return GH_OK;
    }
    sizes->inputs = calloc(n > 0 ? n : 1, sizeof(*sizes->inputs));
    if (sizes->inputs == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for %s", where);
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *bytes = lists ? json_array_get(json, i) : json;

        if (!is_bytes(bytes)) {
            return field_type(where, bytes,
                              "a number of bytes, 1 to 2^48, or a list with "
                              "one for each chunk",
                              err);
        }
        sizes->inputs[i] = (uint64_t)json_integer_value(bytes);
    }
    sizes->n_inputs = n;
    if (lists && n != sizes->n_chunks) {
        return gh_fail(err, GH_ERR_CONFIG,
                       "%s has %zu number%s, and the layers have %u chunk%s: "
                       "give one for each chunk, or one for all",
                       where, n, n == 1 ? "" : "s", sizes->n_chunks,
                       sizes->n_chunks == 1 ? "" : "s");
    }
    return GH_OK;
}

static gh_status read_cost(const struct fields *object, struct entry *entry,
                           gh_error *err)
{
    uint32_t us = 0;
    gh_status status = field_count(object, "forward_us", 1, 1000000000, &us,
                                   err);

    entry->cost.forward_ns = (uint64_t)us * 1000;
    return status == GH_OK ? read_bytes(object, entry, err) : status;
}

/* Whether there is one of that name is found out later. */
static gh_status read_family(const struct fields *object, const char **family,
                             gh_error *err)
{
    const char *given;
    gh_status status = field_text(object, "family", false, &given, err);

    if (status == GH_OK && given != NULL) {
        *family = given;
    }
    return status;
}

/* `family` is that of layers that do not say theirs; NULL: none. */
static gh_status read_layer(const struct fields *object, const char *family,
                            struct entry *entry, gh_error *err)
{
    gh_layer_desc *desc = &entry->desc;
    gh_status status = fields_check(object, layer_fields, err);

    *entry = (struct entry){ .repeat = 1 };
    desc->struct_size = sizeof(*desc);
    desc->family = family;
    if (status != GH_OK ||
        (status = field_required_word(object, "kind", gh_kind_names,
                                      &desc->kind, err)) != GH_OK ||
        (status = read_family(object, &desc->family, err)) != GH_OK ||
        (status = field_text(object, "name", false, &desc->name, err)) !=
            GH_OK ||
        (status = field_count(object, "repeat", 1, DESCRIBE_MOST_LAYERS,
                              &entry->repeat, err)) != GH_OK ||
        (status = field_count(object, "chunk", 0, DESCRIBE_MOST_LAYERS,
                              &desc->chunk, err)) != GH_OK ||
        (status = read_experts(object, desc, err)) != GH_OK ||
        (status = field_words(object, "features", gh_feature_names,
                              &desc->features, err)) != GH_OK ||
        (status = field_words(object, "recompute", gh_module_names,
                              &desc->recompute, err)) != GH_OK ||
        (status = field_words(object, "offload", gh_module_names,
                              &desc->offload, err)) != GH_OK ||
        (status = read_cost(object, entry, err)) != GH_OK ||
        (status = read_slot_bytes(object, "slot_bytes", &entry->slot_bytes,
                                  err)) != GH_OK ||
        (status = nodes_read(object, &entry->times, err)) != GH_OK) {
        return status;
    }
    return gh_layer_check(object->where, desc, err);
}

/* ---- the list of layers ------------------------------------------------ */

/* Chunks are all given by the layers, in order, or all by "chunks". */
static gh_status check_chunk(const struct fields *object, uint32_t chunk,
                             uint32_t before, bool first, uint32_t chunks,
                             gh_error *err)
{
    if (chunks != 0 && json_object_get(object->json, "chunk") != NULL) {
        return gh_fail(err, GH_ERR_CONFIG,
                       "%schunk: chunks is given, which divides the layers "
                       "evenly; leave one of them out",
                       object->where);
    }
    if (chunk == before || (!first && chunk == before + 1)) {
        return GH_OK;
    }
    return gh_fail(err, GH_ERR_CONFIG,
                   "%schunk is %u after %u; chunks begin at 0, in order, and "
                   "none is left out",
                   object->where, chunk, before);
}

static gh_status read_layers(const json_t *list, uint32_t chunks,
                             const char *family, struct entry *entries,
                             uint32_t *total, gh_error *err)
{
    const size_t n = json_array_size(list);
    uint32_t chunk = 0;

    *total = 0;
    for (size_t i = 0; i < n; i++) {
        struct fields object = { .json = json_array_get(list, i) };
        gh_status status;

        snprintf(object.where, sizeof(object.where), "layers[%zu]", i);
        if (!json_is_object(object.json)) {
            return field_type(object.where, object.json, "an object", err);
        }
        strcat(object.where, ".");
        status = read_layer(&object, family, &entries[i], err);
        if (status != GH_OK) {
            return status;
        }
        status = check_chunk(&object, entries[i].desc.chunk, chunk, i == 0,
                             chunks, err);
        if (status != GH_OK) {
            return status;
        }
        chunk = entries[i].desc.chunk;
        if (entries[i].repeat > DESCRIBE_MOST_LAYERS - *total) {
            return gh_fail(err, GH_ERR_CONFIG,
                           "layers[%zu].repeat: these are more than %u layers",
                           i, DESCRIBE_MOST_LAYERS);
        }
        *total += entries[i].repeat;
    }
    return GH_OK;
}

/* The n-th of a repeated layer is "NAME n". */
static gh_status add_layers(struct description *d, const struct entry *entries,
                            size_t n_entries, uint32_t total, uint32_t chunks,
                            gh_error *err)
{
    uint32_t layer = 0;

    for (size_t i = 0; i < n_entries; i++) {
        d->times[i] = entries[i].times;
        for (uint32_t k = 0; k < entries[i].repeat; k++, layer++) {
            gh_layer_desc desc = entries[i].desc;
            char name[128];
            gh_status status;

            if (chunks != 0) {
                desc.chunk = (uint32_t)((uint64_t)layer * chunks / total);
            }
            if (desc.name != NULL && entries[i].repeat > 1) {
                snprintf(name, sizeof(name), "%.*s %u",
                         gh_shown_bytes(desc.name, 100), desc.name, k);
                desc.name = name;
            }
            d->costs[layer] = entries[i].cost;
            d->nodes[layer] = &d->times[i];
            d->slots.layers[layer] = entries[i].slot_bytes;
            d->memory.n_chunks = desc.chunk + 1;
            status = gh_model_add_layer(d->model, &desc, err);
            if (status != GH_OK) {
                return status;
            }
        }
    }
    return GH_OK;
}

static gh_status make_model(const json_t *list, uint32_t chunks,
                            const char *family, const gh_model_desc *desc,
                            struct description *d, gh_error *err)
{
    const size_t n = json_array_size(list);
    struct entry *entries = calloc(n, sizeof(*entries));
    uint32_t total;
    gh_status status;

    if (entries == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for the layers");
    }
    status = read_layers(list, chunks, family, entries, &total, err);
    if (status == GH_OK && chunks > total) {
        status =
            gh_fail(err, GH_ERR_CONFIG,
                    "chunks is %u; these are only %u layers", chunks, total);
    }
    if (status == GH_OK) {
        status = gh_model_create(&d->model, err);
    }
    if (status == GH_OK) {
        status = gh_model_describe(d->model, desc, err);
    }
    if (status == GH_OK) {
        d->costs = calloc(total, sizeof(*d->costs));
        d->times = calloc(n, sizeof(*d->times));
        d->nodes = calloc(total, sizeof(*d->nodes));
        d->slots.layers = calloc(total, sizeof(*d->slots.layers));
        d->foresight.costs = d->costs;
        status = d->costs == NULL || d->times == NULL || d->nodes == NULL ||
                         d->slots.layers == NULL
                     ? gh_fail(err, GH_ERR_NO_MEMORY, "no memory for layers")
                     : add_layers(d, entries, n, total, chunks, err);
    }
    free(entries);
    return status;
}

/* ---- the description --------------------------------------------------- */

static const char *const top_fields[] = {
    "name",
    "family",
    "whole",
    "stage",
    "chunks",
    "scope",
    "granularity",
    "ep_overlap",
    "delay_wgrad",
    "ep_size",
    "cp_size",
    "layers",
    "offload_fraction",
    "offload_buffers",
    "in_flight",
    "link_mb_per_s",
    "measured",
    "slot_bytes",
    "embedding_slot_bytes",
    "head_slot_bytes",
    "input_bytes",
    "stash_bytes",
    "window_bytes",
    NULL,
};

static gh_status read_options(const struct fields *top, struct description *d,
                              gh_error *err)
{
    uint32_t granularity = GH_GRANULARITY_LAYER;
    gh_status status;

    status = field_words(top, "scope", scope_words(), &d->options.scope, err);
    if (status != GH_OK) {
        return status;
    }
    status =
        field_word(top, "granularity", granularity_words, &granularity, err);
    if (status != GH_OK) {
        return status;
    }
    d->options.granularity = (enum gh_granularity)granularity;
    status = field_switch(top, "ep_overlap", &d->options.ep_overlap, err);
    if (status != GH_OK) {
        return status;
    }
    return field_switch(top, "delay_wgrad", &d->options.delay_wgrad, err);
}

/* A number from 0 to 1, or "auto". */
static gh_status read_fraction(const struct fields *top,
                               struct foresight *foresight, gh_error *err)
{
    char where[FIELD_WHERE_BYTES], text[32];
    const json_t *json = field_at(top, "offload_fraction", where);

    if (json == NULL) {
        return GH_OK;
    }
    if (json_is_string(json)) {
        return costs_take_fraction(foresight, where, json_string_value(json),
                                   err);
    }
    if (!json_is_number(json)) {
        return field_type(where, json, "a number from 0 to 1, or \"auto\"", err);
    }
    snprintf(text, sizeof(text), "%.9f", json_number_value(json));
    return costs_take_fraction(foresight, where, text, err);
}

static gh_status read_foresight(const struct fields *top,
                                struct foresight *foresight, gh_error *err)
{
    uint32_t link = 0;
    gh_status status = read_fraction(top, foresight, err);

    if (status != GH_OK ||
        (status = field_count(top, "offload_buffers", 2, 8,
                              &foresight->policy.buffers, err)) != GH_OK ||
        (status = field_count(top, "in_flight", 1, COSTS_MOST_IN_FLIGHT,
                              &foresight->policy.in_flight, err)) != GH_OK ||
        (status = field_count(top, "link_mb_per_s", 1, 1000000000, &link,
                              err)) != GH_OK) {
        return status;
    }
    foresight->link_rate = link;
    return GH_OK;
}

/* What holds for all layers. */
static gh_status read_model(const struct fields *top, gh_model_desc *desc,
                            gh_error *err)
{
    const uint32_t most = 1000000;
    bool whole = false, stage = false;
    gh_status status = field_switch(top, "whole", &whole, err);

    if (status != GH_OK ||
        (status = field_switch(top, "stage", &stage, err)) != GH_OK ||
        (status = field_count(top, "ep_size", 1, most, &desc->ep_size, err)) !=
            GH_OK) {
        return status;
    }
    desc->struct_size = sizeof(*desc);
    desc->flags =
        (whole ? GH_MODEL_WHOLE : 0) | (stage ? GH_MODEL_STAGE : 0);
    return field_count(top, "cp_size", 1, most, &desc->cp_size, err);
}

static gh_status read_top(const json_t *json, struct description *d,
                          gh_error *err)
{
    const struct fields top = { .json = json };
    const json_t *layers = json_object_get(json, "layers");
    const char *name, *family = NULL;
    gh_model_desc desc = { .flags = 0 };
    uint32_t chunks = 0;
    gh_status status = fields_check(&top, top_fields, err);

    if (status != GH_OK ||
        (status = field_text(&top, "name", true, &name, err)) != GH_OK ||
        (status = read_family(&top, &family, err)) != GH_OK ||
        (status = field_count(&top, "chunks", 1, DESCRIBE_MOST_LAYERS, &chunks,
                              err)) != GH_OK ||
        (status = read_options(&top, d, err)) != GH_OK ||
        (status = read_foresight(&top, &d->foresight, err)) != GH_OK ||
        (status = read_slot_bytes(&top, "slot_bytes", &d->slots.rest, err)) !=
            GH_OK ||
        (status = read_slot_bytes(&top, "embedding_slot_bytes",
                                  &d->slots.embedding, err)) != GH_OK ||
        (status = read_slot_bytes(&top, "head_slot_bytes", &d->slots.head,
                                  err)) != GH_OK ||
        (status = read_slot_bytes(&top, "stash_bytes", &d->memory.stash,
                                  err)) != GH_OK ||
        (status = read_slot_bytes(&top, "window_bytes", &d->memory.window,
                                  err)) != GH_OK ||
        (status = measured_read(&top, &d->measured, err)) != GH_OK ||
        (status = read_model(&top, &desc, err)) != GH_OK) {
        return status;
    }
    if (layers == NULL) {
        return field_missing("layers", "a list of layers", err);
    }
    if (!json_is_array(layers)) {
        return field_type("layers", layers, "a list of layers", err);
    }
    if (json_array_size(layers) == 0) {
        return gh_fail(err, GH_ERR_CONFIG,
                       "layers is empty; give at least one layer");
    }
    d->name = strdup(name);
    if (d->name == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a name");
    }
    status = make_model(layers, chunks, family, &desc, d, err);
    return status == GH_OK ? read_inputs(&top, &d->memory, err) : status;
}

static gh_status read_json(json_t *json, const json_error_t *problem,
                           struct description *d, gh_error *err)
{
    gh_status status;

    memset(d, 0, sizeof(*d));
    costs_default(&d->foresight);
    if (json == NULL) {
        char clean[100];

        word_clean(problem->text, clean, sizeof(clean));
        return gh_fail(err, GH_ERR_CONFIG,
                       "line %d, column %d: this is not JSON: %s",
                       problem->line, problem->column, clean);
    }
    if (json_is_object(json)) {
        status = read_top(json, d, err);
    } else {
        status = field_type("the description", json, "an object", err);
    }
    json_decref(json);
    if (status != GH_OK) {
        describe_free(d);
    }
    return status;
}

gh_status describe_file(FILE *file, struct description *description,
                        gh_error *err)
{
    json_error_t problem;
    json_t *json = json_loadf(file, JSON_REJECT_DUPLICATES, &problem);

    return read_json(json, &problem, description, err);
}

gh_status describe_text(const char *text, size_t bytes,
                        struct description *description, gh_error *err)
{
    json_error_t problem;
    json_t *json = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &problem);

    return read_json(json, &problem, description, err);
}

void describe_free(struct description *description)
{
    gh_model_destroy(description->model);
    free(description->name);
    free(description->costs);
    free(description->times);
    free(description->nodes);
    free(description->slots.layers);
    free(description->memory.inputs);
    memset(description, 0, sizeof(*description));
}
