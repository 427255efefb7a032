/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_FAIL_H
#define BASE_FAIL_H

/*
 * Failures: one sentence and one exit code per thread.
 *
 * The function that first detects a failure writes the sentence: what was attempted, on what, why;
 * lowercase, no full stop. All callers pass -1 on and add nothing. The top of a program prints the
 * sentence once and sends it to the peer.
 *
 * File names in a sentence are the caller's bytes. They are escaped when printed (escape.h), never
 * here.
 */

enum outcome {
	OUT_DONE = 0,
	OUT_USAGE = 1,
	OUT_VERSION = 2, /* protocol versions differ */
	OUT_NO_SOURCE = 3, /* source missing, or a pattern without a match */
	OUT_START = 5, /* ssh failed, far end missing, unknown host */
	OUT_SOCKET = 10,
	OUT_FILE = 11, /* file I/O, or a failed command after -- */
	OUT_PROTOCOL = 12,
	OUT_SIGNAL = 20,
	OUT_MEMORY = 22,
	OUT_SOME_FILES = 23,
	OUT_VANISHED = 24, /* a source vanished */
	OUT_MAX_DELETE = 25,
	OUT_TIMEOUT = 30, /* the peer is silent */
	OUT_CONNECT = 35, /* connect timeout */
	OUT_AUTH = 40,
	OUT_INTEGRITY = 41,
	OUT_CHANGED = 42, /* the source changed while it was read */
	OUT_TRANSPORT = 43, /* the requested transport is not usable */
	OUT_PEER_LOST = 44, /* peer dead, lane lost, or end not confirmed */
	OUT_MEMLOCK = 45,
};

enum { FAIL_TEXT_MAX = 1024 };

struct failure {
	enum outcome code; /* OUT_DONE: none */
	char text[FAIL_TEXT_MAX];
};

/* Record a failure of this thread and return -1. %m is errno at the call. Both keep errno. fail()
 * records a failure of file I/O, fail_as() one of the given kind. A later failure replaces an
 * earlier one. */
int fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), cold));
int fail_as(enum outcome code, const char *fmt, ...) __attribute__((format(printf, 2, 3), cold));

/* Records that this signal ended the work; returns -1. */
int fail_signal(int signo);
/* A signal may only be the consequence of another failure. fail_signal() calls cause() first, in
 * any thread; if that returns -1, its failure is the one recorded. Call this before starting
 * threads. */
void fail_signal_by(int (*cause)(void));

/* This thread's failure; valid until its next one. Never NULL. */
const struct failure *failed(void);

/* Makes f this thread's failure and returns -1. For passing failures between threads. */
int fail_again(const struct failure *f);

void fail_clear(void);

/* The outcome of a byte from a peer; invalid values become OUT_PROTOCOL. */
enum outcome outcome_from(unsigned code);

#endif
