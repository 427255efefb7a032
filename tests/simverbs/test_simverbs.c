/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The simulated verbs themselves: two processes, two users, one of them in a sandbox; what an
 * adapter reports when something goes wrong; and that misuse ends a program. Linked with rdma-core
 * as the programs are; SIMVERBS and LD_LIBRARY_PATH bring the simulation in.
 */

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <linux/landlock.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "verbs_end.h"

#define NEAR "127.77.0.1"
#define FAR "127.77.0.2"

enum { NOBODY = 65534 };

static bool iwarp;

/* The children start threads. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
	return "die_after_fork=0";
}

/* ---- the other process ------------------------------------------------------------------ */

/* A caller in a process of its own; its result is its exit code. */
struct caller {
	pid_t pid;
	int to, from; /* pipes, to order what comes next */
};

typedef int caller_fn(uint16_t port, int from, int to);

static void start_caller(struct caller *c, caller_fn *fn, uint16_t port)
{
	int down[2], up[2];

	assert_int_equal(pipe(down) | pipe(up), 0);
	c->pid = fork();
	assert_true(c->pid >= 0);
	if (c->pid == 0) {
		alarm(30);
		close(down[1]);
		close(up[0]);
		_exit(fn(port, down[0], up[1]));
	}
	close(down[0]);
	close(up[1]);
	c->to = down[1];
	c->from = up[0];
}

static void tell(int fd)
{
	END_NEED(write(fd, "x", 1) == 1);
}

static void await(int fd)
{
	char x;

	END_NEED(read(fd, &x, 1) == 1);
}

static int end_caller(struct caller *c)
{
	int status;

	close(c->to);
	close(c->from);
	assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
	return status;
}

/* This process listens, and a caller that runs fn comes. The listener is made after the fork: a
 * child must not have it. So the port goes by a pipe. */
static void open_pair(struct end *e, struct caller *c, caller_fn *fn, struct end_event *request)
{
	uint16_t port;

	start_caller(c, fn, 0);
	port = end_listen(e, FAR);
	assert_int_equal(write(c->to, &port, sizeof port), sizeof port);
	end_take(e, request);
}

static void call(struct end *e, int from, unsigned receives, int access)
{
	uint16_t port;

	END_NEED(read(from, &port, sizeof port) == sizeof port);
	end_resolve(e, FAR, port);
	end_equip(e, receives, access);
}

static void connect_caller(struct end *e, uint8_t rnr_retry)
{
	END_NEED(end_connect(e, "hello", 5, rnr_retry) == 0);
	END_NEED(end_expect(e).what == RDMA_CM_EVENT_ESTABLISHED);
}

static void accept_caller(struct end *e, unsigned receives, int access, uint8_t rnr_retry)
{
	end_equip(e, receives, access);
	assert_int_equal(end_accept(e, rnr_retry), 0);
	assert_int_equal(end_expect(e).what, RDMA_CM_EVENT_ESTABLISHED);
}

static bool is_irdma(void)
{
	const char *sim = getenv("SLUICE_SIM");

	return sim && strcmp(sim, "e810-iwarp") == 0;
}

static bool has_immediates(void)
{
	return !iwarp || is_irdma();
}

/* ---- messages --------------------------------------------------------------------------- */

static const uint32_t sizes[] = {0, 1, 4095, 4096, 65537, END_BYTES};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void fill(uint8_t *at, uint32_t len, unsigned seed)
{
	for (uint32_t i = 0; i < len; i++)
		at[i] = (uint8_t)(i * 31 + seed + (i >> 8));
}

static bool is_filled(const uint8_t *at, uint32_t len, unsigned seed)
{
	for (uint32_t i = 0; i < len; i++)
		if (at[i] != (uint8_t)(i * 31 + seed + (i >> 8)))
			return false;
	return true;
}

static uint64_t clock_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* There and back, and the bytes once, where the host's file has "bandwidth 800" and "latency 5000".
 */
static uint64_t least_us(uint32_t bytes)
{
	return getenv("SIMVERBS_IS_SLOW") ? 2 * 5000 + bytes / 100 : 0;
}

static int send_sizes(uint16_t port, int from, int to)
{
	struct end e = {0};

	(void)port;
	call(&e, from, 0, 0);
	connect_caller(&e, 0);
	for (unsigned i = 0; i < SIZES; i++) {
		uint64_t begun = clock_us();
		struct ibv_wc wc;

		fill(e.memory + (size_t)i * END_BYTES, sizes[i], i);
		END_NEED(end_send(&e, i, sizes[i]) == 0);
		wc = end_reap(&e);
		END_NEED(wc.status == IBV_WC_SUCCESS && wc.wr_id == i);
		END_NEED(clock_us() - begun >= least_us(sizes[i]));
	}
	await(from);
	end_close(&e);
	tell(to);
	return 0;
}

static void receive_sizes(caller_fn *fn)
{
	struct end_event request;
	struct end e = {0};
	struct caller c;

	open_pair(&e, &c, fn, &request);
	/* The connection manager of InfiniBand pads; that of iWARP does not. */
	assert_int_equal(request.len, iwarp ? 5 : 56);
	assert_memory_equal(request.data, "hello\0", iwarp ? 5 : 6);
	accept_caller(&e, SIZES, 0, 0);
	for (unsigned i = 0; i < SIZES; i++) {
		struct ibv_wc wc = end_reap(&e);

		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.opcode, IBV_WC_RECV);
		assert_int_equal(wc.wr_id, i);
		assert_int_equal(wc.byte_len, sizes[i]);
		assert_true(is_filled(e.memory + (size_t)i * END_BYTES, sizes[i], i));
	}
	tell(c.to);
	await(c.from);
	assert_int_equal(end_expect(&e).what, RDMA_CM_EVENT_DISCONNECTED);
	end_close(&e);
	assert_int_equal(end_caller(&c), 0);
}

static void test_messages_of_all_sizes(void **state)
{
	(void)state;
	receive_sizes(send_sizes);
}

static int send_as_nobody(uint16_t port, int from, int to)
{
	END_NEED(setresgid(NOBODY, NOBODY, NOBODY) == 0 && setresuid(NOBODY, NOBODY, NOBODY) == 0);
	return send_sizes(port, from, to);
}

static void test_two_users_others_than_root(void **state)
{
	(void)state;
	if (geteuid() != 0)
		skip();
	receive_sizes(send_as_nobody);
}

/* Nothing of the file system may be opened any more. */
static bool restrict_process(void)
{
	struct landlock_ruleset_attr attr = {
		.handled_access_fs = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR |
				     LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG |
				     LANDLOCK_ACCESS_FS_EXECUTE};
	int fd = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof attr, 0);
	bool done;

	if (fd < 0)
		return false;
	done = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
	       syscall(SYS_landlock_restrict_self, fd, 0) == 0;
	close(fd);
	return done;
}

static int send_in_sandbox(uint16_t port, int from, int to)
{
	/* The personality is read before, as a program would have opened its device before. */
	ibv_free_device_list(ibv_get_device_list(NULL));
	END_NEED(restrict_process());
	END_NEED(fopen("/etc/passwd", "re") == NULL && errno == EACCES);
	return send_sizes(port, from, to);
}

static void test_a_sandbox_of_landlock(void **state)
{
	struct landlock_ruleset_attr attr = {.handled_access_fs = LANDLOCK_ACCESS_FS_READ_FILE};
	int fd = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof attr, 0);

	(void)state;
	if (fd < 0)
		skip();
	close(fd);
	receive_sizes(send_in_sandbox);
}

/* ---- writes ----------------------------------------------------------------------------- */

struct ring {
	uint64_t at;
	uint32_t key;
};

static int write_ring(uint16_t port, int from, int to)
{
	struct end e = {0};
	struct ring ring;
	struct ibv_wc wc;
	struct ibv_send_wr empty = {.opcode = IBV_WR_RDMA_WRITE}, *bad;

	(void)port;
	call(&e, from, 0, 0);
	connect_caller(&e, 0);
	END_NEED(read(from, &ring, sizeof ring) == sizeof ring);
	fill(e.memory, END_BYTES, 3);
	/* Of no bytes, and to nowhere. */
	END_NEED(ibv_post_send(e.id->qp, &empty, &bad) == 0);
	END_NEED(end_reap(&e).status == IBV_WC_SUCCESS);
	END_NEED(end_write(&e, IBV_WR_RDMA_WRITE, END_BYTES, ring.at, ring.key) == 0);
	END_NEED(end_reap(&e).status == IBV_WC_SUCCESS);
	if (!has_immediates()) {
		END_NEED(end_write(&e, IBV_WR_RDMA_WRITE_WITH_IMM, 9, ring.at, ring.key) == EINVAL);
		END_NEED(end_send(&e, 0, 9) == 0);
	} else {
		END_NEED(end_write(&e, IBV_WR_RDMA_WRITE_WITH_IMM, 9, ring.at, ring.key) == 0);
	}
	END_NEED(end_reap(&e).status == IBV_WC_SUCCESS);
	await(from);
	/* One byte beyond the region. */
	END_NEED(end_write(&e, IBV_WR_RDMA_WRITE, END_BYTES,
			   ring.at + (uint64_t)(END_SLOTS - 3) * END_BYTES + 1, ring.key) == 0);
	wc = end_reap(&e);
	END_NEED(wc.status == (iwarp ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR));
	tell(to);
	await(from);
	end_close(&e);
	return 0;
}

static void test_writes(void **state)
{
	struct end_event request;
	struct end e = {0};
	struct caller c;
	struct ring ring;
	struct ibv_wc wc;

	(void)state;
	open_pair(&e, &c, write_ring, &request);
	accept_caller(&e, 2, IBV_ACCESS_REMOTE_WRITE, 0);
	/* Beside what is posted. */
	ring = (struct ring){(uintptr_t)e.memory + 2 * END_BYTES, e.mr->rkey};
	assert_int_equal(write(c.to, &ring, sizeof ring), sizeof ring);
	wc = end_reap(&e);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, has_immediates() ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV);
	assert_int_equal(wc.byte_len, 9);
	if (has_immediates())
		assert_int_equal(ntohl(wc.imm_data), 77);
	assert_true(is_filled(e.memory + 2 * END_BYTES, END_BYTES, 3));
	tell(c.to);
	await(c.from);
	/* What was written beyond the region broke this queue pair, too. */
	assert_int_equal(end_reap(&e).status, IBV_WC_WR_FLUSH_ERR);
	tell(c.to);
	end_close(&e);
	assert_int_equal(end_caller(&c), 0);
}

/* ---- ends and rejections ---------------------------------------------------------------- */

static int connect_and_wait(uint16_t port, int from, int to)
{
	struct end e = {0};

	(void)port;
	call(&e, from, 0, 0);
	connect_caller(&e, 0);
	tell(to);
	await(from);
	return 1;
}

static void test_a_peer_that_is_killed(void **state)
{
	struct end_event request;
	struct end e = {0};
	struct caller c;
	struct ibv_wc wc;

	(void)state;
	open_pair(&e, &c, connect_and_wait, &request);
	accept_caller(&e, 2, 0, 0);
	await(c.from);
	kill(c.pid, SIGKILL);
	assert_int_equal(end_expect(&e).what, RDMA_CM_EVENT_DISCONNECTED);
	/* On InfiniBand receives stay posted until the connection is ended here. */
	if (!iwarp)
		assert_int_equal(ibv_poll_cq(e.cq, 1, &wc), 0);
	rdma_disconnect(e.id);
	assert_int_equal(end_reap(&e).status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(end_reap(&e).status, IBV_WC_WR_FLUSH_ERR);
	end_close(&e);
	assert_true(WIFSIGNALED(end_caller(&c)));
}

static int expect_rejection(uint16_t port, int from, int to)
{
	struct end_event got;
	struct end e = {0};

	(void)port;
	(void)to;
	call(&e, from, 0, 0);
	END_NEED(end_connect(&e, NULL, 0, 0) == 0);
	got = end_expect(&e);
	END_NEED(got.what == RDMA_CM_EVENT_REJECTED);
	/* iWARP adapters differ in it, but all report an error of the system. */
	END_NEED(iwarp ? got.status == -ECONNREFUSED || got.status == -ECONNRESET
		       : got.status == 28);
	END_NEED(got.len == (iwarp ? 2 : 148) && memcmp(got.data, "no", 2) == 0);
	end_close(&e);
	return 0;
}

static void test_a_rejection_has_its_reason(void **state)
{
	struct end_event request;
	struct end e = {0};
	struct caller c;

	(void)state;
	open_pair(&e, &c, expect_rejection, &request);
	assert_int_equal(rdma_reject(e.id, "no", 2), 0);
	assert_int_equal(end_caller(&c), 0);
	end_close(&e);
}

static void test_nobody_listens(void **state)
{
	uint8_t data[64] = {0};
	struct end_event got;
	struct end e = {0};

	(void)state;
	end_resolve(&e, FAR, 9);
	end_equip(&e, 1, 0);
	/* More than fits beside the address that librdmacm's kernel part puts there. */
	if (!iwarp) {
		assert_int_equal(end_connect(&e, data, 57, 0), -1);
		assert_int_equal(errno, EINVAL);
	}
	assert_int_equal(end_connect(&e, data, 56, 0), 0);
	got = end_expect(&e);
	assert_int_equal(got.what, RDMA_CM_EVENT_REJECTED);
	assert_int_equal(got.status, is_irdma() /* TCP's reset */ ? -ECONNRESET
				     : iwarp                      ? -ECONNREFUSED
								  : 8);
	end_close(&e);
}

/* ---- ordered faults ---------------------------------------------------------------------- */

/* In a child. */
static void set_faults(const char *faults)
{
	alarm(30);
	setenv("SIMVERBS_FAULT", faults, 1);
}

/* Runs both ends in one process with faults; returns its status. */
static int run_child(const char *faults, int (*fn)(void))
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		set_faults(faults);
		_exit(fn());
	}
	return waitpid(pid, &status, 0) == pid ? status : -1;
}

static void run_with(const char *faults, int (*fn)(void))
{
	assert_int_equal(run_child(faults, fn), 0);
}

/* Beside the adapter's own delay. Only RoCE derives the path's time from it. */
enum { ACK_TIMEOUT = 14, TIMEWAIT_MS = 256, ACK_DEFAULT = 0, TIMEWAIT_DEFAULT_MS = 2048 };
/* 1.1 s, twice: longer than this program may stand still, and below END_WAIT_MS. */
enum { ACK_PATIENT = 18 };

static bool is_infiniband(void)
{
	return strstr(getenv("SLUICE_SIM"), "-ib") != NULL;
}

/* Sends a request from a new queue pair to a listener. */
static void call_listener_with(struct end *near, uint16_t port)
{
	end_resolve(near, FAR, port);
	end_equip(near, 0, 0);
	END_NEED(end_connect(near, "hello", 5, 0) == 0);
}

static void call_listener(struct end *near, uint16_t port, uint8_t timeout)
{
	*near = (struct end){.ack_timeout = timeout};
	call_listener_with(near, port);
}

static void answer_caller(struct end *far)
{
	struct end_event request;

	end_take(far, &request);
	end_equip(far, 1, 0);
	END_NEED(end_accept(far, 0) == 0);
}

static void connect_ends_for(struct end *near, struct end *far, uint8_t timeout)
{
	call_listener(near, end_listen(far, FAR), timeout);
	answer_caller(far);
	END_NEED(end_expect(near).what == RDMA_CM_EVENT_ESTABLISHED);
	END_NEED(end_expect(far).what == RDMA_CM_EVENT_ESTABLISHED);
}

static void connect_ends(struct end *near, struct end *far)
{
	connect_ends_for(near, far, ACK_TIMEOUT);
}

static void close_ends(struct end *near, struct end *far)
{
	end_close(near);
	end_close(far);
}

/* Whether misuse() ends with abort(), in a process of its own. */
static bool is_aborted(void (*misuse)(struct end *near))
{
	struct rlimit none = {0, 0};
	struct end near = {0};
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		setrlimit(RLIMIT_CORE, &none);
		fclose(stderr);
		close(STDERR_FILENO);
		misuse(&near);
		_exit(0);
	}
	END_NEED(waitpid(pid, &status, 0) == pid);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static bool is_quiet(struct end *e)
{
	struct pollfd p = {.fd = (e->own ? e->own : e->events)->fd, .events = POLLIN};

	return poll(&p, 1, 3 * TIMEWAIT_MS / 2) == 0;
}

static int end_and_wait(void)
{
	struct end near = {0}, far = {0};
	uint64_t begun;

	connect_ends(&near, &far);
	END_NEED(rdma_disconnect(near.id) == 0);
	END_NEED(end_expect(&far).what == RDMA_CM_EVENT_DISCONNECTED);
	if (iwarp) {
		END_NEED(end_expect(&near).what == RDMA_CM_EVENT_DISCONNECTED);
		END_NEED(is_quiet(&near));
	} else {
		END_NEED(is_quiet(&near)); /* until the other end disconnects, too */
		begun = clock_us();
		END_NEED(rdma_disconnect(far.id) == 0);
		END_NEED(end_expect(&near).what == RDMA_CM_EVENT_DISCONNECTED);
		END_NEED(end_expect(&near).what == RDMA_CM_EVENT_TIMEWAIT_EXIT);
		END_NEED(end_expect(&far).what == RDMA_CM_EVENT_TIMEWAIT_EXIT);
		END_NEED(clock_us() - begun >= TIMEWAIT_MS * 1000);
	}
	close_ends(&near, &far);
	return 0;
}

static void test_both_ends_disconnect_and_wait(void **state)
{
	(void)state;
	if (!is_infiniband())
		run_with("", end_and_wait);
}

static void expect_stale(struct end *near)
{
	struct end_event got = end_expect(near);

	END_NEED(got.what == RDMA_CM_EVENT_REJECTED && got.status == 10);
	end_close(near);
}

static int call_in_timewait(void)
{
	struct end near = {0}, far = {0};
	uint16_t port = end_listen(&far, FAR);

	/* The second one has the number of the first. */
	for (int i = 0; i < 2; i++) {
		call_listener(&near, port, ACK_DEFAULT);
		expect_stale(&near);
	}
	usleep((TIMEWAIT_DEFAULT_MS + 20) * 1000);
	call_listener(&near, port, ACK_DEFAULT);
	answer_caller(&far);
	END_NEED(end_expect(&near).what == RDMA_CM_EVENT_ESTABLISHED);
	close_ends(&near, &far);
	return 0;
}

/* The end of the first connection is lost, and its number is used again. */
static int call_a_zombie(void)
{
	struct end near = {0}, far = {0}, next = {0};

	connect_ends(&near, &far);
	end_close(&near);
	END_NEED(is_quiet(&far));
	call_listener(&near, ntohs(rdma_get_src_port(far.listener)), ACK_TIMEOUT);
	expect_stale(&near);
	END_NEED(end_expect(&far).what == RDMA_CM_EVENT_DISCONNECTED);
	next = (struct end){.events = far.events, .listener = far.listener};
	call_listener(&near, ntohs(rdma_get_src_port(far.listener)), ACK_TIMEOUT);
	answer_caller(&next);
	END_NEED(end_expect(&near).what == RDMA_CM_EVENT_ESTABLISHED);
	far.events = NULL;
	far.listener = NULL;
	close_ends(&near, &far);
	end_close(&next);
	return 0;
}

static void test_stale_queue_pairs(void **state)
{
	(void)state;
	if (iwarp || is_infiniband()) /* there is no such thing; the path's time is too long */
		return;
	run_with("stale:n=1;reuse:n=0", call_in_timewait);
	run_with("lose:DREQ,n=1;reuse:n=0", call_a_zombie);
}

static int expect_more_events(void)
{
	struct end near = {0}, far = {0};
	uint64_t begun = clock_us();

	call_listener(&near, end_listen(&far, FAR), ACK_TIMEOUT);
	answer_caller(&far);
	END_NEED(end_expect(&near).what == RDMA_CM_EVENT_ADDR_CHANGE);
	END_NEED(end_expect(&near).what == RDMA_CM_EVENT_ESTABLISHED);
	END_NEED(end_expect(&near).what == RDMA_CM_EVENT_ESTABLISHED);
	END_NEED(clock_us() - begun >= 200000);
	END_NEED(end_expect(&far).what == RDMA_CM_EVENT_ESTABLISHED);
	close_ends(&near, &far);
	return 0;
}

static void test_events_early_late_and_twice(void **state)
{
	(void)state;
	run_with(iwarp ? "event:ESTABLISHED,n=2,first=14,late=200,twice=1"
		       : "event:ESTABLISHED,n=1,first=14,late=200,twice=1",
		 expect_more_events);
}

/* ---- the adapter's own events ------------------------------------------------------------ */

static char plug_host[64]; /* a host of this test's own: other processes share the first one */

static void set_file(const char *name, bool there)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof path, "%s/%s", plug_host, name);
	f = there ? fopen(path, "we") : NULL;
	END_NEED(there ? f && fclose(f) == 0 : unlink(path) == 0);
}

static void run_on_own_host(const char *faults, int (*fn)(void))
{
	static const char *const names[] = {"personality", "host", "sys", "dev"};
	char from[512], to[128], *top = getenv("SIMVERBS");
	int status;

	strcpy(plug_host, "/tmp/simverbs-test.XXXXXX");
	assert_non_null(mkdtemp(plug_host));
	for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
		snprintf(from, sizeof from, "%s/%s", top, names[i]);
		snprintf(to, sizeof to, "%s/%s", plug_host, names[i]);
		assert_int_equal(symlink(from, to), 0);
	}
	from[0] = '\0';
	strncat(from, top, sizeof from - 1);
	setenv("SIMVERBS", plug_host, 1);
	status = run_child(faults, fn);
	setenv("SIMVERBS", from, 1);
	for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
		snprintf(to, sizeof to, "%s/%s", plug_host, names[i]);
		unlink(to);
	}
	rmdir(plug_host);
	assert_int_equal(status, 0);
}

static struct ibv_async_event take_async(struct ibv_context *context)
{
	struct pollfd p = {.fd = context->async_fd, .events = POLLIN};
	struct ibv_async_event e;

	END_NEED(poll(&p, 1, END_WAIT_MS) == 1);
	END_NEED(ibv_get_async_event(context, &e) == 0);
	return e;
}

static enum ibv_event_type next_async(struct ibv_context *context)
{
	struct ibv_async_event e = take_async(context);

	ibv_ack_async_event(&e);
	return e.event_type;
}

static enum ibv_port_state port_state(struct ibv_context *context)
{
	struct ibv_port_attr port;

	END_NEED(ibv_query_port(context, 1, &port) == 0);
	return port.state;
}

static int lose_the_port(void)
{
	struct end near = {0}, far = {0};
	struct ibv_context *context;

	connect_ends_for(&near, &far, ACK_PATIENT);
	context = near.id->verbs;
	end_post(&far, 1);
	for (int i = 0; i < 2; i++) {
		set_file("down", true);
		END_NEED(next_async(context) == IBV_EVENT_PORT_ERR);
		END_NEED(port_state(context) == IBV_PORT_DOWN);
		END_NEED(end_send(&near, 0, 100) == 0);
		/* The second time it lasts longer than InfiniBand's retries. */
		if (i == 0 || iwarp)
			usleep(20000);
		else
			END_NEED(end_reap(&near).status == IBV_WC_RETRY_EXC_ERR);
		set_file("down", false);
		END_NEED(next_async(context) == IBV_EVENT_PORT_ACTIVE);
		END_NEED(port_state(context) == IBV_PORT_ACTIVE);
		if (i == 0 || iwarp) {
			END_NEED(end_reap(&far).status == IBV_WC_SUCCESS);
			END_NEED(end_reap(&near).status == IBV_WC_SUCCESS);
		}
	}
	close_ends(&near, &far);
	return 0;
}

static void test_a_port_goes_down_and_up(void **state)
{
	(void)state;
	run_on_own_host("", lose_the_port);
}

static int count_devices(void)
{
	struct ibv_device **list;
	int n = 0;

	list = ibv_get_device_list(&n);
	END_NEED(list && n >= 0);
	ibv_free_device_list(list);
	return n;
}

static int pull_out(void)
{
	struct end near = {0}, far = {0};
	struct ibv_async_event e;

	connect_ends(&near, &far);
	set_file("pulled", true);
	END_NEED(end_expect(&near).what == RDMA_CM_EVENT_DEVICE_REMOVAL);
	END_NEED(end_expect(&far).what == RDMA_CM_EVENT_DEVICE_REMOVAL);
	END_NEED(next_async(near.id->verbs) == IBV_EVENT_DEVICE_FATAL);
	END_NEED(ibv_get_async_event(near.id->verbs, &e) == -1 && errno == EIO);
	END_NEED(count_devices() == 0 && access("/sys/class/infiniband_verbs/uverbs0", F_OK));
	END_NEED(!ibv_alloc_pd(near.id->verbs) && errno == EIO);
	END_NEED(end_send(&near, 0, 100) == EIO);
	near.gone = far.gone = !getenv("RDMAV_ALLOW_DISASSOC_DESTROY");
	close_ends(&near, &far);
	set_file("pulled", false);
	END_NEED(count_devices() == 1 && !access("/sys/class/infiniband_verbs/uverbs0", F_OK));
	connect_ends(&near, &far);
	close_ends(&near, &far);
	return 0;
}

static void test_an_adapter_is_pulled_out_and_put_back(void **state)
{
	(void)state;
	run_on_own_host("", pull_out);
	setenv("RDMAV_ALLOW_DISASSOC_DESTROY", "1", 1);
	run_on_own_host("", pull_out);
	unsetenv("RDMAV_ALLOW_DISASSOC_DESTROY");
}

static int break_a_pair(void)
{
	struct end near = {0}, far = {0};
	struct ibv_async_event e;
	struct ibv_wc wc;

	connect_ends(&near, &far);
	END_NEED(end_send(&near, 0, 100) == 0);
	e = take_async(near.id->verbs);
	END_NEED(e.event_type == IBV_EVENT_QP_FATAL && e.element.qp == near.id->qp);
	ibv_ack_async_event(&e);
	ibv_poll_cq(near.cq, 1, &wc); /* of the first, if the link has no latency */
	/* Nothing comes any more, but that iWARP resets the connection. */
	if (iwarp)
		END_NEED(end_expect(&far).what == RDMA_CM_EVENT_DISCONNECTED);
	else
		END_NEED(end_send(&near, 0, 100) == 0 && ibv_poll_cq(near.cq, 1, &wc) == 0);
	close_ends(&near, &far);
	return 0;
}

static void close_without_acknowledging(struct end *near)
{
	struct end far = {0};

	connect_ends(near, &far);
	END_NEED(end_send(near, 0, 100) == 0);
	take_async(near->id->verbs);
	end_close(near);
}

static int forget_to_acknowledge(void)
{
	return is_aborted(close_without_acknowledging) ? 0 : 1;
}

static void test_a_fatal_error_of_a_queue_pair(void **state)
{
	(void)state;
	run_with("async:QP_FATAL,n=1", break_a_pair);
	run_with("async:QP_FATAL,n=1", forget_to_acknowledge);
}

static int expect_async(void)
{
	struct end near = {0}, far = {0};

	connect_ends(&near, &far);
	END_NEED(end_send(&near, 0, 100) == 0);
	END_NEED(next_async(near.id->verbs) == IBV_EVENT_PORT_ERR);
	END_NEED(end_reap(&near).status == IBV_WC_SUCCESS);
	END_NEED(next_async(near.id->verbs) == IBV_EVENT_PORT_ACTIVE);
	end_post(&far, 1);
	END_NEED(end_send(&near, 0, 100) == 0);
	END_NEED(next_async(near.id->verbs) == IBV_EVENT_GID_CHANGE);
	END_NEED(end_reap(&near).status == IBV_WC_SUCCESS);
	close_ends(&near, &far);
	return 0;
}

static void test_ordered_events_of_an_adapter(void **state)
{
	(void)state;
	run_with("async:PORT_ERR,n=1,for=50;async:GID_CHANGE,n=2", expect_async);
}

/* ---- what ends a program ----------------------------------------------------------------- */

/* Runs fn in a process of its own, which must end by abort() with this line. */
static void expect_misuse(void (*fn)(void), const char *said)
{
	struct rlimit none = {0, 0};
	char text[4096];
	size_t used = 0;
	int lines[2], status;
	ssize_t n;
	pid_t pid;

	assert_int_equal(pipe(lines), 0);
	pid = fork();
	if (pid == 0) {
		alarm(30);
		setrlimit(RLIMIT_CORE, &none);
		setenv("SIMVERBS_TOUCH", "1", 1);
		dup2(lines[1], STDERR_FILENO);
		close(lines[0]);
		close(lines[1]);
		fn();
		_exit(0);
	}
	close(lines[1]);
	while ((n = read(lines[0], text + used, sizeof text - 1 - used)) > 0)
		used += (size_t)n;
	text[used] = '\0';
	close(lines[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT || !strstr(text, said))
		fail_msg("expected \"%s\", got status %#x and: %s", said, status, text);
}

/* ---- calls that fail -------------------------------------------------------------------- */

static bool has_failed(int rc)
{
	return rc == EPROTO || rc == -EPROTO || (rc == -1 && errno == EPROTO);
}

static bool has_none(const void *made)
{
	return !made && errno == EPROTO;
}

/* What e had is destroyed all the same. */
static bool fail_to_destroy(struct end *e, const char *name)
{
	struct ibv_context *context;
	bool failed = false;

	rdma_destroy_qp(e->id);
	if (strcmp(name, "ibv_dereg_mr") == 0)
		failed = has_failed(ibv_dereg_mr(e->mr));
	else
		END_NEED(ibv_dereg_mr(e->mr) == 0);
	e->mr = NULL;
	if (strcmp(name, "ibv_destroy_cq") == 0)
		return has_failed(ibv_destroy_cq(e->cq)) &&
		       ibv_destroy_comp_channel(e->channel) == EBUSY &&
		       ibv_dealloc_pd(e->pd) == 0 && rdma_destroy_id(e->id) == 0;
	END_NEED(ibv_destroy_cq(e->cq) == 0);
	if (strcmp(name, "ibv_destroy_comp_channel") == 0)
		failed = has_failed(ibv_destroy_comp_channel(e->channel));
	else
		END_NEED(ibv_destroy_comp_channel(e->channel) == 0);
	if (strcmp(name, "ibv_dealloc_pd") == 0)
		failed = has_failed(ibv_dealloc_pd(e->pd));
	else
		END_NEED(ibv_dealloc_pd(e->pd) == 0);
	context = ibv_open_device(e->id->verbs->device);
	END_NEED(context != NULL);
	if (strcmp(name, "ibv_close_device") == 0)
		failed = has_failed(ibv_close_device(context));
	else
		END_NEED(ibv_close_device(context) == 0);
	if (strcmp(name, "rdma_destroy_id") == 0)
		failed = has_failed(rdma_destroy_id(e->id));
	else
		END_NEED(rdma_destroy_id(e->id) == 0);
	return failed;
}

/* Before e has anything. */
static bool fail_to_acknowledge(struct end *e)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9)};
	struct rdma_cm_event *event;

	inet_pton(AF_INET, FAR, &to.sin_addr);
	e->events = rdma_create_event_channel();
	END_NEED(e->events != NULL);
	END_NEED(rdma_create_id(e->events, &e->id, NULL, RDMA_PS_TCP) == 0);
	END_NEED(rdma_resolve_addr(e->id, NULL, (struct sockaddr *)&to, 1000) == 0);
	END_NEED(rdma_get_cm_event(e->events, &event) == 0);
	return has_failed(rdma_ack_cm_event(event)) && rdma_destroy_id(e->id) == 0;
}

/* Needs no more than an id with a route. */
static bool fail_early(struct end *e, const char *name)
{
	struct ibv_device_attr device;
	struct ibv_port_attr port;
	struct ibv_async_event async;
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	struct sockaddr_in any = {.sin_family = AF_INET};
	struct sockaddr *at = (struct sockaddr *)&any;
	struct ibv_context *context = e->id->verbs;
	uint8_t tos = 1;

#define GIVES(call, ...)                                                                           \
	if (strcmp(name, #call) == 0)                                                              \
	return has_failed(call(__VA_ARGS__))
#define MAKES(call, ...)                                                                           \
	if (strcmp(name, #call) == 0)                                                              \
	return has_none(call(__VA_ARGS__))
	MAKES(ibv_alloc_pd, context);
	MAKES(ibv_create_comp_channel, context);
	MAKES(ibv_create_cq, context, 1, NULL, NULL, 0);
	MAKES(ibv_get_device_list, NULL);
	MAKES(ibv_open_device, context->device);
	MAKES(rdma_create_event_channel, );
	GIVES(ibv_get_async_event, context, &async);
	GIVES(ibv_query_device, context, &device);
	GIVES(ibv_query_port, context, 1, &port);
	GIVES(rdma_bind_addr, e->id, at);
	GIVES(rdma_create_id, e->events, &id, NULL, RDMA_PS_TCP);
	GIVES(rdma_get_cm_event, e->events, &event);
	GIVES(rdma_listen, e->id, 1);
	GIVES(rdma_migrate_id, e->id, e->events);
	GIVES(rdma_resolve_addr, e->id, NULL, at, 1000);
	GIVES(rdma_resolve_route, e->id, 1000);
	GIVES(rdma_set_option, e->id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof tos);
	return false;
}

/* Needs what end_equip() makes. */
static bool fail_late(struct end *e, const char *name)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	struct ibv_sge range = {(uintptr_t)e->memory, 1, e->mr->lkey};
	struct ibv_send_wr send = {.sg_list = &range, .num_sge = 1}, *bad_send;
	struct ibv_recv_wr receive = {.sg_list = &range, .num_sge = 1}, *bad;
	struct rdma_conn_param conn = {.retry_count = 1};
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC};
	int write = IBV_ACCESS_LOCAL_WRITE;
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *context;

	MAKES(ibv_reg_mr, e->pd, e->memory, 4096, write);
	MAKES(ibv_reg_mr_iova2, e->pd, e->memory, 4096, (uintptr_t)e->memory, (unsigned)write);
	GIVES(ibv_get_cq_event, e->channel, &cq, &context);
	GIVES(ibv_modify_qp, e->id->qp, &attr, IBV_QP_STATE);
	GIVES(ibv_poll_cq, e->cq, 1, &wc);
	GIVES(ibv_post_recv, e->id->qp, &receive, &bad);
	GIVES(ibv_post_send, e->id->qp, &send, &bad_send);
	GIVES(ibv_query_qp, e->id->qp, &attr, 0, &init);
	GIVES(ibv_req_notify_cq, e->cq, 0);
	GIVES(rdma_accept, e->id, &conn);
	GIVES(rdma_connect, e->id, &conn);
	GIVES(rdma_create_qp, e->id, e->pd, &init);
	GIVES(rdma_disconnect, e->id);
	GIVES(rdma_notify, e->id, IBV_EVENT_COMM_EST);
	GIVES(rdma_reject, e->id, NULL, 0);
	return fail_to_destroy(e, name);
#undef GIVES
#undef MAKES
}

/* n: which call of it fails, after those of end_resolve() and end_equip(). */
static bool fail_call(const char *name, int n)
{
	struct end e = {0};
	char faults[64];

	snprintf(faults, sizeof faults, "fail:%s,n=%d,errno=%d", name, n, EPROTO);
	set_faults(faults);
	if (strcmp(name, "rdma_ack_cm_event") == 0)
		return fail_to_acknowledge(&e);
	end_resolve(&e, FAR, 9);
	if (fail_early(&e, name))
		return true;
	end_equip(&e, 0, 0);
	return fail_late(&e, name);
}

static void test_each_call_fails_as_ordered(void **state)
{
	static const struct {
		const char *name;
		int n;
	} calls[] = {
		{"ibv_alloc_pd", 1},
		{"ibv_close_device", 1},
		{"ibv_create_comp_channel", 1},
		{"ibv_create_cq", 1},
		{"ibv_dealloc_pd", 1},
		{"ibv_dereg_mr", 1},
		{"ibv_destroy_comp_channel", 1},
		{"ibv_destroy_cq", 1},
		{"ibv_get_async_event", 1},
		{"ibv_get_cq_event", 1},
		{"ibv_get_device_list", 1},
		{"ibv_modify_qp", 1},
		{"ibv_open_device", 2}, /* librdmacm's is the first */
		{"ibv_poll_cq", 1},
		{"ibv_post_recv", 1},
		{"ibv_post_send", 1},
		{"ibv_query_device", 1},
		{"ibv_query_port", 1},
		{"ibv_query_qp", 1},
		{"ibv_reg_mr", 2},
		{"ibv_reg_mr_iova2", 2},
		{"ibv_req_notify_cq", 1},
		{"rdma_accept", 1},
		{"rdma_ack_cm_event", 1},
		{"rdma_bind_addr", 1},
		{"rdma_connect", 1},
		{"rdma_create_event_channel", 2},
		{"rdma_create_id", 2},
		{"rdma_create_qp", 2},
		{"rdma_destroy_id", 1},
		{"rdma_disconnect", 1},
		{"rdma_get_cm_event", 3},
		{"rdma_listen", 1},
		{"rdma_migrate_id", 1},
		{"rdma_notify", 1},
		{"rdma_reject", 1},
		{"rdma_resolve_addr", 2},
		{"rdma_resolve_route", 2},
		{"rdma_set_option", 1},
	};

	(void)state;
	for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++) {
		pid_t pid = fork();
		int status;

		if (pid == 0)
			_exit(!fail_call(calls[i].name, calls[i].n));
		assert_int_equal(waitpid(pid, &status, 0), pid);
		if (status)
			fail_msg("%s: status %#x", calls[i].name, status);
	}
}

static const char *misspelled;

static void follow_rules(void)
{
	setenv("SIMVERBS_FAULT", misspelled, 1);
	ibv_free_device_list(ibv_get_device_list(NULL));
}

static void test_an_unknown_rule_ends_the_program(void **state)
{
	static const char *const rules[] = {
		"fail:no_such_call,n=1,errno=5",
		"fail:rdma_destroy_qp,n=1,errno=5", /* has no result */
		"fail:ibv_alloc_pd,n=1",
		"fail:n=1,errno=5",
		"delay:no_such_call,n=1,late=5",
		"event:NO_SUCH_EVENT,n=1,as=1",
		"event:MULTICAST_JOIN,n=1,as=1",
		"lose:REPLY,n=1",
		"async:PATH_MIG,n=1",
		"status:ERROR,n=1,is=4",
		"no_such_rule:n=1",
		"fail:ibv_alloc_pd,m=1",
		"fail:ibv_alloc_pd,n=one",
	};

	(void)state;
	for (unsigned i = 0; i < sizeof rules / sizeof *rules; i++) {
		misspelled = rules[i];
		expect_misuse(follow_rules, "SIMVERBS_FAULT: ");
	}
}

/* ---- a receiver that is not ready ------------------------------------------------------- */

static int send_unexpected(uint16_t port, int from, int to)
{
	struct end e = {0};

	(void)port;
	call(&e, from, 1, 0);
	connect_caller(&e, 0);
	END_NEED(end_send(&e, 1, 100) == 0);
	/* The send is complete on iWARP as soon as it has left. */
	END_NEED(end_reap(&e).status == (iwarp ? IBV_WC_SUCCESS : IBV_WC_RNR_RETRY_EXC_ERR));
	await(from);
	tell(to);
	end_close(&e);
	return 0;
}

static void test_no_receive_is_posted(void **state)
{
	struct end_event request;
	struct end e = {0};
	struct caller c;

	(void)state;
	open_pair(&e, &c, send_unexpected, &request);
	accept_caller(&e, 0, 0, 0);
	if (iwarp)
		assert_int_equal(end_expect(&e).what, RDMA_CM_EVENT_DISCONNECTED);
	tell(c.to);
	await(c.from);
	end_close(&e);
	assert_int_equal(end_caller(&c), 0);
}

static int wait_for_a_receive(void)
{
	struct end near = {0}, far = {0};
	struct end_event request;

	near.ack_timeout = ACK_TIMEOUT;
	end_resolve(&near, FAR, end_listen(&far, FAR));
	end_equip(&near, 1, 0);
	END_NEED(end_connect(&near, "hello", 5, 0) == 0);
	end_take(&far, &request);
	end_equip(&far, 0, 0);
	END_NEED(end_accept(&far, 7) == 0); /* for ever */
	END_NEED(end_expect(&near).what == RDMA_CM_EVENT_ESTABLISHED);
	END_NEED(end_send(&near, 1, 100) == 0);
	usleep(100000);
	end_post(&far, 0);
	END_NEED(end_reap(&far).status == IBV_WC_SUCCESS);
	END_NEED(end_reap(&near).status == IBV_WC_SUCCESS);
	END_NEED(end_expect(&far).what == RDMA_CM_EVENT_ESTABLISHED);
	end_close(&near);
	end_close(&far);
	return 0;
}

static void test_a_send_waits_for_a_receive(void **state)
{
	(void)state;
	if (!iwarp) /* there it ends the connection */
		run_with("", wait_for_a_receive);
}

/* What one queue has does not keep the other's completions back. */
static int poll_both_queues(void)
{
	struct end near = {0}, far = {0};
	bool sent = false;

	connect_ends(&near, &far);
	for (unsigned i = 1; i < 4; i++)
		end_post(&far, i);
	for (unsigned i = 0; i < 4; i++) {
		END_NEED(end_send(&near, i, 100) == 0);
		END_NEED(end_reap(&near).status == IBV_WC_SUCCESS);
	}
	end_post(&near, 4);
	END_NEED(end_send(&far, 4, 100) == 0);
	for (unsigned i = 0; i < 3; i++)
		sent |= end_reap(&far).opcode == IBV_WC_SEND;
	END_NEED(sent);
	close_ends(&near, &far);
	return 0;
}

static void test_a_queue_does_not_starve_the_other(void **state)
{
	(void)state;
	/* There the acknowledgement comes after all that has arrived is polled. */
	if (!getenv("SIMVERBS_IS_SLOW"))
		run_with("", poll_both_queues);
}

static int receive_with_status(void)
{
	struct end near = {0}, far = {0};
	struct ibv_wc wc;

	connect_ends(&near, &far);
	end_post(&far, 1);
	END_NEED(end_send(&near, 0, 100) == 0);
	wc = end_reap(&far);
	END_NEED(wc.status == IBV_WC_LOC_PROT_ERR && wc.wr_id == 0);
	END_NEED(end_reap(&far).status == IBV_WC_WR_FLUSH_ERR);
	END_NEED(end_reap(&near).status == IBV_WC_SUCCESS);
	END_NEED(end_send(&near, 0, 100) == 0);
	/* The queue pair there answers no more. */
	END_NEED(end_reap(&near).status == (iwarp ? IBV_WC_WR_FLUSH_ERR : IBV_WC_RETRY_EXC_ERR));
	end_close(&near);
	end_close(&far);
	return 0;
}

static void test_an_ordered_status_of_a_receive(void **state)
{
	(void)state;
	if (!is_infiniband())
		run_with("receive:n=1,is=4", receive_with_status);
}

/* ---- misuse ----------------------------------------------------------------------------- */

static struct end one, two; /* of the child */

static void register_what_forks_copy(void)
{
	setenv("SIMVERBS_FORK", "1", 1);
	end_resolve(&one, FAR, 9);
	end_equip(&one, 0, 0);
}

static void equip_one(void)
{
	end_resolve(&one, FAR, 9);
	end_equip(&one, 0, 0);
}

static void connect_both(void)
{
	connect_ends(&one, &two);
}

static void post_too_many_receives(void)
{
	equip_one();
	for (unsigned i = 0; i < 1000; i++)
		end_post(&one, i % END_SLOTS);
}

static void receive_unregistered(void)
{
	struct ibv_mr other;

	equip_one();
	other = *one.mr;
	other.lkey ^= 0x100;
	one.mr = &other;
	end_post(&one, 0);
}

static void post_too_many_sends(void)
{
	struct ibv_send_wr empty = {.opcode = IBV_WR_RDMA_WRITE}, *bad;

	connect_both();
	for (unsigned i = 0; i < 1000; i++)
		END_NEED(ibv_post_send(one.id->qp, &empty, &bad) == 0);
}

static void send_unregistered(void)
{
	struct ibv_mr other;

	connect_both();
	other = *one.mr;
	other.lkey ^= 0x100;
	one.mr = &other;
	end_send(&one, 0, 100);
}

static void overrun_a_queue(void)
{
	struct ibv_send_wr empty = {.opcode = IBV_WR_RDMA_WRITE}, *bad;
	struct ibv_wc wc;

	one.cqe = 1;
	call_listener_with(&one, end_listen(&two, FAR));
	answer_caller(&two);
	END_NEED(end_expect(&one).what == RDMA_CM_EVENT_ESTABLISHED);
	/* T6 grants 14 entries. */
	for (unsigned i = 0; i < END_SLOTS; i++) {
		end_post(&one, i);
		END_NEED(ibv_post_send(one.id->qp, &empty, &bad) == 0);
	}
	usleep(50000); /* a link with a latency */
	END_NEED(rdma_disconnect(one.id) == 0);
	ibv_poll_cq(one.cq, 1, &wc);
}

static void send_without_a_receive(void)
{
	unsetenv("SIMVERBS_RNR");
	connect_both();
	for (unsigned i = 0; i < 2; i++)
		end_send(&one, i, 100);
	end_reap(&one);
	end_reap(&one);
}

static void send_first(void)
{
	connect_both();
	end_post(&one, 1);
	end_send(&two, 0, 100);
}

static void write_a_send(void)
{
	connect_both();
	END_NEED(end_send(&one, 0, 100) == 0);
	one.memory[99] ^= 1;
	end_reap(&one);
}

static void write_a_receive(void)
{
	connect_both();
	two.memory[END_BYTES / 2] = 1;
}

static void read_a_receive(void)
{
	connect_both();
	END_NEED(((volatile uint8_t *)two.memory)[0] != 0x5a);
}

/* Too small for a page of its own. */
static void post_little(struct end *e)
{
	struct ibv_sge range = {(uintptr_t)e->memory + END_BYTES, 100, e->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &range, .num_sge = 1}, *bad;

	END_NEED(ibv_post_recv(e->id->qp, &wr, &bad) == 0);
}

static void connect_with_little(void)
{
	call_listener(&one, end_listen(&two, FAR), ACK_TIMEOUT);
	{
		struct end_event request;

		end_take(&two, &request);
		end_equip(&two, 0, 0);
		post_little(&two);
		END_NEED(end_accept(&two, 0) == 0);
	}
	END_NEED(end_expect(&one).what == RDMA_CM_EVENT_ESTABLISHED);
	END_NEED(end_expect(&two).what == RDMA_CM_EVENT_ESTABLISHED);
}

static void write_a_little_receive(void)
{
	connect_with_little();
	two.memory[END_BYTES + 99] ^= 1;
	END_NEED(end_send(&one, 0, 50) == 0);
	end_reap(&two);
}

static void write_before_the_completion(void)
{
	connect_with_little();
	END_NEED(end_send(&one, 0, 50) == 0);
	end_reap(&one);
	two.memory[END_BYTES + 49] ^= 1;
	end_reap(&two);
}

static void write_a_flushed_receive(void)
{
	connect_with_little();
	two.memory[END_BYTES] ^= 1;
	rdma_disconnect(two.id);
	end_reap(&two);
}

static void destroy_a_queue_in_use(void)
{
	equip_one();
	ibv_destroy_cq(one.cq);
}

static void destroy_a_channel_in_use(void)
{
	equip_one();
	ibv_destroy_comp_channel(one.channel);
}

static void free_a_domain_in_use(void)
{
	equip_one();
	ibv_dealloc_pd(one.pd);
}

static void destroy_an_id_in_use(void)
{
	equip_one();
	rdma_destroy_id(one.id);
}

static void destroy_events_in_use(void)
{
	uint16_t port = end_listen(&two, FAR);

	end_resolve(&one, FAR, port);
	end_equip(&one, 0, 0);
	END_NEED(end_connect(&one, NULL, 0, 0) == 0);
	usleep(100000);
	rdma_destroy_event_channel(two.events);
}

static void close_the_shared_device(void)
{
	equip_one();
	ibv_close_device(one.id->verbs);
}

static void acknowledge_nothing(void)
{
	equip_one();
	ibv_ack_cq_events(one.cq, 1);
}

static void forget_an_event(void)
{
	struct ibv_cq *cq;
	void *context;

	connect_both();
	END_NEED(ibv_req_notify_cq(one.cq, 0) == 0);
	END_NEED(end_send(&one, 0, 100) == 0);
	END_NEED(ibv_get_cq_event(one.channel, &cq, &context) == 0);
	rdma_destroy_qp(one.id);
	ibv_destroy_cq(one.cq);
}

static void forget_an_event_of_an_id(void)
{
	struct rdma_cm_event *event;

	one.events = rdma_create_event_channel();
	END_NEED(rdma_create_id(one.events, &one.id, NULL, RDMA_PS_TCP) == 0);
	end_listen(&two, FAR);
	END_NEED(rdma_resolve_addr(one.id, NULL, rdma_get_local_addr(two.listener), 1000) == 0);
	END_NEED(rdma_get_cm_event(one.events, &event) == 0);
	rdma_destroy_id(one.id);
}

static bool leaks_on_purpose;

/* LeakSanitizer asks at the exit. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return leaks_on_purpose;
}

static void forget_to_free(void)
{
	setenv("SIMVERBS_LEAKS", "1", 1);
	leaks_on_purpose = true;
	equip_one();
	close(STDOUT_FILENO); /* what cmocka has not written yet is the parent's */
	exit(0);
}

static void test_misuse_ends_the_program(void **state)
{
	static const struct {
		void (*fn)(void);
		const char *said;
	} misuses[] = {
		{register_what_forks_copy, "are not excluded from forks"},
		{post_too_many_receives, "receives of the queue are in use"},
		{receive_unregistered, "ibv_post_recv: 262144 bytes at"},
		{post_too_many_sends, "entries of the send queue are in use"},
		{send_unregistered, "ibv_post_send: 100 bytes at"},
		{overrun_a_queue, "overruns: "},
		{send_without_a_receive, "its peer has no receive posted"},
		{write_a_send, "the memory of a send changed before its completion"},
		{write_a_receive, "the memory of a posted receive was touched at"},
		{read_a_receive, "the memory of a posted receive was touched at"},
		{write_a_little_receive, "the memory of a posted receive was written to"},
		{write_before_the_completion, "the memory of a posted receive was written to"},
		{write_a_flushed_receive, "the memory of a posted receive was written to"},
		{destroy_a_queue_in_use, "ibv_destroy_cq: a queue pair still uses it"},
		{destroy_a_channel_in_use, "a completion queue still uses it"},
		{free_a_domain_in_use, "regions and queue pairs are still in it"},
		{destroy_an_id_in_use, "its queue pair was not destroyed"},
		{destroy_events_in_use, "an id still has events on it"},
		{close_the_shared_device, "the context is librdmacm's"},
		{acknowledge_nothing, "ibv_ack_cq_events: more than there were"},
		{forget_an_event, "ibv_destroy_cq: 1 events were not acknowledged"},
		{forget_an_event_of_an_id, "rdma_destroy_id: 1 events were not acknowledged"},
		{forget_to_free, "exit with 1 protection domains"},
	};

	(void)state;
	for (unsigned i = 0; i < sizeof misuses / sizeof *misuses; i++)
		expect_misuse(misuses[i].fn, misuses[i].said);
	if (iwarp)
		expect_misuse(send_first, "on iWARP the connecting end must send first");
}

/* What is complete belongs to the program. */
static int touch_what_is_complete(void)
{
	struct end near = {0}, far = {0};

	connect_ends(&near, &far);
	END_NEED(end_send(&near, 1, 100) == 0);
	END_NEED(end_reap(&near).status == IBV_WC_SUCCESS);
	END_NEED(end_reap(&far).status == IBV_WC_SUCCESS);
	near.memory[END_BYTES] = far.memory[0] = far.memory[END_BYTES - 1] = 1;
	end_post(&far, 0);
	END_NEED(rdma_disconnect(far.id) == 0);
	END_NEED(end_reap(&far).status == IBV_WC_WR_FLUSH_ERR);
	far.memory[0] = far.memory[END_BYTES - 1] = 1;
	/* Nor is anything posted without its queue pair. */
	rdma_destroy_qp(near.id);
	memset(near.memory, 1, END_BYTES);
	end_close(&near);
	end_close(&far);
	return 0;
}

/* Verbs allow that; what arrives for the receive is an error. */
static int deregister_what_is_posted(void)
{
	struct end near = {0}, far = {0};

	connect_ends(&near, &far);
	END_NEED(ibv_dereg_mr(far.mr) == 0);
	far.mr = NULL;
	memset(far.memory, 1, END_BYTES);
	END_NEED(end_send(&near, 0, 100) == 0);
	END_NEED(end_reap(&far).status == IBV_WC_LOC_PROT_ERR);
	END_NEED(end_reap(&near).status == (iwarp ? IBV_WC_SUCCESS : IBV_WC_REM_OP_ERR));
	END_NEED(far.memory[0] == 1);
	end_close(&near);
	end_close(&far);
	return 0;
}

static void test_memory_is_the_programs_after_the_completion(void **state)
{
	(void)state;
	run_with("", touch_what_is_complete);
	run_with("", deregister_what_is_posted);
}

/* ---- limits ----------------------------------------------------------------------------- */

static int register_too_much(void)
{
	struct rlimit little = {64 << 10, 64 << 10};
	struct end e = {0};
	void *page = NULL;
	struct ibv_pd *pd;

	END_NEED(setrlimit(RLIMIT_MEMLOCK, &little) == 0);
	END_NEED(setresuid(NOBODY, NOBODY, NOBODY) == 0);
	end_resolve(&e, FAR, 9);
	pd = ibv_alloc_pd(e.id->verbs);
	END_NEED(posix_memalign(&page, 4096, 128 << 10) == 0);
	END_NEED(pd && !ibv_reg_mr(pd, page, 128 << 10, IBV_ACCESS_LOCAL_WRITE) && errno == ENOMEM);
	e.mr = ibv_reg_mr(pd, page, 32 << 10, IBV_ACCESS_LOCAL_WRITE);
	END_NEED(e.mr != NULL);
	e.pd = pd;
	end_close(&e);
	free(page);
	return 0;
}

static void test_locked_memory_of_others_than_root(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	if (geteuid() != 0)
		skip();
	pid = fork();
	if (pid == 0)
		_exit(register_too_much());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* Which of four huge pages' ranges are huge: the program wants them in the first three, unmaps the
 * second, and changes its mind about the third. */
static int register_huge_pages(void)
{
	enum { HUGE = 2 << 20, PAGES = 4 };
	static const bool fails[PAGES] = {true, false, false, false};
	int fixed = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
	struct ibv_mr *mr[PAGES];
	struct end e = {0};
	uint8_t *at;

	setenv("SIMVERBS_FORK", "1", 1);
	end_resolve(&e, FAR, 9);
	e.pd = ibv_alloc_pd(e.id->verbs);
	at = mmap(NULL, PAGES * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	END_NEED(e.pd && at != MAP_FAILED);
	madvise(at, 3 * HUGE, MADV_HUGEPAGE);
	END_NEED(munmap(at + HUGE, HUGE) == 0);
	END_NEED(mmap(at + HUGE, HUGE, PROT_READ | PROT_WRITE, fixed, -1, 0) == at + HUGE);
	madvise(at + 2 * HUGE, HUGE, MADV_NOHUGEPAGE);
	END_NEED(madvise(at, PAGES * HUGE, MADV_DONTFORK) == 0);
	for (int i = 0; i < PAGES; i++) {
		mr[i] = ibv_reg_mr(e.pd, at + i * HUGE + 4096, 4096, IBV_ACCESS_LOCAL_WRITE);
		END_NEED(fails[i] ? has_none(mr[i]) : mr[i] && ibv_dereg_mr(mr[i]) == 0);
	}
	munmap(at, PAGES * HUGE);
	end_close(&e);
	return 0;
}

static void test_an_adapter_that_refuses_huge_pages(void **state)
{
	char rule[32];

	(void)state;
	snprintf(rule, sizeof rule, "fail:huge,n=0,errno=%d", EPROTO);
	run_with(rule, register_huge_pages);
}

static void test_what_an_adapter_has(void **state)
{
	struct ibv_device_attr device;
	struct ibv_port_attr port;
	struct end e = {0};

	(void)state;
	end_resolve(&e, FAR, 9);
	end_equip(&e, 0, 0);
	assert_int_equal(ibv_query_device(e.id->verbs, &device), 0);
	assert_int_equal(ibv_query_port(e.id->verbs, e.id->port_num, &port), 0);
	assert_int_equal(port.state, IBV_PORT_ACTIVE);
	assert_int_equal(port.link_layer, strstr(getenv("SLUICE_SIM"), "-ib")
						  ? IBV_LINK_LAYER_INFINIBAND
						  : IBV_LINK_LAYER_ETHERNET);
	assert_true(device.max_qp_wr > 0 && port.max_msg_sz >= 8 << 20);
	assert_null(ibv_create_cq(e.id->verbs, device.max_cqe + 1, NULL, NULL, 0));
	end_close(&e);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_messages_of_all_sizes),
		cmocka_unit_test(test_two_users_others_than_root),
		cmocka_unit_test(test_a_sandbox_of_landlock),
		cmocka_unit_test(test_writes),
		cmocka_unit_test(test_a_peer_that_is_killed),
		cmocka_unit_test(test_a_rejection_has_its_reason),
		cmocka_unit_test(test_nobody_listens),
		cmocka_unit_test(test_both_ends_disconnect_and_wait),
		cmocka_unit_test(test_stale_queue_pairs),
		cmocka_unit_test(test_events_early_late_and_twice),
		cmocka_unit_test(test_a_port_goes_down_and_up),
		cmocka_unit_test(test_an_adapter_is_pulled_out_and_put_back),
		cmocka_unit_test(test_a_fatal_error_of_a_queue_pair),
		cmocka_unit_test(test_ordered_events_of_an_adapter),
		cmocka_unit_test(test_each_call_fails_as_ordered),
		cmocka_unit_test(test_an_unknown_rule_ends_the_program),
		cmocka_unit_test(test_no_receive_is_posted),
		cmocka_unit_test(test_a_send_waits_for_a_receive),
		cmocka_unit_test(test_a_queue_does_not_starve_the_other),
		cmocka_unit_test(test_an_ordered_status_of_a_receive),
		cmocka_unit_test(test_misuse_ends_the_program),
		cmocka_unit_test(test_memory_is_the_programs_after_the_completion),
		cmocka_unit_test(test_locked_memory_of_others_than_root),
		cmocka_unit_test(test_an_adapter_that_refuses_huge_pages),
		cmocka_unit_test(test_what_an_adapter_has),
	};
	struct ibv_device **list;

	/* In a child: what is made here must not be there in the children of the tests. */
	if (!getenv("SIMVERBS") || !getenv("SLUICE_SIM")) {
		fputs("SIMVERBS and SLUICE_SIM are not set\n", stderr);
		return 77;
	}
	signal(SIGPIPE, SIG_IGN);
	setenv("SIMVERBS_RNR", "allowed", 1);
	unsetenv("SIMVERBS_FORK");
	list = ibv_get_device_list(NULL);
	iwarp = list && list[0] && list[0]->transport_type == IBV_TRANSPORT_IWARP;
	ibv_free_device_list(list);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
