/* SPDX-License-Identifier: Apache-2.0 */

/* Symptoms of firewalls: which host is silent, which rejects, and which ports to open. */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/io.h"
#include "base/worker.h"
#include "cmd/check/host_path.h"

enum {
	PROBE_MS = 1000,
	PROBE_PORT = 7000, /* without --port-range; a refusal is an answer too */
	ROCE_PORT = 4791,
};

/* The errno of a connection attempt; 0: connected. */
static int probe_tcp_port(const union address *to, unsigned port)
{
	union address with = address_with_port(to, port);
	int fd = socket(to->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), err = 0;
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	socklen_t len = sizeof err;

	if (fd < 0)
		return errno;
	if (connect(fd, &with.sa, address_len(&with)) < 0)
		err = errno;
	if (err == EINPROGRESS) {
		err = ETIMEDOUT;
		if (poll(&p, 1, PROBE_MS) > 0)
			getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len);
	}
	close_fd(fd);
	return err;
}

static const char *explain_connect_error(int err)
{
	switch (err) {
	case 0:
	case ECONNREFUSED:
		return "answers, so not all of TCP is blocked";
	case ETIMEDOUT:
		return "is silent: a firewall drops its packets, or the host is down";
	case EACCES:
	case EPERM:
		return "is blocked by a firewall on this host";
	default:
		return "is unreachable, according to a router or a firewall";
	}
}

static void report_ports(struct host_path *p, const char *address, const char *what,
			 const char *proto, unsigned lo, unsigned hi)
{
	char ports[32], remedy[TEXT_MAX];

	if (lo == hi)
		snprintf(ports, sizeof ports, "%u", lo);
	else
		snprintf(ports, sizeof ports, "%u-%u", lo, hi);
	snprintf(remedy, sizeof remedy,
		 "let %s port%s %s through the firewalls of both hosts: firewall-cmd --permanent "
		 "--add-port=%s/%s && firewall-cmd --reload; or: nft insert rule inet filter input "
		 "%s dport %s accept%s",
		 proto[0] == 'u' ? "UDP" : "TCP", lo == hi ? "" : "s", ports, ports, proto, proto,
		 ports, proto[0] == 'u' ? "" : "; and use these ports with --port-range");
	findings_add(p->findings, FINDING_WARNING, "firewall", address, remedy, "%s", what);
}

/* TCP lanes fail: probes each address. */
static void probe_tcp_addresses(struct host_path *p)
{
	unsigned lo = p->o->network.port_lo ? p->o->network.port_lo : PROBE_PORT;
	unsigned hi = p->o->network.port_lo ? p->o->network.port_hi : PROBE_PORT + 100;

	for (unsigned i = 0; i < p->far_host.count; i++) {
		const union address *a = &p->far_host.at[i].at;
		char text[80], what[TEXT_MAX];
		int err;

		if (p->o->network.family &&
		    (p->o->network.family == 4) != (a->sa.sa_family == AF_INET))
			continue;
		err = probe_tcp_port(a, lo);
		if (cancelled())
			return;
		snprintf(what, sizeof what, "TCP port %u %s", lo, explain_connect_error(err));
		report_ports(p, address_text(a, text, sizeof text), what, "tcp", lo, hi);
	}
}

/* Only RDMA lanes fail: reports the ports that RDMA needs. */
static void report_rdma_ports(struct host_path *p)
{
	unsigned lo = p->o->network.port_lo ? p->o->network.port_lo : PROBE_PORT;
	unsigned hi = p->o->network.port_lo ? p->o->network.port_hi : PROBE_PORT + 100;

	if (p->near_host.has_kind[ADAPTER_ROCE] && p->far_host.has_kind[ADAPTER_ROCE])
		report_ports(p, "",
			     "TCP works, but RoCE does not: its packets, UDP to port 4791, seem to "
			     "be blocked",
			     "udp", ROCE_PORT, ROCE_PORT);
	if (p->near_host.has_kind[ADAPTER_IWARP] && p->far_host.has_kind[ADAPTER_IWARP])
		report_ports(p, "",
			     "TCP works, but iWARP does not: the TCP ports of its connections seem "
			     "to be blocked",
			     "tcp", lo, hi);
	if (p->near_host.has_kind[ADAPTER_INFINIBAND] && p->far_host.has_kind[ADAPTER_INFINIBAND])
		findings_add(p->findings, FINDING_WARNING, "fabric", "",
			     "check with ibping and ibtracert whether the ports reach each other; "
			     "both must be in one fabric, with one partition key",
			     "TCP works, but InfiniBand does not");
}

void host_path_report_firewall(struct host_path *p, const struct failure *rdma,
			       const struct failure *tcp)
{
	if (tcp->code != OUT_DONE)
		probe_tcp_addresses(p);
	else if (rdma && rdma->code != OUT_DONE && rdma->code != OUT_MEMLOCK && p->near_host.rdma &&
		 p->far_host.rdma)
		report_rdma_ports(p);
}
