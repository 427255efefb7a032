/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Why a process ends when main has to leave a worker behind. Each case runs in a process of its
 * own, because cancel() cannot be undone. session_failed() is wrapped and returns the session's
 * failure.
 */

#include "cmd/process/watch.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#undef fail /* cmocka defines a macro of this name; base/fail.h declares a function */
#include "base/io.h"
#include "base/worker.h"

/* ---- stand-ins for a session (--wrap) ------------------------------------------------------ */

static struct failure latched;

bool __wrap_session_failed(struct session *s, struct failure *f, char host[static HOST_MAX]);
int __wrap_session_fail(struct session *s);

bool __wrap_session_failed(struct session *s, struct failure *f, char host[static HOST_MAX])
{
	(void)s;
	host[0] = '\0';
	if (latched.code == OUT_DONE)
		return false;
	*f = latched;
	return true;
}

int __wrap_session_fail(struct session *s)
{
	(void)s;
	if (latched.code == OUT_DONE)
		latched = *failed();
	return fail_again(&latched);
}

/* ---- workers ------------------------------------------------------------------------------ */

struct trial {
	struct watch watch;
	bool loses; /* the session fails */
	bool closes; /* closed before main returns */
	bool comes_back; /* the worker returns by itself */
	int raises; /* a signal raised in this process, 0: none */
	atomic_bool left;
};

static void until(bool (*what)(struct trial *t), struct trial *t)
{
	while (!what(t))
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static bool main_has_seen(struct trial *t)
{
	(void)t;
	return cancelled() != 0;
}

static bool main_has_left(struct trial *t)
{
	return atomic_load(&t->left);
}

static int work(void *ctx)
{
	static char session;
	struct trial *t = ctx;

	watch_session(&t->watch, (struct session *)&session);
	if (t->loses) {
		pthread_mutex_lock(&t->watch.lock);
		latched = (struct failure){OUT_TIMEOUT, "lost storage2: silent"};
		pthread_mutex_unlock(&t->watch.lock);
		watch_failed();
	}
	if (t->raises)
		kill(getpid(), t->raises);
	until(main_has_seen, t);
	if (t->closes)
		watch_session(&t->watch, NULL);
	if (!t->comes_back)
		until(main_has_left, t);
	/* As an interrupted file call does. */
	return fail_signal(cancelled());
}

struct outcome_seen {
	bool came_back;
	int result;
	struct failure why;
};

static struct outcome_seen run_apart(struct trial *t)
{
	struct outcome_seen seen = {0};
	int fd[2], status;
	pid_t pid;

	assert_int_equal(pipe(fd), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		t->watch.work = work;
		t->watch.ctx = t;
		if (watch_signals(false))
			_exit(1);
		seen.came_back = watch_run(&t->watch);
		seen.result = t->watch.result;
		seen.why = t->watch.failure;
		atomic_store(&t->left, true);
		_exit(write_full(fd[1], &seen, sizeof seen) ? 1 : 0);
	}
	close_fd(fd[1]);
	assert_int_equal(read_full(fd[0], &seen, sizeof seen), sizeof seen);
	close_fd(fd[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	return seen;
}

/* ---- tests -------------------------------------------------------------------------------- */

static void abandoned_worker_reports_its_session_failure(void **state)
{
	struct trial t = {.loses = true};
	struct outcome_seen seen = run_apart(&t);

	(void)state;
	assert_false(seen.came_back);
	assert_int_equal(seen.result, -1);
	assert_string_equal(seen.why.text, "lost storage2: silent");
	assert_int_equal(seen.why.code, OUT_TIMEOUT);
}

/* No session can be asked any more, and no signal arrived. */
static void abandoned_worker_reports_failure_of_a_closed_session(void **state)
{
	struct trial t = {.loses = true, .closes = true};
	struct outcome_seen seen = run_apart(&t);

	(void)state;
	assert_false(seen.came_back);
	assert_string_equal(seen.why.text, "lost storage2: silent");
	assert_int_equal(seen.why.code, OUT_TIMEOUT);
}

/* The wake-up is no signal from the user. */
static void woken_worker_reports_its_session_failure(void **state)
{
	struct trial t = {.loses = true, .closes = true, .comes_back = true};
	struct outcome_seen seen = run_apart(&t);

	(void)state;
	assert_true(seen.came_back);
	assert_int_equal(seen.result, -1);
	assert_string_equal(seen.why.text, "lost storage2: silent");
	assert_int_equal(seen.why.code, OUT_TIMEOUT);
}

static void received_signal_is_named(void **state)
{
	struct trial t = {.raises = SIGTERM, .closes = true};
	struct outcome_seen seen = run_apart(&t);

	(void)state;
	assert_false(seen.came_back);
	assert_string_equal(seen.why.text, "interrupted by SIGTERM");
	assert_int_equal(seen.why.code, OUT_SIGNAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(abandoned_worker_reports_its_session_failure),
		cmocka_unit_test(abandoned_worker_reports_failure_of_a_closed_session),
		cmocka_unit_test(woken_worker_reports_its_session_failure),
		cmocka_unit_test(received_signal_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
