# SPDX-License-Identifier: Apache-2.0
"""Hostile places: what an end is offered, which peer answers its connections, and which callers reach its port."""

import os
import resource
import socket

import pytest

from arena import SOON, ends, fails, untouched
from doors import STRANGERS
from hosts import SLOW

import wire
from peer import RDMA, SOURCE, TCP, U32, data_record, end_record, file_record, total_of

# ---- offers ---------------------------------------------------------------------------------------

def place(address, port, transport=TCP):
    family = 6 if ":" in address else 4
    raw = socket.inet_pton(socket.AF_INET6 if family == 6 else socket.AF_INET, address)
    return dict(transport=transport, family=family, port=port, addr=raw)


OFFERS = {
    "nothing": [], "broadcast": [place("255.255.255.255", 9)], "nobody": [place("0.0.0.0", 9)],
    "multicast": [place("224.0.0.1", 9), place("ff02::1", 9)], "nobody-6": [place("::", 9)],
    "mapped": [place("::ffff:127.0.0.1", 9)], "link-local": [place("fe80::1", 9)],
    "closed-ports": [place("127.0.0.1", 1 + i) for i in range(16)],
    "rdma-only": [place("127.0.0.1", 9, RDMA)] * 16,
}
BAD_OFFERS = {
    "port-0": [place("127.0.0.1", 0)], "transport-0": [place("127.0.0.1", 9, 0)],
    "transport-3": [place("127.0.0.1", 9, 3)], "family-5": [dict(place("127.0.0.1", 9), family=5)],
    "more-bytes": [dict(place("127.0.0.1", 9), addr=bytes(range(16)))],
    "17-of-tcp": [place("127.0.0.1", 9)] * 17, "33": [place("127.0.0.1", 9)] * 33,
    "255": [place("127.0.0.1", 9)] * 255,
}


@pytest.mark.parametrize("what", OFFERS)
def test_useless_offers_swap_the_roles_or_fail(arena, what):
    """The roles swap, or there is no route: never a copy, never a hang."""
    e = arena.source(listens=False, connect_timeout_ms=1000, timeout_ms=3000).orders()
    e.hello()
    e.frames.send("OFFER", round=0, session=1, places=OFFERS[what], no_rdma="")
    assert e.frames.expect("NOROUTE")["round"] == 0
    assert e.frames.expect("OFFER")["round"] == 1
    e.frames.send("NOROUTE", round=1, why="\x1b[31mno way back")
    e.frames.expect("STUCK")
    e.frames.send("ERROR", code=35, host="", text="no way")
    fails(e, 35)


@pytest.mark.parametrize("what", BAD_OFFERS)
def test_invalid_offer_fails(arena, what):
    e = arena.source(listens=False).orders()
    e.hello()
    e.frames.send("OFFER", round=0, session=1, places=BAD_OFFERS[what], no_rdma="")
    fails(e, 12)


def test_second_offer_fails(arena):
    e = arena.source(listens=False).orders()
    e.hello()
    e.listen()
    e.frames.send("OFFER", round=0, session=1, places=[place("127.0.0.1", 9)], no_rdma="")
    fails(e, 12)


@pytest.mark.parametrize("answer", ["nothing", "garbage", "its-own", "wrong-key", "wrong-lane", "wrong-session",
                                    "wrong-role", "another-epoch", "another-shape", "half"])
def test_peer_without_the_secret_gets_no_data(arena, answer):
    """Nothing of the file is sent to a peer without the secret."""
    e = arena.source(listens=False, connect_timeout_ms=1500, timeout_ms=3000).orders()
    e.hello()
    listener = e.listen()
    lane = e.accept(answer=False)
    heard = lane.take(wire.LANE_HELLO_SIZE)
    lane.raw({
        "nothing": b"", "garbage": os.urandom(wire.LANE_HELLO_SIZE), "its-own": heard,
        "wrong-key": lane.hello(1, key=wire.Key(bytes(32), bytes(32), bytes(32))),
        "wrong-lane": lane.hello(1, lane=1), "wrong-session": lane.hello(1, session=1), "wrong-role": lane.hello(1, **{"from": SOURCE}),
        "another-epoch": lane.hello(1, epoch=9), "another-shape": lane.hello(1, depth=9),
        "half": lane.hello(1)[:32]}[answer])
    listener.close()
    assert lane.closed(5 * SLOW)
    e.frames.expect("NOROUTE", "STUCK", timeout=SOON)
    e.hang_up()
    fails(e, 44, 35, verdict=False)


# ---- callers at an end's port -----------------------------------------------------------------------


@pytest.mark.parametrize("what", STRANGERS)
def test_strangers_at_a_lane_port_are_disconnected(arena, what):
    """They are disconnected, and the transfer is not affected."""
    e = arena.sink().orders()
    e.hello()
    e.offered()
    stranger = e.dial(greet=False)
    stranger.raw(STRANGERS[what](stranger))
    if what == "half":
        stranger.sock.shutdown(socket.SHUT_WR)
    assert stranger.closed()
    lane = e.dial()
    e.frames.send("CHOICE", transport=TCP, why="")
    stranger = e.dial(greet=False)
    stranger.raw(STRANGERS[what](stranger))
    lane.records(file_record(size=4), data_record(b"good"), end_record(b"good"))
    e.result()
    e.end(**total_of(b"good"))
    ends(e, 0)
    assert (arena.target / "f").read_bytes() == b"good"


def test_caller_may_state_a_smaller_depth(arena):
    """As a server with little memory left may: the copy succeeds."""
    e = arena.sink().orders()
    e.hello()
    e.offered()
    lane = e.dial(greet=False)
    lane.shape["depth"] = 1
    assert lane.greet()["depth"] == e.depth > 1
    e.frames.send("CHOICE", transport=TCP, why="")
    lane.records(file_record(size=4), data_record(b"good"), end_record(b"good"))
    e.result()
    e.end(**total_of(b"good"))
    ends(e, 0)


def test_hello_of_a_past_epoch_is_refused(arena):
    """A hello is valid once: neither a copy of it nor one for an earlier epoch is accepted."""
    e = arena.sink().orders()
    e.hello()
    e.offered()
    lane = e.dial(epoch=3)
    e.frames.send("CHOICE", transport=TCP, why="")
    for epoch in (3, 2, 0):
        old = e.dial(epoch=epoch, greet=False)
        old.raw(old.hello())
        assert old.closed()
    lane.records(file_record(size=4), data_record(b"good"), end_record(b"good"))
    e.result()
    e.end(**total_of(b"good"))
    ends(e, 0)


def test_next_to_last_epoch_works(arena):
    e = arena.sink().orders()
    e.hello()
    e.offered()
    lane = e.dial(epoch=U32 - 1)
    e.frames.send("CHOICE", transport=TCP, why="")
    lane.records(file_record(size=4))
    lane.close()
    e.frames.expect("LANE_DOWN")
    e.frames.send("LANE_DOWN", lane=0, epoch=U32 - 1, why="")
    fails(e, 12, 44)
    untouched(arena)


def test_a_thousand_callers_at_a_lane_port(arena):
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    e = arena.sink().orders()
    e.hello()
    e.offered()
    crowd = [socket.create_connection(("127.0.0.1", e.port)) for _ in range(1000)]
    lane = e.dial()
    e.frames.send("CHOICE", transport=TCP, why="")
    lane.records(file_record(size=4), data_record(b"good"), end_record(b"good"))
    e.result()
    e.end(**total_of(b"good"))
    ends(e, 0)
    for sock in crowd:
        sock.close()
