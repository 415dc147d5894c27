/*
 * replay.h - launches a ready entry.
 *
 * The step path, inline: no allocation, no lock, no search, no log.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_CAPTURE_REPLAY_H
#define GH_CAPTURE_REPLAY_H

#include "capture/services.h"
#include "pass/pass.h"

enum gh_fit {
    GH_FIT_YES,
    GH_FIT_MOVED, /* a chained input is elsewhere, or less than its capacity:
                     record it again, copied */
    GH_FIT_NO     /* the graph cannot serve these inputs */
};

/* replay.c: the rest of gh_replay_fits(), from input `first` on.  That is the
 * first input that is not where the graph reads it. */
enum gh_fit gh_replay_match(struct gh_entry *entry, const gh_pass *pass,
                            uint32_t first);

/* Launches the copies that are pending, and zeroes what lies behind the
 * inputs. */
gh_status gh_replay_copy_inputs(struct gh_capture *c, struct gh_entry *entry,
                                void *stream, gh_error *err);

/* Whether the graph can serve the inputs.  On GH_FIT_YES the copies that the
 * launch needs are prepared. */
static inline enum gh_fit gh_replay_fits(struct gh_entry *entry,
                                         const gh_pass *pass)
{
    if (pass->n_inputs != entry->n_inputs) {
        return GH_FIT_NO;
    }
    entry->n_pending = 0;
    if (entry->filled != NULL) {
        return gh_replay_match(entry, pass, 0);
    }
    for (uint32_t i = 0; i < entry->n_inputs; i++) {
        if (pass->inputs[i].address != entry->inputs[i].address ||
            pass->inputs[i].bytes != entry->inputs[i].bytes) {
            return gh_replay_match(entry, pass, i);
        }
    }
    return GH_FIT_YES;
}

/* launch_trace.c: gh_launch_bare(), with its times for the trace. */
GH_ASIDE gh_status gh_launch_traced(struct gh_capture *c,
                                    struct gh_entry *entry, void *stream,
                                    gh_error *err);

/* offloads.c: a launch, with what the entry's script asks for before and after
 * it. */
GH_ASIDE gh_status gh_launch_with_script(struct gh_capture *c,
                                         struct gh_entry *entry, void *stream,
                                         gh_error *err);

static inline gh_status gh_launch_bare(struct gh_capture *c,
                                       struct gh_entry *entry, void *stream,
                                       gh_error *err)
{
    if (entry->exec == NULL) {
        return gh_services_launch(c, entry, stream, err);
    }
    return gh_device_launch(c->dev, entry->exec, stream, err);
}

static inline gh_status gh_launch_graph(struct gh_capture *c,
                                        struct gh_entry *entry, void *stream,
                                        gh_error *err)
{
    if (c->spans.all != NULL) {
        return gh_launch_traced(c, entry, stream, err);
    }
    return gh_launch_bare(c, entry, stream, err);
}

static inline gh_status gh_launch(struct gh_capture *c, struct gh_entry *entry,
                                  void *stream, gh_error *err)
{
    if (entry->script.n != 0) {
        return gh_launch_with_script(c, entry, stream, err);
    }
    return gh_launch_graph(c, entry, stream, err);
}

static inline gh_status gh_replay(struct gh_capture *c, struct gh_entry *entry,
                                  void *stream, gh_error *err)
{
    gh_status status;

    if (entry->n_pending != 0) {
        status = gh_replay_copy_inputs(c, entry, stream, err);
        if (status != GH_OK) {
            return status;
        }
    }
    status = gh_launch(c, entry, stream, err);
    c->open.bank->replays += status == GH_OK;
    return status;
}

#endif
