/* SPDX-License-Identifier: Apache-2.0 */
/* rdsend: send a stream or file to an rdrecv. */
#include <sys/stat.h>
#include "cmd/end/dial.h"
#include "cmd/end/stream_end.h"
#include "cmd/process/process.h"
#include "copy/source/source.h"
#include "copy/walk/find.h"
#include "session/connect/offer_place.h"

static int dial_receiver(struct stream_end *e, int left_ms, struct channel **ch,
			 struct session_opts *so)
{
	const struct dial_opts o = {
		.host = e->host,
		.port = e->port,
		.family = so->family,
		.tos = so->tos,
		.timeout_ms = left_ms,
		.silence_ms = e->options.network.timeout_ms,
		.key = &e->key,
		.listener = "rdrecv",
	};
	union address from;

	/* The session ignores an address that it can't resolve: it only prefers it. */
	if (e->options.network.address[0] &&
	    offer_place_resolve(e->options.network.address, so->family, &from))
		return -1;
	snprintf(so->peer, sizeof so->peer, "%s", e->host);
	return dial_connect(&o, ch, &so->dialed);
}

static int check_source_file(struct stream_end *e)
{
	mode_t mode;

	if (find_readable(e->file, &mode))
		return -1;
	e->reads_file = S_ISREG(mode);
	return 0;
}

static int send_stream(struct stream_end *e)
{
	char *names[] = {(char *)e->file, NULL};
	struct end_work *w = &e->work;
	struct source_opts so = {
		.names = names,
		.count = e->file ? 1 : 0,
		.stream = stream_end_stream(e),
		.direct = w->orders.m.direct,
	};

	/* In a relay, FILE may have been written by the command of an upstream rdrecv. */
	if (e->reads_file)
		so.start = relay_await;
	return source_run(w->copy, w->session, &so, &w->tally, &w->result);
}

int main(int argc, char **argv)
{
	static struct stream_end e = {.meet = dial_receiver,
				      .check_file = check_source_file,
				      .copy_over = send_stream};

	process_parse_options(&e.options, RDSEND, argc, argv);
	e.host = e.options.operands[0];
	stream_end_run(&e, ROLE_SOURCE, 1);
}
