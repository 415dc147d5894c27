/*
 * gh_run_pass() calls the hooks of a pass in their order, whatever they and
 * the host's own function answer.
 * SPDX-License-Identifier: Apache-2.0
 */
#include <graphhooks/run.h>

#include "abi/session.h"
#include "tap/tap.h"

#include <stdio.h>
#include <string.h>

/* One letter a call: Enter, Issue, eXit, Cancel, Fail the recording. */
static char calls[32];
/* What enter decides and returns, in turn; and what the others answer. */
static gh_action actions[4];
static gh_status issued[4], exited[4], enters, fails;
static uint32_t n_entered, n_issued, n_exited;
static char failed[256];  /* why a recording has */
static uint64_t anything; /* stands for a session */
#define SESSION ((gh_session *)(void *)&anything)

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

gh_status gh_session_fail_recording(gh_session *session, const char *why)
{
    (void)session;
    snprintf(failed, sizeof(failed), "%s", why);
    note("F");
    return fails;
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
    const gh_decision untouched = { .struct_size = sizeof(untouched),
                                    .action = 77 };
    gh_decision decision = untouched;
    int n = 0;
    gh_status status;

    calls[0] = '\0';
    n_entered = n_issued = n_exited = 0;
    status = gh_run_pass(SESSION, &pass, issue, &n, &decision, err);
    ok((uint32_t)n == n_issued, "the host's function has its pointer");
    ok(status == GH_OK ? decision.action == actions[(n_entered - 1) % 4]
                       : memcmp(&decision, &untouched, sizeof(decision)) == 0,
       "the decision is written when all has gone well, and only then");
    return status;
}

enum { RUN = GH_ACTION_RUN, REC = GH_ACTION_RECORD, REP = GH_ACTION_REPLAYED,
       BAD = GH_ERR_DEVICE };

static const struct {
    const char *name, *calls;
    uint32_t flags;
    gh_action actions[3];
    gh_status issued[2], exited[2], enters, fails, result;
} rows[] = {
    { "a replay issues nothing", "EX", 0, { REP }, { 0 }, { 0 }, 0, 0, 0 },
    { "with GH_PASS_NO_EXIT enter has ended it",
      "E",
      GH_PASS_NO_EXIT,
      { REP },
      { 0 },
      { 0 },
      0,
      0,
      0 },
    { "the flag is of replays only",
      "EIX",
      GH_PASS_NO_EXIT,
      { RUN },
      { 0 },
      { 0 },
      0,
      0,
      0 },
    { "an eager pass is issued", "EIX", 0, { RUN }, { 0 }, { 0 }, 0, 0, 0 },
    { "a recording is issued", "EIX", 0, { REC }, { 0 }, { 0 }, 0, 0, 0 },
    { "a recording that failed is entered again",
      "EIXEIX",
      0,
      { REC, RUN },
      { 0 },
      { GH_RERUN },
      0,
      0,
      0 },
    { "where issuing fails in a recording, the pass runs eagerly",
      "EIFEIX",
      0,
      { REC, RUN },
      { BAD },
      { 0 },
      0,
      0,
      0 },
    { "where it fails again, the pass is given up",
      "EIFEIC",
      0,
      { REC, RUN },
      { BAD, GH_ERR_INVALID },
      { 0 },
      0,
      0,
      GH_ERR_INVALID },
    { "where it cannot be run eagerly, it is given up",
      "EIFC",
      0,
      { REC },
      { BAD },
      { 0 },
      0,
      GH_ERR_STATE,
      BAD },
    { "an eager pass that fails is given up",
      "EIC",
      0,
      { RUN },
      { BAD },
      { 0 },
      0,
      0,
      BAD },
    { "the host may have a recording entered again",
      "EICEIX",
      0,
      { REC, REC },
      { GH_RERUN },
      { 0 },
      0,
      0,
      0 },
    { "and an eager pass",
      "EICEIX",
      0,
      { RUN, RUN },
      { GH_RERUN },
      { 0 },
      0,
      0,
      0 },
    { "once",
      "EICEIC",
      0,
      { RUN, RUN },
      { GH_RERUN, GH_RERUN },
      { 0 },
      0,
      0,
      GH_ERR_INVALID },
    { "after that a recording has failed",
      "EICEIFEIX",
      0,
      { REC, REC, RUN },
      { GH_RERUN, GH_RERUN },
      { 0 },
      0,
      0,
      0 },
    { "a status that is none is a failure",
      "EIC",
      0,
      { RUN },
      { 7 },
      { 0 },
      0,
      0,
      GH_ERR_INVALID },
    { "also in a recording",
      "EIFEIC",
      0,
      { REC, RUN },
      { 7, 7 },
      { 0 },
      0,
      0,
      GH_ERR_INVALID },
    { "an enter that fails leaves another pass open",
      "E",
      0,
      { RUN },
      { 0 },
      { 0 },
      GH_ERR_STATE,
      0,
      GH_ERR_STATE },
    { "an exit that fails leaves none",
      "EIXC",
      0,
      { RUN },
      { 0 },
      { GH_ERR_INVALID },
      0,
      0,
      GH_ERR_INVALID },
    { "a pass that is only prepared is recorded",
      "EIX",
      GH_PASS_PREPARE,
      { REC },
      { 0 },
      { 0 },
      0,
      0,
      0 },
    { "and not run where its recording fails",
      "EIFEX",
      GH_PASS_PREPARE,
      { REC, RUN },
      { BAD },
      { 0 },
      0,
      0,
      0 },
    { "and never run eagerly",
      "EX",
      GH_PASS_PREPARE,
      { RUN },
      { 0 },
      { 0 },
      0,
      0,
      0 },
};

static void is_refused_null(gh_session *session, gh_pass *pass,
                            gh_issue_fn *issue_fn, gh_decision *decision,
                            const char *name)
{
    gh_error err = { "" };
    char text[64];

    calls[0] = '\0';
    snprintf(text, sizeof(text), "gh_run_pass: %s is NULL", name);
    is_status(gh_run_pass(session, pass, issue_fn, NULL, decision, &err),
              GH_ERR_INVALID, &err, "without %s it is refused", name);
    is_str(err.text, text, "by name");
    is_str(calls, "", "before a pass is entered");
}

static void test_invalid_args(void)
{
    gh_pass pass = { .struct_size = sizeof(pass) };
    gh_decision decision = { .struct_size = sizeof(decision) };
    gh_error err = { "" };

    is_refused_null(NULL, &pass, issue, &decision, "session");
    is_refused_null(SESSION, NULL, issue, &decision, "pass");
    is_refused_null(SESSION, &pass, NULL, &decision, "issue");
    is_refused_null(SESSION, &pass, issue, NULL, "decision");
    decision.struct_size = 4;
    is_status(gh_run_pass(SESSION, &pass, issue, NULL, &decision, &err),
              GH_ERR_ABI, &err, "a decision that is too small is refused");
    is_str(calls, "", "before a pass is entered");
}

static void test_reasons(void)
{
    gh_error err = { "" };

    actions[0] = REC;
    actions[1] = RUN;
    memset(issued, 0, sizeof(issued));
    memset(exited, 0, sizeof(exited));
    issued[0] = BAD;
    issued[1] = 7;
    fails = 0;
    run(0, &err);
    is_str(failed, "issue 0", "why a recording has failed is told");
    is_str(err.text,
           "gh_run_pass: issue returned 7: return GH_OK, or a negative "
           "status with its reason",
           "and what else it returned");
}

int main(void)
{
    test_invalid_args();
    test_reasons();
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        gh_error err = { "" };

        memset(issued, 0, sizeof(issued));
        memset(exited, 0, sizeof(exited));
        memcpy(actions, rows[i].actions, sizeof(rows[i].actions));
        memcpy(issued, rows[i].issued, sizeof(rows[i].issued));
        memcpy(exited, rows[i].exited, sizeof(rows[i].exited));
        enters = rows[i].enters;
        fails = rows[i].fails;
        is_status(run(rows[i].flags, &err), rows[i].result, &err, "%s",
                  rows[i].name);
        is_str(calls, rows[i].calls, "and the hooks are called in this order");
    }
    return done_testing();
}
