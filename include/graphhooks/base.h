/*
 * graphhooks/base.h - statuses, error text, struct sizes, versions.
 *
 * Rules that hold for every header here:
 *
 * - A struct that crosses the ABI begins with `uint32_t struct_size`.  Zero
 *   the struct, then set struct_size to its sizeof.  The library reads only
 *   the fields within that size.  A struct that is larger than the library's
 *   own is accepted if the bytes that the library does not know are zero;
 *   otherwise the call returns GH_ERR_UNSUPPORTED, and the error text names
 *   the first byte that is not.  Zero is the default of every field.
 * - gh_error and structs that cross the ABI in arrays (gh_buffer,
 *   gh_offload_tensor, gh_family_tensor, gh_family_node, gh_exchange_part,
 *   gh_overlap_release, gh_stash_tensor) have no struct_size and never grow.
 *   gh_offload_declared has one: it is also the stride of its array.
 * - Enumerated values are frozen: none ever gets another meaning.  A later
 *   release may add some.  A host therefore takes a reason or a log level that
 *   it does not know for one more, and any negative status for a failure.
 *   gh_action is closed: it has the values that it has.
 * - Unknown flag bits and non-zero reserved fields are GH_ERR_INVALID.
 * - "Since" says which release was the first.  A field or a value without it is
 *   as old as its struct or its enumeration.
 * - Calls with one object are made by one thread at a time, which may change
 *   between them, unless "Threads" says otherwise.  "Blocks" says for what a
 *   call waits, and "Stream" where it enqueues work.
 * - Streams, contexts and device addresses cross as `void *`.
 * - Outputs are written only on GH_OK (and GH_RERUN where a call says so).
 * - `gh_error *err` may be NULL; it is filled when the result is not GH_OK.
 * - Nothing here aborts the process, writes to stdout or installs handlers.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GRAPHHOOKS_BASE_H
#define GRAPHHOOKS_BASE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define GH_BEGIN_DECLS extern "C" {
#define GH_END_DECLS }
#else
#define GH_BEGIN_DECLS
#define GH_END_DECLS
#endif

#if defined(__GNUC__)
#define GH_API __attribute__((visibility("default")))
#else
#define GH_API
#endif

GH_BEGIN_DECLS

/* The ABI that these headers describe.  A minor only adds; doc/abi.md says what
 * bumps what.  Hosts of major 0, from 0.4 on, are answered as well. */
#define GH_ABI_MAJOR 1
#define GH_ABI_MINOR 0
/* As gh_abi_version() gives it, also for #if.  Since 1.0. */
#define GH_ABI_VERSION (GH_ABI_MAJOR * 0x10000u + GH_ABI_MINOR)

/** The bytes of `type` up to and including `field`. */
#define GH_SIZE_THROUGH(type, field) \
    (offsetof(type, field) + sizeof(((type *)0)->field))

/** Whether the caller's struct is large enough to hold `field`. */
#define GH_HAS(ptr, type, field) \
    ((ptr)->struct_size >= GH_SIZE_THROUGH(type, field))

/* Fixed width: -fshort-enums cannot change a call.  Values are frozen.
 * Since 0.1. */
typedef int32_t gh_status;
enum {
    GH_OK = 0,
    GH_RERUN = 1, /* nothing of this pass has executed: enter it again */

    GH_ERR_INVALID = -1,     /* an argument breaks a rule of its header */
    GH_ERR_UNSUPPORTED = -2, /* a valid request that this library, or this
                                session, does not support */
    GH_ERR_NOT_FOUND = -3,   /* no such segment, bank, file or symbol */
    GH_ERR_STATE = -4,       /* not allowed now: hooks called out of order */
    GH_ERR_BUSY = -5,        /* every slot is in flight */
    GH_ERR_NO_MEMORY = -6,   /* host or device memory ran out */
    GH_ERR_DEVICE = -7,      /* a driver call failed; the text names it */
    GH_ERR_NO_DRIVER = -8,   /* no usable driver or device */
    GH_ERR_ABI = -9,         /* the size of a struct or table is that of no
                                released version */
    GH_ERR_CONFIG = -10,     /* an option or environment variable is wrong */
    GH_ERR_INTERNAL = -11,   /* a bug in graphhooks; the text says where */
    /* since 0.5 */
    GH_ERR_RANKS = -12 /* another rank failed, exited, did not arrive in time
                          or runs another pass: the session can only be closed,
                          the exchange only be destroyed */
};

/* One sentence, NUL-terminated.  The caller owns it, the library fills it and
 * allocates nothing.  Frozen.  Since 0.1. */
typedef struct gh_error {
    char text[256];
} gh_error;

/**
 * The name of a status, such as "GH_ERR_BUSY".
 *
 * @return static text; "GH_ERR_?" for an unknown value.
 * Blocks: never.  Threads: any.  Since: 0.1.
 */
GH_API const char *gh_status_name(gh_status status);

/**
 * The ABI of the loaded library: major << 16 | minor.
 * Blocks: never.  Threads: any.  Since: 0.1.
 */
GH_API uint32_t gh_abi_version(void);

/**
 * The package version, such as "0.5.0".
 *
 * @return static text.
 * Blocks: never.  Threads: any.  Since: 0.1.
 */
GH_API const char *gh_version(void);

GH_END_DECLS

#endif
