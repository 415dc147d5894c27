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
/* Up to 255 of both, in one call: in the stream's order, and none of them when
 * one cannot be. */
CUresult strm_words(CUstream stream, unsigned int count,
                    const CUstreamBatchMemOpParams *given, unsigned int flags);

#endif
