/*
 * kernels.c - the geometry of the launches, and the kernels on the CPU.
 *
 * The software device runs these kernels block by block as the GPU would, so a
 * wrong geometry shows without a GPU.  They are pure functions of their
 * arguments.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "kernels/kernels.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

char *gh_kernels_ptx(void)
{
    const unsigned char *from = gh_kernels_packed;
    const unsigned char *end = from + gh_kernels_packed_bytes[0];
    char *text = malloc((size_t)gh_kernels_packed_bytes[1] + 1), *to = text;

    while (text != NULL && from < end) {
        if (*from < 128) {
            *to++ = (char)*from++;
        } else {
            const char *before = to - (from[1] + 256 * from[2]);

            for (int n = *from - 128 + 4; n > 0; n--) {
                *to++ = *before++;
            }
            from += 3;
        }
    }
    if (text != NULL) {
        *to = '\0';
    }
    return text;
}

/* The bounds of a chunk's size, as powers of two.  A chunk is at least what one
 * block moves with one 16-byte access for each thread.  Because it is a power
 * of two, the alignment of an entry is that of all its chunks, and the device
 * divides nothing. */
#define CHUNK_LEAST 12u
#define CHUNK_MOST 16u

/* Enough blocks to fill any device of today several times over.  More would
 * only wait. */
#define BLOCKS_MOST 1024u

static uint64_t chunks_of(const struct gh_copy_batch *batch, uint32_t i)
{
    uint64_t whole = UINT64_C(1) << batch->chunk_shift;

    return (batch->entries[i].bytes + whole - 1) >> batch->chunk_shift;
}

uint32_t gh_copy_batch_plan(struct gh_copy_batch *batch)
{
    uint64_t total = 0, chunks = 0;

    for (uint32_t i = 0; i < batch->n_entries; i++) {
        total += batch->entries[i].bytes;
    }

    batch->chunk_shift = CHUNK_LEAST;
    while (batch->chunk_shift < CHUNK_MOST &&
           total >> batch->chunk_shift > BLOCKS_MOST) {
        batch->chunk_shift++;
    }

    for (uint32_t i = 0; i < batch->n_entries; i++) {
        chunks += chunks_of(batch, i);
    }
    return chunks < BLOCKS_MOST ? (uint32_t)chunks : BLOCKS_MOST;
}

const char *gh_copy_batch_kernel(uint32_t n_entries)
{
    return n_entries <= GH_COPY_SMALL ? GH_KERNEL_COPY_SMALL
                                      : GH_KERNEL_COPY_LARGE;
}

uint32_t gh_compare_plan(uint64_t bytes)
{
    uint64_t least = UINT64_C(1) << CHUNK_LEAST;
    uint64_t blocks = (bytes + least - 1) >> CHUNK_LEAST;

    return blocks < BLOCKS_MOST ? (uint32_t)blocks : BLOCKS_MOST;
}

uint32_t gh_offsets_plan(const struct gh_offsets *offsets)
{
    const uint32_t entries = offsets->head.end - offsets->head.first;

    return (entries + GH_KERNEL_THREADS - 1) / GH_KERNEL_THREADS;
}

const char *gh_offsets_kernel(uint32_t n)
{
    return n <= GH_OFFSETS_SMALL ? GH_KERNEL_OFFSETS_SMALL
                                 : GH_KERNEL_OFFSETS_LARGE;
}

/* Slices of whole lines of memory, and no more blocks than a small part needs:
 * each one costs a fence and an atomic addition. */
#define SLICE_UNIT UINT64_C(128)
#define SLICE_LEAST (UINT64_C(16) << 10)

uint32_t gh_send_plan(struct gh_send *send)
{
    uint64_t most = 0, blocks;

    for (uint32_t i = 0; i < send->n_parts; i++) {
        most = send->parts[i].bytes > most ? send->parts[i].bytes : most;
    }
    blocks = (most + SLICE_LEAST - 1) / SLICE_LEAST;
    blocks = blocks == 0 ? 1 : blocks;
    blocks = blocks < GH_SEND_BLOCKS ? blocks : GH_SEND_BLOCKS;
    for (uint32_t i = 0; i < send->n_parts; i++) {
        const uint64_t slice = (send->parts[i].bytes + blocks - 1) / blocks;

        send->parts[i].slice =
            (slice + SLICE_UNIT - 1) / SLICE_UNIT * SLICE_UNIT;
    }
    return (uint32_t)blocks;
}

uint32_t gh_gradient_plan(uint64_t bytes)
{
    return (uint32_t)((bytes + GH_GRADIENT_BLOCK - 1) / GH_GRADIENT_BLOCK);
}

/* A block copies at least this much of a page's part, where there is so much.
 */
#define STASH_SLICE_LEAST (UINT64_C(32) << 10)

void gh_stash_plan(struct gh_stash_rows *rows, uint32_t pages, uint32_t *x_p,
                   uint32_t *y_p)
{
    uint64_t most = 1, y;

    for (uint32_t i = 0; i < rows->n_parts; i++) {
        const uint64_t bytes = rows->page_rows * rows->parts[i].row_bytes;

        most = bytes > most ? bytes : most;
    }
    *x_p = pages < BLOCKS_MOST ? pages : BLOCKS_MOST;
    *x_p = *x_p > 0 ? *x_p : 1;
    y = (most + STASH_SLICE_LEAST - 1) / STASH_SLICE_LEAST;
    y = y < BLOCKS_MOST / *x_p ? y : BLOCKS_MOST / *x_p;
    rows->slice = (most + y - 1) / y;
    rows->slice = (rows->slice + SLICE_UNIT - 1) / SLICE_UNIT * SLICE_UNIT;
    *y_p = (uint32_t)y;
}

static void *at(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

/* Copies one block's share, in the same order as copy_batch() of kernels.cu. */
static void copy_block(const struct gh_copy_batch *batch, uint64_t block,
                       uint64_t blocks)
{
    uint64_t whole = UINT64_C(1) << batch->chunk_shift;
    uint64_t chunk = block;

    for (uint32_t i = 0; i < batch->n_entries; i++) {
        const struct gh_copy_entry *entry = &batch->entries[i];
        uint64_t chunks = chunks_of(batch, i);

        for (; chunk < chunks; chunk += blocks) {
            uint64_t offset = chunk << batch->chunk_shift;
            uint64_t left = entry->bytes - offset;

            memmove(at(entry->dst + offset), at(entry->src + offset),
                    left < whole ? left : whole);
        }
        chunk -= chunks;
    }
}

void gh_copy_batch_ref(const struct gh_copy_batch *batch)
{
    for (uint32_t i = 0; i < batch->n_entries; i++) {
        memmove(at(batch->entries[i].dst), at(batch->entries[i].src),
                batch->entries[i].bytes);
    }
}

void gh_compare_ref(uint64_t a, uint64_t b, uint64_t bytes, uint64_t first)
{
    const unsigned char *left = at(a), *right = at(b);
    uint64_t i = 0, found;

    if (memcmp(left, right, bytes) == 0) {
        return;
    }
    while (left[i] == right[i]) {
        i++;
    }
    memcpy(&found, at(first), sizeof(found));
    if (i < found) {
        memcpy(at(first), &i, sizeof(i));
    }
}

void gh_offsets_ref(const struct gh_offsets_head *head,
                    const struct gh_offsets_pair *pairs)
{
    int32_t *actual = at(head->actual), *padded = at(head->padded);

    for (uint32_t i = head->first; i < head->end; i++) {
        const uint32_t k = i - head->first;

        actual[i] = k < head->n ? pairs[k].actual : head->fill_actual;
        padded[i] = k < head->n ? pairs[k].padded : head->fill_padded;
    }
    if (head->first == 0) {
        *(int32_t *)at(head->longest) = head->longest_value;
        *(int32_t *)at(head->count) = head->count_value;
    }
}

void gh_send_ref(const struct gh_send *send)
{
    for (uint32_t i = 0; i < send->n_parts; i++) {
        const struct gh_send_part *part = &send->parts[i];

        memmove(at(part->dst), at(part->src), part->bytes);
        if (part->flag != 0) {
            *(unsigned char *)at(part->flag) = 1;
        }
    }
}

static uint32_t *list_of(void *head, size_t bytes)
{
    return (uint32_t *)(void *)((char *)head + bytes);
}

static uint32_t rows_of(const struct gh_stash_pages *pages)
{
    const int32_t rows = pages->count != 0 ? *(const int32_t *)at(pages->count)
                                           : (int32_t)pages->max_rows;

    return rows < 0 ? 0 : (uint32_t)rows;
}

void gh_stash_pages_ref(const struct gh_stash_pages *pages)
{
    struct gh_stash_state *state = at(pages->state);
    struct gh_stash_record *record = at(pages->record);
    uint32_t *free_pages = list_of(state, sizeof(*state));
    uint32_t *list = list_of(record, sizeof(*record));
    uint32_t rows, n, used, *n_free;
    bool spills = record->spills != 0;

    n_free = spills ? &state->spill_free : &state->n_free;
    memcpy(free_pages + (spills ? state->n_pages : 0) + *n_free, list,
           record->n_pages * sizeof(*list));
    *n_free += record->n_pages;
    state->missing -= record->missing;
    record->rows = record->n_pages = record->missing = record->spills = 0;
    if (pages->max_rows == 0) {
        return;
    }
    rows = rows_of(pages);
    n = rows / pages->page_rows + (rows % pages->page_rows != 0);
    spills = n > state->n_free;
    n_free = spills ? &state->spill_free : &state->n_free;
    if (rows <= pages->max_rows && n <= *n_free) {
        *n_free -= n;
        memcpy(list, free_pages + (spills ? state->n_pages : 0) + *n_free,
               n * sizeof(*list));
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

/* Calls for each range of pages, with its rows, and for each that is
 * cleared. */
static void each_range(const struct gh_stash_rows *rows, void *sink,
                       void (*move)(void *sink, uint64_t dst, uint64_t src,
                                    uint64_t bytes, uint32_t out))
{
    struct gh_stash_record *record = at(rows->record);
    const uint32_t *list = list_of(record, sizeof(*record));
    const uint64_t pool = record->spills != 0 ? rows->spill : rows->pool;
    uint64_t offset = 0;

    for (uint32_t k = 0; k < rows->n_parts; k++) {
        const struct gh_stash_part *part = &rows->parts[k];

        for (uint32_t i = 0; i < record->n_pages; i++) {
            const uint64_t first = (uint64_t)i * rows->page_rows;
            const uint64_t left = record->rows - first;
            const uint64_t n = left < rows->page_rows ? left : rows->page_rows;
            const uint64_t page = pool + list[i] * rows->page_bytes + offset;
            const uint64_t flat = part->rows + first * part->row_bytes;

            move(sink, rows->out ? flat : page, rows->out ? page : flat,
                 n * part->row_bytes, rows->out);
        }
        if (record->rows < rows->max_rows) {
            move(sink, part->rows + record->rows * part->row_bytes, 0,
                 (rows->max_rows - record->rows) * part->row_bytes, 0);
        }
        offset += rows->page_rows * part->row_bytes;
    }
}

static void move_range(void *sink, uint64_t dst, uint64_t src, uint64_t bytes,
                       uint32_t out)
{
    (void)sink;
    (void)out;
    if (src == 0) {
        memset(at(dst), 0, bytes);
    } else {
        memmove(at(dst), at(src), bytes);
    }
}

void gh_stash_rows_ref(const struct gh_stash_rows *rows)
{
    each_range(rows, NULL, move_range);
}

static float float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

/* The number that an IEEE half stands for. */
static float half_to_float(uint32_t half)
{
    const uint32_t sign = (half & 0x8000u) << 16, rest = half & 0x7fffu;

    if (rest >= 0x7c00u) {
        return float_of(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
    }
    /* Half's exponents begin 112 below; what is less than its least normal
     * number is scaled exactly. */
    return float_of(sign | bits_of(float_of(rest << 13) * 0x1p112f));
}

/* Keeps `value` without its last `drop` bits, to the nearest, ties to even. */
static uint32_t round_off(uint32_t value, uint32_t drop)
{
    return (value + (1u << (drop - 1)) - 1 + (value >> drop & 1)) >> drop;
}

static uint32_t float_to_half(float value)
{
    const uint32_t bits = bits_of(value), rest = bits & 0x7fffffffu;
    const uint32_t sign = bits >> 16 & 0x8000u;

    if (rest > 0x7f800000u) {
        return 0x7fffu;
    }
    if (rest >= 0x47800000u) { /* 65536 */
        return sign | 0x7c00u;
    }
    if (rest >= 0x38800000u) { /* the least normal one, 2^-14 */
        return sign | round_off(rest - (112u << 23), 13);
    }
    /* In units of 2^-24, the least there is; the mantissa is whole units of
     * 2^-(150 - exponent). */
    if (rest < 0x33000000u) { /* less than half of one */
        return sign;
    }
    return sign |
           round_off((rest & 0x7fffffu) | 0x800000u, 126u - (rest >> 23));
}

static uint32_t add_element(uint32_t a, uint32_t b, uint32_t element)
{
    float sum;

    switch (element) {
    case GH_GRADIENT_F16:
        return float_to_half(half_to_float(a) + half_to_float(b));
    case GH_GRADIENT_BF16:
        sum = float_of(a << 16) + float_of(b << 16);
        return sum != sum ? 0x7fffu : round_off(bits_of(sum), 16);
    default:
        sum = float_of(a) + float_of(b);
        return sum != sum ? 0x7fffffffu : bits_of(sum);
    }
}

/* Of so many bytes from an offset on. */
static void add_range(const struct gh_gradient_sum *to, uint64_t offset,
                      uint64_t bytes)
{
    const uint32_t size = to->element == GH_GRADIENT_F32 ? 4 : 2;
    uint32_t first;

    memcpy(&first, at(to->first), sizeof(first));
    if (first != 0) {
        memmove(at(to->sum + offset), at(to->gradient + offset), bytes);
        return;
    }
    for (uint64_t i = offset; i < offset + bytes; i += size) {
        uint32_t a = 0, b = 0;

        memcpy(&a, at(to->sum + i), size);
        memcpy(&b, at(to->gradient + i), size);
        a = add_element(a, b, to->element);
        memcpy(at(to->sum + i), &a, size);
    }
}

void gh_gradient_add_ref(const struct gh_gradient_sum *to)
{
    add_range(to, 0, to->bytes);
}

/* Takes the parameter.  The small kernel's is shorter than struct
 * gh_copy_batch, so nothing beyond it may be read. */
static struct gh_copy_batch take_batch(const void *param)
{
    const struct gh_copy_batch_small *head = param;
    struct gh_copy_batch batch;

    batch.n_entries = head->n_entries;
    batch.chunk_shift = head->chunk_shift;
    memcpy(batch.entries,
           (const char *)param + offsetof(struct gh_copy_batch, entries),
           head->n_entries * sizeof(batch.entries[0]));
    return batch;
}

static void run_copy(const softcuda_launch *launch, void *const *params)
{
    struct gh_copy_batch batch = take_batch(params[0]);

    for (uint32_t block = 0; block < launch->grid[0]; block++) {
        copy_block(&batch, block, launch->grid[0]);
    }
}

static void touch_copy(const softcuda_launch *launch, void *const *params,
                       softcuda_touch_fn touch, void *sink)
{
    struct gh_copy_batch batch = take_batch(params[0]);

    (void)launch;
    for (uint32_t i = 0; i < batch.n_entries; i++) {
        const struct gh_copy_entry *entry = &batch.entries[i];

        if (entry->bytes > 0) {
            touch(sink, at(entry->src), entry->bytes, SOFTCUDA_COPY_FROM);
            touch(sink, at(entry->dst), entry->bytes, SOFTCUDA_COPY_TO);
        }
    }
}

static void run_offsets(const softcuda_launch *launch, void *const *params)
{
    const struct gh_offsets_head *head = params[0];

    (void)launch;
    gh_offsets_ref(head, (const struct gh_offsets_pair *)(head + 1));
}

static void touch_offsets(const softcuda_launch *launch, void *const *params,
                          softcuda_touch_fn touch, void *sink)
{
    const struct gh_offsets_head *head = params[0];
    const uint64_t skip = head->first * sizeof(int32_t);
    const uint64_t bytes = (head->end - head->first) * sizeof(int32_t);

    (void)launch;
    touch(sink, at(head->actual + skip), bytes, SOFTCUDA_WRITE);
    touch(sink, at(head->padded + skip), bytes, SOFTCUDA_WRITE);
    if (head->first == 0) {
        touch(sink, at(head->longest), sizeof(int32_t), SOFTCUDA_WRITE);
        touch(sink, at(head->count), sizeof(int32_t), SOFTCUDA_WRITE);
    }
}

/* In slices, as on the device.  A C function cannot wait for other ranks: on
 * the software device `row` is 0. */
static void run_send(const softcuda_launch *launch, void *const *params)
{
    struct gh_send send;

    memcpy(&send, params[0], sizeof(send));
    for (uint32_t i = 0; i < send.n_parts; i++) {
        const struct gh_send_part *part = &send.parts[i];

        for (uint64_t block = 0; block < launch->grid[0]; block++) {
            const uint64_t offset = block * part->slice;

            if (offset < part->bytes) {
                const uint64_t left = part->bytes - offset;

                memmove(at(part->dst + offset), at(part->src + offset),
                        left < part->slice ? left : part->slice);
            }
        }
        if (part->flag != 0) {
            *(unsigned char *)at(part->flag) = 1;
        }
    }
}

static void touch_send(const softcuda_launch *launch, void *const *params,
                       softcuda_touch_fn touch, void *sink)
{
    struct gh_send send;

    (void)launch;
    memcpy(&send, params[0], sizeof(send));
    for (uint32_t i = 0; i < send.n_parts; i++) {
        const struct gh_send_part *part = &send.parts[i];

        if (part->bytes > 0) {
            touch(sink, at(part->src), part->bytes, SOFTCUDA_COPY_FROM);
            touch(sink, at(part->dst), part->bytes, SOFTCUDA_COPY_TO);
        }
    }
    touch(sink, at(send.ended), sizeof(uint32_t), SOFTCUDA_READ);
    touch(sink, at(send.ended), sizeof(uint32_t), SOFTCUDA_WRITE);
    for (uint32_t i = 0; i < send.n_parts; i++) {
        if (send.parts[i].flag != 0) {
            touch(sink, at(send.parts[i].flag), 1, SOFTCUDA_WRITE);
        }
    }
}

static void run_pages(const softcuda_launch *launch, void *const *params)
{
    (void)launch;
    gh_stash_pages_ref(params[0]);
}

/* Pages that are given back count as never written, so that whoever reads them
 * is reported. */
static void touch_pages(const softcuda_launch *launch, void *const *params,
                        softcuda_touch_fn touch, void *sink)
{
    const struct gh_stash_pages *pages = params[0];
    struct gh_stash_state *state = at(pages->state);
    struct gh_stash_record *record = at(pages->record);
    const uint32_t *list = list_of(record, sizeof(*record));
    uint64_t room;

    (void)launch;
    touch(sink, state, sizeof(*state), SOFTCUDA_READ);
    touch(sink, record, sizeof(*record), SOFTCUDA_READ);
    touch(sink, list, record->n_pages * sizeof(*list), SOFTCUDA_READ);
    if (pages->count != 0) {
        touch(sink, at(pages->count), sizeof(int32_t), SOFTCUDA_READ);
    }
    for (uint32_t i = 0; i < record->n_pages; i++) {
        touch(sink,
              at((record->spills != 0 ? pages->spill : pages->pool) +
                 list[i] * pages->page_bytes),
              pages->page_bytes, SOFTCUDA_DISCARD);
    }
    room = ((uint64_t)state->n_pages + state->spill_pages) * sizeof(*list);
    touch(sink, state, sizeof(*state) + room, SOFTCUDA_WRITE);
    touch(sink, record, sizeof(*record), SOFTCUDA_WRITE);
    if (pages->max_rows != 0) {
        const uint64_t most = (pages->max_rows - 1) / pages->page_rows + 1;

        touch(sink, list, most * sizeof(*list), SOFTCUDA_WRITE);
    }
}

static void run_rows(const softcuda_launch *launch, void *const *params)
{
    (void)launch;
    gh_stash_rows_ref(params[0]);
}

struct toucher {
    softcuda_touch_fn touch;
    void *sink;
};

/* What comes out of a page is used, so it must be what a push has written. */
static void touch_move(void *opaque, uint64_t dst, uint64_t src, uint64_t bytes,
                       uint32_t out)
{
    const struct toucher *to = opaque;

    if (src == 0) {
        to->touch(to->sink, at(dst), bytes, SOFTCUDA_WRITE);
        return;
    }
    if (out) {
        to->touch(to->sink, at(src), bytes, SOFTCUDA_READ);
    }
    to->touch(to->sink, at(src), bytes, SOFTCUDA_COPY_FROM);
    to->touch(to->sink, at(dst), bytes, SOFTCUDA_COPY_TO);
}

static void touch_rows(const softcuda_launch *launch, void *const *params,
                       softcuda_touch_fn touch, void *sink)
{
    const struct gh_stash_rows *rows = params[0];
    const struct gh_stash_record *record = at(rows->record);
    struct toucher to = { touch, sink };

    (void)launch;
    touch(sink, record, sizeof(*record) + record->n_pages * sizeof(uint32_t),
          SOFTCUDA_READ);
    each_range(rows, &to, touch_move);
}

static void run_gradient(const softcuda_launch *launch, void *const *params)
{
    const struct gh_gradient_sum *to = params[0];

    for (uint64_t block = 0; block < launch->grid[0]; block++) {
        const uint64_t offset = block * GH_GRADIENT_BLOCK;
        const uint64_t left = to->bytes - offset;

        add_range(to, offset,
                  left < GH_GRADIENT_BLOCK ? left : GH_GRADIENT_BLOCK);
    }
}

static void touch_gradient(const softcuda_launch *launch, void *const *params,
                           softcuda_touch_fn touch, void *sink)
{
    const struct gh_gradient_sum *to = params[0];
    uint32_t first;

    (void)launch;
    touch(sink, at(to->first), sizeof(first), SOFTCUDA_READ);
    memcpy(&first, at(to->first), sizeof(first));
    if (first != 0) {
        touch(sink, at(to->gradient), to->bytes, SOFTCUDA_COPY_FROM);
        touch(sink, at(to->sum), to->bytes, SOFTCUDA_COPY_TO);
        return;
    }
    touch(sink, at(to->gradient), to->bytes, SOFTCUDA_READ);
    touch(sink, at(to->sum), to->bytes, SOFTCUDA_READ);
    touch(sink, at(to->sum), to->bytes, SOFTCUDA_WRITE);
}

static void compare_args(void *const *params, uint64_t *args)
{
    for (uint32_t i = 0; i < GH_COMPARE_PARAMS; i++) {
        memcpy(&args[i], params[i], sizeof(args[i]));
    }
}

static void run_compare(const softcuda_launch *launch, void *const *params)
{
    uint64_t args[GH_COMPARE_PARAMS];

    (void)launch;
    compare_args(params, args);
    gh_compare_ref(args[0], args[1], args[2], args[3]);
}

/* Padding may be compared unwritten, because no number depends on it. */
static void touch_compare(const softcuda_launch *launch, void *const *params,
                          softcuda_touch_fn touch, void *sink)
{
    uint64_t args[GH_COMPARE_PARAMS];

    (void)launch;
    compare_args(params, args);
    touch(sink, at(args[0]), args[2], SOFTCUDA_COPY_FROM);
    touch(sink, at(args[1]), args[2], SOFTCUDA_COPY_FROM);
    touch(sink, at(args[3]), sizeof(uint64_t), SOFTCUDA_READ);
    touch(sink, at(args[3]), sizeof(uint64_t), SOFTCUDA_WRITE);
}

static const uint32_t small_bytes[] = { sizeof(struct gh_copy_batch_small) };
static const uint32_t large_bytes[] = { sizeof(struct gh_copy_batch) };
static const uint32_t few_bytes[] = { sizeof(struct gh_offsets_small) };
static const uint32_t many_bytes[] = { sizeof(struct gh_offsets) };
static const uint32_t send_bytes[] = { sizeof(struct gh_send) };
static const uint32_t pages_bytes[] = { sizeof(struct gh_stash_pages) };
static const uint32_t rows_bytes[] = { sizeof(struct gh_stash_rows) };
static const uint32_t gradient_bytes[] = { sizeof(struct gh_gradient_sum) };
static const uint32_t compare_bytes[] = { 8, 8, 8, 8 };

static const softcuda_kernel kernels[] = {
    { GH_KERNEL_COPY_SMALL, 1, small_bytes, run_copy, touch_copy, NULL },
    { GH_KERNEL_COPY_LARGE, 1, large_bytes, run_copy, touch_copy, NULL },
    { GH_KERNEL_COMPARE, GH_COMPARE_PARAMS, compare_bytes, run_compare,
      touch_compare, NULL },
    { GH_KERNEL_OFFSETS_SMALL, 1, few_bytes, run_offsets, touch_offsets, NULL },
    { GH_KERNEL_OFFSETS_LARGE, 1, many_bytes, run_offsets, touch_offsets,
      NULL },
    { GH_KERNEL_SEND, 1, send_bytes, run_send, touch_send, NULL },
    { GH_KERNEL_STASH_PAGES, 1, pages_bytes, run_pages, touch_pages, NULL },
    { GH_KERNEL_STASH_ROWS, 1, rows_bytes, run_rows, touch_rows, NULL },
    { GH_KERNEL_GRADIENT, 1, gradient_bytes, run_gradient, touch_gradient,
      NULL },
};

const softcuda_image gh_kernels_soft = {
    SOFTCUDA_IMAGE_MAGIC,
    sizeof(kernels) / sizeof(kernels[0]),
    0,
    kernels,
};
