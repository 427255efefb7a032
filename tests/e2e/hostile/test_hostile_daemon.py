# SPDX-License-Identifier: Apache-2.0
"""Hostile clients of a rdcpd, with its key or without. As in arena.py: what they do is refused, no sanitizer reports
anything, and nothing outside the module is read or written. A session of another client is open all the time, and ends
well afterwards."""

import fcntl
import os
import socket
import termios
import threading
import time

import pytest

from arena import SOON, Store, ends, fails, manifest, play, take_all
from daemons import HERE, private_memory
from doors import STRANGERS, knock, shown_out
from hosts import COUNT, SLOW, program, share, simulated, wait_until
from processes import children, descendants
from test_hostile_start import STARTS

import peer
import tls
import wire
from far_end import VERDICT
from peer import (BLOCK, CHAR, NAMES, RDMA, SINK, SOURCE, SSH, data_record, dir_record, file_record, link_records, small_records, total_of)

SECRET = b"beside the target"   # what arena.py puts there


class Served:
    """A rdcpd on the arena: its module rw is the target, and ro has files to read. Nothing else is theirs."""

    def __init__(self, arena, env=None):
        self.arena, top = arena, arena.top
        self.key_file = top / "key"
        assert arena.bench.run([program("rdcpd"), "--make-key", self.key_file]).code == 0
        self.key = bytes.fromhex(self.key_file.read_text().strip().split(":")[1])
        (top / "ro" / "sub").mkdir(parents=True)
        (top / "ro" / "f").write_bytes(b"readable")
        (top / "ro" / "sub" / "g").write_bytes(b"too")
        for module in ("ro", "target"):
            self.plant(top / module)
        self.run = arena.bench.start([program("rdcpd"), "--key-file", self.key_file, "--port=0", "--address", HERE, "-v",
                                      "--module=rw=%s:rw" % arena.target, "--module=ro=%s" % (top / "ro")], env={**arena.env(), **(env or {})})
        self.port = int(self.run.expect("listening on").rsplit(":", 1)[1])
        arena.before = manifest(top, arena.target)
        self.bystander = self.guest(SINK, target="bystander").orders()
        self.bystander_lane = self.bystander.open()[0]

    def plant(self, module):
        """Links that lead out of the module for everybody else."""
        (module / "up").symlink_to("..")
        (module / "abs").symlink_to(self.arena.top)
        (module / "out").symlink_to(self.arena.top / "f")
        (module / "self").symlink_to("/proc/self/root")
        (module / "loop").symlink_to("loop")

    def guest(self, role, **how):
        e = peer.Guest(self.port, self.key, role, **how)
        self.arena.sessions.append(e)
        return e

    def sink(self, wants=("dir/f",), **how):
        return self.guest(SINK, wants=wants, **{"target": "f", **how})

    def source(self, wants=("f",), **how):
        return self.guest(SOURCE, wants=wants, **{"module": "ro", **how})

    def log(self, text):
        self.run.expect(text)

    def settle(self):
        """The bystander goes on, and later clients are served."""
        e, lane = self.bystander, self.bystander_lane
        complete(e, lane)
        assert (self.arena.target / "bystander").read_bytes() == b"good"
        for session in self.arena.sessions:
            session.close()
        wait_until(lambda: descendants(self.run.proc.pid) == [])
        assert self.run.proc.poll() is None


@pytest.fixture
def served(arena):
    s = Served(arena)
    yield s
    s.settle()


def in_the_target(served):
    """All paths below the target that are no plants, without temporaries."""
    return sorted(str(p.relative_to(served.arena.target)) for p in served.arena.target.rglob("*")
                  if not p.name.startswith(".sluice.") and p.name not in ("up", "abs", "out", "self", "loop", "bystander"))


def complete(e, lane):
    """Sends one file, as an honest source does."""
    lane.records(small_records(b"good"))
    assert e.result()["code"] == 0
    lane.all_credited()
    e.frames.send("END", **total_of(b"good"))
    ends(e, 0)


# ---- honest clients ------------------------------------------------------------------------------------------

def test_honest_sessions_succeed(served):
    e = served.sink(target="new").orders()
    complete(e, e.open()[0])
    assert (served.arena.target / "new").read_bytes() == b"good"
    e = served.source().orders()
    records = dict(take_all(e, e.open()[0]))
    assert records["DATA"]["bytes"] == b"readable"
    e.say_stored(records["FILE"]["id"])
    e.frames.send("DONE", **e.frames.expect("END"))
    ends(e, 0)


# ---- before there is a session -------------------------------------------------------------------------------------

class Tap:
    """Stands between a client and the daemon, and keeps what the client sends."""

    def __init__(self, port):
        self.server, self.port, self.sent = socket.create_server((HERE, 0)), port, b""
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        client, _ = self.server.accept()
        daemon = socket.create_connection((HERE, self.port))

        def pump(a, b, keep):
            try:
                while data := a.recv(65536):
                    self.sent += data if keep else b""
                    b.sendall(data)
                b.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        threading.Thread(target=pump, args=(daemon, client, False), daemon=True).start()
        pump(client, daemon, True)


def recorded_session(served):
    tap = Tap(served.port)
    e = peer.Guest(tap.server.getsockname()[1], served.key, SOURCE, module="ro")
    e.orders()
    e.frames.expect("HELLO")
    e.close()
    tap.server.close()
    return tap.sent


def answer_to(served, data):
    """All that the daemon sends to a caller that says this."""
    sock, got = knock(served.port, data), b""
    sock.settimeout(15 * SLOW)
    try:
        while more := sock.recv(65536):
            got += more
    except ConnectionError:
        pass
    sock.close()
    return got


def test_replayed_session_gets_nothing(served):
    sent = recorded_session(served)
    assert answer_to(served, sent) == b""


def test_changed_handshakes_are_refused(served):
    """One changed bit of a recorded ClientHello. No key, no GREETING: a TLS alert at most."""
    sent = recorded_session(served)
    hello = sent[:5 + int.from_bytes(sent[3:5], "big")]
    places = range(len(hello)) if COUNT > 1 else range(0, len(hello), 9)
    for at in places:
        changed = hello[:at] + bytes([hello[at] ^ 1]) + hello[at + 1:] + sent[len(hello):]
        got = answer_to(served, changed)
        assert not got or got[0] == 0x15 or got[0] == 0x16, got[:8]
        assert wire.GREETING_MAGIC not in got


@pytest.mark.parametrize("what", ["wrong-key", "other-role", "no-user", "unknown-user"])
def test_other_secrets_and_names_are_refused_and_logged(served, what):
    key = bytes(32) if what == "wrong-key" else served.key
    identity = {"other-role": b"sluice:source:-", "no-user": b"sluice:conductor:", "unknown-user": b"sluice:conductor:root"}
    with pytest.raises(tls.Refused):
        peer.Guest(served.port, key, SINK, identity=identity.get(what, b"sluice:conductor:-"))
    served.log("rejected")


MODULES = {
    "version-0": dict(version=0), "version-1": dict(version=1), "version-99": dict(version=99), "version-65535": dict(version=2**16 - 1),
    "long": dict(name="n" * 64), "longest": dict(name="n" * 60000), "nul": dict(name=b"r\0w"),
}
FIRST = {
    **{what: lambda over=over: wire.message("MODULE", **{"version": wire.VERSION, "name": "rw", **over}) for what, over in MODULES.items()},
    "cut": lambda: wire.message("MODULE", version=wire.VERSION, name="rw")[:-1] + b"\0\0",
    "padding": lambda: wire.message("MODULE", version=wire.VERSION, name="rw")[:5] + b"\1" + wire.message("MODULE", version=wire.VERSION, name="rw")[6:],
    "unknown": lambda: b"\0\0\0\0\xff\0\0\0", "huge": lambda: b"\xff\xff\xff\xff" + wire.message("MODULE", version=wire.VERSION, name="rw")[4:],
    "GO": lambda: wire.message("GO"), "GREETING": lambda: wire.message("GREETING", magic=wire.GREETING_MAGIC, version=wire.VERSION, release="1"),
    "PING": lambda: wire.message("PING", cookie=1),
}


def test_another_first_frame_ends_the_session(served):
    for what in FIRST:
        print(repr(what))
        e = served.guest(SINK, first=FIRST[what]())
        assert e.frames.verdict() is None and e.frames.got == []
        served.log("rejected")


NO_MODULES = ["", ".", "..", "../rw", "rw/", "/", "RW", "\x1b[2J", "r\nw", "n" * 63]


def test_unknown_modules_are_refused(served):
    for name in NO_MODULES:
        print(repr(name))
        e = served.guest(SINK, module=name, target="f").orders()
        said = fails(e, 3)
        assert b"no module" in said["text"]
        assert (served.arena.target / "f").read_bytes() == b"old"


CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER = 1 << 0, 1 << 1, 1 << 3


def rights(pid):
    """(users, effective capabilities) of a process"""
    lines = dict(line.split(":", 1) for line in open("/proc/%d/status" % pid))
    return set(lines["Uid"].split()), int(lines["CapEff"], 16)


@pytest.mark.parametrize("name", ["", "missing"])
def test_a_client_without_a_module_has_no_rights(served, name):
    """Neither the process that decrypts what it sends nor its end is root's."""
    before = set(descendants(served.run.proc.pid))
    e = served.guest(SOURCE, module=name)
    e.greeting()
    user = "65534" if os.geteuid() == 0 else str(os.geteuid())
    wait_until(lambda: len(set(descendants(served.run.proc.pid)) - before) == 2)
    for pid in set(descendants(served.run.proc.pid)) - before:
        wait_until(lambda pid=pid: rights(pid) == ({user}, 0))


def test_no_process_of_a_client_can_leave_the_module(served):
    """The one that decrypts what a client sends has no capability, and its end none that opens files by their handles."""
    before = set(descendants(served.run.proc.pid))
    served.guest(SINK).greeting()
    wait_until(lambda: len(set(descendants(served.run.proc.pid)) - before) == 2)
    first = set(children(served.run.proc.pid)) - before
    end, = set(descendants(served.run.proc.pid)) - before - first
    wait_until(lambda: [rights(pid)[1] for pid in first] == [0])
    wait_until(lambda: rights(end)[1] & ~(CAP_CHOWN | CAP_DAC_OVERRIDE | CAP_FOWNER) == 0)


def test_second_module_is_refused(served):
    e = served.sink()
    e.greeting()
    e.frames.send("MODULE", version=wire.VERSION, name="ro")
    fails(e, 12)
    e = served.sink().orders()
    e.frames.send("MODULE", version=wire.VERSION, name="ro")
    fails(e, 12)


# ---- listings -----------------------------------------------------------------------------------------------------

def listing(served, *messages, module="ro"):
    """What a client gets that sends these: the names of the entries, and the verdict."""
    e = served.guest(SOURCE, module=module)
    e.greeting()
    for message in messages:
        e.frames.write(message)
    said = e.frames.verdict()
    return [m["name"] for name, m in e.frames.got if name == "ENTRY"], said


def ask(path):
    return wire.message("LIST", name=path)


OUTSIDE_LISTS = ["..", "../", "a/../..", "/", "/etc/", "//", "./..", "../rw/", "x/../../rw/"]


def test_lists_outside_the_module_are_refused(served):
    for path in OUTSIDE_LISTS:
        print(repr(path))
        names, said = listing(served, ask(path))
        assert names == [] and said["code"] == 1, said


def test_lists_that_get_nothing(served):
    for module, path, code in (("none", "", 3), ("ro", "none", 3), ("ro", "n" * 4095, 11), ("", "ro", 3), ("", "/", 3)):
        print(repr(module), repr(path[:9]))
        names, said = listing(served, ask(path), module=module)
        assert names == [] and said["code"] == code, said


def test_malformed_lists_are_refused(served):
    for message in (ask("n" * 4096), ask(b"a\0b"), ask("")[:-1] + b"\1", b"\1" + ask("")[1:], wire.message("ENTRY", kind=2, mode=0, size=0, mtime=0, name="f", about="")):
        names, said = listing(served, message)
        assert names == [] and (said is None or said["code"] == 12), said


def test_a_list_is_the_only_order(served):
    names, said = listing(served, ask(""), ask(""), wire.message("GO"))
    assert said["code"] == 0
    e = served.source()
    e.greeting()
    e.frames.send("START", **e.start_values)
    e.frames.send("LIST", name="")
    fails(e, 12)
    e = served.guest(SOURCE, module="")
    e.orders()
    fails(e, 3)


def unread_memory(served, path, count):
    """The memory of rdcpd's processes while a client does not read a listing, which it gets afterwards."""
    e = served.guest(SOURCE)
    e.greeting()
    before, gate = e.frames.read, threading.Event()
    e.frames.read = lambda: gate.wait() and before()
    e.frames.write(ask(path))
    unread = [0]
    while unread[-1] == 0 or unread[-10:] != unread[-1:] * 10:
        time.sleep(.05)
        unread.append(int.from_bytes(fcntl.ioctl(e.sock, termios.FIONREAD, bytes(4)), "little"))
    memory = sum(map(private_memory, descendants(served.run.proc.pid)))
    gate.set()
    said = e.frames.verdict()
    assert said["code"] == 0 and sum(name == "ENTRY" for name, _ in e.frames.got) == count, said
    return memory


def test_a_listing_that_nobody_reads_takes_no_memory(served):
    """The daemon waits, and holds no more than one entry. Both listings are larger than the buffers of the connection."""
    for name, count in (("some", 4000), ("many", 8000)):
        (served.arena.target / name).mkdir()
        for i in range(count):
            (served.arena.target / name / str(i)).symlink_to("x" * 3000)
    some, many = unread_memory(served, "some/", 4000), unread_memory(served, "many/", 8000)
    assert many < some + (4 << 20), (some, many)


# ---- orders --------------------------------------------------------------------------------------------------------

def test_invalid_orders_are_refused(served):
    for what in share(sorted(STARTS), 12):
        print(repr(what))
        over, code = STARTS[what]
        fails(served.sink().orders(**over), code)
        served.log("exit code %d" % code)


REFUSED = {
    **{flag: (SINK, dict(flags=[flag]), 1) for flag in (
        "STDIO", "MEMORY", "UNCHECKED", "PROBE", "SCRATCH", "DELETE", "DELETE_EXCLUDED", "XATTRS_ALL", "DEVICES", "OWNER", "GROUP")},
    **{flag + "-of-a-source": (SOURCE, dict(flags=[flag]), 1) for flag in (
        "STDIO", "MEMORY", "UNCHECKED", "PROBE", "SCRATCH", "REMOVE_SOURCE", "XATTRS_ALL")},
    "chown": (SINK, dict(chown="0:0"), 1), "not-listening": (SINK, dict(listens=False), 1),
    "ssh": (SINK, dict(want=SSH), 43), "writes": (SINK, dict(module="ro"), 11),
    "PROBE-and-SCRATCH": (SINK, dict(flags=["PROBE", "SCRATCH"]), 1),
}


# ---- where the daemon has an adapter -----------------------------------------------------------------------------

AUTO, TCP = 0, 2
# What a client says that claims to have an adapter, too.
CLAIM = dict(lockable=peer.U64, no_rdma="", want=AUTO)
QUICK = dict(timeout_ms=2000, connect_timeout_ms=2000)


@pytest.fixture
def equipped(arena):
    s = Served(arena, env=simulated("connectx-roce"))
    yield s
    s.settle()


def claimed(served, want=AUTO, **how):
    e = served.sink(target="new", want=want, **QUICK, **how).orders()
    e.hello(**{**CLAIM, "want": want})
    return e


def test_a_client_that_takes_tcp_beside_an_adapter(equipped):
    e = claimed(equipped)
    assert {p["transport"] for p in e.offered()["places"]} == {RDMA, TCP}
    lane = e.dial()
    e.frames.send("CHOICE", transport=TCP, why="as I like it")
    complete(e, lane)
    assert (equipped.arena.target / "new").read_bytes() == b"good"


def test_clients_that_choose_rdma_and_bring_no_lane(equipped):
    sessions = [claimed(equipped) for _ in range(3)]
    for e in sessions:
        e.offered()
        e.frames.send("CHOICE", transport=RDMA, why="")
    for e in sessions:
        fails(e, 30, 35, 44)
    assert in_the_target(equipped) == ["f"]


def test_rdma_that_is_demanded_and_not_used(equipped):
    e = equipped.sink(target="new", want=RDMA, **QUICK).orders()
    e.hello(want=RDMA)
    fails(e, 43)
    e = claimed(equipped, RDMA)
    assert {p["transport"] for p in e.frames.expect("OFFER")["places"]} == {RDMA}
    e.frames.send("CHOICE", transport=TCP, why="")
    fails(e, 12)
    e = claimed(equipped, RDMA)
    e.frames.expect("OFFER")
    e.frames.send("NOROUTE", round=0, why="I do not like these")
    fails(e, 43)
    assert in_the_target(equipped) == ["f"]


def test_a_client_without_an_adapter_demands_rdma(served):
    e = served.sink(want=RDMA, **QUICK).orders()
    e.hello(**{**CLAIM, "want": RDMA})
    fails(e, 43)


def test_orders_that_a_module_does_not_permit(served):
    for what in REFUSED:
        print(repr(what))
        role, how, code = REFUSED[what]
        e = (served.sink if role == SINK else served.source)(**how).orders()
        fails(e, code)
        assert in_the_target(served) == ["f"]
        assert (served.arena.target / "f").read_bytes() == b"old"


@pytest.mark.parametrize("wish", [0, 1 << 40, 2 ** 64 - 1])
def test_orders_cannot_raise_the_memory(served, wish):
    """0 means no limit elsewhere."""
    e = served.sink(memory=wish).orders()
    assert e.frames.expect("HELLO")["memory"] <= 256 << 20


def test_orders_open_no_other_port(served):
    """A port range and an address are of no use: all connections come to the daemon's port."""
    e = served.sink(address="127.0.0.2", port_lo=20000, port_hi=60000).orders()
    e.hello()
    e.offered()
    assert {(p["port"], p["transport"]) for p in e.offer["places"]} == {(served.port, peer.TCP)}
    # Those of --address, and nothing of other addresses of the host.
    assert [p["addr"][:4] for p in e.offer["places"]] == [socket.inet_aton(HERE)]
    e.hang_up()


@pytest.mark.parametrize("frame", ["WANT", "RULE", "LISTED"])
def test_orders_without_end_use_bounded_memory(served, frame):
    e = served.sink(flags=["FILES_FROM"] if frame == "LISTED" else [])
    e.greeting()
    e.frames.send("START", **e.start_values)
    if frame != "WANT":
        e.frames.send("WANT", name="dir")
    many = {"WANT": wire.message("WANT", name="n" * 4000), "RULE": wire.message("RULE", include=0, pattern="p" * 4000),
            "LISTED": wire.message("LISTED", name="n" * 4000)}[frame] * 100
    most = 0
    for n in range(400):
        if not e.frames.raw(many):
            break
        if n % 20:
            continue
        most = max([most, *map(private_memory, descendants(served.run.proc.pid))])
    # A client that only sends may not see why.
    assert e.proc.wait(2 * SOON) in (12, None)
    served.log("exit code 12")
    assert most < 300 << 20


if COUNT > 1:
    def test_orders_have_30_seconds(served):
        e = served.sink()
        e.greeting()
        e.frames.send("START", **e.start_values)
        begin = time.monotonic()
        while not e.frames.over and time.monotonic() - begin < 60 * SLOW:
            e.frames.send("WANT", name="n%d" % time.monotonic_ns())
            time.sleep(1)
        assert 25 < time.monotonic() - begin < 45 * SLOW


# ---- paths ----------------------------------------------------------------------------------------------------------

PATHS = ["..", "../f", "../outside/f", "sub/../../f", "sub/..", "/f", "/etc/passwd", "//f", "up/f", "up/outside/f", "abs/f", "out",
         "self/etc/passwd", "loop", "loop/f", "./../f", "sub/./../../f", "~/f", "~root/f", "*", "[a-z]", "proc/self/cwd/f",
         "/proc/self/root", "/proc/self/fd/0", "/dev/fd/0", "dev/null", ".sluice.marker", "f/g", "d/" * 200 + "f", "x" * 256,
         b"f\xff", b"\x1b[2J"]


def test_nothing_outside_is_read(served):
    """A source that is asked for this refuses, or does not find it."""
    for path in PATHS:
        print(repr(path))
        e = served.source(wants=())
        e.greeting()
        e.frames.send("START", **e.start_values)
        e.frames.send("WANT", name=path)
        e.frames.send("GO")
        try:
            e.hello()
            e.offered()
        except peer.Silence:
            fails(e, 1, 3, 11, 12)
            continue
        store = Store(e, e.dial())
        e.frames.send("CHOICE", transport=peer.TCP, why="")
        try:
            e.frames.send("DONE", **e.frames.expect("END"))
        except peer.Silence:
            pass
        e.frames.verdict()
        assert not [v for n, v in store.records if n == "DATA" and v["bytes"] != b"readable"]


@pytest.mark.parametrize("field", ["target", "backup_dir"])
def test_nothing_outside_is_written(served, field):
    """The arena sees what changed outside. Within the module anything may have."""
    for path in PATHS:
        print(repr(path))
        e = served.sink(wants=("f",), flags=["MKPATH", *["BACKUP"] * (field == "backup_dir")], **{field: path}).orders()
        try:
            e.open()[0].records(small_records(b"evil"))
            e.result()
            e.end(**total_of(b"evil"))
        except (peer.Silence, EOFError, OSError):
            pass
        assert e.frames.verdict() is not None


@pytest.mark.parametrize("what", ["directory", "file", "symlink"])
def test_names_are_checked(served, what):
    """What a client may name in a tree is one plain component."""
    permitted = {"f", "dir"}
    for name in share(sorted(NAMES), 9):
        print(repr(name))
        bad = NAMES[name]
        e = served.sink(wants=["dir"], target="", flags=["RECURSIVE"]).orders()
        lane = e.open()[0]
        play(e, lane, [dir_record(name="dir"), {
            "directory": lambda: dir_record(id=2, parent=1, name=bad), "file": lambda: small_records(b"bad", id=2, dir=1, name=bad),
            "symlink": lambda: link_records("/f", id=2, dir=1, name=bad)}[what]()])
        if b"/" not in bad and b"\0" not in bad and 0 < len(bad) < 256 and bad not in (b".", b".."):
            permitted.add("dir/" + os.fsdecode(bad))
            e.hang_up()
            continue
        fails(e, 12)
        assert permitted.issuperset(in_the_target(served))


WAYS_OUT = ["..", "../..", "/", "../outside", "/proc/self/root", "/proc/self/cwd/..", "up/..", "self"]


@pytest.mark.parametrize("way", WAYS_OUT)
def test_links_that_a_client_makes_lead_nowhere(served, way):
    """A symlink is made in one session. The next one writes through it, another one reads through it."""
    top = served.arena.top
    e = served.sink(wants=["ways"], target="", flags=["RECURSIVE"]).orders()
    lane = e.open()[0]
    play(e, lane, [dir_record(name="ways"), link_records(way, id=2, dir=1, name="way")])
    assert e.result()["code"] == 0
    e.end(**total_of(others=2))
    ends(e, 0)
    for path in ("ways/way/f", "ways/way/outside/f", "ways/way" + str(top) + "/f"):
        e = served.source(module="rw", wants=[path]).orders()
        try:
            records = take_all(e, e.open()[0])
        except (peer.Silence, EOFError, OSError):
            records = []
        assert SECRET not in b"".join(v["bytes"] for n, v in records if n == "DATA")
        e.hang_up()
        e = served.sink(wants=["f"], target=path).orders()
        try:
            e.open()[0].records(small_records(b"evil"))
            e.result()
        except (peer.Silence, EOFError, OSError):
            pass
        e.hang_up()


def test_a_link_in_place_of_a_directory_of_the_same_session(served):
    """way is a directory, then a link, then a directory again, and files are written through each."""
    for order in ([dir_record(name="way"), link_records("../outside", id=2, name="way"), small_records(b"evil", id=3, dir=1)],
                  [link_records("../outside", id=2, name="way"), dir_record(name="way"), small_records(b"evil", id=3, dir=1)],
                  [link_records("..", id=2, name="way"), small_records(b"evil", id=3, dir=2)]):
        e = served.sink(wants=["way", "way"], target="", flags=["RECURSIVE"]).orders()
        play(e, e.open()[0], order)
        time.sleep(.1)
        e.hang_up()


NODES = {
    "device": small_records(id=2, dir=1, type=CHAR, major=1, minor=3, name="n"),
    "disk": small_records(id=2, dir=1, type=BLOCK, major=8, name="n"),
    "type-0": small_records(id=2, dir=1, type=0, name="n"), "type-9": small_records(id=2, dir=1, type=9, name="n"),
}


def test_nodes_are_refused(served):
    for what in NODES:
        print(repr(what))
        e = served.sink(wants=["dir"], target="", flags=["RECURSIVE"]).orders()
        play(e, e.open()[0], [dir_record(name="dir"), NODES[what]])
        fails(e, 12)
        assert in_the_target(served) in (["f"], ["dir", "f"])


def test_set_id_bits_do_not_arrive(served):
    for n, flags in enumerate([[], ["PERMS"]]):
        e = served.sink(target="set%d" % n, flags=flags, chmod="").orders()
        e.open()[0].records(small_records(b"x", mode=0o6777))
        e.result()
        e.end(**total_of(b"x"))
        ends(e, 0)
        assert not (served.arena.target / ("set%d" % n)).stat().st_mode & 0o7000
    e = served.sink(target="set", chmod="u+s,g+s").orders()
    try:
        e.open()[0].records(small_records(b"x"))
        e.result()
    except (peer.Silence, EOFError, OSError):
        pass
    e.hang_up()
    wait_until(lambda: len(descendants(served.run.proc.pid)) <= 2)
    assert not [p for p in served.arena.target.rglob("*") if not p.is_symlink() and p.is_file() and p.stat().st_mode & 0o6000]


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_races_with_links_lead_nowhere(served, kind):
    """Somebody with access to the module swaps a directory of it for a link out of it, all the time."""
    top, stop, rounds = served.arena.target, threading.Event(), [0, 0]
    outside = served.arena.top / "outside"
    (top / "real").mkdir()
    (top / "real" / "f").write_bytes(b"inside")
    (top / "link").symlink_to(outside if kind == "directory" else outside / "f")

    def swap():
        here, there = ("real", "link") if kind == "directory" else ("real/f", "link")
        while not stop.is_set():
            for name in (here, there):
                lead_to(top / "swapped", top / name)
            rounds[0] += 1
    os.symlink("real" if kind == "directory" else "real/f", top / "swapped")
    thread = threading.Thread(target=swap, daemon=True)
    thread.start()
    end = time.monotonic() + (1.5 if COUNT == 1 else 10)
    try:
        while time.monotonic() < end:
            path = "swapped/f" if kind == "directory" else "swapped"
            e = served.sink(wants=["f"], target=path, flags=["BACKUP", "FSYNC"]).orders()
            try:
                e.open()[0].records(small_records(b"evil"))
                e.result(.5)
            except (peer.Silence, EOFError, OSError):
                pass
            e.close()
            e = served.source(module="rw", wants=[path]).orders()
            try:
                records = take_all(e, e.open()[0])
            except (peer.Silence, EOFError, OSError):
                records = []
            e.close()
            assert b"outside" not in b"".join(v["bytes"] for n, v in records if n == "DATA")
            rounds[1] += 1
    finally:
        stop.set()
        thread.join()
    assert rounds[0] > 20 and rounds[1] > 0


def lead_to(link, to):
    """Lets a link lead elsewhere, in one step."""
    new = str(link) + ".new"
    os.symlink(os.path.relpath(to, link.parent), new)
    os.rename(new, link)


# ---- frames and lanes -------------------------------------------------------------------------------------------------

EARLY = {
    "OFFER": dict(round=0, session=1, places=[], no_rdma=""), "CHOICE": dict(transport=peer.TCP, why=""), "END": wire.NO_TOTAL,
    "DONE": wire.NO_TOTAL, "STORED": dict(files=[]), "VERDICT": VERDICT, "LISTENING": dict(port=1, why=""),
    "GREETING": dict(magic=wire.GREETING_MAGIC, version=wire.VERSION, release="1"), "NOROUTE": dict(round=0, why=""),
    "LANE_DOWN": dict(lane=0, epoch=0, why=""), "PONG": dict(cookie=1), "GO": {},
}


@pytest.mark.parametrize("early", [True, False], ids=["before-orders", "after-orders"])
def test_frames_out_of_order_are_refused(served, early):
    for what, values in EARLY.items():
        print(what)
        e = served.sink()
        if early:
            e.greeting()
        else:
            e.orders().frames.expect("HELLO")
        e.frames.send(what, **values)
        fails(e, 12)


def test_strangers_at_a_lanes_place_are_closed(served):
    """They come to the daemon's port like the lanes of this session, which goes on."""
    for what in share(sorted(STRANGERS), 12):
        print(repr(what))
        e = served.sink(target="g").orders()
        e.hello()
        e.offered()
        lane = e.dial(greet=False)
        lane.raw(STRANGERS[what](lane))
        if what == "half":
            lane.sock.shutdown(socket.SHUT_WR)
        assert lane.closed()
        good = e.dial()
        e.frames.send("CHOICE", transport=peer.TCP, why="")
        complete(e, good)


def open_two(served):
    both = []
    for name in ("one", "two"):
        e = served.sink(target=name).orders()
        e.hello()
        e.offered()
        both.append(e)
    return both


def test_lane_hello_of_another_session_is_closed(served):
    """The id of one session with the key of another one, and the other way round."""
    one, two = open_two(served)
    for mine, other in ((one, two), (two, one)):
        key = wire.Key(mine.secret, mine.nonce, bytes(32))
        key.session = other.key.session
        lane = mine.dial(greet=False)
        lane.raw(lane.hello(key=key))
        assert lane.closed()
        lane = mine.dial(greet=False)
        hello = bytearray(lane.hello())
        theirs = other.dial(greet=False).hello()
        at = next(i for i in range(len(hello) - 8) if hello[i:i + 8] == bytes(peer.le64(mine.key.session)))
        hello[at:at + 8] = theirs[at:at + 8]
        lane.raw(bytes(hello))
        assert lane.closed()
    for e in (one, two):
        lane = e.dial()
        e.frames.send("CHOICE", transport=peer.TCP, why="")
        complete(e, lane)


def test_replayed_lane_is_closed(served):
    """Each epoch of a lane is valid once."""
    e = served.sink(target="g").orders()
    e.hello()
    e.offered()
    lane = e.dial(greet=False)
    hello = lane.hello()
    lane.raw(hello)
    lane.begin(wire.parse_lane_hello(e.key, lane.take(wire.LANE_HELLO_SIZE)))
    e.frames.send("CHOICE", transport=peer.TCP, why="")
    for _ in range(3):
        shown_out(knock(served.port, hello))
    complete(e, lane)
    # The session is over.
    shown_out(knock(served.port, hello))


def test_a_flood_of_false_lanes_harms_no_session(served):
    e = served.sink(target="g").orders()
    e.hello()
    e.offered()
    socks = []
    for n in range(300):
        lane = e.dial(greet=False)
        lane.raw(lane.hello(key=wire.Key(bytes(32), bytes(32), bytes(32)), session=e.key.session))
        socks.append(lane)
    good = e.dial()
    e.frames.send("CHOICE", transport=peer.TCP, why="")
    complete(e, good)
    for lane in socks:
        lane.close()


@pytest.mark.parametrize("stage", ["tls", "module", "greeting", "start", "go", "hello", "offer", "lane", "data"])
def test_a_client_that_hangs_up_leaves_nothing(served, stage):
    """At each stage; settle() finds no process of it."""
    before = len(descendants(served.run.proc.pid))
    e = served.sink(target="g", first=b"" if stage == "tls" else None)
    stages = ["tls", "module", "greeting", "start", "go", "hello", "offer", "lane", "data"]
    at = stages.index(stage)
    if at >= 2:
        e.greeting()
    if at >= 3:
        e.frames.send("START", **e.start_values)
    if at >= 4:
        e.frames.send("WANT", name="f")
        e.frames.send("GO")
    if at >= 5:
        e.hello()
    if at >= 6:
        e.offered()
    if at >= 7:
        lane = e.dial()
        e.frames.send("CHOICE", transport=peer.TCP, why="")
    if at >= 8:
        lane.records(file_record(size=1 << 20), data_record(b"some"))
    e.close()
    wait_until(lambda: len(descendants(served.run.proc.pid)) <= before)
    assert "g" not in in_the_target(served)
