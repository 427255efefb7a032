/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/end/stream_end.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/worker.h"
#include "cmd/cli/amount.h"
#include "cmd/cli/target.h"
#include "cmd/process/process.h"
#include "copy/sink/sink_run.h"
#include "copy/source/source_run.h"
#include "session/channel/openssl.h"

enum { COMMAND_ENDS_MS = 200, STACK_WIPED = 64 << 10, AGAIN_MS = 100 };

int bare_family(const struct options *o)
{
	return o->family == 4 ? AF_INET : o->family == 6 ? AF_INET6 : 0;
}

/* ---- the key --------------------------------------------------------------------------- */

static int key_from_environment(struct psk *key)
{
	char *text = getenv("RD_KEY");
	int rc;

	if (!text)
		return fail_as(OUT_USAGE, "KEY is -, but the environment has no RD_KEY");
	rc = psk_from_text(text, strlen(text), key);
	explicit_bzero(text, strlen(text));
	unsetenv("RD_KEY");
	return rc;
}

/* The copy is made so that the world sees KEY for as short as can be: stretching takes a while. */
static int key_from_operand(char *operand, struct psk *key)
{
	char text[KEY_TEXT_MAX + 1];
	size_t len = strlen(operand);
	int rc;

	if (len > KEY_TEXT_MAX) {
		explicit_bzero(operand, len);
		return fail_as(OUT_USAGE, "KEY is longer than %d bytes", KEY_TEXT_MAX);
	}
	memcpy(text, operand, len);
	explicit_bzero(operand, len);
	if (isatty(STDERR_FILENO))
		log_warn("a KEY on the command line can be seen by others on this host and stays "
			 "in the shell's history: use --key-file, or - and RD_KEY");
	rc = psk_from_text(text, len, key);
	explicit_bzero(text, sizeof text);
	return rc;
}

static int get_key(struct bare *b, char *operand)
{
	const struct options *o = &b->options;

	if (o->key_file)
		return psk_from_file(o->key_file, &b->key);
	if (o->key_fd >= 0)
		return psk_from_fd(o->key_fd, &b->key);
	if (strcmp(operand, "-") == 0)
		return key_from_environment(&b->key);
	return key_from_operand(operand, &b->key);
}

/* What calls that have returned leave on the stack, and what the linker saves there of registers.
 */
__attribute__((noinline)) static void wipe_stack(void)
{
	uint8_t below[STACK_WIPED];

	explicit_bzero(below, sizeof below);
}

static int take_key(struct bare *b, char *operand)
{
	int rc = get_key(b, operand);

	wipe_stack();
	return rc;
}

/* --transport=rdma, and it can't be: that is known before anybody has to be waited for. */
static int check_transport(const struct options *o)
{
	char why[TEXT_MAX];

	if (o->want != TRANSPORT_RDMA || verbs_present(why, sizeof why))
		return 0;
	return fail_as(OUT_TRANSPORT, "RDMA was demanded, but here it can't be had: %s", why);
}

/* ---- the command ----------------------------------------------------------------------- */

static int start_command(struct bare *b)
{
	char **argv = b->options.command;
	const char *name;
	char what[sizeof b->command.what];
	struct launch_opts lo = {
		.what = what,
		.pipe_in = b->role == ROLE_SINK,
		.pipe_out = b->role == ROLE_SOURCE,
		.held = true,
	};
	int rc;

	if (!argv)
		return 0;
	if (b->role == ROLE_SINK) {
		if (relay_open(&b->relay))
			return -1;
		lo.keep_fd = b->relay.inherit;
		lo.keep_env = b->relay.env;
	}
	name = strrchr(argv[0], '/');
	snprintf(what, sizeof what, "command %.200s", name && name[1] ? name + 1 : argv[0]);
	rc = child_exec(argv, &lo, &b->command);
	if (b->role == ROLE_SINK)
		relay_started(&b->relay);
	return rc;
}

/* The command has no more to read or write: how did it end? */
static int finish_command(void *ctx)
{
	struct bare *b = ctx;
	char how[128];
	int status;

	if (b->role == ROLE_SINK) {
		b->command.in = -1; /* closed by the copy */
		if (relay_confirm(&b->relay))
			return -1;
	}
	if (!child_wait(&b->command, &status, 0))
		return fail_as(OUT_SIGNAL, "interrupted while waiting for %s", b->command.what);
	if (status)
		return fail("%s %s", b->command.what, child_end_text(status, how, sizeof how));
	return b->role == ROLE_SOURCE ? relay_await(NULL) : 0;
}

struct stream bare_stream(struct bare *b)
{
	bool source = b->role == ROLE_SOURCE;
	struct stream s = {.fd = -1, .size = b->options.size, .ctx = b};

	if (source)
		s.finish = relay_await;

	if (b->options.command) {
		s.fd = source ? b->command.out : b->command.in;
		s.name = b->command.what;
		s.close_at_end = !source;
		s.finish = finish_command;
	} else if (!b->file) {
		s.fd = source ? STDIN_FILENO : STDOUT_FILENO;
		s.name = source ? "stdin" : "stdout";
	} else {
		s.fd = b->file_fd;
		s.name = b->file;
	}
	return s;
}

/* ---- progress -------------------------------------------------------------------------- */

static void tick(void *ctx, bool asked)
{
	struct bare *b = ctx;
	struct progress_count c = {
		.bytes = b->tally.bytes,
		.total = b->tally.total ? b->tally.total : b->options.size,
		.total_known = b->tally.total_known || b->options.size,
		.files = b->tally.files,
	};

	if (asked && b->tally.first_ns)
		progress_began(&b->progress, b->tally.first_ns / 1000000, clock_ms());
	if (asked)
		progress_now(&b->progress, &c, clock_ms());
	else if (progress_wanted(&b->progress))
		progress_update(&b->progress, &c, clock_ms());
}

/* ---- the session ------------------------------------------------------------------------ */

static int on_frame(void *ctx, const struct frame *f)
{
	struct bare *b = ctx;

	return copy_on_frame(b->copy, f);
}

static void on_fail(void *ctx)
{
	struct bare *b = ctx;

	/* What fails before is asked for, or tried again. */
	if (!atomic_load(&b->opened))
		return;
	copy_on_fail(b->copy);
	watch_failed();
}

static struct session_opts session_options(struct bare *b)
{
	const struct options *o = &b->options;
	struct session_opts so = {
		.role = b->role,
		.want = o->want,
		.listens = b->role == ROLE_SINK,
		.lanes = (uint16_t)o->lanes,
		.depth = (uint16_t)o->depth,
		.block_size = (uint32_t)o->block_size,
		.memory = o->memory,
		.rdma_op = (enum rdma_op)o->rdma_op,
		.rails = o->rails,
		.bwlimit = o->bwlimit,
		.timeout_ms = o->timeout_ms,
		.connect_timeout_ms = o->connect_timeout_ms,
		.port_lo = o->port_lo,
		.port_hi = o->port_hi,
		.family = bare_family(o),
		.on_frame = on_frame,
		.on_fail = on_fail,
		.ctx = b,
	};

	gethostname(so.host, sizeof so.host - 1);
	snprintf(so.address, sizeof so.address, "%s", o->address);
	return so;
}

/* What is to be told at the end, while the session is still there to ask. */
static void gather(struct bare *b, struct session *s, int rc)
{
	struct report *r = &b->report;
	bool source = b->role == ROLE_SOURCE;
	struct failure f;

	r->total = b->result.total;
	r->counts = b->result.counts;
	r->lanes = session_lanes(s);
	r->transport = session_transport(s, r->how, sizeof r->how, r->why, sizeof r->why);
	r->source = source ? b->result.times : b->result.peer_times;
	r->sink = source ? b->result.peer_times : b->result.times;
	if (b->tally.first_ns)
		r->ns = clock_ns() - b->tally.first_ns;
	r->bwlimit = b->options.bwlimit;
	if (!rc)
		return;
	if (!session_failed(s, &f, r->host) && b->result.at_peer)
		snprintf(r->host, sizeof r->host, "%s", session_peer(s)->host);
}

/* One try, that ends by the deadline if it has one.  host: as of session_open().  *again: is there
 * a point in another one? */
static int open_once(struct bare *b, uint64_t deadline_ms, struct session_opts *so,
		     char host[static HOST_MAX], struct session **s, bool *again)
{
	struct channel *ch = NULL;

	*again = false;
	host[0] = '\0';
	if (b->meet(b, clock_left(deadline_ms), &ch, so))
		return -1;
	if (channel_secret(ch, so->secret)) {
		channel_free(ch);
		return -1;
	}
	if (session_open(ch, NULL, 0, so, host, s) == 0)
		return 0;
	*again = b->role == ROLE_SOURCE && failed()->code == OUT_PEER_LOST && !cancelled() &&
		 clock_left(deadline_ms) > AGAIN_MS;
	return -1;
}

/*
 * A listener may close a connection (session/connect/strangers.h) of which this end takes the
 * handshake for done: a source is let in when the listener has said HELLO.  Of several failures the
 * first is told.
 */
static int open_session(struct bare *b, struct session_opts *so, struct session **s)
{
	uint64_t deadline_ms = clock_ms() + (unsigned)b->options.connect_timeout_ms;
	struct failure first = {0}, last;
	char host[HOST_MAX], *failed_host = b->report.host;
	bool again;

	if (copy_new(b->role == ROLE_SOURCE ? &source_role : &sink_role, &b->copy))
		return -1;
	while (open_once(b, deadline_ms, so, host, s, &again)) {
		if (first.code == OUT_DONE || failed()->code == OUT_SIGNAL) {
			first = *failed();
			memcpy(failed_host, host, sizeof host);
		}
		if (!again)
			return fail_again(&first);
		log_debug("%s", failed()->text);
		poll(NULL, 0, AGAIN_MS);
	}
	failed_host[0] = '\0';
	atomic_store(&b->opened, true);
	if (session_failed(*s, &last, host))
		on_fail(b);
	return 0;
}

static int work(void *ctx)
{
	struct bare *b = ctx;
	struct session_opts so = session_options(b);
	struct session *s = NULL;
	int rc = open_session(b, &so, &s);

	psk_wipe(&b->key);
	if (rc)
		goto out;
	rc = -1;
	watch_session(&b->watch, s);
	if (b->options.command && child_go(&b->command))
		rc = session_fail(s);
	else
		rc = b->copy_over(b, s);
	gather(b, s, rc);
	watch_session(&b->watch, NULL);
	session_close(s);
out:
	explicit_bzero(so.secret, sizeof so.secret);
	return rc;
}

/* ---- the program ------------------------------------------------------------------------- */

static _Noreturn void refuse(struct bare *b)
{
	log_at(LOG_ERROR, "%s", failed()->text);
	if (failed()->code == OUT_USAGE)
		print_synopsis(stderr, b->options.program);
	psk_wipe(&b->key);
	exit_with((int)failed()->code);
}

/* A broken pipe is only the consequence: how did the command end, if by itself? */
static void tell_command(struct bare *b)
{
	char how[128];
	int status;

	if (b->command.pid && child_wait(&b->command, &status, clock_ms() + COMMAND_ENDS_MS) &&
	    status)
		log_at(LOG_ERROR, "%s %s", b->command.what,
		       child_end_text(status, how, sizeof how));
}

static void conclude(struct bare *b, bool stdout_is_data)
{
	struct report *r = &b->report;

	r->failure = b->watch.failure;
	if (!b->watch.result)
		r->failure.code = OUT_DONE;
	screen_end();
	progress_end(&b->progress, r->total.bytes, r->failure.code == OUT_DONE ? r->ns : 0);
	if (r->failure.code != OUT_DONE)
		report_failure(r);
	if (r->failure.code == OUT_FILE && !r->host[0])
		tell_command(b);
	if (b->options.json)
		report_json(r, stdout_is_data ? stderr : stdout);
	if (b->options.verbose && !b->options.quiet && r->failure.code == OUT_DONE)
		report_verbose(r, stderr);
}

_Noreturn void bare_run(struct bare *b, unsigned port_at)
{
	struct options *o = &b->options;
	bool has_key = !o->key_file && o->key_fd < 0;
	unsigned file_at = port_at + 1 + has_key;
	const char *port = o->operands[port_at];
	bool stdout_is_data, ended;

	b->command = (struct child){.in = -1, .out = -1, .go = -1};
	b->relay = (struct relay){.confirm = -1, .inherit = -1};
	relay_take();
	if (file_at < o->operand_count)
		b->file = o->operands[file_at];
	if (b->file && strcmp(b->file, "-") == 0)
		b->file = NULL;
	b->file_fd = -1;
	if (b->file && b->role == ROLE_SINK && target_descriptor(b->file, &b->file_fd))
		refuse(b);
	/* Stretching a key takes a while, in which a signal may come. */
	if (watch_signals(false) || openssl_start())
		refuse(b);
	if (take_key(b, has_key ? o->operands[port_at + 1] : NULL))
		refuse(b);
	if (parse_port(port, &b->port) || (!b->port && b->role == ROLE_SOURCE)) {
		/* Not what stands there: with the operands mixed up it may be the key. */
		fail_as(OUT_USAGE, "operand %u is no port: %s", port_at + 1,
			b->role == ROLE_SOURCE ? "a number from 1 to 65535"
					       : "a number from 0 to 65535");
		refuse(b);
	}
	if (check_transport(o))
		refuse(b);
	if (b->file && b->file_fd < 0 && b->check_file(b))
		refuse(b);
	stdout_is_data = b->role == ROLE_SINK && (!b->file || b->file_fd == STDOUT_FILENO);
	keep_secrets();
	if (start_command(b))
		refuse(b);
	b->report.program = program_name(o->program);
	progress_init(&b->progress, b->report.program,
		      !o->quiet && !o->progress_s && (o->verbose || o->progress),
		      o->quiet ? 0 : o->progress_s);
	screen_begin(b->report.program, watch_nudge);
	b->watch.work = work;
	b->watch.tick = tick;
	b->watch.tick_ms = progress_wanted(&b->progress) ? PROGRESS_TICK_MS : 0;
	b->watch.ctx = b;
	ended = watch_run(&b->watch);
	conclude(b, stdout_is_data);
	child_stop(&b->command);
	if (!ended)
		_exit((int)b->report.failure.code);
	porter_free(b->porter);
	copy_free(b->copy);
	psk_wipe(&b->key);
	options_free(o);
	exit_with((int)b->report.failure.code);
}
