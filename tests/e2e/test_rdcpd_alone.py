# SPDX-License-Identifier: Apache-2.0
"""rdcpd without options: what it prints, pasted in a shell on a client, uploads a file."""

import os
import pathlib
import signal
import stat

import pytest

from hosts import leftovers, program, wait_until

pytestmark = pytest.mark.needs("tcp", why="over TCP; test_rdcpd_rdma.py has what an adapter can change")


@pytest.fixture
def alone(bench, tmp_path):
    """Starts it; returns the run, what it prints, and the directories of daemon and client."""
    def start(*options):
        for name in ("srv", "client"):
            (tmp_path / name).mkdir()
        (tmp_path / "client" / "FILE").write_bytes(b"hello")
        run = bench.start([program("rdcpd"), "--port=0", *options], cwd=tmp_path / "srv")
        run.expect("listening on")
        wait_until(lambda: bytes(run.out).endswith(b"/upload/\n"))
        return run, bytes(run.out).decode(), tmp_path / "srv", tmp_path / "client"
    return start


def paste(bench, text, cwd):
    env = {"PATH": str(pathlib.Path(program("rdcp")).parent) + ":" + os.environ["PATH"]}
    return bench.run(["sh", "-c", text], cwd=cwd, env=env)


@pytest.mark.parametrize("options", [[], ["--address=127.0.0.1"]], ids=["any", "loopback"])
def test_the_printed_commands_work(bench, alone, options):
    run, text, srv, client = alone(*options)
    for _ in range(2):
        r = paste(bench, text, client)
        assert r.code == 0, r.errors()
    assert (srv / "FILE").read_bytes() == b"hello" and leftovers(srv) == []
    assert stat.S_IMODE((client / "sluice.key").stat().st_mode) == 0o600
    run.signal(signal.SIGHUP)
    assert paste(bench, text, client).code == 0
    key = text.splitlines()[1]
    assert key not in run.errors() and key.encode() not in pathlib.Path("/proc/%d/cmdline" % run.proc.pid).read_bytes()


def test_nothing_can_be_read_and_each_start_has_another_key(bench, alone, tmp_path):
    run, text, srv, client = alone("--address=127.0.0.1")
    (srv / "secret").write_bytes(b"secret")
    assert paste(bench, text, client).code == 0
    port = text.rsplit("127.0.0.1:", 1)[1].split("/")[0]
    for path in ("secret", ""):
        r = paste(bench, "rdcp --key-file sluice.key rdma://127.0.0.1:%s/upload/%s" % (port, path), client)
        assert r.code == 11 and "write only" in r.errors() and r.out == b""
    r = paste(bench, "rdcp --key-file sluice.key rdma://127.0.0.1:%s/upload/secret out" % port, client)
    assert r.code == 11 and not (client / "out").exists()
    other = bench.start([program("rdcpd"), "--port=0", "--address=127.0.0.1"], cwd=srv)
    wait_until(lambda: bytes(other.out).endswith(b"/upload/\n"))
    assert bytes(other.out).decode().splitlines()[1] != text.splitlines()[1]
    port = bytes(other.out).decode().rsplit("127.0.0.1:", 1)[1].split("/")[0]
    r = paste(bench, "rdcp --key-file sluice.key FILE rdma://127.0.0.1:%s/upload/" % port, client)
    assert r.code == 40, r.errors()
