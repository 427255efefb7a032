/* SPDX-License-Identifier: Apache-2.0 */
/* rdrecv: wait for a rdsend and store what it sends. */
#include <stdio.h>
#include <string.h>
#include "base/clock.h"
#include "base/log.h"
#include "cmd/end/dial.h"
#include "cmd/end/stream_end.h"
#include "cmd/process/process.h"
#include "copy/place/place.h"
#include "copy/sink/sink_run.h"

/* The addresses to listen at: --address, or everywhere. */
static int listen_there(struct bare *b, int family)
{
	const struct options *o = &b->options;
	unsigned lo = b->port ? b->port : o->port_lo;
	unsigned hi = b->port ? b->port : o->port_hi;
	union address at[ADDRESSES_MAX] = {{.sa.sa_family = 0}};
	int n;

	if (o->address[0]) {
		n = resolve(o->address, 0, family, at);
		return n < 0 ? -1 : porter_listen_tcp(b->porter, &at[0], lo, hi);
	}
	if (!family)
		return porter_listen_tcp(b->porter, NULL, lo, hi);
	at[0].sa.sa_family = (sa_family_t)family;
	return porter_listen_tcp(b->porter, &at[0], lo, hi);
}

static int meet(struct bare *b, int left_ms, struct channel **ch, struct session_opts *so)
{
	const struct options *o = &b->options;
	uint64_t deadline_ms = o->wait_ms >= 0 ? clock_ms() + (unsigned)o->wait_ms : 0;
	union address local, peer;

	(void)left_ms;
	if (porter_new(&b->porter) || listen_there(b, so->family))
		return -1;
	if (o->verbose || !b->port)
		fprintf(stderr, "%s: listening on %s:%u\n", program_name(RDRECV),
			o->address[0] ? o->address : "*", porter_tcp_port(b->porter));
	if (porter_admit(b->porter, &b->key, deadline_ms, ch))
		return -1;
	so->porter = b->porter;
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

static int check_file(struct bare *b)
{
	return place_check(b->file, &b->options.rules);
}

static int copy_over(struct bare *b, struct session *s)
{
	struct sink_opts so = {
		.target = b->file,
		.peer = "",
		.stream = bare_stream(b),
		.rules = &b->options.rules,
		.direct = (enum direct)b->options.direct,
		.quiet_names = true,
	};

	return sink_run(b->copy, s, &so, &b->tally, &b->result);
}

int main(int argc, char **argv)
{
	static struct bare b = {
		.role = ROLE_SINK, .meet = meet, .check_file = check_file, .copy_over = copy_over};

	take_command_line(&b.options, RDRECV, argc, argv);
	/* FILE is the file itself. */
	b.options.rules.no_target_dir = true;
	bare_run(&b, 0);
}
