/*
 * sink.h - where a plan is written to; lib/plan only.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_PLAN_SINK_H
#define GH_PLAN_SINK_H

#include "base/json.h"
#include "base/path.h"
#include "plan/plan.h"

#include <string.h>

struct sink {
    gh_write_fn *write;
    void *user;
};

static inline void put(const struct sink *sink, const char *text)
{
    sink->write(sink->user, text, strlen(text));
}

static inline void put_quoted(const struct sink *sink, const char *text)
{
    char escaped[8];

    put(sink, "\"");
    while (*text != '\0') {
        text += gh_json_char(text, escaped);
        put(sink, escaped);
    }
    put(sink, "\"");
}

/* print.c: "graphed" or "eager". */
const char *gh_mode_name(gh_segment_mode mode);

/* print_text.c; `all`: every segment has a line of its own. */
void gh_text_write(const struct gh_plan *plan, bool all,
                   const struct sink *sink);
/* print_json.c */
void gh_json_write(const struct gh_plan *plan, const struct sink *sink);

/* print_traits.c: what families said of the layers.  Equal answers are written
 * once. */
GH_COLD void gh_traits_write_text(const struct gh_plan *plan,
                                  const struct sink *sink);
GH_COLD void gh_traits_write_json(const struct gh_plan *plan,
                                  const struct sink *sink);

#endif
