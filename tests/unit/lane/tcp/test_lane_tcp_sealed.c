/* SPDX-License-Identifier: Apache-2.0 */

/* Encrypted lanes over TCP pass the conformance tests, with both ciphers, and with many keys. */

#include "lane/cipher.h"
#include "lane_conformance.h"
#include "lane_loopback.h"

int main(void)
{
	struct backend aes = loopback_backend, chacha = two_hosts_backend;

	aes.cipher = CIPHER_AES_256_GCM;
	aes.rekey_bytes = 9000;
	chacha.cipher = CIPHER_CHACHA20_POLY1305;
	return conformance_run(&aes) + conformance_run(&chacha);
}
