/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys as text, from a descriptor, and in a file: each way the same text must give the same key.
 * The first byte selects the type, mode and owner of the file.
 */
#include <fcntl.h>
#include <openssl/core_names.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/sha.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include "expect.h"
#include "session/channel/key_ring.h"

enum {
	OPEN_TO_OTHERS = 1 << 0,
	DIRECTORY = 1 << 1,
	NEWLINE = 1 << 2,
	RETURN = 1 << 3,
	OTHERS = 1 << 5,
	MAKE = 1 << 4
};
enum { INPUT_MAX = 8 << 10 };

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char dir[] = "/dev/shm/fuzz-key-XXXXXX";
static char file[sizeof dir + 4];
static int dir_fd;

/* Replaces scrypt of OpenSSL, which takes 0.1 s and 32 MiB. It fails for a text with a bell. */
int EVP_KDF_derive(EVP_KDF_CTX *ctx, unsigned char *key, size_t len, const OSSL_PARAM params[])
{
	const OSSL_PARAM *text = OSSL_PARAM_locate_const(params, OSSL_KDF_PARAM_PASSWORD);
	XXH128_hash_t hash;

	(void)ctx;
	expect(text && text->data_size > 0 && text->data_size <= KEY_TEXT_MAX);
	if (memchr(text->data, '\a', text->data_size))
		return 0;
	hash = XXH3_128bits(text->data, text->data_size);
	memset(key, 0, len);
	memcpy(key, &hash, sizeof hash);
	return 1;
}

static void remove_dir(void)
{
	rmdir(dir);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	expect(mkdtemp(dir) && atexit(remove_dir) == 0);
	snprintf(file, sizeof file, "%s/k", dir);
	dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	expect(dir_fd >= 0);
	return 0;
}

/* Reads a key from a descriptor: 0, or -1. */
static int read_fd(const uint8_t *text, size_t len, struct psk *key)
{
	int fd = memfd_create("key", MFD_CLOEXEC), rc;

	expect(fd >= 0 && write(fd, text, len) == (ssize_t)len && lseek(fd, 0, SEEK_SET) == 0);
	rc = psk_from_fd(fd, key);
	close(fd);
	return rc;
}

/* The same file as the keys of users. A key that is added is found, and no other one changes. */
static void read_ring(void)
{
	struct key_ring before = {NULL, 0, 0}, after = {NULL, 0, 0};
	char text[KEY_LINE_MAX];
	struct psk made, found;

	if (psk_from_made_file(file, &made) == 0)
		expect(psk_from_file(file, &found) == 0 && !memcmp(&made, &found, sizeof made));
	expect(key_ring_make(file, "u v", text) == -1);
	if (key_ring_read(&before, file) || key_ring_find(&before, "u", &found) == 0) {
		expect(key_ring_make(file, "u", text) == -1);
	} else {
		expect(key_ring_make(file, "u", text) == 0 && key_ring_read(&after, file) == 0);
		expect(psk_from_made_text(text, strlen(text), &made) == 0);
		expect(key_ring_find(&after, "u", &found) == 0);
		expect(memcmp(&made, &found, sizeof made) == 0);
		expect(after.count == before.count + 1);
		for (unsigned i = 0; i < before.count; i++)
			expect(memcmp(&before.of[i], &after.of[i], sizeof *before.of) == 0);
	}
	key_ring_wipe(&before);
	key_ring_wipe(&after);
}

static int read_file(uint8_t how, const uint8_t *text, size_t len, struct psk *key)
{
	mode_t mode = how & OPEN_TO_OTHERS ? 0640 : 0600;
	struct failure why;
	int rc, fd;

	expect(psk_from_file(file, key) == -1 && failed()->code == OUT_FILE);
	if (how & MAKE) {
		rc = psk_make_file(file);
		expect(rc == 0 && psk_make_file(file) == -1);
	} else if (how & DIRECTORY) {
		expect(mkdir(file, 0700) == 0);
	} else {
		fd = open(file, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
		expect(fd >= 0 && write(fd, text, len) == (ssize_t)len && fchmod(fd, mode) == 0);
		/* Only root can change the owner of a file. */
		expect(!(how & OTHERS) || geteuid() != 0 || fchown(fd, 1, 1) == 0);
		close(fd);
	}
	rc = psk_from_file(file, key);
	why = *failed();
	read_ring();
	fail_again(&why);
	expect(remove(file) == 0);
	return rc;
}

/* No key of a user is the one that everybody knows. */
static void expect_unknown(int rc, const struct psk *key)
{
	static const char text[] = "sluice anonymous";
	uint8_t hash[SHA256_DIGEST_LENGTH];
	struct psk known;

	psk_anonymous(&known);
	expect(SHA256((const uint8_t *)text, sizeof text - 1, hash) != NULL);
	expect(sizeof hash == sizeof known && memcmp(hash, &known, sizeof hash) == 0);
	expect(rc != 0 || memcmp(key, &known, sizeof known) != 0);
}

static void expect_same(int rc, const struct psk *key, int other_rc, const struct psk *other)
{
	expect(rc == other_rc);
	expect(rc != 0 || memcmp(key, other, sizeof *key) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t text[INPUT_MAX + 2];
	struct psk key = {{0}}, other = {{0}};
	uint8_t how;
	size_t len;
	int rc;

	if (size < 1 || size > INPUT_MAX)
		return -1;
	how = data[0];
	len = size - 1;
	memcpy(text, data + 1, len);
	/* One newline at the end does not belong to the key. */
	if (len > 0 && (text[len - 1] == '\n' || text[len - 1] == '\r'))
		return -1;
	rc = psk_from_text((const char *)text, len, &key);
	if (rc)
		expect_failure(OUT_USAGE, OUT_MEMORY);
	expect_unknown(rc, &key);
	if (how & RETURN)
		text[len++] = '\r';
	if (how & (NEWLINE | RETURN))
		text[len++] = '\n';
	expect_same(rc, &key, read_fd(text, len, &other), &other);
	if (how & (OPEN_TO_OTHERS | DIRECTORY | (geteuid() ? 0 : OTHERS)) && !(how & MAKE)) {
		expect(read_file(how, text, len, &other) == -1 && failed()->code == OUT_USAGE);
	} else if (how & MAKE) {
		expect(read_file(how, text, len, &other) == 0);
	} else {
		expect_same(rc, &key, read_file(how, text, len, &other), &other);
	}
	expect(psk_from_fd(dir_fd, &other) == -1 && failed()->code == OUT_FILE);
	psk_wipe(&key);
	return 0;
}
