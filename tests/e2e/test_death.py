# SPDX-License-Identifier: Apache-2.0
"""Signals, kills and stops: both ends exit, no file is torn, nothing hangs."""

import os
import pathlib
import re
import signal
import subprocess
import time

import pytest

from hosts import COUNT, LAB, SLOW, leftovers, pattern, wait_until
from processes import children, words

pytestmark = [pytest.mark.moves_blocks, pytest.mark.each_combination]
BLOCK = 256 << 10


def endless(bench, tmp_path, **how):
    """A stream without end; both ends are moving bytes."""
    sink = bench.receive("--", "sh", "-c", "cat >%s/seen" % tmp_path, **how)
    source = bench.send(sink.port, "--", "cat", "/dev/zero")
    wait_until(lambda: (tmp_path / "seen").exists() and (tmp_path / "seen").stat().st_size > 20 * BLOCK)
    return source, sink


@pytest.mark.parametrize("signo", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("victim", ["source", "sink"])
@pytest.mark.lab("rxe", cases="*-15", long=True)
@pytest.mark.lab("siw", cases="*sink-2", long=True)
@pytest.mark.lanes
def test_signal_ends_both_ends_within_two_seconds(bench, tmp_path, signo, victim):
    source, sink = endless(bench, tmp_path)
    start = time.monotonic()
    (source if victim == "source" else sink).signal(signo)
    assert (source.wait(10), sink.wait(10)) == (20, 20), source.errors() + sink.errors()
    assert time.monotonic() - start < 2 * SLOW + 0.5


@pytest.mark.parametrize("victim", ["source", "sink"])
@pytest.mark.lab
@pytest.mark.lanes
def test_killed_end_is_reported_within_two_seconds(bench, tmp_path, victim):
    """SD9: the death of a peer is detected in every state, and never taken for the end of the stream."""
    source, sink = endless(bench, tmp_path)
    dead, other = (source, sink) if victim == "source" else (sink, source)
    start = time.monotonic()
    dead.signal(signal.SIGKILL)
    assert other.wait(10) == 44, other.errors()
    assert time.monotonic() - start < 2 * SLOW + 0.5


@pytest.mark.parametrize("victim", ["source", "sink"])
@pytest.mark.lab("rxe", cases="sink")
@pytest.mark.lab("siw", cases="source")
@pytest.mark.lab("rxe", cases="source", long=True)
@pytest.mark.lab("siw", cases="sink", long=True)
@pytest.mark.lanes
def test_killed_idle_end_is_reported(bench, tmp_path, victim):
    sink = bench.receive(tmp_path / "out")
    source = bench.send(sink.port, "--", "sh", "-c", "echo some; exec sleep 1000")
    wait_until(lambda: leftovers(tmp_path))
    dead, other = (source, sink) if victim == "source" else (sink, source)
    start = time.monotonic()
    dead.signal(signal.SIGKILL)
    assert other.wait(10) == 44, other.errors()
    assert time.monotonic() - start < 2 * SLOW + 0.5
    assert not (tmp_path / "out").exists()


@pytest.mark.lab("rxe", long=True)
def test_kills_at_any_moment_tear_no_file(bench, tmp_path):
    """The target is old or new; a rerun reuses the leftovers and removes them."""
    new = pattern(40 * BLOCK + 1)
    (tmp_path / "in").write_bytes(new)
    for i in range(6 * COUNT):
        (tmp_path / "out").write_bytes(b"old")
        run = bench.copy("in", "far:%s/out" % tmp_path, wait=False)
        time.sleep(0.02 * (i % 12) * SLOW)
        run.group(signal.SIGKILL) if i % 2 else run.signal(signal.SIGKILL)
        run.proc.wait()
        wait_until(lambda: not locked(tmp_path), 10)
        assert (tmp_path / "out").read_bytes() in (b"old", new)
    assert bench.copy("in", "far:%s/out" % tmp_path).code == 0
    assert (tmp_path / "out").read_bytes() == new
    assert not leftovers(tmp_path)


def locked(directory):
    """Is a temporary there still in use?"""
    for name in leftovers(directory):
        try:
            if subprocess.run(["flock", "-n", os.path.join(directory, name), "true"]).returncode:
                return True
        except FileNotFoundError:
            pass
    return False


@pytest.mark.parametrize("signo", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.lab("siw", cases="*2", long=True)
@pytest.mark.lanes
def test_interrupted_rdcp_exits_20_and_leaves_no_process(bench, tmp_path, signo):
    (tmp_path / "in").write_bytes(pattern(8 * BLOCK))
    (tmp_path / "out").write_bytes(b"old")
    run = bench.copy("in", "far:%s/out" % tmp_path, wait=False,
                     env={"SLUICE_FAULT": "stall:lane=0,block=1,ms=30000;stall:lane=1,block=1,ms=30000"})
    wait_until(lambda: leftovers(tmp_path))
    ends = wait_until(lambda: children(run.proc.pid))
    start = time.monotonic()
    run.signal(signo)
    assert run.wait(10) == 20, run.errors()
    assert time.monotonic() - start < 2 * SLOW + 0.5
    wait_until(lambda: not any(os.path.exists("/proc/%d" % p) for p in ends), 3)
    assert (tmp_path / "out").read_bytes() == b"old"


@pytest.mark.lab("siw", long=True)
def test_killed_ssh_is_reported(bench, tmp_path):
    (tmp_path / "in").write_bytes(pattern(8 * BLOCK))
    run = bench.copy("in", "far:%s/out" % tmp_path, wait=False,
                     env={"SLUICE_FAULT": "stall:lane=0,block=1,ms=20000;stall:lane=1,block=1,ms=20000"})
    wait_until(lambda: leftovers(tmp_path))
    for pid in children(run.proc.pid):
        if b"--end" in b" ".join(words(pid)):
            os.kill(pid, signal.SIGKILL)
    assert run.wait(10) in (5, 44), run.errors()


@pytest.mark.lab("siw", long=True)
@pytest.mark.lanes
def test_stopped_consumer_is_not_a_failure(bench, tmp_path):
    """The output is blocked for longer than --timeout; afterwards everything arrives."""
    data = pattern(80 * BLOCK)
    (tmp_path / "in").write_bytes(data)
    sink = bench.receive("--timeout=%d" % (2 * SLOW), "--", "sh", "-c",
                         "sleep %d; cat >%s/out" % (5 * SLOW, tmp_path))
    source = bench.send(sink.port, "--timeout=%d" % (2 * SLOW), tmp_path / "in")
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    assert (tmp_path / "out").read_bytes() == data


@pytest.mark.parametrize("victim", ["source", "sink"])
@pytest.mark.lab("rxe", cases="*source", long=True)
@pytest.mark.lab("siw", cases="*sink", long=True)
@pytest.mark.lanes
def test_short_stop_is_survived(bench, tmp_path, victim):
    data = pattern(40 * BLOCK)
    (tmp_path / "in").write_bytes(data)
    sink = bench.receive("--timeout=%d" % (4 * SLOW), tmp_path / "out")
    source = bench.send(sink.port, "--timeout=%d" % (4 * SLOW), "--", "sh", "-c",
                        "head -c 1000000 %s/in; sleep %d; tail -c +1000001 %s/in" % (
                            tmp_path, 4 * SLOW, tmp_path))
    wait_until(lambda: leftovers(tmp_path))
    one = source if victim == "source" else sink
    one.signal(signal.SIGSTOP)
    time.sleep(2 * SLOW)
    one.signal(signal.SIGCONT)
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    assert (tmp_path / "out").read_bytes() == data


@pytest.mark.lab(long=True)
def test_silent_peer_exits_30(bench, tmp_path):
    source, sink = endless(bench, tmp_path)
    # The default of --timeout is 15 s; a stopped process is as silent as a dead host.
    start = time.monotonic()
    sink.signal(signal.SIGSTOP)
    assert source.wait(40 * SLOW) == 30, source.errors()
    assert time.monotonic() - start < 17 * SLOW
    sink.signal(signal.SIGCONT)
    assert sink.wait(10) in (30, 44), sink.errors()


@pytest.mark.lab("siw", long=True)
def test_idle_session_uses_no_cpu(bench, tmp_path):
    sink = bench.receive("--", "sh", "-c", "cat >%s/seen" % tmp_path)
    source = bench.send(sink.port, "--", "sh", "-c", "echo x; exec sleep 100")
    wait_until(lambda: (tmp_path / "seen").exists() and (tmp_path / "seen").stat().st_size)

    def use(run):
        """Of each thread: processor time in milliseconds, from nanoseconds (clock ticks are too coarse), and how often it slept."""
        for task in sorted(pathlib.Path("/proc/%d/task" % run.proc.pid).glob("*")):
            slept = re.search(r"^voluntary_ctxt_switches:\s(\d+)", (task / "status").read_text(), re.M)
            yield (task / "comm").read_text().strip(), int((task / "schedstat").read_text().split()[0]) / 1e6, int(slept[1])

    time.sleep(2 * SLOW)  # until both lanes exist
    before = [*use(source), *use(sink)]
    time.sleep(10)
    # What a wake-up costs is the machine's affair; how many there are is ours.
    used = [(name, ms - was_ms, slept - had_slept) for (name, ms, slept), (_, was_ms, had_slept)
            in zip([*use(source), *use(sink)], before)]
    lanes = [slept for name, _, slept in used if "source" in name or "sink" in name]
    assert len(lanes) == 4 and max(lanes) <= 10, used
    assert LAB or sum(ms for _, ms, _ in used) <= 20, used
