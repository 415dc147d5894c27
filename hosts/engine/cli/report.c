/*
 * report.c - see report.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "cli/report.h"

#include "step/pipeline_schedule.h"
#include "words/exchange.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
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

void report_prediction(const struct command *command)
{
    const struct options *options = &command->options;
    const int count = options_max_count(options);

    if (options_pp(options) > 1) {
        printf("pipeline, %s: %d stages of %d chunk%s: in a step of %d "
               "microbatches they should be idle for %.1f %%, if a backward "
               "takes two forwards\n",
               pipeline_schedule_name(options), options->pp,
               options_vpp(options), options_vpp(options) > 1 ? "s" : "", count,
               100 * pipeline_idle(options, count));
    }
}

/* Trainings without numbers are alike, and show nothing. */
static bool has_numbers(const struct result *result)
{
    for (int i = 0; i < result->steps; i++) {
        if (!isfinite(result->loss[i])) {
            return false;
        }
    }
    return true;
}

bool report_equal(const struct result *a, const struct result *b)
{
    return has_numbers(a) && a->steps == b->steps &&
           a->weights_hash == b->weights_hash && !a->ranks_differ &&
           !b->ranks_differ &&
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

double report_quantile(const double *values, int n, double share)
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

/* Compares with the first mode.  "-" for the first mode itself, and if the run
 * was not whole. */
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
    printf("%-27s %11.6f %11.6f %9.3f %9.3f", mode_name(result->mode),
           result->loss[0], result->loss[result->steps - 1],
           report_quantile(result->step_ms, result->steps, 0.5),
           report_quantile(result->host_ms, result->steps, 0.5));
    if (!result->has_stats) {
        printf(" %11s %9s %9s %6s\n", "-", "-", "-", equal);
        return;
    }
    printf(" %11" PRIu64 " %9" PRIu64 " %9" PRIu64 " %6s\n",
           result->stats.recordings, result->stats.replays,
           result->stats.eager_passes, equal);
}

/* Whether any mode has counted its passes. */
static bool any_stats(const struct result *results, int n)
{
    for (int i = 0; i < n; i++) {
        if (results[i].has_stats) {
            return true;
        }
    }
    return false;
}

/* Explains the columns. */
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

/* How much of the copies' time was hidden, at least. */
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

static void print_stash(const struct result *result)
{
    const gh_stash_stats *stash = &result->stash;

    if (stash->struct_size != 0) {
        printf("%s: stash: %.1f MiB of pages, and a step needed %.1f at most; "
               "the worst case is %.1f; %" PRIu64 " of %d steps ran again\n",
               mode_name(result->mode), mib(stash->bytes),
               mib(stash->peak_bytes), mib(stash->worst_case_bytes),
               stash->reruns, result->steps);
        if (stash->spill_bytes != 0) {
            printf("%s: stash: %" PRIu64 " pushes were kept in the host's "
                   "memory, which has %.1f MiB for them\n",
                   mode_name(result->mode), stash->spilled,
                   mib(stash->spill_bytes));
        }
    }
}

static void print_part(const char *name, uint64_t bytes)
{
    if (bytes != 0) {
        printf(", %s %.2f", name, mib(bytes));
    }
}

/* Prints whose memory of the library's it is, in all. */
static void print_parts(const struct result *result)
{
    const gh_memory_stats *memory = &result->memory;

    if (memory->struct_size == 0) {
        return;
    }
    printf("%s: MiB of the library's: session %.2f", mode_name(result->mode),
           mib(memory->device_bytes + memory->lent_bytes));
    print_part("of which slots", memory->slot_bytes);
    print_part("banks", memory->bank_bytes);
    print_part("offsets", memory->offset_bytes);
    print_part("rings", memory->ring_bytes);
    print_part("kept", memory->kept_bytes);
    print_part("checks", memory->check_bytes);
    print_part("held", memory->held_bytes);
    print_part("spare", memory->spare_bytes);
    print_part("and stash", result->stash.bytes);
    print_part("and exchange window", result->exchange.window_bytes);
    print_part("and places of messages", result->landing_bytes);
    print_part("and pinned", memory->pinned_bytes);
    print_part("foretold", memory->forecast_bytes);
    printf("\n");
}

/* Prints how long stages were idle, and how long passes take. */
static void print_idle(const struct options *options,
                       const struct result *result)
{
    const char *separator = " (";

    if (result->n_timed == 0) {
        return;
    }
    printf("%s: stages were idle for %.1f %% of a step of %d microbatches; by "
           "the clock for %.1f %%, and for %.1f %% with passes as long as "
           "these",
           mode_name(result->mode),
           100 * report_quantile(result->idle, result->n_timed, 0.5),
           options_max_count(options),
           100 * pipeline_idle(options, options_max_count(options)),
           100 * report_quantile(result->idle_predicted, result->n_timed, 0.5));
    for (int k = 0; k < GH_ACTIONS; k++) {
        if (result->pass_ms[k] > 0) {
            printf("%s%s %.3f ms", separator,
                   gh_action_name((enum gh_action_kind)k), result->pass_ms[k]);
            separator = ", ";
        }
    }
    printf(")\n");
}

/* Prints that steps of any count stop recording, and need no more memory. */
static void print_growth(const struct result *result)
{
    if (result->settled > 0 && result->settled < result->steps) {
        printf("%s: recorded last in step %d of %d; later steps had %.2f MiB "
               "more of the device at most\n",
               mode_name(result->mode), result->settled, result->steps,
               mib(result->grown_bytes));
    }
}

static void print_suspends(const struct result *result)
{
    const gh_memory_stats *memory = &result->memory;

    if (memory->suspends != 0) {
        printf("%s: suspended %" PRIu64 " times; the last time gave back %.1f "
               "MiB of device and %.1f of pinned memory in %.2f ms, and the "
               "resume took %.2f ms\n",
               mode_name(result->mode), memory->suspends,
               mib(memory->device_given), mib(memory->pinned_given),
               (double)memory->suspend_ns / 1e6,
               (double)memory->resume_ns / 1e6);
    }
}

const char *report_exchange_kind(gh_exchange_kind kind)
{
    static const char *const names[] = { "unknown",
#define ROW(id, word) [GH_EXCHANGE_##id] = #word,
                                         EXCHANGE_KINDS(ROW)
#undef ROW
    };

    return names[kind < sizeof(names) / sizeof(names[0]) ? kind : 0];
}

static void print_exchange(const struct result *result)
{
    const gh_exchange_stats *x = &result->exchange;

    if (x->struct_size != 0) {
        printf("%s: exchange by %s: %.1f MiB by copies, %.1f by NCCL, %.1f "
               "stayed; %" PRIu64 " calls by the kernel; peers within the "
               "process %u, by IPC %u\n",
               mode_name(result->mode), report_exchange_kind(x->kind),
               mib(x->copied_bytes), mib(x->nccl_bytes), mib(x->own_bytes),
               x->kernel_calls, x->peers_direct, x->peers_ipc);
    }
}

static const char *order_name(gh_overlap_order order)
{
    static const char *const names[] = { "off", "fixed", "auto" };

    return order <= GH_OVERLAP_AUTO ? names[order] : "unknown";
}

/* How much of a pair's communication its compute does not hide. */
static double exposed(const gh_overlap_stats *overlap)
{
    const double more = overlap->predicted_ns - overlap->compute_ns;

    return more > 0 && overlap->comm_ns > 0 ? 100.0 * more / overlap->comm_ns
                                            : 0.0;
}

static void print_overlap(const struct result *result)
{
    const gh_overlap_stats *overlap = &result->overlap;

    if (result->exchanges != 0) {
        printf("%s: %" PRIu64 " exchanges of tokens, %.1f MiB sent",
               mode_name(result->mode), result->exchanges,
               mib(result->exchanged_bytes));
        if (result->exchanges_captured != 0) {
            printf("; %" PRIu64 " of them are in graphs, and count once "
                   "however often those are launched",
                   result->exchanges_captured);
        }
        printf("\n");
    }
    print_exchange(result);
    if (overlap->struct_size == 0) {
        return;
    }
    printf("%s: order %s: %" PRIu64 " nodes in %" PRIu64 " runs, %" PRIu64
           " waits between streams",
           mode_name(result->mode), order_name(overlap->order), overlap->nodes,
           overlap->runs, overlap->waits);
    if (overlap->predicted_ns > 0) {
        printf("; predicted of the last pair: %.3f ms, of compute %.3f and "
               "communication %.3f, of which exposed %.1f %%",
               overlap->predicted_ns / 1e6, overlap->compute_ns / 1e6,
               overlap->comm_ns / 1e6, exposed(overlap));
    }
    printf("\n");
}

/* Prints the device memory of each mode, if one of them offloads. */
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

/* Prints how many ranks shared sequences, and in how many microbatches. */
static void print_cp(const struct options *options, const struct result *result)
{
    for (int i = 0; i < options->n_cp; i++) {
        printf("%s%d in %" PRIu64,
               i == 0 ? "ranks that share a sequence: " : ", ", options->cp[i],
               result->shaped[i]);
    }
    if (options->n_cp > 0) {
        printf(" microbatches, by %s\n",
               options->cp_ring ? "a ring" : "all-gather");
    }
}

double report_tokens_a_second(const struct result *result)
{
    double tokens = 0.0, ms = 0.0;

    for (int i = result->steps / 2; i < result->steps; i++) {
        tokens += (double)result->tokens[i];
        ms += result->step_ms[i];
    }
    return ms > 0.0 ? 1000.0 * tokens / ms : 0.0;
}

/* Prints the tokens of a step, if steps have different numbers of them. */
static void print_tokens(const struct command *command,
                         const struct result *results, int n)
{
    for (int i = 0; i < n && command->ranks > 1; i++) {
        printf("%s%s %.0f%s",
               i == 0 ? "tokens a second, of the later half of the steps: "
                      : "",
               mode_name(results[i].mode), report_tokens_a_second(&results[i]),
               i + 1 < n ? ", " : "\n");
    }
}

/* Prints what keeps a reader from taking a number for more than it is. */
static void print_remarks(const struct command *command,
                          const struct device *dev,
                          const struct result *results, int n)
{
    for (int i = 0; i < n; i++) {
        const gh_stats *stats = &results[i].stats;

        print_overlap(&results[i]);
        print_idle(&command->options, &results[i]);
        if (!results[i].has_stats) {
            continue;
        }
        if (stats->replays == 0 && results[i].mode != MODE_OVERLAP) {
            printf("%s: nothing was replayed, so nothing of it was "
                   "compared\n",
                   mode_name(results[i].mode));
        }
        if (results[i].wgrad_replays != 0) {
            printf("%s: %" PRIu64 " of the replays are delayed gradients of "
                   "weights\n",
                   mode_name(results[i].mode), results[i].wgrad_replays);
        }
        print_growth(&results[i]);
        print_offload(&results[i]);
        print_stash(&results[i]);
        print_parts(&results[i]);
        print_suspends(&results[i]);
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

/* "host ms" is the time until the last call of the step was issued. */
void report_table(const struct command *command, const struct device *dev,
                  const struct result *results, int n)
{
    const bool whole = report_whole(command, results, n);

    printf("\n%-27s %11s %11s %9s %9s %11s %9s %9s %6s\n", "mode", "first loss",
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
        printf("bitwise equal: %s%s\n",
               report_all_equal(results, n) ? "yes" : "no",
               has_numbers(&results[0]) ? ""
                                        : ", as losses are no numbers, which "
                                          "shows nothing");
    }
}
