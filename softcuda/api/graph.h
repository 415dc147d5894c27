/*
 * graph.h - graphs: nodes of work, and for each the nodes that it comes after.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_GRAPH_H
#define SOFTCUDA_GRAPH_H

#include "driver/driver.h"
#include "softcuda/api/nodes.h"
#include "softcuda/engine/work.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct node {
    struct work work;
    struct nodes deps;
    uint32_t lane; /* a branch of the graph; 0: the stream's own lane */
    uint32_t n_after;
    int priority; /* of the stream that it was captured on */
};

struct CUgraph_st {
    struct node *nodes;
    uint32_t n, room;
};

/* Adds a node and takes what the work holds.  False: there is no memory. */
bool graph_add(CUgraph graph, struct work *work, int priority,
               const struct nodes *deps);
void graph_free(CUgraph graph);
void graph_free_nodes(struct node *nodes, uint32_t n);

CUresult grf_nodes(CUgraph graph, CUgraphNode *nodes, size_t *count_p);
CUresult grf_destroy(CUgraph graph);

#endif
