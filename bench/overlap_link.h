/*
 * overlap_link.h - what the exchanges of bench/overlap go over.
 *
 * Of one rank alone: to the host and from there, at once.  Of several ranks:
 * to each other, by the library's copies or kernel or by NCCL, the same bytes.
 * They are spread evenly, or one rank has a part of all tokens that is larger
 * than the others'.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_OVERLAP_LINK_H
#define BENCH_OVERLAP_LINK_H

#include "bench/layers.h"
#include "bench/side.h"

/* The kinds of exchange between ranks.  The first is BY_COPY. */
enum { LINK_KINDS = 3 };
extern const enum exchange_by link_kinds[LINK_KINDS];

struct link {
    const struct bench *bench;
    struct side *side; /* NULL: one rank alone */
    uint64_t unit;     /* of which the bytes of an exchange are a multiple */
    uint64_t bytes;    /* of an exchange, that a rank sends */
    bool uneven;       /* rank 0 has link_share() of all tokens */
    enum exchange_by by;

    CUdeviceptr window; /* of several ranks: all that they may write to */
    gh_exchange *x[BY_KERNEL + 1];

    char *sent, *received; /* of one: on the host */
    CUstream stream;       /* of what is received */
    CUevent fork, join;
};

void link_open(struct link *l, const struct bench *bench, struct side *side);
void link_close(struct link *l);
/* For exchanges of up to `room` bytes, of which those between ranks are
 * received in `layers`. */
void link_take(struct link *l, const struct layers *layers, uint64_t room);
void link_give(struct link *l);

/* struct layers.exchange; `user` is the link. */
void link_exchange(void *user, const struct experts_node *node,
                   CUdeviceptr from, CUdeviceptr to);
/* For all that was issued, and for the other ranks. */
void link_wait(struct link *l);
/* Each becomes the largest that a rank has. */
void link_most(const struct link *l, double *values, uint32_t n);

/* Of all tokens, rank 0's where they are uneven: half, of two ranks three
 * quarters. */
double link_share(const struct link *l);
/* The most that a rank sends, or that comes to it, in an exchange. */
uint64_t link_flow(const struct link *l);
/* The most bytes that a place has to hold where ranks send `bytes` each. */
uint64_t link_room(const struct link *l, bool uneven, uint64_t bytes);
/* Products that the experts of this rank take where they take `products` if
 * tokens are even: in proportion, and one at least. */
int link_products(const struct link *l, bool uneven, int products);

#endif
