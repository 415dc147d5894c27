/*
 * policy.h - which groups go to the host's memory: a pure function of the
 * profile.
 *
 * Megatron-Core's fine-grained offload has published these rules, for groups
 * in the order of their commits.  First the last group of each module stays,
 * because the backward needs it at once.  Then so many bytes stay, the
 * earliest groups first.  Of the rest the latest stay, because the memory of
 * the earliest is free for longest.  `hides` replaces this last rule: it keeps
 * the groups that a simulation of the step would wait for.  Before it gives a
 * group up it tries one more buffer on the way out, which stays if more memory
 * is freed with it.  What goes then has
 * to fit into the pinned memory, and its rings have to free something.  Ranks
 * with the same profile decide the same.  lib/offload asks with what it has measured,
 * and `graphhooks plan` with what a description says.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_PLAN_POLICY_H
#define GH_PLAN_POLICY_H

#include <graphhooks/base.h>

#include <stdbool.h>

/* Why a group does not go to the host. */
enum gh_fate {
    GH_FATE_GOES = 0,
    GH_FATE_NOT_ASKED, /* its module is not one of those named */
    GH_FATE_PLAN,      /* the plan switches it off */
    GH_FATE_SMALL,     /* all of its tensors are below the least size */
    GH_FATE_MARGIN,    /* the backward needs it at once */
    GH_FATE_KEEP,      /* within keep_bytes */
    GH_FATE_FRACTION,
    GH_FATE_NO_GAIN,   /* its rings would free nothing */
    GH_FATE_NEW,       /* it was not in the first step */
    GH_FATE_NO_MEMORY, /* for its rings */
    GH_FATE_AUTO,      /* its copies would be waited for */
    GH_FATE_ELSEWHERE, /* the host itself moves it */
    GH_FATE_EXCHANGE,  /* its copies would slow exchanges of tokens */
    GH_FATE_POOL,      /* no pinned memory for it */
    GH_FATE_EARLY      /* as GH_FATE_AUTO, but not if it was saved just before
                          its commit */
};
#define GH_FATES 15
/* "needed at once by the backward" */
const char *gh_fate_text(enum gh_fate fate);
/* "use a larger fraction"; NULL: nothing changes it */
const char *gh_fate_remedy(enum gh_fate fate);

struct gh_policy {
    double fraction;
    bool hides; /* fraction=auto */
    uint64_t keep_bytes;
    uint64_t pool_bytes; /* of pinned memory; 0: no limit */
    uint32_t buffers;
    uint32_t in_flight; /* microbatches */
    uint32_t prefetch;  /* groups that come back ahead; 0: as many as the rings
                           hold */
    uint32_t most_out;  /* the most copies out under way in a class; 0: no
                           limit */
};

/* Groups that share two rings. */
struct gh_policy_class {
    uint64_t bytes;
    uint32_t in_pass; /* the most that one pass saves */
    bool stays;       /* decided: its rings would free nothing */
    bool widened;     /* decided: its ring on the way out has one more buffer */
};

struct gh_policy_group {
    uint32_t layer, module, chunk;
    uint32_t size_class; /* an index */
    uint64_t bytes;      /* of its tensors that go */
    bool late;           /* it is saved just before its commit */
    bool elsewhere;      /* the host moves it, and it has no ring */
    enum gh_fate fate;
    uint64_t gap_ns;          /* from commit to load; 0: unknown */
    uint64_t out_ns, back_ns; /* of its copies; 0: by the rates */
};

/* What the compute does with a group.  The times leave out how long it waited
 * for copies. */
enum gh_mark_verb { GH_MARK_SAVE, GH_MARK_COMMIT, GH_MARK_LOAD, GH_MARK_RELEASE };
struct gh_mark {
    uint64_t at_ns;
    uint32_t group;  /* an index */
    uint32_t flight; /* a microbatch's number, from 0, in the order of saves */
    enum gh_mark_verb verb;
};

/* Bytes per microsecond if nothing is known of the link: half of PCIe 5. */
#define GH_LINK_RATE 25000.0
/* How much slower the compute is while a copy runs.  On an H200, matrix
 * products were 0.0011 slower with copies beside them for 0.4 of the time. */
#define GH_COPY_SLOWDOWN 0.003
/* How much longer `hides` lets a step take.  A step with a forecast of 1.009
 * took 1.012 on an H200, so half of one per cent in the forecast keeps the real
 * step below one per cent. */
#define GH_HIDDEN_WITHIN 0.005

struct gh_profile {
    struct gh_policy_group *groups; /* in the order of commits */
    uint32_t n_groups;
    struct gh_policy_class *classes;
    uint32_t n_classes;
    const struct gh_mark *marks; /* in order of time; NULL: made of the gaps */
    uint32_t n_marks;
    double out_rate, back_rate; /* bytes per microsecond; 0: GH_LINK_RATE */
    double slowdown;            /* below 0: GH_COPY_SLOWDOWN */
};

/* What is expected if the groups go; 0 if the times are not known. */
struct gh_forecast {
    double without_ns, with_ns; /* the step's part that the marks cover */
    double copy_ns, stalled_ns;
    uint32_t stalls;
    uint32_t prefetch; /* the chosen one; 0: all that the rings hold */
    uint32_t worst;    /* the group that is waited for longest */
    double worst_ns, worst_save_ns; /* in all, and at its saves */
};

/* The compute between two points.  Intervals with the same `work` did the same
 * work; `beside` is the share of it, 0 to 1, that had a copy beside it. */
struct gh_interval {
    uint64_t work;
    double ns, beside;
};
/* How much slower the same work is while a copy runs.  Below 0: it did not run
 * often enough with copies and without them to tell. */
double gh_policy_slowdown(const struct gh_interval *intervals, uint32_t n);

/* Sets `fate` of the groups that still go. */
gh_status gh_policy_decide(const struct gh_policy *policy,
                           struct gh_profile *profile,
                           struct gh_forecast *forecast, gh_error *err);

/* How many buffers the ring of a class has on the way back, and out. */
uint32_t gh_policy_ring_buffers(const struct gh_policy *policy,
                                const struct gh_policy_class *size_class);
uint32_t gh_policy_ring_buffers_out(const struct gh_policy *policy,
                                    const struct gh_policy_class *size_class);
/* How long the copies of a group take. */
double gh_policy_out_ns(const struct gh_profile *profile, uint32_t group);
double gh_policy_back_ns(const struct gh_profile *profile, uint32_t group);

/* What the groups of a module that go need on the device. */
struct gh_policy_memory {
    uint32_t groups;  /* that go */
    uint64_t without; /* bytes in all flights if they stayed */
    uint64_t rings;   /* bytes of the rings instead */
    uint32_t buffers, out_buffers; /* buffers of its largest rings */
};
struct gh_policy_memory gh_policy_weigh(const struct gh_policy *policy,
                                        const struct gh_profile *profile,
                                        uint32_t module);

#endif
