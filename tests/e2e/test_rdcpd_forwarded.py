# SPDX-License-Identifier: Apache-2.0
"""A rdcpd behind NAT: its clients reach a port that is forwarded to it, and none of the addresses that it knows."""

import pytest

from daemons import HERE
from hosts import RSH, pattern, program

pytestmark = [
    pytest.mark.needs("tcp", why="the ports are of TCP"),
    pytest.mark.may_skip("user", "a network namespace may be had by root only"),
]
SIZE = 8 << 20
BREAKS = {"SLUICE_FAULT": "break:lane=0,block=5,times=1;break:lane=1,block=7,times=2"}


class Forwarded:
    """The client near and the ssh host far are in a network of their own. Ports there lead to two daemons."""

    def __init__(self, networks, bench, tmp_path):
        self.bench, self.tmp, self.key = bench, tmp_path, tmp_path / "key"
        self.hosts = networks(3)
        self.hosts.join("10.77.41")
        assert bench.run([program("rdcpd"), "--make-key", self.key]).code == 0
        self.urls = [self.serve(i) for i in (0, 1)]
        (tmp_path / "far").mkdir()

    def serve(self, i):
        module = self.tmp / ("m%d" % i)
        module.mkdir()
        run = self.bench.start([*self.hosts.on(i), program("rdcpd"), "--key-file", self.key, "--port=0", "--module=m=%s:rw" % module])
        port = int(run.expect("listening on").rsplit(":", 1)[1])
        return "rdma://%s:%d/m/" % (HERE, self.hosts.forward(2, i, ("10.77.41.%d" % (i + 1), port)))

    def copy(self, *args, env=None):
        on = self.hosts.on(2)
        hosts = "near %s\nfar %s" % (" ".join(on), " ".join(on))
        return self.bench.run([*on, program("rdcp"), "--rsh", RSH, "--rdcp-path", program("rdcp"), "--key-file", self.key, *args],
                              cwd=self.tmp, env=dict(env or {}, SLUICE_TEST_HOSTS=hosts, SLUICE_TEST_HOME=str(self.tmp)))


@pytest.fixture
def forwarded(networks, bench, tmp_path):
    return Forwarded(networks, bench, tmp_path)


@pytest.mark.parametrize("env", [{}, BREAKS], ids=["whole", "broken"])
def test_push_and_pull(forwarded, tmp_path, env):
    """Lanes go to the address of the control connection, again after they broke."""
    (tmp_path / "in").write_bytes(pattern(SIZE))
    for what, where in (("in", forwarded.urls[0]), (forwarded.urls[0] + "in", "out")):
        r = forwarded.copy("-v", "--lanes=2", "--block-size=256k", what, where, env=env)
        assert r.code == 0 and "over tcp" in r.errors(), r.errors()
    assert (tmp_path / "m0" / "in").read_bytes() == (tmp_path / "out").read_bytes() == pattern(SIZE)


def test_two_daemons(forwarded, tmp_path):
    (tmp_path / "m0" / "in").write_bytes(pattern(SIZE))
    r = forwarded.copy(forwarded.urls[0] + "in", forwarded.urls[1])
    assert r.code == 0, r.errors()
    assert (tmp_path / "m1" / "in").read_bytes() == pattern(SIZE)


def test_an_ssh_host(forwarded, tmp_path):
    """It cannot know the client's address of the daemon: its lanes go through the client."""
    (tmp_path / "in").write_bytes(pattern(SIZE))
    for what, where in (("far:in", forwarded.urls[0]), (forwarded.urls[0] + "in", "far:far/out")):
        r = forwarded.copy(what, where)
        assert r.code == 0 and "through this host" in r.errors(), r.errors()
    assert (tmp_path / "m0" / "in").read_bytes() == (tmp_path / "far" / "out").read_bytes() == pattern(SIZE)
