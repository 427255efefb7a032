/* SPDX-License-Identifier: Apache-2.0 */
#include "session/channel/openssl.h"

#include <errno.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include "base/fail.h"

int openssl_start(void)
{
	uint8_t digest[EVP_MAX_MD_SIZE], key = 0;
	unsigned len;
	EVP_MD *md;
	bool done;

	errno = 0;
	md = EVP_MD_fetch(NULL, "SHA256", NULL);
	/* If the first HMAC fails for lack of memory, OpenSSL 3.0 never computes one. */
	done = md && HMAC(EVP_sha256(), &key, sizeof key, NULL, 0, digest, &len);
	EVP_MD_free(md);
	if (done)
		return 0;
	return fail_as(OUT_MEMORY, "start OpenSSL: %s",
		       errno ? strerror(errno) : "out of memory, or SHA-256 is not available");
}
