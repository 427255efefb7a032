# SPDX-License-Identifier: Apache-2.0
"""rdcpd's line for each session: who moved what, and how that ended."""

import json
import os
import re
import signal
import subprocess

import pytest

from daemons import HERE, Daemon
from hosts import ROOT, pattern, program, wait_until

pytestmark = pytest.mark.needs("tcp", why="over TCP; test_rdcpd_rdma.py has what an adapter can change")
NAMES = ["v", "type", "time", "from", "user", "module", "direction", "path", "files", "bytes", "seconds", "transport", "code",
         "signal", "reason"]


def objects(daemon):
    return [json.loads(line) for line in daemon.run.errors().splitlines() if line.startswith("{")]


def last_object(daemon, count):
    wait_until(lambda: len(objects(daemon)) == count)
    return objects(daemon)[-1]


def test_a_sentence_for_each_transfer(bench, tmp_path):
    d = Daemon(bench, tmp_path)
    (tmp_path / "in").write_bytes(pattern(3 << 20))
    assert d.copy("in", d.url("rw/")).code == 0
    line = d.run.expect("module rw: done; push to ")
    assert re.search(r"%s:\d+, module rw: done; push to \S*: 1 file, 3145728 bytes in \d+\.\d{3} s, \d+\.\d{3} GB/s over tcp$" % HERE, line), line
    assert d.copy(d.url("rw/in"), "out").code == 0
    d.run.expect("module rw: done; pull of in: 1 file, 3145728 bytes")
    r = d.copy("in", d.url("ro/x"))
    assert r.code == 11
    d.run.expect("module ro: exit code 11: module ro is read only; push to x: 0 files, 0 bytes")
    r = d.copy(d.url("rw/none"), "out")
    assert r.code == 3
    d.run.expect("module rw: exit code 3: ")


def test_json_has_these_names(bench, tmp_path):
    d = Daemon(bench, tmp_path, "--log-json")
    (tmp_path / "t").mkdir()
    for i in range(3):
        (tmp_path / "t" / str(i)).write_bytes(pattern(1000))
    assert d.copy("-a", "t", d.url("rw/")).code == 0
    o = last_object(d, 1)
    assert list(o) == NAMES
    manual = (ROOT / "man" / "rdcpd.8").read_text()
    assert all("\n.B %s\n" % name in manual for name in NAMES)
    assert (o["type"], o["user"], o["module"], o["direction"]) == ("transfer", "-", "rw", "push")
    assert (o["files"], o["bytes"], o["transport"], o["code"], o["signal"], o["reason"]) == (3, 3000, "tcp", 0, 0, "")
    assert o["from"].startswith(HERE + ":") and o["time"] > 1 << 30 and o["seconds"] > 0
    assert d.copy("in", d.url("nope/")).code != 0
    o = last_object(d, 2)
    assert (o["module"], o["code"]) == ("nope", 3) and "there is no module nope" in o["reason"]


@pytest.mark.parametrize("name", ["a\nrdcpd: forged", "\x1b[31mred", '"quoted", "code": 0', "\u202eleft"])
@pytest.mark.parametrize("how", [[], ["--log-json"]])
def test_names_forge_no_line(bench, tmp_path, name, how):
    d = Daemon(bench, tmp_path, *how)
    r = d.copy(d.url("rw/" + name), "out")
    assert r.code == 3, r.errors()
    if how:
        o = last_object(d, 1)
        assert list(o) == NAMES and o["code"] == 3 and "forged" not in o["path"].split("\n")
    else:
        d.run.expect("module rw: exit code 3: ")
    log = d.run.errors()
    assert "\x1b" not in log and "\u202e" not in log
    assert not [line for line in log.splitlines() if line.startswith("rdcpd: forged")]


def test_killed_client_and_killed_end_have_lines(bench, tmp_path):
    d = Daemon(bench, tmp_path, "--log-json")
    (tmp_path / "in").write_bytes(pattern(40 << 20))
    for who in "client", "end":
        client = bench.start(d.argv("--bwlimit=5M", "in", d.url("rw/" + who)), cwd=tmp_path)
        wait_until(lambda: len(d.children()) == 2 and any(p.stat().st_size for p in (tmp_path / "rw").iterdir()))
        if who == "client":
            client.kill()
            o = last_object(d, 1)
            assert o["code"] not in (0, -1) and o["path"] == "client" and o["reason"]
        else:
            os.kill(d.ends()[0], signal.SIGKILL)
            o = last_object(d, 2)
            assert (o["code"], o["signal"]) == (-1, signal.SIGKILL)
            assert client.wait() == 44
        wait_until(lambda: d.children() == [])


def port_of(pid):
    """Where a process listens; None: nowhere yet."""
    listeners = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True).stdout
    found = re.search(r":(\d+) .*pid=%d," % pid, listeners)
    return found and int(found[1])


def test_quiet_prints_no_line(bench, tmp_path):
    d = Daemon(bench, tmp_path)
    assert d.copy("key", d.url("rw/")).code == 0
    d.run.expect("module rw: done")
    quiet = bench.start([program("rdcpd"), "-q", "--key-file", d.key, "--port=0", "--address", HERE, "--module=m=%s:rw" % (tmp_path / "rw")])
    wait_until(lambda: port_of(quiet.proc.pid))
    r = bench.run(d.argv("key", "rdma://%s:%d/m/x" % (HERE, port_of(quiet.proc.pid))), cwd=tmp_path)
    assert r.code == 0, r.errors()
    quiet.signal(signal.SIGTERM)
    assert quiet.wait() == 0 and quiet.errors() == ""
