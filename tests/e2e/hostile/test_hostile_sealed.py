# SPDX-License-Identifier: Apache-2.0
"""Encrypted lanes against an attacker who has no key, or uses one wrongly, and against attempts to do without
encryption."""

import struct

import pytest

from arena import ends, fails, spoiled, untouched

import sealed
import wire
from peer import TCP, data_record, end_record, file_record, total_of

GOOD = file_record(size=4) + data_record(b"good") + end_record(b"good")


def rechecked(block, at, bit=1):
    """With one bit of the head changed, and a right checksum of the head."""
    b = bytearray(block)
    b[at] ^= bit
    b[56:64] = struct.pack("<Q", wire.hash64(bytes(b[:56])))
    return bytes(b)


def by_key(lane, /, **over):
    """A block that another key encrypted."""
    values = dict(dict(lane=lane.index, epoch=lane.epoch), **over)
    key = wire.Key(lane.session.key.secret, bytes(32), bytes(32)) if values.pop("strange", 0) else lane.session.key
    cipher = sealed.Cipher(values.pop("kind", lane.session.cipher), key, **values)
    return cipher.block(GOOD, kind=1, lane=lane.index, epoch=lane.epoch, number=0, pos=0, file=0)


# Blocks with a valid head, for the number that is due.
FORGED = {
    "tag": lambda lane: rechecked(lane.block(GOOD), 40), "tag-end": lambda lane: rechecked(lane.block(GOOD), 55, 128),
    "data": lambda lane: spoiled(lane.block(GOOD), 64), "data-end": lambda lane: spoiled(lane.block(GOOD), 64 + len(GOOD) - 1),
    "pos": lambda lane: rechecked(lane.block(GOOD, kind=2, file=1), 24),
    "file": lambda lane: rechecked(lane.block(GOOD, kind=2, file=1), 32),
    "number": lambda lane: rechecked(lane.block(GOOD, number=1), 16),
    "epoch": lambda lane: rechecked(lane.block(GOOD, epoch=lane.epoch ^ 1), 8),
    "clear": lambda lane: wire.block(GOOD, kind=1, lane=0, epoch=lane.epoch, number=0, pos=0, file=0),
    "key-of-another-lane": lambda lane: by_key(lane, lane=1),
    "key-of-another-epoch": lambda lane: by_key(lane, epoch=lane.epoch + 7),
    "key-of-the-other-direction": lambda lane: by_key(lane, direction=2),
    "next-key": lambda lane: by_key(lane, number=1),
    "key-of-another-session": lambda lane: by_key(lane, strange=1),
    "key-of-another-cipher": lambda lane: by_key(lane, kind=3 - lane.session.cipher),
}


def opened(arena, **start):
    e = arena.sink(encrypt=1, **start).orders()
    return e, e.open()[0]


@pytest.mark.parametrize("ciphers", [sealed.AES, sealed.CHACHA])
@pytest.mark.parametrize("what", FORGED)
def test_forged_block_is_damage_and_twice_exits_41(arena, what, ciphers):
    e = arena.sink(encrypt=1).orders()
    lane = e.open(ciphers=ciphers)[0]
    assert lane.cipher.kind == ciphers
    lane.raw(FORGED[what](lane))
    down = e.frames.expect("LANE_DOWN")
    stored = e.frames.expect("LANE_STORED")
    assert (stored["stored"], stored["damaged"]) == (0, 1)
    e.frames.send("LANE_DOWN", **down)
    again = e.dial(epoch=down["epoch"] + 1)
    again.raw(FORGED[what](again))
    fails(e, 41)
    untouched(arena)


@pytest.mark.parametrize("anew", [True, False])
def test_block_is_taken_over_a_new_wire_only_if_encrypted_anew(arena, anew):
    """Its copy from the earlier wire is damage, also with the epoch of the new wire in its head."""
    e, lane = opened(arena)
    block = lane.block(GOOD)
    lane.raw(spoiled(block, 70))
    down = e.frames.expect("LANE_DOWN")
    e.frames.expect("LANE_STORED")
    e.frames.send("LANE_DOWN", **down)
    again = e.dial(epoch=down["epoch"] + 1)
    if not anew:
        again.raw(rechecked(block, 8, lane.epoch ^ again.epoch))
        fails(e, 41)
        untouched(arena)
        return
    again.raw(again.block(GOOD))
    e.result()
    e.lanes = [again]
    e.end(**total_of(b"good"))
    ends(e, 0)


@pytest.mark.parametrize("what", ["as-it-was", "with-the-next-number"])
def test_repeated_block_is_damage(arena, what):
    e, lane = opened(arena)
    block = lane.block(GOOD)
    lane.raw(block)
    e.result()
    lane.raw(block if what == "as-it-was" else rechecked(block, 16))
    stored = e.frames.expect("LANE_STORED")
    assert (stored["stored"], stored["damaged"]) == (1, 1)
    e.hang_up()


HEADS = {
    "of-another-lane": lambda lane: rechecked(lane.block(GOOD), 6), "version": lambda lane: rechecked(lane.block(GOOD), 4), "kind": lambda lane: rechecked(lane.block(GOOD), 5, 8),
    "shorter": lambda lane: rechecked(lane.block(GOOD), 12, len(GOOD) & -len(GOOD)), "earlier": lambda lane: lane.block(GOOD, number=lane.number + 1),
    "of-another-epoch": lambda lane: rechecked(lane.block(GOOD), 8), "longest": lambda lane: rechecked(lane.block(GOOD), 15, 128),
}


@pytest.mark.parametrize("what", HEADS)
def test_changed_head_is_damage_and_twice_exits_41(arena, what):
    """Anybody can compute its checksum, so it is not held against the source."""
    e, lane = opened(arena)
    lane.raw(HEADS[what](lane))
    down = e.frames.expect("LANE_DOWN")
    assert e.frames.expect("LANE_STORED")["damaged"] == 1
    e.frames.send("LANE_DOWN", **down)
    again = e.dial(epoch=down["epoch"] + 1)
    again.raw(HEADS[what](again))
    fails(e, 41)
    untouched(arena)


def test_wish_that_is_taken_out_of_hellos_holds(arena):
    """Someone changed HELLO and the hello of the lane so that the source knows of no wish."""
    e = arena.sink(encrypt=1).orders()
    e.hello(encrypt=0)
    e.offered()
    e.seals = 0
    lane = e.dial()
    assert lane.cipher, "the sink demands encryption in its own hello"
    lane.cipher = None
    e.frames.send("CHOICE", transport=TCP, why="")
    lane.raw(lane.block(GOOD))
    assert e.frames.expect("LANE_STORED")["damaged"] == 1
    e.hang_up()
    untouched(arena)
