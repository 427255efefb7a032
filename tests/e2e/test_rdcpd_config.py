# SPDX-License-Identifier: Apache-2.0
"""rdcpd's configuration file: what each key does, each error with its line, and SIGHUP."""

import os
import re
import signal

import pytest

from daemons import HERE, Configured
from hosts import ROOT, as_nobody, open_up, pattern, program, wait_until

pytestmark = pytest.mark.needs("tcp", why="over TCP; test_rdcpd_rdma.py has what an adapter can change")

MODULES = """
# a comment
; another one
[data]
  path = {tmp}/data
  read only = no
[Old_runs.2]
path={tmp}/old
READ_ONLY = True
[inbox]
path = {tmp}/inbox
read  only = 0
write	only = yes
"""


def test_modules_of_a_file(bench, tmp_path):
    d = Configured(bench, tmp_path, MODULES)
    (tmp_path / "in").write_bytes(b"x")
    (tmp_path / "old" / "f").write_bytes(b"old")
    (tmp_path / "inbox" / "f").write_bytes(b"x")
    assert d.copy("in", d.url("data/")).code == 0
    assert d.copy(d.url("data/in"), "back").code == 0
    assert d.copy(d.url("Old_runs.2/f"), "out").code == 0
    r = d.copy("in", d.url("Old_runs.2/"))
    assert r.code == 11 and "module Old_runs.2 is read only" in r.errors()
    assert d.copy("in", d.url("inbox/")).code == 0
    r = d.copy(d.url("inbox/f"), "out")
    assert r.code == 11 and "module inbox is write only" in r.errors()


def test_options_come_before_the_file_and_add_modules(bench, tmp_path):
    (tmp_path / "more").mkdir()
    d = Configured(bench, tmp_path, "[data]\npath = {tmp}/data\n", "--port=0", "--module=more=%s:rw" % (tmp_path / "more"))
    assert d.copy("key", d.url("more/")).code == 0
    r = bench.run([program("rdcpd"), "--config", d.file, "--module=data=%s" % tmp_path])
    assert r.code == 1 and "module data is given twice" in r.errors()


@pytest.mark.parametrize("option", ["auto", "tcp"])
def test_a_transport_that_an_option_names_comes_before_that_of_the_file(bench, tmp_path, option):
    """No adapter is here: rdma alone serves nobody."""
    d = Configured(bench, tmp_path, "[m]\npath = {tmp}/m\nread only = no\n", "--transport=" + option, keys="transport = rdma\n")
    r = d.copy("-v", "key", d.url("m/"))
    assert r.code == 0 and "over tcp" in r.errors(), r.errors()
    d.reload("transport = rdma\n[m]\npath = {tmp}/m\nread only = no\n")
    d.run.expect("loaded the settings again")
    assert d.copy("key", d.url("m/")).code == 0


ERRORS = {
    "unknown": ("pot = 1\n", 1, 'unknown key "pot"'),
    "no-value": ("port =\n", 1, '"port" has no value'),
    "no-sign": ("port\n", 1, "expected KEY = VALUE or [MODULE]"),
    "port": ("port = 65536\n", 1, "65536 is no port"),
    "twice": ("port = 1\nport = 2\n", 2, '"port" is given twice'),
    "of-a-module": ("read only = no\n", 1, '"read only" belongs below a [MODULE]'),
    "of-the-daemon": ("[a]\npath = {tmp}\nport = 1\n", 3, '"port" belongs above the first [MODULE]'),
    "bool": ("[a]\npath = {tmp}\nread only = perhaps\n", 3, "perhaps is neither yes nor no"),
    "relative": ("[a]\npath = data\n", 2, "data is no absolute path"),
    "no-path": ("[a]\nread only = no\n\n", 3, "module a has no path"),
    "no-path-of-the-first": ("[a]\n[b]\npath = {tmp}\n", 1, "module a has no path"),
    "module-twice": ("[a]\npath = {tmp}\n[a]\npath = {tmp}\n", 3, "module a is given twice"),
    "name": ("[.a]\npath = {tmp}\n", 1, "[.a] is no [MODULE]"),
    "open": ("[a\n", 1, "[a is no [MODULE]"),
    "neither": ("[a]\npath = {tmp}\nwrite only = yes\n", 3, 'can be neither read nor written: a write only one needs "read only = no"'),
    "wrong-path": ("[a]\npath = data\n[b]\n", 3, "module b has no path"),
    "delete": ("[a]\npath = {tmp}\ndelete = yes\n", 3, "module a is read only: nothing can be deleted"),
    "remove": ("[a]\npath = {tmp}\nremove sources = yes\n", 3, "module a cannot be both read and written"),
    "user": ("[a]\npath = {tmp}\nuid = no-such-user\n", 3, "there is no user no-such-user"),
    "group": ("[a]\npath = {tmp}\ngid = no-such-group\n", 3, "there is no group no-such-group"),
    "number": ("[a]\npath = {tmp}\nuid = 4294967295\n", 3, "there is no user 4294967295"),
    "no-gid": ("[a]\npath = {tmp}\nuid = 54321\n", 3, "module a: user 54321 has no group: give a gid, too"),
    "users": ("[a]\npath = {tmp}\nusers = al/ice\n", 3, "al/ice is no name of a user"),
    "host": ("[a]\npath = {tmp}\nhosts allow = 10.0.0.1 example.org\n", 3, "names are not looked up"),
    "seconds": ("drain limit = 604801\n", 1, "604801 is no number of seconds: expected 0 to 604800"),
    "prefix": ("[a]\npath = {tmp}\nhosts deny = 10.0.0.0/33\n", 3, "from 0 to 32"),
}


@pytest.mark.parametrize("what", ERRORS)
def test_error_is_reported_with_its_line(bench, tmp_path, what):
    text, line, message = ERRORS[what]
    file = tmp_path / "conf"
    file.write_text(text.replace("{tmp}", str(tmp_path)))
    r = bench.run([program("rdcpd"), "--check-config", "--config", file])
    assert r.code == 1
    assert "%s:%d: " % (file, line) in r.errors() and message in r.errors(), r.errors()
    assert what != "wrong-path" or "has 2 errors" in r.errors(), r.errors()


def test_all_errors_of_a_file_are_reported(bench, tmp_path):
    file = tmp_path / "conf"
    file.write_text("pot = 1\nport = x\n[a]\npath = {tmp}\ncolor = 3\n".replace("{tmp}", str(tmp_path)))
    r = bench.run([program("rdcpd"), "--check-config", "--config", file])
    assert r.code == 1
    assert [n for n in range(1, 6) if "%s:%d: " % (file, n) in r.errors()] == [1, 2, 5]
    assert "has 3 errors" in r.errors()


def test_all_errors_of_modules_and_keys_are_reported(bench, tmp_path):
    file = tmp_path / "conf"
    (tmp_path / "file").write_bytes(b"")
    file.write_text("key file = {tmp}/none\nsecrets file = {tmp}/secrets\n[a]\npath = {tmp}/gone\n[b]\npath = {tmp}/file\n"
                    "[c]\npath = {tmp}\n[d]\npath = /\n".replace("{tmp}", str(tmp_path)))
    r = bench.run([program("rdcpd"), "--check-config", "--config", file, "--module=c=%s" % tmp_path, "--module=x"])
    assert r.code == 1
    expected = ["--module x: expected NAME=DIR", "open module a: ", "open module b: ", "module c is given twice", "module d: the root",
                "open key file %s/secrets: " % tmp_path, "open key file %s/none: " % tmp_path]
    found = [line for line in r.errors().splitlines() if line.startswith("rdcpd: ")]
    assert len(found) == len(expected) and all(e in line for e, line in zip(expected, found)), r.errors()


def test_synopsis_follows_errors_of_options_only(bench, tmp_path):
    d = Configured(bench, tmp_path, MODULES)
    (tmp_path / "wrong").write_bytes(b"pot = 1\n")
    (tmp_path / "open").write_bytes(d.key.read_bytes())
    alice = [program("rdcpd"), "--secrets", tmp_path / "secrets", "--make-key=alice"]
    assert bench.run(alice).code == 0
    module, key = "--module=a=%s" % tmp_path, "--key-file=%s" % d.key
    plain = [["--config", tmp_path / "wrong"], [module, "--key-file", tmp_path / "open"], ["--module=a=/", key], alice[1:]]
    wrong = [["--module=a", key], [module], [key], ["--config", d.file, "operand"]]
    for words in plain + wrong:
        r = bench.run([program("rdcpd"), *words])
        assert r.code == 1 and ("usage:" in r.errors()) == (words in wrong), r.errors()


def test_check_config_is_silent_if_all_is_well(bench, tmp_path):
    d = Configured(bench, tmp_path, MODULES)
    r = bench.run([program("rdcpd"), "--check-config", "--config", d.file])
    assert (r.code, r.out, r.errors()) == (0, b"", "")
    (tmp_path / "old").rmdir()
    r = bench.run([program("rdcpd"), "--check-config", "--config", d.file])
    assert r.code == 11 and "open module Old_runs.2" in r.errors()


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_file_that_others_may_write_is_refused(bench, tmp_path, mode):
    d = Configured(bench, tmp_path, MODULES)
    d.file.chmod(mode)
    r = bench.run([program("rdcpd"), "--check-config", "--config", d.file])
    assert r.code == 1 and "chmod go-w" in r.errors()


def test_missing_file_is_named(bench, tmp_path):
    r = bench.run([program("rdcpd"), "--config", tmp_path / "none"])
    assert r.code == 11 and "open %s: No such file" % (tmp_path / "none") in r.errors()


def test_users_of_a_module(bench, tmp_path):
    d = Configured(bench, tmp_path, "[all]\npath = {tmp}/all\nread only = no\n")
    keys = {name: d.user(name) for name in ("alice", "bob")}
    d.reload("secrets file = {tmp}/secrets\n[all]\npath = {tmp}/all\nread only = no\n"
             "[some]\npath = {tmp}/some\nread only = no\nusers = carol, alice\n")
    d.run.expect("loaded the settings again: 2 modules")

    def push(user, module):
        url = d.url(module + "/")
        return d.copy("key", url.replace("//", "//%s@" % user) if user else url, key=keys.get(user))
    assert push("alice", "some").code == 0
    assert push("bob", "all").code == 0
    r = push("bob", "some")
    assert r.code == 40 and "user bob may not use module some" in r.errors()
    d.run.expect("user bob may not use module some")
    r = push(None, "some")
    assert r.code == 40 and "rdma://USER@HOST/some" in r.errors()
    assert sorted(os.listdir(tmp_path / "some")) == ["key"]


HOSTS = [
    ("hosts allow = 127.0.0.0/8", True), ("hosts allow = 10.0.0.0/8", False), ("hosts deny = 10.0.0.0/8", True),
    ("hosts deny = 10.0.0.0/8, 127.0.0.1", False), ("hosts allow = 127.0.0.1\nhosts deny = *", True),
    ("hosts allow = 127.0.0.2\nhosts deny = *", False), ("hosts allow = 127.0.0.2\nhosts deny = 10.0.0.1", True),
    ("hosts allow = ::1 127.0.0.0/25", True), ("hosts deny = 127.0.0.0/31 ::1", False), ("hosts allow = *", True),
]


@pytest.mark.parametrize("rules, admitted", HOSTS)
def test_hosts_of_a_module(bench, tmp_path, rules, admitted):
    d = Configured(bench, tmp_path, "[m]\npath = {tmp}/m\nread only = no\n%s\n" % rules)
    r = d.copy("key", d.url("m/"))
    assert r.code == (0 if admitted else 40), r.errors()
    if not admitted:
        assert "%s may not use module m" % HERE in r.errors()
        d.run.expect("may not use module m")
    assert os.listdir(tmp_path / "m") == (["key"] if admitted else [])


@pytest.mark.parametrize("permitted", ["no", "yes"])
def test_removing_sources_needs_the_permission(bench, tmp_path, permitted):
    d = Configured(bench, tmp_path, "[m]\npath = {tmp}/m\nread only = no\nremove sources = %s\n" % permitted)
    (tmp_path / "m" / "f").write_bytes(b"f")
    r = d.copy("--remove-source-files", d.url("m/f"), "out")
    assert r.code == (0 if permitted == "yes" else 1), r.errors()
    assert (tmp_path / "m" / "f").exists() == (permitted == "no")
    assert permitted == "no" or (tmp_path / "out").read_bytes() == b"f"


def test_source_that_is_its_own_target_stays(bench, tmp_path):
    """The client sees the module's files by other names than the daemon."""
    d = Configured(bench, tmp_path, "[m]\npath = {tmp}/m\nread only = no\nremove sources = yes\n")
    for options in ([], ["-a"], ["-c"]):
        (tmp_path / "m" / "f").write_bytes(b"f")
        d.copy("--remove-source-files", *options, d.url("m/f"), tmp_path / "m" / "f")
        assert (tmp_path / "m" / "f").read_bytes() == b"f", options


# ---- accounts -----------------------------------------------------------------------------------------------

ACCOUNTS = {
    "name": ("uid = nobody", 65534, 65534, [65534], 0),
    "numbers": ("uid = 54321\n gid = 54322", 54321, 54322, [], 0),
    "group": ("gid = 54322", 0, 54322, [], None),
}


@pytest.mark.needs("root", why="only root can run programs as two users")
@pytest.mark.parametrize("what", ACCOUNTS)
def test_sessions_run_as_the_account_of_the_module(bench, tmp_path, what):
    keys, uid, gid, groups, capabilities = ACCOUNTS[what]
    d = Configured(bench, tmp_path, "[m]\npath = {tmp}/m\nread only = no\n%s\n" % keys)
    os.chown(tmp_path / "m", uid, gid)
    (tmp_path / "m" / "secret").write_bytes(b"of root")
    (tmp_path / "m" / "secret").chmod(0o600)
    r = d.copy("key", d.url("m/"))
    assert r.code == 0, r.errors()
    st = (tmp_path / "m" / "key").stat()
    assert (st.st_uid, st.st_gid) == (uid, gid)
    r = d.copy(d.url("m/secret"), "out")
    assert (r.code == 0) == (uid == 0) and (tmp_path / "out").exists() == (uid == 0), r.errors()
    wait_until(lambda: not processes_of(d.run.proc.pid))
    ours, theirs = os.pipe()
    copy = bench.start([program("rdcp"), "--key-file", d.key, "-", d.url("m/new")], stdin=ours)
    os.close(ours)
    ids = [str(uid)] * 4, [str(gid)] * 4
    wait_until(lambda: [(s["Uid"].split(), s["Gid"].split()) for s in map(status, processes_of(d.run.proc.pid))] == [ids] * 2)
    for pid in processes_of(d.run.proc.pid):
        s = status(pid)
        assert s["Groups"].split() == [str(g) for g in groups]
        if capabilities is not None:
            assert int(s["CapPrm"], 16) == int(s["CapEff"], 16) == int(s["CapAmb"], 16) == capabilities
    os.close(theirs)
    assert copy.wait() == 0


def processes_of(pid):
    """Descendants."""
    children = open("/proc/%d/task/%d/children" % (pid, pid)).read().split()
    return [c for child in map(int, children) for c in [child, *processes_of(child)]]


def status(pid):
    return dict(line.split(":", 1) for line in open("/proc/%d/status" % pid).read().splitlines())


@pytest.mark.needs("root", why="only root can run programs as two users")
def test_only_root_serves_as_another_user(bench, tmp_path):
    open_up(tmp_path)
    (tmp_path / "m").mkdir()
    file = tmp_path / "conf"
    file.write_text("[m]\npath = %s/m\nuid = 0\n" % tmp_path)
    r = bench.run([program("rdcpd"), "--check-config", "--config", file], become=as_nobody())
    assert r.code == 1 and "%s:3: module m: only root can serve a module as another user" % file in r.errors()


@pytest.mark.parametrize("delete", ["--delete", "--delete-excluded"])
def test_delete_needs_the_permission(bench, tmp_path, delete):
    d = Configured(bench, tmp_path, "[no]\npath = {tmp}/no\nread only = no\n[yes]\npath = {tmp}/yes\nread only = no\ndelete = yes\n")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "new").write_bytes(b"new")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_bytes(b"stays")
    for name in ("no", "yes"):
        (tmp_path / name / "old").mkdir()
        (tmp_path / name / "old" / "f").write_bytes(b"old")
        (tmp_path / name / "way").symlink_to(outside)
        (tmp_path / name / "up").symlink_to("../outside")
    r = d.copy("-a", delete, "tree/", d.url("no/"))
    assert r.code == 1 and "--delete" in r.errors()
    assert sorted(os.listdir(tmp_path / "no")) == ["old", "up", "way"]
    r = d.copy("-a", delete, "tree/", d.url("yes/"))
    assert r.code == 0, r.errors()
    assert os.listdir(tmp_path / "yes") == ["new"]
    assert (outside / "f").read_bytes() == b"stays"


def test_delete_at_the_client_needs_none(bench, tmp_path):
    d = Configured(bench, tmp_path, "[m]\npath = {tmp}/m\n")
    (tmp_path / "m" / "f").write_bytes(b"f")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "extra").write_bytes(b"x")
    r = d.copy("-a", "--delete", d.url("m/"), "here")
    assert r.code == 0, r.errors()
    assert os.listdir(tmp_path / "here") == ["f"]


@pytest.mark.parametrize("way", ["push", "pull", "between"])
def test_encryption_can_be_required(bench, tmp_path, way):
    d = Configured(bench, tmp_path, "".join(
        "[%s]\npath = {tmp}/%s\nread only = no\nencryption required = yes\n" % (m, m) for m in ("m", "far")))
    (tmp_path / "m" / "f").write_bytes(pattern(1 << 20))
    words = {"push": ("key", d.url("m/")), "pull": (d.url("m/f"), "f"), "between": (d.url("m/f"), d.url("far/"))}[way]
    r = d.copy("--encrypt=off", *words)
    assert r.code == 43 and "encrypt" in r.errors() and "in the clear" not in r.errors(), r.errors()
    assert os.listdir(tmp_path / "m") == ["f"] and os.listdir(tmp_path / "far") == [] and not (tmp_path / "f").exists()
    # Within one host, where auto encrypts nothing.
    r = d.copy("-v", *words)
    assert r.code == 0 and "AES-256-GCM" in r.errors() or "ChaCha20" in r.errors(), r.errors()


def test_fsync_can_be_required(bench, tmp_path):
    d = Configured(bench, tmp_path, "[m]\npath = {tmp}/m\nread only = no\nfsync = yes\n")
    r = d.copy("-n", "key", d.url("m/"))
    assert r.code == 0, r.errors()
    r = d.copy("key", d.url("m/"))
    assert r.code == 0, r.errors()
    assert (tmp_path / "m" / "key").exists()


# ---- SIGHUP -------------------------------------------------------------------------------------------------

def test_reload_disturbs_no_session_and_applies_to_later_ones(bench, tmp_path):
    d = Configured(bench, tmp_path, "[m]\npath = {tmp}/m\nread only = no\n")
    (tmp_path / "in").write_bytes(pattern(20 << 20))
    running = bench.start(d.argv("--bwlimit=10M", "in", d.url("m/")), cwd=tmp_path)
    wait_until(lambda: any((tmp_path / "m").iterdir()))
    d.reload("[m]\npath = {tmp}/m\n[n]\npath = {tmp}/n\n")
    d.run.expect("loaded the settings again: 2 modules")
    r = d.copy("key", d.url("m/"))
    assert r.code == 11 and "module m is read only" in r.errors()
    assert running.wait() == 0, running.errors()
    assert (tmp_path / "m" / "in").read_bytes() == (tmp_path / "in").read_bytes()


@pytest.mark.parametrize("text", ["[m]\npath = {tmp}/m\nread only = no\nsped = 1\n", "[m]\npath = {tmp}/gone\n", ""])
def test_reload_of_a_wrong_file_changes_nothing(bench, tmp_path, text):
    d = Configured(bench, tmp_path, "[m]\npath = {tmp}/m\nread only = no\n")
    d.write(text)
    if "gone" in text:
        (tmp_path / "gone").rmdir()
    d.run.signal(signal.SIGHUP)
    d.run.expect("the settings stay as they are")
    assert d.copy("key", d.url("m/")).code == 0


def test_reload_of_keys(bench, tmp_path):
    text = "[m]\npath = {tmp}/m\nread only = no\n"
    d = Configured(bench, tmp_path, text)
    old = (tmp_path / "key").read_bytes()
    (tmp_path / "key").unlink()
    assert bench.run([program("rdcpd"), "--make-key", tmp_path / "key"]).code == 0
    d.reload(text)
    d.run.expect("loaded the settings again")
    assert d.copy("key", d.url("m/")).code == 0
    (tmp_path / "key").write_bytes(old)
    assert d.copy("key", d.url("m/")).code == 40


def test_many_reloads_leak_nothing(bench, tmp_path):
    text = "[m]\npath = {tmp}/m\nread only = no\n"
    d = Configured(bench, tmp_path, text)
    before = None
    for i in range(12):
        d.run.signal(signal.SIGHUP)
        wait_until(lambda: d.run.errors().count("loaded the settings again") == i + 1)
        wait_until(lambda: d.children() == [])
        if i == 3:
            before = d.descriptors(), d.memory()
    assert d.descriptors() == before[0]
    # The settings of eight reloads would be 6 MiB.
    assert d.memory() < before[1] + (2 << 20)


def test_a_new_port_needs_a_restart(bench, tmp_path):
    text = "[m]\npath = {tmp}/m\nread only = no\n"
    d = Configured(bench, tmp_path, text)
    d.reload(text, head="address = 127.0.0.1\nport = 1\nkey file = {tmp}/key\n")
    d.run.expect("address and port change only when rdcpd starts again")
    assert d.copy("key", d.url("m/")).code == 0


# ---- the manual ---------------------------------------------------------------------------------------------

def test_manual_has_each_key(bench, tmp_path):
    """And the daemon knows each key of the manual: one that it does not know is an error of its own."""
    manual = (ROOT / "man" / "rdcpd.conf.5").read_text().replace("\\-", "-")
    documented = re.findall(r"^\.TP\n\.B ([a-z ]+)$", manual, re.M)
    source = (ROOT / "src" / "cmd" / "serve" / "config.c").read_text()
    known = re.findall(r'^\t\{"([a-z ]+)", KEY_', source, re.M)
    assert sorted(documented) == sorted(known) and len(known) > 10
    file = tmp_path / "conf"
    for key in documented:
        file.write_text("%s = \n" % key)
        assert "unknown key" not in bench.run([program("rdcpd"), "--check-config", "--config", file]).errors()


def test_example_of_the_manual_is_valid(bench, tmp_path):
    manual = (ROOT / "man" / "rdcpd.conf.5").read_text().replace("\\-", "-")
    example = re.search(r"^\.SH EXAMPLE\n.*?\.nf\n(.*?)^\.fi", manual, re.S | re.M)[1].replace(".\\&", ".").replace("\\e", "\\")
    for name in ("data", "inbox"):
        (tmp_path / name).mkdir()
    r = bench.run([program("rdcpd"), "--secrets", tmp_path / "secrets", "--make-key", "alice"])
    assert r.code == 0
    file = tmp_path / "rdcpd.conf"
    file.write_text(example.replace("/etc/sluice", str(tmp_path)).replace("/srv", str(tmp_path)))
    r = bench.run([program("rdcpd"), "--check-config", "--config", file])
    assert r.code == 0, r.errors()


@pytest.mark.needs("root", why="a module of the example has another user")
def test_installed_example_is_valid(bench, tmp_path):
    for name in ("data", "public", "inbox", "mirror"):
        (tmp_path / name).mkdir()
    assert bench.run([program("rdcpd"), "--secrets", tmp_path / "secrets", "--make-key", "alice"]).code == 0
    file, example = tmp_path / "rdcpd.conf", (ROOT / "etc" / "rdcpd.conf").read_text()
    file.write_text(example.replace("= /etc/sluice", "= %s" % tmp_path).replace("= /srv", "= %s" % tmp_path))
    r = bench.run([program("rdcpd"), "--check-config", "--config", file])
    assert (r.code, r.errors()) == (0, "")
