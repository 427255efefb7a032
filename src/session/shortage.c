/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Memory or descriptors that this end lacked for connections of lanes.
 *
 * The other end only sees that its connections end, or get no answer. It may give up first, and
 * then its failure is the consequence of the one here.
 */

#include <stdio.h>
#include <string.h>
#include "base/clock.h"
#include "base/log.h"
#include "session/session_impl.h"

bool shortage_note(struct lane_end *e)
{
	struct session *s = e->s;

	pthread_mutex_lock(&s->lock);
	s->shortage = *failed();
	s->shortage_ms = clock_ms();
	pthread_mutex_unlock(&s->lock);
	return ++e->shortages == SHORTAGES_MAX;
}

void shortage_end(struct lane_end *e)
{
	struct session *s = e->s;

	e->shortages = 0;
	pthread_mutex_lock(&s->lock);
	s->shortage_ms = 0;
	pthread_mutex_unlock(&s->lock);
}

/* Since when a shortage may explain a failure of now: longer than any attempt to connect takes. */
static uint64_t first_recent_ms(const struct session *s)
{
	uint64_t most = (uint64_t)s->o.connect_timeout_ms + (uint64_t)s->o.timeout_ms + GRACE_MS;
	uint64_t now = clock_ms();

	return now > most ? now - most : 1;
}

static bool copy_shortage(struct session *s, struct failure *f)
{
	uint64_t since = first_recent_ms(s);
	bool found;

	pthread_mutex_lock(&s->lock);
	found = s->shortage_ms >= since;
	if (found)
		*f = s->shortage;
	pthread_mutex_unlock(&s->lock);
	return found;
}

/* The same of the porter, which has warned of it, too. */
static bool copy_porter_shortage(struct session *s, struct failure *f)
{
	struct porter *porter;
	int err;

	pthread_mutex_lock(&s->lock);
	porter = s->porter;
	pthread_mutex_unlock(&s->lock);
	err = porter ? porter_lacked(porter, first_recent_ms(s)) : 0;
	if (!err)
		return false;
	f->code = OUT_MEMORY;
	snprintf(f->text, sizeof f->text, "accept lanes: %s", strerror(err));
	return true;
}

bool shortage_explains(struct session *s, struct failure *f)
{
	switch (f->code) {
	case OUT_CONNECT:
	case OUT_PEER_LOST:
	case OUT_TRANSPORT:
		return copy_shortage(s, f) || copy_porter_shortage(s, f);
	default:
		return false;
	}
}

void shortage_warn(struct session *s)
{
	struct failure f;

	if (s->terms.want == TRANSPORT_AUTO && copy_shortage(s, &f))
		log_warn("lanes could not be connected: %s", f.text);
}
