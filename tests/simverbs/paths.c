/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The host's /sys and /dev as far as they are about RDMA: calls that name /sys/class/infiniband,
 * infiniband_verbs or misc/rdma_cm, /sys/kernel/config/rdma_cm or /dev/infiniband go to the
 * simulated host's directory, and those below /sys/class/net if it has the file. The programs are
 * linked with libibverbs, so these functions come before the C library's.
 *
 * Programs with 64-bit offsets call the names with 64; on the machines that this runs on both are
 * the same function.
 */

/* Else <fcntl.h> would make open another name of open64. */
#undef _FILE_OFFSET_BITS
#undef _TIME_BITS
/* No checks in place of the functions themselves. */
#undef _FORTIFY_SOURCE

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "host.h"
#include "misuse.h"
#include "plug.h"

/* The C library's function of this name, or what a preloaded library makes of it. */
static void *find_next(const char *name)
{
	void *f = dlsym(RTLD_NEXT, name);

	if (!f)
		misuse("the C library has no %s", name);
	return f;
}

#define NEXT(name, result, ...)                                                                    \
	static _Atomic(void *) found;                                                              \
	result (*next)(__VA_ARGS__);                                                               \
	void *symbol = atomic_load(&found);                                                        \
	if (!symbol)                                                                               \
		atomic_store(&found, symbol = find_next(name));                                    \
	*(void **)&next = symbol;

static bool is_below(const char *path, const char *top)
{
	size_t n = strlen(top);

	return strncmp(path, top, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

/* The adapter below whose directory a path is; NULL: none. */
static const struct host_adapter *find_adapter(const char *path)
{
	static const char devices[] = "/sys/class/infiniband/";
	char name[HOST_NAME];
	unsigned uverbs;

	if (strncmp(path, devices, sizeof devices - 1) == 0) {
		snprintf(name, sizeof name, "%.*s", (int)strcspn(path + sizeof devices - 1, "/"),
			 path + sizeof devices - 1);
		return host_find_adapter(name);
	}
	if (sscanf(path, "/sys/class/infiniband_verbs/uverbs%u", &uverbs) == 1 && host_get() &&
	    uverbs < host_get()->adapter_count)
		return &host_get()->adapters[uverbs];
	return NULL;
}

static bool is_idle_state(const struct host_adapter *a, const char *path)
{
	const char *ports = strstr(path, "/ports/"), *name = strrchr(path, '/');

	return a && ports && (!strcmp(name, "/state") || !strcmp(name, "/phys_state")) &&
	       plug_look_down(a, (unsigned)strtoul(ports + 7, NULL, 10));
}

/* Network devices and memory nodes are real, but for what the host's directory has of them. */
static const char *redirect_real(const char *top, const char *path, char room[PATH_MAX])
{
	struct stat st;

	snprintf(room, PATH_MAX, "%s%s", top, path);
	return strcmp(path, "/sys/class/net") != 0 && lstat(room, &st) == 0 ? room : path;
}

/* The path to use instead: in room, or the same. */
static const char *redirect(const char *path, char room[PATH_MAX])
{
	const struct host_adapter *a;
	const char *top;

	if (!path || (strncmp(path, "/sys/", 5) && strncmp(path, "/dev/", 5)))
		return path;
	top = host_top();
	if (top && (is_below(path, "/sys/class/net") || is_below(path, "/sys/devices/system/node")))
		return redirect_real(top, path, room);
	if (!is_below(path, "/sys/class/infiniband") &&
	    !is_below(path, "/sys/class/infiniband_verbs") &&
	    !is_below(path, "/sys/class/misc/rdma_cm") &&
	    !is_below(path, "/sys/kernel/config/rdma_cm") && !is_below(path, "/dev/infiniband"))
		return path;
	if (!top)
		return path;
	a = find_adapter(path);
	/* make_host.py: the same host without its adapters, and what an idle port's files hold. */
	if (plug_is_pulled(a) && !is_below(path, "/dev/infiniband/rdma_cm"))
		snprintf(room, PATH_MAX, "%s/pulled-out%s", top, path);
	else if (is_idle_state(a, path))
		snprintf(room, PATH_MAX, "%s/idle%s", top, strrchr(path, '/'));
	else
		snprintf(room, PATH_MAX, "%s%s", top, path);
	return room;
}

#define OPEN(exported, name)                                                                       \
	EXPORT int exported(const char *path, int flags, ...);                                     \
	EXPORT int exported(const char *path, int flags, ...)                                      \
	{                                                                                          \
		char room[PATH_MAX];                                                               \
		mode_t mode = 0;                                                                   \
		va_list ap;                                                                        \
		NEXT(name, int, const char *, int, ...)                                            \
		va_start(ap, flags);                                                               \
		if (flags & (O_CREAT | __O_TMPFILE))                                               \
			mode = va_arg(ap, mode_t);                                                 \
		va_end(ap);                                                                        \
		return next(redirect(path, room), flags, mode);                                    \
	}
OPEN(open, "open")
OPEN(open64, "open64")

EXPORT int __open64_2(const char *path, int flags);
EXPORT int __open64_2(const char *path, int flags)
{
	char room[PATH_MAX];
	NEXT("__open64_2", int, const char *, int)

	return next(redirect(path, room), flags);
}

EXPORT FILE *fopen(const char *path, const char *mode)
{
	char room[PATH_MAX];
	NEXT("fopen", FILE *, const char *, const char *)

	return next(redirect(path, room), mode);
}

EXPORT FILE *fopen64(const char *path, const char *mode)
{
	char room[PATH_MAX];
	NEXT("fopen64", FILE *, const char *, const char *)

	return next(redirect(path, room), mode);
}

EXPORT DIR *opendir(const char *path)
{
	char room[PATH_MAX];
	NEXT("opendir", DIR *, const char *)

	return next(redirect(path, room));
}

EXPORT int scandir64(const char *path, struct dirent64 ***names,
		     int (*filter)(const struct dirent64 *),
		     int (*compare)(const struct dirent64 **, const struct dirent64 **))
{
	char room[PATH_MAX];
	NEXT("scandir64", int, const char *, struct dirent64 ***, int (*)(const struct dirent64 *),
	     int (*)(const struct dirent64 **, const struct dirent64 **))

	return next(redirect(path, room), names, filter, compare);
}

EXPORT int access(const char *path, int mode)
{
	char room[PATH_MAX];
	NEXT("access", int, const char *, int)

	return next(redirect(path, room), mode);
}

EXPORT char *realpath(const char *path, char *to)
{
	char room[PATH_MAX];
	NEXT("realpath", char *, const char *, char *)

	return next(redirect(path, room), to);
}

EXPORT char *__realpath_chk(const char *path, char *to, size_t size);
EXPORT char *__realpath_chk(const char *path, char *to, size_t size)
{
	char room[PATH_MAX];
	NEXT("__realpath_chk", char *, const char *, char *, size_t)

	return next(redirect(path, room), to, size);
}

EXPORT ssize_t readlink(const char *path, char *to, size_t size)
{
	char room[PATH_MAX];
	NEXT("readlink", ssize_t, const char *, char *, size_t)

	return next(redirect(path, room), to, size);
}

EXPORT int stat64(const char *path, struct stat64 *st)
{
	char room[PATH_MAX];
	NEXT("stat64", int, const char *, struct stat64 *)

	return next(redirect(path, room), st);
}
