# SPDX-License-Identifier: Apache-2.0
"""A rdcpd whose port is crowded serves its clients, and a connection that says nothing useful costs little."""

import os
import resource
import socket
import threading
import time

import pytest

from daemons import HERE, Daemon
from doors import files_of
from faulty import slow_fork
from floods import ADDRESSES, RATE, Flood, patience
from hosts import COUNT, DEMAND, SLOW, leftovers, wait_until
from proxies import admit_the_third, pass_all_on

SECONDS = 3 if COUNT == 1 else 60
# Of a flood, in a second, on a machine that has much else to do.
ACCEPTED = RATE / 20
CROWD = 1000
COST_MAX = 64 << 10
pytestmark = [
    pytest.mark.needs("loopback", why="strangers come from addresses of loopback"),
    pytest.mark.moves_blocks,
]


@pytest.fixture
def calm(bench, tmp_path):
    """A rdcpd at whose port there is no crowd."""
    daemon = Daemon(bench, tmp_path / "calm")
    (daemon.tmp / "in").write_bytes(b"x")
    return daemon


def copies(daemon, *options):
    r = daemon.copy(DEMAND, *options, "in", daemon.url("rw/"))
    assert r.code == 0, r.errors()


def is_served(daemon, calm, what=""):
    """The connection has 2 s, however many others there are. Only a flood of processes, which needs the key, may delay it
    for longer: it takes a processor."""
    copies(daemon, "--connect-timeout=%g" % patience(10 if what == "whole" else 2, lambda: copies(calm)))


@pytest.fixture
def descriptors():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    files_of()
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


class Peak(threading.Thread):
    """The most private memory that a rdcpd and its children had while this ran."""

    def __init__(self, daemon):
        super().__init__(daemon=True)
        self.daemon_, self.most, self.stop = daemon, 0, threading.Event()
        self.start()

    def run(self):
        while not self.stop.wait(.2):
            self.most = max(self.most, self.daemon_.memory())

    def end(self):
        self.stop.set()
        self.join()
        return self.most


SAID = {
    "nothing": lambda hello: b"", "half": lambda hello: hello[:len(hello) // 2], "half-lane": lambda hello: b"S" * 40,
    "replayed": lambda hello: hello, "whole": None,
}


@pytest.mark.parametrize("what", SAID if COUNT > 1 else ["nothing", "half", "replayed"])
def test_a_thousand_silent_connections(daemon, calm, tmp_path, descriptors, what):
    """Each says this, and then nothing more. A client is served at once, and afterwards nothing stays."""
    (tmp_path / "in").write_bytes(b"x")
    is_served(daemon, calm)
    wait_until(lambda: daemon.children() == [])
    before = daemon.memory(), daemon.descriptors()
    hello = SAID[what](daemon.recorded_hello()) if SAID[what] else None
    peak, socks = Peak(daemon), []
    for n in range(CROWD):
        socks.append(socket.create_connection((HERE, daemon.port)))
        try:
            socks[-1].sendall(daemon.fresh_hello() if hello is None else hello)
        except ConnectionError:
            pass
        if n in (CROWD // 2, CROWD - 1):
            is_served(daemon, calm, what)
    cost = (peak.end() - before[0]) / CROWD
    print("%d connections, %s: %.1f KiB of memory for each" % (CROWD, what, cost / 1024))
    assert cost < COST_MAX
    wait_until(lambda: daemon.descriptors() == before[1] and daemon.children() == [])
    for sock in socks:
        sock.close()


@pytest.mark.parametrize("what, addresses", [(w, a) for w in ("half", "replayed", "whole") for a in ADDRESSES
                                             if COUNT > 1 or (w, a) != ("whole", "one")])
def test_a_hundred_new_connections_a_second(daemon, calm, tmp_path, what, addresses):
    """half, replayed: what an eavesdropper has; whole: a user of the key sends new ones, without end."""
    (tmp_path / "in").write_bytes(b"x")
    recorded = daemon.recorded_hello()
    data = {"half": recorded[:len(recorded) // 2], "replayed": recorded, "whole": daemon.fresh_hello}[what]
    flood, served = Flood(ADDRESSES[addresses], data, daemon.port), 0
    flood.start()
    try:
        wait_until(lambda: flood.made > RATE // 2, 60)
        end = time.monotonic() + SECONDS * SLOW
        while time.monotonic() < end:
            is_served(daemon, calm, what)
            served += 1
            time.sleep(.05)
    finally:
        flood.end()
    print("%d clients were served" % served)
    assert served > 0
    flood.expect_rate(least=ACCEPTED)
    wait_until(lambda: daemon.children() == [])


def test_client_whose_handshake_ends_too_late_tries_again(daemon, tmp_path):
    """Its handshake is complete on its side, but the daemon has closed the connection."""
    (tmp_path / "in").write_bytes(b"data")
    with socket.create_server((HERE, 0)) as server:
        server.settimeout(20 * SLOW)
        run = daemon.bench.start(daemon.argv(DEMAND, "--connect-timeout=%d" % (20 * SLOW), "in",
                                             "rdma://%s:%d/rw/" % (HERE, server.getsockname()[1])), cwd=tmp_path)
        admit_the_third(server, daemon.port)
        # Its lanes.
        threading.Thread(target=pass_all_on, args=(server, daemon.port), daemon=True).start()
        assert run.wait() == 0, run.errors()
    assert (tmp_path / "rw" / "in").read_bytes() == b"data"


@pytest.mark.needs("tcp", why="lanes over RDMA do not come to the daemon's port")
def test_lanes_do_not_wait_for_processes(bench, tmp_path):
    """To start one takes 0.1 s, and users of the key want 100 in a second. A session whose lane breaks meanwhile goes on."""
    daemon = Daemon(bench, tmp_path, env=slow_fork(100))
    os.mkfifo(tmp_path / "in")
    run = bench.start(daemon.argv("-v", "--timeout=10", "--lanes=1", "--block-size=64k", "in", daemon.url("rw/")), cwd=tmp_path,
                      env={"SLUICE_FAULT": "break:lane=0,block=3"})
    with open(tmp_path / "in", "wb", buffering=0) as pipe:
        wait_until(lambda: leftovers(tmp_path / "rw"))
        flood = Flood(ADDRESSES["fifty"], daemon.fresh_hello, daemon.port)
        flood.start()
        try:
            wait_until(lambda: flood.made > 2 * RATE, 60)
            pipe.write(bytes(1 << 20))
            pipe.close()
            assert run.wait() == 0, run.errors()
        finally:
            flood.end()
    flood.expect_rate(least=ACCEPTED)
    assert "lane 0" in run.errors() and (tmp_path / "rw" / "in").read_bytes() == bytes(1 << 20), run.errors()
