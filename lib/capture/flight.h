/*
 * flight.h - a pass joins the flight of its microbatch.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_CAPTURE_FLIGHT_H
#define GH_CAPTURE_FLIGHT_H

#include <graphhooks/layer.h>

struct gh_capture;

/* Sets open.slot and open.at; a pass may go without a slot.  GH_ERR_STATE and
 * GH_ERR_BUSY as gh_layer_enter(). */
gh_status gh_flight_join(struct gh_capture *c, const gh_pass *pass,
                         gh_error *err);

#endif
