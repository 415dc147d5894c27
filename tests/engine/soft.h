/*
 * soft.h - whole runs of the engine on the software device, many a second.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TESTS_ENGINE_SOFT_H
#define TESTS_ENGINE_SOFT_H

#include "step/train.h"
#include "softcuda/softcuda.h"

enum {
    SOFT_ERROR = 512
};

/* A model so small that a run takes a millisecond. */
extern const struct options soft_options;

extern struct soft_controls {
    softcuda_configure_fn *configure;
    softcuda_count_fn *count;
    softcuda_calls_fn *calls;
    softcuda_entry_fn *entry;
    softcuda_races_fn *races;
} soft;

/* Loads the software device, and finds the library.  0, or -1 with a remark
 * in the log. */
int soft_find(void);

extern char soft_library[4096]; /* its path, for options */

enum outcome {
    ENDED_WELL,    /* with the numbers that were expected */
    ENDED_CLEARLY, /* with one sentence */
    ENDED_BADLY    /* with other numbers, without a word, or leaving things */
};

/**
 * One whole run, from opening the device to closing it.
 *
 * @param         options   all but the library
 * @param         settings  for softcuda_configure
 * @param[in,out] expected  what the losses and weights must be; the first
 *                          run fills it, result_free() it at the end
 * @param[out]    error     SOFT_ERROR bytes
 */
enum outcome soft_run(const struct options *options, enum mode mode,
                      const char *settings, struct result *expected,
                      char *error);

#endif
