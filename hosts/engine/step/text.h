/*
 * text.h - the text to train on, and the samples drawn from it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_TEXT_H
#define ENGINE_TEXT_H

#include "model/model.h"

struct text {
    unsigned char *bytes;
    size_t n;
};

/* Reads a file that must hold more than `least` bytes.  Returns 0; or -1 and in
 * error what is wrong with the file, to be read after its name. */
int text_load(struct text *text, const char *path, size_t least, char *error,
              size_t error_bytes);
void text_free(struct text *text);

/* Draws a microbatch: `batch` sequences, and each byte's successor.  It depends
 * only on the text, the seed and the position in training. */
void text_sample(const struct text *text, const struct config *config, int step,
                 int microbatch, int *tokens, int *targets);

/* How a microbatch's rows are filled with documents. */
struct packing {
    int n;
    int *lengths, *padded; /* config.documents of them */
    int *offsets;          /* config_offsets(): of the padded ones */
};

/* Draws a microbatch of documents, which end with a blank line.  A row takes
 * whole documents while it has room, and the rest of it is padding, with
 * targets of -1.  The padding of the last row belongs to no document.  If ranks
 * share sequences, each document is padded so that they can share it
 * equally. */
void text_pack(const struct text *text, const struct config *config, int step,
               int microbatch, int *tokens, int *targets,
               struct packing *packing);

/* Makes each sequence one document, as text_sample() draws them. */
void text_pack_whole(const struct text *text, const struct config *config,
                     int step, int microbatch, int *tokens, int *targets,
                     struct packing *packing);

/* How long, with padding, the document is that text_pack() puts first in a
 * row. */
int text_first_length(const struct text *text, const struct config *config,
                      int step, int microbatch, int row);

#endif
