/*
 * softcuda/softcuda.h - what a program adds to run on the software device.
 *
 * libgraphhooks-softcuda.so speaks the driver API (driver/driver.h).  Two
 * things have no counterpart there: kernels, which are C functions instead
 * of PTX, and the emulator's own controls.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_SOFTCUDA_H
#define SOFTCUDA_SOFTCUDA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct softcuda_launch {
    uint32_t grid[3];
    uint32_t block[3];
    uint32_t shared_bytes;
} softcuda_launch;

/* What a kernel does to a range of memory.  Reading bytes that nothing has
 * written since they were allocated is reported.  A copy declares FROM, and
 * then TO with the same number of bytes.  It may move unwritten bytes of device
 * memory, and their destination then counts as unwritten too.  FROM alone reads
 * bytes whether or not they were written.  A discard declares that nobody needs
 * the bytes any more, as softcuda_discard does: they must not be what run()
 * reads, and then count as unwritten. */
enum {
    SOFTCUDA_READ = 0,
    SOFTCUDA_WRITE = 1,
    SOFTCUDA_COPY_FROM = 2,
    SOFTCUDA_COPY_TO = 3,
    SOFTCUDA_DISCARD = 4
};

/* Declares what a kernel does, in the order in which it does it, because a
 * kernel may read what it has written. */
typedef void (*softcuda_touch_fn)(void *sink, const void *address, size_t bytes,
                                  int what);

typedef struct softcuda_kernel {
    const char *name;
    uint32_t n_params;
    const uint32_t *param_bytes; /* the sizes of the kernel's C types */

    /* Runs every block of the grid.  params[i] points at the i-th argument,
     * which was copied when the launch was issued or captured. */
    void (*run)(const softcuda_launch *launch, void *const *params);

    /* Declares everything that run() will read, write and copy.  Required: a
     * kernel that does not say what it touches cannot be checked. */
    void (*touch)(const softcuda_launch *launch, void *const *params,
                  softcuda_touch_fn touch, void *sink);

    /* optional; 0: the virtual clock charges by the bytes touched */
    uint64_t (*cost_ns)(const softcuda_launch *launch, void *const *params);
} softcuda_kernel;

#define SOFTCUDA_IMAGE_MAGIC "softcuda image\n"

/* What cuModuleLoadData takes on the software device instead of PTX. */
typedef struct softcuda_image {
    char magic[16];
    uint32_t n_kernels;
    uint32_t reserved;
    const softcuda_kernel *kernels;
} softcuda_image;

/* Live objects.  All are zero after a program that freed everything. */
typedef struct softcuda_counts {
    uint64_t device_allocations, device_bytes; /* reserved addresses are an
                                                  allocation of 0 bytes */
    uint64_t host_allocations, host_bytes;
    uint64_t streams, events, graphs, execs, modules;
    uint64_t contexts_retained;
    uint64_t captures; /* streams that are capturing now */
    uint64_t pending;  /* operations issued and not yet executed */
    uint64_t waits;    /* cuStreamWaitEvent, cuStreamWaitValue and
                          cuStreamWriteValue calls so far, and operations of
                          cuStreamBatchMemOp; SOFTCUDA_DROP_WAIT takes one of
                          these numbers */
    uint64_t launches; /* cuGraphLaunch calls so far */
    uint64_t prioritized; /* kernels so far that were issued to run before
                             others: on a stream of a priority below 0, or as
                             a node that was captured on one and has kept it */
} softcuda_counts;

/* The exported controls, for dlsym. */
typedef void softcuda_count_fn(softcuda_counts *counts);

/* Takes "SEED=7 FAIL=cuGraphLaunch:3:2 DROP_WAIT=4 RACES=1 TRACE=0": the names
 * of the environment without their prefix.  Resets every counter, and sets what
 * is not named to its default.  Returns 0, or -1 for a word it does not
 * know. */
typedef int softcuda_configure_fn(const char *settings);

/* Returns the number of races reported so far, and the text of the i-th in
 * *text_p. */
typedef uint64_t softcuda_races_fn(uint64_t i, const char **text_p);

/* The same for reads of memory that nothing has written. */
typedef uint64_t softcuda_unwritten_fn(uint64_t i, const char **text_p);

/* The same for work that uses reserved addresses to which no memory is mapped,
 * or whose memory nobody was given access to.  The context is then broken, as
 * after any other wild access. */
typedef uint64_t softcuda_unmapped_fn(uint64_t i, const char **text_p);

/* Gives these bytes, which must lie in one allocation, a name for the work that
 * is issued from now on, such as "layer 3, core_attn, tensor 1"; NULL takes the
 * name away.  What is written there is written for that name, and keeps it
 * wherever it is copied.  Returns 0, or -1 if this is no memory of the
 * device's, or if there are more than 4000 names. */
typedef int softcuda_label_fn(const void *address, uint64_t bytes,
                              const char *name);

/* The same as softcuda_races for reads of bytes that were written for another
 * name than their range has. */
typedef uint64_t softcuda_others_fn(uint64_t i, const char **text_p);

/* Issues on the stream that nobody needs what these bytes, of one allocation,
 * hold: until they are written again, whoever reads them is reported as for
 * memory that nothing has written, or as a race.  It takes no time, and becomes
 * part of a graph in a capture.  The event, if it is not NULL, is then recorded
 * on the stream, without a call that could fail or that is counted.  Returns the
 * driver's code. */
typedef int softcuda_discard_fn(const void *address, uint64_t bytes,
                                void *stream, void *event);

/* Processes (PROCESSES) bring each other words without the device, as by MPI.
 * Each `says` what it has waited for before, and then hears, with `says` 0, what
 * all of them have said.  `key` is the same for all that belong together, and
 * `number` counts their gathers. */
typedef void softcuda_gather_fn(uint64_t key, uint64_t number, int says);

/* The virtual clock: nanoseconds until everything issued so far would end. */
typedef uint64_t softcuda_clock_fn(void);

/* Sets how long operations take on that clock, with lines as in a file of
 * SOFTCUDA_COSTS (doc/softcuda.md).  Adds to what was set before; NULL sets the
 * defaults, as configure does.  Returns 0, or the number of the first line that
 * it does not understand, from 1. */
typedef int softcuda_costs_fn(const char *lines);

/* How often an entry point was called since the last configure, and the name of
 * the i-th entry point, NULL after the last, so that a test can go through
 * them. */
typedef uint64_t softcuda_calls_fn(const char *entry);
typedef const char *softcuda_entry_fn(uint32_t i);

/* The symbols: softcuda_count, softcuda_configure, softcuda_races,
 * softcuda_unwritten, softcuda_unmapped, softcuda_discard, softcuda_label, softcuda_others,
 * softcuda_gather, softcuda_clock, softcuda_costs, softcuda_calls,
 * softcuda_entry. */

#ifdef __cplusplus
}
#endif

#endif
