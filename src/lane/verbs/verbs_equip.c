/* SPDX-License-Identifier: Apache-2.0 */

/* Queues and registered memory of a verbs wire. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/io.h"
#include "host/numa.h"
#include "lane/memlock.h"
#include "lane/verbs/verbs_impl.h"

/*
 * PCIe writes of the adapter, and its reads, need not keep their order in memory with this flag:
 * see ibv_reg_mr(3). It has the pools of a source, and of a sink that receives SENDs. A completion
 * guarantees that all data before it is visible, and nothing of a block is read earlier.
 *
 * It does not have a ring that the peer WRITEs to, where blocks are announced by other messages,
 * nor the hellos, credits and notices: 16 to 1,024 bytes each, where it gains nothing.
 */
#ifdef IBV_ACCESS_OPTIONAL_FIRST
enum { RELAXED = IBV_ACCESS_RELAXED_ORDERING };
#else /* rdma-core before version 28 */
enum { RELAXED = 0 };
#endif

uint8_t *verbs_hello_at(const struct verbs *v, enum hello_place place)
{
	return v->ring + (size_t)place * LANE_HELLO_SIZE;
}

uint8_t *verbs_credit_at(const struct verbs *v, uint32_t slot)
{
	return verbs_hello_at(v, HELLO_PLACES) + (size_t)slot * CREDIT_STRIDE;
}

/* The same for all wires of a lane, so that one can take another's memory. A sink needs one for
 * each of its sends. */
static uint32_t credit_places(const struct verbs *v)
{
	return v->depth + (v->side == LANE_SOURCE ? CREDITS_SPARE : SENDS_SPARE);
}

uint8_t *verbs_notice_at(const struct verbs *v, uint32_t slot)
{
	return verbs_credit_at(v, credit_places(v)) + (size_t)slot * NOTICE_SIZE;
}

static const char *device_name(const struct verbs *v)
{
	return ibv_get_device_name(v->id->verbs->device);
}

int verbs_post_recv(struct verbs *v, uint64_t wr_id, struct ibv_sge *into)
{
	struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = into, .num_sge = into != NULL}, *bad;
	int rc = ibv_post_recv(v->id->qp, &wr, &bad);

	/* siw returns a negative errno. */
	return rc ? verbs_call_failed(v, rc, "post a receive") : 0;
}

int verbs_post_credit(struct verbs *v, uint32_t slot)
{
	struct ibv_sge sge = {.addr = (uintptr_t)verbs_credit_at(v, slot),
			      .length = CREDIT_SIZE,
			      .lkey = v->ring_mr->lkey};

	return verbs_post_recv(v, work_id(WORK_RECV_CREDIT, slot), &sge);
}

static int post_hello(struct verbs *v, enum hello_place place)
{
	struct ibv_sge sge = {.addr = (uintptr_t)verbs_hello_at(v, place),
			      .length = LANE_HELLO_SIZE,
			      .lkey = v->ring_mr->lkey};

	return verbs_post_recv(v, work_id(WORK_RECV_HELLO, 0), &sge);
}

static int post_receives(struct verbs *v)
{
	/* The next block's slot first: verbs_block_arrived() relies on the order. */
	uint64_t next = lane_stored(v->lane);

	if (post_hello(v, HELLO_IN) || (verbs_expects_two_hellos(v) && post_hello(v, HELLO_SECOND)))
		return -1;
	for (uint32_t i = 0; v->side == LANE_SINK && i < v->depth; i++) {
		if (verbs_post_block(v, (uint32_t)((next + i) % v->depth)))
			return -1;
	}
	for (uint32_t slot = 0; v->side == LANE_SOURCE && slot < v->depth + CREDITS_SPARE; slot++) {
		if (verbs_post_credit(v, slot))
			return -1;
	}
	return 0;
}

static uint32_t count_receives(const struct verbs *v)
{
	return v->depth + 1 + verbs_expects_two_hellos(v) +
	       (v->side == LANE_SOURCE ? CREDITS_SPARE : 0);
}

/* Chooses how many sends may be posted at a time. Fewer than one for each block of the depth slow
 * the lane down at most; so they give way to the device's limits. */
static int choose_sends(struct verbs *v)
{
	const struct ibv_device_attr *dev = &v->adapter.device;
	uint32_t least = verbs_sends_a_block(v), receives = count_receives(v);

	v->sends_max = v->depth * least + SENDS_SPARE;
	if (v->sends_max > (uint32_t)dev->max_qp_wr)
		v->sends_max = (uint32_t)dev->max_qp_wr;
	/* The completion queue has an entry for each work request: make_cq(). */
	if (dev->max_cqe < 0 || (uint32_t)dev->max_cqe < receives + least)
		return verbs_fail(v, OUT_TRANSPORT,
				  "%s allows %d entries per completion queue, a depth of %u "
				  "(--depth) needs %u",
				  device_name(v), dev->max_cqe, v->depth, receives + least);
	if (v->sends_max > (uint32_t)dev->max_cqe - receives)
		v->sends_max = (uint32_t)dev->max_cqe - receives;
	return 0;
}

/* Checks the device's limits against what this lane needs. */
static int check_device(struct verbs *v)
{
	const struct ibv_device_attr *dev = &v->adapter.device;
	uint32_t message = LANE_HEAD + v->pool->size;

	if (v->adapter.port.max_msg_sz < message)
		return verbs_fail(v, OUT_TRANSPORT,
				  "%s sends messages of at most %u bytes, a block needs %u",
				  device_name(v), v->adapter.port.max_msg_sz, message);
	if (dev->max_qp_wr < 0 || (uint32_t)dev->max_qp_wr < count_receives(v))
		return verbs_fail(
			v, OUT_TRANSPORT,
			"%s allows %d receives per queue pair, a depth of %u (--depth) needs %u",
			device_name(v), dev->max_qp_wr, v->depth, count_receives(v));
	if (dev->max_mr_size < v->pool->bytes)
		return verbs_fail(v, OUT_TRANSPORT,
				  "%s registers at most %llu bytes at a time, a depth of %u "
				  "(--depth) with blocks of %u bytes (--block-size) needs %zu",
				  device_name(v), (unsigned long long)dev->max_mr_size, v->depth,
				  v->pool->size, v->pool->bytes);
	return choose_sends(v) || verbs_op_check(v) ? -1 : 0;
}

static int make_pd(struct verbs *v)
{
	if (!v->pd)
		v->pd = ibv_alloc_pd(v->id->verbs);
	if (!v->pd)
		return verbs_fail(v, OUT_TRANSPORT, "allocate a protection domain on %s: %m",
				  device_name(v));
	return 0;
}

static int make_cq(struct verbs *v)
{
	/* One entry for each work request, so the completion queue cannot overrun. */
	int entries = (int)(v->sends_max + count_receives(v));
	int vectors = v->id->verbs->num_comp_vectors;
	int vector = vectors > 0 ? (int)lane_index(v->lane) % vectors : 0;

	v->channel = ibv_create_comp_channel(v->id->verbs);
	if (!v->channel)
		return verbs_fail(v, OUT_TRANSPORT, "create a completion channel on %s: %m",
				  device_name(v));
	if (set_nonblocking(v->channel->fd))
		return verbs_fail(v, OUT_TRANSPORT,
				  "make the completion channel of %s non-blocking: %m",
				  device_name(v));
	v->cq = ibv_create_cq(v->id->verbs, entries, NULL, v->channel, vector);
	if (!v->cq)
		return verbs_fail(v, OUT_TRANSPORT,
				  "create a completion queue of %d entries on %s: %m", entries,
				  device_name(v));
	return 0;
}

/* The size of the small messages that this end sends. */
static uint32_t inline_bytes(const struct verbs *v)
{
	if (v->side == LANE_SINK)
		return CREDIT_SIZE;
	return v->op == RDMA_OP_WRITE_SEND ? NOTICE_SIZE : 0;
}

static int make_qp(struct verbs *v)
{
	struct ibv_qp_init_attr init, ask = {
					      .send_cq = v->cq,
					      .recv_cq = v->cq,
					      .cap = {.max_send_wr = v->sends_max,
						      .max_recv_wr = count_receives(v),
						      .max_send_sge = 1,
						      .max_recv_sge = 1,
						      .max_inline_data = inline_bytes(v)},
					      .qp_type = IBV_QPT_RC,
					      .sq_sig_all = 1,
				      };

	init = ask;
	if (rdma_create_qp(v->id, v->pd, &init)) {
		/* An adapter without inline data rejects the queue pair. */
		init = ask;
		init.cap.max_inline_data = 0;
		if (rdma_create_qp(v->id, v->pd, &init))
			return verbs_fail(v, OUT_TRANSPORT,
					  "create a queue pair with %u sends and %u receives on "
					  "%s: %m",
					  v->sends_max, count_receives(v), device_name(v));
	}
	v->has_qp = true;
	v->sends_inline = inline_bytes(v) > 0 && init.cap.max_inline_data >= inline_bytes(v);
	if (init.cap.max_recv_wr < count_receives(v))
		return verbs_fail(v, OUT_TRANSPORT, "%s grants %u receives, %u are needed",
				  device_name(v), init.cap.max_recv_wr, count_receives(v));
	/* Never use more sends than requested: the completion queue has room for these only. */
	if (init.cap.max_send_wr < v->sends_max)
		v->sends_max = init.cap.max_send_wr;
	if (v->sends_max < verbs_sends_a_block(v))
		return verbs_fail(v, OUT_TRANSPORT, "%s grants %u sends at a time, %u are needed",
				  device_name(v), v->sends_max, verbs_sends_a_block(v));
	return 0;
}

/* Bytes of memory that v locks. */
static uint64_t count_locked_bytes(const struct verbs *v)
{
	return v->pool->bytes + v->ring_bytes;
}

/* Bytes that this process has registered for lanes. */
static _Atomic uint64_t registered;

/* ENOMEM has several reasons, and the kernel does not report which. */
static int fail_no_memory(struct verbs *v, size_t bytes)
{
	const struct ibv_device_attr *dev = &v->adapter.device;
	uint64_t locked = atomic_load(&registered);

	if (memlock_explains(locked + bytes, v->adapter.siw)) {
		fail_memlock(locked - (v->ring_mr ? v->ring_bytes : 0), count_locked_bytes(v));
		return verbs_fail(v, failed()->code, "%s", failed()->text);
	}
	return verbs_fail(v, OUT_TRANSPORT,
			  "register %zu bytes with %s: this host is out of memory, or the adapter "
			  "has no room for another region (it allows %d)",
			  bytes, device_name(v), dev->max_mr);
}

static int register_memory(struct verbs *v, void *base, size_t bytes, int access,
			   struct ibv_mr **out)
{
	/* The adapter only reads a source's memory. But if it is registered without write access,
	 * some kernels pin the shared zero page, which the first write replaces by another page. */
	access |= IBV_ACCESS_LOCAL_WRITE;
	*out = ibv_reg_mr(v->pd, base, bytes, (unsigned)access);
	/* libibverbs leaves RELAXED out if the kernel does not know optional flags; a driver of its
	 * own may reject it. */
	if (!*out && access & RELAXED && errno != ENOMEM)
		*out = ibv_reg_mr(v->pd, base, bytes, (unsigned)(access & ~RELAXED));
	if (*out) {
		atomic_fetch_add(&registered, bytes);
		return 0;
	}
	if (errno == ENOMEM)
		return fail_no_memory(v, bytes);
	return verbs_fail(v, OUT_TRANSPORT, "register %zu bytes with %s: %m", bytes,
			  device_name(v));
}

static int make_memory(struct verbs *v)
{
	/* Room for any depth that this end states: another wire of the lane may take the memory. */
	uint32_t depth = lane_depth(v->lane);
	size_t notices = v->op == RDMA_OP_WRITE_SEND ? (size_t)depth * NOTICE_SIZE : 0;
	size_t bytes = (size_t)HELLO_PLACES * LANE_HELLO_SIZE +
		       (size_t)(depth + SENDS_SPARE) * CREDIT_STRIDE + notices;
	int pool = v->side == LANE_SINK && verbs_writes(v) ? IBV_ACCESS_REMOTE_WRITE : RELAXED;
	void *ring;

	bytes = (bytes + LANE_PAGE - 1) & ~(size_t)(LANE_PAGE - 1);
	ring = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (ring == MAP_FAILED)
		return verbs_fail(v, OUT_MEMORY, "map %zu bytes: %m", bytes);
	v->ring = ring;
	v->ring_bytes = bytes;
	/* After a fork, copy-on-write must not replace the registered pages. */
	if (madvise(ring, bytes, MADV_DONTFORK))
		return verbs_fail(v, OUT_MEMORY, "exclude memory from fork: %m");
	if (register_memory(v, ring, bytes, 0, &v->ring_mr))
		return -1;
	return register_memory(v, v->pool->base, v->pool->bytes, pool, &v->pool_mr);
}

int verbs_equip_queues(struct verbs *v)
{
	if (check_device(v) || make_pd(v) || make_cq(v) || make_qp(v))
		return -1;
	verbs_free(v->stale);
	v->stale = NULL;
	return 0;
}

int verbs_equip(struct verbs *v)
{
	/* Before the memory is registered, because registered pages cannot move. */
	numa_settle(NULL, device_name(v), v->pool->pages.base, v->pool->pages.mapped);
	if (verbs_equip_queues(v) || verbs_async_join(v))
		return -1;
	return (!v->pool_mr && make_memory(v)) || post_receives(v) ? -1 : 0;
}

int verbs_equip_memory(struct verbs *v)
{
	numa_settle(NULL, device_name(v), v->pool->pages.base, v->pool->pages.mapped);
	return check_device(v) || make_pd(v) || make_memory(v) ? -1 : 0;
}

void verbs_take_memory(struct verbs *v, struct verbs *from)
{
	if (!from || !from->id || from->id->verbs != v->id->verbs || v->pd)
		return;
	v->pd = from->pd;
	v->ring = from->ring;
	v->ring_bytes = from->ring_bytes;
	v->ring_mr = from->ring_mr;
	v->pool_mr = from->pool_mr;
	from->pd = NULL;
	from->ring = NULL;
	from->ring_mr = from->pool_mr = NULL;
}

static void deregister_memory(struct ibv_mr **mr)
{
	if (!*mr)
		return;
	atomic_fetch_sub(&registered, (*mr)->length);
	ibv_dereg_mr(*mr);
	*mr = NULL;
}

void verbs_release_memory(struct verbs *v)
{
	deregister_memory(&v->pool_mr);
	deregister_memory(&v->ring_mr);
}

void verbs_unequip(struct verbs *v)
{
	if (v->has_qp)
		rdma_destroy_qp(v->id);
	if (v->cq)
		ibv_destroy_cq(v->cq);
	/* libibverbs keeps the queues of an adapter that was removed (their calls report EIO), and
	 * for their sake the channel. Nobody uses its descriptor any more. */
	if (v->channel && ibv_destroy_comp_channel(v->channel) == EBUSY)
		close(v->channel->fd);
	verbs_release_memory(v);
	if (v->pd)
		ibv_dealloc_pd(v->pd);
	if (v->ring)
		munmap(v->ring, v->ring_bytes);
	v->has_qp = false;
	v->cq = NULL;
	v->channel = NULL;
	v->pd = NULL;
	v->ring = NULL;
}
