/*
 * saved.h - what parts keep for their backward, by module.
 *
 * Whoever runs the parts may place it outside of the set: see model.offload
 * and struct part_hooks.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_SAVED_H
#define ENGINE_SAVED_H

#include <stdbool.h>
#include <stddef.h>

enum saved_module {
    /* those that graphhooks/model.h names */
    SAVED_QKV_LINEAR,
    SAVED_CORE_ATTN,
    SAVED_ATTN_PROJ,
    SAVED_MLP_NORM,
    SAVED_EXPERT_FC1,
    SAVED_MOE_ACT,
    /* the engine's own */
    SAVED_MLP_FC1,
    SAVED_MLP_ACT,
    SAVED_MAMBA_IN,
    SAVED_MAMBA_CONV,
    SAVED_MAMBA_SCAN,
    SAVED_MAMBA_OUT,
    SAVED_MODULES
};
#define SAVED_FIRST_OWN SAVED_MLP_FC1

extern const char *const saved_names[SAVED_MODULES + 1]; /* NULL ends it */

/* One tensor of a group.  Tensors of one group follow each other. */
struct saved {
    enum saved_module module;
    int first, last; /* parts: forward writes it from `first` on, and `last`
                        reads it, also in its backward */
    float **at;      /* where its address is kept */
    float **also;    /* a second such place; or NULL */
    size_t bytes;
};

static inline void saved_place(const struct saved *saved, void *address)
{
    *saved->at = address;
    if (saved->also != NULL) {
        *saved->also = address;
    }
}

#endif
