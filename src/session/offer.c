/* SPDX-License-Identifier: Apache-2.0 */

/* The listening end's part of the route: the addresses where it accepts lanes, and the OFFER that
 * lists them. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/log.h"
#include "session/connect/nics.h"
#include "session/session_impl.h"

/* Large pools take seconds to register, and an attempt over RDMA has no more time than that. So the
 * OFFER waits for the lanes' memory, but not for more than this part of --connect-timeout. */
enum { OFFER_PART = 4 };

static int listen_tcp(struct session *s)
{
	union address only, loopback = address_loopback(AF_INET, 0);
	union address any4 = {.in4 = {.sin_family = AF_INET}};
	union address any6 = {.in6 = {.sin6_family = AF_INET6}};
	const union address *where = NULL;
	struct offer_rules rules = {.only = s->o.address, .family = s->o.family};
	unsigned count, lo = s->o.port_lo, hi = s->o.port_hi;

	if (s->terms.want == TRANSPORT_SSH)
		return porter_listen_tcp(s->porter, &loopback, 0, 0);
	if (s->o.address[0]) {
		if (offer_place_find_own(&rules, &only, 1, &count) < 0)
			return -1;
		if (count == 0)
			return fail_as(OUT_USAGE, "listen at %s: not a unicast address",
				       s->o.address);
		where = &only;
	} else if (s->o.family) {
		where = s->o.family == AF_INET ? &any4 : &any6;
	}
	if (porter_listen_tcp(s->porter, where, lo, hi) < 0)
		return -1;
	/* A detour arrives on loopback. */
	if (s->o.has_conductor && where && where != &any4 && !address_same(where, &loopback))
		return porter_listen_tcp(s->porter, &loopback, lo, hi);
	return 0;
}

/* Whether this host has one RDMA port. Sysfs may not show which addresses belong to it. */
static bool has_one_port(void)
{
	struct adapter *list;
	unsigned count;

	if (adapters_list(NULL, &list, &count) < 0) {
		fail_clear();
		return false;
	}
	free(list);
	return count == 1;
}

/* Makes an RDMA listener at each address that belongs to an RDMA device. */
static void listen_rdma(struct session *s, const union address *at, unsigned count,
			struct msg_offer *m)
{
	struct port_list ports = {.count = 0};
	union address prepare_at = {.sa = {.sa_family = AF_UNSPEC}};
	bool one_adapter = true;

	snprintf(m->no_rdma, sizeof m->no_rdma, "no address of %s belongs to an RDMA device",
		 s->o.host);
	for (unsigned i = 0; i < count; i++) {
		struct offer_place *p = &m->places[m->count];
		unsigned port;
		int known_port;

		if (!verbs_behind(&at[i]))
			continue;
		if (porter_listen_rdma(s->porter, &at[i], s->o.port_lo, s->o.port_hi, &port) < 0) {
			snprintf(m->no_rdma, sizeof m->no_rdma, "%s", failed()->text);
			continue;
		}
		*p = offer_place_make(&at[i], TRANSPORT_RDMA, port);
		known_port = nics_find_port(&ports, &at[i]);
		/* An address whose port sysfs does not show gets a number of its own. */
		p->adapter = (uint8_t)(known_port < 0 ? OFFER_MAX + i : (unsigned)known_port);
		p->rate = known_port < 0 ? 0 : ports.ports[known_port].rate_mbits;
		one_adapter &= p->adapter == m->places[0].adapter;
		prepare_at = at[i];
		m->count++;
	}
	if (m->count > 0)
		m->no_rdma[0] = '\0';
	if (!one_adapter && !has_one_port())
		prepare_at.sa.sa_family = AF_UNSPEC;
	pthread_mutex_lock(&s->lock);
	s->route.prepare_at = prepare_at;
	pthread_mutex_unlock(&s->lock);
}

static int send_offer(struct session *s, const struct msg_offer *m)
{
	uint8_t body[sizeof *m + 64];
	struct writer w = writer_of(body, sizeof body);

	msg_offer_encode(&w, m);
	return control_send(s->control, MSG_OFFER, body, w.used);
}

/* Call with the lock held. */
static bool is_memory_ready(const struct session *s)
{
	bool ready = s->lanes == s->terms.lanes;

	for (unsigned i = 0; i < s->lanes; i++)
		ready &= s->ends[i].memory_tried;
	return ready;
}

static void *run_late_offer(void *arg)
{
	struct session *s = arg;
	uint64_t deadline = clock_ms() + (uint64_t)s->o.connect_timeout_ms / OFFER_PART;
	bool wanted;

	pthread_mutex_lock(&s->lock);
	while (!s->late_offer.stop && !s->failed && !is_memory_ready(s) && clock_left(deadline)) {
		struct timespec until = clock_after((uint64_t)clock_left(deadline));

		pthread_cond_timedwait(&s->changed, &s->lock, &until);
	}
	wanted = !s->late_offer.stop && !s->failed;
	pthread_mutex_unlock(&s->lock);
	/* Sending fails only with the control channel, which ends the session. */
	if (wanted && send_offer(s, &s->late_offer.m) < 0)
		fail_clear();
	return NULL;
}

/* Sends the OFFER once the lanes' threads have prepared their memory. */
static int send_offer_late(struct session *s, const struct msg_offer *m)
{
	s->late_offer.m = *m;
	if (worker_start(&s->late_offer.worker, "offer", run_late_offer, s) == 0)
		return 0;
	fail_clear();
	return send_offer(s, m);
}

void offer_close(struct session *s)
{
	pthread_mutex_lock(&s->lock);
	s->late_offer.stop = true;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
	worker_join(&s->late_offer.worker);
}

static int send_listening(struct session *s)
{
	struct msg_detour m = {.port = (uint16_t)porter_tcp_port(s->porter)};
	uint8_t body[16];
	struct writer w = writer_of(body, sizeof body);

	msg_detour_encode(&w, &m);
	return control_send(s->control, MSG_LISTENING, body, w.used);
}

struct offer_rules offer_rules(const struct session *s)
{
	return (struct offer_rules){
		.only = s->o.address,
		.control = s->local.sa.sa_family == AF_UNSPEC ? NULL : &s->local,
		.same_host = s->terms.same_host,
		.family = s->o.family,
	};
}

/* Listens at all addresses that may be offered, and lists them in m. */
static int listen_everywhere(struct session *s, struct msg_offer *m)
{
	struct offer_rules rules = offer_rules(s);
	union address at[OFFER_MAX];
	unsigned count;

	if (!s->o.porter && s->terms.want != TRANSPORT_RDMA && listen_tcp(s) < 0)
		return -1;
	if (s->terms.rdma) {
		rules.rdma = true;
		if (offer_place_find_own(&rules, at, OFFER_MAX, &count) < 0)
			return -1;
		listen_rdma(s, at, count, m);
		rules.rdma = false;
	}
	if (offer_place_find_own(&rules, at, OFFER_MAX, &count) < 0)
		return -1;
	if (porter_tcp_port(s->porter) && s->terms.want != TRANSPORT_RDMA)
		for (unsigned i = 0; i < count; i++)
			m->places[m->count++] =
				offer_place_make(&at[i], TRANSPORT_TCP, porter_tcp_port(s->porter));
	return 0;
}

static int open_lanes(struct session *s)
{
	struct porter_terms terms = {
		.key = s->key,
		.peer = s->side == LANE_SOURCE ? LANE_SINK : LANE_SOURCE,
		.lanes = s->terms.lanes,
		.depth = s->terms.depth,
		.block_size = s->terms.block_size,
	};
	int rc = porter_open_lanes(s->porter, &terms);

	explicit_bzero(&terms, sizeof terms);
	return rc;
}

int route_listen(struct session *s, unsigned round)
{
	struct msg_offer m = {.round = (uint8_t)round, .session = s->key.session};
	bool prepares;

	if (!s->porter) {
		if (porter_new(s->o.tos, &s->own_porter) < 0)
			return -1;
		pthread_mutex_lock(&s->lock);
		s->porter = s->own_porter;
		pthread_mutex_unlock(&s->lock);
	}
	if (listen_everywhere(s, &m) < 0) {
		if (round == 0)
			return -1;
		/* The empty OFFER makes the other end report that it has nothing to dial. */
		log_debug("no lane listeners: %s", failed()->text);
		m.count = 0;
	}
	if (open_lanes(s) < 0)
		return -1;
	/* Before the peer can answer the OFFER. */
	if (round == 1)
		route_set_stage(s, STAGE_SWAPPED);
	pthread_mutex_lock(&s->lock);
	prepares = m.count > 0 && s->route.prepare_at.sa.sa_family != AF_UNSPEC;
	pthread_mutex_unlock(&s->lock);
	if (s->terms.want != TRANSPORT_SSH &&
	    (prepares ? send_offer_late(s, &m) : send_offer(s, &m)) < 0)
		return -1;
	if (s->o.has_conductor && round == 0 && porter_tcp_port(s->porter))
		return send_listening(s);
	return 0;
}

void offer_prepare_memory(struct lane_end *e)
{
	union address at;
	uint64_t began;

	pthread_mutex_lock(&e->s->lock);
	at = e->s->route.prepare_at;
	pthread_mutex_unlock(&e->s->lock);
	/* Registering cannot be interrupted. */
	if (e->prepared || e->unprepared || at.sa.sa_family == AF_UNSPEC || lane_aborted(e->lane))
		return;
	began = clock_ms();
	e->unprepared = verbs_prepare(e->lane, &at, &e->prepared) < 0;
	lane_stop_clock(e->lane, clock_ms() - began);
	if (e->unprepared)
		log_debug("lane %u: %s", e->index, failed()->text);
	fail_clear();
	pthread_mutex_lock(&e->s->lock);
	e->memory_tried = true;
	pthread_cond_broadcast(&e->s->changed);
	pthread_mutex_unlock(&e->s->lock);
}

void offer_drop_memory(struct lane_end *e)
{
	verbs_unprepare(e->prepared);
	e->prepared = NULL;
}

/*
 * After a refusal over RDMA the other end waits for the reason in this end's LANE_DOWN. Then TCP is
 * used instead, for that reason, or with a conductor the ends swap roles and this end reports it.
 */
void offer_warn_unable(struct lane_end *e)
{
	const struct session *s = e->s;
	bool is_last = s->terms.want == TRANSPORT_RDMA && !s->o.has_conductor;
	enum outcome code = failed()->code;

	if (is_last && (code == OUT_MEMORY || code == OUT_TRANSPORT) &&
	    !atomic_exchange(&e->s->unable_reported, true))
		log_warn("lane %u: %s", e->index, failed()->text);
}
