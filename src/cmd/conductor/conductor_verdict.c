/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/conductor/conductor_impl.h"

#include <stdio.h>
#include <string.h>
#include "base/clock.h"
#include "base/fail.h"
#include "cmd/output/stats.h"

/* The run came to its end without all files. */
static bool is_of_some_files(enum outcome code)
{
	return code == OUT_SOME_FILES || code == OUT_VANISHED || code == OUT_MAX_DELETE;
}

/* Whether the later failure of one end counts more than the earlier one. The source knows that all
 * failed files have vanished, or that some could not be removed. An end that lacks memory or
 * descriptors knows why the other one could not connect. What an end has not done that is lost or
 * interrupted is not in the other one's count of failed files. */
static bool counts_more(enum outcome later, enum outcome earlier)
{
	switch (later) {
	case OUT_VANISHED:
		return earlier == OUT_SOME_FILES;
	case OUT_SOME_FILES:
		return earlier == OUT_MAX_DELETE;
	case OUT_MEMORY:
		return earlier == OUT_CONNECT || earlier == OUT_PEER_LOST ||
		       earlier == OUT_TRANSPORT || is_of_some_files(earlier);
	case OUT_INTEGRITY:
	case OUT_PEER_LOST:
	case OUT_PROTOCOL:
	case OUT_SIGNAL:
	case OUT_TIMEOUT:
		return is_of_some_files(earlier);
	default:
		return false;
	}
}

void conductor_record_failure(struct conductor *c, const struct failure *f, const char *host)
{
	if (c->cause.code != OUT_DONE && !counts_more(f->code, c->cause.code))
		return;
	c->cause = *f;
	snprintf(c->cause_host, sizeof c->cause_host, "%s", host);
}

/* Whether this end did all that it could, although files may have failed. */
static bool reports_end(const struct end_pipe *l)
{
	return l->has_verdict && (l->verdict.code == OUT_DONE || is_of_some_files(l->verdict.code));
}

/* One end reported that everything is stored, and so did each end on this host. Only the source
 * knows what --remove-source-files removed. */
bool conductor_is_all_done(const struct conductor *c)
{
	const struct end_pipe *source = &c->pipes[END_SOURCE], *sink = &c->pipes[END_SINK];
	bool source_may_be_silent = source->far && !c->job->o->rules.remove_source;

	return (reports_end(source) || reports_end(sink)) &&
	       (source_may_be_silent || reports_end(source)) && (sink->far || reports_end(sink));
}

uint64_t conductor_removals_due(const struct conductor *c)
{
	const struct end_pipe *source = &c->pipes[END_SOURCE], *sink = &c->pipes[END_SINK];

	if (!c->job->o->rules.remove_source || !reports_end(sink) || !sink->relayed_done ||
	    source->has_verdict || source->gone)
		return 0;
	return source->last_read_ms + (uint64_t)c->job->o->network.timeout_ms;
}

/* Waits less for an end that has been silent for half of --timeout. */
static unsigned verdict_wait_ms(struct conductor *c, const struct end_pipe *l)
{
	const struct end_pipe *other = conductor_other(c, l);
	uint64_t silence = clock_ms() - other->last_read_ms;

	if (l->verdict.code == OUT_TIMEOUT ||
	    (l->verdict.code != OUT_DONE && silence > (uint64_t)c->job->o->network.timeout_ms / 2))
		return SILENT_VERDICT_WAIT_MS;
	return VERDICT_WAIT_MS;
}

void conductor_take_verdict(struct conductor *c, struct end_pipe *l, const struct msg_verdict *m)
{
	struct failure failure = {0};

	l->verdict = *m;
	l->has_verdict = true;
	if (c->bridge)
		bridge_release(c->bridge);
	/* A disk alone is measured at one end; the other end is idle. */
	if ((!c->job->measure || l->verdict.code != OUT_DONE) && !conductor_removals_due(c))
		conductor_terminate_by(c, verdict_wait_ms(c, l));
	if (l->verdict.code == OUT_DONE)
		return;
	failure.code = l->verdict.code;
	snprintf(failure.text, sizeof failure.text, "%s", l->verdict.text);
	/* Failures on this host are printed without a host name. */
	for (int i = 0; i < 2; i++) {
		if (!c->pipes[i].far && strcmp(l->verdict.host, c->pipes[i].name) == 0)
			l->verdict.host[0] = '\0';
	}
	if (!l->relayed_frame && !c->job->measure && !conductor_other(c, l)->has_verdict)
		conductor_send_error(conductor_other(c, l), &failure, l->name);
	conductor_record_failure(c, &failure, l->verdict.host);
}

void conductor_note_missing_verdict(struct conductor *c)
{
	int i = c->pipes[END_SOURCE].has_verdict ? END_SINK : END_SOURCE;

	if (c->pipes[i].has_verdict || conductor_is_all_done(c))
		return;
	fail_as(OUT_PEER_LOST, "the %s on %s reported no result in time",
		i == END_SOURCE ? "source" : "sink", c->pipes[i].name);
	conductor_record_failure(c, failed(), "");
}

void conductor_fill_report(const struct conductor *c, struct report *r)
{
	const struct msg_verdict *source = &c->pipes[END_SOURCE].verdict;
	const struct msg_verdict *sink = &c->pipes[END_SINK].verdict;
	const struct msg_verdict *v = c->pipes[END_SINK].has_verdict ? sink : source;

	report_take(r, v);
	if (c->detour && (c->pipes[END_SOURCE].daemon || c->pipes[END_SINK].daemon)) {
		r->transport = TRANSPORT_TCP;
		snprintf(r->how, sizeof r->how, "ssh and tcp, through this host");
	} else if (c->detour) {
		r->transport = TRANSPORT_SSH;
		snprintf(r->how, sizeof r->how, "ssh");
	} else if (c->bridge && r->lanes) {
		snprintf(r->how, sizeof r->how, "tcp, through this host");
	}
	r->counts = counts_join(&source->counts, &sink->counts);
	r->source = source->times;
	r->sink = sink->times;
	r->bwlimit = c->job->o->network.bwlimit;
	r->failure = c->cause;
	snprintf(r->host, sizeof r->host, "%s", c->cause_host);
	if (c->job->measure) {
		c->job->measure->verdicts[END_SOURCE] = *source;
		c->job->measure->verdicts[END_SINK] = *sink;
	}
}
