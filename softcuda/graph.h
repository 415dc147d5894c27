/*
 * graph.h - graphs, their executable copies, and launching them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_GRAPH_H
#define SOFTCUDA_GRAPH_H

#include "driver/driver.h"
#include "softcuda/nodes.h"
#include "softcuda/op.h"
#include "softcuda/shared.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct node {
    struct work work;
    struct nodes deps;
    uint32_t lane; /* branch of the graph; 0 shares the stream's lane */
    uint32_t n_after;
    int priority; /* of the stream that it was captured on */
};

struct CUgraph_st {
    struct node *nodes;
    uint32_t n, room;
};

struct CUgraphExec_st {
    struct shared shared;
    uint32_t number;
    uint32_t n, width;
    bool node_priority; /* its kernels run at their own, not the stream's */
    struct node *nodes;
    struct mark *marks; /* of the launch being issued */
    struct stamp *stamps;
    struct mark last; /* an exec never runs beside itself */
    struct stamp at;
};

void graph_free(CUgraph graph);

CUresult grf_nodes(CUgraph graph, CUgraphNode *nodes, size_t *count_p);
CUresult grf_instantiate(CUgraphExec *exec_p, CUgraph graph,
                         unsigned long long flags);
CUresult grf_upload(CUgraphExec exec, CUstream stream);
CUresult grf_launch(CUgraphExec exec, CUstream stream);
CUresult grf_destroy(CUgraph graph);
CUresult grf_exec_destroy(CUgraphExec exec);

#endif
