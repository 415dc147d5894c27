/*
 * toy.c - a host of a few hundred lines, and what it must compute.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/toy.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- two kernels: d = f * a + b (+ k), and d += a + b ------------------- */

static const char ptx[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry mix(.param .u64 pd, .param .u64 pa, .param .u64 pb,\n"
    "    .param .u32 pf, .param .u32 pk, .param .u32 pn)\n{\n"
    " .reg .pred %p<3>; .reg .b32 %r<12>; .reg .b64 %rd<8>;\n"
    " mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;\n"
    " mad.lo.s32 %r4, %r1, %r2, %r3;\n"
    " ld.param.u32 %r5, [pn]; setp.ge.u32 %p1, %r4, %r5; @%p1 ret;\n"
    " ld.param.u64 %rd1, [pd]; ld.param.u64 %rd2, [pa];\n"
    " ld.param.u64 %rd3, [pb];\n"
    " ld.param.u32 %r6, [pf]; ld.param.u32 %r7, [pk];\n"
    " mul.wide.u32 %rd4, %r4, 4;\n"
    " add.s64 %rd5, %rd2, %rd4; ld.global.u32 %r8, [%rd5];\n"
    " mad.lo.s32 %r8, %r8, %r6, %r7;\n"
    " setp.eq.u64 %p2, %rd3, 0; @%p2 bra store;\n"
    " add.s64 %rd6, %rd3, %rd4; ld.global.u32 %r9, [%rd6];\n"
    " add.u32 %r8, %r8, %r9;\n"
    "store:\n"
    " add.s64 %rd7, %rd1, %rd4; st.global.u32 [%rd7], %r8;\n ret;\n}\n"
    ".visible .entry add(.param .u64 pd, .param .u64 pa, .param .u64 pb,\n"
    "    .param .u32 pn)\n{\n"
    " .reg .pred %p<2>; .reg .b32 %r<12>; .reg .b64 %rd<8>;\n"
    " mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;\n"
    " mad.lo.s32 %r4, %r1, %r2, %r3;\n"
    " ld.param.u32 %r5, [pn]; setp.ge.u32 %p1, %r4, %r5; @%p1 ret;\n"
    " ld.param.u64 %rd1, [pd]; ld.param.u64 %rd2, [pa];\n"
    " ld.param.u64 %rd3, [pb]; mul.wide.u32 %rd4, %r4, 4;\n"
    " add.s64 %rd5, %rd2, %rd4; ld.global.u32 %r6, [%rd5];\n"
    " add.s64 %rd6, %rd3, %rd4; ld.global.u32 %r7, [%rd6];\n"
    " add.s64 %rd7, %rd1, %rd4; ld.global.u32 %r8, [%rd7];\n"
    " add.u32 %r8, %r8, %r6; add.u32 %r8, %r8, %r7;\n"
    " st.global.u32 [%rd7], %r8;\n ret;\n}\n";

static CUdeviceptr address_of(void *const *params, int i)
{
    return *(CUdeviceptr *)params[i];
}

static uint32_t number_of(void *const *params, int i)
{
    return *(uint32_t *)params[i];
}

static uint32_t *words(CUdeviceptr address)
{
    return (uint32_t *)(uintptr_t)address;
}

static void mix_run(const softcuda_launch *launch, void *const *params)
{
    uint32_t *d = words(address_of(params, 0));
    const uint32_t *a = words(address_of(params, 1));
    const uint32_t *b = words(address_of(params, 2));

    (void)launch;
    for (uint32_t i = 0; i < number_of(params, 5); i++) {
        d[i] = number_of(params, 3) * a[i] + number_of(params, 4) +
               (b != NULL ? b[i] : 0);
    }
}

static void mix_touch(const softcuda_launch *launch, void *const *params,
                      softcuda_touch_fn touch, void *sink)
{
    size_t bytes = 4 * (size_t)number_of(params, 5);

    (void)launch;
    touch(sink, words(address_of(params, 1)), bytes, 0);
    if (address_of(params, 2) != 0) {
        touch(sink, words(address_of(params, 2)), bytes, 0);
    }
    touch(sink, words(address_of(params, 0)), bytes, 1);
}

static void add_run(const softcuda_launch *launch, void *const *params)
{
    uint32_t *d = words(address_of(params, 0));

    (void)launch;
    for (uint32_t i = 0; i < number_of(params, 3); i++) {
        d[i] +=
            words(address_of(params, 1))[i] + words(address_of(params, 2))[i];
    }
}

static void add_touch(const softcuda_launch *launch, void *const *params,
                      softcuda_touch_fn touch, void *sink)
{
    size_t bytes = 4 * (size_t)number_of(params, 3);

    (void)launch;
    touch(sink, words(address_of(params, 1)), bytes, 0);
    touch(sink, words(address_of(params, 2)), bytes, 0);
    touch(sink, words(address_of(params, 0)), bytes, 0);
    touch(sink, words(address_of(params, 0)), bytes, 1);
}

static const uint32_t mix_bytes[] = { 8, 8, 8, 4, 4, 4 };
static const uint32_t add_bytes[] = { 8, 8, 8, 4 };
static const softcuda_kernel kernels[] = {
    { "mix", 6, mix_bytes, mix_run, mix_touch, NULL },
    { "add", 4, add_bytes, add_run, add_touch, NULL },
};
static const softcuda_image image = { SOFTCUDA_IMAGE_MAGIC, 2, 0, kernels };

/* ---- the device -------------------------------------------------------- */

static bool is_cuda(void)
{
    const char *driver = getenv("GRAPHHOOKS_TEST_DRIVER");

    return driver != NULL && strcmp(driver, "cuda") == 0;
}

static const char *driver_path(void)
{
    const char *path = getenv("GRAPHHOOKS_SOFTCUDA");

    if (is_cuda()) {
        return "libcuda.so.1";
    }
    return path != NULL ? path : ".libs/libgraphhooks-softcuda.so";
}

const char *toy_driver(void)
{
    return is_cuda() ? "cuda" : driver_path();
}

CUresult toy_mix(struct toy *toy, CUdeviceptr d, CUdeviceptr a, CUdeviceptr b,
                 uint32_t f, uint32_t k, uint32_t n, CUstream stream)
{
    void *params[] = { &d, &a, &b, &f, &k, &n };

    return toy->drv.cuLaunchKernel(toy->mix, (n + 255) / 256, 1, 1, 256, 1, 1,
                                   0, stream, params, NULL);
}

CUresult toy_add(struct toy *toy, CUdeviceptr d, CUdeviceptr a, CUdeviceptr b,
                 uint32_t n, CUstream stream)
{
    void *params[] = { &d, &a, &b, &n };

    return toy->drv.cuLaunchKernel(toy->add, (n + 255) / 256, 1, 1, 256, 1, 1,
                                   0, stream, params, NULL);
}

static bool call(struct toy *toy, CUresult result, const char *entry)
{
    const char *name = "?";

    if (result == CUDA_SUCCESS) {
        return true;
    }
    toy->drv.cuGetErrorName(result, &name);
    snprintf(toy->err.text, sizeof(toy->err.text), "toy: %s: %d %s", entry,
             result, name);
    return false;
}
#define CALL(toy, entry, args) call((toy), (toy)->drv.entry args, #entry)

/* Per set: an activation after each part and one before, their gradients,
 * and the sums that its backward passes add to; per microbatch an input, an
 * output gradient and a spare. */
static uint32_t set_buffers(const struct toy *toy)
{
    return 3 * toy->n_parts + 2;
}

uint64_t toy_stride(uint32_t elems)
{
    return (4 * (uint64_t)elems + 255) & ~UINT64_C(255);
}

static uint64_t stride(const struct toy *toy)
{
    return toy_stride(toy->options.elems);
}

static CUdeviceptr at(const struct toy *toy, uint32_t i)
{
    return toy->memory + i * stride(toy);
}

static CUdeviceptr act(const struct toy *toy, uint32_t set, uint32_t part)
{
    return at(toy, set * set_buffers(toy) + part);
}

static CUdeviceptr grad(const struct toy *toy, uint32_t set, uint32_t part)
{
    return at(toy, set * set_buffers(toy) + toy->n_parts + 1 + part);
}

static CUdeviceptr weight(const struct toy *toy, uint32_t set, uint32_t part)
{
    return at(toy, set * set_buffers(toy) + 2 * (toy->n_parts + 1) + part);
}

static CUdeviceptr feed(const struct toy *toy, uint32_t which, uint32_t m)
{
    return at(toy, toy->n_sets * set_buffers(toy) + which * TOY_MAX_FEEDS + m);
}

static uint32_t n_buffers(const struct toy *toy)
{
    return toy->n_sets * set_buffers(toy) + 3 * TOY_MAX_FEEDS;
}

/* Zeroes the sums, and the rest unless the toy is to find out who reads it
 * before it is written. */
static bool zero_memory(struct toy *toy)
{
    const size_t sums = toy->n_parts * stride(toy);

    if (!toy->options.raw) {
        return CALL(toy, cuMemsetD8Async,
                    (toy->memory, 0, toy->memory_bytes, toy->streams[0]));
    }
    for (uint32_t set = 0; set < toy->n_sets; set++) {
        if (!CALL(toy, cuMemsetD8Async,
                  (weight(toy, set, 0), 0, sums, toy->streams[0]))) {
            return false;
        }
    }
    return true;
}

static bool make_objects(struct toy *toy)
{
    const struct toy_options *o = &toy->options;

    if (!CALL(toy, cuModuleLoadData,
              (&toy->module, toy->soft ? (const void *)&image : ptx)) ||
        !CALL(toy, cuModuleGetFunction, (&toy->mix, toy->module, "mix")) ||
        !CALL(toy, cuModuleGetFunction, (&toy->add, toy->module, "add"))) {
        return false;
    }
    for (uint32_t i = 0; i < TOY_STREAMS && !o->legacy; i++) {
        if (!CALL(toy, cuStreamCreate,
                  (&toy->streams[i],
                   o->blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING))) {
            return false;
        }
    }
    toy->memory_bytes = n_buffers(toy) * stride(toy);
    return CALL(toy, cuStreamCreate, (&toy->side, CU_STREAM_NON_BLOCKING)) &&
           CALL(toy, cuEventCreate, (&toy->fork, CU_EVENT_DISABLE_TIMING)) &&
           CALL(toy, cuMemAlloc, (&toy->memory, toy->memory_bytes)) &&
           zero_memory(toy) && CALL(toy, cuCtxSynchronize, ());
}

bool toy_open(struct toy *toy, const struct toy_options *options,
              const char **reason_p)
{
    static char reason[512];
    CUdevice device;

    memset(toy, 0, sizeof(*toy));
    *reason_p = reason;
    toy->options = *options;
    toy->options.streams = options->streams == 0 ? 1 : options->streams;
    toy->options.in_flight = options->in_flight == 0 ? 1 : options->in_flight;
    toy->options.max_slots = options->max_slots == 0 ? 8 : options->max_slots;
    toy->n_parts = 2 * options->layers;
    toy->n_sets = toy->options.max_slots + toy->options.in_flight +
                  toy->options.wgrad_lag;
    if (toy->options.wgrad != TOY_WGRAD_JOINED) {
        toy->options.flags |= GH_SESSION_DELAY_WGRAD;
    }
    if (driver_load(driver_path(), &toy->drv, reason, sizeof(reason)) != 0) {
        return false;
    }
    toy->soft = !is_cuda();
    if (toy->drv.cuInit(0) != CUDA_SUCCESS ||
        toy->drv.cuDeviceGet(&device, 0) != CUDA_SUCCESS) {
        snprintf(reason, sizeof(reason), "no CUDA device");
        return false;
    }
    if (!CALL(toy, cuDevicePrimaryCtxRetain, (&toy->ctx, device)) ||
        !CALL(toy, cuCtxSetCurrent, (toy->ctx)) || !make_objects(toy)) {
        snprintf(reason, sizeof(reason), "%.400s", toy->err.text);
        toy_close(toy);
        return false;
    }
    return true;
}

bool toy_probe(struct toy *toy, const char **reason_p)
{
    const struct toy_options smallest = { .layers = 1, .elems = 1 };

    if (!toy_open(toy, &smallest, reason_p)) {
        return false;
    }
    toy_close(toy);
    return true;
}

gh_model *toy_model(gh_layer_desc layer, uint32_t layers, uint32_t chunks)
{
    gh_model *model = NULL;

    gh_model_create(&model, NULL);
    for (uint32_t i = 0; i < layers; i++) {
        layer.chunk = i * chunks / layers;
        gh_model_add_layer(model, &layer, NULL);
    }
    return model;
}

uint32_t toy_segments(gh_session *session, uint32_t chunks,
                      gh_segment *segments)
{
    uint32_t n = 0;

    for (uint32_t c = 0; c < chunks; c++) {
        const uint32_t of_chunk = gh_plan_segment_count(session, c);

        for (uint32_t i = 0; i < of_chunk; i++) {
            segments[n].struct_size = sizeof(*segments);
            gh_plan_segment(session, c, i, &segments[n++], NULL);
        }
    }
    return n;
}

gh_status toy_attach(struct toy *toy)
{
    static const char *const nothing[] = { NULL };
    const struct toy_options *o = &toy->options;
    const gh_layer_desc plain = { .struct_size = sizeof(plain),
                                  .family = o->family };
    gh_model *model = toy_model(o->layer != NULL ? *o->layer : plain, o->layers,
                                o->chunks == 0 ? 1 : o->chunks);
    const gh_session_desc desc = {
        .struct_size = sizeof(desc),
        .flags = o->flags,
        .model = model,
        .host = o->host,
        .driver = toy_driver(),
        .scope = o->scope,
        .granularity = o->granularity,
        .max_slots = o->max_slots,
        .warmup_steps = o->warmup_steps,
        .environment = o->environment != NULL ? o->environment : nothing,
    };
    gh_status status = gh_session_open(&desc, &toy->session, &toy->err);

    gh_model_destroy(model);
    if (status != GH_OK) {
        return status;
    }
    toy->n_segments = toy_segments(toy->session, 1, toy->segments);
    return GH_OK;
}

void toy_detach(struct toy *toy)
{
    gh_session_close(toy->session);
    toy->session = NULL;
}

void toy_close(struct toy *toy)
{
    toy_detach(toy);
    toy->drv.cuCtxSynchronize();
    toy->drv.cuMemFree(toy->memory);
    if (toy->fork != NULL) {
        toy->drv.cuEventDestroy(toy->fork);
    }
    for (uint32_t i = 0; i < TOY_STREAMS; i++) {
        if (toy->streams[i] != NULL) {
            toy->drv.cuStreamDestroy(toy->streams[i]);
        }
    }
    if (toy->side != NULL) {
        toy->drv.cuStreamDestroy(toy->side);
    }
    if (toy->module != NULL) {
        toy->drv.cuModuleUnload(toy->module);
    }
    if (toy->ctx != NULL) {
        CUdevice device = 0;

        toy->drv.cuCtxGetDevice(&device);
        toy->drv.cuCtxSetCurrent(NULL);
        toy->drv.cuDevicePrimaryCtxRelease(device);
    }
}

/* ---- one pass ---------------------------------------------------------- */

static bool mix(struct toy *toy, CUdeviceptr d, CUdeviceptr a, CUdeviceptr b,
                uint32_t f, uint32_t k, CUstream stream)
{
    return call(toy, toy_mix(toy, d, a, b, f, k, toy->options.elems, stream),
                "cuLaunchKernel");
}

static bool add(struct toy *toy, CUdeviceptr d, CUdeviceptr a, CUdeviceptr b,
                CUstream stream)
{
    return call(toy, toy_add(toy, d, a, b, toy->options.elems, stream),
                "cuLaunchKernel");
}

/* The parts of a pass, as the host would write them without the library. */
struct work {
    uint32_t first, last; /* parts */
    gh_direction direction;
    uint32_t set;
    uint32_t lie; /* added to what forward parts add */
    bool weights; /* adds to the sums */
    bool keeps;   /* leaves its input in the set, for a later pass */
    bool forgets; /* its last part, forward */
    CUdeviceptr input;
    CUstream stream;
};

static bool run_parts(struct toy *toy, const struct work *w)
{
    CUdeviceptr x = w->input;

    if (w->direction == GH_FORWARD) {
        for (uint32_t p = w->first; p + w->forgets <= w->last; p++) {
            if (!mix(toy, act(toy, w->set, p + 1), x, 0, 3, p + 1 + w->lie,
                     w->stream)) {
                return false;
            }
            x = act(toy, w->set, p + 1);
        }
        return true;
    }
    if (w->keeps &&
        !mix(toy, grad(toy, w->set, w->last + 1), x, 0, 1, 0, w->stream)) {
        return false;
    }
    for (uint32_t p = w->last + 1; p-- > w->first;) {
        if (w->weights && !add(toy, weight(toy, w->set, p), x,
                               act(toy, w->set, p + 1), w->stream)) {
            return false;
        }
        if (w->direction == GH_BACKWARD &&
            !mix(toy, grad(toy, w->set, p), x, act(toy, w->set, p + 1), 5, 0,
                 w->stream)) {
            return false;
        }
        x = grad(toy, w->set, p);
    }
    return true;
}

static void do_mischief(struct toy *toy, const gh_pass *pass, struct work *w)
{
    const struct driver *drv = &toy->drv;
    CUdeviceptr memory = 0;

    switch (toy->mischief) {
    case TOY_SYNC:
        drv->cuStreamSynchronize(w->stream);
        break;
    case TOY_ALLOC:
        if (drv->cuMemAlloc(&memory, 256) == CUDA_SUCCESS) {
            drv->cuMemFree(memory);
        }
        break;
    case TOY_LEGACY:
        drv->cuMemsetD8Async(feed(toy, 2, 0), 0, 4, NULL);
        break;
    case TOY_UNJOINED:
        drv->cuEventRecord(toy->fork, w->stream);
        drv->cuStreamWaitEvent(toy->side, toy->fork, 0);
        drv->cuMemsetD8Async(feed(toy, 2, 0), 0, 4, toy->side);
        break;
    case TOY_OUTSIDE:
        drv->cuEventRecord(toy->fork, toy->side);
        drv->cuStreamWaitEvent(w->stream, toy->fork, 0);
        break;
    case TOY_ELSEWHERE: /* where a copy of the input is not in order */
        w->stream = toy->side;
        w->input = (CUdeviceptr)(uintptr_t)pass->inputs[0].address;
        break;
    default:
        break;
    }
    toy->mischiefs_done++;
}

struct exit_call {
    struct toy *toy;
    const gh_pass *pass;
    gh_status status;
};

static void *exit_elsewhere(void *user)
{
    struct exit_call *e = user;

    e->toy->drv.cuCtxSetCurrent(e->toy->ctx);
    e->status = gh_layer_exit(e->toy->session, e->pass, &e->toy->err);
    return NULL;
}

static gh_status exit_pass(struct toy *toy, const gh_pass *pass,
                           bool other_thread)
{
    struct exit_call e = { toy, pass, GH_OK };
    pthread_t thread;

    if (!other_thread) {
        return gh_layer_exit(toy->session, pass, &toy->err);
    }
    pthread_create(&thread, NULL, exit_elsewhere, &e);
    pthread_join(thread, NULL);
    return e.status;
}

static uint32_t spare_set(struct toy *toy, uint32_t m)
{
    for (uint32_t i = toy->options.max_slots; i < toy->n_sets; i++) {
        if ((toy->taken & 1u << i) == 0) {
            toy->taken |= 1u << i;
            return toy->set_of[m] = i;
        }
    }
    abort(); /* more in flight than the schedule has */
}

static uint32_t choose_set(struct toy *toy, uint32_t m, uint32_t slot,
                           bool first)
{
    if (slot != GH_SLOT_NONE) {
        return toy->set_of[m] = slot;
    }
    return first ? spare_set(toy, m) : toy->set_of[m];
}

gh_buffer toy_buffer(CUdeviceptr address, uint64_t bytes, uint32_t flags)
{
    return (gh_buffer){ (void *)(uintptr_t)address, bytes, flags, 0 };
}

static gh_buffer buffer(const struct toy *toy, CUdeviceptr address,
                        uint32_t flags)
{
    return toy_buffer(address,
                      toy->options.padded ? stride(toy)
                                          : 4 * (uint64_t)toy->options.elems,
                      flags);
}

/* Where a segment's input is: at the ends in a buffer of the microbatch,
 * else where the segment before left it, or in a copy that moves about.  A
 * delayed weight gradient finds all in the set. */
static bool find_input(struct toy *toy, const struct work *w, uint32_t m,
                       bool at_end, gh_buffer *input)
{
    const uint32_t part = w->direction == GH_FORWARD ? w->first : w->last + 1;
    CUdeviceptr address = w->direction == GH_FORWARD ? act(toy, w->set, part)
                                                     : grad(toy, w->set, part);

    if (w->direction == GH_WGRAD) {
        *input = buffer(toy, address, GH_BUFFER_STATIC);
        return true;
    }
    if (at_end) {
        address = feed(toy, w->direction, m);
    } else if (toy->options.moving_inputs) {
        CUdeviceptr spare =
            feed(toy, 2, (m + toy->step * 5 + part) % TOY_MAX_FEEDS);

        if (!CALL(
                toy, cuMemcpyDtoDAsync,
                (spare, address, 4 * (size_t)toy->options.elems, w->stream))) {
            return false;
        }
        address = spare;
    }
    *input = buffer(toy, address,
                    at_end || toy->options.copied_inputs ||
                            toy->options.moving_inputs
                        ? 0
                        : GH_BUFFER_STATIC);
    return true;
}

static void fill_outputs(const struct toy *toy, const struct work *w,
                         gh_buffer *outputs, uint32_t *n_p)
{
    uint32_t n = 0;

    if (w->direction == GH_FORWARD) {
        outputs[n++] = buffer(toy, act(toy, w->set, w->last + 1), 0);
    }
    if (w->direction == GH_BACKWARD) {
        outputs[n++] = buffer(toy, grad(toy, w->set, w->first), 0);
    }
    if (w->keeps) {
        outputs[n++] = buffer(toy, grad(toy, w->set, w->last + 1), 0);
    }
    for (uint32_t p = w->first; p <= w->last && w->weights; p++) {
        outputs[n++] = buffer(toy, weight(toy, w->set, p), GH_BUFFER_UPDATED);
    }
    *n_p = n;
}

static gh_status obey(struct toy *toy, gh_pass *pass, struct work *w,
                      const gh_decision *d, gh_buffer *outputs)
{
    bool bad = d->action == GH_ACTION_RECORD && toy->mischief != TOY_GOOD &&
               pass->segment == toy->mischief_segment &&
               pass->direction == toy->mischief_direction;

    if (d->action == GH_ACTION_REPLAYED) {
        pass->outputs = d->outputs;
        pass->n_outputs = d->n_outputs;
        return gh_layer_exit(toy->session, pass, &toy->err);
    }

    w->lie = toy->lies_when_checked && d->reason == GH_REASON_CHECK;
    w->forgets = toy->forgets;
    w->stream = d->stream;
    w->input = (CUdeviceptr)(uintptr_t)d->inputs[0].address;
    if (bad) {
        do_mischief(toy, pass, w);
    }
    if (!run_parts(toy, w) && !bad) {
        gh_layer_cancel(toy->session, NULL);
        return GH_ERR_DEVICE;
    }
    fill_outputs(toy, w, outputs, &pass->n_outputs);
    pass->outputs = outputs;
    return exit_pass(toy, pass, bad && toy->mischief == TOY_OTHER_THREAD);
}

/* A host that issues its work elsewhere orders it by waiting: before and
 * after the pass, as no wait is allowed inside. */
static void wait_around(struct toy *toy)
{
    if (toy->mischief == TOY_ELSEWHERE) {
        toy->drv.cuCtxSynchronize();
    }
}

/* Whether a segment's weight gradients are a pass of their own. */
static bool leaves_weights(const struct toy *toy, const gh_segment *s)
{
    return toy->options.wgrad == TOY_WGRAD_LATER ||
           (toy->options.wgrad == TOY_WGRAD_BESIDE && s->index != 0);
}

static bool is_elsewhere(const struct toy *toy, const struct work *w)
{
    return w->last + 1 == toy->n_parts || toy->options.moving_inputs;
}

static gh_status run_segment(struct toy *toy, const gh_segment *s,
                             gh_direction direction, uint32_t m,
                             CUstream stream)
{
    const bool forward = direction == GH_FORWARD;
    const bool at_end =
        forward ? s->index == 0 : s->index == toy->n_segments - 1;
    const bool later = leaves_weights(toy, s);
    struct work w = {
        .first = 2 * s->first_layer + s->first_part,
        .last = 2 * s->last_layer + s->last_part,
        .direction = direction,
        .set = toy->set_of[m],
        .weights =
            direction == GH_WGRAD || (direction == GH_BACKWARD && !later),
        .stream = stream,
    };
    gh_buffer input, outputs[2 + TOY_MAX_PARTS];
    gh_pass pass = {
        .struct_size = sizeof(pass),
        .segment = s->index,
        .direction = direction,
        .microbatch = m,
        .flags = direction == GH_BACKWARD && !later &&
                         toy->options.wgrad != TOY_WGRAD_JOINED
                     ? GH_PASS_NO_WGRAD
                     : 0,
        .stream = stream,
        .inputs = &input,
        .n_inputs = 1,
    };
    gh_decision d = { .struct_size = sizeof(d) };
    gh_status status;

    if (!find_input(toy, &w, m, at_end, &input)) {
        return GH_ERR_DEVICE;
    }
    wait_around(toy);
    do {
        status = gh_layer_enter(toy->session, &pass, &d, &toy->err);
        if (status != GH_OK) {
            return status;
        }
        w.set = choose_set(toy, m, d.slot, forward && at_end);
        w.keeps = direction == GH_BACKWARD && later && is_elsewhere(toy, &w);
        status = obey(toy, &pass, &w, &d, outputs);
        toy->reruns += status == GH_RERUN;
    } while (status == GH_RERUN);
    wait_around(toy);
    return status;
}

static bool run_eagerly(struct toy *toy, gh_direction direction, uint32_t m,
                        CUstream stream)
{
    const struct work w = {
        .first = 0,
        .last = toy->n_parts - 1,
        .direction = direction,
        .set = toy->set_of[m],
        .weights = direction == GH_BACKWARD,
        .input = feed(toy, direction, m),
        .stream = stream,
    };

    return run_parts(toy, &w);
}

/* ---- one step ---------------------------------------------------------- */

static CUstream stream_of(const struct toy *toy, uint32_t m)
{
    return toy->options.legacy ? NULL : toy->streams[m % toy->options.streams];
}

static uint32_t feed_value(uint32_t step, uint32_t m, uint32_t which)
{
    return 1000 * step + 10 * m + which + 1;
}

static gh_status forward(struct toy *toy, uint32_t m)
{
    CUstream stream = stream_of(toy, m);
    gh_status status = GH_OK;

    if (!CALL(toy, cuMemsetD32Async,
              (feed(toy, 0, m), feed_value(toy->step, m, 0), toy->options.elems,
               stream)) ||
        !CALL(toy, cuMemsetD32Async,
              (feed(toy, 1, m), feed_value(toy->step, m, 1), toy->options.elems,
               stream))) {
        return GH_ERR_DEVICE;
    }
    if (toy->session == NULL) {
        toy->set_of[m] = m % toy->options.in_flight;
        return run_eagerly(toy, GH_FORWARD, m, stream) ? GH_OK : GH_ERR_DEVICE;
    }
    for (uint32_t i = 0; i < toy->n_segments && status == GH_OK; i++) {
        status = run_segment(toy, &toy->segments[i], GH_FORWARD, m, stream);
    }
    return status;
}

/* On a stream of its own: after the backward, which the host sees to. */
static gh_status wgrad_beside(struct toy *toy, const gh_segment *s, uint32_t m)
{
    CUstream stream = toy->streams[TOY_STREAMS - 1];

    if (!CALL(toy, cuEventRecord, (toy->fork, stream_of(toy, m))) ||
        !CALL(toy, cuStreamWaitEvent, (stream, toy->fork, 0))) {
        return GH_ERR_DEVICE;
    }
    return run_segment(toy, s, GH_WGRAD, m, stream);
}

static gh_status backward(struct toy *toy, uint32_t m)
{
    CUstream stream = stream_of(toy, m);
    gh_status status = GH_OK;

    if (toy->session == NULL) {
        status =
            run_eagerly(toy, GH_BACKWARD, m, stream) ? GH_OK : GH_ERR_DEVICE;
    }
    for (uint32_t i = toy->n_segments;
         i-- > 0 && status == GH_OK && toy->session != NULL;) {
        status = run_segment(toy, &toy->segments[i], GH_BACKWARD, m, stream);
        if (status == GH_OK && toy->options.wgrad == TOY_WGRAD_BESIDE &&
            leaves_weights(toy, &toy->segments[i])) {
            status = wgrad_beside(toy, &toy->segments[i], m);
        }
    }
    if (toy->session == NULL || toy->options.wgrad != TOY_WGRAD_LATER) {
        toy->taken &= ~(1u << toy->set_of[m]);
    }
    return status;
}

static gh_status wgrad_later(struct toy *toy, uint32_t m)
{
    gh_status status = GH_OK;

    for (uint32_t i = toy->n_segments; i-- > 0 && status == GH_OK;) {
        status =
            run_segment(toy, &toy->segments[i], GH_WGRAD, m, stream_of(toy, m));
    }
    toy->taken &= ~(1u << toy->set_of[m]);
    return status;
}

/* Whose weight gradients are due after the backward of microbatch `m`. */
static gh_status wgrads_due(struct toy *toy, uint32_t m, bool last)
{
    const uint32_t lag = toy->options.wgrad_lag;
    gh_status status = GH_OK;

    if (toy->session == NULL || toy->options.wgrad != TOY_WGRAD_LATER) {
        return GH_OK;
    }
    if (m >= lag) {
        status = wgrad_later(toy, m - lag);
    }
    for (uint32_t i = m >= lag ? m - lag + 1 : 0;
         last && i <= m && status == GH_OK; i++) {
        status = wgrad_later(toy, i);
    }
    return status;
}

gh_status toy_step(struct toy *toy, uint32_t microbatches)
{
    const uint32_t ahead = toy->options.in_flight;
    gh_status status = GH_OK;

    toy->taken = 0;
    for (uint32_t i = 0; i < microbatches + ahead && status == GH_OK; i++) {
        if (i >= ahead && i - ahead < microbatches) {
            status = backward(toy, i - ahead);
            if (status == GH_OK) {
                status =
                    wgrads_due(toy, i - ahead, i - ahead == microbatches - 1);
            }
        }
        if (status == GH_OK && i < microbatches) {
            status = forward(toy, i);
        }
    }
    if (status != GH_OK) {
        return status;
    }
    toy->step++;
    if (toy->session != NULL) {
        status = gh_iteration_end(toy->session, &toy->err);
    }
    if (status == GH_OK && !toy->options.free_running &&
        !CALL(toy, cuCtxSynchronize, ())) {
        status = GH_ERR_DEVICE;
    }
    return status;
}

gh_decision toy_empty_pass(struct toy *toy, const gh_pass *pass)
{
    gh_decision d = { .struct_size = sizeof(d) };

    if (gh_layer_enter(toy->session, pass, &d, &toy->err) != GH_OK) {
        d.action = UINT32_MAX;
        d.slot = GH_SLOT_NONE;
        return d;
    }
    gh_layer_exit(toy->session, pass, &toy->err);
    return d;
}

bool toy_keeps_decision(struct toy *toy, const gh_pass *pass, uint32_t tail)
{
    struct {
        gh_decision it;
        unsigned char tail[16];
    } d, before;

    memset(&d, 0x5a, sizeof(d));
    memset(d.tail, 0, sizeof(d.tail));
    d.it.struct_size = (uint32_t)sizeof(d.it) + tail;
    memcpy(&before, &d, sizeof(d));
    return gh_layer_enter(toy->session, pass, &d.it, &toy->err) != GH_OK &&
           memcmp(&before, &d, sizeof(d)) == 0;
}

/* ---- what must come out ------------------------------------------------ */

uint64_t toy_fold(uint64_t hash, uint32_t word)
{
    return (hash ^ word) * UINT64_C(1099511628211);
}

static void add_weights(struct toy *toy, uint32_t set, uint32_t part,
                        uint32_t *part_of, uint32_t *sum)
{
    const uint32_t n = toy->options.elems;

    CALL(toy, cuMemcpyDtoH, (part_of, weight(toy, set, part), 4 * (size_t)n));
    for (uint32_t i = 0; i < n; i++) {
        sum[i] += part_of[i];
    }
}

uint64_t toy_hash(struct toy *toy)
{
    const uint32_t n = toy->options.elems;
    uint32_t *part_of = calloc(2 * (size_t)n, 4), *sum = part_of + n;
    uint64_t hash = UINT64_C(14695981039346656037);

    CALL(toy, cuCtxSynchronize, ());
    for (uint32_t p = 0; p < toy->n_parts; p++) {
        memset(sum, 0, 4 * (size_t)n);
        for (uint32_t set = 0; set < toy->n_sets; set++) {
            add_weights(toy, set, p, part_of, sum);
        }
        for (uint32_t i = 0; i < n; i++) {
            hash = toy_fold(hash, sum[i]);
        }
    }
    free(part_of);
    return hash;
}

uint64_t toy_expect(const struct toy_options *options, const uint32_t *steps,
                    uint32_t n_steps)
{
    const uint32_t n_parts = 2 * options->layers;
    uint32_t weights[TOY_MAX_PARTS] = { 0 };
    uint32_t y[TOY_MAX_PARTS + 1];
    uint64_t hash = UINT64_C(14695981039346656037);

    for (uint32_t s = 0; s < n_steps; s++) {
        for (uint32_t m = 0; m < steps[s]; m++) {
            uint32_t g = feed_value(s, m, 1);

            y[0] = feed_value(s, m, 0);
            for (uint32_t p = 0; p < n_parts; p++) {
                y[p + 1] = 3 * y[p] + p + 1;
            }
            for (uint32_t p = n_parts; p-- > 0;) {
                weights[p] += g + y[p + 1];
                g = 5 * g + y[p + 1];
            }
        }
    }
    for (uint32_t p = 0; p < n_parts; p++) {
        for (uint32_t i = 0; i < options->elems; i++) {
            hash = toy_fold(hash, weights[p]);
        }
    }
    return hash;
}

gh_stats toy_stats(struct toy *toy)
{
    gh_stats stats = { .struct_size = sizeof(stats) };

    gh_session_stats(toy->session, &stats, NULL);
    return stats;
}

uint64_t toy_eager(struct toy *toy, gh_reason reason)
{
    uint64_t count = UINT64_MAX;

    gh_session_reasons(toy->session, reason, &count, NULL);
    return count;
}

/* ---- softcuda's controls ----------------------------------------------- */

void *toy_control(struct toy *toy, const char *symbol)
{
    return dlsym(toy->drv.library, symbol);
}

bool toy_configure(struct toy *toy, const char *settings)
{
    softcuda_configure_fn *configure =
        (softcuda_configure_fn *)toy_control(toy, "softcuda_configure");

    return configure != NULL && configure(settings) == 0;
}

uint64_t toy_races(struct toy *toy)
{
    softcuda_races_fn *races =
        (softcuda_races_fn *)toy_control(toy, "softcuda_races");
    const char *text;

    return races != NULL ? races(0, &text) : 0;
}

uint64_t toy_unwritten(struct toy *toy, const char **text_p)
{
    softcuda_unwritten_fn *unwritten =
        (softcuda_unwritten_fn *)toy_control(toy, "softcuda_unwritten");

    *text_p = NULL;
    return unwritten != NULL ? unwritten(0, text_p) : 0;
}

softcuda_counts toy_counts(struct toy *toy)
{
    softcuda_count_fn *count =
        (softcuda_count_fn *)toy_control(toy, "softcuda_count");
    softcuda_counts counts = { 0 };

    if (count != NULL) {
        count(&counts);
    }
    return counts;
}
