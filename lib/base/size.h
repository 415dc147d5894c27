/*
 * size.h - the struct_size rule of every struct that crosses the ABI.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_BASE_SIZE_H
#define GH_BASE_SIZE_H

#include <graphhooks/base.h>

/*
 * Whether `object`, whose first member is its struct_size, may be used.  It
 * must not be smaller than `least`, the size in its first release, and must be
 * zero beyond `ours`.
 */
gh_status gh_check_size_slow(const char *type, const void *object, size_t least,
                             size_t ours, gh_error *err);

/* Inline, because every step of a host of this release takes the first
 * branch. */
static inline gh_status gh_check_size(const char *type, const void *object,
                                      size_t least, size_t ours, gh_error *err)
{
    if (*(const uint32_t *)object == ours) {
        return GH_OK;
    }
    return gh_check_size_slow(type, object, least, ours, err);
}

/* Copies the fields that both sides know into `copy`, and zeroes the rest. */
void gh_take_struct(const void *object, void *copy, size_t ours);

/* Copies the fields that both sides know into `object`, which keeps its
 * size. */
void gh_give_struct(void *object, const void *ours, size_t bytes);

#endif
