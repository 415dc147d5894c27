/*
 * options.c - what a session is opened with.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "abi/options.h"

#include "abi/offload_options.h"

#include "base/error.h"
#include "base/size.h"
#include "config/env.h"

#define KNOWN_FLAGS \
    (GH_SESSION_BUSY_FAILS | GH_SESSION_EP_OVERLAP | \
     GH_SESSION_DELAY_WGRAD | GH_SESSION_LEGACY_THREADS | \
     GH_SESSION_SUSPENDS)

#define KNOWN_CAPABILITIES (GH_CAN_PARTS | GH_CAN_LAYERS | GH_CAN_CHUNKS)

gh_status gh_session_take_desc(const gh_session_desc *given,
                               gh_session_desc *desc, gh_error *err)
{
    const size_t least = GH_SIZE_THROUGH(gh_session_desc, environment);
    gh_status status;

    status = gh_check_size("gh_session_desc", given, least, sizeof(*desc), err);
    if (status != GH_OK) {
        return status;
    }
    gh_take_struct(given, desc, sizeof(*desc));

    if (desc->flags & ~(uint32_t)KNOWN_FLAGS) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_session_desc.flags has unknown bits 0x%x",
                       desc->flags & ~(uint32_t)KNOWN_FLAGS);
    }
    if (desc->reserved != 0) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_session_desc.reserved is %u: zero it",
                       desc->reserved);
    }
    if (desc->model == NULL) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_session_desc.model is NULL: make one with "
                       "gh_model_create");
    }
    if ((desc->capabilities & ~(uint32_t)KNOWN_CAPABILITIES) != 0 ||
        desc->reserved_tail != 0) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_session_desc.capabilities is 0x%x, and reserved_tail "
                       "%u: set GH_CAN_* only, and zero the rest",
                       desc->capabilities, desc->reserved_tail);
    }
    return GH_OK;
}

gh_status gh_session_read_options(const gh_session_desc *desc,
                                  struct gh_env *env, gh_error *err)
{
    const struct gh_env_offer words[] = {
        { GH_ENV_SCOPE, "gh_session_desc.scope", desc->scope },
        { GH_ENV_GRANULARITY, "gh_session_desc.granularity",
          desc->granularity },
        { GH_ENV_DRIVER, "gh_session_desc.driver", desc->driver },
    };
    gh_status status =
        gh_env_load_with(desc->environment, words,
                         sizeof(words) / sizeof(words[0]), env, err);

    if (status != GH_OK) {
        return status;
    }
    if (desc->offload != NULL) {
        status = gh_offload_offer(desc->offload, env, err);
        if (status != GH_OK) {
            return status;
        }
    }
    status = gh_env_offer_count(env, GH_ENV_WARMUP_STEPS,
                                "gh_session_desc.warmup_steps",
                                desc->warmup_steps, err);
    if (status != GH_OK) {
        return status;
    }
    return gh_env_offer_count(env, GH_ENV_MAX_SLOTS,
                              "gh_session_desc.max_slots", desc->max_slots,
                              err);
}
