/*
 * report.c - see report.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "offload/decide/report.h"

#include "memory/numa.h"

#include <stdio.h>
#include <string.h>

static double mib(uint64_t bytes)
{
    return (double)bytes / 1048576.0;
}

/* What is known of the groups of a module. */
struct module {
    uint32_t all, n[GH_FATES];
    uint32_t first, last; /* layers */
    uint64_t least, most; /* bytes of those that could go */
    uint64_t gap;         /* the shortest; 0: unknown */
    double out, back;     /* the longest copies, in ns */
    bool measured;
};

static struct module look_at(const struct gh_offload *o,
                             const struct gh_profile *profile, uint32_t module)
{
    struct module found = { .first = UINT32_MAX, .least = UINT64_MAX };

    for (uint32_t g = 0; g < profile->n_groups; g++) {
        const struct gh_policy_group *group = &profile->groups[g];
        const double out = gh_policy_out_ns(profile, g);
        const double back = gh_policy_back_ns(profile, g);

        if (group->module != module) {
            continue;
        }
        found.all++;
        found.n[o->table.groups[g]->fate]++;
        found.first = group->layer < found.first ? group->layer : found.first;
        found.last = group->layer > found.last ? group->layer : found.last;
        if (group->bytes < found.least) {
            found.least = group->bytes;
        }
        found.most = group->bytes > found.most ? group->bytes : found.most;
        if (group->gap_ns != 0 &&
            (found.gap == 0 || group->gap_ns < found.gap)) {
            found.gap = group->gap_ns;
        }
        found.out = out > found.out ? out : found.out;
        found.back = back > found.back ? back : found.back;
        found.measured = found.measured || group->out_ns != 0;
    }
    return found;
}

static void stay_text(const struct module *m, char *text, size_t bytes)
{
    size_t used = 0;

    text[0] = '\0';
    for (int fate = 1; fate < GH_FATES && used < bytes; fate++) {
        if (m->n[fate] != 0) {
            used +=
                (size_t)snprintf(text + used, bytes - used, "; %u stay (%s)",
                                 m->n[fate], gh_fate_text(fate));
        }
    }
}

/* Why nothing goes, and what would change it; in the order in which it is
 * decided, the last first. */
static void say_nothing_goes(const struct gh_offload *o, const struct module *m)
{
    static const enum gh_fate order[] = {
        GH_FATE_POOL,     GH_FATE_NO_MEMORY, GH_FATE_NO_GAIN,
        GH_FATE_EARLY,    GH_FATE_EXCHANGE,  GH_FATE_AUTO,
        GH_FATE_FRACTION, GH_FATE_KEEP,      GH_FATE_SMALL,
        GH_FATE_PLAN,     GH_FATE_NEW,       GH_FATE_NOT_ASKED,
    };
    const char *remedy = NULL;
    char stay[400];

    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]) && remedy == NULL;
         i++) {
        remedy = m->n[order[i]] != 0 ? gh_fate_remedy(order[i]) : NULL;
    }
    stay_text(m, stay, sizeof(stay));
    gh_log_line(o->log, GH_LOG_WARN, "offload: nothing is offloaded%s%s%s",
                stay, remedy != NULL ? ": " : "", remedy != NULL ? remedy : "");
}

static void say_pool(const struct gh_offload *o, const struct gh_policy *policy,
                     const struct module *m, uint64_t needed)
{
    gh_log_line(o->log, GH_LOG_WARN,
                "offload: %u of %u groups stay on the device: the pool has "
                "%llu bytes of pinned memory, and all that would go take %llu: "
                "%s",
                m->n[GH_FATE_POOL], m->all - m->n[GH_FATE_NOT_ASKED],
                (unsigned long long)policy->pool_bytes,
                (unsigned long long)needed, gh_fate_remedy(GH_FATE_POOL));
}

/* What costs memory that the host has asked to have back. */
static void say_what_stays(const struct gh_offload *o,
                           const struct gh_policy *policy,
                           const struct gh_profile *profile)
{
    const bool asked = o->options.modules != 0 || o->options.named != 0;
    struct module all = { 0 };
    uint64_t needed = 0;

    for (uint32_t g = 0; g < profile->n_groups; g++) {
        const struct gh_policy_group *group = &profile->groups[g];
        const enum gh_fate fate = o->table.groups[g]->fate;

        all.all++;
        all.n[fate]++;
        if (fate == GH_FATE_GOES || fate == GH_FATE_POOL) {
            needed +=
                profile->classes[group->size_class].bytes * policy->in_flight;
        }
    }
    if (all.n[GH_FATE_GOES] + all.n[GH_FATE_ELSEWHERE] == 0 && asked &&
        (policy->hides || policy->fraction > 0.0)) {
        say_nothing_goes(o, &all);
    } else if (all.n[GH_FATE_POOL] != 0) {
        say_pool(o, policy, &all, needed);
    }
}

/* ": of 16.0 MiB in layers 0 to 11, 1.2 ms or more from commit to load, copied
 * in 0.3 ms out and 0.3 ms back" */
static void say_groups(const struct gh_offload *o, const char *name,
                       const struct module *m)
{
    char times[120] = "";

    if (m->gap != 0) {
        snprintf(times, sizeof(times),
                 "; %.3f ms or more from commit to load, %s %.3f ms out and "
                 "%.3f back",
                 (double)m->gap / 1e6, m->measured ? "copied in" : "copies of",
                 m->out / 1e6, m->back / 1e6);
    }
    if (m->least == m->most) {
        gh_log_line(o->log, GH_LOG_INFO,
                    "offload%s: %.1f MiB a group, in layers %u to %u%s", name,
                    mib(m->most), m->first, m->last, times);
    } else {
        gh_log_line(o->log, GH_LOG_INFO,
                    "offload%s: %.1f to %.1f MiB a group, in layers %u to %u%s",
                    name, mib(m->least), mib(m->most), m->first, m->last,
                    times);
    }
}

static void say_module(struct gh_offload *o, const struct gh_policy *policy,
                       const struct gh_profile *profile, uint32_t module)
{
    const struct gh_policy_memory memory =
        gh_policy_weigh(policy, profile, module);
    const struct module m = look_at(o, profile, module);
    const struct gh_group_name text = gh_group_name(o, 0, module);
    const char *name = text.text;
    const uint32_t goes = m.n[GH_FATE_GOES];
    char stay[200], rings[48] = "";

    while (*name != '\0' && *name != ',') {
        name++;
    }
    stay_text(&m, stay, sizeof(stay));
    if (goes != 0 && memory.out_buffers == memory.buffers) {
        snprintf(rings, sizeof(rings), ", in two rings of %u", memory.buffers);
    } else if (goes != 0) {
        snprintf(rings, sizeof(rings), ", in rings of %u out and %u back",
                 memory.out_buffers, memory.buffers);
    }
    gh_log_line(o->log, GH_LOG_INFO,
                "offload%s: %u of %u groups go; %.1f MiB on the device%s in "
                "the place of %.1f, with %u microbatches in flight%s",
                name, goes, m.all, mib(goes != 0 ? memory.rings : 0), rings,
                mib(goes != 0 ? memory.without : 0), policy->in_flight, stay);
    say_groups(o, name, &m);
}

static double rate(double known)
{
    return known > 0.0 ? known : GH_LINK_RATE;
}

void gh_report_wait(const struct gh_offload *o, const struct gh_group *group,
                    double ns, double save_ns, const char *when)
{
    if (save_ns > ns / 2.0) {
        gh_log_line(o->log, GH_LOG_INFO,
                    "offload: %s, waits longest %s: at most %.3f ms at its "
                    "save, for the copy of what its buffer held: save it "
                    "later, commit what comes before it earlier, or raise "
                    "GRAPHHOOKS_OFFLOAD_BUFFERS",
                    gh_group_name(o, group->layer, group->module).text, when,
                    save_ns / 1e6);
    } else {
        gh_log_line(o->log, GH_LOG_INFO,
                    "offload: %s, waits longest %s: at most %.3f ms at its "
                    "load, for its copy back",
                    gh_group_name(o, group->layer, group->module).text, when,
                    (ns - save_ns) / 1e6);
    }
}

static void say_forecast(const struct gh_offload *o,
                         const struct gh_profile *profile)
{
    const struct gh_forecast *f = &o->forecast;
    const bool compared = profile->slowdown >= 0.0;

    if (f->without_ns > 0.0) {
        gh_log_line(o->log, GH_LOG_INFO,
                    "offload: the link has %.1f GB/s out and %.1f back%s; "
                    "beside copies the compute takes %.2f %% longer%s",
                    rate(profile->out_rate) / 1000.0,
                    rate(profile->back_rate) / 1000.0,
                    profile->n_marks != 0 ? ", measured" : "",
                    100.0 * (compared ? profile->slowdown : GH_COPY_SLOWDOWN),
                    compared ? ", measured" : ", as elsewhere");
        gh_log_line(o->log, GH_LOG_INFO,
                    "offload: foreseen: %.4f times the step without, %u waits "
                    "of %.3f ms in all beside %.3f ms of copies",
                    f->with_ns / f->without_ns, f->stalls, f->stalled_ns / 1e6,
                    f->copy_ns / 1e6);
    }
    if (f->worst_ns > 0.0) {
        gh_report_wait(o, o->table.groups[f->worst], f->worst_ns,
                       f->worst_save_ns, "as foreseen");
    }
}

static void say_node(const struct gh_offload *o)
{
    const struct gh_pinned *pinned = &o->pinned;

    if (pinned->node == GH_NUMA_UNKNOWN) {
        gh_log_line(o->log, GH_LOG_DEBUG,
                    "offload: pinned memory is wherever the kernel takes it: "
                    "the machine does not say which is near the device");
    } else if (pinned->refused != 0) {
        gh_log_line(o->log, GH_LOG_DEBUG,
                    "offload: pinned memory is wherever the kernel takes it, "
                    "which refuses to prefer node %d: %s",
                    pinned->node, strerror(pinned->refused));
    } else {
        gh_log_line(o->log, GH_LOG_DEBUG,
                    "offload: pinned memory is on node %d, near the device",
                    pinned->node);
    }
}

void gh_report_decision(struct gh_offload *o, const struct gh_policy *policy,
                        const struct gh_profile *profile)
{
    for (uint32_t g = 0; g < profile->n_groups; g++) {
        const uint32_t module = profile->groups[g].module;
        const struct gh_policy_memory memory =
            gh_policy_weigh(policy, profile, module);
        bool said = profile->groups[g].fate == GH_FATE_NOT_ASKED;

        for (uint32_t before = 0; before < g && !said; before++) {
            said = profile->groups[before].module == module;
        }
        if (said) {
            continue;
        }
        if (memory.without > memory.rings) {
            o->stats.saved_bytes += memory.without - memory.rings;
        }
        if (o->log->level >= GH_LOG_INFO) {
            say_module(o, policy, profile, module);
        }
    }
    say_what_stays(o, policy, profile);
    say_forecast(o, profile);
    say_node(o);
}

void gh_report_end(const struct gh_offload *o, const gh_offload_stats *s)
{
    char hidden[120] = "";

    if (o->log->level < GH_LOG_INFO || s->out_copies == 0) {
        return;
    }
    if (s->timed_ns != 0) {
        const double share = (double)s->stalled_ns / (double)s->timed_ns;

        snprintf(hidden, sizeof(hidden),
                 "; of one step's copies at least %.1f %% ran beside the "
                 "compute, %u waits",
                 share < 1.0 ? 100.0 * (1.0 - share) : 0.0, s->stalls);
    }
    gh_log_line(o->log, GH_LOG_INFO,
                "offload: %u of %u groups went: %.1f MiB out in %llu copies, "
                "%.1f back in %llu, %llu of them late; %.1f MiB of device "
                "memory saved, %.1f of pinned memory%s",
                s->groups_offloaded, s->groups, mib(s->out_bytes),
                (unsigned long long)s->out_copies, mib(s->back_bytes),
                (unsigned long long)s->back_copies, (unsigned long long)s->late,
                mib(s->saved_bytes), mib(s->pinned_peak), hidden);
}
