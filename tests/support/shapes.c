/*
 * shapes.c - see shapes.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/shapes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Per set: what each layer reads and the last one writes, the same of
 * gradients, padded inputs, and the sums; then what is fed. */
static uint32_t set_buffers(const struct shapes *s)
{
    return 2 * (s->options.layers + 1) + 3;
}

static uint64_t stride(const struct shapes *s)
{
    return toy_stride(s->options.elems);
}

static CUdeviceptr at(const struct shapes *s, uint32_t set, uint32_t i)
{
    return s->memory + (set * set_buffers(s) + (uint64_t)i) * stride(s);
}

static CUdeviceptr act(const struct shapes *s, uint32_t set, uint32_t layer)
{
    return at(s, set, layer);
}

static CUdeviceptr grad(const struct shapes *s, uint32_t set, uint32_t layer)
{
    return at(s, set, s->options.layers + 1 + layer);
}

static CUdeviceptr padded(const struct shapes *s, uint32_t set, uint32_t which)
{
    return at(s, set, 2 * (s->options.layers + 1) + which);
}

static CUdeviceptr sums(const struct shapes *s, uint32_t set)
{
    return at(s, set, 2 * (s->options.layers + 1) + 2);
}

static uint32_t feed_of(const struct shapes *s, uint32_t m)
{
    return (m + 5 * s->step) % SHAPES_FEEDS;
}

static CUdeviceptr feed(const struct shapes *s, uint32_t which, uint32_t m)
{
    return at(s, SHAPES_SETS, which * SHAPES_FEEDS + feed_of(s, m));
}

static const uint32_t *fed(const struct shapes *s, uint32_t which, uint32_t m)
{
    return s->feeds + ((size_t)which * SHAPES_FEEDS + feed_of(s, m)) *
                          s->options.elems;
}

static bool fill(struct shapes *s)
{
    const uint32_t n = s->options.elems;
    const uint64_t bytes =
        (SHAPES_SETS * (uint64_t)set_buffers(s) + 2 * SHAPES_FEEDS) * stride(s);

    s->feeds = calloc(2 * SHAPES_FEEDS, n * sizeof(uint32_t));
    s->expect = calloc(SHAPES_SETS, n * sizeof(uint32_t));
    if (s->feeds == NULL || s->expect == NULL ||
        s->toy.drv.cuMemAlloc(&s->memory, bytes) != CUDA_SUCCESS) {
        return false;
    }
    for (uint32_t i = 0; i < 2 * SHAPES_FEEDS * n; i++) {
        s->feeds[i] = i * 2654435761u + 12345u;
    }
    s->toy.drv.cuMemsetD8Async(s->memory, 0, bytes, NULL);
    s->toy.drv.cuCtxSynchronize();
    for (uint32_t i = 0; i < 2 * SHAPES_FEEDS; i++) {
        s->toy.drv.cuMemcpyHtoD(at(s, SHAPES_SETS, i), s->feeds + i * n,
                                n * sizeof(uint32_t));
    }
    s->toy.drv.cuCtxSynchronize();
    return true;
}

bool shapes_open(struct shapes *s, const struct shapes_options *options,
                 const char **reason_p)
{
    struct toy_options toy = { .elems = 1, .streams = TOY_STREAMS };

    memset(s, 0, sizeof(*s));
    s->options = *options;
    if (s->options.layers == 0) {
        s->options.layers = 2;
    }
    if (s->options.slots == 0) {
        s->options.slots = SHAPES_SLOTS;
    }
    toy.layers = s->options.layers;
    toy.max_slots = s->options.slots;
    toy.family = options->family;
    toy.environment = options->environment;
    toy.host = options->host;
    if (!toy_open(&s->toy, &toy, reason_p)) {
        return false;
    }
    if (toy_attach(&s->toy) != GH_OK || !fill(s)) {
        *reason_p = s->toy.err.text;
        shapes_close(s);
        return false;
    }
    s->n_shapes = 0;
    return true;
}

void shapes_close(struct shapes *s)
{
    toy_detach(&s->toy);
    s->toy.drv.cuCtxSynchronize();
    s->toy.drv.cuMemFree(s->memory);
    toy_close(&s->toy);
    free(s->feeds);
    free(s->expect);
}

uint32_t shapes_add(struct shapes *s, uint32_t elems, const gh_bank_desc *desc)
{
    const uint32_t shape = s->n_shapes++;

    s->elems[shape] = elems;
    s->bank[shape] = 0;
    if (desc != NULL &&
        gh_bank_add(s->toy.session, desc, &s->bank[shape], &s->err) != GH_OK) {
        s->bank[shape] = UINT32_MAX;
    }
    return shape;
}

uint32_t shapes_add_tokens(struct shapes *s, uint32_t elems)
{
    char name[16];
    const gh_bank_desc desc = { .struct_size = sizeof(desc),
                                .tokens = elems,
                                .name = name };

    snprintf(name, sizeof(name), "%u", elems);
    return shapes_add(s, elems, &desc);
}

/* ---- a pass -------------------------------------------------------------- */

static CUdeviceptr address(const gh_buffer *buffer)
{
    return (uintptr_t)buffer->address;
}

/* An input that is not as long as the shape is padded by the host itself. */
static CUdeviceptr take_input(struct shapes *s, const gh_decision *d,
                              uint32_t input, uint32_t set, uint32_t n)
{
    const gh_buffer *given = &d->inputs[input];
    const CUdeviceptr to = padded(s, set, input);

    if (given->bytes == 4 * (uint64_t)n) {
        return address(given);
    }
    s->short_checks += d->reason == GH_REASON_CHECK;
    s->toy.drv.cuMemsetD8Async(to, 0, 4 * (size_t)n, d->stream);
    s->toy.drv.cuMemcpyDtoDAsync(to, address(given), given->bytes, d->stream);
    return to;
}

static void run_layer(struct shapes *s, const gh_pass *pass,
                      const gh_decision *d, uint32_t set, uint32_t n)
{
    const uint32_t l = pass->segment;

    if (pass->direction == GH_FORWARD) {
        toy_mix(&s->toy, act(s, set, l + 1), take_input(s, d, 0, set, n), 0, 3,
                l + 1, n, d->stream);
        return;
    }
    toy_mix(&s->toy, grad(s, set, l), take_input(s, d, 0, set, n),
            act(s, set, l + 1), 5, 0, n, d->stream);
    if (l == 0) {
        toy_add(&s->toy, sums(s, set), grad(s, set, 0), act(s, set, 1), n,
                d->stream);
    }
}

/* The slot's, or one of the host's own. */
static uint32_t set_of(struct shapes *s, uint32_t slot)
{
    uint32_t i = 0;

    if (slot != GH_SLOT_NONE) {
        return slot;
    }
    while ((s->taken & 1u << i) != 0) {
        i++;
    }
    s->taken |= 1u << i;
    return SHAPES_SLOTS + i;
}

static gh_status one_pass(struct shapes *s, gh_pass *pass, uint32_t n)
{
    const uint32_t m = pass->microbatch, l = pass->segment;
    const bool forward = pass->direction == GH_FORWARD;
    gh_buffer outputs[2];
    gh_status status;

    s->last = (gh_decision){ .struct_size = sizeof(s->last) };
    status = gh_layer_enter(s->toy.session, pass, &s->last, &s->err);
    if (status != GH_OK) {
        return status;
    }
    if (s->flight[m].set == UINT32_MAX) {
        s->flight[m].set = set_of(s, s->last.slot);
    }
    if (s->last.action != GH_ACTION_REPLAYED) {
        const uint32_t set = s->flight[m].set;

        run_layer(s, pass, &s->last, set, n);
        outputs[0] = (gh_buffer){
            (void *)(uintptr_t)(forward ? act(s, set, l + 1)
                                        : grad(s, set, l)),
            4 * (uint64_t)n, 0, 0
        };
        outputs[1] = (gh_buffer){ (void *)(uintptr_t)sums(s, set),
                                  4 * (uint64_t)n, GH_BUFFER_UPDATED, 0 };
        pass->outputs = outputs;
        pass->n_outputs = !forward && l == 0 ? 2 : 1;
    }
    return gh_layer_exit(s->toy.session, pass, &s->err);
}

static gh_status run_pass(struct shapes *s, uint32_t m, uint32_t segment,
                          gh_direction direction)
{
    const uint32_t shape = s->flight[m].shape, n = s->elems[shape];
    const bool forward = direction == GH_FORWARD;
    const bool loose =
        forward ? segment == 0 : segment == s->options.layers - 1;
    const uint64_t capacity = 4 * (uint64_t)n;
    gh_buffer input = { NULL, capacity, GH_BUFFER_STATIC, 0 };
    gh_status status;

    if (loose) {
        input.address = (void *)(uintptr_t)feed(s, !forward, m);
        input.flags = 0;
        input.bytes = 4 * (uint64_t)s->flight[m].words;
    } else {
        const uint32_t set = s->flight[m].set;

        input.address = (void *)(uintptr_t)(forward ? act(s, set, segment)
                                                    : grad(s, set,
                                                           segment + 1));
    }
    do {
        gh_pass pass = { .struct_size = sizeof(pass),
                         .segment = segment,
                         .direction = direction,
                         .microbatch = m,
                         .bank = s->bank[shape],
                         .group = s->group,
                         .stream = s->flight[m].stream,
                         .inputs = &input,
                         .n_inputs = 1,
                         .capacities =
                             s->options.by_capacity ? &capacity : NULL };

        status = one_pass(s, &pass, n);
    } while (status == GH_RERUN);
    return status;
}

gh_status shapes_forward(struct shapes *s, uint32_t m, uint32_t shape)
{
    const uint32_t streams = s->options.streams == 0 ? 1 : s->options.streams;
    const uint32_t n = s->elems[shape];
    gh_status status = GH_OK;

    s->flight[m].set = UINT32_MAX;
    s->flight[m].shape = shape;
    s->flight[m].words = s->less < n ? n - s->less : 1;
    s->flight[m].stream = s->toy.streams[m % streams];
    for (uint32_t l = 0; l < s->options.layers && status == GH_OK; l++) {
        status = run_pass(s, m, l, GH_FORWARD);
    }
    return status;
}

static uint32_t follow_one(const struct shapes *s, uint32_t m, uint32_t i)
{
    const bool there = i < s->flight[m].words;
    uint32_t x = there ? fed(s, 0, m)[i] : 0;
    uint32_t g = there ? fed(s, 1, m)[i] : 0;
    uint32_t acts[SHAPES_LAYERS + 1];

    for (uint32_t l = 0; l < s->options.layers; l++) {
        x = acts[l + 1] = 3 * x + l + 1;
    }
    for (uint32_t l = s->options.layers; l-- > 0;) {
        g = 5 * g + acts[l + 1];
    }
    return g + acts[1];
}

gh_status shapes_backward(struct shapes *s, uint32_t m)
{
    const uint32_t set = s->flight[m].set;
    gh_status status = GH_OK;

    for (uint32_t l = s->options.layers; l-- > 0 && status == GH_OK;) {
        status = run_pass(s, m, l, GH_BACKWARD);
    }
    if (status != GH_OK) {
        return status;
    }
    for (uint32_t i = 0; i < s->elems[s->flight[m].shape]; i++) {
        s->expect[(size_t)set * s->options.elems + i] += follow_one(s, m, i);
    }
    return GH_OK;
}

void shapes_end(struct shapes *s)
{
    gh_iteration_end(s->toy.session, NULL);
    s->step++;
    if (!s->options.free_running || s->taken != 0) {
        s->toy.drv.cuCtxSynchronize();
    }
    s->taken = 0;
}

gh_status shapes_step(struct shapes *s, const uint32_t *shapes, uint32_t n)
{
    const uint32_t most = s->options.in_flight == 0 ? 1 : s->options.in_flight;
    gh_status status = GH_OK;
    uint32_t oldest = 0;

    for (uint32_t m = 0; m < n && status == GH_OK; m++) {
        if (m - oldest == most) {
            status = shapes_backward(s, oldest++);
        }
        if (status == GH_OK) {
            status = shapes_forward(s, m, shapes[m]);
        }
    }
    while (oldest < n && status == GH_OK) {
        status = shapes_backward(s, oldest++);
    }
    shapes_end(s);
    return status;
}

bool shapes_are_exact(struct shapes *s)
{
    const uint32_t n = s->options.elems;
    uint32_t *sum = malloc(n * sizeof(*sum));
    bool exact = sum != NULL;

    s->toy.drv.cuCtxSynchronize();
    for (uint32_t set = 0; set < SHAPES_SETS && exact; set++) {
        s->toy.drv.cuMemcpyDtoH(sum, sums(s, set), n * sizeof(*sum));
        exact = memcmp(sum, s->expect + (size_t)set * n,
                       n * sizeof(*sum)) == 0;
    }
    free(sum);
    return exact;
}

gh_bank_stats shapes_stats(struct shapes *s, uint32_t shape)
{
    gh_bank_stats stats = { .struct_size = sizeof(stats) };

    gh_bank_get_stats(s->toy.session, s->bank[shape], &stats, NULL);
    return stats;
}
