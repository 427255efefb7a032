# SPDX-License-Identifier: Apache-2.0
"""A hostile control channel: messages out of order, invalid frames, random damage, and silence."""

import os
import random
import shutil
import struct
import threading
import time

import pytest

from arena import HELLOS, RDCP, SOON, ends, fails, untouched
from hosts import COUNT, SLOW

import peer
import wire
from peer import (RDMA, SINK, SOURCE, SPARSE, SSH, TCP, TOTAL_NONE, U32, U64, data_record,
                  end_record, file_record, hole_record, total_of)

# ---- states: the messages that each allows ---------------------------------------------------------

ANYTHING = {
    "OFFER": dict(round=0, session=1, places=[], no_rdma=""),
    "OFFER-1": dict(round=1, session=1, places=[], no_rdma=""),
    "CHOICE": dict(transport=TCP, why=""),
    "CHOICE-rdma": dict(transport=RDMA, why=""),
    "CHOICE-ssh": dict(transport=SSH, why=""),
    "CHOICE-nothing": dict(transport=0, why=""),
    "CHOICE-4": dict(transport=4, why=""),
    "NOROUTE-1": dict(round=1, why="x"),
    "NOROUTE-2": dict(round=2, why="x"),
    "PONG": dict(cookie=U64),
    "DONE": TOTAL_NONE,
    "TIMES-kind": {**peer.TIMES_NONE, "kind": 4},
    "FILE_RESULT": dict(file=1, code=11, text=""),
    "STORED": dict(files=[dict(file=1)]),
    "ANSWERS": dict(answers=[dict(file=1, answer=1)]),
    "CELLS": dict(file=1, pos=0, digests=[dict(low=0, high=0)]),
    "LANE_STORED": dict(lane=0, epoch=0, stored=0, damaged=0),
    "GREETING": dict(magic=wire.GREETING_MAGIC, version=wire.VERSION, release="1"),
    "START": None,
    "WANT": dict(name="more"),
    "GO": {},
    "NOTE": dict(level=0, text="x"),
    "PROGRESS": dict(bytes=1, total=1, files=1, total_known=1),
    "VERDICT": None,
    "DETOUR": dict(port=1, why="x"),
    "DETOUR-0": dict(port=0, why="x"),
    "STUCK": dict(round=1, why="x"),
    "LISTENING": dict(port=1, why=""),
    "RULE": dict(include=1, pattern="*"),
    "LISTED": dict(name="more"),
    "TAKEN": dict(name="more"),
    "MODULE": dict(version=wire.VERSION, name="more"),
    "LIST": dict(name="more"),
    "ENTRY": dict(kind=2, mode=0, size=0, mtime=0, name="f", about=""),
    "EVENT": dict(what=1, code=0, deleted=0, size=0, change="", digest="", path="f"),
    "CANCEL-0": dict(signo=0),
    "CANCEL-255": dict(signo=255),
}
VERDICT = dict(code=0, host="", text="", **TOTAL_NONE, transport=0, lanes=0, how="", why="",
               encrypted=0, cipher=0, ns=0, **peer.TIMES_NONE, **peer.COUNTS_NONE)


def say(e, what):
    name = what.split("-")[0]
    values = ANYTHING[what]
    if values is None:
        values = e.start_values if name == "START" else VERDICT
    e.frames.send(name, **values)


@pytest.mark.parametrize("what", ANYTHING)
@pytest.mark.parametrize("state", ["before-hello", "after-hello", "in-the-copy"])
def test_message_out_of_order_fails_a_sink(arena, state, what):
    """To a listening sink: every message that its source may not send now."""
    e = arena.sink().orders()
    if state == "after-hello":
        e.hello()
        e.offered()
    elif state == "in-the-copy":
        e.open()[0].records(file_record(size=4))
    if state == "after-hello" and what == "CHOICE":
        e.dial()
        say(e, what)
    say(e, what)
    fails(e, 12)
    untouched(arena)


@pytest.mark.parametrize("what", ["OFFER", "CHOICE", "NOROUTE-2", "LANE_STORED", "FILE_RESULT",
                                  "STORED", "ANSWERS", "CELLS", "END", "DONE", "START", "RULE",
                                  "LISTED", "EVENT", "TAKEN", "MODULE", "LIST", "ENTRY"])
def test_message_out_of_order_fails_a_source(arena, what):
    e = arena.source().orders()
    e.open()
    if what == "END":
        e.end(**TOTAL_NONE)
    elif what == "LANE_STORED":
        e.frames.send("LANE_STORED", lane=3, epoch=0, stored=0, damaged=0)
    elif what == "FILE_RESULT":
        e.frames.send("FILE_RESULT", file=99, code=11, text="")
    elif what == "STORED":
        # The file in transfer may be reported as stored: the source cannot know better.
        e.frames.send("STORED", files=[dict(file=99)])
    else:
        say(e, what)
    fails(e, 12)


def test_messages_before_hello_fail(arena):
    for name, values in [("PING", dict(cookie=1)), ("LANE_DOWN", dict(lane=0, epoch=0, why="")),
                         ("END", TOTAL_NONE)]:
        e = arena.sink().orders()
        e.frames.send(name, **values)
        if name == "PING":
            # This one would be harmless, but protocol.md requires HELLO first.
            e.hang_up()
            ends(e, 12, 44, verdict=False)
        else:
            fails(e, 12)


@pytest.mark.parametrize("what", HELLOS)
def test_invalid_hello_fails(arena, what):
    over, code = HELLOS[what]
    e = arena.sink().orders()
    e.hello(**over)
    fails(e, code)


@pytest.mark.parametrize("over", [
    dict(lanes=64, depth=1024, block_size=4 << 20, memory=U64, lockable=U64),
    dict(lanes=1, depth=1, block_size=4096), dict(timeout_ms=0), dict(timeout_ms=2**31 - 1),
    dict(features=U64), dict(memory=200000), dict(host=b"\xff\x1b[31m"), dict(host_id=0),
    dict(host_id=0, ciphers=2), dict(host_id=0, encrypt=2, ciphers=0), dict(encrypt=1), dict(encrypt=1, ciphers=U32),
], ids=["the-most", "the-least", "timeout-0", "timeout-2^31-1", "features", "memory", "host", "another-host",
        "another-host-chacha", "another-host-off", "encrypt-on", "all-ciphers"])
def test_valid_hello_is_accepted(arena, over):
    """The smaller of each value is agreed on, and the copy succeeds."""
    e = arena.sink().orders()
    e.hello(**over)
    if "memory" in over and over["memory"] < U64:
        # One lane, with as many blocks as fit.
        e.depth = (over["memory"] - 65536) // (e.block_size + 4096)
    e.offered()
    lane = e.dial()
    e.frames.send("CHOICE", transport=TCP, why="")
    lane.records(file_record(size=4), data_record(b"good"), end_record(b"good"))
    e.result()
    e.end(**total_of(b"good"))
    ends(e, 0)


def test_second_hello_fails(arena):
    e = arena.sink().orders()
    e.hello()
    e.frames.send("HELLO", **e.our_hello(dict(version=wire.VERSION, lanes=1, depth=1, block_size=4096,
                                              features=0, memory=U64, timeout_ms=1, host_id=1)))
    fails(e, 12)


def test_reflected_hello_fails(arena):
    """Reflection: an end's own message does not prove who the other end is."""
    e = arena.sink().orders()
    e.frames.send("HELLO", **e.frames.expect("HELLO"))
    fails(e, 12)


# ---- frames -----------------------------------------------------------------------------------

SESSION = struct.pack("<Q", 1)
RAW = {
    "type-0": wire.frame(0), "type-16": wire.frame(16), "type-63": wire.frame(63),
    "type-78": wire.frame(78), "type-255": wire.frame(255),
    "a-body-of-64-KiB-and-one": struct.pack("<IB3x", 65537, 5),
    "a-body-of-4-GiB": struct.pack("<IB3x", U32, 7),
    "padding": b"\0\0\0\0\7\0\0\1",
    "a-ping-of-nothing": wire.frame("PING"), "a-ping-of-9": wire.frame("PING", bytes(9)),
    "an-error-of-0": wire.message("ERROR", code=0, host="", text="fine"),
    "text": b"Welcome to mallory!\r\n" * 4, "tls": b"\x16\3\1\2\0\1\0\1\xfc\3\3" + bytes(90),
    "zeros": bytes(70000), "ones": b"\xff" * 70000,
    "a-text-longer-than-its-frame": wire.frame("NOROUTE", b"\0\xff\xff"),
    "an-offer-of-255": wire.frame("OFFER", b"\0" + SESSION + b"\xff" + bytes(5100) + b"\0\0"),
    "an-offer-of-33": wire.frame("OFFER", b"\0" + SESSION + b"\x21" + b"\2\4\1\1\x7f\0\0\1" .ljust(25, b"\0") * 33 +
                                 b"\0\0"),
    "an-offer-cut-short": wire.frame("OFFER", b"\0" + SESSION + b"\x20" + bytes(20)),
    "an-offer-of-session-0": wire.message("OFFER", round=0, session=0, places=[], no_rdma=""),
}


@pytest.mark.parametrize("what", RAW)
@pytest.mark.parametrize("state", ["at-first", "before-hello", "in-the-copy"])
def test_invalid_frame_fails(arena, state, what):
    """The peer, if there is one, and the conductor get the reason."""
    e = arena.sink()
    if state == "at-first":
        e.greeting()
    else:
        e.orders()
    if state == "in-the-copy":
        e.open()[0].records(file_record(size=4))
    e.frames.raw(RAW[what])
    fails(e, 12)
    untouched(arena)


def test_start_truncated_at_every_byte_fails(arena):
    """Truncated by the end of the stream, and by the length of the frame."""
    e = arena.sink()
    start = wire.body("START", **e.start_values)
    e.hang_up()
    ends(e, 44, verdict=False)
    for cut in range(0, len(start), 1 if COUNT > 1 else 3):
        e = arena.sink()
        e.greeting()
        e.frames.raw(wire.frame("START", start[:cut]))
        fails(e, 12)
        e = arena.sink()
        e.greeting()
        e.frames.raw(wire.frame("START", start)[:8 + cut])
        e.hang_up()
        fails(e, 44, verdict=False)


def test_hello_truncated_at_every_byte_fails(arena):
    for cut in range(0, 93, 1 if COUNT > 1 else 4):
        e = arena.sink().orders()
        hello = wire.body("HELLO", **e.our_hello(e.frames.expect("HELLO")))
        e.frames.raw(wire.frame("HELLO", hello[:cut]))
        fails(e, 12)


def test_frame_may_arrive_byte_by_byte(arena):
    """Slow is not wrong."""
    e = arena.sink().orders()
    hello = wire.message("HELLO", **e.our_hello(e.frames.expect("HELLO")))
    for i in range(len(hello)):
        e.frames.raw(hello[i:i + 1])
    e.frames.expect("OFFER")
    e.hang_up()
    fails(e, 44, verdict=False)


def test_a_hundred_thousand_pings_are_handled(arena):
    """They are answered while we read, and use no memory when we don't."""
    e = arena.sink().orders()
    lane = e.open()[0]
    pings = b"".join(wire.message("PING", cookie=i) for i in range(1000))
    for _ in range(100 * COUNT):
        assert e.frames.raw(pings)
    lane.records(file_record(size=4), data_record(b"good"), end_record(b"good"))
    e.result()
    e.end(**total_of(b"good"))
    ends(e, 0)


def test_pings_of_a_peer_that_never_reads_are_handled(arena):
    e = arena.sink(timeout_ms=2000)
    e.orders().open()
    stop = threading.Event()
    e.frames.read = lambda: stop.wait(60) and b""
    pings = b"".join(wire.message("PING", cookie=i) for i in range(1000))
    for _ in range(50):
        assert e.frames.raw(pings)
    e.frames.send("CANCEL", signo=15)
    assert e.proc.wait(SOON) == 20
    stop.set()


@pytest.mark.parametrize("text", ["\x1b]0;owned\x07", b"\x9b31mred", "line\nrdcp: done", "\r\x08x",
                                  "\u202eevil", b"\xff\xfe", "x" * 1023],
                         ids=["osc", "csi", "newline", "return", "bidi", "no-utf8", "long"])
def test_error_text_is_relayed(arena, text):
    """ERROR is relayed unchanged; the program that prints it escapes it."""
    e = arena.sink().orders()
    e.open()
    e.frames.send("ERROR", code=11, host=text[:255], text=text)
    said = ends(e, 11)
    assert said["text"] == (text.encode() if isinstance(text, str) else text)


@pytest.mark.parametrize("target", ["x" * 4095, "a/" * 200, "/" * 4095, "~" + "a" * 4000, "~nobody-at-all/f",
                                    "~" + "a" * 300, "/dev/full", "/dev/null/f", "target/f/g",
                                    b"target/\xff\x1b[31m/x"],
                         ids=["4095", "deep", "slashes", "user-4000", "user", "user-300", "full",
                              "null", "below-a-file", "bytes"])
def test_any_target_name_gets_an_answer(arena, target):
    """Whatever target a conductor names: one message, and no other effect."""
    e = arena.sink(flags=["FAR", "MKPATH"] if target != "/" * 4095 else ["FAR"]).orders(target=target)
    try:
        e.open()[0].records(file_record(size=5, want=0), data_record(b"bytes"), end_record(b"bytes"))
        e.frames.expect("ERROR", "STORED", "FILE_RESULT", timeout=SOON)
    except (OSError, EOFError, peer.Silence):
        pass
    e.hang_up()
    code = e.proc.wait(SOON)
    if target in ("a/" * 200, b"target/\xff\x1b[31m/x"):
        # These targets are possible; the first one is beside the target, as requested.
        shutil.rmtree(arena.top / "a", ignore_errors=True)
    else:
        assert code in (3, 11, 44)
    assert "\x1b" not in e.proc.errors()


def test_end_without_stdio_fails(arena):
    gone, kept = os.pipe()
    os.close(gone)
    for how in (dict(stdout=kept), dict(preexec=lambda: (os.close(0), os.close(1))),
                dict(preexec=lambda: os.close(1)), dict(preexec=lambda: os.close(0))):
        run = arena.bench.run([RDCP, "--end"], timeout=SOON, env=arena.env(), **how)
        assert run.code in (5, 10, 44), (run.code, run.errors())
    os.close(kept)


# ---- random damage --------------------------------------------------------------------------------

def honest_control(e, data):
    """The messages of an honest source after its HELLO."""
    return [wire.message("CHOICE", transport=TCP, why=""), wire.message("PING", cookie=7),
            wire.message("LANE_DOWN", lane=0, epoch=0, why="x"),
            wire.message("END", **total_of(data))]


def damaged(chance, data, most=4):
    data = bytearray(data)
    for _ in range(chance.randint(1, most)):
        at = chance.randrange(len(data))
        kind = chance.randrange(4)
        if kind == 0:
            data[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            data[at] = chance.choice([0, 1, 0x7f, 0x80, 0xff])
        elif kind == 2:
            del data[at:at + chance.randint(1, 8)]
            data = data or bytearray(b"x")
        else:
            data[at:at] = chance.randbytes(chance.randint(1, 8))
    return bytes(data)


@pytest.mark.parametrize("what", ["start", "hello", "control", "records", "blocks"])
@pytest.mark.parametrize("seed", range(4))
def test_random_damage_ends_the_session_in_time(arena, what, seed):
    """Honest sessions with some bytes changed: they end, with any result."""
    chance = random.Random("%s %d" % (what, seed))
    arena.memory_max += 16 << 20
    content = chance.randbytes(5000)
    for _ in range(8 * COUNT):
        e = arena.sink(wants=["*"], timeout_ms=1500, connect_timeout_ms=1500)
        try:
            e.greeting()
            start = wire.body("START", **e.start_values)
            if what == "start":
                # Not the target: then writing elsewhere would be right.
                start = damaged(chance, start[:77]) + start[77:]
            e.frames.raw(wire.frame("START", start) + wire.message("WANT", name="*") +
                         wire.message("GO"))
            if what == "hello":
                hello = wire.message("HELLO", **e.our_hello(e.frames.expect("HELLO")))
                e.frames.raw(damaged(chance, hello))
            else:
                e.hello()
                e.offered()
                lane = e.dial()
                records = file_record(size=5000) + data_record(content[:2500]) + \
                    data_record(content[2500:], pos=2500) + end_record(content) + \
                    file_record(id=2, name="g", size=9, flags=SPARSE) + hole_record(0, 9, id=2) + \
                    end_record(id=2, size=9, holes=9)
                block = lane.block(damaged(chance, records) if what == "records" else records)
                lane.raw(damaged(chance, block) if what == "blocks" else block)
                control = b"".join(honest_control(e, content))
                e.frames.raw(damaged(chance, control) if what == "control" else control)
                time.sleep(chance.random() * 0.05)
                lane.close()
        except (OSError, EOFError, peer.Silence):
            pass
        e.hang_up()
        assert e.proc.wait(SOON) >= 0, e.proc.errors()
        for path in arena.target.iterdir():
            if path.name != "f":
                path.unlink()


# ---- silence ------------------------------------------------------------------------------------

def silent_after(e, state, role):
    """Do everything that leads to a state, and then stay silent."""
    if state == "go":
        e.orders()
        return
    e.orders()
    e.hello()
    if state == "hello":
        return
    if e.start_values["flags"] & peer.FLAGS["LISTENS"]:
        e.offered()
        if state == "offer":
            return
        lane = e.dial(greet=state != "half-a-lane")
        if state == "half-a-lane":
            lane.raw(lane.hello()[:30])
            return
        if state == "lane":
            return
        e.frames.send("CHOICE", transport=TCP, why="")
    else:
        e.listen()
        if state == "offer":
            return
        lane = e.accept(answer=state != "half-a-lane")
        if state == "half-a-lane":
            return
        if state == "lane":
            return
        e.frames.expect("CHOICE")
    if state == "choice":
        return
    if role == SINK:
        lane.records(file_record(size=9), data_record(b"some"))
    else:
        lane.take_block()


@pytest.mark.parametrize("state", ["go", "hello", "offer", "half-a-lane", "lane", "choice", "copy"])
@pytest.mark.parametrize("listens", [True, False], ids=["listening", "dialing"])
@pytest.mark.parametrize("role", [SINK, SOURCE], ids=["sink", "source"])
def test_silence_times_out(arena, role, listens, state):
    e = arena.end(role, target=arena.target, wants=["outside/f"], listens=listens,
                  timeout_ms=1000, connect_timeout_ms=1000)
    silent_after(e, state, role)
    e.frames.mute = True
    start = time.monotonic()
    fails(e, 30, 35, within=8)
    assert time.monotonic() - start < 4 * SLOW
    untouched(arena)


@pytest.mark.parametrize("role", [SINK, SOURCE], ids=["sink", "source"])
def test_heartbeats_keep_a_session_alive(arena, role):
    """A peer that is alive may rest; the session ends when the heartbeats end, or when the user ends it."""
    e = arena.end(role, target=arena.target, wants=["outside/f"], timeout_ms=1000)
    silent_after(e, "copy", role)
    for _ in range(25):
        e.frames.send("PING", cookie=1)
        time.sleep(0.1)
    assert e.proc.proc.poll() is None
    e.frames.send("CANCEL", signo=2)
    fails(e, 20)


def test_slow_bytes_are_signs_of_life(arena):
    """A frame that never completes is still a sign of life; when its bytes stop, the session ends."""
    e = arena.sink(timeout_ms=1000).orders()
    e.hello()
    e.offered()
    e.frames.mute = True
    frame = wire.frame("NOROUTE", bytes(100))
    for i in range(20):
        e.frames.raw(frame[i:i + 1])
        time.sleep(0.1)
    assert e.proc.proc.poll() is None
    fails(e, 30, within=5)
