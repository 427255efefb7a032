/* SPDX-License-Identifier: Apache-2.0 */

/* Opening a session: what both ends agree on, the ways between them, and how it fails. */

#include "session_pair.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "host/host_id.h"
#include "session/session_impl.h"
#include <cmocka.h>

static struct pair p;

static int setup(void **state)
{
	(void)state;
	pair_init(&p);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	session_pair_close(&p);
	return 0;
}

static void opened(void)
{
	if (session_pair_open(&p) < 0)
		print_error("%s / %s\n", p.ends[0].why.text, p.ends[1].why.text);
	assert_non_null(p.ends[0].s);
	assert_non_null(p.ends[1].s);
}

static void carried(uint64_t count)
{
	pair_start(&p, count);
	assert_int_equal(pair_finish(&p), 0);
}

/* Both ends failed to open, with this code and this text. */
static void not_opened(enum outcome code, const char *text)
{
	assert_int_equal(session_pair_open(&p), -1);
	for (unsigned i = 0; i < 2; i++) {
		assert_null(p.ends[i].s);
		assert_int_equal(p.ends[i].why.code, code);
		if (!strstr(p.ends[i].why.text, text))
			fail_msg("end %u: '%s' does not say '%s'", i, p.ends[i].why.text, text);
	}
}

static enum transport transport_of(unsigned end, char *why)
{
	char how[256];
	enum transport t;

	t = session_transport(p.ends[end].s, how, sizeof how, why, TEXT_MAX);
	assert_int_equal(strncmp(how, "tcp ", 4), 0);
	return t;
}

/* ---- agreement --------------------------------------------------------------------------- */

static struct msg_hello hello_of(enum role role)
{
	struct msg_hello m = {
		.version = PROTOCOL_VERSION,
		.role = (uint8_t)role,
		.lanes = 4,
		.depth = 12,
		.block_size = 256 << 10,
		.memory = UINT64_MAX,
		.lockable = UINT64_MAX,
		.timeout_ms = 15000,
		.ciphers = 3,
	};

	snprintf(m.host, sizeof m.host, role == ROLE_SOURCE ? "near" : "far");
	return m;
}

static void test_smaller_values_are_agreed_on(void **state)
{
	struct msg_hello a = hello_of(ROLE_SOURCE), b = hello_of(ROLE_SINK);
	struct terms t, u;

	(void)state;
	a.lanes = 3;
	b.depth = 5;
	a.block_size = 64 << 10;
	b.timeout_ms = 7000;
	a.host_id = 1;
	assert_int_equal(terms_agree(&a, &b, &t), 0);
	assert_int_equal(t.lanes, 3);
	assert_int_equal(t.depth, 5);
	assert_int_equal(t.block_size, 64 << 10);
	assert_int_equal(t.timeout_ms, 7000);
	assert_false(t.same_host);
	assert_true(t.rdma);
	/* Both ends compute the same. */
	assert_int_equal(terms_agree(&b, &a, &u), 0);
	assert_memory_equal(&t, &u, sizeof t);
}

/* Never dropped silently: a user must not believe that data is encrypted when it is not. */
static void test_wishes_for_encryption(void **state)
{
	enum { AES = 1, CHACHA = 2, BOTH = 3 };
	static const struct {
		uint8_t a, b;
		uint32_t ciphers_a, ciphers_b;
		int code;
		enum encrypt agreed;
		enum cipher_kind cipher;
	} cases[] = {
		{ENCRYPT_AUTO, ENCRYPT_AUTO, BOTH, BOTH, 0, ENCRYPT_AUTO, CIPHER_AES_256_GCM},
		{ENCRYPT_ON, ENCRYPT_AUTO, BOTH, BOTH, 0, ENCRYPT_ON, CIPHER_AES_256_GCM},
		{ENCRYPT_ON, ENCRYPT_ON, BOTH, CHACHA, 0, ENCRYPT_ON, CIPHER_CHACHA20_POLY1305},
		{ENCRYPT_OFF, ENCRYPT_AUTO, BOTH, BOTH, 0, ENCRYPT_OFF, CIPHER_NONE},
		{ENCRYPT_OFF, ENCRYPT_OFF, 0, 0, 0, ENCRYPT_OFF, CIPHER_NONE},
		{ENCRYPT_OFF, ENCRYPT_AUTO, BOTH, 0, 0, ENCRYPT_OFF, CIPHER_NONE},
		{ENCRYPT_ON, ENCRYPT_OFF, BOTH, BOTH, OUT_TRANSPORT, 0, 0},
		{ENCRYPT_ON, ENCRYPT_AUTO, BOTH, 0, OUT_TRANSPORT, 0, 0},
		{ENCRYPT_AUTO, ENCRYPT_AUTO, AES, CHACHA, OUT_TRANSPORT, 0, 0},
		{ENCRYPT_AUTO, ENCRYPT_AUTO, BOTH, 1u << 31, OUT_TRANSPORT, 0, 0},
		{ENCRYPT_AUTO, ENCRYPT_AUTO, BOTH, CHACHA | 1u << 31, 0, ENCRYPT_AUTO,
		 CIPHER_CHACHA20_POLY1305},
	};
	struct msg_hello a = hello_of(ROLE_SOURCE), b = hello_of(ROLE_SINK);
	struct terms t;

	(void)state;
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		a.encrypt = cases[i].a;
		b.encrypt = cases[i].b;
		a.ciphers = cases[i].ciphers_a;
		b.ciphers = cases[i].ciphers_b;
		for (unsigned turn = 0; turn < 2; turn++) {
			int rc = turn ? terms_agree(&b, &a, &t) : terms_agree(&a, &b, &t);

			assert_int_equal(rc, cases[i].code ? -1 : 0);
			if (rc) {
				assert_int_equal(failed()->code, cases[i].code);
				assert_non_null(strstr(failed()->text, "--encrypt=off"));
				continue;
			}
			assert_int_equal(t.encrypt, cases[i].agreed);
			assert_int_equal(t.cipher, cases[i].cipher);
		}
	}
}

/* A peer may shorten our timeout, but not below the minimum. */
static void test_peer_timeout_is_bounded_below(void **state)
{
	struct msg_hello a = hello_of(ROLE_SOURCE), b = hello_of(ROLE_SINK);
	struct terms t;

	(void)state;
	b.timeout_ms = 0;
	assert_int_equal(terms_agree(&a, &b, &t), 0);
	assert_int_equal(t.timeout_ms, TIMEOUT_LEAST_MS);
	b.timeout_ms = INT32_MAX;
	assert_int_equal(terms_agree(&a, &b, &t), 0);
	assert_int_equal(t.timeout_ms, 15000);
}

static void test_either_memory_limit_bounds_the_lanes(void **state)
{
	struct msg_hello a = hello_of(ROLE_SOURCE), b = hello_of(ROLE_SINK);
	struct terms t;

	(void)state;
	b.memory = 4 << 20;
	assert_int_equal(terms_agree(&a, &b, &t), 0);
	assert_int_equal(t.lanes, 1);
	b.memory = 2 << 20;
	assert_int_equal(terms_agree(&a, &b, &t), 0);
	assert_int_equal(t.lanes, 1);
	assert_true((uint64_t)t.depth * t.block_size <= 2 << 20);
	b.memory = 1 << 10;
	assert_int_equal(terms_agree(&a, &b, &t), -1);
	assert_int_equal(failed()->code, OUT_USAGE);
}

static void test_rdma_needs_both_ends(void **state)
{
	struct msg_hello a = hello_of(ROLE_SOURCE), b = hello_of(ROLE_SINK);
	struct terms t;

	(void)state;
	/* The usual 8 MiB hold two lanes of the usual size. */
	b.lockable = 8 << 20;
	assert_int_equal(terms_agree(&a, &b, &t), 0);
	assert_true(t.rdma);
	assert_int_equal(t.lanes, 2);
	assert_int_equal(t.depth, 12);
	assert_int_equal(t.block_size, 256 << 10);
	b.lockable = 64 << 10;
	assert_int_equal(terms_agree(&a, &b, &t), 0);
	assert_false(t.rdma);
	assert_non_null(strstr(t.no_rdma, "lock memory for RDMA on far: the limit is 64 KiB"));
	assert_int_equal(terms_agree(&b, &a, &t), 0);
	assert_non_null(strstr(t.no_rdma, "locked memory"));
	assert_non_null(strstr(t.no_rdma, "rdma.conf"));
	b.lockable = 0;
	snprintf(b.no_rdma, sizeof b.no_rdma, "no RDMA device");
	assert_int_equal(terms_agree(&a, &b, &t), 0);
	assert_false(t.rdma);
	assert_string_equal(t.no_rdma, "far: no RDMA device");
	b.lockable = UINT64_MAX;
	b.want = TRANSPORT_TCP;
	assert_int_equal(terms_agree(&a, &b, &t), 0);
	assert_false(t.rdma);
	assert_string_equal(t.no_rdma, "far uses --transport=tcp");
	/* With --transport=tcp no reason is given. */
	assert_int_equal(terms_agree(&b, &a, &t), 0);
	assert_string_equal(t.no_rdma, "");
}

static void test_required_rdma_fails_with_the_reason(void **state)
{
	struct msg_hello a = hello_of(ROLE_SOURCE), b = hello_of(ROLE_SINK);
	struct terms t;

	(void)state;
	a.want = TRANSPORT_RDMA;
	assert_int_equal(terms_agree(&b, &a, &t), 0);
	assert_int_equal(t.want, TRANSPORT_RDMA);
	assert_true(t.rdma);
	b.lockable = 64 << 10;
	assert_int_equal(terms_agree(&a, &b, &t), -1);
	assert_int_equal(failed()->code, OUT_MEMLOCK);
	assert_int_equal(terms_agree(&b, &a, &t), -1);
	assert_int_equal(failed()->code, OUT_MEMLOCK);
	b.lockable = 0;
	snprintf(b.no_rdma, sizeof b.no_rdma, "no RDMA device");
	assert_int_equal(terms_agree(&a, &b, &t), -1);
	assert_int_equal(failed()->code, OUT_TRANSPORT);
	assert_string_equal(failed()->text,
			    "--transport=rdma is not possible: far: no RDMA device");
	b.want = TRANSPORT_TCP;
	assert_int_equal(terms_agree(&a, &b, &t), -1);
	assert_int_equal(failed()->code, OUT_TRANSPORT);
}

/* ---- addresses --------------------------------------------------------------------------------
 */

static union address address(const char *text, int family)
{
	union address a = {.sa = {.sa_family = AF_UNSPEC}};
	struct offer_rules rules = {.only = text, .family = family};
	unsigned n;

	assert_int_equal(offer_place_find_own(&rules, &a, 1, &n), 0);
	return a;
}

static unsigned dialed_of(const struct msg_offer *o, const struct dial_rules *rules,
			  union address *to)
{
	return offer_place_find_dialable(o, TRANSPORT_TCP, rules, to, OFFER_MAX);
}

static void test_reachable_offers_are_dialed(void **state)
{
	union address a = address("192.0.2.77", 0), lo = address_loopback(AF_INET, 0),
		      to[OFFER_MAX];
	union address any = {.in4 = {.sin_family = AF_INET}};
	union address local = {
		.in6 = {.sin6_family = AF_INET6, .sin6_addr = {{{0xfe, 0x80, [15] = 1}}}}};
	union address zoned = local;
	struct msg_offer o = {.count = 5};
	struct dial_rules rules = {.same_host = false};

	(void)state;
	o.places[0] = offer_place_make(&lo, TRANSPORT_TCP, 7000);
	o.places[1] = offer_place_make(&any, TRANSPORT_TCP, 7000);
	o.places[2] = offer_place_make(&local, TRANSPORT_TCP, 7000);
	o.places[3] = offer_place_make(&a, TRANSPORT_TCP, 7000);
	o.places[4] = offer_place_make(&a, TRANSPORT_RDMA, 7001);
	assert_int_equal(dialed_of(&o, &rules, to), 1);
	assert_true(address_same(&to[0], &a));
	assert_int_equal(to[0].in4.sin_port, htons(7000));
	/*
	 * Loopback only between ends on one host; link-local only the dialed address, with its
	 * zone.
	 */
	rules.same_host = true;
	zoned.in6.sin6_scope_id = 3;
	rules.dialed = &zoned;
	assert_int_equal(dialed_of(&o, &rules, to), 3);
	for (unsigned i = 0; i < 3; i++)
		if (to[i].sa.sa_family == AF_INET6)
			assert_int_equal(to[i].in6.sin6_scope_id, 3);
	zoned.in6.sin6_addr.s6_addr[15] = 2;
	assert_int_equal(dialed_of(&o, &rules, to), 2);
	rules.family = AF_INET6;
	assert_int_equal(dialed_of(&o, &rules, to), 0);
}

/* This host has no such address, so no network that leads there. */
static void test_link_local_addresses_of_other_networks_are_not_dialed(void **state)
{
	union address a = address("169.254.7.7", 0), to[OFFER_MAX];
	struct dial_rules rules = {.same_host = false};
	struct msg_offer o = {.count = 1};

	(void)state;
	for (unsigned t = TRANSPORT_RDMA; t <= TRANSPORT_TCP; t++) {
		o.places[0] = offer_place_make(&a, (enum transport)t, 7000);
		assert_int_equal(
			offer_place_find_dialable(&o, (enum transport)t, &rules, to, OFFER_MAX), 0);
	}
}

static void test_usable_addresses_are_offered(void **state)
{
	struct offer_rules rules = {.only = "", .same_host = false};
	union address to[OFFER_MAX], control = address("192.0.2.200", 0);
	unsigned n;

	(void)state;
	rules.control = &control;
	assert_int_equal(offer_place_find_own(&rules, to, OFFER_MAX, &n), 0);
	assert_true(n >= 1);
	assert_true(address_same(&to[0], &control));
	for (unsigned i = 0; i < n; i++)
		assert_false(address_is_loopback(&to[i]) || address_is_link_local(&to[i]));
	rules.same_host = true;
	assert_int_equal(offer_place_find_own(&rules, to, OFFER_MAX, &n), 0);
	assert_true(address_is_loopback(&to[n - 1]));
	rules.only = "192.0.2.7";
	assert_int_equal(offer_place_find_own(&rules, to, OFFER_MAX, &n), 0);
	assert_int_equal(n, 1);
	rules.only = "no such address";
	assert_int_equal(offer_place_find_own(&rules, to, OFFER_MAX, &n), -1);
	assert_int_equal(failed()->code, OUT_START);
}

static void test_host_id_is_stable(void **state)
{
	(void)state;
	assert_true(host_id() == host_id());
	assert_true(host_id() != 0);
}

/* ---- opening --------------------------------------------------------------------------------- */

static void test_blocks_arrive_once_and_in_order(void **state)
{
	char why[TEXT_MAX];
	struct lane_stats st;

	(void)state;
	opened();
	assert_int_equal(session_lanes(p.ends[SOURCE].s), 2);
	assert_string_equal(session_peer(p.ends[SOURCE].s)->host, "far");
	carried(5000);
	assert_int_equal(transport_of(SOURCE, why), TRANSPORT_TCP);
	assert_int_equal(transport_of(SINK, why), TRANSPORT_TCP);
	assert_string_equal(why, "");
	session_stats(p.ends[SINK].s, &st);
	assert_int_equal(st.blocks, 10000);
	assert_int_equal(st.epochs, 2);
	assert_int_equal(pair_seen(&p, SOURCE, MSG_LANE_DOWN), 0);
	assert_int_equal(p.ends[SOURCE].fails, 0);
}

static void test_source_may_listen(void **state)
{
	(void)state;
	p.ends[SOURCE].o.listens = true;
	p.ends[SINK].o.listens = false;
	opened();
	carried(1000);
	assert_int_equal(pair_seen(&p, SOURCE, MSG_OFFER), 1);
	assert_int_equal(pair_seen(&p, SINK, MSG_CHOICE), 1);
}

static void test_auto_reports_why_rdma_is_not_used(void **state)
{
	char why[TEXT_MAX], reason[256];

	(void)state;
	if (verbs_present(reason, sizeof reason))
		skip();
	p.ends[SOURCE].o.want = p.ends[SINK].o.want = TRANSPORT_AUTO;
	opened();
	carried(10);
	for (unsigned i = 0; i < 2; i++) {
		uint64_t deadline = clock_ms() + 5000;

		/* Lane 0's blocks may arrive before the CHOICE that explains its transport. */
		do
			assert_int_equal(transport_of(i, why), TRANSPORT_TCP);
		while (!why[0] && clock_ms() < deadline && usleep(1000) == 0);
		assert_non_null(strstr(why, reason));
	}
}

static void test_given_address_is_the_only_one_used(void **state)
{
	(void)state;
	snprintf(p.ends[SINK].o.address, HOST_MAX, "127.0.0.9");
	opened();
	carried(10);
	{
		char how[256], why[TEXT_MAX];

		session_transport(p.ends[SOURCE].s, how, sizeof how, why, sizeof why);
		assert_non_null(strstr(how, "127.0.0.9:"));
	}
}

/*
 * ---- two hosts, as the ends see them
 * -------------------------------------------------------------
 */

static char lines[8][512];
static enum log_level levels[8];
static _Atomic unsigned line_count;
static _Atomic uint64_t lines_written;

static void gather_line(enum log_level level, const char *line)
{
	unsigned n = atomic_fetch_add(&line_count, 1);

	if (n < 8) {
		levels[n] = level;
		snprintf(lines[n], sizeof lines[n], "%s", line);
	}
	atomic_fetch_add(&lines_written, 1);
}

static unsigned lines_that_say(const char *text, enum log_level level)
{
	unsigned found = 0;

	for (unsigned i = 0; i < line_count && i < 8; i++)
		found += levels[i] == level && strstr(lines[i], text) != NULL;
	return found;
}

static enum verdict move_hosts_apart(struct pair *pair, unsigned from, uint8_t type, uint8_t *body,
				     uint32_t *len)
{
	struct frame f = {.type = type, .len = *len, .body = body};
	struct writer w = writer_of(body, FRAME_BODY_MAX);
	struct msg_offer offer;
	struct msg_hello hello;

	(void)from;
	if (type == MSG_HELLO && msg_hello_decode(&f, &hello) == 0) {
		hello.host_id ^= 1;
		msg_hello_encode(&w, &hello);
		*len = (uint32_t)w.used;
	}
	/* Of the offered addresses only the dialed one can be reached. */
	if (type == MSG_OFFER && msg_offer_decode(&f, &offer) == 0) {
		pair->proxy.target = offer.places[0].port;
		offer.count = 0;
		msg_offer_encode(&w, &offer);
		*len = (uint32_t)w.used;
	}
	return PASS;
}

/*
 * The control connection's address serves lanes too. Each end reports once that unencrypted data
 * goes to another host.
 */
static void test_dialed_address_serves_lanes_and_clear_text_is_reported(void **state)
{
	char why[TEXT_MAX];

	(void)state;
	p.filter = move_hosts_apart;
	assert_int_equal(pair_use_proxy(&p), 0);
	p.through_proxy = false;
	p.ends[SOURCE].o.dialed = address_loopback(AF_INET, p.proxy.port);
	snprintf(p.ends[SINK].o.address, HOST_MAX, "127.0.0.1");
	p.ends[SOURCE].o.encrypt = ENCRYPT_OFF;
	line_count = 0;
	lines_written = 0;
	log_to(gather_line);
	opened();
	carried(100);
	/* The choice at both ends, and its consequence. */
	assert_true(await_count(&lines_written, 2));
	pause_ms(50);
	log_to(NULL);
	assert_int_equal(transport_of(SOURCE, why), TRANSPORT_TCP);
	assert_true(p.proxy.came >= 2);
	assert_int_equal(lines_that_say("data is sent in the clear over TCP to far "
					"(--encrypt=off)",
					LOG_WARN),
			 1);
	assert_int_equal(lines_that_say("data is sent in the clear over TCP to near", LOG_WARN), 1);
}

/* Two hosts, of which the source can reach only the address that it dialed. */
static void begin_apart(void)
{
	p.filter = move_hosts_apart;
	assert_int_equal(pair_use_proxy(&p), 0);
	p.through_proxy = false;
	p.ends[SOURCE].o.dialed = address_loopback(AF_INET, p.proxy.port);
	snprintf(p.ends[SINK].o.address, HOST_MAX, "127.0.0.1");
}

/* Each lane, and each wire: blocks are encrypted where the terms say so. */
static void test_encryption_by_wish(void **state)
{
	static const struct {
		enum encrypt source, sink;
		bool apart;
		enum encrypted want;
	} cases[] = {
		{ENCRYPT_AUTO, ENCRYPT_AUTO, false, ENCRYPTED_NONE},
		{ENCRYPT_AUTO, ENCRYPT_AUTO, true, ENCRYPTED_ALL},
		{ENCRYPT_ON, ENCRYPT_AUTO, false, ENCRYPTED_ALL},
		{ENCRYPT_AUTO, ENCRYPT_OFF, true, ENCRYPTED_NONE},
	};
	uint8_t cipher;

	(void)state;
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		if (cases[i].apart)
			begin_apart();
		p.ends[SOURCE].o.encrypt = cases[i].source;
		p.ends[SINK].o.encrypt = cases[i].sink;
		opened();
		carried(100);
		for (unsigned e = 0; e < 2; e++) {
			assert_int_equal(session_encrypted(p.ends[e].s, &cipher), cases[i].want);
			assert_int_equal(cipher != CIPHER_NONE, cases[i].want != ENCRYPTED_NONE);
		}
		teardown(NULL);
		setup(NULL);
	}
}

static void test_no_clear_text_is_reported_on_one_host(void **state)
{
	(void)state;
	line_count = 0;
	lines_written = 0;
	log_to(gather_line);
	opened();
	carried(10);
	log_to(NULL);
	assert_int_equal(lines_that_say("in the clear", LOG_WARN), 0);
}

static void test_different_secrets_fail(void **state)
{
	struct failure f;
	char host[HOST_MAX];

	(void)state;
	p.ends[SINK].o.secret[0] ^= 1;
	p.ends[SOURCE].o.connect_timeout_ms = 1000;
	opened();
	pair_start(&p, 10);
	assert_int_equal(pair_finish(&p), -1);
	assert_true(session_failed(p.ends[SOURCE].s, &f, host));
	assert_int_equal(f.code, OUT_CONNECT);
	assert_int_equal(p.ends[SINK].jobs[0].done, 0);
}

static void test_bandwidth_limit_is_kept(void **state)
{
	uint64_t from;

	(void)state;
	p.ends[SOURCE].o.bwlimit = 1000000;
	opened();
	from = clock_ms();
	/* 2 lanes of 300 blocks of 2 KiB on average; the first tenth of a second is not limited. */
	carried(300);
	assert_true(clock_ms() - from > 800);
}

/*
 * ---- failures to open
 * ----------------------------------------------------------------------------
 */

static void test_conflicting_transports_fail(void **state)
{
	(void)state;
	p.ends[SINK].o.want = TRANSPORT_SSH;
	not_opened(OUT_TRANSPORT, "--transport=tcp");
}

static void test_required_rdma_without_adapter_fails(void **state)
{
	char reason[256];

	(void)state;
	if (verbs_present(reason, sizeof reason))
		skip();
	p.ends[SOURCE].o.want = TRANSPORT_RDMA;
	p.ends[SINK].o.want = TRANSPORT_AUTO;
	not_opened(OUT_TRANSPORT, reason);
}

static void test_two_sources_are_refused(void **state)
{
	(void)state;
	p.ends[SINK].o.role = ROLE_SOURCE;
	not_opened(OUT_PROTOCOL, "both ends are sources");
}

static void test_invalid_block_size_is_refused(void **state)
{
	(void)state;
	p.ends[SOURCE].o.block_size = 5000;
	p.ends[SINK].o.connect_timeout_ms = 1000;
	assert_int_equal(session_pair_open(&p), -1);
	assert_int_equal(p.ends[SOURCE].why.code, OUT_USAGE);
	assert_int_equal(p.ends[SINK].why.code, OUT_USAGE);
	assert_string_equal(p.ends[SINK].why.text, p.ends[SOURCE].why.text);
	assert_string_equal(p.ends[SOURCE].why_host, "");
	assert_string_equal(p.ends[SINK].why_host, "near");
}

static enum verdict drop_hello(struct pair *pair, unsigned from, uint8_t type, uint8_t *body,
			       uint32_t *len)
{
	(void)pair;
	(void)from;
	(void)body;
	(void)len;
	return type == MSG_HELLO ? DROP : PASS;
}

static void test_missing_hello_times_out(void **state)
{
	uint64_t from = clock_ms();

	(void)state;
	p.filter = drop_hello;
	p.ends[SOURCE].o.connect_timeout_ms = p.ends[SINK].o.connect_timeout_ms = 500;
	not_opened(OUT_CONNECT, "HELLO");
	assert_true(clock_ms() - from < 5000);
}

/*
 * ---- a peer whose every frame the test chooses
 * -------------------------------------------------------
 */

struct puppet {
	struct session_opts *o;
	int fds[2];
	struct channel *ch;
	struct framer fr;
	struct pair_end end;
	struct msg_error error; /* the ERROR that it got */
};
static struct puppet puppet;

static void *puppet_open(void *arg)
{
	struct pair_end *e = arg;
	struct channel *ch;

	if (channel_over_fds(e->fd, e->fd, &ch) < 0 ||
	    session_open(ch, NULL, 0, &e->o, e->why_host, &e->s) < 0) {
		e->why = *failed();
		e->s = NULL;
	}
	return NULL;
}

/* A session with this role begins to open, and its HELLO has arrived. */
static struct msg_hello puppet_start(enum role role, bool listens, bool has_conductor)
{
	struct msg_hello m;
	struct frame f;

	memset(&puppet, 0, sizeof puppet);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, puppet.fds), 0);
	puppet.end.o = p.ends[SOURCE].o;
	puppet.end.o.ctx = &puppet.end;
	puppet.end.o.role = role;
	puppet.end.o.listens = listens;
	puppet.end.o.has_conductor = has_conductor;
	puppet.end.fd = puppet.fds[0];
	framer_init(&puppet.fr);
	assert_int_equal(channel_over_fds(puppet.fds[1], puppet.fds[1], &puppet.ch), 0);
	assert_int_equal(worker_start(&puppet.end.worker, "open", puppet_open, &puppet.end), 0);
	assert_int_equal(frame_read(puppet.ch, &puppet.fr, clock_ms() + 10000, &f), 1);
	assert_int_equal(f.type, MSG_HELLO);
	assert_int_equal(msg_hello_decode(&f, &m), 0);
	return m;
}

static void puppet_says(uint8_t type, const void *body, size_t len)
{
	assert_int_equal(frame_write(puppet.ch, type, body, len, clock_ms() + 10000), 0);
}

static void puppet_hello(const struct msg_hello *m)
{
	uint8_t body[4096];
	struct writer w = writer_of(body, sizeof body);

	msg_hello_encode(&w, m);
	puppet_says(MSG_HELLO, body, w.used);
}

/* Read until the session sends ERROR or leaves. */
static bool puppet_is_told(void)
{
	struct frame f;

	while (frame_read(puppet.ch, &puppet.fr, clock_ms() + 10000, &f) == 1)
		if (f.type == MSG_ERROR)
			return msg_error_decode(&f, &puppet.error) == 0;
	return false;
}

static void puppet_end(void)
{
	worker_join(&puppet.end.worker);
	channel_free(puppet.ch);
	session_close(puppet.end.s);
}

static void test_other_protocol_version_is_refused(void **state)
{
	struct msg_hello m;

	(void)state;
	m = puppet_start(ROLE_SOURCE, false, false);
	m.version = PROTOCOL_VERSION + 1;
	m.role = ROLE_SINK;
	puppet_hello(&m);
	assert_true(puppet_is_told());
	assert_int_equal(puppet.error.code, OUT_VERSION);
	assert_string_equal(puppet.error.host, "near");
	puppet_end();
	assert_int_equal(puppet.end.why.code, OUT_VERSION);
	assert_string_equal(puppet.end.why.text,
			    "far speaks protocol version 3, near version 2: install the same "
			    "release at both ends");
	assert_string_equal(puppet.error.text, puppet.end.why.text);
}

/* The converse: the peer detected the mismatch first. */
static void test_peer_that_refuses_our_version_is_reported(void **state)
{
	struct msg_error e = {.code = OUT_VERSION, .host = "far", .text = "near is too old"};
	uint8_t body[2048];
	struct writer w = writer_of(body, sizeof body);

	(void)state;
	puppet_start(ROLE_SOURCE, false, false);
	msg_error_encode(&w, &e);
	puppet_says(MSG_ERROR, body, w.used);
	worker_join(&puppet.end.worker);
	assert_null(puppet.end.s);
	assert_int_equal(puppet.end.why.code, OUT_VERSION);
	assert_string_equal(puppet.end.why.text, "near is too old");
	puppet_end();
}

/* A peer on another host is not offered loopback. */
static void test_loopback_is_not_offered_to_other_hosts(void **state)
{
	struct msg_hello m = puppet_start(ROLE_SOURCE, true, false);
	struct msg_offer o = {.count = 0};
	struct frame f;

	(void)state;
	m.role = ROLE_SINK;
	m.host_id ^= 1;
	puppet_hello(&m);
	do {
		assert_int_equal(frame_read(puppet.ch, &puppet.fr, clock_ms() + 10000, &f), 1);
	} while (f.type != MSG_OFFER);
	assert_int_equal(msg_offer_decode(&f, &o), 0);
	for (unsigned i = 0; i < o.count; i++)
		assert_false(o.places[i].family == 4 && o.places[i].addr[0] == 127);
	puppet_end();
}

/*
 * ---- frames out of order
 * ----------------------------------------------------------------------------------
 */

static size_t offer_body(uint8_t *to, unsigned round)
{
	union address lo = address_loopback(AF_INET, 0);
	struct msg_offer m = {.round = (uint8_t)round, .session = 1, .count = 1};
	struct writer w = writer_of(to, 4096);

	m.places[0] = offer_place_make(&lo, TRANSPORT_TCP, 9);
	msg_offer_encode(&w, &m);
	return w.used;
}

static size_t choice_body(uint8_t *to, enum transport t)
{
	struct msg_choice m = {.transport = (uint8_t)t};
	struct writer w = writer_of(to, 4096);

	msg_choice_encode(&w, &m);
	return w.used;
}

static size_t noroute_body(uint8_t *to, unsigned round)
{
	struct msg_noroute m = {.round = (uint8_t)round};
	struct writer w = writer_of(to, 4096);

	msg_noroute_encode(&w, &m);
	return w.used;
}

static size_t down_body(uint8_t *to, uint16_t lane, uint32_t epoch)
{
	struct msg_lane_down m = {.lane = lane, .epoch = epoch};
	struct writer w = writer_of(to, 4096);

	msg_lane_down_encode(&w, &m);
	return w.used;
}

static size_t stored_body(uint8_t *to, uint16_t lane)
{
	struct msg_lane_stored m = {.lane = lane};
	struct writer w = writer_of(to, 4096);

	msg_lane_stored_encode(&w, &m);
	return w.used;
}

static size_t detour_body(uint8_t *to, unsigned port)
{
	struct msg_detour m = {.port = (uint16_t)port};
	struct writer w = writer_of(to, 4096);

	msg_detour_encode(&w, &m);
	return w.used;
}

/* A session of this kind gets these frames after HELLO: the last of them is invalid there. */
struct turn {
	const char *name;
	enum role role;
	bool listens, conducted;
	unsigned count;
	struct {
		uint8_t type;
		size_t (*body)(uint8_t *to);
	} say[2];
};

static size_t offer0(uint8_t *to)
{
	return offer_body(to, 0);
}
static size_t offer1(uint8_t *to)
{
	return offer_body(to, 1);
}
static size_t choose_tcp(uint8_t *to)
{
	return choice_body(to, TRANSPORT_TCP);
}
static size_t choose_rdma(uint8_t *to)
{
	return choice_body(to, TRANSPORT_RDMA);
}
static size_t choose_ssh(uint8_t *to)
{
	return choice_body(to, TRANSPORT_SSH);
}
static size_t noroute0(uint8_t *to)
{
	return noroute_body(to, 0);
}
static size_t noroute1(uint8_t *to)
{
	return noroute_body(to, 1);
}
static size_t down99(uint8_t *to)
{
	return down_body(to, 99, 0);
}
static size_t down2(uint8_t *to)
{
	return down_body(to, 2, 0);
}
static size_t down_last(uint8_t *to)
{
	return down_body(to, 0, UINT32_MAX);
}
static size_t stored0(uint8_t *to)
{
	return stored_body(to, 0);
}
static size_t stored2(uint8_t *to)
{
	return stored_body(to, 2);
}
static size_t detour(uint8_t *to)
{
	return detour_body(to, 7000);
}
static size_t nothing(uint8_t *to)
{
	(void)to;
	return 0;
}
static size_t rubbish(uint8_t *to)
{
	memset(to, 0xa5, 100);
	return 100;
}

static const struct turn turns[] = {
	{"an offer twice", ROLE_SOURCE, false, true, 2, {{MSG_OFFER, offer0}, {MSG_OFFER, offer0}}},
	{"an offer of the other round", ROLE_SOURCE, false, true, 1, {{MSG_OFFER, offer1}}},
	{"an offer to who listens", ROLE_SOURCE, true, true, 1, {{MSG_OFFER, offer0}}},
	{"a second offer to who listens", ROLE_SOURCE, true, true, 1, {{MSG_OFFER, offer1}}},
	{"a choice of who listens", ROLE_SOURCE, false, true, 1, {{MSG_CHOICE, choose_tcp}}},
	{"a choice twice",
	 ROLE_SOURCE,
	 true,
	 true,
	 2,
	 {{MSG_CHOICE, choose_tcp}, {MSG_CHOICE, choose_tcp}}},
	{"RDMA that is not possible", ROLE_SOURCE, true, true, 1, {{MSG_CHOICE, choose_rdma}}},
	{"ssh without a detour", ROLE_SOURCE, true, true, 1, {{MSG_CHOICE, choose_ssh}}},
	{"no way, without a conductor", ROLE_SOURCE, true, false, 1, {{MSG_NOROUTE, noroute0}}},
	{"no way of the other round", ROLE_SOURCE, true, true, 1, {{MSG_NOROUTE, noroute1}}},
	{"no way to who connects", ROLE_SOURCE, false, true, 1, {{MSG_NOROUTE, noroute0}}},
	{"no way after a choice",
	 ROLE_SOURCE,
	 true,
	 true,
	 2,
	 {{MSG_CHOICE, choose_tcp}, {MSG_NOROUTE, noroute0}}},
	{"a lane far out", ROLE_SOURCE, true, false, 1, {{MSG_LANE_DOWN, down99}}},
	{"the lane after the last", ROLE_SOURCE, true, false, 1, {{MSG_LANE_DOWN, down2}}},
	{"the last epoch of all", ROLE_SOURCE, true, false, 1, {{MSG_LANE_DOWN, down_last}}},
	{"stored, of a lane far out", ROLE_SOURCE, true, false, 1, {{MSG_LANE_STORED, stored2}}},
	{"stored, to a sink", ROLE_SINK, true, false, 1, {{MSG_LANE_STORED, stored0}}},
	{"a detour without a conductor", ROLE_SOURCE, false, false, 1, {{MSG_DETOUR, detour}}},
	{"a detour to who listens", ROLE_SOURCE, true, true, 1, {{MSG_DETOUR, detour}}},
	{"a cancel without a conductor", ROLE_SOURCE, true, false, 1, {{MSG_CANCEL, nothing}}},
	{"a greeting", ROLE_SOURCE, true, true, 1, {{MSG_GREETING, nothing}}},
	{"a note", ROLE_SOURCE, true, true, 1, {{MSG_NOTE, nothing}}},
	{"stuck, from a conductor", ROLE_SOURCE, true, true, 1, {{MSG_STUCK, noroute0}}},
	{"an offer of rubbish", ROLE_SOURCE, false, true, 1, {{MSG_OFFER, rubbish}}},
	{"an error of rubbish", ROLE_SOURCE, true, true, 1, {{MSG_ERROR, rubbish}}},
	{"a hello of rubbish", ROLE_SOURCE, true, true, 1, {{MSG_HELLO, rubbish}}},
	{"a choice of nothing", ROLE_SOURCE, true, true, 1, {{MSG_CHOICE, nothing}}},
};

static void test_frames_out_of_order_are_refused(void **state)
{
	(void)state;
	for (unsigned i = 0; i < sizeof turns / sizeof *turns; i++) {
		const struct turn *t = &turns[i];
		struct failure f;
		char host[HOST_MAX];
		struct msg_hello m = puppet_start(t->role, t->listens, t->conducted);

		m.role = t->role == ROLE_SOURCE ? ROLE_SINK : ROLE_SOURCE;
		puppet_hello(&m);
		for (unsigned k = 0; k < t->count; k++) {
			uint8_t body[4096];
			size_t len = t->say[k].body(body);

			puppet_says(t->say[k].type, body, len);
		}
		if (!puppet_is_told())
			fail_msg("%s: not told", t->name);
		if (puppet.error.code != OUT_PROTOCOL)
			fail_msg("%s: told %u, %s", t->name, puppet.error.code, puppet.error.text);
		worker_join(&puppet.end.worker);
		if (puppet.end.s) {
			assert_true(session_failed(puppet.end.s, &f, host));
			assert_int_equal(f.code, OUT_PROTOCOL);
			assert_string_equal(host, "");
		} else {
			assert_int_equal(puppet.end.why.code, OUT_PROTOCOL);
		}
		puppet_end();
	}
}

static void test_hello_must_come_first_and_once(void **state)
{
	struct msg_hello m;
	uint8_t body[64];

	(void)state;
	puppet_start(ROLE_SOURCE, true, false);
	puppet_says(MSG_LANE_DOWN, body, down_body(body, 0, 0));
	assert_true(puppet_is_told());
	assert_int_equal(puppet.error.code, OUT_PROTOCOL);
	puppet_end();
	m = puppet_start(ROLE_SOURCE, true, false);
	m.role = ROLE_SINK;
	puppet_hello(&m);
	puppet_hello(&m);
	assert_true(puppet_is_told());
	assert_int_equal(puppet.error.code, OUT_PROTOCOL);
	puppet_end();
}

/* ---- failing
 * ------------------------------------------------------------------------------------------------
 */

static void fail_at_block(struct lane_job *j, struct block *b, uint64_t number)
{
	(void)b;
	if (j->end == SINK && j->index == 0 && number == 20) {
		fail_as(OUT_FILE, "write out: No space left on device");
		session_fail(p.ends[SINK].s);
	}
}

static void test_failure_reaches_the_peer_with_its_cause(void **state)
{
	struct failure f;
	char host[HOST_MAX];

	(void)state;
	p.work = fail_at_block;
	opened();
	pair_start(&p, 1u << 30);
	assert_int_equal(pair_finish(&p), -1);
	for (unsigned i = 0; i < 2; i++) {
		assert_true(session_failed(p.ends[i].s, &f, host));
		assert_int_equal(f.code, OUT_FILE);
		assert_string_equal(f.text, "write out: No space left on device");
		assert_string_equal(host, i == SOURCE ? "far" : "");
		assert_int_equal(pair_fails(&p, i), 1);
	}
	/* It is reported once, and not sent back. */
	assert_int_equal(pair_seen(&p, SINK, MSG_ERROR), 1);
	assert_int_equal(pair_seen(&p, SOURCE, MSG_ERROR), 0);
	/* A later failure does not replace it. */
	fail_as(OUT_SOCKET, "something else");
	assert_int_equal(session_fail(p.ends[SINK].s), -1);
	assert_int_equal(failed()->code, OUT_FILE);
}

static void stop_at_block(struct lane_job *j, struct block *b, uint64_t number)
{
	struct msg_cancel m = {.signo = SIGTERM};
	uint8_t body[8];
	struct writer w = writer_of(body, sizeof body);

	(void)b;
	if (j->end != SINK || j->index != 0 || number != 20)
		return;
	msg_cancel_encode(&w, &m);
	pair_forge(&p, SOURCE, MSG_CANCEL, body, w.used);
}

static void test_conductor_can_cancel_the_session(void **state)
{
	struct failure f;
	char host[HOST_MAX];

	(void)state;
	p.ends[0].o.has_conductor = p.ends[1].o.has_conductor = true;
	p.work = stop_at_block;
	opened();
	pair_start(&p, 1u << 30);
	assert_int_equal(pair_finish(&p), -1);
	for (unsigned i = 0; i < 2; i++) {
		assert_true(session_failed(p.ends[i].s, &f, host));
		assert_int_equal(f.code, OUT_SIGNAL);
		assert_string_equal(f.text, "interrupted by SIGTERM");
	}
}

/* After the verdict, neither a lost connection nor a leaving peer is a failure. */
static void test_loss_after_the_verdict_is_not_a_failure(void **state)
{
	struct msg_error e = {.code = OUT_FILE, .text = "too late"};
	uint8_t body[2048];
	struct writer w = writer_of(body, sizeof body);
	struct failure f;
	char host[HOST_MAX];

	(void)state;
	opened();
	carried(10);
	session_ended(p.ends[SOURCE].s);
	session_ended(p.ends[SINK].s);
	msg_error_encode(&w, &e);
	pair_forge(&p, SINK, MSG_ERROR, body, w.used);
	pair_cut(&p);
	/* A waiting thread is woken nevertheless. */
	assert_int_equal(pair_fails(&p, SINK), 1);
	assert_int_equal(pair_fails(&p, SOURCE), 1);
	assert_false(session_failed(p.ends[SOURCE].s, &f, host));
	assert_false(session_failed(p.ends[SINK].s, &f, host));
}

/* ---- ways between the ends
 * ------------------------------------------------------------------------------ */

/* A loopback port on which nothing listens: the test binds it, so that nothing can. */
static int nobody_fd = -1;
static unsigned nobody_port(void)
{
	union address a = address_loopback(AF_INET, 0);
	socklen_t len = sizeof a.in4;

	if (nobody_fd < 0) {
		nobody_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (bind(nobody_fd, &a.sa, sizeof a.in4) < 0)
			abort();
	}
	getsockname(nobody_fd, &a.sa, &len);
	return ntohs(a.in4.sin_port);
}

static enum verdict hide_sink(struct pair *pair, unsigned from, uint8_t type, uint8_t *body,
			      uint32_t *len)
{
	(void)pair;
	if (type == MSG_OFFER && from == SINK)
		offer_redirect(body, len, nobody_port());
	return PASS;
}

/* Unreachable addresses are reported with their ports. */
static void test_unreachable_places_are_named(void **state)
{
	char place[64];
	struct failure f;
	char host[HOST_MAX];

	(void)state;
	snprintf(place, sizeof place, "127.0.0.1:%u: Connection refused", nobody_port());
	p.filter = hide_sink;
	opened();
	pair_start(&p, 10);
	assert_int_equal(pair_finish(&p), -1);
	for (unsigned i = 0; i < 2; i++) {
		assert_true(session_failed(p.ends[i].s, &f, host));
		assert_int_equal(f.code, OUT_CONNECT);
		assert_non_null(strstr(f.text, "no connection to far: "));
		assert_non_null(strstr(f.text, place));
	}
	assert_int_equal(pair_seen(&p, SOURCE, MSG_NOROUTE), 0);
}

static void test_listening_role_swaps_once(void **state)
{
	char place[64], why[TEXT_MAX];

	(void)state;
	snprintf(place, sizeof place, "127.0.0.1:%u: Connection refused", nobody_port());
	p.ends[0].o.has_conductor = p.ends[1].o.has_conductor = true;
	p.filter = hide_sink;
	opened();
	carried(500);
	assert_int_equal(pair_seen(&p, SOURCE, MSG_NOROUTE), 1);
	assert_non_null(strstr(pair_nth(&p, SOURCE, MSG_NOROUTE, 0).text, place));
	assert_int_equal(pair_seen(&p, SOURCE, MSG_OFFER), 1);
	assert_int_equal(pair_seen(&p, SINK, MSG_CHOICE), 1);
	assert_int_equal(transport_of(SOURCE, why), TRANSPORT_TCP);
}

static unsigned listening_port;

/* Both ends are unreachable; the conductor's detour leads to the sink's listening port. */
static enum verdict hide_both(struct pair *pair, unsigned from, uint8_t type, uint8_t *body,
			      uint32_t *len)
{
	(void)pair;
	(void)from;
	if (type == MSG_OFFER)
		offer_redirect(body, len, nobody_port());
	if (type == MSG_LISTENING) {
		struct frame f = {.type = type, .len = *len, .body = body};
		struct msg_detour m;

		listening_port = msg_detour_decode(&f, &m) == 0 ? m.port : 0;
	}
	return PASS;
}

static void send_detour(unsigned port)
{
	uint8_t body[64];

	pair_forge(&p, SOURCE, MSG_DETOUR, body, detour_body(body, port));
}

static void test_stuck_session_uses_the_detour(void **state)
{
	char why[TEXT_MAX];

	(void)state;
	p.ends[0].o.has_conductor = p.ends[1].o.has_conductor = true;
	p.filter = hide_both;
	opened();
	pair_start(&p, 500);
	assert_true(pair_await(&p, SOURCE, MSG_STUCK, 1));
	assert_int_equal(pair_seen(&p, SINK, MSG_NOROUTE), 1);
	assert_int_equal(pair_seen(&p, SOURCE, MSG_NOROUTE), 1);
	assert_non_null(strstr(pair_nth(&p, SOURCE, MSG_STUCK, 0).text, "; from far: "));
	/* The first port leads nowhere: the newer one counts. */
	send_detour(nobody_port());
	pause_ms(300);
	send_detour(listening_port);
	assert_int_equal(pair_finish(&p), 0);
	assert_int_equal(transport_of(SOURCE, why), TRANSPORT_SSH);
	assert_non_null(strstr(why, "Connection refused"));
	assert_int_equal(transport_of(SINK, why), TRANSPORT_SSH);
}

static void test_transport_ssh_uses_the_detour_at_once(void **state)
{
	char why[TEXT_MAX];

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		p.ends[i].o.has_conductor = true;
		p.ends[i].o.want = TRANSPORT_SSH;
	}
	p.filter = hide_both;
	opened();
	pair_start(&p, 100);
	assert_true(pair_await(&p, SINK, MSG_LISTENING, 1));
	assert_int_equal(pair_seen(&p, SINK, MSG_OFFER), 0);
	send_detour(listening_port);
	assert_int_equal(pair_finish(&p), 0);
	assert_int_equal(pair_seen(&p, SOURCE, MSG_STUCK), 0);
	assert_int_equal(transport_of(SINK, why), TRANSPORT_SSH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		T(test_smaller_values_are_agreed_on),
		T(test_wishes_for_encryption),
		T(test_peer_timeout_is_bounded_below),
		T(test_either_memory_limit_bounds_the_lanes),
		T(test_rdma_needs_both_ends),
		T(test_required_rdma_fails_with_the_reason),
		T(test_reachable_offers_are_dialed),
		T(test_link_local_addresses_of_other_networks_are_not_dialed),
		T(test_usable_addresses_are_offered),
		T(test_host_id_is_stable),
		T(test_blocks_arrive_once_and_in_order),
		T(test_source_may_listen),
		T(test_auto_reports_why_rdma_is_not_used),
		T(test_given_address_is_the_only_one_used),
		T(test_dialed_address_serves_lanes_and_clear_text_is_reported),
		T(test_encryption_by_wish),
		T(test_no_clear_text_is_reported_on_one_host),
		T(test_different_secrets_fail),
		T(test_bandwidth_limit_is_kept),
		T(test_conflicting_transports_fail),
		T(test_required_rdma_without_adapter_fails),
		T(test_two_sources_are_refused),
		T(test_invalid_block_size_is_refused),
		T(test_missing_hello_times_out),
		T(test_other_protocol_version_is_refused),
		T(test_peer_that_refuses_our_version_is_reported),
		T(test_loopback_is_not_offered_to_other_hosts),
		T(test_frames_out_of_order_are_refused),
		T(test_hello_must_come_first_and_once),
		T(test_failure_reaches_the_peer_with_its_cause),
		T(test_conductor_can_cancel_the_session),
		T(test_loss_after_the_verdict_is_not_a_failure),
		T(test_unreachable_places_are_named),
		T(test_listening_role_swaps_once),
		T(test_stuck_session_uses_the_detour),
		T(test_transport_ssh_uses_the_detour_at_once),
#undef T
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests_name("session", tests, NULL, NULL);
}
