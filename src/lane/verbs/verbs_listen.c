/* SPDX-License-Identifier: Apache-2.0 */

/* RDMA listeners and their callers, and the RDMA devices of this host. */

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/io.h"
#include "base/log.h"
#include "host/sysfs.h"
#include "lane/verbs/verbs_impl.h"

enum {
	PORT_TRIES = 32, /* if any port may be used: TCP may have the chosen one */
	BACKLOG = 128,
	REQUESTS_AT_ONCE = 64,
};

struct verbs_listener {
	struct rdma_event_channel *events;
	struct rdma_cm_id *id; /* NULL: its device was removed */
	union address at; /* with the port */
	unsigned tos;
	char where[80];
};

/* ---- devices of this host ----------------------------------------------------------- */

static const char sysfs_devices[] = "/sys/class/infiniband";
static const char cm_device[] = "/dev/infiniband/rdma_cm";

/* Whether a port of this device is active. */
static bool is_device_active(const char *device)
{
	struct dirent **ports;
	int count = sysfs_names(&ports, "%s/%s/ports", sysfs_devices, device);
	bool active = false;
	char state[32];

	for (int i = 0; i < count && !active; i++)
		active = sysfs_text(state, sizeof state, "%s/%s/ports/%s/state", sysfs_devices,
				    device, ports[i]->d_name) &&
			 strstr(state, "ACTIVE");
	sysfs_names_free(ports, count);
	return active;
}

static void count_devices(unsigned *devices, unsigned *active)
{
	struct dirent **names;
	int count = sysfs_names(&names, "%s", sysfs_devices);

	*devices = (unsigned)count;
	*active = 0;
	for (int i = 0; i < count; i++)
		*active += is_device_active(names[i]->d_name);
	sysfs_names_free(names, count);
}

bool verbs_present(char *why, size_t size)
{
	unsigned devices, active;
	bool present;
	int fd;

	if (verbs_is_reserved(&present, why, size))
		return present;
	count_devices(&devices, &active);
	if (!devices) {
		snprintf(why, size, "no RDMA device");
		return false;
	}
	/* librdmacm would print an error on stderr. */
	fd = RETRIED(open(cm_device, O_RDWR | O_CLOEXEC));
	if (fd < 0) {
		if (errno == ENOENT || errno == ENODEV || errno == ENXIO)
			snprintf(why, size, "kernel module rdma_ucm is not loaded");
		else
			snprintf(why, size, "open %s: %m", cm_device);
		return false;
	}
	close(fd);
	if (!active) {
		snprintf(why, size, "no active port on %s",
			 devices == 1 ? "the RDMA device" : "any RDMA device");
		return false;
	}
	if (size)
		why[0] = '\0';
	return true;
}

/* Callers take this for an address without an adapter. So the user learns here, once, why RDMA is
 * not used. */
static void warn_unknown(const char *call)
{
	static atomic_bool warned;

	if (!atomic_exchange(&warned, true))
		log_warn("find the RDMA device of an address: %s: %m", call);
}

static bool can_bind(struct rdma_cm_id *id, const union address *addr)
{
	union address a = address_with_port(addr, 0);

	if (rdma_bind_addr(id, &a.sa) == 0)
		return id->verbs != NULL;
	if (errno == ENOMEM)
		warn_unknown("bind an RDMA id");
	return false;
}

bool verbs_behind(const union address *addr)
{
	struct rdma_event_channel *events;
	struct rdma_cm_id *id;
	unsigned devices, active;
	bool behind = false, present;

	count_devices(&devices, &active);
	if (verbs_is_reserved(&present, NULL, 0) ? !present
						 : !active || access(cm_device, R_OK | W_OK))
		return false;
	events = verbs_channel_open();
	if (!events) {
		warn_unknown(cm_device);
		return false;
	}
	if (rdma_create_id(events, &id, NULL, RDMA_PS_TCP)) {
		warn_unknown("create an RDMA id");
	} else {
		behind = can_bind(id, addr);
		rdma_destroy_id(id);
	}
	verbs_channel_close(events);
	return behind;
}

/* ---- listening ---------------------------------------------------------------------- */

static unsigned port_of(const union address *a)
{
	return ntohs(a->sa.sa_family == AF_INET6 ? a->in6.sin6_port : a->in4.sin_port);
}

/* Tries one port. Returns 0, or -1 with errno. */
static int listen_once(struct verbs_listener *v, const union address *addr, unsigned tos,
		       unsigned port)
{
	union address a = address_with_port(addr, port);
	int err;

	if (rdma_create_id(v->events, &v->id, NULL, RDMA_PS_TCP)) {
		v->id = NULL;
		return -1;
	}
	errno = 0;
	if (verbs_set_tos(v->id, tos) || rdma_bind_addr(v->id, &a.sa) || !v->id->verbs ||
	    rdma_listen(v->id, BACKLOG)) {
		/* A loopback address can be bound, but belongs to no RDMA device. */
		err = errno ? errno : ENODEV;
		rdma_destroy_id(v->id);
		v->id = NULL;
		errno = err;
		return -1;
	}
	return 0;
}

/* A port is free only if both bind and listen succeed: on siw, bind succeeds even if TCP has the
 * port, and listen then fails. */
static int listen_somewhere(struct verbs_listener *v, const union address *addr, unsigned lo,
			    unsigned hi, unsigned tos)
{
	unsigned fixed = port_of(addr);
	int rc = -1;

	if (fixed)
		return listen_once(v, addr, tos, fixed);
	if (!lo) {
		for (unsigned i = 0; rc && i < PORT_TRIES; i++) {
			rc = listen_once(v, addr, tos, 0);
			if (rc && errno != EADDRINUSE)
				return -1;
		}
		return rc;
	}
	errno = EADDRINUSE;
	for (unsigned port = lo; rc && port <= hi && port <= 65535; port++) {
		rc = listen_once(v, addr, tos, port);
		if (rc && errno != EADDRINUSE)
			return -1;
	}
	return rc;
}

static int listen_failed(const struct verbs_listener *v, unsigned lo, unsigned hi)
{
	if (errno == ENODEV)
		return fail_as(OUT_TRANSPORT,
			       "listen for RDMA at %s: no RDMA device has that address", v->where);
	if (errno == EADDRINUSE && lo)
		return fail_as(OUT_SOCKET, "listen for RDMA at %s: no port from %u to %u is free",
			       v->where, lo, hi);
	return fail_as(OUT_SOCKET, "listen for RDMA at %s: %m", v->where);
}

int verbs_listen(const union address *addr, unsigned lo, unsigned hi, unsigned tos, unsigned *port,
		 struct verbs_listener **out)
{
	struct verbs_listener *v = calloc(1, sizeof *v);

	if (!v)
		return fail_as(OUT_MEMORY, "listen for RDMA: %m");
	address_text(addr, v->where, sizeof v->where);
	v->events = verbs_channel_open();
	if (!v->events || set_nonblocking(v->events->fd)) {
		fail_as(OUT_TRANSPORT, "listen for RDMA at %s: %s: %m", v->where, cm_device);
		goto failed;
	}
	if (listen_somewhere(v, addr, lo, hi, tos)) {
		listen_failed(v, lo, hi);
		goto failed;
	}
	*port = ntohs(rdma_get_src_port(v->id));
	v->at = address_with_port(addr, *port);
	v->tos = tos;
	*out = v;
	return 0;
failed:
	verbs_unlisten(v);
	return -1;
}

void verbs_unlisten(struct verbs_listener *v)
{
	if (!v)
		return;
	if (v->id)
		rdma_destroy_id(v->id);
	verbs_channel_close(v->events);
	free(v);
}

int verbs_listener_fd(const struct verbs_listener *v)
{
	return v->events->fd;
}

bool verbs_listener_is_lost(const struct verbs_listener *v)
{
	return !v->id;
}

bool verbs_relisten(struct verbs_listener *v)
{
	return listen_once(v, &v->at, v->tos, port_of(&v->at)) == 0;
}

/* ---- callers ------------------------------------------------------------------------ */

const struct lane_private *verbs_caller_request(const struct verbs_caller *c)
{
	return &c->request;
}

void verbs_caller_free(struct verbs_caller *c)
{
	if (!c)
		return;
	if (c->id)
		rdma_destroy_id(c->id);
	verbs_channel_close(c->events);
	free(c);
}

void verbs_refuse(struct verbs_caller *c)
{
	if (!c)
		return;
	rdma_reject(c->id, NULL, 0);
	verbs_caller_free(c);
}

/* The caller learns only that it was refused. Once, because strangers call, too. */
static void warn_of_caller(void)
{
	static atomic_bool warned;

	if (!atomic_exchange(&warned, true))
		log_warn("take an RDMA connection: %m");
}

/* Makes a caller of a connection request. If the request is NULL, not a lane's, rejects it and
 * returns NULL. */
static struct verbs_caller *make_caller(struct rdma_cm_id *id, const struct lane_private *request)
{
	struct verbs_caller *c = request ? calloc(1, sizeof *c) : NULL;

	if (!c) {
		if (request)
			warn_of_caller();
		rdma_reject(id, NULL, 0);
		rdma_destroy_id(id);
		return NULL;
	}
	c->id = id;
	c->request = *request;
	c->events = verbs_channel_open();
	/* Migrate here, not in the lane's thread: during the migration no other thread may read
	 * the listener's channel. */
	if (!c->events || set_nonblocking(c->events->fd) || rdma_migrate_id(id, c->events)) {
		warn_of_caller();
		verbs_refuse(c);
		return NULL;
	}
	return c;
}

int verbs_next_caller(struct verbs_listener *v, struct verbs_caller **out)
{
	struct rdma_cm_event *e;
	struct lane_private request;

	*out = NULL;
	for (unsigned i = 0; i < REQUESTS_AT_ONCE && !*out; i++) {
		const struct rdma_conn_param *param;
		struct rdma_cm_id *id;
		enum rdma_cm_event_type what;
		bool decoded;

		if (rdma_get_cm_event(v->events, &e)) {
			if (errno == EAGAIN || errno == EINTR)
				return 0;
			return fail_as(OUT_SOCKET, "listen for RDMA at %s: %m", v->where);
		}
		what = e->event;
		id = e->id;
		param = &e->param.conn;
		decoded = what == RDMA_CM_EVENT_CONNECT_REQUEST &&
			  !lane_private_decode(param->private_data, param->private_data_len,
					       &request);
		rdma_ack_cm_event(e);
		if (what == RDMA_CM_EVENT_DEVICE_REMOVAL && id == v->id) {
			/* rdma_get_cm_event(3): "The user must destroy the related rdma_cm_id." */
			rdma_destroy_id(v->id);
			v->id = NULL;
			return fail_as(OUT_TRANSPORT,
				       "listen for RDMA at %s: the device was removed", v->where);
		}
		if (what == RDMA_CM_EVENT_CONNECT_REQUEST)
			*out = make_caller(id, decoded ? &request : NULL);
	}
	return 0;
}
