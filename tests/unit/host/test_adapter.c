/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters as read from recorded sysfs trees. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail
#include <arpa/inet.h>
#include <errno.h>
#include <linux/dcbnl.h>
#include <linux/ipv6.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include "folder.h"
#include "host/adapter.h"
#include "host/dcb.h"
#include "host/numa.h"
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

/* Gives lo a link-local address. Both need root, or a namespace where this process is. */
static bool add_link_local(const union address *a)
{
	struct in6_ifreq r = {.ifr6_addr = a->in6.sin6_addr,
			      .ifr6_prefixlen = 64,
			      .ifr6_ifindex = 1};
	int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool added = fd >= 0 && ioctl(fd, SIOCSIFADDR, &r) == 0;

	close(fd);
	return added;
}

static void link_local_addresses_have_the_zone_of_their_device(void **state)
{
	union address a = {
		.in6 = {.sin6_family = AF_INET6, .sin6_addr = {{{0xfe, 0x80, [15] = 7}}}}};
	char netdev[ADAPTER_TEXT];
	bool found[3];

	(void)state;
	if ((unshare(CLONE_NEWNET) && unshare(CLONE_NEWUSER | CLONE_NEWNET)) || !add_link_local(&a))
		skip();
	for (uint32_t zone = 0; zone < 3; zone++) {
		a.in6.sin6_scope_id = zone;
		found[zone] = netdev_of_address(&a, netdev, sizeof netdev);
	}
	/* Unknown, lo, and another device. */
	assert_true(found[0] && found[1] && !found[2]);
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

/* ---- traffic. The files that these tests read are not recorded: they were made from the kernel's
 * documentation (configfs-rdma_cm, pci_regs.h) and NVIDIA's (ecn, traffic_class).
 * ------------------ */

static void type_of_service_is_read_or_unknown(void **state)
{
	struct adapter a = one("roce-x8", "mlx5_0"), b = one("roce-x8", "mlx5_1");
	char class[ADAPTER_TEXT];

	(void)state;
	assert_int_equal(adapter_default_tos(sys("roce-x8"), &a), 0);
	assert_int_equal(adapter_default_tos(sys("roce-x8"), &b), -1);
	assert_false(adapter_traffic_class(sys("roce-x8"), &a, class));
	assert_true(adapter_traffic_class(sys("roce-x8"), &b, class));
	assert_string_equal(class, "Global tclass=106");
}

static void ecn_is_read_or_unknown(void **state)
{
	struct adapter a = one("roce-x8", "mlx5_0"), b = one("roce-x8", "mlx5_1");
	uint8_t notifies, reacts;

	(void)state;
	assert_true(adapter_ecn(sys("roce-x8"), &a, &notifies, &reacts));
	assert_int_equal(notifies, 1 << 3);
	assert_int_equal(reacts, 1 << 3);
	assert_false(adapter_ecn(sys("roce-x8"), &b, &notifies, &reacts));
}

/* A PCI function whose configuration space has this many bytes; the PCI Express capability is the
 * second in the list. */
static enum pcie_ordering ordering_of(uint16_t control, size_t len)
{
	struct adapter a = {.pci = "0000:3b:00.0"};
	uint8_t config[256] = {[0x34] = 0x40, [0x40] = 0x11, 0x60, [0x60] = 0x10};
	char top[FOLDER_PATH], path[FOLDER_PATH + 80];
	enum pcie_ordering found;
	FILE *f;

	config[0x68] = (uint8_t)control;
	config[0x69] = (uint8_t)(control >> 8);
	assert_int_equal(folder_make(top), 0);
	snprintf(path, sizeof path, "mkdir -p %s/bus/pci/devices/%s", top, a.pci);
	assert_int_equal(system(path), 0);
	snprintf(path, sizeof path, "%s/bus/pci/devices/%s/config", top, a.pci);
	f = fopen(path, "w");
	assert_non_null(f);
	assert_int_equal(fwrite(config, 1, len, f), len);
	fclose(f);
	found = adapter_ordering(top, &a);
	assert_int_equal(folder_remove(top), 0);
	return found;
}

static void ordering_is_read_or_unknown(void **state)
{
	struct adapter none = one("roce-x8", "mlx5_1");

	(void)state;
	assert_int_equal(ordering_of(0x2936, 256), PCIE_ORDER_RELAXED);
	assert_int_equal(ordering_of(0x2926, 256), PCIE_ORDER_STRICT);
	/* what users other than root may read */
	assert_int_equal(ordering_of(0x2936, 64), PCIE_ORDER_UNKNOWN);
	assert_int_equal(adapter_ordering(sys("roce-x8"), &none), PCIE_ORDER_UNKNOWN);
}

/* ---- data center bridging
 * ------------------------------------------------------------------------ */

struct answer {
	uint8_t bytes[512];
	size_t len;
};

static size_t begin_attribute(struct answer *a, uint16_t type)
{
	struct nlattr head = {.nla_type = type};

	memcpy(a->bytes + a->len, &head, sizeof head);
	a->len += sizeof head;
	return a->len - sizeof head;
}

static void end_attribute(struct answer *a, size_t at)
{
	uint16_t len = (uint16_t)(a->len - at);

	memcpy(a->bytes + at, &len, sizeof len);
	a->len = at + NLA_ALIGN(len);
}

static void add_attribute(struct answer *a, uint16_t type, const void *value, size_t len)
{
	size_t at = begin_attribute(a, type);

	memcpy(a->bytes + a->len, value, len);
	a->len += len;
	end_attribute(a, at);
}

/* Priority 3 is lossless, and DSCPs 26 and 46 have priorities 3 and 5. */
static struct answer make_answer(void)
{
	struct answer a = {.len = NLMSG_LENGTH(sizeof(struct dcbmsg))};
	struct ieee_pfc pfc = {.pfc_cap = 8, .pfc_en = 1 << 3};
	struct dcb_app apps[] = {
		{IEEE_8021QAZ_APP_SEL_DSCP, 3, 26},          {IEEE_8021QAZ_APP_SEL_DSCP, 5, 46},
		{IEEE_8021QAZ_APP_SEL_ETHERTYPE, 2, 0x8915}, {IEEE_8021QAZ_APP_SEL_DSCP, 3, 64},
		{IEEE_8021QAZ_APP_SEL_DSCP, 8, 10},          {IEEE_8021QAZ_APP_SEL_ETHERTYPE, 4, 0},
	};
	struct nlmsghdr head = {.nlmsg_type = RTM_GETDCB};
	size_t ieee, table;

	add_attribute(&a, DCB_ATTR_IFNAME, "eth2", 5);
	ieee = begin_attribute(&a, DCB_ATTR_IEEE | NLA_F_NESTED);
	add_attribute(&a, DCB_ATTR_IEEE_PFC, &pfc, sizeof pfc);
	table = begin_attribute(&a, DCB_ATTR_IEEE_APP_TABLE);
	for (unsigned i = 0; i < sizeof apps / sizeof *apps; i++)
		add_attribute(&a, DCB_ATTR_IEEE_APP, &apps[i], sizeof apps[i]);
	end_attribute(&a, table);
	end_attribute(&a, ieee);
	head.nlmsg_len = (uint32_t)a.len;
	memcpy(a.bytes, &head, sizeof head);
	return a;
}

static void flow_control_and_priorities_are_decoded(void **state)
{
	struct answer a = make_answer();
	struct dcb d;

	(void)state;
	assert_int_equal(dcb_decode(a.bytes, a.len, &d), 0);
	assert_true(d.has_pfc && d.has_dscps);
	assert_int_equal(d.pfc, 1 << 3);
	assert_int_equal(d.default_priority, 4);
	for (int i = 0; i < DCB_DSCPS; i++)
		assert_int_equal(d.priority[i], i == 26 ? 3 : i == 46 ? 5 : -1);
}

static void damaged_answers_are_harmless(void **state)
{
	struct nlmsgerr error = {.error = -EOPNOTSUPP};
	struct nlmsghdr head = {.nlmsg_len = NLMSG_LENGTH(sizeof error), .nlmsg_type = NLMSG_ERROR};
	struct answer a = make_answer(), no = {.len = NLMSG_LENGTH(sizeof error)};
	struct dcb d;

	(void)state;
	for (size_t len = 0; len < a.len; len++) {
		uint8_t *cut = malloc(len + 1);

		memcpy(cut, a.bytes, len);
		assert_int_equal(dcb_decode(cut, len, &d), -1);
		if (len >= sizeof head) {
			memcpy(cut, &(uint32_t){(uint32_t)len}, 4);
			dcb_decode(cut, len, &d);
		}
		free(cut);
	}
	for (size_t i = sizeof head; i < a.len; i++) {
		a.bytes[i] ^= 0xff;
		dcb_decode(a.bytes, a.len, &d);
		a.bytes[i] ^= 0xff;
	}
	memcpy(no.bytes, &head, sizeof head);
	memcpy(no.bytes + NLMSG_HDRLEN, &error, sizeof error);
	assert_int_equal(dcb_decode(no.bytes, no.len, &d), -1);
	assert_int_equal(errno, EOPNOTSUPP);
}

static void loopback_has_no_flow_control(void **state)
{
	struct dcb d;

	(void)state;
	assert_int_equal(dcb_query("lo", &d), -1);
	assert_int_equal(dcb_query("a name that is too long for it", &d), -1);
	assert_int_equal(errno, ENODEV);
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
		cmocka_unit_test(link_local_addresses_have_the_zone_of_their_device),
		cmocka_unit_test(processors_of_nodes_are_read),
		cmocka_unit_test(type_of_service_is_read_or_unknown),
		cmocka_unit_test(ecn_is_read_or_unknown),
		cmocka_unit_test(ordering_is_read_or_unknown),
		cmocka_unit_test(flow_control_and_priorities_are_decoded),
		cmocka_unit_test(damaged_answers_are_harmless),
		cmocka_unit_test(loopback_has_no_flow_control),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
