# SPDX-License-Identifier: Apache-2.0
"""What a module changes in its clients' copies (incoming chmod), which options it refuses, and which addresses get no
process at all."""

import hashlib
import json
import os
import re
import socket
import stat

import pytest

from daemons import HERE, Configured
from hosts import ROOT, SLOW, program, wait_until
from processes import descendants

pytestmark = pytest.mark.needs("tcp", why="over TCP; test_rdcpd_rdma.py has what an adapter can change")


def modes(top):
    return {str(p.relative_to(top)): stat.S_IMODE(p.stat().st_mode) for p in top.rglob("*") if not p.name.startswith(".sluice")}


# ---- incoming chmod -----------------------------------------------------------------------------------------

CHMOD = {
    "octal": ("D2750,F640", ["-r"], {"t": 0o2750, "t/d": 0o2750, "t/d/f": 0o640, "t/x": 0o640}),
    "letters": ("Dgo-rwx, Fgo-rw,a-x".replace(" ", ""), ["-r", "--perms"], {"t": 0o600, "t/d": 0o600, "t/d/f": 0o600, "t/x": 0o600}),
    "after-the-clients": ("go=", ["-r", "--perms", "--chmod=a=rwx"], {"t": 0o700, "t/d": 0o700, "t/d/f": 0o700, "t/x": 0o700}),
    "conditional": ("u=rwX,go=rX", ["-r", "--perms"], {"t": 0o755, "t/d": 0o755, "t/d/f": 0o644, "t/x": 0o755}),
    "none": (None, ["-r", "--perms"], {"t": 0o755, "t/d": 0o770, "t/d/f": 0o664, "t/x": 0o775}),
}


@pytest.mark.parametrize("what", CHMOD)
def test_incoming_chmod(bench, tmp_path, what):
    change, options, expected = CHMOD[what]
    d = Configured(bench, tmp_path, "[m]\npath = {tmp}/m\nread only = no\n" + ("incoming chmod = %s\n" % change if change else ""))
    top = tmp_path / "t"
    (top / "d").mkdir(parents=True)
    for name, mode in (("d/f", 0o664), ("x", 0o775), ("d", 0o770), (".", 0o755)):
        if not (top / name).exists():
            (top / name).write_bytes(b"x")
        (top / name).chmod(mode)
    r = d.copy(*options, "t", d.url("m/"))
    assert r.code == 0, r.errors()
    found = modes(tmp_path / "m")
    if what == "octal" and found["t"] == 0o750:
        expected = {name: mode & 0o777 for name, mode in expected.items()}
    assert found == expected
    # A second run finds nothing to change.
    r = d.copy(*options, "--times", "--itemize-changes", "t", d.url("m/"))
    assert r.code == 0 and modes(tmp_path / "m") == found, r.errors()


def test_incoming_chmod_of_one_file_and_of_a_stream(bench, tmp_path):
    d = Configured(bench, tmp_path, "[m]\npath = {tmp}/m\nread only = no\nincoming chmod = F600\n")
    assert d.copy("key", d.url("m/a")).code == 0
    r = bench.run(["bash", "-c", 'echo x | "$@"', "-", *map(str, d.argv("-", d.url("m/b")))])
    assert r.code == 0, r.errors()
    assert modes(tmp_path / "m") == {"a": 0o600, "b": 0o600}
    # An existing file keeps its mode, unless the client asks for the source's.
    (tmp_path / "m" / "a").chmod(0o640)
    (tmp_path / "key").chmod(0o400)
    assert d.copy("key", d.url("m/a")).code == 0
    assert modes(tmp_path / "m")["a"] == 0o640
    assert d.copy("--perms", "key", d.url("m/a")).code == 0
    assert modes(tmp_path / "m")["a"] == 0o600


def test_incoming_chmod_changes_no_pull_and_permits_no_acls(bench, tmp_path):
    d = Configured(bench, tmp_path, "[m]\npath = {tmp}/m\nread only = no\nincoming chmod = F600\n")
    (tmp_path / "m" / "f").write_bytes(b"f")
    (tmp_path / "m" / "f").chmod(0o644)
    assert d.copy("--perms", d.url("m/f"), "out").code == 0
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o644
    r = d.copy("--acls", "key", d.url("m/"))
    assert r.code == 1 and "rdcpd does not permit --acls in module m" in r.errors(), r.errors()


# ---- refuse options -----------------------------------------------------------------------------------------

def refusable():
    return re.findall(r'^\t\{"(--[a-z-]+)", ', (ROOT / "src" / "cmd" / "end" / "refusals.c").read_text(), re.M)


VALUES = {"--backup-dir": "old", "--chmod": "F600", "--chown": "0:0", "--exclude": "x", "--include": "x", "--max-delete": "1",
          "--max-size": "1G", "--min-size": "1", "--print-digest": "md5", "--suffix": ".old"}
WITH = {"--delete": ["-r"], "--delete-excluded": ["-r"], "--max-delete": ["-r"], "--recursive": [], "--suffix": ["--backup"],
        "--files-from": ["-r"]}
# What another rule of rdcpd refuses first, or no client can ask for.
ELSEWHERE = {"--owner", "--group", "--chown", "--devices"}


@pytest.mark.parametrize("option", refusable())
def test_refused_option_is_named(bench, tmp_path, option):
    d = Configured(bench, tmp_path, "[no]\npath = {tmp}/no\nread only = no\ndelete = yes\nremove sources = yes\nrefuse options = %s\n"
                   "[yes]\npath = {tmp}/yes\nread only = no\ndelete = yes\nremove sources = yes\n" % option)
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "f").write_bytes(b"f")
    words = [option + "=" + VALUES[option]] if option in VALUES else [option]
    if option == "--files-from":
        (tmp_path / "list").write_text("f\n")
        words = ["--files-from=list"]
    words = [*words, *WITH.get(option, []), "t/f" if "-r" not in WITH.get(option, []) and option != "--recursive" else "t/", ]
    r = d.copy(*words, d.url("no/x"))
    assert r.code == 1, r.errors()
    assert "rdcpd does not permit %s in module no" % option in r.errors() or option in ELSEWHERE, r.errors()
    assert os.listdir(tmp_path / "no") == []
    r = d.copy(*words, d.url("yes/x"))
    assert r.code == (1 if option in ELSEWHERE else 0), r.errors()


def test_refused_options_hold_for_pulls_and_others_are_not_refused(bench, tmp_path):
    d = Configured(bench, tmp_path, "[m]\npath = {tmp}/m\nrefuse options = recursive, --checksum delete\n")
    (tmp_path / "m" / "f").write_bytes(b"f")
    for option in ("-r", "-a", "--checksum"):
        r = d.copy(option, d.url("m/f"), "out")
        assert r.code == 1 and re.search("does not permit --(recursive|checksum) in module m", r.errors()), r.errors()
    assert d.copy("--perms", "--times", d.url("m/f"), "out").code == 0


WRONG = {
    "option": ("[a]\npath = {tmp}\nrefuse options = delete nonsense\n", 3, "nonsense is no option that can be refused"),
    "none": ("[a]\npath = {tmp}\nrefuse options = ,\n", 3, "no option is given"),
    "chmod": ("[a]\npath = {tmp}\nincoming chmod = D755;F644\n", 3, "D755;F644 is no change of modes, such as D755,F644"),
    "hosts": ("hosts allow = example.org\n[a]\npath = {tmp}\n", 1, "names are not looked up"),
}


@pytest.mark.parametrize("what", WRONG)
def test_errors_have_lines(bench, tmp_path, what):
    text, line, message = WRONG[what]
    file = tmp_path / "conf"
    file.write_text(text.replace("{tmp}", str(tmp_path)))
    r = bench.run([program("rdcpd"), "--check-config", "--config", file])
    assert r.code == 1 and "%s:%d: " % (file, line) in r.errors() and message in r.errors(), r.errors()


# ---- addresses ----------------------------------------------------------------------------------------------

@pytest.mark.parametrize("rules, admitted", [("hosts allow = 127.0.0.1", True), ("hosts allow = 10.0.0.0/8", False),
                                             ("hosts deny = 127.0.0.0/8", False), ("hosts deny = *\nhosts allow = 127.0.0.1", True)])
def test_hosts_of_the_daemon(bench, tmp_path, rules, admitted):
    d = Configured(bench, tmp_path, "[m]\npath = {tmp}/m\nread only = no\nhosts allow = *\n", keys=rules + "\n")
    r = (d.copy if admitted else d.copy_at_once)("key", d.url("m/"))
    assert r.code == (0 if admitted else 35), r.errors()
    if not admitted:
        d.run.expect("its address may not use rdcpd")
    assert ("its address may not use rdcpd" in d.run.errors()) == (not admitted)


def test_refused_addresses_cost_no_process_and_few_lines(bench, tmp_path):
    d = Configured(bench, tmp_path, "[m]\npath = {tmp}/m\n", keys="hosts deny = 127.0.0.0/8\n")
    hello = d.fresh_hello()
    lines = 0
    for i in range(300):
        with socket.create_connection((HERE, d.port)) as s:
            s.settimeout(20 * SLOW)
            s.sendall(hello)
            try:
                assert s.recv(1) == b""
            except ConnectionError:
                pass
        assert descendants(d.run.proc.pid) == []
    lines = d.run.errors().count("its address may not use rdcpd")
    # One a second at most; how long this takes depends on the machine.
    assert 1 <= lines < 150
    d.reload("[m]\npath = {tmp}/m\n")
    d.run.expect("loaded the settings again")
    assert d.copy(d.url("m/")).code == 0
    wait_until(lambda: d.children() == [])


def test_manual_names_what_can_be_refused():
    manual = (ROOT / "man" / "rdcpd.conf.5").read_text().replace("\\-", "-")
    text = re.search(r"^What can be refused:\n(.*)\.$", manual, re.M)[1]
    assert ["--" + name for name in text.split(", ")] == refusable()


@pytest.mark.parametrize("options, old, keeps", [
    (["--backup"], "f~/sub/x", "anonymous"), (["--backup", "--suffix=ull"], "full/x", "anonymous"),
    (["--backup"], "f~/sub/x", "key"), (["--backup-dir=keep"], "keep/f/sub/x", "key"), (["--backup-dir=keep"], "keep/f/sub/x", "")])
def test_a_backup_removes_no_tree_where_nothing_may_be_deleted(bench, tmp_path, options, old, keeps):
    """The client chooses its name, and so any tree of the module."""
    d = Configured(bench, tmp_path, "[m]\npath = {tmp}/m\nread only = no\ndelete = %s\n%s" % (
        "no" if keeps == "key" else "yes", "anonymous = yes\nanonymous write = yes\n" if keeps == "anonymous" else ""))
    top = tmp_path / "m"
    (top / old).parent.mkdir(parents=True)
    (top / old).write_bytes(b"precious")
    (top / "f").write_bytes(b"old")
    (tmp_path / "f").write_bytes(b"newer")
    client = [program("rdcp")] if keeps == "anonymous" else d.argv()
    r = bench.run([*client, *options, "f", d.url("m/f")], cwd=tmp_path)
    if keeps:
        assert r.code == 11 and "nothing may be deleted here" in r.errors(), (r.code, r.errors())
        assert (top / old).read_bytes() == b"precious" and (top / "f").read_bytes() == b"old"
    else:
        assert r.code == 0 and (top / "f").read_bytes() == b"newer" and not (top / old).exists(), (r.code, r.errors())


# ---- write only: nothing is learnt of contents ---------------------------------------------------------------


@pytest.mark.parametrize("size", [6, 3 << 20])
def test_write_only_module_tells_no_digest(bench, tmp_path, size):
    d = Configured(bench, tmp_path, "[m]\npath = {tmp}/m\nread only = no\nwrite only = yes\n")
    secret, guess = b"secret".ljust(size, b"s"), b"guess!".ljust(size, b"g")
    for name, data in (("m/f", secret), ("t/f", guess)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
        os.utime(tmp_path / name, (1, 1))
    r = d.copy("-a", "--print-digest=sha256", "t/", d.url("m/"))
    assert r.code == 0 and hashlib.sha256(guess).hexdigest() in r.out.decode(), (r.out, r.errors())
    assert (tmp_path / "m" / "f").read_bytes() == guess
    for options in ["--checksum"], ["--checksum", "--print-digest=sha256"], ["--checksum", "--inplace"]:
        r = d.copy("-a", "--json", *options, "t/", d.url("m/"))
        assert r.code == 0 and json.loads(r.out.splitlines()[-1])["bytes"] == size, r.out
    # By size and time alone it is the same.
    r = d.copy("-a", "--json", "t/", d.url("m/"))
    assert r.code == 0 and json.loads(r.out.splitlines()[-1])["bytes"] == 0, r.out
