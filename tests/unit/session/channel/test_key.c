/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include "folder.h"
#include "session/channel/key.h"

/* scrypt("correct horse", "sluice typed key v1", N=32768, r=8, p=1) as Python's hashlib has it. */
static const uint8_t correct_horse[PSK_SIZE] = {
	0x53, 0x9b, 0xcd, 0xe8, 0x67, 0xcf, 0x95, 0x4d, 0xb6, 0x98, 0xa2,
	0xc1, 0xa0, 0x71, 0x20, 0x40, 0x3e, 0x6e, 0x81, 0x7f, 0x43, 0xf5,
	0x0b, 0x7b, 0xc1, 0x69, 0x8c, 0x12, 0x30, 0xa9, 0xd2, 0xe1,
};

static int make(const char *name, const void *text, size_t len, mode_t mode)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	bool ok = fd >= 0 && write(fd, text, len) == (ssize_t)len && fchmod(fd, mode) == 0;

	close(fd);
	return ok ? 0 : -1;
}

static void a_typed_key_is_stretched(void **state)
{
	struct psk k;

	(void)state;
	assert_int_equal(psk_from_text("correct horse", 13, &k), 0);
	assert_memory_equal(k.bytes, correct_horse, PSK_SIZE);
	assert_int_equal(psk_from_text("correct horse ", 14, &k), 0);
	assert_memory_not_equal(k.bytes, correct_horse, PSK_SIZE);
	psk_wipe(&k);
	for (unsigned i = 0; i < PSK_SIZE; i++)
		assert_int_equal(k.bytes[i], 0);
}

static void a_made_key_is_used_as_it_is(void **state)
{
	const char *text = "sluice-key-1:000102030405060708090a0b0c0d0e0f"
			   "F0F1F2F3F4F5F6F7F8F9FAFBFCFDFEFF";
	struct psk k;

	(void)state;
	assert_int_equal(psk_from_text(text, strlen(text), &k), 0);
	for (unsigned i = 0; i < PSK_SIZE / 2; i++) {
		assert_int_equal(k.bytes[i], i);
		assert_int_equal(k.bytes[i + 16], 0xf0 + i);
	}
}

static void a_damaged_made_key_is_not_a_typed_one(void **state)
{
	static const char *const damaged[] = {
		"sluice-key-1:",
		"sluice-key-1:000102030405060708090a0b0c0d0e0f000102030405060708090a0b0c0d0e0",
		"sluice-key-1:000102030405060708090a0b0c0d0e0f000102030405060708090a0b0c0d0e0f0",
		"sluice-key-1:000102030405060708090a0b0c0d0e0f000102030405060708090a0b0c0d0e0g",
		"sluice-key-1:/00102030405060708090a0b0c0d0e0f000102030405060708090a0b0c0d0e0f",
	};
	struct psk k;

	(void)state;
	for (unsigned i = 0; i < sizeof damaged / sizeof *damaged; i++) {
		fail_clear();
		assert_int_equal(psk_from_text(damaged[i], strlen(damaged[i]), &k), -1);
		assert_int_equal(failed()->code, OUT_USAGE);
		assert_non_null(strstr(failed()->text, "damaged"));
	}
}

static void a_key_has_a_size(void **state)
{
	char long_text[KEY_TEXT_MAX + 1];
	struct psk k;

	(void)state;
	memset(long_text, 'x', sizeof long_text);
	assert_int_equal(psk_from_text("", 0, &k), -1);
	assert_int_equal(failed()->code, OUT_USAGE);
	assert_int_equal(psk_from_text(long_text, KEY_TEXT_MAX, &k), 0);
	fail_clear();
	assert_int_equal(psk_from_text(long_text, KEY_TEXT_MAX + 1, &k), -1);
	assert_int_equal(failed()->code, OUT_USAGE);
}

static void a_line_end_is_not_of_the_key(void **state)
{
	static const char *const texts[] = {"correct horse", "correct horse\n",
					    "correct horse\r\n"};
	struct psk k;

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(make("key", texts[i], strlen(texts[i]), 0600), 0);
		assert_int_equal(psk_from_file("key", &k), 0);
		assert_memory_equal(k.bytes, correct_horse, PSK_SIZE);
	}
	assert_int_equal(make("key", "\n", 1, 0600), 0);
	assert_int_equal(psk_from_file("key", &k), -1);
	assert_int_equal(failed()->code, OUT_USAGE);
}

static void a_key_file_is_its_owners_only(void **state)
{
	static const mode_t open_modes[] = {0640, 0604, 0610, 0602, 0666, 0777};
	struct psk k;

	(void)state;
	for (unsigned i = 0; i < sizeof open_modes / sizeof *open_modes; i++) {
		assert_int_equal(make("key", "x", 1, open_modes[i]), 0);
		fail_clear();
		assert_int_equal(psk_from_file("key", &k), -1);
		assert_int_equal(failed()->code, OUT_USAGE);
		assert_string_equal(failed()->text,
				    "key file key is open to others: chmod 600 key");
	}
	assert_int_equal(make("key", "x", 1, 0400), 0);
	assert_int_equal(psk_from_file("key", &k), 0);
	if (geteuid() == 0) {
		assert_int_equal(chown("key", 65534, 65534), 0);
		assert_int_equal(psk_from_file("key", &k), -1);
		assert_int_equal(failed()->code, OUT_USAGE);
		assert_non_null(strstr(failed()->text, "another user"));
	}
	remove("key");
}

static void only_a_regular_file_is_a_key_file(void **state)
{
	struct psk k;

	(void)state;
	assert_int_equal(mkfifo("fifo", 0600), 0);
	assert_int_equal(psk_from_file("fifo", &k), -1);
	assert_int_equal(failed()->code, OUT_USAGE);
	assert_int_equal(mkdir("dir", 0700), 0);
	assert_int_equal(psk_from_file("dir", &k), -1);
	assert_int_equal(failed()->code, OUT_USAGE);
	assert_int_equal(psk_from_file("missing", &k), -1);
	assert_int_equal(failed()->code, OUT_FILE);
	assert_string_equal(failed()->text, "open key file missing: No such file or directory");
	/* The user named it, so it is followed; what it leads to is checked. */
	assert_int_equal(make("other", "correct horse", 13, 0600), 0);
	assert_int_equal(symlink("other", "link"), 0);
	assert_int_equal(psk_from_file("link", &k), 0);
	assert_memory_equal(k.bytes, correct_horse, PSK_SIZE);
}

static void a_long_file_is_not_read_whole(void **state)
{
	static char text[KEY_TEXT_MAX + 3];
	struct psk k;

	(void)state;
	memset(text, 'x', sizeof text);
	assert_int_equal(make("key", text, sizeof text, 0600), 0);
	assert_int_equal(psk_from_file("key", &k), -1);
	assert_int_equal(failed()->code, OUT_USAGE);
	text[KEY_TEXT_MAX] = '\n';
	assert_int_equal(make("key", text, KEY_TEXT_MAX + 1, 0600), 0);
	assert_int_equal(psk_from_file("key", &k), 0);
}

static void a_key_comes_through_a_pipe(void **state)
{
	struct psk k;
	int p[2];

	(void)state;
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	assert_int_equal(write(p[1], "correct ", 8), 8);
	assert_int_equal(write(p[1], "horse\n", 6), 6);
	close(p[1]);
	assert_int_equal(psk_from_fd(p[0], &k), 0);
	assert_memory_equal(k.bytes, correct_horse, PSK_SIZE);
	/* It stays open: at its end. */
	assert_int_equal(read(p[0], &k, 1), 0);
	close(p[0]);
	assert_int_equal(psk_from_fd(p[0], &k), -1);
	assert_int_equal(failed()->code, OUT_FILE);
}

static void a_key_file_is_made_once(void **state)
{
	struct psk first, second;
	mode_t mask = umask(0);
	struct stat st;

	(void)state;
	remove("key");
	remove("other");
	assert_int_equal(psk_make_file("key"), 0);
	assert_int_equal(psk_make_file("other"), 0);
	umask(mask);
	assert_int_equal(stat("key", &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(st.st_size, 13 + 64 + 1);
	assert_int_equal(psk_from_file("key", &first), 0);
	assert_int_equal(psk_from_file("other", &second), 0);
	assert_memory_not_equal(&first, &second, sizeof first);
	assert_int_equal(psk_make_file("key"), -1);
	assert_int_equal(failed()->code, OUT_FILE);
	assert_int_equal(psk_from_file("key", &second), 0);
	assert_memory_equal(&first, &second, sizeof first);
}

#if defined(__has_feature)
#define SANITIZED                                                                                  \
	(__has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                    \
	 __has_feature(memory_sanitizer))
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#else
#define SANITIZED false
#endif

/* KiB in memory now. */
static long resident(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	long size = 0, rss = 0;

	if (!f || fscanf(f, "%ld %ld", &size, &rss) != 2)
		rss = -1;
	if (f)
		fclose(f);
	return rss * (sysconf(_SC_PAGESIZE) / 1024);
}

static void stretching_gives_its_memory_back(void **state)
{
	struct psk k;
	long before, after;

	(void)state;
	assert_int_equal(psk_from_text("warm", 4, &k), 0);
	before = resident();
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(psk_from_text("again", 5, &k), 0);
	after = resident();
	assert_true(before > 0 && after > 0);
	/* A sanitizer keeps what was freed. */
	if (SANITIZED)
		return;
	assert_true(after < 16 << 10);
	assert_true(after - before < 4 << 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_typed_key_is_stretched),
		cmocka_unit_test(a_made_key_is_used_as_it_is),
		cmocka_unit_test(a_damaged_made_key_is_not_a_typed_one),
		cmocka_unit_test(a_key_has_a_size),
		cmocka_unit_test(a_line_end_is_not_of_the_key),
		cmocka_unit_test(a_key_file_is_its_owners_only),
		cmocka_unit_test(only_a_regular_file_is_a_key_file),
		cmocka_unit_test(a_long_file_is_not_read_whole),
		cmocka_unit_test(a_key_comes_through_a_pipe),
		cmocka_unit_test(a_key_file_is_made_once),
		cmocka_unit_test(stretching_gives_its_memory_back),
	};

	return cmocka_run_group_tests(tests, folder_enter, folder_leave);
}
