/*
 * pair.c - see pair.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/pair.h"

#include <stdio.h>
#include <string.h>

#define ELEMS 4u
#define STRIDE 256u
#define MAX_SLOTS 4u
#define SETS PAIR_MAX_SETS
#define POISON 0xdeadbeefu
#define ABSENT UINT32_MAX
#define OFFLOADED "attn_norm,core_attn,mlp_norm,expert_fc1,moe_act"

#define CALL(p, entry, args) call((p), (p)->toy.drv.entry args, #entry)

static bool call(struct pair *p, CUresult result, const char *entry)
{
    if (result != CUDA_SUCCESS) {
        snprintf(p->err.text, sizeof(p->err.text), "%s: %d", entry,
                 (int)result);
    }
    return result == CUDA_SUCCESS;
}

/* ---- memory -------------------------------------------------------------- */

/* Of a set: by part what it writes, and the gradient of what it reads; by
 * layer the residual and its gradient; by chunk what comes from outside.  After
 * the sets: the weights, and what chunks hand on. */
enum where {
    OUT,
    GRAD,
    RESIDUAL,
    RESIDUAL_GRAD,
    DEPTH, /* what a depth begins with, and the gradient before it */
    DEPTH_GRAD,
    INPUT,
    OUTPUT_GRAD,
    WHERES
};

static const uint32_t places[WHERES] = { PAIR_MAX_PARTS,  PAIR_MAX_PARTS,
                                         PAIR_MAX_LAYERS, PAIR_MAX_LAYERS,
                                         PAIR_MAX_LAYERS, PAIR_MAX_LAYERS,
                                         PAIR_MAX_CHUNKS, PAIR_MAX_CHUNKS };

static uint32_t in_a_set(void)
{
    uint32_t n = 0;

    for (int i = 0; i < WHERES; i++) {
        n += places[i];
    }
    return n;
}

static CUdeviceptr at(const struct pair *p, uint32_t set, enum where where,
                      uint32_t i)
{
    uint32_t n = set * in_a_set() + i;

    for (int w = 0; w < (int)where; w++) {
        n += places[w];
    }
    return p->memory + (uint64_t)n * STRIDE;
}

static CUdeviceptr weight(const struct pair *p, uint32_t part)
{
    return p->memory + (uint64_t)(SETS * in_a_set() + part) * STRIDE;
}

/* The input of a chunk, or the gradient of its output. */
static CUdeviceptr feed(const struct pair *p, bool forward, uint32_t chunk,
                        uint32_t m)
{
    const uint32_t n =
        ((forward ? 0 : 1) * (PAIR_MAX_CHUNKS + 1) + chunk) *
            PAIR_MAX_MICROBATCHES +
        m;

    return weight(p, PAIR_MAX_PARTS + n);
}

static uint64_t all_memory(void)
{
    return (uint64_t)(SETS * in_a_set() + PAIR_MAX_PARTS +
                      2 * (PAIR_MAX_CHUNKS + 1) * PAIR_MAX_MICROBATCHES) *
           STRIDE;
}

/* ---- the model ----------------------------------------------------------- */

static uint32_t n_chunks(const struct pair *p)
{
    return p->options.chunks == 0 ? 1 : p->options.chunks;
}

static uint32_t chunk_of(const struct pair *p, uint32_t layer)
{
    return layer * n_chunks(p) / p->options.layers;
}

static bool begins_chunk(const struct pair *p, uint32_t q)
{
    return q == 0 || chunk_of(p, p->layer_of[q]) !=
                         chunk_of(p, p->layer_of[q - 1]);
}

static bool ends_chunk(const struct pair *p, uint32_t q)
{
    return q + 1 == p->n_parts || begins_chunk(p, q + 1);
}

/* Whether a depth of prediction begins with the part. */
static bool begins_depth(const struct pair *p, uint32_t q)
{
    return q > 0 && q < p->n_parts && p->first[p->layer_of[q]] == q &&
           (p->options.depths & 1u << p->layer_of[q]) != 0;
}

static bool is_exchange(gh_part part)
{
    return part == GH_PART_MOE_DISPATCH || part == GH_PART_MOE_COMBINE;
}

static bool has_weights(gh_part part)
{
    return part == GH_PART_ATTN || part == GH_PART_MLP ||
           part == GH_PART_MAMBA || part == GH_PART_MOE_EXPERTS;
}

static void add_parts(struct pair *p, uint32_t layer)
{
    static const struct {
        gh_part first, last;
    } parts[][2] = {
        [GH_LAYER_DENSE] = { { GH_PART_ATTN, GH_PART_MLP }, { 1, 0 } },
        [GH_LAYER_MOE] = { { GH_PART_ATTN, GH_PART_ATTN },
                           { GH_PART_MOE_ROUTER, GH_PART_MOE_POST } },
        [GH_LAYER_MAMBA] = { { GH_PART_MAMBA, GH_PART_MAMBA }, { 1, 0 } },
        [GH_LAYER_ATTN_ONLY] = { { GH_PART_ATTN, GH_PART_ATTN }, { 1, 0 } },
        [GH_LAYER_MLP_ONLY] = { { GH_PART_MLP, GH_PART_MLP }, { 1, 0 } },
        [GH_LAYER_MOE_ONLY] = { { GH_PART_MOE_ROUTER, GH_PART_MOE_POST },
                                { 1, 0 } },
    };

    p->first[layer] = p->n_parts;
    for (int i = 0; i < 2; i++) {
        for (gh_part part = parts[p->options.kinds[layer]][i].first;
             part <= parts[p->options.kinds[layer]][i].last; part++) {
            p->parts[p->n_parts] = part;
            p->layer_of[p->n_parts++] = layer;
        }
    }
    p->first[layer + 1] = p->n_parts;
}

static uint32_t part_at(const struct pair *p, uint32_t layer, gh_part part)
{
    uint32_t q = p->first[layer];

    while (p->parts[q] != part) {
        q++;
    }
    return q;
}

/* ---- kernels ------------------------------------------------------------- */

static bool mix(struct pair *p, CUdeviceptr d, CUdeviceptr a, CUdeviceptr b,
                uint32_t f, uint32_t k, CUstream stream)
{
    return call(p, toy_mix(&p->toy, d, a, b, f, k, ELEMS, stream),
                "cuLaunchKernel");
}

/* A pass as it is issued. */
struct work {
    uint32_t first, last; /* parts */
    uint32_t set, chunk;
    gh_direction direction;
    bool weights;
    CUdeviceptr input;
    CUstream stream;
};

static bool is_lent(const struct pair *p, uint32_t q, uint32_t g)
{
    return p->options.lends && p->parts[q] == GH_PART_MOE_EXPERTS && g == 0;
}

/* What a part writes: memory that its reader is to lend, or its own. */
static CUdeviceptr output_of(const struct pair *p, uint32_t set, uint32_t q)
{
    return q + 1 < p->n_parts && is_lent(p, q + 1, 0)
               ? p->lent[set][q + 1]->address
               : at(p, set, OUT, q);
}

static CUdeviceptr input_of(const struct pair *p, const struct work *w,
                            uint32_t q)
{
    if (begins_depth(p, q)) {
        return at(p, w->set, DEPTH, p->layer_of[q]);
    }
    return begins_chunk(p, q) ? at(p, w->set, INPUT, w->chunk)
                              : output_of(p, w->set, q - 1);
}

/* The gradient of what a part writes. */
static CUdeviceptr gradient_after(const struct pair *p, uint32_t set,
                                  uint32_t q)
{
    return begins_depth(p, q + 1)
               ? at(p, set, DEPTH_GRAD, p->layer_of[q + 1])
               : at(p, set, GRAD, q + 1);
}

/* ---- groups -------------------------------------------------------------- */

/* What a part keeps, by what it is. */
static uint32_t groups_of(const struct pair *p, uint32_t q,
                          const uint32_t **modules_p)
{
    static const uint32_t attn[] = { GH_MODULE_ATTN_NORM,
                                     GH_MODULE_CORE_ATTN },
                          norm[] = { GH_MODULE_MLP_NORM },
                          experts[] = { GH_MODULE_EXPERT_FC1,
                                        GH_MODULE_MOE_ACT };

    *modules_p = norm;
    switch (p->options.offload ? p->parts[q] : GH_PART_MOE_COMBINE) {
    case GH_PART_ATTN:
        *modules_p = attn;
        return 2;
    case GH_PART_MOE_ROUTER:
    case GH_PART_MLP:
        *modules_p = norm;
        return 1;
    case GH_PART_MOE_EXPERTS:
        *modules_p = experts;
        return 2;
    default:
        return 0;
    }
}

static uint32_t words_of(const struct pair *p)
{
    return p->options.words == 0 ? ELEMS : p->options.words;
}

/* How much a tensor is above what the part reads. */
static uint32_t above(const struct pair *p, uint32_t q, uint32_t g)
{
    return is_lent(p, q, g) ? 0 : 100 + 10 * q + g;
}

/* gh_offload_save, or _load. */
static bool find_group(struct pair *p, const struct work *w, uint32_t q,
                       uint32_t g)
{
    const bool forward = w->direction == GH_FORWARD;
    struct lent_block *block = is_lent(p, q, g) ? p->lent[w->set][q] : NULL;
    const uint32_t *modules;
    gh_offload_tensor tensor = { NULL, 4 * (uint64_t)words_of(p) };
    gh_offload_group group = { .struct_size = sizeof(group),
                               .layer = p->layer_of[q],
                               .n_tensors = 1,
                               .tensors = &tensor };
    gh_status status;

    groups_of(p, q, &modules);
    group.module = modules[g];
    if (forward && is_lent(p, q, g)) {
        tensor.address = (void *)(uintptr_t)block->address;
        group.flags = GH_OFFLOAD_OWN;
        group.object = block;
    }
    status = (forward ? gh_offload_save : gh_offload_load)(p->toy.session,
                                                           &group, &p->err);
    if (forward && is_lent(p, q, g)) {
        lender_saved(block, status == GH_OK);
    }
    p->kept[w->set][q][g] = (CUdeviceptr)(uintptr_t)tensor.address;
    return status == GH_OK;
}

static bool end_group(struct pair *p, const struct work *w, uint32_t q,
                      uint32_t g)
{
    const bool forward = w->direction == GH_FORWARD;
    const uint32_t *modules;

    groups_of(p, q, &modules);
    return (forward ? gh_offload_commit : gh_offload_release)(
               p->toy.session, p->layer_of[q], modules[g], &p->err) == GH_OK;
}

static bool keep_groups(struct pair *p, const struct work *w, uint32_t q,
                        CUdeviceptr x, CUdeviceptr y)
{
    const uint32_t *modules;
    const uint32_t n = groups_of(p, q, &modules);
    bool good = true;

    for (uint32_t g = 0; g < n && good; g++) {
        CUdeviceptr *t = &p->kept[w->set][q][g];

        good = find_group(p, w, q, g);
        if (good && !is_lent(p, q, g)) {
            good = (words_of(p) == ELEMS ||
                    CALL(p, cuMemsetD32Async,
                         (*t, 0, words_of(p), w->stream))) &&
                   mix(p, *t, x, 0, 1, above(p, q, g), w->stream);
        }
        good = good && mix(p, y, *t, y, 1, 0, w->stream) &&
               end_group(p, w, q, g);
    }
    return good;
}

/* The first group is of the weights, the other one of the gradient. */
static bool read_group(struct pair *p, const struct work *w, uint32_t q,
                       uint32_t g, CUdeviceptr into)
{
    const uint32_t *modules;

    return g >= groups_of(p, q, &modules) ||
           (find_group(p, w, q, g) &&
            mix(p, into, p->kept[w->set][q][g], into, 1, 0, w->stream) &&
            end_group(p, w, q, g));
}

/* ---- what a pass computes ------------------------------------------------ */

static bool run_forward(struct pair *p, const struct work *w)
{
    CUdeviceptr x = w->input, y;
    bool good = true;

    for (uint32_t q = w->first; q <= w->last && good; q++) {
        const uint32_t layer = p->layer_of[q];
        const gh_part part = p->parts[q];

        if (begins_chunk(p, q)) {
            good = mix(p, at(p, w->set, INPUT, w->chunk), x, 0, 1, 0,
                       w->stream);
        }
        if (part == GH_PART_MOE_ROUTER) {
            good = good && mix(p, at(p, w->set, RESIDUAL, layer), x, 0, 7, 1,
                               w->stream);
        }
        y = output_of(p, w->set, q);
        good = good &&
               mix(p, y, x,
                   part == GH_PART_MOE_POST ? at(p, w->set, RESIDUAL, layer)
                                            : 0,
                   3, q + 1, w->stream) &&
               keep_groups(p, w, q, x, y);
        if (good && is_exchange(part) && p->options.exchange != NULL) {
            p->options.exchange(p, w->stream, true);
        }
        x = y;
    }
    return good;
}

static bool add_weight(struct pair *p, const struct work *w, uint32_t q,
                       CUdeviceptr gy)
{
    return mix(p, weight(p, q), weight(p, q), gy, 3, 0, w->stream) &&
           (is_lent(p, q, 0) ||
            mix(p, weight(p, q), weight(p, q), input_of(p, w, q), 1, 0,
                w->stream)) &&
           read_group(p, w, q, 0, weight(p, q));
}

static bool run_gradient(struct pair *p, const struct work *w, uint32_t q,
                         CUdeviceptr gy)
{
    const uint32_t layer = p->layer_of[q];
    const gh_part part = p->parts[q];
    const CUdeviceptr gx = at(p, w->set, GRAD, q);
    bool good = true;

    if (part == GH_PART_MOE_POST) {
        good = mix(p, at(p, w->set, RESIDUAL_GRAD, layer), gy, 0, 2, 0,
                   w->stream);
    }
    good = good && mix(p, gx, gy,
                       is_exchange(part) || is_lent(p, q, 0)
                           ? 0
                           : input_of(p, w, q),
                       5, 0, w->stream) &&
           read_group(p, w, q, has_weights(part), gx);
    if (good && is_exchange(part) && p->options.exchange != NULL) {
        p->options.exchange(p, w->stream, false);
    }
    if (part == GH_PART_MOE_ROUTER) {
        good = good && mix(p, gx, at(p, w->set, RESIDUAL_GRAD, layer), gx, 7,
                           0, w->stream);
    }
    return good;
}

static bool run_backward(struct pair *p, const struct work *w)
{
    CUdeviceptr gy = w->input;
    bool good = true;

    if (w->direction == GH_BACKWARD && ends_chunk(p, w->last)) {
        good = mix(p, at(p, w->set, OUTPUT_GRAD, w->chunk), gy, 0, 1, 0,
                   w->stream);
    }
    for (uint32_t q = w->last + 1; q-- > w->first && good;) {
        if (w->weights && has_weights(p->parts[q])) {
            good = add_weight(p, w, q, gy);
        }
        if (w->direction == GH_BACKWARD) {
            good = good && run_gradient(p, w, q, gy);
        }
        gy = at(p, w->set, GRAD, q);
    }
    return good;
}

/* ---- a pass -------------------------------------------------------------- */

static bool leaves_weights(const struct pair *p, const struct work *w)
{
    bool any = false;

    for (uint32_t q = w->first; q <= w->last; q++) {
        any = any || has_weights(p->parts[q]);
    }
    return p->options.delay_wgrad && any;
}

static gh_buffer find_input(const struct pair *p, const struct work *w,
                            uint32_t m)
{
    const bool forward = w->direction == GH_FORWARD;
    const bool outside = forward ? begins_chunk(p, w->first)
                                 : ends_chunk(p, w->last);
    CUdeviceptr address;

    if (outside && w->direction != GH_WGRAD) {
        address = feed(p, forward, w->chunk, m);
    } else if (outside) {
        address = at(p, w->set, OUTPUT_GRAD, w->chunk);
    } else {
        address = forward ? input_of(p, w, w->first)
                          : gradient_after(p, w->set, w->last);
    }
    return toy_buffer(address, 4 * ELEMS,
                      outside && w->direction != GH_WGRAD ? 0
                                                          : GH_BUFFER_STATIC);
}

static gh_buffer find_output(const struct pair *p, const struct work *w)
{
    CUdeviceptr address = weight(p, w->first);

    if (w->direction == GH_FORWARD) {
        address = output_of(p, w->set, w->last);
    } else if (w->direction == GH_BACKWARD) {
        address = at(p, w->set, GRAD, w->first);
    }
    return toy_buffer(address, 4 * ELEMS,
                      w->direction == GH_WGRAD ? GH_BUFFER_UPDATED : 0);
}

static uint32_t set_for(struct pair *p, uint32_t chunk, uint32_t m,
                        uint32_t slot)
{
    return p->set_of[chunk][m] = slot != GH_SLOT_NONE ? slot : MAX_SLOTS + m;
}

static gh_status fail(gh_error *err, const char *text)
{
    snprintf(err->text, sizeof(err->text), "%s", text);
    return GH_ERR_DEVICE;
}

static gh_status run_segment(struct pair *p, const gh_segment *s,
                             const gh_overlap_node *node, gh_error *err)
{
    struct work w = {
        .first = part_at(p, s->first_layer, s->first_part),
        .last = part_at(p, s->last_layer, s->last_part),
        .set = p->set_of[node->chunk][node->microbatch],
        .chunk = node->chunk,
        .direction = node->direction,
    };
    const bool later = leaves_weights(p, &w);
    gh_buffer input = find_input(p, &w, node->microbatch), output;
    gh_pass pass = {
        .struct_size = sizeof(pass),
        .segment = s->index,
        .direction = node->direction,
        .microbatch = node->microbatch,
        .flags = node->direction == GH_BACKWARD && p->options.delay_wgrad &&
                         !later
                     ? GH_PASS_NO_WGRAD
                     : 0,
        .stream = node->stream,
        .inputs = &input,
        .n_inputs = 1,
        .outputs = &output,
        .n_outputs = 1,
    };
    gh_decision d = { .struct_size = sizeof(d) };
    gh_status status;

    if (node->direction == GH_WGRAD && !later) {
        return GH_OK;
    }
    w.weights = node->direction == GH_WGRAD ||
                (node->direction == GH_BACKWARD && !later);
    do {
        status = gh_layer_enter(p->toy.session, &pass, &d, err);
        if (status != GH_OK) {
            return status;
        }
        w.set = set_for(p, node->chunk, node->microbatch, d.slot);
        output = find_output(p, &w);
        if (p->mischief == PAIR_LEAVES_OPEN && p->until_mischief == 0) {
            return GH_OK;
        }
        if (p->mischief == PAIR_FAILS_INSIDE && p->until_mischief == 0) {
            return fail(err, "the host fails with a pass open");
        }
        if (d.action != GH_ACTION_REPLAYED) {
            w.stream = d.stream;
            w.input = (CUdeviceptr)(uintptr_t)d.inputs[0].address;
            if (!(node->direction == GH_FORWARD ? run_forward(p, &w)
                                                : run_backward(p, &w))) {
                return fail(err, p->err.text);
            }
        }
        status = gh_layer_exit(p->toy.session, &pass, err);
    } while (status == GH_RERUN);
    return status;
}

/* ---- a node -------------------------------------------------------------- */

static CUstream compute(const struct pair *p)
{
    return p->options.legacy ? NULL : p->toy.streams[0];
}

/* What the experts of a layer will read, before it is exchanged: whoever had
 * the memory last has used it on the compute stream. */
static bool lend_blocks(struct pair *p, const gh_overlap_node *node)
{
    const uint32_t set = p->set_of[node->chunk][node->microbatch];
    uint32_t q = p->first[node->layer];

    if (node->direction != GH_FORWARD || node->node != 0) {
        return true;
    }
    for (; q < p->first[node->layer + 1]; q++) {
        if (is_lent(p, q, 0)) {
            p->lent[set][q] =
                lender_find(&p->lender, 4 * (uint64_t)words_of(p), compute(p));
            return p->lent[set][q] != NULL;
        }
    }
    return true;
}

/* Before the forward of a depth its input is made, and behind its backward the
 * gradient of what that was made of, which reads that as well. */
static bool cross_depth(struct pair *p, const gh_overlap_node *node,
                        gh_direction direction)
{
    const uint32_t set = p->set_of[node->chunk][node->microbatch];
    const uint32_t q = p->first[node->layer];

    if (node->direction != direction || node->node != 0 ||
        !begins_depth(p, q)) {
        return true;
    }
    return direction == GH_FORWARD
               ? mix(p, at(p, set, DEPTH, node->layer),
                     output_of(p, set, q - 1), 0, 11, 13, node->stream)
               : mix(p, at(p, set, DEPTH_GRAD, node->layer),
                     at(p, set, GRAD, q), output_of(p, set, q - 1), 11, 0,
                     node->stream);
}

/* What goes out of the chunk is handed to the next one. */
static bool hand_on(struct pair *p, const gh_overlap_node *node)
{
    const uint32_t set = p->set_of[node->chunk][node->microbatch];

    if ((node->flags & GH_NODE_ENDS) == 0) {
        return true;
    }
    if (node->direction == GH_FORWARD) {
        return mix(p, feed(p, true, node->chunk + 1, node->microbatch),
                   output_of(p, set, p->first[node->layer + 1] - 1), 0, 1, 0,
                   node->stream);
    }
    return node->chunk == 0 ||
           mix(p, feed(p, false, node->chunk - 1, node->microbatch),
               at(p, set, GRAD, p->first[node->layer]), 0, 1, 0, node->stream);
}

/* The part that a node of the layer ends with, or begins with. */
static uint32_t border_part(const struct pair *p, uint32_t layer, uint32_t node,
                            bool last)
{
    const uint32_t end = p->first[layer + 1];
    uint32_t q = p->first[layer], begins = q, n = 0;

    for (; q < end; q++) {
        const gh_part part = p->parts[q];
        const bool goes_on = q > p->first[layer] &&
                             (part == GH_PART_MOE_ROUTER ||
                              part == GH_PART_MOE_PREPROCESS);

        if (!goes_on && q > p->first[layer] && n++ == node) {
            break;
        }
        begins = goes_on ? begins : q;
    }
    return last ? q - 1 : begins;
}

static bool release(struct pair *p, const gh_overlap_node *node,
                    const gh_overlap_release *what)
{
    const uint32_t set = p->set_of[node->chunk][node->microbatch];
    const bool forward = what->direction == GH_FORWARD;
    CUdeviceptr address;

    if (forward && what->tensor == GH_TENSOR_HIDDEN &&
        is_lent(p, border_part(p, what->layer, what->node, true) + 1, 0)) {
        p->skipped++; /* the service has, or will have, given it back */
        return true;
    }
    if (forward && what->tensor == GH_TENSOR_HIDDEN) {
        p->foreign += begins_depth(
            p, border_part(p, what->layer, what->node, true) + 1);
    }
    if (what->tensor == GH_TENSOR_RESIDUAL) {
        address =
            at(p, set, forward ? RESIDUAL : RESIDUAL_GRAD, what->layer);
    } else if (what->tensor == GH_TENSOR_HIDDEN) {
        address = at(p, set, forward ? OUT : GRAD,
                     border_part(p, what->layer, what->node, forward));
    } else {
        return true; /* the host has no such tensor */
    }
    p->released++;
    return CALL(p, cuMemsetD32Async,
                (address, POISON, ELEMS, (CUstream)node->stream));
}

static void note(struct pair *p, const gh_overlap_node *node)
{
    const size_t used = strlen(p->issued);

    snprintf(p->issued + used, sizeof(p->issued) - used, "%s%s%u.%u",
             used == 0 ? "" : " ",
             node->direction == GH_FORWARD    ? "F"
             : node->direction == GH_BACKWARD ? "B"
                                              : "W",
             node->layer, node->node);
}

static gh_status misbehave(struct pair *p, gh_error *err)
{
    switch (p->mischief) {
    case PAIR_FAILS:
        return fail(err, "the host's node fails");
    case PAIR_FAILS_MUTE:
        return GH_ERR_DEVICE;
    case PAIR_RERUNS:
        return GH_RERUN;
    case PAIR_NESTS:
        return gh_overlap_run(
            p->toy.session,
            &(gh_overlap_pair){ .struct_size = sizeof(gh_overlap_pair) }, err);
    case PAIR_ENDS_STEP:
        return gh_iteration_end(p->toy.session, err);
    default:
        return GH_OK;
    }
}

static gh_status run_node(void *user, const gh_overlap_node *node,
                          gh_error *err)
{
    struct pair *p = user;
    const bool bad = p->mischief != PAIR_GOOD && p->until_mischief == 0;
    gh_status status = bad ? misbehave(p, err) : GH_OK;

    note(p, node);
    p->nodes++;
    if (p->options.watch != NULL) {
        p->options.watch(p, node, false);
    }
    if (status == GH_OK && !cross_depth(p, node, GH_FORWARD)) {
        return fail(err, p->err.text);
    }
    for (uint32_t i = 0; i < node->n_segments && status == GH_OK; i++) {
        const uint32_t s = node->direction == GH_FORWARD
                               ? i
                               : node->n_segments - 1 - i;

        status = run_segment(p, &p->segments[node->first_segment + s], node,
                             err);
    }
    if (p->options.watch != NULL) {
        p->options.watch(p, node, true);
    }
    if (p->mischief != PAIR_GOOD && p->until_mischief > 0) {
        p->until_mischief--;
    }
    if (status != GH_OK || (bad && p->mischief == PAIR_LEAVES_OPEN)) {
        return status;
    }
    if (!cross_depth(p, node, GH_BACKWARD) || !lend_blocks(p, node) ||
        !hand_on(p, node)) {
        return fail(err, p->err.text);
    }
    for (uint32_t i = 0; i < node->n_release; i++) {
        if (!release(p, node, &node->release[i])) {
            return fail(err, p->err.text);
        }
    }
    return GH_OK;
}

static gh_status agree(void *user, double *numbers, uint32_t n, gh_error *err)
{
    struct pair *p = user;

    err->text[0] = '\0'; /* a host may write there whatever its caller gave */
    p->agreed++;
    p->agreed_n = 0;
    for (uint32_t i = 0; i < n; i++) {
        p->agreed_n += numbers[i] > 0;
        if (p->options.time_of != NULL) {
            numbers[i] = p->options.time_of(i);
        }
    }
    if (p->options.change != NULL) {
        p->options.change(numbers, n);
    }
    return p->options.agree_answer;
}

/* ---- a step -------------------------------------------------------------- */

gh_status pair_run(struct pair *p, uint32_t forward, uint32_t forward_m,
                   uint32_t backward, uint32_t backward_m)
{
    gh_overlap_pair pair = {
        .struct_size = sizeof(pair),
        .flags = p->options.early ? GH_OVERLAP_EARLY_RELEASE : 0,
        .compute = compute(p),
        .comm = p->options.own_comm ? p->comm : NULL,
        .run_node = run_node,
        .agree = p->options.no_agree ? NULL : agree,
        .user = p,
    };

    if (forward != ABSENT) {
        pair.flags |= GH_OVERLAP_FORWARD;
        pair.forward_chunk = forward;
        pair.forward_microbatch = forward_m;
    }
    if (backward != ABSENT) {
        pair.flags |= GH_OVERLAP_BACKWARD;
        pair.backward_chunk = backward;
        pair.backward_microbatch = backward_m;
    }
    p->issued[0] = '\0';
    return gh_overlap_run(p->toy.session, &pair,
                          p->options.no_error ? NULL : &p->err);
}

gh_status pair_issue(struct pair *p, const gh_overlap_node *node)
{
    return run_node(p, node, &p->err);
}

static uint32_t feed_value(uint32_t step, uint32_t m, uint32_t which)
{
    return 1000 * step + 10 * m + which + 1;
}

bool pair_feed(struct pair *p, uint32_t m)
{
    return CALL(p, cuMemsetD32Async,
                (feed(p, true, 0, m), feed_value(p->step, m, 0), ELEMS,
                 compute(p))) &&
           CALL(p, cuMemsetD32Async,
                (feed(p, false, n_chunks(p) - 1, m), feed_value(p->step, m, 1),
                 ELEMS, compute(p)));
}

bool pair_clear(struct pair *p)
{
    return CALL(p, cuMemsetD8Async,
                (p->memory, 0, (size_t)p->memory_bytes, compute(p)));
}

/* A backward chunk of a microbatch beside a forward one of the next. */
static gh_status run_both(struct pair *p, uint32_t i, uint32_t microbatches)
{
    const uint32_t n = n_chunks(p);
    const bool forward = i + 1 < microbatches;
    gh_status status = GH_OK;

    for (uint32_t c = 0; c < n && status == GH_OK; c++) {
        if (forward && p->options.apart) {
            status = pair_run(p, c, i + 1, ABSENT, 0);
        }
        if (status == GH_OK) {
            status = pair_run(p, forward && !p->options.apart ? c : ABSENT,
                              i + 1, n - 1 - c, i);
        }
    }
    return status;
}

gh_status pair_step(struct pair *p, uint32_t microbatches)
{
    gh_status status = GH_OK;

    for (uint32_t m = 0; m < microbatches; m++) {
        if (!pair_feed(p, m)) {
            return GH_ERR_DEVICE;
        }
    }
    for (uint32_t c = 0; c < n_chunks(p) && status == GH_OK; c++) {
        status = pair_run(p, c, 0, ABSENT, 0);
    }
    for (uint32_t i = 0; i < microbatches && status == GH_OK; i++) {
        status = run_both(p, i, microbatches);
    }
    p->step++;
    return status == GH_OK ? gh_iteration_end(p->toy.session, &p->err)
                           : status;
}

/* ---- what must come out -------------------------------------------------- */

/* A tensor of a group; 0: there is none. */
static uint32_t kept(const struct pair *p, uint32_t q, uint32_t g, uint32_t x)
{
    const uint32_t *modules;

    return g < groups_of(p, q, &modules) ? x + above(p, q, g) : 0;
}

static void expect_microbatch(const struct pair *p, uint32_t x, uint32_t gy,
                              uint32_t *weights)
{
    uint32_t in[PAIR_MAX_PARTS], out[PAIR_MAX_PARTS];
    uint32_t residual[PAIR_MAX_LAYERS] = { 0 };
    uint32_t gradient[PAIR_MAX_LAYERS] = { 0 };

    for (uint32_t q = 0; q < p->n_parts; q++) {
        x = begins_depth(p, q) ? 11 * x + 13 : x;
        in[q] = x;
        if (p->parts[q] == GH_PART_MOE_ROUTER) {
            residual[p->layer_of[q]] = 7 * x + 1;
        }
        x = 3 * x + q + 1 +
            (p->parts[q] == GH_PART_MOE_POST ? residual[p->layer_of[q]] : 0) +
            kept(p, q, 0, x) + kept(p, q, 1, x);
        out[q] = x;
    }
    for (uint32_t q = p->n_parts; q-- > 0;) {
        const gh_part part = p->parts[q];

        if (has_weights(part)) {
            weights[q] = 3 * weights[q] + gy + kept(p, q, 0, in[q]) +
                         (is_lent(p, q, 0) ? 0 : in[q]);
        }
        if (part == GH_PART_MOE_POST) {
            gradient[p->layer_of[q]] = 2 * gy;
        }
        gy = 5 * gy +
             (is_exchange(part) || is_lent(p, q, 0) ? 0 : in[q]) +
             kept(p, q, has_weights(part), in[q]);
        if (part == GH_PART_MOE_ROUTER) {
            gy += 7 * gradient[p->layer_of[q]];
        }
        gy = begins_depth(p, q) ? 11 * gy + out[q - 1] : gy;
    }
}

uint64_t pair_expect(const struct pair *p, const uint32_t *steps,
                     uint32_t n_steps)
{
    uint32_t weights[PAIR_MAX_PARTS] = { 0 };
    uint64_t hash = 0;

    for (uint32_t s = 0; s < n_steps; s++) {
        for (uint32_t m = 0; m < steps[s]; m++) {
            expect_microbatch(p, feed_value(s, m, 0), feed_value(s, m, 1),
                              weights);
        }
    }
    for (uint32_t i = 0; i < p->n_parts * ELEMS; i++) {
        hash = toy_fold(hash, weights[i / ELEMS]);
    }
    return hash;
}

uint64_t pair_hash(struct pair *p)
{
    uint32_t values[ELEMS];
    uint64_t hash = 0;

    CALL(p, cuCtxSynchronize, ());
    for (uint32_t q = 0; q < p->n_parts; q++) {
        if (!CALL(p, cuMemcpyDtoH, (values, weight(p, q), sizeof(values)))) {
            return 0;
        }
        for (uint32_t i = 0; i < ELEMS; i++) {
            hash = toy_fold(hash, values[i]);
        }
    }
    return hash;
}

gh_overlap_stats pair_stats(struct pair *p)
{
    gh_overlap_stats stats = { .struct_size = sizeof(stats) };

    gh_overlap_get_stats(p->toy.session, &stats, NULL);
    return stats;
}

gh_offload_stats pair_moved(struct pair *p)
{
    gh_offload_stats stats = { .struct_size = sizeof(stats) };

    gh_offload_get_stats(p->toy.session, &stats, NULL);
    return stats;
}

/* ---- its life ------------------------------------------------------------ */

bool pair_open(struct pair *p, const struct pair_options *options,
               const char **reason_p)
{
    const struct toy_options toy = { .layers = 1, .elems = ELEMS };

    memset(p, 0, sizeof(*p));
    p->options = *options;
    for (uint32_t i = 0; i < options->layers; i++) {
        add_parts(p, i);
    }
    if (!toy_open(&p->toy, &toy, reason_p)) {
        return false;
    }
    p->lender.toy = &p->toy;
    p->memory_bytes = all_memory();
    if (!CALL(p, cuStreamCreate, (&p->comm, CU_STREAM_NON_BLOCKING)) ||
        !CALL(p, cuMemAlloc, (&p->memory, p->memory_bytes)) ||
        !CALL(p, cuMemsetD8Async, (weight(p, 0), 0,
                                   (size_t)PAIR_MAX_PARTS * STRIDE,
                                   p->toy.streams[0])) ||
        !CALL(p, cuCtxSynchronize, ())) {
        *reason_p = "no memory for the pair";
        pair_close(p);
        return false;
    }
    return true;
}

static gh_model *describe(const struct pair *p)
{
    gh_model *model = NULL;

    gh_model_create(&model, NULL);
    for (uint32_t i = 0; i < p->options.layers; i++) {
        const bool moe = p->options.kinds[i] == GH_LAYER_MOE ||
                         p->options.kinds[i] == GH_LAYER_MOE_ONLY;
        const gh_layer_desc layer = {
            .struct_size = sizeof(layer),
            .kind = p->options.kinds[i],
            .chunk = chunk_of(p, i),
            .family = p->options.family,
            .experts = moe ? 4 : 0,
            .features = (p->options.depths & 1u << i) != 0 ? GH_FEATURE_MTP
                                                           : 0,
        };

        gh_model_add_layer(model, &layer, NULL);
    }
    return model;
}

gh_status pair_attach(struct pair *p)
{
    char order[48];
    const char *environment[] = { order, "GRAPHHOOKS_LOG=warn",
                                  "GRAPHHOOKS_ENABLE=1",
                                  "GRAPHHOOKS_CHECK=off",
                                  "GRAPHHOOKS_OFFLOAD_DELAY=0",
                                  p->options.trace, NULL };
    const gh_host_services host = { .struct_size = sizeof(host),
                                    .user = p->options.log != NULL ? p : NULL,
                                    .log = p->options.log,
                                    .released = p->options.lends
                                                    ? lender_take_back
                                                    : NULL };
    const gh_offload_desc offload = { .struct_size = sizeof(offload),
                                      .modules = OFFLOADED,
                                      .fraction = p->options.fraction,
                                      .min_bytes = 4 };
    gh_model *model = describe(p);
    const gh_session_desc desc = {
        .struct_size = sizeof(desc),
        .flags = GH_SESSION_EP_OVERLAP |
                 (p->options.delay_wgrad ? GH_SESSION_DELAY_WGRAD : 0u),
        .model = model,
        .host = &host,
        .offload = p->options.offload ? &offload : NULL,
        .driver = toy_driver(),
        .scope = p->options.scope,
        .granularity = p->options.granularity,
        .max_slots = MAX_SLOTS,
        .environment = environment,
    };
    gh_status status;

    if (p->options.quiet) {
        environment[1] = "GRAPHHOOKS_LOG=off";
    }
    if (p->options.told) {
        environment[1] = "GRAPHHOOKS_LOG=info";
    }
    if (p->options.later) {
        environment[4] = "GRAPHHOOKS_OFFLOAD_DELAY=1";
    }
    if (p->options.check) {
        environment[3] = "GRAPHHOOKS_CHECK=bitwise";
    }
    if (p->options.disabled) {
        environment[2] = "GRAPHHOOKS_ENABLE=0";
    }
    snprintf(order, sizeof(order), "GRAPHHOOKS_OVERLAP=%s",
             p->options.order != NULL ? p->options.order : "");
    status = gh_session_open(&desc, &p->toy.session, &p->err);
    gh_model_destroy(model);
    if (status != GH_OK) {
        return status;
    }
    p->n_segments = toy_segments(p->toy.session, n_chunks(p), p->segments);
    return GH_OK;
}

void pair_close(struct pair *p)
{
    toy_detach(&p->toy);
    p->toy.drv.cuCtxSynchronize();
    p->toy.drv.cuMemFree(p->memory);
    lender_free(&p->lender);
    if (p->comm != NULL) {
        p->toy.drv.cuStreamDestroy(p->comm);
    }
    toy_close(&p->toy);
}
