# SPDX-License-Identifier: Apache-2.0
"""A hostile sink on encrypted lanes: a source never sends in the clear what an end wanted encrypted, never encrypts two
blocks alike, and takes no forged credit, hello or verdict."""

import pytest

from arena import ends, fails, open_source, serve, take_all

import sealed
import wire
from peer import TCP

CONTENT = b"outside"  # of the file that is sent


def raw_block(lane):
    """A block as it came: its head, and its data, encrypted or not."""
    head = lane.take(64)
    return head, lane.take(wire.parse_block_head(head)["len"])


def break_wire(e, lane, stored):
    """Gives up the wire of a lane, of which so many blocks were stored, and dials the next one."""
    lane.close()
    e.frames.send("LANE_DOWN", lane=0, epoch=lane.epoch, why="because")
    e.frames.expect("LANE_DOWN")
    e.frames.send("LANE_STORED", lane=0, epoch=lane.epoch, stored=stored, damaged=0)
    return e.dial(epoch=lane.epoch + 1)


@pytest.mark.parametrize("ciphers", [sealed.AES, sealed.CHACHA])
def test_honest_sink_is_served(arena, ciphers):
    e = arena.source(encrypt=1).orders()
    lane = e.open(ciphers=ciphers)[0]
    assert lane.cipher.kind == ciphers
    records, end = serve(e, lane)
    assert records["DATA"]["bytes"] == CONTENT
    e.frames.send("DONE", **end)
    ends(e, 0)


@pytest.mark.parametrize("lane_hello", [0, 1])
def test_source_that_wants_encryption_sends_nothing_in_the_clear(arena, lane_hello):
    """The sink says that it knows of no wish, in HELLO, and in the hello of the lane."""
    e = arena.source(encrypt=1).orders()
    e.hello(encrypt=0)
    e.offered()
    e.seals = lane_hello
    lane = e.dial()
    assert lane.cipher, "the source demands encryption in its own hello"
    e.frames.send("CHOICE", transport=TCP, why="")
    head, data = raw_block(lane)
    assert CONTENT not in data
    assert CONTENT in lane.cipher.open(head, data)
    e.hang_up()


def test_ciphers_that_the_source_lacks_exit_43(arena):
    e = arena.source(encrypt=1).orders()
    e.hello(ciphers=1 << 5)
    fails(e, 43)


def test_block_is_encrypted_anew_for_each_wire(arena):
    """With another key: no two wires show the same bytes, and the key of one opens no block of another."""
    e, (lane,) = open_source(arena, encrypt=1)
    seen = []
    for _ in range(4):
        head, data = raw_block(lane)
        assert CONTENT in lane.cipher.open(head, data)
        assert all(data != other and head[40:56] != tag for tag, other, _ in seen)
        assert all(cipher.open(head, data) is None for _, _, cipher in seen)
        seen.append((head[40:56], data, lane.cipher))
        lane = break_wire(e, lane, 0)
    take_all(e, lane)
    e.say_stored(1)
    e.frames.send("DONE", **e.frames.expect("END"))
    ends(e, 0)


def test_no_epoch_is_used_twice(arena):
    """A second connection for the epoch of a wire that broke gets no block."""
    e, (lane,) = open_source(arena, encrypt=1)
    raw_block(lane)
    lane.close()
    e.frames.send("LANE_DOWN", lane=0, epoch=0, why="because")
    e.frames.expect("LANE_DOWN")
    e.frames.send("LANE_STORED", lane=0, epoch=0, stored=0, damaged=0)
    again = e.dial(epoch=0, greet=False)
    again.raw(again.hello())
    assert again.closed()
    lane = e.dial(epoch=1)
    assert CONTENT in lane.cipher.open(*raw_block(lane))
    e.hang_up()


CREDITS = {
    "beyond-what-was-sent": dict(stored=2), "2^63": dict(stored=1 << 63), "2^64-1": dict(stored=2**64 - 1),
    "of-another-epoch": dict(stored=1, epoch=7),
}


@pytest.mark.parametrize("what", CREDITS)
def test_forged_credit_ends_the_session_and_removes_nothing(arena, what):
    e, (lane,) = open_source(arena, encrypt=1, wants=["target/f"], flags=["REMOVE_SOURCE"], target="")
    raw_block(lane)
    lane.grant(**CREDITS[what])
    fails(e, 12)
    assert (arena.target / "f").read_bytes() == b"old"


def test_early_credit_confirms_nothing(arena):
    """A credit that nobody's storing stands behind frees the block, and no more: the verdict is the sink's to give."""
    e, (lane,) = open_source(arena, encrypt=1, wants=["target/f"], flags=["REMOVE_SOURCE"], target="", timeout_ms=1000)
    raw_block(lane)
    lane.grant(1)
    end = e.frames.expect("END")
    e.frames.send("DONE", **end)
    fails(e, 41)
    assert (arena.target / "f").read_bytes() == b"old"
