/*
 * graphhooks/run.h - one pass, from enter to exit, in one call.
 *
 * This is the loop that a host would otherwise write around its parts.  It is
 * all in this header, and uses graphhooks/layer.h as a host would:
 *
 *     gh_status issue(void *user, gh_pass *pass, const gh_decision *d,
 *                     gh_error *err)
 *     {
 *         issue the parts on d->stream, reading d->inputs;
 *         pass->outputs = what they write;
 *         return GH_OK, or a negative status with its reason in err;
 *     }
 *
 *     status = gh_run_pass(session, &pass, issue, user, &d, &err);
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GRAPHHOOKS_RUN_H
#define GRAPHHOOKS_RUN_H

#include <graphhooks/loader.h>

GH_BEGIN_DECLS

/**
 * Issue the parts of a pass; the host's own.  It is called while the pass is
 * open, and where there is something to issue: never for a replay.
 *
 * The pass may be being recorded: do not wait, allocate or read a result.  Look
 * for errors before it returns.  With the CUDA runtime that is
 * cudaGetLastError(), which would else keep the error of a recording and give
 * it to the next one who asks.
 *
 * @param pass  its outputs are set here
 *
 * @return GH_OK;
 *         a negative status when a call has failed, with its text in err;
 *         GH_RERUN to have the pass entered again: after something that is not
 *         allowed in a recording, for which it has called gh_layer_cancel().
 */
typedef gh_status gh_issue_fn(void *user, gh_pass *pass,
                              const gh_decision *decision, gh_error *err);

/**
 * Run a pass, with the functions of a table: for hosts that dlopen.
 * See gh_run_pass().
 */
static inline gh_status gh_api_run_pass(const gh_api *gh, gh_session *session,
                                        gh_pass *pass, gh_issue_fn *issue,
                                        void *user, gh_decision *decision,
                                        gh_error *err)
{
    int paused = 0;
    gh_status status;

    do {
        status = gh->layer_enter(session, pass, decision, err);
        if (status != GH_OK) {
            break;
        }
        if (decision->action == GH_ACTION_RECORD ||
            (decision->action == GH_ACTION_RUN &&
             (pass->flags & GH_PASS_PREPARE) == 0)) {
            status = issue(user, pass, decision, err);
            if (status != GH_OK) {
                (void)gh->layer_cancel(session, NULL);
            }
            /* The recording may be at fault: the pass is run eagerly. */
            if (status < 0 && !paused &&
                decision->action == GH_ACTION_RECORD &&
                gh->pre_warmup(session, NULL) == GH_OK) {
                paused = 1;
                status = GH_RERUN;
                continue;
            }
        }
        if (status == GH_OK && (decision->action != GH_ACTION_REPLAYED ||
                                (pass->flags & GH_PASS_NO_EXIT) == 0)) {
            status = gh->layer_exit(session, pass, err);
            if (status < 0) {
                (void)gh->layer_cancel(session, NULL); /* it may be open */
            }
        }
    } while (status == GH_RERUN);

    if (paused) {
        (void)gh->post_warmup(session, NULL);
    }
    return status;
}

/**
 * Run a pass: enter it, issue it if it is not replayed, and end it.
 *
 * A recording that fails is run again, eagerly, whether the driver has refused
 * it or `issue` has failed in it.  After any other failure the pass is given up
 * and no pass is open, except one that was open before.
 *
 * @param         pass      as for gh_layer_enter()
 * @param         issue     issues the parts
 * @param         user      handed to it
 * @param[in,out] decision  struct_size says how much is written.  After GH_OK
 *                          it says what was done.  With GH_ACTION_REPLAYED the
 *                          results are where its outputs say
 *
 * @return GH_OK; a negative status of gh_layer_enter(), gh_layer_exit() or
 *         `issue`.
 * Blocks: as gh_layer_enter() and gh_layer_exit().  Since: 0.6.
 */
static inline gh_status gh_run_pass(gh_session *session, gh_pass *pass,
                                    gh_issue_fn *issue, void *user,
                                    gh_decision *decision, gh_error *err)
{
    const gh_api *gh;
    gh_status status = gh_get_api(GH_ABI_MAJOR, &gh, err);

    return status == GH_OK ? gh_api_run_pass(gh, session, pass, issue, user,
                                             decision, err)
                           : status;
}

GH_END_DECLS

#endif
