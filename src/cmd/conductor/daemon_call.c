/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/conductor/daemon_call.h"

#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include "base/clock.h"
#include "base/fail.h"
#include "base/io.h"
#include "base/log.h"
#include "cmd/cli/operand.h"
#include "cmd/end/dial.h"
#include "cmd/end/tunnel.h"
#include "cmd/process/process.h"
#include "lane/tcp/tcp_connect.h"

/* Between the tries of a client for whom the daemon has no room. */
enum { AGAIN_FIRST_MS = 250, AGAIN_MS = 2000 };

#ifndef SLUICE_VERSION
#define SLUICE_VERSION "0"
#endif

struct call {
	const struct options *o;
	struct daemon_url url;
	union address *dialed; /* or NULL */
};

static int write_frame(int out, uint8_t type, const struct writer *w)
{
	uint8_t head[FRAME_HEAD];

	frame_head_encode(type, (uint32_t)w->used, head);
	return write_full(out, head, sizeof head) || write_full(out, w->base, w->used) ? -1 : 0;
}

/* As an end reports it. Returns the exit code. */
static int report_call_failure(int out)
{
	static uint8_t body[FRAME_BODY_MAX];
	static struct msg_verdict v;
	struct msg_greeting g = {.version = PROTOCOL_VERSION, .release = SLUICE_VERSION};
	struct writer w = writer_of(body, sizeof body);

	msg_greeting_encode(&w, &g);
	if (write_frame(out, MSG_GREETING, &w))
		return (int)failed()->code;
	v.code = (uint8_t)failed()->code;
	memcpy(v.text, failed()->text, sizeof v.text);
	w = writer_of(body, sizeof body);
	msg_verdict_encode(&w, &v);
	(void)write_frame(out, MSG_VERDICT, &w);
	return v.code;
}

static struct dial_opts make_dial_opts(const struct options *o, const struct daemon_url *url)
{
	return (struct dial_opts){
		.host = url->host,
		.port = url->port ? url->port : o->serve.port,
		.family = o->network.family == 4   ? AF_INET
			  : o->network.family == 6 ? AF_INET6
						   : 0,
		.tos = o->network.tos,
		.timeout_ms = o->network.connect_timeout_ms,
		.silence_ms = o->network.timeout_ms,
		.listener = "rdcpd",
		.caller = CALLER_CONDUCTOR,
		.user = url->user,
	};
}

/* The bytes of HOST in a value of --key-file, HOST=FILE or FILE. A file whose own name has a = is
 * ./NAME. */
static size_t key_host_length(const char *value)
{
	size_t len = strcspn(value, "=/");

	return value[len] == '=' ? len : 0;
}

/* Whether the first len bytes of name are "[USER@]HOST[:PORT]" of url. */
static bool names_daemon(const char *name, size_t len, const struct daemon_url *url, unsigned port)
{
	bool v6 = strchr(url->host, ':') != NULL;

	for (int form = 0; form < 4; form++) {
		bool with_user = form & 1, with_port = form & 2;
		char text[USER_NAME_MAX + HOST_MAX + 16], digits[8] = "";

		if (with_port)
			snprintf(digits, sizeof digits, ":%u", port);
		snprintf(text, sizeof text, "%s%s%s%s%s%s", with_user ? url->user : "",
			 with_user ? "@" : "", v6 ? "[" : "", url->host, v6 ? "]" : "", digits);
		if (strlen(text) == len && strncasecmp(text, name, len) == 0)
			return true;
	}
	return false;
}

/* The file with the key of a daemon, or NULL: the first that names it, else the last that names no
 * host. */
static const char *find_key_file(const struct options *o, const struct daemon_url *url)
{
	unsigned port = url->port ? url->port : o->serve.port;
	const char *of_all = NULL;

	for (unsigned i = 0; i < o->key.files.count; i++) {
		const char *value = o->key.files.of[i];
		size_t len = key_host_length(value);

		if (len && names_daemon(value, len, url, port))
			return value + len + 1;
		if (!len)
			of_all = value;
	}
	return of_all;
}

int daemon_check_keys(const struct options *o)
{
	for (unsigned i = 0; i < o->key.files.count; i++) {
		const char *value = o->key.files.of[i];
		size_t len = key_host_length(value);

		if (*value == '=' || (len && !value[len + 1]))
			return fail_as(OUT_USAGE,
				       "--key-file %s: invalid value, expected FILE or HOST=FILE",
				       value);
	}
	return 0;
}

/* Whoever has no key, and names no user, is an anonymous client. */
static int choose_key(const struct options *o, struct daemon_url *url, struct psk *key)
{
	const char *file = find_key_file(o, url);

	if (file)
		return psk_from_made_file(file, key);
	if (strcmp(url->user, "-") != 0 && !user_is_anonymous(url->user))
		return fail_as(OUT_USAGE, "rdma://%s@ needs the key of that user: --key-file=FILE",
			       url->user);
	snprintf(url->user, sizeof url->user, "%s", ANONYMOUS_USER);
	psk_anonymous(key);
	return 0;
}

static int dial_daemon(const struct options *o, const struct daemon_url *named,
		       struct daemon_end *e)
{
	struct daemon_url url = *named;
	struct dial_opts d;
	struct psk key;
	int rc = choose_key(o, &url, &key);

	d = make_dial_opts(o, &url);
	d.key = &key;
	if (!rc)
		rc = dial_connect(&d, &e->ch, &e->dialed);
	psk_wipe(&key);
	if (rc && failed()->code == OUT_AUTH && !find_key_file(o, named))
		return fail_as(OUT_AUTH,
			       "rdcpd on %s takes no client without a key: use --key-file=FILE",
			       url.host);
	return rc;
}

int daemon_connect_lane(const struct options *o, const char *url, uint64_t deadline_ms)
{
	struct daemon_url u;
	struct dial_opts d;
	const char *rest;
	int fd;

	if (operand_parse_daemon(url, &u, &rest))
		return -1;
	d = make_dial_opts(o, &u);
	fd = dial_tcp(&d, deadline_ms);
	if (fd >= 0)
		tcp_set_options(fd, o->network.timeout_ms);
	return fd;
}

static int name_module(const struct options *o, const struct daemon_url *url, struct channel *ch)
{
	uint8_t body[MODULE_NAME_MAX + 16];
	struct writer w = writer_of(body, sizeof body);
	struct msg_module m = {.version = PROTOCOL_VERSION};

	memcpy(m.name, url->module, sizeof m.name);
	msg_module_encode(&w, &m);
	return frame_write(ch, MSG_MODULE, body, w.used,
			   clock_ms() + (unsigned)o->network.timeout_ms);
}

/* The daemon refuses with VERDICT in the place of the end's GREETING. */
static int take_refusal(const struct frame *f, bool *busy)
{
	static struct msg_verdict v;

	if (msg_verdict_decode(f, &v))
		return -1;
	*busy = outcome_from(v.code) == OUT_CONNECT;
	return fail_as(outcome_from(v.code), "%s", v.text);
}

/* One call. *again: another may succeed: the daemon has no room for this client now, or closed the
 * connection before it answered. It may do so to make room, though the handshake is complete at
 * this end (session/connect/strangers.h). */
static int call_daemon(const struct options *o, const struct daemon_url *url, struct daemon_end *e,
		       bool *again)
{
	int rc;

	*again = false;
	if (dial_daemon(o, url, e))
		return -1;
	framer_init(&e->framer);
	if (name_module(o, url, e->ch))
		rc = -1;
	else
		rc = frame_read(e->ch, &e->framer, clock_ms() + (unsigned)o->network.timeout_ms,
				&e->greeting);
	if (rc > 0)
		return e->greeting.type == MSG_VERDICT ? take_refusal(&e->greeting, again) : 0;
	if (rc == 0)
		fail_as(OUT_PEER_LOST, "rdcpd on %s closed the connection", url->host);
	*again = failed()->code == OUT_PEER_LOST;
	return -1;
}

int daemon_open(const struct options *o, const struct daemon_url *url, struct daemon_end *e)
{
	uint64_t deadline_ms = clock_ms() + (unsigned)o->network.connect_timeout_ms;
	int ms = AGAIN_FIRST_MS;
	bool again;

	e->ch = NULL;
	while (call_daemon(o, url, e, &again)) {
		channel_free(e->ch);
		e->ch = NULL;
		/* The reason stays the failure. */
		if (!again || clock_left(deadline_ms) <= ms)
			return -1;
		poll(NULL, 0, ms);
		ms = ms * 2 < AGAIN_MS ? ms * 2 : AGAIN_MS;
	}
	return 0;
}

static int pass_greeting(const struct daemon_end *e, int out)
{
	uint8_t head[FRAME_HEAD];

	frame_head_encode(e->greeting.type, e->greeting.len, head);
	return write_full(out, head, sizeof head) < 0 ||
			       write_full(out, e->greeting.body, e->greeting.len) < 0
		       ? fail_as(OUT_SOCKET, "pass on the greeting: %m")
		       : 0;
}

static int run_call(void *ctx, int in, int out)
{
	const struct call *c = ctx;
	static struct daemon_end e;
	const void *rest;
	size_t len;

	/* A terminal sends it to all processes; the conductor handles it. */
	signal(SIGINT, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	process_protect_secrets();
	if (daemon_open(c->o, &c->url, &e))
		return report_call_failure(out);
	if (c->dialed)
		*c->dialed = e.dialed;
	rest = framer_rest(&e.framer, &len);
	if (pass_greeting(&e, out) == 0 && tunnel_run(e.ch, rest, len, in, out) == 0)
		return OUT_DONE;
	if (failed()->code == OUT_SOCKET)
		log_at(LOG_ERROR, "%s", failed()->text);
	return (int)failed()->code;
}

union address *daemon_share_address(void)
{
	void *at = mmap(NULL, sizeof(union address), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return at == MAP_FAILED ? NULL : at;
}

void daemon_unshare_address(union address *a)
{
	if (a)
		munmap(a, sizeof *a);
}

int daemon_start(const struct options *o, const char *url, union address *dialed, struct child *out)
{
	struct call c = {.o = o, .dialed = dialed};
	const char *rest;
	char what[sizeof out->what];

	if (operand_parse_daemon(url, &c.url, &rest))
		return -1;
	snprintf(what, sizeof what, "the connection to rdcpd at %.200s", c.url.host);
	return child_fork(run_call, &c, what, out);
}

void daemon_name(const char *url, char to[static HOST_MAX])
{
	struct daemon_url u;
	const char *rest;

	if (operand_parse_daemon(url, &u, &rest))
		fail_clear();
	memcpy(to, u.host, HOST_MAX);
}
