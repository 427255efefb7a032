# SPDX-License-Identifier: Apache-2.0
"""Hosts that can't reach each other: the lanes use the path that ssh found. Three network namespaces with only
loopback, and a wire where a test needs one; the stand-in for ssh enters them."""

import os
import signal
import subprocess
import time

import pytest

from hosts import RSH, SLOW, pattern, program, wait_until

BLOCK = 256 << 10

pytestmark = [
    pytest.mark.needs("tcp", why="it is about TCP and ssh alone; the host runs it"),
    pytest.mark.may_skip("user", "a network namespace may be had by root only"),
]


class Islands:
    """Hosts without a wire: near, far and third."""

    def __init__(self, networks, bench, tmp_path):
        self.bench, self.tmp = bench, tmp_path
        self.names = dict(zip(("near", "far", "third"), networks(3).names))

    def copy(self, *args, wait=True, env=None):
        hosts = "\n".join("%s ip netns exec %s" % i for i in self.names.items())
        argv = ["ip", "netns", "exec", self.names["near"], program("rdcp"),
                "--rsh", RSH, "--rdcp-path", program("rdcp"), *args]
        start = self.bench.run if wait else self.bench.start
        return start(argv, cwd=self.tmp, env=dict(env or {}, SLUICE_TEST_HOSTS=hosts,
                                                  SLUICE_TEST_HOME=str(self.tmp)))


@pytest.fixture
def islands(networks, bench, tmp_path):
    return Islands(networks, bench, tmp_path)


WAYS = {"push": ("in", "far:out"), "pull": ("far:in", "out"), "remote": ("far:in", "third:out")}


@pytest.mark.parametrize("way", WAYS)
def test_lanes_go_over_ssh_with_one_message(islands, tmp_path, way):
    data = pattern(40 * BLOCK + 3)
    (tmp_path / "in").write_bytes(data)
    r = islands.copy(*WAYS[way])
    assert r.code == 0, r.errors()
    assert (tmp_path / "out").read_bytes() == data
    assert r.errors().count("over ssh") == 1 and len(r.errors().splitlines()) == 1, r.errors()
    assert ("through this host" in r.errors()) == (way == "remote")


@pytest.mark.parametrize("way", WAYS)
def test_lane_over_ssh_is_mended(islands, tmp_path, way):
    data = pattern(60 * BLOCK + 3)
    (tmp_path / "in").write_bytes(data)
    r = islands.copy(*WAYS[way], env={"SLUICE_FAULT": "break:lane=0,block=3,times=1;"
                                      "break:lane=1,block=3,times=1;break:lane=0,block=9,times=1"})
    assert r.code == 0, r.errors()
    assert (tmp_path / "out").read_bytes() == data


def test_required_transport_does_not_fall_back_to_ssh(islands, tmp_path):
    (tmp_path / "in").write_bytes(b"x")
    r = islands.copy("--transport=tcp", "in", "far:out")
    assert r.code == 43, r.errors()
    assert "far" in r.errors() and not (tmp_path / "out").exists()


@pytest.mark.parametrize("signo", [signal.SIGINT, signal.SIGKILL])
def test_interrupt_leaves_no_process(islands, tmp_path, signo):
    """Ends, carriers and the commands that they started."""
    (tmp_path / "in").write_bytes(pattern(20 * BLOCK))
    run = islands.copy("far:in", "third:out", wait=False, env={
        "SLUICE_FAULT": "stall:lane=0,block=2,ms=60000;stall:lane=1,block=2,ms=60000"})
    mark = str(tmp_path).encode()

    def ours():
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open("/proc/%s/environ" % pid, "rb") as f:
                    if b"SLUICE_TEST_HOME=" + mark in f.read():
                        found.append(int(pid))
            except OSError:
                pass
        return found

    run.expect("over ssh")
    wait_until(lambda: len(ours()) > 6)
    time.sleep(0.5 * SLOW)
    run.signal(signo)
    assert run.wait(10) == (20 if signo == signal.SIGINT else -signo), run.errors()
    wait_until(lambda: not ours(), 4)


def join(islands):
    """A wire between near and far, with a v0 at each end."""
    near, far = islands.names["near"], islands.names["far"]
    subprocess.run(["ip", "-n", near, "link", "add", "v0", "type", "veth", "peer", "name", "v0",
                    "netns", far], check=True)
    for name in (near, far):
        subprocess.run(["ip", "-n", name, "link", "set", "v0", "up"], check=True)


def link_local(islands, host):
    """Its link-local address on the wire, once it is usable."""
    def look():
        out = subprocess.run(["ip", "-n", islands.names[host], "-6", "-o", "addr", "show", "dev", "v0",
                              "scope", "link", "-tentative"], capture_output=True, text=True).stdout
        return out.split()[3].split("/")[0] if out else None
    wait_until(look, timeout=10 * SLOW)
    return look()


def test_link_local_address_with_zone_works(islands, tmp_path):
    """There are no other addresses; the lanes use the typed zone too."""
    data = pattern(10 * BLOCK)
    (tmp_path / "in").write_bytes(data)
    join(islands)
    link_local(islands, "near")
    to = link_local(islands, "far") + "%v0"
    start = islands.bench.start
    sink = start(["ip", "netns", "exec", islands.names["far"], program("rdrecv"), "-v", "0", "key",
                  tmp_path / "out"])
    port = sink.expect("listening on ").split("listening on ")[1].split()[0].rsplit(":", 1)[1]
    source = start(["ip", "netns", "exec", islands.names["near"], program("rdsend"), "-v", to, port, "key",
                    tmp_path / "in"])
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    assert (tmp_path / "out").read_bytes() == data
    assert "over tcp [%s]:%s" % (to, port) in source.errors()


def test_lanes_use_the_port_range(islands, tmp_path):
    (tmp_path / "in").write_bytes(pattern(2 * BLOCK))
    join(islands)
    for n, host in enumerate(("near", "far"), 1):
        subprocess.run(["ip", "-n", islands.names[host], "addr", "add", "10.77.9.%d/24" % n, "dev", "v0"],
                       check=True)
    # The first port of the range is taken.
    taken = islands.bench.start(["ip", "netns", "exec", islands.names["far"], program("rdrecv"), "-v", "7300",
                                 "key", tmp_path / "no"])
    taken.expect("listening on ")
    # The address belongs to the sink's peer, so the sink connects.
    run = islands.copy("-v", "--transport=tcp", "--port-range=7300-7301", "far:in", "out")
    assert run.code == 0, run.errors()
    assert "over tcp 10.77.9.2:7301" in run.errors(), run.errors()
    assert (tmp_path / "out").read_bytes() == (tmp_path / "in").read_bytes()


@pytest.mark.parametrize("transport, code", [("tcp", 43), ("auto", 0)])
def test_named_address_is_used_with_swapped_roles(islands, tmp_path, transport, code):
    """No lane uses a network that was not named, although the other end could listen there."""
    (tmp_path / "in").write_bytes(pattern(2 * BLOCK))
    join(islands)
    for n, host in enumerate(("near", "far"), 1):
        subprocess.run(["ip", "-n", islands.names[host], "addr", "add", "10.77.9.%d/24" % n, "dev", "v0"],
                       check=True)
    # Only far has the address, and no route leads there.
    subprocess.run(["ip", "-n", islands.names["far"], "addr", "add", "10.77.8.2/32", "dev", "lo"], check=True)
    run = islands.copy("-v", "--transport=%s" % transport, "--address=10.77.8.2", "--connect-timeout=4",
                       "in", "far:out")
    assert run.code == code, run.errors()
    assert "over tcp 10.77.9" not in run.errors(), run.errors()
    assert "over ssh" in run.errors()
    assert (tmp_path / "out").exists() == (code == 0)
