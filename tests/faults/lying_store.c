/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Preloaded into a program, simulates a disk that lies: it flips one bit of the n-th write to a
 * regular file below a directory, and reports success.
 *
 *	LIE_UNDER  the directory, as readlink() of /proc/self/fd/N returns it; / for all files
 *	LIE_NTH    n, from 1
 *	LIE_AT     the byte, counted from the end of the write if negative (default: 0)
 *	LIE_MARK   a file that is created when the lie has happened
 *
 * These variables replace the flipped bit by another lie:
 *
 *	LIE_SHIFT  the n-th write is stored so many bytes after its position
 *	LIE_CUT    the file is truncated to so many bytes, as another process might do it, at
 *	           the n-th search for its data (SEEK_DATA); with LIE_CUT_WRITTEN right after the
 *	           n-th write
 *	LIE_FAIL   the n-th fstat, lseek, fcntl or fsync of such a file fails with EIO; or poll:
 *	           the n-th poll of a conductor fails while a temporary is in the directory, with
 *	           LIE_LASTING all later ones too
 *	LIE_STALE  as over NFS, fstat reports the first ctime of a file until AT_STATX_FORCE_SYNC
 */

/* So that fstat() and fstat64(), for example, are two functions here. */
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

static atomic_long calls;

static int is_below(int fd)
{
	const char *under = getenv("LIE_UNDER");
	char link[64], path[PATH_MAX];
	struct stat st;
	ssize_t n;

	if (!under || fstatat(fd, "", &st, AT_EMPTY_PATH) || !S_ISREG(st.st_mode))
		return 0;
	/* A program in a chroot has no /proc. */
	if (strcmp(under, "/") == 0)
		return 1;
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof path - 1);
	if (n < 0)
		return 0;
	path[n] = '\0';
	return strncmp(path, under, strlen(under)) == 0;
}

static void mark_lie(void)
{
	const char *mark = getenv("LIE_MARK");
	int fd = mark ? open(mark, O_WRONLY | O_CREAT | O_CLOEXEC, 0600) : -1;

	if (fd >= 0)
		close(fd);
}

/* Returns a copy with one flipped bit, or NULL if this is not the n-th write. It is aligned because
 * the file may be open for direct I/O. */
static void *flip_bit(int fd, const void *buf, size_t len)
{
	const char *nth = getenv("LIE_NTH"), *at = getenv("LIE_AT");
	long byte = at ? atol(at) : 0;
	void *copy;

	if (len == 0 || getenv("LIE_CUT") || getenv("LIE_FAIL") || getenv("LIE_SHIFT") ||
	    !is_below(fd) || atomic_fetch_add(&calls, 1) + 1 != (nth ? atol(nth) : 1))
		return NULL;
	if (posix_memalign(&copy, 4096, len))
		return NULL;
	memcpy(copy, buf, len);
	((char *)copy)[byte < 0 ? (len - 1) - (size_t)(-byte - 1) % len : (size_t)byte % len] ^= 1;
	mark_lie();
	return copy;
}

static void truncate_file(int fd, bool written)
{
	const char *nth = getenv("LIE_NTH"), *to = getenv("LIE_CUT");
	char link[64];

	if (!to || written != (getenv("LIE_CUT_WRITTEN") != NULL) || !is_below(fd) ||
	    atomic_fetch_add(&calls, 1) + 1 != (nth ? atol(nth) : 1))
		return;
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	if (truncate(link, atol(to)) == 0)
		mark_lie();
}

static int fails_now(const char *call, int fd)
{
	const char *nth = getenv("LIE_NTH"), *which = getenv("LIE_FAIL");

	if (!which || strcmp(which, call) != 0 || !is_below(fd) ||
	    atomic_fetch_add(&calls, 1) + 1 != (nth ? atol(nth) : 1))
		return 0;
	mark_lie();
	errno = EIO;
	return 1;
}

/* Returns by how many bytes this write is shifted. */
static off64_t shift_of_write(int fd)
{
	const char *nth = getenv("LIE_NTH"), *by = getenv("LIE_SHIFT");

	if (!by || !is_below(fd) || atomic_fetch_add(&calls, 1) + 1 != (nth ? atol(nth) : 1))
		return 0;
	mark_lie();
	return atol(by);
}

/* LIE_STALE: the first ctime of each file, and whether the program has asked the server since. */
static struct {
	atomic_ullong ino, seconds, nanoseconds;
	atomic_bool asked;
} known[64];

static void make_stale(ino_t ino, struct timespec *ctime)
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
		make_stale(st->st_ino, &st->st_ctim);
	return ret;
}

int fstatat64(int dirfd, const char *name, struct stat64 *st, int flags)
{
	int (*real)(int, const char *, struct stat64 *, int) =
		(int (*)(int, const char *, struct stat64 *, int))dlsym(RTLD_NEXT, "fstatat64");
	int ret = real(dirfd, name, st, flags);

	if (ret == 0 && S_ISREG(st->st_mode))
		make_stale(st->st_ino, &st->st_ctim);
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
	return fails_now("fstat", fd) ? -1 : fstatat(fd, "", st, AT_EMPTY_PATH);
}

int fstat64(int fd, struct stat64 *st)
{
	return fails_now("fstat", fd) ? -1 : fstatat64(fd, "", st, AT_EMPTY_PATH);
}

int fsync(int fd)
{
	int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");

	return fails_now("fsync", fd) ? -1 : real(fd);
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
	/* Only a conductor waits for so many descriptors. */
	enum { OF_CONDUCTOR = 8 };
	const char *which = getenv("LIE_FAIL");
	long nth = getenv("LIE_NTH") ? atol(getenv("LIE_NTH")) : 1, now;

	if (count < OF_CONDUCTOR || !which || strcmp(which, "poll") != 0 ||
	    (atomic_load(&calls) < nth && !has_temporary(getenv("LIE_UNDER"))))
		return 0;
	now = atomic_fetch_add(&calls, 1) + 1;
	if (now < nth || (now > nth && !getenv("LIE_LASTING")))
		return 0;
	mark_lie();
	errno = ENOMEM;
	return 1;
}

int poll(struct pollfd *fds, nfds_t count, int ms)
{
	int (*real)(struct pollfd *, nfds_t, int) =
		(int (*)(struct pollfd *, nfds_t, int))dlsym(RTLD_NEXT, "poll");

	return poll_fails(count) ? -1 : real(fds, count, ms);
}

/* A build with _FORTIFY_SOURCE calls this instead of poll(). */
int __poll_chk(struct pollfd *fds, nfds_t count, int ms, size_t room);
int __poll_chk(struct pollfd *fds, nfds_t count, int ms, size_t room)
{
	(void)room;
	return poll(fds, count, ms);
}

static int control(const char *name, int fd, int op, void *arg)
{
	int (*real)(int, int, ...) = (int (*)(int, int, ...))dlsym(RTLD_NEXT, name);

	return fails_now("fcntl", fd) ? -1 : real(fd, op, arg);
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

	if (fails_now("lseek", fd))
		return -1;
	if (whence == SEEK_DATA)
		truncate_file(fd, false);
	return real(fd, pos, whence);
}

off64_t lseek64(int fd, off64_t pos, int whence)
{
	off64_t (*real)(int, off64_t, int) =
		(off64_t(*)(int, off64_t, int))dlsym(RTLD_NEXT, "lseek64");

	if (fails_now("lseek", fd))
		return -1;
	if (whence == SEEK_DATA)
		truncate_file(fd, false);
	return real(fd, pos, whence);
}

ssize_t write(int fd, const void *buf, size_t len)
{
	write_call *real = (write_call *)dlsym(RTLD_NEXT, "write");
	void *wrong = flip_bit(fd, buf, len);
	ssize_t n = real(fd, wrong ? wrong : buf, len);

	free(wrong);
	return n;
}

ssize_t pwrite(int fd, const void *buf, size_t len, off_t pos)
{
	pwrite_call *real = (pwrite_call *)dlsym(RTLD_NEXT, "pwrite");
	void *wrong = flip_bit(fd, buf, len);
	ssize_t n = real(fd, wrong ? wrong : buf, len, pos + shift_of_write(fd));

	truncate_file(fd, true);
	free(wrong);
	return n;
}

ssize_t pwrite64(int fd, const void *buf, size_t len, off64_t pos)
{
	pwrite64_call *real = (pwrite64_call *)dlsym(RTLD_NEXT, "pwrite64");
	void *wrong = flip_bit(fd, buf, len);
	ssize_t n = real(fd, wrong ? wrong : buf, len, pos + shift_of_write(fd));

	truncate_file(fd, true);
	free(wrong);
	return n;
}
