/*
 * exchanges.h - how much copies slow the exchanges of tokens that they overlap.
 *
 * Used with EP overlap and fraction=auto.  In the measured step, exchanges are
 * timed while copies run beside them.  In the next step, exchanges and copies
 * run one after the other.  In the step after that the ranks agree: an exchange
 * took as long as on the rank where it took least, as on the others it includes
 * a wait for that rank.  If exchanges take longer beside copies by more than
 * the fraction GH_EXCHANGE_WITHIN, groups stay on the device until they do not:
 * first those whose copies overlapped exchanges the longest.
 *
 * In all other steps gh_offload.exchanges is NULL.  A failure here ends the
 * comparison and nothing else.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_OFFLOAD_EXCHANGES_H
#define GH_OFFLOAD_EXCHANGES_H

#include "offload/groups/state.h"

/* How much longer exchanges may take beside copies, as a fraction. */
#define GH_EXCHANGE_WITHIN 0.05

/* Of the two steps; later exchanges are not timed. */
#define GH_EXCHANGES_TIMED 4096u

/* Called before the measured step.  Without memory nothing is compared. */
void gh_exchanges_begin(struct gh_offload *offload);
/* Called after each step that follows.  True if the next step belongs to the
 * comparison: after the measured step if there were exchanges, which the next
 * one runs apart from copies, and after that one. */
bool gh_exchanges_go_on(struct gh_offload *offload);
void gh_exchanges_free(struct gh_offload *offload);

/* Writes the times of exchanges, GH_EXCHANGES_TIMED at most, in the order in
 * which all ranks have issued them.  What is not known stays as it is.  Waits
 * for the device. */
void gh_exchanges_say(struct gh_offload *offload, double *ns);
/* What the ranks agreed on, 0: not known; NULL: one of them could not say, and
 * nothing is compared.  Without a call each rank's own times count. */
void gh_exchanges_hear(struct gh_offload *offload, const double *ns);

/* Called around each exchange, with its stream.  `cell` is gh_task.cell: equal
 * for the same exchange of all microbatches. */
void gh_exchange_begin(struct gh_offload *offload, uint32_t cell, void *stream);
void gh_exchange_end(struct gh_offload *offload, void *stream);

/* Sets the fate of the groups that would slow exchanges.  `groups` is in the
 * order of the table.  Reads gh_offload.measure, so it is called before that is
 * freed.  Waits for the device. */
void gh_exchanges_decide(struct gh_offload *offload,
                         struct gh_policy_group *groups, uint32_t n);

/* Chooses groups that stay, and returns their number: the one with the longest
 * `beside` first, of equals the latest, until the rest slows exchanges by at
 * most within_ns.
 *
 * longer_ns  how much longer exchanges take with all copies
 * beside     for each group, how long its copies ran beside exchanges, 0 if it
 *            stays anyway; set to 0 for a group that is chosen
 */
uint32_t gh_exchanges_keep(double longer_ns, double within_ns, double *beside,
                           uint32_t n);

#endif
