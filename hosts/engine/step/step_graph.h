/*
 * step_graph.h - a whole step as one graph, captured by the engine itself.
 *
 * What comes before the launch (tokens) and after it (losses) is at fixed
 * addresses, and the host issues the same work in every step.  So one graph
 * serves all steps with the same number of microbatches.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_STEP_GRAPH_H
#define ENGINE_STEP_GRAPH_H

#include "step/trainer.h"

struct step_graphs {
    struct trainer *trainer;
    CUgraphExec *execs; /* by count */
    CUstream stream;    /* of the capture, which cannot be on the legacy
                           stream */
};

int step_graphs_init(struct step_graphs *graphs, struct trainer *trainer);
void step_graphs_free(struct step_graphs *graphs);

/* Launches the step on stream 0.  A step with a new count is captured first. */
int step_graphs_launch(struct step_graphs *graphs, int count);

#endif
