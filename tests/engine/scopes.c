/*
 * scopes.c - every scope of every kind of model, at every granularity.
 *
 * All sets of the six words are asked for.  A legal one must train to the
 * bits of an eager run, by graphs, in an order that the software device
 * draws, and so it must with the gradients of weights delayed; another must be
 * refused with a sentence.  Which is which is written here from the rules that
 * users know, not from the library.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tap/tap.h"
#include "tests/engine/soft.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ATTN = 1,
    MLP = 2,
    MOE = 4,
    MOE_ROUTER = 8,
    MOE_PREPROCESS = 16,
    MAMBA = 32,
    SETS = 64
};

static const char *const names[] = {
    "attn", "mlp", "moe", "moe_router", "moe_preprocess", "mamba"
};

/* Words that some layer of the model has, and can have. */
struct kind {
    const char *what;
    struct config config;
    unsigned words;
};

#define ROUTED (MOE_ROUTER | MOE_PREPROCESS)

static const struct kind kinds[] = {
    { "gpt", { .model = MODEL_GPT }, ATTN | MLP },
    { "mla", { .model = MODEL_MLA }, ATTN | MLP },
    { "moe",
      { .model = MODEL_MOE, .experts = 3, .top_k = 2 },
      ATTN | MOE | ROUTED },
    { "moe, drop and pad, shared",
      { .model = MODEL_MOE,
        .experts = 2,
        .top_k = 1,
        .drop_and_pad = true,
        .shared_expert = true },
      ATTN | MOE | ROUTED },
    { "moe, counted by the host",
      { .model = MODEL_MOE, .experts = 3, .top_k = 2, .dropless_host = true },
      ATTN | ROUTED },
    { "mla with experts, the first layer dense",
      { .model = MODEL_MLA,
        .experts = 3,
        .top_k = 2,
        .shared_expert = true,
        .dense_layers = 1 },
      ATTN | MLP | MOE | ROUTED },
    { "moe, the first layer dense, counted by the host",
      { .model = MODEL_MOE,
        .experts = 3,
        .top_k = 2,
        .dropless_host = true,
        .dense_layers = 1 },
      ATTN | MLP | ROUTED },
    { "mamba", { .model = MODEL_MAMBA, .state = 2 }, MAMBA },
    { "hybrid M*-E",
      { .model = MODEL_HYBRID, .experts = 3, .top_k = 2, .state = 2 },
      ATTN | MLP | MOE | ROUTED | MAMBA },
    { "hybrid EM*E",
      { .model = MODEL_HYBRID,
        .pattern = "EM*E",
        .experts = 2,
        .top_k = 1,
        .state = 2 },
      ATTN | MOE | ROUTED | MAMBA },
    { "hybrid E-, shared, counted by the host",
      { .model = MODEL_HYBRID,
        .pattern = "E-",
        .experts = 3,
        .top_k = 2,
        .shared_expert = true,
        .dropless_host = true },
      MLP | ROUTED },
};

static bool is_legal(const struct kind *kind, unsigned set)
{
    if ((set & ~kind->words) != 0) {
        return false;
    }
    if ((set & MOE) != 0 && (set & MOE_ROUTER) != 0) {
        return false;
    }
    return (set & MOE_PREPROCESS) == 0 || (set & MOE_ROUTER) != 0;
}

static void spell(unsigned set, char *text, size_t bytes)
{
    size_t used = 0;

    text[0] = '\0';
    for (int i = 0; i < 6; i++) {
        if ((set & 1u << i) != 0) {
            used += (size_t)snprintf(text + used, bytes - used, "%s%s",
                                     used > 0 ? "," : "", names[i]);
        }
    }
}

static struct options options_of(const struct kind *kind)
{
    struct options options = soft_options;
    const struct config sizes = options.config;

    options.config = kind->config;
    options.config.layers = kind->config.model == MODEL_HYBRID ? 4 : 2;
    options.config.hidden = sizes.hidden;
    options.config.heads = sizes.heads;
    options.config.seq = sizes.seq;
    options.config.batch = sizes.batch;
    options.config.seed = sizes.seed;
    options.counts[0] = 3;
    return options;
}

struct tally {
    unsigned legal, refused, bad, races, idle;
};

static void try_set(const struct kind *kind, struct options *options,
                    unsigned set, struct result *eager, struct tally *tally)
{
    char scope[96], settings[32], error[SOFT_ERROR];
    enum outcome outcome;
    bool fine;

    spell(set, scope, sizeof(scope));
    options->scope = scope;
    snprintf(settings, sizeof(settings), "SEED=%u", set + 1);
    outcome = soft_run(options, MODE_GRAPH, settings, eager, error);
    if (!is_legal(kind, set)) {
        tally->refused++;
        fine = outcome == ENDED_CLEARLY && strstr(error, "scope") != NULL;
    } else {
        tally->legal++;
        fine = outcome == ENDED_WELL;
        tally->races += soft.races(0, NULL) > 0;
        tally->idle += soft.calls("cuGraphLaunch") == 0;
    }
    if (!fine) {
        tally->bad++;
        diag("%s: %s by %s: outcome %d: %s", kind->what, scope,
             options->granularity, (int)outcome, error);
    }
}

static void walk(const struct kind *kind, struct options *options,
                 struct result *eager, const char *what)
{
    static const char *const granularities[] = { "part", "layer", "chunk" };
    struct tally tally = { 0 };

    for (int g = 0; g < 3; g++) {
        options->granularity = granularities[g];
        for (unsigned set = 0; set < SETS; set++) {
            try_set(kind, options, set, eager, &tally);
        }
    }
    is_int(tally.bad, 0,
           "%s: %u legal scopes give the eager run's bits, %u others are "
           "refused",
           what, tally.legal, tally.refused);
    is_int(tally.races, 0, "%s: no order of a legal scope has a race", what);
    is_int(tally.idle, 0, "%s: every legal scope replays graphs", what);
}

static void try_kind(const struct kind *kind)
{
    struct options options = options_of(kind);
    struct result eager = { 0 };
    char error[SOFT_ERROR], delayed[96];

    is_int(soft_run(&options, MODE_EAGER, "SEED=1", &eager, error), ENDED_WELL,
           "%s: an eager run ends well", kind->what);
    walk(kind, &options, &eager, kind->what);
    options.delay_wgrad = true;
    options.delay = 1;
    snprintf(delayed, sizeof(delayed), "%s, delayed", kind->what);
    walk(kind, &options, &eager, delayed);
    result_free(&eager);
}

int main(void)
{
    setenv("GRAPHHOOKS_LOG", "off", 0);
    if (soft_find() != 0) {
        ok(false, "the software device loads");
        return done_testing();
    }
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        try_kind(&kinds[i]);
    }
    return done_testing();
}
