/* SPDX-License-Identifier: Apache-2.0 */

/* Lanes over TCP pass the conformance tests. */

#include "lane_conformance.h"
#include "lane_loopback.h"

int main(void)
{
	return conformance_run(&loopback_backend);
}
