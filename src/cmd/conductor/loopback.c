/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/conductor/loopback.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/io.h"

int loopback_connect(unsigned port)
{
	struct sockaddr_in in4 = {.sin_family = AF_INET,
				  .sin_port = htons((uint16_t)port),
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6,
				   .sin6_port = htons((uint16_t)port),
				   .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	int why;

	if (fd >= 0 && connect(fd, (struct sockaddr *)&in4, sizeof in4) == 0)
		return fd;
	why = errno;
	close_fd(fd);
	fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&in6, sizeof in6) == 0)
		return fd;
	close_fd(fd);
	errno = why;
	return -1;
}

int loopback_listen(unsigned *port)
{
	struct sockaddr_in in4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof in4;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&in4, len) < 0 || listen(fd, SOMAXCONN) < 0 ||
	    getsockname(fd, (struct sockaddr *)&in4, &len) < 0) {
		close_fd(fd);
		return -1;
	}
	*port = ntohs(in4.sin_port);
	return fd;
}

/* ---- the owner of a connection ------------------------------------------------------------- */

static const char *const socket_lists[] = {"/proc/net/tcp", "/proc/net/tcp6"};

/* Finds the user of the socket with these addresses in the list. Returns 1; 0 if the socket is not
 * listed or has no owner any more; -1 with errno. */
static int find_user(const char *file, const char *addresses, uid_t *uid)
{
	FILE *f = fopen(file, "re");
	char line[512];
	int found = f ? 0 : -1;

	while (found == 0 && fgets(line, sizeof line, f)) {
		const char *at = strstr(line, addresses);
		unsigned user;
		unsigned long inode;

		/* state, queues, timer, retransmissions, user, timeout, inode */
		if (at &&
		    sscanf(at + strlen(addresses), " %*x %*s %*s %*x %u %*d %lu", &user, &inode) ==
			    2 &&
		    inode != 0) {
			*uid = user;
			found = 1;
		}
	}
	if (found == 0 && ferror(f))
		found = -1;
	if (f) {
		int why = errno;

		fclose(f);
		errno = why;
	}
	return found;
}

enum loopback_peer loopback_peer(int fd)
{
	struct sockaddr_in theirs, here;
	socklen_t their_len = sizeof theirs, here_len = sizeof here;
	char addresses[128];
	uid_t uid;

	if (getpeername(fd, (struct sockaddr *)&theirs, &their_len) < 0)
		return errno == ENOTCONN ? LOOPBACK_GONE : LOOPBACK_UNKNOWN;
	if (getsockname(fd, (struct sockaddr *)&here, &here_len) < 0)
		return LOOPBACK_UNKNOWN;
	for (unsigned i = 0; i < sizeof socket_lists / sizeof *socket_lists; i++) {
		int found;

		snprintf(addresses, sizeof addresses,
			 /* IPv4 addresses, or the same addresses mapped to IPv6. */
			 i == 0 ? "%08X:%04X %08X:%04X"
				: "0000000000000000FFFF0000%08X:%04X "
				  "0000000000000000FFFF0000%08X:%04X",
			 theirs.sin_addr.s_addr, ntohs(theirs.sin_port), here.sin_addr.s_addr,
			 ntohs(here.sin_port));
		found = find_user(socket_lists[i], addresses, &uid);
		/* A kernel without IPv6 has no tcp6. */
		if (found < 0 && (i == 0 || errno != ENOENT))
			return LOOPBACK_UNKNOWN;
		if (found > 0)
			return uid == geteuid() ? LOOPBACK_OURS : LOOPBACK_FOREIGN;
	}
	return LOOPBACK_GONE;
}

int loopback_accept(int listener)
{
	return accept4(listener, NULL, NULL, SOCK_CLOEXEC);
}
