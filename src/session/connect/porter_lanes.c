/* SPDX-License-Identifier: Apache-2.0 */
#include "session/connect/porter_impl.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fail.h"
#include "base/io.h"
#include "base/log.h"

enum { REQUESTS_AT_ONCE = 64, RELISTEN_MS = 500, POLL_TRIES = 10, POLL_PAUSE_MS = 10 };

void caller_drop(struct caller *c)
{
	close_fd(c->fd);
	c->fd = -1;
	if (c->verbs)
		verbs_refuse(c->verbs);
	c->verbs = NULL;
}

/* ---- berths ------------------------------------------------------------------------------ */

/* Keeps a verified caller for its lane. Drops a caller whose epoch is not newer than all before: it
 * is a replay, or an attempt that the peer has given up. */
static void keep_caller(struct porter *p, unsigned lane, struct caller *c)
{
	struct berth *b = &p->berths[lane];
	struct caller out = *c;

	pthread_mutex_lock(&p->lock);
	if (c->epoch >= b->next) {
		out = b->caller;
		b->caller = *c;
		b->kept = true;
		b->next = c->epoch + 1;
		p->lacked = 0;
		raise_event(b->ready);
	} else {
		log_debug("rejected a connection for lane %u: epoch %u is no longer valid", lane,
			  c->epoch);
	}
	pthread_mutex_unlock(&p->lock);
	caller_drop(&out);
}

/* What the strangers lacked is of their thread. */
static void keep_shortage(struct porter *p)
{
	if (!p->strangers.lacked)
		return;
	pthread_mutex_lock(&p->lock);
	p->lacked = p->strangers.lacked;
	p->lacked_ms = p->strangers.lacked_ms;
	pthread_mutex_unlock(&p->lock);
	p->strangers.lacked = 0;
}

int porter_lacked(struct porter *p, uint64_t since_ms)
{
	int err;

	pthread_mutex_lock(&p->lock);
	err = p->lacked_ms >= since_ms ? p->lacked : 0;
	pthread_mutex_unlock(&p->lock);
	return err;
}

/* Takes the caller that is kept for a lane, if it has at least this epoch; drops an older one. */
static bool take_kept_caller(struct porter *p, unsigned lane, uint32_t epoch, struct caller *out)
{
	struct berth *b = &p->berths[lane];
	struct caller outdated = {.fd = -1};
	bool found = false;
	uint64_t events;

	pthread_mutex_lock(&p->lock);
	if (read(b->ready, &events, sizeof events) < 0 && errno != EAGAIN)
		log_debug("read the event of lane %u: %m", lane);
	if (b->kept) {
		found = b->caller.epoch >= epoch;
		*(found ? out : &outdated) = b->caller;
		b->caller = (struct caller){.fd = -1};
		b->kept = false;
	}
	if (b->next < epoch)
		b->next = epoch;
	pthread_mutex_unlock(&p->lock);
	caller_drop(&outdated);
	return found;
}

/* The thread can accept no more callers, for the reason in failed(). */
static void break_porter(struct porter *p)
{
	pthread_mutex_lock(&p->lock);
	p->broken = *failed();
	for (unsigned i = 0; i < p->terms.lanes; i++)
		raise_event(p->berths[i].ready);
	pthread_mutex_unlock(&p->lock);
}

/* Fails if no caller can come any more. */
static int check_thread(struct porter *p)
{
	struct failure f;

	pthread_mutex_lock(&p->lock);
	f = p->broken;
	pthread_mutex_unlock(&p->lock);
	return f.code == OUT_DONE ? 0 : fail_again(&f);
}

int porter_wait(struct porter *p, unsigned lane, uint32_t epoch, int wake_fd, uint64_t deadline_ms,
		struct caller *out)
{
	while (!take_kept_caller(p, lane, epoch, out)) {
		struct pollfd set[2] = {
			{.fd = p->berths[lane].ready, .events = POLLIN},
			{.fd = wake_fd, .events = POLLIN},
		};

		if (check_thread(p))
			return -1;
		if (deadline_ms && clock_left(deadline_ms) == 0)
			return fail_as(OUT_CONNECT, "no connection for lane %u in time", lane);
		if (poll(set, 2, deadline_ms ? clock_left(deadline_ms) : -1) < 0 && errno != EINTR)
			return fail_as(OUT_SOCKET, "wait for lane %u: %m", lane);
		if (set[1].revents)
			return 1;
	}
	return 0;
}

/* ---- callers ----------------------------------------------------------------------------- */

/* UINT32_MAX is no valid epoch: no next one could follow it. */
static bool fits_terms(const struct porter *p, unsigned lane, uint32_t epoch, uint32_t depth,
		       uint32_t block_size)
{
	return lane < p->terms.lanes && epoch < UINT32_MAX && depth <= p->terms.depth &&
	       block_size == p->terms.block_size;
}

/* Checks a stranger's LANE_HELLO, which is complete, and keeps a caller of this session. */
static void check_tcp_caller(struct porter *p, struct stranger *s)
{
	struct lane_hello h;
	struct caller c = {.fd = s->fd};

	if (lane_hello_decode(s->received, &h) < 0 || lane_hello_verify(&h, &p->terms.key) < 0) {
		/* Without memory this end rejects its peer, too. */
		log_at(p->tcp_rejected                ? LOG_DEBUG
		       : failed()->code == OUT_MEMORY ? LOG_WARN
						      : LOG_INFO,
		       "rejected an unauthenticated connection on TCP port %u: %s", p->tcp_port,
		       failed()->text);
		p->tcp_rejected = true;
		return;
	}
	if (h.accepting || h.from != p->terms.peer || h.session != p->terms.key.session ||
	    !fits_terms(p, h.lane, h.epoch, h.depth, h.block_size)) {
		log_info(
			"rejected a connection for lane %u: its role, session, lane, epoch or sizes do "
			"not match",
			h.lane);
		return;
	}
	c.epoch = h.epoch;
	c.terms = (struct hello_terms){h.depth, h.seals};
	s->fd = -1;
	keep_caller(p, h.lane, &c);
}

/* Reads what a stranger sent. Returns false if the stranger must be closed. */
static bool read_stranger(struct porter *p, struct stranger *s)
{
	ssize_t n =
		recv(s->fd, s->received + s->received_len, sizeof s->received - s->received_len, 0);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	s->received_len += (size_t)n;
	if (p->admitted && n > 0 && s->received[0] == TLS_HANDSHAKE) {
		stranger_refuse(s);
		return false;
	}
	if (s->received_len == sizeof s->received)
		check_tcp_caller(p, s);
	return n > 0 && s->received_len < sizeof s->received;
}

static void read_all_strangers(struct porter *p, const struct pollfd *set)
{
	for (unsigned i = 0; i < p->strangers.count;) {
		struct stranger *s = &p->strangers.list[i];

		if (s->polled && set[s->polled].revents && !read_stranger(p, s))
			stranger_close(&p->strangers, i);
		else
			i++;
	}
}

static bool is_token_right(const struct porter *p, const struct lane_private *request)
{
	uint8_t right[LANE_TOKEN];

	lane_token(&p->terms.key, request->lane, request->epoch, right);
	return CRYPTO_memcmp(right, request->token, sizeof right) == 0;
}

static void check_verbs_caller(struct porter *p, struct verbs_caller *v)
{
	const struct lane_private *request = verbs_caller_request(v);
	struct caller c = {.epoch = request->epoch, .fd = -1, .verbs = v};

	if (fits_terms(p, request->lane, request->epoch, request->depth, request->block_size) &&
	    is_token_right(p, request)) {
		keep_caller(p, request->lane, &c);
		return;
	}
	log_at(p->rdma_rejected ? LOG_DEBUG : LOG_INFO,
	       "rejected an unauthenticated RDMA connection for lane %u", request->lane);
	p->rdma_rejected = true;
	verbs_refuse(v);
}

/* Returns false if the listener is broken. */
static bool accept_verbs_callers(struct porter *p, struct verbs_listener *v)
{
	for (unsigned i = 0; i < REQUESTS_AT_ONCE; i++) {
		struct verbs_caller *c;

		if (verbs_next_caller(v, &c) < 0)
			return false;
		if (!c)
			return true;
		check_verbs_caller(p, c);
	}
	return true;
}

static void accept_all_verbs_callers(struct porter *p, const struct pollfd *set)
{
	char text[80];

	for (unsigned i = 0; i < p->rdma_count;) {
		if (!set[i].revents || accept_verbs_callers(p, p->rdma[i])) {
			i++;
			continue;
		}
		if (verbs_listener_is_lost(p->rdma[i])) {
			log_info("%s", failed()->text);
			p->relisten_ms = clock_ms() + RELISTEN_MS;
			i++;
			continue;
		}
		log_warn("%s: no more RDMA connections are accepted: %s",
			 address_text(&p->rdma_at[i], text, sizeof text), failed()->text);
		verbs_unlisten(p->rdma[i]);
		p->rdma[i] = p->rdma[--p->rdma_count];
		p->rdma_at[i] = p->rdma_at[p->rdma_count];
		return; /* the indices of set no longer match the listeners */
	}
}

/* A device that was removed may be put back. */
static void listen_again(struct porter *p)
{
	bool lost = false;

	if (!p->relisten_ms || clock_ms() < p->relisten_ms)
		return;
	for (unsigned i = 0; i < p->rdma_count; i++)
		lost |= verbs_listener_is_lost(p->rdma[i]) && !verbs_relisten(p->rdma[i]);
	p->relisten_ms = lost ? clock_ms() + RELISTEN_MS : 0;
}

/* ---- the thread ----------------------------------------------------------------------------- */

static int poll_timeout(const struct porter *p)
{
	uint64_t due = strangers_due(&p->strangers), after = p->strangers.accept_after;

	if (!strangers_accepting(&p->strangers) && (!due || after < due))
		due = after;
	if (p->relisten_ms && (!due || p->relisten_ms < due))
		due = p->relisten_ms;
	return due ? clock_left(due) : -1;
}

/* The RDMA listeners come first, then the stop event. Returns the number of descriptors. */
static unsigned fill_poll_set(struct porter *p, struct pollfd *set)
{
	unsigned n = 0;

	for (; n < p->rdma_count; n++)
		set[n] = (struct pollfd){.fd = verbs_listener_fd(p->rdma[n]), .events = POLLIN};
	set[n++] = (struct pollfd){.fd = p->stop, .events = POLLIN};
	n = porter_poll_listeners(p, set, n);
	for (unsigned i = 0; i < p->strangers.count; i++) {
		p->strangers.list[i].polled = n;
		set[n++] = (struct pollfd){.fd = p->strangers.list[i].fd, .events = POLLIN};
	}
	return n;
}

/* Waits for events. The kernel may lack memory only for a moment. */
static int poll_callers(const struct porter *p, struct pollfd *set, unsigned n)
{
	const struct timespec pause = {.tv_nsec = POLL_PAUSE_MS * 1000000L};

	for (unsigned failures = 0; poll(set, n, poll_timeout(p)) < 0;) {
		if (errno == EINTR)
			continue;
		if (++failures == POLL_TRIES)
			return fail_as(OUT_SOCKET, "poll the listeners: %m");
		nanosleep(&pause, NULL);
	}
	return 0;
}

/* Fails if nobody can come any more: RDMA has listeners of its own. A stranger may be the last
 * caller. */
static int check_door(struct porter *p)
{
	if (p->door_lost.code == OUT_DONE || p->rdma_count > 0 || p->strangers.count > 0)
		return 0;
	return fail_again(&p->door_lost);
}

static void *porter_run(void *arg)
{
	struct pollfd set[OFFER_MAX + 1 + LISTENERS_MAX + STRANGERS_MAX];
	struct porter *p = arg;

	for (;;) {
		unsigned n = fill_poll_set(p, set), stop = p->rdma_count;

		if (check_door(p) || poll_callers(p, set, n)) {
			break_porter(p);
			return NULL;
		}
		if (set[stop].revents)
			return NULL;
		read_all_strangers(p, set);
		accept_all_verbs_callers(p, set);
		listen_again(p);
		strangers_expire(&p->strangers);
		porter_accept(p);
		keep_shortage(p);
	}
}

/* Reports the id of the session to rdcpd, which passes its lanes on from then on. */
static int announce_session(const struct porter *p, uint64_t session)
{
	ssize_t n;

	do
		n = send(p->door, &session, sizeof session, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n == sizeof session ? 0 : fail_as(OUT_SOCKET, "accept lanes: rdcpd: %m");
}

int porter_open_lanes(struct porter *p, const struct porter_terms *terms)
{
	p->terms = *terms;
	for (unsigned i = 0; i < terms->lanes; i++) {
		p->berths[i].ready = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (p->berths[i].ready < 0)
			return fail_as(OUT_MEMORY, "accept lanes: %m");
	}
	strangers_close(&p->strangers);
	if (p->door >= 0 && announce_session(p, terms->key.session))
		return -1;
	return worker_start(&p->worker, "porter", porter_run, p);
}
