/* SPDX-License-Identifier: Apache-2.0 */
#include "link.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "completion.h"
#include "host.h"
#include "misuse.h"
#include "order.h"
#include "plug.h"
#include "transfer.h"

static struct link *links;

/* A child that goes on with a socket of its parent would hide the parent's end from the peer. */
static void forget_parent(void)
{
	for (struct link *l = links; l; l = l->next)
		close(l->watch.fd);
	links = NULL;
}

__attribute__((constructor)) static void prepare_forks(void)
{
	pthread_atfork(NULL, NULL, forget_parent);
}

/* ---- sockets ---------------------------------------------------------------------------- */

/* An abstract name, or a path. */
static socklen_t name_address(struct sockaddr_un *a, const char *name)
{
	size_t n = strnlen(name, sizeof a->sun_path - 1), from = name[0] != '/';

	memset(a, 0, sizeof *a);
	a->sun_family = AF_UNIX;
	memcpy(a->sun_path + from, name, n);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

static int make_socket(void)
{
	return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* The socket of a process that has gone leaves its path behind. */
static void remove_stale_path(const struct sockaddr_un *a, socklen_t n)
{
	int fd = make_socket();

	if (fd >= 0 && connect(fd, (const struct sockaddr *)a, n) && errno == ECONNREFUSED)
		unlink(a->sun_path);
	if (fd >= 0)
		close(fd);
}

int link_bind(const char *name)
{
	struct sockaddr_un a;
	socklen_t n = name_address(&a, name);
	int fd = make_socket();

	if (name[0] == '/')
		remove_stale_path(&a, n);
	if (fd >= 0 && bind(fd, (struct sockaddr *)&a, n)) {
		int err = errno;

		close(fd);
		errno = err;
		return -1;
	}
	return fd;
}

static void close_all(const int *fds, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		close(fds[i]);
}

static void take_message(struct link *l, const struct message *m, int *fds, unsigned count)
{
	switch (m->kind) {
	case MESSAGE_REGION:
		if (remote_map_region(&l->remote, &m->region, fds, count))
			complain("map a peer's region: %s", strerror(errno));
		else if (l->q)
			transfer_continue(l->q);
		return;
	case MESSAGE_REGION_GONE:
		remote_unmap_region(&l->remote, m->region.key);
		return;
	case MESSAGE_REQ:
	case MESSAGE_REP:
		/* A repetition has nothing new. */
		if (l->remote.queue)
			close_all(fds, count);
		else if (remote_map_queue(&l->remote, fds, count))
			complain("map a peer's queue pair: %s", strerror(errno));
		break;
	default:
		break;
	}
	l->heard(l, m);
}

static void read_link(struct engine_watch *w)
{
	struct link *l = (struct link *)((char *)w - offsetof(struct link, watch));
	int fds[MESSAGE_FDS], rc;
	struct message m;
	unsigned count;

	if (plug_is_down(l->adapter, l->port)) {
		/* It comes when the port is up again, as if it had been repeated. */
		engine_unwatch(w);
		l->paused = true;
		return;
	}
	rc = message_receive(w->fd, &m, fds, &count);
	if (rc > 0 && order_is_silent()) {
		close_all(fds, count);
		return;
	}
	if (rc > 0) {
		take_message(l, &m, fds, count);
		return;
	}
	if (rc < 0 && errno == EAGAIN)
		return;
	engine_unwatch(w);
	if (!order_is_silent())
		l->ended(l);
}

void link_resume(const struct host_adapter *a, unsigned port)
{
	for (struct link *l = links; l; l = l->next)
		if (l->paused && l->adapter == a && l->port == port) {
			l->paused = false;
			engine_watch(&l->watch);
		}
}

/* After engine_poke(). */
static void check_queues(void)
{
	struct link *l = links, *next;

	for (; l; l = next) {
		next = l->next;
		if (l->q && l->broken && atomic_load(&l->q->area->state) == QUEUE_ERROR)
			l->broken(l);
	}
}

static struct link *new_link(int fd, const struct host_adapter *a, unsigned port)
{
	struct link *l = calloc(1, sizeof *l);

	if (!l) {
		close(fd);
		return NULL;
	}
	l->watch.fd = fd;
	l->watch.ready = read_link;
	l->adapter = a;
	l->port = port;
	remote_init(&l->remote);
	l->next = links;
	links = l;
	engine_on_poke(check_queues);
	return l;
}

int link_start(struct link *l)
{
	return engine_watch(&l->watch);
}

int link_dial(const char *name, const struct host_adapter *adapter, unsigned port,
	      struct link **out)
{
	struct sockaddr_un a;
	socklen_t n = name_address(&a, name);
	int fd = make_socket(), err;

	if (fd < 0)
		return -1;
	if (connect(fd, (struct sockaddr *)&a, n)) {
		err = errno;
		close(fd);
		errno = err;
		return -1;
	}
	*out = new_link(fd, adapter, port);
	return *out ? 0 : -1;
}

int link_accept(int fd, const struct host_adapter *a, unsigned port, struct link **out)
{
	int got = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (got < 0)
		return -1;
	*out = new_link(got, a, port);
	return *out ? 0 : -1;
}

void link_forget_queue(struct link *l)
{
	l->q = NULL;
}

void link_close(struct link *l)
{
	struct link **at = &links;

	if (!l)
		return;
	if (l->q)
		queue_pair_disconnect(l->q);
	while (*at && *at != l)
		at = &(*at)->next;
	if (*at)
		*at = l->next;
	engine_unwatch(&l->watch);
	/* The peer would not hear of it over a silent path, nor if the last message was lost. The
	 * end of TCP is repeated. */
	if (!order_is_silent() && !l->unheard &&
	    (l->adapter->p.iwarp || !plug_is_down(l->adapter, l->port)))
		close(l->watch.fd);
	remote_clear(&l->remote);
	pthread_mutex_destroy(&l->remote.lock);
	free(l);
}

void *link_find_owner(bool (*fits)(const void *owner, const void *arg), const void *arg)
{
	for (struct link *l = links; l; l = l->next)
		if (fits(l->owner, arg))
			return l->owner;
	return NULL;
}

void link_close_owned(const void *owner)
{
	struct link *l = links, *next;

	for (; l; l = next) {
		next = l->next;
		if (l->owner == owner)
			link_close(l);
	}
}

/* ---- sending ---------------------------------------------------------------------------- */

/* Returns true for a message of the connection manager that does not arrive. */
static bool is_lost(const struct link *l, const struct message *m)
{
	static const char *const kinds[] = {
		[MESSAGE_REQ] = "REQ", [MESSAGE_REP] = "REP",   [MESSAGE_RTU] = "RTU",
		[MESSAGE_REJ] = "REJ", [MESSAGE_DREQ] = "DREQ", [MESSAGE_DREP] = "DREP",
	};

	bool ours = m->kind == MESSAGE_REGION || m->kind == MESSAGE_REGION_GONE;

	/* TCP repeats what is lost. */
	if (plug_is_down(l->adapter, l->port) && !ours && !l->adapter->p.iwarp)
		return true;
	return order_is_silent() || (m->kind < sizeof kinds / sizeof *kinds && kinds[m->kind] &&
				     order_loss(kinds[m->kind]));
}

int link_send(struct link *l, const struct message *m)
{
	bool lost = is_lost(l, m);

	/* The peer believes that it is connected, for as long as it hears nothing else. */
	if (m->kind == MESSAGE_DREQ)
		l->unheard = lost;
	if (lost)
		return 0;
	return message_send(l->watch.fd, m, NULL, 0);
}

static void announce_region(const struct region *r, void *arg)
{
	struct message m = {.magic = MESSAGE_MAGIC, .kind = MESSAGE_REGION};
	int fds[SEGMENT_PIECES];
	struct link *l = arg;

	m.region.key = r->mr.lkey;
	m.region.addr = (uintptr_t)r->mr.addr;
	m.region.length = r->mr.length;
	m.region.first = (uintptr_t)r->first;
	m.region.pieces = (uint32_t)r->pieces;
	for (int i = 0; i < r->pieces; i++) {
		m.region.piece[i].offset = r->piece[i].offset;
		m.region.piece[i].bytes = r->piece[i].bytes;
		fds[i] = r->piece[i].fd;
	}
	message_send(l->watch.fd, &m, fds, (unsigned)r->pieces);
}

int link_send_queue(struct link *l, const struct message *m, struct queue_pair *q)
{
	struct completion *c = completion_of(q->qp.recv_cq);
	int channel = completion_channel_fd(c), fds[FD_CHANNEL + 1], table;

	if (!region_table(&table))
		return -1;
	l->q = q;
	if (is_lost(l, m))
		return 0;
	fds[FD_QUEUE] = q->area_fd;
	fds[FD_COMPLETIONS] = c->area_fd;
	fds[FD_REGIONS] = table;
	fds[FD_CHANNEL] = channel;
	if (message_send(l->watch.fd, m, fds, channel < 0 ? FD_CHANNEL : FD_CHANNEL + 1))
		return -1;
	region_each(q->area->pd, announce_region, l);
	return 0;
}

void link_region_added(const struct region *r)
{
	engine_lock();
	for (struct link *l = links; l; l = l->next)
		if (l->q && l->q->qp.pd == r->mr.pd)
			announce_region(r, l);
	engine_unlock();
}

void link_region_gone(const struct region *r)
{
	struct message m = {.magic = MESSAGE_MAGIC, .kind = MESSAGE_REGION_GONE};

	m.region.key = r->mr.lkey;
	engine_lock();
	for (struct link *l = links; l; l = l->next)
		if (l->q && l->q->qp.pd == r->mr.pd)
			link_send(l, &m);
	engine_unlock();
}
