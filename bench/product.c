/*
 * product.c - see product.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "bench/product.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- cuBLAS -------------------------------------------------------------- */

/* Values of cuBLAS's header, which need not be installed. */
enum { BLAS_N = 0, BLAS_T = 1, BLAS_BF16 = 14, BLAS_FLOAT = 68 };
#define BLAS_WORKSPACE (64u << 20)

struct blas {
    void *handle;
    void *workspace;
    CUstream stream;
    int (*set_stream)(void *handle, CUstream stream);
    int (*set_workspace)(void *handle, void *address, size_t bytes);
    int (*gemm)(void *handle, int op_a, int op_b, int m, int n, int k,
                const void *alpha, const void *a, int type_a, int lda,
                const void *b, int type_b, int ldb, const void *beta, void *c,
                int type_c, int ldc, int compute, int algorithm);
};

static void entry(void *library, const char *name, void *entry_p)
{
    void *symbol = dlsym(library, name);

    if (symbol == NULL) {
        bench_die("%s", dlerror());
    }
    memcpy(entry_p, &symbol, sizeof(symbol));
}

static void *find_blas(const char *path)
{
    static const char *const names[] = { "libcublas.so.13", "libcublas.so.12",
                                         "libcublas.so" };
    void *library = NULL;

    if (path != NULL) {
        library = path[0] == '\0' ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library == NULL && path[0] != '\0') {
            bench_die("%s", dlerror());
        }
        return library;
    }
    for (size_t i = 0; i < 3 && library == NULL; i++) {
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    }
    return library;
}

static struct blas *open_blas(const struct bench *bench, void *library)
{
    struct blas *blas = calloc(1, sizeof(*blas));
    int (*create)(void **handle_p);
    CUdeviceptr workspace;

    if (blas == NULL) {
        bench_die("no memory");
    }
    entry(library, "cublasCreate_v2", &create);
    entry(library, "cublasSetStream_v2", &blas->set_stream);
    entry(library, "cublasSetWorkspace_v2", &blas->set_workspace);
    entry(library, "cublasGemmEx", &blas->gemm);
    if (create(&blas->handle) != 0) {
        bench_die("cublasCreate failed");
    }
    NEED(bench, cuMemAlloc, (&workspace, BLAS_WORKSPACE));
    blas->workspace = (void *)(uintptr_t)workspace;
    return blas;
}

/* Sets the stream.  That also resets the workspace, so it is given again. */
static void use_stream(struct blas *blas, CUstream stream)
{
    if (blas->stream == stream) {
        return;
    }
    if (blas->set_stream(blas->handle, stream) != 0 ||
        blas->set_workspace(blas->handle, blas->workspace, BLAS_WORKSPACE) !=
            0) {
        bench_die("cuBLAS does not take the stream");
    }
    blas->stream = stream;
}

/* cuBLAS stores matrices by columns, so C' = B' A' is computed. */
static void multiply_blas(const struct products *p, enum gemm_form form,
                          const void *a, const void *b, void *c, bool add,
                          CUstream stream)
{
    const float alpha = 1.0f / sqrtf((float)p->n), beta = add ? 1.0f : 0.0f;
    const int n = p->n;
    int code;

    use_stream(p->blas, stream);
    code = p->blas->gemm(p->blas->handle, form == GEMM_NT ? BLAS_T : BLAS_N,
                         form == GEMM_TN ? BLAS_T : BLAS_N, n, n, n, &alpha, b,
                         BLAS_BF16, n, a, BLAS_BF16, n, &beta, c, BLAS_BF16, n,
                         BLAS_FLOAT, -1);
    if (code != 0) {
        bench_die("cublasGemmEx: status %d", code);
    }
}

/* ---- the engine's kernels ------------------------------------------------ */

static void multiply_engine(const struct products *p, enum gemm_form form,
                            const void *a, const void *b, void *c, bool add,
                            CUstream stream)
{
    const struct queue queue = { p->engine, stream };
    const int n = p->n;

    gemm(&queue, form,
         (struct gemm_args){ .a = a,
                             .b = b,
                             .c = c,
                             .add = add ? c : NULL,
                             .m = n,
                             .n = n,
                             .k = n,
                             .lda = n,
                             .ldb = n,
                             .ldc = n,
                             .alpha = 1.0f / sqrtf((float)n) });
    if (p->engine->code != CUDA_SUCCESS) {
        bench_die("%s", p->engine->error);
    }
}

/* ---- either -------------------------------------------------------------- */

void product(const struct products *p, enum gemm_form form, const void *a,
             const void *b, void *c, bool add, CUstream stream)
{
    if (p->blas != NULL) {
        multiply_blas(p, form, a, b, c, add, stream);
    } else {
        multiply_engine(p, form, a, b, c, add, stream);
    }
}

void products_fill(const struct products *p, void *host, size_t bytes,
                   uint32_t seed)
{
    uint32_t state = 2 * seed + 1;

    for (size_t i = 0; i < bytes / p->element; i++) {
        float value;
        uint32_t bits;

        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        value = (float)(int32_t)state * (1.0f / 2147483648.0f);
        memcpy(&bits, &value, sizeof(bits));
        if (p->element == 2) {
            ((uint16_t *)host)[i] = (uint16_t)(bits >> 16);
        } else {
            ((float *)host)[i] = value;
        }
    }
}

void products_open(struct products *p, const struct bench *bench,
                   const char *path)
{
    void *library = bench->options.soft ? NULL : find_blas(path);

    memset(p, 0, sizeof(*p));
    p->bench = bench;
    if (library != NULL) {
        p->by = "cublas";
        p->n = 4096;
        p->element = 2;
        p->blas = open_blas(bench, library);
    } else {
        p->by = "engine";
        p->n = bench->options.soft ? 8 : 2048;
        p->element = sizeof(float);
        p->engine = calloc(1, sizeof(*p->engine));
        if (p->engine == NULL) {
            bench_die("no memory");
        }
        if (device_open(p->engine, bench->driver_path,
                        (int)bench->options.rank) != 0) {
            bench_die("%s", p->engine->error);
        }
    }
    p->bytes = (size_t)p->n * (size_t)p->n * p->element;
}

void products_close(struct products *p)
{
    if (p->blas != NULL) {
        NEED(p->bench, cuMemFree,
             ((CUdeviceptr)(uintptr_t)p->blas->workspace));
        free(p->blas);
    }
    if (p->engine != NULL) {
        device_close(p->engine);
        NEED(p->bench, cuCtxSetCurrent, (p->bench->ctx));
        free(p->engine);
    }
}
