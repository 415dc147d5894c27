/*
 * report.h - progress, the table at the end, the JSON file.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_REPORT_H
#define ENGINE_REPORT_H

#include "cli/command.h"
#include "step/train.h"

void report_progress(const struct options *options, enum mode mode, int step,
                     double loss, double step_ms);

/* Says how long the stages of a pipeline should be idle, before they run. */
void report_prediction(const struct command *command);

/* Whether every loss and the last weights are the same bits. */
bool report_equal(const struct result *a, const struct result *b);
bool report_all_equal(const struct result *results, int n);

/* Whether all modes have run all their steps.  If not, equality means
 * nothing. */
bool report_whole(const struct command *command, const struct result *results,
                  int n);

/* A quantile of n values.  Returns 0 if there is no memory to sort them,
 * because a report is not worth a failure. */
double report_quantile(const double *values, int n, double share);
/* Tokens per second in the later half of the steps.  The earlier ones record
 * and warm up. */
double report_tokens_a_second(const struct result *result);
/* Of what the library tells; "unknown" of a newer one. */
const char *report_exchange_kind(gh_exchange_kind kind);

/* Prints the n modes that have run. */
void report_table(const struct command *command, const struct device *dev,
                  const struct result *results, int n);

/* Returns 0, or -1 with one sentence in error. */
int report_json(const struct command *command, const struct device *dev,
                const struct result *results, int n, char *error,
                size_t error_bytes);

#endif
