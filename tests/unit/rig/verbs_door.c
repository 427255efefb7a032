/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs_door.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <glob.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/io.h"
#include "lane/verbs/verbs_connect.h"

struct host near, far;
unsigned slow = 1;
enum rdma_op door_op = RDMA_OP_SEND;
unsigned door_cipher;
const struct lane_key door_key = {.secret = "of the session", .nonces = {"a", "b"}};
bool door_iwarp, door_software;
const char *door_adapter = "";

static void read_op(void)
{
	static const char *const words[] = {"auto", "send", "write-imm", "write-send"};
	const char *word = getenv("SLUICE_RDMA_OP");

	if (!word || !word[0])
		return;
	for (unsigned i = 0; i < sizeof words / sizeof *words; i++) {
		if (strcmp(word, words[i]) == 0) {
			door_op = (enum rdma_op)i;
			return;
		}
	}
	abort();
}

bool hosts_find(void)
{
	const char *transport = getenv("SLUICE_TRANSPORT"), *sim = getenv("SLUICE_SIM");

	if (transport && strcmp(transport, "rxe") == 0) {
		near = (struct host){"10.77.1.1", "fd77:1::1", NULL, "10.77.1.9", "rx0", ""};
		far = (struct host){.address = "10.77.1.2", .address6 = "fd77:1::2"};
	} else if (transport && strcmp(transport, "siw") == 0) {
		near = (struct host){"10.77.2.1", "fd77:2::1", "/run/netns/siwa",
				     "10.77.2.9", "sw0",       "-n siwa"};
		far = (struct host){.address = "10.77.2.2",
				    .address6 = "fd77:2::2",
				    .netns = "/run/netns/siwb"};
	} else if (transport && strcmp(transport, "sim") == 0) {
		near = (struct host){.address = "127.77.0.1",
				     .address6 = "fd77:7::1",
				     .silent = "127.77.0.9"};
		far = (struct host){.address = "127.77.0.2", .address6 = "fd77:7::2"};
	} else if (transport && strcmp(transport, "device") == 0) {
		near = (struct host){.address = getenv("SLUICE_TEST_NEAR")};
		far = (struct host){.address = getenv("SLUICE_TEST_FAR")};
	}
	door_adapter = transport && strcmp(transport, "sim") == 0 && sim ? sim
		       : transport                                       ? transport
									 : "";
	door_iwarp = strcmp(door_adapter, "siw") == 0 || strstr(door_adapter, "iwarp") ||
		     (strcmp(door_adapter, "device") == 0 && getenv("SLUICE_TEST_IWARP"));
	door_software =
		strncmp(door_adapter, "rxe", 3) == 0 || strncmp(door_adapter, "siw", 3) == 0;
	if (getenv("SLUICE_LAB"))
		slow = 3;
	read_op();
	return near.address && far.address;
}

void host_enter(const struct host *h)
{
	int fd = h->netns ? open(h->netns, O_RDONLY | O_CLOEXEC) : -1;

	if (h->netns && (fd < 0 || setns(fd, CLONE_NEWNET))) {
		perror(h->netns);
		abort();
	}
	close_fd(fd);
}

union address host_address(const char *text, unsigned port)
{
	union address a = {0};

	if (strchr(text, ':')) {
		a.in6.sin6_family = AF_INET6;
		a.in6.sin6_port = htons((uint16_t)port);
		inet_pton(AF_INET6, text, &a.in6.sin6_addr);
	} else {
		a.in4.sin_family = AF_INET;
		a.in4.sin_port = htons((uint16_t)port);
		inet_pton(AF_INET, text, &a.in4.sin_addr);
	}
	return a;
}

struct visit {
	const struct host *host;
	void *(*fn)(void *);
	void *arg;
};

static void *visit_thread(void *arg)
{
	struct visit *v = arg;

	host_enter(v->host);
	return v->fn(v->arg);
}

void *host_call(const struct host *h, void *(*fn)(void *), void *arg)
{
	struct visit v = {h, fn, arg};
	void *result;
	pthread_t t;

	if (pthread_create(&t, NULL, visit_thread, &v) || pthread_join(t, &result))
		abort();
	return result;
}

/* ---- the door ------------------------------------------------------------------------- */

struct opening {
	struct door *door;
	int rc;
	struct failure why;
};

static void *open_there(void *arg)
{
	struct opening *o = arg;
	union address a = host_address(o->door->address, 0);

	o->rc = verbs_listen(&a, 0, 0, 0, &o->door->port, &o->door->listener);
	o->why = *failed();
	return NULL;
}

int door_open(struct door *d, const char *address)
{
	struct opening o = {.door = d};

	*d = (struct door){.address = address ? address : far.address};
	pthread_mutex_init(&d->lock, NULL);
	host_call(&far, open_there, &o);
	return o.rc ? fail_again(&o.why) : 0;
}

void door_close(struct door *d)
{
	for (unsigned i = 0; i < PAIR_LANES; i++)
		verbs_refuse(d->callers[i]);
	verbs_unlisten(d->listener);
	pthread_mutex_destroy(&d->lock);
	*d = (struct door){0};
}

/* Admit the waiting callers; under the lock, because only one thread at a time may do that. */
static int let_in(struct door *d)
{
	struct verbs_caller *c;
	unsigned lane;

	for (;;) {
		if (verbs_next_caller(d->listener, &c))
			return -1;
		if (!c)
			return 0;
		lane = verbs_caller_request(c)->lane;
		if (lane >= PAIR_LANES) {
			verbs_refuse(c);
			continue;
		}
		verbs_refuse(d->callers[lane]);
		d->callers[lane] = c;
	}
}

/* The caller of this lane, if it is the right one. */
static int look(struct door *d, unsigned lane, uint32_t epoch, const struct lane_key *key,
		struct verbs_caller **out)
{
	const struct lane_private *says;
	uint8_t token[LANE_TOKEN];
	int rc;

	*out = NULL;
	lane_token(key, (uint16_t)lane, epoch, token);
	pthread_mutex_lock(&d->lock);
	rc = let_in(d);
	if (d->callers[lane]) {
		says = verbs_caller_request(d->callers[lane]);
		if (says->epoch == epoch && memcmp(says->token, token, sizeof token) == 0) {
			*out = d->callers[lane];
			d->callers[lane] = NULL;
		} else if (says->epoch <= epoch) {
			verbs_refuse(d->callers[lane]);
			d->callers[lane] = NULL;
		}
	}
	pthread_mutex_unlock(&d->lock);
	return rc;
}

int door_take(struct door *d, struct lane *l, uint32_t epoch, const struct lane_key *key,
	      uint64_t deadline_ms, struct wire **out)
{
	struct pollfd fds[] = {{.fd = verbs_listener_fd(d->listener), .events = POLLIN},
			       {.fd = lane_abort_fd(l), .events = POLLIN}};
	struct verbs_caller *c;

	for (;;) {
		if (look(d, lane_index(l), epoch, key, &c))
			return -1;
		if (c)
			return verbs_take(l, epoch, key, c, NULL, deadline_ms, out);
		if (lane_aborted(l) || clock_ms() > deadline_ms)
			return fail_as(OUT_CONNECT, "nobody came");
		/* The thread of another lane may be the one that admits our caller. */
		poll(fds, 2, 5);
	}
}

int door_dial(struct door *d, struct lane *l, uint32_t epoch, const struct lane_key *key,
	      uint64_t deadline_ms, struct wire **out)
{
	union address a = host_address(d->address, d->port);

	return verbs_dial(l, epoch, key, NULL, &a, NULL, 0, deadline_ms, out);
}

/* ---- counters ------------------------------------------------------------------------- */

unsigned long long door_not_ready(void)
{
	static const char *const names[] = {"rcvd_rnr_err", "send_rnr_err",
					    "retry_rnr_exceeded_err", "rnr_nak_retry_err"};
	unsigned long long sum = 0;

	for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
		char pattern[128];
		glob_t g;

		snprintf(pattern, sizeof pattern, "/sys/class/infiniband/*/ports/*/hw_counters/%s",
			 names[i]);
		if (glob(pattern, 0, NULL, &g))
			continue;
		for (size_t j = 0; j < g.gl_pathc; j++) {
			FILE *f = fopen(g.gl_pathv[j], "re");
			unsigned long long n;

			if (f && fscanf(f, "%llu", &n) == 1)
				sum += n;
			if (f)
				fclose(f);
		}
		globfree(&g);
	}
	return sum;
}

/* ---- lanes ---------------------------------------------------------------------------- */

int door_never(void *ctx, struct lane *l, uint32_t epoch, const char *why)
{
	(void)ctx, (void)l, (void)epoch, (void)why;
	return fail_as(OUT_PROTOCOL, "this lane is not to be used");
}

int door_pair_open(void **state)
{
	struct door *d = calloc(1, sizeof *d);

	*state = d;
	return d ? door_open(d, NULL) : -1;
}

void door_pair_close(void *state)
{
	door_close(state);
	free(state);
}

int door_join_as(enum lane_side listens, void *state, struct lane *l, uint32_t epoch,
		 const struct lane_key *key, uint64_t deadline_ms, struct wire **out)
{
	if (lane_side_of(l) == listens) {
		host_enter(&far);
		return door_take(state, l, epoch, key, deadline_ms, out);
	}
	host_enter(&near);
	return door_dial(state, l, epoch, key, deadline_ms, out);
}

int door_join_by_turns(void *state, struct lane *l, uint32_t epoch, const struct lane_key *key,
		       uint64_t deadline_ms, struct wire **out)
{
	return door_join_as(epoch % 2 ? LANE_SOURCE : LANE_SINK, state, l, epoch, key, deadline_ms,
			    out);
}

struct lane *door_lane(enum lane_side side, uint32_t depth, uint32_t block_size, lane_mend_fn mend,
		       void *ctx)
{
	struct lane_setup how = {.side = side,
				 .depth = depth,
				 .block_size = block_size,
				 .rdma_op = door_op,
				 .cipher = door_cipher,
				 .key = &door_key,
				 .mend = mend,
				 .mend_ctx = ctx};
	struct lane *l;

	if (lane_open(&how, &l))
		return NULL;
	lane_demand_seal(l, door_cipher != 0);
	return l;
}
