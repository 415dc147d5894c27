/*
 * embedding_head.c - see embedding_head.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "step/embedding_head.h"

#include <string.h>

static int *tokens_of(const struct trainer *trainer, int microbatch)
{
    return trainer->tokens + (size_t)microbatch *
                                 (size_t)trainer_columns(trainer) *
                                 (size_t)config_rows(&trainer->model.config);
}

static int *targets_of(const struct trainer *trainer, int microbatch)
{
    return tokens_of(trainer, microbatch) + config_rows(&trainer->model.config);
}

/* Returns NULL if tokens are in order. */
static int *positions_of(const struct trainer *trainer, int microbatch)
{
    return trainer->options->n_cp == 0
               ? NULL
               : tokens_of(trainer, microbatch) +
                     2 * config_rows(&trainer->model.config);
}

struct work work_of(const struct trainer *trainer, int microbatch)
{
    return (struct work){
        .queue = { .dev = trainer->dev,
                   .stream = stream_of(trainer, microbatch) },
        .model = model_of(trainer, microbatch),
        .set = trainer->chunk->flights[microbatch].set,
        .offsets = trainer->chunk->flights[microbatch].offsets,
        .comm = comm_of(trainer, microbatch),
        .ep = ranks_ep(trainer->options->ranks),
        .ring = trainer->options->cp_ring,
        .stashes = trainer->stashes,
        .positions = positions_of(trainer, microbatch),
    };
}

void embedding_head_begin_step(const struct trainer *trainer, int count)
{
    const int ranks = ranks_count(trainer->options->ranks);

    for (int i = 0; i < trainer->n_shapes; i++) {
        const int rows = config_rows(&trainer->shapes[i].config);
        const float scale = 1.0f / ((float)count * (float)rows * (float)ranks);
        unsigned bits;

        memcpy(&bits, &scale, sizeof(bits));
        DEVICE_CALL(trainer->dev, cuMemsetD32Async,
                    device_address(trainer->scales + i), bits, 1,
                    trainer->streams[0]);
    }
}

void embedding_head_before_forward(const struct trainer *trainer,
                                   int microbatch)
{
    const struct work work = work_of(trainer, microbatch);

    embed_forward(&work, tokens_of(trainer, microbatch),
                  row_block(trainer, trainer->chunk->x, microbatch));
}

void embedding_head_after_forward(const struct trainer *trainer, int microbatch)
{
    const struct work work = work_of(trainer, microbatch);

    head_forward(&work, trainer->chunk->flights[microbatch].out,
                 targets_of(trainer, microbatch),
                 trainer->scales + trainer->shape_of[microbatch],
                 trainer->losses + microbatch);
}

void embedding_head_before_backward(const struct trainer *trainer,
                                    int microbatch)
{
    const struct work work = work_of(trainer, microbatch);

    head_backward(&work, trainer->chunk->flights[microbatch].out,
                  row_block(trainer, trainer->chunk->d_head, microbatch));
}

void embedding_head_after_backward(const struct trainer *trainer,
                                   int microbatch, const float *dx)
{
    const struct work work = work_of(trainer, microbatch);

    embed_backward(&work, tokens_of(trainer, microbatch), dx);
}
