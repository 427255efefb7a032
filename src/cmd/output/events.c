/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/output/events.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/escape.h"
#include "base/log.h"
#include "cmd/output/failed_list.h"
#include "cmd/output/json.h"
#include "cmd/output/log_file.h"
#include "cmd/output/repeated_lines.h"
#include "cmd/output/screen.h"
#include "cmd/output/spool.h"
#include "copy/names/name.h"
#include "copy/names/own_files.h"

enum { PROGRESS_EVERY_MS = 1000, LINE_ROOM = 2048 };

static struct events {
	const struct options *o;
	FILE *out; /* NULL: no option requests lines */
	struct failed_list *failed;
	struct log_file *log;
	bool terminal; /* out is a terminal, so names are escaped */
	bool below_source; /* paths begin with the name of the only SRC, a directory */
	struct repeated_lines repeated; /* of errors and warnings, unless -v shows them all */
	uint64_t progress_ms; /* time of the last progress object */
	char text[4 * EVENT_PATH_MAX + 8]; /* a path, escaped */
} events;

/* ---- lines --------------------------------------------------------------------------------- */

/* Takes the log lines of the ends and the conductor. */
static void on_log(enum log_level level, const char *line)
{
	char text[LINE_ROOM];

	if (events.o->output.verbose || repeated_lines_show(&events.repeated, line)) {
		escape(text, sizeof text, line, strlen(line));
		screen_line(text);
	}
	if (events.log && level <= LOG_WARN)
		log_file_add(events.log, level == LOG_ERROR ? "error" : "warning", line,
			     strlen(line));
	if (events.o->output.json && level == LOG_ERROR && events.out) {
		fputs("{\"v\": 1, \"type\": \"error\", \"text\": ", events.out);
		json_text(events.out, line);
		fputs("}\n", events.out);
	}
}

int events_begin(const struct options *o, bool stdout_is_data)
{
	memset(&events, 0, offsetof(struct events, text));
	events.o = o;
	own_files_add(STDOUT_FILENO);
	own_files_add(STDERR_FILENO);
	if (o->output.log_file && log_file_open(o->output.log_file, &events.log))
		return -1;
	if (o->output.failed && failed_list_open(o->output.failed, &events.failed))
		return -1;
	if (o->output.json || o->output.itemize || o->rules.digest != CONTENT_NONE) {
		events.out = spool_begin(stdout_is_data ? STDERR_FILENO : STDOUT_FILENO);
		if (!events.out)
			return -1;
		events.terminal = isatty(stdout_is_data ? STDERR_FILENO : STDOUT_FILENO);
	}
	log_to(on_log);
	return 0;
}

void events_abandon(void)
{
	failed_list_close(events.failed, false);
	events.failed = NULL;
}

static void print_json_start(const char *source_host, const char *const *names, unsigned count,
			     const char *sink_host, const char *target)
{
	fputs("{\"v\": 1, \"type\": \"start\", \"source_host\": ", events.out);
	json_text(events.out, source_host);
	fputs(", \"sources\": [", events.out);
	for (unsigned i = 0; i < count; i++) {
		fputs(i ? ", " : "", events.out);
		json_text(events.out, names[i]);
	}
	fputs("], \"target_host\": ", events.out);
	json_text(events.out, sink_host);
	fputs(", \"target\": ", events.out);
	json_text(events.out, target);
	fputs("}\n", events.out);
}

void events_session(const char *source_host, const char *const *names, unsigned count,
		    const char *sink_host, const char *target)
{
	const struct options *o = events.o;
	size_t len = strlen(names[0]);
	char last[NAME_MAX_WIRE];

	name_last(names[0], last, sizeof last);
	events.below_source = count == 1 && o->rules.recursive && !o->files_from &&
			      !o->rules.relative && !o->rules.no_target_dir && len &&
			      names[0][len - 1] != '/' && name_is_plain(last) &&
			      !(source_host[0] && name_is_pattern(last));
	if (o->output.json)
		print_json_start(source_host, names, count, sink_host, target);
	if (events.log) {
		char text[64];
		int n = snprintf(text, sizeof text, "%u source%s", count, count == 1 ? "" : "s");

		log_file_add(events.log, "start", text, (size_t)n);
	}
}

/* Nothing differs and nothing was sent. rsync prints such lines only with -ii. */
static bool is_unchanged(const char *change)
{
	return change[0] == '.' && change[1] && strspn(change + 2, ". ") == strlen(change + 2);
}

static const char *escape_path(const struct msg_event *m)
{
	const char *slash = m->what == EVENT_DIR ? "/" : "";

	if (m->path_len == 0)
		return "./";
	escape(events.text, sizeof events.text - 1, m->path, m->path_len);
	return strcat(events.text, slash);
}

static void print_change(const struct msg_event *m)
{
	char change[4 * EVENT_CHANGE];

	if (m->code != OUT_DONE || (!m->deleted && is_unchanged(m->change)))
		return;
	escape(change, sizeof change, m->change, strlen(m->change));
	fprintf(events.out, "%s %s\n", m->deleted ? "*deleting  " : change, escape_path(m));
}

/* The name relative to SRC, for --failed and for tools that check digests. */
static void name_in_source(const struct msg_event *m, const char **name, size_t *len)
{
	const char *slash = memchr(m->path, '/', m->path_len);

	*name = m->path;
	*len = m->path_len;
	if (events.below_source && slash) {
		*name = slash + 1;
		*len = m->path_len - (size_t)(*name - m->path);
	} else if (*len == 0 || (events.below_source && m->what == EVENT_DIR)) {
		*name = ".";
		*len = 1;
	}
}

static bool has_char_of(const char *name, size_t len, const char *of)
{
	for (size_t i = 0; i < len; i++) {
		if (name[i] && strchr(of, name[i]))
			return true;
	}
	return false;
}

/* As sha256sum(1) prints it: a leading backslash marks a name with escaped characters. On a
 * terminal all control characters are escaped, because the peer chose the name. */
static void print_digest(const struct msg_event *m)
{
	static const char specials[] = "\n\\\r";
	const char *name;
	size_t len;

	if (m->what != EVENT_FILE || m->code != OUT_DONE || m->deleted || !m->digest[0])
		return;
	name_in_source(m, &name, &len);
	if (has_char_of(name, len, specials))
		fputc('\\', events.out);
	fprintf(events.out, "%.*s  ", (int)strspn(m->digest, "0123456789abcdef"), m->digest);
	if (events.terminal) {
		escape(events.text, sizeof events.text, name, len);
		fprintf(events.out, "%s\n", events.text);
		return;
	}
	for (size_t i = 0; i < len; i++) {
		const char *special = name[i] ? strchr(specials, name[i]) : NULL;

		if (special)
			fprintf(events.out, "\\%c", "n\\r"[special - specials]);
		else
			fputc(name[i], events.out);
	}
	fputc('\n', events.out);
}

static void print_json_event(const struct msg_event *m)
{
	static const char *const whats[] = {
		[EVENT_FILE] = "file",           [EVENT_DIR] = "dir",   [EVENT_SYMLINK] = "symlink",
		[EVENT_HARD_LINK] = "hard link", [EVENT_NODE] = "node",
	};

	fputs("{\"v\": 1, \"type\": \"file\", \"path\": ", events.out);
	json_bytes(events.out, m->path, m->path_len);
	fprintf(events.out,
		", \"what\": \"%s\", \"exit\": %u, \"size\": %llu, \"change\": ", whats[m->what],
		m->code, (unsigned long long)m->size);
	json_text(events.out, m->change);
	fprintf(events.out, ", \"deleted\": %s", m->deleted ? "true" : "false");
	if (m->digest[0]) {
		fputs(", \"digest\": ", events.out);
		json_text(events.out, m->digest);
	}
	fputs("}\n", events.out);
}

static void log_event(const struct msg_event *m)
{
	if (m->code != OUT_DONE)
		log_file_add(events.log, "failed", m->path, m->path_len);
	else if (m->deleted)
		log_file_add(events.log, "*deleting", m->path, m->path_len);
	else if (!is_unchanged(m->change))
		log_file_add(events.log, m->change, m->path, m->path_len);
}

void events_take(const struct msg_event *m)
{
	const struct options *o = events.o;
	const char *name;
	size_t len;

	if (events.log)
		log_event(m);
	if (events.failed && m->code != OUT_DONE && !m->deleted) {
		name_in_source(m, &name, &len);
		failed_list_add(events.failed, name, len);
	}
	if (o->output.json) {
		print_json_event(m);
		return;
	}
	if (o->output.itemize)
		print_change(m);
	if (o->rules.digest != CONTENT_NONE)
		print_digest(m);
}

void events_progress(const struct progress_count *c, uint64_t now_ms)
{
	if (!events.o || !events.o->output.json || now_ms - events.progress_ms < PROGRESS_EVERY_MS)
		return;
	if (events.progress_ms && (c->bytes || c->files))
		fprintf(events.out,
			"{\"v\": 1, \"type\": \"progress\", \"bytes\": %llu, \"total\": %llu, "
			"\"total_known\": %s, \"files\": %llu}\n",
			(unsigned long long)c->bytes, (unsigned long long)c->total,
			c->total_known ? "true" : "false", (unsigned long long)c->files);
	events.progress_ms = now_ms;
}

int events_pending_fd(void)
{
	return spool_pending_fd();
}

void events_flush(void)
{
	if (events.out)
		spool_flush();
	if (events.log)
		log_file_flush(events.log);
}

int events_check(void)
{
	if (events.out && spool_check())
		return -1;
	return events.log ? log_file_check(events.log) : 0;
}

/* After other failures the list lacks names, but would look complete. */
static bool is_list_complete(enum outcome code)
{
	if (code == OUT_DONE || code == OUT_SOME_FILES || code == OUT_MAX_DELETE)
		return true;
	return outcome_is_of_files(code) && !failed_list_empty(events.failed);
}

static void log_run_end(const struct report *all)
{
	char text[160];
	int n = snprintf(text, sizeof text,
			 "exit %d, %llu sent, %llu the same, %llu others, %llu failed, %llu bytes",
			 (int)all->failure.code, (unsigned long long)all->total.files,
			 (unsigned long long)all->total.same, (unsigned long long)all->total.others,
			 (unsigned long long)all->total.failed,
			 (unsigned long long)all->total.bytes);

	log_file_add(events.log, "end", text, (size_t)n);
}

static void print_hidden_counts(void)
{
	char line[REPEATED_LINES_TEXT + 64], text[LINE_ROOM];

	for (unsigned i = 0; i < REPEATED_LINES_REASONS; i++) {
		if (!repeated_lines_hidden(&events.repeated, i))
			continue;
		snprintf(line, sizeof line, "%lu more failures or warnings: %s",
			 repeated_lines_hidden(&events.repeated, i), events.repeated.of[i].reason);
		escape(text, sizeof text, line, strlen(line));
		screen_line(text);
	}
}

int events_end(const struct report *all)
{
	int rc = 0;

	print_hidden_counts();
	log_to(NULL);
	if (events.log)
		log_run_end(all);
	if (events.o->output.json)
		report_json(all, events.out);
	if (events.failed && failed_list_close(events.failed, is_list_complete(all->failure.code)))
		rc = -1;
	if (log_file_close(events.log))
		rc = -1;
	return spool_end() ? -1 : rc;
}
