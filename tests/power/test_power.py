# SPDX-License-Identifier: Apache-2.0
"""Tests of the disk that loses unflushed writes, and of the ledger of the contents that may remain."""

import os
import random
import socket
import struct
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))

from jobs import KINDS, Sources  # noqa: E402
from ledger import ABSENT, ANY, Ledger, content_of, thing_of  # noqa: E402
from scan import scan  # noqa: E402
import volatile_disk as vd  # noqa: E402

B = vd.BLOCK


class Client:
    """A client of the NBD server, like QEMU."""

    def __init__(self, path):
        self.s = socket.socket(socket.AF_UNIX)
        self.s.settimeout(20)
        self.s.connect(path)
        assert self.take(">QQH") == (vd.MAGIC, vd.OPTION_MAGIC, 3)
        self.s.sendall(struct.pack(">I", 3))
        assert self.option(8)[0][0] == vd.REP_UNSUPPORTED
        replies = self.option(vd.OPT_GO, struct.pack(">IHH", 0, 1, vd.INFO_BLOCK_SIZE))
        self.size, self.flags = struct.unpack(">QH", replies[0][1][2:])
        assert struct.unpack(">HIII", replies[1][1])[1] == B

    def take(self, form):
        return struct.unpack(form, self.take_bytes(struct.calcsize(form)))

    def take_bytes(self, length):
        data = b""
        while len(data) < length:
            got = self.s.recv(length - len(data))
            if not got:
                raise EOFError
            data += got
        return data

    def option(self, option, data=b""):
        self.s.sendall(struct.pack(">QII", vd.OPTION_MAGIC, option, len(data)) + data)
        replies = []
        while True:
            magic, about, kind, length = self.take(">QIII")
            assert (magic, about) == (vd.REPLY_MAGIC, option)
            replies.append((kind, self.take_bytes(length)))
            if kind != vd.REP_INFO:
                return replies

    def ask(self, kind, block=0, data=b"", blocks=0, flags=0, at=None):
        length = blocks * B if kind == vd.READ else len(data)
        self.s.sendall(struct.pack(">IHHQQI", vd.REQUEST_MAGIC, flags, kind, 7,
                                   block * B if at is None else at, length) + data)
        magic, error, cookie = self.take(">IIQ")
        assert (magic, cookie) == (vd.SIMPLE_MAGIC, 7)
        return self.take_bytes(length) if kind == vd.READ and not error else error

    def write(self, block, letters, flags=0):
        assert self.ask(vd.WRITE, block, b"".join(c * B for c in letters), flags=flags) == 0

    def flush(self):
        assert self.ask(vd.FLUSH) == 0


@pytest.fixture
def disk(tmp_path, monkeypatch):
    # The path of a Unix socket must be short.
    monkeypatch.chdir(tmp_path)
    with open("image", "wb") as file:
        file.truncate(64 * B)
    d = vd.VolatileDisk("image", "socket")
    yield d
    d.close()
    assert d.trouble is None


def image(first, count):
    with open("image", "rb") as file:
        file.seek(first * B)
        data = file.read(count * B)
    letters = [data[n * B:n * B + 1] for n in range(count)]
    assert data == b"".join(c * B for c in letters), "a block is torn"
    return b"".join(letters).replace(b"\0", b"-")


def letters_of(*names):
    return [bytes([c]) for c in names]


def test_unflushed_write_is_readable_and_not_on_the_image(disk):
    c = Client("socket")
    assert c.size == 64 * B and c.flags == vd.HAS_FLAGS | vd.SEND_FLUSH | vd.SEND_FUA
    c.write(3, letters_of(*b"ab"))
    assert c.ask(vd.READ, 2, blocks=4) == b"\0" * B + b"a" * B + b"b" * B + b"\0" * B
    assert image(2, 4) == b"----"
    c.flush()
    assert image(2, 4) == b"-ab-"
    c.write(10, letters_of(*b"f"), flags=vd.FUA)
    assert image(10, 1) == b"f"


def test_invalid_requests_are_refused(disk):
    c = Client("socket")
    assert c.ask(vd.WRITE, 64, b"x" * B) == vd.EINVAL
    assert c.ask(vd.WRITE, data=b"x" * 512, at=512) == vd.EINVAL
    assert c.ask(4, 0) == vd.EINVAL
    c.write(0, letters_of(*b"a"))


@pytest.mark.parametrize("how,may", [
    ("nothing", {b"AB--"}),
    ("all", {b"CBDE"}),
    ("the first", {b"AB--", b"CB--", b"CBD-", b"CBDE"}),
    ("some writes", {b"AB--", b"CB--", b"ABDE", b"CBDE"}),
    # x was there for a moment.
    ("any version", {a + b"B" + c + d for a in (b"A", b"C", b"x") for c in (b"-", b"D") for d in (b"-", b"E")}),
])
def test_cut_keeps_flushed_writes_and_a_plausible_rest(disk, how, may):
    seen = set()
    for seed in range(60):
        disk.power_on()
        c = Client("socket")
        c.write(0, [b"A", b"B", b"\0", b"\0"])
        c.flush()
        if how == "any version":
            c.write(0, [b"x"])
        c.write(0, [b"C"])
        c.write(2, [b"D", b"E"])
        disk.cut(random.Random(seed), how)
        with pytest.raises((EOFError, ConnectionError)):
            c.write(0, [b"Z"])
        seen.add(image(0, 4))
    assert seen == may


def test_fua_write_replaces_earlier_versions(disk):
    c = Client("socket")
    c.write(0, [b"a"])
    c.write(0, [b"b"], flags=vd.FUA)
    for seed in range(20):
        disk.cut(random.Random(seed), "any version")
        assert image(0, 1) == b"b"


def test_requests_of_a_dead_client_are_dropped(disk):
    c = Client("socket")
    disk.cut(random.Random(1), "nothing")
    c.s.sendall(struct.pack(">IHHQQI", vd.REQUEST_MAGIC, 0, vd.WRITE, 7, 0, B) + b"z" * B)
    disk.power_on()
    with pytest.raises((EOFError, ConnectionError)):
        c.take(">IIQ")
    c = Client("socket")
    assert c.ask(vd.READ, 0, blocks=1) == bytes(B)


# ---- the ledger ------------------------------------------------------------------------

DIR = ("dir", 0, None)


def entry(content, mode=0o644, mtime=5, inode=1):
    return [*content, mode, mtime, inode]


OLD, NEW, TORN = ("file", 3, 11), ("file", 4, 22), ("file", 4, 33)


def begun(*old):
    """t/f has old content, if any, and is to be replaced."""
    ledger = Ledger()
    found = {"t": entry(DIR)}
    if old:
        found["t/f"] = entry(old[0])
    ledger.may = {p: {content_of(e)} for p, e in found.items()}
    ledger.allow("t/f", NEW)
    return ledger, found


def broken(ledger, found):
    return ledger.judge(found)[0]


def test_unreported_file_is_old_or_new():
    for content in (OLD, NEW):
        ledger, found = begun(OLD)
        assert broken(ledger, dict(found, **{"t/f": entry(content)})) == []
    ledger, found = begun(OLD)
    assert "t/f is file of 4, 33" in broken(ledger, dict(found, **{"t/f": entry(TORN)}))[0]
    ledger, found = begun(OLD)
    del found["t/f"]
    assert "t/f is nothing" in broken(ledger, found)[0]


def test_reported_file_is_new():
    for state in ({}, {"t/f": entry(OLD)}, {"t/f": entry(TORN)}):
        ledger, found = begun(OLD)
        ledger.promise("t/f", NEW, "reported done")
        assert "(reported done)" in broken(ledger, dict({"t": found["t"]}, **state))[0]
    ledger, found = begun(OLD)
    ledger.promise("t/f", NEW, "reported done")
    assert ledger.judge(dict(found, **{"t/f": entry(NEW)})) == ([], 1)


def test_reported_file_needs_its_directories():
    ledger = Ledger()
    ledger.allow("a", DIR)
    ledger.allow("a/b", DIR)
    ledger.promise("a/b/f", NEW, "reported done")
    assert len(broken(ledger, {})) == 3


def test_inplace_file_may_be_anything_until_reported():
    ledger, found = begun(OLD)
    ledger.allow("t/f", ANY)
    assert broken(ledger, dict(found, **{"t/f": entry(TORN)})) == []
    ledger, found = begun(OLD)
    ledger.allow("t/f", ANY)
    ledger.promise("t/f", NEW, "reported done")
    assert broken(ledger, dict(found, **{"t/f": entry(TORN)})) != []


def test_source_stays_until_its_target_exists():
    for source, target, good in ((NEW, ABSENT, True), (NEW, NEW, True), (ABSENT, NEW, True), (ABSENT, ABSENT, False),
                                 (ABSENT, TORN, False)):
        ledger = Ledger()
        ledger.may["s"] = {NEW}
        ledger.allow("s", ABSENT)
        ledger.allow("t", NEW)
        ledger.allow("t", TORN)
        ledger.removals.append(("s", "t", NEW))
        found = {p: entry(c) for p, c in (("s", source), ("t", target)) if c is not ABSENT}
        assert (broken(ledger, found) == []) == good


def test_backup_keeps_the_old_content():
    for path, backup, good in ((OLD, ABSENT, True), (OLD, OLD, True), (NEW, OLD, True), (NEW, ABSENT, False)):
        ledger, found = begun(OLD)
        ledger.allow("t/f~", OLD)
        ledger.backups.append(("t/f", "t/f~", OLD))
        found["t/f"] = entry(path)
        if backup is not ABSENT:
            found["t/f~"] = entry(backup)
        assert (broken(ledger, found) == []) == good


def test_foreign_and_leftover_files_are_found():
    ledger, found = begun()
    assert "t/g is" in broken(ledger, dict(found, **{"t/g": entry(NEW)}))[0]
    left = {"t/.sluice.0123": entry(NEW)}
    ledger, found = begun()
    assert broken(ledger, dict(found, **left)) == []
    ledger, found = begun()
    ledger.clean.add("t")
    assert "is left after exit 0" in broken(ledger, dict(found, **left))[0]


def test_metadata_and_links_after_exit_0():
    for wrong in ({"mode": 0o600}, {"mtime": 6}):
        ledger, found = begun()
        ledger.promise("t/f", NEW, "exit 0")
        ledger.exact["t/f"] = thing_of(entry(NEW))
        assert "mode" in broken(ledger, dict(found, **{"t/f": entry(NEW, **wrong)}))[0]
    ledger, found = begun()
    for name in ("t/f", "t/g"):
        ledger.promise(name, NEW, "exit 0")
    ledger.linked.append(["t/f", "t/g"])
    assert "not one file" in broken(ledger, dict(found, **{"t/f": entry(NEW), "t/g": entry(NEW, inode=2)}))[0]


def test_ledger_continues_from_the_scan():
    ledger, found = begun(OLD)
    found["t/f"] = entry(TORN)
    assert broken(ledger, found) != []
    assert broken(ledger, found) == []
    assert ledger.holds("t/f") == TORN


def test_scan_sees_contents_links_and_times(tmp_path):
    for name in ("a", "b"):
        os.makedirs(tmp_path / name / "d")
        (tmp_path / name / "d" / "f").write_bytes(b"x" * 3_000_000)
        os.link(tmp_path / name / "d" / "f", tmp_path / name / "l")
        os.symlink("d", tmp_path / name / "s")
    a, b = scan(str(tmp_path / "a")), scan(str(tmp_path / "b"))
    assert {p: content_of(e) for p, e in a.items()} == {p: content_of(e) for p, e in b.items()}
    assert set(a) == {"d", "d/f", "l", "s"} and a["l"][5] == a["d/f"][5]
    with open(tmp_path / "b" / "d" / "f", "r+b") as file:
        file.seek(2_999_999)
        file.write(b"y")
    assert content_of(scan(str(tmp_path / "b"))["l"]) != content_of(b["l"])


def test_backup_of_an_empty_file_replaced_by_an_empty_one(tmp_path):
    """The old and the new file are empty but have different times, so rdcp makes a backup."""
    ledger = Ledger()
    slot = KINDS["backup"]("backup", {"fs": "any", "at": "/nowhere"}, ledger, Sources(str(tmp_path), 1), "/nowhere")

    def copy(generation):
        slot.generation = generation - 1
        slot.job()
        slot.begin()
        slot.is_prepared()
        assert slot.exit([0]) == []
        return {"backup": ["dir", 0, None, 0o755, 0, 1],
                **{os.path.join("backup", path): list(entry) for path, entry in slot.holds.items()}}

    # Generations with the same names, of which f0 is empty.
    kept = copy(0)
    assert ledger.judge(kept)[0] == []
    found = copy(6)

    def back_up(replaced):
        found.update((path + "~", old[:5] + [0]) for path, old in replaced.items()
                     if old[0] != "dir" and not path.endswith("~"))

    back_up(kept)
    assert ledger.judge(found)[0] == []
    # A backup of anything else than what was replaced breaks the promise.
    kept, found = found, copy(12)
    back_up(kept)
    found["backup/f4~"] = found["backup/f4"]
    broken, _ = ledger.judge(found)
    assert len(broken) == 2 and broken[0].startswith("backup/f4~ is file") and "of backup/f4 " in broken[1]
