/*
 * costs.c - see costs.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "costs.h"

#include "base/error.h"
#include "config/env.h"

#include <stdlib.h>
#include <string.h>

void costs_default(struct foresight *f)
{
    *f = (struct foresight){
        .policy = { .fraction = 1.0, .buffers = 2, .in_flight = 1 },
    };
}

/* The value of a row of the environment's table, read by its rule. */
static gh_status read_row(enum gh_env_id id, const char *label,
                          const char *value, struct gh_env **env_p,
                          gh_error *err)
{
    struct gh_env *env = malloc(sizeof(*env));
    gh_status status;

    if (env == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for an option");
    }
    status = gh_env_load(NULL, env, err);
    if (status == GH_OK) {
        status = gh_env_offer(env, id, label, value, err);
    }
    if (status != GH_OK) {
        free(env);
        return status;
    }
    *env_p = env;
    return GH_OK;
}

gh_status costs_take_fraction(struct foresight *f, const char *label,
                              const char *value, gh_error *err)
{
    struct gh_env *env;
    gh_status status;

    if (value == NULL) {
        return GH_OK;
    }
    status = read_row(GH_ENV_OFFLOAD_FRACTION, label, value, &env, err);
    if (status == GH_OK) {
        f->policy.hides = env->offload_fraction < 0.0;
        f->policy.fraction = f->policy.hides ? 1.0 : env->offload_fraction;
        free(env);
    }
    return status;
}

gh_status costs_take_buffers(struct foresight *f, const char *label,
                             const char *value, gh_error *err)
{
    struct gh_env *env;
    gh_status status;

    if (value == NULL) {
        return GH_OK;
    }
    status = read_row(GH_ENV_OFFLOAD_BUFFERS, label, value, &env, err);
    if (status == GH_OK) {
        f->policy.buffers = env->offload_buffers;
        free(env);
    }
    return status;
}

gh_status costs_take_in_flight(struct foresight *f, const char *label,
                               const char *value, gh_error *err)
{
    char *end;
    unsigned long n;

    if (value == NULL) {
        return GH_OK;
    }
    n = strtoul(value, &end, 10);
    if (value[0] < '0' || value[0] > '9' || *end != '\0' || n < 1 ||
        n > COSTS_MOST_IN_FLIGHT) {
        return gh_fail(err, GH_ERR_CONFIG,
                       "%s is \"%.40s\"; set it to a number from 1 to %u, or "
                       "leave it out for 1",
                       label, value, COSTS_MOST_IN_FLIGHT);
    }
    f->policy.in_flight = (uint32_t)n;
    return GH_OK;
}
