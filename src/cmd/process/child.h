/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_PROCESS_CHILD_H
#define CMD_PROCESS_CHILD_H

/*
 * Starting programs with their stdio in our hands: ssh, a command after --, an end of our own.
 * Only in a process that has no threads yet.
 *
 * No child gets RD_KEY in its environment, our handlers, our signal mask, or a descriptor of
 * ours but its stdio and keep_fd; forked ones lose the descriptors of the children started before
 * them.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct child {
	pid_t pid; /* 0: none, or waited for */
	int in, out; /* we write to `in', read from `out'; -1: not piped */
	int go; /* held commands: see child_go(); -1 */
	int status; /* as waitpid(2) has it, once waited for */
	char what[256]; /* for messages: "ssh storage2", "command zfs" */
};

struct child_opts {
	const char *what;
	bool pipe_in, pipe_out; /* else inherited */
	bool held; /* forked now, executed after child_go(); dies if we do before */
	int keep_fd; /* the program inherits it; 0: none */
	char *keep_env; /* NAME=VALUE, added to its environment; NULL */
	bool ignore_sigint; /* ssh: Ctrl-C is the conductor's to handle */
};
/* Searched on PATH.  -1 (OUT_START) also when it can't be executed, but for held ones. */
int child_exec(char *const argv[], const struct child_opts *o, struct child *out);
/* Run fn(ctx, in, out) in a forked process that then _exit()s with its result. */
int child_fork(int (*fn)(void *ctx, int in, int out), void *ctx, const char *what,
	       struct child *out);
/* Let a held command run; -1 (OUT_FILE) when it can't be executed. */
int child_go(struct child *c);
/* Wait for it: exit status in *status as waitpid(2) has it.  Until deadline_ms (clock_ms; 0: for
 * ever, or until cancelled()); false when it still runs. */
bool child_wait(struct child *c, int *status, uint64_t deadline_ms);
/* "exited with 3", "was killed by signal 9 (Killed)": for messages. Returns to. */
char *child_end_text(int status, char *to, size_t size);
/* We are done with its stdin or stdout. */
void child_close_in(struct child *c);
void child_close_out(struct child *c);
/* End it if it runs: SIGTERM, after 500 ms SIGKILL; close descriptors. */
void child_stop(struct child *c);

#endif
