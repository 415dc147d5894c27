/*
 * text.c - reads the text, draws samples.
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

/* Not by size: a pipe is as good as a file. */
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

void text_sample(const struct text *text, const struct config *config, int step,
                 int microbatch, int *tokens, int *targets)
{
    for (int b = 0; b < config->batch; b++) {
        const uint64_t position =
            (uint64_t)step << 32 | (uint64_t)microbatch << 16 | (uint64_t)b;
        const uint64_t drawn =
            mix(mix(config->seed + 0x9e3779b97f4a7c15u) + position);
        const unsigned char *at =
            text->bytes + drawn % (text->n - (size_t)config->seq);

        for (int t = 0; t < config->seq; t++) {
            tokens[b * config->seq + t] = at[t];
            targets[b * config->seq + t] = at[t + 1];
        }
    }
}
