# SPDX-License-Identifier: Apache-2.0
"""Where processes hold keys and secrets in memory, and where they must not."""

import ctypes
import os
import secrets
import socket
import subprocess
import sys
import threading
import time

import pytest

from hosts import Host, ROOT, RSH, environment, pattern, program, wait_until
from networks import enter_network
from processes import descendants, runs

sys.path.insert(0, str(ROOT / "tests" / "hostile"))

import sealed  # noqa: E402
import wire  # noqa: E402

BLOCK = 256 << 10


def memory_of(pid):
    """Each line of a process's maps, with the bytes of that mapping."""
    with open("/proc/%d/maps" % pid) as maps, open("/proc/%d/mem" % pid, "rb", 0) as memory:
        for line in maps:
            place, rights = line.split()[:2]
            first, last = (int(x, 16) for x in place.split("-"))
            if "r" not in rights or "[v" in line:
                continue
            try:
                memory.seek(first)
                held = memory.read(last - first)
            except OSError:
                continue
            yield line.strip(), held


def flags_of(pid):
    """{line of a process's maps: its flags}: lo is locked, dd is left out of core files."""
    flags, line = {}, None
    with open("/proc/%d/smaps" % pid) as smaps:
        for text in smaps:
            if text.startswith("VmFlags:"):
                flags[line] = text.split()[1:]
            elif not text.split()[0].endswith(":"):
                line = text.strip()
    return flags


def secret_in_memory(pid, digits):
    """The places where a process holds the digits of its key, whole or in part."""
    return [line for line, held in memory_of(pid)
            for part in (digits, digits[8:24], digits[40:56]) if part in held]


def waits_without(pid, digits):
    """It has parsed its command line, and sleeps until its next attempt."""
    with open("/proc/%d/cmdline" % pid, "rb") as line, open("/proc/%d/syscall" % pid) as call:
        return digits not in line.read() and call.read().split()[0] in ("7", "35", "230", "271")


@pytest.mark.parametrize("how", ["operand", "environment", "file"])
@pytest.mark.parametrize("name", ["rdrecv", "rdsend"])
def test_no_copy_of_a_typed_key_stays_in_memory(tmp_path, name, how):
    """The key itself is needed until the other end has connected; its text is not."""
    digits = secrets.token_hex(32).encode()
    key = "sluice-key-1:" + digits.decode()
    (tmp_path / "key").write_text(key + "\n")
    (tmp_path / "key").chmod(0o600)
    (tmp_path / "in").write_bytes(b"x")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        operand = {"operand": [key], "environment": ["-"], "file": []}[how]
        option = ["--key-file", tmp_path / "key"] if how == "file" else []
        if name == "rdrecv":
            words = [*option, "0", *operand, tmp_path / "out"]
        else:
            words = [*option, "127.0.0.1", closed.getsockname()[1], *operand, tmp_path / "in"]
        p = subprocess.Popen([program(name), *map(str, words)], stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, env=environment({"RD_KEY": key} if how == "environment" else {}))
        try:
            if name == "rdrecv":
                assert b"listening" in p.stderr.readline()
            else:
                wait_until(lambda: waits_without(p.pid, digits))
            assert not secret_in_memory(p.pid, digits)
        finally:
            p.kill()
            p.communicate()


def rdcps_below(pid):
    """The process and its descendants that are rdcp."""
    return [p for p in [pid, *descendants(pid)] if runs(p, program("rdcp"))]


def test_session_secret_is_only_where_lanes_need_it(bench, tmp_path):
    """The conductor forgets it, and the buffer through which START reached an end does not keep it."""
    (tmp_path / "in").write_bytes(pattern(4 * BLOCK))
    (tmp_path / "out").mkdir()
    (tmp_path / "rsh").write_text("#!/bin/sh\ntee orders | %s \"$@\"\n" % RSH)
    (tmp_path / "rsh").chmod(0o755)
    conductor = bench.copy("--bwlimit=100k", "in", "far:%s/out/" % tmp_path, rsh=tmp_path / "rsh",
                           transport="--transport=tcp", wait=False)
    wait_until(lambda: any(p.stat().st_size for p in (tmp_path / "out").iterdir()))
    orders = dict(wire.parse(*f) for f in wire.Framer().feed((tmp_path / "orders").read_bytes()))
    secret = orders["START"]["secret"]
    pids = rdcps_below(conductor.proc.pid)
    assert len(pids) == 3 and pids[0] == conductor.proc.pid
    held = {pid: [line for line, memory in memory_of(pid) for part in (secret, secret.hex().encode())
                  for _ in range(memory.count(part))] for pid in pids}
    assert not held[pids[0]]
    ends = [line for end in pids[1:] for line in held[end]]
    assert not [line for line in ends if "rdcp" in line or "[stack]" in line], held
    for end in pids[1:]:
        flags = flags_of(end)
        assert all({"lo", "dd"} <= set(flags[line]) for line in held[end]), [(line, flags.get(line)) for line in held[end]]
    # the keys of each session for lanes that it accepts and dials, of its lanes, and the listener of one end
    assert len(ends) <= 7, held


class Capture(threading.Thread):
    """All packets of the loopback device of a network namespace."""

    def __init__(self, network):
        super().__init__(daemon=True)
        self.network, self.packets, self.done = network, [], False
        self.ready = threading.Event()
        self.start()
        assert self.ready.wait(30)

    def run(self):
        enter_network(self.network)
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as wire_tap:
            wire_tap.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 32 << 20)
            wire_tap.bind(("lo", 0))
            wire_tap.settimeout(0.2)
            self.ready.set()
            while True:
                try:
                    self.packets.append(wire_tap.recv(1 << 17))
                except TimeoutError:
                    if self.done:
                        return

    def end(self):
        """Returns the bytes of all packets."""
        self.done = True
        self.join()
        return b"".join(self.packets)


SO_RCVBUFFORCE = 33

ptrace = ctypes.CDLL(None, use_errno=True).ptrace
ptrace.argtypes, ptrace.restype = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p], ctypes.c_long
PTRACE_CONT, PTRACE_DETACH, PTRACE_SEIZE, TRACE_EXIT, EVENT_EXIT, EVENT_STOP, WALL = 7, 17, 0x4206, 0x40, 6, 128, 0x40000000


def look_at_exit(pids, end, look):
    """Calls end(), which lets the processes end, and look(pid) for each when it exits, while its memory is still there."""
    for pid in pids:
        assert ptrace(PTRACE_SEIZE, pid, None, TRACE_EXIT) == 0, os.strerror(ctypes.get_errno())
    end()
    left, until = set(pids), time.monotonic() + 60
    while left:
        assert time.monotonic() < until
        time.sleep(0.01)
        for pid in list(left):
            got, status = os.waitpid(pid, os.WNOHANG | WALL)
            if not got:
                continue
            assert os.WIFSTOPPED(status), status
            event = status >> 16
            if event == EVENT_EXIT:
                look(pid)
                left.remove(pid)
            ptrace(PTRACE_DETACH if event == EVENT_EXIT else PTRACE_CONT, pid, None,
                   None if event in (EVENT_EXIT, EVENT_STOP) else os.WSTOPSIG(status))


def frames_of(path):
    return dict(wire.parse(*f) for f in wire.Framer().feed(path.read_bytes()))


def block_keys(secret, nonces):
    """The keys that the first wires of two lanes may have."""
    key = wire.Key(secret, *nonces)
    return [sealed.Cipher(kind, key, lane, epoch).key
            for kind in (sealed.AES, sealed.CHACHA) for lane in (0, 1) for epoch in range(4)]


def shown_by(pid):
    """What other programs of the user see of a process."""
    shown = b""
    for name in "cmdline", "environ":
        try:
            with open("/proc/%d/%s" % (pid, name), "rb") as f:
                shown += f.read()
        except OSError:
            pass
    return shown


@pytest.mark.needs("root", why="captures packets, and traces processes that forbid it")
def test_secret_and_keys_of_blocks_are_nowhere_else(bench, tmp_path, networks):
    """Not in arguments, environments, the log or packets; and once the wires are closed, not in memory."""
    data = secrets.token_bytes(4 * BLOCK)
    (tmp_path / "out").mkdir()
    (tmp_path / "rsh").write_text("#!/bin/sh\ntee orders | %s \"$@\" | tee answers\n" % RSH)
    (tmp_path / "rsh").chmod(0o755)
    [network] = (alone := networks(1)).names
    capture = Capture(network)
    stdin, source = os.pipe()
    conductor = bench.copy("-vvv", "--encrypt=on", "--lanes=2", "-", "far:%s/out/in" % tmp_path, stdin=stdin,
                           rsh=tmp_path / "rsh", transport="--transport=tcp", wait=False,
                           host=Host("near", None, None, alone.on(0)))
    os.close(stdin)
    with open(source, "wb", closefd=False) as pipe:
        pipe.write(data)
    wait_until(lambda: any(p.stat().st_size for p in (tmp_path / "out").iterdir()))
    orders, answers = frames_of(tmp_path / "orders"), frames_of(tmp_path / "answers")
    secret = orders["START"]["secret"]
    keys = block_keys(secret, [orders["HELLO"]["nonce"], answers["HELLO"]["nonce"]])
    forms = [form for value in [secret, *keys] for form in (value, value.hex().encode())]
    ends = rdcps_below(conductor.proc.pid)[1:]
    assert len(ends) == 2
    for end in ends:
        assert any(k in held for _, held in memory_of(end) for k in keys), "these keys are not those of the blocks"
    for pid in [conductor.proc.pid, *descendants(conductor.proc.pid)]:
        assert not [f for f in forms if f in shown_by(pid)]
    left = {}

    def look(pid):
        left[pid] = [(line, forms.index(f)) for line, held in memory_of(pid) for f in forms if f in held]
    look_at_exit(ends, lambda: os.close(source), look)
    assert conductor.wait() == 0, conductor.errors()
    assert (tmp_path / "out" / "in").read_bytes() == data
    packets, log = capture.end(), conductor.errors().encode()
    assert len(packets) > len(data) and data[5 * 4096:5 * 4096 + 64] not in packets
    assert not [f for f in forms if f in packets or f in log]
    assert left == {pid: [] for pid in ends}


@pytest.mark.lanes
@pytest.mark.needs("sim", why="it records what connection requests hold")
def test_private_data_of_connections_holds_no_secret(bench, tmp_path):
    """A request has a token, which is made of the secret and tells nothing of it."""
    (tmp_path / "in").write_bytes(pattern(4 * BLOCK))
    (tmp_path / "rsh").write_text("#!/bin/sh\ntee orders | %s \"$@\" | tee answers\n" % RSH)
    (tmp_path / "rsh").chmod(0o755)
    record = tmp_path / "record"
    r = bench.copy("--encrypt=on", "--lanes=2", "in", "far:%s/out" % tmp_path, rsh=tmp_path / "rsh", env={"SIMVERBS_RECORD": str(record)})
    assert r.code == 0, r.errors()
    orders, answers = frames_of(tmp_path / "orders"), frames_of(tmp_path / "answers")
    secret = orders["START"]["secret"]
    keys = block_keys(secret, [orders["HELLO"]["nonce"], answers["HELLO"]["nonce"]])
    requests = [bytes.fromhex(line.split()[3]) for line in record.read_text().splitlines()]
    assert len(requests) >= 2 and len({r for r in requests}) >= 2
    assert not [part for r in requests for whole in (secret, *keys) for part in (whole[:16], whole[16:]) if part in r]
