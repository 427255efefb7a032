# SPDX-License-Identifier: Apache-2.0
"""Hosts that fall silent: a link that is cut for good, and one that comes back. Two network namespaces joined by a
wire, so that an end gets no sign of its peer's fate."""

import os
import signal
import socket
import time

import pytest

from daemons import Configured
from faulty import slow_removal
from hosts import COUNT, KEY, RSH, SLOW, Host, leftovers, pattern, program, wait_until
from processes import children, words

BLOCK = 256 << 10
TIMEOUT = 6
TCP_RTO_MAX_MS = 44

pytestmark = [
    pytest.mark.each_combination,
    pytest.mark.moves_blocks,
    pytest.mark.needs("tcp", why="the wire is made for TCP; the host runs it"),
    pytest.mark.may_skip("user", "a network namespace may be had by root only"),
]


@pytest.fixture
def wire(networks):
    w = networks()
    w.join("10.79.0")
    return w


def start_ends(bench, wire, target, producer, timeout):
    """A receiver and a sender with the wire between them. target: the receiver's last words."""
    env = {"RD_KEY": KEY}
    common = ["--transport=tcp", "--timeout=%d" % timeout]
    sink = bench.start([*wire.on(1), program("rdrecv"), *common, "-v", "0", "-", *target], env=env)
    port = sink.expect("listening on").rsplit(":", 1)[1].split()[0]
    source = bench.start([*wire.on(0), program("rdsend"), *common, "10.79.0.2", port, "-", "--",
                          "sh", "-c", producer], env=env)
    return source, sink


def start_both(bench, wire, target, producer, timeout=TIMEOUT):
    """The same, already moving bytes into a file."""
    ends = start_ends(bench, wire, [target], producer, timeout)
    wait_until(lambda: leftovers(target.parent))
    return ends


@pytest.mark.parametrize("way", ["down", "mute"])
@pytest.mark.parametrize("producer", ["cat /dev/zero", "echo some; exec sleep 1000"],
                         ids=["busy", "idle"])
def test_both_ends_detect_a_silent_host(bench, tmp_path, wire, producer, way):
    (tmp_path / "out").write_bytes(b"old")
    source, sink = start_both(bench, wire, tmp_path / "out", producer)
    time.sleep(0.3)
    start = time.monotonic()
    if way == "mute":
        wire.mute("10.79.0", True)
    else:
        assert wire.ip(0, "link", "set", "v0", "down")
    codes = source.wait(40), sink.wait(40)
    assert set(codes) <= {30, 44} and 30 in codes, source.errors() + sink.errors()
    assert time.monotonic() - start < (TIMEOUT + 3) * SLOW
    assert (tmp_path / "out").read_bytes() == b"old"


def test_link_that_comes_back_in_time_is_survived(bench, tmp_path, wire):
    data = pattern(60 * BLOCK + 3)
    (tmp_path / "in").write_bytes(data)
    source, sink = start_both(bench, wire, tmp_path / "out",
                              "f=%s/in; head -c 3000000 $f; sleep 4; tail -c +3000001 $f" % tmp_path)
    time.sleep(0.3)
    assert wire.ip(0, "link", "set", "v0", "down")
    time.sleep(2)
    assert wire.ip(0, "link", "set", "v0", "up")
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    assert (tmp_path / "out").read_bytes() == data


def has_bounded_backoff():
    """From Linux 6.15 on. Otherwise TCP waits for as long again as a cut has lasted before it retransmits."""
    with socket.socket() as sock:
        try:
            sock.setsockopt(socket.IPPROTO_TCP, TCP_RTO_MAX_MS, 1000)
        except OSError:
            return False
    return True


@pytest.mark.may_skip("any", "the kernel's TCP may have no bound for its pauses")
@pytest.mark.parametrize("producer", ["echo some; sleep 14; echo more", "head -c 50M /dev/zero; sleep 14; echo more"][:COUNT], ids=["idle", "busy"][:COUNT])
def test_long_cut_is_survived(bench, tmp_path, wire, producer):
    """Two thirds of a timeout of 12 s, as promised. PINGs and retransmissions come every 1.5 s, so the cut could last for
    9 s, if the ends themselves took no time."""
    if not has_bounded_backoff():
        pytest.skip("no TCP_RTO_MAX_MS")
    lasted, codes = 9, None
    while lasted > 8.5 and codes != (0, 0):     # on a busy machine
        source, sink = start_both(bench, wire, tmp_path / "out", producer, timeout=12)
        time.sleep(0.3)
        start = time.monotonic()
        wire.mute("10.79.0", True)
        time.sleep(8)
        wire.mute("10.79.0", False)
        lasted = time.monotonic() - start
        codes = source.wait(), sink.wait()
    assert codes == (0, 0), source.errors() + sink.errors()


def cut_when_all_is_stored(wire):
    """What the sink does last takes 2 s, so the cut begins before DONE is sent. It lasts for less than two thirds of --timeout=15."""
    if not has_bounded_backoff():
        pytest.skip("no TCP_RTO_MAX_MS")
    time.sleep(0.7)
    wire.mute("10.79.0", True)
    time.sleep(9)
    wire.mute("10.79.0", False)


@pytest.mark.may_skip("any", "the kernel's TCP may have no bound for its pauses")
def test_cut_when_all_is_stored_is_survived(bench, tmp_path, wire):
    """A receiver that had closed its connection would answer what comes after the cut with a reset."""
    command = "cat >%s/out; touch %s/stored; sleep 2" % (tmp_path, tmp_path)
    source, sink = start_ends(bench, wire, ["--", "sh", "-c", command], "echo some", timeout=15)
    wait_until((tmp_path / "stored").exists)
    cut_when_all_is_stored(wire)
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    assert (tmp_path / "out").read_bytes() == b"some\n"


@pytest.mark.may_skip("any", "the kernel's TCP may have no bound for its pauses")
def test_cut_when_a_daemon_has_stored_all_is_survived(bench, tmp_path, wire):
    """There another process has the connection."""
    daemon = Configured(bench, tmp_path, "[data]\npath = {tmp}/data\nread only = no\ndelete = yes\n", at="10.79.0.2",
                        host=Host("far", "10.79.0.2", None, wire.on(1)), env=slow_removal("extra", 2000))
    (tmp_path / "data" / "extra").write_bytes(b"to be deleted")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "new").write_bytes(b"new")
    source = bench.start([*wire.on(0), *daemon.argv("-a", "--delete", "--transport=tcp", "--timeout=15", "in/", daemon.url("data"))], cwd=tmp_path)
    wait_until((tmp_path / "data" / "new").exists)
    cut_when_all_is_stored(wire)
    assert source.wait() == 0, source.errors() + daemon.run.errors()
    assert [p.name for p in (tmp_path / "data").iterdir()] == ["new"]


# A stand-in for ssh whose bytes pass through one more process: stopping that process cuts the control channel only.
CUTTABLE = """#!/usr/bin/python3
import os, subprocess, sys, threading
open(sys.argv[0] + ".pid", "w").write(str(os.getpid()))
child = subprocess.Popen([%r] + sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
def pump(a, b):
    try:
        while (data := os.read(a, 1 << 16)):
            while data:
                data = data[os.write(b, data):]
    except OSError:
        pass
    os.close(b)
threading.Thread(target=pump, args=(0, child.stdin.fileno()), daemon=True).start()
pump(child.stdout.fileno(), 1)
os._exit(child.wait())
"""


class Channel:
    def __init__(self, tmp_path):
        self.rsh = tmp_path / "cuttable"
        self.rsh.write_text(CUTTABLE % str(RSH))
        self.rsh.chmod(0o755)

    def signal(self, signo):
        os.kill(int((self.rsh.parent / "cuttable.pid").read_text()), signo)


def start_slowly(bench, tmp_path, *options):
    (tmp_path / "in").write_bytes(pattern(40 << 20))
    channel = Channel(tmp_path)
    # Lanes must move data while the channel is cut, and longer.
    run = bench.copy("--bwlimit=4M", *options, "in", "far:out", wait=False, rsh=channel.rsh)
    wait_until(lambda: any(n.startswith(".sluice.") and (tmp_path / n).stat().st_blocks > 2048
                           for n in os.listdir(tmp_path)), 20)
    return run, channel


def test_interrupted_control_channel_is_survived_while_data_moves(bench, tmp_path):
    run, channel = start_slowly(bench, tmp_path, "--timeout=2")
    channel.signal(signal.SIGSTOP)
    time.sleep(4)
    channel.signal(signal.SIGCONT)
    assert run.wait(60) == 0, run.errors()
    assert (tmp_path / "out").read_bytes() == (tmp_path / "in").read_bytes()


def test_lost_control_channel_ends_the_copy(bench, tmp_path):
    """After three times the timeout, even while data moves."""
    run, channel = start_slowly(bench, tmp_path, "--timeout=1")
    channel.signal(signal.SIGSTOP)
    start = time.monotonic()
    assert run.wait(30) == 30, run.errors()
    assert 2 <= time.monotonic() - start < 7 * SLOW


def start_stalled(bench, tmp_path, way, timeout):
    """A copy whose lanes wait for longer than any timeout."""
    (tmp_path / "in").write_bytes(pattern(8 * BLOCK))
    run = bench.copy("--timeout=%d" % timeout, *(["in", "far:out"] if way == "push" else ["far:in", "out"]), wait=False,
                     env={"SLUICE_FAULT": "stall:lane=0,block=1,ms=60000;stall:lane=1,block=1,ms=60000"})
    wait_until(lambda: leftovers(tmp_path))
    return run


@pytest.mark.parametrize(("way", "timeout"), [("push", 2), ("pull", 6)])
def test_rdcp_ends_soon_after_the_timeout(bench, tmp_path, way, timeout):
    """It waits for the last frame of an end only where that can still arrive."""
    run = start_stalled(bench, tmp_path, way, timeout)
    far = wait_until(lambda: far_end(tmp_path))
    start = time.monotonic()
    os.kill(far, signal.SIGSTOP)
    try:
        # Not its pipes, which the stopped end holds open.
        assert run.proc.wait(40) == 30
        # With five seconds for last frames it took five more.
        assert time.monotonic() - start < timeout + 2.5 * SLOW
    finally:
        os.kill(far, signal.SIGCONT)
    assert "SIGTERM" not in run.errors()


@pytest.mark.parametrize("way", ["push", "pull"])
def test_rdcp_that_was_frozen_ends_soon_after_it_goes_on(bench, tmp_path, way):
    """It slept for longer than the timeout, so that its peer has given it up."""
    run = start_stalled(bench, tmp_path, way, 1)
    far = wait_until(lambda: far_end(tmp_path))
    near = [run.proc.pid, *(pid for pid in children(run.proc.pid) if pid != far)]
    for pid in near:
        os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: not words(far))
    start = time.monotonic()
    for pid in near:
        os.kill(pid, signal.SIGCONT)
    assert run.wait(40) in (30, 44), run.errors()
    # It may have to find out by itself that its peer is silent.
    assert time.monotonic() - start < 1 + 2.5 * SLOW
    assert "SIGTERM" not in run.errors()


def far_end(tmp_path):
    """The `rdcp --end' process of this test."""
    mark = b"SLUICE_TEST_HOME=" + str(tmp_path).encode()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % pid, "rb") as f:
                words = f.read().split(b"\0")
            if len(words) < 2 or words[1] != b"--end":
                continue
            with open("/proc/%s/environ" % pid, "rb") as f:
                if mark in f.read():
                    return int(pid)
        except OSError:
            pass
    return None
