# SPDX-License-Identifier: Apache-2.0
"""What every program of the suite does the same way: offsets, progress, signals, keys, ports."""

import os
import pty
import signal
import socket
import subprocess
import time

import pytest

from hosts import FAR, NEAR, environment, pattern, program, wait_until

BLOCK = 256 << 10


def on_terminal(argv, host, env=None, cwd=None):
    """Run it with a terminal for stderr; what it showed there, and its exit code."""
    ours, theirs = pty.openpty()
    p = subprocess.Popen(host.prefix + [str(a) for a in argv], stdin=subprocess.DEVNULL,
                         stdout=subprocess.DEVNULL, stderr=theirs, env=environment(env),
                         cwd=cwd)
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 4096):
            shown += chunk
    except OSError:
        pass
    os.close(ours)
    return shown, p.wait(30)


def test_stdin_and_stdout_from_their_offset(bench, tmp_path):
    data = pattern(3 * BLOCK + 5)
    (tmp_path / "in").write_bytes(b"skipped" + data)
    (tmp_path / "out").write_bytes(b"kept")
    with open(tmp_path / "in", "rb") as source_file, open(tmp_path / "out", "r+b") as sink_file:
        os.lseek(source_file.fileno(), 7, os.SEEK_SET)
        os.lseek(sink_file.fileno(), 4, os.SEEK_SET)
        sink = bench.receive(stdout=sink_file)
        source = bench.send(sink.port, stdin=source_file)
        assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
        # Whoever shares them goes on behind what was read and written.
        assert os.lseek(source_file.fileno(), 0, os.SEEK_CUR) == 7 + len(data)
        assert os.lseek(sink_file.fileno(), 0, os.SEEK_CUR) == 4 + len(data)
    assert (tmp_path / "out").read_bytes() == b"kept" + data


def test_appending_is_honoured(bench, tmp_path):
    data = pattern(3 * BLOCK + 5)
    (tmp_path / "in").write_bytes(data)
    (tmp_path / "out").write_bytes(b"kept")
    with open(tmp_path / "out", "ab") as out:
        os.lseek(out.fileno(), 0, os.SEEK_SET)
        sink = bench.receive(stdout=out)
        source = bench.send(sink.port, tmp_path / "in")
        assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    assert (tmp_path / "out").read_bytes() == b"kept" + data


def test_live_progress_is_for_terminals(bench, tmp_path):
    (tmp_path / "in").write_bytes(pattern(4 * BLOCK))
    copy = ["--transport=tcp", "--bwlimit=1M", tmp_path / "in", tmp_path / "out"]
    r = bench.run([program("rdcp"), *copy], host=NEAR)
    assert r.code == 0 and r.errors() == "" and not r.out
    shown, code = on_terminal([program("rdcp"), *copy], NEAR)
    assert code == 0 and b"%" in shown and b"\r" in shown
    shown, code = on_terminal([program("rdcp"), "-q", *copy], NEAR)
    assert code == 0 and shown == b""
    copy[1] = "--bwlimit=300k"
    r = bench.run([program("rdcp"), "--progress=1", *copy], host=NEAR)
    lines = r.errors().splitlines()
    assert r.code == 0 and lines and all("%" in x and "\r" not in x for x in lines), lines


def test_sigusr1_prints_one_line(bench, tmp_path):
    (tmp_path / "in").write_bytes(pattern(4 * BLOCK))
    r = bench.start([program("rdcp"), "--transport=tcp", "--bwlimit=200k", tmp_path / "in",
                     tmp_path / "out"], host=NEAR)
    wait_until(lambda: any(p.name.startswith(".sluice.") for p in tmp_path.iterdir()))
    time.sleep(2)
    r.signal(signal.SIGUSR1)
    line = r.expect(" of 1.00 MiB")
    assert "%" in line and "/s" in line and "ETA" in line
    assert r.wait() == 0
    assert len(r.errors().splitlines()) == 1, r.errors()


def test_sigusr1_to_either_end_of_a_stream(bench, tmp_path):
    (tmp_path / "in").write_bytes(pattern(24 * BLOCK))
    sink = bench.receive(stdout=subprocess.DEVNULL)
    source = bench.send(sink.port, "--bwlimit=1M", tmp_path / "in")
    time.sleep(3)
    for end in (sink, source):
        end.signal(signal.SIGUSR1)
        assert "/s" in end.expect("iB")
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()


def test_listening_at_one_address_only(bench):
    sink = bench.receive("--address=%s" % FAR.address)
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.9", sink.port), timeout=5)
    source = bench.send(sink.port, "--", "echo", "x")
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    assert bytes(sink.out) == b"x\n"


def test_a_port_that_is_taken_is_10(bench):
    sink = bench.receive()
    other = bench.run([program("rdrecv"), str(sink.port), "-"], host=FAR, env={"RD_KEY": "k"})
    assert other.code == 10 and str(sink.port) in other.errors(), other.errors()


def test_keys_in_files(bench, tmp_path):
    made = bench.run([program("rdsend"), "--make-key", tmp_path / "k"])
    assert made.code == 0 and (tmp_path / "k").stat().st_mode & 0o777 == 0o600
    again = bench.run([program("rdsend"), "--make-key", tmp_path / "k"])
    assert again.code == 11
    (tmp_path / "k").chmod(0o640)
    r = bench.run([program("rdrecv"), "--key-file", tmp_path / "k", "-w1", "0"])
    assert r.code == 1 and "chmod 600" in r.errors()


def test_a_key_that_was_typed_is_warned_of_and_overwritten(tmp_path):
    """A secret in the list of processes: gone at once, and a terminal is told."""
    shown, code = on_terminal([program("rdrecv"), "-w0.1", "0", "sesame"], FAR)
    assert code == 35 and b"--key-file" in shown and b"sesame" not in shown
    p = subprocess.Popen([program("rdrecv"), "-w20", "0", "sesame"], env=environment(),
                         stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        assert b"listening" in p.stderr.readline()
        with open("/proc/%d/cmdline" % p.pid, "rb") as f:
            assert b"sesame" not in f.read()
    finally:
        p.kill()
        p.communicate()


def test_a_second_signal_ends_it_at_once(bench, tmp_path):
    (tmp_path / "in").write_bytes(pattern(4 * BLOCK))
    r = bench.start([program("rdcp"), "--transport=tcp", "--bwlimit=100k", tmp_path / "in",
                     tmp_path / "out"], host=NEAR)
    wait_until(lambda: any(p.name.startswith(".sluice.") for p in tmp_path.iterdir()))
    r.signal(signal.SIGINT)
    r.signal(signal.SIGTERM)
    assert r.wait(2) == 20, r.errors()
