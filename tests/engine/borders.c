/*
 * borders.c - what crosses between segments is asked for by its name.
 *
 * A step is run with gh_border_find() counted, or lying.  The engine must ask
 * for each tensor that the plan says it reads, and must not go on with one
 * that is not where its own set has it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "cli/find.h"
#include "step/host.h"
#include "step/schedule.h"
#include "tap/tap.h"
#include "tests/engine/soft.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const gh_api *real;
static unsigned asked[2][GH_TENSOR_COUNT]; /* by direction and tensor */
static gh_tensor lie;                      /* the tensor to lie about */
static enum {
    TRUTH,
    OTHER_ADDRESS,
    OTHER_SIZE,
    NOT_FOUND
} manner;

static gh_status find(const gh_session *session, const gh_border_key *key,
                      gh_buffer *buffer_p, gh_error *err)
{
    gh_status status = real->border_find(session, key, buffer_p, err);

    asked[key->direction][key->tensor]++;
    if (status != GH_OK || key->tensor != lie) {
        return status;
    }
    switch (manner) {
    case OTHER_ADDRESS:
        buffer_p->address = (char *)buffer_p->address + 256;
        break;
    case OTHER_SIZE:
        buffer_p->bytes /= 2;
        break;
    case NOT_FOUND:
        snprintf(err->text, sizeof(err->text), "nobody has left it");
        return GH_ERR_NOT_FOUND;
    default:
        break;
    }
    return GH_OK;
}

static struct options options_of(bool shared_expert)
{
    struct options options = soft_options;

    options.config.model = MODEL_MOE;
    options.config.experts = 3;
    options.config.top_k = 2;
    options.config.shared_expert = shared_expert;
    options.library = soft_library;
    options.counts[0] = 1;
    options.streams = 1;
    options.scope = "attn,moe_router,moe_preprocess";
    return options;
}

/* One step of one microbatch.  0, or -1 with the engine's sentence. */
static int run_step(const struct options *options, char *error)
{
    static char path[4096];
    struct device dev = { 0 };
    struct trainer trainer = { 0 };
    gh_api table;
    int status = -1;

    memset(asked, 0, sizeof(asked));
    error[0] = '\0';
    find_companion(FIND_SOFTCUDA, path, sizeof(path));
    if (soft.configure("SEED=1") != 0 || device_open(&dev, path, 0) != 0) {
        return -1;
    }
    if (trainer_init(&trainer, options, MODE_GRAPH, &dev) == 0) {
        trainer.host = host_open(&trainer, MODE_GRAPH, error, SOFT_ERROR);
    }
    if (trainer.host != NULL) {
        real = trainer.host->gh;
        table = *real;
        table.border_find = find;
        trainer.host->gh = &table;
        (void)dev.drv.cuMemsetD32Async(
            device_address(trainer.tokens), 1,
            (size_t)(2 * config_rows(&options->config)), NULL);
        (void)dev.drv.cuCtxSynchronize();
        status = schedule_step(&trainer, 1);
        snprintf(error, SOFT_ERROR, "%s", host_error(trainer.host));
        (void)dev.drv.cuCtxSynchronize();
        host_close(trainer.host);
    }
    trainer_free(&trainer);
    device_close(&dev);
    return status;
}

static void is_asked(gh_tensor tensor, unsigned forward, unsigned backward)
{
    is_int(asked[GH_FORWARD][tensor], forward,
           "%s: forward, %u buffers are asked for", real->tensor_name(tensor),
           forward);
    is_int(asked[GH_BACKWARD][tensor], backward,
           "%s: backward, %u gradients are asked for",
           real->tensor_name(tensor), backward);
}

/* Attention, router and preprocess; then what is eager. */
static void test_partial_capture(void)
{
    struct options options = options_of(false);
    char error[SOFT_ERROR];

    lie = GH_TENSOR_NONE;
    is_int(run_step(&options, error), 0, "a step with a partial capture runs");
    is_asked(GH_TENSOR_HIDDEN, 1, 1);
    is_asked(GH_TENSOR_RESIDUAL, 1, 1);
    is_asked(GH_TENSOR_PROBS, 1, 1);
    is_asked(GH_TENSOR_ROUTING_MAP, 1, 0);
    is_asked(GH_TENSOR_DISPATCH, 4, 0);
    is_asked(GH_TENSOR_SHARED_OUTPUT, 0, 0);
}

static void test_by_part(void)
{
    struct options options = options_of(true);
    char error[SOFT_ERROR];

    lie = GH_TENSOR_NONE;
    options.granularity = "part";
    options.scope = NULL;
    is_int(run_step(&options, error), 0, "a step part by part runs");
    is_asked(GH_TENSOR_HIDDEN, 6, 6);
    is_int(asked[GH_BACKWARD][GH_TENSOR_PROBS], 1,
           "only the router asks for the gradient of its probs");
    is_int(asked[GH_BACKWARD][GH_TENSOR_RESIDUAL], 1,
           "and for that of the residual");
}

static void test_lies(void)
{
    static const gh_tensor tensors[] = {
        GH_TENSOR_HIDDEN,   GH_TENSOR_RESIDUAL,    GH_TENSOR_PROBS,
        GH_TENSOR_DISPATCH, GH_TENSOR_ROUTING_MAP,
    };
    struct options options = options_of(false);
    char error[SOFT_ERROR];

    for (size_t i = 0; i < sizeof(tensors) / sizeof(tensors[0]); i++) {
        lie = tensors[i];
        manner = OTHER_ADDRESS;
        ok(run_step(&options, error) != 0 &&
               strstr(error, "in the set") != NULL &&
               strstr(error, real->tensor_name(lie)) != NULL,
           "%s: one elsewhere than in the set ends the step by name",
           real->tensor_name(lie));
        diag("%s", error);
    }
    manner = OTHER_SIZE;
    ok(run_step(&options, error) != 0 && strstr(error, "in the set") != NULL,
       "so is one of another size");
    manner = NOT_FOUND;
    ok(run_step(&options, error) != 0 &&
           strstr(error, "nobody has left it") != NULL,
       "what is not found is said in the library's words");
}

int main(void)
{
    setenv("GRAPHHOOKS_LOG", "off", 0);
    if (soft_find() != 0) {
        ok(false, "the software device loads");
        return done_testing();
    }
    test_partial_capture();
    test_by_part();
    test_lies();
    return done_testing();
}
