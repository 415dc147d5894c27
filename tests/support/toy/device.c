/*
 * device.c - the driver, the context, and where the buffers lie.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/toy/shared.h"
#include "tap/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

bool toy_called(struct toy *toy, CUresult result, const char *entry)
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

/* ---- memory -------------------------------------------------------------- */

/* Per set an activation after each part and one before, their gradients, and a
 * padded input for each direction; per microbatch an input, an output gradient
 * and a spare; what these are made of; and last the sums, set by set. */
static uint32_t set_buffers(const struct toy *toy)
{
    return 2 * (toy->n_parts + 1) + 2;
}

uint64_t toy_stride(uint32_t elems)
{
    return (4 * (uint64_t)elems + 255) & ~UINT64_C(255);
}

static CUdeviceptr at(const struct toy *toy, uint32_t i)
{
    return toy->memory + i * toy_stride(toy->options.elems);
}

CUdeviceptr toy_act(const struct toy *toy, uint32_t set, uint32_t part)
{
    return at(toy, set * set_buffers(toy) + part);
}

CUdeviceptr toy_grad(const struct toy *toy, uint32_t set, uint32_t part)
{
    return at(toy, set * set_buffers(toy) + toy->n_parts + 1 + part);
}

CUdeviceptr toy_padded(const struct toy *toy, uint32_t set, gh_direction d)
{
    return at(toy, set * set_buffers(toy) + 2 * (toy->n_parts + 1) + d);
}

static CUdeviceptr after_sets(const struct toy *toy, uint32_t i)
{
    return at(toy, toy->n_sets * set_buffers(toy) + i);
}

CUdeviceptr toy_feed(const struct toy *toy, uint32_t which, uint32_t i)
{
    return after_sets(toy, which * TOY_MAX_FEEDS + i);
}

CUdeviceptr toy_ramp(const struct toy *toy)
{
    return toy_feed(toy, 3, 0);
}

uint32_t toy_n_sums(const struct toy *toy)
{
    return toy->n_parts * (toy->options.modules > 0 ? TOY_MAX_MODULES : 1);
}

CUdeviceptr toy_sum(const struct toy *toy, uint32_t set, uint32_t part,
                    uint32_t k)
{
    const uint32_t of_part = toy_n_sums(toy) / toy->n_parts;

    return after_sets(toy, 3 * TOY_MAX_FEEDS + 1 + set * toy_n_sums(toy) +
                               part * of_part + k);
}

uint64_t toy_sums_bytes(const struct toy *toy)
{
    return (uint64_t)toy->n_sets * toy_n_sums(toy) *
           toy_stride(toy->options.elems);
}

/* Writes the sums, and the rest unless the toy is to find out who reads it
 * before it is written. */
static bool write_memory(struct toy *toy)
{
    const uint32_t n = toy->options.elems;
    uint32_t *ramp = malloc(4 * (size_t)n);
    bool good = ramp != NULL;

    if (!toy->options.raw && toy->options.modules == 0) {
        good = good &&
               TOY_CALL(toy, cuMemsetD8Async,
                        (toy->memory, 0, toy->memory_bytes, toy->streams[0]));
    }
    good = good &&
           TOY_CALL(toy, cuMemsetD8Async,
                    (toy_sum(toy, 0, 0, 0), 0, toy_sums_bytes(toy),
                     toy->streams[0])) &&
           TOY_CALL(toy, cuCtxSynchronize, ());
    for (uint32_t i = 0; i < n && good; i++) {
        ramp[i] = toy_ramp_value(i);
    }
    good = good &&
           TOY_CALL(toy, cuMemcpyHtoD, (toy_ramp(toy), ramp, 4 * (size_t)n)) &&
           TOY_CALL(toy, cuCtxSynchronize, ());
    free(ramp);
    return good;
}

/* ---- streams ------------------------------------------------------------- */

CUstream toy_stream(const struct toy *toy, uint32_t m)
{
    return toy->options.legacy
               ? NULL
               : toy->streams[(m + toy->step) % toy->options.streams];
}

uint32_t toy_own(const struct toy *toy, uint32_t m)
{
    const uint32_t streams = toy->options.streams;

    return m % 8 * TOY_STREAMS +
           (m + toy->step) % (streams == 1 ? TOY_STREAMS : streams);
}

gh_buffer toy_buffer(CUdeviceptr address, uint64_t bytes, uint32_t flags)
{
    return (gh_buffer){ (void *)(uintptr_t)address, bytes, flags, 0 };
}

/* ---- its life ------------------------------------------------------------ */

static bool make_objects(struct toy *toy)
{
    const struct toy_options *o = &toy->options;

    if (!TOY_CALL(toy, cuModuleLoadData,
                  (&toy->module, toy_kernels(toy->soft))) ||
        !TOY_CALL(toy, cuModuleGetFunction, (&toy->mix, toy->module, "mix")) ||
        !TOY_CALL(toy, cuModuleGetFunction, (&toy->add, toy->module, "add"))) {
        return false;
    }
    for (uint32_t i = 0; i < TOY_STREAMS && !o->legacy; i++) {
        if (!TOY_CALL(toy, cuStreamCreate,
                      (&toy->streams[i], o->blocking
                                             ? CU_STREAM_DEFAULT
                                             : CU_STREAM_NON_BLOCKING))) {
            return false;
        }
    }
    toy->memory_bytes =
        toy_sum(toy, 0, 0, 0) - toy->memory + toy_sums_bytes(toy);
    toy->sums = calloc(toy_n_sums(toy) * (size_t)o->elems, 4);
    toy->kept_sums =
        malloc(toy_sums_bytes(toy) + toy_n_sums(toy) * (size_t)o->elems * 4);
    return TOY_CALL(toy, cuStreamCreate,
                    (&toy->side, CU_STREAM_NON_BLOCKING)) &&
           TOY_CALL(toy, cuEventCreate,
                    (&toy->fork, CU_EVENT_DISABLE_TIMING)) &&
           TOY_CALL(toy, cuMemAlloc, (&toy->memory, toy->memory_bytes)) &&
           write_memory(toy);
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
    toy->options.chunks = options->chunks == 0 ? 1 : options->chunks;
    /* Of slots; of microbatches without one; of those that are evaluated. */
    toy->n_sets =
        toy->options.max_slots + (options->evaluates ? 2 : 1) * TOY_MAX_FEEDS;
    toy->lender.toy = toy;
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
    if (!TOY_CALL(toy, cuDevicePrimaryCtxRetain, (&toy->ctx, device)) ||
        !TOY_CALL(toy, cuCtxSetCurrent, (toy->ctx)) || !make_objects(toy)) {
        snprintf(reason, sizeof(reason), "%.400s", toy->err.text);
        toy_close(toy);
        return false;
    }
    if (options->modules > 0) {
        toy_configure(toy, ""); /* counts from here on */
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

bool toy_probe_soft(int *status_p)
{
    const char *reason;
    struct toy toy;

    if (!toy_probe(&toy, &reason)) {
        *status_p = skip_all("%s", reason);
        return false;
    }
    if (!toy.soft) {
        *status_p = skip_all("only the software device fails on demand, "
                             "counts its objects and reports races");
        return false;
    }
    return true;
}

void toy_close(struct toy *toy)
{
    toy_detach(toy);
    toy->drv.cuCtxSynchronize();
    lender_free(&toy->lender);
    toy->drv.cuMemFree(toy->memory);
    free(toy->sums);
    free(toy->kept_sums);
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
