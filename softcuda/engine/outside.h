/*
 * outside.h - device memory that other processes map.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_OUTSIDE_H
#define SOFTCUDA_OUTSIDE_H

#include "softcuda/engine/alloc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What another process needs to map it. */
struct outside_name {
    int32_t process, file;
    uint64_t number, bytes;
};

/* Whether device memory of this size is to be had here, and can then be
 * named. */
bool outside_can(size_t bytes);
void *outside_take(size_t bytes); /* NULL: there is none */
void outside_give(void *base, size_t bytes);
/* Nobody can open it by its name any more.  NULL is allowed. */
void outside_forget(struct outside *outside);

/* Memory that has no address yet, in a file that other processes map.  NULL:
 * there is none. */
struct outside *outside_make(size_t bytes);
/* A descriptor of the file, for the caller to close; -1: there is none. */
int outside_export(const struct outside *outside);
/* Of another process's file, whose descriptor stays the caller's.  NULL: it is
 * no such file. */
struct outside *outside_import(int file, size_t *bytes_p);
/* Puts it where only its mapping was.  False: it cannot. */
bool outside_map(const struct outside *outside, void *base, size_t bytes);

/* Names an allocation of this process.  False: none can map it. */
bool outside_name(struct alloc *alloc, struct outside_name *name);
/* Maps what another process has named.  NULL: that is gone, or was never
 * there. */
struct outside *outside_open(const struct outside_name *name, void **base_p);
/* Unmaps it, if it was opened. */
void outside_close(struct outside *outside, void *base, size_t bytes);

/* Whether the allocation is another process's. */
bool outside_is_foreign(const struct alloc *alloc);
/* Whether it is, and that process has given it back: it is there only as long
 * as it is mapped here. */
bool outside_is_given(const struct alloc *alloc);
/* Whether another process has ever mapped it, and may have written there. */
bool outside_is_shared(const struct alloc *alloc);
/* Whether this process has memory that others write. */
bool outside_is_any(void);

#endif
