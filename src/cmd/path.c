/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/path.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/io.h"
#include "lane/adapter.h"
#include "session/address_local.h"

#ifndef SLUICE_VERSION
#define SLUICE_VERSION "0"
#endif

void path_init(struct path *p, const struct options *o, const char *far, struct findings *f)
{
	memset(p, 0, offsetof(struct path, link));
	p->o = o;
	p->far = far;
	p->findings = f;
	if (gethostname(p->near_name, sizeof p->near_name - 1) || !p->near_name[0])
		snprintf(p->near_name, sizeof p->near_name, "this host");
}

/* ---- routes ------------------------------------------------------------------------------------
 */

/* Which of this host's addresses would be taken to get there: nothing is sent. */
static bool source_for(const union address *to, union address *from)
{
	union address with = address_with_port(to, 9);
	socklen_t len = sizeof *from;
	int fd = socket(to->sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), err;
	bool found = fd >= 0 && connect(fd, &with.sa, address_len(&with)) == 0 &&
		     getsockname(fd, &from->sa, &len) == 0;

	err = errno;
	close_fd(fd);
	errno = err;
	return found;
}

/* True when an adapter stands at both of its ends. */
static bool look_at_route(struct path *p, const struct path_address *to)
{
	char there[80], here[80], netdev[ADAPTER_TEXT];
	union address from = {.sa = {.sa_family = AF_UNSPEC}};
	bool rdma;

	address_text(&to->at, there, sizeof there);
	if (!source_for(&to->at, &from)) {
		findings_add(p->findings, to->rdma ? FINDING_WARNING : FINDING_INFO, "route", there,
			     to->rdma
				     ? "give this host an address in that network, or a route to it"
				     : NULL,
			     "there is no route to it: %m");
		return false;
	}
	from = address_with_port(&from, 0);
	address_text(&from, here, sizeof here);
	netdev_of_address(&from, netdev, sizeof netdev);
	rdma = verbs_behind(&from);
	if (rdma && to->rdma)
		findings_add(p->findings, FINDING_OK, "route", there, NULL,
			     "reached from %s (%s), with adapters behind both", here, netdev);
	else if (to->rdma)
		findings_add(
			p->findings, FINDING_WARNING, "route", there,
			"put an address of the same network on this host's adapter, or route "
			"that network over it",
			"has an adapter behind it, but is reached from %s (%s), which has none",
			here, netdev);
	else
		findings_add(p->findings, FINDING_INFO, "route", there, NULL,
			     "reached from %s (%s); %s", here, netdev,
			     rdma ? "no adapter that can be used is behind it there"
				  : "no adapters there");
	return rdma && to->rdma;
}

static void look_at_routes(struct path *p)
{
	bool any = false, wanted = p->near.has_ports && p->has.has_ports;

	for (unsigned i = 0; i < p->has.count; i++) {
		const union address *a = &p->has.at[i].at;

		if ((p->o->family == 4 && a->sa.sa_family != AF_INET) ||
		    (p->o->family == 6 && a->sa.sa_family != AF_INET6))
			continue;
		any = look_at_route(p, &p->has.at[i]) || any;
	}
	if (wanted && !any)
		findings_add(p->findings, FINDING_FAILURE, "routes", "",
			     "give the adapters' network devices at both hosts addresses of one "
			     "network",
			     "both hosts have adapters, but no address of %s is reached through "
			     "adapters at both ends",
			     p->link.name);
}

/* ---- all of it ---------------------------------------------------------------------------------
 */

static void look_at_versions(struct path *p)
{
	const struct msg_greeting *g = &p->link.greeting;
	bool same = strcmp(g->release, SLUICE_VERSION) == 0;

	findings_add(p->findings, same ? FINDING_OK : FINDING_WARNING, "versions", "",
		     same ? NULL : "install the same release on both",
		     "release %s here and %s there, protocol %d", SLUICE_VERSION, g->release,
		     PROTOCOL_VERSION);
}

static const char *remedy_of_start(enum outcome code)
{
	if (code == OUT_VERSION)
		return "install the same release on both";
	return "see that `ssh HOST rdcp --version' works without a password; --rdcp-path says where "
	       "it is";
}

enum outcome path_look(struct path *p)
{
	const char *at = strrchr(p->far, '@');
	char title[2 * HOST_MAX + 16];
	struct failure f;

	signal(SIGPIPE, SIG_IGN);
	findings_of(p->findings, at ? at + 1 : p->far);
	if (path_survey(p)) {
		f = *failed();
		findings_add(p->findings, FINDING_FAILURE,
			     f.code == OUT_VERSION ? "versions" : "start", "",
			     remedy_of_start(f.code), "%s", f.text);
		return f.code;
	}
	snprintf(title, sizeof title, "%s to %s", p->near_name, p->link.name);
	findings_of(p->findings, title);
	look_at_versions(p);
	findings_add(p->findings, FINDING_INFO, "control", "", NULL,
		     "a round trip over ssh takes %.3f ms", (double)p->control_ns / 1e6);
	look_at_routes(p);
	return path_run(p);
}
