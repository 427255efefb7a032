/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/check/survey_serve.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fail.h"
#include "base/io.h"
#include "base/log.h"
#include "cmd/check/survey.h"
#include "session/channel/framer.h"

enum { LINGER_MS = 600000 }; /* far longer than rdcheck sends PINGs */

#ifndef SLUICE_VERSION
#define SLUICE_VERSION "0"
#endif

struct survey_server {
	struct channel *channel;
	struct framer framer;
	bool lost;
};

static int send_survey_greeting(struct survey_server *e)
{
	uint8_t body[256];
	struct writer w = writer_of(body, sizeof body);
	struct msg_greeting m = {.version = PROTOCOL_VERSION, .release = SLUICE_VERSION};

	msg_greeting_encode(&w, &m);
	return frame_write(e->channel, MSG_GREETING, body, w.used, 0);
}

static void send_finding(void *ctx, const struct msg_finding *m)
{
	struct survey_server *e = ctx;
	uint8_t body[sizeof *m + 64];
	struct writer w = writer_of(body, sizeof body);

	msg_finding_encode(&w, m);
	if (!e->lost && frame_write(e->channel, MSG_FINDING, body, w.used, 0))
		e->lost = true;
}

static int send_survey_end(struct survey_server *e)
{
	struct msg_total m = {0};
	uint8_t body[128];
	struct writer w = writer_of(body, sizeof body);

	msg_total_encode(&w, &m);
	return frame_write(e->channel, MSG_END, body, w.used, 0);
}

static int answer_pings(struct survey_server *e)
{
	uint64_t until = clock_ms() + LINGER_MS;
	struct frame f;
	int rc;

	while ((rc = frame_read(e->channel, &e->framer, until, &f)) > 0) {
		struct msg_ping m;
		uint8_t body[16];
		struct writer w = writer_of(body, sizeof body);

		if (f.type != MSG_PING || msg_ping_decode(&f, &m))
			return fail_as(OUT_PROTOCOL, "rdcheck sent an unexpected %s",
				       message_name(f.type));
		msg_ping_encode(&w, &m);
		if (frame_write(e->channel, MSG_PONG, body, w.used, until))
			return -1;
	}
	return rc;
}

/* rdcheck sees only that this process exits, so prints why, unless rdcheck is gone. */
static int report_failed_survey(void)
{
	if (failed()->code != OUT_PEER_LOST)
		log_at(LOG_ERROR, "%s", failed()->text);
	return (int)failed()->code;
}

int survey_serve(int in, int out)
{
	static struct survey_server e;
	struct survey s = {.top = "", .found = send_finding, .ctx = &e};
	int fd[2] = {dup_above(in, 3), dup_above(out, 3)}, rc;

	framer_init(&e.framer);
	signal(SIGPIPE, SIG_IGN);
	/* Output of a library must not get between frames. */
	if (fd[0] < 0 || fd[1] < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
		fail_as(OUT_START, "move stdin and stdout to other descriptors: %m");
		return report_failed_survey();
	}
	close_fd(in);
	if (out != STDOUT_FILENO)
		close_fd(out);
	rc = channel_over_fds(fd[0], fd[1], &e.channel) || send_survey_greeting(&e) ||
	     survey_host(&s) || e.lost || send_survey_end(&e) || answer_pings(&e);
	channel_free(e.channel);
	return rc ? report_failed_survey() : OUT_DONE;
}
