# SPDX-License-Identifier: Apache-2.0
"""An rdrecv whose port is crowded admits its own sender, and an rdsend that is turned away tries again."""

import random
import re
import resource
import signal
import socket
import subprocess
import threading
import time

import pytest

from floods import ADDRESSES, RATE, Flood, patience
from hosts import COUNT, FAR, KEY, SLOW, environment, program, wait_until
from proxies import admit_the_third

SECONDS = 10 if COUNT == 1 else 60
pytestmark = pytest.mark.needs("tcp", why="strangers come from addresses of loopback")


def recorded_hello():
    """The ClientHello of an rdsend with the right key, as an eavesdropper records it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        rdsend = subprocess.Popen([program("rdsend"), "127.0.0.1", str(server.getsockname()[1]), "-"],
                                  env=environment({"RD_KEY": KEY}), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        sock, _ = server.accept()
        sock.settimeout(20)
        hello = sock.recv(4096)
        sock.close()
        rdsend.kill()
        rdsend.wait()
    assert hello[0] == 0x16 and len(hello) == 5 + int.from_bytes(hello[3:5], "big")
    return hello


def copies(bench, tmp_path, sink, *options):
    source = bench.send(sink.port, *options, tmp_path / "in")
    assert source.wait() == 0, source.errors()
    assert sink.wait() == 0, sink.errors()


def is_admitted(bench, tmp_path, sink):
    """Among others, within the time that admission may take in addition."""
    seconds = patience(2, lambda: copies(bench, tmp_path, bench.receive(tmp_path / "calm")))
    copies(bench, tmp_path, sink, "--connect-timeout=%g" % seconds)


@pytest.mark.parametrize("addresses", ADDRESSES)
@pytest.mark.parametrize("what", ["half", "whole"])
def test_sender_is_admitted_among_a_crowd(bench, tmp_path, what, addresses):
    hello, rng = recorded_hello(), random.Random(what + addresses)
    flood = Flood(ADDRESSES[addresses], hello if what == "whole" else hello[:len(hello) // 2])
    (tmp_path / "in").write_bytes(b"data")
    served = 0
    flood.port = bench.receive("-w0.1").port
    flood.start()
    try:
        end = time.monotonic() + SECONDS * SLOW
        while time.monotonic() < end:
            sink = bench.receive(tmp_path / "out")
            flood.port, crowd = sink.port, flood.made + rng.randrange(10, 3 * RATE)
            wait_until(lambda: flood.made >= crowd, 60)
            is_admitted(bench, tmp_path, sink)
            served += 1
    finally:
        flood.end()
    assert served > 0
    flood.expect_rate()


def test_idle_connections_up_to_the_descriptor_limit(bench, tmp_path):
    """accept(2) looks for a free descriptor before it checks whether a connection waits."""
    limit = 64
    (tmp_path / "in").write_bytes(b"data")
    sink = bench.receive(tmp_path / "out", preexec=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
    idle = [socket.create_connection(("127.0.0.1", sink.port)) for _ in range(57)]
    for sock in idle:
        sock.sendall(b"\x16")
    is_admitted(bench, tmp_path, sink)
    assert (tmp_path / "out").read_bytes() == b"data"


def test_stalled_handshake_is_dropped_after_two_seconds(bench):
    sink = bench.receive()
    begin = time.monotonic()
    sock = socket.create_connection(("127.0.0.1", sink.port))
    sock.sendall(recorded_hello())
    sock.settimeout(30)
    try:
        while sock.recv(4096):
            pass
    except ConnectionError:
        pass
    assert 1.5 < time.monotonic() - begin < 4 * SLOW
    assert sink.proc.poll() is None


def doors(server, opening):
    """Closes connections until `opening' returns true; returns how many there were."""
    turned_away = 0
    server.settimeout(0.1)
    while not opening(turned_away):
        try:
            sock, _ = server.accept()
        except socket.timeout:
            continue
        sock.recv(64)
        sock.close()
        turned_away += 1
    return turned_away


def test_rejected_sender_tries_again(bench, tmp_path):
    (tmp_path / "in").write_bytes(b"data")
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    source = bench.send(port, "--connect-timeout=%d" % (20 * SLOW), tmp_path / "in")
    assert doors(server, lambda n: n >= 3 or source.proc.poll() is not None) == 3, source.errors()
    server.close()
    sink = bench.receive("-v", tmp_path / "out", port=port)
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()


def test_sender_whose_handshake_ends_too_late_tries_again(bench, tmp_path):
    """Its handshake is complete on its side, but the receiver has closed the connection."""
    (tmp_path / "in").write_bytes(b"data")
    sink = bench.receive("-v", tmp_path / "out")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20 * SLOW)
        source = bench.send(server.getsockname()[1], "--connect-timeout=%d" % (20 * SLOW), tmp_path / "in")
        admit_the_third(server, sink.port)
        assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    assert (tmp_path / "out").read_bytes() == b"data"


def test_sender_that_was_always_rejected_reports_it(bench, tmp_path):
    (tmp_path / "in").write_bytes(b"data")
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    source = bench.send(port, "--connect-timeout=1", tmp_path / "in")
    doors(server, lambda n: source.proc.poll() is not None)
    assert source.wait() == 35, source.errors()
    assert re.search(r"connect to %s port %d: .*, before the keys were verified \(\d+ tr(y|ies) in (1|0\.9\d*) s\)" % (FAR.address, port),
                     source.errors()), source.errors()


def test_busy_receiver_is_reported(bench, tmp_path):
    (tmp_path / "in").write_bytes(b"data")
    sink = bench.receive("--", "sh", "-c", "cat >%s/seen" % tmp_path)
    first = bench.send(sink.port, "--", "sh", "-c", "echo x; exec sleep 1000")
    wait_until(lambda: (tmp_path / "seen").exists() and (tmp_path / "seen").stat().st_size)
    second = bench.send(sink.port, "--connect-timeout=1", tmp_path / "in")
    assert second.wait(20) == 35 and "it is serving another peer (rdrecv takes one; rdcpd(8) serves many)" in second.errors(), second.errors()
    assert first.proc.poll() is None and sink.proc.poll() is None


@pytest.mark.parametrize("option,limit", [("--timeout=1", 1), ("--connect-timeout=1", 1)])
def test_mute_peer_is_reported_in_time(bench, tmp_path, option, limit):
    (tmp_path / "in").write_bytes(b"data")
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    begin = time.monotonic()
    source = bench.send(port, option, tmp_path / "in")
    assert source.wait(20) == 30, source.errors()
    assert time.monotonic() - begin < (limit + 3) * SLOW
    assert "connect to %s port %d: no answer" % (FAR.address, port) in source.errors()


def gaps_between_tries(bench, path, count):
    """The pauses of a sender that is turned away this many times."""
    came = []
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(20 * SLOW)
    source = bench.send(server.getsockname()[1], "--connect-timeout=%d" % (20 * SLOW), path)
    for _ in range(count + 1):
        try:
            sock, _ = server.accept()
        except socket.timeout:
            assert False, (came, source.proc.poll(), source.errors())
        came.append(time.monotonic())
        sock.recv(64)
        sock.close()
    source.signal(signal.SIGTERM)
    server.close()
    source.wait()
    return [b - a for a, b in zip(came, came[1:])]


def test_first_retries_come_soon(bench, tmp_path):
    """A receiver that starts a moment later is found a moment later."""
    (tmp_path / "in").write_bytes(b"data")
    # 10, 20, 40 and 80 ms, plus delays of the machine; sometimes those are small.
    for _ in range(30):
        gaps = gaps_between_tries(bench, tmp_path / "in", 4)
        assert all(gap >= least for gap, least in zip(gaps, (0.005, 0.015, 0.03, 0.06))), gaps
        if min(gaps[:2]) < 0.1:
            return
    assert False, gaps
