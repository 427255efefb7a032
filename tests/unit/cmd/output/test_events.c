/* SPDX-License-Identifier: Apache-2.0 */
/* What is printed, listed and logged of each file, and that nobody who doesn't read it is waited
 * for. */
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

/* Run of one source: what comes of stdout is in the file `shown'. */
static int saved_stdout;

static void begin(const struct options *o, const char *host, const char *source)
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

static const char *end(enum outcome code)
{
	struct report r = {.program = "rdcp", .failure.code = code};
	size_t len;
	int rc = events_end(&r);

	dup2(saved_stdout, STDOUT_FILENO);
	close(saved_stdout);
	assert_int_equal(rc, 0);
	return content(shown, &len);
}

static void take(enum event_what what, enum outcome code, const char *change, const char *path)
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

static void changes_as_rsync_has_them(void **state)
{
	const struct options o = {.itemize = true, .rules.recursive = true};

	(void)state;
	begin(&o, "", "a");
	take(EVENT_DIR, OUT_DONE, "cd+++++++++", "a");
	take(EVENT_FILE, OUT_DONE, ">f+++++++++", "a/b\nc");
	take(EVENT_FILE, OUT_DONE, ".f.........", "a/same");
	take(EVENT_FILE, OUT_DONE, ".f         ", "a/same");
	take(EVENT_FILE, OUT_DONE, ">f.........", "a/sent");
	take(EVENT_FILE, OUT_DONE, ".f...p.....", "a/\x1b[m");
	take(EVENT_FILE, OUT_FILE, "", "a/failed");
	take(EVENT_DIR, OUT_DONE, ".d..t......", "");
	deleted("a/old");
	assert_string_equal(end(OUT_DONE), "cd+++++++++ a/\n"
					   ">f+++++++++ a/b\\nc\n"
					   ">f......... a/sent\n"
					   ".f...p..... a/\\x1b[m\n"
					   ".d..t...... ./\n"
					   "*deleting   a/old/\n");
}

/* Names are those in SRC; what would break a line is escaped as coreutils do. */
static void digests_that_can_be_checked(void **state)
{
	struct options o = {.rules.digest = CONTENT_SHA256, .rules.recursive = true};

	(void)state;
	begin(&o, "", "some/a");
	take(EVENT_DIR, OUT_DONE, "cd+++++++++", "a");
	take(EVENT_FILE, OUT_DONE, ">f+++++++++", "a/b/c");
	take(EVENT_FILE, OUT_DONE, ">f+++++++++", "a/x\ny\\z");
	take(EVENT_FILE, OUT_DONE, ">f+++++++++", "a/n\r");
	take(EVENT_FILE, OUT_FILE, "", "a/failed");
	take(EVENT_SYMLINK, OUT_DONE, "cL+++++++++", "a/link");
	assert_string_equal(end(OUT_DONE), "0123abcd  b/c\n"
					   "\\0123abcd  x\\ny\\\\z\n"
					   "\\0123abcd  n\\r\n");
	/* Contents of SRC, a pattern's matches, plain files: nothing is cut. */
	begin(&o, "", "a/");
	take(EVENT_FILE, OUT_DONE, "", "b/c");
	assert_string_equal(end(OUT_DONE), "0123abcd  b/c\n");
	begin(&o, "far", "x*");
	take(EVENT_FILE, OUT_DONE, "", "x1/c");
	assert_string_equal(end(OUT_DONE), "0123abcd  x1/c\n");
	o.rules.recursive = false;
	begin(&o, "", "a/b");
	take(EVENT_FILE, OUT_DONE, "", "b");
	assert_string_equal(end(OUT_DONE), "0123abcd  b\n");
}

static void what_failed_is_listed(void **state)
{
	const struct options o = {.failed = failed_path, .rules.recursive = true};
	size_t len;

	(void)state;
	begin(&o, "", "a");
	take(EVENT_FILE, OUT_DONE, ">f+++++++++", "a/good");
	take(EVENT_FILE, OUT_FILE, "", "a/b\n/c");
	take(EVENT_DIR, OUT_FILE, "", "a/d");
	take(EVENT_DIR, OUT_FILE, "", "a");
	assert_int_equal(access(failed_path, F_OK), -1);
	end(OUT_SOME_FILES);
	assert_memory_equal(content(failed_path, &len), "b\n/c\0d\0.\0", 9);
	assert_int_equal(len, 9);
	/* Cut short: the list of before stays. */
	begin(&o, "", "a");
	take(EVENT_FILE, OUT_FILE, "", "a/x");
	end(OUT_PEER_LOST);
	content(failed_path, &len);
	assert_int_equal(len, 9);
	begin(&o, "", "a");
	end(OUT_FILE);
	content(failed_path, &len);
	assert_int_equal(len, 9);
	/* Nothing failed: that is a list, too. */
	begin(&o, "", "a");
	end(OUT_DONE);
	content(failed_path, &len);
	assert_int_equal(len, 0);
}

static void objects(void **state)
{
	const struct options o = {.json = true, .rules.recursive = true};
	const struct progress_count c = {.bytes = 5, .total = 9, .files = 1};
	const char *text;

	(void)state;
	begin(&o, "h", "a");
	events_progress(&c, 1000);
	events_progress(&c, 1500);
	events_progress(&c, 2100);
	take(EVENT_FILE, OUT_DONE, ">f+++++++++", "a/\"\\\xff\n");
	take(EVENT_DIR, OUT_FILE, "", "a/d");
	log_at(LOG_ERROR, "open \"x\": no");
	text = end(OUT_SOME_FILES);
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

static void a_log_grows(void **state)
{
	const struct options o = {.log_file = log_path, .rules.recursive = true};
	const char *text;
	size_t len;

	(void)state;
	for (int i = 0; i < 2; i++) {
		begin(&o, "", "a");
		take(EVENT_FILE, OUT_DONE, ">f+++++++++", "a/b\nc");
		take(EVENT_FILE, OUT_FILE, "", "a/d");
		deleted("a/e");
		log_at(LOG_ERROR, "open x: no");
		log_at(LOG_INFO, "not of interest");
		events_flush();
		end(OUT_SOME_FILES);
	}
	text = content(log_path, &len);
	for (int i = 0; i < 2; i++) {
		static const char *const words[] = {"start 1 source",   ">f+++++++++ a/b\\nc",
						    "failed a/d",       "*deleting a/e",
						    "error open x: no", "end exit 23, 0 sent"};

		for (unsigned k = 0; k < sizeof words / sizeof *words; k++) {
			text = strstr(text, words[k]);
			assert_non_null(text);
			/* "2026-01-02T03:04:05+0000 [123] " is before it. */
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

/* 4 MB that nobody reads: nobody waits, and all of it comes in the end. */
static void nobody_waits_for_a_reader(void **state)
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
		/* Not a word was waited for: now it is. */
		spool_flush();
		if (spool_waits() != pipe_fds[1])
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

static void a_reader_that_went_is_told(void **state)
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

/* An end's lines wait for it to send them; of too many at least the number is known. */
static void notes_wait_in_order(void **state)
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
		if (sscanf(m.text, "%u lines more", &dropped) == 1 && m.level == LOG_WARN)
			continue;
		assert_int_equal(atoi(m.text), n++);
	}
	log_to(NULL);
	assert_true(n > 4000 && n + dropped == 10000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(changes_as_rsync_has_them),
		cmocka_unit_test(digests_that_can_be_checked),
		cmocka_unit_test(what_failed_is_listed),
		cmocka_unit_test(objects),
		cmocka_unit_test(a_log_grows),
		cmocka_unit_test(nobody_waits_for_a_reader),
		cmocka_unit_test(a_reader_that_went_is_told),
		cmocka_unit_test(notes_wait_in_order),
	};

	log_setup("test", LOG_WARN);
	screen_begin("test", NULL);
	return cmocka_run_group_tests(tests, setup, teardown);
}
