/* SPDX-License-Identifier: Apache-2.0 */
/* rdsend: send a stream or file to a rdrecv. */
#include "cmd/bare.h"
#include "cmd/dial.h"
#include "cmd/process.h"

static int meet(struct bare *b, struct channel **ch, struct session_opts *so)
{
	snprintf(so->peer, sizeof so->peer, "%s", b->host);
	return dial(b->host, b->port, so->family, b->options.connect_timeout_ms, &b->key, ch,
		    &so->dialed);
}

static int copy_over(struct bare *b, struct session *s)
{
	char *names[] = {(char *)b->file, NULL};
	struct source_opts so = {
		.names = names,
		.count = b->file ? 1 : 0,
		.stream = bare_stream(b),
		.direct = (enum direct)b->options.direct,
	};

	return source_run(b->copy, s, &so, &b->tally, &b->result);
}

int main(int argc, char **argv)
{
	static struct bare b = {.role = ROLE_SOURCE, .meet = meet, .copy_over = copy_over};

	take_command_line(&b.options, RDSEND, argc, argv);
	b.host = b.options.operands[0];
	bare_run(&b, 1);
}
