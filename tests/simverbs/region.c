/* SPDX-License-Identifier: Apache-2.0 */
#include "region.h"

#include <errno.h>
#include <linux/capability.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "device.h"
#include "host.h"
#include "link.h"
#include "misuse.h"
#include "order.h"
#include "queue_pair.h"
#include "segment.h"
#include "tally.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct region_area *table;
static int table_fd = -1;
static struct region *regions;
static unsigned counts[HOST_ADAPTERS]; /* regions of each */
static unsigned next_index;
static uint32_t next_tag;

/* ---- locked memory ---------------------------------------------------------------------- */

static _Atomic uint64_t locked;

static bool may_lock_any(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {{0}};

	return syscall(SYS_capget, &head, data) == 0 &&
	       (data[0].effective & 1u << CAP_IPC_LOCK) != 0;
}

int memory_lock(const struct personality *p, uint64_t bytes)
{
	uint64_t now = atomic_fetch_add(&locked, bytes) + bytes;
	struct rlimit rl;

	if (getrlimit(RLIMIT_MEMLOCK, &rl) || rl.rlim_cur == RLIM_INFINITY || now <= rl.rlim_cur)
		return 0;
	if (!p->memlock_always && may_lock_any())
		return 0;
	memory_unlock(bytes);
	errno = ENOMEM;
	return -1;
}

void memory_unlock(uint64_t bytes)
{
	atomic_fetch_sub(&locked, bytes);
}

/* A child has none of its parent's regions: their memory is not there. */
static void forget_parent(void)
{
	pthread_mutex_init(&lock, NULL);
	if (table_fd >= 0)
		close(table_fd);
	table_fd = -1;
	table = NULL;
	regions = NULL;
	memset(counts, 0, sizeof counts);
	atomic_store(&locked, 0);
}

__attribute__((constructor)) static void prepare_forks(void)
{
	pthread_atfork(NULL, NULL, forget_parent);
}

/* ---- the table -------------------------------------------------------------------------- */

static struct region_area *make_table(void)
{
	if (!table)
		table = area_new("simverbs-regions", sizeof *table, &table_fd);
	return table;
}

const struct region_area *region_table(int *fd)
{
	pthread_mutex_lock(&lock);
	make_table();
	pthread_mutex_unlock(&lock);
	*fd = table_fd;
	return table;
}

bool region_allows(const struct region_area *t, uint32_t pd, uint32_t key, uint64_t addr,
		   uint64_t length, uint32_t access)
{
	const struct area_region *r = &t->of[area_key_index(key)];

	return key != 0 && atomic_load(&r->key) == key && r->pd == pd &&
	       (r->access & access) == access && addr >= r->addr && length <= r->length &&
	       addr - r->addr <= r->length - length;
}

static struct area_region *find_free_entry(unsigned *index)
{
	for (unsigned i = 0; i < AREA_REGIONS; i++) {
		struct area_region *r = &table->of[(next_index + i) % AREA_REGIONS];

		if (atomic_load(&r->key))
			continue;
		*index = (next_index + i) % AREA_REGIONS;
		next_index = *index + 1;
		return r;
	}
	return NULL;
}

/* Under the lock. */
static int enter_region(struct region *r)
{
	const struct host_adapter *a = adapter_of(r->mr.context);
	struct area_region *entry;
	unsigned index;
	uint32_t key;

	if (!make_table())
		return -1;
	entry = find_free_entry(&index);
	if (!entry || counts[a->index] >= a->p.max_mr) {
		errno = ENOMEM;
		return -1;
	}
	/* Never 0, and not the same again soon. */
	next_tag++;
	key = next_tag << 20 | index << 8 | 1;
	entry->pd = r->mr.pd->handle;
	entry->access = r->access;
	entry->addr = (uintptr_t)r->mr.addr;
	entry->length = r->mr.length;
	atomic_store(&entry->key, key);
	r->mr.lkey = r->mr.rkey = r->mr.handle = key;
	r->next = regions;
	regions = r;
	counts[a->index]++;
	return 0;
}

void region_each(uint32_t pd, void (*fn)(const struct region *r, void *arg), void *arg)
{
	pthread_mutex_lock(&lock);
	for (struct region *r = regions; r; r = r->next)
		if (r->mr.pd->handle == pd)
			fn(r, arg);
	pthread_mutex_unlock(&lock);
}

/* ---- calls ------------------------------------------------------------------------------ */

/* ordered: an errno that a rule has. */
static struct ibv_mr *register_region(struct ibv_pd *pd, void *addr, size_t length, uint32_t access,
				      int ordered)
{
	const struct personality *p = &adapter_of(pd->context)->p;
	struct region *r;
	int rc = order_failure("ibv_reg_mr");

	if (ordered)
		rc = ordered;
	if (!rc && access & IBV_ACCESS_RELAXED_ORDERING)
		rc = order_failure("relaxed");
	if (!rc && segment_is_huge(addr, length))
		rc = order_failure("huge");
	if (getenv("SIMVERBS_FORK") && !segment_is_excluded(addr, length))
		misuse("ibv_reg_mr: %zu bytes at %p are not excluded from forks", length, addr);

	FAIL_IF_GONE(pd->context, NULL);
	if (rc) {
		errno = rc;
		return NULL;
	}
	/* ib_uverbs_reg_mr(): remote writes need local ones. */
	if ((access & IBV_ACCESS_REMOTE_WRITE && !(access & IBV_ACCESS_LOCAL_WRITE)) || !length ||
	    length > p->max_mr_size) {
		errno = EINVAL;
		return NULL;
	}
	r = calloc(1, sizeof *r);
	if (!r)
		return NULL;
	r->mr = (struct ibv_mr){.context = pd->context, .pd = pd, .addr = addr, .length = length};
	r->access = access;
	if (order_relaxed())
		r->access |= IBV_ACCESS_RELAXED_ORDERING;
	if (order_told())
		complain("region of %zu bytes with access %#x", length, access);
	r->bytes = (((uintptr_t)addr + length + 4095) & ~(uintptr_t)4095) -
		   ((uintptr_t)addr & ~(uintptr_t)4095);
	if (memory_lock(p, r->bytes)) {
		free(r);
		errno = ENOMEM;
		return NULL;
	}
	r->pieces = segment_share(addr, length, &r->first, r->piece);
	pthread_mutex_lock(&lock);
	rc = r->pieces < 0 ? -1 : enter_region(r);
	pthread_mutex_unlock(&lock);
	if (rc) {
		rc = errno;
		memory_unlock(r->bytes);
		free(r);
		errno = rc;
		return NULL;
	}
	pd_of(pd)->users++;
	tally_add(TALLY_REGIONS);
	link_region_added(r);
	return &r->mr;
}

#undef ibv_reg_mr
EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return register_region(pd, addr, length, (uint32_t)access, 0);
}

EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				       unsigned int access)
{
	int ordered = order_failure(__func__);

	if (iova != (uintptr_t)addr) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	return register_region(pd, addr, length, access, ordered);
}

static void remove_region(struct region *r)
{
	struct region **at = &regions;

	while (*at && *at != r)
		at = &(*at)->next;
	if (!*at)
		misuse("ibv_dereg_mr: no such region");
	*at = r->next;
	counts[adapter_of(r->mr.context)->index]--;
	atomic_store(&table->of[area_key_index(r->mr.lkey)].key, 0);
}

EXPORT int ibv_dereg_mr(struct ibv_mr *mr)
{
	struct region *r = (struct region *)mr;
	int ordered = order_failure(__func__);

	pthread_mutex_lock(&lock);
	remove_region(r);
	pthread_mutex_unlock(&lock);
	/* A copy into it may be going on. */
	queue_pair_settle(mr->pd->handle);
	queue_pair_give_back(mr->pd->handle, mr->lkey);
	link_region_gone(r);
	memory_unlock(r->bytes);
	pd_of(mr->pd)->users--;
	tally_remove(TALLY_REGIONS);
	return device_end_object(mr->context, r, ordered);
}
