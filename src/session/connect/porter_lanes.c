/* SPDX-License-Identifier: Apache-2.0 */
#include "session/connect/porter_impl.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fail.h"
#include "base/io.h"
#include "base/log.h"

enum { KNOCKS_AT_ONCE = 64 };

void caller_drop(struct caller *c)
{
	close_fd(c->fd);
	c->fd = -1;
	if (c->verbs)
		verbs_refuse(c->verbs);
	c->verbs = NULL;
}

/* ---- berths ------------------------------------------------------------------------------ */

/* Keep a verified caller for its lane; one of an epoch that was there before, or is older than
 * the newest, is turned away: that is a replay, or an attempt long given up. */
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
		raise_event(b->ready);
	} else {
		log_debug("a caller for lane %u has epoch %u, which is no longer good", lane,
			  c->epoch);
	}
	pthread_mutex_unlock(&p->lock);
	caller_drop(&out);
}

/* The caller that is kept for a lane, if its epoch is late enough. */
static bool take_kept_caller(struct porter *p, unsigned lane, uint32_t epoch, struct caller *out)
{
	struct berth *b = &p->berths[lane];
	struct caller late = {.fd = -1};
	bool found = false;
	uint64_t told;

	pthread_mutex_lock(&p->lock);
	if (read(b->ready, &told, sizeof told) < 0 && errno != EAGAIN)
		log_debug("lane %u: %m", lane);
	if (b->kept) {
		found = b->caller.epoch >= epoch;
		*(found ? out : &late) = b->caller;
		b->caller = (struct caller){.fd = -1};
		b->kept = false;
	}
	if (b->next < epoch)
		b->next = epoch;
	pthread_mutex_unlock(&p->lock);
	caller_drop(&late);
	return found;
}

int porter_wait(struct porter *p, unsigned lane, uint32_t epoch, int wake_fd, uint64_t deadline_ms,
		struct caller *out)
{
	while (!take_kept_caller(p, lane, epoch, out)) {
		struct pollfd set[2] = {
			{.fd = p->berths[lane].ready, .events = POLLIN},
			{.fd = wake_fd, .events = POLLIN},
		};

		if (deadline_ms && clock_left(deadline_ms) == 0)
			return fail_as(OUT_CONNECT, "nobody came for lane %u", lane);
		if (poll(set, 2, deadline_ms ? clock_left(deadline_ms) : -1) < 0 && errno != EINTR)
			return fail_as(OUT_SOCKET, "wait for lane %u: %m", lane);
		if (set[1].revents)
			return 1;
	}
	return 0;
}

/* ---- callers ----------------------------------------------------------------------------- */

/* There is no epoch after the last one. */
static bool fits_terms(const struct porter *p, unsigned lane, uint32_t epoch, uint32_t depth,
		       uint32_t block_size)
{
	return lane < p->terms.lanes && epoch < UINT32_MAX && depth == p->terms.depth &&
	       block_size == p->terms.block_size;
}

/* All of a stranger's LANE_HELLO is there: keep the stranger if it is a caller of ours. */
static void check_tcp_caller(struct porter *p, struct stranger *s)
{
	struct lane_hello h;
	struct caller c = {.fd = s->fd};

	if (lane_hello_decode(s->said, &h) < 0 || lane_hello_verify(&h, &p->terms.key) < 0) {
		log_info("somebody who is not of this session came to TCP port %u: %s", p->tcp_port,
			 failed()->text);
		return;
	}
	if (h.accepting || h.from != p->terms.peer ||
	    !fits_terms(p, h.lane, h.epoch, h.depth, h.block_size)) {
		log_info("a caller for lane %u does not fit in", h.lane);
		return;
	}
	c.epoch = h.epoch;
	s->fd = -1;
	keep_caller(p, h.lane, &c);
}

/* Read on; false when the stranger has to leave. */
static bool read_stranger(struct porter *p, struct stranger *s)
{
	ssize_t n = recv(s->fd, s->said + s->said_len, sizeof s->said - s->said_len, 0);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	s->said_len += (size_t)n;
	if (p->busy && n > 0 && s->said[0] == TLS_HANDSHAKE) {
		stranger_refuse(s);
		return false;
	}
	if (s->said_len == sizeof s->said)
		check_tcp_caller(p, s);
	return n > 0 && s->said_len < sizeof s->said;
}

static void read_all_strangers(struct porter *p, const struct pollfd *set)
{
	for (unsigned i = 0; i < p->strangers.count;) {
		struct stranger *s = &p->strangers.list[i];

		if (s->polled && set[s->polled].revents && !read_stranger(p, s))
			stranger_leave(&p->strangers, i);
		else
			i++;
	}
}

static bool is_token_right(const struct porter *p, const struct lane_private *says)
{
	uint8_t right[LANE_TOKEN];

	lane_token(&p->terms.key, says->lane, says->epoch, right);
	return CRYPTO_memcmp(right, says->token, sizeof right) == 0;
}

static void check_verbs_caller(struct porter *p, struct verbs_caller *v)
{
	const struct lane_private *says = verbs_caller_request(v);
	struct caller c = {.epoch = says->epoch, .fd = -1, .verbs = v};

	if (fits_terms(p, says->lane, says->epoch, says->depth, says->block_size) &&
	    is_token_right(p, says)) {
		keep_caller(p, says->lane, &c);
		return;
	}
	log_info("somebody who is not of this session came over RDMA for lane %u", says->lane);
	verbs_refuse(v);
}

/* False when the listener is broken. */
static bool accept_verbs_callers(struct porter *p, struct verbs_listener *v)
{
	for (unsigned i = 0; i < KNOCKS_AT_ONCE; i++) {
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
	for (unsigned i = 0; i < p->rdma_count;) {
		if (!set[i].revents || accept_verbs_callers(p, p->rdma[i])) {
			i++;
			continue;
		}
		log_warn("an RDMA listener is gone: %s", failed()->text);
		verbs_unlisten(p->rdma[i]);
		p->rdma[i] = p->rdma[--p->rdma_count];
		return; /* set no longer tells which is which */
	}
}

/* ---- the thread ----------------------------------------------------------------------------- */

static int poll_timeout(const struct porter *p)
{
	uint64_t due = strangers_due(&p->strangers), after = p->strangers.accept_after;

	if (!strangers_accepting(&p->strangers) && (!due || after < due))
		due = after;
	return due ? clock_left(due) : -1;
}

static unsigned poll_lanes(struct porter *p, struct pollfd *set)
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

static void *porter_run(void *arg)
{
	struct pollfd set[OFFER_MAX + 1 + LISTENERS_MAX + STRANGERS_MAX];
	struct porter *p = arg;

	for (;;) {
		unsigned n = poll_lanes(p, set), stop = p->rdma_count;

		if (poll(set, n, poll_timeout(p)) < 0) {
			if (errno == EINTR)
				continue;
			log_warn("nobody is let in any more: %m");
			return NULL;
		}
		if (set[stop].revents)
			return NULL;
		read_all_strangers(p, set);
		accept_all_verbs_callers(p, set);
		strangers_expire(&p->strangers);
		porter_accept(p);
	}
}

int porter_open_lanes(struct porter *p, const struct porter_terms *terms)
{
	p->terms = *terms;
	for (unsigned i = 0; i < terms->lanes; i++) {
		p->berths[i].ready = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (p->berths[i].ready < 0)
			return fail_as(OUT_MEMORY, "let lanes in: %m");
	}
	strangers_leave(&p->strangers);
	return worker_start(&p->worker, "porter", porter_run, p);
}
