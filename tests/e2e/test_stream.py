# SPDX-License-Identifier: Apache-2.0
"""rdsend and rdrecv: streams and files in any combination at the two ends."""

import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

import pytest

from hosts import (DEMAND, FAR, KEY, RDMA, SLOW, as_nobody, leftovers, open_up, pattern, program,
                   wait_until)

pytestmark = pytest.mark.moves_blocks
BLOCK = 256 << 10


def both(bench, source_args, sink_args, source_how=None, sink_how=None, codes=(0, 0)):
    sink = bench.receive(*sink_args, **(sink_how or {}))
    source = bench.send(sink.port, *source_args, **(source_how or {}))
    assert (source.wait(), sink.wait()) == codes, source.errors() + sink.errors()
    return source, sink


SIZES = [0, 1, len("Hello RDMA!\n"), BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 17, 24 * BLOCK + 5]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("from_file", [True, False], ids=["file", "pipe"])
@pytest.mark.parametrize("to_file", [True, False], ids=["file", "pipe"])
@pytest.mark.lab("rxe", cases="pipe-pipe-6291461")
@pytest.mark.lab(cases="*-6291461", long=True)
@pytest.mark.lab("rxe", cases="file-file-*", long=True)
@pytest.mark.lab("siw", cases="pipe-pipe-*", long=True)
@pytest.mark.lanes
def test_files_and_streams_of_every_size_are_copied(bench, tmp_path, size, from_file, to_file):
    data = pattern(size)
    (tmp_path / "in").write_bytes(data)
    how = {}
    if not from_file:
        cat = subprocess.Popen(["cat", tmp_path / "in"], stdout=subprocess.PIPE)
        how = {"stdin": cat.stdout}
    source, sink = both(bench, [tmp_path / "in"] if from_file else [],
                        [tmp_path / "out"] if to_file else [], how)
    if not from_file:
        cat.stdout.close()
        assert cat.wait() == 0
    assert (tmp_path / "out").read_bytes() == data if to_file else bytes(sink.out) == data
    assert not leftovers(tmp_path)


@pytest.mark.lab(long=True)
@pytest.mark.lanes
def test_one_line_arrives(bench):
    hello = subprocess.Popen(["echo", "Hello RDMA!"], stdout=subprocess.PIPE)
    _, sink = both(bench, [], [], {"stdin": hello.stdout})
    hello.stdout.close()
    hello.wait()
    assert bytes(sink.out) == b"Hello RDMA!\n"


@pytest.mark.lab("siw", long=True)
def test_verbose_ends_with_the_bandwidth(bench, tmp_path):
    (tmp_path / "in").write_bytes(pattern(1 << 20))
    source, sink = both(bench, ["-v", tmp_path / "in"], ["-v", tmp_path / "out"])
    for end in (source, sink):
        lines = end.errors().splitlines()
        assert lines[-1].startswith("Bandwidth ") and lines[-1].endswith(" GB/s")
        assert "bound by" in lines[-2]
        assert ("rdma" if RDMA else "tcp") in lines[-3]


@pytest.mark.lab("siw", long=True)
def test_wrong_key_leaves_the_receiver_waiting_and_the_target_unchanged(bench, tmp_path):
    (tmp_path / "in").write_bytes(b"new")
    (tmp_path / "out").write_bytes(b"old")
    sink = bench.receive(tmp_path / "out")
    wrong = bench.send(sink.port, tmp_path / "in", key="another key")
    assert wrong.wait() == 40, wrong.errors()
    assert (tmp_path / "out").read_bytes() == b"old"
    right = bench.send(sink.port, tmp_path / "in")
    assert (right.wait(), sink.wait()) == (0, 0)
    assert (tmp_path / "out").read_bytes() == b"new"


def test_missing_receiver_is_reported_with_host_and_port(bench, tmp_path):
    (tmp_path / "in").write_bytes(b"x")
    source = bench.send(9, "--connect-timeout=1", tmp_path / "in")
    assert source.wait(20) == 35
    assert FAR.address in source.errors() and "9" in source.errors()
    assert "rdrecv" in source.errors()


@pytest.mark.any_lane
def test_receiver_waits_for_the_given_time(bench):
    sink = bench.receive("-w1")
    assert sink.wait(20) == 35


@pytest.mark.any_lane
def test_receiver_with_zero_wait_fails_at_once(bench):
    sink = bench.receive("-w0")
    assert sink.wait(5) == 35


def receive_soon_ends(bench, *args, env=None, **how):
    """An rdrecv that does not wait for a sender."""
    return bench.run([program("rdrecv"), DEMAND, "0", "-", *args], timeout=8, env={"RD_KEY": KEY, **(env or {})}, **how)


@pytest.mark.any_lane
def test_missing_source_is_reported_before_waiting(bench, tmp_path):
    (tmp_path / "link").symlink_to("nowhere")
    for name, code in [("nofile", 3), ("link", 3), ("nodir/f", 3), (".", 11)]:
        source = bench.send(9, "--connect-timeout=60", tmp_path / name)
        assert source.wait(8) == code, source.errors()
        assert str(tmp_path / name) in source.errors()


@pytest.mark.any_lane
def test_impossible_target_is_reported_before_waiting(bench, tmp_path):
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to("no/f")
    for name in ("no/f", "file/f", ".", "link"):
        sink = receive_soon_ends(bench, tmp_path / name)
        assert sink.code == 11 and str(tmp_path / name) in sink.errors(), sink.errors()
        assert "listening" not in sink.errors()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "link"]
    assert (tmp_path / "file").read_text() == "old"


@pytest.mark.any_lane
def test_missing_permission_is_reported_before_waiting(bench, tmp_path):
    user = as_nobody() if os.geteuid() == 0 else ()
    open_up(tmp_path)
    (tmp_path / "file").write_text("old")
    (tmp_path / "file").chmod(0)
    (tmp_path / "shut").mkdir()
    (tmp_path / "shut" / "file").touch(0o666)
    (tmp_path / "shut").chmod(0o555)
    source = bench.send(9, "--connect-timeout=60", tmp_path / "file", become=user)
    assert source.wait(8) == 11 and "Permission denied" in source.errors(), source.errors()
    for name in ("shut/new", "shut/file"):
        sink = receive_soon_ends(bench, tmp_path / name, become=user)
        assert sink.code == 11 and "Permission denied" in sink.errors(), sink.errors()


@pytest.mark.any_lane
def test_command_that_cannot_be_run_is_reported_before_waiting(bench, tmp_path):
    (tmp_path / "plain").write_text("#!/bin/sh\n")
    env = {"PATH": os.environ["PATH"] + ":" + str(tmp_path)}
    for command, reason in [("no-such", "No such file or directory"), (tmp_path / "no-such", "No such file or directory"),
                            ("plain", "Permission denied"), (tmp_path, "Permission denied")]:
        wanted = "run command %s: %s" % (os.path.basename(command), reason)
        source = bench.send(9, "--connect-timeout=60", "--", command, env=env)
        assert source.wait(8) == 11 and wanted in source.errors(), source.errors()
        sink = receive_soon_ends(bench, "--", command, env=env)
        assert sink.code == 11 and wanted in sink.errors() and "listening" not in sink.errors(), sink.errors()


@pytest.mark.any_lane
def test_early_check_opens_and_changes_nothing(bench, tmp_path):
    """Opening a FIFO would wait for its other side, a file would be truncated, and a directory must not be made."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "file").write_text("old")
    for args in (["fifo"], ["file"], ["--inplace", "file"], ["--mkpath", "new/dir/f"]):
        sink = bench.receive(*args[:-1], tmp_path / args[-1])
        # Nothing was opened: the FIFO has no reader, and the file is unchanged.
        with pytest.raises(OSError):
            os.open(tmp_path / "fifo", os.O_WRONLY | os.O_NONBLOCK)
        assert (tmp_path / "file").read_text() == "old"
        assert sorted(p.name for p in tmp_path.iterdir()) == ["fifo", "file"]
        sink.signal(signal.SIGTERM)
        assert sink.wait() == 20
    source = bench.send(9, "--connect-timeout=1", tmp_path / "fifo")
    assert source.wait(20) == 35, source.errors()


def test_json_reports_of_both_ends_agree(bench, tmp_path):
    (tmp_path / "in").write_bytes(pattern(3 * BLOCK + 1))
    source, sink = both(bench, ["--json", tmp_path / "in"], ["--json", tmp_path / "out"])
    for end in (source, sink):
        said = json.loads(bytes(end.out))
        assert (said["bytes"], said["sent"], said["files"]) == (3 * BLOCK + 1,) * 2 + (1,)


@pytest.mark.any_lane
def test_mkpath_makes_a_missing_directory(bench, tmp_path):
    sink = receive_soon_ends(bench, tmp_path / "new" / "dir" / "out")
    assert sink.code == 11 and "--mkpath" in sink.errors(), sink.errors()
    sink = receive_soon_ends(bench, "--mkpath", str(tmp_path / "new") + "/")
    assert sink.code == 11 and "not a file name" in sink.errors(), sink.errors()
    assert not (tmp_path / "new").exists()
    sink = bench.receive("--mkpath", tmp_path / "new" / "dir" / "out")
    source = bench.send(sink.port, "--", "echo", "x")
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    assert (tmp_path / "new" / "dir" / "out").read_text() == "x\n"


def test_summary_is_never_mixed_with_data(bench, tmp_path):
    with open(tmp_path / "out", "wb") as out:
        sink = bench.receive("--json", "/dev/stdout", stdout=out)
        source = bench.send(sink.port, "--", "echo", "data")
        assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    assert (tmp_path / "out").read_text() == "data\n"
    assert '"exit": 0' in sink.errors()


@pytest.mark.lab("rxe", long=True)
@pytest.mark.lanes
def test_producer_that_fails_fails_both_ends(bench, tmp_path):
    sink = bench.receive(tmp_path / "out")
    source = bench.send(sink.port, "--", "sh", "-c", "echo some; exit 3")
    assert (source.wait(), sink.wait()) == (11, 11), source.errors() + sink.errors()
    assert "exited with 3" in source.errors()
    assert not (tmp_path / "out").exists() and not leftovers(tmp_path)


def test_remote_failure_is_reported_with_its_host(bench):
    """However soon the sender exits after it learned that it failed."""
    for _ in range(8):
        sink = bench.receive("--", "cat")
        source = bench.send(sink.port, "--", "sh", "-c", "echo some; exit 3")
        assert (source.wait(), sink.wait()) == (11, 11), source.errors() + sink.errors()
        assert "rdrecv: %s: command sh exited with 3" % socket.gethostname() in sink.errors()


@pytest.mark.lab("siw", long=True)
@pytest.mark.lanes
def test_consumer_that_fails_fails_both_ends(bench, tmp_path):
    (tmp_path / "in").write_bytes(pattern(BLOCK))
    sink = bench.receive("--", "sh", "-c", "cat >/dev/null; exit 4")
    source = bench.send(sink.port, tmp_path / "in")
    assert (source.wait(), sink.wait()) == (11, 11), source.errors() + sink.errors()
    assert "exited with 4" in sink.errors()


@pytest.mark.lab("siw", long=True)
def test_commands_run_at_both_ends(bench, tmp_path):
    data = pattern(5 * BLOCK + 3)
    (tmp_path / "in").write_bytes(data)
    sink = bench.receive("--", "sh", "-c", "cat > %s/out" % tmp_path)
    source = bench.send(sink.port, "--", "cat", tmp_path / "in")
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    assert (tmp_path / "out").read_bytes() == data


@pytest.mark.parametrize("command, code", [
    ("sleep 0.3", 11), ("exec <&-; sleep 0.3", 11), ("true", 11), ("head -c 100", 11),
    ("head -c 60000", 0), ("sleep 0.3; cat", 0), ("cat >/dev/null & wait", 11)])
def test_a_command_that_succeeds_has_read_everything(bench, tmp_path, command, code):
    """What fits into a pipe is written whether it is read or not. The last: a shell's background command reads nothing."""
    (tmp_path / "in").write_bytes(pattern(60000))
    sink = bench.receive("--", "sh", "-c", command + (" >%s/out" % tmp_path if "cat" in command[-3:] else ""))
    source = bench.send(sink.port, tmp_path / "in")
    assert (source.wait(), sink.wait()) == (code, code), source.errors() + sink.errors()
    if command.endswith("cat"):
        assert (tmp_path / "out").read_bytes() == pattern(60000)


def test_commands_do_not_run_before_the_key_is_right(bench, tmp_path):
    sink = bench.receive("--", "touch", tmp_path / "ran")
    (tmp_path / "in").write_bytes(b"x")
    assert bench.send(sink.port, tmp_path / "in", key="wrong").wait() == 40
    assert not (tmp_path / "ran").exists()
    sink.signal(15)
    assert sink.wait(6) == 20
    assert not (tmp_path / "ran").exists()


@pytest.mark.lab("siw", long=True)
@pytest.mark.lanes
def test_consumer_that_dies_fails_both_ends(bench, tmp_path):
    """SD2: a sender's success means that the bytes were stored."""
    reader, writer = os.pipe()
    sink = bench.receive(stdout=writer)
    os.close(writer)
    source = bench.send(sink.port, "--", "cat", "/dev/zero")
    os.read(reader, 1)
    os.close(reader)
    assert (source.wait(), sink.wait()) == (11, 11), source.errors() + sink.errors()
    assert "Broken pipe" in sink.errors()


@pytest.mark.lab("siw", long=True)
@pytest.mark.lanes
def test_stream_is_relayed_through_a_third_host(bench, tmp_path):
    """A -> B -> C, where B is `rdrecv | rdsend`."""
    data = pattern(20 * BLOCK + 1)
    (tmp_path / "in").write_bytes(data)
    last = bench.receive(tmp_path / "out")
    reader, writer = os.pipe()
    middle_in = bench.receive(stdout=writer)
    os.close(writer)
    middle_out = bench.send(last.port, stdin=reader, host=FAR)
    os.close(reader)
    first = bench.send(middle_in.port, tmp_path / "in")
    assert [p.wait() for p in (first, middle_in, middle_out, last)] == [0, 0, 0, 0]
    assert (tmp_path / "out").read_bytes() == data


@pytest.mark.parametrize("how", ["file", "copied stream"])
@pytest.mark.lanes
def test_interrupted_stream_leaves_nothing_behind(bench, tmp_path, how):
    """No later run could resume it."""
    (tmp_path / "in").write_bytes(bytes(24 * BLOCK))
    (tmp_path / "to").mkdir()
    target = tmp_path / "to" / "out"
    slow = "--bwlimit=2M"
    if how == "copied stream":
        both = [bench.copy(slow, "/dev/zero", "far:%s" % target, wait=False)]
    else:
        sink = bench.receive(target)
        both = [bench.send(sink.port, slow, tmp_path / "in"), sink]
    wait_until(lambda: [n for n in leftovers(target.parent) if (target.parent / n).stat().st_size])
    both[0].signal(signal.SIGINT)
    assert [p.wait() for p in both] == [20] * len(both), both[0].errors()
    assert os.listdir(target.parent) == []
    assert not any("kept" in p.errors() for p in both)


@pytest.mark.lab("siw", long=True)
@pytest.mark.lanes
def test_many_streams_run_at_once(bench, tmp_path):
    data = pattern(4 * BLOCK)
    (tmp_path / "in").write_bytes(data)
    sinks = [bench.receive(tmp_path / ("out%d" % i)) for i in range(4)]
    sources = [bench.send(s.port, tmp_path / "in") for s in sinks]
    codes = [p.wait() for p in sources + sinks]
    assert codes == [0] * 8, [p.errors() for p in sources + sinks]
    for i in range(4):
        assert (tmp_path / ("out%d" % i)).read_bytes() == data


ROOM = 1 << 20
# Waits until the pipe at one of its descriptors has that capacity, and writes the result there.
HAS_ROOM = ("import fcntl, sys, time\n"
            "end = time.monotonic() + 20\n"
            "while fcntl.fcntl(%d, 1032) < 1 << 20 and time.monotonic() < end: time.sleep(0.01)\n"
            "open(%r, 'w').write(str(fcntl.fcntl(%d, 1032)))\n")


def test_all_pipes_are_enlarged(bench, tmp_path):
    """Inherited pipes and those of commands; the default is 64 KiB."""
    def room(fd):
        return fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)
    (in_reader, in_writer), (out_reader, out_writer) = os.pipe(), os.pipe()
    sink = bench.receive(stdout=out_writer)
    source = bench.send(sink.port, stdin=in_reader)
    os.write(in_writer, b"x")
    assert os.read(out_reader, 1) == b"x"
    assert room(in_writer) == room(out_reader) == ROOM
    for fd in (in_reader, in_writer, out_writer):
        os.close(fd)
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    os.close(out_reader)
    said = [tmp_path / "producer", tmp_path / "consumer"]
    sink = bench.receive("--", sys.executable, "-c", HAS_ROOM % (0, str(said[1]), 0) + "sys.stdin.read()")
    source = bench.send(sink.port, "--", sys.executable, "-c",
                        "import os; os.write(1, b'x')\n" + HAS_ROOM % (1, str(said[0]), 1))
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    assert [p.read_text() for p in said] == [str(ROOM)] * 2


@pytest.mark.lanes
def test_slow_producer_is_not_delayed(bench):
    """Each byte is written only when the previous one has arrived."""
    (in_reader, in_writer), (out_reader, out_writer) = os.pipe(), os.pipe()
    sink = bench.receive(stdout=out_writer)
    source = bench.send(sink.port, stdin=in_reader)
    os.close(in_reader)
    os.close(out_writer)
    waits = []
    for i in range(50):
        start = time.monotonic()
        os.write(in_writer, bytes([i]))
        assert os.read(out_reader, 10) == bytes([i])
        waits.append(time.monotonic() - start)
    # Except the first, which waits for the connection; and other processes use this machine, too.
    assert sorted(waits)[len(waits) // 2] < 0.1 * SLOW, waits
    os.close(in_writer)
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    os.close(out_reader)


def test_sizes_are_chosen_for_the_round_trip_of_the_control_connection(bench, tmp_path):
    (tmp_path / "in").write_bytes(b"in")
    sink = bench.receive("-vv", "/dev/null")
    source = bench.send(sink.port, "-vv", tmp_path / "in")
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    for end in sink, source:
        (ms, known), = re.findall(r"propose \d+ lanes of .*, round trip (\S+) ms(.*), \d+ cores", end.errors())
        assert 0 < float(ms) < 1000 and not known, end.errors()


def test_a_round_trip_through_a_conductor_is_not_known(bench, tmp_path):
    (tmp_path / "in").write_bytes(b"in")
    r = bench.copy("-vv", "in", "far:%s/out" % tmp_path)
    assert r.code == 0 and "round trip 0 ms (unknown)" in r.errors(), r.errors()
