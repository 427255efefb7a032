/* SPDX-License-Identifier: Apache-2.0 */
#include "session/connect/offer_place.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/fail.h"
#include "host/own_address.h"

/* ---- what to offer --------------------------------------------------------------------- */

struct address_list {
	union address *at;
	unsigned max, *count;
	int family;
};

static void add_address(struct address_list *l, const union address *a)
{
	union address host = address_with_port(a, 0);

	if (*l->count == l->max || !address_is_unicast(&host) ||
	    (l->family && l->family != host.sa.sa_family))
		return;
	for (unsigned i = 0; i < *l->count; i++)
		if (address_same(&l->at[i], &host))
			return;
	l->at[(*l->count)++] = host;
}

int offer_place_resolve(const char *text, int family, union address *to)
{
	struct addrinfo hints = {.ai_family = family, .ai_socktype = SOCK_STREAM}, *found;
	int rc = getaddrinfo(text, NULL, &hints, &found);

	if (rc != 0)
		return fail_as(OUT_START, "look up --address %s: %s", text,
			       rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc));
	*to = address_of_sockaddr(found->ai_addr);
	freeaddrinfo(found);
	return 0;
}

static int add_only_address(struct address_list *l, const char *text)
{
	union address a;

	if (offer_place_resolve(text, l->family, &a))
		return -1;
	add_address(l, &a);
	return 0;
}

/* Adds the address of this host that the client's ssh connected to. sshd sets the variable. */
static void add_ssh_address(struct address_list *l)
{
	const char *connection = getenv("SSH_CONNECTION");
	struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM}, *found;
	char server[64];
	union address a;

	if (!connection || sscanf(connection, "%*s %*s %63s", server) != 1 ||
	    getaddrinfo(server, NULL, &hints, &found) != 0)
		return;
	a = address_of_sockaddr(found->ai_addr);
	freeaddrinfo(found);
	a = address_unmapped(&a);
	if (!address_is_loopback(&a) && !address_is_link_local(&a))
		add_address(l, &a);
}

enum scope { SCOPE_GLOBAL, SCOPE_LINK, SCOPE_LOOPBACK };

static enum scope scope_of(const union address *a)
{
	if (address_is_loopback(a))
		return SCOPE_LOOPBACK;
	return address_is_link_local(a) ? SCOPE_LINK : SCOPE_GLOBAL;
}

/* IPv6's link-local addresses mean nothing without a zone of the host that dials them. */
static void add_interfaces(struct address_list *l, enum scope scope)
{
	struct ifaddrs *all;

	if (getifaddrs(&all) < 0)
		return;
	for (struct ifaddrs *i = all; i; i = i->ifa_next) {
		union address a;

		if (!sockaddr_is_address(i->ifa_addr) || !(i->ifa_flags & IFF_UP))
			continue;
		a = address_of_sockaddr(i->ifa_addr);
		if (scope_of(&a) == scope && (scope != SCOPE_LINK || a.sa.sa_family == AF_INET))
			add_address(l, &a);
	}
	freeifaddrs(all);
}

int offer_place_find_own(const struct offer_rules *rules, union address *to, unsigned max,
			 unsigned *count)
{
	struct address_list l = {.at = to, .max = max, .count = count, .family = rules->family};
	union address control;

	*count = 0;
	if (rules->only[0])
		return add_only_address(&l, rules->only);
	if (rules->control) {
		control = address_unmapped(rules->control);
		if (rules->same_host || !address_is_loopback(&control))
			add_address(&l, &control);
	}
	add_ssh_address(&l);
	add_interfaces(&l, SCOPE_GLOBAL);
	if (rules->rdma)
		add_interfaces(&l, SCOPE_LINK);
	if (rules->same_host)
		add_interfaces(&l, SCOPE_LOOPBACK);
	return 0;
}

struct offer_place offer_place_make(const union address *a, enum transport t, unsigned port)
{
	struct offer_place p = {.transport = (uint8_t)t, .port = (uint16_t)port};
	unsigned len;
	const uint8_t *bits = address_bits(a, &len);

	p.family = len == 4 ? 4 : 6;
	memcpy(p.addr, bits, len);
	return p;
}

/* ---- what to dial ---------------------------------------------------------------------- */

static union address address_of_place(const struct offer_place *p)
{
	union address a = {.sa = {.sa_family = p->family == 4 ? AF_INET : AF_INET6}};

	if (p->family == 4)
		memcpy(&a.in4.sin_addr, p->addr, 4);
	else
		memcpy(&a.in6.sin6_addr, p->addr, 16);
	return address_with_port(&a, p->port);
}

/* Whether this address may be dialed. A link-local address gets the zone that the user typed; over
 * RDMA, those of IPv4 that are offered belong to an adapter. */
static bool may_dial(union address *a, enum transport t, const struct dial_rules *rules)
{
	const union address *dialed = rules->dialed;

	if (!address_is_unicast(a) || (rules->family && rules->family != a->sa.sa_family))
		return false;
	if (address_is_loopback(a))
		return rules->same_host;
	if (!address_is_link_local(a) ||
	    (t == TRANSPORT_RDMA && a->sa.sa_family == AF_INET && own_network_contains(a)))
		return true;
	if (!dialed || !address_same(a, dialed))
		return false;
	if (a->sa.sa_family == AF_INET6)
		a->in6.sin6_scope_id = dialed->in6.sin6_scope_id;
	return true;
}

/* Whether routing would connect from the only local address that may be used. */
static bool is_routed_from(const union address *to, const struct dial_rules *rules)
{
	union address from;

	return rules->from.sa.sa_family == AF_UNSPEC ||
	       (own_address_toward(to, &from) == 0 && address_same(&from, &rules->from));
}

/* Whether an address is in a network of this host, and not only by its form: all hosts may have one
 * that is link-local, and few reach each other there. */
static bool is_near(const union address *a)
{
	return !address_is_link_local(a) && own_network_contains(a);
}

unsigned offer_place_find_dialable_indexed(const struct msg_offer *offer, enum transport t,
					   const struct dial_rules *rules, union address *to,
					   unsigned indices[], unsigned max)
{
	unsigned n = 0;

	for (int near = 1; near >= 0; near--)
		for (unsigned i = 0; i < offer->count && n < max; i++) {
			union address a = address_of_place(&offer->places[i]);

			if (offer->places[i].transport != t || !may_dial(&a, t, rules) ||
			    is_near(&a) != near || !is_routed_from(&a, rules))
				continue;
			indices[n] = i;
			to[n++] = a;
		}
	return n;
}

unsigned offer_place_find_dialable(const struct msg_offer *offer, enum transport t,
				   const struct dial_rules *rules, union address *to, unsigned max)
{
	unsigned indices[2 * OFFER_MAX];

	return offer_place_find_dialable_indexed(offer, t, rules, to, indices,
						 max < 2 * OFFER_MAX ? max : 2 * OFFER_MAX);
}
