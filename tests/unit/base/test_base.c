/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#undef fail /* cmocka defines a macro of this name; base/fail.h declares a function */
#include "base/clock.h"
#include "base/cpu.h"
#include "base/cursor.h"
#include "base/escape.h"
#include "base/fail.h"
#include "base/io.h"
#include "base/log.h"
#include "base/siphash.h"
#include "base/worker.h"
#include "folder.h"

/* ---- cursor ------------------------------------------------------------------------- */

static void numbers_survive_a_round_trip(void **state)
{
	static const uint8_t bytes[] = {1, 3, 2, 7, 6, 5, 4, 15, 14, 13, 12, 11, 10, 9, 8};
	uint8_t room[64];
	struct writer w = writer_of(room, sizeof room);
	struct reader r;
	char s[8];

	(void)state;
	put_u8(&w, 1);
	put_u16(&w, 0x0203);
	put_u32(&w, 0x04050607);
	put_u64(&w, 0x08090a0b0c0d0e0f);
	assert_memory_equal(room, bytes, sizeof bytes);
	put_str(&w, "name");
	put_zeros(&w, 3);
	put_bytes(&w, "xyz", 3);
	assert_false(w.full);
	r = reader_of(room, w.used);
	assert_int_equal(take_u8(&r), 1);
	assert_int_equal(take_u16(&r), 0x0203);
	assert_int_equal(take_u32(&r), 0x04050607);
	assert_true(take_u64(&r) == 0x08090a0b0c0d0e0f);
	take_str(&r, s, sizeof s);
	assert_string_equal(s, "name");
	assert_memory_equal(take_view(&r, 3), "\0\0\0", 3);
	assert_false(reader_done(&r));
	take_bytes(&r, s, 3);
	assert_memory_equal(s, "xyz", 3);
	assert_true(reader_done(&r));
}

static void reader_past_its_end_returns_zeros(void **state)
{
	static const uint8_t bytes[] = {0xff, 0xff, 0xff};
	struct reader r = reader_of(bytes, sizeof bytes);
	uint8_t b[2] = {9, 9};

	(void)state;
	assert_int_equal(take_u32(&r), 0);
	assert_int_equal(take_u8(&r), 0);
	take_bytes(&r, b, 2);
	assert_int_equal(b[0] | b[1], 0);
	assert_null(take_view(&r, 1));
	assert_false(reader_done(&r));

	r = reader_of(bytes, sizeof bytes);
	assert_null(take_view(&r, SIZE_MAX));
	assert_true(r.bad);
	r = reader_of(NULL, 0);
	assert_true(reader_done(&r));
	assert_int_equal(take_u8(&r), 0);
	assert_true(r.bad);
}

static bool str_is_bad(const char *bytes, size_t len, size_t size)
{
	struct reader r = reader_of(bytes, len);
	char s[8] = "before";

	take_str(&r, s, size);
	if (!r.bad)
		return false;
	assert_string_equal(s, "");
	return true;
}

static void string_with_a_wrong_length_is_bad(void **state)
{
	(void)state;
	assert_false(str_is_bad("\3\0abc", 5, 4));
	assert_true(str_is_bad("\3\0abc", 5, 3));
	assert_true(str_is_bad("\3\0ab", 4, 8));
	assert_true(str_is_bad("\3\0a\0c", 5, 8));
	assert_true(str_is_bad("\xff\xff"
			       "abc",
			       5, 8));
	assert_true(str_is_bad("\1", 1, 8));
	assert_false(str_is_bad("\0\0", 2, 1));
}

static void full_writer_writes_nothing_more(void **state)
{
	uint8_t room[8];
	struct writer w = writer_of(room, 4);
	static char big[70000];

	(void)state;
	memset(room, 0xee, sizeof room);
	put_u16(&w, 1);
	put_u32(&w, 2);
	assert_true(w.full);
	put_u8(&w, 3);
	put_zeros(&w, 1);
	assert_int_equal(w.used, 2);
	for (unsigned i = 2; i < sizeof room; i++)
		assert_int_equal(room[i], 0xee);

	w = writer_of(room, 4);
	put_bytes(&w, "x", 1);
	put_bytes(&w, "x", SIZE_MAX);
	assert_true(w.full);

	memset(big, 'a', sizeof big - 1);
	w = writer_of(room, 4);
	put_str(&w, big);
	assert_true(w.full);
	assert_int_equal(w.used, 0);
}

/* ---- escape ------------------------------------------------------------------------- */

static const struct {
	const char *from, *to;
} escapes[] = {
	{"plain name.txt", "plain name.txt"},
	{"a\nb\tc\\d", "a\\nb\\tc\\\\d"},
	{"\033[31m\r\a", "\\x1b[31m\\x0d\\x07"},
	{"\x7f", "\\x7f"},
	{"gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f"},
	{"\xf0\x9f\x9a\x80\xe6\xbc\xa2", "\xf0\x9f\x9a\x80\xe6\xbc\xa2"},
	/* C1 control characters: as single bytes, and as UTF-8 */
	{"\x9b"
	 "1m",
	 "\\x9b1m"},
	{"\xc2\x80\xc2\x9f\xc2\xa0", "\\xc2\\x80\\xc2\\x9f\xc2\xa0"},
	/* bidirectional controls ALM LRM RLE RLO PDI, and their printable neighbours */
	{"\xd8\x9c", "\\xd8\\x9c"},
	{"\xe2\x80\x8e", "\\xe2\\x80\\x8e"},
	{"\xe2\x80\xab\xe2\x80\xae", "\\xe2\\x80\\xab\\xe2\\x80\\xae"},
	{"\xe2\x81\xa6\xe2\x81\xa9", "\\xe2\\x81\\xa6\\xe2\\x81\\xa9"},
	{"\xe2\x80\x90\xe2\x80\xaf\xe2\x81\xaa", "\xe2\x80\x90\xe2\x80\xaf\xe2\x81\xaa"},
	/*
	 * invalid UTF-8: truncated, stray continuation, overlong, surrogate, above U+10FFFF, never
	 * used
	 */
	{"\xe6\xbc", "\\xe6\\xbc"},
	{"\xe6\xbcz", "\\xe6\\xbcz"},
	{"\x80", "\\x80"},
	{"\xc0\xaf\xc1\xbf", "\\xc0\\xaf\\xc1\\xbf"},
	{"\xe0\x80\xaf", "\\xe0\\x80\\xaf"},
	{"\xed\xa0\x80", "\\xed\\xa0\\x80"},
	{"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},
	{"\xff\xfe", "\\xff\\xfe"},
};

static void names_are_escaped(void **state)
{
	char to[64];

	(void)state;
	for (unsigned i = 0; i < sizeof escapes / sizeof *escapes; i++)
		assert_string_equal(escape(to, sizeof to, escapes[i].from, strlen(escapes[i].from)),
				    escapes[i].to);
	assert_string_equal(escape(to, sizeof to, "a\0b", 3), "a\\x00b");
}

static void escape_sequence_is_never_truncated(void **state)
{
	char to[8] = "unmoved";

	(void)state;
	escape(to, 0, "abc", 3);
	assert_string_equal(to, "unmoved");
	assert_string_equal(escape(to, 1, "abc", 3), "");
	assert_string_equal(escape(to, 4, "\x1b", 1), "");
	assert_string_equal(escape(to, 5, "\x1b", 1), "\\x1b");
	assert_string_equal(escape(to, 3, "a\xc3\xbc", 3), "a");
	assert_string_equal(escape(to, 4, "a\xc3\xbc", 3), "a\xc3\xbc");
	assert_string_equal(escape(to, 4, "abcdef", 6), "abc");
}

/* ---- fail --------------------------------------------------------------------------- */

static void failure_keeps_its_message(void **state)
{
	struct failure kept;

	(void)state;
	fail_clear();
	assert_int_equal(failed()->code, OUT_DONE);
	errno = ENOENT;
	assert_int_equal(fail("open %s: %m", "x"), -1);
	assert_int_equal(errno, ENOENT);
	assert_int_equal(failed()->code, OUT_FILE);
	assert_string_equal(failed()->text, "open x: No such file or directory");
	kept = *failed();

	assert_int_equal(fail_as(OUT_AUTH, "again: %s", failed()->text), -1);
	assert_int_equal(failed()->code, OUT_AUTH);
	assert_string_equal(failed()->text, "again: open x: No such file or directory");

	assert_int_equal(fail_again(&kept), -1);
	assert_int_equal(failed()->code, OUT_FILE);
	assert_string_equal(failed()->text, kept.text);
	fail_again(failed());
	assert_string_equal(failed()->text, kept.text);
	fail_clear();
	assert_int_equal(failed()->code, OUT_DONE);
	assert_string_equal(failed()->text, "");
}

static void long_failure_message_is_truncated(void **state)
{
	static char big[5000];

	(void)state;
	memset(big, 'a', sizeof big - 1);
	fail("%s", big);
	assert_int_equal(strlen(failed()->text), FAIL_TEXT_MAX - 1);
	fail_clear();
}

static void *other_failure(void *arg)
{
	struct failure *out = arg;

	fail_as(OUT_MEMORY, "theirs");
	*out = *failed();
	return NULL;
}

static void each_thread_has_its_own_failure(void **state)
{
	struct failure theirs;
	struct worker w;

	(void)state;
	fail_as(OUT_SOCKET, "mine");
	assert_int_equal(worker_start(&w, "other", other_failure, &theirs), 0);
	worker_join(&w);
	assert_string_equal(theirs.text, "theirs");
	assert_int_equal(failed()->code, OUT_SOCKET);
	assert_string_equal(failed()->text, "mine");
	fail_clear();
}

static void unknown_outcome_byte_is_a_protocol_failure(void **state)
{
	(void)state;
	assert_int_equal(outcome_from(0), OUT_DONE);
	assert_int_equal(outcome_from(42), OUT_CHANGED);
	assert_int_equal(outcome_from(4), OUT_PROTOCOL);
	assert_int_equal(outcome_from(255), OUT_PROTOCOL);
	assert_int_equal(outcome_from(UINT_MAX), OUT_PROTOCOL);
}

/* ---- clock -------------------------------------------------------------------------- */

static void deadline_counts_down(void **state)
{
	uint64_t now = clock_ms();
	struct timespec t;

	(void)state;
	assert_true(clock_left(now + 60000) > 0);
	assert_true(clock_left(now + 60000) <= 60000);
	assert_int_equal(clock_left(now), 0);
	assert_int_equal(clock_left(0), 0);
	assert_int_equal(clock_left(UINT64_MAX), INT_MAX);
	t = clock_after(1999);
	assert_true(t.tv_nsec >= 0 && t.tv_nsec < 1000000000);
	assert_true((uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000 >= now + 1999);
}

static void pauses_double_up_to_a_bound(void **state)
{
	(void)state;
	assert_int_equal(clock_doubled(20, 0, 200), 20);
	assert_int_equal(clock_doubled(20, 1, 200), 40);
	assert_int_equal(clock_doubled(20, 3, 200), 160);
	assert_int_equal(clock_doubled(20, 4, 200), 200);
	assert_int_equal(clock_doubled(20, UINT_MAX, UINT64_MAX), UINT64_MAX);
	assert_int_equal(clock_doubled(300, 5, 200), 300);
	assert_int_equal(clock_doubled(0, UINT_MAX, 200), 0);
}

/* ---- io ----------------------------------------------------------------------------- */

enum { PIPED = 1 << 20 };

static uint8_t byte_at(size_t i)
{
	return (uint8_t)(i * 7 + i / 256);
}

static void *write_in_crumbs(void *arg)
{
	int fd = *(int *)arg;
	size_t at = 0;

	while (at < PIPED) {
		uint8_t crumb[4099];
		size_t n = 1 + at % sizeof crumb;

		if (n > PIPED - at)
			n = PIPED - at;
		for (size_t i = 0; i < n; i++)
			crumb[i] = byte_at(at + i);
		if (write(fd, crumb, n) != (ssize_t)n)
			break;
		at += n;
	}
	close(fd);
	return NULL;
}

static void full_read_combines_short_reads(void **state)
{
	uint8_t *got = malloc(PIPED + 1);
	struct worker w;
	int p[2];

	(void)state;
	assert_non_null(got);
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	/* A descriptor that another process made non-blocking is still read completely. */
	assert_int_equal(fcntl(p[0], F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(worker_start(&w, "writer", write_in_crumbs, &p[1]), 0);
	assert_int_equal(read_full(p[0], got, 1000), 1000);
	assert_int_equal(read_full(p[0], got + 1000, PIPED), PIPED - 1000);
	worker_join(&w);
	for (size_t i = 0; i < PIPED; i++)
		assert_int_equal(got[i], byte_at(i));
	assert_int_equal(read_full(p[0], got, 1), 0);
	close(p[0]);
	free(got);
}

static const char *read_in_crumbs(int fd)
{
	uint8_t crumb[5001];
	size_t at = 0;
	ssize_t n;

	while ((n = read(fd, crumb, sizeof crumb)) > 0)
		for (ssize_t i = 0; i < n; i++, at++)
			if (crumb[i] != byte_at(at))
				return "differs";
	return n == 0 && at == PIPED ? NULL : "wrong length";
}

static void *crumbs_are_right(void *arg)
{
	const char **verdict = ((void **)arg)[1];

	*verdict = read_in_crumbs(*(int *)((void **)arg)[0]);
	return NULL;
}

static void full_write_continues_after_short_writes(void **state)
{
	uint8_t *put = malloc(PIPED);
	const char *verdict = "not run";
	struct worker w;
	int p[2];
	void *args[2] = {&p[0], &verdict};

	(void)state;
	assert_non_null(put);
	for (size_t i = 0; i < PIPED; i++)
		put[i] = byte_at(i);
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	assert_int_equal(fcntl(p[1], F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(worker_start(&w, "reader", crumbs_are_right, args), 0);
	assert_int_equal(write_full(p[1], put, PIPED), 0);
	close(p[1]);
	worker_join(&w);
	close(p[0]);
	free(put);
	assert_null(verdict);
}

static void reads_and_writes_use_their_offset(void **state)
{
	char buf[16] = "";
	int fd = memfd_create("positions", MFD_CLOEXEC);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(pwrite_full(fd, "hello", 5, 10), 0);
	assert_int_equal(pread_full(fd, buf, sizeof buf, 0), 15);
	assert_memory_equal(buf, "\0\0\0\0\0\0\0\0\0\0hello", 15);
	assert_int_equal(pread_full(fd, buf, 3, 12), 3);
	assert_memory_equal(buf, "llo", 3);
	assert_int_equal(pread_full(fd, buf, 3, 15), 0);
	close(fd);
}

static void descriptor_errors_are_returned(void **state)
{
	char c;

	(void)state;
	errno = 0;
	assert_int_equal(read_full(-1, &c, 1), -1);
	assert_int_equal(errno, EBADF);
	assert_int_equal(write_full(-1, "x", 1), -1);
	assert_int_equal(errno, EBADF);
	assert_int_equal(write_full(-1, "", 0), 0);
	errno = ENOSPC;
	close_fd(-1);
	assert_int_equal(errno, ENOSPC);
}

/* ---- log ---------------------------------------------------------------------------- */

static void log_lines_are_whole_prefixed_and_escaped(void **state)
{
	char got[256] = "";
	int p[2], saved = dup(STDERR_FILENO);

	(void)state;
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	dup2(p[1], STDERR_FILENO);
	log_setup("prog", LOG_WARN);
	errno = EPERM;
	log_warn("open %s: %m", "a\033b");
	log_info("not asked for");
	dup2(saved, STDERR_FILENO);
	close(saved);
	close(p[1]);
	assert_int_equal(errno, EPERM);
	assert_true(read_full(p[0], got, sizeof got - 1) > 0);
	close(p[0]);
	assert_string_equal(got, "prog: open a\\x1bb: Operation not permitted\n");
}

static char sunk[64];
static enum log_level sunk_level;

static void sink(enum log_level level, const char *line)
{
	sunk_level = level;
	snprintf(sunk, sizeof sunk, "%s", line);
}

static void log_sink_gets_the_text(void **state)
{
	(void)state;
	log_setup("prog", LOG_INFO);
	log_to(sink);
	log_info("a\tb %d", 7);
	log_debug("not asked for");
	log_to(NULL);
	assert_int_equal(sunk_level, LOG_INFO);
	assert_string_equal(sunk, "a\tb 7");
}

/* ---- worker ------------------------------------------------------------------------- */

static void *wait_for_release(void *arg)
{
	atomic_bool *released = arg;

	while (!atomic_load(released))
		usleep(1000);
	return NULL;
}

static void timed_join_can_end_before_the_worker(void **state)
{
	atomic_bool released = false;
	struct worker w;

	(void)state;
	assert_int_equal(worker_start(&w, "waits", wait_for_release, &released), 0);
	assert_true(w.running);
	assert_false(worker_join_until(&w, clock_ms() + 20));
	assert_true(w.running);
	atomic_store(&released, true);
	assert_true(worker_join_until(&w, clock_ms() + 20000));
	assert_false(w.running);
	assert_true(worker_join_until(&w, 0));
	worker_join(&w);
}

static void workers_are_limited_to_the_slots(void **state)
{
	static struct worker ws[WORKERS_MAX + 1];
	atomic_bool released = false;
	int last;

	(void)state;
	for (unsigned i = 0; i < WORKERS_MAX; i++)
		assert_int_equal(worker_start(&ws[i], "seat", wait_for_release, &released), 0);
	last = worker_start(&ws[WORKERS_MAX], "standing", wait_for_release, &released);
	atomic_store(&released, true);
	for (unsigned i = 0; i <= WORKERS_MAX; i++)
		worker_join(&ws[i]);
	assert_int_equal(last, -1);
	assert_int_equal(failed()->code, OUT_MEMORY);
	assert_false(ws[WORKERS_MAX].running);
	fail_clear();
	/* The slots are free again after the joins. */
	assert_int_equal(worker_start(&ws[0], "seat", wait_for_release, &released), 0);
	worker_join(&ws[0]);
}

static void *mask_of(void *arg)
{
	pthread_sigmask(SIG_SETMASK, NULL, arg);
	return NULL;
}

static void workers_block_all_signals_but_their_own(void **state)
{
	sigset_t mask;
	struct worker w;

	(void)state;
	assert_int_equal(worker_start(&w, "mask", mask_of, &mask), 0);
	worker_join(&w);
	assert_true(sigismember(&mask, SIGINT));
	assert_true(sigismember(&mask, SIGTERM));
	assert_true(sigismember(&mask, SIGUSR1));
	assert_false(sigismember(&mask, SIGUSR2));
	assert_false(sigismember(&mask, SIGSEGV));
	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	assert_false(sigismember(&mask, SIGINT));
}

static void *start_and_end(void *arg)
{
	(void)arg;
	return NULL;
}

static void *wake_all(void *arg)
{
	atomic_bool *over = arg;

	while (!atomic_load(over))
		workers_wake();
	return NULL;
}

/* A thread that has exited must not be signalled: glibc would crash here. */
static void waking_a_worker_may_race_with_its_end(void **state)
{
	atomic_bool over = false;
	struct worker waker, w[4];

	(void)state;
	assert_int_equal(worker_start(&waker, "waker", wake_all, &over), 0);
	for (unsigned round = 0; round < 300; round++) {
		for (unsigned i = 0; i < 4; i++)
			assert_int_equal(worker_start(&w[i], "brief", start_and_end, NULL), 0);
		for (unsigned i = 0; i < 4; i++)
			worker_join(&w[i]);
	}
	atomic_store(&over, true);
	worker_join(&waker);
}

/* The remaining checks run in a child process, because cancel() cannot be undone. */
struct blocked {
	int fd;
	bool writes;
	ssize_t result;
	int err;
};

static void *block(void *arg)
{
	struct blocked *b = arg;
	static char buf[1 << 20];

	b->result = b->writes ? write_full(b->fd, buf, sizeof buf) : read_full(b->fd, buf, 8);
	b->err = errno;
	return NULL;
}

static bool gone(struct worker *w)
{
	uint64_t deadline = clock_ms() + 20000;

	while (!worker_join_until(w, clock_ms() + 10)) {
		workers_wake();
		if (clock_left(deadline) == 0)
			return false;
	}
	return true;
}

static void on_term(int signo)
{
	cancel(signo);
}

/* Returns 0 if a blocked call of each kind was woken, else the number of the check that failed. */
static int cancel_wakes(void)
{
	struct blocked reading = {0}, writing = {.writes = true};
	struct sigaction sa = {.sa_handler = on_term};
	struct worker r, w;
	int in[2], out[2];

	if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC) || cancelled() != 0)
		return 1;
	reading.fd = in[0];
	writing.fd = out[1];
	if (worker_start(&r, "reads", block, &reading) ||
	    worker_start(&w, "writes", block, &writing))
		return 2;
	/* A wake-up without a cancel does not end the call. */
	for (unsigned i = 0; i < 20; i++) {
		workers_wake();
		usleep(1000);
	}
	if (worker_join_until(&r, 0) || worker_join_until(&w, 0))
		return 3;
	sigaction(SIGTERM, &sa, NULL);
	raise(SIGTERM);
	cancel(SIGHUP);
	if (cancelled() != SIGTERM)
		return 4;
	if (!gone(&r) || !gone(&w))
		return 5;
	if (reading.result != -1 || reading.err != ECANCELED)
		return 6;
	if (writing.result != -1 || writing.err != ECANCELED)
		return 7;
	/* Calls that need not wait still work. */
	if (write_full(in[1], "12345678", 8) || read_full(in[0], &(uint64_t){0}, 8) != 8)
		return 8;
	return 0;
}

static void cancel_wakes_blocked_calls(void **state)
{
	pid_t child = fork();
	int status;

	(void)state;
	assert_true(child >= 0);
	if (child == 0)
		_exit(cancel_wakes());
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void full_eventfd_stays_readable(void **state)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	uint64_t most = UINT64_MAX - 1, got;

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(write(fd, &most, sizeof most), sizeof most);
	raise_event(fd);
	assert_int_equal(read(fd, &got, sizeof got), sizeof got);
	assert_true(got == most);
	close_fd(fd);
}

/* Without the wake-up its thread, and every thread that waits for it, would sleep forever. */
static void lost_wake_up_ends_the_process_with_a_message(void **state)
{
	char text[200] = "";
	int err[2], status;
	pid_t child;

	(void)state;
	assert_int_equal(pipe(err), 0);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		struct rlimit none = {0};

		setrlimit(RLIMIT_CORE, &none);
		signal(SIGABRT, SIG_DFL);
		dup2(err[1], STDERR_FILENO);
		raise_event(-1);
		_exit(0);
	}
	close_fd(err[1]);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(read_full(err[0], text, sizeof text - 1) > 0);
	close_fd(err[0]);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGABRT);
	assert_non_null(strstr(text, "cannot wake a thread"));
}

/* ---- siphash -------------------------------------------------------------------------- */

/*
 * From the SipHash paper: key 00 … 0f, input 00 … 0e. The empty input is from the reference code.
 */
static void siphash_matches_the_reference_vectors(void **state)
{
	const struct siphash_key key = {
		.half = {UINT64_C(0x0706050403020100), UINT64_C(0x0f0e0d0c0b0a0908)}};
	struct siphash_key made[2];
	uint8_t bytes[15];

	(void)state;
	for (unsigned i = 0; i < sizeof bytes; i++)
		bytes[i] = (uint8_t)i;
	assert_true(siphash(&key, bytes, sizeof bytes) == UINT64_C(0xa129ca6149be45e5));
	assert_true(siphash(&key, bytes, 0) == UINT64_C(0x726fdb47dd0e0e31));
	assert_int_equal(siphash_key_make(&made[0]) | siphash_key_make(&made[1]), 0);
	assert_true(siphash(&made[0], bytes, 15) != siphash(&made[1], bytes, 15));
}

static void put_text(const char *name, const char *text)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write_full(fd, text, strlen(text)), 0);
	close_fd(fd);
}

/* A container limited to one processor on a host with many. */
static void cgroup_quota_limits_the_processor_count(void **state)
{
	char dir[FOLDER_PATH], inner[64], outer[64], deep[64];

	(void)state;
	assert_int_equal(folder_make(dir), 0);
	snprintf(deep, sizeof deep, "%s/a", dir);
	assert_int_equal(mkdir(deep, 0700), 0);
	snprintf(inner, sizeof inner, "%s/a/cpu.max", dir);
	snprintf(outer, sizeof outer, "%s/cpu.max", dir);
	assert_true(cpu_quota(dir, "/a") == UINT_MAX);
	put_text(inner, "max 100000\n");
	assert_true(cpu_quota(dir, "/a") == UINT_MAX);
	put_text(outer, "250000 100000\n");
	assert_int_equal(cpu_quota(dir, "/a"), 3);
	assert_int_equal(cpu_quota(dir, "/"), 3);
	put_text(inner, "5000 100000\n");
	assert_int_equal(cpu_quota(dir, "/a"), 1);
	assert_int_equal(cpu_quota(dir, "/a/gone"), 1);
	assert_int_equal(folder_remove(dir), 0);
	assert_true(cpu_share() >= 1);
	if (cpu_count() > 0)
		assert_true(cpu_share() <= cpu_count());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_survive_a_round_trip),
		cmocka_unit_test(reader_past_its_end_returns_zeros),
		cmocka_unit_test(string_with_a_wrong_length_is_bad),
		cmocka_unit_test(full_writer_writes_nothing_more),
		cmocka_unit_test(names_are_escaped),
		cmocka_unit_test(escape_sequence_is_never_truncated),
		cmocka_unit_test(failure_keeps_its_message),
		cmocka_unit_test(long_failure_message_is_truncated),
		cmocka_unit_test(each_thread_has_its_own_failure),
		cmocka_unit_test(unknown_outcome_byte_is_a_protocol_failure),
		cmocka_unit_test(deadline_counts_down),
		cmocka_unit_test(pauses_double_up_to_a_bound),
		cmocka_unit_test(full_read_combines_short_reads),
		cmocka_unit_test(full_write_continues_after_short_writes),
		cmocka_unit_test(reads_and_writes_use_their_offset),
		cmocka_unit_test(descriptor_errors_are_returned),
		cmocka_unit_test(log_lines_are_whole_prefixed_and_escaped),
		cmocka_unit_test(log_sink_gets_the_text),
		cmocka_unit_test(timed_join_can_end_before_the_worker),
		cmocka_unit_test(workers_are_limited_to_the_slots),
		cmocka_unit_test(workers_block_all_signals_but_their_own),
		cmocka_unit_test(waking_a_worker_may_race_with_its_end),
		cmocka_unit_test(siphash_matches_the_reference_vectors),
		cmocka_unit_test(cancel_wakes_blocked_calls),
		cmocka_unit_test(full_eventfd_stays_readable),
		cmocka_unit_test(cgroup_quota_limits_the_processor_count),
		cmocka_unit_test(lost_wake_up_ends_the_process_with_a_message),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
