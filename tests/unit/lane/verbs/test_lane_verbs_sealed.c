/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Encrypted lanes over verbs pass the conformance tests, on the adapter that SLUICE_TRANSPORT
 * names: with both ciphers, with many keys, with SENDs, and where the source writes to the sink's
 * memory.
 */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include "lane/cipher.h"
#include "lane_conformance.h"
#include "verbs_door.h"

enum { SKIPPED = 77 };

static int conform(const char *name, enum rdma_op op, enum cipher_kind cipher)
{
	const struct backend b = {name,
				  op,
				  door_pair_open,
				  door_pair_close,
				  door_join_by_turns,
				  cipher,
				  cipher == CIPHER_AES_256_GCM ? 9000 : 0,
				  0};

	return conformance_run(&b);
}

int main(void)
{
	bool all = getenv("SLUICE_COUNT") && atoi(getenv("SLUICE_COUNT")) > 1;
	int failures;

	signal(SIGPIPE, SIG_IGN); /* siw increments it: see lane.h */
	if (!hosts_find()) {
		fputs("no RDMA adapter is named in SLUICE_TRANSPORT\n", stderr);
		return SKIPPED;
	}
	failures = conform("AES, sent", RDMA_OP_SEND, CIPHER_AES_256_GCM);
	failures += conform("ChaCha20, written, then told of", RDMA_OP_WRITE_SEND,
			    CIPHER_CHACHA20_POLY1305);
	if (!all)
		return failures;
	failures += conform("ChaCha20, sent", RDMA_OP_SEND, CIPHER_CHACHA20_POLY1305);
	failures += conform("AES, written, then told of", RDMA_OP_WRITE_SEND, CIPHER_AES_256_GCM);
	if (door_iwarp)
		return failures;
	failures +=
		conform("AES, written with an immediate", RDMA_OP_WRITE_IMM, CIPHER_AES_256_GCM);
	return failures + conform("ChaCha20, written with an immediate", RDMA_OP_WRITE_IMM,
				  CIPHER_CHACHA20_POLY1305);
}
