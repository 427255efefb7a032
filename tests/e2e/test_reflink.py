# SPDX-License-Identifier: Apache-2.0
"""Copies on one host share blocks on the disk where the file system supports it; otherwise the data is copied."""

import os
import pathlib
import subprocess
import threading

import pytest

from file_systems import mounted_image
from hosts import leftovers, pattern

pytestmark = [
    pytest.mark.each_combination,
    pytest.mark.may_skip(
        "any", "btrfs or XFS is mounted for it, which takes root, the file system in the kernel, and its programs"),
]
MIB = 1 << 20


@pytest.fixture(params=["btrfs", "xfs"])
def disk(request, tmp_path):
    make = {"btrfs": ["mkfs.btrfs", "-q"], "xfs": ["mkfs.xfs", "-q", "-m", "reflink=1"]}[request.param]
    with mounted_image(tmp_path / "image", 512 * MIB, tmp_path / "disk", make=make) as at:
        yield at


def is_shared(path):
    """True if all extents are shared, false if none is. The last block may have been rewritten."""
    subprocess.run(["sync", path], check=True)
    out = subprocess.run(["filefrag", "-v", path], check=True, capture_output=True, text=True).stdout
    extents = [x for x in out.splitlines() if x.split(":")[0].strip().isdigit()]
    shared = ["shared" in x for x in extents]
    assert extents and len(set(shared[:-1] or shared)) == 1, out
    return shared[0]


def local(bench, *args):
    return bench.copy(*args, transport="--transport=auto")


def test_file_is_cloned(bench, disk):
    data = pattern(9 * MIB + 77)
    (disk / "in").write_bytes(data)
    os.chmod(disk / "in", 0o640)
    os.utime(disk / "in", ns=(10**18, 10**18 + 123))
    (disk / "out").write_bytes(b"old")
    r = local(bench, "-p", "--print-digest=sha256", disk / "in", disk / "out")
    assert r.code == 0, r.errors()
    assert (disk / "out").read_bytes() == data and is_shared(disk / "out")
    st = os.stat(disk / "out")
    assert st.st_mtime_ns == 10**18 + 123 and st.st_mode & 0o777 == 0o640
    assert not leftovers(disk)
    digest = subprocess.run(["sha256sum", disk / "in"], capture_output=True, text=True).stdout.split()[0]
    assert digest in bytes(r.out).decode() + r.errors()


def test_tree_is_cloned_with_its_metadata(bench, disk):
    top = disk / "from"
    (top / "d").mkdir(parents=True)
    for i in range(20):
        (top / "d" / str(i)).write_bytes(pattern(300000 + i * 100001, seed=i))
    (top / "small").write_bytes(b"small")
    os.link(top / "d" / "3", top / "linked")
    with open(top / "holes", "wb") as f:
        f.truncate(50 * MIB)
        f.seek(20 * MIB)
        f.write(pattern(MIB))
    r = local(bench, "-aH", "--fsync", top, disk / "to")
    assert r.code == 0, r.errors()
    assert subprocess.run(["diff", "-r", top, disk / "to"]).returncode == 0
    assert all(is_shared(disk / "to" / "d" / str(i)) for i in range(20))
    assert os.stat(disk / "to" / "holes").st_blocks <= os.stat(top / "holes").st_blocks
    assert os.stat(disk / "to" / "linked").st_ino == os.stat(disk / "to" / "d" / "3").st_ino
    # Again: only changed files.
    (top / "d" / "5").write_bytes(pattern(2 * MIB, seed=99))
    r = local(bench, "-aH", "--delete", "%s/" % top, disk / "to")
    assert r.code == 0, r.errors()
    assert subprocess.run(["diff", "-r", top, disk / "to"]).returncode == 0
    assert is_shared(disk / "to" / "d" / "5")


@pytest.mark.parametrize("how", ["--verify", "--no-sparse", "--sparse", "--inplace"])
def test_options_that_need_the_data_prevent_clones(bench, disk, how):
    """Requests that a clone cannot satisfy cause a copy."""
    data = pattern(3 * MIB + 5)
    (disk / "in").write_bytes(data)
    r = local(bench, how, disk / "in", disk / "out")
    assert r.code == 0, r.errors()
    assert (disk / "out").read_bytes() == data and not is_shared(disk / "out")


def test_other_file_system_gets_a_copy(bench, disk, tmp_path):
    (disk / "from").mkdir()
    for i in range(12):
        (disk / "from" / str(i)).write_bytes(pattern(5 * MIB + i, seed=i))
    r = local(bench, "-r", disk / "from", tmp_path / "to")
    assert r.code == 0, r.errors()
    assert subprocess.run(["diff", "-r", disk / "from", tmp_path / "to"]).returncode == 0
    r = local(bench, "-r", tmp_path / "to", disk / "back")
    assert r.code == 0, r.errors()
    assert subprocess.run(["diff", "-r", disk / "from", disk / "back"]).returncode == 0


@pytest.mark.parametrize("disk", ["btrfs"], indirect=True)
def test_unclonable_file_does_not_prevent_other_clones(bench, disk):
    """A file with chattr +C shares no blocks with a file without it."""
    (disk / "images").mkdir()
    subprocess.run(["chattr", "+C", disk / "images"], check=True)
    names = [disk / "images" / "first", disk / "second", disk / "third"]
    for i, path in enumerate(names):
        path.write_bytes(pattern(2 * MIB, seed=i))
    (disk / "to").mkdir()
    r = local(bench, "--lanes=1", *names, disk / "to")
    assert r.code == 0, r.errors()
    assert [is_shared(disk / "to" / path.name) for path in names] == [False, True, True]
    assert all((disk / "to" / path.name).read_bytes() == path.read_bytes() for path in names)


def test_nothing_is_cloned_between_hosts(bench, disk):
    data = pattern(3 * MIB)
    (disk / "in").write_bytes(data)
    r = bench.copy(disk / "in", "far:%s" % (disk / "out"))
    assert r.code == 0, r.errors()
    assert (disk / "out").read_bytes() == data and not is_shared(disk / "out")


def test_changing_source_is_cloned_consistently(bench, disk):
    """The first and last bytes are a counter, and the last one is always written after the first: a copy never
    mixes two moments."""
    path, size, stop = disk / "in", 2 * MIB, threading.Event()
    path.write_bytes(bytes(size))

    def write():
        n = 0
        fd = os.open(path, os.O_WRONLY)
        while not stop.wait(0.002):
            n += 1
            os.pwrite(fd, n.to_bytes(8, "big"), 0)
            stop.wait(0.002)
            os.pwrite(fd, n.to_bytes(8, "big"), size - 8)
        os.close(fd)
    t = threading.Thread(target=write)
    t.start()
    try:
        for _ in range(10):
            r = local(bench, path, disk / "out")
            assert r.code in (0, 42), r.errors()
            if r.code == 0:
                got = pathlib.Path(disk / "out").read_bytes()
                first, last = (int.from_bytes(got[at:][:8], "big") for at in (0, size - 8))
                assert first - last in (0, 1), (first, last)
    finally:
        stop.set()
        t.join()
