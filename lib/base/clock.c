/*
 * clock.c - see clock.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "base/clock.h"

#include <time.h>

#define SHORTEST_NAP_US 20
#define LONGEST_NAP_US 1000

uint64_t gh_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

struct gh_deadline gh_deadline_in(uint32_t seconds)
{
    return (struct gh_deadline){
        .until_ns = gh_now_ns() + seconds * UINT64_C(1000000000),
        .nap_us = SHORTEST_NAP_US,
    };
}

bool gh_deadline_nap(struct gh_deadline *deadline)
{
    const struct timespec nap = { .tv_nsec = deadline->nap_us * 1000L };

    if (gh_now_ns() >= deadline->until_ns) {
        return false;
    }
    nanosleep(&nap, NULL);
    if (deadline->nap_us < LONGEST_NAP_US) {
        deadline->nap_us += deadline->nap_us / 4;
    }
    return true;
}
