# SPDX-License-Identifier: Apache-2.0
"""Where processes hold keys and secrets in memory, and where they must not."""

import secrets
import socket
import subprocess
import sys

import pytest

from hosts import ROOT, RSH, environment, pattern, program, wait_until
from processes import descendants, runs

sys.path.insert(0, str(ROOT / "tests" / "hostile"))

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
    # the keys of each session for lanes that it accepts and dials, of its lanes, and the listener of one end
    assert len(ends) <= 7, held
