/* SPDX-License-Identifier: Apache-2.0 */
#include "host/numa.h"

#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/log.h"
#include "host/adapter.h"

enum { NODES_MAX = 1024, WORD = 8 * sizeof(unsigned long) };

/* Returns the first number in a small file; -1: none. */
static int read_number(const char *path)
{
	FILE *f = fopen(path, "re");
	int n;

	if (!f)
		return -1;
	if (fscanf(f, "%d", &n) != 1)
		n = -1;
	fclose(f);
	return n;
}

static bool has_several_nodes(const char *root)
{
	char path[512], list[256] = "";
	FILE *f;

	snprintf(path, sizeof path, "%s/devices/system/node/online", root);
	f = fopen(path, "re");
	if (!f)
		return false;
	if (!fgets(list, sizeof list, f))
		list[0] = '\0';
	fclose(f);
	/* "0" is one, "0-1" and "0,2" are more. */
	return strpbrk(list, "-,") != NULL;
}

int numa_node_of(const char *root, const char *device)
{
	const char *sys = root ? root : "/sys";
	char path[512];
	int node;

	if (strchr(device, '/') || !has_several_nodes(sys))
		return -1;
	snprintf(path, sizeof path, "%s/class/infiniband/%s/device/numa_node", sys, device);
	node = read_number(path);
	return node >= 0 && node < NODES_MAX ? node : -1;
}

bool numa_processors(const char *root, int node, const cpu_set_t *allowed, cpu_set_t *out)
{
	cpu_set_t cpus;

	CPU_ZERO(out);
	if (!numa_node_cpus(root, node, &cpus))
		return false;
	CPU_AND(out, &cpus, allowed);
	return CPU_COUNT(out) > 0;
}

/* Moves existing pages to the node. New pages come from it if it has room. */
static bool move_memory(int node, void *base, size_t bytes)
{
	unsigned long nodes[NODES_MAX / WORD] = {0};

	nodes[(unsigned)node / WORD] = 1UL << (unsigned)node % WORD;
	return syscall(SYS_mbind, base, bytes, MPOL_PREFERRED, nodes, NODES_MAX, MPOL_MF_MOVE) == 0;
}

void numa_settle(const char *root, const char *device, void *base, size_t bytes)
{
	int node = numa_node_of(root, device);
	cpu_set_t allowed, cpus;
	bool thread_moved, memory_moved;

	if (node < 0)
		return;
	/* The main thread is never moved, so its affinity is what the user allowed. This thread may
	 * still be bound to the node of another adapter. */
	thread_moved = sched_getaffinity(getpid(), sizeof allowed, &allowed) == 0 &&
		       numa_processors(root, node, &allowed, &cpus) &&
		       sched_setaffinity(0, sizeof cpus, &cpus) == 0;
	memory_moved = move_memory(node, base, bytes);
	log_debug("%s is on NUMA node %d: the lane's thread %s there, its blocks %s", device, node,
		  thread_moved ? "runs" : "cannot run",
		  memory_moved ? "are there, too" : "cannot be moved");
}
