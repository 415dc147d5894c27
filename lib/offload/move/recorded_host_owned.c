/*
 * recorded_host_owned.c - see recorded_host_owned.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "offload/move/recorded_host_owned.h"

#include "base/error.h"
#include "offload/groups/group.h"
#include "offload/groups/host_owned.h"

#include <stdlib.h>

static gh_status make_host_owned(struct gh_offload_step *step, gh_error *err)
{
    step->host_memory = calloc(1, sizeof(*step->host_memory));
    if (step->host_memory == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a recording");
    }
    return gh_host_owned_make(step->instance, err);
}

/* Tensors that stay where the host has them need no memory of the library's. */
gh_status gh_host_owned_record_save(const struct gh_offload *o,
                                    const gh_offload_group *wanted,
                                    struct gh_offload_step *step, gh_error *err)
{
    const bool goes = step->buffer != NULL;
    gh_status status = make_host_owned(step, err);

    if (status != GH_OK) {
        return status;
    }
    gh_host_owned_lay(o, wanted, goes, step->host_memory);
    step->host_memory->by_graph = true;
    step->host_memory->mode =
        gh_host_owned_choose(goes, gh_group_is_lent(o, wanted), false);
    if (step->host_memory->mode == GH_HOST_OWNED_STAYS) {
        step->stays = 0;
    }
    return GH_OK;
}

gh_status gh_host_owned_record_lend(struct gh_offload *o,
                                    const struct gh_offload_at *at,
                                    const gh_offload_group *wanted,
                                    const struct gh_offload_step *step,
                                    gh_error *err)
{
    return gh_group_is_lent(o, wanted)
               ? gh_loans_record(&o->loans, wanted->object, step->instance,
                                 at->pass, err)
               : GH_OK;
}

gh_status gh_host_owned_record_commit(struct gh_offload *o,
                                      const struct gh_offload_at *at,
                                      const struct gh_offload_script *script,
                                      const struct gh_offload_step *step,
                                      gh_error *err)
{
    for (uint32_t s = 0; s < script->n; s++) {
        const struct gh_offload_step *save = &script->steps[s];
        gh_status status;

        if (save->instance != step->instance || save->verb != GH_OFFLOAD_SAVE ||
            save->host_memory == NULL) {
            continue;
        }
        status = gh_host_owned_stage(
            o, save->host_memory,
            save->buffer != NULL ? save->buffer->address : NULL,
            step->instance->kept, at->stream, err);
        if (status == GH_OK && save->host_memory->mode != GH_HOST_OWNED_STAYS) {
            gh_loans_end_instance(&o->loans, step->instance);
        }
        return status;
    }
    return GH_OK;
}

gh_status gh_host_owned_record_load(struct gh_offload *o,
                                    const gh_offload_group *wanted,
                                    struct gh_offload_step *step, gh_error *err)
{
    struct gh_instance *i = step->instance;
    const bool goes = step->buffer != NULL;
    gh_status status;

    if (!gh_host_owned_fits(i->host_memory, wanted)) {
        return gh_host_owned_refuse_load(o, i->host_memory, wanted, err);
    }
    status = make_host_owned(step, err);
    if (status != GH_OK) {
        return status;
    }
    gh_host_owned_copy(step->host_memory, i->host_memory);
    gh_host_owned_split(o, step->host_memory, goes);
    step->layout = i->layout;
    if (goes || !i->host_memory->by_graph ||
        i->host_memory->mode != GH_HOST_OWNED_STAYS) {
        step->host_memory->mode = GH_HOST_OWNED_STAGED;
        step->stays = step->host_memory->stays;
    }
    status = gh_group_keep_for_graph(o, i, step->stays, err);
    if (status == GH_OK) {
        gh_host_owned_fix(step->host_memory, i->kept);
    }
    return status;
}
