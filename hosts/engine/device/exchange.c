/*
 * exchange.c - see exchange.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "device/exchange.h"

static void send_and_receive(const struct comm *comm, const float *send,
                             float *recv, const size_t *counts, CUstream stream)
{
    const int n = comm->n, own = comm->rank;
    size_t out = 0, in = 0;

    comm_begin(comm);
    for (int i = 0; i < n; i++) {
        const size_t goes = counts[own * n + i];
        const size_t comes = counts[i * n + own];

        if (i != own) {
            comm_send(comm, send + out, goes, i, stream);
            comm_receive(comm, recv + in, comes, i, stream);
        } else if (goes > 0) {
            DEVICE_CALL(comm->dev, cuMemcpyDtoDAsync, device_address(recv + in),
                        device_address(send + out), goes * sizeof(float),
                        stream);
        }
        out += goes;
        in += comes;
    }
    comm_end(comm);
}

bool exchange_is_captured(struct device *dev, CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    return DEVICE_CALL(dev, cuStreamIsCapturing, stream, &status) == 0 &&
           status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

void exchange_all_to_all(struct exchange *exchange, const float *send,
                         float *recv, const size_t *counts, CUstream stream)
{
    const struct comm *comm = exchange->comm;

    if (comm->dev == NULL || comm->dev->code != CUDA_SUCCESS) {
        return; /* it was aborted, or something failed */
    }
    if (exchange->carry != NULL) {
        (void)exchange->carry(exchange->user, send, recv, counts, stream);
    } else {
        send_and_receive(comm, send, recv, counts, stream);
    }
    exchange->calls++;
    exchange->captured += exchange_is_captured(comm->dev, stream);
    for (int i = 0; i < comm->n; i++) {
        exchange->bytes +=
            i == comm->rank ? 0
                            : counts[comm->rank * comm->n + i] * sizeof(float);
    }
}

int exchange_synchronize(const struct exchange *exchange, CUstream stream)
{
    const struct comm *comm = exchange->comm;

    if (comm->dev == NULL || comm->dev->code != CUDA_SUCCESS) {
        return -1;
    }
    return exchange->wait != NULL
               ? exchange->wait(exchange->user, stream)
               : comm_synchronize(comm, stream, exchange->watch);
}
