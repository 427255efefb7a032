/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/conductor.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fail.h"
#include "base/log.h"
#include "cmd/detour.h"
#include "cmd/end.h"
#include "cmd/explain.h"
#include "cmd/far.h"
#include "cmd/link.h"
#include "cmd/orders.h"

enum {
	CANCEL_MS = 1500, /* for the ends to go after a signal */
	LAST_WORDS_MS = 5000, /* between the first end's last word and the second's */
	DEATH_MS = 300, /* between a child's death and the end of its pipe */
	EXIT_MS = 2000, /* for the children to exit after that */
};

struct conductor {
	const struct job *job;
	struct link links[2];
	int listener; /* which of them listens at first */
	struct detour *detour;
	bool detoured;
	struct failure cause; /* the first, OUT_DONE: none */
	char cause_host[HOST_MAX];
	int signo;
	uint64_t deadline_ms; /* when the ends are ended, 0: never */
};

static int signals = -1;

int conductor_signals(void)
{
	struct sigaction hup, ign = {.sa_handler = SIG_IGN};
	sigset_t set;

	sigaction(SIGPIPE, &ign, NULL);
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGCHLD);
	/* Under nohup(1) it stays ignored. */
	if (sigaction(SIGHUP, NULL, &hup) == 0 && hup.sa_handler != SIG_IGN)
		sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return signals < 0 ? fail_as(OUT_MEMORY, "make a signal descriptor: %m") : 0;
}

void conductor_signals_end(void)
{
	struct signalfd_siginfo si;
	sigset_t none;

	while (read(signals, &si, sizeof si) == (ssize_t)sizeof si)
		continue;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

static struct link *other(struct conductor *c, const struct link *l)
{
	return l == &c->links[LINK_SOURCE] ? &c->links[LINK_SINK] : &c->links[LINK_SOURCE];
}

/* Did the user ask for lanes over ssh? */
static bool goes_through_ssh(const struct conductor *c)
{
	return c->job->o->want == TRANSPORT_SSH ||
	       (c->job->o->through_here && c->links[LINK_SOURCE].far && c->links[LINK_SINK].far);
}

/* ---- how it ends ------------------------------------------------------------------------ */

static bool says_done(const struct link *l)
{
	return l->has_verdict && l->verdict.code == OUT_DONE;
}

/* All is stored: an end said so, and of the ends on this host each, since they know.  What was
 * removed only the source knows. */
static bool done(const struct conductor *c)
{
	const struct link *source = &c->links[LINK_SOURCE], *sink = &c->links[LINK_SINK];
	bool source_may_be_silent = source->far && !c->job->o->remove_source;

	return (says_done(source) || says_done(sink)) &&
	       (source_may_be_silent || says_done(source)) && (sink->far || says_done(sink));
}

static void end_by(struct conductor *c, uint64_t ms)
{
	uint64_t deadline_ms = clock_ms() + ms;

	if (!c->deadline_ms || deadline_ms < c->deadline_ms)
		c->deadline_ms = deadline_ms;
}

/* The first failure is the session's; host: where, "" for here. */
static void blame(struct conductor *c, const struct failure *f, const char *host)
{
	if (c->cause.code != OUT_DONE)
		return;
	c->cause = *f;
	snprintf(c->cause_host, sizeof c->cause_host, "%s", host);
}

/* A failure that the ends don't know of: both are told, as if by the other one. */
static void fail_both(struct conductor *c, const char *host)
{
	uint8_t body[FRAME_BODY_MAX];
	struct msg_error m = {.code = failed()->code};
	struct failure f = *failed();

	blame(c, &f, host);
	snprintf(m.host, sizeof m.host, "%s", host);
	snprintf(m.text, sizeof m.text, "%.*s", (int)sizeof m.text - 1, f.text);
	for (int i = 0; i < 2; i++) {
		struct writer w = writer_of(body, sizeof body);

		msg_error_encode(&w, &m);
		if (c->links[i].greeted && !c->links[i].gone)
			link_send(&c->links[i], MSG_ERROR, body, w.used);
	}
	end_by(c, CANCEL_MS);
}

/* It says nothing more and has not said how it ended. */
static void lost(struct conductor *c, struct link *l)
{
	size_t len;
	int status = 0;
	bool reaped;

	l->gone = true;
	if (l->has_verdict)
		return;
	if (done(c) && !c->job->o->remove_source)
		return;
	framer_rest(&l->in, &len);
	reaped = child_wait(&l->child, &status, clock_ms() + EXIT_MS / 2);
	if (!l->greeted && len > 0)
		explain_text(l);
	else if (!l->greeted && reaped)
		explain_exit(l, c->job->o, status);
	else
		explain_death(l, status, reaped);
	fail_both(c, "");
}

/* ---- what ends say ------------------------------------------------------------------------ */

static int take_note(struct link *l, const struct frame *f)
{
	struct msg_note m;

	if (msg_note_decode(f, &m))
		return -1;
	if (l->far)
		log_at((enum log_level)m.level, "%s: %s", l->name, m.text);
	else
		log_at((enum log_level)m.level, "%s", m.text);
	return 0;
}

static int take_verdict(struct conductor *c, struct link *l, const struct frame *f)
{
	struct failure failure = {0};

	if (msg_verdict_decode(f, &l->verdict))
		return -1;
	l->has_verdict = true;
	end_by(c, LAST_WORDS_MS);
	if (l->verdict.code == OUT_DONE)
		return 0;
	failure.code = l->verdict.code;
	snprintf(failure.text, sizeof failure.text, "%s", l->verdict.text);
	/* What happened on this host needs no host's name before it. */
	for (int i = 0; i < 2; i++) {
		if (!c->links[i].far && strcmp(l->verdict.host, c->links[i].name) == 0)
			l->verdict.host[0] = '\0';
	}
	blame(c, &failure, l->verdict.host);
	return 0;
}

static int announce(void *ctx, unsigned port)
{
	struct link *l = ctx;
	uint8_t body[TEXT_MAX + 16];
	struct writer w = writer_of(body, sizeof body);
	struct msg_detour m = {.port = (uint16_t)port};

	snprintf(m.why, sizeof m.why, "over ssh");
	msg_detour_encode(&w, &m);
	return link_send(l, MSG_DETOUR, body, w.used);
}

/* Lanes over ssh: the end that listened first listens again. */
static int take_detour(struct conductor *c, const char *why)
{
	struct link *to = &c->links[c->listener];
	struct link *from = other(c, to);
	const char *through = from->far && to->far ? ", through this host" : "";
	struct detour_way way = {
		.o = c->job->o,
		.from = from->far ? from->ssh_host : NULL,
		.to = to->far ? to->ssh_host : NULL,
		.port = to->loopback_port,
		.announce = announce,
		.ctx = from,
	};

	if (c->detoured)
		return 0;
	c->detoured = true;
	if (c->job->o->want == TRANSPORT_TCP || c->job->o->want == TRANSPORT_RDMA)
		return fail_as(OUT_TRANSPORT,
			       "no direct connection between %s and %s: %s (without --transport "
			       "data would go over ssh)",
			       from->name, to->name, why);
	if (!from->far && !to->far)
		return fail_as(OUT_CONNECT, "the two ends on this host can't connect: %s", why);
	if (!way.port)
		return fail_as(OUT_CONNECT, "no connection between %s and %s: %s", from->name,
			       to->name, why);
	if (why[0])
		log_warn("no direct connection between %s and %s (%s): data goes over ssh%s",
			 from->name, to->name, why, through);
	else
		log_warn("data goes over ssh%s", through);
	return detour_open(&way, &c->detour);
}

static int take_stuck(struct conductor *c, const struct frame *f)
{
	struct msg_noroute m;

	return msg_noroute_decode(f, &m) ? -1 : take_detour(c, m.why);
}

static int take_listening(struct conductor *c, struct link *l, const struct frame *f)
{
	struct msg_detour m;

	if (msg_detour_decode(f, &m))
		return -1;
	l->loopback_port = m.port;
	/* Asked for: nothing else is tried first. */
	return goes_through_ssh(c) && l == &c->links[c->listener] ? take_detour(c, "") : 0;
}

static int take_frame(struct conductor *c, struct link *l, const struct frame *f)
{
	if (!l->greeted)
		return take_greeting(l, f);
	if (!message_is_local(f->type)) {
		struct link *to = other(c, l);

		return to->gone || to->has_verdict ? 0 : link_send(to, f->type, f->body, f->len);
	}
	switch (f->type) {
	case MSG_NOTE:
		return take_note(l, f);
	case MSG_PROGRESS:
		return msg_progress_decode(f, &l->progress);
	case MSG_VERDICT:
		return take_verdict(c, l, f);
	case MSG_LISTENING:
		return take_listening(c, l, f);
	case MSG_STUCK:
		return take_stuck(c, f);
	default:
		return fail_as(OUT_PROTOCOL, "%s sent %s, which is not its to send", l->name,
			       message_name(f->type));
	}
}

/* Frames that are there, as far as the other end can take them. */
static void take_frames(struct conductor *c, struct link *l)
{
	struct frame f;
	int rc = 0;

	while (!l->gone && !link_is_full(other(c, l)) && (rc = framer_next(&l->in, &f)) > 0) {
		rc = take_frame(c, l, &f);
		if (rc)
			break;
	}
	if (rc >= 0 || l->gone)
		return;
	if (!l->greeted && failed()->code == OUT_PROTOCOL)
		explain_text(l);
	/* Whoever talks nonsense is not listened to any more. */
	l->gone = !l->greeted || failed()->code == OUT_PROTOCOL || failed()->code == OUT_VERSION;
	fail_both(c, "");
}

/* ---- one turn ------------------------------------------------------------------------------ */

static void send_cancel(struct conductor *c, int signo)
{
	uint8_t body[16];
	struct writer w = writer_of(body, sizeof body);
	struct msg_cancel m = {.signo = (uint8_t)signo};

	msg_cancel_encode(&w, &m);
	fail_as(OUT_SIGNAL, "interrupted by SIG%s", sigabbrev_np(signo));
	blame(c, failed(), "");
	for (int i = 0; i < 2; i++) {
		/* One that has not greeted may be ssh that asks for a password. */
		if (c->links[i].greeted)
			link_send(&c->links[i], MSG_CANCEL, body, w.used);
		else
			c->links[i].gone = true;
	}
	end_by(c, CANCEL_MS);
}

static struct progress_count counted(const struct conductor *c)
{
	return (struct progress_count){
		.bytes = c->links[LINK_SINK].progress.bytes,
		.total = c->links[LINK_SOURCE].progress.total,
		.total_known = c->links[LINK_SOURCE].progress.total_known,
		.files = c->links[LINK_SINK].progress.files,
	};
}

/* A child is gone, but somebody may hold its pipes: soon nothing more is waited for. */
static void take_deaths(struct conductor *c)
{
	int status;

	for (int i = 0; i < 2; i++) {
		struct link *l = &c->links[i];

		if (l->child.pid && !l->gone && child_wait(&l->child, &status, clock_ms()))
			l->lost_ms = clock_ms() + DEATH_MS;
	}
}

static void take_signals(struct conductor *c)
{
	struct signalfd_siginfo si;

	while (read(signals, &si, sizeof si) == (ssize_t)sizeof si) {
		struct progress_count count = counted(c);

		if (si.ssi_signo == SIGUSR1) {
			progress_now(c->job->progress, &count, clock_ms());
		} else if (si.ssi_signo == SIGCHLD) {
			take_deaths(c);
		} else if (!c->signo) {
			c->signo = (int)si.ssi_signo;
			send_cancel(c, c->signo);
		} else {
			end_by(c, 0);
		}
	}
}

static int turn_timeout(const struct conductor *c)
{
	int ms = progress_wanted(c->job->progress) ? PROGRESS_TICK_MS : -1;
	const uint64_t deadlines[] = {c->deadline_ms, c->links[0].lost_ms, c->links[1].lost_ms};

	for (int i = 0; i < 3; i++) {
		int left = deadlines[i] ? clock_left(deadlines[i]) : -1;

		if (left >= 0 && (ms < 0 || left < ms))
			ms = left;
	}
	return ms;
}

enum { AT_SIGNALS, AT_SCREEN, AT_OUT, AT_IN = AT_OUT + 2, AT_DETOUR = AT_IN + 2 };

static unsigned fill_polls(struct conductor *c, struct pollfd *p)
{
	p[AT_SIGNALS] = (struct pollfd){.fd = signals, .events = POLLIN};
	p[AT_SCREEN] =
		(struct pollfd){.fd = screen_waits() ? STDERR_FILENO : -1, .events = POLLOUT};
	for (int i = 0; i < 2; i++) {
		struct link *l = &c->links[i];
		bool reading = !l->gone && !link_is_full(other(c, l));
		bool writing = l->out_end > l->out_start;

		p[AT_OUT + i] =
			(struct pollfd){.fd = reading ? l->child.out : -1, .events = POLLIN};
		p[AT_IN + i] = (struct pollfd){.fd = writing ? l->child.in : -1, .events = POLLOUT};
	}
	return AT_DETOUR + (c->detour ? detour_polls(c->detour, p + AT_DETOUR) : 0);
}

static void turn(struct conductor *c)
{
	struct pollfd p[AT_DETOUR + DETOUR_POLLS];
	struct progress_count count;
	unsigned n = fill_polls(c, p);

	if (poll(p, n, turn_timeout(c)) < 0 && errno != EINTR) {
		fail_as(OUT_SOCKET, "wait for the ends: %m");
		fail_both(c, "");
		end_by(c, 0);
		return;
	}
	if (p[AT_SIGNALS].revents)
		take_signals(c);
	if (p[AT_SCREEN].revents)
		screen_flush();
	for (int i = 0; i < 2; i++) {
		struct link *l = &c->links[i];

		if (p[AT_IN + i].revents)
			link_write(l);
		if (p[AT_OUT + i].revents && !l->gone && link_read(l) == 0) {
			take_frames(c, l);
			if (!l->gone)
				lost(c, l);
		}
	}
	for (int i = 0; i < 2; i++) {
		struct link *l = &c->links[i];

		take_frames(c, l);
		if (l->lost_ms && clock_left(l->lost_ms) == 0) {
			l->lost_ms = 0;
			if (!l->gone)
				lost(c, l);
		}
	}
	if (c->detour && detour_turn(c->detour, p + AT_DETOUR, n - AT_DETOUR))
		fail_both(c, "");
	count = counted(c);
	/* Also where nothing is shown: SIGUSR1 asks for the rate. */
	progress_update(c->job->progress, &count, clock_ms());
}

static bool timed_out(const struct conductor *c)
{
	return c->deadline_ms && clock_ms() >= c->deadline_ms;
}

/* ---- the beginning --------------------------------------------------------------------------- */

static int run_local_end(void *ctx, int in, int out)
{
	(void)ctx;
	return end_run(in, out, false);
}

static int start_link(struct conductor *c, int i)
{
	struct link *l = &c->links[i];

	if (l->far) {
		if (far_start(c->job->o, l->ssh_host, "--end", &l->child))
			return -1;
	} else if (child_fork(run_local_end, NULL, "the end on this host", &l->child)) {
		return -1;
	}
	return link_open(l);
}

/* Local ends first: they must not have ssh's descriptors.  Two far ones one after the other:
 * both may ask for a password. */
static int start_both(struct conductor *c)
{
	for (int far = 0; far < 2; far++) {
		for (int i = 0; i < 2; i++) {
			struct link *l = &c->links[i];

			if (l->far != (bool)far)
				continue;
			if (start_link(c, i))
				return -1;
			while (!l->greeted && !c->cause.code && !timed_out(c))
				turn(c);
			if (c->cause.code)
				return fail_again(&c->cause);
		}
	}
	return 0;
}

static int instruct(struct conductor *c)
{
	const struct orders d = {
		.job = c->job,
		.links = c->links,
		.listener = c->listener,
		.over_ssh = goes_through_ssh(c),
	};

	return give_orders(&d);
}

static void name_link(struct link *l, const char *host)
{
	const char *at = strrchr(host, '@');

	link_init(l);
	l->far = host[0] != '\0';
	l->ssh_host = host;
	if (l->far)
		snprintf(l->name, sizeof l->name, "%s", at ? at + 1 : host);
	else if (gethostname(l->name, sizeof l->name - 1) || !l->name[0])
		snprintf(l->name, sizeof l->name, "here");
}

/* ---- the end ----------------------------------------------------------------------------------
 */

static void gather(const struct conductor *c, struct report *r)
{
	const struct msg_verdict *source = &c->links[LINK_SOURCE].verdict;
	const struct msg_verdict *sink = &c->links[LINK_SINK].verdict;
	const struct msg_verdict *v = c->links[LINK_SINK].has_verdict ? sink : source;

	r->total = v->total;
	r->transport = c->detour ? TRANSPORT_SSH : (enum transport)v->transport;
	r->lanes = v->lanes;
	snprintf(r->how, sizeof r->how, "%s", v->how);
	if (c->detour)
		snprintf(r->how, sizeof r->how, "ssh");
	snprintf(r->why, sizeof r->why, "%s", v->why);
	r->ns = v->ns;
	r->ns_fill = source->ns_fill;
	r->ns_free = source->ns_free;
	r->ns_block = sink->ns_block;
	r->ns_store = sink->ns_store;
	r->bwlimit = c->job->o->bwlimit;
	r->failure = c->cause;
	snprintf(r->host, sizeof r->host, "%s", c->cause_host);
}

/* The ends have said their last word, or are not asked any more. */
static void dismiss(struct conductor *c)
{
	uint64_t deadline_ms = clock_ms() + EXIT_MS;
	int status;

	detour_close(c->detour);
	for (int i = 0; i < 2; i++) {
		child_close_in(&c->links[i].child);
		/* A local end has had its time to leave by itself. */
		if (timed_out(c) && !c->links[i].far && c->links[i].child.pid)
			kill(c->links[i].child.pid, SIGKILL);
	}
	for (int i = 0; i < 2; i++) {
		if (c->links[i].has_verdict)
			child_wait(&c->links[i].child, &status, deadline_ms);
		link_close(&c->links[i]);
	}
}

void conduct(const struct job *j, struct report *r)
{
	static struct conductor c;

	memset(&c, 0, sizeof c);
	c.job = j;
	name_link(&c.links[LINK_SOURCE], j->source_host);
	name_link(&c.links[LINK_SINK], j->sink_host);
	/* The local end connects; with none or two of them, the source. */
	c.listener = c.links[LINK_SOURCE].far && !c.links[LINK_SINK].far ? LINK_SOURCE : LINK_SINK;
	if (start_both(&c) || instruct(&c)) {
		fail_both(&c, "");
		goto out;
	}
	while (!timed_out(&c)) {
		if ((c.links[0].gone || c.links[0].has_verdict) &&
		    (c.links[1].gone || c.links[1].has_verdict))
			break;
		turn(&c);
	}
	if (!c.cause.code && !done(&c)) {
		fail_as(OUT_PEER_LOST, "the ends did not say how it ended");
		blame(&c, failed(), "");
	}
out:
	gather(&c, r);
	dismiss(&c);
}
