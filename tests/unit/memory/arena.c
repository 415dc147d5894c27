/*
 * Pieces of an arena do not overlap, are given out again, and keep their
 * addresses where their memory does not stay.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "memory/arena.h"
#include "memory/memory.h"
#include "support/host_memory.h"
#include "tap/tap.h"
#include "tests/unit/memory/soft.h"

#include <stdio.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)
#define GRANULE (2 * MIB)

static gh_error err;
static struct gh_arena arena;

static long long mapped(void)
{
    static uint64_t before = UINT64_MAX;

    if (before == UINT64_MAX) {
        before = soft_now().device_bytes;
    }
    return (long long)(soft_now().device_bytes - before);
}

/* Mapped regions count twice, and those without memory once. */
static long long objects(void)
{
    static uint64_t before = UINT64_MAX;

    if (before == UINT64_MAX) {
        before = soft_now().device_allocations;
    }
    return (long long)(soft_now().device_allocations - before);
}

static void begin(void)
{
    is_status(gh_arena_open(&arena, soft_devices[0], &err), GH_OK, &err,
              "an arena is opened");
}

static void end(const char *name)
{
    gh_arena_close(&arena);
    is_int(mapped(), 0, "%s: no memory is left", name);
    is_int(objects(), 0, "%s: no addresses are", name);
}

static char *take(uint64_t bytes)
{
    void *address = NULL;

    return gh_arena_alloc(&arena, bytes, &address, &err) == GH_OK ? address
                                                                  : NULL;
}

static void test_small_pieces_share_a_region(void)
{
    char *a, *b, *c;

    begin();
    a = take(100);
    b = take(MIB);
    c = take(MIB - 2048);
    ok(a != NULL && b != NULL && c != NULL, "three pieces are there");
    is_int(mapped(), GRANULE, "in one granule");
    ok((uintptr_t)a % 512 == 0 && (uintptr_t)b % 512 == 0,
       "aligned to 512 bytes");
    ok(b >= a + 100 && c >= b + MIB && c + MIB - 2048 <= a + GRANULE,
       "side by side");
    gh_arena_free(&arena, b, MIB, false);
    ok(take(MIB) == b, "a piece that was freed is given out again");
    gh_arena_free(&arena, a, 100, false);
    gh_arena_free(&arena, b, MIB, false);
    ok(take(MIB + 512) == a, "two that touch are one");
    gh_arena_free(&arena, a, MIB + 512, true);
    gh_arena_free(&arena, c, MIB - 2048, true);
    is_int(mapped(), GRANULE, "a region without pieces may be kept");
    ok(take(GRANULE) == a, "as one extent");
    gh_arena_free(&arena, a, GRANULE, false);
    is_int(mapped(), 0, "or goes back to the driver");
    end("small pieces");
}

static void test_pieces_of_no_bytes(void)
{
    char *a, *b;

    begin();
    a = take(0);
    b = take(0);
    ok(a != NULL && b == a + 512, "pieces of no bytes are apart");
    ok(take(512) == b + 512 && take(1) == b + 1024,
       "one of 512 bytes takes no more, and one of a byte as much");
    gh_arena_free(&arena, b, 0, false);
    ok(take(1) == b, "and are given out again");
    end("no bytes");
}

static void test_the_smallest_extent_is_taken(void)
{
    char *piece[6], *large;

    begin();
    for (int i = 0; i < 6; i++) {
        piece[i] = take(i == 1 ? 100000 : i == 3 ? 50000 : 1000);
    }
    gh_arena_free(&arena, piece[1], 100000, false);
    gh_arena_free(&arena, piece[3], 50000, false);
    ok(take(40000) == piece[3], "a piece comes from the smallest extent");
    ok(take(90000) == piece[1], "and a larger one from a larger");
    gh_arena_free(&arena, piece[5], 1000, false);
    gh_arena_free(&arena, piece[4], 1000, false);
    large = take(MIB + MIB / 2);
    ok(large > piece[3] && large <= piece[4],
       "those that were freed one before the other are one");
    end("extents");
}

static void test_regions_grow(void)
{
    char *large;

    begin();
    for (int i = 0; i < 40; i++) {
        (void)take(MIB + MIB / 2);
    }
    ok(objects() < 2 * 12, "40 pieces have less than 12 regions");
    ok(mapped() >= (long long)(60 * MIB) && mapped() <= (long long)(100 * MIB),
       "regions double, so that ends are few: %lld bytes", mapped());
    large = take(50 * MIB + 1);
    gh_arena_free(&arena, large, 50 * MIB + 1, false);
    is_int(mapped() % (long long)GRANULE, 0, "all have whole granules");
    ok(take(20 * MIB) != NULL, "a large piece has a region of its own");
    end("regions");
}

static void test_memory_goes_and_comes(void)
{
    char *a, *b;
    long long before;

    begin();
    a = take(3 * MIB);
    b = take(200);
    before = mapped();
    is_int(arena.mapped, before, "what is mapped is counted");
    is_status(gh_arena_unmap(&arena, &err), GH_OK, &err,
              "all memory is given back");
    is_int(mapped(), 0, "to the driver");
    is_int(arena.mapped, 0, "and is not counted");
    ok(objects() != 0, "the addresses stay");
    is_status(gh_arena_map(&arena, &err), GH_OK, &err, "and taken again");
    is_int(mapped(), before, "as much as before");
    is_status(gh_device_zero(soft_devices[0], a, 3 * MIB, NULL, &err), GH_OK,
              &err, "a piece is written where it was");
    gh_arena_free(&arena, b, 200, false);
    ok(take(200) == b, "and pieces are given out as before");
    gh_arena_unmap(&arena, NULL);
    gh_arena_free(&arena, a, 3 * MIB, false);
    end("closed without memory");
}

static void fails(const char *settings, const char *name)
{
    void *address = NULL;

    soft_configure(settings);
    ok(gh_arena_alloc(&arena, 64 * MIB, &address, &err) != GH_OK, "%s: %s",
       name, err.text);
    soft_configure("SEED=0");
}

static void test_failures(void)
{
    long long before;

    soft_configure("MAPPING=0");
    is_status(gh_arena_open(&arena, soft_devices[0], &err), GH_ERR_UNSUPPORTED,
              &err, "a device without mapping has no arena");
    ok(!gh_arena_is_open(&arena), "which stays closed");
    gh_arena_close(&arena);
    soft_configure("SEED=0");

    begin();
    (void)take(20 * MIB);
    (void)take(20 * MIB);
    before = mapped();
    fails("FAIL=cuMemAddressReserve:1:2", "no addresses");
    fails("FAIL=cuMemCreate:1:2", "no memory");
    fails("FAIL=cuMemMap:1:1", "no mapping");
    fails("FAIL=cuMemSetAccess:1:1", "no access");
    is_int(mapped(), before, "a failure leaves nothing");
    is_int(objects(), 4, "nor addresses");
    for (uint32_t n = 1; n <= 2; n++) {
        const int64_t left = host_memory_left();

        host_memory_refuse(n);
        ok(take(64 * MIB) == NULL && host_memory_left() == left,
           "without memory of the host there is no piece, %u", n);
        host_memory_refuse(0);
    }

    soft_configure("FAIL=cuMemUnmap:2:1");
    ok(gh_arena_unmap(&arena, &err) != GH_OK, "the second may not go");
    is_int(mapped(), before / 2, "then the first has gone");
    is_status(gh_arena_map(&arena, &err), GH_OK, &err, "it is taken again");
    is_int(mapped(), before, "beside the second");
    gh_arena_unmap(&arena, NULL);
    soft_configure("FAIL=cuMemCreate:2:2");
    is_status(gh_arena_map(&arena, &err), GH_ERR_NO_MEMORY, &err,
              "there may be memory for one alone");
    is_int(mapped(), 0, "then none is taken");
    soft_configure("SEED=0");
    is_status(gh_arena_map(&arena, &err), GH_OK, &err, "until there is enough");
    end("failures");
}

/* ---- through memory.h ---------------------------------------------------- */

static struct gh_streams streams;
static const gh_host_services none = { .struct_size = sizeof(none) };

/* What a session has outgrown, and may not free, is no piece of the arena. */
static void test_memory_that_is_held(void)
{
    struct gh_memory memory = { .streams = &streams, .host = &none };
    void *kept = NULL, *address = NULL;

    gh_streams_init(&streams, soft_devices[0]);
    gh_arena_open(&memory.arena, soft_devices[0], NULL);
    gh_device_alloc(soft_devices[0], 1000, &kept, NULL);
    gh_memory_keep(&memory, kept, 1000);
    gh_memory_alloc(&memory, 1000, &address, NULL);
    ok(address != kept, "memory that is held is not given out as a piece");
    memory.holds = true;
    gh_memory_trim(&memory);
    ok(memory.held != NULL, "it stays where nothing may be freed");
    memory.holds = false;
    gh_memory_trim(&memory);
    ok(memory.held == NULL && memory.bytes == 1000, "and goes where it may");
    gh_memory_close(&memory);
    gh_streams_free(&streams);
}

static void test_work_ends_before(void)
{
    struct gh_memory memory = { .streams = &streams, .host = &none };
    void *address = NULL, *stream = NULL;

    soft_configure("SEED=3");
    gh_streams_init(&streams, soft_devices[0]);
    gh_arena_open(&memory.arena, soft_devices[0], NULL);
    gh_memory_alloc(&memory, 4096, &address, NULL);
    gh_device_stream_create(soft_devices[0], false, &stream, NULL);
    gh_streams_know(&streams, stream, NULL);
    for (int i = 0; i < 64; i++) {
        gh_device_zero(soft_devices[0], address, 4096, stream, NULL);
    }
    gh_memory_free(&memory, address, 4096);
    is_int((long long)soft_now().pending, 0,
           "nothing uses a piece any more that may be given out again");
    gh_memory_close(&memory);
    gh_device_stream_destroy(soft_devices[0], stream);
    gh_streams_free(&streams);
    soft_configure("SEED=0");
}

static void test_memory_of_a_session(void)
{
    struct gh_memory memory = { .streams = &streams, .host = &none };
    void *address = NULL, *again = NULL;

    gh_streams_init(&streams, soft_devices[0]);
    gh_arena_open(&memory.arena, soft_devices[0], NULL);
    is_status(gh_memory_alloc(&memory, 1000, &address, &err), GH_OK, &err,
              "a session's memory is the arena's, if that is open");
    is_int(memory.arena.mapped, GRANULE, "which has taken a granule");
    is_int(memory.bytes, 1000, "of which so much is used");
    memory.holds = true;
    gh_memory_free(&memory, address, 1000);
    is_int(memory.bytes, 0, "and freed");
    is_int(memory.arena.mapped, GRANULE,
           "where nothing may be freed it stays in the arena");
    gh_memory_alloc(&memory, 1000, &again, NULL);
    ok(again == address, "and is given out again");
    memory.holds = false;
    gh_memory_free(&memory, again, 1000);
    is_int(memory.arena.mapped, 0, "else it goes back");
    gh_memory_close(&memory);
    gh_streams_free(&streams);
}

static void tests(void)
{
    (void)mapped();
    (void)objects();
    host_memory_begin();
    test_pieces_of_no_bytes();
    test_small_pieces_share_a_region();
    test_the_smallest_extent_is_taken();
    test_regions_grow();
    test_memory_goes_and_comes();
    test_failures();
    test_memory_of_a_session();
    test_memory_that_is_held();
    test_work_ends_before();
    is_int(host_memory_left(), 0, "no memory of the host is left");
}

int main(void)
{
    return soft_run(tests);
}
