/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOST_NODE_H
#define HOST_NODE_H

/*
 * Near an adapter: on a machine of several NUMA nodes a lane's thread runs, and its blocks lie,
 * where the adapter of its wire is.  A matter of speed alone: nothing fails because of it, and
 * where there is one node, or the adapter has none, nothing is done.
 */

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>

/* The node of an adapter (not of a port) in a /sys of several nodes; -1: there is nothing to
 * choose. root as in host/adapter.h. */
int node_of_adapter(const char *root, const char *device);
/* Of the processors that are allowed those of a node; false when none are left. */
bool node_processors(const char *root, int node, const cpu_set_t *allowed, cpu_set_t *out);

/* The calling thread and its memory move there, within what the process's first thread may use. */
void node_settle(const char *root, const char *device, void *base, size_t bytes);

#endif
