/*
 * services.h - the host's services, as a session takes them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_ABI_SERVICES_H
#define GH_ABI_SERVICES_H

#include <graphhooks/host.h>

/* `given` may be NULL: the host then offers no services. */
gh_status gh_session_take_services(const gh_host_services *given,
                                   gh_host_services *host, gh_error *err);

#endif
