/*
 * Offsets of packed sequences: who has their memory, when it is used again,
 * and what is given back where a call fails.
 *
 * What is below and beside lib/capture/packed.c is this file's.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "capture/call.h"
#include "capture/flight.h"
#include "capture/capture.h"
#include "capture/packed.h"
#include "pass/pass.h"
#include "support/fake.h"
#include "tap/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STREAM ((void *)7)
#define OTHER ((void *)8)

static struct gh_capture c;

/* ---- beside and below ---------------------------------------------------- */

static bool begins, writes, in_reach;
static enum gh_capturing captures;
static uint64_t lent;
static struct gh_order *moved; /* the last that was */

enum gh_capturing gh_device_capturing(struct gh_device *dev, void *stream)
{
    (void)dev;
    (void)stream;
    return captures;
}

gh_status gh_device_write_offsets(struct gh_device *dev,
                                  const struct gh_offset_arrays *to,
                                  const struct gh_lengths *lengths,
                                  void *stream, gh_error *error)
{
    (void)dev;
    (void)to;
    (void)lengths;
    (void)stream;
    (void)error;
    note("write ");
    return writes ? GH_OK : GH_ERR_DEVICE;
}

gh_status gh_device_poison_offsets(struct gh_device *dev,
                                   const struct gh_offset_arrays *to,
                                   void *stream, gh_error *error)
{
    (void)dev;
    (void)to;
    (void)stream;
    (void)error;
    note("poison ");
    return GH_OK;
}

gh_status gh_memory_alloc(struct gh_memory *memory, uint64_t bytes,
                          void **address_p, gh_error *error)
{
    (void)memory;
    (void)error;
    lent += bytes;
    *address_p = malloc(bytes);
    return GH_OK;
}

void gh_memory_free(struct gh_memory *memory, void *address, uint64_t bytes)
{
    (void)memory;
    lent -= bytes;
    free(address);
}

bool gh_order_reach(const struct gh_order *order,
                    const struct gh_streams *streams, void *stream)
{
    (void)order;
    (void)streams;
    (void)stream;
    return in_reach;
}

gh_status gh_order_move(struct gh_order *order,
                        const struct gh_streams *streams, void *stream,
                        gh_error *error)
{
    (void)streams;
    (void)error;
    moved = order;
    order->ordered = true;
    order->stream = stream;
    order->used = 1;
    order->marked = 1;
    return GH_OK;
}

void gh_order_init(struct gh_order *order)
{
    *order = (struct gh_order){ .stream = GH_NO_STREAM };
}

void gh_order_free(struct gh_order *order, struct gh_device *dev)
{
    (void)order;
    (void)dev;
}

gh_status gh_call_check_stream(struct gh_capture *capture, void *stream,
                               gh_error *error)
{
    (void)stream;
    (void)error;
    capture->counts.enters++;
    return GH_OK;
}

gh_status gh_flight_begin_elsewhere(struct gh_capture *capture,
                                    const gh_pass *pass, gh_error *error)
{
    (void)error;
    note("begin ");
    capture->open.at->order.stream = pass->stream;
    return begins ? GH_OK : GH_ERR_DEVICE;
}

gh_status gh_flight_move(struct gh_capture *capture, struct gh_slot *at,
                         void *stream, gh_error *error)
{
    (void)capture;
    (void)error;
    at->order.stream = stream;
    note("move ");
    return GH_OK;
}

gh_status gh_flight_without(struct gh_capture *capture, const gh_pass *pass,
                            enum gh_slots_found found, gh_error *error)
{
    (void)capture;
    (void)pass;
    (void)found;
    (void)error;
    note("without ");
    return GH_OK;
}

void gh_open_give_slot_up(struct gh_capture *capture)
{
    (void)capture;
    note("give ");
}

/* ---- calls --------------------------------------------------------------- */

static const int32_t lengths[] = { 3, 5 };
static struct gh_bank *bank;

static gh_status set(uint32_t microbatch, uint32_t flags, void *stream)
{
    const gh_packed packed = { .struct_size = sizeof(packed),
                               .flags = flags,
                               .bank = bank->number,
                               .microbatch = microbatch,
                               .stream = stream,
                               .n_sequences = 2,
                               .lengths = lengths };
    gh_packed_buffers buffers = { .struct_size = sizeof(buffers) };

    calls[0] = '\0';
    return gh_capture_set_packed(&c, &packed, &buffers, &err);
}

static bool begin(uint32_t n_slots)
{
    const gh_bank_desc desc = { .struct_size = sizeof(desc),
                                .tokens = 16,
                                .sequences = 4 };
    uint32_t number = 0;

    memset(&c, 0, sizeof(c));
    c.dev = DEVICE;
    begins = writes = in_reach = true;
    captures = GH_CAPTURING_NO;
    lent = 0;
    if (gh_slots_create(1, 2, n_slots, &c.slots, &err) != GH_OK ||
        gh_banks_create(&c.banks, 1, 2, n_slots, 2, &c.memory, &err) != GH_OK ||
        gh_banks_add(&c.banks, &desc, &number, &err) != GH_OK) {
        ok(false, "there are banks and slots: %s", err.text);
        return false;
    }
    bank = c.banks.all[number];
    return true;
}

static void end(void)
{
    gh_packed_free(&c);
    gh_banks_clear(&c.banks);
    gh_banks_free(&c.banks);
    gh_slots_destroy(c.slots);
    is_int(lent, 0, "all memory goes back");
}

static uint32_t n_slotless(void)
{
    uint32_t n = 0;
    const struct {
        void *next;
    } *l = (const void *)c.slotless.first; /* its first member */

    for (; l != NULL; l = l->next) {
        n++;
    }
    return n;
}

static void test_slots(void)
{
    if (!begin(2)) {
        return;
    }
    c.counts.enters = 40;
    is_status(set(3, 0, STREAM), GH_OK, &err, "a microbatch takes a slot");
    is_str(calls, "begin write ", "and its offsets are written");
    c.open.at->order.stream = STREAM;
    bank->used = 0;
    is_status(set(3, 0, STREAM), GH_OK, &err, "it may be given others");
    is_str(calls, "write ", "in the same slot");
    is_int(bank->used, 42, "and its bank counts as used now");
    is_status(set(3, 0, OTHER), GH_OK, &err, "also on another stream");
    is_str(calls, "move write ", "which follows the first");
    writes = false;
    is_status(set(3, 0, OTHER), GH_ERR_DEVICE, &err, "a write may fail");
    is_str(calls, "write poison ", "then nobody reads old offsets");
    is_int(c.open.at->eager, GH_REASON_PACKED, "and the passes are eager");
    writes = true;
    is_status(set(3, 0, OTHER), GH_OK, &err, "until others are given");
    is_int(c.open.at->eager, GH_REASON_NONE, "which are good");
    end();
}

static void test_a_flight_that_fails(void)
{
    if (!begin(2)) {
        return;
    }
    begins = false;
    is_status(set(1, 0, STREAM), GH_ERR_DEVICE, &err,
              "a flight that cannot begin");
    is_str(calls, "begin give ", "gives its slot back, and writes nothing");
    end();
    if (!begin(1)) {
        return;
    }
    set(0, 0, STREAM);
    is_status(set(1, 0, STREAM), GH_OK, &err, "without a free slot");
    is_str(calls, "without write ", "a microbatch has offsets of its own");
    is_int(n_slotless(), 1, "once");
    end();
}

/* Offsets without a slot are used again in a later step, by who can wait for
 * all that have read them. */
static void test_without_slots(void)
{
    const uint32_t flags = GH_PASS_FORWARD_ONLY;
    struct gh_order *order;

    if (!begin(1)) {
        return;
    }
    set(0, flags, STREAM);
    set(1, flags, STREAM);
    is_int(n_slotless(), 2, "in one step each has its own");
    c.streams.at = 3;
    gh_flight_note_slotless(&c);
    c.streams.at = 70;
    gh_flight_note_slotless(&c);
    ok(c.slotless.used ==
           (UINT64_C(1) << 3 | UINT64_C(1) << (GH_MAX_EDGES - 1)),
       "the streams of passes without a slot are noted");
    gh_packed_end_step(&c);
    order = moved;
    ok(order->used == (1 | UINT64_C(1) << 3 | UINT64_C(1) << 63) &&
           order->marked == 0 && !order->ordered &&
           order->stream == GH_NO_STREAM,
       "who comes next waits for all of them, as they are then");
    ok(c.slotless.used == 0, "and the next step begins anew");
    c.slotless.used = UINT64_C(1) << 5;
    gh_packed_end_step(&c);
    ok((order->used & UINT64_C(1) << 5) == 0,
       "a step that has not used it adds nothing");
    set(0, flags, STREAM);
    is_int(n_slotless(), 2, "in the next step they are used again");
    in_reach = false;
    set(1, flags, STREAM);
    is_int(n_slotless(), 3, "unless their readers cannot be waited for");
    end();
}

static void test_captured(void)
{
    if (!begin(1)) {
        return;
    }
    captures = GH_CAPTURING_YES;
    is_status(set(0, 0, STREAM), GH_ERR_UNSUPPORTED, &err,
              "a stream that the host captures writes no offsets");
    is_str(calls, "", "and takes no slot");
    end();
}

int main(void)
{
    test_slots();
    test_a_flight_that_fails();
    test_without_slots();
    test_captured();
    return done_with_device();
}
