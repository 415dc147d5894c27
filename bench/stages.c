/*
 * stages.c - schedules of pipelines of 8 to 64 stages, on a clock.
 *
 *     stages --json FILE
 *     stages --trace FILE SCHEDULE STAGES MICROBATCHES
 *
 * For each schedule it says how long stages are idle, and how many microbatches
 * the first one keeps, in those of all its layers: a slot of one of two chunks
 * is half of one.  A forward of all layers of a stage takes 1, and a backward
 * 2, half of it for the inputs.  A trace is a timeline of one step for
 * Perfetto, in which a forward takes 1 ms.  Needs no device.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "pipeline/pipeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct way {
    const char *name;
    uint32_t chunks;
    enum {
        INTERLEAVED,
        ZERO_BUBBLE,
        DUALPIPEV
    } generator;
};

static const struct way ways[] = {
    { "1f1b", 1, INTERLEAVED },          { "interleaved-2", 2, INTERLEAVED },
    { "interleaved-4", 4, INTERLEAVED }, { "zero-bubble", 1, ZERO_BUBBLE },
    { "dualpipev", 2, DUALPIPEV },
};
#define WAYS (sizeof(ways) / sizeof(ways[0]))

static const uint32_t stages[] = { 8, 16, 32, 64 };
static const uint32_t counts[] = { 64, 128, 256, 512 }; /* microbatches */
static const double sends[] = { 0, 0.1 };               /* in forwards */
#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

static struct gh_interleaving how_of(const struct way *way, uint32_t n)
{
    return (struct gh_interleaving){ .n_stages = n,
                                     .n_chunks = way->chunks,
                                     .group = n };
}

static struct gh_pipeline_times times_of(const struct way *way, double send)
{
    const double forward = 1.0 / way->chunks;

    return (struct gh_pipeline_times){
        { forward, 2 * forward, forward, forward }, send, NULL
    };
}

static gh_status make(const struct way *way, uint32_t n, uint32_t microbatches,
                      struct gh_pipeline **pipeline_p, gh_error *err)
{
    const struct gh_interleaving how = how_of(way, n);

    switch (way->generator) {
    case ZERO_BUBBLE:
        return gh_pipeline_zero_bubble(n, microbatches, pipeline_p, err);
    case DUALPIPEV:
        return gh_pipeline_dualpipev(n, microbatches, pipeline_p, err);
    default:
        return gh_pipeline_interleaved(&how, microbatches, pipeline_p, err);
    }
}

/* The microbatches that the first stage has slots for. */
static gh_status count_slots(const struct way *way,
                             const struct gh_pipeline *pipeline, double *kept_p,
                             gh_error *err)
{
    const struct gh_interleaving how = how_of(way, pipeline->n_stages);
    uint32_t slots[GH_PIPELINE_CHUNKS] = { 0 }, sum = 0;
    gh_status status = GH_OK;

    if (way->generator == INTERLEAVED) {
        status = gh_pipeline_slots(&how, 0, slots, err);
    }
    for (uint32_t c = 0; way->generator != INTERLEAVED && c < way->chunks;
         c++) {
        slots[c] = gh_pipeline_in_flight(pipeline, 0, c);
    }
    for (uint32_t c = 0; c < way->chunks; c++) {
        sum += slots[c];
    }
    *kept_p = (double)sum / way->chunks;
    return status;
}

static gh_status measure(FILE *file, const struct way *way, uint32_t n,
                         uint32_t microbatches, double send, gh_error *err)
{
    const struct gh_pipeline_times times = times_of(way, send);
    struct gh_pipeline_clock clock = { 0, 0 };
    struct gh_pipeline *pipeline = NULL;
    double kept = 0;
    gh_status status = make(way, n, microbatches, &pipeline, err);

    if (status == GH_OK) {
        status = gh_pipeline_run(pipeline, &times, &clock, err);
    }
    if (status == GH_OK) {
        status = count_slots(way, pipeline, &kept, err);
    }
    if (status == GH_OK) {
        fprintf(file,
                "  {\"schedule\": \"%s\", \"stages\": %u, \"microbatches\": "
                "%u, \"send\": %g, \"idle\": %.4f, \"step\": %.3f, \"kept\": "
                "%g}",
                way->name, n, microbatches, send,
                gh_pipeline_bubble(pipeline, &clock), clock.total, kept);
    }
    gh_pipeline_free(pipeline);
    return status;
}

static gh_status measure_all(FILE *file, gh_error *err)
{
    const char *before = "{\"rows\": [\n";

    for (size_t s = 0; s < COUNT(sends); s++) {
        for (size_t n = 0; n < COUNT(stages); n++) {
            for (size_t c = 0; c < COUNT(counts); c++) {
                for (size_t w = 0; w < WAYS; w++) {
                    gh_status status;

                    if (ways[w].generator == DUALPIPEV &&
                        counts[c] < 2 * stages[n]) {
                        continue; /* too few for it */
                    }
                    fputs(before, file);
                    status = measure(file, &ways[w], stages[n], counts[c],
                                     sends[s], err);
                    if (status != GH_OK) {
                        return status;
                    }
                    before = ",\n";
                }
            }
        }
    }
    fputs("\n]}\n", file);
    return GH_OK;
}

/* ---- a timeline ---------------------------------------------------------- */

struct trace {
    FILE *file;
    const double *times;
    bool begun;
};

static void ran(void *user, uint32_t stage, const struct gh_action *a,
                double begin)
{
    struct trace *trace = user;

    fprintf(trace->file,
            "%s{\"name\": \"%s %u.%u\", \"cat\": \"%s\", \"ph\": \"X\", "
            "\"pid\": 1, \"tid\": %u, \"ts\": %.3f, \"dur\": %.3f}",
            trace->begun ? ",\n" : "", gh_action_name(a->kind), a->chunk,
            a->microbatch, gh_action_name(a->kind), stage, 1000 * begin,
            1000 * trace->times[a->kind]);
    trace->begun = true;
}

static gh_status draw(FILE *file, const struct way *way, uint32_t n,
                      uint32_t microbatches, gh_error *err)
{
    const struct gh_pipeline_times times = times_of(way, 0);
    struct trace trace = { file, times.pass, false };
    const struct gh_pipeline_watcher watcher = { ran, &trace };
    struct gh_pipeline_clock clock = { 0, 0 };
    struct gh_pipeline *pipeline = NULL;
    gh_status status = make(way, n, microbatches, &pipeline, err);

    fputs("{\"traceEvents\": [\n", file);
    for (uint32_t i = 0; i < n && status == GH_OK; i++) {
        fprintf(file,
                "{\"name\": \"thread_name\", \"ph\": \"M\", \"pid\": 1, "
                "\"tid\": %u, \"args\": {\"name\": \"stage %u\"}},\n",
                i, i);
    }
    if (status == GH_OK) {
        status = gh_pipeline_watch(pipeline, &times, &watcher, &clock, err);
    }
    fputs("\n]}\n", file);
    gh_pipeline_free(pipeline);
    return status;
}

/* ---- the command line ---------------------------------------------------- */

static const struct way *find_way(const char *name)
{
    for (size_t i = 0; i < WAYS; i++) {
        if (strcmp(ways[i].name, name) == 0) {
            return &ways[i];
        }
    }
    return NULL;
}

static int usage(void)
{
    fprintf(stderr,
            "usage: stages --json FILE\n"
            "       stages --trace FILE SCHEDULE STAGES MICROBATCHES\n"
            "schedules: 1f1b, interleaved-2, interleaved-4, zero-bubble, "
            "dualpipev\n");
    return 2;
}

int main(int argc, char **argv)
{
    const bool traces = argc == 6 && strcmp(argv[1], "--trace") == 0;
    const struct way *way = traces ? find_way(argv[3]) : NULL;
    const long n = traces ? atol(argv[4]) : 1, m = traces ? atol(argv[5]) : 1;
    gh_error err = { "" };
    gh_status status;
    FILE *file;

    if ((traces ? way == NULL : argc != 3 || strcmp(argv[1], "--json") != 0) ||
        n < 1 || n > (long)GH_PIPELINE_STAGES || m < 1 ||
        m > (long)GH_PIPELINE_MICROBATCHES) {
        return usage();
    }
    file = fopen(argv[2], "w");
    if (file == NULL) {
        perror(argv[2]);
        return 2;
    }
    status = traces ? draw(file, way, (uint32_t)n, (uint32_t)m, &err)
                    : measure_all(file, &err);
    if (status != GH_OK) {
        fprintf(stderr, "stages: %s\n", err.text);
    }
    if (fclose(file) != 0) {
        perror(argv[2]);
        return 2;
    }
    return status == GH_OK ? 0 : 1;
}
