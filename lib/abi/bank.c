/*
 * bank.c - banks and packed sequences: checks the arguments, then lets
 * lib/capture declare, count or write.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include <graphhooks/bank.h>

#include "abi/session.h"
#include "base/error.h"
#include "base/size.h"
#include "capture/capture.h"

static gh_status refuse_null(const char *call, const char *name, gh_error *err)
{
    return gh_fail(err, GH_ERR_INVALID, "%s: %s is NULL", call, name);
}

/* Refuses what 32-bit offsets cannot count.  Under context parallelism each
 * rank has two pieces of every sequence, so the tokens must be even. */
static gh_status check_desc(const gh_bank_desc *desc, gh_error *err)
{
    const uint64_t cp = desc->cp_size == 0 ? 1 : desc->cp_size;

    if (desc->sequences != 0 && desc->tokens == 0) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_bank_desc.sequences is %u, and tokens 0: say how "
                       "many tokens they are packed into",
                       desc->sequences);
    }
    if (desc->sequences > INT32_MAX - 2 || desc->tokens * cp > INT32_MAX) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_bank_desc: %u sequences, %u tokens on each of %llu "
                       "ranks: offsets have 32 bits",
                       desc->sequences, desc->tokens, (unsigned long long)cp);
    }
    if (cp > 1 && desc->sequences != 0 && desc->tokens % 2 != 0) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_bank_desc.tokens is %u with a cp_size of %llu: each "
                       "rank has two pieces of every sequence, so give it an "
                       "even number",
                       desc->tokens, (unsigned long long)cp);
    }
    return GH_OK;
}

gh_status gh_bank_add(gh_session *session, const gh_bank_desc *desc,
                      uint32_t *bank_p, gh_error *err)
{
    gh_bank_desc ours;
    gh_status status = gh_session_check(session, "gh_bank_add", err);

    if (status != GH_OK) {
        return status;
    }
    if (desc == NULL || bank_p == NULL) {
        return refuse_null("gh_bank_add", desc == NULL ? "desc" : "bank_p",
                           err);
    }
    status = gh_check_size("gh_bank_desc", desc,
                           GH_SIZE_THROUGH(gh_bank_desc, name), sizeof(ours),
                           err);
    if (status != GH_OK) {
        return status;
    }
    gh_take_struct(desc, &ours, sizeof(ours));
    status = check_desc(&ours, err);
    return status == GH_OK
               ? gh_capture_add_bank(session->capture, &ours, bank_p, err)
               : status;
}

gh_status gh_bank_get_stats(const gh_session *session, uint32_t bank,
                            gh_bank_stats *stats, gh_error *err)
{
    gh_bank_stats ours = { 0 };
    gh_status status = gh_session_check_read(session, "gh_bank_get_stats", err);

    if (status != GH_OK) {
        return status;
    }
    if (stats == NULL) {
        return refuse_null("gh_bank_get_stats", "stats", err);
    }
    status = gh_check_size("gh_bank_stats", stats,
                           GH_SIZE_THROUGH(gh_bank_stats, bytes), sizeof(ours),
                           err);
    if (status != GH_OK) {
        return status;
    }
    if (!gh_capture_count_bank(session->capture, bank, &ours)) {
        return gh_fail(err, GH_ERR_NOT_FOUND,
                       "gh_bank_get_stats: there is no bank %u: declare it "
                       "with gh_bank_add first",
                       bank);
    }
    gh_give_struct(stats, &ours, sizeof(ours));
    return GH_OK;
}

static gh_status check_packed(const gh_session *session,
                              const gh_packed *packed, gh_error *err)
{
    if (packed->n_sequences != 0 && packed->lengths == NULL) {
        return refuse_null("gh_packed_set", "lengths", err);
    }
    if (packed->chunk >= session->plan.n_chunks) {
        return gh_fail(err, GH_ERR_NOT_FOUND,
                       "gh_packed.chunk is %u, and the model has %u",
                       packed->chunk, session->plan.n_chunks);
    }
    if (packed->microbatch >= GH_MAX_MICROBATCHES ||
        (packed->flags & ~(uint32_t)GH_PASS_FORWARD_ONLY) != 0) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_packed: microbatch %u, flags 0x%x: below %u of the "
                       "one, and of the others GH_PASS_FORWARD_ONLY alone",
                       packed->microbatch, packed->flags, GH_MAX_MICROBATCHES);
    }
    return GH_OK;
}

gh_status gh_packed_set(gh_session *session, const gh_packed *packed,
                        gh_packed_buffers *buffers, gh_error *err)
{
    gh_packed_buffers theirs = { 0 };
    gh_packed ours;
    gh_status status = gh_session_check(session, "gh_packed_set", err);

    if (status != GH_OK) {
        return status;
    }
    if (packed == NULL || buffers == NULL) {
        return refuse_null("gh_packed_set",
                           packed == NULL ? "packed" : "buffers", err);
    }
    status = gh_check_size("gh_packed", packed,
                           GH_SIZE_THROUGH(gh_packed, padded), sizeof(ours),
                           err);
    if (status == GH_OK) {
        status = gh_check_size("gh_packed_buffers", buffers,
                               GH_SIZE_THROUGH(gh_packed_buffers, n_sequences),
                               sizeof(theirs), err);
    }
    if (status != GH_OK) {
        return status;
    }
    gh_take_struct(packed, &ours, sizeof(ours));
    status = check_packed(session, &ours, err);
    if (status == GH_OK) {
        status =
            gh_capture_set_packed(session->capture, &ours, &theirs, err);
    }
    if (status == GH_OK) {
        gh_give_struct(buffers, &theirs, sizeof(theirs));
    }
    return status;
}
