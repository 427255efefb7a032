# SPDX-License-Identifier: Apache-2.0
"""rdcp: one table for push, pull, remote to remote and local copies; targets, patterns, modes."""

import os
import signal
import stat
import subprocess
import sys
import time

import pytest

from arena import MEMORY_MAX, Memory
from faulty import slow_removal
from hosts import RSH, leftovers, pattern, wait_until

pytestmark = [pytest.mark.moves_blocks, pytest.mark.any_lane]
BLOCK = 256 << 10


@pytest.mark.parametrize("size", [0, 1, 12, BLOCK - 1, BLOCK, BLOCK + 1, 30 * BLOCK + 7])
@pytest.mark.lab(cases="pull-0", long=True)
@pytest.mark.lab("rxe", cases="push-7864327")
@pytest.mark.lab("siw", cases="pull-7864327")
@pytest.mark.lab("siw", cases="local-7864327", long=True)
@pytest.mark.lab("siw", cases="push-262145", long=True)
@pytest.mark.lanes
def test_file_of_any_size_is_copied(bench, tmp_path, way, size):
    data = pattern(size)
    (tmp_path / "in").write_bytes(data)
    r = bench.copy(way[0] + str(tmp_path / "in"), way[1] + str(tmp_path / "out"))
    assert r.code == 0, r.errors()
    assert (tmp_path / "out").read_bytes() == data
    assert not leftovers(tmp_path)
    assert not r.out


def test_several_files_go_into_a_directory(bench, tmp_path, way):
    (tmp_path / "to").mkdir()
    names = ["a", "b c", "d'e", 'f"g', "h$i", "j\\k", "l;m", "n*o", "ü", "-p", "q\nr"]
    for n in names:
        (tmp_path / n).write_bytes(n.encode() * 1000)
    r = bench.copy("--", *[way[0] + str(tmp_path / n) for n in names], way[1] + str(tmp_path / "to"))
    assert r.code == 0, r.errors()
    assert sorted(os.listdir(tmp_path / "to")) == sorted(names)
    for n in names:
        assert (tmp_path / "to" / n).read_bytes() == n.encode() * 1000


def test_relative_names_and_home_are_resolved(bench, tmp_path):
    (tmp_path / "in").write_bytes(b"x")
    r = bench.copy("in", "far:out")       # the stand-in for ssh starts in SLUICE_TEST_HOME
    assert r.code == 0, r.errors()
    assert (tmp_path / "out").read_bytes() == b"x"
    r = bench.copy("far:~/in", "out2", env={"HOME": str(tmp_path)})
    assert r.code == 0, r.errors()
    assert (tmp_path / "out2").read_bytes() == b"x"


def test_unknown_user_in_a_target_is_no_missing_source(bench, tmp_path):
    (tmp_path / "in").write_bytes(b"x")
    for words, code in ((["in", "far:~no-such-user-here/x"], 11), (["far:~no-such-user-here/x", "out"], 3)):
        r = bench.copy(*words)
        assert r.code == code and "no-such-user-here" in r.errors(), (r.code, r.errors())


def test_far_end_expands_patterns_without_a_shell(bench, tmp_path):
    (tmp_path / "from").mkdir()
    (tmp_path / "to").mkdir()
    for n in ("a1", "a2", "b1", "a$(touch oops)"):
        (tmp_path / "from" / n).write_bytes(n.encode())
    r = bench.copy("far:%s/from/a*" % tmp_path, "to")
    assert r.code == 0, r.errors()
    assert sorted(os.listdir(tmp_path / "to")) == ["a$(touch oops)", "a1", "a2"]
    assert not (tmp_path / "oops").exists()


def test_literal_name_wins_over_the_pattern(bench, tmp_path):
    (tmp_path / "to").mkdir()
    for n in ("a*", "ab"):
        (tmp_path / n).write_bytes(n.encode())
    assert bench.copy("far:%s/a*" % tmp_path, "to").code == 0
    assert os.listdir(tmp_path / "to") == ["a*"]


def test_pattern_may_be_longer_than_a_name(bench, tmp_path):
    name = "*" * 150
    (tmp_path / "from").mkdir()
    (tmp_path / "to").mkdir()
    (tmp_path / "from" / name).write_bytes(b"this")
    (tmp_path / "from" / (name + "x")).write_bytes(b"other")
    r = bench.copy("far:%s/from/%s" % (tmp_path, "\\*" * 150), "to")
    assert r.code == 0, r.errors()
    assert os.listdir(tmp_path / "to") == [name]


@pytest.mark.parametrize("options", [["-a"], ["-a", "--relative"]], ids=" ".join)
def test_escapes_apply_to_all_components_of_a_pattern(bench, tmp_path, options):
    """Also where the pattern of one component is longer than a name, and where a component has no wildcard."""
    top, last = "s" + "*" * 250, "a\\b"
    (tmp_path / top).mkdir()
    (tmp_path / top / last).write_bytes(b"1")
    (tmp_path / "t").mkdir()
    pattern = "%s/./%s/%s" % (tmp_path, top.replace("*", "\\*"), last.replace("\\", "\\\\"))
    r = bench.copy(*options, "far:" + pattern, str(tmp_path / "t"))
    assert r.code == 0, r.errors()
    at = tmp_path / "t" / (top if "--relative" in options else "")
    assert (at / last).read_bytes() == b"1"


def test_pattern_without_match_exits_3(bench, tmp_path):
    r = bench.copy("far:%s/none*" % tmp_path, "to")
    assert r.code == 3, r.errors()
    assert "none*" in r.errors()


def test_missing_source_exits_3(bench, tmp_path, way):
    r = bench.copy(way[0] + str(tmp_path / "none"), way[1] + str(tmp_path / "to"))
    assert r.code == 3, r.errors()
    assert "none" in r.errors() and not (tmp_path / "to").exists()


def test_one_missing_source_of_several_exits_23_and_the_rest_is_copied(bench, tmp_path, way):
    (tmp_path / "to").mkdir()
    for n in "ac":
        (tmp_path / n).write_bytes(n.encode())
    r = bench.copy(*[way[0] + str(tmp_path / n) for n in "abc"], way[1] + str(tmp_path / "to"))
    assert r.code == 23, r.errors()
    assert sorted(os.listdir(tmp_path / "to")) == ["a", "c"]


def test_missing_parent_is_reported_with_mkpath(bench, tmp_path, way):
    (tmp_path / "in").write_bytes(b"x")
    target = way[1] + str(tmp_path / "no" / "such" / "out")
    r = bench.copy(way[0] + str(tmp_path / "in"), target)
    assert r.code == 11 and "--mkpath" in r.errors(), r.errors()
    assert not (tmp_path / "no").exists()
    r = bench.copy("--mkpath", way[0] + str(tmp_path / "in"), target)
    assert r.code == 0, r.errors()
    assert (tmp_path / "no" / "such" / "out").read_bytes() == b"x"


@pytest.mark.parametrize("option", ["-p", "-r", "-a", "-an"])
def test_impossible_target_is_reported(bench, tmp_path, way, option):
    (tmp_path / "in").write_bytes(b"x")
    (tmp_path / "dir").mkdir()
    r = bench.copy(option, way[0] + str(tmp_path / "in"), way[1] + str(tmp_path / "no") + "/")
    assert r.code == 11 and "--mkpath" in r.errors(), r.errors()
    r = bench.copy(option, "-T", way[0] + str(tmp_path / "in"), way[1] + str(tmp_path / "dir"))
    assert r.code == 11 and "is a directory" in r.errors(), r.errors()


@pytest.mark.parametrize("options", [["-T"], ["-T", "-r"], ["-T", "-n"], ["-T", "-r", "-n"], ["-T", "-r", "--fsync"]], ids=" ".join)
def test_mkpath_makes_no_directory_in_place_of_a_file(bench, tmp_path, way, options):
    """With -T DST is the file itself, and a file name has no trailing slash."""
    (tmp_path / "in").write_bytes(b"x")
    r = bench.copy("--mkpath", *options, way[0] + str(tmp_path / "in"), way[1] + str(tmp_path / "new") + "/")
    assert r.code == 11 and "new/: not a file name" in r.errors(), (r.code, r.errors())
    assert sorted(os.listdir(tmp_path)) == ["in"]


def test_mkpath_makes_the_target_directory_of_a_tree(bench, tmp_path, way):
    (tmp_path / "d").mkdir(0o750)
    (tmp_path / "d" / "f").write_bytes(b"x")
    for options in (["-n"], []):
        r = bench.copy("--mkpath", "-r", "-T", *options, way[0] + str(tmp_path / "d"), way[1] + str(tmp_path / "a" / "new") + "/")
        assert r.code == 0, (r.code, r.errors())
        assert (tmp_path / "a").exists() == (not options), options
    assert (tmp_path / "a" / "new" / "f").read_bytes() == b"x"
    assert os.listdir(tmp_path / "a" / "new") == ["f"]


def test_directory_without_recursive_is_reported(bench, tmp_path, way):
    (tmp_path / "dir").mkdir()
    r = bench.copy(way[0] + str(tmp_path / "dir"), way[1] + str(tmp_path / "to"))
    assert r.code not in (0, 12), r.errors()
    assert "directory" in r.errors()
    assert not (tmp_path / "to").exists()


def test_new_file_gets_umask_mode_and_old_file_keeps_its_mode(bench, tmp_path, way):
    (tmp_path / "in").write_bytes(b"x")
    (tmp_path / "in").chmod(0o4751)
    (tmp_path / "old").write_bytes(b"old")
    (tmp_path / "old").chmod(0o604)
    umask = {"preexec": lambda: os.umask(0o027)}
    assert bench.copy(way[0] + str(tmp_path / "in"), way[1] + str(tmp_path / "new"), **umask).code == 0
    assert bench.copy(way[0] + str(tmp_path / "in"), way[1] + str(tmp_path / "old"), **umask).code == 0
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o750
    assert stat.S_IMODE((tmp_path / "old").stat().st_mode) == 0o604


def test_p_preserves_mode_and_times(bench, tmp_path, way):
    (tmp_path / "in").write_bytes(b"x")
    (tmp_path / "in").chmod(0o641)
    os.utime(tmp_path / "in", ns=(10**18 + 5, -(10**17) + 7))
    assert bench.copy("-p", way[0] + str(tmp_path / "in"), way[1] + str(tmp_path / "out")).code == 0
    s = (tmp_path / "out").stat()
    assert stat.S_IMODE(s.st_mode) == 0o641 and s.st_mtime_ns == -(10**17) + 7


@pytest.mark.parametrize("options", [[], ["-p"], ["-aA"]])
def test_stdin_has_no_mode_to_keep(bench, tmp_path, options):
    (tmp_path / "old").write_bytes(b"old")
    (tmp_path / "old").chmod(0o604)
    for name, more in (("new", []), ("old", []), ("changed", ["--chmod=go="])):
        r = bench.copy(*options, *more, "-", "far:%s" % (tmp_path / name), preexec=lambda: os.umask(0o027))
        assert r.code == 0, r.errors()
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()}
    assert modes == {"new": 0o640, "old": 0o604, "changed": 0o600}


@pytest.mark.parametrize("options", [[], ["-p"]])
def test_mode_of_a_fifo_that_is_read(bench, tmp_path, way, options):
    os.mkfifo(tmp_path / "in", 0o600)
    r = bench.copy(*options, way[0] + str(tmp_path / "in"), way[1] + str(tmp_path / "out"), wait=False,
                   preexec=lambda: os.umask(0o027))
    (tmp_path / "in").write_bytes(b"data")
    assert r.wait() == 0, r.errors()
    assert (tmp_path / "out").read_bytes() == b"data"
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o600


@pytest.mark.lanes
def test_holes_stay_holes(bench, tmp_path, way):
    with open(tmp_path / "in", "wb") as f:
        f.seek(5 << 20)
        f.write(b"middle")
        f.truncate(20 << 20)
    r = bench.copy(way[0] + str(tmp_path / "in"), way[1] + str(tmp_path / "out"))
    assert r.code == 0, r.errors()
    assert (tmp_path / "out").read_bytes() == (tmp_path / "in").read_bytes()
    assert (tmp_path / "out").stat().st_blocks * 512 < 2 << 20


@pytest.mark.lab("siw", long=True)
@pytest.mark.lanes
def test_stdin_and_stdout_are_source_and_target(bench, tmp_path):
    data = pattern(3 * BLOCK + 1)
    (tmp_path / "in").write_bytes(data)
    cat = subprocess.Popen(["cat", tmp_path / "in"], stdout=subprocess.PIPE)
    r = bench.copy("-", "far:%s/out" % tmp_path, stdin=cat.stdout)
    cat.stdout.close()
    cat.wait()
    assert r.code == 0, r.errors()
    assert (tmp_path / "out").read_bytes() == data
    r = bench.copy("far:%s/out" % tmp_path, "-")
    assert r.code == 0, r.errors()
    assert bytes(r.out) == data


@pytest.mark.lanes
@pytest.mark.parametrize("before", [b"", b"head", b"longer than what is written"], ids=["empty", "end", "middle"])
def test_holes_stay_holes_in_a_redirected_stdout(bench, ground, before):
    """Behind the end of the file; bytes that exist become zeros."""
    size = 20 << 20
    with open(ground / "in", "wb") as f:
        f.truncate(size)
        f.seek(8 << 20)
        f.write(b"data")
    (ground / "out").write_bytes(before)
    at = 4 if before else 0
    with open(ground / "out", "r+b") as out:
        out.seek(at)
        r = bench.copy("far:%s" % (ground / "in"), "-", stdout=out)
        assert r.code == 0, r.errors()
        subprocess.run(["echo", "tail"], stdout=out, check=True)
    want = before[:at] + (ground / "in").read_bytes() + b"tail\n"
    assert (ground / "out").read_bytes() == want
    if len(before) == at:
        assert (ground / "out").stat().st_blocks * 512 < size // 2


def test_large_file_is_copied_to_stdout(bench, tmp_path):
    """A file that would be asked about if the target could have anything of it."""
    data = pattern((5 << 20) + 1)
    (tmp_path / "in").write_bytes(data)
    for source in ("in", "far:%s/in" % tmp_path):
        r = bench.copy(source, "-")
        assert r.code == 0, r.errors()
        assert bytes(r.out) == data


def test_symlink_named_as_source_is_followed(bench, tmp_path, way):
    (tmp_path / "in").write_bytes(b"new")
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "from").symlink_to("in")
    (tmp_path / "to").symlink_to("real")
    assert bench.copy(way[0] + str(tmp_path / "from"), way[1] + str(tmp_path / "to")).code == 0
    assert (tmp_path / "to").is_symlink() and (tmp_path / "real").read_bytes() == b"new"


def test_other_hard_links_keep_the_old_content(bench, tmp_path, way):
    (tmp_path / "in").write_bytes(b"new")
    (tmp_path / "old").write_bytes(b"old")
    os.link(tmp_path / "old", tmp_path / "link")
    assert bench.copy(way[0] + str(tmp_path / "in"), way[1] + str(tmp_path / "old")).code == 0
    assert (tmp_path / "old").read_bytes() == b"new" and (tmp_path / "link").read_bytes() == b"old"


LEASE = """
import fcntl, os, signal, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
signal.signal(signal.SIGIO, lambda *_: fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK))
fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
print("held", file=sys.stderr, flush=True)
while True:
    signal.pause()
"""


def test_lease_is_broken_by_a_copy_with_inplace(bench, tmp_path):
    """An NFS server grants such leases to its clients; a non-blocking open fails while one is held."""
    data = pattern(300000)
    (tmp_path / "in").write_bytes(data)
    (tmp_path / "out").write_bytes(b"old")
    bench.start(["/usr/bin/python3", "-c", LEASE, tmp_path / "out"]).expect("held")
    r = bench.copy("--inplace", tmp_path / "in", "far:%s" % (tmp_path / "out"))
    assert r.code == 0, r.errors()
    assert (tmp_path / "out").read_bytes() == data


def test_devices_and_fifos_are_written_in_place(bench, tmp_path, way):
    (tmp_path / "in").write_bytes(b"through")
    assert bench.copy(way[0] + str(tmp_path / "in"), way[1] + "/dev/null").code == 0
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    os.mkfifo(tmp_path / "fifo")
    cat = subprocess.Popen(["cat", tmp_path / "fifo"], stdout=subprocess.PIPE)
    assert bench.copy(way[0] + str(tmp_path / "in"), way[1] + str(tmp_path / "fifo")).code == 0
    assert cat.communicate()[0] == b"through"
    assert stat.S_ISFIFO(os.stat(tmp_path / "fifo").st_mode)


def test_proc_files_are_read_to_their_end(bench, tmp_path, way):
    assert bench.copy(way[0] + "/proc/version", way[1] + str(tmp_path / "out")).code == 0
    assert (tmp_path / "out").read_bytes() == open("/proc/version", "rb").read()


def test_remove_source_files_removes_copied_files(bench, tmp_path, way):
    (tmp_path / "in").write_bytes(pattern(2 * BLOCK))
    r = bench.copy("--remove-source-files", way[0] + str(tmp_path / "in"),
                   way[1] + str(tmp_path / "out"))
    assert r.code == 0, r.errors()
    assert not (tmp_path / "in").exists() and (tmp_path / "out").read_bytes() == pattern(2 * BLOCK)


def test_source_in_another_source_is_stored_twice_and_then_removed(bench, tmp_path, way):
    """Whichever is read first, the other one must still be there."""
    for name in "more", "tree":
        (tmp_path / name).mkdir()
    for n in range(200):    # while they are sent, f is stored
        (tmp_path / "more" / str(n)).write_bytes(pattern(16 << 10))
    (tmp_path / "tree" / "f").write_bytes(b"named twice")
    (tmp_path / "link").symlink_to(".")
    sources = [way[0] + str(tmp_path / n) for n in ("link/tree/f", "more", "tree")]
    r = bench.copy("-r", "--remove-source-files", "--lanes=1", "--depth=2", "--block-size=64k", "--bwlimit=2MiB", *sources,
                   way[1] + str(tmp_path / "out") + "/", "--mkpath")
    assert r.code == 0, r.errors()
    for name in "f", "tree/f":
        assert (tmp_path / "out" / name).read_bytes() == b"named twice"
    assert not (tmp_path / "tree" / "f").exists() and not list((tmp_path / "more").iterdir())


def test_remove_source_files_keeps_a_source_copied_to_a_pipe(bench, tmp_path):
    """Data written to stdout is not stored durably."""
    (tmp_path / "in").write_bytes(b"precious")
    r = bench.copy("--remove-source-files", "in", "-")
    assert r.code == 1 and "--remove-source-files" in r.errors(), r.errors()
    assert (tmp_path / "in").read_bytes() == b"precious"


def test_remove_source_files_refuses_device_and_fifo_targets(bench, tmp_path, way):
    """A device or a FIFO stores nothing: the copy is refused before anything is opened."""
    (tmp_path / "in").write_bytes(b"precious")
    (tmp_path / "dir").mkdir()
    os.mkfifo(tmp_path / "dir" / "in")
    (tmp_path / "null").symlink_to("/dev/null")
    for to in ("/dev/null", tmp_path / "null", tmp_path / "dir" / "in", tmp_path / "dir"):
        r = bench.copy("--remove-source-files", way[0] + str(tmp_path / "in"), way[1] + str(to))
        assert r.code == 1 and "--remove-source-files" in r.errors() and "not a regular file" in r.errors(), (
            to, r.code, r.errors())
        assert (tmp_path / "in").read_bytes() == b"precious"
    for to in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"):
        r = bench.copy("--remove-source-files", "in", to)
        assert r.code == 1 and not r.out, (to, r.code, r.errors())
    assert (tmp_path / "in").read_bytes() == b"precious"


def test_file_reached_through_proc_root_is_replaced(bench, tmp_path, way):
    """/proc/PID/root leads into a container: a file there is replaced, not written in place."""
    (tmp_path / "in").write_bytes(b"ab")
    (tmp_path / "out").write_bytes(b"twenty-four bytes of old")
    (tmp_path / "link").symlink_to("out")
    os.link(tmp_path / "out", tmp_path / "other")
    at = "/proc/%d/root%s" % (os.getpid(), tmp_path)
    for name in ("out", "link", "new"):
        r = bench.copy(way[0] + str(tmp_path / "in"), way[1] + at + "/" + name)
        assert r.code == 0, r.errors()
        assert (tmp_path / name).read_bytes() == b"ab" and not leftovers(tmp_path)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "other").read_bytes() == b"twenty-four bytes of old"


def test_open_file_below_proc_is_truncated_and_written(bench, tmp_path, way):
    """A file named by /proc/PID/fd cannot be renamed over, and must not keep the tail of its old content."""
    (tmp_path / "in").write_bytes(b"ab")
    with open(tmp_path / "out", "w+b") as f:
        f.write(b"twenty-four bytes of old")
        f.flush()
        (tmp_path / "out").unlink()
        r = bench.copy(way[0] + str(tmp_path / "in"), way[1] + "/proc/%d/fd/%d" % (os.getpid(), f.fileno()))
        assert r.code == 0, r.errors()
        assert os.pread(f.fileno(), 100, 0) == b"ab"


def test_link_to_stdout_is_stdout(bench, tmp_path):
    (tmp_path / "in").write_bytes(b"ab")
    (tmp_path / "link").symlink_to("/dev/stdout")
    for to in ("link", "/proc/thread-self/fd/1", "/dev/../dev/fd/1"):
        r = bench.copy("in", to)
        assert r.code == 0 and bytes(r.out) == b"ab", (to, r.code, r.errors())
    with open(tmp_path / "out", "w+b") as out:
        out.write(b"before ")
        out.flush()
        r = bench.copy("in", "link", stdout=out)
        assert r.code == 0 and (tmp_path / "out").read_bytes() == b"before ab", r.errors()


@pytest.mark.parametrize("to", ["-", "/dev/stdout", "/dev/fd/1"])
@pytest.mark.parametrize("what", ["several", "pattern", "listed", "relative", "tree"])
@pytest.mark.parametrize("source", ["", "far:"], ids=["local", "far"])
def test_stdout_takes_one_file(bench, tmp_path, source, what, to):
    """A consumer never sees one of several files."""
    (tmp_path / "s" / "d").mkdir(parents=True)
    (tmp_path / "s" / "a").write_bytes(b"a")
    (tmp_path / "s" / "b").write_bytes(b"b")
    (tmp_path / "list").write_bytes(b"a\nb\n")
    at = source + str(tmp_path / "s")
    words = {"several": [at + "/a", at + "/b"], "pattern": ["far:%s/s/?" % tmp_path], "listed": ["--files-from=list", at],
             "relative": ["--relative", at + "/a"], "tree": ["-r", at + "/d"]}[what]
    r = bench.copy(*words, to, cwd=tmp_path)
    assert r.code == (11 if what == "pattern" else 1) and not r.out, (r.code, r.errors())
    assert "a directory" in r.errors() if what == "pattern" else "cannot copy" in r.errors()


def test_descriptor_of_the_far_end_is_refused_as_target(bench, tmp_path):
    """The far end's descriptors carry the session."""
    (tmp_path / "in").write_bytes(b"ab")
    for to in ("/dev/stdout", "/dev/fd/0", "/proc/self/fd/1"):
        r = bench.copy("in", "far:" + to)
        assert r.code == 11 and "not one that you opened" in r.errors(), (to, r.code, r.errors())


def test_remove_source_files_removes_regular_files_only(bench, tmp_path):
    """Nothing shows whether the bytes of a FIFO or a device are still those that were read."""
    os.mkfifo(tmp_path / "fifo")
    r = bench.copy("--remove-source-files", "fifo", "far:%s/out" % tmp_path, wait=False)
    (tmp_path / "fifo").write_bytes(b"once")
    assert r.wait() == 11 and "not a regular file" in r.errors(), r.errors()
    assert (tmp_path / "out").read_bytes() == b"once" and (tmp_path / "fifo").exists()


def test_summary_is_never_mixed_with_data(bench, tmp_path):
    (tmp_path / "in").write_bytes(b"data")
    for to in ("-", "/dev/stdout", "/dev/fd/1"):
        r = bench.copy("--json", "in", to)
        assert r.code == 0 and bytes(r.out) == b"data" and '"exit": 0' in r.errors(), r.errors()


def test_minus_on_a_host_is_a_file_name(bench, tmp_path):
    (tmp_path / "-").write_bytes(b"minus")
    r = bench.copy("far:-", "out")
    assert r.code == 0 and (tmp_path / "out").read_bytes() == b"minus", r.errors()
    r = bench.copy("out", "far:-")
    assert r.code == 0, r.errors()


def without_verdict(tmp_path, then):
    """A stand-in for ssh that keeps the verdict of the far end to itself."""
    return changing_frames(tmp_path, "if head[4] == VERDICT: break", then)


def changing_frames(tmp_path, change, then="far.wait()"):
    """A stand-in for ssh that changes the frames of the far end."""
    (tmp_path / "mute").write_text("""#!%s
import os, struct, subprocess, sys, time
DONE, VERDICT = 11, 70
far = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE)
while True:
    head = far.stdout.read(8)
    if not head: break
    body = far.stdout.read(struct.unpack("<I", head[:4])[0])
    %s
    os.write(1, head + body)
%s
""" % (sys.executable, change, then))
    (tmp_path / "mute").chmod(0o755)
    (tmp_path / "rsh").write_text("#!/bin/sh\nexec %s %s \"$@\"\n" % (
        tmp_path / "mute", RSH))
    (tmp_path / "rsh").chmod(0o755)
    return tmp_path / "rsh"


def test_missing_removal_report_is_a_failure(bench, tmp_path):
    """The far end's report about the removals never arrives: that is not a success."""
    (tmp_path / "in").write_bytes(b"x")
    r = bench.copy("--remove-source-files", "--timeout=2", "far:in", "out",
                   rsh=without_verdict(tmp_path, "time.sleep(60)"))
    assert r.code == 44 and "the source on far reported no result" in r.errors(), (r.code, r.errors())
    assert (tmp_path / "out").read_bytes() == b"x"


@pytest.mark.parametrize("failed", [False, True])
def test_removals_take_as_long_as_they_take(bench, tmp_path, way, failed):
    """Longer than --timeout, and than any time that an end has to exit."""
    for name in "a", "b":
        (tmp_path / name).write_bytes(b"x")
    if failed:
        (tmp_path / "out" / "b" / "in the way").mkdir(parents=True)
    r = bench.copy("--remove-source-files", "--copy-links", "--timeout=2", "--mkpath",
                   *(way[0] + str(tmp_path / n) for n in "ab"), way[1] + str(tmp_path / "out") + "/", env=slow_removal("a", 7000))
    assert r.code == (23 if failed else 0), r.errors()
    assert not (tmp_path / "a").exists() and (tmp_path / "b").exists() == failed


@pytest.mark.parametrize("then", ["time.sleep(60)", "far.kill()"])
def test_missing_removal_report_counts_more_than_a_failed_file(bench, tmp_path, then):
    """23 would say that all but the failed file were moved."""
    for name in "a", "b":
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "out" / "b" / "in the way").mkdir(parents=True)
    r = bench.copy("--remove-source-files", "--timeout=2", "far:a", "far:b", "out/", rsh=without_verdict(tmp_path, then))
    assert r.code == 44 and "out/b" in r.errors() and " on far" in r.errors(), (r.code, r.errors())
    assert (tmp_path / "out" / "a").read_bytes() == b"x" and (tmp_path / "b").exists()


def test_move_does_not_wait_for_a_sink_that_has_left(bench, tmp_path):
    """It left without a word to the source, which waits, and is heard from."""
    (tmp_path / "in").write_bytes(b"x")
    began = time.monotonic()
    r = bench.copy("--remove-source-files", "--timeout=2", "in", "far:out", rsh=changing_frames(tmp_path, "if head[4] == DONE: continue"))
    assert r.code in (30, 44) and (tmp_path / "out").read_bytes() == b"x", (r.code, r.errors())
    assert time.monotonic() - began < 30, r.errors()


# The far end has left; nobody reads the answers.
PINGS = """if head[4] == VERDICT:
        ping = struct.pack("<IB3xQ", %d, 7, 1) + bytes(%d - 8)
        until = time.time() + 3
        while time.time() < until: os.write(1, ping * 4000)"""


@pytest.mark.parametrize("size, code", [(8, 0), (60_000, 12)])
def test_pings_that_follow_the_end_take_no_memory(bench, tmp_path, size, code):
    (tmp_path / "in").write_bytes(b"x")
    memory = Memory(bench)
    memory.start()
    r = bench.copy("--remove-source-files", "far:in", "out", rsh=changing_frames(tmp_path, PINGS % (size, size)))
    memory.stop.set()
    memory.join()
    assert r.code == code, r.errors()
    assert memory.most[r.proc.pid] < MEMORY_MAX, r.errors()


@pytest.mark.parametrize("code", [22, 41, 44])
def test_later_failure_of_the_source_counts_more_than_a_failed_file(bench, tmp_path, code):
    for name in "a", "b":
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "out" / "b" / "in the way").mkdir(parents=True)
    r = bench.copy("far:a", "far:b", "out/", rsh=changing_frames(
        tmp_path, "if head[4] == VERDICT: time.sleep(1); body = bytes([%d]) + body[1:]" % code))
    assert r.code == code and "out/b" in r.errors(), (r.code, r.errors())


@pytest.mark.parametrize("options", [[], ["--remove-source-files"]])
def test_missing_report_of_the_sink_is_no_failure(bench, tmp_path, options):
    """The source knows that all is stored, and what it removed."""
    (tmp_path / "in").write_bytes(b"x")
    r = bench.copy(*options, "in", "far:out", rsh=without_verdict(tmp_path, "far.kill()"))
    assert r.code == 0, r.errors()
    assert (tmp_path / "out").read_bytes() == b"x" and (tmp_path / "in").exists() == (not options)


def test_source_that_is_the_target_is_refused(bench, tmp_path):
    (tmp_path / "in").write_bytes(b"precious")
    os.link(tmp_path / "in", tmp_path / "link")
    for to in ("in", "link", "."):
        r = bench.copy("in", to)
        assert r.code == 11 and "same file" in r.errors(), (to, r.code, r.errors())
    assert (tmp_path / "in").read_bytes() == b"precious"


def test_second_source_of_one_name_is_refused(bench, tmp_path, way):
    for d in "ab":
        (tmp_path / d).mkdir()
        (tmp_path / d / "x").write_bytes(d.encode())
    (tmp_path / "to").mkdir()
    r = bench.copy(*[way[0] + str(tmp_path / d / "x") for d in "ab"], way[1] + str(tmp_path / "to"))
    assert r.code == 23, r.errors()
    assert (tmp_path / "to" / "x").read_bytes() == b"a"


@pytest.mark.lanes
def test_sources_on_several_hosts_are_copied(bench, tmp_path):
    (tmp_path / "to").mkdir()
    for n in "abc":
        (tmp_path / n).write_bytes(n.encode())
    r = bench.copy("near:%s/a" % tmp_path, "far:%s/b" % tmp_path, "c", "far:%s/to" % tmp_path)
    assert r.code == 0, r.errors()
    assert sorted(os.listdir(tmp_path / "to")) == ["a", "b", "c"]


@pytest.mark.parametrize("first", [[], ["near:missing"], ["near:a", "near:b"]])
def test_interruption_ends_the_copies_from_all_hosts(bench, tmp_path, first):
    """Whatever happened to what the hosts before had."""
    for n in "abc":
        (tmp_path / n).write_bytes(n.encode())
    (tmp_path / "to" / "b" / "in the way").mkdir(parents=True)
    (tmp_path / "large").write_bytes(bytes(8 << 20))
    r = bench.copy("--bwlimit=512KiB", *first, "far:large", "c", "to/", wait=False)
    wait_until(lambda: any(n.startswith(".sluice") for n in os.listdir(tmp_path / "to")))
    r.signal(signal.SIGINT)
    assert r.wait() == 20, r.errors()
    assert not (tmp_path / "to" / "c").exists(), r.errors()


@pytest.mark.needs("verbs", why="over loopback both ends resolve to TCP whatever is asked for")
@pytest.mark.lab("siw", long=True)
@pytest.mark.lanes
def test_transport_is_reported(bench, tmp_path):
    (tmp_path / "in").write_bytes(pattern(BLOCK))
    r = bench.copy("-v", "in", "far:%s/out" % tmp_path)
    assert r.code == 0 and "rdma" in r.errors(), r.errors()


@pytest.mark.may_skip("any", "between two local ends there is no ssh", cases="local")
@pytest.mark.lab("siw", cases="push*", long=True)
def test_transport_ssh_copies(bench, tmp_path, way):
    """The last resort where a firewall allows only ssh."""
    if way == ("", ""):
        pytest.skip("no ssh between two local ends")
    data = pattern(9 * BLOCK + 1)
    (tmp_path / "in").write_bytes(data)
    r = bench.copy("-v", way[0] + str(tmp_path / "in"), way[1] + str(tmp_path / "out"),
                   transport="--transport=ssh")
    assert r.code == 0, r.errors()
    assert (tmp_path / "out").read_bytes() == data
    assert r.errors().count("data goes over ssh") == 1, r.errors()


@pytest.mark.parametrize("sources", [["in"], ["far:TOP/other", "in"]], ids=len)
def test_transport_ssh_leads_to_another_host(bench, tmp_path, sources):
    """Each session needs one: that of a local source to a local target has none."""
    for name in ("in", "other"):
        (tmp_path / name).write_bytes(b"content")
    (tmp_path / "to").mkdir()
    r = bench.copy(*[s.replace("TOP", str(tmp_path)) for s in sources], "to", transport="--transport=ssh", cwd=tmp_path)
    assert r.code == 1 and r.errors().startswith("rdcp: --transport=ssh: neither in nor to is remote\n"), (r.code, r.errors())
    assert os.listdir(tmp_path / "to") == []


@pytest.mark.lab("siw", long=True)
@pytest.mark.lanes
def test_remote_copy_goes_through_this_host(bench, tmp_path):
    data = pattern(9 * BLOCK + 1)
    (tmp_path / "in").write_bytes(data)
    r = bench.copy("-3", "near:%s/in" % tmp_path, "far:%s/out" % tmp_path, transport="--transport=auto")
    assert r.code == 0, r.errors()
    assert (tmp_path / "out").read_bytes() == data
