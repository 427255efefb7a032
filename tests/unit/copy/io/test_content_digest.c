/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#undef fail
#include <xxhash.h>
#include "base/fail.h"
#include "copy/io/content_digest.h"

/* More than one piece, the last one partial. */
enum { SIZE = (5 << 20) + 4321 };
static uint8_t *bytes;
static char path[64];
static int fd = -1;

static int make(void **state)
{
	uint32_t x = 7;

	(void)state;
	bytes = malloc(SIZE);
	snprintf(path, sizeof path, "/tmp/sluice-content-XXXXXX");
	fd = mkstemp(path);
	if (!bytes || fd < 0)
		return -1;
	for (size_t i = 0; i < SIZE; i++) {
		x = x * 1664525 + 1013904223;
		bytes[i] = (uint8_t)(x >> 24);
	}
	return write(fd, bytes, SIZE) == SIZE ? 0 : -1;
}

static int unmake(void **state)
{
	(void)state;
	free(bytes);
	close(fd);
	return unlink(path);
}

static void assert_content(int of, uint64_t base, uint64_t size, enum content_digest d,
			   const char *should)
{
	uint8_t digest[CONTENT_DIGEST_MAX];
	char is[EVENT_DIGEST];

	assert_int_equal(content_digest_of(of, "it", base, size, d, NULL, digest), 0);
	content_digest_text(d, digest, is);
	assert_string_equal(is, should);
}

static int file_of(const char *text)
{
	FILE *f = tmpfile();
	int of;

	assert_non_null(f);
	of = dup(fileno(f));
	fclose(f);
	assert_int_equal(write(of, text, strlen(text)), strlen(text));
	return of;
}

/* From FIPS 180-2, RFC 1321, the definition of Adler-32, and xxHash's sanity checks. */
static void known_digests_match(void **state)
{
	static const struct {
		const char *text;
		enum content_digest d;
		const char *should;
	} known[] = {
		{"", CONTENT_SHA256,
		 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
		{"abc", CONTENT_SHA256,
		 "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
		{"", CONTENT_MD5, "d41d8cd98f00b204e9800998ecf8427e"},
		{"message digest", CONTENT_MD5, "f96b697d7cb7938d525a2f31aaf161d0"},
		{"", CONTENT_XXH128, "99aa06d3014798d86001c324468d497f"},
		{"", CONTENT_ADLER32, "00000001"},
		{"Wikipedia", CONTENT_ADLER32, "11e60398"},
		{"abc", CONTENT_NONE, ""},
	};

	(void)state;
	for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
		int of = file_of(known[i].text);

		assert_content(of, 0, strlen(known[i].text), known[i].d, known[i].should);
		close(of);
	}
}

static void digest_text_has_its_size(void **state)
{
	static const unsigned sizes[CONTENT_DIGESTS] = {0, 16, 32, 16, 4};
	const uint8_t ones[CONTENT_DIGEST_MAX] = {0x01, 0xf0};

	(void)state;
	for (unsigned d = 0; d < CONTENT_DIGESTS; d++) {
		char text[EVENT_DIGEST];

		assert_int_equal(content_digest_size(d), sizes[d]);
		content_digest_text(d, ones, text);
		assert_int_equal(strlen(text), 2 * sizes[d]);
		assert_memory_equal(text, "01f00000", d ? 8 : 0);
	}
}

/* The first word that a command prints. */
static void printed(char to[static EVENT_DIGEST], const char *command)
{
	FILE *p = popen(command, "r");

	assert_non_null(p);
	assert_int_equal(fscanf(p, "%129s", to), 1);
	assert_int_equal(pclose(p), 0);
}

static void digests_match_the_coreutils(void **state)
{
	char command[128], should[EVENT_DIGEST];

	(void)state;
	snprintf(command, sizeof command, "sha256sum %s", path);
	printed(should, command);
	assert_content(fd, 0, SIZE, CONTENT_SHA256, should);
	snprintf(command, sizeof command, "md5sum %s", path);
	printed(should, command);
	assert_content(fd, 0, SIZE, CONTENT_MD5, should);
	snprintf(command, sizeof command, "tail -c +1001 %s | head -c 3000000 | sha256sum", path);
	printed(should, command);
	assert_content(fd, 1000, 3000000, CONTENT_SHA256, should);
}

static void xxh128_in_pieces_matches(void **state)
{
	XXH128_hash_t h = XXH3_128bits(bytes + 77, SIZE - 77);
	char should[EVENT_DIGEST];

	(void)state;
	snprintf(should, sizeof should, "%016llx%016llx", (unsigned long long)h.high64,
		 (unsigned long long)h.low64);
	assert_content(fd, 77, SIZE - 77, CONTENT_XXH128, should);
}

/* Adler-32 as in RFC 1950, without optimization. */
static void adler32_in_pieces_matches(void **state)
{
	char should[EVENT_DIGEST];
	uint32_t a = 1, b = 0;

	(void)state;
	for (size_t i = 0; i < SIZE; i++) {
		a = (a + bytes[i]) % 65521;
		b = (b + a) % 65521;
	}
	snprintf(should, sizeof should, "%04x%04x", b, a);
	assert_content(fd, 0, SIZE, CONTENT_ADLER32, should);
}

static void holes_are_read_as_zeros(void **state)
{
	char should[EVENT_DIGEST];
	int of = file_of("x");

	(void)state;
	assert_int_equal(ftruncate(of, (3 << 20) + 1), 0);
	printed(should, "{ printf x; head -c 3145728 /dev/zero; } | sha256sum");
	assert_content(of, 0, (3 << 20) + 1, CONTENT_SHA256, should);
	close(of);
}

static void file_offset_is_unchanged(void **state)
{
	uint8_t digest[CONTENT_DIGEST_MAX];

	(void)state;
	assert_int_equal(lseek(fd, 123, SEEK_SET), 123);
	assert_int_equal(content_digest_of(fd, "it", 0, SIZE, CONTENT_MD5, NULL, digest), 0);
	assert_int_equal(lseek(fd, 0, SEEK_CUR), 123);
}

static void truncated_file_has_changed(void **state)
{
	uint8_t digest[CONTENT_DIGEST_MAX];

	(void)state;
	for (unsigned d = 1; d < CONTENT_DIGESTS; d++) {
		fail_clear();
		assert_int_equal(content_digest_of(fd, "it", 0, SIZE + 1, d, NULL, digest), -1);
		assert_int_equal(failed()->code, OUT_CHANGED);
		fail_clear();
		assert_int_equal(content_digest_of(fd, "it", SIZE, 1, d, NULL, digest), -1);
		assert_int_equal(failed()->code, OUT_CHANGED);
	}
}

static void unreadable_file_fails(void **state)
{
	uint8_t digest[CONTENT_DIGEST_MAX];

	(void)state;
	fail_clear();
	assert_int_equal(content_digest_of(-1, "it", 0, 1, CONTENT_MD5, NULL, digest), -1);
	assert_int_equal(failed()->code, OUT_FILE);
	assert_non_null(strstr(failed()->text, "read it"));
}

static bool third_time(void *ctx)
{
	unsigned *asked = ctx;

	return ++*asked == 3;
}

static void stopper_ends_the_digest(void **state)
{
	uint8_t digest[CONTENT_DIGEST_MAX];
	unsigned asked = 0;
	const struct stopper s = {third_time, &asked};

	(void)state;
	assert_int_equal(content_digest_of(fd, "it", 0, SIZE, CONTENT_SHA256, &s, digest), -1);
	assert_int_equal(asked, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(known_digests_match),
		cmocka_unit_test(digest_text_has_its_size),
		cmocka_unit_test(digests_match_the_coreutils),
		cmocka_unit_test(xxh128_in_pieces_matches),
		cmocka_unit_test(adler32_in_pieces_matches),
		cmocka_unit_test(holes_are_read_as_zeros),
		cmocka_unit_test(file_offset_is_unchanged),
		cmocka_unit_test(truncated_file_has_changed),
		cmocka_unit_test(unreadable_file_fails),
		cmocka_unit_test(stopper_ends_the_digest),
	};

	return cmocka_run_group_tests(tests, make, unmake);
}
