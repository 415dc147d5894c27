/*
 * check.c - see check.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "plan/check.h"

#include <graphhooks/family.h>

#include "base/error.h"
#include "plan/kinds.h"
#include "plan/model.h"

#include <stddef.h>
#include <string.h>

#define KNOWN_FEATURES ((GH_FEATURE_HEAD << 1) - 1)

static bool has_experts(gh_layer_kind kind)
{
    return gh_kind_has(kind, GH_PART_MOE_ROUTER);
}

/* The bits of features that a layer of this kind can have. */
static uint32_t features_of(gh_layer_kind kind)
{
    uint32_t features = GH_FEATURE_HIDDEN_DROPOUT | GH_FEATURE_PACKED |
                        GH_FEATURE_PACKED_PAD | GH_FEATURE_MTP |
                        GH_FEATURE_EMBEDDING | GH_FEATURE_HEAD;

    if (has_experts(kind)) {
        features |= GH_FEATURE_CAPACITY | GH_FEATURE_PAD |
                    GH_FEATURE_SYNC_FREE | GH_FEATURE_FP8_PADDING |
                    GH_FEATURE_SHARED_EXPERTS | GH_FEATURE_SHARED_OVERLAP |
                    GH_FEATURE_ROUTER_JITTER | GH_FEATURE_HOST_ROUTER |
                    GH_FEATURE_LATENT;
    }
    if (gh_kind_has(kind, GH_PART_ATTN)) {
        features |= GH_FEATURE_ATTN_DROPOUT;
    }
    return features;
}

/* The GH_MODULE_* that such a layer can recompute or offload. */
uint32_t gh_layer_modules(gh_layer_kind kind, uint32_t features)
{
    const bool mlp = gh_kind_has(kind, GH_PART_MLP);
    const bool experts = has_experts(kind);
    const bool has[] = {
        [GH_MODULE_PART_ATTN] = gh_kind_has(kind, GH_PART_ATTN),
        [GH_MODULE_PART_NORM] = mlp || experts,
        [GH_MODULE_PART_MLP] = mlp,
        [GH_MODULE_PART_EXPERTS] = experts,
        [GH_MODULE_PART_SHARED] = (features & GH_FEATURE_SHARED_EXPERTS) != 0,
        [GH_MODULE_PART_LAYER] = true,
    };
    uint32_t modules = 0;

    for (uint32_t part = 0; part < sizeof(has) / sizeof(has[0]); part++) {
        modules |= has[part] ? gh_modules_in(part) : 0;
    }
    return modules;
}

/* Refuses bits that have no word, and words that such a layer cannot have. */
static gh_status check_bits(const char *where, const char *field,
                            const char *const *words, uint32_t bits,
                            uint32_t known, uint32_t own, gh_layer_kind kind,
                            gh_error *err)
{
    if ((bits & ~known) != 0) {
        return gh_fail(err, GH_ERR_INVALID, "%s%s has unknown bits 0x%x", where,
                       field, bits & ~known);
    }
    for (uint32_t i = 0; words[i] != NULL; i++) {
        if ((bits & ~own & 1u << i) != 0) {
            return gh_fail(err, GH_ERR_INVALID,
                           "%s%s: this %s layer has no %s; leave it out", where,
                           field, gh_kinds[kind].name, words[i]);
        }
    }
    return GH_OK;
}

/* Refuses a feature that refines another one which is not named. */
static gh_status check_pairs(const char *where, uint32_t features,
                             gh_error *err)
{
    static const struct {
        uint32_t more, of;
        const char *rule;
    } pairs[] = {
        { GH_FEATURE_PAD, GH_FEATURE_CAPACITY,
          "pad pads up to a capacity: name capacity too" },
        { GH_FEATURE_SHARED_OVERLAP, GH_FEATURE_SHARED_EXPERTS,
          "shared_overlap is of shared experts: name shared_experts too" },
        { GH_FEATURE_PACKED_PAD, GH_FEATURE_PACKED,
          "packed_pad is of packed sequences: name packed too" },
    };

    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        if ((features & (pairs[i].more | pairs[i].of)) == pairs[i].more) {
            return gh_fail(err, GH_ERR_INVALID, "%sfeatures: %s", where,
                           pairs[i].rule);
        }
    }
    return GH_OK;
}

static gh_status check_backend(const char *where, const gh_layer_desc *desc,
                               gh_error *err)
{
    if (desc->backend == GH_BACKEND_NONE) {
        return GH_OK;
    }
    if (!has_experts(desc->kind) || desc->dispatcher != GH_DISPATCHER_FLEX) {
        return gh_fail(err, GH_ERR_INVALID,
                       "%sbackend is of a flex dispatcher; leave it out, or "
                       "set dispatcher to flex",
                       where);
    }
    if (desc->backend > GH_BACKEND_NCCLEP) {
        return gh_fail(err, GH_ERR_UNSUPPORTED,
                       "%sbackend %u is not known to ABI %d.%d", where,
                       desc->backend, GH_ABI_MAJOR, GH_ABI_MINOR);
    }
    return GH_OK;
}

static gh_status check_experts(const char *where, const gh_layer_desc *desc,
                               gh_error *err)
{
    if (!has_experts(desc->kind)) {
        if (desc->experts == 0) {
            return GH_OK;
        }
        return gh_fail(err, GH_ERR_INVALID,
                       "%sexperts: a %s layer has no experts; leave it out",
                       where, gh_kinds[desc->kind].name);
    }
    if (desc->experts == 0) {
        return gh_fail(err, GH_ERR_INVALID,
                       "%sexperts is 0 in a %s layer: say how many there are",
                       where, gh_kinds[desc->kind].name);
    }
    if (desc->dispatcher > GH_DISPATCHER_FLEX) {
        return gh_fail(err, GH_ERR_UNSUPPORTED,
                       "%sdispatcher %u is not known to ABI %d.%d", where,
                       desc->dispatcher, GH_ABI_MAJOR, GH_ABI_MINOR);
    }
    return GH_OK;
}

static gh_status check_modules(const char *where, const gh_layer_desc *desc,
                               gh_error *err)
{
    const uint32_t own = gh_layer_modules(desc->kind, desc->features);
    const gh_status status =
        check_bits(where, "recompute", gh_module_names, desc->recompute,
                   GH_MODULES_ALL, own, desc->kind, err);

    if (status != GH_OK) {
        return status;
    }
    return check_bits(where, "offload", gh_module_names, desc->offload,
                      GH_MODULES_ALL, own, desc->kind, err);
}

bool gh_family_name_is_good(const char *name)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyz"
                               "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    const size_t bytes = strnlen(name, GH_FAMILY_NAME);

    return bytes > 0 && bytes < GH_FAMILY_NAME && strspn(name, good) == bytes;
}

/* A family's name becomes a file name, so it must not contain a path. */
static gh_status check_family(const char *where, const char *family,
                              gh_error *err)
{
    char clean[41];
    size_t n = 0;

    if (family == NULL || gh_family_name_is_good(family)) {
        return GH_OK;
    }
    for (; n < sizeof(clean) - 1 && family[n] != '\0'; n++) {
        clean[n] = family[n] < 0x20 || family[n] == 0x7F ? '?' : family[n];
    }
    clean[n] = '\0';
    return gh_fail(err, GH_ERR_INVALID,
                   "%sfamily is \"%s\": name it in letters, digits, _ and -, "
                   "at most %d of them, as in gpt; without a directory or .so",
                   where, clean, GH_FAMILY_NAME - 1);
}

gh_status gh_layer_check(const char *where, const gh_layer_desc *desc,
                         gh_error *err)
{
    gh_status status;

    if (desc->kind >= GH_KIND_COUNT) {
        return gh_fail(err, GH_ERR_UNSUPPORTED,
                       "%skind %u is not known to ABI %d.%d", where, desc->kind,
                       GH_ABI_MAJOR, GH_ABI_MINOR);
    }
    if (desc->reserved != 0 || desc->reserved_end != 0 ||
        desc->reserved_tail != 0) {
        return gh_fail(err, GH_ERR_INVALID,
                       "%sreserved%s is not 0: zero the struct before filling "
                       "it",
                       where,
                       desc->reserved != 0       ? ""
                       : desc->reserved_end != 0 ? "_end"
                                                 : "_tail");
    }
    status = check_family(where, desc->family, err);
    if (status != GH_OK) {
        return status;
    }
    status = check_experts(where, desc, err);
    if (status != GH_OK) {
        return status;
    }
    status = check_backend(where, desc, err);
    if (status != GH_OK) {
        return status;
    }
    status =
        check_bits(where, "features", gh_feature_names, desc->features,
                   KNOWN_FEATURES, features_of(desc->kind), desc->kind, err);
    if (status != GH_OK) {
        return status;
    }
    status = check_pairs(where, desc->features, err);
    return status != GH_OK ? status : check_modules(where, desc, err);
}
