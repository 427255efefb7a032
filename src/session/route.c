/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The route between the ends. One end listens and offers its places. The other end's lane 0 finds a
 * place that works, and all lanes use it. If no place can be reached and there is a conductor, the
 * ends swap roles once, and then ask the conductor for a detour.
 */

#include <stdio.h>
#include <string.h>
#include "base/clock.h"
#include "base/log.h"
#include "session/session_impl.h"

enum {
	TCP_TRIES = 2,
	/* InfiniBand's connection manager repeats a lost message after 4.3 s, and again after as
	 * long (cma.c: CMA_CM_RESPONSE_TIMEOUT). */
	KNOCK_MS = 10000,
};

bool route_dials(const struct session *s, enum connect_stage stage)
{
	return stage == STAGE_SWAPPED ? s->o.listens : !s->o.listens;
}

enum connect_stage route_stage(struct session *s)
{
	enum connect_stage stage;

	pthread_mutex_lock(&s->lock);
	stage = s->route.stage;
	pthread_mutex_unlock(&s->lock);
	return stage;
}

bool route_reports(struct session *s)
{
	return !s->o.has_conductor || route_dials(s, route_stage(s));
}

void route_set_stage(struct session *s, enum connect_stage stage)
{
	pthread_mutex_lock(&s->lock);
	s->route.stage = stage;
	session_nudge(s);
	pthread_mutex_unlock(&s->lock);
}

/* ---- frames from the peer and the conductor: the control thread --------------------------- */

int route_on_offer(struct session *s, const struct frame *f)
{
	struct route *r = &s->route;
	struct msg_offer m;
	bool fits;

	if (msg_offer_decode(f, &m) < 0)
		return -1;
	pthread_mutex_lock(&s->lock);
	fits = (unsigned)r->stage == m.round && route_dials(s, r->stage) && !r->offered[m.round];
	if (fits) {
		r->offers[m.round] = m;
		r->offered[m.round] = true;
		s->dial_key.session = m.session;
		session_nudge(s);
	}
	pthread_mutex_unlock(&s->lock);
	return fits ? 0 : session_fail_unexpected(s, f);
}

/* Reports to the user which transport the lanes use, and why not RDMA. */
static void report_choice(struct session *s, enum transport t, const char *why)
{
	static const char *const name[] = {"nothing", "RDMA", "TCP", "ssh"};
	bool reports = route_reports(s);
	enum log_level level = reports ? LOG_INFO : LOG_DEBUG;

	/* If this host has RDMA, the user may be able to remove the reason. */
	if (t == TRANSPORT_TCP && why[0] && s->mine.lockable > 0 &&
	    (reports || s->peer.lockable == 0))
		level = LOG_WARN;
	/* The conductor, which made the detour, has already reported it. */
	if (t == TRANSPORT_SSH)
		level = LOG_DEBUG;
	if (t == TRANSPORT_RDMA)
		terms_warn_of_memlock(s);
	terms_warn_of_zstd(s);
	if (t == TRANSPORT_TCP && why[0])
		atomic_store(&s->tcp_reported, (unsigned)level + 1);
	log_at(level, "data goes over %s%s%s", name[t],
	       !why[0]              ? ""
	       : t == TRANSPORT_TCP ? ", not RDMA: "
				    : ": ",
	       why);
	if (t == TRANSPORT_TCP && !s->terms.same_host && s->terms.encrypt == ENCRYPT_OFF && reports)
		log_warn("data is sent in the clear over TCP to %s (--encrypt=off)", s->o.peer);
}

int route_on_choice(struct session *s, const struct frame *f)
{
	struct route *r = &s->route;
	struct msg_choice m;
	bool fits;

	if (msg_choice_decode(f, &m) < 0)
		return -1;
	pthread_mutex_lock(&s->lock);
	fits = !route_dials(s, r->stage) && !r->chosen &&
	       (m.transport == TRANSPORT_SSH) == (r->stage == STAGE_DETOUR) &&
	       (m.transport != TRANSPORT_RDMA || s->terms.rdma) &&
	       (m.transport == TRANSPORT_RDMA || s->terms.want != TRANSPORT_RDMA);
	if (fits) {
		r->chosen = true;
		r->transport = m.transport;
		snprintf(r->why, sizeof r->why, "%s", m.why);
		session_nudge(s);
	}
	pthread_mutex_unlock(&s->lock);
	if (!fits)
		return session_fail_unexpected(s, f);
	report_choice(s, m.transport, m.why);
	return 0;
}

int route_on_noroute(struct session *s, const struct frame *f)
{
	struct route *r = &s->route;
	struct msg_noroute m;
	bool fits;

	if (msg_noroute_decode(f, &m) < 0)
		return -1;
	pthread_mutex_lock(&s->lock);
	fits = s->o.has_conductor && m.round <= 1 && (unsigned)r->stage == m.round &&
	       !route_dials(s, r->stage) && !r->chosen;
	if (fits && !s->o.fixed) {
		snprintf(r->stuck[m.round], sizeof r->stuck[m.round], "%s", m.why);
		r->stage++;
		session_nudge(s);
	}
	pthread_mutex_unlock(&s->lock);
	if (fits && s->o.fixed && s->terms.want == TRANSPORT_RDMA)
		return fail_as(OUT_TRANSPORT, "no RDMA connection to %s: %s", s->o.host, m.why);
	if (fits && s->o.fixed)
		return fail_as(
			OUT_CONNECT,
			"no lane can reach %s: %s; all of rdcpd's connections come to its one "
			"TCP port",
			s->o.host, m.why);
	return fits ? 0 : session_fail_unexpected(s, f);
}

/* A conductor may send another port for each lane. The last one counts. */
int route_on_detour(struct session *s, const struct frame *f)
{
	struct route *r = &s->route;
	struct msg_detour m;

	if (msg_detour_decode(f, &m) < 0)
		return -1;
	if (s->o.listens || m.port == 0)
		return fail_as(OUT_PROTOCOL, "the conductor sent DETOUR to the listening end");
	pthread_mutex_lock(&s->lock);
	r->have_detour = true;
	r->detour_port = m.port;
	snprintf(r->detour_why, sizeof r->detour_why, "%s", m.why);
	r->detours++;
	session_nudge(s);
	pthread_mutex_unlock(&s->lock);
	return 0;
}

/* ---- connecting --------------------------------------------------------------------------- */

static struct dial_rules make_dial_rules(struct session *s)
{
	struct offer_rules only = {.only = s->o.address, .family = s->o.family};
	struct dial_rules rules = {
		.dialed = s->o.dialed.sa.sa_family == AF_UNSPEC ? NULL : &s->o.dialed,
		.same_host = s->terms.same_host,
		.family = s->o.family,
	};
	unsigned count;

	/* After the roles swapped, --address is where this end connects from. */
	if (s->o.address[0] && offer_place_find_own(&only, &rules.from, 1, &count) < 0)
		fail_clear();
	return rules;
}

/* TCP lanes use the port of the control connection. So its address reaches them too, even if the
 * other end does not know it, as behind NAT. */
static unsigned add_dialed(struct session *s, union address *to, unsigned n)
{
	const union address *dialed = &s->o.dialed;

	if (dialed->sa.sa_family == AF_UNSPEC)
		return n;
	for (unsigned i = 0; i < n; i++)
		if (address_same(&to[i], dialed) && to[i].in4.sin_port == dialed->in4.sin_port)
			return n;
	to[n] = *dialed;
	return n + 1;
}

unsigned route_tcp_places(struct session *s, union address *to, unsigned max)
{
	struct dial_rules rules = make_dial_rules(s);
	struct route r;
	unsigned n;

	pthread_mutex_lock(&s->lock);
	r = s->route;
	pthread_mutex_unlock(&s->lock);
	if (r.stage == STAGE_DETOUR) {
		to[0] = address_loopback(AF_INET, r.detour_port);
		return 1;
	}
	n = offer_place_find_dialable(&r.offers[r.stage], TRANSPORT_TCP, &rules, to, max - 1);
	return n || r.stage == STAGE_FIRST ? add_dialed(s, to, n) : n;
}

/* Lane 0 has a wire: all lanes use its transport. */
static enum attempt_result choose_transport(struct session *s, enum transport t, const char *why)
{
	struct msg_choice m = {.transport = (uint8_t)t};
	uint8_t body[sizeof m + 8];
	struct writer w = writer_of(body, sizeof body);

	snprintf(m.why, sizeof m.why, "%s", why);
	msg_choice_encode(&w, &m);
	pthread_mutex_lock(&s->lock);
	s->route.chosen = true;
	s->route.transport = t;
	snprintf(s->route.why, sizeof s->route.why, "%s", m.why);
	session_nudge(s);
	pthread_mutex_unlock(&s->lock);
	report_choice(s, t, m.why);
	return control_send(s->control, MSG_CHOICE, body, w.used) < 0 ? ATTEMPT_FATAL
								      : ATTEMPT_DONE;
}

/* Waits until *flag is set. Returns 0, or -1 with this failure. */
static int await_flag(struct lane_end *e, const bool *flag, const char *failure, uint64_t deadline)
{
	struct session *s = e->s;
	bool set;

	for (;;) {
		pthread_mutex_lock(&s->lock);
		set = *flag;
		pthread_mutex_unlock(&s->lock);
		if (set)
			return 0;
		if (lane_end_wait(e, deadline) < 0)
			return fail_as(OUT_CONNECT, "%s", failure);
	}
}

/* Chooses the rails that the lanes are spread over, after the way `worked' has connected. */
static void set_rails(struct session *s, const struct rail *ways, unsigned count, unsigned worked)
{
	enum log_level level = route_reports(s) ? LOG_INFO : LOG_DEBUG;
	unsigned chosen[OFFER_MAX];
	unsigned n = rails_choose(ways, count, worked, s->terms.rails, chosen);

	pthread_mutex_lock(&s->lock);
	for (unsigned i = 0; i < n; i++)
		s->route.rails[i] = ways[chosen[i]];
	s->route.rail_count = n;
	pthread_mutex_unlock(&s->lock);
	for (unsigned i = 0; n > 1 && i < n; i++) {
		char text[160];

		log_at(level, "rail %u of %u: %s, %u Mbit/s", i + 1, n,
		       rail_text(&ways[chosen[i]], text, sizeof text), ways[chosen[i]].rate);
	}
}

/* Tries all ways to RDMA places of an offer, one after the other. On failure why has the reason of
 * the last one, and *may_pass is set if the reason of one may pass. */
static enum attempt_result try_rdma(struct lane_end *e, const struct msg_offer *o,
				    uint64_t deadline, bool *may_pass, char *why, size_t size)
{
	struct session *s = e->s;
	struct dial_rules rules = make_dial_rules(s);
	bool demanded = s->terms.want == TRANSPORT_RDMA;
	struct rail ways[WAYS_MAX];
	unsigned n = rails_find(o, &rules, ways, WAYS_MAX);

	if (o->no_rdma[0])
		snprintf(why, size, "%s", o->no_rdma);
	else
		snprintf(why, size, "no RDMA address of %s can be dialed from %s", s->o.peer,
			 s->o.host);
	for (unsigned i = 0; i < n && clock_left(deadline) > 0; i++) {
		/* Without TCP to fall back to, the ways share all the time that is left. */
		int share = demanded ? clock_left(deadline) / (int)(n - i) : 0;
		uint64_t until = clock_ms() + (unsigned)(share > RDMA_TRY_MS ? share : RDMA_TRY_MS);
		uint64_t stopped = lane_stopped_ms(e->lane);
		enum attempt_result rc =
			mend_over_rail(e, &ways[i], until < deadline ? until : deadline);

		deadline = mend_move_deadline(e, deadline, stopped);
		if (rc == ATTEMPT_DONE)
			set_rails(s, ways, n, i);
		if (rc != ATTEMPT_FAILED)
			return rc;
		ways[i].dead = true;
		*may_pass |= failed()->code == OUT_CONNECT;
		snprintf(why, size, "%s", failed()->text);
		/* The limit of locked memory is the same for all ways. */
		if (failed()->code == OUT_MEMLOCK)
			break;
	}
	return ATTEMPT_FAILED;
}

/* Knocks at a way or rail. Software adapters of the kernel lose no messages, and get no further
 * attempts; a mute rail would answer and still let no block through. A knock that takes longer than
 * a lane's attempt may take would be of no use. */
static bool knock_at(struct session *s, const struct rail *r)
{
	const union address *from = r->from.sa.sa_family == AF_UNSPEC ? NULL : &r->from;
	int ms = promote_share(s->terms.timeout_ms);
	uint64_t began = clock_ms();

	if (r->software || r->mute)
		return false;
	if (ms > KNOCK_MS)
		ms = KNOCK_MS;
	if (verbs_knock(s->ends[0].lane, &s->dial_key, from, &r->to, began + (uint64_t)ms) == 0) {
		pthread_mutex_lock(&s->lock);
		s->route.knock_ms = clock_ms() - began;
		pthread_mutex_unlock(&s->lock);
		return true;
	}
	log_debug("RDMA still cannot be used: %s", failed()->text);
	return false;
}

int route_knock(struct session *s)
{
	struct dial_rules rules = make_dial_rules(s);
	struct rail ways[WAYS_MAX];
	struct route *r = &s->route;
	enum connect_stage stage;
	bool has_rails;
	unsigned n, at;

	pthread_mutex_lock(&s->lock);
	stage = r->stage;
	has_rails = r->transport == TRANSPORT_RDMA;
	n = has_rails ? r->rail_count : 0;
	memcpy(ways, r->rails, n * sizeof *ways);
	pthread_mutex_unlock(&s->lock);
	/* The offer of this stage does not change any more. */
	if (!has_rails)
		n = rails_find(&r->offers[stage], &rules, ways, WAYS_MAX);
	for (at = 0; at < n && !knock_at(s, &ways[at]); at++)
		ways[at].dead = true;
	if (at == n)
		return -1;
	if (!has_rails)
		set_rails(s, ways, n, at);
	pthread_mutex_lock(&s->lock);
	if (has_rails)
		r->rails[at].dead = r->rails[at].mute;
	r->knocked |= !has_rails;
	r->transport = TRANSPORT_RDMA;
	pthread_mutex_unlock(&s->lock);
	return 0;
}

uint64_t route_promotion_ms(struct session *s)
{
	uint64_t ms;

	pthread_mutex_lock(&s->lock);
	ms = 2 * s->route.knock_ms;
	pthread_mutex_unlock(&s->lock);
	return ms > RDMA_TRY_MS ? ms : RDMA_TRY_MS;
}

bool route_knocked(struct session *s)
{
	bool knocked;

	pthread_mutex_lock(&s->lock);
	knocked = s->route.knocked;
	pthread_mutex_unlock(&s->lock);
	return knocked;
}

static enum attempt_result try_tcp(struct lane_end *e, uint64_t deadline)
{
	union address to[OFFER_MAX + 1];
	unsigned n = route_tcp_places(e->s, to, OFFER_MAX + 1);
	enum attempt_result rc = ATTEMPT_FAILED;

	if (n == 0)
		fail_as(OUT_CONNECT, "no TCP address of %s can be dialed from %s", e->s->o.peer,
			e->s->o.address[0] ? e->s->o.address : e->s->o.host);
	for (unsigned i = 0; n > 0 && i < TCP_TRIES && rc == ATTEMPT_FAILED; i++) {
		if (i > 0 && lane_end_wait(e, clock_ms() + DIAL_PAUSE_MS) < 0 &&
		    lane_aborted(e->lane))
			return ATTEMPT_FATAL;
		if (i == 0 || clock_left(deadline) > 0)
			rc = mend_over_tcp(e, to, n, deadline);
	}
	return rc;
}

/* How long a stage may take. With a conductor, half of the time is kept for the next one. */
static int stage_ms(const struct session *s)
{
	return s->o.connect_timeout_ms / (s->o.has_conductor ? 2 : 1);
}

int route_take_ms(const struct lane_end *e, bool first)
{
	const struct session *s = e->s;
	int ms = !first ? s->terms.timeout_ms : e->index ? s->o.connect_timeout_ms : stage_ms(s);

	return s->terms.want == TRANSPORT_RDMA || ms / 2 > TAKE_MS ? TAKE_MS : ms / 2;
}

static enum attempt_result find_offered(struct lane_end *e, enum connect_stage stage)
{
	struct session *s = e->s;
	bool demanded = s->terms.want == TRANSPORT_RDMA;
	int ms = stage_ms(s), tcp_ms;
	/* But not while this end waits for OFFER: in the next stage a late OFFER would be a
	 * protocol error. */
	uint64_t offer_deadline = clock_ms() + (uint64_t)s->o.connect_timeout_ms;
	uint64_t deadline = offer_deadline;
	char why[TEXT_MAX], no_offer[HOST_MAX + 64];
	enum outcome code = OUT_CONNECT;
	enum attempt_result rc = ATTEMPT_FAILED;
	bool may_pass = false;

	snprintf(no_offer, sizeof no_offer, "%s did not send its addresses (OFFER) in time",
		 s->o.peer);
	if (await_flag(e, &s->route.offered[stage], no_offer, offer_deadline) < 0)
		return lane_aborted(e->lane) ? ATTEMPT_FATAL : ATTEMPT_FAILED;
	if (s->o.has_conductor)
		deadline = clock_ms() + (uint64_t)ms;
	tcp_ms = clock_left(deadline) < ms / 2 ? clock_left(deadline) : ms / 2;
	snprintf(why, sizeof why, "%s", s->terms.no_rdma);
	if (s->terms.rdma) {
		uint64_t stopped = lane_stopped_ms(e->lane);

		fail_clear();
		rc = try_rdma(e, &s->route.offers[stage],
			      demanded ? deadline : deadline - (uint64_t)ms / 2, &may_pass, why,
			      sizeof why);
		deadline = mend_move_deadline(e, deadline, stopped);
		if (rc == ATTEMPT_DONE)
			return choose_transport(s, TRANSPORT_RDMA, "");
		code = failed()->code == OUT_MEMLOCK ? OUT_MEMLOCK : OUT_TRANSPORT;
	}
	if (rc == ATTEMPT_FATAL)
		return rc;
	if (demanded) {
		fail_as(code, "%s", why);
		return ATTEMPT_FAILED;
	}
	/* RDMA may have taken longer: a kernel that reports no route gets more time. */
	if (clock_left(deadline) < tcp_ms)
		deadline = clock_ms() + (uint64_t)tcp_ms;
	rc = try_tcp(e, deadline);
	if (rc == ATTEMPT_DONE)
		rc = choose_transport(s, TRANSPORT_TCP, why);
	if (rc == ATTEMPT_DONE && may_pass)
		promote_later(e, 0);
	return rc;
}

static int send_noroute(struct session *s, uint8_t type, unsigned round, const char *why)
{
	struct msg_noroute m = {.round = (uint8_t)round};
	uint8_t body[sizeof m + 8];
	struct writer w = writer_of(body, sizeof body);

	snprintf(m.why, sizeof m.why, "%s", why);
	msg_noroute_encode(&w, &m);
	return control_send(s->control, type, body, w.used);
}

/* Formats why neither end could reach the other one. */
static void format_stuck_reason(struct session *s, char to[static TEXT_MAX])
{
	struct failure before = *failed();
	struct route r;

	pthread_mutex_lock(&s->lock);
	r = s->route;
	pthread_mutex_unlock(&s->lock);
	if (r.stuck[1][0])
		fail_as(OUT_CONNECT, "%s; from %s: %s", r.stuck[0], s->o.peer, r.stuck[1]);
	else
		fail_as(OUT_CONNECT, "%s", r.stuck[0]);
	memcpy(to, failed()->text, TEXT_MAX);
	fail_again(&before);
}

static enum attempt_result try_detour(struct lane_end *e, uint64_t deadline)
{
	struct failure why = {.code = OUT_DONE};
	int more = 1;

	for (unsigned attempt = 0; more > 0; attempt++) {
		union address to[OFFER_MAX + 1];
		unsigned n = route_tcp_places(e->s, to, OFFER_MAX + 1);
		enum attempt_result rc = mend_over_tcp(e, to, n, deadline);

		if (rc != ATTEMPT_FAILED)
			return rc;
		/* An attempt that the deadline cut short has a less specific reason. */
		if (clock_left(deadline) > 0 || why.code == OUT_DONE)
			why = *failed();
		if (attempt == 0)
			deadline = mend_detour_deadline(e->s, deadline);
		more = mend_pause(e, attempt, deadline);
	}
	fail_again(&why);
	return more < 0 ? ATTEMPT_FATAL : ATTEMPT_FAILED;
}

static enum attempt_result find_detour(struct lane_end *e)
{
	struct session *s = e->s;
	uint64_t deadline = clock_ms() + DETOUR_MS;
	enum attempt_result rc = ATTEMPT_FAILED;
	char why[TEXT_MAX];

	format_stuck_reason(s, why);
	shortage_warn(s);
	if (s->terms.want == TRANSPORT_RDMA) {
		fail_as(OUT_TRANSPORT, "no RDMA connection to %s: %s", s->o.peer, why);
		return ATTEMPT_FATAL;
	}
	if (s->terms.want != TRANSPORT_SSH && send_noroute(s, MSG_STUCK, 1, why) < 0)
		return ATTEMPT_FATAL;
	if (await_flag(e, &s->route.have_detour,
		       "the conductor did not set up lanes over ssh in time", deadline) < 0)
		return ATTEMPT_FATAL;
	rc = try_detour(e, deadline);
	if (rc != ATTEMPT_FAILED)
		return rc == ATTEMPT_DONE ? choose_transport(s, TRANSPORT_SSH, why) : rc;
	mend_failure_text(e, failed(), why);
	fail_as(OUT_CONNECT, "no connection to %s over ssh: %s", s->o.peer, why);
	return ATTEMPT_FATAL;
}

/* This stage failed, and failed() has the reason. Goes on to the next stage, if there is one. */
static enum attempt_result advance_stage(struct lane_end *e, enum connect_stage stage)
{
	struct session *s = e->s;
	struct failure f = *failed();

	if (!s->o.has_conductor) {
		fail_as(f.code, "no connection to %s: %s", s->o.peer, f.text);
		return ATTEMPT_FATAL;
	}
	log_debug("no connection to %s: %s", s->o.peer, f.text);
	pthread_mutex_lock(&s->lock);
	snprintf(s->route.stuck[stage], sizeof s->route.stuck[stage], "%s", f.text);
	pthread_mutex_unlock(&s->lock);
	if (send_noroute(s, MSG_NOROUTE, stage, f.text) < 0)
		return ATTEMPT_FATAL;
	if (stage == STAGE_FIRST && route_listen(s, 1) < 0)
		return ATTEMPT_FATAL;
	if (stage == STAGE_SWAPPED) {
		shortage_warn(s);
		route_set_stage(s, STAGE_DETOUR);
	}
	return ATTEMPT_FAILED;
}

enum attempt_result route_find(struct lane_end *e, enum connect_stage stage)
{
	enum attempt_result rc = stage == STAGE_DETOUR ? find_detour(e) : find_offered(e, stage);

	return rc == ATTEMPT_FAILED ? advance_stage(e, stage) : rc;
}
