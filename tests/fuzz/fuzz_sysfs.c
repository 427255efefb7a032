/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel and the administrator provide: /sys, /proc and /etc/security. An input is lines:
 * "/" and a path begin a file, a tab begins a line of it, a blank begins text without a newline,
 * and "@", a path, a tab and a target are a symlink. The target makes them below a directory in
 * memory, and no link that leads out of it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>
#include "base/cpu.h"
#include "cmd/check/survey.h"
#include "cmd/conductor/loopback.h"
#include "expect.h"
#include "host/numa.h"
#include "host/sysfs.h"
#include "session/connect/nics.h"

enum { INPUT_MAX = 24 << 10, DEEP_MAX = 16, NODES = 3 };

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char top[] = "/dev/shm/fuzz-sysfs-XXXXXX";
static int top_fd;
static rlim_t lockable;

static void remove_top(void)
{
	rmdir(top);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	expect(mkdtemp(top) && atexit(remove_top) == 0);
	top_fd = open(top, O_PATH | O_DIRECTORY | O_CLOEXEC);
	expect(top_fd >= 0);
	return 0;
}

/* ---- replace calls that would ask this host (-Wl,--wrap); files have 64-bit offsets -----------
 */

int __wrap_open64(const char *path, int flags, ...);
FILE *__wrap_fopen64(const char *path, const char *mode);
FILE *__real_fopen64(const char *path, const char *mode);
char *__wrap_realpath(const char *path, char *to);
char *__real_realpath(const char *path, char *to);
int __wrap_scandir64(const char *path, struct dirent ***names, int (*choose)(const struct dirent *),
		     int (*order)(const struct dirent **, const struct dirent **));
int __real_scandir64(const char *path, struct dirent ***names, int (*choose)(const struct dirent *),
		     int (*order)(const struct dirent **, const struct dirent **));
bool __wrap_verbs_behind(const union address *local);
int __wrap_uname(struct utsname *u);
int __wrap_getrlimit64(__rlimit_resource_t what, struct rlimit *to);
int __wrap_getpeername(int fd, struct sockaddr *at, socklen_t *len);
int __wrap_getsockname(int fd, struct sockaddr *at, socklen_t *len);

/* Prefixes paths in /proc and /sys with the directory. */
static const char *below_top(const char *path, char to[static PATH_MAX])
{
	bool away = strncmp(path, "/proc/", 6) == 0 || strncmp(path, "/sys/", 5) == 0;

	snprintf(to, PATH_MAX, "%s%.*s", away ? top : "", PATH_MAX - 64, path);
	return to;
}

int __wrap_open64(const char *path, int flags, ...)
{
	char at[PATH_MAX];

	return openat(AT_FDCWD, below_top(path, at), flags, 0600);
}

FILE *__wrap_fopen64(const char *path, const char *mode)
{
	char at[PATH_MAX];

	return __real_fopen64(below_top(path, at), mode);
}

char *__wrap_realpath(const char *path, char *to)
{
	char at[PATH_MAX];

	return __real_realpath(below_top(path, at), to);
}

int __wrap_scandir64(const char *path, struct dirent ***names, int (*choose)(const struct dirent *),
		     int (*order)(const struct dirent **, const struct dirent **))
{
	char at[PATH_MAX];

	return __real_scandir64(below_top(path, at), names, choose, order);
}

bool __wrap_verbs_behind(const union address *local)
{
	return local->sa.sa_family == AF_INET;
}

/* A release whose modules an input can have. */
int __wrap_uname(struct utsname *u)
{
	*u = (struct utsname){.release = "6.1.0"};
	return 0;
}

/* The limit of locked memory. */
int __wrap_getrlimit64(__rlimit_resource_t what, struct rlimit *to)
{
	(void)what;
	*to = (struct rlimit){.rlim_cur = lockable, .rlim_max = lockable};
	return 0;
}

static struct sockaddr_in on_loopback(uint16_t port)
{
	return (struct sockaddr_in){.sin_family = AF_INET,
				    .sin_port = htons(port),
				    .sin_addr = {htonl(INADDR_LOOPBACK)}};
}

int __wrap_getpeername(int fd, struct sockaddr *at, socklen_t *len)
{
	struct sockaddr_in is = on_loopback(0x1000);

	(void)fd;
	memcpy(at, &is, sizeof is);
	*len = sizeof is;
	return 0;
}

int __wrap_getsockname(int fd, struct sockaddr *at, socklen_t *len)
{
	struct sockaddr_in is = on_loopback(0x2000);

	(void)fd;
	memcpy(at, &is, sizeof is);
	*len = sizeof is;
	return 0;
}

/* Replaces the C library's function: the same addresses on every host. */
static struct {
	struct ifaddrs of;
	union address at, mask;
} interfaces[6];

static void add_interface(unsigned i, const char *name, int family, uint8_t first, uint8_t last)
{
	union address *a = &interfaces[i].at;

	*a = (union address){.sa = {.sa_family = (sa_family_t)family}};
	if (family == AF_INET) {
		a->in4.sin_addr.s_addr = htonl((uint32_t)first << 24 | last);
	} else {
		a->in6.sin6_addr.s6_addr[0] = first;
		a->in6.sin6_addr.s6_addr[1] = 0x80;
		a->in6.sin6_addr.s6_addr[15] = last;
	}
	interfaces[i].of = (struct ifaddrs){
		.ifa_next = i > 0 ? &interfaces[i - 1].of : NULL,
		.ifa_name = (char *)(uintptr_t)name,
		.ifa_flags = IFF_UP,
		.ifa_addr = &a->sa,
		.ifa_netmask = &interfaces[i].mask.sa,
	};
}

int getifaddrs(struct ifaddrs **out)
{
	add_interface(0, "lo", AF_INET, 127, 1);
	add_interface(1, "eth2", AF_INET, 10, 1);
	add_interface(2, "ib0", AF_INET, 10, 2);
	add_interface(3, "eth2.100", AF_INET6, 0xfd, 3);
	add_interface(4, "eth3:1", AF_INET, 10, 4);
	add_interface(5, "eth4", AF_INET6, 0xfc, 5);
	*out = &interfaces[5].of;
	return 0;
}

void freeifaddrs(struct ifaddrs *all)
{
	(void)all;
}

/* ---- making the tree --------------------------------------------------------------------------
 */

static int clear(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st, (void)type;
	expect(at->level == 0 || remove(path) == 0);
	return 0;
}

/* Opens the directory of a path, and makes it if necessary. Sets *deep to its depth and *path to
 * the last name. Returns -1 if the path is not allowed. */
static int enter(char **path, unsigned *deep)
{
	int at = fcntl(top_fd, F_DUPFD_CLOEXEC, 0);
	char *slash;

	for (*deep = 0; at >= 0 && (slash = strchr(*path, '/')); ++*deep) {
		int next;

		*slash = '\0';
		if (!**path || (*path)[0] == '.' || *deep == DEEP_MAX) {
			close(at);
			return -1;
		}
		mkdirat(at, *path, 0700);
		next = openat(at, *path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		close(at);
		at = next;
		*path = slash + 1;
	}
	return at;
}

static int make_file(char *path)
{
	unsigned deep;
	int at = enter(&path, &deep), fd = -1;

	if (at >= 0 && *path)
		fd = openat(at, path, O_CREAT | O_WRONLY | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (at >= 0)
		close(at);
	return fd;
}

/* Whether a link leads up to the top at most, and then only down, so that it never leads out. */
static bool stays(const char *target, unsigned deep)
{
	for (; strncmp(target, "..", 2) == 0; target += 2 + (target[2] == '/'))
		if (deep-- == 0 || (target[2] && target[2] != '/'))
			return false;
	return *target != '/' && !strstr(target, "..");
}

static void make_link(char *path)
{
	char *target = strchr(path, '\t');
	unsigned deep;
	int at;

	if (!target)
		return;
	*target++ = '\0';
	at = enter(&path, &deep);
	if (at >= 0 && *path && stays(target, deep))
		(void)!symlinkat(target, at, path);
	if (at >= 0)
		close(at);
}

static void make_tree(char *text)
{
	int fd = -1;
	char *line;

	while ((line = strsep(&text, "\n"))) {
		size_t len = strlen(line);

		if (*line == '/' || *line == '@') {
			if (fd >= 0)
				close(fd);
			fd = *line == '/' ? make_file(line + 1) : -1;
		}
		if (*line == '@')
			make_link(line + 1);
		if (*line == '\t' && fd >= 0)
			expect(dprintf(fd, "%s\n", line + 1) == (int)len);
		if (*line == ' ' && fd >= 0)
			expect(write(fd, line + 1, len - 1) == (ssize_t)len - 1);
	}
	if (fd >= 0)
		close(fd);
}

/* ---- reading it
 * ---------------------------------------------------------------------------------- */

static void on_found(void *ctx, const struct msg_finding *m)
{
	(void)ctx;
	expect(m->state <= FINDING_FAILURE && m->name[0] && m->what[0]);
}

static void read_adapter(const char *sys, const struct adapter *a)
{
	const union address at = {.in4 = {.sin_family = AF_INET, .sin_addr = {htonl(0x0a000001)}}};
	const union address at_6 = {.in6 = {.sin6_family = AF_INET6}};
	struct adapter_gid gid;
	struct adapter other;

	expect(a->port >= 1 && a->port <= 255 && a->pcie_now.width <= 32);
	expect(a->pcie_now.mtransfers <= 1000000 && strlen(adapter_kind_text(a->kind)) > 0);
	adapter_gid_for(sys, a, &at, &gid);
	adapter_gid_for(sys, a, &at_6, &gid);
	if (adapter_at_netdev(sys, a->netdev, &other))
		expect(other.port >= 1);
	expect(numa_node_of(sys, a->device) >= -1);
}

static void read_adapters(const char *sys)
{
	struct adapter *all;
	unsigned count;

	expect(adapters_list(sys, &all, &count) == 0 && count <= ADAPTERS_MAX);
	for (unsigned i = 0; i < count; i++)
		read_adapter(sys, &all[i]);
	free(all);
}

static void read_nodes(const char *sys)
{
	cpu_set_t all, some;

	memset(&all, 0xff, sizeof all);
	for (int i = -1; i < NODES; i++)
		if (numa_processors(sys, i, &all, &some))
			expect(i >= 0 && CPU_COUNT(&some) > 0);
}

/* Calls the readers that take no directory. */
static void read_in_place(void)
{
	const struct offer_rules rules = {.only = ""};
	const union address nobodys = {.in4 = {.sin_family = AF_INET}};
	struct sizing_for f;
	struct cpu_time t;
	struct adapter a;

	nics_find_links(&rules, true, 0, &f);
	expect(f.links >= 1);
	nics_find_links(&rules, true, 1, &f);
	expect(f.links == 1);
	nics_find_links(&rules, false, 2, &f);
	expect(f.links == 1);
	cpu_time_of(1, &t);
	expect(cpu_share() >= 1);
	expect(loopback_peer(top_fd) <= LOOPBACK_UNKNOWN);
	netdev_mtu(&interfaces[1].at);
	expect(netdev_mtu(&nobodys) == 0 && !adapter_behind(NULL, &nobodys, &a));
}

static void clear_tree(void)
{
	expect(nftw(top, clear, 8, FTW_DEPTH | FTW_PHYS) == 0);
}

/* A process that sees the tree no longer finds what it found before. */
static void read_without_tree(const char *sys)
{
	struct adapter *before, *after;
	unsigned count, left;

	expect(adapters_list(sys, &before, &count) == 0);
	clear_tree();
	sysfs_freeze();
	expect(adapters_list(sys, &after, &left) == 0 && left == count);
	for (unsigned i = 0; i < count; i++)
		expect(strcmp(before[i].device, after[i].device) == 0 &&
		       before[i].port == after[i].port &&
		       strcmp(before[i].netdev, after[i].netdev) == 0 &&
		       strcmp(before[i].driver, after[i].driver) == 0 &&
		       before[i].state == after[i].state);
	free(before);
	free(after);
	sysfs_forget();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const rlim_t limits[] = {8 << 20, 64 << 10, RLIM_INFINITY};
	static char text[INPUT_MAX + 1];
	struct survey s = {.top = top, .found = on_found};
	char sys[64];

	if (size > INPUT_MAX)
		return -1;
	memcpy(text, data, size);
	text[size] = '\0';
	make_tree(text);
	sysfs_keep();
	lockable = limits[size % 3];
	snprintf(sys, sizeof sys, "%s/sys", top);
	expect(survey_host(&s) == 0);
	read_adapters(sys);
	read_nodes(sys);
	read_in_place();
	read_without_tree(sys);
	return 0;
}
