/*
 * layers.c - the layers of every model, and their parts.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "model/model.h"

#include <string.h>

static const char *const model_names[MODEL_COUNT] = { "gpt", "moe", "mla",
                                                      "mamba", "hybrid" };

const char *model_name(enum model_kind model)
{
    return model_names[model];
}

static const enum part_kind dense[] = { PART_ATTN, PART_MLP };
static const enum part_kind moe[] = {
    PART_ATTN,        PART_MOE_ROUTER,  PART_MOE_PREPROCESS, PART_MOE_DISPATCH,
    PART_MOE_EXPERTS, PART_MOE_COMBINE, PART_MOE_POST,
};

static const enum part_kind mamba[] = { PART_MAMBA };

#define PARTS(list) list, (int)(sizeof(list) / sizeof((list)[0]))

static const struct layer_row {
    const enum part_kind *parts;
    int n;
} rows[] = {
    [LAYER_DENSE] = { PARTS(dense) },
    [LAYER_MOE] = { PARTS(moe) },
    [LAYER_MAMBA] = { PARTS(mamba) },
    [LAYER_ATTN_ONLY] = { dense, 1 },
    [LAYER_MLP_ONLY] = { dense + 1, 1 },
    [LAYER_MOE_ONLY] = { moe + 1, (int)(sizeof(moe) / sizeof(moe[0])) - 1 },
};

int layer_parts(enum layer_kind kind, const enum part_kind **parts_p)
{
    *parts_p = rows[kind].parts;
    return rows[kind].n;
}

/* The kind of a pattern's letter; -1: it is no such letter. */
static int kind_of_letter(char letter)
{
    switch (letter) {
    case 'M':
        return LAYER_MAMBA;
    case '*':
        return LAYER_ATTN_ONLY;
    case '-':
        return LAYER_MLP_ONLY;
    case 'E':
        return LAYER_MOE_ONLY;
    default:
        return -1;
    }
}

bool pattern_valid(const char *pattern)
{
    for (size_t i = 0; pattern[i] != '\0'; i++) {
        if (kind_of_letter(pattern[i]) < 0) {
            return false;
        }
    }
    return pattern[0] != '\0';
}

int config_layer(const struct config *config, int layer)
{
    const struct share *share = &config->share;

    for (int i = 0; share->all > 0 && i < share->n; i++) {
        if (layer < share->count[i]) {
            return share->first[i] + layer;
        }
        layer -= share->count[i];
    }
    return layer;
}

enum layer_kind layer_kind(const struct config *config, int own)
{
    const char *pattern = config->pattern == NULL ? "M*-E" : config->pattern;
    const int layer = config_layer(config, own);

    switch (config->model) {
    case MODEL_MOE:
        return layer < config->dense_layers ? LAYER_DENSE : LAYER_MOE;
    case MODEL_MLA: /* with experts if they are asked for */
        return config->experts == 0 || layer < config->dense_layers
                   ? LAYER_DENSE
                   : LAYER_MOE;
    case MODEL_MAMBA:
        return LAYER_MAMBA;
    case MODEL_HYBRID:
        return (enum layer_kind)kind_of_letter(
            pattern[(size_t)layer % strlen(pattern)]);
    default:
        return LAYER_DENSE;
    }
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
