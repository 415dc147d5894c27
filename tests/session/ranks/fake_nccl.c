/*
 * fake_nccl.c - a libnccl.so.2 that is too old, or not whole.
 *
 * Nothing of it but its version is ever called.  FAKE_VERSION is what it says,
 * and with FAKE_PART it has no ncclCommSplit.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "driver/nccl.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC visibility push(default)

#define ncclGetVersion fake_version
#ifdef FAKE_PART
#define ncclCommSplit fake_split
#endif
#define NCCL_ENTRY(since, result, name, signature) \
    result name signature; \
    result name signature \
    { \
        return (result)0; \
    }
#include "driver/nccl_entries.def"
#undef ncclGetVersion

ncclResult_t ncclGetVersion(int *version_p);
ncclResult_t ncclGetVersion(int *version_p)
{
    *version_p = FAKE_VERSION;
    return ncclSuccess;
}
