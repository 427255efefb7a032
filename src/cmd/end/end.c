/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/end/end.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fail.h"
#include "base/io.h"
#include "base/log.h"
#include "base/secret.h"
#include "base/wipe.h"
#include "base/worker.h"
#include "cmd/end/bench_disk.h"
#include "cmd/end/end_work.h"
#include "cmd/end/guest_idle.h"
#include "cmd/end/guest_list.h"
#include "cmd/end/notes.h"
#include "cmd/process/process.h"
#include "session/channel/framer.h"
#include "session/channel/key.h"
#include "session/channel/openssl.h"
#include "session/connect/early.h"

enum {
	UPDATE_MS = 250,
	LAST_FRAME_MS = 1000,
	GUEST_ORDERS_MS = 30000,
	GUEST_ORDERS_BYTES = 64 << 20,
};

#ifndef SLUICE_VERSION
#define SLUICE_VERSION "0"
#endif

struct end {
	struct channel *channel; /* NULL once the session owns it */
	int last_out; /* a duplicate of its descriptor, for frames after the session */
	struct framer framer;
	struct end_work work;
	struct scratch disk; /* rdbench's; fd -1 */
	struct end_shared shared;
	const struct guest *guest; /* NULL: an end of rdcp */
	struct porter *porter; /* a guest's */
	struct guest_idle *idle; /* a guest's */
	struct msg_want list; /* a guest's: what to list */
	bool lists; /* LIST came instead of START */
	uint64_t orders_due_ms; /* a guest's orders must be complete then (clock_ms); 0: no limit */
	struct failure deaf; /* why the conductor's frames can't be read; OUT_DONE: they can */
	bool verdict_sent;
	struct msg_progress last_progress; /* as sent */
};

/* ---- from the conductor, before there is a session --------------------------------------- */

static int send_end_greeting(struct end *e)
{
	uint8_t body[256];
	struct writer w = writer_of(body, sizeof body);
	struct msg_greeting m = {.version = PROTOCOL_VERSION};

	snprintf(m.release, sizeof m.release, "%s", SLUICE_VERSION);
	msg_greeting_encode(&w, &m);
	return frame_write(e->channel, MSG_GREETING, body, w.used, 0);
}

static int await_frame(struct end *e, struct frame *f)
{
	int rc = frame_read(e->channel, &e->framer, e->orders_due_ms, f);

	if (rc == 0)
		return fail_as(OUT_PEER_LOST, "the conductor is gone");
	return rc < 0 ? -1 : 0;
}

/* The memory of rdcpd's host is shared by all its clients. */
static int check_orders_size(const struct end *e)
{
	if (!e->guest || orders_bytes(&e->work.orders) <= GUEST_ORDERS_BYTES)
		return 0;
	return fail_as(OUT_PROTOCOL, "rdcpd takes at most %d MiB of names and patterns",
		       GUEST_ORDERS_BYTES >> 20);
}

static int receive_orders(struct end *e)
{
	struct frame f;
	int rc;

	if (await_frame(e, &f))
		return -1;
	if (e->guest && f.type == MSG_LIST) {
		e->lists = true;
		return msg_want_decode(&f, &e->list);
	}
	if (orders_begin(&e->work.orders, &f))
		return -1;
	do {
		rc = await_frame(e, &f) ? -1 : orders_take(&e->work.orders, &f);
	} while (rc == 0 && (rc = check_orders_size(e)) == 0);
	/* orders_begin() decoded START's secret on the stack. */
	wipe_stack();
	if (rc > 0 && e->guest)
		rc = guest_check(e->guest, &e->work.orders);
	return rc < 0 ? -1 : 0;
}

/* As the argument of --address. */
static void use_reached_address(const union address *reached, char to[static HOST_MAX])
{
	union address host = address_unmapped(reached);

	host = address_with_port(&host, 0);
	address_text(&host, to, HOST_MAX);
}

/* The lanes of a guest come to rdcpd's port. */
static int fill_guest_session(struct end *e, struct session_opts *so)
{
	const struct guest *g = e->guest;

	if (!g)
		return 0;
	if (g->tos)
		so->tos = g->tos;
	so->port_lo = g->port_lo;
	so->port_hi = g->port_hi;
	if (porter_new(so->tos, &e->porter))
		return -1;
	porter_use_door(e->porter, g->door, g->port);
	so->porter = e->porter;
	so->reached = g->reached;
	so->fixed = true;
	so->address[0] = '\0';
	if (g->one_address)
		use_reached_address(&g->reached, so->address);
	if (g->must_encrypt)
		so->encrypt = ENCRYPT_ON;
	return 0;
}

/* ---- to the conductor ------------------------------------------------------------------------ */

/* Writes to the stream itself, because there is no session. */
static int write_last_frame(struct end *e, uint8_t type, const void *body, size_t len)
{
	uint64_t deadline_ms = clock_ms() + LAST_FRAME_MS;
	uint8_t frame[FRAME_HEAD + FRAME_BODY_MAX];
	size_t done = 0;

	if (e->channel && channel_is_cut(e->channel))
		return -1;
	frame_head_encode(type, (uint32_t)len, frame);
	memcpy(frame + FRAME_HEAD, body, len);
	while (done < FRAME_HEAD + len) {
		struct pollfd p = {.fd = e->last_out, .events = POLLOUT};
		ssize_t n = write(e->last_out, frame + done, FRAME_HEAD + len - done);

		if (n > 0)
			done += (size_t)n;
		else if (n < 0 && errno != EINTR && errno != EAGAIN)
			return -1;
		else if (clock_left(deadline_ms) == 0)
			return -1;
		else
			poll(&p, 1, clock_left(deadline_ms));
	}
	return 0;
}

/* A session that lost its peer sends nothing more, but the conductor may still be there. */
static int send_to_conductor(struct end *e, uint8_t type, const struct writer *w)
{
	if (e->work.session && session_send(e->work.session, type, w->base, w->used) == 0)
		return 0;
	return write_last_frame(e, type, w->base, w->used);
}

static void send_notes(struct end *e)
{
	uint8_t body[TEXT_MAX + 16];
	struct msg_note m;

	while (notes_take(&m)) {
		struct writer w = writer_of(body, sizeof body);

		msg_note_encode(&w, &m);
		send_to_conductor(e, MSG_NOTE, &w);
	}
}

static void send_progress(struct end *e)
{
	uint8_t body[64];
	struct writer w = writer_of(body, sizeof body);
	struct msg_progress m = {
		.bytes = e->work.tally.bytes,
		.total = e->work.tally.total,
		.files = e->work.tally.files,
		.total_known = e->work.tally.total_known,
	};

	if (m.bytes == e->last_progress.bytes && m.total == e->last_progress.total &&
	    m.files == e->last_progress.files && m.total_known == e->last_progress.total_known)
		return;
	e->last_progress = m;
	msg_progress_encode(&w, &m);
	send_to_conductor(e, MSG_PROGRESS, &w);
}

/* Runs in the main thread, beside the worker. */
static void send_updates(void *ctx, bool asked)
{
	struct end *e = ctx;

	(void)asked;
	pthread_mutex_lock(&e->work.watch.lock);
	if (e->work.session) {
		send_notes(e);
		if (orders_have(&e->work.orders, START_PROGRESS))
			send_progress(e);
	}
	pthread_mutex_unlock(&e->work.watch.lock);
}

/* A measurement from memory to memory begins when each block has been used once: until then the
 * kernel allocates their pages. */
static uint64_t warm_bytes(struct end *e)
{
	const struct lane *l = session_lane(e->work.session, 0);
	uint64_t all =
		(uint64_t)session_lanes(e->work.session) * lane_depth(l) * lane_block_size(l);
	uint64_t half = e->work.orders.m.memory_bytes / 2;

	return all < half ? all : half;
}

/* Sends the last frame. f: the failure, or NULL for success. */
static void send_verdict(struct end *e, const struct failure *f, const char *host)
{
	static uint8_t body[FRAME_BODY_MAX];
	struct writer w = writer_of(body, sizeof body);
	struct msg_verdict *v = &e->work.verdict;

	if (e->verdict_sent)
		return;
	e->verdict_sent = true;
	send_notes(e);
	send_progress(e);
	v->code = f ? (uint8_t)f->code : OUT_DONE;
	if (f) {
		snprintf(v->text, sizeof v->text, "%.*s", (int)sizeof v->text - 1, f->text);
		snprintf(v->host, sizeof v->host, "%s", host[0] ? host : e->work.orders.m.host);
	}
	if (e->guest)
		guest_record_work(e->guest, &e->work.orders, v);
	msg_verdict_encode(&w, v);
	send_to_conductor(e, MSG_VERDICT, &w);
}

static void send_failure_verdict(struct end *e, const struct failure *f)
{
	struct failure cause = *f;
	char host[HOST_MAX];

	end_work_failed_at(&e->work, &cause, host);
	send_verdict(e, &cause, host);
}

/* ---- the work -----------------------------------------------------------------------------------
 */

static void on_file(void *ctx, const char *name, const struct failure *f)
{
	(void)ctx;
	(void)name;
	log_at(LOG_ERROR, "%s", f->text);
}

static int run_role(struct end *e)
{
	if (orders_have(&e->work.orders, START_MEMORY))
		e->work.tally.warm = warm_bytes(e);
	if (e->work.orders.m.role == ROLE_SOURCE) {
		struct source_opts so = orders_source_opts(&e->work.orders);

		so.clones = e->shared.clones;
		so.verdict = e->last_out;
		if (e->disk.fd >= 0)
			so.stream = bench_disk_stream(&e->disk);
		return source_run(e->work.copy, e->work.session, &so, &e->work.tally,
				  &e->work.result);
	} else {
		struct sink_opts so = orders_sink_opts(&e->work.orders);

		so.clones = e->shared.clones;
		if (e->disk.fd >= 0)
			so.stream = bench_disk_stream(&e->disk);
		return sink_run(e->work.copy, e->work.session, &so, &e->work.tally,
				&e->work.result);
	}
}

/* Runs in a lane's thread, which blocks here while the conductor is slow. */
static void on_event(void *ctx, const struct msg_event *m)
{
	struct end *e = ctx;
	static uint8_t body[FRAME_BODY_MAX];
	struct writer w = writer_of(body, sizeof body);

	msg_event_encode(&w, m);
	if (!w.full)
		session_send(e->work.session, MSG_EVENT, body, w.used);
}

/* Blocks like on_event(). */
static void on_taken(void *ctx, const char *name)
{
	struct end *e = ctx;
	static uint8_t body[NAME_MAX_WIRE + 16];
	struct writer w = writer_of(body, sizeof body);
	struct msg_want m;

	if (!orders_have(&e->work.orders, START_SHARED))
		return;
	snprintf(m.name, sizeof m.name, "%s", name);
	msg_want_encode(&w, &m);
	session_send(e->work.session, MSG_TAKEN, body, w.used);
}

static void publish_session(struct end *e, struct session *s)
{
	pthread_mutex_lock(&e->work.watch.lock);
	e->work.session = s;
	pthread_mutex_unlock(&e->work.watch.lock);
	watch_session(&e->work.watch, s);
}

/* host: see session_open(). */
static int open_end_session(struct end *e, char host[static HOST_MAX])
{
	struct session_opts so;
	struct session *s = NULL;
	size_t len;
	const void *before = framer_rest(&e->framer, &len);
	struct channel *ch = e->channel;
	int rc;

	e->channel = NULL;
	end_work_fill_session(&e->work, &so);
	so.has_conductor = true;
	if (e->shared.dialed)
		so.dialed = *e->shared.dialed;
	atomic_store(&e->work.opened, true);
	if (fill_guest_session(e, &so)) {
		channel_free(ch);
		rc = -1;
	} else {
		rc = session_open(ch, before, len, &so, host, &s);
	}
	explicit_bzero(so.secret, sizeof so.secret);
	explicit_bzero(e->work.orders.m.secret, sizeof e->work.orders.m.secret);
	framer_wipe(&e->framer); /* it held START; the session has a copy of the rest */
	if (rc)
		return rc;
	publish_session(e, s);
	if (e->guest)
		guest_tell_sizes(e->guest, s);
	return 0;
}

/* Reads the conductor's frames while there is no session that would. */
static void read_cancel(void *ctx)
{
	struct end *e = ctx;
	struct frame f;
	int rc;

	while (!cancelled()) {
		rc = frame_read(e->channel, &e->framer, clock_ms(), &f);
		if (rc < 0 && failed()->code == OUT_TIMEOUT)
			return;
		if (rc < 0)
			e->deaf = *failed();
		if (rc <= 0 || f.type == MSG_CANCEL)
			cancel(SIGTERM);
	}
}

static bool is_conductor_cancelled(void *ctx)
{
	read_cancel(ctx);
	return cancelled() != 0;
}

/* Leaves arriving frames to the session. The conductor can kill this end. */
static bool is_process_cancelled(void *ctx)
{
	(void)ctx;
	return cancelled() != 0;
}

/* START_PROBE. */
static int run_probe(struct end *e)
{
	const struct stopper stopper = {.stop = is_conductor_cancelled, .ctx = e};
	struct msg_verdict *v = &e->work.verdict;
	struct failure f;

	if (bench_disk_open(&e->work.orders, &stopper, &e->disk) ||
	    bench_disk_probe(&e->work.orders, &e->disk, &e->work.tally, read_cancel, e)) {
		f = e->deaf.code == OUT_DONE ? *failed() : e->deaf;
		send_verdict(e, &f, "");
		return fail_again(&f);
	}
	v->total.bytes = e->work.tally.bytes;
	v->times.kind = KIND_DISK;
	if (e->work.tally.first_ns)
		v->ns = clock_ns() - e->work.tally.first_ns;
	send_verdict(e, NULL, "");
	return 0;
}

static int run_list(struct end *e)
{
	struct failure f;
	int rc = guest_list(e->guest, e->list.name, e->channel);

	f = *failed();
	/* The client may read slowly. */
	guest_list_await(e->last_out);
	send_verdict(e, rc ? &f : NULL, "");
	return rc ? fail_again(&f) : 0;
}

static int run_end_work(void *ctx)
{
	const struct stopper stopper = {.stop = is_process_cancelled};
	struct end *e = ctx;
	char host[HOST_MAX] = "";
	struct failure f;
	struct session *s;
	int rc;

	e->work.result.on_file = on_file;
	e->work.result.on_event = on_event;
	e->work.result.on_taken = on_taken;
	e->work.result.ctx = e;
	if (orders_have(&e->work.orders, START_PROBE))
		return run_probe(e);
	if (e->lists)
		return run_list(e);
	if (bench_disk_open(&e->work.orders, &stopper, &e->disk) || end_work_begin(&e->work) ||
	    guest_idle_start(e->guest, &e->work, &e->idle) || open_end_session(e, host)) {
		f = *failed();
		guest_idle_stop(e->idle);
		send_verdict(e, &f, host);
		return fail_again(&f);
	}
	rc = run_role(e);
	f = *failed();
	pthread_mutex_lock(&e->work.watch.lock);
	end_work_fill_verdict(&e->work);
	if (rc)
		send_failure_verdict(e, &f);
	else
		send_verdict(e, NULL, "");
	pthread_mutex_unlock(&e->work.watch.lock);
	guest_idle_stop(e->idle);
	session_flush(e->work.session);
	s = e->work.session;
	publish_session(e, NULL);
	session_close(s);
	return rc ? fail_again(&f) : 0;
}

/* ---- the process
 * ----------------------------------------------------------------------------------- */

/* ssh's stdio is the control channel. Moves it, so that no library prints into it. */
static int move_stdio(int *in, int *out)
{
	int null = RETRIED(open("/dev/null", O_RDWR | O_CLOEXEC)), fd[2];

	if (null < 0)
		return fail_as(OUT_START, "open /dev/null: %m");
	fd[0] = dup_above(*in, 3);
	fd[1] = dup_above(*out, 3);
	if (fd[0] < 0 || fd[1] < 0 || dup2(null, *in) < 0 || dup2(null, *out) < 0)
		return fail_as(OUT_START, "move stdin and stdout to other descriptors: %m");
	close_fd(null);
	*in = fd[0];
	*out = fd[1];
	return 0;
}

static void set_log(const struct msg_start *m)
{
	enum log_level most = LOG_WARN;

	if (m->flags & START_QUIET)
		most = LOG_ERROR;
	else if (m->verbose)
		most = m->verbose == 1 ? LOG_INFO : m->verbose == 2 ? LOG_DEBUG : LOG_TRACE;
	log_setup("rdcp", most);
	notes_begin();
}

static int begin_end(struct end *e, int in, int out, bool far)
{
	if (watch_signals(!far && !e->guest))
		return -1;
	process_protect_secrets();
	process_raise_descriptors();
	if (openssl_start())
		return -1;
	if (far && move_stdio(&in, &out))
		return -1;
	e->last_out = dup_above(out, 3);
	secret_guard(&e->framer, sizeof e->framer);
	secret_guard(e->work.orders.m.secret, sizeof e->work.orders.m.secret);
	framer_init(&e->framer);
	if (e->last_out < 0)
		return fail_as(OUT_START, "duplicate a descriptor: %m");
	return channel_over_fds(in, out, &e->channel) || send_end_greeting(e) ? -1 : 0;
}

static void end_free(struct end *e)
{
	copy_free(e->work.copy);
	scratch_close(&e->disk);
	channel_free(e->channel);
	close_fd(e->last_out);
	framer_wipe(&e->framer);
	orders_free(&e->work.orders);
	porter_free(e->porter);
	if (e->guest)
		early_close();
}

static struct end_shared end_shared;
static const struct guest *end_guest;

void end_set_shared(const struct end_shared *s)
{
	end_shared = *s;
}

void end_set_guest(const struct guest *g)
{
	end_guest = g;
}

int end_run(int in, int out, bool far)
{
	static struct end e = {.disk.fd = -1};
	int code;

	e.shared = end_shared;
	e.guest = end_guest;
	if (e.guest)
		e.orders_due_ms = clock_ms() + GUEST_ORDERS_MS;
	/* The conductor sees only that this end exits, so print why, unless the conductor is gone.
	 */
	if (begin_end(&e, in, out, far)) {
		if (failed()->code != OUT_PEER_LOST)
			log_at(LOG_ERROR, "%s", failed()->text);
		return (int)failed()->code;
	}
	if (receive_orders(&e)) {
		struct failure f = *failed();

		if (f.code != OUT_PEER_LOST)
			send_verdict(&e, &f, "");
		end_free(&e);
		return (int)f.code;
	}
	set_log(&e.work.orders.m);
	e.work.watch.work = run_end_work;
	e.work.watch.tick = send_updates;
	e.work.watch.tick_ms = UPDATE_MS;
	e.work.watch.ctx = &e;
	if (!watch_run(&e.work.watch)) {
		send_failure_verdict(&e, &e.work.watch.failure);
		if (e.work.session)
			session_flush(e.work.session);
		_exit((int)e.work.watch.failure.code);
	}
	/* Also if the worker thread could not be started. */
	if (e.work.watch.result)
		send_failure_verdict(&e, &e.work.watch.failure);
	code = e.work.watch.result ? (int)e.work.watch.failure.code : OUT_DONE;
	end_free(&e);
	return code;
}
