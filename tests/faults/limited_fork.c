/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Preloaded into rdcp by tests/faults/limits.py. Sets a resource limit for the conductor or for the
 * near end alone:
 *
 *	LIMIT_FOR    conductor or near (a fork that executes no other program)
 *	LIMIT_WHAT   the number of an RLIMIT_
 *	LIMIT_VALUE  the limit
 *
 * All other processes get the old limit back. Even root may be unable to raise a hard limit again,
 * so this sets the soft limit only, and ignores the program's attempts to raise it.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static enum { NOBODY, CONDUCTOR, NEAR } limited;
static int what;
static struct rlimit wanted, before;

static void set_limit(const struct rlimit *rl)
{
	if (prlimit(0, (__rlimit_resource_t)what, rl, NULL))
		_exit(99);
}

int setrlimit(__rlimit_resource_t resource, const struct rlimit *rl)
{
	if (limited && resource == (__rlimit_resource_t)what)
		return 0;
	return prlimit(0, resource, rl, NULL);
}

__attribute__((constructor)) static void set_limit_of_conductor(int argc, char **argv)
{
	const char *who = getenv("LIMIT_FOR"), *name = strrchr(argv[0], '/');

	if (!who || argc < 2 || !name || strcmp(name, "/rdcp") != 0)
		return;
	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], "--end") == 0)
			return;
	what = atoi(getenv("LIMIT_WHAT"));
	if (getrlimit((__rlimit_resource_t)what, &before))
		_exit(99);
	wanted = before;
	wanted.rlim_cur = strtoul(getenv("LIMIT_VALUE"), NULL, 10);
	limited = strcmp(who, "near") == 0 ? NEAR : CONDUCTOR;
	if (limited == CONDUCTOR)
		set_limit(&wanted);
}

pid_t fork(void)
{
	pid_t (*real)(void) = (pid_t(*)(void))dlsym(RTLD_NEXT, "fork");
	pid_t pid = real();

	if (pid == 0 && limited)
		set_limit(limited == NEAR ? &wanted : &before);
	return pid;
}

int execvp(const char *file, char *const argv[])
{
	int (*real)(const char *, char *const[]) =
		(int (*)(const char *, char *const[]))dlsym(RTLD_NEXT, "execvp");

	if (limited == NEAR)
		set_limit(&before);
	return real(file, argv);
}
