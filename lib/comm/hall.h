/*
 * hall.h - where the ranks of one process meet on the host.
 *
 * A kernel of NCCL runs until all ranks have come.  While it runs, a call that
 * frees memory does not return: the driver lets it wait for the kernels of
 * every device that reaches its own, and the devices of one process do.  So if
 * one thread launched a gather while another still freed memory, each would
 * wait for the other.  In a hall the threads wait on the host first, and launch
 * when all of them have come.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_COMM_HALL_H
#define GH_COMM_HALL_H

#include <stdbool.h>
#include <stdint.h>

struct gh_hall;

/* What a rank tells the others, so that they find its hall. */
struct gh_hall_card {
    uint64_t process; /* equal on the threads of one process */
    uint64_t number;  /* its own within the process */
};
#define GH_HALL_WORDS 2u

struct gh_hall_card gh_hall_card(void);

/* The hall of this rank, which the other ranks of its process have as well.
 * `cards` are those of all ranks, each `stride` words after the one before.
 * NULL: no other rank is in this process, or there is no memory for a hall. */
struct gh_hall *gh_hall_enter(const uint64_t *cards, uint32_t stride,
                              uint32_t rank, uint32_t n);
/* Says that this rank has come to gather `number`. */
void gh_hall_come(struct gh_hall *hall, uint32_t rank, uint64_t number);
/* Whether all ranks of the process have, or have left.  Never waits. */
bool gh_hall_is_full(struct gh_hall *hall, uint64_t number);
/* NULL is allowed.  Nobody waits for this rank any more. */
void gh_hall_leave(struct gh_hall *hall, uint32_t rank);

#endif
