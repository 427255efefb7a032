/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_END_STREAM_END_H
#define CMD_END_STREAM_END_H

/*
 * rdsend and rdrecv: an end without a conductor.  What both do alike is in bare.c, how each
 * comes by its peer in rdsend.c and rdrecv.c.
 */

#include <stdatomic.h>
#include "cmd/cli/options.h"
#include "cmd/end/relay.h"
#include "cmd/output/progress.h"
#include "cmd/output/report.h"
#include "cmd/process/child.h"
#include "cmd/process/watch.h"
#include "copy/copy.h"
#include "session/channel/key.h"
#include "session/connect/porter.h"

struct bare {
	struct options options;
	enum role role;
	const char *host; /* rdsend */
	unsigned port;
	const char *file; /* NULL: stdin or stdout, or the command */
	int file_fd; /* the descriptor that a sink's file names, -1 */

	/* Come by an authenticated peer: its channel, and what the session must know of how it
	 * came (porter, dialed, peer).  left_ms: of --connect-timeout. */
	int (*meet)(struct bare *b, int left_ms, struct channel **ch, struct session_opts *so);
	/* b->file: can it be read or written, as far as is known without opening it? */
	int (*check_file)(struct bare *b);
	/* Do the work over the session. */
	int (*copy_over)(struct bare *b, struct session *s);

	/* its own */
	struct psk key;
	struct child command; /* pid 0: none */
	struct relay relay; /* a sink's: its command may be a rdsend */
	bool reads_file; /* a source's file is a regular one */
	struct porter *porter;
	struct copy *copy;
	atomic_bool opened; /* the session */
	struct tally tally;
	struct copy_result result;
	struct report report;
	struct progress progress;
	struct watch watch;
};

/* Everything from the operands on: never returns. operands: PORT's place in them. */
_Noreturn void bare_run(struct bare *b, unsigned port_at);

/* The stream of the command, or of stdin or stdout; fd -1 when it is a file. */
struct stream bare_stream(struct bare *b);
/* AF_INET, AF_INET6 or 0, of -4 and -6. */
int bare_family(const struct options *o);

#endif
