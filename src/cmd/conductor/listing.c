/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/conductor/listing.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/escape.h"
#include "base/fail.h"
#include "base/log.h"
#include "cmd/conductor/daemon_call.h"
#include "cmd/output/json.h"
#include "cmd/process/process.h"
#include "cmd/process/watch.h"
#include "session/channel/framer.h"

static const struct {
	char letter;
	const char *what;
} kinds[] = {
	[ENTRY_MODULE] = {'-', "module"},
	[ENTRY_FILE] = {'-', "file"},
	[ENTRY_DIR] = {'d', "dir"},
	[ENTRY_SYMLINK] = {'l', "symlink"},
	[ENTRY_FIFO] = {'p', "fifo"},
	[ENTRY_CHAR] = {'c', "char device"},
	[ENTRY_BLOCK] = {'b', "block device"},
	[ENTRY_SOCKET] = {'s', "socket"},
};

/* As ls(1) shows it. */
static void mode_text(const struct msg_entry *m, char to[static 11])
{
	static const char letters[] = "rwxrwxrwx";

	to[0] = kinds[m->kind].letter;
	for (int i = 0; i < 9; i++)
		to[1 + i] = m->mode & (0400 >> i) ? letters[i] : '-';
	if (m->mode & 04000)
		to[3] = to[3] == 'x' ? 's' : 'S';
	if (m->mode & 02000)
		to[6] = to[6] == 'x' ? 's' : 'S';
	if (m->mode & 01000)
		to[9] = to[9] == 'x' ? 't' : 'T';
	to[10] = '\0';
}

static void time_text(int64_t seconds, char *to, size_t size)
{
	time_t t = (time_t)seconds;
	struct tm tm;

	if (!localtime_r(&t, &tm) || !strftime(to, size, "%Y/%m/%d %H:%M:%S", &tm))
		snprintf(to, size, "%19s", "?");
}

/* In the format of rsync(1). */
static void print_entry(const struct msg_entry *m)
{
	static char name[4 * NAME_MAX_WIRE], about[4 * NAME_MAX_WIRE];
	char mode[11], time[64];

	escape(name, sizeof name, m->name, strlen(m->name));
	escape(about, sizeof about, m->about, strlen(m->about));
	if (m->kind == ENTRY_MODULE) {
		printf(*about ? "%-15s\t%s\n" : "%s\n", name, about);
		return;
	}
	mode_text(m, mode);
	time_text(m->mtime, time, sizeof time);
	printf("%s %14llu %s %s%s%s\n", mode, (unsigned long long)m->size, time, name,
	       m->kind == ENTRY_SYMLINK ? " -> " : "", about);
}

static void print_json_entry(const struct msg_entry *m)
{
	bool module = m->kind == ENTRY_MODULE;

	printf("{\"v\": 1, \"type\": \"%s\", \"name\": ", module ? "module" : "entry");
	json_text(stdout, m->name);
	if (module) {
		fputs(", \"comment\": ", stdout);
		json_text(stdout, m->about);
	} else {
		printf(", \"what\": \"%s\", \"mode\": \"%04o\", \"size\": %llu, \"mtime\": %lld",
		       kinds[m->kind].what, m->mode, (unsigned long long)m->size,
		       (long long)m->mtime);
	}
	if (m->kind == ENTRY_SYMLINK) {
		fputs(", \"target\": ", stdout);
		json_text(stdout, m->about);
	}
	fputs("}\n", stdout);
}

/* As of ls(1), the reader of a pipe may have seen enough. The signal ends the main thread, since
 * this one blocks it. */
static int fail_to_print(void)
{
	if (errno == EPIPE)
		kill(getpid(), SIGPIPE);
	return fail("write to stdout: %m");
}

static int take_entry(const struct options *o, const struct daemon_url *u, const struct frame *f)
{
	static struct msg_entry m;

	if (msg_entry_decode(f, &m))
		return -1;
	if ((m.kind == ENTRY_MODULE) != !*u->module)
		return fail_as(OUT_PROTOCOL, "rdcpd listed something else than was asked for");
	if (o->output.json)
		print_json_entry(&m);
	else
		print_entry(&m);
	return ferror(stdout) ? fail_to_print() : 0;
}

static int take_verdict(const struct frame *f)
{
	static struct msg_verdict v;

	if (msg_verdict_decode(f, &v))
		return -1;
	return v.code == OUT_DONE ? 0 : fail_as(v.code, "%s", v.text);
}

static int check_greeting(const struct frame *f)
{
	struct msg_greeting g;

	if (f->type != MSG_GREETING)
		return fail_as(OUT_PROTOCOL, "expected GREETING, received %s",
			       message_name(f->type));
	if (msg_greeting_decode(f, &g))
		return -1;
	if (g.version != PROTOCOL_VERSION)
		return fail_as(OUT_VERSION,
			       "rdcp has protocol version %d, rdcpd has %u (release %s)",
			       PROTOCOL_VERSION, g.version, g.release);
	return 0;
}

/* Takes one frame. Returns 1 while there is more to come. */
static int take_list_frame(const struct options *o, const struct daemon_url *u, struct channel *ch,
			   struct framer *fr)
{
	struct frame f;
	struct msg_note note;
	int rc = frame_read(ch, fr, clock_ms() + (unsigned)o->network.timeout_ms, &f);

	if (rc == 0)
		return fail_as(OUT_PEER_LOST, "rdcpd on %s closed the connection", u->host);
	if (rc < 0)
		return -1;
	switch (f.type) {
	case MSG_ENTRY:
		return take_entry(o, u, &f) ? -1 : 1;
	case MSG_NOTE:
		if (msg_note_decode(&f, &note))
			return -1;
		log_at((enum log_level)note.level, "%s: %s", u->host, note.text);
		return 1;
	case MSG_PROGRESS:
		return 1;
	case MSG_VERDICT:
		return take_verdict(&f);
	default:
		return fail_as(OUT_PROTOCOL, "unexpected %s in a listing", message_name(f.type));
	}
}

static int ask_for_list(const struct options *o, const char *path, struct channel *ch)
{
	static uint8_t body[NAME_MAX_WIRE + 16];
	struct writer w = writer_of(body, sizeof body);
	static struct msg_want m;

	if (strlen(path) >= sizeof m.name)
		return fail_as(OUT_USAGE, "%.60s...: the path is too long", path);
	snprintf(m.name, sizeof m.name, "%s", path);
	msg_want_encode(&w, &m);
	return frame_write(ch, MSG_LIST, body, w.used,
			   clock_ms() + (unsigned)o->network.timeout_ms);
}

/* What a copy would need. */
static int check_options(const struct options *o)
{
	if (o->rules.recursive || o->files_from)
		return fail_as(OUT_USAGE,
			       "DST is missing after %s; without DST, rdcp lists one "
			       "directory, without -r, -a or --files-from",
			       o->operands[0]);
	return daemon_check_keys(o);
}

struct listing {
	const struct options *o;
	const char *url;
};

/* Runs beside the main thread, which handles signals. */
static int run_listing(void *ctx)
{
	const struct listing *l = ctx;
	static struct daemon_end e;
	struct daemon_url u;
	const char *path;
	int rc;

	if (operand_parse_listing(l->url, &u, &path) || check_options(l->o) ||
	    daemon_open(l->o, &u, &e))
		return -1;
	rc = check_greeting(&e.greeting) || ask_for_list(l->o, path, e.ch) ? -1 : 1;
	while (rc > 0)
		rc = take_list_frame(l->o, &u, e.ch, &e.framer);
	channel_free(e.ch);
	return rc;
}

int listing_run(const struct options *o, const char *url)
{
	struct listing l = {.o = o, .url = url};
	static struct watch w = {.work = run_listing};

	process_protect_secrets();
	if (watch_signals(false))
		return -1;
	signal(SIGPIPE, SIG_DFL);
	w.ctx = &l;
	if (!watch_run(&w)) {
		log_at(LOG_ERROR, "%s", w.failure.text);
		_exit((int)w.failure.code);
	}
	return w.result ? fail_again(&w.failure) : 0;
}
