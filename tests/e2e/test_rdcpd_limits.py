# SPDX-License-Identifier: Apache-2.0
"""What bounds the clients of a rdcpd: sessions in all, of a user and of a module, and their memory."""

import contextlib
import os
import resource
import socket

import pytest

from daemons import HERE, Configured
from hosts import SLOW, pattern, program, share, wait_until

import peer

pytestmark = pytest.mark.needs("tcp", why="over TCP; test_rdcpd_rdma.py has what an adapter can change")
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
    r = daemon.copy_at_once(*words, key=key)
    assert r.code == 35 and why in r.errors() and len(r.errors().splitlines()) == 1, r.errors()
    assert "rejected" in daemon.run.expect(why)


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


def key_of(bench, tmp_path, name):
    maker = Configured.__new__(Configured)
    maker.bench, maker.tmp = bench, tmp_path
    return maker.user(name)


def test_sessions_of_a_user(bench, tmp_path):
    keys = {name: key_of(bench, tmp_path, name) for name in ("alice", "bob")}
    daemon = Configured(bench, tmp_path, DATA, keys="secrets file = {tmp}/secrets\nmax sessions per user = 2\n")
    (tmp_path / "in").write_bytes(b"data")
    runs = holders(daemon, tmp_path, 2, key=keys["alice"], user="alice") + holders(daemon, tmp_path, 1, key=keys["bob"], user="bob")
    busy(daemon, 3)
    alice = daemon.url("data/").replace("//", "//alice@")
    refused(daemon, "user alice has 2 sessions already (max sessions per user)", "in", alice, key=keys["alice"])
    assert daemon.copy("in", alice.replace("alice", "bob"), key=keys["bob"]).code == 0
    assert daemon.copy("in", daemon.url("data/")).code == 0
    release(runs, daemon)



def test_clients_without_a_session_count(bench, tmp_path):
    """Who names a module that is not there has two processes for a while, like others."""
    key = key_of(bench, tmp_path, "alice")
    daemon = Configured(bench, tmp_path, DATA, keys="secrets file = {tmp}/secrets\nmax sessions per user = 2\n")
    (tmp_path / "in").write_bytes(b"data")
    secret = bytes.fromhex(key.read_text().strip().rsplit(":", 1)[1])
    guests = [peer.Guest(daemon.port, secret, peer.SOURCE, module="nosuch", identity=b"sluice:conductor:alice") for _ in range(2)]
    for guest in guests:
        guest.greeting()
    alice = daemon.url("data/").replace("//", "//alice@")
    refused(daemon, "user alice has 2 sessions already (max sessions per user)", "in", alice, key=key)
    for guest in guests:
        guest.hang_up()
    assert daemon.copy("in", alice, key=key).code == 0


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


# ---- the daemon's own limits -----------------------------------------------------------------


@contextlib.contextmanager
def limited(daemon, what, value):
    """The daemon, and the processes of later sessions, have this limit within the with statement."""
    pid, kind = daemon.run.proc.pid, getattr(resource, "RLIMIT_" + what)
    old = resource.prlimit(pid, kind)
    resource.prlimit(pid, kind, (value, old[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, kind, old)


def address_space(pid):
    with open("/proc/%d/statm" % pid) as f:
        return int(f.read().split()[0]) * resource.getpagesize()


def finish(runs):
    """The sessions of holders() end well."""
    for run in runs:
        os.close(run.pipe)
    assert [run.wait(60) for run in runs] == [0] * len(runs), [run.errors() for run in runs]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("what, values", [
    ("NOFILE", [*range(3, 40)]), ("AS", [n << 20 for n in (0, 1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 100, 150, 200)]),
    ("FSIZE", [0, 1, 4096, MIB]), ("MEMLOCK", [0, 4096]), ("STACK", [64 << 10, 128 << 10])])
def test_short_daemon_recovers(bench, tmp_path, what, values):
    """It serves a client, or the client gets the reason. A session that runs is not disturbed. Afterwards all is as before."""
    daemon = Configured(bench, tmp_path, DATA)
    data = pattern(3 * MIB)
    (tmp_path / "in").write_bytes(data)
    runs = holders(daemon, tmp_path, 1)
    busy(daemon, 1)
    for value in share(values, 4):
        least = address_space(daemon.run.proc.pid) if what == "AS" else 0
        with limited(daemon, what, least + value):
            r = daemon.copy("--connect-timeout=%d" % (2 * SLOW), "in", daemon.url("data/%d" % value))
        assert r.code in (0, 5, 10, 11, 22, 30, 35, 44), (value, r.code, r.errors())
        assert not r.code or "rdcp: " in r.errors(), (value, r.code)
        assert daemon.run.proc.poll() is None, (value, daemon.run.errors())
        r = daemon.copy("in", daemon.url("data/after"))
        assert r.code == 0 and (tmp_path / "data" / "after").read_bytes() == data, (value, r.errors())
        target = tmp_path / "data" / str(value)
        assert not target.exists() or target.read_bytes() == data, value
    finish(runs)
    wait_until(lambda: daemon.children() == [])


def test_client_without_a_process_gets_the_reason(bench, tmp_path):
    """All descriptors of the daemon are in use. The sessions that have them go on."""
    daemon = Configured(bench, tmp_path, DATA)
    (tmp_path / "in").write_bytes(b"data")
    runs = holders(daemon, tmp_path, 2)
    busy(daemon, 2)
    with limited(daemon, "NOFILE", daemon.descriptors() + 1):
        r = daemon.copy_at_once("in", daemon.url("data/"))
        assert r.code == 35 and "takes no new session now" in r.errors(), (r.code, r.errors())
        daemon.run.expect("serve a client: Too many open files")
        waits = daemon.bench.start(daemon.argv("--connect-timeout=%d" % (60 * SLOW), "in", daemon.url("data/")), cwd=tmp_path)
    assert waits.wait(60) == 0, waits.errors()
    finish(runs)


def test_session_without_an_end_gets_the_reason(bench, tmp_path):
    """The process of a client has no descriptors for pipes. Their number depends on what is open, so several are tried."""
    daemon = Configured(bench, tmp_path, DATA)
    (tmp_path / "in").write_bytes(b"data")
    runs, idle = [], daemon.descriptors()
    for more in range(2, 6):
        with limited(daemon, "NOFILE", idle + more):
            runs.append(daemon.copy_at_once("in", daemon.url("data/")))
        wait_until(lambda: daemon.descriptors() == idle)
    assert any(r.code == 5 and "start an end: Too many open files" in r.errors() for r in runs), [(r.code, r.errors()) for r in runs]
    assert daemon.copy("in", daemon.url("data/")).code == 0


def test_silent_connections_take_all_descriptors(bench, tmp_path):
    daemon = Configured(bench, tmp_path, DATA)
    (tmp_path / "in").write_bytes(b"data")
    # It serves, so it has seen the limit that it began with.
    assert daemon.copy("in", daemon.url("data/")).code == 0
    with contextlib.ExitStack() as stack, limited(daemon, "NOFILE", 60):
        for _ in range(120):
            stack.enter_context(socket.create_connection((HERE, daemon.port)))
        wait_until(lambda: daemon.descriptors() == 60)
        r = daemon.copy("--connect-timeout=%d" % (30 * SLOW), "in", daemon.url("data/"))
        assert r.code == 0, r.errors()
