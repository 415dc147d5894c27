/*
 * policy.c - see policy.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "plan/policy.h"

#include "base/error.h"
#include "plan/simulate.h"

static const char *const fate_texts[GH_FATES] = {
    [GH_FATE_GOES] = "go",
    [GH_FATE_NOT_ASKED] = "not asked for",
    [GH_FATE_PLAN] = "switched off by the plan",
    [GH_FATE_SMALL] = "smaller than the least size",
    [GH_FATE_MARGIN] = "needed at once by the backward",
    [GH_FATE_KEEP] = "within keep_bytes",
    [GH_FATE_FRACTION] = "beyond the fraction",
    [GH_FATE_NO_GAIN] = "no fewer than their rings would hold",
    [GH_FATE_NEW] = "not there in the first step",
    [GH_FATE_NO_MEMORY] = "no memory for their rings",
    [GH_FATE_AUTO] = "would not hide",
    [GH_FATE_ELSEWHERE] = "moved by the host itself",
    [GH_FATE_EXCHANGE] = "would slow an exchange",
    [GH_FATE_POOL] = "no pinned memory within the pool",
    [GH_FATE_EARLY] = "would hide if saved later",
};

static const char *const fate_remedies[GH_FATES] = {
    [GH_FATE_NOT_ASKED] = "name their modules in GRAPHHOOKS_OFFLOAD",
    [GH_FATE_PLAN] = "change scope or granularity, as graphhooks plan says",
    [GH_FATE_SMALL] = "lower GRAPHHOOKS_OFFLOAD_MIN_BYTES",
    [GH_FATE_KEEP] = "lower GRAPHHOOKS_OFFLOAD_KEEP_BYTES",
    [GH_FATE_FRACTION] = "raise GRAPHHOOKS_OFFLOAD_FRACTION",
    [GH_FATE_NO_GAIN] = "lower GRAPHHOOKS_OFFLOAD_BUFFERS, raise "
                        "GRAPHHOOKS_OFFLOAD_FRACTION, or have more "
                        "microbatches in flight",
    [GH_FATE_NEW] = "save them in the first step",
    [GH_FATE_NO_MEMORY] = "leave device memory for their rings",
    [GH_FATE_AUTO] = "set GRAPHHOOKS_OFFLOAD_FRACTION to a number, if memory "
                     "matters more than time",
    [GH_FATE_EARLY] = "save them just before they are written",
    [GH_FATE_EXCHANGE] = "set GRAPHHOOKS_OFFLOAD_FRACTION to a number, if "
                         "memory matters more than time",
    [GH_FATE_POOL] = "raise GRAPHHOOKS_OFFLOAD_POOL_BYTES, or what the machine "
                     "lets a process pin",
};

const char *gh_fate_text(enum gh_fate fate)
{
    return fate_texts[fate];
}

const char *gh_fate_remedy(enum gh_fate fate)
{
    return fate_remedies[fate];
}

static bool goes(const struct gh_policy_group *group)
{
    return group->fate == GH_FATE_GOES;
}

/* Whether a later group of the chunk has the same module. */
static bool comes_again(struct gh_policy_group *groups, uint32_t n, uint32_t i)
{
    for (uint32_t j = i + 1; j < n; j++) {
        if (goes(&groups[j]) && groups[j].chunk == groups[i].chunk &&
            groups[j].module == groups[i].module) {
            return true;
        }
    }
    return false;
}

static void keep_margin(struct gh_policy_group *groups, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (goes(&groups[i]) && !comes_again(groups, n, i)) {
            groups[i].fate = GH_FATE_MARGIN;
        }
    }
}

static void keep_bytes(struct gh_policy_group *groups, uint32_t n, uint32_t chunk,
                       uint64_t bytes)
{
    for (uint32_t i = 0; i < n && bytes > 0; i++) {
        if (goes(&groups[i]) && groups[i].chunk == chunk) {
            groups[i].fate = GH_FATE_KEEP;
            bytes -= groups[i].bytes < bytes ? groups[i].bytes : bytes;
        }
    }
}

static uint32_t count_of_chunk(struct gh_policy_group *groups, uint32_t n,
                               uint32_t chunk)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < n; i++) {
        count += goes(&groups[i]) && groups[i].chunk == chunk;
    }
    return count;
}

/* Keeps the latest groups of each chunk. */
static void keep_fraction(struct gh_policy_group *groups, uint32_t n, uint32_t chunk,
                          double fraction)
{
    const double of_all = (double)count_of_chunk(groups, n, chunk);
    /* The 1e-6 makes up for rounding: 1 - 0.8 may be a little below 0.2, and 5
     * groups must still keep 1. */
    uint32_t stay = (uint32_t)(of_all * (1.0 - fraction) + 1e-6);

    for (uint32_t i = n; i-- > 0 && stay > 0;) {
        if (goes(&groups[i]) && groups[i].chunk == chunk) {
            groups[i].fate = GH_FATE_FRACTION;
            stay--;
        }
    }
}

/* Buffers of both rings. */
static uint32_t ring_buffers(const struct gh_policy *policy,
                             const struct gh_policy_class *size_class)
{
    return gh_policy_ring_buffers(policy, size_class) +
           gh_policy_ring_buffers_out(policy, size_class);
}

static bool uses_rings(const struct gh_policy_group *group,
                       uint32_t size_class)
{
    return goes(group) && group->size_class == size_class &&
           !group->elsewhere;
}

/* Those that use its rings. */
static uint32_t count_of_class(const struct gh_profile *profile,
                               uint32_t size_class)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < profile->n_groups; i++) {
        count += uses_rings(&profile->groups[i], size_class);
    }
    return count;
}

/* Keeps the groups for which no pinned memory is left, each with all of its
 * flights; the earliest take it first. */
static void keep_within_pool(const struct gh_policy *policy,
                             struct gh_profile *profile)
{
    uint64_t room = policy->pool_bytes;

    for (uint32_t i = 0; i < profile->n_groups && policy->pool_bytes != 0;
         i++) {
        struct gh_policy_group *group = &profile->groups[i];
        const uint64_t takes =
            profile->classes[group->size_class].bytes * policy->in_flight;

        if (goes(group) && takes > room) {
            group->fate = GH_FATE_POOL;
        } else if (goes(group)) {
            room -= takes;
        }
    }
}

/* The last class whose two rings would be at least as large as all the flights'
 * groups together; n_classes: there is none. */
static uint32_t find_without_gain(const struct gh_policy *policy,
                                  const struct gh_profile *profile)
{
    for (uint32_t c = profile->n_classes; c-- > 0;) {
        const uint64_t count = count_of_class(profile, c);
        const uint64_t buffers = ring_buffers(policy, &profile->classes[c]);

        if (count != 0 && count * policy->in_flight <= buffers) {
            return c;
        }
    }
    return profile->n_classes;
}

/* All groups of the class that use its rings stay, and others may have its
 * pinned memory.  Of a class that the pool has cut down, the pool is the
 * reason. */
static void keep_class(struct gh_profile *profile, uint32_t c)
{
    enum gh_fate why = GH_FATE_NO_GAIN;

    for (uint32_t i = 0; i < profile->n_groups; i++) {
        const struct gh_policy_group *group = &profile->groups[i];

        if (group->size_class == c && group->fate == GH_FATE_POOL) {
            why = GH_FATE_POOL;
        }
    }
    for (uint32_t i = 0; i < profile->n_groups; i++) {
        struct gh_policy_group *group = &profile->groups[i];

        if (uses_rings(group, c)) {
            group->fate = why;
        }
    }
    profile->classes[c].stays = true;
}

/* What the pool has kept goes again, where its class may. */
static void forget_pool(struct gh_profile *profile)
{
    for (uint32_t i = 0; i < profile->n_groups; i++) {
        struct gh_policy_group *group = &profile->groups[i];

        if (group->fate == GH_FATE_POOL &&
            (group->elsewhere || !profile->classes[group->size_class].stays)) {
            group->fate = GH_FATE_GOES;
        }
    }
}

/* Keeps what finds no pinned memory, and what its rings would free nothing
 * of. */
static void keep_what_does_not_fit(const struct gh_policy *policy,
                                   struct gh_profile *profile)
{
    uint32_t c;

    keep_within_pool(policy, profile);
    while ((c = find_without_gain(policy, profile)) != profile->n_classes) {
        keep_class(profile, c);
        forget_pool(profile);
        keep_within_pool(policy, profile);
    }
}

/* ---- what hides -------------------------------------------------------------- */

static bool hides(const struct gh_forecast *forecast)
{
    return forecast->with_ns <= forecast->without_ns * (1.0 + GH_HIDDEN_WITHIN);
}

/* The most groups that copies may come back ahead. */
#define MOST_PREFETCH 16

/* Chooses how far ahead copies come back: as far as was asked for, or else as
 * makes the step shortest.  The rings' whole room wins over anything that is
 * not clearly shorter. */
static void choose_prefetch(const struct gh_policy *policy,
                            struct gh_simulation *simulation,
                            struct gh_forecast *best)
{
    gh_simulate(simulation, policy->prefetch, best);
    if (policy->prefetch != 0) {
        return;
    }
    for (uint32_t prefetch = 1; prefetch <= MOST_PREFETCH; prefetch++) {
        struct gh_forecast forecast;

        gh_simulate(simulation, prefetch, &forecast);
        if (forecast.with_ns < best->with_ns * 0.999) {
            *best = forecast;
        }
    }
}

/* The group that is waited for longest; of several, the latest.  If none is
 * waited for, it is the latest group that goes. */
static struct gh_policy_group *most_exposed(struct gh_profile *profile,
                                            struct gh_simulation *simulation)
{
    struct gh_policy_group *found = NULL;
    double most = 0.0;

    for (uint32_t i = profile->n_groups; i-- > 0;) {
        const double stall = gh_simulated_stall(simulation, i);

        if (goes(&profile->groups[i]) && (found == NULL || stall > most)) {
            found = &profile->groups[i];
            most = stall;
        }
    }
    return found;
}

/* Lets kept groups go again where they are hidden now, because groups that were
 * kept later have made room. */
static void let_go_again(struct gh_profile *profile,
                         struct gh_simulation *simulation,
                         struct gh_forecast *forecast)
{
    for (uint32_t i = 0; i < profile->n_groups; i++) {
        struct gh_forecast with;

        if (profile->groups[i].fate != GH_FATE_AUTO) {
            continue;
        }
        profile->groups[i].fate = GH_FATE_GOES;
        gh_simulate(simulation, forecast->prefetch, &with);
        if (hides(&with)) {
            *forecast = with;
        } else {
            profile->groups[i].fate = GH_FATE_AUTO;
        }
    }
}

/* One more buffer for the group's class, on the way out.  False: it has one, no
 * save of the group waits, or the step would be no shorter. */
static bool widen(struct gh_profile *profile, struct gh_simulation *simulation,
                  const struct gh_policy_group *group,
                  struct gh_forecast *forecast)
{
    struct gh_policy_class *size_class = &profile->classes[group->size_class];
    const uint32_t g = (uint32_t)(group - profile->groups);
    struct gh_forecast with;

    if (size_class->widened || gh_simulated_save_stall(simulation, g) == 0.0) {
        return false;
    }
    size_class->widened = true;
    gh_simulate(simulation, forecast->prefetch, &with);
    if (with.with_ns < forecast->with_ns) {
        *forecast = with;
        return true;
    }
    size_class->widened = false;
    gh_simulate(simulation, forecast->prefetch, forecast);
    return false;
}

static void keep_exposed(const struct gh_policy *policy,
                         struct gh_profile *profile,
                         struct gh_simulation *simulation, bool widens,
                         struct gh_forecast *forecast)
{
    struct gh_policy_group *next;

    choose_prefetch(policy, simulation, forecast);
    gh_simulate(simulation, forecast->prefetch, forecast);
    while (!hides(forecast) &&
           (next = most_exposed(profile, simulation)) != NULL) {
        if (widens && widen(profile, simulation, next, forecast)) {
            continue;
        }
        next->fate = GH_FATE_AUTO;
        gh_simulate(simulation, forecast->prefetch, forecast);
    }
    let_go_again(profile, simulation, forecast);
}

/* Lets all go again that were kept for their copies. */
static uint32_t forget_exposed(struct gh_profile *profile)
{
    uint32_t n = 0;

    for (uint32_t c = 0; c < profile->n_classes; c++) {
        profile->classes[c].widened = false;
    }
    for (uint32_t i = 0; i < profile->n_groups; i++) {
        if (profile->groups[i].fate == GH_FATE_AUTO) {
            profile->groups[i].fate = GH_FATE_GOES;
            n++;
        }
    }
    return n;
}

/* The bytes of the device that the groups that go free, less their rings. */
static uint64_t freed(const struct gh_policy *policy,
                      const struct gh_profile *profile)
{
    uint64_t bytes = 0;

    for (uint32_t c = 0; c < profile->n_classes; c++) {
        const uint64_t groups =
            (uint64_t)count_of_class(profile, c) * policy->in_flight;
        const uint64_t buffers = ring_buffers(policy, &profile->classes[c]);

        bytes += groups > buffers
                     ? (groups - buffers) * profile->classes[c].bytes
                     : 0;
    }
    for (uint32_t i = 0; i < profile->n_groups; i++) {
        const struct gh_policy_group *group = &profile->groups[i];

        bytes += goes(group) && group->elsewhere
                     ? profile->classes[group->size_class].bytes *
                           policy->in_flight
                     : 0;
    }
    return bytes;
}

/* Marks groups that only wait because they are saved long before they are
 * committed.  The library cannot save them later, but the host can. */
static void find_early(struct gh_profile *profile,
                       struct gh_simulation *simulation,
                       const struct gh_forecast *forecast)
{
    for (uint32_t i = 0; i < profile->n_groups; i++) {
        struct gh_policy_group *group = &profile->groups[i];
        struct gh_forecast with;

        if (group->fate != GH_FATE_AUTO || group->late) {
            continue;
        }
        group->fate = GH_FATE_GOES;
        group->late = true;
        gh_simulate(simulation, forecast->prefetch, &with);
        group->fate = hides(&with) ? GH_FATE_EARLY : GH_FATE_AUTO;
        group->late = false;
    }
}

static void keep_what_shows(const struct gh_policy *policy,
                            struct gh_profile *profile,
                            struct gh_simulation *simulation,
                            struct gh_forecast *forecast)
{
    uint64_t narrow;

    keep_exposed(policy, profile, simulation, false, forecast);
    narrow = freed(policy, profile);
    if (forget_exposed(profile) != 0) {
        keep_exposed(policy, profile, simulation, true, forecast);
        if (freed(policy, profile) <= narrow) {
            forget_exposed(profile);
            keep_exposed(policy, profile, simulation, false, forecast);
        }
    }
    find_early(profile, simulation, forecast);
}

/* Notes the group that the last simulation has waited for longest. */
static void note_worst(const struct gh_profile *profile,
                       const struct gh_simulation *simulation,
                       struct gh_forecast *forecast)
{
    for (uint32_t i = 0; i < profile->n_groups; i++) {
        const double stall = gh_simulated_stall(simulation, i);

        if (stall > forecast->worst_ns) {
            forecast->worst = i;
            forecast->worst_ns = stall;
            forecast->worst_save_ns = gh_simulated_save_stall(simulation, i);
        }
    }
}

/* Less measured time than this is noise. */
#define LEAST_COMPARED_NS 1e6
#define MOST_SLOWDOWN 0.25

double gh_policy_slowdown(const struct gh_interval *intervals, uint32_t n)
{
    double longer = 0.0, compared = 0.0;

    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < i; j++) {
            const struct gh_interval *one = &intervals[i];
            const struct gh_interval *other = &intervals[j];
            const double more = one->beside - other->beside;

            if (one->work != other->work) {
                continue;
            }
            if (more >= 0.5 || more <= -0.5) {
                const struct gh_interval *less = more > 0.0 ? other : one;

                longer += more > 0.0 ? one->ns - other->ns
                                     : other->ns - one->ns;
                compared += less->ns * (more > 0.0 ? more : -more);
            }
        }
    }
    if (compared < LEAST_COMPARED_NS) {
        return -1.0;
    }
    longer = longer > 0.0 ? longer / compared : 0.0;
    return longer < MOST_SLOWDOWN ? longer : MOST_SLOWDOWN;
}

/* ---- all of it ---------------------------------------------------------------- */

/* Forecasts the step with the fates as they are.  If `decides`, it also sets
 * the fates, so that the copies are hidden. */
static gh_status foresee(const struct gh_policy *policy, bool decides,
                         struct gh_profile *profile,
                         struct gh_forecast *forecast, gh_error *err)
{
    struct gh_simulation *simulation;

    if (!gh_simulation_can(profile)) {
        return GH_OK;
    }
    simulation = gh_simulation_create(policy, profile);
    if (simulation == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a forecast");
    }
    if (decides) {
        keep_what_shows(policy, profile, simulation, forecast);
    } else {
        gh_simulate(simulation, forecast->prefetch, forecast);
        note_worst(profile, simulation, forecast);
    }
    gh_simulation_free(simulation);
    return GH_OK;
}

gh_status gh_policy_decide(const struct gh_policy *policy,
                           struct gh_profile *profile,
                           struct gh_forecast *forecast, gh_error *err)
{
    struct gh_policy_group *groups = profile->groups;
    const uint32_t n = profile->n_groups;
    gh_status status = GH_OK;
    uint32_t chunks = 0;

    *forecast = (struct gh_forecast){ .prefetch = policy->prefetch };
    for (uint32_t i = 0; i < n; i++) {
        chunks = groups[i].chunk >= chunks ? groups[i].chunk + 1 : chunks;
    }
    keep_margin(groups, n);
    for (uint32_t chunk = 0; chunk < chunks; chunk++) {
        keep_bytes(groups, n, chunk, policy->keep_bytes);
        if (!policy->hides) {
            keep_fraction(groups, n, chunk, policy->fraction);
        }
    }
    if (policy->hides) {
        status = foresee(policy, true, profile, forecast, err);
    }
    keep_what_does_not_fit(policy, profile);
    return status == GH_OK ? foresee(policy, false, profile, forecast, err)
                           : status;
}

struct gh_policy_memory gh_policy_weigh(const struct gh_policy *policy,
                                        const struct gh_profile *profile,
                                        uint32_t module)
{
    struct gh_policy_memory memory = { 0 };

    for (uint32_t c = 0; c < profile->n_classes; c++) {
        const struct gh_policy_class *size_class = &profile->classes[c];
        const uint32_t buffers = gh_policy_ring_buffers(policy, size_class);
        const uint32_t out = gh_policy_ring_buffers_out(policy, size_class);
        uint32_t count = 0;

        for (uint32_t i = 0; i < profile->n_groups; i++) {
            const struct gh_policy_group *group = &profile->groups[i];

            if (goes(group) && group->size_class == c &&
                group->module == module) {
                count++;
                memory.without += group->bytes * policy->in_flight;
            }
        }
        if (count != 0) {
            memory.rings += size_class->bytes * (buffers + out);
            memory.buffers =
                buffers > memory.buffers ? buffers : memory.buffers;
            memory.out_buffers =
                out > memory.out_buffers ? out : memory.out_buffers;
        }
        memory.groups += count;
    }
    return memory;
}
