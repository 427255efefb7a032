/* SPDX-License-Identifier: Apache-2.0 */
#include "session/porter_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fail.h"
#include "base/io.h"
#include "base/log.h"

enum {
	ACCEPTS_AT_ONCE = 64, /* of one listener, then look after those who are in */
	PORT_TRIES = 64, /* where any free port will do */
	LOOK_UP_MS = 250, /* a signal may come just before a wait */
	HANDSHAKE_SLOW_MS = 1000, /* who takes longer makes room for others who want to talk */
	CLIENT_HELLO = 0x16, /* a TLS record's first byte */
};

/* ---- life ------------------------------------------------------------------------------ */

int porter_new(struct porter **out)
{
	struct porter *p = calloc(1, sizeof *p);

	if (!p)
		return fail_as(OUT_MEMORY, "make a porter: %m");
	p->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (p->stop < 0) {
		fail_as(OUT_MEMORY, "make a porter: %m");
		free(p);
		return -1;
	}
	for (unsigned i = 0; i < LANE_COUNT_MAX; i++)
		p->berths[i] = (struct berth){.ready = -1, .caller = {.fd = -1}};
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
	strangers_leave(p);
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

/* Bind wanted[from..] to this port, 0: to any that the first one gets. */
static int bind_from(struct porter *p, unsigned from, unsigned port)
{
	for (unsigned i = from; i < p->wanted_count; i++) {
		unsigned got;
		int fd = tcp_listen(&p->wanted[i], port, port, &got);

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
	return fail_as(failed()->code, "no TCP port of %u to %u is free: %s", lo, hi,
		       failed()->text);
}

static bool have_ipv6(void)
{
	int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

	close_fd(fd);
	return fd >= 0;
}

/* Remember to listen at addr, everywhere when it is NULL; how many places were added. */
static unsigned want(struct porter *p, const union address *addr)
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
	if (have_ipv6())
		p->wanted[p->wanted_count++] = (union address){
			.in6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT}};
	return p->wanted_count - before;
}

int porter_listen_tcp(struct porter *p, const union address *addr, unsigned lo, unsigned hi)
{
	unsigned added = want(p, addr);

	if (added == 0)
		return fail_as(OUT_SOCKET, "listen at more than %d addresses", LISTENERS_MAX);
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
	if (verbs_listen(addr, lo, hi, port, &p->rdma[p->rdma_count]) < 0)
		return -1;
	if (p->rdma_count++ == 0)
		p->rdma_port = *port;
	return 0;
}

unsigned porter_tcp_port(const struct porter *p)
{
	return p->tcp_port;
}

unsigned porter_rdma_port(const struct porter *p)
{
	return p->rdma_port;
}

/* ---- strangers --------------------------------------------------------------------------- */

void stranger_leave(struct porter *p, unsigned i)
{
	struct stranger *s = &p->strangers[i];

	if (s->tls)
		channel_free(s->tls);
	else
		close_fd(s->fd);
	p->count--;
	memmove(s, s + 1, (p->count - i) * sizeof *s);
}

void strangers_leave(struct porter *p)
{
	while (p->count > 0)
		stranger_leave(p, p->count - 1);
}

/* The oldest who has said nothing leaves; false when there is none. */
static bool silent_one_leaves(struct porter *p)
{
	for (unsigned i = 0; i < p->count; i++)
		if (!p->strangers[i].spoke) {
			stranger_leave(p, i);
			return true;
		}
	return false;
}

/* Somebody has to leave for a newcomer; who has said something goes last. */
static void make_room(struct porter *p)
{
	if (p->count == STRANGERS_MAX && !silent_one_leaves(p))
		stranger_leave(p, 0);
}

static bool out_of_descriptors(int err)
{
	return err == EMFILE || err == ENFILE || err == ENOBUFS || err == ENOMEM;
}

static void accept_from(struct porter *p, int listener)
{
	for (unsigned i = 0; i < ACCEPTS_AT_ONCE; i++) {
		int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0) {
			make_room(p);
			p->strangers[p->count++] = (struct stranger){.fd = fd, .since = clock_ms()};
		} else if (errno == EAGAIN) {
			return;
		} else if (out_of_descriptors(errno) && !silent_one_leaves(p)) {
			p->accept_after = clock_ms() + ACCEPT_PAUSE_MS;
			return;
		}
	}
}

void porter_accept(struct porter *p)
{
	for (unsigned i = 0; i < p->tcp_count && clock_ms() >= p->accept_after; i++)
		accept_from(p, p->tcp[i]);
}

unsigned porter_poll_listeners(struct porter *p, struct pollfd *set, unsigned n)
{
	for (unsigned i = 0; i < p->tcp_count && clock_ms() >= p->accept_after; i++)
		set[n++] = (struct pollfd){.fd = p->tcp[i], .events = POLLIN};
	return n;
}

uint64_t strangers_due(const struct porter *p, uint64_t patience_ms)
{
	return p->count ? p->strangers[0].since + patience_ms : 0;
}

void strangers_expire(struct porter *p)
{
	while (p->count > 0 && clock_left(strangers_due(p, HANDSHAKE_MS)) == 0)
		stranger_leave(p, 0);
}

/* ---- admitting a peer --------------------------------------------------------------------- */

static const char *stranger_text(int fd, char *to, size_t size)
{
	union address a = {.sa = {.sa_family = AF_UNSPEC}};
	socklen_t len = sizeof a;

	if (getpeername(fd, &a.sa, &len) < 0)
		a.sa.sa_family = AF_UNSPEC;
	return address_text(&a, to, size);
}

static unsigned handshakes(const struct porter *p)
{
	unsigned n = 0;

	for (unsigned i = 0; i < p->count; i++)
		n += p->strangers[i].tls != NULL;
	return n;
}

static bool somebody_waits(const struct porter *p)
{
	for (unsigned i = 0; i < p->count; i++)
		if (p->strangers[i].spoke && !p->strangers[i].tls)
			return true;
	return false;
}

/* When all places at the desk are taken, those who have been there for long make room. */
static void slow_ones_leave(struct porter *p)
{
	if (handshakes(p) < HANDSHAKES_MAX || !somebody_waits(p))
		return;
	for (unsigned i = p->count; i-- > 0;)
		if (p->strangers[i].tls && clock_left(p->strangers[i].sat + HANDSHAKE_SLOW_MS) == 0)
			stranger_leave(p, i);
}

/* Look at what a stranger opens with, without taking it.  False when it has to leave. */
static bool listen_to(struct stranger *s)
{
	uint8_t first;
	ssize_t n = recv(s->fd, &first, 1, MSG_PEEK | MSG_DONTWAIT);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	s->spoke = true;
	return n == 1 && first == CLIENT_HELLO;
}

/* A step of the handshake: 1 done, 0 not yet, -1 it has to leave. */
static int shake_hands(struct stranger *s)
{
	char who[80];
	int rc = channel_handshake(s->tls);

	if (rc >= 0)
		return rc;
	stranger_text(s->fd, who, sizeof who);
	if (failed()->code == OUT_AUTH)
		log_info("%s has another key: %s", who, failed()->text);
	else
		log_debug("%s did not finish its handshake: %s", who, failed()->text);
	return -1;
}

static int sit_down(struct stranger *s, const struct psk *key)
{
	char who[80];
	int fd = s->fd;

	stranger_text(fd, who, sizeof who);
	if (channel_tls_server(fd, key, &s->tls) < 0) {
		s->fd = -1;
		s->tls = NULL;
		return -1;
	}
	channel_set_peer(s->tls, who);
	s->sat = clock_ms();
	return 0;
}

/* Get on with the stranger at i: 1 it is the peer, 0 not yet, -1 it has to leave.  A stranger
 * that is asked to wait for a place stays readable and must not be polled. */
static int get_on(struct porter *p, unsigned i, const struct psk *key, const struct pollfd *set)
{
	struct stranger *s = &p->strangers[i];

	if (!s->spoke && s->polled && set[s->polled].revents && !listen_to(s))
		return -1;
	if (!s->spoke)
		return 0;
	if (!s->tls && handshakes(p) >= HANDSHAKES_MAX)
		return 0;
	if (!s->tls && sit_down(s, key) < 0)
		return -1;
	return shake_hands(s);
}

static unsigned poll_strangers(struct porter *p, struct pollfd *set, unsigned n)
{
	for (unsigned i = 0; i < p->count; i++) {
		struct stranger *s = &p->strangers[i];

		s->polled = 0;
		if (s->tls) {
			n += (unsigned)channel_polls(s->tls, false, set + n);
		} else if (!s->spoke) {
			s->polled = n;
			set[n++] = (struct pollfd){.fd = s->fd, .events = POLLIN};
		}
	}
	return n;
}

/* One round with all strangers, the newest first: who came last has not yet shown that it is
 * slow.  True when one of them is the peer. */
static bool welcome(struct porter *p, const struct psk *key, const struct pollfd *set,
		    struct channel **out)
{
	slow_ones_leave(p);
	for (unsigned i = p->count; i-- > 0;) {
		int rc = get_on(p, i, key, set);

		if (rc > 0) {
			*out = p->strangers[i].tls;
			p->strangers[i].tls = NULL;
			p->strangers[i].fd = -1;
			return true;
		}
		if (rc < 0)
			stranger_leave(p, i);
	}
	return false;
}

int porter_admit(struct porter *p, const struct psk *key, uint64_t deadline_ms,
		 struct channel **out)
{
	/* The first entry is nobody's, so that 0 can mean "not polled". */
	struct pollfd set[1 + LISTENERS_MAX + 2 * STRANGERS_MAX] = {{.fd = -1}};

	for (;;) {
		int ms = LOOK_UP_MS;
		unsigned n;

		if (cancelled())
			return fail_as(OUT_SIGNAL, "interrupted by signal %d", cancelled());
		if (deadline_ms && clock_left(deadline_ms) == 0)
			return fail_as(OUT_CONNECT, "nobody with the key came to TCP port %u",
				       p->tcp_port);
		if (deadline_ms && clock_left(deadline_ms) < ms)
			ms = clock_left(deadline_ms);
		n = poll_strangers(p, set, porter_poll_listeners(p, set, 1));
		if (poll(set, n, ms) < 0 && errno != EINTR)
			return fail_as(OUT_SOCKET, "wait for a peer: %m");
		strangers_expire(p);
		if (welcome(p, key, set, out)) {
			strangers_leave(p);
			return 0;
		}
		porter_accept(p);
	}
}
