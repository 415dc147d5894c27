/*
 * host_banks.c - banks of a session: their shapes, groups and tensors.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "step/host.h"

#include <stdio.h>

/* The ranks that share sequences of a shape; NULL: none do. */
static void *group_of(const struct options *options, int shape)
{
    return options_cp(options, shape) == 1 || options->ranks == NULL
               ? NULL
               : options->ranks->groups[shape].handle;
}

/* Makes a bank for each length, or for each number of ranks that share a
 * sequence.  If there is only one, and there are no documents, bank 0 is
 * enough. */
int host_add_banks(struct host *host)
{
    const struct options *options = host->trainer->options;
    const int n = options->config.documents > 0 || options->n_lengths > 0
                      ? options_shapes(options)
                      : 0;

    for (int i = 0; i < n; i++) {
        const int seq = options_length(options, i);
        char name[32];
        const gh_bank_desc desc = {
            .struct_size = sizeof(desc),
            .cp_size = (uint32_t)options_cp(options, i),
            .group = group_of(options, i),
            .tokens = (uint32_t)(options->config.batch * seq),
            .sequences = (uint32_t)options->config.documents,
            .name = name,
        };
        gh_error err = { "" };
        gh_status status;

        snprintf(name, sizeof(name), options->n_cp > 0 ? "cp %d" : "seq %d",
                 options->n_cp > 0 ? options->cp[i] : seq);
        status =
            host->gh->bank_add(host->session, &desc, &host->banks[i], &err);
        if (status != GH_OK) {
            return host_fail(host, "gh_bank_add", status, &err);
        }
    }
    return 0;
}

/* Called when ranks have given up: ends what waits in a group, and what waits
 * for that. */
static void abort_groups(void *user, uint32_t bank)
{
    (void)bank;
    ranks_let_go(user);
}

static int lend(struct host *host, int shape, struct comm *comm)
{
    const gh_ranks ranks = {
        .struct_size = sizeof(ranks),
        .bank = host->banks[shape],
        .rank = (uint32_t)comm->rank,
        .size = (uint32_t)comm->n,
        .comm = comm->handle,
        .nccl = host->trainer->options->ranks->nccl,
        .user = host->trainer->options->ranks,
        .abort = abort_groups,
    };
    gh_error err = { "" };
    gh_status status;

    if (comm->handle == NULL) {
        return 0;
    }
    status = host->gh->ranks_set(host->session, &ranks, &err);
    return status == GH_OK ? 0
                           : host_fail(host, "gh_ranks_set", status, &err);
}

/* The ranks that one rank's passes of a shape may wait for.  Groups are of
 * neighbours, so that one that is a multiple of another holds it. */
static struct comm *ranks_of(const struct host *host, int shape)
{
    struct ranks *ranks = host->trainer->options->ranks;
    struct comm *sequences = &ranks->groups[shape];
    struct comm *experts = &ranks->experts;

    if (!host->lends_experts) {
        return sequences;
    }
    if (host->trainer->options->n_cp == 0 || sequences->handle == NULL ||
        experts->n % sequences->n == 0) {
        return experts;
    }
    if (sequences->n % experts->n == 0) {
        return sequences;
    }
    return ranks->stage.handle != NULL ? &ranks->stage : &ranks->world;
}

/* Lends the library the groups, so that if one rank cannot record a pass with
 * collectives, none does. */
int host_lend_groups(struct host *host)
{
    const struct options *options = host->trainer->options;

    host->lends_experts =
        options->ranks != NULL && config_ep(&options->config) > 1 &&
        (options->config.drop_and_pad || config_sync_free(&options->config) ||
         (host->trainer->overlaps && options->n_cp == 0));
    if (options->n_cp == 0 && !host->lends_experts) {
        return 0;
    }
    if (!GH_HAS(host->gh, gh_api, ranks_set)) {
        snprintf(host->error, sizeof(host->error),
                 "--library %s: it has no gh_ranks_set, which %s needs; take "
                 "0.5 or later",
                 options->library, options->n_cp > 0 ? "--cp" : "--ep");
        return -1;
    }
    for (int i = 0; i < options_shapes(options); i++) {
        if (lend(host, i, ranks_of(host, i)) != 0) {
            return -1;
        }
    }
    return 0;
}

/* Binds the tables of angles that latent attention reads.  They belong to the
 * model, which outlives the session, so nothing has to be retained.  A family
 * written by a user may name no tables. */
int host_bind_tables(struct host *host, int shape)
{
    static const char *const names[] = { "rotary_cos", "rotary_sin" };
    const struct trainer *trainer = host->trainer;
    const struct model *model = &trainer->shapes[shape];
    const struct config *config = &model->config;

    if (model->rotary == NULL || trainer->options->no_family) {
        return 0;
    }
    for (int i = 0; i < 2 * config->layers; i++) {
        const gh_aux aux = {
            .struct_size = sizeof(aux),
            .layer = (uint32_t)i / 2,
            .name = names[i % 2],
            .buffer = { .address = model->rotary,
                        .bytes = model_rotary_bytes(config) },
            .bank = host->banks[shape],
        };
        gh_error err = { "" };
        gh_status status = host->gh->aux_bind(host->session, &aux, &err);

        if (status != GH_OK && status != GH_ERR_NOT_FOUND) {
            return host_fail(host, "gh_aux_bind", status, &err);
        }
    }
    return 0;
}

int host_bind_all_tables(struct host *host)
{
    for (int i = 0; i < host->trainer->n_shapes; i++) {
        if (host_bind_tables(host, i) != 0) {
            return -1;
        }
    }
    return 0;
}
