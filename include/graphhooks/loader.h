/*
 * graphhooks/loader.h - the same functions as a table, for hosts that dlopen.
 *
 *     void *so = dlopen("libgraphhooks.so.0", RTLD_NOW | RTLD_LOCAL);
 *     gh_get_api_fn *get = (gh_get_api_fn *)dlsym(so, GH_GET_API_SYMBOL);
 *     const gh_api *gh;
 *     if (get(GH_ABI_MAJOR, &gh, &err) == GH_OK) ...
 *
 * Slots are only ever added at the end.  Check with GH_HAS that the table has
 * a slot before you use one that is newer than 0.1.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GRAPHHOOKS_LOADER_H
#define GRAPHHOOKS_LOADER_H

#include <graphhooks/base.h>
#include <graphhooks/aux.h>
#include <graphhooks/bank.h>
#include <graphhooks/border.h>
#include <graphhooks/exchange.h>
#include <graphhooks/gradient.h>
#include <graphhooks/layer.h>
#include <graphhooks/memory.h>
#include <graphhooks/model.h>
#include <graphhooks/offload.h>
#include <graphhooks/overlap.h>
#include <graphhooks/plan.h>
#include <graphhooks/pool.h>
#include <graphhooks/ranks.h>
#include <graphhooks/run.h>
#include <graphhooks/session.h>
#include <graphhooks/stash.h>
#include <graphhooks/words.h>

GH_BEGIN_DECLS

/**
 * The table.  Each slot is the function of its name in the other headers.
 * It is in static storage of the library, and never changes.  Since 0.1.
 */
typedef struct gh_api {
    uint32_t struct_size; /* sizeof(gh_api) where the library was built */
    uint32_t abi_version; /* as gh_abi_version(); for a host of major 0: 5 */

    const char *(*version)(void);
    const char *(*status_name)(gh_status);
    const char *(*reason_name)(gh_reason);

    gh_status (*model_create)(gh_model **, gh_error *);
    gh_status (*model_add_layer)(gh_model *, const gh_layer_desc *, gh_error *);
    void (*model_destroy)(gh_model *);

    gh_status (*session_open)(const gh_session_desc *, gh_session **,
                              gh_error *);
    void (*session_close)(gh_session *);
    gh_status (*session_stats)(const gh_session *, gh_stats *, gh_error *);

    uint32_t (*plan_segment_count)(const gh_session *, uint32_t);
    gh_status (*plan_segment)(const gh_session *, uint32_t, uint32_t,
                              gh_segment *, gh_error *);
    gh_status (*plan_print)(const gh_session *, gh_format, gh_write_fn *,
                            void *, gh_error *);

    gh_status (*pre_warmup)(gh_session *, gh_error *);
    gh_status (*post_warmup)(gh_session *, gh_error *);
    gh_status (*layer_enter)(gh_session *, const gh_pass *, gh_decision *,
                             gh_error *);
    gh_status (*layer_exit)(gh_session *, const gh_pass *, gh_error *);
    gh_status (*layer_cancel)(gh_session *, gh_error *);
    gh_status (*flush_delayed)(gh_session *, gh_error *);
    gh_status (*iteration_end)(gh_session *, gh_error *);

    /* since 0.2 */
    uint32_t (*plan_border_count)(const gh_session *, uint32_t, gh_side);
    gh_status (*plan_border)(const gh_session *, uint32_t, gh_side, uint32_t,
                             gh_border *, gh_error *);
    const char *(*tensor_name)(gh_tensor);
    gh_status (*border_find)(const gh_session *, const gh_border_key *,
                             gh_buffer *, gh_error *);
    gh_status (*aux_bind)(gh_session *, const gh_aux *, gh_error *);

    /* since 0.3 */
    gh_status (*model_describe)(gh_model *, const gh_model_desc *, gh_error *);

    /* since 0.4 */
    gh_status (*session_reasons)(const gh_session *, gh_reason, uint64_t *,
                                 gh_error *);
    gh_status (*offload_save)(gh_session *, gh_offload_group *, gh_error *);
    gh_status (*offload_commit)(gh_session *, uint32_t, uint32_t, gh_error *);
    gh_status (*offload_load)(gh_session *, gh_offload_group *, gh_error *);
    gh_status (*offload_release)(gh_session *, uint32_t, uint32_t, gh_error *);
    gh_status (*offload_get_stats)(const gh_session *, gh_offload_stats *,
                                   gh_error *);
    gh_status (*offload_declare)(gh_session *, gh_offload_declared *, uint32_t,
                                 uint32_t, gh_error *);
    gh_status (*bank_add)(gh_session *, const gh_bank_desc *, uint32_t *,
                          gh_error *);
    gh_status (*bank_get_stats)(const gh_session *, uint32_t, gh_bank_stats *,
                                gh_error *);
    gh_status (*packed_set)(gh_session *, const gh_packed *,
                            gh_packed_buffers *, gh_error *);

    /* since 0.5 */
    gh_status (*ranks_set)(gh_session *, const gh_ranks *, gh_error *);
    gh_status (*ranks_clear)(gh_session *, uint32_t, gh_error *);
    gh_status (*ranks_wait)(gh_session *, void *, gh_error *);
    gh_status (*overlap_run)(gh_session *, const gh_overlap_pair *, gh_error *);
    gh_status (*overlap_get_stats)(const gh_session *, gh_overlap_stats *,
                                   gh_error *);
    gh_status (*exchange_create)(const gh_exchange_desc *, gh_exchange **,
                                 gh_error *);
    void (*exchange_destroy)(gh_exchange *);
    void *(*exchange_window)(const gh_exchange *);
    void (*exchange_lay_out)(uint32_t, uint32_t, const uint64_t *,
                             gh_exchange_part *);
    gh_status (*exchange_all_to_all)(gh_exchange *, const gh_exchange_op *,
                                     gh_error *);
    gh_status (*exchange_wait)(gh_exchange *, void *, gh_error *);
    gh_status (*exchange_get_stats)(const gh_exchange *, gh_exchange_stats *,
                                    gh_error *);
    gh_status (*ranks_abort)(gh_session *, const char *, gh_error *);

    /* since 1.0 */
    gh_status (*exchange_release_window)(gh_exchange *, void *, gh_error *);
    gh_status (*plan_slots)(const gh_pipeline_desc *, uint32_t *, gh_error *);
    gh_status (*stash_create)(const gh_stash_desc *, gh_stash **, gh_error *);
    void (*stash_destroy)(gh_stash *);
    gh_status (*stash_add)(gh_stash *, uint32_t, uint32_t *, gh_error *);
    gh_status (*stash_reserve)(gh_stash *, uint64_t, uint32_t, gh_error *);
    gh_status (*stash_push)(gh_stash *, const gh_stash_op *, gh_error *);
    gh_status (*stash_pop)(gh_stash *, const gh_stash_op *, gh_error *);
    gh_status (*stash_end_step)(gh_stash *, void *, uint32_t *, gh_error *);
    gh_status (*stash_get_stats)(const gh_stash *, gh_stash_stats *,
                                 gh_error *);
    gh_status (*session_suspend)(gh_session *, gh_error *);
    gh_status (*session_resume)(gh_session *, gh_error *);
    gh_status (*memory_get_stats)(const gh_session *, gh_memory_stats *,
                                  gh_error *);
    gh_status (*stash_suspend)(gh_stash *, void *, gh_error *);
    gh_status (*stash_resume)(gh_stash *, gh_error *);
    uint32_t (*words_compare)(const uint64_t *const *, const uint64_t *,
                              uint32_t);
    gh_status (*exchange_suspend)(gh_exchange *, void *, gh_error *);
    gh_status (*exchange_resume)(gh_exchange *, gh_error *);
    gh_status (*pool_create)(const gh_pool_desc *, gh_pool **, gh_error *);
    void (*pool_destroy)(gh_pool *);
    gh_status (*pool_get_functions)(const gh_pool *, gh_pool_functions *,
                                    gh_error *);
    gh_status (*pool_suspend)(gh_pool *, gh_error *);
    gh_status (*pool_resume)(gh_pool *, gh_error *);
    gh_status (*pool_get_stats)(const gh_pool *, gh_pool_stats *, gh_error *);
    gh_status (*run_pass)(gh_session *, gh_pass *, gh_issue_fn *, void *,
                          gh_decision *, gh_error *);
    uint32_t (*offload_is_on)(const gh_session *, uint32_t);
    gh_status (*gradient_add)(gh_session *, const gh_gradient *, void *,
                              gh_error *);
} gh_api;

#define GH_GET_API_SYMBOL "gh_get_api"
/* What dlsym() finds by that name.  Since: 0.1. */
typedef gh_status gh_get_api_fn(uint32_t major, const gh_api **api_p,
                                gh_error *err);

/**
 * The library's functions as a table.
 *
 * @param      major  GH_ABI_MAJOR of the headers the host was built with; for 0
 *                    abi_version is that of the last release of that major
 * @param[out] api_p  the table; valid as long as the library is loaded
 *
 * @return GH_OK; GH_ERR_ABI when this library does not have that major;
 *         GH_ERR_INVALID for NULL.
 * Blocks: never.  Threads: any.  Since: 0.1.
 */
GH_API gh_status gh_get_api(uint32_t major, const gh_api **api_p,
                            gh_error *err);

GH_END_DECLS

#endif
