/*
 * graph.c - graphs: nodes of work, and for each the nodes that it comes after.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/api/graph.h"

#include "softcuda/api/handle.h"

#include <stdlib.h>
#include <string.h>

void graph_free_nodes(struct node *nodes, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        work_clear(&nodes[i].work);
        free(nodes[i].work.blob);
        nodes_clear(&nodes[i].deps);
    }
    free(nodes);
}

void graph_free(CUgraph graph)
{
    graph_free_nodes(graph->nodes, graph->n);
    free(graph);
}

bool graph_add(CUgraph graph, struct work *work, int priority,
               const struct nodes *deps)
{
    struct node *node;

    if (graph->n == graph->room) {
        uint32_t room = graph->room ? graph->room * 2 : 16;
        struct node *larger = realloc(graph->nodes, room * sizeof(*larger));

        if (larger == NULL) {
            return false;
        }
        graph->nodes = larger;
        graph->room = room;
    }
    node = &graph->nodes[graph->n];
    memset(node, 0, sizeof(*node));
    if (!nodes_copy(&node->deps, deps)) {
        return false;
    }
    for (uint32_t i = 0; i < deps->n; i++) {
        graph->nodes[deps->v[i]].n_after++;
    }

    node->priority = priority;
    work_move(&node->work, work);
    graph->n++;
    return true;
}

CUresult grf_nodes(CUgraph graph, CUgraphNode *nodes, size_t *count_p)
{
    size_t room;

    if (!handle_is(graph, HANDLE_GRAPH) || count_p == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    room = *count_p;
    *count_p = graph->n;
    if (nodes == NULL) {
        return CUDA_SUCCESS;
    }
    for (size_t i = 0; i < room; i++) {
        nodes[i] = i < graph->n ? (CUgraphNode)(void *)&graph->nodes[i] : NULL;
    }
    if (room < graph->n) {
        *count_p = room;
    }
    return CUDA_SUCCESS;
}

CUresult grf_destroy(CUgraph graph)
{
    if (!handle_is(graph, HANDLE_GRAPH)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    handle_remove(graph);
    graph_free(graph);
    return CUDA_SUCCESS;
}
