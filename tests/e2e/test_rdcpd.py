# SPDX-License-Identifier: Apache-2.0
"""rdcpd: clients push and pull without ssh, confined to a module, and disturb nobody but themselves."""

import os
import pathlib
import re
import signal
import socket
import stat
import subprocess
import sys
import time

import pytest

from daemons import HERE, Daemon
from hosts import ROOT, SLOW, as_nobody, leftovers, open_up, pattern, program, wait_until

sys.path.insert(0, str(ROOT / "tests" / "hostile"))
import tls  # noqa: E402
import wire  # noqa: E402

pytestmark = pytest.mark.needs("tcp", why="over TCP; test_rdcpd_rdma.py has what an adapter can change")


def tree(top):
    (top / "d" / "e").mkdir(parents=True)
    (top / "d" / "small").write_bytes(b"small")
    (top / "d" / "e" / "large").write_bytes(pattern(3 << 20))
    (top / "d" / "link").symlink_to("small")
    os.utime(top / "d" / "small", (10 ** 9, 10 ** 9))
    return top / "d"


def same_tree(a, b):
    return subprocess.run(["diff", "-r", "--no-dereference", a, b], capture_output=True).returncode == 0


def test_push_and_pull_a_file(daemon, tmp_path):
    (tmp_path / "in").write_bytes(pattern(20 << 20))
    r = daemon.copy("-v", "in", daemon.url("rw/"))
    assert r.code == 0, r.errors()
    assert "over tcp" in r.errors()
    r = daemon.copy(daemon.url("rw/in"), "out")
    assert r.code == 0, r.errors()
    assert (tmp_path / "out").read_bytes() == (tmp_path / "in").read_bytes()
    assert leftovers(tmp_path / "rw") == []
    daemon.run.expect("module rw: done")


def test_push_and_pull_a_tree(daemon, tmp_path):
    source = tree(tmp_path / "from")
    r = daemon.copy("-a", source, daemon.url("rw"))
    assert r.code == 0, r.errors()
    assert same_tree(source, tmp_path / "rw" / "d")
    assert (tmp_path / "rw" / "d" / "small").stat().st_mtime == 10 ** 9
    r = daemon.copy("-a", daemon.url("rw/d/"), "back")
    assert r.code == 0, r.errors()
    assert same_tree(source, tmp_path / "back")
    r = daemon.copy("-a", "--itemize-changes", source, daemon.url("rw"))
    assert r.code == 0 and r.out == b"", r.errors()


def test_archive_without_recursion(daemon, tmp_path):
    """What no module permits is left out here too."""
    (tmp_path / "in").write_bytes(b"x")
    os.utime(tmp_path / "in", (10 ** 9, 10 ** 9))
    r = daemon.copy("-a", "--no-recursive", "in", daemon.url("rw/"))
    assert r.code == 0, r.errors()
    assert (tmp_path / "rw" / "in").stat().st_mtime == 10 ** 9


def test_the_daemon_port_option_and_the_url(bench, daemon, tmp_path):
    (tmp_path / "in").write_bytes(b"x")
    r = daemon.copy("--daemon-port=%d" % daemon.port, "in", "rdma://%s/rw/a" % HERE)
    assert r.code == 0, r.errors()
    r = daemon.copy("--daemon-port=1", "in", daemon.url("rw/b"))
    assert r.code == 0, r.errors()
    assert sorted(os.listdir(tmp_path / "rw")) == ["a", "b"]


def test_stdin_and_stdout_at_the_client(daemon, tmp_path):
    (tmp_path / "in").write_bytes(pattern(1 << 20))
    with open(tmp_path / "in", "rb") as f:
        r = daemon.bench.run(daemon.argv("-", daemon.url("rw/x")), stdin=f)
    assert r.code == 0, r.errors()
    r = daemon.copy(daemon.url("rw/x"), "-")
    assert r.code == 0 and r.out == (tmp_path / "in").read_bytes(), r.errors()


@pytest.mark.parametrize("option", ["-X", "-A"])
def test_attributes_of_a_file_that_is_there(daemon, tmp_path, option):
    """There is no /proc in a module."""
    source = tree(tmp_path / "from")
    for _ in range(2):
        r = daemon.copy("-a", option, source, daemon.url("rw"))
        assert r.code == 0, r.errors()
    os.chmod(source / "small", 0o600)
    r = daemon.copy("-a", option, source, daemon.url("rw"))
    assert r.code == 0 and (tmp_path / "rw" / "d" / "small").stat().st_mode & 0o777 == 0o600, r.errors()


@pytest.mark.parametrize("options", [[], ["--inplace"]])
def test_a_file_onto_itself_is_refused(daemon, tmp_path, options):
    """The client cannot see that the file is the same; the end in the module can."""
    (tmp_path / "rw" / "in").write_bytes(b"x")
    r = daemon.copy(*options, tmp_path / "rw" / "in", daemon.url("rw/"))
    assert r.code == 11 and "are the same file" in r.errors(), r.errors()
    assert (tmp_path / "rw" / "in").read_bytes() == b"x"


def test_eight_clients_at_once(bench, daemon, tmp_path):
    for i in range(4):
        (tmp_path / ("in%d" % i)).write_bytes(pattern(5 << 20, seed=i + 1))
        (tmp_path / "ro" / ("out%d" % i)).write_bytes(pattern(5 << 20, seed=i + 11))
    runs = [bench.start(daemon.argv("in%d" % i, daemon.url("rw/")), cwd=tmp_path) for i in range(4)]
    runs += [bench.start(daemon.argv(daemon.url("ro/out%d" % i), "back%d" % i), cwd=tmp_path) for i in range(4)]
    assert [r.wait() for r in runs] == [0] * 8, [r.errors() for r in runs]
    for i in range(4):
        assert (tmp_path / "rw" / ("in%d" % i)).read_bytes() == pattern(5 << 20, seed=i + 1)
        assert (tmp_path / ("back%d" % i)).read_bytes() == pattern(5 << 20, seed=i + 11)
    wait_until(lambda: daemon.children() == [])


def test_killed_copy_continues(bench, daemon, tmp_path):
    (tmp_path / "in").write_bytes(pattern(40 << 20))
    r = bench.start(daemon.argv("--bwlimit=10M", "in", daemon.url("rw/")), cwd=tmp_path)
    wait_until(lambda: any((tmp_path / "rw").iterdir()))
    time.sleep(1)
    r.kill()
    wait_until(lambda: daemon.children() == [])
    r = daemon.copy("-t", "in", daemon.url("rw/"))
    assert r.code == 0, r.errors()
    assert (tmp_path / "rw" / "in").read_bytes() == (tmp_path / "in").read_bytes()
    assert leftovers(tmp_path / "rw") == []


# ---- keys ---------------------------------------------------------------------------------------------------

def test_wrong_key_is_refused_and_logged(bench, daemon, tmp_path):
    (tmp_path / "in").write_bytes(b"x")
    other = tmp_path / "other"
    assert bench.run([program("rdcpd"), "--make-key", other]).code == 0
    r = daemon.copy("in", daemon.url("rw/"), key=other)
    assert r.code == 40, r.errors()
    assert "wrong key" in r.errors()
    daemon.run.expect("wrong key")
    assert os.listdir(tmp_path / "rw") == []
    assert daemon.copy("in", daemon.url("rw/")).code == 0


def test_rdsend_with_the_key_is_refused(bench, daemon, tmp_path):
    """Its identity is that of a source, which a daemon does not know."""
    r = bench.run([program("rdsend"), "--key-file", daemon.key, HERE, str(daemon.port)])
    assert r.code == 40, r.errors()
    daemon.run.expect("wrong key")


def test_typed_keys_are_refused(bench, daemon, tmp_path):
    typed = tmp_path / "typed"
    typed.write_text("secret\n")
    typed.chmod(0o600)
    r = bench.run([program("rdcpd"), "--key-file", typed, "--module=a=%s" % tmp_path])
    assert r.code == 1 and "not a key from --make-key" in r.errors()
    r = daemon.copy("key", daemon.url("rw/"), key=typed)
    assert r.code == 1 and "not a key from --make-key" in r.errors()


def test_key_file_of_others_is_refused(bench, daemon, tmp_path):
    daemon.key.chmod(0o644)
    r = bench.run([program("rdcpd"), "--key-file", daemon.key, "--module=a=%s" % tmp_path])
    assert r.code == 1 and "chmod 600" in r.errors()


def test_a_closed_port_is_named(bench, daemon, tmp_path):
    daemon.run.signal(signal.SIGTERM)
    assert daemon.run.wait() == 0
    # Bound, but not listening: no other test's program gets the port.
    with socket.socket() as s:
        s.bind((HERE, 0))
        port = s.getsockname()[1]
        r = daemon.copy("--connect-timeout=1", "key", "rdma://%s:%d/rw/" % (HERE, port))
    assert r.code == 35
    assert "port %d" % port in r.errors() and "no rdcpd listens there" in r.errors()


# ---- modules ------------------------------------------------------------------------------------------------

def test_modules_that_permit_less(daemon, tmp_path):
    (tmp_path / "in").write_bytes(b"x")
    (tmp_path / "wo" / "f").write_bytes(b"x")
    r = daemon.copy("in", daemon.url("ro/"))
    assert r.code == 11 and "module ro is read only" in r.errors()
    r = daemon.copy(daemon.url("wo/f"), "out")
    assert r.code == 11 and "module wo is write only" in r.errors()
    r = daemon.copy("in", daemon.url("nope/"))
    assert r.code == 3 and "there is no module nope (rdma://HOST/ lists the modules)" in r.errors()
    assert daemon.copy("in", daemon.url("wo/")).code == 0
    assert os.listdir(tmp_path / "ro") == [] and not (tmp_path / "out").exists()


@pytest.mark.parametrize("options, source, target, code", [
    (["-r", "--delete"], "d/", "rw", 1), (["--remove-source-files"], "ro:f", "out", 1), (["--owner"], "f", "rw", 1),
    (["--chown=0:0"], "f", "rw", 1), (["--devices"], "f", "rw", 1), (["--xattrs=all"], "f", "rw", 1),
    (["--backup", "--backup-dir=/tmp"], "f", "rw", 1), (["--backup", "--backup-dir=../wo"], "f", "rw", 1),
    (["--transport=rdma"], "f", "rw", 43), (["--transport=ssh"], "f", "rw", 1)], ids=lambda x: x[-1] if isinstance(x, list) else "")
def test_refused_options(daemon, tmp_path, options, source, target, code):
    (tmp_path / "d").mkdir()
    (tmp_path / "f").write_bytes(b"x")
    (tmp_path / "ro" / "f").write_bytes(b"x")
    source = daemon.url("ro/f") if source == "ro:f" else source
    r = daemon.copy(*options, source, daemon.url(target + "/") if target == "rw" else target)
    assert r.code == code, r.errors()
    assert os.listdir(tmp_path / "rw") == [] and (tmp_path / "ro" / "f").exists()


@pytest.mark.parametrize("kept", ["../kept", "/kept"])
def test_backups_of_a_pull_may_be_anywhere(daemon, tmp_path, kept):
    """They are below the client's target, not in the module."""
    (tmp_path / "ro" / "f").write_bytes(b"new")
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / "f").write_bytes(b"old")
    where = str(tmp_path) + kept if kept.startswith("/") else kept
    r = daemon.copy("--backup-dir=" + where, daemon.url("ro/f"), "to/")
    assert r.code == 0, r.errors()
    assert (tmp_path / "to" / "f").read_bytes() == b"new" and (tmp_path / "kept" / "f").read_bytes() == b"old"


def test_a_set_id_bit_does_not_arrive(daemon, tmp_path):
    (tmp_path / "in").write_bytes(b"x")
    (tmp_path / "in").chmod(0o6755)
    assert daemon.copy("-a", "in", daemon.url("rw/")).code == 0
    assert stat.S_IMODE((tmp_path / "rw" / "in").stat().st_mode) == 0o755


def test_a_missing_key(bench, daemon, tmp_path):
    r = bench.run([program("rdcp"), "key", daemon.url("rw/")], cwd=tmp_path)
    assert r.code == 40 and "--key-file" in r.errors()


@pytest.mark.parametrize("module, why", [
    ("data", "expected NAME=DIR"), ("=/tmp", "expected NAME=DIR"), ("a/b=/tmp", "expected NAME=DIR"), ("a=", "no directory"),
    ("a=/", "root directory"), ("a=/nowhere", "No such file"), ("a=/etc/passwd", "not a directory")])
def test_bad_modules_are_refused_at_the_start(bench, daemon, module, why):
    r = bench.run([program("rdcpd"), "--key-file", daemon.key, "--port=0", "--module", module])
    assert r.code in (1, 11) and why in r.errors(), r.errors()


def test_a_module_twice(bench, daemon, tmp_path):
    r = bench.run([program("rdcpd"), "--key-file", daemon.key, "--module=a=%s" % tmp_path, "--module=a=%s" % tmp_path])
    assert r.code == 1 and "given twice" in r.errors()


# ---- nothing outside ----------------------------------------------------------------------------------------

OUTSIDE = ["../secret", "a/../../secret", "/secret", "up/secret", "abs/secret", "file", "~/secret", "~root/secret", "[s]ecret",
           "/dev/fd/0", "dev/stdin"]


@pytest.fixture
def traps(daemon, tmp_path):
    """Links out of the module, and what they lead to."""
    (tmp_path / "secret").write_bytes(b"secret")
    for module in ("rw", "ro"):
        (tmp_path / module / "a").mkdir()
        (tmp_path / module / "up").symlink_to("..")
        (tmp_path / module / "abs").symlink_to(tmp_path)
        (tmp_path / module / "file").symlink_to(tmp_path / "secret")
        (tmp_path / module / "dangling").symlink_to(tmp_path / "new")
    return daemon


@pytest.mark.parametrize("path", OUTSIDE)
def test_nothing_outside_is_read(traps, tmp_path, path):
    r = traps.copy(traps.url("ro/") + path, "out")
    assert r.code != 0 and not (tmp_path / "out").exists(), r.errors()
    assert b"secret" not in r.out


@pytest.mark.parametrize("path", OUTSIDE + ["dangling"])
def test_nothing_outside_is_written(traps, tmp_path, path):
    (tmp_path / "in").write_bytes(b"evil")
    before = sorted(os.listdir(tmp_path))
    traps.copy("--mkpath", "in", traps.url("rw/") + path)
    assert (tmp_path / "secret").read_bytes() == b"secret"
    assert sorted(os.listdir(tmp_path)) == before


def test_trees_with_links_stay_inside(traps, tmp_path):
    """--copy-links follows links to where they lead within the module."""
    r = traps.copy("-r", "--copy-links", traps.url("ro/"), "out")
    assert r.code == 23, r.errors()
    assert not list((tmp_path / "out").rglob("secret")) and not (tmp_path / "out" / "file").exists()
    (tmp_path / "from" / "up").mkdir(parents=True)
    (tmp_path / "from" / "up" / "secret").write_bytes(b"evil")
    traps.copy("-r", "from/", traps.url("rw"))
    assert (tmp_path / "secret").read_bytes() == b"secret"


@pytest.mark.needs("root", why="only root can run programs as two users")
def test_an_unprivileged_daemon_confines_too(bench, tmp_path):
    if subprocess.run(["setpriv", "--reuid=65534", "--clear-groups", "--inh-caps=-all", "unshare", "-U", "true"],
                      capture_output=True).returncode:
        pytest.skip("ordinary users have no user namespaces here")
    open_up(tmp_path)
    assert bench.run([program("rdcpd"), "--make-key", tmp_path / "key"]).code == 0
    key = tmp_path / "nobody-key"
    key.write_bytes((tmp_path / "key").read_bytes())
    key.chmod(0o600)
    os.chown(key, 65534, 65534)
    (tmp_path / "secret").write_bytes(b"secret")
    d = Daemon.__new__(Daemon)
    d.bench, d.tmp, d.key = bench, tmp_path, tmp_path / "key"
    (tmp_path / "rw").mkdir()
    (tmp_path / "rw").chmod(0o777)
    (tmp_path / "rw" / "up").symlink_to("..")
    d.run = bench.start([program("rdcpd"), "--key-file", key, "--port=0", "--address", HERE, "--module=rw=%s:rw" % (tmp_path / "rw")],
                        become=as_nobody())
    d.port = int(d.run.expect("listening on").rsplit(":", 1)[1])
    r = d.copy(tmp_path / "secret", d.url("rw/x"))
    assert r.code == 0, r.errors()
    assert (tmp_path / "rw" / "x").stat().st_uid == 65534
    r = d.copy(d.url("rw/up/secret"), "out")
    assert r.code == 3 and not (tmp_path / "out").exists(), r.errors()


# ---- strangers and failures -----------------------------------------------------------------------------------

@pytest.mark.parametrize("what", ["lane", "noise"])
def test_strangers_delay_nobody(daemon, tmp_path, what):
    """Each of 100 connections sends this, and then nothing more. A client is served meanwhile."""
    said = {"lane": b"S" + b"\1" * 71, "noise": b"GET / HTTP/1.0\r\n\r\n"}[what]
    (tmp_path / "in").write_bytes(b"x")
    before = daemon.descriptors()
    socks = [socket.create_connection((HERE, daemon.port)) for _ in range(100)]
    for sock in socks:
        try:
            sock.sendall(said)
        except ConnectionError:
            pass
    begin = time.monotonic()
    r = daemon.copy("in", daemon.url("rw/"))
    assert r.code == 0, r.errors()
    assert time.monotonic() - begin < 5 * SLOW
    wait_until(lambda: daemon.descriptors() == before and daemon.children() == [])
    for sock in socks:
        sock.close()


def test_a_killed_session_ends_alone(bench, daemon, tmp_path):
    """One client's processes at the daemon are killed: it fails, and the other one does not notice."""
    (tmp_path / "in").write_bytes(pattern(20 << 20))
    first = bench.start(daemon.argv("--bwlimit=256K", "in", daemon.url("rw/first")), cwd=tmp_path)
    wait_until(lambda: len(daemon.children()) == 2)
    victim = daemon.ends()[0]
    second = bench.start(daemon.argv("--bwlimit=8M", "in", daemon.url("rw/second")), cwd=tmp_path)
    wait_until(lambda: len(daemon.children()) == 4)
    os.kill(victim, signal.SIGKILL)
    assert first.wait() in (30, 44), first.errors()
    assert second.wait() == 0, second.errors()
    assert (tmp_path / "rw" / "second").read_bytes() == (tmp_path / "in").read_bytes()
    wait_until(lambda: daemon.children() == [])
    assert daemon.run.proc.poll() is None


@pytest.mark.parametrize("signals", [[signal.SIGINT], [signal.SIGTERM, signal.SIGTERM], [signal.SIGTERM, signal.SIGINT]])
def test_signals_end_it_and_its_sessions(bench, daemon, tmp_path, signals):
    (tmp_path / "in").write_bytes(pattern(20 << 20))
    client = bench.start(daemon.argv("--bwlimit=2M", "in", daemon.url("rw/")), cwd=tmp_path)
    # One that had not asked for a module yet would have no line.
    wait_until(lambda: len(daemon.children()) == 2 and leftovers(tmp_path / "rw"))
    for signo in signals[:-1]:
        daemon.run.signal(signo)
        daemon.run.expect("ending after 1 session")
    daemon.run.signal(signals[-1])
    assert daemon.run.wait(5) == 0
    assert client.wait(20) != 0
    wait_until(lambda: daemon.children() == [], timeout=5)
    # Each session has its line, also one that rdcpd ended.
    daemon.run.expect("module rw: ")


def test_secrets_are_nowhere(bench, daemon, tmp_path):
    """The key is in no argument, and not in the memory of the end, which the client's orders reach."""
    secret = re.search(rb"sluice-key-1:([0-9a-f]{64})", daemon.key.read_bytes()).group(1)
    (tmp_path / "in").write_bytes(pattern(20 << 20))
    client = bench.start(daemon.argv("--bwlimit=2M", "in", daemon.url("rw/")), cwd=tmp_path)
    wait_until(lambda: len(daemon.children()) == 2)
    time.sleep(0.5)
    for pid in daemon.children():
        proc = pathlib.Path("/proc/%d" % pid)
        assert secret not in (proc / "cmdline").read_bytes()
    end = pathlib.Path("/proc/%d" % daemon.ends()[0])
    assert bytes.fromhex(secret.decode()) not in memory_of(end)
    client.kill()


def memory_of(proc):
    """What a process has in its own writable memory, as far as we may read it."""
    found = b""
    try:
        with open(proc / "mem", "rb", buffering=0) as mem:
            for line in (proc / "maps").read_text().splitlines():
                where, access = line.split()[:2]
                begin, end = (int(x, 16) for x in where.split("-"))
                if "w" not in access or end - begin > 64 << 20:
                    continue
                try:
                    mem.seek(begin)
                    found += mem.read(end - begin)
                except (OSError, ValueError):
                    pass
    except OSError:
        pass
    return found


def commands(text):
    """The four commands of a document, without comments."""
    found = [line.split(" # ")[0].strip() for line in text.replace("\\-", "-").splitlines()]
    found = [line for line in found if re.match(r"rd(cp|cpd) -", line) and ("rdcpd" in line or "rdma://" in line)]
    return [line.split() for line in found]


@pytest.mark.parametrize("document", ["README.md", "man/rdcpd.8"])
def test_documents_commands_work(bench, tmp_path, document):
    """The section of the README and the examples of rdcpd(8), on a free port."""
    text = (ROOT / document).read_text()
    text = text.split("\n## Serve")[1].split("\n## ")[0] if document == "README.md" else text.split("\n.SH EXAMPLES")[1].split("\n.SH ")[0]
    make, serve, push, pull, *lists = [c for c in commands(text) if not re.search("alice|secrets", " ".join(c))]
    (tmp_path / "srv" / "data").mkdir(parents=True)
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "file").write_bytes(b"x")
    assert bench.run([program(make[0]), *make[1:]], cwd=tmp_path).code == 0
    serve = [w.replace("=/srv", "=srv") for w in serve]
    daemon = bench.start([program(serve[0]), "--port=0", "--address", HERE, *serve[1:]], cwd=tmp_path)
    port = daemon.expect("listening on").rsplit(":", 1)[1]
    for words in (push, pull, *lists):
        r = bench.run([program(words[0]), *(re.sub("HOST|OTHER", "%s:%s" % (HERE, port), w) for w in words[1:])], cwd=tmp_path)
        assert r.code == 0, r.errors()
    assert (tmp_path / "srv" / "data" / "tree" / "file").read_bytes() == (tmp_path / "file").read_bytes() == b"x"


def test_the_manuals_commands_for_users_work(bench, tmp_path):
    text = (ROOT / "man/rdcpd.8").read_text().split("\n.SH EXAMPLES")[1].split("\n.SH ")[0]
    make, serve, push = [c for c in commands(text) if re.search("alice|secrets", " ".join(c))]
    (tmp_path / "srv" / "data").mkdir(parents=True)
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "file").write_bytes(b"x")
    r = bench.run(["bash", "-c", "umask 077; " + " ".join([program(make[0]), *make[1:]])], cwd=tmp_path)
    assert r.code == 0, r.errors()
    serve = [w.replace("=/srv", "=srv") for w in serve]
    daemon = bench.start([program(serve[0]), "--port=0", "--address", HERE, *serve[1:]], cwd=tmp_path)
    port = daemon.expect("listening on").rsplit(":", 1)[1]
    r = bench.run([program(push[0]), *(w.replace("HOST", "%s:%s" % (HERE, port)) for w in push[1:])], cwd=tmp_path)
    assert r.code == 0, r.errors()
    daemon.expect("user alice, module data: done")


# ---- users --------------------------------------------------------------------------------------------------

@pytest.fixture
def users(bench, tmp_path):
    """A daemon with keys of alice and bob, besides that of anybody."""
    for user in ("alice", "bob"):
        r = bench.run([program("rdcpd"), "--secrets", tmp_path / "secrets", "--make-key", user])
        assert r.code == 0, r.errors()
        (tmp_path / user).write_bytes(r.out)
        (tmp_path / user).chmod(0o600)
    return Daemon(bench, tmp_path, "--secrets=%s" % (tmp_path / "secrets"))


def as_user(daemon, user, path):
    return daemon.url(path).replace("//", "//%s@" % user, 1)


def test_users_have_keys_of_their_own(users, tmp_path):
    assert stat.S_IMODE((tmp_path / "secrets").stat().st_mode) == 0o600
    assert (tmp_path / "alice").read_bytes() != (tmp_path / "bob").read_bytes()
    (tmp_path / "in").write_bytes(b"x")
    for user in ("alice", "bob"):
        r = users.copy("in", as_user(users, user, "rw/" + user), key=tmp_path / user)
        assert r.code == 0, r.errors()
        users.run.expect("user %s, module rw: done" % user)
    assert users.copy("in", users.url("rw/anybody")).code == 0
    assert sorted(os.listdir(tmp_path / "rw")) == ["alice", "anybody", "bob"]


def test_unknown_users_and_wrong_keys_look_the_same(users, tmp_path):
    """To the client; the log tells them apart by the name."""
    (tmp_path / "in").write_bytes(b"x")
    found = set()
    for user, key in (("alice", "bob"), ("mallory", "bob"), ("bob", "key")):
        r = users.copy("in", as_user(users, user, "rw/"), key=tmp_path / key)
        assert r.code == 40
        found.add(r.errors())
        users.run.expect("user %s: TLS handshake" % user)
    r = users.copy("in", users.url("rw/"), key=tmp_path / "alice")
    assert r.code == 40
    found.add(r.errors())
    assert len(found) == 1, found
    assert os.listdir(tmp_path / "rw") == []


def test_secrets_are_checked(bench, users, tmp_path):
    secrets = tmp_path / "secrets"
    command = [program("rdcpd"), "--secrets", secrets]
    r = bench.run([*command, "--make-key", "alice"])
    assert r.code == 1 and "user alice has a key already" in r.errors() and r.out == b""
    r = bench.run([*command, "--make-key", "a:b"])
    assert r.code == 1 and r.out == b""
    serve = [*command, "--port=0", "--module=a=%s" % tmp_path]
    with open(secrets, "ab") as f:
        f.write(b"carol:guess\n")
    r = bench.run(serve)
    assert r.code == 1 and "line 3: the key is not one from --make-key" in r.errors()
    secrets.write_bytes(b"# none\n")
    r = bench.run(serve)
    assert r.code == 1 and "has no keys" in r.errors()
    secrets.chmod(0o640)
    r = bench.run(serve)
    assert r.code == 1 and "chmod 600" in r.errors()


# ---- hostile clients ------------------------------------------------------------------------------------------

def talk(daemon, data, identity=b"sluice:conductor:-", key=None, reads=True):
    """Connects with the daemon's key, and says this. What the daemon answers until it closes, or None if it refuses."""
    text = (key or daemon.key).read_text().strip().split(":")[1]
    sock = socket.create_connection((HERE, daemon.port))
    sock.settimeout(20 * SLOW)
    try:
        client = tls.Client(sock, bytes.fromhex(text), identity=identity)
        client.write(data)
        got = b""
        while reads and (more := client.read()):
            got += more
        return got
    except tls.Refused:
        return None
    except (ConnectionError, EOFError):
        return b""
    finally:
        sock.close()


def module(name="rw", **over):
    return wire.message("MODULE", **{"version": wire.VERSION, "name": name, **over})


@pytest.mark.parametrize("identity", [b"sluice:source:-", b"sluice:conductor:", b"sluice:conductor:root", b"-",
                                      b"sluice:conductor:-x", b"sluice:conductor:" + b"a" * 100, b"sluice:conductor:a\nb",
                                      b"Sluice:conductor:-"])
def test_other_identities_are_refused(daemon, tmp_path, identity):
    assert talk(daemon, module(), identity) is None
    daemon.run.expect("rejected")
    (tmp_path / "in").write_bytes(b"x")
    assert daemon.copy("in", daemon.url("rw/")).code == 0


FIRST = {
    "START": lambda: wire.message("GO"),
    "version-0": lambda: module(version=0),
    "version-99": lambda: module(version=99),
    "long": lambda: module("n" * 64),
    "nul": lambda: module("r\0w"),
    "short": lambda: module()[:-1],
    "tail": lambda: (14).to_bytes(4, "little") + module()[4:] + b"tail",
    "huge": lambda: b"\xff" * 4 + module()[4:],
    "noise": lambda: b"GET / HTTP/1.0\r\n\r\n",
}


@pytest.mark.parametrize("what", FIRST)
def test_a_malformed_first_frame_ends_the_session(daemon, tmp_path, what):
    """Nothing is answered: the end does not exist yet."""
    data = FIRST[what]()
    got = talk(daemon, data, reads=what != "short")
    assert not got
    wait_until(lambda: daemon.children() == [])
    (tmp_path / "in").write_bytes(b"x")
    assert daemon.copy("in", daemon.url("rw/")).code == 0


@pytest.mark.parametrize("name", ["", ".", "..", "../rw", "rw/", "RW", "\x1b[2J", "n" * 63])
def test_other_modules_are_refused(daemon, tmp_path, name):
    """The end greets, and refuses every order."""
    got = talk(daemon, module(name) + wire.message("GO"))
    assert wire.GREETING_MAGIC in got
    wait_until(lambda: daemon.children() == [])
    assert sorted(os.listdir(tmp_path / "rw")) == [] and "\x1b" not in daemon.run.errors()
