# SPDX-License-Identifier: Apache-2.0
"""Many clients of one rdcpd at a time: each gets what it asked for, and its share."""

import os
import shutil
import random
import time

import pytest

from hosts import COUNT, DEMAND, leftovers, pattern, wait_until
from processes import descendants

pytestmark = [
    pytest.mark.needs("loopback", why="rdcpd is at loopback; test_rdcpd_verbs.py is about every kind of verbs"),
    pytest.mark.moves_blocks,
]
MIB = 1 << 20
# For a share to mean something: of many clients each has the processors for a small part of the time.
ENOUGH = (16 if COUNT == 1 else 128) * MIB


def read_so_far(pid):
    """How many bytes a process has read from files."""
    try:
        with open("/proc/%d/io" % pid) as f:
            return int(f.readline().split()[1])
    except OSError:
        return 0


def test_64_clients_at_once(bench, daemon, tmp_path):
    """Uploads and downloads of files and trees mixed; each copy is right, and nothing stays."""
    rng, runs, copies = random.Random(64), [], []
    for i in range(64):
        tree, push = i % 4 > 1, i % 2
        source = (tmp_path if push else tmp_path / "ro") / ("in%d" % i)
        files = [source / "a", source / "d" / "b"] if tree else [source]
        for n, path in enumerate(files):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(pattern(rng.choice([1, 100_000, 900_000]), seed=100 * i + n))
        target = tmp_path / "rw" / source.name if push else tmp_path / ("out%d" % i)
        copies += [(path, target / path.relative_to(source)) for path in files]
        words = [source, daemon.url("rw/")] if push else [daemon.url("ro/%s" % source.name), target]
        # A busy machine takes seconds to answer all of them.
        runs.append(bench.start(daemon.argv("-r", DEMAND, "--connect-timeout=60", *words), cwd=tmp_path))
    assert [r.wait(120) for r in runs] == [0] * 64, [r.errors() for r in runs if r.proc.poll()]
    for source, target in copies:
        assert source.read_bytes() == target.read_bytes(), target
    assert leftovers(tmp_path / "rw") == []
    wait_until(lambda: daemon.children() == [])


def shares(bench, daemon, tmp_path, count, enough):
    """How much each of the uploads and each of the downloads moves while all of them run, until each has moved enough: two
    lists, in the order in which they began. None if one ended before all had begun."""
    (tmp_path / "rw" / "to").mkdir()
    runs = []
    for i in range(count):
        words = [daemon.url("ro/many"), "to%d" % i] if i % 2 else ["many", daemon.url("rw/to/%d" % i)]
        runs.append(bench.start(daemon.argv("-r", DEMAND, "--connect-timeout=60", "--lanes=1", "--sparse", *words), cwd=tmp_path))
    pushes = [r for i, r in enumerate(runs) if not i % 2]

    def moved():
        """The sources are the processes that read much."""
        uploads = {p: read_so_far(p) for r in pushes for p in descendants(r.proc.pid)}
        downloads = {p: read_so_far(p) for p in descendants(daemon.run.proc.pid)}
        return [{p: n for p, n in found.items() if n > MIB} for found in (uploads, downloads)]
    first, gained, until = None, None, time.monotonic() + 60
    while time.monotonic() < until:
        now = moved()
        if any(r.proc.poll() is not None for r in runs):
            break
        if [len(found) for found in now] == [count - count // 2, count // 2]:
            first = first or now
            gained = [[n - before.get(p, n) for p, n in found.items()] for found, before in zip(now, first)]
            if min(map(min, gained)) > enough:
                break
        time.sleep(.02)
    for r in runs:
        r.kill()
    wait_until(lambda: daemon.children() == [])
    shutil.rmtree(tmp_path / "rw" / "to")
    for path in tmp_path.glob("to*"):
        shutil.rmtree(path)
    return gained


def test_shares_are_fair(bench, daemon, tmp_path):
    """While all run, no upload moves more than twice of what another one does, and no download. Uploads and downloads are
    different work, for disks and processors. The promise is about shares: what clients got in the same time is compared, and
    nothing is a rate. A busy machine serves one process better for a moment, but not always the one that began first, or
    last: so what each place in the order got in all tries counts. None may be starved in any."""
    count = 12 if COUNT == 1 else 64
    (tmp_path / "zeros").write_bytes(bytes(64 * MIB))
    # So many names of one file that nobody is through before all have begun.
    for top in tmp_path / "many", tmp_path / "ro" / "many":
        top.mkdir()
        for i in range(500):
            os.link(tmp_path / "zeros", top / str(i))
    seen, sums = [], [[0] * (count - count // 2), [0] * (count // 2)]
    for times in range(1, 9):
        found = shares(bench, daemon, tmp_path, count, times * ENOUGH)
        if not found:
            continue
        seen.append([[n // MIB for n in kind] for kind in found])
        print("MiB of each upload and of each download: %s" % seen[-1])
        assert all(min(kind) > MIB and max(kind) <= 20 * min(kind) for kind in found), seen
        # A long try counts as much as a short one.
        sums = [[old + n / sum(kind) for old, n in zip(sum_, kind)] for sum_, kind in zip(sums, found)]
        if all(max(kind) <= 2 * min(kind) for kind in sums):
            return
    assert False, (seen, sums)
