/*
 * packed.c - see packed.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"
#include "capture/packed.h"

#include "bank/lengths.h"
#include "base/error.h"
#include "capture/call.h"
#include "capture/capture.h"
#include "capture/flight.h"

#include <stdlib.h>

/* Arrays of a microbatch without a slot. */
struct gh_slotless {
    struct gh_slotless *next;
    void *address;
    uint64_t bytes;
    struct gh_order order;
    bool busy; /* in this step */
};

/* ---- where it goes ------------------------------------------------------- */

static uint32_t room_of(const struct gh_bank *bank)
{
    return bank->sequences + 2;
}

static uint64_t array_bytes(const struct gh_bank *bank)
{
    return gh_memory_align(room_of(bank) * sizeof(int32_t));
}

/* The bytes of both arrays and of the two numbers. */
static uint64_t all_bytes(const struct gh_bank *bank)
{
    return 2 * array_bytes(bank) + gh_memory_align(2 * sizeof(int32_t));
}

static struct gh_offset_arrays arrays_at(const struct gh_bank *bank,
                                         void *address)
{
    char *numbers = (char *)address + 2 * array_bytes(bank);

    return (struct gh_offset_arrays){
        .actual = address,
        .padded = (char *)address + array_bytes(bank),
        .longest = numbers,
        .count = numbers + sizeof(int32_t),
        .room = room_of(bank),
    };
}

/* Finds the block of the slot, or makes it. */
static gh_status find_block(struct gh_capture *c, uint32_t chunk,
                            struct gh_block **block_p, gh_error *err)
{
    struct gh_bank *bank = c->open.bank;
    struct gh_banks *banks = &c->banks;
    const size_t at = (size_t)chunk * banks->n_slots + c->open.slot;
    struct gh_device_before before;
    gh_status status;

    if (bank->packed == NULL) {
        bank->packed = calloc((size_t)banks->n_chunks * banks->n_slots,
                              sizeof(*bank->packed));
        if (bank->packed == NULL) {
            return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for sequences");
        }
    }
    if (bank->packed[at] == NULL) {
        before = gh_device_enter(c->dev);
        status = gh_shelf_take(&banks->shelves[at], &c->memory, bank->number,
                               all_bytes(bank), all_bytes(bank),
                               &bank->packed[at], err);
        gh_device_leave(c->dev, before);
        if (status != GH_OK) {
            return status;
        }
        bank->bytes += bank->packed[at]->bytes;
    }
    /* An entry of another bank may have inputs in this memory.  With no writer,
     * it takes them as overwritten. */
    bank->packed[at]->writer = NULL;
    *block_p = bank->packed[at];
    return GH_OK;
}

static struct gh_slotless *find_slotless(const struct gh_capture *c,
                                         uint64_t bytes, void *stream)
{
    for (struct gh_slotless *l = c->slotless.first; l != NULL; l = l->next) {
        if (!l->busy && l->bytes >= bytes &&
            gh_order_reach(&l->order, &c->streams, stream)) {
            return l;
        }
    }
    return NULL;
}

static gh_status add_slotless(struct gh_capture *c, uint64_t bytes,
                              struct gh_slotless **slotless_p, gh_error *err)
{
    struct gh_slotless *slotless = calloc(1, sizeof(*slotless));
    struct gh_device_before before;
    gh_status status;

    if (slotless == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for sequences");
    }
    before = gh_device_enter(c->dev);
    status = gh_memory_alloc(&c->memory, bytes, &slotless->address, err);
    gh_device_leave(c->dev, before);
    if (status != GH_OK) {
        free(slotless);
        return status;
    }
    slotless->bytes = bytes;
    gh_order_init(&slotless->order);
    slotless->next = c->slotless.first;
    c->slotless.first = slotless;
    *slotless_p = slotless;
    return GH_OK;
}

/* Takes arrays for a microbatch without a slot.  The stream waits for all that
 * has read them before. */
static gh_status take_slotless(struct gh_capture *c, void *stream,
                               void **address_p, gh_error *err)
{
    const uint64_t bytes = all_bytes(c->open.bank);
    struct gh_slotless *slotless = find_slotless(c, bytes, stream);
    gh_status status = GH_OK;

    if (slotless == NULL) {
        status = add_slotless(c, bytes, &slotless, err);
    }
    if (status == GH_OK) {
        status = gh_order_move(&slotless->order, &c->streams, stream, err);
    }
    if (status == GH_OK) {
        slotless->busy = true;
        *address_p = slotless->address;
    }
    return status;
}

bool gh_packed_are_set(const struct gh_capture *c)
{
    const struct gh_slotless *l = c->slotless.first;

    while (l != NULL && !l->busy) {
        l = l->next;
    }
    return l != NULL;
}

uint64_t gh_packed_bytes(const struct gh_capture *c)
{
    uint64_t bytes = 0;

    for (struct gh_slotless *l = c->slotless.first; l != NULL; l = l->next) {
        bytes += l->bytes;
    }
    return bytes;
}

void gh_packed_end_step(struct gh_capture *c)
{
    for (struct gh_slotless *l = c->slotless.first; l != NULL; l = l->next) {
        if (!l->busy) {
            continue;
        }
        l->busy = false;
        l->order.ordered = false;
        l->order.stream = GH_NO_STREAM;
        l->order.marked = 0;
        l->order.used |= c->slotless.used;
    }
    c->slotless.used = 0;
}

void gh_packed_free(struct gh_capture *c)
{
    while (c->slotless.first != NULL) {
        struct gh_slotless *slotless = c->slotless.first;

        c->slotless.first = slotless->next;
        gh_order_free(&slotless->order, c->dev);
        gh_memory_free(&c->memory, slotless->address, slotless->bytes);
        free(slotless);
    }
}

/* The parts would read the sequences of the flight before. */
GH_COLD gh_status gh_packed_refuse_none(const gh_pass *pass,
                                        const struct gh_bank *bank,
                                        gh_error *err)
{
    return gh_fail(err, GH_ERR_STATE,
                   "gh_layer_enter: microbatch %u of %s begins without "
                   "its sequences, and would read those of another: call "
                   "gh_packed_set first",
                   pass->microbatch, gh_bank_describe(bank).text);
}

/* ---- the call ------------------------------------------------------------ */

static gh_status check_call(const struct gh_capture *c, const gh_packed *packed,
                            gh_error *err)
{
    const struct gh_flight *flight =
        &c->slots->chunks[packed->chunk].flights[packed->microbatch];

    if (c->open.active) {
        return gh_fail(err, GH_ERR_STATE,
                       "gh_packed_set: a pass is open: call gh_layer_exit or "
                       "gh_layer_cancel first");
    }
    if (packed->flags == 0 && flight->waiting != 0) {
        return gh_fail(err, GH_ERR_STATE,
                       "gh_packed_set: passes of microbatch %u have run: call "
                       "it before the first of them",
                       packed->microbatch);
    }
    if (c->dev == NULL) {
        return gh_fail(err, GH_ERR_NO_DRIVER,
                       "gh_packed_set needs a driver also where "
                       "GRAPHHOOKS_ENABLE is 0: name one in GRAPHHOOKS_DRIVER");
    }
    return GH_OK;
}

static gh_status check_bank(const struct gh_bank *bank, gh_error *err)
{
    if (bank->sequences != 0) {
        return GH_OK;
    }
    return gh_fail(err, GH_ERR_INVALID,
                   "gh_packed.bank is %u, which holds no sequences: declare "
                   "one with gh_bank_desc.sequences and tokens",
                   bank->number);
}

/* The host may launch its graph when another microbatch already has the
 * arrays. */
static GH_COLD gh_status refuse_capture(const gh_pass *pass, gh_error *err)
{
    return gh_fail(err, GH_ERR_UNSUPPORTED,
                   "gh_packed_set: the host is capturing stream %p, and would "
                   "write offsets whenever it launches that: call it before "
                   "the capture begins, or use offsets of your own",
                   pass->stream);
}

/* Takes a slot for a microbatch that has no flight yet. */
static gh_status take_slot(struct gh_capture *c, const gh_pass *pass,
                           gh_error *err)
{
    struct gh_slots_chunk *chunk = &c->slots->chunks[c->open.chunk];
    gh_status status;

    if (chunk->free == 0) {
        return gh_flight_without(c, pass, GH_SLOTS_NONE, err);
    }
    c->open.slot = gh_slots_take(chunk, pass->microbatch);
    c->open.at = &chunk->slots[c->open.slot];
    status = gh_flight_begin(c, pass, err);
    if (status != GH_OK) {
        gh_open_give_slot_up(c);
    }
    return status;
}

/* The microbatch takes a slot, or goes without one.  Its passes then do the
 * same. */
static gh_status join(struct gh_capture *c, const gh_pass *pass, gh_error *err)
{
    struct gh_slots_chunk *chunk = &c->slots->chunks[c->open.chunk];
    const struct gh_flight *flight = &chunk->flights[pass->microbatch];
    gh_status status;

    if (flight->slot != GH_FLIGHT_NO_SLOT) {
        c->open.slot = flight->slot;
        c->open.at = &chunk->slots[flight->slot];
        c->open.at->bank = c->open.bank;
        c->open.bank->used = c->open.number;
        return c->open.at->order.stream == pass->stream
                   ? GH_OK
                   : gh_flight_move(c, c->open.at, pass->stream, err);
    }
    status = take_slot(c, pass, err);
    if (status == GH_OK) {
        gh_slots_note_packed(c->slots, c->open.chunk, pass->microbatch);
    }
    return status;
}

static void tell(const struct gh_capture *c,
                 const struct gh_offset_arrays *arrays,
                 gh_packed_buffers *buffers)
{
    const uint64_t bytes = arrays->room * sizeof(int32_t);

    buffers->slot = c->open.slot;
    buffers->cu_seqlens =
        (gh_buffer){ arrays->actual, bytes, GH_BUFFER_STATIC, 0 };
    buffers->cu_seqlens_padded =
        (gh_buffer){ arrays->padded, bytes, GH_BUFFER_STATIC, 0 };
    buffers->max_seqlen =
        (gh_buffer){ arrays->longest, sizeof(int32_t), GH_BUFFER_STATIC, 0 };
    buffers->n_sequences =
        (gh_buffer){ arrays->count, sizeof(int32_t), GH_BUFFER_STATIC, 0 };
}

/* The sequences could not be written.  The passes of the flight run eagerly,
 * and the arrays are overwritten so that nobody reads old ones. */
static void spoil(struct gh_capture *c, void *stream)
{
    const struct gh_bank *bank = c->open.bank;
    const size_t at =
        (size_t)c->open.chunk * c->banks.n_slots + c->open.slot;

    c->open.at->eager = GH_REASON_PACKED;
    if (bank->packed != NULL && bank->packed[at] != NULL) {
        const struct gh_offset_arrays arrays =
            arrays_at(bank, bank->packed[at]->address);

        bank->packed[at]->writer = NULL;
        gh_device_poison_offsets(c->dev, &arrays, stream, NULL);
    }
}

static gh_status write(struct gh_capture *c, const gh_packed *packed,
                       gh_packed_buffers *buffers, gh_error *err)
{
    struct gh_lengths lengths;
    struct gh_offset_arrays arrays;
    struct gh_block *block = NULL;
    void *address = NULL;
    gh_status status = gh_lengths_take(c->open.bank, packed, &lengths, err);

    if (status != GH_OK) {
        return status;
    }
    if (c->open.slot == GH_SLOT_NONE) {
        status = take_slotless(c, packed->stream, &address, err);
    } else {
        status = find_block(c, packed->chunk, &block, err);
    }
    if (status != GH_OK) {
        return status;
    }
    arrays =
        arrays_at(c->open.bank, block != NULL ? block->address : address);
    status = gh_device_write_offsets(c->dev, &arrays, &lengths, packed->stream,
                                     err);
    if (status == GH_OK) {
        tell(c, &arrays, buffers);
    }
    return status;
}

gh_status gh_capture_set_packed(struct gh_capture *c, const gh_packed *packed,
                                gh_packed_buffers *buffers, gh_error *err)
{
    const gh_pass pass = { .struct_size = sizeof(pass),
                           .direction = GH_FORWARD,
                           .microbatch = packed->microbatch,
                           .bank = packed->bank,
                           .stream = packed->stream };
    gh_status status = check_call(c, packed, err);

    if (status == GH_OK) {
        status = gh_call_begin(c, &pass, err);
    }
    if (status == GH_OK) {
        status = check_bank(c->open.bank, err);
    }
    if (status != GH_OK) {
        return status;
    }
    gh_open_name(&c->open, &pass);
    c->open.number = c->counts.enters;
    c->open.action = GH_ACTION_RUN;
    c->open.asked = false;
    c->open.chunk = packed->chunk;
    c->open.slot = GH_SLOT_NONE;
    c->open.at = NULL;
    c->open.entry = NULL;
    if (gh_open_captured(c) == GH_CAPTURING_YES) {
        return refuse_capture(&pass, err);
    }
    if (packed->flags == 0) {
        status = join(c, &pass, err);
        if (status != GH_OK) {
            return status;
        }
    }
    status = write(c, packed, buffers, err);
    if (c->open.slot != GH_SLOT_NONE) {
        c->open.at->packed = c->open.at->taken;
        c->open.at->eager = GH_REASON_NONE;
        if (status != GH_OK) {
            spoil(c, packed->stream);
        }
    }
    return status;
}
