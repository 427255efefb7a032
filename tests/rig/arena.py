# SPDX-License-Identifier: Apache-2.0
"""A program meets a hostile peer. Whatever the peer sends, the program exits by itself and in time,
without a report of a sanitizer, uses little memory, and changes nothing outside its target.
"""

import hashlib
import os
import pathlib
import signal
import stat
import sys
import threading

from hosts import ROOT, program

sys.path.insert(0, str(ROOT / "tests" / "hostile"))

import peer  # noqa: E402
import wire  # noqa: E402
from peer import ASK, RDMA, SINK, SOURCE, SSH, U16, U32, data_record, end_record, file_record  # noqa: E402

RDCP = program("rdcp")
WATCHED = any(name in pathlib.Path(RDCP).read_bytes() for name in (b"__asan_init", b"__tsan_init"))
# No process may use more memory than this, whatever it receives. Its pools here are far below a MiB.
MEMORY_MAX = (400 if WATCHED else 40) << 20
# Seconds for what must happen at once.
SOON = 10
WRONG = ("AddressSanitizer", "LeakSanitizer", "ThreadSanitizer", "UndefinedBehaviorSanitizer",
         "runtime error:", "stack smashing", "Assertion")


# ---- the checks ------------------------------------------------------------------------

def manifest(top, without):
    """{path: metadata and content} of everything below top, except the directory `without'."""
    found = {}
    for directory, names, files in os.walk(top):
        if pathlib.Path(directory) == without:
            names[:] = []
            continue
        for name in names + files:
            path = pathlib.Path(directory) / name
            st = path.lstat()
            content = hashlib.sha256(path.read_bytes()).hexdigest() \
                if stat.S_ISREG(st.st_mode) else ""
            times = (st.st_mtime_ns, st.st_size) if path != without and \
                not stat.S_ISDIR(st.st_mode) else ()
            found[str(path.relative_to(top))] = (st.st_mode, st.st_uid, times, content)
    return found


class Memory(threading.Thread):
    """Records the peak memory of processes."""

    def __init__(self, bench):
        super().__init__(daemon=True)
        self.bench, self.most, self.stop = bench, {}, threading.Event()

    def run(self):
        while not self.stop.wait(0.02):
            for started in list(self.bench.started):
                self.look(started.proc.pid)

    def look(self, pid):
        try:
            with open("/proc/%d/status" % pid) as f:
                for line in f:
                    if line.startswith("VmHWM:"):
                        self.most[pid] = int(line.split()[1]) << 10
        except (FileNotFoundError, ProcessLookupError):
            pass


class Arena:
    """A bench with a target among files that must not change."""

    def __init__(self, bench, tmp_path):
        self.bench, self.top = bench, tmp_path
        self.target = tmp_path / "target"
        self.memory_max = MEMORY_MAX
        self.sessions = []
        self.target.mkdir()
        (self.target / "f").write_bytes(b"old")
        outside = tmp_path / "outside"
        (outside / "sub").mkdir(parents=True)
        (tmp_path / "f").write_bytes(b"beside the target")
        (outside / "f").write_bytes(b"outside")
        (outside / "sub" / "f").write_bytes(b"outside too")
        (outside / "way").symlink_to("sub")
        self.before = manifest(tmp_path, self.target)
        self.memory = Memory(bench)
        self.memory.start()

    def env(self):
        more = "exitcode=99:quarantine_size_mb=8:detect_leaks=1"
        given = os.environ.get("ASAN_OPTIONS")
        return {"ASAN_OPTIONS": given + ":" + more if given else more}

    def end(self, role, **how):
        how.setdefault("cwd", self.top)
        how["env"] = {**self.env(), **how.get("env", {})}
        e = peer.End(self.bench, RDCP, role, **how)
        self.sessions.append(e)
        return e

    def sink(self, wants=("dir/f",), **how):
        how.setdefault("target", self.target)
        return self.end(SINK, wants=wants, **how)

    def source(self, wants=("outside/f",), **how):
        return self.end(SOURCE, wants=wants, **how)

    def settle(self):
        """Checks, after the test, what holds for any input."""
        for session in self.sessions:
            session.close()
        self.memory.stop.set()
        self.memory.join()
        for started in self.bench.started:
            text = started.errors()
            assert not any(word in text for word in WRONG), text
            assert "\x1b" not in text and "\x9b" not in text, repr(text)
            assert started.proc.poll() not in (99, -signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS)
            most = self.memory.most.get(started.proc.pid, 0)
            assert most <= self.memory_max, "%d MiB" % (most >> 20)
        assert manifest(self.top, self.target) == self.before


def ends(e, *codes, within=SOON, verdict=True):
    """Checks that the end exits by itself and in time with one of codes, and that its VERDICT has the same code."""
    code = e.proc.wait(within)
    text = e.proc.errors()
    said = e.frames.verdict()
    assert code in codes, (code, said, text)
    if verdict:
        assert said and said["code"] == code, (code, said)
    return said


def fails(e, *codes, **how):
    """As ends(). A VERDICT, if there is one, has a message."""
    said = ends(e, *codes, **how)
    assert said is None or said["text"], said
    return said


def untouched(arena):
    """Checks that the target has its old file, and nothing else but temporaries."""
    assert (arena.target / "f").read_bytes() == b"old"
    assert [p.name for p in arena.target.iterdir() if not p.name.startswith(".sluice.")] == ["f"]


def all_credited(lane):
    """Waits for the credit of every block, as an honest source does before END."""
    lane.all_credited()


# ---- sessions --------------------------------------------------------------------------


def peaceful_sink(arena, data=b"good", **how):
    """An honest session up to the point where END may be sent."""
    e = arena.sink(**how).orders()
    lane = e.open()[0]
    lane.records(file_record(size=len(data)), data_record(data), end_record(data))
    return e, lane


def open_source(arena, lanes=1, **how):
    e = arena.source(lanes=lanes, **how).orders()
    return e, e.open()


def play(e, lane, records):
    """No record continues in another block, and no block is sent before there is a credit for it."""
    block = b""
    for record in records:
        if len(block) + len(record) > e.block_size:
            try:
                while lane.number - lane.stored >= e.depth:
                    lane.credit()
            except (EOFError, OSError):
                return
            if not lane.records(block):
                return
            block = b""
        block += record
    lane.records(block)


def take_all(e, lane):
    """Takes the first block of a source, which has all its small files, and returns its records."""
    head, data = lane.take_block()
    lane.grant(head["number"] + 1)
    return wire.records(data)


def serve(e, lane):
    """Acts as an honest sink until END arrives."""
    records = dict(take_all(e, lane))
    e.say_stored(records["FILE"]["id"])
    return records, e.frames.expect("END")


def spoiled(data, at):
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1:]


class Store(threading.Thread):
    """Acts as an honest sink in a thread: receives blocks, answers questions and reports files as stored. A test can
    replace answer, or switch off store."""

    def __init__(self, e, lane, answer=None, store=True):
        super().__init__(daemon=True)
        self.e, self.lane, self.answer, self.store = e, lane, answer, store
        self.records, self.blocks = [], 0
        self.changed = threading.Condition()
        self.start()

    def run(self):
        try:
            while True:
                head, data = self.lane.take_block()
                self.take(head, data)
                self.lane.grant(head["number"] + 1)
        except (EOFError, OSError):
            pass

    def take(self, head, data):
        found = wire.records(data) if head["kind"] == peer.RECORDS else []
        with self.changed:
            self.records += found
            self.blocks += 1
            self.changed.notify_all()
        for name, values in found:
            if name == "FILE" and values["flags"] & ASK and self.answer:
                self.answer(self.e, values)
            if name == "FILE_END" and values["code"] == 0 and self.store:
                self.e.say_stored(values["id"])

    def until(self, kind, /, **wanted):
        """Waits for the first record of this kind with these values."""
        def found():
            return [v for n, v in self.records
                    if n == kind and all(v[k] == x for k, x in wanted.items())]
        with self.changed:
            assert self.changed.wait_for(found, SOON), (kind, wanted, self.records[-5:])
            return found()[0]


# HELLOs that an end refuses, with its exit code.
HELLOS = {
    "version-0": (dict(version=0), 2), "version-1": (dict(version=1), 2),
    "version-99": (dict(version=99), 2), "version-65535": (dict(version=U16), 2),
    "role-0": (dict(role=0), 12), "role-3": (dict(role=3), 12), "same-role": (dict(role=SINK), 12),
    "want-4": (dict(want=4), 12), "want-rdma": (dict(want=RDMA), 43), "want-ssh": (dict(want=SSH), 43),
    "lanes-0": (dict(lanes=0), 12), "lanes-65": (dict(lanes=65), 12),
    "lanes-65535": (dict(lanes=U16), 12), "depth-0": (dict(depth=0), 12),
    "depth-1025": (dict(depth=1025), 12), "block-0": (dict(block_size=0), 12),
    "block-3": (dict(block_size=3), 12), "block-2048": (dict(block_size=2048), 12),
    "block-8M": (dict(block_size=8 << 20), 12), "block-2^31": (dict(block_size=1 << 31), 12),
    "memory-0": (dict(memory=0), 1), "memory-1": (dict(memory=1), 1),
    "timeout-2^31": (dict(timeout_ms=1 << 31), 12), "timeout-2^32-1": (dict(timeout_ms=U32), 12),
    "encrypt-3": (dict(encrypt=3), 12), "encrypt-on": (dict(encrypt=1, ciphers=0), 43),
    "ciphers-0": (dict(ciphers=0), 43), "ciphers-2^31": (dict(ciphers=1 << 31), 43),
    "host-256": (dict(host="x" * 256), 12), "host-65535": (dict(host="x" * 60000), 12),
    "no_rdma-1024": (dict(no_rdma="x" * 1024), 12), "host-nul": (dict(host=b"a\0b"), 12),
}


# ---- the far end of an rdcp --------------------------------------------------------------

FAR_END = str(ROOT / "tests" / "hostile" / "far_end.py")


def rdcp(arena, scenario, *args, timeout=15, env=None, sources=("far:dir/f",), target=None,
         **how):
    """Runs rdcp with a hostile far end, from which or to which it copies."""
    argv = [RDCP, "--transport=tcp", "--timeout=2", "--connect-timeout=2", "--lanes=1", "--rsh",
            "%s %s %s" % (sys.executable, FAR_END, scenario), *args, *sources,
            str(target or arena.target / "f")]
    return arena.bench.run(argv, timeout=timeout, cwd=arena.top, env={**arena.env(), **(env or {})}, **how)
