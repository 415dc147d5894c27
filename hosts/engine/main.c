/*
 * main.c - gh-engine: trains a small model on real text and compares modes.
 *
 *     options ─► text ─► device ─► for every mode: train() ─► table, JSON
 *
 *     train()          model, buffers, streams; then its steps
 *     schedule_step()  embed ─► parts ─► head, the head back ─► parts ─►
 *                      embed, microbatch by microbatch; then the optimizer
 *     parts            kernels, one by one                      (eager)
 *                      the hooks of libgraphhooks.so            (graph)
 *                      kernels, the step captured as a whole    (step)
 *     kernels          kernels.cu: PTX for the GPU, C for the software device
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "find.h"
#include "report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    EXIT_EQUAL = 0,
    EXIT_DIFFERENT = 1,
    EXIT_USAGE = 2,
    EXIT_DEVICE = 3
};

/* What --driver asks for; else GRAPHHOOKS_DRIVER, which may be a path; else
 * NULL: what is there. */
static const char *asked_driver(const struct options *options)
{
    const char *set = getenv("GRAPHHOOKS_DRIVER");

    if (options->driver != NULL) {
        return options->driver;
    }
    return set != NULL && set[0] != '\0' ? set : NULL;
}

/* `path` is where the driver's path goes; it outlives the device. */
static int open_device(const struct options *options, struct device *dev,
                       char *path, size_t path_bytes)
{
    const char *asked = asked_driver(options);

    if (asked == NULL) {
        if (device_open(dev, DEVICE_CUDA) == 0) {
            return 0;
        }
        printf("gh-engine: no CUDA device (%s), so the software device\n",
               dev->error);
        device_close(dev);
        asked = "soft";
    }
    if (strcmp(asked, "cuda") == 0) {
        return device_open(dev, DEVICE_CUDA);
    }
    snprintf(path, path_bytes, "%s", asked);
    if (strcmp(asked, "soft") == 0) {
        find_companion(FIND_SOFTCUDA, path, path_bytes);
    }
    return device_open(dev, path);
}

static int load_text(const struct options *options, struct text *text,
                     char *error, size_t error_bytes)
{
    char found[4096], why[256];
    const char *path = options->data;

    if (path == NULL) {
        find_companion(FIND_TEXT, found, sizeof(found));
        path = found;
    }
    if (text_load(text, path, (size_t)options->config.seq, why, sizeof(why)) !=
        0) {
        snprintf(error, error_bytes, "--data %s: %s", path, why);
        return -1;
    }
    return 0;
}

/* What would fail at the end is found before the start. */
static int check_ahead(const struct options *options, struct device *dev)
{
    char error[768];
    FILE *json;

    if (options->json != NULL) {
        json = fopen(options->json, "a");
        if (json == NULL) {
            fflush(stdout);
            fprintf(stderr, "gh-engine: %s: %s\n", options->json,
                    strerror(errno));
            return EXIT_USAGE;
        }
        fclose(json);
    }
    for (int i = 0; i < options->n_modes; i++) {
        bool bad_option = false;

        if (options->modes[i] == MODE_GRAPH &&
            train_check(options, dev, &bad_option, error, sizeof(error)) != 0) {
            fflush(stdout); /* the reason comes last */
            fprintf(stderr, "gh-engine: graph mode: %s\n", error);
            return bad_option ? EXIT_USAGE : EXIT_DEVICE;
        }
    }
    return EXIT_EQUAL;
}

static int run_modes(const struct options *options, struct device *dev,
                     const struct text *text, struct result *results)
{
    char error[768];

    for (int i = 0; i < options->n_modes; i++) {
        const enum mode mode = options->modes[i];

        if (train(options, dev, text, mode, report_progress, &results[i], error,
                  sizeof(error)) != 0) {
            fflush(stdout);
            fprintf(stderr, "gh-engine: %s mode: %s\n", mode_name(mode), error);
            return EXIT_DEVICE;
        }
    }
    report_table(dev, results, options->n_modes);
    if (options->json != NULL &&
        report_json(options, dev, results, options->n_modes, error,
                    sizeof(error)) != 0) {
        fflush(stdout);
        fprintf(stderr, "gh-engine: %s\n", error);
        return EXIT_USAGE;
    }
    return report_all_equal(results, options->n_modes) ? EXIT_EQUAL
                                                       : EXIT_DIFFERENT;
}

int main(int argc, char **argv)
{
    struct options options;
    struct text text;
    struct device dev;
    struct result results[MAX_MODES + 1] = { 0 };
    char error[4608];
    char path[4096];
    int status;

    if (options_parse(&options, argc, argv, error, sizeof(error)) != 0) {
        fprintf(stderr, "gh-engine: %s\n", error);
        return EXIT_USAGE;
    }
    if (options.help) {
        options_help();
        return EXIT_EQUAL;
    }
    if (load_text(&options, &text, error, sizeof(error)) != 0) {
        fprintf(stderr, "gh-engine: %s\n", error);
        return EXIT_USAGE;
    }

    if (open_device(&options, &dev, path, sizeof(path)) == 0) {
        printf("gh-engine: %s, driver %s\n", dev.name,
               dev.soft ? "soft" : "cuda");
        status = check_ahead(&options, &dev);
        if (status == EXIT_EQUAL) {
            status = run_modes(&options, &dev, &text, results);
        }
    } else {
        fflush(stdout);
        fprintf(stderr, "gh-engine: %s\n", dev.error);
        status = EXIT_DEVICE;
    }

    for (int i = 0; i < options.n_modes; i++) {
        result_free(&results[i]);
    }
    device_close(&dev);
    text_free(&text);
    return status;
}
