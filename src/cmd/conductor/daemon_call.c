/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/conductor/daemon_call.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include "base/clock.h"
#include "base/fail.h"
#include "base/io.h"
#include "base/log.h"
#include "cmd/cli/operand.h"
#include "cmd/end/dial.h"
#include "cmd/end/tunnel.h"
#include "cmd/process/process.h"
#include "session/channel/framer.h"

#ifndef SLUICE_VERSION
#define SLUICE_VERSION "0"
#endif

struct call {
	const struct options *o;
	struct daemon_url url;
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

static int dial_daemon(const struct options *o, const struct daemon_url *url, struct channel **ch)
{
	union address dialed;
	struct psk key;
	struct dial_opts d = {
		.host = url->host,
		.port = url->port ? url->port : o->serve.port,
		.family = o->network.family == 4   ? AF_INET
			  : o->network.family == 6 ? AF_INET6
						   : 0,
		.tos = o->network.tos,
		.timeout_ms = o->network.connect_timeout_ms,
		.silence_ms = o->network.timeout_ms,
		.key = &key,
		.listener = "rdcpd",
		.caller = CALLER_CONDUCTOR,
		.user = url->user,
	};
	int rc = psk_from_made_file(o->key.file, &key);

	if (!rc)
		rc = dial_connect(&d, ch, &dialed);
	psk_wipe(&key);
	return rc;
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

int daemon_open(const struct options *o, const struct daemon_url *url, struct channel **out)
{
	*out = NULL;
	if (dial_daemon(o, url, out) == 0 && name_module(o, url, *out) == 0)
		return 0;
	channel_free(*out);
	*out = NULL;
	return -1;
}

static int run_call(void *ctx, int in, int out)
{
	const struct call *c = ctx;
	struct channel *ch = NULL;

	/* A terminal sends it to all processes; the conductor handles it. */
	signal(SIGINT, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	process_protect_secrets();
	if (daemon_open(c->o, &c->url, &ch))
		return report_call_failure(out);
	if (tunnel_run(ch, "", 0, in, out) == 0)
		return OUT_DONE;
	if (failed()->code == OUT_SOCKET)
		log_at(LOG_ERROR, "%s", failed()->text);
	return (int)failed()->code;
}

int daemon_start(const struct options *o, const char *url, struct child *out)
{
	struct call c = {.o = o};
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
