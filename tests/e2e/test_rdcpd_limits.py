# SPDX-License-Identifier: Apache-2.0
"""What bounds the clients of a rdcpd: sessions in all, of a user and of a module, and their memory."""

import os

import pytest

from daemons import Configured
from hosts import SLOW, pattern, program, wait_until

pytestmark = pytest.mark.needs("tcp", why="rdcpd moves data over TCP")
MIB = 1 << 20
DATA = "[data]\npath = {tmp}/data\nread only = no\n"


def holders(daemon, tmp_path, count, *options, module="data", key=None, user=""):
    """Clients whose sessions run until they are stopped: each copies what somebody writes into a pipe."""
    runs = []
    for n in range(count):
        fifo = tmp_path / ("pipe-%s-%s%d" % (module, user, n))
        os.mkfifo(fifo)
        url = daemon.url("%s/%s" % (module, fifo.name))
        if user:
            url = url.replace("//", "//%s@" % user)
        run = daemon.bench.start(daemon.argv(*options, fifo, url, key=key), cwd=tmp_path)
        run.pipe = os.open(fifo, os.O_RDWR)
        os.write(run.pipe, b"x")
        runs.append(run)
    return runs


def busy(daemon, count):
    """This many sessions run: each has two processes, whatever else a client of the test has started."""
    wait_until(lambda: len(daemon.children()) == 2 * count)


def release(runs, daemon):
    for run in runs:
        run.kill()
        os.close(run.pipe)
    wait_until(lambda: daemon.children() == [])


def refused(daemon, why, *words, key=None):
    """A client that does not wait gets one sentence, and the daemon logs one line."""
    r = daemon.copy("--connect-timeout=0.2", *words, key=key)
    assert r.code == 35 and why in r.errors() and len(r.errors().splitlines()) == 1, r.errors()
    line = daemon.run.expect("rejected")
    assert why in line, line


def test_sessions_in_all(bench, tmp_path):
    """The third client of two is refused; when one has left, there is room. A list of modules counts, too."""
    daemon = Configured(bench, tmp_path, DATA, keys="max sessions = 2\n")
    (tmp_path / "in").write_bytes(b"data")
    runs = holders(daemon, tmp_path, 2)
    busy(daemon, 2)
    refused(daemon, "rdcpd serves 2 sessions already (max sessions)", "in", daemon.url("data/"))
    refused(daemon, "rdcpd serves 2 sessions already (max sessions)", daemon.url(""))
    release(runs, daemon)
    r = daemon.copy("in", daemon.url("data/"))
    assert r.code == 0, r.errors()


def test_a_client_waits_for_room(bench, tmp_path):
    """As long as --connect-timeout says."""
    daemon = Configured(bench, tmp_path, DATA + "max connections = 2\n")
    (tmp_path / "in").write_bytes(b"data")
    runs = holders(daemon, tmp_path, 2)
    busy(daemon, 2)
    waits = [daemon.bench.start(daemon.argv("--connect-timeout=%d" % (60 * SLOW), "in", daemon.url("data/%d" % n)), cwd=tmp_path)
             for n in range(3)]
    for _ in waits:
        assert "module data has 2 sessions already (max connections)" in daemon.run.expect("rejected")
    assert [r.proc.poll() for r in waits] == [None] * 3
    for run in runs:
        run.kill()
        os.close(run.pipe)
    assert [r.wait(60) for r in waits] == [0, 0, 0], [r.errors() for r in waits]
    assert all((tmp_path / "data" / str(n)).read_bytes() == b"data" for n in range(3))


def test_connections_of_a_module(bench, tmp_path):
    """Another module has room."""
    daemon = Configured(bench, tmp_path, DATA + "max connections = 3\n[other]\npath = {tmp}/other\nread only = no\n")
    (tmp_path / "in").write_bytes(b"data")
    runs = holders(daemon, tmp_path, 3)
    busy(daemon, 3)
    refused(daemon, "module data has 3 sessions already (max connections)", "in", daemon.url("data/"))
    refused(daemon, "module data has 3 sessions already (max connections)", daemon.url("data/"))
    assert daemon.copy("in", daemon.url("other/")).code == 0
    assert daemon.copy(daemon.url("")).code == 0
    release(runs, daemon)


def test_sessions_of_a_user(bench, tmp_path):
    keys = {}
    maker = Configured.__new__(Configured)
    maker.bench, maker.tmp = bench, tmp_path
    for name in ("alice", "bob"):
        keys[name] = maker.user(name)
    daemon = Configured(bench, tmp_path, DATA, keys="secrets file = {tmp}/secrets\nmax sessions per user = 2\n")
    (tmp_path / "in").write_bytes(b"data")
    runs = holders(daemon, tmp_path, 2, key=keys["alice"], user="alice") + holders(daemon, tmp_path, 1, key=keys["bob"], user="bob")
    busy(daemon, 3)
    alice = daemon.url("data/").replace("//", "//alice@")
    refused(daemon, "user alice has 2 sessions already (max sessions per user)", "in", alice, key=keys["alice"])
    assert daemon.copy("in", alice.replace("alice", "bob"), key=keys["bob"]).code == 0
    assert daemon.copy("in", daemon.url("data/")).code == 0
    release(runs, daemon)


def test_memory_is_shared(bench, tmp_path):
    """With 4 MiB four clients get 1 MiB each, though they want more. A fifth one is refused until one leaves."""
    daemon = Configured(bench, tmp_path, DATA, "--memory=4M", keys="max sessions = 8\nmemory = 1G\n")
    (tmp_path / "in").write_bytes(pattern(3 * MIB))
    runs = holders(daemon, tmp_path, 4)
    busy(daemon, 4)
    refused(daemon, "the sessions of rdcpd have all of its memory (4 MiB, memory)", "in", daemon.url("data/"))
    assert daemon.copy(daemon.url("")).code == 0
    runs[0].kill()
    os.close(runs[0].pipe)
    busy(daemon, 3)
    r = daemon.copy("in", daemon.url("data/"))
    assert r.code == 0 and (tmp_path / "data" / "in").read_bytes() == pattern(3 * MIB), r.errors()
    release(runs[1:], daemon)


def test_bad_limits(bench, tmp_path):
    daemon = Configured(bench, tmp_path, DATA)
    daemon.reload(DATA + "max connections = 0\n", head="max sessions = 1000\nmemory = 4k\nmax sessions per user = x\nkey file = {tmp}/key\n")
    daemon.run.expect("rdcpd.conf:1: 1000 is no number of sessions: expected 1 to 256")
    daemon.run.expect("rdcpd.conf:2: memory: a session needs 1 MiB")
    daemon.run.expect("rdcpd.conf:3: x is no number of sessions")
    daemon.run.expect("rdcpd.conf:8: 0 is no number of sessions")
    r = bench.run([program("rdcpd"), "--key-file", daemon.key, "--memory=1k", "--check-config", "--module=d=%s" % tmp_path])
    assert r.code == 1 and "memory: a session needs 1 MiB" in r.errors(), r.errors()
