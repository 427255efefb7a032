# SPDX-License-Identifier: Apache-2.0
"""A hostile conductor and other end in one: it holds stdin and stdout of an `rdcp --end', and sends any bytes to it,
in frames, over lanes, or without either. wire.py encodes them."""

import os
import socket
import struct
import subprocess
import threading
import time

import sealed
import tls
import wire
from wire import CELL

SOURCE, SINK = 1, 2
AUTO, RDMA, TCP, SSH = 0, 1, 2, 3
FLAGS = {name: 1 << bit for bit, name in enumerate(
    ["LISTENS", "PERMS", "MKPATH", "REMOVE_SOURCE", "FSYNC", "INPLACE", "NO_SPARSE", "SPARSE",
     "NO_TARGET_DIR", "MANY", "STDIO", "QUIET", "IPV4", "IPV6", "PROGRESS", "FAR", "RECURSIVE",
     "TIMES", "ATIMES", "OWNER", "GROUP", "DEVICES", "HARD_LINKS", "ACLS", "XATTRS", "XATTRS_ALL",
     "NUMERIC_IDS", "COPY_LINKS", "RELATIVE", "ONE_FILE_SYSTEM", "DRY_RUN", "QUICK", "UPDATE",
     "IGNORE_EXISTING", "CHECKSUM", "DELETE", "DELETE_EXCLUDED", "BACKUP", "VERIFY", "EVENTS",
     "FILES_FROM", "MEMORY", "UNCHECKED", "PROBE", "SCRATCH", "SHARED", "EXISTING"])}
# Bits 47 and 48 are the mode of a wish for compression.
FLAGS |= {"COMPRESS_AUTO": 1 << 47, "COMPRESS_ALWAYS": 2 << 47}
FLAG_BITS = 54  # a wish has 7 bits
PRESERVE = ["PERMS", "TIMES", "ATIMES"]
STREAM, ORDERED, SPARSE, ONE_OF_MANY, ASK, LINKED, MAY = 1, 2, 4, 8, 16, 32, 64
REGULAR, SYMLINK, HARD_LINK, FIFO, CHAR, BLOCK = range(1, 7)
CONTENTS, IMPLIED = 1, 2
SEND, SAME, RESUME, COMPARE = range(1, 5)
RECORDS, EXTENT = 1, 2
U16, U32, U64, I64 = 2**16 - 1, 2**32 - 1, 2**64 - 1, 2**63 - 1
TOTAL_NONE = wire.NO_TOTAL
COUNTS_NONE = {name: 0 for name, _ in wire.COUNTS}
TIMES_NONE = {name: 0 for name, _ in wire.TIMES}
ATTR = dict(mode=0o644, uid=0, gid=0, mtime_s=1, atime_s=1, mtime_ns=0, atime_ns=0)
PATIENCE = 20
# The names that a hostile source may give to a file that was requested as f.
NAMES = {
    "not-asked-for": b"g", "absolute": b"/etc/passwd", "up": b"../f", "up-in-the-middle": b"a/../f",
    "up-at-the-end": b"f/..", "dot": b".", "dotdot": b"..", "empty": b"", "slash": b"/",
    "slashes": b"//", "slash-at-the-end": b"f/", "slash-before": b"/f", "below": b"outside/f",
    "nul": b"f\0g", "256-bytes": b"n" * 256, "4095-bytes": b"n" * 4095, "4096-bytes": b"n" * 4096,
    "5000-deep": b"/".join([b"d"] * 2000), "escapes": b"\x1b]0;owned\x07\x9b31m",
    "bidi": "\u202ef\u2066".encode(), "newline": b"f\nrdcp: done", "our-own": b".sluice.0",
}


class Silence(AssertionError):
    frame = None    # the frame that ended the session


def digest_of(data):
    """The digest of a whole file, as (low, high)."""
    return wire.hash128(data, 0) if data else (0, 0)


def file_record(**over):
    values = dict(ATTR, id=1, want=0, dir=0, flags=0, type=REGULAR, size=0, major=0, minor=0,
                  link_to=0, name="f")
    return wire.record("FILE", **{**values, **over})


def dir_record(**over):
    values = dict(ATTR, id=1, want=0, parent=0, flags=0, mode=0o755, name="d")
    return wire.record("DIR", **{**values, **over})


def link_records(target, **over):
    """All records of a symlink."""
    target = target.encode() if isinstance(target, str) else target
    values = dict(dict(id=1, type=SYMLINK, size=len(target)), **over)
    return file_record(**values) + data_record(target, id=values["id"]) + \
        end_record(target, id=values["id"])


def small_records(data=b"", **over):
    """All records of a small file, or of an entry without bytes."""
    values = dict(dict(id=1, size=len(data)), **over)
    return file_record(**values) + (data_record(data, id=values["id"]) if data else b"") + \
        end_record(data, id=values["id"])


def keep_record(dir=1, last=1, names=()):
    return wire.record("KEEP", dir=dir, last=last,
                       names=names if isinstance(names, bytes) else wire.names(*names))


def xattr_record(value=b"v", **over):
    values = dict(id=1, size=len(value), pos=0, name="user.x", bytes=value)
    return wire.record("XATTR", **{**values, **over})


def data_record(data, pos=0, id=1):
    return wire.record("DATA", id=id, pos=pos, bytes=data)


def end_record(data=b"", /, **over):
    low, high = digest_of(data)
    values = dict(id=1, size=len(data), data=len(data), holes=0, lanes=1, digest_low=low,
                  digest_high=high, code=0, content=b"", text="")
    return wire.record("FILE_END", **{**values, **over})


def hole_record(pos, length, id=1):
    return wire.record("HOLE", id=id, pos=pos, len=length)


def total_of(*contents, **over):
    """The fields of an END or DONE for these files."""
    digest = 0
    for data in contents:
        low, high = digest_of(data)
        digest += low + (high << 64)
    digest %= 1 << 128
    values = dict(TOTAL_NONE, files=len(contents), bytes=sum(map(len, contents)),
                  digest_low=digest & U64, digest_high=digest >> 64)
    return {**values, **over}


class Frames:
    """A thread that reads frames and answers PINGs."""

    def __init__(self, read, write):
        self.read, self.write = read, write
        self.got, self.taken, self.over = [], 0, False    # taken: how many were dropped from got
        self.changed = threading.Condition()
        self.mute = False       # answers no PING
        self.fatal = None       # expect() returns when a frame with this name arrives
        self.writing = threading.Lock()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        framer = wire.Framer()
        while True:
            try:
                data = self.read()
            except (OSError, ValueError):
                data = b""
            if not data:
                break
            for number, body in framer.feed(data):
                name, values = wire.parse(number, body)
                if name == "PING" and not self.mute:
                    self.send("PONG", **values)
                with self.changed:
                    self.got.append((name, values))
                    self.changed.notify_all()
        with self.changed:
            self.over = True
            self.changed.notify_all()

    def raw(self, data):
        """Writes data; returns False if the other side has closed the stream."""
        try:
            with self.writing:
                self.write(data)
            return True
        except (OSError, ValueError):
            return False

    def send(self, name, /, **values):
        return self.raw(wire.message(name, **values))

    def expect(self, *names, timeout=PATIENCE):
        """Returns the fields of the next frame with one of these names, and drops the frames before it."""
        return self.next(*names, timeout=timeout)[1]

    def next(self, *names, timeout=PATIENCE):
        """As expect(); returns (name, fields)."""
        end = time.monotonic() + timeout
        with self.changed:
            seen = self.taken
            while True:
                # Each frame once: a flood has a million answers.
                for i in range(max(0, seen - self.taken), len(self.got)):
                    name, values = self.got[i]
                    if name in names:
                        del self.got[:i + 1]
                        self.taken += i + 1
                        return name, values
                    if name == self.fatal:
                        silence = Silence("received %s: %s" % (name, values))
                        silence.frame = values
                        raise silence
                seen = self.taken + len(self.got)
                left = end - time.monotonic()
                if self.over or left <= 0:
                    raise Silence("no %s%s; the last frames are %s" % (
                        "/".join(names), " before the end" if self.over else "", self.got[-3:]))
                self.changed.wait(left)

    def verdict(self, timeout=PATIENCE):
        """The fields of VERDICT, after the stream has ended; None if there was no VERDICT."""
        self.thread.join(timeout)
        with self.changed:
            assert self.over, "the stream does not end"
            for name, values in self.got:
                if name == "VERDICT":
                    return values
        return None


class Lane:
    """The test's end of a lane over TCP."""

    def __init__(self, session, sock, index=0, epoch=0, **over):
        self.session, self.sock, self.index, self.epoch = session, sock, index, epoch
        self.number = self.stored = 0
        self.cipher = None      # of a sealed wire
        self.shape = dict(lane=index, epoch=epoch, depth=session.depth,
                          block_size=session.block_size)
        sock.settimeout(PATIENCE)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def hello(self, accepting=0, key=None, **over):
        values = {"from": self.session.role, "accepting": accepting, "seals": self.session.seals, **self.shape, **over}
        return wire.lane_hello(key or self.session.key, **values)

    def greet(self):
        """Exchanges hellos, as the connecting end."""
        self.raw(self.hello())
        heard = wire.parse_lane_hello(self.session.key, self.take(wire.LANE_HELLO_SIZE))
        self.begin(heard)
        return heard

    def begin(self, heard):
        """Encrypts the blocks if either end demands it."""
        if self.session.seals or heard["seals"]:
            self.cipher = sealed.Cipher(self.session.cipher, self.session.key, heard["lane"], heard["epoch"])

    def answer(self):
        """Exchanges hellos, as the accepting end."""
        heard = wire.parse_lane_hello(self.session.key, self.take(wire.LANE_HELLO_SIZE))
        self.raw(self.hello(accepting=1))
        self.begin(heard)
        return heard

    def raw(self, data):
        try:
            self.sock.sendall(data)
            return True
        except OSError:
            return False

    def take(self, size):
        got = b""
        while len(got) < size:
            piece = self.sock.recv(size - len(got))
            if not piece:
                raise EOFError("the lane is closed")
            got += piece
        return got

    def closed(self, timeout=PATIENCE):
        """Whether the other end closes the connection, after any bytes."""
        self.sock.settimeout(timeout)
        try:
            while self.sock.recv(65536):
                pass
            return True
        except socket.timeout:
            return False
        except OSError:
            return True

    # -- as a source
    def block(self, data, kind=RECORDS, **over):
        values = dict(kind=kind, lane=self.index, epoch=self.epoch, number=self.number, pos=0,
                      file=0)
        self.number += 1
        return (self.cipher.block if self.cipher else wire.block)(data, **{**values, **over})

    def records(self, *records):
        return self.raw(self.block(b"".join(records)))

    def extent(self, data, pos=0, id=1, **over):
        return self.raw(self.block(data, kind=EXTENT, pos=pos, file=id, **over))

    def credit(self):
        credit = wire.parse_credit(self.take(16))
        self.stored = credit["stored"]
        return credit

    def all_credited(self):
        """Waits until all blocks are credited, as an honest source does before END."""
        while self.stored < self.number:
            self.credit()

    # -- as a sink
    def take_block(self):
        raw = self.take(64)
        head = wire.parse_block_head(raw)
        data = self.take(head["len"])
        return head, self.cipher.open(raw, data) if self.cipher else data

    def grant(self, stored, **over):
        return self.raw(wire.credit(**{"epoch": self.epoch, "stored": stored, **over}))

    def close(self):
        self.sock.close()


class Session:
    """The test's end of a session: HELLOs, OFFER, lanes. frames: the control channel."""

    def __init__(self, frames, role, secret, host="127.0.0.1"):
        self.frames, self.role, self.secret, self.host = frames, role, secret, host
        self.nonce = os.urandom(32)
        self.lanes = []
        self.results = []
        self.seals = self.cipher = 0

    def our_hello(self, theirs, **over):
        values = dict({"rdma_op": 0, "rails": 0, "encrypt": 0, "ciphers": 0, **theirs}, role=self.role, nonce=self.nonce, host="mallory", lockable=0,
                      no_rdma="none", want=TCP)
        return {**values, **over}

    def hello(self, **over):
        """Exchanges HELLOs, and agrees to all values of the other end."""
        theirs = self.frames.expect("HELLO")
        ours = self.our_hello(theirs, **over)
        self.frames.send("HELLO", **ours)
        self.count = min(theirs["lanes"], ours["lanes"])
        self.depth = min(theirs["depth"], ours["depth"])
        self.block_size = min(theirs["block_size"], ours["block_size"])
        wish = ours["encrypt"] or theirs["encrypt"]
        self.seals = int(wish == 1 or (wish == 0 and ours["host_id"] != theirs["host_id"]))
        self.cipher = sealed.choose(ours["ciphers"], theirs["ciphers"])
        nonces = (self.nonce, theirs["nonce"])
        self.key = wire.Key(self.secret, *(nonces if self.role == SOURCE else nonces[::-1]))
        return theirs

    def offered(self):
        """Waits for the OFFER of the other end, and keeps its TCP port."""
        self.offer = self.frames.expect("OFFER")
        self.key.session = self.offer["session"]
        self.port = [p["port"] for p in self.offer["places"] if p["transport"] == TCP][0]
        return self.offer

    def dial(self, index=0, epoch=0, greet=True):
        sock = socket.create_connection((self.host, self.port), PATIENCE)
        lane = Lane(self, sock, index, epoch)
        self.lanes.append(lane)
        if greet:
            lane.greet()
        return lane

    def open(self, **hello):
        """Opens all lanes; the other end listens."""
        self.hello(**hello)
        self.offered()
        first = self.dial()
        self.frames.send("CHOICE", transport=TCP, why="")
        return [first] + [self.dial(i) for i in range(1, self.count)]

    def listen(self, **offer):
        """Listens, sends an OFFER, and returns the listening socket."""
        listener = socket.create_server((self.host, 0))
        listener.settimeout(PATIENCE)
        self.key.session = struct.unpack("<Q", os.urandom(8))[0] | 1
        place = dict(transport=TCP, family=4, port=listener.getsockname()[1],
                     addr=socket.inet_aton(self.host), rate=0, adapter=0)
        self.frames.send("OFFER", **{"round": 0, "session": self.key.session, "places": [place], "no_rdma": "", **offer})
        self.listener = listener
        return listener

    def accept(self, index=0, answer=True):
        sock, _ = self.listener.accept()
        lane = Lane(self, sock, index)
        self.lanes.append(lane)
        if answer:
            heard = lane.answer()
            lane.index, lane.epoch = heard["lane"], heard["epoch"]
            lane.shape.update(lane=lane.index, epoch=lane.epoch)
        return lane

    def result(self, timeout=PATIENCE):
        """The next result of the sink: file, code and text."""
        if not self.results:
            name, values = self.frames.next("STORED", "FILE_RESULT", timeout=timeout)
            self.results = [values] if name == "FILE_RESULT" else \
                [dict(one, code=0, text="") for one in values["files"]]
        return self.results.pop(0)

    def end(self, **total):
        """Sends END when all blocks are credited."""
        for lane in self.lanes:
            lane.all_credited()
        return self.frames.send("END", **total)

    def say_stored(self, *ids):
        return self.frames.send("STORED", files=[dict(file=id) for id in ids])

    def answer_with(self, **answers):
        """Sends ANSWERS, as a sink: answer_with(SEND=[ids], SAME=[ids], ...)."""
        return self.frames.send("ANSWERS", answers=[
            dict(file=id, answer=[None, "SEND", "SAME", "RESUME", "COMPARE", "NEW", "CLONED"].index(answer))
            for answer, ids in answers.items() for id in ids])

    def close(self):
        for lane in self.lanes:
            lane.close()
        if hasattr(self, "listener"):
            self.listener.close()


class Ordered(Session):
    """An end with the role `role'; the test has the other role, and is its conductor."""

    START = dict(version=wire.VERSION, want=TCP, verbose=2, lanes=1, depth=8, block_size=16384, memory=U64,
                 bwlimit=0, timeout_ms=10000, connect_timeout_ms=10000, port_lo=0, port_hi=0,
                 host="victim", peer="mallory", address="", min_size=0, max_size=U64,
                 max_delete=U64, digest=0, chmod="", chown="", suffix="", backup_dir="", rdma_op=0, rails=0,
                 direct=0, memory_bytes=0, tos=0, encrypt=0)

    def __init__(self, frames, role, target="", wants=("f",), flags=(), listens=True, rules=(), listed=(), **start):
        super().__init__(frames, SOURCE + SINK - role, os.urandom(32))
        bits = sum(FLAGS[f] for f in flags) | (FLAGS["LISTENS"] if listens else 0)
        self.start_values = {**self.START, "role": role, "flags": bits, "secret": self.secret,
                             "target": str(target), **start}
        self.wants, self.rules, self.listed = wants, rules, listed

    def greeting(self):
        return self.frames.expect("GREETING")

    def orders(self, **over):
        self.greeting()
        self.frames.send("START", **{**self.start_values, **over})
        for want in self.wants:
            self.frames.send("WANT", name=str(want))
        for rule in self.rules:
            self.frames.send("RULE", include=rule[0] == "+", pattern=rule[1:])
        for name in self.listed:
            self.frames.send("LISTED", name=name)
        self.frames.send("GO")
        return self


class End(Ordered):
    """An rdcp --end."""

    def __init__(self, bench, program, role, env=None, cwd=None, **how):
        self.proc = bench.start([program, "--end"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                env=env, cwd=cwd)
        stdin, stdout = self.proc.proc.stdin, self.proc.proc.stdout

        def write(data):
            stdin.write(data)
            stdin.flush()
        super().__init__(Frames(lambda: stdout.read1(65536), write), role, **how)

    def hang_up(self):
        try:
            self.proc.proc.stdin.close()
        except OSError:
            pass


class Guest(Ordered):
    """An end at a rdcpd. first: the bytes that the test sends instead of MODULE."""

    def __init__(self, port, key, role, module="rw", first=None, identity=b"sluice:conductor:-", **how):
        self.sock = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self.tls = tls.Client(self.sock, key, identity=identity)
        self.tls.write(wire.message("MODULE", version=wire.VERSION, name=module) if first is None else first)
        super().__init__(Frames(self.tls.read, self.tls.write), role, **how)
        self.proc = self

    def wait(self, timeout):
        """The code of the VERDICT, after the daemon has closed the connection."""
        said = self.frames.verdict(timeout)
        return said and said["code"]

    def errors(self):
        return ""

    def hang_up(self):
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def close(self):
        self.hang_up()
        super().close()


def le64(value):
    return struct.pack("<Q", value)
