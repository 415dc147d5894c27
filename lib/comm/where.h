/*
 * where.h - which ranks are on one machine, and which in one process.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_COMM_WHERE_H
#define GH_COMM_WHERE_H

#include <stddef.h>
#include <stdint.h>

/* A number of this machine, made of its boot id, which no other machine has. */
uint64_t gh_where_machine(void);
/* A number of this process, the same on all its threads.  It is made of the
 * process id and its namespace, an address in this library and the machine. */
uint64_t gh_where_process(void);
/* A number of what finds names of sockets: the network's namespace. */
uint64_t gh_where_network(void);
/* A number of a text. */
uint64_t gh_where_hash(const char *text, size_t bytes);

#endif
