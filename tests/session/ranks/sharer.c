/*
 * sharer.c - see sharer.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/session/ranks/sharer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES (SHARER_FLOATS * sizeof(float))

/* NCCL takes seconds to start. */
static const char *const patient[] = { "GRAPHHOOKS_TIMEOUT=20", NULL };

static void keep(void *user, gh_log_level level, const char *line)
{
    struct sharer *s = user;
    const size_t n = strlen(s->said);

    (void)level;
    snprintf(s->said + n, sizeof(s->said) - n, "%s\n", line);
}

bool sharer_said(const struct sharer *s, const char *words)
{
    return strstr(s->said, words) != NULL;
}

/* ---- words without NCCL -------------------------------------------------- */

static gh_status bring(void *user, uint32_t bank, const uint64_t *mine,
                       uint64_t *all, uint32_t n)
{
    struct sharer *s = user;

    (void)bank;
    if (s->mute) {
        return GH_ERR_BUSY;
    }
    memcpy(ranks_board(s->r->rank), mine, n * sizeof(*mine));
    ranks_barrier(s->r);
    for (int i = 0; i < s->r->n; i++) {
        memcpy(all + (size_t)i * n, ranks_board(i), n * sizeof(*all));
    }
    ranks_barrier(s->r);
    return GH_OK;
}

static void note_abort(void *user, uint32_t bank)
{
    struct sharer *s = user;

    s->aborted += bank == s->bank;
}

/* ---- graphs of the host's own -------------------------------------------- */

struct object {
    CUgraph graph;
    CUgraphExec exec;
};

static gh_status capture_begin(void *user, void *stream)
{
    (void)user;
    return drv.cuStreamBeginCapture(
               stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == CUDA_SUCCESS
               ? GH_OK
               : GH_ERR_DEVICE;
}

static gh_status capture_end(void *user, void *stream, void **object_p,
                             void **graph_p)
{
    struct object *object = calloc(1, sizeof(*object));
    struct sharer *s = user;

    if (object == NULL || drv.cuStreamEndCapture(stream, &object->graph) != 0) {
        free(object);
        return GH_ERR_DEVICE;
    }
    s->objects++;
    *object_p = object;
    *graph_p = object->graph;
    return GH_OK;
}

static gh_status launch(void *user, void *opaque, void *stream, void **exec_p)
{
    struct object *object = opaque;

    (void)user;
    if (object->exec == NULL) {
        drv.cuGraphInstantiateWithFlags(&object->exec, object->graph, 0);
    }
    *exec_p = object->exec;
    return drv.cuGraphLaunch(object->exec, stream) == CUDA_SUCCESS
               ? GH_OK
               : GH_ERR_DEVICE;
}

static void destroy(void *user, void *opaque)
{
    struct object *object = opaque;
    struct sharer *s = user;

    if (object->exec != NULL) {
        drv.cuGraphExecDestroy(object->exec);
    }
    drv.cuGraphDestroy(object->graph);
    free(object);
    s->objects--;
}

const gh_host_services sharer_captures = { .capture_begin = capture_begin,
                                           .capture_end = capture_end,
                                           .launch = launch,
                                           .destroy = destroy };

/* ---- sessions ------------------------------------------------------------ */

static gh_model *make_model(const char *name)
{
    const gh_layer_desc layer = { .struct_size = sizeof(layer),
                                  .name = name };
    gh_model *model = NULL;

    gh_model_create(&model, NULL);
    for (uint32_t i = 0; i < SHARER_SEGMENTS; i++) {
        gh_model_add_layer(model, &layer, NULL);
    }
    return model;
}

bool sharer_open_alone(struct sharer *s, struct rank *r,
                       const struct sharer_options *options)
{
    gh_host_services host = { 0 };
    gh_session_desc desc = { .struct_size = sizeof(desc) };
    gh_model *model = make_model(options->layer);
    gh_status status;

    memset(s, 0, sizeof(*s));
    s->r = r;
    s->options = *options;
    s->floats = SHARER_FLOATS;
    s->comm = r->comm;
    s->stream = r->stream;
    s->n = r->n;
    if (options->host != NULL) {
        host = *options->host;
    }
    host.struct_size = sizeof(host);
    host.user = s;
    if (host.log == NULL) {
        host.log = keep;
    }
    desc.model = model;
    desc.host = &host;
    desc.driver = ranks_driver();
    desc.max_slots = SHARER_SLOTS;
    desc.flags = options->flags;
    desc.offload = options->offload;
    desc.environment =
        options->environment != NULL ? options->environment : patient;
    status = gh_session_open(&desc, &s->session, &s->err);
    gh_model_destroy(model);
    if (status != GH_OK) {
        return says(r, false, "a session opens: %.150s", s->err.text);
    }
    drv.cuMemAlloc(&s->memory, (2 + SHARER_SLOTS + 1) * SHARER_PASSES * BYTES);
    drv.cuMemsetD8Async(s->memory, 0,
                        (2 + SHARER_SLOTS + 1) * SHARER_PASSES * BYTES,
                        r->stream);
    drv.cuStreamSynchronize(r->stream);
    s->ranks = (gh_ranks){ .struct_size = sizeof(s->ranks),
                           .rank = (uint32_t)r->rank,
                           .size = (uint32_t)r->n };
    if (options->by_host) {
        s->ranks.user = s;
        s->ranks.gather = bring;
        s->ranks.abort = note_abort;
    } else {
        s->ranks.comm = r->comm;
        s->ranks.nccl = ranks_nccl();
    }
    return true;
}

gh_status sharer_join(struct sharer *s)
{
    return gh_ranks_set(s->session, &s->ranks, &s->err);
}

bool sharer_open(struct sharer *s, struct rank *r,
                 const struct sharer_options *options)
{
    if (!sharer_open_alone(s, r, options)) {
        return false;
    }
    if (!options->alone && sharer_join(s) != GH_OK) {
        says(r, false, "the ranks of a bank are said: %.150s", s->err.text);
        return false;
    }
    return says(r, sharer_is_exact(s), "a step of warmup is right");
}

void sharer_close(struct sharer *s)
{
    gh_session_close(s->session);
    s->session = NULL;
    drv.cuMemFree(s->memory);
}

gh_stats sharer_stats(struct sharer *s)
{
    gh_stats stats = { .struct_size = sizeof(stats) };

    gh_session_stats(s->session, &stats, NULL);
    return stats;
}

uint64_t sharer_eager(struct sharer *s, gh_reason reason)
{
    uint64_t n = 0;

    gh_session_reasons(s->session, reason, &n, NULL);
    return n;
}

/* ---- passes -------------------------------------------------------------- */

/* 0 and 1: what microbatches are given; then each slot's, and the host's. */
static CUdeviceptr place(const struct sharer *s, uint32_t set, uint32_t row)
{
    return s->memory + (set * SHARER_PASSES + row) * BYTES;
}

static uint32_t row_of(uint32_t segment, gh_direction direction)
{
    return direction == GH_FORWARD ? segment
                                   : 2 * SHARER_SEGMENTS - 1 - segment;
}

static CUdeviceptr result(const struct sharer *s, uint32_t slot, uint32_t row)
{
    return place(s, 2 + (slot == GH_SLOT_NONE ? SHARER_SLOTS : slot), row);
}

static gh_buffer buffer_at(const struct sharer *s, CUdeviceptr at)
{
    return (gh_buffer){ pointer(at), s->floats * sizeof(float), 0, 0 };
}

static gh_buffer input_of(const struct sharer *s, uint32_t row,
                          uint32_t microbatch, uint32_t slot)
{
    return buffer_at(s, row == 0 ? place(s, (microbatch + s->moved) % 2, 0)
                                 : result(s, slot, row - 1));
}

static void work(struct sharer *s, const gh_pass *pass, const gh_decision *d,
                 gh_buffer *output)
{
    const uint32_t row = row_of(pass->segment, pass->direction);
    const CUdeviceptr to = result(s, d->slot, row);
    const CUdeviceptr from = (uintptr_t)d->inputs[0].address;

    if (s->options.mischief != NULL) {
        s->options.mischief(s, pass, d);
    }
    drv.cuMemcpyDtoDAsync(to, from, s->floats * sizeof(float), d->stream);
    nccl.ncclAllReduce(pointer(to), pointer(to), s->floats, ncclFloat32,
                       ncclSum, s->comm, d->stream);
    if (s->lies && d->reason == GH_REASON_CHECK) {
        drv.cuMemsetD32Async(to, 7, 1, d->stream);
    }
    *output = buffer_at(s, to);
}

static void count(struct sharer *s, const gh_decision *d)
{
    s->last = d->reason;
    s->recorded += d->action == GH_ACTION_RECORD;
    s->replayed += d->action == GH_ACTION_REPLAYED;
    s->ran += d->action == GH_ACTION_RUN;
}

gh_status sharer_pass(struct sharer *s, uint32_t segment,
                      gh_direction direction, uint32_t microbatch)
{
    const uint32_t row = row_of(segment, direction);
    gh_buffer input, output = { 0 };
    gh_pass pass = { .struct_size = sizeof(pass),
                     .segment = segment,
                     .direction = direction,
                     .microbatch = microbatch,
                     .flags = s->pass_flags,
                     .n_inputs = 1,
                     .variant = s->variant,
                     .stream = s->stream,
                     .inputs = &input,
                     .bank = s->bank,
                     .group = s->group };
    gh_status status;

    input = input_of(s, row, microbatch, s->slot);
    if (s->capacity != 0) {
        pass.capacities = &s->capacity;
    }
    if (s->options.fixed && row == 0) {
        input.flags = GH_BUFFER_STATIC;
    }
    do {
        gh_decision d = { .struct_size = sizeof(d) };

        status = gh_layer_enter(s->session, &pass, &d, &s->err);
        if (status != GH_OK) {
            return status;
        }
        count(s, &d);
        s->slot = d.slot;
        if (d.action != GH_ACTION_REPLAYED) {
            if (d.action == GH_ACTION_RECORD && s->cancels) {
                s->cancels = false;
                gh_layer_cancel(s->session, NULL);
                status = GH_RERUN;
                continue;
            }
            work(s, &pass, &d, &output);
            pass.outputs = &output;
            pass.n_outputs = 1;
        }
        status = gh_layer_exit(s->session, &pass, &s->err);
        s->reruns += status == GH_RERUN;
    } while (status == GH_RERUN);
    return status;
}

/* What rank `rank` is given: small whole numbers, so that sums are exact. */
static float given(uint32_t step, uint32_t microbatch, int rank)
{
    return (float)((step * 7 + microbatch * 3 + (uint32_t)rank * 2) % 61 + 1);
}

gh_status sharer_step(struct sharer *s, uint32_t microbatches)
{
    gh_status status = GH_OK;

    s->step++;
    for (uint32_t m = 0; m < microbatches && status == GH_OK; m++) {
        float x = given(s->step, m, s->r->rank);
        uint32_t bits;

        memcpy(&bits, &x, sizeof(bits));
        s->stream = s->options.two_streams && m % 2 != 0 ? s->r->side
                                                         : s->r->stream;
        drv.cuMemsetD32Async(place(s, (m + s->moved) % 2, 0), bits,
                             SHARER_FLOATS, s->stream);
        for (uint32_t i = 0; i < SHARER_SEGMENTS && status == GH_OK; i++) {
            status = sharer_pass(s, i, GH_FORWARD, m);
        }
        for (uint32_t i = SHARER_SEGMENTS; i-- > 0 && status == GH_OK;) {
            status = sharer_pass(s, i, GH_BACKWARD, m);
        }
    }
    return status == GH_OK ? gh_iteration_end(s->session, &s->err) : status;
}

bool sharer_was_exact(struct sharer *s)
{
    const uint32_t slot = s->slot;
    float want = 0, got[SHARER_FLOATS];

    for (int i = s->first; i < s->first + s->n; i++) {
        want += given(s->step, 0, i);
    }
    for (uint32_t row = 0; row < SHARER_PASSES; row++) {
        fetch(s->r, s->r->stream, got, result(s, slot, row),
              s->floats * sizeof(float));
        for (uint32_t i = 0; i < s->floats; i++) {
            if (got[i] != want) {
                return says(s->r, false,
                            "step %u, row %u, float %u is %g, not %g", s->step,
                            row, i, (double)got[i], (double)want);
            }
        }
        want *= (float)s->n;
    }
    return true;
}

bool sharer_is_exact(struct sharer *s)
{
    gh_status status = sharer_step(s, 1);

    if (status == GH_OK) {
        status = gh_ranks_wait(s->session, s->r->stream, &s->err);
    }
    if (status != GH_OK) {
        return says(s->r, false, "step %u ends: %s: %.120s", s->step,
                    gh_status_name(status), s->err.text);
    }
    return sharer_was_exact(s);
}
