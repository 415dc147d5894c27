/*
 * main.c - gh-engine: trains a small model on real text and compares modes.
 *
 *     command ─► text ─► device ─► for every mode: train() ─► table, JSON
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
#include "cli/rank_threads.h"
#include "cli/find.h"
#include "cli/output.h"
#include "cli/report.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    EXIT_EQUAL = 0,
    EXIT_DIFFERENT = 1,
    EXIT_USAGE = 2,
    EXIT_DEVICE = 3,
    EXIT_SIGNAL = 128 /* and the signal's number */
};

/* ---- signals ------------------------------------------------------------ */

static volatile sig_atomic_t interrupted; /* the number of the signal */

/* The first signal ends the run after its step, and a second one ends the
 * program at once. */
static void take_signal(int number)
{
    interrupted = number;
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
}

/* A signal that the parent ignores, as nohup does, stays ignored. */
static void catch_signals(void)
{
    static const int numbers[] = { SIGINT, SIGTERM };
    const struct sigaction action = { .sa_handler = take_signal,
                                      .sa_flags = SA_RESTART };

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        struct sigaction before;

        if (sigaction(numbers[i], NULL, &before) == 0 &&
            before.sa_handler != SIG_IGN) {
            sigaction(numbers[i], &action, NULL);
        }
    }
}

static bool say_step(const struct options *options, enum mode mode, int step,
                     double loss, double step_ms)
{
    report_progress(options, mode, step, loss, step_ms);
    return interrupted == 0;
}

static bool keep_quiet(const struct options *options, enum mode mode, int step,
                       double loss, double step_ms)
{
    (void)options;
    (void)mode;
    (void)step;
    (void)loss;
    (void)step_ms;
    return interrupted == 0;
}

/* ---- the run ------------------------------------------------------------ */

/* The driver that --driver asks for, or else GRAPHHOOKS_DRIVER, which may be a
 * path, or else NULL for whatever exists. */
static const char *asked_driver(const struct command *command)
{
    const char *set = getenv("GRAPHHOOKS_DRIVER");

    if (command->driver != NULL) {
        return command->driver;
    }
    return set != NULL && set[0] != '\0' ? set : NULL;
}

/* Gives the software device one device for each rank, unless somebody has set
 * their number.  A GPU loads kernels at the beginning: while the first launch of
 * one waits for what runs, two ranks that send to each other would wait for
 * each other.  Both read their environment when they are loaded. */
static void ask_for_devices(const struct command *command)
{
    char text[16];

    if (command->ranks > 1) {
        snprintf(text, sizeof(text), "%d",
                 command->ranks < 16 ? command->ranks : 16);
        setenv("SOFTCUDA_DEVICES", text, 0);
        setenv("SOFTCUDA_PROCESSES", "1", 0);
        setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    }
}

/* `path` is room for the driver's path, and must outlive the device. */
static int open_device(const struct command *command,
                       const struct launch *launch, struct device *dev,
                       char *path, size_t path_bytes)
{
    const char *asked = asked_driver(command);

    if (asked == NULL) {
        if (device_open(dev, DEVICE_CUDA, launch->local) == 0) {
            return 0;
        }
        if (launch->rank == 0) {
            printf("gh-engine: no CUDA device (%s), so the software device\n",
                   dev->error);
        }
        device_close(dev);
        asked = "soft";
    }
    if (strcmp(asked, "cuda") == 0) {
        return device_open(dev, DEVICE_CUDA, launch->local);
    }
    snprintf(path, path_bytes, "%s", asked);
    if (strcmp(asked, "soft") == 0) {
        find_companion(FIND_SOFTCUDA, path, path_bytes);
    } else if (strchr(asked, '/') == NULL) {
        /* Nothing has read the variable yet, and the loader knows no names. */
        memset(dev, 0, sizeof(*dev));
        snprintf(dev->error, sizeof(dev->error),
                 "GRAPHHOOKS_DRIVER is \"%.80s\"; set it to cuda or soft or a "
                 "path with a /, or leave it out",
                 asked);
        return -1;
    }
    return device_open(dev, path, launch->local);
}

static int load_text(const struct command *command, struct text *text,
                     char *error, size_t error_bytes)
{
    char found[4096], why[256];
    const char *path = command->data;

    if (path == NULL) {
        find_companion(FIND_TEXT, found, sizeof(found));
        path = found;
    }
    if (text_load(text, path, (size_t)config_keys(&command->options.config),
                  why, sizeof(why)) != 0) {
        snprintf(error, error_bytes, "--data %s: %s", path, why);
        return -1;
    }
    return 0;
}

/* `path` is room for the library's path if none was given. */
static void find_library(struct command *command, char *path, size_t path_bytes)
{
    if (command->options.library == NULL) {
        find_companion(FIND_LIBRARY, path, path_bytes);
        command->options.library = path;
    }
}

/* Finds before the start what would otherwise fail at the end. */
static int check_ahead(const struct command *command, struct device *dev)
{
    char error[4608];

    if (fflush(stdout) != 0) {
        return EXIT_USAGE; /* end_output() reports it */
    }
    if (output_check(command, error, sizeof(error)) != 0) {
        fprintf(stderr, "gh-engine: %s\n", error);
        return EXIT_USAGE;
    }
    for (int i = 0; i < command->n_modes; i++) {
        bool bad_option = false;

        if (mode_is_graph(command->modes[i]) &&
            train_check(&command->options, dev, command->modes[i], &bad_option,
                        error, sizeof(error)) != 0) {
            fflush(stdout); /* the reason comes last */
            fprintf(stderr, "gh-engine: %s mode: %s\n",
                    mode_name(command->modes[i]), error);
            return bad_option ? EXIT_USAGE : EXIT_DEVICE;
        }
    }
    return EXIT_EQUAL;
}

static bool has_run_graphs(const struct result *results, int n)
{
    int i = 0;

    while (i < n && !mode_is_graph(results[i].mode)) {
        i++;
    }
    return i < n;
}

/* Writes the table and the files of the n modes that have run. */
static int report(const struct command *command, const struct device *dev,
                  const struct result *results, int n)
{
    char error[4608];

    report_table(command, dev, results, n);
    fflush(stdout);
    if ((command->json != NULL &&
         report_json(command, dev, results, n, error, sizeof(error)) != 0) ||
        (has_run_graphs(results, n) &&
         output_check_trace(command, error, sizeof(error)) != 0)) {
        fprintf(stderr, "gh-engine: %s\n", error);
        return EXIT_USAGE;
    }
    if (!report_whole(command, results, n)) {
        fprintf(stderr,
                "gh-engine: interrupted after %d of %d steps of the %s mode; "
                "what was done until then is reported\n",
                results[n - 1].steps, command->options.steps,
                mode_name(results[n - 1].mode));
        return EXIT_SIGNAL + (interrupted != 0 ? interrupted : SIGTERM);
    }
    return report_all_equal(results, n) ? EXIT_EQUAL : EXIT_DIFFERENT;
}

/* Runs all modes.  Rank 0's results are those of all ranks, and only rank 0
 * reports them. */
static int run_modes(const struct command *command, struct launch *launch,
                     struct device *dev, const struct text *text)
{
    struct modes modes = {
        .command = command,
        .options = command->options,
        .dev = dev,
        .text = text,
        .progress =
            command->quiet || launch->rank > 0 ? keep_quiet : say_step,
    };
    int status = EXIT_DEVICE;

    fflush(stdout);
    if (run_ranks(launch, &modes) == 0) {
        status = launch->rank == 0
                     ? report(command, dev, modes.results, modes.n)
                 : report_all_equal(modes.results, modes.n) ? EXIT_EQUAL
                                                            : EXIT_DIFFERENT;
    }
    modes_free(&modes);
    return status;
}

/* Fails if the output could not be written. */
static int end_output(int status)
{
    if (fflush(stdout) == 0 && ferror(stdout) == 0) {
        return status;
    }
    fprintf(stderr, "gh-engine: standard output: it could not be written "
                    "whole; give a file on a disk with room\n");
    return status == EXIT_EQUAL ? EXIT_USAGE : status;
}

/* Runs a rank whose device and peers are there. */
static int run_rank(const struct command *command, struct launch *launch,
                    const struct text *text)
{
    struct device dev;
    char driver[4096], error[768];
    int status = EXIT_EQUAL;

    if (open_device(command, launch, &dev, driver, sizeof(driver)) != 0) {
        fflush(stdout);
        fprintf(stderr, "gh-engine: %s\n", dev.error);
        device_close(&dev);
        return EXIT_DEVICE;
    }
    if (launch->rank == 0) {
        printf("gh-engine: %s, driver %s\n", dev.name,
               dev.soft ? "soft" : "cuda");
        status = check_ahead(command, &dev);
        if (status == EXIT_EQUAL) {
            report_prediction(command);
        }
    }
    if (status == EXIT_EQUAL && dev.soft && launch->processes) {
        status = EXIT_USAGE;
        if (launch->rank == 0) {
            fflush(stdout);
            fprintf(stderr,
                    "gh-engine: the software device's ranks are threads of one "
                    "process; take --ranks %d alone, or a GPU\n",
                    launch->n);
        }
    } else if (status == EXIT_EQUAL && launch->processes &&
               launch_connect(launch, command->limit_s, error,
                              sizeof(error)) != 0) {
        fprintf(stderr, "gh-engine: rank %d of %d: %s\n", launch->rank,
                launch->n, error);
        status = EXIT_DEVICE;
    }
    if (status == EXIT_EQUAL) {
        status = run_modes(command, launch, &dev, text);
    }
    device_close(&dev);
    return status;
}

int main(int argc, char **argv)
{
    struct command command;
    struct launch launch;
    struct text text = { NULL, 0 };
    char error[4608];
    char library[4096];
    int status;

    if (command_parse(&command, argc, argv, error, sizeof(error)) != 0) {
        fprintf(stderr, "gh-engine: %s\n", error);
        return EXIT_USAGE;
    }
    if (command.help) {
        command_help();
        return end_output(EXIT_EQUAL);
    }
    if (load_text(&command, &text, error, sizeof(error)) != 0 ||
        launch_find(&launch, &command, error, sizeof(error)) != 0 ||
        command_check_ranks(&command, error, sizeof(error)) != 0 ||
        launch_begin(&launch, &command, error, sizeof(error)) != 0) {
        fprintf(stderr, "gh-engine: %s\n", error);
        text_free(&text);
        return EXIT_USAGE;
    }
    if (launch.waits) {
        status = launch_wait(&launch, command.limit_s);
    } else {
        catch_signals();
        find_library(&command, library, sizeof(library));
        ask_for_devices(&command);
        status = run_rank(&command, &launch, &text);
        failure_pipe_close(&launch.line);
    }
    text_free(&text);
    return end_output(status);
}
