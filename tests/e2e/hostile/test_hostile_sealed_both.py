# SPDX-License-Identifier: Apache-2.0
"""Encrypted lanes of either end against a hostile peer."""

import pytest

from arena import ends, fails, serve, untouched

import sealed
from peer import TCP, data_record, end_record, file_record, total_of


def complete_sink(e, lane):
    lane.records(file_record(size=4) + data_record(b"good") + end_record(b"good"))
    e.result()
    e.end(**total_of(b"good"))


def complete_source(e, lane):
    _, end = serve(e, lane)
    e.frames.send("DONE", **end)


# The end under test, and what its peer does to end well.
COMPLETE = {"sink": complete_sink, "source": complete_source}
either = pytest.mark.parametrize("role", COMPLETE)


def start(arena, role, **how):
    return getattr(arena, role)(**how).orders()


@either
@pytest.mark.parametrize("here, there", [(1, 2), (2, 1)])
def test_wish_that_contradicts_exits_43(arena, role, here, there):
    e = start(arena, role, encrypt=here)
    e.hello(encrypt=there)
    fails(e, 43)


@either
def test_demand_on_a_session_that_agreed_on_none_exits_12(arena, role):
    e = start(arena, role, encrypt=2)
    e.hello()
    e.offered()
    e.seals, e.cipher = 1, sealed.AES
    e.dial()
    e.frames.send("CHOICE", transport=TCP, why="")
    fails(e, 12)
    untouched(arena)


@either
@pytest.mark.parametrize("at", [0, 4, 7, 8, 20, 40, 60, 71])
def test_changed_hello_of_a_lane_is_a_strangers(arena, role, at):
    """The bit of encryption is under the MAC, too: the porter closes the connection, and the right one may still come."""
    e = start(arena, role, encrypt=1)
    e.hello()
    e.offered()
    lane = e.dial(greet=False)
    hello = bytearray(lane.hello())
    hello[at] ^= 1
    lane.raw(bytes(hello))
    assert lane.closed()
    e.lanes = []
    lane = e.dial()
    e.frames.send("CHOICE", transport=TCP, why="")
    COMPLETE[role](e, lane)
    ends(e, 0)
