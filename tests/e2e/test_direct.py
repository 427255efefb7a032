# SPDX-License-Identifier: Apache-2.0
"""Direct and cached file I/O: --direct, readahead, full disks."""

import contextlib
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import tempfile

import pytest

from file_systems import mounted, mounted_image
from hosts import leftovers, pattern, wait_until
from trees import data_ranges

pytestmark = [
    pytest.mark.moves_blocks,
    pytest.mark.may_skip("user", "a disk with O_DIRECT is made by mounting one, where the tests are on none"),
]
BLOCK = 256 << 10
MIB = 1 << 20
SIZES = [1, 511, 512, 513, 4095, 4096, 4097, BLOCK - 1, BLOCK, BLOCK + 1, BLOCK + 4096, BLOCK + 4097,
         9 * MIB - 1, 9 * MIB, 9 * MIB + 513]


def goes_past(directory):
    """Does its file system support O_DIRECT, and is it treated as a disk?"""
    kind = subprocess.run(["stat", "-f", "-c", "%T", directory], capture_output=True, text=True).stdout
    if kind.strip() not in ("ext2/ext3", "xfs", "btrfs", "f2fs"):
        return False
    try:
        os.close(os.open(directory / "try", os.O_RDWR | os.O_CREAT | os.O_DIRECT))
    except OSError:
        return False
    (directory / "try").unlink()
    return True


@pytest.fixture
def disk(tmp_path):
    """A directory on a disk, where O_DIRECT makes a difference."""
    if goes_past(tmp_path):
        yield tmp_path
        return
    at = pathlib.Path(tempfile.mkdtemp(prefix="sluice-", dir="/var/tmp"))
    try:
        with contextlib.nullcontext() if goes_past(at) else mounted_image(tmp_path / "image", 1 << 30, at):
            if not goes_past(at):
                pytest.skip("no disk with O_DIRECT")
            yield at
    finally:
        shutil.rmtree(at)


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 48 MiB."""
    with mounted_image(tmp_path / "image", 48 * MIB, tmp_path / "small") as at:
        (at / "lost+found").rmdir()
        yield at


def resident(path):
    r = subprocess.run(["fincore", "-n", "-b", "-o", "RES", path], capture_output=True, text=True, check=True)
    return int(r.stdout.split()[0])


def evict(path):
    fd = os.open(path, os.O_RDWR)
    try:
        def gone():
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            return resident(path) == 0
        wait_until(gone, step=0.05)
    finally:
        os.close(fd)


def said(r, what, path):
    """Was it read or written directly?"""
    lines = [x for x in r.errors().splitlines() if "%s %s " % (what, path) in x and "page cache" in x]
    assert len(lines) == 1, r.errors()
    return "past" if " past the" in lines[0] else "through"


@pytest.mark.parametrize("how", ["on", "off", "auto"])
@pytest.mark.lanes
def test_direct_copies_files_of_every_size(bench, disk, how):
    (disk / "from").mkdir()
    (disk / "to").mkdir()
    for n in SIZES:
        (disk / "from" / str(n)).write_bytes(pattern(n, seed=n))
        evict(disk / "from" / str(n))
    r = bench.copy("--direct=" + how, *[disk / "from" / str(n) for n in SIZES], "far:%s" % (disk / "to"))
    assert r.code == 0, r.errors()
    large = [n for n in SIZES if n > BLOCK]
    # What was read, and what was written, except an unaligned end.
    past = [n for n in large if resident(disk / "from" / str(n)) == 0]
    wrote = [n for n in large if resident(disk / "to" / str(n)) <= 4096]
    assert past == {"on": large, "off": [], "auto": [n for n in large if n > 8 * MIB]}[how]
    assert wrote == (large if how == "on" else [])
    for n in SIZES:
        assert (disk / "to" / str(n)).read_bytes() == pattern(n, seed=n), n
    assert "page cache" not in r.errors()


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("block", ["4k", "64k", "1M", "4M"])
def test_direct_works_with_every_block_size(bench, disk, lanes, block):
    data = pattern(13 * MIB + 777)
    (disk / "in").write_bytes(data)
    evict(disk / "in")
    r = bench.copy("--direct=on", "--lanes=%d" % lanes, "--block-size=" + block, "--memory=64M",
                   "--verify", disk / "in", "far:%s" % (disk / "out"))
    assert r.code == 0, r.errors()
    assert (disk / "out").read_bytes() == data


def test_auto_reads_resident_files_through_the_cache(bench, disk):
    data = pattern(24 * MIB + 5)
    (disk / "in").write_bytes(data)
    for part, way in ((0, "past"), (2 * MIB, "past"), (12 * MIB, "through"), (24 * MIB + 5, "through")):
        evict(disk / "in")
        with open(disk / "in", "rb", buffering=0) as f:
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
            assert len(f.read(part)) == part
        before = resident(disk / "in")
        r = bench.copy("-vv", disk / "in", "far:%s" % (disk / "out"))
        assert r.code == 0, r.errors()
        assert said(r, "reading", disk / "in") == way, (part, before)
        assert said(r, "writing", disk / "out") == "through"
        # Nothing else becomes resident. The cached pages stay, unless the kernel is short of memory.
        after = resident(disk / "in")
        assert after <= before if way == "past" else after >= before / 2, (part, before, after)
        assert (disk / "out").read_bytes() == data


def test_direct_stream_starts_at_the_offset(bench, disk):
    """Reads from an unaligned offset can't be direct, and a source on stdin shares its offset."""
    data = pattern(10 * MIB + 3)
    (disk / "in").write_bytes(data)
    for at in (0, 4096, 5000):
        evict(disk / "in")
        with open(disk / "in", "rb", buffering=0) as f:
            f.seek(at)
            sink = bench.receive("--direct=on", disk / "out")
            source = bench.send(sink.port, "--direct=on", stdin=f)
            assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
        assert (disk / "out").read_bytes() == data[at:]
        assert (resident(disk / "in") == 0) == (at != 5000)


@pytest.mark.parametrize("how, size, way", [("on", 3 * MIB, "past"), ("off", 9 * MIB, "through")])
def test_rdsend_and_rdrecv_accept_direct(bench, disk, how, size, way):
    """Cases that auto would decide otherwise."""
    (disk / "in").write_bytes(pattern(size))
    evict(disk / "in")
    sink = bench.receive("-vv", "--direct=" + how, disk / "out")
    source = bench.send(sink.port, "-vv", "--direct=" + how, disk / "in")
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    assert (said(source, "reading", disk / "in"), said(sink, "writing", disk / "out")) == (way, way)
    assert (disk / "out").read_bytes() == pattern(size)


@pytest.mark.parametrize("how", ["on", "auto"])
def test_direct_keeps_holes(bench, disk, how):
    with open(disk / "in", "wb") as f:
        for at in (0, 4 * MIB, 9 * MIB + 4096):
            f.seek(at)
            f.write(pattern(MIB + 123, seed=at))
        f.truncate(40 * MIB + 77)
    evict(disk / "in")
    r = bench.copy("--direct=" + how, disk / "in", "far:%s" % (disk / "out"))
    assert r.code == 0, r.errors()
    assert (disk / "out").read_bytes() == (disk / "in").read_bytes()
    assert os.stat(disk / "out").st_blocks * 512 < 8 * MIB
    with open(disk / "out", "rb") as f:
        assert data_ranges(f.fileno(), 40 * MIB + 77)[-1][1] <= 11 * MIB


def test_data_beyond_the_largest_offset_fails_its_file_only(bench, tmp_path):
    """tmpfs, XFS and btrfs allow files that long, so that any user can make one."""
    with tempfile.TemporaryDirectory(prefix="sluice-", dir="/dev/shm") as at:
        tree = pathlib.Path(at) / "tree"
        tree.mkdir()
        (tree / "plain").write_bytes(pattern(5 * MIB))
        for name, end in (("far", (1 << 63) - 4097), ("holes", (1 << 63) - 1), ("less far", 7 << 60)):
            with open(tree / name, "wb") as f:
                f.truncate(end)
                if name != "holes":
                    os.pwrite(f.fileno(), b"end", end - 3)
        r = bench.copy("-r", tree, "far:%s" % (pathlib.Path(at) / "to"))
        assert r.code == 23 and "/far: " in r.errors() and len(r.errors().splitlines()) == 2, r.errors()
        to = pathlib.Path(at) / "to"
        assert sorted(os.listdir(to)) == ["holes", "less far", "plain"]
        assert (to / "plain").read_bytes() == pattern(5 * MIB)
        with open(to / "less far", "rb") as f:
            assert os.pread(f.fileno(), 4, (7 << 60) - 3) == b"end"


def test_direct_copy_is_resumed(bench, disk):
    data = pattern(24 * MIB + 99)
    (disk / "in").write_bytes(data)
    first = bench.copy("--direct=on", "--bwlimit=16M", "-r", disk / "in", "far:%s" % (disk / "out"), wait=False)
    wait_until(lambda: any((disk / n).stat().st_blocks * 512 > 8 * MIB for n in leftovers(disk)))
    first.group(signal.SIGINT)
    assert first.wait() == 20, first.errors()
    assert leftovers(disk) and not (disk / "out").exists()
    again = bench.copy("--direct=on", "-r", disk / "in", "far:%s" % (disk / "out"))
    assert again.code == 0, again.errors()
    assert (disk / "out").read_bytes() == data and not leftovers(disk)


def test_lack_of_direct_support_is_reported_once(bench, tmp_path):
    with mounted(tmp_path / "ramfs", "-t", "ramfs", "ramfs") as at:
        (at / "to").mkdir()
        for n in "ab":
            (at / n).write_bytes(pattern(2 * MIB))
        r = bench.copy("--direct=on", at / "a", at / "b", "far:%s" % (at / "to"))
        assert r.code == 0, r.errors()
        told = [x for x in r.errors().splitlines() if "cannot bypass the page cache" in x]
        assert len(told) == 1 and "--direct=on" in told[0], r.errors()      # ramfs: the source's
        assert (at / "to" / "b").read_bytes() == pattern(2 * MIB)
        r = bench.copy(at / "a", "far:%s" % (at / "c"))
        assert r.code == 0 and "page cache" not in r.errors(), r.errors()


@pytest.mark.parametrize("how", ["on", "auto"])
def test_too_small_disk_is_detected_at_the_start(bench, tmp_path, small_disk, how):
    (tmp_path / "in").write_bytes(pattern(64 * MIB))
    (small_disk / "out").write_bytes(b"old")
    st = os.statvfs(small_disk)
    r = bench.copy("--direct=" + how, tmp_path / "in", "far:%s" % (small_disk / "out"))
    assert r.code == 11, r.errors()
    free = re.search("No space left on device: it needs 64 MiB, and ([0-9]+) MiB are free", r.errors())
    # The free space before the copy, not what was left after it had been filled.
    assert free and abs(int(free[1]) - st.f_bavail * st.f_frsize // MIB) <= 1, r.errors()
    assert os.listdir(small_disk) == ["out"] and (small_disk / "out").read_bytes() == b"old"


def test_disk_that_fills_up_during_a_stream_is_reported(bench, tmp_path, small_disk):
    """The size of a stream is unknown, so the failure comes late."""
    with open("/dev/zero", "rb") as zero:
        sink = bench.receive("--direct=on", small_disk / "out")
        source = bench.send(sink.port, stdin=zero)
        assert (source.wait(), sink.wait()) == (11, 11), source.errors() + sink.errors()
    assert "No space left on device" in source.errors() and not os.listdir(small_disk)


@pytest.fixture
def rationed(tmp_path):
    """A directory limited to 8 MiB on a larger disk; btrfs needs no separate quota tools for that."""
    if not shutil.which("mkfs.btrfs") or not shutil.which("btrfs"):
        pytest.skip("no btrfs programs")
    with mounted_image(tmp_path / "image", 128 * MIB, tmp_path / "disk", make=("mkfs.btrfs", "-q")) as at:
        for words in (["quota", "enable", at], ["subvolume", "create", at / "own"], ["qgroup", "limit", "8M", at / "own"]):
            subprocess.run(["btrfs", *words], check=True, capture_output=True)
        yield at / "own"


@pytest.mark.may_skip("any", "btrfs is mounted for it, which takes root, the file system in the kernel, and its programs")
def test_exhausted_quota_is_reported(bench, tmp_path, rationed):
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "big").write_bytes(random.Random(1).randbytes(24 * MIB))
    (tmp_path / "tree" / "small").write_bytes(b"small")
    (rationed / "out").write_bytes(b"old")
    r = bench.copy("--direct=on", tmp_path / "tree" / "big", "far:%s" % (rationed / "out"))
    assert r.code == 11 and "/out: Disk quota exceeded" in r.errors(), r.errors()
    sink = bench.receive(rationed / "out")
    source = bench.send(sink.port, "--", "cat", tmp_path / "tree" / "big")
    assert (source.wait(), sink.wait()) == (11, 11), source.errors() + sink.errors()
    assert "/out: Disk quota exceeded" in source.errors(), source.errors()
    assert (rationed / "out").read_bytes() == b"old"
    r = bench.copy("-r", tmp_path / "tree", "far:%s" % (rationed / "tree"))
    assert r.code == 23 and "big: Disk quota exceeded" in r.errors(), r.errors()
    assert sorted(os.listdir(rationed)) == ["out", "tree"]
    assert [p.name for p in (rationed / "tree").iterdir()] == ["small"]
