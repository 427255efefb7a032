/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A limit for one process of an rdcp that others were forked from, preloaded:
 *
 *	LIMIT_FOR    conductor, or near (what it forked and did not replace by another program)
 *	LIMIT_WHAT   the number of an RLIMIT_
 *	LIMIT_VALUE  the limit
 *
 * The others get what was there before, which not even root need be able to raise again: so only
 * the soft limit is set, and the program can't raise it.
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

__attribute__((constructor)) static void begin(int argc, char **argv)
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
