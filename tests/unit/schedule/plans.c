/*
 * plans.c - see plans.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/unit/schedule/plans.h"

#include "tap/tap.h"

static bool make(gh_model *model, const struct gh_plan_options *options,
                 struct gh_plan *plan)
{
    gh_error why;
    const gh_status status = gh_plan_make(model, options, plan, &why);

    gh_model_destroy(model);
    return is_status(status, GH_OK, &why, "there is a plan");
}

bool plan_of(const char *layers, uint32_t scope, struct gh_plan *plan)
{
    const struct gh_plan_options options = {
        .scope = scope,
        .granularity = GH_GRANULARITY_LAYER,
        .ep_overlap = true,
        .delay_wgrad = true,
    };
    gh_model *model = NULL;
    uint32_t chunk = 0;

    gh_model_create(&model, NULL);
    for (; *layers != '\0'; layers++) {
        const gh_layer_desc desc = {
            .struct_size = sizeof(desc),
            .kind = *layers == 'm'   ? GH_LAYER_MOE
                    : *layers == 'd' ? GH_LAYER_DENSE
                                     : GH_LAYER_MAMBA,
            .chunk = chunk,
            .experts = *layers == 'm' ? 4 : 0,
        };

        if (*layers == '|') {
            chunk++;
        } else {
            gh_model_add_layer(model, &desc, NULL);
        }
    }
    return make(model, &options, plan);
}

bool plan_of_shared_experts(struct gh_plan *plan)
{
    const struct gh_plan_options options = {
        .granularity = GH_GRANULARITY_PART,
        .delay_wgrad = true,
    };
    const gh_layer_desc desc = {
        .struct_size = sizeof(desc),
        .kind = GH_LAYER_MOE,
        .experts = 4,
        .features = GH_FEATURE_SHARED_EXPERTS | GH_FEATURE_SHARED_OVERLAP,
    };
    gh_model *model = NULL;

    gh_model_create(&model, NULL);
    gh_model_add_layer(model, &desc, NULL);
    return make(model, &options, plan);
}
