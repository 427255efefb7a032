# SPDX-License-Identifier: Apache-2.0
"""Hostile lanes, to a sink and to a source: blocks, wires that break or are held, credits, and false reports about
them."""

import time

import pytest

from arena import SOON, all_credited, ends, fails, manifest, open_source, spoiled, untouched
from hosts import COUNT, SLOW, pattern

import peer
import wire
from peer import RECORDS, TCP, U16, U32, U64, data_record, end_record, file_record, total_of

# ---- blocks -----------------------------------------------------------------


BLOCKS = {
    "another-lane": lambda lane: lane.block(b"", lane=1),
    "lane-64": lambda lane: lane.block(b"", lane=64),
    "another-epoch": lambda lane: lane.block(b"", epoch=1),
    "another-number": lambda lane: lane.block(b"", number=1),
    "number-2^64-1": lambda lane: lane.block(b"", number=U64),
    "another-version": lambda lane: lane.block(b"", version=2),
    "another-magic": lambda lane: lane.block(b"", magic=b"SLC\x93"),
    "compressed": lambda lane: lane.block(b"", plain_len=1),
    "longer-than-a-block": lambda lane: lane.block(b"", len=lane.session.block_size + 1),
    "of-4-GiB": lambda lane: lane.block(b"", len=U32),
    "a-credit": lambda lane: wire.credit(epoch=0, stored=0) * 4,
}


@pytest.mark.parametrize("what", BLOCKS)
def test_invalid_block_fails(arena, what):
    e = arena.sink().orders()
    lane = e.open()[0]
    lane.raw(BLOCKS[what](lane))
    if what == "a-credit":
        # No check is right: that is damage, and damage twice ends the session.
        down = e.frames.expect("LANE_DOWN")
        assert e.frames.expect("LANE_STORED")["damaged"] == 1
        e.frames.send("LANE_DOWN", **down)
        again = e.dial(epoch=down["epoch"] + 1)
        again.raw(spoiled(again.block(b""), 60))
        fails(e, 41)
    else:
        fails(e, 12)
    untouched(arena)


@pytest.mark.parametrize("at", [0, 5, 20, 40, 56, 63, 64, 100])
def test_block_damaged_once_is_requested_again_and_twice_exits_41(arena, at):
    e = arena.sink().orders()
    lane = e.open()[0]
    block = lane.block(file_record(size=4) + data_record(b"good") + end_record(b"good"))
    lane.raw(spoiled(block, at))
    down = e.frames.expect("LANE_DOWN")
    stored = e.frames.expect("LANE_STORED")
    assert (stored["stored"], stored["damaged"]) == (0, 1)
    e.frames.send("LANE_DOWN", **down)
    again = e.dial(epoch=down["epoch"] + 1)
    again.raw(spoiled(again.block(block[64:]), at))
    fails(e, 41)
    untouched(arena)


def test_blocks_beyond_the_credit_use_no_memory(arena):
    """The sink accepts what it can, in the memory that it has."""
    e = arena.sink(depth=2).orders()
    lane = e.open()[0]
    lane.sock.settimeout(3)
    for _ in range(2000):
        if not lane.records(file_record(id=7, want=9) if _ == 1999 else b""):
            break
    e.hang_up()
    ends(e, 12, 44, verdict=False)


def test_unread_credits_do_not_block_the_sink(arena):
    """A sink never waits to send credits, and keeps only the latest."""
    e = arena.sink().orders()
    lane = e.open()[0]
    empty = 20000 * COUNT
    for _ in range(0, empty, 100):
        lane.raw(b"".join(lane.block(b"") for _ in range(100)))
    lane.records(file_record(size=4), data_record(b"good"), end_record(b"good"))
    assert e.result()["code"] == 0
    all_credited(lane)
    e.end(**total_of(b"good"))
    ends(e, 0)


def test_incomplete_block_waits_for_its_session(arena):
    """A lane may rest for as long as its session lives, and no longer."""
    e = arena.sink(timeout_ms=1000).orders()
    lane = e.open()[0]
    lane.raw(lane.block(b"x" * 1000)[:164])
    e.frames.mute = True
    fails(e, 30)


def test_repeatedly_broken_wire_ends_the_session(arena):
    """Ten wires without a stored block end the session."""
    e = arena.sink(timeout_ms=5000).orders()
    lane, epoch = e.open()[0], 0
    for _ in range(40):
        lane.close()
        e.frames.send("LANE_DOWN", lane=0, epoch=epoch, why="because")
        try:
            e.frames.expect("LANE_STORED", timeout=SOON)
            epoch += 1
            lane = e.dial(epoch=epoch)
        except (OSError, EOFError, peer.Silence):
            break
    fails(e, 44)
    assert 5 < epoch < 20
    untouched(arena)


def test_missing_new_wire_times_out(arena):
    e = arena.sink(timeout_ms=1000).orders()
    lane = e.open()[0]
    # Until it has received CHOICE, it waits as long as for a first connection.
    e.frames.send("PING", cookie=1)
    e.frames.expect("PONG")
    lane.close()
    epoch = e.frames.expect("LANE_STORED")["epoch"]
    e.frames.send("LANE_DOWN", lane=0, epoch=epoch, why="")
    fails(e, 44)


HOLDS = ["silent", "idle", "busy"]


def hold_up(e, how, epoch):
    """Never report that the wire of this epoch is over; answer whether the thread is busy, or not."""
    for _ in range(6 if how == "busy" else 1):
        check = e.frames.expect("LANE_CHECK", timeout=SOON)
        assert (check["lane"], check["epoch"]) == (0, epoch)
        if how == "busy":
            e.frames.send("LANE_HELD", lane=0, epoch=epoch, mtu=0, busy=1)
    if how == "busy":
        # Four answers that were not busy were enough.
        assert e.proc.proc.poll() is None
        e.frames.send("CANCEL", signo=15)
        return ends(e, 20)
    if how == "idle":
        for _ in range(4):
            e.frames.send("LANE_HELD", lane=0, epoch=epoch, mtu=0, busy=0)
            try:
                e.frames.expect("LANE_CHECK", timeout=SOON)
            except peer.Silence:
                break
    return fails(e, 30)


@pytest.mark.parametrize("how", HOLDS)
def test_source_that_never_gives_up_a_broken_wire(arena, how):
    """It may stay in a file call forever if it answers that it is busy; otherwise the session ends."""
    e = arena.sink(timeout_ms=1000).orders()
    e.open()[0].close()
    epoch = e.frames.expect("LANE_STORED")["epoch"]
    hold_up(e, how, epoch)
    untouched(arena)


@pytest.mark.parametrize("how", HOLDS)
def test_sink_that_never_gives_up_a_broken_wire(arena, how):
    e, (lane,) = open_source(arena, timeout_ms=1000)
    lane.take_block()
    lane.close()
    epoch = e.frames.expect("LANE_DOWN")["epoch"]
    hold_up(e, how, epoch)


# ---- false reports about lanes --------------------------------------------------------------------

LANE_LIES = {
    "down-unknown-lane": ("LANE_DOWN", dict(lane=1, epoch=0, why=""), 12),
    "down-lane-64": ("LANE_DOWN", dict(lane=64, epoch=0, why=""), 12),
    "down-lane-65535": ("LANE_DOWN", dict(lane=U16, epoch=0, why=""), 12),
    "down-last-epoch": ("LANE_DOWN", dict(lane=0, epoch=U32, why=""), 12),
    "stored-from-a-source": ("LANE_STORED", dict(lane=0, epoch=0, stored=0, damaged=0), 12),
    "check-unknown-lane": ("LANE_CHECK", dict(lane=1, epoch=0, mtu=0), 12),
    "held-last-epoch": ("LANE_HELD", dict(lane=0, epoch=U32, mtu=0, busy=0), 12),
}


@pytest.mark.parametrize("what", LANE_LIES)
def test_false_lane_reports_fail_a_sink(arena, what):
    name, values, code = LANE_LIES[what]
    e = arena.sink().orders()
    e.open()
    e.frames.send(name, **values)
    fails(e, code)


def test_lane_check_of_a_live_wire_fails(arena):
    e, _ = open_source(arena)
    e.frames.send("LANE_CHECK", lane=0, epoch=0, mtu=0)
    fails(e, 12)


STORED_LIES = {
    "beyond-what-was-sent": dict(stored=1000),
    "2^64-1": dict(stored=U64),
    "unknown-lane": dict(lane=1),
    "lane-64": dict(lane=64),
    "last-epoch": dict(epoch=U32),
    "damaged-2": dict(damaged=2),
}


@pytest.mark.parametrize("what", STORED_LIES)
def test_false_lane_stored_fails_a_source(arena, what):
    e, (lane,) = open_source(arena)
    lane.take_block()
    lane.close()
    values = {**dict(lane=0, epoch=0, stored=0, damaged=0), **STORED_LIES[what]}
    e.frames.send("LANE_DOWN", lane=0, epoch=0, why="")
    e.frames.send("LANE_STORED", **values)
    if what in ("beyond-what-was-sent", "2^64-1"):
        try:
            e.dial(epoch=1)
        except (OSError, EOFError):
            pass
    fails(e, 12)


def test_decreasing_lane_stored_fails(arena):
    (arena.top / "big").write_bytes(pattern(4 * 16384))
    arena.before = manifest(arena.top, arena.target)
    e, (lane,) = open_source(arena, wants=["big"])
    for _ in range(3):
        lane.take_block()
    lane.grant(2)
    # The credit must have been received before the wire breaks.
    lane.take_block()
    time.sleep(0.3 * SLOW)
    lane.close()
    e.frames.send("LANE_STORED", lane=0, epoch=0, stored=1, damaged=0)
    e.frames.send("LANE_DOWN", lane=0, epoch=0, why="")
    try:
        e.dial(epoch=1)
    except (OSError, EOFError):
        pass
    # If it had not read the credit, 1 is all that it knows.
    e.hang_up()
    ends(e, 12, 44, verdict=False)


def test_floods_of_lane_reports_use_bounded_memory(arena):
    """They use no memory; a lane that has used up its epochs ends the session."""
    e, (lane,) = open_source(arena)
    for epoch in range(0, 20000 * COUNT, 2):
        if not e.frames.raw(
                wire.message("LANE_STORED", lane=0, epoch=epoch, stored=0, damaged=1) +
                wire.message("LANE_DOWN", lane=0, epoch=epoch, why="\x1b[31m" * 100)):
            break
    e.frames.send("LANE_DOWN", lane=0, epoch=U32 - 1, why="")
    ends(e, 12, 44)


CREDITS = {
    "over-granted": wire.credit(epoch=0, stored=2),
    "of-all": wire.credit(epoch=0, stored=U64),
    "of-nothing": wire.credit(epoch=0, stored=0),
    "of-another-epoch": wire.credit(epoch=1, stored=1),
    "of-the-last-epoch": wire.credit(epoch=U32, stored=1),
    "of-another-magic": wire.credit(magic=b"SLB\x93", epoch=0, stored=1),
    "twice": 2 * wire.credit(epoch=0, stored=1),
    "a-block": wire.block(b"", kind=RECORDS, lane=0, epoch=0, number=0, pos=0, file=0),
    "garbage": bytes(range(200)),
    "zeros": bytes(4096),
}


@pytest.mark.parametrize("what", CREDITS)
def test_invalid_credit_fails_a_source(arena, what):
    e, (lane,) = open_source(arena)
    lane.take_block()
    lane.raw(CREDITS[what])
    fails(e, 12)


def test_decreasing_credit_fails(arena):
    (arena.top / "big").write_bytes(pattern(8 * 16384))
    arena.before = manifest(arena.top, arena.target)
    e, (lane,) = open_source(arena, wants=["big"])
    for _ in range(4):
        lane.take_block()
    lane.grant(3)
    lane.grant(2)
    fails(e, 12)


@pytest.mark.parametrize("role", ["connects", "accepts"])
@pytest.mark.parametrize("depth", [1, 3])
def test_source_obeys_a_smaller_depth_of_the_wire(arena, role, depth):
    """A peer may state less than the agreed depth for a wire: no more blocks are in flight, and the copy succeeds."""
    data = pattern(20 * 16384)
    (arena.top / "big").write_bytes(data)
    arena.before = manifest(arena.top, arena.target)
    e = arena.source(wants=["big"], listens=role == "connects").orders()
    e.hello()
    if role == "connects":
        e.offered()
        lane = e.dial(greet=False)
        lane.shape["depth"] = depth
        assert lane.greet()["depth"] == e.depth > depth
        e.frames.send("CHOICE", transport=TCP, why="")
    else:
        e.listen()
        lane = e.accept(answer=False)
        lane.shape["depth"] = depth
        assert lane.answer()["depth"] == e.depth > depth
    got, taken, ended = {}, 0, None
    while ended is None:
        for _ in range(depth):
            head, content = lane.take_block()
            taken += 1
            if head["kind"] == peer.EXTENT:
                got[head["pos"]] = content
            for name, values in wire.records(content) if head["kind"] == RECORDS else []:
                if name == "DATA":
                    got[values["pos"]] = values["bytes"]
                ended = values if name == "FILE_END" else ended
            if ended:
                break
        else:
            lane.sock.settimeout(0.3 * SLOW)
            with pytest.raises(TimeoutError):
                lane.take(1)
            lane.sock.settimeout(peer.PATIENCE)
        lane.grant(taken)
    assert b"".join(got[pos] for pos in sorted(got)) == data
    e.say_stored(ended["id"])
    e.frames.send("DONE", **e.frames.expect("END"))
    ends(e, 0)


def test_missing_credits_time_out(arena):
    """A resting sink is alive; a silent one is not."""
    (arena.top / "big").write_bytes(pattern(40 * 16384))
    arena.before = manifest(arena.top, arena.target)
    e, (lane,) = open_source(arena, wants=["big"], depth=4, timeout_ms=1000)
    for _ in range(4):
        lane.take_block()
    time.sleep(2)
    assert e.proc.proc.poll() is None
    e.frames.mute = True
    fails(e, 30)
