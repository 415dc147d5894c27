/*
 * types.c - NCCL's data types and reductions, as C.
 *
 * A reduction goes over the ranks in their order: ((x0 + x1) + x2) + x3, each
 * step rounded to the type.  So its bits depend on the inputs alone.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softnccl/types.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

static const struct {
    const char *name;
    size_t bytes;
} types[] = {
    [ncclInt8] = { "int8", 1 },       [ncclUint8] = { "uint8", 1 },
    [ncclInt32] = { "int32", 4 },     [ncclUint32] = { "uint32", 4 },
    [ncclInt64] = { "int64", 8 },     [ncclUint64] = { "uint64", 8 },
    [ncclFloat16] = { "float16", 2 }, [ncclFloat32] = { "float32", 4 },
    [ncclFloat64] = { "float64", 8 }, [ncclBfloat16] = { "bfloat16", 2 },
};

enum {
    N_TYPES = sizeof(types) / sizeof(types[0])
};

size_t type_bytes(ncclDataType_t type)
{
    return type >= 0 && type < N_TYPES ? types[type].bytes : 0;
}

const char *type_name(ncclDataType_t type)
{
    return type >= 0 && type < N_TYPES ? types[type].name : "no type";
}

const char *op_name(ncclRedOp_t op)
{
    static const char *const names[] = { "sum", "prod", "max", "min", "avg" };

    return op >= 0 && op < ncclNumOps ? names[op] : NULL;
}

/* ---- 16-bit floats ------------------------------------------------------- */

static uint32_t bits_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static float float_of(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

static float from_bfloat16(uint16_t x)
{
    return float_of((uint32_t)x << 16);
}

/* To the nearest, ties to even. */
static uint16_t to_bfloat16(float x)
{
    const uint32_t bits = bits_of(x);

    if (isnan(x)) {
        return 0x7FFF;
    }
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static float from_float16(uint16_t x)
{
    const uint32_t sign = (uint32_t)(x & 0x8000) << 16;
    const uint32_t exponent = x >> 10 & 0x1F, fraction = x & 0x3FF;

    if (exponent == 0x1F) {
        return float_of(sign | 0x7F800000 | fraction << 13);
    }
    if (exponent == 0) {
        const float small = (float)fraction / 16777216.0f; /* 2^24 */

        return sign != 0 ? -small : small;
    }
    return float_of(sign | (exponent + 112) << 23 | fraction << 13);
}

/* To the nearest, ties to even. */
static uint16_t to_float16(float x)
{
    const uint16_t sign = (uint16_t)(bits_of(x) >> 16 & 0x8000);
    const float size = fabsf(x);
    uint32_t bits;

    if (isnan(x)) {
        return 0x7FFF;
    }
    if (size >= 65520.0f) {
        return sign | 0x7C00;
    }
    if (size < 6.103515625e-05f) { /* 2^-14: what is smaller has no exponent */
        const float scaled = size * 16777216.0f; /* exact */
        uint16_t whole = (uint16_t)scaled;
        const float rest = scaled - (float)whole;

        whole += rest > 0.5f || (rest == 0.5f && (whole & 1) != 0);
        return sign | whole;
    }
    bits = bits_of(size);
    bits += 0xFFF + (bits >> 13 & 1);
    return (uint16_t)(sign | ((bits >> 13) - (112u << 10)));
}

/* ---- reductions ---------------------------------------------------------- */

#define ONE(op, a, b) \
    ((op) == ncclMax    ? ((b) > (a) ? (b) : (a)) \
     : (op) == ncclMin  ? ((b) < (a) ? (b) : (a)) \
     : (op) == ncclProd ? (a) * (b) \
                        : (a) + (b))

/* Integers wrap: WIDE is unsigned where sums and products could overflow. */
#define INTEGER(name, type, wide) \
    static void reduce_##name(ncclRedOp_t op, void *into, const void *from, \
                              size_t count) \
    { \
        type *a = into; \
        const type *b = from; \
        for (size_t i = 0; i < count; i++) { \
            if (op == ncclMax || op == ncclMin) { \
                a[i] = ONE(op, a[i], b[i]); \
            } else { \
                a[i] = (type)ONE(op, (wide)a[i], (wide)b[i]); \
            } \
        } \
    } \
    static void divide_##name(void *into, size_t count, int n) \
    { \
        type *a = into; \
        for (size_t i = 0; i < count; i++) { \
            a[i] = (type)(a[i] / (type)n); \
        } \
    }

#define FLOATING(name, type, load, store) \
    static void reduce_##name(ncclRedOp_t op, void *into, const void *from, \
                              size_t count) \
    { \
        type *a = into; \
        const type *b = from; \
        for (size_t i = 0; i < count; i++) { \
            a[i] = store(ONE(op, load(a[i]), load(b[i]))); \
        } \
    } \
    static void divide_##name(void *into, size_t count, int n) \
    { \
        type *a = into; \
        for (size_t i = 0; i < count; i++) { \
            a[i] = store(load(a[i]) / n); \
        } \
    }

#define ITSELF(x) (x)

INTEGER(int8, int8_t, uint32_t)
INTEGER(uint8, uint8_t, uint32_t)
INTEGER(int32, int32_t, uint32_t)
INTEGER(uint32, uint32_t, uint32_t)
INTEGER(int64, int64_t, uint64_t)
INTEGER(uint64, uint64_t, uint64_t)
FLOATING(float16, uint16_t, from_float16, to_float16)
FLOATING(float32, float, ITSELF, ITSELF)
FLOATING(float64, double, ITSELF, ITSELF)
FLOATING(bfloat16, uint16_t, from_bfloat16, to_bfloat16)

typedef void reduce_fn(ncclRedOp_t op, void *into, const void *from,
                       size_t count);
typedef void divide_fn(void *into, size_t count, int n);

static reduce_fn *const reduces[N_TYPES] = {
    [ncclInt8] = reduce_int8,       [ncclUint8] = reduce_uint8,
    [ncclInt32] = reduce_int32,     [ncclUint32] = reduce_uint32,
    [ncclInt64] = reduce_int64,     [ncclUint64] = reduce_uint64,
    [ncclFloat16] = reduce_float16, [ncclFloat32] = reduce_float32,
    [ncclFloat64] = reduce_float64, [ncclBfloat16] = reduce_bfloat16,
};

static divide_fn *const divides[N_TYPES] = {
    [ncclInt8] = divide_int8,       [ncclUint8] = divide_uint8,
    [ncclInt32] = divide_int32,     [ncclUint32] = divide_uint32,
    [ncclInt64] = divide_int64,     [ncclUint64] = divide_uint64,
    [ncclFloat16] = divide_float16, [ncclFloat32] = divide_float32,
    [ncclFloat64] = divide_float64, [ncclBfloat16] = divide_bfloat16,
};

void type_reduce(ncclDataType_t type, ncclRedOp_t op, void *into,
                 const void *from, size_t count)
{
    reduces[type](op, into, from, count);
}

void type_divide(ncclDataType_t type, void *into, size_t count, int n)
{
    divides[type](into, count, n);
}
