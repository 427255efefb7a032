/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Preloaded into a program, leaks a descriptor and memory with each socket. It shows that `soak'
 * detects leaks.
 */

#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { LOST = 1 << 20 };
/* Keeps compilers from removing the allocation. */
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
