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

/* Of the n modes that have run. */
void report_table(const struct command *command, const struct device *dev,
                  const struct result *results, int n);

/* 0; or -1 with one sentence in error. */
int report_json(const struct command *command, const struct device *dev,
                const struct result *results, int n, char *error,
                size_t error_bytes);

#endif
