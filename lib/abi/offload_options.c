/*
 * offload_options.c - see offload_options.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "abi/offload_options.h"

#include "base/error.h"
#include "base/size.h"
#include "plan/kinds.h"
#include "words/nearest.h"

#include <stdio.h>
#include <string.h>

static gh_status take_desc(const gh_offload_desc *given, gh_offload_desc *desc,
                           gh_error *err)
{
    gh_status status =
        gh_check_size("gh_offload_desc", given,
                      GH_SIZE_THROUGH(gh_offload_desc, pool_bytes),
                      sizeof(*desc), err);

    if (status != GH_OK) {
        return status;
    }
    gh_take_struct(given, desc, sizeof(*desc));
    if (desc->reserved != 0 || desc->reserved_tail != 0) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_offload_desc.reserved is %u, and reserved_tail %u: "
                       "zero them",
                       desc->reserved, desc->reserved_tail);
    }
    return GH_OK;
}

static gh_status offer_bytes(struct gh_env *env, enum gh_env_id id,
                             const char *label, uint64_t bytes, gh_error *err)
{
    char text[24] = "";

    if (bytes != 0) {
        snprintf(text, sizeof(text), "%llu", (unsigned long long)bytes);
    }
    return gh_env_offer(env, id, label, text, err);
}

static gh_status offer_counts(const gh_offload_desc *desc, struct gh_env *env,
                              gh_error *err)
{
    const struct {
        enum gh_env_id id;
        const char *label;
        uint32_t value;
    } counts[] = {
        { GH_ENV_OFFLOAD_BUFFERS, "gh_offload_desc.buffers", desc->buffers },
        { GH_ENV_OFFLOAD_PREFETCH, "gh_offload_desc.prefetch", desc->prefetch },
        { GH_ENV_OFFLOAD_IN_FLIGHT, "gh_offload_desc.in_flight",
          desc->in_flight },
    };
    gh_status status = GH_OK;

    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]) &&
                       status == GH_OK; i++) {
        status = gh_env_offer_count(env, counts[i].id, counts[i].label,
                                    counts[i].value, err);
    }
    return status;
}

gh_status gh_offload_offer(const gh_offload_desc *given, struct gh_env *env,
                           gh_error *err)
{
    gh_offload_desc copy;
    const gh_offload_desc *desc = &copy;
    gh_status status = take_desc(given, &copy, err);

    if (status == GH_OK) {
        status = gh_env_offer(env, GH_ENV_OFFLOAD, "gh_offload_desc.modules",
                              desc->modules, err);
    }
    if (status == GH_OK) {
        status = gh_env_offer(env, GH_ENV_OFFLOAD_FRACTION,
                              "gh_offload_desc.fraction", desc->fraction, err);
    }
    if (status == GH_OK) {
        status = offer_bytes(env, GH_ENV_OFFLOAD_MIN_BYTES,
                             "gh_offload_desc.min_bytes", desc->min_bytes, err);
    }
    if (status == GH_OK) {
        status =
            offer_bytes(env, GH_ENV_OFFLOAD_POOL_BYTES,
                        "gh_offload_desc.pool_bytes", desc->pool_bytes, err);
    }
    if (status == GH_OK) {
        status =
            offer_bytes(env, GH_ENV_OFFLOAD_KEEP_BYTES,
                        "gh_offload_desc.keep_bytes", desc->keep_bytes, err);
    }
    return status == GH_OK ? offer_counts(desc, env, err) : status;
}

static gh_status take_names(const char *const *given,
                            struct gh_offload_names *names, gh_error *err)
{
    for (; given != NULL && *given != NULL; given++) {
        const size_t bytes = strlen(*given);

        if (names->n == GH_MAX_NAMES || bytes == 0 ||
            bytes >= sizeof(names->text[0]) || strchr(*given, ',') != NULL) {
            return gh_fail(err, GH_ERR_INVALID,
                           "gh_offload_desc.names[%u] is \"%.40s\": at most "
                           "%u names, each of 1 to %zu bytes without a comma",
                           names->n, *given, GH_MAX_NAMES,
                           sizeof(names->text[0]) - 1);
        }
        memcpy(names->text[names->n], *given, bytes + 1);
        names->list[names->n] = names->text[names->n];
        names->n++;
    }
    return GH_OK;
}

/* Lists every word that may be named, and returns how many there are. */
static size_t known_words(const struct gh_offload_names *names,
                          const char *words[32 + GH_MAX_NAMES + 1])
{
    size_t n = 0;

    for (uint32_t bit = 0; gh_module_names[bit] != NULL; bit++) {
        if ((GH_MODULES_OF_TENSORS & UINT32_C(1) << bit) != 0) {
            words[n++] = gh_module_names[bit];
        }
    }
    for (uint32_t i = 0; i < names->n; i++) {
        words[n++] = names->list[i];
    }
    words[n] = NULL;
    return n;
}

static gh_status refuse_word(const struct gh_offload_names *names,
                             const char *word, gh_error *err)
{
    const char *words[32 + GH_MAX_NAMES + 1];
    const size_t n = known_words(names, words);
    const char *near = nearest_word(word, words);
    char list[200] = "";
    size_t used = 0;

    for (size_t i = 0; i < n && used < sizeof(list); i++) {
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s",
                                 i == 0 ? "" : ", ", words[i]);
    }
    return gh_fail(err, GH_ERR_CONFIG,
                   "GRAPHHOOKS_OFFLOAD: \"%.40s\" is none of %s%s%s", word,
                   list, near != NULL ? ": did you mean " : "",
                   near != NULL ? near : "");
}

static gh_status take_word(const struct gh_offload_names *names,
                           const char *word, struct gh_offload_options *options,
                           gh_error *err)
{
    for (uint32_t i = 0; i < names->n; i++) {
        if (strcmp(names->list[i], word) == 0) {
            options->named |= UINT32_C(1) << i;
            return GH_OK;
        }
    }
    for (uint32_t bit = 0; gh_module_names[bit] != NULL; bit++) {
        if ((GH_MODULES_OF_TENSORS & UINT32_C(1) << bit) != 0 &&
            strcmp(gh_module_names[bit], word) == 0) {
            options->modules |= UINT32_C(1) << bit;
            return GH_OK;
        }
    }
    return refuse_word(names, word, err);
}

static gh_status take_words(const struct gh_offload_names *names,
                            const char *text,
                            struct gh_offload_options *options, gh_error *err)
{
    gh_status status = GH_OK;

    while (*text != '\0' && status == GH_OK) {
        const size_t bytes = strcspn(text, ",");
        char word[64];

        snprintf(word, sizeof(word), "%.*s", bytes < 63 ? (int)bytes : 63,
                 text);
        status = take_word(names, word, options, err);
        text += bytes + (text[bytes] == ',');
    }
    return status;
}

static gh_status take_keep_bytes(const struct gh_env *env, uint32_t rank,
                                 struct gh_offload_options *options,
                                 gh_error *err)
{
    if (__builtin_mul_overflow(env->offload_keep_bytes, rank,
                               &options->keep_bytes)) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_offload_desc: keep_bytes is %llu and pipeline_rank "
                       "%u, and their product has more than 64 bits",
                       (unsigned long long)env->offload_keep_bytes, rank);
    }
    return GH_OK;
}

gh_status gh_offload_read_options(const gh_offload_desc *desc,
                                  const struct gh_env *env,
                                  struct gh_offload_names *names,
                                  struct gh_offload_options *options,
                                  bool *asked, gh_error *err)
{
    gh_status status =
        take_names(desc != NULL ? desc->names : NULL, names, err);

    *options = (struct gh_offload_options){
        .names = names->list,
        .n_names = names->n,
        .fraction = env->offload_fraction < 0.0 ? 1.0 : env->offload_fraction,
        .hides = env->offload_fraction < 0.0,
        .min_bytes = env->offload_min_bytes,
        .buffers = env->offload_buffers,
        .pool_bytes = env->offload_pool_bytes,
        .prefetch = env->offload_prefetch,
        .in_flight = env->offload_in_flight,
        .max_slots = env->max_slots,
        .delay = env->offload_delay != 0,
        .apart = env->offload_apart != 0 && env->offload_delay != 0,
    };
    if (status == GH_OK && desc != NULL) {
        gh_offload_desc copy;

        gh_take_struct(desc, &copy, sizeof(copy));
        options->link_rate = copy.link_mb_per_s;
        status = take_keep_bytes(env, copy.pipeline_rank, options, err);
    }
    *asked = env->offload[0] != '\0';
    return status == GH_OK ? take_words(names, env->offload, options, err)
                           : status;
}
