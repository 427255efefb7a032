/* SPDX-License-Identifier: Apache-2.0 */

/* Adapters: the class of their traffic, congestion control, and the order of PCIe writes. */

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/io.h"
#include "host/adapter.h"
#include "host/sysfs.h"

/* ---- the type of service --------------------------------------------------------------------- */

int adapter_default_tos(const char *root, const struct adapter *a)
{
	/* Linux, Documentation/ABI/testing/configfs-rdma_cm. */
	long tos = sysfs_number(-1, "%s/kernel/config/rdma_cm/%s/ports/%u/default_roce_tos",
				sysfs_root(root), a->device, a->port);

	return tos >= 0 && tos <= 255 ? (int)tos : -1;
}

bool adapter_traffic_class(const char *root, const struct adapter *a, char to[static ADAPTER_TEXT])
{
	return sysfs_text(to, ADAPTER_TEXT, "%s/class/infiniband/%s/tc/%u/traffic_class",
			  sysfs_root(root), a->device, a->port);
}

/* ---- congestion control ---------------------------------------------------------------------- */

static bool read_ecn_of(const char *root, const struct adapter *a, const char *point,
			uint8_t *priorities)
{
	bool known = false;

	*priorities = 0;
	for (unsigned i = 0; i < 8; i++) {
		long on = sysfs_number(-1, "%s/class/net/%s/ecn/%s/enable/%u", sysfs_root(root),
				       a->netdev, point, i);

		known = known || on >= 0;
		if (on > 0)
			*priorities |= (uint8_t)(1 << i);
	}
	return known;
}

bool adapter_ecn(const char *root, const struct adapter *a, uint8_t *notifies, uint8_t *reacts)
{
	return a->netdev[0] && read_ecn_of(root, a, "roce_np", notifies) &&
	       read_ecn_of(root, a, "roce_rp", reacts);
}

/* ---- PCIe ------------------------------------------------------------------------------------ */

/* linux/pci_regs.h: PCI_CAPABILITY_LIST, PCI_CAP_ID_EXP, PCI_EXP_DEVCTL, PCI_EXP_DEVCTL_RELAX_EN.
 */
enum {
	PCI_CONFIG = 256,
	PCI_LIST = 0x34,
	PCI_EXPRESS = 0x10,
	PCI_CONTROL = 8,
	PCI_RELAXED = 0x10,
	PCI_CAPABILITIES = 48, /* more do not fit */
};

enum pcie_ordering adapter_ordering(const char *root, const struct adapter *a)
{
	uint8_t config[PCI_CONFIG];
	char path[PATH_MAX];
	ssize_t got;
	unsigned at;
	int fd;

	if (!a->pci[0])
		return PCIE_ORDER_UNKNOWN;
	snprintf(path, sizeof path, "%s/bus/pci/devices/%s/config", sysfs_root(root), a->pci);
	fd = RETRIED(open(path, O_RDONLY | O_CLOEXEC));
	if (fd < 0)
		return PCIE_ORDER_UNKNOWN;
	got = pread_full(fd, config, sizeof config, 0);
	close_fd(fd);
	/* Users other than root get 64 bytes, which have no capabilities. */
	if (got < PCI_CONFIG)
		return PCIE_ORDER_UNKNOWN;
	at = config[PCI_LIST] & ~3U;
	for (unsigned i = 0; at >= 64 && at <= PCI_CONFIG - 12 && i < PCI_CAPABILITIES; i++) {
		if (config[at] == PCI_EXPRESS)
			return config[at + PCI_CONTROL] & PCI_RELAXED ? PCIE_ORDER_RELAXED
								      : PCIE_ORDER_STRICT;
		at = config[at + 1] & ~3U;
	}
	return PCIE_ORDER_UNKNOWN;
}
