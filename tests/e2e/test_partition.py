# SPDX-License-Identifier: Apache-2.0
"""Hosts that fall silent: a link that is cut for good, and one that comes back.

Two network namespaces joined by a wire, so that nothing tells an end what became of its peer."""

import subprocess
import time
import uuid

import pytest

from hosts import KEY, SLOW, TRANSPORT, leftovers, pattern, program, wait_until

BLOCK = 256 << 10
TIMEOUT = 6

pytestmark = pytest.mark.skipif(TRANSPORT != "tcp", reason="the wire is made for TCP")


class Wire:
    def __init__(self):
        self.names = ["sl" + uuid.uuid4().hex[:8] for _ in "ab"]

    def make(self):
        for name in self.names:
            if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode:
                return False
        subprocess.run(["ip", "-n", self.names[0], "link", "add", "w0", "type", "veth", "peer",
                        "name", "w1", "netns", self.names[1]], check=True)
        for i, name in enumerate(self.names):
            subprocess.run(["ip", "-n", name, "addr", "add", "10.79.0.%d/24" % (i + 1), "dev",
                            "w%d" % i], check=True)
            subprocess.run(["ip", "-n", name, "link", "set", "w%d" % i, "up"], check=True)
        return True

    def turn(self, state):
        subprocess.run(["ip", "-n", self.names[0], "link", "set", "w0", state], check=True)

    def remove(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name])


@pytest.fixture
def wire():
    w = Wire()
    try:
        if not w.make():
            pytest.skip("may not make network namespaces")
        yield w
    finally:
        w.remove()


def ends(bench, wire, target, producer):
    """A receiver and a sender with the wire between them, bytes already moving."""
    env = {"RD_KEY": KEY}
    on = ["ip", "netns", "exec"]
    common = ["--transport=tcp", "--timeout=%d" % TIMEOUT]
    sink = bench.start([*on, wire.names[1], program("rdrecv"), *common, "-v", "0", "-", target], env=env)
    port = sink.expect("listening on").rsplit(":", 1)[1].split()[0]
    source = bench.start([*on, wire.names[0], program("rdsend"), *common, "10.79.0.2", port, "-", "--",
                          "sh", "-c", producer], env=env)
    wait_until(lambda: leftovers(target.parent))
    return source, sink


@pytest.mark.parametrize("producer", ["cat /dev/zero", "echo some; exec sleep 1000"],
                         ids=["busy", "idle"])
def test_a_silent_host_is_noticed_at_both_ends(bench, tmp_path, wire, producer):
    (tmp_path / "out").write_bytes(b"old")
    source, sink = ends(bench, wire, tmp_path / "out", producer)
    time.sleep(0.3)
    start = time.monotonic()
    wire.turn("down")
    codes = source.wait(40), sink.wait(40)
    assert set(codes) <= {30, 44} and 30 in codes, source.errors() + sink.errors()
    assert time.monotonic() - start < (TIMEOUT + 3) * SLOW
    assert (tmp_path / "out").read_bytes() == b"old"


def test_a_link_that_comes_back_in_time_is_survived(bench, tmp_path, wire):
    data = pattern(60 * BLOCK + 3)
    (tmp_path / "in").write_bytes(data)
    source, sink = ends(bench, wire, tmp_path / "out",
                        "f=%s/in; head -c 3000000 $f; sleep 4; tail -c +3000001 $f" % tmp_path)
    time.sleep(0.3)
    wire.turn("down")
    time.sleep(2)
    wire.turn("up")
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    assert (tmp_path / "out").read_bytes() == data
