/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_LANE_LOOPBACK_H
#define TESTS_LANE_LOOPBACK_H

/* Lanes joined by TCP on the loopback address; source and sink connect alternately. */

#include "lane_pair.h"

extern const struct backend loopback_backend;
/* The same between two addresses, which lanes take for two hosts. */
extern const struct backend two_hosts_backend;

#endif
