/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/serve/serve.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fail.h"
#include "base/fd_pass.h"
#include "base/io.h"
#include "base/log.h"
#include "cmd/process/signals.h"
#include "cmd/serve/admission.h"
#include "cmd/serve/census.h"
#include "cmd/serve/door.h"
#include "cmd/serve/host_gate.h"
#include "cmd/serve/listeners.h"
#include "cmd/serve/notify.h"
#include "cmd/serve/session_child.h"
#include "copy/io/floor.h"
#include "session/connect/strangers.h"

enum {
	CHECK_MS = 250, /* a signal that arrives just before poll(2) does not end it */
	RETRY_MS = 20, /* after poll(2) failed */
	MESSAGES_MOST = 16, /* of one client in a turn */
	WARN_MS = 10000, /* between two warnings of the same kind */
	STOP_MS = 10000, /* more than the processes of sessions take to end */
	LANE_BYTE = 'S', /* the first one of a LANE_HELLO */
};

struct client {
	pid_t pid;
	int door;
	uint64_t session; /* 0: its end takes no lanes yet */
	bool asked; /* for a session */
};

struct service {
	struct server *server;
	pid_t self;
	struct strangers strangers;
	struct admission admission;
	struct census census;
	struct host_gate gate;
	struct client clients[SESSIONS_MAX];
	unsigned count;
	bool reload_failed; /* the last one */
	uint64_t warned_ms; /* when it last warned that it can't serve a client (clock_ms) */
	uint64_t drain_due; /* when the last sessions are ended (clock_ms); 0: it does not drain */
};

/* ---- signals --------------------------------------------------------------------------------- */

/* stops: 1 ends it when all sessions have ended, 2 at once. */
static volatile sig_atomic_t stops, reload_signal;

static void on_drain(int signo)
{
	(void)signo;
	stops = stops ? 2 : 1;
}

static void on_stop(int signo)
{
	(void)signo;
	stops = 2;
}

static void on_reload(int signo)
{
	reload_signal = signo;
}

static void on_child(int signo)
{
	(void)signo;
}

static void set_handler(int signo, void (*handler)(int))
{
	struct sigaction sa = {.sa_handler = handler};

	sigemptyset(&sa.sa_mask);
	sigaction(signo, &sa, NULL);
}

static void take_signals(void)
{
	set_handler(SIGTERM, on_drain);
	if (!signal_is_ignored(SIGINT))
		set_handler(SIGINT, on_stop);
	set_handler(SIGHUP, on_reload);
	set_handler(SIGCHLD, on_child);
	set_handler(SIGPIPE, SIG_IGN);
}

static void restore_signals(void)
{
	set_handler(SIGTERM, SIG_DFL);
	if (!signal_is_ignored(SIGINT))
		set_handler(SIGINT, SIG_DFL);
	set_handler(SIGHUP, SIG_DFL);
	set_handler(SIGCHLD, SIG_DFL);
}

/* ---- clients --------------------------------------------------------------------------------- */

/* Nothing of the parent's stays open in a child but its client's connection and its door. */
static void close_others(struct service *v, int fd, int door)
{
	listeners_close(v->server);
	for (unsigned i = 0; i < v->count; i++)
		close_fd(v->clients[i].door);
	for (unsigned i = 0; i < v->strangers.count; i++)
		if (v->strangers.list[i].fd != fd)
			close_fd(v->strangers.list[i].fd);
	close_fd(door);
}

static _Noreturn void run_child(struct service *v, int fd, const int door[2])
{
	static struct key_ring keys;
	struct session_child c = {
		.parent = v->self,
		.fd = fd,
		.door = door[1],
		.keys = &keys,
		.modules = v->server->settings->modules,
		.module_count = v->server->settings->module_count,
		.port = v->server->port,
		.board = v->server->board,
		.one_address = v->server->one_address,
		.idle_s = v->server->settings->limits.idle_s,
		.transports = v->server->settings->transports,
		.family = v->server->family,
		.json = v->server->json,
	};

	restore_signals();
	notify_forget();
	close_others(v, fd, door[0]);
	keys = v->server->settings->keys;
	session_child_run(&c);
}

/* Clients try again and again. */
static void warn_unserved(struct service *v)
{
	if (v->warned_ms && clock_ms() - v->warned_ms < WARN_MS)
		return;
	log_warn("serve a client: %m");
	v->warned_ms = clock_ms();
}

/* Forks for a client whose ClientHello is there. Its connection is closed here. */
static void start_client(struct service *v, unsigned i)
{
	int fd = v->strangers.list[i].fd, door[2] = {-1, -1};
	pid_t pid;

	if (v->count == SESSIONS_MAX || v->drain_due) {
		stranger_refuse(&v->strangers.list[i]);
		stranger_close(&v->strangers, i);
		return;
	}
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, door) || (pid = fork()) < 0) {
		warn_unserved(v);
		close_fd(door[0]);
		close_fd(door[1]);
		stranger_refuse(&v->strangers.list[i]);
		stranger_close(&v->strangers, i);
		return;
	}
	if (pid == 0)
		run_child(v, fd, door);
	close_fd(door[1]);
	admission_add(&v->admission, pid, &v->strangers.list[i]);
	stranger_close(&v->strangers, i);
	v->clients[v->count++] = (struct client){.pid = pid, .door = door[0]};
}

static void drop_client(struct service *v, unsigned i)
{
	admission_remove(&v->admission, v->clients[i].pid);
	close_fd(v->clients[i].door);
	v->clients[i] = v->clients[--v->count];
}

static struct client *find_client(struct service *v, uint64_t session)
{
	for (unsigned i = 0; i < v->count; i++)
		if (session && v->clients[i].session == session)
			return &v->clients[i];
	return NULL;
}

/* A client asks for a session. Later requests are of an end, which the client may control. */
static int answer_request(struct service *v, struct client *c, const struct door_request *ask)
{
	const struct settings *s = v->server->settings;
	const struct module *m = module_find(s->modules, s->module_count, ask->who.module);
	struct door_answer a = {0};

	if (c->asked)
		return 0;
	c->asked = true;
	if (census_enter(&v->census, &s->limits, m ? m->max_sessions : 0, c->pid, &ask->who,
			 &a.memory, &a.slot))
		a.refusal = *failed();
	return door_answer(c->door, &a);
}

static int take_message(struct service *v, struct client *c, const union door_message *m, long size)
{
	if (size == sizeof m->request)
		return answer_request(v, c, &m->request);
	if (size == sizeof m->sizes)
		census_lower(&v->census, c->pid, m->sizes.memory);
	else if (size == sizeof m->word && m->word == DOOR_ADMITTED)
		admission_remove(&v->admission, c->pid);
	else if (size == sizeof m->word && c->session == 0 && !find_client(v, m->word))
		c->session = m->word;
	return 0;
}

/* Takes what client i said at its door, but not for ever. Returns false if it has left. */
static bool read_door(struct service *v, unsigned i)
{
	struct client *c = &v->clients[i];
	union door_message m;
	long n = 0;

	for (unsigned taken = 0; taken < MESSAGES_MOST; taken++) {
		n = door_read(c->door, &m);
		if (n > 0 && take_message(v, c, &m, n))
			n = -1;
		if (n <= 0)
			break;
	}
	if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
		return true;
	if (n < 0)
		log_warn("talk with a session: %m");
	return false;
}

static void read_doors(struct service *v)
{
	for (unsigned i = 0; i < v->count;) {
		if (read_door(v, i))
			i++;
		else
			drop_client(v, i);
	}
}

/* A session lasts until its processes are gone, whatever its end does with its door. Returns
 * whether there are any still. */
static bool reap_children(struct service *v)
{
	pid_t pid;

	while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
		census_leave(&v->census, pid);
	return pid == 0;
}

/* ---- strangers ------------------------------------------------------------------------------- */

/* Passes a lane to its session. The parent's descriptor is closed. */
static void pass_lane(struct service *v, unsigned i, const uint8_t hello[static LANE_HELLO_SIZE])
{
	struct stranger *s = &v->strangers.list[i];
	struct client *c = NULL;
	struct lane_hello h;
	char from[80];

	if (lane_hello_decode(hello, &h) == 0) {
		/* The id was sent before the client could know it. */
		read_doors(v);
		c = find_client(v, h.session);
	}
	if (!c || fd_send(c->door, "", 1, s->fd, MSG_DONTWAIT) < 0)
		log_debug("closed a lane from %s, which belongs to no session",
			  stranger_text(s, from, sizeof from));
	stranger_close(&v->strangers, i);
}

/* Whether the hello of stranger i, which is there whole, may get a process. */
static bool accept_hello(struct service *v, unsigned i)
{
	struct stranger *s = &v->strangers.list[i];
	uint8_t hello[CLIENT_HELLO_MAX];
	size_t size = stranger_peek_hello(&v->strangers, i, hello);
	char from[80];

	s->waits = size > 0 && !replay_check(&v->server->replay, hello, size);
	if (!s->waits)
		log_debug("closed a connection from %s: %s", stranger_text(s, from, sizeof from),
			  size ? "its ClientHello was here before" : "no ClientHello");
	return s->waits;
}

/* Returns true if stranger i is no stranger any more. */
static bool serve_stranger(struct service *v, unsigned i)
{
	uint8_t hello[LANE_HELLO_SIZE];
	int first = stranger_first_byte(&v->strangers, i), rc = first;

	if (first > 0 && !host_gate_admits(&v->gate, v->server->settings, &v->strangers.list[i]))
		first = rc = -1;
	if (first == TLS_HANDSHAKE)
		rc = stranger_hello(&v->strangers, i);
	else if (first == LANE_BYTE)
		rc = stranger_lane_hello(&v->strangers, i, hello);
	else if (first > 0)
		rc = -1;
	if (rc == 0 || (rc > 0 && first == TLS_HANDSHAKE && accept_hello(v, i)))
		return false;
	if (rc > 0 && first == LANE_BYTE)
		pass_lane(v, i, hello);
	else
		stranger_close(&v->strangers, i);
	return true;
}

/* Ends the process of a client whose handshake takes too long while others wait. */
static bool make_room(struct service *v)
{
	pid_t pid;

	/* The handshake may just have ended. */
	read_doors(v);
	pid = admission_victim(&v->admission);
	if (pid) {
		log_debug("ended a handshake that took %d ms, for another client", ADMISSION_MS);
		kill(pid, SIGKILL);
		admission_remove(&v->admission, pid);
	}
	return !admission_is_full(&v->admission);
}

/* Starts one process at most. To start one takes long on a busy machine, and lanes of sessions wait
 * in between. */
static void admit_waiting(struct service *v)
{
	int i = admission_choose(&v->admission, &v->strangers);

	if (i >= 0 && (!admission_is_full(&v->admission) || make_room(v)))
		start_client(v, (unsigned)i);
}

/* ---- the loop -------------------------------------------------------------------------------- */

struct polls {
	struct pollfd set[1 + 2 + SESSIONS_MAX + STRANGERS_MAX + 1];
	unsigned n;
};

static void fill_polls(struct service *v, struct polls *p)
{
	/* Index 0 stays free: it means "not polled". */
	p->set[0].fd = -1;
	p->n = 1;
	for (unsigned i = 0; i < v->server->listener_count && strangers_accepting(&v->strangers);
	     i++)
		p->set[p->n++] = (struct pollfd){v->server->listeners[i], POLLIN, 0};
	for (unsigned i = 0; i < v->count; i++)
		p->set[p->n++] = (struct pollfd){v->clients[i].door, POLLIN, 0};
	for (unsigned i = 0; i < v->strangers.count; i++) {
		struct stranger *s = &v->strangers.list[i];

		/* A hello that waits would be readable all the time. */
		s->polled = s->waits ? 0 : p->n;
		if (s->polled)
			p->set[p->n++] = (struct pollfd){s->fd, POLLIN | POLLRDHUP, 0};
	}
}

static int poll_ms(const struct service *v)
{
	uint64_t due = strangers_due(&v->strangers), room = admission_due(&v->admission);
	int left = due ? clock_left(due) : CHECK_MS;

	if (clock_left(room) < left && admission_choose(&v->admission, &v->strangers) >= 0)
		left = clock_left(room);
	return left < CHECK_MS ? left : CHECK_MS;
}

static void accept_strangers(struct service *v)
{
	for (unsigned i = 0; i < v->server->listener_count && strangers_accepting(&v->strangers);
	     i++)
		strangers_accept(&v->strangers, v->server->listeners[i]);
}

/* poll(2) failed: whatever may be ready is tried. If memory is short, that does not help a flood.
 */
static void survive_poll(struct polls *p)
{
	static bool warned;

	if (errno != EINTR) {
		if (!warned)
			log_warn("wait for clients: %m");
		warned = true;
		poll(NULL, 0, RETRY_MS);
	}
	for (unsigned i = 0; i < p->n; i++)
		p->set[i].revents = POLLIN;
}

static void run_iteration(struct service *v)
{
	static struct polls p;

	fill_polls(v, &p);
	if (poll(p.set, p.n, poll_ms(v)) < 0)
		survive_poll(&p);
	reap_children(v);
	for (unsigned i = 0; i < v->strangers.count;) {
		unsigned at = v->strangers.list[i].polled;

		if (at == 0 || at >= p.n || !p.set[at].revents || !serve_stranger(v, i))
			i++;
	}
	read_doors(v);
	admit_waiting(v);
	strangers_expire(&v->strangers);
	accept_strangers(v);
}

/* Sessions that run have copies of the settings that they began with. */
static int reload_settings(struct server *s)
{
	struct settings *fresh;

	if (!s->options)
		return 0;
	if (settings_load(s->options, &fresh)) {
		log_at(LOG_ERROR, "%s; the settings stay as they are", failed()->text);
		return -1;
	}
	if (strcmp(fresh->address, s->settings->address) != 0 || fresh->port != s->settings->port)
		log_warn("address and port change only when rdcpd starts again");
	if (fresh->transports.tos != s->settings->transports.tos)
		listeners_set_tos(s, fresh->transports.tos);
	settings_free(s->settings);
	s->settings = fresh;
	log_info("loaded the settings again: %u module%s", fresh->module_count,
		 fresh->module_count == 1 ? "" : "s");
	return 0;
}

/* Of those that have authenticated. */
static unsigned count_sessions(const struct service *v)
{
	return v->count - v->admission.count;
}

static struct notify_state state_of(const struct service *v)
{
	return (struct notify_state){
		.sessions = count_sessions(v),
		.draining = v->drain_due != 0,
		.reload_failed = v->reload_failed,
	};
}

static void obey_reload(struct service *v, struct server *s)
{
	struct notify_state state;

	if (!reload_signal)
		return;
	reload_signal = 0;
	/* A manager takes no state but the end of one that stops. */
	if (v->drain_due)
		return;
	notify_reloading();
	v->reload_failed = reload_settings(s) != 0;
	state = state_of(v);
	notify_ready(&state);
}

/* limit_s 0: sessions end at once. */
static void begin_drain(struct service *v, unsigned limit_s)
{
	struct notify_state state;

	v->drain_due = clock_ms() + 1000ull * limit_s;
	state = state_of(v);
	notify_stopping(&state, 1000ull * limit_s + STOP_MS);
	if (limit_s > 0 && v->count > 0)
		log_warn("ending after %u session%s, or in %u s; SIGTERM again ends at once",
			 state.sessions, state.sessions == 1 ? "" : "s", limit_s);
}

/* Whether rdcpd goes on serving: new clients, or while it drains the sessions that there are. The
 * process of a session reports after its end has closed the door. */
static bool has_to_serve(struct service *v)
{
	if (stops == 0)
		return true;
	if (!v->drain_due)
		begin_drain(v, stops > 1 ? 0 : v->server->settings->drain_s);
	if (stops > 1 || (v->count == 0 && !reap_children(v)))
		return false;
	if (clock_left(v->drain_due) > 0)
		return true;
	log_warn("ended what was left after the drain limit: %u session%s", count_sessions(v),
		 count_sessions(v) == 1 ? "" : "s");
	return false;
}

static void stop_clients(struct service *v)
{
	for (unsigned i = 0; i < v->count; i++)
		kill(v->clients[i].pid, SIGTERM);
	while (v->count > 0)
		drop_client(v, 0);
}

int serve_listen(struct server *s)
{
	take_signals();
	s->board = floor_make_board();
	return s->board < 0 || replay_init(&s->replay) ? -1 : listeners_open(s);
}

void serve_run(struct server *s)
{
	static struct service v;
	struct notify_state state;

	v.server = s;
	v.self = getpid();
	strangers_init(&v.strangers, STRANGERS_MAX);
	state = state_of(&v);
	notify_ready(&state);
	while (has_to_serve(&v)) {
		obey_reload(&v, s);
		run_iteration(&v);
		state = state_of(&v);
		notify_status(&state);
	}
	strangers_close(&v.strangers);
	stop_clients(&v);
	listeners_close(s);
	close_fd(s->board);
}
