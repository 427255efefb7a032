/* SPDX-License-Identifier: Apache-2.0 */
#include "session/address_local.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"
#include "session/key.h"

/* ---- this host ---------------------------------------------------------------------------- */

int boot_id(char *to, size_t size)
{
	int fd = RETRIED(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
	bool known = fd >= 0 && read_full(fd, to, size) == (ssize_t)size;

	close_fd(fd);
	return known ? 0 : -1;
}

uint64_t host_id(void)
{
	struct {
		char boot[64];
		uint64_t net;
	} is = {.net = 0};
	uint8_t hash[EVP_MAX_MD_SIZE];
	struct stat st;
	uint64_t id;
	int fd = RETRIED(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
	bool known = fd >= 0 && read_full(fd, is.boot, sizeof is.boot) > 0 &&
		     stat("/proc/self/ns/net", &st) == 0;

	close_fd(fd);
	if (known)
		is.net = st.st_ino;
	if (known && EVP_Digest(&is, sizeof is, hash, NULL, EVP_sha256(), NULL) == 1) {
		memcpy(&id, hash, sizeof id);
		return id;
	}
	/* Equal to nobody's then. */
	return random_bytes(&id, sizeof id) == 0 ? id : (uint64_t)getpid();
}

/* ---- addresses --------------------------------------------------------------------------------
 */

bool address_is_loopback(const union address *a)
{
	if (a->sa.sa_family == AF_INET)
		return ntohl(a->in4.sin_addr.s_addr) >> 24 == 127;
	return a->sa.sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&a->in6.sin6_addr);
}

bool address_is_link_local(const union address *a)
{
	if (a->sa.sa_family == AF_INET)
		return ntohl(a->in4.sin_addr.s_addr) >> 16 == 0xa9fe;
	return a->sa.sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&a->in6.sin6_addr);
}

/* One host's: not everybody's, nobody's or a group's. */
static bool is_unicast(const union address *a)
{
	uint32_t in4 = ntohl(a->in4.sin_addr.s_addr);

	if (a->sa.sa_family == AF_INET)
		return in4 >> 24 != 0 && in4 >> 28 < 0xe;
	return a->sa.sa_family == AF_INET6 && !IN6_IS_ADDR_UNSPECIFIED(&a->in6.sin6_addr) &&
	       !IN6_IS_ADDR_MULTICAST(&a->in6.sin6_addr) &&
	       !IN6_IS_ADDR_V4MAPPED(&a->in6.sin6_addr);
}

/* The bytes that count, and how many. */
static const uint8_t *bits_of(const union address *a, unsigned *bytes)
{
	*bytes = a->sa.sa_family == AF_INET ? 4 : 16;
	return a->sa.sa_family == AF_INET ? (const uint8_t *)&a->in4.sin_addr
					  : (const uint8_t *)&a->in6.sin6_addr;
}

bool address_same(const union address *a, const union address *b)
{
	unsigned len;
	const uint8_t *x = bits_of(a, &len), *y = bits_of(b, &len);

	return a->sa.sa_family == b->sa.sa_family && memcmp(x, y, len) == 0;
}

union address address_with_port(const union address *a, unsigned port)
{
	union address with = *a;

	if (a->sa.sa_family == AF_INET)
		with.in4.sin_port = htons((uint16_t)port);
	else
		with.in6.sin6_port = htons((uint16_t)port);
	return with;
}

union address address_loopback(int family, unsigned port)
{
	union address in4 = {.in4 = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}}};
	union address in6 = {.in6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT}};

	return address_with_port(family == AF_INET6 ? &in6 : &in4, port);
}

/* An IPv4 address in IPv6's clothes is what it is. */
static union address plain(const union address *a)
{
	union address in4 = {.in4 = {.sin_family = AF_INET}};

	if (a->sa.sa_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&a->in6.sin6_addr))
		return *a;
	memcpy(&in4.in4.sin_addr, (const uint8_t *)&a->in6.sin6_addr + 12, 4);
	return in4;
}

static bool is_address(const struct sockaddr *sa)
{
	return sa && (sa->sa_family == AF_INET || sa->sa_family == AF_INET6);
}

static union address address_of(const struct sockaddr *sa)
{
	union address a = {.sa = {.sa_family = AF_UNSPEC}};

	memcpy(&a, sa, sa->sa_family == AF_INET ? sizeof a.in4 : sizeof a.in6);
	return a;
}

static bool in_network(const union address *a, const union address *own, const union address *mask)
{
	unsigned len;
	const uint8_t *x = bits_of(a, &len), *y = bits_of(own, &len), *m = bits_of(mask, &len);

	for (unsigned i = 0; i < len; i++)
		if ((x[i] ^ y[i]) & m[i])
			return false;
	return true;
}

unsigned addresses_near(const union address *a, union address *to, unsigned max)
{
	struct ifaddrs *all;
	unsigned n = 0;

	if (getifaddrs(&all) < 0)
		return 0;
	for (struct ifaddrs *i = all; i && n < max; i = i->ifa_next) {
		union address own, mask;

		if (!is_address(i->ifa_addr) || !i->ifa_netmask ||
		    i->ifa_addr->sa_family != a->sa.sa_family)
			continue;
		own = address_of(i->ifa_addr);
		/* Some netmasks come without their family. */
		i->ifa_netmask->sa_family = i->ifa_addr->sa_family;
		mask = address_of(i->ifa_netmask);
		if (in_network(a, &own, &mask))
			to[n++] = own;
	}
	freeifaddrs(all);
	return n;
}

bool address_near(const union address *a)
{
	union address own;

	return addresses_near(a, &own, 1) > 0;
}

int address_toward(const union address *to, union address *from)
{
	union address a = *to, own = {.sa = {.sa_family = AF_UNSPEC}};
	socklen_t len = sizeof own;
	int fd = socket(a.sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int rc = -1;

	/* A datagram socket only looks for a route. */
	if (fd >= 0 && connect(fd, &a.sa, address_len(&a)) == 0)
		rc = getsockname(fd, &own.sa, &len);
	close_fd(fd);
	if (rc == 0)
		*from = own;
	return rc;
}

/* ---- what to offer ------------------------------------------------------------------------------
 */

struct list {
	union address *at;
	unsigned max, *count;
	int family;
};

static void add(struct list *l, const union address *a)
{
	union address is = address_with_port(a, 0);

	if (*l->count == l->max || !is_unicast(&is) || (l->family && l->family != is.sa.sa_family))
		return;
	for (unsigned i = 0; i < *l->count; i++)
		if (address_same(&l->at[i], &is))
			return;
	l->at[(*l->count)++] = is;
}

static int add_only(struct list *l, const char *text)
{
	struct addrinfo hints = {.ai_family = l->family, .ai_socktype = SOCK_STREAM}, *found;
	union address a;
	int rc = getaddrinfo(text, NULL, &hints, &found);

	if (rc != 0)
		return fail_as(OUT_USAGE, "listen at %s: %s", text, gai_strerror(rc));
	a = address_of(found->ai_addr);
	freeaddrinfo(found);
	add(l, &a);
	return 0;
}

/* The address of this host that an ssh connection came to; sshd tells it. */
static void add_ssh(struct list *l)
{
	const char *said = getenv("SSH_CONNECTION");
	struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM}, *found;
	char server[64];
	union address a;

	if (!said || sscanf(said, "%*s %*s %63s", server) != 1 ||
	    getaddrinfo(server, NULL, &hints, &found) != 0)
		return;
	a = address_of(found->ai_addr);
	freeaddrinfo(found);
	a = plain(&a);
	if (!address_is_loopback(&a) && !address_is_link_local(&a))
		add(l, &a);
}

static void add_interfaces(struct list *l, bool loopback)
{
	struct ifaddrs *all;

	if (getifaddrs(&all) < 0)
		return;
	for (struct ifaddrs *i = all; i; i = i->ifa_next) {
		union address a;

		if (!is_address(i->ifa_addr) || !(i->ifa_flags & IFF_UP))
			continue;
		a = address_of(i->ifa_addr);
		if (address_is_loopback(&a) == loopback && !address_is_link_local(&a))
			add(l, &a);
	}
	freeifaddrs(all);
}

int addresses_to_offer(const struct offer_rules *rules, union address *to, unsigned max,
		       unsigned *count)
{
	struct list l = {.at = to, .max = max, .count = count, .family = rules->family};
	union address control;

	*count = 0;
	if (rules->only[0])
		return add_only(&l, rules->only);
	if (rules->control) {
		control = plain(rules->control);
		if (rules->same_host || !address_is_loopback(&control))
			add(&l, &control);
	}
	add_ssh(&l);
	add_interfaces(&l, false);
	if (rules->same_host)
		add_interfaces(&l, true);
	return 0;
}

struct offer_place place_of(const union address *a, enum transport t, unsigned port)
{
	struct offer_place p = {.transport = (uint8_t)t, .port = (uint16_t)port};
	unsigned len;
	const uint8_t *bits = bits_of(a, &len);

	p.family = len == 4 ? 4 : 6;
	memcpy(p.addr, bits, len);
	return p;
}

/* ---- what to dial
 * --------------------------------------------------------------------------------- */

static union address address_of_place(const struct offer_place *p)
{
	union address a = {.sa = {.sa_family = p->family == 4 ? AF_INET : AF_INET6}};

	if (p->family == 4)
		memcpy(&a.in4.sin_addr, p->addr, 4);
	else
		memcpy(&a.in6.sin6_addr, p->addr, 16);
	return address_with_port(&a, p->port);
}

/* May it be dialed?  A link-local address gets the zone that the user typed. */
static bool is_worthwhile(union address *a, const struct dial_rules *rules)
{
	const union address *dialed = rules->dialed;

	if (!is_unicast(a) || (rules->family && rules->family != a->sa.sa_family))
		return false;
	if (address_is_loopback(a))
		return rules->same_host;
	if (!address_is_link_local(a))
		return true;
	if (!dialed || !address_same(a, dialed))
		return false;
	if (a->sa.sa_family == AF_INET6)
		a->in6.sin6_scope_id = dialed->in6.sin6_scope_id;
	return true;
}

/* A wire there would have no other address of this host's than it may. */
static bool leaves_from(const union address *to, const struct dial_rules *rules)
{
	union address from;

	return rules->from.sa.sa_family == AF_UNSPEC ||
	       (address_toward(to, &from) == 0 && address_same(&from, &rules->from));
}

unsigned places_worth(const struct msg_offer *offer, enum transport t,
		      const struct dial_rules *rules, union address *to, unsigned which[],
		      unsigned max)
{
	unsigned n = 0;

	for (int near = 1; near >= 0; near--)
		for (unsigned i = 0; i < offer->count && n < max; i++) {
			union address a = address_of_place(&offer->places[i]);

			if (offer->places[i].transport != t || !is_worthwhile(&a, rules) ||
			    address_near(&a) != near || !leaves_from(&a, rules))
				continue;
			which[n] = i;
			to[n++] = a;
		}
	return n;
}

unsigned places_to_dial(const struct msg_offer *offer, enum transport t,
			const struct dial_rules *rules, union address *to, unsigned max)
{
	unsigned which[2 * OFFER_MAX];

	return places_worth(offer, t, rules, to, which, max < 2 * OFFER_MAX ? max : 2 * OFFER_MAX);
}

char *addresses_text(const union address *a, unsigned count, char *to, size_t size)
{
	size_t used = 0;

	to[0] = '\0';
	for (unsigned i = 0; i < count && used < size; i++) {
		char one[80];

		used += (size_t)snprintf(to + used, size - used, "%s%s", i ? ", " : "",
					 address_text(&a[i], one, sizeof one));
	}
	return to;
}
