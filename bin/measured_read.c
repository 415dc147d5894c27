/*
 * measured_read.c - see measured.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "measured.h"

#include "base/error.h"
#include "fields.h"

/* An hour. */
#define MOST_US 3.6e9

static const char *const known[] = {
    "scope",         "segments",       "eager_us", "replay_us",
    "eager_host_us", "replay_host_us", "kept",     NULL,
};

static gh_status read_us(const struct fields *row, const char *key, double *us,
                         gh_error *err)
{
    char where[FIELD_WHERE_BYTES];
    const json_t *json = field_at(row, key, where);

    if (json == NULL) {
        return field_missing(where, "microseconds", err);
    }
    if (!json_is_number(json) || !(json_number_value(json) >= 0 &&
                                   json_number_value(json) <= MOST_US)) {
        return gh_fail(err, GH_ERR_CONFIG, "%s: give microseconds, 0 or more",
                       where);
    }
    *us = json_number_value(json);
    return GH_OK;
}

static gh_status read_row(const struct fields *row,
                          struct measured_scope *scope, gh_error *err)
{
    const char *name;
    gh_status status = fields_check(row, known, err);

    scope->segments = 1;
    scope->kept = true;
    if (status != GH_OK ||
        (status = field_text(row, "scope", true, &name, err)) != GH_OK ||
        (status = field_count(row, "segments", 1, 1000000, &scope->segments,
                              err)) != GH_OK ||
        (status = field_switch(row, "kept", &scope->kept, err)) != GH_OK ||
        (status = read_us(row, "eager_us", &scope->eager_us, err)) != GH_OK ||
        (status = read_us(row, "replay_us", &scope->replay_us, err)) !=
            GH_OK ||
        (status = read_us(row, "eager_host_us", &scope->eager_host_us, err)) !=
            GH_OK) {
        return status;
    }
    snprintf(scope->name, sizeof(scope->name), "%s", name);
    return read_us(row, "replay_host_us", &scope->replay_host_us, err);
}

gh_status measured_read(const struct fields *top, struct measured *measured,
                        gh_error *err)
{
    char where[FIELD_WHERE_BYTES];
    const json_t *list = field_at(top, "measured", where);
    const size_t n = json_array_size(list);
    gh_status status = GH_OK;

    if (list == NULL) {
        return GH_OK;
    }
    if (!json_is_array(list) || n > MEASURED_MOST) {
        return gh_fail(err, GH_ERR_CONFIG,
                       "%s: give a list of scopes, at most %u", where,
                       MEASURED_MOST);
    }
    for (size_t i = 0; i < n && status == GH_OK; i++) {
        struct fields row = { .json = json_array_get(list, i) };

        snprintf(row.where, sizeof(row.where), "measured[%zu].", i);
        status = json_is_object(row.json)
                     ? read_row(&row, &measured->scopes[i], err)
                     : gh_fail(err, GH_ERR_CONFIG,
                               "measured[%zu]: give an object of a scope", i);
    }
    measured->n = status == GH_OK ? (uint32_t)n : 0;
    return status;
}
