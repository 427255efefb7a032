# SPDX-License-Identifier: Apache-2.0
"""rdcp with only a SRC at a rdcpd lists it: the modules, a directory, or one file."""

import json
import os
import re
import signal
import socket
import subprocess

import pytest

from daemons import HERE
from hosts import program, wait_until

pytestmark = pytest.mark.needs("tcp", why="over TCP; test_rdcpd_rdma.py has what an adapter can change")


@pytest.fixture
def filled(daemon, tmp_path):
    top = tmp_path / "ro"
    (top / "d" / "e").mkdir(parents=True)
    (top / "d" / "file").write_bytes(b"12345")
    (top / "d" / "file").chmod(0o4640)
    os.utime(top / "d" / "file", (10 ** 9, 10 ** 9))
    (top / "d" / "link").symlink_to("file")
    (top / "to-d").symlink_to("d")
    os.mkfifo(top / "d" / "fifo")
    (top / "d" / "\x1b[2J \xff\n".encode("latin-1").decode("latin-1")).write_bytes(b"")
    return daemon


def listed(daemon, path, *options, code=0):
    r = daemon.copy(*options, daemon.url(path))
    assert r.code == code, r.errors()
    assert code == 0 or r.out == b""
    return r


def entries(daemon, path):
    found = [json.loads(line) for line in listed(daemon, path, "--json").out.splitlines()]
    assert all(e["v"] == 1 for e in found)
    return {e["name"]: e for e in found}


def test_modules_are_listed(daemon):
    assert listed(daemon, "").out.decode().split() == ["rw", "wo", "ro"]
    assert entries(daemon, "")["ro"] == {"v": 1, "type": "module", "name": "ro", "comment": ""}
    r = daemon.copy(daemon.url("")[:-1])
    assert r.code == 0 and b"rw" in r.out, r.errors()


def test_modules_that_a_client_may_not_see_are_left_out(bench, daemon, tmp_path):
    config = tmp_path / "config"
    section = "[%%s]\npath = %s\n" % (tmp_path / "ro")
    config.write_text("address = 127.0.0.1\nport = 0\nkey file = %s\n" % daemon.key + section % "seen" + "comment = \x1b ours\n" +
                      section % "unlisted" + "list = no\n" + section % "foreign" + "users = alice\n" +
                      section % "far" + "hosts deny = 127.0.0.0/8\n")
    run = bench.start([program("rdcpd"), "--config", config])
    port = int(run.expect("listening on").rsplit(":", 1)[1])
    r = bench.run(daemon.argv("rdma://127.0.0.1:%d" % port))
    assert r.code == 0 and r.out == b"seen           \t\\x1b ours\n", (r.out, r.errors())
    r = bench.run(daemon.argv("rdma://127.0.0.1:%d/unlisted/" % port))
    assert r.code == 0, r.errors()
    r = bench.run(daemon.argv("rdma://127.0.0.1:%d/foreign/" % port))
    assert r.code == 40 and r.out == b"", r.errors()


def test_a_directory_is_listed(filled, tmp_path):
    found = entries(filled, "ro/d/")
    assert len(found) == 5
    assert found["file"] == {"v": 1, "type": "entry", "name": "file", "what": "file", "mode": "4640", "size": 5, "mtime": 10 ** 9}
    assert found["link"]["target"] == "file" and found["link"]["what"] == "symlink"
    assert found["e"]["what"] == "dir" and found["fifo"]["what"] == "fifo"
    assert entries(filled, "ro/to-d/") == found
    assert set(entries(filled, "ro")) == set(entries(filled, "ro/")) == {"d", "to-d"}


def test_the_text_of_a_listing(filled):
    out = listed(filled, "ro/d/").out
    assert re.search(rb"^-rwSr-----              5 2001/09/0[89] \d\d:\d\d:40 file$", out, re.M), out
    assert re.search(rb"^l.{9}              4 .{19} link -> file$", out, re.M), out
    assert b"\x1b" not in out and len(out.splitlines()) == 5


def test_one_file_is_listed(filled):
    assert list(entries(filled, "ro/d/file")) == ["file"]
    assert entries(filled, "ro/d")["d"]["what"] == "dir"
    assert entries(filled, "ro/to-d")["to-d"]["target"] == "d"


@pytest.mark.parametrize("path, code, why", [
    ("ro/none", 3, "No such file"), ("ro/none/", 3, "No such file"), ("ro/d/file/", 3, "Not a directory"), ("none/", 3, "no module none"),
    ("wo/", 11, "write only"), ("ro/../rw/", 1, "leads out"), ("ro/d/../..", 1, "leads out")])
def test_what_cannot_be_listed(filled, path, code, why):
    assert why in listed(filled, path, code=code).errors()


def test_nothing_outside_is_listed(daemon, tmp_path):
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "secret-file").write_bytes(b"x")
    (tmp_path / "ro" / "up").symlink_to("../secret")
    (tmp_path / "ro" / "abs").symlink_to(tmp_path / "secret")
    for path in ("ro/up/", "ro/abs/", "ro/up/secret-file", "ro/abs/secret-file"):
        r = daemon.copy(daemon.url(path))
        assert r.code == 3 and b"secret-file" not in r.out, (path, r.errors())


def test_a_large_directory(daemon, tmp_path):
    for i in range(3000):
        (tmp_path / "ro" / ("%04d" % i + "n" * 200)).touch()
    r = listed(daemon, "ro/")
    assert len(r.out.splitlines()) == 3000
    wait_until(lambda: daemon.children() == [])


@pytest.mark.parametrize("signo", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("silent", ["rdcpd", "nobody"])
def test_signal_ends_a_listing(bench, daemon, signo, silent):
    """A daemon that says nothing, or a port that nobody answers at."""
    with socket.create_server((HERE, 0)) as server:
        if silent == "rdcpd":
            daemon.run.signal(signal.SIGSTOP)
            port = daemon.port
        else:
            port = server.getsockname()[1]
        run = bench.start([program("rdcp"), "--key-file", daemon.key, "rdma://%s:%d/ro/" % (HERE, port)])
        wait_until(lambda: connections_to(port))
        run.signal(signo)
        assert run.wait(10) == 20 and "interrupted" in run.errors(), run.errors()
    daemon.run.signal(signal.SIGCONT)


def connections_to(port):
    return subprocess.run(["ss", "-Htn", "dport = :%d" % port], capture_output=True, text=True).stdout


def test_reader_that_has_seen_enough_ends_a_listing_quietly(bench, daemon, tmp_path):
    for i in range(3000):
        (tmp_path / "ro" / ("a-long-name-of-a-file-%d" % i)).touch()
    run = bench.run(["bash", "-c", '"$@" | head -1; echo ${PIPESTATUS[0]}', "-", *map(str, daemon.argv(daemon.url("ro/")))])
    assert run.code == 0 and run.errors() == "" and run.out.splitlines()[-1] == b"141"


def test_options_that_a_listing_does_not_have(bench, daemon):
    assert "DST is missing" in listed(daemon, "ro/", "-r", code=1).errors()
    r = bench.run([program("rdcp"), daemon.url("ro/")])
    assert r.code == 40 and "--key-file" in r.errors()
