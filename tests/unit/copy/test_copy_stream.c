/* SPDX-License-Identifier: Apache-2.0 */
#include "copy_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/io.h"
#include "copy/io/digest.h"

enum { STUCK_S = 100, MANY = 3 * (1 << 20) + 12345 };

/* A thread that writes a file into a descriptor in given steps, or reads one into a file. */
struct pump {
	const char *file;
	int fd;
	size_t step;
	unsigned pause_us;
	bool failed;
	pthread_t thread;
};

static void *pump_in(void *arg)
{
	struct pump *p = arg;
	int from = open(p->file, O_RDONLY | O_CLOEXEC);
	uint8_t *buf = malloc(p->step);
	ssize_t n;

	while ((n = read_full(from, buf, p->step)) > 0 && !p->failed) {
		p->failed = write_full(p->fd, buf, (size_t)n) != 0;
		if (p->pause_us)
			usleep(p->pause_us);
	}
	free(buf);
	close(from);
	close(p->fd);
	return NULL;
}

static void *pump_out(void *arg)
{
	struct pump *p = arg;
	int to = open(p->file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	uint8_t *buf = malloc(p->step);
	ssize_t n;

	while ((n = read_full(p->fd, buf, p->step)) > 0 && !p->failed) {
		p->failed = write_full(to, buf, (size_t)n) != 0;
		if (p->pause_us)
			usleep(p->pause_us);
	}
	free(buf);
	close(to);
	close(p->fd);
	return NULL;
}

static int start_pump(struct pump *p, void *(*run)(void *), const char *file, size_t step,
		      unsigned pause_us)
{
	int fd[2];
	bool in = run == pump_in;

	if (pipe2(fd, O_CLOEXEC))
		return -1;
	*p = (struct pump){.file = file, .fd = fd[in], .step = step, .pause_us = pause_us};
	pthread_create(&p->thread, NULL, run, p);
	return fd[!in];
}

static void stream_rig(struct rig *r, int from, int to)
{
	rig_init(r);
	r->from.stream = (struct stream){.fd = from, .name = "stdin"};
	r->to.stream = (struct stream){.fd = to, .name = "stdout"};
	/* Then the target is a file. */
	if (to < 0) {
		r->to.target = "to";
		r->to.quiet_names = true;
	}
}

static void assert_copied(struct rig *r)
{
	if (rig_run(r) == 0)
		return;
	fail_msg("source %d: %s; sink %d: %s", r->source.rc, r->source.failure.text, r->sink.rc,
		 r->sink.failure.text);
}

static void assert_both_failed(const struct rig *r, enum outcome code, const char *part)
{
	if (!r->source.rc || !r->sink.rc || r->source.failure.code != code ||
	    r->sink.failure.code != code || !strstr(r->source.failure.text, part) ||
	    !strstr(r->sink.failure.text, part))
		fail_msg("source %d: %d %s; sink %d: %d %s", r->source.rc, r->source.failure.code,
			 r->source.failure.text, r->sink.rc, r->sink.failure.code,
			 r->sink.failure.text);
}

static void pipe_to_pipe(void **state)
{
	/* Of writer and reader; odd ones come out of step with cells and blocks. */
	static const struct {
		size_t in, out;
		unsigned pause_us;
		uint32_t block;
		uint16_t lanes;
	} table[] = {
		{65536, 65536, 0, 65536, 2},       {1000, 777, 0, 65536, 2},
		{100003, 4096, 0, CELL, 3},        {200000, 65536, 3000, CELL, 4},
		{1 << 20, 1 << 20, 0, 1 << 20, 2}, {99999, 12345, 500, 4096, 5},
		{1 << 20, 1 << 20, 0, 4096, 1},
	};
	struct pump in, out;
	struct rig r;

	(void)state;
	assert_int_equal(make_file("from", MANY, 1), 0);
	for (unsigned i = 0; i < sizeof table / sizeof *table; i++) {
		int from = start_pump(&in, pump_in, "from", table[i].in, table[i].pause_us);
		int to = start_pump(&out, pump_out, "to", table[i].out, 0);

		stream_rig(&r, from, to);
		r.to.stream.close_at_end = true;
		r.block_size = table[i].block;
		r.lanes = table[i].lanes;
		assert_copied(&r);
		close(from);
		pthread_join(in.thread, NULL);
		pthread_join(out.thread, NULL);
		assert_true(same_content("from", "to"));
		assert_int_equal(r.sink.result.total.bytes, MANY);
	}
}

/* Bytes that are made, and thrown away: with digests and without, whole blocks or not. */
static void memory_to_memory(void **state)
{
	static const uint64_t sizes[] = {1, 4096, CELL, MANY};

	(void)state;
	for (unsigned i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++) {
		struct rig r;

		stream_rig(&r, -1, -1);
		r.from.memory_bytes = sizes[i / 2];
		r.to.target = "no/such/place";
		r.to.discard = true;
		r.from.unchecked = r.to.unchecked = i & 1;
		assert_copied(&r);
		assert_int_equal(r.sink.result.total.bytes, sizes[i / 2]);
		assert_int_equal(r.sink.result.total.digest[0] == 0, i & 1);
	}
}

static void more_memory_than_there_can_be(void **state)
{
	struct rig r;

	(void)state;
	stream_rig(&r, -1, -1);
	r.from.memory_bytes = UINT64_MAX;
	r.to.discard = true;
	assert_int_equal(rig_run(&r), -1);
	assert_both_failed(&r, OUT_PROTOCOL, "more than the maximum file size");
}

/* The least that can be lent: whoever waits for his turn holds all that his lane has. */
static void order_with_one_block_a_lane(void **state)
{
	struct pump out;
	struct rig r;

	(void)state;
	assert_int_equal(make_file("from", MANY, 1), 0);
	for (uint16_t lanes = 1; lanes <= 8; lanes += 7) {
		int from = open("from", O_RDONLY | O_CLOEXEC);
		int to = start_pump(&out, pump_out, "to", 30000, 0);

		stream_rig(&r, from, to);
		r.to.stream.close_at_end = true;
		r.lanes = lanes;
		r.depth = 1;
		r.block_size = 4096;
		assert_copied(&r);
		close(from);
		pthread_join(out.thread, NULL);
		assert_true(same_content("from", "to"));
	}
}

static void stream_and_file_have_one_digest(void **state)
{
	struct pump in;
	char *name[] = {(char *)(uintptr_t) "from"};
	struct rig r, file;
	int from;

	(void)state;
	assert_int_equal(make_file("from", MANY, 1), 0);
	from = start_pump(&in, pump_in, "from", 54321, 200);
	stream_rig(&r, from, -1);
	assert_copied(&r);
	close(from);
	pthread_join(in.thread, NULL);
	assert_true(same_content("from", "to"));
	rig_init(&file);
	rig_names(&file, name, 1, "to2");
	assert_copied(&file);
	assert_memory_equal(r.sink.result.total.digest, file.sink.result.total.digest, 16);
}

static void an_empty_stream(void **state)
{
	struct pump in;
	struct rig r;
	struct stat st;
	int from;

	(void)state;
	assert_int_equal(make_text("from", ""), 0);
	from = start_pump(&in, pump_in, "from", 100, 0);
	stream_rig(&r, from, -1);
	assert_copied(&r);
	close(from);
	pthread_join(in.thread, NULL);
	assert_true(has_text("to", ""));
	assert_int_equal(stat("to", &st), 0);
	assert_int_equal(st.st_mode & 07777, 0644);
}

/* A line comes through before the next is written: nothing waits for a block to be full. */
static void slow_writers_are_not_held_back(void **state)
{
	int in[2], out[2];
	struct rig r;
	char buf[16];

	(void)state;
	assert_int_equal(pipe2(in, O_CLOEXEC) | pipe2(out, O_CLOEXEC), 0);
	stream_rig(&r, in[0], out[1]);
	r.to.stream.close_at_end = true;
	assert_int_equal(rig_start(&r), 0);
	for (int i = 0; i < 5; i++) {
		assert_int_equal(write(in[1], "line\n", 5), 5);
		assert_int_equal(read(out[0], buf, sizeof buf), 5);
	}
	close(in[1]);
	rig_join(&r);
	assert_int_equal(r.source.rc | r.sink.rc, 0);
	assert_int_equal(read(out[0], buf, sizeof buf), 0);
	close(in[0]);
	close(out[0]);
}

static void a_slow_reader_is_no_fault(void **state)
{
	struct pump out;
	struct rig r;
	int from, to;

	(void)state;
	assert_int_equal(make_file("from", MANY, 1), 0);
	from = open("from", O_RDONLY | O_CLOEXEC);
	to = start_pump(&out, pump_out, "to", 200000, 20000);
	stream_rig(&r, from, to);
	r.to.stream.close_at_end = true;
	assert_copied(&r);
	pthread_join(out.thread, NULL);
	assert_true(same_content("from", "to"));
	close(from);
}

static void regular_stdin_from_its_offset(void **state)
{
	struct rig r;
	int fd;

	(void)state;
	assert_int_equal(make_text("from", "skipped, copied"), 0);
	fd = open("from", O_RDONLY | O_CLOEXEC);
	assert_int_equal(lseek(fd, 9, SEEK_SET), 9);
	stream_rig(&r, fd, -1);
	assert_copied(&r);
	assert_true(has_text("to", "copied"));
	assert_int_equal(lseek(fd, 0, SEEK_CUR), 15);
	/* At the end there is nothing more, and no error. */
	stream_rig(&r, fd, -1);
	assert_copied(&r);
	assert_true(has_text("to", ""));
	close(fd);
}

static void regular_stdout_from_its_offset(void **state)
{
	struct rig r;
	int from, to;

	(void)state;
	assert_int_equal(make_text("from", "new") | make_text("to", "0123456789"), 0);
	from = open("from", O_RDONLY | O_CLOEXEC);
	to = open("to", O_WRONLY | O_CLOEXEC);
	assert_int_equal(lseek(to, 4, SEEK_SET), 4);
	stream_rig(&r, from, to);
	assert_copied(&r);
	assert_true(has_text("to", "0123new789"));
	assert_int_equal(lseek(to, 0, SEEK_CUR), 7);
	close(to);
	to = open("to", O_WRONLY | O_APPEND | O_CLOEXEC);
	lseek(from, 0, SEEK_SET);
	stream_rig(&r, from, to);
	assert_copied(&r);
	assert_true(has_text("to", "0123new789new"));
	close(from);
	close(to);
}

static void holes_are_zeros_in_a_pipe(void **state)
{
	struct pump out;
	struct rig r;
	int fd, to;

	(void)state;
	fd = open("from", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(ftruncate(fd, 5 << 20), 0);
	assert_int_equal(pwrite(fd, "x", 1, 2 << 20), 1);
	to = start_pump(&out, pump_out, "to", 65536, 0);
	stream_rig(&r, fd, to);
	r.to.stream.close_at_end = true;
	assert_copied(&r);
	pthread_join(out.thread, NULL);
	assert_true(same_content("from", "to"));
	close(fd);
}

static void holes_replace_what_was_in_stdout(void **state)
{
	struct rig r;
	int fd, to;

	(void)state;
	fd = open("from", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(ftruncate(fd, 3 << 20), 0);
	assert_int_equal(make_file("to", 3 << 20, 1), 0);
	to = open("to", O_WRONLY | O_CLOEXEC);
	stream_rig(&r, fd, to);
	assert_copied(&r);
	assert_true(same_content("from", "to"));
	close(fd);
	close(to);
}

/* ---- failures ------------------------------------------------------------------------ */

static int finish_badly(void *ctx)
{
	(void)ctx;
	/* cmocka has a macro of the name of fail(). */
	return fail_as(OUT_FILE, "command false: exit status 1");
}

static void a_producer_that_fails(void **state)
{
	struct pump in;
	struct rig r;
	int from;

	(void)state;
	assert_int_equal(make_file("from", MANY, 1) | make_text("to", "old"), 0);
	from = start_pump(&in, pump_in, "from", 65536, 0);
	stream_rig(&r, from, -1);
	r.from.stream.finish = finish_badly;
	assert_int_equal(rig_run(&r), -1);
	close(from);
	pthread_join(in.thread, NULL);
	assert_both_failed(&r, OUT_FILE, "command false: exit status 1");
	assert_true(has_text("to", "old"));
	assert_int_equal(count_files(".sluice"), 0);
}

static void a_consumer_that_fails(void **state)
{
	struct pump out;
	struct rig r;
	int from, to;

	(void)state;
	assert_int_equal(make_file("from", MANY, 1), 0);
	from = open("from", O_RDONLY | O_CLOEXEC);
	to = start_pump(&out, pump_out, "to", 65536, 0);
	stream_rig(&r, from, to);
	r.to.stream.close_at_end = true;
	r.to.stream.finish = finish_badly;
	assert_int_equal(rig_run(&r), -1);
	pthread_join(out.thread, NULL);
	assert_both_failed(&r, OUT_FILE, "command false: exit status 1");
	close(from);
}

/* The consumer dies; the producer says nothing more and does not end either. */
static void a_consumer_that_dies(void **state)
{
	int in[2], out[2];
	struct rig r;

	(void)state;
	assert_int_equal(pipe2(in, O_CLOEXEC) | pipe2(out, O_CLOEXEC), 0);
	close(out[0]);
	assert_int_equal(write(in[1], "line\n", 5), 5);
	stream_rig(&r, in[0], out[1]);
	assert_int_equal(rig_run(&r), -1);
	assert_both_failed(&r, OUT_FILE, "write stdout: Broken pipe");
	close(in[0]);
	close(in[1]);
	close(out[1]);
}

/* Threads blocked in read and write find out when the peer is lost. */
static void a_lost_peer_ends_blocked_calls(void **state)
{
	int in[2], out[2];
	struct rig r;

	(void)state;
	assert_int_equal(pipe2(in, O_CLOEXEC) | pipe2(out, O_CLOEXEC), 0);
	stream_rig(&r, in[0], out[1]);
	assert_int_equal(rig_start(&r), 0);
	usleep(100000);
	rig_cut(&r);
	rig_join(&r);
	assert_int_equal(r.source.failure.code, OUT_PEER_LOST);
	assert_int_equal(r.sink.failure.code, OUT_PEER_LOST);
	close(in[0]);
	close(in[1]);

	/* Now the sink's pipe is full. */
	in[0] = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	stream_rig(&r, in[0], out[1]);
	assert_int_equal(rig_start(&r), 0);
	while (!atomic_load(&r.sink.tally.bytes))
		usleep(1000);
	usleep(100000);
	rig_cut(&r);
	rig_join(&r);
	assert_int_equal(r.source.failure.code, OUT_PEER_LOST);
	assert_int_equal(r.sink.failure.code, OUT_PEER_LOST);
	close(in[0]);
	close(out[0]);
	close(out[1]);
}

static void a_stream_into_a_directory(void **state)
{
	struct rig r;
	int fd;

	(void)state;
	assert_int_equal(make_text("from", "x") | mkdir("to", 0755), 0);
	fd = open("from", O_RDONLY | O_CLOEXEC);
	stream_rig(&r, fd, -1);
	assert_int_equal(rig_run(&r), -1);
	assert_both_failed(&r, OUT_FILE, "to is a directory");
	close(fd);
}

static int sync_error;

/* In the place of the C library's. */
int fsync(int fd)
{
	errno = sync_error;
	return sync_error ? -1 : (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
	errno = sync_error;
	return sync_error ? -1 : (int)syscall(SYS_fdatasync, fd);
}

/* why: of the failure, NULL: none. */
static void expect_synced(const char *stdout_is, bool verify, const char *why)
{
	int from = open("from", O_RDONLY | O_CLOEXEC), to = -1;
	struct rules rules = RULES_PLAIN;
	struct rig r;

	if (stdout_is)
		to = open(stdout_is, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	stream_rig(&r, from, to);
	rules.fsync = !verify;
	rules.verify = verify;
	r.to.rules = &rules;
	if (!why) {
		assert_copied(&r);
	} else {
		assert_int_equal(rig_run(&r), -1);
		assert_both_failed(&r, OUT_FILE, why);
	}
	close_fd(to);
	close(from);
}

/* Which is what fsync says of a file system that gave up writing. */
static void a_disk_that_turns_read_only(void **state)
{
	(void)state;
	assert_int_equal(make_file("from", MANY, 1), 0);
	sync_error = EROFS;
	expect_synced("to", false, "Read-only file system");
	expect_synced(NULL, false, "Read-only file system");
	expect_synced(NULL, true, "Read-only file system");
	/* A device has nothing to sync; a regular file is on the disk or not. */
	sync_error = EINVAL;
	expect_synced("/dev/null", false, NULL);
	expect_synced("to", false, "Invalid argument");
	sync_error = 0;
	expect_synced("to", false, NULL);
	expect_synced(NULL, true, NULL);
}

#define copy_test(f) cmocka_unit_test_setup_teardown(f, folder_enter, folder_leave)

int main(void)
{
	const struct CMUnitTest tests[] = {
		copy_test(pipe_to_pipe),
		copy_test(memory_to_memory),
		copy_test(more_memory_than_there_can_be),
		copy_test(order_with_one_block_a_lane),
		copy_test(stream_and_file_have_one_digest),
		copy_test(an_empty_stream),
		copy_test(slow_writers_are_not_held_back),
		copy_test(a_slow_reader_is_no_fault),
		copy_test(regular_stdin_from_its_offset),
		copy_test(regular_stdout_from_its_offset),
		copy_test(holes_are_zeros_in_a_pipe),
		copy_test(holes_replace_what_was_in_stdout),
		copy_test(a_producer_that_fails),
		copy_test(a_consumer_that_fails),
		copy_test(a_consumer_that_dies),
		copy_test(a_lost_peer_ends_blocked_calls),
		copy_test(a_stream_into_a_directory),
		copy_test(a_disk_that_turns_read_only),
	};

	signal(SIGPIPE, SIG_IGN);
	alarm(STUCK_S);
	return cmocka_run_group_tests_name("copy_stream", tests, NULL, NULL);
}
