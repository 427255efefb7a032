/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/serve/session_child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fail.h"
#include "base/io.h"
#include "base/log.h"
#include "cmd/cli/options.h"
#include "cmd/end/end.h"
#include "cmd/end/tunnel.h"
#include "cmd/serve/confine.h"
#include "cmd/serve/door.h"
#include "cmd/serve/transfer_log.h"
#include "copy/io/floor.h"
#include "session/channel/framer.h"
#include "session/connect/early.h"
#include "session/connect/strangers.h"

enum { MODULE_MS = 10000, REFUSAL_MS = 1000 };

struct admitted {
	struct channel *ch;
	struct framer framer;
	char from[80 + USER_NAME_MAX + 8]; /* address and user */
	char address[80];
	union address peer;
	char user[USER_NAME_MAX];
	struct msg_module module;
	struct guest guest;
};

/* A process must not outlive the one that waits for it. */
static void end_with(pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(OUT_SIGNAL);
}

static int shake_hands(struct channel *ch, uint64_t deadline_ms)
{
	struct pollfd p[2];
	int rc;

	while ((rc = channel_handshake(ch)) == 0) {
		int n = channel_polls(ch, false, p);

		if (clock_left(deadline_ms) == 0)
			return fail_as(OUT_TIMEOUT, "no complete TLS handshake in time");
		if (poll(p, (nfds_t)n, clock_left(deadline_ms)) < 0 && errno != EINTR)
			return fail_as(OUT_SOCKET, "wait for a client: %m");
	}
	return rc < 0 ? -1 : 0;
}

/* One line for each failure, so that an administrator sees who tries keys. */
static _Noreturn void leave_stranger(const struct admitted *a)
{
	bool is_wrong_key = failed()->code == OUT_AUTH;

	log_at(is_wrong_key ? LOG_WARN : LOG_INFO, "rejected %s: %s", a->from, failed()->text);
	_exit((int)failed()->code);
}

/* Adds the user to the address, for messages. */
static void name_client(struct admitted *a)
{
	const char *user = a->user;
	size_t used = strlen(a->from);

	if (*user && strcmp(user, "-") != 0)
		snprintf(a->from + used, sizeof a->from - used, ", user %s", user);
}

static void admit_client(struct session_child *c, struct admitted *a)
{
	uint64_t deadline_ms = clock_ms() + STRANGER_MS;
	union address local, peer;
	int rc;

	if (channel_tls_server(c->fd, NULL, &a->ch))
		leave_stranger(a);
	if (!channel_addresses(a->ch, &local, &peer)) {
		fail_as(OUT_SOCKET, "find its address: %m");
		leave_stranger(a);
	}
	a->guest.reached = local;
	a->peer = peer;
	address_text(&peer, a->from, sizeof a->from);
	address_text(&peer, a->address, sizeof a->address);
	channel_set_peer(a->ch, a->from);
	channel_set_ring(a->ch, c->keys);
	rc = shake_hands(a->ch, deadline_ms);
	key_ring_wipe(c->keys);
	snprintf(a->user, sizeof a->user, "%s", channel_user(a->ch));
	name_client(a);
	if (rc)
		leave_stranger(a);
}

static void read_module(struct session_child *c, struct admitted *a)
{
	uint64_t admitted = DOOR_ADMITTED;
	struct frame f;
	int rc;

	framer_init(&a->framer);
	rc = frame_read(a->ch, &a->framer, clock_ms() + MODULE_MS, &f);
	if (rc == 0)
		fail_as(OUT_PEER_LOST, "it closed the connection");
	if (rc > 0 && f.type != MSG_MODULE)
		fail_as(OUT_PROTOCOL, "expected MODULE, received %s", message_name(f.type));
	if (rc <= 0 || f.type != MSG_MODULE || msg_module_decode(&f, &a->module))
		leave_stranger(a);
	(void)!send(c->door, &admitted, sizeof admitted, MSG_NOSIGNAL);
}

static void send_refusal(const struct admitted *a)
{
	static uint8_t body[TEXT_MAX + HOST_MAX + 1024];
	struct writer w = writer_of(body, sizeof body);
	static struct msg_verdict v;

	v.code = (uint8_t)failed()->code;
	snprintf(v.text, sizeof v.text, "%s", failed()->text);
	msg_verdict_encode(&w, &v);
	(void)frame_write(a->ch, MSG_VERDICT, body, w.used, clock_ms() + REFUSAL_MS);
	channel_flush(a->ch, clock_ms() + REFUSAL_MS);
}

/* Asks rdcpd for a session. One whose end will refuse the client counts as one of its user, and
 * needs neither a module nor memory. */
static void enter_census(struct session_child *c, struct admitted *a)
{
	const struct module *m = module_find(c->modules, c->module_count, a->module.name);
	struct entrant who = {0};
	struct failure why;

	memcpy(who.user, a->user, sizeof who.user);
	if (m && module_admit(m, a->user, &a->peer) == 0)
		memcpy(who.module, a->module.name, sizeof who.module);
	if (door_ask(c->door, &who, &a->guest.memory, &c->slot) == 0)
		return;
	why = *failed();
	send_refusal(a);
	log_warn("rejected %s: %s", a->from, why.text);
	_exit((int)why.code);
}

/* Only what this client may use. */
static void list_modules(const struct session_child *c, struct admitted *a)
{
	static struct guest_module listed[MODULES_MAX];
	struct guest *g = &a->guest;

	for (unsigned i = 0; i < c->module_count; i++)
		if (c->modules[i].list && module_admit(&c->modules[i], a->user, &a->peer) == 0)
			listed[g->listed_count++] = (struct guest_module){
				.name = c->modules[i].name,
				.comment = c->modules[i].comment,
			};
	g->listed = listed;
}

static void set_floor(const struct session_child *c, const struct module *m)
{
	const struct floor f = {
		.min_free = m->min_free,
		.max_bytes = m->max_bytes,
		.board = c->board,
		.slot = c->slot,
	};

	floor_set(&f);
}

static void open_adapters(void *ctx)
{
	const struct session_child *c = ctx;

	early_open(c->family);
}

static int confine_guest(struct session_child *c, const struct module *m, bool may_change)
{
	if (c->transports.want != TRANSPORT_TCP && early_read())
		return confine_enter_late(m->path, &m->account, may_change, open_adapters, c);
	return confine_enter(m->path, &m->account, may_change);
}

/* Runs in the end's own process. */
static int run_guest(struct session_child *c, struct admitted *a, int in, int out)
{
	const struct module *m = module_find(c->modules, c->module_count, a->module.name);
	struct module_rights may = {0};
	struct guest *g = &a->guest;

	if (m)
		may = module_rights(m, a->user);
	g->door = c->door;
	g->port = c->port;
	g->want = c->transports.want;
	g->port_lo = c->transports.port_lo;
	g->port_hi = c->transports.port_hi;
	g->tos = c->transports.tos;
	g->one_address = c->one_address;
	g->idle_s = c->idle_s;
	g->module = a->module.name;
	if (!*a->module.name)
		list_modules(c, a);
	if (!m && confine_to_nothing()) {
		log_at(LOG_ERROR, "%s", failed()->text);
		g->refusal = *failed();
	} else if (!m) {
		fail_as(OUT_NO_SOURCE, "there is no module %s (rdma://HOST/ lists the modules)",
			a->module.name);
		g->refusal = *failed();
	} else if (module_admit(m, a->user, &a->peer)) {
		log_warn("rejected %s: %s", a->from, failed()->text);
		g->refusal = *failed();
	} else if (confine_guest(c, m, may.write || may.delete)) {
		log_at(LOG_ERROR, "%s", failed()->text);
		g->refusal = *failed();
	} else {
		set_floor(c, m);
		g->may_read = may.read;
		g->may_write = may.write;
		g->may_delete = may.delete;
		g->may_remove = may.remove;
		g->anonymous = user_is_anonymous(a->user);
		g->must_encrypt = m->must_encrypt;
		g->fsync = m->fsync;
		g->refused = m->refused;
		g->incoming_chmod = m->incoming_chmod;
	}
	/* Another set of privileges may have cleared it. */
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	end_set_guest(g);
	return end_run(in, out, false);
}

/* Memory that a forked end shares with this process. */
static struct guest_record *share_record(void)
{
	static struct guest_record nothing;
	void *at = mmap(NULL, sizeof nothing, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			-1, 0);

	if (at != MAP_FAILED)
		return at;
	log_warn("what a client does cannot be logged: %m");
	return &nothing;
}

/* For a client that gets no end: it learns why. */
static _Noreturn void turn_away(const struct admitted *a)
{
	struct failure why = *failed();

	send_refusal(a);
	fail_again(&why);
	leave_stranger(a);
}

static pid_t start_guest(struct session_child *c, struct admitted *a, int *in, int *out)
{
	pid_t parent = getpid(), pid;
	int to_end[2], from_end[2];

	if (pipe2(to_end, O_CLOEXEC) || pipe2(from_end, O_CLOEXEC) || (pid = fork()) < 0) {
		fail_as(OUT_START, "start an end: %m");
		turn_away(a);
	}
	if (pid == 0) {
		int rc;

		end_with(parent);
		channel_forget(a->ch);
		framer_wipe(&a->framer);
		close_fd(to_end[1]);
		close_fd(from_end[0]);
		rc = run_guest(c, a, to_end[0], from_end[1]);
		_exit(rc);
	}
	close_fd(to_end[0]);
	close_fd(from_end[1]);
	close_fd(c->door);
	*in = from_end[0];
	*out = to_end[1];
	return pid;
}

/* The process that decrypts what a client sends needs no more rights than the client has. */
static void drop_rights(const struct session_child *c, const struct admitted *a)
{
	const struct module *m = module_find(c->modules, c->module_count, a->module.name);

	if (m ? confine_without_files(&m->account) : confine_to_nothing())
		turn_away(a);
	end_with(c->parent);
}

static void report_session(const struct session_child *c, const struct admitted *a, pid_t pid)
{
	struct transfer t = {
		.from = a->address,
		.user = a->user,
		.module = a->module.name,
		.record = a->guest.record,
	};

	while (waitpid(pid, &t.status, 0) < 0 && errno == EINTR)
		;
	transfer_log(&t, c->json);
}

void session_child_run(struct session_child *c)
{
	static struct admitted a = {.from = "a client"};
	const void *rest;
	size_t len;
	int in, out;
	pid_t pid;

	end_with(c->parent);
	admit_client(c, &a);
	read_module(c, &a);
	enter_census(c, &a);
	a.guest.record = share_record();
	pid = start_guest(c, &a, &in, &out);
	drop_rights(c, &a);
	tunnel_end_on_sigterm();
	rest = framer_rest(&a.framer, &len);
	if (tunnel_run(a.ch, rest, len, in, out))
		log_at(failed()->code == OUT_SOCKET ? LOG_WARN : LOG_DEBUG, "%s: %s", a.from,
		       failed()->text);
	report_session(c, &a, pid);
	_exit(OUT_DONE);
}
