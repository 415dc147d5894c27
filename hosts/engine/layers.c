/*
 * layers.c - what every model is made of: its layers, and their parts.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "model.h"

static const enum part_kind dense[] = { PART_ATTN, PART_MLP };
static const enum part_kind moe[] = {
    PART_ATTN,        PART_MOE_ROUTER,  PART_MOE_PREPROCESS, PART_MOE_DISPATCH,
    PART_MOE_EXPERTS, PART_MOE_COMBINE, PART_MOE_POST,
};

#define PARTS(list) list, (int)(sizeof(list) / sizeof((list)[0]))

static const struct layer_row {
    const enum part_kind *parts;
    int n;
} rows[] = {
    [LAYER_DENSE] = { PARTS(dense) },
    [LAYER_MOE] = { PARTS(moe) },
};

int layer_parts(enum layer_kind kind, const enum part_kind **parts_p)
{
    *parts_p = rows[kind].parts;
    return rows[kind].n;
}

enum layer_kind layer_kind(const struct config *config, int layer)
{
    (void)layer;
    return config->model == MODEL_MOE ? LAYER_MOE : LAYER_DENSE;
}

bool config_has(const struct config *config, enum part_kind kind)
{
    for (int i = 0; i < config->layers; i++) {
        const enum part_kind *parts;
        const int n = layer_parts(layer_kind(config, i), &parts);

        for (int j = 0; j < n; j++) {
            if (parts[j] == kind) {
                return true;
            }
        }
    }
    return false;
}
