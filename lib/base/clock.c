/*
 * clock.c - see clock.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "base/clock.h"

#include <time.h>

#define SHORTEST_WAIT_US 20
#define LONGEST_WAIT_US 1000

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
        .wait_us = SHORTEST_WAIT_US,
    };
}

bool gh_deadline_back_off(struct gh_deadline *deadline)
{
    const struct timespec wait = { .tv_nsec = deadline->wait_us * 1000L };

    if (gh_now_ns() >= deadline->until_ns) {
        return false;
    }
    nanosleep(&wait, NULL);
    if (deadline->wait_us < LONGEST_WAIT_US) {
        deadline->wait_us += deadline->wait_us / 4;
    }
    return true;
}
