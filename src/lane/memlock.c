/* SPDX-License-Identifier: Apache-2.0 */

/* Locked memory: its limit, and which lanes fit into it. */

#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/capability.h"
#include "base/fail.h"
#include "host/adapter.h"
#include "lane/memlock.h"
#include "lane/pool.h"

enum {
	DEPTH_LEAST = 4,
	BLOCK_LEAST = 16 << 10,
	REMEDY_MAX = 320,
};
/* PROC_USER_INIT_INO of Linux's include/linux/proc_ns.h */
static const ino_t FIRST_USER_NAMESPACE = 0xeffffffd;

/* ib_umem_get() asks capable(CAP_IPC_LOCK), which no capability of another user namespace meets. */
static bool may_exceed_limit(void)
{
	struct stat st;

	return capability_has(CAP_IPC_LOCK) && !stat("/proc/self/ns/user", &st) &&
	       st.st_ino == FIRST_USER_NAMESPACE;
}

/* Whether a transfer may meet siw, whose siw_reg_user_mr() applies the limit to everybody. It has
 * no firmware (its siw_device_ops lack get_dev_fw_str), but, on some kernels, its NIC's PCI
 * function. */
static bool may_meet_siw(const char *root)
{
	struct adapter *ports;
	unsigned count;
	bool may = false;

	if (adapters_list(root, &ports, &count))
		return true;
	for (unsigned i = 0; i < count; i++)
		may |= ports[i].kind == ADAPTER_IWARP && !ports[i].firmware[0];
	free(ports);
	return may;
}

uint64_t memlock_limit(void)
{
	return memlock_limit_at(NULL);
}

uint64_t memlock_limit_at(const char *root)
{
	struct rlimit rl, most = {RLIM_INFINITY, RLIM_INFINITY};

	if (getrlimit(RLIMIT_MEMLOCK, &rl))
		return 0;
	/* Root raises the hard limit, too, but a container may have taken that right away. */
	if (capability_has(CAP_SYS_RESOURCE) && !setrlimit(RLIMIT_MEMLOCK, &most))
		return UINT64_MAX;
	if (rl.rlim_cur != rl.rlim_max) {
		rlim_t before = rl.rlim_cur;

		rl.rlim_cur = rl.rlim_max;
		if (setrlimit(RLIMIT_MEMLOCK, &rl))
			rl.rlim_cur = before;
	}
	if (rl.rlim_cur == RLIM_INFINITY || (may_exceed_limit() && !may_meet_siw(root)))
		return UINT64_MAX;
	return rl.rlim_cur;
}

bool memlock_explains(uint64_t total, bool always)
{
	return total > memlock_limit() / 2 && (always || !may_exceed_limit());
}

uint64_t lane_bytes(uint32_t depth, uint32_t block_size)
{
	return pool_bytes(depth, block_size) + LANE_RINGS;
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

uint64_t lane_bytes_least(uint32_t depth, uint32_t block_size)
{
	return lane_bytes(min_u32(depth, DEPTH_LEAST), min_u32(block_size, BLOCK_LEAST));
}

/* The number of blocks of this size, at most depth, that one lane may have within limit. */
static uint32_t depth_within(uint64_t limit, uint32_t depth, uint32_t block_size)
{
	while (depth && lane_bytes(depth, block_size) > limit)
		depth--;
	return depth;
}

bool lanes_fit(uint64_t limit, unsigned *lanes, uint32_t *depth, uint32_t *block_size)
{
	uint32_t depth_least = min_u32(*depth, DEPTH_LEAST);
	uint32_t block_least = min_u32(*block_size, BLOCK_LEAST);
	uint64_t whole = limit / lane_bytes(*depth, *block_size);

	if (whole >= 1) {
		if (*lanes > whole)
			*lanes = (unsigned)whole;
		return true;
	}
	/* From here on one lane has all of limit in flight. Smaller blocks are better than fewer
	 * than four: with so few, reading, the wire and writing wait for each other. */
	for (uint32_t size = *block_size; size >= block_least; size /= 2) {
		uint32_t fits = depth_within(limit, *depth, size);

		if (fits < depth_least)
			continue;
		*lanes = 1;
		*depth = fits;
		*block_size = size;
		return true;
	}
	return false;
}

/* "64 KiB", "3.1 MiB" */
static const char *format_bytes(uint64_t bytes, char *to, size_t size)
{
	if (bytes == UINT64_MAX)
		snprintf(to, size, "unlimited");
	else if (bytes < 1 << 20)
		snprintf(to, size, "%llu KiB", (unsigned long long)((bytes + 1023) >> 10));
	else
		snprintf(to, size, "%.1f MiB", (double)bytes / (1 << 20));
	return to;
}

static const char *format_remedy(char *to, size_t size, const char *where)
{
	snprintf(to, size,
		 "put the four lines \"# Locked memory, for RDMA\", \"* soft memlock unlimited\", "
		 "\"* hard memlock unlimited\", \"# End\" into /etc/security/limits.d/rdma.conf%s "
		 "and log in again (a service: LimitMEMLOCK=infinity)",
		 where);
	return to;
}

static int fail_limit(const char *host, uint64_t limit, uint64_t locked, uint64_t need)
{
	char limited[32], held[32], needed[32], todo[REMEDY_MAX];

	return fail_as(OUT_MEMLOCK,
		       "lock memory for RDMA%s%s: the limit is %s, %s%sa lane needs %s; remedy: %s",
		       host[0] ? " on " : "", host, format_bytes(limit, limited, sizeof limited),
		       locked ? format_bytes(locked, held, sizeof held) : "",
		       locked ? " are locked already, " : "",
		       format_bytes(need, needed, sizeof needed),
		       format_remedy(todo, sizeof todo, host[0] ? " there" : ""));
}

int fail_memlock_on(const char *host, uint64_t limit, uint64_t need)
{
	return fail_limit(host, limit, 0, need);
}

void memlock_describe_need(uint64_t need, char *to, size_t size)
{
	char limited[32], needed[32], todo[REMEDY_MAX];

	snprintf(to, size, "the limit of locked memory is %s, %s are needed; remedy: %s",
		 format_bytes(memlock_limit(), limited, sizeof limited),
		 format_bytes(need, needed, sizeof needed), format_remedy(todo, sizeof todo, ""));
}

int fail_memlock(uint64_t locked, uint64_t need)
{
	return fail_limit("", memlock_limit(), locked, need);
}
