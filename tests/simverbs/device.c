/* SPDX-License-Identifier: Apache-2.0 */
#include "device.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "async.h"
#include "completion.h"
#include "misuse.h"
#include "operations.h"
#include "order.h"
#include "plug.h"
#include "queue_pair.h"
#include "tally.h"
#include "transfer.h"

static struct ibv_device devices[HOST_ADAPTERS];
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct context *contexts; /* under the lock */
static struct ibv_context *shared[HOST_ADAPTERS];
static struct ibv_pd *shared_pd[HOST_ADAPTERS];
static _Atomic uint32_t last_pd;

uint32_t device_round(uint32_t n)
{
	uint32_t p = 1;

	while (p < n && p < 1u << 31)
		p <<= 1;
	return p;
}

/* ---- devices ---------------------------------------------------------------------------- */

static void describe_device(struct ibv_device *d, const struct host_adapter *a)
{
	const struct personality *p = &a->p;

	d->node_type = p->iwarp ? IBV_NODE_RNIC : IBV_NODE_CA;
	d->transport_type = p->iwarp ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
	snprintf(d->name, sizeof d->name, "%s", p->device);
	snprintf(d->dev_name, sizeof d->dev_name, "uverbs%u", a->index);
	snprintf(d->dev_path, sizeof d->dev_path, "/sys/class/infiniband_verbs/uverbs%u", a->index);
	snprintf(d->ibdev_path, sizeof d->ibdev_path, "/sys/class/infiniband/%s", p->device);
}

static void describe_devices(void)
{
	const struct host *h = host_get();

	for (unsigned i = 0; i < h->adapter_count; i++)
		describe_device(&devices[i], &h->adapters[i]);
}

static const struct host_adapter *adapter_of_device(const struct ibv_device *d)
{
	return &host_get()->adapters[d - devices];
}

EXPORT struct ibv_device **ibv_get_device_list(int *num)
{
	struct ibv_device **list = calloc(HOST_ADAPTERS + 1, sizeof *list);
	const struct host *h = host_get();
	int n = 0, ordered = order_failure(__func__);

	if (!list || ordered) {
		free(list);
		errno = ordered ? ordered : ENOMEM;
		return NULL;
	}
	if (h)
		pthread_once(&once, describe_devices);
	for (unsigned i = 0; h && i < h->adapter_count; i++)
		if (!plug_is_pulled(&h->adapters[i]))
			list[n++] = &devices[i];
	if (num)
		*num = n;
	return list;
}

EXPORT void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

EXPORT const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

/* ---- queries ---------------------------------------------------------------------------- */

/* IBV_MTU_256 is 1. */
static enum ibv_mtu encode_mtu(uint32_t bytes)
{
	unsigned n = IBV_MTU_256;

	while (n < IBV_MTU_4096 && 128u << n < bytes)
		n++;
	return n;
}

int device_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
		      size_t size)
{
	const struct host_adapter *a = adapter_of(context);
	const struct personality *p = &a->p;
	bool ethernet = port <= HOST_PORTS && a->ethernet[port];
	struct ibv_port_attr full = {
		.state = plug_look_down(a, port) ? IBV_PORT_DOWN : IBV_PORT_ACTIVE,
		.max_mtu = encode_mtu(p->mtu),
		.active_mtu = encode_mtu(p->mtu_active),
		.gid_tbl_len = 256,
		.max_msg_sz = p->max_msg_size > UINT32_MAX ? UINT32_MAX : (uint32_t)p->max_msg_size,
		.pkey_tbl_len = 1,
		.lid = ethernet ? 0 : 1,
		.active_width = 2,
		.active_speed = 32,
		.phys_state = 5,
		.link_layer = ethernet ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND,
	};
	int ordered = order_failure("ibv_query_port");

	if (device_is_gone(context))
		return EIO;
	if (ordered || port < 1 || port > a->ports)
		return ordered ? ordered : EINVAL;
	memset(attr, 0, size);
	memcpy(attr, &full, size < sizeof full ? size : sizeof full);
	return 0;
}

#undef ibv_query_port
EXPORT int ibv_query_port(struct ibv_context *context, uint8_t port,
			  struct _compat_ibv_port_attr *attr)
{
	/* Callers of old come here with a shorter struct. */
	return device_query_port(context, port, (struct ibv_port_attr *)attr,
				 offsetof(struct ibv_port_attr, port_cap_flags2));
}

EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	const struct personality *p = &adapter_of(context)->p;
	int ordered = order_failure("ibv_query_device");

	if (ordered)
		return ordered;
	if (device_is_gone(context))
		return EIO;
	*attr = (struct ibv_device_attr){
		.vendor_id = p->vendor_id,
		.max_mr_size = p->max_mr_size,
		.page_size_cap = 0xfffff000,
		.max_qp = 131072,
		.max_qp_wr = (int)p->max_qp_wr,
		.max_sge = (int)p->max_sge,
		.max_cq = 1 << 20,
		.max_cqe = (int)p->max_cqe,
		.max_mr = (int)p->max_mr,
		.max_pd = 1 << 16,
		.max_qp_rd_atom = 16,
		.max_qp_init_rd_atom = 16,
		.local_ca_ack_delay = 16,
		.phys_port_cnt = (uint8_t)adapter_of(context)->ports,
	};
	snprintf(attr->fw_ver, sizeof attr->fw_ver, "simulated");
	return 0;
}

/* ---- contexts --------------------------------------------------------------------------- */

static void forget_parent(void)
{
	pthread_mutex_init(&lock, NULL);
	contexts = NULL;
	memset(shared, 0, sizeof shared);
	memset(shared_pd, 0, sizeof shared_pd);
}

__attribute__((constructor)) static void prepare_forks(void)
{
	pthread_atfork(NULL, NULL, forget_parent);
}

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	const struct host_adapter *a = adapter_of_device(device);
	struct verbs_context *v;
	struct context *c;

	FAIL_IF_ORDERED(NULL);
	errno = ENODEV;
	if (plug_is_pulled(a))
		return NULL;
	c = calloc(1, sizeof *c);
	if (!c)
		return NULL;
	c->adapter = a;
	v = &c->verbs;
	v->sz = sizeof *v;
	v->query_port = operations.query_port;
	v->context.device = device;
	v->context.cmd_fd = -1;
	v->context.async_fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	v->context.num_comp_vectors = (int)a->p.comp_vectors;
	v->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	v->context.ops.poll_cq = operations.poll_cq;
	v->context.ops.req_notify_cq = operations.req_notify_cq;
	v->context.ops.post_send = operations.post_send;
	v->context.ops.post_recv = operations.post_recv;
	pthread_mutex_init(&v->context.mutex, NULL);
	if (v->context.async_fd < 0) {
		free(c);
		return NULL;
	}
	tally_add(TALLY_CONTEXTS);
	pthread_mutex_lock(&lock);
	c->next = contexts;
	contexts = c;
	pthread_mutex_unlock(&lock);
	return &v->context;
}

EXPORT int ibv_close_device(struct ibv_context *context)
{
	struct context *c = context_of(context), **at = &contexts;

	pthread_mutex_lock(&lock);
	if (context == shared[c->adapter->index])
		misuse("ibv_close_device: the context is librdmacm's");
	while (*at && *at != c)
		at = &(*at)->next;
	if (*at)
		*at = c->next;
	pthread_mutex_unlock(&lock);
	tally_remove(TALLY_CONTEXTS);
	async_drop_all(c);
	close(context->async_fd);
	free(c);
	FAIL_IF_ORDERED(-1);
	return 0;
}

void device_report(const struct host_adapter *a, unsigned port, enum ibv_event_type what)
{
	pthread_mutex_lock(&lock);
	for (struct context *c = contexts; c; c = c->next)
		if (c->adapter == a && !atomic_load(&c->gone))
			async_report(c, port, what);
	pthread_mutex_unlock(&lock);
}

void device_remove(const struct host_adapter *a)
{
	pthread_mutex_lock(&lock);
	for (struct context *c = contexts; c; c = c->next) {
		if (c->adapter != a || atomic_load(&c->gone))
			continue;
		async_report(c, 1, IBV_EVENT_DEVICE_FATAL);
		atomic_store(&c->gone, true);
		async_end(c);
	}
	shared[a->index] = NULL;
	shared_pd[a->index] = NULL;
	pthread_mutex_unlock(&lock);
	completion_end_channels();
}

struct ibv_context *device_context(const struct host_adapter *a)
{
	static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
	struct ibv_context *context;
	bool known;

	pthread_once(&once, describe_devices);
	pthread_mutex_lock(&opening);
	pthread_mutex_lock(&lock);
	context = shared[a->index];
	pthread_mutex_unlock(&lock);
	known = context != NULL;
	if (!known)
		context = ibv_open_device(&devices[a->index]);
	if (!known && context) {
		tally_remove(TALLY_CONTEXTS); /* it is kept */
		pthread_mutex_lock(&lock);
		shared[a->index] = context;
		pthread_mutex_unlock(&lock);
	}
	pthread_mutex_unlock(&opening);
	return context;
}

/* ---- what a removed adapter leaves ------------------------------------------------------- */

/* Reachable, so that a leak checker knows that they are meant to stay. */
struct leftover {
	void *object;
	struct leftover *next;
};
static struct leftover *leftovers;

void device_keep_object(void *object)
{
	struct leftover *l = malloc(sizeof *l);

	if (!l)
		misuse("out of memory");
	l->object = object;
	pthread_mutex_lock(&lock);
	l->next = leftovers;
	leftovers = l;
	pthread_mutex_unlock(&lock);
}

int device_end_object(struct ibv_context *context, void *object, int ordered)
{
	int rc = ordered;

	if (!rc && device_is_gone(context) && !getenv("RDMAV_ALLOW_DISASSOC_DESTROY"))
		rc = EIO;
	if (rc)
		device_keep_object(object);
	else
		free(object);
	return rc;
}

/* ---- protection domains ----------------------------------------------------------------- */

EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct pd *p;

	FAIL_IF_ORDERED(NULL);
	FAIL_IF_GONE(context, NULL);
	p = calloc(1, sizeof *p);
	if (!p)
		return NULL;
	p->pd.context = context;
	p->pd.handle = atomic_fetch_add(&last_pd, 1) + 1;
	tally_add(TALLY_DOMAINS);
	return &p->pd;
}

EXPORT int ibv_dealloc_pd(struct ibv_pd *pd)
{
	int ordered = order_failure(__func__);
	struct pd *p = pd_of(pd);

	if (p->users)
		misuse("ibv_dealloc_pd: %u regions and queue pairs are still in it", p->users);
	tally_remove(TALLY_DOMAINS);
	return device_end_object(pd->context, p, ordered);
}

struct ibv_pd *device_pd(const struct host_adapter *a)
{
	struct ibv_context *context = device_context(a);
	struct ibv_pd **pd = &shared_pd[a->index];

	pthread_mutex_lock(&lock);
	if (!*pd && context) {
		*pd = ibv_alloc_pd(context);
		if (*pd)
			tally_remove(TALLY_DOMAINS); /* it is kept */
	}
	pthread_mutex_unlock(&lock);
	return *pd;
}
