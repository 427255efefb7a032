/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/conductor/login_turn.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/io.h"

enum { TYPED_MS = 1500 }; /* nobody types a password in less */

int login_turns_open(void)
{
	int terminal = RETRIED(open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY));

	if (terminal < 0)
		return -1;
	close_fd(terminal);
	/* A quick login writes one byte to it. */
	return memfd_create("logins", MFD_CLOEXEC);
}

static void set_turn_lock(int fd, short type)
{
	struct flock l = {.l_type = type, .l_whence = SEEK_SET, .l_len = 1};

	while (fcntl(fd, F_SETLKW, &l) < 0 && errno == EINTR)
		;
}

uint64_t login_turn_begin(int fd)
{
	char quick;

	if (fd >= 0) {
		set_turn_lock(fd, F_WRLCK);
		if (pread(fd, &quick, 1, 0) == 1)
			set_turn_lock(fd, F_UNLCK);
	}
	return clock_ms();
}

void login_turn_end(int fd, uint64_t began_ms)
{
	if (fd < 0)
		return;
	if (clock_ms() - began_ms < TYPED_MS)
		(void)!pwrite(fd, "q", 1, 0);
	set_turn_lock(fd, F_UNLCK);
}
