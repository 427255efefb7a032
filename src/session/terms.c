/* SPDX-License-Identifier: Apache-2.0 */

/* The terms of a session: the smaller of both ends' values, and whether RDMA may be tried. */

#include <stdio.h>
#include <string.h>
#include "base/fail.h"
#include "base/log.h"
#include "lane/memlock.h"
#include "session/session_impl.h"

static uint64_t smaller_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static const char *transport_text(enum transport t)
{
	static const char *const text[] = {"auto", "rdma", "tcp", "ssh"};

	return text[t];
}

static int agree_want(const struct msg_hello *mine, const struct msg_hello *peer, struct terms *t)
{
	enum transport a = mine->want, b = peer->want;

	if (a != TRANSPORT_AUTO && b != TRANSPORT_AUTO && a != b)
		return fail_as(OUT_TRANSPORT, "%s uses --transport=%s, but %s uses --transport=%s",
			       mine->host, transport_text(a), peer->host, transport_text(b));
	t->want = a != TRANSPORT_AUTO ? a : b;
	return 0;
}

static int agree_sizes(const struct msg_hello *mine, const struct msg_hello *peer, struct terms *t)
{
	uint64_t memory = smaller_u64(mine->memory, peer->memory);

	t->lanes = (unsigned)smaller_u64(mine->lanes, peer->lanes);
	t->depth = (uint32_t)smaller_u64(mine->depth, peer->depth);
	t->block_size = (uint32_t)smaller_u64(mine->block_size, peer->block_size);
	if (!lanes_fit(memory, &t->lanes, &t->depth, &t->block_size))
		return fail_as(OUT_USAGE, "--memory %llu: too few bytes for one lane",
			       (unsigned long long)memory);
	t->timeout_ms = (int)smaller_u64(mine->timeout_ms, peer->timeout_ms);
	if (t->timeout_ms < TIMEOUT_LEAST_MS)
		t->timeout_ms = (int)smaller_u64(mine->timeout_ms, TIMEOUT_LEAST_MS);
	return 0;
}

/* 0 means no preference. */
static unsigned min_nonzero(unsigned a, unsigned b)
{
	return a && (a < b || !b) ? a : b;
}

static void agree_verbs(const struct msg_hello *mine, const struct msg_hello *peer, struct terms *t)
{
	unsigned op = min_nonzero(mine->rdma_op, peer->rdma_op);
	unsigned rails = min_nonzero(mine->rails, peer->rails);

	t->rdma_op = op ? (enum rdma_op)op : RDMA_OP_SEND;
	t->rails = rails && rails < OFFER_MAX ? rails : OFFER_MAX;
}

/* Returns true if this end has no RDMA; failed() then has the reason. */
static bool lacks_rdma(const struct msg_hello *end)
{
	if (end->want == TRANSPORT_TCP || end->want == TRANSPORT_SSH)
		fail_as(OUT_TRANSPORT, "%s uses --transport=%s", end->host,
			transport_text(end->want));
	else if (end->lockable == 0)
		fail_as(OUT_TRANSPORT, "%s: %s", end->host, end->no_rdma);
	else
		return false;
	return true;
}

/* Bytes of the smallest lane that lanes_fit() chooses for these two ends. */
static uint64_t smallest_lane_bytes(const struct msg_hello *mine, const struct msg_hello *peer)
{
	return lane_bytes_least((uint32_t)smaller_u64(mine->depth, peer->depth),
				(uint32_t)smaller_u64(mine->block_size, peer->block_size));
}

/* Locked memory is too small for a lane. The message names the end with the lower limit. */
static int fail_lockable(const struct msg_hello *mine, const struct msg_hello *peer)
{
	if (mine->lockable > peer->lockable)
		fail_memlock_on(peer->host, peer->lockable, smallest_lane_bytes(mine, peer));
	else
		fail_memlock(0, smallest_lane_bytes(mine, peer));
	return fail_as(OUT_MEMLOCK, "too little locked memory: %s", failed()->text);
}

static int agree_rdma(const struct msg_hello *mine, const struct msg_hello *peer, struct terms *t)
{
	if (lacks_rdma(mine) || lacks_rdma(peer)) {
		if (t->want == TRANSPORT_RDMA)
			return fail_as(OUT_TRANSPORT, "--transport=rdma is not possible: %s",
				       failed()->text);
	} else if (lanes_fit(smaller_u64(mine->lockable, peer->lockable), &t->lanes, &t->depth,
			     &t->block_size)) {
		t->rdma = true;
		return 0;
	} else {
		fail_lockable(mine, peer);
		if (t->want == TRANSPORT_RDMA)
			return -1;
	}
	/* A user who chose a transport does not need the reason. */
	if (mine->want == TRANSPORT_AUTO)
		snprintf(t->no_rdma, sizeof t->no_rdma, "%s", failed()->text);
	return 0;
}

static const char *encrypt_text(unsigned wish)
{
	static const char *const text[] = {"auto", "on", "off"};

	return text[wish];
}

/* Never dropped silently: no user may believe that data is encrypted when it is not. */
static int agree_encryption(const struct msg_hello *mine, const struct msg_hello *peer,
			    struct terms *t)
{
	enum encrypt a = mine->encrypt, b = peer->encrypt;

	if (a != ENCRYPT_AUTO && b != ENCRYPT_AUTO && a != b)
		return fail_as(OUT_TRANSPORT, "%s uses --encrypt=%s, but %s uses --encrypt=%s",
			       mine->host, encrypt_text(a), peer->host, encrypt_text(b));
	t->encrypt = a != ENCRYPT_AUTO ? a : b;
	if (t->encrypt == ENCRYPT_OFF)
		return 0;
	t->cipher = cipher_choose(mine->ciphers, peer->ciphers);
	if (t->cipher != CIPHER_NONE)
		return 0;
	return fail_as(OUT_TRANSPORT,
		       "%s and %s have no cipher in common (0x%x and 0x%x); --encrypt=off sends "
		       "data in the clear",
		       mine->host, peer->host, mine->ciphers, peer->ciphers);
}

static unsigned compress_wish_of(const struct msg_hello *end)
{
	return make_compress_wish((unsigned)(end->features >> FEATURE_COMPRESS_SHIFT) &
				  ((1u << COMPRESS_WISH_BITS) - 1));
}

/* The end that compresses decides, if it has a wish. */
static int agree_compression(const struct msg_hello *mine, const struct msg_hello *peer,
			     struct terms *t)
{
	const struct msg_hello *source = mine->role == ROLE_SOURCE ? mine : peer;
	const struct msg_hello *sink = source == mine ? peer : mine, *lacks = NULL;
	unsigned wish = compress_wish_of(source);

	if (!wish)
		wish = compress_wish_of(sink);
	if (!(source->features & FEATURE_ZSTD))
		lacks = source;
	else if (!(sink->features & FEATURE_ZSTD))
		lacks = sink;
	if (!wish || !lacks) {
		t->compress = wish;
		return 0;
	}
	if (get_compress_mode(wish) == COMPRESS_AUTO) {
		snprintf(t->no_zstd, sizeof t->no_zstd, "%s", lacks->host);
		return 0;
	}
	return fail_as(
		OUT_TRANSPORT,
		"--compress is not possible: Sluice on %s is too old or was built without zstd; "
		"--compress=auto sends data as it is",
		lacks->host);
}

int terms_agree(const struct msg_hello *mine, const struct msg_hello *peer, struct terms *out)
{
	*out = (struct terms){.same_host = mine->host_id == peer->host_id};
	if (mine->role == peer->role)
		return fail_as(OUT_PROTOCOL, "both ends are %ss",
			       mine->role == ROLE_SOURCE ? "source" : "sink");
	if (agree_want(mine, peer, out) < 0 || agree_encryption(mine, peer, out) < 0 ||
	    agree_compression(mine, peer, out) < 0 || agree_sizes(mine, peer, out) < 0)
		return -1;
	agree_verbs(mine, peer, out);
	return agree_rdma(mine, peer, out);
}

static uint64_t count_bytes(const struct sizing *z)
{
	return z->lanes * lane_bytes(z->depth, z->block_size);
}

/* Whether this end's limit has bounded what was agreed: there is no room for one more block a lane,
 * or for as many lanes as both ends proposed. */
static bool is_limit_reached(const struct session *s, const struct sizing *got)
{
	struct sizing more = *got;

	more.depth++;
	return count_bytes(&more) > s->mine.lockable ||
	       (got->lanes < smaller_u64(s->mine.lanes, s->peer.lanes) &&
		s->mine.lockable <= s->peer.lockable);
}

void terms_warn_of_memlock(struct session *s)
{
	const struct sizing *wished = &s->unlimited;
	struct sizing got = {s->terms.lanes, s->terms.depth, s->terms.block_size};
	uint64_t need = count_bytes(wished);
	char why[TEXT_MAX];

	if (need <= s->mine.lockable || need > s->mine.memory || !is_limit_reached(s, &got))
		return;
	/* On one host one line is enough. */
	if (s->terms.same_host && !route_reports(s))
		return;
	memlock_describe_need(need, why, sizeof why);
	log_warn("RDMA uses %u lane%s of %u blocks of %u KiB instead of %u of %u of %u KiB: %s",
		 got.lanes, got.lanes == 1 ? "" : "s", got.depth, got.block_size >> 10,
		 wished->lanes, wished->depth, wished->block_size >> 10, why);
}

void terms_warn_of_zstd(struct session *s)
{
	if (s->terms.no_zstd[0] && (!s->terms.same_host || route_reports(s)))
		log_warn(
			"data is not compressed: Sluice on %s is too old or was built without zstd",
			s->terms.no_zstd);
}

void terms_demand_seal(struct lane_end *e, enum transport t)
{
	struct session *s = e->s;
	bool seal = s->terms.encrypt == ENCRYPT_ON || atomic_load(&s->sealed);

	/* Ends of one host that cannot reach each other are connected through another one. */
	if (s->terms.encrypt == ENCRYPT_AUTO && t == TRANSPORT_TCP &&
	    s->terms.want != TRANSPORT_SSH)
		seal |= (route_stage(s) == STAGE_DETOUR) == s->terms.same_host;
	lane_demand_seal(e->lane, seal);
}
