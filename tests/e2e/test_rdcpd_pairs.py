# SPDX-License-Identifier: Apache-2.0
"""rdcp between two rdcpd, and between a rdcpd and a host that it reaches by ssh."""

import json
import os
import re
import shutil
import signal
import subprocess
import time

import pytest

from daemons import HERE, Daemon
from hosts import RSH, SLOW, leftovers, pattern, program, wait_until
from processes import children

pytestmark = pytest.mark.needs("tcp", why="over TCP; test_rdcpd_rdma.py has what an adapter can change")


class Pair:
    """Two daemons, a and b, and the ssh host far. Each daemon has its modules below a directory of its name, far has its files in
    another one."""

    def __init__(self, bench, tmp_path, *options, own_keys=False, **how):
        self.bench, self.tmp = bench, tmp_path
        self.a = Daemon(bench, tmp_path / "a", *options, **how)
        if not own_keys:
            (tmp_path / "b").mkdir()
            shutil.copy(self.a.key, tmp_path / "b" / "key")
        self.b = Daemon(bench, tmp_path / "b", *options, **how)
        (tmp_path / "far").mkdir()
        (tmp_path / "near").mkdir()

    def place(self, name):
        """What stands for a writable directory on this host in an operand, and the directory itself."""
        if name in "ab":
            return getattr(self, name).url("rw/"), self.tmp / name / "rw"
        return "far:" * (name == "far") + "%s/" % (self.tmp / name), self.tmp / name

    def argv(self, *args, key=True):
        keys = ["--key-file", self.a.key] if key is True else key or []
        return [program("rdcp"), "--rsh", RSH, "--rdcp-path", program("rdcp"), *keys, *args]

    def start(self, *args, key=True, **how):
        return self.bench.start(self.argv(*args, key=key), cwd=self.tmp / "near", **how)

    def copy(self, *args, key=True, timeout=60, **how):
        return self.bench.run(self.argv(*args, key=key), cwd=self.tmp / "near", timeout=timeout, **how)

    def close_modules(self):
        """So that no other user could plant what a rerun resumes."""
        for name in "ab":
            (self.tmp / name / "rw").chmod(0o755)

    def are_idle(self):
        return self.a.children() == [] and self.b.children() == []


@pytest.fixture
def pair(bench, tmp_path):
    return Pair(bench, tmp_path)


WAYS = {"daemons": ("a", "b"), "to-ssh": ("a", "far"), "from-ssh": ("far", "b")}


@pytest.fixture(params=WAYS)
def ends(pair, request):
    """The source and the target of a way: operand and directory of each."""
    return [pair.place(name) for name in WAYS[request.param]]


def tree(top):
    (top / "d" / "e").mkdir(parents=True)
    (top / "d" / "small").write_bytes(b"small")
    (top / "d" / "e" / "large").write_bytes(pattern(6 << 20))
    (top / "d" / "e" / "some").write_bytes(pattern(300_000, seed=5))
    (top / "d" / "link").symlink_to("small")
    for path in ("small", "e/large", "e/some"):
        os.utime(top / "d" / path, (10 ** 9, 10 ** 9))


def same_tree(a, b):
    return subprocess.run(["diff", "-r", "--no-dereference", a, b], capture_output=True).returncode == 0


# ---- what is copied ---------------------------------------------------------------------------------------------

def test_a_file(pair, ends):
    (source, here), (target, there) = ends
    (here / "in").write_bytes(pattern(20 << 20))
    r = pair.copy("-v", source + "in", target)
    assert r.code == 0, r.errors()
    assert (there / "in").read_bytes() == (here / "in").read_bytes()
    assert leftovers(there) == []
    wait_until(pair.are_idle)


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_a_tree_and_the_same_again(pair, ends, transport):
    (source, here), (target, there) = ends
    tree(here)
    r = pair.copy("-a", "--transport=" + transport, source + "d", target)
    assert r.code == 0, r.errors()
    assert same_tree(here / "d", there / "d")
    assert (there / "d" / "e" / "large").stat().st_mtime == 10 ** 9
    r = pair.copy("-a", "--itemize-changes", source + "d", target)
    assert r.code == 0 and r.out == b"", r.errors()
    (there / "d" / "more").write_bytes(b"x")
    (here / "d" / "small").write_bytes(b"other")
    r = pair.copy("-a", "--itemize-changes", source + "d/", target + "d")
    assert r.code == 0 and r.out.splitlines()[-1].endswith(b" small"), r.out
    assert (there / "d" / "more").exists()


def test_an_empty_file_and_an_empty_directory(pair, ends):
    (source, here), (target, there) = ends
    (here / "none").write_bytes(b"")
    (here / "void").mkdir()
    r = pair.copy("-a", source + "none", source + "void", target)
    assert r.code == 0, r.errors()
    assert (there / "none").stat().st_size == 0 and os.listdir(there / "void") == []


def test_between_two_modules_of_one_daemon(pair, tmp_path):
    (tmp_path / "a" / "ro" / "in").write_bytes(pattern(5 << 20))
    r = pair.copy(pair.a.url("ro/in"), pair.a.url("rw/"))
    assert r.code == 0, r.errors()
    assert (tmp_path / "a" / "rw" / "in").read_bytes() == pattern(5 << 20)


def test_a_file_onto_itself_is_refused(pair, tmp_path):
    (tmp_path / "a" / "rw" / "in").write_bytes(b"x")
    r = pair.copy(pair.a.url("rw/in"), pair.a.url("rw/"))
    assert r.code == 11 and "are the same file" in r.errors(), r.errors()
    r = pair.copy(pair.a.url("rw/in"), pair.a.url("rw/in"))
    assert r.code == 11 and "are the same file" in r.errors(), r.errors()
    assert (tmp_path / "a" / "rw" / "in").read_bytes() == b"x"


def test_an_interrupted_copy_continues(pair, ends):
    (source, here), (target, there) = ends
    pair.close_modules()
    (here / "in").write_bytes(pattern(40 << 20))
    r = pair.start("--bwlimit=10M", "--progress=1", source + "in", target)
    r.expect("%")
    r.signal(signal.SIGINT)
    assert r.wait(10) == 20, r.errors()
    wait_until(pair.are_idle)
    r = pair.copy("--json", source + "in", target)
    assert r.code == 0, r.errors()
    assert json.loads(r.out.splitlines()[-1])["had"] > 0
    assert (there / "in").read_bytes() == (here / "in").read_bytes()
    assert leftovers(there) == []


def test_a_killed_client_leaves_no_process(pair, ends, tmp_path):
    (source, here), (target, there) = ends
    (here / "in").write_bytes(pattern(40 << 20))
    r = pair.start("--bwlimit=4M", "--progress=1", "--lanes=3", source + "in", target)
    r.expect("%")
    r.signal(signal.SIGKILL)
    r.proc.wait()
    wait_until(pair.are_idle)
    wait_until(lambda: subprocess.run(["pgrep", "-g", str(r.proc.pid)], capture_output=True).stdout == b"")
    r = pair.copy(source + "in", target)
    assert r.code == 0, r.errors()
    assert (there / "in").read_bytes() == (here / "in").read_bytes()


def test_deleting_where_the_module_permits(bench, tmp_path):
    config = tmp_path / "conf"
    pair = Pair(bench, tmp_path)
    for name in ("on", "off"):
        (tmp_path / name).mkdir()
    config.write_text("".join("[%s]\npath = %s\nread only = no\n%s" % (name, tmp_path / name, extra) for name, extra in
                              (("on", "delete = yes\nremove sources = yes\n"), ("off", ""))))
    run = bench.start([program("rdcpd"), "--key-file", pair.a.key, "--port=0", "--address", HERE, "-v", "--config", config])
    c = "rdma://%s:%d/" % (HERE, int(run.expect("listening on").rsplit(":", 1)[1]))
    (tmp_path / "a" / "rw" / "new").write_bytes(b"new")
    for name in ("on", "off"):
        (tmp_path / name / "old").write_bytes(b"old")
    r = pair.copy("-a", "--delete", pair.a.url("rw/"), c + "off")
    assert r.code == 1 and "does not permit --delete" in r.errors(), r.errors()
    assert os.listdir(tmp_path / "off") == ["old"]
    r = pair.copy("-a", "--delete", pair.a.url("rw/"), c + "on")
    assert r.code == 0, r.errors()
    assert os.listdir(tmp_path / "on") == ["new"]
    r = pair.copy("--remove-source-files", c + "off/old", pair.a.url("rw/"))
    assert r.code == 1 and "does not permit --remove-source-files" in r.errors(), r.errors()
    for target in (pair.a.url("wo/"), "far:%s/" % (tmp_path / "far")):
        (tmp_path / "on" / "moved").write_bytes(b"moved")
        r = pair.copy("--remove-source-files", c + "on/moved", target)
        assert r.code == 0, r.errors()
        assert not (tmp_path / "on" / "moved").exists()
    assert (tmp_path / "a" / "wo" / "moved").read_bytes() == (tmp_path / "far" / "moved").read_bytes() == b"moved"


def test_several_sources(pair, tmp_path):
    """One session for each host, as with ssh."""
    for i, name in enumerate(("a", "b", "far", "near")):
        (pair.place(name)[1] / ("from-" + name)).write_bytes(pattern(1 << 20, seed=i + 1))
    (tmp_path / "b" / "ro" / "read").write_bytes(b"read")
    r = pair.copy(pair.a.url("rw/from-a"), "far:%s/far/from-far" % tmp_path, "from-near", pair.b.url("ro/read"), pair.b.url("wo/").replace("wo/", "rw"))
    assert r.code == 0, r.errors()
    assert sorted(os.listdir(tmp_path / "b" / "rw")) == ["from-a", "from-b", "from-far", "from-near", "read"]
    for name in ("a", "far", "near"):
        assert (tmp_path / "b" / "rw" / ("from-" + name)).read_bytes() == (pair.place(name)[1] / ("from-" + name)).read_bytes()
    # What one host has may not replace what another one brought.
    (tmp_path / "far" / "from-a").write_bytes(b"other")
    r = pair.copy(pair.a.url("rw/from-a"), "far:%s/far/from-a" % tmp_path, pair.b.url("rw"))
    assert r.code == 11 and "would be the same file" in r.errors(), r.errors()


def test_one_of_several_hosts_fails(pair, tmp_path):
    (tmp_path / "a" / "rw" / "in").write_bytes(b"in")
    r = pair.copy(pair.b.url("ro/none"), pair.a.url("rw/in"), "far:%s/far" % tmp_path)
    assert r.code == 23, r.errors()
    assert os.listdir(tmp_path / "far") == ["in"]


# ---- options of a user ---------------------------------------------------------------------------------------

def test_list_of_files(pair, ends, tmp_path):
    (source, here), (target, there) = ends
    tree(here)
    (tmp_path / "near" / "list").write_bytes(b"d/small\nd/e/some\nd/none\n")
    r = pair.copy("-a", "--files-from=list", source, target)
    assert r.code == 23 and "d/none" in r.errors(), r.errors()
    assert sorted(str(p.relative_to(there)) for p in there.rglob("*")) == ["d", "d/e", "d/e/some", "d/small"]


def test_no_target_directory_relative_and_rehearsal(pair, ends):
    (source, here), (target, there) = ends
    tree(here)
    r = pair.copy("-aT", source + "d", target + "as")
    assert r.code == 0 and same_tree(here / "d", there / "as"), r.errors()
    r = pair.copy("-a", "--relative", source + "d/e/some", target)
    assert r.code == (0 if not source.startswith("far:") else 0), r.errors()
    found = list(there.rglob("some"))
    assert len(found) == 2, found
    r = pair.copy("-an", "--itemize-changes", source + "d/", target + "as/new")
    assert r.code == 0 and not (there / "as" / "new").exists(), r.errors()
    assert b"small" in r.out


def test_statistics_and_json(pair, ends):
    (source, here), (target, there) = ends
    tree(here)
    r = pair.copy("-a", "--stats", source + "d", target)
    assert r.code == 0 and re.search(r"3\b", r.errors()), r.errors()
    r = pair.copy("-a", "--json", "--checksum", source + "d/", target + "d")
    lines = [json.loads(line) for line in r.out.splitlines()]
    assert r.code == 0 and lines[-1]["type"] == "summary" and lines[-1]["same"] == 3, lines


@pytest.mark.parametrize("encrypt, said", [("auto", "AES-256|ChaCha"), ("on", "AES-256|ChaCha"), ("off", "not encrypted")])
def test_data_of_two_daemons_is_sealed(pair, tmp_path, encrypt, said):
    """It passes through the client, even if both daemons are on one host."""
    (tmp_path / "a" / "ro" / "in").write_bytes(pattern(5 << 20))
    r = pair.copy("-v", "--encrypt=" + encrypt, pair.a.url("ro/in"), pair.b.url("rw/"))
    assert r.code == 0, r.errors()
    assert re.search(said, r.errors()) and "through this host" in r.errors(), r.errors()
    assert ("in the clear" in r.errors()) == (encrypt == "off")
    assert (tmp_path / "b" / "rw" / "in").read_bytes() == pattern(5 << 20)


def test_progress_and_lanes(pair, ends):
    (source, here), (target, there) = ends
    (here / "in").write_bytes(pattern(16 << 20))
    r = pair.copy("--progress=1", "--lanes=8", "--bwlimit=8M", "--compress", source + "in", target)
    assert r.code == 0 and "%" in r.errors(), r.errors()
    assert (there / "in").read_bytes() == pattern(16 << 20)


def test_ssh_host_through_the_client(pair, tmp_path):
    """-3, as of scp."""
    for source, target in (("far", "b"), ("a", "far")):
        (source, here), (target, there) = pair.place(source), pair.place(target)
        (here / "in").write_bytes(pattern(5 << 20))
        r = pair.copy("-v", "-3", source + "in", target)
        assert r.code == 0, r.errors()
        assert (there / "in").read_bytes() == pattern(5 << 20)
        assert "through this host" in r.errors() and "encrypted with" in r.errors(), r.errors()
        shutil.rmtree(here), here.mkdir()
        shutil.rmtree(there), there.mkdir()


# ---- keys -----------------------------------------------------------------------------------------------------

@pytest.fixture
def strange(bench, tmp_path):
    """Each daemon has a key of its own."""
    p = Pair(bench, tmp_path, own_keys=True)
    (tmp_path / "a" / "ro" / "in").write_bytes(b"in")
    return p


def at(daemon):
    return "%s:%d" % (HERE, daemon.port)


def test_a_key_for_each_host(strange, tmp_path):
    between = strange.a.url("ro/in"), strange.b.url("rw/")
    each = ["--key-file=%s=%s" % (at(d), d.key) for d in (strange.a, strange.b)]
    for keys in (each, each[::-1], [each[0], "--key-file", strange.b.key], ["--key-file", strange.a.key, each[1]]):
        r = strange.copy(*between, key=keys)
        assert r.code == 0, r.errors()
        (tmp_path / "b" / "rw" / "in").unlink()
    r = strange.copy(*between, key=each[:1])
    assert r.code == 40 and "key" in r.errors(), r.errors()
    for wrong in ("=x", "host=", ""):
        r = strange.copy(*between, key=["--key-file=" + wrong])
        assert r.code == 1 and "invalid value" in r.errors(), r.errors()
    for name, word in (("a=b", "./a=b"), ("k", "k")):
        os.symlink(strange.a.key, tmp_path / "near" / name)
        r = strange.copy(strange.a.url("ro/in"), "out", key=["--key-file=" + word])
        assert r.code == 0, r.errors()
    r = strange.copy(strange.a.url("ro/"), key=each)
    assert r.code == 0 and b"in" in r.out, r.errors()


@pytest.mark.parametrize("wrong", ["a", "b"])
def test_wrong_key_for_one_of_two(strange, tmp_path, wrong):
    right = {"a": strange.b, "b": strange.a}[wrong]
    r = strange.copy("-v", strange.a.url("ro/in"), strange.b.url("rw/"), key=["--key-file", right.key])
    assert r.code == 40 and "wrong key" in r.errors(), r.errors()
    assert len([line for line in r.errors().splitlines() if "key" in line]) == 1, r.errors()
    getattr(strange, wrong).run.expect("wrong key")
    assert os.listdir(tmp_path / "b" / "rw") == []
    wait_until(strange.are_idle)


def test_users_of_two_daemons(bench, tmp_path):
    for name, user in (("c", "alice"), ("d", "bob")):
        (tmp_path / name).mkdir()
        made = bench.run([program("rdcpd"), "--secrets", tmp_path / (name + "-secrets"), "--make-key", user])
        assert made.code == 0, made.errors()
        (tmp_path / (user + "-key")).write_bytes(made.out)
        (tmp_path / (user + "-key")).chmod(0o600)
    ports = {}
    for name in "cd":
        run = bench.start([program("rdcpd"), "--secrets", tmp_path / (name + "-secrets"), "--port=0", "--address", HERE, "-v",
                           "--module=m=%s:rw" % (tmp_path / name)])
        ports[name] = int(run.expect("listening on").rsplit(":", 1)[1])
    (tmp_path / "c" / "in").write_bytes(b"in")
    urls = "rdma://alice@%s:%d/m/in" % (HERE, ports["c"]), "rdma://bob@%s:%d/m/" % (HERE, ports["d"])
    r = bench.run([program("rdcp"), "--key-file=alice@%s=alice-key" % HERE, "--key-file=bob@%s=bob-key" % HERE, *urls], cwd=tmp_path)
    assert r.code == 0, r.errors()
    assert (tmp_path / "d" / "in").read_bytes() == b"in"


# ---- failures -------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("source", ["a", "far"])
def test_target_module_is_read_only(pair, tmp_path, source):
    source, here = pair.place(source)
    (here / "in").write_bytes(b"in")
    r = pair.copy(source + "in", pair.b.url("ro/"))
    assert r.code == 11 and "module ro is read only" in r.errors(), r.errors()
    assert os.listdir(tmp_path / "b" / "ro") == []
    r = pair.copy(source + "in", pair.b.url("none/"))
    assert r.code == 3 and "there is no module none" in r.errors(), r.errors()
    wait_until(pair.are_idle)


@pytest.mark.each_combination
@pytest.mark.parametrize("options, code", [(["--transport=rdma"], 43), (["--transport=ssh"], 1), (["--owner"], 1)])
def test_refused_options(pair, ends, tmp_path, options, code):
    (source, here), (target, there) = ends
    (here / "in").write_bytes(b"in")
    r = pair.copy(*options, source + "in", target)
    if options == ["--owner"] and "far" in target:
        code = 0
    assert r.code == code, r.errors()
    assert len(r.errors().split("usage:")[0].splitlines()) <= 1, r.errors()
    assert (there / "in").exists() == (code == 0)


@pytest.mark.parametrize("closed", ["a", "b"])
def test_one_daemon_is_not_there(pair, tmp_path, closed):
    (tmp_path / "a" / "ro" / "in").write_bytes(b"in")
    port = getattr(pair, closed).port
    getattr(pair, closed).run.signal(signal.SIGTERM)
    assert getattr(pair, closed).run.wait() == 0
    began = time.monotonic()
    r = pair.copy("--connect-timeout=2", pair.a.url("ro/in"), pair.b.url("rw/"))
    assert r.code == 35 and "port %d" % port in r.errors() and "no rdcpd listens there" in r.errors(), r.errors()
    assert time.monotonic() - began < 10 * SLOW


@pytest.mark.parametrize("killed", ["a", "b"])
def test_a_daemon_is_killed(bench, pair, tmp_path, killed):
    """The other one ends its session, too; a rerun continues."""
    (tmp_path / "a" / "rw" / "in").write_bytes(pattern(40 << 20))
    pair.close_modules()
    victim = getattr(pair, killed)
    r = pair.start("--bwlimit=10M", "--progress=1", "--lanes=2", pair.a.url("rw/in"), pair.b.url("rw/"))
    r.expect("%")
    victim.run.group(signal.SIGKILL)
    began = time.monotonic()
    assert r.wait() == 44, r.errors()
    assert time.monotonic() - began < 5 * SLOW
    assert "lost the end on " + HERE in r.errors().splitlines()[-1], r.errors()
    other = pair.b if killed == "a" else pair.a
    wait_until(lambda: other.children() == [])
    setattr(pair, killed, Daemon(bench, tmp_path / killed))
    pair.close_modules()
    r = pair.copy("--json", pair.a.url("rw/in"), pair.b.url("rw/"))
    assert r.code == 0, r.errors()
    assert json.loads(r.out.splitlines()[-1])["had"] > 0
    assert (tmp_path / "b" / "rw" / "in").read_bytes() == pattern(40 << 20)
    assert leftovers(tmp_path / "b" / "rw") == []


# ---- lanes that break -----------------------------------------------------------------------------------------

BREAKS = "break:lane=0,block=3,times=1;break:lane=1,block=3,times=1;break:lane=0,block=9,times=1;break:lane=1,block=5,times=3"


@pytest.mark.parametrize("faults", [BREAKS, "damage:lane=0,block=3;damage:lane=1,block=4", "take:lane=0,times=2;take:lane=1,times=1"],
                         ids=["break", "damage", "take"])
def test_lanes_are_mended(bench, tmp_path, faults):
    """The client makes new wires; the ends send again what was not stored."""
    pair = Pair(bench, tmp_path, env={"SLUICE_FAULT": faults})
    (tmp_path / "a" / "ro" / "in").write_bytes(pattern(12 << 20))
    (tmp_path / "far" / "in").write_bytes(pattern(12 << 20, seed=3))
    for i, source in enumerate((pair.a.url("ro/in"), "far:%s/far/in" % tmp_path)):
        if i and "take" not in faults:
            break
        r = pair.copy("-v", "--lanes=2", "--block-size=256k", source, pair.b.url("rw/out"))
        assert r.code == 0, r.errors()
        assert (tmp_path / "b" / "rw" / "out").read_bytes() == pattern(12 << 20, seed=1 + 2 * i)
    wait_until(pair.are_idle)


def test_a_lane_that_never_works_ends_the_copy(bench, tmp_path):
    pair = Pair(bench, tmp_path, env={"SLUICE_FAULT": "take:lane=0,times=0"})
    (tmp_path / "a" / "ro" / "in").write_bytes(pattern(12 << 20))
    began = time.monotonic()
    r = pair.copy("--timeout=3", "--connect-timeout=3", pair.a.url("ro/in"), pair.b.url("rw/"))
    assert r.code in (30, 35, 44), r.errors()
    assert time.monotonic() - began < 25 * SLOW
    assert "lane 0" in r.errors(), r.errors()
    wait_until(pair.are_idle)


def lanes_of(run):
    """The processes beside the conductor that carry lanes: not the two that talk to the daemons."""
    def started(pid):
        with open("/proc/%d/stat" % pid) as f:
            return int(f.read().rsplit(")", 1)[1].split()[19]), pid
    return sorted(children(run.proc.pid), key=started)[2:]


def test_a_killed_lane_is_reported(pair, tmp_path):
    (tmp_path / "a" / "ro" / "in").write_bytes(pattern(40 << 20))
    r = pair.start("--bwlimit=8M", "--progress=1", "--lanes=2", pair.a.url("ro/in"), pair.b.url("rw/"))
    r.expect("%")
    assert len(lanes_of(r)) == 2
    os.kill(lanes_of(r)[0], signal.SIGKILL)
    assert r.wait() == 44, r.errors()
    assert "the process that carries it was killed by signal 9" in r.errors(), r.errors()
    wait_until(pair.are_idle)


def test_a_client_that_is_stopped_for_a_while(pair, tmp_path):
    """Shorter than --timeout."""
    (tmp_path / "a" / "ro" / "in").write_bytes(pattern(20 << 20))
    r = pair.start("--bwlimit=8M", "--progress=1", pair.a.url("ro/in"), pair.b.url("rw/"))
    r.expect("%")
    r.group(signal.SIGSTOP)
    time.sleep(2)
    r.group(signal.SIGCONT)
    assert r.wait() == 0, r.errors()
    assert (tmp_path / "b" / "rw" / "in").read_bytes() == pattern(20 << 20)


# ---- an ssh host that cannot reach the daemon ---------------------------------------------------------------------

class Islands:
    """The client near, a daemon on another host that only near can reach, and far, which ssh alone reaches."""

    def __init__(self, networks, bench, tmp_path):
        self.bench, self.tmp = bench, tmp_path
        self.hosts = networks(3)
        self.hosts.join("10.77.40")
        for name in ("m", "far"):
            (tmp_path / name).mkdir()
        self.key = tmp_path / "key"
        assert bench.run([program("rdcpd"), "--make-key", self.key]).code == 0
        self.daemon = bench.start([*self.hosts.on(1), program("rdcpd"), "--key-file", self.key, "--port=0", "--address=10.77.40.2", "-vv",
                                   "--module=m=%s:rw" % (tmp_path / "m")])
        self.url = "rdma://10.77.40.2:%s/m/" % self.daemon.expect("listening on").rsplit(":", 1)[1].strip()

    def copy(self, *args, wait=True, env=None):
        lines = "near %s\nfar %s" % tuple(" ".join(self.hosts.on(i)) for i in (0, 2))
        argv = [*self.hosts.on(0), program("rdcp"), "--rsh", RSH, "--rdcp-path", program("rdcp"), "--key-file", self.key, *args]
        return (self.bench.run if wait else self.bench.start)(argv, cwd=self.tmp, env=dict(
            env or {}, SLUICE_TEST_HOSTS=lines, SLUICE_TEST_HOME=str(self.tmp)))


@pytest.fixture
def islands(networks, bench, tmp_path):
    return Islands(networks, bench, tmp_path)


may_skip = pytest.mark.may_skip("user", "a network namespace may be had by root only")


@may_skip
@pytest.mark.parametrize("way", ["from", "to"])
@pytest.mark.parametrize("encrypt", ["auto", "off"])
def test_lanes_go_through_the_client(islands, tmp_path, way, encrypt):
    here, there = (tmp_path / "far", tmp_path / "m")[::1 if way == "from" else -1]
    (here / "in").write_bytes(pattern(8 << 20))
    words = ["far:far/in", islands.url] if way == "from" else [islands.url + "in", "far:far/"]
    r = islands.copy("-v", "--encrypt=" + encrypt, *words)
    assert r.code == 0, r.errors()
    assert (there / "in").read_bytes() == pattern(8 << 20)
    assert r.errors().count("data goes over ssh and through this host") == 1, r.errors()
    assert ("not encrypted" in r.errors()) == ("in the clear" in r.errors()) == (encrypt == "off"), r.errors()


@may_skip
def test_lanes_through_the_client_are_mended(islands, tmp_path):
    (tmp_path / "far" / "in").write_bytes(pattern(12 << 20))
    r = islands.copy("--lanes=2", "--block-size=256k", "far:far/in", islands.url, env={"SLUICE_FAULT": BREAKS})
    assert r.code == 0, r.errors()
    assert (tmp_path / "m" / "in").read_bytes() == pattern(12 << 20)


@may_skip
def test_demanded_tcp_does_not_go_through_the_client(islands, tmp_path):
    (tmp_path / "far" / "in").write_bytes(b"x")
    r = islands.copy("--transport=tcp", "--connect-timeout=4", "far:far/in", islands.url)
    assert r.code == 43 and "through this host" in r.errors(), r.errors()
    assert os.listdir(tmp_path / "m") == []


@may_skip
@pytest.mark.parametrize("signo", [signal.SIGINT, signal.SIGKILL])
def test_lanes_through_the_client_end_with_it(islands, tmp_path, signo):
    (tmp_path / "far" / "in").write_bytes(pattern(20 << 20))
    r = islands.copy("--bwlimit=4M", "--progress=1", "far:far/in", islands.url, wait=False)
    r.expect("%")
    r.signal(signo)
    assert r.wait(10) == (20 if signo == signal.SIGINT else -signo), r.errors()
    wait_until(lambda: subprocess.run(["pgrep", "-s", str(r.proc.pid)], capture_output=True).stdout == b"")
    wait_until(lambda: len(children(islands.daemon.proc.pid)) == 0)
    r = islands.copy("far:far/in", islands.url)
    assert r.code == 0, r.errors()
