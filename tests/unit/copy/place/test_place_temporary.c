/* SPDX-License-Identifier: Apache-2.0 */

/* A file system that fails right after a temporary was made. */

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/file.h>
#include <unistd.h>
#include <cmocka.h>
#undef fail

#include "copy/place/place_temporary.h"
#include "place_rig.h"

static int fstat_fails; /* how often, and with which errno */
static int fails_with;

/* Replaces the C library's function. */
int fstat(int fd, struct stat *st)
{
	if (fstat_fails > 0) {
		fstat_fails--;
		errno = fails_with;
		return -1;
	}
	return fstatat(fd, "", st, AT_EMPTY_PATH);
}

static void temporary_that_cannot_be_examined_is_removed(void **state)
{
	int dirfd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct temporary t;

	(void)state;
	for (int adopts = 0; adopts < 2; adopts++) {
		fstat_fails = 1;
		fails_with = EIO;
		assert_int_equal(temporary_open(dirfd, adopts, "f", geteuid(), geteuid(), &t), -1);
		assert_int_equal(errno, EIO);
		assert_int_equal(fstat_fails, 0);
		assert_no_temporaries();
	}
	close(dirfd);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(temporary_that_cannot_be_examined_is_removed,
						folder_enter, folder_leave),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
