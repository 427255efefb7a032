# SPDX-License-Identifier: Apache-2.0
"""The port of an rdrecv, and hostile senders that have its key (tests/hostile/tls.py)."""

import os
import secrets
import socket
import ssl
import threading
import time

import pytest

from arena import HELLOS, SOON, WATCHED, all_credited, spoiled, untouched
from doors import HELLO_TO_NOBODY, KEY, STRANGERS, files_of, knock, receiver, sender, shown_out
from hosts import COUNT, SLOW, pattern, wait_until

import peer
import tls
import wire
from peer import (CELL, EXTENT, NAMES, ORDERED, SOURCE, STREAM, TCP, TOTAL_NONE, U16, U32, U64,
                  data_record, end_record, file_record, total_of)

# ---- the port of an rdrecv -----------------------------------------------------------------------------


def client_hello():
    """A real ClientHello of a client without the key."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    try:
        context.wrap_bio(incoming, outgoing).do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


def is_served(arena, rdrecv, within=None):
    """An honest rdsend is served; returns how long that took."""
    start = time.monotonic()
    rdsend = sender(arena, rdrecv.port, arena.top / "f")
    assert rdsend.wait(20) == 0, rdsend.errors()
    took = time.monotonic() - start
    assert rdrecv.wait(20) == 0, rdrecv.errors()
    assert (arena.target / "f").read_bytes() == b"beside the target"
    if within:
        assert took < within * SLOW * (3 if WATCHED else 1), took


KNOCKS = {
    "garbage": os.urandom(10000), "zeros": bytes(10000), "text": b"GET / HTTP/1.1\r\n\r\n",
    "lane-hello": HELLO_TO_NOBODY, "block": wire.block(b"x", kind=EXTENT, lane=0, epoch=0, number=0,
                                                        pos=0, file=1),
    "frame": wire.message("PING", cookie=1), "tls-alert": b"\x15\3\3\0\2\2\x28",
    "tls-of-64-KiB": b"\x16\3\1\xff\xff" + bytes(65535), "tls-of-nothing": b"\x16\3\1\0\0" * 1000,
    "tls-data": b"\x17\3\3\0\x10" + bytes(16), "client-hello": client_hello(),
    "two-client-hellos": 2 * client_hello(),
}


@pytest.mark.parametrize("what", KNOCKS)
def test_callers_without_a_key_are_disconnected(arena, what):
    """A caller without the key is disconnected at once; no file was touched; the next caller is served."""
    rdrecv = receiver(arena, arena.target / "f")
    for _ in range(5):
        shown_out(knock(rdrecv.port, KNOCKS[what]))
    assert rdrecv.proc.poll() is None
    untouched(arena)
    is_served(arena, rdrecv)


def test_client_hello_truncated_at_every_byte(arena):
    rdrecv = receiver(arena, arena.target / "f")
    hello = client_hello()
    for cut in range(1, len(hello), 1 if COUNT > 1 else 7):
        sock = knock(rdrecv.port, hello[:cut])
        sock.close()
    for cut in range(0, len(hello), 11):
        shown_out(knock(rdrecv.port, spoiled(hello, cut)))
    assert rdrecv.proc.poll() is None
    is_served(arena, rdrecv)


@pytest.mark.parametrize("first", [b"", b"\x16", b"S", client_hello()[:-1]],
                         ids=["silent", "one-byte", "of-a-lane", "nearly-a-hello"])
def test_a_thousand_callers_do_not_block_a_sender(arena, first):
    """They keep no sender out, and cost little."""
    files_of()
    rdrecv = receiver(arena, arena.target / "f")
    arena.memory.look(rdrecv.proc.pid)
    before = arena.memory.most[rdrecv.proc.pid]
    arena.memory_max = before + (64 << 20) + (100 << 20 if WATCHED else 0)
    crowd = [knock(rdrecv.port, first) for _ in range(1000)]
    is_served(arena, rdrecv, within=2 if not first else 4)
    for sock in crowd:
        sock.close()


def test_slow_handshakes_are_limited_in_time(arena):
    """No caller occupies a place for longer than a handshake may take."""
    rdrecv = receiver(arena, arena.target / "f")
    hello, stop = client_hello(), threading.Event()

    def drip():
        crowd = [knock(rdrecv.port) for _ in range(60)]
        for byte in hello:
            for sock in crowd:
                try:
                    sock.send(bytes([byte]))
                except OSError:
                    pass
            if stop.wait(0.1):
                break
        for sock in crowd:
            sock.close()
    dripping = threading.Thread(target=drip)
    dripping.start()
    time.sleep(1.5)
    try:
        is_served(arena, rdrecv, within=3)
    finally:
        stop.set()
        dripping.join()


def test_right_key_is_accepted_after_wrong_ones(arena):
    rdrecv = receiver(arena, arena.target / "f")
    for i in range(300 * COUNT):
        with pytest.raises(tls.Refused):
            tls.Client(knock(rdrecv.port), secrets.token_bytes(32))
    for identity in (b"", b"sluice:sink:-", b"root", b"x" * 200):
        try:
            tls.Client(knock(rdrecv.port), bytes.fromhex("5f" * 32), identity)
            raise AssertionError("let in with a wrong key")
        except tls.Refused:
            pass
    for _ in range(3):
        rdsend = sender(arena, rdrecv.port, arena.top / "f", key="sluice-key-1:" + "5f" * 32)
        assert rdsend.wait(10) == 40, rdsend.errors()
    assert rdrecv.proc.poll() is None
    untouched(arena)
    is_served(arena, rdrecv)


# ---- senders that have the key ----------------------------------------------------------------------------

class Guest(peer.Session):
    """A source that an rdrecv has admitted."""

    def __init__(self, arena, rdrecv):
        self.tls = tls.Client(knock(rdrecv.port), bytes.fromhex(KEY.split(":")[1]))
        super().__init__(peer.Frames(self.tls.read, self.tls.write), SOURCE, self.tls.secret())
        arena.sessions.append(self)

    def close(self):
        super().close()
        self.frames.over = True
        self.tls.close()

    def finish(self, lane, data=b"good"):
        lane.records(file_record(name="", size=len(data)), data_record(data), end_record(data))
        assert self.result()["code"] == 0
        all_credited(lane)
        self.end(**total_of(data))
        assert self.frames.expect("DONE") == total_of(data)


def test_honest_sender_is_served(arena):
    rdrecv = receiver(arena, arena.target / "f")
    guest = Guest(arena, rdrecv)
    guest.finish(guest.open(lanes=1)[0])
    assert rdrecv.wait(SOON) == 0, rdrecv.errors()
    assert (arena.target / "f").read_bytes() == b"good"


def test_times_of_a_sender_only_affect_the_report(arena):
    """They only change what is printed."""
    rdrecv = receiver(arena, "-v", arena.target / "f")
    guest = Guest(arena, rdrecv)
    lane = guest.open(lanes=1)[0]
    guest.frames.send("TIMES", **{**dict.fromkeys(peer.TIMES_NONE, U64), "kind": 3, "same_host": 1, "used": 64,
                                  "cpus": U16, "rtt_us": U32, "block": U32})
    guest.finish(lane)
    assert rdrecv.wait(SOON) == 0, rdrecv.errors()
    assert "bound by: " in rdrecv.errors().splitlines()[-2]
    assert "nan" not in rdrecv.errors() and "inf" not in rdrecv.errors()


GUESTS = {
    "garbage": (os.urandom(3000), 12), "zeros": (bytes(100), 12),
    "ping-first": (wire.message("PING", cookie=1) + wire.message("END", **TOTAL_NONE), 12),
    "greeting": (wire.message("GREETING", magic=wire.GREETING_MAGIC, version=wire.VERSION, release="1"), 12),
    "go": (wire.message("GO"), 12), "cancel": (wire.message("CANCEL", signo=9), 12),
    "detour": (wire.message("DETOUR", port=22, why=""), 12),
    "error": (wire.message("ERROR", code=22, host=b"\x1b[1m", text=b"\x1b]0;x\x07\x9b"), 22),
    "end": (wire.message("END", **TOTAL_NONE), 12),
}


@pytest.mark.parametrize("what", GUESTS)
def test_wrong_messages_of_a_sender_fail(arena, what):
    data, code = GUESTS[what]
    rdrecv = receiver(arena, arena.target / "f")
    guest = Guest(arena, rdrecv)
    guest.frames.raw(data)
    assert rdrecv.wait(SOON) == code, rdrecv.errors()
    untouched(arena)


@pytest.mark.parametrize("what", ["version-99", "same-role", "want-rdma", "lanes-0", "block-3"])
def test_invalid_hello_of_a_sender_fails(arena, what):
    over, code = HELLOS[what]
    rdrecv = receiver(arena, arena.target / "f")
    Guest(arena, rdrecv).hello(**over)
    assert rdrecv.wait(SOON) == code, rdrecv.errors()
    untouched(arena)


@pytest.mark.parametrize("after", ["tls", "hello", "offer", "lane", "copy"])
@pytest.mark.parametrize("how", ["silence", "hang-up"])
def test_sender_that_stops_times_out(arena, after, how):
    rdrecv = receiver(arena, "--timeout=1", "--connect-timeout=1", arena.target / "f")
    guest = Guest(arena, rdrecv)
    if after != "tls":
        guest.hello(lanes=1)
    if after in ("offer", "lane", "copy"):
        guest.offered()
    if after in ("lane", "copy"):
        lane = guest.dial()
    if after == "copy":
        guest.frames.send("CHOICE", transport=TCP, why="")
        lane.records(file_record(name="", flags=STREAM | ORDERED), data_record(b"some"))
    guest.frames.mute = True
    if how == "hang-up":
        guest.close()
    assert rdrecv.wait(8) in ((30, 35) if how == "silence" else (44,)), rdrecv.errors()
    untouched(arena)


@pytest.mark.parametrize("name", NAMES)
def test_name_of_a_sender_does_not_change_the_target(arena, name):
    """The target is the one that the receiver's user named, whatever name the sender gives."""
    rdrecv = receiver(arena, arena.target / "new")
    guest = Guest(arena, rdrecv)
    lane = guest.open(lanes=1)[0]
    lane.records(file_record(name=NAMES[name], size=3), data_record(b"bad"), end_record(b"bad"))
    if b"\0" in NAMES[name] or b"/" in NAMES[name] or len(NAMES[name]) > 255 or \
            NAMES[name] in (b".", b".."):
        assert rdrecv.wait(SOON) == 12, rdrecv.errors()
        untouched(arena)
        return
    assert guest.result()["code"] == 0
    all_credited(lane)
    guest.end(**total_of(b"bad"))
    assert rdrecv.wait(SOON) == 0, rdrecv.errors()
    assert sorted(p.name for p in arena.target.iterdir()) == ["f", "new"]


@pytest.mark.parametrize("what", ["directory", "contents", "question", "symlink", "attribute", "keep",
                                  "in-a-directory", "same", "have"])
def test_trees_of_a_sender_are_refused(arena, what):
    """An rdrecv accepts a stream or a file, and nothing else."""
    rdrecv = receiver(arena, arena.target / "f")
    guest = Guest(arena, rdrecv)
    lane = guest.open(lanes=1)[0]
    lane.records({
        "directory": peer.dir_record(), "contents": peer.dir_record(name="", flags=peer.CONTENTS),
        "question": file_record(flags=peer.ASK), "symlink": peer.link_records("../outside/f", name="f"),
        "attribute": file_record(id=2) + peer.xattr_record(id=2) + end_record(id=2),
        "keep": peer.keep_record(1), "in-a-directory": file_record(dir=7),
        "same": wire.record("SAME", id=1), "have": wire.record("HAVE", id=1, pos=0, len=CELL)}[what])
    assert rdrecv.wait(SOON) == 12, rdrecv.errors()
    untouched(arena)


def test_callers_during_a_transfer_do_not_disturb_it(arena):
    """Connections to the port of a session: none disturbs it or is answered."""
    files_of()
    rdrecv = receiver(arena, arena.target / "f")
    guest = Guest(arena, rdrecv)
    lane = guest.open(lanes=1)[0]
    data = pattern(3 * CELL)
    lane.records(file_record(name="", size=len(data)))
    arena.memory_max += 16 << 20
    crowd = [knock(rdrecv.port) for _ in range(1000)]
    for i in range(3):
        lane.extent(data[i * CELL:(i + 1) * CELL], pos=i * CELL)
        for what in STRANGERS:
            if what == "lane-1" or what == "half":
                continue
            sock = knock(rdrecv.port, STRANGERS[what](lane))
            crowd.append(sock)
    for what in ("tls", "wrong-key", "lane-64", "from-a-sink"):
        shown_out(knock(rdrecv.port, STRANGERS[what](lane)))
    # A recorded message is useless a second time.
    shown_out(knock(rdrecv.port, lane.hello()))
    lane.records(end_record(data))
    assert guest.result()["code"] == 0
    all_credited(lane)
    guest.end(**total_of(data))
    assert guest.frames.expect("DONE")["files"] == 1
    assert rdrecv.wait(SOON) == 0, rdrecv.errors()
    assert (arena.target / "f").read_bytes() == data
    for sock in crowd:
        sock.close()


class Proxy(threading.Thread):
    """Forwards connections and records the first bytes of each."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.to, self.heard = port, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.start()

    def run(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            far = knock(self.to)
            kept = bytearray()
            self.heard.append(kept)
            threading.Thread(target=self.pass_on, args=(near, far, kept), daemon=True).start()
            threading.Thread(target=self.pass_on, args=(far, near, None), daemon=True).start()

    def pass_on(self, one, other, kept):
        one.settimeout(None)
        try:
            while True:
                data = one.recv(65536)
                if not data:
                    break
                if kept is not None and len(kept) < 1 << 16:
                    kept += data
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def test_replayed_bytes_open_nothing(arena):
    """Recorded bytes open nothing: no lane, and no session."""
    rdrecv = receiver(arena, arena.target / "f")
    proxy = Proxy(rdrecv.port)
    rdsend = sender(arena, proxy.port, "--", "sh", "-c",
                    "head -c 300000 /dev/zero; sleep 2; head -c 300000 /dev/zero")
    wait_until(lambda: any(h[:4] == b"SLH\x93" and len(h) >= wire.LANE_HELLO_SIZE for h in list(proxy.heard)) or
               rdsend.proc.poll() is not None)
    time.sleep(0.3)
    hellos = [bytes(h[:wire.LANE_HELLO_SIZE]) for h in proxy.heard if h[:4] == b"SLH\x93"]
    handshakes = [bytes(h) for h in proxy.heard if h[:1] == b"\x16"]
    assert hellos and handshakes
    for said in hellos + handshakes:
        shown_out(knock(rdrecv.port, said))
    assert (rdsend.wait(20), rdrecv.wait(20)) == (0, 0), rdsend.errors() + rdrecv.errors()
    assert (arena.target / "f").read_bytes() == bytes(600000)
    # Another receiver with the same key has not seen any of these bytes.
    rdrecv = receiver(arena, arena.target / "f")
    for said in hellos + handshakes:
        shown_out(knock(rdrecv.port, said))
    assert rdrecv.proc.poll() is None
    proxy.listener.close()


@pytest.mark.parametrize("reads", [True, False])
def test_flood_of_a_sender_is_survived(arena, reads):
    """Endless PINGs and key updates over TLS; then the transfer continues."""
    rdrecv = receiver(arena, arena.target / "f")
    guest = Guest(arena, rdrecv)
    lane = guest.open(lanes=1)[0]
    resting = threading.Event()
    read = guest.frames.read
    if not reads:
        guest.frames.read = lambda: resting.wait(60) and read()
    pings = b"".join(wire.message("PING", cookie=i) for i in range(1000))
    begun = time.monotonic()
    for n in range(100 * COUNT):
        # A peer that reads nothing for --timeout is lost.
        if not reads and n >= 100 and time.monotonic() > begun + 4:
            break
        guest.tls.update_keys()
        guest.frames.write(pings)
    resting.set()
    guest.finish(lane)
    assert rdrecv.wait(SOON) == 0, rdrecv.errors()


@pytest.mark.parametrize("reads", [True, False])
def test_done_reaches_a_sender_that_rests(arena, reads):
    """Its answers wait behind others, for less than --timeout: as if the link were cut when all is stored. If it ends
    instead, the receiver does so at once."""
    rdrecv = receiver(arena, arena.target / "f")
    guest = Guest(arena, rdrecv)
    lane = guest.open(lanes=1)[0]
    resting, data = threading.Event(), b"good"
    read = guest.frames.read
    guest.frames.read = lambda: resting.wait(60) and read()
    # The thread may still be in a read of before.
    guest.frames.send("PING", cookie=0)
    pings = b"".join(wire.message("PING", cookie=i) for i in range(1000))
    for _ in range(1000):
        guest.frames.write(pings)
    lane.records(file_record(name="", size=len(data)), data_record(data), end_record(data))
    all_credited(lane)
    guest.end(**total_of(data))
    time.sleep(4)
    assert rdrecv.proc.poll() is None, rdrecv.errors()
    if not reads:
        # Closing a socket with unread input resets the connection.
        guest.tls.close()
        begun = time.monotonic()
    resting.set()
    if reads:
        assert guest.frames.expect("DONE") == total_of(data)
        begun = time.monotonic()
    assert rdrecv.wait(SOON) == 0, rdrecv.errors()
    assert time.monotonic() - begun < 5
    assert (arena.target / "f").read_bytes() == data
