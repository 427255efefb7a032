/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/check/host_path.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
#include "base/io.h"
#include "cmd/check/survey_call.h"
#include "host/adapter.h"
#include "host/own_address.h"

#ifndef SLUICE_VERSION
#define SLUICE_VERSION "0"
#endif

void host_path_init(struct host_path *p, const struct options *o, const char *far,
		    struct findings *f)
{
	memset(p, 0, sizeof *p);
	p->o = o;
	p->far = far;
	p->findings = f;
}

/* ---- the hosts ---------------------------------------------------------------------------------
 */

static void keep_port(struct surveyed_host *h, const struct msg_finding *m)
{
	struct surveyed_port *p = &h->ports[h->port_count];

	if (h->port_count == ADAPTERS_MAX)
		return;
	memcpy(p->name, m->subject, sizeof p->name);
	for (int kind = ADAPTER_INFINIBAND; kind <= ADAPTER_IWARP; kind++)
		if (strstr(m->what, adapter_kind_text((enum adapter_kind)kind)))
			p->kind = (enum adapter_kind)kind;
	h->port_count++;
}

static void keep_address(struct surveyed_host *h, const struct msg_finding *m)
{
	union address a = {.sa = {.sa_family = m->family == 4 ? AF_INET : AF_INET6}};

	if (h->count == OFFER_MAX)
		return;
	if (m->family == 4)
		memcpy(&a.in4.sin_addr, m->addr, 4);
	else
		memcpy(&a.in6.sin6_addr, m->addr, 16);
	h->at[h->count++] = (struct surveyed_address){.at = a, .rdma = m->rdma};
	h->rdma = h->rdma || m->rdma;
	for (unsigned i = 0; i < h->port_count; i++)
		if (m->rdma && strstr(m->what, h->ports[i].name))
			h->has_kind[h->ports[i].kind] = true;
}

static void take_path_finding(void *ctx, const struct msg_finding *m)
{
	struct host_path *p = ctx;

	if (m->family)
		keep_address(p->surveyed, m);
	else if (strcmp(m->name, "port") == 0)
		keep_port(p->surveyed, m);
	findings_take(p->findings, m);
}

static int survey_path_host(struct host_path *p, struct surveyed_host *h, const char *host)
{
	struct survey_call call = {.o = p->o, .host = host, .found = take_path_finding, .ctx = p};

	p->surveyed = h;
	end_pipe_set_host(&h->pipe, host);
	findings_set_host(p->findings, h->pipe.name);
	return survey_call(&call, &h->pipe, &h->control_ns);
}

/* Whether this address of this host belongs to a usable adapter. */
static bool near_has_rdma(const struct host_path *p, const union address *a)
{
	for (unsigned i = 0; i < p->near_host.count; i++)
		if (address_same(&p->near_host.at[i].at, a))
			return p->near_host.at[i].rdma;
	return false;
}

/* ---- routes ------------------------------------------------------------------------------------
 */

/* Returns true if the addresses at both ends belong to adapters. */
static bool look_at_route(struct host_path *p, const struct surveyed_address *to)
{
	char there[80], here[80], netdev[ADAPTER_TEXT];
	union address from = {.sa = {.sa_family = AF_UNSPEC}};
	bool rdma;

	address_text(&to->at, there, sizeof there);
	if (own_address_toward(&to->at, &from)) {
		findings_add(p->findings, to->rdma ? FINDING_WARNING : FINDING_INFO, "route", there,
			     to->rdma ? "give this host an address in the network of this address, "
					"or a route to it"
				      : NULL,
			     "no route to this address: %m");
		return false;
	}
	from = address_with_port(&from, 0);
	address_text(&from, here, sizeof here);
	netdev_of_address(&from, netdev, sizeof netdev);
	rdma = near_has_rdma(p, &from);
	if (rdma && to->rdma)
		findings_add(p->findings, FINDING_OK, "route", there, NULL,
			     "reached from %s (%s), with adapters at both ends", here, netdev);
	else if (to->rdma)
		findings_add(p->findings, FINDING_WARNING, "route", there,
			     "give this host's adapter an address of the same network, or route "
			     "that network over it",
			     "belongs to an adapter, but is reached from %s (%s), which has none",
			     here, netdev);
	else
		findings_add(p->findings, FINDING_INFO, "route", there, NULL,
			     "reached from %s (%s); %s", here, netdev,
			     rdma ? "it belongs to no usable adapter"
				  : "no adapters at either end");
	return rdma && to->rdma;
}

static void look_at_routes(struct host_path *p)
{
	bool any = false, wanted = p->near_host.port_count && p->far_host.port_count;

	for (unsigned i = 0; i < p->far_host.count; i++) {
		const union address *a = &p->far_host.at[i].at;

		if ((p->o->network.family == 4 && a->sa.sa_family != AF_INET) ||
		    (p->o->network.family == 6 && a->sa.sa_family != AF_INET6))
			continue;
		any = look_at_route(p, &p->far_host.at[i]) || any;
	}
	if (wanted && !any)
		findings_add(p->findings, FINDING_FAILURE, "routes", "",
			     "give the network devices of the adapters at both hosts addresses of "
			     "one network",
			     "both hosts have adapters, but no address of %s is reached through "
			     "adapters at both ends",
			     p->far_host.pipe.name);
}

/* ---- the examination ---------------------------------------------------------------------------
 */

static void look_at_versions(struct host_path *p)
{
	const struct msg_greeting *g = &p->far_host.pipe.greeting;
	bool same = strcmp(g->release, SLUICE_VERSION) == 0;

	findings_add(p->findings, same ? FINDING_OK : FINDING_WARNING, "versions", "",
		     same ? NULL : "install the same release on both hosts",
		     "release %s on this host and %s on the other, protocol %d", SLUICE_VERSION,
		     g->release, PROTOCOL_VERSION);
}

static const char *format_start_remedy(const struct host_path *p, enum outcome code, char *to,
				       size_t size)
{
	if (p->surveyed != &p->far_host)
		return NULL;
	if (code == OUT_VERSION)
		return "install the same release on both hosts";
	snprintf(to, size,
		 "make this command work without a password: ssh %.512s rdcp --version; if rdcp "
		 "is elsewhere, use --rdcp-path",
		 p->far);
	return to;
}

static enum outcome report_survey_failure(struct host_path *p)
{
	struct failure f = *failed();
	char remedy[TEXT_MAX];

	if (f.code == OUT_SIGNAL)
		return f.code;
	findings_add(p->findings, FINDING_FAILURE, f.code == OUT_VERSION ? "versions" : "start", "",
		     format_start_remedy(p, f.code, remedy, sizeof remedy), "%s", f.text);
	return f.code;
}

enum outcome host_path_examine(struct host_path *p)
{
	char title[2 * HOST_MAX + 16];

	signal(SIGPIPE, SIG_IGN);
	if (survey_path_host(p, &p->near_host, ""))
		return report_survey_failure(p);
	if (!p->far[0])
		return OUT_DONE;
	if (survey_path_host(p, &p->far_host, p->far))
		return report_survey_failure(p);
	snprintf(title, sizeof title, "%s to %s", p->near_host.pipe.name, p->far_host.pipe.name);
	findings_set_host(p->findings, title);
	look_at_versions(p);
	findings_add(p->findings, FINDING_INFO, "control", "", NULL,
		     "a round trip over ssh takes %.3f ms", (double)p->far_host.control_ns / 1e6);
	look_at_routes(p);
	return host_path_test_lanes(p);
}
