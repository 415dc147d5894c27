/*
 * fixture.c - families that are wrong, each in one way.
 *
 * Built once for each name of fixtures.txt, with -DFIXTURE_NAME and -DNAME,
 * against the public headers alone.  Without a FIXTURE_ it is a right one,
 * of dense and moe layers, that counts its calls.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <graphhooks/family.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef NAME
#define NAME "fixture"
#endif

/* Read by tests that have found it by dlsym. */
GH_API extern unsigned fixture_calls, fixture_open, fixture_backend;
unsigned fixture_calls, fixture_open, fixture_backend;

#ifdef FIXTURE_constructor
static void __attribute__((constructor)) too_early(void)
{
    fixture_calls++;
}
#endif

#ifdef FIXTURE_constructor_crashes
static void __attribute__((constructor)) too_early(void)
{
    abort();
}
#endif

#ifdef FIXTURE_init
/* Not one of an array: the linker is told of it by -Wl,-init=too_early. */
void too_early(void);
void too_early(void)
{
    abort();
}
#endif

#ifdef FIXTURE_unresolved
extern int symbol_of_nobody(void);
#endif

static gh_status fixture_opens(const gh_family_model *model, void **ctx_p,
                               gh_error *err)
{
    fixture_calls++;
#if defined(FIXTURE_open_fails)
    strcpy(err->text, "this fixture takes no model: name another family");
    return GH_ERR_UNSUPPORTED;
#elif defined(FIXTURE_open_crashes)
    abort();
#elif defined(FIXTURE_open_exits)
    exit(3);
#elif defined(FIXTURE_open_fails_silently)
    return GH_ERR_NO_MEMORY;
#elif defined(FIXTURE_leaks)
    *ctx_p = malloc(sizeof(model));
    if (*ctx_p == NULL) {
        return GH_ERR_NO_MEMORY;
    }
    memcpy(*ctx_p, &model, sizeof(model));
    fixture_open++;
    return GH_OK;
#else
    (void)err;
    *ctx_p = (void *)model;
    fixture_backend = model->layers[0]->backend;
    fixture_open++;
    return GH_OK;
#endif
}

static void fixture_closes(void *ctx)
{
    (void)ctx;
    fixture_calls++;
    fixture_open--;
}

static void add(gh_family_layer *layer, gh_part part)
{
    layer->parts[layer->n_parts++] = part;
    layer->capturable |= 1u << part;
}

static void describe(const gh_layer_desc *desc, gh_family_layer *layer)
{
    add(layer, GH_PART_ATTN);
    if (desc->kind == GH_LAYER_DENSE) {
        add(layer, GH_PART_MLP);
        return;
    }
    for (gh_part part = GH_PART_MOE_ROUTER; part <= GH_PART_MOE_POST; part++) {
        add(layer, part);
    }
}

static void tensor(gh_family_layer *layer, const char *name, uint32_t parts)
{
    layer->tensors[layer->n_tensors].name = name;
    layer->tensors[layer->n_tensors++].parts = parts;
}

static void node(gh_family_layer *layer, gh_part first, gh_part last)
{
    layer->nodes[layer->n_nodes].first = first;
    layer->nodes[layer->n_nodes++].last = last;
}

/* What is wrong with the description. */
static void spoil(const gh_layer_desc *desc, uint32_t i, gh_family_layer *layer)
{
    const uint32_t last = layer->n_parts - 1;
    static uint32_t before;

#ifdef FIXTURE_differs
    layer->note[0] = (char)('a' + fixture_calls % 26);
#endif
#ifdef FIXTURE_remembers
    /* Asked in the order of the layers, as often as you like, it is right. */
    if (i != 0 && i < before) {
        layer->capturable = 0;
        strcpy(layer->why_not, "it was asked about another layer before");
    }
#endif
    before = i;
#ifdef FIXTURE_two_tables
    tensor(layer, "attn_table", 1u << GH_PART_ATTN);
    tensor(layer, "mlp_table", 1u << GH_PART_MLP);
#endif
#ifdef FIXTURE_parts_repeated
    layer->parts[last] = layer->parts[0];
#endif
#ifdef FIXTURE_parts_unordered
    if (desc->kind == GH_LAYER_MOE) {
        layer->parts[last] = GH_PART_MOE_EXPERTS;
        layer->parts[last - 2] = GH_PART_MOE_POST;
    }
#endif
#ifdef FIXTURE_parts_missing
    if (desc->kind == GH_LAYER_MOE) {
        layer->capturable &= ~(1u << GH_PART_MOE_POST);
        layer->n_parts--;
    }
#endif
#ifdef FIXTURE_parts_none
    layer->n_parts = 0;
    layer->capturable = 0;
#endif
#ifdef FIXTURE_parts_many
    layer->n_parts = GH_FAMILY_PARTS + 1;
#endif
#ifdef FIXTURE_parts_unknown
    layer->parts[last] = GH_PART_COUNT;
#endif
#ifdef FIXTURE_head_first
    layer->parts[0] = GH_PART_HEAD;
#endif
#ifdef FIXTURE_head_alone
    layer->n_parts = 1;
    layer->parts[0] = GH_PART_HEAD;
#endif
#ifdef FIXTURE_parts_of_experts
    for (gh_part part = GH_PART_MOE_ROUTER;
         desc->kind == GH_LAYER_DENSE && part <= GH_PART_MOE_POST; part++) {
        add(layer, part);
    }
#endif
#ifdef FIXTURE_capturable_foreign
    layer->capturable |= 1u << GH_PART_MAMBA;
#endif
#ifdef FIXTURE_why_missing
    layer->capturable &= ~(1u << GH_PART_ATTN);
#endif
#ifdef FIXTURE_why_idle
    strcpy(layer->why_not, "it holds nothing back");
#endif
#ifdef FIXTURE_tensor_foreign
    tensor(layer, "table", 1u << GH_PART_MAMBA);
#endif
#ifdef FIXTURE_tensor_unread
    tensor(layer, "table", 0);
#endif
#ifdef FIXTURE_tensor_unnamed
    tensor(layer, NULL, 1u << GH_PART_ATTN);
#endif
#ifdef FIXTURE_tensor_twice
    tensor(layer, "table", 1u << GH_PART_ATTN);
    tensor(layer, "table", 1u << GH_PART_ATTN);
#endif
#ifdef FIXTURE_tensors_many
    layer->n_tensors = GH_FAMILY_TENSORS + 1;
#endif
#ifdef FIXTURE_nodes_gap
    node(layer, GH_PART_ATTN, GH_PART_ATTN);
    node(layer, layer->parts[last], layer->parts[last]);
    layer->nodes[1].first = GH_PART_MAMBA;
#endif
#ifdef FIXTURE_nodes_end
    node(layer, GH_PART_ATTN, GH_PART_ATTN);
#endif
#ifdef FIXTURE_nodes_beyond
    node(layer, GH_PART_ATTN, GH_PART_MAMBA);
#endif
#ifdef FIXTURE_nodes_lane
    node(layer, GH_PART_ATTN, layer->parts[last]);
    layer->nodes[0].lane = 7;
#endif
#ifdef FIXTURE_nodes_many
    layer->n_nodes = GH_FAMILY_NODES + 1;
#endif
#ifdef FIXTURE_text_endless
    memset(layer->note, 'x', sizeof(layer->note));
#endif
#ifdef FIXTURE_text_lines
    strcpy(layer->note, "two\nlines");
#endif
#ifdef FIXTURE_text_bytes
    strcpy(layer->note, "bad \xff");
#endif
#ifdef FIXTURE_echo
    snprintf(layer->note, sizeof(layer->note),
             "%s of %s: kind %u, chunk %u, features 0x%x, recompute "
             "0x%x, offload 0x%x, experts %u, dispatcher %u, %u bytes",
             desc->name, desc->family, desc->kind, desc->chunk, desc->features,
             desc->recompute, desc->offload, desc->experts, desc->dispatcher,
             desc->struct_size);
#endif
#ifdef FIXTURE_reserved
    layer->reserved = 1;
#endif
#ifdef FIXTURE_size_changed
    layer->struct_size = 0;
#endif
#ifdef FIXTURE_writes_behind
    memset(layer + 1, 0, 64);
#endif
#ifdef FIXTURE_reads_behind
    if (desc->offload != 0) {
        strcpy(layer->note, "it is offloaded");
    }
#endif
}

static gh_status fixture_describes(void *ctx, uint32_t i,
                                   gh_family_layer *layer, gh_error *err)
{
#ifdef FIXTURE_leaks
    const gh_family_model *model = *(const gh_family_model **)ctx;
#else
    const gh_family_model *model = ctx;
#endif
    const gh_layer_desc *desc = model->layers[i];

    fixture_calls++;
#ifdef FIXTURE_layer_crashes
    abort();
#endif
#ifdef FIXTURE_odd_status
    return GH_RERUN;
#endif
    if (desc->kind != GH_LAYER_DENSE && desc->kind != GH_LAYER_MOE) {
#ifndef FIXTURE_silent
        strcpy(err->text, "the fixture knows dense and moe layers alone");
#endif
#ifndef FIXTURE_knows_all
        return GH_ERR_UNSUPPORTED;
#endif
    }
#ifdef FIXTURE_knows_nothing
    strcpy(err->text, "the fixture knows nothing");
    return GH_ERR_UNSUPPORTED;
#endif
#ifdef FIXTURE_unresolved
    layer->reserved = (uint32_t)symbol_of_nobody();
#endif
#ifdef FIXTURE_knows_all
    layer->n_parts = 1;
    layer->parts[0] = GH_PART_MAMBA;
    layer->capturable = 1u << GH_PART_MAMBA;
    return GH_OK;
#endif
#ifdef FIXTURE_backwards
    /* Right, and other parts than the kind's: the MLP first. */
    if (desc->kind == GH_LAYER_DENSE) {
        add(layer, GH_PART_MLP);
        add(layer, GH_PART_MAMBA);
        add(layer, GH_PART_ATTN);
        return GH_OK;
    }
#endif
    describe(desc, layer);
    spoil(desc, i, layer);
    return GH_OK;
}

/* ---- the table ----------------------------------------------------------- */

#if defined(FIXTURE_older)
/* As the first release had it: it ended with `layer`. */
struct older {
    uint32_t struct_size, caps;
    const char *name;
    gh_status (*open)(const gh_family_model *, void **, gh_error *);
    void (*close)(void *);
    gh_status (*layer)(void *, uint32_t, gh_family_layer *, gh_error *);
    const char *not_about;
};
GH_API extern const struct older graphhooks_family_v1;
const struct older graphhooks_family_v1 = {
    offsetof(struct older, not_about),
    0,
    NAME,
    fixture_opens,
    fixture_closes,
    fixture_describes,
    "behind its end",
};
#elif defined(FIXTURE_longer)
struct longer {
    gh_family known;
    const char *(*slot_of_a_later_release)(void);
};
GH_API extern const struct longer graphhooks_family_v1;
const struct longer graphhooks_family_v1 = {
    { sizeof(struct longer), 0, NAME, fixture_opens, fixture_closes,
      fixture_describes, "a family of a later release" },
    (const char *(*)(void))fixture_closes,
};
#elif defined(FIXTURE_no_symbol)
GH_API extern const gh_family graphhooks_family_v0;
const gh_family graphhooks_family_v0 = {
    sizeof(gh_family), 0,    NAME, fixture_opens, fixture_closes,
    fixture_describes, NULL,
};
#else
GH_FAMILY_DEFINE = {
#ifdef FIXTURE_short
    .struct_size = 24,
#else
    .struct_size = sizeof(gh_family),
#endif
#ifdef FIXTURE_caps
    .caps = 2,
#endif
#if defined(FIXTURE_wrong_name)
    .name = "somebody_else",
#elif defined(FIXTURE_name_wild)
    .name = (const char *)16,
#elif !defined(FIXTURE_empty_name)
    .name = NAME,
#endif
#ifndef FIXTURE_empty_open
    .open = fixture_opens,
#endif
#ifndef FIXTURE_empty_close
    .close = fixture_closes,
#endif
#ifndef FIXTURE_empty_layer
    .layer = fixture_describes,
#endif
};
#endif
