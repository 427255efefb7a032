# SPDX-License-Identifier: Apache-2.0
"""Defects of the daemons that rdcpd replaces: a named test for each that could recur here. The numbers are those of the
list of these defects."""

import os
import signal
import socket
import time

import pytest

from daemons import HERE, Daemon, private_memory
from faulty import lying
from file_systems import mounted
from hosts import SLOW, leftovers, pattern, program, wait_until
from processes import descendants

pytestmark = pytest.mark.needs("tcp", why="over TCP; test_rdcpd_rdma.py has what an adapter can change")
BIG = 8 << 20
MAY_NOT_MOUNT = "to mount takes root, and a container that may"


# ---- SD13: the source is removed although the transfer failed --------------------------------------------------------------

def test_sd13_source_of_more_than_a_thousand_blocks_is_removed_when_all_is_stored(daemon, tmp_path):
    (tmp_path / "in").write_bytes(pattern(BIG))
    r = daemon.copy("--remove-source-files", "--block-size=4k", "--lanes=1", "in", daemon.url("rw/"))
    assert r.code == 0, r.errors()
    assert not (tmp_path / "in").exists() and (tmp_path / "rw" / "in").read_bytes() == pattern(BIG)


@pytest.mark.needs("root", why="it takes root to mount")
@pytest.mark.may_skip("any", MAY_NOT_MOUNT)
def test_sd13_source_stays_when_the_disk_is_full(bench, tmp_path):
    (tmp_path / "in").write_bytes(pattern(BIG))
    with mounted(tmp_path / "rw", "-t", "tmpfs", "-o", "size=2m,mode=777", "tmpfs"):
        daemon = Daemon(bench, tmp_path)
        r = daemon.copy("--remove-source-files", "in", daemon.url("rw/"))
        assert r.code == 11 and "No space left" in r.errors(), r.errors()
        assert os.listdir(tmp_path / "rw") == []
    assert (tmp_path / "in").read_bytes() == pattern(BIG)


@pytest.mark.parametrize("victim", ["end", "parent"])
def test_sd13_source_stays_when_the_daemon_dies(bench, daemon, tmp_path, victim):
    (tmp_path / "in").write_bytes(pattern(BIG))
    client = bench.start(daemon.argv("--remove-source-files", "--bwlimit=4M", "--timeout=5", "in", daemon.url("rw/")), cwd=tmp_path)
    wait_until(lambda: leftovers(tmp_path / "rw"))
    os.kill(daemon.ends()[0] if victim == "end" else daemon.run.proc.pid, signal.SIGKILL)
    assert client.wait() in (30, 35, 44), client.errors()
    assert (tmp_path / "in").read_bytes() == pattern(BIG) and not (tmp_path / "rw" / "in").exists()


# ---- SD14: no authentication, any path, writes that are not checked ----------------------------------------------------------

def test_sd14_nothing_is_written_without_the_key(bench, daemon, tmp_path):
    (tmp_path / "in").write_bytes(b"new")
    (tmp_path / "rw" / "in").write_bytes(b"old")
    other = tmp_path / "other"
    assert bench.run([program("rdcpd"), "--make-key", other]).code == 0
    before = (tmp_path / "rw" / "in").stat()
    assert daemon.copy("in", daemon.url("rw/"), key=other).code == 40
    after = (tmp_path / "rw" / "in").stat()
    assert (before.st_ino, before.st_mtime_ns, before.st_size) == (after.st_ino, after.st_mtime_ns, after.st_size)
    assert os.listdir(tmp_path / "rw") == ["in"]


def test_sd14_a_path_makes_no_directories_elsewhere(daemon, tmp_path):
    """tests/e2e/hostile/test_hostile_daemon.py has the tricks."""
    (tmp_path / "in").write_bytes(b"x")
    before = sorted(os.listdir(tmp_path))
    for path in ("../new/f", "a/../../new/f"):
        assert daemon.copy("--mkpath", "in", daemon.url("rw/" + path)).code == 1
    assert sorted(os.listdir(tmp_path)) == before and os.listdir(tmp_path / "rw") == []


@pytest.mark.needs("root", why="it takes root to mount")
@pytest.mark.may_skip("any", MAY_NOT_MOUNT)
def test_sd14_failed_write_is_reported(bench, tmp_path):
    (tmp_path / "in").write_bytes(pattern(BIG))
    with mounted(tmp_path / "rw", "-t", "tmpfs", "-o", "size=2m,mode=777", "tmpfs"):
        (tmp_path / "rw" / "in").write_bytes(b"old")
        daemon = Daemon(bench, tmp_path)
        r = daemon.copy("in", daemon.url("rw/"))
        assert r.code == 11 and "No space left" in r.errors(), r.errors()
        assert (tmp_path / "rw" / "in").read_bytes() == b"old" and os.listdir(tmp_path / "rw") == ["in"]


# ---- SD15: silent connections take the memory -----------------------------------------------------------------------------------

def test_sd15_silent_connections_take_no_buffers(daemon, tmp_path):
    """Eight of them took all of 8 GB. test_rdcpd_crowd.py has a thousand."""
    (tmp_path / "in").write_bytes(b"x")
    before = private_memory(daemon.run.proc.pid)
    socks = [socket.create_connection((HERE, daemon.port)) for _ in range(64)]
    r = daemon.copy("in", daemon.url("rw/"))
    assert r.code == 0, r.errors()
    assert private_memory(daemon.run.proc.pid) < before + (1 << 20)
    for sock in socks:
        sock.settimeout(10 * SLOW)
        assert sock.recv(1) == b""


# ---- SD18: what others can guess ---------------------------------------------------------------------------------------------------

def test_sd18_ids_of_sessions_cannot_be_guessed(daemon, tmp_path):
    """The id that a lane names is random, as are the keys of the lanes."""
    from peer import SINK, Guest
    ids = []
    for _ in range(8):
        e = Guest(daemon.port, daemon.secret(), SINK, target="f").orders()
        e.hello()
        ids.append(e.offered()["session"])
        e.close()
    for shift in (0, 16, 32, 48):
        assert len({i >> shift & 0xffff for i in ids}) > 6, ids


# ---- SD19: a local completion is taken for success; nothing is compared ---------------------------------------------------------------

def test_sd19_damage_on_the_way_is_found(bench, daemon, tmp_path):
    """The source sends a damaged block once, and again and again."""
    (tmp_path / "in").write_bytes(pattern(BIG))
    argv = daemon.argv("-v", "--lanes=1", "in", daemon.url("rw/"))
    r = bench.run(argv, cwd=tmp_path, env={"SLUICE_FAULT": "damage:lane=0,block=3"})
    assert r.code == 0, r.errors()
    assert (tmp_path / "rw" / "in").read_bytes() == pattern(BIG)
    (tmp_path / "rw" / "in").write_bytes(b"old")
    r = bench.run(argv, cwd=tmp_path, env={"SLUICE_FAULT": "damage:lane=0,block=3,times=9"})
    assert r.code == 41, r.errors()
    assert (tmp_path / "rw" / "in").read_bytes() == b"old"


def test_sd19_success_means_that_the_daemon_stored_it(bench, tmp_path):
    """A write of the daemon stores a wrong bit: --verify finds it."""
    (tmp_path / "rw").mkdir()
    # The end sees only the module.
    daemon = Daemon(bench, tmp_path, env={**lying(tmp_path / "rw", 2), "LIE_UNDER": "/", "LIE_MARK": "/lied"})
    (tmp_path / "in").write_bytes(pattern(BIG))
    r = daemon.copy("--verify", "in", daemon.url("rw/"))
    assert (tmp_path / "rw" / "lied").exists() and r.code == 41, r.errors()
    assert not (tmp_path / "rw" / "in").exists()


# ---- SD20: clients share memory ---------------------------------------------------------------------------------------------------------

def shared_mappings(pid):
    """What a process shares writable with others: {inode: bytes}."""
    with open("/proc/%d/maps" % pid) as f:
        fields = [line.split() for line in f]
    return {m[4]: int(m[0].split("-")[1], 16) - int(m[0].split("-")[0], 16) for m in fields if m[1].startswith("rw") and m[1][3] == "s"}


def test_sd20_sessions_share_no_memory(bench, daemon, tmp_path):
    (tmp_path / "in").write_bytes(pattern(BIG))
    clients = [bench.start(daemon.argv("--bwlimit=2M", "in", daemon.url("rw/%d" % n)), cwd=tmp_path) for n in range(2)]
    wait_until(lambda: len(leftovers(tmp_path / "rw")) == 2)
    pids = descendants(daemon.run.proc.pid)
    assert len(pids) == 4
    assert shared_mappings(daemon.run.proc.pid) == {}
    # The two processes of one session share a page, for the log; no session shares it with another one.
    shared = [shared_mappings(pid) for pid in pids]
    assert all(list(m.values()) == [4096] for m in shared), shared
    assert sorted([inode for m in shared for inode in m].count(next(iter(m))) for m in shared) == [2, 2, 2, 2]
    for client in clients:
        client.kill()
