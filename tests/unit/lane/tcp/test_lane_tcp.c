/* SPDX-License-Identifier: Apache-2.0 */

/* Lanes over TCP do what every lane does. */

#include "lane_conformance.h"
#include "lane_loopback.h"

int main(void)
{
	return conformance_run(&loopback_backend);
}
