# SPDX-License-Identifier: Apache-2.0
"""wire.py and the encoders of the programs make the same bytes from the same values."""

import os
import pathlib
import random
import subprocess

import pytest

import wire

ROOT = pathlib.Path(__file__).resolve().parents[2]
DUMP = pathlib.Path(os.environ.get("WIRE_DUMP", ROOT / "build" / "release" / "tests" / "wire_dump"))
SIZES = ("least", "usual", "most")
U64, U32, U16, I64 = 2**64 - 1, 2**32 - 1, 2**16 - 1, 2**63 - 1
LANES, DEPTH, BLOCK = 64, 1024, 4 << 20


def text(usual, room):
    """A text in the three sizes. room includes the NUL, which is not sent."""
    return b"", usual.encode(), bytes(i % 255 + 1 for i in range(room - 1))


def run(length, start=1):
    return bytes(length), bytes(range(start, start + length)), b"\xff" * length


def places(count, port):
    made = []
    for i in range(count):
        length = 16 if i % 2 else 4
        made.append({"transport": 2 if i % 2 else 1, "family": 6 if i % 2 else 4,
                     "port": port or 7000 + i,
                     "addr": bytes((16 * i + b + 1) % 256 for b in range(length)),
                     "rate": U32 if port else 100000 * (i + 1), "adapter": 255 if port else i})
    return made


def component(usual):
    """A text in the three sizes that is a file name, so it has no slash."""
    least, middle, most = text(usual, COMPONENT)
    return least, middle, most.replace(b"/", b"_")


def several(counts, each):
    """For each size a list of so many each(i, most)."""
    return tuple([each(i, counts.index(count) == 2) for i in range(count)] for count in counts)


HOST, TEXT, NAME, COMPONENT, CELL = 256, 1024, 4096, 256, 256 << 10
COUNTS = [(0, 0x0102030405060708, U64), (0, 0x1112131415161718, U64), (0, 0x2122232425262728, U64)]
TOTAL = dict(files=COUNTS[0], same=(0, 0x5152535455565758, U64),
             others=(0, 0x6162636465666768, U64), failed=COUNTS[1], bytes=COUNTS[2],
             digest_low=(0, 0x3132333435363738, U64), digest_high=(0, 0x4142434445464748, U64),
             incomplete=(0, 0, 0), target=(0, 0x7172737475767778, U64))


def numbered(i, most):
    return U32 - i if most else 1 + i * 0x01020304


NOROUTE = dict(round=(0, 1, 1), why=text("refused", TEXT))
DETOUR = dict(port=(1, 7000, U16), why=text("no route", TEXT))
PING = dict(cookie=COUNTS[1])
LANE = dict(lane=(0, 3, LANES - 1), epoch=(0, 0x01020304, U32))
SHAPE = dict(depth=(1, 12, DEPTH), block_size=(4096, 256 << 10, BLOCK))

TIMES = dict(
    kind=(0, 2, 3), same_host=(0, 1, 1), used=(0, 2, LANES), cpus=(0, 0x0102, U16),
    rtt_us=(0, 0x01020304, U32), block=(0, 0x11121314, U32), window=(0, 0x4142434445464748, U64),
    moved=(0, 0x5152535455565758, U64), ns_fill=(0, 0x6162636465666768, U64),
    ns_free=(0, 0x7172737475767778, U64), ns_send=(0, 0x2122232425262728, U64),
    ns_idle=(0, 0x1112131415161718, U64), ns_paced=(0, 0x0102030405060708, U64),
    ns_block=(0, 0x0807060504030201, U64), ns_store=(0, 0x1817161514131211, U64),
    ns_finish=(0, 0x2827262524232221, U64), ns_cpu=(0, 0x3132333435363738, U64),
    ns_hottest=(0, 0x3837363534333231, U64), ns_busiest=(0, 0x4847464544434241, U64),
    ns_longest=(0, 0x5857565554535251, U64), ns_cipher=(0, 0x6867666564636261, U64),
    ns_compress=(0, 0x7877767574737271, U64))

SAMPLES = {
    "HELLO": dict(
        version=(wire.VERSION,) * 3, role=(1, 2, 2), want=(0, 2, 3), features=COUNTS[0],
        lanes=(1, 2, LANES), memory=COUNTS[1], lockable=(0, 8 << 20, U64),
        timeout_ms=(0, 15000, 2**31 - 1), host_id=COUNTS[2], rdma_op=(0, 2, 3), rails=(0, 2, U16),
        encrypt=(0, 1, 2), ciphers=(0, 0x31323334, U32), nonce=run(32), host=text("storage2", HOST), no_rdma=text("no active port", TEXT), **SHAPE),
    "OFFER": dict(round=(0, 1, 1), session=(1, 0x0102030405060708, U64), places=([], places(2, 0), places(32, U16)),
                  no_rdma=text("rdma off", TEXT)),
    "CHOICE": dict(transport=(1, 2, 3), why=text("no route", TEXT)),
    "NOROUTE": NOROUTE,
    "LANE_DOWN": dict(why=text("reset", TEXT), **LANE),
    "LANE_STORED": dict(stored=COUNTS[1], damaged=(0, 1, 1), **LANE),
    "LANE_CHECK": dict(mtu=(0, 0x11121314, U32), **LANE),
    "LANE_HELD": dict(mtu=(0, 0x11121314, U32), busy=(0, 1, 1), **LANE),
    "PING": PING,
    "PONG": PING,
    "FILE_RESULT": dict(file=(0, 0x01020304, U32), code=(1, 11, 45), text=text("disk full", TEXT)),
    "STORED": dict(files=several((1, 3, 4096), lambda i, most: {"file": numbered(i, most)})),
    "ANSWERS": dict(answers=several((1, 5, 4096), lambda i, most: {
        "file": numbered(i, most), "answer": 1 + i % 6})),
    "CELLS": dict(
        file=(1, 0x01020304, U32), pos=(0, 0x0102030405080000, 2**63 - 2048 * CELL),
        digests=([{"low": 0, "high": 0}],
                 [{"low": 0x3132333435363738 + i, "high": 0x4142434445464748 + i}
                  for i in range(2)],
                 [{"low": U64 - i, "high": U64 - i} for i in range(2048)])),
    "END": {**TOTAL, "incomplete": (0, 1, 1), "target": (0, 0, 0)},
    "DONE": TOTAL,
    "TIMES": TIMES,
    "ERROR": dict(code=(1, 44, 45), host=text("storage2", HOST),
                  text=text("write x: No space left on device", TEXT)),
    "GREETING": dict(magic=(wire.GREETING_MAGIC,) * 3, version=(0, wire.VERSION, U16),
                     release=text("0.1.0", 64)),
    "START": dict(
        version=(wire.VERSION,) * 3, role=(1, 2, 2), want=(0, 2, 3), verbose=(0, 1, 3),
        flags=(0, 0x10000008001, 2**54 - 1), secret=run(32), lanes=(0, 2, LANES), depth=(0, 12, DEPTH),
        block_size=(0, 256 << 10, BLOCK), memory=COUNTS[1], bwlimit=COUNTS[2],
        timeout_ms=(0, 15000, 2**31 - 1), connect_timeout_ms=(0, 10000, 2**31 - 1),
        port_lo=(0, 7000, U16), port_hi=(0, 7010, U16), host=text("storage1", HOST),
        peer=text("storage2", HOST), address=text("10.0.0.1", HOST), target=text("~/data", NAME),
        min_size=(0, 0x3132333435363738, U64), max_size=(0, 0x4142434445464748, U64),
        max_delete=(0, 0x5152535455565758, U64), digest=(0, 2, 4),
        chmod=text("u+rwX,go-w", 1024), chown=text("alice:users", HOST),
        suffix=text(".old", 256), backup_dir=text("../before", NAME),
        rdma_op=(0, 2, 3), rails=(0, 2, U16), direct=(0, 1, 2), memory_bytes=(0, 0x6162636465666768, U64),
        tos=(0, 105, 256), encrypt=(0, 1, 2)),
    "WANT": dict(name=text("*.dat", NAME)),
    "GO": {},
    "NOTE": dict(level=(0, 2, 4), text=text("tcp taken", TEXT)),
    "PROGRESS": dict(bytes=COUNTS[0], total=COUNTS[1], files=COUNTS[2], total_known=(0, 1, 1)),
    "VERDICT": dict(
        code=(0, 23, 45), host=text("storage2", HOST), text=text("1 of 2 files failed", TEXT),
        transport=(0, 2, 3), lanes=(0, 2, LANES), how=text("tcp 10.0.0.1:7000", HOST),
        why=text("no active port", TEXT), encrypted=(0, 1, 2), cipher=(0, 1, 2), ns=(0, 0x5152535455565758, U64),
        **TIMES, **TOTAL,
        **{name: (0, 0x0101010101010101 * (i + 1 if i < 9 else i + 7), U64)
           for i, (name, _) in enumerate(wire.COUNTS)}),
    "CANCEL": dict(signo=(1, 15, 64)),
    "DETOUR": DETOUR,
    "STUCK": NOROUTE,
    "LISTENING": DETOUR,
    "RULE": dict(include=(0, 1, 1), pattern=text("/build/**.o", NAME)),
    "LISTED": dict(name=text("*.dat", NAME)),
    "TAKEN": dict(name=text("*.dat", NAME)),
    "MODULE": dict(version=(wire.VERSION,) * 3, name=text("data", 64)),
    "LIST": dict(name=text("*.dat", NAME)),
    "ENTRY": dict(kind=(1, 4, 4), mode=(0, 0o640, 0o7777), size=COUNTS[0], mtime=(0, 0x1112131415161718, U64),
                  name=(b".", b"file", text("file", NAME)[2].replace(b"/", b"_")), about=text("target", NAME)),
    "EVENT": dict(what=(1, 3, 5), code=(0, 42, 45), deleted=(0, 1, 1), size=COUNTS[0],
                  change=text("cL+++++++++", 16), digest=text("0123456789abcdef", 130),
                  path=text("a/b c/d", 48 << 10)),
    "FINDING": dict(state=(1, 3, 4), family=(0, 4, 6), rdma=(0, 1, 1),
                    addr=(bytes(16), bytes((1, 2, 3, 4)) + bytes(12), b"\xff" * 16),
                    name=text("pcie", 32), subject=text("mlx5_0 port 1", 128),
                    what=text("the slot is narrow", TEXT), remedy=text("use another one", TEXT)),
}

ID = (1, 0x01020304, U32)
WANT, DIR = (0, 0x11121314, U32), (0, 0x31323334, U32 - 1)
ATTR = dict(
    mode=(0, 0o644, 0o7777), uid=(0, 1000, U32), gid=(0, 0x21222324, U32),
    mtime_s=(-2**63, 0x1112131415161718, I64), atime_s=(-1, 0x2122232425262728, I64),
    mtime_ns=(0, 0x01020304, 999999999), atime_ns=(0, 0x11121314, 999999999))
RECORDS = [
    ("FILE", dict(
        id=ID, want=WANT, dir=DIR, flags=(3, 0, 254), type=(1, 1, 1),
        size=(0, 0x0102030405060708, I64), major=(0, 0, 0), minor=(0, 0, 0), link_to=(0, 0, 0),
        name=component("a b.dat"), **ATTR)),
    ("FILE", dict(
        id=(2, 0x01020305, U32 - 1), want=(0, 0, 0), dir=(0, 0, 0), flags=(32, 0, 8),
        type=(2, 6, 3), size=(1, 0, 0), major=(0, 0x41424344, 0), minor=(0, 0x51525354, 0),
        link_to=(0, 0, U32), name=component("sda"), **ATTR)),
    ("DATA", dict(id=ID, pos=(0, 0x0102030405060708, I64 - 21),
                  bytes=(b"", b"bytes of a small file", b"bytes of a small file"))),
    ("HOLE", dict(id=ID, pos=(0, 0x0102030405060708, I64 - 1), len=(1, 0x1112131415161718, 1))),
    ("HAVE", dict(id=ID, pos=(0, 0x0102030405080000, 2**63 - CELL),
                  len=(1, 0x1112131415161718, CELL - 1))),
    ("SAME", dict(id=ID)),
    ("FILE_END", dict(
        id=ID, size=(0, 0x0102030405060708, I64), data=(0, 0x0102030405060706, I64 - 1),
        holes=(0, 2, 1), lanes=(0, 2, LANES), digest_low=(0, 0x3132333435363738, U64),
        digest_high=(0, 0x4142434445464748, U64), code=(0, 42, 45),
        content=(b"", bytes([1, 2, 3, 4]), b"\xff" * 32), text=text("it shrank", TEXT))),
    ("DIR", dict(id=ID, want=WANT, parent=DIR, flags=(1, 0, 2), name=component("a dir"), **ATTR)),
    ("OWNER", dict(group=(0, 1, 1), id=(0, 0x21222324, U32),
                   name=(b"o",) + text("users", COMPONENT)[1:])),
    ("XATTR", dict(id=ID, size=(0, 0xab12, 64 << 10), pos=(0, 0x0102, (64 << 10) - 18),
                   name=(b"x",) + text("user.sluice", COMPONENT)[1:],
                   bytes=(b"",) + (b"a piece of a value",) * 2)),
    ("KEEP", dict(dir=ID, last=(1, 0, 1),
                  names=(b"", wire.names("one"), wire.names(*[component("")[2]] * 3)))),
    ("ORIGIN", dict(want=WANT, parent=DIR, dir=(1, 0, 1), low=(0, 0x3132333435363738, U64),
                    high=(0, 0x4142434445464748, U64), name=(b"", b"x", component("")[2]))),
]

HEAD = dict(kind=(1, 2, 2), number=COUNTS[1], len=(0, 0x00010203, BLOCK), file=(0, 0x21222324, U32),
            pos=(0, 0x3132333435363738, I64 - BLOCK), hash_low=(0, 0x4142434445464748, U64),
            hash_high=(0, 0x5152535455565758, U64), **LANE)
CREDIT = dict(epoch=LANE["epoch"], stored=COUNTS[1])
LANE_HELLO = {"from": (1, 2, 2), "accepting": (0, 1, 1), "ring": (0, 0x6162636465666000, U64 - 4095),
              "ring_key": (0, 0x71727374, U32), **LANE, **SHAPE}
NOTICE = dict(epoch=LANE["epoch"], slot=(0, 3, 1023), len=(64, 64 + 0x00010203, 64 + BLOCK))
LANE_PRIVATE = {**LANE, **SHAPE}


def of_size(values, size):
    return {name: value[SIZES.index(size)] for name, value in values.items()}


def key(size):
    at = SIZES.index(size)
    return wire.Key(run(32)[at], run(32)[at], run(32, 100)[at], (0, 0x0102030405060708, U64)[at])


@pytest.fixture(scope="module")
def dumped():
    lines = subprocess.run([DUMP], check=True, capture_output=True, text=True).stdout
    return {tuple(line.split(" ")[:2]): bytes.fromhex(line.split(" ")[2])
            for line in lines.splitlines()}


def test_every_sample_is_compared(dumped):
    names = list(SAMPLES) + ["RECORDS", "block_head", "credit", "notice", "lane_hello", "lane_private"]
    assert set(dumped) == {(name, size) for name in names for size in SIZES}
    assert set(SAMPLES) == set(wire.MESSAGES)
    assert {name for name, _ in RECORDS} == set(wire.RECORDS)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", SAMPLES)
def test_message_encodings_agree(dumped, name, size):
    values = of_size(SAMPLES[name], size)
    made = wire.body(name, **values)
    assert made.hex() == dumped[name, size].hex()
    number = wire.MESSAGES[name][0]
    (framed,) = wire.Framer().feed(wire.message(name, **values))
    assert framed == (number, made)
    parsed_name, parsed = wire.parse(number, made)
    assert parsed_name == name
    assert wire.body(name, **parsed) == made


@pytest.mark.parametrize("size", SIZES)
def test_record_encodings_agree(dumped, size):
    made = b"".join(wire.record(name, **of_size(values, size)) for name, values in RECORDS)
    assert made.hex() == dumped["RECORDS", size].hex()
    parsed = wire.records(made)
    assert [name for name, _ in parsed] == [name for name, _ in RECORDS]
    assert b"".join(wire.record(name, **values) for name, values in parsed) == made


@pytest.mark.parametrize("size", SIZES)
def test_lane_encodings_agree(dumped, size):
    head = wire.block_head(**of_size(HEAD, size))
    assert head.hex() == dumped["block_head", size].hex()
    assert wire.parse_block_head(head)["number"] == HEAD["number"][SIZES.index(size)]
    assert wire.credit(**of_size(CREDIT, size)).hex() == dumped["credit", size].hex()
    assert wire.notice(**of_size(NOTICE, size)).hex() == dumped["notice", size].hex()
    hello = wire.lane_hello(key(size), **of_size(LANE_HELLO, size))
    assert hello.hex() == dumped["lane_hello", size].hex()
    assert wire.parse_lane_hello(key(size), hello)["lane"] == LANE["lane"][SIZES.index(size)]
    private = wire.lane_private(key(size), **of_size(LANE_PRIVATE, size))
    assert private.hex() == dumped["lane_private", size].hex()


def test_frames_are_read_from_any_pieces():
    chance = random.Random(1)
    sent = [wire.message(name, **of_size(SAMPLES[name], "usual")) for name in SAMPLES]
    stream, framer, got = b"".join(sent), wire.Framer(), []
    while stream:
        piece = chance.randint(1, 40)
        got += framer.feed(stream[:piece])
        stream = stream[piece:]
    assert [wire.frame(number, body) for number, body in got] == sent


def test_truncated_input_does_not_parse():
    for name, values in SAMPLES.items():
        made = wire.body(name, **of_size(values, "usual"))
        for cut in range(len(made)):
            with pytest.raises(wire.Malformed):
                wire.parse(wire.MESSAGES[name][0], made[:cut])
        with pytest.raises(wire.Malformed):
            wire.parse(wire.MESSAGES[name][0], made + b"\0")


def test_changed_head_does_not_parse():
    head = wire.block_head(**of_size(HEAD, "usual"))
    hello = wire.lane_hello(key("usual"), **of_size(LANE_HELLO, "usual"))
    for at in range(64):
        with pytest.raises(wire.Malformed):
            wire.parse_block_head(head[:at] + bytes([head[at] ^ 1]) + head[at + 1:])
    for at in range(len(hello)):
        with pytest.raises(wire.Malformed):
            wire.parse_lane_hello(key("usual"),
                                  hello[:at] + bytes([hello[at] ^ 1]) + hello[at + 1:])
