/*
 * softnccl/softnccl.h - the functions of softnccl that NCCL does not have.
 *
 * libsoftnccl.so exports NCCL's entry points (driver/nccl_entries.def) for
 * ranks that are threads of one process, on the software device.  It prints
 * reports of wrong use on standard error, and keeps them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTNCCL_SOFTNCCL_H
#define SOFTNCCL_SOFTNCCL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The number of reports so far; text of the i-th in *text_p, NULL beyond the
 * last.  A text stays until the reports are forgotten. */
typedef uint64_t softnccl_reports_fn(uint64_t i, const char **text_p);

/* Nothing has been found, and communicators are counted from 1 again. */
typedef void softnccl_forget_fn(void);

/* Live objects; all zero after a program that destroyed what it made. */
typedef struct softnccl_counts {
    uint64_t communicators; /* each rank's */
    uint64_t rendezvous;    /* operations that wait for a rank */
    uint64_t captured;      /* operations that graphs hold */
} softnccl_counts;
typedef void softnccl_count_fn(softnccl_counts *counts);

/* For dlsym: softnccl_reports, softnccl_forget, softnccl_count. */

#ifdef __cplusplus
}
#endif

#endif
