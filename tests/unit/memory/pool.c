/*
 * A pool gives memory by functions of its own, takes it back while others use
 * the device, and has it at the same addresses afterwards.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include <graphhooks/pool.h>

#include "tap/tap.h"
#include "tests/unit/memory/soft.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB ((int64_t)1 << 20)
#define MOST 16

static gh_error err;

static const char *driver(void)
{
    const char *path = getenv("GRAPHHOOKS_SOFTCUDA");

    return path != NULL ? path : ".libs/libgraphhooks-softcuda.so";
}

/* In whole MiB: what a device has for itself is less. */
static long long mapped(void)
{
    static uint64_t before = UINT64_MAX;

    if (before == UINT64_MAX) {
        before = soft_now().device_bytes;
    }
    return (long long)(soft_now().device_bytes - before) / MIB * MIB;
}

static gh_pool_desc desc_of(void)
{
    return (gh_pool_desc){ .struct_size = sizeof(gh_pool_desc),
                           .driver = driver() };
}

static gh_pool *pool_of(gh_pool_functions *functions)
{
    const gh_pool_desc desc = desc_of();
    gh_pool *pool = NULL;

    is_status(gh_pool_create(&desc, &pool, &err), GH_OK, &err,
              "a pool is made");
    *functions = (gh_pool_functions){ .struct_size = sizeof(*functions) };
    is_status(gh_pool_get_functions(pool, functions, &err), GH_OK, &err,
              "and has functions");
    return pool;
}

static gh_pool_stats stats_of(const gh_pool *pool)
{
    gh_pool_stats stats = { .struct_size = sizeof(stats) };

    gh_pool_get_stats(pool, &stats, NULL);
    return stats;
}

static void test_a_life(void)
{
    gh_pool_functions f;
    gh_pool *pool = pool_of(&f);
    void *a = f.alloc(2 * MIB, 0, NULL), *b = f.alloc(20 * MIB, 0, NULL);

    ok(a != NULL && b != NULL && a != b, "it gives memory");
    is_int((long long)stats_of(pool).bytes, 22 * MIB,
           "which is as large as was asked for");
    is_int(mapped(), 22 * MIB, "on the device too");
    is_status(gh_pool_suspend(pool, &err), GH_OK, &err, "it is suspended");
    is_int(mapped(), 0, "and the memory is back");
    is_int((long long)stats_of(pool).given, 22 * MIB, "as it says");
    is_int(stats_of(pool).suspended, 1, "and that it is suspended");
    ok(f.alloc(2 * MIB, 0, NULL) == NULL, "it gives none then");
    f.free(a, 2 * MIB, 0, NULL);
    is_status(gh_pool_suspend(pool, &err), GH_ERR_STATE, &err,
              "a suspended pool is not suspended again");
    ok(strstr(err.text, "call gh_pool_resume first") != NULL,
       "and the text says so");
    is_status(gh_pool_resume(pool, &err), GH_OK, &err, "it is resumed");
    is_int(mapped(), 20 * MIB, "with what was not freed meanwhile");
    is_status(gh_pool_resume(pool, &err), GH_ERR_STATE, &err,
              "once, as a pool that is not suspended is not resumed");
    f.free(b, 20 * MIB, 0, NULL);
    is_int(mapped(), 0, "what is freed goes back");
    gh_pool_destroy(pool);
}

static void test_memory_that_outlives_it(void)
{
    gh_pool_functions f, other;
    gh_pool *pool = pool_of(&f);
    void *a = f.alloc(MIB, 0, NULL);

    is_int(mapped(), 2 * MIB, "whole pieces are mapped");
    gh_pool_destroy(pool);
    is_int(mapped(), 2 * MIB, "what is not freed is there after the pool");
    pool = pool_of(&other);
    ok(other.alloc != f.alloc, "whose functions are nobody else's");
    gh_pool_destroy(pool);
    f.free(a, MIB, 0, NULL);
    is_int(mapped(), 0, "and goes by the function that had given it");
    pool = pool_of(&other);
    ok(other.alloc == f.alloc, "which then is another pool's");
    a = other.alloc(MIB, 0, NULL);
    gh_pool_suspend(pool, NULL);
    gh_pool_destroy(pool);
    other.free(a, MIB, 0, NULL);
    is_int(mapped(), 0, "a suspended one is destroyed too");
}

static void test_device_memory_that_fails(void)
{
    gh_pool_functions f;
    gh_pool *pool = pool_of(&f);
    void *a = f.alloc(2 * MIB, 0, NULL), *b = f.alloc(4 * MIB, 0, NULL);

    gh_pool_suspend(pool, NULL);
    soft_configure("FAIL=cuMemCreate:2:2");
    is_status(gh_pool_resume(pool, &err), GH_ERR_NO_MEMORY, &err,
              "without memory it is not resumed");
    is_int(mapped(), 0, "and has taken none");
    is_int(stats_of(pool).suspended, 1, "it is suspended still");
    soft_configure("FAIL=");
    is_status(gh_pool_resume(pool, &err), GH_OK, &err, "and can be resumed");
    soft_configure("FAIL=cuMemCreate:1:2");
    ok(f.alloc(2 * MIB, 0, NULL) == NULL, "who finds no memory gets none");
    soft_configure("FAIL=");
    soft_configure("FAIL=cuMemUnmap:2:1");
    is_status(gh_pool_suspend(pool, &err), GH_ERR_DEVICE, &err,
              "what cannot be unmapped is not suspended");
    soft_configure("FAIL=");
    is_int(mapped(), 6 * MIB, "and has its memory");
    f.free(a, 2 * MIB, 0, NULL);
    f.free(b, 4 * MIB, 0, NULL);
    gh_pool_destroy(pool);
}

/* Work that nobody has waited for. */
static void use(void *address, void *stream)
{
    for (int i = 0; i < 64; i++) {
        gh_device_zero(soft_devices[0], address, 4096, stream, NULL);
    }
}

static void test_work_ends_before(void)
{
    gh_pool_functions f;
    gh_pool *pool = pool_of(&f);
    void *a = f.alloc(2 * MIB, 0, NULL), *stream = NULL;

    soft_configure("SEED=3");
    gh_device_stream_create(soft_devices[0], false, &stream, NULL);
    use(a, stream);
    gh_pool_suspend(pool, NULL);
    is_int(soft_now().pending, 0, "nothing uses what is given back");
    gh_pool_resume(pool, NULL);
    use(a, stream);
    f.free(a, 2 * MIB, 0, NULL);
    is_int(soft_now().pending, 0, "or freed");
    gh_device_stream_destroy(soft_devices[0], stream);
    gh_pool_destroy(pool);
    soft_configure("SEED=0");
}

static void test_many(void)
{
    const gh_pool_desc desc = desc_of();
    gh_pool *pools[MOST], *more = NULL;
    int made = 0;

    while (made < MOST && gh_pool_create(&desc, &pools[made], &err) == GH_OK) {
        made++;
    }
    is_int(made, MOST, "there are 16 pools");
    is_status(gh_pool_create(&desc, &more, &err), GH_ERR_BUSY, &err,
              "and no more");
    ok(strstr(err.text, "destroy one") != NULL, "the text has the remedy");
    for (int i = 0; i < made; i++) {
        gh_pool_destroy(pools[i]);
    }
    is_status(gh_pool_create(&desc, &more, &err), GH_OK, &err,
              "until one is destroyed");
    gh_pool_destroy(more);
}

static void test_refusals(void)
{
    gh_pool_desc desc = desc_of();
    gh_pool_stats stats = { .struct_size = 4 };
    gh_pool *pool = NULL;

    is_status(gh_pool_create(NULL, &pool, &err), GH_ERR_INVALID, &err,
              "a pool needs a description");
    is_status(gh_pool_create(&desc, NULL, &err), GH_ERR_INVALID, &err,
              "and somebody who wants it");
    desc.flags = 1;
    is_status(gh_pool_create(&desc, &pool, &err), GH_ERR_INVALID, &err,
              "it has no flags");
    desc = desc_of();
    desc.driver = "/nowhere";
    is_status(gh_pool_create(&desc, &pool, &err), GH_ERR_NO_DRIVER, &err,
              "nor is there one without a driver");
    soft_configure("FAIL=cuMemGetAllocationGranularity:1:1");
    desc = desc_of();
    is_status(gh_pool_create(&desc, &pool, &err), GH_ERR_DEVICE, &err,
              "or on a device that does not say what it maps");
    soft_configure("FAIL=");
    is_status(gh_pool_suspend(NULL, &err), GH_ERR_INVALID, &err,
              "NULL is not suspended");
    is_status(gh_pool_resume(NULL, &err), GH_ERR_INVALID, &err, "nor resumed");
    is_status(gh_pool_get_functions(NULL, NULL, &err), GH_ERR_INVALID, &err,
              "it has no functions");
    is_status(gh_pool_get_stats(NULL, NULL, &err), GH_ERR_INVALID, &err,
              "and no counters");
    is_status(gh_pool_create(&desc, &pool, &err), GH_OK, &err,
              "the description is right");
    is_status(gh_pool_get_stats(pool, &stats, &err), GH_ERR_ABI, &err,
              "a struct has its size");
    is_status(gh_pool_get_stats(pool, NULL, &err), GH_ERR_INVALID, &err,
              "and is there");
    is_status(gh_pool_get_functions(pool, NULL, &err), GH_ERR_INVALID, &err,
              "as is that of the functions");
    gh_pool_destroy(pool);
    gh_pool_destroy(NULL);
}

static void *capture_begin(bool blocking)
{
    void *stream = NULL;

    gh_device_stream_create(soft_devices[0], blocking, &stream, NULL);
    is_status(gh_device_capture_begin(soft_devices[0], stream, &err), GH_OK,
              &err, "a stream is captured");
    return stream;
}

static void capture_end(void *stream)
{
    gh_device_capture_leave(soft_devices[0], stream);
    gh_device_stream_destroy(soft_devices[0], stream);
}

static bool lasts(void *stream)
{
    return !gh_device_capture_is_lost(soft_devices[0], stream);
}

/* The first line that is logged while a block is freed. */
static const char *said(const gh_pool_functions *f, void *address,
                        int64_t bytes)
{
    static char line[512];
    FILE *file = tmpfile();
    const int before = dup(STDERR_FILENO);

    line[0] = '\0';
    fflush(stderr);
    dup2(fileno(file), STDERR_FILENO);
    f->free(address, bytes, 0, NULL);
    fflush(stderr);
    dup2(before, STDERR_FILENO);
    close(before);
    rewind(file);
    if (fgets(line, sizeof(line), file) == NULL) {
        line[0] = '\0';
    }
    fclose(file);
    return line;
}

/* Work that may still use it, of another stream than the captured one. */
static void test_what_nobody_can_wait_for(bool blocking)
{
    gh_pool_functions f, other;
    gh_pool *pool = pool_of(&f), *second = pool_of(&other);
    void *a = f.alloc(2 * MIB, 0, NULL), *b = f.alloc(2 * MIB, 0, NULL);
    void *c = other.alloc(2 * MIB, 0, NULL), *d;
    void *stream = capture_begin(blocking);

    f.free(a, 2 * MIB, 0, NULL);
    is_int(mapped(), 6 * MIB, "what is freed in a capture keeps its memory");
    ok(lasts(stream) || !blocking,
       "whose stream stays captured if it can be known");
    ok(strstr(said(&f, a, 2 * MIB), "the pool has nothing there") != NULL,
       "it is not freed twice");
    d = f.alloc(2 * MIB, 0, NULL);
    ok(d != a, "and nobody else gets it");
    capture_end(stream);
    other.free(c, 2 * MIB, 0, NULL);
    is_int(mapped(), 4 * MIB, "until a free after it, of any pool");

    stream = capture_begin(blocking);
    f.free(b, 2 * MIB, 0, NULL);
    capture_end(stream);
    is_int(mapped(), 4 * MIB, "another one stays");
    is_status(gh_pool_suspend(second, &err), GH_OK, &err,
              "the other pool is suspended");
    is_int(mapped(), 2 * MIB, "which gives it back too");
    gh_pool_destroy(second);
    f.free(d, 2 * MIB, 0, NULL);
    is_int(mapped(), 0, "and the last one leaves nothing");
    gh_pool_destroy(pool);
}

/* Its place is free once its last block has gone. */
static void test_a_pool_that_ends_in_a_capture(void)
{
    gh_pool_functions f, other;
    gh_pool *pool = pool_of(&f), *second = pool_of(&other);
    void *a = f.alloc(2 * MIB, 0, NULL), *c = other.alloc(MIB, 0, NULL);
    void *stream = capture_begin(true);

    gh_pool_destroy(pool);
    f.free(a, 2 * MIB, 0, NULL);
    capture_end(stream);
    is_int(mapped(), 4 * MIB, "a block outlives its pool");
    other.free(c, MIB, 0, NULL);
    is_int(mapped(), 0, "and goes with one of another pool");
    gh_pool_destroy(second);
}

static void test_a_capture_is_not_suspended(bool blocking)
{
    gh_pool_functions f;
    gh_pool *pool = pool_of(&f);
    void *a = f.alloc(2 * MIB, 0, NULL);
    void *stream = capture_begin(blocking);

    is_status(gh_pool_suspend(pool, &err), GH_ERR_STATE, &err,
              "a pool is not suspended in a capture");
    ok(strstr(err.text, "gh_pool_suspend: the host is capturing a stream: end "
                        "the capture first") != NULL,
       "the text has the remedy");
    ok(lasts(stream) || !blocking, "the capture lasts if it can be known");
    is_int(stats_of(pool).suspended, 0, "nor suspended");
    capture_end(stream);
    is_int(mapped(), 2 * MIB, "and has its memory");
    f.free(a, 2 * MIB, 0, NULL);
    gh_pool_destroy(pool);
}

static void refuses(const char *what, int64_t from, int64_t bytes)
{
    gh_pool_functions f;
    gh_pool *pool = pool_of(&f);
    char *a = f.alloc(4 * MIB, 0, NULL), *b = f.alloc(2 * MIB, 0, NULL);
    char has[64], name[32];
    const char *line = said(&f, a + from, bytes);

    snprintf(has, sizeof(has), "the pool has 4194304 bytes at %p there", a);
    snprintf(name, sizeof(name), "free: %p with", a + from);
    is_int(mapped(), 6 * MIB, "%s frees nothing", what);
    ok(strstr(line, has) != NULL && strstr(line, name) != NULL &&
           strstr(line, "free each block once") != NULL,
       "and the log says what there is: %s", line);
    ok(*said(&f, a + from, bytes) == '\0', "once");
    f.free(a, 4 * MIB, 0, NULL);
    is_int(mapped(), 2 * MIB, "who frees it rightly then gives it all back");
    f.free(b, 2 * MIB, 0, NULL);
    is_int(mapped(), 0, "and the next one");
    gh_pool_destroy(pool);
}

static void test_what_is_not_the_pools(void)
{
    gh_pool_functions f;
    gh_pool *pool = pool_of(&f);
    char *a = f.alloc(5, 0, NULL), *b = f.alloc(5, 0, NULL);

    ok((uintptr_t)a % (2 * MIB) == 0 && (uintptr_t)b % (2 * MIB) == 0,
       "each block is aligned as the device maps");
    is_int(mapped(), 4 * MIB, "and has whole pieces of its own");
    f.free(a, 5, 0, NULL);
    f.free(NULL, 5, 0, NULL);
    ok(strstr(said(&f, a, 5), "the pool has nothing there") != NULL,
       "who frees twice is told");
    is_int(mapped(), 2 * MIB, "and frees nothing");
    f.free(b, 5, 0, NULL);
    gh_pool_destroy(pool);

    refuses("part of a block", 0, 1);
    refuses("more than a block", 0, 6 * MIB);
    refuses("a block of no bytes", 0, 0);
    refuses("one of less than none", 0, -1);
    refuses("an address within a block", 512, 4 * MIB);
    refuses("the second half of a block", 2 * MIB, 2 * MIB);
}

static void tests(void)
{
    mapped();
    test_a_life();
    test_memory_that_outlives_it();
    test_device_memory_that_fails();
    test_work_ends_before();
    test_what_nobody_can_wait_for(true);
    test_what_nobody_can_wait_for(false);
    test_a_pool_that_ends_in_a_capture();
    test_a_capture_is_not_suspended(true);
    test_a_capture_is_not_suspended(false);
    test_what_is_not_the_pools();
    test_many();
    test_refusals();
}

int main(void)
{
    return soft_run(tests);
}
