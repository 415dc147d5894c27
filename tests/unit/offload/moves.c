/*
 * The copies of groups, call by call: who waits for what, which buffer is
 * taken, and what is given back.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/unit/offload/fake.h"

#include "support/host_memory.h"
#include "tap/tap.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Events of a buffer of the ring on the way out, or back. */
static unsigned out_filled(uint32_t b)
{
    return number_of(o->table.classes[0]->out.buffers[b]->filled);
}

static unsigned out_read(uint32_t b)
{
    return number_of(o->table.classes[0]->out.buffers[b]->read);
}

static unsigned back_filled(uint32_t b)
{
    return number_of(o->table.classes[0]->back.buffers[b]->filled);
}

static unsigned back_read(uint32_t b)
{
    return number_of(o->table.classes[0]->back.buffers[b]->read);
}

/* The calls since are those, with numbers put in. */
static void are(const char *what, const char *format, ...)
{
    char wanted[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(wanted, sizeof(wanted), format, args);
    va_end(args);
    is_str(called(), wanted, "%s", what);
}

/* ---- rings and loans ----------------------------------------------------- */

static void test_rings(void)
{
    struct gh_ring_buffer buffers[3] = { { .turn = 7 },
                                         { .turn = 5 },
                                         { .turn = 9 } };
    struct gh_ring_buffer *all[] = { &buffers[0], &buffers[1], &buffers[2] };
    struct gh_ring ring = { .n = 3, .n_indexed = 3, .buffers = all };
    struct gh_instance holder;

    ok(gh_ring_oldest(&ring) == &buffers[1],
       "the buffer that was taken longest ago is the oldest");
    buffers[1].holder = &holder;
    ok(gh_ring_oldest(&ring) == &buffers[0], "of those that are free");
    ok(gh_ring_before(&ring, &buffers[1], 1) == &buffers[0] &&
           gh_ring_before(&ring, &buffers[0], 1) == &buffers[2] &&
           gh_ring_before(&ring, &buffers[1], 2) == &buffers[2],
       "places before a buffer are counted round the ring");
    ok(gh_ring_before(&ring, &buffers[1], 3) == NULL &&
           gh_ring_before(&ring, &buffers[1], 0) == NULL,
       "none is its own, and none is before it without a limit");
}

static void test_loans(void)
{
    struct gh_size_class one, other;
    int marks[4];
    struct gh_loan loans[4];
    struct gh_loans list = { .dev = NULL };

    for (int i = 0; i < 4; i++) {
        loans[i] = (struct gh_loan){ .mark = &marks[i] };
        gh_loans_leave(&list, &loans[i], i == 1 ? &other : &one);
    }
    ok(gh_loans_mark_before(&list, &one, 1) == &marks[3] &&
           gh_loans_mark_before(&list, &one, 2) == &marks[2] &&
           gh_loans_mark_before(&list, &one, 3) == &marks[0],
       "the n-th last copy of a class is that of its loans alone");
    ok(gh_loans_mark_before(&list, &one, 4) == NULL &&
           gh_loans_mark_before(&list, &other, 2) == NULL &&
           gh_loans_mark_before(&list, &one, 0) == NULL,
       "there is none where fewer are under way, or without a limit");
}

/* Objects of two recordings, of two instances each. */
static void test_loans_of_recordings(void)
{
    struct gh_instance instances[2];
    struct gh_loans loans = { .dev = NULL };
    char objects[4];
    void *object = NULL;

    for (int i = 0; i < 4; i++) {
        gh_loans_record(&loans, &objects[i], &instances[i % 2],
                        1 + (uint64_t)i / 2, &err);
    }
    ok(!gh_loans_take(&loans, &object), "a recording keeps what it was lent");
    gh_loans_end_pass(&loans, 1);
    for (int i = 0; i < 2; i++) {
        ok(gh_loans_take(&loans, &object) && object == &objects[i],
           "one that is given up gives all of it back");
    }
    ok(!gh_loans_take(&loans, &object), "and nothing of another one's");
    gh_loans_end_instance(&loans, &instances[1]);
    ok(gh_loans_take(&loans, &object) && object == &objects[3] &&
           !gh_loans_take(&loans, &object),
       "as does an instance that is released");
    gh_loans_end_recorded(&loans);
    ok(gh_loans_take(&loans, &object) && object == &objects[2],
       "and what is left at the end of a step");
    gh_loans_free(&loans);
}

/* ---- the way out --------------------------------------------------------- */

static void test_a_flush_in_one_call(void)
{
    struct gh_offload_options options = usual();

    options.delay = true;
    begin_profiled(&options);
    batches = true;
    save(0, 0);
    commit(0, 0);
    save(1, 0);
    commit(1, 0);
    called();
    is_status(gh_offload_flush(o, &err), GH_OK, &err, "two commits are issued");
    are("each copy waits for its writer and for the last copy of its block",
        "W%u@o Wk9@o W%u@o Wk10@o out2@o R%u@o Rk9@o drop@o R%u@o Rk10@o "
        "drop@o",
        out_filled(0), out_filled(1), out_read(0), out_read(1));
    end();
}

/* In the first step a host that reads where a group was finds NaN there. */
static void test_what_is_gone_is_wiped(void)
{
    begin(NULL);
    gh_offload_end_step(o, &err); /* an evaluation has ended */
    save(0, 0);
    called();
    commit(0, 0);
    are("a buffer that was copied out is wiped before another may have it",
        "R%u@m W%u@o Wk1@o out1@o R%u@o Rk1@o wipe@o R%u@o", out_filled(0),
        out_filled(0), out_read(0), out_read(0));
    load(0, 0);
    called();
    release(0, 0);
    are("so is one that was released", "wipe@m R%u@m", back_read(0));
    save(1, 0);
    called();
    gh_offload_end_step(o, &err);
    ok(strstr(called(), "wipe@o R") != NULL, "or given up");
    gh_offload_end_step(o, &err);
    forward(0);
    backward(0);
    ok(strstr(called(), "wipe") == NULL, "later steps wipe nothing");
    end();
}

/* Of three commits that are queued one is given up, and one more comes. */
static void test_a_queue_without_one(void)
{
    struct gh_offload_options options = usual();

    options.delay = true;
    options.buffers = 4;
    for (uint32_t gone = 0; gone < 3; gone++) {
        uint32_t away = 0;

        begin(&options);
        for (uint32_t layer = 0; layer < 3; layer++) {
            save(layer, 0);
            commit(layer, 0);
        }
        gh_offload_cancel(o, instance(gone, 0)->pass, true);
        is_int(instance(gone, 0)->state, GH_INSTANCE_IDLE,
               "commit %u of a queue is given up", gone);
        save(3, 0);
        commit(3, 0);
        is_int(instance(3, 0)->state, GH_INSTANCE_QUEUED,
               "and another is queued");
        called();
        is_status(gh_offload_flush(o, &err), GH_OK, &err, "they are issued");
        for (const char *at = called(); (at = strstr(at, "out1@o")) != NULL;
             at++) {
            away++;
        }
        is_int(away, 3, "each once, and none beside");
        ok(instance(3, 0)->state == GH_INSTANCE_AWAY &&
               instance((gone + 1) % 3, 0)->state == GH_INSTANCE_AWAY &&
               instance((gone + 2) % 3, 0)->state == GH_INSTANCE_AWAY,
           "all others are on the host");
        ok(o->first_queued == NULL && o->last_queued == NULL,
           "and the queue is empty");
        end();
    }
}

/* A trace shows each group's copies. */
static void test_a_flush_that_is_traced(void)
{
    struct gh_offload_options options = usual();

    options.delay = true;
    begin_profiled(&options);
    batches = true;
    o->spans = (struct gh_spans *)7;
    save(0, 0);
    commit(0, 0);
    save(1, 0);
    commit(1, 0);
    called();
    is_status(gh_offload_flush(o, &err), GH_OK, &err, "two commits are issued");
    are("each in a span of its own, with its bytes, where there is a trace",
        "W%u@o Wk9@o span1024@o out1@o R%u@o Rk9@o drop@o "
        "W%u@o Wk10@o span1024@o out1@o R%u@o Rk10@o drop@o",
        out_filled(0), out_read(0), out_filled(1), out_read(1));
    o->spans = NULL;
    end();
}

static unsigned exchanged(void)
{
    return number_of(o->exchanged);
}

/* Copies out that are issued next begin after an exchange. */
static void test_behind_an_exchange(void)
{
    struct gh_offload_options options = usual();

    begin_profiled(NULL);
    is_capturing = true;
    gh_offload_behind(o, SIDE);
    are("nothing is marked where the host captures the exchange", "%s", "");
    is_capturing = false;
    gh_offload_behind(o, SIDE);
    are("the end of an exchange is marked", "R%u@s", exchanged());
    save(0, 0);
    called();
    commit(0, 0);
    are("the copy that is issued next waits for it",
        "R%u@m W%u@o Wk9@o W%u@o out1@o R%u@o Rk9@o drop@o", out_filled(0),
        out_filled(0), exchanged(), out_read(0));
    save(1, 0);
    called();
    commit(1, 0);
    are("and what follows on the same stream need not",
        "R%u@m W%u@o Wk10@o out1@o R%u@o Rk10@o drop@o", out_filled(1),
        out_filled(1), out_read(1));
    end();

    options.delay = true;
    begin_profiled(&options);
    batches = true;
    save(0, 0);
    commit(0, 0);
    gh_offload_behind(o, SIDE);
    called();
    n_fallible = 0;
    fails_at = 1;
    is_status(gh_offload_flush(o, &err), GH_ERR_DEVICE, &err,
              "where that wait fails, nothing is copied");
    fails_at = 0;
    are("but the wait", "W%u@o", exchanged());
    is_status(gh_offload_flush(o, &err), GH_OK, &err, "until it is repeated");
    are("before the copies of all that was queued",
        "W%u@o W%u@o Wk9@o out1@o R%u@o Rk9@o drop@o", exchanged(),
        out_filled(0), out_read(0));
    end();
}

/* Groups of other modules between two of one: 16 are looked at. */
static void test_far_ahead(void)
{
    static const uint32_t modules[] = { GH_MODULE_CORE_ATTN,
                                        GH_MODULE_ATTN_PROJ };
    struct gh_offload_options options = usual();
    gh_offload_tensor tensor = { NULL, BYTES };

    options.modules |= GH_MODULE_CORE_ATTN | GH_MODULE_ATTN_PROJ;
    for (uint32_t between = 15; between <= 16; between++) {
        begin_profiled(&options);
        save(0, 0);
        commit(0, 0);
        for (uint32_t i = 0; i < between; i++) {
            const struct gh_offload_at where = at(i / 2, 0);
            gh_offload_group group = group_of(i / 2, &tensor);

            group.module = modules[i % 2];
            gh_offload_save_eager(o, &where, &group, &err);
            gh_offload_commit_eager(o, &where, &group, &err);
        }
        save(1, 0);
        commit(1, 0);
        load(1, 0);
        is_int(instance(0, 0)->state,
               between < 16 ? GH_INSTANCE_BACK : GH_INSTANCE_AWAY,
               "of a group behind %u others", between);
        end();
    }
}

static void test_many_copies(void)
{
    struct gh_offload_options options = usual();
    gh_offload_tensor tensors[GH_MAX_GROUP];

    options.delay = true;
    options.buffers = 3; /* none has to be free before all are queued */
    begin(&options);
    batches = true;
    for (uint32_t layer = 0; layer < 3; layer++) {
        const struct gh_offload_at where = at(layer, 0);
        gh_offload_group group = group_of(layer, tensors);

        for (uint32_t t = 0; t < GH_MAX_GROUP; t++) {
            tensors[t] = (gh_offload_tensor){ NULL, 100 };
        }
        group.n_tensors = GH_MAX_GROUP;
        gh_offload_save_eager(o, &where, &group, &err);
        commit(layer, 0);
    }
    is_status(gh_offload_flush(o, &err), GH_OK, &err,
              "three groups of %u tensors go", GH_MAX_GROUP);
    is_int(o->stats.out_copies, 3 * GH_MAX_GROUP, "with a copy for each");
    is_int(most_in_a_call, GH_COPIES_OUT, "and no call has more than it may");
    end();
}

/* What a pass has in its hands at once, its buffers have to hold. */
static void test_one_more_buffer(void)
{
    begin(NULL);
    ok(save(0, 0) == GH_OK && save(1, 0) == GH_OK, "two groups are written");
    no_memory = true;
    is_status(save(2, 0), GH_ERR_NO_MEMORY, &err,
              "a third is not without memory for a buffer");
    no_memory = false;
    is_status(save(2, 0), GH_OK, &err, "and is with it");
    is_int(o->table.classes[0]->out.n, 3, "in one buffer more");
    for (uint32_t layer = 0; layer < 3; layer++) {
        is_status(commit(layer, 0), GH_OK, &err, "each is committed");
    }
    ok(load(2, 0) == GH_OK && load(1, 0) == GH_OK, "two groups are read");
    no_memory = true;
    is_status(load(0, 0), GH_ERR_NO_MEMORY, &err,
              "a third is not without memory for a buffer");
    no_memory = false;
    is_int(instance(0, 0)->state, GH_INSTANCE_AWAY, "and stays on the host");
    is_status(load(0, 0), GH_OK, &err, "until there is some");
    is_int(o->table.classes[0]->back.n, 3, "in one buffer more");
    end();
}

/* One tensor is large enough to go, and the other stays. */
static void test_a_save_that_fails(void)
{
    struct gh_offload_options options = usual();
    gh_offload_tensor tensors[] = { { NULL, BYTES }, { NULL, 100 } };
    struct gh_offload_at where;
    gh_offload_group group;

    options.min_bytes = 512;
    begin_profiled(&options);
    where = at(0, 0);
    group = group_of(0, tensors);
    group.n_tensors = 2;
    no_memory = true;
    is_status(gh_offload_save_eager(o, &where, &group, &err), GH_ERR_NO_MEMORY,
              &err, "a save without memory for what stays fails");
    no_memory = false;
    ok(blocks_out == 0 && o->table.classes[0]->out.buffers[0]->holder == NULL,
       "and gives its block and its buffer back");
    end();
}

/* Of each group a part is too small to go. */
static void flight_of_parts(uint32_t microbatch)
{
    gh_offload_tensor tensors[] = { { NULL, BYTES }, { NULL, 100 } };
    bool well = true;

    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        const struct gh_offload_at where = at(layer, microbatch);
        gh_offload_group group = group_of(layer, tensors);

        group.n_tensors = 2;
        well = well &&
               gh_offload_save_eager(o, &where, &group, &err) == GH_OK &&
               gh_offload_commit_eager(o, &where, &group, &err) == GH_OK;
    }
    for (uint32_t layer = LAYERS; layer-- > 0;) {
        const struct gh_offload_at where = at(layer, microbatch);
        gh_offload_group group = group_of(layer, tensors);

        group.n_tensors = 2;
        well = well &&
               gh_offload_load_eager(o, &where, &group, &err) == GH_OK &&
               gh_offload_release_eager(o, &where, &group, &err) == GH_OK;
    }
    ok(well, "microbatch %u goes, but for what is too small", microbatch);
}

static void test_memory_that_will_be_kept(void)
{
    const int64_t kept = (LAYERS - 1) * 256 + (BYTES + 256);
    struct gh_offload_options options = usual();
    gh_offload_stats stats;

    options.min_bytes = 512;
    begin(&options);
    flight_of_parts(0);
    flight_of_parts(SLOTS);
    gh_offload_end_step(o, &err);
    is_int((int64_t)gh_offload_will_keep(o), 2 * kept,
           "each flight will keep what is too small, and the last group");
    gh_offload_count(o, &stats);
    ok((int64_t)stats.kept_bytes < 2 * kept, "which it has not yet");
    flight_of_parts(0);
    flight_of_parts(SLOTS);
    gh_offload_count(o, &stats);
    is_int((int64_t)stats.kept_bytes, 2 * kept, "and has when they were there");
    is_int((int64_t)gh_offload_will_keep(o), 2 * kept, "as was foreseen");
    is_int(stats.groups_offloaded, LAYERS - 1, "all groups go but one");
    is_int((int64_t)stats.ring_bytes, 4 * BYTES, "through two rings of two");
    end();
}

static void test_what_is_larger_stays(void)
{
    begin_profiled(NULL);
    save_bytes(0, 0, BYTES + 256);
    ok(!instance(0, 0)->goes, "what is larger than in the profile stays");
    ok(strstr(said, "it stays on the device where it is larger") != NULL,
       "and is said to");
    gh_offload_end_step(o, &err);
    save_bytes(0, 0, BYTES - 256);
    ok(instance(0, 0)->goes, "what is smaller goes");
    end();
}

/* ---- what is given up ---------------------------------------------------- */

static void test_a_writer_is_given_up(void)
{
    gh_offload_tensor tensor = { NULL, BYTES };
    gh_offload_group group = group_of(0, &tensor);
    struct gh_offload_at where;

    begin_profiled(NULL);
    save(0, 0);
    called();
    gh_offload_cancel(o, instance(0, 0)->pass, true);
    are("the next writer of its buffer follows what was issued",
        "R%u@m W%u@o drop@o R%u@o", out_filled(0), out_filled(0), out_read(0));
    ok(blocks_out == 0 && instance(0, 0)->out == NULL &&
           o->table.classes[0]->out.buffers[0]->holder == NULL,
       "its block and its buffer are free");
    where = at(0, 0);
    where.stream = SIDE;
    is_status(gh_offload_save_eager(o, &where, &group, &err), GH_OK, &err,
              "the group is saved again, on another stream");
    are("which waits until that buffer may be written", "W%u@s", out_read(0));
    end();
}

static void test_a_flight_is_given_up(void)
{
    begin_profiled(NULL);
    save(0, 0);
    commit(0, 0);
    save(1, 0);
    commit(1, 0);
    ok(o->newest == instance(1, 0), "the last commit is the newest");
    gh_offload_cancel(o, instance(1, 0)->pass, true);
    ok(o->newest == instance(0, 0) && instance(1, 0)->before == NULL &&
           instance(0, 0)->after == NULL,
       "one that is given up is none of the commits");
    gh_offload_end_step(o, &err);
    ok(o->newest == NULL && blocks_out == 0,
       "nor are any after the end of the step");
    end();
}

/* Of two backwards under way only one is given up. */
static void test_a_reader_is_given_up(void)
{
    begin_profiled(NULL);
    for (uint32_t microbatch = 0; microbatch < 2; microbatch++) {
        save(0, microbatch);
        commit(0, microbatch);
        save(1, microbatch);
        commit(1, microbatch);
    }
    load(1, 0);
    load(1, 1);
    ok(instance(1, 0)->back != instance(1, 1)->back,
       "two microbatches read in two buffers");
    called();
    gh_offload_cancel(o, instance(1, 0)->pass, false);
    are("what it has issued is read before the next copy back",
        "drop@m R%u@m",
        back_read(instance(1, 1)->back ==
                  o->table.classes[0]->back.buffers[0]));
    is_int(instance(1, 0)->state, GH_INSTANCE_AWAY, "its group is on the host");
    is_int(instance(1, 1)->state, GH_INSTANCE_READING,
           "and that of the other is read on");
    called();
    gh_offload_end_step(o, &err);
    ok(strstr(called(), "drop@m R") != NULL && blocks_out == 0,
       "until the end of the step, which gives up that one too");
    end();
}

/* A group came ahead, and nobody has asked for it: its buffer is spoilt and
 * filled again only after that copy. */
static void test_a_copy_back_is_given_up(void)
{
    begin_profiled(NULL);
    save(0, 0);
    commit(0, 0);
    gh_move_back(o, instance(0, 0), o->table.classes[0]->back.buffers[0], true,
                 &err);
    called();
    gh_offload_end_step(o, &err);
    are("a copy back that is given up is behind what may be done to its buffer",
        "W%u@b drop@b R%u@b", back_read(0), back_read(0));
    ok(o->table.classes[0]->back.buffers[0]->holder == NULL,
       "which is free then");
    end();
}

/* GRAPHHOOKS_CHECK compares between a release and what follows from it. */
static void test_a_release_is_given_up(void)
{
    struct gh_offload_at where = at(0, 0);
    gh_offload_group group = group_of(0, NULL);

    begin_profiled(NULL);
    save(0, 0);
    commit(0, 0);
    load(0, 0);
    where.compares = true;
    gh_offload_release_eager(o, &where, &group, &err);
    called();
    gh_offload_end_step(o, &err);
    are("the buffer of a release that is given up is free once it was read",
        "drop@m R%u@m", back_read(0));
    end();
}

static void test_a_buffer_is_spoilt(void)
{
    begin_profiled(NULL);
    called();
    gh_offload_spoil(o, MAIN);
    ok(strstr(called(), "W") != NULL, "buffers are spoilt");
    gh_offload_spoil(o, MAIN);
    are("each after its last reader and after its last copy",
        "W%u@m W%u@m spoil@m R%u@m W%u@m W%u@m spoil@m R%u@m "
        "W%u@m W%u@m spoil@m R%u@m W%u@m W%u@m spoil@m R%u@m",
        out_read(0), out_filled(0), out_read(0), out_read(1), out_filled(1),
        out_read(1), back_read(0), back_filled(0), back_read(0), back_read(1),
        back_filled(1), back_read(1));
    end();
}

/* The n-th call of what gives up a writer fails. */
static void test_an_edge_that_fails(void)
{
    static const char *const waits[] = { "sync@m ", "sync%u ", "sync@o" };
    char wanted[40];

    for (uint32_t n = 1; n <= 3; n++) {
        begin_profiled(NULL);
        save(0, 0);
        called();
        snprintf(wanted, sizeof(wanted), waits[n - 1], out_filled(0));
        n_fallible = 0;
        fails_at = n;
        gh_offload_cancel(o, instance(0, 0)->pass, true);
        fails_at = 0;
        ok(strstr(called(), wanted) != NULL,
           "where the driver refuses an edge, the host waits instead: %s",
           wanted);
        end();
    }
}

/* The copy is issued, and the record after it fails. */
static void test_a_copy_back_that_fails(void)
{
    begin_profiled(NULL);
    save(0, 0);
    commit(0, 0);
    called();
    n_fallible = 0;
    fails_at = 4;
    is_status(load(0, 0), GH_ERR_DEVICE, &err,
              "a load whose record fails is refused");
    fails_at = 0;
    are("what it has issued is marked once more",
        "Wk9@b W%u@b back@b R%u@b R%u@b", back_read(0), back_filled(0),
        back_filled(0));
    ok(load(0, 0) == GH_OK && release(0, 0) == GH_OK, "and it may be repeated");
    end();
}

static void test_a_release_that_fails(void)
{
    begin_profiled(NULL);
    save(0, 0);
    commit(0, 0);
    load(0, 0);
    n_fallible = 0;
    fails_at = 1;
    is_status(release(0, 0), GH_ERR_DEVICE, &err,
              "a release that cannot be marked fails");
    fails_at = 0;
    is_int(instance(0, 0)->state, GH_INSTANCE_READING,
           "and the group is read on");
    ok(release(0, 0) == GH_OK && instance(0, 0)->state == GH_INSTANCE_IDLE,
       "until it is repeated");
    ok(instance(0, 0)->back == NULL && instance(0, 0)->block == NULL &&
           o->table.classes[0]->back.buffers[0]->holder == NULL,
       "and has neither its buffer nor its block");
    end();
}

/* What was read last makes room for what is read next. */
static void test_ahead_at_a_release(void)
{
    begin_profiled(NULL);
    for (uint32_t layer = 0; layer < 4; layer++) {
        save(layer, 0);
        commit(layer, 0);
    }
    load(3, 0);
    ok(instance(2, 0)->state == GH_INSTANCE_BACK &&
           instance(1, 0)->state == GH_INSTANCE_AWAY,
       "of two buffers one is read, and one comes ahead");
    release(3, 0);
    is_int(instance(1, 0)->state, GH_INSTANCE_BACK,
           "a release makes room for the next");
    end();
}

/* ---- the way back -------------------------------------------------------- */

static void test_another_buffer(void)
{
    struct gh_ring_buffer *first, *second;

    begin_profiled(NULL);
    save(0, 0);
    commit(0, 0);
    first = o->table.classes[0]->back.buffers[0];
    second = o->table.classes[0]->back.buffers[1];
    is_status(gh_move_back(o, instance(0, 0), first, true, &err), GH_OK, &err,
              "a group is brought back");
    is_status(gh_move_back(o, instance(0, 0), second, false, &err), GH_OK, &err,
              "and once more, into another buffer");
    ok(first->holder == NULL && second->holder == instance(0, 0),
       "the first buffer is nobody's then");
    end();
}

static void test_another_microbatch(void)
{
    begin_profiled(NULL);
    save(0, 0);
    commit(0, 0);
    instance(0, 0)->microbatch = 5;
    is_status(load(0, 0), GH_ERR_STATE, &err,
              "a slot whose group is another microbatch's is not loaded");
    ok(strstr(err.text, "microbatch 5 is committed, and not loaded") != NULL,
       "and that microbatch is named: %s", err.text);
    end();
}

static void test_ahead(void)
{
    begin_profiled(NULL);
    for (uint32_t layer = 0; layer < 4; layer++) {
        save(layer, 0);
        commit(layer, 0);
    }
    gh_table_find(&o->table, 2, GH_MODULE_MLP)->chunk = 1;
    load(3, 0);
    is_int(instance(2, 0)->state, GH_INSTANCE_AWAY,
           "a group of another chunk does not come ahead");
    release(3, 0);
    gh_table_find(&o->table, 2, GH_MODULE_MLP)->chunk = 0;
    ok(o->newest == instance(2, 0), "what was released is none of the commits");
    gh_move_unlink(o, instance(6, 0));
    ok(o->newest == instance(2, 0),
       "and to take out what was not there changes nothing");
    load(2, 0);
    is_int(instance(1, 0)->state, GH_INSTANCE_BACK, "the next one comes ahead");
    end();
}

/* ---- the profile --------------------------------------------------------- */

static void test_the_end_of_a_profile(void)
{
    begin(NULL);
    forward(0);
    backward(0);
    called();
    gh_offload_end_step(o, &err);
    is_int(strncmp(called(), "sync@o sync@b", 13), 0,
           "copies of both ways are waited for before their buffers go");
    end();
}

static void test_evaluations_are_no_flights(void)
{
    begin(NULL);
    forward(0);
    backward(0);
    for (uint32_t microbatch = 1; microbatch < SLOTS; microbatch++) {
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            struct gh_offload_at where = at(layer, microbatch);
            gh_offload_tensor tensor = { NULL, BYTES };
            gh_offload_group group = group_of(layer, &tensor);

            where.forward_only = true;
            gh_offload_save_eager(o, &where, &group, &err);
            gh_offload_commit_eager(o, &where, &group, &err);
        }
    }
    ok(instance(0, 0)->used && !instance(0, 1)->used,
       "a microbatch without a backward is no flight");
    end();
}

static void test_a_smaller_pass(void)
{
    begin(NULL);
    forward(0);
    backward(0);
    forward(1);
    for (uint32_t layer = LAYERS; layer-- > 0;) {
        load(layer, 1);
        release(layer, 1);
    }
    save_bytes(0, 2, BYTES / 2);
    commit(0, 2);
    is_int(gh_table_find(&o->table, 0, GH_MODULE_MLP)->bytes, BYTES,
           "a group has the bytes of its largest pass");
    gh_offload_end_step(o, &err); /* it was cut short */
    forward(0);
    backward(0);
    gh_offload_end_step(o, &err);
    is_int(gh_table_find(&o->table, 0, GH_MODULE_MLP)->size_class->bytes, BYTES,
           "and the class of that pass");
    end();
}

static void test_steps_without_groups(void)
{
    begin(NULL);
    ok(gh_offload_is_profiling(o, 0), "nothing is recorded before a step");
    o->trains = true;
    gh_offload_end_step(o, &err);
    ok(!gh_offload_is_profiling(o, 1), "a step without groups shows nothing");
    save(0, 0);
    ok(!gh_offload_is_profiling(o, 1),
       "where a step has trained without groups, a save holds up nobody");
    commit(0, 0);
    ok(gh_offload_is_profiling(o, 1),
       "but from the first commit on, the step is the profile");
    load(0, 0);
    release(0, 0);
    end();
    begin(NULL);
    gh_offload_end_step(o, &err);
    save(0, 0);
    ok(gh_offload_is_profiling(o, 1),
       "the profile goes on where groups come after an evaluation");
    end();
}

/* One group is an evaluation's, and the others come in no order of layers. */
static void test_the_order_of_a_profile(void)
{
    static const uint32_t layers[] = { 6, 2, 7, 0, 1, 4, 3 };
    struct gh_offload_options options = usual();
    struct gh_offload_at where;
    gh_offload_tensor tensor = { NULL, BYTES };
    gh_offload_group group = group_of(5, &tensor);
    uint32_t wrong = 0;

    options.modules |= GH_MODULE_CORE_ATTN;
    begin(&options);
    where = at(5, 0);
    where.forward_only = true;
    gh_offload_save_eager(o, &where, &group, &err);
    gh_offload_commit_eager(o, &where, &group, &err);
    for (uint32_t i = 0; i < 7; i++) {
        save(layers[i], 0);
        commit(layers[i], 0);
    }
    group = group_of(0, &tensor);
    group.module = GH_MODULE_CORE_ATTN; /* its rings would gain nothing */
    where = at(0, 0);
    gh_offload_save_eager(o, &where, &group, &err);
    gh_offload_commit_eager(o, &where, &group, &err);
    gh_offload_load_eager(o, &where, &group, &err);
    gh_offload_release_eager(o, &where, &group, &err);
    for (uint32_t i = 7; i-- > 0;) {
        load(layers[i], 0);
        release(layers[i], 0);
    }
    gh_offload_end_step(o, &err);
    for (uint32_t i = 0; i < 7; i++) {
        wrong += o->table.groups[i]->layer != layers[i];
    }
    is_int(wrong, 0, "groups are in the order of their commits");
    is_int(o->table.groups[7]->module, GH_MODULE_CORE_ATTN, "to the last");
    is_int(o->table.groups[8]->layer, 5, "and then what has none");
    is_int(o->table.groups[8]->fate, GH_FATE_NEW, "which does not go");
    ok(o->table.classes[0]->out.n == 2 && o->table.classes[0]->back.n == 2 &&
           o->table.classes[1]->out.n == 0 && o->table.classes[1]->back.n == 0,
       "a class of which none goes has no rings");
    end();
}

static void test_calls_out_of_turn(void)
{
    struct gh_offload_at where;
    gh_offload_tensor tensor = { NULL, BYTES };
    gh_offload_group group = group_of(1, &tensor);

    begin_profiled(NULL);
    is_status(commit(0, 0), GH_ERR_STATE, &err, "no commit without a save");
    is_status(release(0, 0), GH_ERR_STATE, &err, "no release without a load");
    save(0, 0);
    is_status(save(0, 0), GH_ERR_STATE, &err, "no second save");
    is_status(load(0, 0), GH_ERR_STATE, &err, "no load before the commit");
    commit(0, 0);
    is_status(commit(0, 0), GH_ERR_STATE, &err, "no second commit");
    is_status(release(0, 0), GH_ERR_STATE, &err, "no release before the load");
    load(0, 0);
    is_status(load(0, 0), GH_ERR_STATE, &err, "no second load");
    release(0, 0);
    is_status(release(0, 0), GH_ERR_STATE, &err, "no second release");
    is_int(instance(0, 0)->state, GH_INSTANCE_IDLE, "and the group is as new");
    where = at(1, 0);
    where.paused = true;
    is_status(gh_offload_save_eager(o, &where, &group, &err), GH_OK, &err,
              "a host that warms up saves");
    ok(!instance(1, 0)->goes, "and all of it stays");
    end();
}

static void test_declared_groups(void)
{
    static const struct {
        uint32_t layer, segment;
        gh_status status;
    } cases[] = {
        { LAYERS - 1, LAYERS - 1, GH_OK },
        { LAYERS, 0, GH_ERR_INVALID },
        { 0, LAYERS, GH_ERR_INVALID },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gh_offload_declared group = { .struct_size = sizeof(group),
                                      .layer = cases[i].layer,
                                      .segment = cases[i].segment,
                                      .module = GH_MODULE_MLP,
                                      .bytes = BYTES };

        begin(NULL);
        is_status(gh_offload_decide_declared(o, &group, 1, 1, &err),
                  cases[i].status, &err, "a group of layer %u, segment %u",
                  group.layer, group.segment);
        is_status(gh_offload_decide_declared(o, &group, 1, 1, &err),
                  cases[i].status == GH_OK ? GH_ERR_STATE : GH_ERR_INVALID,
                  &err, "is declared once");
        end();
    }
}

static void test_a_declared_number_in_flight(void)
{
    gh_offload_declared group = { .struct_size = sizeof(group),
                                  .module = GH_MODULE_MLP,
                                  .bytes = BYTES };

    begin(NULL);
    is_status(gh_offload_decide_declared(o, &group, 1, 0, &err), GH_ERR_INVALID,
              &err, "no microbatch in flight is refused");
    is_status(
        gh_offload_decide_declared(o, &group, 1, GH_MAX_MICROBATCHES + 1, &err),
        GH_ERR_INVALID, &err, "so are more than there may be");
    is_status(
        gh_offload_decide_declared(o, &group, 1, GH_MAX_MICROBATCHES, &err),
        GH_OK, &err, "and the most are not");
    end();
}

/* ---- without memory of the host ------------------------------------------ */

static gh_status one_flight(uint32_t microbatch)
{
    gh_status status = save(0, microbatch);

    if (status == GH_OK) {
        status = commit(0, microbatch);
    }
    if (status == GH_OK) {
        status = gh_offload_flush(o, &err);
    }
    if (status == GH_OK) {
        status = load(0, microbatch);
    }
    return status == GH_OK ? release(0, microbatch) : status;
}

/* Each allocation of a flight, in a slot or without one, fails in its turn. */
static void test_host_memory_that_fails(void)
{
    for (uint32_t microbatch = 0; microbatch <= SLOTS; microbatch += SLOTS) {
        uint32_t n = 0, wrong = 0;
        bool refused;

        do {
            gh_status status;

            begin(NULL);
            err.text[0] = '\0';
            host_memory_refuse(++n);
            status = one_flight(microbatch);
            refused = host_memory_asked() >= n;
            host_memory_refuse(0);
            wrong += status != GH_OK &&
                     (status != GH_ERR_NO_MEMORY ||
                      strstr(err.text, "no memory") == NULL);
            wrong += one_flight(microbatch + 1) != GH_OK;
            end();
        } while (refused && n < 100);
        ok(n > 8 && n < 100, "a flight of microbatch %u has %u allocations",
           microbatch, n - 1);
        is_int(wrong, 0,
               "where one fails, that is said, and the next flight is whole");
    }
}

/* So does each call of the device: the flight fails, or the host waits. */
static void test_calls_that_fail(void)
{
    struct gh_offload_options options = usual();

    for (int delay = 0; delay < 2; delay++) {
        uint32_t n = 0, silent = 0, broken = 0;
        bool reached;

        options.delay = delay != 0;
        do {
            gh_status status;

            begin_profiled(&options);
            n_fallible = 0;
            fails_at = ++n;
            status = one_flight(0);
            reached = n_fallible >= n;
            fails_at = 0;
            silent += reached && status == GH_OK &&
                      strstr(called(), "sync") == NULL;
            gh_offload_end_step(o, &err);
            broken += one_flight(1) != GH_OK;
            end();
        } while (reached && n < 100);
        ok(n > 8 && n < 100, "a flight%s has %u calls",
           delay ? " whose commit is delayed" : "", n - 1);
        is_int(silent, 0, "where one fails, that is said or waited for");
        is_int(broken, 0, "and the next flight is whole");
    }
}

static uint32_t slotless(void)
{
    uint32_t n = 0;

    for (const struct gh_instance *i =
             gh_table_find(&o->table, 0, GH_MODULE_MLP)->slotless;
         i != NULL; i = i->next) {
        n++;
    }
    return n;
}

static void test_microbatches_without_a_slot(void)
{
    begin_profiled(NULL);
    save(0, SLOTS);
    commit(0, SLOTS);
    save(0, SLOTS + 1);
    commit(0, SLOTS + 1);
    is_int(slotless(), 2, "two microbatches without a slot are two flights");
    is_status(load(0, SLOTS + 2), GH_ERR_STATE, &err,
              "no third is loaded that was not saved");
    ok(load(0, SLOTS) == GH_OK && release(0, SLOTS) == GH_OK,
       "each is found by its number");
    is_int(slotless(), 3, "whose place is idle");
    save(0, SLOTS + 3);
    commit(0, SLOTS + 3);
    is_int(slotless(), 3, "and has the next that is saved");
    ok(load(0, SLOTS + 3) == GH_OK && release(0, SLOTS + 3) == GH_OK &&
           load(0, SLOTS + 1) == GH_OK && release(0, SLOTS + 1) == GH_OK,
       "and nobody is mistaken for another");
    end();
}

int main(void)
{
    test_host_memory_that_fails();
    test_microbatches_without_a_slot();
    test_behind_an_exchange();
    test_far_ahead();
    test_calls_that_fail();
    test_a_release_that_fails();
    test_the_order_of_a_profile();
    test_calls_out_of_turn();
    test_declared_groups();
    test_a_queue_without_one();
    test_memory_that_will_be_kept();
    test_one_more_buffer();
    test_rings();
    test_loans();
    test_loans_of_recordings();
    test_a_flush_in_one_call();
    test_what_is_gone_is_wiped();
    test_a_flush_that_is_traced();
    test_many_copies();
    test_a_save_that_fails();
    test_what_is_larger_stays();
    test_a_writer_is_given_up();
    test_a_flight_is_given_up();
    test_a_reader_is_given_up();
    test_a_copy_back_is_given_up();
    test_a_release_is_given_up();
    test_a_buffer_is_spoilt();
    test_an_edge_that_fails();
    test_a_copy_back_that_fails();
    test_ahead_at_a_release();
    test_another_buffer();
    test_another_microbatch();
    test_ahead();
    test_the_end_of_a_profile();
    test_evaluations_are_no_flights();
    test_a_smaller_pass();
    test_steps_without_groups();
    test_a_declared_number_in_flight();
    return done_with_device();
}
