/*
 * text.h - the text that is trained on, and the samples drawn from it.
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

/* Reads a file that must hold more than `least` bytes.  0; or -1 with what is
 * wrong with it in error, to be read after its name. */
int text_load(struct text *text, const char *path, size_t least, char *error,
              size_t error_bytes);
void text_free(struct text *text);

/* A microbatch: batch sequences, and each byte's successor.  A pure function
 * of the text, the seed and the position in training. */
void text_sample(const struct text *text, const struct config *config, int step,
                 int microbatch, int *tokens, int *targets);

/* How a microbatch's rows are filled with documents. */
struct packing {
    int n;
    int *lengths, *padded; /* config.documents of them */
    int *offsets;          /* config_offsets(): of the padded ones */
};

/* The same of documents, which a blank line ends: whole ones while a row of the
 * microbatch has room, and what is left of it is padding, whose targets are
 * -1.  The padding of the last row belongs to no document.  Where ranks share
 * sequences each document is padded to a number that they can share alike. */
void text_pack(const struct text *text, const struct config *config, int step,
               int microbatch, int *tokens, int *targets,
               struct packing *packing);

/* Each sequence is one document, as text_sample() has them. */
void text_pack_whole(const struct text *text, const struct config *config,
                     int step, int microbatch, int *tokens, int *targets,
                     struct packing *packing);

/* How long the document is that text_pack() begins a row with, padded. */
int text_first_length(const struct text *text, const struct config *config,
                      int step, int microbatch, int row);

#endif
