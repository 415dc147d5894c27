/*
 * by_hand.h - passes made one by one, on three streams of the toy host.
 *
 * For tests that need a single pass to be odd: the toy lends its device and
 * its session, and a pass writes plain values instead of training.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SUPPORT_BY_HAND_H
#define SUPPORT_BY_HAND_H

#include "support/heard.h"
#include "support/toy.h"

extern struct toy toy;
extern gh_error err; /* of the last call that failed */

/* NULL-terminated environments for struct toy_options. */
extern const char *const quiet[];   /* no log */
extern const char *const checked[]; /* no log, and GRAPHHOOKS_CHECK=bitwise */

/* What a pass is given, beyond what names it. */
struct io {
    const gh_buffer *inputs, *outputs;
    uint32_t n_inputs, n_outputs;
    uint32_t value; /* what the pass writes to its outputs */
};
extern const struct io no_io;

/* A session past its warmup, on three streams. */
bool start(struct toy_options options);

/* The i-th KiB of the toy's memory after the first, which slots have. */
gh_buffer buffer(uint32_t i, uint64_t bytes, uint32_t flags);

gh_pass a_pass(uint32_t segment, gh_direction direction, uint32_t m,
               CUstream stream, const struct io *io);

/* Writes the buffers of the slot, and the outputs. */
void work(const gh_decision *d, const struct io *io);

/* A pass as a host makes it, once: entered, worked unless it only prepares,
 * and exited where it has to be.  What enter or exit said last; a pass that is
 * refused has action UINT32_MAX and no slot. */
gh_status pass_once(const gh_pass *pass, const struct io *io, gh_decision *d);

/* One pass, until it need not run again; refused as above. */
gh_decision run_with(uint32_t segment, gh_direction direction, uint32_t m,
                     CUstream stream, const struct io *io);
gh_decision run(uint32_t segment, gh_direction direction, uint32_t m,
                CUstream stream);

/* Forward and backward of segment 0. */
void run_both(uint32_t m, CUstream stream);

/* Forks from the stream and does not come back: no capture of it is whole. */
void go_astray(CUstream stream);
/* The host has `to` wait for what it has issued on `from`. */
void go_over(CUstream from, CUstream to);
/* Ends a capture of the host's, whose graph nobody wants. */
CUresult end_capture(CUstream stream);

/* The word there, once the device is idle. */
uint32_t read_at(const gh_buffer *at);

/* How often the software device's entry was called. */
uint64_t calls_of(const char *entry);

/* Of gh_host_services: captures as the library would. */
gh_status begin_capture(void *user, void *stream);
/* gh_host_services that lend plain device memory, and write over what is
 * returned at once: who still reads it is a race. */
gh_status lend(void *user, uint64_t bytes, void **address_p);
void reuse(void *user, void *address, uint64_t bytes);

#endif
