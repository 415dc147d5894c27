/*
 * orders.c - every legal order gives the same numbers, and every wait counts.
 *
 * The software device runs what is issued in any order that the program
 * allows.  Over many seeds the losses and weights must stay what they are,
 * without a race; and when one wait is dropped, a race must be reported.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tap/tap.h"
#include "tests/engine/soft.h"

#include <stdio.h>
#include <stdlib.h>

/* Every run opens and closes everything, which is slow when watched. */
#ifdef __SANITIZE_ADDRESS__
#define FEWER 20
#else
#define FEWER 5
#endif

static struct result eager;

static void try_seeds(const struct options *options, enum mode mode,
                      unsigned seeds, const char *what)
{
    unsigned bad = 0, races = 0;
    char settings[64], error[SOFT_ERROR];

    for (unsigned seed = 1; seed <= seeds; seed++) {
        snprintf(settings, sizeof(settings), "SEED=%u", seed);
        if (soft_run(options, mode, settings, &eager, error) != ENDED_WELL) {
            bad++;
            diag("%s: %s: %s", what, settings, error);
        }
        races += soft.races(0, NULL) > 0;
    }
    is_int(bad, 0, "%s: %u orders give the same losses and weights", what,
           seeds);
    is_int(races, 0, "%s: none of %u orders has a race", what, seeds);
}

/* Drops every wait in turn; all must be caught but `spare`, of which the
 * caller knows why another one is enough. */
static void drop_some_waits(const struct options *options, enum mode mode,
                            uint64_t spare, const char *what)
{
    softcuda_counts counts;
    uint64_t missed = 0;
    char settings[64], error[SOFT_ERROR];

    (void)soft_run(options, mode, "SEED=1", &eager, error);
    soft.count(&counts);
    for (uint64_t n = 1; n <= counts.waits; n++) {
        struct result any = { 0 };

        snprintf(settings, sizeof(settings), "SEED=1 DROP_WAIT=%llu",
                 (unsigned long long)n);
        (void)soft_run(options, mode, settings, &any, error);
        if (soft.races(0, NULL) == 0) {
            missed++;
            diag("%s: wait %llu of %llu is not missed", what,
                 (unsigned long long)n, (unsigned long long)counts.waits);
        }
        result_free(&any);
    }
    ok(counts.waits > 0 && missed == spare,
       "%s: each of %llu waits but %llu, dropped, is reported as a race", what,
       (unsigned long long)counts.waits, (unsigned long long)spare);
}

static void drop_waits(const struct options *options, enum mode mode,
                       const char *what)
{
    drop_some_waits(options, mode, 0, what);
}

static struct options many_streams(void)
{
    struct options options = soft_options;

    options.counts[0] = 4;
    options.counts[1] = 5;
    options.n_counts = 2;
    options.in_flight = 3;
    options.streams = 3;
    options.config.layers = 2;
    return options;
}

/* Another model than gpt: no order of the step's streams may show. */
static void try_model(const char *what, struct config config)
{
    struct options options = many_streams();
    char named[96];

    config.layers = options.config.layers;
    config.hidden = options.config.hidden;
    config.heads = options.config.heads;
    config.seq = options.config.seq;
    config.batch = options.config.batch;
    config.seed = options.config.seed;
    options.config = config;
    result_free(&eager);
    snprintf(named, sizeof(named), "%s, eager", what);
    try_seeds(&options, MODE_EAGER, 60 / FEWER, named);
    if (!config.dropless_host) {
        snprintf(named, sizeof(named), "%s, step", what);
        try_seeds(&options, MODE_STEP, 60 / FEWER, named);
    }
}

/* The numbers are those of a run that delays nothing. */
static void try_delay(struct options options, int delay, const char *what)
{
    char named[96], error[SOFT_ERROR];

    result_free(&eager);
    is_int(soft_run(&options, MODE_PLAIN, "SEED=1", &eager, error), ENDED_WELL,
           "%s: a run that delays nothing ends well", what);
    options.delay_wgrad = true;
    options.delay = delay;
    snprintf(named, sizeof(named), "%s, eager", what);
    try_seeds(&options, MODE_EAGER, 40 / FEWER, named);
    snprintf(named, sizeof(named), "%s, step", what);
    try_seeds(&options, MODE_STEP, 40 / FEWER, named);
    snprintf(named, sizeof(named), "%s, graph", what);
    try_seeds(&options, MODE_GRAPH, 100 / FEWER, named);
}

static void try_delays(void)
{
    struct options options = many_streams();

    try_delay(options, 0, "weights' gradients apart");
    try_delay(options, 1, "weights' gradients a microbatch later");
    try_delay(options, 5, "weights' gradients at the end");
    options.streams = 1;
    try_delay(options, 1, "weights' gradients later on one stream");
    options = many_streams();
    options.granularity = "part";
    options.in_flight = 1;
    try_delay(options, 2, "weights' gradients later, by part");

    /* With nine microbatches a slot's last user was on the same stream, as
     * above; but its weights' gradients were on theirs, for which three slots
     * wait in each of the two steps that come after a wait of the host. */
    options = many_streams();
    options.counts[0] = 9;
    options.n_counts = 1;
    options.in_flight = 2;
    options.delay_wgrad = true;
    options.delay = 1;
    result_free(&eager);
    drop_waits(&options, MODE_EAGER, "weights' gradients later, eager");
    drop_some_waits(&options, MODE_GRAPH, 6, "weights' gradients later, graph");
}

/* A bank each, packed of documents or not. */
static void try_banks(const char *what, struct config config)
{
    const char *given = getenv("GRAPHHOOKS_TEST_SEEDS");
    const unsigned seeds =
        given != NULL ? (unsigned)atoi(given) : 100 / FEWER;
    struct options options = many_streams();
    char named[96];

    config.layers = options.config.layers;
    config.hidden = options.config.hidden;
    config.heads = options.config.heads;
    config.batch = options.config.batch;
    config.seed = options.config.seed;
    config.seq = 12;
    options.in_flight = 2;
    options.config = config;
    options.lengths[0] = 12;
    options.lengths[1] = 4;
    options.lengths[2] = 8;
    options.n_lengths = 3;
    result_free(&eager);
    snprintf(named, sizeof(named), "%s, three lengths, eager", what);
    try_seeds(&options, MODE_EAGER, 20 / FEWER, named);
    snprintf(named, sizeof(named), "%s, three lengths", what);
    try_seeds(&options, MODE_GRAPH, seeds, named);

    options.packed = true;
    options.config.documents = config.batch * 3;
    result_free(&eager);
    snprintf(named, sizeof(named), "%s, packed, eager", what);
    try_seeds(&options, MODE_EAGER, 20 / FEWER, named);
    snprintf(named, sizeof(named), "%s, packed", what);
    try_seeds(&options, MODE_GRAPH, seeds, named);
}

static void drop_waits_of_banks(void)
{
    struct options options = many_streams();

    options.counts[0] = 8;
    options.n_counts = 1;
    options.in_flight = 2;
    options.lengths[0] = options.config.seq;
    options.lengths[1] = 2;
    options.n_lengths = 2;
    options.packed = true;
    options.config.documents = options.config.batch * 2;
    result_free(&eager);
    drop_waits(&options, MODE_GRAPH, "packed, two lengths");
}

int main(void)
{
    struct options options = many_streams();

    setenv("GRAPHHOOKS_LOG", "off", 0);
    if (soft_find() != 0) {
        ok(false, "the software device loads");
        return done_testing();
    }

    try_seeds(&options, MODE_EAGER, 100 / FEWER, "eager");
    try_seeds(&options, MODE_STEP, 100 / FEWER, "step");
    try_seeds(&options, MODE_GRAPH, 1400 / FEWER, "graph");
    drop_waits(&options, MODE_EAGER, "eager");
    drop_waits(&options, MODE_GRAPH, "graph");
    options.in_flight = 2; /* slots now go from stream to stream */
    try_seeds(&options, MODE_EAGER, 100 / FEWER, "eager, two in flight");
    try_seeds(&options, MODE_STEP, 100 / FEWER, "step, two in flight");
    try_seeds(&options, MODE_GRAPH, 200 / FEWER, "graph, two in flight");
    options.granularity = "part";
    options.scope = "mlp";
    try_seeds(&options, MODE_GRAPH, 200 / FEWER, "graph of mlp");
    options.scope = NULL;
    options.legacy = true;
    options.streams = 1;
    try_seeds(&options, MODE_GRAPH, 200 / FEWER,
              "graph, legacy stream, by part");

    /* The host waits between steps, which makes a wait for a slot's last
     * user of the step before one too many.  With eight microbatches that
     * user was on the same stream, and every wait that is left counts. */
    result_free(&eager);
    options = many_streams();
    options.counts[0] = 8;
    options.n_counts = 1;
    options.in_flight = 2;
    drop_waits(&options, MODE_EAGER, "eager, two in flight");
    drop_waits(&options, MODE_GRAPH, "graph, two in flight");
    options.granularity = "part";
    options.scope = "attn";
    drop_waits(&options, MODE_GRAPH, "graph of attn, two in flight");

    try_delays();
    try_model("moe", (struct config){ .model = MODEL_MOE,
                                      .experts = 3,
                                      .top_k = 2,
                                      .shared_expert = true });
    try_model("mla", (struct config){ .model = MODEL_MLA });
    try_model("mamba", (struct config){ .model = MODEL_MAMBA, .state = 2 });
    try_model("hybrid", (struct config){ .model = MODEL_HYBRID,
                                         .pattern = "EM",
                                         .experts = 3,
                                         .top_k = 2,
                                         .state = 2 });
    try_model("moe, drop and pad", (struct config){ .model = MODEL_MOE,
                                                    .experts = 2,
                                                    .top_k = 1,
                                                    .drop_and_pad = true });
    try_model("moe, dropless by host",
              (struct config){ .model = MODEL_MOE,
                               .experts = 3,
                               .top_k = 2,
                               .dropless_host = true });

    try_banks("gpt", (struct config){ .model = MODEL_GPT });
    try_banks("mla", (struct config){ .model = MODEL_MLA });
    try_banks("moe", (struct config){ .model = MODEL_MOE,
                                      .experts = 3,
                                      .top_k = 2 });
    try_banks("hybrid", (struct config){ .model = MODEL_HYBRID,
                                         .pattern = "*M",
                                         .experts = 3,
                                         .top_k = 2,
                                         .state = 2 });
    drop_waits_of_banks();

    result_free(&eager);
    return done_testing();
}
