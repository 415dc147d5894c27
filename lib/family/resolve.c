/*
 * resolve.c - asks the families about every layer that names one.
 *
 * All files are found first.  Then one family after the other is loaded,
 * opened once for the model, asked about its layers in their order, asked
 * again in reverse order, and closed.  So whoever watches knows which family a
 * crash belongs to.  Answers that differ are refused, because they would make
 * two ranks plan differently.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "family/family.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

/* The family that is being asked. */
struct member {
    const struct gh_traits_source *source;
    gh_family family;
    void *ctx;
};

struct resolver {
    const gh_model *model;
    const char *path;
    const struct gh_family_watch *watch;
    gh_layer_desc *descs;
    const gh_layer_desc **pointers;
    gh_family_model given; /* the model that families may read */
    struct gh_traits_set *set;
    gh_error *err;
};

static gh_status no_memory(gh_error *err)
{
    return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for the model's families");
}

/* Makes room for one more in an array that doubles.  False: there is no
 * memory. */
static bool make_room(void *array_p, uint32_t n, size_t bytes)
{
    void **array = array_p;
    void *larger;

    if (n != 0 && (n & (n - 1)) != 0) {
        return true;
    }
    larger = realloc(*array, (n == 0 ? 1 : 2 * (size_t)n) * bytes);
    if (larger != NULL) {
        *array = larger;
    }
    return larger != NULL;
}

static gh_status describe_model(struct resolver *r)
{
    const gh_model *model = r->model;
    const size_t n = model->n_layers;

    r->descs = calloc(n, sizeof(*r->descs));
    r->pointers = calloc(n, sizeof(*r->pointers));
    r->set->of_layer = calloc(n, sizeof(*r->set->of_layer));
    if (r->descs == NULL || r->pointers == NULL || r->set->of_layer == NULL) {
        return no_memory(r->err);
    }
    r->set->n_layers = model->n_layers;
    for (uint32_t i = 0; i < model->n_layers; i++) {
        const struct gh_layer *layer = &model->layers[i];

        r->descs[i] = (gh_layer_desc){
            .struct_size = sizeof(gh_layer_desc),
            .kind = layer->kind,
            .chunk = layer->chunk,
            .name = layer->name,
            .features = layer->features,
            .recompute = layer->recompute,
            .offload = layer->offload,
            .experts = layer->experts,
            .dispatcher = layer->dispatcher,
            .backend = layer->backend,
            .family = layer->family,
        };
        r->pointers[i] = &r->descs[i];
    }
    r->given = (gh_family_model){ .struct_size = sizeof(r->given),
                                  .n_layers = model->n_layers,
                                  .layers = r->pointers };
    return GH_OK;
}

/* ---- finding ------------------------------------------------------------- */

static const struct gh_traits_source *find_source(const struct resolver *r,
                                                  const char *family)
{
    for (uint32_t i = 0; i < r->set->n_sources; i++) {
        if (strcmp(r->set->sources[i]->name, family) == 0) {
            return r->set->sources[i];
        }
    }
    return NULL;
}

static gh_status add_source(struct resolver *r, const struct gh_layer *layer)
{
    struct gh_traits_set *set = r->set;
    const struct gh_family_where where = { layer->name, layer->family, NULL };
    char file[GH_FAMILY_FILE_BYTES];
    struct gh_traits_source *source;
    gh_status status = gh_family_find(&where, r->path, file, r->err);

    if (status != GH_OK) {
        return status;
    }
    if (!make_room(&set->sources, set->n_sources, sizeof(*set->sources)) ||
        (source = calloc(1, sizeof(*source))) == NULL) {
        return no_memory(r->err);
    }
    set->sources[set->n_sources++] = source;
    strcpy(source->name, layer->family);
    source->file = strdup(file);
    return source->file != NULL ? GH_OK : no_memory(r->err);
}

static gh_status find_sources(struct resolver *r)
{
    gh_status status = GH_OK;

    for (uint32_t i = 0; i < r->model->n_layers && status == GH_OK; i++) {
        const struct gh_layer *layer = &r->model->layers[i];

        if (layer->family != NULL && find_source(r, layer->family) == NULL) {
            status = add_source(r, layer);
        }
    }
    return status;
}

/* ---- asking -------------------------------------------------------------- */

/* Finds equal traits among the latest ones.  Older ones are not looked at,
 * because most models have few different layers. */
static struct gh_traits *find_traits(struct gh_traits_set *set,
                                     const struct gh_traits *traits)
{
    const uint32_t n = set->n_traits;
    const uint32_t most = 16;

    for (uint32_t i = n; i-- > 0 && n - i <= most;) {
        if (set->traits[i]->source == traits->source &&
            gh_family_difference(set->traits[i], traits) == NULL) {
            return set->traits[i];
        }
    }
    return NULL;
}

static gh_status keep(struct resolver *r, uint32_t layer,
                      const struct gh_traits *traits)
{
    struct gh_traits_set *set = r->set;
    struct gh_traits *kept = find_traits(set, traits);

    if (kept == NULL) {
        if (!make_room(&set->traits, set->n_traits, sizeof(*set->traits)) ||
            (kept = malloc(sizeof(*kept))) == NULL) {
            return no_memory(r->err);
        }
        *kept = *traits;
        kept->first = layer;
        set->traits[set->n_traits++] = kept;
    }
    kept->n_layers++;
    set->of_layer[layer] = kept;
    return GH_OK;
}

static bool is_of(const struct resolver *r, uint32_t i,
                  const struct member *member)
{
    const char *family = r->model->layers[i].family;

    return family != NULL && strcmp(family, member->source->name) == 0;
}

static struct gh_family_where where_of(const struct resolver *r, uint32_t i,
                                       const struct member *member)
{
    return (struct gh_family_where){ r->model->layers[i].name,
                                     member->source->name,
                                     member->source->file };
}

static gh_status ask(struct resolver *r, uint32_t i,
                     const struct member *member, struct gh_traits *traits)
{
    const struct gh_family_where where = where_of(r, i, member);
    gh_status status = gh_family_ask(&where, &member->family, member->ctx, i,
                                     r->model->layers[i].kind, traits, r->err);

    traits->source = member->source;
    return status;
}

static gh_status ask_once(struct resolver *r, const struct member *member)
{
    for (uint32_t i = 0; i < r->model->n_layers; i++) {
        struct gh_traits traits;
        gh_status status;

        if (!is_of(r, i, member)) {
            continue;
        }
        status = ask(r, i, member, &traits);
        if (status == GH_OK) {
            status = keep(r, i, &traits);
        }
        if (status != GH_OK) {
            return status;
        }
    }
    return GH_OK;
}

static gh_status ask_again(struct resolver *r, const struct member *member)
{
    for (uint32_t i = r->model->n_layers; i-- > 0;) {
        const struct gh_family_where where = where_of(r, i, member);
        struct gh_traits traits;
        const char *field;
        gh_status status;

        if (!is_of(r, i, member)) {
            continue;
        }
        status = ask(r, i, member, &traits);
        if (status != GH_OK) {
            return status;
        }
        field = gh_family_difference(r->set->of_layer[i], &traits);
        if (field != NULL) {
            return gh_family_fail(r->err, GH_ERR_INVALID, &where,
                                  "asked twice it gave another %s: make a "
                                  "description depend on the model alone",
                                  field);
        }
    }
    return GH_OK;
}

/* ---- one after the other ------------------------------------------------- */

static gh_status open_member(struct resolver *r,
                             const struct gh_family_where *where,
                             struct member *member)
{
    const gh_family *theirs;
    gh_error text = { "" };
    gh_status status;

    status = gh_family_load(where, &theirs, r->err);
    if (status != GH_OK) {
        return status;
    }
    status = gh_family_take(where, theirs, &member->family, r->err);
    if (status != GH_OK) {
        return status;
    }
    status = member->family.open(&r->given, &member->ctx, &text);
    return gh_family_answer(where, "open", status, &text, r->err);
}

/* Asks the family of layer i, which is the first layer that names it. */
static gh_status consult(struct resolver *r, uint32_t i)
{
    const char *family = r->model->layers[i].family;
    struct member member = { .source = find_source(r, family) };
    const struct gh_family_where where = where_of(r, i, &member);
    gh_status status;

    if (r->watch != NULL) {
        r->watch->before(r->watch->user, &where);
    }
    status = open_member(r, &where, &member);
    if (status != GH_OK) {
        return status;
    }
    status = ask_once(r, &member);
    if (status == GH_OK) {
        status = ask_again(r, &member);
    }
    member.family.close(member.ctx);
    return status;
}

static int by_first(const void *a, const void *b)
{
    const struct gh_traits *const *x = a, *const *y = b;

    return (*x)->first < (*y)->first ? -1 : 1;
}

static gh_status resolve(struct resolver *r)
{
    gh_status status = describe_model(r);

    if (status == GH_OK) {
        status = find_sources(r);
    }
    for (uint32_t i = 0; i < r->model->n_layers && status == GH_OK; i++) {
        if (r->model->layers[i].family != NULL && r->set->of_layer[i] == NULL) {
            status = consult(r, i);
        }
    }
    if (status == GH_OK) {
        qsort(r->set->traits, r->set->n_traits, sizeof(*r->set->traits),
              by_first);
    }
    return status;
}

bool gh_families_named(const gh_model *model)
{
    for (uint32_t i = 0; i < model->n_layers; i++) {
        if (model->layers[i].family != NULL) {
            return true;
        }
    }
    return false;
}

gh_status gh_families_resolve(const gh_model *model, const char *path,
                              const struct gh_family_watch *watch,
                              struct gh_traits_set *set, gh_error *err)
{
    struct resolver r = {
        .model = model, .path = path, .watch = watch, .set = set, .err = err
    };
    gh_status status;

    memset(set, 0, sizeof(*set));
    if (!gh_families_named(model)) {
        return GH_OK;
    }
    status = resolve(&r);
    if (status != GH_OK) {
        gh_traits_free(set);
    }
    free(r.descs);
    free(r.pointers);
    return status;
}
