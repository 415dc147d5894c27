/*
 * What banks hold and give back: graphs, blocks, offsets and host memory, each
 * allocation of which fails in its turn.
 *
 * The device is this file's.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "bank/banks.h"
#include "support/fake_device.h"
#include "support/host_memory.h"
#include "tap/tap.h"

#include <stdlib.h>
#include <string.h>

static gh_error err;

/* ---- the device ---------------------------------------------------------- */

static int n_execs, n_host_graphs, n_events, n_recorded, n_waits, n_released;
static uint64_t lent;
static bool captures[4], ended[4], events_fail, records_fail;
static void *streams_of[4] = { (void *)1, (void *)2, (void *)3, (void *)4 };
static uint32_t stream_of_event[64];

static uint32_t number_of(const void *stream)
{
    return (uint32_t)(uintptr_t)stream - 1;
}

enum gh_capturing gh_device_capturing(struct gh_device *dev, void *stream)
{
    (void)dev;
    return captures[number_of(stream)] ? GH_CAPTURING_YES : GH_CAPTURING_NO;
}

/* An event is its number, from 1. */
gh_status gh_device_event_create(struct gh_device *dev, void **event_p,
                                 gh_error *error)
{
    static uintptr_t last;

    (void)dev;
    (void)error;
    if (events_fail) {
        return GH_ERR_DEVICE;
    }
    n_events++;
    last = last % 60 + 1;
    *event_p = (void *)last;
    return GH_OK;
}

void gh_device_event_destroy(struct gh_device *dev, void *event)
{
    (void)dev;
    n_events -= event != NULL;
}

gh_status gh_device_event_record(struct gh_device *dev, void *event,
                                 void *stream, gh_error *error)
{
    (void)dev;
    (void)error;
    if (records_fail) {
        return GH_ERR_DEVICE;
    }
    n_recorded++;
    stream_of_event[(uintptr_t)event] = number_of(stream);
    return GH_OK;
}

bool gh_device_event_has_ended(struct gh_device *dev, void *event)
{
    (void)dev;
    return ended[stream_of_event[(uintptr_t)event]];
}

void gh_device_exec_destroy(struct gh_device *dev, void *exec)
{
    (void)dev;
    n_execs -= exec != NULL;
}

void gh_device_copy_destroy(struct gh_copy *copy)
{
    (void)copy;
}

void gh_offload_script_free(struct gh_offload_script *script)
{
    (void)script;
}

void gh_streams_quiesce(const struct gh_streams *streams)
{
    (void)streams;
    n_waits++;
}

void *gh_device_context(const struct gh_device *dev)
{
    (void)dev;
    return NULL;
}

gh_status gh_device_alloc(struct gh_device *dev, uint64_t bytes,
                          void **address_p, gh_error *error)
{
    (void)dev;
    (void)error;
    lent += bytes;
    *address_p = (void *)1;
    return GH_OK;
}

void gh_device_free(struct gh_device *dev, void *address)
{
    (void)dev;
    (void)address;
}

/* ---- the host ------------------------------------------------------------ */

static gh_status lend(void *user, uint64_t bytes, void **address_p)
{
    (void)user;
    lent += bytes;
    *address_p = (void *)1;
    return GH_OK;
}

static void give_back(void *user, void *address, uint64_t bytes)
{
    (void)user;
    (void)address;
    lent -= bytes;
}

static void destroy(void *user, void *object)
{
    (void)user;
    n_host_graphs -= object != NULL;
}

static void release(void *user, void *object)
{
    (void)user;
    (void)object;
    n_released++;
}

static const gh_host_services host = { .struct_size = sizeof(host),
                                       .device_alloc = lend,
                                       .device_free = give_back,
                                       .destroy = destroy,
                                       .release = release };

/* ---- banks --------------------------------------------------------------- */

enum {
    SLOTS = 2,
    SEGMENTS = 3,
    CHUNKS = 2,
    MOST = 2
};

static struct gh_streams streams;
static struct gh_memory memory;
static struct gh_banks banks;

static void reset(uint32_t n_streams)
{
    streams =
        (struct gh_streams){ .dev = DEVICE, .all = streams_of, .n = n_streams };
    memory = (struct gh_memory){ .streams = &streams, .host = &host };
    memset(captures, 0, sizeof(captures));
    memset(ended, 0, sizeof(ended));
    events_fail = records_fail = false;
    n_execs = n_host_graphs = n_events = n_recorded = n_waits = n_released = 0;
    lent = 0;
    host_memory_begin();
}

static gh_status create(void)
{
    return gh_banks_create(&banks, CHUNKS, SEGMENTS, SLOTS, MOST, &memory,
                           &err);
}

static struct gh_bank *add(uint32_t tokens)
{
    const gh_bank_desc desc = { .struct_size = sizeof(desc),
                                .name = "four",
                                .tokens = tokens };
    uint32_t number;

    return gh_banks_add(&banks, &desc, &number, &err) == GH_OK
               ? banks.all[number]
               : NULL;
}

static void begin(uint32_t n_streams)
{
    reset(n_streams);
    is_status(create(), GH_OK, &err, "there are banks");
}

/* The graph of a pass, with a block of so many bytes; 0: without one. */
static bool record_on(struct gh_bank *bank, uint32_t segment, uint32_t slot,
                      uint64_t bytes, bool hosts)
{
    struct gh_entry *entry = gh_bank_at(bank, segment, GH_FORWARD, 0, slot);

    if (bytes != 0 && gh_bank_take(bank, entry, gh_banks_shelf(&banks, 0, slot),
                                   bytes, bytes, &err) != GH_OK) {
        return false;
    }
    entry->state = GH_ENTRY_READY;
    entry->n_nodes = 5;
    entry->inputs = malloc(sizeof(*entry->inputs));
    entry->outputs = malloc(sizeof(*entry->outputs));
    if (hosts) {
        entry->object = (void *)9;
        n_host_graphs++;
    } else {
        entry->exec = (void *)8;
        n_execs++;
    }
    bank->n_graphs++;
    banks.n_nodes += 5;
    return true;
}

static void record(struct gh_bank *bank, uint32_t segment, uint32_t slot,
                   uint64_t bytes)
{
    record_on(bank, segment, slot, bytes, false);
}

/* Offsets of a slot of a chunk. */
static bool pack(struct gh_bank *bank, uint32_t chunk, uint32_t slot,
                 uint64_t bytes)
{
    struct gh_block **at;

    if (bank->packed == NULL) {
        bank->packed = calloc(CHUNKS * SLOTS, sizeof(struct gh_block *));
    }
    if (bank->packed == NULL) {
        return false;
    }
    at = &bank->packed[chunk * SLOTS + slot];
    if (gh_shelf_take(gh_banks_shelf(&banks, chunk, slot), &memory,
                      bank->number, bytes, bytes, at, &err) != GH_OK) {
        return false;
    }
    bank->bytes += (*at)->bytes;
    return true;
}

static void end(const char *name)
{
    gh_banks_clear(&banks);
    gh_banks_free(&banks);
    is_int(n_execs, 0, "%s: each graph is destroyed once", name);
    is_int(n_host_graphs, 0, "%s: so is each of the host's", name);
    is_int(n_events, 0, "%s: and each event", name);
    is_int((long long)lent, 0, "%s: all device memory goes back", name);
    is_int(memory.bytes, 0, "%s: and is counted", name);
    is_int(host_memory_left(), 0, "%s: and all host memory", name);
}

/* ---- tests --------------------------------------------------------------- */

static void test_scale(void)
{
    static const struct {
        uint32_t tokens, most;
        uint64_t bytes, scaled;
    } cases[] = {
        { 1024, 4096, 100, 400 },
        { 3, 4, 1, 2 },
        { 3, 4, 2, 3 },
        { 3, 4, 3, 4 },
        { 3, 10, 7, 24 },
        { 4096, 4096, 100, 100 },
        { 4096, 1024, 100, 100 },
        { 0, 4096, 100, 100 },
        { 7, 0, 100, 100 },
        { 1, 2, 0, 0 },
        { 1, 2, UINT64_MAX, UINT64_MAX },
        { 1, 2, UINT64_MAX / 2, UINT64_MAX - 1 },
        { 1, 2, UINT64_MAX / 2 + 1, UINT64_MAX / 2 + 1 },
        { 100, 200, UINT64_MAX / 200, UINT64_MAX / 200 },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct gh_banks all = { .most_tokens = cases[i].most };
        const struct gh_bank one = { .tokens = cases[i].tokens };

        ok(gh_banks_scale(&all, &one, cases[i].bytes) == cases[i].scaled,
           "%llu bytes of %u tokens are %llu of %u",
           (unsigned long long)cases[i].bytes, cases[i].tokens,
           (unsigned long long)cases[i].scaled, cases[i].most);
    }
}

static void test_most_tokens(void)
{
    begin(1);
    add(64);
    add(256);
    add(128);
    is_int(banks.most_tokens, 256, "the largest bank is remembered");
    ok(gh_banks_whose(&banks, banks.blank) == banks.all[0],
       "what has no graphs is of the first bank");
    end("declared banks");
}

static void test_admit(void)
{
    struct gh_bank *bank;

    begin(1);
    bank = add(64);
    ok(bank->entries == banks.blank, "a bank begins without entries");
    gh_banks_admit(&banks, bank, &err);
    gh_banks_admit(&banks, bank, &err);
    is_int(banks.n_admitted, 1, "a bank is admitted once");
    ok(bank->entries != banks.blank, "and has entries of its own");
    record(bank, 1, 1, 10);
    ok(gh_banks_whose(&banks, gh_bank_at(bank, 1, GH_FORWARD, 0, 1)) == bank,
       "whose bank is found");
    ok(gh_banks_whose(&banks, bank->entries) == bank, "from the first");
    ok(gh_banks_whose(&banks, bank->entries + gh_bank_rows(bank) * SLOTS - 1) ==
           bank,
       "to the last");
    ok(gh_banks_whose(&banks, bank->entries + gh_bank_rows(bank) * SLOTS) !=
           bank,
       "and no further");
    end("an admitted bank");
}

static void test_evict(void)
{
    struct gh_bank *bank, *other;
    void **objects;

    begin(2);
    bank = add(64);
    other = add(32);
    for (int i = 0; i < 2; i++) {
        gh_banks_admit(&banks, i == 0 ? bank : other, &err);
        record(i == 0 ? bank : other, 0, 0, 100);
        pack(i == 0 ? bank : other, 1, 1, 40);
    }
    record(bank, 2, 1, 0);
    is_int((long long)lent, 140, "banks share their blocks");
    is_int(bank->bytes, 140, "each is counted for each");
    objects = calloc(3, sizeof(*objects));
    objects[0] = objects[2] = (void *)1;
    gh_banks_evict(&banks, bank, objects, 3);
    is_int(banks.n_admitted, 1, "one bank less has graphs");
    ok(!bank->admitted && other->admitted, "the one that was evicted");
    is_int(bank->evictions, 1, "which is counted");
    is_int(bank->n_graphs, 0, "it has no graphs");
    is_int(banks.n_nodes, 5, "nor nodes");
    is_int(bank->bytes, 0, "nor bytes");
    ok(bank->packed == NULL, "nor offsets");
    ok(bank->entries == banks.blank, "nor entries");
    is_int(n_execs, 3, "graphs that may run are not destroyed");
    is_int(n_released, 0, "nor what they read is released");
    is_int(n_waits, 0, "and nothing is waited for");
    is_int((long long)lent, 140, "what another bank holds stays");
    gh_banks_evict(&banks, other, NULL, 0);
    is_int(banks.n_admitted, 0, "the other one is evicted too");
    is_int((long long)lent, 140, "blocks are kept for whoever comes next");
    gh_banks_admit(&banks, bank, &err);
    record(bank, 0, 0, 90);
    is_int((long long)lent, 140, "who takes them");
    is_int(bank->bytes, 100, "and is counted");
    pack(bank, 1, 1, 40);
    is_int((long long)lent, 140, "offsets have the block that they had");
    is_int(bank->bytes, 140, "which counts, too");
    ended[0] = ended[1] = true;
    gh_retired_poll(&banks.retired, &memory);
    is_int(n_execs, 1, "graphs that have ended are destroyed");
    is_int(n_released, 2, "and what they read is released");
    end("evicted banks");
}

/* What failed in a bank would fail again when it comes back. */
static void test_what_stays(void)
{
    struct gh_bank *bank;
    struct gh_entry *entry;

    begin(1);
    bank = add(64);
    gh_banks_admit(&banks, bank, &err);
    record(bank, 0, 0, 10);
    gh_bank_at(bank, 1, GH_FORWARD, 0, 0)->state = GH_ENTRY_EAGER;
    gh_banks_evict(&banks, bank, NULL, 0);
    ok(bank->entries != banks.blank &&
           gh_bank_at(bank, 1, GH_FORWARD, 0, 0)->state == GH_ENTRY_EAGER,
       "a pass that is eager for good stays so");
    ok(gh_bank_at(bank, 0, GH_FORWARD, 0, 0)->state == GH_ENTRY_NEW,
       "beside one that is recorded again");
    gh_bank_at(bank, 1, GH_FORWARD, 0, 0)->state = GH_ENTRY_NEW;
    gh_banks_admit(&banks, bank, &err);
    record(bank, 2, 1, 10);
    entry = gh_bank_at(bank, 2, GH_FORWARD, 0, 1);
    entry->unchained = true;
    gh_banks_evict(&banks, bank, NULL, 0);
    ok(bank->entries != banks.blank && entry->unchained &&
           entry->state == GH_ENTRY_NEW && entry->exec == NULL,
       "so does that a chain has moved, without its graph");
    end("what failed");
}

/* A graph is over once an event behind it has ended on each stream. */
static void test_marks(void)
{
    enum how {
        ALL,
        CAPTURED,
        NO_EVENT,
        NO_RECORD
    };
    static const char *const names[] = { "marks", "a stream that is captured",
                                         "events that fail",
                                         "marks that fail" };

    for (int how = ALL; how <= NO_RECORD; how++) {
        struct gh_bank *bank;

        begin(3);
        bank = add(64);
        gh_banks_admit(&banks, bank, &err);
        record(bank, 0, 0, 10);
        captures[1] = how == CAPTURED;
        events_fail = how == NO_EVENT;
        records_fail = how == NO_RECORD;
        gh_banks_evict(&banks, bank, NULL, 0);
        is_int(n_recorded,
               how == ALL        ? 3
               : how == CAPTURED ? 2
                                 : 0,
               "%s: so many streams are marked at once", names[how]);
        is_int(n_events, n_recorded, "%s: with an event each", names[how]);
        ended[0] = ended[1] = ended[2] = true;
        if (how != ALL) {
            gh_retired_poll(&banks.retired, &memory);
            is_int(n_execs, 1, "%s: without all of them it may run",
                   names[how]);
        }
        captures[1] = events_fail = records_fail = false;
        ended[how % 3] = false;
        gh_retired_poll(&banks.retired, &memory);
        is_int(n_recorded, 3, "%s: the others are marked later", names[how]);
        is_int(n_execs, 1, "%s: it runs until each has ended", names[how]);
        gh_retired_poll(&banks.retired, &memory);
        is_int(n_recorded, 3, "%s: no stream is marked twice", names[how]);
        ended[how % 3] = true;
        gh_retired_poll(&banks.retired, &memory);
        is_int(n_execs, 0, "%s: and is destroyed then", names[how]);
        ok(banks.retired == NULL, "%s: and forgotten", names[how]);
        end(names[how]);
    }
}

/* The younger of two may end before the older. */
static void test_order_of_ends(void)
{
    struct gh_bank *bank;

    begin(1);
    bank = add(64);
    for (int i = 0; i < 3; i++) {
        gh_banks_admit(&banks, bank, &err);
        record(bank, 0, 0, 10);
        if (i == 1) {
            record(bank, 1, 0, 10);
        }
        streams.n = i == 1 ? 2 : 1;
        gh_banks_evict(&banks, bank, NULL, 0);
    }
    is_int(n_execs, 4, "three evictions wait");
    ended[0] = true;
    gh_retired_poll(&banks.retired, &memory);
    is_int(n_execs, 2, "the first and the last have ended");
    ok(banks.retired != NULL && banks.retired->next == NULL, "one is left");
    ended[1] = true;
    gh_retired_poll(&banks.retired, &memory);
    is_int(n_execs, 0, "which ends too");
    gh_retired_poll(&banks.retired, &memory);
    end("the order of ends");
}

/* A host's destroy may give memory away, so nothing may run. */
static void test_graphs_of_the_host(void)
{
    struct gh_bank *bank;

    begin(1);
    bank = add(64);
    gh_banks_admit(&banks, bank, &err);
    record_on(bank, 0, 0, 10, true);
    record_on(bank, 0, 1, 10, false);
    n_waits = 0;
    gh_bank_clear(bank, gh_bank_at(bank, 0, GH_FORWARD, 0, 1));
    is_int(n_waits, 1, "memory that goes back is waited for");
    n_waits = 0;
    gh_bank_clear(bank, gh_bank_at(bank, 0, GH_FORWARD, 0, 0));
    is_int(n_waits, 2, "and a host's graph before it is destroyed");
    is_int(bank->bytes, 0, "then the bank holds nothing");
    is_int((long long)lent, 0, "and all is given back");
    gh_banks_admit(&banks, banks.all[0], &err);
    record(banks.all[0], 1, 0, 0);
    record_on(bank, 0, 0, 0, true);
    record(bank, 1, 0, 0);
    gh_banks_evict(&banks, bank, NULL, 0);
    gh_banks_admit(&banks, bank, &err);
    record(bank, 1, 1, 0);
    n_waits = 0;
    gh_banks_stop(&banks);
    is_int(n_execs + n_host_graphs, 0,
           "where the ranks have parted every graph is destroyed");
    is_int(n_waits, 0, "without a wait");
    end("graphs of the host");
}

/* ---- host memory that fails ---------------------------------------------- */

/* A block that other banks hold stays theirs. */
static void test_a_block_that_is_shared(void)
{
    struct gh_shelf shelf = { 0 };
    struct gh_block *blocks[3] = { NULL };

    reset(1);
    gh_shelf_take(&shelf, &memory, 0, 10, 10, &blocks[0], &err);
    gh_shelf_take(&shelf, &memory, 1, 10, 10, &blocks[1], &err);
    ok(blocks[0] == blocks[1], "two banks share a block");
    host_memory_refuse(1);
    is_status(gh_shelf_take(&shelf, &memory, 2, 10, 10, &blocks[2], &err),
              GH_ERR_NO_MEMORY, &err, "a third finds no memory");
    is_int(shelf.n, 1, "the block is still there");
    is_int((long long)lent, 10, "with its memory");
    is_int(blocks[0]->n_holders, 2, "and both its holders");
    host_memory_refuse(0);
    is_status(gh_shelf_take(&shelf, &memory, 2, 10, 10, &blocks[2], &err),
              GH_OK, &err, "with memory it takes it");
    for (uint32_t i = 0; i < 3; i++) {
        gh_shelf_give_back(&shelf, &memory, i, blocks[0], true);
    }
    gh_shelf_free(&shelf, &memory);
    is_int((long long)lent, 0, "and all goes back");
    is_int(host_memory_left(), 0, "of the host's memory too");
}

/* One that could not be held is not there. */
static void test_a_block_without_a_holder(void)
{
    for (uint32_t k = 1; k <= 3; k++) {
        struct gh_shelf shelf = { 0 };
        struct gh_block *block = NULL;

        reset(1);
        host_memory_refuse(k);
        is_status(gh_shelf_take(&shelf, &memory, 0, 10, 20, &block, &err),
                  GH_ERR_NO_MEMORY, &err, "allocation %u of a block fails", k);
        ok(block == NULL && shelf.n == 0 && lent == 0,
           "then there is no block, nor memory of it");
        gh_shelf_free(&shelf, &memory);
        is_int(host_memory_left(), 0, "nor of the host");
    }
}

static bool life(uint32_t *n_p)
{
    struct gh_bank *bank[3];
    void **objects;
    bool good = create() == GH_OK;

    if (!good) {
        *n_p = host_memory_asked();
        return false;
    }
    for (uint32_t i = 0; i < 3 && good; i++) {
        bank[i] = add(64 << i);
        good = bank[i] != NULL &&
               gh_banks_admit(&banks, bank[i], &err) == GH_OK &&
               record_on(bank[i], 0, 0, 100, i == 1) &&
               record_on(bank[i], 1, 0, 50, false) && pack(bank[i], 0, 1, 20);
    }
    if (good) {
        objects = calloc(2, sizeof(*objects));
        good = objects != NULL;
        if (good) {
            objects[1] = (void *)1;
            gh_banks_evict(&banks, bank[1], objects, 2);
            good = bank[1]->packed == NULL && banks.n_admitted == 2 &&
                   bank[1]->bytes == 0 && bank[1]->n_graphs == 0 &&
                   banks.n_nodes == 20;
        }
    }
    *n_p = host_memory_asked();
    host_memory_refuse(0);
    gh_banks_clear(&banks);
    gh_banks_free(&banks);
    return good;
}

static void test_host_memory_that_fails(void)
{
    uint32_t whole = 0, n = 0;
    int released;

    reset(2);
    ok(life(&whole), "banks live");
    ok(whole > 20, "with %u allocations", whole);
    for (uint32_t k = 1; k <= whole; k++) {
        bool good;

        reset(2);
        host_memory_refuse(k);
        good = life(&n);
        released = n_released;
        ok(n_execs == 0 && n_host_graphs == 0 && n_events == 0 && lent == 0 &&
               memory.bytes == 0 && host_memory_left() == 0 && (!good || released == 1),
           "allocation %u may fail: %d graphs, %d events, %lld bytes, %lld "
           "allocations are left",
           k, n_execs + n_host_graphs, n_events, (long long)lent,
           (long long)host_memory_left());
    }
}

/* An eviction needs no memory: it waits where there is none. */
static void test_eviction_without_memory(void)
{
    for (uint32_t k = 1; k <= 3; k++) {
        struct gh_bank *bank;
        void **objects;

        begin(2);
        bank = add(64);
        gh_banks_admit(&banks, bank, &err);
        record(bank, 0, 0, 0);
        record(bank, 1, 1, 0);
        pack(bank, 0, 0, 30);
        objects = calloc(1, sizeof(*objects));
        objects[0] = (void *)1;
        host_memory_refuse(k);
        gh_banks_evict(&banks, bank, objects, 1);
        host_memory_refuse(0);
        is_int(n_waits, 1, "without memory an eviction waits");
        is_int(n_execs, 0, "and destroys the graphs at once");
        is_int(n_released, 1, "and releases what they read");
        ok(banks.retired == NULL, "nothing is left for later");
        ok(bank->packed == NULL && bank->bytes == 0 && bank->n_graphs == 0 &&
               banks.n_admitted == 0 && banks.n_nodes == 0,
           "and the bank has nothing");
        end("an eviction without memory");
    }
}

int main(void)
{
    test_scale();
    test_most_tokens();
    test_admit();
    test_evict();
    test_what_stays();
    test_marks();
    test_order_of_ends();
    test_graphs_of_the_host();
    test_a_block_that_is_shared();
    test_a_block_without_a_holder();
    test_host_memory_that_fails();
    test_eviction_without_memory();
    return done_with_device();
}
