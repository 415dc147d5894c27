/*
 * work.h - one piece of work: its arguments, and what it holds.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_WORK_H
#define SOFTCUDA_WORK_H

#include "driver/driver.h"
#include "softcuda/engine/alloc.h"
#include "softcuda/engine/shared.h"
#include "softcuda/softcuda.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum work_kind {
    WORK_NONE, /* only keeps order: launch borders, waits */
    WORK_KERNEL,
    WORK_COPY,
    WORK_SET,
    WORK_DISCARD, /* nobody needs what is there any more */
    WORK_HOST,
    WORK_RECORD,
    WORK_AWAIT, /* a stream waits for a word of memory */
    WORK_POKE,  /* a stream writes a word of memory */
    WORK_WAIT,  /* in a graph: an external wait, resolved at each launch */
    WORK_CALL, /* in a graph: a call of a rendezvous, a new visit each launch */
    WORK_ARRIVE,
    WORK_LEAVE, /* the begin and the end of a visit */
    WORK_RENDEZVOUS /* what all visits of a rendezvous do together */
};

struct kernel {
    softcuda_kernel fn; /* name and param_bytes are copies */
    uint32_t *offsets;  /* where each argument is in a blob */
    size_t blob_bytes;
    struct kernel *next;
};

struct work {
    enum work_kind kind;
    CUcontext ctx;
    union {
        struct {
            const struct kernel *kernel;
            softcuda_launch launch;
        } k;
        struct {
            char *dst;
            const char *src;
            size_t bytes;
            enum side dst_side, src_side;
        } copy;
        struct {
            char *dst;
            size_t count;
            uint32_t value, width;
        } set;
        struct {
            CUhostFn fn;
            void *user;
        } host;
        struct {
            char *address;
            uint64_t value;
            uint32_t width, how;
        } word;
        CUevent event;
        struct {
            const char *name;
            void *what; /* the call, the visit, or the rendezvous */
        } rendezvous;
    } u;
    struct shared *kept; /* the event, or what else the work is about */
    char *blob; /* kernel: argument pointers and values; copy: staged bytes */
    size_t blob_room;
};

/* Makes room in the blob.  False: there is no memory. */
bool work_reserve(struct work *work, size_t bytes);
/* Copies the arguments of a launch into the blob, pointers first. */
void work_params(struct work *work, void *const *params);
/* Makes a copy with a blob of its own.  False: there is no memory. */
bool work_clone(struct work *to, const struct work *from);
/* Moves everything that the work holds to another, and leaves it empty. */
void work_move(struct work *to, struct work *from);
/* Gives up what the work holds.  A small blob stays for the next. */
void work_clear(struct work *work);
/* In static storage, because race reports keep it. */
const char *work_name(const struct work *work);

#endif
