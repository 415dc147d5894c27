/*
 * slots.c - how many slots a stage's chunks need, without a table.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "pipeline/pipeline.h"

#include "base/error.h"

gh_status gh_pipeline_check_groups(const struct gh_interleaving *how,
                                   uint32_t n_microbatches, gh_error *err)
{
    const uint32_t left = n_microbatches % (how->group != 0 ? how->group : 1);

    if (how->n_chunks < 2) {
        return GH_OK; /* nothing is interleaved */
    }
    if (how->group < how->n_stages || how->group == 0 ||
        how->group > GH_PIPELINE_MICROBATCHES) {
        return gh_fail(err, GH_ERR_INVALID,
                       "an interleaved schedule of %u stages in groups of %u "
                       "microbatches: give groups of %u microbatches, as many "
                       "as there are stages, to %u",
                       how->n_stages, how->group, how->n_stages,
                       GH_PIPELINE_MICROBATCHES);
    }
    if (left != 0 && left < how->n_stages) {
        return gh_fail(err, GH_ERR_INVALID,
                       "an interleaved schedule of %u stages and %u "
                       "microbatches in groups of %u: the last group has %u, "
                       "and needs 0 or at least as many as there are stages",
                       how->n_stages, n_microbatches, how->group, left);
    }
    return GH_OK;
}

uint64_t gh_pipeline_warmup(const struct gh_interleaving *how, uint32_t stage,
                            uint64_t passes)
{
    const uint32_t behind = how->n_stages - 1 - stage;
    uint64_t warmup = behind;

    if (how->n_chunks > 1) {
        warmup = 2ull * behind + (uint64_t)(how->n_chunks - 1) * how->group;
    }
    warmup += how->ahead;
    return warmup < passes ? warmup : passes;
}

/* Forwards of a chunk among the first `passes` ones of a stage. */
static uint64_t forwards_of(const struct gh_interleaving *how, uint64_t n,
                            uint64_t passes, uint32_t chunk)
{
    const uint64_t group = how->n_chunks > 1 ? how->group : n;
    const uint64_t groups = passes / (group * how->n_chunks);
    const uint64_t whole = groups < n / group ? groups : n / group;
    const uint64_t left = n - whole * group;
    const uint64_t size = left < group ? left : group;
    const uint64_t within = passes - whole * group * how->n_chunks;
    const uint64_t before = chunk * size;

    if (within <= before) {
        return whole * group;
    }
    return whole * group + (within - before < size ? within - before : size);
}

/* Microbatches in flight in a chunk right after so many forwards. */
static uint64_t in_flight_after(const struct gh_interleaving *how, uint64_t n,
                                uint64_t forwards, uint64_t warmup,
                                uint32_t chunk)
{
    const uint64_t backwards =
        forwards > warmup + 1 ? forwards - warmup - 1 : 0;

    return forwards_of(how, n, forwards, chunk) -
           forwards_of(how, n, backwards, how->n_chunks - 1 - chunk);
}

/* Raises a slot count to what so many microbatches need.  Between two borders
 * of the rows of one chunk, forward or backward, what is in flight rises or
 * falls evenly: so it is largest at a border. */
static void add_needed(const struct gh_interleaving *how, uint32_t stage,
                       uint64_t n, uint32_t chunk, uint32_t *slots)
{
    const uint64_t passes = n * how->n_chunks;
    const uint64_t group = how->n_chunks > 1 ? how->group : n;
    const uint64_t warmup = gh_pipeline_warmup(how, stage, passes);

    for (uint64_t first = 0; first < n; first += group) {
        const uint64_t size = n - first < group ? n - first : group;

        for (uint64_t c = 1; c <= how->n_chunks; c++) {
            const uint64_t border = first * how->n_chunks + c * size;
            const uint64_t later = border + warmup + 1;
            const uint64_t at[] = { border, later < passes ? later : passes };

            for (int i = 0; i < 2; i++) {
                const uint64_t now =
                    in_flight_after(how, n, at[i], warmup, chunk);

                *slots = now > *slots ? (uint32_t)now : *slots;
            }
        }
    }
}

gh_status gh_pipeline_slots(const struct gh_interleaving *how, uint32_t stage,
                            uint32_t *slots, gh_error *err)
{
    const bool has_tails = how->n_chunks > 1;
    /* By then a stage has come to its steady state: its warm-up is shorter than
     * two groups, and than twice the stages. */
    const uint64_t whole = has_tails ? 3 * (uint64_t)how->group
                                     : 2 * (uint64_t)how->n_stages + how->ahead;
    gh_status status = GH_OK;

    if (how->ahead > GH_PIPELINE_STAGES) {
        return gh_fail(err, GH_ERR_INVALID,
                       "%u forwards ahead of a schedule: give %u at most",
                       how->ahead, GH_PIPELINE_STAGES);
    }
    if (has_tails) {
        status = gh_pipeline_check_groups(how, how->group, err);
    }
    for (uint32_t c = 0; c < how->n_chunks && status == GH_OK; c++) {
        slots[c] = 1;
        add_needed(how, stage, whole, c, &slots[c]);
        for (uint64_t tail = how->n_stages; has_tails && tail < how->group;
             tail++) {
            add_needed(how, stage, whole + tail, c, &slots[c]);
        }
    }
    return status;
}
