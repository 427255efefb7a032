/* SPDX-License-Identifier: Apache-2.0 */
#include "session_pair.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/io.h"
#include "base/random.h"
#include "lane/tcp/tcp_connect.h"
#include "session/channel/key.h"
#include "session/connect/offer_place.h"

enum { PATIENCE_MS = 20000 };

void pause_ms(unsigned ms)
{
	struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

	nanosleep(&t, NULL);
}

bool await_count(_Atomic uint64_t *counter, uint64_t least)
{
	uint64_t deadline = clock_ms() + PATIENCE_MS;

	while (atomic_load(counter) < least && clock_left(deadline) > 0)
		pause_ms(2);
	return atomic_load(counter) >= least;
}

static void ring(int fd)
{
	uint64_t one = 1;

	if (write(fd, &one, sizeof one) < 0)
		abort();
}

/* ---- the relay ---------------------------------------------------------------------------- */

static void remember(struct pair *p, unsigned from, const struct frame *f)
{
	struct seen *s = &p->log[p->seen];
	struct msg_lane_down down;
	struct msg_lane_stored stored;
	struct msg_noroute noroute;
	struct msg_choice choice;
	struct msg_error error;

	if (p->seen == LOG_MAX)
		return;
	*s = (struct seen){.from = from, .type = f->type};
	if (f->type == MSG_LANE_DOWN && msg_lane_down_decode(f, &down) == 0) {
		s->lane = down.lane;
		s->epoch = down.epoch;
	} else if (f->type == MSG_LANE_STORED && msg_lane_stored_decode(f, &stored) == 0) {
		s->lane = stored.lane;
		s->epoch = stored.epoch;
		s->stored = stored.stored;
		s->damaged = stored.damaged;
	} else if ((f->type == MSG_NOROUTE || f->type == MSG_STUCK) &&
		   msg_noroute_decode(f, &noroute) == 0) {
		memcpy(s->text, noroute.why, sizeof s->text);
	} else if (f->type == MSG_CHOICE && msg_choice_decode(f, &choice) == 0) {
		s->lane = choice.transport;
		memcpy(s->text, choice.why, sizeof s->text);
	} else if (f->type == MSG_ERROR && msg_error_decode(f, &error) == 0) {
		s->lane = error.code;
		memcpy(s->text, error.text, sizeof s->text);
	}
	p->seen++;
}

static void pass_on(struct pair *p, unsigned to, uint8_t type, const void *body, uint32_t len)
{
	uint8_t head[FRAME_HEAD];

	frame_head_encode(type, len, head);
	if (write_full(p->ends[to].relay_fd, head, sizeof head) == 0)
		write_full(p->ends[to].relay_fd, body, len);
}

static void keep(struct pair *p, unsigned to, uint8_t type, const void *body, uint32_t len)
{
	struct held *h = &p->held[p->held_count];

	if (p->held_count == HELD_MAX)
		abort();
	*h = (struct held){.to = to, .type = type, .len = len, .body = malloc(len + 1)};
	memcpy(h->body, body, len);
	p->held_count++;
}

static void handle(struct pair *p, unsigned from, const struct frame *f)
{
	static _Thread_local uint8_t body[FRAME_BODY_MAX];
	uint32_t len = f->len;
	enum verdict v = PASS;

	memcpy(body, f->body, f->len);
	pthread_mutex_lock(&p->lock);
	remember(p, from, f);
	if (p->filter)
		v = p->filter(p, from, f->type, body, &len);
	if (p->through_proxy && f->type == MSG_OFFER)
		p->proxy.target = offer_redirect(body, &len, p->proxy.port);
	if (v == PASS && !message_is_local(f->type))
		pass_on(p, 1 - from, f->type, body, len);
	if (v == HOLD)
		keep(p, 1 - from, f->type, body, len);
	pthread_mutex_unlock(&p->lock);
}

/* Returns false at the end of this side's stream. */
static bool listen_to(struct pair *p, unsigned from, struct framer *fr)
{
	struct frame f;
	size_t size;
	void *room = framer_room(fr, &size);
	ssize_t n = read(p->ends[from].relay_fd, room, size);

	if (n <= 0)
		return false;
	framer_filled(fr, (size_t)n);
	while (framer_next(fr, &f) > 0)
		handle(p, from, &f);
	return true;
}

static void *relay_run(void *arg)
{
	static _Thread_local struct framer fr[2];
	struct pair *p = arg;
	bool open[2] = {true, true};

	framer_init(&fr[0]);
	framer_init(&fr[1]);
	for (;;) {
		struct pollfd set[3] = {
			{.fd = open[0] ? p->ends[0].relay_fd : -1, .events = POLLIN},
			{.fd = open[1] ? p->ends[1].relay_fd : -1, .events = POLLIN},
			{.fd = p->relay_stop, .events = POLLIN},
		};

		if (poll(set, 3, -1) < 0 && errno != EINTR)
			return NULL;
		if (set[2].revents)
			return NULL;
		for (unsigned i = 0; i < 2; i++)
			if (set[i].revents && !listen_to(p, i, &fr[i])) {
				open[i] = false;
				shutdown(p->ends[1 - i].relay_fd, SHUT_WR);
			}
	}
}

void pair_cut(struct pair *p)
{
	shutdown(p->ends[0].relay_fd, SHUT_RDWR);
	shutdown(p->ends[1].relay_fd, SHUT_RDWR);
}

unsigned pair_seen(struct pair *p, unsigned from, uint8_t type)
{
	unsigned n = 0;

	pthread_mutex_lock(&p->lock);
	for (unsigned i = 0; i < p->seen; i++)
		n += p->log[i].from == from && p->log[i].type == type;
	pthread_mutex_unlock(&p->lock);
	return n;
}

bool pair_await(struct pair *p, unsigned from, uint8_t type, unsigned count)
{
	uint64_t deadline = clock_ms() + PATIENCE_MS;

	while (pair_seen(p, from, type) < count && clock_left(deadline) > 0)
		pause_ms(2);
	return pair_seen(p, from, type) >= count;
}

struct seen pair_nth(struct pair *p, unsigned from, uint8_t type, unsigned n)
{
	struct seen found = {0};

	pthread_mutex_lock(&p->lock);
	for (unsigned i = 0; i < p->seen; i++)
		if (p->log[i].from == from && p->log[i].type == type && n-- == 0) {
			found = p->log[i];
			break;
		}
	pthread_mutex_unlock(&p->lock);
	return found;
}

void pair_release(struct pair *p)
{
	pthread_mutex_lock(&p->lock);
	p->filter = NULL;
	for (unsigned i = 0; i < p->held_count; i++) {
		pass_on(p, p->held[i].to, p->held[i].type, p->held[i].body, p->held[i].len);
		free(p->held[i].body);
	}
	p->held_count = 0;
	pthread_mutex_unlock(&p->lock);
}

void pair_forge(struct pair *p, unsigned to, uint8_t type, const void *body, size_t len)
{
	pthread_mutex_lock(&p->lock);
	pass_on(p, to, type, body, (uint32_t)len);
	pthread_mutex_unlock(&p->lock);
}

unsigned offer_redirect(uint8_t *body, uint32_t *len, unsigned port)
{
	struct frame f = {.type = MSG_OFFER, .len = *len, .body = body};
	union address there = address_loopback(AF_INET, 0);
	struct msg_offer m;
	struct writer w = writer_of(body, FRAME_BODY_MAX);
	unsigned was;

	if (msg_offer_decode(&f, &m) < 0 || m.count == 0)
		return 0;
	was = m.places[0].port;
	m.count = 1;
	m.places[0] = offer_place_make(&there, TRANSPORT_TCP, port);
	msg_offer_encode(&w, &m);
	*len = (uint32_t)w.used;
	return was;
}

/* ---- the proxy --------------------------------------------------------------------------------
 */

static void proxy_drop(struct proxy *x, unsigned i)
{
	close_fd(x->c[i].fd[0]);
	close_fd(x->c[i].fd[1]);
	x->c[i] = x->c[--x->count];
}

static void proxy_accept(struct proxy *x)
{
	union address to = address_loopback(AF_INET, x->target);
	int from = accept4(x->listener, NULL, NULL, SOCK_CLOEXEC), on;

	if (from < 0)
		return;
	atomic_fetch_add(&x->came, 1);
	on = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (atomic_load(&x->closed) || x->count == PROXY_MAX ||
	    connect(on, &to.sa, sizeof to.in4) < 0) {
		close_fd(from);
		close_fd(on);
		return;
	}
	x->c[x->count].fd[0] = from;
	x->c[x->count].fd[1] = on;
	x->c[x->count].bytes = 0;
	x->c[x->count].flip = atomic_load(&x->flips) > 0;
	if (x->c[x->count].flip)
		atomic_fetch_sub(&x->flips, 1);
	x->c[x->count].mute = atomic_load(&x->mutes) > 0;
	if (x->c[x->count].mute)
		atomic_fetch_sub(&x->mutes, 1);
	x->count++;
}

/* Changes the n bytes in buf, which has room for CHANGED_BYTES more, at one place. Returns how many
 * there are then. *cut: the connection is to end behind them. */
static size_t proxy_change(struct proxy *x, uint8_t *buf, size_t n, size_t at, bool *cut)
{
	size_t len = n - at < CHANGED_BYTES ? n - at : CHANGED_BYTES, half = len / 2;
	enum change_kind kind = (enum change_kind)atomic_load(&x->flip_kind);
	uint8_t first[CHANGED_BYTES];

	/* It would change nothing. */
	if (kind == SWAP && memcmp(buf + at, buf + at + half, half) == 0)
		kind = FLIP;
	switch (kind) {
	case CUT:
		*cut = true;
		return at;
	case LOSE:
		memmove(buf + at, buf + at + len, n - at - len);
		return n - len;
	case REPEAT:
		memmove(buf + at + len, buf + at, n - at);
		return n + len;
	case SWAP:
		memcpy(first, buf + at, half);
		memmove(buf + at, buf + at + half, half);
		memcpy(buf + at + half, first, half);
		return n;
	default:
		buf[at] ^= (uint8_t)atomic_load(&x->flip_with);
		return n;
	}
}

static bool proxy_send(int fd, const uint8_t *buf, size_t n)
{
	ssize_t k;

	for (size_t sent = 0; sent < n; sent += (size_t)k) {
		k = send(fd, buf + sent, n - sent, MSG_NOSIGNAL);
		if (k <= 0)
			return false;
	}
	return true;
}

/* Carries the available bytes from one side to the other; false at the end. */
static bool proxy_carry(struct proxy *x, unsigned i, unsigned side)
{
	uint8_t buf[16384 + CHANGED_BYTES];
	ssize_t got = recv(x->c[i].fd[side], buf, sizeof buf - CHANGED_BYTES, 0);
	uint64_t at = atomic_load(&x->flip_at), before = x->c[i].bytes;
	size_t n = (size_t)got;
	bool cut = false;

	if (got <= 0 || (side == 1 && x->c[i].mute))
		return false;
	if (side == 0) {
		x->c[i].bytes += n;
		if (x->c[i].flip && at >= before && at < before + n)
			n = proxy_change(x, buf, n, (size_t)(at - before), &cut);
	}
	return proxy_send(x->c[i].fd[1 - side], buf, n) && !cut;
}

static void *proxy_run(void *arg)
{
	struct proxy *x = arg;

	for (;;) {
		struct pollfd set[2 + 2 * PROXY_MAX];
		unsigned n = 2, count = x->count;

		set[0] = (struct pollfd){.fd = x->stop, .events = POLLIN};
		set[1] = (struct pollfd){.fd = x->listener, .events = POLLIN};
		for (unsigned i = 0; i < count; i++)
			for (unsigned k = 0; k < 2; k++)
				set[n++] = (struct pollfd){.fd = x->c[i].fd[k], .events = POLLIN};
		if (poll(set, n, 5) < 0 && errno != EINTR)
			return NULL;
		if (set[0].revents)
			return NULL;
		if (x->cuts_done != atomic_load(&x->cuts)) {
			x->cuts_done = atomic_load(&x->cuts);
			while (x->count > 0)
				proxy_drop(x, 0);
			continue;
		}
		/* From the last one on, because a dropped entry is replaced by the last one. */
		for (unsigned i = count; i-- > 0;)
			if ((set[2 + 2 * i].revents && !proxy_carry(x, i, 0)) ||
			    (set[3 + 2 * i].revents && !proxy_carry(x, i, 1)))
				proxy_drop(x, i);
		if (set[1].revents)
			proxy_accept(x);
	}
}

int pair_use_proxy(struct pair *p)
{
	union address at = address_loopback(AF_INET, 0);

	p->proxy.listener = tcp_listen(&at, 0, 0, 0, &p->proxy.port);
	p->proxy.stop = eventfd(0, EFD_CLOEXEC);
	if (p->proxy.listener < 0)
		return -1;
	p->through_proxy = true;
	return worker_start(&p->proxy.worker, "proxy", proxy_run, &p->proxy);
}

static void proxy_close(struct proxy *x)
{
	ring(x->stop);
	worker_join(&x->worker);
	while (x->count > 0)
		proxy_drop(x, 0);
	close_fd(x->listener);
	close_fd(x->stop);
}

/* ---- the ends
 * ------------------------------------------------------------------------------------- */

static void on_fail(void *ctx)
{
	struct pair_end *e = ctx;

	atomic_fetch_add(&e->fails, 1);
}

unsigned pair_fails(struct pair *p, unsigned end)
{
	uint64_t deadline = clock_ms() + PATIENCE_MS;

	while (atomic_load(&p->ends[end].fails) == 0 && clock_left(deadline) > 0)
		pause_ms(2);
	return atomic_load(&p->ends[end].fails);
}

static int on_frame(void *ctx, const struct frame *f)
{
	(void)ctx;
	(void)f;
	return 0;
}

void pair_init(struct pair *p)
{
	uint8_t secret[LANE_SECRET];

	memset(p, 0, sizeof *p);
	p->proxy.flip_with = 4;
	pthread_mutex_init(&p->lock, NULL);
	random_bytes(secret, sizeof secret);
	for (unsigned i = 0; i < 2; i++) {
		struct pair_end *e = &p->ends[i];

		e->fd = e->relay_fd = -1;
		e->o = (struct session_opts){
			.role = i == SOURCE ? ROLE_SOURCE : ROLE_SINK,
			.want = TRANSPORT_TCP,
			.listens = i == SINK,
			.lanes = 2,
			.depth = 4,
			.block_size = 4096,
			.memory = UINT64_MAX,
			.timeout_ms = 10000,
			.connect_timeout_ms = 10000,
			.on_frame = on_frame,
			.on_fail = on_fail,
			.ctx = e,
		};
		memcpy(e->o.secret, secret, sizeof secret);
		snprintf(e->o.host, HOST_MAX, i == SOURCE ? "near" : "far");
		snprintf(e->o.peer, HOST_MAX, i == SOURCE ? "far" : "near");
	}
}

static void *open_end(void *arg)
{
	struct pair_end *e = arg;
	struct channel *ch;

	if (channel_over_fds(e->fd, e->fd, &ch) < 0 ||
	    session_open(ch, NULL, 0, &e->o, e->why_host, &e->s) < 0) {
		e->why = *failed();
		e->s = NULL;
	}
	e->fd = -1;
	return NULL;
}

int session_pair_open(struct pair *p)
{
	for (unsigned i = 0; i < 2; i++) {
		int fds[2];

		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
			return -1;
		p->ends[i].fd = fds[0];
		p->ends[i].relay_fd = fds[1];
	}
	p->relay_stop = eventfd(0, EFD_CLOEXEC);
	if (worker_start(&p->relay, "relay", relay_run, p) < 0)
		return -1;
	for (unsigned i = 0; i < 2; i++)
		if (worker_start(&p->ends[i].worker, "open", open_end, &p->ends[i]) < 0)
			return -1;
	worker_join(&p->ends[0].worker);
	worker_join(&p->ends[1].worker);
	return p->ends[0].s && p->ends[1].s ? 0 : -1;
}

/* ---- carrying blocks
 * ---------------------------------------------------------------------------------- */

static void fill(struct block *b, unsigned lane, uint64_t number, uint32_t room)
{
	uint32_t len = (uint32_t)(number * 997 % (room + 1));

	if (len < 16)
		len = 16;
	memset(b->data, (int)(number + lane), len);
	memcpy(b->data, &number, 8);
	memcpy(b->data + 8, &(uint64_t){lane}, 8);
	b->len = len;
	b->kind = BLOCK_EXTENT;
	b->file = lane;
	b->pos = number;
}

static bool is_right(const struct block *b, unsigned lane, uint64_t number, uint32_t room)
{
	uint32_t len = (uint32_t)(number * 997 % (room + 1));
	uint64_t said[2];

	if (len < 16)
		len = 16;
	if (b->len != len || b->kind != BLOCK_EXTENT || b->file != lane || b->pos != number)
		return false;
	memcpy(said, b->data, sizeof said);
	if (said[0] != number || said[1] != lane)
		return false;
	for (uint32_t i = 16; i < len; i++)
		if (b->data[i] != (uint8_t)(number + lane))
			return false;
	return true;
}

static int send_all(struct lane_job *j)
{
	uint64_t paced_ns = 0;

	for (uint64_t i = 0; i < j->count; i++) {
		struct block *b;

		if (lane_get(j->lane, &b) < 0)
			return -1;
		fill(b, j->index, i, lane_block_size(j->lane));
		if (j->p->work)
			j->p->work(j, b, i);
		if (session_pace(j->p->ends[SOURCE].s, b->len, &paced_ns) < 0)
			return -1;
		if (lane_send(j->lane, b) < 0)
			return -1;
		atomic_store(&j->done, i + 1);
	}
	return lane_flush(j->lane);
}

static int store_all(struct lane_job *j)
{
	for (uint64_t i = 0;; i++) {
		struct block *b;

		if (lane_recv(j->lane, &b) < 0)
			return -1;
		j->disorder |= !is_right(b, j->index, i, lane_block_size(j->lane));
		if (j->p->work)
			j->p->work(j, b, i);
		if (lane_put(j->lane, b) < 0)
			return -1;
		atomic_store(&j->done, i + 1);
	}
}

static void *job_run(void *arg)
{
	struct lane_job *j = arg;

	fail_clear();
	j->rc = j->end == SOURCE ? send_all(j) : store_all(j);
	/* A sink's work ends with an abort; if the session failed, that is the reason. */
	if (j->rc < 0 && (j->end == SOURCE || !lane_aborted(j->lane)))
		session_fail(j->p->ends[j->end].s);
	j->why = *failed();
	return NULL;
}

void pair_start(struct pair *p, uint64_t count)
{
	for (unsigned i = 0; i < 2; i++)
		for (unsigned k = 0; k < session_lanes(p->ends[i].s); k++) {
			struct lane_job *j = &p->ends[i].jobs[k];

			*j = (struct lane_job){
				.p = p,
				.lane = session_lane(p->ends[i].s, k),
				.end = i,
				.index = k,
				.count = count,
			};
			worker_start(&j->worker, "job", job_run, j);
		}
}

int pair_finish(struct pair *p)
{
	int rc = 0;

	for (unsigned k = 0; k < session_lanes(p->ends[SOURCE].s); k++) {
		struct lane_job *j = &p->ends[SOURCE].jobs[k];

		worker_join(&j->worker);
		rc |= j->rc;
	}
	for (unsigned k = 0; k < session_lanes(p->ends[SINK].s); k++) {
		struct lane_job *j = &p->ends[SINK].jobs[k];

		/* Callers of on_fail wait until it has been counted. */
		if (rc == 0)
			lane_abort(j->lane);
		worker_join(&j->worker);
		if (j->disorder || (rc == 0 && atomic_load(&j->done) != j->count))
			rc = -1;
	}
	return rc;
}

void session_pair_close(struct pair *p)
{
	for (unsigned i = 0; i < 2; i++) {
		if (p->ends[i].s)
			session_ended(p->ends[i].s);
		if (p->ends[i].fd >= 0)
			close_fd(p->ends[i].fd);
	}
	for (unsigned i = 0; i < 2; i++)
		session_close(p->ends[i].s);
	if (p->relay.running) {
		ring(p->relay_stop);
		worker_join(&p->relay);
		close_fd(p->relay_stop);
	}
	if (p->proxy.worker.running)
		proxy_close(&p->proxy);
	for (unsigned i = 0; i < p->held_count; i++)
		free(p->held[i].body);
	close_fd(p->ends[0].relay_fd);
	close_fd(p->ends[1].relay_fd);
	pthread_mutex_destroy(&p->lock);
}
