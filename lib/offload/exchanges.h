/*
 * exchanges.h - what copies cost the exchanges of tokens that they run beside.
 *
 * Under EP overlap, with fraction=auto.  In the step that is measured the
 * exchanges are timed as they are, with copies beside them; in one more they
 * and the copies take turns.  Where the first take longer by more than
 * GH_EXCHANGE_WITHIN, the groups whose copies lay beside them longest stay,
 * as many as that takes.  In all other steps gh_offload.exchanges is NULL.
 * What fails here ends the comparison, and nothing else.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_OFFLOAD_EXCHANGES_H
#define GH_OFFLOAD_EXCHANGES_H

#include "offload/offload.h"

/* What exchanges may take longer beside copies. */
#define GH_EXCHANGE_WITHIN 0.05

/* With the step that is measured; without memory nothing is compared. */
void gh_exchanges_begin(struct gh_offload *offload);
/* That step is over.  Whether the next one is to have them apart: there were
 * some. */
bool gh_exchanges_part(struct gh_offload *offload);
void gh_exchanges_free(struct gh_offload *offload);

/* Around one, on its stream; `cell` says which it is of all microbatches'. */
void gh_exchange_begin(struct gh_offload *offload, uint32_t cell,
                       void *stream);
void gh_exchange_end(struct gh_offload *offload, void *stream);

/* Sets the fate of those of `groups`, in the order of the table, that would
 * slow exchanges; what was measured of copies is there still.  Waits for the
 * device. */
void gh_exchanges_settle(struct gh_offload *offload,
                         struct gh_policy_group *groups, uint32_t n);

/* How much longer exchanges take, and groups that stay, the longest beside
 * first; of equals the latest.  `beside` says for how long each group's copies
 * ran beside exchanges, 0 where it does not go; of a kept one it becomes 0.
 * Returns how many stay. */
uint32_t gh_exchanges_keep(double longer_ns, double within_ns, double *beside,
                           uint32_t n);

#endif
