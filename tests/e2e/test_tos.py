# SPDX-License-Identifier: Apache-2.0
"""The type of service of packets (--tos): what two hosts put on the wire between them."""

import sys

import pytest

from hosts import IWARP, KEY, RSH, pattern, program, wait_until

BLOCK = 256 << 10

# Prints "SOURCE OCTET" once for each pair that it sees in TCP packets on v0, until it is stopped. A RST has no socket.
SNIFFER = r"""
import socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
s.bind(("v0", 3))
print("ready", file=sys.stderr, flush=True)
seen = set()
while True:
    p = s.recv(65536)
    v6 = p[0] >> 4 == 6
    if p[6 if v6 else 9] != 6:
        continue
    at = 40 if v6 else (p[0] & 15) * 4
    source = socket.inet_ntop(10 if v6 else 2, p[8:24] if v6 else p[12:16])
    octet = (p[0] << 8 | p[1]) >> 4 & 0xff if v6 else p[1]
    if not p[at + 13] & 4 and (source, octet & 0xfc) not in seen:
        seen.add((source, octet & 0xfc))
        print(source, octet & 0xfc, flush=True)
"""


class Wire:
    def __init__(self, networks, bench, family):
        self.networks, self.bench = networks, bench
        networks.join("10.79.1")
        self.near, self.far = "10.79.1.1", "10.79.1.2"
        if family == 6:
            for i in (0, 1):
                assert networks.ip(i, "addr", "add", "fd00:79::%d/64" % (i + 1), "dev", "v0", "nodad")
            self.near, self.far = "fd00:79::1", "fd00:79::2"
        self.sniffer = bench.start([*networks.on(0), sys.executable, "-c", SNIFFER])
        self.sniffer.expect("ready")

    def seen(self):
        """What the near and the far host sent: two sets of octets."""
        def octets():
            lines = [line.split() for line in self.sniffer.out.decode().splitlines()]
            return [{int(octet) for source, octet in lines if source == host} for host in (self.near, self.far)]
        wait_until(lambda: all(octets()))
        return octets()


@pytest.fixture(params=[4, 6])
def wire(networks, bench, request):
    return Wire(networks(), bench, request.param)


over_tcp = [
    pytest.mark.needs("tcp", why="it looks at packets of TCP; the host runs it"),
    pytest.mark.may_skip("user", "a network namespace may be had by root only"),
]


def marked(test):
    for mark in over_tcp:
        test = mark(test)
    return test


@marked
@pytest.mark.parametrize("words, octet", [([], 0), (["--tos=af21"], 0x48), (["--tos=0x20"], 0x20)])
def test_lanes_of_rdcp_have_the_type_of_service(bench, wire, tmp_path, words, octet):
    data = pattern(6 * BLOCK + 3)
    (tmp_path / "in").write_bytes(data)
    r = bench.run([*wire.networks.on(0), program("rdcp"), "--rsh", RSH, "--rdcp-path", program("rdcp"), *words,
                   "--address", wire.far, "in", "far:out"], cwd=tmp_path,
                  env={"SLUICE_TEST_HOSTS": "far " + " ".join(wire.networks.on(1)), "SLUICE_TEST_HOME": str(tmp_path)})
    assert r.code == 0, r.errors()
    assert (tmp_path / "out").read_bytes() == data
    assert wire.seen() == [{octet}, {octet}]


@marked
@pytest.mark.parametrize("sends, receives", [("ef", None), ("0xb9", "CS1"), (None, "le")])
def test_each_end_of_a_stream_marks_what_it_sends(bench, wire, tmp_path, sends, receives):
    """The control connection and the lanes. The two bits of ECN are TCP's own."""
    words = {None: [], "ef": ["--tos=ef"], "0xb9": ["--tos=0xb9"], "CS1": ["--tos", "CS1"], "le": ["--tos=le"]}
    octets = {None: 0, "ef": 0xb8, "0xb9": 0xb8, "CS1": 0x20, "le": 4}
    (tmp_path / "in").write_bytes(pattern(6 * BLOCK + 3))
    env = {"RD_KEY": KEY}
    sink = bench.start([*wire.networks.on(1), program("rdrecv"), "-v", *words[receives], "0", "-", tmp_path / "out"],
                       env=env)
    port = sink.expect("listening on").rsplit(":", 1)[1].split()[0]
    source = bench.run([*wire.networks.on(0), program("rdsend"), *words[sends], wire.far, port, "-", tmp_path / "in"],
                       env=env)
    assert (source.code, sink.wait()) == (0, 0), source.errors() + sink.errors()
    assert (tmp_path / "out").read_bytes() == (tmp_path / "in").read_bytes()
    assert wire.seen() == [{octets[sends]}, {octets[receives]}]


@pytest.mark.parametrize("value", ["256", "-1", "af44", "0x", "0x100", "", "lowdelay"])
def test_other_values_are_rejected(bench, value):
    r = bench.run([program("rdcp"), "--tos=" + value, "a", "b"])
    assert r.code == 1 and "--tos" in r.errors(), r.errors()


def lanes_of(record):
    """{lane: the octets that the ends of its connections have}, from the file of tests/simverbs/record.h. The lane is in
    the private data of the request (docs/protocol.md)."""
    found = {}
    for line in record.read_text().splitlines():
        octet, data = line.split()[2:]
        found.setdefault(int.from_bytes(bytes.fromhex(data)[8:10], "little"), []).append(int(octet))
    return found


@pytest.mark.lanes
@pytest.mark.needs("sim", why="it reads what the simulated adapter was told")
@pytest.mark.parametrize("words, octet", [([], 0), (["--tos=af31"], 0x68), (["--tos=106"], 106), (["--tos=0"], 0)])
def test_lanes_over_rdma_have_the_type_of_service(bench, tmp_path, words, octet):
    (tmp_path / "in").write_bytes(pattern(30 * BLOCK))
    r = bench.copy("--lanes=3", *words, "in", "far:%s/out" % tmp_path, env={"SIMVERBS_RECORD": str(tmp_path / "record")})
    assert r.code == 0, r.errors()
    assert lanes_of(tmp_path / "record") == {lane: [octet, octet] for lane in range(3)}


@pytest.mark.lanes
@pytest.mark.needs("sim", why="it reads what the simulated adapter was told")
def test_the_dialing_end_decides_except_on_iwarp(bench, tmp_path):
    (tmp_path / "in").write_bytes(pattern(30 * BLOCK))
    env = {"SIMVERBS_RECORD": str(tmp_path / "record")}
    sink = bench.receive(tmp_path / "out", "--lanes=2", "--tos=cs1", env=env)
    source = bench.send(sink.port, tmp_path / "in", "--tos=ef", env=env)
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    octets = [0x20, 0xb8] if IWARP else [0xb8, 0xb8]
    assert {lane: sorted(seen) for lane, seen in lanes_of(tmp_path / "record").items()} == {0: octets, 1: octets}
