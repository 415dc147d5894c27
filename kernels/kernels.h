/*
 * kernels.h - the library's device kernels: the batched copy, the compare, the
 * offsets of packed sequences, parts that are sent to other ranks, pages of
 * rows whose number only the device knows, and sums of gradients.
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

/* Every kernel but gh_send is launched with this many threads per block. */
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

/*
 * The only parameter of the kernel that sends parts to other ranks, passed by
 * value.  Each block copies a slice of each part, so that few blocks, which
 * leave the other multiprocessors to compute, use the whole link.  The last
 * block to end then sets the flags: each is a byte in the memory of the rank
 * that a part goes to, and whoever sees it up finds the part there.
 *
 * If `row` is not 0, that block then waits until the bytes of all other ranks
 * in the row are set, and clears them.  What they have sent is then there.  It
 * waits for ever if a rank does not come.
 */
#define GH_KERNEL_SEND "gh_send"
#define GH_SEND_PARTS 64u
#define GH_SEND_BLOCKS 8u
#define GH_SEND_THREADS 1024u

struct gh_send_part {
    uint64_t dst, src, bytes; /* may be 0 bytes */
    uint64_t slice; /* by gh_send_plan(): bytes of each block but the last */
    uint64_t flag;  /* 0: there is none */
};

struct gh_send {
    uint32_t n_parts;
    uint32_t rank, n_ranks; /* which bytes of the row are waited for */
    uint32_t reserved;      /* 0 */
    uint64_t row;           /* of n_ranks bytes; or 0 */
    uint64_t ended;         /* a uint32_t for the kernel, 0 between launches */
    struct gh_send_part parts[GH_SEND_PARTS];
};

/* Fills in the slices, and returns the number of blocks, at least 1. */
uint32_t gh_send_plan(struct gh_send *send);

/*
 * The stash: rows are kept in pages of a pool, as many as there are.  How many
 * rows there are is read on the device.  gh_stash_pages takes pages from the
 * stack of free ones and writes them into a record, or gives a record's pages
 * back; one block.  gh_stash_rows copies rows into the pages of a record, or
 * out of them.  All launches on one state are ordered by the caller.
 *
 * A take that finds too few free pages takes all of its pages from the spill
 * pool; if there are too few as well it takes none, and counts itself in
 * `refused`: its record then has no rows.  A take whose record has pages still
 * gives those back first.
 */
#define GH_KERNEL_STASH_PAGES "gh_stash_pages"
#define GH_KERNEL_STASH_ROWS "gh_stash_rows"
#define GH_STASH_PARTS 16u

struct gh_stash_state {
    uint32_t n_pages, n_free;
    uint32_t missing; /* pages that records have been refused */
    uint32_t most;    /* in use and missing, at once */
    uint32_t refused, spilled; /* takes */
    uint32_t spill_pages, spill_free;
    /* uint32_t free[n_pages] follows, and then free[spill_pages] of the other
     * pool; the last is taken first */
};

struct gh_stash_record {
    uint32_t rows; /* 0: none are kept */
    uint32_t n_pages, missing;
    uint32_t spills; /* 1: the pages are those of the spill pool */
    /* uint32_t pages[], of all rows at most */
};

/* The only parameter of gh_stash_pages, passed by value. */
struct gh_stash_pages {
    uint64_t state, record;
    uint64_t count; /* int32_t, the rows that there are; 0: max_rows */
    uint64_t pool, page_bytes; /* for the software device's reports, */
    uint64_t spill;            /* and the spill pool */
    uint32_t max_rows;         /* more are refused; 0: give back only */
    uint32_t page_rows;
};

struct gh_stash_part {
    uint64_t rows;      /* the address of the first */
    uint64_t row_bytes; /* they follow each other */
};

/* The only parameter of gh_stash_rows, passed by value.  A page holds page_rows
 * rows of the first part, then of the second, and so on. */
struct gh_stash_rows {
    uint64_t record, pool, spill, page_bytes;
    uint64_t slice; /* by gh_stash_plan(): bytes of a part that a block copies */
    uint64_t page_rows;
    uint64_t max_rows; /* rows after the last up to here become 0; 0: stay */
    uint64_t out;      /* 0: into the pages; 1: out of them */
    uint64_t n_parts;
    struct gh_stash_part parts[GH_STASH_PARTS];
};

/* Fills in the slice.  The grid for a record of up to `pages` pages is x by
 * y. */
void gh_stash_plan(struct gh_stash_rows *rows, uint32_t pages, uint32_t *x_p,
                   uint32_t *y_p);

/*
 * The only parameter of gh_gradient_add, passed by value: sum[i] becomes
 * gradient[i] if the word at `first` is not 0, and then what was there is not
 * read; else sum[i] + gradient[i], added in float and rounded to the nearest,
 * ties to even.  A sum that is NaN has all bits set but the sign, as hardware
 * gives it from compute capability 8.0 on.
 */
#define GH_KERNEL_GRADIENT "gh_gradient_add"
#define GH_GRADIENT_WORD 16u /* bytes that are moved at once */
#define GH_GRADIENT_BLOCK (GH_KERNEL_THREADS * 2u * GH_GRADIENT_WORD)
#define GH_GRADIENT_F32 1u
#define GH_GRADIENT_F16 2u
#define GH_GRADIENT_BF16 3u

struct gh_gradient_sum {
    uint64_t sum, gradient; /* device addresses, aligned to a word */
    uint64_t bytes;         /* of each: whole words */
    uint64_t first;         /* a uint32_t's device address */
    uint32_t element;       /* GH_GRADIENT_F32 and so on */
    uint32_t reserved;      /* 0 */
};

/* The number of blocks; 0 if there is nothing to add. */
uint32_t gh_gradient_plan(uint64_t bytes);

#ifndef __CUDACC__
/* The kernels as C functions, of the same signatures. */
void gh_copy_batch_ref(const struct gh_copy_batch *batch);
void gh_offsets_ref(const struct gh_offsets_head *head,
                    const struct gh_offsets_pair *pairs);
/* Without the wait. */
void gh_send_ref(const struct gh_send *send);
void gh_compare_ref(uint64_t a, uint64_t b, uint64_t bytes, uint64_t first);
void gh_stash_pages_ref(const struct gh_stash_pages *pages);
void gh_stash_rows_ref(const struct gh_stash_rows *rows);
void gh_gradient_add_ref(const struct gh_gradient_sum *to);

/* For real devices: the text of kernels.ptx, to be freed; NULL: no memory. */
char *gh_kernels_ptx(void);
/* The same as build-aux/pack.sh has packed it; its sizes packed and unpacked.
 */
extern const unsigned char gh_kernels_packed[];
extern const unsigned gh_kernels_packed_bytes[2];
/* For the software device. */
extern const softcuda_image gh_kernels_soft;
#endif

#ifdef __cplusplus
}
#endif

#endif
