/*
 * Work that a pass leaves on the legacy stream is refused while the pass is
 * recorded, or found by GRAPHHOOKS_CHECK; it is never missing unseen.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/by_hand.h"
#include "tap/tap.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#define FORWARD GH_FORWARD
#define BACKWARD GH_BACKWARD

/* What the host does on the legacy stream in the middle of a forward pass. */
enum slip { SLIP_KERNEL, SLIP_COPY, SLIP_CUBLAS };

static const char *const slip_names[] = { "a kernel", "a synchronous copy",
                                          "a cuBLAS handle" };

static gh_buffer between, out;

/* ---- cuBLAS, where there is one ---------------------------------------- */

static struct {
    int (*copy)(void *handle, int n, const float *x, int incx, float *y,
                int incy);
    void *handle;
} blas;

static bool find_blas(void)
{
    static const char *const names[] = { "libcublas.so.13", "libcublas.so.12",
                                         "libcublas.so" };
    int (*create)(void **handle_p);
    void *library = NULL, *entry;

    for (size_t i = 0; i < 3 && library == NULL && !toy.soft; i++) {
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    }
    if (library == NULL) {
        return false;
    }
    entry = dlsym(library, "cublasCreate_v2");
    memcpy(&create, &entry, sizeof(create));
    entry = dlsym(library, "cublasScopy_v2");
    memcpy(&blas.copy, &entry, sizeof(blas.copy));
    return create(&blas.handle) == 0;
}

/* ---- a host on the legacy stream --------------------------------------- */

/* Writes the value to all of `between`; 0 when it was not refused. */
static int slip_once(enum slip slip, uint32_t value)
{
    const CUdeviceptr at = (uintptr_t)between.address;
    uint32_t values[64];

    for (uint32_t i = 0; i < 64; i++) {
        values[i] = value;
    }
    if (slip == SLIP_KERNEL) {
        return toy.drv.cuMemsetD32Async(at, value, 64, NULL);
    }
    if (slip == SLIP_COPY) {
        return toy.drv.cuMemcpyHtoD(at, values, sizeof(values));
    }
    return blas.copy(blas.handle, 64, (const void *)(uintptr_t)(at + 1024), 1,
                     (void *)(uintptr_t)at, 1);
}

/* A forward and a backward; *refused_p: what the slip was answered. */
static gh_decision microbatch(enum slip slip, uint32_t m, uint32_t value,
                              int *refused_p)
{
    gh_pass pass = a_pass(0, FORWARD, m, NULL, &no_io);
    gh_decision d = { .struct_size = sizeof(d) };
    int code;

    *refused_p = 0;
    toy.drv.cuMemsetD32Async((uintptr_t)between.address + 1024, value, 64,
                             NULL); /* what cuBLAS copies */
    do {
        gh_layer_enter(toy.session, &pass, &d, &err);
        if (d.action != GH_ACTION_REPLAYED) {
            code = slip_once(slip, value);
            *refused_p = code != 0 ? code : *refused_p;
            toy.drv.cuMemcpyDtoDAsync((uintptr_t)out.address,
                                      (uintptr_t)between.address, 256,
                                      d.stream);
        }
        pass.outputs = &out;
        pass.n_outputs = 1;
    } while (gh_layer_exit(toy.session, &pass, &err) == GH_RERUN);
    run(0, BACKWARD, m, NULL);
    return d;
}

static bool start_host(uint32_t flags, const char *const *environment)
{
    if (!start((struct toy_options){ .layers = 1,
                                     .legacy = true,
                                     .flags = flags,
                                     .environment = environment })) {
        return false;
    }
    out = buffer(1, 256, 0);
    between = buffer(2, 256, 0);
    return true;
}

/* ---- what comes of it -------------------------------------------------- */

static void test_it_is_refused(enum slip slip)
{
    const char *name = slip_names[slip];
    int refused;

    if (!start_host(0, quiet)) {
        return;
    }
    microbatch(slip, 0, 7, &refused);
    ok(slip == SLIP_CUBLAS ? refused == 13 || refused == 14 : refused == 906,
       "%s on the legacy stream is refused in a recording: %d", name, refused);
    is_int(read_at(&out), 7, "%s: and the pass runs again, right", name);
    for (uint32_t m = 1; m <= 2; m++) {
        is_int(microbatch(slip, m, 7 + m, &refused).reason,
               m == 1 ? GH_REASON_WARMUP : GH_REASON_CAPTURE,
               "%s: eagerly %s", name,
               m == 1 ? "in this step" : "once it is refused in the next too");
        is_int(refused != 0, m == 2, "%s: where nothing is refused", name);
        is_int(read_at(&out), 7 + m, "%s: and every number is right", name);
        gh_iteration_end(toy.session, NULL);
    }
    toy_close(&toy);
}

static void test_check_finds_it(enum slip slip)
{
    const char *name = slip_names[slip];
    int refused;

    if (!start_host(GH_SESSION_LEGACY_THREADS, checked)) {
        return;
    }
    microbatch(slip, 0, 7, &refused);
    is_int(refused, 0, "%s is not refused where other threads use the stream",
           name);
    is_int(read_at(&out), 7, "%s: the first result is the host's own", name);
    microbatch(slip, 1, 8, &refused);
    is_int((long)toy_stats(&toy).check_failures, 1,
           "%s: GRAPHHOOKS_CHECK finds that the graph lacks it", name);
    is_int(read_at(&out), 8, "%s: and the host's result stands", name);
    toy_close(&toy);
}

static void *use_legacy(void *user)
{
    CUresult *result = user;

    toy.drv.cuCtxSetCurrent(toy.ctx);
    *result = toy.drv.cuMemsetD32Async((uintptr_t)between.address, 1, 64, NULL);
    return NULL;
}

/* Another thread on the legacy stream, in the middle of a recording. */
static CUresult beside_a_recording(void)
{
    gh_pass pass = a_pass(0, FORWARD, 0, NULL, &no_io);
    gh_decision d = { .struct_size = sizeof(d) };
    CUresult result = CUDA_SUCCESS;
    pthread_t thread;

    do {
        gh_layer_enter(toy.session, &pass, &d, &err);
        toy.drv.cuMemsetD32Async((uintptr_t)out.address, 7, 64, d.stream);
        if (d.action == GH_ACTION_RECORD) {
            pthread_create(&thread, NULL, use_legacy, &result);
            pthread_join(thread, NULL);
        }
        pass.outputs = &out;
        pass.n_outputs = 1;
    } while (gh_layer_exit(toy.session, &pass, &err) == GH_RERUN);
    run(0, BACKWARD, 0, NULL);
    return result;
}

static void test_other_threads(void)
{
    if (!start_host(0, quiet)) {
        return;
    }
    is_int(beside_a_recording(), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
           "another thread's work on the legacy stream is refused as well");
    is_int(read_at(&out), 7, "and the pass runs again, right");
    toy_close(&toy);

    if (!start_host(GH_SESSION_LEGACY_THREADS, quiet)) {
        return;
    }
    is_int(beside_a_recording(), CUDA_SUCCESS,
           "with GH_SESSION_LEGACY_THREADS it is not");
    is_int((long)toy_stats(&toy).recordings, 2, "and the pass is recorded");
    is_int(read_at(&out), 7, "and right");
    toy_close(&toy);
}

int main(void)
{
    const char *reason;

    if (!toy_probe(&toy, &reason)) {
        return skip_all("%s", reason);
    }
    for (enum slip slip = SLIP_KERNEL; slip <= SLIP_COPY; slip++) {
        test_it_is_refused(slip);
        test_check_finds_it(slip);
    }
    start_host(0, quiet); /* cuBLAS wants a context */
    if (find_blas()) {
        toy_detach(&toy);
        test_it_is_refused(SLIP_CUBLAS);
        test_check_finds_it(SLIP_CUBLAS);
    } else {
        toy_close(&toy);
        skip(9, "no cuBLAS here");
    }
    test_other_threads();
    return done_testing();
}
