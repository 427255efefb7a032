/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CONDUCTOR_CARRIER_H
#define CMD_CONDUCTOR_CARRIER_H

/*
 * Carries one lane over ssh: the two commands that run on far hosts, and the process beside a
 * conductor that connects their stdio (detour.h).
 *
 * `rdcp --lane' reads a port (two bytes, high byte first), connects to it on its host's loopback,
 * sends one byte (0: connected, else the errno), and relays bytes.
 *
 * `rdcp --lane-listen' reads a token. A token of zeros makes it the keeper of a loopback port: it
 * sends the port and a new token, and passes its listening socket to every other --lane-listen of
 * the same user on that host that has this token. Such a process sends one byte, accepts one
 * connection and relays its bytes. So all lanes connect to one port, and each has its own ssh. For
 * each byte of input the keeper closes the connections that wait, because no such process is left.
 * Both commands print why they fail, since their output is the lane's. A lane's connection that
 * ended, or the end of the conductor, is no failure.
 *
 * Connections of other users to either loopback port are closed, because each would cost an ssh.
 */

#include "cmd/conductor/detour.h"

enum { TOKEN_SIZE = 16, KEEPER_REPLY = 2 + TOKEN_SIZE };
/* The token of zeros, which makes `rdcp --lane-listen' a keeper. */
extern const unsigned char keeper_request[TOKEN_SIZE];

/* `rdcp --lane' and `rdcp --lane-listen'; both return exit codes. */
int lane_command_run(void);
int lane_command_listen(void);

struct carrier {
	const struct detour_way *way;
	int fd; /* a connection that was accepted here, or -1: then token is used */
	unsigned char token[TOKEN_SIZE]; /* of the keeper at way->from */
	int logins; /* see login_turn.h */
};
/* Runs in its own process, which ends when `in' ends. Writes these reports to `out', each in one
 * write: */
enum { CARRIER_USED = 'u', CARRIER_FAILED = 'f' /* followed by the reason as text */ };
int carrier_run(void *carrier, int in, int out);

#endif
