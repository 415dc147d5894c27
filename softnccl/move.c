/*
 * move.c - what an operation does to the memory of its ranks.
 *
 * First all reads and writes are recorded for the detection of races, as done
 * by their ranks: reads at the begin of a rank's visit, writes at its end.
 * Only then bytes are moved, through a copy of everything that is sent, so that
 * a rank may receive into the memory that it sends from.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softnccl/move.h"

#include "softcuda/softcuda.h"
#include "softnccl/types.h"

#include <stdlib.h>
#include <string.h>

/* One piece: these bytes of what one place sends go there at another. */
struct piece {
    uint32_t from, to;
    size_t read_at, write_at, bytes;
};

static const char *sent_by(const struct match *match, uint32_t place)
{
    return match->parts[place].item->send;
}

static char *received_by(const struct match *match, uint32_t place)
{
    return match->parts[place].item->recv;
}

/* ---- reductions ---------------------------------------------------------- */

static bool touch_reduction(const struct match *match,
                            softcuda_rendezvous *rendezvous, size_t sent,
                            size_t received)
{
    for (uint32_t i = 0; i < match->places; i++) {
        if (!device->touch(rendezvous, i, sent_by(match, i), sent,
                           SOFTCUDA_READ)) {
            return false;
        }
    }
    for (uint32_t i = 0; i < match->places; i++) {
        for (uint32_t from = 0; from < match->places; from++) {
            device->flow(rendezvous, from, i);
        }
        if (!device->touch(rendezvous, i, received_by(match, i), received,
                           SOFTCUDA_WRITE)) {
            return false;
        }
    }
    return true;
}

static bool reduce(const struct match *match, softcuda_rendezvous *rendezvous,
                   bool scatter, uint64_t *bytes_p)
{
    const struct item *item = match->parts[0].item;
    const size_t received = item->count * type_bytes(item->type);
    const size_t count = scatter ? item->count * match->places : item->count;
    const size_t sent = scatter ? received * match->places : received;
    char *sum = malloc(sent + 1);

    *bytes_p = sent;
    if (sum == NULL || !touch_reduction(match, rendezvous, sent, received)) {
        free(sum);
        return false;
    }
    memcpy(sum, sent_by(match, 0), sent);
    for (uint32_t i = 1; i < match->places; i++) {
        type_reduce(item->type, item->op, sum, sent_by(match, i), count);
    }
    if (item->op == ncclAvg) {
        type_divide(item->type, sum, count, (int)match->places);
    }
    for (uint32_t i = 0; i < match->places; i++) {
        memcpy(received_by(match, i), scatter ? sum + i * received : sum,
               received);
    }
    free(sum);
    return true;
}

/* ---- pieces -------------------------------------------------------------- */

static bool touch_piece(const struct match *match,
                        softcuda_rendezvous *rendezvous, const struct piece *p)
{
    return device->touch(rendezvous, p->from,
                         sent_by(match, p->from) + p->read_at, p->bytes,
                         SOFTCUDA_COPY_FROM) &&
           device->touch(rendezvous, p->to,
                         received_by(match, p->to) + p->write_at, p->bytes,
                         SOFTCUDA_COPY_TO);
}

static bool move(const struct match *match, softcuda_rendezvous *rendezvous,
                 const struct piece *pieces, size_t n, uint64_t *bytes_p)
{
    size_t total = 0, at = 0;
    char *staged;

    for (size_t i = 0; i < n; i++) {
        device->flow(rendezvous, pieces[i].from, pieces[i].to);
        total += pieces[i].bytes;
    }
    *bytes_p = total / match->places;
    staged = malloc(total + 1);
    if (staged == NULL) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if (pieces[i].bytes != 0 &&
            !touch_piece(match, rendezvous, &pieces[i])) {
            free(staged);
            return false;
        }
    }
    for (size_t i = 0; i < n; at += pieces[i++].bytes) {
        memcpy(staged + at,
               pieces[i].bytes != 0
                   ? sent_by(match, pieces[i].from) + pieces[i].read_at
                   : staged,
               pieces[i].bytes);
    }
    at = 0;
    for (size_t i = 0; i < n; at += pieces[i++].bytes) {
        if (pieces[i].bytes != 0) {
            memcpy(received_by(match, pieces[i].to) + pieces[i].write_at,
                   staged + at, pieces[i].bytes);
        }
    }
    free(staged);
    return true;
}

static bool copy(const struct match *match, softcuda_rendezvous *rendezvous,
                 uint64_t *bytes_p)
{
    const struct item *item = match->parts[0].item;
    const size_t bytes = item->count * type_bytes(item->type);
    const uint32_t n = match->places;
    struct piece *pieces = calloc((size_t)n * n, sizeof(*pieces));
    size_t count = 0;
    bool done;

    if (pieces == NULL) {
        return false;
    }
    for (uint32_t from = 0; from < n; from++) {
        for (uint32_t to = 0; to < n; to++) {
            struct piece piece = { from, to, 0, from * bytes, bytes };

            if (item->kind == BROADCAST) {
                piece.write_at = 0;
                if ((int)from != item->peer) {
                    continue;
                }
            } else if (item->kind == ALL_TO_ALL) {
                piece.read_at = to * bytes;
            }
            pieces[count++] = piece;
        }
    }
    done = move(match, rendezvous, pieces, count, bytes_p);
    free(pieces);
    return done;
}

bool move_match(const struct match *match, softcuda_rendezvous *rendezvous,
                uint64_t *bytes_p)
{
    const struct item *item = match->parts[0].item;
    const struct piece sent = { 0, 1, 0, 0,
                                item->count * type_bytes(item->type) };

    switch (item->kind) {
    case ALL_REDUCE:
        return reduce(match, rendezvous, false, bytes_p);
    case REDUCE_SCATTER:
        return reduce(match, rendezvous, true, bytes_p);
    case SEND:
        return move(match, rendezvous, &sent, 1, bytes_p);
    default:
        return copy(match, rendezvous, bytes_p);
    }
}
