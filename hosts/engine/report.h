/*
 * report.h - progress, the table at the end, the JSON file.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_REPORT_H
#define ENGINE_REPORT_H

#include "train.h"

train_progress_fn report_progress;

/* Every loss and the last weights are the same bits. */
bool report_equal(const struct result *a, const struct result *b);
bool report_all_equal(const struct result *results, int n);

void report_table(const struct device *dev, const struct result *results,
                  int n);

/* 0; or -1 with one sentence in error. */
int report_json(const struct options *options, const struct device *dev,
                const struct result *results, int n, char *error,
                size_t error_bytes);

#endif
