/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_SERVE_ADMISSION_H
#define CMD_SERVE_ADMISSION_H

/*
 * The clients of rdcpd that have a process, but have not authenticated yet.
 *
 * - There are at most ADMISSIONS_MAX.
 * - The next one is the stranger whose address has the fewest of these processes; of several, the
 * newest. So if more come than can be served, a newcomer still has its chance. The oldest would be
 * close to the end of their time.
 * - While all places are taken, a handshake that takes longer than ADMISSION_MS makes room: the
 * oldest one of the address with the most processes.
 *
 * So clients that do not go on delay others by less than ADMISSION_MS, and there are at most
 * ADMISSIONS_MAX new processes in that time.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "session/connect/strangers.h"

enum { ADMISSIONS_MAX = 32, ADMISSION_MS = 250 };

struct admission {
	struct {
		pid_t pid;
		uint64_t since; /* clock_ms */
		uint8_t from[16]; /* struct stranger */
	} list[ADMISSIONS_MAX]; /* oldest first */
	unsigned count;
};

/* The index of the stranger that is next, of those whose hello waits; -1: there is none. */
int admission_choose(const struct admission *a, const struct strangers *s);
bool admission_is_full(const struct admission *a);
/* A process for a stranger. There must be room. */
void admission_add(struct admission *a, pid_t pid, const struct stranger *s);
/* The client has authenticated, or its process is gone. */
void admission_remove(struct admission *a, pid_t pid);
/* The process that must make room now, when all places are taken; 0: none has to yet. */
pid_t admission_victim(const struct admission *a);
/* When there is room for one more (clock_ms), also if nobody goes on until then; 0: now. */
uint64_t admission_due(const struct admission *a);

#endif
