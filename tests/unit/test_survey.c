/* SPDX-License-Identifier: Apache-2.0 */
/* What rdcheck finds on recorded hosts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail
#include <sys/resource.h>
#include "cmd/survey.h"
#include "recorded.h"

enum { MOST = 64 };

struct found {
	struct msg_finding of[MOST];
	unsigned count;
};

static void keep(void *ctx, const struct msg_finding *m)
{
	struct found *f = ctx;

	if (f->count < MOST)
		f->of[f->count++] = *m;
}

static struct found survey(const char *tree)
{
	static struct found f;
	struct survey s = {.found = keep, .ctx = &f};

	f.count = 0;
	s.top = recorded(tree);
	assert_int_equal(survey_host(&s), 0);
	return f;
}

static const struct msg_finding *find(const struct found *f, const char *name, const char *subject)
{
	for (unsigned i = 0; i < f->count; i++)
		if (strcmp(f->of[i].name, name) == 0 && strcmp(f->of[i].subject, subject) == 0)
			return &f->of[i];
	return NULL;
}

/* It is there, in this state, and says all these words. */
static void says(const struct found *f, const char *name, const char *subject,
		 enum finding_state state, const char *what, const char *remedy)
{
	const struct msg_finding *m = find(f, name, subject);

	if (!m)
		print_error("nothing is said of %s %s\n", name, subject);
	assert_non_null(m);
	if (m->state != state || !strstr(m->what, what) || !strstr(m->remedy, remedy) ||
	    (!remedy[0] && state == FINDING_OK && m->remedy[0]))
		print_error("%s %s: %u \"%s\" \"%s\"\n", name, subject, m->state, m->what,
			    m->remedy);
	assert_int_equal(m->state, state);
	assert_non_null(strstr(m->what, what));
	assert_non_null(strstr(m->remedy, remedy));
	assert_true(remedy[0] || state != FINDING_OK || !m->remedy[0]);
}

static void roce_in_a_narrow_slot(void **state)
{
	struct found f = survey("roce-x8");

	(void)state;
	says(&f, "modules", "", FINDING_OK, "are there", "");
	says(&f, "devices", "", FINDING_OK, "may be opened", "");
	says(&f, "port", "mlx5_0 port 1", FINDING_OK,
	     "ACTIVE, LinkUp, RoCE, 100 Gb/sec (4X EDR), eth2, mlx5_core", "");
	says(&f, "pcie", "mlx5_0 port 1", FINDING_WARNING,
	     "8.0 GT/s x8 at 0000:3b:00.0 is narrower than the adapter can (8.0 GT/s x16)",
	     "the slot at this place has no more");
	says(&f, "mtu", "mlx5_0 port 1", FINDING_WARNING, "hold 1024 bytes, since eth2",
	     "ip link set dev eth2 mtu 9000");
	says(&f, "gid", "mlx5_0 port 1", FINDING_OK, "RoCE v2", "");
	says(&f, "gid", "mlx5_0 port 1", FINDING_OK, "3 ::ffff:192.168.10.1", "");
	says(&f, "firmware", "mlx5_0 port 1", FINDING_INFO, "16.35.2000, model MT4119", "");
	assert_non_null(find(&f, "numa", "mlx5_0 port 1"));
	assert_non_null(strstr(find(&f, "numa", "mlx5_0 port 1")->what, "node 1"));
	says(&f, "port", "mlx5_1 port 1", FINDING_WARNING, "DOWN, Disabled",
	     "ip link set dev eth3 up");
	assert_null(find(&f, "gid", "mlx5_1 port 1"));
}

static void infiniband_that_lacks_nothing(void **state)
{
	struct found f = survey("infiniband");

	(void)state;
	says(&f, "port", "mlx5_0 port 1", FINDING_OK, "ACTIVE, LinkUp, InfiniBand, 200 Gb/sec", "");
	says(&f, "pcie", "mlx5_0 port 1", FINDING_OK, "16.0 GT/s x16", "");
	says(&f, "port", "mlx5_1 port 1", FINDING_WARNING, "INIT", "opensm");
	says(&f, "firmware", "mlx5_1 port 1", FINDING_INFO, "does not tell its version", "");
	assert_null(find(&f, "numa", "mlx5_1 port 1"));
}

static void iwarp_that_lacks_a_module(void **state)
{
	struct found f = survey("iwarp");

	(void)state;
	says(&f, "modules", "rdma_ucm", FINDING_FAILURE, "kernel module rdma_ucm is not loaded",
	     "rdma_ucm");
	says(&f, "devices", "uverbs0", FINDING_FAILURE,
	     "open /dev/infiniband/uverbs0: No such file", "--device=/dev/infiniband");
	says(&f, "port", "irdma0 port 1", FINDING_OK, "iWARP", "");
	says(&f, "pcie", "irdma0 port 1", FINDING_WARNING, "narrower", "seat the adapter again");
	says(&f, "mtu", "irdma0 port 1", FINDING_OK, "ens1 has an MTU of 9000", "");
}

static void an_adapter_without_its_driver(void **state)
{
	struct found f = survey("no-driver");

	(void)state;
	says(&f, "adapter", "", FINDING_FAILURE, "no RDMA adapter", "TCP");
	says(&f, "hardware", "0000:3b:00.0", FINDING_FAILURE, "NVIDIA/Mellanox", "mlx5_ib");
	assert_null(find(&f, "hardware", "0000:01:00.0"));
	says(&f, "modules", "", FINDING_INFO, "ib_core, ib_uverbs, rdma_ucm", "");
}

/* ---- locked memory: limits can only be lowered, so these are in this order ------------------- */

static void limit(rlim_t most)
{
	struct rlimit rl = {most, most};

	assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &rl), 0);
}

static void locked_memory_that_is_enough(void **state)
{
	struct rlimit rl;
	struct found f;

	(void)state;
	getrlimit(RLIMIT_MEMLOCK, &rl);
	if (rl.rlim_max < 8 << 20)
		skip();
	limit(8 << 20);
	f = survey("no-driver");
	says(&f, "memlock", "", FINDING_OK, "limit 8.0 MiB (hard 8.0 MiB), 2 lanes of 12", "");
	/* 200 Gbit/s want more. */
	f = survey("infiniband");
	says(&f, "memlock", "", FINDING_WARNING, "which is room for",
	     "/etc/security/limits.d/rdma.conf");
	says(&f, "memlock", "", FINDING_WARNING,
	     "\"* hard memlock unlimited\" in /etc/security/limits.d/rdma.conf", "");
}

static void locked_memory_for_less(void **state)
{
	struct found f;

	(void)state;
	limit(1 << 20);
	f = survey("roce-x8");
	says(&f, "memlock", "", FINDING_WARNING, "room for 1 lane",
	     "systemctl edit backup.service: [Service] LimitMEMLOCK=infinity");
	says(&f, "memlock", "", FINDING_WARNING, "LimitMEMLOCK= of backup.service",
	     "backup.service");
	f = survey("no-driver");
	says(&f, "memlock", "", FINDING_WARNING, "what started this container",
	     "--ulimit memlock=-1");
}

static void locked_memory_for_nothing(void **state)
{
	struct found f;

	(void)state;
	limit(64 << 10);
	f = survey("iwarp");
	says(&f, "memlock", "", FINDING_FAILURE, "fall back to TCP",
	     "/etc/security/limits.d/rdma.conf and log in again");
	/* Without an adapter it is not what is missing. */
	f = survey("no-driver");
	says(&f, "memlock", "", FINDING_WARNING, "fall back to TCP", "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(roce_in_a_narrow_slot),
		cmocka_unit_test(infiniband_that_lacks_nothing),
		cmocka_unit_test(iwarp_that_lacks_a_module),
		cmocka_unit_test(an_adapter_without_its_driver),
		cmocka_unit_test(locked_memory_that_is_enough),
		cmocka_unit_test(locked_memory_for_less),
		cmocka_unit_test(locked_memory_for_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
