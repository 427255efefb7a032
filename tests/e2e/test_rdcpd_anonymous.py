# SPDX-License-Identifier: Apache-2.0
"""Clients of rdcpd that have no key: what they may do, and that nobody takes them for a user."""

import hashlib
import json
import os
import socket
import sys

import pytest

from daemons import HERE, Configured
from hosts import ROOT, SLOW, program

sys.path.insert(0, str(ROOT / "tests" / "hostile"))
import tls  # noqa: E402
import wire  # noqa: E402

pytestmark = pytest.mark.needs("tcp", why="over TCP; test_rdcpd_rdma.py has what an adapter can change")

MODULES = """
[public]
path = {tmp}/public
read only = no
anonymous = yes
delete = yes
remove sources = yes
comment = for all
[drop]
path = {tmp}/drop
read only = no
write only = yes
anonymous = yes
anonymous write = yes
[both]
path = {tmp}/both
read only = no
delete = yes
anonymous = yes
anonymous write = yes
[private]
path = {tmp}/private
read only = no
[hidden]
path = {tmp}/hidden
list = no
anonymous = yes
"""
KNOWN = hashlib.sha256(b"sluice anonymous").digest()


@pytest.fixture
def daemon(bench, tmp_path):
    d = Configured(bench, tmp_path, MODULES)
    for name in ("public", "both", "private", "hidden"):
        (tmp_path / name / "f").write_bytes(b"f")
    return d


def run(daemon, *words, **how):
    return daemon.bench.run([program("rdcp"), *words], cwd=daemon.tmp, **how)


def test_reading_needs_no_key(daemon, tmp_path):
    for name in ("public", "both", "hidden"):
        r = run(daemon, "-v", daemon.url(name + "/f"), "out-" + name)
        assert r.code == 0, r.errors()
        assert (tmp_path / ("out-" + name)).read_bytes() == b"f"
        daemon.run.expect("user anonymous, module %s: done; pull of f" % name)
    r = run(daemon, daemon.url("public/").replace("//", "//anonymous@"))
    assert r.code == 0 and b" f\n" in r.out


def test_writing_needs_a_key_unless_the_module_says_so(daemon, tmp_path):
    r = run(daemon, "key", daemon.url("public/"))
    assert r.code == 11 and "module public is read only for clients without a key" in r.errors(), r.errors()
    assert os.listdir(tmp_path / "public") == ["f"]
    assert daemon.copy("key", daemon.url("public/")).code == 0
    for name in ("both", "drop"):
        r = run(daemon, "key", daemon.url(name + "/"))
        assert r.code == 0, r.errors()
        assert (tmp_path / name / "key").exists()
    r = run(daemon, daemon.url("drop/key"), "out")
    assert r.code == 11 and "module drop is write only" in r.errors()


def test_nothing_is_deleted_without_a_key(daemon, tmp_path):
    (tmp_path / "tree").mkdir()
    r = run(daemon, "-r", "--delete", "tree/", daemon.url("both/"))
    assert r.code == 1 and "--delete" in r.errors()
    r = run(daemon, "--remove-source-files", daemon.url("public/f"), "out")
    assert r.code == 1 and "--remove-source-files" in r.errors()
    assert (tmp_path / "both" / "f").exists() and (tmp_path / "public" / "f").exists()
    assert daemon.copy("-r", "--delete", "tree/", daemon.url("both/")).code == 0
    assert os.listdir(tmp_path / "both") == []


def test_other_modules_need_a_key(daemon, tmp_path):
    for words in ([daemon.url("private/f"), "out"], ["key", daemon.url("private/x")], [daemon.url("private/")]):
        r = run(daemon, *words)
        assert r.code == 40 and "module private takes no client without a key: use --key-file=FILE" in r.errors(), r.errors()
    assert os.listdir(tmp_path / "private") == ["f"]
    assert daemon.copy(daemon.url("private/f"), "out").code == 0


def test_only_modules_for_all_are_listed(daemon):
    r = run(daemon, "--json", "rdma://%s:%d/" % (HERE, daemon.port))
    assert r.code == 0, r.errors()
    listed = [json.loads(line) for line in r.out.splitlines()]
    assert sorted((o["name"], o["comment"]) for o in listed) == [("both", ""), ("drop", ""), ("public", "for all")]
    r = daemon.copy("rdma://%s:%d/" % (HERE, daemon.port))
    assert sorted(line.split()[0] for line in r.out.splitlines()) == [b"both", b"drop", b"private", b"public"]


def test_a_user_needs_a_key(daemon):
    for words in ([daemon.url("public/f"), "out"], [daemon.url("public/")]):
        r = run(daemon, *(w.replace("//", "//alice@") for w in words))
        assert r.code == 1 and "rdma://alice@ needs the key of that user" in r.errors(), r.errors()


def test_daemon_without_such_modules_takes_nobody(bench, tmp_path):
    d = Configured(bench, tmp_path, "[m]\npath = {tmp}/m\n")
    for words in ([d.url("m/f"), "out"], [d.url("m/")]):
        r = run(d, *words)
        assert r.code == 40 and "rdcpd on %s takes no client without a key: use --key-file=FILE" % HERE in r.errors(), r.errors()
    d.reload("[m]\npath = {tmp}/m\nanonymous = yes\n")
    d.run.expect("loaded the settings again")
    assert run(d, d.url("m/")).code == 0


def test_daemon_for_all_needs_no_key(bench, tmp_path):
    d = Configured.__new__(Configured)
    d.bench, d.tmp, d.file = bench, tmp_path, tmp_path / "rdcpd.conf"
    d.write("[m]\npath = {tmp}/m\nanonymous = yes\n", head="address = 127.0.0.1\nport = 0\n")
    d.run = bench.start([program("rdcpd"), "--config", d.file])
    d.port = int(d.run.expect("listening on").rsplit(":", 1)[1])
    assert run(d, d.url("m/")).code == 0


def test_data_is_encrypted_where_it_must_be(bench, tmp_path):
    d = Configured(bench, tmp_path, "[m]\npath = {tmp}/m\nanonymous = yes\nencryption required = yes\n")
    (tmp_path / "m" / "f").write_bytes(b"f")
    assert run(d, "--encrypt=off", d.url("m/f"), "out").code == 43
    r = run(d, "-v", d.url("m/f"), "out")
    assert r.code == 0 and ("AES-256-GCM" in r.errors() or "ChaCha20" in r.errors()), r.errors()


def test_hosts_are_checked_and_users_are_not(bench, tmp_path):
    d = Configured(bench, tmp_path, "[far]\npath = {tmp}/far\nanonymous = yes\nhosts allow = 10.0.0.0/8\n"
                   "[some]\npath = {tmp}/some\nread only = no\nanonymous = yes\nusers = alice\n")
    r = run(d, d.url("far/"))
    assert r.code == 40 and "%s may not use module far" % HERE in r.errors()
    assert run(d, d.url("some/")).code == 0
    assert d.copy(d.url("some/")).code == 40
    r = run(d, "rdma://%s:%d/" % (HERE, d.port))
    assert r.out.split() == [b"some"]


@pytest.mark.parametrize("identity", ["-", "alice", "anonymous2", ""])
def test_the_known_key_is_nobody_elses(bench, tmp_path, daemon, identity):
    """Also not of a user whose key the daemon has."""
    daemon.user("alice")
    daemon.reload(MODULES, head="address = 127.0.0.1\nport = 0\nkey file = {tmp}/key\nsecrets file = {tmp}/secrets\n")
    daemon.run.expect("loaded the settings again")
    hello = wire.message("MODULE", version=wire.VERSION, name="public")
    for name, admitted in ((identity, False), ("anonymous", True)):
        with socket.create_connection((HERE, daemon.port)) as s:
            s.settimeout(20 * SLOW)
            try:
                tls.Client(s, KNOWN, identity=b"sluice:conductor:" + name.encode()).write(hello)
                assert admitted
            except (tls.Refused, ConnectionError, EOFError):
                assert not admitted
    daemon.run.expect("wrong key")


def test_a_users_key_is_not_the_known_one(daemon, tmp_path):
    r = daemon.copy("key", daemon.url("both/").replace("//", "//anonymous@"))
    assert r.code == 40 and "wrong key" in r.errors()


WRONG = {
    "user": ("[a]\npath = {tmp}\nusers = alice anonymous\n", 3, 'anonymous is no user: clients without a key need "anonymous = yes"'),
    "write": ("[a]\npath = {tmp}\nread only = no\nanonymous write = yes\n", 4, '"anonymous write" needs "anonymous = yes"'),
    "read-only": ("[a]\npath = {tmp}\nanonymous = yes\nanonymous write = yes\n", 4, 'and "read only = no"'),
    "drop": ("[a]\npath = {tmp}\nread only = no\nwrite only = yes\nanonymous = yes\n", 5, "clients without a key could do nothing"),
}


@pytest.mark.parametrize("what", WRONG)
def test_contradictions_are_reported(bench, tmp_path, what):
    text, line, message = WRONG[what]
    file = tmp_path / "conf"
    file.write_text(text.replace("{tmp}", str(tmp_path)))
    r = bench.run([program("rdcpd"), "--check-config", "--config", file])
    assert r.code == 1 and "%s:%d: " % (file, line) in r.errors() and message in r.errors(), r.errors()


def test_no_user_has_this_name(bench, tmp_path):
    command = [program("rdcpd"), "--secrets", tmp_path / "secrets"]
    r = bench.run([*command, "--make-key", "anonymous"])
    assert r.code == 1 and "clients without a key have this name" in r.errors() and r.out == b""
    (tmp_path / "secrets").write_text("anonymous:sluice-key-1:" + KNOWN.hex() + "\n")
    (tmp_path / "secrets").chmod(0o600)
    r = bench.run([*command, "--module=a=%s" % tmp_path, "--port=0"])
    assert r.code == 1 and "line 1: clients without a key have this name" in r.errors(), r.errors()
