/* SPDX-License-Identifier: Apache-2.0 */
#include "session/channel/openssl.h"

#include <errno.h>
#include <openssl/evp.h>
#include <string.h>
#include "base/fail.h"

int openssl_start(void)
{
	EVP_MD *md;

	errno = 0;
	md = EVP_MD_fetch(NULL, "SHA256", NULL);
	if (!md)
		return fail_as(OUT_MEMORY, "start OpenSSL: %s",
			       errno ? strerror(errno) : "it has no memory, or lacks SHA-256");
	EVP_MD_free(md);
	return 0;
}
