/*
 * order.h - happens-before: lanes, vector clocks, and the host.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_ORDER_H
#define SOFTCUDA_ORDER_H

#include <stdbool.h>
#include <stdint.h>

/* What is known about every lane.  It is immutable once shared. */
struct vc {
    uint32_t refs;
    uint32_t n;
    uint64_t t[];
};

/* A point in the happens-before order: one epoch of a lane.  It comes after
 * everything in vc. */
struct stamp {
    struct vc *vc;
    uint32_t lane;
    uint64_t epoch;
};

struct vc *vc_ref(struct vc *vc);
void vc_drop(struct vc *vc);
/* Adds what the stamp knows, and the stamp itself.  True if that was new. */
bool vc_join(struct vc **vc_p, const struct stamp *stamp);
/* Adds everything that the other clock knows; NULL knows nothing. */
void vc_add(struct vc **vc_p, const struct vc *from);
uint64_t vc_get(const struct vc *vc, uint32_t lane);

uint32_t lane_take(void);
void lane_give(uint32_t lane);
/* Lets any unused lane serve again.  No earlier access counts any more. */
void lanes_forget(void);
uint64_t lane_next(uint32_t lane);
uint64_t lane_last(uint32_t lane);

void stamp_set(struct stamp *stamp, const struct stamp *value);
void stamp_clear(struct stamp *stamp);
/* Notes that the calling thread's host comes after the stamp, or that it has
 * waited until a time. */
void host_join(const struct stamp *stamp);
void host_until(uint64_t ns);

#endif
