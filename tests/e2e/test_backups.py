# SPDX-License-Identifier: Apache-2.0
"""--backup and --backup-dir lose no content, wherever DIR is and whatever names the source has."""

import os
import pathlib
import resource

import pytest

from faulty import failing
from hosts import wait_until, wait_until_gone
from processes import descendants
from trees import make, read, ways

way = ways("push", "pull", "local")

NAMES = ["f%02d" % n for n in range(30)]


def contents(top):
    """The contents of all files below top."""
    return {p.read_bytes() for p in pathlib.Path(top).rglob("*") if p.is_file() and not p.is_symlink()}


def make_pair(top, source="s"):
    """Two trees that have the same names, with files that are all different; returns all contents."""
    trees = {}
    for tree in (source, "t"):
        trees[tree] = {n: b"%s of %s" % (n.encode(), tree.encode()) for n in NAMES}
        trees[tree]["sub"] = {n: b"sub/%s of %s" % (n.encode(), tree.encode()) for n in NAMES}
    make(top, trees)
    return contents(top)


def copy(bench, top, way, *options, source="s/"):
    return bench.copy("-a", *options, way[0] + "%s/%s" % (top, source), way[1] + str(top / "t"))


# ---- DIR and the target ----------------------------------------------------------------------


@pytest.mark.parametrize("aside", [".", "./", "TOP/t", "TOP/link", "../t/sub/.."])
def test_backup_dir_that_is_the_target_needs_a_suffix(bench, tmp_path, way, aside):
    made = make_pair(tmp_path)
    (tmp_path / "link").symlink_to("t")
    was, aside = read(tmp_path), "--backup-dir=" + aside.replace("TOP", str(tmp_path))
    r = copy(bench, tmp_path, way, aside)
    assert r.code == 1 and "is the target itself" in r.errors(), (r.code, r.errors())
    assert read(tmp_path) == was
    r = copy(bench, tmp_path, way, aside, "--suffix=.old", "--delete")
    assert r.code == 0 and contents(tmp_path) == made, (r.code, r.errors())
    assert set(os.listdir(tmp_path / "t")) == {n + more for n in NAMES for more in ("", ".old")} | {"sub"}


def test_backup_dir_that_contains_a_target_file_needs_a_suffix(bench, tmp_path, way):
    make(tmp_path, {"f": b"new", "t": {"f": b"old"}})
    words = [way[0] + str(tmp_path / "f"), way[1] + str(tmp_path / "t" / "f")]
    for aside in (".", str(tmp_path / "t")):
        r = bench.copy("--backup-dir=" + aside, *words)
        assert r.code == 1 and read(tmp_path / "t") == {"f": b"old"}, (r.code, r.errors())


@pytest.mark.parametrize("aside, old", [("sub", True), ("sub/", True), ("sub/.", True), ("TOP/t/sub", True),
                                        ("TOP/link", True), ("sub", False)])
def test_source_directory_with_the_name_of_backup_dir_fails(bench, tmp_path, way, aside, old):
    """Its files and the backups would have the same names."""
    made = make_pair(tmp_path)
    if not old:
        for path in (tmp_path / "t" / "sub").iterdir():
            made.discard(path.read_bytes())
            path.unlink()
        (tmp_path / "t" / "sub").rmdir()
    (tmp_path / "link").symlink_to("t/sub")
    for n in NAMES[:10]:    # backups there replace older ones
        path = tmp_path / "t" / "sub" / n
        made -= {path.read_bytes()} if path.exists() else set()
        path.unlink(missing_ok=True)
    r = copy(bench, tmp_path, way, "--backup-dir=" + aside.replace("TOP", str(tmp_path)), "--remove-source-files")
    assert r.code == 23 and "it is --backup-dir=" in r.errors(), (r.code, r.errors())
    over = {b"sub/%s of t" % n.encode() for n in NAMES}     # a backup replaces anything older of its name
    assert contents(tmp_path) >= made - over
    assert set(os.listdir(tmp_path / "s" / "sub")) == set(NAMES)
    assert {n: (tmp_path / "t" / n).read_bytes() for n in NAMES} == {n: b"%s of s" % n.encode() for n in NAMES}


def test_source_file_with_the_name_of_backup_dir_fails(bench, tmp_path, way):
    make(tmp_path, {"s": {"a": b"a", "aside": b"file"}, "t": {"a": b"old"}})
    r = copy(bench, tmp_path, way, "--backup-dir=aside")
    assert r.code == 23 and "it is --backup-dir=" in r.errors(), (r.code, r.errors())
    assert read(tmp_path / "t") == {"a": b"a", "aside": {"a": b"old"}}


def test_backup_dir_below_a_source_directory_takes_backups(bench, tmp_path, way):
    made = make_pair(tmp_path)
    r = copy(bench, tmp_path, way, "--backup-dir=sub/aside")
    assert r.code == 0 and contents(tmp_path) == made, (r.code, r.errors())
    assert set(os.listdir(tmp_path / "t" / "sub" / "aside")) == {*NAMES, "sub"}


def test_backup_dir_above_the_target_does_not_lead_into_it(bench, tmp_path, way):
    """The path t/f below DIR is a file of the target, and t is the target."""
    make(tmp_path, {"s": {"f": b"new f", "t": {"f": b"new t/f"}}, "t": {"f": b"old f", "t": {"f": b"old t/f"}}})
    made = contents(tmp_path)
    r = copy(bench, tmp_path, way, "--backup-dir=..")
    assert r.code == 23 and contents(tmp_path) == made, (r.code, r.errors())
    make(tmp_path, {"s2": {"f": b"newer f", "t": b"new t"}})
    (tmp_path / "t" / "t" / "f").unlink()
    (tmp_path / "t" / "t").rmdir()
    make(tmp_path, {"t": {"t": b"old t"}})
    r = copy(bench, tmp_path, way, "--backup-dir=..", source="s2/")
    assert r.code == 23 and (tmp_path / "t" / "t").read_bytes() == b"old t", (r.code, r.errors())


# ---- DIR and the source ----------------------------------------------------------------------


@pytest.mark.parametrize("aside", ["../s/sub", "../s/sub/deep/er", "../s", "TOP/link"])
def test_backup_dir_in_a_source_is_refused(bench, tmp_path, way, aside):
    """A backup there could replace a file that is still to be read."""
    make_pair(tmp_path)
    (tmp_path / "link").symlink_to("s/sub")
    made = contents(tmp_path)
    r = copy(bench, tmp_path, way, "--backup-dir=" + aside.replace("TOP", str(tmp_path)))
    assert r.code == 23 and "is a source" in r.errors(), (r.code, r.errors())
    assert contents(tmp_path) == made


def test_backup_dir_in_a_later_source_is_refused(bench, tmp_path, way):
    """Before anything of that source is sent."""
    make(tmp_path, {"s1": {n: b"one " + n.encode() for n in NAMES}, "t": {n: b"old " + n.encode() for n in NAMES},
                    "s2": {"sub": {n: b"two " + n.encode() for n in NAMES}}})
    was = read(tmp_path / "s2")
    r = bench.copy("-a", "--backup-dir=../s2/sub", way[0] + "%s/s1/" % tmp_path, way[0] + "%s/s2/" % tmp_path,
                   way[1] + str(tmp_path / "t"))
    assert r.code == 23 and "is a source" in r.errors(), (r.code, r.errors())
    assert read(tmp_path / "s2") == was


def test_backup_dir_above_a_source_does_not_lead_into_it(bench, tmp_path, way):
    make(tmp_path, {"s": {"s": {"f": b"new s/f"}, "f": b"new f"}, "t": {"s": {"f": b"old s/f"}, "f": b"old f"}})
    made = contents(tmp_path)
    r = copy(bench, tmp_path, way, "--backup-dir=..")
    assert r.code == 23 and contents(tmp_path) == made, (r.code, r.errors())
    assert read(tmp_path / "s") == {"s": {"f": b"new s/f"}, "f": b"new f"}


def test_backup_does_not_replace_a_named_source_file(bench, tmp_path, way):
    make(tmp_path, {"s": {"f": b"new f", "g": b"new g"}, "t": {"f": b"old f", "g": b"old g"}})
    r = bench.copy("-a", "--backup-dir=../s", *[way[0] + str(tmp_path / "s" / n) for n in "fg"],
                   way[1] + str(tmp_path / "t"))
    assert r.code == 23 and "is a source" in r.errors(), (r.code, r.errors())
    assert contents(tmp_path) == {b"new f", b"new g", b"old f", b"old g"}


# ---- names of the source that look like names of backups ---------------------------------------


def make_lookalikes(top, suffix="~", more=1):
    """Trees in which each name comes with suffix appended up to more times; returns all contents."""
    names = [n + suffix * k for n in NAMES for k in range(more + 1)]
    make(top, {tree: {n: b"%s of %s" % (n.encode(), tree.encode()) for n in names} for tree in ("s", "t")})
    return contents(top)


@pytest.mark.parametrize("suffix, more", [("~", 1), ("~", 2), (".x", 1)])
@pytest.mark.parametrize("options", [["-r"], ["-r", "--delete"], ["-a", "--lanes=4"]], ids=" ".join)
def test_backups_of_names_that_look_like_backups_are_all_kept(bench, tmp_path, way, suffix, more, options):
    made = make_lookalikes(tmp_path, suffix, more)
    r = bench.copy(*options, "-b", "--suffix=" + suffix, way[0] + "%s/s/" % tmp_path, way[1] + str(tmp_path / "t"))
    assert r.code == 0 and contents(tmp_path) == made, (r.code, r.errors())
    there = read(tmp_path / "t")
    assert all(there[n] == b for n, b in read(tmp_path / "s").items())


def test_named_sources_that_look_like_backups_keep_all_backups(bench, tmp_path, way):
    """Also if a pattern names them."""
    made = make_lookalikes(tmp_path)
    names = ["s/*"] if way[0] else ["s/" + n for n in os.listdir(tmp_path / "s")]
    r = bench.copy("-b", *[way[0] + "%s/%s" % (tmp_path, n) for n in names], way[1] + str(tmp_path / "t"))
    assert r.code == 0 and contents(tmp_path) == made, (r.code, r.errors())


def test_backup_beside_an_excluded_file_has_one_suffix(bench, tmp_path, way):
    make(tmp_path, {"s": {"f": b"new", "f~": b"not copied"}, "t": {"f": b"old", "f~": b"older"}})
    r = copy(bench, tmp_path, way, "-b", "--exclude=*~")
    assert r.code == 0 and read(tmp_path / "t") == {"f": b"new", "f~": b"old"}, (r.code, r.errors())


def test_backup_of_a_deleted_file_replaces_no_backup_of_this_run(bench, tmp_path, way):
    make(tmp_path, {"s": {"f~": b"new f~"}, "t": {"f": b"old f", "f~": b"old f~"}})
    made = contents(tmp_path)
    r = copy(bench, tmp_path, way, "-b", "--delete")
    assert r.code == 0 and contents(tmp_path) == made, (r.code, r.errors())
    assert read(tmp_path / "t") == {"f~": b"new f~", "f~~": b"old f~", "f~~~": b"old f"}


def test_file_whose_whole_name_is_the_suffix_is_spared(bench, tmp_path, way):
    make(tmp_path, {"s": {}, "t": {"~": b"kept", "g": b"old"}})
    r = copy(bench, tmp_path, way, "-b", "--delete")
    assert r.code == 0 and read(tmp_path / "t") == {"~": b"kept", "g~": b"old"}, (r.code, r.errors())


@pytest.mark.parametrize("aside", [None, "bk"])
def test_older_backup_has_its_name_until_it_is_replaced(bench, tmp_path, way, aside):
    """A run that dies leaves the older backup or the new one."""
    make(tmp_path, {"s": {"f": b"new"}, "t": {"f": b"old", **({"bk": {"f": b"older"}} if aside else {"f~": b"older"})}})
    r = bench.copy("-r", *(["--backup-dir=" + aside] if aside else ["-b"]), way[0] + "%s/s/" % tmp_path,
                   way[1] + str(tmp_path / "t"), env=failing(tmp_path, "unlinkat", name="f" if aside else "f~"))
    assert r.code == 0 and not (tmp_path / "failed").exists(), (r.code, r.errors())
    backup = {"bk": {"f": b"old"}} if aside else {"f~": b"old"}
    assert read(tmp_path / "t") == {"f": b"new", **backup}


# ---- reruns ------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [["-r"], ["-r", "--ignore-times", "--delete"], ["-r", "--lanes=4"]],
                         ids=" ".join)
@pytest.mark.parametrize("aside", [None, "bk", "../bk"])
def test_rerun_keeps_the_backups_of_an_interrupted_run(bench, tmp_path, way, options, aside):
    """Complete files of the first run are sent again. A backup of them would replace the backup of the old content."""
    big = os.urandom(3 << 20)
    new = {"f": b"new f", "big": big, "empty": b"", "d": {"g": b"new g"}, "not yet": b"new", "as long": b"NEW"}
    make(tmp_path, {"s": new, "t": {**new, "not yet": b"old", "as long": b"OLD"}})
    kept = {"f": b"old f", "big": b"old big", "empty": b"old empty", "d": {"g": b"old g"}}
    there = {None: tmp_path / "t", "bk": tmp_path / "t" / "bk", "../bk": tmp_path / "bk"}[aside]
    if aside:
        make(there, kept)
    else:
        make(there, {n + "~": c for n, c in kept.items() if n != "d"})
        make(there, {"d": {"g~": b"old g"}})
    was = contents(tmp_path)
    for _ in range(2):
        r = bench.copy(*options, *(["--backup-dir=" + aside] if aside else ["-b"]), way[0] + "%s/s/" % tmp_path,
                       way[1] + str(tmp_path / "t"))
        assert r.code == 0 and contents(tmp_path) == was, (r.code, r.errors())


# ---- moved files whose names are those of backups ----------------------------------------------


@pytest.mark.parametrize("options", ["-r", "-aH", "-a --suffix=.old --checksum"])
def test_moved_file_keeps_its_content_from_the_backup_of_a_rerun(bench, tmp_path, way, options):
    """While the source has f~, the backup of f is f~~. When f is copied only by a rerun, the source must still have it."""
    suffix = ".old" if "old" in options else "~"
    new = os.urandom(1 << 20)
    make(tmp_path, {"s": {"f": new, "f" + suffix: b"moved", "g": b"g"}, "t": {"f": b"replaced"}})
    was = contents(tmp_path)
    words = ["--remove-source-files", "-b", *options.split(), way[0] + "%s/s/" % tmp_path, way[1] + str(tmp_path / "t")]
    r = bench.copy(*words, preexec=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (len(new) - 1, len(new) - 1)))
    assert r.code == 23 and contents(tmp_path) >= was, (r.code, r.errors())
    assert sorted(os.listdir(tmp_path / "s")) == ["f", "f" + suffix]
    assert "f%s: it is removed last, and not all others were moved" % suffix in r.errors()
    r = bench.copy(*words)
    assert r.code == 0, r.errors()
    assert not contents(tmp_path / "s")
    assert read(tmp_path / "t") == {"f": new, "f" + suffix: b"moved", "f" + 2 * suffix: b"replaced", "g": b"g"}


def move(bench, top, *options, sources=("s/",), **kwargs):
    return bench.copy("-ab", "--remove-source-files", *options, *sources, "far:%s/t" % top, cwd=top, **kwargs)


def expect_nothing_lost(bench, top, was, run, *options, sources=("s/",), code=0):
    """After a move that failed in part, and after its rerun."""
    assert run.wait() == 23 and contents(top) >= was, run.errors()
    r = move(bench, top, *options, sources=sources)
    assert r.code == code and contents(top) >= was, (r.code, r.errors())


def test_file_of_a_later_source_waits_for_that_of_an_earlier_one(bench, tmp_path):
    new = os.urandom(1 << 20)
    make(tmp_path, {"s": {"f": new}, "s2": {"f~": b"moved"}, "t": {"f": b"replaced"}})
    was = contents(tmp_path)
    run = move(bench, tmp_path, sources=("s/", "s2/"), wait=False,
               preexec=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (len(new) - 1, len(new) - 1)))
    expect_nothing_lost(bench, tmp_path, was, run, sources=("s/", "s2/"))


def test_such_a_file_waits_for_one_whose_link_leads_nowhere_yet(bench, tmp_path):
    make(tmp_path, {"s": {"f~": b"moved"}, "t": {"f": b"replaced"}})
    was = contents(tmp_path)
    os.symlink("../later", tmp_path / "s" / "f")
    run = move(bench, tmp_path, "--copy-links", wait=False)
    run.wait()
    (tmp_path / "later").write_bytes(b"linked")
    # A link is no file to remove.
    expect_nothing_lost(bench, tmp_path, was, run, "--copy-links", code=23)


@pytest.mark.parametrize("change", ["link", "content"])
@pytest.mark.parametrize("options", [[], ["--delete"]], ids=" ".join)
def test_such_a_file_waits_for_one_that_changed(bench, tmp_path, change, options):
    """f~~ for f~ as well as f~ for f."""
    make(tmp_path, {"s": {"f": b"new", "f~": b"moved", "f~~": b"moved too", "z": os.urandom(3 << 20)},
                    "t": {"f": b"replaced"}})
    was = contents(tmp_path / "s")
    run = move(bench, tmp_path, "--bwlimit=1M", *options, wait=False)
    wait_until(lambda: (tmp_path / "t" / "f~").exists())
    name = tmp_path / "s" / "f~"
    if change == "link":
        name.unlink()
        name.symlink_to("elsewhere")
    else:
        name.write_bytes(b"somebody else's")
    expect_nothing_lost(bench, tmp_path, was - ({b"moved"} if change == "content" else set()), run, *options)


def test_killed_move_leaves_such_a_file(bench, tmp_path):
    make(tmp_path, {"s": {"f": os.urandom(24 << 20), "f~": b"moved"}, "t": {"f": b"replaced"}})
    was = contents(tmp_path)
    run = bench.copy("-rb", "--remove-source-files", "--bwlimit=2M", "%s/s/" % tmp_path, "far:%s/t" % tmp_path, wait=False)
    wait_until(lambda: (tmp_path / "t" / "f~").exists())
    seen = descendants(run.proc.pid)
    run.kill()
    wait_until_gone(seen)
    r = bench.copy("-rb", "--remove-source-files", "%s/s/" % tmp_path, "far:%s/t" % tmp_path)
    assert r.code == 0 and contents(tmp_path) == was, r.errors()


def test_moved_file_with_the_name_of_a_backup_goes_if_nothing_failed(bench, tmp_path, way):
    """Even if its original stays, because the target's is kept."""
    make(tmp_path, {"s": {"f": b"new", "f~": b"moved"}, "t": {"f": b"kept"}})
    r = bench.copy("-rb", "--remove-source-files", "--ignore-existing", way[0] + "%s/s/" % tmp_path, way[1] + str(tmp_path / "t"))
    assert r.code == 0, r.errors()
    assert read(tmp_path / "t") == {"f": b"kept", "f~": b"moved"}
    assert os.listdir(tmp_path / "s") == ["f"]
