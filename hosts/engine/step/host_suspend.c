/*
 * host_suspend.c - suspends the session now and then, as a job would that lends
 * the memory to another program between two phases.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "step/host.h"

#include "step/exchanger.h"
#include "step/ranks.h"
#include "step/stasher.h"

#include <string.h>

/* One place in three, and the same on all ranks. */
static bool is_due(struct host *host)
{
    host->noise = host->noise * 1664525u + 1013904223u;
    return (host->noise >> 16) % 3 == 0;
}

/* Has the memory, as another program would, and leaves other bytes in it. */
static void use_memory(struct device *dev, uint64_t bytes)
{
    CUdeviceptr memory = 0;

    if (bytes != 0 && dev->drv.cuMemAlloc(&memory, bytes) == CUDA_SUCCESS) {
        DEVICE_CALL(dev, cuMemsetD8Async, memory, 0xa5, bytes, (CUstream)NULL);
        DEVICE_CALL(dev, cuMemFree, memory);
    }
}

int host_rest(struct host *host, bool step_ended)
{
    const struct options *options = host->trainer->options;
    gh_memory_stats stats = { .struct_size = sizeof(stats) };
    gh_error err = { "" };
    gh_status status;

    /* Only steps end on all ranks at the same time. */
    if (options->suspend == 0 || (options->ranks != NULL && !step_ended) ||
        !is_due(host)) {
        return 0;
    }
    status = host->gh->session_suspend(host->session, &err);
    if (status == GH_ERR_STATE && !step_ended) {
        return 0; /* something is in flight */
    }
    if (status != GH_OK) {
        return host_fail(host, "gh_session_suspend", status, &err);
    }
    if (stasher_suspend(host->trainer->stasher) != 0 ||
        exchanger_suspend(host->trainer->exchanger) != 0) {
        return -1;
    }
    (void)host->gh->memory_get_stats(host->session, &stats, NULL);
    use_memory(host->trainer->dev, stats.device_given);
    if (options->ranks != NULL && ranks_barrier(options->ranks) != 0) {
        return -1;
    }
    if (stasher_resume(host->trainer->stasher) != 0 ||
        exchanger_resume(host->trainer->exchanger) != 0) {
        return -1;
    }
    status = host->gh->session_resume(host->session, &err);
    return status == GH_OK ? 0
                           : host_fail(host, "gh_session_resume", status, &err);
}

void host_memory_stats(const struct host *host, gh_memory_stats *stats)
{
    memset(stats, 0, sizeof(*stats));
    stats->struct_size = sizeof(*stats);
    (void)host->gh->memory_get_stats(host->session, stats, NULL);
}
