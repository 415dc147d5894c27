/*
 * lengths.h - whether sequences fit into a bank.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_BANK_LENGTHS_H
#define GH_BANK_LENGTHS_H

#include "bank/bank.h"
#include "device/device.h"

/* Checks the sequences and fills in `lengths` for the kernel.
 * GH_ERR_UNSUPPORTED where they do not fit the bank, GH_ERR_INVALID where a
 * length is not valid; the text has the numbers. */
gh_status gh_lengths_take(const struct gh_bank *bank, const gh_packed *packed,
                          struct gh_lengths *lengths, gh_error *err);

#endif
