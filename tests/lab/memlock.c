/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memlock ADDRESS BYTES: registers BYTES of memory on the device that has ADDRESS.
 * Exit status: 0 if it could, 1 if the limit of locked memory is too small, 2 for other failures.
 */
#include <errno.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const char *what)
{
	fprintf(stderr, "memlock: %s: %s\n", what, strerror(errno));
	return 2;
}

int main(int argc, char **argv)
{
	struct addrinfo hints = {.ai_flags = AI_NUMERICHOST}, *ai;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	size_t size;
	void *memory;

	if (argc != 3 || getaddrinfo(argv[1], NULL, &hints, &ai))
		return 2;
	size = strtoull(argv[2], NULL, 0);
	channel = rdma_create_event_channel();
	if (!channel)
		return fail("rdma_create_event_channel");
	if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP))
		return fail("rdma_create_id");
	if (rdma_bind_addr(id, ai->ai_addr) || !id->verbs)
		return fail("rdma_bind_addr");
	pd = ibv_alloc_pd(id->verbs);
	if (!pd)
		return fail("ibv_alloc_pd");
	memory = aligned_alloc(4096, size);
	if (!memory)
		return fail("aligned_alloc");
	memset(memory, 0, size);
	mr = ibv_reg_mr(pd, memory, size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!mr) {
		printf("%s: %zu bytes: %s\n", id->verbs->device->name, size, strerror(errno));
		return errno == ENOMEM ? 1 : 2;
	}
	printf("%s: %zu bytes registered\n", id->verbs->device->name, size);
	return 0;
}
