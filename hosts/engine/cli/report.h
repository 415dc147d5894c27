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

/* Every loss and the last weights are the same bits. */
bool report_equal(const struct result *a, const struct result *b);
bool report_all_equal(const struct result *results, int n);

/* All modes have run all their steps; of others equality says nothing. */
bool report_whole(const struct command *command, const struct result *results,
                  int n);

/* Of n values, sorted; 0 with no memory to sort in: a report is not worth a
 * failure. */
double report_quantile(const double *values, int n, double share);
/* Of the later half of the steps: those before record and warm up. */
double report_tokens_a_second(const struct result *result);

/* Of the n modes that have run. */
void report_table(const struct command *command, const struct device *dev,
                  const struct result *results, int n);

/* 0; or -1 with one sentence in error. */
int report_json(const struct command *command, const struct device *dev,
                const struct result *results, int n, char *error,
                size_t error_bytes);

#endif
