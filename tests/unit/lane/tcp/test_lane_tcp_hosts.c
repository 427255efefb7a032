/* SPDX-License-Identifier: Apache-2.0 */

/* Lanes over TCP between two hosts, which send with MSG_ZEROCOPY, pass the conformance tests. */

#include "lane_conformance.h"
#include "lane_loopback.h"

int main(void)
{
	return conformance_run(&two_hosts_backend);
}
