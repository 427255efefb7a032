/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/end/stream_end.h"

#include <poll.h>
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
#include "cmd/cli/amount.h"
#include "cmd/cli/operand.h"
#include "cmd/end/start_message.h"
#include "cmd/process/process.h"
#include "session/channel/openssl.h"

enum { COMMAND_EXIT_MS = 200, RETRY_MS = 100, READING_TICK_MS = 500 };

static bool is_source_end(const struct stream_end *e)
{
	return e->work.orders.m.role == ROLE_SOURCE;
}

static bool writes_to_command(const struct stream_end *e)
{
	return e->options.command && !is_source_end(e);
}

/* ---- the key --------------------------------------------------------------------------- */

static int key_from_environment(struct psk *key)
{
	char *text = getenv("RD_KEY");
	int rc;

	if (!text)
		return fail_as(OUT_USAGE,
			       "KEY is -, but the environment variable RD_KEY is not set");
	rc = psk_from_text(text, strlen(text), key);
	explicit_bzero(text, strlen(text));
	unsetenv("RD_KEY");
	return rc;
}

/* Copies and wipes the operand first: /proc shows it, and deriving the key takes a while. */
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
		log_warn("other users of this host can see a KEY on the command line, and the "
			 "shell's history keeps it: use --key-file, or - and RD_KEY");
	rc = psk_from_text(text, len, key);
	explicit_bzero(text, sizeof text);
	return rc;
}

static int read_key(struct stream_end *e, char *operand)
{
	const struct options *o = &e->options;

	secret_guard(&e->key, sizeof e->key);
	if (o->key.file)
		return psk_from_file(o->key.file, &e->key);
	if (o->key.fd >= 0)
		return psk_from_fd(o->key.fd, &e->key);
	if (strcmp(operand, "-") == 0)
		return key_from_environment(&e->key);
	return key_from_operand(operand, &e->key);
}

static int take_key(struct stream_end *e, char *operand)
{
	int rc = read_key(e, operand);

	wipe_stack();
	return rc;
}

/* Rejects --transport=rdma on a host without RDMA before waiting for the peer. */
static int check_rdma_present(const struct options *o)
{
	char why[TEXT_MAX];

	if (o->network.want != TRANSPORT_RDMA || verbs_present(why, sizeof why))
		return 0;
	return fail_as(OUT_TRANSPORT, "--transport=rdma is not possible: %s", why);
}

/* ---- the command ----------------------------------------------------------------------- */

static int start_command(struct stream_end *e)
{
	char **argv = e->options.command;
	const char *name;
	char what[sizeof e->command.what];
	struct child_opts lo = {
		.what = what,
		.pipe_in = !is_source_end(e),
		.pipe_out = is_source_end(e),
		.held = true,
	};
	int rc;

	if (!argv)
		return 0;
	name = strrchr(argv[0], '/');
	snprintf(what, sizeof what, "command %.200s", name && name[1] ? name + 1 : argv[0]);
	if (child_find(argv[0], what))
		return -1;
	if (!is_source_end(e)) {
		if (relay_open(&e->relay))
			return -1;
		lo.keep_fd = e->relay.inherit;
		lo.keep_env = e->relay.env;
	}
	rc = child_exec(argv, &lo, &e->command);
	if (!is_source_end(e))
		relay_started(&e->relay);
	return rc;
}

/* Its input ends. */
static int close_input(struct stream_end *e)
{
	int rc;

	pthread_mutex_lock(&e->input_lock);
	rc = close(e->command.in);
	e->command.in = -1;
	pthread_mutex_unlock(&e->input_lock);
	return rc ? fail("close %s: %m", e->command.what) : 0;
}

/* The stream to or from the command has ended. */
static int finish_command(void *ctx)
{
	struct stream_end *e = ctx;
	char how[128];
	int status;

	if (!is_source_end(e) && (close_input(e) || relay_confirm(&e->relay)))
		return -1;
	if (!child_wait(&e->command, &status, 0))
		return fail_as(OUT_SIGNAL, "interrupted while waiting for %s", e->command.what);
	if (status)
		return fail("%s %s", e->command.what, child_end_text(status, how, sizeof how));
	return is_source_end(e) ? relay_finish(NULL) : 0;
}

struct stream stream_end_stream(struct stream_end *e)
{
	bool source = is_source_end(e);
	struct stream s = {.fd = -1, .size = e->options.size, .ctx = e};

	if (source)
		s.finish = relay_finish;

	if (e->options.command) {
		s.fd = source ? e->command.out : e->command.in;
		s.name = e->command.what;
		s.drains = !source;
		s.passed = source ? NULL : &e->passed;
		s.finish = finish_command;
	} else if (!e->file) {
		s.fd = source ? STDIN_FILENO : STDOUT_FILENO;
		s.name = source ? "stdin" : "stdout";
	} else {
		s.fd = e->file_fd;
		s.name = e->file;
	}
	return s;
}

/* The bytes that the command could read now, if an rdsend below it waits for the confirmation. At
 * most 0: nothing is left, or that is unknown. */
static int count_unread(struct stream_end *e)
{
	int unread = 0;

	pthread_mutex_lock(&e->input_lock);
	if (e->command.in >= 0 && relay_is_awaited(&e->relay))
		unread = count_readable(e->command.in);
	pthread_mutex_unlock(&e->input_lock);
	return unread;
}

/* What was between this end and an rdsend below the command may have ended early. A shell around
 * them, or the rdsend itself, keeps the pipe open, so that nobody reads it, and the rdsend waits
 * for this end. */
static void check_command_reads(struct stream_end *e)
{
	struct reading *last = &e->reading;
	struct reading now = {
		.passed = e->passed,
		.unread = count_unread(e),
		.since_ms = clock_ms(),
	};
	int limit_ms = e->options.network.timeout_ms;

	if (now.unread <= 0 || now.unread != last->unread || now.passed != last->passed) {
		*last = now;
	} else if (now.since_ms - last->since_ms >= (uint64_t)limit_ms) {
		fail("%s has read nothing for %g s, and an rdsend below it has read the end of "
		     "its input",
		     e->command.what, limit_ms / 1000.0);
		watch_fail(&e->work.watch);
	}
}

/* ---- progress -------------------------------------------------------------------------- */

static void update_progress(struct stream_end *e, bool asked)
{
	struct progress_count c = {
		.bytes = e->work.tally.bytes,
		.total = e->work.tally.total ? e->work.tally.total : e->options.size,
		.total_known = e->work.tally.total_known || e->options.size,
		.files = e->work.tally.files,
	};

	if (asked && e->work.tally.first_ns)
		progress_set_start(&e->progress, e->work.tally.first_ns / 1000000, clock_ms());
	if (asked)
		progress_show_line(&e->progress, &c, clock_ms());
	else if (progress_wanted(&e->progress))
		progress_update(&e->progress, &c, clock_ms());
}

static void watch_stream(void *ctx, bool asked)
{
	struct stream_end *e = ctx;

	update_progress(e, asked);
	if (writes_to_command(e))
		check_command_reads(e);
}

/* 0: never. */
static int choose_tick_ms(const struct stream_end *e)
{
	if (progress_wanted(&e->progress))
		return PROGRESS_TICK_MS;
	return writes_to_command(e) ? READING_TICK_MS : 0;
}

/* ---- the session ------------------------------------------------------------------------ */

/* Call this while the session still exists. */
static void gather_report(struct stream_end *e, int rc)
{
	const struct copy_result *result = &e->work.result;
	struct report *r = &e->report;
	bool source = is_source_end(e);
	struct failure f;

	end_work_fill_verdict(&e->work);
	report_take(r, &e->work.verdict);
	r->source = source ? result->times : result->peer_times;
	r->sink = source ? result->peer_times : result->times;
	r->bwlimit = e->options.network.bwlimit;
	if (rc)
		end_work_failed_at(&e->work, &f, r->host);
}

/* One attempt, which ends by the deadline if it has one. host: see session_open(). *again: another
 * attempt may succeed. */
static int open_session_once(struct stream_end *e, uint64_t deadline_ms, struct session_opts *so,
			     char host[static HOST_MAX], struct session **s, bool *again)
{
	struct channel *ch = NULL;

	*again = false;
	host[0] = '\0';
	if (e->meet(e, clock_left(deadline_ms), &ch, so))
		return -1;
	if (channel_secret(ch, so->secret)) {
		channel_free(ch);
		return -1;
	}
	if (session_open(ch, NULL, 0, so, host, s) == 0)
		return 0;
	*again = is_source_end(e) && failed()->code == OUT_PEER_LOST && !cancelled() &&
		 clock_left(deadline_ms) > RETRY_MS;
	return -1;
}

/*
 * A listener may close a connection whose handshake this end takes for complete
 * (session/connect/strangers.h): the listener accepts a source only with its HELLO. Reports the
 * first of several failures.
 */
static int open_stream_session(struct stream_end *e, struct session_opts *so, struct session **s)
{
	uint64_t deadline_ms = clock_ms() + (unsigned)e->options.network.connect_timeout_ms;
	struct failure first = {0}, last;
	char host[HOST_MAX], *failed_host = e->report.host;
	bool again;

	if (end_work_begin(&e->work))
		return -1;
	while (open_session_once(e, deadline_ms, so, host, s, &again)) {
		if (first.code == OUT_DONE || failed()->code == OUT_SIGNAL) {
			first = *failed();
			memcpy(failed_host, host, sizeof host);
		}
		if (!again)
			return fail_again(&first);
		log_debug("%s", failed()->text);
		poll(NULL, 0, RETRY_MS);
	}
	failed_host[0] = '\0';
	atomic_store(&e->work.opened, true);
	if (session_failed(*s, &last, host))
		so->on_fail(so->ctx);
	return 0;
}

static int run_stream_work(void *ctx)
{
	struct stream_end *e = ctx;
	struct end_work *w = &e->work;
	struct session_opts so;
	int rc;

	end_work_fill_session(w, &so);
	rc = open_stream_session(e, &so, &w->session);
	psk_wipe(&e->key);
	if (rc)
		goto out;
	watch_session(&w->watch, w->session);
	if (e->options.command && child_run_held(&e->command))
		rc = session_fail(w->session);
	else
		rc = e->copy_over(e);
	gather_report(e, rc);
	watch_session(&w->watch, NULL);
	session_close(w->session);
	w->session = NULL;
out:
	explicit_bzero(so.secret, sizeof so.secret);
	return rc;
}

/* ---- the program ------------------------------------------------------------------------- */

static _Noreturn void exit_stream_end(struct stream_end *e)
{
	psk_wipe(&e->key);
	process_exit_failed(e->options.program);
}

/* A broken pipe is only the consequence of a command that exited: report its exit too. */
static void report_command(struct stream_end *e)
{
	char how[128];
	int status;

	if (e->command.pid && child_wait(&e->command, &status, clock_ms() + COMMAND_EXIT_MS) &&
	    status)
		log_at(LOG_ERROR, "%s %s", e->command.what,
		       child_end_text(status, how, sizeof how));
}

static void report_result(struct stream_end *e, bool stdout_is_data)
{
	struct report *r = &e->report;

	r->failure = e->work.watch.failure;
	if (!e->work.watch.result)
		r->failure.code = OUT_DONE;
	screen_end();
	progress_end(&e->progress, r->total.bytes, r->failure.code == OUT_DONE ? r->ns : 0);
	if (r->failure.code != OUT_DONE)
		report_failure(r);
	if (r->failure.code == OUT_FILE && !r->host[0])
		report_command(e);
	if (e->options.output.json)
		report_json(r, stdout_is_data ? stderr : stdout);
	if (e->options.output.verbose && !e->options.output.quiet && r->failure.code == OUT_DONE)
		report_verbose(r, stderr);
}

/* Makes the START that a conductor would send. */
static int make_start(struct stream_end *e, enum role role)
{
	struct msg_start *m = &e->work.orders.m;

	if (start_message_make(&e->options, m))
		return -1;
	m->role = role;
	if (role == ROLE_SINK)
		m->flags |= START_LISTENS;
	gethostname(m->host, sizeof m->host - 1);
	snprintf(m->address, sizeof m->address, "%s", e->options.network.address);
	orders_settle(&e->work.orders);
	return 0;
}

_Noreturn void stream_end_run(struct stream_end *e, enum role role, unsigned port_at)
{
	struct options *o = &e->options;
	bool has_key = !o->key.file && o->key.fd < 0;
	unsigned file_at = port_at + 1 + has_key;
	const char *port = o->operands[port_at];
	bool stdout_is_data, ended;

	e->command = (struct child){.in = -1, .out = -1, .go = -1};
	e->relay = (struct relay){.confirm = -1, .inherit = -1};
	pthread_mutex_init(&e->input_lock, NULL);
	e->reading = (struct reading){0};
	if (make_start(e, role))
		exit_stream_end(e);
	relay_take();
	if (is_source_end(e) && relay_check())
		exit_stream_end(e);
	if (file_at < o->operand_count)
		e->file = o->operands[file_at];
	if (e->file && strcmp(e->file, "-") == 0)
		e->file = NULL;
	e->file_fd = -1;
	if (e->file && !is_source_end(e) && operand_descriptor(e->file, &e->file_fd))
		exit_stream_end(e);
	/* Deriving the key takes a while, and a signal may arrive meanwhile. */
	if (watch_signals(false) || openssl_start())
		exit_stream_end(e);
	if (take_key(e, has_key ? o->operands[port_at + 1] : NULL))
		exit_stream_end(e);
	if (parse_port(port, &e->port) || (!e->port && is_source_end(e))) {
		/* Do not print the operand: if the operands are mixed up, it may be the key. */
		fail_as(OUT_USAGE, "operand %u is not a port: expected a number from %d to 65535",
			port_at + 1, is_source_end(e) ? 1 : 0);
		exit_stream_end(e);
	}
	if (check_rdma_present(o))
		exit_stream_end(e);
	if (e->file && e->file_fd < 0 && e->check_file(e))
		exit_stream_end(e);
	stdout_is_data = !is_source_end(e) && (!e->file || e->file_fd == STDOUT_FILENO);
	process_protect_secrets();
	if (start_command(e))
		exit_stream_end(e);
	e->report.program = program_name(o->program);
	progress_init(&e->progress, e->report.program,
		      !o->output.quiet && !o->output.progress_s &&
			      (o->output.verbose || o->output.progress),
		      o->output.quiet ? 0 : o->output.progress_s);
	screen_begin(e->report.program, watch_nudge);
	e->work.watch.work = run_stream_work;
	e->work.watch.tick = watch_stream;
	e->work.watch.tick_ms = choose_tick_ms(e);
	e->work.watch.ctx = e;
	ended = watch_run(&e->work.watch);
	report_result(e, stdout_is_data);
	relay_close(&e->relay);
	child_stop(&e->command);
	if (!ended)
		_exit((int)e->report.failure.code);
	porter_free(e->porter);
	copy_free(e->work.copy);
	psk_wipe(&e->key);
	options_free(o);
	process_exit((int)e->report.failure.code);
}
