/*
 * exec.h - executable copies of graphs, and launching them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_EXEC_H
#define SOFTCUDA_EXEC_H

#include "driver/driver.h"
#include "softcuda/engine/op.h"
#include "softcuda/engine/order.h"
#include "softcuda/engine/shared.h"

#include <stdbool.h>
#include <stdint.h>

struct CUgraphExec_st {
    struct shared shared;
    uint32_t number;
    uint32_t n, width;
    bool node_priority; /* its kernels keep their own priority */
    struct node *nodes;
    struct mark *marks; /* of the launch being issued */
    struct stamp *stamps;
    struct mark last; /* a later launch comes after it */
    struct stamp at;
};

CUresult grf_instantiate(CUgraphExec *exec_p, CUgraph graph,
                         unsigned long long flags);
CUresult grf_upload(CUgraphExec exec, CUstream stream);
CUresult grf_launch(CUgraphExec exec, CUstream stream);
CUresult grf_exec_destroy(CUgraphExec exec);

#endif
