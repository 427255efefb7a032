# SPDX-License-Identifier: Apache-2.0
"""A session of a rdcpd in which nothing moves ends after a time, although its client is there and answers."""

import os
import signal
import threading
import time

import pytest

from daemons import Configured
from faulty import slow_removal
from hosts import COUNT, SLOW, leftovers, pattern, wait_until

from peer import SINK, Guest, dir_record, small_records

pytestmark = pytest.mark.needs("tcp", why="over TCP; test_rdcpd_rdma.py has what an adapter can change")
DATA = "[data]\npath = {tmp}/data\nread only = no\n"
MIB = 1 << 20


def served(bench, tmp_path, seconds):
    return Configured(bench, tmp_path, DATA, keys="timeout = %d\nmax sessions = 3\n" % seconds)


def start_push(daemon, tmp_path, name, *options):
    """A client whose source is a pipe that nobody fills."""
    os.mkfifo(tmp_path / name)
    run = daemon.bench.start(daemon.argv(*options, tmp_path / name, daemon.url("data/" + name)), cwd=tmp_path)
    run.pipe = os.open(tmp_path / name, os.O_RDWR)
    return run


def test_idle_pushes_end(bench, tmp_path):
    """Three clients, with heartbeats: each gets the reason, and there is room again. One that moves a byte now and then
    goes on."""
    daemon = served(bench, tmp_path, 3)
    begin = time.monotonic()
    idle = [start_push(daemon, tmp_path, "idle%d" % n, "--timeout=2") for n in range(2)]
    lively = start_push(daemon, tmp_path, "lively")
    for run in idle:
        os.write(run.pipe, b"some")
    ended = [None] * 2
    while None in ended:
        os.write(lively.pipe, b"x")
        ended = [r.proc.poll() for r in idle]
        time.sleep(0.2)
        assert time.monotonic() < begin + (3 + 2) * SLOW + 10
    assert time.monotonic() > begin + 3
    assert ended == [30, 30], [r.errors() for r in idle]
    for run in idle:
        assert "nothing was copied for 3 s (timeout of rdcpd)" in run.errors(), run.errors()
        assert "nothing was copied for 3 s" in daemon.run.expect("exit code 30")
    assert lively.proc.poll() is None, lively.errors()
    wait_until(lambda: len(daemon.children()) == 2)
    (tmp_path / "in").write_bytes(b"data")
    assert daemon.copy("in", daemon.url("data/")).code == 0
    lively.kill()
    wait_until(lambda: daemon.children() == [])
    for run in idle + [lively]:
        os.close(run.pipe)
    assert leftovers(tmp_path / "data") == []


def test_stalled_pull_ends(bench, tmp_path):
    """The client takes nothing more: it writes into a pipe that nobody reads."""
    daemon = served(bench, tmp_path, 2)
    (tmp_path / "data" / "big").write_bytes(pattern(64 * MIB))
    os.mkfifo(tmp_path / "out")
    pipe = os.open(tmp_path / "out", os.O_RDWR)
    run = bench.start(daemon.argv(daemon.url("data/big"), "out"), cwd=tmp_path)
    begin = time.monotonic()
    assert run.wait((2 + 3) * SLOW + 20) == 30, run.errors()
    assert "nothing was copied for 2 s (timeout of rdcpd)" in run.errors(), run.errors()
    print("ended after %.1f s" % (time.monotonic() - begin))
    wait_until(lambda: daemon.children() == [])
    os.close(pipe)


def test_a_stopped_client_ends(bench, tmp_path):
    """Its silence is noticed after the daemon's time, even if it asked for more."""
    daemon = served(bench, tmp_path, 2)
    run = start_push(daemon, tmp_path, "f", "--timeout=1000")
    os.write(run.pipe, b"some")
    wait_until(lambda: leftovers(tmp_path / "data"))
    os.killpg(run.proc.pid, signal.SIGSTOP)
    wait_until(lambda: daemon.children() == [], (2 + 3) * SLOW + 20)
    os.killpg(run.proc.pid, signal.SIGCONT)
    assert run.wait() in (30, 44), run.errors()
    os.close(run.pipe)


def test_heartbeats_alone_do_not_help(bench, tmp_path):
    """A client of its own making answers, and asks, as often as it can."""
    daemon = served(bench, tmp_path, 2)
    e = Guest(daemon.port, daemon.secret(), SINK, module="data", target="f", timeout_ms=10 ** 6, connect_timeout_ms=10 ** 6).orders()
    e.open()
    begin = time.monotonic()
    while not e.frames.over and time.monotonic() < begin + (2 + 5) * SLOW + 10:
        e.frames.send("PING", cookie=time.monotonic_ns() % 1000)
        time.sleep(0.05)
    assert e.wait(10) == 30
    assert "nothing was copied for 2 s" in daemon.run.expect("exit code 30")
    e.close()


# It fills buffers with reports of 20,000 files.
if COUNT > 1:
    def test_a_client_that_takes_nothing_ends(bench, tmp_path):
        """It reads no frame, so that what the end reports fills all buffers, and the thread that reports waits."""
        daemon = served(bench, tmp_path, 2)
        e = Guest(daemon.port, daemon.secret(), SINK, module="data", wants=["dir"], target="", flags=["RECURSIVE", "EVENTS", "PROGRESS"],
                  block_size=65536, timeout_ms=10 ** 6).orders()
        lane = e.open()[0]
        never = threading.Event()
        e.frames.read = lambda: never.wait(120) and b""
        lane.records(dir_record(name="dir"))
        sent, first = 0, 2

        def send_files():
            nonlocal sent, first
            while not e.frames.over and sent < 400:
                records = [small_records(b"", id=n, dir=1, name="%0200d" % n) for n in range(first, first + 150)]
                if not lane.records(*records):
                    return
                first += len(records)
                sent += 1
                try:
                    while lane.number - lane.stored >= 8:
                        lane.credit()
                except OSError:
                    return

        def send_life():
            while e.frames.send("PING", cookie=1) and not never.is_set():
                time.sleep(0.1)
        threads = [threading.Thread(target=t, daemon=True) for t in (send_files, send_life)]
        for t in threads:
            t.start()
        assert "nothing was copied for 2 s" in daemon.run.expect("exit code 30", 100)
        print("after %d blocks" % sent)
        wait_until(lambda: daemon.children() == [])
        never.set()
        e.close()


def test_work_without_data_is_no_idleness(bench, tmp_path):
    """The daemon compares files that both have: nothing is copied for longer than its time."""
    daemon = served(bench, tmp_path, 1)
    for top in (tmp_path, tmp_path / "data"):
        (top / "d").mkdir()
        for n in range(400):
            (top / "d" / str(n)).write_bytes(b"same%d" % n)
    r = daemon.copy("-r", "--checksum", "d", daemon.url("data/"))
    assert r.code == 0, r.errors()


@pytest.mark.parametrize("way", ["moved", "deleted"])
def test_slow_removals_are_no_idleness(bench, tmp_path, way):
    """Each takes less than the daemon's time, all of them more; a file system of a network has no requests of a disk to count."""
    (tmp_path / "out").mkdir()
    for n in "123456":
        (tmp_path / "data" / n).mkdir(parents=True)
        (tmp_path / "data" / n / "slow").write_bytes(b"x")
    daemon = Configured(bench, tmp_path, DATA + "remove sources = yes\ndelete = yes\n", keys="timeout = 3\n", env=slow_removal("slow", 1500))
    if way == "moved":
        r = daemon.copy("-r", "--remove-source-files", "--copy-links", daemon.url("data/"), tmp_path / "out")
    else:
        r = daemon.copy("-r", "--delete", str(tmp_path / "out") + "/", daemon.url("data/"))
    assert r.code == 0, r.errors()
    assert not list((tmp_path / "data").glob("*/slow"))


def test_bad_timeout(bench, tmp_path):
    daemon = served(bench, tmp_path, 0)
    daemon.reload(DATA, head="timeout = soon\nkey file = {tmp}/key\n")
    daemon.run.expect("rdcpd.conf:1: soon is no number of seconds: expected 0 to 86400")
