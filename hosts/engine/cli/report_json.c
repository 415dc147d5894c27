/*
 * report_json.c - the JSON file: what was asked for, and every number.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "cli/report.h"

#include "cli/json.h"
#include "step/pipeline_schedule.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

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
    if (config_ep(config) > 1) {
        json_count(json, "ep", (uint64_t)config->ep);
    }
    if (config->pattern != NULL) {
        json_text(json, "pattern", config->pattern);
    }
    if (config_has(config, PART_MOE_EXPERTS)) {
        json_count(json, "experts", (uint64_t)config->experts);
        json_count(json, "dense_layers", (uint64_t)config->dense_layers);
        json_count(json, "top_k", (uint64_t)config->top_k);
        json_bool(json, "shared_expert", config->shared_expert);
        if (config->busy_expert) {
            json_bool(json, "busy_expert", true);
        }
        json_text(json, "dispatch",
                  config->drop_and_pad    ? "drop and pad"
                  : config->dropless_host ? "dropless by host"
                  : config->sync_free     ? "sync-free"
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
    json_real(json, "median", report_quantile(values, n, 0.5));
    json_real(json, "min", report_quantile(values, n, 0.0));
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
    json_count(json, "agreements", stats->agreements);
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

static void write_overlap(struct json *json, const gh_overlap_stats *overlap)
{
    json_begin(json, "overlap", '{');
    json_count(json, "order", overlap->order);
    json_count(json, "runs", overlap->runs);
    json_count(json, "nodes", overlap->nodes);
    json_count(json, "waits", overlap->waits);
    json_real(json, "predicted_ns", overlap->predicted_ns);
    json_real(json, "predicted_fixed_ns", overlap->predicted_fixed_ns);
    json_real(json, "compute_ns", overlap->compute_ns);
    json_real(json, "comm_ns", overlap->comm_ns);
    json_end(json, '}');
}

static void write_memory(struct json *json, const gh_memory_stats *memory)
{
    json_begin(json, "memory", '{');
    json_count(json, "device_bytes", memory->device_bytes);
    json_count(json, "pinned_bytes", memory->pinned_bytes);
    json_count(json, "lent_bytes", memory->lent_bytes);
    json_count(json, "slot_bytes", memory->slot_bytes);
    json_count(json, "bank_bytes", memory->bank_bytes);
    json_count(json, "offset_bytes", memory->offset_bytes);
    json_count(json, "ring_bytes", memory->ring_bytes);
    json_count(json, "kept_bytes", memory->kept_bytes);
    json_count(json, "check_bytes", memory->check_bytes);
    json_count(json, "held_bytes", memory->held_bytes);
    json_count(json, "spare_bytes", memory->spare_bytes);
    json_count(json, "forecast_bytes", memory->forecast_bytes);
    json_count(json, "device_given", memory->device_given);
    json_count(json, "pinned_given", memory->pinned_given);
    json_count(json, "suspends", memory->suspends);
    json_count(json, "suspend_ns", memory->suspend_ns);
    json_count(json, "resume_ns", memory->resume_ns);
    json_end(json, '}');
}

static void write_stash(struct json *json, const gh_stash_stats *stash)
{
    json_begin(json, "stash", '{');
    json_count(json, "bytes", stash->bytes);
    json_count(json, "page_bytes", stash->page_bytes);
    json_count(json, "held_bytes", stash->held_bytes);
    json_count(json, "peak_bytes", stash->peak_bytes);
    json_count(json, "worst_case_bytes", stash->worst_case_bytes);
    json_count(json, "refused", stash->refused);
    json_count(json, "reruns", stash->reruns);
    json_count(json, "spill_bytes", stash->spill_bytes);
    json_count(json, "spilled", stash->spilled);
    json_end(json, '}');
}

static void write_idle(struct json *json, const struct options *options,
                       const struct result *result)
{
    write_times(json, "idle", result->idle, result->n_timed);
    write_times(json, "idle_by_passes", result->idle_predicted,
                result->n_timed);
    json_reals(json, "idle_of_stages", result->stage_idle, options_pp(options));
    json_begin(json, "pass_ms", '{');
    for (int k = 0; k < GH_ACTIONS; k++) {
        if (result->pass_ms[k] > 0) {
            json_real(json, gh_action_name((enum gh_action_kind)k),
                      result->pass_ms[k]);
        }
    }
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
    json_real(json, "tokens_per_s", report_tokens_a_second(result));
    if (options->n_cp > 0) {
        json_counts(json, "cp_microbatches", result->shaped, options->n_cp);
    }
    json_count(json, "device_peak_bytes", result->peak_bytes);
    json_counts(json, "device_bytes_after_step", result->used_bytes,
                result->steps);
    if (result->exchanges != 0) {
        json_count(json, "exchanges", result->exchanges);
        json_count(json, "exchanges_captured", result->exchanges_captured);
        json_count(json, "exchanged_bytes", result->exchanged_bytes);
    }
    if (result->exchange.struct_size != 0) {
        json_text(json, "exchange",
                  report_exchange_kind(result->exchange.kind));
        json_count(json, "exchange_copy_bytes", result->exchange.copied_bytes);
        json_count(json, "exchange_nccl_bytes", result->exchange.nccl_bytes);
        json_count(json, "exchange_given_bytes",
                   result->exchange.given_bytes);
        json_count(json, "exchange_kernel_calls",
                   result->exchange.kernel_calls);
    }
    write_times(json, "step_ms", result->step_ms, result->steps);
    write_times(json, "host_ms", result->host_ms, result->steps);
    if (result->n_timed > 0) {
        write_idle(json, options, result);
    }
    if (result->has_stats) {
        write_stats(json, result);
        if (result->offload.struct_size != 0) {
            write_offload(json, &result->offload);
        }
        if (result->overlap.struct_size != 0) {
            write_overlap(json, &result->overlap);
        }
        if (result->stash.struct_size != 0) {
            write_stash(json, &result->stash);
        }
        if (result->memory.struct_size != 0) {
            write_memory(json, &result->memory);
        }
        json_counts(json, "chunk_slots", result->slots, result->n_chunks);
        json_counts(json, "chunk_slots_used", result->slots_used,
                    result->n_chunks);
        json_counts(json, "chunk_slot_bytes", result->slot_bytes,
                    result->n_chunks);
        json_counts(json, "landing_slot_bytes", result->landing_slot_bytes,
                    result->n_chunks);
        json_count(json, "landing_bytes", result->landing_bytes);
        json_counts(json, "layer_slot_bytes", result->layer_bytes,
                    result->n_layers);
        json_count(json, "embedding_slot_bytes", result->embedding_bytes);
        json_count(json, "head_slot_bytes", result->head_bytes);
        json_count(json, "rest_slot_bytes", result->rest_bytes);
        json_counts(json, "recordings_after_step", result->recordings,
                    result->steps);
        json_count(json, "recorded_last_in_step", (uint64_t)result->settled);
        json_count(json, "later_grown_bytes", result->grown_bytes);
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
    if (options_pp(&command->options) > 1) {
        json_text(&json, "schedule", pipeline_schedule_name(&command->options));
        json_real(&json, "idle_predicted",
                  pipeline_idle(&command->options,
                                options_max_count(&command->options)));
    }
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
