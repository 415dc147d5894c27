/*
 * read.c - reads a schedule from a file's text.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "pipeline/pipeline.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>

enum { WORDS = 4, WORD_BYTES = 24 };

struct reader {
    const char *at, *end;
    uint32_t line;
    char words[WORDS + 1][WORD_BYTES]; /* of the line; one too many is kept */
    uint32_t n;
    bool odd; /* a word of it is too long, or has a byte that no word has */
    uint32_t sizes[3]; /* stages, chunks, microbatches; 0: not said */
    struct gh_pipeline *pipeline;
};

static const char *const size_names[] = { "stages", "chunks", "microbatches" };

/* ---- words --------------------------------------------------------------- */

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static void take_word(struct reader *r)
{
    char *word = r->words[r->n <= WORDS ? r->n : WORDS];
    size_t n = 0;

    while (r->at < r->end && !is_space(*r->at) && *r->at != '\n' &&
           *r->at != '#') {
        r->odd |= n == WORD_BYTES - 1 || *r->at < '!' || *r->at > '~';
        if (n < WORD_BYTES - 1) {
            word[n++] = *r->at;
        }
        r->at++;
    }
    word[n] = '\0';
    r->n += r->n <= WORDS;
}

/* Takes the words of the next line.  False: there is none. */
static bool next_line(struct reader *r)
{
    bool comment = false;

    if (r->at == r->end) {
        return false;
    }
    r->line++;
    r->n = 0;
    r->odd = false;
    while (r->at < r->end && *r->at != '\n') {
        comment |= *r->at == '#';
        if (comment || is_space(*r->at)) {
            r->at++;
        } else {
            take_word(r);
        }
    }
    r->at += r->at < r->end;
    return true;
}

static gh_status take_number(const struct reader *r, uint32_t word,
                             const char *what, uint32_t end, uint32_t *number_p,
                             gh_error *err)
{
    const char *text = r->words[word];
    uint64_t number = 0;

    for (const char *c = text; *c != '\0'; c++) {
        if (*c < '0' || *c > '9' || number > UINT32_MAX) {
            return gh_fail(err, GH_ERR_INVALID,
                           "line %u: the %s is \"%s\": give a number", r->line,
                           what, text);
        }
        number = 10 * number + (uint64_t)(*c - '0');
    }
    if (text[0] == '\0' || number >= end) {
        return gh_fail(err, GH_ERR_INVALID,
                       "line %u: the %s is \"%s\": give one below %u", r->line,
                       what, text, end);
    }
    *number_p = (uint32_t)number;
    return GH_OK;
}

/* ---- lines --------------------------------------------------------------- */

static gh_status take_placement(struct reader *r, gh_error *err)
{
    enum gh_placement placement;

    if (strcmp(r->words[1], "looped") == 0) {
        placement = GH_PLACED_LOOPED;
    } else if (strcmp(r->words[1], "v") == 0) {
        placement = GH_PLACED_V;
    } else {
        return gh_fail(err, GH_ERR_INVALID,
                       "line %u: the placement is \"%s\": give looped or v",
                       r->line, r->words[1]);
    }
    for (uint32_t i = 0; i < 3; i++) {
        if (r->sizes[i] == 0) {
            return gh_fail(err, GH_ERR_INVALID,
                           "line %u: the number of %s comes before the "
                           "placement: it is missing",
                           r->line, size_names[i]);
        }
    }
    return gh_pipeline_new(r->sizes[0], r->sizes[1], r->sizes[2], placement,
                           &r->pipeline, err);
}

static gh_status take_header(struct reader *r, gh_error *err)
{
    gh_status status;

    if (r->n == 2 && strcmp(r->words[0], "placement") == 0) {
        return take_placement(r, err);
    }
    for (uint32_t i = 0; i < 3; i++) {
        if (r->n != 2 || strcmp(r->words[0], size_names[i]) != 0) {
            continue;
        }
        if (r->sizes[i] != 0) {
            return gh_fail(err, GH_ERR_INVALID,
                           "line %u: the number of %s is there already: give "
                           "it once",
                           r->line, size_names[i]);
        }
        status = take_number(r, 1, size_names[i], UINT32_MAX, &r->sizes[i],
                             err);
        return status == GH_OK && r->sizes[i] == 0
                   ? gh_fail(err, GH_ERR_INVALID,
                             "line %u: there are 0 %s: give 1 or more", r->line,
                             size_names[i])
                   : status;
    }
    return gh_fail(err, GH_ERR_INVALID,
                   "line %u: \"%s\": first come lines with stages, chunks, "
                   "microbatches and placement, each with its value",
                   r->line, r->words[0]);
}

static gh_status take_kind(const struct reader *r, enum gh_action_kind *kind_p,
                           gh_error *err)
{
    for (uint32_t kind = 0; kind < GH_ACTIONS; kind++) {
        if (strcmp(r->words[1], gh_action_name(kind)) == 0) {
            *kind_p = kind;
            return GH_OK;
        }
    }
    return gh_fail(err, GH_ERR_INVALID,
                   "line %u: \"%s\" is no kind of pass: give forward, backward, "
                   "inputs or weights",
                   r->line, r->words[1]);
}

static gh_status take_action(struct reader *r, gh_error *err)
{
    struct gh_action a = { .line = r->line };
    uint32_t stage = 0;
    gh_status status;

    if (r->n != WORDS) {
        return gh_fail(err, GH_ERR_INVALID,
                       "line %u: give a stage, a kind of pass, a chunk and a "
                       "microbatch, such as \"0 forward 0 2\"",
                       r->line);
    }
    status = take_number(r, 0, "stage", r->pipeline->n_stages, &stage, err);
    if (status == GH_OK) {
        status = take_kind(r, &a.kind, err);
    }
    if (status == GH_OK) {
        status = take_number(r, 2, "chunk", r->pipeline->n_chunks, &a.chunk,
                             err);
    }
    if (status == GH_OK) {
        status = take_number(r, 3, "microbatch", r->pipeline->n_microbatches,
                             &a.microbatch, err);
    }
    return status == GH_OK ? gh_pipeline_add(r->pipeline, stage, &a, err)
                           : status;
}

gh_status gh_pipeline_read(const char *text, size_t bytes,
                           struct gh_pipeline **pipeline_p, gh_error *err)
{
    struct reader r = { .at = text, .end = text + bytes };
    gh_status status = GH_OK;

    while (status == GH_OK && next_line(&r)) {
        if (r.odd) {
            status = gh_fail(err, GH_ERR_INVALID,
                             "line %u: a word has more than %d letters, or a "
                             "byte that is no letter: give words and numbers",
                             r.line, WORD_BYTES - 1);
        } else if (r.n != 0) {
            status = r.pipeline == NULL ? take_header(&r, err)
                                        : take_action(&r, err);
        }
    }
    if (status == GH_OK && r.pipeline == NULL) {
        status = gh_fail(err, GH_ERR_INVALID,
                         "line %u: the schedule ends before its placement",
                         r.line);
    }
    if (status != GH_OK) {
        gh_pipeline_free(r.pipeline);
        return status;
    }
    *pipeline_p = r.pipeline;
    return GH_OK;
}
