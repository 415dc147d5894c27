/*
 * cutter.h - how one allocation becomes a set's buffers.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_CUTTER_H
#define ENGINE_CUTTER_H

#include <stddef.h>

struct model;
struct set;

/* Walked twice: with no base it only measures. */
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

/* What the gradients of all parts' weights are made of: one part's after the
 * other's where they are kept, else one over the other. */
void cut_gradients(struct set *set, const struct model *model,
                   struct cutter *cutter);

#endif
