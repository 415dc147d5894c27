/*
 * A caller with larger structs is served while their unknown tail is zero,
 * and refused with the offset of the first byte that is not.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <graphhooks.h>

#include "abi/host.h"

#define TAIL 16

/* What the headers of a later release would make of a struct. */
#define LATER(type) \
    struct { \
        type it; \
        unsigned char tail[TAIL]; \
    }
#define INIT(later) \
    (memset(&(later), 0, sizeof(later)), \
     (later).it.struct_size = sizeof(later))

/* No driver is needed, as every pass runs eagerly. */
static const char *const eager[] = { "GRAPHHOOKS_ENABLE=0", NULL };
static const gh_api *gh;
static gh_error err;

/* Calls for each size and tail that a struct may come with. */
#define TEST_STRUCT(type, later, first_size, call) \
    do { \
        char offset[64]; \
        size_t last = sizeof(type) + TAIL - 1; \
\
        (later).it.struct_size = sizeof(later); \
        is_status(call, GH_OK, &err, #type " with a zero tail is taken"); \
\
        (later).tail[0] = 1; \
        snprintf(offset, sizeof(offset), "byte %zu", sizeof(type)); \
        is_status(call, GH_ERR_UNSUPPORTED, &err, \
                  #type " with a set first byte of its tail is refused"); \
        ok(strstr(err.text, offset) != NULL && \
               strstr(err.text, #type) != NULL, \
           "the refusal names " #type " and %s", offset); \
\
        (later).tail[0] = 0; \
        (later).tail[TAIL - 1] = 0x80; \
        snprintf(offset, sizeof(offset), "byte %zu", last); \
        is_status(call, GH_ERR_UNSUPPORTED, &err, \
                  #type " with a set last byte of its tail is refused"); \
        ok(strstr(err.text, offset) != NULL, \
           "the refusal of " #type " names %s", offset); \
\
        (later).tail[TAIL - 1] = 0; \
        (later).it.struct_size = (uint32_t)(first_size) - 1; \
        is_status(call, GH_ERR_ABI, &err, \
                  #type " smaller than in its first release is refused"); \
        ok(strstr(err.text, #type) != NULL, \
           "that refusal names " #type); \
        (later).it.struct_size = 0; \
        is_status(call, GH_ERR_ABI, &err, \
                  #type " without a struct_size is refused"); \
        (later).it.struct_size = sizeof(later); \
    } while (0)

static gh_status add_layer(const gh_layer_desc *layer)
{
    gh_model *model;
    gh_status status;

    memset(&err, 0, sizeof(err));
    gh->model_create(&model, NULL);
    status = gh->model_add_layer(model, layer, &err);
    gh->model_destroy(model);
    return status;
}

static gh_session *opened; /* by the last open_session() that went well */

static gh_status open_session(const gh_session_desc *desc)
{
    gh_status status;

    memset(&err, 0, sizeof(err));
    gh->session_close(opened);
    opened = NULL;
    status = gh->session_open(desc, &opened, &err);
    if (status != GH_OK && opened != NULL) {
        diag("a failed gh_session_open wrote its output");
        return GH_ERR_INTERNAL;
    }
    return status;
}

static gh_status one_pass(const gh_pass *pass, gh_decision *decision)
{
    gh_status status;

    memset(&err, 0, sizeof(err));
    status = gh->layer_enter(opened, pass, decision, &err);
    if (status == GH_OK) {
        gh->layer_cancel(opened, NULL);
    }
    return status;
}

static gh_status exit_pass(const gh_pass *pass)
{
    gh_pass plain = { .struct_size = sizeof(plain) };
    gh_decision decision = { .struct_size = sizeof(decision) };
    gh_status status;

    memset(&err, 0, sizeof(err));
    gh->iteration_end(opened, NULL); /* the forward before has no backward */
    status = gh->layer_enter(opened, &plain, &decision, &err);
    if (status != GH_OK) {
        return GH_ERR_INTERNAL;
    }
    status = gh->layer_exit(opened, pass, &err);
    gh->layer_cancel(opened, NULL);
    return status;
}

static void test_outputs_keep_the_callers_size(void)
{
    LATER(gh_segment) segment;
    LATER(gh_stats) stats;

    INIT(segment);
    TEST_STRUCT(gh_segment, segment, GH_SIZE_THROUGH(gh_segment, reason),
                gh->plan_segment(opened, 0, 0, &segment.it, &err));
    is_int(segment.it.struct_size, sizeof(segment),
           "a larger gh_segment keeps its size");
    INIT(stats);
    TEST_STRUCT(gh_stats, stats, GH_SIZE_THROUGH(gh_stats, check_failures),
                gh->session_stats(opened, &stats.it, &err));
    stats.it.struct_size = 248;
    is_status(gh->session_stats(opened, &stats.it, &err), GH_ERR_ABI, &err,
              "the gh_stats of 0.2, whose middle is another, is refused");
}

static void test_passes(void)
{
    LATER(gh_pass) pass;
    LATER(gh_decision) decision;
    LATER(gh_ranks) ranks;
    const size_t pass_first = GH_SIZE_THROUGH(gh_pass, outputs);

    INIT(pass);
    INIT(decision);
    TEST_STRUCT(gh_pass, pass, pass_first,
                one_pass(&pass.it, &decision.it));
    TEST_STRUCT(gh_decision, decision,
                GH_SIZE_THROUGH(gh_decision, outputs),
                one_pass(&pass.it, &decision.it));
    TEST_STRUCT(gh_pass, pass, pass_first, exit_pass(&pass.it));
    INIT(ranks);
    ranks.it.size = 1;
    TEST_STRUCT(gh_ranks, ranks, GH_SIZE_THROUGH(gh_ranks, abort),
                gh->ranks_set(opened, &ranks.it, &err));
}

static gh_status describe(const gh_model_desc *desc)
{
    gh_model *model = NULL;
    gh_status status;

    gh->model_create(&model, NULL);
    status = gh->model_describe(model, desc, &err);
    gh->model_destroy(model);
    return status;
}

static void test_inputs(void)
{
    LATER(gh_layer_desc) layer;
    LATER(gh_model_desc) of_all;
    LATER(gh_host_services) host;
    LATER(gh_session_desc) desc;
    gh_layer_desc plain = { .struct_size = sizeof(plain) };
    gh_model *model;

    INIT(layer);
    TEST_STRUCT(gh_layer_desc, layer, GH_SIZE_THROUGH(gh_layer_desc, name),
                add_layer(&layer.it));
    INIT(of_all);
    TEST_STRUCT(gh_model_desc, of_all, GH_SIZE_THROUGH(gh_model_desc, cp_size),
                describe(&of_all.it));

    gh->model_create(&model, NULL);
    gh->model_add_layer(model, &plain, NULL);
    INIT(host);
    INIT(desc);
    desc.it.model = model;
    desc.it.host = &host.it;
    desc.it.environment = eager;
    TEST_STRUCT(gh_session_desc, desc,
                GH_SIZE_THROUGH(gh_session_desc, environment),
                open_session(&desc.it));
    TEST_STRUCT(gh_host_services, host,
                GH_SIZE_THROUGH(gh_host_services, before_recording),
                open_session(&desc.it));

    is_status(open_session(&desc.it), GH_OK, &err,
              "the session opens after all those refusals");
    gh->model_destroy(model);
}

int main(void)
{
    gh = load_api();
    if (gh == NULL) {
        return done_testing();
    }
    test_inputs();
    if (opened != NULL) {
        test_outputs_keep_the_callers_size();
        test_passes();
    }
    gh->session_close(opened);
    return done_testing();
}
