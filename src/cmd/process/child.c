/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/process/child.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fail.h"
#include "base/io.h"
#include "base/worker.h"

enum { CHILDREN_MAX = 256, STOP_MS = 500 };
/* Something else reaped the child. No child that has ended has this status (WIFCONTINUED). */
enum { STATUS_LOST = 0xffff };

/* Our ends of the children's pipes. Each child closes them: a child that kept one would hide our
 * death, or the end of a stream, from the child at the other end. */
static int tracked_fds[3 * CHILDREN_MAX];
static unsigned tracked_count;

static int track_fd(int fd)
{
	if (fd >= 0 && tracked_count < sizeof tracked_fds / sizeof *tracked_fds)
		tracked_fds[tracked_count++] = fd;
	return fd;
}

static void close_tracked_fd(int *fd)
{
	for (unsigned i = 0; i < tracked_count; i++)
		if (tracked_fds[i] == *fd) {
			tracked_fds[i] = tracked_fds[--tracked_count];
			break;
		}
	close_fd(*fd);
	*fd = -1;
}

/* Moves both ends above stdio, where dup2() in a child does not replace them. */
static int raise_fd_pair(int fds[2])
{
	int low[2] = {fds[0], fds[1]}, err;

	fds[0] = dup_above(low[0], 3);
	fds[1] = dup_above(low[1], 3);
	err = errno;
	close_fd(low[0]);
	close_fd(low[1]);
	if (fds[0] >= 0 && fds[1] >= 0)
		return 0;
	close_fd(fds[0]);
	close_fd(fds[1]);
	errno = err;
	return -1;
}

/* The connections to a child; theirs: the child's end. */
struct child_pipes {
	int in_ours, in_theirs;
	int out_ours, out_theirs;
	int go_ours, go_theirs; /* a socket: we send the go, the child sends the errno of exec(3) */
};

static void close_pipes(struct child_pipes *t)
{
	close_fd(t->in_ours);
	close_fd(t->in_theirs);
	close_fd(t->out_ours);
	close_fd(t->out_theirs);
	close_fd(t->go_ours);
	close_fd(t->go_theirs);
}

static int make_pipes(struct child_pipes *t, bool in, bool out, bool go)
{
	int fds[2];

	*t = (struct child_pipes){-1, -1, -1, -1, -1, -1};
	if (in) {
		if (pipe2(fds, O_CLOEXEC) < 0 || raise_fd_pair(fds) < 0)
			return -1;
		t->in_theirs = fds[0];
		t->in_ours = fds[1];
	}
	if (out) {
		if (pipe2(fds, O_CLOEXEC) < 0 || raise_fd_pair(fds) < 0)
			return -1;
		t->out_ours = fds[0];
		t->out_theirs = fds[1];
	}
	if (go) {
		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0 ||
		    raise_fd_pair(fds) < 0)
			return -1;
		t->go_ours = fds[0];
		t->go_theirs = fds[1];
	}
	return 0;
}

/* A child needs the default action of signals that we ignore, such as SIGPIPE. Signals that our
 * parent ignored, as nohup(1) does, stay ignored. */
static void restore_signals(void)
{
	static const int inherited[] = {SIGHUP, SIGINT, SIGQUIT, SIGTSTP, SIGTTIN, SIGTTOU};
	struct sigaction dfl = {.sa_handler = SIG_DFL}, now;
	sigset_t none;

	for (int signo = 1; signo < NSIG; signo++) {
		bool is_inherited = false;

		for (unsigned i = 0; i < sizeof inherited / sizeof *inherited; i++)
			is_inherited |= signo == inherited[i];
		if (is_inherited && sigaction(signo, NULL, &now) == 0 && now.sa_handler == SIG_IGN)
			continue;
		sigaction(signo, &dfl, NULL);
	}
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

static void child_begin(const struct child_pipes *t)
{
	restore_signals();
	unsetenv("RD_KEY");
	while (tracked_count > 0)
		close_fd(tracked_fds[--tracked_count]);
	close_fd(t->in_ours);
	close_fd(t->out_ours);
	close_fd(t->go_ours);
}

/* A child that waits for its go must not outlive us. It sees the end of the socket, or, if another
 * process has a copy of our end, gets the signal. */
static void child_hold(const struct child_pipes *t, pid_t parent)
{
	ssize_t n;
	char go;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(127);
	do
		n = read(t->go_theirs, &go, 1);
	while (n < 0 && errno == EINTR);
	if (n != 1)
		_exit(127);
	prctl(PR_SET_PDEATHSIG, 0);
}

static void child_run(char *const argv[], const struct child_opts *o, const struct child_pipes *t,
		      pid_t parent) __attribute__((noreturn));
static void child_run(char *const argv[], const struct child_opts *o, const struct child_pipes *t,
		      pid_t parent)
{
	int err;

	child_begin(t);
	if (o->held)
		child_hold(t, parent);
	if (o->ignore_sigint)
		signal(SIGINT, SIG_IGN);
	if ((t->in_theirs >= 0 && dup2(t->in_theirs, 0) < 0) ||
	    (t->out_theirs >= 0 && dup2(t->out_theirs, 1) < 0))
		goto out;
	if ((o->keep_fd && fcntl(o->keep_fd, F_SETFD, 0) < 0) ||
	    (o->keep_env && putenv(o->keep_env)))
		goto out;
	execvp(argv[0], argv);
out:
	err = errno;
	if (write_full(t->go_theirs, &err, sizeof err) < 0)
		_exit(126);
	_exit(127);
}

/* Waits for the result of exec(3). The end of the socket means success. */
static int await_exec(struct child *c, enum outcome code)
{
	int err = 0;
	ssize_t n = read_full(c->go, &err, sizeof err);

	close_tracked_fd(&c->go);
	if (n != sizeof err)
		return 0;
	child_stop(c);
	errno = err;
	return fail_as(code, "run %s: %m", c->what);
}

static void child_adopt(struct child *c, pid_t pid, const struct child_pipes *t, const char *what)
{
	*c = (struct child){.pid = pid};
	c->in = track_fd(t->in_ours);
	c->out = track_fd(t->out_ours);
	c->go = track_fd(t->go_ours);
	snprintf(c->what, sizeof c->what, "%s", what);
}

/* While SIGCHLD is ignored, the kernel discards the status of children. */
static void restore_sigchld(void)
{
	struct sigaction sa;

	if (sigaction(SIGCHLD, NULL, &sa) == 0 && sa.sa_handler == SIG_IGN)
		signal(SIGCHLD, SIG_DFL);
}

/* Whether it can be executed. If it is there and can't be, errno is EACCES. */
static bool is_program(const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return false;
	if (S_ISREG(st.st_mode) && faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) == 0)
		return true;
	errno = EACCES;
	return false;
}

int child_find(const char *name, const char *what)
{
	const char *dirs = getenv("PATH");
	char path[PATH_MAX];
	int err = ENOENT;

	if (strchr(name, '/')) {
		if (is_program(name))
			return 0;
		return fail("run %s: %m", what);
	}
	if (!dirs)
		return 0; /* execvp(3) knows its default */
	for (size_t len; name[0]; dirs += len + 1) {
		len = strcspn(dirs, ":");
		snprintf(path, sizeof path, "%.*s%s%s", (int)len, dirs, len ? "/" : "", name);
		if (is_program(path))
			return 0;
		if (errno == EACCES)
			err = EACCES;
		if (!dirs[len])
			break;
	}
	errno = err;
	return fail("run %s: %m", what);
}

int child_exec(char *const argv[], const struct child_opts *o, struct child *out)
{
	pid_t parent = getpid(), pid;
	struct child_pipes t;

	*out = (struct child){.in = -1, .out = -1, .go = -1};
	restore_sigchld();
	if (make_pipes(&t, o->pipe_in, o->pipe_out, true) < 0 || (pid = fork()) < 0) {
		fail_as(OUT_START, "start %s: %m", o->what);
		close_pipes(&t);
		return -1;
	}
	if (pid == 0)
		child_run(argv, o, &t, parent);
	close_fd(t.in_theirs);
	close_fd(t.out_theirs);
	close_fd(t.go_theirs);
	child_adopt(out, pid, &t, o->what);
	return o->held ? 0 : await_exec(out, OUT_START);
}

int child_run_held(struct child *c)
{
	char go = 'g';
	ssize_t n;

	if (c->go < 0)
		return 0;
	do
		n = send(c->go, &go, 1, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n != 1) {
		const char *why = errno == EPIPE ? "its process has exited" : strerror(errno);

		close_tracked_fd(&c->go);
		return fail("run %s: %s", c->what, why);
	}
	return await_exec(c, OUT_FILE);
}

int child_fork(int (*fn)(void *ctx, int in, int out), void *ctx, const char *what,
	       struct child *out)
{
	struct child_pipes t;
	pid_t pid;

	*out = (struct child){.in = -1, .out = -1, .go = -1};
	restore_sigchld();
	if (make_pipes(&t, true, true, false) < 0 || (pid = fork()) < 0) {
		fail_as(OUT_START, "start %s: %m", what);
		close_pipes(&t);
		return -1;
	}
	if (pid == 0) {
		child_begin(&t);
		_exit(fn(ctx, t.in_theirs, t.out_theirs));
	}
	close_fd(t.in_theirs);
	close_fd(t.out_theirs);
	child_adopt(out, pid, &t, what);
	return 0;
}

static bool child_reap(struct child *c)
{
	int status;
	pid_t pid;

	do
		pid = waitpid(c->pid, &status, WNOHANG);
	while (pid < 0 && errno == EINTR);
	if (pid == 0)
		return false;
	/* Something else reaped it. Its status is unknown, which counts as a failure. */
	c->status = pid < 0 ? STATUS_LOST : status;
	c->pid = 0;
	return true;
}

/* Returns a descriptor that polls readable when the child exits, or -1 if the kernel has none. */
static int open_pidfd(pid_t pid)
{
	return (int)syscall(SYS_pidfd_open, pid, 0);
}

bool child_wait(struct child *c, int *status, uint64_t deadline_ms)
{
	int watch = -1;

	if (c->pid)
		watch = open_pidfd(c->pid);
	while (c->pid && !child_reap(c)) {
		struct pollfd p = {.fd = watch, .events = POLLIN};
		/* Short, because a signal may arrive just before the wait. */
		int ms = watch < 0 ? 10 : 250;

		if (deadline_ms ? clock_left(deadline_ms) == 0 : cancelled() != 0)
			break;
		if (deadline_ms && clock_left(deadline_ms) < ms)
			ms = clock_left(deadline_ms);
		poll(&p, watch >= 0, ms);
	}
	close_fd(watch);
	if (c->pid)
		return false;
	*status = c->status;
	return true;
}

char *child_end_text(int status, char *to, size_t size)
{
	if (WIFSIGNALED(status))
		snprintf(to, size, "was killed by signal %d (%s)", WTERMSIG(status),
			 strsignal(WTERMSIG(status)));
	else if (status == STATUS_LOST)
		snprintf(to, size, "ended with an unknown status: %s", strerror(ECHILD));
	else
		snprintf(to, size, "exited with %d", WEXITSTATUS(status));
	return to;
}

void child_close_in(struct child *c)
{
	close_tracked_fd(&c->in);
}

void child_close_out(struct child *c)
{
	close_tracked_fd(&c->out);
}

void child_stop(struct child *c)
{
	int status;

	close_tracked_fd(&c->in);
	close_tracked_fd(&c->out);
	close_tracked_fd(&c->go);
	if (!c->pid)
		return;
	kill(c->pid, SIGTERM);
	kill(c->pid, SIGCONT);
	if (child_wait(c, &status, clock_ms() + STOP_MS))
		return;
	kill(c->pid, SIGKILL);
	child_wait(c, &status, clock_ms() + 10 * STOP_MS);
}
