/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_PROCESS_CHILD_H
#define CMD_PROCESS_CHILD_H

/*
 * Starts programs with pipes to their stdin and stdout: ssh, a command after --, an end of our own.
 * Only for a process that has no threads yet.
 *
 * No child inherits RD_KEY in its environment, our signal handlers, our signal mask, or any of our
 * descriptors but its stdio and keep_fd. Forked children close the descriptors of children started
 * before them.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct child {
	pid_t pid; /* 0: none, or already waited for */
	int in, out; /* we write to `in' and read from `out'; -1: no pipe */
	int go; /* of a held command, see child_run_held(); -1: none */
	int status; /* as in waitpid(2), once waited for */
	char what[256]; /* for messages: "ssh storage2", "command zfs" */
};

struct child_opts {
	const char *what;
	bool pipe_in, pipe_out; /* else the child inherits ours */
	bool held; /* forked now, executed by child_run_held(); exits if we exit before */
	int keep_fd; /* a descriptor that the program inherits; 0: none */
	char *keep_env; /* NAME=VALUE to add to its environment; NULL: none */
	bool ignore_sigint; /* for ssh: the conductor handles Ctrl-C */
};
/* Returns 0 if execvp(3) would find a program of this name, else -1 (OUT_FILE). */
int child_find(const char *name, const char *what);
/* Searches PATH. Returns -1 (OUT_START) also if the program can't be executed, unless it is
 * held. */
int child_exec(char *const argv[], const struct child_opts *o, struct child *out);
/* Runs fn(ctx, in, out) in a forked process, which then calls _exit() with its result. */
int child_fork(int (*fn)(void *ctx, int in, int out), void *ctx, const char *what,
	       struct child *out);
/* Executes a held command. Returns -1 (OUT_FILE) if it can't be executed. */
int child_run_held(struct child *c);
/* Waits for the child; *status is as in waitpid(2). Waits until deadline_ms (clock_ms; 0: without
 * limit, or until cancelled()). Returns false if the child still runs. */
bool child_wait(struct child *c, int *status, uint64_t deadline_ms);
/* "exited with 3", "was killed by signal 9 (Killed)": for messages. Returns to. */
char *child_end_text(int status, char *to, size_t size);
/* Closes its stdin or stdout. */
void child_close_in(struct child *c);
void child_close_out(struct child *c);
/* Terminates the child if it runs: SIGTERM, and after 500 ms SIGKILL. Closes the descriptors. */
void child_stop(struct child *c);

#endif
