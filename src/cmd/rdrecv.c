/* SPDX-License-Identifier: Apache-2.0 */
/* rdrecv: wait for an rdsend and store its stream. */
#include <stdio.h>
#include <string.h>
#include "base/clock.h"
#include "base/log.h"
#include "cmd/end/stream_end.h"
#include "cmd/process/process.h"
#include "copy/place/place.h"
#include "copy/sink/sink.h"
#include "session/connect/offer_place.h"

/* Listens at --address, or at all addresses. */
static int listen_for_sender(struct stream_end *e, int family)
{
	const struct options *o = &e->options;
	unsigned lo = e->port ? e->port : o->network.port_lo;
	unsigned hi = e->port ? e->port : o->network.port_hi;
	union address at = {.sa.sa_family = (sa_family_t)family};

	if (o->network.address[0] && offer_place_resolve(o->network.address, family, &at))
		return -1;
	return porter_listen_tcp(e->porter, at.sa.sa_family ? &at : NULL, lo, hi);
}

static int accept_sender(struct stream_end *e, int left_ms, struct channel **ch,
			 struct session_opts *so)
{
	const struct options *o = &e->options;
	uint64_t deadline_ms = o->wait_ms >= 0 ? clock_ms() + (unsigned)o->wait_ms : 0;
	union address local, peer;

	(void)left_ms;
	if (porter_new(so->tos, &e->porter) || listen_for_sender(e, so->family))
		return -1;
	if (o->output.verbose || !e->port)
		fprintf(stderr, "%s: listening on %s:%u\n", program_name(RDRECV),
			o->network.address[0] ? o->network.address : "*",
			porter_tcp_port(e->porter));
	if (porter_admit(e->porter, &e->key, deadline_ms, ch))
		return -1;
	so->porter = e->porter;
	snprintf(so->peer, sizeof so->peer, "the sender");
	if (channel_addresses(*ch, &local, &peer)) {
		if (peer.sa.sa_family == AF_INET)
			peer.in4.sin_port = 0;
		else
			peer.in6.sin6_port = 0;
		address_text(&peer, so->peer, sizeof so->peer);
		log_info("the sender is %s", so->peer);
	}
	return 0;
}

static int check_target_file(struct stream_end *e)
{
	return place_check(e->file, &e->options.rules);
}

static int receive_stream(struct stream_end *e)
{
	struct end_work *w = &e->work;
	struct sink_opts so = orders_sink_opts(&w->orders);

	so.target = e->file;
	so.stream = stream_end_stream(e);
	so.single_stream = true;
	return sink_run(w->copy, w->session, &so, &w->tally, &w->result);
}

int main(int argc, char **argv)
{
	static struct stream_end e = {.meet = accept_sender,
				      .check_file = check_target_file,
				      .copy_over = receive_stream};

	process_parse_options(&e.options, RDRECV, argc, argv);
	/* FILE is the file itself. */
	e.options.rules.no_target_dir = true;
	stream_end_run(&e, ROLE_SINK, 0);
}
