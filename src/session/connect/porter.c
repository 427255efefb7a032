/* SPDX-License-Identifier: Apache-2.0 */
#include "lane/tcp/tcp_connect.h"
#include "session/connect/porter_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fail.h"
#include "base/fd_pass.h"
#include "base/io.h"
#include "base/log.h"
#include "base/secret.h"

enum {
	PORT_TRIES = 64, /* if any free port may be used */
	SIGNAL_CHECK_MS = 250, /* a signal that arrives just before a wait does not end it */
};

/* ---- life ------------------------------------------------------------------------------ */

int porter_new(unsigned tos, struct porter **out)
{
	struct porter *p = calloc(1, sizeof *p);

	if (!p)
		return fail_as(OUT_MEMORY, "set up listeners: %m");
	secret_guard(&p->terms, sizeof p->terms);
	p->tos = tos;
	p->door = -1;
	p->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (p->stop < 0) {
		fail_as(OUT_MEMORY, "set up listeners: %m");
		free(p);
		return -1;
	}
	for (unsigned i = 0; i < LANE_COUNT_MAX; i++)
		p->berths[i] = (struct berth){.ready = -1, .caller = {.fd = -1}};
	strangers_init(&p->strangers, STRANGERS_OF_ONE);
	pthread_mutex_init(&p->lock, NULL);
	*out = p;
	return 0;
}

static void unlisten_tcp(struct porter *p)
{
	while (p->tcp_count > 0)
		close_fd(p->tcp[--p->tcp_count]);
	p->tcp_port = 0;
}

void porter_free(struct porter *p)
{
	if (!p)
		return;
	if (p->worker.running) {
		raise_event(p->stop);
		worker_join(&p->worker);
	}
	strangers_close(&p->strangers);
	unlisten_tcp(p);
	while (p->rdma_count > 0)
		verbs_unlisten(p->rdma[--p->rdma_count]);
	for (unsigned i = 0; i < LANE_COUNT_MAX; i++) {
		caller_drop(&p->berths[i].caller);
		close_fd(p->berths[i].ready);
	}
	close_fd(p->stop);
	pthread_mutex_destroy(&p->lock);
	explicit_bzero(&p->terms, sizeof p->terms);
	free(p);
}

/* ---- listeners ------------------------------------------------------------------------- */

/* Binds wanted[from..] to this port; 0: to the port that the first one gets. */
static int bind_from(struct porter *p, unsigned from, unsigned port)
{
	for (unsigned i = from; i < p->wanted_count; i++) {
		unsigned got;
		int fd = tcp_listen(&p->wanted[i], port, port, p->tos, &got);

		if (fd < 0) {
			while (p->tcp_count > from)
				close_fd(p->tcp[--p->tcp_count]);
			return -1;
		}
		p->tcp[p->tcp_count++] = fd;
		port = got;
	}
	p->tcp_port = port;
	return 0;
}

static int bind_somewhere(struct porter *p, unsigned lo, unsigned hi)
{
	unsigned tries = lo ? hi - lo + 1 : PORT_TRIES;

	for (unsigned i = 0; i < tries; i++)
		if (bind_from(p, 0, lo ? lo + i : 0) == 0)
			return 0;
	if (lo == hi)
		return -1;
	return fail_as(failed()->code, "no TCP port from %u to %u is free: %s", lo, hi,
		       failed()->text);
}

static bool has_ipv6(void)
{
	int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

	close_fd(fd);
	return fd >= 0;
}

/* Adds addr, or all addresses if it is NULL, to those to listen at. Returns how many were added. */
static unsigned add_wanted_address(struct porter *p, const union address *addr)
{
	unsigned before = p->wanted_count;

	if (addr) {
		if (before < LISTENERS_MAX)
			p->wanted[p->wanted_count++] = *addr;
		return p->wanted_count - before;
	}
	if (before + 2 > LISTENERS_MAX)
		return 0;
	p->wanted[p->wanted_count++] =
		(union address){.in4 = {.sin_family = AF_INET, .sin_addr = {INADDR_ANY}}};
	if (has_ipv6())
		p->wanted[p->wanted_count++] = (union address){
			.in6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT}};
	return p->wanted_count - before;
}

int porter_listen_tcp(struct porter *p, const union address *addr, unsigned lo, unsigned hi)
{
	unsigned added = add_wanted_address(p, addr);

	if (added == 0)
		return fail_as(OUT_SOCKET, "listen: more than %d addresses", LISTENERS_MAX);
	if (p->tcp_count > 0 && bind_from(p, p->wanted_count - added, p->tcp_port) == 0)
		return 0;
	unlisten_tcp(p);
	return bind_somewhere(p, lo, hi);
}

int porter_listen_rdma(struct porter *p, const union address *addr, unsigned lo, unsigned hi,
		       unsigned *port)
{
	if (p->rdma_count == OFFER_MAX)
		return fail_as(OUT_TRANSPORT, "listen for RDMA at more than %d addresses",
			       OFFER_MAX);
	if (verbs_listen(addr, lo, hi, p->tos, port, &p->rdma[p->rdma_count]) < 0)
		return -1;
	p->rdma_at[p->rdma_count] = address_with_port(addr, *port);
	if (p->rdma_count++ == 0)
		p->rdma_port = *port;
	return 0;
}

void porter_use_door(struct porter *p, int door, unsigned port)
{
	p->door = door;
	p->tcp_port = port;
}

unsigned porter_tcp_port(const struct porter *p)
{
	return p->tcp_port;
}

unsigned porter_rdma_port(const struct porter *p)
{
	return p->rdma_port;
}

/* Takes the lanes that came through the door. */
static void accept_at_door(struct porter *p)
{
	while (p->door >= 0) {
		union address from = {.sa = {.sa_family = AF_UNSPEC}};
		socklen_t len = sizeof from;
		uint8_t byte;
		int fd;
		ssize_t n = fd_receive(p->door, &byte, 1, &fd, MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0) {
			fail_as(OUT_SOCKET, "no more lanes are accepted: %s",
				n < 0 ? strerror(errno) : "rdcpd is gone");
			p->door_lost = *failed();
			p->door = -1;
			/* The session goes on with lanes over RDMA. */
			if (p->rdma_count > 0)
				log_warn("%s", failed()->text);
		} else if (fd >= 0) {
			(void)getpeername(fd, &from.sa, &len);
			strangers_add(&p->strangers, fd, &from);
		} else {
			strangers_lost(&p->strangers, errno);
		}
	}
}

void porter_accept(struct porter *p)
{
	accept_at_door(p);
	for (unsigned i = 0; i < p->tcp_count && strangers_accepting(&p->strangers); i++)
		strangers_accept(&p->strangers, p->tcp[i]);
}

unsigned porter_poll_listeners(struct porter *p, struct pollfd *set, unsigned n)
{
	for (unsigned i = 0; i < p->tcp_count && strangers_accepting(&p->strangers); i++)
		set[n++] = (struct pollfd){.fd = p->tcp[i], .events = POLLIN};
	if (p->door >= 0)
		set[n++] = (struct pollfd){.fd = p->door, .events = POLLIN};
	return n;
}

/* ---- admitting a peer --------------------------------------------------------------------- */

/* Without memory this end turns away its peer, too: its user must learn why. */
static void warn_of_no_memory(struct strangers *all)
{
	if (failed()->code != OUT_MEMORY || all->warned)
		return;
	log_warn("accept a connection: %s", failed()->text);
	all->warned = true;
}

/* One step of the handshake. Returns 1 when done, 0 when not yet done, -1 to close the stranger. */
static int advance_handshake(struct stranger *s)
{
	char from[80];
	int rc = channel_handshake(s->tls);

	if (rc >= 0)
		return rc;
	stranger_text(s, from, sizeof from);
	if (failed()->code == OUT_AUTH)
		log_info("rejected %s, which has a different key: %s", from, failed()->text);
	else
		log_debug("%s did not complete its handshake: %s", from, failed()->text);
	return -1;
}

static int begin_tls(struct stranger *s, const struct psk *key)
{
	char from[80];
	int fd = s->fd;

	stranger_text(s, from, sizeof from);
	if (channel_tls_server(fd, key, &s->tls) < 0) {
		s->fd = -1;
		s->tls = NULL;
		return -1;
	}
	channel_set_peer(s->tls, from);
	return 0;
}

/* Processes what a stranger sent. Returns 1 if it is the peer, 0 if that is not known yet, -1 to
 * close it. */
static int advance_stranger(struct strangers *all, unsigned i, const struct psk *key)
{
	struct stranger *s = &all->list[i];
	int rc;

	if (!s->tls) {
		rc = stranger_hello(all, i);
		if (rc <= 0)
			return rc;
		if (begin_tls(s, key) < 0) {
			warn_of_no_memory(all);
			return -1;
		}
	}
	rc = advance_handshake(s);
	if (rc < 0)
		warn_of_no_memory(all);
	return rc;
}

static unsigned poll_strangers(struct porter *p, struct pollfd *set, unsigned n)
{
	for (unsigned i = 0; i < p->strangers.count; i++) {
		struct stranger *s = &p->strangers.list[i];

		s->polled = n;
		if (s->tls)
			n += (unsigned)channel_polls(s->tls, false, set + n);
		else
			set[n++] = (struct pollfd){.fd = s->fd, .events = POLLIN | POLLRDHUP};
	}
	return n;
}

/* One round over all strangers. Returns true if one of them is the peer. */
static bool admit_stranger(struct porter *p, const struct psk *key, const struct pollfd *set,
			   struct channel **out)
{
	struct strangers *all = &p->strangers;

	for (unsigned i = all->count; i-- > 0;) {
		struct stranger *s = &all->list[i];
		int rc = s->polled && set[s->polled].revents ? advance_stranger(all, i, key) : 0;

		if (rc > 0) {
			*out = s->tls;
			stranger_release(all, i);
			return true;
		}
		if (rc < 0)
			stranger_close(all, i);
	}
	return false;
}

int porter_admit(struct porter *p, const struct psk *key, uint64_t deadline_ms,
		 struct channel **out)
{
	/* The first entry stays unused, so that index 0 means "not polled". */
	struct pollfd set[1 + LISTENERS_MAX + 2 * STRANGERS_MAX] = {{.fd = -1}};

	for (;;) {
		int ms = SIGNAL_CHECK_MS;
		unsigned n;

		if (cancelled())
			return fail_signal(cancelled());
		if (deadline_ms && clock_left(deadline_ms) == 0)
			return fail_as(OUT_CONNECT,
				       "no peer with the right key connected to TCP port %u",
				       p->tcp_port);
		if (deadline_ms && clock_left(deadline_ms) < ms)
			ms = clock_left(deadline_ms);
		n = poll_strangers(p, set, porter_poll_listeners(p, set, 1));
		if (poll(set, n, ms) < 0 && errno != EINTR)
			return fail_as(OUT_SOCKET, "wait for a peer: %m");
		if (admit_stranger(p, key, set, out)) {
			strangers_close(&p->strangers);
			p->admitted = true;
			return 0;
		}
		strangers_expire(&p->strangers);
		porter_accept(p);
	}
}
