/* SPDX-License-Identifier: Apache-2.0 */

/* The build, the kernel's modules and device files, and adapters without a driver. */

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>
#include "cmd/check/survey.h"
#include "host/sysfs.h"
#include "lane/verbs/verbs_connect.h"

/* An adapter may have hundreds of functions with the same problem. */
enum { SIMILAR_SHOWN = 8 };

/* Whether a file with this name exists below s->top. */
static bool has_file(const struct survey *s, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static bool has_file(const struct survey *s, const char *fmt, ...)
{
	char rest[PATH_MAX / 2], path[PATH_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(rest, sizeof rest, fmt, ap);
	va_end(ap);
	snprintf(path, sizeof path, "%s%.2000s", s->top, rest);
	return access(path, F_OK) == 0;
}

/* ---- modules --------------------------------------------------------------------------------- */

static const struct module {
	const char *name;
	const char *builtin_path; /* exists also if the module is built in */
	const char *consequence; /* without the module */
} modules[] = {
	{"ib_core", "/sys/class/infiniband", "this host has no RDMA"},
	{"ib_uverbs", "/sys/class/infiniband_verbs", "programs cannot use adapters"},
	{"rdma_ucm", "/sys/class/misc/rdma_cm", "programs cannot make RDMA connections"},
};
enum { MODULES = sizeof modules / sizeof *modules };

static bool is_loaded(const struct survey *s, const struct module *m)
{
	return has_file(s, "/sys/module/%s", m->name) || has_file(s, "%s", m->builtin_path);
}

/* Whether the package of this kernel has the module. */
static bool is_installed(const struct survey *s, const char *module)
{
	char path[PATH_MAX], file[80], line[4096];
	struct utsname u;
	bool found = false;
	FILE *f;

	if (uname(&u))
		return true;
	snprintf(path, sizeof path, "%s/lib/modules/%s/modules.dep", s->top, u.release);
	snprintf(file, sizeof file, "/%s.ko", module);
	f = fopen(path, "re");
	while (f && !found && fgets(line, sizeof line, f)) {
		line[strcspn(line, ":")] = '\0';
		/* hns-roce-hw-v2.ko is hns_roce_hw_v2. */
		for (char *c = line; *c; c++)
			*c = (char)(*c == '-' ? '_' : *c);
		found = strstr(line, file) != NULL;
	}
	if (f)
		fclose(f);
	return found;
}

static void load_remedy(const struct survey *s, const char *module, char *to, size_t size)
{
	struct utsname u;

	if (is_installed(s, module))
		snprintf(to, size,
			 "as root: modprobe %s; add a line \"%s\" to "
			 "/etc/modules-load.d/rdma.conf to load it at boot",
			 module, module);
	else
		snprintf(to, size,
			 "kernel %s has no module %s in /lib/modules: install the package with "
			 "all its modules (linux-modules-extra, kernel-modules-extra) or "
			 "another kernel; in a container, load it on the host",
			 uname(&u) ? "(unknown)" : u.release, module);
}

/* Without an adapter, missing modules are not the main problem, so they are only information. */
static void report_missing_modules(const struct survey *s, const struct module *const *missing,
				   unsigned count)
{
	char names[80] = "", remedy[TEXT_MAX];
	size_t used = 0;

	for (unsigned i = 0; i < count; i++)
		used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "",
					 missing[i]->name);
	load_remedy(s, missing[count - 1]->name, remedy, sizeof remedy);
	survey_found(s, FINDING_INFO, "modules", "", remedy, "kernel modules not loaded: %s",
		     names);
}

static void look_at_modules(const struct survey *s)
{
	const struct module *missing[MODULES];
	unsigned count = 0;

	for (unsigned i = 0; i < MODULES; i++)
		if (!is_loaded(s, &modules[i]))
			missing[count++] = &modules[i];
	if (!count)
		survey_found(s, FINDING_OK, "modules", "", NULL,
			     "ib_core, ib_uverbs and rdma_ucm are loaded");
	else if (!s->port_count)
		report_missing_modules(s, missing, count);
	for (unsigned i = 0; i < count && s->port_count; i++) {
		char remedy[TEXT_MAX];

		load_remedy(s, missing[i]->name, remedy, sizeof remedy);
		survey_found(s, FINDING_FAILURE, "modules", missing[i]->name, remedy,
			     "kernel module %s is not loaded: %s", missing[i]->name,
			     missing[i]->consequence);
	}
}

/* ---- device files ---------------------------------------------------------------------------- */

static bool check_device_access(const struct survey *s, const char *name)
{
	char path[PATH_MAX], remedy[TEXT_MAX];

	snprintf(path, sizeof path, "%s/dev/infiniband/%.100s", s->top, name);
	if (access(path, R_OK | W_OK) == 0)
		return true;
	if (errno == ENOENT)
		snprintf(remedy, sizeof remedy,
			 "in a container: start it with --device=/dev/infiniband and --ulimit "
			 "memlock=-1; otherwise check that udev runs");
	else
		snprintf(remedy, sizeof remedy,
			 "give this user access: through the group of the file, or with a udev "
			 "rule like that of rdma-core (KERNEL==\"%.40s\", MODE=\"0666\")",
			 strncmp(name, "uverbs", 6) == 0 ? "uverbs*" : name);
	survey_found(s, FINDING_FAILURE, "devices", name, remedy, "open /dev/infiniband/%s: %m",
		     name);
	return false;
}

static void look_at_devices(const struct survey *s)
{
	unsigned right = 0, wrong = 0;
	struct dirent **names;
	int count = sysfs_names(&names, "%s/class/infiniband_verbs", s->sys);

	for (int i = 0; i < count; i++) {
		if (strncmp(names[i]->d_name, "uverbs", 6) == 0 && wrong < SIMILAR_SHOWN) {
			bool may = check_device_access(s, names[i]->d_name);

			right += may;
			wrong += !may;
		}
	}
	sysfs_names_free(names, count);
	/* A missing module has been reported already. */
	if (is_loaded(s, &modules[2]) && !check_device_access(s, "rdma_cm"))
		wrong++;
	if (right && !wrong)
		survey_found(s, FINDING_OK, "devices", "", NULL,
			     "this user may open rdma_cm and uverbs* in /dev/infiniband");
}

/* ---- PCI functions without an RDMA device ---------------------------------------------------- */

/* Network drivers, and the modules that create RDMA devices for their adapters. */
static const struct rdma_driver {
	unsigned vendor;
	const char *maker, *net, *rdma;
	bool always; /* all adapters of the driver support RDMA */
} rdma_drivers[] = {
	{0x15b3, "NVIDIA/Mellanox", "mlx5_core", "mlx5_ib", true},
	{0x15b3, "NVIDIA/Mellanox", "mlx4_core", "mlx4_ib", true},
	{0x15b3, "NVIDIA/Mellanox", "", "mlx5_core", true},
	{0x1425, "Chelsio", "cxgb4", "iw_cxgb4", true},
	{0x14e4, "Broadcom", "bnxt_en", "bnxt_re", false},
	{0x8086, "Intel", "ice", "irdma", true},
	{0x8086, "Intel", "i40e", "irdma", false},
	{0x1077, "Marvell/QLogic", "qede", "qedr", true},
	{0x19e5, "Huawei", "hns3", "hns_roce_hw_v2", true},
	{0x1ded, "Alibaba", "", "erdma", true},
};

static void report_function(const struct survey *s, const char *pci, const struct rdma_driver *d)
{
	char remedy[TEXT_MAX];

	if (!has_file(s, "/sys/module/%s", d->rdma))
		load_remedy(s, d->rdma, remedy, sizeof remedy);
	else
		snprintf(remedy, sizeof remedy,
			 "look for messages about %s in dmesg; its RDMA may be switched off "
			 "(devlink dev param set pci/%s name enable_roce value true cmode "
			 "driverinit; devlink dev reload pci/%s), or it is in another network "
			 "namespace",
			 pci, pci, pci);
	survey_found(s,
		     s->port_count ? FINDING_WARNING
		     : d->always   ? FINDING_FAILURE
				   : FINDING_WARNING,
		     "hardware", pci, remedy,
		     "a network adapter of %s%s%s %s RDMA, but has no RDMA device%s%s", d->maker,
		     d->net[0] ? " with driver " : "", d->net,
		     d->always ? "supports" : "may support",
		     has_file(s, "/sys/module/%s", d->rdma) ? "" : ": module not loaded: ",
		     has_file(s, "/sys/module/%s", d->rdma) ? "" : d->rdma);
}

/* Bonded functions of an adapter share one RDMA device, at the first function. */
static bool has_port(const struct survey *s, const char *pci)
{
	size_t slot = strcspn(pci, ".");

	for (unsigned i = 0; i < s->port_count; i++) {
		const struct adapter *a = &s->ports[i];

		if (strcmp(a->pci, pci) == 0 ||
		    (strstr(a->device, "_bond_") && strncmp(a->pci, pci, slot + 1) == 0))
			return true;
	}
	return false;
}

static void look_at_function(const struct survey *s, const char *pci, unsigned *count)
{
	char text[64], driver[64];
	unsigned class, vendor;

	if (!sysfs_text(text, sizeof text, "%s/bus/pci/devices/%s/class", s->sys, pci))
		return;
	class = (unsigned)strtoul(text, NULL, 16) >> 8;
	if ((class != 0x0200 && class != 0x0207) || has_port(s, pci) ||
	    !sysfs_text(text, sizeof text, "%s/bus/pci/devices/%s/vendor", s->sys, pci))
		return;
	vendor = (unsigned)strtoul(text, NULL, 16);
	sysfs_link(driver, sizeof driver, "%s/bus/pci/devices/%s/driver", s->sys, pci);
	for (unsigned i = 0; i < sizeof rdma_drivers / sizeof *rdma_drivers; i++) {
		if (rdma_drivers[i].vendor != vendor || strcmp(rdma_drivers[i].net, driver) != 0)
			continue;
		if ((*count)++ < SIMILAR_SHOWN)
			report_function(s, pci, &rdma_drivers[i]);
		return;
	}
}

static void look_at_functions(const struct survey *s)
{
	struct dirent **names;
	unsigned bad = 0;
	int count = sysfs_names(&names, "%s/bus/pci/devices", s->sys);

	for (int i = 0; i < count; i++)
		look_at_function(s, names[i]->d_name, &bad);
	sysfs_names_free(names, count);
	if (bad > SIMILAR_SHOWN)
		survey_found(s, FINDING_INFO, "hardware", "", NULL,
			     "%u more PCI functions have the same problem", bad - SIMILAR_SHOWN);
}

void survey_kernel(const struct survey *s)
{
	if (verbs_built())
		survey_found(s, FINDING_OK, "build", "", NULL, "rdcp was built with RDMA");
	else
		survey_found(s, FINDING_FAILURE, "build", "",
			     "install the packages libibverbs-dev and librdmacm-dev "
			     "(rdma-core-devel) and build rdcp again",
			     "rdcp was built without RDMA: it uses only TCP");
	if (!s->port_count)
		survey_found(s, FINDING_FAILURE, "adapter", "",
			     "transfers use TCP; RDMA needs an adapter for InfiniBand, RoCE or "
			     "iWARP, or, for tests only, soft-RoCE: modprobe rdma_rxe; rdma link "
			     "add rxe0 type rxe netdev NETDEV",
			     "no RDMA adapter");
	look_at_modules(s);
	look_at_functions(s);
	if (s->port_count)
		look_at_devices(s);
}
