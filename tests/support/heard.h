/*
 * heard.h - the log of a session, kept for a test to look at.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SUPPORT_HEARD_H
#define SUPPORT_HEARD_H

#include <graphhooks.h>

/* Every line that was logged; a test empties it. */
extern char said[16384];

/* For gh_host_services.log, and services that have nothing else. */
void hear(void *user, gh_log_level level, const char *line);
extern const gh_host_services hearing;

uint32_t times_said(const char *words);

#endif
