/*
 * graph.c - capture, instantiation and launch.
 *
 * Capture is thread-local: other threads of the host may allocate and
 * synchronize meanwhile.  This thread may not, and a forbidden call is an
 * error here instead of a wrong number later.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "base/error.h"
#include "device/private.h"

enum gh_capturing gh_device_capturing(struct gh_device *dev, void *stream)
{
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = dev->drv.cuStreamIsCapturing(stream, &capture);

    if (result == CUDA_SUCCESS) {
        return capture == CU_STREAM_CAPTURE_STATUS_NONE ? GH_CAPTURING_NO
                                                        : GH_CAPTURING_YES;
    }
    return result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ? GH_CAPTURING_YES
                                                        : GH_CAPTURING_UNKNOWN;
}

bool gh_device_capture_is_lost(struct gh_device *dev, void *stream)
{
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;

    return dev->drv.cuStreamIsCapturing(stream, &capture) == CUDA_SUCCESS &&
           capture != CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

gh_status gh_device_ask_capturing(struct gh_device *dev, void *stream,
                                  gh_error *err)
{
    CUstreamCaptureStatus capture;

    return gh_device_call(dev, err, cuStreamIsCapturing, (stream, &capture));
}

gh_status gh_device_capture_begin(struct gh_device *dev, void *stream,
                                  gh_error *err)
{
    return gh_device_call(dev, err, cuStreamBeginCapture,
                          (stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
}

/*
 * Ends a capture whose graph nobody wants.  Ending an invalidated capture
 * fails, but it makes the stream usable again.  A call that failed before it
 * reached the driver's state (out of memory, or an injected fault) has ended
 * nothing, so it is made again.
 */
void gh_device_capture_leave(struct gh_device *dev, void *stream)
{
    CUgraph graph = NULL;

    for (int i = 0; i < 2 && gh_device_is_capturing(dev, stream); i++) {
        if (dev->drv.cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS &&
            graph != NULL) {
            dev->drv.cuGraphDestroy(graph);
        }
    }
}

gh_status gh_device_count_nodes(struct gh_device *dev, void *graph,
                                uint64_t *n_nodes_p, gh_error *err)
{
    size_t n_nodes = 0;
    gh_status status =
        gh_device_call(dev, err, cuGraphGetNodes, (graph, NULL, &n_nodes));

    if (status == GH_OK) {
        *n_nodes_p = n_nodes;
    }
    return status;
}

gh_status gh_device_capture_end(struct gh_device *dev, void *stream,
                                void **graph_p, uint64_t *n_nodes_p,
                                gh_error *err)
{
    CUgraph graph = NULL;
    gh_status status;
    CUresult result;

    result = dev->drv.cuStreamEndCapture(stream, &graph);
    if (result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) {
        gh_device_capture_leave(dev, stream);
        return gh_fail(err, GH_ERR_DEVICE,
                       "cuStreamEndCapture: 901 "
                       "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED: another thread "
                       "has waited for the device, or this pass has waited, "
                       "allocated or used the legacy stream; the driver "
                       "refused it at or before the line where the host has "
                       "noticed");
    }
    if (result == CUDA_ERROR_ILLEGAL_STATE) {
        return gh_fail(err, GH_ERR_DEVICE,
                       "cuStreamEndCapture: 401 CUDA_ERROR_ILLEGAL_STATE: "
                       "another thread, or this pass, has ended the capture "
                       "that the library began on gh_decision.stream");
    }
    status = gh_device_status(dev, result, "cuStreamEndCapture", err);
    if (status != GH_OK) {
        gh_device_capture_leave(dev, stream);
        return status;
    }
    status = gh_device_count_nodes(dev, graph, n_nodes_p, err);
    if (status != GH_OK) {
        dev->drv.cuGraphDestroy(graph);
        return status;
    }
    *graph_p = graph;
    return GH_OK;
}

gh_status gh_device_instantiate(struct gh_device *dev, void *graph,
                                void *stream, void **exec_p, gh_error *err)
{
    CUgraphExec exec = NULL;
    gh_status status;

    /* Without the flag, kernels captured on a stream of higher priority run
     * at the priority of the stream that the graph is launched on. */
    status = gh_device_call(
        dev, err, cuGraphInstantiateWithFlags,
        (&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY));
    if (status != GH_OK) {
        return status;
    }
    status = gh_device_call(dev, err, cuGraphUpload, (exec, stream));
    if (status != GH_OK) {
        dev->drv.cuGraphExecDestroy(exec);
        return status;
    }
    *exec_p = exec;
    return GH_OK;
}

gh_status gh_device_launch(struct gh_device *dev, void *exec, void *stream,
                           gh_error *err)
{
    return gh_device_call(dev, err, cuGraphLaunch, (exec, stream));
}

void gh_device_graph_destroy(struct gh_device *dev, void *graph)
{
    if (graph != NULL) {
        dev->drv.cuGraphDestroy(graph);
    }
}

void gh_device_exec_destroy(struct gh_device *dev, void *exec)
{
    if (exec != NULL) {
        dev->drv.cuGraphExecDestroy(exec);
    }
}
