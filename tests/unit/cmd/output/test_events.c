/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is printed, listed and logged for each file, and that the program never waits for a reader
 * of its output.
 */
#include "base/fail.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include "base/log.h"
#include "cmd/end/notes.h"
#include "cmd/output/events.h"
#include "cmd/output/screen.h"
#include "cmd/output/spool.h"
#include "folder.h"

static char folder[FOLDER_PATH];
static char shown[64], failed_path[64], log_path[64];

static int setup(void **state)
{
	(void)state;
	if (folder_make(folder))
		return -1;
	snprintf(shown, sizeof shown, "%s/out", folder);
	snprintf(failed_path, sizeof failed_path, "%s/failed", folder);
	snprintf(log_path, sizeof log_path, "%s/log", folder);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	unlink(shown);
	unlink(failed_path);
	unlink(log_path);
	return rmdir(folder);
}

static const char *content(const char *path, size_t *len)
{
	static char bytes[1 << 16];
	FILE *f = fopen(path, "r");

	assert_non_null(f);
	*len = fread(bytes, 1, sizeof bytes - 1, f);
	bytes[*len] = '\0';
	fclose(f);
	return bytes;
}

/* Run with one source; `shown' gets what stdout printed. */
static int saved_stdout;

static void begin_run(const struct options *o, const char *host, const char *source)
{
	int fd = open(shown, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	fflush(stdout);
	saved_stdout = dup(STDOUT_FILENO);
	dup2(fd, STDOUT_FILENO);
	close(fd);
	assert_int_equal(events_begin(o, false), 0);
	events_session(host, &source, 1, "", "to");
}

static const char *end_run(enum outcome code)
{
	struct report r = {.program = "rdcp", .failure.code = code};
	size_t len;
	int rc = events_end(&r);

	dup2(saved_stdout, STDOUT_FILENO);
	close(saved_stdout);
	assert_int_equal(rc, 0);
	return content(shown, &len);
}

static void take_result(enum event_what what, enum outcome code, const char *change,
			const char *path)
{
	struct msg_event m = {
		.what = (uint8_t)what,
		.code = (uint8_t)code,
		.path = path,
		.path_len = (uint16_t)strlen(path),
	};

	snprintf(m.change, sizeof m.change, "%s", change);
	if (what == EVENT_FILE && code == OUT_DONE)
		snprintf(m.digest, sizeof m.digest, "0123abcd");
	events_take(&m);
}

static void deleted(const char *path)
{
	struct msg_event m = {.what = EVENT_DIR,
			      .deleted = true,
			      .path = path,
			      .path_len = (uint16_t)strlen(path)};

	events_take(&m);
}

static void itemized_changes_match_rsync(void **state)
{
	const struct options o = {.output.itemize = true, .rules.recursive = true};

	(void)state;
	begin_run(&o, "", "a");
	take_result(EVENT_DIR, OUT_DONE, "cd+++++++++", "a");
	take_result(EVENT_FILE, OUT_DONE, ">f+++++++++", "a/b\nc");
	take_result(EVENT_FILE, OUT_DONE, ".f.........", "a/same");
	take_result(EVENT_FILE, OUT_DONE, ".f         ", "a/same");
	take_result(EVENT_FILE, OUT_DONE, ">f.........", "a/sent");
	take_result(EVENT_FILE, OUT_DONE, ".f...p.....", "a/\x1b[m");
	take_result(EVENT_FILE, OUT_FILE, "", "a/failed");
	take_result(EVENT_DIR, OUT_DONE, ".d..t......", "");
	deleted("a/old");
	assert_string_equal(end_run(OUT_DONE), "cd+++++++++ a/\n"
					       ">f+++++++++ a/b\\nc\n"
					       ">f......... a/sent\n"
					       ".f...p..... a/\\x1b[m\n"
					       ".d..t...... ./\n"
					       "*deleting   a/old/\n");
}

/* Names are paths below SRC; special characters are escaped as coreutils escape them. */
static void printed_digests_can_be_checked(void **state)
{
	struct options o = {.rules.digest = CONTENT_SHA256, .rules.recursive = true};

	(void)state;
	begin_run(&o, "", "some/a");
	take_result(EVENT_DIR, OUT_DONE, "cd+++++++++", "a");
	take_result(EVENT_FILE, OUT_DONE, ">f+++++++++", "a/b/c");
	take_result(EVENT_FILE, OUT_DONE, ">f+++++++++", "a/x\ny\\z");
	take_result(EVENT_FILE, OUT_DONE, ">f+++++++++", "a/n\r");
	take_result(EVENT_FILE, OUT_FILE, "", "a/failed");
	take_result(EVENT_SYMLINK, OUT_DONE, "cL+++++++++", "a/link");
	assert_string_equal(end_run(OUT_DONE), "0123abcd  b/c\n"
					       "\\0123abcd  x\\ny\\\\z\n"
					       "\\0123abcd  n\\r\n");
	/* For SRC/, for a pattern's matches and for plain files no prefix is stripped. */
	begin_run(&o, "", "a/");
	take_result(EVENT_FILE, OUT_DONE, "", "b/c");
	assert_string_equal(end_run(OUT_DONE), "0123abcd  b/c\n");
	begin_run(&o, "far", "x*");
	take_result(EVENT_FILE, OUT_DONE, "", "x1/c");
	assert_string_equal(end_run(OUT_DONE), "0123abcd  x1/c\n");
	o.rules.recursive = false;
	begin_run(&o, "", "a/b");
	take_result(EVENT_FILE, OUT_DONE, "", "b");
	assert_string_equal(end_run(OUT_DONE), "0123abcd  b\n");
}

static void failed_files_are_listed(void **state)
{
	const struct options o = {.output.failed = failed_path, .rules.recursive = true};
	size_t len;

	(void)state;
	begin_run(&o, "", "a");
	take_result(EVENT_FILE, OUT_DONE, ">f+++++++++", "a/good");
	take_result(EVENT_FILE, OUT_FILE, "", "a/b\n/c");
	take_result(EVENT_DIR, OUT_FILE, "", "a/d");
	take_result(EVENT_DIR, OUT_FILE, "", "a");
	assert_int_equal(access(failed_path, F_OK), -1);
	end_run(OUT_SOME_FILES);
	assert_memory_equal(content(failed_path, &len), "b\n/c\0d\0.\0", 9);
	assert_int_equal(len, 9);
	/* After an interruption the list of the previous run stays. */
	begin_run(&o, "", "a");
	take_result(EVENT_FILE, OUT_FILE, "", "a/x");
	end_run(OUT_PEER_LOST);
	content(failed_path, &len);
	assert_int_equal(len, 9);
	begin_run(&o, "", "a");
	end_run(OUT_FILE);
	content(failed_path, &len);
	assert_int_equal(len, 9);
	/* A run without failures writes an empty list. */
	begin_run(&o, "", "a");
	end_run(OUT_DONE);
	content(failed_path, &len);
	assert_int_equal(len, 0);
}

static void json_objects_are_printed(void **state)
{
	const struct options o = {.output.json = true, .rules.recursive = true};
	const struct progress_count c = {.bytes = 5, .total = 9, .files = 1};
	const char *text;

	(void)state;
	begin_run(&o, "h", "a");
	events_progress(&c, 1000);
	events_progress(&c, 1500);
	events_progress(&c, 2100);
	take_result(EVENT_FILE, OUT_DONE, ">f+++++++++", "a/\"\\\xff\n");
	take_result(EVENT_DIR, OUT_FILE, "", "a/d");
	log_at(LOG_ERROR, "open \"x\": no");
	text = end_run(OUT_SOME_FILES);
	assert_non_null(strstr(text, "{\"v\": 1, \"type\": \"start\", \"source_host\": \"h\", "
				     "\"sources\": [\"a\"], \"target_host\": \"\", \"target\": "
				     "\"to\"}\n"));
	assert_non_null(strstr(text,
			       "\n{\"v\": 1, \"type\": \"progress\", \"bytes\": 5, \"total\": "
			       "9, \"total_known\": false, \"files\": 1}\n{\"v\": 1, "
			       "\"type\": \"file\""));
	assert_non_null(strstr(text,
			       "\"path\": \"a/\\\"\\\\\\\\\\\\xff\\\\n\", \"what\": \"file\", "
			       "\"exit\": 0"));
	assert_non_null(strstr(text, "\"path\": \"a/d\", \"what\": \"dir\", \"exit\": 11"));
	assert_non_null(strstr(text, "\n{\"v\": 1, \"type\": \"error\", \"text\": \"open "
				     "\\\"x\\\": no\"}\n"));
	assert_non_null(strstr(text, "\n{\"v\": 1, \"type\": \"summary\", \"program\": \"rdcp\", "
				     "\"exit\": 23"));
}

static void log_file_is_appended_to(void **state)
{
	const struct options o = {.output.log_file = log_path, .rules.recursive = true};
	const char *text;
	size_t len;

	(void)state;
	for (int i = 0; i < 2; i++) {
		begin_run(&o, "", "a");
		take_result(EVENT_FILE, OUT_DONE, ">f+++++++++", "a/b\nc");
		take_result(EVENT_FILE, OUT_FILE, "", "a/d");
		deleted("a/e");
		log_at(LOG_ERROR, "open x: no");
		log_at(LOG_INFO, "not of interest");
		events_flush();
		end_run(OUT_SOME_FILES);
	}
	text = content(log_path, &len);
	for (int i = 0; i < 2; i++) {
		static const char *const words[] = {"start 1 source",   ">f+++++++++ a/b\\nc",
						    "failed a/d",       "*deleting a/e",
						    "error open x: no", "end exit 23, 0 sent"};

		for (unsigned k = 0; k < sizeof words / sizeof *words; k++) {
			text = strstr(text, words[k]);
			assert_non_null(text);
			/* "2026-01-02T03:04:05+0000 [123] " precedes it. */
			assert_true(text[-1] == ' ' && text[-2] == ']');
			text++;
		}
	}
	assert_null(strstr(content(log_path, &len), "interest"));
}

static void *read_all(int fd, size_t *len)
{
	char *bytes = NULL;
	size_t room = 0;
	ssize_t n;

	*len = 0;
	do {
		if (*len == room)
			bytes = realloc(bytes, room = 2 * room + 65536);
		n = read(fd, bytes + *len, room - *len);
		if (n > 0)
			*len += (size_t)n;
	} while (n > 0);
	return bytes;
}

/*
 * 4 MB of output that nobody reads yet: the program does not wait, and all of it arrives in the
 * end.
 */
static void unread_output_blocks_nobody(void **state)
{
	int pipe_fds[2];
	size_t len, at = 0;
	char *bytes;
	FILE *to;
	pid_t child;
	int status;

	(void)state;
	assert_int_equal(pipe(pipe_fds), 0);
	child = fork();
	if (child == 0) {
		close(pipe_fds[0]);
		to = spool_begin(pipe_fds[1]);
		for (int i = 0; i < 250000; i++) {
			fprintf(to, "line %010d\n", i);
			if (i % 1000 == 0)
				spool_flush();
		}
		/* No line was waited for until now. */
		spool_flush();
		if (spool_pending_fd() != pipe_fds[1])
			_exit(1);
		_exit(spool_end() ? 2 : 0);
	}
	close(pipe_fds[1]);
	sleep(1);
	bytes = read_all(pipe_fds[0], &len);
	close(pipe_fds[0]);
	for (int i = 0; i < 250000; i++) {
		char want[32];
		int n = snprintf(want, sizeof want, "line %010d\n", i);

		assert_true(at + (size_t)n <= len);
		assert_memory_equal(bytes + at, want, (size_t)n);
		at += (size_t)n;
	}
	assert_int_equal(at, len);
	free(bytes);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void closed_stdout_is_reported(void **state)
{
	int pipe_fds[2];
	FILE *to;

	(void)state;
	signal(SIGPIPE, SIG_IGN);
	assert_int_equal(pipe(pipe_fds), 0);
	close(pipe_fds[0]);
	to = spool_begin(pipe_fds[1]);
	fputs("line\n", to);
	assert_int_equal(spool_end(), -1);
	assert_non_null(strstr(failed()->text, "stdout"));
	close(pipe_fds[1]);
}

/* Log lines of an end are queued until it sends them; of dropped lines the number is reported. */
static void notes_are_queued_in_order(void **state)
{
	static struct msg_note m;
	static char line[1000];
	unsigned n = 0, dropped = 0;

	(void)state;
	notes_begin();
	for (int i = 0; i < 10000; i++) {
		snprintf(line, sizeof line, "%0*d", (int)sizeof line - 1, i);
		log_at(LOG_ERROR, "%s", line);
	}
	while (notes_take(&m)) {
		if (sscanf(m.text, "%u more lines", &dropped) == 1 && m.level == LOG_WARN)
			continue;
		assert_int_equal(atoi(m.text), n++);
	}
	log_to(NULL);
	assert_true(n > 4000 && n + dropped == 10000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(itemized_changes_match_rsync),
		cmocka_unit_test(printed_digests_can_be_checked),
		cmocka_unit_test(failed_files_are_listed),
		cmocka_unit_test(json_objects_are_printed),
		cmocka_unit_test(log_file_is_appended_to),
		cmocka_unit_test(unread_output_blocks_nobody),
		cmocka_unit_test(closed_stdout_is_reported),
		cmocka_unit_test(notes_are_queued_in_order),
	};

	log_setup("test", LOG_WARN);
	screen_begin("test", NULL);
	return cmocka_run_group_tests(tests, setup, teardown);
}
