/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_LANE_CONFORMANCE_H
#define TESTS_LANE_CONFORMANCE_H

/*
 * The behaviour of every lane, over any wires. The test of a backend describes how its wires join a
 * pair of lanes (struct backend, lane_pair.h) and calls conformance_run(); the result is the number
 * of failed tests.
 */

#include "lane_pair.h"

int conformance_run(const struct backend *b);

#endif
