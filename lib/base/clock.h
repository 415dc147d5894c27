/*
 * clock.h - the time, and waits that have a deadline.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_BASE_CLOCK_H
#define GH_BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

uint64_t gh_now_ns(void);

/* Until when something is waited for, with waits that become longer. */
struct gh_deadline {
    uint64_t until_ns; /* of gh_now_ns() */
    uint32_t wait_us;
};
struct gh_deadline gh_deadline_in(uint32_t seconds);
/* False if the time is over; otherwise sleeps a little. */
bool gh_deadline_back_off(struct gh_deadline *deadline);

#endif
