# SPDX-License-Identifier: Apache-2.0
"""Interrupted copies of trees and huge files continue where they stopped; no stale file is left."""

import os
import random
import re
import signal
import stat
import time

import pytest

from hosts import COUNT, LAB, SLOW, USER, leftovers, pattern, wait_until, wait_until_gone
from processes import descendants, words
from trees import compare, data_ranges, equal, fell, generate, make, read, stale, summary, walk

pytestmark = [pytest.mark.moves_blocks, pytest.mark.any_lane, pytest.mark.each_combination]
BLOCK = 256 << 10
RESUME_MIN = 4 << 20
FILES = 20 if LAB else 100


def programs(run):
    """(conductor, near end, far end): the pids of those that exist, else None."""
    near = far = None
    for pid in descendants(run.proc.pid):
        argv = words(pid)
        if argv and argv[0].endswith(b"/rdcp") and b"--end" in argv:
            far = pid
        elif argv and argv[0].endswith(b"/rdcp"):
            near = pid
    return {"conductor": run.proc.pid, "near end": near, "far end": far}


def interrupt(run, who, signo, after):
    """Send the signal after this many seconds, to one process or to all; wait until all have exited."""
    end = time.monotonic() + after
    seen = set()
    while time.monotonic() < end and run.proc.poll() is None:
        seen |= set(descendants(run.proc.pid))
        time.sleep(0.005)
    seen |= set(descendants(run.proc.pid))
    if who == "all":
        run.group(signo)
    else:
        pid = programs(run)[who]
        if pid and (pid != run.proc.pid or run.proc.poll() is None):
            try:
                os.kill(pid, signo)
            except ProcessLookupError:
                pass
    code = run.wait(20)
    wait_until_gone(seen)
    return code


KILLS = [(who, signo) for who in ("conductor", "near end", "far end", "all")
         for signo in (signal.SIGKILL, signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGTERM)]


@pytest.mark.parametrize("which", ["push", "pull"])
@pytest.mark.parametrize("part", range(2))
@pytest.mark.timeout((120 + 60 * COUNT) * SLOW)
def test_rerun_after_a_kill_at_any_moment_completes_the_tree(bench, ground, which, part):
    """20 kills (100 in `./check exhaustive`): a rerun completes the tree, and removes what the killed run left. The time limit
    allows 12 s for each, with three times that where it is emulated."""
    a, b = ground / "a", ground / "b"
    seed = 40 + 2 * part + (which == "pull")
    generate(seed, a, files=FILES)
    want = walk(os.fsencode(a))
    near, far = ("", "far:") if which == "push" else ("far:", "")
    words = ["-aHAX", near + str(a), far + str(b)]
    start = time.monotonic()
    assert bench.copy(*words).code == 0
    took = time.monotonic() - start
    rng = random.Random(seed)
    kills = KILLS[part::2] if which == "push" else KILLS[1 - part::2]
    count = min(5 * COUNT, 25)
    for n in range(count):
        who, signo = kills[(n * 3 + seed) % len(kills)]
        what = "seed %d, kill %d: signal %d to %s" % (seed, n, signo, who)
        again = n % 3 == 0  # sometimes the target is already complete
        if not again:
            fell(b)
        words = ["-aHAX", near + str(a) + ("/" if again else ""), far + str(b)]
        run = bench.copy(*words, wait=False)
        after = rng.uniform(0, took * 1.1)
        code = interrupt(run, who, signo, after)
        if signo in (signal.SIGINT, signal.SIGTERM) and who == "conductor":
            # Before the copy begins and after it is over, a signal has its default action.
            assert code in (0, 20, -signo), (what, code, run.errors())
        if b.exists() and not marker(b):  # it had finished: another run would copy into b
            words[1] = near + str(a) + "/"
        r = bench.copy(*words)
        assert r.code == 0, (what, r.code, r.errors()[-2000:])
        lines = compare(want, os.fsencode(b))
        assert not lines, "%s after %.3f s of %.3f: %s" % (what, after, took, "\n".join(lines[:20]))


def marker(top):
    return [n for n in leftovers(top) if re.fullmatch(r"\.sluice\.marker\.[0-9a-f]{16}", n)]


@pytest.mark.parametrize("signo", [signal.SIGKILL, signal.SIGINT])
def test_killed_run_is_continued_and_never_nests(bench, ground, signo):
    """rdcp -v -r node_modules host:/dev/shm/node_modules, killed and rerun, twice."""
    a, b = ground / "from" / "node_modules", ground / "to" / "node_modules"
    b.parent.mkdir()
    make(a, {"m%02d" % m: {"index.js": pattern(30000, m), "node_modules": {"x": {"package.json": b"{}"}}}
             for m in range(120)})
    had = 0
    for _ in range(2):
        run = bench.copy("-v", "-r", "--bwlimit=1M", "node_modules", "far:%s" % b, cwd=a.parent, wait=False)
        wait_until(lambda: b.exists() and len(os.listdir(b)) > had + 5)
        seen = descendants(run.proc.pid)
        run.signal(signo)
        assert run.wait() == (20 if signo == signal.SIGINT else -9), run.errors()
        wait_until_gone(seen)
        assert marker(b) and not (b / "node_modules").exists()
        had = len(os.listdir(b))
    # However the source is spelled.
    r = bench.copy("-v", "-r", "./node_modules//", "far:%s" % b, cwd=a.parent)
    assert r.code == 0, r.errors()
    assert read(b) == read(a) and not stale(b)
    # Finished: from now on cp's rule applies.
    r = bench.copy("-r", "node_modules", "far:%s" % b, cwd=a.parent)
    assert r.code == 0, r.errors()
    assert read(b) == {**read(a), "node_modules": read(a)}


def test_other_source_does_not_continue_an_interrupted_target(bench, ground):
    make(ground, {"one": {"f%02d" % i: pattern(50000, i) for i in range(40)}, "two": {"x": b"x"}})
    run = bench.copy("-r", "--bwlimit=1M", "one", "far:%s" % (ground / "to"), cwd=ground, wait=False)
    wait_until(lambda: (ground / "to").exists() and len(os.listdir(ground / "to")) > 3)
    seen = descendants(run.proc.pid)
    run.kill()
    wait_until_gone(seen)
    r = bench.copy("-r", "two", "far:%s" % (ground / "to"), cwd=ground)
    assert r.code == 0, r.errors()
    assert read(ground / "to" / "two") == {"x": b"x"}
    r = bench.copy("-r", "one", "far:%s" % (ground / "to"), cwd=ground)
    assert r.code == 0, r.errors()
    assert read(ground / "to") == {**read(ground / "one"), "two": {"x": b"x"}} and not stale(ground / "to")


@pytest.mark.parametrize("options", ["-r", "-rA", "-a"])
def test_killed_run_leaves_final_directory_modes(bench, ground, options):
    a, b = ground / "a", ground / "b"
    make(a, {"d%d" % m: {"f%d" % i: pattern(20000, i) for i in range(20)} for m in range(8)})
    modes = [0o755, 0o700, 0o1700, 0o750, 0o775, 0o2755, 0o777, 0o1777]
    for m, mode in enumerate(modes):
        (a / ("d%d" % m)).chmod(mode)
    umask = {"preexec": lambda: os.umask(0o022)}
    run = bench.copy(options, "--bwlimit=1M", "a", "far:%s" % b, cwd=ground, wait=False, **umask)
    wait_until(lambda: b.exists() and any(len(os.listdir(d)) > 3 for d in b.iterdir() if d.is_dir()))
    seen = descendants(run.proc.pid)
    run.kill()
    wait_until_gone(seen)
    # No other user gets more rights to them in between, and none of them has a marker.
    for d in b.iterdir():
        if d.is_dir():
            mode = stat.S_IMODE(d.stat().st_mode)
            assert mode & ~modes[int(d.name[1:])] == 0, (d.name, oct(mode))
    r = bench.copy(options, "a", "far:%s" % b, cwd=ground, **umask)
    assert r.code == 0, r.errors()
    assert read(b) == read(a) and not stale(b)
    for m, mode in enumerate(modes):
        want = mode & {"-r": 0o755, "-rA": 0o1777, "-a": 0o7777}[options]
        assert stat.S_IMODE((b / ("d%d" % m)).stat().st_mode) == want, (m, oct(want))


# ---- one huge file -------------------------------------------------------------------------

BIG = 24 << 20
# Slow enough to be interrupted halfway, even by a slow test.
HALF_WAY = "--bwlimit=%dM" % (8 / SLOW)


def await_bytes(directory, bytes_):
    """Wait until this much has been written to the temporary there."""
    def written():
        for name in leftovers(directory):
            fd = os.open(directory / name, os.O_RDONLY)
            try:
                return sum(y - x for x, y in data_ranges(fd, os.fstat(fd).st_size)) >= bytes_
            finally:
                os.close(fd)
    wait_until(written)


def slow_copy(bench, ground, to):
    """Of a file, of which about half is in a temporary."""
    make(ground, {"from": {"big": pattern(BIG)}, "to": to})
    run = bench.copy(HALF_WAY, "big", "far:%s" % (ground / "to"), cwd=ground / "from", wait=False)
    await_bytes(ground / "to", BIG // 2)
    return run


def interrupted(bench, ground, signo=signal.SIGKILL):
    """A file of which about half is in a temporary; returns the temporary's name."""
    run = slow_copy(bench, ground, {})
    seen = descendants(run.proc.pid)
    run.signal(signo)
    run.wait()
    wait_until_gone(seen)
    assert not (ground / "to" / "big").exists(), "too late"
    names = leftovers(ground / "to")
    assert len(names) == 1, names
    return ground / "to" / names[0]


def sent(run):
    """The bytes that the lanes sent."""
    return summary(run)["sent"]


def finish(bench, ground, *options):
    r = bench.copy("--json", *options, "big", "far:%s" % (ground / "to"), cwd=ground / "from")
    assert r.code == 0, r.errors()
    assert (ground / "to" / "big").read_bytes() == (ground / "from" / "big").read_bytes()
    assert not leftovers(ground / "to")
    return r


@pytest.mark.parametrize("signo", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.lab("siw", cases="*9", long=True)
@pytest.mark.lanes
def test_huge_file_is_resumed(bench, ground, signo):
    interrupted(bench, ground, signo)
    r = finish(bench, ground)
    assert 0 < sent(r) < BIG * 0.75, summary(r)


def test_huge_file_in_a_pulled_tree_is_resumed(bench, ground):
    data = pattern(BIG)
    make(ground, {"from": {"d": {"big": data}, "small": b"s"}})
    run = bench.copy("-a", HALF_WAY, "far:%s" % (ground / "from"), "to", cwd=ground, wait=False)
    wait_until(lambda: (ground / "to" / "d").exists())
    await_bytes(ground / "to" / "d", BIG // 2)
    seen = descendants(run.proc.pid)
    run.kill()
    wait_until_gone(seen)
    r = bench.copy("-a", "--json", "far:%s" % (ground / "from"), "to", cwd=ground)
    assert r.code == 0, r.errors()
    equal(ground / "from", ground / "to")
    assert 0 < sent(r) < BIG * 0.75, summary(r)


@pytest.mark.parametrize("damage", ["bytes", "shorter", "longer", "empty"])
@pytest.mark.lanes
def test_damaged_temporary_is_corrected(bench, ground, damage):
    left = interrupted(bench, ground)
    with open(left, "r+b") as f:
        if damage == "bytes":
            for at in (0, 3 * BLOCK + 5, 40 * BLOCK - 1):
                f.seek(at)
                f.write(b"damaged!")
        else:
            f.truncate({"shorter": 10 * BLOCK + 17, "longer": BIG + 3 * BLOCK + 1, "empty": 0}[damage])
    r = finish(bench, ground)
    if damage == "bytes":
        assert 0 < sent(r) < BIG * 0.8, summary(r)


@pytest.mark.parametrize("how", ["", "--inplace"])
def test_temporary_of_a_file_that_another_run_has_completed_is_removed(bench, ground, how):
    run = slow_copy(bench, ground, {"big": b"old"})
    run.group(signal.SIGSTOP)  # or else it may be complete before the other one is
    r = bench.copy(*how.split(), "big", "far:%s" % (ground / "to"), cwd=ground / "from")
    assert r.code == 0, r.errors()
    run.signal(signal.SIGTERM)
    run.group(signal.SIGCONT)
    run.wait()
    assert "is kept" not in run.errors(), run.errors()
    assert (ground / "to" / "big").read_bytes() == pattern(BIG)
    assert leftovers(ground / "to") == []


@pytest.mark.parametrize("how", ["link", "chmod"])
def test_temporary_is_kept_though_the_status_of_the_old_file_changes(bench, ground, how):
    """It has the new one's size, and no times are kept."""
    run = slow_copy(bench, ground, {"big": b"\1" * BIG})
    big = ground / "to" / "big"
    if how == "link":
        os.link(big, ground / "snapshot")
    else:
        big.chmod(0o600)
    run.signal(signal.SIGTERM)
    run.wait()
    assert "is kept as temporary" in run.errors() and len(leftovers(ground / "to")) == 1, run.errors()
    assert big.read_bytes() == b"\1" * BIG
    assert 0 < sent(finish(bench, ground)) < BIG * 0.75


def test_temporary_is_kept_though_somebody_else_replaces_the_target(bench, ground):
    run = slow_copy(bench, ground, {"big": b"old"})
    (ground / "other").write_bytes(b"of an editor")
    os.rename(ground / "other", ground / "to" / "big")
    run.signal(signal.SIGTERM)
    run.wait()
    assert "is kept as temporary" in run.errors(), run.errors()
    assert (ground / "to" / "big").read_bytes() == b"of an editor"
    assert len(leftovers(ground / "to")) == 1
    assert 0 < sent(finish(bench, ground)) < BIG * 0.75


def test_source_changed_before_the_rerun_is_copied(bench, ground):
    """Only the differing cells are sent; shorter and longer files come out right."""
    for change in ("bytes", "shorter", "longer"):
        fell(ground / "to")
        interrupted(bench, ground)
        with open(ground / "from" / "big", "r+b") as f:
            if change == "bytes":
                f.seek(5 * BLOCK)
                f.write(b"another")
            else:
                f.truncate(BIG + (3 * BLOCK + 7) * (1 if change == "longer" else -30))
        r = finish(bench, ground)
        if change == "bytes":
            assert 0 < sent(r) < BIG * 0.8, summary(r)


def test_planted_temporary_is_not_used(bench, ground):
    """A symlink, a hard link or a directory with its name: the object behind it stays unchanged."""
    left = interrupted(bench, ground)
    precious = ground / "precious"
    for trick in ("symlink", "hard link", "directory"):
        precious.write_bytes(b"precious" * 1000)
        if os.path.lexists(left):
            left.unlink()
        (ground / "to" / "big").unlink(missing_ok=True)
        if trick == "symlink":
            left.symlink_to(precious)
        elif trick == "hard link":
            os.link(precious, left)
        else:
            left.mkdir()
        r = bench.copy("big", "far:%s" % (ground / "to"), cwd=ground / "from")
        assert r.code == 0, (trick, r.errors())
        assert (ground / "to" / "big").read_bytes() == pattern(BIG), trick
        assert precious.read_bytes() == b"precious" * 1000, trick
        if trick == "directory":
            left.rmdir()
            assert not leftovers(ground / "to")


def test_resumed_file_keeps_its_holes(bench, ground):
    data = bytearray(BIG)
    for at in range(0, BIG, 8 * BLOCK):
        data[at:at + 5 * BLOCK] = pattern(5 * BLOCK, at)
    make(ground, {"from": {}, "to": {}})
    with open(ground / "from" / "big", "wb") as f:
        for at in range(0, BIG, 8 * BLOCK):
            f.seek(at)
            f.write(data[at:at + 5 * BLOCK])
        f.truncate(BIG)
    run = bench.copy(HALF_WAY, "big", "far:%s" % (ground / "to"), cwd=ground / "from", wait=False)
    await_bytes(ground / "to", 6 << 20)
    seen = descendants(run.proc.pid)
    run.kill()
    wait_until_gone(seen)
    left = leftovers(ground / "to")
    assert left
    with open(ground / "to" / left[0], "r+b") as f:  # garbage in place of a hole
        f.seek(6 * BLOCK)
        f.write(b"garbage" * 100)
    finish(bench, ground)
    equal(ground / "from", ground / "to", without=("mtime", "mode"))


# ---- concurrent runs ------------------------------------------------------------------------


@pytest.mark.parametrize("n", range(COUNT))
@pytest.mark.parametrize("options", ["-aAX", "-aHAX"])
def test_two_concurrent_runs_into_one_target_succeed(bench, ground, n, options):
    """Both succeed, the result equals the source, and one more run leaves nothing stale. Except for root, a file
    may fail in a directory that the other run has just made read-only."""
    a, b = ground / "a", ground / "b"
    generate(60 + n, a, files=FILES)
    with open(a / "large", "wb") as f:
        f.write(pattern(3 * RESUME_MIN))
    b.mkdir()
    words = [options, str(a) + "/", "far:%s" % b]
    one = bench.copy(*words, wait=False)
    time.sleep(random.Random(n).choice([0, 0.05, 0.15]) * SLOW)
    other = bench.copy(*words, wait=False)
    codes = one.wait(60), other.wait(60)
    assert set(codes) <= ({0, 23} if USER else {0}), (codes, one.errors(), other.errors())
    r = bench.copy(*words)
    assert r.code == 0, r.errors()
    equal(a, b, 60 + n, without=() if "H" in options else ["links"])


def test_concurrent_runs_of_two_sources_never_mix_a_file(bench, ground):
    make(ground, {"a": {"f%02d" % i: pattern(3 * BLOCK, i) for i in range(20)},
                  "b": {"f%02d" % i: pattern(3 * BLOCK, 100 + i) for i in range(20)}, "to": {}})
    runs = [bench.copy("-r", str(ground / d) + "/", "far:%s" % (ground / "to"), wait=False) for d in "ab"]
    for r in runs:
        assert r.wait() in (0, 23), r.errors()
    for i in range(20):
        name = "f%02d" % i
        got = (ground / "to" / name).read_bytes()
        assert got in [(ground / d / name).read_bytes() for d in "ab"], name
    r = bench.copy("-r", str(ground / "a") + "/", "far:%s" % (ground / "to"))
    assert r.code == 0, r.errors()
    equal(ground / "a", ground / "to", without=("mtime",))
