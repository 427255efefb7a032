# SPDX-License-Identifier: Apache-2.0
"""A hostile source: names, files and ends that a sink must refuse, and END itself."""

import os
import stat
import struct
import time

import pytest

from arena import SOON, WATCHED, all_credited, ends, fails, open_source, peaceful_sink, untouched
from hosts import COUNT, leftovers, pattern

import peer
import wire
from peer import (I64, NAMES, ORDERED, PRESERVE, SPARSE, STREAM, TOTAL_NONE, U32, U64, data_record,
                  end_record, file_record, hole_record, total_of)

# ---- an honest source succeeds (otherwise the tests below mean nothing) ---------------------

def test_honest_source_is_served(arena):
    e, lane = peaceful_sink(arena)
    assert e.result()["code"] == 0
    assert lane.credit()["stored"] == 1
    e.end(**total_of(b"good"))
    assert e.frames.expect("DONE") == total_of(b"good")
    ends(e, 0)
    assert (arena.target / "f").read_bytes() == b"good"
    assert not leftovers(arena.target)


# ---- names and files ------------------------------------------------------


@pytest.mark.parametrize("want", ["dir/f", "dir/*", "*"])
@pytest.mark.parametrize("name", NAMES)
def test_hostile_names_are_refused(arena, name, want):
    e = arena.sink(wants=[want]).orders()
    lane = e.open()[0]
    lane.records(file_record(name=NAMES[name], size=3), data_record(b"bad"), end_record(b"bad"))
    plain = b"/" not in NAMES[name] and b"\0" not in NAMES[name] and 0 < len(NAMES[name]) < 256 \
        and NAMES[name][:1] != b"."
    if "*" in want and plain:
        # It may be the requested name; it stays in the target, and is printed escaped.
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
def test_invalid_record_fails(arena, what):
    e = arena.sink().orders()
    lane = e.open()[0]
    block = b""
    for record in FILES[what]:
        # No record continues in another block.
        if len(block) + len(record) > e.block_size:
            lane.records(block)
            block = b""
        block += record
    lane.records(block)
    accepted = "second-file", "same-id"
    if any(word in what for word in accepted):
        # The second one is at most refused itself: the first one is stored.
        codes = sorted(e.result()["code"] for _ in range(2))
        assert codes == [0, 11] or codes == [0, 0] and "same-id" in what
        e.end(**total_of(b"", b""))
        # No record announces several.
        ends(e, 11 if any(codes) else 0)
        assert (arena.target / "f").read_bytes() == b""
    else:
        fails(e, 12)
        if not any(word in what for word in ("data-after-the-end", )):
            untouched(arena)


@pytest.mark.parametrize("size", [I64, 1 << 62, 1 << 50])
def test_file_larger_than_any_disk_fails(arena, size):
    """It is refused when it is announced or when it ends; nothing is left in either case."""
    e = arena.sink().orders()
    lane = e.open()[0]
    lane.records(file_record(size=size), data_record(b"x", pos=size - 1))
    lane.close()
    e.hang_up()
    fails(e, 11, 44, verdict=False)
    untouched(arena)


@pytest.mark.parametrize("flags", [SPARSE, SPARSE | ORDERED, SPARSE | ORDERED | STREAM])
def test_largest_hole_costs_nothing(arena, flags):
    """It takes neither time nor disk space."""
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
    """So large that a test cannot wait until it is read; as large as a file may be here."""
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
    """Holes need not be read, and the Adler-32 of zeros is computed directly."""
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
    """The user requested a digest over every byte; ending the session ends the computation."""
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
def test_set_id_bits_are_dropped(arena, preserve):
    (arena.target / "f").unlink()
    e = arena.sink(flags=PRESERVE if preserve else []).orders()
    # 4242 is an unknown user here: the owner is not the source's.
    e.open()[0].records(file_record(mode=0o7777, uid=4242, gid=4242), end_record())
    assert e.result()["code"] == 0
    e.end(**total_of(b""))
    ends(e, 0)
    # The sticky bit belongs to the mode.
    assert stat.S_IMODE((arena.target / "f").stat().st_mode) & (0o6000 if preserve else 0o7000) == 0


@pytest.mark.parametrize("seconds", [-1 << 63, I64, -1, 1 << 40])
def test_extreme_times_are_handled(arena, seconds):
    e = arena.sink(flags=PRESERVE).orders()
    e.open()[0].records(file_record(mtime_s=seconds, atime_s=seconds, mtime_ns=999999999),
                        end_record())
    code = e.result()["code"]
    assert code in (0, 11)
    e.end(**total_of(b""))
    # 23: the file is stored, and the file system can't store that time
    ends(e, code, *([23] if code == 0 and seconds != -1 else []))


@pytest.mark.parametrize("flags", [0, ORDERED, STREAM | ORDERED])
def test_wrong_digest_exits_41_and_the_old_file_stays(arena, flags):
    e = arena.sink().orders()
    lane = e.open()[0]
    lane.records(file_record(size=0 if flags & STREAM else 4, flags=flags), data_record(b"good"),
                 end_record(b"evil"))
    assert e.result()["code"] == 41
    all_credited(lane)
    e.end(**total_of(b"evil"))
    ends(e, 41)
    untouched(arena)


def test_lanes_at_one_position_of_an_ordered_file(arena):
    """Only one lane has its turn: it alone uses the digest and the file then."""
    arena.memory_max += 16 << 20
    piece = pattern(1 << 19)
    for i in range(4 * COUNT):
        e = arena.sink(lanes=8, depth=4, block_size=1 << 20).orders()
        lanes = e.open()
        for lane in lanes:
            lane.records(file_record(size=16 * len(piece), flags=ORDERED))
        # All lanes but one wait for the same turn, and get it when that one is done.
        for j, lane in enumerate(lanes[1:]):
            lane.records(data_record(piece[j:], pos=7))
        lanes[0].records(data_record(b"7 bytes"))
        assert "twice" in fails(e, 12)["text"].decode()
        untouched(arena)


def test_file_that_ends_while_lanes_wait_for_it(arena):
    """A lane that waits for the file to be opened finds it gone, unless it holds a reference."""
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


def test_endless_empty_pieces_are_refused(arena):
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
def test_invalid_extent_fails(arena, what):
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


# ---- END and the stream's end ---------------------------------------------

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
def test_wrong_end_totals_fail(arena, what):
    values, code = ENDS[what]
    e, _ = peaceful_sink(arena)
    e.result()
    e.end(**values)
    fails(e, code)


def test_end_before_all_bytes_fails(arena):
    e = arena.sink().orders()
    lane = e.open()[0]
    lane.records(file_record(size=9), data_record(b"some"))
    lane.credit()
    e.frames.send("END", **total_of(b"some"))
    fails(e, 12)
    untouched(arena)


def test_end_before_anything_fails(arena):
    """The requested file is not stored: that is not a success."""
    e = arena.sink().orders()
    e.open()
    e.frames.send("END", **TOTAL_NONE)
    fails(e, 12)
    untouched(arena)


def test_end_before_the_lanes_fails(arena):
    e = arena.sink().orders()
    e.hello()
    e.frames.send("END", **TOTAL_NONE)
    fails(e, 12)
    untouched(arena)


def test_end_with_missing_files_fails(arena):
    e, _ = peaceful_sink(arena, wants=["dir/f", "dir/g"])
    e.result()
    e.end(**total_of(b"good"))
    fails(e, 12)


def test_second_end_changes_nothing(arena):
    """The second END arrives before the verdict, or after it and is ignored."""
    e, _ = peaceful_sink(arena)
    e.result()
    e.frames.raw(2 * wire.message("END", **total_of(b"good")))
    ends(e, 0, 12)


def test_second_times_fails(arena):
    e, _ = peaceful_sink(arena)
    e.frames.send("TIMES", **peer.TIMES_NONE)
    e.frames.send("TIMES", **peer.TIMES_NONE)
    fails(e, 12)
    e, _ = open_source(arena)
    e.frames.send("TIMES", **peer.TIMES_NONE)
    e.frames.send("TIMES", **peer.TIMES_NONE)
    fails(e, 12)


def test_times_after_end(arena):
    """Before the verdict, or after it, where it is ignored."""
    e, _ = peaceful_sink(arena)
    e.result()
    e.frames.raw(wire.message("END", **total_of(b"good")) + wire.message("TIMES", **peer.TIMES_NONE))
    ends(e, 0, 12)


def test_data_after_end_fails(arena):
    e, lane = peaceful_sink(arena)
    e.result()
    e.end(**total_of(b"good"))
    lane.records(file_record(id=2), data_record(b"more", id=2))
    ends(e, 0, 12)
    assert (arena.target / "f").read_bytes() == b"good"


def test_files_after_end_are_not_stored(arena):
    """They do not belong to the session: nothing is opened, counted or left behind."""
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


def test_disconnect_instead_of_end_fails(arena):
    """It is never taken for the end of a stream."""
    e, lane = peaceful_sink(arena, wants=["dir/f", "dir/g"])
    e.result()
    lane.close()
    e.hang_up()
    fails(e, 44, verdict=False)


def test_disconnect_in_a_stream_fails(arena):
    e = arena.sink().orders()
    lane = e.open()[0]
    lane.records(file_record(flags=STREAM | ORDERED), data_record(b"some"))
    lane.credit()
    e.hang_up()
    fails(e, 44, verdict=False)
    untouched(arena)


def test_stream_accepts_one_file(arena):
    """With STDIO descriptor 1 of the end is its channel here, so it must not be written to."""
    e = arena.sink(target="", wants=["-"], flags=["STDIO"]).orders()
    lane = e.open()[0]
    lane.records(file_record(name="", flags=STREAM | ORDERED), end_record(),
                 file_record(id=2, name="", flags=STREAM | ORDERED), end_record(id=2))
    ends(e, 12, 11)
