# SPDX-License-Identifier: Apache-2.0
"""rdbench's requests to an end, with invalid values: bounded, reported, and nothing is left behind."""

import os
import pathlib
import time

import pytest

from arena import SOON, Arena, ends, fails
from hosts import SLOW

from peer import CELL, SINK, SOURCE, U64, file_record, total_of

DISK = CELL * 4


@pytest.fixture
def arena(bench, tmp_path):
    a = Arena(bench, tmp_path)
    # A probe allocates blocks of its own.
    a.memory_max += 256 << 20
    yield a
    a.settle()


def empty(directory):
    return sorted(p.name for p in directory.iterdir()) == ["f"]


def probe(arena, role, wants=(), target="", **how):
    how = {"flags": ("PROBE",), "memory_bytes": DISK, **how}
    return arena.end(role, wants=wants, target=target, listens=False, **how).orders()


# ---- honest requests are served -----------------------------------------------------------

def test_target_is_probed(arena):
    said = ends(probe(arena, SINK, target=arena.target, flags=("PROBE", "FSYNC")), 0)
    assert said["bytes"] == DISK and said["ns"] > 0
    assert empty(arena.target)


@pytest.mark.parametrize("what", ["file", "directory"])
def test_source_is_probed(arena, what):
    want = arena.target
    if what == "file":
        want = arena.target / "big"
        want.write_bytes(os.urandom(2 * DISK))
    said = ends(probe(arena, SOURCE, wants=(want,)), 0)
    assert said["bytes"] == DISK and said["ns"] > 0
    assert (arena.target / "big").exists() == (what == "file")


@pytest.mark.parametrize("role", [SOURCE, SINK])
def test_end_without_a_disk_is_idle(arena, role):
    said = ends(probe(arena, role), 0)
    assert said["bytes"] == 0


# ---- invalid requests -------------------------------------------------------------------------

@pytest.mark.parametrize("sizes", [(65535, 65535, 4 << 20), (64, 1024, 4 << 20), (64, 1024, 4096), (0, 0, 0)],
                         ids=str)
def test_any_number_of_lanes_is_handled(arena, sizes):
    lanes, depth, block = sizes
    e = probe(arena, SINK, target=arena.target, lanes=lanes, depth=depth, block_size=block)
    # A number beyond the limit makes START invalid.
    said = ends(e, 0, 12)
    assert said["code"] == 12 or said["bytes"] == DISK
    assert empty(arena.target)


def test_odd_block_size_is_handled(arena):
    fails(probe(arena, SINK, target=arena.target, block_size=5000), 1, 12)


@pytest.mark.parametrize("target, codes", [("no/such/place", (11,)), ("outside/f", (11,)), ("/proc/self", (11,)),
                                           ("/dev/null", (11,)), ("x" * 4000, (11, 1))])
def test_target_that_is_not_a_directory_fails(arena, target, codes):
    fails(probe(arena, SINK, target=target), *codes)


@pytest.mark.parametrize("want, code", [("no/such/file", 3), ("/dev/zero", 11), ("/proc/self/maps", 11), ("pipe", 11)])
def test_source_that_is_not_a_file_fails(arena, want, code):
    if want == "pipe":
        os.mkfifo(arena.target / "pipe")
        want = arena.target / "pipe"
    fails(probe(arena, SOURCE, wants=(want,)), code)


def test_several_sources_are_refused(arena):
    fails(probe(arena, SOURCE, wants=("outside/f", "f")), 12)


@pytest.mark.parametrize("role", [SOURCE, SINK])
def test_probe_larger_than_the_disk_is_bounded(arena, role):
    """At most half of the free space is used, and the conductor can end the probe."""
    how = {"wants": (arena.target,)} if role == SOURCE else {"target": arena.target}
    start = time.monotonic()
    e = probe(arena, role, memory_bytes=U64, **how)
    time.sleep(0.2)
    e.frames.send("CANCEL", signo=15)
    said = ends(e, 20)
    assert said["text"]
    assert time.monotonic() - start < SOON
    assert empty(arena.target)


def test_probe_ends_when_the_conductor_leaves(arena):
    e = probe(arena, SINK, target=arena.target, memory_bytes=8 << 30)
    time.sleep(0.1)
    e.hang_up()
    ends(e, 0, 11, 20, within=2 * SLOW + 1, verdict=False)
    assert empty(arena.target)


def test_probe_opens_no_session(arena):
    """HELLO and similar messages are refused."""
    e = arena.end(SINK, wants=(), target=str(arena.target), listens=False, flags=("PROBE",), memory_bytes=256 << 20)
    e.orders()
    e.frames.send("PING", cookie=7)
    said = ends(e, 0)
    assert said["bytes"] == 256 << 20


# ---- memory to memory -------------------------------------------------------------------------

def test_too_many_generated_bytes_are_refused(arena):
    e = arena.source(flags=("MEMORY",), memory_bytes=U64).orders()
    e.hello()
    fails(e, 12)


def test_discarded_bytes_are_checked(arena):
    e = arena.sink(flags=("MEMORY",), memory_bytes=4096).orders()
    lane = e.open()[0]
    lane.records(file_record(size=4096))
    lane.extent(b"x" * 8192)
    fails(e, 12)
    assert (arena.target / "f").read_bytes() == b"old"


def test_files_are_never_unchecked(arena):
    """UNCHECKED without MEMORY is ignored."""
    e = arena.sink(flags=("UNCHECKED",)).orders()
    lane = e.open()[0]
    lane.records(file_record(size=4))
    assert pathlib.Path(arena.target / "f").read_bytes() == b"old"
    e.end(**total_of(b""))
    fails(e, 12, 44, 20)
