/* SPDX-License-Identifier: Apache-2.0 */
#include "record.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "misuse.h"

static void write_address(const struct sockaddr *sa, char *to, size_t size)
{
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)sa;
	const struct sockaddr_in *in4 = (const struct sockaddr_in *)sa;

	if (sa->sa_family == AF_INET6)
		inet_ntop(AF_INET6, &in6->sin6_addr, to, (socklen_t)size);
	else
		inet_ntop(AF_INET, &in4->sin_addr, to, (socklen_t)size);
}

static int record = -1;

/* At once: the process may be confined to a directory later. */
__attribute__((constructor)) static void open_record(void)
{
	const char *path = getenv("SIMVERBS_RECORD");

	if (!path)
		return;
	record = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	if (record < 0)
		misuse("SIMVERBS_RECORD=%s: %m", path);
}

void record_connection(struct rdma_cm_id *id, unsigned tos, const struct message_connect *request)
{
	char from[64], to[64], line[160 + 2 * MESSAGE_PRIVATE];
	int used;

	if (record < 0)
		return;
	write_address(&id->route.addr.src_addr, from, sizeof from);
	write_address(&id->route.addr.dst_addr, to, sizeof to);
	used = snprintf(line, sizeof line, "%s %s %u ", from, to, tos);
	for (unsigned i = 0; i < request->private_len; i++)
		used += sprintf(line + used, "%02x", request->private_data[i]);
	line[used++] = '\n';
	if (write(record, line, (size_t)used) != used)
		misuse("write SIMVERBS_RECORD: %m");
}
