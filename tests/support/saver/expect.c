/*
 * expect.c - what must come out, followed on the CPU, and what has.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/saver/shared.h"

#include <stdlib.h>
#include <string.h>

uint32_t saver_fed(const struct saver *sv, gh_direction d, uint32_t m)
{
    return 1000 * sv->step + 10 * m + d + 1;
}

static void expect_word(struct saver *sv, uint32_t m, uint32_t n, uint32_t i)
{
    const struct saver_options *o = &sv->options;
    uint32_t x[SAVER_MAX_PARTS + 1];
    uint32_t g = saver_fed(sv, GH_BACKWARD, m);

    x[0] = saver_fed(sv, GH_FORWARD, m);
    for (uint32_t p = 0; p < sv->n_parts; p++) {
        x[p + 1] = 3 * x[p] + p + 1;
        for (uint32_t k = p % 2; k < saver_groups(sv, false); k += 2) {
            for (uint32_t t = 0; t < o->tensors; t++) {
                x[p + 1] += i < saver_words(n, t)
                                ? x[p] + saver_constant(sv, p, k, t)
                                : 0;
            }
        }
        for (uint32_t t = 0; t < o->tensors && p % 2 == 1 && o->across; t++) {
            x[p + 1] += i < saver_words(n, t)
                            ? x[p - 1] + saver_constant(sv, p - 1, 0, t)
                            : 0;
        }
    }
    for (uint32_t p = sv->n_parts; p-- > 0;) {
        uint32_t gx = 5 * g;

        for (uint32_t k = p % 2; k < saver_groups(sv, false); k += 2) {
            for (uint32_t t = 0; t < o->tensors; t++) {
                const uint32_t of = x[p] + saver_constant(sv, p, k, t);

                if (i < saver_words(n, t)) {
                    sv->sums[(p * SAVER_MAX_MODULES + k) * o->elems + i] +=
                        of + g;
                    gx += 7 * of;
                }
            }
        }
        g = gx;
    }
}

void saver_expect(struct saver *sv, uint32_t microbatches)
{
    for (uint32_t m = 0; m < microbatches && !sv->evaluates_only; m++) {
        const uint32_t n = sv->words[m] != 0 ? sv->words[m] : sv->options.elems;

        for (uint32_t i = 0; i < n; i++) {
            expect_word(sv, m, n, i);
        }
    }
}

/* ---- the sums of the device ---------------------------------------------- */

/* Twice where the first call is one that was made to fail: what is looked at is
 * the library's work. */
static void read_words(struct saver *sv, void *to, CUdeviceptr from,
                       uint64_t bytes)
{
    if (!SAVER_CALL(sv, cuMemcpyDtoH, (to, from, bytes))) {
        sv->toy.drv.cuMemcpyDtoH(to, from, bytes);
    }
}

static void write_words(struct saver *sv, CUdeviceptr to, const void *from,
                        uint64_t bytes)
{
    if (!SAVER_CALL(sv, cuMemcpyHtoD, (to, from, bytes))) {
        sv->toy.drv.cuMemcpyHtoD(to, from, bytes);
    }
}

/* Only the host's streams are waited for: what the library has under way on its
 * own stays so. */
void saver_copy_sums(struct saver *sv, bool save)
{
    for (uint32_t s = 0; s < TOY_STREAMS; s++) {
        sv->toy.drv.cuStreamSynchronize(sv->toy.streams[s]);
    }
    for (uint32_t set = 0; set < sv->n_sets; set++) {
        char *kept = (char *)sv->kept_device + set * saver_sums_bytes(sv);
        const CUdeviceptr of = saver_sum(sv, set, 0, 0);

        if (save) {
            read_words(sv, kept, of, saver_sums_bytes(sv));
        } else {
            write_words(sv, of, kept, saver_sums_bytes(sv));
        }
    }
    sv->toy.drv.cuStreamSynchronize(NULL);
}

static bool is_sum_exact(struct saver *sv, uint32_t part, uint32_t k,
                         uint32_t *read, uint32_t *all)
{
    const uint32_t n = sv->options.elems;

    memset(all, 0, 4 * (size_t)n);
    for (uint32_t set = 0; set < sv->n_sets; set++) {
        read_words(sv, read, saver_sum(sv, set, part, k), 4 * (uint64_t)n);
        for (uint32_t i = 0; i < n; i++) {
            all[i] += read[i];
        }
    }
    return memcmp(all, &sv->sums[(part * SAVER_MAX_MODULES + k) * (size_t)n],
                  4 * (size_t)n) == 0;
}

bool saver_is_exact(struct saver *sv)
{
    uint32_t *read = calloc(2 * (size_t)sv->options.elems, 4);
    bool exact = SAVER_CALL(sv, cuCtxSynchronize, ());

    for (uint32_t p = 0; p < sv->n_parts && exact; p++) {
        for (uint32_t k = 0; k < SAVER_MAX_MODULES && exact; k++) {
            exact = is_sum_exact(sv, p, k, read, read + sv->options.elems);
        }
    }
    free(read);
    return exact;
}
