/* SPDX-License-Identifier: Apache-2.0 */
#include "session/channel/key.h"

#include <fcntl.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"
#include "base/random.h"

#define MADE_PREFIX "sluice-key-1:"

enum {
	MADE_PREFIX_LEN = sizeof MADE_PREFIX - 1,
	MADE_LEN = MADE_PREFIX_LEN + 2 * PSK_SIZE,
	SCRYPT_N = 1 << 15,
	SCRYPT_R = 8,
	SCRYPT_P = 1,
	SCRYPT_MEMORY_MAX = 64 << 20,
};

/* Fixed, because both ends must derive the same key from the text alone. */
static char salt[] = "sluice typed key v1";

void psk_wipe(struct psk *k)
{
	OPENSSL_cleanse(k, sizeof *k);
}

/* SHA-256 of "sluice anonymous". */
void psk_anonymous(struct psk *out)
{
	static const struct psk known = {{
		0x94, 0x32, 0x21, 0xba, 0xfc, 0xf8, 0xe1, 0x3d, 0x04, 0x20, 0xf2,
		0x5a, 0xdc, 0x10, 0x2e, 0xda, 0xd6, 0x53, 0x12, 0x54, 0x84, 0xde,
		0x1f, 0x95, 0xd4, 0x78, 0xcc, 0x4e, 0x00, 0x82, 0x32, 0xb8,
	}};

	*out = known;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

static int psk_from_made(const char *text, size_t len, struct psk *out)
{
	const char *hex = text + MADE_PREFIX_LEN;

	if (len != MADE_LEN)
		return fail_as(OUT_USAGE,
			       "the key from --make-key is damaged: %zu characters, not %d", len,
			       MADE_LEN);
	for (unsigned i = 0; i < PSK_SIZE; i++) {
		int high = hex_digit(hex[2 * i]);
		int low = hex_digit(hex[2 * i + 1]);

		if (high < 0 || low < 0) {
			psk_wipe(out);
			return fail_as(
				OUT_USAGE,
				"the key from --make-key is damaged: not a hexadecimal digit");
		}
		out->bytes[i] = (uint8_t)(high << 4 | low);
	}
	return 0;
}

static int psk_stretch(const char *text, size_t len, struct psk *out)
{
	uint64_t n = SCRYPT_N, maxmem = SCRYPT_MEMORY_MAX;
	uint32_t r = SCRYPT_R, p = SCRYPT_P;
	OSSL_PARAM params[] = {
		OSSL_PARAM_octet_string(OSSL_KDF_PARAM_PASSWORD, (char *)(uintptr_t)text, len),
		OSSL_PARAM_octet_string(OSSL_KDF_PARAM_SALT, salt, sizeof salt - 1),
		OSSL_PARAM_uint64(OSSL_KDF_PARAM_SCRYPT_N, &n),
		OSSL_PARAM_uint32(OSSL_KDF_PARAM_SCRYPT_R, &r),
		OSSL_PARAM_uint32(OSSL_KDF_PARAM_SCRYPT_P, &p),
		OSSL_PARAM_uint64(OSSL_KDF_PARAM_SCRYPT_MAXMEM, &maxmem),
		OSSL_PARAM_END,
	};
	EVP_KDF *kdf = EVP_KDF_fetch(NULL, "SCRYPT", NULL);
	EVP_KDF_CTX *ctx = kdf ? EVP_KDF_CTX_new(kdf) : NULL;
	int rc = 0;

	if (!ctx || EVP_KDF_derive(ctx, out->bytes, sizeof out->bytes, params) != 1) {
		psk_wipe(out);
		rc = fail_as(OUT_MEMORY, "derive the key: scrypt with 32 MiB of memory failed");
	}
	EVP_KDF_CTX_free(ctx);
	EVP_KDF_free(kdf);
	return rc;
}

int psk_from_text(const char *text, size_t len, struct psk *out)
{
	if (len == 0)
		return fail_as(OUT_USAGE, "the key is empty");
	if (len > KEY_TEXT_MAX)
		return fail_as(OUT_USAGE, "the key is longer than %d bytes", KEY_TEXT_MAX);
	if (len >= MADE_PREFIX_LEN && memcmp(text, MADE_PREFIX, MADE_PREFIX_LEN) == 0)
		return psk_from_made(text, len, out);
	return psk_stretch(text, len, out);
}

static bool is_made(const char *text, ssize_t len)
{
	return len >= (ssize_t)MADE_PREFIX_LEN && memcmp(text, MADE_PREFIX, MADE_PREFIX_LEN) == 0;
}

static int psk_read(int fd, const char *name, bool only_made, struct psk *out)
{
	char text[KEY_TEXT_MAX + 2 + 1]; /* CR LF, and one byte that shows that it is too long */
	ssize_t n = read_full(fd, text, sizeof text);
	int rc;

	if (n < 0) {
		rc = fail("read the key from %s: %m", name);
	} else if (only_made && !is_made(text, n)) {
		rc = fail_as(OUT_USAGE, "key file %s: not a key from --make-key", name);
	} else {
		if (n > 0 && text[n - 1] == '\n')
			n--;
		if (n > 0 && text[n - 1] == '\r')
			n--;
		rc = psk_from_text(text, (size_t)n, out);
	}
	OPENSSL_cleanse(text, sizeof text);
	return rc;
}

int psk_from_fd(int fd, struct psk *out)
{
	return psk_read(fd, "the given descriptor", false, out);
}

static int key_file_check(int fd, const char *path)
{
	struct stat st;

	if (fstat(fd, &st) != 0)
		return fail("key file %s: %m", path);
	if (!S_ISREG(st.st_mode))
		return fail_as(OUT_USAGE, "key file %s: not a regular file", path);
	if (st.st_uid != geteuid())
		return fail_as(OUT_USAGE, "key file %s belongs to another user", path);
	if (st.st_mode & (S_IRWXG | S_IRWXO))
		return fail_as(OUT_USAGE, "key file %s is accessible to other users: chmod 600 %s",
			       path, path);
	return 0;
}

int key_file_open(const char *path, int flags)
{
	/* O_NONBLOCK: open(2) must not block on a FIFO of that name. */
	int fd = RETRIED(open(path, flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, S_IRUSR | S_IWUSR));

	if (fd < 0)
		return fail("open key file %s: %m", path);
	if (key_file_check(fd, path) == 0)
		return fd;
	close_fd(fd);
	return -1;
}

static int read_key_file(const char *path, bool only_made, struct psk *out)
{
	int fd = key_file_open(path, O_RDONLY);
	int rc;

	if (fd < 0)
		return -1;
	rc = psk_read(fd, path, only_made, out);
	close_fd(fd);
	return rc;
}

int psk_from_file(const char *path, struct psk *out)
{
	return read_key_file(path, false, out);
}

int psk_from_made_file(const char *path, struct psk *out)
{
	return read_key_file(path, true, out);
}

static int make_key_text(char to[static MADE_LEN + 1])
{
	static const char digits[] = "0123456789abcdef";
	struct psk key;

	if (random_bytes(key.bytes, sizeof key.bytes) != 0)
		return -1;
	memcpy(to, MADE_PREFIX, MADE_PREFIX_LEN);
	for (unsigned i = 0; i < PSK_SIZE; i++) {
		to[MADE_PREFIX_LEN + 2 * i] = digits[key.bytes[i] >> 4];
		to[MADE_PREFIX_LEN + 2 * i + 1] = digits[key.bytes[i] & 15];
	}
	to[MADE_LEN] = '\n';
	psk_wipe(&key);
	return 0;
}

int psk_make_text(char to[static KEY_TEXT_ROOM])
{
	char text[MADE_LEN + 1];
	int rc = make_key_text(text);

	if (rc == 0)
		snprintf(to, KEY_TEXT_ROOM, "%.*s", (int)MADE_LEN, text);
	OPENSSL_cleanse(text, sizeof text);
	return rc;
}

int psk_from_made_text(const char *text, size_t len, struct psk *out)
{
	if (!is_made(text, (ssize_t)len))
		return fail_as(OUT_USAGE, "not a key from --make-key");
	return psk_from_made(text, len, out);
}

int psk_make_file(const char *path)
{
	char text[MADE_LEN + 1];
	int rc = -1;
	int fd;

	if (make_key_text(text) != 0)
		return -1;
	fd = RETRIED(open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR));
	if (fd < 0) {
		fail("create key file %s: %m", path);
		goto out;
	}
	if (write_full(fd, text, sizeof text) != 0 || fsync(fd) != 0) {
		fail("write key file %s: %m", path);
		unlink(path);
		goto out;
	}
	rc = 0;
out:
	OPENSSL_cleanse(text, sizeof text);
	close_fd(fd);
	return rc;
}
