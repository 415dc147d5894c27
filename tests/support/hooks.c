/*
 * hooks.c - every function of the library that takes a session.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/hooks.h"

#define STREAM (toy.streams[0])

static gh_status try_enter(gh_session *s, gh_error *why)
{
    const gh_pass pass = { .struct_size = sizeof(pass),
                           .flags = GH_PASS_FORWARD_ONLY,
                           .stream = STREAM };
    gh_decision d = { .struct_size = sizeof(d) };

    return gh_layer_enter(s, &pass, &d, why);
}

gh_pass hooks_pass;

static gh_status try_exit(gh_session *s, gh_error *why)
{
    return gh_layer_exit(s, &hooks_pass, why);
}

static gh_status try_find(gh_session *s, gh_error *why)
{
    const gh_border_key key = { .struct_size = sizeof(key),
                                .tensor = GH_TENSOR_HIDDEN };
    gh_buffer found;

    return gh_border_find(s, &key, &found, why);
}

static gh_status try_bind(gh_session *s, gh_error *why)
{
    const gh_aux aux = { .struct_size = sizeof(aux),
                         .name = "rotary_cos",
                         .buffer = { .address = &hooks_pass, .bytes = 4 } };

    return gh_aux_bind(s, &aux, why);
}

static gh_offload_tensor tensor;
static gh_offload_group a_group(uint64_t bytes)
{
    tensor = (gh_offload_tensor){ NULL, bytes };
    return (gh_offload_group){ .struct_size = sizeof(gh_offload_group),
                               .module = GH_MODULE_CORE_ATTN,
                               .n_tensors = 1,
                               .tensors = &tensor };
}

static gh_status try_save(gh_session *s, gh_error *why)
{
    gh_offload_tensor t = { NULL, 64 };
    gh_offload_group group = a_group(64);

    group.tensors = &t;
    return gh_offload_save(s, &group, why);
}

static gh_status try_commit(gh_session *s, gh_error *why)
{
    return gh_offload_commit(s, 0, GH_MODULE_CORE_ATTN, why);
}

static gh_status try_load(gh_session *s, gh_error *why)
{
    gh_offload_tensor t = { NULL, 64 };
    gh_offload_group group = a_group(64);

    group.tensors = &t;
    return gh_offload_load(s, &group, why);
}

static gh_status try_release(gh_session *s, gh_error *why)
{
    return gh_offload_release(s, 0, GH_MODULE_CORE_ATTN, why);
}

static gh_status try_declare(gh_session *s, gh_error *why)
{
    gh_offload_declared declared = { .struct_size = sizeof(declared),
                                     .module = GH_MODULE_CORE_ATTN,
                                     .bytes = 256 };

    return gh_offload_declare(s, &declared, 1, 1, why);
}

static gh_status try_add(gh_session *s, gh_error *why)
{
    const gh_bank_desc desc = { .struct_size = sizeof(desc) };
    uint32_t bank;

    return gh_bank_add(s, &desc, &bank, why);
}

static const int32_t lengths[] = { 2, 3 };

static gh_status try_packed(gh_session *s, gh_error *why)
{
    const gh_packed packed = { .struct_size = sizeof(packed),
                               .bank = 1,
                               .n_sequences = 2,
                               .lengths = lengths,
                               .stream = STREAM };
    gh_packed_buffers buffers = { .struct_size = sizeof(buffers) };

    return gh_packed_set(s, &packed, &buffers, why);
}

static gh_status gather(void *user, uint32_t bank, const uint64_t *mine,
                        uint64_t *all, uint32_t n)
{
    (void)user;
    (void)bank;
    (void)mine;
    (void)all;
    (void)n;
    return GH_ERR_RANKS;
}

static gh_status try_set_ranks(gh_session *s, gh_error *why)
{
    const gh_ranks ranks = { .struct_size = sizeof(ranks),
                             .size = 2,
                             .gather = gather };

    return gh_ranks_set(s, &ranks, why);
}

static gh_status try_clear_ranks(gh_session *s, gh_error *why)
{
    return gh_ranks_clear(s, 0, why);
}

static gh_status try_wait(gh_session *s, gh_error *why)
{
    return gh_ranks_wait(s, STREAM, why);
}

static gh_status try_abort(gh_session *s, gh_error *why)
{
    return gh_ranks_abort(s, "a service", why);
}

static gh_status run_node(void *user, const gh_overlap_node *node,
                          gh_error *why)
{
    (void)user;
    (void)node;
    (void)why;
    return GH_ERR_STATE;
}

static gh_status try_overlap(gh_session *s, gh_error *why)
{
    const gh_overlap_pair pair = { .struct_size = sizeof(pair),
                                   .flags = GH_OVERLAP_FORWARD |
                                            GH_OVERLAP_BACKWARD,
                                   .forward_microbatch = 1,
                                   .compute = STREAM,
                                   .run_node = run_node };

    return gh_overlap_run(s, &pair, why);
}

const struct hook hooks[HOOKS] = {
    { "gh_pre_warmup", gh_pre_warmup },
    { "gh_post_warmup", gh_post_warmup },
    { "gh_layer_enter", try_enter },
    { "gh_layer_exit", try_exit },
    { "gh_layer_cancel", gh_layer_cancel },
    { "gh_flush_delayed", gh_flush_delayed },
    { "gh_iteration_end", gh_iteration_end },
    { "gh_border_find", try_find },
    { "gh_aux_bind", try_bind },
    { "gh_offload_save", try_save },
    { "gh_offload_commit", try_commit },
    { "gh_offload_load", try_load },
    { "gh_offload_release", try_release },
    { "gh_offload_declare", try_declare },
    { "gh_bank_add", try_add },
    { "gh_packed_set", try_packed },
    { "gh_ranks_set", try_set_ranks },
    { "gh_ranks_clear", try_clear_ranks },
    { "gh_ranks_wait", try_wait },
    { "gh_ranks_abort", try_abort },
    { "gh_overlap_run", try_overlap },
    { "gh_session_suspend", gh_session_suspend },
    { "gh_session_resume", gh_session_resume },
};
