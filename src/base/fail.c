/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local struct failure own_failure;

__attribute__((format(printf, 2, 0))) static int store_failure(enum outcome code, const char *fmt,
							       va_list ap)
{
	int err = errno;
	struct failure f = {.code = code};

	/* Format into a copy: an argument may be the text of the failure that this one replaces. */
	vsnprintf(f.text, sizeof f.text, fmt, ap);
	memcpy(&own_failure, &f, sizeof f);
	errno = err;
	return -1;
}

int fail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	store_failure(OUT_FILE, fmt, ap);
	va_end(ap);
	return -1;
}

int fail_as(enum outcome code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	store_failure(code, fmt, ap);
	va_end(ap);
	return -1;
}

static int (*signal_cause)(void);

void fail_signal_by(int (*cause)(void))
{
	signal_cause = cause;
}

int fail_signal(int signo)
{
	static const char *const names[] = {
		[SIGHUP] = "SIGHUP",   [SIGINT] = "SIGINT",   [SIGQUIT] = "SIGQUIT",
		[SIGPIPE] = "SIGPIPE", [SIGALRM] = "SIGALRM", [SIGTERM] = "SIGTERM",
	};

	if (signal_cause && signal_cause())
		return -1;
	if (signo > 0 && (size_t)signo < sizeof names / sizeof *names && names[signo])
		return fail_as(OUT_SIGNAL, "interrupted by %s", names[signo]);
	return fail_as(OUT_SIGNAL, "interrupted by signal %d", signo);
}

const struct failure *failed(void)
{
	return &own_failure;
}

int fail_again(const struct failure *f)
{
	if (f != &own_failure) {
		own_failure.code = f->code;
		snprintf(own_failure.text, sizeof own_failure.text, "%s", f->text);
	}
	return -1;
}

void fail_clear(void)
{
	own_failure.code = OUT_DONE;
	own_failure.text[0] = '\0';
}

enum outcome outcome_from(unsigned code)
{
	switch (code) {
	case OUT_DONE:
	case OUT_USAGE:
	case OUT_VERSION:
	case OUT_NO_SOURCE:
	case OUT_START:
	case OUT_SOCKET:
	case OUT_FILE:
	case OUT_PROTOCOL:
	case OUT_SIGNAL:
	case OUT_MEMORY:
	case OUT_SOME_FILES:
	case OUT_VANISHED:
	case OUT_MAX_DELETE:
	case OUT_TIMEOUT:
	case OUT_CONNECT:
	case OUT_AUTH:
	case OUT_INTEGRITY:
	case OUT_CHANGED:
	case OUT_TRANSPORT:
	case OUT_PEER_LOST:
	case OUT_MEMLOCK:
		return (enum outcome)code;
	}
	return OUT_PROTOCOL;
}
