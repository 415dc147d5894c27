/*
 * parts.h - the passes of a model, as kernel launches on a queue.
 *
 * Parts are numbered as in the model's list, and a graph may hold any run of
 * them.  Everything here reads only its arguments, the weights and the set,
 * and writes only the set and the gradients of the weights.  So a pass that is
 * issued again does the same work.  Failures stick to the device.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_PARTS_H
#define ENGINE_PARTS_H

#include "model/buffers.h"

#include "device/exchange.h"

/* Called around each part while its kernels are issued.  Any result but 0 stops
 * the run. */
struct part_hooks {
    int (*before)(void *user, const struct set *set, int part, bool forward);
    int (*after)(void *user, const struct set *set, int part, bool forward);
    void *user;
};

struct work {
    struct queue queue;
    const struct model *model;
    const struct set *set;
    const struct part_hooks *hooks; /* NULL: none */
    const int *offsets; /* device: config_offsets() numbers, for the first part;
                           NULL: no documents */
    const struct comm *comm; /* of the ranks that share its sequences; NULL:
                                none do */
    struct exchange *ep; /* with the ranks that divide the experts; NULL: none
                            do */
    bool stashes;        /* rows of experts go to model.stash and back */
    bool whole; /* the work is on all ranks' tokens, in order */
    bool ring; /* keys come around a ring, not all at once */
    const int *positions; /* device: each token's position in its sequence, for
                             the embedding; NULL: in order */
};

/* Where each token's document begins; NULL: each sequence is one document. */
static inline const int *work_starts(const struct work *work)
{
    return work->whole ? work->set->cp.all_starts : work->set->starts;
}

/* Each token's place in its sequence, if other ranks have some of it; NULL: in
 * order. */
static inline const int *work_places(const struct work *work)
{
    return config_cp(&work->model->config) > 1 ? work->set->cp.places
                                               : NULL;
}

static inline int work_before(const struct work *work, int part, bool forward)
{
    return work->hooks == NULL
               ? 0
               : work->hooks->before(work->hooks->user, work->set, part,
                                     forward);
}

static inline int work_after(const struct work *work, int part, bool forward)
{
    return work->hooks == NULL
               ? 0
               : work->hooks->after(work->hooks->user, work->set, part,
                                    forward);
}

/* x = token embedding + position embedding of the tokens. */
void embed_forward(const struct work *work, const int *tokens, float *x);
void embed_backward(const struct work *work, const int *tokens,
                    const float *dx);

/* Runs parts first..last; x is the input of the first.  The result is in
 * set_part_out(set, last). */
void parts_forward(const struct work *work, int first, int last,
                   const float *x);

/* The halves of a backward: the gradients of what the parts read, and those of
 * their weights.  If other parts run between the two, the set must keep what
 * the second half reads (model.delay_wgrad). */
enum halves {
    HALF_BOTH,
    HALF_DGRAD,
    HALF_WGRAD
};

/* Runs parts last..first backward.  x is what forward was given, and dy the
 * gradient of the last part's output.  The result is in set_part_gradient(set,
 * first). */
void parts_backward(const struct work *work, int first, int last,
                    enum halves halves, const float *x, const float *dy);

/* Final norm, logits, loss.  *scale, on the device, multiplies the gradient;
 * the mean loss over the microbatch goes to *loss. */
void head_forward(const struct work *work, const float *x, const int *targets,
                  const float *scale, float *loss);
void head_backward(const struct work *work, const float *x, float *dx);

enum gemm_form {
    GEMM_NN,
    GEMM_NT,
    GEMM_TN
};

/* Chooses a tile and launches.  Fills in the arguments that follow from the
 * form. */
void gemm(const struct queue *queue, enum gemm_form form,
          struct gemm_args args);

#endif
