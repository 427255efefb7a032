/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_FAIL_H
#define BASE_FAIL_H

/*
 * Failures: one sentence and one exit code, kept for each thread.
 *
 * Whoever first knows that something went wrong writes the sentence: what was
 * attempted, on what, why; lowercase, no full stop.  Everybody above passes -1 on and
 * adds nothing.  The top of a program prints it once and tells the peer.
 *
 * Names of files in a sentence are the caller's bytes; they are escaped when
 * printed (escape.h), never here.
 */

enum outcome {
	OUT_DONE = 0,
	OUT_USAGE = 1,
	OUT_VERSION = 2, /* protocol versions don't match */
	OUT_NO_SOURCE = 3, /* source missing, or a pattern without a match */
	OUT_START = 5, /* ssh failed, far end missing, unknown host */
	OUT_SOCKET = 10,
	OUT_FILE = 11, /* file I/O, and a command after -- that fails */
	OUT_PROTOCOL = 12,
	OUT_SIGNAL = 20,
	OUT_MEMORY = 22,
	OUT_SOME_FILES = 23,
	OUT_VANISHED = 24, /* source vanished */
	OUT_MAX_DELETE = 25,
	OUT_TIMEOUT = 30, /* peer silent */
	OUT_CONNECT = 35, /* connect timeout */
	OUT_AUTH = 40,
	OUT_INTEGRITY = 41,
	OUT_CHANGED = 42, /* source changed while read */
	OUT_TRANSPORT = 43, /* transport demanded but not usable */
	OUT_PEER_LOST = 44, /* dead peer, lost lane, not confirmed */
	OUT_MEMLOCK = 45,
};

enum { FAIL_TEXT_MAX = 1024 };

struct failure {
	enum outcome code; /* OUT_DONE: none */
	char text[FAIL_TEXT_MAX];
};

/* Record a failure of this thread and return -1.  %m is errno as it was at the call.
 * errno is kept.  fail() is a failure of file I/O, fail_as() of the given kind.
 * A later one replaces an earlier one. */
int fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), cold));
int fail_as(enum outcome code, const char *fmt, ...) __attribute__((format(printf, 2, 3), cold));

/* The failure of whoever was asked by this signal to end. */
int fail_signal(int signo);

/* This thread's failure; valid until the thread's next one. Never NULL. */
const struct failure *failed(void);

/* Make f this thread's failure and return -1: how a cause crosses threads. */
int fail_again(const struct failure *f);

void fail_clear(void);

/* A whole outcome from a peer's byte: values that are no outcome become OUT_PROTOCOL. */
enum outcome outcome_from(unsigned code);

#endif
