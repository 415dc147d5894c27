/*
 * saver.c - see saver.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/saver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const uint32_t saver_modules[SAVER_MAX_MODULES] = {
    GH_MODULE_CORE_ATTN, GH_MODULE_NAMED, GH_MODULE_NAMED | 1,
    GH_MODULE_MLP_NORM
};
static const char *const own_names[] = { "own_a", "own_b", NULL };

#define CALL(saver, entry, args) ((saver)->toy.drv.entry args == CUDA_SUCCESS)

/* ---- memory: per set activations, gradients and sums; per microbatch both
 * inputs ----------------------------------------------------------------- */

static uint64_t stride(const struct saver *sv)
{
    return toy_stride(sv->options.elems);
}

static uint32_t n_sums(const struct saver *sv)
{
    return sv->n_parts * SAVER_MAX_MODULES;
}

static uint32_t set_buffers(const struct saver *sv)
{
    return 2 * (sv->n_parts + 1) + n_sums(sv);
}

static CUdeviceptr at(const struct saver *sv, uint32_t i)
{
    return sv->memory + i * stride(sv);
}

static CUdeviceptr act(const struct saver *sv, uint32_t set, uint32_t border)
{
    return at(sv, set * set_buffers(sv) + border);
}

static CUdeviceptr grad(const struct saver *sv, uint32_t set, uint32_t border)
{
    return at(sv, set * set_buffers(sv) + sv->n_parts + 1 + border);
}

static CUdeviceptr sum(const struct saver *sv, uint32_t set, uint32_t part,
                       uint32_t k)
{
    return at(sv, set * set_buffers(sv) + 2 * (sv->n_parts + 1) +
                      part * SAVER_MAX_MODULES + k);
}


/* Each step a microbatch is on another stream. */
static uint32_t stream_index(const struct saver *sv, uint32_t m)
{
    return (m + sv->step) % sv->options.streams;
}

static CUstream stream_of(const struct saver *sv, uint32_t m)
{
    return sv->toy.streams[stream_index(sv, m)];
}

/* What a microbatch has of its own, another one on another stream: five are in
 * flight at most. */
static uint32_t own_of(const struct saver *sv, uint32_t m)
{
    return m % 5 * TOY_STREAMS + stream_index(sv, m);
}

static CUdeviceptr feed(const struct saver *sv, gh_direction d, uint32_t m)
{
    return at(sv, sv->n_sets * set_buffers(sv) + d * SAVER_MAX_FEEDS + own_of(sv, m));
}

static uint64_t sums_bytes(const struct saver *sv)
{
    return n_sums(sv) * stride(sv);
}

static bool make_memory(struct saver *sv)
{
    const uint64_t bytes =
        (sv->n_sets * set_buffers(sv) + 2 * SAVER_MAX_FEEDS) * stride(sv);

    if (!CALL(sv, cuMemAlloc, (&sv->memory, bytes))) {
        return false;
    }
    for (uint32_t set = 0; set < sv->n_sets; set++) {
        if (!CALL(sv, cuMemsetD8Async,
                  (sum(sv, set, 0, 0), 0, sums_bytes(sv),
                   sv->toy.streams[0]))) {
            return false;
        }
    }
    return CALL(sv, cuCtxSynchronize, ());
}

/* ---- life ---------------------------------------------------------------- */

bool saver_open(struct saver *sv, const struct saver_options *options,
                const char **reason_p)
{
    struct toy_options device = { .layers = 1, .elems = 1 };
    struct saver_options *o = &sv->options;

    memset(sv, 0, sizeof(*sv));
    *o = *options;
    o->chunks = o->chunks == 0 ? 1 : o->chunks;
    o->slots = o->slots == 0 ? 8 : o->slots;
    o->in_flight = o->in_flight == 0 ? 1 : o->in_flight;
    o->streams = o->streams == 0 ? 1 : o->streams;
    sv->n_chunks = o->chunks;
    sv->n_parts = 2 * o->layers;
    /* Of slots; of microbatches without one; of those that are evaluated. */
    sv->n_sets = o->slots + 2 * SAVER_MAX_FEEDS;
    if (!toy_open(&sv->toy, &device, reason_p)) {
        return false;
    }
    toy_configure(&sv->toy, ""); /* counts from here on */
    sv->lender.toy = &sv->toy;
    sv->sums = calloc((size_t)n_sums(sv) * o->elems, 4);
    sv->kept_device = calloc(sv->n_sets, sums_bytes(sv));
    if (!make_memory(sv)) {
        *reason_p = "no memory on the device";
        saver_close(sv);
        return false;
    }
    return true;
}

static gh_offload_desc offload_desc(const struct saver_options *o)
{
    gh_offload_desc desc = o->offload;

    if (desc.struct_size == 0) {
        desc = (gh_offload_desc){ .modules = SAVER_ALL, .min_bytes = 4 };
    }
    desc.struct_size = sizeof(desc);
    if (desc.names == NULL) {
        desc.names = own_names;
    }
    return desc;
}

gh_status saver_attach(struct saver *sv)
{
    static const char *const nothing[] = { NULL };
    const struct saver_options *o = &sv->options;
    const gh_offload_desc offload = offload_desc(o);
    const gh_layer_desc layer = { .struct_size = sizeof(layer) };
    gh_model *model = toy_model(layer, o->layers, sv->n_chunks);
    const gh_session_desc desc = {
        .struct_size = sizeof(desc),
        .flags = o->flags,
        .model = model,
        .host = o->own ? &sv->host : o->host,
        .driver = toy_driver(),
        .scope = o->scope,
        .granularity = o->granularity,
        .max_slots = o->slots,
        .environment = o->environment != NULL ? o->environment : nothing,
        .offload = &offload,
    };
    gh_status status;

    if (o->own) {
        sv->host = o->host != NULL ? *o->host : (gh_host_services){ 0 };
        sv->host.struct_size = sizeof(sv->host);
        sv->host.released = o->unlent ? NULL : lender_take_back;
    }
    status = gh_session_open(&desc, &sv->session, &sv->err);
    gh_model_destroy(model);
    sv->n_segments = status == GH_OK
                         ? toy_segments(sv->session, sv->n_chunks, sv->segments)
                         : 0;
    return status;
}

void saver_detach(struct saver *sv)
{
    gh_session_close(sv->session);
    sv->session = NULL;
}

void saver_close(struct saver *sv)
{
    saver_detach(sv);
    sv->toy.drv.cuCtxSynchronize();
    lender_free(&sv->lender);
    sv->toy.drv.cuMemFree(sv->memory);
    toy_close(&sv->toy);
    free(sv->sums);
    free(sv->kept_device);
}

gh_offload_stats saver_moved(struct saver *sv)
{
    gh_offload_stats stats = { .struct_size = sizeof(stats) };

    gh_offload_get_stats(sv->session, &stats, &sv->err);
    return stats;
}

gh_stats saver_stats(struct saver *sv)
{
    gh_stats stats = { .struct_size = sizeof(stats) };

    gh_session_stats(sv->session, &stats, NULL);
    return stats;
}

/* ---- kernels ------------------------------------------------------------- */

static bool mix(struct saver *sv, CUdeviceptr d, CUdeviceptr a, CUdeviceptr b,
                uint32_t f, uint32_t k, uint32_t n, CUstream stream)
{
    return toy_mix(&sv->toy, d, a, b, f, k, n, stream) == CUDA_SUCCESS;
}

static bool add(struct saver *sv, CUdeviceptr d, CUdeviceptr a, CUdeviceptr b,
                uint32_t n, CUstream stream)
{
    return toy_add(&sv->toy, d, a, b, n, stream) == CUDA_SUCCESS;
}

/* ---- a pass -------------------------------------------------------------- */

struct work {
    uint32_t first, last; /* parts */
    gh_direction direction;
    uint32_t m, set, n; /* n: words of the microbatch */
    bool evaluates;
    CUdeviceptr input;
    CUstream stream;
};

/* What the host does next. */
enum outcome { GOES_ON, AGAIN, STOPS, FAILS };

struct group {
    uint32_t layer, k, n_tensors;
    gh_offload_tensor tensors[SAVER_MAX_TENSORS];
    struct lent_block *block; /* of the host's own; NULL: the library's */
};

static uint32_t words_of_tensor(uint32_t n, uint32_t t)
{
    return n >> t != 0 ? n >> t : 1;
}

static uint32_t constant(const struct saver *sv, uint32_t part, uint32_t k,
                         uint32_t t)
{
    t = sv->options.views ? 0 : t;
    return (part * SAVER_MAX_MODULES + k) * SAVER_MAX_TENSORS + t + 1;
}

static enum outcome heard(struct saver *sv, gh_status status,
                          enum saver_call call, const struct work *w,
                          uint32_t layer, uint32_t k)
{
    enum saver_answer answer = SAVER_GO_ON;

    sv->calls++;
    if (status != GH_OK) {
        return FAILS;
    }
    if (sv->watch != NULL) {
        answer = sv->watch(sv, call, layer, k, w->m);
    }
    return answer == SAVER_GO_ON ? GOES_ON
                                 : (answer == SAVER_AGAIN ? AGAIN : STOPS);
}

/* Where the host's allocator has room for the group; not where the library
 * would align it. */
static struct lent_block *put_group(struct saver *sv, struct group *group,
                                    const struct work *w)
{
    uint64_t bytes = 0;
    struct lent_block *block;

    for (uint32_t t = 0; t < group->n_tensors; t++) {
        bytes += group->tensors[t].bytes + 64;
    }
    block = lender_find(&sv->lender, bytes, w->stream);
    bytes = 0;
    for (uint32_t t = 0; t < group->n_tensors && block != NULL; t++) {
        group->tensors[t].address =
            (void *)(uintptr_t)(block->address + bytes);
        bytes += sv->options.views ? 0 : group->tensors[t].bytes + 64;
    }
    return block;
}

/* gh_offload_save or _load: where the group is. */
static enum outcome place(struct saver *sv, struct group *group,
                          const struct work *w)
{
    const bool forward = w->direction == GH_FORWARD;
    gh_offload_group wanted = { .struct_size = sizeof(wanted),
                                .layer = group->layer,
                                .module = saver_modules[group->k],
                                .n_tensors = sv->options.tensors,
                                .tensors = group->tensors };
    struct lent_block *block = NULL;
    gh_status status;

    group->n_tensors = wanted.n_tensors;
    for (uint32_t t = 0; t < wanted.n_tensors; t++) {
        group->tensors[t].bytes =
            (4 * (uint64_t)words_of_tensor(w->n, t)) << sv->grows;
    }
    if (sv->options.own && forward) {
        block = put_group(sv, group, w);
        wanted.flags = GH_OFFLOAD_OWN;
        wanted.object = sv->options.unlent ? NULL : block;
    }
    status = (forward ? gh_offload_save : gh_offload_load)(sv->session, &wanted,
                                                           &sv->err);
    if (block != NULL) {
        lender_saved(block, status == GH_OK);
    }
    group->block = block;
    if (status == GH_OK) {
        (forward ? sv->at : sv->back_at)[group->layer][group->k] =
            group->tensors[0].address;
    }
    return heard(sv, status, forward ? SAVER_SAVE : SAVER_LOAD, w, group->layer,
                 group->k);
}

static enum outcome let_go_now(struct saver *sv, const struct group *group,
                               const struct work *w)
{
    const bool forward = w->direction == GH_FORWARD;
    gh_status status = (forward ? gh_offload_commit : gh_offload_release)(
        sv->session, group->layer, saver_modules[group->k], &sv->err);

    if (status == GH_OK && forward && sv->options.unlent) {
        lender_take_back(NULL, group->block);
    }
    return heard(sv, status, forward ? SAVER_COMMIT : SAVER_RELEASE, w,
                 group->layer, group->k);
}

static enum outcome let_go(struct saver *sv, const struct group *group,
                           const struct work *w)
{
    if (!sv->options.at_once) {
        return let_go_now(sv, group, w);
    }
    sv->pending[sv->n_pending].block = group->block;
    sv->pending[sv->n_pending].layer = group->layer;
    sv->pending[sv->n_pending++].k = group->k;
    return GOES_ON;
}

static enum outcome let_all_go(struct saver *sv, const struct work *w)
{
    enum outcome outcome = GOES_ON;

    for (uint32_t i = 0; i < sv->n_pending && outcome == GOES_ON; i++) {
        const struct group group = { .layer = sv->pending[i].layer,
                                     .k = sv->pending[i].k,
                                     .block = sv->pending[i].block };

        outcome = let_go_now(sv, &group, w);
    }
    return outcome;
}

/* The tensor; where it is twice as large, its second half. */
static CUdeviceptr data(const struct saver *sv, const struct group *group,
                        uint32_t t, bool second)
{
    return (CUdeviceptr)(uintptr_t)group->tensors[t].address +
           (second && sv->grows ? group->tensors[t].bytes / 2 : 0);
}

static bool write_group(struct saver *sv, const struct group *group,
                        const struct work *w, uint32_t part, CUdeviceptr x)
{
    for (uint32_t t = 0; t < group->n_tensors; t++) {
        const uint32_t n = words_of_tensor(w->n, t);
        const uint32_t k = constant(sv, part, group->k, t);

        if (!mix(sv, data(sv, group, t, false), x, 0, 1, k, n, w->stream) ||
            (sv->grows && !mix(sv, data(sv, group, t, true), x, 0, 1, k, n,
                               w->stream))) {
            return false;
        }
    }
    return true;
}

static bool use_group(struct saver *sv, const struct group *group,
                      const struct work *w, CUdeviceptr y)
{
    for (uint32_t t = 0; t < group->n_tensors; t++) {
        if (!mix(sv, y, data(sv, group, t, true), y, 1, 0,
                 words_of_tensor(w->n, t), w->stream)) {
            return false;
        }
    }
    return true;
}

static bool use_group_backward(struct saver *sv, const struct group *group,
                               const struct work *w, uint32_t part,
                               CUdeviceptr g)
{
    for (uint32_t t = 0; t < group->n_tensors; t++) {
        const CUdeviceptr of = data(sv, group, t, true);
        const CUdeviceptr gx = grad(sv, w->set, part);
        const uint32_t n = words_of_tensor(w->n, t);

        sv->has_added = true;
        if (!add(sv, sum(sv, w->set, part, group->k), of, g, n, w->stream) ||
            !mix(sv, gx, of, gx, 7, 0, n, w->stream)) {
            return false;
        }
    }
    return true;
}

/* The groups of a layer that the pass saves. */
static uint32_t modules(const struct saver *sv, bool evaluates)
{
    const uint32_t all = sv->options.modules;

    if (evaluates || sv->trained_modules == 0) {
        return all;
    }
    return sv->trained_modules <= all ? sv->trained_modules : 0;
}

/* Whether the group stays open until the layer's other part. */
static bool goes_across(const struct saver *sv, gh_direction direction,
                        uint32_t k)
{
    return k == 0 && (sv->options.across || (sv->options.loads_across &&
                                             direction == GH_BACKWARD));
}

#define TRY(call) \
    do { \
        enum outcome outcome_ = (call); \
        if (outcome_ != GOES_ON) { \
            return outcome_; \
        } \
    } while (0)
#define RUN(call) \
    do { \
        if (!(call)) { \
            snprintf(sv->err.text, sizeof(sv->err.text), \
                     "a launch of the host's own failed"); \
            return FAILS; \
        } \
    } while (0)

static void keep_across(struct saver *sv, const struct group *group,
                        const struct work *w, uint32_t part)
{
    memcpy(sv->across[w->direction][w->set][part / 2], group->tensors,
           sizeof(group->tensors));
    if (sv->decision.action == GH_ACTION_RECORD) {
        memcpy(sv->recorded[w->direction][w->set][part / 2], group->tensors,
               sizeof(group->tensors));
    }
}

/* Of what a replayed pass has saved or loaded. */
static void find_across(struct saver *sv, const struct work *w)
{
    const uint32_t begins = w->direction == GH_FORWARD ? 0 : 1;

    for (uint32_t part = w->first; part <= w->last; part++) {
        if (part % 2 == begins) {
            memcpy(sv->across[w->direction][w->set][part / 2],
                   sv->recorded[w->direction][w->set][part / 2],
                   sizeof(sv->recorded[0][0][0]));
        }
    }
}

static enum outcome end_across(struct saver *sv, const struct work *w,
                               uint32_t part, CUdeviceptr y)
{
    struct group group = { .layer = part / 2,
                           .n_tensors = sv->options.tensors };

    memcpy(group.tensors, sv->across[w->direction][w->set][part / 2], sizeof(group.tensors));
    RUN(use_group(sv, &group, w, y));
    return let_go(sv, &group, w);
}

static enum outcome forward_part(struct saver *sv, const struct work *w,
                                 uint32_t part, CUdeviceptr x)
{
    const CUdeviceptr y = act(sv, w->set, part + 1);

    RUN(mix(sv, y, x, 0, 3, part + 1, w->n, w->stream));
    for (uint32_t k = part % 2; k < modules(sv, w->evaluates); k += 2) {
        struct group group = { .layer = part / 2, .k = k };

        TRY(place(sv, &group, w));
        RUN(write_group(sv, &group, w, part, x));
        RUN(use_group(sv, &group, w, y));
        if (goes_across(sv, GH_FORWARD, k)) {
            keep_across(sv, &group, w, part);
        } else {
            TRY(let_go(sv, &group, w));
        }
    }
    return part % 2 == 1 && goes_across(sv, GH_FORWARD, 0) ? end_across(sv, w, part, y)
                                               : GOES_ON;
}

static enum outcome backward_group(struct saver *sv, const struct work *w,
                                   uint32_t part, CUdeviceptr g, uint32_t k)
{
    struct group group = { .layer = part / 2, .k = k,
                           .n_tensors = sv->options.tensors };

    if (goes_across(sv, GH_BACKWARD, k)) {
        memcpy(group.tensors, sv->across[w->direction][w->set][part / 2],
               sizeof(group.tensors));
    } else {
        TRY(place(sv, &group, w));
    }
    RUN(use_group_backward(sv, &group, w, part, g));
    return let_go(sv, &group, w);
}

static enum outcome load_across(struct saver *sv, const struct work *w,
                                uint32_t part)
{
    struct group group = { .layer = part / 2 };

    TRY(place(sv, &group, w));
    keep_across(sv, &group, w, part);
    return GOES_ON;
}

static enum outcome backward_part(struct saver *sv, const struct work *w,
                                  uint32_t part, CUdeviceptr g)
{
    RUN(mix(sv, grad(sv, w->set, part), g, 0, 5, 0, w->n, w->stream));
    for (uint32_t k = SAVER_MAX_MODULES; k-- > 0;) {
        if (k % 2 == part % 2 && k < modules(sv, false) &&
            !sv->loads_nothing) {
            TRY(backward_group(sv, w, part, g, k));
        }
    }
    return part % 2 == 1 && goes_across(sv, GH_BACKWARD, 0) && !sv->loads_nothing
               ? load_across(sv, w, part)
               : GOES_ON;
}

static enum outcome run_parts(struct saver *sv, const struct work *w)
{
    CUdeviceptr x = w->input;

    if (w->direction == GH_FORWARD) {
        for (uint32_t p = w->first; p <= w->last; p++) {
            TRY(forward_part(sv, w, p, x));
            x = act(sv, w->set, p + 1);
        }
        return GOES_ON;
    }
    for (uint32_t p = w->last + 1; p-- > w->first;) {
        TRY(backward_part(sv, w, p, x));
        x = grad(sv, w->set, p);
    }
    return GOES_ON;
}

static gh_buffer buffer(CUdeviceptr address, uint32_t n, uint32_t flags)
{
    return toy_buffer(address, 4 * (uint64_t)n, flags);
}

static uint32_t fill_outputs(const struct saver *sv, const struct work *w,
                             gh_buffer *outputs)
{
    uint32_t n = 0;

    if (w->direction == GH_FORWARD) {
        outputs[n++] = buffer(act(sv, w->set, w->last + 1), w->n, 0);
        return n;
    }
    outputs[n++] = buffer(grad(sv, w->set, w->first), w->n, 0);
    for (uint32_t p = w->first; p <= w->last; p++) {
        for (uint32_t k = p % 2; k < sv->options.modules; k += 2) {
            outputs[n++] = buffer(sum(sv, w->set, p, k), sv->options.elems,
                                  GH_BUFFER_UPDATED);
        }
    }
    return n;
}

/* Where the pass before has left it: at the ends in a buffer of the
 * microbatch, at the ends of a chunk in the next chunk's set. */
static gh_buffer find_input(const struct saver *sv, const gh_segment *s,
                            const struct work *w)
{
    const bool forward = w->direction == GH_FORWARD;
    const uint32_t border = forward ? w->first : w->last + 1;
    const bool at_end = border == (forward ? 0 : sv->n_parts);
    const gh_segment *next = forward ? s - 1 : s + 1;

    if (at_end) {
        return buffer(feed(sv, w->direction, w->m), w->n, 0);
    }
    if (w->evaluates) {
        return buffer(act(sv, w->set, border), w->n, 0);
    }
    if (next->chunk != s->chunk) {
        const uint32_t set = sv->set_of[next->chunk][w->m];

        return buffer(forward ? act(sv, set, border) : grad(sv, set, border),
                      w->n, 0);
    }
    return buffer(forward ? act(sv, sv->set_of[s->chunk][w->m], border)
                          : grad(sv, sv->set_of[s->chunk][w->m], border),
                  w->n, GH_BUFFER_STATIC);
}

static uint32_t choose_set(struct saver *sv, const gh_segment *s,
                           const struct work *w, uint32_t slot)
{
    if (w->evaluates) {
        return sv->options.slots + SAVER_MAX_FEEDS + own_of(sv, w->m);
    }
    return sv->set_of[s->chunk][w->m] =
               slot != GH_SLOT_NONE ? slot : sv->options.slots + own_of(sv, w->m);
}

static gh_status run_once(struct saver *sv, const gh_segment *s, gh_pass *pass,
                          struct work *w, enum outcome *outcome_p)
{
    gh_buffer outputs[2 + SAVER_MAX_PARTS * SAVER_MAX_MODULES];
    gh_decision *d = &sv->decision;
    gh_status status;

    *outcome_p = GOES_ON;
    *d = (gh_decision){ .struct_size = sizeof(*d) };
    status = gh_layer_enter(sv->session, pass, d, &sv->err);
    if (status != GH_OK) {
        return status;
    }
    w->set = choose_set(sv, s, w, d->slot);
    sv->lender.recording =
        d->action == GH_ACTION_RECORD ? ++sv->lender.recordings : 0;
    sv->has_added |= w->direction == GH_BACKWARD &&
                     (d->action == GH_ACTION_REPLAYED ||
                      d->reason == GH_REASON_CHECK);
    if (d->action == GH_ACTION_REPLAYED) {
        find_across(sv, w);
        pass->outputs = d->outputs;
        pass->n_outputs = d->n_outputs;
        return gh_layer_exit(sv->session, pass, &sv->err);
    }
    w->stream = d->stream;
    w->input = (CUdeviceptr)(uintptr_t)d->inputs[0].address;
    sv->n_pending = 0;
    *outcome_p = run_parts(sv, w);
    if (*outcome_p == GOES_ON) {
        *outcome_p = let_all_go(sv, w);
    }
    if (*outcome_p != GOES_ON) {
        gh_layer_cancel(sv->session, NULL);
        return *outcome_p == AGAIN ? GH_RERUN : GH_ERR_DEVICE;
    }
    pass->outputs = outputs;
    pass->n_outputs = fill_outputs(sv, w, outputs);
    return gh_layer_exit(sv->session, pass, &sv->err);
}

static gh_status run_segment(struct saver *sv, const gh_segment *s,
                             gh_direction direction, uint32_t m, bool evaluates)
{
    struct work w = {
        .first = 2 * s->first_layer + s->first_part,
        .last = 2 * s->last_layer + s->last_part,
        .direction = direction,
        .m = m,
        .set = evaluates ? sv->options.slots + SAVER_MAX_FEEDS + own_of(sv, m) : 0,
        .n = sv->words[m] != 0 ? sv->words[m] : sv->options.elems,
        .evaluates = evaluates,
    };
    CUstream stream = stream_of(sv, m);
    gh_buffer input = find_input(sv, s, &w);
    gh_pass pass = { .struct_size = sizeof(pass),
                     .segment = s->index,
                     .direction = direction,
                     .microbatch = m,
                     .flags = evaluates ? GH_PASS_FORWARD_ONLY : 0,
                     .stream = stream,
                     .inputs = &input,
                     .n_inputs = 1 };
    bool tried = false;
    enum outcome outcome;
    gh_status status;

    do {
        status = run_once(sv, s, &pass, &w, &outcome);
        if (outcome == FAILS && sv->tries_again && !tried) {
            tried = true;
            status = GH_RERUN;
        }
    } while (status == GH_RERUN);
    sv->stopped |= outcome == STOPS;
    if (sv->options.waits) {
        sv->toy.drv.cuCtxSynchronize();
    }
    if (status == GH_OK && sv->options.flush != NULL) {
        return sv->options.flush(sv);
    }
    if (status == GH_OK && sv->options.flushes) {
        status = gh_flush_delayed(sv->session, &sv->err);
    }
    return status;
}

/* ---- a step -------------------------------------------------------------- */

static uint32_t fed(const struct saver *sv, gh_direction d, uint32_t m)
{
    return 1000 * sv->step + 10 * m + d + 1;
}

static gh_status give_inputs(struct saver *sv, uint32_t m)
{
    CUstream stream = stream_of(sv, m);

    for (gh_direction d = GH_FORWARD; d <= GH_BACKWARD; d++) {
        if (!CALL(sv, cuMemsetD32Async,
                  (feed(sv, d, m), fed(sv, d, m), sv->options.elems,
                   stream))) {
            snprintf(sv->err.text, sizeof(sv->err.text), "no memset");
            return GH_ERR_DEVICE;
        }
    }
    return GH_OK;
}

static gh_status forward(struct saver *sv, uint32_t m, bool evaluates)
{
    gh_status status = give_inputs(sv, m);

    for (uint32_t i = 0; i < sv->n_segments && status == GH_OK; i++) {
        status = run_segment(sv, &sv->segments[i], GH_FORWARD, m, evaluates);
    }
    return status;
}

static gh_status backward(struct saver *sv, uint32_t m)
{
    gh_status status = GH_OK;

    for (uint32_t i = sv->evaluates_only ? 0 : sv->n_segments;
         i-- > 0 && status == GH_OK;) {
        status = run_segment(sv, &sv->segments[i], GH_BACKWARD, m, false);
    }
    return status;
}

static gh_status backward_all(struct saver *sv, uint32_t first, uint32_t end)
{
    gh_status status = GH_OK;

    for (uint32_t i = sv->n_segments; i-- > 0;) {
        for (uint32_t m = first; m < end && status == GH_OK; m++) {
            status =
                run_segment(sv, &sv->segments[i], GH_BACKWARD, m, false);
        }
    }
    return status;
}

static gh_status forward_both(struct saver *sv, uint32_t m)
{
    gh_status status =
        sv->options.evaluates ? forward(sv, m, true) : GH_OK;

    return status == GH_OK && !sv->evaluates_only ? forward(sv, m, false)
                                                  : status;
}

static gh_status forward_all(struct saver *sv, uint32_t first, uint32_t end)
{
    gh_status status = GH_OK;

    for (uint32_t m = first; m < end && status == GH_OK; m++) {
        status = give_inputs(sv, m);
    }
    for (uint32_t i = 0; i < sv->n_segments; i++) {
        for (uint32_t m = first; m < end && status == GH_OK; m++) {
            status = run_segment(sv, &sv->segments[i], GH_FORWARD, m, false);
        }
    }
    return status;
}

/* Returns how many they are. */
static uint32_t step_side_by_side(struct saver *sv, uint32_t first,
                                  uint32_t microbatches, gh_status *status)
{
    const uint32_t left = microbatches - first;
    const uint32_t n =
        left < sv->options.in_flight ? left : sv->options.in_flight;

    *status = forward_all(sv, first, first + n);
    if (*status == GH_OK) {
        *status = backward_all(sv, first, first + n);
    }
    return n;
}

/* As many forwards as may be in flight, then their backwards from the last. */
static gh_status step_last_first(struct saver *sv, uint32_t microbatches)
{
    gh_status status = GH_OK;

    for (uint32_t m = 0; m < microbatches && status == GH_OK;) {
        const uint32_t first = m;

        if (sv->options.side_by_side) {
            m += step_side_by_side(sv, first, microbatches, &status);
            continue;
        }
        while (m < microbatches && m < first + sv->options.in_flight &&
               status == GH_OK) {
            status = forward_both(sv, m++);
        }
        for (uint32_t b = m; b-- > first && status == GH_OK;) {
            status = backward(sv, b);
        }
    }
    return status;
}

static gh_status step_first_first(struct saver *sv, uint32_t microbatches)
{
    const uint32_t ahead = sv->options.in_flight;
    gh_status status = GH_OK;

    for (uint32_t i = 0; i < microbatches + ahead && status == GH_OK; i++) {
        if (i >= ahead && i - ahead < microbatches) {
            status = backward(sv, i - ahead);
        }
        if (status == GH_OK && i < microbatches) {
            status = forward_both(sv, i);
        }
    }
    return status;
}

/* ---- what must come out --------------------------------------------------- */

static void expect_word(struct saver *sv, uint32_t m, uint32_t n, uint32_t i)
{
    const struct saver_options *o = &sv->options;
    uint32_t x[SAVER_MAX_PARTS + 1];
    uint32_t g = fed(sv, GH_BACKWARD, m);

    x[0] = fed(sv, GH_FORWARD, m);
    for (uint32_t p = 0; p < sv->n_parts; p++) {
        x[p + 1] = 3 * x[p] + p + 1;
        for (uint32_t k = p % 2; k < modules(sv, false); k += 2) {
            for (uint32_t t = 0; t < o->tensors; t++) {
                x[p + 1] += i < words_of_tensor(n, t)
                                ? x[p] + constant(sv, p, k, t)
                                : 0;
            }
        }
        for (uint32_t t = 0; t < o->tensors && p % 2 == 1 && o->across; t++) {
            x[p + 1] += i < words_of_tensor(n, t)
                            ? x[p - 1] + constant(sv, p - 1, 0, t)
                            : 0;
        }
    }
    for (uint32_t p = sv->n_parts; p-- > 0;) {
        uint32_t gx = 5 * g;

        for (uint32_t k = p % 2; k < modules(sv, false); k += 2) {
            for (uint32_t t = 0; t < o->tensors; t++) {
                const uint32_t of = x[p] + constant(sv, p, k, t);

                if (i < words_of_tensor(n, t)) {
                    sv->sums[(p * SAVER_MAX_MODULES + k) * o->elems + i] +=
                        of + g;
                    gx += 7 * of;
                }
            }
        }
        g = gx;
    }
}

static void expect(struct saver *sv, uint32_t microbatches)
{
    for (uint32_t m = 0; m < microbatches && !sv->evaluates_only; m++) {
        const uint32_t n =
            sv->words[m] != 0 ? sv->words[m] : sv->options.elems;

        for (uint32_t i = 0; i < n; i++) {
            expect_word(sv, m, n, i);
        }
    }
}

/* Twice where the first call is one that was made to fail: what is looked at is
 * the library's work. */
static void read_words(struct saver *sv, void *to, CUdeviceptr from,
                       uint64_t bytes)
{
    if (!CALL(sv, cuMemcpyDtoH, (to, from, bytes))) {
        sv->toy.drv.cuMemcpyDtoH(to, from, bytes);
    }
}

static void write_words(struct saver *sv, CUdeviceptr to, const void *from,
                        uint64_t bytes)
{
    if (!CALL(sv, cuMemcpyHtoD, (to, from, bytes))) {
        sv->toy.drv.cuMemcpyHtoD(to, from, bytes);
    }
}

static void copy_sums(struct saver *sv, bool save)
{
    sv->toy.drv.cuCtxSynchronize();
    for (uint32_t set = 0; set < sv->n_sets; set++) {
        char *kept = (char *)sv->kept_device + set * sums_bytes(sv);
        const CUdeviceptr of = sum(sv, set, 0, 0);

        if (save) {
            read_words(sv, kept, of, sums_bytes(sv));
        } else {
            write_words(sv, of, kept, sums_bytes(sv));
        }
    }
    sv->toy.drv.cuCtxSynchronize();
}

gh_status saver_step(struct saver *sv, uint32_t microbatches)
{
    const bool guarded = sv->watch != NULL;
    gh_status status, ended;
    gh_error why;

    sv->calls = 0;
    sv->has_added = false;
    sv->stopped = false;
    if (guarded) {
        copy_sums(sv, true);
    }
    status = sv->options.last_first || sv->options.side_by_side
                 ? step_last_first(sv, microbatches)
                                    : step_first_first(sv, microbatches);
    if (sv->at_end != NULL) {
        toy_configure(&sv->toy, sv->at_end);
    }
    ended = gh_iteration_end(sv->session, &why);
    if (status == GH_OK && ended != GH_OK) {
        status = ended;
        sv->err = why;
    }
    if (status == GH_OK) {
        expect(sv, microbatches);
    } else if (guarded && sv->has_added) {
        copy_sums(sv, false);
    }
    sv->step++;
    if (status == GH_OK && !sv->options.free_running &&
        !CALL(sv, cuCtxSynchronize, ())) {
        snprintf(sv->err.text, sizeof(sv->err.text), "no end of the step");
        status = GH_ERR_DEVICE;
    }
    return status;
}

static bool is_sum_exact(struct saver *sv, uint32_t part, uint32_t k,
                         uint32_t *read, uint32_t *all)
{
    const uint32_t n = sv->options.elems;

    memset(all, 0, 4 * (size_t)n);
    for (uint32_t set = 0; set < sv->n_sets; set++) {
        read_words(sv, read, sum(sv, set, part, k), 4 * (uint64_t)n);
        for (uint32_t i = 0; i < n; i++) {
            all[i] += read[i];
        }
    }
    return memcmp(all, &sv->sums[(part * SAVER_MAX_MODULES + k) * (size_t)n],
                  4 * (size_t)n) == 0;
}

bool saver_is_exact(struct saver *sv)
{
    uint32_t *read = calloc(2 * (size_t)sv->options.elems, 4);
    bool exact = CALL(sv, cuCtxSynchronize, ());

    for (uint32_t p = 0; p < sv->n_parts && exact; p++) {
        for (uint32_t k = 0; k < SAVER_MAX_MODULES && exact; k++) {
            exact = is_sum_exact(sv, p, k, read, read + sv->options.elems);
        }
    }
    free(read);
    return exact;
}
