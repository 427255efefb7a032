/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Asynchronous events of adapters: what breaks a wire without a completion.
 *
 * librdmacm opens each device once per process, so all wires on it share one descriptor of events
 * (async_fd). Every wire polls it. The first one that finds it readable takes all events, passes
 * each to the wires that it concerns, and wakes them. It acknowledges each event before it takes
 * the next: destroying a queue pair or a completion queue waits for that.
 */

#include <errno.h>
#include <pthread.h>
#include "base/io.h"
#include "base/log.h"
#include "lane/verbs/verbs_impl.h"

/* Protects the list of wires and their async_next. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct verbs *wires;

/* ---- events --------------------------------------------------------------------------- */

/* Whether the event breaks this wire, which is on its device. */
static bool concerns_wire(const struct verbs *v, const struct ibv_async_event *e)
{
	switch (e->event_type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
		return v->has_qp && e->element.qp == v->id->qp;
	case IBV_EVENT_CQ_ERR:
		return e->element.cq == v->cq;
	case IBV_EVENT_PORT_ERR:
		return e->element.port_num == v->id->port_num;
	case IBV_EVENT_DEVICE_FATAL:
		return true;
	default:
		/* Changes of addresses and keys, hints, and a port that is active again: if a
		 * connection does not survive them, its completions show it. */
		return false;
	}
}

static void pass_event(const struct ibv_context *device, const struct ibv_async_event *e)
{
	for (struct verbs *v = wires; v; v = v->async_next) {
		if (v->id->verbs != device || !concerns_wire(v, e))
			continue;
		/* The first one is the cause. */
		if (atomic_load(&v->struck))
			continue;
		atomic_store(&v->struck, 1 + (int)e->event_type);
		raise_event(v->wake);
	}
}

/* Takes one event and passes it on. Returns false if there is none; else what it is. */
static bool take_async_event(struct ibv_context *device, enum ibv_event_type *what)
{
	struct ibv_async_event e;
	bool took;

	pthread_mutex_lock(&lock);
	took = !ibv_get_async_event(device, &e);
	if (took) {
		pass_event(device, &e);
		ibv_ack_async_event(&e);
		*what = e.event_type;
	} else if (errno != EAGAIN && errno != EINTR) {
		/* The device was removed, and there are no events any more. */
		e = (struct ibv_async_event){.event_type = IBV_EVENT_DEVICE_FATAL};
		pass_event(device, &e);
	}
	pthread_mutex_unlock(&lock);
	return took;
}

/* Not under the lock: a line of the log may wait. */
static void take_async_events(struct ibv_context *device)
{
	enum ibv_event_type what;

	while (take_async_event(device, &what))
		log_debug("%s: %s", ibv_get_device_name(device->device), ibv_event_type_str(what));
}

void verbs_async_read(struct verbs *v)
{
	take_async_events(v->id->verbs);
}

/* ---- wires ---------------------------------------------------------------------------- */

int verbs_async_join(struct verbs *v)
{
	int fd = v->id->verbs->async_fd;

	/* Several wires may read it at the same time, and one of them finds nothing. */
	if (set_nonblocking(fd))
		return verbs_fail(v, OUT_TRANSPORT, "make the events of %s non-blocking: %m",
				  ibv_get_device_name(v->id->verbs->device));
	/* Nobody may have read events for long. Those of the past do not concern this wire. */
	take_async_events(v->id->verbs);
	pthread_mutex_lock(&lock);
	v->async_fd = fd;
	v->async_next = wires;
	wires = v;
	pthread_mutex_unlock(&lock);
	return 0;
}

void verbs_async_leave(struct verbs *v)
{
	struct verbs **at = &wires;

	if (v->async_fd < 0)
		return;
	pthread_mutex_lock(&lock);
	while (*at != v)
		at = &(*at)->async_next;
	*at = v->async_next;
	pthread_mutex_unlock(&lock);
	v->async_fd = -1;
}

/* ---- failures ------------------------------------------------------------------------- */

int verbs_async_failed(struct verbs *v)
{
	enum ibv_event_type what = (enum ibv_event_type)(atomic_load(&v->struck) - 1);
	const char *device = ibv_get_device_name(v->id->verbs->device);

	switch (what) {
	case IBV_EVENT_PORT_ERR:
		return verbs_fail(v, OUT_PEER_LOST, "%s: the port %s/%u went down", v->wire.name,
				  device, v->id->port_num);
	case IBV_EVENT_DEVICE_FATAL:
		return verbs_fail(v, OUT_PEER_LOST, "%s: the device %s failed or was removed",
				  v->wire.name, device);
	case IBV_EVENT_CQ_ERR:
		return verbs_fail(v, OUT_PEER_LOST, "%s: the completion queue failed",
				  v->wire.name);
	default:
		return verbs_fail(v, OUT_PEER_LOST, "%s: queue pair 0x%x failed: %s", v->wire.name,
				  v->id->qp->qp_num, ibv_event_type_str(what));
	}
}
