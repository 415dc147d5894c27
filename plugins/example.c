/*
 * example.c - a family of your own, to begin with.
 *
 * Copy this file to mine.c and change .name at its end to "mine": the name in
 * the table is the name of the file.  It needs the installed headers and
 * nothing else:
 *
 *     cc -shared -fPIC -fvisibility=hidden -o mine.so mine.c \
 *         $(pkg-config --cflags graphhooks)
 *     graphhooks-conform ./mine.so
 *
 * Put mine.so into a directory of GRAPHHOOKS_PLUGIN_PATH, and name "mine" in
 * gh_layer_desc.family.
 *
 * This one knows dense layers whose attention picks its kernels by the length
 * of the sequences.  A graph cannot follow that, so attention stays eager, and
 * the MLP is captured.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <graphhooks/family.h>

#include <stdlib.h>
#include <string.h>

/* Called once for each session that opens, before anything else.  What a
 * family keeps goes into its ctx: two sessions may be opening at once. */
struct context {
    const gh_family_model *model;
};

static gh_status example_open(const gh_family_model *model, void **ctx_p,
                              gh_error *err)
{
    struct context *context = malloc(sizeof(*context));

    if (context == NULL) {
        strcpy(err->text, "no memory");
        return GH_ERR_NO_MEMORY;
    }
    context->model = model; /* valid until close */
    *ctx_p = context;
    return GH_OK;
}

/* Called before gh_session_open() returns.  From then on nothing of the
 * family is called, so no step can wait for it. */
static void example_close(void *ctx)
{
    free(ctx);
}

/* Called for every layer that names the family, several times and in any
 * order: the answer depends on the model alone.  `layer` is zero but for its
 * struct_size; fill in fields, and never assign the whole struct. */
static gh_status example_layer(void *ctx, uint32_t i, gh_family_layer *layer,
                               gh_error *err)
{
    const struct context *context = ctx;
    const gh_layer_desc *desc = context->model->layers[i];

    /* A kind that the family does not know: the sentence goes on where
     * "layer 3: family example (...): " ends, and says what to do. */
    if (desc->kind != GH_LAYER_DENSE) {
        strcpy(err->text, "example knows dense layers alone: name another "
                          "family for it");
        return GH_ERR_UNSUPPORTED;
    }

    /* Its parts, in the order in which the layer runs them. */
    layer->n_parts = 2;
    layer->parts[0] = GH_PART_ATTN;
    layer->parts[1] = GH_PART_MLP;

    /* What a graph may hold, and why the rest may not. */
    layer->capturable = 1u << GH_PART_MLP;
    strcpy(layer->why_not, "its attention picks its kernels by the length of "
                           "the sequences");

    /* What a graph reads besides the inputs of a pass.  It must not move while
     * the graph lives.  Names are static. */
    layer->n_tensors = 1;
    layer->tensors[0].name = "mlp_scale";
    layer->tensors[0].parts = 1u << GH_PART_MLP;

    /* The stages of a layer that is overlapped with another microbatch.  Here
     * there is one, which computes.  Stages are optional, but if there are any,
     * they must cover every part. */
    layer->n_nodes = 1;
    layer->nodes[0].first = GH_PART_ATTN;
    layer->nodes[0].last = GH_PART_MLP;
    layer->nodes[0].lane = GH_LANE_COMPUTE;

    /* What the plan shows about such layers. */
    strcpy(layer->note, "an example: attention stays eager");
    return GH_OK;
}

/* The table is data: the library reads it before it calls anything. */
GH_FAMILY_DEFINE = {
    .struct_size = sizeof(gh_family),
    .name = "example",
    .open = example_open,
    .close = example_close,
    .layer = example_layer,
    .about = "dense layers with an eager attention: a family to copy",
};
