/*
 * foresee.h - what will go to the host, before anything has run.
 *
 * The groups of a plan are settled by lib/plan/policy.c, as a session settles
 * those of its profile.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BIN_FORESEE_H
#define BIN_FORESEE_H

#include "plan/kinds.h"
#include "plan/plan.h"
#include "plan/policy.h"

/* What is known of a layer, for one microbatch. */
struct layer_cost {
    uint64_t bytes[GH_MODULE_COUNT]; /* by bit of GH_MODULE_*; 0: unknown */
    uint64_t forward_ns;             /* its backward takes twice as long */
};

struct foresight {
    struct gh_policy policy;
    double link_rate;                  /* bytes in a microsecond; 0: unknown */
    const struct layer_cost *costs; /* of each layer */
};

/* On standard output; nothing where no layer has a group. */
void foresee_print(const struct gh_plan *plan,
                   const struct foresight *foresight);
/* What the rings will take; 0: nothing goes, or the bytes of a group are not
 * known. */
uint64_t foresee_rings(const struct gh_plan *plan,
                       const struct foresight *foresight);
/* The same as members of an object that is begun, each with a comma behind
 * it. */
void foresee_print_json(const struct gh_plan *plan,
                        const struct foresight *foresight);

#endif
