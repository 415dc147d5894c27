/*
 * reference.h - the model again, plainly, in double precision.
 *
 * Written from the description and not from the kernels: loops over tokens,
 * no tiles, no backward at all.  Gradients come from differences of the loss,
 * so they owe nothing to the engine's derivation.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TESTS_ENGINE_REFERENCE_H
#define TESTS_ENGINE_REFERENCE_H

#include "model/model.h"

/* Mean cross entropy of batch * seq tokens. */
double reference_loss(const struct model *layout, const double *w,
                      const int *tokens, const int *targets);

/* d loss / d w[i] by a central difference. */
double reference_slope(const struct model *layout, double *w, size_t i,
                       const int *tokens, const int *targets);

#endif
