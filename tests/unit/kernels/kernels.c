/*
 * The copy moves every byte it is asked to and no other, the compare finds
 * the first byte that differs, offsets are written each and all, parts are sent
 * with their flags: on the CPU, and on the driver that GRAPHHOOKS_TEST_DRIVER
 * names, the software device unless that says cuda.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "kernels/kernels.h"
#include "tap/tap.h"
#include "tests/unit/kernels/gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All ranges lie in one arena: sources below the middle, what is written
 * above it. */
#define ARENA (UINT64_C(20) << 20)
#define MIDDLE (ARENA / 2)

static unsigned char *before, *expected, *after;

/* Something that runs the kernels: each loads the arena, runs, reads back. */
struct runner {
    const char *name;
    void (*copy)(struct gh_copy_batch *batch); /* entries hold offsets */
    uint64_t (*compare)(uint64_t a, uint64_t b, uint64_t bytes);
    void (*offsets)(struct gh_offsets *offsets); /* in the first AREA bytes */
    /* Whether it waited for the row and cleared it. */
    bool (*send)(struct gh_send *send);
    int trials;
};

#define AREA 32768

static void rebase(struct gh_copy_batch *batch, uint64_t base)
{
    for (uint32_t i = 0; i < batch->n_entries; i++) {
        batch->entries[i].dst += base;
        batch->entries[i].src += base;
    }
}

/* ---- the reference ----------------------------------------------------- */

static void ref_copy(struct gh_copy_batch *batch)
{
    memcpy(after, before, ARENA);
    rebase(batch, (uintptr_t)after);
    gh_copy_batch_ref(batch);
}

static uint64_t ref_compare(uint64_t a, uint64_t b, uint64_t bytes)
{
    uint64_t first = UINT64_MAX;

    gh_compare_ref((uintptr_t)before + a, (uintptr_t)before + b, bytes,
                   (uintptr_t)&first);
    return first;
}

/* ---- the driver -------------------------------------------------------- */

static void move_offsets(struct gh_offsets *offsets, uint64_t base)
{
    offsets->head.actual += base;
    offsets->head.padded += base;
    offsets->head.longest += base;
    offsets->head.count += base;
}

static void ref_offsets(struct gh_offsets *offsets)
{
    memcpy(after, before, AREA);
    move_offsets(offsets, (uintptr_t)after);
    gh_offsets_ref(&offsets->head, offsets->pairs);
}

static void move_send(struct gh_send *send, uint64_t base)
{
    send->row += base;
    send->ended += base;
    for (uint32_t i = 0; i < send->n_parts; i++) {
        send->parts[i].dst += base;
        send->parts[i].src += base;
        send->parts[i].flag += send->parts[i].flag != 0 ? base : 0;
    }
}

static bool ref_send(struct gh_send *send)
{
    memcpy(after, before, ARENA);
    move_send(send, (uintptr_t)after);
    gh_send_ref(send);
    return false;
}

static CUfunction small, large, compare, few, many, sends;
static CUdeviceptr verdict;

/* What is loaded is the very text that the build has packed. */
static void test_the_text_comes_out_as_it_went_in(void)
{
    static const char *const places[] = { "kernels/fresh.ptx",
                                          "kernels/kernels.ptx", NULL };
    char *text = gh_kernels_ptx(), name[1024];
    const char *srcdir = getenv("srcdir");
    FILE *file = NULL;
    size_t n = 0;
    bool equal = true;

    for (int i = 0; file == NULL && places[i] != NULL; i++) {
        snprintf(name, sizeof(name), "%s%s%s", i > 0 && srcdir ? srcdir : "",
                 i > 0 && srcdir ? "/" : "", places[i]);
        file = fopen(name, "r");
    }
    if (!ok(file != NULL && text != NULL, "there is a PTX file and a text")) {
        free(text);
        return;
    }
    for (int c; (c = fgetc(file)) != EOF; n++) {
        equal = equal && text[n] == (char)c;
    }
    ok(equal && strlen(text) == n && n == gh_kernels_packed_bytes[1],
       "all %zu bytes of %s are in the text, and no other", n, name);
    ok(gh_kernels_packed_bytes[0] < n / 3, "packed it has less than a third");
    (void)fclose(file);
    free(text);
}

static bool open_device(char *reason, size_t bytes)
{
    return gpu_open(ARENA, reason, bytes) &&
           gpu_function(&small, gh_copy_batch_kernel(1)) &&
           gpu_function(&large, gh_copy_batch_kernel(9)) &&
           gpu_function(&compare, GH_KERNEL_COMPARE) &&
           gpu_function(&few, gh_offsets_kernel(GH_OFFSETS_SMALL)) &&
           gpu_function(&many, gh_offsets_kernel(GH_OFFSETS_SMALL + 1)) &&
           gpu_function(&sends, GH_KERNEL_SEND) &&
           CALL(cuMemAlloc, (&verdict, sizeof(uint64_t)));
}

static void close_device(void)
{
    CALL(cuMemFree, (verdict));
    gpu_close();
}

static void gpu_copy(struct gh_copy_batch *batch)
{
    void *params[] = { batch };
    uint32_t blocks;

    CALL(cuMemcpyHtoDAsync, (gpu.arena, before, ARENA, gpu.stream));
    rebase(batch, gpu.arena);
    blocks = gh_copy_batch_plan(batch);
    if (blocks > 0) {
        CALL(cuLaunchKernel,
             (batch->n_entries <= GH_COPY_SMALL ? small : large, blocks, 1, 1,
              GH_KERNEL_THREADS, 1, 1, 0, gpu.stream, params, NULL));
    }
    CALL(cuStreamSynchronize, (gpu.stream));
    CALL(cuMemcpyDtoH, (after, gpu.arena, ARENA));
}

/* Uploads only what is compared: there are thousands of these. */
static uint64_t gpu_compare(uint64_t a, uint64_t b, uint64_t bytes)
{
    uint64_t first = UINT64_MAX;
    uint64_t args[] = { gpu.arena + a, gpu.arena + b, bytes, verdict };
    void *params[] = { &args[0], &args[1], &args[2], &args[3] };

    CALL(cuMemcpyHtoDAsync, (gpu.arena + a, before + a, bytes, gpu.stream));
    CALL(cuMemcpyHtoDAsync, (gpu.arena + b, before + b, bytes, gpu.stream));
    CALL(cuMemcpyHtoDAsync, (verdict, &first, sizeof(first), gpu.stream));
    CALL(cuLaunchKernel,
         (compare, gh_compare_plan(bytes), 1, 1, GH_KERNEL_THREADS, 1, 1, 0,
          gpu.stream, params, NULL));
    CALL(cuStreamSynchronize, (gpu.stream));
    CALL(cuMemcpyDtoH, (&first, verdict, sizeof(first)));
    return first;
}

static void gpu_offsets(struct gh_offsets *offsets)
{
    void *params[] = { offsets };

    CALL(cuMemcpyHtoDAsync, (gpu.arena, before, AREA, gpu.stream));
    move_offsets(offsets, gpu.arena);
    CALL(cuLaunchKernel, (offsets->head.n <= GH_OFFSETS_SMALL ? few : many,
                          gh_offsets_plan(offsets), 1, 1, GH_KERNEL_THREADS, 1,
                          1, 0, gpu.stream, params, NULL));
    CALL(cuStreamSynchronize, (gpu.stream));
    CALL(cuMemcpyDtoH, (after, gpu.arena, AREA));
}

/* Twice, as the second launch finds what the first one has left. */
static bool gpu_send(struct gh_send *send)
{
    void *params[] = { send };
    uint32_t blocks;

    move_send(send, gpu.arena);
    send->row = gpu.soft ? 0 : send->row;
    blocks = gh_send_plan(send);
    CALL(cuMemcpyHtoDAsync, (gpu.arena, before, ARENA, gpu.stream));
    for (int i = 0; i < 2; i++) {
        CALL(cuLaunchKernel, (sends, blocks, 1, 1, GH_SEND_THREADS, 1, 1, 0,
                              gpu.stream, params, NULL));
    }
    CALL(cuStreamSynchronize, (gpu.stream));
    CALL(cuMemcpyDtoH, (after, gpu.arena, ARENA));
    return !gpu.soft;
}

/* ---- the copy ---------------------------------------------------------- */

/* Runs a batch of offsets and compares the whole arena: what no entry names
 * must be as it was. */
static bool copies_exactly(const struct runner *on, struct gh_copy_batch *batch)
{
    memcpy(expected, before, ARENA);
    for (uint32_t i = 0; i < batch->n_entries; i++) {
        memcpy(expected + batch->entries[i].dst, before + batch->entries[i].src,
               batch->entries[i].bytes);
    }
    on->copy(batch);
    return memcmp(after, expected, ARENA) == 0;
}

/* Lengths of every size class, most of them short. */
static uint32_t some_length(void)
{
    switch (draw(4)) {
    case 0:
        return draw(20);
    case 1:
        return draw(300);
    case 2:
        return 4096 * draw(4) + draw(3);
    default:
        return draw(40000);
    }
}

static void random_batch(struct gh_copy_batch *batch, uint32_t n)
{
    uint64_t at = MIDDLE;

    batch->n_entries = n;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t bytes = some_length();

        at += draw(40);
        batch->entries[i] = (struct gh_copy_entry){
            .dst = at,
            .src = draw((uint32_t)(MIDDLE - bytes)), /* may overlap others */
            .bytes = bytes,
        };
        at += bytes;
    }
}

static void test_random_batches_are_copied(const struct runner *on)
{
    static struct gh_copy_batch batch;
    int wrong = 0;

    for (int i = 0; i < on->trials; i++) {
        random_batch(&batch, 1 + draw(GH_COPY_LARGE));
        wrong += !copies_exactly(on, &batch);
    }
    is_int(wrong, 0, "%s: batches of any lengths and alignments are copied",
           on->name);
    wrong = 0;
    for (uint32_t n = 1; n <= 9; n++) {
        random_batch(&batch, n);
        wrong += !copies_exactly(on, &batch);
    }
    is_int(wrong, 0, "%s: so are batches of 1 to 9, on both kernels", on->name);
}

static void test_every_alignment_is_copied(const struct runner *on)
{
    static struct gh_copy_batch batch;
    int wrong = 0;

    for (uint32_t to = 0; to < 16; to++) {
        batch.n_entries = GH_COPY_LARGE;
        for (uint32_t i = 0; i < GH_COPY_LARGE; i++) {
            batch.entries[i] = (struct gh_copy_entry){
                .dst = MIDDLE + 128 * i + to,
                .src = 128 * i + i % 16,
                .bytes = i / 2 + 16 * (i % 3),
            };
        }
        wrong += !copies_exactly(on, &batch);
    }
    is_int(wrong, 0, "%s: short ranges at every pair of alignments are copied",
           on->name);
}

static void test_long_ranges_are_copied(const struct runner *on)
{
    static struct gh_copy_batch batch;

    batch.n_entries = 3;
    batch.entries[0] = (struct gh_copy_entry){ MIDDLE, 5 << 20, 5 << 20 };
    batch.entries[1] =
        (struct gh_copy_entry){ MIDDLE + (5 << 20) + 3, 7, (4 << 20) + 13 };
    batch.entries[2] = (struct gh_copy_entry){ ARENA - 4, 16, 4 };
    ok(copies_exactly(on, &batch),
       "%s: ranges of megabytes are copied beside one of 4 bytes", on->name);
}

/* 9 chunks of 4 KiB in each of 128: some of the 1024 blocks take two. */
static void test_blocks_that_take_several_chunks(const struct runner *on)
{
    static struct gh_copy_batch batch;

    batch.n_entries = GH_COPY_LARGE;
    for (uint32_t i = 0; i < GH_COPY_LARGE; i++) {
        batch.entries[i] = (struct gh_copy_entry){
            .dst = MIDDLE + 40000 * i,
            .src = 40000 * (GH_COPY_LARGE - 1 - i),
            .bytes = 32769,
        };
    }
    is_int(gh_copy_batch_plan(&batch), 1024,
           "%s: 1152 chunks are left to 1024 blocks", on->name);
    ok(copies_exactly(on, &batch), "%s: who copy them all", on->name);
}

static void test_odd_batches(const struct runner *on)
{
    static struct gh_copy_batch batch;

    batch.n_entries = 2;
    batch.entries[0] = (struct gh_copy_entry){ 100, 100, 99999 };
    batch.entries[1] = (struct gh_copy_entry){ MIDDLE + 1, 50, 100000 };
    ok(copies_exactly(on, &batch),
       "%s: a range copied onto itself stays, and may be read beside it",
       on->name);

    batch.n_entries = 3;
    batch.entries[0] = (struct gh_copy_entry){ MIDDLE, 0, 0 };
    batch.entries[1] = (struct gh_copy_entry){ MIDDLE, 0, 1 };
    batch.entries[2] = (struct gh_copy_entry){ MIDDLE + 1, 0, 0 };
    ok(copies_exactly(on, &batch), "%s: an entry of no bytes copies none",
       on->name);
    batch.entries[1].bytes = 0;
    ok(copies_exactly(on, &batch), "%s: nor does a batch of them", on->name);
}

static void test_the_geometry_of_a_copy(void)
{
    static struct gh_copy_batch batch = { .n_entries = 1 };

    is_int(gh_copy_batch_plan(&batch), 0, "nothing to copy is no launch");
    batch.entries[0].bytes = 1;
    is_int(gh_copy_batch_plan(&batch), 1, "one byte is one block");
    batch.entries[0].bytes = 4097;
    is_int(gh_copy_batch_plan(&batch), 2, "a page and a byte are two");
    batch.entries[0].bytes = UINT64_C(1) << 40;
    is_int(gh_copy_batch_plan(&batch), 1024, "a terabyte is 1024");
    is_int(batch.chunk_shift, 16, "each of which takes 64 KiB at a time");
    is_str(gh_copy_batch_kernel(8), GH_KERNEL_COPY_SMALL,
           "eight entries are for the small kernel");
    is_str(gh_copy_batch_kernel(9), GH_KERNEL_COPY_LARGE,
           "nine are for the large one");
    ok(sizeof(struct gh_copy_batch) <= 4096,
       "a batch fits into the parameters of a kernel");
}

/* ---- parts that are sent ----------------------------------------------- */

/* Where the counts of blocks and the row of flags lie, below what is written. */
#define ENDED (MIDDLE - 8192)
#define ROW (MIDDLE - 4096)

/* Rank 0 of n sends a part to each other, who has no memory of its own here: the
 * flags that the parts set are those that the kernel waits for. */
static bool sends_exactly(const struct runner *on, uint32_t n, uint32_t most)
{
    static struct gh_send send;
    uint64_t at = MIDDLE;

    send = (struct gh_send){ .n_parts = n, .n_ranks = n, .row = ROW,
                             .ended = ENDED };
    memset(before + ENDED, 0, MIDDLE - ENDED);
    memcpy(expected, before, ARENA);
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t bytes = draw(4) == 0 ? 0 : draw(most);

        at += draw(40);
        send.parts[i] = (struct gh_send_part){
            .dst = at,
            .src = draw((uint32_t)(ENDED - bytes)),
            .bytes = bytes,
            .flag = i == 0 ? 0 : ROW + i, /* its own part has none */
        };
        memcpy(expected + at, before + send.parts[i].src, bytes);
        expected[ROW + i] = i != 0;
        at += bytes;
    }
    if (on->send(&send)) {
        memset(expected + ROW, 0, n);
    }
    return memcmp(after, expected, ARENA) == 0;
}

static void test_parts_are_sent(const struct runner *on)
{
    int wrong = 0;

    for (int i = 0; i < on->trials; i++) {
        wrong += !sends_exactly(on, 1 + draw(GH_SEND_PARTS),
                                i % 2 == 0 ? 200 : 150000);
    }
    for (uint32_t n = 1; n <= 9; n++) {
        wrong += !sends_exactly(on, n, 600000);
    }
    is_int(wrong, 0, "%s: parts of any lengths and alignments are sent, with "
           "their flags, and the counts are 0 again", on->name);
}

static void test_sends_are_planned(void)
{
    static struct gh_send send = { .n_parts = 2 };

    is_int(gh_send_plan(&send), 1, "parts of no bytes are a block, for flags");
    send.parts[1].bytes = 16385;
    is_int(gh_send_plan(&send), 2, "16 KiB and a byte are two");
    is_int((long long)send.parts[1].slice, 8320, "of whole lines each");
    send.parts[0].bytes = UINT64_C(1) << 30;
    is_int(gh_send_plan(&send), GH_SEND_BLOCKS, "and there are 8 at most");
    ok(sizeof(send) <= 4096, "a send fits into the parameters of a kernel");
}

/* ---- the compare ------------------------------------------------------- */

/* One byte is changed at each offset in turn, and must be found. */
static void test_a_difference_is_found_anywhere(const struct runner *on)
{
    static const uint32_t shifts[][2] = { { 0, 0 }, { 5, 5 }, { 3, 12 } };

    for (size_t s = 0; s < sizeof(shifts) / sizeof(shifts[0]); s++) {
        const uint64_t a = shifts[s][0], b = MIDDLE + shifts[s][1];
        const uint64_t bytes = 203;
        int wrong = 0;

        memcpy(before + b, before + a, bytes);
        before[a + bytes] = (unsigned char)~before[b + bytes];
        wrong += on->compare(a, b, bytes) != UINT64_MAX;
        for (uint64_t i = 0; i < bytes; i++) {
            before[b + i] ^= 0x10;
            wrong += on->compare(a, b, bytes) != i;
            before[b + i] ^= 0x10;
        }
        is_int(wrong, 0,
               "%s: at alignments %u and %u a difference is found at every "
               "offset, and none where there is none",
               on->name, shifts[s][0], shifts[s][1]);
    }
}

static void test_the_first_of_many_is_found(const struct runner *on)
{
    const uint64_t bytes = 3000001;
    int wrong = 0;

    for (uint32_t shift = 0; shift < 2; shift++) {
        for (int i = 0; i < 20; i++) {
            uint64_t first = bytes;

            memcpy(before + MIDDLE + shift, before, bytes);
            for (int j = 0; j < 5; j++) {
                uint64_t at = draw((uint32_t)bytes);

                before[at] ^= 0x80;
                first = at < first ? at : first;
            }
            wrong += on->compare(0, MIDDLE + shift, bytes) != first;
        }
    }
    is_int(wrong, 0, "%s: of many differences the first is found", on->name);
}

static void test_the_word_is_only_lowered(void)
{
    const char a[] = "same here, not here", b[] = "same here, and there";
    uint64_t first = 3;

    gh_compare_ref((uintptr_t)a, (uintptr_t)b, 19, (uintptr_t)&first);
    is_int(first, 3, "a compare keeps an earlier offset that it finds");
    first = 15;
    gh_compare_ref((uintptr_t)a, (uintptr_t)b, 19, (uintptr_t)&first);
    is_int(first, 11, "and replaces a later one");
    is_int(gh_compare_plan(0), 0, "nothing to compare is no launch");
    is_int(gh_compare_plan(1), 1, "one byte is one block");
    is_int(gh_compare_plan(UINT64_C(1) << 50), 1024,
           "however much there is, 1024 are enough");
}

/* ---- what they declare ------------------------------------------------- */

static uint64_t races(void)
{
    softcuda_configure_fn *configure =
        (softcuda_configure_fn *)dlsym(gpu.drv.library, "softcuda_configure");
    softcuda_races_fn *count =
        (softcuda_races_fn *)dlsym(gpu.drv.library, "softcuda_races");
    const char *text;
    const uint64_t n = count(0, &text);

    configure("SEED=0 RACES=1");
    return n;
}

static void launch_copy(CUdeviceptr dst, CUdeviceptr src)
{
    struct gh_copy_batch batch = { .n_entries = 1,
                                   .entries = { { dst, src, 64 } } };
    void *params[] = { &batch };

    CALL(cuLaunchKernel,
         (small, gh_copy_batch_plan(&batch), 1, 1, GH_KERNEL_THREADS, 1, 1, 0,
          gpu.stream, params, NULL));
}

static void launch_compare(CUdeviceptr a, CUdeviceptr b)
{
    uint64_t args[] = { a, b, 64, verdict };
    void *params[] = { &args[0], &args[1], &args[2], &args[3] };

    CALL(cuLaunchKernel, (compare, gh_compare_plan(64), 1, 1, GH_KERNEL_THREADS,
                          1, 1, 0, gpu.stream, params, NULL));
}

/* Another stream writes or reads there at the time. */
static void test_who_comes_between_is_a_race(void)
{
    const CUdeviceptr a = gpu.arena, b = gpu.arena + 4096;
    CUstream beside;

    CALL(cuStreamCreate, (&beside, CU_STREAM_NON_BLOCKING));
    CALL(cuCtxSynchronize, ());
    races();
    launch_copy(b, a);
    is_int(races(), 0, "a copy alone is no race");
    launch_copy(b, a);
    CALL(cuMemsetD8Async, (a + 63, 0, 1, beside));
    is_int(races(), 1, "who writes what a copy reads is one");
    launch_copy(b, a);
    CALL(cuMemcpyDtoDAsync, (b + 4096, b + 63, 1, beside));
    is_int(races(), 1, "so is who reads what it writes");
    launch_compare(a, b);
    is_int(races(), 0, "a compare alone is no race");
    launch_compare(a, b);
    CALL(cuMemsetD8Async, (a + 63, 0, 1, beside));
    is_int(races(), 1, "who writes its first range is one");
    launch_compare(a, b);
    CALL(cuMemsetD8Async, (b + 63, 0, 1, beside));
    is_int(races(), 1, "so is who writes its second");
    launch_compare(a, b);
    CALL(cuMemcpyDtoDAsync, (b + 4096, verdict, sizeof(uint64_t), beside));
    is_int(races(), 1, "and who reads its word");
    CALL(cuStreamDestroy, (beside));
}

/* ---- offsets ----------------------------------------------------------- */

static void put(uint64_t at, int32_t value)
{
    memcpy(expected + at, &value, sizeof(value));
}

static bool writes_offsets(const struct runner *on, uint32_t first, uint32_t n,
                           uint32_t fills)
{
    static struct gh_offsets offsets;
    struct gh_offsets_head *head = &offsets.head;
    const uint32_t rest = first + n;

    *head = (struct gh_offsets_head){ .actual = 0,
                                      .padded = AREA / 4,
                                      .longest = AREA / 2,
                                      .count = AREA / 2 + 4,
                                      .first = first,
                                      .n = n,
                                      .end = rest + fills,
                                      .fill_actual = -5,
                                      .fill_padded = 123456789,
                                      .longest_value = 77,
                                      .count_value = 9 };
    memcpy(expected, before, AREA);
    for (uint32_t i = 0; i < n; i++) {
        offsets.pairs[i].actual = (int32_t)draw(1u << 31);
        offsets.pairs[i].padded = (int32_t)draw(1u << 31);
        put(4 * (first + i), offsets.pairs[i].actual);
        put(AREA / 4 + 4 * (first + i), offsets.pairs[i].padded);
    }
    for (uint32_t i = rest; i < rest + fills; i++) {
        put(4 * i, -5);
        put(AREA / 4 + 4 * i, 123456789);
    }
    if (first == 0) {
        put(AREA / 2, 77);
        put(AREA / 2 + 4, 9);
    }
    on->offsets(&offsets);
    return memcmp(after, expected, AREA) == 0;
}

static void test_offsets_are_written(const struct runner *on)
{
    int wrong = 0;

    for (uint32_t n = 0; n <= GH_OFFSETS_LARGE; n++) {
        wrong += !writes_offsets(on, 0, n, 1 + draw(1200));
    }
    is_int(wrong, 0, "%s: offsets of 0 to %u sequences are written, and fills",
           on->name, GH_OFFSETS_LARGE);
    wrong = !writes_offsets(on, 480, 480, 0) ||
            !writes_offsets(on, 480, 48, 300) ||
            !writes_offsets(on, 960, 1, 0) || !writes_offsets(on, 1, 0, 256);
    ok(!wrong, "%s: a later launch leaves the others' and the numbers",
       on->name);
}

static void test_on(const struct runner *on)
{
    draw_bytes(before, ARENA);
    test_random_batches_are_copied(on);
    test_every_alignment_is_copied(on);
    test_long_ranges_are_copied(on);
    test_parts_are_sent(on);
    test_blocks_that_take_several_chunks(on);
    test_odd_batches(on);
    test_a_difference_is_found_anywhere(on);
    test_the_first_of_many_is_found(on);
    test_offsets_are_written(on);
}

int main(void)
{
    static const struct runner ref = { "reference", ref_copy, ref_compare,
                                       ref_offsets, ref_send, 8 };
    struct runner device = { "device",    gpu_copy, gpu_compare,
                             gpu_offsets, gpu_send, 8 };
    char reason[512];

    test_the_text_comes_out_as_it_went_in();
    before = malloc(ARENA);
    expected = malloc(ARENA);
    after = malloc(ARENA);
    if (before == NULL || expected == NULL || after == NULL) {
        return skip_all("no memory for three arenas of 20 MiB");
    }

    test_the_geometry_of_a_copy();
    test_sends_are_planned();
    test_the_word_is_only_lowered();
    test_on(&ref);
    if (open_device(reason, sizeof(reason))) {
        device.name = gpu.soft ? "software device" : "GPU";
        device.trials = gpu.soft ? 20 : 300;
        test_on(&device);
        if (gpu.soft) {
            test_who_comes_between_is_a_race();
        } else {
            skip(7, "only the software device reports races");
        }
        close_device();
    } else {
        skip(23, "%s", reason);
    }

    free(before);
    free(expected);
    free(after);
    return done_testing();
}
