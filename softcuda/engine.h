/*
 * engine.h - operations and when they run.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_ENGINE_H
#define SOFTCUDA_ENGINE_H

#include "driver/driver.h"
#include "softcuda/order.h"
#include "softcuda/work.h"

#include <stdbool.h>
#include <stdint.h>

/* Refers to an op without keeping it: ops are recycled once they have run,
 * and then only their serial and end time matter. */
struct mark {
    struct op *op;
    uint64_t serial;
    uint64_t end_ns;
};

struct op {
    uint64_t serial; /* changes when the op has run */
    uint64_t seq;
    struct op *next; /* in the free list */

    CUstream stream;
    const struct work *work; /* &own, or a node's */
    struct work own;
    CUgraphExec exec; /* held until the op has run */
    uint32_t node;

    struct stamp at;
    uint64_t ready_ns, end_ns;

    uint64_t need;
    uint32_t unmet, ready_index;
    struct mark *deps;
    uint32_t n_deps, deps_room;
    struct op **succ;
    uint32_t n_succ, succ_room;
};

struct op *op_new(void);
void op_discard(struct op *op);
void op_after(struct op *op, const struct mark *mark);
struct mark op_submit(struct op *op);
bool mark_pending(const struct mark *mark);

void engine_run_until(const struct mark *mark);
void engine_run_ctx(CUcontext ctx);
void engine_run_all(void);
bool engine_poll(const struct mark *mark);
void engine_pump(void);
void engine_seed(uint64_t seed);

#endif
