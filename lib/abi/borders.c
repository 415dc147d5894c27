/*
 * borders.c - the tensors that passes hand to each other, and those that
 * graphs read besides: checks the arguments, then lets lib/capture find or
 * bind the tensors.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include <graphhooks/aux.h>
#include <graphhooks/border.h>

#include "abi/session.h"
#include "base/error.h"
#include "base/size.h"
#include "capture/capture.h"

#include <stdio.h>
#include <string.h>

static gh_status check_key(const gh_session *session, const gh_border_key *key,
                           gh_error *err)
{
    if (key->segment >= session->plan.n_segments) {
        return gh_fail(err, GH_ERR_NOT_FOUND,
                       "gh_border_key.segment is %u, but the plan has %u "
                       "segments",
                       key->segment, session->plan.n_segments);
    }
    if (key->direction > GH_BACKWARD) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_border_key.direction is %u: GH_FORWARD or "
                       "GH_BACKWARD",
                       key->direction);
    }
    if (key->microbatch >= GH_MAX_MICROBATCHES) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_border_key.microbatch is %u: at most %u a step",
                       key->microbatch, GH_MAX_MICROBATCHES);
    }
    if ((key->flags & ~(uint32_t)GH_PASS_FORWARD_ONLY) != 0 ||
        (key->flags != 0 && key->direction != GH_FORWARD)) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_border_key.flags is 0x%x: 0, or of a forward pass "
                       "GH_PASS_FORWARD_ONLY",
                       key->flags);
    }
    if (key->tensor == GH_TENSOR_NONE || key->tensor >= GH_TENSOR_COUNT) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_border_key.tensor is %u: 1 to %u", key->tensor,
                       GH_TENSOR_COUNT - 1);
    }
    return GH_OK;
}

gh_status gh_border_find(const gh_session *session, const gh_border_key *key,
                         gh_buffer *buffer_p, gh_error *err)
{
    const size_t least = GH_SIZE_THROUGH(gh_border_key, which);
    gh_border_key ours;
    gh_status status;

    status = gh_session_check(session, "gh_border_find", err);
    if (status != GH_OK) {
        return status;
    }
    if (key == NULL || buffer_p == NULL) {
        return gh_fail(err, GH_ERR_INVALID, "gh_border_find: %s is NULL",
                       key == NULL ? "key" : "buffer_p");
    }
    status = gh_check_size("gh_border_key", key, least, sizeof(ours), err);
    if (status != GH_OK) {
        return status;
    }
    gh_take_struct(key, &ours, sizeof(ours));
    status = check_key(session, &ours, err);
    if (status != GH_OK) {
        return status;
    }
    return gh_capture_find(session->capture, &ours, buffer_p, err);
}

static gh_status check_aux(const gh_session *session, const gh_aux *aux,
                           gh_error *err)
{
    if (aux->name == NULL || aux->buffer.address == NULL) {
        return gh_fail(err, GH_ERR_INVALID, "gh_aux.%s is NULL",
                       aux->name == NULL ? "name" : "buffer.address");
    }
    if (aux->buffer.flags != 0 || aux->buffer.tensor != 0) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_aux.buffer: flags 0x%x, tensor %u: both must be 0",
                       aux->buffer.flags, aux->buffer.tensor);
    }
    if (aux->reserved != 0) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_aux.reserved is %u: zero the struct before filling "
                       "it",
                       aux->reserved);
    }
    if (aux->layer >= session->plan.n_layers) {
        return gh_fail(err, GH_ERR_NOT_FOUND,
                       "gh_aux.layer is %u, but the model has %u layers",
                       aux->layer, session->plan.n_layers);
    }
    if (gh_capture_is_open(session->capture)) {
        return gh_fail(err, GH_ERR_STATE,
                       "gh_aux_bind: a pass is open: call gh_layer_exit or "
                       "gh_layer_cancel first");
    }
    return GH_OK;
}

/* Finds the parts of the layer that read the tensor, as the layer's family
 * described them. */
static gh_status find_readers(const struct gh_layer *layer, const gh_aux *aux,
                              uint32_t *parts, gh_error *err)
{
    const struct gh_traits *traits = layer->traits;
    char names[128] = "";
    size_t used = 0;

    for (uint32_t i = 0; traits != NULL && i < traits->layer.n_tensors; i++) {
        if (strcmp(traits->names[i], aux->name) == 0) {
            *parts = traits->layer.tensors[i].parts;
            return GH_OK;
        }
        if (used < sizeof(names)) {
            used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s",
                                     used == 0 ? "" : ", ", traits->names[i]);
        }
    }
    if (used == 0) {
        return gh_fail(err, GH_ERR_NOT_FOUND,
                       "gh_aux.name is \"%.40s\", which no family names for "
                       "layer %u: there is nothing to bind",
                       aux->name, aux->layer);
    }
    return gh_fail(err, GH_ERR_NOT_FOUND,
                   "gh_aux.name is \"%.40s\", which family %.40s does not "
                   "name for layer %u: name one of %s",
                   aux->name, traits->source->name, aux->layer, names);
}

gh_status gh_aux_bind(gh_session *session, const gh_aux *aux, gh_error *err)
{
    const size_t least = GH_SIZE_THROUGH(gh_aux, object);
    uint32_t parts = 0;
    gh_status status;
    gh_aux ours;

    status = gh_session_check(session, "gh_aux_bind", err);
    if (status != GH_OK) {
        return status;
    }
    if (aux == NULL) {
        return gh_fail(err, GH_ERR_INVALID, "gh_aux_bind: aux is NULL");
    }
    status = gh_check_size("gh_aux", aux, least, sizeof(ours), err);
    if (status != GH_OK) {
        return status;
    }
    gh_take_struct(aux, &ours, sizeof(ours));
    status = check_aux(session, &ours, err);
    if (status != GH_OK) {
        return status;
    }
    status =
        find_readers(&session->plan.layers[ours.layer], &ours, &parts, err);
    if (status != GH_OK) {
        return status;
    }
    return gh_capture_bind(session->capture, &ours, parts, err);
}
