/*
 * forecast.h - what recordings will take, told before the first of them.
 *
 * The steps of the warmup show each pass that will be recorded, in the order in
 * which it will be: what its graph will copy, into which block of which shelf.
 * When they have ended, all of that is summed up, and forgotten.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_CAPTURE_FORECAST_H
#define GH_CAPTURE_FORECAST_H

#include <graphhooks/layer.h>

struct gh_capture;

/* A pass of the warmup begins, and has ended. */
void gh_forecast_inputs(struct gh_capture *c, const gh_pass *pass);
void gh_forecast_outputs(struct gh_capture *c, const gh_pass *pass);
/* A step has ended.  Once recordings may begin, says what they will take. */
void gh_forecast_end_step(struct gh_capture *c);
/* Forgets what passes have shown. */
void gh_forecast_free(struct gh_capture *c);

#endif
