/* SPDX-License-Identifier: Apache-2.0 */

/* Lanes over any stream descriptor pass the conformance tests. */

#include "lane_conformance.h"
#include "lane_stream.h"

int main(void)
{
	return conformance_run(&stream_backend);
}
