/*
 * graphhooks/run.h - one pass, from enter to exit, in one call.
 *
 * This is the loop that a host would otherwise write around its parts.  It uses
 * graphhooks/layer.h as a host would:
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

#include <graphhooks/layer.h>

GH_BEGIN_DECLS

/**
 * Issue the parts of a pass; the host's own.  It is called while the pass is
 * open, and where there is something to issue: never for a replay, and a second
 * time, eagerly, where it has failed in a recording.
 *
 * The pass may be being recorded: do not wait, allocate or read a result.  Look
 * for errors before it returns.  With the CUDA runtime that is
 * cudaGetLastError(), which would else keep the error of a recording and give
 * it to the next one who asks.
 *
 * @param pass      its outputs are set here
 * @param decision  as handed to gh_run_pass()
 * @param err       never NULL
 *
 * @return GH_OK;
 *         a negative status when a call has failed, with its text in err;
 *         GH_RERUN to have the pass entered again: after something that is not
 *         allowed in a recording, for which it has called gh_layer_cancel().
 *         Once in a pass: after that it counts as a failure.
 *         Any other value is GH_ERR_INVALID.
 * Since: 1.0.
 */
typedef gh_status gh_issue_fn(void *user, gh_pass *pass,
                              const gh_decision *decision, gh_error *err);

/**
 * Run a pass: enter it, issue it if it is not replayed, and end it.
 *
 * A recording that fails is run again, eagerly, whether the driver has refused
 * it or `issue` has failed in it.  A pass in whose recording `issue` has failed
 * is recorded once more in a later step; after the second time it is eager for
 * good (GH_REASON_CAPTURE), which GRAPHHOOKS_STRICT reports.  What is only
 * prepared (GH_PASS_PREPARE) is not run: where it could not be recorded, the
 * decision is GH_ACTION_RUN with the reason, and the call succeeds.
 *
 * After any other failure the pass is given up and no pass is open, except one
 * that was open before.
 *
 * @param         pass      as for gh_layer_enter()
 * @param         issue     issues the parts
 * @param         user      handed to it
 * @param[in,out] decision  struct_size says how much is written.  `issue` sees
 *                          it; after GH_OK it says what was done, and
 *                          after a failure it is as it was.  With
 *                          GH_ACTION_REPLAYED the results are where its
 *                          outputs say
 *
 * @return GH_OK; a negative status of gh_layer_enter(), gh_layer_exit() or
 *         `issue`; GH_ERR_INVALID where an argument is NULL, or
 *         `issue` returns what it may not.
 * Stream, Threads, Blocks: as gh_layer_enter() and gh_layer_exit().
 * Since: 1.0.
 */
GH_API gh_status gh_run_pass(gh_session *session, gh_pass *pass,
                             gh_issue_fn *issue, void *user,
                             gh_decision *decision, gh_error *err);

GH_END_DECLS

#endif
