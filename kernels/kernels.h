/*
 * kernels.h - the library's device kernels: the batched copy, the compare, the
 * offsets of packed sequences.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H

#ifndef __CUDACC__ /* the device needs none of it */
#include "softcuda/softcuda.h"
#endif

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Every kernel here is launched with this many threads per block. */
#define GH_KERNEL_THREADS 256u

#define GH_KERNEL_COPY_SMALL "gh_copy_batch_8"
#define GH_KERNEL_COPY_LARGE "gh_copy_batch_128"
#define GH_KERNEL_COMPARE "gh_compare"

#define GH_KERNEL_OFFSETS_SMALL "gh_offsets_48"
#define GH_KERNEL_OFFSETS_LARGE "gh_offsets_480"

#define GH_COPY_SMALL 8u
#define GH_COPY_LARGE 128u

/* Device addresses. */
struct gh_copy_entry {
    uint64_t dst;
    uint64_t src;
    uint64_t bytes; /* 0: nothing is copied */
};

/*
 * The only parameter of the copy kernels, passed by value.  Both kernels take
 * a struct that begins like this one, so a caller keeps one struct and picks
 * the kernel by n_entries.  A launch reads only as many bytes as its kernel
 * declares.
 */
struct gh_copy_batch {
    uint32_t n_entries;
    uint32_t chunk_shift; /* by gh_copy_batch_plan() */
    struct gh_copy_entry entries[GH_COPY_LARGE];
};

/* The part that the small kernel takes. */
struct gh_copy_batch_small {
    uint32_t n_entries;
    uint32_t chunk_shift;
    struct gh_copy_entry entries[GH_COPY_SMALL];
};

/*
 * Sets chunk_shift and returns the number of blocks for one launch that copies
 * all entries; 0 if there is nothing to copy and so nothing to launch.  Any
 * alignment and length will do.  No destination may overlap another
 * destination, or a source other than exactly its own.
 */
uint32_t gh_copy_batch_plan(struct gh_copy_batch *batch);

/* The name of the kernel for `n_entries`, 1 to GH_COPY_LARGE. */
const char *gh_copy_batch_kernel(uint32_t n_entries);

/*
 * The parameters of gh_compare, each a uint64_t: a, b, bytes and the address
 * of a 64-bit word.  The word must hold UINT64_MAX before.  The kernel lowers
 * it to the offset of the first byte that differs; if none does, it stays.
 */
#define GH_COMPARE_PARAMS 4u

/* The number of blocks; 0 if there is nothing to compare. */
uint32_t gh_compare_plan(uint64_t bytes);

/*
 * The only parameter of the kernels that write where sequences begin, passed
 * by value.  As with copies, a caller keeps the large struct.  Entry `first +
 * i` of both arrays becomes pairs[i].  The entries after the last pair, up to
 * `end`, become the fills.  The launch whose `first` is 0 also writes the two
 * numbers.
 */
#define GH_OFFSETS_SMALL 48u
#define GH_OFFSETS_LARGE 480u

struct gh_offsets_head {
    uint64_t actual, padded; /* int32_t[], device addresses */
    uint64_t longest, count; /* int32_t */
    uint32_t first, end, n;
    int32_t fill_actual, fill_padded;
    int32_t longest_value, count_value;
    uint32_t reserved; /* 0 */
};

struct gh_offsets_pair {
    int32_t actual, padded;
};

struct gh_offsets {
    struct gh_offsets_head head;
    struct gh_offsets_pair pairs[GH_OFFSETS_LARGE];
};

struct gh_offsets_small {
    struct gh_offsets_head head;
    struct gh_offsets_pair pairs[GH_OFFSETS_SMALL];
};

/* The number of blocks of one launch, and the kernel's name. */
uint32_t gh_offsets_plan(const struct gh_offsets *offsets);
const char *gh_offsets_kernel(uint32_t n);

#ifndef __CUDACC__
/* The kernels as C functions, of the same signatures. */
void gh_copy_batch_ref(const struct gh_copy_batch *batch);
void gh_offsets_ref(const struct gh_offsets_head *head,
                    const struct gh_offsets_pair *pairs);
void gh_compare_ref(uint64_t a, uint64_t b, uint64_t bytes, uint64_t first);

/* For real devices, NUL-terminated; made from kernels.ptx. */
extern const char gh_kernels_ptx[];
/* For the software device. */
extern const softcuda_image gh_kernels_soft;
#endif

#ifdef __cplusplus
}
#endif

#endif
