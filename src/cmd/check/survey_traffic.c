/* SPDX-License-Identifier: Apache-2.0 */

/* The traffic of a port in the network (type of service, PFC, ECN) and on PCIe (ordering). What the
 * kernel does not report is called unknown. */

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "cmd/check/survey.h"
#include "host/dcb.h"

/* "3, 4" */
static const char *priorities_text(uint8_t priorities, char to[static 32])
{
	size_t used = 0;

	to[0] = '\0';
	for (unsigned i = 0; i < DCB_PRIORITIES; i++)
		if (priorities & 1 << i)
			used += (size_t)snprintf(to + used, 32 - used, "%s%u", used ? ", " : "", i);
	return to;
}

static const char *plural_text(uint8_t priorities)
{
	return priorities & (priorities - 1) ? "priorities" : "priority";
}

/* ---- type of service ------------------------------------------------------------------------- */

static void look_at_tos(const struct survey *s, const struct adapter *a, const char *name)
{
	int tos = adapter_default_tos(s->sys, a);
	char class[ADAPTER_TEXT], driver[ADAPTER_TEXT + 64] = "", remedy[TEXT_MAX] = "";

	if (adapter_traffic_class(s->sys, a, class))
		snprintf(driver, sizeof driver, "; its driver has a value of its own: %s", class);
	if (tos >= 0) {
		survey_found(s, FINDING_OK, "tos", name, NULL,
			     "connections without --tos get %d (DSCP %d)%s", tos, tos >> 2, driver);
		return;
	}
	snprintf(remedy, sizeof remedy,
		 "to see it: modprobe configfs rdma_cm; mount -t configfs none "
		 "/sys/kernel/config; mkdir /sys/kernel/config/rdma_cm/%s",
		 a->device);
	survey_found(s, FINDING_INFO, "tos", name, remedy,
		     "what connections without --tos get is unknown: configfs does not show it "
		     "(Linux begins with 0)%s",
		     driver);
}

/* ---- priority flow control ------------------------------------------------------------------- */

/* The least type of service whose DSCP has one of these priorities; -1: none. */
static int find_tos_of(const struct dcb *d, uint8_t priorities)
{
	for (int i = 0; i < DCB_DSCPS; i++)
		if (d->priority[i] >= 0 && priorities & 1 << d->priority[i])
			return i << 2;
	return -1;
}

/* Whether flow control covers packets of this type of service. */
static bool is_paused(const struct dcb *d, int tos)
{
	int priority = d->priority[tos >> 2];

	return d->pfc & 1 << (priority < 0 ? d->default_priority : priority);
}

void survey_pfc(const struct survey *s, const struct adapter *a, const struct dcb *d)
{
	int tos = adapter_default_tos(s->sys, a), lossless = find_tos_of(d, d->pfc);
	char name[ADAPTER_TEXT * 2], list[32], remedy[TEXT_MAX], class[ADAPTER_TEXT];
	bool missed;

	survey_port_text(a, name, sizeof name);
	if (!d->has_pfc) {
		survey_found(s, FINDING_INFO, "pfc", name, NULL,
			     "unknown: the driver of %s does not report priority flow control",
			     a->netdev);
		return;
	}
	if (!d->pfc) {
		survey_found(s, FINDING_INFO, "pfc", name, NULL,
			     "no priority of %s has priority flow control, so RoCE packets may be "
			     "dropped under load",
			     a->netdev);
		return;
	}
	priorities_text(d->pfc, list);
	if (lossless < 0) {
		survey_found(s, FINDING_OK, "pfc", name, NULL,
			     "%s %s %s priority flow control; no DSCP is mapped to it",
			     plural_text(d->pfc), list, d->pfc & (d->pfc - 1) ? "have" : "has");
		return;
	}
	missed = tos >= 0 && !adapter_traffic_class(s->sys, a, class) && !is_paused(d, tos);
	snprintf(remedy, sizeof remedy,
		 "--tos=%d, or for all programs: echo %d "
		 ">/sys/kernel/config/rdma_cm/%s/ports/%u/default_roce_tos",
		 lossless, lossless, a->device, a->port);
	survey_found(s, missed ? FINDING_WARNING : FINDING_OK, "pfc", name, missed ? remedy : NULL,
		     "%s %s %s priority flow control, as packets with --tos=%d get it%s",
		     plural_text(d->pfc), list, d->pfc & (d->pfc - 1) ? "have" : "has", lossless,
		     missed ? "; those without --tos do not" : "");
}

static void look_at_pfc(const struct survey *s, const struct adapter *a, const char *name)
{
	struct dcb d;

	/* A test's tree has no network devices to ask about. */
	if (s->top[0] || !a->netdev[0])
		return;
	if (dcb_query(a->netdev, &d) == 0)
		survey_pfc(s, a, &d);
	else
		survey_found(s, FINDING_INFO, "pfc", name, NULL,
			     "unknown: ask for priority flow control of %s: %s", a->netdev,
			     errno == EOPNOTSUPP ? "the driver does not report it"
						 : strerror(errno));
}

/* ---- congestion control ---------------------------------------------------------------------- */

static void look_at_ecn(const struct survey *s, const struct adapter *a, const char *name)
{
	uint8_t notifies, reacts;
	char list[32];

	if (!adapter_ecn(s->sys, a, &notifies, &reacts))
		survey_found(s, FINDING_INFO, "ecn", name, NULL,
			     "unknown: the driver of %s does not report whether ECN is used",
			     a->netdev);
	else if (!(notifies & reacts))
		survey_found(s, FINDING_INFO, "ecn", name, NULL,
			     "ECN is off: the adapter does not slow down when switches mark "
			     "congestion");
	else
		survey_found(s, FINDING_OK, "ecn", name, NULL, "ECN is on for %s %s",
			     plural_text(notifies & reacts),
			     priorities_text(notifies & reacts, list));
}

void survey_traffic(const struct survey *s, const struct adapter *a)
{
	char name[ADAPTER_TEXT * 2];

	survey_port_text(a, name, sizeof name);
	if (a->kind != ADAPTER_ROCE || a->software)
		return;
	look_at_tos(s, a, name);
	look_at_pfc(s, a, name);
	look_at_ecn(s, a, name);
}

/* ---- PCIe ------------------------------------------------------------------------------------ */

void survey_ordering(const struct survey *s, const struct adapter *a)
{
	const char *where = a->pci[0] ? a->pci : a->device;
	char name[ADAPTER_TEXT * 2];

	survey_port_text(a, name, sizeof name);
	switch (a->software ? PCIE_ORDER_UNKNOWN : adapter_ordering(s->sys, a)) {
	case PCIE_ORDER_RELAXED:
		survey_found(s, FINDING_OK, "ordering", name, NULL,
			     "%s may relax the order of PCIe writes", where);
		break;
	case PCIE_ORDER_STRICT:
		survey_found(s, FINDING_INFO, "ordering", name,
			     "the host's firmware or the kernel has switched it off (lspci -vv: "
			     "DevCtl, RlxdOrd-)",
			     "%s must keep the order of PCIe writes, which limits fast adapters on "
			     "some hosts",
			     where);
		break;
	case PCIE_ORDER_UNKNOWN:
		if (!a->software)
			survey_found(s, FINDING_INFO, "ordering", name, NULL,
				     "unknown: whether %s may relax the order of PCIe writes "
				     "cannot be read%s",
				     where, geteuid() ? "; root can" : "");
		break;
	}
}
