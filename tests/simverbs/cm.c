/* SPDX-License-Identifier: Apache-2.0 */

/* Ids of the connection manager: addresses, routes, listeners, and their queue pairs. */

#include "cm.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>
#include "device.h"
#include "misuse.h"
#include "order.h"
#include "plug.h"
#include "tally.h"

enum { PORT_FIRST = 32768, PORTS = 28000, PORT_TRIES = 64 };

/* ---- addresses -------------------------------------------------------------------------- */

static in_port_t *port_at(struct sockaddr *sa)
{
	if (sa->sa_family == AF_INET6)
		return &((struct sockaddr_in6 *)(void *)sa)->sin6_port;
	return &((struct sockaddr_in *)(void *)sa)->sin_port;
}

static socklen_t address_size(const struct sockaddr *sa)
{
	return sa->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

static bool is_any(const struct sockaddr *sa)
{
	const struct sockaddr_in *in4 = (const struct sockaddr_in *)(const void *)sa;
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)sa;

	if (sa->sa_family == AF_INET6)
		return IN6_IS_ADDR_UNSPECIFIED(&in6->sin6_addr);
	return in4->sin_addr.s_addr == htonl(INADDR_ANY);
}

static bool is_link_local(const struct sockaddr *sa)
{
	return sa->sa_family == AF_INET6 &&
	       IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr);
}

/* Ports of different kinds have no path to each other. */
static const char *kind_of_port(const struct cm_id *c)
{
	const struct host_adapter *a = cm_adapter(c);

	if (a->p.iwarp)
		return "iwarp";
	return a->ethernet[c->id.port_num ? c->id.port_num : 1] ? "roce" : "ib";
}

const char *cm_cable(const struct cm_id *c)
{
	return cm_adapter(c)->cable[c->id.port_num ? c->id.port_num : 1];
}

void cm_name(char *to, size_t size, const struct cm_id *c, const struct sockaddr *sa, bool any)
{
	const struct host *h = host_get();
	char ip[INET6_ADDRSTRLEN] = "any";
	in_port_t port = *port_at((struct sockaddr *)(uintptr_t)sa);

	if (!any && !is_any(sa))
		inet_ntop(sa->sa_family,
			  sa->sa_family == AF_INET6
				  ? (const void *)&((const struct sockaddr_in6 *)(const void *)sa)
					    ->sin6_addr
				  : (const void *)&((const struct sockaddr_in *)(const void *)sa)
					    ->sin_addr,
			  ip, sizeof ip);
	snprintf(to, size, "%s%s/%s%s.%s.%u", h->fabric[0] == '/' ? "" : "simverbs/", h->fabric,
		 cm_cable(c), kind_of_port(c), ip, ntohs(port));
}

static in_port_t pick_port(void)
{
	uint32_t n = 0;

	if (getrandom(&n, sizeof n, 0) < 0)
		n = (uint32_t)getpid();
	return htons((uint16_t)(PORT_FIRST + n % PORTS));
}

/* ---- ids -------------------------------------------------------------------------------- */

static struct cm_id *all; /* engine's lock */

static void forget_parent(void)
{
	all = NULL;
}

__attribute__((constructor)) static void prepare_forks(void)
{
	pthread_atfork(NULL, NULL, forget_parent);
}

struct cm_id *cm_new(struct rdma_event_channel *channel, void *context, enum rdma_port_space ps)
{
	struct cm_id *c = calloc(1, sizeof *c);

	if (!c)
		return NULL;
	c->id.channel = channel;
	c->id.context = context;
	c->id.ps = ps;
	c->id.qp_type = IBV_QPT_RC;
	c->bound.fd = -1;
	c->next = all;
	all = c;
	return c;
}

void cm_free(struct cm_id *c)
{
	struct cm_id **at = &all;

	while (*at && *at != c)
		at = &(*at)->next;
	if (*at)
		*at = c->next;
	engine_cancel(&c->timer);
	if (c->bound.fd >= 0) {
		if (c->state == CM_LISTENING)
			engine_unwatch(&c->bound);
		close(c->bound.fd);
	}
	free(c);
}

EXPORT int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
			  enum rdma_port_space ps)
{
	struct cm_id *c;

	FAIL_IF_ORDERED(-1);
	if (!channel || ps != RDMA_PS_TCP) {
		/* Synchronous ids are not simulated. */
		errno = EOPNOTSUPP;
		return -1;
	}
	engine_lock();
	c = cm_new(channel, context, ps);
	engine_unlock();
	if (!c)
		return -1;
	tally_add(TALLY_IDS);
	*id = &c->id;
	return 0;
}

EXPORT int rdma_destroy_id(struct rdma_cm_id *id)
{
	struct cm_id *c = cm_id_of(id);

	if (id->qp)
		misuse("rdma_destroy_id: its queue pair was not destroyed");
	engine_lock();
	if (c->state == CM_LISTENING) {
		engine_unwatch(&c->bound);
		c->state = CM_BOUND;
		/* Those that have not sent their request. */
		link_close_owned(c);
	}
	tally_remove(TALLY_IDS);
	if (c->state != CM_REMOVED)
		cm_hang_up(c);
	cm_drop_events(c);
	cm_free(c);
	engine_unlock();
	FAIL_IF_ORDERED(-1);
	return 0;
}

EXPORT int rdma_set_option(struct rdma_cm_id *id, int level, int optname, void *optval,
			   size_t optlen)
{
	struct cm_id *c = cm_id_of(id);

	FAIL_IF_ORDERED(-1);
	errno = level == RDMA_OPTION_ID ? EINVAL : ENOSYS;
	if (level != RDMA_OPTION_ID)
		return -1;
	switch (optname) {
	case RDMA_OPTION_ID_ACK_TIMEOUT:
		if (optlen != sizeof c->ack_timeout)
			return -1;
		memcpy(&c->ack_timeout, optval, sizeof c->ack_timeout);
		return 0;
	case RDMA_OPTION_ID_TOS:
		if (optlen != sizeof c->tos)
			return -1;
		memcpy(&c->tos, optval, sizeof c->tos);
		return 0;
	case RDMA_OPTION_ID_REUSEADDR:
	case RDMA_OPTION_ID_AFONLY:
		return optlen == sizeof(int) ? 0 : -1;
	default:
		errno = ENOSYS;
		return -1;
	}
}

static void remove_id(struct cm_id *c)
{
	engine_cancel(&c->timer);
	if (c->state == CM_LISTENING)
		engine_unwatch(&c->bound);
	/* No message can be sent any more. */
	if (c->link) {
		c->link->unheard = true;
		link_close(c->link);
		c->link = NULL;
	}
	c->state = CM_REMOVED;
	/* ucma.c, ucma_event_handler(): not for an id that the program does not know. */
	if (!c->untaken)
		cm_report(c, RDMA_CM_EVENT_DEVICE_REMOVAL, 0, NULL);
}

void cm_remove_all(const struct host_adapter *a)
{
	for (struct cm_id *c = all; c; c = c->next)
		if (c->id.verbs && cm_adapter(c) == a && c->state != CM_REMOVED)
			remove_id(c);
}

/* Its addresses are gone with an adapter. */
static const struct host_address *find_address(const struct sockaddr *sa)
{
	const struct host_address *found = host_find(sa);

	return found && !plug_is_pulled(found->adapter) ? found : NULL;
}

/* cma.c, cma_validate_port(): connections use the type of GID that is the port's default, RoCE v2
 * where the adapter has it and nobody chose RoCE v1. An address without such a GID belongs to no
 * RDMA device. An end that accepts uses what the request came with (cm.c, cm_req_handler()). */
static bool has_gid(const struct host_address *own)
{
	return own->kind == ADDRESS_OWN && (!own->only_v1 || own->adapter->roce1[own->port]);
}

static void take_port(struct cm_id *c, const struct host_address *own)
{
	c->id.verbs = device_context(own->adapter);
	c->id.port_num = (uint8_t)own->port;
}

/* ---- binding ---------------------------------------------------------------------------- */

/* One try; the name holds the port for as long as the id lives. */
static int bind_port(struct cm_id *c, const struct sockaddr *sa)
{
	char name[128];

	cm_name(name, sizeof name, c, sa, false);
	c->bound.fd = link_bind(name);
	return c->bound.fd < 0 ? -1 : 0;
}

static int bind_somewhere(struct cm_id *c, struct sockaddr *sa)
{
	in_port_t *port = port_at(sa);

	if (*port)
		return bind_port(c, sa);
	for (unsigned i = 0; i < PORT_TRIES; i++) {
		*port = pick_port();
		if (bind_port(c, sa) == 0)
			return 0;
		if (errno != EADDRINUSE)
			return -1;
	}
	return -1;
}

EXPORT int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	struct cm_id *c = cm_id_of(id);
	const struct host_address *own = find_address(addr);
	struct rdma_addr *to = &id->route.addr;

	FAIL_IF_ORDERED(-1);
	if (c->state != CM_IDLE) {
		errno = EINVAL;
		return -1;
	}
	/* cma_check_linklocal() */
	if (is_link_local(addr) && !((struct sockaddr_in6 *)(void *)addr)->sin6_scope_id) {
		errno = EINVAL;
		return -1;
	}
	if (!is_any(addr) && (!own || !has_gid(own))) {
		errno = ENODEV;
		return -1;
	}
	memcpy(&to->src_storage, addr, address_size(addr));
	if (own)
		take_port(c, own);
	if (bind_somewhere(c, &to->src_addr)) {
		id->verbs = NULL;
		return -1;
	}
	c->state = CM_BOUND;
	return 0;
}

EXPORT int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	struct cm_id *c = cm_id_of(id);
	int rc;

	FAIL_IF_ORDERED(-1);
	if (c->state != CM_BOUND) {
		errno = EINVAL;
		return -1;
	}
	engine_lock();
	c->bound.ready = cm_listen_ready;
	rc = listen(c->bound.fd, backlog > 0 ? backlog : 128) || engine_watch(&c->bound) ? -1 : 0;
	if (!rc)
		c->state = CM_LISTENING;
	engine_unlock();
	return rc;
}

EXPORT uint16_t rdma_get_src_port(struct rdma_cm_id *id)
{
	return *port_at(&id->route.addr.src_addr);
}

EXPORT uint16_t rdma_get_dst_port(struct rdma_cm_id *id)
{
	return *port_at(&id->route.addr.dst_addr);
}

/* ---- resolving -------------------------------------------------------------------------- */

static struct cm_id *timer_id(struct engine_timer *t)
{
	return (struct cm_id *)((char *)t - offsetof(struct cm_id, timer));
}

/* addr_handler(): cma_acquire_dev_by_src_ip() found no device. */
static void fail_device(struct engine_timer *t)
{
	struct cm_id *c = timer_id(t);

	c->state = CM_BOUND;
	cm_report(c, RDMA_CM_EVENT_ADDR_ERROR, -ENODEV, NULL);
}

static void fail_address(struct engine_timer *t)
{
	struct cm_id *c = timer_id(t);

	/* addr_handler(): the id is bound again. */
	c->state = CM_BOUND;
	cm_report(c, RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT, NULL);
}

/* The host's first address of that family: a route's. */
static const struct host_address *find_source(int family)
{
	const struct host *h = host_get();

	for (unsigned i = 0; i < h->count; i++)
		if (h->addresses[i].kind == ADDRESS_OWN &&
		    h->addresses[i].at.sa.sa_family == family &&
		    !plug_is_pulled(h->addresses[i].adapter))
			return &h->addresses[i];
	return NULL;
}

/* What the kernel's routes choose. NULL if that is not an adapter's. */
static const struct host_address *find_routed(const struct sockaddr *dst)
{
	struct sockaddr_storage to = {0}, from = {0};
	int fd = socket(dst->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	const struct host_address *own = NULL;
	socklen_t len = sizeof from;

	memcpy(&to, dst, address_size(dst));
	*port_at((struct sockaddr *)&to) = htons(9); /* any */
	if (fd >= 0 && connect(fd, (struct sockaddr *)&to, address_size(dst)) == 0 &&
	    getsockname(fd, (struct sockaddr *)&from, &len) == 0)
		own = find_address((struct sockaddr *)&from);
	if (fd >= 0)
		close(fd);
	return own;
}

/* Returns 0; 1 if the route leads to no RDMA device; -1 with errno. */
static int choose_source(struct cm_id *c, const struct sockaddr *src, const struct sockaddr *dst)
{
	struct rdma_addr *to = &c->id.route.addr;
	const struct host_address *own;
	bool given = src && src->sa_family != AF_UNSPEC && !is_any(src);

	if (c->id.verbs)
		return 0;
	if (given)
		own = find_address(src);
	else if (host_get()->cabled)
		own = find_routed(dst);
	else
		own = find_address(dst) && find_address(dst)->kind == ADDRESS_OWN
			      ? find_address(dst)
			      : find_source(dst->sa_family);
	if (!own || own->kind != ADDRESS_OWN || (given && !has_gid(own))) {
		errno = ENODEV;
		return -1;
	}
	if (!has_gid(own))
		return 1;
	memcpy(&to->src_storage, &own->at, sizeof own->at);
	*port_at(&to->src_addr) = pick_port();
	take_port(c, own);
	return 0;
}

EXPORT int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src, struct sockaddr *dst,
			     int timeout_ms)
{
	struct cm_id *c = cm_id_of(id);
	int rc;

	FAIL_IF_ORDERED(-1);
	if (c->state > CM_BOUND) {
		errno = EINVAL;
		return -1;
	}
	if (!find_address(dst) && !host_find_far(dst, NULL)) {
		errno = ENODEV;
		return -1;
	}
	rc = choose_source(c, src, dst);
	if (rc < 0)
		return -1;
	c->peer = find_address(dst);
	if (!c->peer)
		c->peer = host_find_far(dst, host_get()->flux ? NULL : cm_cable(c));
	memcpy(&id->route.addr.dst_storage, dst, address_size(dst));
	engine_lock();
	if (rc > 0) {
		c->timer.fire = fail_device;
		engine_set(&c->timer, 0);
	} else if (!c->peer || c->peer->kind == ADDRESS_UNLINKED ||
		   plug_is_down(cm_adapter(c), id->port_num)) {
		c->timer.fire = fail_address;
		engine_set(&c->timer, (uint64_t)timeout_ms * 1000000);
	} else {
		c->state = CM_ADDR;
		cm_report(c, RDMA_CM_EVENT_ADDR_RESOLVED, 0, NULL);
	}
	engine_unlock();
	return 0;
}

EXPORT int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	struct cm_id *c = cm_id_of(id);
	const struct host_adapter *a = cm_adapter(c);

	FAIL_IF_ORDERED(-1);
	(void)timeout_ms;
	if (c->state != CM_ADDR) {
		errno = EINVAL;
		return -1;
	}
	/* cma_resolve_iboe_route() derives the packet lifetime from it. */
	c->path_timeout = c->ack_timeout && a->ethernet[id->port_num] ? c->ack_timeout
								      : (uint8_t)a->p.ack_timeout;
	engine_lock();
	c->state = CM_ROUTE;
	cm_report(c, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL);
	engine_unlock();
	return 0;
}

/* ---- queue pairs ------------------------------------------------------------------------ */

static void destroy_queue(struct ibv_cq **cq, struct ibv_comp_channel **channel)
{
	if (!*channel)
		return;
	if (*cq)
		ibv_destroy_cq(*cq);
	ibv_destroy_comp_channel(*channel);
	*cq = NULL;
	*channel = NULL;
}

static void destroy_queues(struct rdma_cm_id *id)
{
	destroy_queue(&id->recv_cq, &id->recv_cq_channel);
	destroy_queue(&id->send_cq, &id->send_cq_channel);
}

static int create_queue(struct rdma_cm_id *id, uint32_t entries, struct ibv_cq **cq,
			struct ibv_comp_channel **channel)
{
	*channel = ibv_create_comp_channel(id->verbs);
	*cq = *channel ? ibv_create_cq(id->verbs, (int)entries, id, *channel, 0) : NULL;
	return *cq ? 0 : -1;
}

/* ucma_create_cqs(): those that the caller has none for. */
static int create_queues(struct rdma_cm_id *id, struct ibv_qp_init_attr *attr)
{
	if (!attr->recv_cq &&
	    create_queue(id, attr->cap.max_recv_wr, &id->recv_cq, &id->recv_cq_channel))
		return -1;
	if (!attr->send_cq &&
	    create_queue(id, attr->cap.max_send_wr, &id->send_cq, &id->send_cq_channel))
		return -1;
	if (!attr->recv_cq)
		attr->recv_cq = id->recv_cq;
	if (!attr->send_cq)
		attr->send_cq = id->send_cq;
	return 0;
}

EXPORT int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct queue_pair *q = NULL;

	FAIL_IF_ORDERED(-1);
	if (!pd)
		pd = id->pd ? id->pd : device_pd(cm_adapter(cm_id_of(id)));
	if (!pd || id->qp || pd->context != id->verbs) {
		errno = EINVAL;
		return -1;
	}
	FAIL_IF_GONE(pd->context, -1);
	if (!create_queues(id, attr))
		q = queue_pair_new(pd, id->port_num, attr);
	if (!q) {
		int err = errno;

		destroy_queues(id);
		errno = err;
		return -1;
	}
	tally_add(TALLY_PAIRS);
	id->qp = &q->qp;
	id->pd = pd;
	id->send_cq = attr->send_cq;
	id->recv_cq = attr->recv_cq;
	return 0;
}

EXPORT void rdma_destroy_qp(struct rdma_cm_id *id)
{
	struct queue_pair *q = queue_pair_of(id->qp);
	struct cm_id *c = cm_id_of(id);

	if (!q)
		misuse("rdma_destroy_qp: the id has none");
	engine_lock();
	if (c->link)
		link_forget_queue(c->link);
	queue_pair_disconnect(q);
	id->qp = NULL;
	engine_unlock();
	tally_remove(TALLY_PAIRS);
	queue_pair_break(q);
	queue_pair_free(q);
	destroy_queues(id);
}
