# SPDX-License-Identifier: Apache-2.0
"""Hostile callers at the ports of an rdrecv and of an end."""

import os
import resource
import socket

from arena import spoiled
from hosts import SLOW

import wire
from peer import SINK, SOURCE, U16, U32, U64

KEY = "sluice-key-1:" + "5e" * 32


def receiver(arena, *args, **how):
    how["env"] = {**arena.env(), **how.get("env", {})}
    return arena.bench.receive(*args, key=KEY, host=None, transport="--transport=tcp", **how)


def sender(arena, port, *args, key=KEY, **how):
    how["env"] = {**arena.env(), **how.get("env", {})}
    return arena.bench.send(port, *args, key=key, host=None, to="127.0.0.1",
                            transport="--transport=tcp", **how)


def knock(port, data=b""):
    sock = socket.create_connection(("127.0.0.1", port), 10)
    if data:
        sock.sendall(data)
    return sock


def shown_out(sock, timeout=15):
    sock.settimeout(timeout * SLOW)
    try:
        while sock.recv(65536):
            pass
    except ConnectionError:
        pass
    sock.close()


def files_of(limit=4096):
    """Sets the limit of this process's descriptors."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(limit, hard), hard))


# A hello of a lane, with a key that no session has.
HELLO_TO_NOBODY = wire.lane_hello(wire.Key(bytes(32), bytes(32), bytes(32)),
                                  **{"from": SOURCE, "accepting": 0, "lane": 0, "epoch": 0,
                                     "depth": 12, "block_size": 256 << 10})
# The bytes that a caller sends to a lane's port, made from an honest hello.
STRANGERS = {
    "garbage": lambda lane: os.urandom(4096), "zeros": lambda lane: bytes(72),
    "tls": lambda lane: b"\x16\3\1\0\xf0" + bytes(67), "http": lambda lane: b"GET / HTTP/1.1\r\n" * 5,
    "wrong-key": lambda lane: lane.hello(key=wire.Key(bytes(32), bytes(32), bytes(32))),
    "from-a-sink": lambda lane: lane.hello(**{"from": SINK}), "from-0": lambda lane: lane.hello(**{"from": 0}),
    "session-0": lambda lane: lane.hello(session=0), "another-session": lambda lane: lane.hello(session=U64),
    "accepting": lambda lane: lane.hello(accepting=1), "lane-1": lambda lane: lane.hello(lane=1),
    "lane-64": lambda lane: lane.hello(lane=64), "lane-65535": lambda lane: lane.hello(lane=U16),
    "last-epoch": lambda lane: lane.hello(epoch=U32), "depth-0": lambda lane: lane.hello(depth=0),
    "another-depth": lambda lane: lane.hello(depth=9), "block-3": lambda lane: lane.hello(block_size=3),
    "another-block": lambda lane: lane.hello(block_size=4096), "version-2": lambda lane: lane.hello(version=2),
    "not-zero": lambda lane: lane.hello(seals=2), "a-key-without-a-ring": lambda lane: lane.hello(ring_key=1),
    "a-ring-of-a-source": lambda lane: lane.hello(ring=4096, ring_key=1),
    "magic": lambda lane: lane.hello(magic=b"SLX\x93"), "a-bit-of-the-mac": lambda lane: spoiled(lane.hello(), 71),
    "half": lambda lane: lane.hello()[:71],
}
