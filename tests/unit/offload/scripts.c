/*
 * Passes that are recorded, and what is done around their launches: a graph is
 * launched only where its groups are where it knows them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/unit/offload/fake.h"

#include "offload/groups/host_owned.h"
#include "offload/move/script.h"
#include "tap/tap.h"

#include <string.h>

static struct gh_offload_script script;
static char own_memory[2 * BYTES];

static gh_status record_save(uint32_t layer, uint64_t bytes)
{
    const struct gh_offload_at where = at(layer, 0);
    gh_offload_tensor tensor = { NULL, bytes };
    gh_offload_group group = group_of(layer, &tensor);

    return gh_offload_save_recorded(o, &where, &group, &script, &err);
}

static gh_status record_commit(uint32_t layer)
{
    const struct gh_offload_at where = at(layer, 0);
    gh_offload_group group = group_of(layer, NULL);

    return gh_offload_commit_recorded(o, &where, &group, &script, &err);
}

static gh_status record_load(uint32_t layer)
{
    const struct gh_offload_at where = at(layer, 0);
    gh_offload_tensor tensor = { NULL, BYTES };
    gh_offload_group group = group_of(layer, &tensor);

    return gh_offload_load_recorded(o, &where, &group, &script, &err);
}

static gh_status record_release(uint32_t layer)
{
    const struct gh_offload_at where = at(layer, 0);
    gh_offload_group group = group_of(layer, NULL);

    return gh_offload_release_recorded(o, &where, &group, &script, &err);
}

static gh_status save_host_owned(uint32_t layer)
{
    const struct gh_offload_at where = at(layer, 0);
    gh_offload_tensor tensor = { own_memory, BYTES };
    gh_offload_group group = group_of(layer, &tensor);
    gh_status status;

    group.flags = GH_OFFLOAD_HOST_OWNED;
    status = gh_offload_save_eager(o, &where, &group, &err);
    return status == GH_OK ? gh_offload_commit_eager(o, &where, &group, &err)
                           : status;
}

static gh_status launch(uint32_t microbatch)
{
    struct gh_offload_at where = at(0, microbatch);
    gh_status status = gh_offload_before(o, &script, &where, &err);

    if (status == GH_OK) {
        gh_offload_after(o, &script);
    }
    return status;
}

static void end_script(void)
{
    gh_offload_script_free(&script);
    end();
}

/* ---- what is recorded ---------------------------------------------------- */

static void test_one_buffer_twice(void)
{
    begin_profiled(NULL);
    is_int(o->table.classes[0]->out.n_indexed, 2, "two groups have a place");
    ok(record_save(0, BYTES) == GH_OK && record_commit(0) == GH_OK &&
           record_save(1, BYTES) == GH_OK && record_commit(1) == GH_OK,
       "a graph may save two groups");
    is_status(record_save(2, BYTES), GH_ERR_STATE, &err,
              "but no third into the buffer of the first");
    ok(strstr(err.text, "layer 2, mlp and layer 0, mlp have one buffer") !=
           NULL,
       "both of which are named: %s", err.text);
    gh_offload_script_free(&script);
    ok(record_save(0, BYTES) == GH_OK && record_save(2, BYTES) != GH_OK,
       "even before the first is committed");
    gh_offload_script_free(&script);
    for (uint32_t layer = 0; layer < 3; layer++) {
        save(layer, 0);
        commit(layer, 0);
    }
    ok(record_load(2) == GH_OK && record_release(2) == GH_OK &&
           record_load(1) == GH_OK && record_release(1) == GH_OK,
       "a graph may load two groups");
    is_status(record_load(0), GH_ERR_STATE, &err,
              "but no third from the buffer of the first");
    end_script();
}

static void test_memory_for_the_largest_bank(void)
{
    begin(NULL);
    forward(0);
    backward(0);
    gh_offload_end_step(o, &err);
    is_int(instance(7, 0)->group->fate, GH_FATE_MARGIN, "the last group stays");
    is_status(record_save(7, BYTES / 2), GH_OK, &err,
              "the graph of a smaller bank saves it");
    is_int(instance(7, 0)->kept_bytes, BYTES,
           "and gets memory for the largest bank, whose graph has the same");
    end_script();
}

/* What a graph reads, no eager pass replaces. */
static void test_memory_that_a_graph_reads(void)
{
    void *kept;

    begin_profiled(NULL);
    save(7, 0);
    commit(7, 0);
    kept = instance(7, 0)->kept;
    is_status(record_load(7), GH_OK, &err, "a graph reads what has stayed");
    ok(instance(7, 0)->recorded, "so its memory is known to a graph");
    is_status(record_release(7), GH_OK, &err, "to its end");
    is_status(launch(0), GH_OK, &err, "and is read");
    save_bytes(7, 0, 2 * BYTES);
    ok(instance(7, 0)->kept == kept && instance(7, 0)->held != kept,
       "a larger eager pass has other memory");
    end_script();
}

/* What has gone as a whole is in no memory of its own. */
static void test_what_a_graph_knows(void)
{
    begin_profiled(NULL);
    save(0, 0);
    commit(0, 0);
    ok(record_load(0) == GH_OK && record_release(0) == GH_OK &&
           instance(0, 0)->recorded,
       "a graph knows the instance of tensors that the library has given");
    gh_offload_script_free(&script);
    is_status(save_host_owned(1), GH_OK, &err, "a group of the host's own goes");
    ok(record_load(1) == GH_OK && record_release(1) == GH_OK &&
           !instance(1, 0)->recorded,
       "of which a graph knows nothing but the buffer");
    end_script();
}

/* A graph of two groups has a block for each at once. */
static void test_pinned_memory_for_two(void)
{
    begin_profiled(NULL);
    ok(record_save(0, BYTES) == GH_OK && record_commit(0) == GH_OK,
       "a graph saves a group");
    is_int(asked_blocks, 1, "for which it asks for a block");
    ok(record_save(1, BYTES) == GH_OK && record_commit(1) == GH_OK,
       "and another");
    is_int(asked_blocks, 2, "for which it asks for two");
    end_script();
}

/* Without pinned memory the first graph settles that the group stays. */
static void test_without_pinned_memory(void)
{
    begin_profiled(NULL);
    no_pinned = true;
    ok(record_save(0, BYTES) == GH_OK && record_commit(0) == GH_OK,
       "a graph saves a group without pinned memory");
    no_pinned = false;
    is_int(script.steps[0].stays, BYTES, "all of which stays");
    is_status(save(0, 0), GH_OK, &err, "an eager pass saves the same");
    ok(!instance(0, 0)->goes, "where graphs have it, though there is some now");
    end_script();
}

/* ---- launches ------------------------------------------------------------ */

static void test_a_save_that_is_replayed(void)
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
    is_status(gh_offload_save_recorded(o, &where, &group, &script, &err), GH_OK,
              &err, "a part of a group stays");
    is_status(record_commit(0), GH_OK, &err, "beside what goes");
    save(0, 0);
    commit(0, 0);
    load(0, 0);
    release(0, 0);
    is_int(instance(0, 0)->stays, 0, "of the eager pass before nothing stays");
    is_status(launch(0), GH_OK, &err, "the graph is launched");
    is_int(instance(0, 0)->stays, 256, "and its part stays");
    ok(instance(0, 0)->held == instance(0, 0)->kept,
       "in the memory that it knows");
    end_script();
}

static void test_a_load_of_another_microbatch(void)
{
    begin_profiled(NULL);
    save(0, 0);
    commit(0, 0);
    is_status(record_load(0), GH_OK, &err, "a graph loads a group");
    is_status(record_release(0), GH_OK, &err, "and releases it");
    for (uint32_t s = 0; s < script.n; s++) {
        script.steps[s].instance->microbatch = 3;
    }
    is_status(launch(0), GH_ERR_STATE, &err,
              "it is not launched where the slot has another microbatch's");
    is_int(instance(0, 0)->state, GH_INSTANCE_AWAY, "which stays on the host");
    instance(0, 0)->microbatch = 0;
    is_status(launch(0), GH_OK, &err, "and is, where it has its own");
    is_int(instance(0, 0)->state, GH_INSTANCE_IDLE, "which is released");
    end_script();
}

static void test_loads_out_of_turn(void)
{
    begin_profiled(NULL);
    save(0, 0);
    is_status(record_load(0), GH_ERR_STATE, &err,
              "no graph loads a group that is not committed");
    commit(0, 0);
    instance(0, 0)->microbatch = 3;
    is_status(record_load(0), GH_ERR_STATE, &err,
              "nor one of another microbatch");
    instance(0, 0)->microbatch = 0;
    is_status(record_load(0), GH_OK, &err, "its own it does");
    end_script();
}

static void test_a_load_of_the_hosts_own(void)
{
    begin_profiled(NULL);
    save(0, 0);
    commit(0, 0);
    record_load(0);
    record_release(0);
    is_status(launch(0), GH_OK, &err,
              "a graph reads a group of the library's memory");
    is_status(save_host_owned(0), GH_OK, &err,
              "the host saves the same of its own");
    is_status(launch(0), GH_ERR_STATE, &err, "which that graph does not read");
    ok(strstr(err.text, "has another place") != NULL, "with a sentence: %s",
       err.text);
    end_script();
}

static void test_other_tensors_of_the_hosts_own(void)
{
    const struct gh_offload_at where = at(0, 0);
    gh_offload_tensor tensors[] = { { NULL, BYTES }, { NULL, 8 } };
    gh_offload_group group = group_of(0, tensors);

    begin_profiled(NULL);
    save_host_owned(0);
    group.n_tensors = 2;
    is_status(gh_offload_load_eager(o, &where, &group, &err), GH_ERR_INVALID,
              &err, "a load of more tensors of the host's own is refused");
    group.n_tensors = 1;
    tensors[0].bytes = BYTES - 1;
    is_status(gh_offload_load_eager(o, &where, &group, &err), GH_ERR_INVALID,
              &err, "so is one of other bytes");
    ok(strstr(err.text, "tensors[0] has 1023 bytes, and had 1024") != NULL,
       "which are named: %s", err.text);
    is_status(load(0, 0), GH_OK, &err, "and what was saved is loaded");
    end();
    begin_profiled(NULL);
    tensors[0] = (gh_offload_tensor){ own_memory, 512 };
    tensors[1] = (gh_offload_tensor){ own_memory + 512, 300 };
    group.n_tensors = 2;
    group.flags = GH_OFFLOAD_HOST_OWNED;
    gh_offload_save_eager(o, &where, &group, &err);
    gh_offload_commit_eager(o, &where, &group, &err);
    tensors[1].bytes = 301;
    is_status(gh_offload_load_eager(o, &where, &group, &err), GH_ERR_INVALID,
              &err, "of two tensors the second is another");
    ok(strstr(err.text, "tensors[1] has 301 bytes, and had 300") != NULL,
       "which is the one that is named: %s", err.text);
    end();
}

static void test_a_commit_of_another_pass(void)
{
    const struct gh_offload_at where = at(0, 0);
    gh_offload_tensor tensor = { own_memory, BYTES };
    gh_offload_group group = group_of(0, &tensor);

    begin_profiled(NULL);
    group.flags = GH_OFFLOAD_HOST_OWNED;
    gh_offload_save_eager(o, &where, &group, &err);
    is_status(record_commit(0), GH_ERR_STATE, &err,
              "no graph commits what another pass has saved of the host's own");
    is_status(commit(0, 0), GH_ERR_STATE, &err, "nor does another eager pass");
    is_status(gh_offload_commit_eager(o, &where, &group, &err), GH_OK, &err,
              "its own does");
    end_script();
}

/* Copies into memory of the library of the first tensors of the host's own. */
static int copies_of(uint32_t n_tensors)
{
    gh_offload_tensor tensors[] = { { own_memory, 1 },
                                    { own_memory + 512, 100 },
                                    { own_memory + 1024, 100 },
                                    { own_memory + 500, 600 } };
    const struct gh_offload_at where = at(0, 0);
    gh_offload_group group = group_of(0, tensors);
    const char *line;
    int n = 0;

    begin(NULL);
    group.n_tensors = n_tensors;
    group.flags = GH_OFFLOAD_HOST_OWNED;
    is_status(gh_offload_save_eager(o, &where, &group, &err), GH_OK, &err,
              "%u tensors of the host's own are saved", n_tensors);
    called();
    gh_offload_commit_eager(o, &where, &group, &err);
    for (line = called(); (line = strstr(line, "copy@m")) != NULL; line++) {
        n++;
    }
    end();
    return n;
}

static void test_copies_of_the_hosts_own(void)
{
    is_int(copies_of(1), 1, "a byte is copied");
    is_int(copies_of(4), 2, "three tensors that overlap are copied once");
}

/* The flight before was the host's own, and this one is the library's. */
static void test_a_save_after_the_hosts_own(void)
{
    begin_profiled(NULL);
    record_save(0, BYTES);
    record_commit(0);
    is_status(save_host_owned(0), GH_OK, &err,
              "the host saves a group of its own");
    gh_offload_end_step(o, &err);
    is_status(launch(0), GH_OK, &err, "a graph saves the library's after that");
    ok(!gh_instance_is_host_owned(instance(0, 0)),
       "which is not the host's any more");
    end_script();
}

static void test_a_launch_that_is_refused(void)
{
    begin_profiled(NULL);
    is_status(record_save(0, BYTES), GH_OK, &err, "a graph saves a group");
    is_status(record_commit(0), GH_OK, &err, "and commits it");
    save(0, 0);
    commit(0, 0);
    is_status(launch(0), GH_ERR_STATE, &err,
              "it is not launched while the group is in flight");
    is_int(instance(0, 0)->state, GH_INSTANCE_AWAY,
           "whose flight goes on as it did");
    is_int(blocks_out, 1, "with its block");
    end_script();
}

/* Of two groups of one graph the second cannot be saved. */
static void test_a_launch_that_fails_half_way(void)
{
    begin_profiled(NULL);
    record_save(0, BYTES);
    record_commit(0);
    record_save(1, BYTES);
    record_commit(1);
    save(1, 0);
    commit(1, 0);
    is_status(launch(0), GH_ERR_STATE, &err,
              "a graph is not launched while one of its groups is in flight");
    is_int(instance(0, 0)->state, GH_INSTANCE_IDLE,
           "the other one is given up again");
    ok(blocks_out == 1 &&
           o->table.classes[0]->out.buffers[0]->holder == NULL,
       "with its block and its buffer");
    end_script();
}

/* ---- overlaps ------------------------------------------------------------ */

static void test_overlaps_are_a_layout(void)
{
    gh_offload_tensor tensors[] = { { own_memory, 512 },
                                    { own_memory + 1024, 512 } };
    gh_offload_group group = group_of(0, tensors);
    uint64_t apart;

    begin(NULL);
    group.n_tensors = 2;
    group.flags = GH_OFFLOAD_HOST_OWNED;
    apart = gh_group_split(o, &group, true).layout;
    tensors[1].address = own_memory + 256;
    ok(gh_group_split(o, &group, true).layout != apart,
       "tensors of the same sizes that overlap have another layout");
    is_int(gh_group_split(o, &group, true).goes, 768,
           "and go once");
    end();
}

int main(void)
{
    test_one_buffer_twice();
    test_memory_for_the_largest_bank();
    test_memory_that_a_graph_reads();
    test_what_a_graph_knows();
    test_pinned_memory_for_two();
    test_other_tensors_of_the_hosts_own();
    test_a_commit_of_another_pass();
    test_without_pinned_memory();
    test_a_save_that_is_replayed();
    test_a_load_of_another_microbatch();
    test_loads_out_of_turn();
    test_a_load_of_the_hosts_own();
    test_copies_of_the_hosts_own();
    test_a_save_after_the_hosts_own();
    test_a_launch_that_is_refused();
    test_a_launch_that_fails_half_way();
    test_overlaps_are_a_layout();
    return done_with_device();
}
