/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of several users in a file. */
#include "base/fail.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/io.h"
#include "base/text_file.h"
#include "folder.h"
#include "session/channel/key_ring.h"

#define KEY "sluice-key-1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

static bool no_memory;

void *__wrap_calloc(size_t n, size_t size);
void *__real_calloc(size_t n, size_t size);

void *__wrap_calloc(size_t n, size_t size)
{
	errno = ENOMEM;
	return no_memory ? NULL : __real_calloc(n, size);
}

static void put(const char *text)
{
	int fd = open("keys", O_WRONLY | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write_full(fd, text, strlen(text)), 0);
	close(fd);
}

static void refused(const char *text, const char *why)
{
	struct key_ring r = {NULL, 0, 0};

	put(text);
	fail_clear();
	assert_int_equal(key_ring_read(&r, "keys"), -1);
	assert_int_equal(failed()->code, OUT_USAGE);
	if (!strstr(failed()->text, why))
		fail_msg("%s: %s", text, failed()->text);
	if (strstr(failed()->text, "0001020304"))
		fail_msg("prints the key: %s", failed()->text);
	key_ring_wipe(&r);
}

static void keys_are_read(void **state)
{
	struct key_ring r = {NULL, 0, 0};
	struct psk key;

	(void)state;
	put("# keys\n\nalice:" KEY "\r\nb.o-b_2:" KEY);
	assert_int_equal(key_ring_read(&r, "keys"), 0);
	assert_int_equal(r.count, 2);
	assert_int_equal(key_ring_find(&r, "b.o-b_2", &key), 0);
	assert_int_equal(key.bytes[31], 31);
	assert_int_equal(key_ring_find(&r, "bob", &key), -1);
	assert_int_equal(key_ring_find(&r, "-", &key), -1);
	assert_int_equal(key_ring_find(&r, "", &key), -1);
	key_ring_wipe(&r);
	assert_int_equal(key_ring_find(&r, "alice", &key), -1);
}

static void malformed_lines_are_named(void **state)
{
	char longest[2 * KEY_LINE_MAX];

	(void)state;
	refused("alice\n", "line 1: expected USER:KEY");
	refused(KEY "\n", "line 1: the key is not one");
	refused("\n:" KEY "\n", "line 2: expected USER:KEY");
	refused("-:" KEY "\n", "line 1: expected USER:KEY");
	refused("a b:" KEY "\n", "line 1: expected USER:KEY");
	refused("a/b:" KEY "\n", "line 1: expected USER:KEY");
	refused("a:secret\n", "line 1: the key is not one from --make-key");
	refused("a:" KEY "0\n", "line 1: the key is not one");
	refused("a:" KEY "\na:" KEY "\n", "line 2: this user has a key already");
	memset(longest, 'a', sizeof longest);
	longest[sizeof longest - 1] = '\0';
	refused(longest, "line 1: the line is too long");
	longest[USER_NAME_MAX] = ':';
	longest[USER_NAME_MAX + 1] = '\0';
	refused(longest, "line 1: expected USER:KEY");
}

static void files_of_others_are_refused(void **state)
{
	struct key_ring r = {NULL, 0, 0};

	(void)state;
	put("alice:" KEY "\n");
	assert_int_equal(chmod("keys", 0640), 0);
	assert_int_equal(key_ring_read(&r, "keys"), -1);
	assert_non_null(strstr(failed()->text, "chmod 600"));
	assert_int_equal(key_ring_read(&r, "."), -1);
	assert_int_equal(key_ring_read(&r, "none"), -1);
	assert_int_equal(failed()->code, OUT_FILE);
}

static void keys_are_made_for_users(void **state)
{
	struct key_ring r = {NULL, 0, 0};
	char alice[KEY_LINE_MAX], bob[KEY_LINE_MAX];
	struct psk made, read;
	struct stat st;

	(void)state;
	assert_int_equal(key_ring_make("keys", "alice", alice), 0);
	assert_int_equal(stat("keys", &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	/* An editor removed the last newline. */
	assert_int_equal(truncate("keys", st.st_size - 1), 0);
	assert_int_equal(key_ring_make("keys", "bob", bob), 0);
	assert_string_not_equal(alice, bob);
	assert_int_equal(key_ring_read(&r, "keys"), 0);
	assert_int_equal(r.count, 2);
	assert_int_equal(psk_from_made_text(bob, strlen(bob), &made), 0);
	assert_int_equal(key_ring_find(&r, "bob", &read), 0);
	assert_memory_equal(&made, &read, sizeof made);
	key_ring_wipe(&r);
	assert_int_equal(key_ring_make("keys", "alice", alice), -1);
	assert_non_null(strstr(failed()->text, "has a key already"));
	assert_int_equal(key_ring_make("keys", "-", alice), -1);
	assert_int_equal(key_ring_make("keys", "a:b", alice), -1);
	assert_int_equal(key_ring_make("keys", "", alice), -1);
}

static void many_keys_fit(void **state)
{
	static char text[TEXT_FILE_MAX];
	struct key_ring r = {NULL, 0, 0};
	struct psk key;
	size_t len = 0;

	(void)state;
	for (unsigned i = 0; i < KEY_RING_MAX; i++)
		len += (size_t)snprintf(text + len, sizeof text - len, "u%u:%.*s%02x\n", i,
					(int)strlen(KEY) - 2, KEY, i & 0xff);
	put(text);
	assert_int_equal(key_ring_read(&r, "keys"), 0);
	assert_int_equal(r.count, KEY_RING_MAX);
	assert_int_equal(key_ring_find(&r, "u77", &key), 0);
	assert_int_equal(key.bytes[31], 77);
	key_ring_wipe(&r);
	snprintf(text + len, sizeof text - len, "one-more:" KEY "\n");
	refused(text, "keys, line 4097: too many keys");
}

static void lack_of_memory_is_no_mistake_in_the_file(void **state)
{
	struct key_ring r = {NULL, 0, 0};

	(void)state;
	put("alice:" KEY "\n");
	no_memory = true;
	assert_int_equal(key_ring_read(&r, "keys"), -1);
	no_memory = false;
	assert_int_equal(failed()->code, OUT_MEMORY);
	assert_string_equal(failed()->text, "store the keys: Cannot allocate memory");
	key_ring_wipe(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(keys_are_read, folder_enter, folder_leave),
		cmocka_unit_test_setup_teardown(malformed_lines_are_named, folder_enter,
						folder_leave),
		cmocka_unit_test_setup_teardown(files_of_others_are_refused, folder_enter,
						folder_leave),
		cmocka_unit_test_setup_teardown(keys_are_made_for_users, folder_enter,
						folder_leave),
		cmocka_unit_test(many_keys_fit),
		cmocka_unit_test_setup_teardown(lack_of_memory_is_no_mistake_in_the_file,
						folder_enter, folder_leave),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
