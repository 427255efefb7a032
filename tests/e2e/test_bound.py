# SPDX-License-Identifier: Apache-2.0
"""Each stage is slowed down in turn, and the report names it."""

import os
import re
import subprocess
import sys

import pytest

from file_systems import Fuse
from hosts import DEMAND, LAB, NEAR, RDMA, ROOT, Host, pattern, program
from networks import Networks
from trees import summary

pytestmark = pytest.mark.moves_blocks
BLOCK = 256 << 10
# So slow that everything else is faster, even on a busy machine.
RATE = (5 if not LAB else 2) << 20
# This much, in pieces of a block, at that rate.
SIZE = 24 * BLOCK
PRODUCER = """
import os, time
for i in range(%d):
    os.write(1, bytes(%d))
    time.sleep(%f)
""" % (SIZE // BLOCK, BLOCK, BLOCK / RATE)
CONSUMER = """
import sys, time
while sys.stdin.buffer.read(%d):
    time.sleep(%f)
""" % (BLOCK, BLOCK / RATE)
LINE = re.compile(r"bound by: (.*?) \((.*)\)")


def bound(r):
    """The name and the percentages in the next-to-last line."""
    lines = r.errors().splitlines()
    assert lines[-1].startswith("Bandwidth "), r.errors()
    match = LINE.fullmatch(lines[-2])
    assert match, r.errors()
    return match[1], {what: int(n) for what, n in re.findall(r"([a-z][a-z ]*) (\d+) %", match[2])}


def both(sink, source):
    """The ends of a session without a conductor: each names what bounded it, using the other's times too."""
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    name, shares = bound(source)
    assert bound(sink)[0] == name, source.errors() + sink.errors()
    return name, shares


# ---- the ends -------------------------------------------------------------------------------


def test_slow_producer_is_named(bench):
    sink = bench.receive("-v", "/dev/null")
    source = bench.send(sink.port, "-v", "--", sys.executable, "-c", PRODUCER)
    name, shares = both(sink, source)
    assert name == "source pipe" and shares["source busy"] > 70, (name, shares)


def test_slow_consumer_is_named(bench, tmp_path):
    (tmp_path / "in").write_bytes(pattern(SIZE + (2 << 20)))
    sink = bench.receive("-v", "--", sys.executable, "-c", CONSUMER)
    source = bench.send(sink.port, "-v", tmp_path / "in")
    name, shares = both(sink, source)
    assert name == "target pipe" and shares["sink busy"] > 60, (name, shares)


def test_slow_pipe_into_rdcp_is_named(bench, tmp_path):
    read, write = os.pipe()
    producer = subprocess.Popen([sys.executable, "-c", PRODUCER], stdout=write)
    os.close(write)
    r = bench.copy("-v", "-", "far:%s/out" % tmp_path, stdin=read)
    os.close(read)
    assert r.code == 0 and producer.wait() == 0, r.errors()
    assert bound(r)[0] == "source pipe", r.errors()


@pytest.fixture
def slow_fs(tmp_path):
    """A directory on a file system with limited read and write rates."""
    started = []

    def mount(read=0, write=0):
        started.append(Fuse("slow_fs.py", tmp_path, "slow", read, write))
        return started[-1].below, started[-1].top
    yield mount
    for fs in started:
        fs.close()


@pytest.mark.may_skip("any", "to mount takes root, and a container that may")
def test_slow_source_disk_is_named(bench, tmp_path, slow_fs):
    below, top = slow_fs(read=RATE)
    (below / "in").write_bytes(pattern(SIZE))
    r = bench.copy("-v", "--json", top / "in", "far:%s/out" % tmp_path)
    assert r.code == 0, r.errors()
    name, shares = bound(r)
    assert name == "source disk" and shares["source busy"] > 50, r.errors()
    told = summary(r)
    assert told["bound_by"] == name
    assert abs(told["source_busy"] * 100 - shares["source busy"]) <= 1
    assert all(0 <= told[k] <= 1 for k in ("network", "sink_busy", "held_back", "processors")), told
    page = (ROOT / "man" / "rdcp.1").read_text()
    assert not [k for k in told if k not in page], "the manual has all fields"
    assert told["window"] > 0 and (RDMA or told["round_trip_us"] > 0), told


@pytest.mark.may_skip("any", "to mount takes root, and a container that may")
def test_slow_target_disk_is_named(bench, tmp_path, slow_fs):
    below, top = slow_fs(write=RATE)
    (tmp_path / "in").write_bytes(pattern(SIZE))
    r = bench.copy("-v", "--stats", "in", "far:%s/out" % top)
    assert r.code == 0, r.errors()
    name, shares = bound(r)
    assert name == "target disk" and shares["sink busy"] > 70, r.errors()
    (line,) = [x for x in r.errors().splitlines() if x.startswith("bound by:  ")]
    assert line.split(None, 2)[2] == LINE.sub(r"\1 (\2)", r.errors().splitlines()[-2])
    assert (below / "out").read_bytes() == pattern(SIZE)


@pytest.mark.may_skip("any", "to mount takes root, and a container that may")
def test_slow_target_disk_of_a_stream_is_named(bench, slow_fs):
    top = slow_fs(write=RATE)[1]
    sink = bench.receive("-v", top / "out")
    source = bench.send(sink.port, "-v", "--", "head", "-c", str(SIZE), "/dev/zero")
    assert both(sink, source)[0] == "target disk"


@pytest.mark.parametrize("slow", ["source", "target"])
@pytest.mark.may_skip("any", "to mount takes root, and a container that may")
def test_slow_disk_with_small_files_is_named(bench, tmp_path, slow_fs, slow):
    below, top = slow_fs(read=RATE) if slow == "source" else slow_fs(write=RATE)
    tree = below / "tree" if slow == "source" else tmp_path / "tree"
    tree.mkdir()
    for i in range(150):
        (tree / ("f%d" % i)).write_bytes(pattern(40000, i))
    source, target = (top / "tree", tmp_path) if slow == "source" else (tree, top)
    r = bench.copy("-rv", source, "far:%s/to" % target)
    assert r.code == 0, r.errors()
    assert bound(r)[0] == slow + " disk", r.errors()


@pytest.mark.may_skip("any", "to mount takes root, and a container that may")
def test_slow_comparison_of_the_target_is_named(bench, tmp_path, slow_fs):
    """Nothing is written, and little is sent: the sink reads."""
    below, top = slow_fs(read=RATE)
    data = bytearray(pattern(SIZE))
    (below / "out").write_bytes(data)
    data[-1] ^= 1
    (tmp_path / "in").write_bytes(data)
    r = bench.copy("-v", "--checksum", "in", "far:%s/out" % top)
    assert r.code == 0, r.errors()
    assert bound(r)[0] == "target disk", r.errors()
    assert (below / "out").read_bytes() == data


# ---- between the ends ----------------------------------------------------------------------------


def test_bwlimit_is_named(bench, tmp_path):
    (tmp_path / "in").write_bytes(pattern(SIZE))
    r = bench.copy("-v", "--bwlimit=%d" % RATE, "in", "far:%s/out" % tmp_path)
    assert r.code == 0, r.errors()
    name, shares = bound(r)
    assert name == "--bwlimit" and shares["held back"] > 50, r.errors()
    # The receiver does not know the limit, but the sender's times show it.
    sink = bench.receive("-v", "/dev/null")
    source = bench.send(sink.port, "-v", "--bwlimit=%d" % RATE, tmp_path / "in")
    assert both(sink, source)[0] == "--bwlimit"


def test_bwlimit_of_a_receiver_is_named(bench, tmp_path):
    (tmp_path / "in").write_bytes(pattern(SIZE))
    sink = bench.receive("-v", "--bwlimit=%d" % RATE, "/dev/null")
    source = bench.send(sink.port, "-v", tmp_path / "in")
    name, shares = both(sink, source)
    assert name == "--bwlimit" and shares["held back"] > 50, (name, shares)


class Wire(Networks):
    """Two hosts of the test's own, with a wire that can be slowed down."""

    def __init__(self):
        super().__init__()
        self.hosts = [Host(name, "10.79.0.%d" % (i + 1), None, self.on(i)) for i, name in enumerate(self.names)]
        self.adapters = []

    def wire(self):
        # siw's listeners need different interface indices.
        self.join("10.79.0", ["index", "301", "mtu", "9000"], ["index", "302", "mtu", "9000"])

    def equip(self):
        for i, name in enumerate(self.names):
            self.adapters.append(name + "r")
            subprocess.run([*self.on(i), "rdma", "link", "add", self.adapters[-1], "type", "siw", "netdev", "v0"], check=True)

    def remove(self):
        for adapter in self.adapters:
            subprocess.run(["rdma", "link", "del", adapter], capture_output=True)
        super().remove()

    def through(self, bench, *options, size=SIZE, transport=DEMAND):
        near, far = self.hosts
        sink = bench.receive("-v", *options, "--", "cat", transport=transport, host=far)
        source = bench.send(sink.port, "-v", *options, "--", "head", "-c", str(size), "/dev/zero",
                            transport=transport, host=near, to=far.address)
        return both(sink, source)


@pytest.mark.needs("tcp", why="the wire is made for TCP")
@pytest.mark.may_skip("any", "a network namespace takes root, and a kernel that limits rates")
def test_slow_wire_is_named(bench):
    wire = Wire()
    try:
        if not wire.make():
            pytest.skip("may not make network namespaces")
        wire.wire()
        if not wire.shape("tbf", "rate", "10mbit", "burst", "64kb", "latency", "50ms"):
            pytest.skip("this kernel can't limit a wire")
        # Of four lanes three wait most of the time for the others' blocks, because they are written in order.
        # Beside others on a busy machine the ends need seconds for few bytes, so the wire takes longer.
        name, shares = wire.through(bench, "--lanes=4", size=SIZE // 2)
        assert name == "network" and shares["network"] > 50, (name, shares)
    finally:
        wire.remove()


@pytest.mark.needs("siw", why="the guest has netem, and rxe has one host")
@pytest.mark.parametrize("transport", ["--transport=rdma", "--transport=tcp"])
@pytest.mark.lab("siw", cases="*rdma", long=True)
def test_small_window_and_slow_wire_are_told_apart(bench, transport):
    wire = Wire()
    try:
        assert wire.make()
        wire.wire()
        wire.equip()
        assert wire.shape("netem", "limit", "10000", "delay", "100ms")
        # So little that TCP (also siw's) has all of it in flight from the start.
        few = ["--lanes=1", "--depth=2", "--block-size=16k"]
        name, shares = wire.through(bench, *few, size=SIZE // 12, transport=transport)
        assert name == "window" and shares["network"] > 80, (name, shares)
        # The same, with a wire that is slower than the window.
        assert wire.shape("netem", "limit", "10000", "delay", "1ms", "rate", "20mbit")
        name, shares = wire.through(bench, transport=transport)
        assert name == "network" and shares["network"] > 50, (name, shares)
    finally:
        wire.remove()


# ---- neither ---------------------------------------------------------------------------------


def test_slow_processors_are_named(bench, tmp_path):
    """Both ends on one processor, waiting for nothing but each other."""
    with open(tmp_path / "in", "wb") as f:
        f.truncate(2 << 30 if not LAB else 64 << 20)
    one = sorted(os.sched_getaffinity(0))[0]
    r = bench.run(["taskset", "-c", str(one), program("rdcp"), "--transport=tcp", "-v", "--no-sparse",
                   tmp_path / "in", "/dev/null"], host=NEAR)
    assert r.code == 0, r.errors()
    name, shares = bound(r)
    assert name == "processors" and shares["processors"] > 50, r.errors()
