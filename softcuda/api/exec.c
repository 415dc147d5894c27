/*
 * exec.c - executable copies of graphs, and launching them.
 *
 * A launch is a border operation on the stream, one operation per node, and
 * a border that comes after them all.  Branches of a graph are lanes of their
 * own, kept with the stream, so that what one branch does is unordered with
 * what another does, and ordered from launch to launch.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/api/exec.h"

#include "softcuda/api/visits.h"
#include "softcuda/api/capture.h"
#include "softcuda/api/event.h"
#include "softcuda/api/graph.h"
#include "softcuda/api/handle.h"
#include "softcuda/api/issue.h"
#include "softcuda/api/stream.h"
#include "softcuda/engine/engine.h"
#include "softcuda/engine/rendezvous.h"
#include "softcuda/engine/soft.h"

#include <stdlib.h>

enum {
    FLAG_AUTO_FREE = 1
};

static uint32_t n_execs; /* made so far */

static void exec_free(struct shared *shared)
{
    CUgraphExec exec = (CUgraphExec)(void *)shared;

    graph_free_nodes(exec->nodes, exec->n);
    stamp_clear(&exec->at);
    free(exec->marks);
    free(exec->stamps);
    free(exec);
}

/* Makes the op part of a launch.  The exec is kept until the op has run. */
static void exec_own(CUgraphExec exec, struct op *op)
{
    op->graph = exec->number;
    op->kept = shared_ref(&exec->shared);
    op_tell(op, &exec->last);
}

/* Splits the nodes into lanes.  A node continues the lane of a node before it,
 * unless another node has continued that already; then it begins a new lane. */
static bool assign_lanes(CUgraphExec exec)
{
    bool *continued = calloc((size_t)exec->n + 1, sizeof(*continued));

    if (continued == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < exec->n; i++) {
        struct node *node = &exec->nodes[i];
        uint32_t d = 0;

        while (d < node->deps.n && continued[node->deps.v[d]]) {
            d++;
        }
        if (d < node->deps.n) {
            continued[node->deps.v[d]] = true;
            node->lane = exec->nodes[node->deps.v[d]].lane;
        } else {
            node->lane = exec->width++;
        }
    }
    free(continued);
    return true;
}

static bool copy_nodes(CUgraphExec exec, CUgraph graph)
{
    exec->nodes = calloc((size_t)graph->n + 1, sizeof(*exec->nodes));
    exec->marks = calloc((size_t)graph->n + 1, sizeof(*exec->marks));
    exec->stamps = calloc((size_t)graph->n + 1, sizeof(*exec->stamps));
    if (exec->nodes == NULL || exec->marks == NULL || exec->stamps == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < graph->n; i++) {
        struct node *node = &exec->nodes[i];

        exec->n++;
        node->n_after = graph->nodes[i].n_after;
        node->priority = graph->nodes[i].priority;
        if (!work_clone(&node->work, &graph->nodes[i].work) ||
            !nodes_copy(&node->deps, &graph->nodes[i].deps)) {
            return false;
        }
    }
    return true;
}

CUresult grf_instantiate(CUgraphExec *exec_p, CUgraph graph,
                         unsigned long long flags)
{
    const unsigned long long known =
        FLAG_AUTO_FREE | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    CUgraphExec exec;
    CUresult code;

    if (exec_p == NULL || (flags & ~known) != 0 ||
        !handle_is(graph, HANDLE_GRAPH)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    code = capture_forbids_unsafe();
    if (code != CUDA_SUCCESS) {
        return code;
    }

    exec = calloc(1, sizeof(*exec));
    if (exec == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    exec->shared = (struct shared){ 1, exec_free };
    if (!copy_nodes(exec, graph) || !assign_lanes(exec) ||
        !handle_add(exec, HANDLE_EXEC)) {
        shared_drop(&exec->shared);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    exec->number = ++n_execs;
    exec->node_priority =
        (flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) != 0;
    *exec_p = exec;
    return CUDA_SUCCESS;
}

static CUresult find(CUgraphExec exec, CUstream handle, CUstream *stream_p)
{
    CUresult code;

    if (!handle_is(exec, HANDLE_EXEC)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    code = stream_use(handle, stream_p);
    if (code == CUDA_SUCCESS && (*stream_p)->capture != NULL) {
        capture_invalidate((*stream_p)->capture);
        code = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return code;
}

CUresult grf_upload(CUgraphExec exec, CUstream handle)
{
    CUstream stream;

    return find(exec, handle, &stream);
}

/* The stamp of a node.  It knows the last node of its lane, or the launch, and
 * all the other nodes that it waits for.  Some of these may be on its own lane,
 * as when a branch comes back to where it left the lane. */
static struct stamp place_node(CUgraphExec exec, const struct node *node,
                               CUstream stream, const struct stamp *begin)
{
    struct stamp at = { NULL, stream->lane, 0 };
    const struct stamp *line = NULL;

    if (node->lane != 0) {
        at.lane = stream->branches[node->lane - 1];
    }
    for (uint32_t i = 0; i < node->deps.n; i++) {
        const struct stamp *before = &exec->stamps[node->deps.v[i]];

        if (before->lane == at.lane &&
            (line == NULL || before->epoch > line->epoch)) {
            line = before;
        }
    }
    if (line != NULL) {
        at.vc = vc_ref(line->vc);
    } else {
        at.vc = vc_ref(begin->vc);
        if (at.lane != begin->lane) {
            vc_join(&at.vc, begin);
        }
    }
    for (uint32_t i = 0; i < node->deps.n; i++) {
        const struct stamp *before = &exec->stamps[node->deps.v[i]];

        if (before->lane != at.lane) {
            vc_join(&at.vc, before);
        }
    }
    at.epoch = lane_next(at.lane);
    return at;
}

/* Prepares the op of the i-th node: it comes after everything that the node
 * comes after. */
static void launch_op(CUgraphExec exec, uint32_t i, CUstream stream,
                      struct op *op, const struct mark *begin)
{
    const struct node *node = &exec->nodes[i];

    stream_own(stream, op);
    exec_own(exec, op);
    op->node = i;
    if (node->deps.n == 0) {
        op_after(op, begin);
    }
    for (uint32_t d = 0; d < node->deps.n; d++) {
        op_after(op, &exec->marks[node->deps.v[d]]);
    }
}

/* Launches a node that takes part in rendezvous.  It becomes two operations,
 * with the rendezvous between them. */
static void launch_visit(CUgraphExec exec, uint32_t i, CUstream stream,
                         const struct mark *begin, struct stamp *at)
{
    softcuda_call *call = exec->nodes[i].work.u.rendezvous.what;
    softcuda_visit *visit;
    struct stamp end;
    struct op *op = visits_begin(call, stream->ctx, &visit);

    launch_op(exec, i, stream, op, begin);
    stamp_set(&op->at, at);
    visits_begun(visit, op);

    op = visits_end(visit, true);
    stream_own(stream, op);
    exec_own(exec, op);
    op->node = i;
    op_after(op, &visit->begin);
    end = seat_stamp(call->seat, visit->epoch);
    vc_join(&at->vc, &end);
    at->epoch = lane_next(at->lane);
    stamp_set(&op->at, at);
    stamp_set(&exec->stamps[i], at);
    visits_ended(visit, op);
    exec->marks[i] = op_submit(op);
}

static void launch_node(CUgraphExec exec, uint32_t i, CUstream stream,
                        const struct mark *begin, const struct stamp *begin_at)
{
    const struct node *node = &exec->nodes[i];
    struct op *op = op_new();
    CUevent event = node->work.u.event;
    struct stamp at = place_node(exec, node, stream, begin_at);
    const int priority =
        exec->node_priority ? node->priority : stream->priority;

    if (node->work.kind == WORK_CALL) {
        op_discard(op);
        launch_visit(exec, i, stream, begin, &at);
        vc_drop(at.vc);
        return;
    }
    soft.prioritized += node->work.kind == WORK_KERNEL && priority < 0;
    launch_op(exec, i, stream, op, begin);
    op->work = &node->work;
    if (node->work.kind == WORK_WAIT && event->state == EVENT_RECORDED) {
        op_after(op, &event->mark);
        vc_join(&at.vc, &event->at);
    }

    if (node->work.kind == WORK_RECORD) {
        op_tell(op, &event->mark);
    }
    stamp_set(&op->at, &at);
    if (node->work.kind == WORK_AWAIT) {
        struct stamp end = seat_wait(op);

        vc_join(&at.vc, &end);
        at.epoch = lane_next(at.lane);
    }
    stamp_set(&exec->stamps[i], &at);
    vc_drop(at.vc);
    exec->marks[i] = op_submit(op);
    if (node->work.kind == WORK_RECORD) {
        event_set(event, &exec->marks[i], &exec->stamps[i]);
    }
}

CUresult grf_launch(CUgraphExec exec, CUstream handle)
{
    CUstream stream;
    CUresult code = find(exec, handle, &stream);
    struct op *op;
    struct mark begin;
    struct stamp begin_at;

    if (code != CUDA_SUCCESS) {
        return code;
    }
    if (exec->width > 1 && !stream_branches(stream, exec->width - 1)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    soft.launches++;

    op = op_new();
    op_after(op, &exec->last);
    vc_join(&stream->vc, &exec->at);
    stream_place(stream, op);
    begin_at = op->at;
    vc_ref(begin_at.vc);
    begin = op_submit(op);
    stream->tail = begin;

    for (uint32_t i = 0; i < exec->n; i++) {
        launch_node(exec, i, stream, &begin, &begin_at);
    }

    op = op_new();
    exec_own(exec, op);
    for (uint32_t i = 0; i < exec->n; i++) {
        if (exec->nodes[i].n_after == 0) {
            op_after(op, &exec->marks[i]);
            vc_join(&stream->vc, &exec->stamps[i]);
        }
    }
    stream_place(stream, op);
    stamp_set(&exec->at, &op->at);
    exec->last = stream->tail = op_submit(op);

    for (uint32_t i = 0; i < exec->n; i++) {
        stamp_clear(&exec->stamps[i]);
    }
    vc_drop(begin_at.vc);
    return CUDA_SUCCESS;
}

/* A running launch keeps the exec until it has ended. */
CUresult grf_exec_destroy(CUgraphExec exec)
{
    if (!handle_is(exec, HANDLE_EXEC)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    handle_remove(exec);
    shared_drop(&exec->shared);
    return CUDA_SUCCESS;
}
