# SPDX-License-Identifier: Apache-2.0
"""Many clients of one rdcpd at a time: each gets what it asked for, and its share."""

import os
import random
import time

import pytest

from hosts import COUNT, leftovers, pattern, wait_until
from processes import descendants

pytestmark = pytest.mark.needs("tcp", why="rdcpd moves data over TCP")
MIB = 1 << 20


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
        runs.append(bench.start(daemon.argv("-r", *words), cwd=tmp_path))
    assert [r.wait(120) for r in runs] == [0] * 64, [r.errors() for r in runs if r.proc.poll()]
    for source, target in copies:
        assert source.read_bytes() == target.read_bytes(), target
    assert leftovers(tmp_path / "rw") == []
    wait_until(lambda: daemon.children() == [])


def shares(bench, daemon, tmp_path, count):
    """How much each of the uploads and each of the downloads moves while all of them run: two lists."""
    (tmp_path / "rw" / "to").mkdir()
    runs, pull = [], []
    for i in range(count):
        words = [daemon.url("ro/zeros"), "to%d" % i] if i % 2 else ["zeros", daemon.url("rw/to/%d" % i)]
        runs.append(bench.start(daemon.argv("--lanes=1", "--sparse", *words), cwd=tmp_path))
    pushes = [r for i, r in enumerate(runs) if not i % 2]

    def moved():
        """The sources are the processes that read much."""
        uploads = {p: read_so_far(p) for r in pushes for p in descendants(r.proc.pid)}
        downloads = {p: read_so_far(p) for p in descendants(daemon.run.proc.pid)}
        return [{p: n for p, n in found.items() if n > MIB} for found in (uploads, downloads)]
    first, last = None, None
    while True:
        now = moved()
        if first and len(now[0]) + len(now[1]) < count or any(r.proc.poll() is not None for r in runs):
            break
        if len(now[0]) + len(now[1]) == count:
            first, last = first or now, now
        time.sleep(.02)
    for r in runs:
        r.kill()
    wait_until(lambda: daemon.children() == [])
    for path in [*(tmp_path / "rw" / "to").iterdir(), *tmp_path.glob("to*"), *tmp_path.glob(".sluice.*")]:
        path.unlink()
    (tmp_path / "rw" / "to").rmdir()
    if not first:
        return None
    return [sorted(last[kind][p] - n for p, n in first[kind].items() if p in last[kind]) for kind in (0, 1)]


def test_shares_are_fair(bench, daemon, tmp_path, record_property):
    """While all run, no upload moves more than twice of what another one does, and no download. Uploads and downloads are
    different work, for disks and processors. The machine may be busy, and serve one process better for a moment; a
    daemon that is not fair is that each time."""
    count, size = (12, 192 * MIB) if COUNT == 1 else (64, 512 * MIB)
    with open(tmp_path / "zeros", "wb") as f:
        for _ in range(size // MIB):
            f.write(bytes(MIB))
    os.link(tmp_path / "zeros", tmp_path / "ro" / "zeros")
    seen = []
    for _ in range(5):
        found = shares(bench, daemon, tmp_path, count)
        if not found or len(found[0]) != len(found[1]):
            continue
        seen.append([[n // MIB for n in kind] for kind in found])
        print("MiB of each upload and of each download: %s" % seen[-1])
        if all(kind[0] > MIB and kind[-1] <= 2 * kind[0] for kind in found):
            return
    assert False, seen
