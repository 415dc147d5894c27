/*
 * device.c - where the buffers lie, the streams, and launches.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/saver/shared.h"

/* Per set activations, gradients and sums; per microbatch both inputs. */
static uint64_t stride(const struct saver *sv)
{
    return toy_stride(sv->options.elems);
}

uint32_t saver_n_sums(const struct saver *sv)
{
    return sv->n_parts * SAVER_MAX_MODULES;
}

static uint32_t set_buffers(const struct saver *sv)
{
    return 2 * (sv->n_parts + 1) + saver_n_sums(sv);
}

static CUdeviceptr at(const struct saver *sv, uint32_t i)
{
    return sv->memory + i * stride(sv);
}

CUdeviceptr saver_act(const struct saver *sv, uint32_t set, uint32_t border)
{
    return at(sv, set * set_buffers(sv) + border);
}

CUdeviceptr saver_grad(const struct saver *sv, uint32_t set, uint32_t border)
{
    return at(sv, set * set_buffers(sv) + sv->n_parts + 1 + border);
}

CUdeviceptr saver_sum(const struct saver *sv, uint32_t set, uint32_t part,
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

CUstream saver_stream(const struct saver *sv, uint32_t m)
{
    return sv->toy.streams[stream_index(sv, m)];
}

uint32_t saver_own(const struct saver *sv, uint32_t m)
{
    return m % 5 * TOY_STREAMS + stream_index(sv, m);
}

CUdeviceptr saver_feed(const struct saver *sv, gh_direction d, uint32_t m)
{
    return at(sv, sv->n_sets * set_buffers(sv) + d * SAVER_MAX_FEEDS +
                      saver_own(sv, m));
}

uint64_t saver_sums_bytes(const struct saver *sv)
{
    return saver_n_sums(sv) * stride(sv);
}

bool saver_make_memory(struct saver *sv)
{
    const uint64_t bytes =
        (sv->n_sets * set_buffers(sv) + 2 * SAVER_MAX_FEEDS) * stride(sv);

    if (!SAVER_CALL(sv, cuMemAlloc, (&sv->memory, bytes))) {
        return false;
    }
    for (uint32_t set = 0; set < sv->n_sets; set++) {
        if (!SAVER_CALL(sv, cuMemsetD8Async,
                        (saver_sum(sv, set, 0, 0), 0, saver_sums_bytes(sv),
                         sv->toy.streams[0]))) {
            return false;
        }
    }
    return SAVER_CALL(sv, cuCtxSynchronize, ());
}

bool saver_mix(struct saver *sv, CUdeviceptr d, CUdeviceptr a, CUdeviceptr b,
               uint32_t f, uint32_t k, uint32_t n, CUstream stream)
{
    return toy_mix(&sv->toy, d, a, b, f, k, n, stream) == CUDA_SUCCESS;
}

bool saver_add(struct saver *sv, CUdeviceptr d, CUdeviceptr a, CUdeviceptr b,
               uint32_t n, CUstream stream)
{
    return toy_add(&sv->toy, d, a, b, n, stream) == CUDA_SUCCESS;
}
