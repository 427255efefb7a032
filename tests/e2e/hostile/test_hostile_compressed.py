# SPDX-License-Identifier: Apache-2.0
"""A hostile source sends compressed blocks, a hostile sink cannot decompress."""

import random
import subprocess

import pytest

from arena import fails, untouched

import peer
import wire
from peer import data_record, end_record, file_record

ZSTD = 1
ALWAYS = 2 << 8
TEXT = b"a block of a lane, and " * 40


def squeeze(data, *options):
    """One frame of zstd that states the size of its content."""
    return subprocess.run(["zstd", "-q", "-c", "--no-check", "--stream-size=%d" % len(data), *options], input=data, capture_output=True,
                          check=True).stdout


def expand(frame):
    return subprocess.run(["zstd", "-q", "-d", "-c"], input=frame, capture_output=True).stdout


def bomb(size):
    """A frame that states size, with 2 MiB of zeros in blocks of one repeated byte."""
    blocks = b"".join(((last | 2 | 131072 << 3).to_bytes(3, "little") + b"\0") for last in [0] * 15 + [1])
    return b"\x28\xb5\x2f\xfd\x60" + (size - 256).to_bytes(2, "little") + blocks


def compressed(lane, plain, frame=None, **over):
    """A block whose hash is that of plain, and whose data is the frame."""
    frame = squeeze(plain) if frame is None else frame
    low, high = wire.hash128(plain, 0)
    number = over.pop("number", 0)
    head = wire.block_head(**{"kind": peer.RECORDS, "lane": lane.index, "file": 0, "pos": 0, "epoch": lane.epoch, "len": len(frame), "number": number,
                              "plain_len": len(plain), "hash_low": low, "hash_high": high, **over})
    return head + frame


def records():
    return file_record(size=len(TEXT)) + data_record(TEXT) + end_record(TEXT)


def open_lane(arena, **how):
    e = arena.sink(**how).orders()
    return e, e.open(features=ZSTD | ALWAYS)[0]


def test_compressed_block_is_stored(arena):
    e, lane = open_lane(arena)
    lane.raw(compressed(lane, records()))
    assert lane.credit()["stored"] == 1
    e.end(**peer.total_of(TEXT))
    e.frames.expect("DONE")
    assert (arena.target / "f").read_bytes() == TEXT


WRONG = {
    "a-bomb": lambda r: dict(frame=squeeze(bytes(1 << 20))),
    "a-bomb-that-lies": lambda r: dict(frame=bomb(len(r))),
    "a-larger-frame": lambda r: dict(frame=squeeze(r + b"x")),
    "a-smaller-frame": lambda r: dict(frame=squeeze(r[:-1])),
    "truncated": lambda r: dict(frame=squeeze(r)[:-1]),
    "no-frame": lambda r: dict(frame=b"x" * 99),
    "two-frames": lambda r: dict(frame=squeeze(r) * 2),
    "without-size": lambda r: dict(frame=subprocess.run(["zstd", "-q", "-c", "--no-check"], input=r, capture_output=True).stdout),
    "nothing-in-it": lambda r: dict(frame=b"\x50\x2a\x4d\x18\4\0\0\0abcd"),
    "another-hash": lambda r: dict(hash_low=1),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_frame_is_damage(arena, what):
    e, lane = open_lane(arena)
    lane.raw(compressed(lane, records(), **WRONG[what](records())))
    down = e.frames.expect("LANE_DOWN")
    assert e.frames.expect("LANE_STORED")["damaged"] == 1
    e.frames.send("LANE_DOWN", **down)
    again = e.dial(epoch=down["epoch"] + 1)
    again.raw(compressed(again, records(), **WRONG[what](records())))
    fails(e, 41)
    untouched(arena)


@pytest.mark.parametrize("over", [dict(plain_len=1), dict(plain_len=2**32 - 1), dict(len=0)])
def test_impossible_length_is_refused(arena, over):
    e, lane = open_lane(arena)
    lane.raw(compressed(lane, records(), **over))
    fails(e, 12)
    untouched(arena)


def test_compressed_block_is_refused_unless_agreed(arena):
    e = arena.sink().orders()
    lane = e.open(features=ZSTD)[0]
    lane.raw(compressed(lane, records()))
    fails(e, 12)
    untouched(arena)


@pytest.mark.parametrize("seed", range(40))
def test_mutated_frames_are_refused(arena, seed):
    r = random.Random(seed)
    e, lane = open_lane(arena)
    frame = bytearray(squeeze(records()))

    def mutated():
        m = bytearray(frame)
        for _ in range(r.randint(1, 3)):
            m[r.randrange(len(m) if r.random() < .5 else 16)] ^= 1 << r.randrange(8)
        return bytes(m)

    sent = mutated()
    while expand(sent) == records():
        sent = mutated()
    lane.raw(compressed(lane, records(), frame=sent))
    down = e.frames.expect("LANE_DOWN")
    e.frames.expect("LANE_STORED")
    e.frames.send("LANE_DOWN", **down)
    again = e.dial(epoch=down["epoch"] + 1)
    again.raw(compressed(again, records(), frame=sent))
    fails(e, 41)
    untouched(arena)


# ---- a source and a hostile sink ----------------------------------------------------------


def source_of_text(arena, mode):
    (arena.target / "text").write_bytes(TEXT * 3)
    return arena.source(wants=("target/text",), flags=(mode,), lanes=1).orders()


@pytest.mark.parametrize("mode", ["COMPRESS_AUTO", "COMPRESS_ALWAYS"])
def test_source_sends_frames_that_another_program_can_read(arena, mode):
    e = source_of_text(arena, mode)
    lane = e.open()[0]
    head, data = lane.take_block()
    assert head["plain_len"] > head["len"] == len(data)
    plain = expand(data)
    assert len(plain) == head["plain_len"]
    assert wire.hash128(plain, 0) == (head["hash_low"], head["hash_high"])
    records = wire.records(plain)
    assert dict(records)["DATA"]["bytes"] == TEXT * 3


@pytest.mark.parametrize("features", [0, 2, 0xffffff00])
def test_sink_that_cannot_decompress(arena, features):
    """Nothing is compressed for it; whoever insists gets an error."""
    e = source_of_text(arena, "COMPRESS_ALWAYS")
    e.hello(features=features)
    fails(e, 43)
    e = source_of_text(arena, "COMPRESS_AUTO")
    lane = e.open(features=features)[0]
    head, data = lane.take_block()
    assert head["plain_len"] == 0 and TEXT in data


@pytest.mark.parametrize("wish", [3, 23 << 2 | 2, 31 << 2 | 1, 5 << 2])
def test_impossible_wish_is_none(arena, wish):
    e = source_of_text(arena, "QUIET")
    lane = e.open(features=ZSTD | wish << 8)[0]
    head, data = lane.take_block()
    assert head["plain_len"] == 0 and TEXT in data
