/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/conductor/conductor_impl.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/io.h"
#include "base/secret.h"
#include "cmd/conductor/daemon_call.h"
#include "cmd/conductor/explain.h"
#include "cmd/conductor/far_command.h"
#include "cmd/end/end.h"
#include "cmd/output/events.h"
#include "cmd/process/signals.h"

struct end_pipe *conductor_other(struct conductor *c, const struct end_pipe *l)
{
	return l == &c->pipes[END_SOURCE] ? &c->pipes[END_SINK] : &c->pipes[END_SOURCE];
}

bool conductor_wants_ssh(const struct conductor *c)
{
	const struct end_pipe *source = &c->pipes[END_SOURCE], *sink = &c->pipes[END_SINK];

	return c->job->o->network.want == TRANSPORT_SSH ||
	       (c->job->o->remote.through_here && source->far && sink->far && !source->daemon &&
		!sink->daemon);
}

/* ---- results and failures --------------------------------------------------------------- */

void conductor_terminate_by(struct conductor *c, uint64_t ms)
{
	uint64_t deadline_ms = clock_ms() + ms;

	if (!c->deadline_ms || deadline_ms < c->deadline_ms)
		c->deadline_ms = deadline_ms;
}

void conductor_send_error(struct end_pipe *l, const struct failure *f, const char *host)
{
	uint8_t body[FRAME_BODY_MAX];
	struct writer w = writer_of(body, sizeof body);
	struct msg_error m = {.code = f->code};

	if (!l->greeted || l->gone)
		return;
	snprintf(m.host, sizeof m.host, "%s", host);
	snprintf(m.text, sizeof m.text, "%.*s", (int)sizeof m.text - 1, f->text);
	msg_error_encode(&w, &m);
	end_pipe_send(l, MSG_ERROR, body, w.used);
}

void conductor_fail(struct conductor *c, const char *host)
{
	struct failure f = *failed();

	conductor_record_failure(c, &f, host);
	for (int i = 0; i < 2; i++)
		conductor_send_error(&c->pipes[i], &f, host);
	conductor_terminate_by(c, CANCEL_MS);
}

/* The end sends nothing more. */
static void handle_lost_end(struct conductor *c, struct end_pipe *l)
{
	size_t len;
	int status = 0;
	bool reaped;

	l->gone = true;
	if (l->has_verdict || conductor_is_all_done(c))
		return;
	framer_rest(&l->in, &len);
	reaped = child_wait(&l->child, &status, clock_ms() + EXIT_MS / 2);
	if (!l->greeted && len > 0)
		explain_text(l);
	else if (!l->greeted && reaped)
		explain_exit(l, c->job->o, status);
	else
		explain_death(l, status, reaped);
	conductor_fail(c, "");
}

/* ---- one iteration of the loop ------------------------------------------------------------- */

static void send_cancel(struct conductor *c, int signo)
{
	uint8_t body[16];
	struct writer w = writer_of(body, sizeof body);
	struct msg_cancel m = {.signo = (uint8_t)signo};

	msg_cancel_encode(&w, &m);
	fail_signal(signo);
	conductor_record_failure(c, failed(), "");
	for (int i = 0; i < 2; i++) {
		/* Before its greeting the end may be an ssh that asks for a password. */
		if (c->pipes[i].greeted)
			end_pipe_send(&c->pipes[i], MSG_CANCEL, body, w.used);
		else
			c->pipes[i].gone = true;
	}
	conductor_terminate_by(c, CANCEL_MS);
}

static struct progress_count count_progress(const struct conductor *c)
{
	return (struct progress_count){
		.bytes = c->pipes[END_SINK].progress.bytes,
		.total = c->pipes[END_SOURCE].progress.total,
		.total_known = c->pipes[END_SOURCE].progress.total_known,
		.files = c->pipes[END_SINK].progress.files,
	};
}

/* A child has exited, but another process may hold its pipes: wait for their end only briefly. */
static void notice_deaths(struct conductor *c)
{
	int status;

	for (int i = 0; i < 2; i++) {
		struct end_pipe *l = &c->pipes[i];

		if (l->child.pid && !l->gone && child_wait(&l->child, &status, clock_ms()))
			l->give_up_ms = clock_ms() + DEATH_MS;
	}
}

static void take_signals(struct conductor *c)
{
	int signo;

	while ((signo = signals_next())) {
		struct progress_count count = count_progress(c);

		if (signo == SIGUSR1) {
			progress_show_line(c->job->progress, &count, clock_ms());
		} else if (signo == SIGCHLD) {
			notice_deaths(c);
		} else if (!c->signo) {
			c->signo = signo;
			send_cancel(c, c->signo);
		} else {
			c->hurried = true;
			conductor_terminate_by(c, 0);
		}
	}
}

static int poll_timeout(const struct conductor *c)
{
	int ms = progress_wanted(c->job->progress) ? PROGRESS_TICK_MS : -1;
	const uint64_t deadlines[] = {c->deadline_ms, c->pipes[0].give_up_ms,
				      c->pipes[1].give_up_ms, conductor_removals_due(c),
				      c->detour ? detour_due(c->detour) : 0};

	for (unsigned i = 0; i < sizeof deadlines / sizeof *deadlines; i++) {
		int left = deadlines[i] ? clock_left(deadlines[i]) : -1;

		if (left >= 0 && (ms < 0 || left < ms))
			ms = left;
	}
	return ms;
}

enum { POLL_RETRY_MS = 10 };
enum {
	AT_SIGNALS,
	AT_SCREEN,
	AT_EVENTS,
	AT_LIST,
	AT_OUT,
	AT_IN = AT_OUT + 2,
	AT_LANES = AT_IN + 2, /* of a detour or a bridge */
	LANE_POLLS = (int)DETOUR_POLLS > (int)BRIDGE_POLLS ? (int)DETOUR_POLLS : (int)BRIDGE_POLLS,
};

/* Whether lanes between two daemons may still break. */
static bool uses_bridge(const struct conductor *c)
{
	return c->bridge && !c->pipes[0].has_verdict && !c->pipes[1].has_verdict;
}

static unsigned fill_lane_polls(const struct conductor *c, struct pollfd *p)
{
	if (uses_bridge(c))
		return bridge_polls(c->bridge, p);
	return c->detour ? detour_polls(c->detour, p) : 0;
}

static int handle_lanes(struct conductor *c, const struct pollfd *p, unsigned n)
{
	int rc = uses_bridge(c) ? bridge_handle(c->bridge, p, n)
		 : c->detour    ? detour_handle(c->detour, p, n)
				: 0;

	return rc > 0 ? daemon_frames_choose(c) : rc;
}

static unsigned fill_polls(struct conductor *c, struct pollfd *p)
{
	bool reads_list =
		c->list && !end_pipe_is_full(&c->pipes[0]) && !end_pipe_is_full(&c->pipes[1]);

	p[AT_SIGNALS] = (struct pollfd){.fd = signals_fd(), .events = POLLIN};
	p[AT_EVENTS] = (struct pollfd){.fd = events_pending_fd(), .events = POLLOUT};
	p[AT_LIST] =
		(struct pollfd){.fd = reads_list ? name_list_fd(c->list) : -1, .events = POLLIN};
	p[AT_SCREEN] =
		(struct pollfd){.fd = screen_is_pending() ? STDERR_FILENO : -1, .events = POLLOUT};
	for (int i = 0; i < 2; i++) {
		struct end_pipe *l = &c->pipes[i];
		bool reading =
			!conductor_is_finished(c, l) && !end_pipe_is_full(conductor_other(c, l));
		bool writing = l->out_end > l->out_start;

		p[AT_OUT + i] =
			(struct pollfd){.fd = reading ? l->child.out : -1, .events = POLLIN};
		p[AT_IN + i] = (struct pollfd){.fd = writing ? l->child.in : -1, .events = POLLOUT};
	}
	return AT_LANES + fill_lane_polls(c, p + AT_LANES);
}

static int on_listed(void *ctx, const char *name)
{
	const struct conductor *c = ctx;

	return orders_send_listed(&c->orders, name);
}

static void read_listed_names(struct conductor *c)
{
	int rc = name_list_read(c->list, on_listed, c);

	if (rc > 0)
		return;
	if (rc < 0)
		conductor_fail(c, "");
	c->list = NULL;
}

/*
 * Sends ERROR to the ends instead of killing them, which would leave their temporaries. Until they
 * exit, the conductor reads signals and pipes without poll(2).
 */
static void handle_poll_failure(struct conductor *c, struct pollfd *p)
{
	const struct timespec pause = {.tv_nsec = POLL_RETRY_MS * 1000000L};

	fail_as(OUT_SOCKET, "wait for the ends: %m");
	if (c->cause.code == OUT_DONE)
		conductor_fail(c, "");
	conductor_terminate_by(c, CANCEL_MS);
	nanosleep(&pause, NULL);
	for (int i = 0; i < AT_LANES; i++)
		p[i].revents = 0;
	p[AT_SIGNALS].revents = POLLIN;
	for (int i = 0; i < 2; i++)
		p[AT_OUT + i].revents = p[AT_OUT + i].fd >= 0 ? POLLIN : 0;
}

static void run_iteration(struct conductor *c)
{
	struct pollfd p[AT_LANES + LANE_POLLS];
	struct progress_count count;
	unsigned n = fill_polls(c, p);
	uint64_t due_ms = conductor_removals_due(c);
	bool failed_poll = poll(p, n, poll_timeout(c)) < 0 && errno != EINTR;

	if (failed_poll)
		handle_poll_failure(c, p);
	/* The source was stopped, too, or what it sent is still to be read. */
	if (due_ms && clock_ms() > due_ms + CLOCK_LATE_MS)
		c->pipes[END_SOURCE].last_read_ms = clock_ms();
	if (p[AT_SIGNALS].revents)
		take_signals(c);
	if (p[AT_SCREEN].revents)
		screen_flush();
	if (p[AT_LIST].revents)
		read_listed_names(c);
	for (int i = 0; i < 2; i++) {
		struct end_pipe *l = &c->pipes[i];

		if (p[AT_IN + i].revents)
			end_pipe_write(l);
		if (p[AT_OUT + i].revents && !l->gone && end_pipe_read(l) == 0) {
			conductor_take_frames(c, l);
			if (!l->gone)
				handle_lost_end(c, l);
		}
	}
	for (int i = 0; i < 2; i++) {
		struct end_pipe *l = &c->pipes[i];

		conductor_take_frames(c, l);
		if (l->give_up_ms && clock_left(l->give_up_ms) == 0) {
			l->give_up_ms = 0;
			if (!l->gone)
				handle_lost_end(c, l);
		}
	}
	if (!failed_poll && handle_lanes(c, p + AT_LANES, n - AT_LANES))
		conductor_fail(c, "");
	count = count_progress(c);
	/* Even if no progress is shown: SIGUSR1 prints the rate. */
	progress_update(c->job->progress, &count, clock_ms());
	events_progress(&count, clock_ms());
	events_flush();
}

static bool is_timed_out(const struct conductor *c)
{
	uint64_t due_ms = conductor_removals_due(c);

	return (c->deadline_ms && clock_ms() >= c->deadline_ms) || (due_ms && clock_ms() >= due_ms);
}

/* ---- starting the ends ----------------------------------------------------------------------- */

static int run_local_end(void *ctx, int in, int out)
{
	const struct end_pipe *l = ctx;
	const struct end_shared shared = {.clones = l->share, .dialed = l->dialed};

	end_set_shared(&shared);
	return end_run(in, out, false);
}

/* Two ends on this host pass each other descriptors to make reflinks. Without the socket they copy
 * the bytes. An end whose other end is at a rdcpd learns where that was reached; else it has the
 * addresses that rdcpd knows. */
static void share_begin(struct conductor *c)
{
	int fds[2];

	if (c->pipes[0].daemon != c->pipes[1].daemon)
		c->pipes[0].dialed = c->pipes[1].dialed = daemon_share_address();
	if (c->pipes[0].far || c->pipes[1].far || c->job->measure ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds))
		return;
	c->pipes[0].share = fds[0];
	c->pipes[1].share = fds[1];
}

/* Both ends have been started. */
static void share_end(struct conductor *c)
{
	daemon_unshare_address(c->pipes[0].dialed);
	for (int i = 0; i < 2; i++) {
		if (c->pipes[i].share > 0)
			close_fd(c->pipes[i].share);
		c->pipes[i].share = 0;
		c->pipes[i].dialed = NULL;
	}
}

static int start_end(struct conductor *c, int i)
{
	struct end_pipe *l = &c->pipes[i];

	if (l->far && c->job->measure) {
		struct end_pipe *kept = c->job->measure->kept;

		if (kept->child.pid) {
			*l = *kept;
			end_pipe_init(kept);
			return 0;
		}
		if (far_start(c->job->o, l->ssh_host, "--ends", &l->child))
			return -1;
	} else if (l->daemon) {
		if (daemon_start(c->job->o, l->ssh_host, l->dialed, &l->child))
			return -1;
	} else if (l->far) {
		if (far_start(c->job->o, l->ssh_host, "--end", &l->child))
			return -1;
	} else if (child_fork(run_local_end, l, "the end on this host", &l->child)) {
		return -1;
	}
	return end_pipe_open(l);
}

/* Local ends start first, so that they do not inherit the descriptors of ssh. Two far ends start
 * one after the other, because both may ask for a password. */
static int start_both_ends(struct conductor *c)
{
	for (int far = 0; far < 2; far++) {
		for (int i = 0; i < 2; i++) {
			struct end_pipe *l = &c->pipes[i];

			if (l->far != (bool)far)
				continue;
			if (start_end(c, i))
				return -1;
			/* An end that was kept may have sent its greeting already. */
			conductor_take_frames(c, l);
			while (!l->greeted && !c->cause.code && !is_timed_out(c))
				run_iteration(c);
			if (c->cause.code)
				return fail_again(&c->cause);
		}
	}
	return 0;
}

/* A daemon listens, else the far end; if that holds for both or none, the sink does. */
static int choose_listener(const struct conductor *c)
{
	const struct end_pipe *source = &c->pipes[END_SOURCE], *sink = &c->pipes[END_SINK];

	if (source->daemon != sink->daemon)
		return source->daemon ? END_SOURCE : END_SINK;
	return source->far && !sink->far ? END_SOURCE : END_SINK;
}

/* The list may be long, or arrive slowly from a pipe, so the loop runs meanwhile. */
static int send_listed_names(struct conductor *c)
{
	c->list = c->job->list;
	while (c->list && !c->cause.code && !is_timed_out(c))
		run_iteration(c);
	c->list = NULL;
	return c->cause.code ? fail_again(&c->cause) : 0;
}

static int send_orders(struct conductor *c)
{
	c->orders = (struct orders_send){
		.job = c->job,
		.pipes = c->pipes,
		.listener = c->listener,
		.over_ssh = conductor_wants_ssh(c),
		.bridged = c->pipes[END_SOURCE].daemon && c->pipes[END_SINK].daemon,
	};
	int rc;

	secret_guard(c->orders.secret, sizeof c->orders.secret);
	rc = orders_send_all(&c->orders);
	if (!rc && c->orders.bridged)
		rc = daemon_frames_begin_bridge(c);
	explicit_bzero(c->orders.secret, sizeof c->orders.secret);
	return rc || send_listed_names(c) ? -1 : orders_send_go(&c->orders);
}

/* Keeps the connection for the end of the next session. */
static bool keep_for_next_session(struct conductor *c, struct end_pipe *l)
{
	if (!c->job->measure || !l->far || l->gone || !l->child.pid || !l->has_verdict ||
	    l->out_end > l->out_start)
		return false;
	end_pipe_renew(l);
	*c->job->measure->kept = *l;
	return true;
}

/* The ends have sent their last frames, or are given up. */
static void stop_ends(struct conductor *c)
{
	uint64_t deadline_ms = clock_ms() + EXIT_MS;
	bool kept[2];

	detour_close(c->detour);
	bridge_close(c->bridge);
	for (int i = 0; i < 2; i++) {
		kept[i] = keep_for_next_session(c, &c->pipes[i]);
		if (kept[i])
			continue;
		child_close_in(&c->pipes[i].child);
		/* A local end has had its time to exit. */
		if (is_timed_out(c) && !c->pipes[i].far && c->pipes[i].child.pid)
			kill(c->pipes[i].child.pid, SIGKILL);
	}
	for (int i = 0; i < 2; i++) {
		if (kept[i])
			continue;
		if (c->pipes[i].has_verdict && !c->hurried)
			c->hurried = end_pipe_await_exit(&c->pipes[i], deadline_ms, c->signo != 0);
		end_pipe_close(&c->pipes[i]);
	}
}

void conductor_run(const struct conductor_job *j, struct report *r)
{
	static struct conductor c;
	int rc;

	memset(&c, 0, offsetof(struct conductor, pipes));
	c.job = j;
	end_pipe_init(&c.pipes[END_SOURCE]);
	end_pipe_init(&c.pipes[END_SINK]);
	end_pipe_set_host(&c.pipes[END_SOURCE], j->source_host);
	end_pipe_set_host(&c.pipes[END_SINK], j->sink_host);
	if (!j->measure)
		events_session(j->source_host, j->names, j->count, j->sink_host, j->target);
	c.listener = choose_listener(&c);
	share_begin(&c);
	rc = start_both_ends(&c);
	share_end(&c);
	if (rc || send_orders(&c)) {
		conductor_fail(&c, "");
		goto out;
	}
	while (!is_timed_out(&c)) {
		if ((c.pipes[0].gone || c.pipes[0].has_verdict) &&
		    (c.pipes[1].gone || c.pipes[1].has_verdict))
			break;
		run_iteration(&c);
	}
	conductor_note_missing_verdict(&c);
out:
	conductor_fill_report(&c, r);
	stop_ends(&c);
}
