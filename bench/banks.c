/*
 * banks.c - what a bank costs: to select it, to give it sequences, to keep it.
 *
 * Selecting: with --callgrind, as many banks are declared as --passes says.
 * One of them is recorded, and its pass is replayed through bench_replay(),
 * for hook_instructions.sh to count.
 *
 * Sequences: gh_packed_set() of one microbatch, over and over.  Host time is
 * the time of one call.  Device time is the time between two events around
 * many calls, divided by their number.  If the device is faster than the host,
 * it is therefore the host's time.
 *
 * Memory: the library's own buffers after eight lengths are recorded, once
 * from the largest on and once from the smallest on, relative to those of the
 * largest alone; and the sum of what each length takes alone, as without
 * banks.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "bench/bench.h"

#include <stdlib.h>

#define LAYERS 16u
#define LENGTHS 8u
#define SEQUENCES 4096u
#define CALLS 500u

static uint32_t add_bank(const struct bench *bench, gh_session *session,
                         uint32_t tokens, uint32_t sequences)
{
    const gh_bank_desc desc = { .struct_size = sizeof(desc),
                                .tokens = tokens,
                                .sequences = sequences };
    gh_error err = { "" };
    uint32_t bank = 0;

    bench_need_gh(bench->gh->bank_add(session, &desc, &bank, &err),
                  "gh_bank_add", &err);
    return bank;
}

static void end_step(const struct bench *bench, gh_session *session)
{
    gh_error err = { "" };

    bench_need_gh(bench->gh->iteration_end(session, &err), "gh_iteration_end",
                  &err);
}

/* ---- selecting ----------------------------------------------------------- */

static void count(const struct bench *bench)
{
    const uint32_t banks = (uint32_t)bench->options.passes;
    gh_session *session = bench_session(bench, 1, 1);
    gh_decision decision = { .struct_size = sizeof(decision) };
    gh_pass pass = bench_pass(bench, 0, GH_FORWARD, 0);

    for (uint32_t i = 0; i < banks; i++) {
        pass.bank = add_bank(bench, session, 64 + i, 0);
    }
    bench_run_pass(bench, session, &pass, 1);
    end_step(bench, session);
    for (int i = 0; i < 1024; i++) {
        bench_replay(bench->gh, session, &pass, &decision);
        if (decision.action != GH_ACTION_REPLAYED) {
            bench_die("a pass that was to be replayed got action %u",
                      decision.action);
        }
        bench_sync(bench);
        end_step(bench, session);
    }
    printf("captured %u replayed 1024\n", banks);
    bench->gh->session_close(session);
}

/* ---- sequences ----------------------------------------------------------- */

static void set_packed(const struct bench *bench, gh_session *session,
                       const gh_packed *packed)
{
    gh_packed_buffers buffers = { .struct_size = sizeof(buffers) };
    gh_error err = { "" };

    bench_need_gh(bench->gh->packed_set(session, packed, &buffers, &err),
                  "gh_packed_set", &err);
}

static void measure_packed(const struct bench *bench, FILE *file, uint32_t n,
                           int rounds)
{
    gh_session *session = bench_session(bench, 1, 1);
    double *host = malloc((size_t)rounds * sizeof(*host));
    double *device = malloc((size_t)rounds * sizeof(*device));
    int32_t *lengths = malloc(n * sizeof(*lengths));
    const gh_packed packed = {
        .struct_size = sizeof(packed),
        .bank = add_bank(bench, session, 64 * SEQUENCES, SEQUENCES),
        .n_sequences = n,
        .stream = bench->stream,
        .lengths = lengths,
    };
    CUevent before, after;

    if (host == NULL || device == NULL || lengths == NULL) {
        bench_die("no memory for %d samples", rounds);
    }
    for (uint32_t i = 0; i < n; i++) {
        lengths[i] = (int32_t)(1 + i % 64);
    }
    NEED(bench, cuEventCreate, (&before, CU_EVENT_DEFAULT));
    NEED(bench, cuEventCreate, (&after, CU_EVENT_DEFAULT));
    for (int round = -1; round < rounds; round++) {
        const size_t at = (size_t)(round < 0 ? 0 : round);
        const uint64_t begin = bench_now_ns();
        float ms = 0.0f;

        NEED(bench, cuEventRecord, (before, bench->stream));
        for (uint32_t i = 0; i < CALLS; i++) {
            set_packed(bench, session, &packed);
        }
        NEED(bench, cuEventRecord, (after, bench->stream));
        host[at] = (double)(bench_now_ns() - begin) / CALLS;
        bench_sync(bench);
        NEED(bench, cuEventElapsedTime, (&ms, before, after));
        device[at] = (double)ms * 1e6 / CALLS;
    }
    fprintf(file, "  {\"sequences\": %u, \"capacity\": %u, ", n, SEQUENCES);
    bench_json_spread(file, "host_ns", bench_spread(host, (size_t)rounds));
    bench_json_spread(file, "device_ns", bench_spread(device, (size_t)rounds));
    fprintf(file, "\"launches\": %u}", (n + 480) / 480);
    bench->gh->session_close(session);
    NEED(bench, cuEventDestroy, (before));
    NEED(bench, cuEventDestroy, (after));
    free(host);
    free(device);
    free(lengths);
}

/* ---- memory -------------------------------------------------------------- */

/* Records the passes of a length.  Each pass has another input address, so the
 * input is copied. */
static void record_length(const struct bench *bench, gh_session *session,
                          uint32_t bank, uint64_t bytes, CUdeviceptr inputs)
{
    gh_buffer input = { (void *)(uintptr_t)inputs, bytes, 0, 0 };

    for (uint32_t i = 0; i < 2 * LAYERS; i++) {
        const bool forward = i < LAYERS;
        gh_pass pass =
            bench_pass(bench, forward ? i : 2 * LAYERS - 1 - i,
                       forward ? GH_FORWARD : GH_BACKWARD, 0);

        input.address = (void *)(uintptr_t)(inputs + 256 * i);
        pass.inputs = &input;
        pass.bank = bank;
        bench_run_pass(bench, session, &pass, 1);
    }
    bench_sync(bench);
    end_step(bench, session);
}

/* The library's bytes for n lengths from `first` on, `step` apart. */
static uint64_t bytes_of(const struct bench *bench, CUdeviceptr inputs,
                         int first, int step, int n, uint64_t row)
{
    gh_session *session = bench_session(bench, LAYERS, 1);
    uint32_t banks[LENGTHS];
    uint64_t bytes;

    for (uint32_t i = 0; i < LENGTHS; i++) {
        banks[i] = add_bank(bench, session, 64 * (i + 1), 0);
    }
    for (int k = 0, i = first; k < n; k++, i += step) {
        record_length(bench, session, banks[i], 64 * (uint64_t)(i + 1) * row,
                      inputs);
    }
    bytes = bench_stats(bench, session).static_bytes;
    bench->gh->session_close(session);
    return bytes;
}

/* The bytes of one length, in a session that knows no other. */
static uint64_t bytes_alone(const struct bench *bench, CUdeviceptr inputs,
                            int i, uint64_t row)
{
    gh_session *session = bench_session(bench, LAYERS, 1);
    uint64_t bytes;

    record_length(bench, session, 0, 64 * (uint64_t)(i + 1) * row, inputs);
    bytes = bench_stats(bench, session).static_bytes;
    bench->gh->session_close(session);
    return bytes;
}

static void measure_memory(const struct bench *bench, FILE *file)
{
    const uint64_t row = 1024;
    const int last = (int)LENGTHS - 1;
    CUdeviceptr inputs;
    uint64_t alone, falling, rising, apart = 0;

    NEED(bench, cuMemAlloc, (&inputs, 64 * LENGTHS * row + 65536));
    alone = bytes_of(bench, inputs, last, 0, 1, row);
    falling = bytes_of(bench, inputs, last, -1, (int)LENGTHS, row);
    rising = bytes_of(bench, inputs, 0, 1, (int)LENGTHS, row);
    for (int i = 0; i <= last; i++) {
        apart += bytes_alone(bench, inputs, i, row);
    }
    NEED(bench, cuMemFree, (inputs));
    fprintf(file,
            "\"memory\": {\"lengths\": %u, \"largest_alone\": %llu, "
            "\"largest_first\": %llu, \"smallest_first\": %llu, "
            "\"apart\": %llu, \"ratio\": %.4f, "
            "\"ratio_smallest_first\": %.4f, \"apart_over_largest\": %.4f}",
            LENGTHS, (unsigned long long)alone, (unsigned long long)falling,
            (unsigned long long)rising, (unsigned long long)apart,
            (double)falling / (double)alone, (double)rising / (double)alone,
            (double)apart / (double)alone);
}

int main(int argc, char **argv)
{
    static const uint32_t sequences[] = { 1, 16, 256, 479, 4096 };
    const int n = sizeof(sequences) / sizeof(sequences[0]);
    const struct bench_options options =
        bench_parse(argc, argv, "Measures what banks cost.");
    struct bench bench;
    FILE *file;

    bench_open(&bench, &options);
    if (options.callgrind) {
        count(&bench);
        bench_close(&bench);
        return 0;
    }
    file = bench_json_begin(&bench, "banks");
    fprintf(file, "\"packed\": [\n");
    for (int i = 0; i < n; i++) {
        measure_packed(&bench, file, sequences[i],
                       options.rounds != 0 ? options.rounds : 100);
        fprintf(file, i + 1 < n ? ",\n" : "\n], ");
    }
    measure_memory(&bench, file);
    bench_json_end(&bench, file);
    bench_close(&bench);
    return 0;
}
