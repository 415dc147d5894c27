/*
 * Memory that is held is given out again to who wants as much, once nothing
 * uses it, and is freed at the end.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "memory/memory.h"
#include "memory/scratch.h"
#include "support/host_memory.h"
#include "tap/tap.h"
#include "tests/unit/memory/soft.h"

static struct gh_streams streams;
static const gh_host_services none = { .struct_size = sizeof(none) };

/* Besides what the device itself has. */
static long long allocations(void)
{
    static uint64_t before = UINT64_MAX;

    if (before == UINT64_MAX) {
        before = soft_now().device_allocations;
    }
    return (long long)(soft_now().device_allocations - before);
}

static struct gh_memory begin(bool holds)
{
    return (struct gh_memory){ .streams = &streams,
                               .host = &none,
                               .holds = holds };
}

static void *take(struct gh_memory *memory, uint64_t bytes)
{
    void *address = NULL;

    gh_memory_alloc(memory, bytes, &address, NULL);
    return address;
}

static void test_freed(void)
{
    struct gh_memory memory = begin(false);
    void *a = take(&memory, 512);

    gh_memory_free(&memory, a, 512);
    is_int(allocations(), 0, "one rank in a process frees at once");
    is_int((long long)memory.bytes, 0, "and counts nothing");
}

static void test_held(void)
{
    struct gh_memory memory = begin(true);
    void *a = take(&memory, 512), *b = take(&memory, 512), *c, *d;

    gh_memory_free(&memory, a, 512);
    gh_memory_free(&memory, NULL, 512);
    is_int(allocations(), 2, "threads hold what they free");
    is_int((long long)memory.bytes, 1024, "and count it");
    c = take(&memory, 256);
    ok(c != a, "another size is other memory");
    ok(take(&memory, 512) == a, "the same size is the same memory");
    is_int((long long)memory.bytes, 1280, "which is counted once");
    d = take(&memory, 512);
    ok(d != a && d != b, "and given out once");
    gh_memory_free(&memory, a, 512);
    gh_memory_free(&memory, b, 512);
    gh_memory_close(&memory);
    is_int(allocations(), 2, "at the end what is held is freed");
    is_int((long long)memory.bytes, 768, "and what was not given back is left");
    memory.holds = false;
    gh_memory_free(&memory, c, 256);
    gh_memory_free(&memory, d, 512);
}

/* Where nothing can be written down, the driver's own wait is the remedy. */
static void test_host_memory_that_fails(void)
{
    struct gh_memory memory = begin(true);
    void *a = take(&memory, 512);

    host_memory_refuse(1);
    gh_memory_free(&memory, a, 512);
    host_memory_refuse(0);
    is_int(allocations(), 0, "what cannot be held is freed at once");
    is_int((long long)memory.bytes, 0, "and counted no more");
    gh_memory_close(&memory);
}

static void test_another_device(void)
{
    struct gh_memory memory = begin(false), other = begin(false);
    struct gh_streams far;
    void *a = take(&memory, 512), *b = take(&memory, 512);

    gh_streams_init(&far, soft_devices[1]);
    other.streams = &far;
    gh_memory_open(&memory);
    gh_memory_open(&other);
    gh_memory_free(&memory, a, 512);
    is_int(allocations(), 2, "beside a session of another device all is held");
    gh_memory_close(&other);
    gh_memory_free(&memory, b, 512);
    is_int(allocations(), 1, "when that is closed, no more is");
    gh_memory_close(&memory);
    is_int(allocations(), 0, "and what was held goes at the end");
    gh_streams_free(&far);
}

static gh_status lend(void *user, uint64_t bytes, void **address_p)
{
    (void)user;
    (void)bytes;
    *address_p = &soft_devices[0];
    return GH_OK;
}

static void get_back(void *user, void *address, uint64_t bytes)
{
    (void)user;
    (void)address;
    (void)bytes;
}

static void test_a_host_that_lends(void)
{
    static const gh_host_services lends = { .struct_size = sizeof(lends),
                                            .device_alloc = lend,
                                            .device_free = get_back };
    struct gh_memory memory = begin(true);
    struct gh_scratch scratch = { 0 };

    memory.host = &lends;
    gh_scratch_reserve(&scratch, &memory, 512, NULL, NULL);
    gh_scratch_reserve(&scratch, &memory, 1024, NULL, NULL);
    ok(take(&memory, 512) == (void *)&soft_devices[0],
       "a host that lends memory never gets the driver's");
    gh_memory_free(&memory, &soft_devices[0], 512);
    gh_scratch_free(&scratch, soft_devices[0]);
    gh_memory_close(&memory);
    is_int(allocations(), 0, "which goes back to the driver");
}

static gh_status lend_nothing(void *user, uint64_t bytes, void **address_p)
{
    (void)user;
    (void)bytes;
    *address_p = NULL;
    return GH_OK;
}

static void test_a_host_that_lends_nothing(void)
{
    static const gh_host_services lends = { .struct_size = sizeof(lends),
                                            .device_alloc = lend_nothing,
                                            .device_free = get_back };
    struct gh_memory memory = begin(false);
    void *address = NULL;
    gh_error err = { "" };

    memory.host = &lends;
    is_status(gh_memory_alloc(&memory, 512, &address, &err), GH_ERR_NO_MEMORY,
              &err, "a host that lends NULL has refused");
    is_int((long long)memory.bytes, 0, "which counts for nothing");
    gh_memory_close(&memory);
}

static void test_work_ends_before(void)
{
    struct gh_memory memory = begin(true);
    void *a = take(&memory, 4096), *stream = NULL;

    soft_configure("SEED=3");
    gh_device_stream_create(soft_devices[0], false, &stream, NULL);
    gh_streams_know(&streams, stream, NULL);
    for (int i = 0; i < 64; i++) {
        gh_device_zero(soft_devices[0], a, 4096, stream, NULL);
    }
    gh_memory_free(&memory, a, 4096);
    is_int((long long)soft_now().pending, 0,
           "nothing uses memory any more that may be given out again");
    gh_memory_close(&memory);
    gh_device_stream_destroy(soft_devices[0], stream);
    soft_configure("SEED=0");
}

static void test_scratch(void)
{
    struct gh_memory memory = begin(false);
    struct gh_scratch scratch = { 0 };

    gh_scratch_reserve(&scratch, &memory, 512, NULL, NULL);
    gh_scratch_reserve(&scratch, &memory, 1024, NULL, NULL);
    is_int(allocations(), 2,
           "scratch that grows frees nothing in a step");
    is_int((long long)memory.bytes, 512, "what it has left is counted");
    gh_scratch_free(&scratch, soft_devices[0]);
    gh_memory_close(&memory);
    is_int(allocations(), 0, "and all at the end");
}

static void test_scratch_in_use(void)
{
    struct gh_memory memory = begin(false);
    struct gh_scratch scratch = { 0 };
    void *stream = NULL;

    soft_configure("SEED=3");
    gh_device_stream_create(soft_devices[0], false, &stream, NULL);
    gh_scratch_reserve(&scratch, &memory, 4096, stream, NULL);
    for (int i = 0; i < 64; i++) {
        gh_device_zero(soft_devices[0], scratch.address, 4096, stream, NULL);
    }
    gh_scratch_reserve(&scratch, &memory, 4096, NULL, NULL);
    is_int((long long)soft_now().pending, 0,
           "scratch is used again when nothing uses it any more");
    gh_device_stream_destroy(soft_devices[0], stream);
    gh_scratch_free(&scratch, soft_devices[0]);
    gh_memory_close(&memory);
    soft_configure("SEED=0");
}

static void run(void)
{
    gh_streams_init(&streams, soft_devices[0]);
    allocations();
    host_memory_begin();
    test_freed();
    test_held();
    test_host_memory_that_fails();
    test_another_device();
    test_a_host_that_lends();
    test_a_host_that_lends_nothing();
    test_work_ends_before();
    test_scratch();
    test_scratch_in_use();
    gh_streams_free(&streams);
    is_int(host_memory_left(), 0, "no memory of the host is left");
}

int main(void)
{
    return soft_run(run);
}
