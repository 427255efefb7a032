/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_LANE_CONFORMANCE_H
#define TESTS_LANE_CONFORMANCE_H

/*
 * What every lane does, whatever wires are under it.  A backend's test describes how a pair of
 * lanes is joined by its wires (struct backend, lane_pair.h) and calls conformance_run(); the
 * result is the number of failed tests.
 */

#include "lane_pair.h"

int conformance_run(const struct backend *b);

#endif
