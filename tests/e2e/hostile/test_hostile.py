# SPDX-License-Identifier: Apache-2.0
"""Nothing a peer sends, in any state, authenticated or not, makes an end crash, hang, allocate
without bound, or touch what it was not told to.

tests/hostile/peer.py has an end in its hands and is conductor and peer in one; far_end.py is the
far end of a real rdcp; tls.py gets past a rdrecv's door.  Everything goes over TCP on loopback,
on whatever machine this runs.
"""

import os
import random
import resource
import secrets
import shutil
import socket
import stat
import struct
import threading
import time

import pytest

from arena import RDCP, SOON, WATCHED, all_credited, ends, fails, manifest, rdcp, untouched
from hosts import COUNT, SLOW, leftovers, pattern, wait_until

import peer  # noqa: E402
import tls  # noqa: E402
import wire  # noqa: E402
from peer import (CELL, EXTENT, I64, ORDERED, PRESERVE, RDMA, RECORDS, SINK,  # noqa: E402
                  NAMES, SOURCE, SPARSE, SSH, STREAM, TCP, TOTAL_NONE, U16, U32, U64, data_record,
                  end_record, file_record, hole_record, total_of)

KEY = "sluice-key-1:" + "5e" * 32


def peaceful_sink(arena, data=b"good", **how):
    """A whole honest session, up to where END could be said."""
    e = arena.sink(**how).orders()
    lane = e.open()[0]
    lane.records(file_record(size=len(data)), data_record(data), end_record(data))
    return e, lane


# ---- that an honest one gets through (else nothing below means anything) -------------------

def test_an_honest_source_is_served(arena):
    e, lane = peaceful_sink(arena)
    assert e.result()["code"] == 0
    assert lane.credit()["stored"] == 1
    e.end(**total_of(b"good"))
    assert e.frames.expect("DONE") == total_of(b"good")
    ends(e, 0)
    assert (arena.target / "f").read_bytes() == b"good"
    assert not leftovers(arena.target)


def open_source(arena, lanes=1, **how):
    e = arena.source(lanes=lanes, **how).orders()
    return e, e.open()


def take_all(e, lane):
    """All blocks of a source that sends small files on one lane; their records."""
    head, data = lane.take_block()
    lane.grant(head["number"] + 1)
    return wire.records(data)


def serve(e, lane):
    """As an honest sink: up to where END has come."""
    records = dict(take_all(e, lane))
    e.say_stored(records["FILE"]["id"])
    return records, e.frames.expect("END")


def test_an_honest_sink_is_served(arena):
    e, (lane,) = open_source(arena)
    records, end = serve(e, lane)
    assert records["DATA"]["bytes"] == b"outside"
    assert end == total_of(b"outside")
    e.frames.send("DONE", **end)
    ends(e, 0)


# ---- a hostile source: names and files ------------------------------------------------------


@pytest.mark.parametrize("want", ["dir/f", "dir/*", "*"])
@pytest.mark.parametrize("name", NAMES)
def test_names(arena, name, want):
    e = arena.sink(wants=[want]).orders()
    lane = e.open()[0]
    lane.records(file_record(name=NAMES[name], size=3), data_record(b"bad"), end_record(b"bad"))
    plain = b"/" not in NAMES[name] and b"\0" not in NAMES[name] and 0 < len(NAMES[name]) < 256 \
        and NAMES[name][:1] != b"."
    if "*" in want and plain:
        # It may be what was meant; it stays in the target, and is shown escaped.
        assert e.result()["code"] == 0
        e.end(**total_of(b"bad"))
        ends(e, 0)
        assert sorted(os.fsencode(p.name) for p in arena.target.iterdir()) == \
            sorted([b"f", NAMES[name]])
    else:
        fails(e, 12)
        untouched(arena)


FILES = {
    "an-answer-to-nothing": [file_record(want=1)],
    "the-last-want": [file_record(want=U32)],
    "id-0": [file_record(id=0)],
    "unknown-flags": [file_record(flags=64)],
    "all-flags": [file_record(flags=U32)],
    "mode-beyond": [file_record(mode=0o10000)],
    "nanoseconds": [file_record(mtime_ns=10**9)],
    "atime-nanoseconds": [file_record(atime_ns=U32)],
    "size-2^63": [file_record(size=1 << 63)],
    "size-2^64-1": [file_record(size=U64)],
    "a-stream-with-a-size": [file_record(flags=STREAM, size=1)],
    "announced-twice": [file_record(), file_record()],
    "announced-twice-otherwise": [file_record(size=1), file_record(size=2)],
    "a-second-file-of-the-name": [file_record(), end_record(), file_record(id=2), end_record(id=2)],
    "the-same-id-again": [file_record(), end_record(), file_record(), end_record()],
    "300-open-files": [file_record(id=i + 1, size=1) for i in range(300)],
    "data-of-nothing": [data_record(b"x")],
    "data-of-id-0": [data_record(b"x", id=0)],
    "data-of-another-id": [file_record(size=1), data_record(b"x", id=2)],
    "data-after-the-end": [file_record(), end_record(), data_record(b"x")],
    "data-after-an-end-that-counts-more": [
        file_record(size=2), data_record(b"x"), end_record(b"x", size=2, data=1, holes=1),
        data_record(b"y", pos=1)],
    "data-beyond-the-size": [file_record(size=3), data_record(b"1234")],
    "data-at-the-size": [file_record(size=3), data_record(b"1", pos=3)],
    "data-at-2^63-1": [file_record(size=I64), data_record(b"12", pos=I64 - 1)],
    "data-at-2^64-1": [file_record(size=I64), data_record(b"12", pos=U64)],
    "data-of-a-stream-at-2^63-1": [file_record(flags=STREAM | ORDERED),
                                   data_record(b"12", pos=I64 - 1)],
    "data-twice": [file_record(size=3), data_record(b"123"), data_record(b"123")],
    "data-before-its-turn-again": [file_record(size=6, flags=ORDERED), data_record(b"123"),
                                   data_record(b"123")],
    "overlapping": [file_record(size=6, flags=ORDERED), data_record(b"1234"),
                    data_record(b"34", pos=2)],
    "a-hole-without-holes": [file_record(size=9), hole_record(0, 9)],
    "a-hole-of-nothing": [file_record(size=9, flags=SPARSE), hole_record(0, 0)],
    "a-hole-beyond": [file_record(size=9, flags=SPARSE), hole_record(1, 9)],
    "a-hole-that-wraps": [file_record(size=9, flags=SPARSE), hole_record(9, U64 - 8)],
    "a-hole-of-2^63": [file_record(size=I64, flags=SPARSE), hole_record(0, 1 << 63)],
    "a-hole-at-2^63": [file_record(size=I64, flags=SPARSE), hole_record(1 << 63, 1)],
    "a-hole-twice": [file_record(size=9, flags=SPARSE), hole_record(0, 9), hole_record(0, 1)],
    "an-end-of-nothing": [end_record()],
    "an-end-of-another": [file_record(), end_record(id=2)],
    "an-end-twice": [file_record(size=1), end_record(b"x"), end_record(b"x")],
    "an-end-with-bytes-missing": [file_record(size=9), data_record(b"x"),
                                  end_record(b"x", size=9)],
    "an-end-of-another-size": [file_record(size=1), data_record(b"x"), end_record(b"x", size=2)],
    "an-end-of-more-bytes-than-size": [file_record(size=1), end_record(size=1, data=2)],
    "an-end-that-wraps": [file_record(size=1), end_record(size=1, data=U64, holes=2)],
    "an-end-of-fewer": [file_record(size=2), data_record(b"xy"), end_record(b"x")],
    "an-end-on-no-lane": [file_record(), end_record(lanes=0)],
    "an-end-on-65-lanes": [file_record(), end_record(lanes=65)],
    "an-end-of-size-2^63": [file_record(), end_record(size=1 << 63)],
    "an-end-with-a-text-of-1024": [file_record(), end_record(text="x" * 1024)],
    "an-unknown-record": [struct.pack("<B3xI", 12, 0)],
    "an-origin-of-no-want": [wire.record("ORIGIN", want=9, parent=0, dir=0, low=1, high=1, name="f")],
    "an-origin-in-no-directory": [wire.record("ORIGIN", want=0, parent=7, dir=1, low=1, high=1, name="f")],
    "an-origin-with-a-slash": [wire.record("ORIGIN", want=0, parent=0, dir=1, low=1, high=1, name="../f")],
    "an-origin-without-a-name": [wire.record("ORIGIN", want=0, parent=0, dir=0, low=1, high=1, name="")],
    "record-0": [struct.pack("<B3xI", 0, 0)],
    "padding": [b"\1\0\0\1" + file_record()[4:]],
    "a-record-cut-short": [file_record()[:-1]],
    "a-record-of-4-GiB": [struct.pack("<B3xI", 2, U32) + b"x" * 12],
    "a-record-head-cut-short": [file_record(), b"\2\0\0"],
    "a-record-with-more": [struct.pack("<B3xI", 4, 21) + b"\1" * 21],
    "a-name-longer-than-its-record": [struct.pack("<B3xI", 1, 75) + file_record()[8:81] +
                                      b"\xff\xff"],
    "a-data-record-of-4-bytes": [struct.pack("<B3xI", 2, 4) + b"\1\0\0\0"],
}


@pytest.mark.parametrize("what", FILES)
def test_records(arena, what):
    e = arena.sink().orders()
    lane = e.open()[0]
    block = b""
    for record in FILES[what]:
        # No record goes on in another block.
        if len(block) + len(record) > e.block_size:
            lane.records(block)
            block = b""
        block += record
    lane.records(block)
    accepted = "second-file", "same-id"
    if any(word in what for word in accepted):
        # The second one is only refused by itself, if at all: what came first is stored.
        codes = sorted(e.result()["code"] for _ in range(2))
        assert codes == [0, 11] or codes == [0, 0] and "same-id" in what
        e.end(**total_of(b"", b""))
        # No record says that there are several.
        ends(e, 11 if any(codes) else 0)
        assert (arena.target / "f").read_bytes() == b""
    else:
        fails(e, 12)
        if not any(word in what for word in ("data-after-the-end", )):
            untouched(arena)


@pytest.mark.parametrize("size", [I64, 1 << 62, 1 << 50])
def test_a_file_of_a_size_that_no_disk_has(arena, size):
    """It is refused when it is announced, or when it ends: in either case nothing is left."""
    e = arena.sink().orders()
    lane = e.open()[0]
    lane.records(file_record(size=size), data_record(b"x", pos=size - 1))
    lane.close()
    e.hang_up()
    fails(e, 11, 44, verdict=False)
    untouched(arena)


@pytest.mark.parametrize("flags", [SPARSE, SPARSE | ORDERED, SPARSE | ORDERED | STREAM])
def test_a_hole_of_all_that_a_file_can_hold(arena, flags):
    """It costs nothing: neither time nor room."""
    e = arena.sink().orders()
    lane = e.open()[0]
    size = 0 if flags & STREAM else I64
    lane.records(file_record(size=size, flags=flags), hole_record(0, I64),
                 end_record(size=I64, data=0, holes=I64))
    result = e.result(timeout=SOON)
    if result["code"] == 0:
        assert (arena.target / "f").stat().st_blocks < 100
    else:
        untouched(arena)
    all_credited(lane)
    e.end(**dict(TOTAL_NONE, files=1, bytes=I64))
    ends(e, result["code"])
    os.truncate(arena.target / "f", 0)


def huge(arena):
    """So much that nobody reads it while a test waits; as large as a file may be here."""
    for size in (15 << 40, 1 << 40):
        try:
            with open(arena.top / "probe", "wb") as f:
                f.truncate(size)
            return size
        except OSError:
            pass
        finally:
            (arena.top / "probe").unlink()
    raise AssertionError("no file system for files of a TiB")


@pytest.mark.parametrize("how", [dict(flags=["VERIFY"]), dict(digest=4)], ids=str)
def test_reading_a_hole_back_costs_nothing(arena, how):
    """What is no data need not be read, and Adler-32 of zeros is known at once."""
    size = huge(arena)
    e = arena.sink(**how).orders()
    lane = e.open()[0]
    content = ((size % 65521 << 16) + 1).to_bytes(4, "big") if "digest" in how else b""
    lane.records(file_record(size=size, flags=SPARSE), hole_record(0, size),
                 end_record(size=size, data=0, holes=size, content=content))
    result = e.result(timeout=SOON)
    assert result["code"] == 0, result
    e.end(**dict(TOTAL_NONE, files=1, bytes=size))
    ends(e, 0)
    os.truncate(arena.target / "f", 0)


@pytest.mark.parametrize("digest", [1, 2, 3])
@pytest.mark.parametrize("how", ["cancel", "leave"])
def test_a_digest_of_a_huge_hole_ends_with_the_session(arena, digest, how):
    """The user asked for a digest that each byte counts for; whoever stops waiting ends it."""
    size = huge(arena)
    e = arena.sink(digest=digest).orders()
    lane = e.open()[0]
    lane.records(file_record(size=size, flags=SPARSE), hole_record(0, size),
                 end_record(size=size, data=0, holes=size, content=b"x" * (32 if digest == 2 else 16)))
    deadline = time.monotonic() + 2 * SOON
    while not any(p.name.startswith(".sluice.") and p.stat().st_size == size for p in arena.target.iterdir()):
        assert time.monotonic() < deadline and e.proc.proc.poll() is None, e.proc.errors()
        time.sleep(0.01)
    if how == "cancel":
        e.frames.send("CANCEL", signo=15)
        ends(e, 20, within=3 if not WATCHED else SOON)
    else:
        lane.close()
        e.hang_up()
        fails(e, 44, verdict=False)
    assert (arena.target / "f").read_bytes() == b"old"


@pytest.mark.parametrize("preserve", [False, True])
def test_set_id_bits_do_not_pass(arena, preserve):
    (arena.target / "f").unlink()
    e = arena.sink(flags=PRESERVE if preserve else []).orders()
    # 4242 is nobody here: the owner is not the source's.
    e.open()[0].records(file_record(mode=0o7777, uid=4242, gid=4242), end_record())
    assert e.result()["code"] == 0
    e.end(**total_of(b""))
    ends(e, 0)
    # The sticky bit is one of the mode.
    assert stat.S_IMODE((arena.target / "f").stat().st_mode) & (0o6000 if preserve else 0o7000) == 0


@pytest.mark.parametrize("seconds", [-1 << 63, I64, -1, 1 << 40])
def test_times_out_of_all_calendars(arena, seconds):
    e = arena.sink(flags=PRESERVE).orders()
    e.open()[0].records(file_record(mtime_s=seconds, atime_s=seconds, mtime_ns=999999999),
                        end_record())
    code = e.result()["code"]
    assert code in (0, 11)
    e.end(**total_of(b""))
    ends(e, code)


@pytest.mark.parametrize("flags", [0, ORDERED, STREAM | ORDERED])
def test_a_wrong_digest_is_41_and_the_old_file_stays(arena, flags):
    e = arena.sink().orders()
    lane = e.open()[0]
    lane.records(file_record(size=0 if flags & STREAM else 4, flags=flags), data_record(b"good"),
                 end_record(b"evil"))
    assert e.result()["code"] == 41
    all_credited(lane)
    e.end(**total_of(b"evil"))
    ends(e, 41)
    untouched(arena)


def test_lanes_at_one_place_of_an_ordered_file(arena):
    """Only one has its turn: the digest and the file are nobody else's then."""
    arena.memory_max += 16 << 20
    piece = pattern(1 << 19)
    for i in range(4 * COUNT):
        e = arena.sink(lanes=8, depth=4, block_size=1 << 20).orders()
        lanes = e.open()
        for lane in lanes:
            lane.records(file_record(size=16 * len(piece), flags=ORDERED))
        # All but one wait for the same turn, and have it when that one is done.
        for j, lane in enumerate(lanes[1:]):
            lane.records(data_record(piece[j:], pos=7))
        lanes[0].records(data_record(b"7 bytes"))
        assert "twice" in fails(e, 12)["text"].decode()
        untouched(arena)


def test_a_file_that_ends_while_lanes_wait_for_it(arena):
    """Who waits for it to be opened finds it gone, unless it holds on to it."""
    e = arena.sink(lanes=8, depth=8, wants=["*"]).orders()
    lanes = e.open()
    count = 300 * COUNT
    for i in range(1, count + 1):
        record = file_record(id=i, name="n%d" % i)
        for lane in lanes[1:]:
            lane.records(record)
        lanes[0].records(record, end_record(id=i, lanes=len(lanes)))
        if i % 4 == 0:
            for lane in lanes:
                all_credited(lane)
    for i in range(count):
        assert e.result()["code"] == 0
    e.end(**total_of(*[b""] * count))
    ends(e, 0)


def test_pieces_of_no_bytes_for_long(arena):
    e = arena.sink().orders()
    lane = e.open()[0]
    lane.records(file_record(size=4))
    empty = data_record(b"") * (e.block_size // len(data_record(b"")) // 2)
    stored = 0
    for i in range(100 * COUNT):
        while lane.number - stored >= e.depth:
            stored = lane.credit()["stored"]
        lane.records(empty)
        lane.extent(b"")
    lane.records(data_record(b"good"), end_record(b"good"))
    assert e.result()["code"] == 0
    e.end(**total_of(b"good"))
    ends(e, 0)
    assert (arena.target / "f").read_bytes() == b"good"


EXTENTS = {
    "of-no-file": (0, dict(id=0)),
    "of-an-unknown-file": (0, dict(id=7)),
    "beyond-the-size": (0, dict(pos=3)),
    "beyond-all-files": (0, dict(pos=I64)),
    "at-2^63": (0, dict(pos=1 << 63)),
    "twice": (0, dict(pos=0)),
    "kind-0": (0, dict(kind=0)),
    "kind-3": (0, dict(kind=3)),
}


@pytest.mark.parametrize("what", EXTENTS)
def test_extents(arena, what):
    _, over = EXTENTS[what]
    e = arena.sink().orders()
    lane = e.open()[0]
    lane.records(file_record(size=4))
    if what == "twice":
        lane.extent(b"123")
    lane.extent(b"123", **over) if "kind" not in over else \
        lane.raw(lane.block(b"123", kind=over["kind"], file=1))
    fails(e, 12)
    untouched(arena)


# ---- a hostile source: END and the stream's end ---------------------------------------------

ENDS = {
    "too-many-files": (total_of(b"good", files=2), 12),
    "fewer-files": (total_of(b"good", files=0), 12),
    "another-size": (total_of(b"good", bytes=5), 12),
    "another-digest": (total_of(b"good", digest_low=1), 12),
    "another-digest-above": (total_of(b"good", digest_high=1), 12),
    "some-failed": (total_of(b"good", failed=3), 23),
    "all-of-them-failed": (total_of(b"good", failed=U64), 23),
}


@pytest.mark.parametrize("what", ENDS)
def test_an_end_that_does_not_agree(arena, what):
    values, code = ENDS[what]
    e, _ = peaceful_sink(arena)
    e.result()
    e.end(**values)
    fails(e, code)


def test_end_before_all_bytes(arena):
    e = arena.sink().orders()
    lane = e.open()[0]
    lane.records(file_record(size=9), data_record(b"some"))
    lane.credit()
    e.frames.send("END", **total_of(b"some"))
    fails(e, 12)
    untouched(arena)


def test_end_before_anything(arena):
    """What was asked for is not stored: that is no success."""
    e = arena.sink().orders()
    e.open()
    e.frames.send("END", **TOTAL_NONE)
    fails(e, 12)
    untouched(arena)


def test_end_before_the_lanes(arena):
    e = arena.sink().orders()
    e.hello()
    e.frames.send("END", **TOTAL_NONE)
    fails(e, 12)
    untouched(arena)


def test_end_for_fewer_than_were_asked_for(arena):
    e, _ = peaceful_sink(arena, wants=["dir/f", "dir/g"])
    e.result()
    e.end(**total_of(b"good"))
    fails(e, 12)


def test_end_twice(arena):
    """The second one comes before the verdict, or after it and means nothing."""
    e, _ = peaceful_sink(arena)
    e.result()
    e.frames.raw(2 * wire.message("END", **total_of(b"good")))
    ends(e, 0, 12)


def test_times_twice(arena):
    e, _ = peaceful_sink(arena)
    e.frames.send("TIMES", **peer.TIMES_NONE)
    e.frames.send("TIMES", **peer.TIMES_NONE)
    fails(e, 12)
    e, _ = open_source(arena)
    e.frames.send("TIMES", **peer.TIMES_NONE)
    e.frames.send("TIMES", **peer.TIMES_NONE)
    fails(e, 12)


def test_times_after_end(arena):
    """Before the verdict, or after it, where they mean nothing."""
    e, _ = peaceful_sink(arena)
    e.result()
    e.frames.raw(wire.message("END", **total_of(b"good")) + wire.message("TIMES", **peer.TIMES_NONE))
    ends(e, 0, 12)


def test_data_after_end(arena):
    e, lane = peaceful_sink(arena)
    e.result()
    e.end(**total_of(b"good"))
    lane.records(file_record(id=2), data_record(b"more", id=2))
    ends(e, 0, 12)
    assert (arena.target / "f").read_bytes() == b"good"


def test_files_after_end(arena):
    """They are none of the session's: nothing is opened, counted or left behind."""
    for i in range(20 * COUNT):
        e, lane = peaceful_sink(arena, wants=["*"])
        e.result()
        all_credited(lane)
        late = b"".join(file_record(id=n, name="late%d" % n, size=9) + data_record(b"some", id=n)
                        for n in range(2, 40))
        end = wire.message("END", **total_of(b"good"))
        if i % 2:
            e.frames.raw(end)
            lane.records(late)
        else:
            lane.records(late)
            e.frames.raw(end)
        ends(e, 0, 12)
        assert [p.name for p in arena.target.iterdir()] == ["f"]


def test_hanging_up_instead_of_end(arena):
    """Never taken for the end of a stream."""
    e, lane = peaceful_sink(arena, wants=["dir/f", "dir/g"])
    e.result()
    lane.close()
    e.hang_up()
    fails(e, 44, verdict=False)


def test_hanging_up_in_a_stream(arena):
    e = arena.sink().orders()
    lane = e.open()[0]
    lane.records(file_record(flags=STREAM | ORDERED), data_record(b"some"))
    lane.credit()
    e.hang_up()
    fails(e, 44, verdict=False)
    untouched(arena)


def test_a_stream_takes_one_file(arena):
    """STDIO: descriptor 1 of the end is its channel here, so nothing of it may be said."""
    e = arena.sink(target="", wants=["-"], flags=["STDIO"]).orders()
    lane = e.open()[0]
    lane.records(file_record(name="", flags=STREAM | ORDERED), end_record(),
                 file_record(id=2, name="", flags=STREAM | ORDERED), end_record(id=2))
    ends(e, 12, 11)


# ---- a hostile source: blocks -----------------------------------------------------------------

def spoiled(data, at):
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1:]


BLOCKS = {
    "another-lane": lambda lane: lane.block(b"", lane=1),
    "lane-64": lambda lane: lane.block(b"", lane=64),
    "another-epoch": lambda lane: lane.block(b"", epoch=1),
    "another-number": lambda lane: lane.block(b"", number=1),
    "number-2^64-1": lambda lane: lane.block(b"", number=U64),
    "another-version": lambda lane: lane.block(b"", version=2),
    "another-magic": lambda lane: lane.block(b"", magic=b"SLC\x93"),
    "not-zero": lambda lane: lane.block(b"", zero=1),
    "longer-than-a-block": lambda lane: lane.block(b"", len=lane.session.block_size + 1),
    "of-4-GiB": lambda lane: lane.block(b"", len=U32),
    "a-credit": lambda lane: wire.credit(epoch=0, stored=0) * 4,
}


@pytest.mark.parametrize("what", BLOCKS)
def test_blocks(arena, what):
    e = arena.sink().orders()
    lane = e.open()[0]
    lane.raw(BLOCKS[what](lane))
    if what == "a-credit":
        # No check is right: that is damage, and damage twice is the end.
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
def test_a_block_damaged_once_is_asked_for_again_and_twice_is_41(arena, at):
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


def test_more_blocks_than_the_lane_has(arena):
    """The sink takes what it can and no more memory than it has."""
    e = arena.sink(depth=2).orders()
    lane = e.open()[0]
    lane.sock.settimeout(3)
    for _ in range(2000):
        if not lane.records(file_record(id=7, want=9) if _ == 1999 else b""):
            break
    e.hang_up()
    ends(e, 12, 44, verdict=False)


def test_credits_that_nobody_reads(arena):
    """A sink never waits to say them, and keeps but the last one."""
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


def test_a_head_and_then_nothing(arena):
    """A lane may rest for as long as its session lives, and no longer."""
    e = arena.sink(timeout_ms=1000).orders()
    lane = e.open()[0]
    lane.raw(lane.block(b"x" * 1000)[:164])
    e.frames.mute = True
    fails(e, 30)


def test_a_wire_that_breaks_again_and_again(arena):
    """Ten without a block through are enough."""
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


def test_no_new_wire_comes(arena):
    e = arena.sink(timeout_ms=1000).orders()
    lane = e.open()[0]
    # Until it has heard the choice, it waits as long as for a first connection.
    e.frames.send("PING", cookie=1)
    e.frames.expect("PONG")
    lane.close()
    epoch = e.frames.expect("LANE_STORED")["epoch"]
    e.frames.send("LANE_DOWN", lane=0, epoch=epoch, why="")
    fails(e, 44)


HOLDS = ["silent", "idle", "busy"]


def hold_up(e, how, epoch):
    """Never say that the wire of this epoch is over; answer whether the thread is busy, or not."""
    for _ in range(6 if how == "busy" else 1):
        check = e.frames.expect("LANE_CHECK", timeout=SOON)
        assert (check["lane"], check["epoch"]) == (0, epoch)
        if how == "busy":
            e.frames.send("LANE_HELD", lane=0, epoch=epoch, mtu=0, busy=1)
    if how == "busy":
        # Four that were not busy had been enough.
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
def test_a_source_that_never_gives_a_broken_wire_up(arena, how):
    """It may be away in a file call for ever, if it says so; if it does not, the session ends."""
    e = arena.sink(timeout_ms=1000).orders()
    e.open()[0].close()
    epoch = e.frames.expect("LANE_STORED")["epoch"]
    hold_up(e, how, epoch)
    untouched(arena)


@pytest.mark.parametrize("how", HOLDS)
def test_a_sink_that_never_gives_a_broken_wire_up(arena, how):
    e, (lane,) = open_source(arena, timeout_ms=1000)
    lane.take_block()
    lane.close()
    epoch = e.frames.expect("LANE_DOWN")["epoch"]
    hold_up(e, how, epoch)


# ---- lies about lanes ---------------------------------------------------------------------------

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
def test_lies_about_lanes_to_a_sink(arena, what):
    name, values, code = LANE_LIES[what]
    e = arena.sink().orders()
    e.open()
    e.frames.send(name, **values)
    fails(e, code)


def test_a_sink_asks_of_a_wire_that_it_has_not_given_up(arena):
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
def test_lies_about_what_is_stored(arena, what):
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


def test_stored_goes_backwards(arena):
    (arena.top / "big").write_bytes(pattern(4 * 16384))
    arena.before = manifest(arena.top, arena.target)
    e, (lane,) = open_source(arena, wants=["big"])
    for _ in range(3):
        lane.take_block()
    lane.grant(2)
    # The credit must have been taken in before the wire breaks.
    lane.take_block()
    time.sleep(0.3 * SLOW)
    lane.close()
    e.frames.send("LANE_STORED", lane=0, epoch=0, stored=1, damaged=0)
    e.frames.send("LANE_DOWN", lane=0, epoch=0, why="")
    try:
        e.dial(epoch=1)
    except (OSError, EOFError):
        pass
    # It had read the credit, or had not: then 1 is all that it knows of.
    e.hang_up()
    ends(e, 12, 44, verdict=False)


def test_floods_of_lies_about_lanes(arena):
    """They cost no memory; a lane whose epochs are used up ends the session."""
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
def test_credits(arena, what):
    e, (lane,) = open_source(arena)
    lane.take_block()
    lane.raw(CREDITS[what])
    fails(e, 12)


def test_credits_that_go_back(arena):
    (arena.top / "big").write_bytes(pattern(8 * 16384))
    arena.before = manifest(arena.top, arena.target)
    e, (lane,) = open_source(arena, wants=["big"])
    for _ in range(4):
        lane.take_block()
    lane.grant(3)
    lane.grant(2)
    fails(e, 12)


def test_no_credits_at_all(arena):
    """A sink that rests is none that is gone; one that is silent is."""
    (arena.top / "big").write_bytes(pattern(40 * 16384))
    arena.before = manifest(arena.top, arena.target)
    e, (lane,) = open_source(arena, wants=["big"], depth=4, timeout_ms=1000)
    for _ in range(4):
        lane.take_block()
    time.sleep(2)
    assert e.proc.proc.poll() is None
    e.frames.mute = True
    fails(e, 30)


# ---- a hostile sink ---------------------------------------------------------------------------

RESULTS = {
    "stored-nothing": ("STORED", dict(files=[])),
    "stored-no-file": ("STORED", dict(files=[dict(file=0)])),
    "stored-another-file": ("STORED", dict(files=[dict(file=1), dict(file=2)])),
    "stored-the-last-file": ("STORED", dict(files=[dict(file=U32)])),
    "stored-twice-at-once": ("STORED", dict(files=[dict(file=1), dict(file=1)])),
    "a-failure-of-another": ("FILE_RESULT", dict(file=9, code=11, text="disk full")),
    "a-failure-that-is-none": ("FILE_RESULT", dict(file=1, code=0, text="")),
    "an-answer-without-a-question": ("ANSWERS", dict(answers=[dict(file=1, answer=2)])),
    "an-answer-about-another": ("ANSWERS", dict(answers=[dict(file=9, answer=1)])),
    "cells-without-a-question": ("CELLS", dict(file=1, pos=0, digests=[dict(low=1, high=1)])),
    "cells-of-another": ("CELLS", dict(file=9, pos=0, digests=[dict(low=1, high=1)])),
}


@pytest.mark.parametrize("what", RESULTS)
def test_results_of_files_never_sent(arena, what):
    e, (lane,) = open_source(arena, wants=["target/f"], flags=["REMOVE_SOURCE"], target="")
    take_all(e, lane)
    name, values = RESULTS[what]
    e.frames.send(name, **values)
    fails(e, 12)
    # What it is told to be stored may be gone.
    assert (arena.target / "f").exists() or dict(file=1) in values.get("files", [])


def test_a_result_twice(arena):
    e, (lane,) = open_source(arena)
    take_all(e, lane)
    e.say_stored(1)
    e.say_stored(1)
    fails(e, 12)


def test_a_result_before_the_file_was_read(arena):
    """Success for a file that is still being sent: it is not removed."""
    (arena.target / "big").write_bytes(pattern(64 * 16384))
    e, (lane,) = open_source(arena, wants=["target/big"], flags=["REMOVE_SOURCE"], depth=4)
    lane.take_block()
    e.say_stored(1)
    fails(e, 12)
    assert (arena.target / "big").exists()


@pytest.mark.parametrize("answer", ["failure", "silence", "hang-up", "error", "unknown-outcome"])
def test_a_source_is_removed_for_nothing_but_success(arena, answer):
    e, (lane,) = open_source(arena, wants=["target/f"], flags=["REMOVE_SOURCE"], timeout_ms=1000)
    take_all(e, lane)
    if answer == "failure":
        e.frames.expect("END")
        e.frames.send("FILE_RESULT", file=1, code=11, text="no")
        e.frames.send("DONE", **total_of(failed=1))
        fails(e, 11)
    elif answer == "unknown-outcome":
        e.frames.expect("END")
        e.frames.send("FILE_RESULT", file=1, code=200, text="no")
        e.frames.send("DONE", **total_of(failed=1))
        fails(e, 12)
    elif answer == "silence":
        e.frames.mute = True
        fails(e, 30)
    elif answer == "hang-up":
        e.hang_up()
        fails(e, 44, verdict=False)
    else:
        e.frames.send("ERROR", code=22, host="", text="\x1b[31mno\x9b")
        fails(e, 22)
    assert (arena.target / "f").read_bytes() == b"old"


def test_a_source_that_was_changed_is_not_removed(arena):
    e, (lane,) = open_source(arena, wants=["target/f"], flags=["REMOVE_SOURCE"])
    take_all(e, lane)
    (arena.target / "f").write_bytes(b"newer")
    e.frames.expect("END")
    e.say_stored(1)
    e.frames.send("DONE", **total_of(b"old"))
    fails(e, 42, 23)
    assert (arena.target / "f").read_bytes() == b"newer"


DONES = {
    "no-files": dict(files=0), "more-files": dict(files=2), "failed": dict(failed=1),
    "all-failed": dict(failed=U64), "same": dict(same=1), "others": dict(others=1),
    "all-the-same": dict(files=0, same=1), "more-bytes": dict(bytes=U64), "other-digest": dict(digest_low=1),
    "other-digest-above": dict(digest_high=1),
}


@pytest.mark.parametrize("what", DONES)
def test_a_wrong_done_is_41(arena, what):
    e, (lane,) = open_source(arena)
    _, end = serve(e, lane)
    e.frames.send("DONE", **{**end, **DONES[what]})
    fails(e, 41)


def test_done_without_results_is_41(arena):
    e, (lane,) = open_source(arena)
    take_all(e, lane)
    e.frames.send("DONE", **e.frames.expect("END"))
    fails(e, 41)


@pytest.mark.parametrize("when", ["before-the-lanes", "before-a-block", "before-end"])
def test_done_before_end(arena, when):
    e = arena.source().orders()
    if when == "before-the-lanes":
        e.hello()
    else:
        lane = e.open()[0]
        if when == "before-end":
            lane.take_block()
    e.frames.send("DONE", **total_of(b"outside"))
    fails(e, 12)


def test_done_and_then_an_error_means_nothing(arena):
    e, (lane,) = open_source(arena)
    _, end = serve(e, lane)
    e.frames.raw(wire.message("DONE", **end) +
                 wire.message("ERROR", code=11, host="", text="late"))
    ends(e, 0)


# ---- states: what may not be said when ---------------------------------------------------------

ANYTHING = {
    "OFFER": dict(round=0, places=[], no_rdma=""),
    "OFFER-1": dict(round=1, places=[], no_rdma=""),
    "CHOICE": dict(transport=TCP, why=""),
    "CHOICE-rdma": dict(transport=RDMA, why=""),
    "CHOICE-ssh": dict(transport=SSH, why=""),
    "CHOICE-nothing": dict(transport=0, why=""),
    "CHOICE-4": dict(transport=4, why=""),
    "NOROUTE-1": dict(round=1, why="x"),
    "NOROUTE-2": dict(round=2, why="x"),
    "PONG": dict(cookie=U64),
    "DONE": TOTAL_NONE,
    "TIMES-kind": {**peer.TIMES_NONE, "kind": 4},
    "FILE_RESULT": dict(file=1, code=11, text=""),
    "STORED": dict(files=[dict(file=1)]),
    "ANSWERS": dict(answers=[dict(file=1, answer=1)]),
    "CELLS": dict(file=1, pos=0, digests=[dict(low=0, high=0)]),
    "LANE_STORED": dict(lane=0, epoch=0, stored=0, damaged=0),
    "GREETING": dict(magic=wire.GREETING_MAGIC, version=wire.VERSION, release="1"),
    "START": None,
    "WANT": dict(name="more"),
    "GO": {},
    "NOTE": dict(level=0, text="x"),
    "PROGRESS": dict(bytes=1, total=1, files=1, total_known=1),
    "VERDICT": None,
    "DETOUR": dict(port=1, why="x"),
    "DETOUR-0": dict(port=0, why="x"),
    "STUCK": dict(round=1, why="x"),
    "LISTENING": dict(port=1, why=""),
    "RULE": dict(include=1, pattern="*"),
    "LISTED": dict(name="more"),
    "TAKEN": dict(name="more"),
    "EVENT": dict(what=1, code=0, deleted=0, size=0, change="", digest="", path="f"),
    "CANCEL-0": dict(signo=0),
    "CANCEL-255": dict(signo=255),
}
VERDICT = dict(code=0, host="", text="", **TOTAL_NONE, transport=0, lanes=0, how="", why="", ns=0,
               **peer.TIMES_NONE, **peer.COUNTS_NONE)


def say(e, what):
    name = what.split("-")[0]
    values = ANYTHING[what]
    if values is None:
        values = e.start_values if name == "START" else VERDICT
    e.frames.send(name, **values)


@pytest.mark.parametrize("what", ANYTHING)
@pytest.mark.parametrize("state", ["before-hello", "after-hello", "in-the-copy"])
def test_what_is_not_its_turn(arena, state, what):
    """To a sink that listens: everything but what its source may say now."""
    e = arena.sink().orders()
    if state == "after-hello":
        e.hello()
        e.offered()
    elif state == "in-the-copy":
        e.open()[0].records(file_record(size=4))
    if state == "after-hello" and what == "CHOICE":
        e.dial()
        say(e, what)
    say(e, what)
    fails(e, 12)
    untouched(arena)


@pytest.mark.parametrize("what", ["OFFER", "CHOICE", "NOROUTE-2", "LANE_STORED", "FILE_RESULT",
                                  "STORED", "ANSWERS", "CELLS", "END", "DONE", "START", "RULE",
                                  "LISTED", "EVENT", "TAKEN"])
def test_what_is_not_its_turn_for_a_source(arena, what):
    e = arena.source().orders()
    e.open()
    if what == "END":
        e.end(**TOTAL_NONE)
    elif what == "LANE_STORED":
        e.frames.send("LANE_STORED", lane=3, epoch=0, stored=0, damaged=0)
    elif what == "FILE_RESULT":
        e.frames.send("FILE_RESULT", file=99, code=11, text="")
    elif what == "STORED":
        # The file that is on its way may be said to be stored; who can tell?
        e.frames.send("STORED", files=[dict(file=99)])
    else:
        say(e, what)
    fails(e, 12)


def test_anything_before_hello(arena):
    for name, values in [("PING", dict(cookie=1)), ("LANE_DOWN", dict(lane=0, epoch=0, why="")),
                         ("END", TOTAL_NONE)]:
        e = arena.sink().orders()
        e.frames.send(name, **values)
        if name == "PING":
            # Only that is harmless; protocol.md has HELLO first all the same.
            e.hang_up()
            ends(e, 12, 44, verdict=False)
        else:
            fails(e, 12)


HELLOS = {
    "version-0": (dict(version=0), 2), "version-1": (dict(version=1), 2),
    "version-99": (dict(version=99), 2), "version-65535": (dict(version=U16), 2),
    "role-0": (dict(role=0), 12), "role-3": (dict(role=3), 12), "same-role": (dict(role=SINK), 12),
    "want-4": (dict(want=4), 12), "want-rdma": (dict(want=RDMA), 43), "want-ssh": (dict(want=SSH), 43),
    "lanes-0": (dict(lanes=0), 12), "lanes-65": (dict(lanes=65), 12),
    "lanes-65535": (dict(lanes=U16), 12), "depth-0": (dict(depth=0), 12),
    "depth-1025": (dict(depth=1025), 12), "block-0": (dict(block_size=0), 12),
    "block-3": (dict(block_size=3), 12), "block-2048": (dict(block_size=2048), 12),
    "block-8M": (dict(block_size=8 << 20), 12), "block-2^31": (dict(block_size=1 << 31), 12),
    "memory-0": (dict(memory=0), 1), "memory-1": (dict(memory=1), 1),
    "timeout-2^31": (dict(timeout_ms=1 << 31), 12), "timeout-2^32-1": (dict(timeout_ms=U32), 12),
    "host-256": (dict(host="x" * 256), 12), "host-65535": (dict(host="x" * 60000), 12),
    "no_rdma-1024": (dict(no_rdma="x" * 1024), 12), "host-nul": (dict(host=b"a\0b"), 12),
}


@pytest.mark.parametrize("what", HELLOS)
def test_hellos(arena, what):
    over, code = HELLOS[what]
    e = arena.sink().orders()
    e.hello(**over)
    fails(e, code)


@pytest.mark.parametrize("over", [
    dict(lanes=64, depth=1024, block_size=4 << 20, memory=U64, lockable=U64),
    dict(lanes=1, depth=1, block_size=4096), dict(timeout_ms=0), dict(timeout_ms=2**31 - 1),
    dict(features=U64), dict(memory=200000), dict(host=b"\xff\x1b[31m"), dict(host_id=0),
], ids=["the-most", "the-least", "timeout-0", "timeout-2^31-1", "features", "memory", "host", "another-host"])
def test_hellos_that_are_taken(arena, over):
    """The smaller of everything is agreed on; the copy goes well."""
    e = arena.sink().orders()
    e.hello(**over)
    if "memory" in over and over["memory"] < U64:
        # One lane, with as many blocks as fit.
        e.depth = (over["memory"] - 65536) // (e.block_size + 4096)
    e.offered()
    lane = e.dial()
    e.frames.send("CHOICE", transport=TCP, why="")
    lane.records(file_record(size=4), data_record(b"good"), end_record(b"good"))
    e.result()
    e.end(**total_of(b"good"))
    ends(e, 0)


def test_hello_twice(arena):
    e = arena.sink().orders()
    e.hello()
    e.frames.send("HELLO", **e.our_hello(dict(version=wire.VERSION, lanes=1, depth=1, block_size=4096,
                                              features=0, memory=U64, timeout_ms=1, host_id=1)))
    fails(e, 12)


def test_our_own_hello_back(arena):
    """Reflection: what an end says is no proof of another."""
    e = arena.sink().orders()
    e.frames.send("HELLO", **e.frames.expect("HELLO"))
    fails(e, 12)


# ---- START and what a conductor may ask for ---------------------------------------------------

STARTS = {
    "version-0": (dict(version=0), 2), "version-99": (dict(version=99), 2),
    "role-0": (dict(role=0), 12), "role-3": (dict(role=3), 12), "want-4": (dict(want=4), 12),
    "verbose-4": (dict(verbose=4), 12), "flags": (dict(flags=1 << 47), 12),
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
def test_starts(arena, what):
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
def test_starts_that_are_taken(arena, what):
    """Pools are mapped, but nothing is allocated for them before bytes come."""
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


def test_a_timeout_of_2_31_in_every_wait(arena):
    """No sum of it with anything is a number that is negative."""
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
def test_no_start(arena, what):
    e = arena.sink()
    e.greeting()
    values = {"GO": {}, "WANT": dict(name="f"), "CANCEL": dict(signo=2), "END": TOTAL_NONE,
              "GREETING": dict(magic=wire.GREETING_MAGIC, version=wire.VERSION, release="1"),
              "HELLO": e.our_hello(dict(version=wire.VERSION, lanes=1, depth=1, block_size=4096, features=0,
                                        memory=U64, timeout_ms=1, host_id=1))}[what]
    e.frames.send(what, **values)
    fails(e, 12)


def test_start_twice(arena):
    e = arena.sink()
    e.greeting()
    e.frames.send("START", **e.start_values)
    e.frames.send("START", **e.start_values)
    fails(e, 12)


def test_go_with_a_body(arena):
    e = arena.sink()
    e.greeting()
    e.frames.send("START", **e.start_values)
    e.frames.raw(wire.frame("GO", b"x"))
    fails(e, 12)


def test_names_without_end(arena):
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


def test_a_conductor_that_hangs_up(arena):
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


# ---- frames -----------------------------------------------------------------------------------

RAW = {
    "type-0": wire.frame(0), "type-16": wire.frame(16), "type-63": wire.frame(63),
    "type-78": wire.frame(78), "type-255": wire.frame(255),
    "a-body-of-64-KiB-and-one": struct.pack("<IB3x", 65537, 5),
    "a-body-of-4-GiB": struct.pack("<IB3x", U32, 7),
    "padding": b"\0\0\0\0\7\0\0\1",
    "a-ping-of-nothing": wire.frame("PING"), "a-ping-of-9": wire.frame("PING", bytes(9)),
    "an-error-of-0": wire.message("ERROR", code=0, host="", text="fine"),
    "text": b"Welcome to mallory!\r\n" * 4, "tls": b"\x16\3\1\2\0\1\0\1\xfc\3\3" + bytes(90),
    "zeros": bytes(70000), "ones": b"\xff" * 70000,
    "a-text-longer-than-its-frame": wire.frame("NOROUTE", b"\0\xff\xff"),
    "an-offer-of-255": wire.frame("OFFER", b"\0\xff" + bytes(5100) + b"\0\0"),
    "an-offer-of-33": wire.frame("OFFER", b"\0\x21" + b"\2\4\1\1\x7f\0\0\1" .ljust(25, b"\0") * 33 +
                                 b"\0\0"),
    "an-offer-cut-short": wire.frame("OFFER", b"\0\x20" + bytes(20)),
}


@pytest.mark.parametrize("what", RAW)
@pytest.mark.parametrize("state", ["at-first", "before-hello", "in-the-copy"])
def test_frames_that_can_not_be(arena, state, what):
    """The peer is told, if there is one, and the conductor hears the reason."""
    e = arena.sink()
    if state == "at-first":
        e.greeting()
    else:
        e.orders()
    if state == "in-the-copy":
        e.open()[0].records(file_record(size=4))
    e.frames.raw(RAW[what])
    fails(e, 12)
    untouched(arena)


def test_start_cut_at_every_byte(arena):
    """Both ways: the stream ends there, or the frame says that this is all."""
    e = arena.sink()
    start = wire.body("START", **e.start_values)
    e.hang_up()
    ends(e, 44, verdict=False)
    for cut in range(0, len(start), 1 if COUNT > 1 else 3):
        e = arena.sink()
        e.greeting()
        e.frames.raw(wire.frame("START", start[:cut]))
        fails(e, 12)
        e = arena.sink()
        e.greeting()
        e.frames.raw(wire.frame("START", start)[:8 + cut])
        e.hang_up()
        fails(e, 44, verdict=False)


def test_hello_cut_at_every_byte(arena):
    for cut in range(0, 88, 1 if COUNT > 1 else 4):
        e = arena.sink().orders()
        hello = wire.body("HELLO", **e.our_hello(e.frames.expect("HELLO")))
        e.frames.raw(wire.frame("HELLO", hello[:cut]))
        fails(e, 12)


def test_a_frame_byte_by_byte(arena):
    """Slowly is not wrong."""
    e = arena.sink().orders()
    hello = wire.message("HELLO", **e.our_hello(e.frames.expect("HELLO")))
    for i in range(len(hello)):
        e.frames.raw(hello[i:i + 1])
    e.frames.expect("OFFER")
    e.hang_up()
    fails(e, 44, verdict=False)


def test_a_hundred_thousand_pings(arena):
    """They are answered as far as we listen, and cost no memory when we don't."""
    e = arena.sink().orders()
    lane = e.open()[0]
    pings = b"".join(wire.message("PING", cookie=i) for i in range(1000))
    for _ in range(100 * COUNT):
        assert e.frames.raw(pings)
    lane.records(file_record(size=4), data_record(b"good"), end_record(b"good"))
    e.result()
    e.end(**total_of(b"good"))
    ends(e, 0)


def test_pings_from_one_who_never_reads(arena):
    e = arena.sink(timeout_ms=2000)
    e.orders().open()
    stop = threading.Event()
    e.frames.read = lambda: stop.wait(60) and b""
    pings = b"".join(wire.message("PING", cookie=i) for i in range(1000))
    for _ in range(50):
        assert e.frames.raw(pings)
    e.frames.send("CANCEL", signo=15)
    assert e.proc.wait(SOON) == 20
    stop.set()


@pytest.mark.parametrize("text", ["\x1b]0;owned\x07", b"\x9b31mred", "line\nrdcp: done", "\r\x08x",
                                  "\u202eevil", b"\xff\xfe", "x" * 1023],
                         ids=["osc", "csi", "newline", "return", "bidi", "no-utf8", "long"])
def test_error_texts(arena, text):
    """ERROR crosses over as it is, for who prints it to escape."""
    e = arena.sink().orders()
    e.open()
    e.frames.send("ERROR", code=11, host=text[:255], text=text)
    said = ends(e, 11)
    assert said["text"] == (text.encode() if isinstance(text, str) else text)


@pytest.mark.parametrize("target", ["x" * 4095, "a/" * 200, "/" * 4095, "~" + "a" * 4000, "~nobody-at-all/f",
                                    "~" + "a" * 300, "/dev/full", "/dev/null/f", "target/f/g",
                                    b"target/\xff\x1b[31m/x"],
                         ids=["4095", "deep", "slashes", "user-4000", "user", "user-300", "full",
                              "null", "below-a-file", "bytes"])
def test_targets(arena, target):
    """Whatever a conductor's user calls it: a sentence, and no more."""
    e = arena.sink(flags=["FAR", "MKPATH"] if target != "/" * 4095 else ["FAR"]).orders(target=target)
    try:
        e.open()[0].records(file_record(size=5, want=0), data_record(b"bytes"), end_record(b"bytes"))
        e.frames.expect("ERROR", "STORED", "FILE_RESULT", timeout=SOON)
    except (OSError, EOFError, peer.Silence):
        pass
    e.hang_up()
    code = e.proc.wait(SOON)
    if target in ("a/" * 200, b"target/\xff\x1b[31m/x"):
        # Those can be made; the first one is beside the target, and is what was asked for.
        shutil.rmtree(arena.top / "a", ignore_errors=True)
    else:
        assert code in (3, 11, 44)
    assert "\x1b" not in e.proc.errors()


def test_an_end_without_stdio(arena):
    gone, kept = os.pipe()
    os.close(gone)
    for how in (dict(stdout=kept), dict(preexec=lambda: (os.close(0), os.close(1))),
                dict(preexec=lambda: os.close(1)), dict(preexec=lambda: os.close(0))):
        run = arena.bench.run([RDCP, "--end"], timeout=SOON, env=arena.env(), **how)
        assert run.code in (5, 10, 44), (run.code, run.errors())
    os.close(kept)


# ---- chance ---------------------------------------------------------------------------------------

def honest_control(e, data):
    """What an honest source says after its HELLO."""
    return [wire.message("CHOICE", transport=TCP, why=""), wire.message("PING", cookie=7),
            wire.message("LANE_DOWN", lane=0, epoch=0, why="x"),
            wire.message("END", **total_of(data))]


def damaged(chance, data, most=4):
    data = bytearray(data)
    for _ in range(chance.randint(1, most)):
        at = chance.randrange(len(data))
        kind = chance.randrange(4)
        if kind == 0:
            data[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            data[at] = chance.choice([0, 1, 0x7f, 0x80, 0xff])
        elif kind == 2:
            del data[at:at + chance.randint(1, 8)]
            data = data or bytearray(b"x")
        else:
            data[at:at] = chance.randbytes(chance.randint(1, 8))
    return bytes(data)


@pytest.mark.parametrize("what", ["start", "hello", "control", "records", "blocks"])
@pytest.mark.parametrize("seed", range(4))
def test_damage_by_chance(arena, what, seed):
    """Honest sessions with some bytes wrong: they end, whatever comes of it."""
    chance = random.Random("%s %d" % (what, seed))
    arena.memory_max += 16 << 20
    content = chance.randbytes(5000)
    for _ in range(8 * COUNT):
        e = arena.sink(wants=["*"], timeout_ms=1500, connect_timeout_ms=1500)
        try:
            e.greeting()
            start = wire.body("START", **e.start_values)
            if what == "start":
                # Not the target: to write elsewhere would be right then.
                start = damaged(chance, start[:77]) + start[77:]
            e.frames.raw(wire.frame("START", start) + wire.message("WANT", name="*") +
                         wire.message("GO"))
            if what == "hello":
                hello = wire.message("HELLO", **e.our_hello(e.frames.expect("HELLO")))
                e.frames.raw(damaged(chance, hello))
            else:
                e.hello()
                e.offered()
                lane = e.dial()
                records = file_record(size=5000) + data_record(content[:2500]) + \
                    data_record(content[2500:], pos=2500) + end_record(content) + \
                    file_record(id=2, name="g", size=9, flags=SPARSE) + hole_record(0, 9, id=2) + \
                    end_record(id=2, size=9, holes=9)
                block = lane.block(damaged(chance, records) if what == "records" else records)
                lane.raw(damaged(chance, block) if what == "blocks" else block)
                control = b"".join(honest_control(e, content))
                e.frames.raw(damaged(chance, control) if what == "control" else control)
                time.sleep(chance.random() * 0.05)
                lane.close()
        except (OSError, EOFError, peer.Silence):
            pass
        e.hang_up()
        assert e.proc.wait(SOON) >= 0, e.proc.errors()
        for path in arena.target.iterdir():
            if path.name != "f":
                path.unlink()


# ---- silence ------------------------------------------------------------------------------------

def silent_after(e, state, role):
    """Do all that leads to a state, and then nothing more."""
    if state == "go":
        e.orders()
        return
    e.orders()
    e.hello()
    if state == "hello":
        return
    if e.start_values["flags"] & peer.FLAGS["LISTENS"]:
        e.offered()
        if state == "offer":
            return
        lane = e.dial(greet=state != "half-a-lane")
        if state == "half-a-lane":
            lane.raw(lane.hello()[:30])
            return
        if state == "lane":
            return
        e.frames.send("CHOICE", transport=TCP, why="")
    else:
        e.listen()
        if state == "offer":
            return
        lane = e.accept(answer=state != "half-a-lane")
        if state == "half-a-lane":
            return
        if state == "lane":
            return
        e.frames.expect("CHOICE")
    if state == "choice":
        return
    if role == SINK:
        lane.records(file_record(size=9), data_record(b"some"))
    else:
        lane.take_block()


@pytest.mark.parametrize("state", ["go", "hello", "offer", "half-a-lane", "lane", "choice", "copy"])
@pytest.mark.parametrize("listens", [True, False], ids=["listening", "dialing"])
@pytest.mark.parametrize("role", [SINK, SOURCE], ids=["sink", "source"])
def test_silence(arena, role, listens, state):
    e = arena.end(role, target=arena.target, wants=["outside/f"], listens=listens,
                  timeout_ms=1000, connect_timeout_ms=1000)
    silent_after(e, state, role)
    e.frames.mute = True
    start = time.monotonic()
    fails(e, 30, 35, within=8)
    assert time.monotonic() - start < 4 * SLOW
    untouched(arena)


@pytest.mark.parametrize("role", [SINK, SOURCE], ids=["sink", "source"])
def test_nothing_but_heartbeats(arena, role):
    """Who lives may rest; it ends when they end, or when the user says so."""
    e = arena.end(role, target=arena.target, wants=["outside/f"], timeout_ms=1000)
    silent_after(e, "copy", role)
    for _ in range(25):
        e.frames.send("PING", cookie=1)
        time.sleep(0.1)
    assert e.proc.proc.poll() is None
    e.frames.send("CANCEL", signo=2)
    fails(e, 20)


def test_one_byte_now_and_then(arena):
    """A frame that never becomes one is still a sign of life; its end is the end."""
    e = arena.sink(timeout_ms=1000).orders()
    e.hello()
    e.offered()
    e.frames.mute = True
    frame = wire.frame("NOROUTE", bytes(100))
    for i in range(20):
        e.frames.raw(frame[i:i + 1])
        time.sleep(0.1)
    assert e.proc.proc.poll() is None
    fails(e, 30, within=5)


# ---- offers ---------------------------------------------------------------------------------------

def place(address, port, transport=TCP):
    family = 6 if ":" in address else 4
    raw = socket.inet_pton(socket.AF_INET6 if family == 6 else socket.AF_INET, address)
    return dict(transport=transport, family=family, port=port, addr=raw)


OFFERS = {
    "nothing": [], "broadcast": [place("255.255.255.255", 9)], "nobody": [place("0.0.0.0", 9)],
    "multicast": [place("224.0.0.1", 9), place("ff02::1", 9)], "nobody-6": [place("::", 9)],
    "mapped": [place("::ffff:127.0.0.1", 9)], "link-local": [place("fe80::1", 9)],
    "closed-ports": [place("127.0.0.1", 1 + i) for i in range(16)],
    "rdma-only": [place("127.0.0.1", 9, RDMA)] * 16,
}
BAD_OFFERS = {
    "port-0": [place("127.0.0.1", 0)], "transport-0": [place("127.0.0.1", 9, 0)],
    "transport-3": [place("127.0.0.1", 9, 3)], "family-5": [dict(place("127.0.0.1", 9), family=5)],
    "more-bytes": [dict(place("127.0.0.1", 9), addr=bytes(range(16)))],
    "17-of-tcp": [place("127.0.0.1", 9)] * 17, "33": [place("127.0.0.1", 9)] * 33,
    "255": [place("127.0.0.1", 9)] * 255,
}


@pytest.mark.parametrize("what", OFFERS)
def test_offers_of_nothing_good(arena, what):
    """The roles swap, or there is no way: never a copy, never a hang."""
    e = arena.source(listens=False, connect_timeout_ms=1000, timeout_ms=3000).orders()
    e.hello()
    e.frames.send("OFFER", round=0, places=OFFERS[what], no_rdma="")
    assert e.frames.expect("NOROUTE")["round"] == 0
    assert e.frames.expect("OFFER")["round"] == 1
    e.frames.send("NOROUTE", round=1, why="\x1b[31mno way back")
    e.frames.expect("STUCK")
    e.frames.send("ERROR", code=35, host="", text="no way")
    fails(e, 35)


@pytest.mark.parametrize("what", BAD_OFFERS)
def test_offers_that_can_not_be(arena, what):
    e = arena.source(listens=False).orders()
    e.hello()
    e.frames.send("OFFER", round=0, places=BAD_OFFERS[what], no_rdma="")
    fails(e, 12)


def test_a_second_offer(arena):
    e = arena.source(listens=False).orders()
    e.hello()
    e.listen()
    e.frames.send("OFFER", round=0, places=[place("127.0.0.1", 9)], no_rdma="")
    fails(e, 12)


@pytest.mark.parametrize("answer", ["nothing", "garbage", "its-own", "wrong-key", "wrong-lane",
                                    "wrong-role", "another-epoch", "another-shape", "half"])
def test_who_answers_a_lane_must_prove_himself(arena, answer):
    """Nothing of the file is said to one who has not the secret."""
    e = arena.source(listens=False, connect_timeout_ms=1500, timeout_ms=3000).orders()
    e.hello()
    listener = e.listen()
    lane = e.accept(answer=False)
    heard = lane.take(64)
    lane.raw({
        "nothing": b"", "garbage": os.urandom(64), "its-own": heard,
        "wrong-key": lane.hello(1, key=wire.Key(bytes(32), bytes(32), bytes(32))),
        "wrong-lane": lane.hello(1, lane=1), "wrong-role": lane.hello(1, **{"from": SOURCE}),
        "another-epoch": lane.hello(1, epoch=9), "another-shape": lane.hello(1, depth=1),
        "half": lane.hello(1)[:32]}[answer])
    listener.close()
    assert lane.closed(5 * SLOW)
    e.frames.expect("NOROUTE", "STUCK", timeout=SOON)
    e.hang_up()
    fails(e, 44, 35, verdict=False)


# ---- who comes to an end's port --------------------------------------------------------------------

STRANGERS = {
    "garbage": lambda lane: os.urandom(4096), "zeros": lambda lane: bytes(64),
    "tls": lambda lane: b"\x16\3\1\0\xf0" + bytes(59), "http": lambda lane: b"GET / HTTP/1.1\r\n" * 4,
    "wrong-key": lambda lane: lane.hello(key=wire.Key(bytes(32), bytes(32), bytes(32))),
    "from-a-sink": lambda lane: lane.hello(**{"from": SINK}), "from-0": lambda lane: lane.hello(**{"from": 0}),
    "accepting": lambda lane: lane.hello(accepting=1), "lane-1": lambda lane: lane.hello(lane=1),
    "lane-64": lambda lane: lane.hello(lane=64), "lane-65535": lambda lane: lane.hello(lane=U16),
    "last-epoch": lambda lane: lane.hello(epoch=U32), "depth-0": lambda lane: lane.hello(depth=0),
    "another-depth": lambda lane: lane.hello(depth=9), "block-3": lambda lane: lane.hello(block_size=3),
    "another-block": lambda lane: lane.hello(block_size=4096), "version-2": lambda lane: lane.hello(version=2),
    "not-zero": lambda lane: lane.hello(zero=1), "a-key-without-a-ring": lambda lane: lane.hello(ring_key=1),
    "a-ring-of-a-source": lambda lane: lane.hello(ring=4096, ring_key=1),
    "magic": lambda lane: lane.hello(magic=b"SLX\x93"), "a-bit-of-the-mac": lambda lane: spoiled(lane.hello(), 63),
    "half": lambda lane: lane.hello()[:63],
}


@pytest.mark.parametrize("what", STRANGERS)
def test_strangers_at_a_lanes_port(arena, what):
    """They are shown out, and the transfer is none the worse."""
    e = arena.sink().orders()
    e.hello()
    e.offered()
    stranger = e.dial(greet=False)
    stranger.raw(STRANGERS[what](stranger))
    if what == "half":
        stranger.sock.shutdown(socket.SHUT_WR)
    assert stranger.closed()
    lane = e.dial()
    e.frames.send("CHOICE", transport=TCP, why="")
    stranger = e.dial(greet=False)
    stranger.raw(STRANGERS[what](stranger))
    lane.records(file_record(size=4), data_record(b"good"), end_record(b"good"))
    e.result()
    e.end(**total_of(b"good"))
    ends(e, 0)
    assert (arena.target / "f").read_bytes() == b"good"


def test_a_lane_of_an_epoch_that_was(arena):
    """A hello that was good once is good no more: neither as it was nor for an epoch before."""
    e = arena.sink().orders()
    e.hello()
    e.offered()
    lane = e.dial(epoch=3)
    e.frames.send("CHOICE", transport=TCP, why="")
    for epoch in (3, 2, 0):
        old = e.dial(epoch=epoch, greet=False)
        old.raw(old.hello())
        assert old.closed()
    lane.records(file_record(size=4), data_record(b"good"), end_record(b"good"))
    e.result()
    e.end(**total_of(b"good"))
    ends(e, 0)


def test_the_last_epoch_but_one(arena):
    e = arena.sink().orders()
    e.hello()
    e.offered()
    lane = e.dial(epoch=U32 - 1)
    e.frames.send("CHOICE", transport=TCP, why="")
    lane.records(file_record(size=4))
    lane.close()
    e.frames.expect("LANE_DOWN")
    e.frames.send("LANE_DOWN", lane=0, epoch=U32 - 1, why="")
    fails(e, 12, 44)
    untouched(arena)


def test_a_thousand_at_a_lanes_port(arena):
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    e = arena.sink().orders()
    e.hello()
    e.offered()
    crowd = [socket.create_connection(("127.0.0.1", e.port)) for _ in range(1000)]
    lane = e.dial()
    e.frames.send("CHOICE", transport=TCP, why="")
    lane.records(file_record(size=4), data_record(b"good"), end_record(b"good"))
    e.result()
    e.end(**total_of(b"good"))
    ends(e, 0)
    for sock in crowd:
        sock.close()


# ---- the far end of a rdcp ---------------------------------------------------------------------------

def test_an_honest_far_end_is_believed(arena):
    run = rdcp(arena, "honest")
    assert run.code == 0, run.errors()
    assert (arena.target / "f").read_bytes() == b"honest"


@pytest.mark.parametrize("scenario, codes", [
    ("text", [5]), ("endless_text", [5]), ("zeros", [5]), ("long_frame", [5]), ("version", [2]),
    ("nothing", [5]), ("half_a_greeting", [5]), ("another_frame", [5, 12]),
    ("greeting_twice", [12]), ("exit_after_greeting", [44]), ("silent", [35, 30]),
    ("silent_copy", [30]), ("done_at_once", range(1, 256)), ("done_and_gone", range(1, 256)),
    ("done_in_the_copy", range(1, 256)), ("unknown_outcome", [12]), ("notes", [11]),
    ("progress", [11]), ("stuck", range(1, 256)), ("never_reads", range(1, 256)),
    ("error_of_escapes", [11]), ("extra_file", [12])] +
    [("local_frames:" + name, [12]) for name in
     ("START", "WANT", "GO", "CANCEL", "DETOUR", "LISTENING", "NOTE", "VERDICT", "PROGRESS",
      "STUCK", "RULE", "LISTED", "EVENT", "FINDING", "TAKEN")],
    ids=lambda x: x if isinstance(x, str) else "")
def test_far_ends(arena, scenario, codes):
    """rdcp fails, in time and in words that its terminal survives; the target is as it was."""
    run = rdcp(arena, scenario, "--progress=1")
    assert run.code in codes, (run.code, run.errors())
    assert run.errors().strip()
    if scenario == "extra_file":
        # The first one is what was asked for.
        (arena.target / "f").write_bytes(b"old")
    untouched(arena)


@pytest.mark.parametrize("scenario", ["done_at_once", "done_and_gone", "silent", "stuck",
                                      "error_of_escapes", "never_reads", "local_frames:START"])
def test_far_ends_that_are_brought_something(arena, scenario):
    """A host that only says so has not stored it."""
    (arena.target / "mine").write_bytes(b"mine")
    run = rdcp(arena, scenario, "--remove-source-files", sources=["target/mine"],
               target="far:there")
    assert run.code not in (0, -9), run.errors()
    assert (arena.target / "mine").read_bytes() == b"mine"


@pytest.mark.parametrize("name", NAMES)
def test_far_names(arena, name):
    """Into a directory, where a name is all that a source needs."""
    run = rdcp(arena, "name_of:" + name, target=arena.target)
    assert run.code == 12, (run.code, run.errors())
    untouched(arena)


@pytest.mark.parametrize("option", ["-v", "--json", "-vvv"])
def test_what_a_far_end_says_of_it_is_shown_escaped(arena, option):
    for scenario, how in (("verdict_of_escapes", {}),
                          ("store_verdict_of_escapes", dict(sources=["outside/f"],
                                                            target="far:there"))):
        run = rdcp(arena, scenario, option, "--progress=1", **how)
        assert run.code == 0, run.errors()
        for text in (bytes(run.out), bytes(run.err)):
            assert not set(text) & set(b"\x1b\x9b\r\x07\x08"), text
            text.decode()


# ---- a rdrecv's door ---------------------------------------------------------------------------------

def receiver(arena, *args, **how):
    how["env"] = {**arena.env(), **how.get("env", {})}
    return arena.bench.receive(*args, key=KEY, host=None, transport="--transport=tcp", **how)


def sender(arena, port, *args, key=KEY, **how):
    how["env"] = {**arena.env(), **how.get("env", {})}
    return arena.bench.send(port, *args, key=key, host=None, to="127.0.0.1",
                            transport="--transport=tcp", **how)


def knock(port, data=b""):
    sock = socket.create_connection(("127.0.0.1", port), 10)
    if data:
        sock.sendall(data)
    return sock


def shown_out(sock, timeout=15):
    sock.settimeout(timeout * SLOW)
    try:
        while sock.recv(65536):
            pass
    except ConnectionError:
        pass
    sock.close()


def client_hello():
    """A real one, of somebody who has no key."""
    import ssl
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    try:
        context.wrap_bio(incoming, outgoing).do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


def is_served(arena, rdrecv, within=None):
    """A good rdsend is served; returns how long it took."""
    start = time.monotonic()
    rdsend = sender(arena, rdrecv.port, arena.top / "f")
    assert rdsend.wait(20) == 0, rdsend.errors()
    took = time.monotonic() - start
    assert rdrecv.wait(20) == 0, rdrecv.errors()
    assert (arena.target / "f").read_bytes() == b"beside the target"
    if within:
        assert took < within * SLOW * (3 if WATCHED else 1), took


HELLO_TO_NOBODY = wire.lane_hello(wire.Key(bytes(32), bytes(32), bytes(32)),
                                  **{"from": SOURCE, "accepting": 0, "lane": 0, "epoch": 0,
                                     "depth": 12, "block_size": 256 << 10})
KNOCKS = {
    "garbage": os.urandom(10000), "zeros": bytes(10000), "text": b"GET / HTTP/1.1\r\n\r\n",
    "lane-hello": HELLO_TO_NOBODY, "block": wire.block(b"x", kind=EXTENT, lane=0, epoch=0, number=0,
                                                        pos=0, file=1),
    "frame": wire.message("PING", cookie=1), "tls-alert": b"\x15\3\3\0\2\2\x28",
    "tls-of-64-KiB": b"\x16\3\1\xff\xff" + bytes(65535), "tls-of-nothing": b"\x16\3\1\0\0" * 1000,
    "tls-data": b"\x17\3\3\0\x10" + bytes(16), "client-hello": client_hello(),
    "two-client-hellos": 2 * client_hello(),
}


@pytest.mark.parametrize("what", KNOCKS)
def test_knocks_at_a_receivers_door(arena, what):
    """Who has no key is shown out at once; nothing on disk was touched; the next one is served."""
    rdrecv = receiver(arena, arena.target / "f")
    for _ in range(5):
        shown_out(knock(rdrecv.port, KNOCKS[what]))
    assert rdrecv.proc.poll() is None
    untouched(arena)
    is_served(arena, rdrecv)


def test_client_hellos_cut_at_every_byte(arena):
    rdrecv = receiver(arena, arena.target / "f")
    hello = client_hello()
    for cut in range(1, len(hello), 1 if COUNT > 1 else 7):
        sock = knock(rdrecv.port, hello[:cut])
        sock.close()
    for cut in range(0, len(hello), 11):
        shown_out(knock(rdrecv.port, spoiled(hello, cut)))
    assert rdrecv.proc.poll() is None
    is_served(arena, rdrecv)


def files_of(limit=4096):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(limit, hard), hard))


@pytest.mark.parametrize("first", [b"", b"\x16", b"S", client_hello()[:-1]],
                         ids=["silent", "one-byte", "of-a-lane", "nearly-a-hello"])
def test_a_thousand_at_a_receivers_door(arena, first):
    """They keep nobody out, and cost little."""
    files_of()
    rdrecv = receiver(arena, arena.target / "f")
    arena.memory.look(rdrecv.proc.pid)
    before = arena.memory.most[rdrecv.proc.pid]
    arena.memory_max = before + (64 << 20) + (100 << 20 if WATCHED else 0)
    crowd = [knock(rdrecv.port, first) for _ in range(1000)]
    is_served(arena, rdrecv, within=2 if not first else 4)
    for sock in crowd:
        sock.close()


def test_a_byte_now_and_then_at_a_receivers_door(arena):
    """Nobody takes a place for longer than a handshake may last."""
    rdrecv = receiver(arena, arena.target / "f")
    hello, stop = client_hello(), threading.Event()

    def drip():
        crowd = [knock(rdrecv.port) for _ in range(60)]
        for byte in hello:
            for sock in crowd:
                try:
                    sock.send(bytes([byte]))
                except OSError:
                    pass
            if stop.wait(0.1):
                break
        for sock in crowd:
            sock.close()
    dripping = threading.Thread(target=drip)
    dripping.start()
    time.sleep(1.5)
    try:
        is_served(arena, rdrecv, within=3)
    finally:
        stop.set()
        dripping.join()


def test_wrong_keys_and_then_the_right_one(arena):
    rdrecv = receiver(arena, arena.target / "f")
    for i in range(300 * COUNT):
        with pytest.raises(tls.Refused):
            tls.Client(knock(rdrecv.port), secrets.token_bytes(32))
    for identity in (b"", b"sluice:sink:-", b"root", b"x" * 200):
        try:
            tls.Client(knock(rdrecv.port), bytes.fromhex("5f" * 32), identity)
            raise AssertionError("let in with a wrong key")
        except tls.Refused:
            pass
    for _ in range(3):
        rdsend = sender(arena, rdrecv.port, arena.top / "f", key="sluice-key-1:" + "5f" * 32)
        assert rdsend.wait(10) == 40, rdsend.errors()
    assert rdrecv.proc.poll() is None
    untouched(arena)
    is_served(arena, rdrecv)


# ---- past it: somebody who has the key -----------------------------------------------------------------

class Guest(peer.Session):
    """A source that a rdrecv has let in."""

    def __init__(self, arena, rdrecv):
        self.tls = tls.Client(knock(rdrecv.port), bytes.fromhex(KEY.split(":")[1]))
        super().__init__(peer.Frames(self.tls.read, self.tls.write), SOURCE, self.tls.secret())
        arena.sessions.append(self)

    def close(self):
        super().close()
        self.frames.over = True
        self.tls.close()

    def finish(self, lane, data=b"good"):
        lane.records(file_record(name="", size=len(data)), data_record(data), end_record(data))
        assert self.result()["code"] == 0
        all_credited(lane)
        self.end(**total_of(data))
        assert self.frames.expect("DONE") == total_of(data)


def test_an_honest_guest_is_served(arena):
    rdrecv = receiver(arena, arena.target / "f")
    guest = Guest(arena, rdrecv)
    guest.finish(guest.open(lanes=1)[0])
    assert rdrecv.wait(SOON) == 0, rdrecv.errors()
    assert (arena.target / "f").read_bytes() == b"good"


def test_what_a_guest_says_of_its_times(arena):
    """Only what is printed comes of it."""
    rdrecv = receiver(arena, "-v", arena.target / "f")
    guest = Guest(arena, rdrecv)
    lane = guest.open(lanes=1)[0]
    guest.frames.send("TIMES", **{**dict.fromkeys(peer.TIMES_NONE, U64), "kind": 3, "same_host": 1, "used": 64,
                                  "cpus": U16, "rtt_us": U32, "block": U32})
    guest.finish(lane)
    assert rdrecv.wait(SOON) == 0, rdrecv.errors()
    assert "bound by: " in rdrecv.errors().splitlines()[-2]
    assert "nan" not in rdrecv.errors() and "inf" not in rdrecv.errors()


GUESTS = {
    "garbage": (os.urandom(3000), 12), "zeros": (bytes(100), 12),
    "ping-first": (wire.message("PING", cookie=1) + wire.message("END", **TOTAL_NONE), 12),
    "greeting": (wire.message("GREETING", magic=wire.GREETING_MAGIC, version=wire.VERSION, release="1"), 12),
    "go": (wire.message("GO"), 12), "cancel": (wire.message("CANCEL", signo=9), 12),
    "detour": (wire.message("DETOUR", port=22, why=""), 12),
    "error": (wire.message("ERROR", code=22, host=b"\x1b[1m", text=b"\x1b]0;x\x07\x9b"), 22),
    "end": (wire.message("END", **TOTAL_NONE), 12),
}


@pytest.mark.parametrize("what", GUESTS)
def test_guests_that_say_something_else(arena, what):
    data, code = GUESTS[what]
    rdrecv = receiver(arena, arena.target / "f")
    guest = Guest(arena, rdrecv)
    guest.frames.raw(data)
    assert rdrecv.wait(SOON) == code, rdrecv.errors()
    untouched(arena)


@pytest.mark.parametrize("what", ["version-99", "same-role", "want-rdma", "lanes-0", "block-3"])
def test_hellos_of_guests(arena, what):
    over, code = HELLOS[what]
    rdrecv = receiver(arena, arena.target / "f")
    Guest(arena, rdrecv).hello(**over)
    assert rdrecv.wait(SOON) == code, rdrecv.errors()
    untouched(arena)


@pytest.mark.parametrize("after", ["tls", "hello", "offer", "lane", "copy"])
@pytest.mark.parametrize("how", ["silence", "hang-up"])
def test_guests_that_leave_it_at_that(arena, after, how):
    rdrecv = receiver(arena, "--timeout=1", "--connect-timeout=1", arena.target / "f")
    guest = Guest(arena, rdrecv)
    if after != "tls":
        guest.hello(lanes=1)
    if after in ("offer", "lane", "copy"):
        guest.offered()
    if after in ("lane", "copy"):
        lane = guest.dial()
    if after == "copy":
        guest.frames.send("CHOICE", transport=TCP, why="")
        lane.records(file_record(name="", flags=STREAM | ORDERED), data_record(b"some"))
    guest.frames.mute = True
    if how == "hang-up":
        guest.close()
    assert rdrecv.wait(8) in ((30, 35) if how == "silence" else (44,)), rdrecv.errors()
    untouched(arena)


@pytest.mark.parametrize("name", NAMES)
def test_names_of_guests(arena, name):
    """The target is what the receiver's user said, whatever the sender calls it."""
    rdrecv = receiver(arena, arena.target / "new")
    guest = Guest(arena, rdrecv)
    lane = guest.open(lanes=1)[0]
    lane.records(file_record(name=NAMES[name], size=3), data_record(b"bad"), end_record(b"bad"))
    if b"\0" in NAMES[name] or b"/" in NAMES[name] or len(NAMES[name]) > 255 or \
            NAMES[name] in (b".", b".."):
        assert rdrecv.wait(SOON) == 12, rdrecv.errors()
        untouched(arena)
        return
    assert guest.result()["code"] == 0
    all_credited(lane)
    guest.end(**total_of(b"bad"))
    assert rdrecv.wait(SOON) == 0, rdrecv.errors()
    assert sorted(p.name for p in arena.target.iterdir()) == ["f", "new"]


@pytest.mark.parametrize("what", ["directory", "contents", "question", "symlink", "attribute", "keep",
                                  "in-a-directory", "same", "have"])
def test_trees_of_guests(arena, what):
    """A rdrecv takes a stream or a file, and nothing else."""
    rdrecv = receiver(arena, arena.target / "f")
    guest = Guest(arena, rdrecv)
    lane = guest.open(lanes=1)[0]
    lane.records({
        "directory": peer.dir_record(), "contents": peer.dir_record(name="", flags=peer.CONTENTS),
        "question": file_record(flags=peer.ASK), "symlink": peer.link_records("../outside/f", name="f"),
        "attribute": file_record(id=2) + peer.xattr_record(id=2) + end_record(id=2),
        "keep": peer.keep_record(1), "in-a-directory": file_record(dir=7),
        "same": wire.record("SAME", id=1), "have": wire.record("HAVE", id=1, pos=0, len=CELL)}[what])
    assert rdrecv.wait(SOON) == 12, rdrecv.errors()
    untouched(arena)


def test_crowds_and_impostors_during_a_transfer(arena):
    """Connections to the port of a session: none disturbs it, or is answered."""
    files_of()
    rdrecv = receiver(arena, arena.target / "f")
    guest = Guest(arena, rdrecv)
    lane = guest.open(lanes=1)[0]
    data = pattern(3 * CELL)
    lane.records(file_record(name="", size=len(data)))
    arena.memory_max += 16 << 20
    crowd = [knock(rdrecv.port) for _ in range(1000)]
    for i in range(3):
        lane.extent(data[i * CELL:(i + 1) * CELL], pos=i * CELL)
        for what in STRANGERS:
            if what == "lane-1" or what == "half":
                continue
            sock = knock(rdrecv.port, STRANGERS[what](lane))
            crowd.append(sock)
    for what in ("tls", "wrong-key", "lane-64", "from-a-sink"):
        shown_out(knock(rdrecv.port, STRANGERS[what](lane)))
    # What was said once is no use a second time.
    shown_out(knock(rdrecv.port, lane.hello()))
    lane.records(end_record(data))
    assert guest.result()["code"] == 0
    all_credited(lane)
    guest.end(**total_of(data))
    assert guest.frames.expect("DONE")["files"] == 1
    assert rdrecv.wait(SOON) == 0, rdrecv.errors()
    assert (arena.target / "f").read_bytes() == data
    for sock in crowd:
        sock.close()


class Proxy(threading.Thread):
    """Passes connections on and keeps what each began with."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.to, self.heard = port, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.start()

    def run(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            far = knock(self.to)
            kept = bytearray()
            self.heard.append(kept)
            threading.Thread(target=self.pass_on, args=(near, far, kept), daemon=True).start()
            threading.Thread(target=self.pass_on, args=(far, near, None), daemon=True).start()

    def pass_on(self, one, other, kept):
        one.settimeout(None)
        try:
            while True:
                data = one.recv(65536)
                if not data:
                    break
                if kept is not None and len(kept) < 1 << 16:
                    kept += data
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def test_replays(arena):
    """What somebody on the way has heard opens nothing: no lane, and no session."""
    rdrecv = receiver(arena, arena.target / "f")
    proxy = Proxy(rdrecv.port)
    rdsend = sender(arena, proxy.port, "--", "sh", "-c",
                    "head -c 300000 /dev/zero; sleep 2; head -c 300000 /dev/zero")
    wait_until(lambda: any(h[:4] == b"SLH\x93" and len(h) >= 64 for h in list(proxy.heard)) or
               rdsend.proc.poll() is not None)
    time.sleep(0.3)
    hellos = [bytes(h[:64]) for h in proxy.heard if h[:4] == b"SLH\x93"]
    handshakes = [bytes(h) for h in proxy.heard if h[:1] == b"\x16"]
    assert hellos and handshakes
    for said in hellos + handshakes:
        shown_out(knock(rdrecv.port, said))
    assert (rdsend.wait(20), rdrecv.wait(20)) == (0, 0), rdsend.errors() + rdrecv.errors()
    assert (arena.target / "f").read_bytes() == bytes(600000)
    # And another receiver with the same key has not heard any of it before.
    rdrecv = receiver(arena, arena.target / "f")
    for said in hellos + handshakes:
        shown_out(knock(rdrecv.port, said))
    assert rdrecv.proc.poll() is None
    proxy.listener.close()


# ---- a hostile door: who answers a rdsend ----------------------------------------------------------------

DOORS = {
    "closes": (b"", True), "garbage": (os.urandom(5000), False), "text": (b"220 ready\r\n", False),
    "alert": (b"\x15\3\3\0\2\2\x28", False), "lane-hello": (HELLO_TO_NOBODY, False),
    "server-hello-of-64-KiB": (b"\x16\3\3\xff\xff" + bytes(65535), False),
    "silence": (b"", False), "half-a-record": (b"\x16\3\3\1\0", False),
}


@pytest.mark.parametrize("what", DOORS)
def test_who_answers_a_sender(arena, what):
    data, closes = DOORS[what]
    listener = socket.create_server(("127.0.0.1", 0))
    rdsend = sender(arena, listener.getsockname()[1], "--connect-timeout=1", "--timeout=1",
                    arena.top / "f")
    listener.settimeout(SOON * SLOW)
    sock, _ = listener.accept()
    sock.sendall(data)
    if closes:
        sock.close()
        listener.close()
    assert rdsend.wait(SOON) in (12, 30, 35, 40, 44), rdsend.errors()
    assert rdsend.errors().strip()
    sock.close()
    listener.close()


@pytest.mark.parametrize("reads", [True, False])
def test_floods_of_guests(arena, reads):
    """PINGs and key updates without end, over TLS; then all goes on."""
    rdrecv = receiver(arena, arena.target / "f")
    guest = Guest(arena, rdrecv)
    lane = guest.open(lanes=1)[0]
    resting = threading.Event()
    read = guest.frames.read
    if not reads:
        guest.frames.read = lambda: resting.wait(60) and read()
    pings = b"".join(wire.message("PING", cookie=i) for i in range(1000))
    for _ in range(100 * COUNT):
        guest.tls.update_keys()
        guest.frames.write(pings)
    resting.set()
    guest.finish(lane)
    assert rdrecv.wait(SOON) == 0, rdrecv.errors()
