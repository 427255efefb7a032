/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CONDUCTOR_CARRIER_H
#define CMD_CONDUCTOR_CARRIER_H

/*
 * Carrying one lane over ssh: the two commands that run on far hosts, and the process beside a
 * conductor that joins their stdio (detour.h).
 *
 * `rdcp --lane' reads a port (two bytes, high first), connects to it on its loopback, sends one
 * byte (0: connected, else the errno) and passes on what comes.
 *
 * `rdcp --lane-listen' reads a token.  Zeros make it the keeper of a loopback port: it says the
 * port and a token, and shows its listening socket to every other --lane-listen of the same
 * user on that host that knows the token.  Such a one says one byte, takes one connection and
 * passes on what comes.  So all lanes come to one port, and each has an ssh of its own.  Both print
 * why they fail, since their output is the lane's; a connection of a lane that ended, or the end of
 * the conductor, is no failure.
 *
 * Connections of other users to either loopback port are closed: each would cost an ssh.
 */

#include "cmd/conductor/detour.h"

enum { TOKEN_SIZE = 16, KEEPER_SAYS = 2 + TOKEN_SIZE };

/* rdcp --lane, rdcp --lane-listen: exit codes. */
int lane_command_run(void);
int lane_command_listen(void);

struct carrier {
	const struct detour_way *way;
	int fd; /* a connection that was taken here, or -1: */
	unsigned char token[TOKEN_SIZE]; /* of the keeper at way->from */
	int logins; /* login_turn.h */
};
/* In a process of its own that ends with `in'.  It writes to `out', each in one write: */
enum { CARRIER_USED = 'u', CARRIER_FAILED = 'f' /* and why, as text */ };
int carrier_run(void *carrier, int in, int out);

#endif
