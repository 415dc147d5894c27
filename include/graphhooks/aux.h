/*
 * graphhooks/aux.h - tensors that graphs read besides the inputs of a pass.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GRAPHHOOKS_AUX_H
#define GRAPHHOOKS_AUX_H

#include <graphhooks/layer.h>

GH_BEGIN_DECLS

/* A tensor that graphs read besides their inputs.  Zero the struct, then set
 * struct_size.  Since 0.2. */
typedef struct gh_aux {
    uint32_t struct_size;
    uint32_t layer;   /* as added to the model, from 0 */
    const char *name; /* as the layer's family names it; read during the call */
    gh_buffer buffer; /* where it lies; flags and tensor must be 0 */
    void *object;     /* what gh_host_services.retain keeps alive; NULL: the
                         host sees to it by itself */

    /* since 0.4 */
    uint32_t bank;     /* whose graphs read it: gh_bank_add(), or 0 */
    uint32_t reserved; /* must be 0 */
} gh_aux;

/**
 * Bind an auxiliary tensor that a layer's family has named, such as a table
 * of rotary angles: its object is retained until the last graph that may
 * read the tensor is gone.
 *
 * Binding another address drops the bank's graphs of the parts that read the
 * tensor, and they are recorded again; so does another size.  The same ones
 * again are nothing, or with another object change which one is retained.
 *
 * A bank that gives way to another one gives up its bindings too: the objects
 * are released with the last of its graphs, and its passes are not recorded
 * again before they are bound again (GH_REASON_UNBOUND).  A host that binds
 * before each microbatch of a bank need not know: where nothing has changed the
 * call is a look-up.
 *
 * @param aux  read during the call only
 *
 * @return GH_OK; GH_ERR_NOT_FOUND when the layer's family names no such
 *         tensor, or for an unknown bank; GH_ERR_STATE while a pass is open, or when the
 *         tensor has moved while microbatches are in flight through graphs
 *         that read it; GH_ERR_INVALID,
 *         GH_ERR_ABI or GH_ERR_UNSUPPORTED for a bad struct;
 *         GH_ERR_NO_MEMORY.
 * Blocks: for another address, until the session's graphs have finished.
 * Since: 0.2.
 */
GH_API gh_status gh_aux_bind(gh_session *session, const gh_aux *aux,
                             gh_error *err);

GH_END_DECLS

#endif
