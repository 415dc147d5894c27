/*
 * text.c - reads the text, and draws samples from it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "step/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TEXT_MOST = 1 << 30
};

static int grow(struct text *text, size_t *room)
{
    unsigned char *larger;

    *room = *room == 0 ? 1 << 16 : *room * 2;
    larger = realloc(text->bytes, *room);
    if (larger == NULL) {
        return -1;
    }
    text->bytes = larger;
    return 0;
}

/* Reads without asking for the size, because a pipe has none. */
static int read_all(struct text *text, FILE *file)
{
    size_t room = 0, got;

    do {
        if (text->n == room && grow(text, &room) != 0) {
            errno = ENOMEM;
            return -1;
        }
        got = fread(text->bytes + text->n, 1, room - text->n, file);
        text->n += got;
    } while (got > 0 && text->n < TEXT_MOST);
    return ferror(file) ? -1 : 0;
}

int text_load(struct text *text, const char *path, size_t least, char *error,
              size_t error_bytes)
{
    FILE *file;
    int result;

    memset(text, 0, sizeof(*text));
    file = fopen(path, "rb");
    if (file == NULL) {
        snprintf(error, error_bytes, "%s; give a text file", strerror(errno));
        return -1;
    }
    result = read_all(text, file);
    if (result != 0) {
        snprintf(error, error_bytes, "%s; give a text file", strerror(errno));
    }
    fclose(file);

    if (result == 0 && text->n <= least) {
        snprintf(error, error_bytes,
                 "it has %zu bytes, and --seq %zu needs at least %zu; give a "
                 "longer text or a smaller --seq",
                 text->n, least, least + 1);
        result = -1;
    }
    if (result != 0) {
        text_free(text);
    }
    return result;
}

void text_free(struct text *text)
{
    free(text->bytes);
    memset(text, 0, sizeof(*text));
}

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint64_t draw(const struct config *config, int step, int microbatch,
                     int row)
{
    const uint64_t position =
        (uint64_t)step << 32 | (uint64_t)microbatch << 16 | (uint64_t)row;

    return mix(mix(config->seed + 0x9e3779b97f4a7c15u) + position);
}

void text_sample(const struct text *text, const struct config *config, int step,
                 int microbatch, int *tokens, int *targets)
{
    const int n = config_keys(config);

    for (int b = 0; b < config->batch; b++) {
        const uint64_t drawn = draw(config, step, microbatch, b);
        const unsigned char *at = text->bytes + drawn % (text->n - (size_t)n);

        for (int t = 0; t < n; t++) {
            tokens[b * n + t] = at[t];
            targets[b * n + t] = at[t + 1];
        }
    }
}

/* The place after the next blank line.  If there is none, the text begins
 * again. */
static size_t next_document(const struct text *text, size_t at)
{
    for (; at + 3 < text->n; at++) {
        if (text->bytes[at] == '\n' && text->bytes[at + 1] == '\n') {
            return at + 2;
        }
    }
    return 0;
}

/* Tokens of a document: its bytes whose next byte is in the document too. */
static int document_tokens(const struct text *text, size_t at)
{
    size_t n = 1;

    while (at + n + 1 < text->n && !(text->bytes[at + n - 1] == '\n' &&
                                     text->bytes[at + n] == '\n')) {
        n++;
    }
    return n > INT32_MAX ? INT32_MAX : (int)n;
}

static void put_document(const struct text *text, size_t at, int n, int *tokens,
                         int *targets)
{
    for (int t = 0; t < n; t++) {
        tokens[t] = text->bytes[at + (size_t)t];
        targets[t] = text->bytes[at + (size_t)t + 1];
    }
}

static void put_padding(int n, int *tokens, int *targets)
{
    for (int t = 0; t < n; t++) {
        tokens[t] = 0;
        targets[t] = -1;
    }
}

/* Rounds a length up so that the ranks that share a sequence get equal
 * parts. */
static int padded(const struct config *config, int length)
{
    const int unit = config_cp(config) > 1 ? 2 * config_cp(config) : 1;

    return length > INT32_MAX - unit ? length
                                     : (length + unit - 1) / unit * unit;
}

/* Fills a row, and returns how much of it is used.  There is at least one
 * document, which is cut if the row is too short for it. */
static int pack_row(const struct text *text, const struct config *config,
                    size_t at, int most, int *tokens, int *targets,
                    struct packing *packing)
{
    const int keys = config_keys(config);
    int used = 0;

    for (int n = 0; n < most; n++) {
        int length = document_tokens(text, at);
        int room = padded(config, length);

        if (room > keys - used) {
            if (n > 0) {
                break;
            }
            length = room = keys;
        }
        put_document(text, at, length, tokens + used, targets + used);
        put_padding(room - length, tokens + used + length,
                    targets + used + length);
        packing->lengths[packing->n] = length;
        packing->padded[packing->n] = room;
        packing->n++;
        used += room;
        at = next_document(text, at);
    }
    put_padding(keys - used, tokens + used, targets + used);
    return used;
}

/* Sums up what the library has to write too, so that the two can be
 * compared. */
static void sum_up(const struct config *config, struct packing *packing)
{
    int sum = 0;

    for (int i = 0; i < config_offsets(config); i++) {
        packing->offsets[i] = sum;
        if (i < packing->n) {
            sum += packing->padded[i];
        } else {
            sum = config->batch * config_keys(config);
        }
    }
}

/* Where a row's first document begins. */
static size_t first_document(const struct text *text,
                             const struct config *config, int step,
                             int microbatch, int row)
{
    const uint64_t drawn = draw(config, step, microbatch, row);

    return next_document(text,
                         drawn % (text->n - (size_t)config_keys(config)));
}

int text_first_length(const struct text *text, const struct config *config,
                      int step, int microbatch, int row)
{
    const size_t at = first_document(text, config, step, microbatch, row);

    return padded(config, document_tokens(text, at));
}

void text_pack(const struct text *text, const struct config *config, int step,
               int microbatch, int *tokens, int *targets,
               struct packing *packing)
{
    const int most = config->documents / config->batch;
    const int keys = config_keys(config);

    packing->n = 0;
    for (int b = 0; b < config->batch; b++) {
        const size_t at = first_document(text, config, step, microbatch, b);
        const int row = b * keys;
        const int used = pack_row(text, config, at, most, tokens + row,
                                  targets + row, packing);

        if (b + 1 < config->batch) {
            packing->padded[packing->n - 1] += keys - used;
        }
    }
    sum_up(config, packing);
}

void text_pack_whole(const struct text *text, const struct config *config,
                     int step, int microbatch, int *tokens, int *targets,
                     struct packing *packing)
{
    text_sample(text, config, step, microbatch, tokens, targets);
    packing->n = config->batch;
    for (int b = 0; b < config->batch; b++) {
        packing->lengths[b] = packing->padded[b] = config_keys(config);
    }
    sum_up(config, packing);
}
