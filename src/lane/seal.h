/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LANE_SEAL_H
#define LANE_SEAL_H

/*
 * Converts between blocks as callers see them and blocks as wires move them. Block hashes are
 * computed and checked only here, and blocks are encrypted and decrypted only here.
 */

#include "lane/cipher.h"
#include "lane/compress.h"
#include "lane/lane.h"

/* Writes the head of b right below its data. b must have been sealed. */
void seal_head(const struct block *b, unsigned lane, uint32_t epoch);

/* Encrypts the data of b in place, for the wire of this epoch, and writes the head. If b is
 * encrypted already, for an earlier wire, the clear text goes to scratch, which no wire can see,
 * and from there back to b. */
int seal_encrypt(struct block *b, struct cipher *c, unsigned lane, uint32_t epoch,
		 uint8_t *scratch);

enum unsealed {
	UNSEAL_WHOLE, /* the fields of the block are set from its head */
	UNSEAL_DAMAGED, /* the head's checksum, the data's hash or the tag is wrong; of an encrypted
			   block also any field of the head */
	UNSEAL_WRONG, /* intact, but this lane must not receive it now; a failure is set */
};
struct unseal_terms {
	struct cipher *cipher; /* NULL: the wire is not encrypted */
	unsigned lane;
	uint32_t epoch;
	uint64_t number;
	uint32_t room;
	bool unchecked;
	struct inflater *inflater; /* NULL: no block may be compressed */
	struct block *plain; /* with inflater: room bytes, for what was compressed */
};
/*
 * Checks a block that arrived with (*b)->len bytes of data. number: of the next block in order.
 * private: NULL, or, if the sender can still change *b, a block of room bytes that the sender
 * cannot reach. In the second case everything that is parsed (the head, records) is copied to
 * private and checked and used there, and *b is set to private. A clear extent stays in place: the
 * sender may choose its bytes anyway until they are stored. An encrypted one is copied before it is
 * decrypted, since another party than the sender might write to the ring, between the pass over
 * the data that checks the tag and the one that decrypts. So is a compressed one before it is
 * decompressed, which happens into terms->plain; *b is then set to that. *ns_inflate: the time that
 * it took.
 */
enum unsealed block_unseal(struct block **b, struct block *private,
			   const struct unseal_terms *terms, uint64_t *ns_inflate);

#endif
