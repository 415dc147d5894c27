/*
 * A first gradient is written bit for bit, a later one is added as hardware
 * adds it, in every type, and nothing beside is touched: on the CPU, and on the
 * driver that GRAPHHOOKS_TEST_DRIVER names, also from a graph that finds
 * another word in each launch.  The software device reports a sum of what
 * nobody wrote.
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

/* One arena: the word, the sum with margins, the gradient. */
#define MOST (UINT64_C(10) << 17) /* every half, ten times */
#define MARGIN UINT64_C(64)
#define WORD UINT64_C(0)
#define SUM (UINT64_C(256) + MARGIN)
#define GRADIENT (SUM + MOST + MARGIN)
#define ARENA (GRADIENT + MOST)

static unsigned char *before, *expected, *after;

struct runner {
    const char *name;
    void (*add)(struct gh_gradient_sum *to); /* offsets in the arena */
};

static const struct gh_gradient_sum where = { .sum = SUM,
                                              .gradient = GRADIENT,
                                              .first = WORD };

static void rebase(struct gh_gradient_sum *to, uint64_t base)
{
    to->sum += base;
    to->gradient += base;
    to->first += base;
}

static void ref_add(struct gh_gradient_sum *to)
{
    memcpy(after, before, ARENA);
    rebase(to, (uintptr_t)after);
    gh_gradient_add_ref(to);
}

static CUfunction add;

static void issue(struct gh_gradient_sum *to)
{
    void *params[] = { to };

    CALL(cuLaunchKernel,
         (add, gh_gradient_plan(to->bytes), 1, 1, GH_KERNEL_THREADS, 1, 1, 0,
          gpu.stream, params, NULL));
}

static void gpu_add(struct gh_gradient_sum *to)
{
    CALL(cuMemcpyHtoDAsync, (gpu.arena, before, ARENA, gpu.stream));
    rebase(to, gpu.arena);
    issue(to);
    CALL(cuStreamSynchronize, (gpu.stream));
    CALL(cuMemcpyDtoH, (after, gpu.arena, ARENA));
}

static void put_word(unsigned char *arena, uint32_t first)
{
    memcpy(arena + WORD, &first, sizeof(first));
}

static uint32_t element_at(const unsigned char *from, uint64_t i, uint32_t size)
{
    uint32_t bits = 0;

    memcpy(&bits, from + i * size, size);
    return bits;
}

/* ---- what hardware gives, computed another way ----------------------------
 */

static double value_of(uint32_t bits, uint32_t element)
{
    const uint32_t exponent = bits >> 10 & 31, rest = bits & 1023;
    float value;

    if (element != GH_GRADIENT_F16) {
        bits = element == GH_GRADIENT_BF16 ? bits << 16 : bits;
        memcpy(&value, &bits, sizeof(value));
        return (double)value;
    }
    value = exponent == 0
                ? (float)rest * 0x1p-24f
                : (float)(1024 + rest) *
                      ((float)(1u << (exponent < 25 ? exponent : 25)) *
                       (float)(1u << (exponent < 25 ? 0 : exponent - 25)) *
                       0x1p-25f);
    if (exponent == 31) {
        value = rest != 0 ? (float)(0.0 / 0.0) : (float)(1.0 / 0.0);
    }
    return (double)((bits & 0x8000) != 0 ? -value : value);
}

/* The nearest of the type's numbers, found among the neighbours of a guess. */
static uint32_t nearest(float sum, uint32_t element)
{
    const uint32_t infinite = element == GH_GRADIENT_F16 ? 0x7c00 : 0x7f80;
    const double most = element == GH_GRADIENT_F16 ? 65520.0 : 0x1.ffp127;
    double magnitude = (double)sum;
    uint32_t low = 0, high = infinite - 1, sign, bits;

    memcpy(&bits, &sum, sizeof(bits));
    sign = bits >> 16 & 0x8000;
    if (sum != sum) {
        return 0x7fff;
    }
    magnitude = magnitude < 0 ? -magnitude : magnitude;
    if (magnitude >= most) {
        return sign | infinite;
    }
    while (low < high) { /* the largest that is not above */
        const uint32_t middle = (low + high + 1) / 2;

        if (value_of(middle, element) <= magnitude) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    if (low + 1 < infinite) {
        const double below = magnitude - value_of(low, element);
        const double above = value_of(low + 1, element) - magnitude;

        low += above < below || (above == below && (low & 1) != 0);
    }
    return sign | low;
}

static uint32_t sum_of(uint32_t a, uint32_t b, uint32_t element)
{
    const float sum = (float)value_of(a, element) + (float)value_of(b, element);
    uint32_t bits;

    if (element != GH_GRADIENT_F32) {
        return nearest(sum, element);
    }
    memcpy(&bits, &sum, sizeof(bits));
    return sum != sum ? 0x7fffffff : bits;
}

/* ---- every runner ---------------------------------------------------------
 */

static const char *const names[] = { "", "float32", "float16", "bfloat16" };

static bool adds(const struct runner *on, uint32_t element, uint64_t bytes,
                 uint32_t first)
{
    const uint32_t size = element == GH_GRADIENT_F32 ? 4 : 2;
    struct gh_gradient_sum to = where;

    to.bytes = bytes;
    to.element = element;
    put_word(before, first);
    memcpy(expected, before, ARENA);
    if (first != 0) {
        memcpy(expected + SUM, before + GRADIENT, bytes);
    }
    for (uint64_t i = 0; first == 0 && i < bytes / size; i++) {
        const uint32_t sum =
            sum_of(element_at(before + SUM, i, size),
                   element_at(before + GRADIENT, i, size), element);

        memcpy(expected + SUM + i * size, &sum, size);
    }
    on->add(&to);
    return memcmp(after, expected, ARENA) == 0;
}

static void test_any_bits(const struct runner *on)
{
    static const uint64_t lengths[] = { 16, 4096, 8176, 8192, 8208, 100000 };

    draw_bytes(before, ARENA);
    for (uint32_t element = 1; element <= 3; element++) {
        int wrong = 0;

        for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
            const uint64_t bytes = lengths[i] / 16 * 16;

            wrong += !adds(on, element, bytes, 0) ||
                     !adds(on, element, bytes, 1) ||
                     !adds(on, element, bytes, 0x80000000);
        }
        is_int(wrong, 0, "%s: gradients of %s are the first, or added",
               on->name, names[element]);
    }
}

/* Every half beside numbers of each kind: zeros, the least, ties, the most,
 * infinities and NaNs. */
static void test_every_half(const struct runner *on)
{
    static const uint16_t others[] = { 0x0000, 0x8000, 0x0001, 0x3c00, 0xbc01,
                                       0x7bff, 0x7c00, 0xfc00, 0x7e01, 0x3f80 };
    const uint32_t n = sizeof(others) / sizeof(others[0]);

    for (uint32_t i = 0; i < n * 65536; i++) {
        const uint16_t half = (uint16_t)i;

        memcpy(before + SUM + 2 * (uint64_t)i, &half, 2);
        memcpy(before + GRADIENT + 2 * (uint64_t)i, &others[i >> 16], 2);
    }
    for (uint32_t element = 2; element <= 3; element++) {
        ok(adds(on, element, n * UINT64_C(131072), 0),
           "%s: every %s is added to what is odd", on->name, names[element]);
    }
}

static void test_on(const struct runner *on)
{
    test_any_bits(on);
    test_every_half(on);
}

/* ---- the device -----------------------------------------------------------
 */

/* One graph does for a step's first gradient, and for those after it. */
static void test_in_a_graph(void)
{
    struct gh_gradient_sum to = where;
    CUgraphExec exec;
    CUgraph graph;
    float *sum = (float *)(void *)(after + SUM);
    float three = 3;

    to.bytes = 16384;
    to.element = GH_GRADIENT_F32;
    rebase(&to, gpu.arena);
    for (uint64_t i = 0; i < to.bytes; i += 4) {
        memcpy(before + GRADIENT + i, &three, 4);
    }
    memset(before + SUM, 0xff, to.bytes);
    CALL(cuMemcpyHtoDAsync, (gpu.arena, before, ARENA, gpu.stream));
    CALL(cuStreamBeginCapture, (gpu.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    issue(&to);
    CALL(cuStreamEndCapture, (gpu.stream, &graph));
    CALL(cuGraphInstantiateWithFlags, (&exec, graph, 0));
    for (uint32_t step = 0; step < 2; step++) {
        for (uint32_t i = 0; i < 3; i++) {
            if (i < 2) {
                CALL(cuMemsetD8Async, (to.first, i == 0, 1, gpu.stream));
                CALL(cuMemsetD8Async, (to.first + 1, 0, 3, gpu.stream));
            }
            CALL(cuGraphLaunch, (exec, gpu.stream));
        }
    }
    CALL(cuStreamSynchronize, (gpu.stream));
    CALL(cuMemcpyDtoH, (after, gpu.arena, ARENA));
    ok(sum[0] == 9 && sum[to.bytes / 4 - 1] == 9,
       "a graph's three launches are a step's first gradient and two more");
    CALL(cuGraphExecDestroy, (exec));
    CALL(cuGraphDestroy, (graph));
}

/* Memory that nobody has written may be the place of a first gradient. */
static void test_reports(void)
{
    softcuda_configure_fn *configure =
        (softcuda_configure_fn *)dlsym(gpu.drv.library, "softcuda_configure");
    softcuda_unwritten_fn *count =
        (softcuda_unwritten_fn *)dlsym(gpu.drv.library, "softcuda_unwritten");
    struct gh_gradient_sum to = { .bytes = 64, .element = GH_GRADIENT_F32 };
    const char *text;
    CUdeviceptr fresh;

    configure("UNWRITTEN=1");
    CALL(cuMemAlloc, (&fresh, 64));
    to.sum = fresh;
    to.gradient = gpu.arena + GRADIENT;
    to.first = gpu.arena + WORD;
    CALL(cuMemcpyHtoDAsync, (gpu.arena, before, ARENA, gpu.stream));
    CALL(cuMemsetD8Async, (to.first, 1, 1, gpu.stream));
    issue(&to);
    CALL(cuStreamSynchronize, (gpu.stream));
    is_int((long long)count(0, &text), 0,
           "a first gradient reads nothing of its place");
    issue(&to);
    CALL(cuStreamSynchronize, (gpu.stream));
    CALL(cuMemFree, (fresh));
    CALL(cuMemAlloc, (&fresh, 64));
    to.sum = fresh;
    CALL(cuMemsetD8Async, (to.first, 0, 4, gpu.stream));
    issue(&to);
    CALL(cuStreamSynchronize, (gpu.stream));
    ok(count(0, &text) > 0, "a later one is added to what must be there");
    CALL(cuMemFree, (fresh));
}

static void test_the_grid(void)
{
    is_int(gh_gradient_plan(0), 0, "nothing to add is no launch");
    is_int(gh_gradient_plan(16), 1, "a word is a block");
    is_int(gh_gradient_plan(8192), 1, "as are two for each thread");
    is_int(gh_gradient_plan(8208), 2, "one more is another");
}

int main(void)
{
    static const struct runner ref = { "reference", ref_add };
    struct runner device = { "device", gpu_add };
    char reason[512];

    before = malloc(ARENA);
    expected = malloc(ARENA);
    after = malloc(ARENA);
    if (before == NULL || expected == NULL || after == NULL) {
        return skip_all("no memory for three arenas");
    }
    test_the_grid();
    test_on(&ref);
    if (gpu_open(ARENA, reason, sizeof(reason)) &&
        gpu_function(&add, GH_KERNEL_GRADIENT)) {
        device.name = gpu.soft ? "software device" : "GPU";
        test_on(&device);
        test_in_a_graph();
        if (gpu.soft) {
            test_reports();
        } else {
            skip(2, "only the software device reports");
        }
        gpu_close();
    } else {
        skip(8, "%s", reason);
    }
    free(before);
    free(expected);
    free(after);
    return done_testing();
}
