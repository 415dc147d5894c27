/*
 * gate.h - closes the hooks while a function of the host's runs.
 *
 * The library calls a service in the middle of its own work.  A hook that the
 * service calls would find a session that is half changed, or free it.  So
 * whoever calls a function of the host's passes the gate, and the hooks work on
 * `open` alone.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_BASE_GATE_H
#define GH_BASE_GATE_H

#include <stddef.h>

struct gh_gate {
    void *open; /* what the hooks work on; NULL: they are refused */
};

/* Before a function of the host's is called.  Returns what gh_gate_return()
 * puts back, as such functions may nest. */
static inline void *gh_gate_leave(struct gh_gate *gate)
{
    void *const was = gate->open;

    gate->open = NULL;
    return was;
}

static inline void gh_gate_return(struct gh_gate *gate, void *was)
{
    gate->open = was;
}

#endif
