/*
 * layer.c - the hooks: checks what the host hands in, then lets lib/capture
 * decide.
 *
 * A pass is checked whole before anything changes, so that a refused call
 * can be mended and made again.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include <graphhooks/layer.h>

#include "abi/session.h"
#include "base/error.h"
#include "base/path.h"
#include "base/size.h"
#include "capture/capture.h"
#include "schedule/schedule.h"

#include <stdbool.h>

#define PASS_LEAST GH_SIZE_THROUGH(gh_pass, outputs)
#define KNOWN_PASS_FLAGS \
    (GH_PASS_FORWARD_ONLY | GH_PASS_NO_WGRAD | GH_PASS_LOCAL | GH_CALL_FLAGS)

static GH_COLD gh_status refuse_null(const char *call, const char *name,
                                     gh_error *err)
{
    return gh_fail(err, GH_ERR_INVALID, "%s: %s is NULL", call, name);
}

static GH_COLD gh_status refuse_pass(const gh_session *session,
                                     const gh_pass *pass, gh_error *err)
{
    if (pass->reserved != 0) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_pass.reserved is %u: zero the struct before filling "
                       "it",
                       pass->reserved);
    }
    if (pass->segment >= session->plan.n_segments) {
        return gh_fail(err, GH_ERR_NOT_FOUND,
                       "gh_pass.segment is %u, but the plan has %u segments",
                       pass->segment, session->plan.n_segments);
    }
    if (pass->direction > GH_WGRAD) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_pass.direction is %u: GH_FORWARD, GH_BACKWARD or "
                       "GH_WGRAD",
                       pass->direction);
    }
    if (pass->direction > session->last_direction) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_pass.direction is GH_WGRAD: open the session with "
                       "GH_SESSION_DELAY_WGRAD");
    }
    if (pass->microbatch >= GH_MAX_MICROBATCHES) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_pass.microbatch is %u: at most %u a step",
                       pass->microbatch, GH_MAX_MICROBATCHES);
    }
    if ((pass->flags & ~KNOWN_PASS_FLAGS) != 0) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_pass: flags 0x%x: zero the struct before filling "
                       "it",
                       pass->flags);
    }
    if (pass->variant >= GH_VARIANTS) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_pass.variant is %u: below %u; zero the struct "
                       "before filling it",
                       pass->variant, GH_VARIANTS);
    }
    if ((pass->flags & GH_PASS_PREPARE) != 0 && pass->direction == GH_FORWARD) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_pass: GH_PASS_PREPARE is for backward passes and "
                       "weight gradients: a forward is recorded as it runs");
    }
    if ((pass->flags & GH_PASS_FORWARD_ONLY) != 0) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_pass: a %s pass cannot be GH_PASS_FORWARD_ONLY",
                       gh_direction_names[pass->direction]);
    }
    return gh_fail(err, GH_ERR_INVALID,
                   "gh_pass: GH_PASS_NO_WGRAD is for backward passes of a "
                   "session with GH_SESSION_DELAY_WGRAD");
}

/* Whether a pass of this direction may have these flags. */
static inline bool flags_are_legal(const gh_session *session,
                                   const gh_pass *pass)
{
    const uint32_t kind =
        pass->flags & ~(uint32_t)(GH_CALL_FLAGS | GH_PASS_LOCAL);

    if ((pass->flags & GH_PASS_PREPARE) != 0 && pass->direction == GH_FORWARD) {
        return false;
    }
    return kind == 0 ||
           (kind == GH_PASS_FORWARD_ONLY && pass->direction == GH_FORWARD) ||
           (kind == GH_PASS_NO_WGRAD && pass->direction == GH_BACKWARD &&
            session->last_direction == GH_WGRAD);
}

static inline gh_status check_pass(const gh_session *session,
                                   const gh_pass *pass, gh_error *err)
{
    if (pass->segment < session->plan.n_segments &&
        pass->microbatch < GH_MAX_MICROBATCHES &&
        pass->direction <= session->last_direction &&
        pass->variant < GH_VARIANTS && pass->reserved == 0 &&
        ((pass->flags & ~(uint32_t)GH_PASS_NO_EXIT) == 0 ||
         flags_are_legal(session, pass))) {
        return GH_OK;
    }
    return refuse_pass(session, pass, err);
}

static bool is_sound(const gh_buffer *buffer, uint32_t known_flags)
{
    return (buffer->flags & ~known_flags) == 0 &&
           buffer->tensor < GH_TENSOR_COUNT &&
           (buffer->address != NULL || buffer->bytes == 0);
}

static GH_COLD gh_status refuse_buffers(const char *name,
                                        const gh_buffer *buffers, uint32_t n,
                                        uint32_t known_flags, gh_error *err)
{
    uint32_t i = 0;

    if (buffers == NULL || n > GH_MAX_BUFFERS) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_pass: %u %s at %p: 1 to %u of them, or none", n,
                       name, (const void *)buffers, GH_MAX_BUFFERS);
    }
    while (is_sound(&buffers[i], known_flags)) {
        i++;
    }
    if (buffers[i].address == NULL && buffers[i].bytes != 0) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_pass.%s[%u]: %llu bytes at NULL", name, i,
                       (unsigned long long)buffers[i].bytes);
    }
    return gh_fail(err, GH_ERR_INVALID,
                   "gh_pass.%s[%u]: flags 0x%x, tensor %u: allowed flags are "
                   "0x%x, and tensors up to %u",
                   name, i, buffers[i].flags, buffers[i].tensor, known_flags,
                   GH_TENSOR_COUNT - 1);
}

static inline gh_status check_buffers(const char *name,
                                      const gh_buffer *buffers, uint32_t n,
                                      uint32_t known_flags, gh_error *err)
{
    if (n > GH_MAX_BUFFERS || (buffers == NULL && n != 0)) {
        return refuse_buffers(name, buffers, n, known_flags, err);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (!is_sound(&buffers[i], known_flags)) {
            return refuse_buffers(name, buffers, n, known_flags, err);
        }
    }
    return GH_OK;
}

static GH_COLD gh_status refuse_name(const gh_session *session,
                                     const gh_pass *pass, uint32_t i,
                                     gh_error *err)
{
    char where[120];

    gh_plan_extent(&session->plan, &session->plan.segments[pass->segment],
                   where, sizeof(where));
    return gh_fail(err, GH_ERR_INVALID,
                   "gh_pass.outputs[%u]: %s %s hands on no %s: gh_plan_border "
                   "lists what it does",
                   i, where, gh_direction_names[pass->direction],
                   gh_tensor_name(pass->outputs[i].tensor));
}

/* Checks the names of the outputs: each must be a tensor that crosses a border
 * of the segment.  A segment that is not the open one passes here, because
 * lib/capture refuses it later with a clearer error.  The function is not
 * inlined, because a replay has no outputs to check. */
static GH_ASIDE gh_status
check_names(const gh_session *session, const gh_pass *pass, gh_error *err)
{
    uint32_t named = 0, known;

    for (uint32_t i = 0; i < pass->n_outputs; i++) {
        named |= UINT32_C(1) << pass->outputs[i].tensor;
    }
    if ((named >> 1) == 0 || pass->segment >= session->plan.n_segments ||
        pass->direction > GH_WGRAD) {
        return GH_OK;
    }
    known = gh_plan_names(&session->plan, pass->segment, pass->direction);
    for (uint32_t i = 0; i < pass->n_outputs; i++) {
        if ((known & UINT32_C(1) << pass->outputs[i].tensor) == 0) {
            return refuse_name(session, pass, i, err);
        }
    }
    return GH_OK;
}

/* Copies the pass of a host that was built with another release: its struct has
 * another size. */
static gh_status take_pass(const gh_pass *theirs, gh_pass *ours, gh_error *err)
{
    gh_status status = gh_check_size("gh_pass", theirs, PASS_LEAST,
                                     sizeof(*ours), err);

    if (status == GH_OK) {
        gh_take_struct(theirs, ours, sizeof(*ours));
        ours->struct_size = sizeof(*ours);
    }
    return status;
}

static GH_ASIDE gh_status
enter_other(gh_session *session, const gh_pass *theirs, gh_decision *decision,
            gh_error *err)
{
    gh_pass pass;
    gh_status status = take_pass(theirs, &pass, err);

    return status == GH_OK ? gh_layer_enter(session, &pass, decision, err)
                           : status;
}

static GH_ASIDE gh_status
exit_other(gh_session *session, const gh_pass *theirs, gh_error *err)
{
    gh_pass pass;
    gh_status status = take_pass(theirs, &pass, err);

    return status == GH_OK ? gh_layer_exit(session, &pass, err) : status;
}

/* Enters a pass for a host whose gh_decision has another size. */
static GH_ASIDE gh_status
answer_other(gh_session *session, const gh_pass *pass, gh_decision *theirs,
             gh_error *err)
{
    gh_decision decision = { .struct_size = sizeof(decision) };
    gh_status status = gh_check_size("gh_decision", theirs, GH_DECISION_LEAST,
                                     sizeof(decision), err);

    if (status == GH_OK) {
        status = gh_layer_enter(session, pass, &decision, err);
    }
    if (status == GH_OK) {
        gh_give_struct(theirs, &decision, sizeof(decision));
    }
    return status;
}

gh_status gh_layer_enter(gh_session *session, const gh_pass *pass,
                         gh_decision *decision, gh_error *err)
{
    gh_status status = gh_session_check(session, "gh_layer_enter", err);

    if (status != GH_OK) {
        return status;
    }
    if (pass == NULL || decision == NULL) {
        return refuse_null("gh_layer_enter", pass == NULL ? "pass" : "decision",
                           err);
    }
    if (pass->struct_size != sizeof(*pass)) {
        return enter_other(session, pass, decision, err);
    }
    if (decision->struct_size != sizeof(*decision)) {
        return answer_other(session, pass, decision, err);
    }
    status = check_pass(session, pass, err);
    if (status != GH_OK) {
        return status;
    }
    status = check_buffers("inputs", pass->inputs, pass->n_inputs,
                           GH_BUFFER_STATIC, err);
    if (status != GH_OK) {
        return status;
    }
    return gh_capture_enter(session->capture, pass, decision, err);
}

gh_status gh_layer_exit(gh_session *session, const gh_pass *pass, gh_error *err)
{
    gh_status status;

    status = gh_session_check(session, "gh_layer_exit", err);
    if (status != GH_OK) {
        return status;
    }
    if (pass == NULL) {
        return refuse_null("gh_layer_exit", "pass", err);
    }
    if (pass->struct_size != sizeof(*pass)) {
        return exit_other(session, pass, err);
    }
    if (gh_capture_ends_replayed(session->capture, pass)) {
        return GH_OK;
    }
    /* The rest of the pass is compared with the pass that enter has checked.
     * Outputs are checked only when nothing was replayed, because a replay
     * needs none. */
    if (!gh_capture_has_replayed(session->capture)) {
        status = check_buffers("outputs", pass->outputs, pass->n_outputs,
                               GH_BUFFER_UPDATED, err);
        if (status == GH_OK) {
            status = check_names(session, pass, err);
        }
        if (status != GH_OK) {
            return status;
        }
    }
    return gh_capture_exit(session->capture, pass, err);
}

gh_status gh_layer_cancel(gh_session *session, gh_error *err)
{
    gh_status status = gh_session_check(session, "gh_layer_cancel", err);

    if (status == GH_OK) {
        gh_capture_cancel(session->capture);
    }
    return status;
}

gh_status gh_session_fail_recording(gh_session *session, const char *why)
{
    gh_status status = gh_session_check(session, "gh_run_pass", NULL);

    if (status == GH_OK) {
        gh_capture_fail_recording(session->capture, why);
    }
    return status;
}

/* For calls that are legal only between passes. */
static gh_status check_closed(const gh_session *session, const char *call,
                              gh_error *err)
{
    gh_status status = gh_session_check(session, call, err);

    if (status != GH_OK) {
        return status;
    }
    if (gh_capture_is_open(session->capture)) {
        return gh_fail(err, GH_ERR_STATE,
                       "%s: a pass is open%s: call gh_layer_exit or "
                       "gh_layer_cancel first",
                       call, gh_capture_whose_open(session->capture));
    }
    return GH_OK;
}

gh_status gh_pre_warmup(gh_session *session, gh_error *err)
{
    gh_status status = check_closed(session, "gh_pre_warmup", err);

    if (status == GH_OK) {
        gh_capture_pause(session->capture);
    }
    return status;
}

gh_status gh_post_warmup(gh_session *session, gh_error *err)
{
    gh_status status = check_closed(session, "gh_post_warmup", err);

    if (status == GH_OK && !gh_capture_resume(session->capture)) {
        return gh_fail(err, GH_ERR_STATE,
                       "gh_post_warmup: no gh_pre_warmup is open");
    }
    return status;
}

gh_status gh_flush_delayed(gh_session *session, gh_error *err)
{
    gh_status status = check_closed(session, "gh_flush_delayed", err);

    return status == GH_OK ? gh_capture_flush(session->capture, err) : status;
}

gh_status gh_iteration_end(gh_session *session, gh_error *err)
{
    gh_status status = check_closed(session, "gh_iteration_end", err);

    if (status == GH_OK && session->schedule != NULL &&
        gh_schedule_is_running(session->schedule)) {
        return gh_fail(err, GH_ERR_STATE,
                       "gh_iteration_end: called by a node of gh_overlap_run: "
                       "return from run_node first");
    }
    return status == GH_OK ? gh_capture_end_step(session->capture, err)
                           : status;
}
