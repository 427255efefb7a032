/* SPDX-License-Identifier: Apache-2.0 */
/* The findings of rdcheck on recorded hosts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include "cmd/check/survey.h"
#include "folder.h"
#include "host/dcb.h"
#include "recorded.h"
#include "rights.h"

enum { MOST = 128 };

struct found {
	struct msg_finding of[MOST];
	unsigned count;
};

static void keep_finding(void *ctx, const struct msg_finding *m)
{
	struct found *f = ctx;

	if (f->count < MOST)
		f->of[f->count++] = *m;
}

static struct found survey_at(const char *top)
{
	static struct found f;
	struct survey s = {.top = top, .found = keep_finding, .ctx = &f};

	f.count = 0;
	assert_int_equal(survey_host(&s), 0);
	return f;
}

static struct found survey_tree(const char *tree)
{
	return survey_at(recorded(tree));
}

static const struct msg_finding *find_finding(const struct found *f, const char *name,
					      const char *subject)
{
	for (unsigned i = 0; i < f->count; i++)
		if (strcmp(f->of[i].name, name) == 0 && strcmp(f->of[i].subject, subject) == 0)
			return &f->of[i];
	return NULL;
}

/* A finding exists, has this state and contains all these words. */
static void says(const struct found *f, const char *name, const char *subject,
		 enum finding_state state, const char *what, const char *remedy)
{
	const struct msg_finding *m = find_finding(f, name, subject);

	if (!m)
		print_error("no finding %s %s\n", name, subject);
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

static void roce_in_a_narrow_slot_is_a_warning(void **state)
{
	struct found f = survey_tree("roce-x8");

	(void)state;
	says(&f, "modules", "", FINDING_OK, "are loaded", "");
	says(&f, "devices", "", FINDING_OK, "may open", "");
	says(&f, "port", "mlx5_0 port 1", FINDING_OK,
	     "ACTIVE, LinkUp, RoCE, 100 Gb/sec (4X EDR), eth2, mlx5_core", "");
	says(&f, "pcie", "mlx5_0 port 1", FINDING_WARNING,
	     "8.0 GT/s x8 at 0000:3b:00.0 is narrower than the adapter supports (8.0 GT/s x16)",
	     "the slot does not support more");
	says(&f, "mtu", "mlx5_0 port 1", FINDING_WARNING, "carry 1024 bytes, since eth2",
	     "ip link set dev eth2 mtu 9000");
	says(&f, "gid", "mlx5_0 port 1", FINDING_OK, "RoCE v2", "");
	says(&f, "gid", "mlx5_0 port 1", FINDING_OK, "3 ::ffff:192.168.10.1", "");
	says(&f, "firmware", "mlx5_0 port 1", FINDING_INFO, "16.35.2000, model MT4119", "");
	assert_non_null(find_finding(&f, "numa", "mlx5_0 port 1"));
	assert_non_null(strstr(find_finding(&f, "numa", "mlx5_0 port 1")->what, "node 1"));
	says(&f, "tos", "mlx5_0 port 1", FINDING_OK, "without --tos get 0 (DSCP 0)", "");
	says(&f, "ecn", "mlx5_0 port 1", FINDING_OK, "ECN is on for priority 3", "");
	says(&f, "ordering", "mlx5_1 port 1", FINDING_INFO, "unknown", "");
	says(&f, "port", "mlx5_1 port 1", FINDING_WARNING, "DOWN, Disabled",
	     "ip link set dev eth3 up");
	assert_null(find_finding(&f, "gid", "mlx5_1 port 1"));
}

static void flow_control_needs_the_right_type_of_service(void **state)
{
	static struct found f;
	struct survey s = {.top = recorded("roce-x8"), .found = keep_finding, .ctx = &f};
	const char *name = "mlx5_0 port 1";
	struct dcb d = {.has_pfc = false};

	(void)state;
	assert_in_range(snprintf(s.sys, sizeof s.sys, "%s/sys", s.top), 1, sizeof s.sys - 1);
	assert_int_equal(adapters_list(s.sys, &s.ports, &s.port_count), 0);
	memset(d.priority, -1, sizeof d.priority);
	survey_pfc(&s, &s.ports[0], &d);
	says(&f, "pfc", name, FINDING_INFO, "unknown: the driver of eth2", "");
	d.has_pfc = true;
	f.count = 0;
	survey_pfc(&s, &s.ports[0], &d);
	says(&f, "pfc", name, FINDING_INFO, "no priority of eth2", "");
	d.pfc = 1 << 3 | 1 << 4;
	f.count = 0;
	survey_pfc(&s, &s.ports[0], &d);
	says(&f, "pfc", name, FINDING_OK, "priorities 3, 4 have", "");
	/* The default type of service is 0. */
	d.has_dscps = true;
	d.priority[26] = 3;
	f.count = 0;
	survey_pfc(&s, &s.ports[0], &d);
	says(&f, "pfc", name, FINDING_WARNING, "those without --tos do not",
	     "--tos=104, or for all programs: echo 104");
	/* A DSCP that is not mapped has the default priority. */
	d.default_priority = 4;
	f.count = 0;
	survey_pfc(&s, &s.ports[0], &d);
	says(&f, "pfc", name, FINDING_OK, "with --tos=104 get it", "");
	d.default_priority = 0;
	d.pfc |= 1 << 0;
	f.count = 0;
	survey_pfc(&s, &s.ports[0], &d);
	says(&f, "pfc", name, FINDING_OK, "with --tos=104 get it", "");
	d.pfc &= ~(1 << 0);
	d.priority[0] = 4;
	f.count = 0;
	survey_pfc(&s, &s.ports[0], &d);
	says(&f, "pfc", name, FINDING_OK, "with --tos=0 get it", "");
	/* An adapter that is not a PCI function. */
	f.count = 0;
	s.ports[0].pci[0] = '\0';
	survey_ordering(&s, &s.ports[0]);
	says(&f, "ordering", name, FINDING_INFO, "whether mlx5_0 may relax", "");
	free(s.ports);
}

static void complete_infiniband_host_has_no_warning(void **state)
{
	struct found f = survey_tree("infiniband");

	(void)state;
	says(&f, "port", "mlx5_0 port 1", FINDING_OK, "ACTIVE, LinkUp, InfiniBand, 200 Gb/sec", "");
	says(&f, "pcie", "mlx5_0 port 1", FINDING_OK, "16.0 GT/s x16", "");
	says(&f, "port", "mlx5_1 port 1", FINDING_WARNING, "INIT", "opensm");
	says(&f, "firmware", "mlx5_1 port 1", FINDING_INFO, "unknown version", "");
	assert_null(find_finding(&f, "numa", "mlx5_1 port 1"));
}

static void iwarp_without_a_module_fails(void **state)
{
	struct found f = survey_tree("iwarp");

	(void)state;
	says(&f, "modules", "rdma_ucm", FINDING_FAILURE, "kernel module rdma_ucm is not loaded",
	     "rdma_ucm");
	says(&f, "devices", "uverbs0", FINDING_FAILURE,
	     "open /dev/infiniband/uverbs0: No such file", "--device=/dev/infiniband");
	says(&f, "port", "irdma0 port 1", FINDING_OK, "iWARP", "");
	says(&f, "pcie", "irdma0 port 1", FINDING_WARNING, "narrower", "reseat the adapter");
	says(&f, "mtu", "irdma0 port 1", FINDING_OK, "ens1 has an MTU of 9000", "");
}

static void adapter_without_a_driver_is_reported(void **state)
{
	struct found f = survey_tree("no-driver");

	(void)state;
	says(&f, "adapter", "", FINDING_FAILURE, "no RDMA adapter", "TCP");
	says(&f, "hardware", "0000:3b:00.0", FINDING_FAILURE, "NVIDIA/Mellanox", "mlx5_ib");
	assert_null(find_finding(&f, "hardware", "0000:01:00.0"));
	says(&f, "modules", "", FINDING_INFO, "ib_core, ib_uverbs, rdma_ucm", "");
}

static void adapters_of_another_namespace_are_reported(void **state)
{
	struct found f = survey_tree("elsewhere");

	(void)state;
	says(&f, "port", "mlx5_0 port 1", FINDING_INFO, "in another network namespace", "");
	says(&f, "port", "efa_0 port 1", FINDING_INFO, "ACTIVE, LinkUp, other", "");
	/* Without this finding no check fails here, and rdcheck would report the host as fit. */
	says(&f, "adapter", "", FINDING_FAILURE, "in another network namespace", "--network=host");
}

static void unusual_adapters_are_reported(void **state)
{
	struct found f = survey_tree("odd");

	(void)state;
	says(&f, "pcie", "mlx5_0 port 1", FINDING_INFO, "does not report", "");
	says(&f, "mtu", "mlx5_0 port 1", FINDING_OK, "ib0 has an MTU of 2044", "");
	says(&f, "gid", "mlx5_0 port 1", FINDING_OK, "0 fe80::ba59:9f03:12:3456", "");
	says(&f, "port", "mlx5_1 port 1", FINDING_WARNING, "DOWN, Disabled, InfiniBand",
	     "ibportstate -C mlx5_1 -D 0 1 enable");
	/*
	 * A virtual function has the link of its physical function; its own slot files are
	 * meaningless.
	 */
	says(&f, "pcie", "mlx5_1 port 1", FINDING_WARNING,
	     "16.0 GT/s x8 at 0000:5e:00.0 is narrower than the adapter supports (16.0 GT/s x16)",
	     "lspci -vv -s 0000:5e:00.0");
	says(&f, "mtu", "mlx4_0 port 1", FINDING_OK, "4096, eth4 9000", "");
	says(&f, "tos", "mlx4_0 port 1", FINDING_INFO, "unknown", "mkdir");
	says(&f, "ecn", "mlx4_0 port 1", FINDING_INFO, "unknown", "");
	says(&f, "gid", "mlx4_0 port 1", FINDING_WARNING, "RoCE v1, which is Ethernet without IP",
	     "cma_roce_mode -d mlx4_0 -p 1 -m 2");
	assert_null(strstr(find_finding(&f, "gid", "mlx4_0 port 1")->what, "UDP"));
	says(&f, "port", "mlx5_9 port 1", FINDING_INFO, "state unknown, other", "");
	/* The second function of a bond has no RDMA device of its own. */
	assert_null(find_finding(&f, "hardware", "0000:af:00.1"));
	assert_null(find_finding(&f, "adapter", ""));
}

static void make_file(const char *dir, const char *name, const char *text)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof path, "%s/%s", dir, name);
	f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

/* A virtual function without a driver. */
static void make_function(const char *devices, unsigned n)
{
	char dir[96], driver[128];

	snprintf(dir, sizeof dir, "%s/0001:%02x:%02x.%u", devices, n / 256, n % 256 / 8, n % 8);
	assert_int_equal(mkdir(dir, 0700), 0);
	make_file(dir, "class", "0x020000\n");
	make_file(dir, "vendor", "0x15b3\n");
	snprintf(driver, sizeof driver, "%s/driver", dir);
	assert_int_equal(symlink("../../drivers/mlx5_core", driver), 0);
}

static void virtual_functions_without_drivers_are_counted(void **state)
{
	enum { FUNCTIONS = 600 };
	char top[FOLDER_PATH], devices[64], command[128];
	unsigned told = 0;
	struct found f;

	(void)state;
	assert_int_equal(folder_make(top), 0);
	snprintf(devices, sizeof devices, "%s/sys/bus/pci/devices", top);
	snprintf(command, sizeof command, "mkdir -p %s", devices);
	assert_int_equal(system(command), 0);
	for (unsigned i = 0; i < FUNCTIONS; i++)
		make_function(devices, i);
	f = survey_at(top);
	assert_int_equal(folder_remove(top), 0);
	for (unsigned i = 0; i < f.count; i++)
		told += f.of[i].state == FINDING_FAILURE && !strcmp(f.of[i].name, "hardware");
	assert_in_range(told, 1, 20);
	says(&f, "hardware", "", FINDING_INFO, "more PCI functions", "");
}

/* ---- locked memory: limits can only be lowered, so the order of these tests matters ---------- */

static void lower_limit(rlim_t most)
{
	struct rlimit rl = {most, most};

	right_set(CAP_SYS_RESOURCE, false);
	right_set(CAP_IPC_LOCK, false);
	assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &rl), 0);
}

/* As root in most containers. False: this process may not, or only in a user namespace. */
static bool exceed_limit(void)
{
	struct stat st;

	return stat("/proc/self/ns/user", &st) == 0 && st.st_ino == 0xeffffffd &&
	       right_set(CAP_IPC_LOCK, true);
}

static void sufficient_locked_memory_passes(void **state)
{
	struct rlimit rl;
	struct found f;

	(void)state;
	getrlimit(RLIMIT_MEMLOCK, &rl);
	if (rl.rlim_max < 8 << 20)
		skip();
	lower_limit(8 << 20);
	f = survey_tree("no-driver");
	says(&f, "memlock", "", FINDING_OK, "limit 8.0 MiB (hard 8.0 MiB); 2 lanes of 12", "");
	/*
	 * 200 Gbit/s need more, and the user has not logged in since the limits.d lines were added.
	 */
	f = survey_tree("infiniband");
	says(&f, "memlock", "", FINDING_WARNING, "enough for", "log in again");
	says(&f, "memlock", "", FINDING_WARNING,
	     "but not by \"* hard memlock unlimited\" in /etc/security/limits.d/rdma.conf", "");
	/* A limits.d line for a group that this user is not in. */
	f = survey_tree("odd");
	says(&f, "memlock", "", FINDING_WARNING, "no line in /etc/security sets memlock for this",
	     "/etc/security/limits.d/rdma.conf");
	if (!exceed_limit())
		return;
	f = survey_tree("infiniband");
	says(&f, "memlock", "", FINDING_OK,
	     "this user may exceed it, and others with this limit get ", "");
}

static void little_locked_memory_is_a_warning(void **state)
{
	struct found f;

	(void)state;
	lower_limit(1 << 20);
	f = survey_tree("roce-x8");
	says(&f, "memlock", "", FINDING_WARNING, "enough for 1 lane",
	     "systemctl edit backup.service: [Service] LimitMEMLOCK=infinity");
	says(&f, "memlock", "", FINDING_WARNING, "LimitMEMLOCK= of backup.service",
	     "backup.service");
	f = survey_tree("no-driver");
	says(&f, "memlock", "", FINDING_WARNING, "the runtime of this container",
	     "--ulimit memlock=-1");
}

static void insufficient_locked_memory_fails(void **state)
{
	struct found f;

	(void)state;
	lower_limit(64 << 10);
	f = survey_tree("iwarp");
	says(&f, "memlock", "", FINDING_FAILURE, "fall back to TCP",
	     "/etc/security/limits.d/rdma.conf and log in again");
	/* Without an adapter, locked memory is not what is missing. */
	f = survey_tree("no-driver");
	says(&f, "memlock", "", FINDING_WARNING, "fall back to TCP", "");
}

static void limit_that_does_not_bind_this_user_passes(void **state)
{
	struct found f;

	(void)state;
	lower_limit(64 << 10);
	if (!exceed_limit())
		return;
	f = survey_tree("iwarp");
	says(&f, "memlock", "", FINDING_OK,
	     "(hard 64 KiB); this user may exceed it, and others with this limit get TCP; 2 lanes",
	     "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(roce_in_a_narrow_slot_is_a_warning),
		cmocka_unit_test(flow_control_needs_the_right_type_of_service),
		cmocka_unit_test(complete_infiniband_host_has_no_warning),
		cmocka_unit_test(iwarp_without_a_module_fails),
		cmocka_unit_test(adapter_without_a_driver_is_reported),
		cmocka_unit_test(adapters_of_another_namespace_are_reported),
		cmocka_unit_test(unusual_adapters_are_reported),
		cmocka_unit_test(virtual_functions_without_drivers_are_counted),
		cmocka_unit_test(sufficient_locked_memory_passes),
		cmocka_unit_test(little_locked_memory_is_a_warning),
		cmocka_unit_test(insufficient_locked_memory_fails),
		cmocka_unit_test(limit_that_does_not_bind_this_user_passes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
