# SPDX-License-Identifier: Apache-2.0
"""rdcheck explains the message "falls back to TCP"."""

import json
import re
import signal
import subprocess
import sys

import pytest

from hosts import FAR, LAB, NEAR, ROOT, RSH, as_nobody, open_up, program, wait_until

# Half of it for each direction.
PATIENCE = "--connect-timeout=%d" % (20 if LAB else 6)


class Checked:
    def __init__(self, run):
        self.code, self.errors = run.code, run.errors()
        self.text = run.out.decode()
        self.lines = [json.loads(line) for line in self.text.splitlines()] if "{" in self.text else []

    def all(self, name, **fields):
        return [c for c in self.lines if c["type"] == "check" and c["name"] == name and
                all(c[k] == v for k, v in fields.items())]

    def one(self, name, **fields):
        found = self.all(name, **fields)
        assert len(found) == 1, (name, fields, self.text, self.errors)
        return found[0]


def check(bench, *args, far="far", rdcp=None, rsh=None, **how):
    how.setdefault("host", NEAR)
    how.setdefault("home", bench.tmp)
    argv = [program("rdcheck"), "--json", PATIENCE, "--rsh", rsh or RSH,
            "--rdcp-path", rdcp or program("rdcp"), *args, *([far] if far else [])]
    return Checked(bench.run(argv, timeout=60, **how))


# ---- the output --------------------------------------------------------------------------


@pytest.mark.needs("no adapter", why="it is about hosts without an adapter")
def test_host_without_an_adapter_is_reported(bench):
    run = bench.run([program("rdcheck")])
    out = run.out.decode()
    assert run.code == 43, run.errors()
    assert "FAILURE adapter: no RDMA adapter" in out and "remedy: " in out
    assert "locked memory" in out and out.splitlines()[-1].startswith("not fit for RDMA: 1 failure")
    assert not run.errors()
    quiet = bench.run([program("rdcheck"), "-q"]).out.decode()
    assert "FAILURE adapter" in quiet and "  ok  " not in quiet and "  info  " not in quiet


def test_json_matches_the_lines(bench):
    r = check(bench, far=None)
    assert [c["type"] for c in r.lines[:1]] == ["start"] and r.lines[-1]["type"] == "summary"
    assert r.lines[-1]["exit"] == r.code and r.lines[-1]["fit"] == (r.code == 0)
    checks = [c for c in r.lines if c["type"] == "check"]
    assert {"build", "modules", "memlock"} <= {c["name"] for c in checks}
    assert all(c["state"] in ("ok", "info", "warning", "failure") and c["what"] for c in checks)
    assert r.lines[-1]["failures"] == len([c for c in checks if c["state"] == "failure"])
    assert r.lines[-1]["warnings"] == len([c for c in checks if c["state"] == "warning"])
    # Each warning and failure has its remedy.
    assert all(c["remedy"] for c in checks if c["state"] == "failure"), r.text


# ---- the path ----------------------------------------------------------------------------


def test_address_unknown_to_the_far_host_is_reported(bench):
    r = check(bench, "--address=nowhere.invalid")
    assert r.code == r.lines[-1]["exit"] == 5, r.text + r.errors
    found = r.one("start", state="failure")
    assert "look up --address nowhere.invalid: " in found["what"] and "--address" in found["remedy"]
    assert not r.all("firewall"), r.text


@pytest.mark.needs("tcp", why="the lab's own are below")
def test_path_with_tcp_is_reported(bench):
    r = check(bench, "--transport=tcp")
    assert r.code == 0 and r.lines[-1]["fit"], r.text + r.errors
    assert r.one("tcp")["state"] == "ok"
    assert "GB/s" in r.one("bandwidth", subject="tcp")["what"]
    assert " us " in r.one("ping", subject="tcp")["what"]
    assert r.one("versions")["state"] == "ok" and "ms" in r.one("control")["what"]
    assert {c["host"] for c in r.all("build")} == {r.lines[1]["host"], "far"}


@pytest.mark.needs("no adapter", why="it is about hosts without an adapter")
def test_reason_of_the_fallback_to_tcp_is_reported(bench):
    r = check(bench)
    assert r.code == 43
    assert "falls back to TCP" in r.one("rdma")["what"] and "no RDMA device" in r.one("rdma")["what"]
    assert "--transport=rdma is not possible" not in r.text, "nobody asked for RDMA"
    assert "far: far:" not in r.text, "whose words they are is said once"
    assert r.one("tcp")["state"] == "ok"


def test_far_end_that_does_not_start_is_reported(bench):
    r = check(bench, far="nobody")
    assert r.code == 5 and r.one("start")["remedy"], r.text
    r = check(bench, rdcp="/nowhere/rdcp")
    assert r.code == 5 and "/nowhere/rdcp is not on" in r.one("start")["what"], r.text


FAKE = """#!%s
import sys
sys.path.insert(0, %r)
import wire
out = sys.stdout.buffer
def finding(**more):
    out.write(wire.message("FINDING", **{**dict(state=1, family=0, rdma=0, addr=bytes(16), name="port",
                                                subject="", what="fine", remedy=""), **more}))
out.write(wire.message("GREETING", magic=wire.GREETING_MAGIC, version=%s, release="0.0.9"))
%s
out.flush()
sys.stdin.buffer.read()
"""
LIES = {
    "escapes": ("wire.VERSION", "finding(name='\\x1b[2J', what='\\x1b]0;x\\x07' * 100, remedy='\\x9b1m')", [44, 30]),
    "too many": ("wire.VERSION", "for _ in range(1100): finding()", [12]),
    "a state that there is not": ("wire.VERSION", "finding(state=9)", [12]),
    "another frame": ("wire.VERSION", "out.write(wire.message('GO'))", [12]),
    "another version": (999, "", [2]),
    "half a frame": ("wire.VERSION", "out.write(b'\\x40\\x00'); out.flush(); sys.exit(0)", [44, 12]),
}


@pytest.mark.needs("host", why="it is about bytes; the host runs it")
@pytest.mark.parametrize("lie", LIES)
def test_impossible_frames_of_the_far_end_are_refused(bench, tmp_path, lie):
    version, body, codes = LIES[lie]
    fake = tmp_path / "fake"
    fake.write_text(FAKE % (sys.executable, str(ROOT / "tests" / "hostile"), version, body))
    fake.chmod(0o755)
    r = check(bench, "--timeout=2", rdcp=fake)
    assert r.code in codes, (r.code, r.text, r.errors)
    assert r.all("start") or r.all("versions"), r.text
    assert "\x1b" not in r.text + r.errors and "\x9b" not in r.text


def test_text_printed_by_a_shell_is_shown(bench, tmp_path):
    fake = tmp_path / "fake"
    fake.write_text("#!/bin/sh\necho welcome to this host\n")
    fake.chmod(0o755)
    r = check(bench, rdcp=fake)
    assert r.code == 5 and "welcome to this host" in r.one("start")["what"], r.text


@pytest.mark.needs("host", why="it is about signals; the host runs it")
@pytest.mark.parametrize("when", ["survey", "lanes"])
def test_rdcheck_can_be_interrupted(bench, tmp_path, when):
    """While a remote survey is silent, and while lanes are."""
    fake = tmp_path / "fake"
    fake.write_text("#!/bin/sh\n[ \"$1\" = %s ] || exec cat > /dev/null\nexec %s \"$@\"\n" % (
        "--none" if when == "survey" else "--survey", program("rdcp")))
    fake.chmod(0o755)
    run = bench.start([program("rdcheck"), "--rsh", RSH, "--rdcp-path", fake, "far"], host=NEAR, home=tmp_path)
    wanted = "memlock" if when == "survey" else "control"
    wait_until(lambda: wanted in run.out.decode())
    run.signal(signal.SIGINT)
    assert run.wait(5) == 20, run.errors()
    assert "unknown whether fit" in run.out.decode() and run.errors().count("\n") == 1, run.errors()


class Wire:
    """Two network namespaces joined by a wire, without an adapter."""

    def __init__(self, networks):
        self.networks = networks
        self.ip, self.shape = networks.ip, networks.shape
        networks.join("10.77.8")

    def start(self, bench, *args):
        near, far = self.networks.on(0), self.networks.on(1)
        argv = [*near, program("rdcheck"), "--json", "-4", PATIENCE, "--rsh", RSH, "--rdcp-path",
                program("rdcp"), *args, "far"]
        return bench.start(argv, home=bench.tmp, env={"SLUICE_TEST_HOSTS": "far " + " ".join(far)})

    def check(self, bench, *args):
        run = self.start(bench, *args)
        run.code = run.wait()
        return Checked(run)

    def drop(self):
        """Packets between the hosts are dropped in both directions."""
        return self.ip(1, "route", "add", "blackhole", "10.77.8.1/32") and \
            self.ip(0, "route", "add", "table", "9", "10.77.8.2/32", "dev", "v0")


@pytest.fixture
def wire(networks):
    return Wire(networks())


@pytest.mark.needs("host", why="it is about TCP alone; the host runs it")
@pytest.mark.may_skip("user", "a network namespace may be had by root only")
def test_dropping_firewall_is_reported(bench, wire):
    assert wire.drop()
    r = wire.check(bench, "--transport=tcp", "--connect-timeout=1", "--port-range=7310-7319")
    assert r.code == 43, r.text
    assert r.one("tcp")["state"] == "failure"
    assert "would go" not in r.one("tcp")["what"], "rdcheck is not asked to move data"
    wall = r.one("firewall", subject="10.77.8.2")
    assert "silent" in wall["what"] and "7310-7319" in wall["remedy"], r.text


@pytest.mark.needs("host", why="it is about signals; the host runs it")
@pytest.mark.may_skip("user", "a network namespace may be had by root only")
def test_rdcheck_can_be_interrupted_while_addresses_are_silent(bench, wire):
    # Each address gets one second.
    assert wire.drop() and all(wire.ip(1, "addr", "add", "10.77.8.%d/24" % i, "dev", "v0") for i in range(3, 13))
    run = wire.start(bench, "--transport=tcp", "--connect-timeout=1")
    wait_until(lambda: "lanes cannot connect over TCP" in run.out.decode())
    run.signal(signal.SIGINT)
    assert run.wait(5) == 20, run.errors()
    assert "SIGINT" in run.errors() and '"exit": 20' in run.out.decode(), run.out.decode()


@pytest.mark.may_skip("user", "a network namespace may be had by root only")
@pytest.mark.lab("siw", long=True)
def test_address_without_an_adapter_is_reported(bench, wire):
    """In the lab adapters exist, but not for these addresses."""
    slow = wire.shape("tbf", "rate", "100mbit", "burst", "64kb", "latency", "50ms")
    r = wire.check(bench)
    assert r.code == 43, r.text
    assert "no RDMA adapter" in r.one("address", subject="10.77.8.2")["what"]
    assert "no adapter" in r.one("route", subject="10.77.8.2")["what"]
    assert "falls back to TCP" in r.one("rdma")["what"]
    # However slow the machine is, the measured rate does not exceed the wire's.
    rate = float(re.search(r"\(([0-9.]+) Gbit/s\)", r.one("bandwidth", subject="tcp")["what"])[1])
    assert not slow or rate <= 0.15, r.text
    if LAB:
        assert "belongs to an RDMA device" in r.one("rdma")["what"], r.text


# ---- in the lab --------------------------------------------------------------------------

adapters = pytest.mark.needs("verbs", why="it is about verbs; the lab runs it")


@adapters
@pytest.mark.lab("siw")
def test_fit_path_passes(bench):
    r = check(bench, "-4")
    assert r.code == 0 and r.lines[-1]["fit"], r.text + r.errors
    assert r.one("rdma")["state"] == "ok" and "rdma " in r.one("rdma")["what"]
    assert r.one("route", subject=FAR.address)["state"] == "ok"
    assert " us " in r.one("ping", subject="rdma")["what"]
    assert "GB/s" in r.one("bandwidth", subject="rdma")["what"]
    assert any(c["state"] == "ok" for c in r.all("port"))


# The module's device and the module are hidden, from this process only.
WITHOUT_UCM = """
mkdir -p {0}/dev && cp -a /dev/infiniband/uverbs* {0}/dev/ &&
mount --bind {0}/dev /dev/infiniband && mount -t tmpfs none /sys/class/misc && mount -t tmpfs none /sys/module &&
exec "$@"
"""


@adapters
@pytest.mark.needs("lab", why="it would hide devices of the host")
@pytest.mark.lab("rxe")
def test_missing_module_is_reported(bench, tmp_path):
    hide = ["unshare", "-m", "--propagation", "private", "sh", "-c", WITHOUT_UCM.format(tmp_path), "sh"]
    r = check(bench, far=None, become=hide)
    assert r.code == 43, r.text + r.errors
    missing = r.one("modules", subject="rdma_ucm")
    assert missing["state"] == "failure" and "modprobe rdma_ucm" in missing["remedy"]


@adapters
@pytest.mark.lab("siw", long=True)
def test_little_locked_memory_is_reported(bench, tmp_path):
    open_up(tmp_path)
    r = check(bench, far=None, become=as_nobody(64 << 10))
    assert r.code == 43, r.text + r.errors
    memory = r.one("memlock")
    assert memory["state"] == "failure" and "64 KiB" in memory["what"] and "TCP" in memory["what"]
    assert "unlimited" in memory["remedy"] or "infinity" in memory["remedy"] or "ulimit" in memory["remedy"]


@adapters
@pytest.mark.needs("rxe", why="only RoCE has that port")
def test_blocked_roce_port_is_reported(bench):
    """Everything else works: addresses, adapters, TCP and the address resolution of RDMA."""
    # Sockets route by UDP alone, while rxe also routes each packet by its device: the route for its packets leads
    # to a neighbour that does not exist.
    ways = [["ip", what, "%s", *words] for dev in ("rx0", "rx1") for what, words in (
        ("route", ["default", "via", "10.77.1.250", "dev", dev, "onlink", "metric", "1%s" % dev[-1], "table", "78"]),
        ("rule", ["pref", "1", "oif", dev, "ipproto", "udp", "lookup", "78"]))]

    def each(what):
        for way in ways:
            subprocess.run([w.replace("%s", what) for w in way], check=True)
    each("add")
    try:
        r = check(bench, "-4")
    finally:
        each("del")
    assert r.code == 43, r.text + r.errors
    assert r.one("rdma")["state"] == "failure" and r.one("tcp")["state"] == "ok"
    assert r.one("route", subject=FAR.address)["state"] == "ok"
    wall = r.one("firewall")
    assert "UDP" in wall["what"] and "4791" in wall["what"], r.text
    assert "udp dport 4791 accept" in wall["remedy"] and "4791/udp" in wall["remedy"], r.text


@adapters
@pytest.mark.needs("siw", why="iWARP alone has ports to be blocked one by one")
@pytest.mark.lab("siw", long=True)
def test_blocked_port_is_reported(bench):
    rules = [[*h.prefix, "ip", "rule", "%s", "pref", "1", "ipproto", "tcp", "dport", "7961-7969", "unreachable"]
             for h in (NEAR, FAR)]

    def each(what):
        for rule in rules:
            subprocess.run([w.replace("%s", what) for w in rule], check=True)
    each("add")
    try:
        r = check(bench, "-4", "--port-range=7961-7969")
    finally:
        each("del")
    assert r.code == 43, r.text + r.errors
    assert r.one("tcp")["state"] == "warning"
    assert r.one("rdma")["state"] == "failure"
    wall = r.one("firewall")
    assert "firewall" in wall["what"] and "7961-7969" in wall["remedy"], r.text
