/*
 * watchdog.h - names the replay that does not end.
 *
 * A host that waits for the device cannot say for which work, and one that
 * waits for a rank that is gone waits for ever.  With GRAPHHOOKS_WATCHDOG a
 * thread looks at an event behind each replay.  It tells standard error, as the
 * host's services are called in calls of the host's alone, and changes nothing.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_CAPTURE_WATCHDOG_H
#define GH_CAPTURE_WATCHDOG_H

#include <graphhooks/base.h>

struct gh_capture;
struct gh_watchdog;

/* Does nothing where the option is off, or without a device. */
gh_status gh_watchdog_create(struct gh_capture *c, gh_error *err);
/* The graph of the open pass was launched. */
void gh_watchdog_mark(struct gh_capture *c);
/* NULL is allowed. */
void gh_watchdog_destroy(struct gh_capture *c);

#endif
