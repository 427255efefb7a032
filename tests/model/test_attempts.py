# SPDX-License-Identifier: Apache-2.0
"""Attempts to connect a lane, searched exhaustively: a failure that one end does not report hangs both."""

import pytest

import bridge
from attempts import ANSWERS, BOTH, REPORTS, SILENT, explore


@pytest.mark.parametrize("variant", [REPORTS, ANSWERS, BOTH])
@pytest.mark.parametrize("faults", [0, 1, 2, 3])
def test_both_ends_agree_on_one_wire(variant, faults):
    states, wrong = explore(faults, variant)
    assert states > faults
    assert not wrong, wrong[0]


def test_unreported_failure_of_the_accepting_end_deadlocks():
    _, wrong = explore(1, SILENT)
    assert any("deadlock" in w for w in wrong)


def test_without_a_fault_no_variant_hangs():
    assert not explore(0, SILENT)[1]


@pytest.mark.parametrize("variant", [REPORTS, ANSWERS, BOTH])
@pytest.mark.parametrize("faults, moves", [(0, 1), (0, 3), (1, 1), (2, 2)])
def test_promoted_lanes_join_again(variant, faults, moves):
    _, wrong = explore(faults, variant, moves)
    assert not wrong, wrong[0]


# ---- between two daemons -----------------------------------------------------------------------------------------------

@pytest.mark.parametrize("variant", [ANSWERS, BOTH])
@pytest.mark.parametrize("faults", [0, 1, 2, 3, 4])
def test_a_bridge_joins_both_ends(variant, faults):
    states, wrong = bridge.explore(faults, variant)
    assert states > faults
    assert not wrong, wrong[0]


@pytest.mark.parametrize("variant, order", [(BOTH, bridge.AT_ONCE), (ANSWERS, bridge.AT_ONCE), (REPORTS, bridge.SOURCE_FIRST)])
def test_a_bridge_that_asks_both_ends_or_ends_that_do_not_answer_deadlock(variant, order):
    """An end would have a wire of an epoch while the other one waits for the end of an earlier one."""
    _, wrong = bridge.explore(1, variant, order)
    assert any("deadlock" in w for w in wrong)
    assert not bridge.explore(0, variant, order)[1]
