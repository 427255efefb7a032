/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Callers that have not authenticated: strangers at the listener of a session, and callers for a
 * lane. An input: a byte that selects the listener, then callers: a byte with their kind, u16
 * length, and what they send. A fuzzer does not find signatures, so the target can sign hellos.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/cursor.h"
#include "base/io.h"
#include "expect.h"
#include "lane/hello.h"
#include "session/connect/porter_impl.h"

enum { LANES, PEER, HEARD, WHAT };
enum {
	SIGNED = 1 << 0,
	STAYS = 1 << 1,
	BY_RDMA = 1 << 2,
	LISTENER_BREAKS = 1 << 3,
	NO_DESCRIPTOR = 1 << 4,
	RESETS = 1 << 5,
	DEVICE_IS_LOST = 1 << 6 /* of a listener that breaks */
};
enum {
	CALLERS_MAX = 12,
	SIZE = 4096,
	DEPTH = 4,
	INPUT_MAX = 16 << 10,
	PEER_MS = 2,
	LANE_MS = 1,
	TURNS = 3
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct lane_key key = {.secret = {1}};
static int waiting[CALLERS_MAX], mine[CALLERS_MAX], knock;
static atomic_int waiting_count; /* the porter's thread accepts callers, too */
static atomic_uint turns; /* of that thread: how often it has found no more callers */
static bool no_descriptor; /* for the next caller */
static rlim_t descriptors;

/* Replaces the C library's function: accepts the callers of the input. */
int accept4(int fd, struct sockaddr *from, socklen_t *len, int flags)
{
	struct sockaddr_in is = {.sin_family = AF_INET};
	uint64_t told;

	(void)flags;
	expect(fd == knock);
	if (waiting_count == 0) {
		(void)!read(knock, &told, sizeof told);
		turns++;
		errno = EAGAIN;
		return -1;
	}
	if (no_descriptor) {
		no_descriptor = false;
		errno = EMFILE;
		return -1;
	}
	is.sin_addr.s_addr = htonl(0x0a000000 | (unsigned)waiting_count % 3);
	memcpy(from, &is, sizeof is);
	*len = sizeof is;
	return waiting[--waiting_count];
}

/* These replace functions of lane/verbs (-Wl,--wrap), which have decoded the caller's request. */
struct verbs_caller {
	struct lane_private says;
	bool breaks, lost; /* no caller: the listener breaks */
};
static struct verbs_caller knocking[CALLERS_MAX];
static unsigned knocking_count;
static atomic_uint knocked;

int __wrap_getrlimit64(__rlimit_resource_t what, struct rlimit *to);
int __wrap_verbs_listener_fd(const struct verbs_listener *v);
int __wrap_verbs_next_caller(struct verbs_listener *v, struct verbs_caller **out);
const struct lane_private *__wrap_verbs_caller_request(const struct verbs_caller *c);
void __wrap_verbs_refuse(struct verbs_caller *c);
void __wrap_verbs_unlisten(struct verbs_listener *v);
bool __wrap_verbs_listener_is_lost(const struct verbs_listener *v);
bool __wrap_verbs_relisten(struct verbs_listener *v);

int __wrap_getrlimit64(__rlimit_resource_t what, struct rlimit *to);
/* Sets how many descriptors there are; strangers may use half of them. */
int __wrap_getrlimit64(__rlimit_resource_t what, struct rlimit *to)
{
	(void)what;
	*to = (struct rlimit){.rlim_cur = descriptors, .rlim_max = descriptors};
	return 0;
}

int __wrap_verbs_listener_fd(const struct verbs_listener *v)
{
	(void)v;
	return knocked < knocking_count ? knock : -1;
}

int __wrap_verbs_next_caller(struct verbs_listener *v, struct verbs_caller **out)
{
	(void)v;
	*out = NULL;
	if (knocked == knocking_count)
		return 0;
	if (knocking[knocked++].breaks)
		return fail_as(OUT_SOCKET, "broken");
	*out = &knocking[knocked - 1];
	return 0;
}

const struct lane_private *__wrap_verbs_caller_request(const struct verbs_caller *c)
{
	return &c->says;
}

void __wrap_verbs_refuse(struct verbs_caller *c)
{
	expect(c >= knocking && c < knocking + knocked);
}

/* Nobody else comes. */
void __wrap_verbs_unlisten(struct verbs_listener *v)
{
	(void)v;
	knocked = knocking_count;
}

bool __wrap_verbs_listener_is_lost(const struct verbs_listener *v)
{
	(void)v;
	return knocked > 0 && knocking[knocked - 1].lost;
}

bool __wrap_verbs_relisten(struct verbs_listener *v)
{
	(void)v;
	return true;
}

/* Composes what a caller sends. A signed hello has the bytes of the input and a valid signature. */
static size_t compose(struct reader *in, uint8_t what, uint8_t *to, size_t room)
{
	size_t len = take_u16(in);
	struct lane_hello h;

	len = len < in->left ? len : in->left;
	len = len < room ? len : room;
	if (in->bad)
		return 0;
	take_bytes(in, to, len);
	if (what & SIGNED && len >= LANE_HELLO_SIZE && lane_hello_decode(to, &h) == 0) {
		lane_hello_sign(&h, &key);
		lane_hello_encode(&h, to);
	}
	return len;
}

static void call_by_rdma(uint8_t what, const uint8_t *bytes, size_t len)
{
	struct verbs_caller *c = &knocking[knocking_count];

	if (lane_private_decode(bytes, len, &c->says))
		return;
	c->breaks = what & LISTENER_BREAKS;
	c->lost = what & DEVICE_IS_LOST;
	if (what & SIGNED)
		lane_token(&key, c->says.lane, c->says.epoch, c->says.token);
	knocking_count++;
}

/* What rdcpd's parent makes of the first bytes: it looks at them, and takes none. */
static void look_at(int fd)
{
	static struct strangers all;
	union address from = {.in4 = {.sin_family = AF_INET}};
	uint8_t hello[LANE_HELLO_SIZE], said[CLIENT_HELLO_MAX];
	int first, before = 0, after = 0;

	expect(ioctl(fd, FIONREAD, &before) == 0);
	strangers_init(&all, STRANGERS_OF_ONE);
	strangers_add(&all, dup(fd), &from);
	first = stranger_first_byte(&all, 0);
	expect(first >= -1 && first <= UINT8_MAX);
	if (first == TLS_HANDSHAKE)
		expect(stranger_peek_hello(&all, 0, said) <= (size_t)before);
	if (first != TLS_HANDSHAKE && stranger_lane_hello(&all, 0, hello) == 1)
		expect(before >= LANE_HELLO_SIZE && hello[0] == (uint8_t)(first < 0 ? 0 : first));
	strangers_close(&all);
	expect(ioctl(fd, FIONREAD, &after) == 0 && after == before);
}

/* Closes the caller's end with bytes unread, which resets the connection. */
static int reset_caller(int theirs, int ours)
{
	expect(send(ours, "x", 1, 0) == 1);
	close(theirs);
	return -1;
}

/* Makes a caller, and returns its end of the connection; -1 if it has none. */
static int call(struct reader *in)
{
	uint8_t what = take_u8(in), bytes[SIZE];
	size_t len = compose(in, what, bytes, sizeof bytes);
	int fds[2];

	if (what & BY_RDMA) {
		call_by_rdma(what, bytes, len);
		return -1;
	}
	expect(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
	expect(len == 0 || send(fds[1], bytes, len, 0) == (ssize_t)len);
	if (!(what & STAYS))
		shutdown(fds[1], SHUT_WR);
	look_at(fds[0]);
	waiting[waiting_count++] = fds[0];
	no_descriptor = what & NO_DESCRIPTOR;
	return what & RESETS ? reset_caller(fds[1], fds[0]) : fds[1];
}

/* A porter whose listener is a mere event; accept4() above provides the callers. */
static struct porter *porter_at(int listener)
{
	struct porter *p;

	expect(porter_new(0, &p) == 0);
	p->tcp[p->tcp_count++] = listener;
	p->tcp_port = 1;
	p->rdma[0] = (struct verbs_listener *)(uintptr_t)p;
	p->rdma_count = 1;
	return p;
}

/* Ends the porter's thread when it has read all that came: it accepts a caller in the first of
 * these turns, reads its bytes in the next one, and its end in the last. */
static void hear_all(struct porter *p)
{
	const struct timespec pause = {.tv_nsec = 100 * 1000};

	for (unsigned i = 0; i < TURNS; i++) {
		unsigned before = turns;

		raise_event(knock);
		while (turns == before)
			nanosleep(&pause, NULL);
	}
	raise_event(p->stop);
	worker_join(&p->worker);
}

static void let_lanes_in(struct porter *p)
{
	const struct porter_terms terms = {
		.key = key, .peer = LANE_SOURCE, .lanes = 2, .depth = DEPTH, .block_size = SIZE};
	struct caller c;
	sigset_t timer, before;

	/* libFuzzer's timer would end a poll(2) of the porter now and then. */
	sigemptyset(&timer);
	sigaddset(&timer, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &timer, &before);
	expect(porter_open_lanes(p, &terms) == 0);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	hear_all(p);
	for (unsigned lane = 0; lane < 2; lane++) {
		uint64_t until = clock_ms() + LANE_MS;

		if (porter_wait(p, lane, 3 * lane, -1, until, &c) == 0) {
			expect((c.fd >= 0 || c.verbs) && c.epoch < UINT32_MAX);
			expect(c.verbs || (c.terms.depth >= 1 && c.terms.depth <= DEPTH));
			caller_drop(&c);
		}
	}
}

static void let_peer_in(struct porter *p)
{
	const struct psk psk = {{2}};
	struct channel *ch;

	expect(porter_admit(p, &psk, clock_ms() + PEER_MS, &ch) == -1);
	expect_failure(OUT_CONNECT, OUT_CONNECT);
}

static void listen_for(uint8_t what, struct reader *in)
{
	int count = 0;
	struct porter *p;

	knock = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
	expect(knock >= 0);
	knocking_count = 0;
	knocked = 0;
	while (in->left > 0 && count < CALLERS_MAX)
		mine[count++] = call(in);
	p = porter_at(knock);
	p->admitted = what == LANES;
	if (what == LANES)
		let_lanes_in(p);
	else
		let_peer_in(p);
	porter_free(p);
	while (count > 0)
		close_fd(mine[--count]);
	while (waiting_count > 0)
		close(waiting[--waiting_count]);
}

/* A valid hello may still be for another lane. */
static void hear(struct reader *in)
{
	static const struct lane_setup setup = {
		.side = LANE_SINK, .index = 1, .depth = DEPTH, .block_size = SIZE};
	uint8_t bytes[LANE_HELLO_SIZE] = {0};
	struct lane_ring ring;
	struct lane *l;
	struct hello_terms terms;

	expect(lane_open(&setup, &l) == 0);
	compose(in, SIGNED, bytes, sizeof bytes);
	if (hello_check(l, 7, false, &key, bytes, &terms)) {
		expect(failed()->code == OUT_PROTOCOL || failed()->code == OUT_AUTH ||
		       failed()->code == OUT_INTEGRITY);
	} else {
		expect(terms.depth >= 1 && terms.depth <= DEPTH);
		expect(hello_check_ring(l, 7, false, &key, bytes, &ring, &terms) == 0 &&
		       ring.at == 0);
	}
	hello_check_ring(l, 7, true, &key, bytes, &ring, &terms);
	lane_close(l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct reader in = reader_of(data, size);
	uint8_t first = take_u8(&in), what = first % WHAT;

	if (size > INPUT_MAX)
		return -1;
	descriptors = first < 128 ? 1024 : (first - 128U) / WHAT;
	if (what == HEARD)
		hear(&in);
	else
		listen_for(what, &in);
	return 0;
}
