/*
 * run.c - a pass from enter to exit, by the hooks that a host could call
 * itself.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include <graphhooks/run.h>

#include "abi/session.h"
#include "base/error.h"
#include "base/size.h"

#include <stdbool.h>

struct run {
    gh_session *session;
    gh_pass *pass;
    gh_issue_fn *issue;
    void *user;
    bool asked; /* to enter the pass again */
    gh_decision *decision;
};

/* Whether the host is to issue the parts.  What is only prepared is recorded or
 * left alone. */
static bool issues(const struct run *r)
{
    return r->decision->action == GH_ACTION_RECORD ||
           (r->decision->action == GH_ACTION_RUN &&
            (r->pass->flags & GH_PASS_PREPARE) == 0);
}

static bool ends(const struct run *r)
{
    return r->decision->action != GH_ACTION_REPLAYED ||
           (r->pass->flags & GH_PASS_NO_EXIT) == 0;
}

/* GH_RERUN: the pass is to be entered again.  The host may ask for that once.
 * After that, and after any failure, it is no recording in this step, and only
 * once more in a later one: nothing here goes on for ever. */
static gh_status issue(struct run *r, gh_error *err)
{
    const bool records = r->decision->action == GH_ACTION_RECORD;
    gh_status status;

    err->text[0] = '\0';
    status = r->issue(r->user, r->pass, r->decision, err);
    if (status == GH_OK) {
        return GH_OK;
    }
    if (status == GH_RERUN && !r->asked) {
        r->asked = true;
        (void)gh_layer_cancel(r->session, NULL);
        return GH_RERUN;
    }
    if (status > 0) {
        status = gh_fail(err, GH_ERR_INVALID,
                         "gh_run_pass: issue returned %d%s: return GH_OK, or a "
                         "negative status with its reason",
                         status, status == GH_RERUN ? " once more" : "");
    }
    if (records &&
        gh_session_fail_recording(
            r->session, err->text[0] != '\0'
                            ? err->text
                            : "gh_run_pass: issue gave no reason") == GH_OK) {
        return GH_RERUN;
    }
    (void)gh_layer_cancel(r->session, NULL);
    return status;
}

static gh_status run_once(struct run *r, gh_error *err)
{
    gh_status status = gh_layer_enter(r->session, r->pass, r->decision, err);

    if (status == GH_OK && issues(r)) {
        status = issue(r, err);
    }
    if (status == GH_OK && ends(r)) {
        status = gh_layer_exit(r->session, r->pass, err);
        if (status < 0) {
            (void)gh_layer_cancel(r->session, NULL); /* it may be open */
        }
    }
    return status;
}

gh_status gh_run_pass(gh_session *session, gh_pass *pass, gh_issue_fn *issue_fn,
                      void *user, gh_decision *decision, gh_error *err)
{
    struct run r = { .session = session,
                     .pass = pass,
                     .issue = issue_fn,
                     .user = user,
                     .decision = decision };
    gh_decision before = { .struct_size = sizeof(before) };
    gh_error unasked;
    gh_status status;

    err = err != NULL ? err : &unasked;
    if (session == NULL || pass == NULL || issue_fn == NULL ||
        decision == NULL) {
        return gh_fail(err, GH_ERR_INVALID, "gh_run_pass: %s is NULL",
                       session == NULL    ? "session"
                       : pass == NULL     ? "pass"
                       : issue_fn == NULL ? "issue"
                                          : "decision");
    }
    status = gh_check_size("gh_decision", decision, GH_DECISION_LEAST,
                           sizeof(before), err);
    if (status != GH_OK) {
        return status;
    }
    gh_take_struct(decision, &before, sizeof(before));
    do {
        status = run_once(&r, err);
    } while (status == GH_RERUN);

    if (status != GH_OK) {
        gh_give_struct(decision, &before, sizeof(before));
    }
    return status;
}
