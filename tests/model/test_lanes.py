# SPDX-License-Identifier: Apache-2.0
"""The search over small models: the protocol never deadlocks, and the defect of each wrong variant is found."""

import pytest

from lanes import CREDIT_EARLY, OTHER_LANE, SAME_LANE, UNBOUNDED, UNFENCED, explore

# They only compute: a busy machine takes any time.
pytestmark = pytest.mark.timeout(900)

SMALL = [(lanes, depth, total, breaks)
         for lanes in (1, 2, 3) for depth in (1, 2)
         for total in (3, 5) for breaks in (0, 1, 2)
         if lanes * depth * total <= 20]


@pytest.mark.parametrize("lanes,depth,total,breaks", SMALL)
def test_recovery_over_the_same_lane_stores_everything_once(lanes, depth, total, breaks):
    states, wrong = explore(lanes, depth, total, breaks, SAME_LANE)
    assert states > total
    assert not wrong, wrong[0]


@pytest.mark.parametrize("lanes,depth,window,total,breaks", [(1, 3, 1, 5, 2), (1, 3, 2, 5, 2), (2, 2, 1, 4, 2),
                                                             (2, 3, 2, 5, 1)])
def test_wires_of_smaller_depth_store_everything_once(lanes, depth, window, total, breaks):
    states, wrong = explore(lanes, depth, total, breaks, SAME_LANE, window=window)
    assert states > total
    assert not wrong, wrong[0]


@pytest.mark.parametrize("lanes,depth,window,total", [(1, 2, 1, 3), (2, 3, 2, 5)])
def test_resending_all_at_once_exceeds_the_depth_of_the_wire(lanes, depth, window, total):
    _, wrong = explore(lanes, depth, total, 1, UNBOUNDED, window=window)
    assert any("in flight" in w for w in wrong)


@pytest.mark.parametrize("lanes,depth,total", [(2, 1, 3), (2, 2, 5), (3, 1, 5)])
def test_recovery_over_another_lane_deadlocks(lanes, depth, total):
    _, wrong = explore(lanes, depth, total, 1, OTHER_LANE)
    assert any("deadlock" in w for w in wrong)


@pytest.mark.parametrize("lanes,depth,total", [(1, 1, 3), (2, 1, 3), (2, 2, 4)])
def test_recovery_without_a_fence_stores_twice(lanes, depth, total):
    _, wrong = explore(lanes, depth, total, 1, UNFENCED)
    assert any("twice" in w for w in wrong)


@pytest.mark.parametrize("lanes,depth,total", [(1, 1, 3), (2, 1, 3)])
def test_credit_on_arrival_loses_blocks(lanes, depth, total):
    _, wrong = explore(lanes, depth, total, 1, CREDIT_EARLY)
    assert any("deadlock" in w or "lost" in w for w in wrong)


@pytest.mark.parametrize("lanes,depth,total,breaks,moves", [(1, 1, 3, 0, 2), (1, 2, 4, 1, 2), (2, 1, 3, 1, 1), (2, 2, 4, 0, 2)])
def test_promotion_stores_everything_once(lanes, depth, total, breaks, moves):
    states, wrong = explore(lanes, depth, total, breaks, SAME_LANE, moves)
    assert states > total
    assert not wrong, wrong[0]


@pytest.mark.parametrize("lanes,depth,total", [(1, 1, 3), (2, 2, 4)])
def test_promotion_without_a_fence_stores_twice(lanes, depth, total):
    _, wrong = explore(lanes, depth, total, 0, UNFENCED, 1)
    assert any("twice" in w for w in wrong)
