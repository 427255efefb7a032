# SPDX-License-Identifier: Apache-2.0
"""rdcp over a real ssh to a real sshd."""

import getpass
import json
import os
import shutil
import signal
import subprocess
import time

import pytest

from hosts import DEMAND, FAR, NEAR, OP, PATIENCE, SLOW, leftovers, pattern, program, wait_until
from networks import free_port
from processes import children, descendants, runs, words

BLOCK = 256 << 10
SSHD = shutil.which("sshd") or "/usr/sbin/sshd"

pytestmark = [
    pytest.mark.skipif(not os.path.exists(SSHD), reason="no sshd"),
    pytest.mark.needs("root", why="starting sshd takes root"),
]


class Ssh:
    def __init__(self, bench, tmp_path):
        self.bench, self.tmp = bench, tmp_path
        d = tmp_path / "ssh"
        d.mkdir(mode=0o700)
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", d / name], check=True)
        shutil.copy(d / "user.pub", d / "authorized_keys")
        self.port = free_port()
        (d / "sshd_config").write_text(
            "Port %d\nListenAddress %s\nHostKey %s/host\nAuthorizedKeysFile %s/authorized_keys\n"
            "StrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin yes\n"
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\n" % (
                self.port, FAR.address, d, d))
        (d / "ssh_config").write_text(
            "Host *\n Port %d\n IdentityFile %s/user\n IdentitiesOnly yes\n User %s\n"
            " StrictHostKeyChecking accept-new\n UserKnownHostsFile %s/known\n LogLevel ERROR\n" % (
                self.port, d, getpass.getuser(), d))
        os.makedirs("/run/sshd", exist_ok=True)
        self.sshd = bench.start([SSHD, "-D", "-e", "-f", d / "sshd_config"], host=FAR)
        self.sshd.expect("Server listening")
        self.config = d / "ssh_config"

    def copy(self, *args, **how):
        how.setdefault("wait", True)
        argv = [program("rdcp"), "-F", self.config, "--rdcp-path", program("rdcp"),
                how.pop("transport", DEMAND), *OP, *args]
        start = self.bench.run if how.pop("wait") else self.bench.start
        return start(argv, host=NEAR, cwd=self.tmp, **how)


@pytest.fixture
def ssh(bench, tmp_path):
    return Ssh(bench, tmp_path)


@pytest.mark.lab("siw", long=True)
def test_push_and_pull_work(ssh, tmp_path):
    data = pattern(20 * BLOCK + 3)
    (tmp_path / "in").write_bytes(data)
    r = ssh.copy("in", "%s:%s/out" % (FAR.address, tmp_path))
    assert r.code == 0, r.errors()
    assert (tmp_path / "out").read_bytes() == data
    r = ssh.copy("%s:%s/out" % (FAR.address, tmp_path), "back")
    assert r.code == 0, r.errors()
    assert (tmp_path / "back").read_bytes() == data
    assert not leftovers(tmp_path)


def test_copy_onto_itself_through_this_host_is_refused(ssh, tmp_path):
    """Nothing is copied onto or into itself."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_bytes(b"f")
    os.link(tmp_path / "d" / "f", tmp_path / "link")
    for options, source, target in (([], "d/f", "d/f"), (["--inplace"], "d/f", "link"),
                                    (["--remove-source-files"], "link", "d/f"), (["-r"], "d", "d/sub")):
        r = ssh.copy(*options, source, "%s:%s/%s" % (FAR.address, tmp_path, target))
        assert r.code == 11 and ("the same file" in r.errors() or "into itself" in r.errors()), (r.code, r.errors())
        assert os.listdir(tmp_path / "d") == ["f"] and (tmp_path / "d" / "f").read_bytes() == b"f"
        assert (tmp_path / "link").stat().st_nlink == 2


def test_name_with_special_characters_is_copied(ssh, tmp_path):
    name = "a b'c\"d$(touch oops)`touch oops`;e*f\\g"
    (tmp_path / name).write_bytes(b"x")
    (tmp_path / "to").mkdir()
    r = ssh.copy("./" + name, "%s:%s/to/" % (FAR.address, tmp_path))
    assert r.code == 0, r.errors()
    assert os.listdir(tmp_path / "to") == [name] and not (tmp_path / "oops").exists()


@pytest.mark.lab("siw", long=True)
def test_unreachable_ports_lead_to_lanes_over_ssh(ssh, tmp_path):
    """Lanes use further ssh connections, and one message reports that."""
    data = pattern(10 * BLOCK + 3)
    (tmp_path / "in").write_bytes(data)
    r = ssh.copy("in", "%s:%s/out" % (FAR.address, tmp_path), transport="--transport=ssh")
    assert r.code == 0, r.errors()
    assert (tmp_path / "out").read_bytes() == data


def test_rdbench_logs_in_once_and_rdcp_accepts_its_advice(ssh, tmp_path):
    for name in ("from", "to"):
        (tmp_path / name).mkdir()
    r = ssh.bench.run([program("rdbench"), "-F", ssh.config, "--rdcp-path", program("rdcp"), DEMAND, "--seconds=0.01",
                       "--lanes=2", "--depth=4", "--block-size=64k", "--source=from",
                       "--target=%s/to" % tmp_path, FAR.address], host=NEAR, cwd=tmp_path)
    assert r.code == 0 and "end to end" in r.out.decode(), r.errors()
    assert ssh.sshd.errors().count("Accepted publickey") == 1
    assert not any([*(tmp_path / "from").iterdir(), *(tmp_path / "to").iterdir()])
    data = pattern(5 * BLOCK + 3)
    (tmp_path / "in").write_bytes(data)
    best = r.out.decode().splitlines()[-1].removeprefix("best: ").split()
    r = ssh.copy(*best, "in", "%s:%s/out" % (FAR.address, tmp_path))
    assert r.code == 0, r.errors()
    assert (tmp_path / "out").read_bytes() == data


def test_rdcheck_examines_the_far_host(ssh):
    r = ssh.bench.run([program("rdcheck"), "--json", "-F", ssh.config, "--rdcp-path", program("rdcp"), DEMAND,
                       *PATIENCE, FAR.address], host=NEAR)
    lines = [json.loads(line) for line in r.out.decode().splitlines()]
    assert r.code == 0 and lines[-1]["fit"], r.out.decode() + r.errors()
    checks = [c for c in lines if c["type"] == "check"]
    near, far = [c["host"] for c in checks if c["name"] == "memlock"]
    assert far == FAR.address != near
    across = {c["name"] for c in checks if c["host"] == "%s to %s" % (near, far)}
    assert {"versions", "control", "route", "ping", "bandwidth", "tcp"} <= across, across


def test_refused_login_exits_5_with_the_message_of_ssh(ssh, tmp_path):
    (tmp_path / "in").write_bytes(b"x")
    (tmp_path / "ssh" / "authorized_keys").write_text("")
    r = ssh.copy("-o", "BatchMode=yes", "in", "%s:%s/out" % (FAR.address, tmp_path))
    assert r.code == 5
    assert "Permission denied" in r.errors()


def test_missing_far_end_is_reported(ssh, tmp_path):
    (tmp_path / "in").write_bytes(b"x")
    r = ssh.copy("--rdcp-path=no-such-rdcp", "in", "%s:%s/out" % (FAR.address, tmp_path))
    assert r.code == 5
    assert "no-such-rdcp is not on the PATH of" in r.errors()


def test_ctrl_c_leaves_no_process_on_the_far_host(ssh, tmp_path):
    (tmp_path / "in").write_bytes(pattern(8 * BLOCK))
    run = ssh.copy("in", "%s:%s/out" % (FAR.address, tmp_path), wait=False, env={
        "SLUICE_FAULT": "stall:lane=0,block=1,ms=30000;stall:lane=1,block=1,ms=30000"})
    wait_until(lambda: leftovers(tmp_path))
    start = time.monotonic()
    run.group(signal.SIGINT)          # as a terminal does: to the whole process group
    assert run.wait(10) == 20, run.errors()
    assert time.monotonic() - start < 2 * SLOW + 0.5
    wait_until(lambda: not ends_on_the_far_side(ssh), 5)


def ends_on_the_far_side(ssh):
    """The processes of our sshd that have not exited."""
    return [p for p in descendants(ssh.sshd.proc.pid) if b"--end" in b" ".join(words(p))]


def test_killed_ssh_is_reported(ssh, tmp_path):
    (tmp_path / "in").write_bytes(pattern(8 * BLOCK))
    run = ssh.copy("in", "%s:%s/out" % (FAR.address, tmp_path), wait=False, env={
        "SLUICE_FAULT": "stall:lane=0,block=1,ms=20000;stall:lane=1,block=1,ms=20000"})
    wait_until(lambda: leftovers(tmp_path))
    pid = next(p for p in children(run.proc.pid) if runs(p, shutil.which("ssh")))
    os.kill(pid, signal.SIGKILL)
    assert run.wait(10) in (5, 44), run.errors()
