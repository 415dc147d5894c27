/*
 * measured.h - what a training has measured of its scopes, as a description
 * repeats it: what attached.stats()["measured"] of the Python package has.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BIN_MEASURED_H
#define BIN_MEASURED_H

#include <graphhooks/base.h>

#include <stdbool.h>

#define MEASURED_MOST 32u

/* Of a pass of one segment, forward and backward. */
struct measured_scope {
    char name[64];
    uint32_t segments;
    double eager_us, replay_us;           /* of the device */
    double eager_host_us, replay_host_us; /* of the host */
    bool kept;                            /* it has its graphs */
};

struct measured {
    uint32_t n;
    struct measured_scope scopes[MEASURED_MOST];
};

struct fields;

/* "measured" of a description; without it, *measured stays as it is. */
gh_status measured_read(const struct fields *top, struct measured *measured,
                        gh_error *err);

/* Nothing, where nothing was measured. */
void measured_print(const struct measured *measured);
void measured_print_json(const struct measured *measured);

#endif
