/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOST_NUMA_H
#define HOST_NUMA_H

/*
 * NUMA placement: on a machine with several nodes, a lane's thread and blocks move to the node of
 * its wire's adapter. This affects only speed. Nothing fails because of it, and nothing is done if
 * there is only one node or the adapter has none.
 */

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>

/* The node of an adapter (not of a port) on a machine with several nodes; -1: no choice. root as in
 * host/adapter.h. */
int numa_node_of(const char *root, const char *device);
/* The processors of a NUMA node; false if there is no such node. */
bool numa_node_cpus(const char *root, int node, cpu_set_t *out);
/* Those of the allowed processors that belong to a node; false if there are none. */
bool numa_processors(const char *root, int node, const cpu_set_t *allowed, cpu_set_t *out);

/* Moves the calling thread and its memory to that node, within the processors that the process's
 * first thread may use. */
void numa_settle(const char *root, const char *device, void *base, size_t bytes);

#endif
