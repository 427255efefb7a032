/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_LANE_STREAM_H
#define TESTS_LANE_STREAM_H

/* Lanes joined by socket pairs, without hellos: the simplest wires. */

#include "lane_pair.h"

extern const struct backend stream_backend;

#endif
