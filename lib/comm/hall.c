/*
 * hall.c - see hall.h.
 *
 * The halls of the process are a list.  A rank finds its own by the card of the
 * process's first rank, and the last rank that leaves frees it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "comm/hall.h"

#include "comm/where.h"

#include <pthread.h>
#include <stdlib.h>

struct gh_hall {
    struct gh_hall *next;
    uint64_t number; /* of the first rank's card */
    uint32_t n, inside;
    uint64_t come[]; /* the last gather of each rank; UINT64_MAX if the rank is
                        in another process, or has left */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gh_hall *halls;
static uint64_t last_card;

struct gh_hall_card gh_hall_card(void)
{
    struct gh_hall_card card = { .process = gh_where_process() };

    pthread_mutex_lock(&lock);
    card.number = ++last_card;
    pthread_mutex_unlock(&lock);
    return card;
}

static struct gh_hall *find(uint64_t number)
{
    struct gh_hall *hall = halls;

    while (hall != NULL && hall->number != number) {
        hall = hall->next;
    }
    return hall;
}

/* Adds a hall in which each rank of the process has come to gather 0. */
static struct gh_hall *add(const uint64_t *cards, uint32_t stride,
                           uint64_t process, uint64_t number, uint32_t n)
{
    struct gh_hall *hall = malloc(sizeof(*hall) + n * sizeof(hall->come[0]));

    if (hall == NULL) {
        return NULL;
    }
    *hall = (struct gh_hall){ .next = halls, .number = number, .n = n };
    for (uint32_t i = 0; i < n; i++) {
        hall->come[i] = cards[(size_t)i * stride] == process ? 0 : UINT64_MAX;
    }
    halls = hall;
    return hall;
}

struct gh_hall *gh_hall_enter(const uint64_t *cards, uint32_t stride,
                              uint32_t rank, uint32_t n)
{
    const uint64_t process = cards[(size_t)rank * stride];
    struct gh_hall *hall;
    uint32_t first = n, here = 0;

    for (uint32_t i = n; i-- > 0;) {
        if (cards[(size_t)i * stride] == process) {
            first = i;
            here++;
        }
    }
    if (here < 2) {
        return NULL;
    }
    pthread_mutex_lock(&lock);
    hall = find(cards[(size_t)first * stride + 1]);
    if (hall == NULL) {
        hall = add(cards, stride, process, cards[(size_t)first * stride + 1],
                   n);
    }
    if (hall != NULL) {
        hall->inside++;
    }
    pthread_mutex_unlock(&lock);
    return hall;
}

void gh_hall_come(struct gh_hall *hall, uint32_t rank, uint64_t number)
{
    pthread_mutex_lock(&lock);
    hall->come[rank] = number;
    pthread_mutex_unlock(&lock);
}

bool gh_hall_is_full(struct gh_hall *hall, uint64_t number)
{
    bool full = true;

    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < hall->n; i++) {
        full &= hall->come[i] >= number;
    }
    pthread_mutex_unlock(&lock);
    return full;
}

static void take_out(struct gh_hall *hall)
{
    struct gh_hall **at = &halls;

    while (*at != hall) {
        at = &(*at)->next;
    }
    *at = hall->next;
    free(hall);
}

void gh_hall_leave(struct gh_hall *hall, uint32_t rank)
{
    if (hall == NULL) {
        return;
    }
    pthread_mutex_lock(&lock);
    hall->come[rank] = UINT64_MAX;
    if (--hall->inside == 0) {
        take_out(hall);
    }
    pthread_mutex_unlock(&lock);
}
