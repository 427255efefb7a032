# SPDX-License-Identifier: Apache-2.0
"""Several adapters at once: two hosts joined by two wires, with a siw adapter at each end of each."""

import json
import os
import subprocess

import pytest

from hosts import Host, pattern, wait_until

pytestmark = [pytest.mark.moves_blocks, pytest.mark.lab("siw"), pytest.mark.first]
BLOCK = 256 << 10
WIRES = 2


class Wires:
    """Two namespaces and the wires between them; wire i is 10.78.i.0/24, near .1, far .2."""

    def __init__(self, number):
        self.ends = ["rail%d%s" % (number, c) for c in "ab"]
        self.devices, self.number = [], number
        self.near, self.far = (Host(name, "10.78.0.%d" % (1 + i), None, ["ip", "netns", "exec", end])
                               for i, (name, end) in enumerate(zip(("near", "far"), self.ends)))

    def interface(self, end, wire):
        return "r%d%s%d" % (self.number, "ab"[end], wire)

    def at(self, end, *argv):
        return subprocess.run(["ip", "netns", "exec", self.ends[end], *argv], check=True,
                              stdout=subprocess.PIPE, text=True).stdout

    def make(self):
        for end in self.ends:
            subprocess.run(["ip", "netns", "add", end], check=True)
        for wire in range(WIRES):
            # A listener takes its port on every siw device with that interface index, so no two indices are equal.
            index = 1000 + 10 * self.number + 2 * wire
            subprocess.run(["ip", "link", "add", self.interface(0, wire), "index", str(index), "mtu",
                            "9000", "netns", self.ends[0], "type", "veth", "peer", "name",
                            self.interface(1, wire), "index", str(index + 1), "mtu", "9000", "netns",
                            self.ends[1]], check=True)
            for end in (0, 1):
                name = self.interface(end, wire)
                self.at(end, "ip", "addr", "add", "10.78.%d.%d/24" % (wire, end + 1), "dev", name)
                self.at(end, "ip", "link", "set", name, "up")
                self.at(end, "ip", "link", "set", "lo", "up")
        for wire in range(WIRES):
            for end in (0, 1):
                device = "siw" + self.interface(end, wire)
                self.at(end, "rdma", "link", "add", device, "type", "siw", "netdev",
                        self.interface(end, wire))
                self.devices.append(device)
        return self

    def device(self, end, wire):
        return "siw" + self.interface(end, wire)

    def sent(self, wire):
        """The bytes that the near end has sent on a wire."""
        return int(self.at(0, "cat", "/sys/class/net/%s/statistics/tx_bytes" % self.interface(0, wire)))

    def cut(self, wire, how="silently"):
        if how == "link":
            self.at(1, "ip", "link", "set", self.interface(1, wire), "down")
            return
        for end in (0, 1):
            self.at(end, "tc", "qdisc", "add", "dev", self.interface(end, wire), "root", "netem", "loss",
                    "100%")

    def cut_all_but(self, port):
        """The first wire drops TCP, including that of iWARP, except to this port."""
        for end in (0, 1):
            at = ["dev", self.interface(end, 0)]
            self.at(end, "tc", "qdisc", "add", *at, "root", "handle", "1:", "prio", "bands", "4",
                    "priomap", *["3"] * 16)
            for what in (["ip", "u32", "match", "ip", "dport", str(port), "0xffff"],
                         ["ip", "u32", "match", "ip", "sport", str(port), "0xffff"],
                         ["arp", "u32", "match", "u32", "0", "0"]):
                self.at(end, "tc", "filter", "add", *at, "parent", "1:", "protocol", *what, "flowid", "1:1")
            # Added last, so that permitted packets are never dropped in between.
            self.at(end, "tc", "qdisc", "add", *at, "parent", "1:4", "netem", "loss", "100%")

    def slow(self, delay):
        for end in (0, 1):
            for wire in range(WIRES):
                self.at(end, "tc", "qdisc", "add", "dev", self.interface(end, wire), "root", "netem",
                        "delay", delay)

    def clear(self):
        for device in self.devices:
            subprocess.run(["rdma", "link", "del", device], check=False)
        for end in self.ends:
            subprocess.run(["ip", "netns", "del", end], check=False)


two_hosts = pytest.mark.needs("siw", why="only siw has two hosts in one guest")


@pytest.fixture
def wires(bench):
    made = Wires(int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]))
    try:
        yield made.make()
    finally:
        bench.close()
        made.clear()


def transfer(bench, wires, tmp_path, size, *options, source=(), **how):
    (tmp_path / "in").write_bytes(pattern(size))
    sink = bench.receive("-v", *options, tmp_path / "out", host=wires.far)
    return sink, bench.send(sink.port, "-v", *options, *source, tmp_path / "in", host=wires.near,
                            to=wires.far.address, **how)


def ended(sink, source, tmp_path):
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    assert (tmp_path / "out").read_bytes() == (tmp_path / "in").read_bytes()


@two_hosts
@pytest.mark.lab("siw", long=True)
def test_lanes_are_spread_over_both_wires(bench, wires, tmp_path):
    size = 64 * BLOCK
    before = [wires.sent(w) for w in range(WIRES)]
    sink, source = transfer(bench, wires, tmp_path, size)
    ended(sink, source, tmp_path)
    moved = [wires.sent(w) - b for w, b in enumerate(before)]
    assert sum(moved) > size and min(moved) > size // 8, moved
    said = source.errors()
    for wire in range(WIRES):
        assert wires.device(0, wire) in said.split("Gb/s over ")[1].splitlines()[0], said
    assert "rail 2 of 2" in said


@two_hosts
@pytest.mark.lab("siw", long=True)
def test_rails_option_limits_the_rails(bench, wires, tmp_path):
    size = 64 * BLOCK
    before = [wires.sent(w) for w in range(WIRES)]
    sink, source = transfer(bench, wires, tmp_path, size, source=["--rails=1"])
    ended(sink, source, tmp_path)
    moved = sorted(wires.sent(w) - b for w, b in enumerate(before))
    assert moved[1] > size and moved[0] < size // 8, moved
    assert "rail 2" not in source.errors()


@two_hosts
def test_unconnectable_rail_is_replaced_by_the_other(bench, wires, tmp_path):
    """Its lane uses the other rail, not TCP, and a message reports it."""
    wires.cut(1)
    sink, source = transfer(bench, wires, tmp_path, 64 * BLOCK)
    ended(sink, source, tmp_path)
    said = source.errors()
    assert "%s to 10.78.1.2" % wires.device(0, 1) in said and "failed, lanes use the other rails" in said, said
    assert "over rdma %s" % wires.device(0, 0) in said, said


@two_hosts
@pytest.mark.parametrize("how", ["link", "silently"])
@pytest.mark.lab("siw", long=True)
def test_dead_rail_is_replaced_by_the_other(bench, wires, tmp_path, how):
    """During a transfer: the other rail takes over its blocks."""
    size = 160 * BLOCK
    sink, source = transfer(bench, wires, tmp_path, size, source=["--bwlimit=4M"])
    start = wires.sent(1)
    wait_until(lambda: wires.sent(1) - start > 16 * BLOCK, timeout=60)
    wires.cut(1, how)
    ended(sink, source, tmp_path)
    said = source.errors()
    assert "was reconnected over rdma %s" % wires.device(0, 0) in said, said
    assert "failed, lanes use the other rails" in said, said


@two_hosts
@pytest.mark.lab("siw", long=True)
def test_no_firewall_is_suspected_after_rdma_worked(bench, wires, tmp_path):
    """The path of RDMA falls silent, while the control channel continues."""
    (tmp_path / "in").write_bytes(pattern(40 * BLOCK))
    options = ["--lanes=1", "--rails=1", "--timeout=12", "--"]
    sink = bench.receive(*options, "sh", "-c", "cat >%s/out" % tmp_path, host=wires.far)
    source = bench.send(sink.port, *options, "sh", "-c",
                        "cat in; until [ -e go ]; do sleep 0.1; done; cat in", host=wires.near,
                        to=wires.far.address, cwd=tmp_path,
                        env={"SLUICE_FAULT": "break:lane=0,block=60,times=1"})
    wait_until(lambda: (tmp_path / "out").exists() and (tmp_path / "out").stat().st_size == 40 * BLOCK,
               timeout=60)
    wires.cut_all_but(sink.port)
    (tmp_path / "go").touch()
    codes = source.wait(), sink.wait()
    said = source.errors() + sink.errors()
    assert codes == (44, 44), said
    assert "lane 0 could not be reconnected" in said and "no answer any more" in said, said


@two_hosts
@pytest.mark.lab("siw", long=True)
def test_slow_path_gets_the_whole_connect_timeout(bench, wires, tmp_path):
    """Three round trips to connect take more than the two seconds after which TCP is tried, where that is allowed."""
    wires.slow("400ms")
    ended(*transfer(bench, wires, tmp_path, 1000, "--lanes=1"), tmp_path)


@pytest.mark.needs("rxe", why="rxe has both ends of the wire in one host")
@pytest.mark.lab("rxe")
def test_two_adapters_of_one_host_are_used(bench, tmp_path):
    (tmp_path / "in").write_bytes(pattern(64 * BLOCK))
    # So slowly that the second lane is there before the first has moved all.
    done = bench.copy("--json", "--bwlimit=2M", "in", "far:%s/out" % tmp_path)
    assert done.code == 0, done.errors()
    assert (tmp_path / "out").read_bytes() == (tmp_path / "in").read_bytes()
    result = [json.loads(line) for line in done.out.decode().splitlines()][-1]
    assert "rxe0" in json.dumps(result) and "rxe1" in json.dumps(result), result
