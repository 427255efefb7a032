/* SPDX-License-Identifier: Apache-2.0 */
#include "base/backoff.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#ifndef TCP_RTO_MAX_MS
#define TCP_RTO_MAX_MS 44
#endif

enum { RTO_LEAST_MS = 1000, RTO_MOST_MS = 120000 }; /* what the kernel accepts */

void backoff_bound(int fd, int timeout_ms)
{
	int bound = timeout_ms / 8;

	bound = bound < RTO_LEAST_MS ? RTO_LEAST_MS : bound > RTO_MOST_MS ? RTO_MOST_MS : bound;
	setsockopt(fd, IPPROTO_TCP, TCP_RTO_MAX_MS, &bound, sizeof bound);
}
