/*
 * streams.c - see streams.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "order/streams.h"

#include "base/error.h"

#include <stdlib.h>

void gh_streams_init(struct gh_streams *s, struct gh_device *dev)
{
    *s = (struct gh_streams){ .dev = dev, .last = GH_NO_STREAM };
}

void gh_streams_free(struct gh_streams *s)
{
    free(s->all);
    s->all = NULL;
    s->n = 0;
}

gh_status gh_streams_know(struct gh_streams *s, void *stream, gh_error *err)
{
    gh_status status;
    void **all;

    for (uint32_t i = 0; i < s->n; i++) {
        if (s->all[i] == stream) {
            s->at = i;
            s->last = stream;
            return GH_OK;
        }
    }

    status = s->dev != NULL ? gh_device_check_stream(s->dev, "gh_pass.stream",
                                                     stream, err)
                            : GH_OK;
    if (status != GH_OK) {
        return status;
    }
    all = realloc(s->all, (s->n + 1) * sizeof(*all));
    if (all == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a stream");
    }
    s->all = all;
    s->at = s->n;
    s->all[s->n++] = stream;
    s->last = stream;
    return GH_OK;
}

void gh_streams_quiesce(const struct gh_streams *s)
{
    if (s->rest != NULL) {
        s->rest(s->user);
    }
    for (uint32_t i = 0; i < s->n; i++) {
        if (!gh_device_is_capturing(s->dev, s->all[i])) {
            gh_device_stream_wait(s->dev, s->all[i], NULL);
        }
    }
}
