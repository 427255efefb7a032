/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/cursor.h"
#include "session/channel/control.h"
#include "session/channel/framer.h"

enum { PATIENCE_MS = 20000 };

/* ---- one end, whose handler records what it gets -------------------------------------------- */

struct side {
	pthread_mutex_t lock;
	pthread_cond_t news;
	unsigned frames, pings, errors, lost, refused;
	uint64_t last[2]; /* the last WANT number from each of two threads */
	bool disorder, clean, lost_in_frame;
	struct failure why;
	int (*also)(struct side *s, const struct frame *f);
	atomic_bool lanes; /* lanes exist, and the peer is heard on them right now */
	struct control *control;
};

static int remember(void *ctx, const struct frame *f)
{
	struct side *s = ctx;
	int rc = 0;

	pthread_mutex_lock(&s->lock);
	s->frames++;
	s->pings += f->type == MSG_PING;
	s->errors += f->type == MSG_ERROR;
	if (f->type == MSG_WANT) {
		struct reader r = reader_of(f->body, f->len);
		unsigned thread = take_u8(&r) & 1;
		uint64_t number = take_u64(&r);

		s->disorder |= r.bad || number != s->last[thread] + 1;
		s->last[thread] = number;
	}
	if (s->also)
		rc = s->also(s, f);
	pthread_cond_broadcast(&s->news);
	pthread_mutex_unlock(&s->lock);
	return rc;
}

static void remember_loss(void *ctx, bool clean)
{
	struct side *s = ctx;

	pthread_mutex_lock(&s->lock);
	s->lost++;
	s->clean = clean;
	s->why = *failed();
	pthread_cond_broadcast(&s->news);
	pthread_mutex_unlock(&s->lock);
}

static void remember_refusal(void *ctx)
{
	struct side *s = ctx;

	pthread_mutex_lock(&s->lock);
	s->refused++;
	s->why = *failed();
	pthread_cond_broadcast(&s->news);
	pthread_mutex_unlock(&s->lock);
}

static struct side *side_new(int (*also)(struct side *s, const struct frame *f))
{
	struct side *s = calloc(1, sizeof *s);
	pthread_condattr_t attr;

	assert_non_null(s);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&s->news, &attr);
	pthread_condattr_destroy(&attr);
	pthread_mutex_init(&s->lock, NULL);
	s->also = also;
	return s;
}

static void side_free(struct side *s)
{
	control_close(s->control);
	pthread_mutex_destroy(&s->lock);
	pthread_cond_destroy(&s->news);
	free(s);
}

static uint64_t heard_elsewhere_ms(void *ctx)
{
	struct side *s = ctx;

	return atomic_load(&s->lanes) ? clock_ms() : 0;
}

static void start(struct side *s, struct channel *ch, int timeout_ms, bool pings)
{
	struct control_handler h = {
		.on_frame = remember,
		.on_lost = remember_loss,
		.heard_ms = heard_elsewhere_ms,
		.ctx = s,
		.timeout_ms = timeout_ms,
		.pings = pings,
		.peer = "storage2",
	};

	assert_int_equal(control_start(ch, &h, NULL, 0, &s->control), 0);
}

static void socket_pair(int fd[2])
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
}

/* A side over one end of a socket pair; the other end is a plain descriptor. */
static struct side *side_over(int *raw, int timeout_ms, bool pings)
{
	struct side *s = side_new(NULL);
	struct channel *ch;
	int fd[2];

	socket_pair(fd);
	assert_int_equal(channel_over_fds(fd[0], fd[0], &ch), 0);
	start(s, ch, timeout_ms, pings);
	*raw = fd[1];
	return s;
}

#define WAIT_UNTIL(s, condition)                                                                   \
	do {                                                                                       \
		struct timespec until = clock_after(PATIENCE_MS);                                  \
		int rc_ = 0;                                                                       \
                                                                                                   \
		pthread_mutex_lock(&(s)->lock);                                                    \
		while (!(condition) && rc_ == 0)                                                   \
			rc_ = pthread_cond_timedwait(&(s)->news, &(s)->lock, &until);              \
		rc_ = (condition) ? 0 : -1;                                                        \
		pthread_mutex_unlock(&(s)->lock);                                                  \
		assert_int_equal(rc_, 0);                                                          \
	} while (0)

static unsigned now(struct side *s, const unsigned *count)
{
	unsigned v;

	pthread_mutex_lock(&s->lock);
	v = *count;
	pthread_mutex_unlock(&s->lock);
	return v;
}

static size_t frame_of(uint8_t *to, uint8_t type, const void *body, size_t len)
{
	frame_head_encode(type, (uint32_t)len, to);
	if (len > 0)
		memcpy(to + FRAME_HEAD, body, len);
	return FRAME_HEAD + len;
}

static size_t ping_of(uint8_t *to, uint8_t type, uint64_t cookie)
{
	struct msg_ping m = {.cookie = cookie};
	struct writer w = writer_of(to + FRAME_HEAD, 8);

	msg_ping_encode(&w, &m);
	frame_head_encode(type, 8, to);
	return FRAME_HEAD + 8;
}

static void write_whole(int fd, const void *bytes, size_t len)
{
	assert_int_equal(write(fd, bytes, len), len);
}

/* ---- order and backpressure ------------------------------------------------------------- */

/* Sends frames of one size that carry a thread's number and a counter from 1. */
struct sender {
	pthread_t thread;
	struct control *control;
	uint8_t number;
	size_t size;
	unsigned count;
	_Atomic unsigned sent;
	int rc;
	struct failure why;
};

static void *send_all(void *arg)
{
	struct sender *s = arg;
	uint8_t *body = calloc(1, s->size);

	for (unsigned i = 1; i <= s->count && s->rc == 0; i++) {
		struct writer w = writer_of(body, s->size);

		put_u8(&w, s->number);
		put_u64(&w, i);
		s->rc = control_send(s->control, MSG_WANT, body, s->size);
		s->sent += s->rc == 0;
	}
	s->why = *failed();
	free(body);
	return NULL;
}

static void sender_start(struct sender *s)
{
	assert_int_equal(pthread_create(&s->thread, NULL, send_all, s), 0);
}

static void many_threads_talk_at_once(struct channel *one, struct channel *other)
{
	struct side *sides[2] = {side_new(NULL), side_new(NULL)};
	struct sender senders[4] = {0};

	start(sides[0], one, 60000, true);
	start(sides[1], other, 60000, true);
	for (unsigned i = 0; i < 4; i++) {
		senders[i].control = sides[i / 2]->control;
		senders[i].number = i % 2;
		senders[i].size = i % 2 ? FRAME_BODY_MAX : 9;
		senders[i].count = i % 2 ? 100 : 3000;
		sender_start(&senders[i]);
	}
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(pthread_join(senders[i].thread, NULL), 0);
		assert_int_equal(senders[i].rc, 0);
	}
	for (unsigned i = 0; i < 2; i++) {
		struct side *s = sides[i];

		WAIT_UNTIL(s, s->frames == 3100);
		assert_int_equal(control_flush(s->control, clock_ms() + PATIENCE_MS), 0);
	}
	for (unsigned i = 0; i < 2; i++) {
		assert_false(sides[i]->disorder);
		assert_int_equal(now(sides[i], &sides[i]->lost), 0);
	}
	control_close(sides[0]->control);
	sides[0]->control = NULL;
	WAIT_UNTIL(sides[1], sides[1]->lost == 1);
	assert_true(sides[1]->clean);
	assert_int_equal(now(sides[0], &sides[0]->lost), 0);
	side_free(sides[0]);
	side_free(sides[1]);
}

static void frames_come_in_order(void **state)
{
	struct channel *one, *other;
	int fd[2];

	(void)state;
	socket_pair(fd);
	assert_int_equal(channel_over_fds(fd[0], fd[0], &one), 0);
	assert_int_equal(channel_over_fds(fd[1], fd[1], &other), 0);
	many_threads_talk_at_once(one, other);
}

static void frames_come_in_order_over_tls(void **state)
{
	static const struct psk key = {{1, 2, 3}};
	struct channel *one, *other;
	int fd[2], a = 0, b = 0;

	(void)state;
	socket_pair(fd);
	assert_int_equal(channel_tls_client(fd[0], &key, &one), 0);
	assert_int_equal(channel_tls_server(fd[1], &key, &other), 0);
	for (unsigned i = 0; i < 20 && (a != 1 || b != 1); i++) {
		a = channel_handshake(one);
		b = channel_handshake(other);
	}
	assert_int_equal(a + b, 2);
	many_threads_talk_at_once(one, other);
}

/* Wait until it has sent nothing for half a second. */
static unsigned stalled_at(struct sender *s)
{
	unsigned before, after = s->sent;

	do {
		before = after;
		usleep(500000);
		after = s->sent;
	} while (after != before || after == 0);
	return after;
}

static void unread_outbox_blocks_senders(void **state)
{
	struct sender sender = {.size = 10000, .count = 500};
	static uint8_t got[1 << 16];
	static struct framer fr;
	unsigned came = 0, stalled;
	struct side *s;
	int raw;

	(void)state;
	s = side_over(&raw, 0, true);
	sender.control = s->control;
	sender_start(&sender);
	stalled = stalled_at(&sender);
	assert_true(stalled < sender.count);
	assert_true((size_t)stalled * sender.size >= OUTBOX_MAX / 2);
	/* ERROR still has room reserved for it. */
	assert_int_equal(control_post(s->control, MSG_GO, NULL, 0), 0);
	framer_init(&fr);
	while (came < sender.count + 1) {
		struct frame f;
		size_t room;
		void *to = framer_room(&fr, &room);
		ssize_t n = read(raw, got, room < sizeof got ? room : sizeof got);

		assert_true(n > 0);
		memcpy(to, got, (size_t)n);
		framer_filled(&fr, (size_t)n);
		while (framer_next(&fr, &f) == 1) {
			came++;
			assert_true(f.type == MSG_GO || f.len == sender.size);
		}
	}
	assert_int_equal(pthread_join(sender.thread, NULL), 0);
	assert_int_equal(sender.rc, 0);
	side_free(s);
	close(raw);
}

static void full_outbox_refuses_frames_that_must_not_wait(void **state)
{
	static const uint8_t body[FRAME_BODY_MAX];
	unsigned taken = 0;
	struct side *s;
	int raw, rc;

	(void)state;
	s = side_over(&raw, 0, true);
	while ((rc = control_post(s->control, MSG_WANT, body, sizeof body)) == 0)
		taken++;
	assert_int_equal(rc, -1);
	assert_int_equal(failed()->code, OUT_TIMEOUT);
	assert_true(taken >= 10);
	assert_int_equal(control_flush(s->control, clock_ms() + 50), -1);
	assert_int_equal(failed()->code, OUT_TIMEOUT);
	assert_int_equal(control_post(s->control, MSG_WANT, body, sizeof body + 1), -1);
	assert_int_equal(failed()->code, OUT_PROTOCOL);
	side_free(s);
	close(raw);
}

static void hurry_ends_a_blocked_send(void **state)
{
	struct sender sender = {.size = 10000, .count = 500};
	struct side *s;
	int raw;

	(void)state;
	s = side_over(&raw, 0, true);
	sender.control = s->control;
	sender_start(&sender);
	stalled_at(&sender);
	control_no_wait(s->control);
	assert_int_equal(pthread_join(sender.thread, NULL), 0);
	assert_int_equal(sender.rc, -1);
	assert_int_equal(sender.why.code, OUT_TIMEOUT);
	assert_int_equal(now(s, &s->lost), 0);
	side_free(s);
	close(raw);
}

static void connection_loss_ends_a_blocked_send(void **state)
{
	struct sender sender = {.size = 10000, .count = 500};
	struct side *s;
	int raw;

	(void)state;
	s = side_over(&raw, 0, true);
	sender.control = s->control;
	sender_start(&sender);
	stalled_at(&sender);
	close(raw);
	assert_int_equal(pthread_join(sender.thread, NULL), 0);
	assert_int_equal(sender.rc, -1);
	assert_int_equal(sender.why.code, OUT_PEER_LOST);
	WAIT_UNTIL(s, s->lost == 1);
	side_free(s);
}

/* Answers each frame with a large one, which must fail at some point instead of blocking. */
static int answer_large(struct side *s, const struct frame *f)
{
	static const uint8_t body[FRAME_BODY_MAX];

	(void)f;
	return control_send(s->control, MSG_WANT, body, sizeof body);
}

static void handler_never_blocks(void **state)
{
	struct side *s = side_new(answer_large);
	struct channel *ch;
	int fd[2];
	uint8_t go[FRAME_HEAD];

	(void)state;
	socket_pair(fd);
	for (unsigned i = 0; i < 100; i++)
		write_whole(fd[1], go, frame_of(go, MSG_GO, NULL, 0));
	assert_int_equal(channel_over_fds(fd[0], fd[0], &ch), 0);
	start(s, ch, 0, true);
	WAIT_UNTIL(s, s->lost == 1);
	assert_int_equal(s->why.code, OUT_TIMEOUT);
	assert_int_equal(s->frames < 100, 1);
	side_free(s);
	close(fd[1]);
}

/* ---- silence -------------------------------------------------------------------------------- */

static void silent_peer_is_detected(void **state)
{
	uint64_t from = clock_ms(), took;
	uint8_t got[256];
	struct side *s;
	int raw;

	(void)state;
	s = side_over(&raw, 800, true);
	WAIT_UNTIL(s, s->lost == 1);
	took = clock_ms() - from;
	assert_int_equal(s->why.code, OUT_TIMEOUT);
	assert_string_equal(s->why.text, "storage2 has been silent for 0.8 s");
	assert_false(s->clean);
	assert_true(took >= 800);
	assert_true(took < PATIENCE_MS / 2);
	/* Three pings were sent; more if this thread ran late. */
	assert_true(read(raw, got, sizeof got) >= 3 * (FRAME_HEAD + 8));
	assert_int_equal(got[4], MSG_PING);
	assert_int_equal(control_send(s->control, MSG_GO, NULL, 0), -1);
	assert_int_equal(failed()->code, OUT_TIMEOUT);
	side_free(s);
	close(raw);
}

/*
 * After an outage that the lanes survived, TCP may wait long before it retransmits the control
 * channel's bytes.
 */
static void lane_activity_extends_the_limit(void **state)
{
	uint64_t from = clock_ms();
	struct side *s;
	int raw;

	(void)state;
	s = side_over(&raw, 0, true);
	atomic_store(&s->lanes, true);
	control_set_timeout(s->control, 800);
	WAIT_UNTIL(s, s->lost == 1);
	assert_true(clock_ms() - from >= 3 * 800);
	assert_int_equal(s->why.code, OUT_TIMEOUT);
	assert_non_null(strstr(s->why.text, "although data moves"));
	side_free(s);
	close(raw);
}

static void silence_limit_can_be_changed(void **state)
{
	struct side *s;
	int raw;

	(void)state;
	s = side_over(&raw, 0, false);
	usleep(100000);
	assert_int_equal(now(s, &s->lost), 0);
	control_set_timeout(s->control, 300);
	WAIT_UNTIL(s, s->lost == 1);
	assert_int_equal(s->why.code, OUT_TIMEOUT);
	side_free(s);
	close(raw);
}

static double cpu_seconds(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec +
	       ((double)u.ru_utime.tv_usec + (double)u.ru_stime.tv_usec) / 1e6;
}

static void heartbeats_keep_an_idle_pair_alive(void **state)
{
	struct side *sides[2] = {side_new(NULL), side_new(NULL)};
	struct channel *ch[2];
	double before;
	int fd[2];

	(void)state;
	socket_pair(fd);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(channel_over_fds(fd[i], fd[i], &ch[i]), 0);
		start(sides[i], ch[i], 4000, true);
	}
	before = cpu_seconds();
	usleep(5000000);
	/*
	 * The promise is a tenth of this; a loop that does not sleep would use ten times as much.
	 */
	assert_true(cpu_seconds() - before < 0.5);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(now(sides[i], &sides[i]->lost), 0);
		assert_int_equal(now(sides[i], &sides[i]->frames), 0);
	}
	side_free(sides[0]);
	side_free(sides[1]);
}

/* Runs in a process of its own: 0 when a frame arrived, 1 when the peer was declared dead. */
static int until_frame_or_loss(int fd)
{
	struct side *s = calloc(1, sizeof *s);
	struct control_handler h = {
		.on_frame = remember, .on_lost = remember_loss, .ctx = s, .timeout_ms = 1500};
	struct channel *ch;

	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->news, NULL);
	if (channel_over_fds(fd, fd, &ch) != 0 || control_start(ch, &h, NULL, 0, &s->control) != 0)
		return 2;
	pthread_mutex_lock(&s->lock);
	while (!s->frames && !s->lost)
		pthread_cond_wait(&s->news, &s->lock);
	pthread_mutex_unlock(&s->lock);
	return s->frames ? 0 : 1;
}

static void own_pause_is_not_counted_as_peer_silence(void **state)
{
	uint8_t go[FRAME_HEAD];
	int fd[2], status;
	pid_t pid;

	(void)state;
	socket_pair(fd);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		close(fd[1]);
		_exit(until_frame_or_loss(fd[0]));
	}
	close(fd[0]);
	usleep(300000);
	assert_int_equal(kill(pid, SIGSTOP), 0);
	usleep(4000000);
	assert_int_equal(kill(pid, SIGCONT), 0);
	usleep(300000);
	/* It may have exited already; its status shows that. */
	if (write(fd[1], go, frame_of(go, MSG_GO, NULL, 0)) < 0)
		assert_int_equal(errno, EPIPE);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	close(fd[1]);
}

/* ---- PING --------------------------------------------------------------------------------------
 */

static void ping_is_answered(void **state)
{
	uint8_t ping[FRAME_HEAD + 8], pong[FRAME_HEAD + 8], got[64];
	struct side *s;
	int raw;

	(void)state;
	s = side_over(&raw, 0, true);
	write_whole(raw, ping, ping_of(ping, MSG_PING, 0x0102030405060708));
	ping_of(pong, MSG_PONG, 0x0102030405060708);
	assert_int_equal(read(raw, got, sizeof got), sizeof pong);
	assert_memory_equal(got, pong, sizeof pong);
	assert_int_equal(now(s, &s->frames), 0);
	side_free(s);
	close(raw);
}

static void conductor_relays_pings(void **state)
{
	uint8_t ping[FRAME_HEAD + 8];
	struct side *s;
	int raw;

	(void)state;
	s = side_over(&raw, 0, false);
	write_whole(raw, ping, ping_of(ping, MSG_PING, 1));
	write_whole(raw, ping, ping_of(ping, MSG_PONG, 7));
	WAIT_UNTIL(s, s->frames == 2);
	assert_int_equal(s->pings, 1);
	side_free(s);
	close(raw);
}

/* The cookies of PINGs begin with 1. */
static void unsolicited_pong_is_refused(void **state)
{
	uint8_t pong[FRAME_HEAD + 8];

	(void)state;
	for (uint64_t cookie = 0; cookie < 2; cookie++) {
		struct side *s;
		int raw;

		s = side_over(&raw, 0, true);
		write_whole(raw, pong, ping_of(pong, MSG_PONG, cookie));
		WAIT_UNTIL(s, s->lost == 1);
		assert_int_equal(s->why.code, OUT_PROTOCOL);
		side_free(s);
		close(raw);
	}
}

/* A side that answers what it refuses, and reads nothing after that. */
static struct side *deaf_side(int *raw, int timeout_ms)
{
	struct side *s = side_new(NULL);
	struct control_handler h = {
		.on_frame = remember,
		.on_lost = remember_loss,
		.on_refused = remember_refusal,
		.ctx = s,
		.timeout_ms = timeout_ms,
		.pings = true,
	};
	struct channel *ch;
	int fd[2];

	socket_pair(fd);
	assert_int_equal(channel_over_fds(fd[0], fd[0], &ch), 0);
	assert_int_equal(control_start(ch, &h, NULL, 0, &s->control), 0);
	*raw = fd[1];
	return s;
}

static void still_speaks(struct side *s, int raw)
{
	static const uint8_t many[1 << 20];
	uint8_t go[FRAME_HEAD], got[4096];
	ssize_t n;

	/* Input of any form is accepted and ignored. */
	for (size_t at = 0; at < sizeof many; at += 4096)
		write_whole(raw, many + at, 4096);
	write_whole(raw, go, frame_of(go, MSG_GO, NULL, 0));
	assert_int_equal(control_send(s->control, MSG_GO, NULL, 0), 0);
	assert_int_equal(control_flush(s->control, clock_ms() + PATIENCE_MS), 0);
	do {
		n = read(raw, got, sizeof got);
		assert_true(n >= FRAME_HEAD);
	} while (got[n - FRAME_HEAD + 4] != MSG_GO);
	assert_int_equal(now(s, &s->lost), 0);
	close(raw);
	WAIT_UNTIL(s, s->lost == 1);
	assert_int_equal(s->refused, 1);
	assert_int_equal(s->frames, 0);
}

static void refused_frame_may_be_answered(void **state)
{
	uint8_t bad[5][FRAME_HEAD + 8] = {{[4] = 99}, {[4] = MSG_GO, [7] = 1}, {[4] = MSG_PING}};
	size_t len[5] = {FRAME_HEAD, FRAME_HEAD, FRAME_HEAD};

	(void)state;
	memset(bad[3], 0xff, sizeof bad[3]);
	len[3] = sizeof bad[3];
	len[4] = ping_of(bad[4], MSG_PONG, 1);
	for (unsigned i = 0; i < 5; i++) {
		struct side *s;
		int raw;

		s = deaf_side(&raw, 0);
		write_whole(raw, bad[i], len[i]);
		WAIT_UNTIL(s, s->refused == 1);
		assert_int_equal(s->why.code, OUT_PROTOCOL);
		still_speaks(s, raw);
		side_free(s);
	}
}

static void silence_may_be_answered_once(void **state)
{
	struct side *s;
	int raw;

	(void)state;
	s = deaf_side(&raw, 300);
	WAIT_UNTIL(s, s->refused == 1);
	assert_int_equal(s->why.code, OUT_TIMEOUT);
	/* Once: a continued silence is not reported again. */
	usleep(700000);
	still_speaks(s, raw);
	side_free(s);
}

/*
 * A peer that pings and never reads: its pings are still read, and the replies are bounded by the
 * outbox.
 */
static void ping_flood_uses_bounded_memory(void **state)
{
	enum { FLOOD = 400000 };
	static uint8_t pings[1000 * (FRAME_HEAD + 8)], got[1 << 16];
	uint8_t go[FRAME_HEAD];
	size_t len = 0, came = 0;
	struct side *s;
	ssize_t n;
	int raw;

	(void)state;
	for (unsigned i = 0; i < 1000; i++)
		len += ping_of(pings + len, MSG_PING, i);
	s = side_over(&raw, 0, true);
	for (unsigned i = 0; i < FLOOD / 1000; i++)
		write_whole(raw, pings, len);
	write_whole(raw, go, frame_of(go, MSG_GO, NULL, 0));
	WAIT_UNTIL(s, s->frames == 1);
	assert_int_equal(s->lost, 0);
	assert_int_equal(fcntl(raw, F_SETFL, O_NONBLOCK), 0);
	do {
		struct pollfd p = {.fd = raw, .events = POLLIN};

		n = poll(&p, 1, 300) == 1 ? read(raw, got, sizeof got) : 0;
		came += n > 0 ? (size_t)n : 0;
	} while (n > 0);
	assert_true(came > 0);
	assert_true(came < FLOOD * (FRAME_HEAD + 8) / 2);
	side_free(s);
	close(raw);
}

/* ---- the end
 * -------------------------------------------------------------------------------------- */

static void eof_between_frames_is_clean(void **state)
{
	uint8_t go[FRAME_HEAD];
	struct side *s;
	int raw;

	(void)state;
	s = side_over(&raw, 0, true);
	write_whole(raw, go, frame_of(go, MSG_GO, NULL, 0));
	close(raw);
	WAIT_UNTIL(s, s->lost == 1);
	assert_int_equal(s->frames, 1);
	assert_true(s->clean);
	assert_int_equal(s->why.code, OUT_PEER_LOST);
	assert_string_equal(s->why.text,
			    "lost the connection to storage2: storage2 closed the connection");
	assert_int_equal(control_send(s->control, MSG_GO, NULL, 0), -1);
	assert_int_equal(failed()->code, OUT_PEER_LOST);
	assert_string_equal(failed()->text, s->why.text);
	assert_int_equal(control_flush(s->control, clock_ms() + PATIENCE_MS), -1);
	side_free(s);
}

static void eof_within_a_frame_is_a_loss(void **state)
{
	uint8_t ping[FRAME_HEAD + 8];
	size_t len = ping_of(ping, MSG_PING, 1);

	(void)state;
	for (size_t cut = 1; cut < len; cut += 3) {
		struct side *s;
		int raw;

		s = side_over(&raw, 0, true);
		write_whole(raw, ping, cut);
		close(raw);
		WAIT_UNTIL(s, s->lost == 1);
		assert_false(s->clean);
		assert_int_equal(s->why.code, OUT_PEER_LOST);
		assert_int_equal(s->frames, 0);
		side_free(s);
	}
}

static void bad_frame_ends_the_channel(void **state)
{
	static const uint8_t bad[][FRAME_HEAD] = {
		{0, 0, 0, 0, 0, 0, 0, 0},
		{0, 0, 0, 0, 19, 0, 0, 0},
		{0, 0, 0, 0, 83, 0, 0, 0},
		{1, 0, 1, 0, MSG_WANT, 0, 0, 0},
		{255, 255, 255, 255, MSG_WANT, 0, 0, 0},
		{0, 0, 0, 0, MSG_GO, 0, 0, 1},
	};

	(void)state;
	for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct side *s;
		int raw;

		s = side_over(&raw, 0, true);
		write_whole(raw, bad[i], FRAME_HEAD);
		WAIT_UNTIL(s, s->lost == 1);
		assert_false(s->clean);
		assert_int_equal(s->why.code, OUT_PROTOCOL);
		side_free(s);
		close(raw);
	}
}

static int refuse(struct side *s, const struct frame *f)
{
	(void)s;
	return fail_as(OUT_INTEGRITY, "%s is not expected now", message_name(f->type));
}

static void handler_failure_ends_the_channel(void **state)
{
	struct side *s = side_new(refuse);
	uint8_t go[FRAME_HEAD];
	struct channel *ch;
	int fd[2];

	(void)state;
	socket_pair(fd);
	write_whole(fd[1], go, frame_of(go, MSG_GO, NULL, 0));
	write_whole(fd[1], go, FRAME_HEAD);
	assert_int_equal(channel_over_fds(fd[0], fd[0], &ch), 0);
	start(s, ch, 0, true);
	WAIT_UNTIL(s, s->lost == 1);
	assert_int_equal(s->frames, 1);
	assert_int_equal(s->why.code, OUT_INTEGRITY);
	assert_string_equal(s->why.text, "GO is not expected now");
	side_free(s);
	close(fd[1]);
}

/* The peer sends its reason and leaves without having read our frames. */
static void error_frame_arrives_before_the_loss(void **state)
{
	static const uint8_t body[FRAME_BODY_MAX];
	uint8_t error[FRAME_HEAD];
	struct side *s;
	int raw;

	(void)state;
	s = side_over(&raw, 0, true);
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(control_send(s->control, MSG_WANT, body, sizeof body), 0);
	write_whole(raw, error, frame_of(error, MSG_ERROR, NULL, 0));
	close(raw);
	WAIT_UNTIL(s, s->lost == 1);
	assert_int_equal(s->errors, 1);
	assert_int_equal(s->why.code, OUT_PEER_LOST);
	side_free(s);
}

static void no_callback_runs_after_close(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 50; i++) {
		struct side *s;
		unsigned lost;
		int raw;

		s = side_over(&raw, 0, true);
		if (i % 2)
			shutdown(raw, SHUT_WR);
		control_close(s->control);
		s->control = NULL;
		lost = now(s, &s->lost);
		assert_true(lost <= i % 2);
		side_free(s);
		close(raw);
	}
	control_close(NULL);
}

static void bytes_read_earlier_come_first(void **state)
{
	struct side *s = side_new(NULL);
	struct control_handler h = {.on_frame = remember, .on_lost = remember_loss, .ctx = s};
	uint8_t before[3 * (FRAME_HEAD + 9)], last[FRAME_HEAD + 9];
	struct channel *ch;
	size_t len = 0;
	int fd[2];

	(void)state;
	for (unsigned i = 1; i <= 3; i++) {
		uint8_t body[9] = {0, (uint8_t)i};

		len += frame_of(before + len, MSG_WANT, body, sizeof body);
	}
	memcpy(last, before + 2 * (FRAME_HEAD + 9), sizeof last);
	socket_pair(fd);
	/* The third frame begins in the earlier bytes and ends in those read now. */
	write_whole(fd[1], last + 5, sizeof last - 5);
	assert_int_equal(channel_over_fds(fd[0], fd[0], &ch), 0);
	assert_int_equal(control_start(ch, &h, before, len - sizeof last + 5, &s->control), 0);
	memset(before, 0xff, sizeof before);
	WAIT_UNTIL(s, s->frames == 3);
	assert_false(s->disorder);
	assert_int_equal(s->last[0], 3);
	side_free(s);
	close(fd[1]);
}

/* ---- single frames, without a control
 * --------------------------------------------------------------- */

static void frames_are_read_one_by_one(void **state)
{
	static struct framer fr;
	struct channel *a, *b;
	struct frame f;
	size_t left;
	int fd[2];

	(void)state;
	socket_pair(fd);
	assert_int_equal(channel_over_fds(fd[0], fd[0], &a), 0);
	assert_int_equal(channel_over_fds(fd[1], fd[1], &b), 0);
	framer_init(&fr);
	assert_int_equal(frame_read(b, &fr, clock_ms() + 50, &f), -1);
	assert_int_equal(failed()->code, OUT_TIMEOUT);
	assert_int_equal(frame_write(a, MSG_WANT, "one", 3, 0), 0);
	assert_int_equal(frame_write(a, MSG_GO, NULL, 0, 0), 0);
	assert_int_equal(frame_write(a, MSG_WANT, "rest", 4, 0), 0);
	assert_int_equal(frame_read(b, &fr, 0, &f), 1);
	assert_int_equal(f.type, MSG_WANT);
	assert_int_equal(f.len, 3);
	assert_memory_equal(f.body, "one", 3);
	assert_int_equal(frame_read(b, &fr, 0, &f), 1);
	assert_int_equal(f.type, MSG_GO);
	assert_memory_equal((const uint8_t *)framer_rest(&fr, &left) + FRAME_HEAD, "rest", 4);
	assert_int_equal(left, FRAME_HEAD + 4);
	assert_int_equal(frame_read(b, &fr, 0, &f), 1);
	framer_rest(&fr, &left);
	assert_int_equal(left, 0);
	channel_free(a);
	assert_int_equal(frame_read(b, &fr, 0, &f), 0);
	channel_free(b);
}

static void single_frame_calls_never_hang(void **state)
{
	static const uint8_t body[FRAME_BODY_MAX];
	static struct framer fr;
	struct channel *a;
	struct frame f;
	int fd[2], rc;

	(void)state;
	socket_pair(fd);
	assert_int_equal(channel_over_fds(fd[0], fd[0], &a), 0);
	do
		rc = frame_write(a, MSG_WANT, body, sizeof body, clock_ms() + 50);
	while (rc == 0);
	assert_int_equal(failed()->code, OUT_TIMEOUT);
	assert_int_equal(frame_write(a, MSG_WANT, body, sizeof body + 1, 0), -1);
	assert_int_equal(failed()->code, OUT_PROTOCOL);
	framer_init(&fr);
	write_whole(fd[1], "\x01\0\0\0", 4);
	close(fd[1]);
	assert_int_equal(frame_read(a, &fr, 0, &f), -1);
	assert_int_equal(failed()->code, OUT_PEER_LOST);
	channel_free(a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(own_pause_is_not_counted_as_peer_silence),
		cmocka_unit_test(frames_come_in_order),
		cmocka_unit_test(frames_come_in_order_over_tls),
		cmocka_unit_test(unread_outbox_blocks_senders),
		cmocka_unit_test(full_outbox_refuses_frames_that_must_not_wait),
		cmocka_unit_test(hurry_ends_a_blocked_send),
		cmocka_unit_test(connection_loss_ends_a_blocked_send),
		cmocka_unit_test(handler_never_blocks),
		cmocka_unit_test(silent_peer_is_detected),
		cmocka_unit_test(lane_activity_extends_the_limit),
		cmocka_unit_test(silence_limit_can_be_changed),
		cmocka_unit_test(heartbeats_keep_an_idle_pair_alive),
		cmocka_unit_test(ping_is_answered),
		cmocka_unit_test(conductor_relays_pings),
		cmocka_unit_test(unsolicited_pong_is_refused),
		cmocka_unit_test(refused_frame_may_be_answered),
		cmocka_unit_test(silence_may_be_answered_once),
		cmocka_unit_test(ping_flood_uses_bounded_memory),
		cmocka_unit_test(eof_between_frames_is_clean),
		cmocka_unit_test(eof_within_a_frame_is_a_loss),
		cmocka_unit_test(bad_frame_ends_the_channel),
		cmocka_unit_test(handler_failure_ends_the_channel),
		cmocka_unit_test(error_frame_arrives_before_the_loss),
		cmocka_unit_test(no_callback_runs_after_close),
		cmocka_unit_test(bytes_read_earlier_come_first),
		cmocka_unit_test(frames_are_read_one_by_one),
		cmocka_unit_test(single_frame_calls_never_hang),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
