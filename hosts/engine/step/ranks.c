/*
 * ranks.c - see ranks.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "step/ranks.h"

#include <string.h>
#include <unistd.h>

_Static_assert(RANKS_GROUPS + 3 <= COMM_MOST, "all are aborted at once");

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
    return ranks->n == ep ? 0
                          : comm_split(&ranks->same_experts, &ranks->world,
                                       ranks->rank % ep);
}

void ranks_sum(const struct ranks *ranks, const struct model *model,
               CUstream stream)
{
    const struct range experts = model->experts;
    const size_t after = experts.first + experts.count;

    if (ranks == NULL) {
        return;
    }
    if (experts.count == 0) {
        comm_sum(&ranks->world, model->g, model->n, stream);
        return;
    }
    comm_sum(&ranks->world, model->g, experts.first, stream);
    comm_sum(&ranks->world, model->g + after, model->n - after, stream);
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
    comm_destroy(&ranks->world);
    if (ranks->stream != NULL) {
        (void)dev->drv.cuStreamDestroy(ranks->stream);
    }
    device_free(dev, ranks->mine);
    device_free(dev, ranks->all);
    device_free_host(dev, ranks->mine_host);
    device_free_host(dev, ranks->all_host);
    memset(ranks, 0, sizeof(*ranks));
}

void ranks_let_go(struct ranks *ranks)
{
    struct comm *all[COMM_MOST] = { &ranks->world, &ranks->experts,
                                    &ranks->same_experts };
    int n = 3;

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
