# SPDX-License-Identifier: Apache-2.0
"""A stream through a host in the middle: no process takes a death for the end of the stream."""

import os
import random
import shlex
import signal
import subprocess
import sys
import time

import pytest

from hosts import COUNT, DEMAND, FAR, KEY, NEAR, PATIENCE, RSH, SLOW, leftovers, pattern, program, wait_until
from processes import descendants, runs

pytestmark = [pytest.mark.moves_blocks, pytest.mark.any_lane, pytest.mark.each_combination]
BLOCK = 256 << 10
KILLED = -signal.SIGKILL
VICTIMS = ["source", "relay", "relay's rdsend", "sink"]
# The relay's rdrecv starts either rdsend itself, or a shell around it that reads the stream.
COMMANDS = {"rdsend": "{send}", "filter": "sh -c 'cat | {send}'", "saved": "sh -c 'cat >{dir}/saved; {send} {dir}/saved'",
            "growing": "sh -c 'exec 3<&0; touch {dir}/saved; cat <&3 >{dir}/saved & {send} {dir}/saved'",
            "named": "sh -c '{send} /dev/stdin'", "nested": "sh -c '{send} -- cat'"}


class Relay:
    """source -> relay -> sink, which writes tmp_path/out/f."""

    def __init__(self, bench, tmp_path, command, *produce, relay=(), sink=()):
        self.bench, self.dir = bench, tmp_path
        (tmp_path / "out").mkdir()
        self.target = tmp_path / "out" / "f"
        key = tmp_path / "key"
        key.touch(0o600)
        key.write_text(KEY + "\n")
        self.sink = bench.receive(*sink, self.target)
        send = shlex.join([program("rdsend"), DEMAND, *PATIENCE, "--key-file", str(key), FAR.address, str(self.sink.port)])
        self.relay = bench.receive(*relay, "--", *shlex.split(COMMANDS[command].format(send=send, dir=tmp_path)), host=NEAR)
        self.source = bench.send(self.relay.port, *produce, to=NEAR.address, host=FAR)

    def senders(self):
        """The relay's rdsend, anywhere below its rdrecv."""
        return [p for p in descendants(self.relay.proc.pid) if runs(p, program("rdsend"))]

    def kill(self, victim):
        if victim == "relay's rdsend":
            for pid in self.senders():
                os.kill(pid, signal.SIGKILL)
        else:
            {"source": self.source, "relay": self.relay, "sink": self.sink}[victim].signal(signal.SIGKILL)

    def codes(self, killed=True):
        """The exit codes of the three. A process whose peer was killed before it connected would wait for another
        peer."""
        for p in (self.source, self.relay, self.sink):
            try:
                p.proc.wait((5 if killed else 60) * SLOW)
            except subprocess.TimeoutExpired:
                p.signal(signal.SIGTERM)
        return [p.wait(20) for p in (self.source, self.relay, self.sink)]

    def errors(self):
        return self.source.errors() + self.relay.errors() + self.sink.errors()


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.lanes
def test_relay_forwards_everything(bench, tmp_path, command):
    data = pattern(6 * BLOCK + 1)
    (tmp_path / "in").write_bytes(data)
    r = Relay(bench, tmp_path, command, tmp_path / "in")
    assert r.codes(killed=False) == [0, 0, 0], r.errors()
    assert r.target.read_bytes() == data


@pytest.mark.parametrize("command", COMMANDS)
def test_killed_relay_is_not_the_end_of_the_stream(bench, tmp_path, command):
    """Its command reads a clean end of file, and must not take it for the end of the stream."""
    r = Relay(bench, tmp_path, command, "--", "sh", "-c", "head -c 1000000 /dev/zero; exec sleep 1000")
    place = tmp_path if command in ("saved", "growing") else tmp_path / "out"
    wait_until(lambda: any(p.name != "key" and p.is_file() and p.stat().st_size for p in place.iterdir()))
    r.kill("relay")
    source, _, sink = r.codes()
    assert source == 44 and sink == 44, r.errors()
    assert not r.target.exists()


def test_source_learns_that_the_relay_failed(bench, tmp_path):
    r = Relay(bench, tmp_path, "rdsend", "--", "cat", "/dev/zero")
    wait_until(lambda: leftovers(tmp_path / "out"))
    r.kill("relay's rdsend")
    assert r.codes()[:2] == [11, 11], r.errors()
    assert "command rdsend" in r.source.errors()


# What is between the relay's two programs, has ended, and left something in its input unread.
UNREAD = {"satisfied": "sh -c 'head -c 1000 | {send}'", "killed": "sh -c 'sh -c \"head -c 1000; kill -9 \\$\\$\" | {send}'",
          "other": "sh -c 'echo | {send}'", "nested": "{send} -- head -c 1000"}


@pytest.mark.parametrize("size", [20000, 6 * BLOCK + 1], ids=["in-the-pipe", "beyond"])
@pytest.mark.parametrize("how", UNREAD)
def test_a_filter_that_ended_early_fails_its_relay(bench, tmp_path, monkeypatch, how, size):
    """The shell around it keeps the pipe open, so rdrecv would write for ever, and rdsend wait for it."""
    (tmp_path / "in").write_bytes(pattern(size))
    monkeypatch.setitem(COMMANDS, how, UNREAD[how])
    r = Relay(bench, tmp_path, how, tmp_path / "in", relay=["--timeout=%d" % (2 * SLOW)])
    start = time.monotonic()
    assert r.relay.wait(30 * SLOW) == 11, r.errors()
    assert time.monotonic() - start < 10 * SLOW
    assert (r.source.wait(20), r.sink.wait(20)) == (11, 44), r.errors()
    assert "has read nothing for" in r.source.errors()
    assert not r.target.exists()


OWN = {"file": "{send} {dir}/in & sleep {rest}; cat >/dev/null; wait $!", "stdin": "{send} <{dir}/in & sleep {rest}; cat >/dev/null; wait $!",
       "command": "{send} -- cat {dir}/in & sleep {rest}; cat >/dev/null; wait $!"}


@pytest.mark.parametrize("how", OWN)
def test_a_command_may_rest_while_an_rdsend_has_a_stream_of_its_own(bench, tmp_path, monkeypatch, how):
    (tmp_path / "in").write_bytes(pattern(6 * BLOCK + 1))
    monkeypatch.setitem(COMMANDS, how, "sh -c '%s'" % OWN[how].replace("{rest}", str(5 * SLOW)))
    r = Relay(bench, tmp_path, how, tmp_path / "in", relay=["--timeout=%d" % (2 * SLOW)])
    assert r.codes(killed=False) == [0, 0, 0], r.errors()
    assert r.target.read_bytes() == pattern(6 * BLOCK + 1)


@pytest.mark.parametrize("lanes", [1, 3])
def test_an_rdsend_of_a_file_waits_longer_than_a_connection_may_take(bench, tmp_path, monkeypatch, lanes):
    (tmp_path / "in").write_bytes(pattern(6 * BLOCK + 1))
    monkeypatch.setitem(COMMANDS, "long", "sh -c '{send} --lanes=%d --connect-timeout=%d {dir}/in & sleep %d; cat >/dev/null; wait $!'" % (
        lanes, 2 * SLOW, 12 * SLOW))
    r = Relay(bench, tmp_path, "long", tmp_path / "in", sink=["--connect-timeout=%d" % (2 * SLOW)])
    assert r.codes(killed=False) == [0, 0, 0], r.errors()
    assert r.target.read_bytes() == pattern(6 * BLOCK + 1)


def test_a_command_may_read_slowly_while_a_relay_waits(bench, tmp_path, monkeypatch):
    """One that rests for longer than --timeout may not, if an rdsend below it has nothing more to read. A block is
    larger than what is read within that time."""
    (tmp_path / "in").write_bytes(pattern(6 * BLOCK + 1))
    monkeypatch.setitem(COMMANDS, "slow", "sh -c 'echo x | {send} & while [ $(head -c 200000 | wc -c) != 0 ]; do sleep .5; done; wait $!'")
    r = Relay(bench, tmp_path, "slow", tmp_path / "in", "--block-size=1M", relay=["--timeout=%d" % (2 * SLOW)])
    assert r.codes(killed=False) == [0, 0, 0], r.errors()
    assert r.target.read_bytes() == b"x\n"


@pytest.mark.parametrize("seed", range(8 * COUNT))
def test_no_program_succeeds_with_less_than_everything(bench, tmp_path, seed):
    """Any of the processes is killed, at any moment."""
    rng = random.Random(seed)
    data = pattern(8 * BLOCK + 5)
    (tmp_path / "in").write_bytes(data)
    victim = VICTIMS[seed % len(VICTIMS)]
    r = Relay(bench, tmp_path, rng.choice(sorted(COMMANDS)), "--bwlimit=8M", tmp_path / "in")
    time.sleep(rng.uniform(0, 0.5))
    r.kill(victim)
    codes = r.codes()
    whole = r.target.exists() and r.target.read_bytes() == data
    assert whole or 0 not in codes, (victim, codes, r.errors())
    assert whole or not r.target.exists(), (victim, codes, r.errors())


def test_commands_of_rdsend_do_not_inherit_the_confirmation(bench, tmp_path):
    """A command that rdsend starts gets neither the variable nor the descriptor."""
    script = "env >%s/env; ls -l /proc/self/fd >%s/fds; cat" % (tmp_path, tmp_path)
    (tmp_path / "in").write_bytes(b"data")
    (tmp_path / "show").write_text(script)
    COMMANDS["shown"] = "{send} -- sh {dir}/show"
    try:
        r = Relay(bench, tmp_path, "shown", tmp_path / "in")
    finally:
        del COMMANDS["shown"]
    assert r.codes(killed=False) == [0, 0, 0], r.errors()
    assert r.target.read_bytes() == b"data"
    assert "SLUICE_INPUT" not in (tmp_path / "env").read_text()
    open_fds = [line.split()[-3] for line in (tmp_path / "fds").read_text().splitlines() if "->" in line]
    assert sorted(open_fds) == ["0", "1", "2", "3"]


@pytest.mark.parametrize("victim", ["source", "relay"])
@pytest.mark.parametrize("signo", [signal.SIGKILL, signal.SIGTERM])
def test_hosts_behind_a_relay_learn_that_it_failed(bench, tmp_path, victim, signo):
    """The relay terminates its rdsend, which does not take that for the cause."""
    r = Relay(bench, tmp_path, "rdsend", "--", "sh", "-c", "head -c 1000000 /dev/zero; exec sleep 1000")
    wait_until(lambda: leftovers(tmp_path / "out"))
    getattr(r, victim).signal(signo)
    source, relay, sink = r.codes()
    assert sink == 44 and "the upstream rdrecv failed" in r.sink.errors(), r.errors()
    assert relay == (-signal.SIGKILL if victim == "relay" and signo == signal.SIGKILL else 44 if signo == signal.SIGKILL else 20)
    assert source and not r.target.exists()


CLOSING = {"replaced": "bash -c 'n=${{SLUICE_INPUT_CONFIRM%%:*}}; eval \"exec $n<&-\"; mkfifo {dir}/q; eval \"exec $n<>{dir}/q\"; "
                       "exec {send}'",
           "closed": sys.executable + " -c 'import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))' {send}"}


@pytest.mark.parametrize("how", CLOSING)
def test_closed_descriptor_is_no_confirmation(bench, tmp_path, how):
    """A program between the two closes descriptors that it does not know: no end of the input can be trusted."""
    (tmp_path / "in").write_bytes(b"data")
    COMMANDS[how] = CLOSING[how]
    try:
        r = Relay(bench, tmp_path, how, tmp_path / "in")
    finally:
        del COMMANDS[how]
    assert r.relay.wait(20 * SLOW) == 11, r.errors()
    assert "env -u SLUICE_INPUT_CONFIRM" in r.relay.errors()
    r.sink.signal(signal.SIGTERM)
    assert r.source.wait(20 * SLOW) and r.sink.wait(20 * SLOW) and not r.target.exists()


@pytest.mark.parametrize("source", ["-", "/dev/stdin"])
@pytest.mark.parametrize("dies", [False, True], ids=["whole", "killed"])
def test_rdcp_as_relay_detects_a_death(bench, tmp_path, source, dies):
    """An rdcp in place of rdsend does not take a death for the end either."""
    target = tmp_path / "out"
    relay = bench.receive("--", program("rdcp"), DEMAND, *PATIENCE, "--rsh", RSH, "--rdcp-path", program("rdcp"), source,
                          "far:%s" % target, host=NEAR)
    produce = "head -c 1000000 /dev/zero" + ("; exec sleep 1000" if dies else "")
    sender = bench.send(relay.port, "--", "sh", "-c", produce, to=NEAR.address, host=FAR)
    if dies:
        wait_until(lambda: any(p.is_file() and p.stat().st_blocks for p in tmp_path.iterdir()))
        relay.signal(signal.SIGKILL)
        assert sender.wait() == 44 and not target.exists()
        # rdcp outlives its rdrecv for a moment; no other process gets its exit status.
        wait_until(lambda: not leftovers(tmp_path), 20)
        assert not target.exists()
    else:
        assert (sender.wait(), relay.wait()) == (0, 0), sender.errors() + relay.errors()
        assert target.stat().st_size == 1000000
