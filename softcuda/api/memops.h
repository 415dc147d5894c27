/*
 * memops.h - streams that wait for a word of memory, or write one.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_MEMOPS_H
#define SOFTCUDA_MEMOPS_H

#include "driver/driver.h"

#include <stdint.h>

CUresult strm_wait_value(CUstream stream, CUdeviceptr address, uint64_t value,
                         uint32_t width, unsigned int flags);
CUresult strm_write_value(CUstream stream, CUdeviceptr address, uint64_t value,
                          uint32_t width, unsigned int flags);
/* Issues up to 255 waits and writes in one call, in their order.  If one of
 * them is wrong, none is issued. */
CUresult strm_words(CUstream stream, unsigned int count,
                    const CUstreamBatchMemOpParams *given, unsigned int flags);

#endif
