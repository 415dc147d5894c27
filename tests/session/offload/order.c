/*
 * Every legal order of what is offloaded gives the same sums, and every wait
 * that the library adds for it is needed, or is known to be covered by another.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/orders.h"
#include "tap/tap.h"

static const uint32_t counts[] = { 3, 4, 2, 3 };
#define N_STEPS 4

static struct outcome run(const void *options, const char *settings)
{
    return orders_train(options, settings, counts, N_STEPS);
}

static struct orders orders_of(const struct toy_options *options,
                               const char *what)
{
    /* The same few waits are made in every step. */
    return (struct orders){
        what, run, options, .least = 50, .stride = 7, .may_race = options->own
    };
}

static void test_seeds(const struct toy_options *options, const char *what,
                       uint32_t n)
{
    const struct orders o = orders_of(options, what);

    orders_are_right(&o, n);
}

/* A copy waits for its own buffers' events, also where the buffers that come
 * before it in the ring have made it wait long enough. */
static void test_waits(const struct toy_options *options, const char *what)
{
    const struct orders o = orders_of(options, what);

    orders_need_most_waits(&o);
}

int main(void)
{
    static const char *const delayed[] = { "GRAPHHOOKS_OFFLOAD_DELAY=1", NULL };
    const struct toy_options layers = { .layers = 4,
                                        .modules = 2,
                                        .tensors = 1,
                                        .elems = 16,
                                        .in_flight = 2,
                                        .max_slots = 2,
                                        .streams = 2,
                                        .free_running = true };
    struct toy_options chunk = layers, parts = layers, later = layers;
    struct toy_options own = layers, stay = layers, staged = layers, one;
    uint32_t n;
    int status;

    if (!orders_begin(&status)) {
        return status;
    }
    n = orders_seeds(25);
    chunk.granularity = "chunk";
    parts.granularity = "part";
    parts.across = true;
    parts.last_first = true;
    later.environment = delayed;
    test_seeds(&layers, "layers", n);
    test_seeds(&chunk, "a chunk", n);
    test_seeds(&parts, "a group across two parts", n);
    test_seeds(&later, "delayed", n);
    one = later;
    one.max_slots = 1;
    one.streams = 3;
    test_seeds(&one, "delayed, three streams and one slot", n);
    own.own = true;
    stay.own = true;
    stay.tensors = 2;
    stay.granularity = "chunk";
    stay.last_first = true;
    stay.offload = (gh_offload_desc){ .struct_size = 1, .modules = "own_a",
                                      .min_bytes = 40 };
    staged = stay;
    staged.unlent = true;
    staged.granularity = "layer";
    test_seeds(&own, "the host's own memory", n);
    test_seeds(&stay, "the host's own memory, most of it stays", n);
    test_seeds(&staged, "the host's own memory, and no service", n);
    own.environment = delayed;
    test_seeds(&own, "the host's own memory, delayed", n);
    own.environment = NULL;
    test_waits(&layers, "layers");
    test_waits(&own, "the host's own memory");
    test_waits(&staged, "the host's own memory, and no service");
    test_waits(&parts, "a group across two parts");
    test_waits(&later, "delayed");
    return done_testing();
}
