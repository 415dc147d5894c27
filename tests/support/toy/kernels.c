/*
 * kernels.c - two kernels: d = f * a + b (+ k), and d += a + b.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/toy/shared.h"

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

const void *toy_kernels(bool soft)
{
    return soft ? (const void *)&image : ptx;
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
