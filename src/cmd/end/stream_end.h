/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_END_STREAM_END_H
#define CMD_END_STREAM_END_H

/*
 * rdsend and rdrecv: an end without a conductor, which makes its START itself.  What both do alike
 * is in stream_end.c, how each gets its peer in rdsend.c and rdrecv.c.
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
	struct end_work work; /* with its role in START */
	const char *host; /* rdsend */
	unsigned port;
	const char *file; /* NULL: stdin or stdout, or the command */
	int file_fd; /* the descriptor that a sink's file names, -1 */

	/* Come by an authenticated peer: its channel, and what the session must know of how it
	 * came (porter, dialed, peer).  left_ms: of --connect-timeout. */
	int (*meet)(struct stream_end *e, int left_ms, struct channel **ch,
		    struct session_opts *so);
	/* e->file: can it be read or written, as far as is known without opening it? */
	int (*check_file)(struct stream_end *e);
	/* Do the work over the session. */
	int (*copy_over)(struct stream_end *e);

	/* its own */
	struct psk key;
	struct child command; /* pid 0: none */
	struct relay relay; /* a sink's: its command may be a rdsend */
	bool reads_file; /* a source's file is a regular one */
	struct porter *porter;
	struct report report;
	struct progress progress;
};

/* Everything from the operands on: never returns. operands: PORT's place in them. */
_Noreturn void stream_end_run(struct stream_end *e, enum role role, unsigned port_at);

/* The stream of the command, or of stdin or stdout; fd -1 when it is a file. */
struct stream stream_end_stream(struct stream_end *e);
/* AF_INET, AF_INET6 or 0, of -4 and -6. */
int stream_end_family(const struct options *o);

#endif
