/*
 * What a graph reads besides its inputs lives as long as the graph.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/toy.h"
#include "tap/tap.h"

#include <string.h>

#define N_TABLES 3

/* A host that counts references, and looks at what is still there when the
 * last one goes. */
struct keeper {
    struct toy *toy;
    int references[N_TABLES];
    uint64_t execs_at_release;
    uint64_t pending_at_release;
    uint32_t releases;
    uint32_t obeyed; /* calls that it made in between */
    bool refuse;
};

static struct toy toy;
static struct keeper keeper;
static gh_error err;
static char tables[N_TABLES][64];

static gh_status retain(void *user, void *object)
{
    struct keeper *k = user;

    if (k->refuse) {
        return GH_ERR_NO_MEMORY;
    }
    k->obeyed += gh_layer_cancel(k->toy->session, NULL) != GH_ERR_STATE;
    k->references[(char(*)[64])object - tables]++;
    return GH_OK;
}

static void release(void *user, void *object)
{
    struct keeper *k = user;

    k->obeyed += gh_layer_cancel(k->toy->session, NULL) != GH_ERR_STATE;
    k->references[(char(*)[64])object - tables]--;
    k->execs_at_release = toy_counts(k->toy).execs;
    k->pending_at_release = toy_counts(k->toy).pending;
    k->releases++;
}

static const gh_host_services services = { .struct_size = sizeof(services),
                                           .user = &keeper,
                                           .retain = retain,
                                           .release = release };

/* Two layers with rotary tables, past their warmup. */
static bool start_on(const char *scope, const char *granularity,
                     const gh_host_services *host)
{
    static const char *const quiet[] = { "GRAPHHOOKS_LOG=off", NULL };
    const struct toy_options options = { .layers = 2,
                                         .elems = 8,
                                         .family = "mla",
                                         .scope = scope,
                                         .granularity = granularity,
                                         .host = host,
                                         .environment = quiet };

    keeper = (struct keeper){ .toy = &toy };
    return toy_start(&toy, &options, NULL) && toy_step(&toy, 1) == GH_OK;
}

static bool start(void)
{
    return start_on("attn", NULL, &services);
}

static gh_status bind_table(uint32_t layer, const char *name, uint32_t table)
{
    const gh_aux aux = { .struct_size = sizeof(aux),
                         .layer = layer,
                         .name = name,
                         .buffer = { .address = tables[table], .bytes = 64 },
                         .object = tables[table] };

    return gh_aux_bind(toy.session, &aux, &err);
}

static void test_life(void)
{
    if (!start()) {
        return;
    }
    is_status(bind_table(0, "rotary_cos", 0), GH_OK, &err, "a table is bound");
    is_int(keeper.references[0], 1, "and retained");
    bind_table(0, "rotary_cos", 0);
    is_int(keeper.references[0], 1, "once, however often it is bound");
    bind_table(1, "rotary_cos", 0);
    is_int(keeper.references[0], 2, "and once for each layer that reads it");
    toy_step(&toy, 1);
    toy_step(&toy, 1);
    is_int(keeper.releases, 0, "no step releases it");
    toy_detach(&toy);
    is_int(keeper.references[0], 0, "the end of the session does");
    is_int(keeper.execs_at_release, 0, "when no graph is left");
    toy_close(&toy);
}

static void test_another_table(void)
{
    uint64_t execs;

    if (!start()) {
        return;
    }
    toy.options.free_running = true;
    bind_table(0, "rotary_cos", 0);
    bind_table(1, "rotary_cos", 0);
    toy_step(&toy, 1);
    toy_step(&toy, 1);
    execs = toy_counts(&toy).execs;
    is_int(execs, 4, "both layers' attention is recorded, both directions");
    is_status(bind_table(1, "rotary_cos", 1), GH_OK, &err, "a table moves");
    is_int(keeper.references[0], 1, "one layer has given up the old one");
    is_int(keeper.references[1], 1, "and holds the new one");
    is_int(keeper.execs_at_release, 2,
           "its graphs were gone when the old one was released");
    is_int(keeper.pending_at_release, 0, "and none of them was running");
    is_int(keeper.obeyed, 0, "both services may call no hook");
    toy_step(&toy, 1);
    is_int(toy_counts(&toy).execs, 4, "it is recorded again");
    bind_table(1, "rotary_sin", 2);
    is_int(toy_counts(&toy).execs, 2,
           "a first binding drops what was recorded without it");
    toy_close(&toy);
}

/* Two objects may stand for one table: a view of it, and another. */
static void test_another_object_of_the_same_table(void)
{
    gh_aux aux = { .struct_size = sizeof(aux),
                   .name = "rotary_cos",
                   .buffer = { .address = tables[0], .bytes = 64 },
                   .object = tables[1] };

    if (!start()) {
        return;
    }
    bind_table(0, "rotary_cos", 0);
    toy_step(&toy, 1);
    toy_step(&toy, 1);
    is_status(gh_aux_bind(toy.session, &aux, &err), GH_OK, &err,
              "a table stays where it is, and is another object");
    is_int(toy_counts(&toy).execs, 4, "its graphs stay too");
    is_int(keeper.references[0], 0, "the object before is released");
    is_int(keeper.references[1], 1, "and the new one held");
    aux.buffer.bytes = 32;
    gh_aux_bind(toy.session, &aux, &err);
    is_int(toy_counts(&toy).execs, 2, "a table of another size has moved");
    toy_close(&toy);
}

static gh_pass forward_of(uint32_t m)
{
    return (gh_pass){ .struct_size = sizeof(gh_pass),
                      .microbatch = m,
                      .stream = toy.streams[0] };
}

static void test_in_flight(void)
{
    gh_decision d = { .struct_size = sizeof(d) };
    gh_pass pass;

    if (!start()) {
        return;
    }
    bind_table(0, "rotary_cos", 0);
    toy_step(&toy, 1);

    pass = forward_of(0);
    gh_layer_enter(toy.session, &pass, &d, &err);
    is_status(bind_table(0, "rotary_cos", 1), GH_ERR_STATE, &err,
              "nothing is bound inside a pass");
    ok(strstr(err.text, "a pass is open") != NULL, "which is said: %s",
       err.text);
    gh_layer_exit(toy.session, &pass, &err);
    is_status(bind_table(0, "rotary_cos", 1), GH_ERR_STATE, &err,
              "no table moves under a microbatch in flight");
    ok(strstr(err.text, "bind between steps") != NULL, "which is said: %s",
       err.text);
    is_int(keeper.references[1], 0, "and the new one is not held");
    is_int(keeper.references[0], 1, "but the old one is");
    is_status(bind_table(0, "rotary_sin", 1), GH_ERR_STATE, &err,
              "nor does a first one come, where there are graphs");
    gh_iteration_end(toy.session, &err);
    is_status(bind_table(0, "rotary_cos", 1), GH_OK, &err,
              "between steps it does");
    toy_close(&toy);
    is_int(keeper.references[0] + keeper.references[1], 0,
           "and nothing is held in the end");
}

/* A name is a table of its own. */
static void test_two_names(void)
{
    if (!start()) {
        return;
    }
    bind_table(0, "rotary_cos", 0);
    bind_table(0, "rotary_sin", 1);
    is_int(keeper.references[0], 1, "a table under another name");
    is_int(keeper.references[1], 1, "is held beside the first");
    bind_table(0, "rotary_cos", 2);
    is_int(keeper.references[0], 0, "one that moves");
    is_int(keeper.references[1], 1, "is not the other");
    toy_close(&toy);
}

/* Only attention reads the tables. */
static void test_graphs_that_do_not_read_it(void)
{
    if (!start_on("attn,mlp", "part", &services)) {
        return;
    }
    bind_table(0, "rotary_cos", 0);
    toy_step(&toy, 1);
    is_int(toy_counts(&toy).execs, 8, "two layers have eight graphs");
    bind_table(0, "rotary_cos", 1);
    is_int(toy_counts(&toy).execs, 6,
           "of which a table that moves drops those of one attention");
    toy_close(&toy);
}

static void test_a_host_without_services(void)
{
    const gh_host_services none = { .struct_size = sizeof(none) };

    if (!start_on("attn", NULL, &none)) {
        return;
    }
    is_status(bind_table(0, "rotary_cos", 0), GH_OK, &err,
              "a host without services may name an object");
    is_status(bind_table(0, "rotary_cos", 1), GH_OK, &err, "and another one");
    toy_close(&toy);
    is_int(keeper.releases, 0, "which nobody holds");
}

/* A pass of layer 0's attention, of work and without inputs: where memory of
 * the library's own is freed, the driver would wait for all of it. */
static void attend(gh_direction direction)
{
    const gh_pass pass = { .struct_size = sizeof(pass),
                           .direction = direction,
                           .stream = toy.streams[0] };
    gh_decision d = { .struct_size = sizeof(d) };

    gh_layer_enter(toy.session, &pass, &d, &err);
    if (d.action != GH_ACTION_REPLAYED) {
        toy.drv.cuMemsetD8Async(toy.memory, 0, 4, d.stream);
    }
    gh_layer_exit(toy.session, &pass, &err);
}

/* Under a seed that puts work off, graphs are under way all the time. */
static void test_nothing_is_released_under_a_graph(void)
{
    static const char *const when[] = { "a table that moves",
                                        "the end of the session" };

    for (uint32_t turn = 0; turn < 2; turn++) {
        if (!start()) {
            return;
        }
        toy_configure(&toy, "SEED=5 RACES=1");
        bind_table(0, "rotary_cos", 0);
        for (uint32_t m = 0; m < 200; m++) {
            attend(GH_FORWARD);
            attend(GH_BACKWARD);
        }
        ok(toy_counts(&toy).pending != 0, "graphs are under way");
        if (turn == 0) {
            bind_table(0, "rotary_cos", 1);
        } else {
            toy_detach(&toy);
        }
        is_int(keeper.releases, 1, "%s releases the table", when[turn]);
        is_int(keeper.pending_at_release, 0, "when they have ended");
        toy_close(&toy);
    }
}

static void test_refusals(void)
{
    gh_aux aux = { .struct_size = sizeof(aux),
                   .name = "rotary_cos",
                   .buffer = { .address = tables[0], .bytes = 64 } };
    gh_pass pass = { .struct_size = sizeof(pass) };
    gh_decision d = { .struct_size = sizeof(d) };
    gh_aux bad;

    if (!start()) {
        return;
    }
    keeper.refuse = true;
    is_status(bind_table(0, "rotary_cos", 0), GH_ERR_NO_MEMORY, &err,
              "what the host does not retain is not bound");
    ok(strstr(err.text, "the host's retain") != NULL, "which is said: %s",
       err.text);
    keeper.refuse = false;
    bad = aux;
    bad.layer = 2;
    is_status(gh_aux_bind(toy.session, &bad, &err), GH_ERR_NOT_FOUND, &err,
              "a layer that there is not");
    bad = aux;
    bad.name = NULL;
    is_status(gh_aux_bind(toy.session, &bad, &err), GH_ERR_INVALID, &err,
              "no name");
    bad = aux;
    bad.buffer.address = NULL;
    is_status(gh_aux_bind(toy.session, &bad, &err), GH_ERR_INVALID, &err,
              "no address");
    bad = aux;
    bad.buffer.flags = GH_BUFFER_STATIC;
    is_status(gh_aux_bind(toy.session, &bad, &err), GH_ERR_INVALID, &err,
              "flags of a pass");
    bad = aux;
    bad.buffer.tensor = GH_TENSOR_HIDDEN;
    is_status(gh_aux_bind(toy.session, &bad, &err), GH_ERR_INVALID, &err,
              "an output's name");
    bad = aux;
    bad.name = "rotary_tan";
    is_status(gh_aux_bind(toy.session, &bad, &err), GH_ERR_NOT_FOUND, &err,
              "a table that its family does not name");
    ok(strstr(err.text, "name one of rotary_cos, rotary_sin") != NULL,
       "which is said: %s", err.text);
    pass.stream = toy.streams[0];
    gh_layer_enter(toy.session, &pass, &d, &err);
    is_status(gh_aux_bind(toy.session, &aux, &err), GH_ERR_STATE, &err,
              "a table inside a pass");
    gh_layer_cancel(toy.session, &err);
    bad = aux;
    bad.struct_size = 8;
    is_status(gh_aux_bind(toy.session, &bad, &err), GH_ERR_ABI, &err,
              "too short a struct");
    is_status(gh_aux_bind(toy.session, NULL, &err), GH_ERR_INVALID, &err,
              "nothing at all");
    is_status(gh_aux_bind(NULL, &aux, &err), GH_ERR_INVALID, &err,
              "no session");
    is_status(gh_aux_bind(toy.session, &aux, &err), GH_OK, &err,
              "a table whose life the host sees to by itself is bound");
    toy_close(&toy);
    is_int(keeper.releases, 0, "and never released");
}

static void test_half_a_pair(void)
{
    gh_host_services half = services;
    struct toy_options options = { .layers = 1, .elems = 8, .host = &half };
    const char *reason;

    half.release = NULL;
    if (!toy_open(&toy, &options, &reason)) {
        ok(false, "the toy opens: %s", reason);
        return;
    }
    is_status(toy_attach(&toy), GH_ERR_INVALID, &toy.err,
              "retain without release is refused");
    ok(strstr(toy.err.text, "has retain without release") != NULL,
       "which is said: %s", toy.err.text);
    toy_close(&toy);
}

int main(void)
{
    int status;

    if (!toy_probe_soft(&status)) {
        return status;
    }
    test_life();
    test_another_table();
    test_another_object_of_the_same_table();
    test_in_flight();
    test_two_names();
    test_graphs_that_do_not_read_it();
    test_a_host_without_services();
    test_nothing_is_released_under_a_graph();
    test_refusals();
    test_half_a_pair();
    return done_testing();
}
