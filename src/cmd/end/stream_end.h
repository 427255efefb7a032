/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_END_STREAM_END_H
#define CMD_END_STREAM_END_H

/*
 * rdsend and rdrecv: an end without a conductor, which makes its own START. stream_end.c has what
 * both share; rdsend.c and rdrecv.c have how each gets its peer.
 */

#include "cmd/cli/options.h"
#include "cmd/end/end_work.h"
#include "cmd/end/relay.h"
#include "cmd/output/progress.h"
#include "cmd/output/report.h"
#include "cmd/process/child.h"
#include "session/channel/key.h"
#include "session/connect/porter.h"

struct stream_end {
	struct options options;
	struct end_work work; /* its START has the role */
	const char *host; /* rdsend */
	unsigned port;
	const char *file; /* NULL: stdin or stdout, or the command */
	int file_fd; /* the descriptor that a sink's file is another name for; -1: none */

	/* Gets an authenticated peer: returns its channel, and sets the fields of so that depend on
	 * the connection (porter, dialed, peer). left_ms: what is left of --connect-timeout. */
	int (*meet)(struct stream_end *e, int left_ms, struct channel **ch,
		    struct session_opts *so);
	/* Checks whether e->file can be read or written, as far as is possible without opening
	 * it. */
	int (*check_file)(struct stream_end *e);
	/* Does the work over the session. */
	int (*copy_over)(struct stream_end *e);

	/* private */
	struct psk key;
	struct child command; /* pid 0: none */
	struct relay relay; /* of a sink, because its command may be a rdsend */
	pthread_mutex_t input_lock; /* command.in is open while it is held, or -1 */
	_Atomic uint64_t passed; /* bytes that the pipe to the command has taken */
	struct reading {
		uint64_t passed;
		int unread; /* bytes in the pipe */
		uint64_t since_ms; /* neither has changed since then */
	} reading;
	bool reads_file; /* the source's file is a regular file */
	struct porter *porter;
	struct report report;
	struct progress progress;
};

/* Does everything from the operands on; does not return. port_at: index of PORT in the operands. */
_Noreturn void stream_end_run(struct stream_end *e, enum role role, unsigned port_at);

/* The stream of the command, or of stdin or stdout; fd is -1 for a file. */
struct stream stream_end_stream(struct stream_end *e);

#endif
