/* SPDX-License-Identifier: Apache-2.0 */
#include "host/numa.h"

#include <linux/mempolicy.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/log.h"
#include "host/sysfs.h"

enum { NODES_MAX = 1024, WORD = 8 * sizeof(unsigned long) };

static bool has_several_nodes(const char *root)
{
	char list[256];

	sysfs_text(list, sizeof list, "%s/devices/system/node/online", root);
	/* "0" is one, "0-1" and "0,2" are more. */
	return strpbrk(list, "-,") != NULL;
}

int numa_node_of(const char *root, const char *device)
{
	long node;

	root = sysfs_root(root);
	if (strchr(device, '/') || !has_several_nodes(root))
		return -1;
	node = sysfs_number(-1, "%s/class/infiniband/%s/device/numa_node", root, device);
	return node >= 0 && node < NODES_MAX ? (int)node : -1;
}

/* "0-15,32-47" */
bool numa_node_cpus(const char *root, int node, cpu_set_t *out)
{
	char list[4096], *at = list;

	CPU_ZERO(out);
	if (node < 0 || !sysfs_text(list, sizeof list, "%s/devices/system/node/node%d/cpulist",
				    sysfs_root(root), node))
		return false;
	while (*at) {
		char *end;
		unsigned long first = strtoul(at, &end, 10), last = first;

		if (end == at)
			break;
		if (*end == '-')
			last = strtoul(end + 1, &end, 10);
		for (unsigned long cpu = first; cpu <= last && cpu < CPU_SETSIZE; cpu++)
			CPU_SET(cpu, out);
		at = *end == ',' ? end + 1 : end;
		if (*end != ',')
			break;
	}
	return CPU_COUNT(out) > 0;
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
