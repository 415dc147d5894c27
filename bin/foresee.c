/*
 * foresee.c - see foresee.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "foresee.h"

#include <stdio.h>
#include <stdlib.h>

/* What is settled. */
struct foreseen {
    const struct foresight *foresight;
    struct gh_profile profile;
    struct gh_policy_group *groups;
    struct gh_policy_class *classes;
    struct gh_forecast forecast;
};

static void free_foreseen(struct foreseen *f)
{
    free(f->groups);
    free(f->classes);
}

/* ---- groups of a plan ------------------------------------------------------- */

/* In the order in which a layer commits them. */
static uint32_t count_groups(const struct gh_plan *plan)
{
    uint32_t n = 0;

    for (uint32_t l = 0; l < plan->n_layers; l++) {
        n += (uint32_t)__builtin_popcount(plan->layers[l].offload &
                                          GH_MODULES_OF_TENSORS);
    }
    return n;
}

static uint32_t class_of(struct foreseen *f, uint32_t module, uint64_t bytes)
{
    struct gh_profile *p = &f->profile;

    for (uint32_t g = 0; g < p->n_groups; g++) {
        if (f->groups[g].module == module && f->groups[g].bytes == bytes) {
            return f->groups[g].size_class;
        }
    }
    f->classes[p->n_classes].bytes = bytes;
    return p->n_classes++;
}

static void add_group(struct foreseen *f, const struct gh_plan *plan,
                      uint32_t layer, uint32_t bit)
{
    const uint32_t module = UINT32_C(1) << bit;
    const struct gh_layer_plan *settled = &plan->layer_plans[layer];
    /* Groups of no bytes are counted, each as large as the others. */
    const uint64_t bytes = f->foresight->costs[layer].bytes[bit];
    const uint32_t size_class = class_of(f, module, bytes);

    f->groups[f->profile.n_groups++] = (struct gh_policy_group){
        .layer = layer,
        .module = module,
        .chunk = plan->layers[layer].chunk,
        .size_class = size_class,
        .bytes = bytes,
        .fate = (settled->offload_off & module) != 0 ? GH_FATE_PLAN
                                                     : GH_FATE_GOES,
    };
}

/* The segment in which a layer begins. */
static uint32_t segment_of(const struct gh_plan *plan, uint32_t layer)
{
    uint32_t s = 0;

    while (s + 1 < plan->n_segments && plan->segments[s].last_layer < layer) {
        s++;
    }
    return s;
}

/* The most groups of a class that one pass saves. */
static void count_in_passes(struct foreseen *f, const struct gh_plan *plan)
{
    struct gh_profile *p = &f->profile;

    for (uint32_t g = 0; g < p->n_groups; g++) {
        struct gh_policy_class *c = &f->classes[f->groups[g].size_class];
        const uint32_t segment = segment_of(plan, f->groups[g].layer);
        uint32_t n = 0;

        for (uint32_t other = g; other < p->n_groups; other++) {
            if (segment_of(plan, f->groups[other].layer) != segment) {
                break;
            }
            n += f->groups[other].fate == GH_FATE_GOES &&
                 f->groups[other].size_class == f->groups[g].size_class;
        }
        c->in_pass = n > c->in_pass ? n : c->in_pass;
    }
}

/* From the end of a layer's forward to the beginning of its backward. */
static void find_gaps(struct foreseen *f, const struct gh_plan *plan)
{
    const struct layer_cost *costs = f->foresight->costs;

    for (uint32_t g = 0; g < f->profile.n_groups; g++) {
        const uint32_t layer = f->groups[g].layer;
        uint64_t gap = 1;

        for (uint32_t l = layer + 1; l < plan->n_layers &&
                                     plan->layers[l].chunk ==
                                         f->groups[g].chunk;
             l++) {
            gap += 3 * costs[l].forward_ns;
        }
        f->groups[g].gap_ns = costs[layer].forward_ns != 0 ? gap : 0;
    }
}

static bool foresee(const struct gh_plan *plan,
                    const struct foresight *foresight, struct foreseen *f)
{
    const uint32_t n = count_groups(plan);
    gh_status status;

    *f = (struct foreseen){
        .foresight = foresight,
        .groups = calloc(n + (size_t)1, sizeof(*f->groups)),
        .classes = calloc(n + (size_t)1, sizeof(*f->classes)),
    };
    if (f->groups == NULL || f->classes == NULL) {
        free_foreseen(f);
        return false;
    }
    f->profile = (struct gh_profile){
        .groups = f->groups,
        .classes = f->classes,
        .out_rate = f->foresight->link_rate,
        .back_rate = f->foresight->link_rate,
        .slowdown = -1.0,
    };
    for (uint32_t l = 0; l < plan->n_layers; l++) {
        for (uint32_t bit = 0; bit < GH_MODULE_COUNT; bit++) {
            if ((plan->layers[l].offload & GH_MODULES_OF_TENSORS &
                 UINT32_C(1) << bit) != 0) {
                add_group(f, plan, l, bit);
            }
        }
    }
    count_in_passes(f, plan);
    find_gaps(f, plan);
    status = gh_policy_decide(&f->foresight->policy, &f->profile, &f->forecast,
                              NULL);
    if (status != GH_OK) {
        free_foreseen(f);
    }
    return status == GH_OK;
}

/* ---- what is written ------------------------------------------------------------ */

/* A module of all layers. */
struct row {
    const char *name;
    uint32_t module, n[GH_FATES], all;
    bool weighed; /* the bytes of all its groups are known */
    uint64_t most;
    struct gh_policy_memory memory;
    uint32_t rings; /* buffers of all of its rings, of groups that go */
};

static struct row look_at(const struct foreseen *f, uint32_t bit)
{
    const struct gh_policy *policy = &f->foresight->policy;
    struct row row = { .name = gh_module_names[bit],
                       .module = UINT32_C(1) << bit,
                       .weighed = true };

    for (uint32_t g = 0; g < f->profile.n_groups; g++) {
        const struct gh_policy_group *group = &f->groups[g];

        if (group->module == row.module) {
            row.all++;
            row.n[group->fate]++;
            row.weighed = row.weighed && group->bytes != 0;
            row.most = group->bytes > row.most ? group->bytes : row.most;
        }
    }
    row.memory = gh_policy_weigh(policy, &f->profile, row.module);
    for (uint32_t c = 0; c < f->profile.n_classes; c++) {
        for (uint32_t g = 0; g < f->profile.n_groups; g++) {
            if (f->groups[g].fate == GH_FATE_GOES &&
                f->groups[g].module == row.module &&
                f->groups[g].size_class == c) {
                row.rings += gh_policy_ring_buffers(policy, &f->classes[c]) +
                             gh_policy_ring_buffers_out(policy, &f->classes[c]);
                break;
            }
        }
    }
    return row;
}

static double mib(uint64_t bytes)
{
    return (double)bytes / 1048576.0;
}

static void print_row(const struct foreseen *f, const struct row *row)
{
    const uint32_t in_flight = f->foresight->policy.in_flight;

    printf("  %s: %u of %u groups go", row->name, row->n[GH_FATE_GOES],
           row->all);
    if (row->n[GH_FATE_GOES] != 0 && row->weighed) {
        printf(", of up to %.1f MiB; %.1f MiB on the device, in ",
               mib(row->most), mib(row->memory.rings));
        if (row->memory.out_buffers == row->memory.buffers) {
            printf("two rings of %u", row->memory.buffers);
        } else {
            printf("rings of %u out and %u back", row->memory.out_buffers,
                   row->memory.buffers);
        }
        printf(", in the place of %.1f", mib(row->memory.without));
    } else if (row->n[GH_FATE_GOES] != 0) {
        printf("; %u buffers on the device in the place of %u groups",
               row->rings, row->n[GH_FATE_GOES] * in_flight);
    }
    for (int fate = 1; fate < GH_FATES; fate++) {
        if (row->n[fate] != 0) {
            printf("; %u stay (%s)", row->n[fate], gh_fate_text(fate));
        }
    }
    printf("\n");
}

static void print_head(const struct foreseen *f)
{
    const struct gh_policy *policy = &f->foresight->policy;

    printf("offload with %u microbatch%s in flight, ", policy->in_flight,
           policy->in_flight == 1 ? "" : "es");
    if (policy->hides) {
        printf("those that hide%s:\n", f->forecast.without_ns > 0.0
                                           ? ""
                                           : ", which times would tell");
    } else {
        printf("a fraction of %g:\n", policy->fraction);
    }
}

void foresee_print(const struct gh_plan *plan,
                   const struct foresight *foresight)
{
    struct foreseen f;

    if (count_groups(plan) == 0 || !foresee(plan, foresight, &f)) {
        return;
    }
    print_head(&f);
    for (uint32_t bit = 0; bit < GH_MODULE_COUNT; bit++) {
        const struct row row = look_at(&f, bit);

        if (row.all != 0) {
            print_row(&f, &row);
        }
    }
    if (f.forecast.without_ns > 0.0) {
        printf("  foreseen: %.4f times the step without, %u waits of %.3f ms "
               "in all beside %.3f ms of copies\n",
               f.forecast.with_ns / f.forecast.without_ns, f.forecast.stalls,
               f.forecast.stalled_ns / 1e6, f.forecast.copy_ns / 1e6);
    }
    free_foreseen(&f);
}

uint64_t foresee_rings(const struct gh_plan *plan,
                       const struct foresight *foresight)
{
    uint64_t bytes = 0;
    struct foreseen f;

    if (count_groups(plan) == 0 || !foresee(plan, foresight, &f)) {
        return 0;
    }
    for (uint32_t bit = 0; bit < GH_MODULE_COUNT; bit++) {
        const struct row row = look_at(&f, bit);

        if (row.n[GH_FATE_GOES] != 0 && !row.weighed) {
            bytes = 0;
            break;
        }
        bytes += row.n[GH_FATE_GOES] != 0 ? row.memory.rings : 0;
    }
    free_foreseen(&f);
    return bytes;
}

static void print_json_row(const struct foreseen *f, const struct row *row)
{
    const char *comma = "";

    printf("\n{\"module\":\"%s\",\"groups\":%u,\"go\":%u,\"buffers\":%u,",
           row->name, row->all, row->n[GH_FATE_GOES], row->rings);
    if (row->weighed) {
        printf("\"ring_bytes\":%llu,\"in_place_of_bytes\":%llu,",
               (unsigned long long)row->memory.rings,
               (unsigned long long)row->memory.without);
    }
    printf("\"stay\":{");
    for (int fate = 1; fate < GH_FATES; fate++) {
        if (row->n[fate] != 0) {
            printf("%s\"%s\":%u", comma, gh_fate_text(fate), row->n[fate]);
            comma = ",";
        }
    }
    printf("},\"layers\":[");
    comma = "";
    for (uint32_t g = 0; g < f->profile.n_groups; g++) {
        if (f->groups[g].module == row->module &&
            f->groups[g].fate == GH_FATE_GOES) {
            printf("%s%u", comma, f->groups[g].layer);
            comma = ",";
        }
    }
    printf("]}");
}

static void print_json_forecast(const struct foreseen *f)
{
    const struct gh_forecast *forecast = &f->forecast;

    printf("\n],\"foreseen\":{\"in_flight\":%u,",
           f->foresight->policy.in_flight);
    if (f->foresight->policy.hides) {
        printf("\"fraction\":\"auto\"");
    } else {
        printf("\"fraction\":%g", f->foresight->policy.fraction);
    }
    if (forecast->without_ns > 0.0) {
        printf(",\"without_ns\":%.0f,\"with_ns\":%.0f,\"copy_ns\":%.0f,"
               "\"stalled_ns\":%.0f,\"stalls\":%u",
               forecast->without_ns, forecast->with_ns, forecast->copy_ns,
               forecast->stalled_ns, forecast->stalls);
    }
    printf("},\n");
}

void foresee_print_json(const struct gh_plan *plan,
                        const struct foresight *foresight)
{
    const char *comma = "";
    struct foreseen f;

    if (count_groups(plan) == 0 || !foresee(plan, foresight, &f)) {
        return;
    }
    printf("\"groups\":[");
    for (uint32_t bit = 0; bit < GH_MODULE_COUNT; bit++) {
        const struct row row = look_at(&f, bit);

        if (row.all != 0) {
            printf("%s", comma);
            print_json_row(&f, &row);
            comma = ",";
        }
    }
    print_json_forecast(&f);
    free_foreseen(&f);
}
