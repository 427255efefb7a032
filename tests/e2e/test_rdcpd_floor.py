# SPDX-License-Identifier: Apache-2.0
"""What a session may store in a module of rdcpd, and what stays free on its disk, however many clients there are."""

import os

import pytest

from daemons import Configured
from file_systems import EXT4, mounted, mounted_image
from hosts import leftovers, pattern, wait_until

pytestmark = pytest.mark.needs("tcp", why="over TCP; test_rdcpd_rdma.py has what an adapter can change")
MAY_NOT_MOUNT = "to mount takes root, and a container that may"
NEEDS_ROOT = pytest.mark.needs("root", why="it takes root to mount")
MIB = 1 << 20
DATA = "[data]\npath = {tmp}/data\nread only = no\n"
FREE = "the disk is full but for the 8 MiB that stay free (min free of rdcpd)"


@pytest.fixture(params=["tmpfs", "ext4"])
def disk(request, tmp_path):
    """The module data has 20 to 30 MiB."""
    at = tmp_path / "data"
    with mounted(at, "-t", "tmpfs", "-o", "size=24m", "tmpfs") if request.param == "tmpfs" else \
            mounted_image(tmp_path / "image", 32 << 20, at, EXT4):
        at.chmod(0o777)
        yield at


def free(path):
    fs = os.statvfs(path)
    return fs.f_bavail * fs.f_frsize


@NEEDS_ROOT
@pytest.mark.may_skip("any", MAY_NOT_MOUNT)
def test_floor_holds_for_one_client(bench, tmp_path, disk):
    """A file that does not fit is refused at once, and a stream where the floor is reached; the old file stays."""
    daemon = Configured(bench, tmp_path, DATA + "min free = 8M\n")
    (disk / "old").write_bytes(b"old")
    (tmp_path / "big").write_bytes(pattern(30 * MIB))
    os.mkfifo(tmp_path / "stream")
    r = daemon.copy("big", daemon.url("data/old"))
    assert r.code == 11 and FREE in r.errors(), r.errors()
    assert free(disk) > 8 * MIB
    run = bench.start(daemon.argv("stream", daemon.url("data/old")), cwd=tmp_path)
    with open(tmp_path / "stream", "wb", buffering=0) as pipe:
        try:
            pipe.write(pattern(30 * MIB))
        except BrokenPipeError:
            pass
    assert run.wait() == 11 and FREE in run.errors(), run.errors()
    assert (disk / "old").read_bytes() == b"old"
    wait_until(lambda: daemon.children() == [])
    assert leftovers(disk) == []
    (tmp_path / "small").write_bytes(b"x" * 100_000)
    r = daemon.copy("small", daemon.url("data/"))
    assert r.code == 0, r.errors()


@NEEDS_ROOT
@pytest.mark.may_skip("any", MAY_NOT_MOUNT)
@pytest.mark.parametrize("count,size", [(8, 4 * MIB), (4, 60_000)], ids=["large", "trees"])
def test_floor_holds_against_many_clients(bench, tmp_path, disk, count, size):
    """More than fits. Each file is whole or not there; the space that must stay free is free at every moment."""
    daemon = Configured(bench, tmp_path, DATA + "min free = 8M\n")
    files = 1 if size > MIB else 160
    (tmp_path / "in").mkdir()
    for n in range(files):
        (tmp_path / "in" / str(n)).write_bytes(pattern(size, seed=n))
    clients = [bench.start(daemon.argv("-r", "in", daemon.url("data/%d" % n)), cwd=tmp_path) for n in range(count)]
    least = free(disk)
    while any(r.proc.poll() is None for r in clients):
        least = min(least, free(disk))
    codes = [r.wait() for r in clients]
    least = min(least, free(disk))
    print("codes %s, at least %.2f MiB were free" % (codes, least / MIB))
    # What the file system takes for its own lists is no data of a file.
    assert least > 8 * MIB - (256 << 10), least
    assert set(codes) <= {0, 11, 23} and set(codes) != {0}, codes
    for r, code in zip(clients, codes):
        assert code == 0 or FREE in r.errors(), r.errors()
    stored = [p for p in disk.rglob("*") if p.is_file()]
    # Large files that do not fit together may all fail.
    assert (stored or size > MIB) and all(p.read_bytes() == pattern(size, seed=int(p.name)) for p in stored)
    wait_until(lambda: daemon.children() == [])
    assert leftovers(disk) == []


@NEEDS_ROOT
@pytest.mark.may_skip("any", MAY_NOT_MOUNT)
def test_nothing_is_made_below_the_floor(bench, tmp_path, disk):
    """No directory, empty file or link, either. To delete and to read is still possible."""
    (disk / "fill").write_bytes(bytes(free(disk) - 7 * MIB))
    daemon = Configured(bench, tmp_path, DATA + "min free = 8M\ndelete = yes\n")
    (tmp_path / "d" / "sub").mkdir(parents=True)
    (tmp_path / "d" / "empty").write_bytes(b"")
    (tmp_path / "d" / "link").symlink_to("empty")
    r = daemon.copy("-r", "d", daemon.url("data/"))
    assert r.code in (11, 23) and FREE in r.errors(), r.errors()
    assert [p.name for p in disk.iterdir() if p.name != "lost+found"] == ["fill"]
    assert daemon.copy(daemon.url("data/fill"), "out").code == 0


@pytest.mark.parametrize("most, printed", [("300k", "300 KiB"), ("1000", "1000 bytes"), ("2G", "2 GiB"), ("1M", "1 MiB")])
def test_limit_is_printed_as_it_was_given(bench, tmp_path, most, printed):
    daemon = Configured(bench, tmp_path, DATA + "max bytes = %s\n" % most)
    with open(tmp_path / "more", "wb") as f:
        f.truncate(3 << 30)
    r = daemon.copy("--no-sparse", "more", daemon.url("data/"))
    assert r.code == 11 and "may store at most %s here" % printed in r.errors(), r.errors()


def test_max_bytes(bench, tmp_path):
    """Of each session; what was there does not count."""
    daemon = Configured(bench, tmp_path, DATA + "max bytes = 2M\n")
    text = "a session may store at most 2 MiB here (max bytes of rdcpd)"
    (tmp_path / "most").write_bytes(pattern(2 * MIB))
    (tmp_path / "more").write_bytes(pattern(2 * MIB + 1))
    for _ in range(2):
        r = daemon.copy("-t", "most", daemon.url("data/"))
        assert r.code == 0, r.errors()
    assert daemon.copy("--ignore-times", "most", daemon.url("data/again")).code == 0
    r = daemon.copy("more", daemon.url("data/most"))
    assert r.code == 11 and text in r.errors(), r.errors()
    assert (tmp_path / "data" / "most").read_bytes() == pattern(2 * MIB)
    assert leftovers(tmp_path / "data") == []


def test_max_bytes_of_a_tree_and_a_stream(bench, tmp_path):
    daemon = Configured(bench, tmp_path, DATA + "max bytes = 1M\n")
    text = "a session may store at most 1 MiB here (max bytes of rdcpd)"
    (tmp_path / "tree").mkdir()
    for n in range(30):
        (tmp_path / "tree" / str(n)).write_bytes(pattern(100_000, seed=n))
    r = daemon.copy("-r", "tree", daemon.url("data/"))
    assert r.code == 23 and text in r.errors(), r.errors()
    stored = sum(p.stat().st_size for p in (tmp_path / "data" / "tree").iterdir())
    assert 0 < stored <= MIB and leftovers(tmp_path / "data") == []
    os.mkfifo(tmp_path / "stream")
    run = bench.start(daemon.argv("stream", daemon.url("data/s")), cwd=tmp_path)
    with open(tmp_path / "stream", "wb", buffering=0) as pipe:
        try:
            pipe.write(pattern(3 * MIB))
        except BrokenPipeError:
            pass
    assert run.wait() == 11 and text in run.errors(), run.errors()
    assert not (tmp_path / "data" / "s").exists()
