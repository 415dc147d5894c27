/*
 * calls.c - NCCL's operations, as a program calls them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softnccl/enter.h"
#include "softnccl/group.h"
#include "softnccl/report.h"
#include "softnccl/types.h"

#define NCCL_ENTRY(since, result, name, signature) \
    SOFTNCCL_API result name signature;
#include "driver/nccl_entries.def"
#undef NCCL_ENTRY

static ncclResult_t check_item(struct ncclComm *comm, const char *what,
                               const struct item *item)
{
    const bool sends = item->kind != RECV &&
                       (item->kind != BROADCAST || item->peer == comm->rank);

    if (item->peer < 0 || item->peer >= comm->n) {
        report_error(comm, "%s: rank %d is none of 0 to %d", what, item->peer,
                     comm->n - 1);
        return ncclInvalidArgument;
    }
    if (type_bytes(item->type) == 0) {
        report_error(comm, "%s: type %d is not known", what, (int)item->type);
        return ncclInvalidArgument;
    }
    if (op_name(item->op) == NULL) {
        report_error(comm, "%s: reduction %d is not known", what,
                     (int)item->op);
        return ncclInvalidArgument;
    }
    if (item->count > SIZE_MAX / 64 / (size_t)comm->n) {
        report_error(comm, "%s: %zu is too many", what, item->count);
        return ncclInvalidArgument;
    }
    if (item->count != 0 && ((sends && item->send == NULL) ||
                             (item->kind != SEND && item->recv == NULL))) {
        report_error(comm, "%s: a buffer is NULL", what);
        return ncclInvalidArgument;
    }
    return ncclSuccess;
}

static ncclResult_t operation(const char *what, struct ncclComm *comm,
                              CUstream stream, struct item item)
{
    ncclResult_t result, ended;

    if (!soft_begin()) {
        return ncclSystemError;
    }
    group_start();
    result = comm_usable(comm, what);
    if (result == ncclSuccess) {
        result = check_item(comm, what, &item);
    }
    /* A collective of nothing is nothing; a message of nothing is sent. */
    if (result == ncclSuccess &&
        (item.count != 0 || item.kind == SEND || item.kind == RECV)) {
        result = group_add(comm, stream, &item);
    }
    if (result != ncclSuccess) {
        group_error(result);
    }
    ended = group_end();
    return soft_end(result != ncclSuccess ? result : ended);
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count,
                           ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           CUstream stream)
{
    return operation(
        "ncclAllReduce", comm, stream,
        (struct item){ ALL_REDUCE, send, recv, count, type, op, 0 });
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count,
                               ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, CUstream stream)
{
    return operation(
        "ncclReduceScatter", comm, stream,
        (struct item){ REDUCE_SCATTER, send, recv, count, type, op, 0 });
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count,
                           ncclDataType_t type, ncclComm_t comm,
                           CUstream stream)
{
    return operation(
        "ncclAllGather", comm, stream,
        (struct item){ ALL_GATHER, send, recv, count, type, ncclSum, 0 });
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count,
                           ncclDataType_t type, int root, ncclComm_t comm,
                           CUstream stream)
{
    return operation(
        "ncclBroadcast", comm, stream,
        (struct item){ BROADCAST, send, recv, count, type, ncclSum, root });
}

ncclResult_t ncclAlltoAll(const void *send, void *recv, size_t count,
                          ncclDataType_t type, ncclComm_t comm, CUstream stream)
{
    return operation(
        "ncclAlltoAll", comm, stream,
        (struct item){ ALL_TO_ALL, send, recv, count, type, ncclSum, 0 });
}

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type,
                      int peer, ncclComm_t comm, CUstream stream)
{
    return operation(
        "ncclSend", comm, stream,
        (struct item){ SEND, send, NULL, count, type, ncclSum, peer });
}

ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, CUstream stream)
{
    return operation(
        "ncclRecv", comm, stream,
        (struct item){ RECV, NULL, recv, count, type, ncclSum, peer });
}

ncclResult_t ncclGroupStart(void)
{
    group_start();
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    if (!soft_begin()) {
        return ncclSystemError;
    }
    return soft_end(group_end());
}
