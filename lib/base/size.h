/*
 * size.h - the struct_size rule of every struct that crosses the ABI.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_BASE_SIZE_H
#define GH_BASE_SIZE_H

#include <graphhooks/base.h>

/*
 * Whether `object`, whose first member is its struct_size, may be used:
 * not below `least`, the size of its first release, and zero beyond `ours`.
 */
gh_status gh_check_size_slow(const char *type, const void *object, size_t least,
                             size_t ours, gh_error *err);

/* Inline, as hosts of this very release take the first branch every step. */
static inline gh_status gh_check_size(const char *type, const void *object,
                                      size_t least, size_t ours, gh_error *err)
{
    if (*(const uint32_t *)object == ours) {
        return GH_OK;
    }
    return gh_check_size_slow(type, object, least, ours, err);
}

/* Takes what both sides know of `object` into `copy`, zeroing the rest. */
void gh_take_struct(const void *object, void *copy, size_t ours);

/* Gives what both sides know of `ours` to `object`, which keeps its size. */
void gh_give_struct(void *object, const void *ours, size_t bytes);

#endif
