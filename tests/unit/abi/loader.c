/* The table that a host gets by one symbol has every call, in its place. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tap/tap.h"

#include <graphhooks.h>
#include <string.h>

#define SLOTS(slot) \
    slot(version) slot(status_name) slot(reason_name) slot(model_create) \
    slot(model_add_layer) slot(model_destroy) slot(session_open) \
    slot(session_close) slot(session_stats) slot(plan_segment_count) \
    slot(plan_segment) slot(plan_print) slot(pre_warmup) slot(post_warmup) \
    slot(layer_enter) slot(layer_exit) slot(layer_cancel) \
    slot(flush_delayed) slot(iteration_end) slot(plan_border_count) \
    slot(plan_border) slot(tensor_name) slot(border_find) slot(aux_bind) \
    slot(model_describe) slot(session_reasons) slot(offload_save) \
    slot(offload_commit) slot(offload_load) slot(offload_release) \
    slot(offload_get_stats) slot(offload_declare) slot(bank_add) \
    slot(bank_get_stats) slot(packed_set) slot(ranks_set) slot(ranks_clear) \
    slot(ranks_wait) slot(overlap_run) slot(overlap_get_stats) \
    slot(exchange_create) slot(exchange_destroy) slot(exchange_window) \
    slot(exchange_lay_out) slot(exchange_all_to_all) slot(exchange_wait) \
    slot(exchange_get_stats) slot(ranks_abort) \
    slot(exchange_release_window) slot(plan_slots) \
    slot(stash_create) slot(stash_destroy) \
    slot(stash_add) slot(stash_reserve) slot(stash_push) slot(stash_pop) \
    slot(stash_end_step) slot(stash_get_stats) \
    slot(session_suspend) slot(session_resume) slot(memory_get_stats) \
    slot(stash_suspend) slot(stash_resume) \
    slot(words_compare) slot(exchange_suspend) slot(exchange_resume) \
    slot(pool_create) slot(pool_destroy) slot(pool_get_functions) \
    slot(pool_suspend) slot(pool_resume) slot(pool_get_stats) \
    slot(run_pass) slot(offload_is_on) slot(gradient_add)

#if GH_ABI_VERSION < 0x10000
#error "hosts choose by the version of the headers"
#endif

static void test_the_table(void)
{
    const gh_api *api = NULL;
    gh_error err = { "" };
    size_t bytes = offsetof(gh_api, version);

    is_status(gh_get_api(GH_ABI_MAJOR, &api, &err), GH_OK, &err,
              "a host of this major gets the table");
    is_int(api->struct_size, sizeof(*api), "which says how large it is");
    is_int(api->abi_version, gh_abi_version(), "and of which release");
    is_int(gh_abi_version() >> 16, GH_ABI_MAJOR, "the major is on top");
    is_int(gh_abi_version() & 0xffff, GH_ABI_MINOR, "the minor below");
    is_int(gh_abi_version(), GH_ABI_VERSION, "as a constant has it");
    is_str(api->version(), PACKAGE_VERSION, "the package has its version");
#define TEST_SLOT(name) \
    ok(api->name == gh_##name, #name " is gh_" #name); \
    bytes += sizeof(api->name);
    SLOTS(TEST_SLOT)
#undef TEST_SLOT
    is_int(bytes, sizeof(*api), "and these are all that there are");
}

static void test_hosts_of_major_0(void)
{
    const gh_api *api = NULL, *old = NULL;
    gh_error err = { "" };

    gh_get_api(GH_ABI_MAJOR, &api, &err);
    is_status(gh_get_api(0, &old, &err), GH_OK, &err,
              "a host of major 0 gets a table");
    is_int(old->abi_version, 5, "which is of 0.5, as it reads it");
    is_int(old->struct_size, api->struct_size, "as large as the other");
    ok(memcmp(&old->version, &api->version,
              sizeof(*api) - offsetof(gh_api, version)) == 0,
       "and has the same functions");
}

static void test_refusals(void)
{
    const gh_api *api = NULL;
    gh_error err = { "" };

    is_status(gh_get_api(GH_ABI_MAJOR, NULL, &err), GH_ERR_INVALID, &err,
              "a table has to go somewhere");
    is_status(gh_get_api(GH_ABI_MAJOR + 1, &api, &err), GH_ERR_ABI, &err,
              "another major is refused");
    ok(strstr(err.text, "built for ABI major") != NULL, "in a sentence: %s",
       err.text);
    ok(api == NULL, "and no table is written");
}

int main(void)
{
    test_the_table();
    test_hosts_of_major_0();
    test_refusals();
    return done_testing();
}
