/*
 * stuck.h - detects deadlocks: no rank is left that could come.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTNCCL_STUCK_H
#define SOFTNCCL_STUCK_H

#include <stdint.h>

/* Called by a waiting thread when nothing has happened for `quiet_ms`. */
void stuck_watch(uint64_t quiet_ms);
/* The longest that anything waits: SOFTNCCL_TIMEOUT. */
uint64_t stuck_limit_ms(void);

#endif
