/*
 * kernels.cu - the library's device code.
 *
 * kernels.ptx is made from this file by build-aux/ptx.sh and kept in the tree, for
 * builds without nvcc.  Launched as kernels.h says; kernels.c computes the
 * same on the CPU.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "kernels/kernels.h"

typedef unsigned long long u64;

/* Copies words.  Four loads are in flight before the first store waits for its
 * own. */
template <typename T, uint32_t threads>
static __device__ void copy_aligned(T *dst, const T *src, u64 words)
{
    const u64 step = threads;
    u64 i = threadIdx.x;

    for (; i + 3 * step < words; i += 4 * step) {
        T a = src[i], b = src[i + step];
        T c = src[i + 2 * step], d = src[i + 3 * step];

        dst[i] = a;
        dst[i + step] = b;
        dst[i + 2 * step] = c;
        dst[i + 3 * step] = d;
    }
#pragma unroll 1
    for (; i < words; i += step) {
        dst[i] = src[i];
    }
}

/*
 * Copies `bytes` from src to dst with all threads of the block, in words of
 * type T where both can be aligned to it together, and single bytes before
 * and after.
 */
template <typename T, uint32_t threads>
static __device__ void copy_words(unsigned char *dst, const unsigned char *src,
                                  u64 bytes)
{
    u64 head = (sizeof(T) - (u64)dst % sizeof(T)) % sizeof(T);
    u64 words, tail;

    if (head > bytes) {
        head = bytes;
    }
    words = (bytes - head) / sizeof(T);
    tail = head + words * sizeof(T);

#pragma unroll 1
    for (u64 i = threadIdx.x; i < head; i += threads) {
        dst[i] = src[i];
    }
    copy_aligned<T, threads>((T *)(dst + head), (const T *)(src + head), words);
#pragma unroll 1
    for (u64 i = tail + threadIdx.x; i < bytes; i += threads) {
        dst[i] = src[i];
    }
}

static __device__ void copy_range(u64 dst, u64 src, u64 bytes)
{
    unsigned char *to = (unsigned char *)dst;
    const unsigned char *from = (const unsigned char *)src;

    if ((dst - src) % sizeof(uint4) == 0) {
        copy_words<uint4, GH_KERNEL_THREADS>(to, from, bytes);
    } else if ((dst - src) % sizeof(uint32_t) == 0) {
        copy_words<uint32_t, GH_KERNEL_THREADS>(to, from, bytes);
    } else {
        copy_words<unsigned char, GH_KERNEL_THREADS>(to, from, bytes);
    }
}

/*
 * The entries are cut into chunks, which are numbered across all entries.
 * Block b copies chunks b, b + gridDim.x and so on.  A block's chunks only go
 * up, so one walk over the entries finds them all.
 */
template <typename Batch>
static __device__ void copy_batch(const Batch &batch)
{
    const u64 whole = 1ull << batch.chunk_shift;
    u64 chunk = blockIdx.x; /* counted from entry i on */

    for (uint32_t i = 0; i < batch.n_entries; i++) {
        u64 bytes = batch.entries[i].bytes;
        u64 chunks = (bytes + whole - 1) >> batch.chunk_shift;

        for (; chunk < chunks; chunk += gridDim.x) {
            u64 at = chunk << batch.chunk_shift;
            u64 left = bytes - at;

            copy_range(batch.entries[i].dst + at, batch.entries[i].src + at,
                       left < whole ? left : whole);
        }
        chunk -= chunks;
    }
}

extern "C" __global__ void __launch_bounds__(GH_KERNEL_THREADS)
gh_copy_batch_8(const struct gh_copy_batch_small batch)
{
    copy_batch(batch);
}

extern "C" __global__ void __launch_bounds__(GH_KERNEL_THREADS)
gh_copy_batch_128(const struct gh_copy_batch batch)
{
    copy_batch(batch);
}

/* The offset of the first byte that differs in two words that are not equal. */
static __device__ u64 first_in_word(u64 a, u64 b)
{
    return (u64)(__ffsll((long long)(a ^ b)) - 1) / 8;
}

/*
 * Every thread looks for its own first difference.  The smallest wins in any
 * order, so the result does not depend on scheduling.
 */
extern "C" __global__ void __launch_bounds__(GH_KERNEL_THREADS)
gh_compare(u64 a, u64 b, u64 bytes, u64 result)
{
    const unsigned char *left = (const unsigned char *)a;
    const unsigned char *right = (const unsigned char *)b;
    u64 thread = (u64)blockIdx.x * GH_KERNEL_THREADS + threadIdx.x;
    u64 threads = (u64)gridDim.x * GH_KERNEL_THREADS;
    u64 first = ~0ull;
    u64 head = 0, tail = 0;

    if ((a - b) % sizeof(uint4) == 0) {
        u64 words;

        head = (sizeof(uint4) - a % sizeof(uint4)) % sizeof(uint4);
        head = head < bytes ? head : bytes;
        words = (bytes - head) / sizeof(uint4);
        tail = head + words * sizeof(uint4);
        for (u64 i = thread; i < words; i += threads) {
            ulonglong2 x = ((const ulonglong2 *)(left + head))[i];
            ulonglong2 y = ((const ulonglong2 *)(right + head))[i];
            u64 at = head + i * sizeof(uint4);

            if (x.x != y.x) {
                first = min(first, at + first_in_word(x.x, y.x));
                break;
            }
            if (x.y != y.y) {
                first = min(first, at + 8 + first_in_word(x.y, y.y));
                break;
            }
        }
    }
    for (u64 i = thread; i < head; i += threads) {
        if (left[i] != right[i]) {
            first = min(first, i);
            break;
        }
    }
    for (u64 i = tail + thread; i < bytes; i += threads) {
        if (left[i] != right[i]) {
            first = min(first, i);
            break;
        }
    }

    if (first != ~0ull) {
        atomicMin((u64 *)result, first);
    }
}

template <typename Offsets>
static __device__ void write_offsets(const Offsets &offsets)
{
    const struct gh_offsets_head &head = offsets.head;
    const uint32_t k = blockIdx.x * GH_KERNEL_THREADS + threadIdx.x;

    if (head.first + k < head.end) {
        const bool given = k < head.n;

        ((int32_t *)head.actual)[head.first + k] =
            given ? offsets.pairs[k].actual : head.fill_actual;
        ((int32_t *)head.padded)[head.first + k] =
            given ? offsets.pairs[k].padded : head.fill_padded;
    }
    if (k == 0 && head.first == 0) {
        *(int32_t *)head.longest = head.longest_value;
        *(int32_t *)head.count = head.count_value;
    }
}

extern "C" __global__ void __launch_bounds__(GH_KERNEL_THREADS)
gh_offsets_48(const struct gh_offsets_small offsets)
{
    write_offsets(offsets);
}

extern "C" __global__ void __launch_bounds__(GH_KERNEL_THREADS)
gh_offsets_480(const struct gh_offsets offsets)
{
    write_offsets(offsets);
}

/* ---- parts for other ranks ----------------------------------------------- */

static __device__ void set_flag(u64 flag)
{
    asm volatile("st.release.sys.global.u8 [%0], %1;" ::"l"(flag), "h"((short)1)
                 : "memory");
}

static __device__ bool is_set(u64 flag)
{
    uint16_t byte;

    asm volatile("ld.acquire.sys.global.u8 %0, [%1];"
                 : "=h"(byte)
                 : "l"(flag)
                 : "memory");
    return byte != 0;
}

/* Whether all other blocks have come here, and what they have written is seen.
 * The count is 0 afterwards.  All threads of the block call it. */
static __device__ bool is_last_block(uint32_t *ended)
{
    __shared__ bool last;

    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0) {
        last = gridDim.x == 1 || atomicAdd(ended, 1u) == gridDim.x - 1;
        if (last && gridDim.x != 1) {
            *ended = 0;
        }
        __threadfence_system();
    }
    __syncthreads();
    return last;
}

/* All flags are cleared at once, so that those that are up say who has come. */
static __device__ void await_row(const struct gh_send &send)
{
    const uint32_t i = threadIdx.x;
    const bool other = i < send.n_ranks && i != send.rank;

    while (other && !is_set(send.row + i)) {
    }
    __syncthreads();
    if (other) {
        *(volatile unsigned char *)(send.row + i) = 0;
    }
    __threadfence_system();
}

/* Rows of tokens are aligned to 16 bytes; what is not goes byte by byte. */
static __device__ void copy_slice(u64 dst, u64 src, u64 bytes)
{
    unsigned char *to = (unsigned char *)dst;
    const unsigned char *from = (const unsigned char *)src;

    if ((dst - src) % sizeof(uint4) == 0) {
        copy_words<uint4, GH_SEND_THREADS>(to, from, bytes);
    } else {
        copy_words<unsigned char, GH_SEND_THREADS>(to, from, bytes);
    }
}

/* All parts are copied before the first flag is set: a fence waits until the
 * peers have what was written, once for all of them. */
extern "C" __global__ void __launch_bounds__(GH_SEND_THREADS)
gh_send(const struct gh_send send)
{
    for (uint32_t i = 0; i < send.n_parts; i++) {
        const struct gh_send_part &part = send.parts[i];
        const u64 at = blockIdx.x * part.slice;

        if (at < part.bytes) {
            const u64 left = part.bytes - at;

            copy_slice(part.dst + at, part.src + at,
                       left < part.slice ? left : part.slice);
        }
    }
    if (!is_last_block((uint32_t *)send.ended)) {
        return;
    }
    if (threadIdx.x < send.n_parts && send.parts[threadIdx.x].flag != 0) {
        set_flag(send.parts[threadIdx.x].flag);
    }
    if (send.row != 0) {
        await_row(send);
    }
}
