/*
 * pipeline.c - see pipeline.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "pipeline.h"

#include "base/error.h"
#include "pipeline/pipeline.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 64 << 20 }; /* of a file */

struct pipeline_forecast {
    const char *schedule; /* a generator's name, or a file's */
    struct gh_interleaving how;
    bool grouped; /* how.group says something */
    struct gh_pipeline *pipeline;
    double bubble;
    uint32_t *slots; /* of each stage, those of each chunk */
    uint64_t *bytes; /* of a slot of each chunk; NULL: not known */
    uint64_t ends[2]; /* of the embedding and the head, where they are */
    bool uneven;      /* stages take different times */
};

/* ---- options ------------------------------------------------------------- */

static gh_status take_count(const char *option, const char *value,
                            uint32_t most, uint32_t *count_p, gh_error *err)
{
    char *end = NULL;
    unsigned long count;

    if (value == NULL) {
        return GH_OK;
    }
    errno = 0;
    count = strtoul(value, &end, 10);
    if (errno != 0 || value[0] < '0' || value[0] > '9' || *end != '\0' ||
        count == 0 || count > most) {
        return gh_fail(err, GH_ERR_CONFIG, "%s is \"%s\": give 1 to %u", option,
                       value, most);
    }
    *count_p = (uint32_t)count;
    return GH_OK;
}

/* As many times as there are stages, with commas. */
static gh_status take_times(const char *value, uint32_t n, double *times,
                            gh_error *err)
{
    const char *at = value;

    for (uint32_t i = 0; i < n; i++) {
        char *end = NULL;

        times[i] = strtod(at, &end);
        if (end == at || !(times[i] > 0) || times[i] > 1e9 ||
            *end != (i + 1 < n ? ',' : '\0')) {
            return gh_fail(err, GH_ERR_CONFIG,
                           "--stage-times is \"%.60s\": give a time above 0 "
                           "for each of %u stages, with commas between them",
                           value, n);
        }
        at = end + 1;
    }
    return GH_OK;
}

static gh_status take_sizes(const struct pipeline_request *request,
                            const struct gh_plan *plan,
                            struct gh_interleaving *how, uint32_t *n_p,
                            gh_error *err)
{
    gh_status status = take_count("--pp", request->pp, GH_PIPELINE_STAGES,
                                  &how->n_stages, err);

    how->n_chunks = plan->n_chunks;
    if (status == GH_OK) {
        status = take_count("--vpp", request->vpp, GH_PIPELINE_CHUNKS,
                            &how->n_chunks, err);
    }
    if (status == GH_OK && how->n_chunks != plan->n_chunks) {
        return gh_fail(err, GH_ERR_CONFIG,
                       "--vpp is %u, and the layers described have %u chunk%s: "
                       "give each layer its \"chunk\"",
                       how->n_chunks, plan->n_chunks,
                       plan->n_chunks == 1 ? "" : "s");
    }
    how->group = how->n_stages;
    if (status == GH_OK) {
        status = take_count("--group", request->group, GH_PIPELINE_MICROBATCHES,
                            &how->group, err);
    }
    *n_p = 2 * (how->n_chunks > 1 ? how->group : how->n_stages);
    return status == GH_OK
               ? take_count("--microbatches", request->microbatches,
                            GH_PIPELINE_MICROBATCHES, n_p, err)
               : status;
}

/* ---- schedules ----------------------------------------------------------- */

static gh_status read_file(const char *path, char **text_p, size_t *bytes_p,
                           gh_error *err)
{
    FILE *file = fopen(path, "rb");
    char *text = file == NULL ? NULL : malloc(MOST_BYTES);
    size_t n = text == NULL ? 0 : fread(text, 1, MOST_BYTES, file);
    gh_status status = GH_OK;

    if (text == NULL || ferror(file) != 0) {
        status = gh_fail(err, GH_ERR_CONFIG, "--schedule %s: %s", path,
                         strerror(errno));
    } else if (n == MOST_BYTES) {
        status = gh_fail(err, GH_ERR_CONFIG,
                         "--schedule %s: longer than a schedule may be", path);
    }
    if (file != NULL) {
        fclose(file);
    }
    if (status != GH_OK) {
        free(text);
        return status;
    }
    *text_p = text;
    *bytes_p = n;
    return GH_OK;
}

static gh_status read_schedule(const char *path,
                               struct gh_pipeline **pipeline_p, gh_error *err)
{
    char *text = NULL;
    size_t bytes = 0;
    gh_error why;
    gh_status status = read_file(path, &text, &bytes, err);

    if (status != GH_OK) {
        return status;
    }
    status = gh_pipeline_read(text, bytes, pipeline_p, &why);
    free(text);
    if (status == GH_OK) {
        status = gh_pipeline_check(*pipeline_p, &why);
        if (status == GH_OK) {
            return GH_OK;
        }
        gh_pipeline_free(*pipeline_p);
        *pipeline_p = NULL;
    }
    return gh_fail(err, status, "--schedule %s: %s", path, why.text);
}

static gh_status make_schedule(struct pipeline_forecast *f, uint32_t n,
                               bool has_group, gh_error *err)
{
    if (strcmp(f->schedule, "1f1b") == 0) {
        f->grouped = f->how.n_chunks > 1;
    }
    if (has_group && !f->grouped) {
        return gh_fail(err, GH_ERR_CONFIG,
                       "--group is of 1f1b with several chunks a stage: leave "
                       "it out");
    }
    if (strcmp(f->schedule, "1f1b") == 0) {
        return gh_pipeline_interleaved(&f->how, n, &f->pipeline, err);
    }
    if (strcmp(f->schedule, "dualpipev") == 0) {
        return f->how.n_chunks == 2
                   ? gh_pipeline_dualpipev(f->how.n_stages, n, &f->pipeline,
                                           err)
                   : gh_fail(
                         err, GH_ERR_CONFIG,
                         "--schedule dualpipev is of two chunks a stage, "
                         "and the layers described have %u: give each layer "
                         "its \"chunk\"",
                         f->how.n_chunks);
    }
    if (strcmp(f->schedule, "zero-bubble") != 0) {
        return read_schedule(f->schedule, &f->pipeline, err);
    }
    return f->how.n_chunks == 1
               ? gh_pipeline_zero_bubble(f->how.n_stages, n, &f->pipeline, err)
               : gh_fail(err, GH_ERR_CONFIG,
                         "--schedule zero-bubble is of one chunk a stage, and "
                         "the layers described have %u: give a file",
                         f->how.n_chunks);
}

/* A file may have sizes of its own. */
static gh_status check_sizes(const struct pipeline_request *request,
                             const struct pipeline_forecast *f, uint32_t n,
                             gh_error *err)
{
    const struct {
        const char *option, *value;
        uint32_t wanted, is;
    } sizes[] = {
        { "--pp", request->pp, f->how.n_stages, f->pipeline->n_stages },
        { "chunks described", "", f->how.n_chunks, f->pipeline->n_chunks },
        { "--microbatches", request->microbatches, n,
          f->pipeline->n_microbatches },
    };

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        if (sizes[i].value != NULL && sizes[i].wanted != sizes[i].is) {
            return gh_fail(err, GH_ERR_CONFIG,
                           "--schedule %s: it has %u where %s says %u",
                           f->schedule, sizes[i].is, sizes[i].option,
                           sizes[i].wanted);
        }
    }
    return GH_OK;
}

/* A generator's slots are for any number of microbatches, and those of others
 * for theirs. */
static gh_status count_slots(struct pipeline_forecast *f, gh_error *err)
{
    const struct gh_pipeline *p = f->pipeline;
    const bool any = strcmp(f->schedule, "1f1b") == 0;
    gh_status status = GH_OK;

    f->slots = calloc((size_t)p->n_stages * p->n_chunks, sizeof(*f->slots));
    if (f->slots == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for slots");
    }
    for (uint32_t i = 0; i < p->n_stages && status == GH_OK; i++) {
        uint32_t *slots = f->slots + (size_t)i * p->n_chunks;

        if (any) {
            status = gh_pipeline_slots(&f->how, i, slots, err);
        }
        for (uint32_t c = 0; c < p->n_chunks && !any; c++) {
            slots[c] = gh_pipeline_in_flight(p, i, c);
        }
    }
    return status;
}

static gh_status foresee(const struct pipeline_request *request,
                         const struct gh_plan *plan,
                         struct pipeline_forecast *f, gh_error *err)
{
    double stages[GH_PIPELINE_STAGES];
    struct gh_pipeline_times times = { { 1, 2, 1, 1 }, 0, NULL };
    struct gh_pipeline_clock clock = { 0, 0 };
    uint32_t n = 0;
    gh_status status = take_sizes(request, plan, &f->how, &n, err);

    if (status == GH_OK) {
        status = make_schedule(f, n, request->group != NULL, err);
    }
    if (status == GH_OK) {
        status = check_sizes(request, f, n, err);
    }
    if (status == GH_OK && request->stage_times != NULL) {
        f->uneven = true;
        times.stages = stages;
        status = take_times(request->stage_times, f->pipeline->n_stages,
                            stages, err);
    }
    if (status == GH_OK) {
        status = gh_pipeline_run(f->pipeline, &times, &clock, err);
    }
    if (status == GH_OK) {
        f->bubble = gh_pipeline_bubble(f->pipeline, &clock);
        status = count_slots(f, err);
    }
    return status;
}

/* Adds up what a slot of each chunk has, if all layers say it. */
static gh_status count_bytes(struct pipeline_forecast *f,
                             const struct gh_plan *plan,
                             const struct slot_bytes *bytes, gh_error *err)
{
    for (uint32_t i = 0; i < plan->n_layers; i++) {
        if (bytes->layers[i] == 0) {
            return GH_OK;
        }
    }
    f->bytes = calloc(f->pipeline->n_chunks, sizeof(*f->bytes));
    if (f->bytes == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for slots");
    }
    for (uint32_t c = 0; c < f->pipeline->n_chunks; c++) {
        f->bytes[c] = bytes->rest;
    }
    for (uint32_t i = 0; i < plan->n_layers; i++) {
        f->bytes[plan->layers[i].chunk] += bytes->layers[i];
    }
    f->ends[0] = bytes->embedding;
    f->ends[1] = bytes->head;
    return GH_OK;
}

static uint64_t stage_bytes(const struct pipeline_forecast *f, uint32_t stage)
{
    const struct gh_pipeline *p = f->pipeline;
    const uint32_t n = p->n_chunks;
    uint64_t bytes = 0;

    for (uint32_t c = 0; c < n; c++) {
        const uint32_t part = gh_pipeline_part(p, stage, c);
        uint64_t slot = f->bytes[c];

        slot += part == 0 ? f->ends[0] : 0;
        slot += part == p->n_stages * n - 1 ? f->ends[1] : 0;
        bytes += f->slots[(size_t)stage * n + c] * slot;
    }
    return bytes;
}

gh_status pipeline_foresee(const struct pipeline_request *request,
                           const struct gh_plan *plan,
                           const struct slot_bytes *bytes,
                           struct pipeline_forecast **forecast_p, gh_error *err)
{
    struct pipeline_forecast *f;
    gh_status status;

    *forecast_p = NULL;
    if (request->pp == NULL && request->vpp == NULL && request->group == NULL &&
        request->microbatches == NULL && request->schedule == NULL &&
        request->stage_times == NULL) {
        return GH_OK;
    }
    if (request->pp == NULL) {
        return gh_fail(err, GH_ERR_CONFIG,
                       "give --pp too, the number of the pipeline's stages");
    }
    f = calloc(1, sizeof(*f));
    if (f == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a forecast");
    }
    f->schedule = request->schedule != NULL ? request->schedule : "1f1b";
    status = foresee(request, plan, f, err);
    if (status == GH_OK) {
        status = count_bytes(f, plan, bytes, err);
    }
    if (status != GH_OK) {
        pipeline_free(f);
        return status;
    }
    *forecast_p = f;
    return GH_OK;
}

void pipeline_free(struct pipeline_forecast *forecast)
{
    if (forecast != NULL) {
        gh_pipeline_free(forecast->pipeline);
        free(forecast->slots);
        free(forecast->bytes);
    }
    free(forecast);
}

uint32_t pipeline_slots(const struct pipeline_forecast *forecast,
                        uint32_t chunk)
{
    const struct gh_pipeline *p = forecast->pipeline;
    uint32_t most = 0;

    for (uint32_t i = 0; i < p->n_stages && chunk < p->n_chunks; i++) {
        const uint32_t slots = forecast->slots[(size_t)i * p->n_chunks + chunk];

        most = slots > most ? slots : most;
    }
    return most;
}

/* ---- output -------------------------------------------------------------- */

void pipeline_print(const struct pipeline_forecast *forecast)
{
    const struct gh_pipeline *p;

    if (forecast == NULL) {
        return;
    }
    p = forecast->pipeline;
    printf("\npipeline, %s: %u stages of %u chunk%s, %u microbatches",
           forecast->schedule, p->n_stages, p->n_chunks,
           p->n_chunks == 1 ? "" : "s", p->n_microbatches);
    if (forecast->grouped) {
        printf(" in groups of %u", forecast->how.group);
    }
    printf(": stages are idle for %.1f %%, if a backward takes two forwards%s\n",
           100 * forecast->bubble,
           forecast->uneven ? ", at the times of stages that are given" : "");
    for (uint32_t i = 0; i < p->n_stages; i++) {
        printf("  stage %u: slots ", i);
        for (uint32_t c = 0; c < p->n_chunks; c++) {
            printf("%s%u", c > 0 ? " + " : "",
                   forecast->slots[(size_t)i * p->n_chunks + c]);
        }
        if (forecast->bytes != NULL) {
            printf(", %.1f MiB", (double)stage_bytes(forecast, i) / (1 << 20));
        }
        putchar('\n');
    }
}

void pipeline_print_json(const struct pipeline_forecast *forecast)
{
    const struct gh_pipeline *p;

    if (forecast == NULL) {
        return;
    }
    p = forecast->pipeline;
    printf("\"pipeline\": {\"stages\": %u, \"chunks\": %u, \"microbatches\": "
           "%u, ",
           p->n_stages, p->n_chunks, p->n_microbatches);
    if (forecast->grouped) {
        printf("\"group\": %u, ", forecast->how.group);
    }
    printf("\"bubble\": %.4f, \"slots\": [", forecast->bubble);
    for (uint32_t i = 0; i < p->n_stages; i++) {
        printf("%s[", i > 0 ? ", " : "");
        for (uint32_t c = 0; c < p->n_chunks; c++) {
            printf("%s%u", c > 0 ? ", " : "",
                   forecast->slots[(size_t)i * p->n_chunks + c]);
        }
        printf("]");
    }
    printf("]");
    for (uint32_t i = 0; forecast->bytes != NULL && i < p->n_stages; i++) {
        printf("%s%" PRIu64, i > 0 ? ", " : ", \"slot_bytes\": [",
               stage_bytes(forecast, i));
    }
    printf("%s}, ", forecast->bytes != NULL ? "]" : "");
}
