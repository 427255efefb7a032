# SPDX-License-Identifier: Apache-2.0
"""rdcpd moves data over RDMA lanes, as an end that was started over ssh does."""

import contextlib
import ctypes
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess

import pytest

from daemons import HERE, Configured, Daemon
from hosts import BIN, COUNT, IWARP, RSH, as_nobody, leftovers, open_up, pattern, program, simulated, wait_until

pytestmark = [pytest.mark.needs("sim", why="rdcpd listens on loopback, where only simulated adapters are"), pytest.mark.lanes]

SIZE = 20 << 20
PIDFD_GETFD = 438
MODULES = """
[rw]
path = {tmp}/rw
read only = no
%s
"""


@pytest.fixture
def public(tmp_path):
    """Every user can reach the directories of the test and of the simulated host."""
    open_up(tmp_path)
    os.chmod(os.environ["SIMVERBS"], 0o755)


def unprivileged(bench, tmp, memlock=None):
    """A rdcpd of another user, who has a copy of the key; {daemon}.mine is the client's."""
    if BIN.parent.name == "tsan":
        pytest.skip("ThreadSanitizer has a thread of its own")
    mine = tmp / "mine"
    assert bench.run([program("rdcpd"), "--make-key", mine]).code == 0
    shutil.copy(mine, tmp / "key")
    os.chmod(tmp / "key", 0o600)
    os.chown(tmp / "key", 65534, 65534)
    daemon = Daemon(bench, tmp, become=as_nobody(memlock))
    daemon.key = mine
    return daemon


def in_both_directions(daemon, tmp, *options, over="rdma"):
    (tmp / "in").write_bytes(pattern(SIZE))
    for what, where in (("in", daemon.url("rw/")), (daemon.url("rw/in"), "out")):
        r = daemon.copy("-v", *options, what, where)
        assert r.code == 0 and "over %s" % over in r.errors(), r.errors() + daemon.run.errors()
    assert (tmp / "out").read_bytes() == pattern(SIZE)
    assert leftovers(tmp / "rw") == []


def test_push_and_pull(daemon, tmp_path):
    in_both_directions(daemon, tmp_path, "--transport=rdma")


def test_rdma_is_chosen_and_reported(daemon, tmp_path):
    (tmp_path / "in").write_bytes(pattern(SIZE))
    r = daemon.copy("--json", "in", daemon.url("rw/"))
    assert r.code == 0, r.errors()
    assert any(json.loads(line).get("transport") == "rdma" for line in r.out.splitlines()), r.out
    assert "not RDMA" not in r.errors()


def test_a_tree_with_many_lanes(daemon, tmp_path):
    for i in range(300):
        p = tmp_path / "from" / ("d%d" % (i % 7)) / ("f%d" % i)
        p.parent.mkdir(parents=True, exist_ok=True)
        p.write_bytes(pattern(i * 997, seed=i + 1))
    r = daemon.copy("-a", "--transport=rdma", "--lanes=40", "--depth=4", "from/", daemon.url("rw"))
    assert r.code == 0, r.errors()
    assert subprocess.run(["diff", "-r", tmp_path / "from", tmp_path / "rw"], capture_output=True).returncode == 0


@pytest.mark.needs("root", why="only root can serve a module as another user")
def test_a_module_of_another_user(bench, public, tmp_path):
    (tmp_path / "rw").mkdir()
    os.chown(tmp_path / "rw", 65534, 65534)
    daemon = Configured(bench, tmp_path, MODULES % "uid = 65534\ngid = 65534")
    in_both_directions(daemon, tmp_path, "--transport=rdma")
    assert (tmp_path / "rw" / "in").stat().st_uid == 65534


@pytest.mark.needs("root", why="only root can become another user")
@pytest.mark.may_skip("any", "a process with several threads, as under ThreadSanitizer, makes no user namespace")
def test_an_unprivileged_rdcpd(bench, public, tmp_path):
    in_both_directions(unprivileged(bench, tmp_path), tmp_path, "--transport=rdma")


@pytest.mark.needs("root", why="only root can become another user")
@pytest.mark.may_skip("any", "a process with several threads, as under ThreadSanitizer, makes no user namespace")
def test_little_locked_memory(bench, public, tmp_path):
    daemon = unprivileged(bench, tmp_path, memlock=64 << 10)
    (tmp_path / "in").write_bytes(pattern(SIZE))
    r = daemon.copy("--transport=rdma", "in", daemon.url("rw/"))
    assert r.code == 45 and "memlock" in r.errors(), r.errors()
    in_both_directions(daemon, tmp_path, over="tcp")


def end_of(daemon):
    """The process of the session's end, which is confined to its module."""
    def find():
        for pid in daemon.children():
            try:
                if os.readlink("/proc/%d/root" % pid) == str(daemon.tmp / "rw"):
                    return pid
            except OSError:
                pass
        return None
    return wait_until(find)


@pytest.mark.needs("root", why="other users may not look at the end's descriptors")
def test_the_end_is_confined(bench, daemon, tmp_path):
    (tmp_path / "in").write_bytes(pattern(40 << 20))
    r = bench.start(daemon.argv("--transport=rdma", "--bwlimit=10M", "in", daemon.url("rw/")), cwd=tmp_path)
    pid = end_of(daemon)
    wait_until(lambda: leftovers(tmp_path / "rw"))
    with open("/proc/%d/status" % pid) as f:
        status = dict(line.split(":", 1) for line in f)
    assert status["NoNewPrivs"].strip() == "1"
    assert int(status["CapEff"], 16) & (1 << 18 | 1 << 21 | 1 << 24) == 0, "CAP_SYS_CHROOT, _ADMIN or _RESOURCE"
    assert os.readlink("/proc/%d/cwd" % pid) == str(tmp_path / "rw")
    # The process that changed its root is gone.
    assert len(daemon.children()) == 2
    places = [os.readlink("/proc/%d/fd/%s" % (pid, fd)) for fd in os.listdir("/proc/%d/fd" % pid)]
    outside = [p for p in places if os.path.isdir(p) and not p.startswith(str(tmp_path / "rw"))]
    assert outside == []
    r.kill()
    wait_until(lambda: daemon.children() == [])


@pytest.mark.needs("root", why="other users may not look for the end")
@pytest.mark.may_skip("any", "a machine with one processor has nothing to choose")
def test_lanes_of_a_confined_end_run_at_the_node_of_the_adapter(bench, public, tmp_path):
    """It sees no /sys any more when its lanes get their wires."""
    own = sorted(os.sched_getaffinity(0))
    if len(own) < 2:
        pytest.skip("there is one processor")
    env = simulated(nodes=[str(own[0]), str(own[1])])
    os.chmod(env["SIMVERBS"], 0o755)
    daemon = Daemon(bench, tmp_path, env=env)
    (tmp_path / "in").write_bytes(pattern(40 << 20))
    r = bench.start(daemon.argv("--transport=rdma", "--lanes=2", "--bwlimit=10M", "in", daemon.url("rw/")), cwd=tmp_path,
                    env=dict(os.environ, SIMVERBS=env["SIMVERBS"]))
    pid = end_of(daemon)
    wait_until(lambda: leftovers(tmp_path / "rw"))
    bound = [os.sched_getaffinity(int(tid)) for tid in os.listdir("/proc/%d/task" % pid)]
    assert bound.count({own[1]}) == 2 and os.sched_getaffinity(pid) == set(own), bound
    r.kill()


def test_a_lane_reconnects(bench, tmp_path):
    breaks = {"SLUICE_FAULT": "break:lane=0,block=5,times=1;break:lane=1,block=7,times=2"}
    daemon = Daemon(bench, tmp_path, env=breaks)
    (tmp_path / "in").write_bytes(pattern(60 << 20))
    for what, where in (("in", daemon.url("rw/")), (daemon.url("rw/in"), "out")):
        r = bench.run(daemon.argv("-v", "-v", "--transport=rdma", "--lanes=2", what, where), cwd=tmp_path, env=breaks)
        assert r.code == 0 and "over rdma" in r.errors(), r.errors()
        assert "lane 0 epoch 1: rdma" in r.errors() and "lane 1 epoch 1: rdma" in r.errors(), r.errors()
    assert (tmp_path / "out").read_bytes() == pattern(60 << 20)


def ports_of(text):
    """Those that the client's end connects to."""
    return [int(p) for p in re.findall(r"^rdcp: lane \d+ epoch \d+: rdma \S+ 127\.0\.0\.1:(\d+)", text, re.M)]


def test_the_range_of_ports(bench, tmp_path):
    daemon = Daemon(bench, tmp_path, "--port-range=21300-21339")
    (tmp_path / "in").write_bytes(pattern(SIZE))
    r = daemon.copy("-v", "-v", "--transport=rdma", "in", daemon.url("rw/"))
    ports = ports_of(r.errors())
    assert r.code == 0 and ports and all(21300 <= p <= 21339 for p in ports), r.errors()


def test_a_range_that_is_taken(bench, tmp_path):
    daemon = Daemon(bench, tmp_path, "--port-range=21340-21340")
    (tmp_path / "in").write_bytes(pattern(60 << 20))
    first = bench.start(daemon.argv("-v", "-v", "--bwlimit=10M", "--transport=rdma", "in", daemon.url("rw/first")), cwd=tmp_path)
    wait_until(lambda: leftovers(tmp_path / "rw"))
    r = daemon.copy("--transport=rdma", "in", daemon.url("rw/second"))
    assert r.code == 43 and "21340" in r.errors(), r.errors()
    r = daemon.copy("-v", "in", daemon.url("rw/second"))
    assert r.code == 0 and "over tcp" in r.errors() and "not RDMA" in r.errors(), r.errors()
    first.kill()


def test_a_port_that_is_blocked(bench, tmp_path):
    """The client's adapter gets no answer from the daemon's."""
    daemon = Daemon(bench, tmp_path)
    (tmp_path / "in").write_bytes(pattern(SIZE))
    lost = dict(SIMVERBS_FAULT="lose:REQ")
    r = bench.run(daemon.argv("--transport=rdma", "--connect-timeout=4", "in", daemon.url("rw/")), cwd=tmp_path, env=lost)
    assert r.code == 43, r.errors()
    r = bench.run(daemon.argv("-v", "in", daemon.url("rw/")), cwd=tmp_path, env=lost)
    assert r.code == 0 and "over tcp" in r.errors() and "not RDMA" in r.errors(), r.errors()


@pytest.mark.parametrize("fault", [
    "silent:n=1",                                               # the daemon has a caller, from whom no hello comes
    "event:ROUTE_RESOLVED,n=0,as=14,status=0",                  # a hint, after which nothing comes
])
def test_a_path_that_falls_silent_leaves_time_for_tcp(bench, daemon, tmp_path, fault):
    """There is no further stage in which to connect, as there is without rdcpd."""
    (tmp_path / "in").write_bytes(pattern(SIZE))
    r = bench.run(daemon.argv("-v", "--connect-timeout=6", "in", daemon.url("rw/")), cwd=tmp_path, env={"SIMVERBS_FAULT": fault})
    assert r.code == 0 and "not RDMA" in r.errors(), r.errors()
    assert (tmp_path / "rw" / "in").read_bytes() == pattern(SIZE)


@pytest.mark.parametrize("fault, words", [
    ("silent:n=10", "--connect-timeout=3"),                         # each caller, also of the lanes that follow the first
    ("lose:REQ,n=1;silent:n=1", "--connect-timeout=3 --timeout=4"),  # TCP is chosen, and its lanes cannot be promoted
])
def test_a_lane_whose_rdma_falls_silent_has_time_for_tcp(bench, daemon, fault, words, tmp_path):
    (tmp_path / "in").write_bytes(pattern(SIZE))
    for _ in range(COUNT):
        r = bench.run(daemon.argv(*words.split(), "in", daemon.url("rw/")), cwd=tmp_path, env={"SIMVERBS_FAULT": fault})
        assert r.code == 0, r.errors()
        assert (tmp_path / "rw" / "in").read_bytes() == pattern(SIZE)
        (tmp_path / "rw" / "in").unlink()


def test_a_rdcpd_for_one_transport(bench, tmp_path):
    daemon = Daemon(bench, tmp_path, "--transport=tcp")
    in_both_directions(daemon, tmp_path, over="tcp")
    r = daemon.copy("--transport=rdma", "in", daemon.url("rw/"))
    assert r.code == 43 and "over TCP only" in r.errors(), r.errors()
    daemon.run.kill()
    daemon = Daemon(bench, tmp_path, "--transport=rdma")
    in_both_directions(daemon, tmp_path)
    r = daemon.copy("--transport=tcp", "in", daemon.url("rw/"))
    assert r.code == 43 and "over RDMA only" in r.errors(), r.errors()
    r = bench.run(daemon.argv("in", daemon.url("rw/")), cwd=tmp_path, env={"SIMVERBS": ""})
    assert r.code == 43, r.errors()


# A key, an option, and what holds.
SERVICES = {"option": ("", "--tos=af21", "72"), "file": ("tos = af21", None, "72"), "both": ("tos = cs1", "--tos=af21", "72"),
            "zero": ("tos = cs1", "--tos=0", "0")}


@pytest.mark.parametrize("given", SERVICES)
def test_the_type_of_service(bench, tmp_path, given):
    """Over RoCE packets of both ends have that of the end that connects, over iWARP each end's own."""
    record = tmp_path / "record"
    key, option, ours = SERVICES[given]
    daemon = Configured(bench, tmp_path, MODULES % "", *[option] if option else [], keys=key + "\n",
                        env={"SIMVERBS_RECORD": str(record)})
    (tmp_path / "in").write_bytes(pattern(SIZE))
    r = bench.run(daemon.argv("--transport=rdma", "--tos=0x20", "in", daemon.url("rw/")), cwd=tmp_path,
                  env={"SIMVERBS_RECORD": str(record)})
    assert r.code == 0, r.errors()
    assert {line.split()[2] for line in record.read_text().splitlines()} == ({ours, "32"} if IWARP else {"32"})


def test_reload(bench, tmp_path):
    daemon = Configured(bench, tmp_path, MODULES % "", keys="transport = tcp\n")
    in_both_directions(daemon, tmp_path, over="tcp")
    for keys, over in (("transport = auto\nport range = 21360-21379\ntos = 0x20\n", "rdma"), ("transport = tcp\n", "tcp")):
        seen = daemon.run.errors().count("loaded the settings again")
        daemon.reload(keys + MODULES % "")
        wait_until(lambda: daemon.run.errors().count("loaded the settings again") > seen)
        (tmp_path / "in").write_bytes(pattern(SIZE))
        os.unlink(tmp_path / "rw" / "in")
        r = daemon.copy("-v", "-v", "in", daemon.url("rw/"))
        assert r.code == 0 and "over " + over in r.errors(), r.errors()
        assert over == "tcp" or all(21360 <= p <= 21379 for p in ports_of(r.errors()))


def test_wrong_keys(bench, tmp_path):
    for line, why in (("transport = ssh", "ssh is no transport"), ("port range = 5-4", "no range of ports"),
                      ("tos = best", "no type of service")):
        (tmp_path / "conf").write_text(line + "\n")
        r = bench.run([program("rdcpd"), "--check-config", "--config", tmp_path / "conf"])
        assert r.code == 1 and why in r.errors(), r.errors()


def test_with_an_ssh_host(bench, daemon, tmp_path):
    (tmp_path / "in").write_bytes(pattern(SIZE))
    for what, where in (("far:" + str(tmp_path / "in"), daemon.url("rw/")), (daemon.url("rw/in"), "far:" + str(tmp_path / "out"))):
        r = daemon.copy("-v", "--transport=rdma", "--rsh", RSH, "--rdcp-path", program("rdcp"), what, where)
        assert r.code == 0 and "over rdma" in r.errors(), r.errors()
    assert (tmp_path / "out").read_bytes() == pattern(SIZE)


def test_two_daemons(bench, tmp_path):
    daemons = [Daemon(bench, tmp_path / name) for name in ("a", "b")]
    (tmp_path / "a" / "rw" / "f").write_bytes(pattern(SIZE))
    keys = [w for d in daemons for w in ("--key-file", "%s:%d=%s" % (HERE, d.port, d.key))]
    ways = [daemons[0].url("rw/f"), daemons[1].url("rw/")]
    r = bench.run([program("rdcp"), "--transport=rdma", *keys, *ways])
    assert r.code == 43, r.errors()
    r = bench.run([program("rdcp"), "-v", *keys, *ways])
    assert r.code == 0 and "over tcp" in r.errors(), r.errors()
    assert (tmp_path / "b" / "rw" / "f").read_bytes() == pattern(SIZE)


@pytest.mark.parametrize("signo", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_session_leaves_nothing(bench, daemon, tmp_path, signo):
    before = daemon.descriptors()
    (tmp_path / "in").write_bytes(pattern(60 << 20))
    r = bench.start(daemon.argv("--transport=rdma", "--bwlimit=10M", "in", daemon.url("rw/")), cwd=tmp_path)
    wait_until(lambda: leftovers(tmp_path / "rw"))
    for pid in daemon.children():
        # The end of one may be that of the other.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signo)
    assert r.wait() != 0
    wait_until(lambda: daemon.children() == [])
    wait_until(lambda: daemon.descriptors() == before)
    r = daemon.copy("--transport=rdma", "in", daemon.url("rw/"))
    assert r.code == 0 and (tmp_path / "rw" / "in").read_bytes() == pattern(60 << 20), r.errors()
    assert leftovers(tmp_path / "rw") == []


def shut_door(pid):
    """Ends the socket through which its rdcpd gives the session connections."""
    process = os.pidfd_open(pid)
    libc = ctypes.CDLL(None, use_errno=True)
    for number in sorted(map(int, os.listdir("/proc/%d/fd" % pid))):
        fd = libc.syscall(PIDFD_GETFD, process, number, 0)
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):
            os.close(fd)
            continue
        with socket.socket(fileno=fd) as s:
            if (s.family, s.type) == (socket.AF_UNIX, socket.SOCK_SEQPACKET):
                s.shutdown(socket.SHUT_RDWR)
                break
    else:
        assert False, "no door"
    os.close(process)


def test_a_lost_door_is_reported(bench, daemon, tmp_path):
    """The session has listeners for RDMA, and goes on until it needs another connection over TCP."""
    (tmp_path / "in").write_bytes(pattern(SIZE))
    run = bench.start(daemon.argv("--bwlimit=1M", "--lanes=1", "in", daemon.url("rw/")), cwd=tmp_path,
                      env={"SIMVERBS_FAULT": "silent:n=1"})
    wait_until(lambda: leftovers(tmp_path / "rw"))
    shut_door(*daemon.ends())
    wait_until(lambda: "no more lanes are accepted: rdcpd is gone" in run.errors())
    run.kill()
