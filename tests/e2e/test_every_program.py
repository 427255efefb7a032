# SPDX-License-Identifier: Apache-2.0
"""Behaviour that all programs share: offsets, progress, signals, keys, ports."""

import concurrent.futures
import fcntl
import json
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import termios
import time

import pytest

from hosts import DEMAND, FAR, KEY, NEAR, RSH, environment, leftovers, pattern, program, wait_until
from networks import free_port
from processes import children, descendants, words
from trees import summary

BLOCK = 256 << 10


def read_all(fd):
    shown = b""
    try:
        while chunk := os.read(fd, 4096):
            shown += chunk
    except OSError:
        pass
    os.close(fd)
    return shown


def on_terminal(argv, host, env=None, cwd=None, columns=80):
    """Run the program with a terminal as stderr; returns what the terminal got, and the exit code."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    p = subprocess.Popen(host.prefix + [str(a) for a in argv], stdin=subprocess.DEVNULL,
                         stdout=subprocess.DEVNULL, stderr=theirs, env=environment(env),
                         cwd=cwd)
    os.close(theirs)
    shown = read_all(ours)
    return shown, p.wait(30)


def options_of(manual, pattern):
    """The options in another program's help."""
    return sorted(set(re.findall(pattern, manual, re.M)))


def test_every_rsync_and_scp_option_is_accepted_or_explained(bench, tmp_path):
    text = subprocess.run(["rsync", "--help"], capture_output=True, text=True).stdout
    words = options_of(text, r"(?<![\w-])(--[a-z0-9][a-z0-9-]*[a-z0-9])(?![\w-])")
    letters = options_of(text, r"(?<![\w-])(-[A-Za-z0-9@])(?![\w-])") + ["-%s" % c for c in "346ABCOpqRrsTvcDFiJloPSX"]
    assert len(words) > 100 and len(letters) > 50
    for option in words + letters:
        # A missing source ends the accepted commands.
        r = bench.run([program("rdcp"), option, "%s/none" % tmp_path, "%s/to/none" % tmp_path])
        assert r.code in (0, 1, 3, 11), (option, r.errors())
        assert "unknown option" not in r.errors(), (option, r.errors())


def test_h_among_other_letters_is_not_help(bench, tmp_path):
    (tmp_path / "in").write_bytes(b"x")
    r = bench.run([program("rdcp"), "-avh", "in", "out"], cwd=tmp_path)
    assert r.code == 0 and b"usage" not in r.out, r.errors()
    assert (tmp_path / "out").read_bytes() == b"x"
    r = bench.run([program("rdcp"), "-h"])
    assert r.code == 0 and r.out.startswith(b"usage: rdcp")
    r = bench.run([program("rdrecv"), "-h", "-w0.1", "0", "k"])
    assert r.code == 35 and b"usage" not in r.out, r.errors()


def test_ignore_times_sends_unchanged_files(bench, tmp_path):
    (tmp_path / "in").write_bytes(b"new")
    (tmp_path / "out").write_bytes(b"old")
    for name in ("in", "out"):
        os.utime(tmp_path / name, (10 ** 9, 10 ** 9))
    r = bench.run([program("rdcp"), "-t", "in", "out"], cwd=tmp_path)
    assert r.code == 0 and (tmp_path / "out").read_bytes() == b"old"
    r = bench.run([program("rdcp"), "-tWI", "in", "out"], cwd=tmp_path)
    assert r.code == 0 and (tmp_path / "out").read_bytes() == b"new"


def test_repeated_failures_are_counted(bench, tmp_path):
    for i in range(25):
        (tmp_path / "s").mkdir(exist_ok=True)
        (tmp_path / "s" / ("f%d" % i)).write_bytes(b"x")
        (tmp_path / "t" / ("f%d" % i) / "in the way").mkdir(parents=True)
    r = bench.run([program("rdcp"), "-r", "s/", "t"], cwd=tmp_path)
    lines = r.errors().splitlines()
    assert r.code == 23 and len(lines) < 15, lines
    assert sum("it is not empty" in line for line in lines[:10]) == 10
    assert any(line.startswith("rdcp: 15 more failures or warnings: it is not empty") for line in lines), lines
    r = bench.run([program("rdcp"), "-rv", "s/", "t"], cwd=tmp_path)
    assert sum("it is not empty" in line for line in r.errors().splitlines()) == 25


def test_control_characters_in_names_are_escaped(bench, tmp_path):
    name = "a\x1b[31mb\x07"
    (tmp_path / name).write_bytes(b"x")
    argv = [program("rdcp"), "--print-digest", name, "out"]
    ours, theirs = pty.openpty()
    p = subprocess.Popen(NEAR.prefix + [str(a) for a in argv], stdin=subprocess.DEVNULL, stdout=theirs,
                         stderr=subprocess.DEVNULL, env=environment(None), cwd=tmp_path)
    os.close(theirs)
    shown = read_all(ours)
    assert p.wait(30) == 0
    assert b"\x1b" not in shown and b"\x07" not in shown and b"a\\x1b[31mb\\x07" in shown, shown
    r = bench.run(argv, cwd=tmp_path)
    assert name.encode() in r.out, "a file gets the name as it is"


def test_progress_fits_a_narrow_terminal(tmp_path):
    (tmp_path / "in").write_bytes(pattern(2 * BLOCK))
    copy = ["--transport=tcp", "--bwlimit=400k", tmp_path / "in", tmp_path / "out"]
    shown, code = on_terminal([program("rdcp"), *copy], NEAR, columns=20)
    assert code == 0
    live = re.findall(rb"\r([^\r\n\x1b]+)\x1b\[K", shown)
    assert live and all(len(line.decode()) < 20 for line in live), live


def test_background_job_prints_no_progress(tmp_path):
    """As after `&': another process group owns the terminal."""
    (tmp_path / "in").write_bytes(pattern(2 * BLOCK))
    copy = [program("rdcp"), "--transport=tcp", "--bwlimit=400k", tmp_path / "in", tmp_path / "out"]
    pid, fd = pty.fork()
    if pid == 0:
        code = 1
        try:
            code = subprocess.run([str(a) for a in copy], env=environment(None), preexec_fn=os.setpgrp).returncode
        finally:
            os._exit(code)
    shown = read_all(fd)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert b"%" not in shown, shown


def test_stdin_and_stdout_are_used_from_their_offset(bench, tmp_path):
    data = pattern(3 * BLOCK + 5)
    (tmp_path / "in").write_bytes(b"skipped" + data)
    (tmp_path / "out").write_bytes(b"kept")
    with open(tmp_path / "in", "rb") as source_file, open(tmp_path / "out", "r+b") as sink_file:
        os.lseek(source_file.fileno(), 7, os.SEEK_SET)
        os.lseek(sink_file.fileno(), 4, os.SEEK_SET)
        sink = bench.receive(stdout=sink_file)
        source = bench.send(sink.port, stdin=source_file)
        assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
        # The next process that shares them continues after the copied bytes.
        assert os.lseek(source_file.fileno(), 0, os.SEEK_CUR) == 7 + len(data)
        assert os.lseek(sink_file.fileno(), 0, os.SEEK_CUR) == 4 + len(data)
    assert (tmp_path / "out").read_bytes() == b"kept" + data


def test_append_mode_of_stdout_is_honoured(bench, tmp_path):
    data = pattern(3 * BLOCK + 5)
    (tmp_path / "in").write_bytes(data)
    (tmp_path / "out").write_bytes(b"kept")
    with open(tmp_path / "out", "ab") as out:
        os.lseek(out.fileno(), 0, os.SEEK_SET)
        sink = bench.receive(stdout=out)
        source = bench.send(sink.port, tmp_path / "in")
        assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    assert (tmp_path / "out").read_bytes() == b"kept" + data


def test_live_progress_needs_a_terminal(bench, tmp_path):
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


@pytest.mark.parametrize("options", [["-v"], []], ids=["verbose", "default"])
def test_streams_show_live_progress_with_v_only(bench, tmp_path, options):
    (tmp_path / "in").write_bytes(pattern(4 * BLOCK))
    port, env = str(free_port()), {"RD_KEY": KEY}
    common = ["--transport=tcp", *options]
    with concurrent.futures.ThreadPoolExecutor() as both:
        source = both.submit(on_terminal, [program("rdsend"), *common, "--bwlimit=1M", FAR.address, port, "-", tmp_path / "in"], NEAR, env)
        sink = both.submit(on_terminal, [program("rdrecv"), *common, port, "-", tmp_path / "out"], FAR, env)
        for shown, code in (source.result(), sink.result()):
            assert code == 0 and (b"\r" in shown and b" MiB/s" in shown) == bool(options), shown
    assert (tmp_path / "out").stat().st_size == 4 * BLOCK


def test_sigusr1_prints_one_line(bench, tmp_path):
    (tmp_path / "in").write_bytes(pattern(4 * BLOCK))
    # A rate needs several blocks.
    r = bench.start([program("rdcp"), "--transport=tcp", "--bwlimit=200k", "--block-size=16k", tmp_path / "in",
                     tmp_path / "out"], host=NEAR)
    wait_until(lambda: any(p.name.startswith(".sluice.") for p in tmp_path.iterdir()))
    time.sleep(2)
    r.signal(signal.SIGUSR1)
    line = r.expect(" of 1.00 MiB")
    assert "%" in line and "/s" in line and "ETA" in line
    assert r.wait() == 0
    assert len(r.errors().splitlines()) == 1, r.errors()


def test_sigusr1_works_at_both_ends_of_a_stream(bench, tmp_path):
    (tmp_path / "in").write_bytes(pattern(24 * BLOCK))
    sink = bench.receive(stdout=subprocess.DEVNULL)
    source = bench.send(sink.port, "--bwlimit=1M", tmp_path / "in")
    time.sleep(3)
    for end in (sink, source):
        end.signal(signal.SIGUSR1)
        assert "/s" in end.expect("iB")
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()


def test_address_option_limits_where_rdrecv_listens(bench):
    sink = bench.receive("--address=%s" % FAR.address)
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.9", sink.port), timeout=5)
    source = bench.send(sink.port, "--", "echo", "x")
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    assert bytes(sink.out) == b"x\n"


def test_an_unknown_address_is_rejected_by_every_program(bench, tmp_path):
    (tmp_path / "in").write_bytes(b"x")
    sink = bench.receive()
    unknown = "--address=nowhere.invalid"
    runs = {
        "rdsend": bench.send(sink.port, unknown, tmp_path / "in"),
        "rdrecv": bench.start([program("rdrecv"), unknown, "0", "-"], host=FAR, env={"RD_KEY": "k"}),
        "rdcp": bench.copy(unknown, tmp_path / "in", tmp_path / "out", wait=False),
        "far": bench.copy(unknown, tmp_path / "in", "far:%s" % (tmp_path / "out"), wait=False),
        "rdbench": bench.start([program("rdbench"), "--seconds=0.01", unknown]),
        "rdcheck": bench.start([program("rdcheck"), unknown]),
    }
    for name, r in runs.items():
        assert (r.wait(), "look up --address nowhere.invalid: " in r.errors()) == (5, True), (name, r.errors())
    # The receiver still waits: no program has connected to it.
    source = bench.send(sink.port, tmp_path / "in")
    assert (source.wait(), sink.wait()) == (0, 0) and bytes(sink.out) == b"x", source.errors() + sink.errors()


def test_an_unknown_host_fails_at_once(bench, tmp_path):
    """No rdrecv will ever listen there."""
    (tmp_path / "in").write_bytes(b"x")
    r = bench.send(7, "--connect-timeout=600", tmp_path / "in", to="nowhere.invalid")
    assert r.wait() == 5 and "nowhere.invalid" in r.errors() and "rdrecv" not in r.errors(), r.errors()


def test_every_listening_program_uses_the_port_range(bench, tmp_path):
    (tmp_path / "in").write_bytes(b"x")
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as taken:
        port = taken.getsockname()[1]
        options = ["--port-range=%d-%d" % (port, port), "--transport=tcp"]
        far = [*options, "--rsh", RSH, "--rdcp-path", program("rdcp")]
        for code, argv in [(10, ["rdcp", *far, "in", "far:out"]), (10, ["rdcp", *far, "far:in", "out"]), (10, ["rdcp", *options, "in", "out"]),
                           (10, ["rdrecv", *options, "0", "-"]), (10, ["rdbench", *far, "--seconds=0.01", "far"]), (43, ["rdcheck", *far, "far"])]:
            r = bench.run([program(argv[0]), *argv[1:]], env={"RD_KEY": KEY}, home=tmp_path, cwd=tmp_path)
            said = "port %d " % port in bytes(r.out).decode() if argv[0] == "rdcheck" else \
                re.search(r"listen on \S+:%d: Address already in use" % port, r.errors())
            assert r.code == code and said, (argv, r.code, r.errors(), r.out)


@pytest.mark.parametrize("limited", ["rdcp", "rdsend", "rdrecv"])
def test_memory_for_blocks_is_limited(bench, tmp_path, limited):
    """rdbench and rdcpd have tests of their own (test_rdbench.py, test_rdcpd_limits.py)."""
    (tmp_path / "in").write_bytes(pattern(4 * BLOCK))
    size = ["--lanes=4", "--depth=8", "--block-size=256k", "--json"]
    for options, lanes in (["--memory=1M"], 1), ([], 4):
        if limited == "rdcp":
            r = bench.copy(*size, *options, "in", "far:out")
        else:
            sink = bench.receive(*size, *(options if limited == "rdrecv" else []), tmp_path / "out")
            r = bench.send(sink.port, *size, *(options if limited == "rdsend" else []), tmp_path / "in")
            assert sink.wait() == 0, sink.errors()
        assert r.wait() == 0, r.errors()
        got = summary(r)
        assert got["lanes"] == lanes and (got["window"] <= 1 << 20 or not options), (options, got)


def test_taken_port_exits_10(bench):
    sink = bench.receive()
    other = bench.run([program("rdrecv"), str(sink.port), "-"], host=FAR, env={"RD_KEY": "k"})
    assert other.code == 10 and str(sink.port) in other.errors(), other.errors()


def test_key_is_read_from_a_file(bench, tmp_path):
    made = bench.run([program("rdsend"), "--make-key", tmp_path / "k"])
    assert made.code == 0 and (tmp_path / "k").stat().st_mode & 0o777 == 0o600
    again = bench.run([program("rdsend"), "--make-key", tmp_path / "k"])
    assert again.code == 11
    (tmp_path / "k").chmod(0o640)
    r = bench.run([program("rdrecv"), "--key-file", tmp_path / "k", "-w1", "0"])
    assert r.code == 1 and "chmod 600" in r.errors()


def test_key_is_read_from_a_descriptor(bench, tmp_path):
    """A pipe, as from a program that prints a key; and a file."""
    (tmp_path / "in").write_bytes(b"x")
    (tmp_path / "key").write_text("sesame\n")
    (tmp_path / "other").write_text("other\n")
    sink = bench.start(["bash", "-c", 'exec "$@" 3< <(echo sesame)', "bash", program("rdrecv"), "--key-fd=3", "-v", "0", tmp_path / "out"], host=FAR)
    port = sink.expect("listening on").rsplit(":", 1)[1].split()[0]
    for key, code in (("other", 40), ("key", 0)):
        source = bench.run(["sh", "-c", 'exec "$@" 4<%s' % (tmp_path / key), "sh", program("rdsend"), "--key-fd", "4", FAR.address, port, tmp_path / "in"])
        assert source.code == code, source.errors()
    assert sink.wait() == 0 and (tmp_path / "out").read_bytes() == b"x", sink.errors()


def test_key_argument_is_overwritten_with_a_warning(tmp_path):
    """A secret in the process list is overwritten at once, and on a terminal a warning is printed."""
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


@pytest.mark.needs("no adapter", why="it is about hosts without an adapter")
@pytest.mark.parametrize("name", ["rdrecv", "rdsend"])
def test_rdma_on_a_host_without_an_adapter_fails_before_waiting(tmp_path, name):
    (tmp_path / "in").write_bytes(b"x")
    with socket.create_server(("127.0.0.1", 0)) as mute:
        words = ["0", "-"] if name == "rdrecv" else ["127.0.0.1", str(mute.getsockname()[1]), "-"]
        r = subprocess.run([program(name), "--transport=rdma", *words, tmp_path / "in"], timeout=60,
                           env=environment({"RD_KEY": "k"}), capture_output=True)
        mute.setblocking(False)
        with pytest.raises(BlockingIOError):
            mute.accept()
    assert r.returncode == 43, r.stderr
    assert b"--transport=rdma is not possible: " in r.stderr and b"listening" not in r.stderr


@pytest.mark.parametrize("target", ["far:out", "out"])
def test_second_signal_ends_rdcp_at_once(bench, tmp_path, target):
    """One signal alone waits 1.5 s for an end that does not answer, and then 2 s for an ssh that does not exit."""
    (tmp_path / "in").write_bytes(pattern(4 * BLOCK))
    r = bench.copy("--bwlimit=100k", "in", target, wait=False)
    wait_until(lambda: leftovers(tmp_path))
    near = children(r.proc.pid)
    far = [pid for pid in descendants(r.proc.pid) if pid not in near]
    for pid in near:
        os.kill(pid, signal.SIGSTOP)
    r.signal(signal.SIGINT)
    wait_until(lambda: not any(words(pid) for pid in far))
    r.signal(signal.SIGTERM)
    assert r.proc.wait(1.4) == 20, r.errors()


@pytest.mark.parametrize("end", ["source", "sink"])
def test_second_signal_ends_a_stream_at_once(bench, tmp_path, end):
    """One signal alone waits for half a second for a command that ignores SIGTERM."""
    stays = "trap '' TERM PIPE; %s; sleep 100"
    sink = bench.receive("--", "sh", "-c", stays % ("cat >%s/seen" % tmp_path))
    source = bench.send(sink.port, "--", "sh", "-c", stays % "cat /dev/zero 2>/dev/null")
    wait_until(lambda: (tmp_path / "seen").exists() and (tmp_path / "seen").stat().st_size)
    r = source if end == "source" else sink
    r.signal(signal.SIGINT)
    r.signal(signal.SIGTERM)
    assert r.wait() == 20 and r.errors().endswith("second signal: exiting at once\n"), r.errors()


# ---- trees: options and output ---------------------------------------------------------------


def tree(top, files=3):
    (top / "sub").mkdir(parents=True)
    for i in range(files):
        (top / "sub" / ("f%d" % i)).write_bytes(b"%d" % i)
    (top / "link").symlink_to("sub/f0")
    return top


def test_unreachable_host_among_several_exits_23(bench, tmp_path):
    """As with one failed file of several: the other hosts are copied."""
    (tmp_path / "to").mkdir()
    for n in "ab":
        (tmp_path / n).write_bytes(n.encode())
    for sources in (["nowhere:%s/x" % tmp_path, "far:%s/a" % tmp_path, "b"],
                    ["b", "far:%s/a" % tmp_path, "nowhere:%s/x" % tmp_path]):
        r = bench.copy(*sources, "to")
        assert r.code == 23 and "nowhere" in r.errors(), (r.code, r.errors())
        assert sorted(os.listdir(tmp_path / "to")) == ["a", "b"]
        for n in "ab":
            (tmp_path / "to" / n).unlink()
    assert bench.copy("nowhere:x", "to").code == 5
    assert bench.copy("nowhere:x", "elsewhere:y", "to").code == 5
    # Nothing was copied from any host: the status of the first one counts.
    assert bench.copy("nowhere:x", "far:absent", "to").code == 5
    assert bench.copy("far:absent", "nowhere:x", "to").code == 3


def test_directories_of_a_host_are_copied_despite_its_failed_file(bench, tmp_path):
    """A failed file of that host does not matter."""
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "link").symlink_to("x")
    (tmp_path / "from" / "x").write_bytes(b"x")
    (tmp_path / "to" / "from" / "x" / "y").mkdir(parents=True)
    r = bench.copy("-r", "nowhere:x", "far:%s/from" % tmp_path, "to")
    assert r.code == 23, (r.code, r.errors())
    assert os.readlink(tmp_path / "to" / "from" / "link") == "x"


@pytest.mark.parametrize("name", ["/dev/fd/7", "/proc/self/fd/7"])
def test_descriptor_as_target_is_written_from_its_offset(bench, tmp_path, name):
    data = pattern(3 * BLOCK + 5)
    (tmp_path / "in").write_bytes(data)
    (tmp_path / "out").write_bytes(b"kept and over")
    r = bench.run(["bash", "-c", "exec 7<>out; read -r -N 4 -u 7; "
                   "%s --transport=tcp in %s; code=$?; echo -n end >&7; exit $code" % (
                       program("rdcp"), name)], host=NEAR, cwd=tmp_path)
    assert r.code == 0, r.errors()
    assert (tmp_path / "out").read_bytes() == b"kept" + data + b"end"
    sink = bench.start(["bash", "-c", "exec 7>>out2; echo -n kept >&7; %s -v 0 KEY %s" % (
        program("rdrecv"), name)], host=FAR, cwd=tmp_path)
    port = int(sink.expect("listening on").rsplit(":", 1)[1].split()[0])
    source = bench.send(port, tmp_path / "in", key="KEY")
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    assert (tmp_path / "out2").read_bytes() == b"kept" + data


def test_closed_descriptor_as_target_is_refused(bench, tmp_path):
    (tmp_path / "in").write_bytes(b"x")
    for n in range(3, 12):
        r = bench.run([program("rdcp"), "--transport=tcp", tmp_path / "in", "/dev/fd/%d" % n], host=NEAR)
        assert r.code == 11 and "Bad file descriptor" in r.errors(), (n, r.code, r.errors())


def test_itemized_changes_go_to_stdout(bench, tmp_path):
    tree(tmp_path / "a")
    (tmp_path / "a" / "n\nl").write_bytes(b"x")
    r = bench.copy("-a", "--itemize-changes", "a", "far:%s/b" % tmp_path)
    assert r.code == 0, r.errors()
    assert sorted(bytes(r.out).decode().splitlines()) == [
        "<f+++++++++ a/n\\nl", "<f+++++++++ a/sub/f0", "<f+++++++++ a/sub/f1", "<f+++++++++ a/sub/f2",
        "cL+++++++++ a/link", "cd+++++++++ a/", "cd+++++++++ a/sub/"]
    (tmp_path / "a" / "sub" / "f0").write_bytes(b"longer")
    (tmp_path / "b" / "more").mkdir()
    want = None
    for options in (["-n"], ["--itemize-changes"]):
        r = bench.copy("-a", "--delete", *options, "a/", "far:%s/b" % tmp_path)
        assert r.code == 0, r.errors()
        got = sorted(bytes(r.out).decode().splitlines())
        assert "*deleting   more/" in got and "<f.st...... sub/f0" in got, got
        assert want in (None, [x for x in got if x[1] == "f" or x[0] == "*"])
        want = [x for x in got if x[1] == "f" or x[0] == "*"]
    assert not (tmp_path / "b" / "more").exists()


def test_stats_and_verbose_summaries_are_printed(bench, tmp_path):
    tree(tmp_path / "a")
    r = bench.copy("-a", "-v", "--stats", "a", "far:%s/b" % tmp_path)
    lines = r.errors().splitlines()
    assert r.code == 0 and not r.out
    assert lines[-1].startswith("Bandwidth ") and lines[-2].startswith("bound by: ")
    assert "requested:             3 regular, 2 directories, 1 symlinks, 0 hard links, 0 devices and FIFOs" in lines
    assert any(x.split() == ["files", "sent:", "3"] for x in lines), lines
    r = bench.copy("-a", "--stats", "a/", "far:%s/b" % tmp_path)
    assert any(x.split() == ["files", "not", "sent:", "3"] for x in r.errors().splitlines()), r.errors()


def test_log_file_is_appended_to(bench, tmp_path):
    tree(tmp_path / "a")
    for _ in range(2):
        r = bench.copy("-r", "--log-file=log", "a/", "far:%s/b" % tmp_path)
        assert r.code == 0 and not r.out and not r.errors(), r.errors()
    lines = (tmp_path / "log").read_text().splitlines()
    assert sum(" start 1 source" in x for x in lines) == 2
    assert sum(x.endswith(" sub/f1") for x in lines) == 2, lines
    assert sum(" end exit 0, 3 sent" in x for x in lines) == 2, lines


def test_unread_stdout_does_not_block_the_copy(bench, tmp_path):
    """A pager that pauses: the copy continues, and all lines arrive when the pager reads on."""
    tree(tmp_path / "a", 3000)
    ours, theirs = os.pipe()
    r = bench.copy("-a", "--itemize-changes", "a", "far:%s/b" % tmp_path, wait=False, stdout=theirs)
    os.close(theirs)
    wait_until(lambda: (tmp_path / "b" / "link").is_symlink() and
               not any(p.name.startswith(".sluice.") for p in (tmp_path / "b").iterdir()), 30)
    assert r.proc.poll() is None
    with open(ours, "rb") as f:
        got = f.read().splitlines()
    assert r.wait() == 0, r.errors()
    assert len(got) == 3003 and len(set(got)) == 3003


def test_names_may_arrive_slowly_on_stdin(bench, tmp_path):
    top = tree(tmp_path / "a", 20)
    ours, theirs = os.pipe()
    r = bench.copy("-a", "--files-from=-", "a", "far:%s/b" % tmp_path, wait=False, stdin=ours)
    os.close(ours)
    for i in range(0, 20, 2):
        os.write(theirs, b"sub/f")
        time.sleep(0.02)
        os.write(theirs, b"%d\n" % i)
    os.close(theirs)
    assert r.wait() == 0, r.errors()
    assert sorted(os.listdir(tmp_path / "b" / "sub")) == sorted("f%d" % i for i in range(0, 20, 2))
    assert not (tmp_path / "b" / "link").exists() and top.exists()


def test_long_list_of_names(bench, tmp_path):
    """More names than pipes and queues hold; most of the files do not exist."""
    tree(tmp_path / "a")
    names = ["sub/none-%07d" % i for i in range(60000)] + ["sub/f1", "sub/f2"]
    (tmp_path / "list").write_bytes(b"".join(n.encode() + b"\0" for n in names))
    r = bench.copy("-a", "-q", "--files-from=list", "--from0", "--failed=bad", "a", "far:%s/b" % tmp_path)
    assert r.code == 23, (r.code, r.errors()[:300])
    assert sorted(os.listdir(tmp_path / "b" / "sub")) == ["f1", "f2"]
    bad = (tmp_path / "bad").read_bytes().split(b"\0")
    assert len(bad) == 60001 and bad[-1] == b"" and b"sub/none-0000007" in bad


def test_endless_list_of_names_can_be_interrupted(bench, tmp_path):
    tree(tmp_path / "a")
    ours, theirs = os.pipe()
    r = bench.copy("-a", "--files-from=-", "a", "far:%s/b" % tmp_path, wait=False, stdin=ours)
    os.close(ours)
    time.sleep(1)
    r.signal(signal.SIGINT)
    assert r.wait(3) == 20, r.errors()
    os.close(theirs)


def test_json_goes_to_stderr_when_stdout_is_data(bench, tmp_path):
    (tmp_path / "in").write_bytes(b"data")
    r = bench.copy("--json", "far:%s/in" % tmp_path, "-")
    assert r.code == 0 and bytes(r.out) == b"data"
    types = [json.loads(x)["type"] for x in r.errors().splitlines()]
    assert types[0] == "start" and types[-1] == "summary" and "file" in types


def test_conflicting_tree_options_are_reported_before_the_start(bench, tmp_path):
    tree(tmp_path / "a")
    (tmp_path / "f").write_bytes(b"x")
    for options, text in ((["-a", "--chmod=u+q"], "--chmod"), (["-r", "--files-from=none"], "none"),
                          (["--delete"], "-r"), (["-r", "--exclude-from=none"], "none"),
                          (["-a", "--failed=no/such/place"], "no/such/place"),
                          (["-a", "--log-file=no/such/place"], "no/such/place")):
        r = bench.copy(*options, "a", "b")
        assert r.code in (1, 11) and text in r.errors(), (options, r.code, r.errors())
        assert not (tmp_path / "b").exists()
    r = bench.copy("-r", "a", "-")
    assert r.code == 1 and "stdout" in r.errors(), (r.code, r.errors())
    for to in ("a", "a/sub", "a/new", "."):
        r = bench.copy("-r", "a", to)
        assert r.code == 11 and ("itself" in r.errors() or "same" in r.errors()), (to, r.code, r.errors())
    r = bench.copy("a", "b")
    assert r.code == 11 and "-r" in r.errors(), (r.code, r.errors())
    assert sorted(os.listdir(tmp_path)) == ["a", "f"] and sorted(os.listdir(tmp_path / "a")) == ["link", "sub"]


def test_recursive_verbose_copy_to_a_tmpfs(bench, tmp_path):
    """rdcp -v -r node_modules host:/dev/shm/node_modules"""
    tree(tmp_path / "node_modules")
    to = tmp_path / "shm"
    to.mkdir()
    r = bench.copy("-v", "-r", "node_modules", "far:%s/node_modules" % to)
    assert r.code == 0, r.errors()
    assert r.errors().splitlines()[-1].startswith("Bandwidth ")
    assert sorted(os.listdir(to / "node_modules")) == ["link", "sub"]


@pytest.mark.parametrize("three", [False, True])
def test_tree_between_two_remote_hosts_is_copied(bench, tmp_path, three):
    tree(tmp_path / "a")
    r = bench.copy(*(["-3"] if three else []), "-r", "near:%s/a" % tmp_path, "far:%s/b" % tmp_path,
                   transport="--transport=auto" if three else DEMAND)
    assert r.code == 0, r.errors()
    assert sorted(os.listdir(tmp_path / "b" / "sub")) == ["f0", "f1", "f2"]


def test_trees_of_several_hosts_are_copied(bench, tmp_path):
    for n in "abc":
        tree(tmp_path / n)
    (tmp_path / "to").mkdir()
    r = bench.copy("-r", "--json", "near:%s/a" % tmp_path, "far:%s/b" % tmp_path, "c", "far:%s/to" % tmp_path)
    assert r.code == 0, r.errors()
    assert sorted(os.listdir(tmp_path / "to")) == ["a", "b", "c"]
    told = [json.loads(x) for x in bytes(r.out).decode().splitlines()]
    assert [x["type"] for x in told].count("start") == 3 and told[-1]["files"] == 9, told[-1]


@pytest.mark.parametrize("limit", [0, 100000])
@pytest.mark.parametrize("options", [[], ["--inplace"], ["-r"]], ids=str)
def test_file_size_limit_is_reported(bench, tmp_path, limit, options):
    """SIGXFSZ would otherwise end the program without a message."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "f").write_bytes(pattern(3 * BLOCK))
    (tmp_path / "in" / "g").write_bytes(b"x" * 10)
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / "f").write_bytes(b"old")
    limited = ["prlimit", "--fsize=%d" % limit]
    for to in ("to/", "far:%s/" % (tmp_path / "to")):
        r = bench.copy(*options, "in/f", "in/g", to, become=limited)
        assert r.code == 23 and "f: File too large" in r.errors(), (to, r.code, r.errors())
        assert "--inplace" in options or (tmp_path / "to" / "f").read_bytes() == b"old"
        assert (tmp_path / "to" / "g").exists() == (limit > 0)
        (tmp_path / "to" / "g").unlink(missing_ok=True)
        r = bench.copy(*options, "in/f", to, become=limited)
        assert r.code == 11 and "File too large" in r.errors(), (to, r.code, r.errors())


@pytest.mark.parametrize("limit", [0, 100000])
def test_file_size_limit_of_a_stream_is_reported(bench, tmp_path, limit):
    (tmp_path / "in").write_bytes(pattern(3 * BLOCK))
    limited = ["prlimit", "--fsize=%d" % limit]
    for target in ([tmp_path / "out"], []):
        with open(tmp_path / "stdout", "wb") as out:
            sink = bench.start([*limited, program("rdrecv"), DEMAND, "-v", "0", "KEY", *target], host=FAR, stdout=out)
            port = int(sink.expect("listening on").rsplit(":", 1)[1].split()[0])
            source = bench.send(port, tmp_path / "in", key="KEY")
            assert (sink.wait(), source.wait()) == (11, 11), (source.errors(), sink.errors())
        assert "File too large" in sink.errors() and "File too large" in source.errors()
    # A program that writes no file is not affected, and a command starts with the default action of the signal.
    sink = bench.receive("--", "sh", "-c", "cat >/dev/null; grep SigIgn: /proc/self/status >&2")
    source = bench.start([*limited, program("rdsend"), DEMAND, FAR.address, str(sink.port), "-", tmp_path / "in"],
                         host=NEAR, env={"RD_KEY": KEY})
    assert (sink.wait(), source.wait()) == (0, 0), (source.errors(), sink.errors())
    ignored = int(sink.errors().split("SigIgn:")[1].split()[0], 16)
    assert not ignored & 1 << (signal.SIGXFSZ - 1)
    with open(tmp_path / "json", "wb") as out:
        sink = bench.receive(tmp_path / "out2")
        source = bench.start([*limited[:1], "--fsize=0", program("rdsend"), DEMAND, "--json", FAR.address,
                              str(sink.port), "-", tmp_path / "in"], host=NEAR, env={"RD_KEY": KEY}, stdout=out)
        assert source.wait() == 11 and "File too large" in source.errors(), source.errors()
