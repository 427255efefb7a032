/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What two ends send to their conductor. An input: a byte that selects the kind of session, a byte
 * that says where the ends are, then pieces: a byte (which end sends, and how many bytes at once),
 * u16 length, and the bytes. Frames that are not for the conductor must reach the other end
 * unchanged.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/cursor.h"
#include "base/log.h"
#include "cmd/conductor/conductor_impl.h"
#include "cmd/output/events.h"
#include "cmd/output/screen.h"
#include "expect.h"

enum {
	MEASURES = 1 << 0,
	BRINGS = 1 << 1,
	WANTS_SSH = 1 << 2,
	WANTS_TCP = 1 << 3,
	KEEPS_WARNING = 1 << 4,
	THROUGH_HERE = 1 << 5,
	IN_THE_CLEAR = 1 << 6
};
enum {
	SOURCE_FAR = 1 << 0,
	SINK_FAR = 1 << 1,
	SOURCE_LISTENS = 1 << 2,
	GREETED = 1 << 3,
	QUIET = 1 << 4,
	AT_DAEMON = 1 << 5 /* the end that listens */
};
enum { INPUT_MAX = 128 << 10 };

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* Replaces the C library's function: the seeds contain this name. */
int gethostname(char *name, size_t size)
{
	snprintf(name, size, "here");
	return 0;
}

/* Replaces the function of cmd/conductor/detour.c, which starts ssh (-Wl,--wrap). */
int __wrap_detour_open(const struct detour_way *w, struct detour **out);

static int nowhere;
static struct options options;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	signal(SIGPIPE, SIG_IGN);
	nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
	expect(nowhere >= 0);
	/* The conductor prints what ends report; discard it. */
	expect(dup2(nowhere, STDOUT_FILENO) >= 0);
	log_setup("fuzz", LOG_ERROR);
	options.program = RDCP;
	options.output.itemize = options.output.json = true;
	options.rules.digest = CONTENT_SHA256;
	expect(events_begin(&options, false) == 0);
	return 0;
}

int __wrap_detour_open(const struct detour_way *w, struct detour **out)
{
	expect(w->daemon || (w->port > 0 && (w->from || w->to)));
	*out = NULL;
	return w->announce(w->ctx, w->port, "over ssh");
}

static void link_begin(struct conductor *c, int i, const char *host, uint8_t where)
{
	struct end_pipe *l = &c->pipes[i];

	end_pipe_init(l);
	end_pipe_set_host(l, where & AT_DAEMON && i == c->listener ? "rdma://far/m" : host);
	l->child.in = fcntl(nowhere, F_DUPFD_CLOEXEC, 0);
	l->greeted = where & GREETED;
	l->reused = c->job->measure;
	strcpy(l->child.what, "ssh far");
}

/* Passes bytes of one end to the conductor, as many as it takes. */
static void say(struct conductor *c, struct end_pipe *l, const uint8_t *bytes, size_t len)
{
	while (len > 0 && !conductor_is_finished(c, l)) {
		size_t room;
		void *to = framer_room(&l->in, &room);
		size_t now = len < room ? len : room;

		if (now == 0)
			break;
		memcpy(to, bytes, now);
		framer_filled(&l->in, now);
		conductor_take_frames(c, l);
		bytes += now;
		len -= now;
	}
	expect(l->verdict.transport <= TRANSPORT_SSH);
}

static void conduct_one(struct conductor *c, struct reader *in)
{
	while (in->left > 0 && !in->bad) {
		uint8_t which = take_u8(in);
		size_t len = take_u16(in);

		len = len < in->left ? len : in->left;
		say(c, &c->pipes[which & 1], take_view(in, len), len);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct conductor c;
	struct reader in = reader_of(data, size);
	struct taken added = {0};
	struct measure measure = {0};
	struct conductor_job job = {
		.o = &options, .source_host = "", .sink_host = "", .target = "t"};
	uint8_t kind = take_u8(&in), where = take_u8(&in);

	if (in.bad || size > INPUT_MAX)
		return -1;
	memset(&c, 0, sizeof c);
	c.job = &job;
	options.network.want = kind & WANTS_SSH   ? TRANSPORT_SSH
			       : kind & WANTS_TCP ? TRANSPORT_TCP
						  : TRANSPORT_AUTO;
	options.network.encrypt = kind & IN_THE_CLEAR ? ENCRYPT_OFF : ENCRYPT_AUTO;
	options.remote.through_here = kind & THROUGH_HERE;
	options.output.quiet = where & QUIET;
	options.network.timeout_ms = 1000;
	measure.keeps_warning = kind & KEEPS_WARNING;
	job.measure = kind & MEASURES ? &measure : NULL;
	job.added = kind & BRINGS ? &added : NULL;
	c.listener = where & SOURCE_LISTENS ? END_SOURCE : END_SINK;
	link_begin(&c, END_SOURCE, where & SOURCE_FAR ? "user@source" : "", where);
	link_begin(&c, END_SINK, where & SINK_FAR ? "sink" : "", where);
	conduct_one(&c, &in);
	events_flush();
	for (int i = 0; i < 2; i++)
		end_pipe_close(&c.pipes[i]);
	taken_free(&added);
	return 0;
}
