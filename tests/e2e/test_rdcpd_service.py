# SPDX-License-Identifier: Apache-2.0
"""rdcpd as a service: how signals end it, and what it tells a service manager."""

import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time

import pytest

from daemons import HERE, Configured
from hosts import BIN, ROOT, SLOW, pattern, program, wait_until

pytestmark = pytest.mark.needs("tcp", why="over TCP; test_rdcpd_rdma.py has what an adapter can change")
MODULE = "[m]\npath = {tmp}/m\nread only = no\n"


class Manager:
    """A socket in the place of systemd's."""

    def __init__(self, name):
        self.name, self.states = name, []
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(name.replace("@", "\0", 1))
        self.env = {"NOTIFY_SOCKET": name}

    def _take(self, seconds):
        self.socket.settimeout(seconds)
        state = self.socket.recv(4096).decode()
        self.states.append(dict(line.split("=", 1) for line in state.splitlines()))

    def expect(self, **state):
        """Waits for a datagram that has this."""
        until = time.monotonic() + 20 * SLOW
        while not self.states or not state.items() <= self.states[-1].items():
            self._take(max(.1, until - time.monotonic()))
        return self.states[-1]


def short_path(name):
    return "/proc/%d/cwd/%s" % (os.getpid(), name)


@pytest.fixture(params=["path", "abstract"])
def manager(request, tmp_path, monkeypatch):
    # A path may have 107 bytes.
    monkeypatch.chdir(tmp_path)
    name = "@sluice-test-%d-%s" % (os.getpid(), os.urandom(4).hex()) if request.param == "abstract" else short_path("notify")
    m = Manager(name)
    yield m
    m.socket.close()


def start_copy(d, rate="5M", size=20 << 20):
    """A client that is at work."""
    (d.tmp / "in").write_bytes(pattern(size))
    client = d.bench.start(d.argv("--bwlimit=" + rate, "in", d.url("m/")), cwd=d.tmp)
    wait_until(lambda: any((d.tmp / "m").iterdir()))
    return client


def test_each_state_is_reported(bench, tmp_path, manager):
    d = Configured(bench, tmp_path, MODULE, env=manager.env)
    manager.expect(READY="1", STATUS="0 sessions")
    client = start_copy(d)
    manager.expect(STATUS="1 session")
    assert client.wait() == 0, client.errors()
    manager.expect(STATUS="0 sessions")
    before = time.monotonic()
    d.run.signal(signal.SIGHUP)
    # Both clocks are CLOCK_MONOTONIC.
    assert before <= int(manager.expect(RELOADING="1")["MONOTONIC_USEC"]) / 1e6 <= time.monotonic()
    manager.expect(READY="1", STATUS="0 sessions")
    d.reload("[m]\npath = gone\n")
    manager.expect(RELOADING="1")
    manager.expect(READY="1", STATUS="0 sessions; the last reload failed")
    d.run.signal(signal.SIGTERM)
    assert int(manager.expect(STOPPING="1")["EXTEND_TIMEOUT_USEC"]) > 600e6
    assert d.run.wait() == 0
    states = [sorted(s.keys() - {"STATUS"}) for s in manager.states]
    assert [s for s in states if s] == [["READY"], ["MONOTONIC_USEC", "RELOADING"], ["READY"], ["MONOTONIC_USEC", "RELOADING"],
                                        ["READY"], ["EXTEND_TIMEOUT_USEC", "STOPPING"]]


def test_no_other_process_knows_the_manager(bench, tmp_path, manager):
    d = Configured(bench, tmp_path, MODULE, env=manager.env)
    name = manager.env["NOTIFY_SOCKET"].encode()
    client = start_copy(d)
    wait_until(lambda: len(d.children()) == 2)
    for pid in [d.run.proc.pid, *d.children()]:
        assert name[1:] not in pathlib.Path("/proc/%d/environ" % pid).read_bytes()
    manager.expect(STATUS="1 session")
    client.kill()


@pytest.mark.parametrize("name, text", [("/no/such/socket", "notify the service manager: No such file"),
                                        ("notify", "NOTIFY_SOCKET=notify is no name"),
                                        ("/" + 200 * "x", "is no name of a Unix socket"), ("@", "NOTIFY_SOCKET=@ is no name")])
def test_missing_manager_stops_nothing(bench, tmp_path, name, text):
    d = Configured(bench, tmp_path, MODULE, env={"NOTIFY_SOCKET": name})
    d.run.expect(text)
    d.reload(MODULE)
    d.run.expect("loaded the settings again")
    assert d.copy("key", d.url("m/")).code == 0
    assert d.run.errors().count("NOTIFY") + d.run.errors().count("notify the") == 1


def test_busy_manager_stops_nothing(bench, tmp_path, monkeypatch):
    """It takes no datagram at first: the queue of its socket is full."""
    monkeypatch.chdir(tmp_path)
    m = Manager(short_path("notify"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                s.sendto(b"STATUS=", m.name)
        d = Configured(bench, tmp_path, MODULE, env=m.env)
        d.run.expect("notify the service manager: Resource temporarily unavailable")
        assert d.copy("key", d.url("m/")).code == 0
    m.expect(READY="1")
    m.socket.close()


# ---- SIGTERM ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("fault", [None, {"SLUICE_FAULT": "break:lane=0,block=9"}], ids=["whole", "lane-lost"])
def test_sigterm_lets_sessions_end_and_takes_no_others(bench, tmp_path, fault):
    """A lane that is lost meanwhile comes back to the same port."""
    d = Configured(bench, tmp_path, MODULE)
    (tmp_path / "in").write_bytes(pattern(20 << 20))
    client = bench.start(d.argv("-v", "--bwlimit=5M", "--lanes=1", "--block-size=1M", "in", d.url("m/")), cwd=tmp_path, env=fault)
    wait_until(lambda: any((tmp_path / "m").iterdir()))
    d.run.signal(signal.SIGTERM)
    d.run.expect("ending after 1 session, or in 600 s; SIGTERM again ends at once")
    r = d.copy_at_once("key", d.url("m/"))
    assert r.code == 35 and "takes no new session now" in r.errors(), r.errors()
    d.run.signal(signal.SIGHUP)
    assert client.wait() == 0, client.errors()
    assert bool(fault) == ("lane 0" in client.errors()), client.errors()
    assert (tmp_path / "m" / "in").read_bytes() == (tmp_path / "in").read_bytes()
    assert d.run.wait() == 0
    assert re.search(r"module m: done; push to \S+ 1 file, 20971520 bytes", d.run.errors()), d.run.errors()
    assert d.children() == []


def test_sigterm_has_a_limit(bench, tmp_path):
    d = Configured(bench, tmp_path, "drain limit = 1\n" + MODULE)
    client = start_copy(d, rate="1M")
    d.run.signal(signal.SIGTERM)
    d.run.expect("ending after 1 session, or in 1 s")
    assert d.run.wait() == 0
    assert "ended what was left after the drain limit: 1 session" in d.run.errors()
    assert client.wait() not in (0, None)


@pytest.mark.parametrize("limit, sessions", [(600, False), (0, True)])
def test_sigterm_ends_at_once(bench, tmp_path, limit, sessions):
    d = Configured(bench, tmp_path, "drain limit = %d\n" % limit + MODULE)
    client = start_copy(d, rate="1M") if sessions else None
    d.run.signal(signal.SIGTERM)
    assert d.run.wait(5) == 0 and "ending after" not in d.run.errors()
    assert not client or client.wait() not in (0, None)


# ---- the unit -----------------------------------------------------------------------------------------------

UNIT = ROOT / "etc" / "rdcpd.service.in"
# What "systemd-analyze security" of systemd 252 prints is 3.3; other versions weigh differently.
EXPOSURE = 4.0


@pytest.fixture
def unit(tmp_path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("there is no systemd-analyze")
    path = tmp_path / "rdcpd.service"
    path.write_text(UNIT.read_text().replace("@BINDIR@", str(BIN)))
    return path


def analyze(*words):
    r = subprocess.run(["systemd-analyze", *words], capture_output=True, text=True, timeout=60,
                       env=dict(os.environ, SYSTEMD_COLORS="0", SYSTEMD_LOG_TARGET="console"))
    return r.returncode, r.stdout + r.stderr


@pytest.mark.may_skip("any", "systemd is not installed")
def test_unit_is_valid(unit):
    code, text = analyze("verify", "--man=no", unit)
    # Units of this machine are not ours.
    assert code == 0 and "rdcpd" not in text, text


@pytest.mark.may_skip("any", "systemd is not installed, or cannot examine a file")
def test_unit_permits_little(unit):
    code, text = analyze("security", "--offline=true", "--threshold=%d" % (EXPOSURE * 10), unit)
    if "unrecognized option" in text:
        pytest.skip("this systemd-analyze cannot examine a file")
    found = re.search(r"Overall exposure level for rdcpd.service: ([\d.]+)", text)
    print(found and found[0])
    assert code == 0 and found and float(found[1]) <= EXPOSURE, text


def values(key):
    return [word for line in re.findall(r"^%s=(.*)$" % key, UNIT.read_text(), re.M) for word in line.split()]


def test_unit_leaves_the_adapters():
    assert not values("PrivateDevices") and values("LimitMEMLOCK") == ["infinity"]
    assert "char-infiniband_verbs" in values("DeviceAllow") and "/dev/infiniband/rdma_cm" in values("DeviceAllow")
    assert {"AF_NETLINK", "AF_INET", "AF_INET6", "AF_UNIX"} == set(values("RestrictAddressFamilies"))


def capabilities(*without):
    """Words that run a program with what the unit leaves."""
    kept = [c[4:].lower() for c in values("CapabilityBoundingSet") if c not in without]
    return ["setpriv", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all," + ",".join("+" + c for c in kept)]


def try_capabilities(bench, tmp_path, *without):
    """Whether a daemon without these does its work: files of root and of another user."""
    for name in ("root", "other"):
        (tmp_path / name).mkdir(exist_ok=True)
    os.chown(tmp_path / "other", 54321, 54321)
    (tmp_path / "root" / "f").write_bytes(b"f")
    (tmp_path / "root" / "f").chmod(0)
    os.chown(tmp_path / "root" / "f", 54321, 54321)
    (tmp_path / "in").write_bytes(pattern(20 << 20))
    modules = "[root]\npath = {tmp}/root\nread only = no\n[other]\npath = {tmp}/other\nread only = no\nuid = 54321\ngid = 54321\n"
    try:
        d = Configured(bench, tmp_path, modules, become=capabilities(*without))
    except AssertionError:
        return False
    if d.copy("-p", d.url("root/f"), "out").code or d.copy("-p", "key", d.url("root/f")).code:
        return False
    if (tmp_path / "root" / "f").stat().st_uid != 54321:
        return False
    client = bench.start(d.argv("--bwlimit=2M", "in", d.url("other/x")), cwd=d.tmp)
    wait_until(lambda: len(d.children()) == 2 and any((tmp_path / "other").iterdir()))
    d.run.signal(signal.SIGINT)
    assert d.run.proc.wait(60 * SLOW) == 0
    # systemd ends what is left of sessions.
    d.run.group(signal.SIGKILL)
    client.kill()
    return True


@pytest.mark.needs("root", why="another user cannot have these capabilities")
def test_capabilities_of_the_unit_suffice(bench, tmp_path):
    assert try_capabilities(bench, tmp_path)


@pytest.mark.needs("root", why="another user cannot have these capabilities")
@pytest.mark.parametrize("without", values("CapabilityBoundingSet"))
def test_each_capability_of_the_unit_is_needed(bench, tmp_path, without):
    assert not try_capabilities(bench, tmp_path, without)
