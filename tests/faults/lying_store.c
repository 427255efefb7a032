/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A disk that lies: preloaded into a program, it flips one bit of the n-th write to a regular
 * file below a directory, and says that all is well.
 *
 *	LIE_UNDER  the directory, as /proc/self/fd names it
 *	LIE_NTH    which write, from 1
 *	LIE_AT     the byte of it, counted from its end when negative (default: 0)
 *	LIE_TOLD   a file that is made when it was done
 *
 * With LIE_CUT it does that to no write, but cuts the file to so many bytes when somebody looks for
 * its data (SEEK_DATA) the n-th time, as another process might; with LIE_CUT_WRITTEN too, right
 * after the n-th write.
 *
 * With LIE_FAIL (fstat, lseek, fcntl or fsync) it lets the n-th such call on one of these files
 * fail with EIO. With LIE_SHIFT the n-th write is stored so many bytes further on.
 *
 * LIE_FAIL=poll is the n-th of a conductor, which waits for more than others do, while a temporary
 *is in that directory; with LIE_LASTING all that follow, too.
 */

/* Each by its own name: not the ones that this would make of them. */
#undef _FILE_OFFSET_BITS
#undef _TIME_BITS

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

typedef ssize_t write_call(int, const void *, size_t);
typedef ssize_t pwrite_call(int, const void *, size_t, off_t);
typedef ssize_t pwrite64_call(int, const void *, size_t, off64_t);

static atomic_long writes;

static int is_below(int fd)
{
	const char *under = getenv("LIE_UNDER");
	char link[64], path[PATH_MAX];
	struct stat st;
	ssize_t n;

	if (!under || fstatat(fd, "", &st, AT_EMPTY_PATH) || !S_ISREG(st.st_mode))
		return 0;
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof path - 1);
	if (n < 0)
		return 0;
	path[n] = '\0';
	return strncmp(path, under, strlen(under)) == 0;
}

static void tell(void)
{
	const char *told = getenv("LIE_TOLD");
	int fd = told ? open(told, O_WRONLY | O_CREAT | O_CLOEXEC, 0600) : -1;

	if (fd >= 0)
		close(fd);
}

/* A copy with one bit wrong; NULL: not this time. Aligned, since the file may be open for direct
 * I/O. */
static void *lie(int fd, const void *buf, size_t len)
{
	const char *nth = getenv("LIE_NTH"), *at = getenv("LIE_AT");
	long byte = at ? atol(at) : 0;
	void *copy;

	if (len == 0 || getenv("LIE_CUT") || getenv("LIE_FAIL") || getenv("LIE_SHIFT") ||
	    !is_below(fd) || atomic_fetch_add(&writes, 1) + 1 != (nth ? atol(nth) : 1))
		return NULL;
	if (posix_memalign(&copy, 4096, len))
		return NULL;
	memcpy(copy, buf, len);
	((char *)copy)[byte < 0 ? (len - 1) - (size_t)(-byte - 1) % len : (size_t)byte % len] ^= 1;
	tell();
	return copy;
}

static void cut(int fd, bool written)
{
	const char *nth = getenv("LIE_NTH"), *to = getenv("LIE_CUT");
	char link[64];

	if (!to || written != (getenv("LIE_CUT_WRITTEN") != NULL) || !is_below(fd) ||
	    atomic_fetch_add(&writes, 1) + 1 != (nth ? atol(nth) : 1))
		return;
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	if (truncate(link, atol(to)) == 0)
		tell();
}

static int fails(const char *call, int fd)
{
	const char *nth = getenv("LIE_NTH"), *which = getenv("LIE_FAIL");

	if (!which || strcmp(which, call) != 0 || !is_below(fd) ||
	    atomic_fetch_add(&writes, 1) + 1 != (nth ? atol(nth) : 1))
		return 0;
	tell();
	errno = EIO;
	return 1;
}

/* How much further on a write goes. */
static off64_t shift(int fd)
{
	const char *nth = getenv("LIE_NTH"), *by = getenv("LIE_SHIFT");

	if (!by || !is_below(fd) || atomic_fetch_add(&writes, 1) + 1 != (nth ? atol(nth) : 1))
		return 0;
	tell();
	return atol(by);
}

/* LIE_STALE: a file's ctime is what it was at first, as over NFS, until somebody asks the server.
 */
static struct {
	atomic_ullong ino, seconds, nanoseconds;
	atomic_bool asked;
} known[64];

static void age(ino_t ino, struct timespec *ctime)
{
	unsigned at = ino % 64;
	unsigned long long none = 0;

	if (!getenv("LIE_STALE"))
		return;
	if (atomic_compare_exchange_strong(&known[at].ino, &none, ino)) {
		atomic_store(&known[at].seconds, (unsigned long long)ctime->tv_sec);
		atomic_store(&known[at].nanoseconds, (unsigned long long)ctime->tv_nsec);
	} else if (none == ino && !atomic_load(&known[at].asked)) {
		ctime->tv_sec = (time_t)atomic_load(&known[at].seconds);
		ctime->tv_nsec = (long)atomic_load(&known[at].nanoseconds);
	}
}

int fstatat(int dirfd, const char *name, struct stat *st, int flags)
{
	int (*real)(int, const char *, struct stat *, int) =
		(int (*)(int, const char *, struct stat *, int))dlsym(RTLD_NEXT, "fstatat");
	int ret = real(dirfd, name, st, flags);

	if (ret == 0 && S_ISREG(st->st_mode))
		age(st->st_ino, &st->st_ctim);
	return ret;
}

int fstatat64(int dirfd, const char *name, struct stat64 *st, int flags)
{
	int (*real)(int, const char *, struct stat64 *, int) =
		(int (*)(int, const char *, struct stat64 *, int))dlsym(RTLD_NEXT, "fstatat64");
	int ret = real(dirfd, name, st, flags);

	if (ret == 0 && S_ISREG(st->st_mode))
		age(st->st_ino, &st->st_ctim);
	return ret;
}

int statx(int dirfd, const char *name, int flags, unsigned mask, struct statx *st)
{
	int (*real)(int, const char *, int, unsigned, struct statx *) =
		(int (*)(int, const char *, int, unsigned, struct statx *))dlsym(RTLD_NEXT,
										 "statx");
	int ret = real(dirfd, name, flags, mask, st);

	if (ret == 0 && (flags & AT_STATX_FORCE_SYNC) && known[st->stx_ino % 64].ino == st->stx_ino)
		known[st->stx_ino % 64].asked = true;
	return ret;
}

int fstat(int fd, struct stat *st)
{
	return fails("fstat", fd) ? -1 : fstatat(fd, "", st, AT_EMPTY_PATH);
}

int fstat64(int fd, struct stat64 *st)
{
	return fails("fstat", fd) ? -1 : fstatat64(fd, "", st, AT_EMPTY_PATH);
}

int fsync(int fd)
{
	int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");

	return fails("fsync", fd) ? -1 : real(fd);
}

static int has_temporary(const char *directory)
{
	DIR *dir = directory ? opendir(directory) : NULL;
	const struct dirent *e;
	int found = 0;

	while (dir && !found && (e = readdir(dir)) != NULL)
		found = strncmp(e->d_name, ".sluice.", 8) == 0;
	if (dir)
		closedir(dir);
	return found;
}

static int poll_fails(nfds_t count)
{
	enum { OF_CONDUCTOR = 8 };
	const char *which = getenv("LIE_FAIL");
	long nth = getenv("LIE_NTH") ? atol(getenv("LIE_NTH")) : 1, now;

	if (count < OF_CONDUCTOR || !which || strcmp(which, "poll") != 0 ||
	    (atomic_load(&writes) < nth && !has_temporary(getenv("LIE_UNDER"))))
		return 0;
	now = atomic_fetch_add(&writes, 1) + 1;
	if (now < nth || (now > nth && !getenv("LIE_LASTING")))
		return 0;
	tell();
	errno = ENOMEM;
	return 1;
}

int poll(struct pollfd *fds, nfds_t count, int ms)
{
	int (*real)(struct pollfd *, nfds_t, int) =
		(int (*)(struct pollfd *, nfds_t, int))dlsym(RTLD_NEXT, "poll");

	return poll_fails(count) ? -1 : real(fds, count, ms);
}

/* What poll() is in a build with _FORTIFY_SOURCE. */
int __poll_chk(struct pollfd *fds, nfds_t count, int ms, size_t room);
int __poll_chk(struct pollfd *fds, nfds_t count, int ms, size_t room)
{
	(void)room;
	return poll(fds, count, ms);
}

static int control(const char *name, int fd, int op, void *arg)
{
	int (*real)(int, int, ...) = (int (*)(int, int, ...))dlsym(RTLD_NEXT, name);

	return fails("fcntl", fd) ? -1 : real(fd, op, arg);
}

int fcntl(int fd, int op, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, op);
	arg = va_arg(ap, void *);
	va_end(ap);
	return control("fcntl", fd, op, arg);
}

int fcntl64(int fd, int op, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, op);
	arg = va_arg(ap, void *);
	va_end(ap);
	return control("fcntl64", fd, op, arg);
}

off_t lseek(int fd, off_t pos, int whence)
{
	off_t (*real)(int, off_t, int) = (off_t(*)(int, off_t, int))dlsym(RTLD_NEXT, "lseek");

	if (fails("lseek", fd))
		return -1;
	if (whence == SEEK_DATA)
		cut(fd, false);
	return real(fd, pos, whence);
}

off64_t lseek64(int fd, off64_t pos, int whence)
{
	off64_t (*real)(int, off64_t, int) =
		(off64_t(*)(int, off64_t, int))dlsym(RTLD_NEXT, "lseek64");

	if (fails("lseek", fd))
		return -1;
	if (whence == SEEK_DATA)
		cut(fd, false);
	return real(fd, pos, whence);
}

ssize_t write(int fd, const void *buf, size_t len)
{
	write_call *real = (write_call *)dlsym(RTLD_NEXT, "write");
	void *wrong = lie(fd, buf, len);
	ssize_t n = real(fd, wrong ? wrong : buf, len);

	free(wrong);
	return n;
}

ssize_t pwrite(int fd, const void *buf, size_t len, off_t pos)
{
	pwrite_call *real = (pwrite_call *)dlsym(RTLD_NEXT, "pwrite");
	void *wrong = lie(fd, buf, len);
	ssize_t n = real(fd, wrong ? wrong : buf, len, pos + shift(fd));

	cut(fd, true);
	free(wrong);
	return n;
}

ssize_t pwrite64(int fd, const void *buf, size_t len, off64_t pos)
{
	pwrite64_call *real = (pwrite64_call *)dlsym(RTLD_NEXT, "pwrite64");
	void *wrong = lie(fd, buf, len);
	ssize_t n = real(fd, wrong ? wrong : buf, len, pos + shift(fd));

	cut(fd, true);
	free(wrong);
	return n;
}
