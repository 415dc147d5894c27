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

/* ---- pages of rows ------------------------------------------------------- */

/* Moves n page numbers with all threads of the block. */
static __device__ void move_pages(uint32_t *to, const uint32_t *from,
                                  uint32_t n)
{
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < n; i += GH_KERNEL_THREADS) {
        to[i] = from[i];
    }
}

/* The record's pages become free; what it was refused is not missing any more.
 * The counts are the first thread's to write, after all have read them. */
static __device__ void give_pages(struct gh_stash_state *state,
                                  struct gh_stash_record *record)
{
    uint32_t *free_pages = (uint32_t *)(state + 1);
    const uint32_t n = record->n_pages;
    const bool spills = record->spills != 0;

    move_pages(free_pages + (spills ? state->n_pages + state->spill_free
                                    : state->n_free),
               (uint32_t *)(record + 1), n);
    __syncthreads();
    if (threadIdx.x == 0) {
        *(spills ? &state->spill_free : &state->n_free) += n;
        state->missing -= record->missing;
        record->rows = record->n_pages = record->missing = record->spills = 0;
    }
    __syncthreads();
}

static __device__ void take_pages(struct gh_stash_state *state,
                                  struct gh_stash_record *record,
                                  uint32_t rows, uint32_t max_rows,
                                  uint32_t page_rows)
{
    const uint32_t *free_pages = (uint32_t *)(state + 1);
    const uint32_t n = rows / page_rows + (rows % page_rows != 0);
    const bool spills = n > state->n_free;
    const uint32_t n_free = spills ? state->spill_free : state->n_free;
    const bool given = rows <= max_rows && n <= n_free;

    if (given) {
        move_pages((uint32_t *)(record + 1),
                   free_pages + (spills ? state->n_pages : 0) + (n_free - n),
                   n);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        uint32_t used;

        if (given) {
            *(spills ? &state->spill_free : &state->n_free) = n_free - n;
            state->spilled += spills;
            record->rows = rows;
            record->n_pages = n;
            record->spills = spills;
        } else {
            state->missing += n;
            state->refused++;
            record->missing = n;
        }
        used = state->n_pages - state->n_free + state->spill_pages -
               state->spill_free + state->missing;
        state->most = used > state->most ? used : state->most;
    }
}

extern "C" __global__ void __launch_bounds__(GH_KERNEL_THREADS)
gh_stash_pages(const struct gh_stash_pages pages)
{
    struct gh_stash_state *state = (struct gh_stash_state *)pages.state;
    struct gh_stash_record *record = (struct gh_stash_record *)pages.record;

    give_pages(state, record);
    if (pages.max_rows != 0) {
        const int32_t rows = pages.count != 0 ? *(const int32_t *)pages.count
                                              : (int32_t)pages.max_rows;

        take_pages(state, record, rows < 0 ? 0 : (uint32_t)rows,
                   pages.max_rows, pages.page_rows);
    }
}

/* Clears bytes, single ones where no word fits. */
static __device__ void clear_range(u64 dst, u64 bytes)
{
    const u64 head = min((sizeof(uint4) - dst % sizeof(uint4)) % sizeof(uint4),
                         bytes);
    const u64 words = (bytes - head) / sizeof(uint4);
    unsigned char *to = (unsigned char *)dst;

#pragma unroll 1
    for (u64 i = threadIdx.x; i < words; i += GH_KERNEL_THREADS) {
        ((uint4 *)(to + head))[i] = make_uint4(0, 0, 0, 0);
    }
    if (threadIdx.x < head) {
        to[threadIdx.x] = 0;
    }
    if (head + words * sizeof(uint4) + threadIdx.x < bytes) {
        to[head + words * sizeof(uint4) + threadIdx.x] = 0;
    }
}

/* What this block has to do of `bytes` that begin at row `row` of a part. */
static __device__ void move_slice(const struct gh_stash_rows &rows,
                                  const struct gh_stash_part &part, u64 row,
                                  u64 page, u64 bytes)
{
    const u64 at = blockIdx.y * rows.slice;
    const u64 flat = part.rows + row * part.row_bytes + at;

    if (at >= bytes) {
        return;
    }
    bytes = min(bytes - at, (u64)rows.slice);
    if (page == 0) {
        clear_range(flat, bytes);
    } else {
        copy_range(rows.out ? flat : page + at, rows.out ? page + at : flat,
                   bytes);
    }
}

extern "C" __global__ void __launch_bounds__(GH_KERNEL_THREADS)
gh_stash_rows(const struct gh_stash_rows rows)
{
    const struct gh_stash_record *record =
        (const struct gh_stash_record *)rows.record;
    const uint32_t *list = (const uint32_t *)(record + 1);
    const uint32_t n_rows = record->rows, n_pages = record->n_pages;
    const u64 pool = record->spills != 0 ? rows.spill : rows.pool;

    /* A piece of as many rows as a page has lies in one, in part or not. */
#pragma unroll 1
    for (u64 i = blockIdx.x;; i += gridDim.x) {
        const u64 first = i * rows.page_rows;
        const u64 end = first + rows.page_rows;
        const u64 past = rows.max_rows < end ? rows.max_rows : end;
        const u64 kept = n_rows < end ? n_rows : end;
        u64 page = 0;

        if (i >= n_pages && first >= rows.max_rows) {
            return;
        }
        if (i < n_pages) {
            page = pool + list[i] * rows.page_bytes;
        }
#pragma unroll 1
        for (uint32_t k = 0; k < rows.n_parts; k++) {
            const struct gh_stash_part &part = rows.parts[k];
            const u64 clear = i < n_pages ? kept : first;

            /* First the rows of the page, then those that are cleared. */
#pragma unroll 1
            for (int clears = 0; clears < 2; clears++) {
                const u64 row = clears ? clear : first;
                const u64 to = clears ? past : clear;

                if (row < to) {
                    move_slice(rows, part, row, clears ? 0 : page,
                               (to - row) * part.row_bytes);
                }
            }
            page += rows.page_rows * part.row_bytes;
        }
    }
}

/* Of an element in the low bits. */
template <uint32_t element>
static __device__ float widen(uint32_t bits)
{
    float value;

    if (element == GH_GRADIENT_BF16) {
        return __uint_as_float(bits << 16);
    }
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((unsigned short)bits));
    return value;
}

/* By hand, as the oldest architecture has no conversion to bfloat16. */
template <uint32_t element>
static __device__ uint32_t narrow(float value)
{
    const uint32_t bits = __float_as_uint(value);
    unsigned short half;

    if (element == GH_GRADIENT_BF16) {
        return value != value ? 0x7fffu
                              : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    }
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
}

template <uint32_t element>
static __device__ uint32_t add_word(uint32_t a, uint32_t b)
{
    if (element == GH_GRADIENT_F32) {
        return __float_as_uint(__uint_as_float(a) + __uint_as_float(b));
    }
    return narrow<element>(widen<element>(a) + widen<element>(b)) |
           narrow<element>(widen<element>(a >> 16) + widen<element>(b >> 16))
               << 16;
}

template <uint32_t element>
static __device__ uint4 add_words(uint4 a, uint4 b)
{
    return make_uint4(add_word<element>(a.x, b.x), add_word<element>(a.y, b.y),
                      add_word<element>(a.z, b.z), add_word<element>(a.w, b.w));
}

static __device__ uint4 add_elements(uint4 a, uint4 b, uint32_t element)
{
    switch (element) {
    case GH_GRADIENT_F32:
        return add_words<GH_GRADIENT_F32>(a, b);
    case GH_GRADIENT_F16:
        return add_words<GH_GRADIENT_F16>(a, b);
    default:
        return add_words<GH_GRADIENT_BF16>(a, b);
    }
}

/* Each thread loads its two words before it knows whether it adds them. */
extern "C" __global__ void __launch_bounds__(GH_KERNEL_THREADS)
gh_gradient_add(const struct gh_gradient_sum to)
{
    const u64 words = to.bytes / sizeof(uint4);
    const u64 i = blockIdx.x * 2ull * GH_KERNEL_THREADS + threadIdx.x;
    const u64 j = i + GH_KERNEL_THREADS;
    const uint4 *from = (const uint4 *)to.gradient;
    uint4 *sum = (uint4 *)to.sum;
    uint4 a = make_uint4(0, 0, 0, 0), b = a, c = a, d = a;

    if (i < words) {
        a = from[i];
    }
    if (j < words) {
        b = from[j];
    }
    if (*(const uint32_t *)to.first == 0) {
        if (i < words) {
            c = sum[i];
        }
        if (j < words) {
            d = sum[j];
        }
        a = add_elements(c, a, to.element);
        b = add_elements(d, b, to.element);
    }
    if (i < words) {
        sum[i] = a;
    }
    if (j < words) {
        sum[j] = b;
    }
}
