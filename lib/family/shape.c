/*
 * shape.c - checks what a family says of a layer, rule by rule.
 *
 * A description that passes is copied without the bytes that it does not use,
 * so two descriptions are the same exactly if their bytes are.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "family/family.h"

#include "base/json.h"
#include "plan/kinds.h"

#include <stdio.h>
#include <string.h>

/* A description that is being checked, and where its failures go. */
struct check {
    const struct gh_family_where *where;
    const gh_family_layer *layer;
    gh_layer_kind kind;
    uint32_t has; /* bit n: the layer has gh_part n */
    gh_error *err;
};

#define WRONG(check, ...) \
    gh_family_fail((check)->err, GH_ERR_INVALID, (check)->where, __VA_ARGS__)

#define MOE_PARTS 6
#define MOE_BITS (((1u << MOE_PARTS) - 1) << GH_PART_MOE_ROUTER)

static gh_status check_counts(const struct check *c)
{
    const gh_family_layer *layer = c->layer;
    const struct {
        const char *name;
        uint32_t n, least, most;
    } counts[] = {
        { "n_parts", layer->n_parts, 1, GH_FAMILY_PARTS },
        { "n_tensors", layer->n_tensors, 0, GH_FAMILY_TENSORS },
        { "n_nodes", layer->n_nodes, 0, GH_FAMILY_NODES },
    };

    if (layer->struct_size != sizeof(*layer)) {
        return WRONG(c, "it changed the struct_size of gh_family_layer: fill "
                        "in fields instead of assigning the struct");
    }
    if (layer->reserved != 0) {
        return WRONG(c, "gh_family_layer.reserved is set: leave it 0");
    }
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        if (counts[i].n < counts[i].least || counts[i].n > counts[i].most) {
            return WRONG(c, "%s is %u: give a number from %u to %u",
                         counts[i].name, counts[i].n, counts[i].least,
                         counts[i].most);
        }
    }
    return GH_OK;
}

static gh_status check_parts(struct check *c)
{
    const gh_family_layer *layer = c->layer;

    for (uint32_t i = 0; i < layer->n_parts; i++) {
        const gh_part part = layer->parts[i];

        if (part >= GH_PART_COUNT) {
            return WRONG(c,
                         "parts[%u] is %u, which is no gh_part: give one "
                         "below %d",
                         i, part, GH_PART_COUNT);
        }
        if ((c->has & 1u << part) != 0) {
            return WRONG(c, "parts[%u] is %s once more: name every part once",
                         i, gh_part_name(part));
        }
        c->has |= 1u << part;
    }
    return GH_OK;
}

/* Checks that the embedding comes first and the head last, around other parts.
 * Which layers have them is for the plan to say. */
static gh_status check_ends(const struct check *c)
{
    const gh_family_layer *layer = c->layer;
    const uint32_t ends = 1u << GH_PART_EMBEDDING | 1u << GH_PART_HEAD;

    if ((c->has & ~ends) == 0) {
        return WRONG(c, "the layer has no part of its own: name one");
    }
    for (uint32_t i = 0; i < layer->n_parts; i++) {
        if ((layer->parts[i] == GH_PART_EMBEDDING && i > 0) ||
            (layer->parts[i] == GH_PART_HEAD && i + 1 < layer->n_parts)) {
            return WRONG(c,
                         "parts[%u] is %s: the embedding comes first, and the "
                         "head last",
                         i, gh_part_name(layer->parts[i]));
        }
    }
    return GH_OK;
}

/* Checks that the parts of experts are all there in their order, or all
 * missing, because their borders are those of one mixture of experts. */
static gh_status check_experts(const struct check *c)
{
    const gh_family_layer *layer = c->layer;
    uint32_t first = 0;

    if ((c->has & MOE_BITS) == 0) {
        return GH_OK;
    }
    if (!gh_kind_has(c->kind, GH_PART_MOE_ROUTER)) {
        return WRONG(c,
                     "it gives a %s layer parts of experts: only kinds "
                     "with experts have them",
                     gh_kinds[c->kind].name);
    }
    while (((1u << layer->parts[first]) & MOE_BITS) == 0) {
        first++;
    }
    for (uint32_t i = 0; i < MOE_PARTS; i++) {
        if (first + i >= layer->n_parts ||
            layer->parts[first + i] != GH_PART_MOE_ROUTER + i) {
            return WRONG(c,
                         "the parts of experts are not all six in their "
                         "order: %s belongs at parts[%u]",
                         gh_part_name(GH_PART_MOE_ROUTER + i), first + i);
        }
    }
    return GH_OK;
}

static gh_status check_bits(const struct check *c, const char *what,
                            uint32_t parts)
{
    if ((parts & ~c->has) == 0) {
        return GH_OK;
    }
    return WRONG(c,
                 "%s has bits 0x%x, which are no parts of the layer: leave "
                 "them out",
                 what, parts & ~c->has);
}

static gh_status check_tensors(const struct check *c)
{
    for (uint32_t i = 0; i < c->layer->n_tensors; i++) {
        const gh_family_tensor *tensor = &c->layer->tensors[i];
        gh_status status;
        char what[32];

        if (tensor->name == NULL || !gh_family_name_is_good(tensor->name)) {
            return WRONG(c,
                         "tensors[%u] has no good name: use letters, "
                         "digits, _ and -, at most %d of them",
                         i, GH_FAMILY_NAME - 1);
        }
        for (uint32_t k = 0; k < i; k++) {
            if (strcmp(c->layer->tensors[k].name, tensor->name) == 0) {
                return WRONG(c,
                             "tensors[%u] is called %s too: give every "
                             "tensor a name of its own",
                             i, tensor->name);
            }
        }
        snprintf(what, sizeof(what), "tensors[%u].parts", i);
        status = check_bits(c, what, tensor->parts);
        if (status != GH_OK) {
            return status;
        }
        if (tensor->parts == 0 || tensor->reserved != 0) {
            return WRONG(c, "tensors[%u], %s, %s", i, tensor->name,
                         tensor->parts == 0
                             ? "is read by no part: name one, or leave it out"
                             : "has reserved set: leave it 0");
        }
    }
    return GH_OK;
}

/* Checks that each node begins where the one before ends, from the first part
 * to the last. */
static gh_status check_nodes(const struct check *c)
{
    const gh_family_layer *layer = c->layer;
    uint32_t next = 0;

    for (uint32_t i = 0; i < layer->n_nodes; i++) {
        const gh_family_node *node = &layer->nodes[i];

        if (node->lane > GH_LANE_COMM || node->reserved != 0) {
            return WRONG(c, "nodes[%u] has %s", i,
                         node->reserved != 0
                             ? "reserved set: leave it 0"
                             : "an unknown lane: give compute or comm");
        }
        if (next >= layer->n_parts || node->first != layer->parts[next]) {
            return WRONG(c,
                         "nodes[%u] begins at %s and not at %s: let nodes "
                         "cover the parts in their order, each once",
                         i, gh_part_name(node->first),
                         next < layer->n_parts
                             ? gh_part_name(layer->parts[next])
                             : "the layer's end");
        }
        while (next < layer->n_parts && layer->parts[next] != node->last) {
            next++;
        }
        next++;
    }
    if (layer->n_nodes > 0 && next != layer->n_parts) {
        return WRONG(c,
                     "nodes end %s the last part: let them cover the parts "
                     "in their order, each once",
                     next < layer->n_parts ? "before" : "beyond");
    }
    return GH_OK;
}

static gh_status check_text(const struct check *c, const char *field,
                            const char *text)
{
    const size_t bytes = strnlen(text, GH_FAMILY_TEXT);

    if (bytes == GH_FAMILY_TEXT) {
        return WRONG(c, "%s does not end: give at most %d bytes and a zero",
                     field, GH_FAMILY_TEXT - 1);
    }
    for (size_t i = 0; i < bytes; i++) {
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7F) {
            return WRONG(c,
                         "%s has a control character in it: give one line "
                         "of text",
                         field);
        }
    }
    for (size_t i = 0; i < bytes;) {
        const size_t n = gh_utf8_bytes(text + i);

        if (n == 0) {
            return WRONG(c, "%s is not UTF-8 at byte %zu: give UTF-8 text",
                         field, i);
        }
        i += n;
    }
    return GH_OK;
}

static gh_status check_texts(const struct check *c)
{
    const uint32_t held_back = c->has & ~c->layer->capturable;
    gh_status status = check_text(c, "why_not", c->layer->why_not);

    if (status == GH_OK) {
        status = check_text(c, "note", c->layer->note);
    }
    if (status != GH_OK) {
        return status;
    }
    if (held_back != 0 && c->layer->why_not[0] == '\0') {
        return WRONG(c,
                     "parts 0x%x are not capturable and why_not is empty: "
                     "say why in a sentence",
                     held_back);
    }
    if (held_back == 0 && c->layer->why_not[0] != '\0') {
        return WRONG(c, "why_not is given and every part is capturable: leave "
                        "it empty");
    }
    return GH_OK;
}

static void copy(const gh_family_layer *layer, struct gh_traits *traits)
{
    gh_family_layer *ours = &traits->layer;

    memset(traits, 0, sizeof(*traits));
    ours->struct_size = sizeof(*ours);
    ours->n_parts = layer->n_parts;
    ours->capturable = layer->capturable;
    ours->n_tensors = layer->n_tensors;
    ours->n_nodes = layer->n_nodes;
    memcpy(ours->parts, layer->parts, layer->n_parts * sizeof(gh_part));
    memcpy(ours->nodes, layer->nodes, layer->n_nodes * sizeof(gh_family_node));
    for (uint32_t i = 0; i < layer->n_tensors; i++) {
        ours->tensors[i].parts = layer->tensors[i].parts;
        strcpy(traits->names[i], layer->tensors[i].name);
    }
    strcpy(ours->why_not, layer->why_not);
    strcpy(ours->note, layer->note);
}

gh_status gh_family_take_layer(const struct gh_family_where *where,
                               gh_layer_kind kind, const gh_family_layer *layer,
                               struct gh_traits *traits, gh_error *err)
{
    struct check c = {
        .where = where, .layer = layer, .kind = kind, .err = err
    };
    gh_status status;

    if ((status = check_counts(&c)) != GH_OK ||
        (status = check_parts(&c)) != GH_OK ||
        (status = check_ends(&c)) != GH_OK ||
        (status = check_experts(&c)) != GH_OK ||
        (status = check_bits(&c, "capturable", layer->capturable)) != GH_OK ||
        (status = check_tensors(&c)) != GH_OK ||
        (status = check_nodes(&c)) != GH_OK ||
        (status = check_texts(&c)) != GH_OK) {
        return status;
    }
    copy(layer, traits);
    return GH_OK;
}

gh_status gh_family_answer(const struct gh_family_where *where,
                           const char *slot, gh_status status, gh_error *theirs,
                           gh_error *err)
{
    if (status == GH_OK) {
        return GH_OK;
    }
    if (status != GH_ERR_UNSUPPORTED && status != GH_ERR_NO_MEMORY) {
        return gh_family_fail(err, GH_ERR_INVALID, where,
                              "its %s returned %d: let it return GH_OK, "
                              "GH_ERR_UNSUPPORTED or GH_ERR_NO_MEMORY",
                              slot, status);
    }
    theirs->text[sizeof(theirs->text) - 1] = '\0';
    if (theirs->text[0] == '\0') {
        return gh_family_fail(err, status, where,
                              "its %s failed and does not say why: let it "
                              "fill in its gh_error",
                              slot);
    }
    return gh_family_fail(err, status, where, "%s", theirs->text);
}

gh_status gh_family_ask(const struct gh_family_where *where,
                        const gh_family *family, void *ctx, uint32_t i,
                        gh_layer_kind kind, struct gh_traits *traits,
                        gh_error *err)
{
    gh_family_layer layer = { .struct_size = sizeof(layer) };
    gh_error theirs = { "" };
    gh_status status = family->layer(ctx, i, &layer, &theirs);

    status = gh_family_answer(where, "layer", status, &theirs, err);
    if (status != GH_OK) {
        return status;
    }
    return gh_family_take_layer(where, kind, &layer, traits, err);
}

const char *gh_family_difference(const struct gh_traits *a,
                                 const struct gh_traits *b)
{
#define DIFFER(field) memcmp(&a->field, &b->field, sizeof(a->field)) != 0
    if (DIFFER(layer.n_parts) || DIFFER(layer.parts)) {
        return "parts";
    }
    if (DIFFER(layer.capturable)) {
        return "capturable";
    }
    if (DIFFER(layer.n_tensors) || DIFFER(layer.tensors) || DIFFER(names)) {
        return "tensors";
    }
    if (DIFFER(layer.n_nodes) || DIFFER(layer.nodes)) {
        return "nodes";
    }
    if (DIFFER(layer.why_not)) {
        return "why_not";
    }
    return DIFFER(layer.note) ? "note" : NULL;
#undef DIFFER
}
