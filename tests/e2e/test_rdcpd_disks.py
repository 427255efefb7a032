# SPDX-License-Identifier: Apache-2.0
"""A module whose disk is full or read only, and a daemon that restarts: clients report it, keep the old files, and go on
later where they stopped."""

import json
import os
import shutil
import signal
import subprocess

import pytest

from daemons import HERE, Daemon
from file_systems import EXT4, mounted, mounted_image
from hosts import leftovers, pattern, program, wait_until

pytestmark = pytest.mark.needs("tcp", why="over TCP; test_rdcpd_rdma.py has what an adapter can change")
BIG = 24 << 20
MAY_NOT_MOUNT = "to mount takes root, and a container that may"
NEEDS_ROOT = pytest.mark.needs("root", why="it takes root to mount")


@pytest.fixture(params=["tmpfs", "ext4"])
def small_disk(request, tmp_path):
    """The module rw has room for a few MiB, and an old file."""
    at = tmp_path / "rw"
    with mounted(at, "-t", "tmpfs", "-o", "size=6m", "tmpfs") if request.param == "tmpfs" else \
            mounted_image(tmp_path / "image", 12 << 20, at, EXT4):
        at.chmod(0o777)
        (at / "old").write_bytes(b"old")
        yield at


@NEEDS_ROOT
@pytest.mark.may_skip("any", MAY_NOT_MOUNT)
def test_full_disk(bench, tmp_path, small_disk):
    """Of two clients one fills the disk. It fails with the reason; the old file stays, and a small one fits."""
    daemon = Daemon(bench, tmp_path)
    (tmp_path / "big").write_bytes(pattern(BIG))
    (tmp_path / "small").write_bytes(b"x")
    first = bench.start(daemon.argv("big", daemon.url("rw/old")), cwd=tmp_path)
    assert first.wait() == 11 and "No space left on device" in first.errors(), first.errors()
    wait_until(lambda: daemon.children() == [])
    assert (small_disk / "old").read_bytes() == b"old" and leftovers(small_disk) == []
    assert daemon.copy("small", daemon.url("rw/")).code == 0
    assert (small_disk / "small").read_bytes() == b"x"


@NEEDS_ROOT
@pytest.mark.may_skip("any", MAY_NOT_MOUNT)
def test_many_clients_on_a_full_disk(bench, tmp_path, small_disk):
    """Each gets its file as a whole, or fails with the reason."""
    daemon = Daemon(bench, tmp_path)
    (tmp_path / "in").write_bytes(pattern(1 << 20))
    clients = [bench.start(daemon.argv("in", daemon.url("rw/%d" % n)), cwd=tmp_path) for n in range(16)]
    codes = [r.wait() for r in clients]
    assert set(codes) == {0, 11}, codes
    for n, code in enumerate(codes):
        assert (small_disk / str(n)).exists() == (code == 0)
        assert code or (small_disk / str(n)).read_bytes() == pattern(1 << 20)
        assert code == 0 or "No space left on device" in clients[n].errors()
    wait_until(lambda: daemon.children() == [])
    assert leftovers(small_disk) == []


def makes_quotas(tmp_path):
    """Mounts an ext4 with a quota of 4 MiB for the user 65534 on the module; returns why not."""
    if not shutil.which("setquota"):
        return "no setquota"
    r = subprocess.run(["setquota", "-u", "65534", "4096", "4096", "0", "0", tmp_path / "rw"], capture_output=True, text=True)
    return r.stderr.strip() if r.returncode else None


@NEEDS_ROOT
@pytest.mark.may_skip("any", MAY_NOT_MOUNT + "; a quota takes a kernel and programs for that")
def test_quota(bench, tmp_path):
    with mounted_image(tmp_path / "image", 64 << 20, tmp_path / "rw", ("mkfs.ext4", "-q", "-F", "-O", "quota")):
        if why := makes_quotas(tmp_path):
            pytest.skip("no quota here: " + why)
        (tmp_path / "rw").chmod(0o777)
        key = tmp_path / "key"
        assert bench.run([program("rdcpd"), "--make-key", key]).code == 0
        os.chown(key, 65534, 65534)
        tmp_path.chmod(0o755)
        daemon = Daemon(bench, tmp_path, become=["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"])
        os.chown(key, 0, 0)
        (tmp_path / "in").write_bytes(pattern(BIG))
        r = daemon.copy("in", daemon.url("rw/"))
        assert r.code == 11 and "Disk quota exceeded" in r.errors(), r.errors()
        assert "in" not in os.listdir(tmp_path / "rw") and leftovers(tmp_path / "rw") == []


@NEEDS_ROOT
@pytest.mark.may_skip("any", MAY_NOT_MOUNT)
def test_read_only_file_system(bench, tmp_path):
    with mounted(tmp_path / "rw", "-t", "tmpfs", "-o", "size=1m", "tmpfs"):
        (tmp_path / "rw" / "old").write_bytes(b"old")
        subprocess.run(["mount", "-o", "remount,ro", tmp_path / "rw"], check=True)
        daemon = Daemon.__new__(Daemon)
        daemon.bench, daemon.tmp, daemon.key = bench, tmp_path, tmp_path / "key"
        assert bench.run([program("rdcpd"), "--make-key", daemon.key]).code == 0
        daemon.run = bench.start([program("rdcpd"), "--key-file", daemon.key, "--port=0", "--address", HERE,
                                  "--module=rw=%s:rw" % (tmp_path / "rw")])
        daemon.port = int(daemon.run.expect("listening on").rsplit(":", 1)[1])
        (tmp_path / "in").write_bytes(b"new")
        r = daemon.copy("in", daemon.url("rw/old"))
        assert r.code == 11 and "Read-only file system" in r.errors(), r.errors()
        r = daemon.copy(daemon.url("rw/old"), "out")
        assert r.code == 0 and (tmp_path / "out").read_bytes() == b"old", r.errors()


@pytest.mark.parametrize("signo", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("way", ["push", "pull"])
def test_clients_of_a_restarted_daemon_go_on(bench, tmp_path, signo, way):
    """Their sessions end with the daemon. When it is there again, on the same port, they send only what was missing."""
    daemon = Daemon(bench, tmp_path)
    for top in (tmp_path, tmp_path / "ro"):
        (top / "in").write_bytes(pattern(BIG))
    target = tmp_path / "rw" if way == "push" else tmp_path / "here"
    target.mkdir(exist_ok=True)
    # What is in a directory that anybody may write to is not trusted.
    target.chmod(0o755)
    words = ["in", daemon.url("rw/")] if way == "push" else [daemon.url("ro/in"), "here/"]
    client = bench.start(daemon.argv("-t", "--timeout=5", "--bwlimit=16M", *words), cwd=tmp_path)
    wait_until(lambda: leftovers(target) and client.proc.poll() is None)
    wait_until(lambda: any(written(p) > BIG // 4 for p in target.iterdir()))
    os.kill(daemon.run.proc.pid, signo)
    assert client.wait() in (20, 30, 35, 44), client.errors()
    assert not (target / "in").exists()
    wait_until(lambda: daemon.children() == [])
    Daemon(bench, tmp_path, "--port=%d" % daemon.port)
    target.chmod(0o755)
    r = daemon.copy("-t", "--json", *words)
    assert r.code == 0, r.errors()
    assert (target / "in").read_bytes() == pattern(BIG)
    summary = json.loads(r.out.splitlines()[-1])
    print("sent %d of %d bytes" % (summary["sent"], BIG))
    assert summary["sent"] < BIG * 0.9, summary
    assert leftovers(target) == []


def written(path):
    """How much data a file has, which may have its final size from the beginning."""
    fd = os.open(path, os.O_RDONLY)
    try:
        at, total = 0, 0
        while True:
            try:
                at = os.lseek(fd, at, os.SEEK_DATA)
            except OSError:
                return total
            end = os.lseek(fd, at, os.SEEK_HOLE)
            total, at = total + end - at, end
    finally:
        os.close(fd)


def test_modes_and_links_without_procfs(daemon, tmp_path):
    """A module has no /proc, through which modes of descriptors were set that only name a file."""
    for top, mode in ((tmp_path / "from", 0o750), (tmp_path / "rw" / "to", 0o755)):
        (top / "d").mkdir(parents=True)
        (top / "d" / "f").write_bytes(b"same")
        (top / "d" / "f").chmod(mode & 0o666)
        os.utime(top / "d" / "f", (10 ** 9, 10 ** 9))
        (top / "d").chmod(mode)
        (top / "link").symlink_to("d")
    r = daemon.copy("-a", "from/", daemon.url("rw/to"))
    assert r.code == 0, r.errors()
    assert (tmp_path / "rw" / "to" / "d").stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "rw" / "to" / "d" / "f").stat().st_mode & 0o777 == 0o640
    r = daemon.copy("-a", "--xattrs", "--acls", daemon.url("rw/to/"), "back")
    assert r.code == 0, r.errors()
    assert (tmp_path / "back" / "link").is_symlink()


def test_attributes_of_a_fifo_without_procfs(daemon, tmp_path):
    """It can have none but an ACL."""
    (tmp_path / "rw" / "d").mkdir()
    os.mkfifo(tmp_path / "rw" / "d" / "fifo")
    r = daemon.copy("-a", "--xattrs", daemon.url("rw/d/"), "to")
    assert r.code == 0, r.errors()
    assert (tmp_path / "to" / "fifo").is_fifo()
    r = daemon.copy("-a", "--acls", daemon.url("rw/d/"), "with")
    assert r.code == 23 and "list extended attributes of d/fifo: /proc is not mounted" in r.errors(), r.errors()
