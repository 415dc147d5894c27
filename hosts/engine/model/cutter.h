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
    size_t *layers; /* counts what each layer has; NULL: nothing is counted */
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

/* Counts what was cut for a layer since `before`. */
static inline void count_layer(const struct cutter *cutter, int layer,
                               size_t before)
{
    if (cutter->layers != NULL) {
        cutter->layers[layer] += cutter->used - before;
    }
}

/* Cuts what the gradients of all parts' weights are made from.  If they are
 * delayed, each part has its own piece; otherwise all parts share one. */
void cut_gradients(struct set *set, const struct model *model,
                   struct cutter *cutter);

#endif
