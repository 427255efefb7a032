# SPDX-License-Identifier: Apache-2.0
"""Clients of a rdcpd are killed at random, again and again. Nothing of them stays, and no other client is harmed."""

import os
import random
import signal
import time

import pytest

from daemons import private_memory
from hosts import COUNT, DEMAND, leftovers, pattern, wait_until
from processes import descendants, group_lives

SECONDS = 10 if COUNT == 1 else 300
AT_ONCE = 6
TARGETS = 12
pytestmark = [
    pytest.mark.needs("loopback", why="rdcpd is at loopback; test_rdcpd_verbs.py is about every kind of verbs"),
    pytest.mark.moves_blocks,
    pytest.mark.first,
]


class Clients:
    """Starts clients on a few targets, one at a time on each, and kills most of them."""

    def __init__(self, bench, daemon, tmp_path, seed):
        self.bench, self.daemon, self.tmp, self.rng = bench, daemon, tmp_path, random.Random(seed)
        self.running, self.done, self.killed = {}, 0, 0
        for top in (tmp_path, tmp_path / "ro"):
            (top / "in" / "d").mkdir(parents=True)
            (top / "in" / "a").write_bytes(pattern(6 << 20, seed=1))
            (top / "in" / "d" / "b").write_bytes(pattern(70_000, seed=2))
        (tmp_path / "rw" / "back").mkdir()
        (tmp_path / "back").mkdir()

    def words(self, n):
        """Target n: even ones are at the daemon."""
        return ["in/", self.daemon.url("rw/back/%d" % n)] if n % 2 == 0 else [self.daemon.url("ro/in/"), "back/%d" % n]

    def target(self, n):
        return self.tmp / ("rw/back" if n % 2 == 0 else "back") / str(n)

    def start(self, n):
        slow = self.rng.choice([[], ["--bwlimit=20M"], ["--bwlimit=60M"]])
        return self.bench.start(self.daemon.argv("-r", DEMAND, *slow, *self.words(n)), cwd=self.tmp)

    def kill(self, r):
        """All of the client, or one of its processes, or it stops for a moment before."""
        mine = [r.proc.pid, *descendants(r.proc.pid)]
        victims = self.rng.choice([mine, mine, [self.rng.choice(mine)]])
        for signo in self.rng.choice([[signal.SIGKILL], [signal.SIGKILL], [signal.SIGSTOP, signal.SIGKILL], [signal.SIGTERM]]):
            for pid in victims:
                try:
                    os.kill(pid, signo)
                except ProcessLookupError:
                    pass

    def step(self):
        free = sorted(set(range(TARGETS)) - set(self.running))
        while len(self.running) < AT_ONCE:
            n = free.pop(self.rng.randrange(len(free)))
            due = time.monotonic() + self.rng.choice([0.01, 0.05, 0.2, 0.5, 30]) * self.rng.random()
            self.running[n] = self.start(n), due
        for n, (r, due) in list(self.running.items()):
            if r.proc.poll() is not None:
                self.finish(n, r)
            elif time.monotonic() > due:
                self.kill(r)
                r.wait(20)
                r.group(signal.SIGKILL)
                wait_until(lambda: not group_lives(r.proc.pid))
                self.killed += 1
                del self.running[n]

    def finish(self, n, r):
        assert r.wait() == 0, r.errors()
        self.check(n)
        self.done += 1
        del self.running[n]

    def check(self, n):
        for name in ("a", "d/b"):
            assert (self.target(n) / name).read_bytes() == (self.tmp / "in" / name).read_bytes(), (n, name)

    def settle(self):
        """The last run of each target completes it, when no other run uses it any more."""
        for n, (r, _) in list(self.running.items()):
            r.wait(60)
        wait_until(lambda: self.daemon.children() == [])
        for n in range(TARGETS):
            r = self.daemon.copy("-r", DEMAND, *self.words(n))
            assert r.code == 0, r.errors()
            self.check(n)


def test_nothing_of_killed_clients_stays(bench, daemon, tmp_path):
    seed = random.randrange(1 << 30)
    print("seed %d" % seed)
    clients = Clients(bench, daemon, tmp_path, seed)
    parent = daemon.run.proc.pid
    assert daemon.copy("-r", DEMAND, *clients.words(0)).code == 0
    wait_until(lambda: daemon.children() == [])
    before = daemon.descriptors(), private_memory(parent)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end or clients.killed <= SECONDS:
        clients.step()
        time.sleep(.01)
    clients.settle()
    wait_until(lambda: daemon.children() == [])
    after = daemon.descriptors(), private_memory(parent)
    left = [name for n in range(TARGETS) for top in (clients.target(n), clients.target(n) / "d") for name in leftovers(top)]
    print("%d clients were killed, %d were not; descriptors %d, %d; memory of the parent %d KiB, %d KiB; %d temporary files" % (
        clients.killed, clients.done, before[0], after[0], before[1] >> 10, after[1] >> 10, len(left)))
    assert after[0] == before[0]
    assert after[1] < before[1] + (1 << 20)
    assert left == []


def test_session_of_a_killed_client_ends_after_the_next_run(bench, daemon, tmp_path):
    """It has the temporary until then, so that run needs one of its own. Nobody needs what is left of the first."""
    clients = Clients(bench, daemon, tmp_path, 0)
    assert daemon.copy("-r", DEMAND, *clients.words(0)).code == 0
    killed = bench.start(daemon.argv("-r", DEMAND, "--bwlimit=100K", *clients.words(0)), cwd=tmp_path)
    wait_until(lambda: leftovers(clients.target(0)))
    ends = daemon.ends()
    for pid in ends:
        os.kill(pid, signal.SIGSTOP)
    killed.kill()
    r = daemon.copy("-r", DEMAND, *clients.words(0))
    assert r.code == 0, r.errors()
    assert len(leftovers(clients.target(0))) == 1
    for pid in ends:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: daemon.children() == [])
    clients.check(0)
    assert leftovers(clients.target(0)) == []
