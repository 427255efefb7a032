/* SPDX-License-Identifier: Apache-2.0 */

/* Events of the connection manager, and what they report. */

#include <errno.h>
#include <poll.h>
#include "base/clock.h"
#include "base/log.h"
#include "lane/memlock.h"
#include "lane/verbs/verbs_impl.h"

/* Call it before rdma_ack_cm_event(), which frees the private data. */
static void take_refusal(const struct rdma_cm_event *e, struct lane_refusal *to)
{
	const struct rdma_conn_param *p = &e->param.conn;

	*to = (struct lane_refusal){.code = 0};
	if (e->event == RDMA_CM_EVENT_REJECTED && p->private_data &&
	    lane_refusal_decode(p->private_data, p->private_data_len, to))
		*to = (struct lane_refusal){.code = 0};
}

/* Takes the next event. Returns 0; -1 at the deadline or if the lane was aborted. */
static int take_event(struct verbs *v, uint64_t until_ms, struct cm_event *out)
{
	struct pollfd fds[] = {
		{.fd = v->events->fd, .events = POLLIN},
		{.fd = lane_abort_fd(v->lane), .events = POLLIN},
	};
	struct rdma_cm_event *e;

	while (rdma_get_cm_event(v->events, &e)) {
		int n;

		if (errno != EAGAIN && errno != EINTR)
			return fail_as(OUT_CONNECT, "connect to %s: wait for an event: %m",
				       v->peer);
		n = poll(fds, 2, clock_left(until_ms));
		if (n < 0 && errno != EINTR)
			return fail_as(OUT_CONNECT, "connect to %s: poll: %m", v->peer);
		if (n > 0 && fds[1].revents)
			return fail_as(OUT_CONNECT, "connect to %s: the lane was aborted", v->peer);
		if (n == 0) {
			errno = ETIMEDOUT;
			return fail_as(OUT_CONNECT, "connect to %s: no answer in time", v->peer);
		}
	}
	out->what = e->event;
	out->status = e->status;
	take_refusal(e, &out->why);
	rdma_ack_cm_event(e);
	return 0;
}

int verbs_next_event(struct verbs *v, uint64_t until_ms, struct cm_event *out)
{
	do {
		if (take_event(v, until_ms, out))
			return -1;
	} while (out->what == RDMA_CM_EVENT_ADDR_CHANGE ||
		 out->what == RDMA_CM_EVENT_TIMEWAIT_EXIT);
	return 0;
}

/* Reject reasons of InfiniBand's connection manager (event status). iWARP reports errnos. */
enum { REJECT_NO_SERVICE = 8, REJECT_STALE = 10, REJECT_BY_CONSUMER = 28 };

/* Whether another attempt may succeed soon: an address or route that was not found may be found
 * later. */
static bool may_pass(const struct cm_event *e)
{
	switch (e->what) {
	case RDMA_CM_EVENT_ADDR_ERROR:
		return e->status == -EHOSTUNREACH || e->status == -ETIMEDOUT ||
		       e->status == -EAGAIN;
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
		return true;
	default:
		return false;
	}
}

int verbs_connect_failed(struct verbs *v, int err)
{
	const char *peer = v->peer;

	errno = err;
	switch (err) {
	case ENODEV:
		return fail_as(OUT_TRANSPORT, "connect to %s: no RDMA device on the route", peer);
	case ENETUNREACH:
	case EHOSTUNREACH:
		return fail_as(OUT_CONNECT, "connect to %s: no route to that address", peer);
	case ECONNREFUSED:
		return fail_as(OUT_CONNECT, "connect to %s: no RDMA listener on that port", peer);
	case ECONNRESET:
		return fail_as(OUT_CONNECT, "connect to %s: refused by the peer", peer);
	case ETIMEDOUT:
	case EINTR:
		/* A lane that had a wire before was let through by firewalls. */
		return fail_as(OUT_CONNECT, "connect to %s: no answer%s", peer,
			       lane_had_wire(v->lane)
				       ? " any more"
				       : "; does a firewall block RDMA to that port?");
	default:
		return fail_as(OUT_CONNECT, "connect to %s: %m", peer);
	}
}

/* The peer rejected the request and sent the reason, which concerns its host. */
static int fail_refused(struct verbs *v, const struct lane_refusal *why)
{
	if (why->code == OUT_MEMLOCK)
		return fail_memlock_on(v->peer, why->limit, why->need);
	if (why->code == OUT_MEMORY)
		return fail_as(OUT_CONNECT, "connect to %s: that host is out of memory", v->peer);
	return fail_as(OUT_CONNECT, "connect to %s: that host's adapter cannot carry this lane",
		       v->peer);
}

/*
 * Whether the peer's program rejected the request. On iWARP a listener's rejection and TCP's end of
 * the attempt have errnos, which drivers choose differently (Linux 6.1):
 *
 *                                      rejected        reset: nobody listens there
 *   siw (siw_proc_mpareply())          ECONNRESET      ECONNREFUSED
 *   irdma (irdma_cm_event_handler())   ECONNREFUSED    ECONNRESET, also without an answer
 *   cxgb4 (process_mpa_reply())        ECONNREFUSED    ECONNREFUSED
 */
static bool is_refusal(const struct verbs *v, const struct cm_event *e)
{
	if (e->what != RDMA_CM_EVENT_REJECTED)
		return false;
	if (e->why.code)
		return true;
	if (v->adapter.kind != ADAPTER_IWARP)
		return e->status == REJECT_BY_CONSUMER;
	return e->status == (v->adapter.siw ? -ECONNRESET : -ECONNREFUSED);
}

/* See above. */
static int fail_iwarp_call(struct verbs *v, const struct cm_event *e)
{
	if (e->status == -ECONNREFUSED)
		return fail_as(
			OUT_CONNECT,
			"connect to %s: no RDMA listener on that port, or refused by the peer",
			v->peer);
	if (e->status == -ECONNRESET)
		return fail_as(OUT_CONNECT,
			       "connect to %s: no RDMA listener on that port, or no answer",
			       v->peer);
	return verbs_connect_failed(v, -e->status);
}

/* Whether librdmacm could not establish a connection that the peer accepted. It may have ended
 * again before, so the peer may know why. The status is no errno but a result of
 * ucma_process_conn_resp() (librdmacm/cma.c), which is the same if this host's queue pair is the
 * cause. */
static bool is_late_answer(const struct cm_event *e)
{
	return e->what == RDMA_CM_EVENT_CONNECT_ERROR && e->status == -1;
}

int verbs_event_failed(struct verbs *v, const struct cm_event *e)
{
	v->may_pass = may_pass(e);
	/* IB_CM_REJ_STALE_CONN of ib_cm.h: the other host knows the number of our queue pair from
	 * an earlier connection. */
	v->is_stale = e->what == RDMA_CM_EVENT_REJECTED && e->status == REJECT_STALE;
	v->is_refused = is_refusal(v, e);
	/* A refusal for lack of locked memory has the numbers. */
	v->peer_knows = e->what == RDMA_CM_EVENT_DISCONNECTED || is_late_answer(e) ||
			(e->why.code && e->why.code != OUT_MEMLOCK);
	switch (e->what) {
	case RDMA_CM_EVENT_REJECTED:
		if (e->why.code)
			return fail_refused(v, &e->why);
		if (v->adapter.kind == ADAPTER_IWARP && !v->adapter.siw)
			return fail_iwarp_call(v, e);
		if (e->status < 0)
			return verbs_connect_failed(v, -e->status);
		if (e->status == REJECT_NO_SERVICE)
			return verbs_connect_failed(v, ECONNREFUSED);
		if (e->status == REJECT_BY_CONSUMER)
			return verbs_connect_failed(v, ECONNRESET);
		return fail_as(OUT_CONNECT,
			       "connect to %s: rejected by the adapter there (reason %d)", v->peer,
			       e->status);
	case RDMA_CM_EVENT_DISCONNECTED:
		return fail_as(OUT_CONNECT, "connect to %s: the peer closed the connection",
			       v->peer);
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		return fail_as(OUT_CONNECT, "connect to %s: the device was removed", v->peer);
	case RDMA_CM_EVENT_UNREACHABLE:
		return verbs_connect_failed(v, e->status < 0 ? -e->status : ETIMEDOUT);
	default:
		if (is_late_answer(e))
			return fail_as(
				OUT_CONNECT,
				"connect to %s: the connection ended before it was established",
				v->peer);
		if (e->status < 0)
			return verbs_connect_failed(v, -e->status);
		return fail_as(OUT_CONNECT, "connect to %s: %s", v->peer, rdma_event_str(e->what));
	}
}

int verbs_expect_event(struct verbs *v, enum rdma_cm_event_type want, uint64_t until_ms)
{
	struct cm_event e = {0};

	if (verbs_next_event(v, until_ms, &e))
		return -1;
	return e.what == want ? 0 : verbs_event_failed(v, &e);
}

/* ---- of a wire that is connected, or accepts ------------------------------------------- */

static int fail_disconnected(struct verbs *v, enum rdma_cm_event_type what)
{
	verbs_reap_last(v);
	if (what == RDMA_CM_EVENT_DEVICE_REMOVAL)
		return verbs_fail(v, OUT_PEER_LOST, "%s: the device was removed", v->wire.name);
	return verbs_ended(v, "%s: the peer closed the connection", v->wire.name);
}

/* If no RTU came, and rdma_notify() was not heard, the connection manager repeats its reply, and
 * reports UNREACHABLE when it gives up. The peer's hello has shown that the connection is there. */
int verbs_take_events(struct verbs *v)
{
	struct rdma_cm_event *e;

	while (!rdma_get_cm_event(v->events, &e)) {
		enum rdma_cm_event_type what = e->event;

		rdma_ack_cm_event(e);
		if (what == RDMA_CM_EVENT_DISCONNECTED || what == RDMA_CM_EVENT_DEVICE_REMOVAL)
			fail_disconnected(v, what);
		else if (what == RDMA_CM_EVENT_ESTABLISHED)
			v->established = true;
		else if (what == RDMA_CM_EVENT_UNREACHABLE && v->hellos > 0)
			log_debug("%s: %s", v->wire.name, rdma_event_str(what));
		else if (what == RDMA_CM_EVENT_REJECTED || what == RDMA_CM_EVENT_UNREACHABLE ||
			 what == RDMA_CM_EVENT_CONNECT_ERROR)
			verbs_fail(v, OUT_PEER_LOST, "connect to %s: %s", v->peer,
				   rdma_event_str(what));
	}
	if (errno != EAGAIN && errno != EINTR)
		verbs_fail(v, OUT_PEER_LOST, "%s: read the events of the connection: %m",
			   v->wire.name);
	return v->why.code ? fail_again(&v->why) : 0;
}
