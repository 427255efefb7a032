# SPDX-License-Identifier: Apache-2.0
"""A second implementation of the wire, written from docs/protocol.md only: frames, messages, records, and the bytes
of lanes. It encodes any values, valid or not, and decodes everything that is complete."""

import ctypes
import hashlib
import hmac
import struct

VERSION = 2
FRAME_BODY_MAX = 64 << 10
GREETING_MAGIC = b"\x93SLUICE\n"


class Malformed(Exception):
    pass


# ---- fields --------------------------------------------------------------------------
#
# A field is a name and a kind: a key of NUMBERS, a number of plain bytes, or a key of KINDS.

NUMBERS = {"u8": "<B", "u16": "<H", "u32": "<I", "u64": "<Q", "i64": "<q"}


def take(data, size):
    if len(data) < size:
        raise Malformed("cut short")
    return data[:size], data[size:]


def put_text(value):
    value = value.encode() if isinstance(value, str) else value
    return struct.pack("<H", len(value)) + value


def take_text(data):
    head, data = take(data, 2)
    value, data = take(data, struct.unpack("<H", head)[0])
    if b"\0" in value:
        raise Malformed("NUL in a text")
    return value, data


PLACE = [("transport", "u8"), ("family", "u8"), ("port", "u16"), ("addr", 16), ("rate", "u32"),
         ("adapter", "u8")]


def put_places(places):
    return struct.pack("<B", len(places)) + b"".join(
        put(PLACE, {"rate": 0, "adapter": 0, **p}) for p in places)


def take_places(data):
    count, data = take(data, 1)
    places = []
    for _ in range(count[0]):
        place, data = take_fields(PLACE, data)
        places.append(place)
    return places, data


def put_short(value):
    """A u8 length, and that many bytes."""
    return struct.pack("<B", len(value)) + value


def take_short(data):
    length, data = take(data, 1)
    return take(data, length[0])


def names(*each):
    """The content of a KEEP."""
    return b"".join(put_short(n.encode() if isinstance(n, str) else n) for n in each)


def several(fields):
    """The functions for a u16 count and that many structures."""
    def put_several(each):
        return struct.pack("<H", len(each)) + b"".join(put(fields, one) for one in each)

    def take_several(data):
        count, data = take(data, 2)
        each = []
        for _ in range(struct.unpack("<H", count)[0]):
            one, data = take_fields(fields, data)
            each.append(one)
        return each, data
    return put_several, take_several


KINDS = {
    "text": (put_text, take_text),
    "short": (put_short, take_short),
    "places": (put_places, take_places),
    "files": several([("file", "u32")]),
    "answers": several([("file", "u32"), ("answer", "u8")]),
    "digests": several([("low", "u64"), ("high", "u64")]),
    "rest": (bytes, lambda data: (data, b"")),
}


def put(fields, values):
    out = b""
    for name, kind in fields:
        value = values[name]
        if isinstance(kind, int):
            out += bytes(value).ljust(kind, b"\0")
        elif kind in NUMBERS:
            out += struct.pack(NUMBERS[kind], value)
        else:
            out += KINDS[kind][0](value)
    return out


def take_fields(fields, data):
    values = {}
    for name, kind in fields:
        if isinstance(kind, int):
            values[name], data = take(data, kind)
        elif kind in NUMBERS:
            raw, data = take(data, struct.calcsize(NUMBERS[kind]))
            values[name] = struct.unpack(NUMBERS[kind], raw)[0]
        else:
            values[name], data = KINDS[kind][1](data)
    return values, data


def take_all(fields, data):
    values, left = take_fields(fields, data)
    if left:
        raise Malformed("bytes left over")
    return values


# ---- messages ------------------------------------------------------------------------

TOTAL = [("files", "u64"), ("same", "u64"), ("others", "u64"), ("failed", "u64"),
         ("bytes", "u64"), ("digest_low", "u64"), ("digest_high", "u64"),
         ("incomplete", "u8"), ("target", "u64")]
TIMES = [("kind", "u8"), ("same_host", "u8"), ("used", "u16"), ("cpus", "u16"), ("rtt_us", "u32"),
         ("block", "u32")] + [
    (name, "u64") for name in (
        "window", "moved", "ns_fill", "ns_free", "ns_send", "ns_idle", "ns_paced", "ns_block",
        "ns_store", "ns_finish", "ns_cpu", "ns_hottest", "ns_busiest", "ns_longest",
        "ns_cipher", "ns_compress")]
NO_TOTAL = {name: 0 for name, _ in TOTAL}
COUNTS = [(name, "u64") for name in (
    "regular", "dirs", "symlinks", "hard_links", "nodes", "created", "deleted", "sent", "had",
    "holes", "unkept")]
NOROUTE = [("round", "u8"), ("why", "text")]
DETOUR = [("port", "u16"), ("why", "text")]
PING = [("cookie", "u64")]

MESSAGES = {
    "HELLO": (1, [
        ("version", "u16"), ("role", "u8"), ("want", "u8"), ("features", "u64"),
        ("lanes", "u16"), ("depth", "u16"), ("block_size", "u32"), ("memory", "u64"),
        ("lockable", "u64"), ("timeout_ms", "u32"), ("host_id", "u64"), ("rdma_op", "u8"),
        ("rails", "u16"), ("encrypt", "u8"), ("ciphers", "u32"), ("nonce", 32),
        ("host", "text"), ("no_rdma", "text")]),
    "OFFER": (2, [("round", "u8"), ("session", "u64"), ("places", "places"), ("no_rdma", "text")]),
    "CHOICE": (3, [("transport", "u8"), ("why", "text")]),
    "NOROUTE": (4, NOROUTE),
    "LANE_DOWN": (5, [("lane", "u16"), ("epoch", "u32"), ("why", "text")]),
    "LANE_STORED": (6, [("lane", "u16"), ("epoch", "u32"), ("stored", "u64"),
                        ("damaged", "u8")]),
    "PING": (7, PING),
    "PONG": (8, PING),
    "FILE_RESULT": (9, [("file", "u32"), ("code", "u8"), ("text", "text")]),
    "END": (10, TOTAL),
    "DONE": (11, TOTAL),
    "ERROR": (12, [("code", "u8"), ("host", "text"), ("text", "text")]),
    "STORED": (13, [("files", "files")]),
    "ANSWERS": (14, [("answers", "answers")]),
    "CELLS": (15, [("file", "u32"), ("pos", "u64"), ("digests", "digests")]),
    "TIMES": (16, TIMES),
    "LANE_CHECK": (17, [("lane", "u16"), ("epoch", "u32"), ("mtu", "u32")]),
    "LANE_HELD": (18, [("lane", "u16"), ("epoch", "u32"), ("mtu", "u32"), ("busy", "u8")]),
    "GREETING": (64, [("magic", 8), ("version", "u16"), ("release", "text")]),
    "START": (65, [
        ("version", "u16"), ("role", "u8"), ("want", "u8"), ("verbose", "u8"),
        ("flags", "u64"), ("secret", 32), ("lanes", "u16"), ("depth", "u16"),
        ("block_size", "u32"), ("memory", "u64"), ("bwlimit", "u64"), ("timeout_ms", "u32"),
        ("connect_timeout_ms", "u32"), ("port_lo", "u16"), ("port_hi", "u16"),
        ("host", "text"), ("peer", "text"), ("address", "text"), ("target", "text"),
        ("min_size", "u64"), ("max_size", "u64"), ("max_delete", "u64"), ("digest", "u8"),
        ("chmod", "text"), ("chown", "text"), ("suffix", "text"), ("backup_dir", "text"),
        ("rdma_op", "u8"), ("rails", "u16"), ("direct", "u8"), ("memory_bytes", "u64"),
        ("tos", "u16"), ("encrypt", "u8")]),
    "WANT": (66, [("name", "text")]),
    "GO": (67, []),
    "NOTE": (68, [("level", "u8"), ("text", "text")]),
    "PROGRESS": (69, [("bytes", "u64"), ("total", "u64"), ("files", "u64"),
                      ("total_known", "u8")]),
    "VERDICT": (70, [("code", "u8"), ("host", "text"), ("text", "text")] + TOTAL + [
        ("transport", "u8"), ("lanes", "u16"), ("how", "text"), ("why", "text"),
        ("encrypted", "u8"), ("cipher", "u8"), ("ns", "u64")] + TIMES + COUNTS),
    "CANCEL": (71, [("signo", "u8")]),
    "DETOUR": (72, DETOUR),
    "STUCK": (73, NOROUTE),
    "LISTENING": (74, DETOUR),
    "RULE": (75, [("include", "u8"), ("pattern", "text")]),
    "LISTED": (76, [("name", "text")]),
    "EVENT": (77, [("what", "u8"), ("code", "u8"), ("deleted", "u8"), ("size", "u64"),
                   ("change", "text"), ("digest", "text"), ("path", "text")]),
    "TAKEN": (79, [("name", "text")]),
    "MODULE": (80, [("version", "u16"), ("name", "text")]),
    "LIST": (81, [("name", "text")]),
    "ENTRY": (82, [("kind", "u8"), ("mode", "u16"), ("size", "u64"), ("mtime", "u64"), ("name", "text"), ("about", "text")]),
    "FINDING": (78, [("state", "u8"), ("family", "u8"), ("rdma", "u8"), ("addr", 16),
                     ("name", "text"), ("subject", "text"), ("what", "text"), ("remedy", "text")]),
}
NAMES = {number: name for name, (number, _) in MESSAGES.items()}


def body(name, /, **values):
    return put(MESSAGES[name][1], values)


def frame(kind, content=b""):
    """kind: a name or a number."""
    number = MESSAGES[kind][0] if isinstance(kind, str) else kind
    return struct.pack("<IB3x", len(content), number) + content


def message(name, /, **values):
    return frame(name, body(name, **values))


def parse(number, content):
    """The name and the fields of a frame's body."""
    if number not in NAMES:
        raise Malformed("unknown type %d" % number)
    return NAMES[number], take_all(MESSAGES[NAMES[number]][1], content)


class Framer:
    """Cuts a stream into frames."""

    def __init__(self):
        self.left = b""

    def feed(self, data):
        self.left += data
        frames = []
        while len(self.left) >= 8:
            length, number = struct.unpack("<IB", self.left[:5])
            if any(self.left[5:8]) or length > FRAME_BODY_MAX:
                raise Malformed("frame")
            if len(self.left) < 8 + length:
                break
            frames.append((number, self.left[8:8 + length]))
            self.left = self.left[8 + length:]
        return frames


# ---- records in blocks ---------------------------------------------------------------

ATTR = [("mode", "u32"), ("uid", "u32"), ("gid", "u32"), ("mtime_s", "i64"), ("atime_s", "i64"),
        ("mtime_ns", "u32"), ("atime_ns", "u32")]

RECORDS = {
    "FILE": (1, [("id", "u32"), ("want", "u32"), ("dir", "u32"), ("flags", "u32"),
                 ("type", "u8"), ("size", "u64")] + ATTR + [
                     ("major", "u32"), ("minor", "u32"), ("link_to", "u32"),
                     ("name", "text")]),
    "DATA": (2, [("id", "u32"), ("pos", "u64"), ("bytes", "rest")]),
    "FILE_END": (3, [("id", "u32"), ("size", "u64"), ("data", "u64"), ("holes", "u64"),
                     ("lanes", "u16"), ("digest_low", "u64"), ("digest_high", "u64"),
                     ("code", "u8"), ("content", "short"), ("text", "text")]),
    "HOLE": (4, [("id", "u32"), ("pos", "u64"), ("len", "u64")]),
    "DIR": (5, [("id", "u32"), ("want", "u32"), ("parent", "u32"), ("flags", "u32")] + ATTR + [
        ("name", "text")]),
    "OWNER": (6, [("group", "u8"), ("id", "u32"), ("name", "text")]),
    "XATTR": (7, [("id", "u32"), ("size", "u32"), ("pos", "u32"), ("name", "text"),
                  ("bytes", "rest")]),
    "HAVE": (8, [("id", "u32"), ("pos", "u64"), ("len", "u64")]),
    "SAME": (9, [("id", "u32")]),
    "KEEP": (10, [("dir", "u32"), ("last", "u8"), ("names", "rest")]),
    "ORIGIN": (11, [("want", "u32"), ("parent", "u32"), ("dir", "u8"), ("low", "u64"), ("high", "u64"),
                    ("name", "text")]),
}
RECORD_NAMES = {number: name for name, (number, _) in RECORDS.items()}


def record(name, /, **values):
    number, fields = RECORDS[name]
    content = put(fields, values)
    return struct.pack("<B3xI", number, len(content)) + content


def records(data):
    """[(name, fields)] of all records of a block."""
    found = []
    while data:
        head, data = take(data, 8)
        number, zeros, length = head[0], head[1:4], struct.unpack("<I", head[4:])[0]
        if any(zeros) or number not in RECORD_NAMES:
            raise Malformed("record")
        content, data = take(data, length)
        name = RECORD_NAMES[number]
        found.append((name, take_all(RECORDS[name][1], content)))
    return found


# ---- lanes ---------------------------------------------------------------------------

xxhash = ctypes.CDLL("libxxhash.so.0")


class Hash128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


xxhash.XXH3_64bits.restype = ctypes.c_uint64
xxhash.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
xxhash.XXH3_128bits_withSeed.restype = Hash128
xxhash.XXH3_128bits_withSeed.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64]


def hash64(data):
    return xxhash.XXH3_64bits(data, len(data))


CELL = 256 << 10


def hash128(data, pos):
    """(low, high) of the hash of data at position pos: the sum over its parts of cells."""
    starts = [0, *range(CELL - pos % CELL, len(data), CELL)]
    total = 0
    for at, end in zip(starts, [*starts[1:], len(data)]):
        h = xxhash.XXH3_128bits_withSeed(data[at:end], end - at, pos + at)
        total += h.low + (h.high << 64)
    return total & (1 << 64) - 1, total >> 64 & (1 << 64) - 1


BLOCK_HEAD = [("magic", 4), ("version", "u8"), ("kind", "u8"), ("lane", "u16"),
              ("epoch", "u32"), ("len", "u32"), ("number", "u64"), ("pos", "u64"),
              ("file", "u32"), ("plain_len", "u32"), ("hash_low", "u64"), ("hash_high", "u64")]
CREDIT = [("magic", 4), ("epoch", "u32"), ("stored", "u64")]
LANE_HELLO = [("magic", 4), ("version", "u8"), ("from", "u8"), ("accepting", "u8"),
              ("seals", "u8"), ("session", "u64"), ("lane", "u16"), ("depth", "u16"), ("epoch", "u32"),
              ("block_size", "u32"), ("ring", "u64"), ("ring_key", "u32")]
NOTICE = [("magic", 4), ("epoch", "u32"), ("slot", "u32"), ("len", "u32")]
LANE_PRIVATE = [("magic", 4), ("version", "u8"), ("zeros", 3), ("lane", "u16"),
                ("depth", "u16"), ("epoch", "u32"), ("block_size", "u32"), ("zero", "u32"),
                ("token", 16)]
LANE_HELLO_SIZE = 72
ZERO = {"version": 1, "zero": 0, "zeros": b""}


def block_head(**values):
    head = put(BLOCK_HEAD, {"magic": b"SLB\x93", "plain_len": 0, **ZERO, **values})
    return head + struct.pack("<Q", hash64(head))


def block(data, /, **values):
    """A block with its head. The hash is that of its data, unless values has another."""
    low, high = hash128(data, values["pos"])
    return block_head(**{"len": len(data), "hash_low": low, "hash_high": high, **values}) + data


def parse_block_head(data):
    if len(data) != 64 or struct.unpack("<Q", data[56:])[0] != hash64(data[:56]):
        raise Malformed("block head")
    return take_all(BLOCK_HEAD, data[:56])


def credit(**values):
    return put(CREDIT, {"magic": b"SLC\x93", **values})


def parse_credit(data):
    return take_all(CREDIT, data)


def notice(**values):
    return put(NOTICE, {"magic": b"SLN\x93", **values})


class Key:
    """The key of a lane's HMACs: the session's secret and both nonces; and the id of the session in the OFFER of the
    end that accepts, 0 without an OFFER."""

    def __init__(self, secret, source_nonce, sink_nonce, session=0):
        self.secret = secret
        self.nonces = source_nonce + sink_nonce
        self.session = session

    def mac(self, label, data):
        return hmac.new(self.secret, label + self.nonces + data, hashlib.sha256).digest()

    def token(self, lane, epoch):
        return self.mac(b"sluice token", struct.pack("<QHI", self.session, lane, epoch))[:16]


def lane_hello(key, /, **values):
    hello = put(LANE_HELLO, {"magic": b"SLH\x93", "session": key.session, "ring": 0, "ring_key": 0, "seals": 0, **ZERO, **values})
    return hello + key.mac(b"sluice lane", hello)


def parse_lane_hello(key, data):
    if len(data) != LANE_HELLO_SIZE or not hmac.compare_digest(data[40:], key.mac(b"sluice lane", data[:40])):
        raise Malformed("lane hello")
    return take_all(LANE_HELLO, data[:40])


def lane_private(key, /, **values):
    token = key.token(values["lane"], values["epoch"])
    return put(LANE_PRIVATE, {"magic": b"SLP\x93", "token": token, **ZERO, **values})
