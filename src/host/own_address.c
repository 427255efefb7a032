/* SPDX-License-Identifier: Apache-2.0 */
#include "host/own_address.h"

#include <errno.h>
#include <ifaddrs.h>
#include <unistd.h>
#include "base/io.h"

enum { DISCARD = 9 }; /* any port will do for looking up a route */

static bool is_in_network(const union address *a, const union address *own,
			  const union address *mask)
{
	unsigned len;
	const uint8_t *x = address_bits(a, &len), *y = address_bits(own, &len),
		      *m = address_bits(mask, &len);

	for (unsigned i = 0; i < len; i++)
		if ((x[i] ^ y[i]) & m[i])
			return false;
	return true;
}

unsigned own_addresses_near(const union address *a, union address *to, unsigned max)
{
	struct ifaddrs *all;
	unsigned n = 0;

	if (getifaddrs(&all) < 0)
		return 0;
	for (struct ifaddrs *i = all; i && n < max; i = i->ifa_next) {
		union address own, mask;

		if (!sockaddr_is_address(i->ifa_addr) || !i->ifa_netmask ||
		    i->ifa_addr->sa_family != a->sa.sa_family)
			continue;
		own = address_of_sockaddr(i->ifa_addr);
		/* getifaddrs(3) does not set the family of some netmasks. */
		i->ifa_netmask->sa_family = i->ifa_addr->sa_family;
		mask = address_of_sockaddr(i->ifa_netmask);
		if (is_in_network(a, &own, &mask))
			to[n++] = own;
	}
	freeifaddrs(all);
	return n;
}

bool own_network_contains(const union address *a)
{
	union address own;

	return own_addresses_near(a, &own, 1) > 0;
}

int own_address_toward(const union address *to, union address *from)
{
	union address a = *to, own = {.sa = {.sa_family = AF_UNSPEC}};
	socklen_t len = sizeof own;
	int fd = socket(a.sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int rc = -1, err;

	if (a.in4.sin_port == 0)
		a = address_with_port(&a, DISCARD);
	/* Connecting a datagram socket only looks up the route. */
	if (fd >= 0 && connect(fd, &a.sa, address_len(&a)) == 0)
		rc = getsockname(fd, &own.sa, &len);
	err = errno;
	close_fd(fd);
	errno = err;
	if (rc == 0)
		*from = own;
	return rc;
}
