/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters as read from recorded sysfs trees. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail
#include <arpa/inet.h>
#include "host/adapter.h"
#include "recorded.h"

static const char *sys(const char *tree)
{
	static char path[4200];

	snprintf(path, sizeof path, "%s/sys", recorded(tree));
	return path;
}

/* Port 1 of a device. */
static struct adapter one(const char *tree, const char *device)
{
	struct adapter *all, found = {.port = 0};
	unsigned count;

	assert_int_equal(adapters_list(sys(tree), &all, &count), 0);
	for (unsigned i = 0; i < count; i++)
		if (strcmp(all[i].device, device) == 0)
			found = all[i];
	free(all);
	assert_int_equal(found.port, 1);
	return found;
}

static union address ipv4(const char *text)
{
	union address a = {.in4 = {.sin_family = AF_INET}};

	assert_int_equal(inet_pton(AF_INET, text, &a.in4.sin_addr), 1);
	return a;
}

static void roce_rate_is_limited_by_a_narrow_slot(void **state)
{
	struct adapter a = one("roce-x8", "mlx5_0");

	(void)state;
	assert_int_equal(a.kind, ADAPTER_ROCE);
	assert_int_equal(a.state, PORT_ACTIVE);
	assert_string_equal(a.state_text, "ACTIVE");
	assert_string_equal(a.physical, "LinkUp");
	assert_string_equal(a.link_layer, "Ethernet");
	assert_int_equal(a.rate_mbits, 100000);
	assert_int_equal(a.width, 4);
	assert_string_equal(a.netdev, "eth2");
	assert_int_equal(a.netdev_mtu, 1500);
	assert_string_equal(a.driver, "mlx5_core");
	assert_string_equal(a.model, "MT4119");
	assert_string_equal(a.board, "MT_0000000008");
	assert_string_equal(a.firmware, "16.35.2000");
	assert_string_equal(a.node_guid, "b859:9f03:0012:3456");
	assert_string_equal(a.pci, "0000:3b:00.0");
	assert_false(a.software);
	assert_int_equal(a.numa_node, 1);
	assert_int_equal(a.pcie_now.mtransfers, 8000);
	assert_int_equal(a.pcie_now.width, 8);
	assert_int_equal(a.pcie_adapter.width, 16);
	assert_int_equal(a.pcie_slot.width, 8);
	/* 63 Gbit/s minus the packet overhead. */
	assert_in_range(pcie_mbits(&a.pcie_now), 50000, 63000);
	assert_in_range(pcie_mbits(&a.pcie_adapter), 100000, 126000);
}

/* Neither rxe nor siw: its network device is known only by its GIDs. */
static void unknown_software_adapter_is_recognized(void **state)
{
	struct adapter a = one("software", "soft0");

	(void)state;
	assert_true(a.software);
	assert_int_equal(a.kind, ADAPTER_ROCE);
	assert_string_equal(a.netdev, "eth9");
	assert_int_equal(a.netdev_mtu, 4200);
	assert_string_equal(a.driver, "");
}

static void down_port_is_reported(void **state)
{
	struct adapter a = one("roce-x8", "mlx5_1");

	(void)state;
	assert_int_equal(a.state, PORT_DOWN);
	assert_string_equal(a.physical, "Disabled");
	assert_string_equal(a.netdev, "eth3");
}

static void infiniband_works_without_firmware_version(void **state)
{
	struct adapter a = one("infiniband", "mlx5_0"), b = one("infiniband", "mlx5_1");

	(void)state;
	assert_int_equal(a.kind, ADAPTER_INFINIBAND);
	assert_int_equal(a.rate_mbits, 200000);
	/* Of two network devices of one function the parent sorts first, but the port decides. */
	assert_string_equal(a.netdev, "ib0");
	assert_int_equal(a.pcie_slot.mtransfers, 16000);
	assert_int_equal(b.state, PORT_INIT);
	assert_string_equal(b.firmware, "");
	assert_int_equal(b.numa_node, -1);
}

static void iwarp_at_half_link_width_is_recognized(void **state)
{
	struct adapter a = one("iwarp", "irdma0");

	(void)state;
	assert_int_equal(a.kind, ADAPTER_IWARP);
	assert_string_equal(a.netdev, "ens1");
	assert_string_equal(a.driver, "ice");
	assert_int_equal(a.pcie_now.width, 8);
	assert_int_equal(a.pcie_slot.width, 16);
}

static void missing_adapter_and_missing_sysfs_fail(void **state)
{
	const char *trees[] = {"no-driver", "there-is-no-such-tree"};

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct adapter *all, a;
		unsigned count = 7;

		assert_int_equal(adapters_list(sys(trees[i]), &all, &count), 0);
		assert_int_equal(count, 0);
		free(all);
		assert_false(adapter_at_netdev(sys(trees[i]), "eth2", &a));
	}
}

static void adapters_are_listed_in_order(void **state)
{
	struct adapter *all;
	unsigned count;

	(void)state;
	assert_int_equal(adapters_list(sys("roce-x8"), &all, &count), 0);
	assert_int_equal(count, 2);
	assert_string_equal(all[0].device, "mlx5_0");
	assert_string_equal(all[1].device, "mlx5_1");
	free(all);
}

static void preferred_gid_is_chosen(void **state)
{
	struct adapter a = one("roce-x8", "mlx5_0");
	struct adapter_gid gids[ADAPTER_GIDS_MAX], g;
	union address local = ipv4("192.168.10.1"), vlan = ipv4("192.168.100.1"),
		      other = ipv4("192.168.10.2");
	const char *root = sys("roce-x8");

	(void)state;
	/* Unset GID entries don't count. */
	assert_int_equal(adapter_gids(root, &a, gids, ADAPTER_GIDS_MAX), 6);
	assert_int_equal(adapter_gids(root, &a, gids, 3), 3);
	assert_int_equal(gids[2].type, GID_ROCE_1);
	assert_string_equal(gids[2].netdev, "eth2");
	assert_int_equal(adapter_gid_type(root, &a), GID_ROCE_2);
	assert_true(adapter_gid_for(root, &a, &local, &g));
	assert_int_equal(g.index, 3);
	assert_int_equal(g.type, GID_ROCE_2);
	assert_true(adapter_gid_for(root, &a, &vlan, &g));
	assert_int_equal(g.index, 5);
	assert_false(adapter_gid_for(root, &a, &other, &g));
}

static void lower_devices_of_network_devices_are_found(void **state)
{
	static const struct {
		const char *tree, *netdev, *device;
	} of[] = {
		{"roce-x8", "eth2", "mlx5_0"},     {"roce-x8", "eth3", "mlx5_1"},
		{"roce-x8", "eth2.100", "mlx5_0"}, {"roce-x8", "br0", "mlx5_0"},
		{"roce-x8", "lo", NULL},           {"roce-x8", "eth7", NULL},
		{"infiniband", "ib0", "mlx5_0"},   {"infiniband", "ib0.8001", "mlx5_0"},
		{"infiniband", "ib1", "mlx5_1"},   {"iwarp", "ens1", "irdma0"},
	};

	(void)state;
	for (unsigned i = 0; i < sizeof of / sizeof *of; i++) {
		struct adapter a;
		bool found = adapter_at_netdev(sys(of[i].tree), of[i].netdev, &a);

		assert_int_equal(found, of[i].device != NULL);
		if (found)
			assert_string_equal(a.device, of[i].device);
	}
}

static void addresses_lead_to_adapters(void **state)
{
	union address loopback = ipv4("127.0.0.1"), nobody = ipv4("192.0.2.77");
	struct adapter a;
	char netdev[ADAPTER_TEXT];

	(void)state;
	assert_true(netdev_of_address(&loopback, netdev, sizeof netdev));
	assert_string_equal(netdev, "lo");
	assert_false(adapter_behind(sys("roce-x8"), &loopback, &a));
	assert_false(adapter_behind(sys("roce-x8"), &nobody, &a));
}

static void processors_of_nodes_are_read(void **state)
{
	cpu_set_t cpus;

	(void)state;
	assert_true(numa_node_cpus(sys("roce-x8"), 1, &cpus));
	assert_int_equal(CPU_COUNT(&cpus), 32);
	assert_true(CPU_ISSET(16, &cpus) && CPU_ISSET(31, &cpus) && CPU_ISSET(48, &cpus));
	assert_false(CPU_ISSET(15, &cpus) || CPU_ISSET(32, &cpus));
	assert_false(numa_node_cpus(sys("roce-x8"), 2, &cpus));
	assert_false(numa_node_cpus(sys("roce-x8"), -1, &cpus));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(roce_rate_is_limited_by_a_narrow_slot),
		cmocka_unit_test(unknown_software_adapter_is_recognized),
		cmocka_unit_test(down_port_is_reported),
		cmocka_unit_test(infiniband_works_without_firmware_version),
		cmocka_unit_test(iwarp_at_half_link_width_is_recognized),
		cmocka_unit_test(missing_adapter_and_missing_sysfs_fail),
		cmocka_unit_test(adapters_are_listed_in_order),
		cmocka_unit_test(preferred_gid_is_chosen),
		cmocka_unit_test(lower_devices_of_network_devices_are_found),
		cmocka_unit_test(addresses_lead_to_adapters),
		cmocka_unit_test(processors_of_nodes_are_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
