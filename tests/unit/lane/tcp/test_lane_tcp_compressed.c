/* SPDX-License-Identifier: Apache-2.0 */

/* Lanes over TCP that compress pass the conformance tests, in the clear and encrypted. */

#include "lane/cipher.h"
#include "lane/compress.h"
#include "lane_conformance.h"
#include "lane_loopback.h"

int main(void)
{
	struct backend clear = loopback_backend, sealed = two_hosts_backend;

	if (!compress_known())
		return 0;
	clear.compress = COMPRESS_ALWAYS;
	sealed.compress = COMPRESS_AUTO;
	sealed.cipher = CIPHER_AES_256_GCM;
	sealed.rekey_bytes = 9000;
	return conformance_run(&clear) + conformance_run(&sealed);
}
