/*
 * graphhooks/family.h - a plugin that knows one kind of model.
 *
 * A family is a shared object NAME.so that exports one data symbol, a table.
 * It describes every layer whose gh_layer_desc.family is NAME: which parts the
 * layer has, which of them a graph may hold, and which tensors a graph reads
 * besides its inputs.  The library looks for the file in the directories of
 * GRAPHHOOKS_PLUGIN_PATH, then in its own directory, then where plugins were
 * installed.  The first file found is used, so a user's gpt.so can replace the
 * one that comes with the library.
 *
 * Rules for a family:
 *
 * - The library calls it only while a session opens, on the thread that opens
 *   it.  Several threads may open sessions at once, so it keeps its state in
 *   its ctx.
 * - It calls nothing of the library, and needs no shared library but libc.
 * - It has no constructors.  The library reads the file before it loads it and
 *   refuses one that has any, so no code of a plugin runs before its table has
 *   been checked.  It does not read the files that the plugin depends on;
 *   graphhooks-conform refuses a plugin that depends on more than libc.
 * - It is never unloaded.
 * - A crash in it ends the host.  Families are called one after the other, and
 *   the log names each file at GH_LOG_INFO before it is called, so the last
 *   file named is the one that crashed.
 *
 * graphhooks-conform checks a family against every rule of this header.
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
/* Bytes of a name of a family or of a tensor, the terminating NUL included.
 * A name has letters, digits, "_" and "-". */
#define GH_FAMILY_NAME 64

/* Where a node of an overlapped layer runs.  Values are frozen.  Since 0.2. */
typedef uint32_t gh_lane;
enum {
    GH_LANE_COMPUTE = 0,
    GH_LANE_COMM = 1
};

/* The model as the host has described it.  Owned by the library, read-only.
 * Since 0.2. */
typedef struct gh_family_model {
    uint32_t struct_size;
    uint32_t n_layers;
    /* n_layers; read of each only what its struct_size covers.  Its `name` is
     * never NULL. */
    const gh_layer_desc *const *layers;
} gh_family_model;

/* A tensor that a graph reads and that is not an input of a pass: it stays at
 * one address as long as the graph lives.  The host binds it by gh_aux_bind().
 * Frozen: arrays of it cross the ABI.  Since 0.2. */
typedef struct gh_family_tensor {
    const char *name;  /* such as "rotary_cos", unique in its layer; static
                          storage of the plugin */
    uint32_t parts;    /* bit n: gh_part n reads it; at least one part, and
                          only parts of this layer */
    uint32_t reserved; /* 0 */
} gh_family_tensor;

/* One node of an overlapped layer: consecutive parts that run on one lane.
 * Frozen: arrays of it cross the ABI.  Since 0.2. */
typedef struct gh_family_node {
    gh_part first, last;
    gh_lane lane;
    uint32_t reserved; /* 0 */
} gh_family_node;

/**
 * The description of one layer.  The library zeroes it and sets struct_size,
 * then the family fills in fields.  The family writes nothing beyond
 * struct_size, so it must not assign the struct as a whole.
 *
 * A layer has at least one part.  Its parts are distinct and in the order in
 * which the layer runs them.  A layer with GH_FEATURE_EMBEDDING may have
 * GH_PART_EMBEDDING before the others, and one with GH_FEATURE_HEAD
 * GH_PART_HEAD behind them.  A layer of a kind that has experts has either all
 * six GH_PART_MOE_*, one after the other in the order of gh_part, or none of
 * them; other kinds have none.  Nodes are optional; together they cover each
 * part once, in order.  Since 0.2.
 */
typedef struct gh_family_layer {
    uint32_t struct_size;
    uint32_t n_parts;
    gh_part parts[GH_FAMILY_PARTS];
    uint32_t capturable; /* bit n: the family allows gh_part n in a graph.  The
                            rules of the plan may still exclude it */
    uint32_t n_tensors;
    gh_family_tensor tensors[GH_FAMILY_TENSORS];
    uint32_t n_nodes;
    uint32_t reserved; /* 0 */
    gh_family_node nodes[GH_FAMILY_NODES];
    /* Both texts are one line of UTF-8 and NUL-terminated. */
    /* Why a part is not capturable, as the end of a sentence that begins with
     * "layer 3: ".  Required if there is such a part; else "". */
    char why_not[GH_FAMILY_TEXT];
    /* A remark that the plan prints with the layer; "": none. */
    char note[GH_FAMILY_TEXT];
} gh_family_layer;

/**
 * The table.  Slots are only ever added at the end.  A table may be shorter
 * or longer than the library's: the library reads what both know.  Since 0.2.
 */
typedef struct gh_family {
    uint32_t struct_size; /* sizeof(gh_family) where the plugin was built */
    uint32_t caps;        /* promises beyond the slots; none defined: 0 */
    const char *name;     /* the file's name without ".so"; static storage */

    /* Required: accept the model, which is valid until close.  Returns GH_OK;
     * or GH_ERR_UNSUPPORTED or GH_ERR_NO_MEMORY with a sentence in err, and the
     * session does not open. */
    gh_status (*open)(const gh_family_model *model, void **ctx_p,
                      gh_error *err);

    /* Required: undo open; never called after a failed one. */
    void (*close)(void *ctx);

    /* Required: describe layer `i`, which names this family.  It has no side
     * effects: each call for a layer gives the same description, whichever
     * layers were described before.  Returns GH_OK; GH_ERR_UNSUPPORTED for a
     * layer that the family does not know, with a text that continues
     * "layer 3: "; GH_ERR_NO_MEMORY. */
    gh_status (*layer)(void *ctx, uint32_t i, gh_family_layer *layer,
                       gh_error *err);

    /* Optional, default "": one line on what the family is, which
     * `graphhooks info` prints without calling the plugin; static text. */
    const char *about;
} gh_family;

/* The symbol names the major version, so that the library does not find the
 * table of another major. */
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
