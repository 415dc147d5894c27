/*
 * stuck.h - finds that nobody is left to come.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTNCCL_STUCK_H
#define SOFTNCCL_STUCK_H

#include <stdint.h>

/* Called by a thread that waits, when nothing has happened for so long. */
void stuck_watch(uint64_t quiet_ms);

#endif
