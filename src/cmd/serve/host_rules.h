/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_SERVE_HOST_RULES_H
#define CMD_SERVE_HOST_RULES_H

/* A list of addresses and networks, as "hosts allow" and "hosts deny" have it: words such as
 * 10.1.2.3, 10.0.0.0/8, 2001:db8::/32, or * for any address. Names of hosts are not looked up: an
 * answer of the DNS is no proof. */

#include <stdbool.h>
#include "base/address.h"

enum { HOST_RULES_MAX = 64 };

struct host_rule {
	uint8_t bits[16];
	unsigned bytes; /* 4 or 16; 0: any address */
	unsigned prefix; /* how many of the bits count */
};
struct host_rules {
	struct host_rule of[HOST_RULES_MAX];
	unsigned count;
};

/* The words are separated by blanks or commas. Returns 0, or -1 with a failure (OUT_USAGE). */
int host_rules_parse(const char *text, struct host_rules *r);
/* An IPv4-mapped address counts as IPv4. */
bool host_rules_match(const struct host_rules *r, const union address *a);

/* As in rsyncd.conf: who is in allow may; if deny is empty and allow is not, nobody else; who is in
 * deny may not; all others may. */
bool host_rules_admit(const struct host_rules *allow, const struct host_rules *deny,
		      const union address *a);

#endif
