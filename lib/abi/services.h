/*
 * services.h - the host's services, as a session takes them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_ABI_SERVICES_H
#define GH_ABI_SERVICES_H

#include <graphhooks/host.h>
#include <graphhooks/plan.h>

/* `given` may be NULL: the host then offers no services. */
gh_status gh_session_take_services(const gh_host_services *given,
                                   gh_host_services *host, gh_error *err);

/* The table for the rest of the library, with the slots that session->host has.
 * Each call of the host's passes the session's gate, whoever makes it. */
gh_host_services gh_session_services(struct gh_session *session);

/* Prints the plan; `write` passes the gate too. */
void gh_session_write_plan(struct gh_session *session, gh_format format,
                           gh_write_fn *write, void *user);

#endif
