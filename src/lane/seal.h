/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LANE_SEAL_H
#define LANE_SEAL_H

/*
 * Between blocks as callers see them and blocks as wires move them: the one place where a
 * block's hash is computed and checked, and where a cipher would go.
 */

#include "lane/lane.h"

/* Write the head of b, which must have been sealed, right below its data. */
void seal_head(const struct block *b, unsigned lane, uint32_t epoch);

enum unsealed {
	UNSEAL_WHOLE, /* b's fields are set from its head */
	UNSEAL_DAMAGED, /* the head's check or the data's hash is wrong; no failure is set */
	UNSEAL_WRONG, /* whole, but nothing that this lane may get now: a failure is set */
};
/*
 * A block that came, (*b)->len bytes of data with it.  number: of the block that is due.
 * private: NULL, or where the sender may still change the block, a block of room bytes out of its
 * reach: what is parsed (the head, records) is checked and used there, and *b becomes it then.  An
 * extent stays where it is: its bytes are the sender's to choose until they are stored.
 */
enum unsealed block_unseal(struct block **b, struct block *private, unsigned lane, uint32_t epoch,
			   uint64_t number, uint32_t room, bool unchecked);

#endif
