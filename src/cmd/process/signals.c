/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/process/signals.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fail.h"
#include "base/io.h"

enum { CHECK_MS = 50 };

static int signals = -1;

bool signal_is_ignored(int signo)
{
	struct sigaction now;

	return sigaction(signo, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
}

int signals_begin(void)
{
	struct sigaction ign = {.sa_handler = SIG_IGN};
	sigset_t set;

	sigaction(SIGPIPE, &ign, NULL);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGCHLD);
	if (!signal_is_ignored(SIGINT))
		sigaddset(&set, SIGINT);
	if (!signal_is_ignored(SIGHUP))
		sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return signals < 0 ? fail_as(OUT_MEMORY, "create a signal descriptor: %m") : 0;
}

int signals_fd(void)
{
	return signals;
}

/* Polls the pending signals: the descriptor would also wake for a child, and reading it would
 * consume the signal. */
void signals_pause(int ms)
{
	uint64_t until = clock_ms() + (uint64_t)ms;
	sigset_t set;

	while (clock_left(until) > 0) {
		sigpending(&set);
		if (sigismember(&set, SIGINT) || sigismember(&set, SIGTERM) ||
		    sigismember(&set, SIGHUP))
			return;
		poll(NULL, 0, clock_left(until) < CHECK_MS ? clock_left(until) : CHECK_MS);
	}
}

int signals_next(void)
{
	struct signalfd_siginfo si;

	return read(signals, &si, sizeof si) == (ssize_t)sizeof si ? (int)si.ssi_signo : 0;
}

void signals_end(void)
{
	sigset_t none;

	while (signals_next())
		continue;
	close_fd(signals);
	signals = -1;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}
