/*
 * costs.h - what bench/overlap has measured, for bench/scale.
 *
 * A file of lines, as bench/overlap writes it with --costs:
 *
 *     device NAME
 *     tokens BYTES                      what the experts of a layer multiply
 *     ranks N                           that exchange; none: with the host
 *     shape LAYERS BYTES RATIO NAME     and of each shape, after its line:
 *     node DIRECTION STAGE NS           alone, a compute node or an exchange
 *     host NS                           until a pair of layers is issued
 *     measured off|fixed|auto NS        a run of both chunks
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_COSTS_H
#define BENCH_COSTS_H

#include "bench/experts.h"

enum cost_way { COST_OFF, COST_FIXED, COST_AUTO, COST_WAYS };
extern const char *const cost_ways[COST_WAYS];
extern const char *const cost_directions[EXPERTS_DIRECTIONS];
extern const char *const cost_stages[STAGES];

struct costs_shape {
    char name[64];
    double ratio;
    uint32_t layers;
    uint64_t exchange_bytes; /* each way */
    double ns[EXPERTS_DIRECTIONS][STAGES]; /* 0: there is no such node */
    double host_ns;
    double measured_ns[COST_WAYS]; /* 0: not measured */
};

struct costs {
    char device[128];
    uint64_t token_bytes;
    uint32_t ranks; /* 0: exchanges were with the host */
    struct costs_shape shapes[16];
    int n;
};

/* What it does not understand ends the program, with the line's number. */
void costs_read(const char *path, struct costs *costs);

#endif
