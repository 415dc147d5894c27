/*
 * flags.c - the flags that ranks give each other.  A flag is a byte that a
 * copy sets, and that a stream of the rank that is told waits for and takes
 * down.
 *
 * state.h says what each row means.  One call of the driver waits for all
 * words of a row and takes them down.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "base/error.h"
#include "exchange/state.h"

#include <stdlib.h>

/* The unit in which a driver makes allocations.  A shared handle covers a whole
 * allocation. */
#define UNIT (UINT64_C(2) << 20)

/* Each row begins on a new line of memory. */
#define LINE 128u

/* ---- where they are ------------------------------------------------------ */

static char *byte_of(const gh_exchange *x, void *flags, enum gh_flag flag,
                     uint32_t rank)
{
    return (char *)flags + (size_t)flag * x->row_bytes + rank;
}

const unsigned char *gh_flags_seen(const gh_exchange *x, enum gh_flag flag)
{
    return (const unsigned char *)byte_of(x, x->seen, flag, 0);
}

static uint64_t bytes_of(const gh_exchange *x)
{
    return (uint64_t)GH_FLAGS * x->row_bytes;
}

void *gh_flag_at(const gh_exchange *x, enum gh_flag flag, uint32_t rank)
{
    return byte_of(x, x->peers[rank].flags, flag, x->rank);
}

const void *gh_flags_row(const gh_exchange *x, enum gh_flag flag)
{
    return byte_of(x, x->flags, flag, 0);
}

/* ---- a beginning --------------------------------------------------------- */

/* The value of the w-th word of a row when all other ranks have set their
 * bytes. */
static uint32_t all_set(const gh_exchange *x, uint32_t w)
{
    union {
        unsigned char bytes[4];
        uint32_t word;
    } up = { { 0, 0, 0, 0 } };

    for (uint32_t i = 0; i < 4; i++) {
        up.bytes[i] = w * 4 + i < x->n && w * 4 + i != x->rank;
    }
    return up.word;
}

/* Fills in the operations of a row: first a wait for each word that others
 * write, then a write of 0 to each.  All waits come first, so that if a rank
 * does not come, the bytes that are up say who came. */
static void fill_in(gh_exchange *x, enum gh_flag flag, struct gh_word *words)
{
    uint32_t at = 0;

    for (uint32_t w = 0; w * 4 < x->n; w++) {
        if (all_set(x, w) != 0) {
            words[at++] = (struct gh_word){ byte_of(x, x->flags, flag, w * 4),
                                            all_set(x, w), true };
        }
    }
    x->n_words = at;
    for (uint32_t i = 0; i < at; i++) {
        words[at + i] = (struct gh_word){ words[i].at, 0, false };
    }
}

/* Writes the row that is always set: copies from it set the flags of others,
 * and this rank's own when it gives up. */
static gh_status write_all_up(gh_exchange *x, gh_error *err)
{
    uint64_t calls = 0;
    gh_status status = GH_OK;

    for (uint32_t i = 0; i < x->n_words && status == GH_OK; i++) {
        const struct gh_word *word = &x->words[0][i];
        const size_t at =
            (size_t)((char *)word->at - byte_of(x, x->flags, 0, 0));
        const struct gh_word up = { byte_of(x, x->flags, GH_FLAG_ALL_SET,
                                            (uint32_t)at),
                                    word->value, false };

        status = gh_device_words(x->dev, &up, 1, x->side, &calls, err);
    }
    return status;
}

static gh_status make_words(gh_exchange *x, gh_error *err)
{
    const size_t most = 2 * (((size_t)x->n + 3) / 4);

    for (uint32_t flag = 0; flag < GH_FLAGS_CLEARED; flag++) {
        x->words[flag] = calloc(most, sizeof(*x->words[flag]));
        if (x->words[flag] == NULL) {
            return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for %u ranks",
                           x->n);
        }
        fill_in(x, flag, x->words[flag]);
    }
    return GH_OK;
}

gh_status gh_flags_make(gh_exchange *x, gh_error *err)
{
    void *memory = NULL;
    uint64_t used, room;
    gh_status status;

    x->row_bytes = (x->n + LINE - 1) / LINE * LINE;
    used = bytes_of(x) + sizeof(uint32_t);
    room = (used + UNIT - 1) / UNIT * UNIT;
    status = gh_device_alloc(x->dev, room, &memory, err);
    if (status != GH_OK) {
        return status;
    }
    x->flags = memory;
    x->blocks_ended = (char *)memory + bytes_of(x);
    status = gh_device_zero(x->dev, memory, used, x->side, err);
    if (status == GH_OK) {
        status = make_words(x, err);
    }
    if (status == GH_OK && gh_device_has_words(x->dev)) {
        status = write_all_up(x, err);
    }
    if (status == GH_OK) {
        status = gh_device_stream_wait(x->dev, x->side, err);
    }
    if (status == GH_OK) {
        status = gh_device_host_alloc(x->dev, bytes_of(x), &memory, err);
    }
    if (status == GH_OK) {
        x->seen = memory;
    }
    return status;
}

/* ---- use ----------------------------------------------------------------- */

static bool is_in_turn(const gh_exchange_op *op)
{
    return (op->flags & (GH_EXCHANGE_TURN_1 | GH_EXCHANGE_TURN_2)) != 0;
}

enum gh_flag gh_flag_of_arrival(const gh_exchange_op *op)
{
    if ((op->flags & GH_EXCHANGE_TURN_1) != 0) {
        return GH_FLAG_ARRIVED_1;
    }
    return (op->flags & GH_EXCHANGE_TURN_2) != 0 ? GH_FLAG_ARRIVED_2
                                                 : GH_FLAG_ARRIVED;
}

gh_status gh_flags_release_window(gh_exchange *x, void *stream, gh_error *err)
{
    return gh_flags_set_all(x, GH_FLAG_READY, stream, err);
}

gh_status gh_flags_say_ready(gh_exchange *x, const gh_exchange_op *op,
                             gh_error *err)
{
    return gh_exchange_order(op) == 0
               ? gh_flags_release_window(x, op->stream, err)
               : GH_OK;
}

gh_status gh_flags_wait_ready(gh_exchange *x, const gh_exchange_op *op,
                              gh_error *err)
{
    return is_in_turn(op) ? GH_OK
                          : gh_flags_wait(x, GH_FLAG_READY, op->stream, err);
}

/* Any byte of this row that is up will do. */
static const char *byte_that_is_up(const gh_exchange *x)
{
    return byte_of(x, x->flags, GH_FLAG_ALL_SET, x->rank == 0 ? 1 : 0);
}

gh_status gh_flags_set(gh_exchange *x, enum gh_flag flag, uint32_t rank,
                       void *stream, gh_error *err)
{
    x->stats.signal_copies++;
    return gh_device_put(x->dev, gh_flag_at(x, flag, rank), byte_that_is_up(x),
                         1, stream, err);
}

bool gh_exchange_has_batches(const gh_exchange *x, const void *stream)
{
    return x->n > 2 && !x->captures && !gh_device_is_legacy(stream) &&
           gh_device_has_batches(x->dev);
}

/* Sets the flags of some peers, from the first on, in one call.  Parts have gone
 * so before, and the driver has taken that. */
static gh_status set_some(gh_exchange *x, enum gh_flag flag, uint32_t first,
                          uint32_t *n_p, void *stream, gh_error *err)
{
    struct gh_copies_out copies;
    bool taken;
    gh_status status;

    for (copies.n = 0; copies.n < GH_COPIES_OUT && first + copies.n < x->n;
         copies.n++) {
        copies.to[copies.n] = (uintptr_t)gh_flag_at(
            x, flag, gh_exchange_peer(x, first + copies.n));
        copies.from[copies.n] = (uintptr_t)byte_that_is_up(x);
        copies.bytes[copies.n] = 1;
    }
    status = gh_device_put_all(x->dev, &copies, false, stream, &taken, err);
    *n_p = taken ? copies.n : 0;
    x->stats.signal_copies += *n_p;
    x->stats.batch_copies += taken;
    return status;
}

gh_status gh_flags_set_all(gh_exchange *x, enum gh_flag flag, void *stream,
                           gh_error *err)
{
    gh_status status = GH_OK;
    uint32_t i = 1, n;

    while (i < x->n && status == GH_OK) {
        n = 0;
        if (x->stats.batch_copies != 0 && gh_exchange_has_batches(x, stream)) {
            status = set_some(x, flag, i, &n, stream, err);
        }
        if (n == 0 && status == GH_OK) {
            status = gh_flags_set(x, flag, gh_exchange_peer(x, i), stream, err);
            n = 1;
        }
        i += n;
    }
    return status;
}

gh_status gh_flags_wait(gh_exchange *x, enum gh_flag flag, void *stream,
                        gh_error *err)
{
    x->stats.memory_ops += 2 * x->n_words;
    return gh_device_words(x->dev, x->words[flag], 2 * x->n_words, stream,
                           &x->stats.memory_op_calls, err);
}

/* Reads only the rows that are asked for, because others may be writing to the
 * rest. */
gh_status gh_flags_read(gh_exchange *x, enum gh_flag first, enum gh_flag end,
                        void *stream, gh_error *err)
{
    return gh_device_copy_out(
        x->dev, byte_of(x, x->seen, first, 0), byte_of(x, x->flags, first, 0),
        (uint64_t)(end - first) * x->row_bytes, stream, err);
}

void gh_flags_set_own(gh_exchange *x)
{
    const void *up = byte_of(x, x->flags, GH_FLAG_ALL_SET, 0);

    for (uint32_t flag = 0; flag < GH_FLAGS_CLEARED; flag++) {
        gh_device_put(x->dev, byte_of(x, x->flags, flag, 0), up,
                      (x->n + 3) / 4 * 4, x->side, NULL);
    }
}
