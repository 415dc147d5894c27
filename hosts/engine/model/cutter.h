/*
 * cutter.h - cuts one allocation into a set's buffers.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_CUTTER_H
#define ENGINE_CUTTER_H

#include <stddef.h>

struct model;
struct set;

/* Cuts twice.  Without a base it only measures. */
struct cutter {
    char *base;
    size_t used;
};

static inline float *cut(struct cutter *cutter, size_t count)
{
    float *address = NULL;

    if (cutter->base != NULL) {
        address = (float *)(void *)(cutter->base + cutter->used);
    }
    cutter->used += (count * sizeof(float) + 255) / 256 * 256;
    return address;
}

static inline int *cut_ints(struct cutter *cutter, size_t count)
{
    return (int *)(void *)cut(cutter, count);
}

/* Cuts what the gradients of all parts' weights are made from.  If they are
 * delayed, each part has its own piece; otherwise all parts share one. */
void cut_gradients(struct set *set, const struct model *model,
                   struct cutter *cutter);

#endif
