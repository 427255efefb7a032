# SPDX-License-Identifier: Apache-2.0
"""Attempts to connect a lane, searched: a failure that one end keeps to itself hangs both."""

import pytest

from attempts import ANSWERS, REPORTS, SILENT, explore


@pytest.mark.parametrize("variant", [REPORTS, ANSWERS])
@pytest.mark.parametrize("faults", [0, 1, 2, 3])
def test_both_ends_come_to_one_wire(variant, faults):
    states, wrong = explore(faults, variant)
    assert states > faults
    assert not wrong, wrong[0]


def test_an_accepting_end_that_keeps_its_failure_to_itself_deadlocks():
    _, wrong = explore(1, SILENT)
    assert any("deadlock" in w for w in wrong)


def test_without_a_fault_nothing_hangs_either_way():
    assert not explore(0, SILENT)[1]
