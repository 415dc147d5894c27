/*
 * ranks.c - see ranks.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "step/ranks.h"

#include <string.h>
#include <unistd.h>

_Static_assert(RANKS_GROUPS + 6 + 2 * LINKS <= COMM_MOST,
               "all are aborted at once");

enum {
    ABORT_S = 5 /* time for a process to free its memory before it is ended */
};

static int wait_on_host(struct ranks *ranks)
{
    return ranks->barrier == NULL || host_barrier_wait(ranks->barrier) == 0
               ? 0
               : device_fail(ranks->dev, "another rank has failed");
}

int ranks_open(struct ranks *ranks, struct device *dev,
               const struct nccl *nccl, const ncclUniqueId *id)
{
    const size_t all = (size_t)ranks->n * RANKS_EXCHANGE;

    ranks->dev = dev;
    if (wait_on_host(ranks) != 0 ||
        comm_init(&ranks->world, dev, nccl, id, ranks->rank, ranks->n) != 0) {
        return -1;
    }
    DEVICE_CALL(dev, cuStreamCreate, &ranks->stream, CU_STREAM_NON_BLOCKING);
    ranks->mine = device_alloc(dev, RANKS_EXCHANGE);
    ranks->all = device_alloc(dev, all);
    ranks->mine_host = device_alloc_host(dev, RANKS_EXCHANGE);
    ranks->all_host = device_alloc_host(dev, all);
    return dev->code == CUDA_SUCCESS ? 0 : -1;
}

int ranks_split(struct ranks *ranks, const int *sizes, int n)
{
    for (int i = 0; i < n; i++) {
        ranks->groups[i] = (struct comm){ .dev = ranks->dev };
        if (sizes[i] > 1 && comm_split(&ranks->groups[i], &ranks->world,
                                       ranks->rank / sizes[i]) != 0) {
            return -1;
        }
        ranks->n_groups = i + 1;
    }
    return 0;
}

int ranks_divide(struct ranks *ranks, int ep)
{
    if (ep <= 1) {
        return 0;
    }
    if (comm_split(&ranks->experts, &ranks->world, ranks->rank / ep) != 0) {
        return -1;
    }
    ranks->exchange = (struct exchange){ .comm = &ranks->experts,
                                         .watch = &ranks->watch };
    return ranks_count(ranks) == ep
               ? 0
               : comm_split(&ranks->same_experts, &ranks->world,
                            ranks_stage(ranks) * ep + ranks->rank % ep);
}

/* Sends one number over a new link.  The first message connects it, for which
 * NCCL lets the host wait: in a step, each end of two links could wait for the
 * other one's. */
static int connect_link(struct ranks *ranks, const struct comm *comm,
                        bool sends)
{
    float *number = device_alloc(ranks->dev, sizeof(*number));
    int result = -1;

    if (number != NULL) {
        DEVICE_CALL(ranks->dev, cuMemsetD32Async, device_address(number), 0, 1,
                    ranks->stream);
        if (sends) {
            comm_send(comm, number, 1, 1 - comm->rank, ranks->stream);
        } else {
            comm_receive(comm, number, 1, 1 - comm->rank, ranks->stream);
        }
        result = comm_synchronize(comm, ranks->stream, &ranks->watch);
    }
    device_free(ranks->dev, number);
    return result;
}

/* Links each stage to the next one of a way.  The ends are linked only if
 * `round`. */
static int link_up(struct ranks *ranks, enum link way, bool round)
{
    const int pp = ranks->pp, stage = ranks_stage(ranks);

    for (int i = 0; i < pp; i++) {
        const int to = (i + (way == LINK_UP ? 1 : pp - 1)) % pp;
        const bool is_end = i == (way == LINK_UP ? pp - 1 : 0);
        struct comm none = { .dev = ranks->dev };
        struct comm *comm = stage == i    ? &ranks->to[way]
                            : stage == to ? &ranks->from[way]
                                          : &none;

        if (is_end && !round) {
            continue;
        }
        if (comm_split(comm, &ranks->world,
                       comm == &none ? COMM_NO_COLOR : ranks_number(ranks)) !=
            0) {
            return -1;
        }
        if (comm != &none && connect_link(ranks, comm, stage == i) != 0) {
            return -1;
        }
    }
    return 0;
}

/* In the order in which they were made: NCCL waits until the other end destroys
 * its own too, so that two ends with several links must not choose others. */
static void unlink_all(struct ranks *ranks)
{
    const int pp = ranks_pp(ranks), stage = ranks_stage(ranks);

    for (int way = 0; way < LINKS; way++) {
        for (int i = 0; i < pp; i++) {
            const int to = (i + (way == LINK_UP ? 1 : pp - 1)) % pp;

            if (stage == i) {
                comm_destroy(&ranks->to[way]);
            } else if (stage == to) {
                comm_destroy(&ranks->from[way]);
            }
        }
    }
}

int ranks_line_up(struct ranks *ranks, int pp, bool round)
{
    if (pp <= 1) {
        return 0;
    }
    ranks->pp = pp;
    if (ranks_count(ranks) > 1 &&
        comm_split(&ranks->stage, &ranks->world, ranks_stage(ranks)) != 0) {
        return -1;
    }
    return comm_split(&ranks->line, &ranks->world, ranks_number(ranks)) == 0 &&
                   link_up(ranks, LINK_UP, round) == 0
               ? link_up(ranks, LINK_DOWN, round)
               : -1;
}

int ranks_tie(struct ranks *ranks, int head)
{
    const int stage = ranks_stage(ranks);

    if (head == 0) {
        return 0;
    }
    return comm_split(&ranks->ends, &ranks->world,
                      stage == 0 || stage == head ? ranks_number(ranks)
                                                  : COMM_NO_COLOR);
}

/* Memory is freed at the end, and taken while no rank waits for another: either
 * may wait for all that runs. */
static int make_summed(struct ranks *ranks, size_t count)
{
    if (ranks->n_summed < count) {
        device_free(ranks->dev, ranks->summed);
        ranks->summed = device_alloc(ranks->dev, count * sizeof(float));
        ranks->n_summed = count;
    }
    return ranks_barrier(ranks);
}

int ranks_sum_line(void *user, float *data, size_t count)
{
    struct ranks *ranks = user;
    struct device *dev = ranks->dev;
    const size_t bytes = count * sizeof(*data);
    float *copy;

    if (make_summed(ranks, count) != 0) {
        return -1;
    }
    copy = ranks->summed;
    DEVICE_CALL(dev, cuMemcpyHtoDAsync, device_address(copy), data, bytes,
                ranks->stream);
    comm_sum(&ranks->line, copy, count, ranks->stream);
    DEVICE_CALL(dev, cuMemcpyDtoHAsync, data, device_address(copy), bytes,
                ranks->stream);
    return comm_synchronize(&ranks->line, ranks->stream, &ranks->watch);
}

/* The ranks that have the same layers; NULL: there are no others. */
static const struct comm *same_layers(const struct ranks *ranks)
{
    if (ranks == NULL || ranks_count(ranks) == 1) {
        return NULL;
    }
    return ranks_pp(ranks) == 1 ? &ranks->world : &ranks->stage;
}

void ranks_sum(const struct ranks *ranks, const struct model *model,
               CUstream stream)
{
    const struct comm *comm = same_layers(ranks);
    const struct range experts = model->experts;
    const size_t after = experts.first + experts.count;

    if (comm == NULL) {
        return;
    }
    if (experts.count == 0) {
        comm_sum(comm, model->g, model->n, stream);
        return;
    }
    comm_sum(comm, model->g, experts.first, stream);
    comm_sum(comm, model->g + after, model->n - after, stream);
    if (ranks->same_experts.handle != NULL) {
        comm_sum(&ranks->same_experts, model->g + experts.first, experts.count,
                 stream);
    }
}

void ranks_close(struct ranks *ranks)
{
    struct device *dev = ranks->dev;

    if (dev == NULL) {
        return;
    }
    while (ranks->n_groups > 0) {
        comm_destroy(&ranks->groups[--ranks->n_groups]);
    }
    comm_destroy(&ranks->same_experts);
    comm_destroy(&ranks->experts);
    unlink_all(ranks);
    comm_destroy(&ranks->ends);
    comm_destroy(&ranks->line);
    comm_destroy(&ranks->stage);
    comm_destroy(&ranks->world);
    if (ranks->stream != NULL) {
        (void)dev->drv.cuStreamDestroy(ranks->stream);
    }
    device_free(dev, ranks->mine);
    device_free(dev, ranks->all);
    device_free(dev, ranks->summed);
    device_free_host(dev, ranks->mine_host);
    device_free_host(dev, ranks->all_host);
    memset(ranks, 0, sizeof(*ranks));
}

void ranks_let_go(struct ranks *ranks)
{
    struct comm *all[COMM_MOST] = { &ranks->world, &ranks->experts,
                                    &ranks->same_experts, &ranks->stage,
                                    &ranks->line,         &ranks->ends };
    int n = 6;

    for (int i = 0; i < LINKS; i++) {
        all[n++] = &ranks->to[i];
        all[n++] = &ranks->from[i];
    }
    for (int i = 0; i < ranks->n_groups; i++) {
        all[n++] = &ranks->groups[i];
    }
    comm_abort(all, n);
}

void ranks_abort(struct ranks *ranks, const char *why)
{
    ranks->watch.tell(ranks->watch.user, why);
    if (ranks->barrier == NULL) {
        alarm(ABORT_S);
    }
    ranks_let_go(ranks);
}

int ranks_exchange(struct ranks *ranks, const void *mine, size_t bytes,
                   void *all)
{
    struct device *dev = ranks->dev;
    const size_t n = (size_t)ranks->n * bytes;

    if (dev->code != CUDA_SUCCESS) {
        return -1;
    }
    memcpy(ranks->mine_host, mine, bytes);
    DEVICE_CALL(dev, cuMemcpyHtoDAsync, device_address(ranks->mine),
                ranks->mine_host, bytes, ranks->stream);
    comm_gather_bytes(&ranks->world, ranks->mine, ranks->all, bytes,
                      ranks->stream);
    DEVICE_CALL(dev, cuMemcpyDtoHAsync, ranks->all_host,
                device_address(ranks->all), n, ranks->stream);
    if (comm_synchronize(&ranks->world, ranks->stream, &ranks->watch) != 0) {
        return -1;
    }
    memcpy(all, ranks->all_host, n);
    return 0;
}

int ranks_barrier(struct ranks *ranks)
{
    unsigned char all[RANKS_MOST];

    return wait_on_host(ranks) == 0 ? ranks_exchange(ranks, "", 1, all) : -1;
}
