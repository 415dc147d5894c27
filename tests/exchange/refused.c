/*
 * What an exchange cannot be asked for is refused, with a sentence, on all
 * ranks alike.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/exchange/trader.h"

#include <stdlib.h>
#include <string.h>

static const char *const quiet[] = { "GRAPHHOOKS_TIMEOUT=5",
                                     "GRAPHHOOKS_LOG=off", NULL };

static const char *driver(void)
{
    const char *path = getenv("GRAPHHOOKS_SOFTCUDA");

    return !ranks_are_soft() ? "cuda"
           : path != NULL    ? path
                             : "./.libs/libgraphhooks-softcuda.so";
}

static gh_exchange_desc desc_of(struct rank *r)
{
    return (gh_exchange_desc){ .struct_size = sizeof(gh_exchange_desc),
                               .rank = (uint32_t)r->rank,
                               .n_ranks = (uint32_t)r->n,
                               .window_bytes = 1024,
                               .driver = driver(),
                               .context = r->ctx,
                               .environment = quiet };
}

static void refused(struct rank *r, const gh_exchange_desc *desc,
                    gh_status wanted, const char *words)
{
    gh_exchange *x = NULL;
    gh_error err = { "" };

    says_int(r, gh_exchange_create(desc, &x, &err), wanted,
             "no exchange is made: %.120s", err.text);
    says(r, strstr(err.text, words) != NULL, "the text has \"%s\"", words);
}

static void test_descriptions(struct rank *r)
{
    gh_exchange_desc desc = desc_of(r);
    gh_exchange *x;
    gh_error err;

    refused(r, NULL, GH_ERR_INVALID, "desc is NULL");
    says_int(r, gh_exchange_create(&desc, NULL, &err), GH_ERR_INVALID,
             "an exchange has to go somewhere");
    desc.n_ranks = 0;
    refused(r, &desc, GH_ERR_INVALID, "rank 0 of 0");
    desc.n_ranks = 2;
    desc.rank = 2;
    refused(r, &desc, GH_ERR_INVALID, "rank 2 of 2");
    desc.rank = 0;
    refused(r, &desc, GH_ERR_INVALID, "neither comm nor gather");
    desc = desc_of(r);
    desc.flags = 64;
    refused(r, &desc, GH_ERR_INVALID, "flags is 0x40");
    desc = desc_of(r);
    desc.window = &desc;
    desc.window_bytes = 0;
    refused(r, &desc, GH_ERR_INVALID, "say how large");
    desc = desc_of(r);
    desc.kind = "pigeon";
    refused(r, &desc, GH_ERR_CONFIG, "pigeon");
    desc.kind = NULL;
    desc.small = "little";
    refused(r, &desc, GH_ERR_CONFIG,
            "gh_exchange_desc.small is \"little\"");
    desc = desc_of(r);
    desc.struct_size = 8;
    refused(r, &desc, GH_ERR_ABI, "gh_exchange_desc");
    desc = desc_of(r);
    desc.driver = "/none/such.so";
    refused(r, &desc, GH_ERR_NO_DRIVER, "such.so");
    gh_exchange_destroy(NULL);
    says(r, gh_exchange_window(NULL) == NULL, "no exchange has no window");
    x = NULL;
    says_int(r, gh_exchange_wait(x, NULL, &err), GH_ERR_INVALID,
             "nor is it waited for");
}

/* A window of the host's that goes on behind its allocation would let others
 * write into whatever is there. */
static void test_windows(struct rank *r)
{
    const uint64_t bytes = UINT64_C(2) << 20;
    gh_exchange_desc desc = desc_of(r);
    CUdeviceptr memory;
    gh_exchange *x = NULL;
    gh_error err = { "" };

    if (!says_int(r, drv.cuMemAlloc(&memory, bytes), CUDA_SUCCESS,
                  "the host has memory")) {
        return;
    }
    desc.window = pointer(memory + 256);
    desc.window_bytes = bytes;
    refused(r, &desc, GH_ERR_INVALID,
            "window_bytes is 2097152, and the allocation of "
            "gh_exchange_desc.window ends after 2096896");
    desc.window_bytes = bytes - 256;
    says_int(r, gh_exchange_create(&desc, &x, &err), GH_OK,
             "all that there is makes a window: %s", err.text);
    gh_exchange_destroy(x);
    drv.cuMemFree(memory);
}

static void op_is(struct rank *r, gh_exchange *x, const gh_exchange_op *op,
                  const char *words)
{
    gh_error err = { "" };

    says_int(r, gh_exchange_all_to_all(x, op, &err), GH_ERR_INVALID,
             "it is refused: %.120s", err.text);
    says(r, strstr(err.text, words) != NULL, "the text has \"%s\"", words);
}

/* A query of a stream that captures would end the capture. */
static void waits_in_a_capture(struct rank *r, gh_exchange *x)
{
    CUgraph graph = NULL;
    gh_error err;

    drv.cuStreamBeginCapture(r->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    says_int(r, gh_exchange_wait(x, r->stream, &err), GH_ERR_STATE,
             "a stream that captures is not waited for");
    says(r, strstr(err.text, "wait after the capture has ended") != NULL,
         "as is said: %s", err.text);
    says_int(r, drv.cuStreamEndCapture(r->stream, &graph), CUDA_SUCCESS,
             "and the capture is whole");
    drv.cuGraphDestroy(graph);
}

static void test_calls(struct rank *r)
{
    gh_exchange_desc desc = desc_of(r);
    gh_exchange_part part = { 0, 64, 0, 0, 64 };
    gh_exchange_stats stats = { .struct_size = sizeof(stats) };
    gh_exchange_op op = { .struct_size = sizeof(op),
                          .stream = r->stream,
                          .send = pointer(r->send),
                          .parts = &part };
    gh_exchange *x;
    gh_error err;

    if (!says_int(r, gh_exchange_create(&desc, &x, &err), GH_OK,
                  "an exchange of one rank is made")) {
        return;
    }
    op_is(r, x, NULL, "op is NULL");
    op_is(r, NULL, &op, "x is NULL");
    op.flags = 16;
    op_is(r, x, &op, "flags is 0x10");
    op.flags = GH_EXCHANGE_TURN_1 | GH_EXCHANGE_TURN_2;
    op_is(r, x, &op, "flags is 0x3");
    op.flags = GH_EXCHANGE_ALONE | GH_EXCHANGE_TURN_2 | GH_EXCHANGE_RELEASED;
    op_is(r, x, &op, "flags is 0xe");
    op.flags = 0;
    op.window_offset = 1000;
    op_is(r, x, &op, "comes from rank 0");
    op.window_offset = UINT64_MAX - 10;
    op_is(r, x, &op, "comes from rank 0");
    op.window_offset = 0;
    part.recv_bytes = 32;
    op_is(r, x, &op, "differently");
    part.recv_bytes = 64;
    waits_in_a_capture(r, x);
    op.send = NULL;
    op_is(r, x, &op, "send is NULL");
    op.parts = NULL;
    op.send = pointer(r->send);
    op.capacity = 1025;
    op_is(r, x, &op, "make it larger");
    op.capacity = 1024;
    says_int(r, gh_exchange_all_to_all(x, &op, &err), GH_OK,
             "what fits is exchanged");
    says_int(r, gh_exchange_wait(x, r->stream, &err), GH_OK, "and ends");
    says_int(r, gh_exchange_get_stats(x, NULL, &err), GH_ERR_INVALID,
             "counters have to go somewhere");
    gh_exchange_get_stats(x, &stats, &err);
    says_int(r, (long long)stats.calls, 1, "what was refused is not counted");
    gh_exchange_destroy(x);
}

/* The window is released once for each call that says so. */
static void releases_once(struct rank *r, struct trader *t, gh_exchange_op *op)
{
    op->flags = GH_EXCHANGE_RELEASED;
    says_int(r, gh_exchange_all_to_all(t->x, op, &t->err), GH_ERR_STATE,
             "what was not released is refused");
    says(r, strstr(t->err.text, "was not called since") != NULL, "with why: %s",
         t->err.text);
    says_int(r, gh_exchange_release_window(t->x, r->stream, &t->err), GH_OK,
             "a window is released");
    says_int(r, gh_exchange_release_window(t->x, r->stream, &t->err),
             GH_ERR_STATE, "and not a second time");
    op->flags = 0;
    says_int(r, gh_exchange_all_to_all(t->x, op, &t->err), GH_ERR_STATE,
             "a call that does not say so is refused");
    op->flags = GH_EXCHANGE_RELEASED;
    says_int(r, gh_exchange_all_to_all(t->x, op, &t->err), GH_OK,
             "one that does is taken");
    says_int(r, gh_exchange_release_window(NULL, r->stream, &t->err),
             GH_ERR_INVALID, "no exchange is refused");
}

/* Of the calls that are issued it is seen which was before. */
static void test_turns(struct rank *r)
{
    gh_exchange_op op = { .struct_size = sizeof(op),
                          .flags = GH_EXCHANGE_TURN_2,
                          .stream = r->stream };
    struct trader_options options = { .kind = "copy", .environment = quiet };
    struct trader t;

    if (trader_try(&t, r, &options) == GH_OK) {
        says_int(r, gh_exchange_all_to_all(t.x, &op, &t.err), GH_OK,
                 "a first call may have any turn");
        op_is(r, t.x, &op, "had turn 2 too: give turn 1, or none");
        says_int(r, trader_record_broken(&t, SHAPE_FULL), GH_ERR_DEVICE,
                 "after a capture that fails");
        op_is(r, t.x, &op, "had turn 2 too: give turn 1, or none");
        op.flags = GH_EXCHANGE_TURN_1;
        says_int(r, gh_exchange_all_to_all(t.x, &op, &t.err), GH_OK,
                 "the other turn is taken");
        op_is(r, t.x, &op, "had turn 1 too: give turn 2, or none");
        releases_once(r, &t, &op);
        says_int(r, gh_exchange_wait(t.x, r->stream, &t.err), GH_OK,
                 "and what was taken ends");
    }
    trader_close(&t);
}

/* Ranks that differ are told so, all of them. */
static void test_settings(struct rank *r)
{
    struct trader_options options = {
        .kind = r->rank == 0 ? "copy" : "auto", .environment = quiet
    };
    struct trader t;

    says_int(r, trader_try(&t, r, &options), GH_ERR_CONFIG,
             "kinds that differ make none");
    says(r, strstr(t.err.text, "kind is copy on rank 0 and auto on rank 1") !=
                NULL,
         "which is said: %.120s", t.err.text);
    trader_close(&t);
}

/* So are ranks that take different parts for small ones, or do not all
 * measure. */
static void test_sizes(struct rank *r)
{
    static const char *const asked[] = { "GRAPHHOOKS_EP_EXCHANGE_SMALL=2000",
                                         "GRAPHHOOKS_LOG=off", NULL };
    struct trader_options options = { .small = r->rank == 0 ? "1000" : NULL,
                                      .environment = quiet };
    struct trader t;

    says_int(r, trader_try(&t, r, &options), GH_ERR_CONFIG,
             "sizes that differ make none");
    says(r, strstr(t.err.text, "gh_exchange_desc.small is 1000 on rank 0 and "
                               "4194304 on rank 1") != NULL,
         "both are named: %.200s", t.err.text);
    trader_close(&t);
    options.environment = asked;
    if (trader_open(&t, r, &options)) {
        says_int(r, (long long)trader_stats(&t).small_bytes, 2000,
                 "the environment wins");
        trader_close(&t);
    }
    options.environment = quiet;
    options.small = r->rank == 0 ? "0" : "measure";
    says_int(r, trader_try(&t, r, &options), GH_ERR_CONFIG,
             "nor is an exchange made where one rank measures");
    says(r, strstr(t.err.text, "(1: measure) is 0 on rank 0 and 1 on rank 1") !=
                NULL,
         "as is said: %.200s", t.err.text);
    trader_close(&t);
}

static void test_one_number_twice(struct rank *r)
{
    const struct trader_options options = { .kind = "copy", .by_host = true,
                                            .no_comm = true, .all_first = true,
                                            .environment = quiet };
    struct trader t;

    says_int(r, trader_try(&t, r, &options), GH_ERR_CONFIG,
             "two ranks with one number make none");
    says(r, strstr(t.err.text, "gh_exchange_desc.rank is 0 on two ranks, which "
                               "are 0 and 1") != NULL,
         "both are named: %.120s", t.err.text);
    trader_close(&t);
}

static void test_environment(struct rank *r)
{
    static const char *const asked[] = { "GRAPHHOOKS_EP_EXCHANGE=nccl",
                                         "GRAPHHOOKS_LOG=off", NULL };
    struct trader_options options = { .kind = "copy", .environment = asked };
    struct trader t;

    if (trader_open(&t, r, &options)) {
        says_int(r, trader_stats(&t).kind, GH_EXCHANGE_NCCL,
                 "the environment wins");
        trader_close(&t);
    }
    options.no_comm = options.by_host = true;
    says_int(r, trader_try(&t, r, &options), GH_ERR_CONFIG,
             "without a communicator there is no NCCL");
    says(r, strstr(t.err.text, "GRAPHHOOKS_EP_EXCHANGE") != NULL,
         "who wants it is said: %.120s", t.err.text);
    trader_close(&t);
}

/* One rank finds no memory: the others hear it from there. */
static void test_one_fails(struct rank *r)
{
    struct trader_options options = {
        .kind = "copy", .unit = r->rank == 1 ? UINT32_MAX : 0,
        .environment = quiet, .own_window = false, .no_memory = true
    };
    struct trader t;

    says_int(r, trader_try(&t, r, &options),
             r->rank == 1 ? GH_ERR_NO_MEMORY : GH_ERR_RANKS,
             "no rank has an exchange");
    says(r, strstr(t.err.text, r->rank == 1 ? "cuMemAlloc"
                                            : "rank 1 of 2 has failed") !=
                NULL,
         "and each knows why: %.120s", t.err.text);
    trader_close(&t);
}

/* Threads of one device stand for one process there, which no handle is for:
 * no rank reaches another. */
static void test_out_of_reach(struct rank *r)
{
    struct trader_options options = { .kind = "copy",
                                      .flags = GH_EXCHANGE_IPC,
                                      .environment = quiet };
    struct trader t;

    says_int(r, trader_try(&t, r, &options), GH_ERR_UNSUPPORTED,
             "copy wants all to be reached");
    says(r, strstr(t.err.text, "rank 0 does not reach the memory of rank 1") !=
                NULL,
         "who is not is said: %.120s", t.err.text);
    trader_close(&t);
    options.kind = NULL;
    if (trader_open(&t, r, &options)) {
        says_int(r, trader_stats(&t).kind, GH_EXCHANGE_NCCL,
                 "auto is NCCL then");
        trader_round(&t, SHAPE_FULL, false);
        says(r, trader_is_exact(&t), "and exact");
        trader_close(&t);
    }
}

static void test_layout(void)
{
    const uint64_t bytes[] = { 1, 2, 3, 10, 20, 30, 100, 200, 300 };
    const uint64_t many = UINT64_MAX / 2 + 1;
    const uint64_t too_many[] = { 0, many, many, 0, many, many, many, many, 0 };
    gh_exchange_part parts[3];

    gh_exchange_lay_out(3, 1, bytes, parts);
    is_int((long long)parts[2].send_bytes, 30, "a row is what goes");
    is_int((long long)parts[2].send_offset, 30, "behind what goes to others");
    is_int((long long)parts[2].recv_bytes, 200, "a column is what comes");
    is_int((long long)parts[2].recv_offset, 22,
           "behind what comes from others");
    is_int((long long)parts[2].peer_offset, 3, "and there behind others' too");
    gh_exchange_lay_out(3, 2, too_many, parts);
    ok(parts[1].peer_offset == UINT64_MAX &&
           parts[2].send_offset == UINT64_MAX &&
           parts[2].recv_offset == UINT64_MAX,
       "sums that overflow are larger than any window");
}

int main(void)
{
    int status;

    if (!ranks_open(&status)) {
        return status;
    }
    test_layout();
    ranks_devices(MOST_RANKS);
    ranks_run(1, "descriptions", test_descriptions);
    ranks_run(1, "windows", test_windows);
    ranks_run(1, "calls", test_calls);
    ranks_run(2, "turns", test_turns);
    ranks_run(2, "settings", test_settings);
    ranks_run(2, "sizes", test_sizes);
    ranks_run(2, "one number twice", test_one_number_twice);
    ranks_run(2, "environment", test_environment);
    if (ranks_are_soft()) { /* whose device is small enough to be full */
        ranks_run(2, "one fails", test_one_fails);
        ranks_devices(1);
        setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
        ranks_run(2, "out of reach", test_out_of_reach);
        ranks_devices(MOST_RANKS);
    }
    return done_testing();
}
