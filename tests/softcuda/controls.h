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
    softcuda_unmapped_fn *unmapped;
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

/* A point: so many reads of what nothing has written, of `what`. */
void reported(uint64_t expected, const char *what);
/* Whether the first of them has these words. */
bool unwritten_says(const char *text);

/* For kernels of two addresses of so many bytes: the first is copied to, or
 * nothing is done, and the second is copied from. */
#define KERNEL_BYTES 64
extern const uint32_t kernel_params[2];
void *kernel_at(void *param);
void kernel_copy(const softcuda_launch *launch, void *const *params);
void kernel_nothing(const softcuda_launch *launch, void *const *params);
void kernel_copy_touch(const softcuda_launch *launch, void *const *params,
                       softcuda_touch_fn touch, void *sink);
void kernel_look_touch(const softcuda_launch *launch, void *const *params,
                       softcuda_touch_fn touch, void *sink);

#endif
