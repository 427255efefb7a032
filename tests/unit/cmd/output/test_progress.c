/* SPDX-License-Identifier: Apache-2.0 */
/* What the progress line shows at given times; no clock runs here. */
#include "base/fail.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include <fcntl.h>
#include "cmd/output/progress.h"
#include "cmd/output/report.h"

enum { MIB = 1 << 20 };

static const char *line(const struct progress *p, const struct progress_count *c, uint64_t now_ms)
{
	static char text[PROGRESS_LINE_MAX];

	return progress_line(p, c, now_ms, text, sizeof text);
}

/* Progress is neither live nor periodic here. */
static void begin_progress(struct progress *p)
{
	progress_init(p, "test", false, 0);
}

static void line_has_rate_percent_and_eta(void **state)
{
	struct progress p;
	struct progress_count c = {.total = 100 * MIB, .total_known = true};
	uint64_t now = 1000;

	(void)state;
	begin_progress(&p);
	for (int i = 1; i <= 40; i++, now += 250) {
		c.bytes = (uint64_t)i * MIB;
		progress_update(&p, &c, now);
	}
	/* 4 MiB per second, 60 MiB left. */
	assert_string_equal(line(&p, &c, now), "40.0 MiB of 100 MiB  40%  4.00 MiB/s  ETA 0:15");
}

static void growing_total_is_marked(void **state)
{
	struct progress p;
	struct progress_count c = {.bytes = MIB, .total = 2 * MIB};

	(void)state;
	begin_progress(&p);
	progress_update(&p, &c, 1000);
	assert_non_null(strstr(line(&p, &c, 1000), "of \u22652.00 MiB  50%"));
}

static void unknown_total_shows_no_percent(void **state)
{
	struct progress p;
	struct progress_count c = {.bytes = MIB};

	(void)state;
	begin_progress(&p);
	progress_update(&p, &c, 1000);
	assert_null(strchr(line(&p, &c, 1000), '%'));
	assert_null(strstr(line(&p, &c, 1000), "ETA"));
}

/* Files may be stored before the walk has counted them, and a file may grow. */
static void total_is_never_below_the_bytes(void **state)
{
	struct progress p;
	struct progress_count c = {.bytes = 3 * MIB, .total = 2 * MIB};

	(void)state;
	begin_progress(&p);
	progress_update(&p, &c, 1000);
	assert_non_null(strstr(line(&p, &c, 1000), "3.00 MiB of \u22653.00 MiB 100%"));
	c.total_known = true;
	assert_non_null(strstr(line(&p, &c, 1000), "3.00 MiB of \u22653.00 MiB 100%"));
}

/* A remote end may send any counts. */
static void impossible_counts_are_tolerated(void **state)
{
	struct progress_count c = {.bytes = 5 * MIB, .total = 1, .total_known = true};
	struct progress p;

	(void)state;
	begin_progress(&p);
	progress_update(&p, &c, 1000);
	progress_update(&p, &c, 2000);
	assert_string_equal(line(&p, &c, 2000), "5.00 MiB of \u22655.00 MiB 100%  5.00 MiB/s");
	c.bytes = 1;
	progress_update(&p, &c, 3000);
	assert_string_equal(line(&p, &c, 3000), "1 B of 1 B 100%  3.50 MiB/s");
	c.bytes = UINT64_MAX;
	progress_update(&p, &c, 3500);
	assert_string_equal(line(&p, &c, 3500), "16.0 EiB of \u226516.0 EiB 100%  9.60 EiB/s");
	begin_progress(&p);
	progress_update(&p, &c, 1000);
	progress_update(&p, &c, 1500);
	assert_string_equal(line(&p, &c, 1500), "16.0 EiB of \u226516.0 EiB 100%  16.0 EiB/s");
}

static void line_shows_stalled_after_five_seconds(void **state)
{
	struct progress p;
	struct progress_count c = {.bytes = MIB, .total = 2 * MIB};

	(void)state;
	begin_progress(&p);
	progress_update(&p, &c, 1000);
	assert_null(strstr(line(&p, &c, 5999), "stalled"));
	assert_non_null(strstr(line(&p, &c, 6000), "stalled"));
	assert_null(strstr(line(&p, &c, 6000), "ETA"));
	c.bytes++;
	progress_update(&p, &c, 6100);
	assert_null(strstr(line(&p, &c, 6100), "stalled"));
}

/* A tree that exists already: no bytes are sent, but the copy is not stalled. */
static void counting_files_is_not_stalled(void **state)
{
	struct progress p;
	struct progress_count c = {.total = 2 * MIB};

	(void)state;
	begin_progress(&p);
	for (uint64_t now = 1000; now < 20000; now += 250) {
		c.files += 10;
		progress_update(&p, &c, now);
	}
	assert_string_equal(line(&p, &c, 20000), "0 B of \u22652.00 MiB   0%  ...  760 files");
	assert_non_null(strstr(line(&p, &c, 25000), "stalled"));
}

/* What a terminal would get, through a pipe instead of stderr. */
static size_t captured(void (*write_it)(void), char *to, size_t size)
{
	int pipe_fds[2], saved = dup(STDERR_FILENO);
	ssize_t n;

	assert_int_equal(pipe(pipe_fds), 0);
	dup2(pipe_fds[1], STDERR_FILENO);
	close(pipe_fds[1]);
	write_it();
	dup2(saved, STDERR_FILENO);
	close(saved);
	n = read(pipe_fds[0], to, size - 1);
	close(pipe_fds[0]);
	to[n > 0 ? n : 0] = '\0';
	return n > 0 ? (size_t)n : 0;
}

static void lines_every_two_seconds(void)
{
	struct progress p;
	struct progress_count c = {.total = 10 * MIB, .total_known = true};

	screen_begin("test", NULL);
	progress_init(&p, "test", true, 2); /* a pipe is no terminal, so not live */
	for (uint64_t now = 1000; now <= 6000; now += 250) {
		c.bytes += 1000;
		progress_update(&p, &c, now);
	}
	screen_end();
	progress_end(&p, c.bytes, 1);
}

static void without_a_terminal_plain_lines_are_printed(void **state)
{
	char text[4096];
	unsigned lines = 0;

	(void)state;
	captured(lines_every_two_seconds, text, sizeof text);
	for (const char *at = text; (at = strchr(at, '\n')); at++)
		lines++;
	assert_int_equal(lines, 2);
	assert_null(strchr(text, '\r'));
	assert_ptr_equal(strstr(text, "test: "), text);
}

/* Nobody reads stderr: lines are queued, no thread waits for them, and none is lost. */
static void stopped_terminal_blocks_nobody(void **state)
{
	static char junk[1 << 20], text[1 << 16];
	int pipe_fds[2], saved = dup(STDERR_FILENO);
	ssize_t filled, n;
	char *at;

	(void)state;
	assert_int_equal(pipe(pipe_fds), 0);
	fcntl(pipe_fds[1], F_SETFL, O_NONBLOCK);
	filled = write(pipe_fds[1], junk, sizeof junk);
	fcntl(pipe_fds[1], F_SETFL, 0);
	dup2(pipe_fds[1], STDERR_FILENO);
	close(pipe_fds[1]);
	screen_begin("test", NULL);
	for (int i = 0; i < 500; i++) {
		snprintf(text, sizeof text, "line %d", i);
		screen_line(text);
	}
	screen_live("live");
	n = screen_is_pending();
	assert_int_equal(read(pipe_fds[0], junk, (size_t)filled), filled);
	screen_flush();
	screen_end();
	dup2(saved, STDERR_FILENO);
	close(saved);
	assert_true(n);
	assert_true(filled > 0);
	n = read(pipe_fds[0], text, sizeof text - 1);
	text[n > 0 ? n : 0] = '\0';
	close(pipe_fds[0]);
	at = text;
	for (int i = 0; i < 500; i++) {
		char want[32];

		snprintf(want, sizeof want, "test: line %d\n", i);
		assert_int_equal(strncmp(at, want, strlen(want)), 0);
		at += strlen(want);
	}
	assert_string_equal(at, "\rlive\033[K\r\033[K");
}

/* Lines beyond the limit are counted. */
static void dropped_lines_are_counted(void **state)
{
	static char junk[1 << 20], text[SCREEN_KEPT_MAX + 4096];
	int pipe_fds[2], saved = dup(STDERR_FILENO);
	ssize_t filled, n = 0, got;

	(void)state;
	assert_int_equal(pipe(pipe_fds), 0);
	fcntl(pipe_fds[1], F_SETPIPE_SZ, 2 * SCREEN_KEPT_MAX);
	fcntl(pipe_fds[1], F_SETFL, O_NONBLOCK);
	filled = write(pipe_fds[1], junk, sizeof junk);
	fcntl(pipe_fds[1], F_SETFL, 0);
	dup2(pipe_fds[1], STDERR_FILENO);
	close(pipe_fds[1]);
	screen_begin("test", NULL);
	memset(text, 'x', 1000);
	text[1000] = '\0';
	for (int i = 0; i < 100; i++)
		screen_line(text);
	got = read(pipe_fds[0], junk, (size_t)filled);
	screen_end();
	dup2(saved, STDERR_FILENO);
	close(saved);
	assert_int_equal(got, filled);
	while ((got = read(pipe_fds[0], text + n, sizeof text - 1 - (size_t)n)) > 0)
		n += got;
	text[n] = '\0';
	close(pipe_fds[0]);
	assert_non_null(
		strstr(text, "test: 35 more lines were dropped because stderr is too slow\n"));
}

static struct report sample(void)
{
	return (struct report){
		.program = "rdcp",
		.total = {.files = 2, .bytes = 3000000000, .digest = {1, 2}},
		.transport = TRANSPORT_TCP,
		.lanes = 2,
		.how = "tcp 10.0.0.1:7000",
		.ns = 1500000000,
		.source = {.kind = KIND_PIPE,
			   .used = 2,
			   .ns_busiest = 100000000,
			   .ns_longest = 1000000000},
		.sink = {.kind = KIND_DISK,
			 .used = 2,
			 .ns_busiest = 800000000,
			 .ns_longest = 1000000000},
	};
}

static void verbose_ends_with_a_summary(void **state)
{
	char *text = NULL;
	size_t size;
	FILE *to = open_memstream(&text, &size);
	struct report r = sample();

	(void)state;
	report_verbose(&r, to);
	fclose(to);
	assert_string_equal(text, "rdcp: 16.000 Gb/s over tcp 10.0.0.1:7000, 2 lanes, not "
				  "encrypted\n"
				  "bound by: target disk (source busy 10 %, network 20 %, sink "
				  "busy 80 %)\n"
				  "Bandwidth 2.000 GB/s\n");
	free(text);
}

static void json_strings_are_escaped(void **state)
{
	char *text = NULL;
	size_t size;
	FILE *to = open_memstream(&text, &size);
	struct report r = sample();

	(void)state;
	r.failure.code = OUT_FILE;
	snprintf(r.failure.text, sizeof r.failure.text, "open \"a\\b\n\x1b\xff\": no");
	report_json(&r, to);
	fclose(to);
	assert_non_null(strstr(text, "\"exit\": 11"));
	assert_non_null(strstr(text, "\"digest\": \"00000000000000020000000000000001\""));
	assert_non_null(strstr(
		text,
		"\"bound_by\": \"target disk\", \"source_busy\": 0.100, "
		"\"compression\": 0.000, \"encryption\": 0.000, \"network\": 0.200, \"sink_busy\": 0.800, \"held_back\": 0.000, "
		"\"processors\": null, "));
	assert_non_null(strstr(text, "open \\\"a\\\\\\\\b\\\\n\\\\x1b\\\\xff\\\": no"));
	assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(line_has_rate_percent_and_eta),
		cmocka_unit_test(growing_total_is_marked),
		cmocka_unit_test(unknown_total_shows_no_percent),
		cmocka_unit_test(total_is_never_below_the_bytes),
		cmocka_unit_test(impossible_counts_are_tolerated),
		cmocka_unit_test(line_shows_stalled_after_five_seconds),
		cmocka_unit_test(counting_files_is_not_stalled),
		cmocka_unit_test(without_a_terminal_plain_lines_are_printed),
		cmocka_unit_test(stopped_terminal_blocks_nobody),
		cmocka_unit_test(dropped_lines_are_counted),
		cmocka_unit_test(verbose_ends_with_a_summary),
		cmocka_unit_test(json_strings_are_escaped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
