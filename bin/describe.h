/*
 * describe.h - a model's description in JSON; doc/scopes.md has the format.
 *
 * What is wrong is said with the place of the field, such as
 * "layers[3].features[0]".  Nothing is guessed: a field that is missing and
 * one that is too much are both refused.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BIN_DESCRIBE_H
#define BIN_DESCRIBE_H

#include "foresee.h"
#include "measured.h"
#include "memory.h"
#include "orders.h"
#include "pipeline.h"
#include "plan/plan.h"

#include <stdio.h>

#define DESCRIBE_MOST_LAYERS 1000000u

struct description {
    char *name;
    gh_model *model;
    struct gh_plan_options options; /* as far as they are in it */
    struct foresight foresight;  /* the same */
    struct measured measured;    /* that it has of a training */
    struct layer_cost *costs;    /* that it has, one of each layer */
    struct node_times *times;    /* one of each object in `layers` */
    const struct node_times **nodes; /* of each layer, one of those */
    struct slot_bytes slots;         /* that it has */
    struct memory_sizes memory;      /* the same */
};

/* GH_ERR_UNSUPPORTED in a command that was built without a JSON parser. */
gh_status describe_file(FILE *file, struct description *description,
                        gh_error *err);
gh_status describe_text(const char *text, size_t bytes,
                        struct description *description, gh_error *err);
void describe_free(struct description *description);

#endif
