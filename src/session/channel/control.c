/* SPDX-License-Identifier: Apache-2.0 */
#include "session/channel/control.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fail.h"
#include "base/io.h"
#include "base/worker.h"
#include "session/channel/framer.h"

enum {
	OUTBOX_RESERVE = 128 << 10, /* of OUTBOX_MAX, for callers that must not wait */
	PONG_ROOM = 64 << 10, /* send no PONG if more than this is queued */
	READS_AT_ONCE = 16, /* before the outbox is served again */
	LAST_FRAMES_MS = 1000, /* how long to read from a peer after writing to it failed */
	PINGS = 8, /* sent within the silence timeout */
	CHANNEL_TIMEOUTS = 3, /* timeouts of silence on the channel while lanes live */
};

struct control {
	struct channel *ch;
	struct control_handler h;
	char peer[HOST_MAX];
	struct worker worker;
	int wake; /* eventfd: the outbox is no longer empty, or closing */
	_Atomic int timeout_ms;
	_Atomic uint64_t last_ping, last_pong; /* cookies: of the last PING, the last PONG */

	pthread_mutex_t lock;
	pthread_cond_t drained; /* CLOCK_MONOTONIC: more room, or senders must stop waiting */
	uint8_t *outbox; /* a ring */
	size_t start, used;
	size_t touched; /* no byte from here on was ever written */
	bool lost, closing, no_wait;
	struct failure why; /* valid if lost */

	/* used by the control thread only */
	uint8_t *already_read; /* bytes of the stream that came before this thread began */
	size_t already_read_at, already_read_len;
	bool input_refused; /* on_refused() was called */
	bool write_failed; /* the thread only reads, until drain_until (clock_ms) */
	uint64_t drain_until;
	/* Time in which this process ran and heard nothing: on this channel; on any path. */
	uint64_t channel_silence_ms, peer_silence_ms;
	unsigned unanswered; /* PINGs sent in this silence */
	struct framer fr;
};

static _Thread_local const struct control *own_control;

/* ---- the outbox ---------------------------------------------------------------------- */

static void outbox_put(struct control *c, const void *from, size_t len)
{
	size_t at = (c->start + c->used) % OUTBOX_MAX;
	size_t first = len < OUTBOX_MAX - at ? len : OUTBOX_MAX - at;

	if (len == 0)
		return;
	memcpy(c->outbox + at, from, first);
	memcpy(c->outbox, (const uint8_t *)from + first, len - first);
	c->used += len;
	if (at + first > c->touched)
		c->touched = at + first;
}

static void wake_thread(struct control *c)
{
	raise_event(c->wake);
}

/* With the lock held. */
static void queue_frame(struct control *c, uint8_t type, const void *body, size_t len)
{
	uint8_t head[FRAME_HEAD];
	bool was_empty = c->used == 0;

	frame_head_encode(type, (uint32_t)len, head);
	outbox_put(c, head, sizeof head);
	outbox_put(c, body, len);
	if (was_empty && own_control != c)
		wake_thread(c);
}

static int send_frame(struct control *c, uint8_t type, const void *body, size_t len, bool wait)
{
	size_t need = FRAME_HEAD + len;
	size_t most = wait ? OUTBOX_MAX - OUTBOX_RESERVE : OUTBOX_MAX;
	int rc = 0;

	if (len > FRAME_BODY_MAX)
		return fail_as(OUT_PROTOCOL, "%s of %zu bytes is too long", message_name(type),
			       len);
	pthread_mutex_lock(&c->lock);
	while (wait && !c->lost && !c->closing && !c->no_wait && c->used + need > most)
		pthread_cond_wait(&c->drained, &c->lock);
	if (c->no_wait)
		most = OUTBOX_MAX;
	if (c->lost)
		rc = fail_again(&c->why);
	else if (c->closing)
		rc = fail_as(OUT_PEER_LOST, "the connection to %s is being closed", c->peer);
	else if (c->used + need > most)
		rc = fail_as(OUT_TIMEOUT, "%s does not read the control channel", c->peer);
	else
		queue_frame(c, type, body, len);
	pthread_mutex_unlock(&c->lock);
	return rc;
}

int control_send(struct control *c, uint8_t type, const void *body, size_t len)
{
	return send_frame(c, type, body, len, own_control != c);
}

int control_post(struct control *c, uint8_t type, const void *body, size_t len)
{
	return send_frame(c, type, body, len, false);
}

void control_no_wait(struct control *c)
{
	pthread_mutex_lock(&c->lock);
	c->no_wait = true;
	pthread_cond_broadcast(&c->drained);
	pthread_mutex_unlock(&c->lock);
}

/* The first contiguous part of the outbox. It stays valid without the lock, because other threads
 * only append. */
static size_t outbox_piece(struct control *c, const uint8_t **at)
{
	size_t len;

	pthread_mutex_lock(&c->lock);
	*at = c->outbox + c->start;
	len = c->used < OUTBOX_MAX - c->start ? c->used : OUTBOX_MAX - c->start;
	pthread_mutex_unlock(&c->lock);
	return len;
}

static void outbox_written(struct control *c, size_t len)
{
	pthread_mutex_lock(&c->lock);
	c->used -= len;
	/* Start over at the first pages, which are already in memory. */
	c->start = c->used ? (c->start + len) % OUTBOX_MAX : 0;
	pthread_cond_broadcast(&c->drained);
	pthread_mutex_unlock(&c->lock);
}

/* This thread's failure is that of the channel. Returns -1. */
static int fail_channel(struct control *c)
{
	struct failure f = *failed();

	return f.code == OUT_PEER_LOST
		       ? fail_as(f.code, "lost the connection to %s: %s", c->peer, f.text)
		       : -1;
}

/* Makes this thread's failure the one that senders get from now on, unless they have one. */
static void fail_senders(struct control *c)
{
	pthread_mutex_lock(&c->lock);
	if (!c->lost) {
		c->lost = true;
		c->why = *failed();
	}
	pthread_cond_broadcast(&c->drained);
	pthread_mutex_unlock(&c->lock);
}

/* Writes what the channel accepts. Returns true if something is left. */
static bool write_outbox(struct control *c)
{
	while (!c->write_failed) {
		const uint8_t *at;
		size_t len = outbox_piece(c, &at);
		ssize_t n = len ? channel_write(c->ch, at, len) : 0;

		if (n > 0) {
			outbox_written(c, (size_t)n);
			continue;
		}
		if (n == 0)
			return len > 0;
		/* The peer may have sent ERROR, with the reason, before it closed. */
		c->write_failed = true;
		c->drain_until = clock_ms() + LAST_FRAMES_MS;
		fail_channel(c);
		fail_senders(c);
	}
	return false;
}

/* ---- reading -------------------------------------------------------------------------- */

/* Queues a PING or PONG, if there is room. */
static void push_ping(struct control *c, uint8_t type, const struct msg_ping *m)
{
	uint8_t body[8];
	struct writer w = writer_of(body, sizeof body);

	msg_ping_encode(&w, m);
	pthread_mutex_lock(&c->lock);
	if (!c->lost && c->used < PONG_ROOM)
		queue_frame(c, type, body, w.used);
	pthread_mutex_unlock(&c->lock);
}

static int take_ping(struct control *c, const struct frame *f)
{
	struct msg_ping m;

	if (msg_ping_decode(f, &m) != 0)
		return -1;
	if (f->type == MSG_PING)
		push_ping(c, MSG_PONG, &m);
	else if (m.cookie == 0 || m.cookie > atomic_load(&c->last_ping))
		return fail_as(OUT_PROTOCOL, "%s answered a PING that was never sent", c->peer);
	else
		atomic_store(&c->last_pong, m.cookie);
	return 0;
}

static int handle_frame(struct control *c, const struct frame *f)
{
	if (c->h.pings && (f->type == MSG_PING || f->type == MSG_PONG))
		return take_ping(c, f);
	return c->h.on_frame(c->h.ctx, f);
}

/* Reads no more frames, because of this thread's failure. Returns -1 if the channel is lost too. */
static int refuse_input(struct control *c)
{
	if (c->input_refused || !c->h.on_refused)
		return -1;
	c->input_refused = true;
	c->h.on_refused(c->h.ctx);
	return 0;
}

/* Handles all whole frames that have arrived. */
static int take_frames(struct control *c)
{
	struct frame f;
	int rc = 0;

	while (rc == 0 && !c->input_refused && (rc = framer_next(&c->fr, &f)) > 0)
		rc = handle_frame(c, &f);
	if (rc < 0 && refuse_input(c) != 0)
		return -1;
	if (c->input_refused)
		framer_init(&c->fr);
	return 0;
}

static ssize_t read_some(struct control *c, void *to, size_t len, bool *eof)
{
	size_t left = c->already_read_len - c->already_read_at;

	if (left == 0)
		return channel_read(c->ch, to, len, eof);
	*eof = false;
	if (len > left)
		len = left;
	memcpy(to, c->already_read + c->already_read_at, len);
	c->already_read_at += len;
	return (ssize_t)len;
}

/* Fails because the stream ended. *clean: between two frames. */
static int fail_ended(struct control *c, bool *clean)
{
	*clean = c->fr.start == c->fr.end;
	fail_as(OUT_PEER_LOST, "%s closed the connection%s", c->peer,
		*clean ? "" : " in the middle of a message");
	return fail_channel(c);
}

static void reset_silence(struct control *c)
{
	c->channel_silence_ms = c->peer_silence_ms = 0;
	c->unanswered = 0;
}

/* Reads and handles what has arrived. Sets *more if there may be more to read now. */
static int read_frames(struct control *c, bool *more, bool *clean)
{
	*more = true;
	for (unsigned i = 0; i < READS_AT_ONCE; i++) {
		size_t room;
		void *to = framer_room(&c->fr, &room);
		bool eof;
		ssize_t n = read_some(c, to, room, &eof);

		if (n < 0)
			return fail_channel(c);
		if (eof)
			return fail_ended(c, clean);
		if (n == 0) {
			*more = false;
			return 0;
		}
		reset_silence(c);
		framer_filled(&c->fr, (size_t)n);
		if (take_frames(c) != 0)
			return -1;
	}
	return 0;
}

/* ---- silence ---------------------------------------------------------------------------- */

static void send_ping(struct control *c)
{
	struct msg_ping m = {.cookie = atomic_fetch_add(&c->last_ping, 1) + 1};

	c->unanswered++;
	push_ping(c, MSG_PING, &m);
}

/* The silence after which the next PING is due: 1/8, 2/8 ... of the limit. */
static uint64_t ping_due(const struct control *c, uint64_t limit)
{
	return limit * (c->unanswered + 1) / PINGS;
}

static void count_lane_activity(struct control *c)
{
	uint64_t at = c->h.heard_ms ? c->h.heard_ms(c->h.ctx) : 0;
	uint64_t since = at ? clock_ms() - at : UINT64_MAX;

	if (since < c->peer_silence_ms)
		c->peer_silence_ms = since;
}

/* Returns -1 if the peer has been silent for too long, or LAST_FRAMES_MS after a failed write. */
static int check_channel_silence(struct control *c)
{
	uint64_t limit = (uint64_t)atomic_load(&c->timeout_ms);

	if (c->write_failed && clock_ms() >= c->drain_until)
		return fail_again(&c->why);
	if (limit == 0 || c->input_refused)
		return 0;
	count_lane_activity(c);
	if (c->peer_silence_ms >= limit || c->channel_silence_ms >= CHANNEL_TIMEOUTS * limit) {
		if (c->peer_silence_ms >= limit)
			fail_as(OUT_TIMEOUT, "%s has been silent for %g s", c->peer,
				(double)limit / 1000);
		else
			fail_as(OUT_TIMEOUT,
				"the control channel to %s has been silent for %g s, although "
				"data moves",
				c->peer, (double)c->channel_silence_ms / 1000);
		/* Unacknowledged bytes show that the host is gone, so ERROR cannot reach it. */
		return channel_unsent(c->ch) > 0 ? -1 : refuse_input(c);
	}
	if (c->h.pings && c->channel_silence_ms >= ping_due(c, limit))
		send_ping(c);
	return 0;
}

/* Milliseconds until the next timer is due; -1: none. */
static int next_due_ms(const struct control *c)
{
	uint64_t limit = (uint64_t)atomic_load(&c->timeout_ms);
	uint64_t left, ping;

	if (c->write_failed)
		return clock_left(c->drain_until);
	if (limit == 0 || c->input_refused)
		return -1;
	left = limit > c->peer_silence_ms ? limit - c->peer_silence_ms : 0;
	ping = ping_due(c, limit);
	ping = ping > c->channel_silence_ms ? ping - c->channel_silence_ms : 0;
	return (int)(c->h.pings && ping < left ? ping : left);
}

/* Counts the time that was waited, at most the time that was asked for. If poll(2) returned much
 * later, this process was stopped, and the peer may have been stopped too. */
static void count_silence(struct control *c, uint64_t slept, int asked)
{
	if (asked >= 0 && slept > (uint64_t)asked + CLOCK_LATE_MS) {
		reset_silence(c);
		return;
	}
	if (asked >= 0 && slept > (uint64_t)asked)
		slept = (uint64_t)asked;
	c->channel_silence_ms += slept;
	c->peer_silence_ms += slept;
}

/* ---- the thread --------------------------------------------------------------------------- */

static int wait_for_events(struct control *c, bool want_write, bool more)
{
	struct pollfd p[3] = {{.fd = c->wake, .events = POLLIN}};
	int n = 1 + channel_polls(c->ch, want_write, p + 1);
	int asked = more ? 0 : next_due_ms(c);
	uint64_t from = clock_ms();
	uint64_t wakes;

	if (poll(p, (nfds_t)n, asked) < 0 && errno != EINTR)
		return fail_as(OUT_SOCKET, "wait for %s: %m", c->peer);
	count_silence(c, clock_ms() - from, asked);
	if ((p[0].revents & POLLIN) && read(c->wake, &wakes, sizeof wakes) < 0 && errno != EAGAIN)
		return fail_as(OUT_SOCKET, "wait for %s: %m", c->peer);
	return 0;
}

static bool is_closing(struct control *c)
{
	bool closing;

	pthread_mutex_lock(&c->lock);
	closing = c->closing;
	pthread_mutex_unlock(&c->lock);
	return closing;
}

/* Serves the channel until it is lost (-1) or control_close() was called (0). */
static int serve_channel(struct control *c, bool *clean)
{
	while (!is_closing(c)) {
		bool more, left;

		if (read_frames(c, &more, clean) != 0)
			return -1;
		if (check_channel_silence(c) != 0)
			return -1;
		left = write_outbox(c);
		if (wait_for_events(c, left, more) != 0)
			return -1;
	}
	return 0;
}

static void *control_run(void *arg)
{
	struct control *c = arg;
	bool clean = false;

	own_control = c;
	if (serve_channel(c, &clean) != 0) {
		fail_senders(c);
		if (!is_closing(c))
			c->h.on_lost(c->h.ctx, clean);
	}
	return NULL;
}

/* ---- start and end ------------------------------------------------------------------------ */

static int locks_init(struct control *c)
{
	pthread_condattr_t attr;
	int rc;

	if (pthread_condattr_init(&attr) != 0)
		return -1;
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	rc = pthread_cond_init(&c->drained, &attr);
	pthread_condattr_destroy(&attr);
	if (rc != 0)
		return -1;
	if (pthread_mutex_init(&c->lock, NULL) != 0) {
		pthread_cond_destroy(&c->drained);
		return -1;
	}
	return 0;
}

static void control_free(struct control *c)
{
	channel_free(c->ch);
	close_fd(c->wake);
	if (c->already_read)
		explicit_bzero(c->already_read, c->already_read_len);
	free(c->already_read);
	/* Not the rest, which has no memory yet. */
	if (c->outbox)
		explicit_bzero(c->outbox, c->touched);
	free(c->outbox);
	framer_wipe(&c->fr);
	pthread_mutex_destroy(&c->lock);
	pthread_cond_destroy(&c->drained);
	free(c);
}

static struct control *control_new(const struct control_handler *h, const void *already_read,
				   size_t already_read_len)
{
	struct control *c = calloc(1, sizeof *c);

	if (!c || locks_init(c) != 0) {
		free(c);
		return NULL;
	}
	c->h = *h;
	c->timeout_ms = h->timeout_ms;
	snprintf(c->peer, sizeof c->peer, "%s", h->peer ? h->peer : "the peer");
	framer_init(&c->fr);
	c->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	c->outbox = malloc(OUTBOX_MAX);
	c->already_read = malloc(already_read_len + 1);
	if (c->wake < 0 || !c->outbox || !c->already_read) {
		control_free(c);
		return NULL;
	}
	if (already_read_len > 0)
		memcpy(c->already_read, already_read, already_read_len);
	c->already_read_len = already_read_len;
	return c;
}

int control_start(struct channel *ch, const struct control_handler *h, const void *already_read,
		  size_t already_read_len, struct control **out)
{
	struct control *c = control_new(h, already_read, already_read_len);

	if (!c)
		return fail_as(OUT_MEMORY, "start the control channel: %m");
	c->ch = ch;
	channel_set_peer(ch, c->peer);
	/* Before the thread starts: its first handler may use *out. */
	*out = c;
	if (worker_start(&c->worker, "control", control_run, c) != 0) {
		*out = NULL;
		c->ch = NULL;
		control_free(c);
		return -1;
	}
	return 0;
}

uint64_t control_pings(const struct control *c, uint64_t *answered)
{
	*answered = atomic_load(&c->last_pong);
	return atomic_load(&c->last_ping);
}

void control_set_timeout(struct control *c, int timeout_ms)
{
	atomic_store(&c->timeout_ms, timeout_ms);
	channel_set_timeout(c->ch, timeout_ms);
	wake_thread(c);
}

int control_flush(struct control *c, uint64_t deadline_ms)
{
	bool lost, left;

	if (own_control == c)
		return fail_as(OUT_PROTOCOL, "the control thread can't wait for itself");
	pthread_mutex_lock(&c->lock);
	while (!c->lost && c->used > 0 && clock_left(deadline_ms) > 0) {
		struct timespec until = clock_after((uint64_t)clock_left(deadline_ms));

		pthread_cond_timedwait(&c->drained, &c->lock, &until);
	}
	lost = c->lost;
	left = c->used > 0;
	if (lost)
		fail_again(&c->why);
	pthread_mutex_unlock(&c->lock);
	if (lost)
		return -1;
	if (left)
		return fail_as(OUT_TIMEOUT, "%s does not read the control channel", c->peer);
	if (!channel_flush(c->ch, deadline_ms))
		return fail_as(OUT_TIMEOUT, "%s does not acknowledge the control channel", c->peer);
	return 0;
}

void control_close(struct control *c)
{
	if (!c)
		return;
	pthread_mutex_lock(&c->lock);
	c->closing = true;
	pthread_cond_broadcast(&c->drained);
	pthread_mutex_unlock(&c->lock);
	wake_thread(c);
	worker_join(&c->worker);
	control_free(c);
}
