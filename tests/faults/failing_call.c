/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Preloaded into a program, makes certain calls fail or wait (see tests/rig/faulty.py):
 *
 *	FAIL_CALL   open, fstatat, unlinkat, fdopendir, accept, connect, fchmod, malloc or realloc
 *	FAIL_NAME   open, fstatat and unlinkat of this name fail, and fdopendir of a directory with
 *	            this last component; accept, connect and fchmod always fail
 *	FAIL_TIMES  accept fails only so many times in a process
 *	FAIL_SIZE   malloc and realloc of so many bytes fail
 *	FAIL_ERRNO  the errno (default: EIO); 0: fdopendir fails with errno 0
 *	FAIL_MARK   a file that is created when a call fails
 *	FAIL_KILL   the process is killed instead; `parent': its parent is, and unlinkat succeeds
 *	SLOW_FORK   fork takes so many ms longer
 *	SLOW_UNLINK unlinkat of FAIL_NAME takes so many ms longer
 */

/* So that open() and open64() are two functions here. */
#undef _FILE_OFFSET_BITS
#undef _TIME_BITS

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_realloc(void *old, size_t size);

static int is_call(const char *call)
{
	const char *wanted = getenv("FAIL_CALL");

	return wanted && strcmp(wanted, call) == 0;
}

static int fail_now(void)
{
	const char *mark = getenv("FAIL_MARK"), *code = getenv("FAIL_ERRNO");
	const char *victim = getenv("FAIL_KILL");
	int fd = mark ? open(mark, O_WRONLY | O_CREAT | O_CLOEXEC, 0600) : -1;

	if (fd >= 0)
		close(fd);
	if (victim && strcmp(victim, "parent") == 0) {
		kill(getppid(), SIGKILL);
		sleep(1);
		return 0;
	}
	if (victim)
		kill(getpid(), SIGKILL);
	errno = code ? atoi(code) : EIO;
	return -1;
}

/* slow: the variable with the ms */
static void take_time(const char *slow)
{
	const char *ms = getenv(slow);
	long left = ms ? atol(ms) : 0;
	struct timespec t = {.tv_sec = left / 1000, .tv_nsec = left % 1000 * 1000000};

	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

static int is_named(const char *call, const char *name)
{
	const char *wanted = getenv("FAIL_NAME");

	return is_call(call) && wanted && strcmp(wanted, name) == 0;
}

static int is_sized(const char *call, size_t size)
{
	const char *wanted = getenv("FAIL_SIZE");

	return is_call(call) && wanted && (size_t)atol(wanted) == size;
}

int fstatat(int dirfd, const char *name, struct stat *st, int flags)
{
	int (*real)(int, const char *, struct stat *, int) =
		(int (*)(int, const char *, struct stat *, int))dlsym(RTLD_NEXT, "fstatat");

	return is_named("fstatat", name) ? fail_now() : real(dirfd, name, st, flags);
}

int fstatat64(int dirfd, const char *name, struct stat64 *st, int flags)
{
	int (*real)(int, const char *, struct stat64 *, int) =
		(int (*)(int, const char *, struct stat64 *, int))dlsym(RTLD_NEXT, "fstatat64");

	return is_named("fstatat", name) ? fail_now() : real(dirfd, name, st, flags);
}

int unlinkat(int dirfd, const char *name, int flags)
{
	int (*real)(int, const char *, int) =
		(int (*)(int, const char *, int))dlsym(RTLD_NEXT, "unlinkat");
	const char *slow = getenv("FAIL_NAME");

	if (slow && strcmp(slow, name) == 0)
		take_time("SLOW_UNLINK");
	return is_named("unlinkat", name) && fail_now() ? -1 : real(dirfd, name, flags);
}

int accept4(int fd, struct sockaddr *from, socklen_t *len, int flags)
{
	static atomic_int times;
	int (*real)(int, struct sockaddr *, socklen_t *, int) =
		(int (*)(int, struct sockaddr *, socklen_t *, int))dlsym(RTLD_NEXT, "accept4");
	const char *most = getenv("FAIL_TIMES");

	if (!is_call("accept") || (most && times++ >= atoi(most)))
		return real(fd, from, len, flags);
	return fail_now();
}

int connect(int fd, const struct sockaddr *to, socklen_t len)
{
	int (*real)(int, const struct sockaddr *, socklen_t) =
		(int (*)(int, const struct sockaddr *, socklen_t))dlsym(RTLD_NEXT, "connect");

	return is_call("connect") ? fail_now() : real(fd, to, len);
}

int fchmod(int fd, mode_t mode)
{
	int (*real)(int, mode_t) = (int (*)(int, mode_t))dlsym(RTLD_NEXT, "fchmod");

	return is_call("fchmod") ? fail_now() : real(fd, mode);
}

pid_t fork(void)
{
	pid_t (*real)(void) = (pid_t(*)(void))dlsym(RTLD_NEXT, "fork");

	take_time("SLOW_FORK");
	return real();
}

static int open_or_fail(const char *call, const char *path, int flags, mode_t mode)
{
	int (*real)(const char *, int, ...) =
		(int (*)(const char *, int, ...))dlsym(RTLD_NEXT, call);

	return is_named("open", path) ? fail_now() : real(path, flags, mode);
}

static mode_t mode_of(int flags, va_list more)
{
	return flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;
}

int open(const char *path, int flags, ...)
{
	va_list more;
	mode_t mode;

	va_start(more, flags);
	mode = mode_of(flags, more);
	va_end(more);
	return open_or_fail("open", path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
	va_list more;
	mode_t mode;

	va_start(more, flags);
	mode = mode_of(flags, more);
	va_end(more);
	return open_or_fail("open64", path, flags, mode);
}

DIR *fdopendir(int fd)
{
	DIR *(*real)(int) = (DIR * (*)(int)) dlsym(RTLD_NEXT, "fdopendir");
	char link[64], path[PATH_MAX];
	ssize_t n;

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof path - 1);
	path[n > 0 ? n : 0] = '\0';
	if (!is_named("fdopendir", strrchr(path, '/') ? strrchr(path, '/') + 1 : path))
		return real(fd);
	fail_now();
	return NULL;
}

void *malloc(size_t size)
{
	if (!is_sized("malloc", size))
		return __libc_malloc(size);
	fail_now();
	return NULL;
}

void *realloc(void *old, size_t size)
{
	if (!is_sized("realloc", size))
		return __libc_realloc(old, size);
	fail_now();
	return NULL;
}
