/*
 * A caller built against the headers of ABI 0.1 goes on working.
 *
 * graphhooks-0.1.h stands in for the current headers by their guards, so
 * every struct here has the size that it had in 0.1.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "abi/old/graphhooks-0.1.h"

#include "abi/host.h"

static const gh_api *gh;
static gh_error err;

static void test_table_grew_at_its_end_only(void)
{
    ok(gh->struct_size >= sizeof(gh_api), "the table has all slots of 0.1");
    is_int(gh->abi_version >> 16, GH_ABI_MAJOR, "the major is that of 0.1");
    ok((gh->abi_version & 0xffff) >= GH_ABI_MINOR,
       "the minor is at least that of 0.1");
    ok(gh->version()[0] != '\0', "the library has a version");
    is_str(gh->status_name(GH_ERR_BUSY), "GH_ERR_BUSY",
           "a status of 0.1 keeps its name");
    is_str(gh->reason_name(GH_REASON_WARMUP), "warmup",
           "a reason of 0.1 keeps its name");
}

static gh_session *open_session(uint32_t n_layers)
{
    const gh_layer_desc layer = { .struct_size = sizeof(layer) };
    gh_session_desc desc = { .struct_size = sizeof(desc),
                             .environment = eager };
    gh_session *session = NULL;
    gh_model *model = NULL;

    is_status(gh->model_create(&model, &err), GH_OK, &err,
              "an old caller makes a model");
    for (uint32_t i = 0; i < n_layers; i++) {
        is_status(gh->model_add_layer(model, &layer, &err), GH_OK, &err,
                  "a gh_layer_desc of 0.1 is taken");
    }
    desc.model = model;
    is_status(gh->session_open(&desc, &session, &err), GH_OK, &err,
              "a gh_session_desc of 0.1 opens a session");
    gh->model_destroy(model);
    return session;
}

/* Structs of 0.1 in a frame that is checked: nothing is written past them. */
#define GUARD 0xa5
#define FRAMED(type) \
    struct { \
        type it; \
        unsigned char after[64]; \
    }
#define FRAME(framed) \
    (memset(&(framed), 0, sizeof(framed)), \
     memset((framed).after, GUARD, sizeof((framed).after)), \
     (framed).it.struct_size = sizeof((framed).it))
#define IS_WHOLE(framed, name) \
    ok(is_guard((framed).after, sizeof((framed).after)), name)

static bool is_guard(const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] != GUARD) {
            return false;
        }
    }
    return true;
}

static void test_step_runs(gh_session *session, uint32_t n_segments)
{
    FRAMED(gh_segment) segment;
    FRAMED(gh_decision) decision;
    FRAMED(gh_stats) stats;
    gh_pass pass = { .struct_size = sizeof(pass) };

    is_int(gh->plan_segment_count(session, 0), n_segments,
           "the plan has a segment for each layer");
    FRAME(segment);
    is_status(gh->plan_segment(session, 0, n_segments - 1, &segment.it, &err),
              GH_OK, &err, "a gh_segment of 0.1 is filled");
    IS_WHOLE(segment, "nothing is written after a gh_segment of 0.1");
    is_int(segment.it.struct_size, sizeof(gh_segment),
           "a gh_segment keeps the caller's size");

    pass.segment = segment.it.index;
    for (int direction = GH_FORWARD; direction <= GH_BACKWARD; direction++) {
        pass.direction = (gh_direction)direction;
        FRAME(decision);
        is_status(gh->layer_enter(session, &pass, &decision.it, &err), GH_OK,
                  &err, "a gh_pass of 0.1 is entered");
        IS_WHOLE(decision, "nothing is written after a gh_decision of 0.1");
        is_int(decision.it.action, GH_ACTION_RUN,
               "with GRAPHHOOKS_ENABLE=0 the host is told to run");
        is_status(gh->layer_exit(session, &pass, &err), GH_OK, &err,
                  "the pass is left");
    }
    is_status(gh->iteration_end(session, &err), GH_OK, &err, "the step ends");

    FRAME(stats);
    is_status(gh->session_stats(session, &stats.it, &err), GH_OK, &err,
              "a gh_stats of 0.1 is filled");
    IS_WHOLE(stats, "nothing is written after a gh_stats of 0.1");
    is_int(stats.it.eager_passes, 2, "both passes were counted as eager");
    is_int(stats.it.iterations, 1, "one step was counted");
}

int main(void)
{
    gh_session *session;

    gh = load_api();
    if (gh == NULL) {
        return done_testing();
    }
    test_table_grew_at_its_end_only();
    session = open_session(3);
    if (session != NULL) {
        test_step_runs(session, 3);
    }
    gh->session_close(session);
    return done_testing();
}
