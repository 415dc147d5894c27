/*
 * report.c - see report.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "cli/report.h"

#include "cli/json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void report_progress(const struct options *options, enum mode mode, int step,
                     double loss, double step_ms)
{
    const bool terminal = isatty(STDOUT_FILENO) == 1;

    printf("%s%s: step %d of %d, %d microbatches, loss %.6f, %.2f ms%s",
           terminal ? "\r\033[K" : "", mode_name(mode), step + 1,
           options->steps, options_count(options, step), loss, step_ms,
           terminal && step + 1 < options->steps ? "" : "\n");
    fflush(stdout);
}

bool report_equal(const struct result *a, const struct result *b)
{
    return a->steps == b->steps && a->weights_hash == b->weights_hash &&
           !a->ranks_differ && !b->ranks_differ &&
           memcmp(a->loss, b->loss, (size_t)a->steps * sizeof(*a->loss)) == 0;
}

bool report_all_equal(const struct result *results, int n)
{
    bool equal = !results[0].ranks_differ;

    for (int i = 1; i < n; i++) {
        equal = equal && report_equal(&results[0], &results[i]);
    }
    return equal;
}

bool report_whole(const struct command *command, const struct result *results,
                  int n)
{
    return n == command->n_modes &&
           results[n - 1].steps == command->options.steps;
}

static int compare_reals(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;

    return (x > y) - (x < y);
}

/* 0 with no memory to sort in: a report is not worth a failure. */
static double quantile(const double *values, int n, double share)
{
    double *sorted = malloc((size_t)n * sizeof(*sorted));
    double result;

    if (sorted == NULL) {
        return 0.0;
    }
    memcpy(sorted, values, (size_t)n * sizeof(*sorted));
    qsort(sorted, (size_t)n, sizeof(*sorted), compare_reals);
    result = sorted[(int)(share * (n - 1) + 0.5)];
    free(sorted);
    return result;
}

/* Against the first mode: "-" for itself, and of a run that was not whole. */
static const char *equal_word(const struct result *first,
                              const struct result *result, bool whole)
{
    if (result == first || !whole) {
        return "-";
    }
    return report_equal(first, result) ? "yes" : "no";
}

static void print_row(const struct result *result, const char *equal)
{
    printf("%-19s %11.6f %11.6f %9.3f %9.3f", mode_name(result->mode),
           result->loss[0], result->loss[result->steps - 1],
           quantile(result->step_ms, result->steps, 0.5),
           quantile(result->host_ms, result->steps, 0.5));
    if (!result->has_stats) {
        printf(" %11s %9s %9s %6s\n", "-", "-", "-", equal);
        return;
    }
    printf(" %11" PRIu64 " %9" PRIu64 " %9" PRIu64 " %6s\n",
           result->stats.recordings, result->stats.replays,
           result->stats.eager_passes, equal);
}

/* Whether a mode has counted its passes. */
static bool any_stats(const struct result *results, int n)
{
    for (int i = 0; i < n; i++) {
        if (results[i].has_stats) {
            return true;
        }
    }
    return false;
}

/* What the columns are. */
static void print_legend(const struct result *results, int n)
{
    printf("step ms, host ms: medians of a step, and of issuing it%s\n",
           any_stats(results, n) ? "; then passes: recorded, replayed by "
                                   "graphs, run eagerly"
                                 : "");
    if (n > 1) {
        printf("equal: every loss and the last weights are those of the first "
               "mode, bit for bit\n");
    }
}

static double mib(uint64_t bytes)
{
    return (double)bytes / 1048576.0;
}

/* Of the copies' time, at least. */
static double hidden_share(const gh_offload_stats *offload)
{
    return offload->stalled_ns < offload->timed_ns
               ? 1.0 - (double)offload->stalled_ns / (double)offload->timed_ns
               : 0.0;
}

static void print_offload(const struct result *result)
{
    const gh_offload_stats *offload = &result->offload;

    if (offload->struct_size == 0) {
        return;
    }
    printf("%s: %u of %u groups go; %.1f MiB out and %.1f MiB back in all; "
           "%.1f MiB of rings and %.1f MiB kept on the device, %.1f saved, "
           "%.1f MiB pinned, of which %.1f in use; %" PRIu64 " of %" PRIu64
           " copies back were late",
           mode_name(result->mode), offload->groups_offloaded, offload->groups,
           mib(offload->out_bytes), mib(offload->back_bytes),
           mib(offload->ring_bytes), mib(offload->kept_bytes),
           mib(offload->saved_bytes), mib(offload->pinned_bytes),
           mib(offload->pinned_peak), offload->late, offload->back_copies);
    if (offload->delayed != 0) {
        printf("; %" PRIu64 " commits waited for %" PRIu64 " flushes",
               offload->delayed, offload->flushes);
    }
    printf("\n");
    if (offload->timed_ns != 0) {
        printf("%s: in a step that was timed at least %.1f %% of %.3f ms of "
               "copies ran beside the compute, with %u waits\n",
               mode_name(result->mode), 100.0 * hidden_share(offload),
               (double)offload->timed_ns / 1e6, offload->stalls);
    }
}

/* Device memory of each mode, where one of them offloads. */
static void print_memory(const struct result *results, int n)
{
    bool offloads = false;

    for (int i = 0; i < n; i++) {
        offloads = offloads || results[i].offload.struct_size != 0;
    }
    for (int i = 0; i < n && offloads; i++) {
        printf("%s%s %.1f MiB%s", i == 0 ? "most device memory: " : "",
               mode_name(results[i].mode), mib(results[i].peak_bytes),
               i + 1 < n ? ", " : "\n");
    }
}

static void print_ranks(const struct result *results, int n)
{
    int differ = 0;

    for (int i = 0; i < n; i++) {
        differ += results[i].ranks_differ;
    }
    if (differ > 0) {
        printf("%d ranks: in %d of %d modes their weights are not the same "
               "bits\n",
               results[0].ranks, differ, n);
    } else if (results[0].ranks > 1) {
        printf("%d ranks: losses are of all of them, the rest is rank 0's; all "
               "have the same weights, bit for bit\n",
               results[0].ranks);
    }
}

/* How many ranks shared sequences, and in how many microbatches. */
static void print_cp(const struct options *options,
                     const struct result *result)
{
    for (int i = 0; i < options->n_cp; i++) {
        printf("%s%d in %" PRIu64, i == 0 ? "ranks that share a sequence: " : ", ",
               options->cp[i], result->shaped[i]);
    }
    if (options->n_cp > 0) {
        printf(" microbatches, by %s\n",
               options->cp_ring ? "a ring" : "all-gather");
    }
}

/* Of the later half of the steps: those before record and warm up. */
static double tokens_a_second(const struct result *result)
{
    double tokens = 0.0, ms = 0.0;

    for (int i = result->steps / 2; i < result->steps; i++) {
        tokens += (double)result->tokens[i];
        ms += result->step_ms[i];
    }
    return ms > 0.0 ? 1000.0 * tokens / ms : 0.0;
}

/* Where steps have other numbers of them. */
static void print_tokens(const struct command *command,
                         const struct result *results, int n)
{
    for (int i = 0; i < n && command->ranks > 1; i++) {
        printf("%s%s %.0f%s",
               i == 0 ? "tokens a second, of the later half of the steps: "
                      : "",
               mode_name(results[i].mode), tokens_a_second(&results[i]),
               i + 1 < n ? ", " : "\n");
    }
}

/* What a person might take for more than it is. */
static void print_remarks(const struct command *command,
                          const struct device *dev,
                          const struct result *results, int n)
{
    for (int i = 0; i < n; i++) {
        const gh_stats *stats = &results[i].stats;

        if (!results[i].has_stats) {
            continue;
        }
        if (stats->replays == 0) {
            printf("%s: nothing was replayed, so nothing of it was "
                   "compared\n",
                   mode_name(results[i].mode));
        }
        if (results[i].wgrad_replays != 0) {
            printf("%s: %" PRIu64 " of the replays are delayed gradients of "
                   "weights\n",
                   mode_name(results[i].mode), results[i].wgrad_replays);
        }
        print_offload(&results[i]);
        if (stats->checks != 0) {
            printf("%s: %" PRIu64 " passes were run both ways; checks that "
                   "failed: %" PRIu64 "\n",
                   mode_name(results[i].mode), stats->checks,
                   stats->check_failures);
        }
    }
    print_memory(results, n);
    print_ranks(results, n);
    print_cp(&command->options, &results[0]);
    print_tokens(command, results, n);
    if (dev->soft) {
        printf("times are those of the software device, not of a GPU\n");
    }
}

/* host ms: until the last call of the step was issued. */
void report_table(const struct command *command, const struct device *dev,
                  const struct result *results, int n)
{
    const bool whole = report_whole(command, results, n);

    printf("\n%-19s %11s %11s %9s %9s %11s %9s %9s %6s\n", "mode", "first loss",
           "last loss", "step ms", "host ms", "recordings", "replays", "eager",
           "equal");
    for (int i = 0; i < n; i++) {
        print_row(&results[i], equal_word(&results[0], &results[i], whole));
    }
    print_legend(results, n);
    printf("\n");
    print_remarks(command, dev, results, n);
    if (!whole) {
        printf("bitwise equal: not known, as the run was interrupted\n");
    } else if (n > 1) {
        printf("bitwise equal: %s\n",
               report_all_equal(results, n) ? "yes" : "no");
    }
}

/* ---- JSON --------------------------------------------------------------- */

static void write_cp(struct json *json, const struct options *options)
{
    uint64_t sizes[MAX_CP];

    for (int i = 0; i < options->n_cp; i++) {
        sizes[i] = (uint64_t)options->cp[i];
    }
    if (options->n_cp > 0) {
        json_counts(json, "cp", sizes, options->n_cp);
        json_text(json, "cp_comm", options->cp_ring ? "ring" : "allgather");
    }
    if (options->cp_force > 0) {
        json_count(json, "cp_force", (uint64_t)options->cp_force);
    }
}

static void write_model(struct json *json, const struct options *options)
{
    const struct config *config = &options->config;
    uint64_t counts[MAX_COUNTS], lengths[MAX_LENGTHS];

    for (int i = 0; i < options->n_counts; i++) {
        counts[i] = (uint64_t)options->counts[i];
    }
    json_begin(json, "model", '{');
    json_text(json, "name", model_name(config->model));
    json_count(json, "layers", (uint64_t)config->layers);
    json_count(json, "hidden", (uint64_t)config->hidden);
    json_count(json, "heads", (uint64_t)config->heads);
    json_count(json, "seq", (uint64_t)config->seq);
    for (int i = 0; i < options->n_lengths; i++) {
        lengths[i] = (uint64_t)options->lengths[i];
    }
    if (options->n_lengths > 0) {
        json_counts(json, "lengths", lengths, options->n_lengths);
    }
    write_cp(json, options);
    if (options->packed) {
        json_count(json, "documents", (uint64_t)config->documents);
    }
    json_count(json, "batch", (uint64_t)config->batch);
    json_count(json, "vocab", VOCAB);
    if (config_has(config, PART_MAMBA)) {
        json_count(json, "state", (uint64_t)config->state);
    }
    if (config->pattern != NULL) {
        json_text(json, "pattern", config->pattern);
    }
    if (config_has(config, PART_MOE_EXPERTS)) {
        json_count(json, "experts", (uint64_t)config->experts);
        json_count(json, "dense_layers", (uint64_t)config->dense_layers);
        json_count(json, "top_k", (uint64_t)config->top_k);
        json_bool(json, "shared_expert", config->shared_expert);
        json_text(json, "dispatch",
                  config->drop_and_pad    ? "drop and pad"
                  : config->dropless_host ? "dropless by host"
                                          : "dropless");
    }
    json_count(json, "seed", config->seed);
    json_counts(json, "microbatches", counts, options->n_counts);
    json_count(json, "in_flight", (uint64_t)options->in_flight);
    if (options->delay_wgrad) {
        json_count(json, "delay_wgrad", (uint64_t)options->delay);
    }
    json_count(json, "streams", (uint64_t)options->streams);
    json_text(json, "stream", options->legacy ? "legacy" : "own");
    json_count(json, "steps", (uint64_t)options->steps);
    json_real(json, "lr", options->lr);
    json_count(json, "warmup", (uint64_t)options->warmup);
    json_end(json, '}');
}

static void write_times(struct json *json, const char *key,
                        const double *values, int n)
{
    json_begin(json, key, '{');
    json_real(json, "median", quantile(values, n, 0.5));
    json_real(json, "min", quantile(values, n, 0.0));
    json_reals(json, "all", values, n);
    json_end(json, '}');
}

static void write_stats(struct json *json, const struct result *result)
{
    const gh_stats *stats = &result->stats;

    json_begin(json, "stats", '{');
    json_count(json, "slots", stats->slots);
    json_count(json, "iterations", stats->iterations);
    json_count(json, "recordings", stats->recordings);
    json_count(json, "replays", stats->replays);
    json_count(json, "wgrad_replays", result->wgrad_replays);
    json_count(json, "eager_passes", stats->eager_passes);
    json_begin(json, "eager_by_reason", '{');
    for (gh_reason r = 0; r < MAX_REASONS; r++) {
        if (result->eager[r] > 0) {
            json_count(json, result->reason_name(r), result->eager[r]);
        }
    }
    json_end(json, '}');
    json_count(json, "reruns", stats->reruns);
    json_count(json, "copies", stats->copies);
    json_count(json, "copied_bytes", stats->copied_bytes);
    json_count(json, "static_bytes", stats->static_bytes);
    json_count(json, "nodes", stats->nodes);
    json_count(json, "hook_calls", stats->hook_calls);
    json_count(json, "hook_ns", stats->hook_ns);
    json_count(json, "record_ns", stats->record_ns);
    json_count(json, "checks", stats->checks);
    json_count(json, "check_failures", stats->check_failures);
    json_count(json, "asked", stats->asked);
    json_end(json, '}');
}

static void write_offload(struct json *json, const gh_offload_stats *offload)
{
    json_begin(json, "offload", '{');
    json_count(json, "groups", offload->groups);
    json_count(json, "groups_offloaded", offload->groups_offloaded);
    json_count(json, "out_bytes", offload->out_bytes);
    json_count(json, "back_bytes", offload->back_bytes);
    json_count(json, "out_copies", offload->out_copies);
    json_count(json, "back_copies", offload->back_copies);
    json_count(json, "late", offload->late);
    json_count(json, "flushes", offload->flushes);
    json_count(json, "delayed", offload->delayed);
    json_count(json, "ring_bytes", offload->ring_bytes);
    json_count(json, "kept_bytes", offload->kept_bytes);
    json_count(json, "pinned_bytes", offload->pinned_bytes);
    json_count(json, "pinned_peak", offload->pinned_peak);
    json_count(json, "saved_bytes", offload->saved_bytes);
    json_count(json, "timed_steps", offload->timed_steps);
    json_count(json, "stalls", offload->stalls);
    json_count(json, "timed_ns", offload->timed_ns);
    json_count(json, "stalled_ns", offload->stalled_ns);
    json_end(json, '}');
}

static void write_mode(struct json *json, const struct options *options,
                       const struct result *result)
{
    char hash[24];

    snprintf(hash, sizeof(hash), "%016" PRIx64, result->weights_hash);
    json_begin(json, NULL, '{');
    json_text(json, "name", mode_name(result->mode));
    json_reals(json, "loss", result->loss, result->steps);
    json_text(json, "weights_hash", hash);
    json_counts(json, "tokens", result->tokens, result->steps);
    json_real(json, "tokens_per_s", tokens_a_second(result));
    if (options->n_cp > 0) {
        json_counts(json, "cp_microbatches", result->shaped, options->n_cp);
    }
    json_count(json, "device_peak_bytes", result->peak_bytes);
    write_times(json, "step_ms", result->step_ms, result->steps);
    write_times(json, "host_ms", result->host_ms, result->steps);
    if (result->has_stats) {
        write_stats(json, result);
        if (result->offload.struct_size != 0) {
            write_offload(json, &result->offload);
        }
        json_counts(json, "recordings_after_step", result->recordings,
                    result->steps);
    }
    json_end(json, '}');
}

int report_json(const struct command *command, const struct device *dev,
                const struct result *results, int n, char *error,
                size_t error_bytes)
{
    struct json json = { .file = fopen(command->json, "w") };
    bool failed;

    if (json.file == NULL) {
        snprintf(error, error_bytes, "--json %s: %s", command->json,
                 strerror(errno));
        return -1;
    }
    json_begin(&json, NULL, '{');
    json_text(&json, "driver", dev->soft ? "soft" : "cuda");
    json_text(&json, "device", dev->name);
    json_count(&json, "ranks", (uint64_t)command->ranks);
    write_model(&json, &command->options);
    json_begin(&json, "modes", '[');
    for (int i = 0; i < n; i++) {
        write_mode(&json, &command->options, &results[i]);
    }
    json_end(&json, ']');
    if (report_whole(command, results, n)) {
        json_bool(&json, "bitwise_equal", report_all_equal(results, n));
    } else {
        json_bool(&json, "interrupted", true);
    }
    json_end(&json, '}');

    failed = ferror(json.file) != 0;
    failed = fclose(json.file) != 0 || failed;
    if (failed) {
        snprintf(error, error_bytes,
                 "--json %s: it could not be written whole; give a file on a "
                 "disk with room",
                 command->json);
        return -1;
    }
    return 0;
}
