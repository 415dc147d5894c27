/*
 * exchange.c - see exchange.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "device/exchange.h"

void exchange_all_to_all(struct exchange *exchange, const float *send,
                         float *recv, const size_t *counts, CUstream stream)
{
    const struct comm *comm = exchange->comm;
    const int n = comm->n, own = comm->rank;
    size_t out = 0, in = 0, sent = 0;

    comm_begin(comm);
    for (int i = 0; i < n; i++) {
        const size_t goes = counts[own * n + i];
        const size_t comes = counts[i * n + own];

        if (i == own && goes > 0) {
            DEVICE_CALL(comm->dev, cuMemcpyDtoDAsync,
                        device_address(recv + in), device_address(send + out),
                        goes * sizeof(float), stream);
        } else if (i != own) {
            comm_send(comm, send + out, goes, i, stream);
            comm_receive(comm, recv + in, comes, i, stream);
            sent += goes;
        }
        out += goes;
        in += comes;
    }
    comm_end(comm);
    exchange->calls++;
    exchange->bytes += sent * sizeof(float);
}
