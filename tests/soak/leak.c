/* SPDX-License-Identifier: Apache-2.0 */

/* A program that loses a descriptor and memory with each socket: preloaded, it shows that `soak'
 * notices. */

#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { LOST = 1 << 20 };
/* So that no compiler leaves it out. */
static char *volatile lost;

int socket(int domain, int type, int protocol)
{
	int (*real)(int, int, int) = (int (*)(int, int, int))dlsym(RTLD_NEXT, "socket");
	int fd = real(domain, type, protocol);

	lost = malloc(LOST);
	fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (lost)
		memset(lost, 1, LOST);
	return fd;
}
