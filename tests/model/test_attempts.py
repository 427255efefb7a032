# SPDX-License-Identifier: Apache-2.0
"""Attempts to connect a lane, searched exhaustively: a failure that one end does not report hangs both."""

import pytest

from attempts import ANSWERS, REPORTS, SILENT, explore


@pytest.mark.parametrize("variant", [REPORTS, ANSWERS])
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


@pytest.mark.parametrize("variant", [REPORTS, ANSWERS])
@pytest.mark.parametrize("faults, moves", [(0, 1), (0, 3), (1, 1), (2, 2)])
def test_promoted_lanes_join_again(variant, faults, moves):
    _, wrong = explore(faults, variant, moves)
    assert not wrong, wrong[0]
