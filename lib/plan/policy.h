/*
 * policy.h - which groups go to the host's memory: a pure function of the
 * profile.
 *
 * The rules are those that Megatron-Core's fine-grained offload has published,
 * on groups in the order of their commits: the last one of each module stays,
 * as the backward needs it at once; so many bytes stay, the earliest groups
 * first; of the rest the latest stay, as the memory of the earliest is free for
 * longest.  In the place of that last rule `hides` keeps what a simulation of
 * the step says would be waited for.  Ranks with the same profile settle the
 * same.  lib/offload asks with what it has measured, and `graphhooks plan`
 * with what a description says.
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
    GH_FATE_NOT_ASKED, /* its module is none of those that were named */
    GH_FATE_PLAN,      /* the plan switches it off */
    GH_FATE_SMALL,     /* all of its tensors are below the least size */
    GH_FATE_MARGIN,    /* the backward needs it at once */
    GH_FATE_KEEP,      /* keep_bytes */
    GH_FATE_FRACTION,
    GH_FATE_NO_GAIN,   /* the rings would be no smaller than what they replace */
    GH_FATE_NEW,       /* it was not there in the first step */
    GH_FATE_NO_MEMORY, /* for its rings */
    GH_FATE_AUTO,      /* its copies would be waited for */
    GH_FATE_ELSEWHERE, /* it goes, and the host moves it */
    GH_FATE_EXCHANGE   /* its copies would slow exchanges of tokens */
};
#define GH_FATES 13
/* "needed at once by the backward" */
const char *gh_fate_text(enum gh_fate fate);

struct gh_policy {
    double fraction;
    bool hides; /* fraction=auto */
    uint64_t keep_bytes;
    uint32_t buffers;
    uint32_t in_flight; /* microbatches */
    uint32_t prefetch;  /* groups that come back ahead; 0: all that the rings
                           have room for */
    uint32_t most_out;  /* copies out of a class that are under way; 0: no
                           limit */
};

/* Groups that share two rings. */
struct gh_policy_class {
    uint64_t bytes;
    uint32_t in_pass; /* most of them that one pass saves */
};

struct gh_policy_group {
    uint32_t layer, module, chunk;
    uint32_t size_class; /* an index */
    uint64_t bytes;      /* that go */
    enum gh_fate fate;
    uint64_t gap_ns;          /* from its commit to its load; 0: unknown */
    uint64_t out_ns, back_ns; /* its copies; 0: by the rates */
};

/* What the compute does with a group, without the time that it has waited for
 * copies. */
enum gh_mark_verb { GH_MARK_SAVE, GH_MARK_COMMIT, GH_MARK_LOAD, GH_MARK_RELEASE };
struct gh_mark {
    uint64_t at_ns;
    uint32_t group;  /* an index */
    uint32_t flight; /* of a microbatch: from 0, in the order of their saves */
    enum gh_mark_verb verb;
};

/* Bytes in a microsecond, where nothing is known of the link: half of what
 * PCIe 5 has. */
#define GH_LINK_RATE 25000.0
/* How much slower the compute is while a copy is under way: 0.0011 at a duty
 * of 0.4, measured on an H200 beside matrix products. */
#define GH_COPY_SLOWDOWN 0.003
/* What `hides` lets a step take longer.  A step that was foreseen at 1.009
 * took 1.012 on an H200, so that half of one per cent keeps one. */
#define GH_HIDDEN_WITHIN 0.005

struct gh_profile {
    struct gh_policy_group *groups; /* in the order of commits */
    uint32_t n_groups;
    const struct gh_policy_class *classes;
    uint32_t n_classes;
    const struct gh_mark *marks; /* in time; NULL: made of the gaps */
    uint32_t n_marks;
    double out_rate, back_rate; /* bytes in a microsecond; 0: GH_LINK_RATE */
    double slowdown;            /* below 0: GH_COPY_SLOWDOWN */
};

/* What is expected of the groups that go; 0 where times are not known. */
struct gh_forecast {
    double without_ns, with_ns; /* the step's part that the marks cover */
    double copy_ns, stalled_ns;
    uint32_t stalls;
    uint32_t prefetch; /* that was chosen; 0: all that the rings hold */
};

/* What the compute has done between two points, which `work` stands for; and
 * how much of it had a copy beside it, 0 to 1. */
struct gh_interval {
    uint64_t work;
    double ns, beside;
};
/* How much slower the same work is while a copy is under way; below 0: it has
 * not run with and without often enough to say. */
double gh_policy_slowdown(const struct gh_interval *intervals, uint32_t n);

/* Sets `fate` of those that go until now. */
gh_status gh_policy_settle(const struct gh_policy *policy,
                           struct gh_profile *profile,
                           struct gh_forecast *forecast, gh_error *err);

/* Buffers of each ring of a class. */
uint32_t gh_policy_places(const struct gh_policy *policy,
                          const struct gh_policy_class *size_class);
/* How long the copies of a group take. */
double gh_policy_out_ns(const struct gh_profile *profile, uint32_t group);
double gh_policy_back_ns(const struct gh_profile *profile, uint32_t group);

/* What the groups of a module that go need on the device. */
struct gh_policy_memory {
    uint32_t groups;  /* that go */
    uint64_t without; /* bytes, in all microbatches in flight */
    uint64_t rings;   /* bytes in their place */
    uint32_t places;  /* buffers of its largest ring */
};
struct gh_policy_memory gh_policy_weigh(const struct gh_policy *policy,
                                        const struct gh_profile *profile,
                                        uint32_t module);

#endif
