/*
 * gh_run_pass() calls the hooks of a pass in their order, whatever they and
 * the host's own function answer.
 * SPDX-License-Identifier: Apache-2.0
 */
#include <graphhooks/run.h>

#include "tap/tap.h"

#include <stdio.h>
#include <string.h>

/* One letter a call: Enter, Issue, eXit, Cancel, Pause, Resume. */
static char calls[32];
/* What enter decides and returns, in turn; and what the others answer. */
static gh_action actions[4];
static gh_status issued[4], exited[4], enters, pauses;
static uint32_t n_entered, n_issued, n_exited;

static void note(const char *letter)
{
    strncat(calls, letter, sizeof(calls) - strlen(calls) - 1);
}

gh_status gh_layer_enter(gh_session *session, const gh_pass *pass,
                         gh_decision *decision, gh_error *err)
{
    (void)session;
    (void)pass;
    (void)err;
    note("E");
    decision->action = actions[n_entered++ % 4];
    return enters;
}

gh_status gh_layer_exit(gh_session *session, const gh_pass *pass, gh_error *err)
{
    (void)session;
    (void)pass;
    (void)err;
    note("X");
    return exited[n_exited++ % 4];
}

gh_status gh_layer_cancel(gh_session *session, gh_error *err)
{
    (void)session;
    (void)err;
    note("C");
    return GH_OK;
}

gh_status gh_pre_warmup(gh_session *session, gh_error *err)
{
    (void)session;
    (void)err;
    note("P");
    return pauses;
}

gh_status gh_post_warmup(gh_session *session, gh_error *err)
{
    (void)session;
    (void)err;
    note("R");
    return GH_OK;
}

static gh_status issue(void *user, gh_pass *pass, const gh_decision *decision,
                       gh_error *err)
{
    (void)pass;
    (void)decision;
    note("I");
    *(int *)user += 1;
    snprintf(err->text, sizeof(err->text), "issue %u", n_issued);
    return issued[n_issued++ % 4];
}

static gh_status run(uint32_t flags, gh_error *err)
{
    gh_pass pass = { .struct_size = sizeof(pass), .flags = flags };
    gh_decision decision = { .struct_size = sizeof(decision) };
    int n = 0;
    gh_status status;

    calls[0] = '\0';
    n_entered = n_issued = n_exited = 0;
    status = gh_run_pass(NULL, &pass, issue, &n, &decision, err);
    ok((uint32_t)n == n_issued, "the host's function has its pointer");
    return status;
}

enum { RUN = GH_ACTION_RUN, REC = GH_ACTION_RECORD, REP = GH_ACTION_REPLAYED,
       BAD = GH_ERR_DEVICE };

static const struct {
    const char *name, *calls;
    uint32_t flags;
    gh_action actions[2];
    gh_status issued[2], exited[2], enters, pauses, result;
} rows[] = {
    { "a replay issues nothing", "EX", 0, { REP }, { 0 }, { 0 }, 0, 0, 0 },
    { "with GH_PASS_NO_EXIT enter has ended it", "E", GH_PASS_NO_EXIT, { REP },
      { 0 }, { 0 }, 0, 0, 0 },
    { "the flag is of replays only", "EIX", GH_PASS_NO_EXIT, { RUN }, { 0 },
      { 0 }, 0, 0, 0 },
    { "an eager pass is issued", "EIX", 0, { RUN }, { 0 }, { 0 }, 0, 0, 0 },
    { "a recording is issued", "EIX", 0, { REC }, { 0 }, { 0 }, 0, 0, 0 },
    { "a recording that failed is entered again", "EIXEIX", 0, { REC, RUN },
      { 0 }, { GH_RERUN }, 0, 0, 0 },
    { "where issuing fails in a recording, the pass runs eagerly",
      "EICPEIXR", 0, { REC, RUN }, { BAD }, { 0 }, 0, 0, 0 },
    { "where it fails again, the pass is given up", "EICPEICR", 0,
      { REC, RUN }, { BAD, GH_ERR_INVALID }, { 0 }, 0, 0, GH_ERR_INVALID },
    { "a pass is run eagerly once at most", "EICPEICR", 0, { REC, REC },
      { BAD, BAD }, { 0 }, 0, 0, BAD },
    { "where it cannot be run eagerly, it is given up", "EICP", 0, { REC },
      { BAD }, { 0 }, 0, GH_ERR_STATE, BAD },
    { "an eager pass that fails is given up", "EIC", 0, { RUN }, { BAD },
      { 0 }, 0, 0, BAD },
    { "the host may have the pass entered again", "EICEIX", 0, { REC, REC },
      { GH_RERUN }, { 0 }, 0, 0, 0 },
    { "an enter that fails leaves another pass open", "E", 0, { RUN }, { 0 },
      { 0 }, GH_ERR_STATE, 0, GH_ERR_STATE },
    { "an exit that fails leaves none", "EIXC", 0, { RUN }, { 0 },
      { GH_ERR_INVALID }, 0, 0, GH_ERR_INVALID },
    { "a pass that is only prepared is recorded", "EIX", GH_PASS_PREPARE,
      { REC }, { 0 }, { 0 }, 0, 0, 0 },
    { "and never run eagerly", "EX", GH_PASS_PREPARE, { RUN }, { 0 }, { 0 }, 0,
      0, 0 },
};

static void test_invalid_args(void)
{
    gh_pass pass = { .struct_size = sizeof(pass) };
    gh_decision decision = { .struct_size = sizeof(decision) };
    gh_error err = { "" };

    calls[0] = '\0';
    is_status(gh_run_pass(NULL, &pass, NULL, NULL, &decision, &err),
              GH_ERR_INVALID, &err, "nothing to issue with is refused");
    is_str(err.text, "gh_run_pass: issue is NULL", "by name");
    is_str(calls, "", "before a pass is entered");
}

int main(void)
{
    test_invalid_args();
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        gh_error err = { "" };

        memset(issued, 0, sizeof(issued));
        memset(exited, 0, sizeof(exited));
        memcpy(actions, rows[i].actions, sizeof(rows[i].actions));
        memcpy(issued, rows[i].issued, sizeof(rows[i].issued));
        memcpy(exited, rows[i].exited, sizeof(rows[i].exited));
        enters = rows[i].enters;
        pauses = rows[i].pauses;
        is_status(run(rows[i].flags, &err), rows[i].result, &err, "%s",
                  rows[i].name);
        is_str(calls, rows[i].calls, "and the hooks are called in this order");
    }
    return done_testing();
}
