/* SPDX-License-Identifier: Apache-2.0 */

/* Connects a verbs wire: dials a listener, or takes a caller. */

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/io.h"
#include "host/adapter.h"
#include "lane/fault.h"
#include "lane/hello.h"
#include "lane/memlock.h"
#include "lane/verbs/verbs_connect.h"
#include "lane/verbs/verbs_impl.h"

/* A field of struct sigevent (timer_create(2)). Before 2.41, glibc has only the kernel's name. */
#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

enum {
	RESOLVE_FIRST_MS = 100,
	NUDGE_MS = 50,
	NUDGE_LATER_MS = 500,
	ANSWER_MS = 500, /* least time in which a request is answered */
	STALE_MOST = 8, /* attempts with new queue pairs after one was stale */
};

bool verbs_built(void)
{
	return true;
}

/* ---- hellos ------------------------------------------------------------------------- */

/*
 * An accepting siw misses data that arrives between its reply and its taking over the socket. It
 * handles such data only when more arrives, so a hello in this gap would stay there for ever. So
 * the connecting end repeats an RDMA WRITE of 0 bytes. It needs no memory and no permission at the
 * peer, and iWARP itself may begin a connection with it. The drivers of hardware post it as it is
 * (rdma-core: irdma_uk_rdma_write(), build_rdma_write() of cxgb4; irdma's kernel opens connections
 * with the same, irdma_sc_send_rtt()). But whether an adapter of hardware takes it was never tried.
 * Between two of them the hello comes first, and only a siw at the other end gets to see it.
 */
static unsigned nudge_ms(const struct verbs *v)
{
	return v->adapter.siw ? NUDGE_MS : NUDGE_LATER_MS;
}

static int nudge_siw(struct verbs *v, uint64_t *next_ms)
{
	if (clock_ms() < *next_ms)
		return 0;
	*next_ms = clock_ms() + nudge_ms(v);
	return verbs_write_empty(v);
}

/* Checks the hello at this place. Exactly one of the sink's hellos must announce a ring. */
static int check_hello(struct verbs *v, const struct lane_key *key, enum hello_place place)
{
	bool expected = v->side == LANE_SOURCE && verbs_writes(v) &&
			(!v->accepting || place == HELLO_SECOND);
	struct hello_terms terms;
	bool sealed;

	if (hello_check_ring(v->lane, v->epoch, !v->accepting, key, verbs_hello_at(v, place),
			     &v->peer_ring, &terms))
		return -1;
	/* From the request, or an earlier hello. */
	if (v->wire.depth && terms.depth != v->wire.depth)
		return fail_as(OUT_PROTOCOL, "lane hello: depth %u after %u", terms.depth,
			       v->wire.depth);
	v->wire.depth = terms.depth;
	sealed = terms.seals || lane_demands_seal(v->lane);
	if (place == HELLO_SECOND && sealed != v->wire.sealed)
		return fail_as(OUT_PROTOCOL, "lane hello: two hellos differ in encryption");
	v->wire.sealed = sealed;
	if ((v->peer_ring.at != 0) == expected)
		return 0;
	return fail_as(OUT_PROTOCOL, "lane hello: %s ring to write to",
		       expected ? "missing" : "unexpected");
}

static int await_hello(struct verbs *v, const struct lane_key *key, enum hello_place place,
		       uint64_t deadline_ms)
{
	bool nudges = v->adapter.kind == ADAPTER_IWARP && !v->accepting;
	uint64_t next_ms = nudges ? clock_ms() + nudge_ms(v) : deadline_ms;
	unsigned least = place == HELLO_SECOND ? 2 : 1;

	while (v->hellos < least) {
		if (clock_ms() >= deadline_ms)
			return fail_as(OUT_CONNECT, "connect to %s: no hello in time", v->peer);
		if (nudges && nudge_siw(v, &next_ms))
			return -1;
		/* The hello may have arrived right before the wire broke; then it still counts. */
		if (verbs_progress(v, next_ms < deadline_ms ? next_ms : deadline_ms) &&
		    v->hellos < least)
			return -1;
	}
	return check_hello(v, key, place);
}

/*
 * last: the last hello of this wire. This waits until it was sent: if this end closed the wire
 * earlier, the other end would have accepted a connection that never became a wire. Once the hello
 * was sent, it does not matter here if the other end closes.
 */
static int send_hello(struct verbs *v, const struct lane_key *key, enum hello_place place,
		      bool last, uint64_t deadline_ms)
{
	struct lane_ring ring = {0};

	/* Only an authenticated peer gets the key of the ring. */
	if (v->wire.exposed && (v->accepting || place == HELLO_SECOND))
		ring = (struct lane_ring){verbs_ring_at(v), v->pool_mr->rkey};
	hello_write_ring(v->lane, v->epoch, v->accepting, key, &ring, verbs_hello_at(v, place));
	if (verbs_send_hello(v, place))
		return -1;
	while (last && v->sends > 0 && clock_ms() < deadline_ms) {
		if (verbs_progress(v, deadline_ms) && v->sends > 0)
			return -1;
	}
	return 0;
}

static int exchange_hellos(struct verbs *v, const struct lane_key *key, uint64_t deadline_ms)
{
	bool send_ring = v->wire.exposed && !v->accepting; /* in a second hello */
	uint64_t start;

	if (v->accepting)
		return await_hello(v, key, HELLO_IN, deadline_ms) ||
				       send_hello(v, key, HELLO_OUT, true, deadline_ms) ||
				       (verbs_expects_two_hellos(v) &&
					await_hello(v, key, HELLO_SECOND, deadline_ms))
			       ? -1
			       : 0;
	/* On iWARP the connecting end must send first. */
	start = clock_ns();
	if (send_hello(v, key, HELLO_OUT, false, deadline_ms) ||
	    await_hello(v, key, HELLO_IN, deadline_ms))
		return -1;
	v->wire.rtt_us = (uint32_t)((clock_ns() - start) / 1000 + 1);
	return send_ring ? send_hello(v, key, HELLO_SECOND, true, deadline_ms) : 0;
}

static void name_wire(struct verbs *v)
{
	const char *dev = ibv_get_device_name(v->id->verbs->device);
	const struct sockaddr *local = rdma_get_local_addr(v->id);
	union address here = {.sa = {.sa_family = AF_UNSPEC}};

	if (local->sa_family == AF_INET || local->sa_family == AF_INET6) {
		memcpy(&here, local, local->sa_family == AF_INET ? sizeof here.in4 : sizeof here);
		v->wire.mtu = netdev_mtu(&here);
	}
	snprintf(v->wire.name, sizeof v->wire.name, "rdma %.15s %.62s%s%s", dev, v->peer,
		 verbs_writes(v) ? " " : "", verbs_writes(v) ? verbs_op_text(v->op) : "");
}

/* ---- dialing ------------------------------------------------------------------------ */

int verbs_open_id(struct verbs *v)
{
	v->events = verbs_channel_open();
	if (!v->events)
		return fail_as(OUT_TRANSPORT, "connect to %s: open /dev/infiniband/rdma_cm: %m",
			       v->peer);
	if (set_nonblocking(v->events->fd))
		return fail_as(OUT_TRANSPORT,
			       "connect to %s: make the event channel non-blocking: %m", v->peer);
	if (rdma_create_id(v->events, &v->id, v, RDMA_PS_TCP))
		return fail_as(OUT_TRANSPORT, "connect to %s: create an RDMA id: %m", v->peer);
	if (verbs_set_tos(v->id, lane_tos(v->lane)))
		return fail_as(OUT_TRANSPORT, "connect to %s: set the type of service: %m",
			       v->peer);
	return 0;
}

/*
 * The kernel checks the neighbour entry at the start, when a neighbour answers, and when the time
 * is over. It can miss an answer that arrives at once, as between interfaces of one host. So the
 * first attempt has a short time, and each further one twice as much.
 */
static int resolve_address(struct verbs *v, const union address *from, const union address *to,
			   uint64_t deadline_ms)
{
	union address a = *to, own = {.sa = {.sa_family = AF_UNSPEC}};
	struct cm_event e;

	if (from)
		own = *from;
	for (int ms = RESOLVE_FIRST_MS;; ms *= 2) {
		if (ms > clock_left(deadline_ms))
			ms = clock_left(deadline_ms) + 1;
		if (rdma_resolve_addr(v->id, from ? &own.sa : NULL, &a.sa, ms))
			return verbs_connect_failed(v, errno);
		if (verbs_next_event(v, clock_ms() + (unsigned)ms + EVENT_LATE_MS, &e))
			return -1;
		if (e.what == RDMA_CM_EVENT_ADDR_RESOLVED)
			return 0;
		if (e.what != RDMA_CM_EVENT_ADDR_ERROR || e.status != -ETIMEDOUT)
			return verbs_event_failed(v, &e);
		/* Events that come at once leave no wait that an abort could end. */
		if (!clock_left(deadline_ms) || lane_aborted(v->lane))
			return fail_as(OUT_CONNECT,
				       "connect to %s: no ARP or neighbor reply for that address",
				       v->peer);
	}
}

static int fail_no_path(struct verbs *v)
{
	return fail_as(OUT_CONNECT, "connect to %s: no path in time%s", v->peer,
		       v->adapter.kind == ADAPTER_INFINIBAND ? "; is the subnet manager busy?"
							     : "");
}

/* On InfiniBand the kernel asks the subnet manager, once, and reports ETIMEDOUT if it does not
 * answer in time (cma.c, cma_query_ib_route(); sa_query.c, send_handler()). Nothing has gone to the
 * peer yet, so no firewall is to blame. */
static int resolve_route(struct verbs *v, uint64_t deadline_ms)
{
	uint64_t until_ms = deadline_ms + EVENT_LATE_MS;
	struct cm_event e = {0};

	if (rdma_resolve_route(v->id, clock_left(deadline_ms) + 1))
		return errno == ETIMEDOUT ? fail_no_path(v) : verbs_connect_failed(v, errno);
	if (verbs_next_event(v, until_ms, &e))
		return lane_aborted(v->lane) || clock_left(until_ms) ? -1 : fail_no_path(v);
	if (e.what == RDMA_CM_EVENT_ROUTE_RESOLVED)
		return clock_left(deadline_ms) ? 0 : fail_no_path(v);
	verbs_event_failed(v, &e);
	return e.what == RDMA_CM_EVENT_ROUTE_ERROR && e.status == -ETIMEDOUT ? fail_no_path(v) : -1;
}

/*
 * siw connects its socket inside rdma_connect(). With a silent host that blocks for a long time,
 * even if the lane is aborted. A signal ends the call. So a timer sends one to this thread after
 * SIW_CALL_MS, and repeats it, because the first one may arrive before the call. It does so only if
 * SIGUSR2 has a handler (base/worker.c); otherwise the signal would end the program.
 */
struct alarm_clock {
	timer_t timer;
	bool set;
};

static bool signal_is_harmless(int signo)
{
	struct sigaction sa;
	sigset_t blocked;

	return !sigaction(signo, NULL, &sa) && !pthread_sigmask(SIG_SETMASK, NULL, &blocked) &&
	       sa.sa_handler != SIG_DFL && sa.sa_handler != SIG_IGN &&
	       !sigismember(&blocked, signo);
}

static void alarm_set(struct alarm_clock *a, int ms)
{
	struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR2};
	struct itimerspec when = {
		.it_value = {.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000L + 1},
		.it_interval = {.tv_nsec = 50 * 1000000L},
	};

	a->set = false;
	event.sigev_notify_thread_id = gettid();
	if (!signal_is_harmless(SIGUSR2) || timer_create(CLOCK_MONOTONIC, &event, &a->timer))
		return;
	a->set = true;
	timer_settime(a->timer, 0, &when, NULL);
}

static void alarm_stop(struct alarm_clock *a)
{
	if (a->set)
		timer_delete(a->timer);
	a->set = false;
}

/*
 * How long a request may have no answer before the caller makes another one, of another epoch; 0:
 * until the deadline. As long as the attempts have lasted, so that a slow peer gets time in the
 * end.
 *
 * InfiniBand's connection manager repeats a request without an answer only after 4.1 s and twice
 * the packet lifetime, which is 1 s on RoCE (cm.c of Linux 6.1: ib_send_cm_req(), with
 * CMA_CM_RESPONSE_TIMEOUT of cma.c), and no program can change that. iWARP's requests are
 * TCP's to repeat, and the kernel cannot cancel them. rxe loses none, but may be slow.
 */
static uint64_t choose_answer_ms(const struct verbs *v, uint64_t began_ms, uint64_t deadline_ms)
{
	uint64_t ms = clock_ms() - began_ms, least = lane_host_rtt_us(v->lane) / 1000 * 4;

	if (!began_ms || v->adapter.kind == ADAPTER_IWARP || v->adapter.rxe)
		return 0;
	if (ms < ANSWER_MS)
		ms = ANSWER_MS;
	if (ms < least)
		ms = least;
	return (uint64_t)clock_left(deadline_ms) < 2 * ms ? 0 : ms;
}

/* The time may be over without an event. */
static int await_answer(struct verbs *v, uint64_t answer_ms, uint64_t deadline_ms)
{
	uint64_t until_ms = answer_ms ? clock_ms() + answer_ms : deadline_ms;
	struct cm_event e = {0};

	if (until_ms > deadline_ms)
		until_ms = deadline_ms;
	if (verbs_next_event(v, until_ms, &e)) {
		if (clock_ms() < until_ms)
			return -1;
		v->may_pass = until_ms < deadline_ms;
		return verbs_connect_failed(v, ETIMEDOUT);
	}
	v->request_pending = false;
	if (e.what != RDMA_CM_EVENT_ESTABLISHED)
		return verbs_event_failed(v, &e);
	verbs_set_rnr_timer(v);
	return 0;
}

static int send_request(struct verbs *v, const struct lane_key *key, uint64_t answer_ms,
			uint64_t deadline_ms)
{
	bool iwarp = v->adapter.kind == ADAPTER_IWARP;
	uint8_t private[LANE_PRIVATE_SIZE];
	struct lane_private p = {
		.lane = (uint16_t)lane_index(v->lane),
		.epoch = v->epoch,
		.depth = (uint16_t)v->depth,
		.block_size = v->pool->size,
	};
	struct rdma_conn_param param = {
		.private_data = private,
		.private_data_len = sizeof private,
		.flow_control = 1,
		.retry_count = verbs_retry_count(v),
		.rnr_retry_count = verbs_rnr_retry_count(v),
		/* Some iWARP adapters read from the peer to open a connection. */
		.initiator_depth = iwarp,
	};
	struct alarm_clock a = {.set = false};
	uint64_t began = clock_ms();
	int ms = clock_left(deadline_ms) < SIW_CALL_MS ? clock_left(deadline_ms) : SIW_CALL_MS;
	int rc, err;

	lane_token(key, p.lane, p.epoch, p.token);
	lane_private_encode(&p, private);
	if (iwarp)
		alarm_set(&a, ms);
	rc = rdma_connect(v->id, &param);
	err = errno;
	alarm_stop(&a);
	if (rc) {
		/* siw: the connection manager chose a port that TCP has given to a socket. Or a
		 * signal other than the timer's came before the socket was connected. */
		v->is_stale = (iwarp && err == EADDRINUSE) ||
			      (err == EINTR && clock_ms() < began + (uint64_t)ms);
		return verbs_connect_failed(v, err);
	}
	v->request_pending = iwarp;
	return await_answer(v, answer_ms, deadline_ms);
}

/* Gets as far as one can without the peer. */
static int resolve_peer(struct verbs *v, const union address *from, const union address *to,
			uint64_t deadline_ms)
{
	address_text(to, v->peer, sizeof v->peer);
	if (verbs_open_id(v) || resolve_address(v, from, to, deadline_ms) || verbs_examine(v))
		return -1;
	verbs_set_options(v);
	if (resolve_route(v, deadline_ms))
		return -1;
	name_wire(v);
	return 0;
}

/* Registering memory takes no time from an attempt. But one that has the memory of the attempt
 * before it only makes queues. That takes time: there may be many, and the peer does not wait for
 * ever. */
static int equip_outside_time(struct verbs *v, uint64_t *deadline_ms)
{
	uint64_t began = clock_ms();
	bool registers = !v->pool_mr;
	int rc = verbs_equip(v);

	if (registers) {
		*deadline_ms += clock_ms() - began;
		lane_stop_clock(v->lane, clock_ms() - began);
	}
	return rc;
}

static int connect_wire(struct verbs *v, const struct lane_key *key, const union address *from,
			const union address *to, struct verbs **prepared, uint64_t began_ms,
			uint64_t deadline_ms)
{
	uint64_t answer_ms;

	if (resolve_peer(v, from, to, deadline_ms))
		return -1;
	answer_ms = choose_answer_ms(v, began_ms, deadline_ms);
	verbs_take_memory(v, v->stale);
	verbs_take_prepared(v, prepared);
	if (equip_outside_time(v, &deadline_ms) || send_request(v, key, answer_ms, deadline_ms))
		return -1;
	return exchange_hellos(v, key, deadline_ms);
}

int verbs_dial(struct lane *l, uint32_t epoch, const struct lane_key *key,
	       const union address *from, const union address *to, struct verbs **prepared,
	       uint64_t began_ms, uint64_t deadline_ms, struct wire **out)
{
	struct verbs *v, *before = NULL;
	int rc;

	if (fault_connect(lane_index(l)))
		return fail_as(OUT_CONNECT, "connect to lane %u: failed by an injected fault",
			       lane_index(l));
	for (unsigned tries = 0; tries < STALE_MOST; tries++) {
		if (verbs_new(l, epoch, &v)) {
			verbs_free(before);
			return -1;
		}
		v->stale = before;
		if (connect_wire(v, key, from, to, prepared, began_ms, deadline_ms) == 0) {
			verbs_drop_prepared(prepared);
			*out = &v->wire;
			return 0;
		}
		if (!v->is_stale || !clock_left(deadline_ms))
			break;
		/* The listener has not seen the request, so the epoch is still good. */
		before = v;
		v = NULL;
	}
	v = v ? v : before;
	if (v->peer_knows || (v->why.code && !v->wire.knows_cause))
		rc = DIAL_PEER_KNOWS;
	else
		rc = v->may_pass ? DIAL_AGAIN : -1;
	verbs_keep_memory(v, prepared);
	verbs_free(v);
	return rc;
}

int verbs_knock(struct lane *l, const struct lane_key *key, const union address *from,
		const union address *to, uint64_t deadline_ms)
{
	struct verbs *v;
	int rc;

	if (verbs_new(l, 0, &v))
		return -1;
	rc = resolve_peer(v, from, to, deadline_ms) || verbs_equip_queues(v)
		     ? -1
		     : send_request(v, key, 0, deadline_ms);
	if (v->is_refused)
		rc = 0;
	verbs_free(v);
	return rc;
}

/* ---- accepting ---------------------------------------------------------------------- */

static int check_request(const struct verbs *v, const struct lane_private *p)
{
	if (p->lane == lane_index(v->lane) && p->epoch == v->epoch &&
	    p->depth <= lane_depth(v->lane) && p->block_size == v->pool->size)
		return 0;
	return fail_as(OUT_PROTOCOL,
		       "%s requested lane %u epoch %u with %u blocks of %u bytes, expected lane %u "
		       "epoch %u with at most %u of %u",
		       v->peer, p->lane, p->epoch, p->depth, p->block_size, lane_index(v->lane),
		       v->epoch, lane_depth(v->lane), v->pool->size);
}

static int accept_request(struct verbs *v)
{
	/* These constants mean: what the caller requested, up to the device's limit. */
	struct rdma_conn_param param = {
		.flow_control = 1,
		.responder_resources = RDMA_MAX_RESP_RES,
		.initiator_depth = RDMA_MAX_INIT_DEPTH,
		.rnr_retry_count = verbs_rnr_retry_count(v),
	};

	verbs_set_options(v);
	if (rdma_accept(v->id, &param))
		return fail_as(OUT_CONNECT, "accept a connection from %s: %m", v->peer);
	verbs_set_rnr_timer(v);
	return 0;
}

/*
 * Waits until the connection is established. Its last message (RTU) may be lost. But the caller
 * sends its hello right behind it, and the queue pair receives already. A hello shows that the
 * caller considers the connection established, and rdma_notify(3) then makes the connection manager
 * consider it so, too. On iWARP there is no such message.
 */
static int await_established(struct verbs *v, uint64_t deadline_ms)
{
	bool notified = v->adapter.kind == ADAPTER_IWARP;

	while (!v->established) {
		if (clock_ms() >= deadline_ms)
			return fail_as(OUT_CONNECT, "connect to %s: no answer in time", v->peer);
		if (v->hellos && !notified) {
			notified = true;
			/* It is established already, or the kernel cannot do this. */
			if (rdma_notify(v->id, IBV_EVENT_COMM_EST) && errno != EISCONN)
				return 0;
		}
		if (verbs_progress(v, deadline_ms))
			return -1;
	}
	return 0;
}

/* The caller has authenticated, so it may learn the reason. Keeps this thread's failure, but as
 * nothing has come from the caller, it is this host's adapter that failed. */
static void reject_request(struct verbs *v)
{
	struct failure f = *failed();
	struct lane_refusal why = {0};
	uint8_t private[LANE_REFUSAL_SIZE];
	bool known;

	if (f.code == OUT_PEER_LOST || f.code == OUT_CONNECT)
		f.code = OUT_TRANSPORT;
	known = f.code == OUT_MEMLOCK || f.code == OUT_MEMORY || f.code == OUT_TRANSPORT;
	why.code = (uint8_t)f.code;
	if (f.code == OUT_MEMLOCK) {
		why.limit = memlock_limit();
		why.need = v->pool->bytes + v->ring_bytes;
	}
	lane_refusal_encode(&why, private);
	rdma_reject(v->id, known ? private : NULL, known ? sizeof private : 0);
	fail_again(&f);
}

int verbs_take(struct lane *l, uint32_t epoch, const struct lane_key *key, struct verbs_caller *c,
	       struct verbs **prepared, uint64_t deadline_ms, struct wire **out)
{
	struct sockaddr *peer;
	union address from = {0};
	struct verbs *v;

	if (verbs_new(l, epoch, &v)) {
		verbs_refuse(c);
		return -1;
	}
	v->accepting = true;
	v->wire.depth = c->request.depth;
	v->id = c->id;
	v->events = c->events;
	c->id = NULL;
	c->events = NULL;
	peer = rdma_get_peer_addr(v->id);
	memcpy(&from, peer, peer->sa_family == AF_INET6 ? sizeof from.in6 : sizeof from.in4);
	address_text(&from, v->peer, sizeof v->peer);
	name_wire(v);
	verbs_take_prepared(v, prepared);
	if (check_request(v, &c->request) || verbs_examine(v) ||
	    equip_outside_time(v, &deadline_ms) || accept_request(v)) {
		reject_request(v);
		goto failed;
	}
	/* rxe delays a send for seconds if the connection is not established yet. On iWARP the
	 * caller must send first anyway. */
	if (await_established(v, deadline_ms) || exchange_hellos(v, key, deadline_ms))
		goto failed;
	if (fault_accept(lane_index(l))) {
		fail_as(OUT_CONNECT, "lane %u: connection dropped by an injected fault",
			lane_index(l));
		goto failed;
	}
	verbs_caller_free(c);
	verbs_drop_prepared(prepared);
	*out = &v->wire;
	return 0;
failed:
	verbs_caller_free(c);
	verbs_keep_memory(v, prepared);
	verbs_free(v);
	return -1;
}
