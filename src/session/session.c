/* SPDX-License-Identifier: Apache-2.0 */
#include "base/random.h"
#include "host/host_id.h"
#include "lane/memlock.h"
#include "session/session_impl.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "base/secret.h"
#include "base/worker.h"
#include "session/channel/framer.h"
#include "session/channel/key.h"
#include "session/connect/nics.h"

enum {
	SIGNAL_CHECK_MS = 200, /* a signal that arrives just before a wait does not end it */
	LAST_FRAMES_MS = 1000, /* time to deliver the last frames, such as ERROR */
	PACE_BURST_NS = 100000000,
	/* One day. Sums of it and other times do not overflow. */
	TIMEOUT_MOST_MS = 24 * 60 * 60 * 1000,
};

/* ---- failing ---------------------------------------------------------------------------- */

/* Encodes f as the body of an ERROR from this host. Returns its length, or 0 if it does not fit. */
static size_t encode_failure(const struct failure *f, const char *host, uint8_t *body, size_t room)
{
	struct msg_error m = {.code = (uint8_t)f->code};
	struct writer w = writer_of(body, room);

	snprintf(m.host, sizeof m.host, "%s", host);
	snprintf(m.text, sizeof m.text, "%s", f->text);
	msg_error_encode(&w, &m);
	return w.full ? 0 : w.used;
}

void session_latch(struct session *s, const struct failure *f, const char *host)
{
	uint8_t body[sizeof(struct msg_error) + 8];
	bool first;
	size_t len;

	pthread_mutex_lock(&s->lock);
	first = !s->failed;
	if (first) {
		s->failed = s->error_pending = true;
		s->failure = *f;
		snprintf(s->failed_host, sizeof s->failed_host, "%s", host ? host : "");
	}
	pthread_mutex_unlock(&s->lock);
	if (!first)
		return;
	/* Queue ERROR before aborting the lanes: the peer latches the first failure that it sees,
	 * and wires that break because of the abort are only a consequence. */
	len = encode_failure(f, s->o.host, body, sizeof body);
	if (!host && len)
		control_post(s->control, MSG_ERROR, body, len);
	control_no_wait(s->control);
	pthread_mutex_lock(&s->lock);
	s->error_pending = false;
	for (unsigned i = 0; i < s->lanes; i++)
		lane_abort(s->ends[i].lane);
	session_nudge(s);
	pthread_mutex_unlock(&s->lock);
	if (s->o.on_fail)
		s->o.on_fail(s->o.ctx);
}

int session_fail(struct session *s)
{
	struct failure f = *failed();

	if (f.code == OUT_DONE)
		f = (struct failure){OUT_PROTOCOL, "failed without a reason"};
	shortage_explains(s, &f);
	session_latch(s, &f, NULL);
	pthread_mutex_lock(&s->lock);
	f = s->failure;
	pthread_mutex_unlock(&s->lock);
	return fail_again(&f);
}

bool session_failed(struct session *s, struct failure *f, char host[static HOST_MAX])
{
	bool has_failed;

	pthread_mutex_lock(&s->lock);
	has_failed = s->failed;
	if (has_failed && f)
		*f = s->failure;
	snprintf(host, HOST_MAX, "%s", s->failed_host);
	pthread_mutex_unlock(&s->lock);
	return has_failed;
}

void session_ended(struct session *s)
{
	pthread_mutex_lock(&s->lock);
	s->ended = true;
	pthread_mutex_unlock(&s->lock);
}

void session_nudge(struct session *s)
{
	pthread_cond_broadcast(&s->changed);
	for (unsigned i = 0; i < s->lanes; i++)
		raise_event(s->ends[i].nudge);
}

/* ---- opening ---------------------------------------------------------------------------- */

static int options_complete(struct session_opts *o)
{
	if (o->lanes > LANE_COUNT_MAX)
		o->lanes = LANE_COUNT_MAX;
	if (o->depth > LANE_DEPTH_MAX)
		o->depth = LANE_DEPTH_MAX;
	if (o->memory == 0)
		o->memory = UINT64_MAX;
	if (o->timeout_ms <= 0)
		o->timeout_ms = TIMEOUT_DEFAULT_MS;
	if (o->connect_timeout_ms <= 0)
		o->connect_timeout_ms = CONNECT_DEFAULT_MS;
	if (o->timeout_ms > TIMEOUT_MOST_MS)
		o->timeout_ms = TIMEOUT_MOST_MS;
	if (o->connect_timeout_ms > TIMEOUT_MOST_MS)
		o->connect_timeout_ms = TIMEOUT_MOST_MS;
	if (!o->peer[0])
		snprintf(o->peer, sizeof o->peer, "the peer");
	if (o->block_size && (o->block_size < LANE_BLOCK_MIN || o->block_size > LANE_BLOCK_MAX ||
			      (o->block_size & (o->block_size - 1))))
		return fail_as(OUT_USAGE, "--block-size %u: not a power of two from %d to %d",
			       o->block_size, LANE_BLOCK_MIN, LANE_BLOCK_MAX);
	return 0;
}

/* Proposes the sizes that the user left open, for this host's links, cores and memory. */
static void propose_sizes(struct session *s)
{
	struct msg_hello *m = &s->mine;
	struct sizing z = {s->o.lanes, s->o.depth, s->o.block_size};
	struct offer_rules rules = offer_rules(s);
	struct sizing_for f;
	char lockable[32] = "unlimited";

	nics_find_links(&rules, m->lockable > 0, s->o.rails, &f);
	f.rtt_us = s->rtt_us;
	s->unlimited = z;
	sizing_choose(&f, &z);
	m->lanes = (uint16_t)z.lanes;
	m->depth = (uint16_t)z.depth;
	m->block_size = z.block_size;
	if (f.lockable != UINT64_MAX)
		snprintf(lockable, sizeof lockable, "%.3g MiB", (double)f.lockable / (1 << 20));
	log_debug("propose %u lanes of %u blocks of %u KiB for %u %s link%s, %.3g Gb/s in "
		  "total%s, round trip %.3g ms%s, %u cores, locked memory limit: %s",
		  z.lanes, z.depth, z.block_size >> 10, f.links, f.rdma ? "RDMA" : "TCP",
		  f.links == 1 ? "" : "s", (double)f.rate / 1000, f.rate ? "" : " (unknown)",
		  f.rtt_us / 1e3, f.rtt_us ? "" : " (unknown)", f.cores, lockable);
	f.lockable = UINT64_MAX;
	sizing_choose(&f, &s->unlimited);
}

static int hello_make(struct session *s)
{
	struct msg_hello *m = &s->mine;
	bool may_rdma = s->o.want == TRANSPORT_AUTO || s->o.want == TRANSPORT_RDMA;

	*m = (struct msg_hello){
		.version = PROTOCOL_VERSION,
		.role = (uint8_t)s->o.role,
		.want = (uint8_t)s->o.want,
		.memory = s->o.memory,
		.timeout_ms = (uint32_t)s->o.timeout_ms,
		.host_id = host_id(),
		.rdma_op = (uint8_t)s->o.rdma_op,
		.rails = (uint16_t)s->o.rails,
		.features = (compress_known() ? FEATURE_ZSTD : 0) |
			    (uint64_t)s->o.compress << FEATURE_COMPRESS_SHIFT,
		.encrypt = (uint8_t)s->o.encrypt,
		.ciphers = cipher_known(),
	};
	snprintf(m->host, sizeof m->host, "%s", s->o.host);
	if (may_rdma && verbs_present(m->no_rdma, sizeof m->no_rdma)) {
		m->lockable = memlock_limit();
		/* 0 in HELLO means no device; a limit of 0 bytes is only too small a limit. */
		if (m->lockable == 0)
			m->lockable = 1;
		m->no_rdma[0] = '\0';
	}
	propose_sizes(s);
	return random_bytes(m->nonce, sizeof m->nonce);
}

static int hello_send(struct session *s)
{
	uint8_t body[sizeof s->mine + 64];
	struct writer w = writer_of(body, sizeof body);

	msg_hello_encode(&w, &s->mine);
	return control_send(s->control, MSG_HELLO, body, w.used);
}

/* Waits until the peer's HELLO has arrived and both ends agree. */
static int hello_wait(struct session *s)
{
	uint64_t deadline = clock_ms() + (uint64_t)s->o.connect_timeout_ms;
	bool has_failed, agreed;

	pthread_mutex_lock(&s->lock);
	while (!s->agreed && !s->failed && !cancelled() && clock_left(deadline) > 0) {
		struct timespec until = clock_after(SIGNAL_CHECK_MS);

		pthread_cond_timedwait(&s->changed, &s->lock, &until);
	}
	has_failed = s->failed;
	agreed = s->agreed;
	pthread_mutex_unlock(&s->lock);
	if (has_failed)
		return session_fail(s);
	if (cancelled())
		return fail_signal(cancelled());
	if (!agreed)
		return fail_as(OUT_CONNECT, "%s did not send HELLO within %g s (--connect-timeout)",
			       s->o.peer, s->o.connect_timeout_ms / 1000.0);
	return 0;
}

static int lane_end_open(struct session *s, unsigned i)
{
	struct lane_end *e = &s->ends[i];
	struct lane_setup setup = {
		.index = i,
		.side = s->side,
		.depth = s->terms.depth,
		.block_size = s->terms.block_size,
		.timeout_ms = s->terms.timeout_ms,
		.unchecked = s->o.unchecked,
		.cipher = s->terms.cipher,
		.compress = s->terms.compress,
		.key = &s->key,
		.rdma_op = s->terms.rdma_op,
		.tos = s->o.tos,
		.rtt_us = s->rtt_us,
		.mend = session_mend,
		.ask = session_ask,
		.mend_ctx = e,
	};
	struct epoll_event ev = {.events = EPOLLIN};

	*e = (struct lane_end){.s = s, .index = i, .nudge = -1, .wake = -1};
	if (lane_open(&setup, &e->lane) < 0)
		return -1;
	e->nudge = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	e->wake = epoll_create1(EPOLL_CLOEXEC);
	if (e->nudge >= 0 && e->wake >= 0 &&
	    epoll_ctl(e->wake, EPOLL_CTL_ADD, e->nudge, &ev) == 0 &&
	    epoll_ctl(e->wake, EPOLL_CTL_ADD, lane_abort_fd(e->lane), &ev) == 0)
		return 0;
	return fail_as(OUT_MEMORY, "open lane %u: %m", i);
}

static void lane_end_close(struct lane_end *e)
{
	if (!e->s)
		return;
	verbs_unprepare(e->prepared);
	lane_close(e->lane);
	close_fd(e->nudge);
	close_fd(e->wake);
}

static int lanes_open(struct session *s)
{
	for (unsigned i = 0; i < s->terms.lanes; i++) {
		if (lane_end_open(s, i) < 0)
			return -1;
		pthread_mutex_lock(&s->lock);
		s->lanes = i + 1;
		/* session_latch() aborts the lanes that it finds; this one was not among them. */
		if (s->failed)
			lane_abort(s->ends[i].lane);
		pthread_mutex_unlock(&s->lock);
	}
	return 0;
}

static void set_key(const struct session *s, struct lane_key *key)
{
	unsigned source = s->o.role == ROLE_SOURCE ? 0 : 1;

	memcpy(key->secret, s->o.secret, sizeof key->secret);
	memcpy(key->nonces[source], s->mine.nonce, NONCE_SIZE);
	memcpy(key->nonces[1 - source], s->peer.nonce, NONCE_SIZE);
}

/* route_on_offer() sets dial_key.session, perhaps at the same time. */
static int make_keys(struct session *s)
{
	set_key(s, &s->key);
	set_key(s, &s->dial_key);
	/* With --transport=ssh no OFFER could announce an id. */
	while (s->terms.want != TRANSPORT_SSH && s->key.session == 0)
		if (random_bytes(&s->key.session, sizeof s->key.session) < 0)
			return -1;
	return 0;
}

static int session_begin(struct session *s)
{
	if (hello_send(s) < 0 || hello_wait(s) < 0)
		return -1;
	if (make_keys(s) < 0)
		return -1;
	if (lanes_open(s) < 0)
		return -1;
	return s->o.listens ? route_listen(s, 0) : 0;
}

static struct session *session_new(const struct session_opts *o)
{
	struct session *s = calloc(1, sizeof *s);
	pthread_condattr_t attr;

	if (!s)
		return NULL;
	secret_guard(s, sizeof *s);
	s->o = *o;
	s->side = o->role == ROLE_SOURCE ? LANE_SOURCE : LANE_SINK;
	s->porter = o->porter;
	pthread_mutex_init(&s->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&s->changed, &attr);
	pthread_condattr_destroy(&attr);
	return s;
}

/* Sends ERROR without a session, so that the peer does not wait for HELLO. */
static int refuse_session(struct channel *ch, const struct session_opts *o)
{
	uint64_t deadline_ms = clock_ms() + LAST_FRAMES_MS;
	uint8_t body[sizeof(struct msg_error) + 8];
	struct failure f = *failed();
	size_t len = encode_failure(&f, o->host, body, sizeof body);

	if (len && frame_write(ch, MSG_ERROR, body, len, deadline_ms) == 0)
		channel_flush(ch, deadline_ms);
	channel_free(ch);
	return fail_again(&f);
}

int session_open(struct channel *ch, const void *already_read, size_t len,
		 const struct session_opts *o, char host[static HOST_MAX], struct session **out)
{
	struct control_handler handler = {
		.on_frame = session_on_frame,
		.on_lost = session_on_lost,
		.on_refused = session_on_refused,
		.heard_ms = session_heard_ms,
		.pings = true,
	};
	struct session *s = session_new(o);
	union address peer;

	host[0] = '\0';
	if (!s) {
		fail_as(OUT_MEMORY, "open a session: %m");
		return refuse_session(ch, o);
	}
	s->rtt_us = channel_rtt_us(ch);
	if (!channel_addresses(ch, &s->local, &peer))
		s->local = s->o.reached;
	handler.ctx = s;
	handler.peer = s->o.peer;
	if (options_complete(&s->o) < 0 || hello_make(s) < 0 ||
	    control_start(ch, &handler, already_read, len, &s->control) < 0) {
		refuse_session(ch, &s->o);
		goto fail;
	}
	if (session_begin(s) == 0) {
		*out = s;
		return 0;
	}
	session_fail(s);
	session_failed(s, NULL, host);
fail:
	session_close(s);
	return -1;
}

void session_close(struct session *s)
{
	struct failure f = *failed();

	if (!s)
		return;
	promote_close(s);
	offer_close(s);
	if (s->control)
		session_flush(s);
	control_close(s->control);
	porter_free(s->own_porter);
	for (unsigned i = 0; i < s->terms.lanes; i++)
		lane_end_close(&s->ends[i]);
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->lock);
	explicit_bzero(&s->key, sizeof s->key);
	explicit_bzero(&s->dial_key, sizeof s->dial_key);
	explicit_bzero(&s->o, sizeof s->o);
	free(s);
	fail_again(&f);
}

/* ---- an open session -------------------------------------------------------------------- */

unsigned session_lanes(const struct session *s)
{
	return s->terms.lanes;
}

struct lane *session_lane(struct session *s, unsigned i)
{
	return s->ends[i].lane;
}

int session_send(struct session *s, uint8_t type, const void *body, size_t len)
{
	/* All data is stored. */
	if (type == MSG_END)
		promote_stop(s);
	return control_send(s->control, type, body, len);
}

/* Returns whether the peer may still get what is left. */
static bool flush_until(struct session *s, uint64_t deadline)
{
	struct failure f = *failed();
	bool left;

	pthread_mutex_lock(&s->lock);
	while (s->error_pending && clock_left(deadline) > 0) {
		struct timespec until = clock_after((uint64_t)clock_left(deadline));

		pthread_cond_timedwait(&s->changed, &s->lock, &until);
	}
	pthread_mutex_unlock(&s->lock);
	left = control_flush(s->control, deadline) != 0 && clock_left(deadline) == 0;
	fail_again(&f);
	return left;
}

void session_flush(struct session *s)
{
	flush_until(s, clock_ms() + LAST_FRAMES_MS);
}

void session_deliver(struct session *s)
{
	uint64_t until = clock_ms() + (uint64_t)s->terms.timeout_ms;

	while (!cancelled() && clock_left(until) > 0 &&
	       flush_until(s, clock_ms() + SIGNAL_CHECK_MS))
		;
}

const struct msg_hello *session_peer(const struct session *s)
{
	return &s->peer;
}

/* Takes the device, "rxe0", from a wire's name, "rdma rxe0 10.0.0.1:7000". Returns false for a TCP
 * wire. */
static bool parse_device(const char *name, char device[static 64])
{
	return sscanf(name, "rdma %63s", device) == 1;
}

/* "rdma rxe0, rxe1" if the lanes use several adapters, else the name of lane 0's wire. */
static void format_wires(struct session *s, char *to, size_t size)
{
	char name[96], device[64], all[HOST_MAX] = "", *list = all;
	unsigned count = 0;

	for (unsigned i = 0; i < s->terms.lanes; i++) {
		char word[68];

		lane_name(s->ends[i].lane, name, sizeof name);
		if (!parse_device(name, device))
			continue;
		snprintf(word, sizeof word, ", %s,", device);
		if (count > 0 && strstr(all, word))
			continue;
		if (sizeof all - (size_t)(list - all) < sizeof word)
			break;
		/* Each device is between two commas, so that strstr() matches whole names; the
		 * comma behind one is the comma before the next. */
		list = stpcpy(count ? list - 1 : list, word);
		count++;
	}
	lane_name(s->ends[0].lane, to, size);
	if (count > 1 && parse_device(to, device))
		snprintf(to, size, "rdma %.*s", (int)(strlen(all) - 3), all + 2);
}

enum transport session_transport(struct session *s, char *wires, size_t wires_size, char *why,
				 size_t why_size)
{
	enum transport t = (enum transport)atomic_load(&s->ends[0].transport);

	format_wires(s, wires, wires_size);
	pthread_mutex_lock(&s->lock);
	snprintf(why, why_size, "%s", t == TRANSPORT_RDMA ? "" : s->route.why);
	pthread_mutex_unlock(&s->lock);
	return t;
}

void session_stats(struct session *s, struct lane_stats *out)
{
	*out = (struct lane_stats){0};
	for (unsigned i = 0; i < s->terms.lanes; i++) {
		struct lane_stats l;

		lane_stats(s->ends[i].lane, &l);
		out->blocks += l.blocks;
		out->bytes += l.bytes;
		out->resent += l.resent;
		out->encrypted += l.encrypted;
		out->ns_cipher += l.ns_cipher;
		out->wire_bytes += l.wire_bytes;
		out->ns_compress += l.ns_compress;
		out->ns_fill += l.ns_fill;
		out->ns_free += l.ns_free;
		out->ns_send += l.ns_send;
		out->ns_block += l.ns_block;
		out->ns_store += l.ns_store;
		out->epochs += l.epochs;
	}
}

enum encrypted session_encrypted(struct session *s, uint8_t *cipher)
{
	struct lane_stats stats;

	session_stats(s, &stats);
	*cipher = stats.encrypted ? (uint8_t)s->terms.cipher : CIPHER_NONE;
	if (stats.encrypted == 0)
		return ENCRYPTED_NONE;
	return stats.encrypted < stats.blocks ? ENCRYPTED_SOME : ENCRYPTED_ALL;
}

/* Converts bytes to time. Each call reserves the next stretch of time for its lane. */
int session_pace(struct session *s, uint32_t len, uint64_t *waited_ns)
{
	uint64_t start, now, due;
	bool has_failed;

	if (s->o.bwlimit == 0 || (s->side == LANE_SINK && s->o.has_conductor))
		return 0;
	start = now = clock_ns();
	pthread_mutex_lock(&s->lock);
	if (s->pace_ns + PACE_BURST_NS < now)
		s->pace_ns = now - PACE_BURST_NS;
	s->pace_ns += (uint64_t)((double)len * 1e9 / (double)s->o.bwlimit);
	due = s->pace_ns;
	while (!s->failed && (now = clock_ns()) < due) {
		struct timespec until = clock_after((due - now) / 1000000 + 1);

		pthread_cond_timedwait(&s->changed, &s->lock, &until);
	}
	has_failed = s->failed;
	pthread_mutex_unlock(&s->lock);
	*waited_ns += clock_ns() - start;
	return has_failed ? session_fail(s) : 0;
}
