/* SPDX-License-Identifier: Apache-2.0 */
/* rdsend: send a stream or file to a rdrecv. */
#include <sys/stat.h>
#include "cmd/end/dial.h"
#include "cmd/end/stream_end.h"
#include "cmd/process/process.h"
#include "copy/source/source_run.h"
#include "copy/walk/find.h"

static int meet(struct bare *b, int left_ms, struct channel **ch, struct session_opts *so)
{
	const struct dial_opts o = {
		.host = b->host,
		.port = b->port,
		.family = so->family,
		.timeout_ms = left_ms,
		.silence_ms = b->options.timeout_ms,
		.key = &b->key,
	};

	snprintf(so->peer, sizeof so->peer, "%s", b->host);
	return dial(&o, ch, &so->dialed);
}

static int check_file(struct bare *b)
{
	mode_t mode;

	if (find_readable(b->file, &mode))
		return -1;
	b->reads_file = S_ISREG(mode);
	return 0;
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

	/* What a command above has stored may be what a rdrecv received. */
	if (b->reads_file && relay_await(NULL))
		return session_fail(s);
	return source_run(b->copy, s, &so, &b->tally, &b->result);
}

int main(int argc, char **argv)
{
	static struct bare b = {.role = ROLE_SOURCE,
				.meet = meet,
				.check_file = check_file,
				.copy_over = copy_over};

	take_command_line(&b.options, RDSEND, argc, argv);
	b.host = b.options.operands[0];
	bare_run(&b, 1);
}
