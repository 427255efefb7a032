/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>
#include "copy/io/direct.h"
#include "copy/io/writeback.h"

/* On a disk, which /tmp need not be on. */
enum { SIZE = (8 << 20) + 12345, NOBODY = 65534, BEHIND = 64 << 20, PIECE = 256 << 10 };

static uint8_t *bytes, *room;

static int make_bytes(void **state)
{
	size_t whole = (SIZE + DIRECT_ALIGN) / DIRECT_ALIGN * DIRECT_ALIGN;
	uint32_t x = 1;

	(void)state;
	bytes = aligned_alloc(DIRECT_ALIGN, whole);
	room = aligned_alloc(DIRECT_ALIGN, whole);
	if (!bytes || !room)
		return -1;
	for (size_t i = 0; i < SIZE; i++) {
		x = x * 1664525 + 1013904223;
		bytes[i] = (uint8_t)(x >> 24);
	}
	return 0;
}

static int free_bytes(void **state)
{
	(void)state;
	free(bytes);
	free(room);
	return 0;
}

/* A file that is already unlinked. */
static int make_file(size_t len)
{
	char name[] = "/var/tmp/sluice-direct-XXXXXX";
	int fd = mkstemp(name);

	assert_true(fd >= 0);
	assert_int_equal(unlink(name), 0);
	assert_int_equal(pwrite(fd, bytes, len, 0), (ssize_t)len);
	return fd;
}

/* Pages may be busy for a moment. */
static unsigned evict(int fd)
{
	unsigned left = 100;

	for (int i = 0; left > 0 && i < 20; i++) {
		assert_int_equal(fsync(fd), 0);
		assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
		left = direct_resident_percent(fd, 0, SIZE);
		if (left > 0)
			usleep(50000);
	}
	return left;
}

/* ---- what is resident ------------------------------------------------------------------ */

static void test_kernel_reports_resident_pages(void **state)
{
	int fd = make_file(SIZE);

	(void)state;
	if (!direct_suits(fd))
		skip();
	assert_int_equal(direct_resident_percent(fd, 0, SIZE), 100);
	assert_int_equal(evict(fd), 0);
	/* Random access turns readahead off. */
	posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
	assert_int_equal(pread(fd, room, SIZE / 2, 0), SIZE / 2);
	assert_in_range(direct_resident_percent(fd, 0, SIZE), 40, 60);
	assert_in_range(direct_resident_percent(fd, 0, SIZE / 2), 98, 100);
	assert_int_equal(direct_resident_percent(fd, SIZE / 2 + (1 << 20), 1 << 20), 0);
	close(fd);
}

static int look_as_nobody(int fd)
{
	if (setuid(NOBODY))
		return 1;
	if (direct_resident_percent(fd, 0, SIZE) < 95)
		return 2;
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	return direct_resident_percent(fd, 0, SIZE) > 30 ? 3 : 0;
}

/* The kernel does not report residency to other users: reading without waiting is tried instead. */
static void test_other_users_detect_resident_pages(void **state)
{
	char path[40];
	int fd = make_file(SIZE), reader, status;
	pid_t child;

	(void)state;
	if (getuid() != 0 || !direct_suits(fd))
		skip();
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	reader = open(path, O_RDONLY);
	assert_true(reader >= 0);
	assert_int_equal(fsync(fd), 0);
	close(fd);
	child = fork();
	assert_true(child >= 0);
	if (child == 0)
		_exit(look_as_nobody(reader));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	close(reader);
}

/* ---- reading and writing --------------------------------------------------------------- */

static const size_t lengths[] = {1,    511,    512,    513,          4095,     4096,
				 4097, 262143, 262144, 262144 + 513, SIZE - 1, SIZE};

static void test_files_of_every_length_are_read(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
		int fd = make_file(lengths[i]);
		struct direct_file *d = direct_open(fd, O_RDONLY);

		if (!d)
			skip();
		memset(room, 0, lengths[i]);
		assert_int_equal(direct_read(d, fd, room, lengths[i], 0), lengths[i]);
		assert_memory_equal(room, bytes, lengths[i]);
		/* One byte more is not there. */
		assert_int_equal(direct_read(d, fd, room, lengths[i] + 1, 0), lengths[i]);
		assert_false(d->refused);
		direct_close(d);
		close(fd);
	}
}

static void test_unaligned_reads_use_the_page_cache(void **state)
{
	int fd = make_file(SIZE);
	struct direct_file *d = direct_open(fd, O_RDWR);

	(void)state;
	if (!d)
		skip();
	assert_int_equal(direct_read(d, fd, room, 10000, 1), 10000);
	assert_memory_equal(room, bytes + 1, 10000);
	assert_int_equal(direct_read(d, fd, room + 1, 10000, 4096), 10000);
	assert_memory_equal(room + 1, bytes + 4096, 10000);
	assert_int_equal(direct_write(d, bytes, 8192, 512), 0);
	assert_int_equal(direct_write(d, bytes + 1, 8192, 4096), 0);
	assert_int_equal(direct_write(d, bytes, 4095, 4096), 0);
	assert_int_equal(direct_write(NULL, bytes, 8192, 4096), 0);
	direct_close(d);
	close(fd);
}

static void test_only_whole_pages_are_written_directly(void **state)
{
	int fd = make_file(1);
	struct direct_file *d = direct_open(fd, O_WRONLY);

	(void)state;
	if (!d)
		skip();
	assert_int_equal(direct_write(d, bytes, SIZE, 0), SIZE - SIZE % DIRECT_ALIGN);
	assert_int_equal(pread(fd, room, SIZE, 0), SIZE - SIZE % DIRECT_ALIGN);
	assert_memory_equal(room, bytes, SIZE - SIZE % DIRECT_ALIGN);
	direct_close(d);
	close(fd);
}

static void test_several_buffers_are_read_at_once(void **state)
{
	enum { EACH = 1 << 20, COUNT = 4 };
	int fd = make_file(3 * EACH + 100);
	struct direct_file *d = direct_open(fd, O_RDONLY);
	struct iovec to[COUNT];

	(void)state;
	if (!d)
		skip();
	/* At any position. */
	for (int i = 0; i < COUNT; i++)
		to[i] = (struct iovec){room + (size_t)(COUNT - 1 - i) * EACH, EACH};
	assert_int_equal(direct_read_many(d, to, COUNT, 0), 3 * EACH + 100);
	for (int i = 0; i < COUNT; i++)
		assert_memory_equal(to[i].iov_base, bytes + (size_t)i * EACH, i < 3 ? EACH : 100);
	assert_int_equal(direct_read_many(d, to, COUNT, 512), 0);
	assert_int_equal(direct_read_many(NULL, to, COUNT, 0), 0);
	direct_close(d);
	close(fd);
}

static void test_disk_failure_is_not_taken_for_lack_of_support(void **state)
{
	struct direct_file d = {.fd = -1};

	(void)state;
	assert_int_equal(direct_write(&d, bytes, 4096, 0), -1);
	assert_int_equal(errno, EBADF);
	assert_false(d.refused);
}

/* ---- writing back ---------------------------------------------------------------------- */

struct range {
	uint64_t pos, len;
};
struct cached {
	uint64_t pages, dirty, writeback, evicted, recently_evicted;
};

static bool is_dirty(int fd, uint64_t pos, uint64_t len)
{
	enum { CACHESTAT = 451 };
	struct range r = {pos, len};
	struct cached c = {.dirty = 0};

	return syscall(CACHESTAT, fd, &r, &c, 0) == 0 && c.dirty + c.writeback > 0;
}

static void write_stretches(struct writeback *w, int fd, uint64_t size)
{
	for (uint64_t pos = 0; pos < size; pos += PIECE) {
		assert_int_equal(pwrite(fd, bytes, PIECE, (off_t)pos), PIECE);
		assert_int_equal(writeback_after_write(w, fd, pos, PIECE), 0);
	}
}

static void test_dirty_pages_do_not_pile_up(void **state)
{
	int fd = make_file(1);
	struct writeback w;

	(void)state;
	if (!writeback_suits(fd))
		skip();
	writeback_begin(&w, true);
	write_stretches(&w, fd, BEHIND + (24 << 20));
	assert_false(is_dirty(fd, 0, 8 << 20));
	assert_int_equal(writeback_finish(&w, fd, BEHIND + (24 << 20)), 0);
	close(fd);
}

static void test_little_data_is_left_to_the_kernel(void **state)
{
	struct writeback w;
	int fd = make_file(1);

	(void)state;
	writeback_begin(&w, false);
	assert_in_range(w.slack, 1 << 20, UINT64_C(2) << 30);
	write_stretches(&w, fd, 16 << 20);
	assert_int_equal(w.written, 16 << 20);
	close(fd);
}

static int said_of_the_disk;

/* Replaces the C library's function. */
int sync_file_range(int fd, off_t pos, off_t len, unsigned how)
{
	if (!said_of_the_disk)
		return (int)syscall(SYS_sync_file_range, fd, pos, len, how);
	errno = said_of_the_disk;
	return -1;
}

/* The kernel reports a write-back error once; fsync(2) does not report it again. */
static void test_write_back_error_is_not_lost(void **state)
{
	static const int of_the_disk[] = {EIO, ENOSPC, EDQUOT, ESTALE, ETIMEDOUT, EROFS, EREMOTEIO};
	static const int of_the_call[] = {ENOSYS, EINVAL, EOPNOTSUPP, ESPIPE, EPERM};
	int fd = make_file(1);
	struct writeback w;

	(void)state;
	writeback_begin(&w, true);
	for (size_t i = 0; i < sizeof of_the_disk / sizeof *of_the_disk; i++) {
		said_of_the_disk = of_the_disk[i];
		assert_int_equal(writeback_after_write(&w, fd, BEHIND, 8 << 20), -1);
		assert_int_equal(errno, of_the_disk[i]);
		assert_int_equal(writeback_finish(&w, fd, BEHIND), -1);
	}
	for (size_t i = 0; i < sizeof of_the_call / sizeof *of_the_call; i++) {
		said_of_the_disk = of_the_call[i];
		assert_int_equal(writeback_after_write(&w, fd, BEHIND, 8 << 20), 0);
		assert_int_equal(writeback_finish(&w, fd, BEHIND), 0);
	}
	said_of_the_disk = 0;
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kernel_reports_resident_pages),
		cmocka_unit_test(test_other_users_detect_resident_pages),
		cmocka_unit_test(test_files_of_every_length_are_read),
		cmocka_unit_test(test_unaligned_reads_use_the_page_cache),
		cmocka_unit_test(test_only_whole_pages_are_written_directly),
		cmocka_unit_test(test_several_buffers_are_read_at_once),
		cmocka_unit_test(test_disk_failure_is_not_taken_for_lack_of_support),
		cmocka_unit_test(test_dirty_pages_do_not_pile_up),
		cmocka_unit_test(test_little_data_is_left_to_the_kernel),
		cmocka_unit_test(test_write_back_error_is_not_lost),
	};

	return cmocka_run_group_tests(tests, make_bytes, free_bytes);
}
