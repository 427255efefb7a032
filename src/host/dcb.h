/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOST_DCB_H
#define HOST_DCB_H

/* Data center bridging of a network device, as the kernel reports it over netlink (IEEE 802.1Q;
 * linux/dcbnl.h). Anybody may ask. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DCB_PRIORITIES = 8, DCB_DSCPS = 64 };

struct dcb {
	bool has_pfc; /* the driver reports priority flow control */
	uint8_t pfc; /* bit n: frames of priority n are paused, not dropped */
	bool has_dscps; /* at least one DSCP has a priority of its own */
	int8_t priority[DCB_DSCPS]; /* of a DSCP; -1: not mapped */
	uint8_t default_priority; /* of what is not mapped; 0 unless the kernel reports another */
};

/* Returns 0, or -1 with errno: EOPNOTSUPP if the driver reports nothing. */
int dcb_query(const char *netdev, struct dcb *out);
/* Decodes the kernel's answer, a netlink message. Returns 0, or -1 with errno. */
int dcb_decode(const void *message, size_t len, struct dcb *out);

#endif
