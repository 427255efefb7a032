/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/serve/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"

/* The headers of a system may be older than its kernel, so what linux/landlock.h has is here. */
#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_add_rule 445
#define SYS_landlock_restrict_self 446
#endif

enum { ASK_VERSION = 1, RULE_BENEATH = 1 };

/* Before version 2 a process could not move a file to another directory. */
enum { V_REFER = 2, V_TRUNCATE = 3, V_NET = 4, V_IOCTL = 5, V_SCOPE = 6 };

enum {
	FS_EXECUTE = 1 << 0,
	FS_WRITE_FILE = 1 << 1,
	FS_READ_FILE = 1 << 2,
	FS_READ_DIR = 1 << 3,
	FS_REMOVE_DIR = 1 << 4,
	FS_REMOVE_FILE = 1 << 5,
	FS_MAKE_CHAR = 1 << 6,
	FS_MAKE_DIR = 1 << 7,
	FS_MAKE_REG = 1 << 8,
	FS_MAKE_SOCK = 1 << 9,
	FS_MAKE_FIFO = 1 << 10,
	FS_MAKE_BLOCK = 1 << 11,
	FS_MAKE_SYM = 1 << 12,
	FS_REFER = 1 << 13,
	FS_TRUNCATE = 1 << 14,
	FS_IOCTL_DEV = 1 << 15,

	FS_LOOK = FS_READ_FILE | FS_READ_DIR,
	FS_CHANGE = FS_WRITE_FILE | FS_REMOVE_DIR | FS_REMOVE_FILE | FS_MAKE_DIR | FS_MAKE_REG |
		    FS_MAKE_SOCK | FS_MAKE_FIFO | FS_MAKE_SYM | FS_REFER | FS_TRUNCATE,
	FS_NEVER = FS_EXECUTE | FS_MAKE_CHAR | FS_MAKE_BLOCK | FS_IOCTL_DEV,
};

enum { NET_BIND_TCP = 1 << 0, NET_CONNECT_TCP = 1 << 1 };
enum { SCOPE_ABSTRACT_SOCKET = 1 << 0, SCOPE_SIGNAL = 1 << 1 };

/* What a process may no longer do. A kernel takes fields that it does not know if they are 0. */
struct fence {
	uint64_t fs, net, scope;
};

struct beneath {
	uint64_t allowed;
	int32_t dir;
} __attribute__((packed));

int sandbox_version(void)
{
	/* Filters of containers refuse the call with any error. */
	long version = syscall(SYS_landlock_create_ruleset, NULL, 0, ASK_VERSION);

	return version < V_REFER ? 0 : (int)version;
}

static struct fence fence_of(int version)
{
	struct fence f = {.fs = FS_LOOK | FS_CHANGE | FS_NEVER};

	if (version < V_TRUNCATE)
		f.fs &= ~(uint64_t)FS_TRUNCATE;
	if (version < V_IOCTL)
		f.fs &= ~(uint64_t)FS_IOCTL_DEV;
	if (version >= V_NET)
		f.net = NET_BIND_TCP | NET_CONNECT_TCP;
	if (version >= V_SCOPE)
		f.scope = SCOPE_ABSTRACT_SOCKET | SCOPE_SIGNAL;
	return f;
}

/* What stays allowed below a directory. */
struct gate {
	const char *path; /* NULL: dir */
	bool optional; /* no gate is needed where path is missing */
	int dir;
	uint64_t allowed;
};

/* Opens a gate in the fence. */
static int open_gate(int rules, const struct gate *g, uint64_t known)
{
	struct beneath b = {.allowed = g->allowed & known, .dir = g->dir};
	int rc;

	if (g->path)
		b.dir = RETRIED(open(g->path, O_PATH | O_CLOEXEC));
	if (b.dir < 0)
		return g->optional && errno == ENOENT ? 0 : -1;
	rc = b.allowed ? (int)syscall(SYS_landlock_add_rule, rules, RULE_BENEATH, &b, 0) : 0;
	if (g->path)
		close_fd(b.dir);
	return rc ? -1 : 0;
}

static int put_up_fence(const struct gate *gates, unsigned count)
{
	int version = sandbox_version(), rules, rc;
	struct fence f = fence_of(version);

	if (!version)
		return 0;
	rules = (int)syscall(SYS_landlock_create_ruleset, &f, sizeof f, 0);
	rc = rules < 0;
	for (unsigned i = 0; i < count && !rc; i++)
		rc = open_gate(rules, &gates[i], f.fs);
	if (rc || syscall(SYS_landlock_restrict_self, rules, 0))
		rc = fail_as(OUT_START, "confine with Landlock: %m");
	close_fd(rules);
	return rc;
}

static uint64_t allowed_in_module(bool may_change)
{
	return FS_LOOK | (may_change ? FS_CHANGE : 0);
}

int sandbox_enter(bool may_change)
{
	const struct gate root = {.path = "/", .allowed = allowed_in_module(may_change)};

	return put_up_fence(&root, 1);
}

int sandbox_enter_early(bool may_change, int dir)
{
	const struct gate gates[] = {
		{.dir = dir, .allowed = allowed_in_module(may_change)},
		{.path = "/sys", .optional = true, .allowed = FS_LOOK},
		{.path = "/dev/infiniband",
		 .optional = true,
		 .allowed = FS_LOOK | FS_WRITE_FILE | FS_IOCTL_DEV},
	};

	return put_up_fence(gates, sizeof gates / sizeof *gates);
}

int sandbox_enter_empty(void)
{
	return put_up_fence(NULL, 0);
}
