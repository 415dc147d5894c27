/*
 * packed.h - passes by hand that read the sequences of their microbatch.
 *
 * On the device and the session of by_hand.h, with a bank that holds
 * sequences.  A forward and its backward copy what they are given to memory of
 * their slot, where the test looks.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SUPPORT_PACKED_H
#define SUPPORT_PACKED_H

#include "support/by_hand.h"

#define PACKED_TOKENS 32
#define PACKED_SEQUENCES 4
#define PACKED_ROOM (PACKED_SEQUENCES + 2)

extern uint32_t packed_bank;
extern CUdeviceptr packed_results; /* where passes leave what they have read */

/* What the device has. */
struct packed_found {
    int32_t actual[PACKED_ROOM], padded[PACKED_ROOM], longest, count;
};

/* A session with a bank of PACKED_TOKENS and PACKED_SEQUENCES; no points. */
bool packed_open(struct toy_options options);
void packed_close(void);
/* The same, and the first and the last points of a test. */
bool packed_begin(struct toy_options options);
void packed_finish(const char *what);
uint32_t packed_add_bank(uint32_t cp, uint32_t tokens, uint32_t sequences);

/* gh_packed_set for a microbatch of packed_bank. */
gh_status packed_set(uint32_t m, CUstream stream, uint32_t n,
                     const int32_t *lengths, const int32_t *padded,
                     gh_packed_buffers *buffers);
void packed_copy(CUdeviceptr to, const gh_buffer *from, CUstream stream);
/* A forward that reads all four, and its backward; its result is the slot's. */
gh_decision packed_read(uint32_t m, CUstream stream,
                        const gh_packed_buffers *b);
/* The same with the backward on another stream, which the host has wait. */
gh_decision packed_read_across(uint32_t m, CUstream forward, CUstream backward,
                               const gh_packed_buffers *b);
/* A point: the slot's passes, or those of a microbatch without one, have read
 * what is wanted. */
void packed_is_found(uint32_t slot, uint32_t m,
                     const struct packed_found *wanted, const char *name);

#endif
