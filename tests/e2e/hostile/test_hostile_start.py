# SPDX-License-Identifier: Apache-2.0
"""A hostile conductor: START, and what it requests from an end."""

import time

import pytest

from arena import ends, fails

import wire
from peer import (FLAG_BITS, SINK, SOURCE, TCP, TOTAL_NONE, U16, U32, U64, data_record, end_record,
                  file_record, total_of)

# ---- START and its requests -------------------------------------------------------------------

STARTS = {
    "version-0": (dict(version=0), 2), "version-99": (dict(version=99), 2),
    "role-0": (dict(role=0), 12), "role-3": (dict(role=3), 12), "want-4": (dict(want=4), 12),
    "verbose-4": (dict(verbose=4), 12), "flags": (dict(flags=1 << FLAG_BITS), 12),
    "flags-all": (dict(flags=U64), 12), "lanes-65": (dict(lanes=65), 12),
    "lanes-65535": (dict(lanes=U16), 12), "depth-1025": (dict(depth=1025), 12),
    "block-3": (dict(block_size=3), 12), "block-2^31": (dict(block_size=1 << 31), 12),
    "timeout-2^31": (dict(timeout_ms=1 << 31), 12), "timeout-2^32-1": (dict(timeout_ms=U32), 12),
    "connect-2^32-1": (dict(connect_timeout_ms=U32), 12), "ports-back": (dict(port_lo=9, port_hi=8), 12),
    "port-0-9": (dict(port_hi=9), 12), "host-256": (dict(host="x" * 256), 12),
    "target-4096": (dict(target="x" * 4096), 12), "target-nul": (dict(target=b"a\0b"), 12),
    "digest-5": (dict(digest=5), 12), "chmod-1024": (dict(chmod="x" * 1024), 12),
    "chown-256": (dict(chown="x" * 256), 12), "suffix-256": (dict(suffix="x" * 256), 12),
    "backup_dir-4096": (dict(backup_dir="x" * 4096), 12),
}


@pytest.mark.parametrize("what", STARTS)
def test_invalid_start_fails(arena, what):
    over, code = STARTS[what]
    e = arena.sink().orders(**over)
    fails(e, code)


STARTS_TAKEN = {
    "the-most": dict(lanes=64, depth=1024, block_size=4 << 20),
    "defaults": dict(lanes=0, depth=0, block_size=0, memory=0, timeout_ms=0, connect_timeout_ms=0),
    "timeouts-2^31-1": dict(timeout_ms=2**31 - 1, connect_timeout_ms=2**31 - 1),
    "memory-1": dict(memory=1),
    "one-byte-a-second": dict(bwlimit=1),
    "names": dict(host=b"\x1b[31m", peer=b"\x9b\xff\n", verbose=3),
}


@pytest.mark.parametrize("what", STARTS_TAKEN)
def test_extreme_valid_start_is_accepted(arena, what):
    """Pools are mapped, but no memory is used before data arrives."""
    e = arena.sink().orders(**STARTS_TAKEN[what])
    if what == "memory-1":
        e.hello()
        fails(e, 1)
        return
    e.hello()
    e.offered()
    for i in range(e.count):
        e.dial(i)
        if i == 0:
            e.frames.send("CHOICE", transport=TCP, why="")
    e.lanes[0].records(file_record(size=4), data_record(b"good"), end_record(b"good"))
    e.result()
    e.end(**total_of(b"good"))
    ends(e, 0)


def test_timeout_of_2_31_overflows_no_wait(arena):
    """No sum with it becomes negative."""
    for role in (SINK, SOURCE):
        e = arena.end(role, target=arena.target, wants=["outside/f"], timeout_ms=2**31 - 1,
                      connect_timeout_ms=2**31 - 1, listens=role == SINK).orders()
        e.hello(timeout_ms=2**31 - 1)
        if role == SINK:
            e.offered()
            lane = e.dial()
            e.frames.send("CHOICE", transport=TCP, why="")
        else:
            e.listen()
            lane = e.accept()
            e.frames.expect("CHOICE")
        lane.close()
        e.frames.expect("LANE_DOWN")
        e.frames.send("LANE_DOWN", lane=0, epoch=0, why="")
        if role == SOURCE:
            e.frames.send("LANE_STORED", lane=0, epoch=0, stored=0, damaged=0)
        time.sleep(0.3)
        assert e.proc.proc.poll() is None
        e.frames.send("CANCEL", signo=2)
        fails(e, 20)


@pytest.mark.parametrize("what", ["GO", "WANT", "HELLO", "CANCEL", "GREETING", "END"])
def test_missing_start_fails(arena, what):
    e = arena.sink()
    e.greeting()
    values = {"GO": {}, "WANT": dict(name="f"), "CANCEL": dict(signo=2), "END": TOTAL_NONE,
              "GREETING": dict(magic=wire.GREETING_MAGIC, version=wire.VERSION, release="1"),
              "HELLO": e.our_hello(dict(version=wire.VERSION, lanes=1, depth=1, block_size=4096, features=0,
                                        memory=U64, timeout_ms=1, host_id=1))}[what]
    e.frames.send(what, **values)
    fails(e, 12)


def test_second_start_fails(arena):
    e = arena.sink()
    e.greeting()
    e.frames.send("START", **e.start_values)
    e.frames.send("START", **e.start_values)
    fails(e, 12)


def test_go_with_a_body_fails(arena):
    e = arena.sink()
    e.greeting()
    e.frames.send("START", **e.start_values)
    e.frames.raw(wire.frame("GO", b"x"))
    fails(e, 12)


def test_endless_names_use_bounded_memory(arena):
    """So many, or so long, that they are not kept."""
    arena.memory_max += 160 << 20
    e = arena.sink()
    e.greeting()
    e.frames.send("START", **e.start_values)
    frame = wire.message("WANT", name="n" * 4000) * 200
    for _ in range(100):
        if not e.frames.raw(frame):
            break
    fails(e, 12)


def test_conductor_that_disconnects_ends_the_end(arena):
    for stage in range(4):
        e = arena.sink()
        if stage > 0:
            e.greeting()
        if stage > 1:
            e.frames.send("START", **e.start_values)
        if stage > 2:
            e.frames.send("WANT", name="f")
        e.hang_up()
        fails(e, 44, verdict=False)
