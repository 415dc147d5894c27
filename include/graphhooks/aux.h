/*
 * graphhooks/aux.h - tensors that graphs read besides the inputs of a pass.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GRAPHHOOKS_AUX_H
#define GRAPHHOOKS_AUX_H

#include <graphhooks/layer.h>

GH_BEGIN_DECLS

/* Which tensor, and where it is.  Zero the struct, then set struct_size.
 * Since 0.2. */
typedef struct gh_aux {
    uint32_t struct_size;
    uint32_t layer;   /* as added to the model, from 0 */
    const char *name; /* as the layer's family names it; read during the call */
    gh_buffer buffer; /* its device memory; flags and tensor must be 0 */
    void *object;     /* passed to gh_host_services.retain and .release; NULL:
                         the host keeps the tensor alive by itself */

    /* since 0.4 */
    uint32_t bank;     /* the bank whose graphs read it: gh_bank_add(), or 0 */
    uint32_t reserved; /* must be 0 */
} gh_aux;

/**
 * Bind an auxiliary tensor that a layer's family has named, such as a table
 * of rotary angles.  Its object is retained until the last graph that may
 * read the tensor is destroyed.
 *
 * To bind another address or size destroys the bank's graphs of the parts
 * that read the tensor; they are recorded again.  To bind the same address and
 * size again does nothing, except that another object takes the place of the
 * one that is retained.
 *
 * A bank that is evicted (GRAPHHOOKS_MAX_BANKS) loses its bindings too: the
 * objects are released with the last of its graphs, and its passes are not
 * recorded again until the tensors are bound again (GH_REASON_UNBOUND).  The
 * simplest host binds before each microbatch of a bank: where nothing has
 * changed, the call is one look-up.
 *
 * @param aux  read during the call only
 *
 * @return GH_OK; GH_ERR_NOT_FOUND when the layer's family names no such
 *         tensor, or for an unknown bank; GH_ERR_STATE while a pass is open,
 *         or for another address while microbatches are in flight through
 *         graphs that read the tensor; GH_ERR_INVALID, GH_ERR_ABI or
 *         GH_ERR_UNSUPPORTED for a bad struct; GH_ERR_NO_MEMORY.
 * Blocks: for another address or size, until the session's graphs have
 * finished.  Since: 0.2.
 */
GH_API gh_status gh_aux_bind(gh_session *session, const gh_aux *aux,
                             gh_error *err);

GH_END_DECLS

#endif
