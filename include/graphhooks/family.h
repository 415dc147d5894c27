/*
 * graphhooks/family.h - a plugin that knows one kind of model.
 *
 * A family is a shared object NAME.so with one data symbol, a table.  A layer
 * whose gh_layer_desc.family is NAME is described by it: which parts it has,
 * which of them a graph may hold, what a graph reads besides its inputs.  The
 * library looks for it in the directories of GRAPHHOOKS_PLUGIN_PATH, then
 * beside itself, then where it was installed; the first one found counts, so
 * a user's own gpt.so stands in for ours.
 *
 * A family is called only while a session opens, on the thread that opens it,
 * and never from inside a step.  A crash in it ends the host; the log names
 * its file before, at GH_LOG_INFO, and families are called one after the
 * other, so the last file named is the one.  Sessions may open at the same
 * time on several threads, so what a family keeps is in its ctx.  It calls
 * nothing of the library, so it links against nothing.  It has no
 * constructors: the library reads the file first and refuses one that has
 * any, so no code of a plugin runs before its table has been checked; what
 * the file needs besides libc is not read, so a family needs nothing else, and
 * graphhooks-conform refuses one that does.  It is never unloaded.
 *
 * graphhooks-conform runs every rule of this header against any family.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GRAPHHOOKS_FAMILY_H
#define GRAPHHOOKS_FAMILY_H

#include <graphhooks/base.h>
#include <graphhooks/model.h>

GH_BEGIN_DECLS

/* Bounds of one layer's description. */
#define GH_FAMILY_PARTS 16
#define GH_FAMILY_TENSORS 8
#define GH_FAMILY_NODES 16
#define GH_FAMILY_TEXT 200
/* Of a family's name and of a tensor's: letters, digits, "_" and "-", in so
 * many bytes with the one that ends it. */
#define GH_FAMILY_NAME 64

/* Where a node of an overlapped layer runs.  Values are frozen. */
typedef uint32_t gh_lane;
enum {
    GH_LANE_COMPUTE = 0,
    GH_LANE_COMM = 1
};

/* The model as the host has described it, for reading. */
typedef struct gh_family_model {
    uint32_t struct_size;
    uint32_t n_layers;
    /* Each of the size that it says itself; with its name, never NULL. */
    const gh_layer_desc *const *layers;
} gh_family_model;

/* A tensor that a graph reads and that is no input of any pass: it must stay
 * where it is for as long as the graph lives.  gh_aux_bind() binds it.
 * Frozen: arrays of it cross the ABI. */
typedef struct gh_family_tensor {
    const char *name;  /* "rotary_cos"; static storage of the plugin; no two
                          of a layer are called alike */
    uint32_t parts;    /* bit n: gh_part n reads it; parts of this layer, at
                          least one */
    uint32_t reserved; /* 0 */
} gh_family_tensor;

/* One stage of an overlapped layer: a run of its parts on one lane.
 * Frozen: arrays of it cross the ABI. */
typedef struct gh_family_node {
    gh_part first, last;
    gh_lane lane;
    uint32_t reserved; /* 0 */
} gh_family_node;

/**
 * What a family says of one layer.  The library zeroes it, sets struct_size,
 * and the family fills in fields; it writes nothing beyond struct_size, so it
 * does not assign the struct as a whole.  All zero is a layer without parts,
 * which is refused.
 *
 * Parts are distinct and in the order in which the layer runs them.  Of the
 * parts of a mixture of experts a layer has all six, one after the other in
 * the order of gh_part, or none; only a layer whose kind has experts has them.
 * Nodes, where there are any, cover the parts in their order, each once.
 */
typedef struct gh_family_layer {
    uint32_t struct_size;
    uint32_t n_parts;
    gh_part parts[GH_FAMILY_PARTS];
    uint32_t capturable; /* bit n: a graph may hold gh_part n, as far as the
                            family knows; the plan's rules come on top */
    uint32_t n_tensors;
    gh_family_tensor tensors[GH_FAMILY_TENSORS];
    uint32_t n_nodes;
    uint32_t reserved; /* 0 */
    gh_family_node nodes[GH_FAMILY_NODES];
    /* Both texts are one line of UTF-8, and end in a zero byte. */
    /* Continues "layer 3: "; given where a part is not capturable, and only
     * there. */
    char why_not[GH_FAMILY_TEXT];
    /* What the plan says of the layer; "": nothing. */
    char note[GH_FAMILY_TEXT];
} gh_family_layer;

/**
 * The table.  Slots are only ever added at the end.  A table may be shorter
 * or longer than the library's: the library reads what both know.
 */
typedef struct gh_family {
    uint32_t struct_size; /* sizeof(gh_family) where the plugin was built */
    uint32_t caps;        /* promises beyond the slots; none defined: 0 */
    const char *name;     /* as its file is called; static storage */

    /* Required: take the model.  `model` is valid until close.
     * Returns GH_OK, or GH_ERR_UNSUPPORTED or GH_ERR_NO_MEMORY with a
     * sentence, and the session does not open. */
    gh_status (*open)(const gh_family_model *model, void **ctx_p,
                      gh_error *err);

    /* Required: undo open; never called after a failed one. */
    void (*close)(void *ctx);

    /* Required: describe layer `i`, one that names this family.  The same
     * layer gives the same description, whenever it is asked and after
     * whichever others; no side effects.  Returns GH_OK; GH_ERR_UNSUPPORTED
     * with a sentence that continues "layer 3: " for a layer that the family
     * does not know; GH_ERR_NO_MEMORY. */
    gh_status (*layer)(void *ctx, uint32_t i, gh_family_layer *layer,
                       gh_error *err);

    /* Optional, default "": what the family is, for `graphhooks info`; one
     * line, static text.  Data, so that nobody is called to learn of it. */
    const char *about;
} gh_family;

/* The major version is the symbol, so a wrong one is simply not found. */
#define GH_FAMILY_SYMBOL "graphhooks_family_v1"
#if defined(__cplusplus)
#define GH_FAMILY_EXTERN extern "C"
#else
#define GH_FAMILY_EXTERN extern
#endif
/* GH_FAMILY_DEFINE = { .struct_size = sizeof(gh_family), ... }; */
#define GH_FAMILY_DEFINE \
    GH_FAMILY_EXTERN GH_API const gh_family graphhooks_family_v1; \
    const gh_family graphhooks_family_v1

GH_END_DECLS

#endif
