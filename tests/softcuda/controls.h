/*
 * controls.h - the emulator's own controls, for its tests.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TESTS_SOFTCUDA_CONTROLS_H
#define TESTS_SOFTCUDA_CONTROLS_H

#include "softcuda/softcuda.h"
#include "tests/driver/contract.h"

struct controls {
    softcuda_count_fn *count;
    softcuda_configure_fn *configure;
    softcuda_races_fn *races;
    softcuda_unwritten_fn *unwritten;
    softcuda_discard_fn *discard;
    softcuda_label_fn *label;
    softcuda_others_fn *others;
    softcuda_gather_fn *gather;
    softcuda_clock_fn *clock;
    softcuda_costs_fn *costs;
    softcuda_calls_fn *calls;
    softcuda_entry_fn *entry;
};

extern struct controls soft;

/* contract_open() on the software device only.  The reports that it prints
 * are thrown away: the tests ask for them. */
bool controls_open(int *status_p);

void configure(const char *format, ...) __attribute__((format(printf, 1, 2)));
uint64_t races(void);
const char *race(uint64_t i);
uint64_t unwritten(void);
const char *unwritten_read(uint64_t i);
softcuda_counts counts(void);

#endif
