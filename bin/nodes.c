/*
 * nodes.c - see nodes.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "nodes.h"

#include "base/error.h"

/* An hour. */
#define MOST_US 3.6e9

static gh_status read_node(const char *where, size_t node, const json_t *json,
                           double *us, gh_error *err)
{
    const size_t n = json_array_size(json);

    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_array_get(json, i);

        if (!json_is_number(value) || json_number_value(value) < 0 ||
            json_number_value(value) > MOST_US) {
            return gh_fail(err, GH_ERR_CONFIG,
                           "%s[%zu][%zu]: give microseconds, 0 or more", where,
                           node, i);
        }
    }
    if (!json_is_array(json) || n < 2 || n > 3) {
        return gh_fail(err, GH_ERR_CONFIG,
                       "%s[%zu]: give a list of two or three: forward, "
                       "backward, weight gradient",
                       where, node);
    }
    for (size_t i = 0; i < n; i++) {
        us[i] = json_number_value(json_array_get(json, i));
    }
    return GH_OK;
}

gh_status nodes_read(const struct fields *object, struct node_times *times,
                     gh_error *err)
{
    char where[FIELD_WHERE_BYTES];
    const json_t *list = field_at(object, "node_us", where);
    const size_t n = json_array_size(list);
    gh_status status = GH_OK;

    if (list == NULL) {
        return GH_OK;
    }
    if (!json_is_array(list) || n == 0 || n > GH_FAMILY_NODES) {
        return gh_fail(err, GH_ERR_CONFIG,
                       "%s: give a list with one entry for each node of the "
                       "layer, at most %u",
                       where, (unsigned)GH_FAMILY_NODES);
    }
    for (size_t i = 0; i < n && status == GH_OK; i++) {
        status = read_node(where, i, json_array_get(list, i), times->us[i],
                           err);
    }
    times->n = (uint32_t)n;
    return status;
}
