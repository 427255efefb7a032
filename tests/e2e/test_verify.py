# SPDX-License-Identifier: Apache-2.0
"""Stores that lie. With --verify, one flipped bit of a write is detected. Without it only what the file system
reports is compared: the length of the file, and that it has no hole where data was written."""

import os
import pathlib
import subprocess
import tempfile

import pytest

from faulty import LIAR, lying, refusing
from hosts import leftovers, pattern
from trees import fell, make, read, stale

pytestmark = [pytest.mark.moves_blocks, pytest.mark.any_lane]
BLOCK = 256 << 10
BIG = (6 << 20) + 4711  # 25 writes of a block, the last one short


def tells_holes(top):
    """Does its file system report holes reliably?"""
    return subprocess.run(["stat", "-f", "-c", "%T", str(top)], check=True, capture_output=True,
                          text=True).stdout.strip() in ("ext2/ext3", "xfs", "tmpfs")


@pytest.fixture
def telling(ground):
    """A directory on such a file system. On others rdcp(1) does not promise that holes are noticed."""
    if tells_holes(ground):
        yield ground
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as top:
        assert tells_holes(top)
        yield pathlib.Path(top)


def lied(top):
    return (top / "lied").exists()


SMALL = {"f%02d" % i: pattern(1 + 997 * i, i) for i in range(40)}


@pytest.mark.parametrize("nth,at", [(1, 0), (40, -1)])
@pytest.mark.parametrize("options", [[], ["--inplace"], ["--fsync"]], ids=str)
def test_flipped_bit_in_small_files_is_detected(bench, ground, nth, at, options):
    make(ground, {"from": SMALL, "to": {n: b"old" for n in SMALL} if options else {}})
    for verify, code in ((["--verify"], 23), ([], 0)):
        (ground / "lied").unlink(missing_ok=True)
        r = bench.copy("-r", *options, *verify, "--failed=failed", "from/", "far:%s" % (ground / "to"), cwd=ground,
                       env=lying(ground / "to", nth, at))
        assert lied(ground) and r.code == code, (r.code, r.errors())
        now = read(ground / "to")
        wrong = [n for n in SMALL if now.get(n) != SMALL[n]]
        assert len(wrong) == 1 and not stale(ground / "to"), wrong
        if verify:
            assert "the stored data differs from the received data" in r.errors() and wrong[0] in r.errors(), r.errors()
            assert (ground / "failed").read_bytes() == wrong[0].encode() + b"\0"
            # No wrong file gets its name, except with --inplace.
            assert "--inplace" in options or now.get(wrong[0]) == (b"old" if options else None)
    r = bench.copy("-r", "--verify", *options, "from/", "far:%s" % (ground / "to"), cwd=ground)
    assert r.code == 0 and read(ground / "to") == SMALL, r.errors()


@pytest.mark.parametrize("nth,at", [(1, 0), (2, 100000), (25, -1)])
@pytest.mark.parametrize("options", [[], ["--inplace"], ["--direct=on"]], ids=str)
def test_flipped_bit_in_a_large_file_is_detected(bench, ground, nth, at, options):
    data = pattern(BIG)
    make(ground, {"big": data, "to": {"big": b"old" * 100}})
    for verify in (["--verify"], []):
        (ground / "lied").unlink(missing_ok=True)
        r = bench.copy(*options, *verify, "--lanes=2", "big", "far:%s" % (ground / "to"), cwd=ground,
                       env=lying(ground / "to", nth, at))
        assert lied(ground) and r.code == (41 if verify else 0), (r.code, r.errors())
        now = (ground / "to" / "big").read_bytes()
        assert now != data
        if verify:
            assert "the stored data differs from the received data" in r.errors() and "big" in r.errors(), r.errors()
            assert "--inplace" in options or now == b"old" * 100
            assert not leftovers(ground / "to"), "what is wrong is no good for a later run"
        else:
            differ = [at for at in range(0, BIG, BLOCK) if now[at:at + BLOCK] != data[at:at + BLOCK]]
            assert len(now) == BIG and len(differ) == 1
    r = bench.copy("--verify", *options, "big", "far:%s" % (ground / "to"), cwd=ground)
    assert r.code == 0 and (ground / "to" / "big").read_bytes() == data, r.errors()


@pytest.mark.parametrize("nth", [1, 7])
@pytest.mark.parametrize("options", [[], ["--inplace"]], ids=str)
def test_bytes_stored_at_another_offset_are_detected(bench, telling, nth, options):
    """Each write succeeded, and the digest of the received data is right. But the file has a hole, or is too long."""
    data = pattern(BIG)
    make(telling, {"big": data, "to": {}})
    env = dict(lying(telling / "to", nth), LIE_SHIFT="4096")
    for verify in (["--verify"], []):
        (telling / "lied").unlink(missing_ok=True)
        r = bench.copy(*options, *verify, "--lanes=2", "big", "far:%s" % (telling / "to"), cwd=telling, env=env)
        assert lied(telling) and r.code == 41, (r.code, r.errors())
        assert "big: the stored data " in r.errors(), r.errors()
    assert not read(telling / "to")


@pytest.mark.parametrize("name", ["first", "last"])
def test_bytes_of_a_small_file_at_another_offset_are_detected(bench, ground, name):
    """The file is too long then; only a file that this run made is checked for that."""
    make(ground, {"from": SMALL, "to": {}})
    env = dict(lying(ground / "to", 1 if name == "first" else 40), LIE_SHIFT="10")
    r = bench.copy("-r", "from/", "far:%s" % (ground / "to"), cwd=ground, env=env)
    assert lied(ground) and r.code == 23 and "the stored data is longer than the received data" in r.errors(), (r.code, r.errors())
    now = read(ground / "to")
    assert len(now) == 39 and all(SMALL[n] == now[n] for n in now)


@pytest.mark.parametrize("options", [[], ["--inplace"]], ids=str)
@pytest.mark.parametrize("size,nth,to", [(BIG, 25, 0), (BIG, 25, BIG - 1), (BIG, 1, 0), (BIG, 20, 5 * BLOCK), (5000, 1, 0),
                                         (5000, 1, 4999)])
def test_target_truncated_while_it_is_written_is_a_failure(bench, telling, options, size, nth, to):
    """By another process. With --remove-source-files the content would be lost."""
    data = pattern(size)
    make(telling, {"from": {"f": data}, "to": {"f": b"old" * 100} if options else {}})
    env = dict(lying(telling / "to", nth), LIE_CUT=str(to), LIE_CUT_WRITTEN="1")
    r = bench.copy("-r", "--lanes=2", "--remove-source-files", *options, "from/",
                   "far:%s" % (telling / "to"), cwd=telling, env=env)
    assert lied(telling) and r.code == 23 and "f: the stored data " in r.errors(), (r.code, r.errors())
    assert read(telling / "from") == {"f": data}
    assert options or not read(telling / "to")


@pytest.mark.parametrize("to", [0, 300000])
def test_stream_into_a_truncated_file_is_a_failure(bench, ground, to):
    data = pattern(BIG)
    make(ground, {"in": data, "to": {}})
    env = dict(lying(ground / "to", 25), LIE_CUT=str(to), LIE_CUT_WRITTEN="1")
    with open(ground / "to" / "out", "wb") as out:
        r = bench.copy("in", "-", cwd=ground, env=env, stdout=out)
    assert lied(ground) and r.code == 41 and "the stored data is shorter than the received data" in r.errors(), (r.code, r.errors())


def test_flipped_bit_in_streams_and_local_copies_is_detected(bench, ground):
    data = pattern(3 << 20)
    make(ground, {"in": data, "to": {}})
    with open(ground / "in", "rb") as f:
        r = bench.copy("--verify", "-", "far:%s" % (ground / "to" / "out"), stdin=f, cwd=ground,
                       env=lying(ground / "to", 3))
    assert lied(ground) and r.code == 41 and not read(ground / "to"), (r.code, r.errors())
    (ground / "lied").unlink()
    r = bench.copy("--verify", "in", "to/out", cwd=ground, env=lying(ground / "to", 2))
    assert lied(ground) and r.code == 41 and not read(ground / "to"), (r.code, r.errors())


def test_print_digest_detects_a_flipped_bit(bench, ground):
    """--print-digest reads the data back as well."""
    make(ground, {"from": {"f": b"x" * 1000, "big": pattern(5 << 20)}, "to": {}})
    for nth in (1, 9):
        (ground / "lied").unlink(missing_ok=True)
        r = bench.copy("-r", "--print-digest=sha256", "from/", "far:%s" % (ground / "to"), cwd=ground,
                       env=lying(ground / "to", nth))
        assert lied(ground) and r.code == 23 and "the digest of the stored data differs" in r.errors(), (r.code, r.errors())
        assert len(read(ground / "to")) == 1
        for name in read(ground / "to"):
            (ground / "to" / name).unlink()


@pytest.mark.parametrize("nth,to", [(1, 0), (1, 5 * BLOCK), (2, 0), (1, 40 * BLOCK)])
def test_target_truncated_while_it_is_compared_is_not_the_same(bench, ground, nth, to):
    """Missing bytes are neither zeros nor the end of the data."""
    data = bytearray(BIG)
    data[2 * BLOCK] = 1
    make(ground, {"from": {"f": bytes(data)}, "to": {"f": b""}})
    with open(ground / "to" / "f", "wb") as f:  # a hole after its only data, looked up twice
        f.truncate(BIG)
        f.seek(2 * BLOCK)
        f.write(b"\1")
    env = dict(lying(ground / "to", nth), LIE_CUT=str(to))
    r = bench.copy("-r", "--checksum", "--itemize-changes", "from/", "far:%s" % (ground / "to"), cwd=ground, env=env)
    assert lied(ground), "it was not cut"
    # It may be sent, or fail: but it is not reported as existing.
    assert r.code == 23 or (ground / "to" / "f").read_bytes() == bytes(data), (r.code, r.errors())
    assert r.code != 23 or "changed" in r.errors(), r.errors()
    r = bench.copy("-r", "--checksum", "from/", "far:%s" % (ground / "to"), cwd=ground)
    assert r.code == 0 and (ground / "to" / "f").read_bytes() == bytes(data), r.errors()


def holes(path, size):
    """A file with a hole at its start, one in the middle and one at its end."""
    data = bytearray(size)
    data[size // 4:size // 4 + 70000] = pattern(70000, 3)
    data[size // 2:size // 2 + 300] = pattern(300, 4)
    with open(path, "wb") as f:
        f.truncate(size)
        for at, end in ((size // 4, size // 4 + 70000), (size // 2, size // 2 + 300)):
            f.seek(at)
            f.write(data[at:end])
    return bytes(data)


@pytest.mark.parametrize("call", ["fstat", "lseek", "fcntl", "fsync"])
@pytest.mark.parametrize("options", [[], ["--inplace", "--verify"]], ids=str)
def test_failing_call_never_yields_a_wrong_file(bench, ground, call, options):
    """Wherever the call fails: the target is right, or the run reports that it is not and the source stays."""
    for nth in range(1, 30):
        make(ground, {"from": {}, "to": {"holes": b"old" * 500000} if options else {}})
        want = {"holes": holes(ground / "from" / "holes", 1 << 20), "small": pattern(500), "empty": b""}
        for name in ("small", "empty"):
            (ground / "from" / name).write_bytes(want[name])
        r = bench.copy("-r", "--remove-source-files", *options, "from/", "far:%s" % (ground / "to"), cwd=ground,
                       env=refusing(ground / "to", call, nth))
        left, there = read(ground / "from"), read(ground / "to")
        for name in want:
            assert left.get(name, there.get(name)) == want[name], (nth, name, r.code, r.errors())
        assert (r.code == 0) <= (not left and there == want), (nth, r.code, r.errors())
        for d in ("from", "to"):
            fell(ground / d)
        if not lied(ground):
            assert nth > 1 or call in ("lseek", "fcntl"), "nothing was tried"
            return
        (ground / "lied").unlink()
    raise AssertionError("there is no end of these calls")


@pytest.mark.parametrize("source,target,shown", [("from/", "to", "d/f"), ("from/d/f", "to/d/f", "to/d/f")],
                         ids=["tree", "file"])
def test_comparison_that_fails_names_the_path(bench, ground, source, target, shown):
    for nth in range(1, 10):
        make(ground, {"from": {"d": {"f": pattern(1 << 20)}}, "to": {"d": {"f": pattern(1 << 20, 2)}}})
        r = bench.copy("-r", "--checksum", source, target, cwd=ground, env=refusing(ground / "to", "fstat", nth))
        if "to compare it" in r.errors():
            assert "rdcp: read %s to compare it: Input/output error" % shown in r.errors(), r.errors()
            return
    raise AssertionError("the comparison never failed")


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("far", ["", "far:"])
def test_conductor_whose_poll_fails_leaves_nothing(bench, ground, far, lasting):
    """It ends its ends as after any failure: they have time to remove their temporaries."""
    make(ground, {"from": {"f%d" % i: pattern(3 << 20, i) for i in range(4)}, "to": {}})
    env = dict(refusing(ground / "to", "poll", 1), **({"LIE_LASTING": "1"} if lasting else {}))
    # So that polls happen while data moves.
    r = bench.copy("-r", "--bwlimit=2M", "--progress=1", "from/", far + str(ground / "to"), cwd=ground, env=env)
    assert lied(ground) and r.code == 10 and "wait for the ends" in r.errors(), (r.code, r.errors())
    assert not stale(ground / "to"), r.errors()


def test_cached_ctime_does_not_hide_that_the_source_is_the_target(bench, ground):
    """Over NFS the ctime that the sink has just changed may be cached here, unless the server is asked."""
    make(ground, {"from": {"f": b"precious"}, "to": {}})
    os.link(ground / "from" / "f", ground / "to" / "f")
    r = bench.copy("-r", "--times", "--remove-source-files", "from/", "far:%s" % (ground / "to"), cwd=ground,
                   env={"LD_PRELOAD": str(LIAR), "LIE_STALE": "1"})
    assert r.code == 23 and "is the target itself" in r.errors(), (r.code, r.errors())
    assert read(ground / "from") == {"f": b"precious"}
