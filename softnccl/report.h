/*
 * report.h - reports of wrong use, each printed once and kept; last errors.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTNCCL_REPORT_H
#define SOFTNCCL_REPORT_H

#include "softnccl/state.h"

/* A call was refused: what ncclGetLastError() says next.  comm may be NULL. */
void report_error(struct ncclComm *comm, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The program is wrong: said on standard error, kept, and counted. */
const char *report(const char *what, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Without a lock: there is no device. */
void report_nowhere(const char *text);

const char *report_last(void);
uint64_t reports_read(uint64_t i, const char **text_p);
void reports_forget(void);

#endif
