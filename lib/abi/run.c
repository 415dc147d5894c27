/*
 * run.c - a pass from enter to exit, by the hooks that a host could call
 * itself.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include <graphhooks/run.h>

#include "base/error.h"

#include <stdbool.h>

/* Whether the host is to issue the parts.  What is only prepared is recorded or
 * left alone. */
static bool issues(const gh_pass *pass, const gh_decision *decision)
{
    return decision->action == GH_ACTION_RECORD ||
           (decision->action == GH_ACTION_RUN &&
            (pass->flags & GH_PASS_PREPARE) == 0);
}

static bool ends(const gh_pass *pass, const gh_decision *decision)
{
    return decision->action != GH_ACTION_REPLAYED ||
           (pass->flags & GH_PASS_NO_EXIT) == 0;
}

gh_status gh_run_pass(gh_session *session, gh_pass *pass, gh_issue_fn *issue,
                      void *user, gh_decision *decision, gh_error *err)
{
    bool paused = false;
    gh_status status;

    if (issue == NULL) {
        return gh_fail(err, GH_ERR_INVALID, "gh_run_pass: issue is NULL");
    }
    do {
        status = gh_layer_enter(session, pass, decision, err);
        if (status != GH_OK) {
            break;
        }
        if (issues(pass, decision)) {
            status = issue(user, pass, decision, err);
            if (status != GH_OK) {
                (void)gh_layer_cancel(session, NULL);
            }
            /* The recording may be at fault: the pass is run eagerly. */
            if (status < 0 && !paused && decision->action == GH_ACTION_RECORD &&
                gh_pre_warmup(session, NULL) == GH_OK) {
                paused = true;
                status = GH_RERUN;
                continue;
            }
        }
        if (status == GH_OK && ends(pass, decision)) {
            status = gh_layer_exit(session, pass, err);
            if (status < 0) {
                (void)gh_layer_cancel(session, NULL); /* it may be open */
            }
        }
    } while (status == GH_RERUN);

    if (paused) {
        (void)gh_post_warmup(session, NULL);
    }
    return status;
}
