/*
 * session.h - what a gh_session is made of; lib/abi only.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_ABI_SESSION_H
#define GH_ABI_SESSION_H

#include <graphhooks/layer.h>

#include "abi/offload_options.h"
#include "base/gate.h"
#include "base/log.h"
#include "base/path.h"
#include "plan/plan.h"

#include <sys/types.h>

struct gh_capture;
struct gh_device;
struct gh_schedule;
struct gh_trace;

/*
 * Closing frees everything but the struct itself.  It stays, with `capture`
 * NULL, so that a hook that is called on a closed session finds that out
 * instead of reading freed memory.
 */
struct gh_session {
    struct gh_session *closed; /* the list of those that are closed */
    pid_t pid; /* a forked child has a copy, of nothing that it could close */
    struct gh_plan plan;
    struct gh_log log;      /* of the parts; its lines go to `told` */
    struct gh_log told;     /* the host's, or stderr */
    bool telling;           /* a line is told: what is said in it is lost */
    gh_host_services host;  /* the host's own; called in services.c alone */
    struct gh_device *dev;  /* NULL: disabled, and no driver was found */
    struct gh_trace *trace; /* NULL: GRAPHHOOKS_TRACE is not set */
    bool check;             /* GRAPHHOOKS_CHECK is on */
    uint64_t unwritten;     /* gh_device_unwritten() when it opened */
    struct gh_capture *capture;
    struct gh_gate gate; /* open: `capture`, between functions of the host's */
    struct gh_schedule *schedule; /* NULL: no EP overlap */
    gh_direction last_direction; /* GH_WGRAD if these are delayed */
    char *nccl; /* GRAPHHOOKS_NCCL; NULL: not set */
    struct gh_setting *settings; /* that ranks compare */
    uint32_t n_settings;
    bool offloads;     /* some groups were asked for */
    bool holds_groups; /* the host saves groups, and may offload none */
    struct gh_offload_options offload;
    struct gh_offload_names *names; /* of the host's own modules */
    bool suspended; /* the gate is closed until it is resumed */
};

/* Says why the session cannot be used: it is NULL or closed, or a function of
 * the host's runs. */
GH_COLD gh_status gh_session_refuse(const gh_session *session, const char *call,
                                    gh_error *err);

/* The least struct_size of a gh_decision. */
#define GH_DECISION_LEAST GH_SIZE_THROUGH(gh_decision, outputs)

/* The host has failed in the recording of the open pass, and may have called
 * gh_layer_cancel() there.  The pass runs eagerly in this step, and is recorded
 * once more in a later one. */
gh_status gh_session_fail_recording(gh_session *session, const char *why);

/* The reads of unwritten memory that GRAPHHOOKS_CHECK counts as failures. */
uint64_t gh_session_unwritten(const gh_session *session);

static inline gh_status gh_session_check(const gh_session *session,
                                         const char *call, gh_error *err)
{
    if (session != NULL && session->gate.open != NULL) {
        return GH_OK;
    }
    return gh_session_refuse(session, call, err);
}

/* For calls that read what was planned or counted, which services may make. */
static inline gh_status gh_session_check_read(const gh_session *session,
                                              const char *call, gh_error *err)
{
    if (session != NULL && session->capture != NULL) {
        return GH_OK;
    }
    return gh_session_refuse(session, call, err);
}

#endif
