/*
 * overlap_link.c - see overlap_link.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "bench/overlap_link.h"

#include <string.h>

const enum exchange_by link_kinds[LINK_KINDS] = { BY_COPY, BY_NCCL, BY_KERNEL };

enum { OFFSETS = 16 /* so many offsets into what comes from the host */ };

/* ---- who sends how much -------------------------------------------------- */

double link_share(const struct link *l)
{
    return l->side->rank->n > 2 ? 0.5 : 0.75;
}

/* The part of `bytes` that goes to rank 0's experts, or to those of any other
 * rank. */
static uint64_t part_of(const struct link *l, uint64_t bytes, bool first)
{
    const double share = link_share(l);
    const double part =
        first ? share : (1 - share) / (double)(l->side->rank->n - 1);
    const uint64_t whole = (uint64_t)((double)bytes * part);

    return whole - whole % (whole < 65536 ? 4 : 512);
}

uint64_t link_room(const struct link *l, bool uneven, uint64_t bytes)
{
    return uneven ? l->side->rank->n * part_of(l, bytes, true) + l->unit
                  : bytes;
}

uint64_t link_flow(const struct link *l)
{
    return l->uneven ? (l->side->rank->n - 1) * part_of(l, l->bytes, true)
                     : l->bytes;
}

int link_products(const struct link *l, bool uneven, int products)
{
    const uint32_t n = uneven ? l->side->rank->n : 1;
    double share = 1;
    int rounded;

    if (uneven) {
        share = l->side->rank->rank == 0
                    ? link_share(l)
                    : (1 - link_share(l)) / (double)(n - 1);
    }
    rounded = (int)(share * n * products + 0.5);
    return rounded > 1 ? rounded : 1;
}

/* Fills in how much each rank sends to each, on the way to the experts or
 * back. */
static void fill_table(const struct link *l, const struct experts_node *node,
                       uint64_t *table)
{
    const uint32_t n = l->side->rank->n;
    const bool back = (node->direction == GH_FORWARD) ==
                      (node->stage == STAGE_COMBINE);

    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < n; j++) {
            table[back ? j * n + i : i * n + j] =
                part_of(l, l->bytes, j == 0);
        }
    }
}

/* ---- one exchange -------------------------------------------------------- */

/* Copies to the host and from the host. */
static void to_the_host(const struct link *l, const struct experts_node *node,
                        CUdeviceptr from, CUdeviceptr to)
{
    const uint32_t offset = (3 * node->layer + 5 * node->microbatch +
                             node->stage + 7 * node->direction) %
                            OFFSETS;

    NEED(l->bench, cuEventRecord, (l->fork, node->stream));
    NEED(l->bench, cuStreamWaitEvent, (l->stream, l->fork, 0));
    NEED(l->bench, cuMemcpyDtoHAsync, (l->sent, from, l->bytes, node->stream));
    NEED(l->bench, cuMemcpyHtoDAsync,
         (to, l->received + offset * l->unit, l->bytes, l->stream));
    NEED(l->bench, cuEventRecord, (l->join, l->stream));
    NEED(l->bench, cuStreamWaitEvent, (node->stream, l->join, 0));
}

void link_exchange(void *user, const struct experts_node *node,
                   CUdeviceptr from, CUdeviceptr to)
{
    const struct link *l = user;
    const void *send = (const void *)(uintptr_t)from;
    uint64_t table[RANKS_MOST * RANKS_MOST];
    uint32_t turn = 0;

    if (l->side != NULL && layers_take_turns(node)) {
        turn = side_turn(l->side);
    }
    if (l->side == NULL) {
        to_the_host(l, node, from, to);
    } else if (l->uneven) {
        fill_table(l, node, table);
        side_trade(l->side, l->x[l->by], send, to - l->window, table,
                   turn, node->stream);
    } else {
        side_send(l->side, l->x[l->by], send, to - l->window, l->bytes,
                  turn, node->stream);
    }
}

void link_wait(struct link *l)
{
    if (l->side != NULL) {
        side_wait(l->side, l->x[l->by]);
    } else {
        NEED(l->bench, cuCtxSynchronize, ());
    }
}

void link_most(const struct link *l, double *values, uint32_t n)
{
    if (l->side != NULL) {
        rank_most(l->side->rank, values, n);
    }
}

/* ---- its life ------------------------------------------------------------ */

void link_open(struct link *l, const struct bench *bench, struct side *side)
{
    memset(l, 0, sizeof(*l));
    l->bench = bench;
    l->side = side;
    l->unit = bench->options.soft ? 64 : 4096;
    NEED(bench, cuStreamCreate, (&l->stream, CU_STREAM_NON_BLOCKING));
    NEED(bench, cuEventCreate, (&l->fork, CU_EVENT_DISABLE_TIMING));
    NEED(bench, cuEventCreate, (&l->join, CU_EVENT_DISABLE_TIMING));
}

void link_close(struct link *l)
{
    NEED(l->bench, cuStreamDestroy, (l->stream));
    NEED(l->bench, cuEventDestroy, (l->fork));
    NEED(l->bench, cuEventDestroy, (l->join));
}

void link_take(struct link *l, const struct layers *layers, uint64_t room)
{
    const uint64_t host = room + OFFSETS * l->unit;

    if (l->side == NULL) {
        NEED(l->bench, cuMemAllocHost, ((void **)&l->sent, room));
        NEED(l->bench, cuMemAllocHost, ((void **)&l->received, host));
        products_fill(layers->products, l->received, host, 1);
        return;
    }
    l->window = layers->memory;
    for (size_t i = 0; i < LINK_KINDS; i++) {
        const enum exchange_by by = link_kinds[i];

        if (side_has(l->side, by)) {
            l->x[by] = side_exchange(l->side, by,
                                     (void *)(uintptr_t)layers->memory,
                                     layers->memory_bytes);
        }
    }
}

void link_give(struct link *l)
{
    if (l->side == NULL) {
        NEED(l->bench, cuMemFreeHost, (l->sent));
        NEED(l->bench, cuMemFreeHost, (l->received));
        return;
    }
    for (size_t i = 0; i < LINK_KINDS; i++) {
        l->bench->gh->exchange_destroy(l->x[link_kinds[i]]);
        l->x[link_kinds[i]] = NULL;
    }
    rank_meet(l->side->rank);
}
