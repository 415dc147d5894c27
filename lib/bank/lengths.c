/*
 * lengths.c - see lengths.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "bank/lengths.h"

#include "base/error.h"

static gh_status refuse_length(const gh_packed *packed, const int32_t *padded,
                               uint32_t i, uint32_t divisor, gh_error *err)
{
    const int32_t length = packed->lengths[i];

    if (length < 0) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_packed.lengths[%u] is %d: give each sequence's "
                       "tokens, 0 or more",
                       i, length);
    }
    if (padded[i] < length) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_packed.padded[%u] is %d, and the sequence has %d "
                       "tokens: padding comes on top",
                       i, padded[i], length);
    }
    return gh_fail(err, GH_ERR_INVALID,
                   "gh_packed: sequence %u takes %d tokens with its padding, "
                   "which %u, twice the CP size, does not divide: pad it",
                   i, padded[i], divisor);
}

static gh_status refuse_sum(const struct gh_bank *bank, int64_t sum,
                            int64_t physical, gh_error *err)
{
    return gh_fail(err, GH_ERR_UNSUPPORTED,
                   "gh_packed: the sequences take %lld tokens, and bank %u "
                   "(%s) holds %lld, %u on each of %u ranks: pack fewer, or "
                   "declare a larger bank",
                   (long long)sum, bank->number, bank->name,
                   (long long)physical, bank->tokens,
                   bank->cp_size == 0 ? 1 : bank->cp_size);
}

gh_status gh_lengths_take(const struct gh_bank *bank, const gh_packed *packed,
                          struct gh_lengths *lengths, gh_error *err)
{
    const uint32_t cp = bank->cp_size == 0 ? 1 : bank->cp_size;
    const uint32_t divisor = cp == 1 ? 1 : 2 * cp;
    const int32_t *padded =
        packed->padded != NULL ? packed->padded : packed->lengths;
    const int64_t physical = (int64_t)bank->tokens * cp;
    int32_t longest = 0;
    int64_t sum = 0;

    if (packed->n_sequences > bank->sequences) {
        return gh_fail(err, GH_ERR_UNSUPPORTED,
                       "gh_packed: %u sequences, and %s holds %u: pack fewer, "
                       "or declare a larger bank",
                       packed->n_sequences, gh_bank_describe(bank).text,
                       bank->sequences);
    }
    for (uint32_t i = 0; i < packed->n_sequences; i++) {
        if (packed->lengths[i] < 0 || padded[i] < packed->lengths[i] ||
            (uint32_t)padded[i] % divisor != 0) {
            return refuse_length(packed, padded, i, divisor, err);
        }
        longest = packed->lengths[i] > longest ? packed->lengths[i] : longest;
        sum += padded[i];
    }
    if (sum > physical) {
        return refuse_sum(bank, sum, physical, err);
    }
    *lengths = (struct gh_lengths){ .actual = packed->lengths,
                                    .padded = padded,
                                    .n = packed->n_sequences,
                                    .longest = longest,
                                    .physical = (int32_t)physical };
    return GH_OK;
}
