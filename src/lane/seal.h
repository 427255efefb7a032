/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LANE_SEAL_H
#define LANE_SEAL_H

/*
 * Converts between blocks as callers see them and blocks as wires move them. Block hashes are
 * computed and checked only here, and encryption would belong here.
 */

#include "lane/lane.h"

/* Writes the head of b right below its data. b must have been sealed. */
void seal_head(const struct block *b, unsigned lane, uint32_t epoch);

enum unsealed {
	UNSEAL_WHOLE, /* the fields of the block are set from its head */
	UNSEAL_DAMAGED, /* the head's checksum or the data's hash is wrong; no failure is set */
	UNSEAL_WRONG, /* intact, but this lane must not receive it now; a failure is set */
};
/*
 * Checks a block that arrived with (*b)->len bytes of data. number: of the next block in order.
 * private: NULL, or, if the sender can still change *b, a block of room bytes that the sender
 * cannot reach. In the second case everything that is parsed (the head, records) is copied to
 * private and checked and used there, and *b is set to private. An extent stays in place: the
 * sender may choose its bytes anyway until they are stored.
 */
enum unsealed block_unseal(struct block **b, struct block *private, unsigned lane, uint32_t epoch,
			   uint64_t number, uint32_t room, bool unchecked);

#endif
