/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/io/content_digest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <xxhash.h>
#include <zlib.h>
#include "base/fail.h"
#include "base/io.h"

enum { PIECE = 1 << 20, ZEROS = 64 << 10, ADLER_BASE = 65521 };

struct content {
	enum content_digest d;
	const char *shown; /* the file, for messages */
	EVP_MD_CTX *evp; /* SHA-256 or MD5; else NULL */
	XXH3_state_t *xxh; /* XXH128; else NULL */
	uLong adler;
};

unsigned content_digest_size(enum content_digest d)
{
	switch (d) {
	case CONTENT_XXH128:
	case CONTENT_MD5:
		return 16;
	case CONTENT_SHA256:
		return 32;
	case CONTENT_ADLER32:
		return 4;
	case CONTENT_NONE:
		break;
	}
	return 0;
}

static void content_close(struct content *c)
{
	EVP_MD_CTX_free(c->evp);
	XXH3_freeState(c->xxh);
}

/* Fails because of an OpenSSL call.  errno was 0 before that call. */
static int evp_failed(const struct content *c)
{
	unsigned long e = ERR_peek_error();
	const char *text = ERR_reason_error_string(e);

	if (errno == ENOMEM || ERR_GET_REASON(e) == ERR_R_MALLOC_FAILURE)
		return fail_as(OUT_MEMORY, "compute the digest of %s: %s", c->shown,
			       strerror(ENOMEM));
	return fail("compute the digest of %s: OpenSSL: %s", c->shown,
		    text ? text : "no reason given");
}

static int evp_open(struct content *c, const EVP_MD *md)
{
	ERR_clear_error();
	c->evp = EVP_MD_CTX_new();
	if (!c->evp)
		return fail_as(OUT_MEMORY, "allocate the digest of %s: %s", c->shown,
			       strerror(ENOMEM));
	errno = 0;
	if (EVP_DigestInit_ex(c->evp, md, NULL) == 1)
		return 0;
	/* OpenSSL may be configured without MD5, as in FIPS mode. */
	if (errno != ENOMEM && ERR_GET_REASON(ERR_peek_error()) != ERR_R_MALLOC_FAILURE)
		return fail("compute the digest of %s: OpenSSL on this host does not provide %s",
			    c->shown, EVP_MD_get0_name(md));
	return evp_failed(c);
}

static int content_open(struct content *c, enum content_digest d, const char *shown)
{
	*c = (struct content){.d = d, .shown = shown, .adler = 1};
	if (d == CONTENT_SHA256)
		return evp_open(c, EVP_sha256());
	if (d == CONTENT_MD5)
		return evp_open(c, EVP_md5());
	if (d == CONTENT_XXH128) {
		c->xxh = XXH3_createState();
		if (!c->xxh)
			return fail_as(OUT_MEMORY, "allocate the digest of %s: %m", shown);
		XXH3_128bits_reset(c->xxh);
	}
	return 0;
}

static bool is_stopped(const struct stopper *s)
{
	return s && s->stop && s->stop(s->ctx);
}

static int content_add(struct content *c, const void *bytes, size_t len)
{
	errno = 0;
	if (c->evp && EVP_DigestUpdate(c->evp, bytes, len) != 1)
		return evp_failed(c);
	if (c->evp)
		return 0;
	if (c->xxh)
		XXH3_128bits_update(c->xxh, bytes, len);
	else
		c->adler = adler32_z(c->adler, bytes, len);
	return 0;
}

static int content_end(struct content *c, uint8_t out[static CONTENT_DIGEST_MAX])
{
	XXH128_canonical_t canonical;

	errno = 0;
	if (c->evp)
		return EVP_DigestFinal_ex(c->evp, out, NULL) == 1 ? 0 : evp_failed(c);
	if (c->xxh) {
		XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(c->xxh));
		memcpy(out, canonical.digest, sizeof canonical.digest);
	} else {
		for (unsigned i = 0; i < 4; i++)
			out[i] = (uint8_t)(c->adler >> (24 - 8 * i));
	}
	return 0;
}

/* Adds a hole.  For Adler-32 a formula gives what zeros add; the other digests read each zero. */
static int content_zeros(struct content *c, uint64_t len, const struct stopper *s)
{
	static const uint8_t zeros[ZEROS];

	if (!c->evp && !c->xxh) {
		uLong a = c->adler & 0xffff, b = c->adler >> 16;

		c->adler = (b + len % ADLER_BASE * a) % ADLER_BASE << 16 | a;
		return 0;
	}
	while (len > 0) {
		size_t n = len < sizeof zeros ? (size_t)len : sizeof zeros;

		if (is_stopped(s) || content_add(c, zeros, n))
			return -1;
		len -= n;
	}
	return 0;
}

/* Is fd a regular file of at least this size, so that what is no data is a hole? */
static bool has_size(int fd, uint64_t size)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size >= size;
}

static int content_read(struct content *c, int fd, uint64_t base, uint64_t size,
			const struct stopper *s)
{
	/* Looking for holes moves the offset, which other processes may share. */
	off_t at = lseek(fd, 0, SEEK_CUR);
	bool has_holes = at >= 0 && has_size(fd, base + size);
	uint8_t *piece = malloc(PIECE);
	int rc = -1;

	if (!piece)
		return fail_as(OUT_MEMORY, "read %s: %m", c->shown);
	posix_fadvise(fd, (off_t)base, (off_t)size, POSIX_FADV_SEQUENTIAL);
	for (uint64_t pos = 0; pos < size;) {
		uint64_t data =
			has_holes ? outlet_skip_hole(fd, base + pos, base + size) - base : pos;
		size_t want;
		ssize_t n;

		if (data > pos && content_zeros(c, data - pos, s))
			goto out;
		pos = data;
		want = size - pos < PIECE ? (size_t)(size - pos) : PIECE;
		if (is_stopped(s))
			goto out;
		n = pread_full(fd, piece, want, (off_t)(base + pos));
		if (n < 0) {
			fail("read %s: %m", c->shown);
			goto out;
		}
		if (content_add(c, piece, (size_t)n))
			goto out;
		pos += (uint64_t)n;
		if ((size_t)n < want) {
			fail_as(OUT_CHANGED, "%s shrank to %llu bytes while it was read", c->shown,
				(unsigned long long)pos);
			goto out;
		}
	}
	rc = 0;
out:
	if (has_holes && lseek(fd, at, SEEK_SET) < 0)
		rc = fail("seek in %s: %m", c->shown);
	free(piece);
	return rc;
}

int content_digest_of(int fd, const char *shown, uint64_t base, uint64_t size,
		      enum content_digest d, const struct stopper *s,
		      uint8_t out[static CONTENT_DIGEST_MAX])
{
	struct content c;
	int rc;

	memset(out, 0, CONTENT_DIGEST_MAX);
	if (d == CONTENT_NONE)
		return 0;
	rc = content_open(&c, d, shown);
	if (rc == 0)
		rc = content_read(&c, fd, base, size, s);
	if (rc == 0)
		rc = content_end(&c, out);
	content_close(&c);
	return rc;
}

int content_digest_of_bytes(const void *bytes, size_t len, const char *shown, enum content_digest d,
			    uint8_t out[static CONTENT_DIGEST_MAX])
{
	struct content c;
	int rc;

	memset(out, 0, CONTENT_DIGEST_MAX);
	rc = content_open(&c, d, shown);
	if (rc == 0)
		rc = content_add(&c, bytes, len);
	if (rc == 0)
		rc = content_end(&c, out);
	content_close(&c);
	return rc;
}

void content_digest_text(enum content_digest d, const uint8_t *digest, char to[static EVENT_DIGEST])
{
	static const char digits[] = "0123456789abcdef";
	unsigned size = content_digest_size(d);

	for (unsigned i = 0; i < size; i++) {
		to[2 * i] = digits[digest[i] >> 4];
		to[2 * i + 1] = digits[digest[i] & 15];
	}
	to[2 * size] = '\0';
}
