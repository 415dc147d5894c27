/*
 * settings.c - the options that ranks compare.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "config/private.h"

#include <stdio.h>
#include <string.h>

static uint64_t hash(const char *text)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (; *text != '\0'; text++) {
        h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    }
    return h;
}

/* The words whose bits are set; none: the default. */
static void write_list(const struct gh_env_row *row, uint32_t bits, char *text,
                       size_t bytes)
{
    size_t used = 0;

    snprintf(text, bytes, "%s", gh_env_default(row));
    for (uint32_t i = 0; row->words[i].word != NULL; i++) {
        if ((bits & UINT32_C(1) << i) != 0 && used < bytes) {
            used += (size_t)snprintf(text + used, bytes - used, "%s%s",
                                     used == 0 ? "" : ",", row->words[i].word);
        }
    }
}

static void write_number(const struct gh_env_row *row, const void *value,
                         struct gh_setting *setting)
{
    const uint32_t number = *(const uint32_t *)value;
    char *text = setting->text;

    setting->word = number;
    if (row->kind == GH_ENV_KIND_ENUM) {
        snprintf(text, sizeof(setting->text), "%s", row->words[number].word);
    } else if (row->kind == GH_ENV_KIND_LIST) {
        write_list(row, number, text, sizeof(setting->text));
    } else {
        snprintf(text, sizeof(setting->text), "%u", number);
    }
}

static void write_bytes(const struct gh_env_row *row, const void *value,
                        struct gh_setting *setting)
{
    setting->word = *(const uint64_t *)value;
    if (setting->word == GH_ENV_BYTES_WORD) {
        snprintf(setting->text, sizeof(setting->text), "%s",
                 row->words[0].word);
    } else {
        snprintf(setting->text, sizeof(setting->text), "%llu%s",
                 (unsigned long long)(setting->word & ~GH_ENV_BYTES_SHARE),
                 (setting->word & GH_ENV_BYTES_SHARE) != 0 ? "%" : "");
    }
}

static void write_fraction(const struct gh_env_row *row, const void *value,
                           struct gh_setting *setting)
{
    const double fraction = *(const double *)value;

    memcpy(&setting->word, &fraction, sizeof(setting->word));
    if (fraction < 0) {
        snprintf(setting->text, sizeof(setting->text), "%s",
                 row->words[0].word);
    } else {
        snprintf(setting->text, sizeof(setting->text), "%.9g", fraction);
    }
}

static void write_value(const struct gh_env_row *row, const void *value,
                        struct gh_setting *setting)
{
    switch (row->kind) {
    case GH_ENV_KIND_BOOL:
    case GH_ENV_KIND_COUNT:
    case GH_ENV_KIND_ENUM:
    case GH_ENV_KIND_LIST:
        write_number(row, value, setting);
        break;
    case GH_ENV_KIND_BYTES:
        write_bytes(row, value, setting);
        break;
    case GH_ENV_KIND_FRACTION:
        write_fraction(row, value, setting);
        break;
    default:
        setting->word = hash(value);
        gh_env_shown(*(const char *)value != '\0' ? (const char *)value
                                                  : gh_env_default(row),
                     setting->text, sizeof(setting->text));
    }
}

uint32_t gh_env_settings(const struct gh_env *env, struct gh_setting *settings)
{
    uint32_t n = 0;

    for (size_t i = 0; i < GH_ENV_COUNT; i++) {
        const struct gh_env_row *row = &gh_env_table[i];

        if (row->ranks == GH_ENV_RANKS_SAME) {
            settings[n].name = row->name;
            write_value(row, (const char *)env + row->offset, &settings[n++]);
        }
    }
    return n;
}
