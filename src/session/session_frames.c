/* SPDX-License-Identifier: Apache-2.0 */

/* Handles the frames of the control channel and passes them on. All in the control thread. */

#include <stdio.h>
#include <string.h>
#include "base/log.h"
#include "session/session_impl.h"

static int on_hello(struct session *s, const struct frame *f)
{
	struct terms terms;
	struct msg_hello peer;

	if (s->agreed)
		return fail_as(OUT_PROTOCOL, "%s sent HELLO twice", s->o.peer);
	if (msg_hello_decode(f, &peer) < 0) {
		if (failed()->code == OUT_VERSION)
			fail_as(OUT_VERSION,
				"%s speaks protocol version %u, %s version %u: install the same "
				"release at both ends",
				s->o.peer, peer.version, s->o.host, PROTOCOL_VERSION);
		return -1;
	}
	if (terms_agree(&s->mine, &peer, &terms) < 0)
		return -1;
	control_set_timeout(s->control, terms.timeout_ms);
	pthread_mutex_lock(&s->lock);
	s->peer = peer;
	s->terms = terms;
	s->agreed = true;
	if (terms.want == TRANSPORT_SSH)
		s->route.stage = STAGE_DETOUR;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
	return 0;
}

static bool is_ended(struct session *s)
{
	bool ended;

	pthread_mutex_lock(&s->lock);
	ended = s->ended;
	pthread_mutex_unlock(&s->lock);
	return ended;
}

static int on_error(struct session *s, const struct frame *f)
{
	struct failure why;
	struct msg_error m;

	if (msg_error_decode(f, &m) < 0)
		return -1;
	/* An ERROR after the verdict does not change the verdict. */
	if (is_ended(s))
		return 0;
	why.code = outcome_from(m.code);
	snprintf(why.text, sizeof why.text, "%s", m.text);
	if (shortage_explains(s, &why))
		session_latch(s, &why, NULL);
	else
		session_latch(s, &why, m.host[0] ? m.host : s->o.peer);
	return 0;
}

static int on_cancel(const struct frame *f)
{
	struct msg_cancel m;

	if (msg_cancel_decode(f, &m) < 0)
		return -1;
	return fail_signal((int)m.signo);
}

int session_fail_unexpected(struct session *s, const struct frame *f)
{
	return fail_as(OUT_PROTOCOL, "%s sent an unexpected %s", s->o.peer, message_name(f->type));
}

static int on_local_frame(struct session *s, const struct frame *f)
{
	if (!s->o.has_conductor)
		return session_fail_unexpected(s, f);
	switch (f->type) {
	case MSG_CANCEL:
		return on_cancel(f);
	case MSG_DETOUR:
		return route_on_detour(s, f);
	case MSG_START:
	case MSG_WANT:
	case MSG_RULE:
	case MSG_LISTED:
	case MSG_GO:
		return s->o.on_frame ? s->o.on_frame(s->o.ctx, f) : session_fail_unexpected(s, f);
	default:
		return session_fail_unexpected(s, f);
	}
}

static int dispatch_frame(struct session *s, const struct frame *f)
{
	if (message_is_local(f->type))
		return on_local_frame(s, f);
	if (f->type == MSG_ERROR)
		return on_error(s, f);
	if (f->type == MSG_HELLO)
		return on_hello(s, f);
	if (!s->agreed)
		return session_fail_unexpected(s, f);
	if (f->type == MSG_END)
		promote_stop(s);
	switch (f->type) {
	case MSG_OFFER:
		return route_on_offer(s, f);
	case MSG_CHOICE:
		return route_on_choice(s, f);
	case MSG_NOROUTE:
		return route_on_noroute(s, f);
	case MSG_LANE_DOWN:
		return mend_on_down(s, f);
	case MSG_LANE_STORED:
		return s->side == LANE_SOURCE ? mend_on_stored(s, f)
					      : session_fail_unexpected(s, f);
	case MSG_LANE_CHECK:
		return mend_on_check(s, f);
	case MSG_LANE_HELD:
		return mend_on_held(s, f);
	case MSG_FILE_RESULT:
	case MSG_STORED:
	case MSG_ANSWERS:
	case MSG_CELLS:
	case MSG_TIMES:
	case MSG_END:
	case MSG_DONE:
		return s->o.on_frame ? s->o.on_frame(s->o.ctx, f) : session_fail_unexpected(s, f);
	default:
		return session_fail_unexpected(s, f);
	}
}

/* An invalid frame fails the session, not the channel, so that ERROR can still be sent. */
int session_on_frame(void *ctx, const struct frame *f)
{
	struct session *s = ctx;
	bool failed_before;

	pthread_mutex_lock(&s->lock);
	failed_before = s->failed;
	pthread_mutex_unlock(&s->lock);
	if (!failed_before && dispatch_frame(s, f) < 0)
		session_fail(s);
	return 0;
}

void session_on_refused(void *ctx)
{
	struct session *s = ctx;

	if (!is_ended(s))
		session_fail(s);
	else if (s->o.on_fail)
		s->o.on_fail(s->o.ctx);
}

void session_on_lost(void *ctx, bool clean)
{
	struct session *s = ctx;
	struct failure f = *failed();

	(void)clean;
	if (!is_ended(s))
		session_latch(s, &f, "");
	else if (s->o.on_fail)
		s->o.on_fail(s->o.ctx);
}
