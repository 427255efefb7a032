/* SPDX-License-Identifier: Apache-2.0 */
#include "lane/fault.h"

void fault_before_send(unsigned lane, struct block *b)
{
	(void)lane;
	(void)b;
}

bool fault_after_send(unsigned lane, const struct block *b)
{
	(void)lane;
	(void)b;
	return false;
}

void fault_restore(unsigned lane, struct block *b)
{
	(void)lane;
	(void)b;
}

uint64_t fault_rekey(uint64_t bytes)
{
	return bytes;
}

size_t fault_bound(size_t bytes)
{
	return bytes;
}

bool fault_connect(unsigned lane)
{
	(void)lane;
	return false;
}

bool fault_accept(unsigned lane)
{
	(void)lane;
	return false;
}
