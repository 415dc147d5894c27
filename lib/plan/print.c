/*
 * print.c - the plan as text or JSON.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "plan/plan.h"

#include "plan/sink.h"

void gh_plan_write(const struct gh_plan *plan, gh_format format,
                   gh_write_fn *write, void *user)
{
    const struct sink sink = { write, user };

    if (format == GH_FORMAT_JSON) {
        gh_json_write(plan, &sink);
    } else {
        gh_text_write(plan, false, &sink);
    }
}

void gh_plan_write_all(const struct gh_plan *plan, gh_write_fn *write,
                       void *user)
{
    const struct sink sink = { write, user };

    gh_text_write(plan, true, &sink);
}
