/*
 * Banks share blocks of a shelf, and each holds a block once.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "bank/blocks.h"
#include "tap/tap.h"

#include <stdlib.h>

/* A host that lends memory, and refuses what is past its limit. */
static uint64_t lent, limit;

static gh_status lend(void *user, uint64_t bytes, void **address_p)
{
    (void)user;
    if (bytes > limit) {
        return GH_ERR_NO_MEMORY;
    }
    lent += bytes;
    *address_p = malloc(bytes);
    return GH_OK;
}

static void give_back(void *user, void *address, uint64_t bytes)
{
    (void)user;
    lent -= bytes;
    free(address);
}

static const gh_host_services host = { .struct_size = sizeof(host),
                                       .device_alloc = lend,
                                       .device_free = give_back };
static const struct gh_streams none;
static struct gh_memory memory;
static struct gh_shelf shelf;
static gh_error err;

static struct gh_block *take(uint32_t bank, uint64_t bytes, uint64_t wish)
{
    struct gh_block *block = NULL;

    gh_shelf_take(&shelf, &memory, bank, bytes, wish, &block, &err);
    return block;
}

static void begin(void)
{
    memory = (struct gh_memory){ .streams = &none, .host = &host };
    shelf = (struct gh_shelf){ 0 };
    lent = 0;
    limit = UINT64_MAX;
}

static void test_banks_share(void)
{
    struct gh_block *a, *b;

    begin();
    a = take(0, 100, 100);
    b = take(0, 200, 200);
    ok(a != b, "a bank has a block for each of its recordings");
    ok(take(1, 80, 80) == a, "another bank takes the smaller of two that fit");
    ok(take(1, 50, 50) == b, "and then the one that is left");
    is_int(lent, 300, "and nothing more");
    ok(take(1, 10, 10) != a, "a third of its recordings has a block of its own");
    gh_shelf_free(&shelf, &memory);
    is_int(lent, 0, "all of it goes back");
}

/* In whatever order the smaller ones come. */
static void test_what_fits_finds_a_place(void)
{
    static const uint64_t large[] = { 40, 10, 30, 20, 50 };
    static const uint64_t small[] = { 8, 45, 18, 25, 38 };

    begin();
    for (int i = 0; i < 5; i++) {
        take(0, large[i], large[i]);
    }
    for (int i = 0; i < 5; i++) {
        take(1, small[i], small[i]);
    }
    is_int(shelf.n, 5, "five that are each smaller share five blocks");
    is_int(lent, 150, "of the larger one's bytes");
    gh_shelf_free(&shelf, &memory);
}

static void test_wishes(void)
{
    struct gh_block *block;

    begin();
    limit = 100;
    block = take(0, 10, 100);
    is_int(block->bytes, 100, "a block is made for the largest bank");
    block = take(0, 10, 101);
    is_int(block->bytes, 10, "or, where memory is short, for the one at hand");
    ok(take(0, 101, 200) == NULL, "and where there is none, there is no block");
    is_int(memory.bytes, 110, "what is out is counted");
    gh_shelf_free(&shelf, &memory);
}

static void test_giving_back(void)
{
    struct gh_block *a;

    begin();
    a = take(0, 100, 100);
    take(1, 100, 100);
    gh_shelf_give_back(&shelf, &memory, 0, a, false);
    is_int(lent, 100, "a block that another bank holds stays");
    ok(take(0, 60, 60) == a, "and may be taken again");
    gh_shelf_give_back(&shelf, &memory, 0, a, true);
    gh_shelf_give_back(&shelf, &memory, 1, a, true);
    is_int(lent, 100, "so does one that is kept, though nobody holds it");
    ok(take(7, 100, 100) == a, "for whoever comes next");
    gh_shelf_give_back(&shelf, &memory, 7, a, false);
    is_int(lent, 0, "any other that nobody holds goes back");
    gh_shelf_give_back(&shelf, &memory, 7, NULL, false);
    is_int(shelf.n, 0, "and the shelf is empty");
    gh_shelf_free(&shelf, &memory);
}

static void test_what_there_is(void)
{
    struct gh_block *a;

    begin();
    ok(!gh_shelf_has(&shelf, 0, 1), "an empty shelf has nothing");
    a = take(0, 100, 100);
    ok(gh_shelf_has(&shelf, 1, 100), "a block of one bank is there for another");
    ok(!gh_shelf_has(&shelf, 0, 100), "and not for itself, which has it");
    ok(!gh_shelf_has(&shelf, 1, 101), "nor for more than it holds");
    gh_shelf_give_back(&shelf, &memory, 0, a, true);
    ok(gh_shelf_has(&shelf, 0, 100), "until it is given back");
    is_int(shelf.n, 1, "to ask takes nothing");
    gh_shelf_free(&shelf, &memory);
}

int main(void)
{
    test_what_there_is();
    test_banks_share();
    test_what_fits_finds_a_place();
    test_wishes();
    test_giving_back();
    return done_testing();
}
