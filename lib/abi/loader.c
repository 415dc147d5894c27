/*
 * loader.c - the table for hosts that dlopen, and the versions.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include <graphhooks/loader.h>

#include "base/error.h"

#include <pthread.h>

uint32_t gh_abi_version(void)
{
    return GH_ABI_VERSION;
}

const char *gh_version(void)
{
    return PACKAGE_VERSION;
}

static const gh_api table = {
    .struct_size = sizeof(table),
    .abi_version = GH_ABI_VERSION,
    .version = gh_version,
    .status_name = gh_status_name,
    .reason_name = gh_reason_name,
    .model_create = gh_model_create,
    .model_add_layer = gh_model_add_layer,
    .model_destroy = gh_model_destroy,
    .session_open = gh_session_open,
    .session_close = gh_session_close,
    .session_stats = gh_session_stats,
    .plan_segment_count = gh_plan_segment_count,
    .plan_segment = gh_plan_segment,
    .plan_print = gh_plan_print,
    .pre_warmup = gh_pre_warmup,
    .post_warmup = gh_post_warmup,
    .layer_enter = gh_layer_enter,
    .layer_exit = gh_layer_exit,
    .layer_cancel = gh_layer_cancel,
    .flush_delayed = gh_flush_delayed,
    .iteration_end = gh_iteration_end,
    .plan_border_count = gh_plan_border_count,
    .plan_border = gh_plan_border,
    .tensor_name = gh_tensor_name,
    .border_find = gh_border_find,
    .aux_bind = gh_aux_bind,
    .model_describe = gh_model_describe,
    .session_reasons = gh_session_reasons,
    .offload_save = gh_offload_save,
    .offload_commit = gh_offload_commit,
    .offload_load = gh_offload_load,
    .offload_release = gh_offload_release,
    .offload_get_stats = gh_offload_get_stats,
    .offload_declare = gh_offload_declare,
    .bank_add = gh_bank_add,
    .bank_get_stats = gh_bank_get_stats,
    .packed_set = gh_packed_set,
    .ranks_set = gh_ranks_set,
    .ranks_clear = gh_ranks_clear,
    .ranks_wait = gh_ranks_wait,
    .overlap_run = gh_overlap_run,
    .overlap_get_stats = gh_overlap_get_stats,
    .exchange_create = gh_exchange_create,
    .exchange_destroy = gh_exchange_destroy,
    .exchange_window = gh_exchange_window,
    .exchange_lay_out = gh_exchange_lay_out,
    .exchange_all_to_all = gh_exchange_all_to_all,
    .exchange_wait = gh_exchange_wait,
    .exchange_get_stats = gh_exchange_get_stats,
    .ranks_abort = gh_ranks_abort,
    .exchange_release_window = gh_exchange_release_window,
    .plan_slots = gh_plan_slots,
    .stash_create = gh_stash_create,
    .stash_destroy = gh_stash_destroy,
    .stash_add = gh_stash_add,
    .stash_reserve = gh_stash_reserve,
    .stash_push = gh_stash_push,
    .stash_pop = gh_stash_pop,
    .stash_end_step = gh_stash_end_step,
    .stash_get_stats = gh_stash_get_stats,
    .session_suspend = gh_session_suspend,
    .session_resume = gh_session_resume,
    .memory_get_stats = gh_memory_get_stats,
    .stash_suspend = gh_stash_suspend,
    .stash_resume = gh_stash_resume,
    .words_compare = gh_words_compare,
    .exchange_suspend = gh_exchange_suspend,
    .exchange_resume = gh_exchange_resume,
    .pool_create = gh_pool_create,
    .pool_destroy = gh_pool_destroy,
    .pool_get_functions = gh_pool_get_functions,
    .pool_suspend = gh_pool_suspend,
    .pool_resume = gh_pool_resume,
    .pool_get_stats = gh_pool_get_stats,
    .run_pass = gh_run_pass,
    .offload_is_on = gh_offload_is_on,
    .gradient_add = gh_gradient_add,
};

/* For hosts of major 0: the same functions, as none of 0.4 and later has gone,
 * under the version of the last release of their own.  Filled when it is wanted,
 * as a second constant has as many relocations again. */
static gh_api table_of_0;

static void fill_table_of_0(void)
{
    table_of_0 = table;
    table_of_0.abi_version = 5;
}

gh_status gh_get_api(uint32_t major, const gh_api **api_p, gh_error *err)
{
    if (api_p == NULL) {
        return gh_fail(err, GH_ERR_INVALID, "gh_get_api: api_p is NULL");
    }
    if (major == 0) {
        static pthread_once_t once = PTHREAD_ONCE_INIT;

        pthread_once(&once, fill_table_of_0);
        *api_p = &table_of_0;
        return GH_OK;
    }
    if (major != GH_ABI_MAJOR) {
        return gh_fail(err, GH_ERR_ABI,
                       "gh_get_api: the host was built for ABI major %u, "
                       "this library has %d.%d",
                       major, GH_ABI_MAJOR, GH_ABI_MINOR);
    }
    *api_p = &table;
    return GH_OK;
}
