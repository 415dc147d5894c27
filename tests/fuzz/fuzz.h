/*
 * fuzz.h - what seeds.c asks of a driver besides LLVMFuzzerTestOneInput().
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Files to begin with, below the sources, each to be changed a little; NULL:
 * inputs are random bytes. */
extern const char *const fuzz_corpus;
/* How many inputs `make check` gives it. */
extern const unsigned fuzz_inputs;
/* Why there is nothing to try on this machine; NULL: there is. */
const char *fuzz_skip(void);

/* Whether its inputs have come to what it is for, and what that is. */
bool fuzz_reached(char *text, size_t bytes);

/* Ends the program with the sentence: the driver has found a fault. */
_Noreturn void fuzz_found(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

#endif
