# SPDX-License-Identifier: Apache-2.0
"""The promises under faults: damage, broken lanes, full disks, changing sources."""

import os
import subprocess
import time

import pytest

from faulty import slow
from file_systems import mounted
from hosts import FAR, SLOW, as_nobody, leftovers, open_up, pattern, program, wait_until

pytestmark = pytest.mark.moves_blocks
BLOCK = 256 << 10


@pytest.fixture
def full(tmp_path):
    """A file system of 8 MiB."""
    with mounted(tmp_path / "full", "-t", "tmpfs", "-o", "size=8m", "tmpfs") as at:
        yield at


def files(tmp_path, size=60 * BLOCK + 3):
    """So much that each lane gets a part of it, whichever is faster."""
    data = pattern(size)
    (tmp_path / "in").write_bytes(data)
    (tmp_path / "out").write_bytes(b"old")
    return data


class ByStream:
    """rdsend and rdrecv of a file; faults are ordered at the source."""

    @staticmethod
    def run(bench, source, target, fault=None, more=()):
        sink = bench.receive(*more, target)
        env = {"SLUICE_FAULT": fault} if fault else {}
        src = bench.send(sink.port, *more, source, env=env)
        codes = src.wait(), sink.wait()
        return codes, src.errors() + sink.errors()


class ByCopy:
    @staticmethod
    def run(bench, source, target, fault=None, more=()):
        env = {"SLUICE_FAULT": fault} if fault else {}
        r = bench.copy(*more, source, "far:%s" % target, env=env)
        return (r.code, r.code), r.errors()


@pytest.fixture(params=[ByStream, ByCopy], ids=["rdsend", "rdcp"])
def by(request):
    return request.param


@pytest.mark.lab("rxe", cases="rdcp")
@pytest.mark.lab(long=True)
@pytest.mark.lanes
def test_damaged_block_is_retransmitted(bench, tmp_path, by):
    data = files(tmp_path)
    codes, errors = by.run(bench, tmp_path / "in", tmp_path / "out",
                           "damage:lane=0,block=1,times=1")
    assert codes == (0, 0), errors
    assert (tmp_path / "out").read_bytes() == data


@pytest.mark.lab(long=True)
@pytest.mark.lanes
def test_block_damaged_twice_exits_41_and_the_old_file_stays(bench, tmp_path, by):
    files(tmp_path)
    # Of two lanes, the other one may take the block when this one is slow to be mended.
    codes, errors = by.run(bench, tmp_path / "in", tmp_path / "out",
                           "damage:lane=0,block=1,times=2", more=["--lanes=1"])
    assert codes == (41, 41), errors
    assert (tmp_path / "out").read_bytes() == b"old"
    assert not leftovers(tmp_path)


@pytest.mark.parametrize("lane", [0, 1])
@pytest.mark.lab(cases="rdcp-1")
@pytest.mark.lab(long=True)
@pytest.mark.lanes
def test_broken_lane_is_mended(bench, tmp_path, by, lane):
    data = files(tmp_path)
    codes, errors = by.run(bench, tmp_path / "in", tmp_path / "out",
                           "break:lane=%d,block=5,times=1;break:lane=%d,block=9,times=1" % (lane, lane))
    assert codes == (0, 0), errors
    assert (tmp_path / "out").read_bytes() == data


@pytest.mark.parametrize("lane", [0, 1])
@pytest.mark.lanes
def test_lane_recovers_when_the_accepting_end_fails_after_its_hello(bench, tmp_path, lane):
    """Then the connecting end has a wire, and the accepting end has none."""
    data = files(tmp_path)
    sink = bench.receive(tmp_path / "out", env={"SLUICE_FAULT": "take:lane=%d,times=2" % lane})
    source = bench.send(sink.port, "--lanes=2", tmp_path / "in")
    assert (source.wait(60), sink.wait(60)) == (0, 0), source.errors() + sink.errors()
    assert (tmp_path / "out").read_bytes() == data


@pytest.mark.lab("siw")
@pytest.mark.lab("rxe", long=True)
@pytest.mark.lanes
def test_broken_lane_of_a_stream_is_mended(bench, tmp_path):
    data = pattern(60 * BLOCK + 3)
    (tmp_path / "in").write_bytes(data)
    cat = subprocess.Popen(["cat", tmp_path / "in"], stdout=subprocess.PIPE)
    sink = bench.receive("--", "sh", "-c", "cat >%s/out" % tmp_path)
    source = bench.send(sink.port, stdin=cat.stdout, env={
        "SLUICE_FAULT": "break:lane=0,block=5,times=1;break:lane=1,block=7,times=1"})
    cat.stdout.close()
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    cat.wait()
    assert (tmp_path / "out").read_bytes() == data


@pytest.mark.lanes
def test_broken_lane_delivers_its_blocks_without_more_input(bench):
    """The producer may wait for the output of the other end."""
    out, into = os.pipe()
    sink = bench.receive()
    source = bench.send(sink.port, "-v", "--lanes=2", stdin=out, env={
        "SLUICE_FAULT": "damage:lane=0,block=1;damage:lane=1,block=1"})
    os.close(out)
    said = b""
    for i in range(8):
        said += b"%d\n" % i
        os.write(into, b"%d\n" % i)
        wait_until(lambda: sink.out == said)
    os.close(into)
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    assert "arrived damaged" in source.errors()


@pytest.mark.may_skip("user", "to mount takes root")
@pytest.mark.lab("siw", long=True)
def test_full_disk_exits_11_at_both_ends(bench, tmp_path, full, by):
    (tmp_path / "in").write_bytes(pattern(12 << 20))
    (full / "out").write_bytes(b"old")
    start = time.monotonic()
    codes, errors = by.run(bench, tmp_path / "in", full / "out")
    assert codes == (11, 11), errors
    assert "No space left on device" in errors and "out" in errors
    assert (full / "out").read_bytes() == b"old" and not leftovers(full)
    assert time.monotonic() - start < 15 * SLOW


@pytest.mark.may_skip("user", "to mount takes root")
@pytest.mark.lab("siw", long=True)
@pytest.mark.lanes
def test_full_disk_during_a_stream_exits_11(bench, tmp_path, full):
    """SD3: no endless loop, and no wrong bytes."""
    sink = bench.receive(full / "out")
    source = bench.send(sink.port, "--", "cat", "/dev/zero")
    assert (source.wait(30), sink.wait(30)) == (11, 11), source.errors() + sink.errors()
    assert os.listdir(full) == []


@pytest.mark.lab("rxe", long=True)
def test_read_error_is_not_end_of_file(bench, tmp_path):
    """SD4: /proc/self/mem can't be read at 0."""
    (tmp_path / "out").write_bytes(b"old")
    r = bench.copy("/proc/self/mem", "far:%s/out" % tmp_path)
    assert r.code == 11, r.errors()
    assert "Input/output error" in r.errors()
    assert (tmp_path / "out").read_bytes() == b"old"


@pytest.mark.needs("root", why="only root can become another user")
@pytest.mark.lab("siw", long=True)
@pytest.mark.any_lane
def test_unreadable_source_is_reported_before_waiting(bench, tmp_path):
    open_up(tmp_path)
    (tmp_path / "in").write_bytes(b"x")
    (tmp_path / "in").chmod(0)
    # Reported before waiting for the peer: nothing listens there.
    source = bench.send(1, tmp_path / "in", become=as_nobody())
    assert source.wait() == 11, source.errors()
    assert "Permission denied" in source.errors()


@pytest.mark.parametrize("target,why", [("dir", "directory"), ("no/out", "does not exist")])
@pytest.mark.any_lane
def test_unwritable_target_is_reported(bench, tmp_path, by, target, why):
    files(tmp_path, 100)
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "in").mkdir()
    if by is ByStream:  # before waiting for the peer
        r = bench.run([program("rdrecv"), "0", "-", tmp_path / target], host=FAR, env={"RD_KEY": "k"})
        code, errors = r.code, r.errors()
    else:
        (code, _), errors = by.run(bench, tmp_path / "in", tmp_path / target)
    assert code == 11, errors
    assert why in errors
    assert not leftovers(tmp_path) and not leftovers(tmp_path / "dir")


@pytest.mark.parametrize("how,code", [("shrink", 42), ("rewrite", 42), ("grow", 0)])
@pytest.mark.lab("siw", cases="rewrite*", long=True)
@pytest.mark.any_lane
def test_changing_source_is_reported(bench, tmp_path, how, code):
    data = files(tmp_path, 40 * BLOCK)
    run = bench.copy("in", "far:%s/out" % tmp_path, wait=False, env={"SLUICE_FAULT": slow()})
    wait_until(lambda: leftovers(tmp_path))
    with open(tmp_path / "in", "r+b") as f:
        if how == "shrink":
            f.truncate(5 * BLOCK)
        elif how == "rewrite":
            f.seek(35 * BLOCK)
            f.write(b"changed")
        else:
            f.seek(0, 2)
            f.write(b"more")
    assert run.wait() == code, run.errors()
    assert (tmp_path / "out").read_bytes() == (b"old" if code else data)
    assert how != "grow" or "grew" in run.errors()
    assert not leftovers(tmp_path)


ELSEWISE = {
    "ln": lambda top: os.link(top / "in", top / "more"),
    "chmod": lambda top: (top / "in").chmod(0o751),
    "unlink": lambda top: (top / "in").unlink(),
    "mv away": lambda top: os.rename(top / "in", top / "more"),
    "mv over": lambda top: (top / "more").write_bytes(b"another") and os.rename(top / "more", top / "in"),
}


@pytest.mark.parametrize("removes", (False, True), ids=("kept", "removed"))
@pytest.mark.parametrize("how", ELSEWISE)
@pytest.mark.any_lane
def test_source_with_changed_metadata_is_copied(bench, tmp_path, how, removes):
    """The file is copied as it was opened. Only the copied file is removed, not one that has its name since."""
    data = files(tmp_path, 40 * BLOCK)
    words = ["--remove-source-files"] if removes else []
    run = bench.copy(*words, "in", "far:%s/out" % tmp_path, wait=False, env={"SLUICE_FAULT": slow()})
    wait_until(lambda: leftovers(tmp_path))
    ELSEWISE[how](tmp_path)
    code = run.wait()
    # A name that is gone needs no removal.
    assert (code != 0) == (removes and how not in ("unlink", "mv away")), (code, run.errors())
    assert (tmp_path / "out").read_bytes() == data
    assert not leftovers(tmp_path)
    left = {"unlink": [], "ln": ["in", "more"], "mv away": ["more"]}.get(how, ["in"])
    assert [n for n in ("in", "more") if (tmp_path / n).exists()] == left
    assert how != "mv over" or (tmp_path / "in").read_bytes() == b"another"


@pytest.mark.any_lane
def test_changed_source_is_not_removed(bench, tmp_path):
    files(tmp_path, 40 * BLOCK)
    run = bench.copy("--remove-source-files", "in", "far:%s/out" % tmp_path, wait=False,
                     env={"SLUICE_FAULT": slow()})
    wait_until(lambda: leftovers(tmp_path))
    with open(tmp_path / "in", "r+b") as f:
        f.seek(0, 2)
        f.write(b"more")
    assert run.wait() != 0, run.errors()
    assert (tmp_path / "in").exists()


@pytest.mark.lab("rxe", long=True)
def test_memory_is_bounded(bench, tmp_path):
    """4 GiB + 1, sparse in the lab, through less than 64 MiB of memory."""
    size = (4 << 30) + 1
    with open(tmp_path / "in", "wb") as f:
        f.truncate(size)
        f.seek((4 << 30) - 100)
        f.write(b"x" * 101)
    r = bench.copy("in", "far:%s/out" % tmp_path, timeout=120)
    assert r.code == 0, r.errors()
    assert (tmp_path / "out").stat().st_size == size
    with open(tmp_path / "out", "rb") as f:
        f.seek((4 << 30) - 100)
        assert f.read() == b"x" * 101
    assert (tmp_path / "out").stat().st_blocks * 512 < 4 << 20
