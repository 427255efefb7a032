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

/*
 * scrypt("correct horse", "sluice typed key v1", N=32768, r=8, p=1), computed with Python's
 * hashlib.
 */
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

static void typed_key_is_stretched(void **state)
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

static void generated_key_is_used_as_is(void **state)
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

static void damaged_generated_key_is_refused(void **state)
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

static void key_size_is_bounded(void **state)
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

static void line_end_is_stripped_from_the_key(void **state)
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

static void key_file_must_be_private_to_its_owner(void **state)
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
				    "key file key is accessible to other users: chmod 600 key");
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

static void key_file_must_be_a_regular_file(void **state)
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
	/* A symlink that the user named is followed, and its target is checked. */
	assert_int_equal(make("other", "correct horse", 13, 0600), 0);
	assert_int_equal(symlink("other", "link"), 0);
	assert_int_equal(psk_from_file("link", &k), 0);
	assert_memory_equal(k.bytes, correct_horse, PSK_SIZE);
}

static void long_file_is_not_read_completely(void **state)
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

static void key_is_read_from_a_pipe(void **state)
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
	/* The descriptor stays open, at end of file. */
	assert_int_equal(read(p[0], &k, 1), 0);
	close(p[0]);
	assert_int_equal(psk_from_fd(p[0], &k), -1);
	assert_int_equal(failed()->code, OUT_FILE);
}

static void existing_key_file_is_not_overwritten(void **state)
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

/* Resident memory in KiB. */
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

static void stretching_releases_its_memory(void **state)
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
	/* Sanitizers keep freed memory. */
	if (SANITIZED)
		return;
	assert_true(after < 16 << 10);
	assert_true(after - before < 4 << 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(typed_key_is_stretched),
		cmocka_unit_test(generated_key_is_used_as_is),
		cmocka_unit_test(damaged_generated_key_is_refused),
		cmocka_unit_test(key_size_is_bounded),
		cmocka_unit_test(line_end_is_stripped_from_the_key),
		cmocka_unit_test(key_file_must_be_private_to_its_owner),
		cmocka_unit_test(key_file_must_be_a_regular_file),
		cmocka_unit_test(long_file_is_not_read_completely),
		cmocka_unit_test(key_is_read_from_a_pipe),
		cmocka_unit_test(existing_key_file_is_not_overwritten),
		cmocka_unit_test(stretching_releases_its_memory),
	};

	return cmocka_run_group_tests(tests, folder_enter, folder_leave);
}
