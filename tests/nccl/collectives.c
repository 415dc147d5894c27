/* What each operation leaves in memory, for 1 to 4 ranks. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/nccl/ranks.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    COUNT = 129 /* no power of two, no multiple of a line */
};

/* Every rank is a thread: none has a buffer of the program's. */
static float *room(void)
{
    float *values = malloc(RANK_FLOATS * sizeof(*values));

    if (values == NULL) {
        abort();
    }
    return values;
}

static bool are(const float *values, size_t n, float first, float step)
{
    for (size_t i = 0; i < n; i++) {
        if (values[i] != first + (float)i * step) {
            diag("%zu is %f, not %f", i, (double)values[i],
                 (double)(first + (float)i * step));
            return false;
        }
    }
    return true;
}

static void test_all_reduce(struct rank *r)
{
    const float sum = (float)(r->n * (r->n + 1)) / 2; /* of 1 to n */
    float *values = room();

    fill(r, r->send, COUNT, (float)(r->rank + 1), (float)(r->rank + 1));
    says_int(r,
             nccl.ncclAllReduce(pointer(r->send), pointer(r->recv), COUNT,
                                ncclFloat32, ncclSum, r->comm, r->stream),
             0, "a sum is issued");
    fetch(r, r->stream, values, r->recv, COUNT * sizeof(float));
    says(r, are(values, COUNT, sum, sum), "the sum is everywhere");
    fetch(r, r->stream, values, r->send, COUNT * sizeof(float));
    says(r, are(values, COUNT, (float)(r->rank + 1), (float)(r->rank + 1)),
         "what was sent is as it was");

    says_int(r,
             nccl.ncclAllReduce(pointer(r->send), pointer(r->send), COUNT,
                                ncclFloat32, ncclSum, r->comm, r->stream),
             0, "a sum in place is issued");
    fetch(r, r->stream, values, r->send, COUNT * sizeof(float));
    says(r, are(values, COUNT, sum, sum), "and is there");
    free(values);
}

static void reduce_ones(struct rank *r, ncclRedOp_t op, const char *name,
                        float wanted)
{
    float value = -1;

    fill(r, r->send, 1, (float)(r->rank + 1), 0);
    says_int(r,
             nccl.ncclAllReduce(pointer(r->send), pointer(r->recv), 1,
                                ncclFloat32, op, r->comm, r->stream),
             0, "%s is issued", name);
    fetch(r, r->stream, &value, r->recv, sizeof(value));
    says(r, value == wanted, "%s gives %.3f, and gave %.3f", name,
         (double)wanted, (double)value);
}

static void test_reductions(struct rank *r)
{
    static const float products[] = { 1, 1, 2, 6, 24 };

    reduce_ones(r, ncclMax, "max", (float)r->n);
    reduce_ones(r, ncclMin, "min", 1);
    reduce_ones(r, ncclProd, "prod", products[r->n]);
    if (r->n != 3) { /* a third is rounded, here and there */
        reduce_ones(r, ncclAvg, "avg", (float)(r->n + 1) / 2);
    }
}

/* The sum over the ranks of rank + 1, in each type, as that type's bytes. */
static void sum_of_type(struct rank *r, ncclDataType_t type, const char *name,
                        const void *mine, const void *wanted, size_t bytes)
{
    unsigned char value[8] = { 0 };

    drv.cuMemcpyHtoDAsync(r->send, mine, bytes, r->stream);
    says_int(r,
             nccl.ncclAllReduce(pointer(r->send), pointer(r->recv), 1, type,
                                ncclSum, r->comm, r->stream),
             0, "a sum of %s is issued", name);
    fetch(r, r->stream, value, r->recv, bytes);
    says(r, memcmp(value, wanted, bytes) == 0, "a sum of %s is right", name);
}

#define SUM_OF(type, ctype) \
    do { \
        const ctype mine = (ctype)(r->rank + 1); \
        const ctype wanted = (ctype)(r->n * (r->n + 1) / 2); \
        sum_of_type(r, type, #type, &mine, &wanted, sizeof(ctype)); \
    } while (0)

static void test_types(struct rank *r)
{
    /* 1 to 10 as 16-bit floats */
    static const uint16_t half[] = { 0,      0x3C00, 0x4000, 0x4200,
                                     0x4400, 0x4500, 0x4600, 0x4700,
                                     0x4800, 0x4880, 0x4900 };
    static const uint16_t brain[] = { 0,      0x3F80, 0x4000, 0x4040,
                                      0x4080, 0x40A0, 0x40C0, 0x40E0,
                                      0x4100, 0x4110, 0x4120 };
    const int sum = r->n * (r->n + 1) / 2;

    SUM_OF(ncclInt8, int8_t);
    SUM_OF(ncclUint8, uint8_t);
    SUM_OF(ncclInt32, int32_t);
    SUM_OF(ncclUint32, uint32_t);
    SUM_OF(ncclInt64, int64_t);
    SUM_OF(ncclUint64, uint64_t);
    SUM_OF(ncclFloat32, float);
    SUM_OF(ncclFloat64, double);
    sum_of_type(r, ncclFloat16, "ncclFloat16", &half[r->rank + 1], &half[sum],
                2);
    sum_of_type(r, ncclBfloat16, "ncclBfloat16", &brain[r->rank + 1],
                &brain[sum], 2);
}

/* Rank 0 has one number, rank 1 another, the others nothing. */
static void sum_of_two(struct rank *r, ncclDataType_t type, uint16_t a,
                       uint16_t b, uint16_t wanted, const char *name)
{
    const uint16_t mine = r->rank == 0 ? a : r->rank == 1 ? b : 0;
    const uint16_t all = r->n == 1 ? a : wanted;

    sum_of_type(r, type, name, &mine, &all, sizeof(mine));
}

/* To the nearest, and to the even one of two that are as near. */
static void test_rounding(struct rank *r)
{
    sum_of_two(r, ncclBfloat16, 0x3F80, 0x3B80, 0x3F80, "1 and half a step");
    sum_of_two(r, ncclBfloat16, 0x3F81, 0x3B80, 0x3F82,
               "one step more and half a step");
    sum_of_two(r, ncclBfloat16, 0x3F80, 0x3BC0, 0x3F81,
               "1 and three quarters of a step");
    sum_of_two(r, ncclFloat16, 0x3C00, 0x1000, 0x3C00,
               "1 and half a step, of float16");
    sum_of_two(r, ncclFloat16, 0x3C01, 0x1000, 0x3C02,
               "one step more and half a step, of float16");
    sum_of_two(r, ncclFloat16, 0x0001, 0x0001, 0x0002,
               "the smallest two float16");
    sum_of_two(r, ncclFloat16, 0x03FF, 0x0001, 0x0400,
               "the smallest float16 with an exponent");
    sum_of_two(r, ncclFloat16, 0x7BFF, 0x7BFF, 0x7C00,
               "the largest two float16, which is infinite");
}

static void test_all_gather(struct rank *r)
{
    float *values = room();
    bool right = true;

    fill(r, r->send, COUNT, (float)(1000 * r->rank), 1);
    says_int(r,
             nccl.ncclAllGather(pointer(r->send), pointer(r->recv), COUNT,
                                ncclFloat32, r->comm, r->stream),
             0, "an all-gather is issued");
    fetch(r, r->stream, values, r->recv, (size_t)r->n * COUNT * sizeof(float));
    for (int i = 0; i < r->n; i++) {
        right &= are(values + i * COUNT, COUNT, (float)(1000 * i), 1);
    }
    says(r, right, "everyone's part is everywhere, in the order of ranks");

    /* in place: its own part lies where it belongs */
    fill(r, r->recv + (CUdeviceptr)(r->rank * COUNT) * sizeof(float), COUNT,
         (float)(500 * r->rank), 1);
    says_int(
        r,
        nccl.ncclAllGather(
            pointer(r->recv + (CUdeviceptr)(r->rank * COUNT) * sizeof(float)),
            pointer(r->recv), COUNT, ncclFloat32, r->comm, r->stream),
        0, "an all-gather in place is issued");
    fetch(r, r->stream, values, r->recv, (size_t)r->n * COUNT * sizeof(float));
    right = true;
    for (int i = 0; i < r->n; i++) {
        right &= are(values + i * COUNT, COUNT, (float)(500 * i), 1);
    }
    says(r, right, "and is right");
    free(values);
}

static void test_reduce_scatter(struct rank *r)
{
    const float ranks = (float)(r->n * (r->n - 1)) / 2; /* 0 + ... + n-1 */
    float *values = room();

    fill(r, r->send, (size_t)r->n * COUNT, (float)r->rank, 1);
    says_int(r,
             nccl.ncclReduceScatter(pointer(r->send), pointer(r->recv), COUNT,
                                    ncclFloat32, ncclSum, r->comm, r->stream),
             0, "a reduce-scatter is issued");
    fetch(r, r->stream, values, r->recv, COUNT * sizeof(float));
    says(r,
         are(values, COUNT, ranks + (float)(r->n * r->rank * COUNT),
             (float)r->n),
         "each rank has its part of the sum");
    free(values);
}

static void test_broadcast(struct rank *r)
{
    float *values = room();

    for (int root = 0; root < r->n; root++) {
        fill(r, r->send, COUNT, (float)(100 * r->rank), 1);
        says_int(r,
                 nccl.ncclBroadcast(pointer(r->send), pointer(r->recv), COUNT,
                                    ncclFloat32, root, r->comm, r->stream),
                 0, "a broadcast from %d is issued", root);
        fetch(r, r->stream, values, r->recv, COUNT * sizeof(float));
        says(r, are(values, COUNT, (float)(100 * root), 1),
             "what rank %d has is everywhere", root);
    }
    says_int(r,
             nccl.ncclBroadcast(r->rank == 0 ? pointer(r->send) : NULL,
                                pointer(r->recv), COUNT, ncclFloat32, 0,
                                r->comm, r->stream),
             0, "only the root sends");
    drv.cuStreamSynchronize(r->stream);
    free(values);
}

static void test_all_to_all(struct rank *r)
{
    float *values = room();
    bool right = true;

    if (nccl.ncclAlltoAll == NULL) {
        return;
    }
    fill(r, r->send, (size_t)r->n * COUNT, (float)(10000 * r->rank), 1);
    says_int(r,
             nccl.ncclAlltoAll(pointer(r->send), pointer(r->recv), COUNT,
                               ncclFloat32, r->comm, r->stream),
             0, "an all-to-all is issued");
    fetch(r, r->stream, values, r->recv, (size_t)r->n * COUNT * sizeof(float));
    for (int i = 0; i < r->n; i++) {
        right &= are(values + i * COUNT, COUNT,
                     (float)(10000 * i + r->rank * COUNT), 1);
    }
    says(r, right, "each rank has its part of everyone's");
    free(values);
}

/* Uneven: rank a sends b + 1 floats to rank b. */
static void test_sends_in_a_group(struct rank *r)
{
    float *values = room();
    bool right = true;
    size_t at = 0;

    fill(r, r->send, 16, (float)(100 * r->rank), 1);
    says_int(r, nccl.ncclGroupStart(), 0, "a group starts");
    for (int peer = 0; peer < r->n; peer++) {
        nccl.ncclSend(pointer(r->send), (size_t)peer + 1, ncclFloat32, peer,
                      r->comm, r->stream);
        nccl.ncclRecv(pointer(r->recv + at * sizeof(float)),
                      (size_t)r->rank + 1, ncclFloat32, peer, r->comm,
                      r->stream);
        at += (size_t)r->rank + 1;
    }
    says_int(r, nccl.ncclGroupEnd(), 0,
             "a group of sends and receives is issued");
    fetch(r, r->stream, values, r->recv, at * sizeof(float));
    at = 0;
    for (int peer = 0; peer < r->n; peer++) {
        right &= are(values + at, (size_t)r->rank + 1, (float)(100 * peer), 1);
        at += (size_t)r->rank + 1;
    }
    says(r, right, "each has what each other sent, its own too");
    free(values);
}

/* A ring, one message after the other and none in a group: even ranks send
 * first. */
static void test_messages_one_by_one(struct rank *r)
{
    const int to = (r->rank + 1) % r->n, from = (r->rank + r->n - 1) % r->n;
    float *values = room();

    if (r->n % 2 != 0) {
        free(values);
        return;
    }
    for (int i = 0; i < 3; i++) {
        fill(r, r->send, COUNT, (float)(10 * r->rank + i), 1);
        for (int half = 0; half < 2; half++) {
            if (half == r->rank % 2) {
                nccl.ncclSend(pointer(r->send), COUNT, ncclFloat32, to, r->comm,
                              r->stream);
            } else {
                nccl.ncclRecv(pointer(r->recv), COUNT, ncclFloat32, from,
                              r->comm, r->stream);
            }
        }
        fetch(r, r->stream, values, r->recv, COUNT * sizeof(float));
        says(r, are(values, COUNT, (float)(10 * from + i), 1),
             "message %d came round the ring", i);
    }
    free(values);
}

static void test_order_of_the_stream(struct rank *r)
{
    float *values = room();

    fill(r, r->send, COUNT, 1, 0);
    fill(r, r->third, COUNT, 2, 0);
    for (int i = 0; i < 4; i++) {
        nccl.ncclAllReduce(pointer(r->send), pointer(r->recv), COUNT,
                           ncclFloat32, ncclSum, r->comm, r->stream);
        drv.cuMemcpyDtoDAsync(r->send, r->third, COUNT * sizeof(float),
                              r->stream);
        drv.cuMemcpyDtoDAsync(r->third, r->recv, COUNT * sizeof(float),
                              r->stream);
    }
    /* 1n, 2n, then what was two before, times n */
    fetch(r, r->stream, values, r->recv, COUNT * sizeof(float));
    says(r, are(values, COUNT, (float)(2 * r->n * r->n), 0),
         "an operation takes its turn in the stream");
    free(values);
}

/* The last rank comes late; who waits for a context waits for it too. */
static void test_a_late_rank(struct rank *r)
{
    const struct timespec late = { 0, 400000000 };
    float value = -1;

    fill(r, r->send, 1, 1, 0);
    fill(r, r->third, 1, 5, 0);
    ranks_barrier(r);
    if (r->rank == r->n - 1) {
        nanosleep(&late, NULL);
    }
    nccl.ncclAllReduce(pointer(r->send), pointer(r->recv), 1, ncclFloat32,
                       ncclSum, r->comm, r->stream);
    says_int(r, drv.cuCtxSynchronize(), 0, "a context is waited for");
    fetch(r, r->side, &value, r->recv, sizeof(value));
    says(r, value == (float)r->n, "and the sum is there for any stream");
    says_int(r, drv.cuStreamQuery(r->stream), 0, "and its stream is done");
}

static void test_nothing(struct rank *r)
{
    says_int(r,
             nccl.ncclAllReduce(pointer(r->send), pointer(r->recv), 0,
                                ncclFloat32, ncclSum, r->comm, r->stream),
             0, "a sum of nothing is issued");
    nccl.ncclGroupStart();
    says_int(r, nccl.ncclGroupEnd(), 0, "an empty group is one");
    says_int(r, drv.cuStreamSynchronize(r->stream), 0, "and ends");
}

static const struct ranks_test tests[] = {
    { "all-reduce", test_all_reduce, false },
    { "reductions", test_reductions, false },
    { "types", test_types, false },
    { "rounding", test_rounding, false },
    { "all-gather", test_all_gather, false },
    { "reduce-scatter", test_reduce_scatter, false },
    { "broadcast", test_broadcast, false },
    { "all-to-all", test_all_to_all, false },
    { "sends in a group", test_sends_in_a_group, false },
    { "messages", test_messages_one_by_one, false },
    { "order", test_order_of_the_stream, false },
    { "a late rank", test_a_late_rank, false },
    { "nothing", test_nothing, false },
};

int main(void)
{
    return ranks_main(tests, sizeof(tests) / sizeof(tests[0]));
}
