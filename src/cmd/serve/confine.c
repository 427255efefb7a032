/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/serve/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"
#include "cmd/process/child.h"
#include "cmd/serve/sandbox.h"
#include "host/host_id.h"

/* glibc has it, but no header of its own. */
int capset(cap_user_header_t head, cap_user_data_t data);
int capget(cap_user_header_t head, cap_user_data_t data);

enum { NOBODY = 65534 }; /* user and group: the kernel's default overflowuid */

/* What root needs to write files as root does: not to leave the module, to make devices, or to
 * change the kernel. CAP_DAC_READ_SEARCH would open files outside by their handles
 * (open_by_handle_at(2)), and CAP_DAC_OVERRIDE permits all that it permits inside. */
#define KEPT (1u << CAP_CHOWN | 1u << CAP_DAC_OVERRIDE | 1u << CAP_FOWNER)

static int write_map(const char *path, const char *text)
{
	int fd = RETRIED(open(path, O_WRONLY | O_CLOEXEC));
	int ret = fd < 0 || write_full(fd, text, strlen(text)) < 0
			  ? fail_as(OUT_START, "write %s: %m", path)
			  : 0;

	close_fd(fd);
	return ret;
}

/* A user namespace in which this user is this user. */
static int enter_namespace(void)
{
	unsigned uid = (unsigned)geteuid(), gid = (unsigned)getegid();
	int was_dumpable = prctl(PR_GET_DUMPABLE), ret;
	char users[64], groups[64];

	snprintf(users, sizeof users, "%u %u 1", uid, uid);
	snprintf(groups, sizeof groups, "%u %u 1", gid, gid);
	if (unshare(CLONE_NEWUSER))
		return fail_as(OUT_START,
			       "make a user namespace: %m; rdcpd confines each client to its "
			       "module, and needs root or user namespaces for that");
	/* Else the maps belong to root. */
	prctl(PR_SET_DUMPABLE, 1);
	ret = write_map("/proc/self/setgroups", "deny") ||
	      write_map("/proc/self/gid_map", groups) || write_map("/proc/self/uid_map", users);
	prctl(PR_SET_DUMPABLE, was_dumpable == 1);
	return ret ? -1 : 0;
}

static int drop_capabilities(uint32_t kept)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || capget(&head, data))
		return fail_as(OUT_START, "drop privileges: %m");
	kept &= data[0].permitted;
	memset(data, 0, sizeof data);
	data[0].effective = data[0].permitted = kept;
	return capset(&head, data) ? fail_as(OUT_START, "drop privileges: %m") : 0;
}

/* What the C library would load later, it would load from the module. */
static void load_databases(void)
{
	struct passwd pw, *user;
	struct group gr, *group;
	char room[4096];

	(void)!getpwnam_r("no such user", &pw, room, sizeof room, &user);
	(void)!getgrnam_r("no such group", &gr, room, sizeof room, &group);
	(void)host_id();
	tzset();
}

int confine_enter(const char *dir, const struct run_as *as, bool may_change)
{
	load_databases();
	if (chdir(dir))
		return fail("open module %s: %m", dir);
	if (chroot(".")) {
		if (errno != EPERM)
			return fail("confine to module %s: %m", dir);
		if (enter_namespace())
			return -1;
		if (chroot("."))
			return fail_as(OUT_START, "confine to module %s: %m", dir);
	}
	if (chdir("/"))
		return fail("open module %s: %m", dir);
	if (account_enter(as) || drop_capabilities(geteuid() == 0 ? KEPT : 0))
		return -1;
	return sandbox_enter(may_change);
}

/* ---- with devices ---------------------------------------------------------------------------- */

/* The process that changes the root directory for this one: when it gets a byte, and its exit code
 * is the errno. */
struct changer {
	pid_t pid;
	int talk;
};

struct changer_start {
	int talk, others_end;
};

/* Shares the root and working directory with the process that it serves. */
static int run_changer(void *arg)
{
	const struct changer_start *start = arg;
	uint8_t byte;
	ssize_t n;

	close_fd(start->others_end);
	n = read_full(start->talk, &byte, 1);
	/* The other process gave up. */
	if (n == 0)
		return 0;
	return n < 0 || chroot(".") || chdir("/") ? errno : 0;
}

static int start_changer(struct changer *c)
{
	static uint8_t stack[64 << 10] __attribute__((aligned(64)));
	struct changer_start start;
	int talk[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, talk))
		return fail_as(OUT_START, "confine to a module: %m");
	start = (struct changer_start){.talk = talk[1], .others_end = talk[0]};
	c->talk = talk[0];
	c->pid = clone(run_changer, stack + sizeof stack, CLONE_FS | SIGCHLD, &start);
	if (c->pid < 0) {
		fail_as(OUT_START, "start a process that confines this one: %m");
		close_fd(c->talk);
	}
	close_fd(talk[1]);
	return c->pid < 0 ? -1 : 0;
}

/* Returns the errno of the process, 0 if it did what it was asked for. */
static int await_changer(struct changer *c)
{
	int status, rc;

	close_fd(c->talk);
	while ((rc = waitpid(c->pid, &status, 0)) < 0 && errno == EINTR)
		;
	if (rc < 0)
		return errno;
	return WIFEXITED(status) ? WEXITSTATUS(status) : ESRCH;
}

static int change_root(struct changer *c, const char *dir)
{
	uint8_t byte = 0;
	int err = write_full(c->talk, &byte, 1) < 0 ? errno : 0, others = await_changer(c);

	errno = err ? err : others;
	return errno ? fail("confine to module %s: %m", dir) : 0;
}

static bool may_change_root(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {{0}};

	return !capget(&head, data) && (data[0].effective & 1u << CAP_SYS_CHROOT);
}

/* Becomes what the module's sessions are, but for the root directory. */
static int drop_privileges(const struct run_as *as, bool may_change, int module)
{
	if (account_enter(as) || drop_capabilities(geteuid() == 0 ? KEPT : 0))
		return -1;
	return sandbox_enter_early(may_change, module);
}

int confine_enter_late(const char *dir, const struct run_as *as, bool may_change,
		       void (*open_devices)(void *ctx), void *ctx)
{
	struct changer c = {.talk = -1};
	int module, ret = -1;

	load_databases();
	module = RETRIED(open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC));
	if (module < 0 || fchdir(module))
		ret = fail("open module %s: %m", dir);
	else if ((may_change_root() || enter_namespace() == 0) && start_changer(&c) == 0) {
		ret = drop_privileges(as, may_change, module);
		if (ret) {
			(void)await_changer(&c);
		} else {
			open_devices(ctx);
			ret = change_root(&c, dir);
		}
	}
	close_fd(module);
	return ret;
}

int confine_without_files(const struct run_as *as)
{
	load_databases();
	return account_enter(as) || drop_capabilities(0) ? -1 : sandbox_enter_empty();
}

int confine_to_nothing(void)
{
	const struct run_as nobody = {
		.has_user = true, .has_group = true, .user = NOBODY, .group = NOBODY};

	return confine_without_files(&nobody);
}

struct confinement {
	const char *dir;
	const struct run_as *as;
};

static int try_confinement(void *arg, int in, int out)
{
	const struct confinement *c = arg;
	char text[FAIL_TEXT_MAX];

	(void)in;
	if (confine_enter(c->dir, c->as, false) == 0)
		return 0;
	snprintf(text, sizeof text, "%s", failed()->text);
	return write_full(out, text, strlen(text)) < 0 ? 2 : 1;
}

int confine_check(const char *dir, const struct run_as *as)
{
	struct confinement wanted = {.dir = dir, .as = as};
	char text[FAIL_TEXT_MAX] = "";
	struct child c;
	ssize_t n;
	int status = 0;

	if (child_fork(try_confinement, &wanted, "a process", &c))
		return fail_as(failed()->code, "confine to module %s: %s", dir, failed()->text);
	n = read_full(c.out, text, sizeof text - 1);
	text[n < 0 ? 0 : n] = '\0';
	child_wait(&c, &status, 0);
	child_stop(&c);
	if (status == 0)
		return 0;
	if (!text[0])
		return fail_as(OUT_START, "confine to module %s: the process that tries it %s", dir,
			       child_end_text(status, text, sizeof text));
	return fail_as(OUT_START, "%s", text);
}
